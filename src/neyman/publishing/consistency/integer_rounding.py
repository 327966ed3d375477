"""Round tables that add up to tables of integers that add up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.arrays import Floats, Integers
from neyman.publishing.consistency.margins import Margin, Margins
from neyman.publishing.consistency.tree import Chain
from neyman.publishing.plan.totals import joined_order

Number = TypeVar("Number", np.float64, np.int64)


@dataclass(frozen=True)
class Limits:
    """Hold the distances within which a value counts as an integer, or remainders as equal."""

    tie_distance: float = 1e-4  # remainders this near to each other mostly count as equal


LIMITS = Limits()

# 2^64 / golden ratio: multiples are spread evenly.
_GOLDEN_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def rounded_parts(totals: Integers, parts: Floats, parents: Integers) -> Integers:
    """Round parts so that they add up to integer totals: the largest remainders go up [CO-4].

    If a total is its parts' sum rounded up or down, each part is rounded up or down. No part of at
    least 0 becomes negative.

    Args:
        parts: values of shape (n,), at most 2^53 in size.
        parents: for each part the position of its total, of shape (n,). A total without parts is
            ignored.

    Returns:
        Integers of shape (n,). Ties between remainders are broken by position, in an order that
        favors neither the first nor the last.
    """
    near = np.rint(parts)
    # A value this near to an integer counts as the integer.
    parts = np.where(np.abs(parts - near) < 1e-6, near, parts)
    floors = np.floor(parts).astype(np.int64)
    remainder = parts - floors
    count = np.bincount(parents, minlength=len(totals))
    # All siblings of one table were moved equally, so ties are common. Rounding errors must not
    # decide ties, because they differ between machines. The order of the keys must not decide
    # either, because it would favor the first.
    scrambled = np.arange(len(parts), dtype=np.uint64) * _GOLDEN_MULTIPLIER
    # A second round is needed only if totals are not roundings of their parts' sums.
    while True:
        sums = np.zeros(len(totals), dtype=np.int64)  # a double cannot hold each
        np.add.at(sums, parents, floors)
        lacking = np.where(count > 0, totals - sums, 0)
        step = np.sign(lacking)
        if not step.any():
            return floors
        up = step[parents] > 0
        # To go up, take the largest remainders first. To go down, the smallest, and never below 0.
        usable = up | (floors > 0) | (parts < 0)
        rough = np.rint(remainder / LIMITS.tie_distance)
        order = np.lexsort((scrambled, np.where(up, -rough, rough), ~usable, parents))
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        rank = np.arange(len(parts)) - starts[parents[order]]
        chosen = order[rank < np.abs(lacking)[parents[order]]]
        floors[chosen] += step[parents[chosen]]
        remainder[chosen] -= step[parents[chosen]]


def rounded_tables(
    margins: Margins, estimates: list[Floats], exact: Sequence[tuple[Margin, Integers]] = ()
) -> list[Integers]:
    """Round the one finest table to integers. Return all tables as its sums.

    The rounding starts with the joined exact tables, or with the totals of the top level's places.
    It splits these sums by the columns one by one, and then by the places of each further level.
    So, at each level, the cells by all columns are near their estimates. A total gathers the
    roundings of its few keys instead of its many places. For two trees, the tree with fewer of the
    finest table's places comes first, like a column.

    Args:
        exact: tables over one tree that agree on shared margins and whose overlaps form no cycle.
            Their values do not change [CO-5].
    """
    (finest,) = margins.finest()
    chains, last = (margins.places, margins.across), margins.margins[finest].at
    sizes = [chain.sizes[level] for chain, level in zip(chains, last, strict=True)]
    tables = {last: estimates[finest].reshape(*sizes, *estimates[finest].shape[1:])}
    at, path = last, list[tuple[tuple[int, int], tuple[int, int], int]]()
    for tree in (0, 1) if sizes[0] >= sizes[1] else (1, 0):
        while at[tree]:
            upper = (at[0] - 1, at[1]) if tree == 0 else (at[0], at[1] - 1)
            above = chains[tree].parents[at[tree] - 1]
            tables[upper] = _tree_sums(tables[at], above, tree)
            path.insert(0, (upper, at, tree))
            at = upper
    columns = range(2, tables[at].ndim - 1)
    done = set[int]()
    known = np.rint(tables[at].sum(axis=tuple(columns), keepdims=True)).astype(np.int64)
    if exact:
        start, known = _join_margins(exact, tables, margins.places)
        at, path, done = start.at, path[start.level :], set(start.columns)
    top = tables[at]
    for axis in columns:
        if axis - 2 in done:
            continue
        done.add(axis - 2)
        finer = _margin(top, done)
        known = _round_parts(np.moveaxis(known, axis, -1), np.moveaxis(finer, axis, -1))
        known = np.moveaxis(known, -1, axis)
    integers = {at: known}
    for upper, lower, tree in path:
        finer, above = tables[lower], chains[tree].parents[lower[tree] - 1]
        places = np.arange(integers[upper].size).reshape(integers[upper].shape)
        index = np.take(places, above, axis=tree).ravel()
        parts = rounded_parts(integers[upper].ravel(), finer.ravel(), index)
        integers[lower] = parts.reshape(finer.shape)
    sums: list[Integers] = []
    for m in margins.margins:
        if m.at in integers:
            table = integers[m.at]
        else:
            tree = 0 if (last[0], m.across) in integers else 1
            source = (last[0], m.across) if tree == 0 else (m.level, last[1])
            table = _tree_sums(integers[source], chains[tree].above(m.at[tree], last[tree]), tree)
        table = _margin(table, m.columns)
        sums.append(table.reshape(-1, *table.shape[2:]))
    return sums


def _join_margins(
    exact: Sequence[tuple[Margin, Integers]], tables: Mapping[tuple[int, int], Floats], chain: Chain
) -> tuple[Margin, Integers]:
    """Return one integer table near the estimates, and its margin. It adds up to all exact tables.

    Tables are joined one by one. The axes that the next table shares with the joined table are all
    in one earlier table, and both agree on the sums over these axes. So the new cells within one
    cell of the shared axes form a matrix. Its row sums (from the joined table) and its column sums
    (from the next table) are known and have equal totals.
    """
    axes = [
        frozenset([*(f"level {i}" for i in range(m.level + 1)), *map(str, m.columns)])
        for m, _ in exact
    ]
    order = joined_order(axes) or (0,)
    exact = [(m, values[:, None]) for m, values in exact]
    joint, known = exact[order[0]]
    for i in order[1:]:
        other, values = exact[i]
        if other.of(joint):
            continue
        if joint.of(other):
            joint, known = exact[i]
            continue
        both = Margin(max(joint.level, other.level), joint.columns | other.columns, 0.0)
        target = _margin(tables[both.at], both.columns)
        common = Margin(min(joint.level, other.level), joint.columns & other.columns, 0.0)
        rows, columns, groups = (
            _positions(target.shape, both.level, part, chain) for part in (joint, other, common)
        )
        integers = _matrices(known.ravel(), values.ravel(), target.ravel(), rows, columns, groups)
        joint, known = both, integers.reshape(target.shape)
    return joint, known


def _positions(shape: tuple[int, ...], level: int, margin: Margin, chain: Chain) -> Integers:
    """Return, for each cell of a table at ``level``, the position of its sum in ``margin``."""
    place = chain.above(margin.level, level)
    sizes = [size if i in margin.columns else 1 for i, size in enumerate(shape[2:])]
    index = np.arange((int(place.max()) + 1) * math.prod(sizes)).reshape(-1, 1, *sizes)
    return np.broadcast_to(index[place], shape).ravel()


def _matrices(
    row_sums: Integers,
    column_sums: Integers,
    target: Floats,
    rows: Integers,
    columns: Integers,
    groups: Integers,
) -> Integers:
    """Return integers of at least 0 near ``target``, with given row and column sums.

    For each number of the flat ``target``, ``rows`` and ``columns`` have the positions of its sums,
    and ``groups`` its matrix. The rows are rounded first. Then 1 moves within a row, from a column
    with too large a sum to one with too small a sum, wherever this brings the numbers nearest to
    the target. Each move is possible, because a column with too large a sum has a cell above 0.
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
            off = np.rint((integers[matrix] - target[matrix]) / LIMITS.tie_distance)
            most = np.where((lack < 0) & (integers[matrix] > 0), off, -np.inf)
            least = np.where(lack > 0, off, np.inf)
            row = int(np.argmin(least.min(axis=1) - most.max(axis=1)))
            source, sink = int(np.argmax(most[row])), int(np.argmin(least[row]))
            integers[matrix[row, source]] -= 1
            integers[matrix[row, sink]] += 1
            lack[source] += 1
            lack[sink] -= 1
    return integers


def _margin(table: NDArray[Number], columns: AbstractSet[int]) -> NDArray[Number]:
    """Sum a table over all columns but ``columns``. A column that is summed gets length 1."""
    gone = tuple(i + 2 for i in range(table.ndim - 3) if i not in columns)
    return table.sum(axis=gone, keepdims=True) if gone else table


def _round_parts(totals: Integers, parts: Floats) -> Integers:
    index = np.repeat(np.arange(totals.size), parts.shape[-1])
    return rounded_parts(totals.ravel(), parts.ravel(), index).reshape(parts.shape)


def _tree_sums(table: NDArray[Number], above: Integers, tree: int) -> NDArray[Number]:
    """Sum a table over one tree's places. ``above`` has the position of each place's sum."""
    sums = np.zeros_like(
        table, shape=(int(above.max()) + 1, *np.moveaxis(table, tree, 0).shape[1:])
    )
    np.add.at(sums, above, np.moveaxis(table, tree, 0))
    return np.ascontiguousarray(np.moveaxis(sums, 0, tree))
