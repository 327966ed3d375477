"""Open the private table on an engine, from files, Arrow data, data frames, and databases.

No value of a row can cause an error here, and no error shows a value. Data that are not on an
engine of the caller go onto an engine that Neyman opens. If they do not fit in memory, the engine
writes them to a folder that only this user can read and that is removed with the engine.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import ibis
import ibis.expr.operations as ops
import pyarrow as pa
import pyarrow.dataset as ds

from neyman.publishing.engines import duckdb
from neyman.publishing.engines.backends import OWN, backend_of
from neyman.publishing.engines.column_types import check_types, plain_form, plain_table
from neyman.publishing.engines.csv_reader import (
    DataError,
    check_names,
    fault,
    header_of,
    read_csv,
    suffix_of,
)
from neyman.publishing.engines.data_files import Paths, data_files
from neyman.publishing.engines.data_frames import Frame, as_frame
from neyman.publishing.engines.databases.files import file_table
from neyman.publishing.engines.databases.table import DatabaseTable
from neyman.publishing.engines.duckdb import Opening
from neyman.publishing.engines.expressions import without_empty_text
from neyman.publishing.engines.spark import shown_master
from neyman.publishing.plan.plan_fields import PLAIN_SOURCE, SourcePart

_CSV = {".csv", ".txt", ".tsv"}


def open_table(
    source: object,
    engine: str = "duckdb",
    columns: Sequence[str] | None = None,
    *,
    rows: bool = True,
    memory: str | None = None,
    master: str | None = None,
    csv: SourcePart = PLAIN_SOURCE,
) -> ibis.Table:
    """Return the private table as an Ibis table on an engine. No query of a plan runs yet.

    Args:
        source: the data, in one of these forms:

            - a path or a list of paths, see `data_files`: Parquet (a file, a folder of ``.parquet``
              files, or a pattern), or CSV (each line a record, see `csv_reader`);
            - the URL of a table in a database: ``postgresql://role@host/db?table=people``,
              ``duckdb://people.db?table=people``, or ``sqlite://people.db?table=people``;
            - an Ibis table on the engine, on PostgreSQL, or in memory;
            - an Arrow table, Dataset, or stream, a DuckDB relation, or a pandas, polars, or
              narwhals frame, see `data_frames`.

            The guarantee is about the rows of this table. If an expression or a query mixes rows,
            or can fail because of a row's values, the caller must account for this.
        engine: "duckdb" or "spark".
        columns: the needed columns; None for all.
        rows: False for the schema alone. Then no row is read.
        memory: the largest memory of the engine, such as "4GB". DuckDB writes the rest to a private
            folder. For Spark, the limit is the driver's.
        master: the Spark master; "local[2]" by default.
        csv: the form of CSV files that the plan declares.

    Raises:
        DataError: a file is missing, cut off, or of another type than the others; the kind of
            source, the engine, or the amount of memory is invalid; a column is missing or
            duplicated; or a form of CSV files is declared for data that are no CSV file.
        ImportError: the engine is not installed. The message names the extra.
    """
    check_engine(engine, memory, master)
    OWN[engine].check_installed()
    opening = Opening(engine, columns, rows, memory, master, csv)
    known = as_source(source)
    if csv.form != PLAIN_SOURCE and not csv_files(known):
        raise DataError(
            "the plan's [source] declares the form of a CSV file, and data is not one; give a CSV "
            "file, or leave delimiter, encoding, and compression out of [source]"
        )
    return _open_source(known, opening)


def check_engine(engine: object, memory: str | None, master: str | None) -> None:
    """Raise DataError for an unknown engine, or a setting that the engine does not have."""
    if not isinstance(engine, str) or engine not in OWN:
        raise DataError(f"engine = {engine!r}: must be 'duckdb' or 'spark'")
    if master is not None and not isinstance(cast("object", master), str):
        raise DataError(f"master = {master!r}: must be a text, as 'local[2]' or 'sc://host:15002'")
    if master is not None and not OWN[engine].has_master:
        raise DataError(
            f"{shown_master(master)}: is for engine = 'spark'; name it, or leave master out"
        )
    if memory is not None:
        duckdb.check_memory(memory)


def csv_files(source: object) -> list[str]:
    """Return the CSV files that a source names; an empty list for another source."""
    files = _files(source)
    return files if {suffix_of(file)[0] for file in files} <= _CSV else []


def _files(source: object) -> list[str]:
    """Return the files that a source names; an empty list for another source."""
    named = isinstance(source, (ibis.Table, Frame, DatabaseTable))
    return [] if named else data_files(cast("Paths", source))


def column_names(source: object, csv: SourcePart = PLAIN_SOURCE) -> list[str]:
    """Return the names of all columns of a source. No row is read."""
    if isinstance(source, ibis.Table):
        return list(source.columns)
    if isinstance(source, Frame):
        return list(source.schema.names)
    if isinstance(source, DatabaseTable):
        return list(source.open(None, rows=False, memory=None).columns)
    files = _files(source)
    parquet = _are_parquet(files)
    headers = (duckdb.footer(file).names if parquet else header_of(file, csv) for file in files)
    return list(dict.fromkeys(name for header in headers for name in header))


def untyped_columns(source: object, csv: SourcePart = PLAIN_SOURCE) -> frozenset[str]:
    """Return the columns whose type the schema of a source does not give. No row is read.

    These are all columns of a CSV file, texts of SQLite, Python objects in pandas, and all-null
    columns. Their texts may be numbers.
    """
    if isinstance(source, ibis.Table):
        return frozenset(name for name, kind in source.schema().items() if kind.is_null())
    if isinstance(source, Frame):
        return source.untyped | _of_nothing(source.schema)
    if isinstance(source, DatabaseTable):
        return frozenset()
    files = _files(source)
    if _are_parquet(files):
        return _of_nothing(duckdb.footer(files[0]))
    return frozenset(header_of(files[0], csv))


def _of_nothing(schema: pa.Schema) -> frozenset[str]:
    kinds = {field.name: getattr(field.type, "value_type", None) or field.type for field in schema}
    return frozenset(name for name, kind in kinds.items() if pa.types.is_null(kind))


def folder_columns(source: object) -> frozenset[str]:
    """Return the column names in the paths of files, such as ``day`` in ``day=1/x.parquet``."""
    folders = (part for file in _files(source) for part in Path(file).parts[:-1])
    return frozenset(part.partition("=")[0] for part in folders if "=" in part)


def as_source(source: object) -> object:
    """Return paths, an Ibis table, a `Frame`, or a `DatabaseTable` for a source. No row is read.

    A stream gives its rows only once, and a run uses one database connection. So always open the
    returned object.
    """
    if isinstance(source, (str, Path)):
        return database_at(str(source)) or source
    if isinstance(source, DatabaseTable):
        return source
    if isinstance(source, ibis.Table):
        return _on_server(source)
    if isinstance(source, (list, tuple)):
        if all(isinstance(path, (str, Path)) for path in cast("Iterable[object]", source)):
            return source
        raise DataError("data is a list: must hold paths and nothing else")
    return as_frame(source)


def database_at(url: str) -> DatabaseTable | Frame | None:
    """Return the database table that a URL names; None for a path."""
    if url.startswith(("postgresql://", "postgres://")):
        from neyman.publishing.engines.databases.postgres import PostgresTable

        return PostgresTable.at(url)
    if url.startswith(("duckdb://", "sqlite://")):
        return file_table(url)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", url)
    if scheme and not os.path.exists(url):
        # Do not repeat the address: it can hold a password.
        raise DataError(
            f"data begins with {scheme[0]!r}: must be a path, or the address of a table as a text, "
            "as postgresql://role@host/db?table=people, duckdb://people.db?table=people, or "
            "sqlite://people.db?table=people (a Path changes an address); give the rows of another "
            "database as an Arrow table or as Parquet"
        )
    return None


def _on_server(table: ibis.Table) -> ibis.Table | DatabaseTable:
    """Return an Ibis table on PostgreSQL on a new connection. Return other tables unchanged."""
    places = _places(table)
    if {getattr(place, "name", None) for place in places} != {"postgres"} or len(places) > 1:
        return table
    from neyman.publishing.engines.databases.postgres import PostgresTable

    return PostgresTable.of(table, places.pop())


def _places(table: ibis.Table) -> set[Any]:
    """Return the Ibis connections of the tables in an Ibis expression."""
    nodes: Any = table.op().find((ops.DatabaseTable, ops.SQLQueryResult))
    return {node.source for node in nodes}


def close_table(table: ibis.Table) -> None:
    """Close the engine of a table if Neyman opened it. Deleting the table has the same effect."""
    backend = backend_of(table)
    type(backend).close(backend.connection)


def _load_arrow(opening: Opening, data: pa.Table | ds.Dataset) -> ibis.Table:
    """Return Arrow data as a table on the engine. An empty text is missing."""
    # `csv_reader` and `plain` leave no empty text in a dictionary.
    coded = [field.name for field in data.schema if pa.types.is_dictionary(field.type)]
    return without_empty_text(OWN[opening.engine].register(data, opening), coded)


def _open_source(source: object, opening: Opening) -> ibis.Table:
    if isinstance(source, ibis.Table):
        return _of_table(source, opening)
    if isinstance(source, Frame):
        return _of_frame(source, opening)
    if isinstance(source, DatabaseTable):
        if OWN[opening.engine].counts_databases:
            return source.open(opening.columns, rows=opening.rows, memory=opening.memory)
        raise DataError(
            f"engine = {opening.engine!r}: a table of a database is counted there; leave engine out"
        )
    files = _files(source)
    return (_of_parquet if _are_parquet(files) else _of_csv)(files, opening)


def _of_table(table: ibis.Table, opening: Opening) -> ibis.Table:
    columns = opening.columns
    check_names(table.columns, columns or ())
    table = table.select(*columns) if columns is not None else table
    if table.op().find(ops.Impure):
        raise DataError("data is an Ibis expression with random values; write its rows to a file")
    places = _places(table)
    wanted = OWN[opening.engine].ibis_name
    if any(getattr(place, "name", None) != wanted for place in places) or len(places) > 1:
        raise DataError(
            f"data is an Ibis table on {sorted(str(getattr(p, 'name', p)) for p in places)}: must "
            f"be on one {opening.engine} connection, or in memory; give it as Parquet or "
            "as an Arrow table"
        )
    if places:
        return without_empty_text(OWN[opening.engine].accept(table))
    try:
        held = duckdb.connect().to_pyarrow(table if opening.rows else table.limit(0))
    except Exception as error:
        raise fault(
            error, f"data is an Ibis expression that cannot be evaluated ({type(error).__name__})"
        ) from None
    check_types(held.schema, columns)
    return _load_arrow(opening, plain_table(held) if opening.rows else plain_form(held.schema))


def _of_frame(frame: Frame, opening: Opening) -> ibis.Table:
    columns, schema = opening.columns, frame.schema
    check_names(schema.names, columns or ())
    check_types(schema, columns)
    names = _unambiguous(schema.names) if columns is None else columns
    picked = pa.schema([schema.field(name) for name in names])
    if not opening.rows:
        frame.check(columns or ())
        return _load_arrow(opening, plain_form(picked))
    return _load_arrow(opening, OWN[opening.engine].take(frame.rows(picked.names, opening.csv)))


def _are_parquet(files: list[str]) -> bool:
    suffixes = {suffix_of(file)[0] for file in files}
    if suffixes != {".parquet"} and not suffixes <= _CSV:
        raise DataError(
            f"data = {files[0]!r}: files must be Parquet (.parquet) or CSV (.csv, .csv.gz), and "
            "all of one kind"
        )
    return suffixes == {".parquet"}


def _of_parquet(files: list[str], opening: Opening) -> ibis.Table:
    columns = opening.columns
    picked = duckdb.parquet_schema(files, columns)
    check_types(picked, columns)
    return without_empty_text(OWN[opening.engine].parquet(files, picked, opening))


def _of_csv(files: list[str], opening: Opening) -> ibis.Table:
    columns, rows = opening.columns, opening.rows
    if columns is None:
        headers = [header_of(file, opening.csv) for file in files]
        columns = [name for name in _unambiguous(headers[0]) if all(name in h for h in headers)]
    parts = [read_csv(file, columns, rows=rows, source=opening.csv) for file in files]
    return _load_arrow(opening, pa.concat_tables(parts))


def _unambiguous(names: Sequence[str]) -> list[str]:
    counts = Counter(name.casefold() for name in names)
    return [name for name in names if counts[name.casefold()] == 1]
