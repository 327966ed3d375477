"""Exact tables from private rows: counts and clipped sums over public keys, zeros included.

Each row gets a code in each dimension (a place of the hierarchy, the key of a column) by joining
its text with the public keys; what is listed nowhere gets one code more, so that no row is lost to
a query that does not use that dimension. One aggregation for each largest set of dimensions gives
all the tables, which are summed up from it on the driver.

What counts as what (the tests hold the engine to the same rules in plain Python):

- Keys compare as the bytes of their text, blanks included, whatever collation is set: a text as it
  is, a whole number (also in a column of floats) in decimal digits, a truth value as ``true`` or
  ``false``, a date as ``YYYY-MM-DD``. NULL, NaN, fractions and unlisted values are unknown.
- A place is known by its whole path: a row with a known state and an unlisted county is unknown.
- A value to sum is a number, or a text of digits with a sign and a decimal point at most. It is
  read as a double, clipped, and rounded down. What is no number (NULL, NaN, other text) counts as
  the declared stand-in, clipped as well.

Sums of 64-bit values are taken in 128 bits, and brought back inside +-2^62 in each group, which
cannot raise what one row changes. Nothing here divides, and no cast can fail. Columns made here are
numbered (the engine takes names that differ in case for one): p0, p1, ... for the levels, b0, ...
for the plan's columns, s0, ... for the sums, t0, ... for the bytes of keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neyman.release.engine.bounding import kept_rows
from neyman.release.engine.lines import missing
from neyman.release.engine.source import DataError, open_table
from neyman.release.plan import Plan
from neyman.release.plan.hierarchy import Hierarchy
from neyman.release.plan.resolve import Query, key_text

__all__ = ["DataError", "aggregate", "check_schema", "columns_needed", "open_table", "rehearse"]

Tables = Mapping[tuple[str, str, str], NDArray[np.int64]]
"""For each (query, level, measure) the exact table, flat, in declared order."""

_NUMBER = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?\z"
_SATURATED = 2**62


@dataclass(frozen=True)
class _Dimensions:
    """A set of dimensions: how deep into the hierarchy (-1 for not at all), which columns."""

    depth: int
    by: frozenset[str]

    def within(self, other: _Dimensions) -> bool:
        return self.depth <= other.depth and self.by <= other.by


def columns_needed(plan: Plan, present: Sequence[str]) -> tuple[str, ...]:
    """The columns of the data that the plan reads: levels that are there, keys, values, the id.

    Raises:
        DataError: a column is missing, or a level is and the others do not determine it.
    """
    used = dict.fromkeys(name for query in plan.queries for name in query.by)
    used |= dict.fromkeys(query.column for query in plan.queries if query.column is not None)
    if plan.unit.id is not None:
        used[plan.unit.id] = None
    for name in used:
        if name not in present:
            raise DataError(missing(name, present))
    hierarchy = plan.hierarchy
    if hierarchy is not None and any(query.at for query in plan.queries):
        used = dict.fromkeys(_level_columns(hierarchy, present)) | used
    return tuple(used)


def check_schema(plan: Plan, table: ibis.Table) -> None:
    """Refuse data whose columns or types cannot fit the plan; no row is read.

    Raises:
        DataError: a column is missing, has a type that is neither text, number, truth value nor
            date, or one whose values can never be equal to one of the public keys.
    """
    schema = table.schema()
    names = columns_needed(plan, list(table.columns))
    hierarchy = plan.hierarchy
    for name in names:
        kind = schema[name]
        if plan.unit.id == name or (hierarchy and name in hierarchy.levels):
            _check_type(name, kind)
        if hierarchy and name in hierarchy.levels:
            depth = hierarchy.depth(name)
            _check_keys(name, kind, dict.fromkeys(row[depth] for row in hierarchy.rows))
    for column in plan.columns:
        if column.name in names and column.integer:
            _check_type(column.name, schema[column.name], "a column to sum holds")
            if schema[column.name].is_date():
                raise DataError(f"data column {column.name!r} holds dates, which do not add up")
        elif column.name in names:
            _check_type(column.name, schema[column.name])
            _check_keys(column.name, schema[column.name], [key_text(key) for key in column.keys])


def rehearse(plan: Plan, table: ibis.Table) -> None:
    """Run the whole aggregation without a row, so that what can fail fails before the charge.

    Args:
        plan: which tables.
        table: the private table; only its form is used (``open_table(..., rows=False)`` will do).

    Raises:
        DataError: the tables of the plan cannot be made from a table of this form.
    """
    names = columns_needed(plan, list(table.columns))
    empty = (table.select(*names) if names else table).limit(0)
    try:
        found = aggregate(plan, empty)
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            "data of this form cannot be counted: a rehearsal without rows ended in "
            f"{type(error).__name__}: {error}"
        ) from error
    for entry in plan.entries():
        key = (entry.query, entry.level, entry.measure)
        if entry.public is None and (key not in found or found[key].shape != (entry.cells,)):
            raise DataError(f"data of this form give no table {key}; please report this")


def aggregate(plan: Plan, table: ibis.Table) -> Tables:
    """The exact integer tables of a plan.

    Args:
        plan: which tables.
        table: the private rows, whose schema has been checked.

    Returns:
        By (query, level, "count" or "sum") an int64 array with a value for each cell, in declared
        order: places first, then the keys of each ``by`` column, the last one fastest.
    """
    coded = _coded(plan, table)
    if plan.unit.id is not None:
        names = [name for name in coded.columns if name != "unit"]
        coded = kept_rows(coded, names, plan.unit.rows)
    wanted = {query: _dimensions(plan, query) for query in plan.queries if query.split}
    found: dict[tuple[str, str, str], NDArray[np.int64]] = {}
    left = dict(wanted)
    for largest in _largest(wanted.values()):
        served = [query for query, own in left.items() if own.within(largest)]
        dense = _dense(plan, coded, largest, served)
        for query in served:
            del left[query]
            for level, measure in product(dict(query.split), _measures(query)):
                whole = dense[_value_name(plan, query) if measure == "sum" else "rows"]
                found[query.name, level, measure] = _roll(plan, query, level, largest, whole)
    return found


def _measures(query: Query) -> tuple[str, ...]:
    return ("sum", "count") if query.measure == "mean" else (query.measure,)


def _value_name(plan: Plan, query: Query) -> str:
    sums = list(dict.fromkeys((q.column, q.clip) for q in plan.queries if q.clip is not None))
    return f"s{sums.index((query.column, query.clip or (0, 0)))}"


def _by_name(plan: Plan, name: str) -> str:
    return f"b{[column.name for column in plan.columns].index(name)}"


def _dimensions(plan: Plan, query: Query) -> _Dimensions:
    measured = [level for level, _ in query.split if query.at]
    depths = [plan.hierarchy.depth(level) for level in measured] if plan.hierarchy else []
    return _Dimensions(max(depths, default=-1), frozenset(query.by))


def _largest(wanted: Any) -> list[_Dimensions]:
    kinds = list(dict.fromkeys(wanted))
    return [own for own in kinds if not any(own != o and own.within(o) for o in kinds)]


def _level_columns(hierarchy: Hierarchy, present: Sequence[str]) -> tuple[str, ...]:
    levels = [level for level in hierarchy.levels if level in present]
    absent = [level for level in hierarchy.levels if level not in present]
    at = [hierarchy.depth(level) for level in levels]
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in hierarchy.rows:
        other = seen.setdefault(tuple(row[i] for i in at), row)
        if other != row:
            raise DataError(
                f"data has no column {absent[0]!r}, and its columns {levels} do not determine the "
                f"place: {' > '.join(other)!r} and {' > '.join(row)!r} differ"
            )
    return tuple(levels)


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


def _check_keys(name: str, kind: dt.DataType, keys: Any) -> None:
    """Keys that no value of the type can equal are a mistake in the plan, not unknown values."""
    for key in keys:
        if kind.is_boolean():
            fits = key in ("true", "false")
        elif kind.is_numeric():
            digits = key.removeprefix("-")
            fits = digits.isascii() and digits.isdigit() and str(int(key)) == key
        else:
            fits = True
        if not fits:
            raise DataError(
                f"data column {name!r} has type {kind}, and the public key {key!r} can never be "
                "one of its values; make the column text, or write the keys as it has them"
            )


@ibis.udf.scalar.builtin(name="encode")
def _encode(text: str) -> bytes:  # pyright: ignore[reportReturnType] - DuckDB's own
    """The bytes of a text: they compare and group without collation."""


def _bytes(column: Any) -> Any:
    """The bytes of a column's canonical text; NULL for what has none."""
    return _encode(_text(column))


