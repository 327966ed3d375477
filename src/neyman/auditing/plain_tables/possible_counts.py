"""Bound each count that fits to all tables, by integer programming.

The tables are sums of the counts of cross cells, and their ranges. The range of one sum bounds its
terms, which decides most cells. The others form regions, which sums connect. Each region has its
own programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]

from neyman.auditing.plain_tables.allowed import complementary, ends, margins
from neyman.auditing.plain_tables.counted import Counted, Integers, Table


@dataclass(frozen=True)
class Limits:
    """Limit the regions in which the least and the largest counts are computed."""

    cells: int = 200  # open cells of a region
    count: int = 1_000_000  # sums of a region
    programs: int = 2_000  # of all regions together
    nodes: int = 1_000  # of one program
    rounds: int = 100  # of bounds of each cell by its sums


LIMITS = Limits()
_sparse: Any = scipy.sparse
_optimize: Any = scipy.optimize


class PossibleCounts:
    """Hold bounds on each unknown: the cross cells, and then choices of complementary cells.

    Args:
        counted: the rows and the tables.
        groups_known: True if the attacker knows how many people have each combination of the other
            columns than the attribute.

    Attributes:
        low, high: no value is smaller or larger.
        least, most: values that are possible.
    """

    def __init__(self, counted: Counted, *, groups_known: bool = False) -> None:
        true = counted.counts.ravel()
        self._entries: list[tuple[Any, Any, Any]] = []
        self._low: list[Integers] = []
        self._high: list[Integers] = []
        self._size, self._cells = 0, len(true)
        self._true = [true]
        for table in counted.tables:
            self._add_table(table)
        if groups_known:
            groups = counted.counts.sum(axis=counted.axis)
            places = np.expand_dims(np.arange(groups.size).reshape(groups.shape), counted.axis)
            places = np.broadcast_to(places, counted.counts.shape).ravel()
            self._add(places, groups.ravel(), groups.ravel())
        row, column, factor = map(np.concatenate, zip(*self._entries, strict=True))
        self.least = np.concatenate(self._true)
        self.most = self.least.copy()
        self._rows = np.concatenate(self._low), np.concatenate(self._high)
        shape = len(self._rows[0]), len(self.least)
        self._matrix = _sparse.csr_array((factor, (row, column)), shape)
        self.low = np.zeros_like(self.least)
        self.high = np.full_like(self.least, self._rows[1].max(initial=0))
        self.high[self._cells :] = 1
        settled, programs = self._propagate(), LIMITS.programs
        for rows, cells in self._regions():
            if len(rows) < 2 and settled:
                self.least[cells], self.most[cells] = self.low[cells], self.high[cells]
            elif len(cells) <= LIMITS.cells and self._rows[1][rows].max(initial=0) <= LIMITS.count:
                programs = self._solve(rows, cells, programs)
        for name in ("low", "high", "least", "most"):
            setattr(self, name, getattr(self, name)[: self._cells].reshape(counted.counts.shape))

    def _add(self, places: Integers, low: Integers, high: Integers) -> int:
        """Add the sums of cross cells by place. Return the number of the first."""
        cells, first = np.arange(self._cells), self._size
        self._entries.append((first + places, cells, np.ones(len(cells), np.int64)))
        self._low.append(low)
        self._high.append(high)
        self._size += len(low)
        return first

    def _add_table(self, table: Table) -> None:
        if table.method.swap is not None:
            for margin, number in margins(table, table.published):
                self._add(margin[table.at], number, number)
            return
        width = table.counts.shape[1]
        low, high = ends(table)
        if table.method.total is not None:
            self._add(table.at // width, low[:, -1], high[:, -1])
        low, high = low[:, :width].ravel(), high[:, :width].ravel()
        choices = [*complementary(table)]
        if not choices:
            self._add(table.at, low, high)
            return
        # A choice y is 1 if a count x is not small: (below - 1) y < x < below + (top + 1 - below) y.
        cells, top = np.array(choices, np.int64).T
        choice = sum(map(len, self._true)) + np.arange(len(cells))
        self._true.append((table.counts.ravel()[cells] > high[cells]).astype(np.int64))
        wide, least = high.copy(), low.copy()
        wide[cells], least[cells] = top, -top
        small = high[cells]
        first, second = self._add(table.at, low, wide), self._add(table.at, least, high)
        lines, line = np.unique(cells // width, return_inverse=True)
        self._entries += [
            (first + cells, choice, -small),
            (second + cells, choice, small - top),
            (self._size + line, choice, np.ones_like(choice)),
        ]
        self._low.append(np.zeros_like(lines))
        self._high.append(np.ones_like(lines))
        self._size += len(lines)

    def _propagate(self) -> bool:
        """Bound each unknown by a sum and its other terms. Return True if nothing changes more."""
        entries = self._matrix.tocoo()
        (row, cell), factor = entries.coords, entries.data
        plus, minus = self._matrix.maximum(0), (-self._matrix).maximum(0)
        for _ in range(LIMITS.rounds):
            before = (self.high - self.low).sum()
            over = (self._rows[1] - plus @ self.low + minus @ self.high)[row] // abs(factor)
            under = (plus @ self.high - minus @ self.low - self._rows[0])[row] // abs(factor)
            up, down = np.where(factor > 0, (over, under), (under, over))
            high, low = self.low[cell] + up, self.high[cell] - down
            np.minimum.at(self.high, cell, high)
            np.maximum.at(self.low, cell, low)
            if (self.high - self.low).sum() == before:
                return True
        return False

    def _regions(self) -> list[tuple[Integers, Integers]]:
        """Return the sums of several open unknowns in each region, and its open unknowns."""
        free = np.flatnonzero(self.low < self.high)
        matrix = self._matrix[:, free]
        rows = np.flatnonzero(np.diff(matrix.indptr) > 1)
        kept = matrix[rows]
        graph = _sparse.block_array([[None, kept], [kept.T, None]])
        _, labels = _sparse.csgraph.connected_components(graph, directed=False)
        found: dict[int, tuple[list[int], list[int]]] = {}
        for kind, numbers in enumerate((rows, free)):
            own = labels[len(rows) :] if kind else labels[: len(rows)]
            for label, number in zip(own.tolist(), numbers.tolist(), strict=True):
                found.setdefault(label, ([], []))[kind].append(number)
        return [(np.array(r, np.int64), np.array(c, np.int64)) for r, c in found.values()]

    def _solve(self, rows: Integers, cells: Integers, programs: int) -> int:
        """Compute the ranges of a region's cells. Return how many programs may follow."""
        matrix = self._matrix[rows]
        own = matrix[:, cells].toarray()
        fixed = matrix @ self.low - own @ self.low[cells]
        limits = self._rows[0][rows] - fixed, self._rows[1][rows] - fixed
        for k in range(len(cells)):
            for sign in (1, -1):
                bound, seen = (self.low, self.least) if sign > 0 else (self.high, self.most)
                if cells[k] >= self._cells or bound[cells[k]] == seen[cells[k]]:
                    continue
                if programs == 0:
                    return 0
                programs -= 1
                point = _best(own, limits, (self.low[cells], self.high[cells]), k, sign)
                if point is not None:
                    bound[cells[k]] = point[k]
                    self.least[cells] = np.minimum(self.least[cells], point)
                    self.most[cells] = np.maximum(self.most[cells], point)
        return programs


def _best(
    matrix: Integers,
    sums: tuple[Integers, Integers],
    bounds: tuple[Integers, Integers],
    k: int,
    sign: int,
) -> Integers | None:
    """Return a point with the least sign x_k, or None if it is not proven.

    The point is checked in integers, and the solver's bound leaves no smaller integer.
    """
    aim = np.zeros(len(bounds[0]))
    aim[k] = sign
    done = _optimize.milp(
        aim,
        integrality=np.ones(len(aim)),
        bounds=_optimize.Bounds(*bounds),
        constraints=_optimize.LinearConstraint(matrix, *sums),
        options={"mip_rel_gap": 0, "node_limit": LIMITS.nodes},
    )
    if done.status != 0:
        return None
    point = np.rint(done.x).astype(np.int64)
    proven = done.mip_dual_bound > sign * point[k] - 0.5
    for (low, high), value in ((sums, matrix @ point), (bounds, point)):
        proven &= bool(((low <= value) & (value <= high)).all())
    return point if proven else None
