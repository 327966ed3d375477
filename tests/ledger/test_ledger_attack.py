"""What a hostile reader of the ledger's code tried: each of these must hold on either store."""

from __future__ import annotations

import json
import os
import random
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest

from attacks import SIZE
from ledger_entries import NAME, UNIT, confirmed, reserve
from neyman import Ledger
from neyman.ledger import BudgetRefused, Checkpoint, LedgerError


@pytest.fixture
def ledger(place: str) -> Ledger:
    ledger = Ledger(place)
    ledger.create(NAME, cap=1, **UNIT)
    return ledger


HOSTILE = [
    None, True, 1.5, 10**30, -(10**30), 2**63, b"x", [], {}, (), object(), "a\0b", "\ud800",
    "x" * 5000, "'; DROP TABLE entry; --", "%s", "?",
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: ascii(value)[:14])
def test_whatever_is_named_is_refused_in_words_that_name_it(ledger: Ledger, value: Any):
    entry = reserve(ledger, "1/10")
    calls = {
        "dataset": lambda: ledger.account(value),
        "account": lambda: ledger.check(NAME, charge=0, account=value, **UNIT),
        "part": lambda: reserve(ledger, part=value),
        "protects": lambda: reserve(ledger, protects=value),
        "neighboring": lambda: reserve(ledger, neighboring=value),
        "rows": lambda: reserve(ledger, rows=value),
        "of": lambda: ledger.allocate(NAME, "team", cap="1/2", of=value),
        "entry": lambda: ledger.begin(value),
        "files": lambda: ledger.finish(ledger.begin(entry.id).id, value),
    }
    for name, call in calls.items():
        if name == "rows" and value is True:
            continue
        with pytest.raises((LedgerError, ValueError, TypeError)) as refused:
            call()
        text = str(refused.value)
        assert not {"damaged", "bind", "SQLite", "cut off"} & set(text.split()), (name, text)
        assert len(text) < 500
    assert ledger.account(NAME).spent == Fraction(1, 10)
    assert ledger.verify().ok


@pytest.mark.parametrize("last", [1, 3, 10**30])
def test_the_last_entries_of_a_dataset_among_others(ledger: Ledger, last: int):
    ledger.create("other@1", cap=1, **UNIT)
    mine = []
    for turn in range(6):
        mine.append(reserve(ledger, "1/100", key=f"k{turn}").id)
        reserve(ledger, 0, dataset="other@1")
    assert [entry.id for entry in ledger.entries(NAME, last=last)] == mine[-last:]


def test_texts_of_a_request_that_look_like_a_line_are_texts(ledger: Ledger):
    trap = '"x","number":0,"previous":"","entry":0,'
    plan = '{"a":0,"entry":0,"number":0,"previous":""}'
    entry = reserve(ledger, "1/3", trap, plan=plan)
    *_, line = ledger.lines()
    event = json.loads(line)
    assert line == json.dumps(event, sort_keys=True, separators=(",", ":"))
    assert (event["key"], event["plan"]) == (trap, plan)
    assert (event["entry"], event["number"]) == (entry.id, len([*ledger.lines()]))
    assert len(bytes.fromhex(event["salt"])) == 8
    assert ledger.verify().ok


def test_one_step_or_several_leave_the_same(place: str, tmp_path: Path):
    plain, selection = tmp_path / "plain.db", tmp_path / "kept"
    for where in (place, str(plain)):
        Ledger(where).create(NAME, cap=1, parts=("n", "s"), delta_cap="1/10", **UNIT)
    Ledger(plain).keep_checkpoint(selection)
    observations = []
    for ledger in (Ledger(place), Ledger(plain, checkpoint=selection)):
        for key, part in (("a", ""), ("b", "n"), ("a", ""), ("c", "s")):
            reserve(ledger, "1/7", key, part=part, delta="1/91")
        with pytest.raises(BudgetRefused):
            reserve(ledger, "6/7", "d")
        assert ledger.verify().ok
        ledger.allocate(NAME, "seen", cap=1)
        rows = [(e.id, e.key, e.state, e.charge, e.delta, e.part) for e in ledger.entries(NAME)]
        observations.append((rows, ledger.account(NAME), ledger.checkpoint().events))
    assert observations[0] == observations[1]


