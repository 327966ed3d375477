"""Compute what tables without noise reveal about each person, for three attackers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neyman.auditing.plain_tables.attack_power import exchanges, largest_powers, rounded_move
from neyman.auditing.plain_tables.counted import Counted, Table, count_rows
from neyman.auditing.plain_tables.method import read_method
from neyman.auditing.plain_tables.possible_counts import possible_counts
from neyman.auditing.plain_tables.published_sums import PublishedSums, wrong_numbers
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.publishing.engines.private_tables import NOTICE

MOVES = 1_000_000  # cross cells with people, times values of the attribute


def plain_tables_risk(paths: Sequence[Path], data: str, method_file: Path) -> dict[str, Any]:
    """Compute what tables without noise reveal about the rows that they count.

    Args:
        paths: the tables, CSV files.
        data: the rows, one per person, as a run reads them.
        method_file: the method, a TOML file.

    Returns:
        The private answer, as JSON types: the notice, the attribute, and the number of people.
        Then the tables with exact counts by the attribute, and for each table, and for all of
        several, what an attacker learns who knows all other rows: see `_known_rows`. Then the
        people in groups by the other columns in which one value is possible, the people in cells of
        the cross-table with one possible count, for how many people each is not computed, and the
        columns and ranges of its cells.

    Raises:
        ValueError: the method does not make these tables from the rows, something does not fit, or
            a size is over its limit.
    """
    method = read_method(method_file)
    counted = count_rows(paths, data, method)
    for table in counted.tables:
        if wrong := wrong_numbers(table):
            raise ValueError(
                f"{table.name} is not the table that {str(method_file)!r} makes from the data: "
                f"{wrong:,} numbers differ; correct the method, or give the rows of this table"
            )
    occupied, number = int((counted.counts > 0).sum()), counted.counts.shape[counted.axis]
    if occupied * number > MOVES:
        raise ValueError(
            f"{occupied:,} cells have people, and {method.attribute!r} has {number:,} values: the "
            f"product must be at most {MOVES:,}; give the rows and tables of one region"
        )
    several = [counted.tables] if len(counted.tables) > 1 else []
    known = [_known_rows(counted, each) for each in (*((t,) for t in counted.tables), *several)]
    counts, axis = counted.counts, counted.axis
    groups, cells = possible_counts(counted, groups_known=True), possible_counts(counted)
    outer, inner = ((high > 0).sum(axis=axis) for high in (groups.high, groups.most))
    alone = np.moveaxis(counts > 0, axis, -1)[..., counted.single].any(axis=-1)
    people = counts.sum(axis=axis)
    exact = (cells.low == cells.least) & (cells.high == cells.most)
    return {
        "private": NOTICE,
        "attribute": method.attribute,
        "people": int(counts.sum()),
        "exact": [
            table.name
            for table, each in zip(counted.tables, known, strict=False)
            if each["certain"] == counts.sum()
            and not (table.method.round or table.method.suppress or table.method.swap)
        ],
        "known_rows": known,
        "groups": int(people[(outer == 1) & alone].sum()),
        "groups_not_computed": int(people[(outer > 1) & (inner == 1) & alone].sum()),
        "cells": int(counts[cells.low == cells.high].sum()),
        "cells_not_computed": int(counts[~exact & (cells.least == cells.most)].sum()),
        "columns": [*counted.values],
        "ranges": [
            {
                "cell": [
                    ", ".join(of[k]) for of, k in zip(counted.values.values(), spot, strict=True)
                ],
                "least": int(cells.low[spot]),
                "largest": int(cells.high[spot]),
                "exact": bool(exact[spot]),
            }
            for spot in map(tuple, np.argwhere(cells.high).tolist())
        ],
    }


def _known_rows(counted: Counted, tables: Sequence[Table]) -> dict[str, Any]:
    """Return what tables reveal if all other rows are known.

    Returns:
        The tables, and the people for whom the tables make every other value impossible. Then the
        largest power against one record by level, or None if it is not computed. For swaps, the
        power against two people who exchange their values of the swapped column, and how many
        people are in groups that are too large for this.
    """
    cells = np.moveaxis(
        np.arange(counted.counts.size).reshape(counted.counts.shape), counted.axis, -1
    )
    counts, single = counted.counts.ravel().tolist(), counted.single.tolist()
    systems = [(PublishedSums(counted, [table]), table.method) for table in tables]
    certain, revealed = 0, False
    different = set[tuple[tuple[int, int, int], ...]]()
    for line in cells.reshape(-1, len(single)).tolist():
        for k, before in enumerate(line):
            alone = bool(single[k]) and counts[before] > 0
            for after in line if counts[before] else ():
                wrong, law = after == before, list[tuple[int, int, int]]()
                for sums, method in systems:
                    moved = sums.moved(before, after)
                    out = not all(low <= count + step <= high for low, count, high, step in moved)
                    wrong |= out
                    if method.random and method.round:
                        law += ((method.round, n % method.round, step) for _, n, _, step in moved)
                    else:
                        revealed |= out
                alone &= wrong
                different.add(tuple(sorted(law)))
            certain += counts[before] * alone
    pairs = (
        Composition.of(p for each in law for p in rounded_move(*each).parts) for law in different
    )
    swapped, left = exchanges(tables[0]) if len(tables) == 1 else ([], 0)
    return {
        "tables": [table.name for table in tables],
        "certain": certain,
        "power": largest_powers([Composition.of([(NonPrivateLoss(), 1)])] if revealed else pairs),
        "exchange": largest_powers(swapped) if swapped else None,
        "not_enumerated": left,
    }
