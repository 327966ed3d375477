"""Compute privacy profiles of one or several releases by mechanisms of bounded range."""

from __future__ import annotations

import math
from copy import copy
from fractions import Fraction

import numpy as np

from neyman.curves.losses.bounded_range import (
    EPSILON_SHARES,
    MIDDLE_SHARE,
    NEARLY_ALL,
    BoundedRangeLoss,
    EnvelopeLoss,
)
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import response_mu
from neyman.curves.profiles.closed_forms.closed_form import SPECIAL_FUNCTION_ERROR, value_interval
from neyman.curves.profiles.contour_line import log_kernel
from neyman.curves.profiles.profile import Engine, Interval, Profile
from neyman.curves.profiles.selection import profile_of_one, register, select
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

FIRST_TILTS = np.geomspace(1e-4, 1e7, 160)  # tilts c to try first


class EnvelopeProfile(Profile):
    """Compute the profile of one release of bounded range.

    For each epsilon and each level, some mechanism of this range attains it.

    Args:
        exact: the range a.
    """

    method = "closed form"

    def __init__(self, exact: Fraction) -> None:
        self._exact, self._a = exact, float(exact)

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log delta.

        For |epsilon| <= a, the range, it is 2 log(1 - e^{(epsilon - a)/2}) - log(1 - e^-a).
        """
        a = self._a
        if Fraction(epsilon) >= self._exact:
            return -math.inf, -math.inf
        if epsilon <= -a:
            value = -math.expm1(epsilon)
            return value_interval(
                value,
                # slack: delta_of_a_bounded_range/a
                SPECIAL_FUNCTION_ERROR + 4 * UNIT * (abs(epsilon) + a) / value,
            )
        # A lower limit on the difference: about its rounding error.
        value = max(-math.expm1((epsilon - a) / 2), UNIT * (abs(epsilon) + a))  # slack: counted
        low, high = value_interval(
            value,
            # slack: delta_of_a_bounded_range/b
            SPECIAL_FUNCTION_ERROR + 2 * UNIT * (abs(epsilon) + a) / value,
        )
        total = math.log(-math.expm1(-a))
        slack = SPECIAL_FUNCTION_ERROR * (1 + abs(total))
        return 2 * low - total - slack, min(2 * high - total + slack, 0.0)

    def log_power(self, log_level: float) -> Interval:
        """Bound the log of the power whose odds are e^a times the odds of the level."""
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        rest = math.log(-math.expm1(log_level))
        value = -float(np.logaddexp(0.0, rest - log_level - self._a))
        error = SPECIAL_FUNCTION_ERROR * (1 + self._a + abs(log_level) + abs(rest))
        return value - error, min(value + error, 0.0)

    def mu(self) -> Interval:
        """Bound mu = 2 z(1 / (1 + e^{-a/2})), the largest z(power) - z(level), z = Phi^-1."""
        mu = response_mu(self._a / 2)
        return mu * (1 - 1e-13), mu * (1 + 1e-13)


class BoundedRangeProfile(Profile):
    """Bound the profile of several releases, some of bounded range.

    Two-point mechanisms give lower bounds. Upper bounds come from `EnvelopeLoss`, which dominates
    each release, and, tighter for many releases, from the largest K(c) of any mechanism in the
    range: delta <= e^{K(c) - c epsilon} c^c / (c + 1)^{c + 1}.

    Args:
        losses: the losses of all releases.
    """

    def __init__(self, losses: Composition) -> None:
        self.engine = Engine.ENVELOPE
        self.method = "envelope: safe, not exact (two-point mechanisms below)"
        ranged = [(x, n) for x, n in losses.parts if isinstance(x, BoundedRangeLoss)]
        rest = [(x, n) for x, n in losses.parts if not isinstance(x, BoundedRangeLoss)]
        of = Composition.of
        few = not rest and sum(n for _, n in ranged) <= 12
        shares = (
            [*range(MIDDLE_SHARE, EPSILON_SHARES, EPSILON_SHARES // 16), *NEARLY_ALL]
            if few
            else [MIDDLE_SHARE]
        )
        self._losses = losses
        self._lower = [select(of([*rest, *((x.pair(j), n) for x, n in ranged)])) for j in shares]
        self._upper = select(of([*rest, *((x.upper, n) for x, n in ranged)]))
        self._orders = np.array([c for c in FIRST_TILTS if losses.places(float(c), 0.0) <= 1e4])
        self._side = 0

    def one_sided(self, side: int) -> BoundedRangeProfile:
        """Return the same profile with only upper (1) or lower (-1) bounds."""
        other = copy(self)
        other._side = side
        return other

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        low, high = np.full(len(epsilons), -math.inf), np.zeros(len(epsilons))
        if self._side <= 0:
            low = np.max([p.log_deltas(epsilons)[0] for p in self._lower], axis=0)
        if self._side >= 0:
            high = np.minimum(self._upper.log_deltas(epsilons)[1], self._by_orders(epsilons))
        return np.minimum(low, high), high

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power by all bounds. Those from K give power by duality."""
        low, high = np.full(len(log_levels), -math.inf), np.zeros(len(log_levels))
        if self._side <= 0:
            low = np.max([p.log_powers(log_levels)[0] for p in self._lower], axis=0)
        if self._side >= 0:
            dual = [self._dual(float(x)) if -1e300 < x < 0 else 0.0 for x in log_levels]
            high = np.minimum(self._upper.log_powers(log_levels)[1], dual)
        return np.minimum(low, high), high

    def epsilon_near(self, log_delta: float) -> float:
        return self._upper.epsilon_near(log_delta)

    def _by_orders(self, epsilons: Array) -> Array:
        """Return upper bounds on log delta, each from a suitable c; 0 if epsilon < 0."""
        log_delta = np.zeros(len(epsilons))
        at = np.flatnonzero(epsilons >= 0)
        asked, c = epsilons[at], self._orders
        exponent = self._exponents(asked, c[None, :])
        best, center = exponent.min(axis=1), c[exponent.argmin(axis=1)]
        width = math.log(FIRST_TILTS[1] / FIRST_TILTS[0])
        if self._losses.places(1.0, 0.0) <= 100:
            for _ in range(2):
                tried = center[:, None] * np.exp(width * np.linspace(-1, 1, 9))
                exponent = self._exponents(asked, tried)
                best = np.minimum(best, exponent.min(axis=1))
                center = tried[np.arange(len(at)), exponent.argmin(axis=1)]
                width /= 4
        mass = self._losses.infinite
        if mass:
            # slack: infinite_losses_beside_bounded_ranges
            best = np.logaddexp(best, math.log(mass)) + 16 * UNIT * (1 - math.log(mass))
        log_delta[at] = np.minimum(best, 0.0)
        return log_delta

    def _exponents(self, epsilons: Array, c: Array) -> Array:
        """Return K(c) - c epsilon + log(c^c / (c + 1)^{c + 1}), rounded up; shape (n, m)."""
        k, error = (x.reshape(c.shape) for x in self._losses.mgf(c.ravel()))
        move = c * epsilons[:, None]
        kernel = log_kernel(c)
        # slack: chernoff_of_bounded_ranges
        slack = 8 * UNIT * (np.abs(k) + move + (c + 2) * (2 + np.abs(np.log(c))))
        return k + np.log1p(error) - move + kernel + slack

    def _dual(self, log_level: float) -> float:
        """Return an upper bound on the log power at the level, at most 0.

        It is the least upper bound on log(delta(epsilon) + e^epsilon level) among some epsilons.
        """
        low, high = 0.0, max(-log_level, 1e-6)
        best = 0.0
        for _ in range(4):
            epsilons = np.linspace(low, high, 25)
            value = np.logaddexp(self._by_orders(epsilons), epsilons + log_level)
            k = int(value.argmin())
            # slack: a_power_where_the_least_epsilon_is_best
            best = min(best, float(value[k]) + 4 * UNIT * (4 + abs(log_level)))
            low, high = epsilons[max(k - 1, 0)], epsilons[min(k + 1, 24)]
        return best


@profile_of_one.register
def _(loss: BoundedRangeLoss | EnvelopeLoss) -> Profile:
    return EnvelopeProfile(loss.exact_epsilon)


@register(80, "several releases of bounded range: an envelope above, two-point mechanisms below")
def _bounded_range(composition: Composition) -> Profile | None:
    return BoundedRangeProfile(composition) if BoundedRangeLoss in composition.kinds else None
