"""What a release costs in a currency that adds up, whatever is chosen adaptively after it."""

from __future__ import annotations

import math
from fractions import Fraction

from neyman.mechanisms.algebra import Mechanism

__all__ = ["charge"]


def charge(mechanism: Mechanism, currency: str) -> tuple[Fraction, Fraction]:
    """The price of a mechanism: the amount in the currency, and the delta beside it, exact.

    Args:
        mechanism: what is released.
        currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared) or "renyi:ORDER".

    Returns:
        (amount, delta): both never below the truth. Amounts of releases that were chosen one after
        the other add up (Rogers, Roth, Ullman and Vadhan 2016; Whitehouse et al. 2023).

    Raises:
        ValueError: for an unknown currency, or where no finite amount pays for the mechanism.
    """
    amount = _amount(mechanism, currency)
    if isinstance(amount, float) and not math.isfinite(amount):
        raise ValueError(
            f"currency = {currency!r}: no finite amount pays for {mechanism!r}; use a ledger in "
            "zCDP, which Gaussian noise can be paid in"
        )
    return Fraction(amount), Fraction(0)


def _amount(mechanism: Mechanism, currency: str) -> Fraction | float:
    if not isinstance(currency, str):
        raise TypeError(f"currency = {currency!r} must be text such as 'zcdp'")
    kind, _, order = currency.partition(":")
    if kind == "zcdp" and not order:
        return mechanism.rho()
    if kind == "pure" and not order:
        return mechanism.tradeoff().exact_pure()
    if kind == "gdp" and not order:
        mu = mechanism.tradeoff().gdp().upper
        return math.nextafter(mu * mu, math.inf) if mu else 0.0
    if kind == "renyi":
        try:
            return mechanism.tradeoff().renyi(float(order)).upper
        except ValueError:
            pass
    raise ValueError(
        f"currency = {currency!r} must be 'pure', 'zcdp', 'gdp' or 'renyi:ORDER' with an order of "
        "at least 1"
    )
