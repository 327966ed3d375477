"""Translate a SELECT to queries of a plan. The SELECT is parsed, and never executed.

A plan's author could have written the result, so every check of a plan holds. A part that cannot be
translated is refused with its place and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import cast

from neyman.accounting.semantics.digits import many
from neyman.extras import require
from neyman.numerics import check
from neyman.publishing.plan.derived import Derived, column_types, plain_number
from neyman.publishing.plan.document import PlanDocument
from neyman.publishing.plan.field_types import PlanError, is_reserved, suggest
from neyman.publishing.plan.hierarchy import ALL, CROSSED
from neyman.publishing.plan.published_rows import Selection, selection
from neyman.publishing.plan.query_part import VALUE_COLUMNS
from neyman.publishing.plan.row_expression import COLUMN_LIMIT, Node, Type
from neyman.publishing.plan.sections import Section, listed
from neyman.publishing.plan.sql_expression import (
    PERIOD,
    RowReader,
    SqlPiece,
    SqlText,
    number_of,
    reason_against,
)

require("Statements of SQL", "sqlglot")

import sqlglot  # noqa: E402 - a missing extra is named first
import sqlglot.expressions as exp  # noqa: E402
from sqlglot.errors import ParseError, SqlglotError  # noqa: E402

MAX_STATEMENT_LETTERS = 20_000  # the most characters of a statement

_CLAUSES = ("expressions", "from_", "where", "group", "having", "order", "limit", "offset")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ -]{0,63}")
# fmt: off
_MEASURES: Mapping[type[exp.Expr], str] = {
    exp.Count: "count", exp.CountIf: "count", exp.Sum: "sum", exp.Avg: "mean",
    exp.VariancePop: "variance", exp.StddevPop: "standard_deviation",
    exp.Median: "median", exp.Min: "min", exp.Max: "max",
    exp.PercentileCont: "quantiles", exp.Quantile: "quantiles", exp.WithinGroup: "quantiles",
}
# fmt: on
_RANKED = ("median", "min", "max", "quantiles")
_NOTES = {
    "sum": "SUM over no rows is 0 with noise, and NULL in SQL.",
    "min": "MIN publishes the 1% quantile: an exact minimum depends on one row alone.",
    "max": "MAX publishes the 99% quantile: an exact maximum depends on one row alone.",
}
_AFTERWARD = (
    "HAVING, ORDER BY, LIMIT, and OFFSET act on published numbers alone: a plan has none of them, "
    "and publishes every row."
)
_SAMPLE = "divides by n - 1, and a plan by n; write VAR_POP or STDDEV_POP"
_PRIVATE = "is not grouped, and the rows themselves are private; group by it, or aggregate it"
_NO_MEASURE = (
    "is not a measure of a plan; it has COUNT, COUNT_IF, SUM, AVG, VAR_POP, STDDEV_POP, MEDIAN, "
    "QUANTILE_CONT, MIN, and MAX. Compute with published numbers afterward"
)


@dataclass(frozen=True)
class Statement:
    """Represent a SELECT as queries of a plan.

    Args:
        queries: the plan-file sections of the queries, without the budget shares.
        derive: the plan-file sections of the derived columns, by name.
        selection: the selection from the published tables.
        notes: sentences on differences from SQL.
        places: for each query and derived column, by name, its position in the SQL text.
    """

    queries: tuple[Section, ...]
    derive: Mapping[str, Section]
    selection: Selection
    notes: tuple[str, ...]
    places: Mapping[str, str]

    def placed(self, error: PlanError) -> PlanError:
        """Return an error of the plan that also names the positions in the SQL that caused it."""
        problems: list[str] = []
        for problem in error.problems:
            query = re.match(r"query\[(\d+)\]", problem)
            other = re.match(r"derive\.([\w -]+)", problem)
            name = self.queries[int(query[1])]["name"] if query else other[1] if other else ""
            problems.append(f"{self.places[name]}: {problem}" if name in self.places else problem)
        return PlanError(problems)


def translate(
    text: str,
    document: PlanDocument,
    clips: Mapping[str, object] | None = None,
    *,
    delta: object = None,
    folder: Path | None = None,
) -> Statement:
    """Translate a SELECT statement to queries of a plan.

    Args:
        text: the statement.
        document: the plan that declares the columns.
        clips: the clips, by column or alias.
        delta: the delta of each query whose keys are discovered.
        folder: the folder to which the path of a key file is relative.

    Raises:
        PlanError: with the place and the reason for each part that cannot be translated.
    """
    if not isinstance(cast("object", text), str):
        raise PlanError(f"statement = {text!r}: must be the text of a SELECT")
    if not check.is_mapping({} if clips is None else clips):
        raise PlanError(f"clips = {clips!r}: must be a mapping, such as {{'income': (0, 100)}}")
    try:
        return _Translator(SqlText(text), document, folder, clips or {}, delta).statement()
    except RecursionError:
        raise PlanError("the SQL is nested too deep; derive a part in the plan") from None


def _parse(source: SqlText) -> exp.Select:
    """Return the SELECT statement of a text, parsed. Refuse any other text."""
    text = source.text
    if len(text) > MAX_STATEMENT_LETTERS:
        raise PlanError(f"the SQL has {len(text)} characters; the most is {MAX_STATEMENT_LETTERS}")
    try:
        text.encode()
        tokens = sqlglot.tokenize(text, read="duckdb")
        ends = [n for n, token in enumerate(tokens) if token.token_type.name == "SEMICOLON"]
        more = tokens[ends[0] + 1 :] if ends else []
        is_select = bool(tokens) and tokens[0].text.upper() == "SELECT"
        trees = sqlglot.parse(text, read="duckdb") if is_select and not more else []
    except UnicodeEncodeError:
        raise PlanError("the SQL has half of a surrogate pair, which is not text") from None
    except ParseError as error:
        raise PlanError(_no_statement(error)) from None
    except SqlglotError:
        raise PlanError("the SQL has a quote or a comment that does not end") from None
    except (ValueError, TypeError, AttributeError, LookupError):
        raise PlanError("the SQL cannot be parsed") from None
    if not is_select:
        place = source.at(tokens[0].start, tokens[0].end + 1) if tokens else "the SQL is blank"
        raise PlanError(f"{place}: only a SELECT statement is translated, without WITH")
    if more:
        place = source.at(more[0].start, more[0].end + 1)
        raise PlanError(f"{place}: is a second statement; give one SELECT")
    tree = trees[0]
    if tree is None or not isinstance(tree, exp.Select):
        raise source.refuse(tree or exp.Null())
    return tree


def _no_statement(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    reason = re.sub(r" (but got|for|missing) .*", "", str(first.get("description")))
    shown = str(first.get("highlight"))[:60]
    column = max(1, int(first.get("col") or 1) - len(shown) + 1)
    place = f"line {first.get('line') or 1}, column {column}, {shown!r}"
    return f"{place}: is not a SQL statement ({reason})"


class _Translator:
    """Translate one SELECT, part by part."""

    def __init__(
        self,
        source: SqlText,
        document: PlanDocument,
        folder: Path | None,
        clips: Mapping[str, object],
        delta: object,
    ) -> None:
        self.source, self.document, self.clips, self.delta = source, document, clips, delta
        self.tree = tree = _parse(source)
        source.check_arguments(tree, _CLAUSES)
        types = column_types(document, folder)
        self.table, alias = self._from()
        part = document.tables.get(self.table)
        self.id = (part.id if part is not None else None) or document.unit.id
        self.rows = RowReader(source, types, alias)
        self.names = {name.casefold() for name in (*types, *VALUE_COLUMNS, self.id or "")}
        self.derive: dict[str, Section] = {}
        self.queries: dict[exp.Expr, Section] = {}
        self.places: dict[str, str] = {}
        self.notes: list[str] = []
        self.kinds: dict[str, Type] = {}
        self.levels = [list(part.levels) for part in document.hierarchy.values()]
        self.items = [(item.unalias().unnest(), item.alias) for item in tree.expressions]

    def statement(self) -> Statement:
        """Translate each clause, and return the result."""
        where = self._clause("where")
        condition = None if where is None else self.rows.condition(where.this)
        keys = self._keys()
        shared = {"table": self.table, **self._groups(list(keys.values()))}
        columns: list[tuple[str, str, Type | None]] = []
        for tree, alias in self.items:
            key = keys.get(self.rows.read(tree).text) if _is_row(tree) else None
            name = self._query(tree, alias, condition, shared) if key is None else key
            columns.append((alias or name, name, None if key is None else self.kinds[key]))
        if not self.queries:
            raise self.source.refuse(self.tree, "publishes no number; add COUNT(*)")
        names = {tree: section["name"] for tree, section in self.queries.items()}
        level = next(iter(shared["at"]), ALL)
        selected = selection(self.rows, self.tree, columns, keys, names, level)
        if self.delta is not None and shared["delta"] is None:
            raise PlanError(
                f"key_delta (--delta) = {self.delta!r}: no group has keys to discover; leave it out"
            )
        if any(map(self.tree.args.get, ("having", "order", "limit", "offset"))):
            self.notes.append(_AFTERWARD)
        sections, notes = tuple(self.queries.values()), tuple(dict.fromkeys(self.notes))
        return Statement(sections, self.derive, selected, notes, self.places)

    def _clause(self, name: str) -> exp.Expr | None:
        clause = self.tree.args.get(name)
        if clause is not None:
            self.source.check_arguments(clause, ("this", "expressions"))
        return clause

    def _from(self) -> tuple[str, str]:
        """Return the table in FROM, and the name that may stand before its columns."""
        clause = self.tree.args.get("from_")
        table: exp.Expr | None = None if clause is None else clause.this
        known = [self.document.table, *self.document.tables]
        if isinstance(table, exp.Query):
            raise self.source.refuse(table)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            problem = f"needs FROM with a table; {suggest('', known)}"
            raise self.source.refuse(table or self.tree, problem)
        self.source.check_arguments(table, ("this", "alias", "db", "catalog"))
        if table.args.get("alias") is not None:
            self.source.check_arguments(table.args["alias"], ("this",))
        name = ".".join(part.name for part in table.parts)
        if name not in known:
            raise self.source.refuse(table, f"is not a table of the plan; {suggest(name, known)}")
        return name, table.alias_or_name

    # Groups

    def _keys(self) -> dict[str, str]:
        """Return the key column for each row expression in GROUP BY, by the expression's text."""
        group, keys = self._clause("group"), dict[str, str]()
        for spot in [] if group is None else group.expressions:
            tree, alias = self._item(spot.unnest())
            piece = self.rows.read(tree)
            if piece.text in keys:
                raise self.source.refuse(spot, "is twice in GROUP BY")
            name = keys[piece.text] = self._key(tree, piece, alias)
            kind = piece.node.type
            self.kinds[name] = "text" if kind == "date" or self._is_level(name) else kind
        return keys

    def _item(self, tree: exp.Expr) -> tuple[exp.Expr, str]:
        """Return the column of SELECT that ``tree`` means by number or alias, with its alias.

        Return ``tree`` and "" if it means no column of SELECT.
        """
        number = number_of(tree)
        if number is not None and not 1 <= number <= len(self.items):
            raise self.source.refuse(tree, "is not the number of a column of SELECT")
        if number is not None:
            return self.items[number - 1]
        named = isinstance(tree, exp.Column) and tree.name not in self.rows.types
        for item in self.items:
            if item[0] == tree or (named and tree.name == item[1]):
                return item
        return tree, ""

    def _key(self, tree: exp.Expr, piece: SqlPiece, alias: str) -> str:
        if name := _name(piece):
            part = self.document.columns.get(name)
            if part is None or part.keys is not None or part.discover:
                return name
            reason = f"give columns.{name} keys = [...] or discover = true"
            raise self.source.refuse(tree, f"has no public keys, and the data give none; {reason}")
        column = Derived("", "expression", piece.text, piece.node).column
        if column is None:
            reason = "derive the column in the plan, and list its keys"
            reason = PERIOD if piece.node.op == "year" else reason
            raise self.source.refuse(tree, f"has no public keys of its own; {reason}")
        return self._derive_column(tree, alias, {"expression": piece.text})

    def _is_level(self, name: str) -> bool:
        return any(name in levels for levels in self.levels)

    def _groups(self, names: Sequence[str]) -> Section:
        """Return the fields ``by``, ``at``, and ``delta`` of a query with these key columns."""
        by = [name for name in names if not self._is_level(name)]
        lowest: list[str] = []
        for levels in self.levels:
            own = [level for level in levels if level in names]
            if own != levels[: len(own)]:
                reason = f"a level of the hierarchy needs those above it: {', '.join(levels)}"
                raise self.source.refuse(self.tree.args["group"], reason)
            lowest += own[-1:]
        at = [CROSSED.join(lowest)] if lowest else []
        columns = [self.document.columns.get(name) for name in by]
        discovered = any(column is not None and column.discover for column in columns)
        if names:
            text = "the groups are the plan's keys, each with rows or without"
            if discovered:
                text = "the groups are discovered: a key of few units is left out"
            self.notes.append(
                f"GROUP BY {', '.join(names)}: {text}. A row whose key is NULL or not listed takes "
                "no part, or goes to the plan's unknown. SQL has a group for NULL, and none for a "
                "key without rows."
            )
        return {"by": by, "at": at, "delta": self.delta if discovered else None}

    def _derive_column(self, tree: exp.Expr, alias: str, section: Section) -> str:
        """Return the name of the derived column for ``section``. Add it if no equal one exists."""
        declared = {
            name: {
                "expression": part.expression,
                "range": part.range and [plain_number(end) for end in part.range],
            }
            for name, part in self.document.derive.items()
            if name not in self.document.columns and not self._is_level(name)
        }
        for name, known in (*declared.items(), *self.derive.items()):
            if {"range": None, **section} == {"range": None, **known}:
                return name
        name = self._fresh(tree, alias, self.names)
        self.derive[name] = section
        return name

    def _fresh(self, tree: exp.Expr, alias: str, taken: set[str]) -> str:
        """Return a new name for a query or a column, and add it to ``taken``.

        Names that differ only in case count as equal.
        """
        text = alias or tree.sql("duckdb", comments=False).replace("*", "")
        if not _NAME.fullmatch(text) or not alias:
            text = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()[:40] or "column"
        name, number = text, 1
        while name.casefold() in taken or is_reserved(name):
            name, number = f"{text}_{number + 1}", number + 1
        taken.add(name.casefold())
        self.places[name] = self.source.place(tree)
        return name

    # Aggregates

    def _query(self, tree: exp.Expr, alias: str, where: SqlPiece | None, shared: Section) -> str:
        """Return the name of the query of an aggregate. Equal aggregates share one query."""
        if tree in self.queries:
            return self.queries[tree]["name"]
        conditions = [] if where is None else [where]
        inner = tree
        if isinstance(tree, exp.Filter):
            conditions.append(self.rows.condition(tree.expression.this))
            inner = tree.this
        fields = self._aggregate(inner, alias, conditions)
        if len(conditions) > 1:
            text = " and ".join(condition.part for condition in conditions)
            fields["where"] = self.rows.typed(tree, text).text
        elif conditions:
            fields["where"] = conditions[0].text
        names = [*self.kinds, *(section["name"] for section in self.queries.values())]
        taken = {known.casefold() for known in names}
        name = self._fresh(tree, alias, taken)
        section = {"name": name, **fields, **shared}
        if self.table == self.document.table:
            del section["table"]
        self.queries[tree] = {field: value for field, value in section.items() if value}
        return name

    def _aggregate(self, tree: exp.Expr, alias: str, where: list[SqlPiece]) -> Section:
        """Return the fields of an aggregate's query. Add its own conditions to ``where``."""
        measure = _MEASURES.get(type(tree))
        if measure is None:
            raise self.source.refuse(tree, _no_measure(tree))
        self.source.check_arguments(tree, ("this", "expression", "quantile", "big_int"))
        if measure == "count":
            return self._count(tree, where)
        if measure in _NOTES:
            self.notes.append(_NOTES[measure])
        if measure != "quantiles":
            bounded = self._bounded_column(tree.this, alias, measure in _RANKED)
            return {"measure": measure, **bounded}
        value, level = tree.this, tree.args.get("quantile") or tree.expression
        if isinstance(tree, exp.WithinGroup):
            level, order = tree.this.this, tree.expression
            ordered = order.expressions if isinstance(order, exp.Order) else []
            if not isinstance(tree.this, exp.PercentileCont) or len(ordered) != 1:
                raise self.source.refuse(tree, _NO_MEASURE)
            self.source.check_arguments(ordered[0], ("this", "nulls_first"))
            value = ordered[0].this
        if not isinstance(level, exp.Literal) or level.is_string:
            raise self.source.refuse(tree, "takes one quantile, a number such as 0.25")
        bounded = self._bounded_column(value, alias, True)
        return {"measure": measure, "quantiles": [level.this], **bounded}

    def _count(self, tree: exp.Expr, where: list[SqlPiece]) -> Section:
        part, one = tree.this, tree.this
        if isinstance(part, exp.Distinct):
            self.source.check_arguments(part, ("expressions",))
            one = part.expressions[0] if len(part.expressions) == 1 else part
            if not isinstance(one, exp.Column):
                raise self.source.refuse(part, "COUNT(DISTINCT x) takes one column")
        if part is None:
            raise self.source.refuse(tree, "COUNT takes * or a column")
        parts = [name.name for name in one.parts] if isinstance(one, exp.Column) else []
        is_id = parts in ([self.id], [self.rows.table, self.id])
        if one is not part:
            return {"measure": "units"} if is_id else self._distinct(one)
        unit, part_of = self.document.unit, self.document.tables.get(self.table)
        most = many(unit.rows if part_of is None else part_of.rows, "row")
        bound = f"at most {most} per {unit.protects}, as the plan says"
        if unit.search is not None:
            bound = f"as many per {unit.protects} as a noisy histogram allows"
        self.notes.append(f"COUNT counts rows, {bound}.")
        if isinstance(tree, exp.CountIf):
            where.append(self.rows.condition(part))
        elif not isinstance(part, exp.Star) and not is_id:
            piece = self.rows.read(part)
            if piece.node.op != "literal":
                where.append(self.rows.typed(part, f"{piece.part} is not None"))
        return {"measure": "count"}

    def _distinct(self, tree: exp.Expr) -> Section:
        name = _name(self.rows.read(tree))
        part = self.document.columns.get(name)
        if part is not None and part.keys is None and not part.discover:
            reason = f"has no keys to count; give columns.{name} keys or discover = true"
            raise self.source.refuse(tree, reason)
        return {"measure": "distinct", "column": name}

    def _bounded_column(self, tree: exp.Expr, alias: str, ranked: bool) -> Section:
        """Return the fields ``column`` and ``clip`` of an aggregate, and ``method`` if ranked."""
        with self.rows.clipped(*self._clips_of(tree)):
            piece = self.rows.read(tree)
        if piece.node.type != "number":
            raise self.source.refuse(tree, f"is of type {piece.node.type}, and must be a number")
        name = _name(piece)
        column, derived = self.document.columns.get(name), self.document.derive.get(name)
        declared = column is not None and (column.integer or column.decimals is not None)
        if column is not None and declared and column.unknown not in (None, "drop"):
            self.notes.append(f"A missing {name} counts as a number that the plan declares.")
        ends = listed(self.clips.get(alias, self.clips.get(name, [])))
        ranged = None if derived is None else derived.range
        summed = declared or ranged is not None
        lacking = self._clipless(tree)
        ends = ends or [*map(plain_number, ranged or ())]
        if not ends and not lacking:
            ends = _proved_range(piece.node)
        if not ends:
            how = _how_to_clip(lacking or [name or alias or "ALIAS"])
            raise self.source.refuse(tree, f"needs a clip, which bounds what a row adds: {how}")
        pair = cast("list[object]", ends) if isinstance(ends, list) else []
        if summed:
            return {"column": name, "clip": ends}
        if len(pair) < 2:
            reason = "is not a column to sum, and a derived one has a clip of two numbers"
            raise self.source.refuse(tree, f"{reason}; declare a column to sum")
        name = self._derive_column(tree, alias, {"expression": piece.text, "range": pair})
        return {"column": name, "clip": ends}

    def _columns_added(self, tree: exp.Expr) -> list[str]:
        """Return the columns of numbers whose values count in an expression."""
        names = [
            one.name
            for one in tree.find_all(exp.Column)
            if one.find_ancestor(exp.Predicate, exp.Mod) is None and one.name in self.rows.types
        ]
        return [name for name in dict.fromkeys(names) if self.rows.types[name].type == "number"]

    def _clip_of(self, name: str) -> object:
        """Return the clip of a column: the given one, or the range of a derived column."""
        derived = self.document.derive.get(name)
        own = None if derived is None else derived.range
        return listed(self.clips.get(name, own))

    def _clipless(self, tree: exp.Expr) -> list[str]:
        return [name for name in self._columns_added(tree) if self._clip_of(name) is None]

    def _clips_of(self, tree: exp.Expr) -> tuple[dict[str, tuple[str, str]], str]:
        """Return the clips of the columns in an expression, and how to give those that lack one.

        A column alone is clipped by its query.
        """
        if isinstance(tree.unnest(), exp.Column):
            return {}, ""
        clips: dict[str, tuple[str, str]] = {}
        for name in self._columns_added(tree):
            ends = self._clip_of(name)
            if not isinstance(ends, list):  # "discover", or none
                continue
            try:
                low, high = (check.exact("an end", end) for end in cast("list[object]", ends))
            except (TypeError, ValueError):
                raise PlanError(
                    f"clips: {name!r} = {self.clips[name]!r}: must be two numbers (low, high)"
                ) from None
            clips[name] = str(plain_number(low)), str(plain_number(high))
        lacking = self._clipless(tree)
        return clips, _how_to_clip(lacking) if lacking else ""


