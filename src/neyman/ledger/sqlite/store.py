"""Store a ledger in an SQLite file: create it atomically, open it safely, explain its errors."""

from __future__ import annotations

import ctypes
import os
import tempfile
import weakref
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from neyman.ledger.chain import digest, line_between
from neyman.ledger.database import VERSION, Reservation, Store
from neyman.ledger.records import LedgerError
from neyman.ledger.sqlite import location
from neyman.ledger.sqlite.connection import (
    FAILURES,
    MARK,
    OPEN,
    SQLiteTransaction,
    apsw,
    connected,
    disconnect,
    in_words,
    make_durable,
    refuse_other,
    trust,
)
from neyman.ledger.sqlite.relocation import relocating
from neyman.ledger.turn import file_turn
from neyman.storage.durable import sync_folder

_LAST = """BEGIN IMMEDIATE;
SELECT number + 1, hash, (SELECT coalesce(max(id), 0) + 1 FROM entry) FROM event
WHERE EXISTS (SELECT 1 FROM account
        WHERE dataset = ? AND protects = ? AND neighboring = ? AND rows = ?)
    AND NOT EXISTS (SELECT 1 FROM entry WHERE dataset = ? AND key = ?)
ORDER BY number DESC LIMIT 1"""
_RESERVE = """INSERT INTO event (number, line, hash) VALUES (?, ?, ?);
INSERT INTO entry (id, dataset, holder, part, key, state, charge, delta, event)
VALUES (?, ?, ?, ?, ?, 'reserved', ?, ?, ?);
COMMIT"""

# SQLite locks belong to the process that took them. A forked process would assume that it holds
# its parent's locks, and could lose others' writes. So connections are closed before a fork. If a
# thread was using one at that moment, the child may not open a ledger.
_stores: weakref.WeakSet[SQLiteFile] = weakref.WeakSet()
_stranded: list[apsw.Connection] = []


@dataclass(frozen=True, eq=False)
class _Open:
    """Hold a connection, and the identity of the file that it opened."""

    connection: apsw.Connection
    file: tuple[int, int]

    def close(self) -> None:
        disconnect(self.connection)


