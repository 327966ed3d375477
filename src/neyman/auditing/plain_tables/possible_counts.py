"""Bound each count that fits to all tables, by integer programming.

The tables are sums of the counts of cross cells, and their ranges. The range of one sum bounds its
terms, which decides most cells. The others form regions, which sums connect. Each region has its
own programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]
from scipy.optimize import LinearConstraint, milp

from neyman.auditing.plain_tables.counted import Counted, Integers
from neyman.auditing.plain_tables.published_sums import PublishedSums

REGION_CELLS = 200  # open cells of a region
MOST_COUNT = 1_000_000  # of people in a region's sums
PROGRAMS = 1_000  # of all regions together
NODES = 1_000  # of one program
ROUNDS = 100  # of bounds of each cell by its sums
_sparse: Any = scipy.sparse


@dataclass
class Ranges:
    """Hold bounds on each unknown: the cross cells, and then choices of complementary cells.

    Args:
        low, high: no value is smaller or larger.
        least, most: values that are possible.
    """

    low: Integers
    high: Integers
    least: Integers
    most: Integers


def possible_counts(counted: Counted, *, groups_known: bool = False) -> Ranges:
    """Return the least and the largest count of each cross cell.

    Args:
        counted: the rows and the tables.
        groups_known: True if the attacker knows how many people have each combination of the other
            columns than the attribute.
    """
    sums, size = (
        PublishedSums(counted, counted.tables, groups_known=groups_known),
        counted.counts.size,
    )
    high = np.full_like(sums.true, sums.high.max(initial=0))
    high[size:] = 1
    ranges = Ranges(np.zeros_like(sums.true), high, sums.true.copy(), sums.true.copy())
    settled, programs = _propagate(sums, ranges), PROGRAMS
    for rows, cells, alike in _regions(sums, ranges):
        if alike and settled:
            ranges.least[cells], ranges.most[cells] = ranges.low[cells], ranges.high[cells]
        elif len(cells) <= REGION_CELLS and sums.high[rows].max(initial=0) <= MOST_COUNT:
            programs = _solve(sums, ranges, rows, cells, programs)
    shape = counted.counts.shape
    return Ranges(*(each[:size].reshape(shape) for each in vars(ranges).values()))


def _propagate(sums: PublishedSums, ranges: Ranges) -> bool:
    """Bound each unknown by a sum and its other terms. Return True if nothing changes more."""
    entries = sums.matrix.tocoo()
    (row, cell), factor = entries.coords, entries.data
    plus, minus = sums.matrix.maximum(0), (-sums.matrix).maximum(0)
    for _ in range(ROUNDS):
        width = (ranges.high - ranges.low).sum()
        over = (sums.high - plus @ ranges.low + minus @ ranges.high)[row] // abs(factor)
        under = (plus @ ranges.high - minus @ ranges.low - sums.low)[row] // abs(factor)
        up, down = np.where(factor > 0, (over, under), (under, over))
        high, low = ranges.low[cell] + up, ranges.high[cell] - down
        np.minimum.at(ranges.high, cell, high)
        np.maximum.at(ranges.low, cell, low)
        if (ranges.high - ranges.low).sum() == width:
            return True
    return False


def _regions(sums: PublishedSums, ranges: Ranges) -> Iterator[tuple[Integers, Integers, bool]]:
    """Yield the sums of several open unknowns in each region, and its open unknowns.

    The last is True if all sums have all unknowns of the region. Then the bounds are exact.
    """
    free = np.flatnonzero(ranges.low < ranges.high)
    matrix = sums.matrix[:, free]
    width = np.diff(matrix.indptr)
    rows = np.flatnonzero(width > 1)
    graph = _sparse.block_array([[None, matrix[rows]], [matrix[rows].T, None]])
    _, labels = _sparse.csgraph.connected_components(graph, directed=False)
    order = np.argsort(labels, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(free) else ():
        own, cells = rows[part[part < len(rows)]], free[part[part >= len(rows)] - len(rows)]
        yield own, cells, bool((width[own] == len(cells)).all())


def _solve(
    sums: PublishedSums, ranges: Ranges, rows: Integers, cells: Integers, programs: int
) -> int:
    """Compute the ranges of a region's unknowns. Return how many programs may follow.

    A solution counts if it fits in integers, and the solver's bound leaves no better integer.
    """
    own = sums.matrix[rows][:, cells].toarray()
    fixed = sums.matrix[rows] @ ranges.low - own @ ranges.low[cells]
    matrix = np.vstack([own, np.eye(len(cells), dtype=np.int64)])
    for k, cell in enumerate(cells):
        for sign, bound, attained in (
            (1, ranges.low, ranges.least),
            (-1, ranges.high, ranges.most),
        ):
            if bound[cell] == attained[cell] or programs == 0:
                continue
            programs -= 1
            low = np.append(sums.low[rows] - fixed, ranges.low[cells])
            high = np.append(sums.high[rows] - fixed, ranges.high[cells])
            done = milp(
                sign * np.eye(len(cells))[k],
                integrality=np.ones(len(cells)),
                constraints=LinearConstraint(matrix, low, high),
                options={"mip_rel_gap": 0, "node_limit": NODES},
            )
            point = np.rint(done.x if done.status == 0 else -np.ones(len(cells))).astype(np.int64)
            fits = (low <= matrix @ point) & (matrix @ point <= high)
            if fits.all() and done.mip_dual_bound > sign * point[k] - 0.5:
                bound[cell] = point[k]
                ranges.least[cells] = np.minimum(ranges.least[cells], point)
                ranges.most[cells] = np.maximum(ranges.most[cells], point)
    return programs
