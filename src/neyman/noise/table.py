"""Exact discrete Laplace and Gaussian noise of common scales: one 64-bit word, one table look-up.

A magnitude is found by inversion: with U a uniform real and G(k) = P(|X| >= k), |X| is the k with
G(k+1) <= U < G(k). The table holds floor(2^63 G(k)); the first 63 bits of U decide against it,
unless they equal an entry. Then further bits of U are drawn and G is computed to more bits, until
the comparison is certain. The result is a function of U alone, so its law is exact, whatever the
precision of the table. The infinite tail needs nothing of its own: there the entries are 0, so a U
that begins with 63 zeros is one of those that ask for more bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.noise.parameters import positive_rational
from neyman.numerics import check

__all__ = [
    "LARGEST_SCALE",
    "LARGEST_SIGMA_SQUARED",
    "Table",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
]

# Up to here a table is made in some 50 ms.
LARGEST_SCALE = 256
LARGEST_SIGMA_SQUARED = 1000**2
BEYOND = "the table is slow to make; neyman.noise then draws by rejection"

BATCH = 1 << 16  # words worked on at a time


def discrete_laplace(scale: Fraction, size: int, bits: Bits) -> NDArray[np.int64]:
    """As `neyman.noise.rejection.discrete_laplace`, for scales up to 256."""
    scale = positive_rational("scale", scale, LARGEST_SCALE, BEYOND)
    return _table(1 / scale, Fraction(0)).draw(check.whole("size", size), bits)


def discrete_gaussian(sigma_squared: Fraction, size: int, bits: Bits) -> NDArray[np.int64]:
    """As `neyman.noise.rejection.discrete_gaussian`, for sigma up to 1000."""
    sigma_squared = positive_rational("sigma_squared", sigma_squared, LARGEST_SIGMA_SQUARED, BEYOND)
    return _table(Fraction(0), 1 / (2 * sigma_squared)).draw(check.whole("size", size), bits)


@dataclass(frozen=True, eq=False)
class Table:
    """Noise with P(X = x) proportional to exp(-a |x| - b x^2), ready to be drawn.

    Args:
        a: the linear coefficient, a rational of at least 0.
        b: the quadratic coefficient, a rational of at least 0; not both are 0.
        low: floors of lower bounds of 2^63 G(k) for k = 1, 2, ..., down to 0, *in rising order*.
        high: floors of upper bounds of the same, for k = 1, 2, ....
    """

    a: Fraction
    b: Fraction
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]

    def draw(self, size: int, bits: Bits) -> NDArray[np.int64]:
        """``size`` independent draws as an int64 array."""
        drawn = np.empty(size, np.int64)
        for start in range(0, size, BATCH):
            part = drawn[start : start + BATCH]
            words = bits.words(part.size)
            leading = words >> np.uint64(1)
            # U is certainly below G(1), ..., G(k), and above G(k+1) where leading > high[k].
            part[:] = self.low.size - np.searchsorted(self.low, leading, side="right")
            for i in np.flatnonzero(leading <= self.high[part]):
                part[i] = self.refine(int(leading[i]), int(part[i]), bits)
            minus = words & np.uint64(1) == 1
            np.negative(part, out=part, where=minus)
        return drawn

    def refine(self, value: int, k: int, bits: Bits) -> int:
        """The magnitude for a U whose first 63 bits are ``value`` and which is below G(k)."""
        length = 63
        while True:
            value, length = value << 64 | int(bits.words(1)[0]), length + 64
            tail = _tail(self.a, self.b, length + 129)
            while tail.exceeds(value, length, k + 1):
                k += 1
            if tail.is_at_most(value, length, k + 1):
                return k


@dataclass(frozen=True, eq=False)
class Tail:
    """Bounds of T(k), the sum of exp(-a j - b j^2) over j >= k, on a common integer scale.

    G(k) = 2 T(k) / (2 T(0) - 1) for k >= 1, because P(|X| >= k) counts both signs of j >= k but
    zero counts once.
    """

    low: list[int]
    high: list[int]
    unit: int

    def bounds(self, k: int, length: int) -> tuple[int, int]:
        """Floors of a lower and an upper bound of 2^length G(k)."""
        low, high = (self.low[k], self.high[k]) if k < len(self.low) else (0, self.high[-1])
        return (
            (2 * low << length) // (2 * self.high[0] - self.unit),
            (2 * high << length) // (2 * self.low[0] - self.unit),
        )

    def exceeds(self, value: int, length: int, k: int) -> bool:
        """Whether G(k) is certainly above every U whose first ``length`` bits are ``value``."""
        return value + 1 <= self.bounds(k, length)[0]

    def is_at_most(self, value: int, length: int, k: int) -> bool:
        """Whether G(k) is certainly at most every U whose first ``length`` bits are ``value``."""
        return value > self.bounds(k, length)[1]


@lru_cache(maxsize=128)
def _table(a: Fraction, b: Fraction) -> Table:
    tail = _tail(a, b, 192)
    low, high = [], []
    while not high or high[-1] > 0:
        below, above = tail.bounds(len(low) + 1, 63)
        low.append(below)
        high.append(above)
    # Rounding leaves an upper bound above 2^63 harmless: no leading bits reach that far.
    table = Table(a, b, np.array(low[::-1], np.uint64), np.array(high, np.uint64))
    table.low.flags.writeable = table.high.flags.writeable = False
    return table


@lru_cache(maxsize=8)
def _tail(a: Fraction, b: Fraction, precision: int) -> Tail:
    """Bounds of T(k) in units of 2^-precision, in interval arithmetic on integers.

    The weights follow from w(j+1) = w(j) r(j) and r(j+1) = r(j) s with r(0) = exp(-a - b) and
    s = exp(-2 b): products of lower bounds are rounded down, of upper bounds up. Ratios do not
    rise, so all beyond the last weight w(n) adds up to at most w(n) / (1 - r(n)).
    """
    one = 1 << precision
    ratio_low, ratio_high = exponential(a + b, precision)
    step_low, step_high = exponential(2 * b, precision)
    low, high = [one], [one]
    # Rounding up keeps high above 1 / (1 - r) units, far below this for all scales in range.
    while high[-1] >> 32:
        low.append(low[-1] * ratio_low >> precision)
        high.append((high[-1] * ratio_high >> precision) + 1)
        ratio_low = ratio_low * step_low >> precision
        ratio_high = min((ratio_high * step_high >> precision) + 1, ratio_high)
    high[-1] = (high[-1] << precision) // (one - ratio_high) + 1
    for j in range(len(low) - 1, 0, -1):
        low[j - 1] += low[j]
        high[j - 1] += high[j]
    return Tail(low, high, one)


def exponential(x: Fraction, precision: int) -> tuple[int, int]:
    """Integers around 2^precision exp(-x) for a rational x >= 0, a few units apart at most.

    ``decimal`` rounds quotients as told and exponentials to the nearest, both correctly, so the
    neighbor on either side is a bound.
    """
    if x == 0:
        return 1 << precision, 1 << precision
    if x >= precision:
        return 0, 1  # because exp(-x) < 2^-x
    digits = precision * 31 // 100 + 10  # of 1; more than precision bits
    down, up = (
        Context(prec=digits, rounding=rounding, Emin=-999_999, Emax=999_999, traps=[])
        for rounding in (ROUND_FLOOR, ROUND_CEILING)
    )
    numerator, denominator = Decimal(x.numerator), Decimal(x.denominator)
    smallest = down.next_minus(down.exp(up.divide(numerator, denominator).copy_negate()))
    largest = up.next_plus(up.exp(down.divide(numerator, denominator).copy_negate()))
    scale = 1 << precision
    return math.floor(Fraction(smallest) * scale), math.ceil(Fraction(largest) * scale)
