"""The ledger grants what is left, refuses the rest in words, and forgets nothing."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pickle
import re
import stat
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from neyman.release.ledger import sqlite
from neyman.release.ledger import Account, BudgetRefused, Ledger, LedgerError

UNIT = {"protects": "person", "neighboring": "replace-one", "rows": 1}
FILES = {"receipt.json": b"{}", "tables/total.csv": bytes(range(256)) * 12_000, "empty": b""}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("census@1", cap="2.63", delta_cap="1/1000", **UNIT)
    return ledger


def reserve(
    ledger: Ledger, charge: object, *, dataset: str = "census@1", key: str = "k", delta: object = 0
):
    return ledger.reserve(
        dataset,
        key=key,
        charge=charge,
        delta=delta,
        mechanisms=[{"sigma2": "4"}],
        plan="{}",
        **UNIT,
    )


def raw(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)


# What is granted


def test_amounts_are_exact():
    """Ten charges of a tenth fill a cap of one; nothing more fits, however little."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(f"{folder}/ledger.db")
        ledger.create("census@1", cap=1, **UNIT)
        for _ in range(10):
            reserve(ledger, "0.1")
        assert ledger.account("census@1").left == 0
        with pytest.raises(BudgetRefused):
            reserve(ledger, Fraction(1, 10**300))


def test_third_of_a_third(ledger: Ledger):
    """Thirds and sevenths add up as fractions, not as floats."""
    reserve(ledger, "1/3")
    reserve(ledger, Fraction(1, 7), delta="1/3000")
    account = ledger.account("census@1")
    assert account.spent == Fraction(10, 21)
    assert account.left == Fraction("2.63") - Fraction(10, 21)
    assert (account.spent_delta, account.left_delta) == (Fraction(1, 3000), Fraction(2, 3000))
    assert account.entries == len(ledger.entries("census@1")) == 2


def test_an_unfinished_entry_counts_as_spent_for_ever(ledger: Ledger):
    entry = reserve(ledger, 2)
    assert entry.state == "reserved"
    assert Ledger(ledger._store.path).account("census@1").spent == 2
    with pytest.raises(BudgetRefused):
        reserve(ledger, 1)


def test_a_key_reserved_again_is_charged_again(ledger: Ledger):
    """The noise of the first try may be out, so that a second try has a charge of its own."""
    first, second = reserve(ledger, "0.5"), reserve(ledger, "0.5")
    assert first.id != second.id
    assert ledger.account("census@1").spent == 1


def test_accounts_are_independent(ledger: Ledger):
    """Spending on one dataset version leaves the others as they were; keys do not cross."""
    ledger.create("census@2", cap=1, currency="gdp", **UNIT)
    entry = reserve(ledger, 2)
    ledger.finish(entry.id, FILES)
    assert ledger.account("census@2").left == 1
    assert ledger.published("census@2", "k") is None
    assert ledger.entries("census@2") == ()
    assert [a.dataset for a in ledger.datasets()] == ["census@1", "census@2"]


def test_what_check_admits_reserve_grants_and_check_writes_nothing(ledger: Ledger):
    before = ledger.datasets()
    assert isinstance(ledger.check("census@1", charge="2.63", delta="1/1000", **UNIT), Account)
    assert ledger.datasets() == before
    reserve(ledger, "2.63", delta="1/1000")
    with pytest.raises(BudgetRefused):
        ledger.check("census@1", charge="1/10", **UNIT)
    ledger.check("census@1", charge=0, **UNIT)


