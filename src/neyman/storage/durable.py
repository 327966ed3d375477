"""Files that are replaced in one step, and are on the disk when the call returns."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in place of the one of that name, in one step, durably, for its owner alone.

    Whoever reads the name meanwhile, or after a crash, gets the old content or the new one.

    Args:
        path: in an existing folder.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # a killed writer's, or a link that leads elsewhere
    with open(new, "xb", opener=_for_the_owner) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = 0o777) -> list[Path]:
    """Make a folder and the missing ones above it. Their names are durable where that is possible.

    Args:
        folder: may exist already.
        mode: the rights of a new folder, not of those above it, less those of the umask.

    Returns:
        The folders that were missing, the deepest first.

    Raises:
        OSError: it cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for each in missing:
        with suppress(OSError):  # some folders cannot be opened: their file system keeps its order
            sync_folder(each.parent)
    return missing
