"""Compute the smallest zCDP parameters of common releases, as exact rationals.

They are rounded up in the 15th digit. rho is the supremum of D_a / a over orders a > 1. For all but
one of these distributions, it is D_1, the KL divergence. No result exceeds the rho of earlier
versions (epsilon^2 / 2, or epsilon^2 / 8 for a bounded range).

Proof: [ZC-1], [ZC-2], and the label of each function. arXiv 2510.25746 has another proof for
Laplace noise. The rho of earlier versions: Bun and Steinke 2016, Cesar and Rogers 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

QUADRATIC_EPSILON = Fraction(1, 10**16)  # below this epsilon the quadratic bound is sharp to 1e-16
SPARE = Decimal("1e-25")  # relative slack, far above the error of the working digits


@lru_cache(maxsize=4096)
def pure_rho(epsilon: Fraction) -> Fraction:
    """Return epsilon tanh(epsilon / 2), the rho of any pure epsilon-DP mechanism [ZC-3]."""

    def exact(e: Decimal) -> Decimal:
        less = (-e).exp()
        return e * (1 - less) / (1 + less)

    return _smaller_rho(epsilon, exact, epsilon**2 / 2)


@lru_cache(maxsize=4096)
def laplace_rho(epsilon: Fraction) -> Fraction:
    """Return epsilon - 1 + e^-epsilon, the rho of Laplace noise, epsilon = shift / scale [ZC-6]."""
    return _smaller_rho(epsilon, lambda e: e - 1 + (-e).exp(), epsilon**2 / 2)


@lru_cache(maxsize=4096)
def discrete_laplace_rho(scale: Fraction, shift: int) -> Fraction:
    """Return the KL divergence a (d - 2 r (1 - r^d) / (1 - r^2)), a = 1 / scale, r = e^-a [ZC-5].

    Args:
        scale: above 0. The noise has mass proportional to e^{-|x| / scale} on the integers.
        shift: d, at least 0.
    """

    def exact(a: Decimal) -> Decimal:
        r = (-a).exp()
        return a * (shift - 2 * r * (1 - (-a * shift).exp()) / (1 - r * r))

    epsilon = shift / scale
    if epsilon <= QUADRATIC_EPSILON:
        return epsilon**2 / 2
    return _smaller_rho(1 / scale, exact, epsilon**2 / 2, least=Fraction(0))


@lru_cache(maxsize=4096)
def bounded_range_rho(epsilon: Fraction) -> Fraction:
    """Return the rho of a loss of range epsilon [ZC-7].

    It is log(sinh(a) / a) + a coth(a) - 1, a = epsilon / 2.
    """

    def exact(e: Decimal) -> Decimal:
        less = (-e).exp()
        rest = 1 - less
        return e / 2 + (rest / e).ln() + e / 2 * (1 + less) / rest - 1

    return _smaller_rho(epsilon, exact, epsilon**2 / 8)


@lru_cache(maxsize=4096)
def envelope_rho(epsilon: Fraction) -> Fraction:
    """Return epsilon coth(epsilon / 2) - 2, for the envelope of all losses of one range [BR-4]."""

    def exact(e: Decimal) -> Decimal:
        less = (-e).exp()
        return e * (1 + less) / (1 - less) - 2

    return _smaller_rho(epsilon, exact, epsilon**2 / 6)


@lru_cache(maxsize=4096)
def response_rho(epsilon: Fraction, categories: int) -> Fraction:
    """Return the rho of randomized response among k categories.

    Args:
        epsilon: log odds of the truth against another category, at least 0.
        categories: k, at least 2.
    """
    if categories == 2:
        return pure_rho(epsilon)
    return _three_values(epsilon, lambda e: (categories - 2) * (-e / 2).exp() / 2)


@lru_cache(maxsize=4096)
def three_values_rho(epsilon: Fraction) -> Fraction:
    """Return the rho of a loss that is 0 with probability 1/2, else that of randomized response.

    Args:
        epsilon: the largest loss, at least 0.
    """
    return _three_values(epsilon, lambda e: _cosh(e / 2))


def _three_values(epsilon: Fraction, middle: Callable[[Decimal], Decimal]) -> Fraction:
    """Return the rho of a loss with the values -epsilon, 0, and epsilon [ZC-4].

    K(w - 1/2) is log(A + cosh(epsilon w)) minus its value at w = 1/2.

    Args:
        epsilon: the largest loss.
        middle: returns A for epsilon.
    """

    def exact(e: Decimal) -> Decimal:
        a, start = middle(e), e / 2

        def slope(x: Decimal) -> tuple[Decimal, Decimal]:
            """Return h'(x), h = log(A + cosh x), and a value above 0 if h is concave in x^2."""
            sine, cosine = (x.exp() - (-x).exp()) / 2, _cosh(x)
            total = a + cosine
            return sine / total, sine * total - x * (1 + a * cosine)

        first, bend = slope(start)
        if a <= 2 or bend > SPARE * a:
            return e * first
        least = a + _cosh(start)

        def height(x: Decimal) -> Decimal:
            """Return how far the tangent at x is above the function at the start, in x^2."""
            rise = ((a + _cosh(x)) / least).ln()
            return rise - slope(x)[0] * (x * x - start * start) / (2 * x)

        low, high = start, start + 1
        while height(high) <= 0:
            low, high = high, 2 * high
        for _ in range(56):
            half = (low + high) / 2
            low, high = (half, high) if height(half) <= 0 else (low, half)
        steep, bend = slope(low)
        if low == start or height(low) > -SPARE or bend <= SPARE * a:
            return e  # no order is certified to be the worst: D_a <= epsilon
        return e * e * steep / (2 * low)

    return min(_smaller_rho(epsilon, exact, epsilon**2 / 2), pure_rho(epsilon))


def _smaller_rho(
    epsilon: Fraction,
    exact: Callable[[Decimal], Decimal],
    quadratic: Fraction,
    least: Fraction = QUADRATIC_EPSILON,
) -> Fraction:
    """Return the smaller of the exact rho, rounded up, and the ``quadratic`` rho.

    Args:
        epsilon: at least 0; the argument of ``exact``.
        exact: returns rho, accurate to nearly all digits of the current decimal context.
        quadratic: another proven rho.
        least: largest epsilon for which the quadratic rho is the answer.
    """
    if epsilon <= least:
        return quadratic
    small = max(0, len(str(int(1 / epsilon))))
    # Three more digits for each leading zero of epsilon [ZC-8].
    with localcontext(Context(45 + 3 * small, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        rho = exact(Decimal(epsilon.numerator) / Decimal(epsilon.denominator)) * (1 + SPARE)
    return min(Fraction(Context(15, rounding=ROUND_CEILING).plus(rho)), quadratic)


def _cosh(x: Decimal) -> Decimal:
    return (x.exp() + (-x).exp()) / 2
