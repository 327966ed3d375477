"""Whether the schema of the data fits a plan, before any row is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.datatypes as dt

from neyman.engines.csv_reader import DataError, MissingColumn
from neyman.plan.hierarchy import Hierarchy
from neyman.plan.plan import Plan
from neyman.plan.query import KeyKind, key_text
from neyman.plan.row_expression import ColumnType

__all__ = [
    "as_written",
    "check_schema",
    "check_unit_type",
    "check_value_type",
    "code_column",
    "columns_needed",
    "columns_read",
    "filter_column",
    "key_kind",
    "level_columns",
    "written_column",
]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,39}")


def columns_needed(plan: Plan, present: Sequence[str]) -> tuple[str, ...]:
    """The columns that counting reads: levels that are there, keys, values, the id, and filters.

    Args:
        plan: the plan.
        present: the columns of the table that is counted, derived ones too.

    Raises:
        DataError: a column is missing, or a level is and the others do not determine it.
    """
    used = dict.fromkeys(name for query in plan.queries for name in query.by)
    used |= dict.fromkeys(name for query in plan.queries for name in query.columns)
    if plan.unit.id is not None:
        used[plan.unit.id] = None
    used |= {filter_column(plan, query.where): None for query in plan.queries if query.where}
    for name in used:
        if name not in present:
            raise MissingColumn(name, present)
    hierarchy = plan.hierarchy
    if hierarchy is not None and any(query.at for query in plan.queries):
        used = dict.fromkeys(level_columns(hierarchy, present)) | used
    return tuple(used)


def columns_read(plan: Plan, present: Sequence[str]) -> tuple[str, ...]:
    """The columns of the data that the plan reads, for its expressions too.

    Raises:
        DataError: see `columns_needed`, or the data have a column with the name of a derived one.
    """
    rows = plan.rows
    twins = {name.casefold() for name in rows.names}
    for name in present:
        if name.casefold() in twins:
            raise DataError(
                f"data has a column {name!r}, and the plan derives one of that name; rename it in "
                "[derive] or [lookup]"
            )
    derived = {*rows.names, *(filter_column(plan, text) for text, _ in rows.filters)}
    reads = [name for name, _ in rows.readings]
    for name in reads:
        if name not in present:
            raise MissingColumn(name, present)
    counted = columns_needed(plan, (*present, *derived))
    return tuple(dict.fromkeys([*(name for name in counted if name not in derived), *reads]))


def filter_column(plan: Plan, text: str) -> str:
    """The column that holds whether a row meets a condition of the plan."""
    return f"neyman:where:{[known for known, _ in plan.rows.filters].index(text)}"


def code_column(name: str) -> str:
    """The column that holds the number of a derived column's text among `Derived.texts`."""
    return f"neyman:code:{name}"


def written_column(name: str) -> str:
    """The column that holds a text as it is written, beside the one without a plan's marks."""
    return f"neyman:written:{name}"


def as_written(table: ibis.Table, name: str) -> Any:
    """A column of a table as it is written, where that came along."""
    written = written_column(name)
    return table[written if written in table.columns else name]


def level_columns(hierarchy: Hierarchy, present: Sequence[str]) -> tuple[str, ...]:
    """The levels that the data have.

    Raises:
        DataError: they do not determine the place.
    """
    levels = [level for level in hierarchy.levels if level in present]
    absent = [level for level in hierarchy.levels if level not in present]
    at = [hierarchy.depth(level) for level in levels]
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in hierarchy.rows:
        other = rows.setdefault(tuple(row[i] for i in at), row)
        if other != row:
            raise DataError(
                f"data has no column {absent[0]!r}, and its columns {levels} do not determine the "
                f"place: {' > '.join(other)!r} and {' > '.join(row)!r} differ"
            )
    return tuple(levels)


def check_schema(plan: Plan, table: ibis.Table, source: Any = None) -> None:
    """Refuse data whose columns or types cannot fit the plan; no row is read.

    Args:
        plan: what is wanted.
        table: the private table, or one of its form.
        source: where it comes from: a path is named in errors.

    Raises:
        DataError: a column is missing, has a type that is neither text, number, truth value nor
            date, is of floats and holds units or keys that are texts, or has a type whose values
            can never be equal to one of the public keys.
    """
    try:
        _check(plan, table)
    except DataError as error:
        if not isinstance(source, (str, Path)):
            raise
        raise DataError(f"data = {str(source)!r}: {error}") from None


