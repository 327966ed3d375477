"""Read entries: the rows give the state of an entry, and the chain gives its content."""

from __future__ import annotations

from typing import Any, cast, get_args

from neyman.ledger.database import MOST_ROWS, Transaction
from neyman.ledger.records import Approval, Entry, LedgerError, Sequel, State
from neyman.ledger.rows import (
    Damage,
    fields,
    fraction,
    hashes,
    json_value,
    one_row,
    typed_field,
    typed_rows,
)

_QUERY = (
    "SELECT e.id, e.dataset, e.key, e.state, e.holder, e.part, r.line, f.line FROM entry e"
    " JOIN event r ON r.number = e.event LEFT JOIN event f ON f.number = e.ended"
)
_KINDS = (int, str, str, str, str, str, str, str | None)
_FIXED = ("dataset", "to", "part", "key", "charge", "delta", "created")


def entries_of(db: Transaction, dataset: str, last: int | None = None) -> tuple[Entry, ...]:
    """Return a dataset's entries, oldest first, or only its ``last`` newest entries."""
    if last is None:
        rows = typed_rows(db, _KINDS, f"{_QUERY} WHERE e.dataset = ? ORDER BY e.id", dataset)
    else:
        query = f"{_QUERY} WHERE e.dataset = ? ORDER BY e.id DESC LIMIT ?"
        rows = typed_rows(db, _KINDS, query, dataset, min(last, MOST_ROWS))[::-1]
    return tuple(_entry(*row) for row in rows)


def entry_of(db: Transaction, number: int) -> Entry:
    """Return the entry with a number."""
    query = f"{_QUERY} WHERE e.id = ?"
    rows = typed_rows(db, _KINDS, query, number) if number <= MOST_ROWS else []
    if not rows:
        raise LedgerError(f"there is no entry {number} in this ledger")
    return _entry(*rows[0])


def meant(db: Transaction, asked: Entry | int) -> Entry:
    """Return the current state of an entry, given as an `Entry` or by its number.

    Raises:
        LedgerError: the entry does not exist, or the given entry is another charge with the same
            number.
    """
    if not isinstance(asked, Entry):
        return entry_of(db, asked)
    entry = entry_of(db, asked.id)
    if any(getattr(entry, name) != getattr(asked, name) for name in _FIXED):
        raise LedgerError(
            f"entry {asked.id} is not the charge that was reserved: a copy has replaced the ledger"
            " since. Bring back the original ledger, and compare it with a checkpoint"
        )
    return entry


def publisher_of(db: Transaction, dataset: str, key: str) -> tuple[int, str] | None:
    """Return the entry whose files count for a key, and the attempt that stored them, or None."""
    query = "SELECT entry, attempt FROM publication WHERE dataset = ? AND key = ?"
    rows = typed_rows(db, (int, str), query, dataset, key)
    return (rows[0][0], rows[0][1]) if rows else None


def hashes_of(db: Transaction, entry: int) -> dict[str, str]:
    """Return the SHA-256 of each published file of a released entry, by path."""
    query = "SELECT f.line FROM entry e JOIN event f ON f.number = e.ended WHERE e.id = ?"
    return hashes(fields(one_row(db, (str,), query, entry)[0]))


def sequels_of(db: Transaction, entry: Entry) -> tuple[Sequel, ...]:
    """Return what happened to a published entry, to the entry that replaced it, and so on."""
    query = (
        "SELECT e.line FROM note n JOIN event e ON e.number = n.event WHERE n.dataset = ?"
        " AND n.subject = ? AND n.kind IN ('correct', 'withdraw')"
    )
    sequels: list[Sequel] = []
    while rows := typed_rows(db, (str,), query, entry.dataset, str(entry.id)):
        event = fields(rows[0][0])
        number = typed_field(event, "entry", int) if event.get("kind") == "correct" else None
        why, when = (typed_field(event, name, str) for name in ("why", "when"))
        sequels.append(Sequel(number, why, when))
        # A later entry publishes later, so this ends.
        if number is None or number <= entry.id:
            break
        entry = entry_of(db, number)
    return tuple(sequels)


def approval_of(db: Transaction, dataset: str, key: str) -> Approval | None:
    """Return the approval of a key, unless there is none or it was revoked."""
    query = (
        "SELECT e.line FROM note n JOIN event e ON e.number = n.event WHERE n.dataset = ?"
        " AND n.subject = ? AND n.kind IN ('approve', 'revoke') ORDER BY n.event DESC LIMIT 1"
    )
    for (line,) in typed_rows(db, (str,), query, dataset, key):
        event = fields(line)
        if event.get("kind") == "approve":
            return Approval(*(typed_field(event, name, str) for name in Approval._fields))
    return None


def refuse_unapproved(db: Transaction, dataset: str, key: str, plan: str) -> None:
    """Raise LedgerError unless a key is approved. Say if another plan of its name was."""
    if approval_of(db, dataset, key) is not None:
        return
    query = (
        "SELECT e.line FROM note n JOIN event e ON e.number = n.event"
        " WHERE n.dataset = ? AND n.kind = 'approve'"
    )
    names = {fields(line).get("plan") for (line,) in typed_rows(db, (str,), query, dataset)}
    content = json_value(plan)
    name = cast(dict[str, Any], content).get("name") if isinstance(content, dict) else None
    changed = (
        f". A plan named {name!r} was approved, and it is not this one: its text or its key files"
        " changed since, or the approval was revoked"
        if name in names
        else ""
    )
    raise LedgerError(
        f"{dataset} needs an approval of each charge, and {key} has none{changed}. A second person"
        " gives it: neyman plan approve plan.toml --ledger LEDGER --who NAME"
    )


def refuse_sequel(db: Transaction, entry: Entry) -> None:
    """Raise LedgerError unless an entry is published, and neither corrected nor withdrawn."""
    if (publisher_of(db, entry.dataset, entry.key) or (0,))[0] != entry.id:
        raise LedgerError(f"entry {entry.id} of {entry.dataset} is not published: name a release")
    sequels = sequels_of(db, entry)
    if sequels:
        newest = [one.entry for one in sequels if one.entry is not None]
        taken = "" if sequels[-1].entry else ", which was withdrawn: nothing is left to replace"
        done = f"corrected already: the newest is entry {newest[-1]}" if newest else "withdrawn"
        raise LedgerError(
            f"entry {entry.id} of {entry.dataset} is {done}{taken} ({sequels[-1].why})"
        )


def _entry(
    number: int,
    dataset: str,
    key: str,
    state: str,
    to: str,
    part: str,
    reserved: str,
    ended: str | None,
) -> Entry:
    if state not in get_args(State):
        raise Damage(f"entry {number} has the state {state[:20]!r}")
    event, end = fields(reserved), fields(ended) if ended else {}
    return Entry(
        id=number,
        dataset=dataset,
        key=key,
        state=cast(State, state),
        charge=fraction(event, "charge"),
        delta=fraction(event, "delta"),
        mechanisms=json_value(typed_field(event, "mechanisms", str)),
        plan=typed_field(event, "plan", str),
        created=typed_field(event, "when", str),
        finished=typed_field(end, "when", str | None),
        to=to,
        part=part,
        digest=typed_field(end, "digest", str | None),
    )
