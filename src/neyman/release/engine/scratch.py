"""What Ibis does not do alike on both engines: the key's table, held rows, results as Arrow."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ibis
import pyarrow as pa

from neyman.release.engine.expressions import engine_of

__all__ = ["fetched", "fresh_key", "held", "secret_table"]


def fresh_key() -> bytes:
    """A secret key, from the operating system."""
    return secrets.token_bytes(18)


def _name() -> str:
    return f"neyman_{secrets.token_hex(8)}"


@contextmanager
def secret_table(table: ibis.Table, key: bytes) -> Iterator[ibis.Table]:
    """A table of one row, that holds the key, on the engine of another table.

    The key is data: neither the text of a query nor a plan shows it.
    """
    backend: Any = table.get_backend()
    name = _name()
    # As text it takes 24 bytes, so that most rows fit into one block of SHA-256.
    row = pa.table({"key": [base64.b64encode(key).decode()]})
    if engine_of(table) == "duckdb":
        backend.con.register(name, row)
        drop = backend.con.unregister
    else:
        session = backend._session
        session.createDataFrame(row).createOrReplaceTempView(name)
        drop = session.catalog.dropTempView
    try:
        yield backend.table(name)
    finally:
        drop(name)


@contextmanager
def held(rows: ibis.Table) -> Iterator[ibis.Table]:
    """Rows made once, in a temporary table that is dropped after use."""
    backend: Any = rows.get_backend()
    if engine_of(rows) != "duckdb":
        # Ibis forgets to register tables in memory before it caches what uses them.
        backend._run_pre_execute_hooks(rows)
        cached: Any = rows.cache()
        with cached:
            yield cached
        return
    name = _name()
    made = backend.create_table(name, rows, temp=True)
    try:
        yield made
    finally:
        # Ibis's own way of dropping is no SQL to newer versions of DuckDB.
        backend.con.execute(f"DROP TABLE {name}").fetchall()


def fetched(rows: ibis.Table) -> pa.Table:
    """A result as an Arrow table."""
    if engine_of(rows) == "duckdb":
        return rows.to_pyarrow()
    # Ibis's own way leads through pandas, where whole numbers beside NULL are floats.
    backend: Any = rows.get_backend()
    backend._run_pre_execute_hooks(rows)
    return backend._session.sql(backend.compile(rows)).toArrow()
