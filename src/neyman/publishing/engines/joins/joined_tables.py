"""Join a plan's private tables on one engine by the unit's id, with one row per unit [UN-7].

A joined table must have one row per unit. A row without an id belongs to no unit. If the table's
``duplicates`` is "drop", a unit with several rows loses them all. If it is "least", the unit's
least row stays. Rows compare by the columns in `order_of`, and texts as bytes. A missing value
comes last, after NaN. A join gives each row of the plan's table the columns of its unit's row, or
missing values. It adds and drops no row.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import ibis
import ibis.expr.datatypes as dt

from neyman.publishing.engines.backends import Backend, Value, backend_of
from neyman.publishing.engines.csv_reader import DataError, MissingColumn
from neyman.publishing.engines.data_schema import (
    check_key_type,
    check_schema,
    check_type,
    columns_read,
)
from neyman.publishing.engines.expressions import key_bytes
from neyman.publishing.engines.row_values import prepared, with_plain_texts
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.tables import PrivateTable

_UNIT = "neyman:unit"
_PLACE = "neyman:place"


@contextmanager
def named_errors(plan: Plan, name: str) -> Generator[None]:
    """Put the table's name before an error about its data, if the plan has several tables."""
    try:
        yield
    except DataError as error:
        if not plan.tables:
            raise
        raise DataError(f"table {name!r}: {error}") from None


@contextmanager
def _in_folders(names: Collection[str]) -> Generator[None]:
    """Explain a missing column that is in ``names``, from folders such as ``day=1``."""
    try:
        yield
    except MissingColumn as error:
        if error.column not in names:
            raise
        raise DataError(
            f"data has no column {error.column!r}: only the names of its folders have it, as in "
            f"'{error.column}=...', and those are not read; write it into the files as a column"
        ) from None


