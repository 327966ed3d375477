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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neyman.release.ledger.account import LedgerError
from neyman.release.ledger.place import look, refuse_network, sync_folder
from neyman.release.ledger.sqlite_rules import SCHEMA
from neyman.release.ledger.store import VERSION, Reservation, Store
from neyman.release.ledger.turns import Turn

try:
    import apsw
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "the ledger needs apsw: pip install 'neyman[release]'", name="apsw"
    ) from missing

__all__ = ["SQLiteFile"]

_APPLICATION = 0x4E65796D  # "Neym"
_LOG_PAGES = 4000  # 16 MB, worked into the file by whoever commits past them

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
    """A connection, which file it was opened on, and its place among the writers."""

    connection: apsw.Connection
    file: tuple[int, int]
    turn: Turn

    def begin(self) -> bool:
        """Begin to write, unless somebody else does."""
        self.connection.set_busy_handler(None)
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        return True

    def close(self) -> None:
        _connections.discard(self.connection)
        self.turn.close()
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
        with self._transaction(writes=False) as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[_Transaction]:
        """A transaction that alone may write; on leaving, all of it is on the disk or none."""
        with self._transaction(writes=True) as transaction:
            yield transaction

    def reserve_at_once(self, asked: Reservation) -> int | None:
        """None: a transaction in this process is as quick."""
        return None

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
            query = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE ?"
            hidden = ("sqlite_stat%",)
            here, ours = set(db.rows(query, *hidden)), set(own.execute(query, hidden))
            for kind, name, *_ in sorted(here - ours):
                found.append(f"the {kind} {name} is not as this version makes it")
            for kind, name, *_ in sorted(ours - here):
                if not any(row[:2] == (kind, name) for row in here):
                    found.append(f"the {kind} {name} is missing")
            return found

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[_Transaction]:
        with _in_words(self.path, self.wait):
            opened = self._take()
            connection = opened.connection
            try:
                if not writes:
                    connection.execute("BEGIN")
                elif not opened.turn.wait(opened.begin, self.wait):
                    raise apsw.BusyError("somebody else writes")
                connection.set_busy_handler(_patience(self.wait))
                yield _Transaction(connection)
                connection.execute("COMMIT")
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
        opened = _Open(connection, file, Turn(self.path.parent))
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
    """Try again after random pauses of at most 20 ms, in what is not about whose turn it is."""
    deadline: float | None = None

    def again(tries: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        deadline = now + wait if tries == 0 or deadline is None else deadline
        if now >= deadline:
            return False
        time.sleep(random.uniform(0, min(0.02, 0.001 * 2 ** min(tries, 5))))
        return True

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
    except (apsw.CorruptError, UnicodeDecodeError) as error:
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