def _text(column: Any) -> Any:
    """The canonical text of a column; NULL for what has none."""
    kind = column.type()
    if kind.is_string():
        return column
    if kind.is_boolean():
        return ibis.cases((column, "true"), (~column, "false"))
    if kind.is_floating() or (kind.is_decimal() and kind.scale != 0):
        number = column.try_cast("float64")
        # The floor is a cast to an integer, evaluated in branches that are not taken as well.
        inside: Any = number.clip(-(2.0**53), 2.0**53)
        whole = (number == inside.floor()) & (inside.abs() < 2.0**53)
        return ibis.cases((whole, inside.floor().cast("int64").cast("string")))
    return column.cast("string")


def _number(column: Any, low: int, high: int, unknown: int) -> Any:
    """The whole number in [low, high] that a row adds."""
    stand_in = min(max(unknown, low), high)
    kind = column.type()
    if kind.is_boolean():
        column = column.cast("int64")
    if kind.is_string():
        column = ibis.cases((column.re_search(_NUMBER), column))
    number = column.try_cast("float64")
    number: Any = ibis.cases((~number.isnan(), number))
    clipped = number.clip(float(low), float(high)).floor().try_cast("int64")
    return ibis.coalesce(clipped, stand_in)


def _coded(plan: Plan, table: ibis.Table) -> ibis.Table:
    """For each row its codes, and what it adds to each sum."""
    names = columns_needed(plan, list(table.columns))
    made: dict[str, Any] = {}
    joined: list[dict[str, Any]] = []
    hierarchy = plan.hierarchy

    def key(name: str) -> str:
        """The column of the bytes of a column's keys."""
        return f"t{names.index(name)}"

    if hierarchy and any(query.at for query in plan.queries):
        right: dict[str, Any] = {}
        for name in (name for name in names if name in hierarchy.levels):
            depth = hierarchy.depth(name)
            made[key(name)] = _bytes(table[name])
            right[key(name)] = [_key_bytes(row[depth]) for row in hierarchy.rows]
        codes = {f"p{i}": hierarchy.codes(name) for i, name in enumerate(hierarchy.levels)}
        joined.append(right | codes)
    for column in plan.columns:
        if not column.integer and column.name in names:
            made[key(column.name)] = _bytes(table[column.name])
            keys = [_key_bytes(key_text(value)) for value in column.keys]
            codes = {_by_name(plan, column.name): np.arange(len(keys), dtype=np.int64)}
            joined.append({key(column.name): keys, **codes})
    for query in plan.queries:
        if query.column is not None and query.clip is not None:
            unknown = plan.column(query.column).unknown or 0
            value = _number(table[query.column], *query.clip, unknown)
            made[_value_name(plan, query)] = value
    if plan.unit.id is not None:
        made["unit"] = _bytes(table[plan.unit.id])
    made["one"] = ibis.literal(1)
    rows: Any = table.select(**made)
    for number, right in enumerate(joined):
        on = {name: f"j{number}_{name}" for name in right if name.startswith("t")}
        keys = ibis.memtable(pa.table({on.get(name, name): right[name] for name in right}))
        rows = rows.left_join(keys, [rows[left] == keys[match] for left, match in on.items()])
    unknown = _unknown_codes(plan)
    kept = {
        name: rows[name].coalesce(unknown[name]) if name in unknown else rows[name]
        for name in rows.columns
        if not name.startswith(("t", "j"))
    }
    return rows.select(**kept)


