"""Which store a ledger's url names."""

from __future__ import annotations

import os
from pathlib import Path

from neyman.ledger.database import Store
from neyman.ledger.sqlite.store import SQLiteFile


def store_at(url: str | os.PathLike[str], wait: float) -> Store:
    """The store that a url names; nothing is opened.

    Args:
        url: the path of a SQLite file, or ``postgresql://...``.
        wait: seconds to wait for other writers.

    Raises:
        ValueError: it names neither.
    """
    path = os.fspath(url)
    if not isinstance(path, str) or not path or path == ":memory:" or not _encodes(path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"url = {url!r} must be the path of a file, such as 'ledger.db'")
    if path.startswith(("postgresql://", "postgres://")):
        from neyman.ledger.postgres.store import PostgreSQL

        return PostgreSQL(path, wait)
    if "://" in path:
        raise ValueError(
            f"url begins with {path.partition('://')[0]!r}: supported are the path of a SQLite"
            " file, such as 'ledger.db', and postgresql://..."
        )
    return SQLiteFile(Path(os.path.realpath(path)), wait)


def _encodes(path: str) -> bool:
    """Whether a file can have the name."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