def _check(plan: Plan, table: ibis.Table) -> None:
    schema = table.schema()
    names = columns_read(plan, list(table.columns))
    for name, reading in plan.rows.readings:
        _check_reading(name, schema[name], reading)
    hierarchy = plan.hierarchy
    if plan.unit.id is not None:
        _check_key_type(plan.unit.id, schema[plan.unit.id])
    for name in names if hierarchy else ():
        if hierarchy and name in hierarchy.levels:
            kind, depth = key_kind(plan, name), hierarchy.depth(name)
            keys = dict.fromkeys(hierarchy.key(name, row[depth]) for row in hierarchy.rows)
            advice = f"write integer = [{name!r}] in [hierarchy.{hierarchy.name}]"
            _check_key_type(name, schema[name], kind, advice)
            _check_keys(name, schema[name], kind, keys)
    for column in plan.columns:
        if column.name not in names:
            continue
        kind = schema[column.name]
        if column.integer:
            _check_type(column.name, kind, "a column to sum holds")
            if kind.is_date():
                raise DataError(f"data column {column.name!r} holds dates, which do not add up")
        else:
            advice = "write the keys as whole numbers or as true and false, without quotes"
            _check_key_type(column.name, kind, column.kind, "" if column.discover else advice)
            _check_keys(column.name, kind, column.kind, map(key_text, column.keys))


def check_unit_type(name: str, kind: dt.DataType) -> None:
    """Refuse a type whose values cannot name units: floats, and what no plan reads.

    Raises:
        DataError: it is such a type.
    """
    _check_key_type(name, kind)


def check_value_type(name: str, kind: dt.DataType) -> None:
    """Refuse a type that no plan reads.

    Raises:
        DataError: it is neither text, a number, true/false, nor a date.
    """
    _check_type(name, kind)


def _check_reading(name: str, kind: dt.DataType, reading: ColumnType) -> None:
    """A type whose values can never be read as an expression's is a mistake in the plan."""
    if reading.type == "text":
        _check_key_type(name, kind)
        return
    _check_type(name, kind, "an expression reads")
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
    """Return what the keys of a column or level are, which decides how its values are read."""
    hierarchy = plan.hierarchy
    if hierarchy is not None and name in hierarchy.levels:
        return "whole" if name in hierarchy.integer else "text"
    return plan.column(name).kind


def _check_type(name: str, kind: dt.DataType, what: str = "keys are") -> None:
    fits = (
        kind.is_string()
        or kind.is_integer()
        or kind.is_floating()
        or kind.is_decimal()
        or kind.is_boolean()
        or kind.is_date()
        or kind.is_null()
    )
    if not fits:
        raise DataError(
            f"data column {name!r} has type {kind}: {what} text, numbers, true/false or dates"
        )


def _check_key_type(name: str, kind: dt.DataType, keys: KeyKind = "text", advice: str = "") -> None:
    _check_type(name, kind)
    if kind.is_floating() and keys == "text":
        advice = advice or "make it whole numbers or text"
        raise DataError(
            f"data column {name!r} has type {kind}, and rows are distinguished by its "
            f"text, of which a float has several; {advice}"
        )


def _check_keys(name: str, kind: dt.DataType, keys: KeyKind, texts: Iterable[str]) -> None:
    """Keys that no value of the type can equal are a mistake in the plan, not unknown values."""
    for key in texts:
        if kind.is_date():
            fits = keys == "text"
        elif kind.is_boolean():
            fits = key in ("true", "false")
        elif kind.is_numeric() and keys != "boolean":
            fits = _INTEGER.fullmatch(key) is not None
        else:
            fits = True
        if not fits:
            raise DataError(
                f"data column {name!r} has type {kind}, and the public key {key!r} can never be "
                "one of its values; make the column text, or write the keys as it has them"
            )
