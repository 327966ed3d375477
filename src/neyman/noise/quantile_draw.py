"""Draw a quantile exactly by inverse sensitivity, from values on a grid.

A point t of the grid is drawn with probability proportional to exp(-rate d(t)), where d(t) is the
distance of the rank q n from the ranks of t, among n rows x, for the quantile of level q:

    d(t) = max(0, #{x < t} - q n, q n - #{x <= t}).

A value that many rows share has many ranks. So its distance uses its nearest rank, and ties need no
other rule. One added row moves d by at most max(q, 1 - q) at every t [IS-1].

Source: Asi and Duchi 2020; McSherry and Talwar 2007.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.noise.rejection import uniform
from neyman.noise.weighted_draw import Ring, ringed_choice, weighted_choice

Lanes = NDArray[np.int64]


def runs(
    values: Sequence[int],
    counts: Sequence[int],
    ends: tuple[int, int],
    level: Fraction,
    *,
    below: int = 0,
    rows: int | None = None,
    shift: int = 0,
) -> list[tuple[int, int, int]]:
    """Cut the grid, or a part of it, into runs of points with equal scores.

    Args:
        values: distinct values of the data within ``ends``, rising.
        counts: number of rows with each value.
        ends: the first and the last point of the grid, or of its part.
        level: q, the level of the quantile.
        below: number of rows with values below the part.
        rows: number of all rows, by default the sum of ``counts``.
        shift: ranks to add to the target rank q n.

    Returns:
        For each run, its first point, its number of points, and its integer score: the distance
        d(t) of its points (see the module), times the denominator of ``level``.
    """
    first, high = ends
    target = level.numerator * (sum(counts) if rows is None else rows) + shift * level.denominator
    result: list[tuple[int, int, int]] = []
    for value, count in zip(values, counts, strict=True):
        rank = below * level.denominator
        if value > first:
            result.append((first, value - first, abs(rank - target)))
        below += count
        after = below * level.denominator
        result.append((value, 1, max(0, rank - target, target - after)))
        first = value + 1
    if first <= high:
        result.append((first, high - first + 1, abs(below * level.denominator - target)))
    return result


def draw_quantile(
    values: Sequence[int],
    counts: Sequence[int],
    ends: tuple[int, int],
    level: Fraction,
    rate: Fraction,
    bits: Bits,
    *,
    shift: int = 0,
) -> int:
    """Draw a point t of the grid with probability proportional to exp(-rate d(t)).

    With a shift, the target rank can be below or above all ranks. Then a further point beyond the
    low or the high end, for which this end is returned, has distance 0 [IS-4].

    Args:
        values, counts, ends, level: as in `runs`.
        rate: a rational above 0, per rank.
        shift: ranks to add to the target rank q n.
    """
    grid = runs(values, counts, ends, level, shift=shift)
    target = level.numerator * sum(counts) + shift * level.denominator
    if shift < 0:
        grid.append((ends[0], 1, max(0, target)))
    elif shift > 0:
        grid.append((ends[1], 1, max(0, level.denominator * sum(counts) - target)))
    chosen = weighted_choice(
        [score for *_, score in grid],
        [points for _, points, _ in grid],
        rate / level.denominator,
        bits,
    )
    first, points, _ = grid[chosen]
    return first + int(uniform(points, 1, bits)[0])


def draw_sorted_quantile(
    values: Lanes, ends: tuple[int, int], level: Fraction, rate: Fraction, bits: Bits
) -> int:
    """Draw a point as `draw_quantile` does, fast for many values: search near the quantile first.

    Args:
        values: all rows within ``ends``, rising, with ties.
    """
    cells: list[tuple[int, int]] = []
    # The weight outside the first ring is below 2^-48. A bit counts as 7 / 10, more than log 2.
    reach = ((ends[1] - ends[0] + 1).bit_length() + 48) * 7 // 10
    first = -(-reach * level.denominator * rate.denominator // rate.numerator)
    rings = _rings(values, ends, level, first, cells)
    chosen = ringed_choice(rings, rate / level.denominator, bits)
    start, points = cells[chosen]
    return start + int(uniform(points, 1, bits)[0])


def _rings(
    values: Lanes, ends: tuple[int, int], level: Fraction, cut: int, cells: list[tuple[int, int]]
) -> Iterator[Ring]:
    """Yield the runs of the grid with scores up to ``cut``, then the runs up to larger cuts.

    Append the first point and the length of each run to ``cells``.

    The rows with scores up to ``cut`` are in a slice of ``values``. Runs outside this slice and the
    gaps beside it have a larger score: too few rows are below or at them, or too many are below.
    """
    low, high = ends
    n, scale = len(values), level.denominator
    target = level.numerator * n
    covered: tuple[int, int, int, int] | None = None  # the rows and points in the rings so far
    while covered is None or covered[:2] != (0, n):
        # Rows with a rank within the cut. Ranks count the rows below, without or with the row.
        a = min(max(-(-(target - cut) // scale) - 1, 0), n)
        b = min(max((target + cut) // scale + 1, 0), n)
        if covered:
            a, b = min(a, covered[0]), max(b, covered[1])
        if a < b:  # complete groups of equal values
            a = bisect_left(values, values[a])
            b = bisect_right(values, values[b - 1])
        start = int(values[a - 1]) + 1 if a else low
        stop = int(values[b]) if b < n else high + 1
        parts = [(a, b, start, stop)]
        if covered:
            left, right, first, end = covered
            parts = [(a, left, start, first), (right, b, end, stop)]
        ring: list[tuple[int, int, int]] = []
        for lower, upper, first, end in parts:
            rows: list[int] = values[lower:upper].tolist()
            groups = Counter(rows)  # in rising order, like the rows
            distinct, counts = list(groups), list(groups.values())
            ring += runs(distinct, counts, (first, end - 1), level, below=lower, rows=n)
        covered = a, b, start, stop
        cells += [(first, points) for first, points, _ in ring]
        beyond = (high - low + 1) - (stop - start)
        yield Ring([score for *_, score in ring], [p for _, p, _ in ring], beyond, cut + 1)
        cut *= 4
