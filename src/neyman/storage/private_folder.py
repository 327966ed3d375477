"""Make temporary folders that only their owner can read. The next start removes old ones.

A folder has permissions 0700. Files in it get 0600, and folders in it 0700. It holds a mark file,
and its process holds a lock on it. A killed process cannot remove its folder. So a process that
makes a folder first removes sibling folders that belong to the same user, have the mark file, and
are not locked.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from neyman.storage.locks import lock, names

_NAME = re.compile("neyman-(spill|answer|throwaway)-[a-z0-9_]{8}")
_MARK = "neyman-spill"
_NAME_TRIES = 100
# The default access control list of files in a folder: all for the owner, none for others.
# Tag, permissions, and an id that these tags do not have: ACL_USER_OBJ, ACL_GROUP_OBJ, ACL_OTHER.
_OWNER_ONLY = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, 0xFFFFFFFF)
    for tag, permissions in ((0x01, 7), (0x04, 0), (0x20, 0))
)


@dataclass(frozen=True)
class PrivateFolder:
    """Represent a folder that belongs to one process.

    Args:
        handle: the lock of the folder, or None if folders cannot be locked.
        process: the process that made the folder. Its forks do not remove the folder.
    """

    path: Path
    handle: int | None
    process: int

    def clear(self) -> None:
        """Remove the content of the folder's subfolders. The subfolders stay, as Spark expects."""
        for below in self.path.glob("*/*"):
            shutil.rmtree(below, ignore_errors=True)
            with suppress(OSError):  # a file
                below.unlink()

    def remove(self) -> None:
        """Remove the folder with its content, and release the lock."""
        if os.getpid() != self.process:
            return
        if self.handle is None:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        with suppress(OSError):
            _remove(self.path, self.handle)
        os.close(self.handle)


def private_folder(kind: str, above: str | Path | None = None) -> PrivateFolder:
    """Make a temporary folder, after removing the folders of killed processes.

    Args:
        kind: "spill", "answer", or "throwaway": a part of the name.
        above: the parent folder. The default is the system's temporary folder.

    Returns:
        The folder. No one but this user can look inside.

    Raises:
        OSError: the folder cannot be made.
    """
    above = Path(tempfile.gettempdir() if above is None else above).absolute()
    sweep(above)
    for _ in range(_NAME_TRIES):
        folder = _lock_folder(Path(tempfile.mkdtemp(prefix=f"neyman-{kind}-", dir=above)))
        if folder is not None:
            break
    else:
        # Guards against processes that remove new folders.
        raise OSError(0, "other processes remove each new folder")
    try:
        handle = os.open(folder.path / _MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(handle)
        # Some file systems lack such lists. Then the folder itself excludes others.
        if hasattr(os, "setxattr"):
            with suppress(OSError):
                os.setxattr(folder.path, "system.posix_acl_default", _OWNER_ONLY)
    except BaseException:
        folder.remove()
        raise
    return folder


def _lock_folder(path: Path) -> PrivateFolder | None:
    """Lock a new folder and return it, or None if another process removed it first."""
    try:
        handle = lock(path)
    except (BlockingIOError, FileNotFoundError):
        return None
    if handle is not None and not names(path, handle):
        os.close(handle)
        return None
    return PrivateFolder(path, handle, os.getpid())


def sweep(above: Path) -> None:
    """Remove the folders that this user's killed processes left.

    Keep links, and folders of running processes, of other users, and without the mark file.
    """
    if os.name == "nt":  # without locks no one knows whether a folder is in use
        return
    with suppress(OSError), os.scandir(above) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with suppress(OSError):
                    _sweep_one(Path(entry.path))


def _sweep_one(path: Path) -> None:
    handle = lock(path)  # refuses links
    if handle is None:
        return
    try:
        if os.fstat(handle).st_uid == os.geteuid() and names(path, handle):
            _remove(path, handle)
    finally:
        os.close(handle)


def _remove(path: Path, handle: int) -> None:
    """Remove a locked folder if it is empty or has the mark file. Remove this file last.

    If this process is killed while the folder is not empty, the folder still has its mark.
    """
    present = os.listdir(handle)
    if present and _MARK not in present:
        return
    for name in present:
        if name != _MARK:
            shutil.rmtree(name, ignore_errors=True, dir_fd=handle)
            with suppress(OSError):  # a file
                os.unlink(name, dir_fd=handle)
    if os.listdir(handle) == [_MARK]:
        os.unlink(_MARK, dir_fd=handle)
    os.rmdir(path)
