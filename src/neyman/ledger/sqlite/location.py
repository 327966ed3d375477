"""Where a ledger's file may be: on a local disk, under one name, a file and nothing else."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from neyman.ledger.records import LedgerError

__all__ = ["filesystem", "look", "refuse_mount"]

_MOUNTS = Path("/proc/self/mountinfo")

# Locks and shared memory, which WAL stands on, do not hold across machines.
# fmt: off
_NETWORK = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "virtiofs",
))
# fmt: on
_LOCAL_FUSE = frozenset({"fuse.bindfs", "fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs"})


def look(path: Path) -> tuple[int, int]:
    """The identity (device, inode) of the ledger's file.

    Raises:
        LedgerError: it is not there, not a file, cannot be reached, or has several names.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise LedgerError(
            f"there is no ledger at {path}: make one with `neyman ledger create`"
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
    """Refuse a file with several names: each would have a log of its own, and a cap of its own.

    A name under which a ledger was made, by a process killed before taking it away, is taken away.
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
            f"{path} has {names} names (hard links), and by each its cap could be spent"
            f" anew: remove the others; `find -samefile {path.name}` lists them"
        )


def refuse_mount(path: Path) -> None:
    """Refuse a file on a file system that machines share, and a file that is a mount point.

    SQLite derives the name of the log from the name of the file. A file that is mounted by itself,
    as ``docker run -v ledger.db:/ledger.db`` does, has another log under each name.

    Raises:
        LedgerError: it is either.
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
    """The type of the file system that ``path`` is on or would be; "" where that is not known.

    Args:
        path: absolute, symbolic links resolved.
        mounts: text in the format of Linux's ``/proc/self/mountinfo``, which it defaults to.
    """
    name, depth = "", -1
    for point, kind in _mounts(mounts):
        # Of two mounts at one place the later hides the earlier.
        if len(point.parts) >= depth and path.is_relative_to(point):
            name, depth = kind, len(point.parts)
    return name


def _mounts(text: str | None = None) -> Iterator[tuple[Path, str]]:
    """Each mount point and the type of its file system, in the order of the mounts."""
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
