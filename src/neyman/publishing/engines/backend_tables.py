"""Backend-specific helpers that Ibis does not unify: temporary tables, caching, Arrow results."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import ibis
import pyarrow as pa

from neyman.publishing.engines.expressions import engine_of
from neyman.publishing.engines.progress import Steps

__all__ = ["fetched", "fresh_key", "held", "put", "row_count", "secret_table", "view"]


def fresh_key() -> bytes:
    """A secret key, from the operating system."""
    return secrets.token_bytes(18)


def _name() -> str:
    return f"neyman_{secrets.token_hex(8)}"


@contextmanager
def put(table: ibis.Table, rows: pa.Table) -> Iterator[ibis.Table]:
    """Rows on the engine of another table, in a temporary table that is dropped after use."""
    backend: Any = table.get_backend()
    if engine_of(table) == "postgres":
        yield backend.listed(rows)
        return
    name = _name()
    if engine_of(table) == "duckdb":
        # Not the Arrow table itself: DuckDB knows the progress of reading its own tables only.
        backend.con.register(f"{name}_arrow", rows)
        backend.con.execute(f"CREATE TEMP TABLE {name} AS FROM {name}_arrow").fetchall()
        backend.con.unregister(f"{name}_arrow")
    else:
        backend._session.createDataFrame(rows).createOrReplaceTempView(name)
    try:
        yield backend.table(name)
    finally:
        if engine_of(table) == "duckdb":
            _drop(backend, name)
        else:
            backend._session.catalog.dropTempView(name)


@contextmanager
def view(rows: ibis.Table) -> Iterator[ibis.Table]:
    """Rows as a temporary view on DuckDB that is dropped after use; nothing is read."""
    backend: Any = rows.get_backend()
    name = _name()
    backend.con.execute(f"CREATE TEMP VIEW {name} AS {backend.compile(rows)}").fetchall()
    try:
        yield backend.table(name)
    finally:
        backend.con.execute(f"DROP VIEW {name}").fetchall()


def _drop(backend: Any, name: str) -> None:
    # Ibis's own way of dropping is no SQL to newer versions of DuckDB.
    backend.con.execute(f"DROP TABLE {name}").fetchall()


def secret_table(table: ibis.Table, key: bytes) -> AbstractContextManager[ibis.Table]:
    """A table of one row, that holds the key, on the engine of another table.

    The key is data: neither the text of a query nor a plan shows it.
    """
    # As text it takes 24 bytes, so that most rows fit into one block of SHA-256.
    text = base64.b64encode(key).decode()
    if engine_of(table) == "postgres":
        backend: Any = table.get_backend()
        return nullcontext(backend.secret(text))
    return put(table, pa.table({"key": [text]}))


@contextmanager
def held(rows: ibis.Table, steps: Steps) -> Iterator[ibis.Table]:
    """Rows made once, in a temporary table that is dropped after use: the next step.

    On PostgreSQL, where nothing is written, each query makes them again.
    """
    backend: Any = rows.get_backend()
    if engine_of(rows) == "postgres":
        steps.run(backend, lambda: None)
        yield rows
        return
    if engine_of(rows) != "duckdb":
        # Ibis forgets to register tables in memory before it caches what uses them.
        backend._run_pre_execute_hooks(rows)
        cached: Any = steps.run(backend, rows.cache)
        with cached:
            yield cached
        return
    name = _name()
    table = steps.run(backend, lambda: backend.create_table(name, rows, temp=True))
    try:
        yield table
    finally:
        _drop(backend, name)


def fetched(rows: ibis.Table, steps: Steps | None = None) -> pa.Table:
    """A result as an Arrow table: the next step."""
    backend: Any = rows.get_backend()
    return (steps or Steps(1, None)).run(backend, lambda: _arrow(rows, backend))


def row_count(rows: Any) -> int:
    """Return the number of rows."""
    return int(fetched(rows.aggregate(rows=rows.count()))["rows"][0].as_py())


def _arrow(rows: ibis.Table, backend: Any) -> pa.Table:
    if engine_of(rows) == "duckdb":
        return rows.to_pyarrow()
    if engine_of(rows) == "postgres":
        return backend.fetched(rows)
    # Ibis's own way leads through pandas, where whole numbers beside NULL are floats.
    backend._run_pre_execute_hooks(rows)
    return backend._session.sql(backend.compile(rows)).toArrow()
