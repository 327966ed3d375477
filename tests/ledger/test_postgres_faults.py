"""PostgreSQL stopped, killed and cut off in the middle of things: nothing is overspent or doubled,
and what is said is so. Every fault is real, on a server that the test starts for itself.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Any

import psycopg
import pytest

from attacks import SIZE
from ledger_entries import NAME, UNIT, reserve
from machine import need
from neyman import Ledger
from neyman.ledger import BudgetRefused, LedgerError
from postgres_server import PostgresServer
from random_laws import is_small


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    need("postgresql")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def server(own_server: PostgresServer) -> PostgresServer:
    """It runs as it was made, and has no ledger."""
    let_answers_go(own_server)
    if own_server.process and own_server.process.poll() is None:
        own_server.stop("immediate")
    own_server.start()
    with raw(own_server) as other:
        other.execute("DROP SCHEMA IF EXISTS books CASCADE")
    return own_server


@pytest.fixture
def ledger(server: PostgresServer) -> Iterator[Ledger]:
    with Ledger(server.url("books")) as ledger:
        ledger.create(NAME, cap=100, **UNIT)
        yield ledger


@contextmanager
def raw(server: PostgresServer) -> Iterator[psycopg.Connection]:
    text = f"host={server.folder} user=neyman dbname=postgres"
    with psycopg.connect(text, autocommit=True) as connection:
        yield connection


class Doing:
    """A call in its own thread; `answer` waits for what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self.thread = threading.Thread(target=self._run, args=(call,))
        self.thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.outcome = call()
        except Exception as error:
            self.outcome = error

    def answer(self) -> Any:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.outcome


def wait_for(server: PostgresServer, event: str) -> int:
    """The server's process of a session of the ledger's that waits for ``event``."""
    query = "SELECT pid FROM pg_stat_activity WHERE wait_event = %s AND application_name = 'neyman'"
    deadline = time.monotonic() + 30
    with raw(server) as other:
        while time.monotonic() < deadline:
            if rows := other.execute(query, [event]).fetchall():
                return rows[0][0]
            time.sleep(0.01)
    raise AssertionError(f"no one came to wait for {event}")


def hold_answers(server: PostgresServer) -> None:
    """From now on a commit is done, and its answer waits for a standby that never comes."""
    with raw(server) as other:
        other.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        other.execute("SELECT pg_reload_conf()")
        while other.execute("SHOW synchronous_standby_names").fetchone() != ("nobody",):
            time.sleep(0.01)
    time.sleep(0.3)  # until the other sessions' processes have read it too


def let_answers_go(server: PostgresServer) -> None:
    settings = server.data / "postgresql.auto.conf"
    lines = settings.read_text().splitlines()
    selection = [line for line in lines if not line.startswith("synchronous_standby_names")]
    settings.write_text("\n".join(selection) + "\n")


# The answer to a commit is lost


@pytest.mark.parametrize("how", ["kill", "immediate"])
def test_a_commit_whose_answer_was_lost_with_the_server_is_found(server, ledger, how):
    reserve(ledger, key="before")
    hold_answers(server)
    doing = Doing(lambda: reserve(ledger, key="k"))
    wait_for(server, "SyncRep")
    let_answers_go(server)
    server.kill() if how == "kill" else server.stop("immediate")
    time.sleep(0.2)
    server.start()
    entry = doing.answer()
    assert (entry.id, entry.key, entry.state) == (2, "k", "reserved"), entry
    assert [e.key for e in ledger.entries(NAME)] == ["before", "k"]
    assert ledger.account(NAME).spent == 2
    assert ledger.begin(entry.id).state == "reading"
    assert ledger.verify().ok


def test_a_session_that_was_ended_in_its_commit_is_looked_up(server, ledger):
    first = reserve(ledger, key="first")
    for call, state in (
        (lambda: reserve(ledger, key="second"), "reserved"),
        (lambda: ledger.begin(first.id), "reading"),
        (lambda: ledger.void(2), "void"),
    ):
        hold_answers(server)
        doing = Doing(call)
        pid = wait_for(server, "SyncRep")
        let_answers_go(server)
        with raw(server) as other:
            other.execute("SELECT pg_terminate_backend(%s), pg_reload_conf()", [pid])
        assert doing.answer().state == state
    assert [(e.key, e.state) for e in ledger.entries(NAME)] == [
        ("first", "reading"),
        ("second", "void"),
    ]
    assert ledger.verify().ok


def test_a_server_that_stays_away_leaves_it_open_and_says_so(server: PostgresServer):
    ledger = Ledger(server.url("books"), wait=0.5)
    ledger.create(NAME, cap=100, **UNIT)
    hold_answers(server)
    doing = Doing(lambda: reserve(ledger, key="k"))
    wait_for(server, "SyncRep")
    let_answers_go(server)
    server.kill()
    error = doing.answer()
    assert isinstance(error, LedgerError)
    assert "may have been charged; run `neyman ledger history`" in str(error)
    server.start()
    assert [e.key for e in ledger.entries(NAME)] == ["k"]
    server.stop("fast")
    with pytest.raises(LedgerError, match="cannot be reached"):
        reserve(ledger)


