"""Tables of a MariaDB server: the cells of DuckDB and of plain Python, whatever the collation."""

import itertools
import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("MySQLdb")

from test_databases import ROWS, a_plan, ledger, small, spent, twice
from test_engine_neighbors import VERSIONS, moved
from test_engine_neighbors import a_plan as neighbor_plan
from test_joined_tables import DOCUMENT as JOINED
from test_joined_tables import EVENTS, PEOPLE
from test_joined_tables import tables_of as joined_counts
from test_row_expressions import DERIVE, LOOKUP, TYPED, WHERE, by_time, in_python, plain
from test_row_expressions import TABLE as TABLE_OF_TEXTS
from test_row_expressions import a_plan as expression_plan

import mariadb_server
import neyman as ny
from neyman.ledger.records import ChargedError, LedgerError
from neyman.publishing.engines.backends import fetched
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.engines.databases import mariadb as engine
from neyman.publishing.engines.row_values import prepared
from neyman.publishing.engines.source import as_source, close_table, open_table
from plain_engine import Plain, counted

__all__ = ["ledger"]

pytestmark = pytest.mark.needs("mariadb")

KINDS = {
    "id": "varchar(1024) COLLATE utf8mb4_general_ci",
    "s": "varchar(20) COLLATE utf8mb4_unicode_ci",
    "t": "varchar(60)",
    "w": "varchar(60) CHARACTER SET utf8mb3",
    "day": "date",
    "n": "bigint",
    "d": "decimal(38,3)",
    "f": "double",
    "b": "boolean",
}
ALIKE = ["".join(one) for one in itertools.product(
    ["a", "A", "á", "Á", "a\u0301", "A\u0301", "ä"], ["", " ", "  ", "s", "S", "ß", "ss", "ſ"]
)]  # fmt: skip
"""Texts of which a default collation takes each for several others."""


def fill(server, table, kinds, rows):
    """Make a table of `clinic` with these rows, and return its address."""
    columns = ", ".join(f"`{name}` {kind} NULL" for name, kind in kinds.items())
    server.run(
        f"CREATE TABLE clinic.{table} ({columns}) ENGINE=InnoDB"
        " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    )
    connection = server.connect(db="clinic")
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(kinds))})",
            [tuple(_storable(row[name]) for name in kinds) for row in rows],
        )
    connection.close()
    return server.url("clinic", table)


