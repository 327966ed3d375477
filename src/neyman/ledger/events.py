"""Write events: each adds a line to the chain, and the rows that follow from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from neyman.ledger.chain import Checkpoint, digest, line_of
from neyman.ledger.database import MOST_ROWS, Transaction
from neyman.ledger.published_files import digest_of
from neyman.ledger.records import LedgerError
from neyman.ledger.rows import Damage, fields, one_row, typed, typed_field, typed_rows

_LAST = "SELECT number, hash FROM event ORDER BY number DESC LIMIT 1"
_FIRST = "SELECT line FROM event WHERE number = 1"


class Writer:
    """Write events and their rows within one transaction.

    Args:
        db: the only transaction that may write.

    Attributes:
        number: the number of the last event, or 0 until it is read.
        head: the hash of the last event.
    """

    def __init__(self, db: Transaction) -> None:
        self.db, self.number, self.head = db, 0, ""

    def at(self, number: int, head: str) -> None:
        """Set the number and the hash of the last event, if they were just read."""
        self.number, self.head = number, head

    def append(self, kind: str, what: Mapping[str, Any]) -> int:
        """Add an event to the chain. Return its number."""
        if not self.number:
            self.at(*one_row(self.db, (int, str), _LAST))
        line = line_of(self.number + 1, self.head, kind, what)
        self.number, self.head = self.number + 1, digest(line)
        self.db.run(
            "INSERT INTO event (number, line, hash) VALUES (?, ?, ?)", self.number, line, self.head
        )
        return self.number

    def account(self, terms: Mapping[str, Any]) -> None:
        """Register a dataset version with ``terms`` from `account_terms`."""
        event = self.append("account", terms)
        words = ("dataset", "protects", "neighboring", "rows", "currency")
        self.db.run(
            "INSERT INTO account (dataset, protects, neighboring, rows, currency, parts, approval,"
            " event) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(terms[word] for word in words),
            *(json.dumps(terms["parts"]), terms["approval"], event),
        )
        self._holder(terms, "", None, tuple(terms["parts"]) or ("",), event)

    def allocation(self, terms: Mapping[str, Any]) -> None:
        """Create an allocation with ``terms`` from `allocation_terms`."""
        event = self.append("allocation", terms)
        query = "SELECT part FROM purse WHERE dataset = ? AND holder = ? ORDER BY part"
        rows = typed_rows(self.db, (str,), query, terms["dataset"], terms["of"])
        parts = [part for (part,) in rows]
        self._holder(terms, terms["to"], terms["of"], parts, event)

    def _holder(
        self,
        terms: Mapping[str, Any],
        holder: str,
        parent: str | None,
        parts: Iterable[str],
        event: int,
    ) -> None:
        dataset = terms["dataset"]
        query = "SELECT ancestor FROM above WHERE dataset = ? AND holder = ?"
        above = [] if parent is None else typed_rows(self.db, (str,), query, dataset, parent)
        for (ancestor,) in (*above, (holder,)):
            self.db.run(
                "INSERT INTO above (dataset, holder, ancestor) VALUES (?, ?, ?)",
                dataset,
                holder,
                ancestor,
            )
        for part in parts:
            self.db.run(
                "INSERT INTO purse (dataset, holder, part, parent, event, cap, delta_cap, spent,"
                " spent_delta, entries) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0)",
                *(dataset, holder, part, parent, event, terms["units"], terms["delta_units"]),
            )

    def reserve(self, entry: int, terms: Mapping[str, Any]) -> None:
        """Add an entry. ``terms`` has its dataset, to, part, key, units, and delta_units."""
        event = self.append("reserve", {"entry": entry, **terms})
        self.db.run(
            "INSERT INTO entry (id, dataset, holder, part, key, state, charge, delta, event)"
            " VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?)",
            *(entry, terms["dataset"], terms["to"], terms["part"], terms["key"]),
            *(terms["units"], terms["delta_units"], event),
        )

    def note(self, kind: str, dataset: str, subject: str, **more: Any) -> None:
        """Record a note about a dataset. ``more`` are further fields of its event."""
        event = self.append(kind, {"dataset": dataset, "subject": subject, **more})
        self.db.run(
            "INSERT INTO note (event, kind, dataset, subject) VALUES (?, ?, ?, ?)",
            *(event, kind, dataset, subject),
        )

    def begin(self, entry: int) -> None:
        """Record that a reserved entry begins reading."""
        self.append("begin", {"entry": entry})
        self.db.run("UPDATE entry SET state = 'reading' WHERE id = ?", entry)

    def void(self, entry: int, why: str) -> None:
        """Record that a reserved entry is void: it never read data, and is not charged."""
        event = self.append("void", {"entry": entry, "why": why})
        self.db.run("UPDATE entry SET state = 'void', ended = ? WHERE id = ?", event, entry)

    def finish(self, entry: int, published: int, hashes: Mapping[str, str], attempt: str) -> None:
        """Record that a reading entry is released.

        Args:
            published: the entry whose files count for its key: this entry, or an earlier one.
            hashes: the SHA-256 of each published file by its path.
            attempt: the attempt that stored the files.
        """
        event = self.append(
            "finish",
            {
                "entry": entry,
                "published": published,
                "files": dict(hashes),
                "digest": digest_of(hashes),
            },
        )
        if published == entry:
            self.db.run(
                "INSERT INTO publication (dataset, key, entry, attempt)"
                " SELECT dataset, key, id, ? FROM entry WHERE id = ?",
                attempt,
                entry,
            )
        self.db.run("UPDATE entry SET state = 'released', ended = ? WHERE id = ?", event, entry)


def paged(
    db: Transaction, kinds: tuple[Any, ...], query: str, after: int = 0
) -> Iterator[tuple[Any, ...]]:
    """Yield rows in the order of their first value, a number, one page at a time.

    Args:
        kinds: the types of the values of a row (see `typed`). The first is a number.
        query: a query for the next page of rows whose first value is above its only argument.
        after: the first page has rows above this number.

    Raises:
        Damage: numbers do not rise, because a damaged index can loop.
    """
    while after < MOST_ROWS and (rows := db.rows(query, after)):
        for row in rows:
            if not isinstance(row[0], int) or row[0] <= after:
                raise Damage(f"number {row[0]!r} follows {after}")
            after = row[0]
            yield typed(row, kinds)


def lines(db: Transaction, after: int, most: int) -> Iterator[tuple[int, str]]:
    """Return the numbers and lines of at most ``most`` events after number ``after``, in order."""
    query = "SELECT number, line FROM event WHERE number > ? ORDER BY number LIMIT 500"
    return islice(paged(db, (int, str), query, after), most)


def ledger_id(db: Transaction) -> str:
    """Return the ledger's random id from its first event."""
    return typed_field(fields(one_row(db, (str,), _FIRST)[0]), "id", str)


def checkpoint_of(db: Transaction) -> Checkpoint:
    """Return the checkpoint of the ledger's current state."""
    number, head = one_row(db, (int, str), _LAST)
    return Checkpoint(ledger_id(db), number, head)


def settle(write: Writer, dataset: str, key: str, again: bool) -> bool:
    """Make reserved entries of a key void, and return True if there were any.

    Raises:
        LedgerError: an entry of the key is released, or is reading and ``again`` is False.
    """
    query = "SELECT id, state FROM entry WHERE dataset = ? AND key = ? ORDER BY id"
    tries = typed_rows(write.db, (int, str), query, dataset, key)
    for number, state in tries:
        if state == "released":
            raise LedgerError(
                f"this plan is published already, by entry {number} of {dataset}: running it again"
                " gives the same files, at no charge"
            )
        if state == "reading" and not again:
            raise LedgerError(
                f"entry {number} of {dataset} was reserved for this plan and is unfinished: its run"
                " continues, or crashed after it began to read the data. Its charge is permanent."
                " Wait for that run, or ask to be charged again: --charge-again"
            )
    replaced = [number for number, state in tries if state == "reserved"]
    for number in replaced:
        write.void(number, "replaced by a later run of the same plan")
    return bool(replaced)
