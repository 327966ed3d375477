"""Guarantees by name: the tightest curve that each definition implies."""

from __future__ import annotations

from fractions import Fraction
from math import log1p

from neyman.core.bare import ZcdpLoss
from neyman.core.composition import Composition
from neyman.core.loss import (
    LEAST_EPSILON,
    MOST_EPSILON,
    FiniteLoss,
    GaussianLoss,
    Loss,
    response_loss,
)
from neyman.core.tradeoff import Tradeoff
from neyman.numerics import check

__all__ = ["approximate", "gdp", "perfect", "pure", "zcdp"]


def _single(loss: Loss) -> Tradeoff:
    return Tradeoff.of([Composition.of([(loss, 1)])])


def perfect() -> Tradeoff:
    """Perfect privacy: f(alpha) = 1 - alpha; nothing can be learned."""
    return Tradeoff.of([Composition()])


def pure(epsilon: float | Fraction | str) -> Tradeoff:
    """Pure epsilon-DP: f(alpha) = max(0, 1 - e^epsilon alpha, e^-epsilon (1 - alpha)).

    Args:
        epsilon: at least 0.

    Returns:
        The curve of binary randomized response, which every epsilon-DP mechanism is at least as
        private as (Kairouz, Oh and Viswanath 2015; Wasserman and Zhou 2010).
    """
    return approximate(epsilon, 0.0)


def approximate(epsilon: float | Fraction | str, delta: float) -> Tradeoff:
    """(epsilon, delta)-DP: f = max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)).

    Args:
        epsilon: at least 0.
        delta: in [0, 1).

    Source: Dong, Roth and Su 2022, proposition 2.5; Kairouz, Oh and Viswanath 2015.
    """
    exact = check.exact("epsilon", epsilon)
    check.non_negative("epsilon", float(exact))
    if exact and not LEAST_EPSILON <= exact <= MOST_EPSILON:
        raise ValueError(f"epsilon = {epsilon!r} must be 0, or from 1e-150 to {MOST_EPSILON:g}")
    delta = check.probability("delta", delta)
    if delta >= 1:
        raise ValueError(f"delta = {delta!r} must be below 1")
    if exact == 0:
        if delta == 0:
            return perfect()
        return _single(FiniteLoss(Fraction(1), (0,), (log1p(-delta),), delta, delta))
    return _single(response_loss(exact, failure=delta))


def gdp(mu: float) -> Tradeoff:
    """Gaussian DP: f = G_mu, G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu).

    Args:
        mu: at least 0; the distance of two normal distributions in standard deviations.

    Source: Dong, Roth and Su 2022, definition 2.6.
    """
    mu = check.non_negative("mu", mu)
    if mu and not 1e-150 < mu < 1e150:
        raise ValueError(f"mu = {mu!r} must be 0, or between 1e-150 and 1e150")
    return _single(GaussianLoss(mu * mu)) if mu * mu > 0 else perfect()


def zcdp(rho: float | Fraction | str) -> Tradeoff:
    """Rho-zCDP: D_a <= a rho for every order a > 1, in both directions.

    Bare guarantees of this kind compose by adding rho, and become a curve last. The curve uses
    every real order and both directions. As a budget it is checked by rho itself, because the
    curve that zCDP implies does not imply zCDP.

    Args:
        rho: at least 0.

    Source: Bun and Steinke 2016; Balle et al. 2020.
    """
    exact = check.exact("rho", rho)
    check.non_negative("rho", float(exact))
    if exact and not LEAST_EPSILON <= exact <= 10**12:
        raise ValueError(f"rho = {rho!r} must be 0, or from 1e-150 to 1e12")
    return _single(ZcdpLoss(exact)) if exact else perfect()
