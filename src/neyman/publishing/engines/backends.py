"""Define one class per engine, with the same methods, for what Ibis does differently on each.

Ibis writes a query in the SQL of each engine. Each expression here has the same result on all
engines. `expressions` has the expressions that Ibis can write in one way for every engine.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import base64
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, ClassVar, TypeAlias, TypeVar

import ibis
import ibis.expr.datatypes as dt
import pyarrow as pa
import pyarrow.dataset as ds

from neyman.publishing.engines import duckdb, spark
from neyman.publishing.engines.column_types import LIMITS as COLUMN_TYPES_LIMITS
from neyman.publishing.engines.column_types import plain_table
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.engines.duckdb import Opening
from neyman.publishing.engines.progress import Progress, Steps, followed

Answer = TypeVar("Answer")
Value: TypeAlias = Any
"""A column or literal of a query. Its class depends on the data's types.

So pyright does not know its methods.
"""
Connection: TypeAlias = Any  # a connection of Ibis, which has no types
_RANKED_ROWS = 1 << 23  # rows that are ranked at once on DuckDB
_ASCII_HEX = r"^([0-7][0-9A-F])*\z"
_TAIL = "[89AB][0-9A-F]"
_UTF8_HEX = (
    rf"^([0-7][0-9A-F]|(C[2-9A-F]|D[0-9A-F]){_TAIL}|E0[AB][0-9A-F]{_TAIL}"
    rf"|E[1-9A-CEF]{_TAIL}{_TAIL}|ED[89][0-9A-F]{_TAIL}|F0[9AB][0-9A-F]{_TAIL}{_TAIL}"
    rf"|F[1-3]{_TAIL}{_TAIL}{_TAIL}|F48[0-9A-F]{_TAIL}{_TAIL})*\z"
)
_SIMPLE = (
    "^[\x01-\x7f\xa0-\xb4\xb6-\xde\xe0-\xfe\u0100-\u012f\u0132-\u0148\u014a-\u017e"
    "\u0391-\u03a1\u03a3-\u03a9\u03b1-\u03c9\u0400-\u052f]*\\z"
)
"""A pattern of texts that DuckDB's case functions change in the same way as `text_functions`."""


def _sql(name: str, given: Sequence[object], result: object) -> Callable[..., Value]:
    """Return the engine's function of this name, or one that a server's SQL compiler writes.

    Args:
        given: the types of the arguments.
        result: the type of the result.
    """

    def own(a: object, b: object, c: object) -> None: ...

    own.__name__ = name
    return ibis.udf.scalar.builtin(name=name, signature=(tuple(given), result))(own)


hexadecimal = _sql("hex", [dt.binary], dt.string)  # bytes in upper-case hexadecimal digits
_encode = _sql("encode", [dt.string], dt.binary)  # DuckDB
_decode = _sql("decode", [dt.binary], dt.string)  # DuckDB: an error for non-UTF-8 bytes
_is_utf8 = _sql("is_valid_utf8", [dt.string], dt.boolean)  # Spark
_trim = _sql("trim", [dt.string, dt.string], dt.string)  # DuckDB
_btrim = _sql("btrim", [dt.string, dt.string], dt.string)  # Spark and PostgreSQL
_epoch_us = _sql("epoch_us", [dt.timestamp], dt.int64)  # DuckDB and PostgreSQL
_unix_micros = _sql("unix_micros", [dt.timestamp], dt.int64)  # Spark
_make_date = _sql("make_date", [dt.int32], dt.date)  # DuckDB and PostgreSQL
_date_from_unix_date = _sql("date_from_unix_date", [dt.int32], dt.date)  # Spark
_scaled_text = _sql("scaled_text", [dt.string, dt.int64, dt.int64], dt.int64)  # PostgreSQL
_scaled_decimal = _sql("scaled_decimal", [dt.decimal, dt.int64, dt.int64], dt.int64)  # PostgreSQL


