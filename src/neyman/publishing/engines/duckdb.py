"""Open a DuckDB in this process for private rows, with a private folder for what exceeds memory."""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from ibis.formats.pyarrow import PyArrowType
from pyarrow.fs import LocalFileSystem

from neyman.publishing.engines.column_types import (
    PLACEHOLDER,
    plain_form,
    plain_table,
    plain_type,
    reads_as_is,
)
from neyman.publishing.engines.csv_reader import DataError, cause, check_names, fault
from neyman.publishing.plan.plan_fields import SourcePart
from neyman.storage.private_folder import PrivateFolder, private_folder

OFFLINE = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""Settings of each DuckDB that we open. DuckDB never downloads or loads an extension."""
_WILDCARD = re.compile(r"[*?\[]")
_MEMORY = re.compile(r"[0-9]+(\.[0-9]+)? ?([KMGT]i?B|[kmgt])")


@dataclass(frozen=True)
class Opening:
    """Hold the arguments of `open_table`, for the functions that open one kind of data."""

    engine: str
    columns: Sequence[str] | None
    rows: bool
    memory: str | None
    master: str | None
    csv: SourcePart


def connect(memory: str | None = None) -> Any:
    """Return a new DuckDB.

    Data beyond ``memory``, such as "4GB", are written to a folder that only this user can read and
    that is removed with the connection. None means DuckDB's limit, four fifths of the machine's
    memory.
    """
    settings: dict[str, Any] = dict(OFFLINE)
    if memory is not None:
        settings["memory_limit"] = check_memory(memory)
    folder = spill_folder()
    try:
        # pyright does not see Ibis's backends, which are attributes made on demand.
        connection = ibis.duckdb.connect(  # pyright: ignore[reportAttributeAccessIssue]
            temp_directory=str(folder.path / "spilled"), **settings
        )
    except Exception as error:
        folder.remove()
        raise fault(error, f"DuckDB could not be started ({cause(error)})") from None
    with suppress(duckdb.InvalidInputException):  # in a notebook, DuckDB demands ipywidgets for it
        connection.raw_sql("SET enable_progress_bar = true")  # without it no progress is known
        connection.raw_sql("SET enable_progress_bar_print = false")
    connection.neyman_close = weakref.finalize(connection, folder.remove)
    return connection


def spill_folder(above: str | Path | None = None) -> PrivateFolder:
    """Make a folder in ``above`` for private rows that do not fit in memory (`private_folder`)."""
    above = Path(tempfile.gettempdir() if above is None else above).absolute()
    try:
        return private_folder("spill", above)
    except OSError as error:
        raise DataError(
            f"the temporary folder {str(above)!r} cannot hold rows that do not fit in memory "
            f"({error.strerror}); set TMPDIR to a folder that this user can write"
        ) from None


def check_memory(memory: str) -> str:
    """Return an amount of memory as engines write it, with a final B: "4GB" for "4G"."""
    if not isinstance(memory, str) or not _MEMORY.fullmatch(memory):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"memory = {memory!r}: must be an amount such as '4GB' or '500MB'")
    return memory if memory.endswith("B") else f"{memory}B"


def close(connection: Any) -> None:
    """Close a connection of `connect`, and remove its folder. Leave other connections open."""
    folder = getattr(connection, "neyman_close", None)
    if folder is not None:
        connection.disconnect()
        folder()


def registered(data: pa.Table | ds.Dataset, opening: Opening) -> ibis.Table:
    """Return an Arrow table or Dataset of plain types as a table on a new DuckDB."""
    connection = connect(opening.memory)
    try:
        connection.con.register("people", data)
        return connection.table("people")
    except Exception as error:
        close(connection)
        # Guards against tables that DuckDB cannot hold.
        raise untaken(error, "DuckDB", data.schema) from None


def untaken(error: Exception, engine: str, schema: pa.Schema) -> Exception:
    """Return the error to raise if an engine does not accept data, with the data's types."""
    kinds = ", ".join(sorted({str(field.type) for field in schema}))
    name = type(error).__name__
    text = f"data has columns that {engine} cannot take ({name}); its types are {kinds}"
    return fault(error, text)


def parquet_schema(files: Sequence[str], columns: Sequence[str] | None) -> pa.Schema:
    """Return the Arrow schema of columns of Parquet files, from their footers. No row is read.

    DuckDB and Arrow may both read a file (see `parquet`), so they must give a column the same type.
    A column that they read differently gets a type that no plan can use. Without ``columns``, the
    schema has the columns that each file has once, and in one type.
    """
    connection = connect()
    try:
        types: dict[str, Any] = {}
        natives: dict[str, Any] = {}
        for number, file in enumerate(files):
            schema = footer(file)
            if columns is None:
                counts = Counter(name.casefold() for name in schema.names)
                names = [name for name in schema.names if counts[name.casefold()] == 1]
            else:
                check_names(schema.names, columns, f"data = {file!r}")
                names = list(columns)
            kinds = {name: schema.field(name).type for name in names}
            try:
                native = dict(_parquet(connection, [file], names).schema())
            except DataError:
                raise
            except Exception as error:
                # Guards against files that go while they are read.
                raise _unreadable(file, error) from None
            if number == 0:
                types, natives = kinds, native
            differing = [
                name
                for name, kind in types.items()
                if name not in kinds
                or natives.get(name) != native.get(name)
                or plain_type(kind) != plain_type(kinds[name])
            ]
            if columns is None:
                types = {name: kind for name, kind in types.items() if name not in differing}
            elif differing:
                # DuckDB would cast the values of one file to the type of another, which can fail.
                name = differing[0]
                raise DataError(
                    f"data = {file!r}: column {name!r} has type {kinds[name]}, and "
                    f"{types[name]} in {files[0]!r}; it must have one type in all files"
                )
        return pa.schema(
            [(name, _common_type(kind, natives.get(name))) for name, kind in types.items()]
        )
    finally:
        close(connection)


