"""A ledger on PostgreSQL: what the server must be, what it refuses, and whose session is whose."""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger_entries import FILES, NAME, UNIT, reading, reserve
from neyman import Ledger
from neyman.ledger import Address, LedgerError
from postgres_server import PostgresServer


@pytest.fixture
def schema() -> str:
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def ledger(postgres: PostgresServer, schema: str) -> Iterator[Ledger]:
    with Ledger(postgres.url(schema)) as ledger:
        ledger.create(NAME, cap=100, delta_cap="1/1000", **UNIT)
        yield ledger


@contextmanager
def raw(server: PostgresServer, schema: str = "public") -> Iterator[psycopg.Connection]:
    text = f"host={server.folder} user=neyman dbname=postgres options='-c search_path={schema}'"
    with psycopg.connect(text, autocommit=True) as connection:
        yield connection


# The server


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_could_forget_is_refused(postgres, ledger, setting):
    with raw(postgres) as other:
        try:
            other.execute(f"ALTER SYSTEM SET {setting} = off")
            other.execute("SELECT pg_reload_conf()")
            wait_until(lambda: other.execute(f"SHOW {setting}").fetchone() == ("off",))
            time.sleep(0.3)  # other sessions read the settings when they next do something
            refused = r"fsync or full_page_writes off.*turn both on"
            with pytest.raises(LedgerError, match=refused):
                reserve(ledger)
            with pytest.raises(LedgerError, match=refused):
                ledger.void(1)
        finally:
            other.execute(f"ALTER SYSTEM RESET {setting}")
            other.execute("SELECT pg_reload_conf()")
            wait_until(lambda: other.execute(f"SHOW {setting}").fetchone() == ("on",))


def wait_until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not so():
        assert time.monotonic() < deadline, "waited for 20 s"
        time.sleep(0.01)


def test_a_table_that_others_lock_is_an_error_in_words_also_to_read(postgres, ledger, schema):
    """Whoever owns the tables can lock them; no one waits for that without a limit."""
    with raw(postgres, schema) as other, other.transaction():
        other.execute("LOCK TABLE event, account, entry, purse IN ACCESS EXCLUSIVE MODE")
        with Ledger(postgres.url(schema), wait=0.3) as waiting:
            for ask in (
                lambda: waiting.account(NAME),
                waiting.checkpoint,
                waiting.verify,
                lambda: list(waiting.lines()),
                lambda: reserve(waiting),
            ):
                with pytest.raises(LedgerError, match=r"busy for 0.3 s"):
                    ask()
    assert ledger.account(NAME).entries == 0


def test_a_turn_that_another_session_has_is_waited_for_with_a_limit(ledger, postgres, schema):
    with (
        ledger.turn("a plan", 0.0),
        ledger.turn("another plan", 0.0),
        Ledger(postgres.url(schema)) as other,
        pytest.raises(LedgerError, match=r"within 0.2 s, and this run spent nothing"),
        other.turn("a plan", 0.2),
    ):
        pass
    with ledger.turn("a plan", 0.0):
        pass


def test_a_turn_passes_on_to_a_session_that_waits_for_it(ledger, postgres, schema):
    first = ledger.turn("a plan", 0.0)
    first.__enter__()
    passing = threading.Timer(0.2, first.__exit__, (None, None, None))
    with Ledger(postgres.url(schema)) as other:
        passing.start()
        with other.turn("a plan", 60.0):
            passing.join()


def test_a_standby_is_refused(postgres: PostgresServer, ledger: Ledger, schema: str):
    reserve(ledger)
    with PostgresServer(copy_of=postgres) as standby:
        copy = Ledger(standby.url(schema))
        for call in (
            copy.datasets,
            lambda: reserve(copy),
            lambda: copy.create(NAME, cap=1, **UNIT),
        ):
            with pytest.raises(LedgerError, match=r"is a standby.*name the primary"):
                call()


def test_a_database_in_another_encoding_is_refused(postgres: PostgresServer):
    with raw(postgres) as other:
        other.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    url = postgres.url("neyman").replace("/postgres?", "/latin?")
    with pytest.raises(LedgerError, match=r"a database in LATIN1: a ledger needs one in UTF8"):
        Ledger(url).create(NAME, cap=1, **UNIT)


