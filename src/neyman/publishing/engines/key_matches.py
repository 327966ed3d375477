"""Count the values that match no key, are no numbers, or are clipped, before a release.

A run reads keys and numbers with the same expressions, `Coding` and `scaled_integer`.

If texts are no numbers or dates, the module suggests marks that would read more of them. A run
always reads by the plan's marks.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import ibis
import pyarrow as pa

from neyman.publishing.engines.aggregate import listed
from neyman.publishing.engines.backends import (
    Value,
    backend_of,
    counted,
    fetched,
    held,
    row_count,
    row_sum,
)
from neyman.publishing.engines.data_schema import (
    as_written,
    decimals_read,
    level_columns,
    used_hierarchies,
)
from neyman.publishing.engines.encoding import CodeColumn, Coding, Kind, names_of
from neyman.publishing.engines.expressions import (
    integer_of,
    scaled_integer,
    written_date,
    written_number,
)
from neyman.publishing.engines.private_tables import Private
from neyman.publishing.engines.row_values import read_as, with_plain_texts
from neyman.publishing.plan.column import Column, key_text, unscaled
from neyman.publishing.plan.derived import ISO_DATE, Derived, Reading, readings_of
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import SourcePart
from neyman.publishing.plan.row_expression import ColumnType

_REPLACING = ("map", "lookup")
_NUMBER_MARKS: Sequence[dict[str, str]] = (
    {"decimal": "."},
    {"decimal": ","},
    {"decimal": ".", "thousands": ","},
    {"decimal": ",", "thousands": "."},
    {"decimal": ".", "thousands": " "},
    {"decimal": ",", "thousands": " "},
    {"decimal": ".", "thousands": "'"},
    {"decimal": ",", "thousands": "'"},
)
_DATE_FORMS = (
    *("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d", "%d-%m-%Y", "%m-%d-%Y"),
    *("%Y/%m/%d", "%Y.%m.%d", "%d%m%Y", "%m%d%Y"),
)
_DATE = ColumnType("date")
_SCALED_RANGE = 2**53  # the widest range that `scaled_integer` takes


@dataclass(frozen=True, repr=False)
class Frequent(Private):
    """Hold a value of the data, or a path of several values, and the number of rows with it.

    Args:
        value: the text of each part; None if missing.
        rows: the number of rows with this value.
    """

    value: tuple[str | None, ...]
    rows: int


@dataclass(frozen=True, repr=False)
class KeyMatch(Private):
    """Count the rows that match a column's public keys, a hierarchy's places, or a map's texts.

    Args:
        columns: the column, the hierarchy's levels in the data, or the map or lookup.
        matched: rows whose value is a key.
        missing: rows without a value.
        unmatched: rows with a value that matches no key.
        values: the number of distinct values that match no key.
        frequent: the most frequent unmatched values, in order.
        unknown: the key that rows without a match go to, or None if tables by these keys drop them.
    """

    columns: tuple[str, ...]
    matched: int
    missing: int
    unmatched: int
    values: int
    frequent: tuple[Frequent, ...]
    unknown: str | None


@dataclass(frozen=True, repr=False)
class ClipCount(Private):
    """Count the numbers outside a clipping interval, or outside the edges of bins.

    Args:
        queries: the queries with this interval or these edges.
        low, high: the ends, in the plan's units. For edges, the first and the last edge.
        edges: True if the queries have edges. Then ``high`` is outside the range.
        below, above: rows whose number is raised to ``low``, or lowered to ``high`` (into the first
            or the last bin).
    """

    queries: tuple[str, ...]
    low: int | str
    high: int | str
    edges: bool
    below: int
    above: int


@dataclass(frozen=True, repr=False)
class NumberMatch(Private):
    """Count the rows that have a number in a column to sum.

    Args:
        column: the column.
        numbers: rows with a number.
        missing: rows without a value.
        unmatched: rows with a value that is no number.
        rounded: rows with a number of more digits than the plan reads, which is rounded down.
        frequent: the most frequent of the unmatched values, in order.
        unknown: the number that replaces a missing number, in the plan's units; None if a row
            without a number does not count.
        clips: the numbers that the queries' clips and edges change.
    """

    column: str
    numbers: int
    missing: int
    unmatched: int
    rounded: int
    frequent: tuple[Frequent, ...]
    unknown: int | str | None
    clips: tuple[ClipCount, ...]


@dataclass(frozen=True, repr=False)
class TextMatch(Private):
    """Count the texts of a column that the plan reads as numbers or dates.

    Args:
        column: the column.
        reading: "number" or "date".
        texts: rows with a text.
        unread: rows with a text that is no number or date by the plan's marks.
        frequent: the most frequent of these unread texts, in order.
        suggestions: the fields of [source] that would read the most texts, if more than the plan's
            fields. Several if the texts do not show which are right.
        suggested: rows with a text that each suggestion would read.
    """

    column: str
    reading: str
    texts: int
    unread: int
    frequent: tuple[Frequent, ...]
    suggestions: tuple[dict[str, str], ...]
    suggested: int


def key_matches(plan: Plan, table: ibis.Table, most: int) -> Iterator[KeyMatch]:
    """Yield the counts for each hierarchy and column of keys that queries use.

    Each result lists the ``most`` frequent unmatched values.
    """
    coding = Coding(_strict(plan), tuple(table.columns))
    for own, hierarchy in zip(coding.plan.hierarchies, plan.hierarchies, strict=True):
        if hierarchy in used_hierarchies(plan):
            unknown = () if hierarchy.unknown is None else hierarchy.path(hierarchy.unknown)
            goes = " > ".join(unknown) or None
            levels = level_columns(hierarchy, coding.present)
            yield _match_keys(coding, table, coding.place(own, own.levels[-1]), levels, goes, most)
    used = {name for query in plan.queries for name in query.by}
    for column in plan.columns:
        if column.name not in used:
            continue
        if column.discover:
            yield _discovered_match(coding, table, column)
            continue
        axis = coding.key(column.name)
        goes = None if column.unknown is None else key_text(column.keys[column.unknown])
        yield _match_keys(coding, table, axis, (column.name,), goes, most)


def _strict(plan: Plan) -> Plan:
    columns = tuple(replace(c, unknown=None) if c.keys else c for c in plan.columns)
    hierarchies = tuple(replace(one, unknown=None) for one in plan.hierarchies)
    return plan.changed(columns=columns, hierarchies=hierarchies)


def _match_keys(
    coding: Coding,
    table: ibis.Table,
    axis: CodeColumn,
    columns: Sequence[str],
    unknown: str | None,
    most: int,
) -> KeyMatch:
    rows: Any = coding.read(table, {axis}, unit=False, shown=True)
    sources = [coding.source(name) for name in columns]
    values = names_of(CodeColumn(Kind.WRITTEN, source.index) for source in sources)
    groups = rows.group_by(*names_of(sources), *values).aggregate(rows=rows.count())
    with listed(coding, table, [axis]) as keys:
        coded: Any = coding.looked_up(groups, [axis], keys)
        with held(coded) as held_groups:
            every: Any = held_groups
            matched = row_sum(every.filter(every[axis.name] < axis.size))
            other = _others(every.filter(every[axis.name] >= axis.size), values, most)
    return KeyMatch(tuple(columns), matched, *other, unknown)


def _others(
    groups: Any, values: Sequence[str], most: int
) -> tuple[int, int, int, tuple[Frequent, ...]]:
    """Return the rows without a value, the rows with one, and the number of distinct values.

    The last result has the ``most`` frequent values. ``groups`` has the unmatched rows.
    """
    absent: Any = ibis.and_(*(groups[name].isnull() for name in values))
    present: Any = groups.filter(~absent)
    unmatched = present.group_by(*values).aggregate(rows=present["rows"].sum())
    frequent = _frequent(unmatched, values, most)
    return row_sum(groups.filter(absent)), row_sum(unmatched), row_count(unmatched), frequent


def _discovered_match(coding: Coding, table: ibis.Table, column: Column) -> KeyMatch:
    source = coding.source(column.name)
    rows: Any = coding.read(table, {source}, unit=False)
    counts = counted(rows, rows=rows.count(), known=rows[source.name].count())
    missing = counts["rows"] - counts["known"]
    return KeyMatch((column.name,), counts["known"], missing, 0, 0, (), None)


def with_texts(plan: Plan) -> Plan:
    """Return the plan with extra derived columns: the texts that each map or lookup replaces."""
    more = [
        Derived(name, "expression", one.text, node)
        for one in plan.rows.derived
        if one.rule in _REPLACING
        for name, node in zip(_text_columns(one), one.nodes, strict=True)
    ]
    return plan.changed(rows=replace(plan.rows, derived=(*plan.rows.derived, *more)))


def text_matches(plan: Plan, table: ibis.Table, most: int) -> tuple[KeyMatch, ...]:
    """Return the counts for each map and lookup, in rows `prepared` for the plan `with_texts`."""
    matches: list[KeyMatch] = []
    for one in plan.rows.derived:
        if one.rule not in _REPLACING:
            continue
        names, rows = _text_columns(one), table
        groups: Any = rows.group_by(*names).aggregate(rows=rows.count())
        keys = zip(*(key for *key, _ in one.pairs), strict=True)
        texts = [pa.array([text.encode() for text in part], pa.binary()) for part in keys]
        right_names = [f"listed:{name}" for name in names]
        with (
            held(groups) as held_groups,
            backend_of(table).put(pa.table(texts, names=right_names)) as right,
        ):
            every: Any = held_groups
            both = zip(names, right_names, strict=True)
            joined: Any = every.left_join(right, [every[own] == right[key] for own, key in both])
            listed: Any = joined[right_names[0]]
            matched = row_sum(joined.filter(listed.notnull()))
            other = _others(joined.filter(listed.isnull()), names, most)
        matches.append(KeyMatch((one.name,), matched, *other, one.unknown))
    return tuple(matches)


def _text_columns(one: Derived) -> list[str]:
    return [f"neyman:text:{place}:{one.name}" for place, _ in enumerate(one.nodes)]


def number_matches(plan: Plan, table: ibis.Table, most: int) -> tuple[NumberMatch, ...]:
    """Return the counts for each column to sum, with the ``most`` frequent unmatched values."""
    matches: list[NumberMatch] = []
    for column in plan.columns:
        clips = _clips(plan, column)
        if not clips:
            continue
        values, backend = table[column.name], backend_of(table)
        shown: Any = as_written(table, column.name)
        scaled = partial(
            scaled_integer,
            backend=backend,
            decimals=decimals_read(plan, column),
            low=-_SCALED_RANGE,
            high=_SCALED_RANGE,
            unknown=None,
        )
        number = ceiling = scaled(values)
        kind: Any = values.type()
        if not (kind.is_integer() or kind.is_boolean()):
            ceiling = -scaled(_opposite(values))
        known = number >= -_SCALED_RANGE
        rows: Any = table.select(number=number, ceiling=ceiling, known=known, absent=shown.isnull())
        measures = {
            "rows": rows.count(),
            "numbers": rows["known"].sum(),
            "missing": rows["absent"].sum(),
            "rounded": (rows["known"] & (rows["number"] != rows["ceiling"])).sum(),
        }
        for i, (low, high, _) in enumerate(clips):
            measures[f"below{i}"] = (rows["known"] & (rows["number"] < low)).sum()
            measures[f"above{i}"] = (rows["known"] & (rows["number"] > high)).sum()
        counts = counted(rows, **measures)
        unmatched = counts["rows"] - counts["numbers"] - counts["missing"]
        frequent: tuple[Frequent, ...] = ()
        if unmatched:
            texts: Any = table.select(shown=shown, known=known)
            frequent = _frequent_texts(texts.filter(texts["shown"].notnull()), most)
        matches.append(
            NumberMatch(
                column.name,
                counts["numbers"],
                counts["missing"],
                unmatched,
                counts["rounded"],
                frequent,
                None if column.unknown is None else unscaled(column.unknown, column),
                tuple(
                    ClipCount(
                        tuple(queries),
                        unscaled(low, column),
                        unscaled(high + 1 if edges else high, column),
                        edges,
                        counts[f"below{i}"],
                        counts[f"above{i}"],
                    )
                    for i, ((low, high, edges), queries) in enumerate(clips.items())
                ),
            )
        )
    return tuple(matches)


def _opposite(values: Any) -> Any:
    """Return -x for each number x of a column of texts, decimals, or floats."""
    if not values.type().is_string():
        return -values
    minus: Any = ibis.literal("-")
    return ibis.cases((values.startswith("-"), values.substr(1)), else_=minus.concat(values))


def reading_matches(plan: Plan, table: ibis.Table, most: int) -> tuple[TextMatch, ...]:
    """Return the counts for each column with texts that are no number or date by the plan's marks.

    All rows are read, since a filter on unreadable dates would leave out every row.
    """
    readings = readings_of(plan.columns, plan.hierarchies, plan.rows)
    with with_plain_texts(plan, table, shown=True) as plain:
        matches = [
            _text_match(plan, plain, name, reading, most)
            for name, reading in readings.items()
            if name in table.columns and reading != "boolean" and table[name].type().is_string()
        ]
    return tuple(match for match in matches if match.unread)


def _text_match(plan: Plan, table: ibis.Table, name: str, reading: Reading, most: int) -> TextMatch:
    shown: Any = as_written(table, name)
    known = _is_read(table[name], reading)
    if reading == "day":
        # A key such as "unknown" is no date, and no mistake.
        every = [key_text(key) for one in plan.columns if one.name == name for key in one.keys]
        keys = [key for key in every if not re.fullmatch(ISO_DATE, key)]
        known |= shown.isin(keys) if keys else False
    texts: Any = table.select(shown=shown, known=known)
    texts = texts.filter(texts["shown"].notnull() & (texts["shown"] != ""))
    counts = counted(texts, rows=texts.count(), known=texts["known"].sum())
    rows, read = counts["rows"], counts["known"]
    kind: Literal["number", "date"] = "number" if reading == "number" else "date"
    if read == rows:
        return TextMatch(name, kind, rows, 0, (), (), 0)
    frequent = _frequent_texts(texts, most)
    suggestions, suggested = _suggestions(texts, kind, read)
    return TextMatch(name, kind, rows, rows - read, frequent, suggestions, suggested)


def _is_read(text: Value, reading: Reading) -> Value:
    if reading == "number":
        return integer_of(text, backend_of(text), 0).notnull()
    known = read_as(text, _DATE, backend_of(text)).notnull()
    return known & text.re_search(rf"^{ISO_DATE}\z") if reading == "day" else known


def _suggestions(
    texts: Any, kind: Literal["number", "date"], read: int
) -> tuple[tuple[dict[str, str], ...], int]:
    """Return the fields of [source] that read the most texts, and the number of these texts.

    The plan's own fields read ``read`` texts. If no others read more, return no fields. Of several
    equally good choices, return the shortest.
    """
    shown, fields = texts["shown"], [{"dates": form} for form in _DATE_FORMS]
    if kind == "number":
        fields = _NUMBER_MARKS
    known = [_is_read(_with_marks(shown, SourcePart.model_validate(f)), kind) for f in fields]
    numbers = counted(texts, **{f"m{i}": one.sum() for i, one in enumerate(known)}).values()
    best = max(numbers)
    if best <= read:
        return (), 0
    most = [field for field, number in zip(fields, numbers, strict=True) if number == best]
    sizes = [len(field) - (field.get("decimal") == ".") for field in most]  # "." is the default
    return tuple(f for f, size in zip(most, sizes, strict=True) if size == min(sizes)), best


def _with_marks(text: Value, source: SourcePart) -> Value:
    if source.dates is not None:
        return written_date(text, source.dates)
    return written_number(text, source)


def _clips(plan: Plan, column: Column) -> Mapping[tuple[int, int, bool], list[str]]:
    """Return each range (low, high, edges) of a column's numbers, with the queries that use it."""
    clips: dict[tuple[int, int, bool], list[str]] = {}
    for query in plan.queries:
        for name, clip in ((query.column, query.clip), (query.over, query.clip_over)):
            if name == column.name and clip:
                clips.setdefault((*clip, False), []).append(query.name)
        if query.column == column.name and query.bins:
            clips.setdefault(
                (query.bins[0], query.bins[-1] - 1, not query.inverse_sensitivity), []
            ).append(query.name)
    return clips


def _frequent_texts(texts: Any, most: int) -> tuple[Frequent, ...]:
    """Return the most frequent values of the column ``shown`` in rows that are not ``known``."""
    unread = texts.filter(~texts["known"])
    values = unread.select(v=backend_of(unread).plain_bytes(unread["shown"]))
    return _frequent(values.group_by("v").aggregate(rows=values.count()), ["v"], most)


def _frequent(groups: ibis.Table, values: Sequence[str], most: int) -> tuple[Frequent, ...]:
    order = [ibis.desc("rows"), *values]
    table: pa.Table = fetched(groups.order_by(order).limit(most))
    texts = [[_shown(value) for value in table[name].to_pylist()] for name in values]
    rows = table["rows"].to_pylist()
    return tuple(
        Frequent(value, int(n)) for value, n in zip(zip(*texts, strict=True), rows, strict=True)
    )


def _shown(value: object) -> str | None:
    if value is None:
        return None
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