def test_begin_and_void_race_and_one_wins(place: str):
    with Ledger(place) as ledger:
        ledger.create(NAME, cap=1, **UNIT)
        for turn in range(8):
            entry = reserve(ledger, "1/10", f"k{turn}").id
            ledger.close()
            children = []
            for what in ("begin", "void"):
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        getattr(Ledger(place), what)(entry)
                        status = 0
                    except LedgerError:
                        status = 3
                    finally:
                        os._exit(status)
                children.append(child)
            ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            assert sorted(ended) == [0, 3]
            assert ledger.entry(entry).state == ("reading" if ended[0] == 0 else "void")
        assert ledger.verify().ok


def test_an_allocation_of_the_whole_cap_is_no_more_than_it(place: str):
    ledger = Ledger(place)
    ledger.create(NAME, cap=Fraction(1, 17), delta_cap=Fraction(1, 19), **UNIT)
    product = ledger.allocate(NAME, "all", cap=Fraction(1, 17), delta_cap=Fraction(1, 19))
    assert product.cap == ledger.account(NAME).cap < Fraction(1, 17)
    with pytest.raises(BudgetRefused):
        reserve(ledger, Fraction(1, 17), account="all")


def test_random_spends_are_granted_as_fractions_say(place: str, attempts):
    draw = random.Random(16 + SIZE)
    attempts(120 * SIZE)
    parts = ("n", "s", "w")
    ledger = Ledger(place)
    ledger.create(NAME, cap=2, parts=parts, **UNIT)
    above = {"": ("",), "a": ("", "a"), "b": ("", "a", "b"), "c": ("", "c")}
    caps = {"": 2, "a": Fraction(3, 2), "b": 1, "c": 1}
    for name in "abc":
        ledger.allocate(NAME, name, cap=caps[name], of=above[name][-2])
    spent = {(holder, part): Fraction(0) for holder in above for part in parts}
    granted = 0
    for turn in range(120 * SIZE):
        to, part = draw.choice(list(above)), draw.choice(["", *parts])
        charge = Fraction(draw.randrange(1, 20), draw.choice([60, 77, 91, 130]))
        hit = [(h, p) for h in above[to] for p in ([part] if part else parts)]
        fits = all(spent[one] + charge <= caps[one[0]] for one in hit)
        try:
            reserve(ledger, charge, f"k{turn}", account=to, part=part)
            assert fits
            granted += 1
            for one in hit:
                spent[one] += charge
        except BudgetRefused:
            assert not fits
    assert granted > 10
    fields = {(h, p.name): p.spent for h in above for p in ledger.account(NAME, h).parts}
    assert fields == spent
    assert ledger.verify().ok


def test_a_checkpoint_that_moves_on_meanwhile_is_no_alarm(place, tmp_path, monkeypatch):
    selection, other = tmp_path / "kept", Ledger(place)
    other.create(NAME, cap=1, **UNIT)
    other.keep_checkpoint(selection)
    writer, reader = Ledger(place, checkpoint=selection), Ledger(place, checkpoint=selection)
    load, written = Checkpoint.load.__func__, []

    def late(cls: type[Checkpoint], path: Any) -> Checkpoint:
        if not written:
            written.append(True)
            reserve(writer, "1/10", "k")
        return load(cls, path)

    monkeypatch.setattr(Checkpoint, "load", classmethod(late))
    assert reader.published(NAME, "k") is None
    written.clear()
    assert reader.check(NAME, charge=0, **UNIT).entries == 1


def test_a_checkpoint_is_not_written_through_a_link(tmp_path: Path):
    ledger, selection, victim = Ledger(tmp_path / "l.db"), tmp_path / "kept", tmp_path / "victim"
    ledger.create(NAME, cap=1, **UNIT)
    victim.write_text("precious")
    (tmp_path / ".kept.new").symlink_to(victim)
    ledger.keep_checkpoint(selection)
    assert victim.read_text() == "precious"
    assert Checkpoint.load(selection) == ledger.checkpoint()


def test_no_holder_spends_past_the_account(ledger: Ledger):
    reserve(ledger, "1/2")
    *_, line = ledger.lines()
    reserved = json.loads(line)
    for name in ("kind", "number", "previous", "salt", "entry"):
        del reserved[name]
    units = 720_720_000_000
    with ledger._store.writing() as db:
        db.run(
            "INSERT INTO purse (dataset, holder, part, parent, event, cap, delta_cap, spent,"
            " spent_delta, entries) VALUES (?, 'free', '', '', 2, ?, 0, 0, 0, 0)",
            *(NAME, units),
        )
        db.run("INSERT INTO above (dataset, holder, ancestor) VALUES (?, 'free', 'free')", NAME)

    for holder, charge, why in (("free", Fraction(1, 2), "cap"), ("nobody", 0, "has account")):
        asked = int(charge * units) + (holder == "free")
        answer = {
            **reserved, "to": holder, "key": "x", "units": asked, "charge": f"{asked}/{units}",
        }  # fmt: skip
        with pytest.raises(LedgerError, match=why), ledger._write_transaction() as write:
            write.reserve(2, answer)
    assert ledger.account(NAME).spent == Fraction(1, 2)
    assert not ledger.verify().ok


