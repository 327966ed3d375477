"""State what published tables say about sums of counts, exactly.

Rows could have given a table if and only if the sums of their counts are in these ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]

from neyman.auditing.plain_tables.counted import EMPTY, Counted, Integers, Table
from neyman.auditing.plain_tables.method import TableMethod

_sparse: Any = scipy.sparse


def wrong_numbers(table: Table) -> int:
    """Return how many published numbers the method cannot make from the rows."""
    method = table.method
    if method.swap is not None:
        pairs = zip(_margins(table, table.counts), _margins(table, table.published), strict=True)
        return sum(int((own != given).sum()) for (_, own), (_, given) in pairs)
    numbers = _publish(method, table.counts)
    if method.random:
        base = method.round or 1
        return int(((abs(numbers - table.published) >= base) | (table.published % base > 0)).sum())
    return int((numbers != table.published).sum())


def _publish(method: TableMethod, counts: Integers) -> Integers:
    """Return the lines that a method makes from counts, before random rounding."""
    if method.total is not None:
        counts = np.column_stack([counts, counts.sum(axis=1)])
    if method.round is not None and not method.random:
        return (2 * counts + method.round) // (2 * method.round) * method.round
    if method.suppress is None:
        return counts
    shown = np.where((counts > 0) & (counts < method.suppress), EMPTY, counts)
    if method.total is not None:
        cells = shown[:, :-1]
        alone = ((cells == EMPTY).sum(axis=1) == 1) & (shown[:, -1] != EMPTY)
        rest = np.where(cells > 0, cells, np.iinfo(np.int64).max).argmin(axis=1)
        shown[alone, rest[alone]] = EMPTY
    return shown


def _margins(table: Table, counts: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield what swaps leave unchanged: the margin of each cell, and the counts of these margins.

    They are the counts by all but the swapped column, and by it and the columns that match. Every
    table with these counts is possible: each set of rows may be drawn, and each permutation.
    """
    width, cell = table.shape[-1], np.arange(counts.size)
    block = width * int(np.prod(table.shape[len(table.method.match) : -1], dtype=int))
    for margin in (cell // width, cell // block * width + cell % width):
        yield margin, np.bincount(margin, counts.ravel()).astype(np.int64)


class PublishedSums:
    """Hold sums of unknowns, and their ranges.

    The unknowns are the counts of the cross cells, and then choices: a count that a complementary
    cell hides is in one of two ranges.

    Args:
        counted: the rows.
        tables: the tables.
        groups_known: True if the attacker knows how many people have each combination of the other
            columns than the attribute.

    Attributes:
        matrix: the sums of the unknowns.
        low, high: the range of each sum.
        true: the unknowns of the rows.
    """

    def __init__(
        self, counted: Counted, tables: Sequence[Table], *, groups_known: bool = False
    ) -> None:
        self.true = counted.counts.ravel()
        self.low = self.high = np.zeros(0, np.int64)
        self._parts: list[tuple[Any, Any, Any]] = []
        self._everywhere = np.arange(len(self.true))
        for table in tables:
            if table.method.swap is not None:
                for margin, number in _margins(table, table.published):
                    self._add(margin[table.at], self._everywhere, number, number)
            else:
                self._add_table(table)
        if groups_known:
            groups: Integers = counted.counts.sum(axis=counted.axis, keepdims=True)
            number = np.reshape(np.arange(groups.size), groups.shape)
            place = np.broadcast_to(number, counted.counts.shape).ravel()
            self._add(place, self._everywhere, groups.ravel(), groups.ravel())
        row, unknown, factor = map(np.concatenate, zip(*self._parts, strict=True))
        shape = len(self.low), len(self.true)
        self.matrix: Any = _sparse.csr_array((factor, (row, unknown)), shape)

        columns = self.matrix.tocsc()
        rows = np.split(columns.indices, columns.indptr[1:-1])
        self._rows = [{*each.tolist()} for each in rows]
        self._counts = (self.matrix @ self.true).tolist()

    def moved(self, before: int, after: int) -> list[tuple[int, int, int, int]]:
        """Return each sum that changes if a person moves to another cell.

        It is given by its least value, its value, its largest value, and the change.
        """
        old, new = self._rows[before], self._rows[after]
        return [
            (int(self.low[row]), self._counts[row], int(self.high[row]), 1 if row in new else -1)
            for row in old ^ new
        ]

    def _add(self, place: Integers, cells: Integers, low: Integers, high: Integers) -> Integers:
        """Add the sums of cells by place, with their ranges. Return their numbers."""
        first = len(self.low)
        self._parts.append((first + place, cells, np.ones_like(cells)))
        self.low, self.high = np.append(self.low, low), np.append(self.high, high)
        return first + np.arange(len(low))

    def _add_table(self, table: Table) -> None:
        method, shown, width = table.method, table.published, table.counts.shape[1]
        base, less = method.round or 1, (method.round or 1) // 2
        more = base - 1 - less
        if method.random:
            less = more = base - 1
        low, high = np.maximum(shown - less, 0), shown + more
        if method.suppress is not None:
            low, high = (
                np.where(shown == EMPTY, 1, low),
                np.where(shown == EMPTY, method.suppress - 1, high),
            )
        apart: list[tuple[int, ...]] = []
        if method.total is not None:
            self._add(table.at // width, self._everywhere, low[:, -1], high[:, -1])
            apart = [*_split(shown, low, high)] if method.suppress else []
        self._add(table.at, self._everywhere, low[:, :width].ravel(), high[:, :width].ravel())
        if apart:
            # The choice y is 0 for the first range, and 1 for the second.
            cells, low, most, least, high = np.array(apart).T
            choice = len(self.true) + np.arange(len(cells))
            self.true = np.append(self.true, table.counts.ravel()[cells] > most)
            own = np.flatnonzero(np.isin(table.at, cells))
            place = np.searchsorted(cells, table.at[own])
            for lower, upper, step in ((low, high, least - low), (-high, most, high - most)):
                self._parts.append((self._add(place, own, lower, upper), choice, -step))


def _split(shown: Integers, low: Integers, high: Integers) -> Iterator[tuple[int, ...]]:
    """Widen the ranges of complementary cells, and yield each cell with two ranges.

    Two empty cells of a line add up to what its published numbers leave. In one range of the first
    cell it is small, and in the other range the second cell is. A count that is not small belongs
    to the complementary cell, which comes before all counts of the line that are published.
    """
    for k, (*line, total) in enumerate(shown.tolist()):
        if line.count(EMPTY) == 2 and total != EMPTY:
            rest, (first, second) = (
                total - sum(line) - 2,
                np.flatnonzero(shown[k] == EMPTY).tolist(),
            )
            small = int(high[k, first])
            other, own = (
                max(
                    1,
                    rest
                    - max(
                        small, min((x - (i < j) for i, x in enumerate(line) if x > 0), default=rest)
                    ),
                )
                for j in (first, second)
            )
            both = (own, min(small, rest - 1)), (max(rest - small, 1), rest - other)
            some = [each for each in both if each[0] <= each[1]]
            low[k, first], high[k, first] = min(some)[0], max(most for _, most in some)
            high[k, second] = rest - 1
            if len(some) > 1 and some[1][0] > some[0][1] + 1:
                yield k * len(line) + first, *some[0], *some[1]
