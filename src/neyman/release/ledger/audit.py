"""Checking a ledger: its chain is recomputed, and everything in it that follows from the chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from neyman.release.ledger.amounts import DELTA, UNIT, units_down, units_up
from neyman.release.ledger.chain import KINDS, START, Checkpoint, digest
from neyman.release.ledger.events import paged
from neyman.release.ledger.files import digest_of, stored
from neyman.release.ledger.store import Transaction

__all__ = ["Audit", "audit", "behind"]

_MOST_PROBLEMS = 50


@dataclass(frozen=True)
class Audit:
    """What was found in a ledger.

    Args:
        ledger: its id.
        events: how many there are.
        head: the hash of the last.
        accounts: how many dataset versions are registered.
        entries: how many spends there are.
        problems: what is wrong; nothing, if the ledger stands.
    """

    ledger: str
    events: int
    head: str
    accounts: int
    entries: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def with_problem(self, why: str) -> Audit:
        """The same with one more problem."""
        return replace(self, problems=(*self.problems, why))


def behind(db: Transaction, checkpoint: Checkpoint) -> str:
    """Why a ledger is not one that was at a checkpoint; "" if it may be."""
    found = db.rows("SELECT line FROM event WHERE number = ?", checkpoint.events)
    first = db.rows("SELECT line FROM event WHERE number = 1")
    try:
        own = json.loads(first[0][0])["id"]
    except (IndexError, ValueError, KeyError, TypeError):
        return "the ledger's first event is missing or damaged"
    if own != checkpoint.ledger:
        return (
            f"this is the ledger {own}, and the checkpoint is of {checkpoint.ledger}: another"
            " ledger was put in its place, or the wrong one was named"
        )
    if not found:
        ((last,),) = db.rows("SELECT max(number) FROM event")
        return (
            f"the ledger has {last} events and had {checkpoint.events} at the checkpoint: it was"
            " rolled back or restored from a backup, and has forgotten spends; bring back the"
            " newest copy, or count as spent all that was released since"
        )
    if digest(found[0][0]) != checkpoint.head:
        return (
            f"event {checkpoint.events} is not the one of the checkpoint: the ledger was restored"
            " from an older copy and written to since, or rewritten; of two histories one is left"
            " out here"
        )
    return ""


def audit(db: Transaction, problems: list[str]) -> Audit:
    """Replay a ledger's events, and compare its tables with what they come to.

    Args:
        db: sees one moment of the ledger.
        problems: those of the database itself, found by its store.
    """
    found = _Replay(list(problems))
    try:
        query = "SELECT number, line, hash FROM event WHERE number > ? ORDER BY number LIMIT 500"
        for number, line, own in paged(db, query):
            found.event(number, line, own)
        found.compare(db)
        found.contents(db)
    except Exception as error:  # a damaged database may hold anything
        found.say(f"the ledger cannot be read to its end: {type(error).__name__}: {error}"[:300])
    return Audit(
        ledger=found.id,
        events=found.number,
        head=found.head,
        accounts=len(found.accounts),
        entries=len(found.entries),
        problems=tuple(found.problems),
    )


@dataclass(slots=True)
class _Entry:
    dataset: str
    to: str
    part: str
    key: str
    charge: int
    delta: int
    event: int
    state: str = "reserved"
    ended: int | None = None

    def row(self) -> tuple[Any, ...]:
        """What the table has of it, after its id."""
        spent = (self.dataset, self.to, self.part, self.key, self.charge, self.delta)
        return (*spent, self.event, self.state, self.ended)


@dataclass
class _Replay:
    """The ledger as its events tell it, kept in plain dictionaries."""

    problems: list[str]
    id: str = ""
    number: int = 0
    head: str = START
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    purses: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict)
    above: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    entries: dict[int, _Entry] = field(default_factory=dict)
    published: dict[tuple[str, str], int] = field(default_factory=dict)
    files: dict[int, Mapping[str, str]] = field(default_factory=dict)
    carried: dict[str, list[Fraction]] = field(default_factory=dict)

    def say(self, problem: str) -> None:
        """One more problem, unless there are many already."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)

    def event(self, number: int, line: str, said: str) -> None:
        """The next event, and what the table says is its hash."""
        own = digest(line)
        try:
            if own != said:
                raise ValueError("its hash is not that of its line")
            told = json.loads(line)
            self._chained(number, told, line)
            getattr(self, f"_{told['kind']}")(told)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.say(f"event {number}: {error}"[:300])
        self.number, self.head = number, own

    def _chained(self, number: int, told: Any, line: str) -> None:
        if number != self.number + 1 or told["number"] != number:
            raise ValueError(f"follows event {self.number}: events are missing")
        if told["previous"] != self.head:
            raise ValueError("does not follow from the one before it: that one was changed")
        if told["kind"] not in KINDS or (told["kind"] == "ledger") != (number == 1):
            raise ValueError(f"is of the kind {told['kind']!r}, which cannot be there")
        if json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True) != line:
            raise ValueError("is not written as events are")

    def _ledger(self, told: Mapping[str, Any]) -> None:
        self.id = told["id"]

    def _account(self, told: Mapping[str, Any]) -> None:
        dataset = told["dataset"]
        if dataset in self.accounts:
            raise ValueError(f"registers {dataset} a second time")
        self.accounts[dataset] = {**told}
        self.above[dataset, ""] = ("",)
        self._holder(told, "", tuple(told["parts"]) or ("",))

    def _allocation(self, told: Mapping[str, Any]) -> None:
        dataset, to, of = told["dataset"], told["to"], told["of"]
        if (dataset, to) in self.above:
            raise ValueError(f"makes the allocation {to} of {dataset} a second time")
        self.above[dataset, to] = (*self.above[dataset, of], to)
        parts = [part for d, holder, part in self.purses if (d, holder) == (dataset, of)]
        for part in parts:
            cap, delta_cap = self.purses[dataset, of, part][:2]
            if told["units"] > cap or told["delta_units"] > delta_cap:
                raise ValueError(f"makes the allocation {to} larger than what it is part of")
        self._holder(told, to, parts)

    def _holder(self, told: Mapping[str, Any], holder: str, parts: Any) -> None:
        cap, delta_cap = Fraction(told["cap"]), Fraction(told["delta_cap"])
        if told["units"] > units_down(cap) or told["delta_units"] > units_down(delta_cap, DELTA):
            raise ValueError("counts a cap as more than it is")
        for part in parts:
            key = (told["dataset"], holder, part)
            self.purses[key] = [told["units"], told["delta_units"], 0, 0, 0, told["number"]]

    def _reserve(self, told: Mapping[str, Any]) -> None:
        if told["entry"] != len(self.entries) + 1:
            raise ValueError(f"reserves entry {told['entry']} after {len(self.entries)} entries")
        entry = _Entry(
            told["dataset"],
            told["to"],
            told["part"],
            told["key"],
            told["units"],
            told["delta_units"],
            told["number"],
        )
        self.entries[told["entry"]] = entry
        charge, delta = Fraction(told["charge"]), Fraction(told["delta"])
        if charge < 0 or delta < 0:
            raise ValueError("gives back what was spent")
        if told.get("migrated"):
            own = self._carried(entry.dataset, charge, delta)
        else:
            own = units_up(charge), units_up(delta, DELTA)
        if (entry.charge, entry.delta) != own:
            raise ValueError(f"counts its charge as {entry.charge} units, and that is {own[0]}")
        self._move(entry, 1)

    def _carried(self, dataset: str, charge: Fraction, delta: Fraction) -> tuple[int, int]:
        """What a spend of version 1 counts as (see migrate)."""
        sums = self.carried.setdefault(dataset, [Fraction(0), Fraction(0)])
        purse, own = self.purses[dataset, "", ""], []
        for index, (more, per) in enumerate(((charge, UNIT), (delta, DELTA))):
            before = min(units_up(sums[index], per), purse[index])
            sums[index] += more
            own.append(min(units_up(sums[index], per), purse[index]) - before)
        return own[0], own[1]

    def _move(self, entry: _Entry, sign: int) -> None:
        hit = 0
        for holder in self.above[entry.dataset, entry.to]:
            parts = [entry.part] if entry.part else self._parts(entry.dataset)
            for part in parts:
                purse = self.purses[entry.dataset, holder, part]
                purse[2] += sign * entry.charge
                purse[3] += sign * entry.delta
                purse[4] += sign
                hit += 1
                if purse[2] > purse[0] or purse[3] > purse[1]:
                    raise ValueError(f"spends more of {entry.dataset} than its cap")
        if not hit:
            raise ValueError(f"spends of {entry.dataset}, which has no such part")

    def _parts(self, dataset: str) -> list[str]:
        return self.accounts[dataset]["parts"] or [""]

    def _begin(self, told: Mapping[str, Any]) -> None:
        self._change(told, "reserved", "reading")

    def _void(self, told: Mapping[str, Any]) -> None:
        self._move(self._change(told, "reserved", "void"), -1)

    def _finish(self, told: Mapping[str, Any]) -> None:
        entry = self._change(told, "reading", "released")
        if digest_of(told["files"]) != told["digest"]:
            raise ValueError("has a hash that is not that of its files")
        first = self.published.setdefault((entry.dataset, entry.key), told["entry"])
        if first != told["published"]:
            raise ValueError(f"says that entry {told['published']} is published, and {first} is")
        if first == told["entry"]:
            self.files[first] = told["files"]
        elif self.files[first] != told["files"]:
            raise ValueError(f"does not have the files of entry {first}, which is published")

    def _change(self, told: Mapping[str, Any], before: str, after: str) -> _Entry:
        entry = self.entries[told["entry"]]
        if entry.state != before:
            raise ValueError(f"changes entry {told['entry']} from {entry.state} to {after}")
        entry.state = after
        entry.ended = told["number"] if after in ("released", "void") else None
        return entry

    def compare(self, db: Transaction) -> None:
        """Say where the tables differ from what the events come to."""
        self._same(
            "account",
            "SELECT dataset, protects, neighboring, rows, currency, parts, event FROM account",
            (
                (
                    *(a[w] for w in ("dataset", "protects", "neighboring", "rows", "currency")),
                    json.dumps(a["parts"]),
                    a["number"],
                )
                for a in self.accounts.values()
            ),
            db,
        )
        self._same(
            "purse",
            "SELECT dataset, holder, part, coalesce(parent, ''), cap, delta_cap, spent,"
            " spent_delta, entries, event FROM purse",
            (
                (*key, (self.above[key[:2]][:-1] or ("",))[-1], *purse)
                for key, purse in self.purses.items()
            ),
            db,
        )
        self._same(
            "above",
            "SELECT dataset, holder, ancestor FROM above",
            ((*key, one) for key, all_of in self.above.items() for one in all_of),
            db,
        )
        query = (
            "SELECT id, dataset, holder, part, key, charge, delta, event, state, ended FROM entry"
            " WHERE id > ? ORDER BY id LIMIT 1000"
        )
        met = 0
        for row in paged(db, query):
            met += 1
            if (own := self.entries.get(row[0])) is None or row[1:] != own.row():
                self.say(f"entry {row[0]} is not as the events have it")
        if met != len(self.entries):  # others have a number that none can have
            self.say(f"{len(self.entries)} entries follow from the events, and {met} are numbered")
        for table, count in (("event", self.number), ("entry", len(self.entries))):
            ((there,),) = db.rows(f"SELECT count(*) FROM {table}")
            if there != count:
                self.say(f"the table {table} has {there} rows, and {count} follow from the events")
        self._same(
            "publication",
            "SELECT dataset, key, entry FROM publication",
            ((*key, entry) for key, entry in self.published.items()),
            db,
        )

    def _same(self, table: str, query: str, own: Iterator[Any], db: Transaction) -> None:
        there = set(db.rows(query))
        follows = set(own)
        for row in sorted(there - follows, key=repr)[:5]:
            self.say(f"the table {table} has {row[:4]}, which does not follow from the events")
        for row in sorted(follows - there, key=repr)[:5]:
            self.say(f"the table {table} lacks {row[:4]}, which follows from the events")

    def contents(self, db: Transaction) -> None:
        """Say where stored files are not those that were published."""
        known = {(e, a) for e, a in db.rows("SELECT entry, attempt FROM publication")}
        for entry, attempt in db.rows("SELECT DISTINCT entry, attempt FROM piece"):
            reading = entry in self.entries and self.entries[entry].state == "reading"
            if (entry, attempt) not in known and not reading:
                self.say(f"pieces of entry {entry} belong to nothing that was published")
        for entry, attempt in sorted(known):
            if entry not in self.files:
                continue
            there: dict[str, str] = {}
            query = "SELECT DISTINCT path FROM piece WHERE entry = ? AND attempt = ?"
            for (path,) in db.rows(query, entry, attempt):
                there[path] = _hash_of(db, entry, attempt, path)
            if there != self.files[entry]:
                wrong = sorted(
                    path
                    for path in {*there, *self.files[entry]}
                    if there.get(path) != self.files[entry].get(path)
                )
                self.say(f"files of entry {entry} are not what was published: {wrong[:3]}")


def _hash_of(db: Transaction, entry: int, attempt: str, path: str) -> str:
    seen = hashlib.sha256()
    query = "SELECT count(*) FROM piece WHERE entry = ? AND attempt = ? AND path = ?"
    ((count,),) = db.rows(query, entry, attempt, path)
    for number in range(count):
        content = stored(db, entry, attempt, path, number)
        if content is None:
            return "a piece is missing"
        seen.update(content)
    return seen.hexdigest()
