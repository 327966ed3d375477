"""Compute what tables without noise reveal about each person, for three attackers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neyman.auditing.plain_tables.allowed import impossible, wrong_numbers
from neyman.auditing.plain_tables.attack_power import (
    Powers,
    exchanges,
    largest_powers,
    rests,
    rounded_pair,
)
from neyman.auditing.plain_tables.counted import Counted, Table, count_rows
from neyman.auditing.plain_tables.method import read_method
from neyman.auditing.plain_tables.possible_counts import PossibleCounts
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.publishing.engines.private_tables import NOTICE, Private

MOVES = 4_000_000  # cross cells with people, times values of the attribute, or cells of a line


@dataclass(frozen=True, repr=False)
class KnownRows(Private):
    """Report what tables reveal to an attacker who knows all other rows.

    Args:
        tables: the files.
        certain: people for whom the tables make every other value impossible.
        powers: the largest power against one record, by level. None if it is not computed.
        exchange: for swaps, the largest power against two people who exchange their values of the
            swapped column, by level. None if it is not computed, or nothing can be exchanged.
        not_enumerated: people in groups of swaps that are too large for it.
    """

    tables: tuple[str, ...]
    certain: int
    powers: Powers | None
    exchange: Powers | None
    not_enumerated: int


@dataclass(frozen=True)
class CellRange:
    """Give the least and the largest count of a cell, and True if they are exact."""

    values: dict[str, str]
    least: int
    largest: int
    exact: bool


@dataclass(frozen=True, repr=False)
class PlainTablesRisk(Private):
    """Report what tables without noise reveal. This report is private.

    Args:
        attribute: the attribute.
        people: the number of rows.
        exact: the tables with exact counts by each value of the attribute.
        known_rows: what each table reveals if all other rows are known, and then all of several.
        groups: people in groups by the other columns in which one value is possible.
        groups_not_computed: people in groups for which this is not computed.
        cells: people in cells of the cross-table with one possible count.
        cells_not_computed: people in cells for which this is not computed.
        ranges: the cells of the cross-table that may have people.
    """

    attribute: str
    people: int
    exact: tuple[str, ...]
    known_rows: tuple[KnownRows, ...]
    groups: int
    groups_not_computed: int
    cells: int
    cells_not_computed: int
    ranges: tuple[CellRange, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {"private": NOTICE, **asdict(self)}


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
        if wrong := wrong_numbers(table):
            raise ValueError(
                f"{table.name} is not the table that {str(made_by)!r} makes from the data: "
                f"{wrong:,} numbers differ; correct the method, or give the rows of this table"
            )
    several = [counted.tables] if len(counted.tables) > 1 else []
    known = [_known_rows(counted, each) for each in (*((t,) for t in counted.tables), *several)]
    counts, axis = counted.counts, counted.axis
    groups = PossibleCounts(counted, groups_known=True)
    outer, inner = ((high > 0).sum(axis=axis) for high in (groups.high, groups.most))
    alone = np.moveaxis(counts > 0, axis, -1)[..., counted.single].any(axis=-1)
    people = counts.sum(axis=axis)
    cells = PossibleCounts(counted)
    exact = (cells.low == cells.least) & (cells.high == cells.most)
    ranges = (
        CellRange(
            {
                name: ", ".join(of[k])
                for (name, of), k in zip(counted.values.items(), spot, strict=True)
            },
            int(cells.low[spot]),
            int(cells.high[spot]),
            bool(exact[spot]),
        )
        for spot in map(tuple, np.argwhere(cells.high).tolist())
    )
    return PlainTablesRisk(
        method.attribute,
        int(counts.sum()),
        tuple(
            table.name
            for table, each in zip(counted.tables, known, strict=False)
            if table.method.is_exact and each.certain == counts.sum()
        ),
        tuple(known),
        int(people[(outer == 1) & alone].sum()),
        int(people[(outer > 1) & (inner == 1) & alone].sum()),
        int(counts[cells.low == cells.high].sum()),
        int(counts[~exact & (cells.least == cells.most)].sum()),
        tuple(ranges),
    )


def _known_rows(counted: Counted, tables: Sequence[Table]) -> KnownRows:
    """Return what tables reveal if all other rows are known."""
    shape, axis = counted.counts.shape, counted.axis
    counts, number = counted.counts.ravel(), shape[axis]
    occupied = np.flatnonzero(counts)
    wide = max(number, *(table.counts.shape[1] for table in tables))
    if len(occupied) * wide > MOVES:
        raise ValueError(
            f"{len(occupied):,} cells have people, and the attribute or a line with a total has "
            f"{wide:,} cells: their product must be at most {MOVES:,}; give the rows and tables of "
            "one region"
        )
    stride = int(np.prod(shape[axis + 1 :], dtype=int))
    own = occupied // stride % number
    certain, revealed = counted.single[own], False
    different: set[tuple[int, ...]] = set()
    for value in range(number):
        moved = np.flatnonzero(own != value)
        before = occupied[moved]
        after = before + stride * (value - own[moved])
        out, laws = np.zeros(len(moved), bool), [np.zeros((len(moved), 0), np.int64)]
        for table in tables:
            pair = table.at[before], table.at[after]
            one = impossible(table, *pair)
            out |= one
            if table.method.random and table.method.round is not None:
                laws.append(rests(table, table.method.round, *pair))
            else:
                revealed |= bool(one.any())
        certain[moved] &= out
        different |= {*map(tuple, np.unique(np.hstack(laws), axis=0).tolist())}
    bases = [one.method.round for one in tables if one.method.random and one.method.round]
    pairs = (
        Composition.of(
            part
            for k, base in enumerate(bases)
            for part in rounded_pair(law[4 * k : 4 * k + 4], base).parts
        )
        for law in different or {()}
    )
    surely = [Composition.of([(NonPrivateLoss(), 1)])]
    swapped, left = exchanges(tables[0]) if len(tables) == 1 else ([], 0)
    return KnownRows(
        tuple(table.name for table in tables),
        int(counts[occupied][certain].sum()),
        largest_powers(surely if revealed else pairs),
        largest_powers(swapped),
        left,
    )
