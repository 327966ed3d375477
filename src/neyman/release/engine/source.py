"""Where the private table comes from: files, Arrow, data frames and Ibis tables, read robustly.

Only what a schema says can raise here, and nothing that is raised shows a value. What is not on an
engine of the caller's goes onto one of our own, which writes what does not fit in memory to a
folder that only this user can read and that is removed with it.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import pyarrow as pa

from neyman.release.engine import duckdb, spark
from neyman.release.engine.lines import DataError, missing, read_csv

__all__ = ["DataError", "close_table", "open_table"]

_BACKENDS = {"duckdb": "duckdb", "spark": "pyspark"}


def open_table(
    source: Any,
    engine: str = "duckdb",
    columns: Sequence[str] | None = None,
    *,
    rows: bool = True,
    memory: str | None = None,
    master: str | None = None,
) -> ibis.Table:
    """The private table as an Ibis table on an engine; nothing is counted yet.

    Args:
        source: a path to Parquet (a file, a folder of ``.parquet`` files or a pattern) or CSV
            (each line a record, see ``lines``), an Ibis table on the engine or in memory, an Arrow
            table, or a pandas or polars data frame. The rows that a unit changes are those of
            this table: an Ibis expression that mixes rows is the caller's to account for.
        engine: "duckdb" or "spark".
        columns: the columns that are needed; None for all.
        rows: False for the schema alone; then no row is read.
        memory: the most that the engine holds in memory, such as "4GB": DuckDB writes the rest to a
            private folder; for Spark it is the driver's.
        master: where Spark runs; "local[2]" if not told.

    Raises:
        DataError: no such file, one that is cut off or of another type than the others, an unknown
            kind of source, an unknown engine, an amount of memory that is none, or a column that
            is not there, or twice.
        ImportError: the engine is not installed; the message names the extra.
    """
    if engine not in _BACKENDS:
        raise DataError(f"engine = {engine!r}: must be 'duckdb' or 'spark'")
    if engine == "spark":
        spark.installed()
    elif master is not None:
        raise DataError(f"master = {master!r}: is for engine = 'spark'; leave it out")
    if memory is not None:
        duckdb.check_memory(memory)
    opening = _Opening(engine, columns, rows, memory, master)
    if isinstance(source, ibis.Table):
        return _of_ibis(source, opening)
    if isinstance(source, (str, Path)):
        return _open_path(str(source), opening)
    return opening.held(_arrow(source if rows else _head(source), columns))


def close_table(table: ibis.Table) -> None:
    """Close the engine of a table if it is ours: what it wrote is removed, Spark stopped.

    The same happens when the table is gone.
    """
    backend = table.get_backend()
    (duckdb if backend.name == "duckdb" else spark).close(backend)


@dataclass(frozen=True)
class _Opening:
    """How a table is wanted."""

    engine: str
    columns: Sequence[str] | None
    rows: bool
    memory: str | None
    master: str | None

    def held(self, data: pa.Table) -> ibis.Table:
        """An Arrow table on the engine."""
        if self.engine == "duckdb":
            return duckdb.registered(data, self.memory)
        return spark.registered(data, self.memory, self.master)


def _of_ibis(table: ibis.Table, opening: _Opening) -> ibis.Table:
    columns = opening.columns
    _require(table.columns, columns)
    table = table.select(*columns) if columns is not None else table
    if table.op().find(ops.Impure):
        raise DataError("data is an Ibis expression that is not the same each time (random)")
    places = {
        getattr(node, "source", None)
        for node in table.op().find((ops.DatabaseTable, ops.SQLQueryResult))
    }
    wanted = _BACKENDS[opening.engine]
    if any(getattr(place, "name", None) != wanted for place in places) or len(places) > 1:
        raise DataError(
            f"data is an Ibis table on {sorted(str(getattr(p, 'name', p)) for p in places)}: must "
            f"be on one {opening.engine} connection, or in memory; give it as Parquet or as an "
            "Arrow table"
        )
    if places:
        if opening.engine == "spark":
            spark.of_session(table)
        return table
    try:
        held = duckdb.connect().to_pyarrow(table if opening.rows else table.limit(0))
    except Exception as error:
        raise DataError(
            f"data is an Ibis expression that cannot be evaluated ({type(error).__name__})"
        ) from None
    return opening.held(held)


def _open_path(path: str, opening: _Opening) -> ibis.Table:
    suffix = Path(path).suffix.lower()
    if Path(path).is_dir():
        files = sorted(str(file) for file in Path(path).rglob("*.parquet"))
        suffix = ".parquet"
    else:
        files = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
    if not files:
        raise DataError(f"data = {path!r}: there is no such file, or no Parquet file in the folder")
    columns, rows = opening.columns, opening.rows
    if suffix == ".parquet":
        types = duckdb.parquet_types(files, columns)
        _require(tuple(types), columns)
        if opening.engine == "spark":
            kept = {name: types[name] for name in (types if columns is None else columns)}
            return spark.parquet(files, kept, opening.memory, opening.master, rows=rows)
        return (
            duckdb.parquet(files, columns, opening.memory)
            if rows
            else duckdb.parquet_form(files, columns)
        )
    if suffix in (".csv", ".txt"):
        parts = [read_csv(file, columns, rows=rows) for file in files]
        for file, part in zip(files, parts, strict=True):
            if part.schema != parts[0].schema:
                raise DataError(f"data = {file!r}: its columns differ from those of {files[0]!r}")
        return opening.held(pa.concat_tables(parts))
    raise DataError(f"data = {path!r}: must be Parquet (.parquet) or CSV (.csv)")


def _require(present: Sequence[str], columns: Sequence[str] | None) -> None:
    for column in columns or ():
        if column not in present:
            raise DataError(missing(column, present))


def _once(present: Sequence[str], columns: Sequence[str] | None) -> None:
    for name, times in Counter(present).items():
        if times > 1 and (columns is None or name in columns):
            raise DataError(
                f"data has {times} columns called {name!r}; rename one, so that it is clear which "
                "is meant"
            )


def _head(source: Any) -> Any:
    """The source without its rows."""
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return source.slice(0, 0)
    return source.head(0) if hasattr(source, "head") else source


def _arrow(source: Any, columns: Sequence[str] | None) -> pa.Table:
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):
        source = source.collect()
    if isinstance(source, pa.Table):
        _require(source.column_names, columns)
        _once(source.column_names, columns)
        return source.select(list(columns)) if columns is not None else source
    present = getattr(source, "columns", None)
    if present is None:
        raise DataError(
            f"data is a {type(source).__name__}: must be a path, an Ibis table, an Arrow table, or "
            "a pandas or polars data frame"
        )
    names = [str(name) for name in present]
    _require(names, columns)
    _once(names, columns)
    picked = list(columns) if columns is not None else names
    if hasattr(source, "to_arrow"):
        return source.select(picked).to_arrow()
    whole = {str(name): source[name] for name in present}
    return pa.table({name: _array(whole[name]) for name in picked})


def _array(series: Any) -> pa.Array | pa.ChunkedArray:
    """A pandas column as Arrow; mixed objects become text one by one."""
    if str(getattr(series, "dtype", "object")) not in ("object", "str", "string"):
        with suppress(pa.ArrowException):
            return pa.Array.from_pandas(series)
    return pa.array([_object_text(value) for value in series], type=pa.string())


def _object_text(value: object) -> str | None:
    """The canonical text of a Python object: as the engine writes the same value; None for NaN."""
    # NumPy's scalars count as the Python numbers they hold.
    item = getattr(value, "item", None)
    with suppress(Exception):
        value = item() if item is not None else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        whole = abs(value) < 2**53 and value == int(value)
        return str(int(value)) if whole else None if value != value else repr(value)
    text = None if value is None else _safe_text(value)
    return None if not isinstance(value, str) and text in ("<NA>", "NaT", "nan") else text


def _safe_text(value: object) -> str | None:
    try:
        text = str(value)
        text.encode()
    except Exception:
        return None
    return text
