"""Represent tables of exact integers by their nonzero cells, and sum values into cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neyman.numerics.arrays import Array, Integers

# The largest size of a cell. Clipping to it cannot raise the change that one row causes.
MAX_CELL_SIZE = 2**62


@dataclass(frozen=True, eq=False)
class Cells:
    """Represent a flat table of integers within +-2^62 by its nonzero cells and their positions."""

    size: int  # the number of cells, zeros included
    index: Integers  # the positions, rising
    values: Integers

    def __len__(self) -> int:
        return self.size

    def dense(self, start: int = 0, stop: int | None = None) -> Integers:
        """Return the cells start <= i < stop as a new array, zeros included."""
        stop = self.size if stop is None else stop
        first, last = np.searchsorted(self.index, [start, stop])
        dense = np.zeros(max(stop - start, 0), dtype=np.int64)
        dense[self.index[first:last] - start] = self.values[first:last]
        return dense


def added(size: int, index: Integers, values: Integers) -> Cells:
    """Return ``size`` cells: the exact sum of the values at each ``index``, clipped to +-2^62."""
    order = np.argsort(index, kind="stable")
    index, values = index[order], values[order]
    first = np.flatnonzero(np.diff(index, prepend=-1))
    if len(first):
        # A value is below 2^63, so up to 2^31 halves of 32 bits add up in 64 bits.
        high = np.add.reduceat(values >> 32, first)
        low = np.add.reduceat(values & 0xFFFFFFFF, first)
        high, low = high + (low >> 32), low & 0xFFFFFFFF
        inside = np.clip(high, -(2**31), 2**31 - 1)
        values = np.clip((inside << 32) + low, -MAX_CELL_SIZE, MAX_CELL_SIZE)
        values = np.where(high == inside, values, np.sign(high) * MAX_CELL_SIZE)
    nonzero = values != 0 if len(first) else slice(0, 0)
    return Cells(size, index[first][nonzero], values[nonzero])


def together(parts: Sequence[Cells]) -> Cells:
    """Return the sum of tables of the same size, cell by cell."""
    if len(parts) == 1:
        return parts[0]
    index = np.concatenate([part.index for part in parts])
    return added(parts[0].size, index, np.concatenate([part.values for part in parts]))


def ravelled(codes: Iterable[Array], shape: Sequence[int]) -> Integers:
    """Return flat indices of cells from their codes on each axis. The last axis varies fastest."""
    index: Any = 0
    for code, size in zip(codes, shape, strict=True):
        index = index * np.int64(size) + code
    return np.asarray(index, dtype=np.int64)
