"""Let one process at a time run a plan on a ledger.

A turn ends with its process, so a waiting run knows that the other is alive. Turns do not affect
the budget.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from neyman.ledger.records import LedgerError
from neyman.storage.locks import lock, names


@contextmanager
def file_turn(ledger: Path, key: str, wait: float) -> Generator[None]:
    """Let no other process run a plan on a SQLite ledger, by a lock on a file beside it.

    Args:
        key: text that identifies the plan.
        wait: largest number of seconds to wait for another process.
    """
    path = ledger.with_name(f".{ledger.name}.{hashlib.sha256(key.encode()).hexdigest()[:16]}.run")
    deadline = time.monotonic() + wait
    handle = None
    try:
        while True:
            handle = lock(path, max(deadline - time.monotonic(), 0.0), create=True)
            # The former holder may have removed the file that this process waited for.
            if handle is None or names(path, handle):
                break
            os.close(handle)
    except BlockingIOError:
        raise waited(wait) from None
    except OSError as error:
        raise LedgerError(f"{path} cannot be made beside the ledger: {error.strerror}") from error
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                os.unlink(path)
            os.close(handle)


def waited(wait: float) -> LedgerError:
    """Return the error of a process that did not get its turn in time."""
    return LedgerError(
        f"another run of this plan has not ended within {wait:g} s, and this run spent nothing. "
        "After that run ends, the same plan gives its files at no charge"
    )
