"""The ledger's SQLite file: made whole or not at all, opened with care, its errors put in words.

What `Ledger` asks of a store is ``exists``, ``create``, ``reading`` and ``writing``; another
database would offer the same four.
"""

from __future__ import annotations

import errno
import os
import random
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from neyman.release.ledger.account import LedgerError

try:
    import apsw
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "the ledger needs apsw: pip install 'neyman[release]'", name="apsw"
    ) from missing

__all__ = ["SQLiteFile", "filesystem"]

_APPLICATION = 0x4E65796D  # "Neym"
_VERSION = 1
_MOUNTS = Path("/proc/self/mountinfo")

# Locks and shared memory, which WAL stands on, do not hold across machines.
# fmt: off
_NETWORK = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "virtiofs",
))
# fmt: on
_LOCAL_FUSE = frozenset({"fuse.bindfs", "fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs"})

# A trigger on insertion stands beside each primary key because INSERT OR REPLACE deletes the old
# row without calling the triggers on deletion.
_SCHEMA = """
CREATE TABLE account (
    dataset TEXT PRIMARY KEY, protects TEXT NOT NULL, neighboring TEXT NOT NULL,
    rows INTEGER NOT NULL CHECK (rows >= 1), currency TEXT NOT NULL,
    cap TEXT NOT NULL, delta_cap TEXT NOT NULL, created TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER account_once BEFORE INSERT ON account
WHEN EXISTS (SELECT 1 FROM account WHERE dataset = NEW.dataset)
BEGIN SELECT RAISE(ABORT, 'a registered dataset keeps its terms'); END;
CREATE TRIGGER account_fixed BEFORE UPDATE ON account
BEGIN SELECT RAISE(ABORT, 'a registered dataset keeps its terms'); END;
CREATE TRIGGER account_kept BEFORE DELETE ON account
BEGIN SELECT RAISE(ABORT, 'a registered dataset is kept'); END;

CREATE TABLE entry (
    id INTEGER PRIMARY KEY, dataset TEXT NOT NULL REFERENCES account (dataset),
    key TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('reserved', 'finished')),
    charge TEXT NOT NULL, delta TEXT NOT NULL, mechanisms TEXT NOT NULL, plan TEXT NOT NULL,
    created TEXT NOT NULL, finished TEXT,
    CHECK ((state = 'finished') = (finished IS NOT NULL)),
    CHECK (charge GLOB '[0-9]*/[1-9]*' AND charge NOT GLOB '*[^0-9/]*'),
    CHECK (delta GLOB '[0-9]*/[1-9]*' AND delta NOT GLOB '*[^0-9/]*')
) STRICT;
CREATE INDEX entry_spending ON entry (dataset, charge, delta);
CREATE TRIGGER entry_once BEFORE INSERT ON entry
WHEN NEW.state <> 'reserved' OR EXISTS (SELECT 1 FROM entry WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'an entry is new and begins reserved'); END;
CREATE TRIGGER entry_fixed BEFORE UPDATE ON entry
WHEN NOT (OLD.state = 'reserved' AND NEW.state = 'finished' AND NEW.id = OLD.id
    AND NEW.dataset = OLD.dataset AND NEW.key = OLD.key AND NEW.charge = OLD.charge
    AND NEW.delta = OLD.delta AND NEW.mechanisms = OLD.mechanisms AND NEW.plan = OLD.plan
    AND NEW.created = OLD.created)
BEGIN SELECT RAISE(ABORT, 'an entry changes once only, from reserved to finished'); END;
CREATE TRIGGER entry_kept BEFORE DELETE ON entry
BEGIN SELECT RAISE(ABORT, 'what is spent is spent'); END;

CREATE TABLE publication (
    dataset TEXT NOT NULL, key TEXT NOT NULL, entry INTEGER NOT NULL REFERENCES entry (id),
    PRIMARY KEY (dataset, key)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER publication_once BEFORE INSERT ON publication
WHEN EXISTS (SELECT 1 FROM publication WHERE dataset = NEW.dataset AND key = NEW.key)
    OR NOT EXISTS (SELECT 1 FROM entry WHERE id = NEW.entry AND dataset = NEW.dataset
        AND key = NEW.key AND state = 'reserved')
BEGIN SELECT RAISE(ABORT, 'a key is published once, by an entry of its own'); END;
CREATE TRIGGER publication_fixed BEFORE UPDATE ON publication
BEGIN SELECT RAISE(ABORT, 'what is published is kept'); END;
CREATE TRIGGER publication_kept BEFORE DELETE ON publication
BEGIN SELECT RAISE(ABORT, 'what is published is kept'); END;

CREATE TABLE piece (
    entry INTEGER NOT NULL REFERENCES entry (id), path TEXT NOT NULL, number INTEGER NOT NULL,
    packed BLOB NOT NULL, PRIMARY KEY (entry, path, number)
) STRICT;
CREATE TRIGGER piece_once BEFORE INSERT ON piece
WHEN EXISTS (SELECT 1 FROM piece
        WHERE (entry = NEW.entry AND path = NEW.path AND number = NEW.number)
        OR rowid = NEW.rowid)
    OR NOT EXISTS (SELECT 1 FROM entry WHERE id = NEW.entry AND state = 'reserved')
BEGIN SELECT RAISE(ABORT, 'files are stored once, as their entry finishes'); END;
CREATE TRIGGER piece_fixed BEFORE UPDATE ON piece
BEGIN SELECT RAISE(ABORT, 'what is published is kept'); END;
CREATE TRIGGER piece_kept BEFORE DELETE ON piece
BEGIN SELECT RAISE(ABORT, 'what is published is kept'); END;
"""


