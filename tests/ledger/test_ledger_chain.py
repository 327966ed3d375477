"""The ledger's chain: what an auditor checks, what a checkpoint exposes; and no change hides."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import zlib
from itertools import islice
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attacks import SIZE
from ledger_entries import NAME, UNIT, confirmed, reserve
from neyman import Ledger
from neyman.ledger import UNIT as ONE
from neyman.ledger import Checkpoint, LedgerError

DOCS = Path(__file__).parents[2] / "docs" / "ledger.md"


def story(ledger: Ledger) -> Ledger:
    ledger.create(NAME, cap="1/2", delta_cap="1/1000", parts=("n", "s"), **UNIT)
    ledger.allocate(NAME, "team", cap="0.3")
    ledger.allocate(NAME, "alice", cap="0.2", of="team", delta_cap=0)
    ledger.create("b@1", cap=3, currency="gdp", **UNIT)
    done = ledger.begin(reserve(ledger, "1/17", "released", account="alice", part="n").id)
    ledger.finish(done.id, {"receipt.json": b"{}", "t/a.csv": b"a,b\n" * 600})
    ledger.begin(reserve(ledger, "1/7", "reading", delta="1/3000").id)
    ledger.begin(reserve(ledger, "0", "reading", again=True).id)
    ledger.void(reserve(ledger, "0.1", "void", part="s").id, "a mistake")
    reserve(ledger, "0.1", "reserved", account="team")
    return ledger


def joined(ledger: Ledger) -> Ledger:
    ledger.create("all@1", cap=1, delta_cap="1/1000", **UNIT)
    ledger.join(NAME, "all@1")
    new = ledger.begin(reserve(ledger, 0, "new", dataset="all@1").id)
    ledger.finish(new.id, {"x": b"{}"}, corrects=1, why="a slip")
    ledger.withdraw(new.id, "another slip")
    return ledger


@pytest.fixture
def ledger(place: str) -> Ledger:
    return story(Ledger(place))


# The chain


def test_lines_hold_on_to_one_another(ledger: Ledger):
    previous, kinds = "0" * 64, []
    for number, line in enumerate(ledger.lines(), 1):
        content = json.loads(line)
        assert (content["number"], content["previous"]) == (number, previous)
        assert line == json.dumps(content, sort_keys=True, separators=(",", ":"))
        assert line.isascii()
        previous = hashlib.sha256(line.encode()).hexdigest()
        kinds.append(content["kind"])
    assert kinds == [
        *("ledger", "account", "allocation", "allocation", "account"),
        *("reserve", "begin", "finish", "reserve", "begin", "reserve", "begin"),
        *("reserve", "void", "reserve"),
    ]
    assert ledger.checkpoint().head == previous


def test_a_ledger_that_nobody_touched_verifies(ledger: Ledger):
    report = ledger.verify(ledger.checkpoint())
    assert (report.problems, report.ok) == ((), True)
    assert (report.events, report.accounts, report.entries) == (15, 2, 5)


def test_the_same_plan_leaves_other_hashes_in_another_ledger(tmp_path: Path):
    heads = set()
    for name in "ab":
        ledger = Ledger(tmp_path / name)
        ledger.create(NAME, cap=1, **UNIT)
        heads |= {json.loads(line).get("salt") for line in ledger.lines()}
    assert len(heads) == 4


def auditor(ledger: Ledger, folder: Path, change=lambda lines: lines):
    """What the script in the docs says of an export."""
    match = re.search(r"```python\n(import hashlib.*?)```", DOCS.read_text(), re.S)
    assert match
    lines = change(list(ledger.lines()))
    (folder / "export.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return subprocess.run(
        [sys.executable, "-I", "-c", match[1], folder / "export.jsonl"], capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_third_party_checks_the_export_with_the_script_in_the_docs(ledger, tmp_path):
    done = auditor(joined(ledger), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "census@1  spent 359/1190 of 1/2", "census@1 team spent 27/170 of 3/10",
        "census@1 alice spent 1/17 of 1/5", "b@1  spent 0 of 3",
        "all@1  spent 359/1190 of 1", str(ledger.checkpoint()),
    ]  # fmt: skip


@pytest.mark.parametrize("change", [
    lambda lines: lines[:5] + lines[6:],
    lambda lines: [lines[0], *lines[2:]],
    lambda lines: [line.replace('"charge":"1/7"', '"charge":"1/8"') for line in lines],
    lambda lines: [line.replace('"cap":"1/2"', '"cap":"9/2"') for line in lines],
    lambda lines: [*lines[:7], lines[8], lines[7], *lines[9:]],
])  # fmt: skip
def test_the_script_in_the_docs_finds_changes(ledger, tmp_path, change):
    done = auditor(ledger, tmp_path, change)
    assert done.returncode == 1
    assert "AssertionError: broken before" in done.stderr


# Clocks and copies


def test_a_copy_made_as_the_docs_say_is_whole(tmp_path: Path):
    ledger = story(Ledger(tmp_path / "ledger.db"))
    assert "VACUUM INTO" in (DOCS.parent / "howto" / "operate-ledger.md").read_text()
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    connection.close()
    selection, lines = ledger.checkpoint(), list(ledger.lines())
    ledger.close()
    os.replace(tmp_path / "backup.db", tmp_path / "ledger.db")
    backup = Ledger(confirmed(tmp_path / "ledger.db"))
    assert backup.verify(selection).ok
    assert list(backup.lines())[:-1] == lines


# Checkpoints


def test_a_checkpoint_is_one_line(ledger: Ledger, tmp_path: Path):
    product = ledger.checkpoint()
    assert Checkpoint.parse(f" {product}\n") == product
    for text in ("", "neyman-ledger", str(product)[:-1], f"{product} x", f"x {product}"):
        with pytest.raises(ValueError, match="checkpoint = "):
            Checkpoint.parse(text)
    with pytest.raises(LedgerError, match="there is no checkpoint at"):
        Checkpoint.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(LedgerError, match="holds no checkpoint that can be read"):
        Checkpoint.load(tmp_path / "text")


def copy(path: Path, to: Path) -> None:
    """The ledger's one file, as a backup would have it."""
    assert not Path(f"{path}-wal").exists()
    shutil.copy(path, to)


