"""Whose turn it is to write: whoever has waited is let in before those who have just come.

SQLite lets in whoever asks first after a commit, which is mostly the one that has just committed.
So a writer that has waited for a while locks the ledger's folder, and others that see this lock
wait; if it was stopped meanwhile, they go ahead after a tenth of a second all the same. The lock
keeps nothing safe, SQLite's does: it is about whose turn it is, and no more.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: by chance then
    fcntl = None

__all__ = ["Turn"]

_LONG = 0.005
_TOO_LONG = 0.1


class Turn:
    """One writer's place in the queue.

    Args:
        folder: the ledger's.
    """

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = None
        if fcntl:
            with suppress(OSError):
                self._handle = os.open(folder, os.O_RDONLY)

    def close(self) -> None:
        """Leave the queue for good."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def wait(self, attempt: Callable[[], bool], most: float) -> bool:
        """Whether an attempt succeeded, made again and again for ``most`` seconds at most."""
        began, mine = time.monotonic(), False
        try:
            while True:
                waited = time.monotonic() - began
                if (mine or waited > _TOO_LONG or self._free()) and attempt():
                    return True
                if waited >= most:
                    return False
                mine = mine or (waited > _LONG and self._locked(exclusive=True))
                time.sleep(random.uniform(0, min(0.01, 0.0005 + waited / 20)))
        finally:
            if mine:
                self._unlock()

    def _free(self) -> bool:
        if not self._locked(exclusive=False):
            return False
        self._unlock()
        return True

    def _locked(self, *, exclusive: bool) -> bool:
        if not fcntl or self._handle is None:
            return not exclusive
        try:
            fcntl.flock(
                self._handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
            )
        except OSError:
            return False
        return True

    def _unlock(self) -> None:
        if fcntl and self._handle is not None:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
