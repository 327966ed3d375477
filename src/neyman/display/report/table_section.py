"""Write the section of a report on what each table measures, with its first rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import numpy as np

from neyman.accounting.semantics.digits import many, number, plural
from neyman.display.report import html as markup
from neyman.display.report.measurement_units import declared_columns, unit_of_values
from neyman.display.report.receipt_view import Entries, detail_text, place, tables_of, title, unit
from neyman.display.report.table_accuracy import Table
from neyman.elements import Node, element, joined
from neyman.publishing.plan.expression_words import words as expression_words
from neyman.publishing.plan.hierarchy import CROSSED
from neyman.publishing.plan.measures import (
    MEASURES,
    Count,
    Distinct,
    Histogram,
    Maximum,
    Mean,
    Median,
    Minimum,
    Quantiles,
    Ratio,
    StandardDeviation,
    Sum,
    Units,
    Variance,
    first_table,
)
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query_part import VALUE_COLUMNS, QueryPart
from neyman.publishing.planning.missing_values import missing_by_sentence
from neyman.publishing.release.receipt_format import Receipt


@dataclass(frozen=True)
class Limits:
    """Limit how much of a table is shown."""

    edges: int = 12  # bin edges that are listed one by one
    tables: int = 200  # tables whose first rows are shown


LIMITS = Limits()

_DECIMAL = re.compile(r"-?[0-9]+([.][0-9]*)?")

NOUNS: Mapping[type[QueryPart], str] = {
    Count: "Number of rows",
    Units: "Number of units",
    Distinct: "Number of distinct values",
    Histogram: "Number of rows per bin",
    Mean: "Mean",
    Median: "Median",
    Maximum: "99% quantile",
    Minimum: "1% quantile",
    Quantiles: "Quantiles",
    Ratio: "Ratio of sums",
    StandardDeviation: "Standard deviation",
    Sum: "Sum",
    Variance: "Variance",
}
"""What each measure is, in the words of a report."""


def contents(
    receipt: Receipt, tables: Mapping[str, Table], folder: str = "", plan: Plan | None = None
) -> markup.Fold | None:
    """Return the section on what each query measures, with its tables' files and first rows."""
    by_sentence = missing_by_sentence(plan) if plan else {}
    missing = {name: sentence for sentence, names in by_sentence.items() for name in names}
    queries: Sequence[Mapping[str, Any]] = receipt.plan.get("query", ())
    if not queries:
        return None
    room = LIMITS.tables
    blocks: list[Node] = []
    for query in queries:
        name = str(query["name"])
        levels = [e[0].level for e in _entries(receipt) if e[0].query == name]
        rows = [first_rows(f"{name}.{level}", tables) for level in levels[:room]]
        room -= len(levels[:room])
        facts = markup.facts(
            [
                ("Measure", _measure(receipt, query)),
                *_details(receipt, query, folder, missing.get(name)),
            ]
        )
        blocks.append(markup.blocks(element("h3", title(receipt, name)), facts, rows))
    return markup.Fold(
        "contents",
        "What each table contains",
        "Measure, unit, groups, bounds, missing values, files, and first rows",
        markup.blocks(*blocks),
    )


def _entries(receipt: Receipt) -> Sequence[Entries]:
    return [*tables_of(receipt, public=True), *tables_of(receipt)]


def _measure(receipt: Receipt, query: Mapping[str, Any]) -> Node:
    """Say what is measured, of which column, and for which groups."""
    subject, _ = unit(receipt)
    measure = str(query["measure"])
    kind = MEASURES.get(measure)
    text = measure if kind is None else NOUNS[kind]
    if kind is Units:
        text = f"Number of {plural(subject)}"
    said: list[Node] = [text]
    for link, name in (("of", "column"), ("over", "over")):
        if query.get(name):
            said += [f" {link} ", markup.code(query[name])]
    if query.get("quantiles"):
        said.append(f" at {', '.join(map(str, query['quantiles']))}")
    groups = [markup.code(name) for name in query.get("by", ())]
    if groups:
        said += [", by ", joined(", ", groups)]
    levels = query.get("at", ())
    if levels:
        said.append(f", {', '.join(place(str(level)) for level in levels)}")
    return said


def _bins(edges: Any) -> str:
    if edges is None:
        return ""
    listed = isinstance(edges, Sequence) and not isinstance(edges, str)
    shown = _edges(_values(edges)) if listed else f"{edges}"
    return f"{shown}; numbers outside count in the first or the last bin"


