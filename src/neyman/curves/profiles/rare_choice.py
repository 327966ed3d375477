"""Bound sums of randomly drawn losses if each draw nearly always gives the same loss [SA-8].

The draws are observed, so delta is the mean of the deltas given the draws. With probability 1 - m,
under both distributions, every draw gives its likely loss. With delta' and power' of the likely
losses alone,

    (1 - m) delta'(epsilon) <= delta(epsilon) <= delta'(epsilon) + m,
    (1 - m) power'(level) <= power(level) <= power'(level / (1 - m)) + m.

For example, a batch is rarely truncated at its largest size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.loss import Part
from neyman.curves.losses.mixture import MixtureLoss
from neyman.curves.profiles.profile import Profile, intersection
from neyman.curves.profiles.selection import register, rules, select
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

RULE_PRIORITY = 75


class RareChoiceProfile(Profile):
    """Bound a sum from the profile of its likely losses.

    Args:
        likely: the profile of the sum of the likely losses.
        rare: an upper bound on the probability m that some draw gives another loss, below 1.
        of_sum: builds the profile of the entire sum, for use if m is not small.
    """

    def __init__(self, likely: Profile, rare: float, of_sum: Callable[[], Profile]) -> None:
        self.method, self.engine = likely.method, likely.engine
        self._likely, self._rare, self._build = likely, rare, of_sum

    @cached_property
    def _sum(self) -> Profile:
        return self._build()

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Return bounds on log delta at many epsilons."""
        ends = self._likely.log_deltas(epsilons)
        return self._ask_likely_losses(
            epsilons, *ends, np.exp(ends[0]), lambda p, x: p.log_deltas(x)
        )

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Return bounds on log power at many levels."""
        levels = np.asarray(log_levels, float)
        finite = np.maximum(levels, -1e300)  # a level below it is 0
        raised = (finite + 2 * self._rare) + 4 * UNIT * (1 + np.abs(finite))  # slack: counted
        raised = np.minimum(np.where(finite > levels, levels, raised), 0.0)
        low, high = self._likely.log_powers(levels)[0], self._likely.log_powers(raised)[1]
        least = np.minimum(np.exp(low), -np.expm1(high))
        return self._ask_likely_losses(levels, low, high, least, lambda p, x: p.log_powers(x))

    def epsilon_near(self, log_delta: float) -> float:
        """Return the guess from the likely losses alone."""
        return self._likely.epsilon_near(log_delta)

    def log_total_variation(self) -> float:
        """Return the bound of the likely losses, raised by m."""
        return float(self._move_up(np.array(self._likely.log_total_variation())))

    def _move_up(self, high: Array) -> Array:
        high = np.logaddexp(high, math.log(self._rare))  # errs by 2 units of 1 + |high|
        return np.minimum(high + 4 * UNIT * (1 + np.abs(high)), 0.0)  # slack: open

    def _ask_likely_losses(
        self,
        places: Array,
        low: Array,
        high: Array,
        least: Array,
        ask: Callable[[Profile, Array], tuple[Array, Array]],
    ) -> tuple[Array, Array]:
        """Widen the bounds of the likely losses by m. Where m matters, use the profile of the sum.

        low, high: bounds of the likely losses at ``places``. least: numbers to compare with m.
        """
        high = self._move_up(high)
        low = low - 2 * self._rare  # log(1 - m) > -2 m for m < 1/2, with room for the rounding
        large = self._rare > 1e-9 * least  # else the likely losses suffice
        if large.any():
            below, above = ask(self._sum, np.asarray(places)[large])
            low[large], high[large] = intersection(low[large], high[large], below, above)
        return np.minimum(low, high), high


@register(RULE_PRIORITY, "each choice drawn in the open falls nearly always on the same loss")
def _rare(composition: Composition) -> Profile | None:
    if MixtureLoss not in composition.kinds:
        return None
    likely: list[tuple[Part, int]] = []
    rare: list[float] = []
    for loss, count in composition.parts:
        part = loss
        if isinstance(loss, MixtureLoss):
            part = max(loss.parts, key=lambda item: item[0])[1]
            rare.append(count * math.fsum(w for w, x in loss.parts if x is not part))
        likely.append((part, count))
    most = math.fsum(rare) * (1 + 8 * UNIT)  # slack: counted
    if not 0 < most <= 1e-6:  # else the bounds are wide
        return None

    def sum_profile() -> Profile:
        later = (rule for rule in rules() if rule.priority > RULE_PRIORITY)
        return next(profile for rule in later if (profile := rule.build(composition)) is not None)

    return RareChoiceProfile(select(Composition.of(likely)), most, sum_profile)
