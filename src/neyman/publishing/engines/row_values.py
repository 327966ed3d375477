"""Compile a plan's derived columns and filters to expressions of an engine, row by row.

Each step gives the same result on every engine, and in plain Python:

- Numbers are 64-bit integers within +-2^53 (see `row_expression`). Only multiples of the divisor
  are divided, so the quotient's double is exact. Text is compared as bytes, in UTF-8.
- A date is the integer year * 10000 + month * 100 + day. It comes from a date, a timestamp (see
  `local_times`), or a text ``2024-12-31``, with or without a time of day. The day and the hour are
  as written in the text.
- A row that a lookup does not list stays. A lookup's keys are distinct, so no row is duplicated.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import reduce
from typing import Any

import ibis
import pyarrow as pa

from neyman.publishing.engines.backends import Backend, Value, backend_of, hexadecimal
from neyman.publishing.engines.data_schema import code_column, filter_column, written_column
from neyman.publishing.engines.expressions import (
    DAY,
    day_number,
    inside,
    integer_of,
    key_bytes,
    known_day,
    quotient,
    remainder,
    written_boolean,
    written_date,
    written_day,
    written_number,
)
from neyman.publishing.engines.functions.local_times import hour_column, local_days
from neyman.publishing.engines.functions.text_functions import changed_text
from neyman.publishing.plan.derived import Derived, Reading, readings_of
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import SourcePart
from neyman.publishing.plan.row_expression import COLUMN_LIMIT, DATE, TEXT_CHANGES, ColumnType, Node

# The most texts of a map that are compared one by one. More texts are looked up by a join.
_MAX_COMPARED_TEXTS = 16

_SHORT = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
"""Number types whose values are within `COLUMN_LIMIT`."""

_YEAR, _MONTH = DATE


@contextmanager
def prepared(plan: Plan, table: ibis.Table) -> Generator[ibis.Table]:
    """Yield the table with the plan's derived columns, without rows that fail the plan's filter.

    A derived column with listed texts also has a `code_column`, because numbers are grouped faster.
    """
    rows = plan.rows
    backend = backend_of(table)
    values = {name: f"neyman:value:{number}" for number, (name, _) in enumerate(rows.readings)}
    with ExitStack() as scope:
        days: Any = local_days(plan, table, lambda stage: scope.enter_context(backend.fence(stage)))
        if not rows.derived and not rows.filters:
            yield days
            return
        ready: Any = days.mutate(
            **{
                values[name]: _column_value(days[name], kind, backend)
                for name, kind in rows.readings
            }
        )
        ready = ready.mutate(
            **{
                hour_column(name): _hour(ready[name], ready[values[name]])
                for name in rows.hours
                if hour_column(name) not in days.columns
            }
        )
        late = rows.where
        if rows.where is not None and rows.names.isdisjoint(rows.read_by(rows.where)):
            ready = ready.filter(_Compiler(ready, values, backend).of(rows.filter(rows.where)))
            late = None
        for batch in _batches(rows.derived):
            ready = _with_batch(scope.enter_context(backend.view(ready)), batch, values, scope)
        asked = {late, *(query.where for query in plan.queries)}
        conditions = {text: filter_column(plan, text) for text, _ in rows.filters if text in asked}
        result = _Compiler(ready, values, backend)
        ready = ready.mutate(
            **{name: result.of(rows.filter(text)) for text, name in conditions.items()}
        )
        if late is not None:
            ready = ready.filter(ready[conditions[late]])
        columns: dict[str, Any] = {name: ready[name] for name in table.columns}
        columns |= {one.name: ready[values[one.name]] for one in rows.derived}
        codes = [code_column(one.name) for one in rows.derived if one.texts]
        columns |= {name: ready[name] for name in (*codes, *conditions.values())}
        yield scope.enter_context(backend.view(ready.select(**columns)))


def _with_batch(
    ready: Any, batch: Sequence[Derived], values: dict[str, str], scope: ExitStack
) -> Any:
    """Return the rows with derived columns that read none of each other. Add their names."""
    result = _Compiler(ready, values, backend_of(ready))
    values |= {one.name: f"neyman:derived:{one.name}" for one in batch}
    columns: dict[str, Any] = {}
    joins: list[tuple[Derived, list[str]]] = []
    for one in batch:
        if len(one.pairs) * len(one.nodes) > _MAX_COMPARED_TEXTS:
            keys = [f"neyman:looked:{len(joins)}:{j}" for j in range(len(one.nodes))]
            columns |= zip(keys, map(result.of, one.nodes), strict=True)
            joins.append((one, keys))
            continue
        columns[values[one.name]] = _value(one, result)
        if one.texts:
            columns[code_column(one.name)] = _value(one, result, _code(one))
    ready = ready.mutate(**columns)
    for one, keys in joins:
        ready = _join_label(ready, one, values[one.name], keys, scope)
    return ready


@contextmanager
def with_plain_texts(
    plan: Plan, table: ibis.Table, *, shown: bool = False
) -> Generator[ibis.Table]:
    """Yield the table, in which texts of numbers and dates lose the marks that the plan declares.

    Without declared marks, or for a column that is not text, nothing changes. A text that is no
    number or date by the declared marks is missing, even if other marks would make it one. With
    ``shown``, the table also has the texts as written, see `as_written`.
    """
    kinds = table.schema()
    columns: dict[str, Any] = {}
    if shown:  # `local_days` changes these texts
        zoned = (name for name, _ in plan.rows.zones if name in kinds and kinds[name].is_string())
        columns |= {written_column(name): table[name] for name in zoned}
    for name, reading in readings_of(plan.columns, plan.hierarchies, plan.rows).items():
        if name in kinds and kinds[name].is_string():
            plain = _plain_text(table[name], reading, plan.source)
            if plain is not None:
                columns |= {name: plain, **({written_column(name): table[name]} if shown else {})}
    if not columns:
        yield table
        return
    with backend_of(table).view(table.mutate(**columns)) as plain:
        yield plain


def _plain_text(text: Value, reading: Reading, source: SourcePart) -> Value:
    """Return texts without a plan's marks; None if the plan declares no marks for this reading."""
    if reading in ("date", "day"):
        written = written_date if reading == "date" else written_day
        return None if source.dates is None else written(text, source.dates)
    if (source.decimal, source.thousands) == (".", None):
        return None
    return (written_number if reading == "number" else written_boolean)(text, source)


