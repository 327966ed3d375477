"""Count a table of a MariaDB server on the server, in one read-only transaction.

The transaction has a consistent snapshot, which only InnoDB supports. The plan's public keys are
literals, and the secret hash key is a session variable. Nothing is written, so the role needs only
the right to read the table.

No value of a row can cause an error. A text is read in utf8mb4 with a collation that compares
bytes. A sort compares only the first max_sort_length bytes, so types with longer texts are refused.
Impossible days are missing.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import json
import re
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import ibis
import ibis.expr.datatypes as dt
import pyarrow as pa

from neyman.publishing.engines.csv_reader import DataError, check_names
from neyman.publishing.engines.databases.mariadb_sql import MariaDBCompiler
from neyman.publishing.engines.databases.table import LostConnection, Server, ServerTable
from neyman.publishing.engines.duckdb import quoted

try:
    import MySQLdb
    from ibis.backends.mysql import Backend
except ImportError as absent:
    raise ModuleNotFoundError(
        "data on MariaDB need mysqlclient: pip install 'neyman[mariadb]'", name="MySQLdb"
    ) from absent

_URL = re.compile(
    "mariadb://(?:(?P<user>[^/?#@:]*)(?::(?P<password>[^/?#@]*))?@)?(?P<host>[^/?#@:]*)"
    "(?::(?P<port>[0-9]{1,5}))?/(?P<db>[^/?#]+)[?](?P<rest>[^#]+)"
)
_COLLATION = "utf8mb4_nopad_bin"
_MAX_TEXT_LETTERS = 1024  # of four bytes each: less than a sort compares
_MAX_VARCHAR_LETTERS = 16_383  # of four bytes each
# A lower sql_select_limit would omit rows. The query cache is shared.
_SETTINGS = """
sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE', old_mode = '',
max_sort_length = 8192, sort_buffer_size = 16777216, sql_select_limit = DEFAULT,
sql_big_selects = 1, div_precision_increment = 4, default_regex_flags = '', query_cache_type = OFF,
time_zone = '+00:00', max_statement_time = 0, wait_timeout = 2147483, idle_transaction_timeout = 0,
idle_readonly_transaction_timeout = 0, tx_isolation = 'REPEATABLE-READ'
"""
_LOST: dict[int, str] = {
    **dict.fromkeys((1053, 1927, 2006, 2013, 2055), "the connection to the database was lost"),
    1317: "the server cancelled the query",
    1969: "max_statement_time is over",
}
_CHARSETS = ("utf8mb4", "utf8mb3", "latin1", "ascii")  # distinct texts stay distinct in utf8mb4
_TEXTS = ("char", "varchar", "tinytext", "enum")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_TIMES = {"date": "date", "datetime": "timestamp(6)", "timestamp": "timestamp('UTC', 6)"}
_RAW = ("binary", "CAST(NULL AS BINARY)")  # stands for a type that no plan can use
# The collation of these names treats `cafe` as `café`, also in the join.
_COLUMNS = (
    "SELECT c.table_schema, c.table_name, t.table_schema, t.table_name,"
    " column_name, LOWER(data_type), LOWER(column_type), character_set_name,"
    " character_maximum_length, numeric_precision, numeric_scale, extra, table_type, engine"
    " FROM information_schema.columns AS c JOIN information_schema.tables AS t"
    " USING (table_schema, table_name) WHERE table_schema = %s AND table_name = %s"
    " ORDER BY ordinal_position"
)


class _MariaDBServer(Backend, Server):
    """Extend Ibis's connection. All of its queries belong to one read-only transaction."""

    compiler = MariaDBCompiler()
    _fence = f"LIMIT {2**64 - 1}"

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
        lists = [column.to_pylist() for column in rows.columns]
        hexed = [[v.hex() if isinstance(v, bytes) else v for v in each] for each in lists]
        size = max([1, *(len(v) for each in hexed for v in each if isinstance(v, str))])
        # No text is as long as a key in MEDIUMTEXT, so such a key counts nothing.
        text_type = f"VARCHAR({size})" if size <= _MAX_VARCHAR_LETTERS else "MEDIUMTEXT"
        text = json.dumps(list(zip(*hexed, strict=True)))
        own = {f.name: dt.binary if pa.types.is_binary(f.type) else dt.int64 for f in rows.schema}
        chosen, typed = list[str](), list[str]()
        for i, (name, kind) in enumerate(own.items()):
            value, sql = (f"UNHEX(c{i})", text_type) if kind.is_binary() else (f"c{i}", "BIGINT")
            chosen.append(f"{value} AS {quoted(name, '`')}")
            typed.append(f"c{i} {sql} PATH '$[{i}]'")
        listed = f"JSON_TABLE('{text}', '$[*]' COLUMNS({', '.join(typed)})) AS listed"
        query = f"SELECT {', '.join(chosen)} FROM {listed} {self._fence}"
        return self.table_of(query, ibis.schema(own))

    def secret(self, key: str) -> Any:
        """Return a table of one row that holds a key. No later query text shows the key."""
        name = f"@neyman_{secrets.token_hex(4)}"
        self.asked(f"SET {name} = %s", (key,))
        return self.table_of(f"SELECT {name} AS `key`", ibis.schema({"key": dt.string}))