class AgainstFractions(RuleBasedStateMachine):
    """Any sequence of calls answers as a plain sum of fractions would."""

    amounts = st.fractions(min_value=0, max_value=3, max_denominator=50)

    @initialize()
    def open(self):
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(f"{self.folder.name}/ledger.db")
        self.model: dict[str, dict] = {}

    @rule(name=st.sampled_from(["a@1", "b@1"]), cap=st.fractions(1, 6, max_denominator=9))
    def create(self, name, cap):
        if name in self.model and self.model[name]["cap"] != cap:
            with pytest.raises(LedgerError, match="registered with cap"):
                self.ledger.create(name, cap=cap, delta_cap="1/2", **UNIT)
        else:
            self.ledger.create(name, cap=cap, delta_cap="1/2", **UNIT)
            self.model.setdefault(name, {"cap": cap, "entries": {}, "published": {}})

    @rule(
        name=st.sampled_from(["a@1", "b@1"]),
        key=st.sampled_from("xyz"),
        charge=amounts,
        delta=st.fractions(0, 1, max_denominator=8),
    )
    def reserve(self, name, key, charge, delta):
        if not self.model:
            return
        if name not in self.model:
            with pytest.raises(LedgerError, match="not registered"):
                reserve(self.ledger, charge, dataset=name, key=key, delta=delta)
            return
        entries = self.model[name]["entries"]
        left = self.model[name]["cap"] - sum(e["charge"] for e in entries.values())
        left_delta = Fraction(1, 2) - sum(e["delta"] for e in entries.values())
        if charge > left or delta > left_delta:
            with pytest.raises(BudgetRefused) as refusal:
                reserve(self.ledger, charge, dataset=name, key=key, delta=delta)
            of_charge = charge > left
            asked, had = (charge, left) if of_charge else (delta, left_delta)
            assert (refusal.value.requested, refusal.value.left) == (asked, had)
            assert refusal.value.difference == asked - had
            assert refusal.value.currency == ("zcdp" if of_charge else "delta")
        else:
            entry = reserve(self.ledger, charge, dataset=name, key=key, delta=delta)
            entries[entry.id] = {"key": key, "charge": charge, "delta": delta, "done": False}

    @rule(name=st.sampled_from(["a@1", "b@1"]), pick=st.integers(0, 20), content=st.binary())
    def finish(self, name, pick, content):
        account = self.model.get(name, {"entries": {}})
        if not account["entries"]:
            return
        number = sorted(account["entries"])[pick % len(account["entries"])]
        entry = account["entries"][number]
        if entry["done"]:
            with pytest.raises(LedgerError, match="finished already"):
                self.ledger.finish(number, {"a": content})
        else:
            published = account["published"].setdefault(entry["key"], (number, {"a": content}))
            assert self.ledger.finish(number, {"a": content}).id == published[0]
            entry["done"] = True

    @invariant()
    def agrees(self):
        for name, model in self.model.items():
            account = self.ledger.account(name)
            assert account.spent == sum(e["charge"] for e in model["entries"].values())
            assert account.spent_delta == sum(e["delta"] for e in model["entries"].values())
            assert account.left >= 0
            assert account.left_delta >= 0
            found = {
                e.id: {
                    "key": e.key,
                    "charge": e.charge,
                    "delta": e.delta,
                    "done": e.state == "finished",
                }
                for e in self.ledger.entries(name)
            }
            assert found == model["entries"]
            for key in "xyz":
                answer = self.ledger.published(name, key)
                expected = model["published"].get(key)
                assert (answer and (answer[0].id, answer[1])) == expected

    def teardown(self):
        self.folder.cleanup()


AgainstFractions.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAgainstFractions = AgainstFractions.TestCase


# What is published


def test_a_retry_gets_the_same_bytes(ledger: Ledger):
    """Once an entry of the key has finished, its files come back bit by bit, from a new object."""
    assert ledger.published("census@1", "k") is None
    entry = reserve(ledger, 1)
    assert ledger.published("census@1", "k") is None
    done = ledger.finish(entry.id, FILES)
    assert (done.id, done.state) == (entry.id, "finished")
    assert Ledger(ledger._store.path).published("census@1", "k") == (done, FILES)


def test_only_the_first_to_finish_is_published(ledger: Ledger):
    """The one that finishes later is spent and finished, and is told whose files count."""
    first, second = reserve(ledger, 1), reserve(ledger, 1)
    ledger.finish(second.id, {"a": b"second"})
    assert ledger.finish(first.id, {"a": b"first"}).id == second.id
    published = ledger.published("census@1", "k")
    assert published is not None
    assert (published[0].id, published[1]) == (second.id, {"a": b"second"})
    assert [e.state for e in ledger.entries("census@1")] == ["finished", "finished"]


def test_an_entry_finishes_once(ledger: Ledger):
    entry = reserve(ledger, 1)
    ledger.finish(entry.id, FILES)
    with pytest.raises(LedgerError, match="finished already"):
        ledger.finish(entry.id, {"a": b"other"})
    with pytest.raises(LedgerError, match="no entry 99"):
        ledger.finish(99, FILES)
    assert ledger.published("census@1", "k") == (ledger.entries("census@1")[0], FILES)


def test_entries_hold_what_was_said(ledger: Ledger):
    mechanisms = [{"query": "total", "sigma2": "9/4", "count": 437}]
    entry = ledger.reserve(
        "census@1", key="ab" * 32, charge=1, mechanisms=mechanisms, plan='{"schema": 1}', **UNIT
    )
    assert ledger.entries("census@1") == (entry,)
    assert entry.mechanisms == mechanisms
    assert json.loads(entry.plan) == {"schema": 1}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", entry.created)
    assert entry.finished is None
    assert hash(entry) == hash(dataclasses.replace(entry))