def _key_bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _unknown_codes(plan: Plan) -> dict[str, int]:
    """The code of what is unknown: a declared key's, or one more than there are."""
    found = {}
    if plan.hierarchy:
        for depth, level in enumerate(plan.hierarchy.levels):
            goes = plan.hierarchy.unknown
            more = len(plan.hierarchy.paths(level))
            found[f"p{depth}"] = more if goes is None else int(plan.hierarchy.codes(level)[goes])
    for column in plan.columns:
        if not column.integer:
            more = len(column.keys)
            found[_by_name(plan, column.name)] = more if column.unknown is None else column.unknown
    return found


def _axes(plan: Plan, dims: _Dimensions) -> dict[str, int]:
    """Names of the code columns, and how many codes each has, unknown included."""
    axes = {}
    if dims.depth >= 0 and plan.hierarchy:
        level = plan.hierarchy.levels[dims.depth]
        axes[f"p{dims.depth}"] = len(plan.hierarchy.paths(level)) + 1
    for column in plan.columns:
        if column.name in dims.by:
            axes[_by_name(plan, column.name)] = len(column.keys) + 1
    return axes


def _dense(
    plan: Plan, coded: ibis.Table, dims: _Dimensions, queries: Sequence[Query]
) -> dict[str, NDArray[np.int64]]:
    axes = _axes(plan, dims)
    sums = {_value_name(plan, query) for query in queries if query.column is not None}
    columns: dict[str, Any] = {name: coded[name] for name in sorted(sums)}
    measures: dict[str, Any] = {"rows": coded.count()}
    measures |= {name: column.cast("decimal(38, 0)").sum() for name, column in columns.items()}
    grouped = (
        coded.group_by(*axes).aggregate(**measures) if axes else coded.aggregate(**measures)
    ).to_pyarrow()
    shape = tuple(axes.values())
    index: Any = 0
    if axes:
        codes = [grouped[name].to_numpy() for name in axes]
        index = np.ravel_multi_index([c.astype(np.int64) for c in codes], shape)
    found = {}
    for name in measures:
        dense = np.zeros(math.prod(shape), dtype=np.int64)
        values = [_saturate(value) for value in grouped[name].to_pylist()]
        dense[index] = values if axes else values[0]
        found[name] = dense.reshape(shape)
    return found


