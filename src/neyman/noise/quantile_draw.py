"""A quantile drawn by inverse sensitivity from values on a grid, exact.

A point t of the grid is drawn with probability proportional to exp(-rate d(t)), where d(t) is the
distance of the rank q n from the ranks that t has:

    d(t) = max(0, #{x < t} - q n, q n - #{x <= t}).

A value that many rows share has many ranks, so it is drawn as often as its rows are near the rank:
ties need no other rule. One added row moves d by at most max(q, 1 - q) at every t [IS-1].

Source: Asi and Duchi 2020; McSherry and Talwar 2007.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from neyman.noise.bits import Bits
from neyman.noise.rejection import uniform
from neyman.noise.weighted_choice import weighted_choice

__all__ = ["draw_quantile", "runs"]


def runs(
    values: Sequence[int], counts: Sequence[int], ends: tuple[int, int], level: Fraction
) -> list[tuple[int, int, int]]:
    """The grid as runs of points with one score each.

    Args:
        values: distinct values of the data within ``ends``, rising.
        counts: how many rows have each.
        ends: the first and the last point of the grid.
        level: q.

    Returns:
        The first point of each run, how many points it has, and its score: d(t) times the
        denominator of ``level``, a whole number.
    """
    low, high = ends
    target = level.numerator * sum(counts)
    below, first = 0, low
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
) -> int:
    """Draw a point t of the grid with probability proportional to exp(-rate d(t)).

    Args:
        values, counts, ends, level: as `runs` has them.
        rate: for one rank, a rational above 0.
        bits: the source of randomness; `SecureBits()` in a release.

    Returns:
        The point, from the first to the last of the grid.
    """
    grid = runs(values, counts, ends, level)
    chosen = weighted_choice(
        [score for *_, score in grid],
        [points for _, points, _ in grid],
        rate / level.denominator,
        bits,
    )
    first, points, _ = grid[chosen]
    return first + int(uniform(points, 1, bits)[0])
