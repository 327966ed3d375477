"""Define a table of a database that an engine can open, and what servers have in common."""

# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import ibis
import ibis.expr.operations as ops
import pyarrow as pa
from ibis.formats.pyarrow import PyArrowSchema

from neyman.publishing.engines.csv_reader import DataError


class LostConnection(DataError):
    """Report that the database connection was lost. The message holds no value of the data."""


class DatabaseTable(ABC):
    """Represent a table or a query of a database, on a connection that opens at first use."""

    name = ""  # the table of a server with its schema, once it has been opened; empty for any other

    def share(self, other: DatabaseTable) -> None:  # a file has no connection to share
        """Use the connection of another table, if its server and login are the same."""
        return

    @abstractmethod
    def open(self, columns: Sequence[str] | None, *, rows: bool, memory: str | None) -> ibis.Table:
        """Return the table on its connection. Nothing is counted yet.

        Args:
            columns: the needed columns; None for all.
            rows: False for a table of the same form without rows.
            memory: the largest memory of an engine that Neyman opens, such as "4GB".
        """


class Server:
    """Extend an Ibis connection to a server, for the queries of one transaction."""

    _fence: ClassVar[str]  # ends a query, so that the server does not merge it into another
    asked: Callable[..., list[tuple[Any, ...]]]  # the rows of a query
    compile: Any  # Ibis's method

    def fetched(self, rows: Any) -> pa.Table:
        """Compute rows, and return them as an Arrow table."""
        schema = PyArrowSchema.from_ibis(rows.schema())
        values = list(zip(*self.asked(self.compile(rows)), strict=True)) or [()] * len(schema)
        return pa.table(
            [_array(column, field.type) for column, field in zip(values, schema, strict=True)],
            schema=schema,
        )

    def fenced(self, rows: Any) -> Any:
        """Return the same rows. The server computes their expressions once."""
        return self.table_of(f"{self.compile(rows)} {self._fence}", rows.schema())

    def table_of(self, query: str, schema: Any) -> Any:
        """Return the rows of a query as an Ibis table."""
        return ops.SQLQueryResult(query, schema, self).to_expr()


class ServerTable(DatabaseTable):
    """Represent a table on a server. Errors show its address ``shown``, without a password."""

    _connect: ClassVar[Callable[[str, dict[str, Any]], Any]]

    def __init__(self, shown: str, parameters: dict[str, Any]) -> None:
        self.shown, self._parameters = shown, parameters
        self._open: list[Any] = []  # the connection, if it is open

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    def share(self, other: DatabaseTable) -> None:
        if isinstance(other, type(self)) and other._parameters == self._parameters:
            self._open = other._open

    def server(self, memory: str | None) -> Any:
        """Return the open connection, or a new one. Raise DataError for a memory limit."""
        if memory is not None:
            raise DataError(
                f"memory = {memory!r}: is for an engine of this machine; leave it out for a server"
            )
        if not self._open or self._open[0].closed:
            self._open[:] = [type(self)._connect(self.shown, self._parameters)]
        return self._open[0]


def _array(values: Sequence[Any], kind: Any) -> pa.Array:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        # A sum is returned as a decimal, and a boolean of MariaDB as a number.
        plain = bool if pa.types.is_boolean(kind) else int
        return pa.array([None if value is None else plain(value) for value in values], kind)
    if pa.types.is_decimal(kind):
        return pa.array([_fitting(value, kind) for value in values], kind)
    return pa.array(values, kind)


def _fitting(value: Any, kind: Any) -> Any:
    """Return a decimal, or one beyond every clip and key if it does not fit the type ``kind``."""
    most = 10 ** (kind.precision - kind.scale)
    if value is None or (value.is_finite() and abs(value) < most):
        return value
    return (Decimal(most - 1) + (Decimal("0.5") if kind.scale else 0)).copy_sign(value)


def on_one_connection(sources: Iterable[object]) -> None:
    """Let the tables with one server and login share a connection, so that a run sees one state."""
    earlier: list[DatabaseTable] = []
    for source in sources:
        if isinstance(source, DatabaseTable):
            for other in earlier:
                source.share(other)
            earlier.append(source)
