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
from scipy.optimize import Bounds, LinearConstraint, milp

from neyman.auditing.plain_tables.allowed import complementary, ends, margins
from neyman.auditing.plain_tables.counted import Counted, Integers, Table

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


class _Sums:
    """Collect what is known about sums of unknowns."""

    def __init__(self, counted: Counted, groups_known: bool) -> None:
        self.true = counted.counts.ravel()
        self.low = self.high = np.zeros(0, np.int64)
        self._parts: list[tuple[Any, Any, Any]] = []
        everywhere = np.arange(len(self.true))
        for table in counted.tables:
            if table.method.swap is not None:
                for margin, number in margins(table, table.published):
                    self._add(margin[table.at], everywhere, number, number)
            else:
                self._add_table(table, everywhere)
        if groups_known:
            groups: Integers = counted.counts.sum(axis=counted.axis, keepdims=True)
            number = np.reshape(np.arange(groups.size), groups.shape)
            place = np.broadcast_to(number, counted.counts.shape).ravel()
            self._add(place, everywhere, groups.ravel(), groups.ravel())
        row, unknown, factor = map(np.concatenate, zip(*self._parts, strict=True))
        shape = len(self.low), len(self.true)
        self.matrix = _sparse.csr_array((factor, (row, unknown)), shape)

    def _add(self, place: Integers, cells: Integers, low: Integers, high: Integers) -> Integers:
        """Add the sums of cells by place, with their ranges. Return their numbers."""
        first = len(self.low)
        self._parts.append((first + place, cells, np.ones_like(cells)))
        self.low, self.high = np.append(self.low, low), np.append(self.high, high)
        return first + np.arange(len(low))

    def _add_table(self, table: Table, everywhere: Integers) -> None:
        width = table.counts.shape[1]
        low, high = ends(table)
        if table.method.total is not None:
            self._add(table.at // width, everywhere, low[:, -1], high[:, -1])
        low, high = low[:, :width].ravel(), high[:, :width].ravel()
        apart: list[tuple[int, ...]] = []
        for cell, ranges in complementary(table):
            some = [(least, most) for least, most in ranges if least <= most]
            low[cell], high[cell] = min(some)[0], max(most for _, most in some)
            if len(some) > 1 and some[1][0] > some[0][1] + 1:
                apart.append((cell, *some[0], *some[1]))
        self._add(table.at, everywhere, low, high)
        if apart:
            # The choice y is 0 for the first range, and 1 for the second.
            cells, low, most, least, high = np.array(apart).T
            choice = len(self.true) + np.arange(len(cells))
            self.true = np.append(self.true, table.counts.ravel()[cells] > most)
            own = np.flatnonzero(np.isin(table.at, cells))
            place = np.searchsorted(cells, table.at[own])
            for lower, upper, step in ((low, high, least - low), (-high, most, high - most)):
                self._parts.append((self._add(place, own, lower, upper), choice, -step))


def possible_counts(counted: Counted, *, groups_known: bool = False) -> Ranges:
    """Return the least and the largest count of each cross cell.

    Args:
        counted: the rows and the tables.
        groups_known: True if the attacker knows how many people have each combination of the other
            columns than the attribute.
    """
    sums, size = _Sums(counted, groups_known), counted.counts.size
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


def _propagate(sums: _Sums, ranges: Ranges) -> bool:
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


def _regions(sums: _Sums, ranges: Ranges) -> Iterator[tuple[Integers, Integers, bool]]:
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


def _solve(sums: _Sums, ranges: Ranges, rows: Integers, cells: Integers, programs: int) -> int:
    """Compute the ranges of a region's unknowns. Return how many programs may follow.

    A solution counts if it fits in integers, and the solver's bound leaves no better integer.
    """
    own = sums.matrix[rows][:, cells].toarray()
    fixed = sums.matrix[rows] @ ranges.low - own @ ranges.low[cells]
    low, high = sums.low[rows] - fixed, sums.high[rows] - fixed
    for k, cell in enumerate(cells):
        for sign, bound, attained in (
            (1, ranges.low, ranges.least),
            (-1, ranges.high, ranges.most),
        ):
            if bound[cell] == attained[cell] or programs == 0:
                continue
            programs -= 1
            done: Any = milp(
                sign * np.eye(len(cells))[k],
                integrality=np.ones(len(cells)),
                bounds=Bounds(ranges.low[cells], ranges.high[cells]),
                constraints=LinearConstraint(own, low, high),
                options={"mip_rel_gap": 0, "node_limit": NODES},
            )
            point = np.rint(done.x if done.status == 0 else ranges.low[cells] - 1).astype(np.int64)
            fits = (low <= own @ point) & (own @ point <= high)
            within = (ranges.low[cells] <= point) & (point <= ranges.high[cells])
            if fits.all() and within.all() and done.mip_dual_bound > sign * point[k] - 0.5:
                bound[cell] = point[k]
                ranges.least[cells] = np.minimum(ranges.least[cells], point)
                ranges.most[cells] = np.maximum(ranges.most[cells], point)
    return programs