def _open_connection(shown: str, parameters: dict[str, Any]) -> _MariaDBServer:
    given = {"connect_timeout": 10, "charset": "utf8mb4", "local_infile": 0, **parameters}
    try:
        connection = MySQLdb.connect(**given, read_default_file=str(Path.home() / ".my.cnf"))
    except MySQLdb.Error as error:  # the server repeats names, and no password
        raise DataError(f"data: {shown} cannot be reached: {error.args[-1]}") from None
    server = _MariaDBServer(connection, shown)
    try:
        ((version,),) = server.asked("SELECT VERSION()")
        number = re.match(r"(\d+)\.(\d+)\..*MariaDB", version)
        if not number or (int(number[1]), int(number[2])) < (10, 6):
            raise DataError(f"data: {shown} is {version}: counting needs MariaDB 10.6 or later")
        for setting in (
            f"SET NAMES utf8mb4 COLLATE {_COLLATION}",
            f"SET SESSION {_SETTINGS}",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
        ):
            server.asked(setting)
    except BaseException:
        if connection.open:
            connection.close()
        raise
    return server


class MariaTable(ServerTable):
    """Represent a table on a MariaDB server."""

    _connect = staticmethod(_open_connection)
    _table = ""

    @classmethod
    def at(cls, url: str) -> MariaTable:
        """Return the table that a URL names. No message quotes a possible part of a password."""
        match = _URL.fullmatch(url)
        parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v}
        given = parse_qsl(parts.pop("rest", "").replace("+", "%2B"))
        names = dict(given)
        if len(names) < len(given) or {"table"} != names.keys() - {"socket"}:
            raise DataError(
                "data: url is not of the form mariadb://role@host:3306/database?table=name, or with"
                " &socket=path; other options and the password are in ~/.my.cnf"
            )
        shown = url.replace(f":{parts.get('password', '')}@", "@", 1)
        parameters: dict[str, Any] = {name: unquote(text) for name, text in parts.items()}
        parameters |= {"port": int(parts["port"])} if "port" in parts else {}
        parameters |= {"unix_socket": names["socket"]} if "socket" in names else {}
        table = cls(shown, parameters)
        table._table = names["table"]
        return table

    def open(self, columns: Sequence[str] | None, *, rows: bool, memory: str | None = None) -> Any:
        """Return the table, in plain types."""
        server: _MariaDBServer = self.server(memory)
        place = self._parameters["db"], self._table
        source = ".".join(quoted(part, "`") for part in place)
        server.asked(f"SELECT 1 FROM {source} LIMIT 0")  # from now on no type changes
        rows_of_columns = _rows_of_table(server.asked(_COLUMNS, place), place, self.shown)
        *_, kind, engine = rows_of_columns[0]
        if (kind, engine) != ("BASE TABLE", "InnoDB"):
            what = f"a table of the engine {engine}" if engine else f"a {kind.lower()}"
            raise DataError(
                f"data: {self.shown} names {what}: all queries of a run see one state of the rows"
                " in tables of InnoDB alone; copy it to one (CREATE TABLE ... ENGINE=InnoDB)"
            )
        self.name = ".".join(place)
        described = {row[0]: row[:-2] for row in rows_of_columns}
        check_names(list(described), columns or ())
        picked = {
            name: _plain_type(*described[name])
            or (_RAW if columns is None else _refuse_type(*described[name]))
            for name in (described if columns is None else columns)
        } or {"one": ("int32", "1")}
        chosen = ", ".join(f"{text} AS {quoted(name, '`')}" for name, (_, text) in picked.items())
        query = f"SELECT {chosen} FROM {source}{'' if rows else ' LIMIT 0'}"
        return server.table_of(query, ibis.schema({n: dt.dtype(k) for n, (k, _) in picked.items()}))


