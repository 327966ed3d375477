"""Bounds on what one unit adds, by a choice among its rows that looks at that unit alone [UN-1].

Rows are ranked by a keyed SHA-256 of the numbers that decide what they add, the number of the copy
among equal rows, and the unit (`expressions.digest`); of equal digests by these numbers. The first
so many of each unit are kept: the same ones on every engine, given the same key. Cells are ranked
in the same way. The key is drawn for each call, stands in a table of one row and nowhere else, and
no digest is published. It makes the choice fair; the guarantee holds for every key.
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
    """At most so many rows of each unit, or of each unit and cell [UN-1].

    Args:
        rows: the bytes ``unit`` (no NULL), and the ``names``.
        names: columns of whole numbers, no NULL, and of bytes, which are all that a row is.
        key: the table of the secret key.
        label: different labels make different choices by one key.
        within: those of the names that make the cell.
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
    """Keep all rows of at most so many cells of each unit; see `first_rows`."""
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