def footer(file: str) -> pa.Schema:
    """Return the Arrow schema of a Parquet file, from its footer."""
    try:
        with open(file, "rb") as opened:
            return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us").schema_arrow
    except Exception as error:
        raise _unreadable(file, error) from None


def _unreadable(file: str, error: Exception) -> Exception:
    return fault(
        error,
        f"data = {file!r} is not readable Parquet ({type(error).__name__}); is the file whole?",
    )


def _parquet(connection: Any, files: Sequence[str], columns: Sequence[str]) -> ibis.Table:
    """Return columns of Parquet files as a table. Without columns, it has a constant per row."""
    places = ", ".join(quoted(_exact(connection, file), "'") for file in files)
    chosen = ", ".join(quoted(name) for name in columns) or "1 AS one"
    connection.con.execute(
        f"CREATE OR REPLACE TEMP VIEW people AS SELECT {chosen}"
        f" FROM read_parquet([{places}], hive_partitioning = false)"
    ).fetchall()
    return _text_for_null(connection.table("people"))


def quoted(text: str, mark: str = '"') -> str:
    """Return a text in quotation marks for SQL: a name, or a literal if the mark is "'"."""
    return mark + text.replace(mark, 2 * mark) + mark


def _common_type(kind: pa.DataType, native: Any) -> pa.DataType:
    """Return ``kind``, or `PLACEHOLDER` if DuckDB's type ``native`` is not its plain type."""
    plain = plain_type(kind)
    if plain is None or pa.types.is_null(kind) or not reads_as_is(kind):
        return kind
    if pa.types.is_timestamp(kind):
        same = getattr(native, "is_timestamp", bool)()
        return kind if same and (native.timezone is None) == (kind.tz is None) else PLACEHOLDER
    return kind if str(PyArrowType.to_ibis(plain)) == str(native) else PLACEHOLDER


def _exact(connection: Any, file: str) -> str:
    """Return a pattern that DuckDB expands to this file alone. DuckDB expands every name."""
    path = os.path.abspath(file)
    pattern = _WILDCARD.sub(r"[\g<0>]", path)
    try:
        matches = connection.con.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
    except Exception:
        matches = []
    if [name for (name,) in matches] != [path]:
        raise DataError(
            f"data = {file!r}: DuckDB takes this name for another, or for a pattern; rename the "
            "file or its folder, without wildcards and backslashes"
        )
    return pattern


def parquet(files: Sequence[str], schema: pa.Schema, opening: Opening) -> ibis.Table:
    """Return Parquet files with one schema as a table on a new DuckDB."""
    if not opening.rows:
        return registered(plain_form(schema), opening)
    kinds = {field.name: plain_type(field.type) for field in schema}
    types = {name: kind for name, kind in kinds.items() if kind is not None}
    # Arrow would convert a timestamp on the way, and fail if precision is lost.
    types |= {field.name: field.type for field in schema if pa.types.is_timestamp(field.type)}
    if not all(map(reads_as_is, types.values())):
        return registered(_by_arrow(files, types), opening).select(*types)
    connection = connect(opening.memory)
    table = _parquet(connection, files, list(types))
    if _is_text(table):
        return table
    close(connection)
    # DuckDB cannot read text that is not UTF-8. Arrow can, and the engine compares bytes. Both give
    # the same types (see `parquet_schema`), so only the bytes of a text decide the reader.
    return registered(_by_arrow(files, types), opening).select(*types)


def _by_arrow(files: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table | ds.Dataset:
    """Return Parquet files as an Arrow Dataset, or as a table if timestamps must be converted."""
    data = ds.dataset(
        [os.path.abspath(file) for file in files],
        pa.schema(list(types.items())),
        format=ds.ParquetFileFormat(
            read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False),
        ),
        filesystem=LocalFileSystem(),
    )
    times = [kind for kind in types.values() if pa.types.is_timestamp(kind)]
    return data if all(kind == plain_type(kind) for kind in times) else plain_table(data.to_table())


def _text_for_null(table: ibis.Table) -> ibis.Table:
    """Return all-null columns as text: Ibis has no type for DuckDB's null type."""
    empty = [name for name, kind in table.schema().items() if 'kind="NULL"' in str(kind)]
    return table.mutate(**{name: table[name].cast("string") for name in empty}) if empty else table


def _is_text(table: ibis.Table) -> bool:
    rows: Any = table
    names = [name for name, kind in table.schema().items() if kind.is_string()]
    measured = {f"c{i}": rows[name].length().max() for i, name in enumerate(names)}
    try:
        if measured:
            table.aggregate(**measured).to_pyarrow()
    except Exception:
        return False
    return True