def test_nobody_has_a_purse_in_a_part_that_was_not_declared(place: str):
    with Ledger(place) as ledger:
        ledger.create(NAME, cap=1, **UNIT)
        ledger.create("parted@1", cap=1, parts=("north", "south"), **UNIT)
        ledger.allocate("parted@1", "team", cap="1/2")
        for dataset, holder, part, parent in (
            (NAME, "", "free", None),
            ("parted@1", "", "free", None),
            ("parted@1", "", "", None),
            ("parted@1", "team", "free", ""),
            ("parted@1", "team", "", ""),
        ):
            with (
                pytest.raises(LedgerError, match="of a declared part"),
                ledger._store.writing() as db,
            ):
                db.run(
                    "INSERT INTO purse (dataset, holder, part, parent, event, cap, delta_cap,"
                    " spent, spent_delta, entries) VALUES (?, ?, ?, ?, 2, 1, 0, 0, 0, 0)",
                    *(dataset, holder, part, parent),
                )
        assert ledger.verify().ok


def test_an_entry_is_not_taken_for_another_of_its_number(tmp_path: Path):
    here, copy, aside = (tmp_path / name for name in ("here.db", "copy.db", "aside.db"))
    with Ledger(here) as ledger:
        ledger.create(NAME, cap=1, **UNIT)
    shutil.copy(here, copy)
    here.rename(aside)
    with Ledger(confirmed(aside)) as ledger, Ledger(confirmed(copy)) as other:
        mine, theirs = reserve(ledger, "1/2", "mine"), reserve(other, "1/1000", "theirs")
        assert mine.id == theirs.id
    copy.rename(here)
    confirmed(here)
    with Ledger(here) as ledger:
        for call in (lambda: ledger.begin(mine), lambda: ledger.void(mine)):
            with pytest.raises(LedgerError, match="not the charge that was reserved"):
                call()
        assert ledger.begin(theirs).state == "reading"
        with pytest.raises(LedgerError, match="not the charge that was reserved"):
            ledger.finish(mine, {"a": b"mine"})
        assert ledger.published(NAME, "theirs") is None
        assert ledger.finish(theirs, {"a": b"theirs"}).key == "theirs"
        assert ledger.verify().ok
    here.rename(copy)
    aside.rename(here)
    with Ledger(confirmed(here)) as ledger:
        assert ledger.finish(ledger.begin(mine), {"a": b"mine"}).charge == Fraction(1, 2)


def test_a_writer_with_the_rights_in_the_docs_can_run_and_cannot_take_back(writer: Any):
    owner, url, plain = writer
    with Ledger(url) as ledger:
        ledger.finish(ledger.begin(reserve(ledger, "1/2")), {"a": b"1"})
        ledger.void(reserve(ledger, "1/4", "other"))
        assert ledger.verify().ok
    evil = """CREATE TEMP TABLE t (a int); CREATE FUNCTION pg_temp.f() RETURNS trigger
        LANGUAGE plpgsql AS 'BEGIN UPDATE rights.purse SET spent = 0; RETURN NULL; END';
        CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION pg_temp.f();
        INSERT INTO t VALUES (1)"""
    borrowed = """CREATE TEMP TABLE u (dataset text, holder text, part text, charge int, delta int);
        CREATE TRIGGER g AFTER INSERT ON u FOR EACH ROW EXECUTE FUNCTION rights.moves('-1');
        INSERT INTO u VALUES ('census@1', '', '', 1, 0)"""
    for statement in (
        evil,
        borrowed,
        "UPDATE rights.purse SET spent = 0",
        "INSERT INTO rights.purse VALUES ('census@1', '', 'free', NULL, 2, 9, 0, 0, 0, 0)",
        "INSERT INTO rights.account VALUES ('fresh@1', 'person', 'any', 1, 'zcdp', '[]', 1)",
        "DELETE FROM rights.event",
    ):
        with (
            psycopg.connect(plain) as connection,
            pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.CheckViolation)),
        ):
            connection.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with Ledger(owner) as ledger:
        assert ledger.account(NAME).spent == Fraction(1, 2)
        assert ledger.verify().ok
