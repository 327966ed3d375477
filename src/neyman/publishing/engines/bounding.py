"""Bound each unit's contribution by a choice among its rows that depends on this unit alone [UN-1].

Rows are ranked by a keyed SHA-256 (`expressions.digest`). Its input is the numbers that decide what
a row adds, the copy number among equal rows, and the unit. These numbers break ties. The first rows
of each unit stay. They are the same on every engine for the same key. Cells are ranked in the same
way. Each call draws a new key, which is stored only in a table of one row. No digest is published.
The key makes the choice fair. The guarantee holds for every key.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis

from neyman.publishing.engines.backends import Value, backend_of
from neyman.publishing.engines.expressions import digest

_DIGEST_DIGITS = 16  # hexadecimal digits of the digest that rows are ordered by


def first_rows(
    rows: ibis.Table,
    names: Sequence[str],
    most: int,
    key: ibis.Table,
    label: int,
    within: Sequence[str] = (),
) -> ibis.Table:
    """Return the first ``most`` rows of each unit, or of each unit and cell [UN-1].

    Args:
        rows: the bytes ``unit`` (no NULL), and the ``names``.
        names: columns of integers without NULL, and of bytes. They determine a row.
        key: the table of the secret key.
        label: different labels make different choices with one key.
        within: the names that form the cell.
    """
    single = backend_of(rows).copies(rows, ["unit", *names])
    numbered = _rank_rows(single, key, label, [*names, "copy"])
    order = ["rank", *names, "copy"]
    return _rows_below(numbered, ibis.row_number(), ["unit", *within], order, most, names)


def first_cells(
    rows: ibis.Table,
    names: Sequence[str],
    most: int,
    key: ibis.Table,
    label: int,
    cell: Sequence[str],
) -> ibis.Table:
    """Return all rows of the first ``most`` cells of each unit; see `first_rows`."""
    if not cell:
        return rows
    numbered = _rank_rows(rows, key, label, cell)
    return _rows_below(numbered, ibis.dense_rank(), ["unit"], ["rank", *cell], most, names)


def _rank_rows(rows: ibis.Table, key: ibis.Table, label: int, numbers: Sequence[str]) -> ibis.Table:
    both = rows.cross_join(key)
    hashed = digest(
        both["key"], [ibis.literal(label), *(both[name] for name in numbers)], both["unit"]
    )
    return both.mutate(rank=hashed.substr(0, _DIGEST_DIGITS)).drop("key")


def _rows_below(
    rows: ibis.Table,
    number: Value,
    group: list[str],
    order: list[str],
    most: int,
    names: Sequence[str],
) -> ibis.Table:
    window = ibis.window(group_by=group, order_by=order)
    numbered: Any = rows.mutate(place=number.over(window))
    return numbered.filter(numbered["place"] < most).select("unit", *names)
