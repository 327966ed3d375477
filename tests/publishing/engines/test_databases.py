"""Tables in databases: one test table gives the same result on every engine, cell for cell."""

import math
import sqlite3
import threading
import time
from datetime import date
from decimal import Decimal
from fractions import Fraction

import duckdb
import ibis
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_joined_tables import DOCUMENT as JOINED
from test_joined_tables import EVENTS, PEOPLE
from test_joined_tables import tables_of as joined_counts
from test_row_expressions import (
    CHANGES,
    DERIVE,
    FIRST,
    LAST,
    LOOKUP,
    NORMAL,
    POINTS,
    SECONDS,
    TYPED,
    WHERE,
    by_time,
    in_python,
    plain,
    texts_of,
    timed,
    written,
)
from test_row_expressions import TABLE as TABLE_OF_TEXTS
from test_row_expressions import a_plan as expression_plan

import neyman as ny
from commands import answered, neyman
from neyman.ledger import ChargedError, LedgerError
from neyman.publishing import DataError, as_source, close_table, open_table, prepared, row_count
from plain_engine import Plain, counted, fetched

TEXTS = ["a", "A", "a ", " a", "", "ä", "a\u0308", "ß", "ss", "😀", "İ", "i", "\u00a0", "NULL"]
TEXTS += [None]
NUMBERS = ["1", "1.0", "01", "1e0", "-0", "0x1", "1e400", "1e-400", "NaN", "-inf", "9" * 41, "x"]
NUMBERS += ["0.29", "-0.29", "-0.291", "12345678901234567.89", " 1", "1_0", "٣", "", None]
DAYS = [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10), None]
FLOATS = [math.nan, math.inf, -math.inf, -0.0, 0.29, -0.29, 1e300, 5e-324, 2.0**53 + 2, 1.0, None]
INTEGERS = [2**63 - 1, -(2**63), 2**53 + 1, 0, 1, -7, None]
DECIMALS = [Decimal(9 * 10**34), Decimal("-0.291"), Decimal("0.29"), Decimal(1), Decimal(0), None]
IDS = ["p", "P", "p ", "é", "e\u0301", "", None, "q", "q"]


def _row(i):
    return {
        "id": IDS[i % len(IDS)], "s": TEXTS[i % len(TEXTS)], "t": NUMBERS[i % len(NUMBERS)],
        "day": DAYS[i % len(DAYS)], "f": FLOATS[i % len(FLOATS)], "n": INTEGERS[i % len(INTEGERS)],
        "d": DECIMALS[i % len(DECIMALS)], "b": [True, False, None][i % 3],
    }  # fmt: skip


ROWS = [_row(i) for i in range(200)]
TYPES = {
    "id": pa.string(), "s": pa.string(), "t": pa.string(), "day": pa.date32(), "f": pa.float64(),
    "n": pa.int64(), "d": pa.decimal128(38, 3), "b": pa.bool_(),
}  # fmt: skip
TABLE = pa.table({name: pa.array([r[name] for r in ROWS], kind) for name, kind in TYPES.items()})
PG_TYPES = {
    "id": "varchar(9) COLLATE folding", "s": "text COLLATE folding", "t": "text", "day": "date",
    "f": "float8", "n": "bigint", "d": "numeric(38,3)", "b": "boolean", "at": "timestamp",
    "code": "char(4)", "free": "numeric", "mood": "mood", "raw": "bytea",
}  # fmt: skip


def a_plan(bounded=False):
    """Every kind of column as keys and as numbers; with units of several rows if asked for."""
    share = "1/9"
    both = {"rows_per_group": 2, "groups": 2} if bounded else {}
    keys = {"s": [t for t in TEXTS if t and t.strip()], "t": ["1", "1.0", "x"]}
    sums = [("f", 2), ("n", 0), ("d", 2), ("t", 2)]
    query = [
        {"name": "s", "measure": "count", "by": ["s"], "share": share, **both},
        {"name": "bt", "measure": "count", "by": ["b", "t"], "share": share, **both},
        {"name": "day", "measure": "count", "by": ["day"], "share": share, **both},
        {"name": "k", "measure": "units", "by": ["w"], "share": share},
        {"name": "h", "measure": "histogram", "column": "n2", "edges": [-9, -7, 0, 1, 50],
         "share": share, **both},
    ]  # fmt: skip
    query += [
        {"name": f"sum_{name}", "measure": "variance" if name == "n" else "sum", "column": name2,
         "clip": [-(10**8), 10**8 + 1] if name == "n" else [-9, 12], "share": share, **both}
        for name, name2 in [(name, f"{name}2") for name, _ in sums]
    ]  # fmt: skip
    columns = {
        "s": {"keys": keys["s"]}, "t": {"keys": keys["t"]}, "b": {"keys": [True, False]},
        "day": {"keys": [d.isoformat().rjust(10, "0") for d in DAYS if d]},
        "w": {"keys": [0, 1, -7]}, "n2": {"integer": True, "unknown": 0}, "f2": {"decimals": 2},
        "d2": {"decimals": 2, "unknown": "0.5"},
        "t2": {"decimals": 2, "unknown": -3, "parse": True},
    }  # fmt: skip
    unit = {"id": "id", "rows": 3} if bounded else {}
    return ny.Plan.from_dict({
        "schema": 2, "name": "t", "dataset": "t@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one", **unit},
        "columns": columns, "budget": {"zcdp": 1}, "query": query,
    })  # fmt: skip