def test_an_error_after_the_commit_is_not_taken_for_a_refusal(server, ledger):
    reserve(ledger, key="first")
    hasty = Ledger(server.url("books"), wait=0.3)
    with raw(server) as other:
        query = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'books'::regnames"
        query += "pace AND proname = 'settled'"
        ((answer,),) = other.execute(query).fetchall()
        call = "PERFORM pg_logical_emit_message(true, 'neyman', '')"
        assert call in answer
        other.execute(answer.replace(call, "RAISE EXCEPTION 'full' USING ERRCODE = '53100'"))
        for does in (lambda: reserve(hasty), lambda: hasty.begin(1)):
            with pytest.raises(LedgerError, match=r"\(full\).*may have been charged; run"):
                does()
        other.execute(answer)
    assert [e.state for e in ledger.entries(NAME)] == ["reading", "reserved"]
    hasty.close()


# The server dies before the commit


@pytest.mark.parametrize("how", ["kill", "immediate", "fast"])
def test_a_reservation_that_waits_its_turn_when_the_server_dies_is_not_charged(server, ledger, how):
    reserve(ledger, key="before")
    with suppress(psycopg.OperationalError), raw(server) as other:
        other.execute("BEGIN; LOCK TABLE books.turn IN EXCLUSIVE MODE")
        doing = Doing(lambda: reserve(ledger))
        wait_for(server, "relation")
        server.kill() if how == "kill" else server.stop(how)
    time.sleep(0.2)
    server.start()
    error = doing.answer()
    assert isinstance(error, LedgerError)
    assert "it answers again, and nothing was written: try again" in str(error)
    assert [e.key for e in ledger.entries(NAME)] == ["before"]
    assert reserve(ledger).id == 2


def test_a_transaction_that_is_open_when_the_server_dies_leaves_nothing(server, ledger):
    for stop in (server.kill, lambda: server.stop("immediate")):
        with pytest.raises(LedgerError, match="before anything was written: try again"):
            half(ledger, stop)
        server.start()
        assert ledger._store.problems() == []
        assert ledger.verify().ok
    assert ledger.checkpoint().events == 2


def half(ledger: Ledger, stop: Callable[[], None]) -> None:
    """A transaction that comes as far as the server lives."""
    (created,) = (e for e in map(json.loads, ledger.lines()) if e["kind"] == "account")
    for name in ("kind", "number", "previous", "salt"):
        del created[name]
    with ledger._write_transaction() as write:
        ((number,),) = write.db.rows("SELECT max(number) FROM event")
        write.account({**created, "dataset": "other@1"})
        assert write.db.rows("SELECT max(number) FROM event") == [(number + 1,)]
        stop()
        write.db.rows("SELECT 1")


def test_files_that_were_being_stored_when_the_server_died_do_not_count(server, ledger, tmp_path):
    entry = reserve(ledger)
    ledger.begin(entry.id)
    (tmp_path / "big").write_bytes(random.Random(1).randbytes(40 << 20))
    with suppress(psycopg.OperationalError), raw(server) as holder, holder.transaction():
        holder.execute("LOCK TABLE books.event IN SHARE MODE")  # so that none can finish
        doing = Doing(lambda: ledger.finish(entry.id, {"big": tmp_path / "big"}))
        with raw(server) as other:
            while other.execute("SELECT count(*) FROM books.piece").fetchone() == (0,):
                assert doing.thread.is_alive(), doing.answer()
                time.sleep(0.002)
        server.kill()
    server.start()
    assert isinstance(doing.answer(), LedgerError)
    assert ledger.entry(entry.id).state == "reading"
    assert ledger.published(NAME, entry.key) is None
    ledger.finish(entry.id, {"big": tmp_path / "big"})
    published = ledger.published(NAME, entry.key)
    assert published is not None
    assert published[1]["big"] == (tmp_path / "big").read_bytes()
    assert ledger.verify().ok


# What was granted is on the disk


def test_what_was_granted_outlives_a_kill_at_once(server: PostgresServer, ledger: Ledger):
    server.stop("fast")
    server.start("wal_writer_delay=10s")
    entry = reserve(ledger)
    for call, state in (
        (lambda: reserve(ledger, key="other"), ["reserved", "reserved"]),
        (lambda: ledger.begin(entry.id), ["reading", "reserved"]),
        (lambda: ledger.finish(entry.id, {"a": b"a"}), ["released", "reserved"]),
    ):
        call()
        server.kill()
        server.start("wal_writer_delay=10s")
        assert [e.state for e in ledger.entries(NAME)] == state