def _storable(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value


@pytest.fixture(scope="module")
def server(mariadb):
    """The server with a database, and a role that may only read."""
    mariadb.run(
        "CREATE DATABASE clinic",
        "CREATE USER reader IDENTIFIED BY 'se@cret/1'",
        "GRANT SELECT ON clinic.* TO reader",
    )
    yield mariadb
    mariadb.run("DROP DATABASE clinic", "DROP USER reader")


def rows_of():
    """The rows of `test_databases`, with ids that differ after a thousand characters."""
    ids = [*ALIKE[:9], "é" * 1023 + "a", "é" * 1023 + "A", "é" * 1023 + "b", None]
    return [{**row, "id": ids[i % len(ids)]} for i, row in enumerate(ROWS)]


@pytest.mark.parametrize("bounded", [False, True])
def test_a_table_has_the_cells_of_plain_python(bounded, server):
    """NULL, big numbers, odd text, and collations change no cell."""
    rows = twice([{k: _storable(v) for k, v in row.items()} for row in rows_of()])
    plan = a_plan(bounded)
    if bounded:
        queries = [
            {**q, "share": "1/3"} for q in plan.canonical()["query"] if q["name"] in "s sum_n k"
        ]
        plan = ny.Plan.from_dict({**plan.canonical(), "query": queries})
    kinds = {**KINDS, **{f"{name}2": KINDS[name] for name in "ftnd"}}
    url = fill(server, f"people{bounded:d}", kinds, rows)
    assert counted(plan, as_source(url)) == Plain(plan, rows).tables()


def test_ids_and_keys_that_a_collation_takes_for_one_are_several_over_all_neighbors(
    server, attempts
):
    """56 ids that are alike to a collation have the 56 multisets of up to 3 rows of 5 kinds, with
    keys that are alike: all pairs are neighbors under replace-one, and the cells are DuckDB's."""
    measures = [
        {"measure": "count"},
        {"measure": "units"},
        {"measure": "sum", "column": "n", "clip": [-1, 2], "groups": 1, "rows_per_group": 1},
    ]
    alike = {"x": "é", "y": "E\u0301", None: None}
    document = neighbor_plan(measures, by=["v"]).canonical()
    document["columns"]["k"]["keys"] = [alike["x"], alike["y"]]
    plan = ny.Plan.from_dict(document)
    rows = [
        {"id": ALIKE[i], "v": i, "k": alike[k], "n": n}
        for i, version in enumerate(VERSIONS)
        for k, n in [*version, ("x", None)][: len(version)]
    ]
    kinds = {"id": "varchar(9)", "v": "int", "k": "varchar(9)", "n": "decimal(3, 1)"}
    result = counted(plan, as_source(fill(server, "alike", kinds, rows)))
    assert result == counted(plan, as_source(pa.Table.from_pylist(rows)))
    shifts = {}
    for how in ("replace-one", "add-remove"):
        unit = {**document["unit"], "neighboring": how}
        of_one = ny.Plan.from_dict({**neighbor_plan(measures).canonical(), "unit": unit})
        shifts[how] = {(e.query, e.level, e.measure): e for e in of_one.entries()}
    for key, cells in result.items():
        tables = np.reshape(cells, (len(VERSIONS), -1))
        for i, one in enumerate(tables):
            assert moved(shifts["add-remove"][key], one), (key, VERSIONS[i])
            attempts(1 + i)
            for other in tables[:i]:
                assert moved(shifts["replace-one"][key], one - other), (key, VERSIONS[i])


def _decoded(value):
    return value.decode() if isinstance(value, bytes) else value


def derived(plan, url, columns=None):
    table = open_table(as_source(url), columns=columns)
    with prepared(plan, table) as ready:
        rows = fetched(ready.select(*(one.name for one in plan.rows.derived))).to_pylist()
    close_table(table)
    return sorted((tuple(map(_decoded, row.values())) for row in rows), key=repr)


@pytest.mark.parametrize("name", ["texts", "typed"])
def test_expressions_on_a_server_give_what_plain_python_gives(name, server):
    """Each rule of [derive], [lookup], and where, on texts and on typed columns."""
    rows = [
        {k: _storable(v) for k, v in row.items()}
        for row in {"texts": TABLE_OF_TEXTS, "typed": TYPED}[name].to_pylist()
    ]
    of_texts = dict.fromkeys("nmsbdk", "varchar(200)")
    typed = {"n": "bigint", "m": "double", "b": "boolean", "d": "date"}
    derive = {k: v for k, v in DERIVE.items() if k not in ("cleaned", "shouted")}
    derive["bare"] = {"expression": "strip(s)"}
    plan = expression_plan(derive=derive, lookup=LOOKUP, where=WHERE)
    url = fill(server, name, of_texts if name == "texts" else of_texts | typed, rows)
    right = [tuple(row.values()) for row in plain(plan, rows)]
    # A boolean of the server is a whole number.
    assert derived(plan, url) == sorted(right, key=repr)
    shouting = expression_plan(derive={"low": {"expression": "lower(s)"}})
    with pytest.raises(DataError, match=r"lower\(\), which MariaDB does not compute"):
        ny.check_data(shouting, url)


@pytest.mark.parametrize("zone", [None, "Asia/Gaza"])
def test_times_have_the_days_and_hours_of_python_and_days_of_no_calendar_are_missing(zone, server):
    """Of all centuries for a datetime, and of those of a timestamp; zero dates are missing."""
    first = datetime(1971 if zone else 1, 1, 3, tzinfo=UTC).replace(tzinfo=None)
    step = timedelta(days=7_305, hours=5, microseconds=1) if zone is None else timedelta(days=61.3)
    times = [first + step * i for i in range(99) if (first + step * i).year < 2038 or not zone]
    at = [{"n": i, "d": time, "k": "x"} for i, time in enumerate(times)]
    kinds = {"n": "int", "d": "datetime(6)" if zone is None else "timestamp(6)", "k": "varchar(2)"}
    zoned = [{**row, "d": row["d"].replace(tzinfo=zone and UTC)} for row in at]
    table_name = "instants" if zone else "times"
    connection_zone = "SET GLOBAL time_zone = '+05:00'"  # which no day depends on
    server.run("SET GLOBAL time_zone = '+00:00'")
    url = fill(server, table_name, kinds, at)
    odd = ["0000-00-00"] if zone else ["0000-00-00", "2023-02-30", "2024-00-07", "0000-05-05"]
    connection = server.connect(db="clinic")
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.executemany(
            f"INSERT INTO {table_name} VALUES (-1, %s, 'x')", [(day,) for day in odd]
        )
        cursor.execute(connection_zone)
    connection.close()
    plan = by_time(zone)
    kind = pa.timestamp("us", zone and "UTC")
    table = pa.table({"n": [r["n"] for r in at], "d": pa.array([r["d"] for r in zoned], kind),
                      "k": ["x"] * len(at)})  # fmt: skip
    right = [tuple(row.values()) for row in plain(plan, in_python(table))]
    none = [row for row in derived(plan, url, ["n", "d", "k"]) if row not in right]
    server.run("SET GLOBAL time_zone = '+00:00'")
    assert len(none) == len(odd)
    names = [one.name for one in plan.rows.derived]
    assert all(row[names.index("dom")] is None for row in none)


TYPES = {
    "tinyint unsigned": (255, 255),
    "bigint unsigned": (2**64 - 1, str(2**64 - 1)),
    "int(6) zerofill": (7, 7),
    "year": (1999, 1999),
    "decimal(6,2) zerofill": ("7.00", 7),
    "float": (0.5, None),
    "char(3) CHARACTER SET latin1": ("Å", "Å"),
    "varchar(3) CHARACTER SET ascii": ("a", "a"),
    "varchar(3) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci": ("É", "É"),
    "tinytext": ("a", "a"),
    "enum('a','É')": ("É", "É"),
    "date": ("2024-02-29", "2024-02-29"),
}
REFUSED = ["text", "varchar(1025)", "json", "blob", "varbinary(9)", "bit(1)", "time", "set('a')",
           "point", "decimal(39,0)", "uuid", "inet6", "char(3) CHARACTER SET sjis",
           "varchar(9) AS (concat(c, 'x')) VIRTUAL"]  # fmt: skip


def test_a_column_is_read_or_refused_by_its_type_alone(server, ledger, tmp_path):
    """What is refused is named with its type, on an empty table, before the charge."""
    kinds = [*TYPES, *REFUSED]
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    given = ", ".join(f"c{i}" for i in range(len(TYPES)))
    values = ", ".join(f"'{value}'" for value, _ in TYPES.values())
    server.run(
        f"CREATE TABLE clinic.kinds (c varchar(3), {columns}) ENGINE=InnoDB CHARACTER SET utf8mb4",
        f"INSERT INTO clinic.kinds ({given}) VALUES ({values})",
    )
    url = server.url("clinic", "kinds")
    form = open_table(as_source(url), rows=False)
    assert len(form.columns) == len(kinds) + 1
    close_table(form)
    for i, (kind, (_, key)) in enumerate(TYPES.items()):
        if key is not None:
            other = 3 if isinstance(key, int) else "2024-01-01" if kind == "date" else "b"
            other = "3" if kind.startswith("bigint") else other
            query = [{"name": "q", "measure": "count", "by": [f"c{i}"], "share": 1}]
            plan = small(query, {f"c{i}": {"keys": [key, other]}})
            assert counted(plan, as_source(url))["q", "all", "count"] == [1, 0], kind
    for i, kind in enumerate(REFUSED, len(TYPES)):
        query = [{"name": "q", "measure": "count", "by": [f"c{i}"], "share": 1}]
        shown = {"json": "longtext", "varchar(9) AS": "varchar"}.get(kind, kind.split("(")[0])
        with pytest.raises(DataError, match=rf"'c{i}' has type {shown.split()[0]}"):
            ny.run(small(query, {f"c{i}": {"keys": ["a"]}}), url, ledger, tmp_path / "out")
    assert spent(ledger) == 0


def test_each_text_of_an_accepted_character_set_has_bytes_of_its_own(server):
    """All bytes of latin1 and of ascii; half of a surrogate pair is missing."""
    kinds = {"id": "int", "l": "char(1) CHARACTER SET latin1", "a": "char(1) CHARACTER SET ascii"}
    fill(server, "sets", kinds | {"u": "char(1)"}, [])
    values = ", ".join(
        f"({i}, UNHEX('{i:02x}'), UNHEX('{i:02x}'), UNHEX('eda080'))" for i in range(256)
    )
    connection = server.connect(db="clinic")
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"INSERT INTO sets VALUES {values}")
    connection.close()
    table = open_table(as_source(server.url("clinic", "sets")))
    rows = fetched(table.select(*(table[n].cast("binary").name(n) for n in "lau"))).to_pylist()
    close_table(table)
    # Of both, a blank at the end of a char, which makes it empty, is missing.
    assert len({row["l"] for row in rows}) == len({row["a"] for row in rows}) == 256
    assert {row["u"] for row in rows} == {None}