def test_a_restored_backup_is_exposed(tmp_path: Path):
    """By the number of events at first, and by the hash once it was written to again."""
    path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
    ledger = story(Ledger(path))
    ledger.close()
    copy(path, backup)
    reserve(ledger, "1/100", "forgotten")
    selection = ledger.checkpoint()
    ledger.close()
    copy(backup, path)
    restored = Ledger(path)
    assert restored.verify().ok
    (problem,) = restored.verify(selection).problems
    assert "has 15 events and had 16 at the checkpoint: it was rolled back" in problem
    reserve(restored, "1/100", "another")
    (problem,) = restored.verify(selection).problems
    assert "event 16 is not the one of the checkpoint" in problem


def test_another_ledger_is_exposed(tmp_path: Path):
    selection = story(Ledger(tmp_path / "a.db")).checkpoint()
    (problem,) = story(Ledger(tmp_path / "b.db")).verify(selection).problems
    assert "another ledger was put in its place" in problem


def test_a_kept_checkpoint_moves_with_each_write_and_refuses_what_is_behind(tmp_path: Path):
    path, selection = tmp_path / "ledger.db", tmp_path / "elsewhere" / "kept"
    selection.parent.mkdir()
    story(Ledger(path)).close()
    with pytest.raises(LedgerError, match="there is no checkpoint at"):
        reserve(Ledger(path, checkpoint=selection), "0.01", "x")
    Ledger(path).keep_checkpoint(selection)
    copy(path, tmp_path / "stale.db")
    ledger = Ledger(path, checkpoint=selection)
    entry = reserve(ledger, "0.01", "x")
    assert Checkpoint.load(selection) == ledger.checkpoint()
    ledger.begin(entry.id)
    assert Checkpoint.load(selection).events == 17
    ledger.close()
    copy(tmp_path / "stale.db", path)
    for call in (
        lambda: reserve(ledger, "0.01", "y"),
        lambda: ledger.void(5),
        lambda: ledger.published(NAME, "released"),
        lambda: Ledger(path).keep_checkpoint(selection),
    ):
        with pytest.raises(LedgerError, match=r"rolled back or restored .*kept\)"):
            call()
    assert Checkpoint.load(selection).events == 17
    assert len(Ledger(path).entries(NAME)) == 5
    assert os.listdir(selection.parent) == ["kept"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_checkpoint_that_is_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "kept")
    with pytest.raises(LedgerError, match="not an ordinary file"):
        Checkpoint.load(tmp_path / "kept")


# Tampering


