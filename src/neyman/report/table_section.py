"""The section of a report that states what each table measures, from the receipt alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, cast

from neyman.plan.expression_words import words as expression_words
from neyman.release.receipt_format import Receipt
from neyman.report import html as markup
from neyman.report.receipt_view import place, unit
from neyman.semantics import sentences as words
from neyman.semantics.digits import many

__all__ = ["contents"]

_MOST_EDGES = 12  # bin edges that are listed one by one

_MEASURES = {
    "count": "Number of rows",
    "distinct": "Number of distinct values",
    "histogram": "Number of rows per bin",
    "mean": "Mean",
    "median": "Median",
    "max": "99% quantile",
    "min": "1% quantile",
    "quantiles": "Quantiles",
    "ratio": "Ratio of sums",
    "standard_deviation": "Standard deviation",
    "sum": "Sum",
    "variance": "Variance",
}


def contents(receipt: Receipt) -> str:
    """The measure, groups, column, bounds, filter, missing values, and files of each query."""
    queries: Sequence[Mapping[str, Any]] = receipt.plan.get("query", ())
    if not queries:
        return ""
    rows = [
        [escape(str(query["name"])), _measure(receipt, query), _details(receipt, query)]
        for query in queries
    ]
    subject, _ = unit(receipt)
    table = markup.table(["Query", "Measure", "Details"], rows, left=(1, 2), kind="contents")
    return f"""<section class="folded" aria-labelledby="contents">
<h2 id="contents">What each table contains</h2>
<details><summary>Measure, groups, bounds, missing values, and files of each table</summary>
{table}
<p class="note">The privacy unit of every table is one {escape(subject)}. Each value is in the unit
of its column, as the data have it.</p>
</details>
</section>"""


def _measure(receipt: Receipt, query: Mapping[str, Any]) -> str:
    """What is measured, of which column, and for which groups; HTML."""
    subject, _ = unit(receipt)
    measure = str(query["measure"])
    text = _MEASURES.get(measure, measure)
    if measure == "units":
        text = f"Number of {words.plural(subject)}"
    text = escape(text)
    if query.get("column"):
        text += f" of {markup.code(query['column'])}"
    if query.get("over"):
        text += f" over {markup.code(query['over'])}"
    if query.get("quantiles"):
        text += f" at {escape(', '.join(map(str, query['quantiles'])))}"
    groups = [markup.code(name) for name in query.get("by", ())]
    if groups:
        text += f", by {', '.join(groups)}"
    levels = query.get("at", ())
    if levels:
        text += f", {', '.join(place(str(level)) for level in levels)}"
    return text


def _details(receipt: Receipt, query: Mapping[str, Any]) -> str:
    """Bounds, filter, missing values, threshold, and files, one a line; HTML."""
    lines: list[str] = []
    for name, field in (("column", "clip"), ("over", "clip_over")):
        if query.get(name) and (clip := _clip(receipt, query, field)) is not None:
            lines.append(f"Clip of {markup.code(query[name])}: {escape(clip)}")
    edges = query.get("edges")
    if isinstance(edges, Sequence) and not isinstance(edges, str):
        lines.append(f"Bins: {escape(_edges(_values(edges)))}")
    elif edges is not None:
        lines.append(f"Bins: {escape(str(edges))}")
    lines += _coverage(receipt, query)
    conditions = [text for text in (receipt.plan.get("where"), query.get("where")) if text]
    if conditions:
        lines.append(
            "Filter: " + " and ".join(escape(expression_words(str(text))) for text in conditions)
        )
    bounds = [("groups", "cells per unit"), ("rows_per_group", "rows per unit and cell")]
    lines += [f"At most {query[f]:,} {what}" for f, what in bounds if query.get(f) is not None]
    for part in receipt.mechanisms:
        if part.query == query["name"] and part.threshold is not None:
            lines.append(
                f"Threshold of discovered keys, {place(part.level)}: a noisy count of "
                f"{part.threshold:,}"
            )
    files = [t.path for t in receipt.tables if t.query == query["name"]]
    if files:
        lines.append("Files: " + ", ".join(markup.code(path) for path in files))
    return "<br>".join(lines)


def _clip(receipt: Receipt, query: Mapping[str, Any], field: str) -> str | None:
    clip: Any = query.get(field)
    if isinstance(clip, Sequence) and not isinstance(clip, str) and len(_values(clip)) == 2:
        return " to ".join(map(str, _values(clip)))
    for part in receipt.clips:
        if part.bounds == query["name"] and len(part.clip) == 2:
            return f"{part.clip[0]} to {part.clip[-1]}, from a noisy histogram"
    return None


def _edges(edges: Sequence[Any]) -> str:
    if len(edges) <= _MOST_EDGES:
        return ", ".join(map(str, edges))
    return f"{many(len(edges) - 1, 'bin')} from {edges[0]} to {edges[-1]}"


def _coverage(receipt: Receipt, query: Mapping[str, Any]) -> list[str]:
    """Which keys a table covers, and what happens to values that are missing or not listed."""
    parts = (receipt.plan.get(part, {}) for part in ("lookup", "derive", "columns"))
    columns: dict[str, Any] = {name: column for part in parts for name, column in part.items()}
    lines: list[str] = []
    for name in query.get("by", ()):
        column = columns.get(name, {})
        if column.get("discover"):
            lines.append(f"{markup.code(name)}: discovered keys; missing values are dropped")
            continue
        keys = column.get("keys")
        size = (
            f"{many(len(_values(keys)), 'listed key')}"
            if isinstance(keys, Sequence)
            else "listed keys"
        )
        lines.append(f"{markup.code(name)}: {size}{_others(column)}")
    for name in filter(None, (query.get("column"), query.get("over"))):
        if "unknown" in columns.get(name, {}):
            missing = _replacement(columns[name]["unknown"])
            lines.append(f"{markup.code(name)}: missing values: {missing}")
    hierarchy: Mapping[str, Any] = receipt.plan.get("hierarchy", {})
    for name, part in hierarchy.items():
        if set(query.get("at", ())) & set(part.get("levels", ())):
            lines.append(f"{markup.code(name)}: listed places{_others(part)}")
    return lines


def _others(column: Mapping[str, Any]) -> str:
    """What a value that is not listed counts as; HTML."""
    return f"; other values: {_replacement(value)}" if (value := column.get("unknown")) else ""


def _replacement(value: Any) -> str:
    """What a missing or unlisted value counts as; HTML."""
    if value == "drop":
        return "the row is dropped"
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = " / ".join(map(str, _values(value)))
    return f"counted as {markup.code(value)}"


def _values(values: Any) -> list[Any]:
    """The values of a list in a receipt."""
    return list(cast(Sequence[Any], values))
