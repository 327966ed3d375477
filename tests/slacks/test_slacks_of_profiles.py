"""Bounds of profiles and contours hold exact numbers, and would not without their slacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import mpmath
import numpy as np
from mpmath import mpf

from neyman import curves
from neyman.curves.profiles.closed_forms.bounded_range_releases import (
    BoundedRangeProfile,
    EnvelopeProfile,
)
from neyman.curves.profiles.closed_forms.closed_form import (
    GaussianMixtureProfile,
    LaplaceProfile,
    MixtureProfile,
)
from neyman.curves.profiles.contour import complement_line as complement
from neyman.curves.profiles.contour.contour import AROUND, ContourProfile, _plus
from neyman.curves.profiles.contour_line import Telescope, aliases
from neyman.curves.profiles.duality import CHORDS
from neyman.curves.profiles.lattice.lattice import Side
from neyman.curves.profiles.operation_limits import AWAY, CHEAP_TILTS, LARGEST_TILT, ExponentProfile
from neyman.curves.profiles.sampled_steps.many_steps import StepSum
from neyman.curves.profiles.sampled_steps.one_subsampled_step import (
    ReplaceOneStepProfile,
    SubsampledStepProfile,
)
from neyman.curves.profiles.sampled_steps.step_nodes import StepNodes
from neyman.numerics import Array, Atoms, Discretization
from slacks import Known, Perfect, held, log_kernel, needed, numbers

F = Fraction


def tail(x: mpf) -> mpf:
    """P(N > x)."""
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def gaussian(mu: mpf, epsilon: mpf) -> mpf:
    a = epsilon / mu
    return mpmath.log(tail(a - mu / 2) - mpmath.exp(epsilon) * tail(a + mu / 2))


@needed
def test_delta_of_equal_laws() -> Iterator[bool]:
    for (epsilon,) in numbers(1, 40, (-9.0, -1e-3)):
        yield held(curves.PerfectProfile().log_delta(epsilon), mpmath.log(-mpmath.expm1(epsilon)))


@needed
def test_delta_of_a_gaussian_pair() -> Iterator[bool]:
    for mu, x in numbers(2, 60, (0.1, 9.0), (-4.0, 30.0)):
        epsilon = float(mu * x)
        yield held(curves.GaussianProfile(mu).log_delta(epsilon), gaussian(mpf(mu), mpf(epsilon)))
    for y in (1e6, 1e9):  # far out its place is rounded
        epsilon = y * math.sqrt(2)
        yield held(curves.GaussianProfile(0.3).log_delta(epsilon), gaussian(mpf(0.3), mpf(epsilon)))
    for digit in range(1, 40):  # a logarithm of -276 is rounded
        mu = digit * 1.3e-120
        exact = mpmath.log(mpmath.erf(mpf(mu) / mpmath.sqrt(8)))
        yield held(curves.GaussianProfile(mu).log_delta(0.0), exact)


@needed
def test_the_power_of_a_gaussian_pair() -> Iterator[bool]:
    for mu, z in numbers(3, 60, (0.1, 9.0), (-30.0, 3.0)):
        log_level = float(mpmath.log(tail(-mpf(z))))
        place = mpf(z)
        for _ in range(4):
            level = tail(-place)
            place -= (mpmath.log(level) - log_level) * level / mpmath.npdf(place)
        yield held(curves.GaussianProfile(mu).log_power(log_level), mpmath.log(tail(-place - mu)))


@needed
def test_the_mu_of_a_gaussian_pair() -> Iterator[bool]:
    for (squared,) in numbers(4, 40, (0.1, 9.0)):
        yield held(curves.GaussianProfile(math.sqrt(squared)).mu(), mpmath.sqrt(squared))


@needed
def test_delta_of_a_laplace_pair() -> Iterator[bool]:
    for a, share in numbers(5, 60, (0.1, 9.0), (-1.0, 1.0)):
        epsilon = share * a
        exact = mpmath.log(-mpmath.expm1((mpf(epsilon) - a) / 2))
        yield held(LaplaceProfile(F(a)).log_delta(epsilon), exact)


@needed
def test_the_mean_of_two_profiles() -> Iterator[bool]:
    for x, w in numbers(6, 60, (-90.0, -0.1), (0.1, 0.9)):
        one, two = Known(x, 0.0), Known(x / 2, 0.0)
        profile = MixtureProfile(((w, one), (1 - w, two)))
        exact = mpmath.log(w * mpmath.exp(x) + (1 - w) * mpmath.exp(mpf(x) / 2))
        yield held(profile.log_delta(1.0), exact)
        zero = MixtureProfile(((w, Certain(x)), (1 - w, Certain(x / 2))))
        yield held(zero.log_power(-math.inf), exact)


class Certain(Known):
    """A pair whose power at level 0 is known."""

    def __init__(self, log_power: float) -> None:
        super().__init__(log_power, 0.0)

    def log_power(self, log_level: float) -> curves.Interval:
        return self.start, self.start


@needed
def test_delta_below_zero() -> Iterator[bool]:
    for epsilon, log_delta in numbers(7, 100, (-40.0, -1e-3), (-40.0, -0.1)):
        ends = curves.log_delta_below_zero(epsilon, (log_delta, log_delta))
        exact = mpmath.log(-mpmath.expm1(epsilon) + mpmath.exp(mpf(epsilon) + log_delta))
        yield held((float(ends[0]), float(ends[1])), exact)


@needed
def test_delta_of_a_sampled_step() -> Iterator[bool]:
    near_the_end = [
        (q, math.log1p(q * math.expm1(place)), slope * place - 0.5, slope)
        for q, place, slope in numbers(8, 60, (0.1, 0.9), (-12.0, -3.0), (0.1, 1.0))
    ]
    far = numbers(9, 60, (0.01, 0.9), (0.01, 3.0), (-700.0, -100.0), (0.0, 1e-20))
    for q, epsilon, start, slope in (*near_the_end, *far):
        profile = SubsampledStepProfile(Known(start, slope), Known(start, slope), q, "removed")
        if mpmath.expm1(epsilon) > -q:
            place = mpmath.log1p(mpmath.expm1(epsilon) / q)
            exact = mpmath.log(q) + start - mpf(slope) * place
            yield exact > 0 or held(profile.log_delta(epsilon), exact)
        below = math.log1p(-q) - 0.1
        yield held(profile.log_delta(below), mpmath.log(-mpmath.expm1(below)))


@needed
def test_delta_of_a_sampled_step_in_the_other_order() -> Iterator[bool]:
    near_the_end = numbers(9, 60, (0.01, 0.9), (0.999, 0.99999), (-9.0, -1.0), (0.0, 1.0))
    steep = numbers(11, 60, (1e-12, 1e-9), (0.0, 0.02), (-9.0, -1.0), (90.0, 900.0))
    far = numbers(10, 60, (0.01, 0.9), (0.01, 0.5), (-700.0, -100.0), (0.0, 1e-20))
    for q, share, start, slope in (*near_the_end, *steep, *far):
        epsilon = -share * math.log1p(-q)
        profile = SubsampledStepProfile(Known(start, slope), Known(start, slope), q, "added")
        factor = q - mpmath.expm1(epsilon) * (1 - mpf(q))
        place = mpf(epsilon) + mpmath.log(q) - mpmath.log(factor)
        exact = mpmath.log(factor) + start - slope * place
        yield exact > 0 or held(profile.log_delta(epsilon), exact)


@needed
def test_the_power_of_a_sampled_step() -> Iterator[bool]:
    for q, level, start in numbers(10, 60, (0.01, 0.9), (-90.0, -0.1), (-90.0, -0.1)):
        profile = SubsampledStepProfile(Known(start, 0.0), Known(start, 0.0), q, "removed")
        exact = mpmath.log(q * mpmath.exp(start) + (1 - mpf(q)) * mpmath.exp(level))
        yield held(profile.log_power(level), exact)


@needed
def test_delta_of_a_bounded_range() -> Iterator[bool]:
    for a, share in numbers(14, 60, (0.1, 9.0), (-1.5, 1.0)):
        epsilon = share * a
        exact = mpmath.log(-mpmath.expm1(epsilon))
        if share > -1:
            exact = 2 * mpmath.log(-mpmath.expm1((mpf(epsilon) - a) / 2)) - mpmath.log(
                -mpmath.expm1(-a)
            )
        yield held(EnvelopeProfile(F(a)).log_delta(epsilon), exact)


class ExactLine:
    """A line that knows log(1 - delta) exactly."""

    def __init__(self, value: float) -> None:
        self.value = value

    def near(self, epsilon: float) -> float:
        return self.value

    def log_complement(self, epsilon: Array) -> tuple[Array, Array]:
        return np.full(len(epsilon), self.value), np.full(len(epsilon), self.value)


@needed
def test_a_gain_over_its_size() -> Iterator[bool]:
    for value, level, epsilon, base in numbers(
        12, 100, (-90.0, -1.0), (-90.0, -60.0), (-60.0, 60.0), (-60.0, -1.0)
    ):
        exact = mpmath.exp(mpf(value) - base) - mpmath.exp(mpf(epsilon) + level - base)
        line = cast("complement.MissLine", ExactLine(value))
        yield held(complement._gain(line, np.array([epsilon]), level, base), exact)


@needed
def test_the_largest_gain() -> Iterator[bool]:
    for (x,) in numbers(13, 60, (-30.0, 0.0)):
        size = math.exp(x)
        gain = lambda e, size=size: (size * (1 - e * e), size * (1 - e * e))  # noqa: E731
        yield held(complement._largest_at(gain, 0.0), mpmath.log(size))


@needed
def test_a_line_that_is_added_to_delta() -> Iterator[bool]:
    for epsilon, level, value in numbers(16, 60, (-90.0, 90.0), (-90.0, -1.0), (-90.0, -0.1)):
        known = curves.Conjugate(
            lambda e, v=value: (np.full(len(e), v),) * 2, np.zeros(2), np.zeros(2)
        )
        exact = mpmath.log(mpmath.exp(value) + mpmath.exp(mpf(epsilon) + level))
        yield held(known._line(np.array([epsilon]), np.array([level])), exact)


@needed
def test_chords_that_meet_at_a_kink() -> Iterator[bool]:
    known = curves.Conjugate(Perfect(0, 0).log_deltas, np.zeros(2), np.zeros(2))
    for level, star in numbers(17, 20, (-9.0, -1.0), (-1e-3, 1e-3)):
        low, high, _ = known.chords(np.array([star]), 0.01 * CHORDS, np.array([level]))
        yield held((float(low[0]), float(high[0])), mpf(level))


@mpmath.workdps(60)
def test_a_power_at_the_lowest_point_that_is_found() -> None:
    for level, flat in numbers(18, 30, (-90.0, -20.0), (-15.0, -1.0)):
        # delta is the same from -level / 2 on, so that the least is at the far left.
        profile = Known(flat, 1e-9)
        ends = curves.log_power_by_duality(profile.log_delta, level)
        assert ends[1] >= min_of_line(profile, level)


def min_of_line(profile: Known, level: float) -> mpf:
    """The least of log(delta + e^epsilon level) over epsilon, delta = e^{a - b epsilon}."""
    a, b = mpf(profile.start), mpf(profile.slope)
    star = (a - level + mpmath.log(b)) / (1 + b)
    return mpmath.log(mpmath.exp(a - b * star) + mpmath.exp(star + level))


class Sure:
    """A loss that is certainly 0."""

    def __init__(self, infinite: float = 0.0) -> None:
        self.infinite = infinite

    def places(self, tilt: float, height: float) -> float:
        return 1e9

    def mgf(self, z: Array) -> tuple[Array, Array]:
        return 0 * z, 0 * z


@needed
def test_chernoff_of_bounded_ranges() -> Iterator[bool]:
    profile = object.__new__(BoundedRangeProfile)
    profile._losses = cast("curves.Composition", Sure())
    for c, epsilon in numbers(19, 80, (0.1, 90.0), (0.0, 90.0)):
        answer = profile._exponents(np.array([epsilon]), np.array([[c]]))[0, 0]
        kernel = c * mpmath.log(c) - (mpf(c) + 1) * mpmath.log1p(c)
        yield answer >= kernel - mpf(c) * epsilon


@needed
def test_infinite_losses_beside_bounded_ranges() -> Iterator[bool]:
    profile = object.__new__(BoundedRangeProfile)
    profile._orders = np.array([1.0])
    for epsilon, y in numbers(20, 60, (0.0, 90.0), (-90.0, -1.0)):
        profile._losses = cast("curves.Composition", Sure(math.exp(y)))
        answer = profile._by_orders(np.array([epsilon]))[0]
        yield answer >= mpmath.log(mpmath.exp(-epsilon) / 4 + math.exp(y))


class OneLine:
    """A line with a known answer."""

    def __init__(self, value: float) -> None:
        self.value = value

    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        return np.full(len(epsilon), self.value), np.full(len(epsilon), self.value)


@needed
def test_lines_that_add_up() -> Iterator[bool]:
    for x, y in numbers(21, 60, (-90.0, -1.0), (-90.0, -1.0)):
        both = Telescope((cast("curves.Line", OneLine(x)), cast("curves.Line", OneLine(y))), ())
        yield held(both.log_delta(np.zeros(1)), mpmath.log(mpmath.exp(x) + mpmath.exp(y)))
    for tilt, epsilon in numbers(22, 60, (1e3, 1e6), (0.1, 3.0)):
        log_f = tilt * epsilon
        high = Telescope((), ((tilt, log_f),)).log_delta(np.array([epsilon]))[1]
        kernel = tilt * mpmath.log(tilt) - (mpf(tilt) + 1) * mpmath.log1p(tilt)
        yield high[0] >= log_f - mpf(tilt) * epsilon + kernel


@needed
def test_infinite_losses_beside_those_on_a_lattice() -> Iterator[bool]:
    profile = object.__new__(curves.LatticeProfile)
    for x, y in numbers(22, 60, (-90.0, -1.0), (-90.0, -1.0)):
        profile._infinite = math.exp(y)
        yield held(
            profile._with_infinite(np.array([x]), np.array([x])),
            mpmath.log(mpmath.exp(x) + profile._infinite),
        )


@needed
def test_a_sum_and_its_scale() -> Iterator[bool]:
    for value, scale in numbers(23, 60, (-90.0, -1.0), (-90.0, -1.0)):
        side = Side(np.zeros(1), np.ones(1), 0.0, scale, 0.0, 0.0, 0.0, 0.0, 0.0)
        yield held(
            side._around(np.array([value]), np.array([-1e300]), np.zeros(1), np.ones(1)),
            mpf(value) + scale,
        )


@needed
def test_delta_of_a_step_with_moved_noise() -> Iterator[bool]:
    for mu, q, share in numbers(24, 30, (0.3, 3.0), (0.05, 0.9), (0.01, 0.9)):
        loss = curves.ReplaceOneSubsampledLoss(curves.GaussianLoss(mu**2), q)
        profile, s = ReplaceOneStepProfile(loss), mpf(loss.inner.mu)
        epsilon = share * min(loss.supremum, 3.0)
        y = mpf(float(profile._piece.place(np.array([epsilon]))[0]))
        gain = q * (tail(y - s) - tail(y + s))
        exact = gain - mpmath.expm1(epsilon) * ((1 - mpf(q)) * tail(y) + q * tail(y + s))
        yield held(profile.log_delta(epsilon), mpmath.log(exact))


@needed
def test_delta_of_a_mixture_of_normal_laws() -> Iterator[bool]:
    for mu, q, epsilon in numbers(25, 20, (0.3, 3.0), (0.05, 0.9), (0.01, 2.0)):
        profile = GaussianMixtureProfile(curves.GaussianMixtureLoss((0.0, mu), (1 - q, q), True))
        place = mpmath.log1p(mpmath.expm1(epsilon) / q)
        yield held(profile.log_delta(epsilon), mpmath.log(q) + gaussian(mpf(mu), place))


@needed
def test_a_miss_from_the_reversed_pair() -> Iterator[bool]:
    for level, size in numbers(26, 20, (-0.7, -0.01), (0.5, 3.0)):
        log_level = level * 1e-3
        answer = complement._from_reverse(Known(-0.1, size), log_level, 0.0)
        share, a, b = -mpmath.expm1(log_level), mpf(-0.1), mpf(size)
        # e^x (share - e^{a + b x}) is largest where share = (1 + b) e^{a + b x}.
        x = (mpmath.log(share / (1 + b)) - a) / b
        yield answer[0] <= x + mpmath.log(share - mpmath.exp(a + b * x)) <= answer[1]


def bare(kind: type, **parts: Any) -> Any:
    """An engine that has nothing but these parts."""
    engine = object.__new__(kind)
    for name, part in parts.items():
        object.__setattr__(engine, name, part)
    return engine


@needed
def test_places_of_a_lattice_whose_step_is_no_float() -> Iterator[bool]:
    # Found by a search: here the places err by more than four units of the farthest one.
    for a, b, start, n in ((344, 630, -14, 32), (800, 136, -20, 45), (166, 324, -9, 20)):
        atoms = Atoms(Fraction(a, b), Fraction(0), start, np.ones(n))
        for side in (Side.of(atoms, 0.0), Side.of(Discretization.of(atoms, 0.0), 0.0)):
            exact = [Fraction(a, b) * (start + k) for k in range(n)]
            off = max(abs(Fraction(x) - y) for x, y in zip(side.loss.tolist(), exact, strict=True))
            yield off <= side.place


@needed
def test_the_transform_of_a_bracket_whose_factors_cancel() -> Iterator[bool]:
    n, m = 10**6 + 7, 10**6 + 2
    for tilt, v, x, y in numbers(2, 60, (0.1, 90.0), (0.0, 3.0), (-1.0, 1.0), (-30.0, -1.0)):
        for bulk in (True, False):
            pairs = [(n, x, x + y), (m, -x, y - x)]  # of counts, laws, and brackets
            nodes = [
                SimpleNamespace(count=k, log_above=lambda _, p=(b if bulk else a, b): p)
                for k, a, b in ([(n, x, x), (m, -x, -x)] if bulk else pairs)
            ]
            own = SimpleNamespace(nodes=nodes, variance=v, others=None)
            total = bare(type("Bare", (StepSum,), {"_own": own}), low=-math.inf if bulk else 0.0)
            above = total.log_above(tilt)
            exact = mpf(v) * tilt * (mpf(tilt) + 1) / 2 + n * mpf(x) + m * mpf(-x)
            if not bulk:
                ratios = ((k, mpmath.exp(mpf(b) - mpf(a))) for k, a, b in pairs)
                exact += mpmath.log(mpmath.expm1(sum(k * mpmath.log1p(r) for k, r in ratios)))
            yield above >= exact


def log_moment(mu: float, q: float, k: int) -> mpf:
    """log E R^k under Q, R = 1 - q + q e^t, t of the normal distribution with the distance mu."""
    terms = (
        mpmath.binomial(k, j) * (1 - mpf(q)) ** (k - j) * mpf(q) ** j * mpmath.exp(mpf(mu) ** 2 * i)
        for j, i in ((j, j * (j - 1) // 2) for j in range(k + 1))
    )
    return mpmath.log(sum(terms))


@needed
def test_the_transform_of_a_step_at_a_real_tilt() -> Iterator[bool]:
    often = numbers(3, 30, (0.2, 2.0), (0.05, 0.9), (1, 6))
    rarely = numbers(4, 30, (0.1, 1.0), (1e-3, 0.05), (1, 6))
    for mu, q, tilt in (*often, *rarely):
        loss = curves.SubsampledGaussianLoss(mu, q, True)
        nodes = StepNodes(loss, "one", 1, -math.inf, math.inf, 8.0, None)
        sums = nodes.line(float(int(tilt)), np.array([0.0, 0.5]))
        off = abs(sums.log_inside - log_moment(mu, q, int(tilt) + 1))
        yield off <= mpmath.log1p(sums.inside_error[0])


@needed
def test_a_power_where_the_least_epsilon_is_best() -> Iterator[bool]:
    for x, level in numbers(8, 60, (-90.0, -1.0), (-90.0, -1.0)):
        profile = bare(BoundedRangeProfile, _by_orders=lambda e, x=x: np.full(len(e), x))
        yield profile._dual(level) >= mpmath.log(mpmath.exp(x) + mpmath.exp(level))


@needed
def test_a_gain_that_gets_its_size_back() -> Iterator[bool]:
    for value, level in numbers(9, 60, (-900.0, -300.0), (-9.0, -7.0)):
        # Logarithms of the gain, which is no float, and of what is taken.
        top, taken = mpf(value) / 3, mpf(value / 3 + level)

        def log_complement(epsilon: Array, top: mpf = top, taken: mpf = taken) -> Any:
            gains = [mpmath.exp(top) * (1 - mpf(e) ** 2) for e in epsilon]
            sums = [mpmath.exp(taken + e) + g for e, g in zip(epsilon, gains, strict=True)]
            return np.array([Known(0.0, 0.0)._ends(mpmath.log(x)) for x in sums]).T

        line = SimpleNamespace(near=lambda _, v=value: v / 3 + 2.0, log_complement=log_complement)
        yield held(
            complement._on_line(cast("complement.ComplementLine", line), 0.0, value / 3 + level),
            top,
        )


PI = mpmath.pi


@dataclass(frozen=True)
class SureLine(curves.LineSum):
    """A loss that is certainly one number: K(c) = c x, exact if both have few digits."""

    loss: float
    error: float = 0.0  # that K is said to have

    def places(self, tilt: float, height: float) -> float:
        return 1.0

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        return z * self.loss, np.full(len(z), self.error)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return tilts * self.loss, np.full(len(tilts), self.loss), np.zeros(len(tilts))

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        return np.zeros(len(edges))


class Blind(ContourProfile):
    """A contour that knows nothing but the mass and the size of the largest losses."""

    def __init__(self, infinite: float = 0.0, supremum: float = math.inf) -> None:
        super().__init__(SureLine(0.0), self._never, infinite, supremum, 0.0)
        self.patient = False

    def _never(self) -> curves.Profile:
        raise AssertionError("it is its own reverse here")

    def _chernoff(self, log_levels: Array) -> Array:
        return np.full(len(log_levels), -math.inf)

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        return np.full(len(log_levels), -math.inf), np.zeros(len(log_levels))


def sure(loss: float) -> ContourProfile:
    return ContourProfile(SureLine(loss), Blind, 0.0, loss, 0.0)


@needed
def test_a_mass_that_is_added_to_a_logarithm() -> Iterator[bool]:
    for x, y in numbers(1, 100, (-700.0, 0.0), (-700.0, 0.0)):
        mass = math.exp(y)
        low, high = _plus(np.array([x]), np.array([x]), mass)
        yield low[0] <= mpmath.log(mpmath.exp(x) + mass) and (
            high[0] >= min(mpmath.log(mpmath.exp(x) + mass), 0)
        )


@needed
def test_chernoff_by_a_few_tilts() -> Iterator[bool]:
    for loss, epsilon in [
        *numbers(2, 40, (0.0, 1e-3), (1e6, 1e9)),
        *numbers(3, 40, (0, 9), (0, 1)),
    ]:
        short = round(1024 * loss) / 1024
        tilts = curves.saddle(SureLine(short), epsilon) * AROUND
        exact = min(mpf(c) * mpf(short) + log_kernel(c) - mpf(c) * mpf(epsilon) for c in tilts)
        yield sure(short)._chernoff_bound(np.array([epsilon]))[0] >= exact


@needed
def test_chernoff_near_the_saddle() -> Iterator[bool]:
    for (epsilon,) in numbers(3, 60, (1e3, 1e9)):
        place = math.exp(curves.tilts_of(SureLine(0.0), epsilon)[1])
        exact = min(log_kernel(c) - mpf(c) * epsilon for c in place * AROUND)
        yield sure(0.0)._exponent(epsilon, place) >= exact


@needed
def test_chernoff_of_a_power() -> Iterator[bool]:
    tilts = 2.0 ** (0.5 * np.arange(-6, 13))
    for (level,) in numbers(4, 40, (-1e6, -1e3)):
        exact = min(
            (log_kernel(c) + mpmath.log(c) + c * mpf(level)) / (1 + mpf(c))
            + mpmath.log1p(1 / mpf(c))
            for c in tilts
        )
        yield sure(0.0).log_powers_above(np.array([level]))[0] >= exact


@needed
def test_a_power_is_at_least_the_level_and_gains_at_most_the_largest_loss() -> Iterator[bool]:
    for level, x, mass in numbers(5, 40, (1e-9, 0.9), (3.0, 9.0), (-600.0, -1.0)):
        log_level, infinite = math.log(level), math.exp(mass)
        yield Blind().log_power(log_level)[0] <= mpmath.log(level)
        yield held(Blind(supremum=x).log_power(mass), x + mpf(mass))
        yield held(Blind(infinite).log_power(-math.inf), mpmath.log(infinite))


@needed
def test_a_line_of_one_node() -> Iterator[bool]:
    none = np.array([[2.0], [-1e9], [1.0], [1.0]])
    for c, top, epsilon, weight in numbers(7, 60, (0.1, 9.0), (0.1, 90), (100.0, 900.0), (0.1, 1)):
        for side, k in ((c, top), (-c / 10, top - 950)):
            known = np.array([weight, 0.0])
            line = curves.Line(side, np.arange(2.0), known, k, 0.0, 0.0, (none, none))
            exact = min(mpmath.log(weight) + k - mpf(side) * epsilon, 0)
            yield held(line.log_delta(np.array([epsilon])), exact)
    for c, k, away in numbers(8, 30, (1e6, 1e9), (1.0, 9.0), (1.0, 9.0)):
        beyond = aliases(c - away, math.tau, np.array([c]), np.array([k]))[1]
        line = curves.Line(1.0, np.arange(2.0), np.zeros(2), 0.0, 0.0, 0.0, (none, beyond))
        gap = float(beyond[2, 0])
        kernel = c * mpmath.log(c) - (mpf(c) + 1) * mpmath.log(mpf(c) + 1)
        alias = k + kernel - gap - mpmath.log(-mpmath.expm1(-mpf(gap)))
        yield min(alias, 0) <= line.log_delta(np.zeros(1))[1][0]


@needed
def test_chernoff_far_out() -> Iterator[bool]:
    c = mpf(5e8)
    for (epsilon,) in numbers(8, 60, (0.0, 3.0)):
        exact = log_kernel(c) - c * epsilon
        yield curves.log_chernoff(SureLine(0.0), epsilon) >= exact
    for (epsilon,) in numbers(9, 60, (1e3, 1e9)):
        yield curves.log_chernoff(SureLine(0.0), epsilon) >= log_kernel(c) - c * epsilon


@needed
def test_the_error_of_k_is_added() -> Iterator[bool]:
    for loss, error in numbers(10, 60, (0.0, 20.0), (0.0, 1.0)):
        most = curves.mgf_below(SureLine(loss, error), np.array([0.5]))
        yield most[0] >= -mpf(loss) / 2 + mpmath.log1p(error)


@needed
def test_a_miss_by_chernoff() -> Iterator[bool]:
    for most, level, a in numbers(11, 200, (-9.0, 0.0), (-20.0, -1e-3), (0.01, 0.99)):
        t = min((x - mpf(level)) / (1 - mpf(b)) for b, x in ((0, mpf(0)), (a, mpf(most))))
        miss = most + t * a
        low = curves.least_log_powers(np.array([most]), np.array([level]), np.array([a]))
        yield low[0] == -math.inf or low[0] <= mpmath.log1p(-mpmath.exp(miss))


@dataclass(frozen=True)
class Facts:
    """What a sum says of itself: the loss is certainly one number, where K is known."""

    loss: float = math.inf
    infinite: float = 0.0
    supremum: float = math.inf
    log_total_variation: float = 0.0
    mu: float = math.inf

    @property
    def least(self) -> Facts:
        return self

    def places(self, tilt: float, height: float) -> float:
        return 1.0

    def mgf(self, z: Array) -> tuple[Array, Array]:
        return z * self.loss, np.zeros(len(z))


def profile(facts: Facts) -> ExponentProfile:
    return ExponentProfile(cast("curves.Composition", facts))


def short(x: float) -> float:
    """A number of few bits, of which every product with a tilt is exact."""
    return round(1024 * x) / 1024


def exponent(c: float, loss: float) -> mpf:
    return c * mpf(loss) + c * mpmath.log(c) - (c + 1) * mpmath.log1p(c)


@needed
def test_exponents_at_a_few_tilts() -> Iterator[bool]:
    for (loss,) in numbers(1, 40, (-90.0, 90.0)):
        tilts, most, slack = profile(Facts(short(loss)))._exponents
        for c, a, more in zip(tilts.tolist(), most.tolist(), slack.tolist(), strict=True):
            yield abs(a - exponent(c, short(loss))) <= more


@needed
def test_delta_by_exponents_and_by_a_proven_mu() -> Iterator[bool]:
    for loss, epsilon in numbers(2, 60, (0.0, 9.0), (1e3, 1e6)):
        exact = min(exponent(c, short(loss)) - c * mpf(epsilon) for c in CHEAP_TILTS.tolist())
        yield profile(Facts(short(loss))).log_delta(epsilon)[1] >= exact
    for squared, share in numbers(3, 60, (0.1, 9.0), (2.0, 90.0)):
        epsilon, c = share * 9 * LARGEST_TILT, mpf(LARGEST_TILT)
        exact = squared * c * (c + 1) / 2 - c * mpf(epsilon) + exponent(LARGEST_TILT, 0.0)
        yield profile(Facts(mu=math.sqrt(squared))).log_delta(epsilon)[1] >= exact
    for (x,) in numbers(4, 60, (-600.0, -1.0)):
        mass = math.exp(x)
        yield profile(Facts(0.0, infinite=mass)).log_delta(1e9)[1] >= mpmath.log(mass)


@needed
def test_delta_by_the_test_that_rejects_large_losses() -> Iterator[bool]:
    for loss, epsilon in numbers(5, 60, (1e3, 1e6), (0.0, 9.0)):
        # No loss is below the threshold, up to e^-99.
        exact = max(-mpmath.expm1(-mpf(s)) for s in AWAY)
        yield profile(Facts(short(loss))).log_delta(epsilon)[0] <= mpmath.log(exact)


@needed
def test_the_logarithm_of_a_mass_of_infinite_loss() -> Iterator[bool]:
    for (x,) in numbers(6, 60, (-700.0, -1.0)):
        mass = math.exp(x)
        yield held(profile(Facts(infinite=mass)).log_power(-math.inf), mpmath.log(mass))


@needed
def test_a_power_by_exponents_and_by_the_largest_loss() -> Iterator[bool]:
    for level, x in numbers(7, 60, (-1e6, -1e3), (-90.0, -1.0)):
        most = profile(Facts(log_total_variation=level * 1.5)).log_power(level)[1]
        yield most >= mpmath.log(mpmath.exp(level) + mpmath.exp(mpf(level * 1.5)))
        yield profile(Facts(supremum=-x)).log_power(level)[1] >= level - mpf(x)
    for loss, level in numbers(8, 200, (-1e9, 0.0), (-9.0, -1.0)):
        exact = min(
            (exponent(c, short(loss)) + mpmath.log(c) + c * mpf(level)) / (1 + mpf(c))
            + mpmath.log1p(1 / mpf(c))
            for c in CHEAP_TILTS.tolist()
        )
        yield profile(Facts(short(loss))).log_power(level)[1] >= exact