def test_a_server_that_is_not_there(tmp_path):
    ledger = Ledger(f"postgresql:///db?host={tmp_path}&user=ann")
    with pytest.raises(LedgerError, match=r"cannot be reached: .*nothing was written"):
        ledger.datasets()


def test_a_schema_without_a_ledger(postgres: PostgresServer, schema: str):
    ledger = Ledger(postgres.url(schema))
    assert not ledger.exists()
    with pytest.raises(LedgerError, match=rf"no ledger at .* in the schema {schema}: make one"):
        ledger.datasets()
    with raw(postgres) as other:
        other.execute(f"CREATE SCHEMA {schema}")
        other.execute(f"CREATE TABLE {schema}.mine (a int)")
        assert ledger.exists()
        with pytest.raises(LedgerError, match="or name another schema"):
            ledger.create(NAME, cap=1, **UNIT)
        rows = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
        assert rows.fetchall() == [("mine",)]


def test_a_schema_that_an_administrator_has_made(postgres: PostgresServer, schema: str):
    with raw(postgres) as other:
        other.execute(f"CREATE ROLE {schema} LOGIN")
        other.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {schema}")
    url = postgres.url(schema, user=schema)
    with Ledger(url) as ledger:
        ledger.create(NAME, cap=1, **UNIT)
        assert reserve(ledger).state == "reserved"
    with pytest.raises(LedgerError, match=r"does not permit it .*nothing was written"):
        Ledger(postgres.url(f"{schema}b", user=schema)).create(NAME, cap=1, **UNIT)


def test_two_schemas_are_two_ledgers(postgres: PostgresServer, schema: str):
    first, second = Ledger(postgres.url(schema)), Ledger(postgres.url(f"{schema}b"))
    for ledger in (first, second):
        ledger.create(NAME, cap=1, **UNIT)
    reserve(first)
    assert (first.account(NAME).left, second.account(NAME).left) == (0, 1)
    assert reserve(second).id == 1


def test_a_ledger_of_another_format_is_refused(postgres, ledger, schema):
    with raw(postgres) as other:
        query = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %s::regnamespace"
        for (answer,) in other.execute(query, [schema]).fetchall():
            other.execute(
                answer.replace("version <> 4", "version <> 5").replace("'%', 4", "'%', 5")
            )
    for call in (ledger.datasets, lambda: reserve(ledger)):
        with pytest.raises(
            LedgerError, match="has ledger format 5, and this version of neyman reads 4"
        ):
            call()


# Passwords


def test_a_password_is_used_and_never_printed(postgres: PostgresServer, schema: str, caplog):
    caplog.set_level(logging.DEBUG)
    secret = "hunter2:/@%"
    with raw(postgres) as other:
        if not other.execute("SELECT 1 FROM pg_roles WHERE rolname = 'guarded'").fetchall():
            other.execute(f"CREATE ROLE guarded LOGIN SUPERUSER PASSWORD '{secret}'")
    answers = [("password", secret), ("password", "hunter2 wrong")]
    said: list[str] = []
    for name, value in answers:
        url = postgres.url(schema, user="guarded", **{name: value})
        ledger = Ledger(url)
        said.append(repr(ledger) + repr(vars(ledger)) + repr(vars(ledger._store)))
        try:
            account = ledger.create(NAME, cap=1, **UNIT)
            said.append(repr(account) + repr(reserve(ledger)) + str(list(ledger.lines())))
            reserve(ledger)
        except LedgerError as error:
            said += [repr(error), "".join(traceback.format_exception(error))]
        ledger.close()
    assert any("password authentication failed" in text for text in said)
    assert any("Entry 1" in text for text in said)
    assert "hunter2" not in "".join(said) + caplog.text
    assert quote(secret) not in "".join(said)


# What the database itself refuses