@pytest.fixture(scope="module")
def wards(server):
    """The address of a table beside one of MyISAM and a view, and a role that may not read it."""
    url = fill(server, "wards", {"s": "varchar(9)"}, [{"s": "a"}])
    server.run(
        "CREATE TABLE clinic.aria (s varchar(9)) ENGINE=MyISAM",
        "CREATE VIEW clinic.seen AS SELECT * FROM clinic.wards",
        "CREATE TABLE clinic.other (s int)",
        "CREATE USER stranger",
        "GRANT SELECT ON clinic.other TO stranger",
    )
    yield url
    server.run("DROP USER stranger")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace("wards", "aria"), "a table of the engine MyISAM"),
        (lambda url: url.replace("wards", "seen"), "names a view"),
        (lambda url: url.replace("wards", "none"), "none' doesn't exist"),
        (lambda url: url.replace("/clinic", "/none"), "cannot be reached: Unknown database"),
        (lambda url: url.replace("root@", "reader:no%40word@"), "cannot be reached: Access denied"),
        (lambda url: url.replace("root@", "reader:se%40cret%2F1@"), "has no column 'missing'"),
        (lambda url: url.replace("root@", "stranger@"), "SELECT command denied"),
        (lambda url: url.replace("socket", "/nowhere/socket"), "not of the form|cannot be reached"),
        (lambda url: url.replace("table=", "tabel="), "not of the form"),
    ],
)
def test_what_cannot_be_read_is_refused_before_the_charge(change, words, wards, ledger, tmp_path):
    """No snapshot, no table, no right, and an address that cannot be read; no password is shown."""
    plan = small()
    if "no column" in words:
        query = [{"name": "m", "measure": "count", "by": ["missing"], "share": 1}]
        plan = small(query, {"missing": {"keys": ["a"]}})
    with pytest.raises(DataError, match=words) as error:
        ny.run(plan, change(wards), ledger, tmp_path / "release")
    assert spent(ledger) == 0
    assert not (tmp_path / "release").exists()
    assert "word@" not in str(error.value)
    assert "cret" not in str(error.value)