# What is refused, and how


@pytest.mark.parametrize(
    ("currency", "charge", "text"),
    [
        (
            "zcdp",
            3,
            "asked for 3 zCDP rho, and 2 of 2 is left: 1 too much. Noise with variance 1.5",
        ),
        ("gdp", "2.00001", "0.00001 too much. Noise with variance 1.01 times as large would fit."),
        (
            "pure",
            8000,
            "asked for 8000 epsilon, and 2 of 2 is left: 7998 too much. Noise with a sca",
        ),
        ("pure", 2001, "a scale 1010 times as large would fit."),
        ("renyi:8.0", 3, "asked for 3 Renyi epsilon at order 8"),
    ],
)
def test_a_refusal_says_what_would_fit(tmp_path: Path, currency: str, charge, text: str):
    """Asked, left, the difference, and the factor rounded up to three digits, so that it fits."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("census@1", cap=2, currency=currency, **UNIT)
    with pytest.raises(BudgetRefused, match=re.escape(text)) as refusal:
        reserve(ledger, charge)
    factor = re.search(r"(\S+) times as large", str(refusal.value))
    assert factor
    assert 2 * Fraction(factor[1]) >= refusal.value.requested
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_a_refusal_where_nothing_is_left(ledger: Ledger):
    reserve(ledger, "2.63")
    with pytest.raises(BudgetRefused, match=r"0 of 2\.63 is left: 1 too much\. Nothing would fit"):
        reserve(ledger, 1)


def test_a_refusal_for_delta(ledger: Ledger):
    with pytest.raises(BudgetRefused, match=r"A delta of at most 0\.001 would fit") as refusal:
        reserve(ledger, 1, delta="1/500")
    assert refusal.value.currency == "delta"
    assert refusal.value.difference == Fraction(1, 1000)
    assert ledger.entries("census@1") == ()


def test_an_unregistered_dataset_is_refused_and_the_registered_are_named(ledger: Ledger):
    ledger.create("other@7", cap=1, **UNIT)
    for call in (
        lambda: reserve(ledger, 1, dataset="census@2"),
        lambda: ledger.check("census@2", charge=1, **UNIT),
        lambda: ledger.account("census@2"),
        lambda: ledger.entries("census@2"),
        lambda: ledger.published("census@2", "k"),
    ):
        with pytest.raises(LedgerError, match=r"census@2 is not registered.*census@1, other@7"):
            call()


@pytest.mark.parametrize(
    "change", [{"protects": "household"}, {"neighboring": "add-remove"}, {"rows": 5}]
)
def test_another_unit_is_refused(ledger: Ledger, change: dict):
    """Nobody gets a fresh budget, or a cheaper one, by describing the same people anew."""
    with pytest.raises(LedgerError, match="registered for person, replace-one, at most 1 row,"):
        ledger.check("census@1", charge=1, **(UNIT | change))
    with pytest.raises(LedgerError, match=str(*change.values())):
        ledger.reserve("census@1", key="k", charge=1, mechanisms=[], plan="{}", **(UNIT | change))


def test_registering_again(ledger: Ledger):
    """The same terms change nothing; other terms are refused by name."""
    reserve(ledger, 1)
    same = ledger.create("census@1", cap=Fraction(263, 100), delta_cap="0.001", **UNIT)
    assert same.spent == 1
    for change in ({"cap": 3}, {"delta_cap": 0}, {"currency": "gdp"}, {"rows": 2}):
        terms = {"cap": "2.63", "delta_cap": "0.001", **UNIT, **change}
        with pytest.raises(LedgerError, match=f"registered with {next(iter(change))} = "):
            ledger.create("census@1", **terms)
    assert len(ledger.datasets()) == 1


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("dataset", "census"),
        ("dataset", "@1"),
        ("dataset", "a b@1"),
        ("dataset", "a@1@2"),
        ("dataset", "../x@1"),
        ("dataset", "a@1\n"),
        ("dataset", None),
        ("protects", ""),
        ("protects", "a\nb"),
        ("neighboring", "any"),
        ("neighboring", None),
        ("rows", 0),
        ("rows", 1.0),
        ("currency", "epsilon"),
        ("currency", "renyi"),
        ("currency", "renyi:1"),
        ("currency", "zcdp:2"),
        ("currency", None),
        ("cap", 0),
        ("cap", -1),
        ("cap", math.inf),
        ("cap", math.nan),
        ("cap", "one"),
        ("cap", True),
        ("cap", Fraction(1, 10**2000)),
        ("cap", "1e400"),
        ("cap", 10**31),
        ("delta_cap", -1),
        ("delta_cap", 1),
    ],
)
def test_bad_terms_are_refused_by_name_and_nothing_is_made(tmp_path: Path, argument: str, value):
    terms = {"dataset": "census@1", "cap": 1, **UNIT, argument: value}
    ledger = Ledger(tmp_path / "ledger.db")
    with pytest.raises((ValueError, TypeError), match=argument):
        ledger.create(**terms)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("charge", -1),
        ("charge", math.nan),
        ("charge", None),
        ("delta", "2"),
        ("delta", -0.5),
        ("key", ""),
        ("key", b"k"),
        ("mechanisms", [math.nan]),
        ("mechanisms", {1j}),
        ("plan", "{"),
        ("plan", {}),
    ],
)
def test_bad_reservations_are_refused_by_name_and_nothing_is_spent(ledger, argument, value):
    good = {"key": "k", "charge": 1, "delta": 0, "mechanisms": [], "plan": "{}"}
    with pytest.raises((ValueError, TypeError), match=argument):
        ledger.reserve("census@1", **UNIT, **(good | {argument: value}))
    assert ledger.account("census@1").entries == 0


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"": b""},
        {"/etc/passwd": b""},
        {"a/../../b": b""},
        {"./a": b""},
        {"a//b": b""},
        {"a\\b": b""},
        {"a": "text"},
        {1: b""},
    ],
)
def test_bad_files_are_refused_and_the_entry_stays_reserved(ledger: Ledger, files):
    entry = reserve(ledger, 1)
    with pytest.raises((ValueError, TypeError), match="files"):
        ledger.finish(entry.id, files)
    assert ledger.entries("census@1") == (entry,)


# The file


def test_a_url_that_is_no_path_is_refused():
    for url in ("postgresql://host/db", "sqlite:///ledger.db", "", ":memory:", "a\0b"):
        with pytest.raises(ValueError, match="url"):
            Ledger(url)
    with pytest.raises(ValueError, match="url begins with 'postgresql': supported is the path of"):
        Ledger("postgresql://host/db")
    with pytest.raises(ValueError, match="wait"):
        Ledger("ledger.db", wait=-1)


def test_a_ledger_opens_when_asked(tmp_path: Path, monkeypatch):
    """Making the object touches no file, and the folder in force then is the one that counts."""
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
    """Mode 0600, and at rest no log and no temporary file beside it."""
    reserve(ledger, 1)
    assert os.listdir(tmp_path) == ["ledger.db"]
    assert stat.S_IMODE(os.stat(tmp_path / "ledger.db").st_mode) == 0o600


def test_writes_are_made_durable(ledger: Ledger):
    """The SQLite is past the bug in resetting the log; the log is synced at each commit."""
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) > (3, 51, 2)
    with ledger._store.writing() as db:
        assert db.pragma("journal_mode") == "wal"
        assert db.pragma("synchronous") == 2


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path):
    """Text, an empty file, somebody's database, a folder, a pipe: said in words, not changed."""
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


