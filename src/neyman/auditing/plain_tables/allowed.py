"""Describe the counts that could have given a published table, exactly.

Rows could have given a table if and only if their counts are within all of its blocks. Without
randomness, that are the rows from which the method makes this table, and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from neyman.auditing.plain_tables.counted import EMPTY, Integers, Table
from neyman.auditing.plain_tables.method import TableMethod

Range = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """State that sums of cells are in one of several boxes.

    Args:
        sums: sets of cells.
        boxes: alternatives, each with the smallest and the largest sum of each set.
    """

    sums: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[Range, ...], ...]


def made(method: TableMethod, counts: Integers, lines: Integers) -> tuple[Integers, Integers]:
    """Return the table and the totals that a method without randomness makes."""
    totals = counts[lines].sum(axis=1)
    if method.round is not None:
        base = method.round.base
        return tuple((2 * x + base) // (2 * base) * base for x in (counts, totals))  # pyright: ignore[reportReturnType]
    if method.suppress is None:
        return counts, totals
    below = method.suppress.below
    cells, totals = (np.where((x > 0) & (x < below), EMPTY, x) for x in (counts, totals))
    if method.total is not None:
        for line in lines[((cells[lines] == EMPTY).sum(axis=1) == 1) & (totals != EMPTY)]:
            others = [c for c in line if cells[c] > 0]
            cells[min(others, key=lambda c: int(counts[c]))] = EMPTY
    return cells, totals


def wrong_cells(table: Table) -> int:
    """Return how many counts and totals of a table its method cannot make from the rows."""
    method = table.method
    if method.swap is None and not (method.round and method.round.random):
        cells, totals = made(method, table.counts, table.lines)
        wrong = int((cells != table.published).sum())
        return wrong + (0 if table.totals is None else int((totals != table.totals).sum()))
    return sum(not within(block, _sums(block, table.counts)) for block in blocks(table))


def within(block: Block, sums: Sequence[int]) -> bool:
    """Return True if the sums are in one of a block's boxes."""
    return any(
        all(low <= x <= high for x, (low, high) in zip(sums, box, strict=True))
        for box in block.boxes
    )


def _sums(block: Block, counts: Integers) -> list[int]:
    return [int(counts[[*cells]].sum()) for cells in block.sums]


def blocks(table: Table) -> Iterator[Block]:
    """Yield the blocks of a published table. Together they are exact."""
    method = table.method
    if method.swap is not None:
        yield from _margins(table)
        return
    totals = [None] * len(table.lines) if table.totals is None else table.totals.tolist()
    for line, total in zip(table.lines.tolist(), totals, strict=True):
        cells = [int(table.published[c]) for c in line]
        if method.suppress is not None and total is not None and EMPTY in cells:
            yield _suppressed(line, cells, total, method.suppress.below)
            continue
        for c, count in zip(line, cells, strict=True):
            yield Block(((c,),), ((_range(method, count),),))
        if total is not None:
            yield Block((tuple(line),), ((_range(method, total),),))


def _range(method: TableMethod, published: int) -> Range:
    """Return the smallest and the largest count behind a published one."""
    if method.suppress is not None and published == EMPTY:
        return 1, method.suppress.below - 1
    if method.round is None:
        return published, published
    base = method.round.base
    less, more = (base - 1, base - 1) if method.round.random else (base // 2, (base - 1) // 2)
    return max(0, published - less), published + more


def _suppressed(line: list[int], cells: list[int], total: int, below: int) -> Block:
    """Return the block of a line with empty cells and a total.

    Either all empty cells are small. Or there are two, and the larger one is the complementary cell
    of the other. Then it is not small, and it comes before all cells that are published.
    """
    empty = [k for k, count in enumerate(cells) if count == EMPTY]
    rest: dict[int, Range] = {k: (count, count) for k, count in enumerate(cells)}
    small, whole = (1, below - 1), (total, total)
    choices: list[dict[int, Range]] = []
    if total == EMPTY:
        choices, whole = [dict.fromkeys(empty, small)], small
    elif len(empty) > 1:
        choices = [dict.fromkeys(empty, small)]
        for k in empty if len(empty) == 2 else ():
            least = min((x - (j < k) for j, x in enumerate(cells) if x > 0), default=total)
            if least >= below:
                choices.append({**dict.fromkeys(empty, small), k: (below, least)})
    return Block(
        (*((c,) for c in line), tuple(line)),
        tuple((*({**rest, **choice}[k] for k in range(len(line))), whole) for choice in choices),
    )


def _margins(table: Table) -> Iterator[Block]:
    """Yield what swaps leave unchanged, for each group of rows that match.

    These are the counts by all other columns, and by the swapped column. Every table with the same
    counts is possible, because each set of rows may be drawn, and each permutation.
    """
    for cells in swap_groups(table):
        for axis in (0, 1):
            for line in np.moveaxis(cells, axis, 0):
                whole = int(table.published[line].sum())
                yield Block((tuple(line.tolist()),), (((whole, whole),),))


def swap_groups(table: Table) -> Iterator[Integers]:
    """Yield each group of rows that match: its cells by the other columns and the swapped one."""
    swap, by = table.method.swap, table.method.by
    assert swap is not None
    cells = np.arange(len(table.published)).reshape(table.shape)
    match = [by.index(name) for name in swap.match]
    last = by.index(swap.column)
    other = [k for k in range(len(by)) if k != last and k not in match]
    grouped = cells.transpose(*match, *other, last)
    size = int(np.prod([table.shape[k] for k in match], dtype=int))
    yield from grouped.reshape(size, -1, table.shape[last])


class Neighbors:
    """Decide whether a table is possible after one person moves from a cell to another."""

    def __init__(self, table: Table) -> None:
        self.blocks = [*blocks(table)]
        self.sums = [_sums(block, table.counts) for block in self.blocks]
        self._touched: dict[int, list[tuple[int, int]]] = {}
        for b, block in enumerate(self.blocks):
            for k, cells in enumerate(block.sums):
                for c in cells:
                    self._touched.setdefault(c, []).append((b, k))

    def changes(self, before: int, after: int) -> list[tuple[int, list[int]]]:
        """Return each block whose sums change, with its new sums."""
        change = Counter(self._touched[after])
        change.subtract(self._touched[before])
        moved = sorted(spot for spot, by in change.items() if by)
        result: list[tuple[int, list[int]]] = []
        for b, spots in groupby(moved, lambda spot: spot[0]):
            sums = [*self.sums[b]]
            for _, k in spots:
                sums[k] += change[b, k]
            result.append((b, sums))
        return result

    def possible(self, before: int, after: int) -> bool:
        """Return True if the table could be the same."""
        return all(within(self.blocks[b], sums) for b, sums in self.changes(before, after))
