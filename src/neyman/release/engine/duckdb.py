"""A DuckDB of our own: embedded, in memory, and on disk in a private folder where it must."""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from neyman.release.engine.lines import DataError
from neyman.release.engine.spill import spill_folder

__all__ = [
    "OFFLINE",
    "check_memory",
    "close",
    "connect",
    "parquet",
    "parquet_form",
    "parquet_types",
    "registered",
]

OFFLINE = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""Settings of each DuckDB that we open: nothing makes it download or load an extension."""
_MEMORY = re.compile(r"[0-9]+(\.[0-9]+)? ?([KMGT]i?B|[kmgt])")


def connect(memory: str | None = None) -> Any:
    """A new DuckDB.

    Args:
        memory: the most that it holds in memory, such as "4GB"; what does not fit is written to a
            folder that only this user can read, and that is removed with it. None for DuckDB's own
            limit, four fifths of the machine.

    Raises:
        DataError: no amount of memory.
    """
    settings: dict[str, Any] = dict(OFFLINE)
    if memory is not None:
        settings["memory_limit"] = check_memory(memory)
    folder = spill_folder()
    try:
        # pyright does not see Ibis's backends, which are attributes made on demand.
        made = ibis.duckdb.connect(  # pyright: ignore[reportAttributeAccessIssue]
            temp_directory=str(folder.path / "spilled"), **settings
        )
    except Exception as error:
        folder.remove()
        raise DataError(f"DuckDB could not be started ({type(error).__name__})") from None
    made.raw_sql("SET enable_progress_bar = true")  # without it no progress is known
    made.raw_sql("SET enable_progress_bar_print = false")
    made.neyman_close = weakref.finalize(made, folder.remove)
    return made


def check_memory(memory: str) -> str:
    """An amount of memory, as engines write it.

    Raises:
        DataError: it is none.
    """
    if not isinstance(memory, str) or not _MEMORY.fullmatch(memory):
        raise DataError(f"memory = {memory!r}: must be an amount such as '4GB' or '500MB'")
    return memory if memory.endswith("B") else f"{memory}B"


def close(connection: Any) -> None:
    """Close a connection of ours; another is left alone."""
    folder = getattr(connection, "neyman_close", None)
    if folder is not None:
        connection.disconnect()
        folder()


def registered(data: Any, memory: str | None = None) -> ibis.Table:
    """An Arrow table or data set as a table on a new DuckDB.

    Raises:
        DataError: it has types that DuckDB cannot take.
    """
    connection = connect(memory)
    try:
        connection.con.register("people", _typed(data))
        return connection.table("people")
    except Exception as error:
        raise DataError(
            f"data has columns that DuckDB cannot take ({type(error).__name__}); its types are "
            f"{', '.join(sorted({str(field.type) for field in data.schema}))}"
        ) from None


def _typed(data: Any) -> Any:
    """Columns of nothing but NULL as text: Ibis has no type for DuckDB's own."""
    if not isinstance(data, pa.Table):
        return data
    fields = [
        field.with_type(pa.string()) if pa.types.is_null(field.type) else field
        for field in data.schema
    ]
    return data.cast(pa.schema(fields)) if fields != list(data.schema) else data


def parquet_types(files: Sequence[str], columns: Sequence[str] | None) -> dict[str, Any]:
    """The types of Parquet files' columns by name, told from their footers; no row is read.

    Args:
        files: their paths, at least one.
        columns: those that matter; None for all.

    Raises:
        DataError: a file that is no Parquet file, or of which the end is missing; a column that
            has several types, or whose name stands for several.
    """
    connection = connect()
    try:
        found: dict[str, Any] = {}
        for file in files:
            try:
                names = pq.read_schema(file).names
                kinds = dict(connection.read_parquet([file], hive_partitioning=False).schema())
            except Exception as error:
                raise DataError(
                    f"data = {file!r} is not readable Parquet ({type(error).__name__}); is the "
                    "file whole?"
                ) from None
            _check_names(file, names, columns)
            found = found or kinds
            for name in tuple(found) if columns is None else columns:
                # DuckDB would cast the values of one file to the type of another, which can fail.
                if name in found and kinds.get(name) != found[name]:
                    raise DataError(
                        f"data = {file!r}: column {name!r} has type {kinds.get(name)}, and "
                        f"{found[name]} in {files[0]!r}; it must have one type in all files"
                    )
        return found
    finally:
        close(connection)


def _check_names(file: str, names: Sequence[str], columns: Sequence[str] | None) -> None:
    """Names that stand for several columns: engines would take one of them, or rename it."""
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.setdefault(name.casefold(), name)
        count = sum(other.casefold() == name.casefold() for other in names)
        if count > 1 and (columns is None or name in columns or twin in columns):
            raise DataError(
                f"data = {file!r}: {count} of its columns are called {name!r}, or so but for case; "
                "rename one, so that it is clear which is meant"
            )


def parquet(files: list[str], columns: Sequence[str] | None, memory: str | None) -> ibis.Table:
    """Parquet files of one form as a table on a new DuckDB."""
    connection = connect(memory)
    table = _text_for_null(connection.read_parquet(files, hive_partitioning=False))
    table = table.select(*columns) if columns is not None else table
    if _is_text(table):
        return table
    # DuckDB reads no text that is not UTF-8; Arrow does, and the engine compares bytes.
    words = ds.ParquetReadOptions(dictionary_columns=_text_columns(table))
    data = ds.dataset(files, format=ds.ParquetFileFormat(read_options=words))
    names = list(columns) if columns is not None else data.schema.names
    return registered(data, memory).select(*names)


def parquet_form(files: list[str], columns: Sequence[str] | None) -> ibis.Table:
    """The same without a row."""
    connection = connect()
    table = _text_for_null(connection.read_parquet(files[:1], hive_partitioning=False))
    return (table.select(*columns) if columns is not None else table).limit(0)


def _text_for_null(table: ibis.Table) -> ibis.Table:
    """As `_typed` has it, of a file."""
    empty = [name for name, kind in table.schema().items() if 'kind="NULL"' in str(kind)]
    return table.mutate(**{name: table[name].cast("string") for name in empty}) if empty else table


def _text_columns(table: ibis.Table) -> list[str]:
    return [name for name, kind in table.schema().items() if kind.is_string()]


def _longest(column: Any) -> Any:
    return column.length().max()


def _is_text(table: ibis.Table) -> bool:
    """Whether all text is UTF-8: whether DuckDB can read it."""
    measured = {f"c{i}": _longest(table[name]) for i, name in enumerate(_text_columns(table))}
    try:
        if measured:
            table.aggregate(**measured).to_pyarrow()
    except Exception:
        return False
    return True