STATEMENTS = [
    "DELETE FROM entry",
    "DELETE FROM account",
    "DELETE FROM event",
    "DELETE FROM purse",
    "DELETE FROM above",
    "DELETE FROM piece",
    "DELETE FROM publication",
    "DELETE FROM note",
    "UPDATE note SET subject = 'b@1'",
    "INSERT INTO note SELECT max(number), 'edition', 'all@1', 'census@1' FROM event",
    "UPDATE purse SET spent = 0 WHERE dataset = 'all@1'",
    *(
        f"TRUNCATE {table} CASCADE"
        for table in ("entry", "account", "event", "purse", "above", "piece", "publication", "note")
    ),
    "UPDATE event SET line = '{}'",
    "UPDATE event SET hash = repeat('0', 64) WHERE number = 2",
    "INSERT INTO event SELECT max(number) + 2, '{}', 'x' FROM event",
    "INSERT INTO event SELECT 0, '{}', 'x'",
    "UPDATE account SET rows = 5",
    "UPDATE purse SET cap = cap + 1",
    "UPDATE purse SET spent = 0",
    "UPDATE purse SET spent = spent - 1, entries = entries - 1",
    "UPDATE above SET ancestor = 'x'",
    "INSERT INTO purse SELECT dataset, 'team', part, '', event, cap + 1, 0, 0, 0, 0 FROM purse",
    "INSERT INTO purse SELECT dataset, 'team', part, '', event, cap, 0, -1, 0, 0 FROM purse",
    "UPDATE entry SET charge = 0",
    "UPDATE entry SET delta = 0",
    "UPDATE entry SET key = 'other'",
    "UPDATE entry SET id = 17 WHERE id = 2",
    "UPDATE entry SET state = 'reserved', ended = NULL WHERE id = 1",
    "UPDATE entry SET state = 'void', ended = 1 WHERE id = 1",
    "UPDATE entry SET state = 'released', ended = 1 WHERE id = 2",
    "UPDATE entry SET state = 'refunded' WHERE id = 2",
    "UPDATE piece SET content = ''",
    "UPDATE publication SET entry = 2",
    "INSERT INTO entry SELECT 9, dataset, holder, part, key, 'reading', 0, 0, 1 FROM entry LIMIT 1",
    "INSERT INTO entry SELECT 9, dataset, '', '', 'k', 'reserved', -1, 0, 1 FROM account",
    "INSERT INTO entry SELECT 9, dataset, '', '', 'k', 'reserved', cap + 1, 0, 1 FROM purse",
    "INSERT INTO entry SELECT 9, dataset, '', '', 'k', 'reserved', 0, delta_cap + 1, 1 FROM purse",
    "INSERT INTO entry SELECT 9, dataset, 'nobody', '', 'k', 'reserved', 0, 0, 1 FROM purse",
    "INSERT INTO entry SELECT 9, dataset, '', 'north', 'k', 'reserved', 0, 0, 1 FROM purse",
    "INSERT INTO publication SELECT dataset, 'other', 2, 'x' FROM account",
    "INSERT INTO piece VALUES (1, 'x', 'more', 0, 0, '')",
]


@pytest.mark.parametrize("mode", ["origin", "replica"])
def test_the_database_refuses_tampering(postgres, ledger, schema, mode):
    ledger.finish(reading(ledger, key="k"), FILES)
    reserve(ledger, key="another")
    ledger.create("all@1", cap=3, **UNIT)
    ledger.join(NAME, "all@1")
    before = (ledger.datasets(), ledger.entries(NAME), ledger.checkpoint())
    with raw(postgres, schema) as other:
        other.execute(f"SET session_replication_role = {mode}")
        for statement in STATEMENTS:
            with pytest.raises(psycopg.errors.IntegrityError):
                print(statement, other.execute(statement).rowcount)
    assert (ledger.datasets(), ledger.entries(NAME), ledger.checkpoint()) == before
    published = ledger.published(NAME, "k")
    assert published is not None
    assert dict(published[1]) == FILES
    assert ledger.verify().ok


