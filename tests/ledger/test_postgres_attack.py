"""What a writer with the documented rights tried on PostgreSQL: nothing is taken back or blocked.

The writer knows the rules, owns a schema, and may send any statement. The rule behind these tests:
the database accepts nothing that `verify` rejects, because it could never be removed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import psycopg
import pytest

from ledger_entries import FILES, NAME, UNIT, digest_of, line_of, reading, reserve
from neyman import Ledger
from neyman.ledger import LedgerError, digest
from postgres_server import PostgresServer

Writer = tuple[str, str, str]
ENTRY = "id, dataset, holder, part, key, state, charge, delta, event, ended"
REFUSED = (psycopg.errors.IntegrityError, psycopg.errors.DataError, psycopg.errors.RaiseException)
# Every operator that a rule uses, for every type that it compares, answers what the writer likes.
OPERATORS = """
CREATE FUNCTION mine.yes(anyelement, anyelement) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine.no(anyelement, anyelement) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION mine.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine.no(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION mine.yes(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine.no(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION mine.no(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION mine.pg_trigger_depth() RETURNS int LANGUAGE sql AS 'SELECT 9';
CREATE FUNCTION mine.coalesce(bigint, int) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
CREATE FUNCTION mine.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION mine.current_setting(text) RETURNS text LANGUAGE sql AS $$SELECT 'on'$$;
CREATE OPERATOR mine.= (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.yes);
CREATE OPERATOR mine.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = mine.yes);
CREATE OPERATOR mine.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.no);
CREATE OPERATOR mine.<> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = mine.no);
CREATE OPERATOR mine.<> (LEFTARG = oid, RIGHTARG = oid, FUNCTION = mine.no);
CREATE OPERATOR mine.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.yes)
"""


@contextmanager
def session(url: str, **settings: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        yield connection


def run(connection: psycopg.Connection[Any], statement: str, *values: Any) -> Any:
    return connection.execute(statement, values or None)  # pyright: ignore[reportArgumentType]


def head(connection: psycopg.Connection[Any]) -> tuple[int, str]:
    query = "SELECT number, hash FROM rights.event ORDER BY number DESC LIMIT 1"
    return connection.execute(query).fetchall()[0]


def put_line(connection: psycopg.Connection[Any], number: int, line: str) -> None:
    run(
        connection,
        "INSERT INTO rights.event (number, line, hash) VALUES (%s, %s, %s)",
        *(number, line, digest(line)),
    )


def put(connection: psycopg.Connection[Any], kind: str, **what: Any) -> int:
    """Insert the next event of the chain, well formed, whatever it says."""
    number, previous = head(connection)
    put_line(connection, number + 1, line_of(number + 1, previous, kind, what))
    return number + 1


def reservation(entry: int, **more: Any) -> dict[str, Any]:
    fields = {"dataset": NAME, "to": "", "part": "", "key": "k", "charge": "0/1", "units": 0}
    fields |= {"delta": "0/1", "delta_units": 0, "mechanisms": "[]", "plan": "{}", "entry": entry}
    return fields | more


def put_entry(connection: psycopg.Connection[Any], answer: dict[str, Any], event: int) -> None:
    run(
        connection,
        f"INSERT INTO rights.entry ({ENTRY}) VALUES (%s, %s, %s, %s, %s, 'reserved', %s, %s, %s,"
        " NULL)",
        *(answer[name] for name in ("entry", "dataset", "to", "part", "key", "units")),
        *(answer["delta_units"], event),
    )


def stands(owner: str, url: str, spent: Fraction | int) -> None:
    """The ledger is as its events say, has spent this much, and a writer can go on."""
    with Ledger(owner) as ledger, Ledger(url) as other:
        assert ledger.verify().problems == ()
        assert ledger.account(NAME).spent == spent
        assert reserve(other, 0).state == "reserved"


# Names and operators


def test_every_function_of_a_ledger_has_a_pinned_search_path(writer: Writer):
    with session(writer[0].replace("&schema=rights", "")) as connection:
        rows = run(
            connection,
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'rights'::regnamespace",
        ).fetchall()
    assert len(rows) > 20
    assert {name: pin for name, pin in rows if pin != ["search_path=pg_catalog, pg_temp"]} == {}


@pytest.mark.parametrize("path", ["mine, pg_catalog", "mine", "mine, pg_catalog, pg_temp, rights"])
def test_a_writer_with_operators_of_their_own_takes_nothing_back(writer: Writer, path: str):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        entry = reading(ledger, 1).id
    with session(plain) as connection:
        run(connection, OPERATORS)
        run(connection, f"SET search_path = {path}")
        for statement in (
            "UPDATE rights.entry SET state = 'void', ended = 1 WHERE state OPERATOR(pg_catalog.=)"
            " 'reading'",
            "UPDATE rights.entry SET charge = 0",
            "UPDATE rights.entry SET state = 'reserved'",
            f"INSERT INTO rights.entry ({ENTRY}) SELECT 2, '{NAME}', '', '', 'k', 'reserved',"
            " -720720000000, 0, 1, NULL",
            "DELETE FROM rights.piece",
            "INSERT INTO rights.event VALUES (9, '{}', 'x')",
        ):
            if "DELETE" in statement:
                run(connection, statement)  # there is none
                continue
            with pytest.raises(REFUSED):
                run(connection, statement)
    with Ledger(owner) as ledger:
        assert ledger.entry(entry).state == "reading"
        with pytest.raises(LedgerError, match="is left"):
            reserve(ledger, 1)
    stands(owner, url, 1)


@pytest.mark.parametrize("path", ["mine, pg_catalog", "pg_catalog"])
def test_a_writer_who_shadows_the_tables_changes_nothing(writer: Writer, path: str):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        reading(ledger, "1/2")
    with session(plain) as connection:
        for where in ("mine", "pg_temp"):
            for table in ("entry", "purse", "event", "publication", "piece", "turn", "account"):
                kind = "TEMP TABLE" if where == "pg_temp" else "TABLE mine."
                name = f"{kind} {table}" if where == "pg_temp" else f"{kind}{table}"
                run(connection, f"CREATE {name} (LIKE rights.{table})")
        run(connection, f"SET search_path = pg_temp, {path}")
        run(connection, "INSERT INTO pg_temp.entry SELECT * FROM rights.entry")
        run(connection, "UPDATE pg_temp.entry SET state = 'reserved'")
        with pytest.raises(REFUSED):
            run(connection, "UPDATE rights.entry SET state = 'void', ended = 1")
        with Ledger(url) as ledger:
            assert ledger.account(NAME).spent == Fraction(1, 2)
    stands(owner, url, Fraction(1, 2))


def test_a_ledger_with_a_function_that_is_not_pinned_is_refused(writer, postgres):
    owner, url, _ = writer
    with session(postgres.url()) as connection:
        run(connection, "ALTER FUNCTION rights.entry_fixed RESET search_path")
        for place in (owner, url):
            with pytest.raises(
                LedgerError, match=r"ALTER FUNCTION .*entry_fixed\(\) SET"
            ) as answer:
                Ledger(place).datasets()
        run(connection, "SET search_path = rights")
        run(connection, str(answer.value).rpartition("`: ")[2])
    stands(owner, url, 0)


def test_a_writer_charges_the_population_of_an_edition_and_cannot_move_it(writer: Writer):
    owner, url, plain = writer
    with Ledger(owner) as ledger:
        for name in ("all@1", "more@1"):
            ledger.create(name, cap="3/4", **UNIT)
        ledger.join(NAME, "all@1")
    with Ledger(url) as ledger:
        reading(ledger, "1/2")
        assert ledger.account("all@1").spent == Fraction(1, 2)
        with pytest.raises(
            LedgerError, match=r"all@1: asked for 0\.5 zCDP rho, and 0\.25 of 0\.75"
        ):
            reserve(ledger, "1/2")

    def move(connection: psycopg.Connection[Any], dataset: str, subject: str) -> None:
        with connection.transaction():
            event = put(connection, "edition", dataset=dataset, subject=subject)
            query = "INSERT INTO rights.note VALUES (%s, 'edition', %s, %s)"
            run(connection, query, event, dataset, subject)

    with session(plain) as connection:
        for subject, dataset in (("all@1", "more@1"), ("more@1", NAME), (NAME, "more@1")):
            with pytest.raises((*REFUSED, psycopg.errors.InsufficientPrivilege)):
                move(connection, dataset, subject)
        for statement in (
            "UPDATE rights.purse SET spent = 0 WHERE dataset = 'all@1'",
            "DELETE FROM rights.note",
        ):
            with pytest.raises((*REFUSED, psycopg.errors.InsufficientPrivilege)):
                run(connection, statement)
    stands(owner, url, Fraction(1, 2))


# Events and entries that would block the ledger

BLOCKING = [
    f"INSERT INTO rights.entry ({ENTRY}) SELECT 9223372036854775807, '{NAME}', '', '', 'k',"
    " 'reserved', 0, 0, max(number), NULL FROM rights.event",
    f"INSERT INTO rights.entry ({ENTRY}) SELECT 2, '{NAME}', '', '', 'k', 'reserved', 0, 0,"
    " max(number), NULL FROM rights.event",
    f"INSERT INTO rights.entry ({ENTRY}) SELECT -1, '{NAME}', '', '', 'k', 'reserved', 0, 0, 1, 1",
    "INSERT INTO rights.event VALUES (9223372036854775807, '{}', 'x')",
    "INSERT INTO rights.event SELECT max(number) + 1, '{}', repeat('0', 64) FROM rights.event",
    "INSERT INTO rights.event SELECT max(number) + 1, 'no JSON', 'x' FROM rights.event",
    "INSERT INTO rights.event SELECT max(number) + 1, NULL, NULL FROM rights.event",
    "INSERT INTO rights.event SELECT number + 1, line, hash FROM rights.event"
    " ORDER BY number DESC LIMIT 1",
    "INSERT INTO rights.event DEFAULT VALUES",
    "INSERT INTO rights.entry DEFAULT VALUES",
    "INSERT INTO rights.publication DEFAULT VALUES",
    "INSERT INTO rights.note DEFAULT VALUES",
    "INSERT INTO rights.piece DEFAULT VALUES",
    f"INSERT INTO rights.publication VALUES ('{NAME}', 'k', 1, 'x')",
    "INSERT INTO rights.publication SELECT dataset, key, id, 'x' FROM rights.entry",
    "UPDATE rights.entry SET state = 'reading'",
    "UPDATE rights.entry SET state = 'void', ended = event",
    "UPDATE rights.entry SET state = 'void', ended = 1",
    "INSERT INTO rights.entry SELECT * FROM rights.entry ON CONFLICT (id) DO UPDATE SET charge = 0",
    "WITH e AS (UPDATE rights.entry SET state = 'reading' RETURNING *)"
    " UPDATE rights.entry SET state = 'void', ended = 1",
    "TRUNCATE rights.entry CASCADE",
    "ALTER TABLE rights.event DISABLE TRIGGER ALL",
    "ALTER TABLE rights.entry ALTER id ADD GENERATED ALWAYS AS IDENTITY",
    "CREATE TABLE mine.child () INHERITS (rights.entry)",
    "CREATE TABLE mine.r (n bigint REFERENCES rights.event (number))",
    "CREATE TRIGGER t BEFORE INSERT ON rights.event EXECUTE FUNCTION rights.never('x')",
    "CREATE RULE r AS ON INSERT TO rights.event DO INSTEAD NOTHING",
    "CREATE FUNCTION rights.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SET session_replication_role = replica",
    "DO 'BEGIN LOCK TABLE rights.event IN ACCESS EXCLUSIVE MODE; END'",
]


@pytest.mark.parametrize("strings", ["on", "off"])
def test_a_writer_cannot_block_the_ledger_with_a_statement(writer: Writer, strings: str):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        reserve(ledger, "1/2")
    answer = psycopg.errors.InsufficientPrivilege
    with session(plain, standard_conforming_strings=strings) as connection:
        for statement in BLOCKING:
            with pytest.raises((*REFUSED, answer)):
                print(statement, run(connection, statement).rowcount)
        for table, row in (
            ("event", "9223372036854775807\t{}\tx\n"),
            ("entry", f"9223372036854775807\t{NAME}\t\t\tk\treserved\t0\t0\t2\t\\N\n"),
        ):
            with (
                pytest.raises(REFUSED),
                connection.cursor().copy(
                    f"COPY rights.{table} FROM STDIN"  # pyright: ignore[reportArgumentType]
                ) as copy,
            ):
                copy.write(row)
    stands(owner, url, Fraction(1, 2))


def test_an_event_comes_with_its_rows_or_not_at_all(writer: Writer):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        first, second = reserve(ledger, "1/4").id, reserve(ledger, "1/4").id

    def alone(connection: psycopg.Connection[Any], kind: str, **what: Any) -> None:
        put(connection, kind, **what)

    def twice(connection: psycopg.Connection[Any]) -> None:
        put(connection, "begin", entry=first)
        put(connection, "begin", entry=second)
        run(connection, "UPDATE rights.entry SET state = 'reading' WHERE id = %s", second)
        put(connection, "begin", entry=first)
        run(connection, "UPDATE rights.entry SET state = 'reading' WHERE id = %s", first)

    def late(connection: psycopg.Connection[Any]) -> None:
        event = put(connection, "begin", entry=first)
        run(
            connection,
            "UPDATE rights.entry SET state = 'void', ended = %s WHERE id = %s",
            *(event, first),
        )

    def other(connection: psycopg.Connection[Any]) -> None:
        put(connection, "begin", entry=first)
        run(connection, "UPDATE rights.entry SET state = 'reading' WHERE id = %s", second)

    def cheap(connection: psycopg.Connection[Any]) -> None:
        answer = reservation(second + 1, charge="1/4", units=720_720 * 250_000)
        put_entry(connection, answer | {"units": 0}, put(connection, "reserve", **answer))

    def free(connection: psycopg.Connection[Any]) -> None:
        answer = reservation(second + 1, charge="1/4", units=0)
        put_entry(connection, answer, put(connection, "reserve", **answer))

    def far(connection: psycopg.Connection[Any]) -> None:
        answer = reservation(2**63 - 1)
        put_entry(connection, answer, put(connection, "reserve", **answer))

    def immediate(connection: psycopg.Connection[Any]) -> None:
        run(connection, "SET CONSTRAINTS ALL IMMEDIATE")
        put(connection, "void", entry=first, why="x")

    def saved(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            put(connection, "void", entry=first, why="x")

    with session(plain) as connection:
        for number, attack in enumerate(
            (
                lambda c: alone(c, "reserve", **reservation(second + 1)),
                lambda c: alone(c, "begin", entry=first),
                lambda c: alone(c, "void", entry=first, why="x"),
                lambda c: alone(c, "account", **account()),
                lambda c: alone(c, "ledger", id="0" * 32, version=2),
                *(twice, late, other, cheap, free, far, immediate, saved),
            )
        ):
            print(number)
            with pytest.raises(REFUSED), connection.transaction():
                attack(connection)
    stands(owner, url, Fraction(1, 2))


def account() -> dict[str, Any]:
    fields = {"dataset": "fresh@1", **UNIT, "currency": "zcdp", "parts": [], "cap": "1/1"}
    return fields | {"units": 1, "delta_cap": "0/1", "delta_units": 0, "approval": ""}


APPROVAL = dict.fromkeys(("plan", "who", "purpose", "until", "public", "signature"), "x")
EMPTY = hashlib.sha256(b"").hexdigest()
MANY_DIGITS = "<5000 digits>"  # Python does not write so long a number by itself
ODD = [
    None, True, 1.5, -1, 2**63 - 1, 10**18, MANY_DIGITS, "", "x", "0", "1/0", "0/1", "-1/2", " ",
    "9" * 3000 + "/1", "1e999999999", "\x1b[2J", "\n", "a" * 300, "\u00e9", "[" * 5000 + "]" * 5000,
    '[{"a":' * 480 + "1" + "}]" * 480, "[" + "9" * 5000 + "]", "{}", [], ["x"], {}, {"a": "x"},
    {"../a": EMPTY},
]  # fmt: skip


def dumps(answer: Any, **how: Any) -> str:
    line = json.dumps(answer, **{"separators": (",", ":"), "sort_keys": True, **how})
    return line.replace(f'"{MANY_DIGITS}"', "9" * 5000)


def test_what_the_database_accepts_verifies(writer: Writer):
    """Each field of each kind of event has each odd value in turn, with the rows that it asks for.

    A few of these are sound, and are accepted; nothing that `verify` rejects is.
    """
    owner, url, plain = writer
    with Ledger(url) as ledger:
        reserved = reserve(ledger, 0).id
        began = reading(ledger, 0).id
        old, new = (ledger.finish(reading(ledger, 0), {"a": b""}).id for _ in range(2))
    accepted = 0
    with session(plain) as connection:
        for kind, sound in (
            ("reserve", reservation(0)),
            ("begin", {"entry": reserved}),
            ("void", {"entry": reserved, "why": "x"}),
            ("withdraw", {"dataset": NAME, "subject": str(old), "why": "x"}),
            ("correct", {"dataset": NAME, "subject": str(old), "why": "x", "entry": new}),
            ("approve", {"dataset": NAME, "subject": "k", **APPROVAL}),
            ("revoke", {"dataset": NAME, "subject": "k", "who": "x"}),
            ("finish", finish(began)),
        ):
            answer = dict(sound)
            fixed = {"number", "previous", "salt", "kind", "when"}
            for name, value in itertools.product(
                sorted({*answer, *fixed, "extra"}), ["gone", *ODD]
            ):
                if (name, value) == ("extra", "gone"):
                    continue  # no event at all
                try:
                    with connection.transaction():
                        attempt_with(connection, kind, answer, name, value)
                    accepted += 1
                except (*REFUSED, psycopg.OperationalError, psycopg.DataError):
                    continue
                with Ledger(owner) as book:
                    assert book.verify().problems == (), (kind, name, value)
                    book.entries(NAME)
                    if kind in ("begin", "void"):
                        reserved = reserve(book, 0).id
                        answer["entry"] = reserved
                    elif kind == "finish":
                        answer |= finish(reading(book, 0).id)
                    elif kind == "approve" and name != "subject":
                        book.revoke(NAME, "k", who="x")
                    elif kind == "revoke" and name != "subject":
                        book.approve(NAME, "k", plan="x", who="x")
                    elif kind in ("withdraw", "correct"):
                        fresh = book.finish(reading(book, 0), {"a": b""})
                        answer["subject"] = str(fresh.id)
    assert accepted > 20
    stands(owner, url, 0)


def finish(entry: int) -> dict[str, Any]:
    hashes = {"a": EMPTY}
    return {"entry": entry, "published": entry, "files": hashes, "digest": digest_of(hashes)}


def release(
    connection: psycopg.Connection[Any], entry: int, answer: dict[str, Any], pieces: list[Any]
) -> None:
    """Release an entry with these pieces: attempt, path and number of each, which are empty."""
    with connection.transaction():
        for piece in pieces:
            query = "INSERT INTO rights.piece VALUES (%s, %s, %s, %s, 0, '')"
            run(connection, query, entry, *piece)
        event = put(connection, "finish", **answer)
        query = "INSERT INTO rights.publication SELECT dataset, key, id, 'x' FROM rights.entry"
        run(connection, f"{query} WHERE id = %s", entry)
        query = "UPDATE rights.entry SET state = 'released', ended = %s WHERE id = %s"
        run(connection, query, event, entry)


def attempt_with(
    connection: psycopg.Connection[Any], kind: str, answer: dict[str, Any], name: str, value: Any
) -> None:
    """Insert an event with one odd field, and the rows that would follow from it."""
    number, previous = head(connection)
    ((last,),) = run(connection, "SELECT coalesce(max(id), 0) FROM rights.entry").fetchall()
    if kind == "reserve":
        answer = answer | {"entry": last + 1}
    odd = json.loads(line_of(number + 1, previous, kind, answer))
    if value == "gone":
        if name not in odd:
            return
        del odd[name]
    else:
        odd[name] = value
    if name == "files" and isinstance(value, dict):
        odd["digest"] = digest_of(value)
    put_line(connection, number + 1, dumps(odd))
    if kind == "reserve":
        put_entry(connection, {**answer, **odd}, number + 1)
    elif kind in ("begin", "void"):
        state, ended = ("reading", None) if kind == "begin" else ("void", number + 1)
        query = "UPDATE rights.entry SET state = %s, ended = %s WHERE id = %s"
        run(connection, query, state, ended, odd["entry"])
    elif kind in ("withdraw", "correct", "approve", "revoke"):
        query = "INSERT INTO rights.note VALUES (%s, %s, %s, %s)"
        run(connection, query, number + 1, kind, odd["dataset"], odd["subject"])
    else:
        entry = odd["entry"]
        for path in odd["files"]:
            piece = "INSERT INTO rights.piece VALUES (%s, 'x', %s, 0, 0, '')"
            run(connection, piece, entry, path)
        query = "INSERT INTO rights.publication SELECT dataset, key, id, 'x' FROM rights.entry"
        run(connection, f"{query} WHERE id = %s", entry)
        query = "UPDATE rights.entry SET state = 'released', ended = %s WHERE id = %s"
        run(connection, query, number + 1, entry)


@pytest.mark.parametrize("write", [
    lambda answer: dumps(answer) + " ", lambda answer: " " + dumps(answer),
    lambda answer: dumps(answer) + "\n", lambda answer: dumps(answer, separators=(", ", ": ")),
    lambda answer: dumps(dict(reversed(answer.items())), sort_keys=False),
    lambda answer: dumps(answer).replace('"entry":', '"entry":9,"entry":'),
    lambda answer: dumps(answer).replace('"why":"\\u00e9', '"why":"\\u00E9'),
    lambda answer: dumps(answer).replace('"why":"\\u00e9', '"why":"\u00e9'),
    lambda answer: dumps(answer).replace('"why":"', '"why":"\\/'),
    lambda answer: dumps(answer).replace('"why":"', '"why":"\\u0041'),
    lambda answer: dumps(answer).replace('"why":"', '"why":"\\u0000'),
    lambda answer: dumps(answer).replace('"why":"', '"why":"\\ud800'),
    lambda answer: dumps(answer).replace('"number":', '"number":0'),
    lambda answer: dumps(answer).replace('"entry":', '"entry": '),
    lambda answer: "[" + dumps(answer) + "]", lambda answer: "null", lambda answer: "",
])  # fmt: skip
def test_an_event_that_is_not_written_as_the_chain_writes_it_is_refused(writer: Writer, write: Any):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        entry = reserve(ledger, "1/2").id
    with session(plain) as connection:
        number, previous = head(connection)
        content = json.loads(
            line_of(number + 1, previous, "void", {"entry": entry, "why": "\u00e9"})
        )
        query = "UPDATE rights.entry SET state = 'void', ended = %s WHERE id = %s"

        def void(line: str) -> None:
            with connection.transaction():
                put_line(connection, number + 1, line)
                run(connection, query, number + 1, entry)

        with pytest.raises(REFUSED):
            void(write(content))
        stands(owner, url, Fraction(1, 2))
        with connection.transaction():
            event = put(connection, "void", entry=entry, why="\u00e9 \U0001f600 \"'\\")
            run(connection, query, event, entry)
    stands(owner, url, 0)


# Old moments and files


def test_a_transaction_that_saw_an_older_moment_deletes_no_published_file(writer: Writer):
    owner, url, plain = writer
    with Ledger(url) as ledger, session(plain) as old, session(plain) as idle:
        entry = reading(ledger, "1/2", "k")
        with ledger._store.writing() as db:
            db.run("INSERT INTO piece VALUES (?, 'other', 'a', 0, 0, '')", entry.id)
        for level, connection in (("REPEATABLE READ", old), ("SERIALIZABLE", idle)):
            run(connection, f"BEGIN ISOLATION LEVEL {level}")
            run(connection, "SELECT count(*) FROM rights.piece")
        ledger.finish(entry, FILES)
        for connection, statement in (
            (old, "DELETE FROM rights.piece"),
            (idle, f"INSERT INTO rights.piece VALUES ({entry.id}, 'x', 'more', 0, 0, '')"),
        ):
            with pytest.raises(REFUSED, match="isolation level read committed"):
                run(connection, statement)
            run(connection, "ROLLBACK")
        published = ledger.published(NAME, "k")
        assert published is not None
        assert dict(published[1]) == FILES
    stands(owner, url, Fraction(1, 2))


def test_pieces_wait_for_a_release_that_is_being_written(writer: Writer):
    owner, url, plain = writer
    problems: list[str] = []
    with Ledger(url) as ledger:
        entry = reading(ledger, "1/2", "k")

        def insert() -> None:
            statement = f"INSERT INTO rights.piece VALUES ({entry.id}, 'x', 'more', 0, 0, '')"
            try:
                with session(plain) as connection:
                    run(connection, statement)
            except psycopg.Error as error:
                problems.append(str(error))

        with ledger._write_transaction() as write:
            hashes = {"a": EMPTY}
            write.db.run("INSERT INTO piece VALUES (?, 'own', 'a', 0, 0, '')", entry.id)
            write.finish(entry.id, entry.id, hashes, "own")
            write.db.rows("SELECT 1")  # all of the above has been carried out
            thread = threading.Thread(target=insert)
            thread.start()
            thread.join(0.5)
            assert thread.is_alive()
        thread.join(30)
    assert len(problems) == 1
    assert "files are stored once" in problems[0]
    stands(owner, url, Fraction(1, 2))


@pytest.mark.parametrize("pieces", [
    [], [("x", "b", 0)], [("x", "a", 0), ("x", "b", 0)], [("x", "a", 1)],
    [("x", "a", 0), ("x", "a", 2)], [("x", "a", 0), ("y", "a", 0)], [("y", "a", 0)],
    [("x", "a", -1), ("x", "a", 0)],
])  # fmt: skip
def test_a_release_has_its_files_and_no_others(writer: Writer, pieces: list[Any]):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        entry = reading(ledger, "1/2").id
    with session(plain) as connection, pytest.raises(REFUSED):
        release(connection, entry, finish(entry), pieces)
    stands(owner, url, Fraction(1, 2))


def test_files_that_are_not_what_their_release_says_are_named_and_block_nothing(writer: Writer):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        entry = reading(ledger, "1/2", "k").id
    hashes = {"a": "0" * 64}
    fields = {**finish(entry), "files": hashes, "digest": digest_of(hashes)}
    with session(plain) as connection:
        release(connection, entry, fields, [("x", "a", 0)])
    with Ledger(owner) as ledger:
        said = f"files of entry {entry} are not what was published: ['a']"
        assert ledger.verify().problems == (said,)
        ledger.finish(reading(ledger, "1/4"), FILES)
        assert ledger.account(NAME).spent == Fraction(3, 4)


# Waits


def test_a_transaction_that_a_writer_leaves_open_delays_and_blocks_nothing(writer: Writer):
    owner, url, plain = writer
    for statement, waits in (
        ("LOCK TABLE rights.turn IN EXCLUSIVE MODE", True),
        ("SELECT rights.writing(4, 1000)", True),
        ("SELECT pg_advisory_xact_lock(hashtextextended('neyman rights', 0))", False),
    ):
        with session(plain) as connection, Ledger(owner, wait=0.3) as ledger:
            run(connection, "BEGIN")
            run(connection, statement)
            if waits:
                with pytest.raises(LedgerError, match=r"has been busy for 0\.3 s"):
                    reserve(ledger, 0)
            else:
                ledger.create(NAME, cap=1, **UNIT)
                assert reserve(ledger, 0).state == "reserved"
        stands(owner, url, 0)


def test_who_may_only_read_cannot_keep_a_writer_waiting(writer: Writer, postgres: PostgresServer):
    owner, url, _ = writer
    with session(postgres.url()) as connection:
        run(connection, "CREATE ROLE auditor LOGIN")
        run(connection, "GRANT USAGE ON SCHEMA rights TO auditor")
        run(connection, "GRANT SELECT ON ALL TABLES IN SCHEMA rights TO auditor")
    try:
        with session(postgres.url(user="auditor")) as reader:
            run(reader, "BEGIN ISOLATION LEVEL REPEATABLE READ")
            for table in ("turn", "event", "entry", "purse", "piece"):
                run(reader, f"LOCK TABLE rights.{table} IN ACCESS SHARE MODE")
                run(reader, f"SELECT count(*) FROM rights.{table}")
            with Ledger(owner, wait=2) as ledger:
                ledger.finish(reading(ledger, "1/2"), FILES)
            for statement in (
                "DO 'BEGIN LOCK TABLE rights.turn IN ROW SHARE MODE; END'",
                "SELECT * FROM rights.entry FOR KEY SHARE",
                "SELECT rights.writing(4, 1000)",
            ):
                with (
                    session(postgres.url(user="auditor")) as other,
                    pytest.raises(psycopg.errors.InsufficientPrivilege),
                ):
                    run(other, statement)
            run(reader, "ROLLBACK")
        assert Ledger(postgres.url(schema="rights", user="auditor")).verify().problems == ()
        stands(owner, url, Fraction(1, 2))
    finally:
        with session(postgres.url()) as connection:
            run(connection, "DROP OWNED BY auditor")
            run(connection, "DROP ROLE auditor")
