"""Bounds of curves and losses hold exact numbers, and would not without their slacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import neyman as ny
from neyman import Tradeoff, curves
from neyman.curves.losses import likelihood_ratio
from neyman.curves.losses.loss import NODE_WEIGHTS
from neyman.curves.losses.random_allocation import LIMITS as RANDOM_ALLOCATION_LIMITS
from neyman.curves.losses.random_allocation import _added_up, _law
from neyman.curves.losses.rounded_gaussian import _tail
from neyman.curves.tradeoff.enclosure import _by_values, _down, _half, _last_corner, _Places, _up
from neyman.curves.tradeoff.float_polygon import after_rounded
from neyman.curves.tradeoff.loss_tails import _laplace_tails, _normal_tails
from neyman.curves.tradeoff.loss_variable import _chords, _complementary, _variance_by_moments
from neyman.curves.tradeoff.piecewise_linear import after, rounded
from neyman.curves.tradeoff.queries import epsilon_at, settled
from neyman.curves.tradeoff.symmetry import conjugate
from neyman.numerics import Array
from slacks import Known, Perfect, held, needed, numbers


@needed
def test_a_level_whose_logarithm_is_rounded() -> Iterator[bool]:
    for (y,) in numbers(1, 100, (-700.0, -1e-3)):
        level = math.exp(y)
        yield held(settled(math.log(level), -math.inf, -math.inf), mpmath.log(level))


@needed
def test_the_mass_of_infinite_losses_is_what_is_left_far_out() -> Iterator[bool]:
    for (y,) in numbers(2, 40, (-700.0, -1.0)):
        delta = math.exp(y)
        yield held(ny.approximate(1, delta).log_delta(2e12), mpmath.log(delta))


@needed
def test_no_epsilon_is_enough_only_if_the_infinite_losses_exceed_delta() -> Iterator[bool]:
    for y, n in numbers(3, 40, (-3.0, -0.1), (2, 9)):
        mass, count = math.exp(y), int(n)
        exact = mpmath.log(1 - (1 - mpf(mass)) ** count)
        near = float(exact)
        target = near if near >= exact else math.nextafter(near, 0.0)
        yield (ny.approximate(1, mass) ** count).epsilon(log_delta=target).lower < math.inf


@needed
def test_the_conjugate_of_a_curve() -> Iterator[bool]:
    steep = numbers(4, 40, (-9.0, -1.1), (9.0, 90.0), (1e-3, 3.0))
    for slope, fall, below in (*steep, *numbers(5, 80, (-9.0, -1.1), (0, 1e-9), (1e-3, 9.0))):
        profile = Known(fall * math.log(-slope) - below, fall)
        answer = conjugate(cast("Tradeoff", SimpleNamespace(profiles=[profile], method="")), slope)
        log_delta = profile.start - fall * mpmath.log(-mpf(slope))
        yield answer.lower <= mpmath.expm1(log_delta) <= answer.upper


@needed
def test_a_probability_from_the_rest() -> Iterator[bool]:
    for (y,) in numbers(5, 60, (-45.0, 0.0)):
        rest = math.exp(y)
        yield held(_complementary((0.0, 1.0), (rest, rest)), 1 - mpf(rest))


@needed
def test_the_mass_of_infinite_losses() -> Iterator[bool]:
    for y, n in numbers(6, 40, (-30.0, -0.1), (2, 9)):
        mass, count = math.exp(y), int(n)
        yield held((ny.approximate(1, mass) ** count).loss.infinite, 1 - (1 - mpf(mass)) ** count)


class Cliff(Known):
    """delta = 1 up to a place, from which on it falls at once."""

    def log_delta(self, epsilon: float) -> curves.Interval:
        return (0.0, 0.0) if epsilon <= self.start else (-math.inf, -1000.0)


@needed
def test_the_slope_of_a_profile_between_its_chords() -> Iterator[bool]:
    lengths = 0.23 * 2.0 ** np.arange(-18.0, 1.0)
    for (x,) in numbers(7, 60, (-9.0, -0.3)):
        delta, slope = _chords(Perfect(0, 0), x, lengths)
        yield delta[0] <= -mpmath.expm1(x) <= delta[1]
        yield slope[0] <= mpmath.exp(x) <= slope[1]
        left = x - float(lengths[-1])
        most = (1 - mpmath.exp(-2000)) / -mpmath.expm1(mpf(left) - x)
        yield _chords(Cliff(left, 0), x, lengths)[1][1] >= most


@needed
def test_an_epsilon_where_delta_hardly_falls() -> Iterator[bool]:
    for y, more in numbers(8, 60, (-600.0, -10.0), (1e-7, 1e-6)):
        delta = math.exp(y)
        profile = Known(math.log(delta) * (1 - more), 2.0**-20)
        yield held(
            epsilon_at(profile, math.log(delta), math.inf),
            (profile.start - mpmath.log(delta)) * 2**20,
        )


@needed
def test_another_pair_has_no_larger_power_there() -> Iterator[bool]:
    for start, epsilon in numbers(9, 60, (-9.0, -1.0), (1e4, 1e6)):
        known = math.exp(start)
        known = math.nextafter(known, 0.0) if mpmath.log(known) > start else known
        yield curves.pbdp_delta(Known(start, 0.0), epsilon, known)[1] >= mpmath.exp(start)


class Coin:
    """A loss of m + 1 or m - 1 with equal chances: K(z) = m z + log cosh z."""

    def __init__(self, middle: float) -> None:
        self.middle, self.parts = middle, [(self, 1)]

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return tilts, tilts, np.ones(1)

    def log_mgf(self, z: Array) -> Array:
        exact = [mpf(self.middle) * v + mpmath.log(mpmath.cosh(v)) for v in z.tolist()]
        return np.array([float(v) for v in exact])

    def mgf_rounding(self, z: Array) -> Array:
        return np.zeros(len(z))


@needed
def test_a_variance_from_k_at_small_orders() -> Iterator[bool]:
    for (middle,) in numbers(10, 20, (-900.0, 900.0)):
        coin = cast("curves.Composition", Coin(middle))
        yield held(_variance_by_moments(coin, (middle, middle)), 1)


@needed
def test_the_tails_of_a_normal_loss() -> Iterator[bool]:
    wide = (0.1, 30.0), (-8.0, 36.0)
    for mu, z in (*numbers(13, 60, *wide), *numbers(14, 60, (1e-3, 1), (-1, 1))):
        x = mu * (z + 0.5 * mu)
        for sign, (beyond, below) in zip((1, -1), _normal_tails(mu, x), strict=True):
            v = mpf(x) / mpf(mu) - sign * mpf(mu) / 2
            yield beyond[0] <= mpmath.ncdf(-v) <= beyond[1]
            yield below[0] <= mpmath.ncdf(v) <= below[1]


@needed
def test_the_tails_of_a_laplace_loss() -> Iterator[bool]:
    for a, share in numbers(15, 200, (0.01, 9.0), (-1.0, 1.0)):
        loss = curves.LaplaceLoss(Fraction(a).limit_denominator(100))
        epsilon = mpf(loss.exact_epsilon.numerator) / loss.exact_epsilon.denominator
        x = share * a
        if abs(x) < epsilon:
            (beyond, below), (_, null) = _laplace_tails(loss, x)
            exact = mpmath.exp((x - epsilon) / 2) / 2
            yield below[0] <= exact <= below[1]
            yield beyond[0] <= 1 - exact <= beyond[1]
            yield null[0] <= 1 - mpmath.exp((-x - epsilon) / 2) / 2 <= null[1]


@needed
def test_powers_of_e_are_moved_outward() -> Iterator[bool]:
    for (value,) in numbers(11, 100, (-700.0, 0.0)):
        exact = mpmath.exp(value)
        yield _down(np.array([value]))[0] <= exact <= _up(np.array([value]))[0]


@needed
def test_slopes_of_lines_are_moved_up() -> Iterator[bool]:
    places = object.__new__(_Places)
    places.high = places.level = places.power = np.zeros(1)
    for (epsilon,) in numbers(12, 60, (0.0, 500.0)):
        places.place = np.array([epsilon])
        yield places.rows()[0][0] >= mpmath.exp(epsilon)


@needed
def test_the_corner_of_the_largest_loss() -> Iterator[bool]:
    for log_top, top in numbers(13, 60, (-90.0, -0.1), (0.1, 90.0)):
        losses = cast("curves.Composition", SimpleNamespace(log_top=log_top, infinite=0.0))
        level, power = _last_corner(losses, top)
        yield mpf(level.numerator) / level.denominator >= mpmath.exp(mpf(log_top) - top)
        yield mpf(power.numerator) / power.denominator <= mpmath.exp(log_top)


def power_at(polygon: curves.Polygon, level: mpf) -> mpf:
    """The power of a polygon of corners."""
    corners = [
        (mpf(x.numerator) / x.denominator, mpf(y.numerator) / y.denominator) for x, y in polygon
    ]
    for (x, y), (u, v) in pairwise(corners):
        if x <= level <= u and u > x:
            return y + (v - y) * (level - x) / (u - x)
    return corners[-1][1]


@needed
def test_corners_from_logarithms_of_masses() -> Iterator[bool]:
    for (x,) in numbers(14, 30, (0.1, 9.0)):
        log_p = (-x - math.log1p(math.exp(-x)), -math.log1p(math.exp(-x)))
        loss = curves.OffLatticeLoss((-x, x), log_p, 0.0)
        below, above = _by_values(loss)
        level, power = mpmath.exp(mpf(log_p[1]) - x), mpmath.exp(log_p[1])
        yield power_at(below, level) <= power <= power_at(above, level)


@needed
def test_a_test_after_another_stays_on_its_side() -> Iterator[bool]:
    for x, y, u, v in numbers(15, 60, (1e-9, 0.3), (0.3, 0.9), (1e-9, 0.3), (0.3, 0.9)):
        ends = (Fraction(0), Fraction(0)), (Fraction(1), Fraction(1))
        one, two = (
            rounded(curves.hull([ends[0], (Fraction(a), Fraction(b)), ends[1]]), 1)
            for a, b in ((x, y), (u, v))
        )
        exact, above = after(one, two), after_rounded(one, two, 1)
        yield all(on_polygon(above, level) >= power for level, power in exact)


def on_polygon(polygon: curves.Polygon, level: Fraction) -> Fraction:
    """The power of a polygon of corners, exactly."""
    (x, y), (u, v) = next(pair for pair in pairwise(polygon) if level <= pair[1][0])
    return y + (v - y) * (level - x) / (u - x)


@needed
def test_lines_and_points_at_the_mass_of_infinite_losses() -> Iterator[bool]:
    for y, n in numbers(16, 9, (-9.0, -1.0), (2, 9)):
        mass, times = math.exp(y), int(n)
        points, lines = _half(
            curves.Composition.of([(ny.approximate(1, mass).directions[0].parts[0][0], times)])
        )
        exact = 1 - (1 - Fraction(mass)) ** times
        yield points[0][1] <= exact
        yield lines[0][1] >= exact


F = Fraction
TILTS = (-0.9, -0.3, 0.2, 1.0, 3.7, 20.0, 300.0)


def near(loss: object, exact: Callable[[mpf], mpf], tilts: tuple[float, ...] = TILTS) -> bool:
    """Whether K is within its stated rounding at each tilt."""
    for c in tilts:
        z = np.array([c])
        k, error = float(loss.log_mgf(z)[0]), float(loss.mgf_rounding(z)[0])  # type: ignore[attr-defined]
        if abs(k - exact(mpf(c))) > error:
            return False
    return True


@needed
def test_k_of_a_gaussian_loss() -> Iterator[bool]:
    for (v,) in numbers(1, 20, (1e-6, 99.0)):
        yield near(curves.GaussianLoss(v), lambda z, v=v: z * (z + 1) * v / 2)


@needed
def test_the_decay_of_a_gaussian_loss() -> Iterator[bool]:
    for v, edge in numbers(2, 60, (1e-6, 99.0), (0.1, 99.0)):
        answer = curves.GaussianLoss(v).decay(0.0, np.array([edge]))[0]
        yield answer >= -mpf(v) * mpf(edge) ** 2 / 2


def laplace(a: float, z: mpf) -> mpf:
    ends = mpmath.exp(a * z) / 2 + mpmath.exp(-a * (1 + z)) / 2
    return mpmath.log(ends + (mpmath.exp(a * z) - mpmath.exp(-a * (z + 1))) / (4 * z + 2))


@needed
def test_k_of_a_laplace_loss() -> Iterator[bool]:
    for (y,) in numbers(3, 20, (-9.0, 3.0)):
        loss = curves.LaplaceLoss(F(math.exp(y)))
        yield near(loss, lambda z, loss=loss: laplace(loss.epsilon, z))


def finite(x: Fraction) -> curves.FiniteLoss:
    e = float(x)
    log_p = (-e - math.log1p(math.exp(-e)), -math.log1p(math.exp(-e)))
    return curves.FiniteLoss(x, (-1, 1), log_p, 0.0, 0.0, None)


def of_values(values: list[float], log_p: tuple[float, ...], z: mpf) -> mpf:
    return mpmath.log(
        mpmath.fsum(mpmath.exp(p + z * v) for p, v in zip(log_p, values, strict=True))
    )


@needed
def test_k_of_a_loss_with_few_values() -> Iterator[bool]:
    for (y,) in numbers(4, 20, (0.1, 9.0)):
        loss = finite(F(y))
        yield near(loss, lambda z, loss=loss, y=y: of_values([-mpf(y), mpf(y)], loss.log_p, z))


@needed
def test_atoms_of_a_loss_with_few_values() -> Iterator[bool]:
    for y, tilt in numbers(5, 40, (0.1, 9.0), (-1.0, 9.0)):
        loss = finite(F(y))
        for atoms in (loss.atoms(tilt), loss.dots(tilt, 1.0)):
            error = np.max(atoms.relative)
            for at, log_p, w in (
                (-y, loss.log_p[0], atoms.weight[0]),
                (y, loss.log_p[1], atoms.weight[-1]),
            ):
                exact = mpmath.exp(mpf(log_p) + mpf(tilt) * at - atoms.log_scale)
                yield abs(w - exact) <= error * exact


@needed
def test_atoms_of_values_that_are_no_floats() -> Iterator[bool]:
    step, index = F(187, 19), (-1, 2, 3, 7)
    log_p = (-10.543105263157894, -40.50033426012503, -8.701, -0.001)
    loss = curves.FiniteLoss(step, index, log_p)
    worst = [(-1.8713996243921243,), (-1.6,), (-1.3,)]
    for (tilt,) in [*worst, *numbers(33, 100, (-3.0, 3.0))]:
        for atoms in (loss.atoms(tilt), loss.dots(tilt, 1.0)):
            weights = atoms.weight[atoms.weight > 0]
            for i, p, w in zip(index, log_p, weights, strict=len(weights) == len(index)):
                place = mpf(i) * step.numerator / step.denominator
                exact = mpmath.exp(p + mpf(tilt) * place - atoms.log_scale)
                yield abs(w - exact) <= np.max(atoms.relative) * exact


def off_lattice(x: float) -> curves.OffLatticeLoss:
    log_p = (-x - math.log1p(math.exp(-x)), -math.log1p(math.exp(-x)))
    return curves.OffLatticeLoss((-x, x), log_p, 0.0)


@needed
def test_k_of_a_loss_with_any_values() -> Iterator[bool]:
    for (y,) in numbers(6, 30, (0.1, 9.0)):
        loss = off_lattice(y)
        yield near(loss, lambda z, loss=loss: of_values(list(loss.values), loss.log_p, z))


@needed
def test_atoms_of_a_loss_with_any_values() -> Iterator[bool]:
    for y, tilt in numbers(7, 40, (0.1, 9.0), (-1.0, 9.0)):
        loss = off_lattice(y)
        dots = loss.dots(tilt, 1.0)
        for v, log_p, w in zip(loss.values, loss.log_p, dots.weight.tolist(), strict=True):
            exact = mpmath.exp(mpf(log_p) + mpf(tilt) * v - dots.log_scale)
            yield abs(w - exact) <= np.max(dots.relative) * exact


def log_sinhc(x: mpf) -> mpf:
    return mpmath.log(mpmath.sinh(x) / x) if x else mpf(0)


@needed
def test_k_of_the_envelope_of_a_bounded_range() -> Iterator[bool]:
    for (y,) in numbers(8, 20, (-9.0, 3.0)):
        loss = curves.EnvelopeLoss(F(math.exp(y)))
        a = mpf(loss.epsilon)
        yield near(loss, lambda z, a=a: log_sinhc(a * (z + 0.5)) - log_sinhc(a / 2))


@needed
def test_k_of_a_bounded_range() -> Iterator[bool]:
    for (y,) in numbers(9, 20, (-9.0, 3.0)):
        loss = curves.BoundedRangeLoss(F(math.exp(y)))
        a = mpf(float(loss.exact_epsilon)) / 2
        tilts = (0.2, 1.0, 3.7, 20.0, 300.0)
        yield near(
            loss,
            lambda z, a=a: (z + 1) * log_sinhc(a * (z + 1)) - z * log_sinhc(a * z) - log_sinhc(a),
            tilts,
        )


@needed
def test_nodes_of_a_gaussian_loss() -> Iterator[bool]:
    for (v,) in numbers(10, 6, (0.1, 9.0)):
        dots = curves.GaussianLoss(v).dots(0.0, 0.25)
        # In one panel the weights are the densities times those of the rule.
        nodes = len(NODE_WEIGHTS)
        width = float(dots.loss[nodes] - dots.loss[0])
        for k in (0, 1, len(dots.loss) // 2, len(dots.loss) - 1):
            density = mpmath.npdf(dots.loss[k], mpf(v) / 2, mpmath.sqrt(v))
            exact = density * width * NODE_WEIGHTS[k % nodes]
            # The width is known to a unit of the largest loss.
            off = 4 * 2.0**-53 * float(np.abs(dots.loss[nodes])) / width
            yield abs(dots.weight[k] - exact) <= (dots.relative + (off if k else 0)) * exact


@needed
def test_the_law_of_a_laplace_loss() -> Iterator[bool]:
    for (a,) in numbers(12, 40, (1.0, 90.0)):
        law = curves.LaplaceLoss(F(a)).law(1.0)
        for log_p, exact in zip(
            law.log_p.tolist(), (-a - mpmath.log(2), -mpmath.log(2)), strict=True
        ):
            yield abs(log_p - exact) <= law.relative


@needed
def test_k_of_a_choice_between_losses() -> Iterator[bool]:
    for v, w in numbers(13, 20, (1e-3, 9.0), (0.1, 0.9)):
        loss = curves.MixtureLoss(
            ((w, curves.GaussianLoss(v)), (1 - w, curves.GaussianLoss(2 * v)))
        )
        yield near(
            loss,
            lambda z, v=v, w=w: mpmath.log(
                w * mpmath.exp(z * (z + 1) * v / 2) + (1 - w) * mpmath.exp(z * (z + 1) * v)
            ),
        )


@needed
def test_the_largest_loss_of_a_mixture() -> Iterator[bool]:
    for (w,) in numbers(14, 40, (0.1, 0.9)):
        loss = curves.GaussianMixtureLoss((0.0, 1.0), (w, 1 - w), removed=False)
        yield loss.supremum >= -mpmath.log(w)


@needed
def test_the_largest_loss_of_a_sampled_step() -> Iterator[bool]:
    for (q,) in numbers(15, 40, (1e-3, 0.9)):
        yield curves.SubsampledGaussianLoss(1.0, q, removed=False).supremum >= -mpmath.log1p(
            -mpf(q)
        )


@needed
def test_the_largest_loss_of_a_sum() -> Iterator[bool]:
    for p, q, n in numbers(16, 60, (1e-3, 0.9), (1e-3, 0.9), (1, 99)):
        parts = [curves.SubsampledGaussianLoss(1.0, x, removed=False) for x in (p, q)]
        exact = int(n) * mpf(parts[0].supremum) + 3 * mpf(parts[1].supremum)
        yield curves.Composition.of([(parts[0], int(n)), (parts[1], 3)]).supremum >= exact
        few = [finite(F(p)), finite(F(q))]
        exact = int(n) * mpf(few[0].log_top) + 3 * mpf(few[1].log_top)
        yield curves.Composition.of([(few[0], int(n)), (few[1], 3)]).log_top <= exact


@needed
def test_weights_of_a_discrete_gaussian_loss() -> Iterator[bool]:
    pairs = [(F(round(64 * v), 64), 1, 0.0) for (v,) in numbers(17, 6, (0.5, 9.0))]
    hard = F(1) + F(297, 2**44) + F(49, 100 * 2**52)  # nearly halfway between two floats
    for squared, shift, tilt in [*pairs, (hard, 1, 0.0), (F(2, 9), 30, 3.3)]:
        atoms = curves.DiscreteGaussianLoss(squared, shift).atoms(tilt)
        s2 = mpf(squared.numerator) / squared.denominator
        center = mpf(tilt) * shift

        def exponent(x: int, center: mpf = center, s2: mpf = s2) -> mpf:
            return -((x + center) ** 2) / (2 * s2)

        near = -round(center)
        total = mpmath.fsum(mpmath.exp(exponent(x)) for x in range(near - 99, near + 100))
        for k in (0, 1, 3, len(atoms) // 2, len(atoms) // 3, len(atoms) - 2):
            exact = mpmath.exp(exponent(-(atoms.start + k))) / total
            yield abs(atoms.weight[k] - exact) <= atoms.relative * exact


@needed
def test_a_tail_of_the_normal_law() -> Iterator[bool]:
    for (x,) in numbers(18, 60, (0.0, 30.0)):
        low, high = _tail(x, -1), _tail(x, 1)
        exact = mpmath.erfc(mpf(x) / mpmath.sqrt(2)) / 2
        yield (
            mpf(low.numerator) / low.denominator <= exact <= mpf(high.numerator) / high.denominator
        )


@needed
def test_sums_of_a_loss_with_two_values() -> Iterator[bool]:
    for y, lost, n in numbers(19, 20, (0.1, 3.0), (0.05, 0.9), (2, 40)):
        x, count = float(F(y).limit_denominator(9)), int(n)
        e = mpmath.exp(x)
        log_p = tuple(float(mpmath.log(v * (1 - mpf(lost)))) for v in (1 / (1 + e), e / (1 + e)))
        loss = curves.FiniteLoss(F(x), (-1, 1), log_p, lost, 0.0, None)
        dots = loss.sum_atoms(count, 0.3, 0.0)
        relative = np.broadcast_to(dots.relative, dots.weight.shape)
        for k in (0, len(dots.loss) // 2, len(dots.loss) - 1):
            ones = round((float(dots.loss[k]) / x + count) / 2)
            exact = mpmath.binomial(count, ones) * mpmath.exp(
                mpf(log_p[0]) * (count - ones) + mpf(log_p[1]) * ones
                + mpf(0.3) * (2 * ones - count) * mpf(x) - dots.log_scale
            )  # fmt: skip
            yield abs(dots.weight[k] - exact) <= relative[k] * exact
            yield abs(dots.loss[k] - (2 * ones - count) * mpf(x)) <= dots.place


@needed
def test_k_between_two_losses() -> Iterator[bool]:
    for (y,) in numbers(20, 20, (0.1, 9.0)):
        loss = finite(F(y))
        exact = lambda z, loss=loss, y=y: of_values([-mpf(y), mpf(y)], loss.log_p, z)  # noqa: E731
        yield near(curves.LossBracket(loss, loss), exact)


@needed
def test_k_of_a_sum() -> Iterator[bool]:
    for y, n in numbers(21, 40, (0.1, 9.0), (2, 99)):
        loss, z = finite(F(y)), mpf(0.3)
        k, error = curves.Composition.of([(loss, int(n))]).mgf(np.array([float(z)]))
        exact = int(n) * of_values([-mpf(y), mpf(y)], loss.log_p, z)
        yield abs(mpmath.expm1(k[0] - exact)) <= error[0]


@needed
def test_atoms_of_a_choice_between_losses() -> Iterator[bool]:
    for y, w, tilt in numbers(22, 40, (0.1, 9.0), (0.1, 0.9), (-1.0, 9.0)):
        parts = (w, finite(F(y))), (1 - w, finite(F(y) / 2))
        dots = curves.MixtureLoss(parts).dots(tilt, 1.0)
        share, top = mpf(w), parts[0][1].log_p[1]
        exact = share * mpmath.exp(mpf(top) + mpf(tilt) * y - dots.log_scale)
        yield abs(dots.weight[-1] - exact) <= np.max(dots.relative) * exact


@needed
def test_nodes_of_the_envelope_of_a_bounded_range() -> Iterator[bool]:
    for a, tilt in numbers(23, 40, (30.0, 90.0), (0.0, 3.0)):
        dots = curves.EnvelopeLoss(F(a)).dots(tilt, a)
        # Two nodes of one cell: their ratio is that of the densities and of the rule's weights.
        x, y = mpf(dots.loss[0]), mpf(dots.loss[1])
        exact = mpmath.exp((mpf(tilt) + 0.5) * (y - x)) * NODE_WEIGHTS[1] / NODE_WEIGHTS[0]
        yield abs(dots.weight[1] / mpf(dots.weight[0]) - exact) <= 2 * np.max(dots.relative) * exact


def sampled(x: Any, q: float) -> mpf:
    return mpmath.log1p(mpf(q) * mpmath.expm1(x))


RATES = (1e-30, 1e-3, 0.5, 0.9, 1 - 1e-4, 1 - 1e-9, 1 - 2.0**-53)


@needed
def test_the_largest_loss_of_a_pair_that_is_sampled() -> Iterator[bool]:
    cases = [(F(a), RATES[int(k)]) for a, k in numbers(24, 60, (0.1, 60.0), (0, len(RATES)))]
    # Rates near e^-a: there the top moves by about a relative units if a moves by one.
    near = numbers(25, 200, (40.0, 300.0), (0.9, 1.02))
    cases += [(F(round(1000 * a), 1000), math.exp(-a * k)) for a, k in near]
    for a, q in cases:
        inner = curves.LaplaceLoss(a)
        exact = mpf(a.numerator) / a.denominator
        top, end = sampled(exact, q), sampled(-exact, q)
        yield curves.SubsampledLoss(inner, q, True).supremum >= top
        yield curves.SubsampledLoss(inner, q, False).supremum >= -end
        yield curves.ReplaceOneSubsampledLoss(inner, q).supremum >= top - end


def test_a_ratio_of_a_sampled_step_keeps_its_digits_at_every_rate() -> None:
    with mpmath.workdps(60):
        for t, k in numbers(25, 300, (-40.0, 29.0), (0, len(RATES))):
            q = RATES[int(k)]
            loss = curves.SubsampledGaussianLoss(1.0, q, removed=False)
            for at in (mpf(t), mpmath.mpc(t, 1.5)):
                z = np.array([complex(at) if at.imag else float(at)])
                exact, (answer,) = sampled(at, q), loss.log_ratio_on(z, z)
                assert abs(answer - exact) <= 16 * 2.0**-53 * abs(exact)


@needed
def test_the_mass_of_the_largest_loss_that_is_sampled() -> Iterator[bool]:
    worst = [
        (133.07276379811202, 7.576525293626624e-71),
        (537.3106612216287, 0.0014104925824820634),
    ]
    pairs = [(a, math.exp(y)) for a, y in numbers(27, 60, (0.1, 600.0), (-530.0, -0.1))]
    for a, q in worst + pairs:
        inner = curves.LaplaceLoss(F(a))
        exact = mpmath.log(((1 - mpf(q)) * mpmath.exp(-mpf(a)) + q) / 2)
        for loss in (
            curves.SubsampledLoss(inner, q, True),
            curves.FixedSizeLoss(inner, q),
            curves.ReplaceOneSubsampledLoss(inner, q),
        ):
            yield loss.log_top <= exact


def of_orders(q: float, orders: list[mpf]) -> mpf:
    """log E (1 - q + q X)^w, from E X^k for k up to w."""
    w = len(orders) - 1
    return mpmath.log(
        mpmath.fsum(
            mpmath.binomial(w, k) * mpf(q) ** k * (1 - mpf(q)) ** (w - k) * x
            for k, x in enumerate(orders)
        )
    )


@needed
def test_k_of_a_sampled_step() -> Iterator[bool]:
    for mu, q, z in numbers(28, 12, (0.1, 3.0), (1e-3, 0.9), (1, 200)):
        law = likelihood_ratio._law.__wrapped__(  # without its cache
            curves.SubsampledGaussianLoss(mu, q, removed=True), float(int(z)), 0.0
        )
        orders = [mpmath.exp(k * (k - 1) * mpf(mu) ** 2 / 2) for k in range(int(z) + 2)]
        yield abs(law.log_mgf - of_orders(q, orders)) <= law.error


@needed
def test_atoms_of_a_pair_that_is_sampled() -> Iterator[bool]:
    for a, q, tilt in numbers(30, 30, (1.0, 9.0), (0.1, 0.9), (50.0, 300.0)):
        dots = curves.SubsampledLoss(curves.LaplaceLoss(F(a)), q, True).dots(tilt, a)
        top = sampled(mpf(a), q)
        exact = mpmath.exp(mpf(tilt) * top + top - a - dots.log_scale) / 2
        yield abs(dots.weight[-1] - exact) <= np.max(dots.relative) * exact


@needed
def test_nodes_of_a_sampled_step() -> Iterator[bool]:
    for mu, q, tilt in numbers(31, 12, (0.1, 2.0), (0.1, 0.9), (100.0, 300.0)):
        loss = curves.SubsampledGaussianLoss(mu, q, removed=True)
        dots = loss.dots(tilt, 50.0)
        nodes = len(NODE_WEIGHTS)
        k = int(np.argmax(dots.weight)) // nodes * nodes
        # Two nodes of one panel: the ratio of their weights.
        x, y = mpf(dots.loss[k]), mpf(dots.loss[k + 1])
        place = [(mpmath.log((mpmath.exp(v) - 1 + q) / q) + mpf(mu) ** 2 / 2) / mu for v in (x, y)]
        exact = mpmath.exp((mpf(tilt) + 1) * (y - x) - (place[1] ** 2 - place[0] ** 2) / 2)
        exact *= NODE_WEIGHTS[1] / NODE_WEIGHTS[0]
        yield abs(dots.weight[k + 1] / mpf(dots.weight[k]) - exact) <= 2 * dots.relative * exact


@pytest.mark.parametrize(("mu", "count"), [(0.7, 13), (2.0, 40)])
def test_sums_keep_their_mass_and_mean_and_vary_as_they_must(mu, count):
    """The upper distribution is a spread of the true one, the lower one a merging: in
    variance too.
    """
    truth = math.expm1(mu * mu) / count
    for side in (1, -1):
        result = _added_up(mu, count, side)
        share = result.place / count
        assert result.weight.sum() == pytest.approx(1, abs=1e-12)
        assert result.weight @ share == pytest.approx(1, abs=1e-12)
        variance = result.weight @ (share - 1) ** 2
        assert 0 < side * (variance / truth - 1) < 1e-3


@pytest.mark.parametrize(("mu", "batches", "side"), [(0.5, 2, 1), (1.0, 3, -1)])
def test_masses_and_values_of_the_finite_laws_err_by_no_more_than_stated(mu, batches, side):
    """A value moves by the error of its place and of a logarithm, and a mass by that of both."""
    total, law = _added_up(mu, batches, side), _law(mu, batches, side)
    mask = (
        total.weight * np.maximum(total.place / batches, 1.0) > RANDOM_ALLOCATION_LIMITS.least_mass
    )
    weight, place = total.weight[mask], total.place[mask]
    assert len(law.removed.values) == len(law.added.values) == len(weight)
    with mpmath.workdps(40):
        for k in range(0, len(weight), 16):
            q, s = mpf(weight[k]), mpf(place[k]) / batches
            value, mass = law.removed.values[k], law.removed.log_p[k]
            assert abs(value - mpmath.log(s)) + total.apart <= law.apart
            apart = law.relative - total.relative
            assert abs(mass - mpmath.log(q * s)) + total.apart <= apart
            assert law.added.values[-1 - k] == -value
            assert abs(law.added.log_p[-1 - k] - mpmath.log(q)) + law.apart <= apart