def _files(receipt: Receipt, query: Mapping[str, Any], folder: str) -> Node:
    names = [str(query["name"])]
    names += [first_table(names[0])] if "detail" in query else []
    return joined(
        ", ", [markup.file_link(t.path, folder) for t in receipt.tables if t.query in names]
    )


def _details(
    receipt: Receipt, query: Mapping[str, Any], folder: str, missing: str | None
) -> list[tuple[str, Node]]:
    """Return facts about a query: a term, and its value, or "" if the query has none."""
    clips = [
        [markup.code(query[name]), f" {clip}"]
        for name, field in (("column", "clip"), ("over", "clip_over"))
        if query.get(name) and (clip := _clip(receipt, query, field)) is not None
    ]
    conditions = [text for text in (receipt.plan.get("where"), query.get("where")) if text]
    bounds = [("groups", "cells"), ("rows_per_group", "rows in each cell")]
    most = [f"at most {query[f]:,} {what}" for f, what in bounds if query.get(f) is not None]
    own = [part for part in receipt.mechanisms if part.query == query["name"]]
    thresholds = [
        f"{place(part.level)}: a noisy count of {part.threshold:,}"
        for part in own
        if part.threshold is not None
    ]
    ranks = [
        f"{place(part.level)}: of the n rows of a cell, fewer than qn + "
        f"{number(part.half_width_90)} are below the q-quantile, and more than qn − "
        f"{number(part.half_width_90)} are at most it (90%)"
        for part in own
        if part.measure == "rank"
    ]
    table = query.get("table", receipt.plan.get("table"))
    return [
        ("Private table", markup.code(table) if receipt.plan.get("tables") else ""),
        ("Unit of the values", unit_of_values(receipt, str(query["name"]))),
        ("Privacy unit", "; ".join([_privacy_unit(receipt, query), *most])),
        ("Detail", detail_text(query) if "detail" in query else ""),
        ("Coverage", markup.lines(_coverage(receipt, query))),
        ("Clip", markup.lines(clips)),
        ("Ranks", markup.lines(ranks)),
        ("Bins", _bins(query.get("edges"))),
        ("Small cells", _small_cells(query)),
        ("Filter", expression_words(*map(str, conditions)) if conditions else ""),
        ("Missing values", missing or markup.lines(_missing_values(receipt, query))),
        ("Threshold of discovered keys", markup.lines(thresholds)),
        ("Files", _files(receipt, query, folder)),
        ("Values", "" if {"share", "public"} & query.keys() else "fixed by the totals"),
    ]


def _small_cells(query: Mapping[str, Any]) -> str:
    """Say how small and negative cells are printed, and how far that raises totals."""
    said: list[str] = []
    if rule := query.get("print"):
        said.append(
            f"a noisy value below {rule['below']} is printed as {rule['as']}, without a number"
        )
    if query.get("nonnegative"):
        # E max(0, Z) of normal noise is 1 / sqrt(2 pi) = 0.399 of its standard deviation, and less
        # for a cell above 0.
        said.append(
            "a noisy value below 0 is published as 0, which raises totals: each cell that is 0 in "
            "the data by about 0.4 standard errors on average, and no cell by more"
        )
    return "; ".join([*said, "this protects nothing: the noise does"]) if said else ""


def _privacy_unit(receipt: Receipt, query: Mapping[str, Any]) -> str:
    """Return the privacy unit, with the largest number of its rows that count in the table."""
    tables: Mapping[str, Any] = receipt.plan.get("tables", {})
    own = receipt.plan.get("unit", {}).get("rows", receipt.unit.rows)
    rows = tables.get(str(query.get("table")), {}).get("rows", own)
    count = receipt.unit.rows if isinstance(rows, str) else int(rows)
    return f"one {receipt.unit.protects}, with at most {many(count, 'row')} in this table"


def _clip(receipt: Receipt, query: Mapping[str, Any], field: str) -> str | None:
    clip: Any = query.get(field)
    if isinstance(clip, Sequence) and not isinstance(clip, str) and len(_values(clip)) == 2:
        return " to ".join(map(_number, _values(clip)))
    for part in receipt.clips:
        if part.bounds == query["name"] and len(part.clip) == 2:
            return f"{_number(part.clip[0])} to {_number(part.clip[-1])}, from a noisy histogram"
    return None


