"""What whole numbers cost: integers with discrete Gaussian noise beside a Gaussian's reals."""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["MOST_NUMBERS", "SMOOTH", "integer_mu", "root_above"]

SMOOTH = 6  # variance of the rounding that makes whole numbers of a Gaussian
MOST_NUMBERS = 1 << 60  # with noise, in all
LEAST = Fraction(1, 10**300)


def integer_mu(shift_squared: Fraction, sigma_squared: Fraction) -> float:
    """A mu such that integers with discrete Gaussian noise are mu-GDP, also for adaptive shifts.

    mu = Delta / sqrt(sigma^2 - 6) + 2 sqrt(2 pi) m kappa, where m numbers with discrete Gaussian
    noise are, up to a factor e^(m kappa) in any probability, numbers with Gaussian noise of
    variance sigma^2 - 6 that were rounded at random: kappa = log((1 + e) / (1 - e)), e =
    2 q / (1 - q), q = e^(-12 pi^2). Derived in docs/certificates.md.

    Args:
        shift_squared: Delta^2, the squared l2 norm of the shift, in whole numbers.
        sigma_squared: above 6.

    Returns:
        A float, rounded up, for up to 2^60 numbers in all; 0 for no shift.
    """
    if not shift_squared:
        return 0.0
    kappa = 4.1 * math.exp(-2 * math.pi**2 * SMOOTH)
    slope = root_above(shift_squared / (sigma_squared - SMOOTH))
    return (slope + 5.02 * MOST_NUMBERS * kappa) * (1 + 1e-15)


def root_above(squared: Fraction) -> float:
    """The least float of at least the root; 1e-150 for what is smaller."""
    if not squared:
        return 0.0
    root = math.sqrt(max(squared, LEAST))
    while Fraction(root) ** 2 < squared:
        root = math.nextafter(root, math.inf)
    return root
