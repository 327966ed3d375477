"""Compute exact tables from private rows: the nonzero counts and sums of each measure of a plan.

If each row is a unit, rows are first grouped by their raw keys. The few groups are matched with the
public keys and grouped again by code. A code is a key's position. A query whose columns are among
the columns of another query sums the cells of the other's aggregation. If units have ids, each row
gets its codes first, and each unit keeps at most the plan's number of rows. Buckets of units are
processed one after another, so memory stays bounded.

- `expressions.key_bytes` defines how a value is read as a key, and `expressions.scaled_integer` how
  it is read as a number. NULL, fractions for integer keys, and unlisted values are unknown.
- A place is identified by its entire path: a row with a known state and an unlisted county is
  unknown.
- A query's filter selects rows before any bound, so the unit's bound `rows` counts selected rows
  only.
- A unit is the bytes of its id's text. A row without an id (NULL) is dropped. Without ``unit.id``,
  each row is a unit.

Sums are exact and clipped to +-2^62 in each group, which cannot raise the change that one row
causes. Unknown values have one extra code, so a query without this column loses no row.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import ibis
import numpy as np
import pyarrow as pa

from neyman.numerics.arrays import Integers
from neyman.publishing.engines.backends import Value, backend_of, fetched, fresh_key, held
from neyman.publishing.engines.bounding import first_cells, first_rows
from neyman.publishing.engines.cells import MAX_CELL_SIZE, Cells, added, ravelled, together
from neyman.publishing.engines.csv_reader import DataError, cause, fault
from neyman.publishing.engines.data_schema import filter_column
from neyman.publishing.engines.encoding import CodeColumn, Coding, Kind, names_of
from neyman.publishing.engines.expressions import bin_of, quotient, total
from neyman.publishing.engines.progress import Progress, Steps
from neyman.publishing.plan.column import key_text
from neyman.publishing.plan.hierarchy import ALL
from neyman.publishing.plan.measures import (
    Distinct,
    Histogram,
    UnitRows,
    Units,
    center,
    middle,
    square_unit,
)
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query, measures_of
from neyman.publishing.plan.query_part import QueryPart

Key = tuple[str, str, str]
KeyNumbers = tuple[pa.Table, dict[str, Integers]]  # keys, and their numbers by measure
_PREFIX = {"sum": "s", "over": "s", "offset": "o", "square": "q"}  # prefixes of the names of sums


def aggregate_cells(
    plan: Plan, table: ibis.Table, key: bytes | None = None, progress: Progress | None = None
) -> dict[Key, Cells]:
    """Return the exact integer tables of a plan, except tables with discovered keys.

    Returns:
        A dict from (query, level, measure) to cells. The measure is that of an `Entry`, such as
        "count" or "sum". Cells are in declared order: places, then the keys of each ``by`` column,
        then bins, with the last varying fastest. A query with detail has the cells of each level
        under the names of `Query.counted`. If ``key`` is None, a new key chooses which rows of a
        unit stay.
    """
    key = fresh_key() if key is None else key
    plan = _by_level_of_detail(plan)
    coding = Coding(plan, tuple(table.columns))
    known = [query for query in plan.queries if query.split and query.delta is None]
    alone = [query for query in known if _counts_units(plan, query)]
    queries = [query for query in known if query not in alone]
    filters = list(dict.fromkeys(query.where for query in queries))
    tables: dict[Key, Cells] = {}
    for number, where in enumerate(filters):
        served = [query for query in queries if query.where == where]
        part = progress and _part(progress, number, len(filters))
        tables |= _tables_of(coding, selected(plan, table, where), served, key, part)
    for query in alone:
        rows = selected(plan, table, query.where)
        tables |= _READ_ALONE[query.kind](coding, rows, query, key)
    return tables


def _counts_units(plan: Plan, query: Query) -> bool:
    """Return True if a query's table counts values or units, so that its rows are read alone."""
    if query.kind is Histogram:  # of each unit, the value farthest from 0 counts
        return query.searched and plan.unit.id is not None
    return query.kind in _READ_ALONE


