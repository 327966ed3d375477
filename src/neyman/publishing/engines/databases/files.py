"""Open tables of DuckDB and SQLite files for reading only.

A table of a DuckDB file is counted in place. A table of a SQLite file is read once, in one
statement, into memory. SQLite allows values of any kind in any column. Here the declared type alone
decides how a column is read, and a value of another kind is missing.
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import ibis
import ibis.expr.datatypes as dt
import pyarrow as pa
from ibis.formats.pyarrow import PyArrowType

from neyman.publishing.engines import duckdb as engine
from neyman.publishing.engines.column_types import PLACEHOLDER, check_types, plain_type
from neyman.publishing.engines.csv_reader import DataError, cause, check_names, fault
from neyman.publishing.engines.data_frames import Frame, object_text
from neyman.publishing.engines.databases.table import DatabaseTable
from neyman.publishing.engines.expressions import without_empty_text
from neyman.publishing.plan.plan_fields import PLAIN_SOURCE, SourcePart

_URL = re.compile(r"(duckdb|sqlite)://([^?#]+)\?(.*)", re.DOTALL)
_BATCH_ROWS = 1 << 16


def file_table(url: str) -> Frame | DatabaseTable:
    """Return the table that a URL names, such as ``duckdb://people.db?table=people``."""
    scheme = url.partition(":")[0]
    match = _URL.fullmatch(url)
    given = parse_qsl(match[3], keep_blank_values=True) if match else []
    if match is None or [name for name, _ in given] != ["table"] or not given[0][1]:
        raise DataError(
            f"data = {url!r}: must be {scheme}://PATH?table=NAME; an absolute path begins with a"
            f" slash, as {scheme}:///data/people.db?table=people"
        )
    path = re.sub(r"^/+", "/", unquote(match[2]))  # SQLAlchemy has one more slash
    if not os.path.isfile(path):
        raise DataError(f"data = {url!r}: there is no file {path!r}")
    return _SCHEMES[scheme](url, os.path.abspath(path), given[0][1])


class DuckDBTable(DatabaseTable):
    """Represent a table of a DuckDB file. Its name may begin with a schema and a dot."""

    def __init__(self, url: str, path: str, table: str) -> None:
        self._url, self._path, self._names = url, path, table.split(".")

    def open(self, columns: Sequence[str] | None, *, rows: bool, memory: str | None) -> ibis.Table:
        """Return the table on a DuckDB that Neyman opens."""
        connection = engine.connect(memory)
        try:
            schema = self._attach(connection)
            check_names(schema.names, columns or ())
            check_types(schema, columns)
            names = schema.names if columns is None else columns
            # Only columns of plain types reach Ibis, which cannot describe each type of DuckDB.
            plain = {name: plain_type(schema.field(name).type) is not None for name in names}
            chosen = ", ".join(
                f"{engine.quoted(name) if known else 'CAST(NULL AS BLOB)'} AS {engine.quoted(name)}"
                for name, known in plain.items()
            )
            connection.con.execute(
                f"CREATE TEMP VIEW neyman_rows AS SELECT {chosen or '1 AS one'} FROM {self._place}"
            ).fetchall()
            table = connection.table("neyman_rows")
            own = table.schema()
            kinds = [
                (name, _common_type(schema.field(name).type, own[name]))
                for name, known in plain.items()
                if known
            ]
            check_types(pa.schema(kinds), columns)
        except DataError:
            engine.close(connection)
            raise
        except Exception as error:
            engine.close(connection)
            raise fault(
                error, f"data = {self._url!r}: no such table, or a view that fails ({cause(error)})"
            ) from None
        picked = without_empty_text(table)
        return picked if rows else picked.limit(0)

    @property
    def _place(self) -> str:
        schema = self._names[0] if len(self._names) == 2 else "main"
        return ".".join(map(engine.quoted, ("people", schema, self._names[-1])))

    def _attach(self, connection: Any) -> pa.Schema:
        """Attach the file, and return the Arrow schema of the table."""
        path = engine.quoted(self._path, "'")
        try:
            connection.con.execute(f"ATTACH {path} AS people (READ_ONLY)").fetchall()
        except Exception as error:
            raise fault(
                error,
                f"data = {self._url!r}: no DuckDB file, or one that another process writes"
                f" ({cause(error)})",
            ) from None
        query = f"SELECT * FROM {self._place} LIMIT 0"
        return connection.con.sql(query).to_arrow_table().schema


