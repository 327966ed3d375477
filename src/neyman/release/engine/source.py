"""Where the private table comes from: files, Arrow, data frames and Ibis tables, read robustly.

Only what a schema says can raise here, and nothing that is raised shows a value. What is not on a
DuckDB of the caller's goes onto one of our own, which spills to a folder that only this user can
read and that is removed with it.
"""

from __future__ import annotations

import glob
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import pyarrow as pa
import pyarrow.dataset as ds

from neyman.release.engine.lines import DataError, missing, read_csv

__all__ = ["DataError", "open_table"]


def open_table(
    source: Any,
    engine: str = "duckdb",
    columns: Sequence[str] | None = None,
    *,
    rows: bool = True,
) -> ibis.Table:
    """The private table as an Ibis table on DuckDB; nothing is counted yet.

    Args:
        source: a path to Parquet (a file, a folder of ``.parquet`` files or a pattern) or CSV
            (each line a record, see ``lines``), an Ibis table on DuckDB or in memory, an Arrow
            table, or a pandas or polars data frame. The rows that a unit changes are those of
            this table: an Ibis expression that mixes rows is the caller's to account for.
        engine: "duckdb".
        columns: the columns that are needed; None for all.
        rows: False for the schema alone; then no row is read.

    Raises:
        DataError: no such file, an unknown kind of source, or a column that is not there.
    """
    if engine != "duckdb":
        raise DataError(f"engine = {engine!r}: must be 'duckdb'")
    if isinstance(source, ibis.Table):
        return _of_ibis(source, columns, rows)
    if isinstance(source, (str, Path)):
        return _open_path(str(source), columns, rows)
    return _registered(_arrow(source if rows else _head(source), columns))


def _connect() -> Any:
    """A DuckDB of our own."""
    folder = tempfile.mkdtemp(prefix="neyman-")
    # pyright does not see Ibis's backends, which are attributes made on demand.
    made = ibis.duckdb.connect(  # pyright: ignore[reportAttributeAccessIssue]
        temp_directory=str(Path(folder) / "spilled")
    )
    weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
    return made


def _registered(data: Any) -> ibis.Table:
    connection = _connect()
    try:
        connection.con.register("people", data)
        return connection.table("people")
    except Exception as error:
        raise DataError(
            f"data has columns that DuckDB cannot take ({type(error).__name__}); its types are "
            f"{', '.join(sorted({str(field.type) for field in data.schema}))}"
        ) from None


def _of_ibis(table: ibis.Table, columns: Sequence[str] | None, rows: bool) -> ibis.Table:
    _require(table.columns, columns)
    table = table.select(*columns) if columns is not None else table
    if table.op().find(ops.Impure):
        raise DataError("data is an Ibis expression that is not the same each time (random)")
    places = {
        getattr(node, "source", None)
        for node in table.op().find((ops.DatabaseTable, ops.SQLQueryResult))
    }
    if any(getattr(place, "name", None) != "duckdb" for place in places) or len(places) > 1:
        raise DataError(
            f"data is an Ibis table on {sorted(str(getattr(p, 'name', p)) for p in places)}: must "
            "be on one DuckDB connection, or in memory; give it as Parquet or as an Arrow table"
        )
    if places:
        return table
    try:
        held = _connect().to_pyarrow(table if rows else table.limit(0))
    except Exception as error:
        raise DataError(
            f"data is an Ibis expression that cannot be evaluated ({type(error).__name__})"
        ) from None
    return _registered(held)


def _open_path(path: str, columns: Sequence[str] | None, rows: bool) -> ibis.Table:
    suffix = Path(path).suffix.lower()
    if Path(path).is_dir():
        files = sorted(str(file) for file in Path(path).rglob("*.parquet"))
        suffix = ".parquet"
    else:
        files = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
    if not files:
        raise DataError(f"data = {path!r}: there is no such file, or no Parquet file in the folder")
    if suffix == ".parquet":
        return _parquet(path, files, columns, rows)
    if suffix in (".csv", ".txt"):
        parts = [read_csv(file, columns, rows=rows) for file in files]
        if any(part.schema != parts[0].schema for part in parts):
            raise DataError(f"data = {path!r}: its files differ in their columns")
        return _registered(pa.concat_tables(parts))
    raise DataError(f"data = {path!r}: must be Parquet (.parquet) or CSV (.csv)")


def _parquet(path: str, files: list[str], columns: Sequence[str] | None, rows: bool) -> ibis.Table:
    connection = _connect()
    kinds = []
    for file in files:
        try:
            kinds.append(connection.read_parquet([file], hive_partitioning=False).schema())
        except Exception as error:
            raise DataError(
                f"data = {file!r} is not readable Parquet ({type(error).__name__})"
            ) from None
        _require(tuple(kinds[-1]), columns)
        # DuckDB would cast the values of one file to the type of another, which can fail.
        for name in tuple(kinds[0]) if columns is None else columns:
            if kinds[-1].get(name) != kinds[0][name]:
                raise DataError(
                    f"data = {path!r}: column {name!r} has type {kinds[0][name]} in {files[0]!r}, "
                    f"and {kinds[-1].get(name)} in {file!r}; it must have one type in all files"
                )
    table = connection.read_parquet(files, hive_partitioning=False)
    table = table.select(*columns) if columns is not None else table
    if not rows or _is_text(table):
        return table
    # DuckDB reads no text that is not UTF-8; Arrow does, and the engine compares bytes.
    words = ds.ParquetReadOptions(dictionary_columns=_text_columns(table))
    data = ds.dataset(files, format=ds.ParquetFileFormat(read_options=words))
    names = list(columns) if columns is not None else data.schema.names
    return _registered(data).select(*names)


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


def _require(present: Sequence[str], columns: Sequence[str] | None) -> None:
    for column in columns or ():
        if column not in present:
            raise DataError(missing(column, present))


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
        return source.select(list(columns)) if columns is not None else source
    present = getattr(source, "columns", None)
    if present is None:
        raise DataError(
            f"data is a {type(source).__name__}: must be a path, an Ibis table, an Arrow table, or "
            "a pandas or polars data frame"
        )
    names = [str(name) for name in present]
    _require(names, columns)
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
