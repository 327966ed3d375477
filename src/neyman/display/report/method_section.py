"""Write the section of a report on how the tables were made, from the receipt alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.digits import article, many
from neyman.display.report import html as markup
from neyman.display.report.measurement_units import declared_columns
from neyman.display.report.receipt_view import detail_text, listing, tables_of, title, unit
from neyman.elements import Node, joined
from neyman.publishing.plan.clip_search import ROWS_TABLE
from neyman.publishing.plan.expression_words import words as expression_words
from neyman.publishing.plan.hierarchy import ALL
from neyman.publishing.release.receipt_format import Receipt


def method(receipt: Receipt) -> markup.Fold:
    """Return the section on tables, noise, rows, columns, bounds, and neighboring datasets."""
    subject, rows = unit(receipt)
    noisy = tables_of(receipt)
    change = words.change(receipt.neighboring, subject, rows, receipt.guarantee.held)
    facts: list[tuple[str, Node]] = [
        ("Noisy tables", listing(receipt, noisy) or "none"),
        ("Noise", _noise(receipt) if noisy else ""),
        ("Filter", _filters(receipt)),
        ("Disjoint queries", _disjoint(receipt)),
        ("Joins", _joined_tables(receipt)),
        ("Derived columns", _derived_columns(receipt)),
        ("Time zones", _zones(receipt)),
        ("Contribution bounds", _bounds(receipt)),
        ("Noisy clips", _discovered_clips(receipt)),
        ("Detail of groups", _detail(receipt)),
        ("Neighboring datasets", f"this dataset, and the same {change}"),
    ]
    about = "Noise, filters, joins, derived columns, and bounds"
    return markup.Fold("method", "How the tables were made", about, markup.facts(facts))


_NOISE = {
    "discrete-gaussian": "whole numbers drawn exactly from the discrete Gaussian distribution (a "
    "bell curve on the whole numbers)",
    "rounded-gaussian": "normal noise, drawn exactly and rounded to whole numbers",
}


def _noise(receipt: Receipt) -> str:
    """Describe the noise of the tables, and the random draws of quantiles."""
    measures = {part.measure for part in receipt.mechanisms if not part.public}
    kind = str(receipt.plan.get("noise", "discrete-gaussian"))
    texts: list[str] = []
    if measures != {"rank"}:
        texts.append(f"{_NOISE.get(kind, kind)}, added to each number")
    if "rank" in measures:
        texts.append(
            "quantiles drawn at random, with higher probability near the true rank (inverse "
            "sensitivity)"
        )
    text = "; ".join(texts)
    return f"{text[0].upper()}{text[1:]}. The draws come from the operating system, without a seed."


def _filters(receipt: Receipt) -> Node:
    """Describe which rows count. Return nothing if all rows do."""
    plan = receipt.plan
    texts: list[Node] = []
    if plan.get("where") is not None:
        texts.append(f"only rows where {expression_words(str(plan['where']))}")
    for query in plan.get("query", ()):
        if query.get("where") is not None:
            condition = expression_words(str(query["where"]))
            texts.append(
                [
                    "for ",
                    markup.strong(title(receipt, str(query["name"]))),
                    f", only rows where {condition}",
                ]
            )
    return markup.with_last_line(
        texts,
        "A row counts if its condition is true. A comparison with a missing value is neither true "
        "nor false, and its opposite is neither. The number of rows that count is protected.",
    )


def _disjoint(receipt: Receipt) -> str:
    """Describe how disjoint queries are charged. Return nothing if all charges are added up."""
    one = receipt.unit.protects
    rule = (
        f"Where filters exclude each other, {article(one)} {one} is in at most one of these "
        "queries. The guarantee is for the worst queries that one change can move together, and "
        "not for the sum of all. Queries whose filters are not proved to exclude each other are "
        "added up."
    )
    return rule if receipt.plan.get("disjoint") else ""


def _joined_tables(receipt: Receipt) -> Node:
    """Return the tables with one row per unit, one per line."""
    plan = receipt.plan
    tables: Mapping[str, Any] = plan.get("tables", {})
    texts: list[str] = []
    for name, part in tables.items():
        if "duplicates" not in part:
            continue
        rule = {"drop": "has none of them", "least": "has the least of them"}[part["duplicates"]]
        several = f"A {receipt.unit.protects} with several rows in {name} {rule}."
        names = ", ".join(part.get("join", ()))
        what = f"{names} from {name} to each row of {plan['table']}. " if names else ""
        texts.append(what + several)
    return markup.lines(texts)


def _derived_columns(receipt: Receipt) -> Node:
    """Return the derived columns, one per line."""
    derived: Mapping[str, Any] = receipt.plan.get("derive", {})
    texts = [[markup.strong(name), f" {_rule(part)}"] for name, part in derived.items()]
    lookups: Mapping[str, Any] = receipt.plan.get("lookup", {})
    for name, part in lookups.items():
        column: str | list[str] = part["column"]
        listed = [column] if isinstance(column, str) else column
        of = " and ".join(map(expression_words, listed))
        values = many(len(part["keys"]), "value")
        texts.append([markup.strong(name), f" from a public list of {values} of {of}"])
    return markup.lines(texts)


def _zones(receipt: Receipt) -> Node:
    """Return the time zones of the days and hours of timestamps, one column per line."""
    zones = [(name, part.get("zone")) for name, part in declared_columns(receipt).items()]
    lines = [
        [markup.strong(name), f" has days and hours of {zone}"] for name, zone in zones if zone
    ]
    return markup.lines(lines)


def _rule(part: Mapping[str, Any]) -> str:
    if "cut" in part:
        edges = ", ".join(str(edge) for edge in part["edges"])
        return f"from {expression_words(str(part['cut']))}, cut at {edges}"
    if "map" in part:
        mapped = many(len(part["to"]), "text")
        return f"from {expression_words(str(part['map']))}, {mapped} mapped"
    if "case" in part:
        cases = [f"{label} if {expression_words(str(text))}" for text, label in part["case"]]
        return "; ".join(cases)
    ends = part.get("range")
    clipped = f"; clipped to {ends[0]} to {ends[1]}" if ends else ""
    return f"{expression_words(str(part['expression']))}{clipped}"


def _bounds(receipt: Receipt) -> Node:
    """Return the contribution bounds, or nothing if a unit is a row."""
    subject, rows = unit(receipt)
    plan = receipt.plan
    if plan.get("unit", {}).get("id") is None:
        return ""
    tables: Mapping[str, Any] = plan.get("tables", {})
    texts: list[Node] = [f"at most {many(rows, 'record')} of each {subject} counted"]
    if tables:
        bounds = {str(plan["table"]): plan["unit"]["rows"]}
        bounds |= {name: part["rows"] for name, part in tables.items()}
        each_table = [f"{bound:,} in {name}" for name, bound in bounds.items()]
        texts = [f"of the records of each {subject}, at most {', '.join(each_table)}"]
    for query in plan.get("query", ()):
        groups, each = query.get("groups"), query.get("rows_per_group")
        parts: list[str] = []
        if groups is not None:
            parts.append(f"in at most {many(groups, 'cell')}")
        if each is not None:
            parts.append(f"at most {each:,} to a cell")
        if parts:
            texts.append(
                ["for ", markup.strong(title(receipt, str(query["name"]))), f" {', '.join(parts)}"]
            )
    return markup.with_last_line(
        [joined("; ", texts)],
        "Records over a bound were dropped at random. How many is not published: that would be one "
        "more answer about the data.",
    )


def _detail(receipt: Receipt) -> Node:
    texts = [
        [markup.strong(title(receipt, str(query["name"]))), f" {detail_text(query)}"]
        for query in receipt.plan.get("query", ())
        if "detail" in query
    ]
    return markup.with_last_line(
        texts,
        "The thresholds are public. The guarantee is for the first counts together with the "
        "tables that they lead to, whichever these are.",
    )


def _discovered_clips(receipt: Receipt) -> Node:
    texts: list[Node] = []
    for part in receipt.clips:
        bound = (
            f"at most {part.clip[-1]} records counted of each"
            if part.histogram == f"{ROWS_TABLE}.{ALL}"
            else f"values from {part.clip[0]} to {part.clip[-1]}"
        )
        texts.append([markup.strong(part.bounds), f" {bound}, from ", markup.code(part.histogram)])
    return markup.with_last_line(
        texts,
        "These follow from published noisy histograms. Values outside are clipped to the bound. No "
        "margin of error covers that.",
    )
