"""What is damage is called damage, and an error of our own is not blamed on the ledger's file."""

from __future__ import annotations

import json
import math
import os
import subprocess
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import apsw
import pytest
from test_ledger_chain import story
from typer.testing import CliRunner

from ledger_entries import FILES, NAME, UNIT, reading, reserve
from neyman import Ledger
from neyman.cli import app
from neyman.ledger import UNIT as ONE
from neyman.ledger import Checkpoint, Damage, LedgerError, audit, chain, digest, rows, validation
from neyman.ledger import ledger as book
from neyman.ledger.chain import write_checkpoint
from neyman.ledger.sqlite import location

ERRORS = [TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError, ValueError]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create(NAME, cap=1, **UNIT)
    reserve(ledger, "1/10")
    return ledger


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_our_own_in_a_transaction_is_raised_as_it_is(ledger, monkeypatch, error):
    def broken(*_: Any, **__: Any) -> Any:
        raise error("a defect of ours")

    before = ledger.checkpoint()
    with monkeypatch.context() as patch:
        for name in ("entries_of", "account_of", "situation", "entry_of", "meant", "audit"):
            patch.setattr(book, name, broken)
        for call in (
            lambda: ledger.entries(NAME),
            lambda: ledger.account(NAME),
            lambda: ledger.create("other@1", cap=1, **UNIT),
            lambda: ledger.check(NAME, charge=0, **UNIT),
            lambda: ledger.entry(1),
            lambda: ledger.begin(1),
            ledger.verify,
        ):
            with pytest.raises(error, match="a defect of ours"):
                call()
    assert ledger.checkpoint() == before
    assert ledger.verify().ok


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("step", ["_account", "_reserve", "_event_kind", "compare", "contents"])
def test_an_own_error_in_the_audit_is_no_problem_of_the_ledger(ledger, monkeypatch, error, step):
    def broken(*_: Any) -> Any:
        raise error("a defect of ours")

    monkeypatch.setattr(audit._Replay, step, broken)
    with pytest.raises(error, match="a defect of ours"):
        ledger.verify()


def test_the_command_says_that_an_error_is_ours(ledger, tmp_path, monkeypatch):
    def broken(*_: Any) -> Any:
        raise TypeError("a defect of ours")

    monkeypatch.setattr(book, "entries_of", broken)
    shown = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "ledger.db")])
    assert shown.exit_code == 1
    assert "this is an error of ours" in shown.output
    assert "damaged" not in shown.output


# Damage


def test_rows_of_other_types_are_damage():
    assert rows.typed((1, "a", b"x", None), (int, str, bytes, str | None)) == (1, "a", b"x", None)
    for value, kind in (
        (None, int),
        ("1", int),
        (1.0, int),
        (2**63 - 1, int),
        (-(2**63), int),
        (b"a", str),
        (1, str),
        ("a", bytes),
        (1, str | None),
    ):
        with pytest.raises(Damage, match="value 1 of a row is"):
            rows.typed((value,), (kind,))


@pytest.mark.parametrize(
    "text", ["", "1", "1/0", "1/3/5", "a/b", "1e9/1", " 1/2", "1/-2", "9" * 5000 + "/1", "1.5/2"]
)
def test_an_amount_that_no_ledger_writes_is_damage(text: str):
    with pytest.raises(Damage):
        rows.rational(text)
    assert rows.rational("-7/3") == Fraction(-7, 3)


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "null", '"a"', "1", "[" * 100_000, "9" * 5000, '{"a":NaN']
)
def test_a_line_that_is_no_event_is_damage(line: str):
    with pytest.raises(Damage):
        rows.fields(line)


STRANGE = [None, True, 1.5, [], {}, "x", -1, 2**70]


