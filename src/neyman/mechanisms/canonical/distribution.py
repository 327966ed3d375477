"""Compute canonical noise: the distribution whose unit shift has exactly the given curve.

`CanonicalNoise` defines the distribution function F of this symmetric random number Z, for a curve
f that is its own inverse and not perfect privacy, with c = f(c). The density is 1 - 2c in the
middle and does not rise away from it. Each further unit multiplies it by the likelihood ratio of
the best test, which is at most 1 there and falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from neyman.curves.losses.bounded_range import BoundedRangeLoss, EnvelopeLoss
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.profiles.lattice.lattice import LatticeProfile
from neyman.curves.profiles.profile import Engine
from neyman.curves.profiles.selection import select
from neyman.curves.tradeoff.piecewise_linear import (
    composition_between,
    envelope,
    hull,
    mirrored_line,
)
from neyman.curves.tradeoff.symmetry import joined_composition
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.canonical.iterates_closed_form import (
    Exponential,
    Ladder,
    LaplaceLadder,
    Logistic,
    Normal,
)
from neyman.mechanisms.canonical.iterates_numeric import Stepwise
from neyman.mechanisms.canonical.tabulated_power import TabulatedPower
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import exp_down, exp_up

Arrays = tuple[Array, Array]
MOST = float(np.finfo(float).max)


@dataclass(frozen=True)
class Limits:
    """Limit the polygons around a curve without a known loss, and the curves that have noise."""

    tests: int = 120  # number of tests for the two polygons ...
    # Relative: required accuracy of the total variation, and of 1 minus it.
    relative_width: float = 1e-3


LIMITS = Limits()


class CanonicalLaw:
    """Compute the distribution of canonical noise Z at sensitivity 1, with certified bounds."""

    def __init__(self, curve: Tradeoff) -> None:
        check_curve(curve)
        self.curve = curve
        self.ladder, self._fine, self._deep = _ladder(curve)
        if self.ladder.log_c[0] < -705.0:  # smallest log c for which c is a float
            raise ValueError(
                f"tradeoff = {curve!r} protects almost nothing: beyond half a sensitivity, "
                "its noise has less than e^-705, below every float; give a curve such as ny.gdp(70)"
            )

    @property
    def c(self) -> Bound:
        """Return bounds on the fixed point c = f(c), in (0, 1/2)."""
        low, high = (math.exp(v) for v in self.ladder.log_c)  # to 2 units, and a product
        # slack: counted
        return Bound(low * (1 - 4 * UNIT), high * (1 + 4 * UNIT), "lower", self.curve.method)

    def log_tail(self, x: Array) -> Arrays:
        """Bound log P(Z > x), for x >= 0."""
        n, low, high = self._middle(x)
        return self.ladder.out(low, n)[0], self.ladder.out(high, n)[1]

    def _middle(self, x: Array) -> tuple[Array, Array, Array]:
        """Return the integer n with x - n in [-1/2, 1/2], and bounds on log P(Z > x - n)."""
        n = np.maximum(np.ceil(x - 0.5), 0.0)
        t = np.clip(x - n, -0.5, 0.5)
        left, off = t < 0, np.abs(t)
        shares = [
            math.exp(log_c) * (0.5 + off) - np.expm1(log_c) * (0.5 - off)
            for log_c in self.ladder.log_c
        ]
        # Left of the center, the small 1 - s keeps its digits.
        logs: list[Array] = [np.where(left, np.log1p(-v), np.log(v)) for v in shares]
        ends: Array = np.sort(np.array(logs), axis=0)
        # slack: canonical_noise_of_a_pure_guarantee
        slack = 8 * UNIT * (np.where(left, np.abs(ends), 1.0) + np.abs(ends))
        return n, ends[0] - slack[0], np.minimum(ends[1] + slack[1], 0.0)

    def log_density(self, x: Array) -> Arrays:
        """Bound the log density at x >= 0. At a jump, bound one of its two values [CN-3]."""
        n, low, high = self._middle(x)
        steep, flat = self.ladder.log_slope(low, n), self.ladder.log_slope(high, n)
        gap = [math.log(v) for v in self.ladder.gap]
        # slack: canonical_noise_of_a_pure_guarantee
        return gap[0] + steep[0] - 4 * UNIT, gap[1] + flat[1] + 4 * UNIT

    def place(self, log_u: Array) -> Arrays:
        """Bound the x >= 0 with P(Z > x) = u, for u <= 1/2. If u = 0, x is the end of the noise."""
        low, high = np.empty(len(log_u)), np.empty(len(log_u))
        middle = log_u > self.ladder.log_c[1]
        u = np.exp(log_u[middle])
        slack = 8 * UNIT * u  # slack: canonical_noise_of_a_pure_guarantee/a
        low[middle], high[middle] = self.ladder.middle(u - slack, u + slack)
        low[~middle], high[~middle] = self.ladder.place(log_u[~middle])
        return np.maximum(low, 0.0), high

    def variance(self) -> Bound:
        """Bound the variance: by exact sums for (epsilon, delta), else by convexity.

        The variance is 2 int_0^{1/2} Q(u)^2 du, where P(Z > Q(u)) = u. Q and its square are convex,
        because the density does not rise. So between two grid points of u, the integral is at least
        its midpoint value, and at most its trapezoid value.
        """
        if isinstance(self.ladder, Exponential):
            return _exact_variance(self.ladder)
        log_c = 0.5 * (self.ladder.log_c[0] + self.ladder.log_c[1])
        octaves, pieces = self._deep, self._fine
        share = np.linspace(1.0, 0.5, 2 * pieces + 1)[:-1]
        log_u = (np.log(share)[None, :] - np.arange(octaves)[:, None] * math.log(2)).ravel()
        log_u = log_c + np.append(log_u, -octaves * math.log(2))
        u = np.exp(log_u)
        low, high = (np.square(v) for v in self.place(log_u))
        width = u[:-2:2] - u[2::2]
        inside = math.fsum(width * low[1::2])
        above = math.fsum(width * 0.5 * (high[:-2:2] + high[2::2]))
        # After the last place, each further unit multiplies the tail by at most r.
        rest = self.ladder.out(log_u[-1:], np.ones(1))[1] - log_u[-1:]
        r, last = min(math.exp(float(rest[0])), 1.0), math.sqrt(float(high[-1]))
        above += float(u[-1]) * _geometric(last, r)
        inside += float(u[-1] * low[-1])
        # From 1/2 to c the quantile is a line from 0 to 1/2.
        gap_low, gap_high = self.ladder.gap
        # slack: counted
        slack = 512 * UNIT  # effect of a rounded u, by partial integration [CN-5]
        return Bound(
            max(2 * inside * (1 - slack) + gap_low / 12 - slack, 0.0),
            2 * above * (1 + slack) + gap_high / 12 + slack,
            "upper",
            f"{self.curve.method}; the squared quantile between chords and middles",
        )


def check_curve(curve: Tradeoff) -> None:
    """Refuse a curve that has no canonical noise."""
    profiles = curve.profiles
    if curve.sources and len(profiles) > 1:
        raise ValueError(
            f"tradeoff = {curve!r} states two different curves, one for each order; give one"
        )
    if len(profiles) > 1:
        raise ValueError(
            f"tradeoff = {curve!r} is {len(profiles)} curves (several shifts, or one that is not "
            "its own inverse), and noise has one: give tradeoff.symmetric(), the one convex curve "
            "below all of them, or tradeoff.mutual() of a curve that bounds every ordered pair"
        )
    composition = curve.alternatives[0]
    if not curve.joined and composition.reverse() != composition:
        raise ValueError(
            f"tradeoff = {curve!r} is not its own inverse, and symmetric noise has no other "
            "curves: give tradeoff.symmetric(), the convex curve below it and its inverse, or "
            "tradeoff.mutual(), the larger of the two, if it bounds every ordered pair"
        )
    delta = curve.delta(0.0)
    if delta.upper <= 0 or all(not a.parts for a in curve.alternatives):
        raise ValueError(
            f"tradeoff = {curve!r} is perfect privacy, f(alpha) = 1 - alpha: no noise is enough "
            "for it; release nothing, or give a curve below, such as ny.pure(0.01)"
        )
    if delta.lower <= 0 and delta.upper < 0.5:
        raise ValueError(
            f"tradeoff = {curve!r} cannot be distinguished from perfect privacy (total "
            f"variation at most {delta.upper:.2g}): give a curve below, such as ny.pure(0.01)"
        )
    slack, hidden = 1 + LIMITS.relative_width, 1 - delta.upper
    # Rests of 1 - delta below 1e-9 are not checked.
    if delta.upper > slack * delta.lower or 1 - delta.lower > slack * hidden + 1e-9:
        raise ValueError(
            f"tradeoff = {curve!r} is only known to be between two others (total variation from "
            f"{delta.lower:.4g} to {delta.upper:.4g}), and noise has one: give a curve that is "
            "known and below it, such as ny.pure(epsilon) for a pure mechanism"
        )
    if any(c.infinite >= 1 for c in curve.directions):
        raise ValueError(f"tradeoff = {curve!r} hides nothing: no noise is needed for it")


def _ladder(curve: Tradeoff) -> tuple[Ladder, int, int]:
    """Return the `Ladder` of a curve, and the resolution of the integral for its variance.

    The resolution is a number of pieces per octave (factor of 2) of u, and a number of octaves.
    """
    composition = curve.alternatives[0]
    if len(curve.alternatives) == len(composition.parts) == 1 and composition.parts[0][1] == 1:
        loss = composition.parts[0][0]
        if isinstance(loss, GaussianLoss):
            return Normal(loss.mu), 4096, 60
        if isinstance(loss, LaplaceLoss):
            return LaplaceLadder(loss.epsilon), 4096, 60
        if isinstance(loss, (EnvelopeLoss, BoundedRangeLoss)):
            return Logistic(float(loss.exact_epsilon)), 4096, 60
        if (
            isinstance(loss, FiniteLoss)
            and loss.index in ((-1, 1), (0,))
            and loss.failure == loss.missing
        ):
            epsilon = float(loss.supremum) if loss.index == (-1, 1) else 0.0
            return Exponential(epsilon, loss.failure), 0, 0
    profile = curve.profiles[0]
    infinite = max(c.infinite for c in curve.directions)
    zero = profile.log_delta(0.0)
    if isinstance(profile.inner, LatticeProfile) and profile.engine == Engine.EXACT:
        return Stepwise(profile.log_powers, zero, infinite), 64, 34
    if any(isinstance(loss, RenyiBound) for c in curve.directions for loss, _ in c.parts):
        return Stepwise(profile.log_powers, zero, infinite), 2, 12
    supremum = max(float(c.supremum) for c in curve.directions)
    return Stepwise(TabulatedPower(profile, supremum, infinite).log_powers, zero, infinite), 64, 34


def _geometric(last: float, r: float) -> float:
    """Bound the sum over j >= 0 of r^j (1 - r) (last + j + 1)^2 from above, for the variance."""
    if r >= 1:
        return math.inf
    a, rest = last + 1, r / (1 - r)
    # slack: variances_of_canonical_noise
    return (a * a + 2 * a * rest + rest * (1 + r) / (1 - r)) * (1 + 64 * UNIT)


def _exact_variance(law: Exponential) -> Bound:
    """Return bounds on 4 times the integral of x P(Z > x) over x > 0, by exact sums in decimals.

    With q = e^-epsilon, d = 1 - 2c and k = delta / (e^epsilon - 1), the tail P(Z > n + t) is q^n
    (1/2 - d t + k) - k while this is positive, for |t| <= 1/2.
    """
    epsilon, delta = law.epsilon, law.delta
    with localcontext() as context:
        # Terms of order epsilon^-3 cancel.
        context.prec = 60 + (4 * math.ceil(max(-math.log10(epsilon), 0.0)) if epsilon else 0)
        e, given = Decimal(epsilon), Decimal(delta)
        if not epsilon:
            value = 1 / (12 * given * given)
        else:
            q = (-e).exp()
            d = (1 - q + 2 * q * given) / (1 + q)
            k = given * q / (1 - q)
            value = Decimal(1) / 16 - d / 24
            if not delta:
                first, times = q / (1 - q), q / (1 - q) ** 2
                value += times / 2 - first * d / 12
            else:
                # The units inside the support, and the unit in which the support ends.
                m = Decimal(int((((1 - d) / 2 + k) / k).ln() / e))
                left = (-m * e).exp()
                first = q * (1 - left) / (1 - q)
                times = q * (1 - (m + 1) * left + m * left * q) / (1 - q) ** 2
                half = Decimal(1) / 2
                value += times * (half + k) - first * d / 12 - k * m * (m + 1) / 2
                n, b = m + 1, left * q * d
                a = left * q * (half + k) - k

                def integral(t: Decimal) -> Decimal:
                    return n * a * t + (a - n * b) * t * t / 2 - b * t**3 / 3

                value += integral(a / b) - integral(-half)
            value *= 4
    near = float(value)
    low = min(near * (1 - 64 * UNIT), MOST)  # slack: variances_of_canonical_noise
    # slack: variances_of_canonical_noise
    return Bound(low, near * (1 + 64 * UNIT), "upper", "exact sums")


# Composition


def own_loss(curve: Tradeoff) -> Composition | None:
    """Return the loss of a pair with this curve, or None if the curve only bounds pairs."""
    (composition, *more) = curve.directions
    if more or any(isinstance(x, (RenyiBound, BoundedRangeLoss)) for x, _ in composition.parts):
        return None
    return composition


@lru_cache(maxsize=64)
def composes_as(curve: Tradeoff) -> Composition:
    """Return the loss of a pair with this curve, or a loss between two polygons [CN-7].

    The curve of a bare guarantee, such as zCDP, or of a bounded range is also the curve of a pair.
    But this pair does not meet the guarantee, so it composes differently. A joined curve is not the
    curve of any of the joined pairs.
    """
    own = own_loss(curve)
    if own is not None:
        return own
    if len(curve.directions) > 1:
        return joined_composition(curve)
    (composition,) = curve.alternatives
    if len(composition.parts) == 1 and composition.parts[0][1] == 1:
        loss = composition.parts[0][0]
        if isinstance(loss, BoundedRangeLoss):  # the curve of two logistic distributions
            return Composition.of([(EnvelopeLoss(loss.exact_epsilon), 1)])
    return _hold_symmetric(composition)


def _hold_symmetric(composition: Composition) -> Composition:
    """Bracket the loss of a symmetric curve between two polygons.

    The lower polygon joins points of the power. The upper one is an envelope of lines above it.
    """
    profile, infinite = select(composition), Fraction(composition.infinite)
    # Levels down to the normal quantile -12.
    log_levels = log_ndtr(np.linspace(0.0, -12.0, LIMITS.tests))
    low = profile.log_powers(log_levels)[0]
    end = 1.0
    while end < 1e6 and profile.log_delta(end)[1] > log_levels[-1]:
        end *= 2
    place = np.concatenate([[0.0], np.geomspace(1e-3 * end, end, LIMITS.tests)])
    high = profile.log_deltas(place)[1]
    points = [(Fraction(0), infinite)]
    lines: list[tuple[Fraction, Fraction]] = []
    for a, b in zip(log_levels, low, strict=True):
        level, power = Fraction(exp_up(float(a) * (1 - 1e-15))), Fraction(exp_down(float(b)))
        points += [(level, power), (1 - power, 1 - level)]
    for e, d in zip(place, high, strict=True):
        # A power of e has an error of 2 units, and a product of one.
        # slack: counted
        line = Fraction(math.exp(e) * (1 + 8 * UNIT * (1 + e))), Fraction(exp_up(float(d)))
        lines += [line, mirrored_line(*line)]
    return composition_between((hull(points), envelope(lines)))
