"""Compute the exact profile of one step on a random sample, from the mechanism's own profile.

For the mechanism's pair (P, Q), M = (1 - q) Q + q P, and every t = e^epsilon,

    M - t Q = q (P - (1 + (t - 1) / q) Q),    Q - t M = (1 - t (1 - q)) Q - t q P,

Therefore, delta of (M, Q) is q times delta of (P, Q) at log(1 + (t - 1) / q). With r = 1 - t (1 -
q), delta of (Q, M) is r times delta of (Q, P) at log(t q / r) [SA-4]. If the noise moves to
opposite sides, the best test for every t is a threshold [SA-3].
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import log_ndtr

from neyman.curves.losses.bracket import ComposedLattice, LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.subsampled import (
    FixedSizeLoss,
    ReplaceOneSubsampledLoss,
    SubsampledGaussianLoss,
    SubsampledLoss,
)
from neyman.curves.profiles.closed_forms.closed_form import GaussianProfile
from neyman.curves.profiles.duality import LIMITS as DUALITY_LIMITS
from neyman.curves.profiles.duality import log_power_by_duality
from neyman.curves.profiles.profile import Interval, Profile, log_delta_below_zero
from neyman.curves.profiles.selection import profile_of_one, select
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import log_add


class SubsampledStepProfile(Profile):
    """Compute the profile of one subsampled step.

    Args:
        pair: profile of (P, Q).
        reverse: profile of (Q, P).
        rate: q, in (0, 1).
        order: "removed" for (M, Q), "added" for (Q, M), "both" for the convex hull of both curves.
    """

    def __init__(
        self,
        pair: Profile,
        reverse: Profile,
        rate: float,
        order: Literal["removed", "added", "both"],
    ) -> None:
        self.method = f"{pair.method}, sampled once"
        self._pair, self._reverse = pair, reverse
        self._rate, self._order = rate, order

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log delta. For "both" and epsilon >= 0, (M, Q) has the larger delta.

        Source: Zhu, Dong and Wang 2022.
        """
        if self._order == "added":
            return self._addition_delta(epsilon)
        if self._order == "both" and epsilon < 0:
            low, high = log_delta_below_zero(epsilon, self._removal_delta(-epsilon))
            return float(low), float(high)
        return self._removal_delta(epsilon)

    def _removal_delta(self, epsilon: float) -> Interval:
        q = self._rate
        if epsilon > 700:
            place = epsilon - math.log(q)
        elif math.expm1(epsilon) > -q * (1 - 8 * UNIT):  # slack: counted
            place = math.log1p(math.expm1(epsilon) / q)
        else:
            return _around(math.log(-math.expm1(epsilon)), epsilon)
        # The quotient errs by a few units of its size, and ``place`` by this over 1 + quotient.
        # slack: delta_of_a_sampled_step
        error = 8 * UNIT * (abs(place) + (abs(math.expm1(min(-place, 700.0))) + 1))
        low, high = self._pair.log_delta(place + error)[0], self._pair.log_delta(place - error)[1]
        log_q = math.log(q)
        return self._scale_delta(low, log_q, -1), min(self._scale_delta(high, log_q, 1), 0.0)

    def _addition_delta(self, epsilon: float) -> Interval:
        q = self._rate
        if epsilon < 0:
            low, high = log_delta_below_zero(epsilon, self._removal_delta(-epsilon))
            return float(low), float(high)
        # 1 - t (1 - q) = q - (t - 1) (1 - q)
        factor = q - math.expm1(min(epsilon, 700.0)) * (1 - q)
        # slack: delta_of_a_sampled_step_in_the_other_order
        error = 8 * UNIT * (q + math.expm1(min(epsilon, 700.0)))
        if factor <= -error:
            return -math.inf, -math.inf
        high_factor, low_factor = factor + error, max(factor - error, 0.0)
        first = epsilon + math.log(q)
        slack = 8 * UNIT * (1 + abs(first))  # slack: delta_of_a_sampled_step_in_the_other_order
        # Delta falls with its place. A larger factor gives a smaller place and a larger product.
        high = self._reverse.log_delta(first - math.log(high_factor) - slack)[1]
        high = self._scale_delta(high, math.log(high_factor), 1)
        if not low_factor:
            return -math.inf, min(high, 0.0)
        low = self._reverse.log_delta(first - math.log(low_factor) + slack)[0]
        return self._scale_delta(low, math.log(low_factor), -1), min(high, 0.0)

    @staticmethod
    def _scale_delta(log_delta: float, log_factor: float, side: int) -> float:
        """Return the sum of two logarithms, rounded up (side 1) or down (-1) by their errors."""
        if log_delta == -math.inf:
            return log_delta
        # slack: delta_of_a_sampled_step, delta_of_a_sampled_step_in_the_other_order
        return log_delta + log_factor + side * 8 * UNIT * (1 + abs(log_delta) + abs(log_factor))

    def log_power(self, log_level: float) -> Interval:
        """Bound the log of the best test's power at this level.

        For "added" and "both", the bounds come from delta, by duality. For "both", the power is at
        least that for "removed".
        """
        if self._order == "removed":
            return self._removal_power(log_level)
        if log_level == -math.inf:
            if self._order == "added":
                return -math.inf, -math.inf  # Q has no outcome that M lacks
            return self._removal_power(log_level)
        if log_level >= 0:
            return 0.0, 0.0
        low, high = log_power_by_duality(self.log_delta, log_level)
        if self._order == "both":
            low = max(low, self._removal_power(log_level)[0])
        return low, min(high, 0.0)

    def _removal_power(self, log_level: float) -> Interval:
        """Bound the log of (1 - q) level + q (power of the pair (P, Q) at this level)."""
        q = self._rate
        bracket = self._pair.log_power(log_level)
        low, high = (log_add(math.log(q) + x, math.log1p(-q) + log_level) for x in bracket)
        size = abs(log_level) if math.isfinite(log_level) else abs(bracket[1])
        # slack: the_power_of_a_sampled_step
        slack = 8 * UNIT * (2 + size + abs(math.log(q))) if math.isfinite(size) else 0.0
        return low - slack, min(high + slack, 0.0)


