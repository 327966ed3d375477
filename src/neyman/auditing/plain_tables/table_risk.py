"""Compute what tables without noise reveal about each person, for three attackers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neyman.auditing.plain_tables.allowed import swap_groups, wrong_cells
from neyman.auditing.plain_tables.attack_power import (
    APART,
    Change,
    Moves,
    Powers,
    Swaps,
    composition,
    largest_powers,
    power_at_levels,
)
from neyman.auditing.plain_tables.counted import Counted, Table, count_rows
from neyman.auditing.plain_tables.method import read_method
from neyman.auditing.plain_tables.possible_counts import Ranges, possible_counts
from neyman.curves.losses.composition import Composition
from neyman.numerics.bound import Bound
from neyman.publishing.engines.private_tables import NOTICE, Private

MOVES = 1_000_000  # cross cells with people, times values of the attribute


@dataclass(frozen=True, repr=False)
class TableRisk(Private):
    """Report what one table reveals to an attacker who knows all other rows.

    Args:
        table: the file.
        exact: True if the table has exact counts by each value of the attribute.
        certain: people for whom every other value is impossible.
        powers: the largest power against one record, by level; None if it is not computed.
        exchange: for swaps, the largest power against two records that exchange their values of the
            swapped column, by level; None without a group that is small enough.
        not_enumerated: people in groups of swaps that are too large for this.
    """

    table: str
    exact: bool
    certain: int
    powers: Powers | None
    exchange: Powers | None = None
    not_enumerated: int = 0


@dataclass(frozen=True, repr=False)
class PlainTablesRisk(Private):
    """Report what tables without noise reveal. This report is private.

    Args:
        attribute: the attribute.
        people: the number of rows.
        tables: each table alone.
        certain: people for whom the tables together make every other value impossible.
        powers: the largest power of all tables against one record, by level.
        groups: people in groups by the other columns in which one value is possible.
        groups_not_computed: people in groups for which this is not computed.
        cells: people in cells of the cross-table with one possible count.
        cells_not_computed: people in cells for which this is not computed.
        ranges: the values, the least, and the largest count of each cell that may have people, and
            True if both are exact.
    """

    attribute: str
    people: int
    tables: tuple[TableRisk, ...]
    certain: int
    powers: Powers | None
    groups: int
    groups_not_computed: int
    cells: int
    cells_not_computed: int
    ranges: tuple[tuple[dict[str, str], int, int, bool], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""

        def plain(value: Any) -> Any:
            if isinstance(value, Bound):
                return {"lower": value.lower, "upper": value.upper}
            if isinstance(value, dict):
                return {str(key): plain(one) for key, one in value.items()}
            return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value

        content = asdict(self)
        heads = ("values", "least", "largest", "exact")
        content["ranges"] = [dict(zip(heads, one, strict=True)) for one in self.ranges]
        return {"private": NOTICE, **plain(content)}


def plain_tables_risk(paths: Sequence[Path], data: str, made_by: Path) -> PlainTablesRisk:
    """Compute what tables without noise reveal about the rows that they count.

    Args:
        paths: the tables, CSV files.
        data: the rows, one per person, as a run reads them.
        made_by: the method, a TOML file.

    Raises:
        ValueError: the method does not make these tables from the rows, something does not fit, or
            a size is over its limit.
    """
    method = read_method(made_by)
    counted = count_rows(paths, data, method)
    for table in counted.tables:
        if wrong := wrong_cells(table):
            raise ValueError(
                f"{table.name} is not the table that {str(made_by)!r} makes from the data: "
                f"{wrong:,} counts differ; correct the method, or give the rows of this table"
            )
    tables, certain, powers = _all_rows_known(counted)
    groups = possible_counts(counted, groups_known=True)
    cells = possible_counts(counted)
    counts = counted.counts.ravel()
    alone = np.isin(np.arange(counts.size), np.flatnonzero(cells.low == cells.high))
    return PlainTablesRisk(
        method.attribute,
        int(counts.sum()),
        tables,
        certain,
        powers,
        *_one_value(counted, groups),
        int(counts[alone].sum()),
        int(counts[~cells.exact & (cells.least == cells.most)].sum()),
        tuple(_ranges(counted, cells)),
    )


def _single(counted: Counted) -> Any:
    """Return True for each class of the attribute that has one value."""
    return np.array([len(values) == 1 for values in [*counted.columns.values()][counted.axis]])


def _one_value(counted: Counted, ranges: Ranges) -> tuple[int, int]:
    """Return the people in groups with one possible value, and in those not computed."""
    shape, axis = counted.counts.shape, counted.axis
    people = counted.counts.sum(axis=axis)
    outer = (ranges.high.reshape(shape) > 0).sum(axis=axis)
    inner = (ranges.most.reshape(shape) > 0).sum(axis=axis)
    alone = np.moveaxis(counted.counts > 0, axis, -1)[..., _single(counted)].any(axis=-1)
    return (
        int(people[(outer == 1) & alone].sum()),
        int(people[(outer > 1) & (inner == 1) & alone].sum()),
    )


def _ranges(counted: Counted, ranges: Ranges) -> Iterator[tuple[dict[str, str], int, int, bool]]:
    shape = counted.counts.shape
    for cell in np.flatnonzero(ranges.high).tolist():
        spot = np.unravel_index(cell, shape)
        values = {
            name: ", ".join(classes[int(k)])
            for (name, classes), k in zip(counted.columns.items(), spot, strict=True)
        }
        yield values, int(ranges.low[cell]), int(ranges.high[cell]), bool(ranges.exact[cell])


def _all_rows_known(counted: Counted) -> tuple[tuple[TableRisk, ...], int, Powers | None]:
    """Return what each table, and all together, reveal to an attacker who knows all other rows."""
    shape, axis = counted.counts.shape, counted.axis
    counts, number = counted.counts.ravel(), shape[axis]
    occupied = np.flatnonzero(counts)
    if len(occupied) * number > MOVES:
        raise ValueError(
            f"{len(occupied):,} cells with people and {number:,} values of the attribute: the "
            f"product must be at most {MOVES:,}; give the rows and tables of one region"
        )
    stride = int(np.prod(shape[axis + 1 :], dtype=int))
    own = occupied // stride % number
    together = _single(counted)[own]
    alone = [together.copy() for _ in counted.tables]
    every = [Moves(table) for table in counted.tables]
    joint: set[tuple[Change, ...]] = set()
    for value in range(number):
        moved = np.flatnonzero(own != value)
        before = occupied[moved]
        after = before + stride * (value - own[moved])
        changes: list[list[Change]] = []
        excluded = np.zeros(len(moved), bool)
        for moves, certain in zip(every, alone, strict=True):
            pairs = zip(
                moves.table.at[before].tolist(), moves.table.at[after].tolist(), strict=True
            )
            found = [moves.of(*pair) for pair in pairs]
            out = np.array([not possible for possible, _ in found], bool)
            certain[moved] &= out
            excluded |= out
            changes.append([change for _, change in found])
        together[moved] &= excluded
        joint.update(zip(*changes, strict=True))
    people = counts[occupied]
    tables = tuple(
        _table_risk(moves.table, int(people[certain].sum()), {(one[k],) for one in joint})
        for k, (moves, certain) in enumerate(zip(every, alone, strict=True))
    )
    return tables, int(people[together].sum()), largest_powers(joint)


def _table_risk(table: Table, certain: int, changes: set[tuple[Change, ...]]) -> TableRisk:
    """Return what a table reveals, and for swaps, what an exchange of two values changes."""
    method, powers = table.method, largest_powers(changes)
    exact = not (method.round or method.suppress or method.swap) and changes == {(APART,)}
    if method.swap is None:
        return TableRisk(table.name, exact, certain, powers)
    swaps, left = Swaps(method.swap.rate), 0
    pairs: list[Composition] = []
    for cells in swap_groups(table):
        counts = table.counts[cells]
        counts = counts[counts.any(axis=1)][:, counts.any(axis=0)]
        laws = swaps.pairs(tuple(map(tuple, counts.tolist())))
        if laws is None:
            left += int(counts.sum())
        pairs += [composition(*pair) for pair in laws or ()]
    return TableRisk(table.name, exact, certain, powers, power_at_levels(pairs), left)
