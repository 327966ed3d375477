"""Compute certified probabilities of integer noise: P(|X| <= k).

The distribution of `Weights` has P(X = x) proportional to exp(-a |x| - b x^2). Let S(k) be the sum
of exp(-a j - b j^2) over j = 0, ..., k, and S the infinite sum. Then F(k) = P(|X| <= k) is
(2 S(k) - 1) / (2 S - 1). `Weights.thresholds` computes all F(k) to 64 bits at once [NT-3].
`Weights.place` compares F(k) with a uniform real to as many bits as needed [NT-4]. Both use integer
arithmetic with a known error.

`RoundedWeights` is the distribution of round(Z), Z ~ N(0, sigma^2): F(k) = erf(sqrt q),
q = (2 k + 1)^2 / (8 sigma^2). A series of positive terms gives F(k), in integers rounded down and
up [NT-5].
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.roots import bisect_integers

Words = NDArray[np.uint64]


PRECISION_BITS = 192  # of the powers whose products are weights
POWER_ERROR_UNITS = 2  # largest error of a power, in units of 2^-64 below the true value
WEIGHT_ERROR_UNITS = 4 * POWER_ERROR_UNITS + 3  # four powers, three products
HALF_WORD = np.uint64(32)
LOW_HALF = np.uint64(2**32 - 1)


@dataclass(frozen=True)
class Weights:
    """Represent noise with P(X = x) proportional to exp(-a |x| - b x^2) over the integers x.

    Args:
        a: the linear coefficient, a rational of at least 0.
        b: the quadratic coefficient, a rational of at least 0. Not both are 0.
    """

    a: Fraction
    b: Fraction

    def thresholds(self) -> tuple[Words, int]:
        """Return integers t(k) and a slack with t(k) <= 2^64 F(k) <= t(k) + slack [NT-3].

        The t(k), k = 0, 1, ..., do not fall. They end when exp(-a k - b k^2) < 2^-64. The slack is
        about 200 for a Gaussian and 1,000 for a Laplace distribution, of any scale.
        """
        n = bisect_left(range(2**40), 45, key=lambda j: self.a * j + self.b * j * j)
        weights = self._leading_words(n)  # e^45 > 2^64
        high, low = np.cumsum(weights >> HALF_WORD), np.cumsum(weights & LOW_HALF)
        high += (low >> HALF_WORD) + np.uint64(2**31)
        # 2^64 (2 S(k) - 1) is now within 2 WEIGHT_ERROR_UNITS k above 2 (2^32 high + low).
        low &= LOW_HALF
        least = 2 * ((int(high[-1]) << 32) + int(low[-1]))
        beyond = 2 + math.ceil(2 / (self.a + self.b * (2 * n + 1)))
        most = least + 2 * WEIGHT_ERROR_UNITS * n + beyond
        # Both parts of the quotient are cut to 64 bits.
        cut = most.bit_length() - 64
        shares = (high << np.uint64(33 - cut)) + (low >> np.uint64(cut - 1))
        inverse = np.array([min((1 << 127 + cut) // most, 2**64 - 1)], np.uint64)
        entries = _product(shares, inverse) << np.uint64(1)
        slack = -(-((4 * WEIGHT_ERROR_UNITS * n + beyond) << 64) // least) + 8
        return entries, slack

    def _leading_words(self, n: int) -> Words:
        """Return 2^64 exp(-a j - b j^2) for j = 1, ..., n, after a first entry of 0.

        An entry is at most ``WEIGHT_ERROR_UNITS`` below the true value. Let w be a power of 2,
        j = h w + l with l < w, and h l = q w + m with m < w. The exponent is a sum of terms of h,
        of l, of q, and of m. So products of four short tables give all weights.
        """
        a, b = self.a, self.b
        bits = (n.bit_length() + 1) // 2
        width = 1 << bits
        rows = n // width + 1
        outer, inner = _powers(a * width, b * width**2, rows), _powers(a, b, width)
        step, zero = 2 * b * width, Fraction(0)
        coarse, fine = _powers(step * width, zero, rows), _powers(step, zero, width)
        weights = np.empty(rows * width, np.uint64)
        block = max(1, (1 << 14) // width)  # weights per batch
        across = np.arange(width)
        for start in range(0, rows, block):
            h = np.arange(start, min(start + block, rows))
            part = _product(outer[h, None], inner)
            if b:
                both = h[:, None] * across
                part = _product(part, _product(coarse[both >> bits], fine[both & (width - 1)]))
            weights[start * width : start * width + part.size] = part.ravel()
        weights[0] = 0
        return weights[: n + 1]

    def place(self, value: int, length: int) -> int | None:
        """Return the k with F(k-1) <= U < F(k), for a real U with first bits ``value`` [NT-1].

        Returns:
            k, or None if these ``length`` bits leave several k possible, or do not suffice to
            compute F that far out.
        """
        precision = length + 129
        one = 1 << precision
        low = high = 0
        for least, most, rest in self._weight_bounds(precision):
            low, high = low + least, high + most + rest
        # 2^precision (2 S - 1) is between these two; F is compared without division.
        all_low, all_high = 2 * low - one, 2 * high - one
        surely_below = -(-(value + 1) * all_high >> length)
        surely_above = value * all_low >> length
        low = high = 0
        for k, (least, most, _) in enumerate(self._weight_bounds(precision)):
            low, high = low + least, high + most
            if 2 * low - one >= surely_below:
                return k
            if 2 * high - one > surely_above:
                return None
        return None

    def _weight_bounds(self, precision: int) -> Iterator[tuple[int, int, int]]:
        """Yield lower and upper bounds on 2^precision exp(-a j - b j^2) for j = 0, 1, ... [NT-4].

        A third number is 0. In the last item, it bounds the sum of all later terms from above.
        """
        one = 1 << precision
        ratio_low, ratio_high = exponential(self.a + self.b, precision)
        step_low, step_high = exponential(2 * self.b, precision)
        low = high = one
        # Rounding up keeps high above 1 / (1 - r) units, far below this for all scales in range.
        while high >> 32:
            yield low, high, 0
            low = low * ratio_low >> precision
            high = (high * ratio_high >> precision) + 1
            ratio_low = ratio_low * step_low >> precision
            ratio_high = min((ratio_high * step_high >> precision) + 1, ratio_high)
        yield low, high, (high << precision) // (one - ratio_high) + 1 - high


def _powers(a: Fraction, b: Fraction, n: int) -> Words:
    """Return 2^64 exp(-a j - b j^2) for j = 0, ..., n - 1, rounded down.

    An entry is at most ``POWER_ERROR_UNITS`` below the true value. Rounding loses at most 2 j^2 + 2
    j units of the working precision.
    """
    weight = 1 << PRECISION_BITS
    ratio, step = (exponential(x, PRECISION_BITS)[0] for x in (a + b, 2 * b))
    cut = PRECISION_BITS - 64
    powers: list[int] = []
    for _ in range(n):
        powers.append(min(weight >> cut, 2**64 - 1))  # a word does not hold 1
        weight = weight * ratio >> PRECISION_BITS
        ratio = ratio * step >> PRECISION_BITS
    return np.array(powers, np.uint64)


def _product(x: Words, y: Words) -> Words:
    """Return floor(x y / 2^64), exactly."""
    x_high, x_low, y_high, y_low = x >> HALF_WORD, x & LOW_HALF, y >> HALF_WORD, y & LOW_HALF
    middle = x_low * y_low
    middle >>= HALF_WORD
    middle += x_high * y_low
    other = x_low * y_high
    other += middle & LOW_HALF
    middle >>= HALF_WORD
    other >>= HALF_WORD
    middle += other
    middle += x_high * y_high
    return middle


def exponential(x: Fraction, precision: int) -> tuple[int, int]:
    """Return lower and upper bounds on 2^precision exp(-x), for a rational x >= 0.

    They are integers that differ by at most 3. ``decimal`` rounds quotients as requested and
    exponentials to nearest, both correctly. So the decimals next to an exponential are bounds.
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