class ReplaceOneStepProfile(Profile):
    """Compute the profile of one step that samples noise shifted to opposite sides.

    The pair is its own reverse. With S the survival function of the noise, s the shift, and t =
    e^epsilon >= 1, delta is the maximum over y of q (S(y - s) - S(y + s)) - (t - 1) ((1 - q) S(y) +
    q S(y + s)).
    """

    def __init__(self, loss: ReplaceOneSubsampledLoss) -> None:
        self.method = "closed form, sampled once"
        self._loss, self._piece = loss, loss.law(1.0).pieces[-1]
        gaussian = isinstance(loss.inner, GaussianLoss)
        self._shift = loss.inner.mu if isinstance(loss.inner, GaussianLoss) else loss.inner.epsilon
        self._log_survival = _log_normal if gaussian else _log_laplace

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log delta by the threshold y with loss epsilon. An error e of y costs about e^2."""
        if epsilon < 0:
            low, high = log_delta_below_zero(epsilon, self.log_delta(-epsilon))
            return float(low), float(high)
        if epsilon >= self._loss.supremum:
            return -math.inf, -math.inf
        q = self._loss.rate
        y = float(self._piece.place(np.array([epsilon]))[0])
        (top, middle, far), units = self._log_survivals(y)
        gain = -q * math.expm1(far - top)
        cost = (1 - q) * math.exp(middle - top) + q * math.exp(far - top)
        cost *= math.expm1(min(epsilon, 700.0))
        # slack: delta_of_a_step_with_moved_noise
        value, error = gain - cost, units * UNIT * (q + gain + cost)
        return (
            top + math.log(value - error) if value > error else -math.inf,
            min(top + math.log(max(value + error, 1e-300)), 0.0),
        )

    def log_power(self, log_level: float) -> Interval:
        """Bound log power by a threshold, and by duality near 1 or where the bounds are wide."""
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        low, high = -math.inf, 0.0
        if log_level < -0.7:
            low, high = self._threshold_power(log_level)
        if high > -0.7 or high - low > DUALITY_LIMITS.search_width:
            least, most = log_power_by_duality(self.log_delta, log_level)
            low, high = max(low, least), min(high, most)
        return low, min(high, 0.0)

    def _threshold_power(self, log_level: float) -> Interval:
        """Bound log power for a level below one half, by a threshold of about this level [SA-3].

        Let level and power be (1 - q) S(y) + q S(y + s) and (1 - q) S(y) + q S(y - s). Power is
        concave in the level and at least 0, so between two levels it changes by at most their
        ratio.
        """
        start, end = -self._shift - 1, self._shift + 1
        while self._logs(end)[0] > log_level:
            end *= 2
        y = falls_to(lambda x: self._logs(x)[0], log_level, start, end, 1e-15)[1]
        level, power, error = self._logs(y)
        error += abs(log_level - level)
        return power - error, power + error

    def _logs(self, y: float) -> tuple[float, float, float]:
        """Return log level and log power of the threshold y, and the sum of their errors."""
        (top, middle, far), units = self._log_survivals(y)
        q = self._loss.rate
        rest, share = math.log1p(-q) + middle, math.log(q)
        # slack: counted
        error = 2 * (units - 64 * share) * UNIT  # of both sums
        return log_add(rest, share + far), log_add(rest, share + top), error

    def _log_survivals(self, y: float) -> tuple[tuple[float, float, float], float]:
        """Return log S at y - s, y, and y + s, and the units by which a sum of them may err.

        Each errs by 64 units, and by the hazard times the rounding of its place.
        """
        s = self._shift
        logs = self._log_survival(y - s), self._log_survival(y), self._log_survival(y + s)
        return logs, 64 * (4 + sum(map(abs, logs))) + 4 * (abs(y) + s + 1) ** 2


def _log_normal(x: float) -> float:
    return float(log_ndtr(-x))


def _log_laplace(x: float) -> float:
    return -x - math.log(2) if x >= 0 else math.log1p(-math.exp(x) / 2)


def _around(value: float, epsilon: float) -> Interval:
    slack = 8 * UNIT * (2 + abs(value) + abs(epsilon))  # slack: delta_of_a_sampled_step
    return value - slack, min(value + slack, 0.0)


@profile_of_one.register
def _(loss: SubsampledGaussianLoss) -> Profile:
    pair = GaussianProfile(loss.distance)
    return SubsampledStepProfile(pair, pair, loss.rate, "removed" if loss.removed else "added")


@profile_of_one.register
def _(loss: ReplaceOneSubsampledLoss) -> Profile:
    return ReplaceOneStepProfile(loss)


@profile_of_one.register
def _(loss: SubsampledLoss) -> Profile:
    order = "removed" if loss.removed else "added"
    return SubsampledStepProfile(*_both_orders(loss.inner), loss.rate, order)


@profile_of_one.register
def _(loss: FixedSizeLoss) -> Profile:
    return SubsampledStepProfile(*_both_orders(loss.inner), loss.share, "both")


@profile_of_one.register
def _(loss: LossBracket) -> Profile | None:
    """Return the exact profile of the step if both losses sample the same sum, else None."""
    low, high = (getattr(side, "inner", None) for side in (loss.lower, loss.upper))
    if isinstance(low, ComposedLattice) and isinstance(high, ComposedLattice):
        return profile_of_one(loss.upper) if low.parts == high.parts else None
    return None


def _both_orders(inner: Part) -> tuple[Profile, Profile]:
    """Return the profiles of a mechanism before sampling, for (P, Q) and for (Q, P)."""
    parts = inner.parts if isinstance(inner, ComposedLattice) else ((inner, 1),)
    backward = ((loss.reverse(), count) for loss, count in parts)
    return select(Composition.of(parts)), select(Composition.of(backward))
