"""Map each Arrow type to a plain type: a type that every engine reads with the same meaning.

If a plan needs a column without a plain type, it is refused before any row is read. No conversion
raises an error because of a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from neyman.publishing.engines.csv_reader import DataError, without_empty

# pyright does not see the functions that Arrow makes on import.
_compute: Any = pc
_TEXT = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class Limits:
    """Limit dates and times in a column: the most days, and the most microseconds, from 1970."""

    days: int = 2**31 - 1
    # The most microseconds of a nanosecond timestamp. The ends of 64 bits stand for missing values.
    microseconds: int = (2**63 - 1) // 1000 - 1


LIMITS = Limits()

_DAY_MILLISECONDS = 86_400_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
_FIRST_SECOND, _LAST_SECOND = -62_135_683_200, 253_402_387_199  # a day around years 1 to 9999


PLACEHOLDER = pa.binary()
"""The type of a column that no plan can use, in a table that has such a column."""


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the plain type of a column of an Arrow type; None if no plan can use the column.

    Text of every layout is one type. Half floats become single floats, and decimals have 128 bits.
    Dates count days. Timestamps count microseconds, in UTC if they have a time zone. Dictionaries
    and run-end encodings are read as their values. An all-null column is text. Decimals with 256
    bits or a negative scale, times, nested types, bytes, and extension types cannot be used.
    """
    types = pa.types
    if types.is_dictionary(kind) or str(kind).startswith("run_end_encoded"):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return None
    if types.is_null(kind) or str(kind) in _TEXT:
        return pa.large_string()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return kind
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_decimal(kind) and kind.bit_width <= 128 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    return None


def is_plain(kind: pa.DataType) -> bool:
    """Return True if engines read a type unchanged: a plain type, or text in another layout."""
    return str(kind) in _TEXT or kind == plain_type(kind)


def reads_as_is(kind: pa.DataType) -> bool:
    """Return True if DuckDB reads a Parquet type without conversion, whatever the values are.

    DuckDB converts millisecond timestamps, which fails if they overflow 64 bits. Ibis has no type
    for nanoseconds with a time zone.
    """
    is_time = pa.types.is_timestamp(kind)
    return not is_time or kind.unit == "us" or (kind.unit == "ns" and kind.tz is None)


def check_types(schema: pa.Schema, columns: Iterable[str] | None) -> None:
    """Raise DataError if one of the named columns has no plain type."""
    for name in columns or ():
        kind = schema.field(name).type
        if plain_type(kind) is None:
            raise DataError(
                f"data column {name!r} has type {kind}: a column that a plan uses holds text, "
                "numbers (decimals of at most 38 digits), true/false, dates or timestamps; convert "
                "it first"
            )


def plain_form(schema: pa.Schema) -> pa.Table:
    """Return a table without rows, in plain types. Other columns have the type `PLACEHOLDER`."""
    kinds = [(field.name, plain_type(field.type) or PLACEHOLDER) for field in schema]
    return pa.schema(kinds or [("", PLACEHOLDER)]).empty_table()


def plain_table(data: pa.Table) -> pa.Table:
    """Return an Arrow table in plain types, without the columns that no plan can use."""
    kinds = {field.name: plain_type(field.type) for field in data.schema}
    columns = {n: plain(data[n]) for n, kind in kinds.items() if kind is not None}
    # Without a column a table has no rows.
    return pa.table(columns or {"": pa.nulls(data.num_rows, PLACEHOLDER)})


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column to its plain type, which must exist.

    A text column keeps its Arrow type, because engines read each; a dictionary of texts stays a
    dictionary. These values become missing: a decimal or a date outside its type's range, an empty
    text of a dictionary, and a timestamp more than a day outside the years 1 to 9999. Nanoseconds
    are rounded down to microseconds.
    """
    kind = column.type
    if str(kind).startswith("run_end_encoded"):
        return plain(_compute.run_end_decode(column))
    if pa.types.is_dictionary(kind) and str(kind.value_type) in _TEXT:
        parts = [
            without_empty(part.indices, part.dictionary.cast(pa.large_string()))
            for part in column.chunks
        ]
        return pa.chunked_array(parts, pa.dictionary(pa.int32(), pa.large_string()))
    if pa.types.is_dictionary(kind):
        return plain(column.cast(kind.value_type))
    if pa.types.is_date64(kind):
        most = LIMITS.days * _DAY_MILLISECONDS
        known = _null_outside(column, column.cast(pa.int64()), -most, most)
        return known.cast(pa.date32(), safe=False)
    if pa.types.is_timestamp(kind):
        return _microseconds(column)
    if pa.types.is_decimal(kind):
        wide = pa.decimal128(38, kind.scale)
        least, most = (Decimal((sign, (9,) * kind.precision, -kind.scale)) for sign in (1, 0))
        column = column.cast(wide, safe=False)
        column = _null_outside(column, column, pa.scalar(least, wide), pa.scalar(most, wide))
        return column.cast(plain_type(kind), safe=False)
    wanted = plain_type(kind)
    return column if str(kind) in _TEXT or kind == wanted else column.cast(wanted)


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    unit, number = column.type.unit, column.cast(pa.int64())
    if unit == "ns":
        quotient = _compute.divide(number, 1000)
        below = _compute.less(number, _compute.multiply(quotient, 1000)).cast(pa.int64())
        number = _compute.subtract(quotient, below)
        most = LIMITS.microseconds
        return _null_outside(number, number, -most, most).cast(plain_type(column.type))
    least, most = (second * _PER_SECOND[unit] for second in (_FIRST_SECOND, _LAST_SECOND))
    number = _null_outside(number, number, least, most)
    number = _compute.multiply(number, _PER_SECOND["us"] // _PER_SECOND[unit])
    return number.cast(plain_type(column.type))


def _null_outside(
    column: pa.ChunkedArray, number: pa.ChunkedArray, least: int | pa.Scalar, most: int | pa.Scalar
) -> pa.ChunkedArray:
    inside = _compute.and_(_compute.greater_equal(number, least), _compute.less_equal(number, most))
    return _compute.if_else(inside, column, pa.scalar(None, column.type))