def _edges(edges: Sequence[object]) -> str:
    texts = [_number(edge) for edge in edges]
    if len(edges) <= LIMITS.edges:
        return "; ".join(texts)
    return f"{many(len(edges) - 1, 'bin')} from {texts[0]} to {texts[-1]}"


def _coverage(receipt: Receipt, query: Mapping[str, Any]) -> list[Node]:
    """Say which keys a table covers, and what happens to other values."""
    columns = declared_columns(receipt)
    lines: list[Node] = []
    inner = [name for level in query.get("detail", ()) for name in level]
    for name in dict.fromkeys((*query.get("by", ()), *inner)):
        column = columns.get(name, {})
        if column.get("discover"):
            lines.append([markup.code(name), ": discovered keys; missing values are dropped"])
            continue
        keys = column.get("keys")
        listed = isinstance(keys, Sequence)
        size = many(len(_values(keys)), "listed key") if listed else "listed keys"
        lines.append([markup.code(name), f": {size}", _others(column)])
    hierarchy: Mapping[str, Any] = receipt.plan.get("hierarchy", {})
    at = set(query.get("at", ()))
    if len(hierarchy) > 1:
        at = {level for pair in at for level in pair.split(CROSSED)}
    for name, part in hierarchy.items():
        levels = part.get("levels", ())
        if not at & set(levels):
            continue
        if len(levels) == 1:
            lines.append([markup.code(name), ": listed places", _others(part)])
        else:  # a row of a listed state has no place if its county is unlisted
            paths = f": listed paths of {', '.join(levels)}"
            lines.append([markup.code(name), paths, _others(part, "paths")])
    return lines


def _missing_values(receipt: Receipt, query: Mapping[str, Any]) -> list[Node]:
    columns = declared_columns(receipt)
    return [
        [markup.code(name), ": ", _replacement(columns[name]["unknown"])]
        for name in filter(None, (query.get("column"), query.get("over")))
        if "unknown" in columns.get(name, {})
    ]


def _others(column: Mapping[str, Any], values: str = "values") -> Node:
    """Say what an unlisted value counts as."""
    return [f"; other {values}: ", _replacement(column["unknown"])] if "unknown" in column else ""


def _replacement(value: object) -> Node:
    """Say what a missing or unlisted value counts as."""
    if value == "drop":
        return "the row is dropped"
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = " / ".join(map(str, _values(value)))
    return ["counted as ", markup.code(value)]


def _values(values: Any) -> list[object]:
    return list(cast(Sequence[object], values))


def first_rows(name: str, tables: Mapping[str, Table]) -> Node:
    """Return the first rows of a table, or "" if it is missing or empty.

    Args:
        name: name of the table, "query.level".
    """
    table: Any = tables.get(name)
    if table is None:
        return ""
    first_rows = 3  # rows shown per table
    if hasattr(table, "slice"):
        batch = table.slice(0, first_rows)
    else:  # a Parquet file
        batch = next(table.iter_batches(first_rows, use_threads=False), None)
    if batch is None or batch.num_rows == 0:
        return ""
    names: list[str] = [_short_text(column) for column in batch.schema.names]
    columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
    text = [i for i, column in enumerate(columns) if any(isinstance(x, str) for x in column)]
    rounded = any(isinstance(x, float) for column in columns for x in column)
    measured = [name in VALUE_COLUMNS for name in batch.schema.names]
    rows = [
        [
            _number(value) if number else _short_text(value)
            for value, number in zip(row, measured, strict=True)
        ]
        for row in zip(*columns, strict=True)
    ]
    digits = " (fractions are rounded; the files have every digit)" if rounded else ""
    return markup.table(
        names, rows, caption=f"First rows of {name}{digits}", left=text, kind="first"
    )


def _number(value: object) -> str:
    """Return a number of a plan or a table with thousands separators."""
    text = _short_text(value)
    return f"{Decimal(text):,f}" if _DECIMAL.fullmatch(text) else text


def _short_text(value: object) -> str:
    """Return a value as text, cut to fit a cell."""
    text = "–" if value is None else str(value)
    if isinstance(value, float):
        text = np.format_float_positional(round(value, _decimals(value)), trim="-")
    cell_letters = 40  # letters per cell in these rows
    return text if len(text) <= cell_letters else text[: cell_letters - 1] + "…"


def _decimals(value: float) -> int:
    """Return the number of decimals that give a value at least six significant digits."""
    finite = value and math.isfinite(value)
    return max(0, 5 - math.floor(math.log10(abs(value)))) if finite else 0
