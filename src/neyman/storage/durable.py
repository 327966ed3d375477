"""Replace files in one step, durably when the call returns."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step, durably. Only its owner may read it.

    A reader gets the old or the new content, even after a crash.

    Args:
        path: path of the file, in an existing folder.

    Raises:
        OSError: the file cannot be written. The old content stays.
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # left by a killed writer, or a link that leads elsewhere
    with open(new, "xb", opener=partial(os.open, mode=0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, if the system can."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = 0o777) -> list[Path]:
    """Make a folder and its missing parents. Their names are durable if possible.

    Args:
        folder: the folder, which may exist already.
        mode: the rights of the folder if it is new, minus the umask. They do not apply to its
            parents.

    Returns:
        The new folders, the deepest first.

    Raises:
        OSError: the folder cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for each in missing:
        with suppress(OSError):  # some folders cannot be opened: their file system keeps its order
            sync_folder(each.parent)
    return missing