def _column_value(column: Value, kind: ColumnType, backend: Backend) -> Value:
    """Return the result of `read_as`. Reading a text is slow, so it is done once per row."""
    value = read_as(column, kind, backend)
    is_read = column.type().is_string() and kind.type != "text"
    return backend.barrier(value) if is_read else value


def read_as(column: Value, kind: ColumnType, backend: Backend) -> Value:
    """Return a column's values in the expression type ``kind``; NULL for unreadable values."""
    if kind.type == "text":
        return key_bytes(column, backend)
    if kind.type == "number":
        if str(column.type()) in _SHORT and kind.scale == 0:
            return column.cast("int64")
        return integer_of(column, backend, kind.scale, COLUMN_LIMIT)
    if kind.type == "date":
        return _date(column)
    key = key_bytes(column, backend, "boolean")
    true = key == backend.bytes_of("true")
    return ibis.cases((key.notnull(), true))


def _date(column: Value) -> Value:
    if column.type().is_date():
        known = known_day(column)
        day: Any = ibis.cases((known, column), else_=ibis.literal(date(1, 1, 1)))
        number = (day.year().cast("int64") * _YEAR) + day.month().cast("int64") * _MONTH
        return ibis.cases((known, number + day.day().cast("int64")))
    text = column.cast("string")
    day = text.substr(0, 10)
    known = text.re_search(DAY) & day.try_cast("date").notnull()
    return ibis.cases((known, day.replace("-", "").try_cast("int64")))


def _hour(column: Value, day: Value) -> Value:
    """Return the hour of a text with a date and time; NULL if it has none, or ``day`` is NULL."""
    text = column.cast("string")
    known = day.notnull() & text.re_search("^.{10}[T ][0-9]{2}:")
    return ibis.cases((known, text.substr(11, 2).try_cast("int64")))


def _parts(number: Value) -> tuple[Value, Value, Value]:
    month = quotient(number, _MONTH)
    return quotient(number, _YEAR), month % _MONTH, number % _MONTH


