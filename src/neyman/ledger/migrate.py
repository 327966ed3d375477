"""A ledger of version 1 (accounts and entries without a chain) brought up to version 2.

It is part of confirming where the ledger is (see relocation), in the same transaction, so that a
kill leaves the one or the other. The chain begins here: its first
event says so, and each account, entry and publication of before becomes the events that it would
have been. What version 1 called reserved may have read data, so it is reading. Sums were exact and
now are counted in units: what an account has spent is rounded up once, not for each entry, and is
never more than its cap.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from neyman.ledger.chain import START, digest, line_of
from neyman.ledger.database import VERSION
from neyman.ledger.events import Writer
from neyman.ledger.records import LedgerError
from neyman.ledger.rows import Damage, one_row, rational, typed, typed_rows
from neyman.ledger.sqlite.registered_location import FILE_SCHEMA
from neyman.ledger.units import DELTA, MOST_CAP, UNIT, units_down, units_up
from neyman.ledger.validation import ratio

if TYPE_CHECKING:
    import apsw

    from neyman.ledger.database import Transaction

__all__ = ["from_version_1"]

_OLD = ("account", "entry", "publication", "piece")


def from_version_1(connection: apsw.Connection, db: Transaction, path: Path) -> None:
    """Migrate the file behind a connection, in the transaction that is open on it.

    Foreign keys are not enforced, and the triggers of version 1 are gone.

    Raises:
        LedgerError: an account holds more than version 2 can count.
        Damage: a row is none that version 1 wrote.
    """
    db.run("DROP INDEX entry_spending")
    for table in _OLD:
        db.run(f"ALTER TABLE {table} RENAME TO old_{table}")
    connection.execute(FILE_SCHEMA)
    _carry_over(db, path)
    for table in reversed(_OLD):
        db.run(f"DROP TABLE old_{table}")


def _carry_over(db: Transaction, path: Path) -> None:
    first = {"id": secrets.token_hex(16), "version": VERSION, "migrated": 1}
    line = line_of(1, START, "ledger", first)
    db.run("INSERT INTO event (number, line, hash) VALUES (1, ?, ?)", line, digest(line))
    write = Writer(db, 1, digest(line))
    caps: dict[str, tuple[int, int]] = {}
    for row in typed_rows(
        db,
        (str, str, str, int, str, str, str, str),
        "SELECT dataset, protects, neighboring, rows, currency, cap, delta_cap, created"
        " FROM old_account ORDER BY created, dataset",
    ):
        dataset, protects, neighboring, rows, currency, cap, delta_cap, created = row
        caps[dataset] = (
            units_down(min(rational(cap), Fraction(MOST_CAP))),
            units_down(rational(delta_cap), DELTA),
        )
        write.account(
            {
                "dataset": dataset,
                "protects": protects,
                "neighboring": neighboring,
                "rows": rows,
                "currency": currency,
                "parts": [],
                "cap": cap,
                "units": caps[dataset][0],
                "delta_cap": delta_cap,
                "delta_units": caps[dataset][1],
                "when": created,
                "migrated": 1,
            }
        )
    _entries(db, write, caps, path)


def _entries(db: Transaction, write: Writer, caps: dict[str, tuple[int, int]], path: Path) -> None:
    sums: dict[str, list[Fraction]] = {dataset: [Fraction(0)] * 2 for dataset in caps}
    for (number,) in typed_rows(db, (int,), "SELECT id FROM old_entry ORDER BY id"):
        dataset, key, asked, asked_delta, mechanisms, plan, created = one_row(
            db,
            (str,) * 7,
            "SELECT dataset, key, charge, delta, mechanisms, plan, created"
            " FROM old_entry WHERE id = ?",
            number,
        )
        if dataset not in caps:
            raise Damage(f"entry {number} is of a dataset that is not registered")
        charge, delta = rational(asked), rational(asked_delta)
        units: list[int] = []
        for index, (more, per) in enumerate(((charge, UNIT), (delta, DELTA))):
            before = min(units_up(sums[dataset][index], per), caps[dataset][index])
            sums[dataset][index] += more
            after = min(units_up(sums[dataset][index], per), caps[dataset][index])
            units.append(after - before)
        if sums[dataset][0] > MOST_CAP:
            raise LedgerError(
                f"{path} has spent more than {MOST_CAP:,} of {dataset}, which this version cannot"
                " count: keep this ledger for the record, and register a new one"
            )
        told = {
            "dataset": dataset,
            "to": "",
            "part": "",
            "key": key,
            "charge": ratio(charge),
            "units": units[0],
            "delta": ratio(delta),
            "delta_units": units[1],
            "mechanisms": mechanisms,
            "plan": plan,
            "when": created,
            "migrated": 1,
        }
        write.reserve(number, told)
        write.begin(number, when=created, migrated=1)
    # Of several entries of a key, the one whose files count comes first.
    for entry, published, when in typed_rows(
        db,
        (int, int, str),
        "SELECT e.id, p.entry, e.finished FROM old_entry e JOIN old_publication p"
        " ON p.dataset = e.dataset AND p.key = e.key WHERE e.state = 'finished'"
        " ORDER BY e.id <> p.entry, e.id",
    ):
        _finished(db, write, entry, published, when)


def _finished(db: Transaction, write: Writer, entry: int, published: int, when: str) -> None:
    attempt, hashes = "migrated", dict[str, str]()
    query = "SELECT DISTINCT path FROM old_piece WHERE entry = ? ORDER BY path"
    for (name,) in typed_rows(db, (str,), query, published):
        hashes[name] = _copied(db, entry, published, name, attempt)
    write.finish(entry, published, hashes, attempt, when=when, migrated=1)


def _copied(db: Transaction, entry: int, published: int, name: str, attempt: str) -> str:
    """A file's hash; its pieces are copied if the entry is the one that is published."""
    seen, number = hashlib.sha256(), 0
    query = "SELECT packed FROM old_piece WHERE entry = ? AND path = ? AND number = ?"
    while found := db.rows(query, published, name, number):
        (packed,) = typed(found[0], (bytes,))
        try:
            seen.update(zlib.decompress(packed))
        except zlib.error as error:
            raise Damage(f"a piece of {name} cannot be unzipped: {error}") from None
        if entry == published:
            db.run(
                "INSERT INTO piece (entry, attempt, path, number, zipped, content)"
                " VALUES (?, ?, ?, ?, 1, ?)",
                *(entry, attempt, name, number, packed),
            )
        number += 1
    return seen.hexdigest()
