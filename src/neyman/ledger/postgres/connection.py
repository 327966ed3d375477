"""Connect to a PostgreSQL server that can be trusted with a budget, and explain its errors."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, LiteralString, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper

from neyman.ledger.database import VERSION
from neyman.ledger.records import LedgerError, other_format

_MIN_SERVER_VERSION = 130000
_SCHEMA = re.compile(r"[a-z][a-z0-9_]{0,62}")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(:\d*)?")
_SECRET = ("password", "sslpassword", "oauth_client_secret")
_HOW = "postgresql://user@host:5432/database?schema=neyman"
# Prevents garbage collection before the session's, and forever in a child process: closing it
# there would end the parent's session.
_OPEN: set[psycopg.Connection[Any]] = set()


class Lost(Exception):  # it reports a missing answer, not an error
    """Report a connection that broke while the server worked, so its result is unknown."""


@dataclass(frozen=True)
class Address:
    """Describe the address of a ledger on PostgreSQL.

    Args:
        shown: the URL without secrets, the only form that is printed.
        parameters: the parameters for libpq.
    """

    shown: str
    schema: str
    parameters: dict[str, str] = field(repr=False, hash=False)

    @classmethod
    def read(cls, url: str) -> Address:
        """Return the address in a URL.

        No message quotes a part of the URL. If a character of the password is not percent-encoded,
        any part of the URL may belong to the password.

        Args:
            url: the URL for libpq. The parameter ``schema=`` names the schema, with the default
                "neyman".

        Raises:
            ValueError: the URL cannot be read.
        """
        unreadable = ValueError(
            f"url is not of the form {_HOW} : in a user's name or a password, write @ : / ? # and"
            " % as %40 %3A %2F %3F %23 and %25, or keep the password in ~/.pgpass"
        )
        try:
            parts = urlsplit(url)
        except ValueError:
            raise unreadable from None
        user, at, hosts = parts.netloc.rpartition("@")
        given = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
        schema = dict(given).get("schema", "neyman")
        rest = [(name, value) for name, value in given if name != "schema"]
        astray = "@" in user or "@" in parts.path or parts.fragment or "#" in url
        valid = all(_HOST.fullmatch(host) for host in hosts.split(","))
        if astray or not valid or not all(re.fullmatch("[a-z_]+", name) for name, _ in given):
            raise unreadable
        if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
            raise ValueError(
                "schema in url must be of lower-case letters, digits and _, at most 63, and not"
                " begin with pg_ , as ?schema=neyman"
            )
        plain = urlencode(rest, quote_via=quote)
        bare = f"postgresql://{parts.netloc}{parts.path}{'?' + plain if plain else ''}"
        try:
            known = conninfo_to_dict(bare)
        except psycopg.ProgrammingError:
            raise ValueError(
                f"url has a part that PostgreSQL does not know: write {_HOW}"
            ) from None
        parameters = {name: str(value) for name, value in known.items()}
        name = unquote(user.partition(":")[0])
        options = [(n, v) for n, v in rest if n not in _SECRET] + [("schema", schema)]
        shown = (
            f"postgresql://{quote(name)}{at}{hosts}{parts.path}?"
            f"{urlencode(options, quote_via=quote, safe='/')}"
        )
        return cls(shown, schema, parameters)

    @property
    def path(self) -> str:
        """Return the search path of every session: the server's own names, then the ledger's."""
        return f'pg_catalog, "{self.schema}", pg_temp'

    def hide(self, text: str) -> str:
        """Return a message of the server or of libpq on one line, without secrets."""
        line = " ".join(text.split())
        for name in _SECRET:
            secret = self.parameters.get(name) or os.environ.get("PGPASSWORD", "")
            if len(secret) > 2:
                line = line.replace(secret, "***")
        return line


class PostgresSession:
    """Hold the connection of one thread of one process. It is closed when the thread ends.

    Args:
        pid, since: the id and the start of the server's process for this connection, by the
            server's clock. Together they identify the process.
    """

    def __init__(self, connection: psycopg.Connection[Any], pid: int, since: datetime) -> None:
        self.connection, self.pid, self.since = connection, pid, since
        self._process = os.getpid()
        _OPEN.add(connection)

    @property
    def usable(self) -> bool:
        """Return True if the session belongs to this process and seems open, without a query."""
        if self._process != os.getpid() or self.connection.closed:
            return False
        # No answer is expected, so readable bytes announce the end of the connection.
        return not select.select([self.connection.fileno()], [], [], 0)[0]

    def close(self) -> None:
        """Close the connection. The server rolls back uncommitted changes."""
        if self._process == os.getpid():
            self.connection.close()
            _OPEN.discard(self.connection)

    def __del__(self) -> None:
        self.close()


class _Thread(threading.local):
    """Hold one thread's session."""

    session: PostgresSession | None = None


