"""Define a table of a database that an engine can open."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import ibis

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


def on_one_connection(sources: Iterable[object]) -> None:
    """Let the tables with one server and login share a connection, so that a run sees one state."""
    earlier: list[DatabaseTable] = []
    for source in sources:
        if isinstance(source, DatabaseTable):
            for other in earlier:
                source.share(other)
            earlier.append(source)
