"""Apply HAVING, ORDER BY, and LIMIT to published numbers. This reveals nothing more."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from neyman.extras import require
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.row_expression import ColumnType, Node, Type, operations
from neyman.publishing.plan.sql_expression import RowReader, number_of

require("Statements of SQL", "sqlglot")

import sqlglot.expressions as exp  # noqa: E402 - a missing extra is named first

MAX_DECIMALS = 3  # the most decimals of a number that HAVING compares with
Row: TypeAlias = Mapping[str, Any]
"""A published row: a key or a number by the name of its column."""

# fmt: off
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}
# fmt: on
_OPERATIONS = {"literal", "column", "compare", "member", "missing", "and", "or", "not"}


@dataclass(frozen=True)
class Selection:
    """Describe which rows and columns a statement selects from the tables of its queries.

    Args:
        columns: for each column its name, the query or the key that it shows, and the key's type
            (None for a query).
        level: the level of the tables.
        having: the condition on a row.
        order: the columns to sort by, each with True for descending order, and True if NULL comes
            first.
        first, most: the number of rows to skip, and the largest number of rows to return.
    """

    columns: tuple[tuple[str, str, Type | None], ...]
    level: str
    having: Node | None
    order: tuple[tuple[str, bool, bool], ...]
    first: int
    most: int | None

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """Return the selected rows, in order."""
        taken = [row for row in rows if self.having is None or _value(self.having, row) is True]
        for name, falls, nulls_first in reversed(self.order):
            known = [row for row in taken if row[name] is not None]
            known.sort(key=lambda row: row[name], reverse=falls)
            missing = [row for row in taken if row[name] is None]
            taken = [*missing, *known] if nulls_first else [*known, *missing]
        return taken[self.first :][: self.most]


def _value(node: Node, row: Row) -> object:
    """Return the value of a condition on a row: true, false, or None if unknown."""
    if node.op == "literal":
        return node.value
    if node.op == "column":
        value = row[node.value]
        return value * 10**node.scale if node.scale and value is not None else value
    values = [_value(part, row) for part in node.parts]
    if node.op in ("and", "or"):
        decisive = node.op == "or"
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    if node.op == "missing":
        return values[0] is None
    if None in values:
        return None
    if node.op == "not":
        return not values[0]
    return values[0] in node.value if node.op == "member" else _SIGNS[node.value](*values)


class _PublishedRow:
    """Find the published column that a name in HAVING or ORDER BY means."""

    def __init__(
        self,
        reader: RowReader,
        tree: exp.Select,
        columns: Sequence[tuple[str, str, Type | None]],
        keys: Mapping[str, str],
        queries: Mapping[exp.Expr, str],
    ) -> None:
        self.reader, self.source, self.keys, self.queries = reader, reader.source, keys, queries
        self.types: dict[str, ColumnType] = {}
        for number, (label, _, kind) in enumerate(columns):
            if label in self.types:
                raise self.source.refuse(tree.expressions[number], f"is a second column {label!r}")
            numeric = kind in ("number", None)
            self.types[label] = ColumnType(kind or "number", MAX_DECIMALS if numeric else 0)
        self.key_labels = {name: label for label, name, kind in reversed(columns) if kind}
        self.query_labels = {name: label for label, name, kind in reversed(columns) if not kind}
        group: exp.Expr | None = tree.args.get("group")
        grouped: list[exp.Expr] = [item.unalias() for item in tree.expressions]
        grouped += [] if group is None else group.expressions
        self.forms = {type(form.unnest()) for form in grouped}

    def read(self, part: exp.Expr, *, alias_first: bool) -> Node:
        """Translate a part of HAVING or ORDER BY to an expression of columns of SELECT.

        If ``alias_first``, read a name as a column of SELECT before a grouped column.
        """
        selected = part.transform(self._shown, alias_first)
        selected.parent = part.parent  # the place of a form without one
        for one in selected.find_all(exp.Literal):
            if not one.is_string and self.reader.read(one).node.scale > MAX_DECIMALS:
                raise self.source.refuse(one, f"must have at most {MAX_DECIMALS} decimals")
        node = RowReader(self.source, self.types, self.reader.table).read(selected).node
        if not operations(node) <= _OPERATIONS:
            reason = f"is not a comparison with a value of {MAX_DECIMALS} decimals"
            raise self.source.refuse(part, reason)
        return node

    def _shown(self, part: exp.Expr, alias_first: bool) -> exp.Expr:
        """Return the column of SELECT that shows an aggregate or a key, else the part itself."""
        query, key = self.queries.get(part), None
        if query is None and type(part) in self.forms:
            aliased = any(self._is_alias(one, alias_first) for one in part.walk())
            key = None if aliased else self._key_of(part)
        if query is None and key is None:
            if isinstance(part, exp.Column) and part.args.get("table") is not None:
                self.reader.read(part)
                raise self.source.refuse(part, "is not grouped; name a column of SELECT")
            return part
        label = self.key_labels.get(key or "") if query is None else self.query_labels[query]
        if label is None:
            raise self.source.refuse(part, "is grouped, and not a column of SELECT; add it there")
        column = exp.column(label, quoted=True)
        for one in part.walk():
            column.this.meta.update(one.meta)  # the place
        return column

    def _is_alias(self, part: exp.Expr, alias_first: bool) -> bool:
        """Return True if a name means a column of SELECT, not a grouped column of the same name.

        ``alias_first``: if both exist, the name means the column of SELECT.
        """
        plain = isinstance(part, exp.Column) and part.args.get("table") is None
        if not plain or part.name not in self.types:
            return False
        key = self._key_of(part)
        return key is None or (alias_first and self.key_labels.get(key) != part.name)

    def _key_of(self, part: exp.Expr) -> str | None:
        """Return the name of the key column that equals this part; None if no column does."""
        try:
            return self.keys.get(self.reader.read(part).text)
        except PlanError:
            return None


def selection(
    reader: RowReader,
    tree: exp.Select,
    columns: Sequence[tuple[str, str, Type | None]],
    keys: Mapping[str, str],
    queries: Mapping[exp.Expr, str],
    level: str,
) -> Selection:
    """Read the clauses that act on published rows: HAVING, ORDER BY, LIMIT, and OFFSET.

    HAVING reads a name first as a grouped column, then as a column of SELECT. ORDER BY reads a
    column of SELECT first, unless a table stands before the name.

    Args:
        reader: the reader of the statement's row expressions.
        tree: the statement.
        columns, level: as for `Selection`.
        keys: the key column of each row expression in GROUP BY, by its text.
        queries: the query of each aggregate.
    """
    source, row = reader.source, _PublishedRow(reader, tree, columns, keys, queries)

    def ordered(part: exp.Expr) -> tuple[str, bool, bool]:
        source.check_arguments(part, ("this", "desc", "nulls_first"))
        number = number_of(part.this) or 0
        name = columns[number - 1][0] if 0 < number <= len(columns) else None
        if isinstance(part.this, exp.Var):
            raise source.refuse(part, "ORDER BY ALL is not in the language; name the columns")
        node = None if name else row.read(part.this, alias_first=True)
        if node is not None and node.op != "column":
            raise source.refuse(part, "is not a column of SELECT, nor the number of one")
        falls, nulls_first = bool(part.args.get("desc")), bool(part.args.get("nulls_first"))
        return name or (node.value if node else ""), falls, nulls_first

    def size(clause: exp.Expr | None) -> int | None:
        if clause is None:
            return None
        source.check_arguments(clause, ("expression",))
        number = number_of(clause.expression)
        if number is None:
            raise source.refuse(clause, "takes a whole number")
        return number

    having, order = tree.args.get("having"), tree.args.get("order")
    condition = None if having is None else row.read(having.this, alias_first=False)
    if condition is not None and condition.type != "boolean":
        raise source.refuse(tree.args["having"], "is not a condition, such as COUNT(*) > 100")
    return Selection(
        tuple(columns),
        level,
        condition,
        () if order is None else tuple(ordered(part) for part in order.expressions),
        size(tree.args.get("offset")) or 0,
        size(tree.args.get("limit")),
    )
