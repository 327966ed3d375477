"""The ledger's SQLite file: where it may be, how it is opened, and what it refuses by itself."""

from __future__ import annotations

import gc
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import apsw
import pytest

from ledger_entries import FILES, UNIT, confirmed, reading, reserve
from neyman import Ledger
from neyman.ledger import LedgerError, SQLiteFile


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("census@1", cap="2.63", delta_cap="1/1000", **UNIT)
    return ledger


def raw(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)


def test_a_url_that_is_no_path_is_refused():
    for url in ("mysql://host/db", "sqlite:///ledger.db", "", ":memory:", "a\0b"):
        with pytest.raises(ValueError, match="url"):
            Ledger(url)
    with pytest.raises(ValueError, match="url begins with 'mysql': supported are the path of"):
        Ledger("mysql://host/db")
    with pytest.raises(ValueError, match="wait"):
        Ledger("ledger.db", wait=-1)


def test_a_ledger_opens_when_asked(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger.db")
    assert not ledger.exists()
    with pytest.raises(LedgerError, match=r"no ledger at .*ledger\.db.*neyman ledger create"):
        ledger.datasets()
    assert os.listdir() == []
    monkeypatch.chdir("/")
    ledger.create("census@1", cap=1, **UNIT)
    assert ledger.exists()
    assert repr(ledger) == f"Ledger('{tmp_path}/ledger.db')"


def test_the_file_is_private_and_alone(ledger: Ledger, tmp_path: Path):
    reserve(ledger, 1)
    assert sorted(os.listdir(tmp_path)) == ["ledger.db", "ledger.db-shm", "ledger.db-wal"]
    for name in os.listdir(tmp_path):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600
    ledger.close()
    assert os.listdir(tmp_path) == ["ledger.db"]
    other = Ledger(tmp_path / "ledger.db")
    reserve(other, 1, "another")
    del other
    gc.collect()
    assert os.listdir(tmp_path) == ["ledger.db"]
    assert stat.S_IMODE(os.stat(tmp_path / "ledger.db").st_mode) == 0o600


def test_writes_are_made_durable(ledger: Ledger):
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) > (3, 51, 2)
    with ledger._store.writing() as db:
        assert db.rows("PRAGMA journal_mode") == [("wal",)]
        assert db.rows("PRAGMA synchronous") == [(2,)]
        assert db.rows("PRAGMA foreign_keys") == [(1,)]


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "text").write_text("x" * 5000)
    (tmp_path / "short").write_text("hi")
    (tmp_path / "empty").touch()
    raw_other = apsw.Connection(str(tmp_path / "other"))
    raw_other.execute("CREATE TABLE t (a)")
    raw_other.close()
    os.mkdir(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    before = {n: (tmp_path / n).read_bytes() for n in ("text", "short", "empty", "other")}
    for name in (*before, "folder", "pipe"):
        ledger = Ledger(tmp_path / name)
        says = "a ledger is a file" if name in ("folder", "pipe") else "is not a Neyman ledger"
        with pytest.raises(LedgerError, match=says):
            ledger.datasets()
        with pytest.raises(LedgerError, match=says):
            ledger.create("census@1", cap=1, **UNIT)
    assert {n: (tmp_path / n).read_bytes() for n in before} == before
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "folder", "pipe"])


@pytest.mark.parametrize("version", [3, 5])
def test_a_ledger_of_another_format_is_refused_and_left_alone(ledger, tmp_path, version):
    ledger.close()
    other = raw(tmp_path / "ledger.db")
    other.execute(f"PRAGMA user_version = {version}")
    other.close()
    before = (tmp_path / "ledger.db").read_bytes()
    refused = f"has ledger format {version}, and this version of neyman reads 4: nothing was chang"
    more = lambda: ledger.create("census@1", cap=1, **UNIT)  # noqa: E731
    for call in (ledger.datasets, more, ledger.verify, ledger.confirm_location):
        with pytest.raises(LedgerError, match=refused):
            call()
    assert (tmp_path / "ledger.db").read_bytes() == before