def test_another_schema_is_refused(ledger: Ledger, tmp_path: Path):
    raw(tmp_path / "ledger.db").execute("PRAGMA user_version = 2")
    with pytest.raises(
        LedgerError, match="has ledger schema 2, and this version of neyman reads 1"
    ):
        ledger.datasets()


def test_a_damaged_ledger_is_refused(ledger: Ledger, tmp_path: Path):
    reserve(ledger, 1)
    content = bytearray((tmp_path / "ledger.db").read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    (tmp_path / "ledger.db").write_bytes(content)
    with pytest.raises(LedgerError, match="is damaged"):
        reserve(ledger, 1)


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
    os.unlink(tmp_path / "ledger.db")
    (tmp_path / "ledger.db-wal").write_bytes(log)
    with pytest.raises(LedgerError, match=r"ledger\.db-wal is left of a ledger that is gone"):
        ledger.create("census@1", cap=1, **UNIT)
    assert not ledger.exists()


def test_a_symbolic_link_leads_to_one_ledger(ledger: Ledger, tmp_path: Path):
    (tmp_path / "link.db").symlink_to(tmp_path / "ledger.db")
    reserve(Ledger(tmp_path / "link.db"), 1)
    assert ledger.account("census@1").spent == 1


def test_a_ledger_with_two_names_is_refused_by_both(ledger: Ledger, tmp_path: Path):
    os.link(tmp_path / "ledger.db", tmp_path / "other.db")
    for name in ("ledger.db", "other.db"):
        with pytest.raises(LedgerError, match=r"2 names \(hard links\)"):
            reserve(Ledger(tmp_path / name), 1)
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


def test_the_file_system_is_told_as_the_system_tells_it(tmp_path: Path):
    for path in (tmp_path, Path("/proc"), Path("/")):
        told = subprocess.run(
            ["df", "--output=fstype", path], capture_output=True, text=True, check=True
        )
        assert sqlite.filesystem(path) in (told.stdout.split()[1], "proc")


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
        assert sqlite.filesystem(Path(path), mounts) == kind
    assert sqlite.filesystem(Path("/x"), "") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.new"])
def test_network_file_systems_are_refused(ledger: Ledger, tmp_path: Path, monkeypatch, kind: str):
    """Neither made nor opened there."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/a rw\n41 22 0:41 / {tmp_path} rw - {kind} x rw\n"
    )
    monkeypatch.setattr(sqlite, "_MOUNTS", mounts)
    with pytest.raises(LedgerError, match=rf"network file system \({kind}\).*local disk"):
        ledger.datasets()
    with pytest.raises(LedgerError, match="network file system"):
        Ledger(tmp_path / "new.db").create("census@1", cap=1, **UNIT)
    assert not (tmp_path / "new.db").exists()


# Tampering

ENTRY = "id, dataset, key, state, charge, delta, mechanisms, plan, created, finished"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entry",
        "DELETE FROM account",
        "DELETE FROM piece",
        "DELETE FROM publication",
        "UPDATE entry SET charge = '0/1'",
        "UPDATE entry SET delta = '0/1'",
        "UPDATE entry SET key = 'other'",
        "UPDATE entry SET dataset = 'other@1'",
        "UPDATE entry SET mechanisms = '[]'",
        "UPDATE entry SET plan = '[]', state = 'finished', finished = 'x' WHERE id = 2",
        "UPDATE entry SET id = 17",
        "UPDATE entry SET state = 'reserved', finished = NULL WHERE id = 1",
        "UPDATE entry SET state = 'finished' WHERE id = 2",
        "UPDATE entry SET state = 'refunded' WHERE id = 2",
        "UPDATE account SET cap = '100/1'",
        "UPDATE piece SET packed = x'00'",
        "UPDATE publication SET entry = 2",
        f"INSERT OR REPLACE INTO entry ({ENTRY}) VALUES"
        " (1, 'census@1', 'k', 'reserved', '0/1', '0/1', '[]', '{}', 'x', NULL)",
        f"INSERT INTO entry ({ENTRY}) VALUES"
        " (9, 'census@1', 'k', 'reserved', '-1/1', '0/1', '[]', '{}', 'x', NULL)",
        f"INSERT INTO entry ({ENTRY}) VALUES"
        " (9, 'census@1', 'k', 'finished', '1/1', '0/1', '[]', '{}', 'x', 'x')",
        "INSERT OR REPLACE INTO account VALUES"
        " ('census@1', 'person', 'replace-one', 1, 'zcdp', '100/1', '0/1', 'x')",
        "INSERT OR REPLACE INTO publication VALUES ('census@1', 'k', 2)",
        "INSERT OR REPLACE INTO piece VALUES (1, 'empty', 0, x'00')",
        "INSERT INTO piece VALUES (1, 'more', 0, x'00')",
        "INSERT OR REPLACE INTO piece (rowid, entry, path, number, packed)"
        " VALUES (1, 2, 'new', 0, x'00')",
    ],
)
def test_the_file_itself_refuses_tampering(ledger: Ledger, tmp_path: Path, statement: str):
    """Whatever program writes: entries, accounts and published files are only ever added to."""
    ledger.finish(reserve(ledger, 1).id, FILES)
    reserve(ledger, 1, key="another")
    before = (ledger.datasets(), ledger.entries("census@1"), ledger.published("census@1", "k"))
    other = raw(tmp_path / "ledger.db")
    with pytest.raises(apsw.ConstraintError):
        other.execute(statement)
    other.close()
    after = (ledger.datasets(), ledger.entries("census@1"), ledger.published("census@1", "k"))
    assert after == before


def test_records_read_well(ledger: Ledger):
    entry = reserve(ledger, "1/3", key="0123456789abcdef", delta="0.0001")
    assert repr(ledger.account("census@1")) == (
        "<Account census@1: about 2.29667 of 2.63 zCDP rho, 0.0009 of 0.001 delta left after 1"
        " entry; person, replace-one, at most 1 row>"
    )
    assert repr(entry) == (
        f"<Entry 1 of census@1: 1/3 and delta 0.0001, reserved {entry.created}, key 0123456789ab>"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.state = "finished"  # type: ignore[misc]  # it is the assignment that must fail