class SQLiteFile(Store):
    """Store a ledger in a SQLite file, which is refused outside its location (see ``location``).

    Connections stay open for the next use, at most one per concurrent thread. While a connection is
    open, files with -wal and -shm are beside the ledger. The last connection that closes removes
    them.

    Args:
        path: absolute path of the existing or future file.
    """

    local: ClassVar[bool] = True
    failures: ClassVar[tuple[type[Exception], ...]] = FAILURES

    def __init__(self, path: Path, wait: float = 30.0) -> None:
        self.path, self.wait, self.where = path, wait, str(path)
        self._idle: list[_Open] = []
        weakref.finalize(self, _close_all, self._idle)
        _stores.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.wait)

    def close(self) -> None:
        _close_all(self._idle)

    def exists(self) -> bool:
        """Return True if anything is at the path."""
        return os.path.lexists(self.path)

    def create(self, line: str, digest: str) -> None:
        """Create a ledger (permissions 0600) unless one exists. A killed process leaves none."""
        location.refuse_mount(self.path)
        if self.exists():
            return
        # SQLite would replay a log left by a deleted ledger into the new one. The second check of
        # the path is for another process that has just made a ledger and is writing to it.
        for suffix in ("-wal", "-journal"):
            log = f"{self.path}{suffix}"
            if os.path.lexists(log) and not self.exists():
                raise LedgerError(
                    f"{log} is left of a ledger that is gone: put {self.path.name} back beside it,"
                    " or move it away if that spending is accounted for elsewhere"
                )
        try:
            self._create(line, digest)
        except OSError as error:
            raise LedgerError(
                f"no ledger can be made in the folder {self.path.parent}: {error.strerror}"
            ) from error

    def _create(self, line: str, digest: str) -> None:
        # Written under another name and linked when complete, so no process sees a partial file.
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        os.close(handle)
        try:
            with in_words(self.path, self.wait):
                connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
                try:
                    make_durable(connection, self.path)
                    version = f"PRAGMA user_version = {VERSION}"
                    connection.execute(f"BEGIN; {location.FILE_SCHEMA} {MARK} {version}")
                    connection.execute("INSERT INTO event VALUES (1, ?, ?)", (line, digest))
                    location.Location.of(self.path, Path(name)).record(
                        SQLiteTransaction(connection)
                    )
                    connection.execute("COMMIT")
                finally:
                    connection.close()
            with suppress(FileExistsError):
                os.link(name, self.path)
        finally:
            # A process that opened the ledger before may have removed the name: see `look`.
            with suppress(FileNotFoundError):
                os.unlink(name)
        sync_folder(self.path.parent)

    def reading(self) -> AbstractContextManager[SQLiteTransaction]:
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[SQLiteTransaction]:
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def relocating(self) -> Generator[SQLiteTransaction | None]:
        self._refuse_stranded()
        self.close()
        with in_words(self.path, self.wait), relocating(self.path, self.wait) as transaction:
            yield transaction

    def reserve_fast(self, asked: Reservation) -> int | None:
        try:
            with self._connection() as connection:
                whose = (asked.dataset, asked.protects, asked.relation, asked.rows)
                db = SQLiteTransaction(connection)
                last = db.rows(_LAST, *whose, asked.dataset, asked.key)
                if not last:
                    connection.execute("COMMIT")
                    return None
                ((event, head, entry),) = last
                line = line_between(asked.line, entry, event, head)
                row = (event, line, digest(line), entry, asked.dataset, asked.holder, asked.part)
                counted = (asked.key, asked.units, asked.delta_units, event)
                connection.execute(_RESERVE, row + counted)
                return entry
        except LedgerError as error:
            if isinstance(error.__cause__, apsw.ConstraintError):
                return None
            raise

    def turn(self, key: str, wait: float) -> AbstractContextManager[None]:
        """Hold the turn of a plan, by a lock on a file beside the ledger."""
        return file_turn(self.path, key, wait)

    def problems(self) -> list[str]:
        with self.reading() as db:
            return location.file_problems(db)

    @contextmanager
    def _transaction(self, beginning: str) -> Generator[SQLiteTransaction]:
        with self._connection() as connection:
            connection.execute(beginning)
            yield SQLiteTransaction(connection)
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Generator[apsw.Connection]:
        with in_words(self.path, self.wait):
            opened = self._take()
            connection = opened.connection
            try:
                yield connection
            except BaseException as error:
                # After an error of the disk or of SQLite, the connection is not used again.
                if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
                    opened.close()
                elif not connection.get_autocommit():
                    connection.execute("ROLLBACK")
                if connection in OPEN:
                    self._idle.append(opened)
                raise
            self._idle.append(opened)

    def _take(self) -> _Open:
        # Only SQLite opens the file: closing any other handle on it would drop the
        # locks that this process holds through SQLite.
        file = location.look(self.path)
        while True:
            try:
                idle = self._idle.pop()
            except IndexError:
                return self._open_file(file)
            if idle.file == file:
                return idle
            idle.close()  # another file has replaced it

    def _open_file(self, file: tuple[int, int]) -> _Open:
        self._refuse_stranded()
        location.refuse_mount(self.path)
        connection = connected(self.path, self.wait)
        opened = _Open(connection, file)
        try:
            refuse_other(connection, self.path)
            location.refuse_format(connection, self.path)
            location.refuse_elsewhere(SQLiteTransaction(connection), self.path)
            trust(connection)
            make_durable(connection, self.path)
        except BaseException:
            opened.close()
            raise
        return opened

    def _refuse_stranded(self) -> None:
        if _stranded:
            raise LedgerError(
                f"{self.path} cannot be used here: this process was forked while a thread was"
                " using a ledger, whose locks do not hold on this side; start processes by spawn"
            )


def _close_all(idle: list[_Open]) -> None:
    while idle:
        with suppress(IndexError):
            idle.pop().close()


def _before_fork() -> None:
    for store in list(_stores):
        store.close()


def _after_fork() -> None:
    _stranded.extend(OPEN)
    for connection in _stranded:
        # Never closed, even when this process ends: closing would end the parent's locks.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    for store in list(_stores):
        store._idle.clear()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