def _value(one: Derived, result: _Compiler, label: Callable[[str], Value] | None = None) -> Value:
    """Return the derived column ``one``, without a join. ``label`` maps each text to its value."""
    label = label or result.text
    unknown = label(one.unknown) if one.unknown is not None else None
    if one.rule == "case":
        cases = [(result.of(node), label(text)) for _, node, text in one.cases]
        return ibis.cases(*cases, else_=unknown)
    value = result.of(one.value)
    if one.rule == "cut":
        labels = zip(one.edges[1:], one.labels, strict=True)  # each with the edge that ends it
        ends = [(value < edge, label(text)) for edge, text in labels]
        below = ibis.null(label(one.labels[0]).type()) if unknown is None else unknown
        return ibis.cases((value < one.edges[0], below), *ends, else_=unknown)
    if one.pairs:
        parts = [*map(result.of, one.nodes)]
        cases = [
            (result.any_key(parts, [key for *key, own in one.pairs if own == to]), label(to))
            for to in dict.fromkeys(to for *_, to in one.pairs)
        ]
        return ibis.cases(*cases, else_=unknown)
    if one.ends is not None:
        bounded = inside(value.coalesce(0), *one.ends).cast("int64")
        return ibis.cases((value.notnull(), bounded))
    return value


def _code(one: Derived) -> Callable[[str], Value]:
    return lambda text: ibis.literal(one.texts.index(text), "int32")


def _join_label(
    table: ibis.Table, one: Derived, label: str, looked: Sequence[str], scope: ExitStack
) -> ibis.Table:
    """Return the table with a lookup's texts in ``label``, by its keys in columns ``looked``."""
    own = looked[0]
    codes = {text: code for code, text in enumerate(one.texts)}
    parts = [[text.encode() for text in part] for part in zip(*one.pairs, strict=True)]
    names = [*(f"{name}:text" for name in looked), f"{own}:label"]
    listed: dict[str, pa.Array] = {
        name: pa.array(part, pa.binary()) for name, part in zip(names, parts, strict=True)
    }
    listed[f"{own}:code"] = pa.array([codes[value] for *_, value in one.pairs], pa.int32())
    right: Any = scope.enter_context(backend_of(table).put(pa.table(listed)))
    joined: Any = table.left_join(right, [table[name] == right[f"{name}:text"] for name in looked])
    value, code = joined[f"{own}:label"], joined[f"{own}:code"]
    if one.unknown is not None:
        value = value.coalesce(backend_of(table).bytes_of(one.unknown))
        code = code.coalesce(_code(one)(one.unknown))
    columns = {name: joined[name] for name in table.columns}
    return joined.select(**columns, **{label: value, code_column(one.name): code})


def _batches(derived: Sequence[Derived]) -> Iterator[list[Derived]]:
    """Yield the derived columns in groups, in order. No column reads another one of its group."""
    batch: list[Derived] = []
    for one in derived:
        if not one.sources.isdisjoint({other.name for other in batch}):
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


