"""Connect to a ledger's SQLite file durably and patiently, and explain its errors."""

from __future__ import annotations

import errno
import os
import random
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from neyman.ledger.records import LedgerError
from neyman.ledger.rows import Damage

_APPLICATION_ID = 0x4E65796D  # "Neym"
MARK = f"PRAGMA application_id = {_APPLICATION_ID};"
"""This statement marks a file as a ledger."""
FAILURES = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError)
"""SQLite raises these exceptions if a file is damaged or lacks a table."""

OPEN: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
"""These connections of this process must not be used after a fork."""


@dataclass(frozen=True, slots=True)
class SQLiteTransaction:
    """Hold the open transaction of a connection."""

    connection: apsw.Connection

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows that answer a query."""
        try:
            return self.connection.execute(query, values).fetchall()
        except UnicodeDecodeError as error:
            raise Damage(f"a text is not UTF-8: {error.reason}") from None

    def run(self, query: str, *values: object) -> None:
        """Run a statement."""
        self.connection.execute(query, values)


def connected(path: Path, wait: float) -> apsw.Connection:
    """Open a ledger's file. If it has a log, closing merges the log only after a call of `trust`.

    When the last connection closes, SQLite merges the log beside a file into the file. If the file
    was moved or replaced, the log may belong to another file.

    Args:
        wait: seconds to wait for other connections.
    """
    careful = _holds(f"{path}-wal")
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    OPEN.add(connection)
    if careful:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_handler(_patience(wait))
    return connection


def disconnect(connection: apsw.Connection) -> None:
    """Close a connection."""
    OPEN.discard(connection)
    connection.close()


def trust(connection: apsw.Connection) -> None:
    """Declare that the log beside the connection's file belongs to this file."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def refuse_other(connection: apsw.Connection, path: Path) -> None:
    """Refuse a file that is not a ledger."""
    if connection.pragma("application_id") != _APPLICATION_ID:
        raise LedgerError(f"{path} is not a Neyman ledger: name another file")


def _holds(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def make_durable(connection: apsw.Connection, path: Path) -> None:
    """Make sure that every commit is on the disk when it returns."""
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) <= (3, 51, 2):
        raise LedgerError(
            f"SQLite {apsw.sqlite_lib_version()} can lose a committed write (up to 3.51.2):"
            " upgrade apsw"
        )
    if connection.pragma("journal_mode", "wal") != "wal":
        # Guards against a file system without shared memory.
        raise LedgerError(f"{path} cannot use a write-ahead log there: put it on a local disk")
    connection.pragma("synchronous", "full")
    connection.pragma("fullfsync", True)  # macOS: fsync alone does not reach the disk
    connection.pragma("foreign_keys", True)
    connection.pragma("wal_autocheckpoint", 4000)  # 16 MB: then a commit merges the log


def _patience(wait: float) -> Callable[[int], bool]:
    """Return a handler that retries after random pauses. They do not grow, so waiting is fair.

    After a commit, SQLite admits the first writer that asks. Longer pauses would favor writers that
    have just committed. Shorter pauses would cost processor time.
    """
    deadline = 0.0

    def again(tries: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if tries == 0:
            deadline = now + wait
        time.sleep(random.uniform(0, 0.001))
        return now < deadline

    return again


@contextmanager
def in_words(path: Path, wait: float) -> Generator[None]:
    """Raise SQLite's errors as `LedgerError`, in words that say what to do."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError) as error:
        raise LedgerError(
            f"{path} has been busy for {wait:g} s: another process holds it; nothing was written,"
            " try again"
        ) from error
    except apsw.NotADBError as error:
        raise LedgerError(f"{path} is not a Neyman ledger: name another file") from error
    except (apsw.CorruptError, apsw.SQLError) as error:
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
        # Guards against errors of SQLite that no rule names.
        raise LedgerError(f"{path}: SQLite answers {type(error).__name__}: {error}") from error
