"""Write warnings about budgets that are allowed but protect almost nothing."""

from __future__ import annotations

from fractions import Fraction

from scipy.special import ndtr, ndtri

from neyman.accounting.semantics.budget import PlanBudget
from neyman.accounting.semantics.digits import plain


def budget_warnings(budget: PlanBudget) -> tuple[str, ...]:
    """Return a sentence for each way in which a budget protects almost nothing.

    The power assumes Gaussian noise that spends the whole budget: an estimate, not a bound.
    """
    numbers = budget.numbers
    warnings: list[str] = []
    text = " and ".join(f"{name} = {plain(value)}" for name, value in numbers.items())
    power = float(ndtr(ndtri(0.05) + budget.rough_mu))
    if power >= 0.95:  # a release protects almost nothing
        claims = "nearly every true claim" if power > 0.995 else f"about {power:.0%} of true claims"
        warnings.append(
            f"The budget {text} protects almost nothing: at a 5% false positive rate, an attacker "
            f"could confirm {claims}. The redistricting data of the 2020 Census spent zcdp = 2.63, "
            "which allows about 74%. Choose a smaller budget."
        )
    # Guarantees for 10,000 people or more use a smaller delta.
    if numbers.get("delta", Fraction(0)) > Fraction(1, 10**4):
        delta = plain(numbers["delta"])
        warnings.append(
            f"The budget's delta = {delta} is large: a release that published each record in full "
            f"with probability {delta} would meet it. Choose a delta far below 1 over the number "
            "of people, such as 1e-6."
        )
    return tuple(warnings)
