"""Read rows that are not in files: Arrow data, data frames, streams, and DuckDB relations.

The kind of the data and their schema are known before the charge to the budget. The rows are read
once after the charge, into memory. Only an Arrow Dataset is read in place.
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from neyman.publishing.engines.column_types import PLACEHOLDER, is_plain, plain_type
from neyman.publishing.engines.csv_reader import DataError, fault
from neyman.publishing.engines.duckdb import quoted
from neyman.publishing.plan.plan_fields import PLAIN_SOURCE, SourcePart

_FORMATS = ("parquet", "arrow", "orc")


@dataclass(frozen=True)
class Frame:
    """Represent rows that an engine can read.

    Args:
        schema: the names and Arrow types of the columns.
        read: returns some columns of all rows, as an Arrow table or Arrow Dataset.
        check: refuses inconsistent types within the data, for some columns, before a row is read.
        single_use: True if it may be a stream, whose rows can be read once only.
        untyped: the columns whose type the schema does not give. Texts in them may be numbers.
        marked: a variant of ``read`` for columns that may mix numbers and texts. It writes numbers
            with the marks, such as a decimal comma, that a plan declares for texts. None if no
            column can mix them.
    """

    schema: pa.Schema
    read: Callable[[Sequence[str]], pa.Table | ds.Dataset]
    check: Callable[[Sequence[str]], None] = lambda columns: None
    single_use: bool = False
    untyped: frozenset[str] = frozenset()
    marked: Callable[[Sequence[str], SourcePart], pa.Table] | None = None

    def rows(self, columns: Sequence[str], marks: SourcePart) -> pa.Table | ds.Dataset:
        """Return the ``columns`` of all rows.

        Where numbers and texts mix, numbers are written with the plan's ``marks``.
        """
        return self.read(columns) if self.marked is None else self.marked(columns, marks)


def as_frame(source: Any) -> Frame | ibis.Table:
    """Recognize rows by their type, without reading a row.

    Args:
        source: an Arrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas or
            polars data frame, a narwhals frame, a DuckDB relation, or any other object with
            ``__arrow_c_stream__``. A stream is read once, so use only the returned frame.

    Returns:
        A `Frame`, or the Ibis table in a narwhals frame.
    """
    if isinstance(source, (Frame, ibis.Table)):
        return source
    if type(source).__module__.partition(".")[0] == "narwhals" and hasattr(source, "to_native"):
        return as_frame(source.to_native())
    try:
        frame = _of_type(source) or _of_protocol(source)
    except DataError:
        raise
    except Exception as error:
        raise fault(
            error,
            f"data is a {_name(source)} whose columns cannot be read ({type(error).__name__})",
        ) from None
    if frame is None:
        raise DataError(
            f"data is a {_name(source)}: must be a path or a list of paths, an Ibis table, an "
            "Arrow table, Dataset or stream, a DuckDB relation, or a pandas, polars or narwhals "
            "frame"
        )
    return frame


def _name(source: object) -> str:
    kind = type(source)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _of_type(source: object) -> Frame | None:
    match source:
        case pa.RecordBatch():
            return _of_type(pa.Table.from_batches([source]))
        case pa.Table():
            return Frame(source.schema, lambda columns: source.select(list(columns)))
        case pa.RecordBatchReader():
            return _stream_frame(source.schema, source.read_all)
        case ds.Scanner():
            return _stream_frame(source.projected_schema, source.to_table)
        case duckdb.DuckDBPyRelation():
            return _of_relation(source)
        case ds.Dataset():
            return _of_dataset(source)
        case _:
            return None


def _stream_frame(schema: pa.Schema, rows: Callable[[], pa.Table]) -> Frame:
    return Frame(schema, lambda columns: rows().select(list(columns)), single_use=True)


def _of_protocol(source: Any) -> Frame | None:
    """Return a frame for a type of another package, recognized by its methods; None if unknown."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return _of_pandas(source)
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):
        return _of_polars(source, lambda frame: frame.collect())
    if hasattr(source, "to_arrow") and hasattr(source, "head") and hasattr(source, "columns"):
        return _of_polars(source, lambda frame: frame)
    if hasattr(source, "__arrow_c_stream__"):
        return _of_stream(source)
    return None


