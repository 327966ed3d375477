"""Store a release's files in the ledger and mark its entry as released: both or neither."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any

from neyman.ledger.database import Transaction
from neyman.ledger.entries import entry_of, hashes_of, meant, publisher_of
from neyman.ledger.events import Writer
from neyman.ledger.published_files import check_files, pieces
from neyman.ledger.records import Entry, LedgerError
from neyman.ledger.rows import typed_rows

_STEPS = "steps"  # attempt and path of an empty piece whose number counts the steps
_BATCH_PIECES = 8  # pieces stored in one transaction, so that other writers get their turn


def publish(
    writing: Callable[[], AbstractContextManager[Writer]],
    asked: Entry | int,
    files: Mapping[str, bytes | Path],
    corrects: int | None = None,
    why: str = "",
) -> Entry:
    """Store a release's files and mark its entry as released, as `Ledger.finish` describes.

    The pieces are stored first, in transactions of a few pieces each, under a random name. The last
    transaction makes them count. If an attempt fails before, the next one deletes its pieces.

    Args:
        writing: a function that opens a transaction for writing.
        asked: a reading entry, or its number.
        files: contents by path. They are checked here.
        corrects: the published entry that this one replaces, or None.
        why: the reason of the correction.
    """
    check_files(files)
    attempt, hashes, stored = secrets.token_hex(8), dict[str, str](), 0
    with writing() as write:
        entry = _reading(write, asked)
        first = publisher_of(write.db, entry.dataset, entry.key)
        _drop_pieces(write, entry.id, _STEPS)
    if first is None:
        for batch in _batches(pieces(files, hashes)):
            with writing() as write:
                _reading(write, entry)
                for piece in batch:
                    write.db.run(
                        "INSERT INTO piece (entry, attempt, path, number, zipped, content)"
                        " VALUES (?, ?, ?, ?, ?, ?)",
                        *(entry.id, attempt, *piece),
                    )
            stored += len(batch)
    with writing() as write:
        _reading(write, entry)
        first = publisher_of(write.db, entry.dataset, entry.key)
        if first is None:
            write.db.run("DELETE FROM piece WHERE entry = ? AND attempt = ?", entry.id, _STEPS)
            query = "SELECT count(*) FROM piece WHERE entry = ?"
            own = write.db.rows(f"{query} AND attempt = ?", entry.id, attempt)
            if own != [(stored,)] or write.db.rows(query, entry.id) != own:
                raise LedgerError(
                    f"entry {entry.id} of {entry.dataset} is being finished by another process"
                    " at the same time: each run has its own entry"
                )
        else:
            _drop_pieces(write, entry.id)
            hashes = hashes_of(write.db, first[0])
        published = first[0] if first else entry.id
        write.finish(entry.id, published, hashes, attempt)
        if corrects is not None and published == entry.id:
            old = entry_of(write.db, corrects)
            write.note("correct", old.dataset, str(corrects), entry=entry.id, why=why)
        return entry_of(write.db, published)


def steps_of(db: Transaction, entry_id: int) -> int | None:
    """Return the number of begun steps, as `Ledger.steps` does."""
    query = "SELECT number FROM piece WHERE entry = ? AND attempt = ?"
    rows = typed_rows(db, (int,), query, entry_id, _STEPS)
    return max((number for (number,) in rows), default=None)


def count_steps(write: Writer, asked: Entry | int, before: int | None, after: int) -> None:
    """Set the number of begun steps, as `Ledger.count_steps` does."""
    entry = _reading(write, asked)
    if steps_of(write.db, entry.id) != before:
        raise LedgerError(
            f"another process has begun steps of entry {entry.id} of {entry.dataset}. This process"
            " draws none, because only one of the two may continue"
        )
    _drop_pieces(write, entry.id)
    write.db.run(
        "INSERT INTO piece (entry, attempt, path, number, zipped, content)"
        " VALUES (?, ?, ?, ?, 0, ?)",
        *(entry.id, _STEPS, _STEPS, after, b""),
    )


def _drop_pieces(write: Writer, entry_id: int, but: str = "") -> None:
    where = "FROM piece WHERE entry = ? AND attempt <> ?"
    if write.db.rows(f"SELECT 1 {where} LIMIT 1", entry_id, but):
        write.db.run(f"DELETE {where}", entry_id, but)


def _reading(write: Writer, asked: Entry | int) -> Entry:
    entry = meant(write.db, asked)
    if entry.state != "reading":
        what = {
            "released": "is released already",
            "reserved": "has not begun reading: `begin` says so before data are opened",
            "void": "is void: nothing may be published of it",
        }
        raise LedgerError(f"entry {entry.id} of {entry.dataset} {what[entry.state]}")
    return entry


def _batches(values: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(values, _BATCH_PIECES)):
        yield batch