def test_a_damaged_ledger_is_refused(ledger: Ledger, tmp_path: Path):
    reserve(ledger, 1)
    ledger.close()
    content = bytearray((tmp_path / "ledger.db").read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    (tmp_path / "ledger.db").write_bytes(content)
    with pytest.raises(LedgerError, match="is damaged"):
        reserve(ledger, 1, "another")


def test_a_file_that_only_says_that_it_is_a_ledger_is_damaged(tmp_path: Path):
    half = apsw.Connection(str(tmp_path / "half.db"))
    half.execute("PRAGMA application_id = 0x4E65796D; PRAGMA user_version = 4; CREATE TABLE t (a)")
    half.close()
    with Ledger(tmp_path / "half.db") as book:
        more = lambda: book.create("census@1", cap=1, **UNIT)  # noqa: E731
        for call in (book.datasets, more, book.verify, book.confirm_location):
            with pytest.raises(LedgerError, match=r"is damaged \(no such table"):
                call()


def test_tables_that_are_missing_or_foreign_are_found(ledger: Ledger, tmp_path: Path):
    other = raw(tmp_path / "ledger.db")
    other.execute("CREATE TABLE t (a); DROP TABLE piece")
    other.close()
    problems = ledger.verify().problems
    assert "the table t is none of the ledger's" in problems
    assert "the table piece is missing" in problems
    assert "no such table: piece" in problems[-1]


def test_a_folder_that_is_not_there(tmp_path: Path):
    with pytest.raises(LedgerError, match=r"in the folder .*/nowhere: No such file"):
        Ledger(tmp_path / "nowhere" / "ledger.db").create("census@1", cap=1, **UNIT)


def test_a_log_without_its_ledger_is_not_replayed_into_a_new_one(ledger: Ledger, tmp_path: Path):
    """SQLite would take the log of a deleted ledger for the new one's; making one is refused."""
    reader = raw(tmp_path / "ledger.db")  # an open connection keeps the log in place
    reader.execute("SELECT * FROM entry").fetchall()
    reserve(ledger, 1)
    log = (tmp_path / "ledger.db-wal").read_bytes()
    reader.close()
    ledger.close()
    os.unlink(tmp_path / "ledger.db")
    (tmp_path / "ledger.db-wal").write_bytes(log)
    with pytest.raises(LedgerError, match=r"ledger\.db-wal is left of a ledger that is gone"):
        ledger.create("census@1", cap=1, **UNIT)
    assert not ledger.exists()


def test_a_ledger_with_two_names_is_refused_by_both(ledger: Ledger, tmp_path: Path):
    os.link(tmp_path / "ledger.db", tmp_path / "other.db")
    for book in (ledger, Ledger(tmp_path / "ledger.db"), Ledger(tmp_path / "other.db")):
        with pytest.raises(LedgerError, match=r"2 names \(hard links\)"):
            reserve(book, 1)
    os.unlink(tmp_path / "other.db")
    reserve(ledger, 1)
    assert ledger.account("census@1").spent == 1


def test_the_name_that_a_killed_creation_left_is_taken_away(ledger: Ledger, tmp_path: Path):
    left, foreign = tmp_path / ".ledger.db.a1b2c3_4", tmp_path / ".ledger.db.abcdefgh"
    os.link(tmp_path / "ledger.db", left)
    foreign.write_text("another file of that form")
    reserve(ledger, 1)
    assert not left.exists()
    assert foreign.exists()


# Connections


def test_a_version_of_sqlite_that_loses_writes_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(LedgerError, match="can lose a committed write"):
        Ledger(tmp_path / "ledger.db").create("d@1", cap=1, **UNIT)


def test_another_file_in_its_place_is_opened_anew(ledger: Ledger, tmp_path: Path):
    reserve(ledger, 1)
    os.rename(tmp_path / "ledger.db", tmp_path / "moved.db")
    with pytest.raises(LedgerError, match="there is no ledger at"):
        ledger.datasets()
    other = Ledger(tmp_path / "other.db")
    other.create("other@1", cap=1, **UNIT)
    other.close()
    os.rename(tmp_path / "other.db", tmp_path / "ledger.db")
    for left in ("ledger.db-wal", "ledger.db-shm"):
        if (tmp_path / left).exists():
            os.unlink(tmp_path / left)
    with pytest.raises(LedgerError, match="is not where this ledger belongs"):
        ledger.datasets()
    confirmed(tmp_path / "ledger.db")
    assert [a.dataset for a in ledger.datasets()] == ["other@1"]


def test_a_ledger_travels_as_its_address(ledger: Ledger):
    reserve(ledger, 1)
    there = pickle.loads(pickle.dumps(ledger))
    assert there.account("census@1") == ledger.account("census@1")


FORKED = """
import json, os, sys, threading
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import LedgerError
ledger = Ledger(sys.argv[1])
unit = dict(protects="person", neighboring="replace-one", rows=1, mechanisms=[], plan="{}")
ledger.reserve("census@1", key="parent", charge="0.01", **unit)
inside, done = threading.Event(), threading.Event()
def hold():
    with ledger._store.reading():
        inside.set()
        done.wait()
if sys.argv[2] == "busy":
    threading.Thread(target=hold).start()
    inside.wait()
out, into = os.pipe()
child = os.fork()
if child == 0:
    try:
        ledger.reserve("census@1", key="child", charge="0.01", **unit)
        said = "done"
    except LedgerError as error:
        said = str(error)
    os.write(into, said.encode())
    sys.stdout.close()
    os._exit(0) if len(sys.argv) > 3 else sys.exit(0)
os.close(into)
said = os.read(out, 1000).decode()
done.set()
ledger.reserve("census@1", key="parent again", charge="0.01", **unit)
print(json.dumps([said, os.waitpid(child, 0)[1], len(ledger.entries("census@1"))]))
"""


def test_a_forked_process_opens_connections_of_its_own(ledger: Ledger, tmp_path: Path):
    """SQLite's locks do not survive a fork: nothing is open over one, and all three spends stand.

    Where a thread uses the ledger just then, the child is refused, and the parent goes on.
    """
    for number, (how, entries) in enumerate((("idle", 3), ("busy", 2)), 1):
        path = tmp_path / f"{number}.db"
        book = Ledger(path)
        book.create("census@1", cap=1, **UNIT)
        book.close()
        done = subprocess.run(
            [sys.executable, "-c", FORKED, str(path), how], capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said, status, result = json.loads(done.stdout)
        assert (status, result) == (0, entries)
        assert said == "done" if how == "idle" else "forked while a thread was using" in said
        assert book.verify().problems == ()
        assert book.account("census@1").spent == Fraction(entries, 100)


def test_threads_keep_no_more_connections_than_they_use(ledger: Ledger):
    store = ledger._store
    assert isinstance(store, SQLiteFile)
    for number in range(5):
        thread = threading.Thread(target=reserve, args=(ledger, "0.01", f"key {number}"))
        thread.start()
        thread.join()
    assert len(store._idle) == 1


# Tampering

ENTRY = "id, dataset, holder, part, key, state, charge, delta, event, ended"
PURSE = "dataset, holder, part, parent, event, cap, delta_cap, spent, spent_delta, entries"


@pytest.mark.parametrize("statement", [
    "DELETE FROM event WHERE number = 3",
    "DELETE FROM entry",
    "DELETE FROM account",
    "DELETE FROM purse",
    "DELETE FROM above",
    "DELETE FROM piece",
    "DELETE FROM publication",
    "DELETE FROM note",
    "UPDATE note SET subject = 'census@1'",
    "INSERT INTO note SELECT max(number), 'edition', 'census@1', 'all@1' FROM event",
    "INSERT OR REPLACE INTO note SELECT event, 'edition', 'all@1', 'census@1' FROM note",
    "UPDATE purse SET spent = 0 WHERE dataset = 'all@1'",
    "UPDATE event SET line = '{}'",
    "UPDATE event SET hash = 'x' WHERE number = 1",
    "UPDATE above SET ancestor = 'nobody'",
    "UPDATE entry SET charge = 0",
    "UPDATE entry SET delta = 0",
    "UPDATE entry SET key = 'other'",
    "UPDATE entry SET dataset = 'other@1'",
    "UPDATE entry SET event = 1",
    "UPDATE entry SET id = 17",
    "UPDATE entry SET state = 'reserved', ended = NULL WHERE id = 1",
    "UPDATE entry SET state = 'released' WHERE id = 2",
    "UPDATE entry SET state = 'void', ended = 1 WHERE id = 1",
    "UPDATE entry SET state = 'refunded' WHERE id = 2",
    "UPDATE purse SET cap = cap + 1",
    "UPDATE purse SET delta_cap = delta_cap + 1",
    "UPDATE purse SET spent = 0",
    "UPDATE purse SET spent = cap + 1, entries = entries + 1",
    "UPDATE purse SET spent = -1, entries = entries - 1",
    "UPDATE piece SET content = x'00'",
    "UPDATE publication SET entry = 2",
    "INSERT INTO event VALUES (1, '{}', 'x')",
    "INSERT INTO event VALUES (77, '{}', 'x')",
    "INSERT INTO event SELECT max(number) + 1, '{}', hash FROM event",
    "INSERT INTO event SELECT max(number) + 1, 'no JSON', hash FROM event",
    "INSERT INTO event SELECT max(number) + 1, line, hash FROM event",
    "INSERT INTO event SELECT max(number) + 1, json_set(line, '$.number', number + 1,"
    " '$.previous', hash), hash FROM event",
    f"INSERT INTO entry ({ENTRY}) SELECT 9223372036854775807, 'census@1', '', '', 'k',"
    " 'reserved', 0, 0, max(number), NULL FROM event",
    f"INSERT INTO entry ({ENTRY}) SELECT 3, 'census@1', '', '', 'k', 'reserved', 0, 0,"
    " max(number), NULL FROM event",
    "UPDATE entry SET state = 'released', ended = event WHERE id = 2",
    "INSERT INTO publication VALUES ('census@1', 'another', 2, 'x')",
    "INSERT OR REPLACE INTO event VALUES (2, '{}', 'x')",
    f"INSERT OR REPLACE INTO entry ({ENTRY}) VALUES"
    " (1, 'census@1', '', '', 'k', 'reserved', 0, 0, 1, NULL)",
    f"INSERT INTO entry ({ENTRY}) VALUES"
    " (9, 'census@1', '', '', 'k', 'reserved', -1, 0, 1, NULL)",
    f"INSERT INTO entry ({ENTRY}) VALUES (9, 'census@1', '', '', 'k', 'released', 1, 0, 1, 1)",
    f"INSERT INTO entry ({ENTRY}) VALUES"
    " (9, 'census@1', 'nobody', '', 'k', 'reserved', 1, 0, 1, NULL)",
    f"INSERT INTO entry ({ENTRY}) VALUES"
    " (9, 'census@1', '', '', 'k', 'reserved', 1174773600001, 0, 1, NULL)",
    f"INSERT INTO entry ({ENTRY}) VALUES"
    " (9, 'census@1', '', '', 'k', 'reserved', 0, 720720000000001, 1, NULL)",
    "INSERT OR REPLACE INTO account VALUES"
    " ('census@1', 'person', 'replace-one', 1, 'zcdp', '[]', '', 1)",
    f"INSERT OR REPLACE INTO purse ({PURSE}) VALUES"
    " ('census@1', '', '', NULL, 1, 5, 5, 0, 0, 0)",
    f"INSERT INTO purse ({PURSE}) VALUES ('census@1', 'x', '', '', 1, 5, 5, 1, 0, 1)",
    f"INSERT INTO purse ({PURSE}) VALUES"
    " ('census@1', 'x', '', '', 1, 1895493600001, 0, 0, 0, 0)",
    "INSERT OR REPLACE INTO publication VALUES ('census@1', 'k', 2, 'x')",
    "INSERT OR REPLACE INTO piece VALUES (1, 'x', 'empty', 0, 0, x'00')",
    "INSERT INTO piece VALUES (1, 'x', 'more', 0, 0, x'00')",
    "INSERT OR REPLACE INTO piece (rowid, entry, attempt, path, number, zipped, content)"
    " VALUES (1, 2, 'x', 'new', 0, 0, x'00')",
])  # fmt: skip
def test_the_file_itself_refuses_tampering(ledger: Ledger, tmp_path: Path, statement: str):
    ledger.create("all@1", cap=3, **UNIT)
    ledger.join("census@1", "all@1")
    ledger.finish(reading(ledger, key="k"), FILES)
    ledger.begin(reserve(ledger, 0, "another").id)

    def all_of_it():
        return ledger.datasets(), ledger.entries("census@1"), list(ledger.lines())

    before = all_of_it()
    other = raw(tmp_path / "ledger.db")
    other.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(apsw.ConstraintError):
        other.execute(statement)
    other.close()
    assert all_of_it() == before
    assert ledger.published("census@1", "k") == (before[1][0], FILES)
    assert ledger.verify().problems == ()