def _by_level_of_detail(plan: Plan) -> Plan:
    return plan.changed(queries=tuple(one for query in plan.queries for one in query.counted))


def selected(plan: Plan, table: ibis.Table, where: str | None) -> ibis.Table:
    """Return the rows of a `prepared` table that meet the filter ``where``; None for all rows."""
    rows: Any = table
    return table if where is None else rows.filter(rows[filter_column(plan, where)])


def _unit_rows(
    coding: Coding, table: ibis.Table, query: Query, key: bytes
) -> Iterator[tuple[Key, Cells]]:
    """Count the units in each bin of their number of rows. Larger numbers go to the last bin."""
    del key  # no row is left out
    edges = query.bins or range(2)
    parts: list[Cells] = []
    for bucket in buckets_of(coding.plan, table):
        rows: Any = coding.read(bucket, [], unit=True)
        units = rows.group_by("unit").aggregate(rows=rows.count())
        size = ibis.least(units["rows"].cast("int64"), edges[-1] - 1)
        units = units.select(cell=bin_of(size, edges))
        counted = fetched(units.group_by("cell").aggregate(units=units.count()))
        index, values = (_integers(counted[name]) for name in ("cell", "units"))
        parts.append(added(len(edges) - 1, index, values))
    yield (query.name, ALL, "rows"), together(parts)


