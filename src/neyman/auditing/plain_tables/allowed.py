"""Decide which counts could have given a published table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neyman.auditing.plain_tables.counted import EMPTY, Booleans, Integers, Table
from neyman.auditing.plain_tables.method import TableMethod

Range = tuple[int, int]


def with_totals(method: TableMethod, counts: Integers) -> Integers:
    """Return lines with their totals, if the table has totals."""
    return counts if method.total is None else np.column_stack([counts, counts.sum(axis=1)])


def publish(method: TableMethod, counts: Integers) -> Integers:
    """Return the lines that a method without randomness makes from counts."""
    full = with_totals(method, counts)
    if (base := method.round) is not None:
        return (2 * full + base) // (2 * base) * base
    if method.suppress is None:
        return full
    shown = np.where((full > 0) & (full < method.suppress), EMPTY, full)
    if method.total is not None:
        cells = shown[:, :-1]
        alone = ((cells == EMPTY).sum(axis=1) == 1) & (shown[:, -1] != EMPTY)
        rest = np.where(cells > 0, cells, np.iinfo(np.int64).max).argmin(axis=1)
        shown[alone, rest[alone]] = EMPTY
    return shown


def differing(table: Table, lines: Integers, counts: Integers) -> Booleans:
    """Return True for each published number that lines of counts cannot give."""
    method, published = table.method, table.published[lines]
    if method.random and method.round is not None:
        return abs(with_totals(method, counts) - published) >= method.round
    return publish(method, counts) != published


def wrong_numbers(table: Table) -> int:
    """Return how many published numbers the method cannot make from the rows."""
    if table.method.swap is not None:
        pairs = zip(margins(table, table.counts), margins(table, table.published), strict=True)
        return sum(int((own != given).sum()) for (_, own), (_, given) in pairs)
    return int(differing(table, np.arange(len(table.counts)), table.counts).sum())


def impossible(table: Table, before: Integers, after: Integers) -> Booleans:
    """Return True where a person who moves from a cell to another makes the table impossible."""
    if table.method.swap is not None:
        return before != after
    width = table.counts.shape[1]
    out = np.zeros(len(before), bool)
    line, other = before // width, after // width
    each = np.arange(len(before))
    for own in (line, other):
        counts = table.counts[own]
        for cells, lines, step in ((before, line, -1), (after, other, 1)):
            here = lines == own
            counts[each[here], cells[here] % width] += step
        out |= differing(table, own, counts).any(axis=1)
    return out


def margins(table: Table, counts: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield what swaps leave unchanged: the margin of each cell, and the counts of these margins.

    They are the counts by all but the swapped column, and by it and the columns that match. Every
    table with these counts is possible: each set of rows may be drawn, and each permutation.
    """
    width, matched = table.shape[-1], len(table.method.match)
    cell = np.arange(counts.size)
    block = width * int(np.prod(table.shape[matched:-1], dtype=int))
    for margin in (cell // width, cell // block * width + cell % width):
        yield margin, np.bincount(margin, counts.ravel()).astype(np.int64)


def ends(table: Table) -> tuple[Integers, Integers]:
    """Return the smallest and the largest count behind each published number, if it is alone.

    For empty cells that may be complementary, the largest is the total: see `complementary`.
    """
    method, published = table.method, table.published
    if method.suppress is not None:
        empty = published == EMPTY
        two = (empty.sum(axis=1, keepdims=True) == 2) & (published[:, -1:] > 0)
        most = np.where(two & (method.total is not None), published[:, -1:], method.suppress - 1)
        return np.where(empty, 1, published), np.where(empty, most, published)
    base = method.round or 1
    less, more = (base - 1, base - 1) if method.random else (base // 2, (base - 1) // 2)
    return np.maximum(published - less, 0), published + more


def complementary(table: Table) -> Iterator[tuple[int, tuple[Range, Range]]]:
    """Yield the first of two empty cells of a line with a total, and two ranges of its count.

    In the first range it is small. In the second, the other one is, and they add up to what the
    line's published numbers leave. A count that is not small belongs to the complementary cell,
    which comes before all counts of the line that are published.
    """
    if (below := table.method.suppress) is None or table.method.total is None:
        return
    for k, (*line, total) in enumerate(table.published.tolist()):
        if line.count(EMPTY) == 2 and total != EMPTY:
            rest, small = total - sum(line) - 2, below - 1
            first, second = (j for j, count in enumerate(line) if count == EMPTY)
            tops = (
                min((x - (i < j) for i, x in enumerate(line) if x > 0), default=rest)
                for j in (first, second)
            )
            other, own = (max(1, rest - max(top, small)) for top in tops)
            yield k * len(line) + first, ((own, small), (rest - small, rest - other))