class Backend(ABC):
    """Represent an engine: its expressions, and its Ibis connection if it has one."""

    name: ClassVar[str]
    ibis_name: ClassVar[str]
    sources: ClassVar[frozenset[str]]
    """The names of the engines whose rows can be copied to this engine."""
    close: ClassVar[Callable[[Connection], None]]  # closes a connection if it is ours

    def __init__(self, connection: Connection = None) -> None:
        self.connection = connection

    # Expressions

    def encode(self, text: Value) -> Value:
        """Return a text's bytes in UTF-8, which compare and group without collation."""
        return text.cast("binary")

    def bytes_of(self, text: str) -> Value:
        """Return the bytes of a text of the plan."""
        return self.encode(ibis.literal(text))

    def plain_bytes(self, column: Value) -> Value:
        """Return the bytes of a text. Return other values unchanged."""
        return self.encode(column) if column.type().is_string() else column

    def group_key(self, column: Value) -> Value:
        """Return the value by which rows are grouped before look-ups: for a text, its bytes."""
        return self.plain_bytes(column)

    def integer_value(self, column: Value, decimals: int, most: int) -> Value | None:
        """Return the result of `integer_of`; None if the engine has no function for it."""
        return None

    def barrier(self, value: Value) -> Value:
        """Return the same value. The engine computes it once per row, even if a filter reads it."""
        return value

    def decode(self, data: Value) -> tuple[Value, Value, Value]:
        """Return three columns: the text of bytes, True for UTF-8, and True for plain ASCII."""
        text = data.cast("string")
        return text, self.is_text(text), ~text.re_search("[^\x01-\x7f]")

    def is_text(self, text: Value) -> Value:
        """Return True for each text whose bytes are UTF-8."""
        return ibis.literal(True)

    strip = staticmethod(_btrim)  # a text without some characters at its ends

    date_of = staticmethod(_make_date)  # the date for a number of days after 1970-01-01

    def change_case(self, text: Value, own: Value, replaced: Value) -> Value:
        """Return a text in another case.

        Args:
            own: the result of the engine's function for the case.
            replaced: the text with each letter of `text_functions` replaced.
        """
        return replaced

    def micros(self, column: Value) -> Value:
        """Return the microseconds of a timestamp since 1970, rounded down."""
        micros = _epoch_us(column)
        if column.type().scale != 9:
            return micros
        # The ends of 64 bits stand for infinity or for missing values.
        most = COLUMN_TYPES_LIMITS.microseconds
        return ibis.cases((micros.between(-most, most), micros))

    def step_value(self, number: Value, starts: list[int], values: list[int]) -> Value:
        """Return the result of `step_function`."""
        return step_function(number, starts, values)

    # Tables

    @abstractmethod
    def put(self, rows: pa.Table) -> AbstractContextManager[ibis.Table]:
        """Put rows into a temporary table of this connection, and drop the table after use."""

    @abstractmethod
    def hold(self, rows: ibis.Table, steps: Steps) -> AbstractContextManager[ibis.Table]:
        """Compute rows once, into a temporary table, and drop the table after use.

        Args:
            steps: reports the progress of this query.
        """

    @abstractmethod
    def arrow(self, rows: ibis.Table) -> pa.Table:
        """Compute rows, and return them as an Arrow table."""

    @abstractmethod
    def copy(self, rows: ibis.Table, other: Backend) -> AbstractContextManager[ibis.Table]:
        """Compute rows of another connection once, and put them on this connection."""

    def import_rows(self, rows: ibis.Table) -> AbstractContextManager[ibis.Table]:
        """Compute rows once, for use on this connection.

        The caller ensures that their engine is one of `sources`.
        """
        other = backend_of(rows)
        return held(rows) if other.connection is self.connection else self.copy(rows, other)

    def secret(self, key: bytes) -> AbstractContextManager[ibis.Table]:
        """Put a key into a table of one row. No query text and no query plan shows the key."""
        return self.put(pa.table({"key": [_key_text(key)]}))

    def view(self, rows: ibis.Table) -> AbstractContextManager[ibis.Table]:
        """Return the same rows as a named table, so that Ibis does not repeat their query."""
        return nullcontext(rows)

    def fence(self, rows: ibis.Table) -> AbstractContextManager[ibis.Table]:
        """Return the same rows. The engine computes their expressions once."""
        return self.view(rows)

    def copies(self, rows: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        """Return some columns of all rows, and ``copy``, which numbers equal rows from 0."""
        groups: Value = rows.group_by(columns).aggregate(copies=rows.count())
        return groups.mutate(copy=ibis.range(0, groups["copies"]).unnest()).drop("copies")

    def buckets(self, table: ibis.Table, unit: str) -> Iterator[ibis.Table]:
        """Yield the rows in parts that can be ranked in memory, with each unit in one part."""
        yield table  # a server, and Spark, sort on disk anyway

    def follow(self, query: Callable[[], Answer], tell: Progress) -> Answer:
        """Run a query and return its answer. Report the completed part, 0 to 1, to ``tell``."""
        return query()

    def stream(self, rows: ibis.Table) -> pa.Table | pa.RecordBatchReader:
        """Return the rows of the query ``rows``, in chunks if the engine supports chunks."""
        return self.arrow(rows)


class OwnBackend(Backend):
    """Represent an engine that a run can open for files and for rows in memory."""

    has_master: ClassVar[bool] = False  # True if it can run on a cluster
    counts_databases: ClassVar[bool] = False
    """True if a run with this engine, or without a named one, counts database tables in place."""

    register: ClassVar[Callable[[Any, Opening], ibis.Table]]
    """Return Arrow data of plain types (see `column_types`) as a table on a new connection."""
    parquet: ClassVar[Callable[[Sequence[str], pa.Schema, Opening], ibis.Table]]
    """Return Parquet files as a table on a new connection, given the schema of its columns."""
    accept: ClassVar[Callable[[ibis.Table], ibis.Table]] = staticmethod(lambda table: table)
    """Return a table of the caller's connection. Refuse settings that change results."""

    @staticmethod
    def check_installed() -> None:
        """Raise ImportError if the engine is not installed."""

    @classmethod
    def take(cls, data: pa.Table | ds.Dataset) -> pa.Table | ds.Dataset:
        """Return Arrow data in the form that the engine reads."""
        return plain_table(data) if isinstance(data, pa.Table) else data


class DuckDB(OwnBackend):
    """Run DuckDB in this process."""

    name, ibis_name, sources = "duckdb", "duckdb", frozenset({"duckdb", "postgres"})
    counts_databases = True
    encode, strip = staticmethod(_encode), staticmethod(_trim)
    register, parquet = staticmethod(duckdb.registered), staticmethod(duckdb.parquet)
    close = staticmethod(duckdb.close)

    def barrier(self, value: Value) -> Value:
        """Put a value behind a condition that is always true but looks random to DuckDB.

        If a filter reads an expression, DuckDB computes it before the filter and again after it.
        Random expressions are computed only once.
        """
        draw: Value = ibis.random()
        return ibis.cases((draw < 2, value))

    def decode(self, data: Value) -> tuple[Value, Value, Value]:
        """Return what `Backend.decode` does. Reading the text of non-UTF-8 bytes is an error."""
        digits = hexadecimal(data)
        return _decode(data), digits.re_search(_UTF8_HEX), digits.re_search(_ASCII_HEX)

    def change_case(self, text: Value, own: Value, replaced: Value) -> Value:
        """Return a text in another case. Avoid ``replaced``, which is slow, for common letters."""
        return ibis.cases((text.re_search(_SIMPLE), own), else_=replaced)

    def micros(self, column: Value) -> Value:
        kind = column.type()
        if kind.timezone is None and kind.scale in range(6):
            # A cast of seconds or milliseconds fails if the microseconds overflow 64 bits.
            column = column.try_cast("timestamp(6)")
        return super().micros(column)

    @contextmanager
    def put(self, rows: pa.Table | pa.RecordBatchReader) -> Generator[ibis.Table]:
        name = _name()
        # Do not use the Arrow table itself: DuckDB reports progress only for its own tables.
        self.connection.con.register(f"{name}_arrow", rows)
        self._run(f"CREATE TEMP TABLE {name} AS FROM {name}_arrow")
        self.connection.con.unregister(f"{name}_arrow")
        yield from self._temporary_table(self.connection.table(name), f"TABLE {name}")

    @contextmanager
    def hold(self, rows: ibis.Table, steps: Steps) -> Generator[ibis.Table]:
        name, create = _name(), self.connection.create_table
        table = steps.run(self.follow, lambda: create(name, rows, temp=True))
        yield from self._temporary_table(table, f"TABLE {name}")

    @contextmanager
    def view(self, rows: ibis.Table) -> Generator[ibis.Table]:
        """Make a temporary view of rows. Nothing is read."""
        name = _name()
        self._run(f"CREATE TEMP VIEW {name} AS {self.connection.compile(rows)}")
        yield from self._temporary_table(self.connection.table(name), f"VIEW {name}")

    def _temporary_table(self, table: ibis.Table, name: str) -> Iterator[ibis.Table]:
        try:
            yield table
        finally:
            self._run(f"DROP {name}")  # Ibis's own way is no SQL to newer versions of DuckDB

    def _run(self, query: str) -> None:
        self.connection.con.execute(query).fetchall()

    def arrow(self, rows: ibis.Table) -> pa.Table:
        return rows.to_pyarrow()

    def copy(self, rows: ibis.Table, other: Backend) -> AbstractContextManager[ibis.Table]:
        """Copy rows of another DuckDB or of a server to this DuckDB."""
        return self.put(other.stream(rows))

    def stream(self, rows: ibis.Table) -> pa.RecordBatchReader:
        source = self.connection
        source._run_pre_execute_hooks(rows)
        return pa.RecordBatchReader.from_stream(source.con.sql(source.compile(rows)))

    def buckets(self, table: ibis.Table, unit: str) -> Iterator[ibis.Table]:
        """Split rows by a hash of the unit. Each unit is ranked alone, so no result changes."""
        number = 1 + row_count(table) // _RANKED_ROWS
        for bucket in range(number):
            # A hash may be negative, and then so is its remainder. A second one corrects this.
            part = (table[unit].hash() % number + number) % number
            yield table.filter(part == bucket) if number > 1 else table

    def follow(self, query: Callable[[], Answer], tell: Progress) -> Answer:
        """Run a query and return its answer, with the progress that DuckDB reports."""
        return followed(self.connection.con, query, tell)


class Spark(OwnBackend):
    """Run Spark, in our session or the caller's session."""

    name, ibis_name, sources = "spark", "pyspark", frozenset({"spark"})
    has_master = True
    is_text, date_of = staticmethod(_is_utf8), staticmethod(_date_from_unix_date)
    register, parquet = staticmethod(spark.registered), staticmethod(spark.parquet)
    accept, check_installed = staticmethod(spark.accept), staticmethod(spark.installed)
    close = staticmethod(spark.close)

    def micros(self, column: Value) -> Value:
        return _unix_micros(column.cast("timestamp('UTC')"))

    def copies(self, rows: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        """Assign numbers to equal rows in one window: to count them needs a second shuffle.

        The window sorts each unit's rows. So Spark gathers them only once, also for later choices
        among them.

        Args:
            columns: the unit first, then the columns by which rows are equal.
        """
        unit, *names = columns
        alike: Value = ibis.window(group_by=unit, order_by=names or unit)
        place, before = ibis.row_number(), ibis.rank()  # equal rows have the rank of the first
        return rows.select(*columns, copy=place.over(alike) - before.over(alike))

    def step_value(self, number: Value, starts: list[int], values: list[int]) -> Value:
        """Return an element of an array: Spark takes half a minute to plan nested cases."""
        if not starts:
            return step_function(number, starts, values)
        listed: Value = ibis.literal(starts, "array<int64>")
        own: Value = ibis.literal(values, "array<int64>")
        return own[listed.filter(lambda start: start <= number).length()]

    @contextmanager
    def put(self, rows: pa.Table) -> Generator[ibis.Table]:
        """Put rows into a temporary view."""
        name, session = _name(), self.connection._session
        session.createDataFrame(rows).createOrReplaceTempView(name)
        try:
            yield self.connection.table(name)
        finally:
            session.catalog.dropTempView(name)

    @contextmanager
    def hold(self, rows: ibis.Table, steps: Steps) -> Generator[ibis.Table]:
        """Cache rows."""
        # Ibis does not register tables in memory before it caches expressions that use them.
        self.connection._run_pre_execute_hooks(rows)
        cached: Any = steps.run(self.follow, rows.cache)
        with cached:
            yield cached

    def arrow(self, rows: ibis.Table) -> pa.Table:
        # Ibis uses pandas here, which turns integers beside NULL into floats.
        return self._frame(rows).toArrow()

    @contextmanager
    def copy(self, rows: ibis.Table, other: Backend) -> Generator[ibis.Table]:
        """Share rows of another session of the same Spark."""
        name = _name()
        source, session = other.connection._session, self.connection._session
        Spark(other.connection)._frame(rows).createGlobalTempView(name)
        try:
            session.table(f"global_temp.{name}").createOrReplaceTempView(name)
            yield self.connection.table(name)
        finally:
            with suppress(Exception):
                session.catalog.dropTempView(name)
            source.catalog.dropGlobalTempView(name)

    def _frame(self, rows: ibis.Table) -> Any:
        self.connection._run_pre_execute_hooks(rows)
        return self.connection._session.sql(self.connection.compile(rows))

    @classmethod
    def take(cls, data: pa.Table | ds.Dataset) -> pa.Table | ds.Dataset:
        """Return Arrow data in memory."""
        return super().take(data.to_table() if isinstance(data, ds.Dataset) else data)


class Postgres(Backend):
    """Read one state of a PostgreSQL server's tables, without writes (see `databases.postgres`)."""

    name, ibis_name, sources = "postgres", "postgres", frozenset({"postgres"})
    close = staticmethod(lambda connection: connection.con.close())

    def integer_value(self, column: Value, decimals: int, most: int) -> Value | None:
        """Return the integer of a text or decimal, computed in ``numeric``."""
        if column.type().is_decimal():
            return _scaled_decimal(column, decimals, most)
        return _scaled_text(column.cast("string"), decimals, most)

    def group_key(self, column: Value) -> Value:
        """Return the column itself: the server compares a text by its bytes."""
        return column

    def put(self, rows: pa.Table) -> AbstractContextManager[ibis.Table]:
        """Write rows as literals into each query."""
        return nullcontext(self.connection.listed(rows))

    def secret(self, key: bytes) -> AbstractContextManager[ibis.Table]:
        """Put a key into a setting of the transaction."""
        return nullcontext(self.connection.secret(_key_text(key)))

    def fence(self, rows: ibis.Table) -> AbstractContextManager[ibis.Table]:
        """Return the same rows. The server computes their expressions once."""
        return nullcontext(self.connection.fenced(rows))

    @contextmanager
    def hold(self, rows: ibis.Table, steps: Steps) -> Generator[ibis.Table]:
        """Return the rows themselves. Each query computes them again."""
        steps.run(self.follow, lambda: None)
        yield rows

    def arrow(self, rows: ibis.Table) -> pa.Table:
        return self.connection.fetched(rows)

    def copy(self, rows: ibis.Table, other: Backend) -> AbstractContextManager[ibis.Table]:
        """Raise DataError: Neyman writes nothing to a server."""
        raise DataError(
            "two tables are on several PostgreSQL connections; give both on one server and "
            "database with the same role, or both as files"
        )


OWN: dict[str, type[OwnBackend]] = {kind.name: kind for kind in (DuckDB, Spark)}
"""The engines that a run can name."""

_KINDS: dict[str, type[Backend]] = {kind.ibis_name: kind for kind in (DuckDB, Spark, Postgres)}


def backend_of(rows: ibis.Table | Value) -> Backend:
    """Return the engine of a table or of a column."""
    connection: Connection = rows.get_backend()
    return _KINDS[connection.name](connection)


def _name() -> str:
    return f"neyman_{secrets.token_hex(8)}"


def fresh_key() -> bytes:
    """Draw a secret key from the operating system."""
    return secrets.token_bytes(18)


def step_function(number: Value, starts: list[int], values: list[int]) -> Value:
    """Return values[i], with i the number of rising ``starts`` that are at most ``number``."""
    if not starts:
        return ibis.literal(values[0], "int64")
    middle = len(starts) // 2
    below = step_function(number, starts[:middle], values[: middle + 1])
    above = step_function(number, starts[middle + 1 :], values[middle + 1 :])
    return ibis.cases((number < starts[middle], below), else_=above)


def _key_text(key: bytes) -> str:
    # The text takes 24 bytes, so most rows fit into one block of SHA-256.
    return base64.b64encode(key).decode()


def held(rows: ibis.Table, steps: Steps | None = None) -> AbstractContextManager[ibis.Table]:
    """Compute rows once, into a temporary table. A server computes them at each use."""
    return backend_of(rows).hold(rows, steps or Steps(1, None))


def fetched(rows: ibis.Table, steps: Steps | None = None) -> pa.Table:
    """Compute rows, and return them as an Arrow table. Report progress to ``steps``."""
    backend = backend_of(rows)
    return (steps or Steps(1, None)).run(backend.follow, lambda: backend.arrow(rows))


def counted(rows: ibis.Table, /, **measures: Value) -> dict[str, int]:
    """Return counts or sums over all rows, by name. A sum over no rows is 0."""
    (row,) = fetched(rows.aggregate(**measures)).to_pylist()
    return {name: int(value or 0) for name, value in row.items()}


def row_sum(groups: ibis.Table) -> int:
    """Return the number of rows in all groups: the sum of the column ``rows``."""
    columns: Any = groups
    return counted(groups, rows=columns["rows"].sum())["rows"]


def row_count(rows: ibis.Table) -> int:
    """Return the number of rows."""
    return counted(rows, rows=rows.count())["rows"]