def _of_polars(source: Any, collected: Callable[[Any], Any]) -> Frame:
    def read(columns: Sequence[str]) -> pa.Table:
        return collected(source.select(list(columns))).to_arrow()

    return Frame(_schema_of_polars(collected(source.head(0))), read)


def _schema_of_polars(empty: Any) -> pa.Schema:
    """Return the Arrow schema of a frame. A type that Arrow lacks is the unusable `PLACEHOLDER`."""
    try:
        return empty.to_arrow().schema
    except Exception:
        if len(empty.columns) == 1:
            return pa.schema([(empty.columns[0], PLACEHOLDER)])
        return pa.schema([_schema_of_polars(empty.select(name)).field(0) for name in empty.columns])


def _of_stream(source: Any) -> Frame:
    if hasattr(source, "__arrow_c_schema__"):
        return _stream_frame(pa.schema(source), lambda: _stream(source).read_all())
    # Some objects give their stream once only, so the stream opened for the schema is read later.
    opened = _stream(source)
    return _stream_frame(opened.schema, opened.read_all)


def _stream(source: object) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_stream(source)


def _of_relation(source: duckdb.DuckDBPyRelation) -> Frame:
    def read(columns: Sequence[str]) -> pa.Table:
        return source.project(", ".join(map(quoted, columns))).to_arrow_table()

    schema = source.limit(0).to_arrow_table().schema
    for number, kind in enumerate(source.types):
        if str(kind) == "UHUGEINT":
            # DuckDB returns them as decimals of 38 digits, which changes larger numbers.
            schema = schema.set(number, schema.field(number).with_type(pa.decimal256(39, 0)))
    return Frame(schema, read)


def _of_dataset(source: ds.Dataset) -> Frame:
    def read(columns: Sequence[str]) -> pa.Table:
        if _is_filtered(source):
            # A dataset made from it would include the rows that the filter leaves out.
            return source.to_table(columns=list(columns))
        fields = [source.schema.field(name) for name in columns]
        usable = [field for field in fields if plain_type(field.type) is not None]
        if not usable:
            return pa.table({"": pa.nulls(source.count_rows(), PLACEHOLDER)})
        if all(is_plain(field.type) for field in usable):
            return source.replace_schema(pa.schema(usable))
        return source.to_table(columns=[field.name for field in usable])

    def check(columns: Sequence[str]) -> None:
        for part in _parts(source):
            if isinstance(part, ds.FileSystemDataset):
                _check_files(part, source.schema, columns)

    # A dataset in memory may hold a stream, and a filter may hide a stream.
    held = any(isinstance(part, ds.InMemoryDataset) for part in _parts(source))
    return Frame(source.schema, read, check, single_use=held or _is_filtered(source))


def _is_filtered(source: ds.Dataset) -> bool:
    try:
        source.get_fragments()
    except ValueError:
        return True
    return False


def _parts(source: ds.Dataset) -> list[ds.Dataset]:
    if isinstance(source, ds.UnionDataset):
        return [part for child in source.children for part in _parts(child)]
    return [source]


