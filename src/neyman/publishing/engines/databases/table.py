"""What a table in a database is to the engines: a server's tables are counted where they lie."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import ibis

from neyman.publishing.engines.csv_reader import DataError


class LostConnection(DataError):
    """The database went away while it worked. The message holds no value of the data."""


class DatabaseTable(ABC):
    """A table or a query on one connection, which is opened when it is first asked for."""

    name = ""  # the table of a server with its schema, once it has been opened; empty for any other

    def share(self, other: DatabaseTable) -> None:  # a file has no connection to share
        """Use the connection of another table, if it is on the same server with the same login."""
        return

    @abstractmethod
    def open(self, columns: Sequence[str] | None, *, rows: bool, memory: str | None) -> ibis.Table:
        """Return the table on its connection; nothing is counted yet.

        Args:
            columns: the columns that are needed; None for all.
            rows: False for a table of the same form without rows.
            memory: the most memory of an engine of ours, such as "4GB".
        """


def on_one_connection(sources: Iterable[object]) -> None:
    """Give tables of one server one connection, so that a run sees one state of all of them."""
    earlier: list[DatabaseTable] = []
    for source in sources:
        if isinstance(source, DatabaseTable):
            for other in earlier:
                source.share(other)
            earlier.append(source)
