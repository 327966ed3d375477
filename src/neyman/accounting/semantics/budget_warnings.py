"""Write warnings about budgets that are allowed but protect almost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtr, ndtri

from neyman.accounting.semantics.budget import PlanBudget
from neyman.accounting.semantics.digits import plain


@dataclass(frozen=True)
class Limits:
    """Hold the level, power, and delta from which a budget counts as large."""

    level: float = 0.05
    # From this power at the level on, a release protects almost nothing.
    power: float = 0.95
    # A larger delta is large: guarantees for 10,000 people or more use a smaller one.
    delta: Fraction = Fraction(1, 10**4)


LIMITS = Limits()


def budget_warnings(budget: PlanBudget) -> tuple[str, ...]:
    """Return a sentence for each way in which a budget protects almost nothing.

    The power assumes Gaussian noise that spends the whole budget: an estimate, not a bound.
    """
    numbers = budget.numbers
    warnings: list[str] = []
    text = " and ".join(f"{name} = {plain(value)}" for name, value in numbers.items())
    power = float(ndtr(ndtri(LIMITS.level) + budget.rough_mu))
    if power >= LIMITS.power:
        claims = "nearly every true claim" if power > 0.995 else f"about {power:.0%} of true claims"
        warnings.append(
            f"The budget {text} protects almost nothing: at a 5% false positive rate, an attacker "
            f"could confirm {claims}. The redistricting data of the 2020 Census spent zcdp = 2.63, "
            "which allows about 74%. Choose a smaller budget."
        )
    if numbers.get("delta", Fraction(0)) > LIMITS.delta:
        delta = plain(numbers["delta"])
        warnings.append(
            f"The budget's delta = {delta} is large: a release that published each record in full "
            f"with probability {delta} would meet it. Choose a delta far below 1 over the number "
            "of people, such as 1e-6."
        )
    return tuple(warnings)
