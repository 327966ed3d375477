"""Whole numbers that add up, near given ones that do."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from neyman.publishing.consistency.margins import Margins

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
    margins: Margins, estimates: list[Floats], parents: tuple[Integers, ...]
) -> list[Integers]:
    """Whole numbers that add up: the one finest table is rounded, and the others are its sums.

    First come the totals of the top level's places, then what they are by, one column after the
    other, then the places of each further level: so each level's cells of the finest kind are near
    their estimates, and a total gathers roundings of its few keys rather than of its many places.
    """
    (finest,) = margins.finest()
    last = margins.margins[finest].level
    tables = [estimates[finest]]
    for above in reversed(parents[:last]):
        tables.insert(0, _placed(tables[0], above))
    columns = range(1, tables[0].ndim - 1)
    top = tables[0]
    known = np.rint(top.sum(axis=tuple(columns), keepdims=True)).astype(np.int64)
    for axis in columns:
        rest = tuple(i for i in columns if i > axis)
        finer = top.sum(axis=rest, keepdims=True) if rest else top
        known = _rounded(np.moveaxis(known, axis, -1), np.moveaxis(finer, axis, -1))
        known = np.moveaxis(known, -1, axis)
    integers = [known]
    for above, finer in zip(parents, tables[1:], strict=False):
        columns_in_all = math.prod(finer.shape[1:])
        index = (above[:, None] * columns_in_all + np.arange(columns_in_all)).ravel()
        parts = rounded_parts(integers[-1].ravel(), finer.ravel(), index)
        integers.append(parts.reshape(finer.shape))
    sums: list[Integers] = []
    for m in margins.margins:
        axes = tuple(i + 1 for i in range(len(margins.sizes)) if i not in m.columns)
        table = integers[m.level]
        sums.append(table.sum(axis=axes, keepdims=True) if axes else table)
    return sums


def _rounded(totals: Integers, parts: Floats) -> Integers:
    """Parts along the last axis rounded to whole totals, whose last axis has length 1."""
    index = np.repeat(np.arange(totals.size), parts.shape[-1])
    return rounded_parts(totals.ravel(), parts.ravel(), index).reshape(parts.shape)


def _placed(table: Floats, above: Integers) -> Floats:
    """A table's sums over the places of the level above."""
    size = int(above.max()) + 1
    sums = np.zeros((size, *table.shape[1:]))
    np.add.at(sums, above, table)
    return sums