def rewritten(path: Path, kind: str, name: str, value: Any) -> None:
    """Give the first event of a kind another value, and write hashes that fit."""
    raw = apsw.Connection(str(path))
    rules = list(raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
    for rule, _ in rules:
        raw.execute(f"DROP TRIGGER {rule}")
    previous, done = "0" * 64, False
    for number, line in raw.execute("SELECT number, line FROM event ORDER BY number").fetchall():
        content = json.loads(str(line)) | {"previous": previous}
        if content["kind"] == kind and not done:
            content[name], done = value, True
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        previous = digest(text)
        query = "UPDATE event SET line = ?, hash = ? WHERE number = ?"
        raw.execute(query, (text, previous, number))
    for _, rule in rules:
        raw.execute(str(rule))
    raw.close()


FIELDS = {
    "ledger": ["id", "kind", "number"],
    "account": ["dataset", "parts", "cap", "units", "rows", "currency", "delta_units", "approval"],
    "allocation": ["dataset", "to", "of", "cap", "units"],
    "reserve": [
        "entry", "dataset", "to", "part", "key", "charge", "units", "plan", "mechanisms", "when",
        "delta",
    ],
    "begin": ["entry"], "finish": ["entry", "published", "files", "digest", "when"],
    "void": ["entry"], "edition": ["dataset", "subject"],
    "approve": ["dataset", "subject", "who"], "revoke": ["dataset", "subject", "who"],
    "correct": ["dataset", "subject", "entry", "why"], "withdraw": ["dataset", "subject", "why"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in FIELDS for name in FIELDS[k]])
def test_an_event_with_an_odd_value_is_found_and_ends_no_method_in_a_defect(tmp_path, kind, name):
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.create(NAME, cap=1, **UNIT)
        ledger.allocate(NAME, "team", cap="1/2")
        ledger.finish(reading(ledger, "1/10", "k", account="team"), FILES)
        ledger.void(reserve(ledger, "1/10"))
        ledger.create("all@1", cap=1, **UNIT)
        ledger.join(NAME, "all@1")
        ledger.finish(reading(ledger, 0, "l"), FILES, corrects=1, why="a slip")
        ledger.withdraw(3, "a slip")
        ledger.approve(NAME, "m", plan="m", who="a person")
        ledger.revoke(NAME, "m", who="a person")
    content = path.read_bytes()
    for value in STRANGE:
        path.write_bytes(content)
        rewritten(path, kind, name, value)
        with Ledger(path) as ledger:
            problems = ledger.verify().problems
            # Another text, or no part, may be what was meant.
            assert problems or value == "x" or (name, value) == ("parts", [])
            for call in (
                ledger.datasets,
                lambda: ledger.entries(NAME),
                lambda: ledger.allocations(NAME),
                lambda: ledger.published(NAME, "k"),
                lambda: ledger.sequels(1),
                lambda: ledger.approval(NAME, "m"),
                lambda: ledger.create(NAME, cap=1, **UNIT),
                lambda: ledger.allocate(NAME, "team", cap="1/2"),
                lambda: reserve(ledger, "1/100"),
                ledger.checkpoint,
            ):
                with suppress(LedgerError):
                    call()
        shown = CliRunner().invoke(app, ["ledger", "history", str(path)])
        assert shown.exit_code in (0, 2), shown.output


# Checkpoints and file systems


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_checkpoint_in_a_folder_that_is_locked_by_others_is_an_error_in_words(tmp_path: Path):
    import fcntl

    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match=r"locked its folder for 0.1 s"):
            write_checkpoint(tmp_path / "kept", Checkpoint("0" * 32, 1, "0" * 64), wait=0.1)
    finally:
        os.close(handle)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_file_never_moves_back(tmp_path: Path):
    one, two = (Checkpoint("ab" * 16, n, f"{n:064x}") for n in (7, 8))
    for product in (two, one):
        write_checkpoint(tmp_path / "kept", product)
    write_checkpoint(tmp_path / "kept", Checkpoint(two.ledger, two.events, "f" * 64))
    assert Checkpoint.load(tmp_path / "kept") == two
    with pytest.raises(LedgerError, match="of another ledger"):
        write_checkpoint(tmp_path / "kept", Checkpoint("cd" * 16, 9, "0" * 64))
    with pytest.raises(LedgerError, match="cannot be written"):
        write_checkpoint(tmp_path / "nowhere" / "kept", one)


def test_the_file_system_is_told_as_the_system_tells_it(tmp_path: Path):
    for path in (tmp_path, Path("/proc"), Path("/")):
        answer = subprocess.run(
            ["df", "--output=fstype", path], capture_output=True, text=True, check=True
        )
        assert location.filesystem(path) in (answer.stdout.split()[1], "proc")


def test_network_file_systems_are_told_by_the_longest_mount():
    mounts = (
        "22 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n"
        "40 22 0:40 / /mnt/a rw - tmpfs x rw\n"
        "41 22 0:41 / /mnt/a rw - nfs4 host:/x rw\n"
        "42 41 0:42 / /mnt/a/with\\040space rw shared:3 master:1 - fuse.sshfs me@host: rw\n"
        "garbage\n"
    )
    for path, kind in {
        "/ledger.db": "ext4",
        "/mnt/ab/ledger.db": "ext4",
        "/mnt/a/ledger.db": "nfs4",
        "/mnt/a/with space/x/ledger.db": "fuse.sshfs",
    }.items():
        assert location.filesystem(Path(path), mounts) == kind
    assert location.filesystem(Path("/x"), "") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.new"])
def test_network_file_systems_are_refused(ledger: Ledger, tmp_path: Path, monkeypatch, kind: str):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/a rw\n41 22 0:41 / {tmp_path} rw - {kind} x rw\n"
    )
    monkeypatch.setattr(location, "_MOUNTS", mounts)
    ledger.close()
    with pytest.raises(LedgerError, match=rf"network file system \({kind}\).*local disk"):
        ledger.datasets()
    with pytest.raises(LedgerError, match="network file system"):
        Ledger(tmp_path / "new.db").create("census@1", cap=1, **UNIT)
    assert not (tmp_path / "new.db").exists()


def test_a_clock_set_back_changes_nothing(place: str, monkeypatch: pytest.MonkeyPatch):
    times = iter(f"{year}-01-01T00:00:00.000+00:00" for year in range(2090, 1970, -1))
    monkeypatch.setattr(chain, "now_utc", lambda: next(times))
    monkeypatch.setattr(validation, "now_utc", lambda: next(times))
    ledger = story(Ledger(place))
    when = [json.loads(line)["when"] for line in ledger.lines()]
    assert when == sorted(when, reverse=True)
    assert ledger.verify(ledger.checkpoint()).ok
    states = [entry.state for entry in ledger.entries(NAME)]
    assert states == ["released", "reading", "reading", "void", "reserved"]
    charged = Fraction(math.ceil(Fraction(ONE, 17)), ONE)
    assert ledger.account(NAME).spent == charged + Fraction(1, 7) + Fraction(1, 10)
