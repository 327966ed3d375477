"""Count a table of a PostgreSQL server on the server, in one read-only transaction.

Each query of a ``REPEATABLE READ READ ONLY`` transaction sees the same rows, and no type can change
before the last query. The plan's public group keys are literals of a query, and the secret hash key
is a transaction setting. Nothing is written, so the role needs only the right to read the table.

No value of a row can cause an error: dates and timestamps outside the years 1 to 9999, and NaN of a
``numeric``, are missing. Casts, functions, and operators come from ``pg_catalog`` alone. Only
built-in column types are accepted, by their OIDs: the owner of another type can give it casts that
run the owner's code with the reader's rights.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import secrets
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import pyarrow as pa
from ibis.formats.pyarrow import PyArrowSchema

from neyman.ledger.postgres.connection import Address
from neyman.publishing.engines.csv_reader import DataError, check_names
from neyman.publishing.engines.databases.postgres_sql import SnapshotCompiler
from neyman.publishing.engines.databases.table import DatabaseTable, LostConnection
from neyman.publishing.engines.duckdb import quoted

try:
    import psycopg
    from ibis.backends.postgres import Backend
except ImportError as absent:
    # Guards against an install without psycopg.
    raise ModuleNotFoundError(
        "data on PostgreSQL need psycopg: pip install 'neyman[postgres]'", name="psycopg"
    ) from absent

_HOW = "postgresql://role@host:5432/database?table=schema.name"
_SETTINGS = (
    "SET LOCAL search_path = pg_catalog, pg_temp",  # if omitted, pg_temp would come first
    "SET LOCAL standard_conforming_strings = on",
    "SET LOCAL DateStyle = 'ISO, YMD'",
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL extra_float_digits = 1",
    "SET LOCAL jit = off",  # it takes seconds for long expressions
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    "SET LOCAL row_security = off",  # a policy that hides rows is an error, and not a smaller table
)
# Digits after the point: floor(x 10^d) is exact for d <= 9, and no fraction is lost.
_FRACTION_DIGITS = 21
_TINY = "CAST(1e-290 AS DOUBLE PRECISION)"

_BOOL, _INT2, _INT4, _INT8, _FLOAT4, _FLOAT8 = 16, 21, 23, 20, 700, 701
_NUMERIC, _DATE, _BPCHAR = 1700, 1082, 1042
_TIMES = {1114: ("timestamp(6)", "TIMESTAMP"), 1184: ("timestamp('UTC', 6)", "TIMESTAMPTZ")}
_PLAIN = {_BOOL: "boolean", _INT2: "int16", _INT4: "int32", _INT8: "int64", 26: "int64"}
_PLAIN[_FLOAT4] = "float32"
_TEXTS = {25, 1043, _BPCHAR, 19, 18, 2950, 705}  # text, varchar, char, name, "char", uuid, unknown
_RAW = "binary"  # stands for a type that no plan can use


class _PostgresServer(Backend):
    """Extend Ibis's connection. All of its queries belong to one read-only transaction."""

    compiler = SnapshotCompiler()

    def __init__(self, connection: Any, shown: str) -> None:
        super().__init__()
        self.con, self.shown, self._can_reconnect = connection, shown, False

    def check_public(self, table: str) -> None:
        rows = self.asked(
            "SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE relname = %s AND relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY nspname",
            (table,),
        )
        schemas = [schema for (schema,) in rows]
        if "public" in schemas:
            return
        named = " or ".join(f"?table={quote(schema)}.{quote(table)}" for schema in schemas[:3])
        raise DataError(
            f"data: {self.shown} has no table {table!r} in the schema public, which a name without"
            f" a schema stands for; name it as {named or '?table=schema.name, in the case it has'}"
        )

    def asked(self, query: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with _in_words(self.shown):
            return self.con.execute(query, values).fetchall()

    def fetched(self, rows: Any) -> pa.Table:
        """Compute rows, and return them as an Arrow table."""
        schema = PyArrowSchema.from_ibis(rows.schema())
        values = list(zip(*self.asked(self.compile(rows)), strict=True)) or [()] * len(schema)
        return pa.table(
            [_array(column, field.type) for column, field in zip(values, schema, strict=True)],
            schema=schema,
        )

    def fenced(self, rows: Any) -> Any:
        """Return the same rows. The server merges their query into no other."""
        return self.table_of(f"{self.compile(rows)} OFFSET 0", rows.schema())

    def table_of(self, query: str, schema: Any) -> Any:
        """Return the rows of a query as an Ibis table."""
        return ops.SQLQueryResult(query, schema, self).to_expr()

    def listed(self, rows: pa.Table) -> Any:
        kinds = [_kind(field.type) for field in rows.schema]
        arrays = ", ".join(
            f"CAST({_literal(column, kind)} AS {kind}[])"
            for column, kind in zip(rows.columns, kinds, strict=True)
        )
        names = ", ".join(quoted(name) for name in rows.column_names)
        types = {"BYTEA": "binary", "BIGINT": "int64", "TEXT": "string"}
        own = dict(zip(rows.column_names, (types[kind] for kind in kinds), strict=True))
        query = f"SELECT * FROM UNNEST({arrays}) AS listed({names})"
        return self.table_of(query, ibis.schema(own))

    def secret(self, key: str) -> Any:
        """Return a table of one row that holds a key. No query text shows the key."""
        name = f"neyman.key_{secrets.token_hex(4)}"
        self.asked("SELECT set_config(%s, %s, true)", (name, key))
        query = f"SELECT current_setting('{name}') COLLATE \"C\" AS key"
        return self.table_of(query, ibis.schema({"key": dt.string}))


def _open_connection(shown: str, parameters: dict[str, Any]) -> _PostgresServer:
    settings = {"connect_timeout": 10, "application_name": "neyman", "keepalives_idle": 60}
    given = settings | parameters | {"client_encoding": "utf8"}
    try:
        connection = psycopg.connect(**cast("Any", given), autocommit=True)
    except psycopg.Error as error:
        hidden = Address(shown, "", {k: str(v) for k, v in parameters.items() if v})
        raise DataError(f"data: {shown} cannot be reached: {hidden.hide(str(error))}") from None
    server = _PostgresServer(connection, shown)
    weakref.finalize(server, connection.close)
    try:
        with _in_words(shown):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for setting in _SETTINGS:
                connection.execute(setting)  # pyright: ignore[reportArgumentType]
            encoding = server.asked("SELECT current_setting('server_encoding')")[0][0]
        if encoding != "UTF8":
            raise DataError(
                f"data: {shown} is a database in {encoding}: texts are compared by their bytes in"
                " UTF-8; copy the table to a database in UTF8"
            )
        if connection.info.server_version < 140000:
            # Guards against an old server.
            raise DataError(
                f"data: {shown} is PostgreSQL {connection.info.server_version // 10000}: counting"
                " needs version 14 or later"
            )
    except BaseException:
        connection.close()
        raise
    return server


class PostgresTable(DatabaseTable):
    """Represent a table or a query on a PostgreSQL server.

    Errors show its address ``shown``, without a password.
    """

    def __init__(
        self,
        shown: str,
        parameters: dict[str, Any],
        relation: Sequence[str] = (),
        query: str | None = None,
    ) -> None:
        self.shown, self._parameters = shown, parameters
        self._open: list[_PostgresServer] = []  # the connection, if it is open
        self._relation, self._query = tuple(relation), query

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    @classmethod
    def at(cls, url: str) -> PostgresTable:
        """Return the table that a URL names. No message quotes a possible part of a password."""
        try:
            parts = urlsplit(url)
            given = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
            rest = urlencode([pair for pair in given if pair[0] != "table"], quote_via=quote)
            plain = f"postgresql://{parts.netloc}{parts.path}{'?' + rest if rest else ''}"
            if any(name == "schema" for name, _ in given) or parts.fragment:
                raise ValueError(f"url is not of the form {_HOW}")
            address = Address.read(plain)
        except ValueError as error:
            text = str(error).replace("?schema=neyman", "?table=schema.name")
            raise DataError(f"data: {text}") from None
        names = [value for name, value in given if name == "table"]
        relation = names[0].split(".") if len(names) == 1 else []
        if len(relation) not in (1, 2) or not all(relation):
            raise DataError(
                f"data: a URL of a PostgreSQL server must name one table: {_HOW}; make a view for"
                " a name with a dot in it"
            )
        base, _, options = address.shown.partition("?")
        options_shown = [pair for pair in parse_qsl(options) if pair[0] != "schema"]
        options_shown.append(("table", names[0]))
        shown = f"{base}?{urlencode(options_shown, quote_via=quote, safe='/')}"
        return cls(shown, dict(address.parameters), relation)

    @classmethod
    def of(cls, table: Any, backend: Any) -> PostgresTable:
        """Return the table of an Ibis expression. A new connection with the same login opens it."""
        if table.op().find(ops.InMemoryTable):
            raise DataError(
                "data is an Ibis expression of PostgreSQL with a table in memory, which would have"
                " to be written to the server; write it to a table there first"
            )
        info = backend.con.info
        parameters: dict[str, Any] = {**info.get_parameters(), "password": info.password or None}
        shown = f"postgresql://{quote(info.user)}@{info.host}:{info.port}/{quote(info.dbname)}"
        return cls(shown, parameters, query=backend.compile(_with_schemas(table, backend)))

    def share(self, other: DatabaseTable) -> None:
        if isinstance(other, PostgresTable) and other._parameters == self._parameters:
            self._open = other._open

    def server(self, memory: str | None) -> _PostgresServer:
        """Return the open connection, or a new one. Raise DataError for a memory limit."""
        if memory is not None:
            raise DataError(
                f"memory = {memory!r}: is for an engine of this machine; leave it out for a server"
            )
        if not self._open or self._open[0].con.closed:
            self._open[:] = [_open_connection(self.shown, self._parameters)]
        return self._open[0]

    def open(self, columns: Sequence[str] | None, *, rows: bool, memory: str | None = None) -> Any:
        """Return the table, in plain types."""
        server = self.server(memory)
        source = self._source(server)
        with _in_words(server.shown):
            described = server.con.execute(f"SELECT * FROM {source} LIMIT 0").description or []
        present = [column.name for column in described]
        check_names(present, columns or ())
        wanted = [column for column in described if columns is None or column.name in columns]
        picked: dict[str, tuple[str, str]] = {}
        for column in wanted:
            plain = _plain_type(column)
            if plain is None and columns is not None:
                kind = server.asked("SELECT format_type(%s, NULL)", (column.type_code,))[0][0]
                own = quoted(column.name)
                raise DataError(
                    f"data column {column.name!r} has type {kind}: a column that a plan uses holds"
                    " text, numbers (decimals of at most 38 digits), true/false, dates or"
                    " timestamps, in a type that is built into PostgreSQL. The cast of another type"
                    " can be its owner's code. Name a view of an administrator who trusts it"
                    f" in place of the table: CREATE VIEW ... AS SELECT CAST({own} AS text)"
                    f" AS {own}, ... FROM {self.name or 'the table'}"
                )
            picked[column.name] = plain or (_RAW, "CAST(NULL AS BYTEA)")
        chosen = ", ".join(f"{text} AS {quoted(name)}" for name, (_, text) in picked.items())
        schema = {name: dt.dtype(kind) for name, (kind, _) in picked.items()}
        if not picked:
            chosen, schema = "1 AS one", {"one": dt.int32}
        if columns is not None:
            schema = {name: schema[name] for name in columns or schema}
        query = f"SELECT {chosen} FROM {source}{'' if rows else ' LIMIT 0'}"
        return server.table_of(query, ibis.schema(schema))

    def _source(self, server: _PostgresServer) -> str:
        if self._query is not None:
            return f"({self._query}) AS asked"
        schema, name = self._relation if len(self._relation) == 2 else ("public", self._relation[0])
        if len(self._relation) == 1:
            server.check_public(name)
        self.name = f"{schema}.{name}"
        return f"{quoted(schema)}.{quoted(name)}"


def _with_schemas(table: Any, backend: Any) -> Any:
    """Return the Ibis expression in which each table names its schema.

    Without a schema, the new connection could open another table of that name.
    """
    query = (
        "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
        " ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
        " WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(pg_catalog.quote_ident(%s))"
    )
    places: dict[Any, Any] = {}
    for node in table.op().find(ops.DatabaseTable):
        row = node.namespace.database or backend.con.execute(query, (node.name,)).fetchone()
        if row and not node.namespace.database:
            places[node] = node.copy(namespace=ops.Namespace(database=row[0]))
    return table.op().replace(places).to_expr()


def _plain_type(column: Any) -> tuple[str, str] | None:
    name, kind = quoted(column.name), column.type_code
    if kind == _FLOAT8:
        # Products of smaller numbers would underflow, an error. Numbers and keys stay the same.
        tiny = f"{name} <> 0 AND {name} BETWEEN -{_TINY} AND {_TINY}"
        return "float64", f"CASE WHEN {tiny} THEN SIGN({name}) * {_TINY} ELSE {name} END"
    if kind in _PLAIN:
        return _PLAIN[kind], name
    if kind in _TEXTS:
        # A cast of character(n) removes the padding. An empty text is missing.
        return "string", f"NULLIF(CAST({name} AS TEXT) COLLATE \"C\", '')"
    if kind == _DATE:
        inside = f"{name} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
        return "date", f"CASE WHEN {inside} THEN {name} END"
    if kind in _TIMES:
        plain, own = _TIMES[kind]
        first, last = (f"CAST('{end}' AS {own})" for end in ("0001-01-01 BC", "10000-01-02"))
        return plain, f"CASE WHEN {name} BETWEEN {first} AND {last} THEN {name} END"
    if kind != _NUMERIC:
        return None
    precision, scale = column.precision, column.scale
    if precision is not None and scale is not None and 0 <= scale <= precision <= 38:
        return f"decimal({precision}, {scale})", f"CASE WHEN {name} <> 'NaN' THEN {name} END"
    cases = (
        f"WHEN {name} = 'NaN' THEN NULL",
        f"WHEN {name} >= 1e38 THEN CAST('Infinity' AS NUMERIC)",
        f"WHEN {name} <= -1e38 THEN CAST('-Infinity' AS NUMERIC)",
        f"WHEN {name} = TRUNC({name}) THEN ROUND({name}, {_FRACTION_DIGITS})",
    )
    # Rounded down to 20 decimals, plus half of the last decimal: no fraction becomes an integer.
    digits = _FRACTION_DIGITS - 1
    floor = f"FLOOR({name} * 1e{digits}) * 1e-{digits} + 5e-{_FRACTION_DIGITS}"
    return (
        f"decimal(38, {_FRACTION_DIGITS})",
        f"CASE {' '.join(cases)} ELSE ROUND({floor}, {_FRACTION_DIGITS}) END",
    )


def _kind(kind: Any) -> str:
    if pa.types.is_binary(kind):
        return "BYTEA"
    return "BIGINT" if pa.types.is_integer(kind) else "TEXT"


def _literal(column: Any, kind: str) -> str:
    parts = [
        "NULL" if v is None else f'"\\\\x{v.hex()}"' if kind == "BYTEA" else str(int(v))
        for v in column.to_pylist()
    ]
    return "'{" + ",".join(parts) + "}'"


def _array(values: Sequence[Any], kind: Any) -> pa.Array:
    if pa.types.is_integer(kind):  # a sum is returned as a decimal
        return pa.array([None if value is None else int(value) for value in values], kind)
    if pa.types.is_decimal(kind):
        return pa.array([_fitting(value, kind) for value in values], kind)
    return pa.array(values, kind)


def _fitting(value: Any, kind: Any) -> Any:
    """Return a decimal, or one beyond every clip and key if it does not fit the type ``kind``."""
    most = 10 ** (kind.precision - kind.scale)
    if value is None or (value.is_finite() and abs(value) < most):
        return value
    return (Decimal(most - 1) + (Decimal("0.5") if kind.scale else 0)).copy_sign(value)


@contextmanager
def _in_words(shown: str) -> Generator[None]:
    """Turn PostgreSQL's errors into DataError, without a value of a row."""
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise DataError(
            f"data: {shown} has no such table; name it as ?table=schema.name, in the case that it"
            " has"
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        if error.diag.source_function == "check_enable_rls":  # the message is in any language
            raise DataError(
                f"data: {shown}: row-level security would hide rows of the table from this role, "
                "and a release would count the rest; use a role with BYPASSRLS, or make a table or "
                "a view of the rows that are meant, which the role can read as a whole"
            ) from None
        raise DataError(
            f"data: {shown} does not permit the query ({error.diag.message_primary}); "
            "the role needs USAGE on the schema and SELECT on the table or on the columns that the "
            "plan uses"
        ) from None
    except psycopg.errors.UndefinedColumn as error:
        # Guards against a column that goes during the run.
        raise DataError(f"data: {shown}: {error.diag.message_primary}") from None
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        state = error.sqlstate or ""
        if not state or state[:2] in ("08", "57"):
            what = {"57014": "the server cancelled the query (statement_timeout or an operator)"}
            raise LostConnection(
                f"{shown}: {what.get(state, 'the connection to the database was lost')}"
            ) from None
        raise DataError(
            f"data: {shown} answers {type(error).__name__} ({state}); look at the server's log,"
            " memory and disk"
        ) from None
    except psycopg.Error as error:
        state = error.sqlstate or ""
        # Class 42 is syntax and names. Other messages could quote a value.
        text = f": {error.diag.message_primary}" if state[:2] == "42" else ""
        # Guards against errors of a server that no rule names.
        raise DataError(f"data: {shown} answers {type(error).__name__} ({state}){text}") from None
