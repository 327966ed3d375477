"""Verify a ledger: recompute its hash chain and all tables that follow from the chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from neyman.ledger.chain import KINDS, NOTES, START, Checkpoint, canonical_json, digest
from neyman.ledger.database import Transaction
from neyman.ledger.events import ledger_id, paged
from neyman.ledger.published_files import digest_of, stored
from neyman.ledger.rows import (
    Damage,
    fields,
    fraction,
    hashes,
    json_value,
    one_row,
    texts,
    typed_field,
    typed_rows,
)
from neyman.ledger.units import DELTA, units_down, units_up
from neyman.numerics.canonical_order import order_key

_MAX_PROBLEMS = 50
_APPROVAL = ("dataset", "subject", "plan", "who", "purpose", "until", "public", "signature")
_Pair = tuple[str, str]
_Purse = tuple[str, str, str]
_ENTRY = (int, str, str, str, str, int, int, int, str, int | None)


@dataclass(frozen=True)
class Audit:
    """Report the result of a ledger's verification.

    Args:
        head: the hash of the last event.
        problems: the problems. Empty if the ledger is valid.
    """

    ledger: str
    events: int
    head: str
    accounts: int
    entries: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return True if there are no problems."""
        return not self.problems

    def with_problem(self, why: str) -> Audit:
        """Return a copy with one more problem."""
        return replace(self, problems=(*self.problems, why))


def behind(db: Transaction, checkpoint: Checkpoint) -> str:
    """Return why a ledger lacks the event of a checkpoint, or "" if it has this event."""
    query = "SELECT line FROM event WHERE number = ?"
    rows = typed_rows(db, (str,), query, checkpoint.events)
    try:
        own = ledger_id(db)
    except Damage as damage:
        return f"the ledger's first event is missing or damaged ({damage})"
    if own != checkpoint.ledger:
        return (
            f"this is the ledger {own}, and the checkpoint is of {checkpoint.ledger}: another"
            " ledger was put in its place, or the wrong one was named"
        )
    if not rows:
        (last,) = one_row(db, (int,), "SELECT max(number) FROM event")
        return (
            f"the ledger has {last} events and had {checkpoint.events} at the checkpoint: it was"
            " rolled back or restored from a backup, and lacks charges. Bring back the newest"
            " copy, or count as spent all that was released since"
        )
    if digest(rows[0][0]) != checkpoint.head:
        return (
            f"event {checkpoint.events} is not the one of the checkpoint: the ledger was rewritten,"
            " or restored from an older copy and then changed. Its history lacks charges that the"
            " checkpoint covers"
        )
    return ""


def audit(
    db: Transaction, problems: list[str], failures: tuple[type[Exception], ...] = ()
) -> Audit:
    """Replay a ledger's events, and compare the tables with the result.

    Args:
        db: a transaction that sees one moment of the ledger.
        problems: problems of the database itself, found by its store.
        failures: exceptions that the database raises if its file is damaged.
    """
    replay = _Replay(list(problems))
    try:
        query = "SELECT number, line, hash FROM event WHERE number > ? ORDER BY number LIMIT 500"
        for number, line, own in paged(db, (int, str, str), query):
            replay.event(number, line, own)
        replay.compare(db)
        replay.contents(db)
    except (Damage, *failures) as error:
        replay.say(f"the ledger cannot be read to its end: {type(error).__name__}: {error}"[:300])
    return Audit(
        ledger=replay.id,
        events=replay.number,
        head=replay.head,
        accounts=len(replay.accounts),
        entries=len(replay.entries),
        problems=tuple(replay.problems),
    )


@dataclass(slots=True)
class _Entry:
    """Hold the columns of an entry after its id, in the order of the table."""

    dataset: str
    to: str
    part: str
    key: str
    charge: int
    delta: int
    event: int
    state: str = "reserved"
    ended: int | None = None