@pytest.mark.parametrize("kinds", [("MyISAM", "InnoDB"), ("InnoDB", "MyISAM")])
@pytest.mark.parametrize(
    "twins",
    [
        (("twins", "cafe"), ("twins", "café")),
        (("twins", "people"), ("twins", "People")),
        (("ward", "beds"), ("Ward", "beds")),
    ],
)
def test_a_table_is_never_taken_for_one_whose_name_is_alike_to_a_collation(twins, kinds, server):
    """Each of two is read or refused by its own engine, with its own columns, whichever came first:
    databases, and tables of one."""
    for places in (twins, twins[::-1]):
        for database, _ in places:
            server.run(f"CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4")
        for (database, table), kind in zip(places, kinds, strict=True):
            columns = "s varchar(9)" if kind == "InnoDB" else "other int, s text"
            server.run(
                f"CREATE TABLE {database}.`{table}` ({columns}) ENGINE={kind}",
                f"INSERT INTO {database}.`{table}` (s) VALUES ('{kind}')",
            )
        for (database, table), kind in zip(places, kinds, strict=True):
            source = as_source(server.url(database, table))
            if kind == "MyISAM":
                with pytest.raises(DataError, match="a table of the engine MyISAM"):
                    open_table(source)
                source._open[0].con.close()
            else:
                rows = open_table(source)
                assert fetched(rows).to_pylist() == [{"s": "InnoDB"}]
                close_table(rows)
        for database in {database for database, _ in places}:
            server.run(f"DROP DATABASE {database}")


def test_a_server_that_folds_names_is_asked_by_any_case(monkeypatch):
    """With lower_case_table_names = 1 it lists the table in small letters."""
    settings = (*mariadb_server.SETTINGS, "lower-case-table-names=1")
    monkeypatch.setattr(mariadb_server, "SETTINGS", settings)
    with mariadb_server.MariaServer() as folding:
        folding.run("CREATE DATABASE c", "CREATE TABLE c.Ward (s varchar(9)) ENGINE=InnoDB")
        table = open_table(as_source(folding.url("C", "WARD")))
        assert table.columns == ("s",)
        close_table(table)
    named = [("c", name, "c", name, "s", "InnoDB") for name in ("ward", "wárd")]
    assert engine._rows_of_table(named, ("c", "wárd"), "") == [("s", "InnoDB")]
    for candidates in (named, []):
        with pytest.raises(DataError, match="SHOW TABLES"):
            engine._rows_of_table(candidates, ("C", "WARD"), "")


