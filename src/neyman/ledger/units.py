"""Budgets as whole numbers of a small unit, so that a database can add and compare them exactly.

An amount of a currency is kept as a whole number of units of 1/720,720,000,000, and a delta as one
of units of 1/720,720,000,000,000,000: as 720,720 = 2^4 3^2 5 7 11 13, halves, thirds, sevenths,
elevenths and thirteenths of decimals with six (twelve) places are whole, and 1/3 + 1/6 is 1/2. What
is not whole is rounded so that no more is spent than was allowed: caps down, charges up, which
costs less than 1.4e-12 (1.4e-18). The exact rationals are in the ledger's events.
"""

from __future__ import annotations

from fractions import Fraction

UNIT = 720_720 * 10**6
"""How many units make 1 of a currency."""
DELTA = 720_720 * 10**12
"""How many units make a delta of 1."""
MOST = DELTA
"""The most units that a cap may have; the sum of several still fits into 64 bits."""
MOST_CAP = MOST // UNIT
"""The most that a cap may be: a million."""


def units_up(amount: Fraction, per: int = UNIT) -> int:
    """Return the least number of units that ``amount`` fits into:
    what a charge is counted as [LE-1].
    """
    return -(-amount.numerator * per // amount.denominator)


def units_down(amount: Fraction, per: int = UNIT) -> int:
    """Return the greatest number of units that fits into ``amount``: what a cap is counted as."""
    return amount.numerator * per // amount.denominator
