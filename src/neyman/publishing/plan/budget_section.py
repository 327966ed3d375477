"""A guarantee by name as the budget of a plan: the fields that give the same curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from neyman.accounting.target import PowerBudget
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.tradeoff.guarantees import approximate, gdp, zcdp
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics.rounding import above
from neyman.publishing.plan.document import PlanError

__all__ = ["budget_section"]


def budget_section(budget: Any) -> dict[str, Any]:
    """Return the budget as a plan's fields.

    Args:
        budget: `at_most`, `zcdp`, `gdp`, or `approximate`; or the fields, such as
            ``{"zcdp": "1/10"}``.

    Raises:
        PlanError: it is none of these.
    """
    if isinstance(budget, PowerBudget):
        return {"power": budget.power, "level": budget.level}
    if isinstance(budget, Mapping):
        return dict(budget)
    section = _of_curve(budget) if isinstance(budget, Tradeoff) else None
    if section is None:
        raise PlanError(
            [
                f"budget = {budget!r}: must be ny.at_most(power, level), ny.zcdp(rho), "
                "ny.gdp(mu), ny.approximate(epsilon, delta), or fields such as {'zcdp': '1/10'}"
            ]
        )
    return section


def _of_curve(curve: Tradeoff) -> dict[str, Any] | None:
    """The fields of a guarantee by name: those whose curve is this one."""
    parts: tuple[tuple[Part, int], ...] = ()
    if len(curve.alternatives) == 1:
        parts = curve.alternatives[0].parts
    losses = {type(loss): loss for loss, _ in parts}
    bare, finite = losses.get(RenyiBound), losses.get(FiniteLoss)
    normal = losses.get(GaussianLoss)
    if isinstance(bare, RenyiBound):
        delta = _short(finite.failure) if isinstance(finite, FiniteLoss) else Fraction(0)
        section = {"zcdp": bare.exact_rho} | ({"delta": delta} if delta else {})
        return section if zcdp(bare.exact_rho, delta) == curve else None
    if isinstance(normal, GaussianLoss):
        mu = _short(math.sqrt(normal.mu_squared))
        return {"gdp": mu} if gdp(float(mu)) == curve else None
    if isinstance(finite, FiniteLoss) and finite.failure > 0:
        delta = _short(finite.failure)
        section = {"epsilon": finite.lattice, "delta": delta}
        # A float counts as the decimal that it prints as.
        same = (approximate(finite.lattice, value) for value in (delta, float(delta)))
        return section if curve in list(same) else None
    return None


def _short(value: float) -> Fraction:
    """The shortest decimal of at most 17 digits that a bound is rounded up to the float from."""
    texts = (f"{value:.{digits}g}" for digits in range(1, 18))
    return next(Fraction(text) for text in texts if value in (float(text), above(Fraction(text))))