def test_a_key_that_is_too_long_for_a_varchar_counts_nothing(server):
    """In a database whose letters have four bytes; the longest key of a VARCHAR too."""
    server.run(
        "CREATE DATABASE letters CHARACTER SET utf8mb4",
        "CREATE TABLE letters.t (s varchar(9)) ENGINE=InnoDB",
        "INSERT INTO letters.t VALUES ('a'), ('a'), ('b')",
    )
    query = [{"name": "s", "measure": "count", "by": ["s"], "share": 1}]
    for size in (8191, 8192, 70_000):
        plan = small(query, {"s": {"keys": ["a", "a" * size, "b"]}})
        source = as_source(server.url("letters", "t"))
        assert counted(plan, source)["s", "all", "count"] == [2, 0, 1], size


def test_a_role_that_may_only_read_makes_a_release_of_one_state_of_the_rows(
    server, ledger, tmp_path
):
    """Rows that come later are in no table, and no type changes before the connection closes."""
    url = fill(server, "beds", {"s": "varchar(9)"}, [{"s": "a"}])
    source = as_source(url.replace("root@", "reader:se%40cret%2F1@"))
    assert counted(small(), source)["s", "all", "count"] == [1, 0]
    server.run("INSERT INTO clinic.beds VALUES ('a')")
    assert counted(small(), source)["s", "all", "count"] == [1, 0]
    with pytest.raises(engine.MySQLdb.OperationalError, match="Lock wait timeout"):
        server.run("SET lock_wait_timeout = 1", "ALTER TABLE clinic.beds MODIFY s text")
    close_table(open_table(source, rows=False))
    assert counted(small(), source)["s", "all", "count"] == [2, 0]
    release = ny.run(small(), source, ledger, tmp_path / "release")
    assert len(release.tables["s.all"]) == 2
    texts = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    for password in (b"se@cret", b"se%40cret"):
        assert not any(password in text for text in [*texts, repr(source).encode()])


def test_a_server_that_is_killed_while_it_counts_leaves_the_charge_and_no_release(
    server, ledger, tmp_path, monkeypatch
):
    """SIGKILL after the charge: the same plan is refused until it is told to charge again."""
    url, asked = (
        fill(server, "ward", {"s": "varchar(9)"}, [{"s": "a"}]),
        engine._MariaDBServer.asked,
    )

    def attack(own, query, values=None):
        if spent(ledger):
            server.kill()
        return asked(own, query, values)

    with monkeypatch.context() as patch:
        patch.setattr(engine._MariaDBServer, "asked", attack)
        with pytest.raises(ChargedError, match="connection to the database was lost") as error:
            ny.run(small(), url, ledger, tmp_path / "release")
    server.start()
    assert "the charge stands" in str(error.value)
    assert spent(ledger) == Fraction(1, 2)
    assert not (tmp_path / "release").exists()
    with pytest.raises(LedgerError, match="charge-again"):
        ny.run(small(), url, ledger, tmp_path / "release")
    ny.run(small(), url, ledger, tmp_path / "release", charge_again=True)


def test_tables_of_a_server_join_each_other_and_a_file_of_this_machine(server, tmp_path):
    """Both on one server count there; people of a server join events of a file here."""
    plan = ny.Plan.from_dict(JOINED)
    pq.write_table(pa.table(EVENTS), tmp_path / "events.parquet")
    kinds = {"person": "varchar(9)", "kind": "varchar(9)", "id": "varchar(9)", "sex": "varchar(9)"}
    urls = []
    for name, rows in (("events", EVENTS), ("persons", PEOPLE)):
        listed = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
        urls.append(fill(server, name, {n: kinds.get(n, "decimal(30,2)") for n in rows}, listed))
    events, people = urls
    right = joined_counts(plan, str(tmp_path / "events.parquet"), pa.table(PEOPLE))
    assert joined_counts(plan, events, people) == right
    assert joined_counts(plan, str(tmp_path / "events.parquet"), people) == right
