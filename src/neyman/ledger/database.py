"""Define the interface of a database for a ledger: tables, transactions, and enforced rules.

`Ledger` accesses a store through SQL that SQLite and PostgreSQL both understand, with ``?`` for
values. Each store has its own code for places, locks, triggers, and error messages.

The tables, which `TABLES` makes:

- ``event``: the chain. Each line is JSON and holds the SHA-256 of the line before it (see `chain`).
  ``hash`` is the line's own hash. Everything else in the ledger follows from these lines, and is
  stored so that queries need no sums.
- ``account``: a registered dataset version. ``approval`` is '' if none is needed, and otherwise the
  public keys of which one must sign each approval, as JSON.
- ``purse``: the caps and the charges, in integer units (see `ledger.units`). Each holder of a
  dataset has one row for each declared part. The account itself is the holder ''. A dataset without
  parts has the part ''. No row can have more spent than its cap.
- ``above``: each holder's ancestors, including the holder itself and ''.
- ``entry``: a charge. ``event`` is the number of the line that reserved it. ``ended`` is the number
  of the line that finished or voided it.
- ``note``: what was said about a dataset after its registration. The ``subject`` of a note is the
  population (kind ``edition``), the published entry that was replaced (``correct``) or taken back
  (``withdraw``), or the key of a plan (``approve`` and ``revoke``).
- ``publication``: the entry whose files count for a key, and the attempt that stored them.
- ``piece``: a file's contents, at most 1 MiB each. ``zipped`` is 1 if zlib made the piece smaller.
  Until an entry is released, an empty piece may count its steps (see `Ledger.count_steps`).

Triggers enforce these rules (`sqlite.schema` has them as SQLite triggers):

1. Events follow one another from 1 without a gap, and are never changed or deleted. Accounts,
   ancestors, notes, and publications are never changed or deleted.
2. A purse has a declared part, or '' if there are none. It begins with nothing spent. Its caps are
   at most the caps of the same part of each holder above. Its terms never change.
3. An entry is always inserted in state 'reserved'. This adds its charge, its delta, and 1 to
   ``spent``, ``spent_delta``, and ``entries`` of purses: those of its holder, of all holders above,
   and of the account, in its part, or in every part if its part is ''. If its holder has no such
   purse, the entry is refused. If its dataset needs approvals, a key without one that stands is
   refused, too. The ``CHECK`` of the purse then refuses an excess. If the dataset is
   an edition, each purse of its population's account changes by as much as the largest ``spent``
   (``spent_delta``) of the edition's account does, and by 1 in ``entries`` [LE-5].
4. An entry changes from 'reserved' to 'reading', from 'reserved' to 'void', or from 'reading' to
   'released', and in no other way [LE-4]. 'void' subtracts what rule 3 added. An entry is never
   deleted. ``ended`` is set with 'void' and 'released', and in no other state.
5. A note follows from the last event and from `note_rule`. A note of kind ``edition`` adds the
   largest ``spent``, ``spent_delta``, and ``entries`` of the dataset's account to each purse of the
   population's.
6. A publication belongs to an entry of its dataset and key that is 'reading'. A piece can be
   inserted or deleted only while its entry is 'reading', and is never changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol

from neyman.ledger.records import LedgerError
from neyman.ledger.units import MOST

VERSION = 4
"""A ledger has this format. A store refuses every other format."""

MOST_ROWS = 2**62
"""No table has more rows. A database's integers have 64 bits, and Python's have no limit."""

TABLES = (
    """CREATE TABLE event (
    number INTEGER PRIMARY KEY, line TEXT NOT NULL, hash TEXT NOT NULL
)""",
    """CREATE TABLE account (
    dataset TEXT PRIMARY KEY, protects TEXT NOT NULL, neighboring TEXT NOT NULL,
    rows INTEGER NOT NULL CHECK (rows >= 1), currency TEXT NOT NULL, parts TEXT NOT NULL,
    approval TEXT NOT NULL, event INTEGER NOT NULL REFERENCES event (number)
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
    """CREATE TABLE note (
    event INTEGER PRIMARY KEY REFERENCES event (number), kind TEXT NOT NULL,
    dataset TEXT NOT NULL REFERENCES account (dataset), subject TEXT NOT NULL
)""",
    "CREATE INDEX note_of_dataset ON note (dataset, kind, subject)",
    "CREATE INDEX note_of_subject ON note (subject, kind)",
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
"""The types are SQLite's. In PostgreSQL, INTEGER is BIGINT and BLOB is BYTEA."""


_STANDS = """(EXISTS (SELECT 1 FROM @.publication
            WHERE dataset = NEW.dataset AND CAST(entry AS TEXT) = NEW.subject)
        AND NOT EXISTS (SELECT 1 FROM @.note WHERE dataset = NEW.dataset
            AND kind IN ('correct', 'withdraw') AND subject = NEW.subject))"""
_LATEST = """coalesce((SELECT kind FROM @.note WHERE dataset = NEW.dataset
        AND subject = NEW.{0} AND kind IN ('approve', 'revoke')
        ORDER BY event DESC LIMIT 1), '')"""
APPROVED = f"""(NOT EXISTS (SELECT 1 FROM @.account WHERE dataset = NEW.dataset AND approval <> '')
        OR {_LATEST.format("key")} = 'approve')"""
"""The SQL condition that a new entry has the approval that its dataset needs, in both dialects."""
_NOTE_RULE = """CASE NEW.kind
    WHEN 'edition' THEN NOT EXISTS (SELECT 1 FROM @.note WHERE kind = 'edition'
            AND (dataset IN (NEW.dataset, NEW.subject) OR subject = NEW.dataset))
        AND EXISTS (SELECT 1 FROM @.account e JOIN @.account p
                ON p.protects = e.protects AND p.neighboring = e.neighboring
                AND p.currency = e.currency AND p.dataset <> e.dataset
            WHERE e.dataset = NEW.dataset AND p.dataset = NEW.subject)
    WHEN 'correct' THEN {0} AND EXISTS (SELECT 1 FROM @.entry e JOIN @.publication p
            ON p.entry = e.id WHERE e.id = {1} AND e.state = 'released'
            AND CAST(e.id AS TEXT) <> NEW.subject)
    WHEN 'withdraw' THEN {0}
    WHEN 'approve' THEN {2} <> 'approve'
    WHEN 'revoke' THEN {2} = 'approve'
    END"""


def note_rule(entry: str) -> str:
    """Return the SQL condition for a new note, in both dialects. ``@`` stands for the schema.

    An edition has one population, which has the edition's unit, relation, and currency. A
    population is no edition. A published entry is corrected or withdrawn once. The correction is
    another published entry. What is approved can only be revoked, and nothing else can.

    Args:
        entry: SQL for the field ``entry`` of the last event.
    """
    return _NOTE_RULE.format(_STANDS, entry, _LATEST.format("subject"))


_POPULATION = """WHERE holder = '' AND dataset = (SELECT subject FROM @.note
    WHERE dataset = NEW.dataset AND kind = 'edition')"""
_MOST_SPENT = """(SELECT
    max({0} + {sign} * CASE WHEN NEW.part IN ('', part) THEN NEW.{1} ELSE 0 END)
    - max({0}) FROM @.purse WHERE dataset = NEW.dataset AND holder = '')"""
_LARGEST = "(SELECT max({0}) FROM @.purse WHERE dataset = NEW.dataset AND holder = '')"

JOIN = f"""UPDATE @.purse SET spent = spent + {_LARGEST.format("spent")},
    spent_delta = spent_delta + {_LARGEST.format("spent_delta")},
    entries = entries + {_LARGEST.format("entries")} {_POPULATION};"""
"""The SQL statement that adds what a new edition has spent to its population."""


def population_moves(sign: str) -> str:
    """Return the SQL statement that adds ``sign`` (1 or -1) times an entry to the population.

    It comes before the statement that changes the purses of the edition.
    """
    return f"""UPDATE @.purse SET
    spent = spent + {_MOST_SPENT.format("spent", "charge", sign=sign)},
    spent_delta = spent_delta + {_MOST_SPENT.format("spent_delta", "delta", sign=sign)},
    entries = entries + {sign} {_POPULATION};"""


class Transaction(Protocol):
    """Use the database in one atomic step that others see only when it is complete."""

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows that answer a query, with ``?`` for the values."""
        ...

    def run(self, query: str, *values: object) -> None:
        """Run a statement. A store may run or refuse it as late as at the commit."""
        ...


class Reservation(NamedTuple):
    """Hold the values of a requested charge (see `Ledger.reserve` and `line_around`)."""

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
    """Describe each difference between the objects of a database and those of this version.

    Args:
        here, ours: definitions in the database and in this version, by kind and name.
    """
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
    """Store a ledger in a database.

    ``where`` is the store's name in messages, without secrets. Several threads may use a store at
    once. It is pickled as its address. After a fork it works, or raises an error. If a method
    fails, it raises a `LedgerError` that says what to do. If a rule or a ``CHECK`` refuses a
    change, the message says so.
    """

    where: str
    local: ClassVar[bool] = False
    """This is True if reading needs no server."""
    failures: ClassVar[tuple[type[Exception], ...]] = ()
    """A transaction raises these exceptions if the database is damaged."""

    @abstractmethod
    def exists(self) -> bool:
        """Return True if the ledger exists, or something else has its name."""

    @abstractmethod
    def create(self, line: str, digest: str) -> None:
        """Create a ledger with `TABLES` and their rules atomically, unless it exists.

        Args:
            line: the line of event 1.
            digest: the hash of this line.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Return a transaction for reading: all its queries see the same state of the ledger."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """Return the only transaction that may write. On exit, all of it is stored, or nothing."""

    def relocating(self) -> AbstractContextManager[Transaction | None]:
        """Return a transaction that confirms the ledger's location, or None if it is unchanged."""
        raise LedgerError(
            f"{self.where} has no file: the location of a ledger is confirmed where it is kept in"
            " SQLite"
        )

    @abstractmethod
    def reserve_fast(self, asked: Reservation) -> int | None:
        """Reserve durably in one step, if this is faster than a transaction of several steps.

        Returns:
            The id of the new entry. None, with nothing written, if the store has no such step, the
            step is refused, or the key was tried before.
        """

    @abstractmethod
    def turn(self, key: str, wait: float) -> AbstractContextManager[None]:
        """Hold the turn of a plan, which only one process has at a time.

        The turn ends with the process. It is not a transaction: others can read and write.

        Args:
            wait: largest number of seconds to wait for another process.

        Raises:
            LedgerError: another process still has the turn.
        """

    @abstractmethod
    def problems(self) -> list[str]:
        """List damage of the database, and where its tables and rules differ from this version."""

    @abstractmethod
    def close(self) -> None:
        """Close open connections. The store can be used again, and then opens new ones."""