class Connections:
    """Hold one session for each thread of each process, made at the first use.

    Args:
        wait: seconds to keep trying if a server is just starting.
        inspect: a function that checks the ledger over each new connection, and raises to refuse
            it.
    """

    def __init__(
        self,
        address: Address,
        wait: float,
        inspect: Callable[[psycopg.Connection[Any], Address], None],
    ) -> None:
        self.address, self.wait, self._inspect = address, wait, inspect
        self._thread = _Thread()

    def get(self) -> PostgresSession:
        """Return this thread's session."""
        session = self._thread.session
        if session and session.usable:
            return session
        self.drop()
        deadline = time.monotonic() + self.wait
        while True:
            try:
                self._thread.session = self._connect()
                return self._thread.session
            except _Starting as error:
                if time.monotonic() >= deadline:
                    # Guards against a server that starts for too long.
                    raise LedgerError(str(error)) from None
                time.sleep(0.05)

    def drop(self) -> None:
        """Close this thread's session."""
        session, self._thread.session = self._thread.session, None
        if session:
            session.close()

    def give_up(self) -> None:
        """Roll back this thread's uncommitted changes, and keep its session if it works."""
        session = self._thread.session
        try:
            if session and session.usable:
                # psycopg also forgets which statements it prepared, as some of them may not exist.
                session.connection.rollback()
        except psycopg.Error:
            self.drop()

    def _connect(self) -> PostgresSession:
        where = self.address.shown
        settings = {
            "connect_timeout": "10",
            "application_name": "neyman",
            "keepalives_idle": "60",
            # Wait for a silent network no longer than for a lock.
            "tcp_user_timeout": str(max(round(self.wait * 1000), 1000)),
        }
        try:
            connection = psycopg.connect(
                **cast("Any", settings | self.address.parameters | {"client_encoding": "utf8"}),
                autocommit=True,
                prepare_threshold=1,
            )
        except psycopg.Error as error:
            text = self.address.hide(str(error))
            said = f"{where} cannot be reached: {text}; nothing was written"
            if re.search("starting up|shutting down|in recovery mode|not yet accepting", text):
                raise _Starting(said) from None
            raise LedgerError(said) from None
        try:
            # Use one type for all integers: a statement is prepared once per set of types.
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            return self._check_session(connection)
        except Lost as lost:
            connection.close()
            raise _Starting(f"{where} cannot be reached: {lost}; nothing was written") from None
        except BaseException:
            connection.close()
            raise

    def _check_session(self, connection: psycopg.Connection[Any]) -> PostgresSession:
        where = self.address.shown
        if connection.info.server_version < _MIN_SERVER_VERSION:
            # Guards against an old server.
            raise LedgerError(
                f"{where} is PostgreSQL {connection.info.server_version // 10000}: a ledger needs"
                f" {_MIN_SERVER_VERSION // 10000} or later"
            )
        with in_words(self.address, self.wait):
            # Set the path first, so that no name is looked up in a schema that others can write.
            connection.execute(
                "SELECT pg_catalog.set_config('search_path', %s, false)", (self.address.path,)
            )
            standby, encoding, pid, since, _ = connection.execute(
                "SELECT pg_is_in_recovery(), current_setting('server_encoding'), pid,"
                " backend_start, set_config('default_transaction_isolation',"
                " 'read committed', false)"
                " || set_config('default_transaction_read_only', 'off', false)"
                " || set_config('lock_timeout', %s, false)"
                " FROM pg_stat_activity WHERE pid = pg_backend_pid()",
                # same: 1000 -> 1001: The wait of a lock differs by one part in 1,000.
                (str(max(round(self.wait * 1000), 1)),),
            ).fetchall()[0]
        if standby:
            raise LedgerError(
                f"{where} is a standby, which only copies: name the primary server"
                " (target_session_attrs=read-write in the URL finds it among several hosts)"
            )
        if encoding != "UTF8":
            raise LedgerError(
                f"{where} is a database in {encoding}: a ledger needs one in UTF8"
                " (createdb --encoding=UTF8 --template=template0)"
            )
        with in_words(self.address, self.wait):
            self._inspect(connection, self.address)
        return PostgresSession(connection, pid, since)