def twice(rows):
    """Columns that are both keys and numbers, once under each name."""
    return [{**r, "w": r["t"], **{f"{n}2": r[n] for n in "ftnd"}} for r in rows]


VIEW = "*, t AS w, f AS f2, t AS t2, n AS n2, d AS d2"


@pytest.fixture(scope="module")
def server(postgres):
    """The test table on a server, in its own database, with a role that may only read it."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE clinic")
    owner = postgres.url().replace("/postgres?", "/clinic?")
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(
            "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level1',"
            " deterministic = false)"
        )
        connection.execute("CREATE SCHEMA hospital")
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'Glad')")
        kinds = ", ".join(f"{name} {kind}" for name, kind in PG_TYPES.items())
        connection.execute(f"CREATE TABLE hospital.patients ({kinds})")
        names = ", ".join(TYPES)
        with connection.cursor().copy(f"COPY hospital.patients ({names}) FROM STDIN") as copy:
            for row in ROWS:
                copy.write_row([row[name] for name in TYPES])
        connection.execute(
            "UPDATE hospital.patients SET code = left(t, 4), mood = 'Glad', at = now(),"
            " free = CASE WHEN n IS NULL THEN 'NaN' ELSE n / 100.0 END"
        )
        connection.execute(f"CREATE VIEW hospital.people AS SELECT {VIEW} FROM hospital.patients")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'se@cret/1'")
        connection.execute("REVOKE ALL ON DATABASE clinic FROM PUBLIC")
        connection.execute("GRANT CONNECT ON DATABASE clinic TO reader")
        connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        connection.execute("GRANT USAGE ON SCHEMA hospital TO reader")
        connection.execute("GRANT SELECT ON hospital.people, hospital.patients TO reader")
    yield postgres
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("DROP DATABASE clinic WITH (FORCE)")
        connection.execute("DROP ROLE reader")


def at(server, table="hospital.people", **given):
    url = server.url(**{"user": "reader", **given, "table": table})
    return url.replace("/postgres?", "/clinic?")


def as_owner(server):
    return psycopg.connect(at(server, user="neyman").partition("&table=")[0], autocommit=True)


def in_duckdb(folder):
    path = folder / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", TABLE)
        connection.execute("CREATE TABLE patients AS FROM given")
        connection.execute(f"CREATE VIEW people AS SELECT {VIEW} FROM patients")
    return f"duckdb://{path}?table=people"


def in_sqlite(folder):
    path = folder / "people.sqlite"
    kinds = {"day": "DATE", "f": "REAL", "n": "INTEGER", "b": "BOOLEAN"}
    with sqlite3.connect(path) as connection:
        named = ", ".join(f"{name} {kinds.get(name, 'TEXT')}" for name in TYPES)
        connection.execute(f"CREATE TABLE patients ({named})")
        rows = [
            [_sqlite(row[name]) if name != "day" else _day(row[name]) for name in TYPES]
            for row in ROWS
        ]
        marks = ", ".join("?" * len(TYPES))
        connection.executemany(f"INSERT INTO patients VALUES ({marks})", rows)
        connection.execute(f"CREATE VIEW people AS SELECT {VIEW} FROM patients")
    connection.close()
    return f"sqlite://{path}?table=people"


def _sqlite(value):
    return str(value) if isinstance(value, Decimal) else value


def _day(value):
    return value and value.isoformat().rjust(10, "0")


def test_an_absolute_path_may_have_the_four_slashes_of_sqlalchemy(tmp_path):
    """`//data/people.sqlite` is the same file, as the operating system reads it."""
    url = in_sqlite(tmp_path)
    more = url.replace("sqlite:///", "sqlite:////")
    assert more != url
    tables = [fetched(open_table(as_source(address), columns=["n"])) for address in (url, more)]
    assert tables[0].num_rows > 0
    assert tables[1].equals(tables[0])


def wide():
    names = {"w": "t", **{f"{n}2": n for n in "ftnd"}}
    return pa.table({**{n: TABLE[n] for n in TYPES}, **{n: TABLE[o] for n, o in names.items()}})


def in_parquet(folder):
    pq.write_table(wide(), folder / "people.parquet")
    return str(folder / "people.parquet")


def source_of(kind, request, folder):
    if kind == "postgres":
        return at(request.getfixturevalue("server"))
    return {"duckdb": in_duckdb, "sqlite": in_sqlite, "parquet": in_parquet}[kind](folder)


@pytest.fixture(scope="module")
def right():
    rows = twice(ROWS)
    return {bounded: Plain(a_plan(bounded), rows).tables() for bounded in (False, True)}


@pytest.mark.parametrize(("kind", "bounded"), [
    ("parquet", False), ("duckdb", False), ("sqlite", False), ("postgres", False),
    ("duckdb", True), ("postgres", True),
])  # fmt: skip
def test_one_table_gives_the_same_cells_wherever_it_lies(kind, bounded, right, request, tmp_path):
    source = source_of(kind, request, tmp_path)
    result = counted(a_plan(bounded), as_source(source))
    assert result == right[bounded]


def test_expressions_on_a_server_give_what_plain_python_gives(server):
    rows = TABLE_OF_TEXTS.to_pylist()
    texts = [row for row in rows if "\0" not in f"{row['s']}{row['k']}"]  # no text of a server
    typed = TYPED.to_pylist()
    kinds = {"n": "bigint", "m": "float8", "s": "text", "b": "boolean", "d": "date", "k": "text"}
    with as_owner(server) as connection:
        for name, own, each in (("texts", {}, texts), ("typed", kinds, typed)):
            columns = ", ".join(f"{n} {own.get(n, 'text')}" for n in kinds)
            connection.execute(f"CREATE TABLE hospital.{name} ({columns})")
            with connection.cursor().copy(f"COPY hospital.{name} FROM STDIN") as copy:
                for row in each:
                    copy.write_row([row[n] for n in kinds])
    for name, each in (("texts", texts), ("typed", typed)):
        plan = expression_plan(derive=DERIVE, lookup=LOOKUP, where=WHERE)
        table = open_table(at(server, f"hospital.{name}", user="neyman"))
        with prepared(plan, table) as ready:
            answer = fetched(ready.select(*(one.name for one in plan.rows.derived))).to_pylist()
        close_table(table)
        result = [
            {n: v.decode() if isinstance(v, bytes) else v for n, v in r.items()} for r in answer
        ]
        key = lambda row: [(v is None, str(v)) for v in row.values()]  # noqa: E731
        assert sorted(result, key=key) == sorted(plain(plan, each), key=key)


def test_timestamps_on_a_server_have_the_days_and_hours_of_python(server):
    seconds = [s for s in SECONDS if s is not None and FIRST + 10**5 < s < LAST - 10**5]
    for name, kind, zone in (
        ("local", "timestamp", None),
        ("instants", "timestamptz", "Asia/Gaza"),
        ("written", "text", "Asia/Gaza"),
    ):
        table = timed("us", zone and "UTC", seconds)
        with as_owner(server) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"CREATE TABLE hospital.{name} (n int, d {kind}, k text)")
            given = written(table).to_pylist() if name == "written" else in_python(table)
            rows = [(row["n"], str(row["d"]), row["k"]) for row in given]
            rows += [(-1, "infinity", "x"), (-2, "-infinity", "x"), (-3, "4000-01-01 BC", "x")]
            given = f"INSERT INTO hospital.{name} VALUES (%s, %s, %s)"
            connection.cursor().executemany(given, rows)
        plan = by_time(zone)
        opened = open_table(at(server, f"hospital.{name}", user="neyman"), columns=["n", "d", "k"])
        with prepared(plan, opened) as ready:
            names = [one.name for one in plan.rows.derived]
            texts = [{n: _decoded(v) for n, v in row.items()} for row in _rows_of(ready, names)]
        close_table(opened)
        on_server = {row["row"]: row for row in texts if row["dom"] is not None}
        assert on_server == {row["row"]: row for row in plain(plan, in_python(table))}


def test_texts_on_a_server_have_the_case_and_the_form_that_python_gives(server):
    characters = [c for c in POINTS[:0x2100] if c.strip() or c in " \u00a0\u2003"]
    table = texts_of(characters)
    given_rows = [row for row in table.to_pylist() if "\0" not in (row["s"] or "")]
    with as_owner(server) as connection:
        connection.execute("CREATE TABLE hospital.words (s text, k text)")
        rows = [(row["s"], row["k"]) for row in given_rows]
        connection.cursor().executemany("INSERT INTO hospital.words VALUES (%s, %s)", rows)
    plan = expression_plan(derive=CHANGES | NORMAL)
    opened = open_table(at(server, "hospital.words", user="neyman"), columns=["s", "k"])
    with prepared(plan, opened) as ready:
        on_server = [
            tuple(map(_decoded, row.values())) for row in _rows_of(ready, [*CHANGES, *NORMAL])
        ]
    close_table(opened)
    right = [tuple(row.values()) for row in plain(plan, given_rows)]
    assert sorted(on_server, key=repr) == sorted(right, key=repr)


def _rows_of(table, names):
    return fetched(table.select(*names)).to_pylist()


def _decoded(value):
    return value.decode() if isinstance(value, bytes) else value


def test_keys_of_types_that_only_a_server_has_are_their_values(server):
    columns = {"code": {"keys": ["1", "x", "1e0"]}, "free": {"keys": [0, 1]}}
    query = [{"name": n, "measure": "count", "by": [n], "share": "1/3"} for n in columns]
    columns["cents"] = {"decimals": 2}
    query.append(
        {"name": "c", "measure": "sum", "column": "cents", "clip": [-1, 2], "share": "1/3"}
    )
    plan = small(query, columns)
    source = at(server).replace("hospital.people", "hospital.kinds")
    with psycopg.connect(at(server, user="neyman").partition("&table=")[0]) as connection:
        connection.execute(
            "CREATE VIEW hospital.kinds AS SELECT *, free AS cents FROM hospital.patients"
        )
        connection.execute("GRANT SELECT ON hospital.kinds TO reader")
    exact = counted(plan, as_source(source))
    texts = [row["t"] and row["t"][:4].rstrip(" ") for row in ROWS]
    assert exact["code", "all", "count"] == [texts.count(k) for k in ("1", "x", "1e0")]
    numbers = [row["n"] for row in ROWS]
    assert exact["free", "all", "count"] == [numbers.count(0), 0]
    cents = [0 if n is None else min(max(n, -100), 200) for n in numbers]
    assert exact["c", "all", "sum"] == [sum(cents)]


def test_the_check_of_the_data_reads_a_server_and_a_file_alike(server, tmp_path):
    answers = []
    for source in (at(server), in_parquet(tmp_path)):
        check = ny.check_data(a_plan(), source)
        answers.append((check.rows, check.keys, check.numbers, check.queries))
    here, there = answers
    assert here[0] == there[0]
    assert [(k.matched, k.missing, k.unmatched) for k in here[1]] == [
        (k.matched, k.missing, k.unmatched) for k in there[1]
    ]
    assert here[3] == there[3]


def small(query=None, columns=None, **unit):
    query = query or [{"name": "s", "measure": "count", "by": ["s"], "share": 1}]
    return ny.Plan.from_dict({
        "schema": 2, "name": "small", "dataset": "t@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one", **unit},
        "columns": columns or {"s": {"keys": ["a", "A"]}}, "budget": {"zcdp": "1/2"},
        "query": query,
    })  # fmt: skip


@pytest.fixture
def ledger(tmp_path):
    ledger = ny.Ledger(str(tmp_path / "ledger.db"))
    ledger.create("t@1", protects="person", neighboring="replace-one", cap=2)
    return ledger


def spent(ledger):
    return ledger.account("t@1").spent


def test_a_role_that_may_only_read_makes_a_release_and_its_password_is_nowhere(
    server, ledger, tmp_path, capfd, caplog
):
    caplog.set_level("DEBUG")
    password = "se@cret/1"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE sentinel LOGIN PASSWORD '{password}' IN ROLE reader")
    try:
        url = at(server, user="sentinel", password=password)
        release = ny.run(small(), {"people": url}, ledger, tmp_path / "release")
        values = release.tables["s.all"].column("value").to_pylist()
        assert all(abs(value - 28) < 30 for value in values)
        with pytest.raises(DataError) as refused:
            open_table(at(server, user="sentinel", password="other@word"))
    finally:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("DROP ROLE sentinel")
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    texts = [*files, repr(as_source(url)).encode(), caplog.text.encode(), *capfd.readouterr()]
    for text in texts:
        for secret in (password, "se%40cret%2F1", "se%40cret"):
            assert secret not in (text if isinstance(text, str) else text.decode("latin-1"))
    assert "cannot be reached" in str(refused.value)
    assert "other" not in str(refused.value)


@pytest.mark.parametrize(("change", "words"), [
    (lambda url: url.replace("host=", "host=/nowhere"), "cannot be reached"),
    (lambda url: url.replace("user=reader", "user=nobody_here"), "does not exist"),
    (lambda url: url.replace("hospital.people", "hospital.none"), "no such table"),
    (
        lambda url: url.replace("hospital.people", "none"),
        "has no table 'none' in the schema public",
    ),
    (lambda url: url.replace("hospital.people", "people"), r"\?table=hospital\.people"),
    (lambda url: url.replace("hospital.people", "a.b.c"), "must name one table"),
    (lambda url: url.replace("table=", "tabel="), "does not know"),
    (lambda url: url.replace("hospital.people", "hospital.closed"), "SELECT on the table"),
    (lambda url: url.replace("///", "//host:port:1/"), "not of the form"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused_before_the_charge(server, ledger, tmp_path, change, words):
    with psycopg.connect(at(server, user="neyman").partition("&table=")[0]) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS hospital.closed (s text)")
    with pytest.raises(DataError, match=words):
        ny.run(small(), {"people": change(at(server))}, ledger, tmp_path / "release")
    assert spent(ledger) == 0
    assert not (tmp_path / "release").exists()


def test_a_type_that_changed_is_refused_and_cannot_change_during_a_run(server, ledger, tmp_path):
    with as_owner(server) as connection:
        connection.execute("CREATE TABLE hospital.visits (s text)")
        url = at(server, "hospital.visits", user="neyman")
        ny.check_data(small(), url)
        connection.execute("ALTER TABLE hospital.visits ALTER s TYPE timestamp USING NULL")
        with pytest.raises(DataError, match=r"column .s. holds dates or timestamps"):
            ny.run(small(), url, ledger, tmp_path / "release")
        connection.execute("ALTER TABLE hospital.visits ALTER s TYPE bigint USING 1")
        with pytest.raises(DataError, match="can never be one of its values"):
            ny.run(small(), url, ledger, tmp_path / "release")
        assert spent(ledger) == 0
        table = open_table(as_source(url), rows=False)
        connection.execute("SET lock_timeout = 50")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("ALTER TABLE hospital.visits ALTER s TYPE text")
        close_table(table)
        connection.execute("SET lock_timeout = '10s'")  # the server ends a session a moment later
        connection.execute("ALTER TABLE hospital.visits ALTER s TYPE text")


def test_all_queries_of_a_run_see_the_same_rows(server):
    with as_owner(server) as connection:
        connection.execute("CREATE TABLE hospital.beds (s text)")
        connection.execute("INSERT INTO hospital.beds VALUES ('a')")
        source = as_source(at(server, "hospital.beds", user="neyman"))
        assert counted(small(), source)["s", "all", "count"] == [1, 0]
        connection.execute("INSERT INTO hospital.beds VALUES ('a')")
        assert counted(small(), source)["s", "all", "count"] == [1, 0]
        close_table(open_table(source, rows=False))
        assert counted(small(), source)["s", "all", "count"] == [2, 0]


@pytest.mark.parametrize(("end", "words"), [
    ("pg_terminate_backend", "connection to the database was lost"),
    ("pg_cancel_backend", "cancelled the query"),
    (None, "connection to the database was lost"),
])  # fmt: skip
def test_a_database_that_is_gone_in_a_query_leaves_the_charge(end, words, server, ledger, tmp_path):
    with as_owner(server) as connection:
        connection.execute(
            "CREATE OR REPLACE VIEW hospital.slow AS SELECT p.* FROM hospital.patients p,"
            " LATERAL (SELECT pg_sleep(.05) WHERE p.s IS DISTINCT FROM 'none') q"
        )

    def attack():
        with as_owner(server) as connection:
            for _ in range(600):
                sleeping = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'neyman'"
                    " AND wait_event = 'PgSleep'"
                ).fetchall()
                if sleeping:
                    break
                time.sleep(0.05)
            if end is not None:
                connection.execute(f"SELECT {end}(%s)", sleeping[0])
        if end is None:
            server.stop("immediate")

    thread = threading.Thread(target=attack)
    thread.start()
    url = at(server, "hospital.slow", user="neyman")
    try:
        with pytest.raises(ChargedError, match=words) as error:
            ny.run(small(), url, ledger, tmp_path / "release")
    finally:
        thread.join()
        if end is None:
            server.start()
    assert "the charge stands" in str(error.value)
    charge = spent(ledger)
    assert charge == Fraction(1, 2)
    assert not (tmp_path / "release").exists()
    with pytest.raises(LedgerError, match="charge-again"):
        ny.run(small(), at(server), ledger, tmp_path / "release")
    ny.run(small(), at(server), ledger, tmp_path / "release", charge_again=True)
    assert spent(ledger) == 2 * charge


def test_an_ibis_table_of_a_server_is_counted_on_a_connection_of_its_own(server):
    backend = ibis.postgres.connect(
        host=str(server.folder), user="reader", database="clinic", schema="hospital"
    )
    people = backend.table("people")
    table = people.filter(people["b"])
    right = sum(row["s"] == "a" and row["b"] is True for row in ROWS)
    assert counted(small(), as_source(table))["s", "all", "count"][0] == right
    memory = ibis.memtable(pa.table({"s": ["a"]}))
    with pytest.raises(DataError, match="table in memory"):
        as_source(people.select("s").union(memory))
    backend.disconnect()


@pytest.mark.parametrize(("url", "words"), [
    ("sqlite://none.db?table=t", "there is no file"),
    ("duckdb://none.db", r"must be duckdb://PATH\?table=NAME"),
    ("sqlite://{folder}/people.sqlite?table=none", "has no table"),
    ("duckdb://{folder}/people.duckdb?table=none", "no such table"),
    ("duckdb://{folder}/people.sqlite?table=people", "no DuckDB file"),
    ("sqlite://{folder}/people.duckdb?table=people", "no SQLite file"),
    ("duckdb://{folder}/people.duckdb?table=broken", "a view that fails .*not exist"),
    ("sqlite://{folder}/people.sqlite?table=broken", "table or view 'broken' cannot .*gone"),
])  # fmt: skip
def test_a_file_without_the_table_is_refused(url, words, tmp_path):
    in_duckdb(tmp_path), in_sqlite(tmp_path)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("CREATE TABLE old (gone INTEGER); CREATE VIEW broken AS FROM old")
        connection.execute("DROP TABLE old")
    with sqlite3.connect(tmp_path / "people.sqlite") as connection:
        connection.execute("CREATE VIEW broken AS SELECT gone FROM people")
    with pytest.raises(DataError, match=words):
        open_table(url.format(folder=tmp_path))


DUCKDB_TYPES = [
    "INTERVAL", "UNION(i INTEGER, s VARCHAR)", "VARIANT", "GEOMETRY", "BIT", "BIGNUM", "TIME_NS",
    "TIMETZ", "UHUGEINT", "JSON", "ENUM('a')", "INTERVAL[]", "STRUCT(a INTERVAL)", "BLOB",
]  # fmt: skip


@pytest.mark.parametrize("kind", DUCKDB_TYPES)
def test_a_column_of_any_type_may_stand_unused_in_a_duckdb_file(kind, tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f'CREATE TABLE people (g VARCHAR, "odd one" {kind})')
        connection.execute("INSERT INTO people VALUES ('a', NULL), ('b', NULL), (NULL, NULL)")
    url = f"duckdb://{path}?table=people"
    used = open_table(url, columns=["g"])
    assert fetched(used.select("g")).column("g").to_pylist() == ["a", "b", None]
    every = open_table(url, rows=False)
    assert list(every.columns) == ["g", "odd one"]
    close_table(used), close_table(every)


def test_tables_of_a_server_join_each_other_and_a_file_of_this_machine(server, tmp_path):
    plan = ny.Plan.from_dict(JOINED)
    pq.write_table(pa.table(EVENTS), tmp_path / "events.parquet")
    with as_owner(server) as connection:
        connection.execute("CREATE TABLE hospital.events (person text, kind text)")
        connection.execute("CREATE TABLE hospital.persons (id text, sex text, born numeric)")
        for name, rows in (("events", EVENTS), ("persons", PEOPLE)):
            with connection.cursor().copy(f"COPY hospital.{name} FROM STDIN") as copy:
                for row in zip(*rows.values(), strict=True):
                    copy.write_row(row)
        connection.execute("UPDATE hospital.persons SET born = 'Infinity' WHERE id = 'd'")
    events, people = (at(server, f"hospital.{n}", user="neyman") for n in ("events", "persons"))
    right = {"events": [2, 0], "people": [1, 1]}
    assert joined_counts(plan, events, people) == right
    assert joined_counts(plan, str(tmp_path / "events.parquet"), people) == right
    with pytest.raises(DataError, match="on another engine"):
        joined_counts(plan, events, pa.table(PEOPLE))
    with as_owner(server) as connection:
        connection.execute("GRANT SELECT ON hospital.persons TO reader")
    with pytest.raises(DataError, match="several PostgreSQL connections"):
        joined_counts(plan, events, at(server, "hospital.persons"))


def test_rows_that_a_policy_hides_are_refused_and_not_left_out(server, ledger, tmp_path):
    def clinic(**given):
        return server.url(**given).replace("/postgres?", "/clinic?")

    with psycopg.connect(clinic(), autocommit=True) as connection:
        for statement in (
            "CREATE TABLE hospital.hidden AS SELECT * FROM hospital.people",
            "ALTER TABLE hospital.hidden ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY visible ON hospital.hidden USING (s <> 'x')",
            "GRANT SELECT ON hospital.hidden TO reader",
            "CREATE VIEW hospital.above AS SELECT * FROM hospital.people WHERE s <> 'x'",
            "GRANT SELECT ON hospital.above TO reader",
        ):
            connection.execute(statement)
        visible = connection.execute("SELECT count(*) FROM hospital.above").fetchall()[0][0]
    with psycopg.connect(clinic(user="reader"), autocommit=True) as connection:
        counted = connection.execute("SELECT count(*) FROM hospital.hidden").fetchall()[0][0]
    assert 0 < counted == visible < len(ROWS)  # what a run would have counted
    try:
        with pytest.raises(DataError, match=r"row-level security.*BYPASSRLS"):
            ny.run(small(), {"people": at(server, "hospital.hidden")}, ledger, tmp_path / "out")
        assert spent(ledger) == 0
        for url, count in (
            (at(server, "hospital.above"), visible),
            (at(server, "hospital.hidden", user="neyman"), len(ROWS)),
        ):
            assert row_count(open_table(url)) == count
    finally:
        with psycopg.connect(clinic(), autocommit=True) as connection:
            connection.execute("DROP TABLE hospital.hidden")
            connection.execute("DROP VIEW hospital.above")


def test_a_run_says_which_table_of_a_server_it_reads(server, ledger, tmp_path):
    with as_owner(server) as connection:
        connection.execute("ALTER ROLE reader SET search_path = hospital")
        connection.execute("CREATE VIEW public.people AS SELECT 'A' AS s")
        connection.execute("GRANT USAGE ON SCHEMA public TO reader")
        connection.execute("GRANT SELECT ON public.people TO reader")
    stages = []
    try:
        url = at(server, "people")
        assert counted(small(), as_source(url))["s", "all", "count"] == [0, 1]
        ny.run(
            small(), {"people": url}, ledger, tmp_path / "out", progress=lambda *s: stages.append(s)
        )
    finally:
        with as_owner(server) as connection:
            connection.execute("ALTER ROLE reader RESET search_path")
            connection.execute("DROP VIEW public.people")
            connection.execute("REVOKE USAGE ON SCHEMA public FROM reader")
    assert "the table is public.people" in [name for name, _ in stages]


def test_the_name_that_an_error_proposes_works_in_a_url(server):
    with as_owner(server) as connection:
        connection.execute("""CREATE VIEW hospital."a & b+c%20" AS SELECT 'A' AS s""")
        connection.execute("""GRANT SELECT ON hospital."a & b+c%20" TO reader""")
        try:
            with pytest.raises(DataError) as raised:
                counted(small(), as_source(at(server, "a & b+c%20")))
            proposed = str(raised.value).partition("?table=")[2].partition(",")[0]
            url = f"{at(server, '')}{proposed}"
            assert counted(small(), as_source(url))["s", "all", "count"] == [0, 1]
        finally:
            connection.execute('DROP VIEW hospital."a & b+c%20"')


CODE = """
CREATE SCHEMA trap;
GRANT USAGE ON SCHEMA trap TO reader;
CREATE TABLE trap.calls (by text);
GRANT INSERT ON trap.calls TO reader;
CREATE TYPE trap.mood AS ENUM ('a', 'A');
CREATE TYPE trap.citext AS (word text);
CREATE TYPE trap.span AS RANGE (subtype = int4);
CREATE DOMAIN trap.of_mood AS trap.mood;
CREATE FUNCTION trap.alarm() RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'code of the owner runs as %', current_user; END $$;
CREATE FUNCTION trap.cast_mood(trap.mood) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN PERFORM trap.alarm(); RETURN 'a'; END $$;
CREATE FUNCTION trap.cast_word(trap.citext) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN PERFORM trap.alarm(); RETURN 'a'; END $$;
CREATE CAST (trap.mood AS text) WITH FUNCTION trap.cast_mood;
CREATE CAST (trap.citext AS text) WITH FUNCTION trap.cast_word;
CREATE TABLE trap.people (s text, mood trap.mood, word trap.citext, span trap.span,
    of_mood trap.of_mood, list text[]);
