"""Store a ledger in a schema of a PostgreSQL database.

All writers queue for one lock, which the server grants in turn. Statements are sent together until
one needs an answer of an earlier one. So a reservation takes two round trips.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, LiteralString, cast

from neyman.ledger.database import VERSION, Reservation, Store
from neyman.ledger.postgres.connection import (
    Address,
    Connections,
    Lost,
    PostgresSession,
    after,
    errors,
    in_words,
    sql,
)
from neyman.ledger.postgres.schema import schema_of
from neyman.ledger.postgres.schema_check import check_pins, differences
from neyman.ledger.records import LedgerError
from neyman.ledger.turn import waited

_PAUSE_SECONDS = 0.1
_EVENT = "INSERT INTO event (number, line, hash)"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_FIFTEEN = ", ".join(["%s"] * 15)


class _Transaction:
    """Hold a session's open transaction, and the last event that it wrote."""

    def __init__(self, session: PostgresSession) -> None:
        self.session = session
        self.event: tuple[int, str] | None = None
        self.committing = False

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.session.connection.execute(_placeholders(query), values, binary=True).fetchall()

    def run(self, query: str, *values: object) -> None:
        if query.startswith(_EVENT):
            self.event = cast(int, values[0]), cast(str, values[2])
        self.session.connection.execute(_placeholders(query), values)


