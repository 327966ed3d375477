"""Confirm a new location of a SQLite ledger.

During the change, no other process is connected to the file, under any name. All changes are in one
transaction. If the process is killed, the ledger keeps its old location or has the confirmed one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from neyman.ledger.audit import audit
from neyman.ledger.events import ledger_id
from neyman.ledger.records import LedgerError
from neyman.ledger.rows import Damage
from neyman.ledger.sqlite import location
from neyman.ledger.sqlite.connection import (
    FAILURES,
    SQLiteTransaction,
    apsw,
    connected,
    disconnect,
    make_durable,
    refuse_other,
    trust,
)
from neyman.storage.durable import sync_folder

_LOGS = ("-wal", "-journal")


@contextmanager
def relocating(path: Path, wait: float) -> Generator[SQLiteTransaction | None]:
    """Open a transaction that confirms the current location of a ledger's file.

    The caller adds the event of kind "location".

    Args:
        path: absolute path of the file, with symbolic links resolved.
        wait: seconds to wait until others close their connections.

    Yields:
        The transaction, or None if the location is unchanged.
    """
    location.look(path)
    location.refuse_mount(path)
    connection = _exclusive_connection(path, wait)
    db = SQLiteTransaction(connection)
    try:
        try:
            here = location.Location.of(path)
            belongs = location.recorded(db)
            if belongs.identity == here.identity:
                yield None
                return
            _refuse_leftovers(db, path, belongs)
            report = audit(db, location.file_problems(db), FAILURES)
            if not report.ok:
                raise LedgerError(
                    f"{path} does not verify, and its location was not confirmed:"
                    f" {report.problems[0]}; bring back the file, and what lay beside it, from"
                    " where it was"
                )
            yield db
            here.record(db)
            connection.execute("COMMIT")
        finally:
            if not connection.get_autocommit():
                connection.execute("ROLLBACK")
        trust(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        disconnect(connection)
    sync_folder(path.parent)


def _exclusive_connection(path: Path, wait: float) -> apsw.Connection:
    """Return the only connection to a file, under any name, with an open transaction."""
    deadline = time.monotonic() + wait
    while True:
        connection = connected(path, 0)
        try:
            # In this mode, SQLite locks the file itself, which all its names share,
            # while the connection is open. Two processes that wait for each other must release it.
            connection.pragma("locking_mode", "exclusive")
            refuse_other(connection, path)
            location.refuse_format(connection, path)
            make_durable(connection, path)
            connection.execute("BEGIN EXCLUSIVE")
            return connection
        except apsw.BusyError:
            disconnect(connection)
        except BaseException:
            disconnect(connection)
            raise
        if time.monotonic() > deadline:
            raise LedgerError(
                f"{path} is in use, perhaps under another name: stop every process that uses this"
                " ledger, and confirm its location then; nothing was written"
            )
        time.sleep(random.uniform(0, 0.02))


def _refuse_leftovers(db: SQLiteTransaction, path: Path, belongs: location.Location) -> None:
    """Refuse if the ledger, or a log of it, is visible in the old place, ``belongs``."""
    before = Path(belongs.path)
    if before != path and not _is_another(db, path, before):
        for suffix in _LOGS:
            _refuse_log(path, before.with_name(before.name + suffix))
    try:
        entries = sorted(os.scandir(path.parent), key=lambda entry: entry.name)
    except OSError as error:
        # Guards against a folder that only some may list.
        raise LedgerError(f"{path.parent} cannot be listed: {error.strerror}") from error
    # The log of a link is beside the file that the link points to.
    files = {entry.name for entry in entries if not entry.is_symlink()}
    for name in sorted(files):
        for suffix in _LOGS:
            if name.endswith(suffix) and name.removesuffix(suffix) not in files:
                _refuse_log(path, path.parent / name)


def _refuse_log(path: Path, log: Path) -> None:
    try:
        if not log.stat().st_size:
            return
    except OSError:
        return
    raise LedgerError(
        f"{log} holds the newest spends of a ledger that is not beside it, perhaps of {path}: if"
        f" so, move {path.name} back beside it under its old name, open it there with `neyman"
        " ledger show`, and move it again; if it belongs to something else, move the log away"
    )


def _is_another(db: SQLiteTransaction, path: Path, before: Path) -> bool:
    """Return True if another ledger is at ``before``, the old path.

    Raises:
        LedgerError: this ledger, a copy of it, or an unreadable ledger is there.
    """
    # A link that points here is not another place.
    if not os.path.isfile(before) or os.path.realpath(before) == str(path):
        return False
    if os.path.samefile(before, path):
        raise LedgerError(
            f"{path} is also at {before}, where it belongs: use it there; or take that name away,"
            " and confirm the location then"
        )
    try:
        other = connected(before, 0)
        try:
            refuse_other(other, before)
            same = ledger_id(SQLiteTransaction(other)) == ledger_id(db)
        finally:
            disconnect(other)
    except (LedgerError, apsw.NotADBError):
        return False  # a file that is not a ledger has this name now
    except (apsw.Error, Damage) as error:
        raise LedgerError(
            f"{before}, where this ledger belongs, cannot be read ({error}): move it away first"
        ) from error
    if same:
        raise LedgerError(
            f"{path} is a copy: the ledger is at {before}, where it belongs, and each of the two"
            " could grant its cap. Use it there; or, if this copy is to take its place, move the"
            " other one away, and compare this one with a checkpoint"
        )
    return True