@pytest.mark.parametrize(("statement", "says"), [
    ("ALTER TABLE purse DROP CONSTRAINT no_more_than_the_cap", "no_more_than_the_cap is miss"),
    ("ALTER TABLE entry DISABLE TRIGGER entry_fixed", "trigger entry.entry_fixed is not as"),
    ("ALTER TABLE entry ENABLE TRIGGER entry_fixed", "trigger entry.entry_fixed is not as"),
    ("DROP TRIGGER event_next ON event", "trigger event.event_next is missing"),
    ("ALTER TABLE publication SET UNLOGGED", "publication is lost in a crash"),
    ("ALTER TABLE account DISABLE TRIGGER ALL", "references of account"),
    ("ALTER TABLE purse ALTER spent TYPE numeric", "column purse.spent is not as"),
    ("ALTER TABLE purse ALTER spent DROP NOT NULL", "column purse.spent is not as"),
    ("CREATE TABLE mine (a int)", "table mine is none of the ledger's"),
    ("CREATE RULE r AS ON INSERT TO entry DO INSTEAD NOTHING", "rule entry.r is none"),
    (
        "CREATE OR REPLACE FUNCTION settled() RETURNS void LANGUAGE plpgsql AS 'BEGIN END'",
        "function settled is not as",
    ),
    ("DROP INDEX entry_of_key", "index entry_of_key is missing"),
])  # fmt: skip
def test_changed_tables_and_rules_are_found(postgres, ledger, schema, statement, says):
    reserve(ledger)
    assert ledger.verify().ok
    with raw(postgres, schema) as other:
        other.execute(statement)
    problems = ledger.verify().problems
    assert any(says in text for text in problems), problems


# Sessions


def test_a_fork_has_a_session_of_its_own(ledger: Ledger):
    reserve(ledger, key="parent")
    mine = ledger._store._connections.get()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            reserve(ledger, key="child")
            status = 0 if ledger._store._connections.get().pid != mine.pid else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert ledger._store._connections.get() is mine
    reserve(ledger, key="parent again")
    assert ledger.account(NAME).entries == 3