@dataclass
class _Replay:
    """Hold the state of a ledger, computed from its events alone."""

    problems: list[str]
    id: str = ""
    number: int = 0
    head: str = START
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    purses: dict[_Purse, list[Any]] = field(default_factory=dict[_Purse, list[Any]])
    above: dict[_Pair, tuple[str, ...]] = field(default_factory=dict[_Pair, tuple[str, ...]])
    entries: dict[int, _Entry] = field(default_factory=dict[int, _Entry])
    notes: list[tuple[int, str, str, str]] = field(default_factory=list[tuple[int, str, str, str]])
    population: dict[str, str] = field(default_factory=dict[str, str])
    published: dict[_Pair, int] = field(default_factory=dict[_Pair, int])
    files: dict[int, Mapping[str, str]] = field(default_factory=dict[int, Mapping[str, str]])

    def say(self, problem: str) -> None:
        """Add a problem, unless there are many already."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    def event(self, number: int, line: str, said: str) -> None:
        """Replay the next event. Compare the hash of its line with ``said``, the stored hash."""
        own = digest(line)
        try:
            if own != said:
                raise Damage("its hash is not that of its line")
            event = fields(line)
            kind = self._event_kind(number, event, line)
            getattr(self, f"_{kind}")(event)
            if kind in NOTES:
                about = (typed_field(event, name, str) for name in ("dataset", "subject"))
                self.notes.append((number, kind, *about))
        except Damage as damage:
            self.say(f"event {number}: {damage}"[:300])
        self.number, self.head = number, own

    def _event_kind(self, number: int, event: Mapping[str, Any], line: str) -> str:
        """Return the kind of the next event. Check its number and its format."""
        if number != self.number + 1 or typed_field(event, "number", int) != number:
            raise Damage(f"follows event {self.number}: events are missing")
        if typed_field(event, "previous", str) != self.head:
            raise Damage("does not follow from the one before it: that one was changed")
        kind = typed_field(event, "kind", str)
        if kind not in KINDS or (kind == "ledger") != (number == 1):
            raise Damage(f"is of the kind {kind[:40]!r}, which no ledger writes")
        typed_field(event, "when", str)
        try:
            written = canonical_json(event)
        except RecursionError:
            raise Damage("is nested too deep") from None
        if written != line:
            raise Damage("is not written as events are")
        return kind

    def _ledger(self, event: Mapping[str, Any]) -> None:
        self.id = typed_field(event, "id", str)

    def _location(self, event: Mapping[str, Any]) -> None:
        typed_field(event, "why", str)

    def _account(self, event: Mapping[str, Any]) -> None:
        dataset = typed_field(event, "dataset", str)
        if dataset in self.accounts:
            raise Damage(f"registers {dataset} a second time")
        parts = texts(typed_field(event, "parts", list))
        words = ("protects", "neighboring", "currency")
        self.accounts[dataset] = {word: typed_field(event, word, str) for word in words} | {
            "dataset": dataset,
            "rows": typed_field(event, "rows", int),
            "parts": parts,
            "approval": typed_field(event, "approval", str),
            "number": event["number"],
        }
        self.above[dataset, ""] = ("",)
        self._holder(event, "", parts or [""])

    def _allocation(self, event: Mapping[str, Any]) -> None:
        dataset, to, of = (typed_field(event, name, str) for name in ("dataset", "to", "of"))
        if (dataset, to) in self.above:
            raise Damage(f"makes the allocation {to} of {dataset} a second time")
        if (dataset, of) not in self.above:
            raise Damage(f"makes the allocation {to} of {of or dataset}, which does not exist")
        self.above[dataset, to] = (*self.above[dataset, of], to)
        parts = [part for d, holder, part in self.purses if (d, holder) == (dataset, of)]
        units, delta_units = (typed_field(event, name, int) for name in ("units", "delta_units"))
        for part in parts:
            cap, delta_cap = self.purses[dataset, of, part][:2]
            if units > cap or delta_units > delta_cap:
                raise Damage(f"makes the allocation {to} larger than what it is part of")
        self._holder(event, to, parts)

    def _edition(self, event: Mapping[str, Any]) -> None:
        dataset, population = (typed_field(event, name, str) for name in ("dataset", "subject"))
        own, other = self.accounts.get(dataset), self.accounts.get(population)
        words = ("protects", "neighboring", "currency")
        if own is None or other is None or any(own[word] != other[word] for word in words):
            raise Damage(
                f"makes {dataset} an edition of {population}, which cannot be its population"
            )
        if dataset == population or {dataset, population} & self.population.keys():
            raise Damage(
                f"makes {dataset} an edition of {population}, and one of them is an edition"
            )
        if dataset in self.population.values():
            raise Damage(f"makes {dataset} an edition, which is a population")
        self.population[dataset] = population
        self._add((population, "", ""), *self._largest(dataset))

    def _correct(self, event: Mapping[str, Any]) -> None:
        self._withdraw(event)
        number = typed_field(event, "entry", int)
        if number not in self.published.values() or str(number) == event["subject"]:
            raise Damage(f"corrects by entry {number}, which is not another published one")

    def _withdraw(self, event: Mapping[str, Any]) -> None:
        dataset, subject, _ = (
            typed_field(event, name, str) for name in ("dataset", "subject", "why")
        )
        published = {(d, str(number)) for (d, _), number in self.published.items()}
        if (dataset, subject) not in published:
            raise Damage(f"is about entry {subject} of {dataset}, which is not published")
        if any(
            note[1:] in (("correct", dataset, subject), ("withdraw", dataset, subject))
            for note in self.notes
        ):
            raise Damage(f"is about entry {subject}, which is corrected or withdrawn already")

    def _approve(self, event: Mapping[str, Any]) -> None:
        dataset, key, *_ = (typed_field(event, name, str) for name in _APPROVAL)
        if dataset not in self.accounts or self._approved(dataset, key):
            raise Damage(f"approves {key[:40]} of {dataset} a second time, or of no dataset")

    def _revoke(self, event: Mapping[str, Any]) -> None:
        dataset, key, _ = (typed_field(event, name, str) for name in ("dataset", "subject", "who"))
        if not self._approved(dataset, key):
            raise Damage(f"revokes {key[:40]} of {dataset}, which is not approved")

    def _approved(self, dataset: str, key: str) -> bool:
        about = [note[1] for note in self.notes if note[2:] == (dataset, key)]
        return [kind for kind in about if kind in ("approve", "revoke")][-1:] == ["approve"]

    def _largest(self, dataset: str) -> list[int]:
        """Return the largest charge, delta, and number of entries of a part of an account."""
        own = self._purses(dataset, "", "")
        return [max(purse[place] for purse in own) for place in (2, 3, 4)]

    def _purses(self, dataset: str, holder: str, part: str) -> list[list[Any]]:
        """Return a holder's purse for a part, or for each part of all the data."""
        own: list[list[Any]] = []
        for one in [part] if part else self.accounts[dataset]["parts"] or [""]:
            purse = self.purses.get((dataset, holder, one))
            if purse is None:
                raise Damage(f"spends of {holder or dataset}, which has no part {one!r}")
            own.append(purse)
        return own

    def _add(self, whose: _Purse, *amounts: int) -> None:
        """Add a charge, a delta, and a number of entries to the purses of a holder."""
        for purse in self._purses(*whose):
            purse[2:5] = (has + more for has, more in zip(purse[2:5], amounts, strict=True))
            if purse[2] > purse[0] or purse[3] > purse[1]:
                raise Damage(f"spends more of {whose[0]} than its cap")

    def _holder(self, event: Mapping[str, Any], holder: str, parts: list[str]) -> None:
        cap, delta_cap = fraction(event, "cap"), fraction(event, "delta_cap")
        units, delta_units = (typed_field(event, name, int) for name in ("units", "delta_units"))
        if units > units_down(cap) or delta_units > units_down(delta_cap, DELTA):
            raise Damage("counts a cap as more than it is")
        for part in parts:
            key = (event["dataset"], holder, part)
            self.purses[key] = [units, delta_units, 0, 0, 0, event["number"]]

    def _reserve(self, event: Mapping[str, Any]) -> None:
        number = typed_field(event, "entry", int)
        if number != len(self.entries) + 1:
            raise Damage(f"reserves entry {number} after {len(self.entries)} entries")
        entry = _Entry(
            dataset=typed_field(event, "dataset", str),
            to=typed_field(event, "to", str),
            part=typed_field(event, "part", str),
            key=typed_field(event, "key", str),
            charge=typed_field(event, "units", int),
            delta=typed_field(event, "delta_units", int),
            event=event["number"],
        )
        self.entries[number] = entry
        typed_field(event, "plan", str)
        json_value(typed_field(event, "mechanisms", str))
        charge, delta = fraction(event, "charge"), fraction(event, "delta")
        if charge < 0 or delta < 0:
            raise Damage("gives back what was spent")
        own = units_up(charge), units_up(delta, DELTA)
        if (entry.charge, entry.delta) != own:
            raise Damage(f"counts its charge as {entry.charge} units, and that is {own[0]}")
        self._move(entry, 1)
        if self.accounts[entry.dataset]["approval"] and not self._approved(
            entry.dataset, entry.key
        ):
            raise Damage(f"reserves {entry.key[:40]}, which was not approved")

    def _move(self, entry: _Entry, sign: int) -> None:
        if (entry.dataset, entry.to) not in self.above:
            raise Damage(f"spends of {entry.to or entry.dataset}, which does not exist")
        before = self._largest(entry.dataset)
        for holder in self.above[entry.dataset, entry.to]:
            whose = (entry.dataset, holder, entry.part)
            self._add(whose, sign * entry.charge, sign * entry.delta, sign)
        if population := self.population.get(entry.dataset):
            charge, delta, _ = map(int.__sub__, self._largest(entry.dataset), before)
            self._add((population, "", ""), charge, delta, sign)

    def _begin(self, event: Mapping[str, Any]) -> None:
        self._change(event, "reserved", "reading")

    def _void(self, event: Mapping[str, Any]) -> None:
        self._move(self._change(event, "reserved", "void"), -1)

    def _finish(self, event: Mapping[str, Any]) -> None:
        entry = self._change(event, "reading", "released")
        files = hashes(event)
        if digest_of(files) != typed_field(event, "digest", str):
            raise Damage("has a hash that is not that of its files")
        number, published = typed_field(event, "entry", int), typed_field(event, "published", int)
        first = self.published.setdefault((entry.dataset, entry.key), number)
        if first != published:
            raise Damage(f"says that entry {published} is published, and {first} is")
        if first == number:
            self.files[first] = files
        elif self.files.get(first) != files:
            raise Damage(f"does not have the files of entry {first}, which is published")

    def _change(self, event: Mapping[str, Any], before: str, after: str) -> _Entry:
        number = typed_field(event, "entry", int)
        entry = self.entries.get(number)
        if entry is None:
            raise Damage(f"changes entry {number}, which was not reserved")
        if entry.state != before:
            raise Damage(f"changes entry {number} from {entry.state} to {after}")
        entry.state = after
        entry.ended = event["number"] if after in ("released", "void") else None
        return entry

    def compare(self, db: Transaction) -> None:
        """Report each difference between the tables and the replayed events."""
        self._same(
            "account",
            "SELECT dataset, protects, neighboring, rows, currency, parts, approval, event"
            " FROM account",
            (str, str, str, int, str, str, str, int),
            (
                (
                    *(a[w] for w in ("dataset", "protects", "neighboring", "rows", "currency")),
                    json.dumps(a["parts"]),
                    a["approval"],
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
            (str, str, str, str, int, int, int, int, int, int),
            (
                (*key, (self.above[key[:2]][:-1] or ("",))[-1], *purse)
                for key, purse in self.purses.items()
            ),
            db,
        )
        self._same(
            "above",
            "SELECT dataset, holder, ancestor FROM above",
            (str, str, str),
            ((*key, one) for key, all_of in self.above.items() for one in all_of),
            db,
        )
        query = (
            "SELECT id, dataset, holder, part, key, charge, delta, event, state, ended FROM entry"
            " WHERE id > ? ORDER BY id LIMIT 1000"
        )
        met = 0
        for row in paged(db, _ENTRY, query):
            met += 1
            if self.entries.get(row[0]) != _Entry(*row[1:]):
                self.say(f"entry {row[0]} is not as the events have it")
        if met != len(self.entries):  # the other rows have impossible numbers
            self.say(f"{len(self.entries)} entries follow from the events, and {met} are numbered")
        for table, count in (("event", self.number), ("entry", len(self.entries))):
            (there,) = one_row(db, (int,), f"SELECT count(*) FROM {table}")
            if there != count:
                self.say(f"the table {table} has {there} rows, and {count} follow from the events")
        query = "SELECT event, kind, dataset, subject FROM note"
        self._same("note", query, (int, str, str, str), self.notes, db)
        self._same(
            "publication",
            "SELECT dataset, key, entry FROM publication",
            (str, str, int),
            ((*key, entry) for key, entry in self.published.items()),
            db,
        )

    def _same(
        self, table: str, query: str, kinds: tuple[Any, ...], own: Iterable[Any], db: Transaction
    ) -> None:
        there = set(typed_rows(db, kinds, query))
        follows = set(own)
        for row in sorted(there - follows, key=order_key)[:5]:
            self.say(f"the table {table} has {row[:4]}, which does not follow from the events")
        for row in sorted(follows - there, key=order_key)[:5]:
            self.say(f"the table {table} lacks {row[:4]}, which follows from the events")

    def contents(self, db: Transaction) -> None:
        """Report stored files that differ from the published files."""
        kinds = (int, str)
        known = {(e, a) for e, a in typed_rows(db, kinds, "SELECT entry, attempt FROM publication")}
        for entry, attempt in typed_rows(db, kinds, "SELECT DISTINCT entry, attempt FROM piece"):
            reading = entry in self.entries and self.entries[entry].state == "reading"
            if (entry, attempt) not in known and not reading:
                self.say(f"pieces of entry {entry} belong to nothing that was published")
        for entry, attempt in sorted(known):
            if entry not in self.files:
                continue
            query = "SELECT DISTINCT path FROM piece WHERE entry = ? AND attempt = ?"
            paths = [path for (path,) in typed_rows(db, (str,), query, entry, attempt)]
            there = {path: _hash_of(db, entry, attempt, path) for path in paths}
            if there != self.files[entry]:
                wrong = sorted(
                    path
                    for path in {*there, *self.files[entry]}
                    if there.get(path) != self.files[entry].get(path)
                )
                self.say(f"files of entry {entry} are not what was published: {wrong[:3]}")


def _hash_of(db: Transaction, entry: int, attempt: str, path: str) -> str:
    """Return the SHA-256 of a stored file, or "a piece is missing"."""
    digest = hashlib.sha256()
    query = "SELECT count(*) FROM piece WHERE entry = ? AND attempt = ? AND path = ?"
    (count,) = one_row(db, (int,), query, entry, attempt, path)
    for number in range(count):
        content = stored(db, entry, attempt, path, number)
        if content is None:
            return "a piece is missing"
        digest.update(content)
    return digest.hexdigest()
