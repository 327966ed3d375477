"""What the ledger asks of a database: a few tables, transactions, and rules that it keeps itself.

`Ledger` (book) speaks to a store in SQL that SQLite and PostgreSQL both understand, with ``?`` for
values; what differs (places, locks, triggers, errors in words) is in the file of each store.

The tables, which `TABLES` makes:

- ``event``: the chain. Each line is JSON and holds the SHA-256 of the line before it (see `chain`);
  ``hash`` is the line's own. Everything else in the ledger follows from these lines, and is there
  so that nothing needs to be added up when someone asks.
- ``account``: a registered dataset version.
- ``purse``: how much may be spent, and has been, in whole units (see `ledger.units`): one row for
  each holder of a dataset (the account itself is the holder '') and each declared part (a dataset
  without parts has the part ''). No row can have more spent than its cap.
- ``above``: each holder's ancestors, itself and '' included.
- ``entry``: a spend. ``event`` is the number of the line that reserved it, ``ended`` of the line
  that finished or voided it.
- ``publication``: the entry whose files count for a key, and the attempt that stored them.
- ``piece``: a file's contents, at most 1 MiB each; ``zipped`` is 1 where zlib made it smaller.
  Until an entry is released, an empty piece may count its steps; see `Ledger.count_steps`.

The rules, which triggers keep (`sqlite.schema` has them in SQLite's words):

1. Events follow one another from 1 without a gap, and are never changed or deleted; accounts,
   ancestors and publications are never changed or deleted.
2. A purse is of a declared part, or of '' if there are none. It begins with nothing spent, and
   with caps no larger than those of the same part of each holder above. Its terms never change.
3. Inserting an entry, always in state 'reserved', adds its charge, its delta and 1 to ``spent``,
   ``spent_delta`` and ``entries`` of the purses of its holder, of all above and of the account, in
   its part, or in every part where it has none (''); if its holder has no such purse it is
   refused. The ``CHECK`` of the purse then refuses what is too much.
4. An entry changes from 'reserved' to 'reading' or to 'void' (which takes what rule 3 added off
   again) [LE-4], and from 'reading' to 'released', and in no other way; never deleted. ``ended`` is
   set with 'void' and 'released' and with nothing else.
5. A publication is of an entry of its dataset and key that is 'reading'. A piece is inserted while
   its entry is 'reading' and can be deleted only then; it is never changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol

from neyman.ledger.records import LedgerError
from neyman.ledger.units import MOST

VERSION = 2
"""Of the tables and rules here; a store refuses a newer one and brings an older one up to date."""

MOST_ROWS = 2**62
"""No table has more; databases count in 64 bits, and Python does not."""

TABLES = (
    """CREATE TABLE event (
    number INTEGER PRIMARY KEY, line TEXT NOT NULL, hash TEXT NOT NULL
)""",
    """CREATE TABLE account (
    dataset TEXT PRIMARY KEY, protects TEXT NOT NULL, neighboring TEXT NOT NULL,
    rows INTEGER NOT NULL CHECK (rows >= 1), currency TEXT NOT NULL, parts TEXT NOT NULL,
    event INTEGER NOT NULL REFERENCES event (number)
)""",
    f"""CREATE TABLE purse (
    dataset TEXT NOT NULL REFERENCES account (dataset), holder TEXT NOT NULL, part TEXT NOT NULL,
    parent TEXT, event INTEGER NOT NULL REFERENCES event (number),
    cap INTEGER NOT NULL CHECK (cap BETWEEN 0 AND {MOST}),
    delta_cap INTEGER NOT NULL CHECK (delta_cap BETWEEN 0 AND {MOST}),
    spent INTEGER NOT NULL, spent_delta INTEGER NOT NULL,
    entries INTEGER NOT NULL CHECK (entries >= 0),
    PRIMARY KEY (dataset, holder, part),
    CONSTRAINT no_more_than_the_cap CHECK (spent BETWEEN 0 AND cap),
    CONSTRAINT no_more_than_the_delta_cap CHECK (spent_delta BETWEEN 0 AND delta_cap)
)""",
    """CREATE TABLE above (
    dataset TEXT NOT NULL, holder TEXT NOT NULL, ancestor TEXT NOT NULL,
    PRIMARY KEY (dataset, holder, ancestor)
)""",
    f"""CREATE TABLE entry (
    id INTEGER PRIMARY KEY, dataset TEXT NOT NULL REFERENCES account (dataset),
    holder TEXT NOT NULL, part TEXT NOT NULL, key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'reading', 'released', 'void')),
    charge INTEGER NOT NULL CHECK (charge BETWEEN 0 AND {MOST}),
    delta INTEGER NOT NULL CHECK (delta BETWEEN 0 AND {MOST}),
    event INTEGER NOT NULL REFERENCES event (number), ended INTEGER REFERENCES event (number),
    CHECK ((state IN ('released', 'void')) = (ended IS NOT NULL))
)""",
    "CREATE INDEX entry_of_key ON entry (dataset, key)",
    "CREATE INDEX entry_in_order ON entry (dataset, id)",
    """CREATE TABLE publication (
    dataset TEXT NOT NULL, key TEXT NOT NULL, entry INTEGER NOT NULL REFERENCES entry (id),
    attempt TEXT NOT NULL, PRIMARY KEY (dataset, key)
)""",
    """CREATE TABLE piece (
    entry INTEGER NOT NULL REFERENCES entry (id), attempt TEXT NOT NULL, path TEXT NOT NULL,
    number INTEGER NOT NULL, zipped INTEGER NOT NULL CHECK (zipped IN (0, 1)),
    content BLOB NOT NULL, PRIMARY KEY (entry, attempt, path, number)
)""",
)
"""In SQLite's types; in PostgreSQL INTEGER is BIGINT and BLOB is BYTEA."""