def columns_of(
    plan: Plan,
    present: Mapping[str, Sequence[str]],
    folders: Mapping[str, Collection[str]] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Return, for each table, the columns of its data that the plan reads.

    ``folders`` has the column names in the paths of files, for errors.
    """
    joined = [column for table in plan.tables for column in table.join]
    result: dict[str, tuple[str, ...]] = {}
    folders = folders or {}
    for table in plan.tables:
        with named_errors(plan, table.name), _in_folders(folders.get(table.name, ())):
            for name in (table.id, *table.join):
                if name not in present[table.name]:
                    raise MissingColumn(name, present[table.name])
            result[table.name] = tuple(dict.fromkeys((table.id, *table.join)))
    for own in plan.table_plans():
        with named_errors(plan, own.table), _in_folders(folders.get(own.table, ())):
            names = tuple(present[own.table])
            if own.table != plan.table:
                read = (*result[own.table], *columns_read(own, names))
                result[own.table] = tuple(dict.fromkeys(read))
                continue
            folded = {name.casefold() for name in joined}
            for name in names:
                if name.casefold() in folded:
                    raise DataError(
                        f"data has a column {name!r}, and the plan joins a column of that name to "
                        "this table; rename one of them in the data and in the plan"
                    )
            read = columns_read(own, (*names, *joined))
            result[own.table] = tuple(name for name in read if name not in joined)
    return result


def check_tables(
    plan: Plan,
    forms: Mapping[str, ibis.Table],
    sources: Mapping[str, Any] | None = None,
    untyped: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Raise DataError for tables whose columns or types cannot fit the plan. No row is read.

    Args:
        sources: the source of each table. Errors name it if it is a path.
        untyped: the columns of each table whose type its schema does not give; None if unknown.

    Raises:
        DataError: see `check_schema`; a column to join has a type that no plan reads; or the ids of
            two tables have types whose values are never equal.
    """
    for table in plan.tables:
        with named_errors(plan, table.name):
            schema = forms[table.name].schema()
            check_key_type(table.id, schema[table.id])
            for name in table.join:
                if not schema[name].is_timestamp():
                    check_type(name, schema[name])
            main = forms[plan.table].schema()[plan.unit.id or ""]
            kinds = [_kind(schema[table.id]), _kind(main)]
            if None not in kinds and kinds[0] != kinds[1]:
                raise DataError(
                    f"data column {table.id!r} names the units and has type {schema[table.id]}, "
                    f"and {plan.unit.id!r} of table {plan.table!r} has type {main}; give both the "
                    "same type, so that equal ids are equal (every column of a CSV file is text)"
                )
    for own in plan.table_plans():
        with named_errors(plan, own.table):
            form, source = _form(plan, own, forms), (sources or {}).get(own.table)
            check_schema(own, form, source, untyped and _untyped_columns(plan, own, untyped))


def _untyped_columns(
    plan: Plan, own: Plan, untyped: Mapping[str, Collection[str]]
) -> frozenset[str]:
    names = frozenset(untyped[own.table])
    if own.table == plan.table:
        for table in plan.tables:
            names |= frozenset(table.join) & frozenset(untyped[table.name])
    return names


def _form(plan: Plan, own: Plan, forms: Mapping[str, ibis.Table]) -> ibis.Table:
    if own.table != plan.table or not plan.tables:
        return forms[own.table]
    kinds = dict(forms[own.table].schema().items())
    for table in plan.tables:
        kinds |= {name: forms[table.name].schema()[name] for name in table.join}
    return ibis.table(kinds, name="form")


def _kind(kind: dt.DataType) -> str | None:
    if kind.is_null():
        return None
    if kind.is_string():
        return "text"
    return "boolean" if kind.is_boolean() else "date" if kind.is_date() else "number"


@contextmanager
def prepared_tables(
    plan: Plan,
    tables: Mapping[str, ibis.Table],
    widened: Callable[[Plan], Plan] = lambda own: own,
    *,
    shown: bool = False,
) -> Generator[list[tuple[Plan, ibis.Table]]]:
    """Yield each table of the plan, ready to be counted, with the plan of the table's queries.

    ``widened`` maps a table's own plan to the plan to prepare the table for. With ``shown``, the
    tables also have texts as written, see `as_written`.
    """
    with ExitStack() as scope:
        single = {table.name for table in plan.tables if table.duplicates is not None}
        tables = {
            # All columns decide the least row of a unit, so no more columns may be added there.
            name: scope.enter_context(
                with_plain_texts(plan, table, shown=shown and name not in single)
            )
            for name, table in tables.items()
        }
        ready: list[tuple[Plan, ibis.Table]] = []
        for own in plan.table_plans():
            rows = scope.enter_context(_rows(plan, own, tables))
            ready.append((own, scope.enter_context(prepared(widened(own), rows))))
        yield ready


@contextmanager
def _rows(plan: Plan, own: Plan, tables: Mapping[str, ibis.Table]) -> Generator[ibis.Table]:
    table = tables[own.table]
    further = None if own.table == plan.table else plan.further_table(own.table)
    if further is not None:
        yield table if further.duplicates is None else one_row_per_unit(further, table)
        return
    with ExitStack() as scope:
        rows: Any = table
        for right in plan.tables:
            if right.join:
                single = one_row_per_unit(right, tables[right.name])
                rows = _join_unit_table(rows, plan.unit.id or "", right, scope, single)
        yield rows


def one_row_per_unit(table: PrivateTable, rows: ibis.Table) -> ibis.Table:
    """Return at most one row of each unit; only this unit's rows decide which one [UN-7].

    Texts become bytes, because DuckDB holds no text that is not UTF-8.
    """
    backend, columns = backend_of(rows), list(rows.columns)
    keyed: Any = rows.select(
        **{name: backend.plain_bytes(rows[name]) for name in columns},
        **{_UNIT: key_bytes(rows[table.id], backend)},
    )
    keyed = keyed.filter(keyed[_UNIT].notnull())
    if table.duplicates == "drop":
        window = ibis.window(group_by=[_UNIT])
        numbered = keyed.mutate(**{_PLACE: keyed.count().over(window)})
        return numbered.filter(numbered[_PLACE] == 1).select(*columns)
    parts = {
        f"neyman:order:{column}:{part}": value
        for column, name in enumerate(order_of(table, columns))
        for part, value in enumerate(_order(keyed[name], backend))
    }
    ordered = keyed.mutate(**parts)
    window = ibis.window(group_by=[_UNIT], order_by=list(parts))
    numbered = ordered.mutate(**{_PLACE: ibis.row_number().over(window)})
    return numbered.filter(numbered[_PLACE] == 0).select(*columns)


def order_of(table: PrivateTable, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns by which rows compare, without the id: ``join``, then others by name."""
    others = sorted(name for name in columns if name not in table.join and name != table.id)
    return (*(name for name in table.join if name != table.id), *others)


def _order(column: Value, backend: Backend) -> Iterator[Value]:
    """Yield sort keys for a column. Each is never NULL and sorts alike on every engine."""
    kind = column.type()
    yield column.isnull().cast("int32")
    if kind.is_floating():
        nan = column.notnull() & column.isnan()
        yield nan.cast("int32")
        # 0.0 and -0.0 are one number. Here they get one sign.
        yield ibis.cases((column.isnull() | nan | (column == 0), 0.0), else_=column)
    elif kind.is_binary():
        yield column.coalesce(backend.bytes_of(""))
    elif kind.is_boolean():
        yield column.coalesce(False).cast("int32")
    elif not kind.is_null():
        yield column


def _join_unit_table(
    rows: ibis.Table, unit: str, right: PrivateTable, scope: ExitStack, single: ibis.Table
) -> ibis.Table:
    """Return the rows of the plan's table, joined with ``single``, which has one row per unit.

    ``unit`` is the id's column in ``rows``.
    """
    backend, other = backend_of(rows), backend_of(single)
    if other.name not in backend.sources:
        raise DataError(
            f"data[{right.name!r}] is on another engine than the plan's table; give both as files, "
            "or both on one connection"
        )
    names = {name: f"neyman:joined:{number}" for number, name in enumerate(right.join)}
    named: Any = single.select(
        **{_UNIT: key_bytes(single[right.id], other)},
        **{own: single[name] for name, own in names.items()},
    )
    held_rows: Any = scope.enter_context(backend.import_rows(named))
    left = rows.mutate(**{_PLACE: key_bytes(rows[unit], backend)})
    both: Any = left.left_join(held_rows, [left[_PLACE] == held_rows[_UNIT]])
    columns = {name: both[name] for name in rows.columns}
    return both.select(**columns, **{name: both[own] for name, own in names.items()})
