"""Whole numbers that add up, near given ones that do."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from neyman.publishing.consistency.margins import Margins

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Number = TypeVar("Number", np.float64, np.int64)

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


def rounded_tables(margins: Margins, estimates: list[Floats]) -> list[Integers]:
    """Whole numbers that add up: the one finest table is rounded, and the others are its sums.

    First come the totals of the top level's places, then what they are by, one column after the
    other, then the places of each further level: so each level's cells of the finest kind are near
    their estimates, and a total gathers roundings of its few keys rather than of its many places.
    Of two trees, the one with fewer of the finest table's places comes first, as a column does.
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
            tables[upper] = _placed(tables[at], above, tree)
            path.insert(0, (upper, at, tree))
            at = upper
    columns = range(2, tables[at].ndim - 1)
    top = tables[at]
    known = np.rint(top.sum(axis=tuple(columns), keepdims=True)).astype(np.int64)
    for axis in columns:
        rest = tuple(i for i in columns if i > axis)
        finer = top.sum(axis=rest, keepdims=True) if rest else top
        known = _rounded(np.moveaxis(known, axis, -1), np.moveaxis(finer, axis, -1))
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
        axes = tuple(i + 1 for i in range(len(margins.sizes)) if i not in m.columns)
        tree = 0 if (last[0], m.across) in integers else 1
        source = (last[0], m.across) if tree == 0 else (m.level, last[1])
        table = integers[m.at] if m.at in integers else integers[source]
        if m.at not in integers:
            table = _placed(table, chains[tree].above(m.at[tree], last[tree]), tree)
        table = table.reshape(-1, *table.shape[2:])
        sums.append(table.sum(axis=axes, keepdims=True) if axes else table)
    return sums


def _rounded(totals: Integers, parts: Floats) -> Integers:
    """Parts along the last axis rounded to whole totals, whose last axis has length 1."""
    index = np.repeat(np.arange(totals.size), parts.shape[-1])
    return rounded_parts(totals.ravel(), parts.ravel(), index).reshape(parts.shape)


def _placed(table: NDArray[Number], above: Integers, tree: int) -> NDArray[Number]:
    """A table's sums over the places of one tree's level above."""
    sums = np.zeros_like(
        table, shape=(int(above.max()) + 1, *np.moveaxis(table, tree, 0).shape[1:])
    )
    np.add.at(sums, above, np.moveaxis(table, tree, 0))
    return np.ascontiguousarray(np.moveaxis(sums, 0, tree))
