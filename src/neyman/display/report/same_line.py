"""Whether two curves of a figure are drawn as one line, at every level and not at stored ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr  # pyright: ignore[reportMissingTypeStubs]

from neyman.display.report.receipt_view import Powers

__all__ = ["SAME_LINE", "one_line"]

SAME_LINE = 0.005
"""Of the figure's width and height: less than the width of its lines."""

_STEPS = 2000
_QUANTILES = np.linspace(-10.0, 10.0, 20_001)


def one_line(
    limit: Callable[[Powers], Powers],
    curve: Sequence[tuple[float, float]],
    most: float = SAME_LINE,
) -> bool:
    """Return True if two rising curves are nowhere farther apart than ``most``.

    The distance is the greater of a difference in level and one in power: for each level a,
    f(a - most) - most <= g(a) <= f(a + most) + most. Both curves rise, so between neighbors a < b
    of a grid it follows from f(b - most) - most <= g(a) and g(b) <= f(a + most) + most. So True is
    right at every level. False can also mean that the grid is too coarse. Both are 0 left of level
    0, so a curve that starts above 0 has a part of the figure's axis as its own.

    Args:
        limit: the power g of the one at levels in [0, 1], rising to 1 at level 1.
        curve: points (level, power) of the other, f, by level. As in the figure, f is drawn from
            the first power at level 0, straight between the points, and to (1, 1).
        most: in [0, 1].
    """
    first = curve[0][1] if curve else 0.0
    levels, powers = map(np.array, zip((0.0, first), *curve, (1.0, 1.0), strict=True))
    powers = np.maximum.accumulate(powers)
    even = np.linspace(0.0, 1.0, _STEPS + 1)
    grid = np.unique(np.concatenate([even, ndtr(_QUANTILES), levels, [0.0, 1.0]]))
    low, high = grid[:-1], grid[1:]
    limits = np.asarray(limit(grid))
    above = np.interp(np.minimum(low + most, 1.0), levels, powers) + most
    below = np.where(high < most, 0.0, np.interp(high - most, levels, powers)) - most
    return bool(np.all(limits[1:] <= above) and np.all(below <= limits[:-1]))
