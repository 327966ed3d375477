"""Bind a SQLite ledger to its location: the file records it, and is refused anywhere else.

SQLite stores the newest commits in a log, and derives the name of the log from the name of the
file. If a file has two names, or was moved while its log was in use, it gets two logs. A user could
then spend the cap twice. So the file holds the identity of its folder, its name, and its own
identity. Only `Ledger.confirm_location` changes them. The ledger must be a regular file on a local
disk, under one name.

The table ``location`` has one row: the event that confirmed the location (1 in a new ledger), the
location as JSON, and the SHA-256 of this JSON.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from neyman.ledger.chain import canonical_json, digest
from neyman.ledger.database import VERSION, Transaction, unlike
from neyman.ledger.records import LedgerError, other_format
from neyman.ledger.rows import Damage, fields, one_row, typed_field
from neyman.ledger.sqlite.connection import FAILURES, SQLiteTransaction, apsw
from neyman.ledger.sqlite.schema import SCHEMA

_MOUNTS = Path("/proc/self/mountinfo")

# WAL relies on locks and shared memory, which do not work across machines.
# fmt: off
_NETWORK = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "virtiofs",
))
# fmt: on
_LOCAL_FUSE = frozenset({"fuse.bindfs", "fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs"})

# Inside a text of an event, a backslash would precede the quotation marks.
_CONFIRMS = """instr(line, '"kind":"location"') > 0"""

FILE_SCHEMA = f"""{SCHEMA}
CREATE TABLE location (
    id INTEGER PRIMARY KEY CHECK (id = 1), event INTEGER NOT NULL REFERENCES event (number),
    place TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER location_once BEFORE INSERT ON location
WHEN NEW.event <> (SELECT max(number) FROM event) OR EXISTS (SELECT 1 FROM location)
BEGIN SELECT RAISE(ABORT, 'a ledger belongs in one place'); END;
CREATE TRIGGER location_confirmed BEFORE UPDATE ON location
WHEN NEW.event <> (SELECT max(number) FROM event) OR NEW.event <= OLD.event
    OR NOT EXISTS (SELECT 1 FROM event WHERE number = NEW.event AND {_CONFIRMS})
BEGIN SELECT RAISE(ABORT, 'a ledger belongs elsewhere once an event confirms it'); END;
CREATE TRIGGER location_no_delete BEFORE DELETE ON location
BEGIN SELECT RAISE(ABORT, 'a ledger belongs in one place'); END;
"""


def look(path: Path) -> tuple[int, int]:
    """Return the identity (device, inode) of the ledger's file.

    Raises:
        LedgerError: the file does not exist, is not a regular file, cannot be reached, or has
            several names.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise LedgerError(
            f"there is no ledger at {path}: make one with `neyman ledger create`, or Ledger.create"
        ) from None
    except OSError as error:
        raise LedgerError(f"{path} cannot be reached: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a file"
        raise LedgerError(f"{path} is {what}: a ledger is a file, such as ledger.db")
    if status.st_nlink > 1:
        _refuse_names(path, status)
    return status.st_dev, status.st_ino


def _refuse_names(path: Path, status: os.stat_result) -> None:
    """Refuse a file with several names: each would have its own log, and its own cap.

    If a process was killed while it created a ledger, its temporary name is removed.
    """
    ours = re.compile(re.escape(f".{path.name}.") + "[a-z0-9_]{8}")
    try:
        for entry in os.scandir(path.parent):
            if ours.fullmatch(entry.name) and os.path.samestat(
                entry.stat(follow_symlinks=False), status
            ):
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)
        names = os.stat(path).st_nlink
    except OSError as error:
        raise LedgerError(f"{path} cannot be reached: {error.strerror}") from error
    if names > 1:
        raise LedgerError(
            f"{path} has {names} names (hard links), and its cap could be spent under each name:"
            f" remove the others; `find -samefile {path.name}` lists them"
        )


def refuse_mount(path: Path) -> None:
    """Refuse a file on a network file system, and a file that is a mount point.

    A file that is mounted by itself, as ``docker run -v ledger.db:/ledger.db`` does, has another
    log under each name.
    """
    kind = filesystem(path)
    if kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE):
        raise LedgerError(
            f"{path} is on a network file system ({kind}), where locks do not keep"
            " writers apart: put the ledger on a local disk"
        )
    if os.path.isfile(path) and any(point == path for point, _ in _mounts()):
        raise LedgerError(
            f"{path} is a mount point: this single file was mounted from another place, and its"
            " cap could be spent once here and once there. Mount its folder instead of the file"
        )