class _Compiler:
    """Compile expressions on one table. ``values`` maps the plan's column names to the table's."""

    def __init__(self, table: ibis.Table, values: Mapping[str, str], backend: Backend) -> None:
        self.table, self.values, self.backend = table, dict(values), backend
        self.text = backend.bytes_of

    def of(self, node: Any) -> Value:
        return _STEPS[node.op](self, node)

    def parts(self, node: Node) -> list[Value]:
        return [self.of(part) for part in node.parts]

    def literal(self, node: Node) -> Value:
        if node.type == "text":
            return self.text(node.value)
        return ibis.literal(node.value, "boolean" if node.type == "boolean" else "int64")

    def column(self, node: Node) -> Value:
        return self.table[self.values[node.value]]

    def none(self, node: Node) -> Value:
        kinds = {"text": "binary", "boolean": "boolean"}
        return ibis.null(kinds.get(node.type, "int64"))

    def folded(self, node: Node) -> Value:
        sign = node.value if node.op == "compare" else node.op
        return reduce(_OPERATORS[sign], self.parts(node))

    def member(self, node: Node) -> Value:
        (part,) = self.parts(node)
        if node.parts[0].type == "text":
            return self.any_of(part, node.value)
        return part.isin(list(node.value))

    def any_of(self, part: Value, texts: Sequence[str]) -> Value:
        literals = [self.text(text) for text in texts]
        if len(literals) > _MAX_COMPARED_TEXTS:
            return part.isin(literals)
        return reduce(operator.or_, [part == literal for literal in literals])

    def any_key(self, parts: Sequence[Value], keys: Sequence[Sequence[str]]) -> Value:
        if len(parts) == 1:
            return self.any_of(parts[0], [text for (text,) in keys])
        matches = [
            reduce(operator.and_, map(operator.eq, parts, map(self.text, key))) for key in keys
        ]
        return reduce(operator.or_, matches)

    def choose(self, node: Node) -> Value:
        test, a, b = self.parts(node)
        return ibis.cases((test, a), else_=b)

    def clip(self, node: Node) -> Value:
        (part,) = self.parts(node)
        return ibis.cases((part.notnull(), inside(part.coalesce(0), *node.value).cast("int64")))

    def starts(self, node: Node) -> Value:
        (part,) = self.parts(node)
        return hexadecimal(part).startswith(node.value.encode().hex().upper())

    def changed(self, node: Node) -> Value:
        """Return a text after a chain of changes, such as strip and lower, in one step."""
        changes: list[str] = []
        while node.op in TEXT_CHANGES:
            changes.insert(0, node.op)
            (node,) = node.parts
        return changed_text(self.of(node), changes, self.backend)

    def day_parts(self, node: Node) -> tuple[Value, Value, Value]:
        (part,) = node.parts
        column = self.table[part.value] if part.value in self.table.columns else None
        if column is None or not column.type().is_date():
            return _parts(self.of(part))
        # Use the engine's functions, for days that have a number.
        known, own = known_day(column), (column.year(), column.month(), column.day())
        year, month, day = (ibis.cases((known, one.cast("int64"))) for one in own)
        return year, month, day

    def quarter(self, node: Node) -> Value:
        return quotient(self.day_parts(node)[1] + 2, 3)

    def period(self, node: Node) -> Value:
        """Return the text of a date's period: 2024-12-31, 2024-12, 2024-Q4, or 2024."""
        (date_number,) = self.parts(node)
        digits = (date_number + 10**8).cast("string")  # nine: 1, then year, month, and day
        text: Any = digits.substr(1, 4)
        if node.value == "quarter":
            quarter = quotient(_parts(date_number)[1] + 2, 3).cast("string")
            text = text.concat("-Q").concat(quarter)
        if node.value in ("month", "day"):
            text = text.concat("-").concat(digits.substr(5, 2))
        if node.value == "day":
            text = text.concat("-").concat(digits.substr(7, 2))
        return self.backend.encode(text)

    def weekday(self, node: Node) -> Value:
        """Return the day of the week, 1 for Monday to 7 for Sunday, by Sakamoto's rule."""
        year, month, day = self.day_parts(node)
        year = year - (month < 3).cast("int64")
        offsets = [(month == m, n) for m, n in enumerate((6, 2, 1, 4, 6, 2, 4, 0, 3, 5, 1, 3), 1)]
        leaps = quotient(year, 4) - quotient(year, 100) + quotient(year, 400)
        return (year + leaps + ibis.cases(*offsets) + day) % 7 + 1


_OPERATORS: Mapping[str, Callable[[Value, Value], Value]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
}


_STEPS: Mapping[str, Callable[[_Compiler, Node], Value]] = {
    "literal": _Compiler.literal,
    "column": _Compiler.column,
    "none": _Compiler.none,
    **dict.fromkeys(("compare", "and", "or", "add", "subtract", "multiply"), _Compiler.folded),
    "member": _Compiler.member,
    "missing": lambda own, node: own.parts(node)[0].isnull(),
    "not": lambda own, node: ~own.parts(node)[0],
    "divide": lambda own, node: quotient(own.parts(node)[0], node.value),
    "modulo": lambda own, node: remainder(own.parts(node)[0], node.value),
    "clip": _Compiler.clip,
    "choose": _Compiler.choose,
    "starts": _Compiler.starts,
    "year": lambda own, node: own.day_parts(node)[0],
    "quarter": _Compiler.quarter,
    "month": lambda own, node: own.day_parts(node)[1],
    "day": lambda own, node: own.day_parts(node)[2],
    "weekday": _Compiler.weekday,
    "period": _Compiler.period,
    "ordinal": lambda own, node: day_number(*own.day_parts(node)),
    "hour": lambda own, node: own.table[hour_column(node.parts[0].value)],
    **dict.fromkeys(TEXT_CHANGES, _Compiler.changed),
}