class PostgreSQL(Store):
    """Store a ledger in a schema of a PostgreSQL database.

    Each thread of each process has its own session, which stays open for the next use.

    Args:
        url: ``postgresql://user@host:5432/database?schema=neyman``, a URL for libpq with a schema.
            A password in it is never printed.
        wait: seconds to wait for other writers, and for a server that is restarting.

    Raises:
        ValueError: the url cannot be read.
    """

    def __init__(self, url: str | Address, wait: float = 30.0) -> None:
        self.address = url if isinstance(url, Address) else Address.read(url)
        self.wait = wait
        self.where = self.address.shown
        self._connections = Connections(self.address, wait, check_pins)
        self._schema = f'"{self.address.schema}"'
        self._path = f"pg_catalog.set_config('search_path', '{self.address.path}', true)"
        self._reserve: LiteralString = sql(f"SELECT {self._schema}.reserve({_FIFTEEN})")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.address, self.wait)

    def close(self) -> None:
        """Close this thread's session."""
        self._connections.drop()

    def exists(self) -> bool:
        """Return True if the schema contains anything."""
        with self._rolled_back("nothing was written"):
            return self._has_tables(self._connections.get())

    def create(self, line: str, digest: str) -> None:
        """Create a ledger and its schema, unless the schema contains anything."""
        with self._rolled_back(
            "whether the ledger was made is not known: try again, which is harmless"
        ):
            session = self._connections.get()
            if not self._has_tables(session):
                with session.connection.transaction():
                    self._create(session, line, digest)

    def _create(self, session: PostgresSession, line: str, digest: str) -> None:
        run = session.connection.execute
        run(
            "SELECT set_config('synchronous_commit', 'on', true),"
            " set_config('lock_timeout', %s, true)",
            (str(max(round(self.wait * 1000), 1)),),
        )
        # If several processes create it at once, the first one does, and the others find it.
        name = self.address.schema
        run("SELECT pg_advisory_xact_lock(hashtextextended('neyman ' || %s, 0))", (name,))
        if self._has_tables(session):
            return
        if not run("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,)).fetchall():
            run(sql(f"CREATE SCHEMA {self._schema}"))
        for statement in schema_of(name):
            run(sql(statement), prepare=False)
        run(sql(f"INSERT INTO {self._schema}.event VALUES (1, %s, %s)"), (line, digest))

    def _has_tables(self, session: PostgresSession) -> bool:
        query = (
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s LIMIT 1"
        )
        return bool(session.connection.execute(query, (self.address.schema,)).fetchall())

    @contextmanager
    def reading(self) -> Generator[_Transaction]:
        with (
            self._rolled_back("nothing was written"),
            self._transaction(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                f"SELECT {self._schema}.reading({VERSION}), {self._path}",
            ) as transaction,
        ):
            yield transaction

    @contextmanager
    def writing(self) -> Generator[_Transaction]:
        transaction = None
        try:
            with self._transaction(
                _WRITE,
                f"SELECT {self._schema}.writing({VERSION}, {round(self.wait * 1000)}),"
                f" {self._path}",
            ) as transaction:
                yield transaction
        except Lost as lost:
            if transaction is None or not transaction.committing:
                raise LedgerError(
                    f"{self.where} was cut off ({lost}) before anything was written: try again"
                ) from None
            self._find_out(transaction, lost)

    @contextmanager
    def _transaction(self, *beginning: str) -> Generator[_Transaction]:
        session = self._connections.get()
        transaction = _Transaction(session)
        try:
            with (
                in_words(self.address, self.wait),
                after(lambda: transaction.committing, self.address),
                session.connection.pipeline(),
            ):
                for statement in beginning:
                    session.connection.execute(sql(statement))
                yield transaction
                transaction.committing = True
                session.connection.execute("COMMIT")
                # Also after reading: what was read is on the disk before it is returned.
                # Not prepared: after a refused commit, psycopg would assume that it was prepared.
                session.connection.execute(sql(f"SELECT {self._schema}.settled()"), prepare=False)
        except BaseException:
            self._connections.give_up()
            raise

    @contextmanager
    def _rolled_back(self, state: str) -> Generator[None]:
        """Run operations that are harmless if it stays unknown whether they were done.

        If the connection is lost, raise an error whose message ends with ``state``.
        """
        try:
            with in_words(self.address, self.wait):
                yield
        except Lost as lost:
            self._connections.drop()
            raise LedgerError(f"{self.where} was cut off ({lost}): {state}") from None

    def reserve_fast(self, asked: Reservation) -> int | None:
        session = self._connections.get()
        values = (VERSION, round(self.wait * 1000), *asked[:-1], *asked.line)
        try:
            with self._transaction(_WRITE) as transaction:
                answer = transaction.session.connection.execute(self._reserve, values)
            return answer.fetchall()[0][0]
        except Lost as lost:
            query = (
                "SELECT e.id, r.line FROM entry e JOIN event r ON r.number = e.event"
                " WHERE e.dataset = ? AND e.key = ? ORDER BY e.id DESC LIMIT 1"
            )
            rows = self._after(session, lost, query, asked.dataset, asked.key)
            # Only the same line ends in the same salt.
            if rows and rows[0][1].endswith(asked.line[-1]):
                return rows[0][0]
            raise self._lost_connection_error(lost) from None
        except LedgerError as error:
            if isinstance(error.__cause__, (errors.IntegrityError, errors.DataError)):
                return None
            raise

    def _find_out(self, transaction: _Transaction, lost: Lost) -> None:
        """Check that an unanswered commit was done. Raise an error otherwise."""
        if transaction.event is None:
            raise LedgerError(
                f"{self.where} was cut off ({lost}) while files were stored, which do not count"
                " yet: see with `neyman ledger history` how the entry stands, and finish it again"
            )
        number, digest = transaction.event
        query = "SELECT hash FROM event WHERE number = ?"
        if self._after(transaction.session, lost, query, number) != [(digest,)]:
            raise self._lost_connection_error(lost)

    def _lost_connection_error(self, lost: Lost) -> LedgerError:
        return LedgerError(
            f"{self.where} was cut off ({lost}) as it was writing; it answers again, and nothing"
            " was written: try again"
        )

    def _after(
        self, old: PostgresSession, lost: Lost, query: str, *values: object
    ) -> list[tuple[Any, ...]]:
        """End a broken session, so it can write no more. Then return the rows of a query."""
        deadline = time.monotonic() + self.wait
        self._connections.drop()
        while True:
            try:
                self._end(old, deadline)
                with self.writing() as again:
                    return again.rows(query, *values)
            except LedgerError as error:
                if time.monotonic() >= deadline:
                    raise LedgerError(
                        f"{self.where} was cut off ({lost}) as it was writing, and does not say"
                        f" whether it did ({error}): it may have been charged; run `neyman ledger"
                        " history` once it answers, before you try again"
                    ) from None
            time.sleep(0.1)

    def _end(self, old: PostgresSession, deadline: float) -> None:
        """End a session that may still be working on the server."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid = %s AND backend_start = %s"
        )
        with self._rolled_back("nothing was written"):
            while (
                self._connections.get().connection.execute(query, (old.pid, old.since)).fetchall()
            ):
                if time.monotonic() >= deadline:
                    # Guards against a session that a lost connection left.
                    raise LedgerError("the broken session is still at work on the server")
                time.sleep(0.02)

    @contextmanager
    def turn(self, key: str, wait: float) -> Generator[None]:
        """Hold the turn of a plan, by an advisory lock in a separate session.

        If this session breaks, it releases the turn, which does no harm.
        """
        query = "SELECT pg_try_advisory_lock(hashtextextended('neyman run ' || %s, 0))"
        own = Connections(self.address, self.wait, check_pins)
        deadline = time.monotonic() + wait
        try:
            with self._rolled_back("nothing was written"):
                session = own.get()
                while not session.connection.execute(
                    query, (f"{self.address.schema} {key}",)
                ).fetchall()[0][0]:
                    if time.monotonic() >= deadline:
                        raise waited(wait)
                    time.sleep(random.uniform(0, _PAUSE_SECONDS))
            yield
        finally:
            own.drop()

    def problems(self) -> list[str]:
        with self.reading():
            pass  # checks that a ledger of this version exists
        with self._rolled_back("nothing was written"):
            return differences(self._connections.get().connection, self.address.schema)


@lru_cache(maxsize=256)
def _placeholders(query: str) -> LiteralString:
    return sql(query.replace("%", "%%").replace("?", "%s"))