def _saturate(value: Any) -> int:
    return 0 if value is None else max(-_SATURATED, min(_SATURATED, int(value)))


def _roll(
    plan: Plan, query: Query, level: str, dims: _Dimensions, dense: NDArray[np.int64]
) -> NDArray[np.int64]:
    """One query's table at a level from a dense array that has an unknown slot on every axis."""
    axes = list(_axes(plan, dims))
    used = {_by_name(plan, name) for name in query.by}
    if query.at:
        used.add(f"p{dims.depth}")
    for name in reversed(axes):
        axis = axes.index(name)
        if name not in used:
            dense = dense.sum(axis=axis)
            axes.remove(name)
            continue
        dense = np.delete(dense, -1, axis=axis)
    if query.at and plan.hierarchy:
        lower = plan.hierarchy.levels[dims.depth]
        parents = plan.hierarchy.parents(lower, level)
        rolled = np.zeros((len(plan.hierarchy.paths(level)), *dense.shape[1:]), dtype=np.int64)
        np.add.at(rolled, parents, dense)
        dense = rolled
        axes.remove(axes[0])
    else:
        dense = dense.reshape((1, *dense.shape))
    order = [1 + axes.index(_by_name(plan, name)) for name in query.by]
    return np.ascontiguousarray(dense.transpose((0, *order))).reshape(-1)
