"""Round real noise to a grid exactly: staircase noise and Student noise.

A real number is known by its first bits. More bits are drawn while two answers are possible. The
result is the grid point nearest to an exact real number. So it is post-processing of a release of
this number, and that release's trade-off curve holds [RN-1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman.noise.bits import Bits
from neyman.noise.enclosures import Enclosures, Pair
from neyman.noise.rejection import below, one_sided
from neyman.noise.weights import exponential

WORD_BITS = 64
GUARD_DIGITS = 20
HALF, ONE = Fraction(1, 2), Fraction(1)
Ends = tuple[Fraction, Fraction]


class UniformReal:
    """Draw a uniform real number in [0, 1), with bits on demand."""

    def __init__(self, bits: Bits) -> None:
        self._bits = bits
        self.value, self.length = 0, 0
        self.refine()

    def refine(self) -> None:
        """Draw 64 more bits."""
        word = int(self._bits.words(1)[0])
        self.value, self.length = self.value << WORD_BITS | word, self.length + WORD_BITS

    @property
    def ends(self) -> Ends:
        """Return the ends of the interval that contains the number."""
        one = 1 << self.length
        return Fraction(self.value, one), Fraction(self.value + 1, one)

    @property
    def digits(self) -> int:
        """Return a number of decimal digits that exceeds the precision of the bits so far."""
        return self.length * 31 // 100 + GUARD_DIGITS


def nearest(ends: Callable[[], Ends], refine: Callable[[], None]) -> int:
    """Return the integer nearest to a real number.

    Args:
        ends: a function that returns the ends of an interval around the number. The number is
            strictly inside unless both ends agree.
        refine: a function that narrows this interval.
    """
    while True:
        low, high = ends()
        first = math.floor(low + HALF)
        if low == high or math.ceil(high + HALF) - 1 == first:
            return first
        refine()


def rounded_staircase(
    value: Fraction, epsilon: Fraction, gamma: Fraction, unit: Fraction, bits: Bits
) -> int:
    """Draw round(value + unit Z) exactly, with staircase noise Z of epsilon and gamma [RN-2].

    Args:
        value: the exact value, in steps of the grid.
        epsilon: pure epsilon, above 0.
        gamma: share of a stair's width before its edge, from 0 to 1.
        unit: width of a stair in steps of the grid, above 0.
    """
    negative = bool(int(bits.words(1)[0]) >> (WORD_BITS - 1))
    stairs = np.empty(1, np.int64)
    one_sided(1 / epsilon, stairs, bits)
    before = _before_edge(epsilon, gamma, bits)
    start, width = (Fraction(0), gamma) if before else (gamma, 1 - gamma)
    start += int(stairs[0])
    place = UniformReal(bits)

    def ends() -> Ends:
        low, high = (
            value + (-unit if negative else unit) * (start + width * u) for u in place.ends
        )
        return (high, low) if negative else (low, high)

    return nearest(ends, place.refine)


def _before_edge(epsilon: Fraction, gamma: Fraction, bits: Bits) -> bool:
    """Draw True if the noise is before its stair's edge.

    The probability is gamma / (gamma + e^-epsilon (1 - gamma)).
    """
    if gamma in (0, 1):
        return gamma == 1
    uniform = UniformReal(bits)
    while True:
        one = 1 << 2 * uniform.length
        small, large = exponential(epsilon, 2 * uniform.length)
        low, high = uniform.ends
        if high * (gamma * one + large * (1 - gamma)) <= gamma * one:
            return True
        if low * (gamma * one + small * (1 - gamma)) >= gamma * one:
            return False
        uniform.refine()


@dataclass(frozen=True)
class StudentMagnitude:
    """Draw the magnitude of Student noise, as a real number with bits on demand [RN-3].

    Args:
        degrees: d, degrees of freedom, above 0.
        ring: 0 if the magnitude is in [0, 1), and j if it is in [2^(j-1), 2^j).
        place: its position in this interval, from 0 at the left end to 1.
    """

    degrees: Fraction
    ring: int
    place: UniformReal

    @classmethod
    def draw(cls, degrees: Fraction, bits: Bits) -> StudentMagnitude:
        """Draw a magnitude by rejection."""
        onward = max(HALF, 1 - degrees / 2)  # at least 2^-d
        while True:
            ring = 0
            while below(int(bits.words(1)[0]), onward, bits):
                ring += 1
            proposal = cls(degrees, ring, UniformReal(bits))
            if proposal.accepted(onward, UniformReal(bits)):
                return proposal

    @property
    def ends(self) -> Ends:
        """Return the ends of the interval that contains the magnitude."""
        low, high = self.place.ends
        if not self.ring:
            return low, high
        width = 1 << self.ring - 1
        return width * (1 + low), width * (1 + high)

    def accepted(self, onward: Fraction, uniform: UniformReal) -> bool:
        """Return True if ``uniform`` is below the acceptance probability of this proposal.

        ``onward`` is the probability with which a proposal moves from a ring to the next.
        """
        while True:
            numbers = Enclosures(self.place.digits)
            low, high = numbers.fall(self.exponent(onward, numbers))
            first, last = numbers.of(*uniform.ends)
            if last <= low:
                return True
            if first >= high:
                return False
            uniform.refine()
            self.place.refine()

    def exponent(self, onward: Fraction, numbers: Enclosures) -> Pair:
        """Return bounds on minus the logarithm of the acceptance probability, at least 0.

        ``onward`` is as for `accepted`, and ``numbers`` computes the bounds.
        """
        low, high = (1 + t * t / self.degrees for t in self.ends)
        fall = numbers.times(numbers.log(numbers.of(low, high)), numbers.of((self.degrees + 1) / 2))
        two = numbers.log(numbers.of(Fraction(2)))
        if not self.ring:
            return numbers.add(fall, two)
        # (1/2) h(t) 2^(j-1) / r^j: subtract log 2^(j-2) and log r^-j from the exponent.
        taken = numbers.times(numbers.log(numbers.of(1 / onward)), numbers.of(Fraction(self.ring)))
        if self.ring == 1:
            return numbers.less(numbers.add(fall, two), taken)
        gained = numbers.times(two, numbers.of(Fraction(self.ring - 2)))
        return numbers.less(fall, numbers.add(taken, gained))


def rounded_student(
    value: Fraction,
    degrees: Fraction,
    scale: Callable[[int], tuple[int, int]],
    unit: Fraction,
    bits: Bits,
) -> int:
    """Draw round(value + unit s Z) exactly, with Student noise Z and a real scale s [RN-3].

    Args:
        value: the exact value, in steps of the grid.
        degrees: degrees of freedom, above 0.
        scale: a function from a precision p to an integer below and an integer above 2^p s. Their
            ratio tends to 1 as p grows.
        unit: the factor of s Z, in steps of the grid, at least 0.
    """
    negative = bool(int(bits.words(1)[0]) >> (WORD_BITS - 1))
    size = StudentMagnitude.draw(degrees, bits)

    def ends() -> Ends:
        precision = 2 * size.place.length
        factors = (unit * Fraction(s, 1 << precision) for s in scale(precision))
        low, high = (t * factor for t, factor in zip(size.ends, factors, strict=True))
        return (value - high, value - low) if negative else (value + low, value + high)

    return nearest(ends, size.place.refine)