INSERT INTO trap.people VALUES ('a', 'a', ROW('a'), '[1,2)', 'a', ARRAY['a']);
GRANT SELECT ON trap.people TO reader;
CREATE VIEW trap.admitted AS SELECT CAST(CAST(s AS varchar) AS text) AS s FROM trap.people;
GRANT SELECT ON trap.admitted TO reader
"""


@pytest.fixture
def trap(server):
    """A schema whose types, functions, and operators raise when they run."""
    with as_owner(server) as connection:
        connection.execute("SET lock_timeout = '5s'")
        for statement in CODE.split(";\n"):
            connection.execute(statement)
        yield connection
        connection.execute("DROP SCHEMA trap CASCADE")


@pytest.mark.parametrize("column", ["mood", "word", "span", "of_mood", "list"])
def test_no_code_of_the_owner_of_a_type_runs(server, trap, ledger, tmp_path, column):
    query = [{"name": "s", "measure": "count", "by": [column], "share": 1}]
    plan = small(query, {column: {"keys": ["a"]}})
    url = at(server, "trap.people")
    with pytest.raises(
        DataError, match=rf'CREATE VIEW .* CAST\("{column}" AS text\).*trap\.people'
    ):
        ny.run(plan, url, ledger, tmp_path / "out")
    assert spent(ledger) == 0
    for other in ("trap.people", "trap.admitted"):  # the other columns change nothing
        assert counted(small(), as_source(at(server, other)))["s", "all", "count"] == [1, 0]


def test_a_domain_of_a_built_in_type_is_read_and_its_check_and_operators_do_not_run(server, trap):
    for statement in (
        "CREATE DOMAIN trap.whole AS bigint",
        "CREATE DOMAIN trap.word AS varchar",
        "CREATE TABLE trap.stored (s trap.word, n trap.whole)",
        "INSERT INTO trap.stored VALUES ('a', 1), ('A', 2)",
        "ALTER DOMAIN trap.whole ADD CHECK (trap.alarm()) NOT VALID",
        "ALTER DOMAIN trap.word ADD CHECK (trap.alarm()) NOT VALID",
        "CREATE FUNCTION trap.same(trap.word, text) RETURNS boolean LANGUAGE sql AS"
        " 'SELECT trap.alarm()'",
        "CREATE FUNCTION trap.alike(varchar, varchar) RETURNS boolean LANGUAGE sql AS"
        " 'SELECT trap.alarm()'",
        "CREATE OPERATOR trap.= (LEFTARG = trap.word, RIGHTARG = text, FUNCTION = trap.same)",
        "CREATE OPERATOR trap.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = trap.alike)",
        "CREATE OPERATOR trap.<> (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = trap.alike)",
        "GRANT SELECT ON trap.stored TO reader",
        "ALTER ROLE reader SET search_path = trap, pg_catalog",
    ):
        trap.execute(statement)
    query = [
        {"name": "s", "measure": "count", "by": ["s"], "share": "1/2"},
        {"name": "n", "measure": "sum", "column": "n", "clip": [0, 9], "share": "1/2"},
    ]
    plan = small(query, {"s": {"keys": ["a", "A"]}, "n": {"integer": True}})
    backend = ibis.postgres.connect(
        host=str(server.folder), user="reader", database="clinic", schema="trap"
    )
    try:
        for source in (at(server, "trap.stored"), backend.table("stored")):
            exact = counted(plan, as_source(source))
            assert exact["s", "all", "count"] == [1, 1]
            assert exact["n", "all", "sum"] == [3]
        with pytest.raises(psycopg.errors.RaiseException, match="runs as reader"):
            backend.con.execute("SELECT count(*) FROM trap.stored WHERE s = CAST('a' AS varchar)")
    finally:
        backend.disconnect()
        trap.execute("ALTER ROLE reader RESET search_path")


@pytest.mark.parametrize("kind", ["postgresql", "duckdb", "sqlite"])
def test_a_first_plan_of_an_address_is_valid_and_runs_on_it(kind, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if kind == "postgresql":
        server = request.getfixturevalue("server")
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE sentinel LOGIN PASSWORD 'se@cret/1' IN ROLE reader")
        request.addfinalizer(lambda: _without_sentinel(server))
        passwords = tmp_path / "passwords"
        passwords.write_text("*:*:clinic:sentinel:se@cret/1\n")
        passwords.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(passwords))
        url = at(server, user="sentinel")
    else:
        url = {"duckdb": in_duckdb, "sqlite": in_sqlite}[kind](tmp_path)
    answered("plan", "init", url, "--out", "plan.toml")
    plan = ny.Plan.load("plan.toml")
    assert (plan.name, plan.table, plan.dataset) == ("people", "people", "people@1")
    text = (tmp_path / "plan.toml").read_text()
    form = open_table(as_source(url), rows=False)
    assert all(f"[columns.{name}]" in text or f"# {name}: of type" in text for name in form.columns)
    close_table(form)
    assert {"s", "n", "f"} <= {column.name for column in plan.columns} | {*dict(plan.rows.types)}
    with ny.Ledger("ledger.db") as book:
        book.create("people@1", protects="person", neighboring="replace-one", cap=1)
        release = ny.run(plan, url, book, tmp_path / "release")
    assert abs(release.tables["rows.all"].column("value").to_pylist()[0] - len(ROWS)) < 40


def _without_sentinel(server):
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("DROP ROLE sentinel")


@pytest.mark.parametrize("address", [
    "mysql://role:se%40cret@host/db?table=people",
    "mariadb://role:se%40cret@host/db?table=people",
    "postgresql:/role:se%40cret@host/db?table=people",  # what a Path makes of one
    "https://role:se%40cret@host/people.csv",
    "postgresql://role:se%40cret@nowhere.invalid:1/db?table=a.people&x",
    "postgresql://role:se%40cret@nowhere.invalid:1/d%20b?table=p%20q",
])  # fmt: skip
def test_an_address_that_will_not_do_is_refused_without_its_password(address, tmp_path):
    said = []
    with pytest.raises(DataError) as error:
        ny.check_data(small(), address)
    said.append(str(error.value))
    for command in (
        ["plan", "init", address, "--out", tmp_path / "plan.toml"],
        ["data", "check", tmp_path / "none.toml", "--data", address],
    ):
        done = neyman(*command, cwd=tmp_path, check=2)
        said.append(done.stdout + done.stderr)
    assert not (tmp_path / "plan.toml").exists()
    assert "cret" not in "".join(said)
    if "d%20b" in address:
        for text in (said[0], said[1].replace("\n", "")):
            assert "postgresql://role@nowhere.invalid:1/d%20b?table=p%20q" in text
