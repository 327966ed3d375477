"""Compute with piecewise-linear curves, as polygons in exact fractions.

The power of the best test is a concave function of its level. A polygon is such a function, given
by its corners (level, power) from level 0 to (1, 1). A smooth curve is between two polygons. Each
operation that preserves the order of curves applies to both polygons: the largest of several powers
(the hull), the smallest, the reversed pair, and two tests in sequence.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import PERFECT, finite_loss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.non_private import NonPrivateLoss

Corner = tuple[Fraction, Fraction]  # level, power
Line = tuple[Fraction, Fraction]  # slope, power at level 0
Polygon = tuple[Corner, ...]
Ratios = tuple[int, int, int, int]  # the numerators and the denominators of a corner
Pair = tuple[Polygon, Polygon]  # one below the curve, one above it; equal if the curve is a polygon

ZERO, ONE = Fraction(0), Fraction(1)
GUESSING: Polygon = ((ZERO, ZERO), (ONE, ONE))
REVEALED: Polygon = ((ZERO, ONE), (ONE, ONE))


@dataclass(frozen=True)
class Limits:
    """Limits on the size of a polygon."""

    least_level: Fraction = Fraction(1e-220)  # smallest level or type II error other than 0
    corners: int = 6000


LIMITS = Limits()

BETWEEN = "between two polygons"


def hull(points: Iterable[Corner]) -> Polygon:
    """Return the smallest concave function above the points and above guessing."""
    corners: list[Corner] = []
    ratios: list[Ratios] = []
    # By level, then by power. Floats come first because they compare faster.
    order = sorted([(ZERO, ZERO), *points, (ONE, ONE)], key=lambda x: (float(x[0]), *x))
    for corner in order:
        (a, b), (c, d) = corner[0].as_integer_ratio(), corner[1].as_integer_ratio()
        if ratios and ratios[-1][:2] == (a, b):  # at one level, the last has the largest power
            corners.pop()
            ratios.pop()
        while len(ratios) > 1 and not _concave(ratios[-2], ratios[-1], (a, b, c, d)):
            corners.pop()
            ratios.pop()
        corners.append(corner)
        ratios.append((a, b, c, d))
    return tuple(corners)


def _concave(first: Ratios, second: Ratios, third: Ratios) -> bool:
    """Return True if the slope decreases at ``second``.

    Corners are a/b, c/d; slopes are compared exactly.
    """
    (a, b, c, d), (e, f, g, h), (i, j, k, m) = first, second, third
    before = (g * d - c * h) * (i * f - e * j) * (m * b)
    return before > (k * h - g * m) * (e * b - a * f) * (d * j)


def envelope(lines: Iterable[Line]) -> Polygon:
    """Return the minimum of 1 and of lines (slope, start). Raise lines that go below guessing."""
    lowest: dict[Fraction, Fraction] = {ZERO: ONE}
    for slope, start in lines:
        raised = max(start, 1 - slope, ZERO)
        lowest[slope] = min(raised, lowest.get(slope, raised))
    upper: list[Line] = []
    for slope, start in sorted(lowest.items(), reverse=True):
        while upper and upper[-1][1] >= start:
            upper.pop()
        while len(upper) > 1:
            (t0, d0), (t1, d1) = upper[-2:]
            if (d1 - d0) * (t1 - slope) < (start - d1) * (t0 - t1):
                break
            upper.pop()
        upper.append((slope, start))
    corners = [(ZERO, upper[0][1])]
    for (t0, d0), (t1, d1) in pairwise(upper):
        x = (d1 - d0) / (t0 - t1)
        if x < 1:
            corners.append((x, d0 + t0 * x))
    return (*corners, (ONE, ONE))


def lines_of(polygon: Polygon) -> list[Line]:
    """Return the lines (slope, power at level 0) whose minimum is the polygon."""
    lines: list[Line] = []
    for (x0, y0), (x1, y1) in pairwise(polygon):
        slope = (y1 - y0) / (x1 - x0)
        lines.append((slope, y0 - slope * x0))
    return lines


def smallest(*polygons: Polygon) -> Polygon:
    """Return the smallest power at each level, which belongs to the largest trade-off curve."""
    return envelope(line for polygon in polygons for line in lines_of(polygon))


def mirrored(polygon: Polygon) -> Polygon:
    """Return the polygon of the reversed pair: type I and type II errors change places."""
    return hull((1 - power, 1 - level) for level, power in polygon)


def mirrored_line(slope: Fraction, start: Fraction) -> Line:
    """Return the mirror image of power <= start + slope level, for slope above 0."""
    return 1 / slope, 1 - (1 - start) / slope


def after(first: Polygon, second: Polygon) -> Polygon:
    """Return the power of two tests in sequence: second(first(level))."""
    xs, ys = [x for x, _ in first], [y for _, y in first]
    levels = xs.copy()
    top = next(i for i, y in enumerate(ys) if y == 1)
    for y, _ in second:
        if ys[0] < y < 1:
            i = bisect_left(ys, y, 0, top + 1)
            x0, y0, x1, y1 = xs[i - 1], ys[i - 1], xs[i], ys[i]
            if y < y1:
                levels.append(x0 + (x1 - x0) * (y - y0) / (y1 - y0))
    levels.sort(key=lambda x: (float(x), x))
    return hull(zip(levels, _values(second, _values(first, levels)), strict=True))


def _values(polygon: Polygon, levels: Sequence[Fraction]) -> list[Fraction]:
    """Return the powers of a polygon at nondecreasing levels."""
    values: list[Fraction] = []
    i = 0
    for x in levels:
        while polygon[i + 1][0] < x:
            i += 1
        (x0, y0), (x1, y1) = polygon[i : i + 2]
        values.append(y0 if x == x0 else y1 if x == x1 else y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return values


# Smaller polygons on either side


def shortened(pair: Pair) -> Pair:
    """Return polygons below and above the given ones, with fewer and shorter corners [TC-6].

    Small polygons do not change.
    """
    below, above = pair
    if not _is_large(below) and not _is_large(above):
        return pair
    return rounded(_fewer(below, -1), -1), rounded(_fewer(above, 1), 1)


def rounded(polygon: Polygon, side: int) -> Polygon:
    """Move corners to floats, right and down (side -1) or left and up (side 1) [TC-4].

    The new ends of a rising piece are on this side of its line, and so are all points between.
    """
    return hull((_snap(x, -side), _snap(y, side)) for x, y in polygon)


def _is_large(polygon: Polygon) -> bool:
    bits = max(x.denominator.bit_length() + y.denominator.bit_length() for x, y in polygon)
    tiny = any(0 < x < LIMITS.least_level or 0 < 1 - y < LIMITS.least_level for x, y in polygon)
    # Bits of a corner's two denominators.
    return len(polygon) > LIMITS.corners or bits > 2500 or tiny


def _fewer(polygon: Polygon, side: int) -> Polygon:
    """Return a polygon on the given side. If corners are many, about half are dropped."""
    if len(polygon) <= LIMITS.corners:
        return polygon
    if side < 0:
        return chords(polygon)
    lines = lines_of(polygon)  # the minimum of fewer lines is above
    return envelope([*lines[:-1:2], lines[-1]])


def chords(polygon: Polygon) -> Polygon:
    """Return the polygon through every other corner. It is below the given one."""
    return hull([*polygon[:-1:2], polygon[-1]])


def _snap(x: Fraction, side: int) -> Fraction:
    """Round x down (side -1) or up (1), to a float if at most 1/2, else to 1 minus a float."""
    n, d = x.as_integer_ratio()  # integers compare faster
    if 2 * n > d:
        return 1 - _snap(1 - x, -side)
    if n * LIMITS.least_level.denominator < d * LIMITS.least_level.numerator:
        return ZERO if side < 0 or n == 0 else LIMITS.least_level
    near = n / d
    a, b = near.as_integer_ratio()
    apart = a * d - n * b
    if apart == 0 or (apart > 0) == (side > 0):
        return Fraction(near)
    return Fraction(math.nextafter(near, side * math.inf))


# Losses


def composition_between(pair: Pair) -> Composition:
    """Return the loss between two polygons: one loss if they are equal, else a bracket."""
    below, above = shortened(pair)
    lower = polygon_loss(below)
    upper = lower if below is above else polygon_loss(above)
    if lower == upper:
        return upper
    least, most = _single_part(lower), _single_part(upper)
    return Composition.of([(LossBracket(least, most, BETWEEN), 1)])


def _single_part(composition: Composition) -> Part:
    return composition.parts[0][0] if composition.parts else PERFECT


def polygon_loss(polygon: Polygon) -> Composition:
    """Return the loss of the pair whose best tests have the power ``polygon``."""
    p = [polygon[0][1], *(b[1] - a[1] for a, b in pairwise(polygon))]
    q = [ZERO, *(b[0] - a[0] for a, b in pairwise(polygon))]
    return finite_pair(p, q)


def finite_pair(p: Sequence[Fraction], q: Sequence[Fraction]) -> Composition:
    """Return the loss of a finite pair with masses p and q.

    Outcomes with equal losses are merged.
    """
    if p == q:
        return Composition()
    loss = finite_loss(p, q)
    return Composition.of([(NonPrivateLoss() if loss is None else loss, 1)])