def naked(path: Path) -> tuple[apsw.Connection, list[str]]:
    """A connection to a copy without its rules: what someone with an editor can do."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.pragma("synchronous", "off")
    triggers = [*connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")]
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    return connection, [sql for _, sql in triggers]


def clothe(connection: apsw.Connection, triggers: list[str]) -> None:
    """Put the rules back, as someone would who hides what he did."""
    for trigger in triggers:
        connection.execute(trigger)
    connection.close()


TABLES = ("event", "account", "purse", "above", "entry", "note", "publication", "piece", "location")


@pytest.fixture(scope="module")
def ledger_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "ledger.db"
    joined(story(Ledger(path))).close()
    return path.rename(path.with_name("whole.db"))  # so that its copies may be confirmed


def everything(connection: apsw.Connection) -> dict[str, list]:
    return {t: sorted(connection.execute(f"SELECT * FROM {t}"), key=repr) for t in TABLES}


def content(connection: apsw.Connection) -> dict[str, list]:
    """Everything that counts, files unzipped: a file can be zipped in more than one way.

    Pieces of an entry that is still reading are an unfinished attempt's, and publish nothing.
    """
    rows = everything(connection)
    reading = {key for (key,) in connection.execute("SELECT id FROM entry WHERE state = 'reading'")}
    published = [row for row in rows["piece"] if row[0] not in reading]
    rows["piece"] = [(*row[:4], unzipped(*row[4:])) for row in published]
    return rows


def unzipped(zipped: int, piece: bytes) -> bytes:
    try:
        return zlib.decompress(piece) if zipped else piece
    except zlib.error:
        return b"damaged"


def test_the_rules_taken_off_are_found(ledger_file: Path, tmp_path: Path):
    copy(ledger_file, tmp_path / "ledger.db")
    confirmed(tmp_path / "ledger.db")
    connection, triggers = naked(tmp_path / "ledger.db")
    result = Ledger(tmp_path / "ledger.db").verify().problems
    assert "the trigger entry_charged is missing" in result
    clothe(connection, triggers)
    assert Ledger(tmp_path / "ledger.db").verify().ok


@settings(max_examples=120 * SIZE, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_change_of_any_value_is_found(ledger_file: Path, tmp_path_factory, attempts, data):
    attempts(1)
    path = tmp_path_factory.mktemp("changed") / "ledger.db"
    copy(ledger_file, path)
    with Ledger(confirmed(path)) as ledger:
        selection = ledger.checkpoint()
    connection, triggers = naked(path)
    before, was = everything(connection), content(connection)
    table = data.draw(st.sampled_from(TABLES))
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    row = data.draw(st.sampled_from(before[table]))
    where = " AND ".join(f"{column} IS ?" for column in columns)
    kind = data.draw(st.sampled_from(["change", "change", "change", "delete", "insert"]))
    place = data.draw(st.integers(0, len(columns) - 1))
    new = data.draw(changed(row[place]))
    try:
        if kind == "delete":
            connection.execute(f"DELETE FROM {table} WHERE {where}", row)
        elif kind == "change":
            connection.execute(
                f"UPDATE {table} SET {columns[place]} = ? WHERE {where}", (new, *row)
            )
        else:
            marks = ", ".join("?" * len(columns))
            fresh = (*row[:place], new, *row[place + 1 :])
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", fresh)
    except (apsw.ConstraintError, apsw.MismatchError):
        pass  # a CHECK or a key refuses it, even without the triggers
    same = content(connection) == was
    clothe(connection, triggers)
    try:
        ok = Ledger(path).verify(selection).ok
    except LedgerError:
        assert table == "location"  # then it is not even opened
        ok = False
    assert ok == same


def changed(value: object) -> st.SearchStrategy:
    """Another value of the same kind, mostly a near one."""
    if value is None:
        return st.integers(1, 15)
    if isinstance(value, int):
        return st.sampled_from([value + 1, max(0, value - 1), 0, 1]) | st.integers(0, 10**18)
    if isinstance(value, bytes):
        return st.integers(0, len(value) - 1).map(
            lambda i: value[:i] + bytes([value[i] ^ 1]) + value[i + 1 :]
        )
    text = str(value)
    near = st.integers(0, len(text)).map(lambda i: f"{text[:i]}0{text[i + 1 :]}")
    return near | st.sampled_from(["", "void", "reading", "released", "n", "s", "team", "{}"])


def test_reading_a_ledger_with_a_page_of_zeros_comes_to_an_end(tmp_path: Path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as book:
        book.create(NAME, cap=1, **UNIT)
        for i in range(30):
            reserve(book, "1/100", f"k{i}")
        events = sum(1 for _ in book.lines())
    file = path.read_bytes()
    cut = circles = 0
    for start in range(0, len(file), 1024):
        path.write_bytes(file[:start] + bytes(4096) + file[start + 4096 :])
        try:
            with Ledger(path) as book:
                read = sum(1 for _ in islice(book.lines(), 2 * events))
        except LedgerError as error:
            cut, circles = cut + 1, circles + ("follows" in str(error))
        else:
            assert read <= events
    assert cut
    assert circles


def test_a_change_of_any_byte_is_found(ledger_file: Path, tmp_path: Path, attempts):
    path = tmp_path / "ledger.db"
    copy(ledger_file, path)
    file = confirmed(path).read_bytes()
    connection = apsw.Connection(str(path))
    before = content(connection)
    connection.close()
    pick, result, harmless = random.Random(8), 0, 0
    attempts(120 * SIZE)
    for _ in range(120 * SIZE):
        place = pick.randrange(len(file))
        flipped = bytes([file[place] ^ 1 << pick.randrange(8)])
        path.write_bytes(file[:place] + flipped + file[place + 1 :])
        ledger = Ledger(path)
        try:
            ok = ledger.verify().ok
        except LedgerError:
            ok = False
        ledger.close()
        for left in ("-wal", "-shm"):
            Path(f"{path}{left}").unlink(missing_ok=True)
        if ok:
            assert content(apsw.Connection(str(path))) == before
        harmless, result = harmless + ok, result + (not ok)
    assert result > 20  # the others are unused space, or said twice


def test_a_chain_written_anew_is_found_by_a_checkpoint_only(ledger_file: Path, tmp_path: Path):
    copy(ledger_file, tmp_path / "whole.db")
    with Ledger(confirmed(tmp_path / "whole.db")) as ledger:
        selection = ledger.checkpoint()
    forged = Ledger(tmp_path / "ledger.db")
    forged.create(NAME, cap="1/2", **UNIT)
    assert forged.verify().ok
    forged.close()
    connection, triggers = naked(tmp_path / "ledger.db")
    ((line,),) = connection.execute("SELECT line FROM event WHERE number = 1").fetchall()
    content = json.loads(str(line)) | {"id": selection.ledger}
    lines = [content, *map(json.loads, list(forged.lines())[1:])]
    previous = "0" * 64
    for number, content in enumerate(lines, 1):
        text = json.dumps(content | {"previous": previous}, sort_keys=True, separators=(",", ":"))
        previous = hashlib.sha256(text.encode()).hexdigest()
        connection.execute(
            "UPDATE event SET line = ?, hash = ? WHERE number = ?", (text, previous, number)
        )
    clothe(connection, triggers)
    forged = Ledger(tmp_path / "ledger.db")
    assert forged.verify().ok
    assert not forged.verify(selection).ok


@pytest.mark.parametrize(("change", "said"), [
    ({"charge": "-1/1"}, "gives back what was spent"), ({"units": 7}, "counts its charge as 7"),
    ({"charge": "9/1", "units": 9 * ONE}, f"spends more of {NAME} than its cap"),
    ({"part": "n"}, f"spends of {NAME}, which has no part 'n'"),
    ({"number": 5}, "events are missing"),
    ({"kind": "ledger"}, "of the kind 'ledger', which no ledger writes"),
    ({}, "is not written as events are"),
])  # fmt: skip
def test_an_event_that_no_ledger_writes_is_found_though_its_hash_fits(tmp_path, change, said):
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.create(NAME, cap=1, **UNIT)
        reserve(ledger, 1)
    connection, triggers = naked(tmp_path / "ledger.db")
    ((number, line),) = connection.execute("SELECT max(number), line FROM event").fetchall()
    form = (",", ":") if change else (", ", ": ")
    text = json.dumps(json.loads(str(line)) | change, sort_keys=True, separators=form)
    row = (text, hashlib.sha256(text.encode()).hexdigest(), number)
    connection.execute("UPDATE event SET line = ?, hash = ? WHERE number = ?", row)
    clothe(connection, triggers)
    problems = Ledger(tmp_path / "ledger.db").verify().problems
    assert any(said in problem for problem in problems), problems


def test_changed_files_are_not_handed_out(ledger_file: Path, tmp_path: Path):
    path = tmp_path / "ledger.db"
    copy(ledger_file, path)
    confirmed(path)
    connection, triggers = naked(path)
    connection.execute("UPDATE piece SET content = x'7b7d0a' WHERE path = 'receipt.json'")
    clothe(connection, triggers)
    published = Ledger(path).published(NAME, "released")
    assert published is not None
    with pytest.raises(LedgerError, match=r"receipt.json of entry 1 is not what was published"):
        published[1]["receipt.json"]
    (problem,) = Ledger(path).verify().problems
    assert "files of entry 1 are not what was published: ['receipt.json']" in problem
