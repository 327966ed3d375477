"""Compose tests and thin polygons whose corners are floats, rounded to the safe side.

A coordinate is a float up to 1/2, or 1 minus such a float, which is accurate near 0 and near 1.
Sums and quotients err by a few rounding units of their terms. Each result moves by more than this
error: to the right and down (side -1), or to the left and up (side 1) [TC-13].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.curves.tradeoff.piecewise_linear import LIMITS as PIECEWISE_LINEAR_LIMITS
from neyman.curves.tradeoff.piecewise_linear import Corner, Polygon, chords, hull
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

SMALLEST = float(PIECEWISE_LINEAR_LIMITS.least_level)
# slack: a_test_after_another_stays_on_its_side
RELATIVE_MOVE = 12 * UNIT  # more than the relative error of a result [TC-13]
UNDERFLOW_LOSS = 1e-300  # bound on an underflow
HALF_BITS = int(np.float64(0.5).view(np.int64))


@dataclass(frozen=True, eq=False)
class _Coordinates:
    """Hold numbers in [0, 1]: ``value``, or 1 - value if ``high``. Each value is at most 1/2."""

    value: Array
    high: NDArray[np.bool_]

    @staticmethod
    def of(numbers: Sequence[Fraction]) -> _Coordinates:
        """Return the coordinates of fractions that `rounded` made."""
        high = np.array([x > Fraction(1, 2) for x in numbers], bool)
        small = [1 - x if up else x for x, up in zip(numbers, high.tolist(), strict=True)]
        return _Coordinates(np.array([float(x) for x in small]), high)

    def at(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> _Coordinates:
        return _Coordinates(self.value[index], self.high[index])

    @property
    def key(self) -> NDArray[np.int64]:
        """Return integers in the order of the numbers, from the bits of the nonnegative floats."""
        bits = self.value.view(np.int64)
        return np.where(self.high, 2 * HALF_BITS - bits, bits)

    def fractions(self) -> list[Fraction]:
        """Return the numbers as exact fractions."""
        pairs = zip(self.value.tolist(), self.high.tolist(), strict=True)
        return [1 - Fraction(v) if high else Fraction(v) for v, high in pairs]


def _gap(a: _Coordinates, b: _Coordinates) -> Array:
    """Return b - a for a <= b, within two relative units."""
    near = np.where(a.high, a.value - b.value, b.value - a.value)
    return np.where(b.high & ~a.high, (0.5 - a.value) + (0.5 - b.value), near)


def _join_coordinates(parts: Sequence[_Coordinates]) -> _Coordinates:
    return _Coordinates(
        np.concatenate([x.value for x in parts]), np.concatenate([x.high for x in parts])
    )


def _choose_coordinates(first: NDArray[np.bool_], a: _Coordinates, b: _Coordinates) -> _Coordinates:
    return _Coordinates(np.where(first, a.value, b.value), np.where(first, a.high, b.high))


def _move_coordinates(low: Array, rest: Array, high: NDArray[np.bool_], side: int) -> _Coordinates:
    """Return ``low``, or 1 - ``rest`` if ``high``, moved down (side -1) or up (side 1) [TC-4]."""
    rising = np.where(high, -side, side) > 0
    value = np.where(high, rest, low)
    value = np.where(
        rising,
        value * (1 + RELATIVE_MOVE) + UNDERFLOW_LOSS,
        np.maximum(value * (1 - RELATIVE_MOVE) - UNDERFLOW_LOSS, 0.0),
    )
    value = np.where(value < SMALLEST, np.where(rising, SMALLEST, 0.0), value)
    beyond = value > 0.5  # then 1 - value is exact
    value, high = np.where(beyond, 1 - np.minimum(value, 1.0), value), high ^ beyond
    return _Coordinates(value, high)


def _chord_value(
    x: _Coordinates,
    ends: tuple[_Coordinates, _Coordinates],
    values: tuple[_Coordinates, _Coordinates],
    side: int,
) -> _Coordinates:
    """Return the value at x of the chord between two corners, rounded to a side.

    At a corner, it is exact. ends, values: the levels and the powers of both corners.
    """
    before, after, width = _gap(ends[0], x), _gap(x, ends[1]), _gap(*ends)
    rise = _gap(*values)
    first, last = values
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(first.high, 0.0, first.value) + rise * (before / width)
        rest = np.where(last.high, last.value, 0.0) + rise * (after / width)
    high = first.high | (last.high & (low > 0.5))
    result = _move_coordinates(low, rest, high, side)
    for at, end in ((before == 0, first), (after == 0, last)):
        result = _choose_coordinates(at, end, result)
    return result


def after_rounded(first: Polygon, second: Polygon, side: int) -> Polygon:
    """Return the curve of two tests in sequence, rounded to a side [TC-7, TC-13].

    It is second(first(level)).

    Args:
        first, second: polygons of floats, see `rounded`.
        side: -1 for a polygon below the composed curve, 1 for a polygon above it.
    """
    x, y = (_Coordinates.of(v) for v in zip(*first, strict=True))
    s, t = (_Coordinates.of(v) for v in zip(*second, strict=True))
    # The first test's corners, with the second test's power there.
    j = np.clip(np.searchsorted(s.key, y.key), 1, len(s.value) - 1)
    powers = _chord_value(y, (s.at(j - 1), s.at(j)), (t.at(j - 1), t.at(j)), side)
    # The second test's corners, at the level at which the first test's power equals their level.
    rising = int(np.argmax(y.key == 2 * HALF_BITS)) + 1  # up to the first power of 1
    i = np.searchsorted(y.key[:rising], s.key)
    met = (i > 0) & (i < rising)
    i = i[met]
    i, met = i[s.key[met] < y.key[i]], np.flatnonzero(met)[s.key[met] < y.key[i]]
    levels = _chord_value(s.at(met), (y.at(i - 1), y.at(i)), (x.at(i - 1), x.at(i)), -side)
    corners = zip(
        _join_coordinates([x, levels]).fractions(),
        _join_coordinates([powers, t.at(met)]).fractions(),
        strict=True,
    )
    return hull(corners)


def thinned(polygon: Polygon, side: int) -> Polygon:
    """Remove about half of the corners of a polygon of floats, on its safe side [TC-13].

    Below the curve (side -1), use chords. Above it, drop every other line and extend the others.
    """
    if side < 0:
        return chords(polygon)
    x, y = (_Coordinates.of(v) for v in zip(*polygon, strict=True))
    k = np.arange(0, len(polygon) - 3, 2)  # the line from corner k + 1 is dropped
    ends = [(x.at(k + i), y.at(k + i)) for i in range(4)]
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = ends
    before, middle, last = _gap(ax, bx), _gap(bx, cx), _gap(cx, dx)
    up, over, on = _gap(ay, by), _gap(by, cy), _gap(cy, dy)
    # About the level at which both lines meet; any level in between is valid.
    with np.errstate(all="ignore"):
        slopes = up / before, over / middle, on / last
        share = np.clip((slopes[1] - slopes[2]) / (slopes[0] - slopes[2]), 0.0, 1.0)
    share = np.where(np.isfinite(share), share, 0.5)
    low = np.where(bx.high, 0.0, bx.value) + middle * share
    rest = np.where(cx.high, cx.value, 0.0) + middle * (1 - share)
    level = _move_coordinates(low, rest, bx.high | (cx.high & (low > 0.5)), 1)
    key = np.clip(level.key, bx.key, cx.key)
    level = _choose_coordinates(key == bx.key, bx, _choose_coordinates(key == cx.key, cx, level))
    ahead = by, _gap(bx, level), up / before  # the line before, extended
    back = cy, _gap(level, cx), on / last  # the line after, extended to the left
    powers = [_extend_line(*ahead, 1), _extend_line(*back, -1)]
    power = _choose_coordinates(powers[0].key > powers[1].key, *powers)
    # If a line has passed 1, the original corners stay.
    passed = powers[0].key == 2 * HALF_BITS
    corners: list[Corner] = [polygon[0]]
    for i, at, value in zip(k.tolist(), level.fractions(), power.fractions(), strict=True):
        corners += polygon[i + 1 : i + 3] if passed[i // 2] else [(at, value)]
    return hull([*corners, *polygon[2 * len(k) + 1 :]])


def _extend_line(start: _Coordinates, distance: Array, slope: Array, way: int) -> _Coordinates:
    """Return an upper bound on a line's power at a ``distance`` from a corner.

    ``start`` is the power at the corner. ``way`` is 1 for levels to the right, -1 to the left.
    """
    move = distance * slope
    low = np.where(start.high, (0.5 - start.value) + 0.5, start.value)
    rest = np.where(start.high, start.value, (0.5 - start.value) + 0.5)
    high = low + way * move > 0.5
    error = RELATIVE_MOVE * (np.where(high, rest, low) + move)
    low, rest = low + way * move + error, rest - way * move - error
    small = np.maximum(np.where(high, rest, low), 0.0)
    return _move_coordinates(small, small, high, 1)