def _common_type(kind: pa.DataType, own: dt.DataType) -> pa.DataType:
    """Return ``kind`` if DuckDB's own type agrees or is text; else the unusable `PLACEHOLDER`."""
    plain = plain_type(kind)
    same = plain is not None and str(PyArrowType.to_ibis(plain)) == str(own)
    same |= pa.types.is_timestamp(kind) and own.is_timestamp()
    return kind if same or own.is_string() else PLACEHOLDER


def _sqlite(url: str, path: str, table: str) -> Frame:
    address = f"file:{quote(path)}?mode=ro"
    wrong = "no SQLite file, or one that another process writes"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
            wrong = f"the table or view {table!r} cannot be read"
            described = connection.execute(
                "SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden <> 1", (table,)
            ).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"data = {url!r}: {wrong} ({cause(error)})") from None
    if not described:
        raise DataError(f"data = {url!r}: the file has no table {table!r}")
    readings = {name: _reading(kind or "") for name, kind in described}
    schema = pa.schema([(name, kind) for name, (kind, _) in readings.items()])

    def marked(columns: Sequence[str], marks: SourcePart) -> pa.Table:
        wanted = pa.schema([schema.field(name) for name in columns])
        names = ", ".join(engine.quoted(name) for name in columns) or "1"
        query = f"SELECT {names} FROM {engine.quoted(table)}"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.text_factory = bytes
            batches = list(_batches(connection.execute(query), wanted, readings, marks))
        return pa.Table.from_batches(batches, wanted)

    texts = (field.name for field in schema if pa.types.is_large_string(field.type))
    return Frame(
        schema,
        lambda columns: marked(columns, PLAIN_SOURCE),
        untyped=frozenset(texts),
        marked=marked,
    )


def _batches(
    cursor: Any, schema: pa.Schema, readings: Any, marks: SourcePart
) -> Iterator[pa.RecordBatch]:
    while rows := cursor.fetchmany(_BATCH_ROWS):
        arrays = [
            pa.array([readings[field.name][1](value, marks) for value in values], field.type)
            for field, values in zip(schema, zip(*rows, strict=True), strict=False)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _reading(declared: str) -> tuple[Any, Callable[[Any, SourcePart], Any]]:
    """Return the Arrow type of a declared type, by SQLite's rules, and a function that reads it.

    The function takes a value and the plan's marks, and returns None for a value of another kind.
    """
    kind = declared.upper()
    if "INT" in kind or "BOOL" in kind:
        return pa.int64(), lambda value, _: value if isinstance(value, int) else None
    if "BLOB" in kind:
        return PLACEHOLDER, lambda value, _: None
    if any(word in kind for word in ("REAL", "FLOA", "DOUB")):
        return pa.float64(), lambda x, _: float(x) if isinstance(x, (int, float)) else None
    return pa.large_string(), _text  # a batch can exceed 2 GiB


def _text(value: object, marks: SourcePart) -> str | None:
    """Return the text of a value. A number has its shortest digits, with the plan's marks."""
    if not isinstance(value, bytes):
        return object_text(value, marks)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


_SCHEMES: Mapping[str, Callable[[str, str, str], Frame | DatabaseTable]] = {
    "duckdb": DuckDBTable,
    "sqlite": _sqlite,
}
"""By URL scheme: a function that opens a table, given the URL, the file's path, and its name."""
