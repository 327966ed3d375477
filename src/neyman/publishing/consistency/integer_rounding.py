"""Whole numbers that add up, near given ones that do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from neyman.publishing.consistency.margins import Margin, Margins
from neyman.publishing.plan.totals import joined_order

Number = TypeVar("Number", np.float64, np.int64)
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NEAR_INTEGER = 1e-6  # values this near to a whole number count as one
_TIE = 1e-4  # remainders this near to each other mostly count as alike
_SCRAMBLE = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiples are spread evenly


def rounded_parts(totals: Integers, parts: Floats, parents: Integers) -> Integers:
    """Parts rounded so that they add up to whole totals: the largest remainders go up [CO-4].

    Where a total is its parts' sum rounded up or down, each part is its own value rounded up or
    down. No part gets below 0 that is not.

    Args:
        parts: of shape (n,), at most 2^53 in size.
        parents: for each part the position of its total, of shape (n,). A total without parts is
            not looked at.

    Returns:
        Whole numbers of shape (n,). Which go up of remainders that are alike depends on their
        positions, in an order that favors neither the first nor the last.
    """
    near = np.rint(parts)
    parts = np.where(np.abs(parts - near) < _NEAR_INTEGER, near, parts)
    floors = np.floor(parts).astype(np.int64)
    remainder = parts - floors
    count = np.bincount(parents, minlength=len(totals))
    # Siblings of one table were all moved alike, so ties are common. Rounding must not decide them,
    # or another machine would find others; nor the order of the keys, which would favor the first.
    scrambled = np.arange(len(parts), dtype=np.uint64) * _SCRAMBLE
    # A second round is needed only where totals are no rounding of their parts' sum.
    while True:
        sums = np.zeros(len(totals), dtype=np.int64)  # a double cannot hold each
        np.add.at(sums, parents, floors)
        lacking = np.where(count > 0, totals - sums, 0)
        step = np.sign(lacking)
        if not step.any():
            return floors
        up = step[parents] > 0
        # Those that go up: the largest remainders first. Down: the smallest, and never below 0.
        usable = up | (floors > 0) | (parts < 0)
        rough = np.rint(remainder / _TIE)
        order = np.lexsort((scrambled, np.where(up, -rough, rough), ~usable, parents))
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        rank = np.arange(len(parts)) - starts[parents[order]]
        chosen = order[rank < np.abs(lacking)[parents[order]]]
        floors[chosen] += step[parents[chosen]]
        remainder[chosen] -= step[parents[chosen]]


def rounded_tables(
    margins: Margins,
    estimates: list[Floats],
    parents: tuple[Integers, ...],
    exact: Sequence[tuple[Margin, Integers]] = (),
) -> list[Integers]:
    """Whole numbers that add up: the one finest table is rounded, and the others are its sums.

    First come the exact tables together, or the totals of the top level's places. Then what they
    are by, one column after the other, then the places of each further level: so each level's cells
    of the finest kind are near their estimates, and a total gathers roundings of its few keys
    rather than of its many places.

    Args:
        exact: tables that agree where they overlap and close no cycle. They keep their values
            [CO-5].
    """
    (finest,) = margins.finest()
    last = margins.margins[finest].level
    tables = [estimates[finest]]
    for above in reversed(parents[:last]):
        tables.insert(0, _placed(tables[0], above))
    columns = range(1, tables[0].ndim - 1)
    start = Margin(0, frozenset(), 0.0)
    known = np.rint(tables[0].sum(axis=tuple(columns), keepdims=True)).astype(np.int64)
    if exact:
        start, known = _joined(exact, tables, parents)
    top, done = tables[start.level], set(start.columns)
    for axis in columns:
        if axis - 1 in done:
            continue
        done.add(axis - 1)
        finer = _summed(top, done)
        known = _rounded(np.moveaxis(known, axis, -1), np.moveaxis(finer, axis, -1))
        known = np.moveaxis(known, -1, axis)
    integers = [known]
    for above, finer in zip(parents[start.level :], tables[start.level + 1 :], strict=False):
        columns_in_all = math.prod(finer.shape[1:])
        index = (above[:, None] * columns_in_all + np.arange(columns_in_all)).ravel()
        parts = rounded_parts(integers[-1].ravel(), finer.ravel(), index)
        integers.append(parts.reshape(finer.shape))
    for above in reversed(parents[: start.level]):
        integers.insert(0, _placed(integers[0], above))
    return [_summed(integers[m.level], m.columns) for m in margins.margins]


def _joined(
    exact: Sequence[tuple[Margin, Integers]], tables: list[Floats], parents: tuple[Integers, ...]
) -> tuple[Margin, Integers]:
    """Return one table of whole numbers of which all exact tables are margins, near the estimates.

    Each exact table meets those before it within one of them, with which it agrees. So the cells of
    one common cell are a matrix whose row and column sums are known and have one sum.
    """
    axes = [
        frozenset([*(f"level {i}" for i in range(m.level + 1)), *map(str, m.columns)])
        for m, _ in exact
    ]
    order = joined_order(axes) or (0,)
    joint, known = exact[order[0]]
    for i in order[1:]:
        other, values = exact[i]
        if other.of(joint):
            continue
        if joint.of(other):
            joint, known = exact[i]
            continue
        both = Margin(max(joint.level, other.level), joint.columns | other.columns, 0.0)
        target = _summed(tables[both.level], both.columns)
        common = Margin(min(joint.level, other.level), joint.columns & other.columns, 0.0)
        rows, columns, groups = (
            _positions(target.shape, both.level, part, parents) for part in (joint, other, common)
        )
        integers = _matrices(known.ravel(), values.ravel(), target.ravel(), rows, columns, groups)
        joint, known = both, integers.reshape(target.shape)
    return joint, known


def _positions(
    shape: tuple[int, ...], level: int, margin: Margin, parents: tuple[Integers, ...]
) -> Integers:
    """Return for each cell of a table at a level the position of its cell in a flat margin."""
    place = np.arange(shape[0])
    for above in reversed(parents[margin.level : level]):
        place = above[place]
    places = int(place.max()) + 1
    sizes = [size if i in margin.columns else 1 for i, size in enumerate(shape[1:])]
    index = np.arange(places * math.prod(sizes)).reshape(places, *sizes)
    return np.broadcast_to(index[place], shape).ravel()


def _matrices(
    row_sums: Integers,
    column_sums: Integers,
    target: Floats,
    rows: Integers,
    columns: Integers,
    groups: Integers,
) -> Integers:
    """Return whole numbers of at least 0 with given sums by row and by column, near a target.

    The rows are rounded first. Then units move within a row, from a column with too many to one
    with too few, where that brings the numbers nearest to the target. Each move is possible,
    because a column with too many has a cell above 0.
    """
    integers = rounded_parts(row_sums, target, rows)
    lacking = column_sums.copy()
    np.subtract.at(lacking, columns, integers)
    unbalanced = np.zeros(int(groups.max()) + 1, dtype=bool)
    unbalanced[groups[lacking[columns] != 0]] = True
    order = np.lexsort((columns, rows, groups))
    order = order[unbalanced[groups[order]]]
    for cells in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1) if len(order) else ():
        height = len(np.unique(rows[cells]))
        matrix = cells.reshape(height, -1)
        lack = lacking[columns[matrix[0]]]
        while lack.any():
            off = np.rint((integers[matrix] - target[matrix]) / _TIE)
            most = np.where((lack < 0) & (integers[matrix] > 0), off, -np.inf)
            least = np.where(lack > 0, off, np.inf)
            row = int(np.argmin(least.min(axis=1) - most.max(axis=1)))
            source, sink = int(np.argmax(most[row])), int(np.argmin(least[row]))
            integers[matrix[row, source]] -= 1
            integers[matrix[row, sink]] += 1
            lack[source] += 1
            lack[sink] -= 1
    return integers


def _summed(table: NDArray[Number], columns: AbstractSet[int]) -> NDArray[Number]:
    """Return a table's sums over the columns not named, each of which has then length 1."""
    gone = tuple(i + 1 for i in range(table.ndim - 2) if i not in columns)
    return table.sum(axis=gone, keepdims=True) if gone else table


def _rounded(totals: Integers, parts: Floats) -> Integers:
    """Parts along the last axis rounded to whole totals, whose last axis has length 1."""
    index = np.repeat(np.arange(totals.size), parts.shape[-1])
    return rounded_parts(totals.ravel(), parts.ravel(), index).reshape(parts.shape)


def _placed(table: NDArray[Number], above: Integers) -> NDArray[Number]:
    """A table's sums over the places of the level above."""
    size = int(above.max()) + 1
    sums = np.zeros((size, *table.shape[1:]), dtype=table.dtype)
    np.add.at(sums, above, table)
    return sums
