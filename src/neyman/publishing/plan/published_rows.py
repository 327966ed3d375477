"""What a SELECT makes of published numbers, which reveals nothing more: HAVING, ORDER BY, LIMIT."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from neyman.extras import require
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
    """What a statement selects from the tables of its queries.

    Args:
        columns: the name of each column, the query or the key that it shows, and the key's type.
        level: the level of the tables.
        having: the condition on a row.
        order: the columns that rows are sorted by, whether they fall, and whether NULL is first.
        first, most: how many rows are left out, and how many are taken then.
    """

    columns: tuple[tuple[str, str, Type | None], ...]
    level: str
    having: Node | None
    order: tuple[tuple[str, bool, bool], ...]
    first: int
    most: int | None

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows that are taken, in order."""
        taken = [row for row in rows if self.having is None or _value(self.having, row) is True]
        for name, falls, nulls_first in reversed(self.order):
            known = [row for row in taken if row[name] is not None]
            known.sort(key=lambda row: row[name], reverse=falls)
            missing = [row for row in taken if row[name] is None]
            taken = [*missing, *known] if nulls_first else [*known, *missing]
        return taken[self.first :][: self.most]


def _value(node: Node, row: Row) -> object:
    """Return the value of a condition on a row, in a logic of three values."""
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


def selection(
    reader: RowReader,
    tree: exp.Select,
    columns: Sequence[tuple[str, str, Type | None]],
    queries: Mapping[exp.Expr, str],
    level: str,
) -> Selection:
    """Read the clauses that act on published rows; ``queries`` names those of the aggregates."""
    source, labels = reader.source, {name: label for label, name, _ in reversed(columns)}
    types: dict[str, ColumnType] = {}
    for number, (label, _, kind) in enumerate(columns):
        if label in types:
            raise source.refuse(tree.expressions[number], f"is a second column {label!r}")
        numeric = kind in ("number", None)
        types[label] = ColumnType(kind or "number", MAX_DECIMALS if numeric else 0)

    def published(part: exp.Expr) -> exp.Expr:
        """Return an aggregate or a key as the column of SELECT that shows it."""
        key = part.name if isinstance(part, exp.Column) and part.name not in types else None
        name = queries.get(part, key)
        if name not in labels:
            return part
        column = exp.column(labels[name], quoted=True)
        for one in part.walk():
            column.this.meta.update(one.meta)  # the place
        return column

    def read(part: exp.Expr) -> Node:
        node = RowReader(source, types, reader.table).read(part.transform(published)).node
        if not operations(node) <= _OPERATIONS:
            raise source.refuse(part, f"is no comparison with a value of {MAX_DECIMALS} decimals")
        return node

    def ordered(part: exp.Expr) -> tuple[str, bool, bool]:
        source.check_arguments(part, ("this", "desc", "nulls_first"))
        number = number_of(part.this) or 0
        name = columns[number - 1][0] if 0 < number <= len(columns) else None
        node = None if name else read(part.this)
        if node is not None and node.op != "column":
            raise source.refuse(part, "is no column of SELECT, nor the number of one")
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
    condition = None if having is None else read(having.this)
    if condition is not None and condition.type != "boolean":
        raise source.refuse(tree.args["having"], "is no condition, such as COUNT(*) > 100")
    return Selection(
        tuple(columns),
        level,
        condition,
        () if order is None else tuple(ordered(part) for part in order.expressions),
        size(tree.args.get("offset")) or 0,
        size(tree.args.get("limit")),
    )
