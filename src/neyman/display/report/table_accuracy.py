"""Compute how much noise may have changed a published table, one part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from neyman.extras import advice

try:
    from pyarrow.parquet import ParquetFile
except ModuleNotFoundError as missing:
    # Guards against an install without the extra.
    raise ModuleNotFoundError(advice(missing), name=missing.name) from None

Table: TypeAlias = Any
"""A table is a `pyarrow.Table`, or an open `ParquetFile` if it is large. Neither has types."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """Limit the cells that are read or sorted at a time, and the bins for a median."""

    bins: int = 1 << 16


LIMITS = Limits()


@dataclass(frozen=True)
class TableAccuracy:
    """Hold a table's error for a report.

    Args:
        value, margin: the medians of the cells' values and margins of error.
        within: for each requested proportion, the share of cells whose margin is below this
            proportion of the cell's own value.
    """

    value: float
    margin: float
    within: tuple[Fraction, ...]


def accuracy(table: Table, proportions: tuple[float, ...]) -> TableAccuracy | None:
    """Return the error of a table, with ``within`` for each proportion, or None without rows."""
    cells, close = 0, [0] * len(proportions)
    for value, margin in _parts(table):
        cells += len(value)
        for i, p in enumerate(proportions):
            close[i] += int(np.count_nonzero(margin < p * np.abs(value)))
    if cells == 0:
        return None
    return TableAccuracy(
        median(lambda: (value for value, _ in _parts(table))),
        median(lambda: (margin for _, margin in _parts(table))),
        tuple(Fraction(count, cells) for count in close),
    )


def _parts(table: Table) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the values and the margins of error of a table in parts."""
    columns = ["value", "lower", "upper"]
    batches: Iterable[Any]
    part_cells = 1 << 20
    if isinstance(table, ParquetFile):
        batches = cast(Any, table).iter_batches(part_cells, columns=columns, use_threads=False)
    else:
        batches = table.select(columns).to_batches(part_cells)
    for batch in batches:
        numbers = batch.filter(batch.column("value").is_valid())
        value, lower, upper = (
            numbers.column(name).to_numpy(zero_copy_only=False).astype(float) for name in columns
        )
        yield value, np.maximum(value - lower, upper - value)


def median(parts: Callable[[], Iterator[Numbers]]) -> float:
    """Return the median of finite numbers that come in parts, in bounded memory.

    Up to 2^22 numbers are held, and the two middle ones are averaged. For more numbers, the lower
    middle one is returned.

    Args:
        parts: a function that returns the parts, at each call.
    """
    chosen: Callable[[Numbers], Numbers] = _all  # selects the numbers that may be the median
    rank = -1  # rank of the median among the chosen numbers
    while True:
        size, least, most = 0, np.inf, -np.inf
        held: list[Numbers] = []
        for part in map(chosen, parts()):
            if len(part) == 0:
                continue
            size, least, most = size + len(part), min(least, part.min()), max(most, part.max())
            held = [*held, part] if size <= (1 << 22) else []  # sorted cells
        if least == most:
            return float(least)
        if held:
            numbers = np.sort(np.concatenate(held))
            return float(np.median(numbers) if rank < 0 else numbers[rank])
        rank = (size - 1) // 2 if rank < 0 else rank
        counts = np.zeros(LIMITS.bins, dtype=np.int64)
        for part in map(partial(_values_between, least, most), parts()):
            counts += np.bincount(_bins(least, most, part), minlength=LIMITS.bins)
        reached = np.cumsum(counts)
        place = int(np.searchsorted(reached, rank, side="right"))
        rank -= int(reached[place] - counts[place])
        chosen = partial(_in_bin, least, most, place)


def _all(part: Numbers) -> Numbers:
    return part


def _values_between(least: float, most: float, part: Numbers) -> Numbers:
    return part[(least <= part) & (part <= most)]


def _bins(least: float, most: float, part: Numbers) -> NDArray[np.int64]:
    # Rounding is monotone, so a bin has every number between its least and its largest.
    return np.minimum((part - least) / (most - least) * LIMITS.bins, LIMITS.bins - 1).astype(
        np.int64
    )


def _in_bin(least: float, most: float, place: int, part: Numbers) -> Numbers:
    part = _values_between(least, most, part)
    return part[_bins(least, most, part) == place]
