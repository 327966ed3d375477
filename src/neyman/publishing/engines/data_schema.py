"""Check that the schema of the data fits a plan, before any row is read."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import ibis
import ibis.expr.datatypes as dt

from neyman.publishing.engines.csv_reader import DataError, MissingColumn
from neyman.publishing.plan.column import Column, KeyKind, key_text
from neyman.publishing.plan.hierarchy import Hierarchy
from neyman.publishing.plan.listed_keys import is_period
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.row_expression import ColumnType, operations

T = TypeVar("T")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,39}")


def columns_needed(plan: Plan, present: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that counting reads: levels, keys, values, the id, and filters.

    Args:
        present: the columns of the rows, derived columns included. A level that is not among them
            must follow from the other levels.
    """
    used = dict.fromkeys(name for query in plan.queries for name in query.by)
    used |= dict.fromkeys(name for query in plan.queries for name in query.columns)
    if plan.unit.id is not None:
        used[plan.unit.id] = None
    used |= {filter_column(plan, query.where): None for query in plan.queries if query.where}
    for name in used:
        if name not in present:
            raise MissingColumn(name, present)
    for hierarchy in reversed(used_hierarchies(plan)):
        used = dict.fromkeys(level_columns(hierarchy, present)) | used
    return tuple(used)


def columns_read(plan: Plan, present: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the data that the plan's queries and expressions read."""
    rows = plan.rows
    twins = {name.casefold() for name in rows.names}
    for name in present:
        if name.casefold() in twins:
            raise DataError(
                f"data has a column {name!r}, and the plan derives a column of that name; rename "
                "it in [derive] or [lookup]"
            )
    derived = {*rows.names, *(filter_column(plan, text) for text, _ in rows.filters)}
    reads = [name for name, _ in rows.readings]
    for name in reads:
        if name not in present:
            raise MissingColumn(name, present)
    counted = columns_needed(plan, (*present, *derived))
    return tuple(dict.fromkeys([*(name for name in counted if name not in derived), *reads]))


def filter_column(plan: Plan, text: str) -> str:
    """Return the name of the column that is true for the rows that meet the condition ``text``."""
    return f"neyman:where:{[known for known, _ in plan.rows.filters].index(text)}"


def code_column(name: str) -> str:
    """Return the name of a column: for each text of ``name``, its position in `Derived.texts`."""
    return f"neyman:code:{name}"


def written_column(name: str) -> str:
    """Return the name of a column: the texts of column ``name`` as they are in the data."""
    return f"neyman:written:{name}"


def as_written(table: ibis.Table, name: str) -> Any:
    """Return the `written_column` of the column ``name`` if the table has it, else that column."""
    written = written_column(name)
    return table[written if written in table.columns else name]


def decimals_read(plan: Plan, column: Column) -> int:
    """Return the decimals by which a column's values are scaled. Derived ones are scaled before."""
    return 0 if column.name in plan.rows.names else column.decimals


def used_hierarchies(plan: Plan) -> tuple[Hierarchy, ...]:
    """Return the hierarchies whose levels a query uses."""
    finest = (plan.parts(plan.finest(query)) for query in plan.queries)
    names = {one.name for parts in finest for one, _ in parts}
    return tuple(one for one in plan.hierarchies if one.name in names)


def level_columns(hierarchy: Hierarchy, present: Sequence[str]) -> tuple[str, ...]:
    """Return the hierarchy's levels that are among the columns ``present``.

    Raise DataError if they do not determine the other levels.
    """
    levels = [level for level in hierarchy.levels if level in present]
    absent = [level for level in hierarchy.levels if level not in present]
    at = [hierarchy.depth(level) for level in levels]
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in hierarchy.rows:
        last = max(depth for depth, name in enumerate(row) if name)
        if not row[-1] and last not in at:
            raise DataError(
                f"data has no column {hierarchy.levels[last]!r}, and the place "
                f"{' > '.join(filter(None, row))!r} has no name below it"
            )
        other = rows.setdefault(tuple(row[i] for i in at), row)
        if other != row:
            raise DataError(
                f"data has no column {absent[0]!r}, and its columns {levels} do not determine the "
                f"place: {' > '.join(other)!r} and {' > '.join(row)!r} differ"
            )
    return tuple(levels)


def check_schema(
    plan: Plan, table: ibis.Table, source: object = None, untyped: Collection[str] | None = None
) -> None:
    """Raise DataError if a column is missing or has a type that cannot fit. No row is read.

    Args:
        source: the source of the data. Errors name it if it is a path.
        untyped: the columns whose type the schema does not give, such as each column of a CSV file.
            They are read value by value. None if unknown; then texts may be numbers.

    Raises:
        DataError: a column is missing; is text that is read as numbers without ``parse``; has a
            type other than text, number, truth value, or date; has floats for units or text keys;
            or has a type whose values can never equal one of the public keys.
    """
    try:
        _check(plan, table, untyped)
    except DataError as error:
        if not isinstance(source, (str, Path)):
            raise
        raise DataError(f"data = {str(source)!r}: {error}") from None


def _check(plan: Plan, table: ibis.Table, untyped: Collection[str] | None) -> None:
    names = columns_read(plan, list(table.columns))
    _check_changes(plan, table)
    schema = _with_days(plan, {name: table.schema()[name] for name in names})
    levels = {level: one for one in plan.hierarchies for level in one.levels}
    parsed = {*plan.rows.parsed, *levels, *(table.columns if untyped is None else untyped)}
    for name, reading in plan.rows.readings:
        _check_reading(name, schema[name], reading)
        if reading.type == "number" and name not in parsed:
            _check_number(name, schema[name])
    if plan.unit.id is not None:
        check_key_type(plan.unit.id, schema[plan.unit.id])
    for name in names:
        if (hierarchy := levels.get(name)) is not None:
            kind, depth = key_kind(plan, name), hierarchy.depth(name)
            rows = _listed(hierarchy.rows, hierarchy.unknown)
            keys = dict.fromkeys(hierarchy.key(name, row[depth]) for row in rows if row[depth])
            advice = f"write integer = [{name!r}] in [hierarchy.{hierarchy.name}]"
            check_key_type(name, schema[name], kind, advice)
            _check_keys(name, schema[name], kind, keys)
    for column in plan.columns:
        if column.name not in names:
            continue
        kind = schema[column.name]
        if column.integer:
            check_type(column.name, kind, "a column to sum holds")
            if kind.is_date():
                raise DataError(f"data column {column.name!r} holds dates, which do not add up")
            if column.name not in parsed:
                _check_number(column.name, kind)
        else:
            advice = "write the keys as whole numbers or as true and false, without quotes"
            check_key_type(column.name, kind, column.kind, "" if column.discover else advice)
            keys = _listed(column.keys, column.unknown)
            _check_keys(column.name, kind, column.kind, map(key_text, keys))


def _check_number(name: str, kind: dt.DataType) -> None:
    if kind.is_string():
        raise DataError(
            f"data column {name!r} has type {kind}, and the plan reads numbers from it; convert "
            f"the column to numbers, or write parse = true in [columns] for {name!r}: then each "
            "text is read as a number, and a text that is none is missing"
        )


def _check_changes(plan: Plan, table: ibis.Table) -> None:
    # Joined tables have no engine. Each table is checked separately.
    places = table._find_backends()[0]  # pyright: ignore[reportPrivateUsage]
    on_spark = any(place.name == "pyspark" for place in places)
    if on_spark and any("normalize" in operations(node) for node in plan.rows.nodes):
        raise DataError(
            "an expression of the plan has normalize(), which Spark does not compute; count on "
            "DuckDB or PostgreSQL, or change the texts of the data and leave it out"
        )


def _with_days(plan: Plan, schema: Mapping[str, dt.DataType]) -> dict[str, dt.DataType]:
    """Return the types in ``schema``, with dates for timestamps.

    Raise DataError if zones or hours in the plan do not fit.
    """
    kinds = dict(schema)
    zones = dict(plan.rows.zones)
    for name, kind in kinds.items():
        zone = zones.get(name)
        if name in plan.rows.hours and not (kind.is_timestamp() or kind.is_string()):
            raise DataError(
                f"data column {name!r} has type {kind}, and an expression reads its hour; a "
                "timestamp and a text have one"
            )
        has_zone = isinstance(kind, dt.Timestamp) and kind.timezone is not None
        if has_zone and not _reads_days(plan, name) and name != plan.unit.id:
            raise DataError(
                f"data column {name!r} holds timestamps, and the plan reads it neither as dates "
                "nor by keys that are days; declare type = 'date', or keys such as '2024-12-31'"
            )
        if has_zone and zone is None and name != plan.unit.id:
            raise DataError(
                f"data column {name!r} holds timestamps with a time zone, and its days depend on "
                f"the zone; write zone = 'UTC', or another zone such as 'America/New_York', in "
                f"[columns.{name}]"
            )
        if zone is not None and not (has_zone or kind.is_string() or kind.is_null()):
            raise DataError(
                f"data column {name!r} has type {kind}, and the plan has zone = {zone!r} for it; "
                "a zone is for timestamps with a time zone and texts with an offset, and other "
                f"days are read as they are: leave zone out of [columns.{name}]"
            )
        if kind.is_timestamp() and name != plan.unit.id:
            kinds[name] = dt.date
    return kinds


def _listed(keys: Sequence[T], unknown: int | None) -> Iterator[T]:
    """Yield the keys that values of the data must be able to equal: not the key of other values."""
    return (key for place, key in enumerate(keys) if place != unknown)


def _reads_days(plan: Plan, name: str) -> bool:
    dates = any(one == name and kind.type == "date" for one, kind in plan.rows.readings)
    keyed = (one for one in plan.columns if one.name == name and not one.integer)
    level = any(name in one.levels for one in plan.hierarchies)
    return dates or level or any(one.kind == "text" for one in keyed)


def _check_reading(name: str, kind: dt.DataType, reading: ColumnType) -> None:
    if reading.type == "text":
        check_key_type(name, kind)
        return
    check_type(name, kind, "an expression reads")
    fits = kind.is_string() or kind.is_null()
    if reading.type == "date":
        fits |= kind.is_date()
    else:
        fits |= kind.is_numeric() or kind.is_boolean()
    if not fits:
        right = {"number": "whole", "boolean": "boolean", "date": "date"}[reading.type]
        raise DataError(
            f"data column {name!r} has type {kind}, and the plan's expressions read it as "
            f"{right!r}; declare the type that it has"
        )


def key_kind(plan: Plan, name: str) -> KeyKind:
    """Return the kind of the keys of a column or level. It decides how values are read as keys."""
    for hierarchy in plan.hierarchies:
        if name in hierarchy.levels:
            return "whole" if name in hierarchy.integer else "text"
    return plan.column(name).kind


def check_type(name: str, kind: dt.DataType, what: str = "keys are") -> None:
    """Raise DataError for a type other than text, number, truth value, date, or all-null.

    ``what`` begins the list of these types in the message.
    """
    numbers = kind.is_integer() or kind.is_floating() or kind.is_decimal() or kind.is_boolean()
    if not (numbers or kind.is_string() or kind.is_date() or kind.is_null()):
        raise DataError(
            f"data column {name!r} has type {kind}: {what} text, numbers, true/false or dates"
        )


def check_key_type(name: str, kind: dt.DataType, keys: KeyKind = "text", advice: str = "") -> None:
    """Raise DataError for a type that `check_type` refuses, or for floats if keys are texts."""
    check_type(name, kind)
    if kind.is_floating() and keys == "text":
        advice = advice or "make it whole numbers or text"
        raise DataError(
            f"data column {name!r} has type {kind}, and rows are distinguished by its "
            f"text, of which a float has several; {advice}"
        )


def _check_keys(name: str, kind: dt.DataType, keys: KeyKind, texts: Iterable[str]) -> None:
    for key in texts:
        if kind.is_date() and not is_period(key, "day"):
            raise DataError(
                f"data column {name!r} holds dates or timestamps, which are counted by their "
                f"days, and the public key {key!r} is not a day such as '2024-12-31'; for months, "
                f"derive a column: period({name}, 'month')"
            )
        if kind.is_date():
            fits = keys == "text"
        elif kind.is_boolean():
            fits = key in ("true", "false")
        elif kind.is_numeric() and keys != "boolean":
            fits = _INTEGER.fullmatch(key) is not None
            if fits and kind.is_integer():
                ends: Any = cast(Any, kind).bounds
                fits = ends.lower <= int(key) <= ends.upper
        else:
            fits = True
        if not fits:
            raise DataError(
                f"data column {name!r} has type {kind}, and the public key {key!r} can never be "
                "one of its values; make the column text, or write the keys as it has them"
            )
