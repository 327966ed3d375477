"""Compute decimal bounds around real numbers, as narrow as needed, for exact draws.

``decimal`` rounds sums, products, and quotients as requested, and exponentials and logarithms to
nearest, all correctly. The next decimals below and above a nearest decimal are bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property

Pair = tuple[Decimal, Decimal]
NOTHING_KNOWN: Pair = (Decimal(0), Decimal("Infinity"))
"""The trivial bounds on a number of at least 0."""


@dataclass(frozen=True)
class Enclosures:
    """Compute with pairs of bounds around real numbers of at least 0.

    Args:
        digits: number of decimal digits of each bound.
    """

    digits: int

    @cached_property
    def _down(self) -> Context:
        return self._context(ROUND_FLOOR)

    @cached_property
    def _up(self) -> Context:
        return self._context(ROUND_CEILING)

    def _context(self, rounding: str) -> Context:
        return Context(self.digits, rounding, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])

    def of(self, low: Fraction, high: Fraction | None = None) -> Pair:
        """Return bounds on all numbers from ``low`` to ``high``, or on ``low`` alone."""
        top = low if high is None else high
        return (
            self._down.divide(Decimal(low.numerator), Decimal(low.denominator)),
            self._up.divide(Decimal(top.numerator), Decimal(top.denominator)),
        )

    def add(self, a: Pair, b: Pair) -> Pair:
        """Return bounds on a + b."""
        return self._down.add(a[0], b[0]), self._up.add(a[1], b[1])

    def less(self, a: Pair, b: Pair) -> Pair:
        """Return bounds on a - b. The caller ensures that a >= b."""
        low, high = self._down.subtract(a[0], b[1]), self._up.subtract(a[1], b[0])
        return max(low, Decimal(0)), high

    def times(self, a: Pair, b: Pair) -> Pair:
        """Return bounds on a b."""
        return self._down.multiply(a[0], b[0]), self._up.multiply(a[1], b[1])

    def over(self, a: Pair, b: Pair) -> Pair:
        """Return bounds on a / b."""
        if not b[0]:
            return NOTHING_KNOWN
        return self._down.divide(a[0], b[1]), self._up.divide(a[1], b[0])

    def fall(self, a: Pair) -> Pair:
        """Return bounds on e^-a."""
        low, high = (self._up.exp(x.copy_negate()) for x in (a[1], a[0]))
        return max(self._down.next_minus(low), Decimal(0)), self._up.next_plus(high)

    def log(self, a: Pair) -> Pair:
        """Return bounds on log a. The caller ensures that a >= 1."""
        low, high = self._up.ln(a[0]), self._up.ln(a[1])
        return max(self._down.next_minus(low), Decimal(0)), self._up.next_plus(high)
