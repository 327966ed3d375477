"""The numbers that a plan's budget has proven already.

A budget of epsilon 3 is met because delta at 3 is within the budget's delta. The search for the
smallest epsilon ends a little above it, at most 1e-12 of it, and a page that rounds up would print
3.01. Whoever prints a number of the release takes the smaller of both: each is proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from neyman.numerics.rounding import above, below
from neyman.publishing.plan.resolve import budget_fields

if TYPE_CHECKING:
    from neyman.mechanisms.base import Mechanism
    from neyman.numerics.bound import Bound
    from neyman.publishing.plan.plan import Plan

__all__ = ["Promise"]


@dataclass(frozen=True)
class Promise:
    """Upper bounds that a budget proves about a mechanism; none of them without a budget.

    Args:
        numbers: the budget's exact numbers by field, such as {"epsilon": 3, "delta": 1/10^6}.
    """

    numbers: Mapping[str, Fraction] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan, mechanism: Mechanism) -> Promise:
        """Return what the plan's budget proves: nothing where it does not admit the mechanism."""
        return Promise(budget_fields(plan.budget)) if plan.admits(mechanism) else Promise()

    def epsilon(self, delta: float, bound: Bound) -> Bound:
        """Return the epsilon at a delta, at most the budget's where its delta is no larger."""
        numbers = self.numbers
        if "epsilon" in numbers and delta >= below(numbers["delta"]):
            return _at_most(bound, numbers["epsilon"])
        return bound

    def power(self, level: float, bound: Bound) -> Bound:
        """Return the power at a level, at most the budget's where its level is no smaller."""
        numbers = self.numbers
        if "power" in numbers and level <= float(numbers["level"]):
            return _at_most(bound, numbers["power"])
        return bound

    def mu(self, bound: Bound) -> Bound:
        """Return mu, at most the budget's."""
        return _at_most(bound, self.numbers["gdp"]) if "gdp" in self.numbers else bound

    def rho(self, bound: Bound) -> Bound:
        """Return rho, at most the budget's unless outcomes of infinite loss leave no finite rho."""
        if "zcdp" not in self.numbers or bound.upper == float("inf"):
            return bound
        return _at_most(bound, self.numbers["zcdp"])


def _at_most(bound: Bound, number: Fraction) -> Bound:
    most = above(number)
    return replace(bound, lower=min(bound.lower, most), upper=min(bound.upper, most))