class _Starting(Exception):
    """Report that the server will soon accept connections."""


@contextmanager
def after(commit: Callable[[], bool], address: Address) -> Generator[None]:
    """Raise `Lost` for errors of the server or connection that may follow a successful commit.

    Args:
        commit: a function that returns True if the server was asked to commit.
    """
    try:
        yield
    except psycopg.Error as error:
        if commit() and (error.sqlstate or "08")[:2] in ("08", "53", "57", "58", "XX"):
            raise Lost(address.hide(_primary(error))) from None
        raise


@contextmanager
def in_words(address: Address, wait: float) -> Generator[None]:
    """Raise PostgreSQL's errors as `LedgerError`, and a broken connection as `Lost`."""
    where = address.shown
    try:
        yield
    except (errors.LockNotAvailable, errors.QueryCanceled) as error:
        raise LedgerError(
            f"{where} has been busy for {wait:g} s: another process holds it; nothing was"
            " written, try again"
        ) from error
    except (errors.InvalidSchemaName, errors.UndefinedTable, errors.UndefinedFunction) as error:
        raise LedgerError(
            f"there is no ledger at {where} in the schema {address.schema}: make one with"
            " `neyman ledger create`, or name another schema if this one holds something else"
        ) from error
    except errors.InsufficientPrivilege as error:
        raise LedgerError(
            f"{where} does not permit it ({_primary(error)}); nothing was written: ask the"
            " ledger's owner for the rights in docs/howto/operate-ledger.md, or use their role"
        ) from error
    except (errors.DuplicatePreparedStatement, errors.InvalidSqlStatementName) as error:
        raise LedgerError(
            f"{where} forgets a session between transactions, as a pooler in transaction mode"
            " does: connect to the server itself or to a pooler in session mode; nothing was"
            " written"
        ) from error
    except errors.ReadOnlySqlTransaction as error:
        raise LedgerError(f"{where} is read-only: name the primary server") from error
    except (errors.DataCorrupted, errors.IndexCorrupted) as error:
        raise LedgerError(
            f"{where} is damaged ({_primary(error)}): restore it from a backup; an empty ledger in"
            " its place would forget what is spent"
        ) from error
    except (errors.IntegrityError, errors.DataError, errors.RaiseException) as error:
        raise LedgerError(f"{where} refuses the change: {_primary(error)}") from error
    except psycopg.OperationalError as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("08", "57"):
            raise Lost(address.hide(str(error))) from None
        raise _write_error(where, error) from error
    except psycopg.Error as error:
        if re.match("could not (extend|write|fsync)", _primary(error)):
            raise _write_error(where, error) from error
        if error.sqlstate == "NY001":
            raise other_format(where, _primary(error), VERSION) from error
        if error.sqlstate == "NY002":
            raise LedgerError(
                f"{where} runs with fsync or full_page_writes off, and could forget what was spent"
                " when the machine stops: turn both on in postgresql.conf; nothing was written"
            ) from error
        raise LedgerError(
            f"{where} answers {type(error).__name__}: {address.hide(_primary(error))}; nothing was"
            " written"
        ) from error


def _write_error(where: str, error: psycopg.Error) -> LedgerError:
    return LedgerError(
        f"{where} could not do it ({_primary(error)}): look at the server's disk, memory and log;"
        " what it was writing does not count"
    )


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or " ".join(str(error).split())


def sql(query: str) -> LiteralString:
    """Return ``query`` unchanged, with the type `LiteralString` that the driver asks for.

    The caller ensures that it has only constant text and the checked name of a schema.
    """
    return cast("LiteralString", query)