def test_threads_have_sessions_of_their_own_and_close_them(postgres, ledger):
    with raw(postgres) as other:
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'neyman'"
        reserve(ledger, key="first")
        before = other.execute(count).fetchall()
        threads = [
            threading.Thread(target=lambda n=n: [reserve(ledger, key=f"{n}{i}") for i in range(9)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.account(NAME).spent == 37
        # Sessions of earlier tests, whose objects are collected meanwhile, may end, too.
        wait_until(lambda: other.execute(count).fetchall() <= before)


def test_an_error_leaves_a_sound_session(ledger: Ledger):
    reserve(ledger)
    session = ledger._store._connections.get()
    with pytest.raises(LedgerError, match="not registered"):
        ledger.account("nobody@1")
    with pytest.raises(LedgerError, match="refuses the change: events follow one another"):
        wrong(ledger)
    with pytest.raises(KeyError):
        broken_off(ledger)
    assert ledger._store._connections.get() is session
    assert [entry.state for entry in ledger.entries(NAME)] == ["reserved"]


def wrong(ledger: Ledger) -> None:
    with ledger._store.writing() as db:
        db.run("INSERT INTO event (number, line, hash) VALUES (?, ?, ?)", 99, "{}", "x")
        db.run("DELETE FROM entry")


def broken_off(ledger: Ledger) -> None:
    with ledger._store.writing() as db:
        db.run("UPDATE entry SET state = 'void', ended = 1")
        raise KeyError


def test_the_mark_of_exact_totals_is_kept_and_compared(ledger: Ledger) -> None:
    mark = "sha256:" + "0a" * 32
    account = ledger.create("totals@1", cap=100, **UNIT, totals=mark)
    assert (account.totals, account.neighboring) == (mark, UNIT["neighboring"])
    terms = {"key": "k", "charge": 1, "mechanisms": [], "plan": "{}", **UNIT}
    for other in ("", "sha256:" + "0b" * 32):
        with pytest.raises(LedgerError, match="keeping totals"):
            ledger.reserve("totals@1", **terms, totals=other)
    assert ledger.reserve("totals@1", **terms, totals=mark).state == "reserved"
    assert ledger.account("totals@1").spent == 1
    assert ledger.verify().ok


SECRET = "hunter2"


@pytest.mark.parametrize(("url", "shown", "parameters"), [
    ("postgresql://h/db", "postgresql://h/db?schema=neyman", {"host": "h", "dbname": "db"}),
    (
        "postgresql://ann:hunter2@h:5433/db?schema=books&sslmode=require",
        "postgresql://ann@h:5433/db?sslmode=require&schema=books",
        {"user": "ann", "password": SECRET, "host": "h", "port": "5433", "dbname": "db"}
        | {"sslmode": "require"},
    ),
    (
        "postgres:///db?host=/run/pg&user=ann&password=hunter2&sslpassword=hunter2",
        "postgresql:///db?host=/run/pg&user=ann&schema=neyman",
        {"host": "/run/pg", "user": "ann", "password": SECRET, "sslpassword": SECRET}
        | {"dbname": "db"},
    ),
    (
        "postgresql://a%40b:hunter2@[::1]:5433/db",
        "postgresql://a%40b@[::1]:5433/db?schema=neyman",
        {"user": "a@b", "password": SECRET, "host": "::1", "port": "5433", "dbname": "db"},
    ),
    (
        "postgresql://ann:hunter2@h1:1,h2:2/db?target_session_attrs=read-write",
        "postgresql://ann@h1:1,h2:2/db?target_session_attrs=read-write&schema=neyman",
        {"user": "ann", "password": SECRET, "host": "h1,h2", "port": "1,2", "dbname": "db"}
        | {"target_session_attrs": "read-write"},
    ),
])  # fmt: skip
def test_urls(url: str, shown: str, parameters: dict[str, str]):
    address = Address.read(url)
    assert address.shown == shown
    assert address.parameters == parameters
    assert SECRET not in repr(address)
    assert Address.read(address.shown).shown == shown
    assert Address.read("postgresql://h/?password=a+b%2Bc").parameters["password"] == "a+b+c"
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize("url", [
    "postgresql://ann:hunter2@b@h/db", "postgresql://ann:hunter2/b@h/db",
    "postgresql://ann:12?hunter2@h/db", "postgresql://ann:12#hunter2@h/db",
    "postgresql://ann:hunter2%zz@h/db", "postgresql://ann:hunter2@h:port/db",
    "postgresql://ann:hunter2@h1,h2:port/db", "postgresql://ann:hunter2@[::1/db",
    "postgresql://ann:hunter2@h/db?hunter2",
    "postgresql://ann:hunter2@h/db?no_such_parameter=hunter2",
    "postgresql://ann:hunter2@h/db?schema=Hunter2",
    "postgresql://ann:hunter2@h/db?schema=pg_hunter2",
    "postgresql://ann:hunter2@h/db?schema=x%22;hunter2", "postgresql://ann:hunter2\u2100@h/db",
])  # fmt: skip
def test_what_cannot_be_read_is_refused_without_being_quoted(url: str):
    with pytest.raises(ValueError, match="url") as refusal:
        Address.read(url)
    error: BaseException | None = refusal.value
    while error is not None:
        if not error.__suppress_context__:
            assert error.__context__ is None
        assert "hunter2" not in str(error).lower()
        error = error.__cause__


@settings(max_examples=300)
@given(st.text("aZ9@:/?#%&=[]+ ,\u00e9\n", max_size=12).map(lambda text: f"ann:{text}hunter2@h/db"))
def test_no_password_is_printed_whatever_it_is_made_of(rest: str):
    try:
        said = repr(Address.read(f"postgresql://{rest}"))
    except ValueError as error:
        said = str(error)
    assert "hunter2" not in said


def test_texts_of_the_server_are_cleaned():
    address = Address.read("postgresql://ann:hunter2@h/db")
    assert address.hide("a\n  b hunter2 c") == "a b *** c"


def test_a_missing_driver_names_what_to_install():
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from neyman.ledger import Ledger\n"
        "Ledger('ledger.db')\n"
        "try: Ledger('postgresql://ann:hunter2@h/db')\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == (
        "ledgers on PostgreSQL need psycopg: pip install 'neyman[postgres]'"
    )
