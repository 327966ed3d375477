"""A table of a MariaDB server, counted on the server in one read-only transaction.

The transaction has a consistent snapshot, and no type of the table can change before it ends. Only
InnoDB has snapshots, so that a table of another engine is refused. Public keys are literals of a
query, and the secret key is a variable of the session. So the role needs the right to read the
table, and no other.

Only what the types say can raise here. A text is read in utf8mb4 with a collation that compares
bytes, without padding. Sorting looks at the first ``max_sort_length`` bytes of a value, so that a
column of longer texts is refused. Days that no calendar has, such as zero dates, are missing.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import json
import re
import secrets
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import ibis
import ibis.expr.datatypes as dt
import pyarrow as pa

from neyman.publishing.engines.csv_reader import DataError, check_names
from neyman.publishing.engines.databases.mariadb_sql import SnapshotCompiler
from neyman.publishing.engines.databases.table import LostConnection, Server, ServerTable
from neyman.publishing.engines.duckdb import quoted

try:
    import MySQLdb
    from ibis.backends.mysql import Backend
except ImportError as absent:
    raise ModuleNotFoundError(
        "data on MariaDB need mysqlclient: pip install 'neyman[mariadb]'", name="MySQLdb"
    ) from absent

_HOW = "mariadb://role@host:3306/database?table=name"
_COLLATION = "utf8mb4_nopad_bin"
_LONGEST = 1024
"""The most characters of a text: of four bytes each they are less than a sort looks at."""
_SETTINGS = {
    "sql_mode": "'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,"
    "NO_ZERO_IN_DATE,NO_UNSIGNED_SUBTRACTION'",
    "old_mode": "''",
    "default_regex_flags": "''",
    "max_sort_length": "8192",
    "sort_buffer_size": "16777216",
    "sql_select_limit": "DEFAULT",  # a lower one would leave rows out
    "sql_big_selects": "1",
    "div_precision_increment": "4",
    "query_cache_type": "OFF",  # which is shared
    "time_zone": "'+00:00'",
    "max_statement_time": "0",
    "wait_timeout": "2147483",
    "idle_transaction_timeout": "0",
    "idle_readonly_transaction_timeout": "0",
}
_LOST = {1053, 1317, 1927, 1969, 2006, 2013, 2055, 4166}
_DENIED = {1044, 1045, 1142, 1143, 1370, 1698}
_CHARSETS = ("utf8mb4", "utf8mb3", "latin1", "ascii")
"""Those of which each text becomes a text of its own in utf8mb4."""
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_RAW = ("binary", "CAST(NULL AS BINARY)")  # stands for a type that no plan can use


@dataclass(frozen=True)
class _Column:
    """A column as the information schema describes it."""

    name: str
    kind: str
    shown: str
    charset: str | None
    characters: int | None
    precision: int | None
    scale: int | None
    extra: str

    def plain(self) -> tuple[str, str] | None:
        """The Ibis type that it is read as, and the SQL that reads it; None for no such type."""
        name, kind = quoted(self.name, "`"), self.kind
        if "VIRTUAL" in self.extra.upper():
            return None  # its expression is computed at each query, and can fail for what a row has
        if kind in _INTEGERS and not (kind == "bigint" and "unsigned" in self.shown):
            return "int64", f"CAST({name} AS SIGNED)"
        if kind == "bigint":
            return "decimal(20, 0)", f"CAST({name} AS DECIMAL(20, 0))"
        if kind == "decimal" and (self.precision or 99) <= 38:
            digits = f"{self.precision}, {self.scale}"
            return f"decimal({digits})", f"CAST({name} AS DECIMAL({digits}))"
        if kind in ("float", "double"):
            return "float32" if kind == "float" else "float64", f"CAST({name} AS DOUBLE)"
        if kind in ("date", "datetime", "timestamp"):
            plain = {"date": "date", "datetime": "timestamp(6)"}.get(kind, "timestamp('UTC', 6)")
            day = f"CAST({name} AS DATE)"
            return plain, f"CASE WHEN FROM_DAYS(TO_DAYS({name})) = {day} THEN {name} END"
        texts = kind in ("char", "varchar", "tinytext", "enum")
        if not texts or self.charset not in _CHARSETS or (self.characters or 0) > _LONGEST:
            return None
        return "string", self._text(name)

    def _text(self, name: str) -> str:
        """A text that is not empty; missing if it holds half of a pair, which is no UTF-8."""
        text = f"CONVERT({name} USING utf8mb4)"
        if self.charset == "ascii":  # a byte that is none would become a question mark
            text = f"CONVERT(CONVERT(CAST({name} AS BINARY) USING latin1) USING utf8mb4)"
        text = f"NULLIF({text} COLLATE {_COLLATION}, '')"
        if self.charset not in ("utf8mb4", "utf8mb3"):
            return text
        half = f"CAST({name} AS BINARY) RLIKE UNHEX('ED5BA02DBF5D')"
        return f"CASE WHEN NOT {half} THEN {text} END"


class _Server(Backend, Server):
    """An Ibis connection whose queries are those of one read-only transaction."""

    compiler = SnapshotCompiler()
    _fence = "LIMIT 18446744073709551615"

    def __init__(self, connection: Any, shown: str) -> None:
        super().__init__()
        self.con, self.shown = connection, shown

    @property
    def closed(self) -> bool:
        return not self.con.open

    def asked(self, query: str, values: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        with _in_words(self.shown), self.con.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())

    def listed(self, rows: pa.Table) -> Any:
        columns = [column.to_pylist() for column in rows.columns]
        hexed = [[v.hex() if isinstance(v, bytes) else v for v in each] for each in columns]
        typed: list[str] = []
        chosen: list[str] = []
        schema: dict[str, dt.DataType] = {}
        for i, (field, each) in enumerate(zip(rows.schema, hexed, strict=True)):
            is_bytes, own = pa.types.is_binary(field.type), quoted(field.name, "`")
            size = max([1, *(len(v) for v in each if v is not None)]) if is_bytes else 0
            typed.append(f"c{i} {f'VARCHAR({size})' if is_bytes else 'BIGINT'} PATH '$[{i}]'")
            chosen.append(f"{f'UNHEX(c{i})' if is_bytes else f'c{i}'} AS {own}")
            schema[field.name] = dt.binary if is_bytes else dt.int64
        text = json.dumps(list(zip(*hexed, strict=True)))
        query = (
            f"SELECT {', '.join(chosen)} FROM"
            f" JSON_TABLE('{text}', '$[*]' COLUMNS({', '.join(typed)})) AS listed {self._fence}"
        )
        return self.table_of(query, ibis.schema(schema))

    def secret(self, key: str) -> Any:
        """A table of one row that holds a key: the text of no later query shows it."""
        name = f"@neyman_{secrets.token_hex(4)}"
        self.asked(f"SET {name} = %s", (key,))
        return self.table_of(f"SELECT {name} AS `key`", ibis.schema({"key": dt.string}))

    def check_table(self, database: str, table: str) -> None:
        """Hold the types of a table, and refuse one that has no snapshot."""
        self.asked(f"SELECT 1 FROM {quoted(database, '`')}.{quoted(table, '`')} LIMIT 0")
        query = (
            "SELECT table_type, engine FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s"
        )
        ((kind, engine),) = self.asked(query, (database, table)) or [("none", None)]
        if kind != "BASE TABLE" or engine != "InnoDB":
            what = f"a table of the engine {engine}" if kind == "BASE TABLE" else f"a {kind.lower()}"
            raise DataError(
                f"data: {self.shown} names {what}: all queries of a run see one state of the rows"
                " in tables of InnoDB alone; copy it to one (CREATE TABLE ... ENGINE=InnoDB)"
            )

    def described(self, database: str, table: str) -> list[_Column]:
        query = (
            "SELECT column_name, LOWER(data_type), LOWER(column_type), character_set_name,"
            " character_maximum_length, numeric_precision, numeric_scale, extra"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position"
        )
        return [_Column(*row) for row in self.asked(query, (database, table))]


class MariaTable(ServerTable):
    """A table on a MariaDB server."""

    def __init__(self, shown: str, parameters: dict[str, Any], table: str) -> None:
        super().__init__(shown, parameters, _connected)
        self._relation = parameters["database"], table

    @classmethod
    def at(cls, url: str) -> MariaTable:
        """The table that a URL names. No message quotes what may be a part of a password."""
        try:
            parts = urlsplit(url)
            port, host = parts.port, parts.hostname or ""
        except ValueError:
            raise DataError(f"data: url is not of the form {_HOW}") from None
        given = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
        names, database = dict(given), unquote(parts.path[1:])
        known = {"table", "socket", "ssl_ca"}
        if len(names) < len(given) or not names.get("table") or parts.fragment or not database:
            raise DataError(f"data: url is not of the form {_HOW}: it names one table")
        if not names.keys() <= known:
            raise DataError(f"data: a URL of MariaDB has {', '.join(sorted(known))}, and no more")
        user = unquote(parts.username or "")
        parameters: dict[str, Any] = {"host": host, "user": user, "database": database}
        parameters |= {"port": port} if port else {}
        parameters |= {"password": unquote(parts.password)} if parts.password else {}
        parameters |= {"unix_socket": names["socket"]} if "socket" in names else {}
        parameters |= {"ssl": {"ca": names["ssl_ca"]}} if "ssl_ca" in names else {}
        options = "&".join(f"{name}={quote(value, safe='/')}" for name, value in given)
        where = f"{quote(user)}@{host}" + (f":{port}" if port else "")
        shown = f"mariadb://{where}/{quote(database)}?{options}"
        return cls(shown, {k: v for k, v in parameters.items() if v}, names["table"])

    def open(self, columns: Sequence[str] | None, *, rows: bool, memory: str | None = None) -> Any:
        """Return the table, in plain types."""
        self.check_memory(memory)
        server: _Server = self._place.server()
        server.check_table(*self._relation)
        self.name = ".".join(self._relation)
        described = server.described(*self._relation)
        check_names([column.name for column in described], columns or ())
        picked: dict[str, tuple[str, str]] = {}
        for column in described:
            if columns is None or column.name in columns:
                plain = column.plain()
                if plain is None and columns is not None:
                    raise _unusable(column)
                picked[column.name] = plain or _RAW
        chosen = ", ".join(f"{text} AS {quoted(name, '`')}" for name, (_, text) in picked.items())
        schema = {name: dt.dtype(picked[name][0]) for name in columns or picked}
        if not picked:
            chosen, schema = "1 AS one", {"one": dt.int32}
        source = ".".join(quoted(part, "`") for part in self._relation)
        query = f"SELECT {chosen} FROM {source}{'' if rows else ' LIMIT 0'}"
        return server.table_of(query, ibis.schema(schema))


def _unusable(column: _Column) -> DataError:
    charset = f" in the character set {column.charset}" if column.charset else ""
    virtual = f" ({column.extra.lower()})" if "VIRTUAL" in column.extra.upper() else ""
    return DataError(
        f"data column {column.name!r} has type {column.shown}{charset}{virtual}: a column that a"
        f" plan uses holds texts of at most {_LONGEST} characters (char, varchar, tinytext, enum)"
        f" in {', '.join(_CHARSETS)}, whole numbers, decimals of at most 38 digits, float, double,"
        " date, datetime, or timestamp, and is not virtual. Copy it to a column of such a type"
    )


def _connected(shown: str, parameters: dict[str, Any]) -> _Server:
    settings = {"connect_timeout": 10, "charset": "utf8mb4", "local_infile": 0}
    settings["read_default_file"] = str(Path("~/.my.cnf").expanduser())
    try:
        connection = MySQLdb.connect(**(settings | parameters))
    except MySQLdb.Error as error:
        code, *text = error.args
        secret = parameters.get("password", "")
        said = str(text[0] if text else "").replace(secret, "***") if secret else text[0]
        raise DataError(f"data: {shown} cannot be reached: {said} ({code})") from None
    server = _Server(connection, shown)
    weakref.finalize(server, _closed, connection)
    try:
        (version,) = server.asked("SELECT VERSION()")[0]
        found = re.match(r"(\d+)\.(\d+)\.\d+-MariaDB", version)
        if not found or (int(found[1]), int(found[2])) < (10, 6):
            raise DataError(f"data: {shown} is {version}: counting needs MariaDB 10.6 or later")
        server.asked(f"SET NAMES utf8mb4 COLLATE {_COLLATION}")
        given = ", ".join(f"SESSION {name} = {value}" for name, value in _SETTINGS.items())
        server.asked(f"SET {given}")
        server.asked("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        server.asked("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    except BaseException:
        connection.close()
        raise
    return server


def _closed(connection: Any) -> None:
    if connection.open:
        connection.close()


@contextmanager
def _in_words(shown: str) -> Generator[None]:
    """Say what MariaDB's errors mean, in words that hold no value of a row."""
    try:
        yield
    except MySQLdb.Error as error:
        code, text = error.args[0], str(error.args[-1])
        if code in _LOST or isinstance(error, MySQLdb.InterfaceError):
            what = {1317: "the server cancelled the query", 1969: "max_statement_time is over"}
            lost = "the connection to the database was lost"
            raise LostConnection(f"{shown}: {what.get(code, lost)}") from None
        if code in (1049, 1146):
            raise DataError(f"data: {shown} has no such table: {text}") from None
        if code in _DENIED:
            raise DataError(
                f"data: {shown} does not permit it ({text}); the role needs SELECT on the table"
            ) from None
        # Other messages could quote a value.
        raise DataError(f"data: {shown} answers error {code}; look at the server's log") from None
