"""Count budgets in integer units, so that a database can add and compare them exactly.

An amount of a currency is an integer number of units of 1/720,720,000,000. A delta counts in units
of 1/720,720,000,000,000,000. Because 720,720 = 2^4 3^2 5 7 11 13, these are exact: halves, thirds,
sevenths, elevenths, and thirteenths of decimals with six places (of a delta, twelve). For example,
1/3 + 1/6 is 1/2. Other amounts are rounded so that charges never exceed what was allowed: caps
down, and charges up, by less than 1.4e-12 (1.4e-18). The ledger's events have the exact rationals.
"""

from __future__ import annotations

from fractions import Fraction

UNIT = 720_720 * 10**6
"""A currency amount of 1 has this many units."""
DELTA = 720_720 * 10**12
"""A delta of 1 has this many units."""
MOST = DELTA
"""A cap has at most this many units. The sum of several caps still fits into 64 bits."""
MOST_CAP = MOST // UNIT
"""A cap is at most a million."""


def units_up(amount: Fraction, per: int = UNIT) -> int:
    """Return the least number of units of 1/``per`` that is at least ``amount`` [LE-1]."""
    return -(-amount.numerator * per // amount.denominator)


def units_down(amount: Fraction, per: int = UNIT) -> int:
    """Return the greatest number of units of 1/``per`` that is at most ``amount``, for caps."""
    return amount.numerator * per // amount.denominator