class Transaction(Protocol):
    """A use of the database: all of it happens or none; others see none of it before."""

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows that a query with ``?`` for the values answers with, read at once."""
        ...

    def run(self, query: str, *values: object) -> None:
        """Carry out a statement; a store may do so, and refuse, as late as when it commits."""
        ...


class Reservation(NamedTuple):
    """A spend that is asked for: see `Ledger.reserve`, and for its line `line_around`."""

    dataset: str
    holder: str
    part: str
    key: str
    protects: str
    relation: str
    rows: int
    units: int
    delta_units: int
    line: tuple[str, str, str, str]


def unlike(here: Mapping[tuple[str, str], Any], ours: Mapping[tuple[str, str], Any]) -> list[str]:
    """In words, where what a database has is not what this version makes; both by kind and name."""
    differences: list[str] = []
    for kind, name in sorted(here.keys() | ours.keys()):
        if (kind, name) not in ours:
            differences.append(f"the {kind} {name} is none of the ledger's")
        elif (kind, name) not in here:
            differences.append(f"the {kind} {name} is missing")
        elif here[kind, name] != ours[kind, name]:
            differences.append(f"the {kind} {name} is not as this version makes it")
    return differences


class Store(ABC):
    """A database that keeps a ledger.

    ``where`` names it in messages, without secrets. A store may be used by threads at once, is
    pickled as its address, and may be used after a fork, or refuses to be. All methods raise
    `LedgerError` where something fails, with words that say what to do; one that a rule or a
    ``CHECK`` refused says so.
    """

    where: str
    local: ClassVar[bool] = False
    """True where reading asks no server."""
    failures: ClassVar[tuple[type[Exception], ...]] = ()
    """What a transaction raises where the database is damaged, before it is put in words."""

    @abstractmethod
    def exists(self) -> bool:
        """Return True if the ledger exists, or something else stands in its place."""

    @abstractmethod
    def create(self, line: str, digest: str) -> None:
        """Make a ledger of `TABLES` with their rules, unless there is one, all at once.

        Args:
            line: its event 1.
            digest: that event's hash.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Return a transaction that sees one moment of the ledger."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """Return a transaction that alone may write; on leaving,
        all of it is on the disk, or none.
        """

    def relocating(self) -> AbstractContextManager[Transaction | None]:
        """Return a transaction after which the ledger belongs where
        its file is; None if it does.
        """
        raise LedgerError(
            f"{self.where} has no file: the location of a ledger is confirmed where it is kept in"
            " SQLite"
        )

    @abstractmethod
    def reserve_fast(self, asked: Reservation) -> int | None:
        """Reserve in one step, durably, where that is quicker than a transaction of several.

        Returns:
            The id of the new entry; or None, with nothing written, where the store has no such
            step, where it is refused, or where the key has been tried before.
        """

    @abstractmethod
    def turn(self, key: str, wait: float) -> AbstractContextManager[None]:
        """Hold the turn of a plan: of the processes that ask for it, one at a time has it.

        It ends with the process, and is no transaction: others read and write meanwhile.

        Args:
            wait: seconds to wait for another process, at most.

        Raises:
            LedgerError: another process still has it.
        """

    @abstractmethod
    def problems(self) -> list[str]:
        """Where the database is damaged, or its tables and rules are not those of this version."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open; the store can be used again, and opens anew."""
