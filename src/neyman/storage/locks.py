"""Lock folders and files until the process ends. Every wait has a limit."""

from __future__ import annotations

import os
import random
import time

_PAUSE_SECONDS = 0.02


def lock(path: str | os.PathLike[str], wait: float = 0.0, *, create: bool = False) -> int | None:
    """Lock a folder or a file for this process alone, until the handle is closed.

    The system releases the lock when the process ends, however it ends. A lock does not prevent
    reading or writing. It only separates processes that ask for it.

    Args:
        path: an existing folder or file. A symbolic link is refused.
        wait: largest number of seconds to wait for another process.
        create: if True, create a missing file, empty and with permissions 0600.

    Returns:
        The handle to close, or None if the system has no such locks.

    Raises:
        BlockingIOError: another process holds the lock, and still did after ``wait`` seconds.
        OSError: the path cannot be opened.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    making = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    flags = making | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    deadline = time.monotonic() + wait
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
            except OSError:  # a file system without such locks
                os.close(handle)
                return None
            time.sleep(random.uniform(0, _PAUSE_SECONDS))
    except BaseException:
        os.close(handle)
        raise


def names(path: str | os.PathLike[str], handle: int) -> bool:
    """Return True if a path still names the open folder or file, not a link or a successor."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False