def _same_type(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if Arrow converts each value of the type ``own`` to ``wanted`` without failure.

    A cast to another unit of time, or to another index type of a dictionary, can fail on a value.
    """
    texts = pa.types.is_string(own) or pa.types.is_large_string(own)
    plain = plain_type(own) == plain_type(wanted)
    return own == wanted or pa.types.is_null(own) or (texts and plain and is_plain(wanted))


def _check_files(source: ds.FileSystemDataset, schema: pa.Schema, columns: Sequence[str]) -> None:
    kind = source.format.default_extname
    if kind not in _FORMATS:
        raise DataError(
            f"data is an Arrow Dataset of {kind} files, whose types follow from their rows: give "
            "the paths of the files, or Parquet"
        )
    identities: set[Any] = set()
    for file in source.files:
        identity: Any = file
        if source.filesystem.type_name == "local":
            with suppress(OSError):
                status = os.stat(file)
                identity = (status.st_dev, status.st_ino) if status.st_ino else file
                if not stat.S_ISREG(status.st_mode):
                    raise DataError(f"data is an Arrow Dataset, and {file!r} is not a regular file")
        if identity in identities:
            raise DataError(
                f"data is an Arrow Dataset that has the rows of {file!r} twice, perhaps under "
                "another name; give each file once"
            )
        identities.add(identity)
    for file in source.files:
        own = source.format.inspect(file, source.filesystem)
        for name in columns:
            wanted = schema.field(name).type
            if name in own.names and not _same_type(own.field(name).type, wanted):
                raise DataError(
                    f"data is an Arrow Dataset whose column {name!r} has type {wanted}, and "
                    f"{own.field(name).type} in {file!r}; it must have one type in all files"
                )


def _of_pandas(source: Any) -> Frame:
    names = [str(name) for name in source.columns]
    empty = source.head(0)
    declared = [_declared_type(empty.iloc[:, i]) for i in range(len(names))]
    kinds = [kind or pa.string() for kind in declared]

    def marked(columns: Sequence[str], marks: SourcePart) -> pa.Table:
        at = [names.index(name) for name in columns]
        arrays = [_array(source.iloc[:, i], kinds[i], marks) for i in at]
        return pa.Table.from_arrays(arrays, names=list(columns))

    untyped = (name for name, kind in zip(names, declared, strict=True) if kind is None)
    return Frame(
        pa.schema(list(zip(names, kinds, strict=True))),
        lambda columns: marked(columns, PLAIN_SOURCE),
        untyped=frozenset(untyped),
        marked=marked,
    )


_UNDECLARED = ("object", "str")
"""The dtypes that pandas gives to a column of texts or mixed objects, depending on its values."""


def _declared_type(empty: Any) -> pa.DataType | None:
    """Return the Arrow type of an empty pandas column, from its dtype; None if undeclared.

    For a categorical dtype, Arrow would read the categories, so their dtype must be declared too.
    """
    kinds = [empty.dtype, getattr(getattr(empty.dtype, "categories", None), "dtype", "int64")]
    if any(str(kind) in _UNDECLARED for kind in kinds):
        return None
    with suppress(Exception):
        return pa.Array.from_pandas(empty).type
    return None


def _array(series: Any, kind: pa.DataType, marks: SourcePart) -> pa.ChunkedArray | pa.Array:
    """Return a pandas column as Arrow, in the type ``kind`` of the column without rows.

    If ``kind`` is text, `object_text` converts each object. If Arrow cannot convert a column of
    another type, its values are converted one by one, and a value that fails is missing.
    """
    if kind != pa.string():
        with suppress(Exception):
            array = pa.Array.from_pandas(series)
            return array if array.type == kind else array.cast(kind)
        return pa.chunked_array([_scalars(series, kind)])
    if hasattr(series.dtype, "categories"):
        texts = [object_text(value, marks) for value in series.dtype.categories]
        codes = series.array.codes
        return pa.array(texts, pa.large_string()).take(pa.array(codes, mask=codes < 0))
    return pa.array([object_text(value, marks) for value in series], type=pa.string())


def _scalars(series: Any, kind: pa.DataType) -> pa.Array:
    scalars: list[object] = []
    for value in series:
        try:
            scalars.append(pa.scalar(value, kind, from_pandas=True).as_py())
        except Exception:
            scalars.append(None)
    return pa.array(scalars, kind)


def object_text(value: object, marks: SourcePart) -> str | None:
    """Return the text of a Python object in a column that may mix texts, numbers, and dates.

    A number or a date is written with the plan's ``marks``, so that it is read back as itself. A
    missing value, NaN, or an object that raises an error has no text: the result is None.
    """
    try:
        return _text_of(value, marks)
    except Exception:
        return None


def _text_of(value: object, marks: SourcePart) -> str | None:
    # NumPy's scalars count as the Python numbers that they hold.
    item = getattr(value, "item", None)
    with suppress(Exception):
        value = item() if item is not None else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        integral = abs(value) < 2**53 and value.is_integer()
        text = str(int(value)) if integral else None if value != value else repr(value)
        return text and _marked_text(value, text, marks)
    text = str(value)
    text.encode()  # raises an error if the text is no UTF-8
    if value is None or (not isinstance(value, str) and text in ("<NA>", "NaT", "nan")):
        return None
    return _marked_text(value, text, marks)


def _marked_text(value: object, text: str, marks: SourcePart) -> str:
    if isinstance(value, (float, np.floating, Decimal)):
        return text.replace(".", marks.decimal)
    if not isinstance(value, date) or marks.dates is None:  # a date and time is a date too
        return text
    written = marks.dates
    for part, digits in {"%Y": text[:4], "%m": text[5:7], "%d": text[8:10]}.items():
        written = written.replace(part, digits)
    return written + text[10:]
