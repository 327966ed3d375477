"""The first rows of a published table, with rounded fractions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from neyman.display.report import html as markup
from neyman.display.report.table_accuracy import Table
from neyman.elements import Node

__all__ = ["first_rows"]

_MOST_ROWS, _MOST_LETTERS = 3, 40  # of a table, and of a cell


def first_rows(name: str, tables: Mapping[str, Table]) -> Node:
    """The first rows of a table; "" if it is not there or empty.

    Args:
        name: "query.level".
        tables: as for `page_from`.
    """
    table: Any = tables.get(name)
    if table is None:
        return ""
    if hasattr(table, "slice"):
        batch = table.slice(0, _MOST_ROWS)
    else:  # a Parquet file
        batch = next(table.iter_batches(_MOST_ROWS, use_threads=False), None)
    if batch is None or batch.num_rows == 0:
        return ""
    names: list[str] = [_short(column) for column in batch.schema.names]
    columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
    text = [i for i, column in enumerate(columns) if any(isinstance(x, str) for x in column)]
    rounded = any(isinstance(x, float) for column in columns for x in column)
    rows = [[_short(value) for value in row] for row in zip(*columns, strict=True)]
    digits = " (fractions are rounded; the files have every digit)" if rounded else ""
    return markup.table(
        names, rows, caption=f"First rows of {name}{digits}", left=text, kind="first"
    )


def _short(value: Any) -> str:
    """A value as text, cut to fit a cell."""
    text = "–" if value is None else str(value)
    if isinstance(value, float):
        text = np.format_float_positional(round(value, _decimals(value)), trim="-")
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _decimals(value: float) -> int:
    """The decimals with which a value has at least six digits."""
    finite = value and math.isfinite(value)
    return max(0, 5 - math.floor(math.log10(abs(value)))) if finite else 0
