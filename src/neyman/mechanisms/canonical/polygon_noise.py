"""Draw canonical noise of a piecewise-linear curve exactly, with certified tail probabilities.

A polygon of rational corners below a curve's power is the power of a slightly more private curve.
The tail of its canonical noise maps rational numbers to rational numbers, so any number of digits
is available. A draw compares a uniform real with the tail, and asks for more bits until the answer
is certain. The result of a draw never depends on floating-point arithmetic.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise

import numpy as np

from neyman.curves.tradeoff.enclosure import enclosed
from neyman.curves.tradeoff.piecewise_linear import Pair, Polygon, hull, mirrored, smallest
from neyman.curves.tradeoff.symmetry import joined_composition
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.canonical.distribution import check_curve
from neyman.noise.bits import Bits
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

HALF, ONE = Fraction(1, 2), Fraction(1)


@array_cache
def polygons(curve: Tradeoff) -> Pair:
    """Return symmetric polygons below and above the power of a curve [PT-1].

    Raises:
        ValueError: the curve has no canonical noise, or hides nearly all or nothing.
    """
    check_curve(curve)
    losses = joined_composition(curve) if curve.joined else curve.alternatives[0]
    below, above = enclosed(losses)
    inner = hull([*below, *mirrored(below)])
    outer = inner if below is above else smallest(above, mirrored(above))
    # Smallest total variation of a curve, because the tail is computed unit by unit.
    least_variation = Fraction(1, 10_000)
    if max(y - x for x, y in inner) < least_variation:
        if curve.delta(0).lower > 0.5:
            raise ValueError(
                f"tradeoff = {curve!r} hides so little that it has no certified polygon; give a "
                "smaller budget, such as ny.gdp(20)"
            )
        raise ValueError(
            f"tradeoff = {curve!r} is within {float(least_variation):g} of perfect privacy "
            "(in total variation), and its noise would be drawn in too many steps; give a larger "
            "budget, such as ny.gdp(0.001)"
        )
    return inner, outer


class PolygonNoise:
    """Draw the canonical noise N of a symmetric piecewise-linear curve.

    Let c be the level with power 1 - c, and g the inverse of the power. The tail S(x) = P(N >= x)
    is

        S(x) = 1/2 - (1 - 2c) x   for |x| <= 1/2
        S(x) = g(S(x - 1))        for x > 1/2
        S(-x) = 1 - S(x)

    Args:
        polygon: the power as a function of the level, concave, above guessing, and its own mirror
            image.
    """

    def __init__(self, polygon: Polygon) -> None:
        inner = [corner for corner in polygon if sum(corner) < 1]
        x0, y0 = inner[-1] if inner else polygon[0]
        x1, y1 = next(corner for corner in polygon if sum(corner) >= 1)
        share = (1 - x0 - y0) / (x1 + y1 - x0 - y0)
        self.c = x0 + share * (x1 - x0)
        self.corners = [*inner, (self.c, 1 - self.c)]
        if len(self.corners) > 1 and self.corners[-2][0] == self.c:
            self.corners.pop(-2)
        self.density = 1 - 2 * self.c
        self._known: dict[Fraction, tuple[Array, Array]] = {}
        self._levels = [float(x) for x, _ in self.corners]
        self._powers = [float(y) for _, y in self.corners]
        self._lines = [
            _integer_line((b[1] - a[1]) / (b[0] - a[0]), a) for a, b in pairwise(self.corners)
        ]
        self._slopes = [float((b[0] - a[0]) / (b[1] - a[1])) for a, b in pairwise(self.corners)]

    # Exact draws

    def draw(self, bits: Bits, parts: int) -> int:
        """Draw floor(parts N), exact, for the noise N [PT-4].

        Args:
            parts: number of grid points per unit.
        """
        value, length = 0, 0
        more = 4
        while True:
            for word in bits.words(more):
                value, length = value << 64 | int(word), length + 64
            # The first bit is the sign. The other bits are of V / 2, a uniform real in (0, 1/2).
            negative = value >> (length - 1)
            tail = value & ((1 << (length - 1)) - 1)
            size = self._magnitude(tail, tail + 1, length, parts)
            if size is not None:
                return -size - 1 if negative else size
            more = max(1, length // 64)

    def _magnitude(self, low: int, high: int, length: int, parts: int) -> int | None:
        """Return floor(parts x) if all x with tails in [low, high] / 2^length agree, else None.

        A step inward by one unit replaces the tail by the power at this level.
        """
        top, bottom = self.c.numerator << length, self.c.denominator
        units = 0
        while high * bottom <= top:
            low = self._power(low, length)
            high = -self._power(high, length, -1)
            units += 1
        if low * bottom <= top:
            return None
        ends = {self._place(tail, length, units, parts) for tail in (low, high)}
        return ends.pop() if len(ends) == 1 else None

    def _power(self, tail: int, length: int, side: int = 1) -> int:
        """Return 2^length times the power at the level tail / 2^length <= c, rounded down.

        For side -1, return minus this power, rounded down.
        """
        i = max(bisect_right(self._levels, tail / (1 << length)) - 1, 0)
        i = min(i, len(self._lines) - 1)
        while i and not self._reaches(i, tail, length):
            i -= 1
        while i + 1 < len(self._lines) and self._reaches(i + 1, tail, length):
            i += 1
        start, slope, bottom = self._lines[i]
        return side * ((start << length) + slope * tail) // bottom

    def _reaches(self, i: int, tail: int, length: int) -> bool:
        level = self.corners[i][0]
        return tail * level.denominator >= level.numerator << length

    def _place(self, tail: int, length: int, units: int, parts: int) -> int:
        """Return floor(parts x), exact, for x = units + (1/2 - tail / 2^length) / density."""
        top, bottom = self.density.as_integer_ratio()
        ahead = units * top << (length + 1)
        return parts * (ahead + bottom * ((1 << length) - 2 * tail)) // (top << (length + 1))

    # Tail probabilities

    def tails(self, start: Fraction) -> tuple[Array, Array]:
        """Bound the tails S(start), S(start + 1), ..., until they are negligible [PT-5].

        The last upper bound also holds for all later tails. Their lower bound is 0.

        Args:
            start: from -1/2 to 1/2.
        """
        known = self._known.get(start)
        if known is None:
            if len(self._known) >= 8:  # number of places with stored tails
                self._known.clear()
            known = self._known[start] = self._ladder(start)
        return known

    def _ladder(self, start: Fraction) -> tuple[Array, Array]:
        exact = HALF - self.density * start
        # slack: tails_of_the_noise_of_a_polygon
        low, high = float(exact) * (1 - 2 * UNIT), float(exact) * (1 + 2 * UNIT)
        lows, highs = [low], [high]
        # Error of a floating-point step of the tail, relative to the previous tail [PT-5].
        step_error = 16 * UNIT  # slack: open
        while high > 1e-30:  # the computation stops at this tail probability
            low = max(self._outward(low) - step_error * low, 0.0)
            high = self._outward(high) + step_error * high
            lows.append(low)
            highs.append(high)
        return np.array(lows), np.array(highs)

    def _outward(self, tail: float) -> float:
        """Return g(tail), the level with power ``tail``, to 16 rounding units of ``tail``."""
        i = bisect_right(self._powers, tail) - 1
        if i < 0:
            return 0.0
        i = min(i, len(self._slopes) - 1)
        return self._levels[i] + (tail - self._powers[i]) * self._slopes[i]

    def tail_between(self, place: Fraction, first: int, last: int) -> tuple[Array, Array]:
        """Bound the tail P(N >= place - x) for the integers x from ``first`` to ``last``."""
        middle = round(place)
        offset = place - middle  # place - x = offset + (middle - x)
        x = np.arange(first, last + 1)
        away = middle - x
        outward, inward = self.tails(offset), self.tails(-offset)
        low, high = np.empty(len(x)), np.empty(len(x))
        right = away >= 0
        for side, (lows, highs), steps in ((right, outward, away), (~right, inward, -away)):
            at = steps[side]
            inside = np.minimum(at, len(highs) - 1)
            low[side] = np.where(at < len(lows), lows[inside], 0.0)
            high[side] = highs[inside]
        flipped = ~right
        low[flipped], high[flipped] = 1 - high[flipped], 1 - low[flipped]
        # slack: tails_of_a_sum_with_the_noise_of_a_polygon
        low[flipped] = np.maximum(low[flipped] - UNIT, 0.0)
        # slack: tails_of_a_sum_with_the_noise_of_a_polygon
        return np.maximum(low, 0.0), np.minimum(high + UNIT * flipped, 1.0)


def _integer_line(slope: Fraction, through: tuple[Fraction, Fraction]) -> tuple[int, int, int]:
    """Return integers (start, slope, denominator): the line is (start + slope x) / denominator."""
    start = through[1] - slope * through[0]
    bottom = start.denominator * slope.denominator
    return start.numerator * slope.denominator, slope.numerator * start.denominator, bottom
