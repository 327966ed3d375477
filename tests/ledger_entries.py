"""What the tests of a ledger share: who is protected, a dataset, and entries of it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neyman import Ledger
from neyman.ledger import Entry, digest

__all__ = ["FILES", "NAME", "UNIT", "confirmed", "digest_of", "line_of", "reading", "reserve"]

UNIT: dict[str, Any] = {"protects": "person", "neighboring": "replace-one", "rows": 1}
NAME = "census@1"
FILES = {"receipt.json": b"{}", "tables/total.csv": bytes(range(256)) * 12_000, "empty": b""}

_keys = itertools.count()


def reserve(
    ledger: Ledger, charge: Any = 1, key: str = "", *, dataset: str = NAME, **more: Any
) -> Entry:
    """A reservation, of its own key unless one is given."""
    fields = {"mechanisms": [], "plan": "{}", **UNIT, **more}
    return ledger.reserve(
        dataset, key=key or f"{os.getpid()} {next(_keys)}", charge=charge, **fields
    )


def confirmed(path: Path) -> Path:
    """A ledger whose file was put there by a test, which says that it belongs there."""
    with Ledger(path) as ledger:
        ledger.confirm_location("put there by a test")
    return path


def reading(ledger: Ledger, charge: Any = 1, key: str = "", **more: Any) -> Entry:
    """An entry that has begun to read."""
    return ledger.begin(reserve(ledger, charge, key, **more))


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def line_of(number: int, previous: str, kind: str, what: Mapping[str, Any]) -> str:
    """The line of an event, as the ledger's page describes it."""
    when, salt = "2026-01-01T00:00:00.000+00:00", os.urandom(8).hex()
    chain = {"kind": kind, "number": number, "previous": previous, "salt": salt}
    return _json({"when": when, **what, **chain})


def digest_of(hashes: Mapping[str, str]) -> str:
    """The hash of a publication: that of the object of its files' hashes."""
    return digest(_json(hashes))
