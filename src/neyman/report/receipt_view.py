"""What a receipt says, read for the page: numbers that are none are refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri  # pyright: ignore[reportMissingTypeStubs]

from neyman.release.receipt_format import Budget, MechanismPart, Receipt
from neyman.semantics import digits
from neyman.semantics import sentences as words

__all__ = [
    "Entries",
    "Receipt",
    "chosen",
    "limit_curve",
    "number",
    "place",
    "proportion",
    "tables_of",
    "unit",
]

Entries = Sequence[MechanismPart]


def chosen(receipt: Receipt) -> tuple[Fraction, Fraction]:
    """The level and the certified power that the page puts first."""
    budget = receipt.budget
    at_most = budget.kind == "at_most"
    level = proportion(budget.level) if at_most else Fraction(1, 20)
    known: dict[Fraction, Fraction] = {}
    for point in receipt.guarantee.power:
        at, upper = proportion(point.level), proportion(point.upper)
        known[at] = max(upper, known.get(at, upper))
    if not at_most and level not in known and known:
        level = min(known)
    # Both the budget that was met and the computed power are upper bounds.
    powers = [proportion(budget.power)] if at_most else []
    if level in known:
        powers.append(known[level])
    if not powers:
        raise ValueError("receipt's guarantee.power is empty: it must give the power at a level")
    return level, max(level, min(powers))


def limit_curve(budget: Budget) -> list[tuple[float, float]] | None:
    """Power against level of the curve that a budget draws as the limit; None if it draws none.

    Args:
        budget: as in a receipt: "at_most" (the Gaussian curve through its point), "gdp",
            "approximate" (power <= min(1, e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a))).

    Returns:
        Points (level, power) from level 0 to 1. Other kinds (zCDP) are functionals, not curves.
    """
    levels = np.linspace(0.0, 1.0, 161) ** 2
    if budget.kind == "at_most":
        level, power = float(Fraction(budget.level)), float(Fraction(budget.power))
        if not (0 < level < 1 and 0 < power < 1):
            return None
        powers = ndtr(ndtri(levels) + ndtri(power) - ndtri(level))
    elif budget.kind == "gdp":
        powers = ndtr(ndtri(levels) + float(Fraction(budget.mu)))
    elif budget.kind == "approximate":
        epsilon, delta = float(Fraction(budget.epsilon)), float(Fraction(budget.delta))
        factor = math.exp(min(epsilon, 700.0))
        powers = np.minimum(factor * levels + delta, 1 - (1 - delta - levels) / factor)
    else:
        return None
    powers[-1] = 1.0
    return list(zip(levels.tolist(), np.clip(powers, 0, 1).tolist(), strict=True))


def tables_of(receipt: Receipt, *, public: bool = False) -> list[Entries]:
    """The entries of each table, in order: one for a count or a sum, two for a mean."""
    tables: dict[tuple[str, str], list[MechanismPart]] = {}
    for entry in receipt.mechanisms:
        if entry.public is public:
            tables.setdefault((entry.query, entry.level), []).append(entry)
    return list(tables.values())


def place(level: str) -> str:
    """The level of a table in words; HTML."""
    return "in all" if level == "all" else f"by {escape(level)}"


def unit(receipt: Receipt) -> tuple[str, int]:
    """Who is protected, and how many records of each, in all tables together."""
    tables: Mapping[str, Any] = receipt.plan.get("tables", {})
    if not tables:
        return receipt.unit.protects, receipt.unit.rows
    own = int(receipt.plan["unit"].get("rows", 1))
    return receipt.unit.protects, own + sum(int(part["rows"]) for part in tables.values())


def number(x: Any) -> float:
    """A number of a receipt, as a float."""
    return float(words.value("number in the receipt", x))


def proportion(x: Any) -> Fraction:
    """A number of a receipt that must be in [0, 1], exactly as it is written."""
    return digits.proportion("number in the receipt", x)