@dataclass(frozen=True)
class RoundedWeights:
    """Represent the distribution of |round(Z)| for a normal Z of mean 0.

    Args:
        sigma_squared: the variance of Z, a rational above 0.
    """

    sigma_squared: Fraction

    def thresholds(self) -> tuple[NDArray[np.uint64], int]:
        """Return t(k) and a slack as `Weights.thresholds` does, until 2^-61 of the mass is left."""
        entries: list[int] = []
        while not entries or entries[-1] < (1 << 64) - 8:
            entries.append(max(self.enclosure(len(entries), 64)[0], entries[-1] if entries else 0))
        return np.array(entries, np.uint64), 2  # slack of 2^64 F(k), whose error is below one unit

    def place(self, value: int, length: int) -> int | None:
        """Return k as `Weights.place` does, or None if these bits do not suffice."""
        if value + 1 == 1 << length:
            return None  # U may be arbitrarily close to 1
        precision = length + 32
        low, high = -1, 1

        def above(k: int) -> bool:
            """Return True if every real U with first bits ``value`` is below F(k)."""
            return self.enclosure(k, precision)[0] >= value + 1 << 32

        while not above(high):
            if self.enclosure(high, precision)[0] >= (1 << precision) - 4:
                return None
            low, high = high, 2 * high
        high = bisect_integers(above, high, low)
        if high and self.enclosure(high - 1, precision)[1] > value << 32:
            return None
        return high

    def enclosure(self, k: int, precision: int) -> tuple[int, int]:
        """Return lower and upper bounds on 2^precision F(k), integers that differ by at most 2."""
        q = Fraction((2 * k + 1) ** 2) / (8 * self.sigma_squared)
        if q > precision:  # 1 - F(k) < e^-q
            return (1 << precision) - 1, 1 << precision
        # Bits in addition to the bits of a result, and to the bits lost by e^-q.
        working = precision + 48 + 3 * math.ceil(q)
        one = 1 << working
        numerator, denominator = 2 * q.numerator, q.denominator
        low = high = total_low = total_high = one
        odd = 3
        # If terms fall by half or more, all later terms add up to at most the last term.
        while low or 2 * numerator > denominator * odd:
            low = low * numerator // (denominator * odd)
            high = high * numerator // (denominator * odd) + 1
            total_low, total_high, odd = total_low + low, total_high + high, odd + 2
        total_high += 2 * high
        power_low, power_high = exponential(q, working)
        pi_low, pi_high = _pi(working)
        square = 4 * q.numerator << 3 * working
        root_low = math.isqrt(square // (q.denominator * pi_high))
        root_high = math.isqrt(square // (q.denominator * pi_low)) + 1
        cut = 3 * working - precision
        least = root_low * power_low * total_low >> cut
        most = (root_high * power_high * total_high >> cut) + 1
        return least, min(most, 1 << precision)


@lru_cache(maxsize=64)
def _pi(precision: int) -> tuple[int, int]:
    """Return integer bounds on 2^precision pi, by Machin's formula 16 atan(1/5) - 4 atan(1/239)."""
    spare = 32

    def arctan(x: int) -> tuple[int, int]:
        """Return 2^(precision + spare) atan(1/x) as an integer, and a bound on its error."""
        power = (1 << precision + spare) // x
        total, n, sign = power, 1, 1
        while power:
            power, n, sign = power // (x * x), n + 2, -sign
            total += sign * (power // n)
        return total, n + 2

    (a, a_off), (b, b_off) = arctan(5), arctan(239)
    off = 16 * a_off + 4 * b_off
    value = 16 * a - 4 * b
    return (value - off) >> spare, ((value + off) >> spare) + 1