def _proved_range(node: Node) -> list[object]:
    """Return the range of an expression of clipped columns; none if it is as wide as a column's."""
    if not -COLUMN_LIMIT < node.low < node.high < COLUMN_LIMIT:
        return []
    return [plain_number(Fraction(end, 10**node.scale)) for end in (node.low, node.high)]


def _how_to_clip(names: Sequence[str]) -> str:
    """Return the advice to clip these columns, or an alias."""
    pairs = ", ".join(f"{name!r}: (low, high)" for name in names)
    options = " ".join(f"--clip {name}=LOW,HIGH" for name in names)
    return f"give clips={{{pairs}}}, or {options}"


def _is_row(tree: exp.Expr) -> bool:
    """Return True if a part of SQL has no aggregate or subquery."""
    kinds = (exp.AggFunc, exp.Filter, exp.WithinGroup, exp.Window, exp.Star, exp.Anonymous)
    return tree.find(*kinds, exp.Query) is None


def _no_measure(tree: exp.Expr) -> str:
    """Return the reason why a column of SELECT is not an aggregate that a plan has."""
    if isinstance(tree, (exp.Variance, exp.Stddev, exp.StddevSamp)):
        return _SAMPLE
    if _is_row(tree):
        return _PRIVATE
    unknown = isinstance(tree, exp.Anonymous) or not isinstance(tree, (exp.Binary, exp.Func))
    return reason_against(tree) if unknown else _NO_MEASURE


def _name(piece: SqlPiece) -> str:
    """Return the column's name if an expression is a column alone, else ""."""
    return piece.node.value if piece.node.op == "column" else ""