def _rows_of_table(
    candidates: list[tuple[Any, ...]], place: tuple[str, str], shown: str
) -> list[tuple[Any, ...]]:
    """Return the rows of ``candidates`` for the table ``place``, without the table's names.

    The candidates are the answer to `_COLUMNS`. ``place`` is (database, table).

    Raises:
        DataError: the server lists the table under another name, or under several names.
    """
    by_name: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in candidates:
        if row[:2] == row[2:4]:
            by_name.setdefault(row[:2], []).append(row[4:])
    if place not in by_name and len(by_name) == 1:  # the server ignores case
        (place,) = by_name
    if place not in by_name:
        raise DataError(
            f"data: {shown} names a table that the server lists under another name: write the"
            " database and the table as SHOW TABLES does"
        )
    return by_name[place]


def _plain_type(
    name: str, kind: str, shown: str, charset: str | None, size: int | None, *rest: Any
) -> tuple[str, str] | None:
    own, (precision, scale, extra) = quoted(name, "`"), rest
    if "VIRTUAL" in extra.upper():
        return None  # computed in each query, it can fail because of a row's value
    if (kind == "decimal" and precision <= 38) or (kind == "bigint" and "unsigned" in shown):
        return f"decimal({precision}, {scale})", f"CAST({own} AS DECIMAL({precision}, {scale}))"
    if kind in _INTEGERS:
        return "int64", f"CAST({own} AS SIGNED)"
    if kind in ("float", "double"):
        return "float32" if kind == "float" else "float64", f"CAST({own} AS DOUBLE)"
    if kind in _TIMES:
        same = f"FROM_DAYS(TO_DAYS({own})) = CAST({own} AS DATE)"
        return _TIMES[kind], f"CASE WHEN {same} THEN {own} END"
    if kind not in _TEXTS or charset not in _CHARSETS or (size or 0) > _MAX_TEXT_LETTERS:
        return None
    # A non-ASCII byte would become a question mark. Half of a surrogate pair is no UTF-8.
    data = f"CONVERT(CAST({own} AS BINARY) USING latin1)" if charset == "ascii" else own
    text = f"NULLIF(CONVERT({data} USING utf8mb4) COLLATE {_COLLATION}, '')"
    half = f"CAST({own} AS BINARY) RLIKE UNHEX('ED5BA02DBF5D')"
    return "string", f"CASE WHEN NOT {half} THEN {text} END" if "utf8" in charset else text


def _refuse_type(name: str, _: str, shown: str, charset: str | None, *rest: Any) -> tuple[str, str]:
    kind = " ".join(filter(None, (shown, charset, rest[-1].lower())))
    raise DataError(
        f"data column {name!r} has type {kind}: a column that a plan uses holds whole numbers,"
        " decimals of at most 38 digits, float, double, date, datetime, timestamp, or texts of at"
        f" most {_MAX_TEXT_LETTERS} characters ({', '.join(_TEXTS)}) in {', '.join(_CHARSETS)}, and"
        " is not virtual. Copy it to a column of such a type"
    )


@contextmanager
def _in_words(shown: str) -> Generator[None]:
    """Turn MariaDB's errors into DataError, without a value of a row."""
    try:
        yield
    except MySQLdb.Error as error:
        code, text = error.args[0], error.args[-1]
        if code in _LOST or isinstance(error, MySQLdb.InterfaceError):
            raise LostConnection(f"{shown}: {_LOST.get(code, _LOST[2013])}") from None
        # These errors are about names, rights, and syntax. Other messages could quote a value.
        said = f": {text}" if code in (1044, 1049, 1054, 1064, 1142, 1143, 1146, 1305) else ""
        raise DataError(
            f"data: {shown} answers error {code}{said}; the role needs SELECT on the table"
        ) from None