def _largest_values(
    coding: Coding, table: ibis.Table, query: Query, key: bytes
) -> Iterator[tuple[Key, Cells]]:
    """Count units by the bin of their value farthest from 0.

    Of two equally far values, the larger one counts.
    """
    del key  # no row is left out
    edges = query.bins or range(2)
    middle = (len(edges) - 1) // 2 if edges[0] < 0 else 0
    (axis,) = coding.axes(query, ALL)
    parts: list[Cells] = []
    for bucket in buckets_of(coding.plan, table):
        rows: Any = known_rows(coding.read(bucket, [axis], unit=True), [axis])
        away = rows[axis.name].cast("int64") - middle
        rank = 2 * away.abs() + (away > 0).cast("int64")
        ranked: Any = rows.select("unit", rank=rank)
        units = ranked.group_by("unit").aggregate(rank=ranked["rank"].max())
        counted = fetched(units.group_by("rank").aggregate(units=units.count()))
        ranks, values = (_integers(counted[name]) for name in ("rank", "units"))
        index = middle + np.where(ranks % 2 == 1, ranks // 2, -(ranks // 2))
        parts.append(added(len(edges) - 1, index, values))
    yield (query.name, ALL, "count"), together(parts)


def _part(progress: Progress, number: int, parts: int) -> Progress:
    return lambda done: progress((number + done) / parts)


def _tables_of(
    coding: Coding,
    table: ibis.Table,
    queries: Sequence[Query],
    key: bytes,
    progress: Progress | None,
) -> dict[Key, Cells]:
    if coding.plan.unit.id is None:
        return dict(_row_unit_cells(coding, table, queries, progress))
    wanted = dict.fromkeys(one for query in queries for one in needed_columns(coding, query))
    parts: dict[Key, list[Cells]] = {}
    with coded_rows(coding, table, wanted, key) as (buckets, secret):
        shared = [query for query in queries if not _has_own_rows(query)]
        uses = len(list(_shared_dimensions(coding, shared)))
        own = filter(_has_own_rows, queries)
        uses += sum(len(query.split) if query.kind is Units else 1 for query in own)
        steps = Steps(len(buckets) * (uses + (uses > 1)), progress)
        for bounded in buckets:
            with held(bounded, steps) if uses > 1 else nullcontext(bounded) as rows:
                for target, cells in _bounded_cells(coding, rows, queries, secret, steps):
                    parts.setdefault(target, []).append(cells)
    return {target: together(cells) for target, cells in parts.items()}


def _distinct(
    coding: Coding, table: ibis.Table, query: Query, key: bytes
) -> Iterator[tuple[Key, Cells]]:
    """Count the distinct values of a column in each cell, over the rows that a query uses.

    NULL, unlisted, and non-UTF-8 values do not count. Units share values, so values are compared
    across all buckets.
    """
    (value,) = coding.values(query)
    parts: dict[str, list[pa.Table]] = {level: [] for level, _ in query.split}
    with coded_rows(coding, table, needed_columns(coding, query), key) as (buckets, secret):
        for bucket in buckets:
            named = coding.plan.unit.id is not None
            known = known_rows(bucket, coding.axes(query, coding.plan.finest(query)))
            rows: Any = bounded_rows(coding, bucket, query, secret) if named else known
            for level, tables in parts.items():
                cell = names_of(coding.axes(query, level))
                each = rows.select(*cell, value=rows[value.name])
                tables.append(fetched(each.filter(each["value"].notnull()).distinct()))
    is_open = value.kind is Kind.SOURCE
    for level, tables in parts.items():
        axes = coding.axes(query, level)
        distinct = pa.concat_tables(tables).group_by([*names_of(axes), "value"]).aggregate([])
        values = distinct["value"].to_pylist()
        good = [_is_text(one) if is_open else one < value.size for one in values]
        codes = {axis: _integers(distinct[axis.name])[good] for axis in axes}
        ones = np.ones(sum(good), np.int64)
        yield (query.name, level, "distinct"), _cells(coding, codes, ones, query, level, level)


_READ_ALONE: Mapping[type[QueryPart], Callable[..., Iterator[tuple[Key, Cells]]]] = {
    Distinct: _distinct,
    UnitRows: _unit_rows,
    Histogram: _largest_values,
}
"""How to count values or units, for measures whose rows are read alone."""


def discover(
    plan: Plan,
    query: Query,
    level: str,
    table: ibis.Table,
    key: bytes | None = None,
    progress: Progress | None = None,
) -> KeyNumbers:
    """Return the keys that occur in the rows, with exact numbers. The result is not yet private.

    Returns:
        An Arrow table with one row per key, sorted by the bytes of its texts. Its columns are the
        levels of the places, then the columns ``by``. Also a dict from measure to one number per
        row: "keys", the number of distinct units with the key, 1 or more, and "count" or "sum" if
        the query measures it. NULL and non-UTF-8 values are no keys.
    """
    key = fresh_key() if key is None else key
    coding = Coding(plan, tuple(table.columns))
    table = selected(plan, table, query.where)
    # All levels use the same columns, so one secret key selects the same rows of a unit at each
    # level.
    wanted = needed_columns(coding, query)
    group = names_of([*coding.axes(query, level), *coding.discovered(query)])
    tables: list[pa.Table] = []
    with coded_rows(coding, table, wanted, key) as (buckets, secret):
        steps = Steps(len(buckets), progress)
        for bucket in buckets:
            rows = chosen_rows(coding, bucket, query, secret)
            tables.append(fetched(_by_key(coding, rows, query, group), steps))
    return _key_numbers(coding, query, level, pa.concat_tables(tables), group)


def _by_key(coding: Coding, rows: ibis.Table, query: Query, group: Sequence[str]) -> ibis.Table:
    named = coding.plan.unit.id is not None
    if measures_of(query) == ("keys",):
        rows = rows.select("unit", *group).distinct() if named else rows
        return rows.group_by(*group).aggregate(keys=rows.count())
    units = rows["unit"].nunique() if named else rows.count()
    measures = _measures(coding, rows, [query])
    return rows.group_by(*group).aggregate(keys=units, **measures)


def chosen_rows(coding: Coding, rows: ibis.Table, query: Query, secret: ibis.Table) -> ibis.Table:
    """Return the rows with keys that a query with discovered keys counts, within its bounds."""
    lowest, unknown = coding.axes(query, coding.plan.finest(query)), coding.discovered(query)
    rows = known_rows(rows, lowest, unknown)
    return _first_of_units(coding, rows, query, secret, 1, names_of([*lowest, *unknown]))


def _first_of_units(
    coding: Coding,
    rows: ibis.Table,
    query: Query,
    secret: ibis.Table,
    label: int,
    cell: Sequence[str],
) -> ibis.Table:
    names = names_of(needed_columns(coding, query))
    if query.groups is not None:
        rows = first_cells(rows, names, query.groups, secret, label, cell)
    if query.rows_per_group is not None:
        rows = first_rows(rows, names, query.rows_per_group, secret, label + 1, cell)
    return rows


def _key_numbers(
    coding: Coding, query: Query, level: str, table: pa.Table, group: Sequence[str]
) -> KeyNumbers:
    of_measure = {part: _column_of(coding, query, part) for part in measures_of(query)}
    # Sums over several buckets could exceed 64 bits.
    table = table.group_by(group).aggregate([(name, "list") for name in set(of_measure.values())])
    plan = coding.plan
    columns: dict[str, Any] = {}
    for hierarchy, own in plan.parts(level):
        listed = hierarchy.paths(own)
        codes = table[coding.place(hierarchy, own).name].to_pylist()
        for depth, name in enumerate(hierarchy.levels[: hierarchy.depth(own) + 1]):
            texts = [path[depth].encode("utf-8", "surrogatepass") for path in listed]
            columns[name] = [texts[code] for code in codes]
    for name in query.by:
        column = plan.column(name)
        if column.discover:
            columns[name] = table[coding.source(name).name].to_pylist()
        else:
            texts = [key_text(value).encode("utf-8", "surrogatepass") for value in column.keys]
            columns[name] = [texts[code] for code in table[coding.key(name).name].to_pylist()]
    order = plan.key_columns(query, level)
    rows = zip(*(columns.get(name, []) for name in order), strict=True)
    known = sorted((row, i) for i, row in enumerate(rows) if all(map(_is_text, row)))
    texts = {
        name: pa.array([row[i].decode() for row, _ in known], pa.string())
        for i, name in enumerate(order)
    }
    numbers: dict[str, Integers] = {}
    for part, name in of_measure.items():
        sums = list(map(sum, table[f"{name}_list"].to_pylist()))
        clipped = [max(-MAX_CELL_SIZE, min(MAX_CELL_SIZE, sums[i])) for _, i in known]
        numbers[part] = np.array(clipped, np.int64)
    return pa.table(texts), numbers


def _column_of(coding: Coding, query: Query, part: str) -> str:
    """Return the name of the column in which `_by_key` or `_measures` computes a measure's part."""
    if part == "keys":
        return part
    value, needed = coding.value(query, part), coding.numbers(query, part)
    if part in _PREFIX and value is not None:
        others = names_of(one for one in needed if one != value)
        return ":".join([f"{_PREFIX[part]}{value.index}", *others])
    return ":".join(["rows", *names_of(needed)])


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def rehearse(plan: Plan, table: ibis.Table) -> None:
    """Run the entire aggregation without a row, so that errors occur before the charge."""
    names = Coding(plan, tuple(table.columns)).names
    empty = (table.select(*names) if names else table).limit(0)
    try:
        tables = aggregate_cells(plan, empty)
        for query in plan.queries:
            for level in query.levels if query.delta is not None else ():
                discover(plan, query, level, empty)
    except DataError:
        raise
    except Exception as error:
        raise fault(
            error,
            "data of this form cannot be counted: a rehearsal without rows ended in "
            + cause(error),
        ) from None
    for entry in _by_level_of_detail(plan).entries():
        key = (entry.query, entry.level, entry.measure)
        counted = entry.public is None and entry.cells is not None and entry.measure != "rank"
        if counted and (key not in tables or len(tables[key]) != entry.cells):
            # Guards against our own tables.
            raise DataError(f"data of this form give no table {key}; please report this")


@dataclass(frozen=True)
class _Dimensions:
    """Represent the columns that a table is grouped by.

    Args:
        places: for each hierarchy of the plan, the index of its lowest level's column of places; -1
            for none.
        others: the columns of keys and of bins.
    """

    places: tuple[int, ...]
    others: frozenset[CodeColumn]

    def within(self, other: _Dimensions) -> bool:
        pairs = zip(self.places, other.places, strict=True)
        return all(own <= most for own, most in pairs) and self.others <= other.others

    @property
    def columns(self) -> list[CodeColumn]:
        places = [CodeColumn(Kind.PLACE, index) for index in self.places if index >= 0]
        return places + sorted(self.others, key=lambda one: one.name)


def _dimensions(coding: Coding, query: Query) -> _Dimensions:
    axes = coding.axes(query, coding.plan.finest(query))
    places = {coding.level(axis)[0].name: axis.index for axis in axes if axis.kind is Kind.PLACE}
    others = frozenset(axis for axis in axes if axis.kind is not Kind.PLACE)
    return _Dimensions(tuple(places.get(one.name, -1) for one in coding.plan.hierarchies), others)


def _shared_dimensions(
    coding: Coding, queries: Sequence[Query]
) -> Iterator[tuple[_Dimensions, list[Query]]]:
    """Yield each set of columns that is within no other query's set, and the queries it answers."""
    left = {query.name: (query, _dimensions(coding, query)) for query in queries}
    kinds = list(dict.fromkeys(own for _, own in left.values()))
    for largest in kinds:
        if any(largest != other and largest.within(other) for other in kinds):
            continue
        served = [query for query, own in left.values() if own.within(largest)]
        for query in served:
            del left[query.name]
        yield largest, served


def _row_unit_cells(
    coding: Coding, table: ibis.Table, queries: Sequence[Query], progress: Progress | None
) -> Iterator[tuple[Key, Cells]]:
    shared = list(_shared_dimensions(coding, queries))
    steps = Steps(len(shared), progress)
    for largest, served in shared:
        axes = largest.columns
        values = {value for query in served for value in coding.values(query)}
        rows = coding.read(table, {*axes, *values}, unit=False)
        measures = _measures(coding, rows, served)
        sources = coding.sources(rows)
        with listed(coding, table, axes if sources else ()) as keys:
            if keys:
                group = [*sources, *(axis for axis in axes if axis.kind is Kind.BIN)]
                groups = rows.group_by(*names_of(group)).aggregate(**measures)
                rows = coding.looked_up(groups, axes, keys)
                measures = {name: total(rows[name]) for name in measures}
            yield from _tables(coding, rows, axes, measures, served, steps)


@contextmanager
def listed(
    coding: Coding, table: ibis.Table, wanted: Iterable[CodeColumn]
) -> Generator[list[ibis.Table]]:
    """Put the public keys of the wanted columns into tables on the engine of the rows."""
    with ExitStack() as scope:
        yield [scope.enter_context(backend_of(table).put(keys)) for keys in coding.keys(wanted)]


@contextmanager
def coded_rows(
    coding: Coding, table: ibis.Table, wanted: Iterable[CodeColumn], key: bytes
) -> Generator[tuple[list[ibis.Table], ibis.Table]]:
    """Yield the list of each bucket's coded rows, and the table of ``key``.

    Each unit has at most the plan's number of rows.

    Args:
        wanted: the columns of the coded rows.
    """
    wanted, unit = list(wanted), coding.plan.unit
    named = unit.id is not None
    with backend_of(table).secret(key) as secret, listed(coding, table, wanted) as keys:
        buckets = [
            coding.looked_up(coding.read(bucket, wanted, unit=named), wanted, keys)
            for bucket in buckets_of(coding.plan, table)
        ]
        if named:
            names = names_of(wanted)
            buckets = [first_rows(rows, names, unit.rows, secret, 0) for rows in buckets]
        yield buckets, secret


def _measures(coding: Coding, rows: Any, queries: Sequence[Query]) -> dict[str, Value]:
    """Return a dict of the counts and sums that the queries need, as expressions [UN-10].

    The keys are "rows" and the column names that `_column_of` gives.
    """
    measures: dict[str, Any] = {"rows": rows.count()}
    for query in queries:
        for measure in measures_of(query):
            added_up, (_, clip) = coding.value(query, measure), query.measured(measure)
            needed = [rows[one.name] >= low for one, low in coding.numbers(query, measure).items()]
            known: Any = ibis.and_(*needed) if needed else None
            column = _column_of(coding, query, measure)
            if measure in _PREFIX and added_up is not None and clip is not None:
                value = _summand(rows[added_up.name], measure, clip)
                part = value if known is None else ibis.cases((known, value), else_=0)
                measures[column] = total(part)
            elif known is not None:
                measures[column] = known.cast("int64").sum().coalesce(0)
    return measures


def _summand(value: Value, measure: str, clip: tuple[int, int]) -> Value:
    if measure == "offset":
        about = middle(clip)
        return value * about.denominator - about.numerator
    if measure != "square":
        return value
    away: Any = value - center(clip)  # at most 2^31
    unit = square_unit(clip)
    return away * away if unit == 1 else quotient(away * away + unit // 2, unit)


def _tables(
    coding: Coding,
    rows: ibis.Table,
    axes: Sequence[CodeColumn],
    measures: Mapping[str, Any],
    queries: Sequence[Query],
    steps: Steps,
) -> Iterator[tuple[Key, Cells]]:
    table, codes = _group_rows(rows, axes, measures, steps)
    for query in queries:
        for level, _ in query.split:
            for part in measures_of(query):
                values = _integers(table[_column_of(coding, query, part)])
                yield (query.name, level, part), _cells(coding, codes, values, query, level)


def _group_rows(
    rows: ibis.Table, axes: Sequence[CodeColumn], measures: Mapping[str, Any], steps: Steps
) -> tuple[pa.Table, dict[CodeColumn, Integers]]:
    grouped = rows.group_by(*names_of(axes)) if axes else rows
    table = fetched(grouped.aggregate(**measures), steps)
    return table, {axis: _integers(table[axis.name]) for axis in axes}


def _integers(column: pa.ChunkedArray) -> Integers:
    return column.to_numpy().astype(np.int64, copy=False)


def _cells(
    coding: Coding,
    codes: Mapping[CodeColumn, Integers],
    values: Integers,
    query: Query,
    level: str,
    finest: str | None = None,
) -> Cells:
    """Return one table: the sum of ``values`` in each cell that the codes name.

    A row is left out if its key on an axis at the level ``finest`` is not known. By default, this
    is the level of the query's finest table, so that all tables of the query count the same rows.
    """
    finest = coding.plan.finest(query) if finest is None else finest
    shape = [axis.size for axis in coding.axes(query, level)]
    if not shape:
        return added(1, np.zeros(len(values), dtype=np.int64), values)
    on = coding.risen(codes, query, level)
    pairs = zip(coding.risen(codes, query, finest), coding.axes(query, finest), strict=True)
    known = np.logical_and.reduce([code < axis.size for code, axis in pairs])
    index = ravelled([code[known] for code in on], shape)
    return added(math.prod(shape), index, values[known])


def _bounded_cells(
    coding: Coding, rows: ibis.Table, queries: Sequence[Query], secret: ibis.Table, steps: Steps
) -> Iterator[tuple[Key, Cells]]:
    shared = [query for query in queries if not _has_own_rows(query)]
    for largest, served in _shared_dimensions(coding, shared):
        measures = _measures(coding, rows, served)
        yield from _tables(coding, rows, largest.columns, measures, served, steps)
    for query in filter(_has_own_rows, queries):
        own = bounded_rows(coding, rows, query, secret)
        if query.kind is not Units:
            axes, measures = _dimensions(coding, query).columns, _measures(coding, own, [query])
            yield from _tables(coding, own, axes, measures, [query], steps)
            continue
        for level, _ in query.split:
            # A unit in several places is one unit of the place above, so units do not add up.
            axes = coding.axes(query, level)
            each = own.select("unit", *names_of(axes)).distinct()
            table, codes = _group_rows(each, axes, {"units": each.count()}, steps)
            cells = _cells(coding, codes, _integers(table["units"]), query, level, level)
            yield (query.name, level, "units"), cells


def _has_own_rows(query: Query) -> bool:
    is_bounded = query.groups is not None or query.rows_per_group is not None
    return is_bounded or query.kind is Units


def bounded_rows(coding: Coding, rows: ibis.Table, query: Query, secret: ibis.Table) -> ibis.Table:
    """Return each unit's rows that meet a query's own bounds.

    A unit's groups may differ in their level of detail, and the bound is for all of them together.
    So all levels of detail of a query use the same rows [UN-12].
    """
    names = [one.detail.first if one.detail else one.name for one in coding.plan.queries]
    label = 1 + 2 * names.index(query.detail.first if query.detail else query.name)
    axes = coding.axes(replace(query, by=query.group_by), coding.plan.finest(query))
    # Values of drawn quantiles are no cells. Their groups are.
    is_value = query.inverse_sensitivity
    cell = names_of(axis for axis in axes if not (is_value and axis.kind is Kind.BIN))
    needed = names_of(needed_columns(coding, query))
    rows = with_numbers(coding, known_rows(rows, axes), query).select("unit", *needed)
    return _first_of_units(coding, rows, query, secret, label, cell)


def with_numbers(coding: Coding, rows: ibis.Table, query: Query) -> ibis.Table:
    """Return the rows with the numbers that at least one part of the measure needs.

    Other rows do not use up a unit's bound.
    """
    parts = [coding.numbers(query, part) for part in measures_of(query)]
    every: Any = rows
    known = [ibis.and_(*(every[o.name] >= low for o, low in part.items())) for part in parts]
    return rows.filter(ibis.or_(*known)) if all(parts) else rows


def known_rows(
    rows: ibis.Table, axes: Sequence[CodeColumn], unknown: Sequence[CodeColumn] = ()
) -> ibis.Table:
    """Return the rows with a known key on every axis.

    On a binned axis, the row's value must also be a number. The columns ``unknown`` hold discovered
    keys, which must not be NULL.
    """
    every: Any = rows
    known = [every[axis.name] < axis.size for axis in axes]
    known += [every[column.name].notnull() for column in unknown]
    return rows.filter(*known) if known else rows


def needed_columns(coding: Coding, query: Query) -> dict[CodeColumn, None]:
    """Return the columns of codes, values, and discovered keys that a query needs of each row.

    They are the same, in the same order, for each level of detail of a query.
    """
    alone = query.kind in (Units, Distinct) or query.delta is not None
    levels = query.levels if alone else (coding.plan.finest(query),)
    own = replace(query, by=query.group_by)
    axes = dict.fromkeys(axis for level in levels for axis in coding.axes(own, level))
    if query.detail is not None:
        axes |= dict.fromkeys(map(coding.key, query.detail.columns))
    return axes | coding.values(query) | dict.fromkeys(coding.discovered(query))


def buckets_of(plan: Plan, table: ibis.Table) -> Iterator[ibis.Table]:
    """Yield the rows in parts that can be ranked in memory, with each unit in one part."""
    unit = plan.unit.id
    yield from [table] if unit is None else backend_of(table).buckets(table, unit)
