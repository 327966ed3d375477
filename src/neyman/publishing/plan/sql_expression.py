"""Translate conditions and values of SQL to row expressions. Parse the text, and never run it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from neyman.extras import require
from neyman.numerics import check
from neyman.publishing.plan.field_types import PlanError, suggest
from neyman.publishing.plan.row_expression import (
    CLIP_FIRST,
    ColumnTypes,
    ExpressionError,
    Node,
    read,
)

require("Statements of SQL", "sqlglot")

import sqlglot.expressions as exp  # noqa: E402 - a missing extra is named first

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MAX_LETTERS_SHOWN = 60  # characters of the statement in an error

# fmt: off
_TEMPLATES: Mapping[type[exp.Expr], str] = {
    exp.EQ: "{} == {}", exp.NEQ: "{} != {}", exp.LT: "{} < {}", exp.LTE: "{} <= {}",
    exp.GT: "{} > {}", exp.GTE: "{} >= {}", exp.Between: "{1} <= {0} <= {2}", exp.Not: "not {}",
    exp.Add: "{} + {}", exp.Sub: "{} - {}", exp.Mul: "{} * {}", exp.Neg: "-{}",
    exp.Abs: "{0} if {0} >= 0 else -{0}",
    exp.StartsWith: "starts({}, {})", exp.Lower: "lower({})", exp.Upper: "upper({})",
    exp.Year: "year({})", exp.Quarter: "quarter({})", exp.Month: "month({})",
    exp.Day: "day({})", exp.DayOfMonth: "day({})", exp.DayOfWeekIso: "weekday({})",
    exp.Hour: "hour({})",
}
"""The row expression for each form of SQL. Operands replace the braces."""

_ARGUMENTS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Between: ("this", "low", "high"), exp.Column: ("this", "table"), exp.Cast: ("this", "to"),
    exp.Literal: ("this", "is_string"), exp.In: ("this", "expressions"),
    exp.Case: ("ifs", "default"), exp.If: ("this", "true", "false"),
    exp.Coalesce: ("this", "expressions", "is_nvl", "is_null"),
}
# fmt: on
"""The arguments of a form beside two operands. Any other argument is refused."""

_PARTS = {
    "ISODOW": "weekday",
    **{name.upper(): name for name in ("year", "quarter", "month", "day", "hour")},
}

_CHANGING = "changes from run to run; write the date or the number itself"
_CHANGING_NAMES = {"now", "random", "rand", "getdate", "sysdate", "gen_random_uuid"}
_PATTERN = "patterns are not in the language of a plan; write STARTS_WITH(code, 'J'), =, or IN"
_CAST = "a cast can fail on a row; declare the column's type in the plan"
PERIOD = (
    "months, quarters, and years are texts of a plan: derive a column with the expression "
    "period(day, 'month'), list its keys, such as { from = 2024-01-01, to = 2024-12-31, step = "
    "'month' }, and name it here"
)
_BLANK = "is blank, which means missing; write IS NULL for = '', and IS NOT NULL for <> ''"
_IN_SQL = {
    CLIP_FIRST: "derive a clipped column in the plan",
    "None has no type here; write x is None, or x if c else None": "NULL has no type here; write "
    "x IS NULL, or CASE WHEN c THEN x END",
    "write ==, != or in": "write =, <>, or IN",
    "date('2024-12-31')": "DATE '2024-12-31'",
}
"""Words of errors about row expressions, and those of SQL in their place."""
_TWICE = "would read private rows twice; write one SELECT from one table"
_VALID = (
    "is not in the language of a plan; it has columns, numbers, texts, DATE '2024-12-31', =, <>, "
    "<, <=, >, >=, IN, BETWEEN, IS NULL, AND, OR, NOT, +, -, *, //, %, CASE, COALESCE, NULLIF, ABS,"
    " LOWER, UPPER, STARTS_WITH, YEAR, QUARTER, MONTH, DAY, ISODOW, HOUR, EXTRACT"
)
_REASONS: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.Rand, exp.Uuid), _CHANGING),
    ((exp.Like, exp.ILike, exp.SimilarTo, exp.RegexpLike, exp.Escape, exp.Glob), _PATTERN),
    ((exp.Cast,), _CAST),
    ((exp.TimestampTrunc, exp.DateTrunc, exp.DateBin, exp.TimeToStr, exp.ToChar), PERIOD),
    ((exp.Div,), "division can fail; write a // 10, rounded toward 0, by a whole number above 0"),
    ((exp.Window,), "a window function reads other rows for each row, and no plan does"),
    ((exp.SetOperation,), f"a union, a difference, or an intersection {_TWICE}"),
    (
        (exp.Join,),
        f"a join {_TWICE}; [tables] in the plan joins tables by the unit's id, and [lookup] a "
        "public list",
    ),
    ((exp.With,), f"WITH {_TWICE}"),
    ((exp.Query, exp.Exists, exp.Any, exp.All), f"a subquery on private rows {_TWICE}"),
    ((exp.Distinct,), "DISTINCT lists values of private rows; only COUNT(DISTINCT x) is published"),
    ((exp.Star,), "the rows themselves are private; name a column, or write COUNT(*)"),
    ((exp.Placeholder, exp.Parameter), "is a parameter; write the value itself"),
    (
        (exp.Rollup, exp.Cube, exp.GroupingSets),
        "is several groupings; write one statement for each",
    ),
    ((exp.AggFunc, exp.Filter), "is about many rows; write it alone as a column of SELECT"),
)


def reason_against(tree: exp.Expr) -> str:
    """Return the reason why a part of SQL is refused, for an error message."""
    if isinstance(tree, exp.Anonymous):
        changing = tree.name.lower() in _CHANGING_NAMES
        return _CHANGING if changing else f"is not a known function, and none is run. It {_VALID}"
    return next((reason for kinds, reason in _REASONS if isinstance(tree, kinds)), _VALID)


def number_of(tree: exp.Expr) -> int | None:
    """Return the value of a part of SQL if it is an integer literal below 10^15, else None."""
    digits = tree.this if isinstance(tree, exp.Literal) and not tree.is_string else ""
    return int(digits) if digits.isdecimal() and len(digits) < 16 else None


class SqlText:
    """Represent the text of a statement, to cite its parts in errors."""

    def __init__(self, text: str) -> None:
        self.text = text

    def place(self, tree: exp.Expr) -> str:
        """Return the line, the column, and the text of a part of the statement."""
        node: exp.Expr | None = tree
        marks: list[Mapping[str, Any]] = []
        while node is not None and not marks:
            marks = [part.meta for part in node.walk() if "start" in part.meta]
            node = node.parent
        start = min((mark["start"] for mark in marks), default=0)
        end = max((mark["end"] + 1 for mark in marks), default=0)
        name = re.search(r"\w+\s*\($", self.text[:start])
        if name and isinstance(tree, (exp.Func, exp.WithinGroup)) and "start" not in tree.meta:
            start = start if isinstance(tree, exp.Connector) else name.start()
        while self.text.count("(", start, end) > self.text.count(")", start, end):
            rest = self.text[end:].lstrip()
            if not rest.startswith(")"):
                break
            end = len(self.text) - len(rest) + 1
        return self.at(start, end)

    def at(self, start: int, end: int) -> str:
        """Return the line, the column, and the text from one character index to another."""
        line, column = self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)
        shown = check.shortened(" ".join(self.text[start:end].split()), _MAX_LETTERS_SHOWN)
        return f"line {line}, column {column}, {shown!r}"

    def refuse(self, tree: exp.Expr, reason: str | None = None) -> PlanError:
        """Return the error that refuses a part of the statement."""
        return PlanError(f"{self.place(tree)}: {reason or reason_against(tree)}")

    def check_arguments(self, tree: exp.Expr, allowed: Collection[str]) -> None:
        """Raise PlanError if a part has an argument that is not in ``allowed``.

        The translation would ignore such an argument.
        """
        for name, value in tree.args.items():
            if name in allowed or value is None or value is False or value == []:
                continue
            first: object = cast("list[object]", value)[0] if isinstance(value, list) else value
            word = name.strip("_").replace("_", " ").upper()
            spot = first if isinstance(first, exp.Expr) else tree
            known = next((reason for kinds, reason in _REASONS if isinstance(first, kinds)), None)
            raise self.refuse(spot, known or f"{word} is not in the language of a plan")


@dataclass(frozen=True)
class SqlPiece:
    """Hold a row expression, as text and parsed. An ``atom`` needs no parentheses inside others."""

    text: str
    node: Node
    atom: bool = False

    @property
    def part(self) -> str:
        """Return the text for use inside another expression, in parentheses if needed."""
        return self.text if self.atom else f"({self.text})"


class RowReader:
    """Translate parts of SQL to row expressions. ``table`` may precede the dot of a column."""

    def __init__(self, source: SqlText, types: ColumnTypes, table: str) -> None:
        self.source, self.types, self.table = source, types, table
        self.clips: Mapping[str, tuple[str, str]] = {}  # of columns whose values add up
        self.advice = _IN_SQL

    @contextmanager
    def clipped(self, clips: Mapping[str, tuple[str, str]], remedy: str = "") -> Generator[None]:
        """Clip these columns where their values count, and not in conditions and remainders.

        A number that could be too large is refused with the ``remedy``, if any.
        """
        before = self.clips, self.advice
        self.clips = clips
        self.advice = self.advice | ({CLIP_FIRST: remedy} if remedy else {})
        try:
            yield
        finally:
            self.clips, self.advice = before

    def read(self, tree: exp.Expr) -> SqlPiece:
        """Return a part of SQL as a row expression. Raise PlanError if it has none."""
        form, template = self.forms.get(type(tree)), _TEMPLATES.get(type(tree))
        names = _ARGUMENTS.get(type(tree), ("this", "expression"))
        if form is None and template is None:
            raise self.source.refuse(tree)
        self.source.check_arguments(tree, names)
        if self.clips and isinstance(tree, (exp.Predicate, exp.Mod)):
            with self.clipped({}):
                return self.read(tree)
        if form is not None:
            return form(self, tree)
        trees = [tree.args[name] for name in names if tree.args.get(name) is not None]
        try:
            text = (template or "").format(*(piece.part for piece in self._operands(*trees)))
        except IndexError:
            raise self.source.refuse(tree, "lacks an operand") from None
        return self.typed(tree, text, atom=(template or "").endswith(")"))

    def condition(self, tree: exp.Expr) -> SqlPiece:
        """Return a part of SQL as a row expression that is true or false."""
        piece = self.read(tree)
        if piece.node.type != "boolean" or piece.node.op == "none":
            raise self.source.refuse(tree, "is not a condition; write one such as age >= 18")
        return piece

    def typed(self, tree: exp.Expr, text: str, *, atom: bool = False) -> SqlPiece:
        """Parse ``text``, the row expression of a part of SQL. Raise PlanError if it is refused."""
        try:
            return SqlPiece(text, read(text, self.types), atom)
        except ExpressionError as error:
            reason = error.reason
            for words, of_sql in self.advice.items():
                reason = reason.replace(words, of_sql)
            raise self.source.refuse(tree, reason) from None

    def _operands(self, *trees: exp.Expr) -> list[SqlPiece]:
        """Return the operands as row expressions. A text beside a date is a date, as in SQL."""
        pieces = [self.read(tree) for tree in trees]
        dated = any(piece.node.type == "date" for piece in pieces)
        return [
            self._date(tree) if dated and tree.is_string else piece
            for tree, piece in zip(trees, pieces, strict=True)
        ]

    def _quote(self, tree: exp.Expr, value: str) -> str:
        if any(ord(mark) < 32 or mark == "\x7f" for mark in value) or {"'", '"'} <= set(value):
            raise self.source.refuse(tree, "has a control character, or both kinds of quotes")
        return f'"{value}"' if "'" in value else f"'{value}'"

    def _column(self, tree: exp.Expr) -> SqlPiece:
        name, table = tree.name, tree.args.get("table")
        if isinstance(tree.this, exp.Star):
            raise self.source.refuse(tree, reason_against(tree.this))
        if table is not None and table.name != self.table:
            raise self.source.refuse(tree, f"is of another table than {self.table!r}")
        if name not in self.types:
            near = [one for one in self.types if one.casefold() == name.casefold()]
            case = "names match with their case; " if near else ""
            text = "a text has single quotes; " if tree.this.args.get("quoted") else ""
            known = f"did you mean {near[0]!r}?" if near else suggest(name, sorted(self.types))
            raise self.source.refuse(
                tree, f"is not a column that the plan declares; {case}{text}{known}"
            )
        plain = _IDENTIFIER.fullmatch(name) and not keyword.iskeyword(name)
        text = name if plain else f"column({self._quote(tree, name)})"
        if name in self.clips:
            low, high = self.clips[name]
            text = f"clip({text}, {low}, {high})"
        return self.typed(tree, text, atom=True)

    def _literal(self, tree: exp.Expr) -> SqlPiece:
        if tree.is_string and not tree.this:
            raise self.source.refuse(tree, _BLANK)
        if tree.is_string:
            return self.typed(tree, self._quote(tree, tree.this), atom=True)
        try:
            number = Decimal(tree.this)
        except InvalidOperation:
            raise self.source.refuse(tree, "is not a number") from None
        if len(tree.this) > 40 or abs(number.adjusted()) > 20:
            raise self.source.refuse(tree, "must be within +-2^53, with at most 9 decimals")
        text = f"{number:f}" if number % 1 else str(int(number))
        return self.typed(tree, text, atom=True)

    def _word(self, tree: exp.Expr) -> SqlPiece:
        null = isinstance(tree, exp.Null)
        return self.typed(tree, "None" if null else str(bool(tree.this)), atom=True)

    def _date(self, tree: exp.Expr) -> SqlPiece:
        return self.typed(tree, f"date({self._quote(tree, tree.this)})", atom=True)

    def _cast(self, tree: exp.Expr) -> SqlPiece:
        if tree.args["to"].sql(comments=False) == "DATE" and tree.this.is_string:
            return self._date(tree.this)
        raise self.source.refuse(tree)

    def _in(self, tree: exp.Expr) -> SqlPiece:
        value, *items = self._operands(tree.this, *tree.expressions)
        return self.typed(tree, f"{value.part} in [{', '.join(item.text for item in items)}]")

    def _is(self, tree: exp.Expr) -> SqlPiece:
        if not isinstance(tree.expression, exp.Null):
            raise self.source.refuse(tree, "only NULL may follow IS; write = TRUE or = FALSE")
        return self.typed(tree, f"{self.read(tree.this).part} is None")

    def _connective(self, tree: exp.Expr) -> SqlPiece:
        word = " and " if isinstance(tree, exp.And) else " or "
        return self.typed(tree, word.join(self.read(part).part for part in tree.flatten()))

    def _divide(self, tree: exp.Expr) -> SqlPiece:
        """Translate a quotient or remainder. SQL rounds toward 0, a row expression rounds down."""
        a, b = self.read(tree.this), self.read(tree.expression)
        if b.node.op != "literal" or b.node.type != "number" or b.node.scale or b.node.value < 1:
            raise self.source.refuse(tree, "can fail; divide by a whole number above 0")
        divided = f"{a.part} {'//' if isinstance(tree, exp.IntDiv) else '%'} {b.text}"
        other = f" if {a.part} >= 0 else -(-{divided})" if a.node.low < 0 else ""
        return self.typed(tree, divided + other)

    def _cases(self, tree: exp.Expr) -> SqlPiece:
        default = tree.args.get("default") or tree.args.get("false")
        text = "None" if default is None else self.read(default).part
        for branch in [tree] if isinstance(tree, exp.If) else reversed(tree.args["ifs"]):
            value, test = self.read(branch.args["true"]), self.read(branch.this)
            text = f"{value.part} if {test.part} else {text}"
        return self.typed(tree, text)

    def _nullif(self, tree: exp.Expr) -> SqlPiece:
        with self.clipped({}):
            one, other = self._operands(tree.this, tree.expression)
        test = self.typed(tree, f"{one.part} == {other.part}")
        return self.typed(tree, f"None if {test.text} else {self.read(tree.this).part}")

    def _coalesce(self, tree: exp.Expr) -> SqlPiece:
        *parts, last = self._operands(tree.this, *tree.expressions)
        text = last.part
        for part in reversed(parts):
            text = f"{part.part} if {part.part} is not None else {text}"
        return self.typed(tree, text)

    def _extract(self, tree: exp.Expr) -> SqlPiece:
        name = _PARTS.get(tree.name.upper())
        if name is None:
            raise self.source.refuse(tree, f"EXTRACT takes {', '.join(_PARTS)}")
        return self.typed(tree, f"{name}({self.read(tree.expression).text})", atom=True)

    # fmt: off
    forms: Mapping[type[exp.Expr], Callable[[Any, Any], SqlPiece]] = {
        exp.Column: _column, exp.Literal: _literal, exp.Boolean: _word, exp.Null: _word,
        exp.Cast: _cast, exp.In: _in, exp.Is: _is, exp.And: _connective, exp.Or: _connective,
        exp.IntDiv: _divide, exp.Mod: _divide, exp.Case: _cases, exp.If: _cases,
        exp.Coalesce: _coalesce, exp.Extract: _extract, exp.Nullif: _nullif,
        exp.Paren: lambda self, tree: self.read(tree.this),
    }
    # fmt: on
