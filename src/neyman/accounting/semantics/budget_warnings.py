"""Budgets that protect almost nothing, in words: they are allowed, but not without a warning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from scipy.special import ndtr, ndtri  # pyright: ignore[reportMissingTypeStubs]

from neyman.accounting.semantics.digits import plain

__all__ = ["budget_warnings"]

LEVEL, POWER = 0.05, 0.95
"""From this power at this level on, a release protects almost nothing."""

LARGE_DELTA = Fraction(1, 10**4)
"""Above it a delta is large: guarantees for 10,000 people or more take a smaller one."""

LEAST_DELTA = 1e-300


def budget_warnings(numbers: Mapping[str, Fraction]) -> tuple[str, ...]:
    """Return a sentence for each way in which a budget protects almost nothing.

    The power is that of Gaussian noise that spends the whole budget: an estimate, not a bound.

    Args:
        numbers: the budget's exact numbers by the plan's fields, such as {"epsilon": 1000,
            "delta": 1/10^6}.
    """
    warnings: list[str] = []
    text = " and ".join(f"{name} = {plain(value)}" for name, value in numbers.items())
    power = float(ndtr(ndtri(LEVEL) + _mu(numbers)))
    if power >= POWER:
        claims = "nearly every true claim" if power > 0.995 else f"about {power:.0%} of true claims"
        warnings.append(
            f"The budget {text} protects almost nothing: at a 5% false positive rate, an attacker "
            f"could confirm {claims}. The redistricting data of the 2020 Census spent zcdp = 2.63, "
            "which allows about 74%. Choose a smaller budget."
        )
    if numbers.get("delta", Fraction(0)) > LARGE_DELTA:
        delta = plain(numbers["delta"])
        warnings.append(
            f"The budget's delta = {delta} is large: a release that published each record in full "
            f"with probability {delta} would meet it. Choose a delta far below 1 over the number "
            "of people, such as 1e-6."
        )
    return tuple(warnings)


def _mu(numbers: Mapping[str, Fraction]) -> float:
    """About the mu of Gaussian noise that spends the budget."""
    given = {name: float(value) for name, value in numbers.items()}
    if "zcdp" in given:
        return math.sqrt(2 * given["zcdp"])
    if "gdp" in given:
        return given["gdp"]
    if "power" in given:
        return float(ndtri(given["power"]) - ndtri(given["level"]))
    # rho + 2 sqrt(rho log(1 / delta)) = epsilon
    log = -math.log(max(float(numbers["delta"]), LEAST_DELTA))
    return math.sqrt(2) * (math.sqrt(log + given["epsilon"]) - math.sqrt(log))
