"""Entries as the chain tells them: the rows say how an entry stands, the lines what it is."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from neyman.release.ledger.account import Entry, LedgerError
from neyman.release.ledger.store import MOST_ROWS, Transaction

__all__ = ["entries_of", "entry_of", "hashes_of", "meant", "publisher_of"]

_QUERY = (
    "SELECT e.id, e.dataset, e.key, e.state, e.holder, e.part, r.line, f.line FROM entry e"
    " JOIN event r ON r.number = e.event LEFT JOIN event f ON f.number = e.ended"
)
_FIXED = ("dataset", "to", "part", "key", "charge", "delta", "created")


def entries_of(db: Transaction, dataset: str, last: int | None = None) -> tuple[Entry, ...]:
    """All entries of a dataset, oldest first, or the last few of them."""
    if last is None:
        rows = db.rows(f"{_QUERY} WHERE e.dataset = ? ORDER BY e.id", dataset)
    else:
        query = f"{_QUERY} WHERE e.dataset = ? ORDER BY e.id DESC LIMIT ?"
        rows = db.rows(query, dataset, min(last, MOST_ROWS))[::-1]
    return tuple(_made(*row) for row in rows)


def entry_of(db: Transaction, number: int) -> Entry:
    """One entry.

    Raises:
        LedgerError: there is none.
    """
    rows = db.rows(f"{_QUERY} WHERE e.id = ?", number) if number <= MOST_ROWS else []
    if not rows:
        raise LedgerError(f"there is no entry {number} in this ledger")
    return _made(*rows[0])


def meant(db: Transaction, asked: Entry | int) -> Entry:
    """The entry of that number; for one that was handed out, as it is by now.

    Raises:
        LedgerError: there is none, or what was handed out is another spend of the same number.
    """
    if not isinstance(asked, Entry):
        return entry_of(db, asked)
    found = entry_of(db, asked.id)
    if any(getattr(found, name) != getattr(asked, name) for name in _FIXED):
        raise LedgerError(
            f"entry {asked.id} is another spend than the one that was reserved: a copy of the"
            " ledger was put in its place since; bring back the one that was there, and compare it"
            " with a checkpoint"
        )
    return found


def publisher_of(db: Transaction, dataset: str, key: str) -> tuple[int, str] | None:
    """The entry whose files count for a key, and the attempt that stored them."""
    query = "SELECT entry, attempt FROM publication WHERE dataset = ? AND key = ?"
    found = db.rows(query, dataset, key)
    return found[0] if found else None


def hashes_of(db: Transaction, entry: int) -> dict[str, str]:
    """SHA-256 of each file that a released entry has published, by path."""
    query = "SELECT f.line FROM entry e JOIN event f ON f.number = e.ended WHERE e.id = ?"
    ((line,),) = db.rows(query, entry)
    return json.loads(line)["files"]


def _made(
    number: int,
    dataset: str,
    key: str,
    state: Any,
    to: str,
    part: str,
    reserved: str,
    ended: str | None,
) -> Entry:
    try:
        told, end = json.loads(reserved), json.loads(ended) if ended else {}
        return Entry(
            id=number,
            dataset=dataset,
            key=key,
            state=state,
            charge=Fraction(told["charge"]),
            delta=Fraction(told["delta"]),
            mechanisms=json.loads(told["mechanisms"]),
            plan=told["plan"],
            created=told["when"],
            finished=end.get("when"),
            to=to,
            part=part,
            digest=end.get("digest"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(
            f"the event of entry {number} is damaged; `neyman ledger verify` tells more"
        ) from error
