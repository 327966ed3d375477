"""Compute the cost of a release in a currency that adds up under adaptive composition [CH-1].

A release may fail outright and reveal a record. Its price is an amount for all other outcomes, and
the failure probability as a delta. Suppose that the two distributions of release i, on neighbors,
are at least (1 - delta_i) times distributions that meet the currency. Then the joint distributions
are at least 1 - (sum of delta_i) times products of distributions that meet it. This holds for any
adaptive choice of releases. So amounts add up, and deltas add up (Bun and Steinke 2016, section 8;
Whitehouse et al. 2023 for filters).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from neyman.accounting.currency import Currency
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.rounded_gaussian import RoundedGaussianLoss
from neyman.mechanisms.base import Composed, Mechanism
from neyman.numerics.rounding import up


@runtime_checkable
class Revealing(Protocol):
    """Represent a mechanism that reveals everything with some probability, else nothing."""

    def revealed(self) -> Fraction:
        """Return the exact probability that the mechanism reveals everything."""
        ...


def charge(mechanism: Mechanism, currency: str) -> tuple[Fraction, Fraction]:
    """Return the exact price of a mechanism: an amount in the currency, and a delta.

    Args:
        currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared) or "renyi:ORDER".

    Returns:
        (amount, delta): both never below the truth. Amounts and deltas of adaptively chosen
        releases add up (Rogers, Roth, Ullman and Vadhan 2016; Whitehouse et al. 2023). The delta is
        the sum of what `NonPrivate` and `RandomSubset` parts reveal, 0 without them.

    Raises:
        ValueError: the currency is unknown, or no finite amount pays for the mechanism.
    """
    parts = mechanism.parts if isinstance(mechanism, Composed) else ((mechanism, 1),)
    amounted = [(part, n) for part, n in parts if not isinstance(part, Revealing)]
    delta = sum((n * m.revealed() for m, n in parts if isinstance(m, Revealing)), Fraction(0))
    amount = Currency.read(currency).price(
        MechanismCosts(Composed.of(amounted) if delta else mechanism)
    )
    if delta >= 1:
        raise ValueError(
            f"currency = {currency!r}: no amount pays for {mechanism!r}, whose deltas add up to "
            f"{float(delta):.6g}; it must be below 1: lower the probability of full disclosure"
        )
    if isinstance(amount, float) and not math.isfinite(amount):
        raise ValueError(
            f"currency = {currency!r}: no finite amount pays for {mechanism!r}; use a ledger in "
            "zCDP, which can pay for Gaussian noise, and describe a step that can reveal a record "
            "as a RandomSubset(...) or NonPrivate(rate=...)"
        )
    return Fraction(amount), delta


@dataclass(frozen=True)
class MechanismCosts:
    """Compute the cost of one mechanism, as `neyman.accounting.currency.Costs`."""

    mechanism: Mechanism

    def pure(self) -> Fraction | float:
        """Return the mechanism's pure-DP epsilon."""
        return self.mechanism.tradeoff().exact_pure()

    def rho(self) -> Fraction | float:
        """Return the mechanism's zCDP rho."""
        return self.mechanism.rho()

    def mu_squared(self) -> Fraction | float:
        """Return the mechanism's mu squared, exact if all noise is normal."""
        normal = (GaussianLoss, RoundedGaussianLoss)
        if all(isinstance(x, normal) for c in self.mechanism.losses() for x, _ in c.parts):
            return 2 * self.mechanism.rho()
        mu = self.mechanism.tradeoff().gdp().upper
        return up(mu * mu, 1) if mu else 0.0

    def renyi(self, order: float) -> Fraction | float:
        """Return the mechanism's Renyi divergence at the order."""
        amount = self.mechanism.tradeoff().renyi(order).upper
        return amount if amount < math.inf else self.mechanism.renyi(order).upper