def work(url: str, worker: int, say: int) -> None:
    """Reserve, begin and finish for ever, saying each thing once it has been granted."""
    ledger = Ledger(url, wait=1)
    for number in range(10_000):
        key = f"{worker}-{os.getpid()}-{number}"
        entry = reserve(ledger, "1/3", key)
        os.write(say, f"reserved {entry.id}\n".encode())
        ledger.begin(entry.id)
        os.write(say, f"reading {entry.id}\n".encode())
        ledger.finish(entry.id, {"a": key.encode() * 9000})
        os.write(say, f"released {entry.id}\n".encode())


def test_a_server_killed_at_any_moment_loses_nothing(server: PostgresServer, attempts):
    """Four writers, and the server killed under them twelve times: each grant is there, once.

    In `make test` it is killed five times.
    """
    url = server.url("books")
    ledger = Ledger(url)
    ledger.create(NAME, cap=100_000, **UNIT)
    ledger.close()
    moments, order = random.Random(1990), ["reserved", "reading", "released"]
    granted: dict[int, str] = {}
    for _ in range(5 if is_small() else 12 * SIZE):
        attempts(1)
        reading, writing = os.pipe()
        children = []
        for worker in range(4):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    with suppress(LedgerError):
                        work(url, worker, writing)
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        os.close(writing)
        with os.fdopen(reading) as stream:
            said = [stream.readline() for _ in range(moments.randint(4, 40))]
            time.sleep(moments.uniform(0, 0.01))
            server.kill() if moments.random() < 0.5 else server.stop("immediate")
            for child in children:
                assert os.waitpid(child, 0)[1] == 0, "something else than a LedgerError was raised"
            said += stream.readlines()
        for line in said:
            state, number = line.split()
            granted[int(number)] = state
        server.start()
        entries = {e.id: e for e in ledger.entries(NAME)}
        assert granted.keys() <= entries.keys(), "a granted reservation is lost"
        for number, state in granted.items():
            assert order.index(entries[number].state) >= order.index(state), "a step is lost"
        assert len(entries) == len({e.key for e in entries.values()}), "a spend is doubled"
        assert ledger.account(NAME).spent == Fraction(len(entries), 3)
        assert ledger.verify().ok
    assert len(granted) > (20 if is_small() else 50)


# Clients that die or hang


def test_a_client_that_is_killed_lets_go(ledger: Ledger):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with ledger._store.writing() as db:
                db.rows("SELECT 1")
                os.write(writing, b"x")
                time.sleep(60)
        finally:
            os._exit(0)
    os.read(reading, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert reserve(ledger).id == 1
    os.close(reading)
    os.close(writing)


def test_a_ledger_that_stays_busy_is_given_up_in_words(server: PostgresServer, ledger: Ledger):
    hasty = Ledger(server.url("books"), wait=0.2)
    with raw(server) as other:
        other.execute("BEGIN; LOCK TABLE books.turn IN EXCLUSIVE MODE")
        for call in (lambda: reserve(hasty), lambda: hasty.void(1)):
            begin = time.monotonic()
            with pytest.raises(LedgerError, match=r"has been busy for 0\.2 s.*nothing was written"):
                call()
            assert time.monotonic() - begin >= 0.2
        assert hasty.account(NAME).spent == 0
        doing = Doing(lambda: reserve(ledger))
        wait_for(server, "relation")
        other.execute("COMMIT")
    assert doing.answer().id == 1
    hasty.close()


def test_a_full_disk_finishes_nothing(server: PostgresServer, ledger: Ledger):
    entry = reserve(ledger)
    ledger.begin(entry.id)
    server.stop("fast")
    server.start(largest=20 << 20)  # the server's log is in files of 16 MiB
    big = {"big": secrets.token_bytes(30 << 20)}
    with pytest.raises(LedgerError, match=r"could not extend file.* not count"):
        ledger.finish(entry.id, big)
    assert ledger.entry(entry.id).state == "reading"
    assert ledger.published(NAME, entry.key) is None
    server.stop("fast")
    server.start()
    ledger.finish(entry.id, big)
    assert ledger.account(NAME).left == 99
    assert ledger.verify().ok


def reserve_all(ledger: Ledger, worker: int) -> int:
    number = 0
    while True:
        try:
            reserve(ledger, key=f"{worker}-{number}")
            number += 1
        except BudgetRefused:
            return number
        except LedgerError:
            time.sleep(0.05)  # it is said that nothing was written: the same key again


def test_racing_processes_and_a_dying_server_never_exceed_the_cap(server: PostgresServer):
    url = server.url("books")
    with Ledger(url) as ledger:
        ledger.create(NAME, cap=40, **UNIT)
    children = []
    for worker in range(8):
        child = os.fork()
        if child == 0:
            status = 255
            try:
                status = reserve_all(Ledger(url, wait=20), worker)
            finally:
                os._exit(status)
        children.append(child)
    time.sleep(0.05)
    server.kill()
    server.start()
    granted = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    entries = ledger.entries(NAME)
    assert sum(granted) == len(entries) == len({e.key for e in entries}) == 40
    assert ledger.account(NAME).left == 0
    assert ledger.verify().ok
