"""Bound each unit's contribution by a choice among its rows that depends on this unit alone [UN-1].

Each row gets a keyed SHA-256 digest (`expressions.digest`) of its unit, the numbers that decide
what it adds, and its copy number among equal rows. A unit's rows with the smallest digests stay,
and the numbers break ties. So each engine chooses the same rows for the same key. Cells are chosen
likewise. Each run draws a new key, stored only in a table of one row. No digest is published. The
guarantee holds for every key. The random key makes the choice fair.
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
    """Return at most ``most`` rows of each unit, or of each unit and cell [UN-1].

    Args:
        rows: rows with the columns ``unit``, bytes without NULL, and ``names``.
        names: columns of integers without NULL, or of bytes, that determine what a row adds.
        key: a table of one row with the secret key.
        label: different labels make different choices with one key.
        within: the columns that form a cell; none for all of a unit's rows.
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
    """Return the rows in at most ``most`` cells of each unit, with arguments as in `first_rows`.

    ``cell`` names the columns that form a cell.
    """
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
