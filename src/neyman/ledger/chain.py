"""Write the ledger's events as lines of a hash chain, and checkpoints of the chain.

A line is JSON with sorted keys, no blanks, and only ASCII. Its values are texts, integers, and
lists or objects of these. ``number`` counts from 1. ``previous`` is the SHA-256 of the line before
(64 zeros in the first). ``kind`` is one of `KINDS`. ``when`` is the time by the writer's clock,
which decides nothing. ``salt`` is random, so the hash does not confirm a guessed plan. If someone
changes, removes, or inserts a line, the hash of each later line changes. If someone rewrites all
lines, a checkpoint shows it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neyman.ledger.records import LedgerError
from neyman.storage.locks import lock
from neyman.storage.reading import read_file

NOTES = ("edition", "correct", "withdraw", "approve", "revoke")
KINDS = (
    "ledger",
    "location",
    "account",
    "allocation",
    "reserve",
    "begin",
    "void",
    "finish",
    *NOTES,
)
START = "0" * 64
_MAX_CHECKPOINT_BYTES = 400  # bytes of a checkpoint's file
canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""Write a value as JSON text with sorted keys, no blanks, and only ASCII."""
_FORM = re.compile(r"neyman-ledger ([0-9a-f]{32}) ([1-9][0-9]{0,17}) ([0-9a-f]{64})\s*")


def line_of(number: int, previous: str, kind: str, what: Mapping[str, Any]) -> str:
    """Return the line of JSON that records an event.

    Args:
        number: the number of the event, from 1.
        previous: the hash of the line before it, or `START`.
        what: the other fields of the event. They may include ``when``.
    """
    event = {
        "when": now_utc(),
        **what,
        "kind": kind,
        "number": number,
        "previous": previous,
        "salt": os.urandom(8).hex(),
    }
    return canonical_json(event)


def line_around(kind: str, what: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return the line of an event in four texts, without three values that are not known yet.

    They are the entry's id, the event's number, and ``previous``, in the alphabetical order of the
    fields. `line_between` inserts them. The event needs a field before "entry", and values that are
    texts or numbers.
    """
    line = line_of(0, "", kind, {**what, "entry": 0})
    # Inside a text, a backslash would precede the quotation mark.
    start, rest = line.split(',"entry":0', 1)
    middle, rest = rest.split(',"number":0', 1)
    late, end = rest.split(',"previous":""', 1)
    return f'{start},"entry":', f'{middle},"number":', f'{late},"previous":"', f'"{end}'


def line_between(parts: tuple[str, str, str, str], entry: int, number: int, previous: str) -> str:
    """Return the line that `line_around` prepared, with these three values."""
    return f"{parts[0]}{entry}{parts[1]}{number}{parts[2]}{previous}{parts[3]}"


def now_utc() -> str:
    """Return the time by this machine's clock. No decision depends on it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def digest(line: str) -> str:
    """Return the hash of a line: SHA-256 of its bytes."""
    return hashlib.sha256(line.encode()).hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """Identify a moment of a ledger in one line, to be stored elsewhere.

    If a ledger was rolled back, restored from a backup, or rewritten, its line with this number
    does not have this hash.

    Args:
        ledger: the ledger's random id.
        events: number of events.
        head: the hash of the last event.
    """

    ledger: str
    events: int
    head: str

    def __str__(self) -> str:
        return f"neyman-ledger {self.ledger} {self.events} {self.head}"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Return the checkpoint that a line states.

        Raises:
            ValueError: the text is not a checkpoint.
        """
        match = _FORM.fullmatch(text.strip())
        if not match:
            raise ValueError(
                f"checkpoint = {text[:120]!r} must be a line as `neyman ledger checkpoint` prints:"
                " neyman-ledger, the ledger's id, a number, a hash"
            )
        return cls(match[1], int(match[2]), match[3])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return the checkpoint in a file."""
        try:
            return cls.parse(read_file(path, _MAX_CHECKPOINT_BYTES).decode("ascii"))
        except FileNotFoundError:
            raise LedgerError(
                f"there is no checkpoint at {os.fspath(path)}: make one with `neyman ledger"
                " checkpoint`, once you know that the ledger is the right one"
            ) from None
        except (OSError, ValueError) as error:
            raise LedgerError(
                f"{os.fspath(path)} holds no checkpoint that can be read: {error}"
            ) from None


def write_checkpoint(
    path: str | os.PathLike[str], checkpoint: Checkpoint, wait: float = 30.0
) -> None:
    """Write a checkpoint to a file, atomically and durably, unless the file has a later one.

    Args:
        wait: largest number of seconds to wait for a process that has locked the file's folder.

    Raises:
        LedgerError: the file cannot be written, or holds the checkpoint of another ledger.
    """
    path = Path(path)
    try:
        with _only_one(path.parent, wait):
            if path.exists():
                there = Checkpoint.load(path)
                if there.ledger != checkpoint.ledger:
                    raise LedgerError(
                        f"{path} holds the checkpoint of another ledger ({there.ledger}): name"
                        " another file"
                    )
                if there.events >= checkpoint.events:
                    return
            new = path.with_name(f".{path.name}.new")
            new.unlink(missing_ok=True)  # left by a killed writer, or a link that leads elsewhere
            with open(new, "x", encoding="ascii") as file:
                file.write(f"{checkpoint}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
    except BlockingIOError:
        raise LedgerError(
            f"the checkpoint {path} cannot be written: another process has locked its folder for"
            f" {wait:g} s; the ledger is ahead of it, which is harmless"
        ) from None
    except OSError as error:
        raise LedgerError(
            f"the checkpoint {path} cannot be written: {error.strerror}; the ledger is ahead of it,"
            " which is harmless"
        ) from error


@contextmanager
def _only_one(folder: Path, wait: float) -> Generator[None]:
    """Block other writers of checkpoints in a folder. At the end, make its names durable."""
    handle = lock(folder.resolve(), wait)
    if handle is None:  # the file may then fall behind, which is harmless
        yield
        return
    try:
        yield
        os.fsync(handle)
    finally:
        os.close(handle)
