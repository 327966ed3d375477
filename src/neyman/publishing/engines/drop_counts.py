"""Count the rows that each query and each join uses, and the rows that each step drops.

A run takes the same steps with the same functions of `aggregate`. Each run draws which rows of a
unit stay. So if a bound drops rows, the numbers from that step on can differ between runs.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import ibis

from neyman.publishing.engines import aggregate
from neyman.publishing.engines.backends import (
    backend_of,
    counted,
    fresh_key,
    held,
    row_count,
    row_sum,
)
from neyman.publishing.engines.encoding import CodeColumn, Coding, Kind, names_of
from neyman.publishing.engines.expressions import key_bytes
from neyman.publishing.engines.private_tables import Private
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query

_STEPS = ("taken", "named", "read", "known", "numbered", "groups", "counted")
_BOUNDED = _STEPS[4:]


@dataclass(frozen=True, repr=False)
class RowsOfUnits(Private):
    """Count the rows of the units, before and after the plan's bound.

    Args:
        column: the column that names the unit.
        missing: rows without a unit, which are dropped.
        units: the number of units.
        largest: the most rows of one unit.
        bound: the plan's bound on the rows of one unit.
        over: the number of units with more rows than ``bound``.
        dropped: the number of rows of these units that are dropped.
    """

    column: str
    missing: int
    units: int
    largest: int
    bound: int
    over: int
    dropped: int


@dataclass(frozen=True, repr=False)
class QueryRows(Private):
    """Count the rows that a query uses, and the rows that each cause drops.

    A row is dropped once, by the first cause in this order: ``missing``, ``unit_rows``,
    ``unknown``, ``without_number``, ``groups``, ``rows_per_group``. Each table of the query counts
    the same rows.

    Args:
        query: the query's name.
        levels: the levels of the query's measured tables.
        taken: rows that meet the filters.
        missing: rows dropped because they have no id.
        unit_rows: rows dropped by the plan's bound on a unit's rows.
        read: rows left after these two steps.
        unknown: rows dropped because a key of the query is unknown.
        without_number: rows dropped because they lack a number that the query needs.
        groups: rows dropped by the query's bound on groups.
        rows_per_group: rows dropped by the query's bound on rows per group.
        counted: rows left at the end.
        lost: rows that meet the filters and are not counted.
    """

    query: str
    levels: tuple[str, ...]
    taken: int
    missing: int
    unit_rows: int
    read: int
    unknown: int
    without_number: int
    groups: int
    rows_per_group: int
    counted: int
    lost: int


@dataclass(frozen=True, repr=False)
class JoinRows(Private):
    """Count the rows of a table that is joined with one row per unit, and the rows that match.

    Args:
        table: the table's name.
        column: the table's column that names the unit.
        missing: rows of the table without a unit, which are dropped.
        units: the number of units in the table.
        several: the number of these units with several rows.
        dropped: the number of rows of these units that are dropped.
        matched: rows of the plan's table whose unit has a remaining row.
        unmatched: rows of the plan's table whose unit has no remaining row.
    """

    table: str
    column: str
    missing: int
    units: int
    several: int
    dropped: int
    matched: int
    unmatched: int


def unit_rows(plan: Plan, table: ibis.Table, column: str | None = None) -> RowsOfUnits | None:
    """Count the rows of each unit; None if each row is a unit.

    Args:
        column: a column to use in place of ``unit.id``. The result shows how many of its values
            have more rows than the plan's bound.
    """
    if column is not None:
        plan = plan.changed(unit=plan.unit.model_copy(update={"id": column}))
    if plan.unit.id is None:
        return None
    rows: Any = Coding(plan, tuple(table.columns)).read(table, (), unit=True)
    units: Any = rows.group_by("unit").aggregate(rows=rows.count())
    bound = plan.unit.rows
    least: Any = ibis.least(units["rows"], bound)
    counts = counted(
        units,
        units=units.count(),
        rows=units["rows"].sum(),
        largest=units["rows"].max(),
        over=(units["rows"] > bound).sum(),
        counted=least.sum(),
    )
    return RowsOfUnits(
        plan.unit.id,
        row_count(table) - counts["rows"],
        counts["units"],
        counts["largest"],
        bound,
        counts["over"],
        counts["rows"] - counts["counted"],
    )


def join_rows(plan: Plan, tables: Mapping[str, ibis.Table]) -> tuple[JoinRows, ...]:
    """Return the counts for each table that is joined with one row per unit."""
    counts: list[JoinRows] = []
    for table in plan.tables:
        if table.duplicates is None:
            continue
        rows: Any = tables[table.name]
        keyed: Any = rows.select(unit=key_bytes(rows[table.id], backend_of(rows)))
        keyed = keyed.filter(keyed["unit"].notnull())
        units: Any = keyed.group_by("unit").aggregate(rows=keyed.count())
        with held(units) as own, ExitStack() as scope:
            every: Any = own
            named = row_sum(every)
            several: Any = every.filter(every["rows"] > 1)
            remaining = int(table.duplicates == "least")
            main: Any = tables[plan.table]
            left: Any = main.select(unit=key_bytes(main[plan.unit.id or ""], backend_of(main)))
            left = left.filter(left["unit"].notnull())
            single = every if remaining else every.filter(every["rows"] == 1)
            right: Any = scope.enter_context(backend_of(main).import_rows(single))
            matched = row_count(left.semi_join(right, "unit"))
            units_of_several = row_count(several)
            counts.append(
                JoinRows(
                    table.name,
                    table.id,
                    row_count(rows) - named,
                    row_count(every),
                    units_of_several,
                    row_sum(several) - remaining * units_of_several,
                    matched,
                    row_count(left) - matched,
                )
            )
    return tuple(counts)


def query_rows(plan: Plan, table: ibis.Table, key: bytes | None = None) -> tuple[QueryRows, ...]:
    """Return the counts of each query, in the order of the plan.

    Args:
        plan: the plan. A query whose tables are all declared public reads no row and is left out.
        key: the secret key that chooses which rows of a unit stay; None for a new key.
    """
    key = fresh_key() if key is None else key
    coding = Coding(plan, tuple(table.columns))
    every = [query for query in plan.queries if not query.searched]
    # A row without a key of its group's detail still counts for the group.
    every = [replace(query, by=query.group_by) for query in every]
    tabled = [query for query in every if query.split and query.delta is None]
    filters = dict.fromkeys(query.where for query in tabled)
    parts = [[query for query in tabled if query.where == where] for where in filters]
    parts += [[query] for query in plan.queries if query.delta is not None]
    count = _of_units if plan.unit.id is not None else _of_rows
    counts: dict[str, Counter[str]] = {}
    for queries in parts:
        rows = aggregate.selected(plan, table, queries[0].where)
        for query, step, number in count(coding, rows, queries, key):
            counts.setdefault(query, Counter())[step] += number
    return tuple(
        _steps(query, counts[query.name]) for query in plan.queries if query.name in counts
    )


def _steps(query: Query, counts: Counter[str]) -> QueryRows:
    taken, named, read, known, numbered, grouped, left = (counts[step] for step in _STEPS)
    return QueryRows(
        query=query.name,
        levels=tuple(level for level, _ in query.split),
        taken=taken,
        missing=taken - named,
        unit_rows=named - read,
        read=read,
        unknown=read - known,
        without_number=known - numbered,
        groups=numbered - grouped,
        rows_per_group=grouped - left,
        counted=left,
        lost=taken - left,
    )


def _of_rows(
    coding: Coding, table: ibis.Table, queries: Sequence[Query], key: bytes
) -> Iterator[tuple[str, str, int]]:
    """Yield (query, step, rows left) if each row is a unit, so that no bound drops a row."""
    every = row_count(table)
    for query in queries:
        rows: Any = coding.read(table, aggregate.needed_columns(coding, query), unit=False)
        for step in ("taken", "named", "read"):
            yield query.name, step, every
        yield query.name, "known", _with_keys(coding, table, rows, query)
        left = _with_keys(coding, table, _number_rows(coding, rows, query), query)
        for step in _BOUNDED:
            yield query.name, step, left


def _with_keys(coding: Coding, table: ibis.Table, rows: ibis.Table, query: Query) -> int:
    sources = coding.sources(rows)
    if not sources:
        return row_count(rows)
    wanted = [*_key_axes(coding, query), *coding.discovered(query)]
    groups = rows.group_by(*names_of(sources)).aggregate(rows=rows.count())
    with aggregate.listed(coding, table, wanted) as keys:
        return row_sum(_known(coding, coding.looked_up(groups, wanted, keys), query))


def _number_rows(coding: Coding, rows: ibis.Table, query: Query) -> ibis.Table:
    if query.delta is not None:
        return rows
    axes = coding.axes(query, coding.plan.finest(query))
    bins = [axis for axis in axes if axis.kind is Kind.BIN]
    return aggregate.with_numbers(coding, aggregate.known_rows(rows, bins), query)


def _of_units(
    coding: Coding, table: ibis.Table, queries: Sequence[Query], key: bytes
) -> Iterator[tuple[str, str, int]]:
    """Yield (query, step, rows left) if units have ids, with the bounds of a run.

    Numbers of one step add up over the buckets.
    """
    wanted = dict.fromkeys(
        one for query in queries for one in aggregate.needed_columns(coding, query)
    )
    # Buckets leave out rows without an id.
    first = {"taken": row_count(table), "named": row_count(coding.read(table, (), unit=True))}
    for query in queries:
        yield from ((query.name, step, number) for step, number in first.items())
    with aggregate.coded_rows(coding, table, wanted, key) as (buckets, secret):
        for bounded in buckets:
            with held(bounded) as rows:
                read = row_count(rows)
                for query in queries:
                    yield query.name, "read", read
                    for step, left in _left(coding, rows, query, secret):
                        yield query.name, step, row_count(left)


def _left(
    coding: Coding, rows: ibis.Table, query: Query, secret: ibis.Table
) -> Iterator[tuple[str, ibis.Table]]:
    unbounded = replace(query, groups=None, rows_per_group=None)
    grouped = replace(query, rows_per_group=None)
    yield "known", _known(coding, rows, query)
    left = aggregate.bounded_rows if query.delta is None else aggregate.chosen_rows
    for step, bounds in zip(_BOUNDED, (unbounded, grouped, query), strict=True):
        yield step, left(coding, rows, bounds, secret)


def _key_axes(coding: Coding, query: Query) -> list[CodeColumn]:
    axes = coding.axes(query, coding.plan.finest(query))
    return [axis for axis in axes if axis.kind is not Kind.BIN]


def _known(coding: Coding, rows: ibis.Table, query: Query) -> ibis.Table:
    return aggregate.known_rows(rows, _key_axes(coding, query), coding.discovered(query))
