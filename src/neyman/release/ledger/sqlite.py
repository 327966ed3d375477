"""The ledger's SQLite file: made whole or not at all, opened with care, its errors put in words."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neyman.release.ledger.account import LedgerError
from neyman.release.ledger.chain import digest, line_between
from neyman.release.ledger.place import look, refuse_network, sync_folder
from neyman.release.ledger.sqlite_rules import SCHEMA
from neyman.release.ledger.store import VERSION, Reservation, Store, unlike
from neyman.release.ledger.turn import file_turn

try:
    import apsw
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "the ledger needs apsw: pip install 'neyman[release]'", name="apsw"
    ) from missing

__all__ = ["SQLiteFile"]

_APPLICATION = 0x4E65796D  # "Neym"
_PAUSE = 0.001  # seconds
_LOG_PAGES = 4000  # 16 MB, worked into the file by whoever commits past them

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

# SQLite keeps locks for the process that took them. One that is forked would believe that it holds
# its parent's, and could lose what others write. So connections are closed before a fork; where a
# thread was using one just then, the child may not open a ledger.
_stores: weakref.WeakSet[SQLiteFile] = weakref.WeakSet()
_connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
_stranded: list[apsw.Connection] = []


@dataclass(frozen=True, slots=True)
class _Transaction:
    connection: apsw.Connection

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, values).fetchall()

    def run(self, query: str, *values: Any) -> None:
        self.connection.execute(query, values)


@dataclass(frozen=True, eq=False)
class _Open:
    """A connection, and which file it was opened on."""

    connection: apsw.Connection
    file: tuple[int, int]

    def close(self) -> None:
        _connections.discard(self.connection)
        self.connection.close()


class SQLiteFile(Store):
    """A ledger kept in a SQLite file.

    Connections stay open for the next use, at most as many as threads use it at once. While one is
    open there are files with -wal and -shm beside the ledger; the last to close takes them away.

    Args:
        path: where the file is, or will be; absolute.
        wait: seconds to wait for other writers before giving up.
    """

    def __init__(self, path: Path, wait: float = 30.0) -> None:
        self.path, self.wait, self.where = path, wait, str(path)
        self._idle: list[_Open] = []
        weakref.finalize(self, _close_all, self._idle)
        _stores.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.wait)

    def close(self) -> None:
        """Close the connections that are not in use."""
        _close_all(self._idle)

    def exists(self) -> bool:
        """Whether there is something at the path."""
        return os.path.lexists(self.path)

    def create(self, line: str, digest: str) -> None:
        """Make a ledger, with permissions 0600, unless there is one; a kill leaves none."""
        refuse_network(self.path)
        if self.exists():
            return
        # SQLite would replay a log left by a deleted ledger into the new one. The second look at
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
        # Written under another name and linked when whole, so that no process sees a part of it.
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        os.close(handle)
        try:
            with _in_words(self.path, self.wait):
                connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
                try:
                    _make_durable(connection, self.path)
                    connection.execute(
                        f"BEGIN; {SCHEMA} PRAGMA application_id = {_APPLICATION};"
                        f"PRAGMA user_version = {VERSION}"
                    )
                    connection.execute("INSERT INTO event VALUES (1, ?, ?)", (line, digest))
                    connection.execute("COMMIT")
                finally:
                    connection.close()
            with suppress(FileExistsError):
                os.link(name, self.path)
        finally:
            # Whoever opens the ledger before this may have removed the name: see `look`.
            with suppress(FileNotFoundError):
                os.unlink(name)
        sync_folder(self.path.parent)

    @contextmanager
    def reading(self) -> Iterator[_Transaction]:
        """A transaction that sees one moment of the ledger."""
        with self._transaction("BEGIN") as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[_Transaction]:
        """A transaction that alone may write; on leaving, all of it is on the disk or none."""
        with self._transaction("BEGIN IMMEDIATE") as transaction:
            yield transaction

    def reserve_at_once(self, asked: Reservation) -> int | None:
        """The id of a new entry, or None where the book has to look closer."""
        try:
            with self._connection() as connection:
                whose = (asked.dataset, asked.protects, asked.neighboring, asked.rows)
                last = connection.execute(_LAST, (*whose, asked.dataset, asked.key)).fetchone()
                if last is None:
                    connection.execute("COMMIT")
                    return None
                event, head, entry = last
                line = line_between(asked.line, entry, event, head)
                told = (event, line, digest(line), entry, asked.dataset, asked.holder, asked.part)
                counted = (asked.key, asked.units, asked.delta_units, event)
                connection.execute(_RESERVE, told + counted)
                return entry
        except LedgerError as error:
            if isinstance(error.__cause__, apsw.ConstraintError):
                return None
            raise

    def turn(self, key: str, wait: float) -> AbstractContextManager[None]:
        """Hold the turn of a plan, by a lock on a file beside the ledger."""
        return file_turn(self.path, key, wait)

    def problems(self) -> list[str]:
        """Where the file is damaged, or its tables and triggers are not those of this version."""
        with self.reading() as db:
            found = [
                f"the file is damaged: {text}"
                for (text,) in db.rows("PRAGMA integrity_check(20)")
                if text != "ok"
            ]
            own = apsw.Connection(":memory:")
            own.execute(SCHEMA)
            query = (
                "SELECT type, name, tbl_name, sql FROM sqlite_schema"
                " WHERE name NOT LIKE 'sqlite_stat%'"
            )
            here, ours = (
                {(kind, name): told for kind, name, *told in rows}
                for rows in (db.rows(query), own.execute(query))
            )
            return found + unlike(here, ours)

    @contextmanager
    def _transaction(self, beginning: str) -> Iterator[_Transaction]:
        with self._connection() as connection:
            connection.execute(beginning)
            yield _Transaction(connection)
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[apsw.Connection]:
        with _in_words(self.path, self.wait):
            opened = self._take()
            connection = opened.connection
            try:
                yield connection
            except BaseException as error:
                # After an error of the disk or of SQLite itself nothing of it is used again.
                if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
                    opened.close()
                elif not connection.get_autocommit():
                    connection.execute("ROLLBACK")
                if not _closed(opened):
                    self._idle.append(opened)
                raise
            self._idle.append(opened)

    def _take(self) -> _Open:
        # The file is never opened but by SQLite: closing any other handle on it would drop the
        # locks that this process holds through SQLite.
        file = look(self.path)
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                return self._open(file)
            if kept.file == file:
                return kept
            kept.close()  # another file has been put in its place

    def _open(self, file: tuple[int, int]) -> _Open:
        if _stranded:
            raise LedgerError(
                f"{self.path} cannot be used here: this process was forked while a thread was"
                " using a ledger, whose locks do not hold on this side; start processes by spawn"
            )
        refuse_network(self.path)
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        opened = _Open(connection, file)
        _connections.add(connection)
        try:
            connection.set_busy_handler(_patience(self.wait))
            if connection.pragma("application_id") != _APPLICATION:
                raise LedgerError(f"{self.path} is not a Neyman ledger: name another file")
            version = connection.pragma("user_version")
            if version == 1:
                from neyman.release.ledger.migrate import from_version_1

                _make_durable(connection, self.path)
                from_version_1(connection, _Transaction(connection), self.path)
            elif version != VERSION:
                raise LedgerError(
                    f"{self.path} has ledger schema {version}, and this version of neyman"
                    f" reads {VERSION}: use the version that made it"
                )
            _make_durable(connection, self.path)
        except BaseException:
            opened.close()
            raise
        return opened


def _closed(opened: _Open) -> bool:
    return opened.connection not in _connections


def _close_all(idle: list[_Open]) -> None:
    while idle:
        with suppress(IndexError):
            idle.pop().close()


def _before_fork() -> None:
    for store in list(_stores):
        store.close()


def _after_fork() -> None:
    _stranded.extend(_connections)
    for connection in _stranded:
        # Never closed, not even as this process ends: that would end what the parent holds.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    for store in list(_stores):
        store._idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def _make_durable(connection: apsw.Connection, path: Path) -> None:
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) <= (3, 51, 2):
        raise LedgerError(
            f"SQLite {apsw.sqlite_lib_version()} can lose a committed write (up to 3.51.2):"
            " upgrade apsw"
        )
    if connection.pragma("journal_mode", "wal") != "wal":
        raise LedgerError(f"{path} cannot use a write-ahead log there: put it on a local disk")
    connection.pragma("synchronous", "full")
    connection.pragma("fullfsync", True)  # macOS: fsync alone does not reach the disk
    connection.pragma("foreign_keys", True)
    connection.pragma("wal_autocheckpoint", _LOG_PAGES)


def _patience(wait: float) -> Callable[[int], bool]:
    """Try again after random pauses that do not grow, so that nobody waits the worse for waiting.

    SQLite lets in whoever asks first after a commit. With such pauses each try of each writer is as
    likely to be that one, whatever happened before; longer ones would leave it to those who have
    just committed, and shorter ones would cost their time.
    """
    deadline = 0.0

    def again(tries: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if tries == 0:
            deadline = now + wait
        time.sleep(random.uniform(0, _PAUSE))
        return now < deadline

    return again


@contextmanager
def _in_words(path: Path, wait: float) -> Iterator[None]:
    """Say what SQLite's errors mean."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError) as error:
        raise LedgerError(
            f"{path} has been busy for {wait:g} s: another process holds it; nothing was written,"
            " try again"
        ) from error
    except apsw.NotADBError as error:
        raise LedgerError(f"{path} is not a Neyman ledger: name another file") from error
    except (apsw.CorruptError, apsw.SQLError, UnicodeDecodeError) as error:
        raise LedgerError(
            f"{path} is damaged ({error}): restore it from a backup; an empty ledger in its place"
            " would forget what is spent"
        ) from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError) as error:
        raise LedgerError(
            f"{path} cannot be written ({error}): the ledger, even to read it, needs write"
            " permission on the file and its folder"
        ) from error
    except (apsw.FullError, apsw.IOError) as error:
        code = getattr(error, "extendedresult", 0)
        cause = os.strerror(errno.ENOSPC) if isinstance(error, apsw.FullError) else str(error)
        raise LedgerError(
            f"{path} could not be written ({cause}, code {code}): look at the disk; what"
            " `neyman ledger show` lists is spent"
        ) from error
    except apsw.ConstraintError as error:
        raise LedgerError(f"{path} refuses the change: {error}") from error
    except apsw.Error as error:
        raise LedgerError(f"{path}: SQLite answers {type(error).__name__}: {error}") from error
