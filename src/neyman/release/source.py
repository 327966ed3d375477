"""Where the private table comes from: files, Arrow, data frames and Ibis tables, read robustly.

Only what a schema says can raise here. A CSV file is split by code of our own: the fast readers
guess a dialect from the content, stop at an ill-formed row, or lose its neighbors in silence, so
that one person's record would decide whether there is a release, or what happens to others.
"""

from __future__ import annotations

import csv
import glob
import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from neyman.release.document import suggest

__all__ = ["DataError", "open_table"]

_CHUNK = 1 << 24
_LONGEST = 1 << 20


class DataError(ValueError):
    """Data whose form (not content) does not fit the plan: a missing file, column or type."""


def open_table(
    source: Any,
    engine: str = "duckdb",
    columns: Sequence[str] | None = None,
    *,
    rows: bool = True,
) -> ibis.Table:
    """The private table as an Ibis table; nothing is counted yet.

    Args:
        source: a path to Parquet (a file, a folder of ``.parquet`` files or a pattern) or CSV
            (UTF-8, a header, commas, values quoted by doubling quotes; every value is text, an
            empty one is missing, an ill-formed row is dropped), an Ibis table, an Arrow table, or
            a pandas or polars data frame.
        engine: "duckdb". An Ibis table stays on the engine that it is on.
        columns: the columns that are needed; None for all.
        rows: False for the schema alone; then no row is read.

    Raises:
        DataError: no such file, an unknown kind of source, or a column that is not there.
    """
    if engine != "duckdb":
        raise DataError(f"engine = {engine!r}: must be 'duckdb'")
    if isinstance(source, ibis.Table):
        _require(source.columns, columns)
        return source.select(*columns) if columns is not None else source
    if isinstance(source, (str, Path)):
        return _open_path(str(source), columns, rows)
    return ibis.memtable(_arrow(source if rows else _head(source), columns))


def _connect() -> Any:
    # Spilled rows belong in the system's temporary folder, not beside the user's files.
    # pyright does not see Ibis's backends, which are attributes made on demand.
    return ibis.duckdb.connect(  # pyright: ignore[reportAttributeAccessIssue]
        temp_directory=str(Path(tempfile.gettempdir()) / "neyman-duckdb")
    )


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
        try:
            table = _connect().read_parquet(files, hive_partitioning=False)
        except Exception as error:
            raise DataError(f"data = {path!r} is not readable Parquet: {error}") from None
        _require(table.columns, columns)
        return table.select(*columns) if columns is not None else table
    if suffix in (".csv", ".txt"):
        return ibis.memtable(pa.concat_tables([_read_csv(file, columns, rows) for file in files]))
    raise DataError(f"data = {path!r}: must be Parquet (.parquet) or CSV (.csv)")


def _require(present: Sequence[str], columns: Sequence[str] | None) -> None:
    for column in columns or ():
        if column not in present:
            raise DataError(f"data has no column {column!r}; {suggest(column, present)}")


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


def _read_csv(path: str, columns: Sequence[str] | None, rows: bool = True) -> pa.Table:
    with open(path, "rb") as file:
        records = _records(file)
        header_line = next(records, [b""])
        header = _split(header_line[0].removeprefix(b"\xef\xbb\xbf")) or []
        names = [name or "" for name in header]
        if len(set(names)) < len(names):
            raise DataError(f"data = {path!r} names a column twice: {names}")
        _require(names, columns)
        picked = list(columns) if columns is not None else names
        parts = _rest(header_line, records) if rows else iter(())
        chunks = [_table(part, names, picked) for part in parts]
    schema = pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in picked])
    if not picked:
        return pa.table({"": pa.nulls(sum(chunk.num_rows for chunk in chunks), pa.string())})
    return pa.concat_tables([schema.empty_table(), *chunks]).unify_dictionaries()


def _rest(first: list[bytes], others: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    yield first[1:]
    yield from others


def _records(file: Any) -> Iterator[list[bytes]]:
    """Lists of records: lines, joined where a quoted value goes on over several.

    A record that does not close its quotes within a mebibyte is ill-formed; reading goes on with
    the next line, so that a stray quote costs what it must and no more.
    """
    left = b""
    while True:
        block = file.read(_CHUNK)
        text = left + block
        if block:
            cut = text.rfind(b"\n") + 1
            text, left = text[:cut], text[cut:]
            if len(left) > 2 * _CHUNK:
                left = b'"' * 3  # no row is this long: what remains of it is ill-formed
        else:
            left = b""
        if b'"' not in text:
            lines = (
                text.splitlines() if b"\r" not in text else text.replace(b"\r", b"").split(b"\n")
            )
            if any(lines):
                yield lines
        else:
            done, rest = _join(text.split(b"\n"), last=not block)
            left = rest + left
            if done:
                yield done
        if not block:
            return


def _join(lines: list[bytes], *, last: bool) -> tuple[list[bytes], bytes]:
    """Records of complete lines, and what may go on in the next block."""
    if lines and not lines[-1]:
        lines = lines[:-1]
    done: list[bytes] = []
    start = 0
    while start < len(lines):
        end, odd, size = start, False, 0
        while end < len(lines) and size <= _LONGEST:
            odd ^= lines[end].count(b'"') % 2 == 1
            size += len(lines[end]) + 1
            end += 1
            if not odd:
                break
        if not odd:
            done.append(b"\n".join(lines[start:end]).removesuffix(b"\r"))
            start = end
        elif size > _LONGEST or last:
            start += 1
        else:
            return done, b"".join(line + b"\n" for line in lines[start:])
    return done, b""


def _split(record: bytes) -> list[str | None] | None:
    """The values of one record, an empty or undecodable one as None; None if it is ill-formed."""
    try:
        values = record.decode("utf-8", "replace")
        (row,) = csv.reader([values], strict=True) if '"' in values else [values.split(",")]
    except (csv.Error, ValueError):
        return None
    return [value if value and "�" not in value else None for value in row]


def _table(records: list[bytes], names: list[str], picked: list[str]) -> pa.Table:
    """The rows that have as many values as there are columns."""
    commas = len(names) - 1
    plain = [record for record in records if record and b'"' not in record]
    quoted = [_split(record) for record in records if b'"' in record]
    rows = [row for row in quoted if row is not None and len(row) == len(names)]
    plain = [record for record in plain if record.count(b",") == commas]
    found = []
    if plain:
        body = io.BytesIO(b"\n".join(plain) + b"\n")
        table = pyarrow.csv.read_csv(
            body,
            read_options=pyarrow.csv.ReadOptions(
                column_names=names, block_size=max(1 << 16, body.getbuffer().nbytes + 1)
            ),
            parse_options=pyarrow.csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.binary() for name in names},
                include_columns=picked,
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
        found.append(pa.table({name: _text(table[name]) for name in picked}))
    if rows:
        at = [names.index(name) for name in picked]
        found.append(
            pa.table(
                {
                    name: pa.array([row[i] for row in rows], pa.string()).dictionary_encode()
                    for name, i in zip(picked, at, strict=True)
                }
            )
        )
    if found:
        return pa.concat_tables(found)
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, kind) for name in picked]).empty_table()


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    encoded: Any = column.combine_chunks().dictionary_encode()
    values = [_decoded(value) for value in encoded.dictionary.to_pylist()]
    # Undecodable values become missing: their places in the dictionary are null.
    text = pc.take(pa.array(values, pa.string()), encoded.indices)
    return pa.chunked_array([text.dictionary_encode()])


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