@dataclass(frozen=True)
class SQLiteFile:
    """A ledger kept in a SQLite file.

    Each use opens a connection of its own and closes it, so threads, forks and kills share
    nothing, and a ledger at rest is one file.

    Args:
        path: where the file is, or will be; absolute.
        wait: seconds to wait for other writers before giving up.
    """

    path: Path
    wait: float = 30.0

    def exists(self) -> bool:
        """Whether there is something at the path."""
        return os.path.lexists(self.path)

    def create(self) -> None:
        """Make an empty ledger, with permissions 0600, unless there is one; a kill leaves none."""
        self._refuse_network()
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
            self._create()
        except OSError as error:
            raise LedgerError(
                f"no ledger can be made in the folder {self.path.parent}: {error.strerror}"
            ) from error

    def _create(self) -> None:
        # Written under another name and linked when whole, so that no process sees a part of it.
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        os.close(handle)
        try:
            with _in_words(self.path, self.wait):
                connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
                try:
                    _make_durable(connection, self.path)
                    connection.execute(
                        f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION};"
                        f"PRAGMA user_version = {_VERSION}; COMMIT"
                    )
                finally:
                    connection.close()
            with suppress(FileExistsError):
                os.link(name, self.path)
        finally:
            # Whoever opens the ledger before this may have removed the name: see _refuse_names.
            with suppress(FileNotFoundError):
                os.unlink(name)
        _sync_folder(self.path.parent)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A connection that sees one moment of the ledger."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A connection that alone may write; on leaving, all of it is on the disk or none."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[apsw.Connection]:
        with _in_words(self.path, self.wait):
            connection = self._open()
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            finally:
                connection.close()  # rolls back what has not been committed

    def _open(self) -> apsw.Connection:
        # The file is never opened but by SQLite: closing any other handle on it would drop the
        # locks that this process holds through SQLite.
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise LedgerError(
                f"there is no ledger at {self.path}: make one with `neyman ledger create`"
            ) from None
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be reached: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a file"
            raise LedgerError(f"{self.path} is {what}: a ledger is a file, such as ledger.db")
        self._refuse_network()
        if found.st_nlink > 1:
            self._refuse_names(found)
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_handler(_patience(self.wait))
            if connection.pragma("application_id") != _APPLICATION:
                raise LedgerError(f"{self.path} is not a Neyman ledger: name another file")
            version = connection.pragma("user_version")
            if version != _VERSION:
                raise LedgerError(
                    f"{self.path} has ledger schema {version}, and this version of neyman"
                    f" reads {_VERSION}: use the version that made it"
                )
            _make_durable(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_names(self, found: os.stat_result) -> None:
        """Refuse a file with several names: each would have a log of its own, and a cap of its own.

        A name that `_create` gave and was killed before taking away is taken away here.
        """
        ours = re.compile(re.escape(f".{self.path.name}.") + "[a-z0-9_]{8}")
        try:
            for entry in os.scandir(self.path.parent):
                if ours.fullmatch(entry.name) and os.path.samestat(
                    entry.stat(follow_symlinks=False), found
                ):
                    with suppress(FileNotFoundError):
                        os.unlink(entry.path)
            names = os.stat(self.path).st_nlink
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be reached: {error.strerror}") from error
        if names > 1:
            raise LedgerError(
                f"{self.path} has {names} names (hard links), and by each its cap could be spent"
                f" anew: remove the others; `find -samefile {self.path.name}` lists them"
            )

    def _refuse_network(self) -> None:
        kind = filesystem(self.path)
        if kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE):
            raise LedgerError(
                f"{self.path} is on a network file system ({kind}), where locks do not keep"
                " writers apart: put the ledger on a local disk"
            )


def filesystem(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that ``path`` is on or would be; "" where that is not known.

    Args:
        path: absolute, symbolic links resolved.
        mounts: text in the format of Linux's ``/proc/self/mountinfo``, which it defaults to.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return ""
    found, depth = "", -1
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        if not separator:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), left.split(" ")[4]))
        # Of two mounts at one place the later hides the earlier.
        if len(point.parts) >= depth and path.is_relative_to(point):
            found, depth = right.split(" ")[0], len(point.parts)
    return found


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


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _patience(wait: float) -> Callable[[int], bool]:
    """Try again after random pauses of at most 20 ms: nobody's turn depends on having waited."""
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
    except apsw.CorruptError as error:
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
