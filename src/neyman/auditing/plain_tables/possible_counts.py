"""Bound each count that fits to all tables, by integer programming.

Bounds of one sum give bounds of its terms, which decide most cells. What they leave open splits
into regions: cells that are connected by the sums of a table. Each region has its own programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]

from neyman.auditing.plain_tables.allowed import Block, blocks
from neyman.auditing.plain_tables.counted import Counted, Integers


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


@dataclass
class Ranges:
    """Hold bounds on each count.

    Args:
        low, high: no count is smaller or larger.
        least, most: counts that are possible.
    """

    low: Integers
    high: Integers
    least: Integers
    most: Integers

    @property
    def exact(self) -> Any:
        """Return True for each cell whose least and largest counts are known."""
        return (self.low == self.least) & (self.high == self.most)


@dataclass(frozen=True)
class _Sums:
    """Hold sums of cross cells with their ranges, and choices of several ranges by the first sum."""

    matrix: Any
    low: Integers
    high: Integers
    choices: dict[int, tuple[list[int], Block]]


def possible_counts(counted: Counted, *, groups_known: bool = False) -> Ranges:
    """Return the least and the largest count of each cross cell.

    Args:
        groups_known: True if the attacker knows how many people have each combination of the other
            columns than the attribute.
    """
    sums = _sums(counted, groups_known)
    true = counted.counts.ravel()
    top = np.full(true.shape, sums.high.max(initial=0))
    ranges = Ranges(np.zeros_like(true), top, true.copy(), true.copy())
    settled = _propagate(sums, ranges)
    programs = LIMITS.programs
    for rows, cells in _regions(sums, ranges):
        if len(rows) < 2 and settled:
            ranges.least[cells], ranges.most[cells] = ranges.low[cells], ranges.high[cells]
        elif len(cells) <= LIMITS.cells and sums.high[rows].max(initial=0) <= LIMITS.count:
            programs = _solve(sums, rows, cells, ranges, programs)
    return ranges


def _sums(counted: Counted, groups_known: bool) -> _Sums:
    """Return what the tables say about cross cells."""
    size = counted.counts.size
    matrices: list[Any] = []
    low: list[int] = []
    high: list[int] = []
    choices: dict[int, tuple[list[int], Block]] = {}
    for table in counted.tables:
        entries: list[tuple[int, int]] = []
        first = len(low)
        for block in blocks(table):
            at = [*range(len(low), len(low) + len(block.sums))]
            entries += (
                (k - first, c) for k, cells in zip(at, block.sums, strict=True) for c in cells
            )
            low += (
                min(ends)
                for ends in zip(*([r[0] for r in box] for box in block.boxes), strict=True)
            )
            high += (
                max(ends)
                for ends in zip(*([r[1] for r in box] for box in block.boxes), strict=True)
            )
            if len(block.boxes) > 1:
                choices[at[0]] = at, block
        of_cells = _indicator(entries, (len(low) - first, len(table.published)))
        within = _indicator([*enumerate(table.at.tolist())], (size, len(table.published)))
        matrices.append(of_cells @ within.T)
    if groups_known:
        groups = counted.counts.sum(axis=counted.axis)
        place = np.expand_dims(np.arange(groups.size).reshape(groups.shape), counted.axis)
        place = np.broadcast_to(place, counted.counts.shape).ravel()
        matrices.append(_indicator([*enumerate(place.tolist())], (size, groups.size)).T)
        low += groups.ravel().tolist()
        high += groups.ravel().tolist()
    return _Sums(
        _sparse.csr_array(_sparse.vstack(matrices)), np.array(low), np.array(high), choices
    )


def _indicator(entries: list[tuple[int, int]], shape: tuple[int, int]) -> Any:
    rows, columns = np.array(entries, np.int64).reshape(-1, 2).T
    return _sparse.csr_array((np.ones(len(rows), np.int64), (rows, columns)), shape)


def _propagate(sums: _Sums, ranges: Ranges) -> bool:
    """Bound each cell by a sum and its other terms. Return True if nothing changes any more."""
    entries = sums.matrix.tocoo()
    row, cell = entries.coords
    for _ in range(LIMITS.rounds):
        before = int((ranges.high - ranges.low).sum())
        least, most = sums.matrix @ ranges.low, sums.matrix @ ranges.high
        high = sums.high[row] - least[row] + ranges.low[cell]
        low = sums.low[row] - most[row] + ranges.high[cell]
        np.minimum.at(ranges.high, cell, high)
        np.maximum.at(ranges.low, cell, low)
        if int((ranges.high - ranges.low).sum()) == before:
            return True
    return False


def _regions(sums: _Sums, ranges: Ranges) -> list[tuple[Integers, Integers]]:
    """Return the sums and the open cells of each region. A sum of one open cell is its bound."""
    free = np.flatnonzero(ranges.low < ranges.high)
    matrix = sums.matrix[:, free]
    several = np.diff(matrix.indptr) > 1
    links = [(first, row) for first, (rows, _) in sums.choices.items() for row in rows]
    several[[row for _, row in links]] = True
    rows = np.flatnonzero(several)
    number = len(sums.low)
    tie = _indicator(links, (number, number))
    kept = _indicator([(row, row) for row in rows.tolist()], (number, number)) @ matrix
    graph = _sparse.block_array([[tie, kept], [kept.T, None]])
    _, labels = _sparse.csgraph.connected_components(graph, directed=False)
    of_rows, of_cells = labels[rows], labels[number:]
    found: dict[int, tuple[list[int], list[int]]] = {}
    for label, cell in zip(of_cells.tolist(), free.tolist(), strict=True):
        found.setdefault(label, ([], []))[1].append(cell)
    for label, row in zip(of_rows.tolist(), rows.tolist(), strict=True):
        if label in found:
            found[label][0].append(row)
    return [(np.array(r, np.int64), np.array(c, np.int64)) for r, c in found.values()]


def _solve(sums: _Sums, rows: Integers, cells: Integers, ranges: Ranges, programs: int) -> int:
    """Compute the ranges of a region's cells. Return how many programs may follow."""
    matrix = sums.matrix[rows]
    fixed = matrix @ ranges.low - matrix[:, cells] @ ranges.low[cells]
    own = matrix[:, cells].toarray()
    choices = [sums.choices[row] for row in rows.tolist() if row in sums.choices]
    place = {row: k for k, row in enumerate(rows.tolist())}
    extra = sum(len(block.boxes) for _, block in choices)
    wide = np.hstack([own, np.zeros((len(rows), extra), np.int64)])
    parts = [(wide, sums.low[rows] - fixed, sums.high[rows] - fixed)]
    column = len(cells)
    for at, block in choices:
        chosen = [place[row] for row in at]
        lower, upper = wide[chosen], wide[chosen]
        for k, box in enumerate(block.boxes):
            lower[:, column + k], upper[:, column + k] = -np.array(box).T
        one = np.zeros((1, wide.shape[1]), np.int64)
        one[:, column : column + len(block.boxes)] = 1
        column += len(block.boxes)
        big = np.full(len(at), 2 * LIMITS.count)
        parts += [(lower, -fixed[chosen], big), (upper, -big, -fixed[chosen]), (one, [1], [1])]
    program = _Program(
        np.vstack([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
        np.concatenate([ranges.low[cells], np.zeros(extra, np.int64)]),
        np.concatenate([ranges.high[cells], np.ones(extra, np.int64)]),
    )
    for k, cell in enumerate(cells.tolist()):
        for sign, bound, seen in ((1, ranges.low, ranges.least), (-1, ranges.high, ranges.most)):
            if bound[cell] == seen[cell]:
                continue
            if programs == 0:
                return 0
            programs -= 1
            point = program.best(k, sign)
            if point is not None:
                found = point[: len(cells)]
                bound[cell] = found[k]
                ranges.least[cells] = np.minimum(ranges.least[cells], found)
                ranges.most[cells] = np.maximum(ranges.most[cells], found)
    return programs


@dataclass(frozen=True)
class _Program:
    """Hold the integer program of a region."""

    matrix: Integers
    low: Integers
    high: Integers
    least: Integers
    most: Integers

    def best(self, k: int, sign: int) -> Integers | None:
        """Return a point with the least value of sign x_k, or None if it is not proven.

        The point is checked in integers, and the solver's bound leaves no smaller integer.
        """
        aim = np.zeros(len(self.least))
        aim[k] = sign
        done = _optimize.milp(
            aim,
            integrality=np.ones(len(aim)),
            bounds=_optimize.Bounds(self.least, self.most),
            constraints=_optimize.LinearConstraint(self.matrix, self.low, self.high),
            options={"mip_rel_gap": 0, "node_limit": LIMITS.nodes},
        )
        if done.status != 0:
            return None
        point = np.rint(done.x).astype(np.int64)
        sums = self.matrix @ point
        fits = np.all((self.low <= sums) & (sums <= self.high))
        fits &= np.all((self.least <= point) & (point <= self.most))
        return point if fits and done.mip_dual_bound > sign * point[k] - 0.5 else None
