"""Certified probabilities of rounded normal noise: P(|round(Z)| <= k), Z ~ N(0, sigma^2).

With q = (2 k + 1)^2 / (8 sigma^2) it is

    F(k) = erf(sqrt q) = sqrt(4 q / pi) e^-q (1 + 2 q / 3 + (2 q)^2 / (3 5) + ...),

whose terms are all positive, in integers that are rounded down and up [NT-5].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from neyman.noise.weights import exponential
from neyman.numerics.roots import bisect_whole

__all__ = ["RoundedWeights"]

SLACK = 2  # of 2^64 F(k), which is known to less than one unit
GUARD = 48  # bits beyond those of a result, and beyond those that e^-q takes away


@dataclass(frozen=True)
class RoundedWeights:
    """The law of |round(Z)|.

    Args:
        sigma_squared: the variance of Z, a rational above 0.
    """

    sigma_squared: Fraction

    def thresholds(self) -> tuple[NDArray[np.uint64], int]:
        """Integers t(k) and one slack with t(k) <= 2^64 F(k) <= t(k) + slack, k = 0, 1, ...

        They do not fall, and end where about 2^-61 is left.
        """
        entries: list[int] = []
        while not entries or entries[-1] < (1 << 64) - 8:
            entries.append(max(self.enclosure(len(entries), 64)[0], entries[-1] if entries else 0))
        return np.array(entries, np.uint64), SLACK

    def place(self, value: int, length: int) -> int | None:
        """The k with F(k-1) <= U < F(k), U a real that starts with the bits ``value``.

        Returns:
            k, or None where these bits leave more than one answer possible.
        """
        if value + 1 == 1 << length:
            return None  # U may be as near 1 as it likes
        precision = length + 32
        low, high = -1, 1

        def above(k: int) -> bool:
            """Whether all such U are certainly below F(k)."""
            return self.enclosure(k, precision)[0] >= value + 1 << 32

        while not above(high):
            if self.enclosure(high, precision)[0] >= (1 << precision) - 4:
                return None
            low, high = high, 2 * high
        high = bisect_whole(above, high, low)
        if high and self.enclosure(high - 1, precision)[1] > value << 32:
            return None
        return high

    def enclosure(self, k: int, precision: int) -> tuple[int, int]:
        """Integers around 2^precision F(k), at most two units apart."""
        q = Fraction((2 * k + 1) ** 2) / (8 * self.sigma_squared)
        if q > precision:  # 1 - F(k) < e^-q
            return (1 << precision) - 1, 1 << precision
        working = precision + GUARD + 3 * math.ceil(q)
        one = 1 << working
        numerator, denominator = 2 * q.numerator, q.denominator
        low = high = total_low = total_high = one
        odd = 3
        # Once terms fall by half, all that follow add up to at most the last one.
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
    """Integers around 2^precision pi, by Machin's formula: 16 atan(1/5) - 4 atan(1/239)."""
    spare = 32

    def arctan(x: int) -> tuple[int, int]:
        """2^(precision + spare) atan(1/x), and how many units it may be off."""
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