def filesystem(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system of an existing or future path, or "" if unknown.

    Args:
        path: absolute path, with symbolic links resolved.
        mounts: text in the format of Linux's ``/proc/self/mountinfo``, which is the default.
    """
    name, depth = "", -1
    for point, kind in _mounts(mounts):
        # A later mount hides an earlier mount at the same place.
        if len(point.parts) >= depth and path.is_relative_to(point):
            name, depth = kind, len(point.parts)
    return name


def _mounts(text: str | None = None) -> Iterator[tuple[Path, str]]:
    """Yield each mount point and the type of its file system, in the order of the mounts."""
    if text is None:
        try:
            text = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        if separator:
            point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), left.split(" ")[4])
            yield Path(point), right.split(" ")[0]


@dataclass(frozen=True)
class Location:
    """Describe a location of a ledger's file.

    Args:
        filesystem: type of the file system, and the identifier from ``statvfs``. Unlike a device
            number, most identifiers survive a reboot and are the same in a container.
        folder: inode of the folder.
        file: inode of the file. A copy or a restored backup has another inode.
        path: path of the file, for messages and to search for leftovers. It may change.
    """

    filesystem: str
    folder: int
    file: int
    name: str
    path: str

    @classmethod
    def of(cls, path: Path, file: Path | None = None) -> Location:
        """Return the location of a file.

        Args:
            path: absolute path, with symbolic links resolved.
            file: the current path, if the file is about to be moved to ``path``.
        """
        try:
            folder, own = os.stat(path.parent), os.stat(file or path)
            # Use all of it: Btrfs distinguishes a snapshot from its origin only in the upper half.
            known = hasattr(os, "statvfs") and os.statvfs(path.parent).f_fsid
        except OSError as error:
            raise LedgerError(f"{path} cannot be reached: {error.strerror}") from error
        system = f"{filesystem(path.parent)} {known or folder.st_dev:x}".strip()
        return cls(system, folder.st_ino, own.st_ino, path.name, str(path))

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """Return the values that identify a location. Equal locations have equal values."""
        return self.filesystem, self.folder, self.file, self.name

    def text(self) -> str:
        """Return the location as the table stores it."""
        return canonical_json(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Location:
        """Return the location in a text."""
        event = fields(text)
        filesystem, name, path = (
            typed_field(event, word, str) for word in ("filesystem", "name", "path")
        )
        folder, file = event.get("folder"), event.get("file")
        if not isinstance(folder, int) or not isinstance(file, int):
            # Guards against a place that no version wrote.
            raise Damage("a location has no folder or no file")
        return cls(filesystem, folder, file, name, path)

    def record(self, db: Transaction) -> None:
        """Record in the ledger, with the last event, that it belongs here."""
        text = self.text()
        if db.rows("SELECT 1 FROM location"):
            query = (
                "UPDATE location SET event = (SELECT max(number) FROM event), place = ?, hash = ?"
            )
        else:
            query = "INSERT INTO location SELECT 1, max(number), ?, ? FROM event"
        db.run(query, text, digest(text))

    def change(self, now: Location) -> str:
        """Describe how the location ``now`` differs from this one."""
        if self.filesystem != now.filesystem:
            return "the file system has another identifier"
        if self.folder != now.folder:
            return "the folder is another one"
        if self.name != now.name:
            return "the name is another one"
        return "the file is another one, as after a backup was restored"


def recorded(db: Transaction) -> Location:
    """Return the location that a ledger records."""
    place, own_hash = one_row(db, (str, str), "SELECT place, hash FROM location")
    if digest(place) != own_hash:
        raise Damage("its location was changed")
    return Location.parse(place)


def refuse_elsewhere(db: SQLiteTransaction, path: Path) -> None:
    """Refuse a ledger that is not at its recorded location.

    Args:
        db: a transaction whose queries all see the same state of the ledger.
    """
    belongs, here = recorded(db), Location.of(path)
    if belongs.identity != here.identity:
        raise LedgerError(
            f"{path} is not where this ledger belongs, which is {belongs.path}"
            f" ({belongs.change(here)}). A ledger in two places could grant its cap twice. Move it"
            " back; or, if this is to be its place from now on and no other copy is used, confirm"
            f" that with `neyman ledger confirm-location {path}`"
        )


def refuse_format(connection: apsw.Connection, path: Path) -> None:
    """Refuse a ledger of another format."""
    if (version := connection.pragma("user_version")) != VERSION:
        raise other_format(str(path), version, VERSION)


def file_problems(db: SQLiteTransaction) -> list[str]:
    """List damage of a file, and differences of its tables and triggers from this version.

    Args:
        db: a transaction whose queries all see the same state of the ledger.
    """
    problems = [
        f"the file is damaged: {text}"
        for (text,) in db.rows("PRAGMA integrity_check(20)")
        if text != "ok"
    ]
    own = apsw.Connection(":memory:")
    own.execute(FILE_SCHEMA)
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"
    here, ours = (
        {(kind, name): definition for kind, name, *definition in rows}
        for rows in (db.rows(query), own.execute(query))
    )
    problems += unlike(here, ours)
    try:
        return problems + _location_problems(db)
    except (Damage, *FAILURES) as error:
        return [*problems, f"the locations cannot be read: {error}"]


def _location_problems(db: Transaction) -> list[str]:
    """List differences between the recorded location and the event that confirmed it."""
    event, place, own_hash = one_row(db, (int, str, str), "SELECT event, place, hash FROM location")
    query = f"SELECT coalesce(max(number), 1) FROM event WHERE {_CONFIRMS}"
    (confirmed,) = one_row(db, (int,), query)
    problems: list[str] = []
    if digest(place) != own_hash:
        problems.append("the location was changed")
    if event != confirmed:
        problems.append(
            f"the location is of event {event}, and event {confirmed} confirmed the last"
        )
    return problems
