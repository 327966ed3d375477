"""Read the further private tables of a plan, which have rows of the same units as its main table.

The data of a unit are its rows in all tables. Each table limits a unit's rows by itself, and each
query reads one table. A further table can also add columns to the rows of the main table. Then it
has at most one row per unit, so each row of the main table gets at most one value per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neyman.publishing.plan.derived import Derived, Rows
from neyman.publishing.plan.document import PlanDocument
from neyman.publishing.plan.field_types import show, suggest
from neyman.publishing.plan.hierarchy import Hierarchy, parts_of
from neyman.publishing.plan.plan_fields import Duplicates, TablePart
from neyman.publishing.plan.query import Query


@dataclass(frozen=True)
class PrivateTable:
    """Represent a further private table.

    Args:
        rows: the largest number of rows of one unit that count in it, 1 to 1000.
        join: the table's columns that are joined to the rows of the plan's table.
        duplicates: the row to use for a unit with several rows: "drop" for none, or "least"; None
            if several rows may count.
    """

    name: str
    id: str
    rows: int = 1
    join: tuple[str, ...] = ()
    duplicates: Duplicates | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON types, for the canonical plan."""
        content: dict[str, Any] = {"id": self.id, "rows": self.rows}
        if self.join:
            content["join"] = list(self.join)
        if self.duplicates is not None:
            content["duplicates"] = self.duplicates
        return content


def read_tables(document: PlanDocument, problems: list[str]) -> tuple[PrivateTable, ...]:
    """Return the further tables of a plan. Add their problems to ``problems``."""
    problems += _problems(document)
    tables: list[PrivateTable] = []
    for name, part in document.tables.items():
        duplicates = part.duplicates or ("drop" if part.join else None)
        own = part.id or document.unit.id or ""
        tables.append(PrivateTable(name, own, part.rows, part.join, duplicates))
    return tuple(tables)


def _problems(document: PlanDocument) -> Iterator[str]:
    known = [document.table, *document.tables]
    if document.tables and document.unit.id is None:
        yield (
            "unit.id is missing; a plan of several tables needs the column that names the unit in "
            f"{document.table!r}"
        )
    for index, query in enumerate(document.query):
        if query.table is not None and query.table not in known:
            yield (
                f"query[{index}].table (of query {query.name!r}) = {query.table!r}: must be a table"
                f" of the plan; {suggest(query.table, known)}"
            )
    queried = {query.table or document.table for query in document.query}
    if document.table not in queried:
        yield (
            f"table = {document.table!r}: no query reads it; name a table there that a query reads"
        )
    folded: dict[str, str] = {document.table.casefold(): document.table}
    joined: set[str] = set()
    for name, part in document.tables.items():
        where = f"tables.{name}"
        if not name.strip():
            yield f"{where}: must have a name that is not blank"
        other = folded.setdefault(name.casefold(), name)
        if other != name or name == document.table:
            yield f"{where}: {other!r} is the name of another table of the plan; rename one"
        if part.rows > 1 and (part.join or part.duplicates is not None):
            field = "join" if part.join else "duplicates"
            yield (
                f"{where}.rows = {part.rows}: with {field} the table has one row per unit; leave "
                f"rows out, or {field}"
            )
        if not part.join and name not in queried:
            yield f"{where}: no query reads it, and no column is joined; leave it out, or use it"
        yield from _column_problems(where, part, document, joined)


def _column_problems(
    where: str, part: TablePart, document: PlanDocument, joined: set[str]
) -> Iterator[str]:
    """Yield an error for each column name that a table cannot have.

    Add the columns that the table joins to ``joined``.
    """
    calculated = {*document.derive, *document.lookup}
    if part.id in calculated:
        yield f"{where}.id = {part.id!r}: is a derived column; name a column of the data"
    for position, column in enumerate(part.join):
        spot = f"{where}.join[{position}] = {show(column)}"
        if column in calculated:
            yield f"{spot}: is a derived column; join the columns that it is computed from"
        elif column == document.unit.id:
            yield f"{spot}: is unit.id, which the plan's table has; leave it out"
        elif column in joined:
            yield f"{spot}: is joined twice; rename it in one of the tables, or leave it out"
        joined.add(column)


def read_by_queries(
    rows: Rows, queries: Iterable[Query], where: str | None, hierarchies: Sequence[Hierarchy]
) -> Rows:
    """Return the derived columns and filters that these queries need, ``where`` included."""
    queries = tuple(queries)
    texts = {query.where for query in queries} | {where}
    used = set[str]().union(*map(rows.read_by, texts))
    for query in queries:
        used |= {*query.by, *query.columns}
        for level in query.at:
            used.update(*(one.levels for one, _ in parts_of(hierarchies, level)))
    own: list[Derived] = []
    for one in reversed(rows.derived):  # each column comes after its sources
        if one.name in used:
            own.insert(0, one)
            used |= one.sources
    filters = [(text, node) for text, node in rows.filters if text in texts]
    sources = {name for text, _ in filters for name in rows.read_by(text)}
    sources = sources.union(*(one.sources for one in own))
    return replace(
        rows,
        derived=tuple(own),
        where=where,
        filters=tuple(filters),
        readings=tuple(reading for reading in rows.readings if reading[0] in sources),
    )
