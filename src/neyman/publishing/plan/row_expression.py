"""Parse row expressions: formulas on one row of a table, in which no value can raise an error.

A plan writes filters and derived columns as expressions such as ``age >= 18 and state in ['IL']``.
Python's own parser reads the text. `read` accepts few of its forms and gives each a type.

- The types are integers and decimals, text, true/false, and dates. No value is converted to another
  type.
- A number has static bounds. A column's number is clipped to +-10^15 units of its last decimal
  place, as a sum clips its values. An expression whose bounds exceed +-2^53 is refused, so nothing
  overflows.
- ``//`` and ``%`` take a positive constant and round down, so nothing divides by zero.
- A missing value (NULL, NaN, text that is no number, day, or truth value) is None. Comparisons and
  arithmetic with None give None. ``None and False`` is false, ``None or True`` is true, and
  ``not None`` is None. ``x is None`` is true or false. A filter takes the rows for which its
  condition is true. ``a if c else b`` gives b if c is None.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias, cast

from neyman.numerics import check

Type = Literal["number", "text", "boolean", "date"]  # the type of an expression's value
COLUMN_LIMIT = 10**15  # the largest size of a column's number, in units of its last digit
NUMBER_LIMIT = 2**53  # the largest size of any number of an expression: a double holds each exactly


@dataclass(frozen=True)
class Limits:
    """Limit the size of a row expression."""

    letters: int = 2000  # the most characters of an expression
    # The most steps of an expression. A step counts each time that an engine repeats it.
    steps: int = 200
    decimals: int = 9


LIMITS = Limits()

CLIP_FIRST = "bound its parts first, as clip(income, 0, 1000000)"
"""The advice for a number that could be too large, in an expression of a plan."""

_NAMES: Mapping[Type, str] = {
    "number": "a number",
    "text": "text",
    "boolean": "true or false",
    "date": "a date",
}
DATE = 10_000, 100  # a date is the integer year * 10000 + month * 100 + day

PERIODS = ("day", "month", "quarter", "year")
"""The lengths of a period, and the steps of a range of dates."""

TEXT_CHANGES = ("lower", "upper", "strip", "normalize")
"""The functions that turn a text into another text."""


class ExpressionError(ValueError):
    """Report why an expression is refused: the place, the reason, and the valid forms.

    ``reason`` is the message without the place in the expression.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message if reason is None else reason


@dataclass(frozen=True)
class ColumnType:
    """Describe how an expression reads a column. ``scale`` is a number's count of decimals.

    If ``is_timed``, a date may have a time of day.
    """

    type: Type
    scale: int = 0
    is_timed: bool = False


ColumnTypes: TypeAlias = Mapping[str, ColumnType]


@dataclass(frozen=True)
class Node:
    """Represent one step of an expression. ``parts`` are the steps of its operands.

    Args:
        op: "literal", "column", "none", "compare", "member", "missing", "and", "or", "not", "add",
            "subtract", "multiply", "divide", "modulo", "clip", "choose", "year", "quarter",
            "month", "day", "weekday", "period", "hour", "ordinal" (the number of a day, 1 for
            0001-01-01), "starts", "lower", "upper", "strip", or "normalize".
        value: the value of a literal (a date and a number as a scaled integer), the name of a
            column, the sign of a comparison, the values of ``member``, the constant of a division,
            the ends of a clip, the length of a period, or the text of "starts".
        low, high: bounds of a number, scaled.
        scale: digits after the point of a number.
        weight: the number of steps. A step counts each time that an engine repeats it.
    """

    op: str
    type: Type
    parts: tuple[Node, ...] = ()
    value: Any = None
    low: int = 0
    high: int = 0
    scale: int = 0
    weight: int = 1


def read(text: str, types: ColumnTypes) -> Node:
    """Parse an expression and give it a type. Raise an `ExpressionError` if it is refused."""
    if len(text) > LIMITS.letters:
        raise ExpressionError(f"has {len(text)} characters; the most is {LIMITS.letters}")
    if "\\" in text:
        raise ExpressionError("has a backslash; write the character itself")
    if any(ord(character) < 32 and character not in "\t\r\n" for character in text):
        raise ExpressionError("has a control character; take it out")
    line = _line(text)
    try:
        tree = parsed(line)
    except SyntaxError as error:
        place = f" at character {error.offset}" if error.offset else ""
        raise ExpressionError(f"is not an expression{place}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("is nested too deep, or has a character that is not text") from None
    if _comment_hides_text(text, tree):
        raise ExpressionError("has a comment before its last line: take it out, or put it last")
    try:
        return _Reader(line, types).read(tree)
    except RecursionError:
        raise ExpressionError("is nested too deep; use a derived column for a part") from None


def mentioned(text: str) -> frozenset[str]:
    """Return all names and texts in an expression that may be columns; none if it is invalid."""
    nodes = _nodes(text)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    quoted = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return frozenset(names | {value for value in quoted if isinstance(value, str)})


def named_columns(text: str) -> frozenset[str]:
    """Return the columns that an expression names; none if it cannot be parsed."""
    nodes = _nodes(text)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    functions = {call.func for call in calls if isinstance(call.func, ast.Name)}
    names = {node.id for node in nodes if isinstance(node, ast.Name) and node not in functions}
    given = [one for call in calls if getattr(call.func, "id", "") == "column" for one in call.args]
    quoted = {one.value for one in given if isinstance(one, ast.Constant)}
    return frozenset(names | {value for value in quoted if isinstance(value, str)})


def _nodes(text: str) -> list[ast.AST]:
    """Return all parts of an expression; none if it cannot be parsed."""
    try:
        return list(ast.walk(parsed(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def parsed(text: str) -> ast.expr:
    """Return Python's syntax tree of an expression, or raise one of Python's parsing errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(_line(text), mode="eval").body


def without_comment(text: str) -> str:
    """Return a valid expression without its comment, or unchanged if it has none."""
    line = _line(text)
    tokens = tokenize.generate_tokens(io.StringIO(line).readline)
    marks = [token.start[1] for token in tokens if token.type == tokenize.COMMENT]
    return line[: marks[0]].rstrip() if marks else text


def _comment_hides_text(text: str, tree: ast.expr) -> bool:
    """Return True if a comment would hide later lines, because lines are joined before parsing."""
    if len(text.strip().splitlines()) == 1 or without_comment(text) == text:
        return False
    try:
        lines = ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        return True
    return ast.dump(lines) != ast.dump(tree)


def _line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ").strip()


def condition(text: str, types: ColumnTypes) -> Node:
    """Parse an expression whose value is true or false. Raise an `ExpressionError` otherwise."""
    node = read(text, types)
    if node.type != "boolean":
        raise ExpressionError(
            f"gives {_NAMES[node.type]}: a condition is true or false, such as age >= 18"
        )
    return node


def sources(node: Node) -> Iterator[str]:
    """Yield the columns that an expression reads."""
    if node.op == "column":
        yield node.value
    for part in node.parts:
        yield from sources(part)


def operations(node: Node) -> frozenset[str]:
    """Return the kinds of steps in an expression."""
    return frozenset({node.op}.union(*(operations(part) for part in node.parts)))


def hours_read(node: Node) -> Iterator[str]:
    """Yield the columns whose time of day an expression reads."""
    if node.op == "hour":
        yield node.parts[0].value
    for part in node.parts:
        yield from hours_read(part)


_SIGNS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.FloorDiv: "divide",
    ast.Mod: "modulo",
}
_PARTS_OF_DATE = {
    "year": (1, 9999, 4),
    "quarter": (1, 4, 12),
    "month": (1, 12, 8),
    "day": (1, 31, 4),
    "weekday": (1, 7, 120),
}
"""The functions of a date: their least and largest value, and their steps."""


_VALID = (
    "valid are columns, numbers, texts, True, False, None, ==, !=, <, <=, >, >=, in, not in, is "
    "None, and, or, not, +, -, *, //, %, x if c else y, and the functions clip, starts, lower, "
    "upper, strip, normalize, date, year, quarter, month, day, weekday, period, hour, and column"
)


def _number(value: int, scale: int = 0) -> Node:
    """Return the literal number value / 10^scale."""
    return Node("literal", "number", value=value, low=value, high=value, scale=scale)


class _Reader:
    """Turn Python's syntax tree of an expression into typed steps. Refuse all other forms."""

    def __init__(self, text: str, types: ColumnTypes) -> None:
        self.text, self.types = text, types

    def refuse(self, tree: ast.AST, reason: str) -> ExpressionError:
        node = cast("ast.expr", tree)
        shown = check.shortened(ast.get_source_segment(self.text, node) or "", 60)
        at = len(self.text.encode()[: node.col_offset].decode(errors="replace")) + 1
        return ExpressionError(f"at character {at}, {shown!r}: {reason}", reason)

    def read(self, tree: ast.expr) -> Node:
        form = self.forms.get(type(tree))
        if form is None:
            raise self.refuse(tree, f"is not in the language; {_VALID}")
        node = form(self, tree)
        if node.weight > LIMITS.steps:
            raise self.refuse(
                tree,
                f"takes {node.weight} steps, and the most is {LIMITS.steps}; put a part into a "
                "derived column",
            )
        if node.type == "number" and max(abs(node.low), abs(node.high)) > NUMBER_LIMIT:
            raise self.refuse(tree, f"could leave the range of -2^53 to 2^53; {CLIP_FIRST}")
        return node

    # Leaves

    def constant(self, tree: ast.Constant) -> Node:
        value: Any = tree.value
        match value:
            case None:
                return Node("none", "boolean")
            case bool():
                return Node("literal", "boolean", value=value)
            case "":
                raise self.refuse(tree, "is blank, which means missing; write x is None")
            case str():
                return Node("literal", "text", value=value)
            case int():
                return _number(value)
            case float():
                return self.decimal(tree)
            case _:
                raise self.refuse(tree, f"is not a number, text, True, False, or None; {_VALID}")

    def decimal(self, tree: ast.Constant) -> Node:
        try:
            number = Decimal((ast.get_source_segment(self.text, tree) or "").replace("_", ""))
        except InvalidOperation:
            raise self.refuse(tree, "is not a decimal number") from None
        _, _, exponent = number.as_tuple()
        places = max(0, -cast("int", exponent))
        if places > LIMITS.decimals or number > NUMBER_LIMIT:
            raise self.refuse(tree, f"must have at most {LIMITS.decimals} decimals, within +-2^53")
        return _number(int(number.scaleb(places)), places)

    def name(self, tree: ast.Name) -> Node:
        if ast.get_source_segment(self.text, tree) != tree.id:  # as Python's parser reads it
            raise self.refuse(tree, f"would be read as {tree.id!r}; write column('...')")
        return self.column(tree, tree.id)

    def column(self, tree: ast.expr, name: str) -> Node:
        declared = self.types.get(name)
        if declared is None:
            known = ", ".join(repr(known) for known in sorted(self.types)[:20]) or "none"
            raise self.refuse(
                tree,
                f"is not a declared column; declare it, as [columns.{name}] type = 'text' (or "
                f"'whole', 'boolean', 'date'); declared are {known}",
            )
        limit = COLUMN_LIMIT if declared.type == "number" else 0
        return Node("column", declared.type, (), name, -limit, limit, declared.scale)

    # Conditions

    def compare(self, tree: ast.Compare) -> Node:
        conditions: list[Node] = []
        left = tree.left
        for sign, right in zip(tree.ops, tree.comparators, strict=True):
            conditions.append(self.one_comparison(tree, left, sign, right))
            left = right
        return self.joined("and", conditions)

    def one_comparison(
        self, tree: ast.expr, left: ast.expr, sign: ast.cmpop, right: ast.expr
    ) -> Node:
        match sign:
            case ast.In():
                return self.member(tree, self.value(left), right)
            case ast.NotIn():
                return self.negated(self.member(tree, self.value(left), right))
            case ast.Is():
                return self.missing(tree, left, right)
            case ast.IsNot():
                return self.negated(self.missing(tree, left, right))
            case _:
                return self.ordered(tree, left, _SIGNS[type(sign)], right)

    def missing(self, tree: ast.expr, left: ast.expr, right: ast.expr) -> Node:
        if getattr(right, "value", right) is not None:
            raise self.refuse(tree, "only None may follow 'is'; write ==")
        part = self.value(left)
        return Node("missing", "boolean", (part,), weight=1 + part.weight)

    def ordered(self, tree: ast.expr, left: ast.expr, symbol: str, right: ast.expr) -> Node:
        a, b = self.value(left), self.value(right)
        if symbol not in ("==", "!="):
            less = symbol in ("<", ">=")  # x < 0.5 is x < 1, and x > 0.5 is x > 0
            a, b = self.rounded(a, b, up=not less), self.rounded(b, a, up=less)
        a, b = self.alike(tree, a, b)
        if a.type in ("text", "boolean") and symbol not in ("==", "!="):
            raise self.refuse(tree, f"{_NAMES[a.type]} has no order here; write ==, != or in")
        return Node("compare", "boolean", (a, b), symbol, weight=1 + a.weight + b.weight)

    def member(self, tree: ast.expr, part: Node, listed: ast.expr) -> Node:
        if not isinstance(listed, (ast.List, ast.Tuple, ast.Set)) or not listed.elts:
            raise self.refuse(listed, "must be a list of values, such as ['IL', 'OH']")
        values: list[Any] = []
        for item in listed.elts:
            literal = self.value(item)
            if literal.op != "literal":
                raise self.refuse(item, "must be a number, a text, True, False, or date('...')")
            # Each value takes the scale of the column, so that integers compare.
            part, literal = self.alike(item, part, literal, raised=False)
            values.append(literal.value)
        weight = 1 + len(values) + part.weight
        return Node("member", "boolean", (part,), tuple(values), weight=weight)

    def alike(self, tree: ast.expr, a: Node, b: Node, *, raised: bool = True) -> tuple[Node, Node]:
        """Return two numbers with the larger scale of both, or two other values unchanged.

        Refuse different types. Unless ``raised``, refuse ``b`` if it has more decimals than ``a``.
        """
        if a.type != b.type:
            hint = ""
            if {a.type, b.type} == {"date", "text"}:
                hint = "; write a date as date('2024-12-31')"
            raise self.refuse(
                tree, f"mixes {_NAMES[a.type]} and {_NAMES[b.type]}, which are never equal{hint}"
            )
        if a.type == "number":
            scale = max(a.scale, b.scale)
            if not raised and scale > a.scale:
                raise self.refuse(tree, f"has more decimals than the column's {a.scale}")
            return self.scaled(tree, a, scale), self.scaled(tree, b, scale)
        return a, b

    def rounded(self, constant: Node, other: Node, *, up: bool) -> Node:
        """Round ``constant`` to the decimals of ``other``, the number that it is compared with.

        Do so only if ``other`` could be too large with the constant's decimals. Round up if ``up``.
        """
        more = constant.scale - other.scale
        size = max(abs(other.low), abs(other.high))
        if constant.op != "literal" or other.type != "number" or more <= 0:
            return constant
        if size * 10**more <= NUMBER_LIMIT:
            return constant
        value = -(-constant.value // 10**more) if up else constant.value // 10**more
        return _number(value, other.scale)

    def scaled(self, tree: ast.expr, node: Node, scale: int) -> Node:
        """Return the number ``node`` with ``scale`` decimals. Refuse it if it gets too large."""
        if node.scale == scale:
            return node
        factor = 10 ** (scale - node.scale)
        if node.op == "literal":
            return _number(node.value * factor, scale)
        wide = self.product(node, _number(factor))
        if max(abs(wide.low), abs(wide.high)) > NUMBER_LIMIT:
            raise self.refuse(
                tree, f"could leave the range of -2^53 to 2^53 with {scale} decimals; {CLIP_FIRST}"
            )
        return replace(wide, scale=scale)

    def boolean(self, tree: ast.BoolOp) -> Node:
        op = "and" if isinstance(tree.op, ast.And) else "or"
        return self.joined(op, [self.condition(part) for part in tree.values])

    def joined(self, op: str, parts: Sequence[Node]) -> Node:
        if len(parts) == 1:
            return parts[0]
        return Node(op, "boolean", tuple(parts), weight=1 + sum(part.weight for part in parts))

    def negated(self, part: Node) -> Node:
        return Node("not", "boolean", (part,), weight=1 + part.weight)

    def condition(self, tree: ast.expr) -> Node:
        node = self.value(tree)
        if node.type != "boolean":
            raise self.refuse(tree, f"is {_NAMES[node.type]}, and must be true or false")
        return node

    def value(self, tree: ast.expr) -> Node:
        node = self.read(tree)
        if node.op == "none":
            raise self.refuse(tree, "None has no type here; write x is None, or x if c else None")
        return node

    # Arithmetic

    def number(self, tree: ast.expr) -> Node:
        return self.as_number(tree, self.value(tree))

    def as_number(self, tree: ast.expr, node: Node) -> Node:
        if node.type != "number":
            raise self.refuse(tree, f"is {_NAMES[node.type]}, and must be a number")
        return node

    def ordinal(self, tree: ast.expr, node: Node) -> Node:
        """Return the step that gives the number of a date's day, 1 for 0001-01-01."""
        if node.op == "literal":
            year, month_and_day = divmod(node.value, DATE[0])
            return _number(date(year, *divmod(month_and_day, DATE[1])).toordinal())
        if node.op != "column":
            raise self.refuse(
                tree,
                "a difference in days takes date columns and dates; make its date a derived column",
            )
        # The steps to compute the number of a day.
        return Node("ordinal", "number", (node,), None, 1, date.max.toordinal(), 0, 60)

    def unary(self, tree: ast.UnaryOp) -> Node:
        match tree.op:
            case ast.Not():
                return self.negated(self.condition(tree.operand))
            case ast.UAdd():
                return self.number(tree.operand)
            case ast.USub():
                return self.opposite(self.number(tree.operand))
            case _:
                raise self.refuse(tree, f"is not in the language; {_VALID}")

    def opposite(self, node: Node) -> Node:
        if node.op == "literal":
            return _number(-node.value, node.scale)
        return self.sum("subtract", _number(0, node.scale), node)

    def binary(self, tree: ast.BinOp) -> Node:
        op = _ARITHMETIC.get(type(tree.op))
        if op is None:
            raise self.refuse(tree, "is not in the language; +, -, *, // and % are")
        a, b = self.value(tree.left), self.value(tree.right)
        if op == "subtract" and a.type == b.type == "date":
            return self.sum(op, self.ordinal(tree.left, a), self.ordinal(tree.right, b))
        a, b = self.as_number(tree.left, a), self.as_number(tree.right, b)
        if op in ("add", "subtract"):
            return self.sum(op, *self.alike(tree, a, b))
        if op == "multiply":
            if a.scale + b.scale > LIMITS.decimals:
                raise self.refuse(tree, f"would have more than {LIMITS.decimals} decimals")
            return self.product(a, b)
        if b.op != "literal" or b.scale or b.value <= 0 or a.scale:
            raise self.refuse(tree, "// and % take a whole number and a constant of at least 1")
        k = b.value
        if op == "modulo":
            return Node(op, "number", (a,), k, 0, k - 1, weight=4 + a.weight)
        return Node(op, "number", (a,), k, a.low // k, a.high // k, weight=8 + 2 * a.weight)

    def sum(self, op: str, a: Node, b: Node) -> Node:
        low, high = (b.low, b.high) if op == "add" else (-b.high, -b.low)
        weight = 1 + a.weight + b.weight
        return Node(op, "number", (a, b), None, a.low + low, a.high + high, a.scale, weight)

    def product(self, a: Node, b: Node) -> Node:
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        weight = 1 + a.weight + b.weight
        scale = a.scale + b.scale
        return Node("multiply", "number", (a, b), None, min(ends), max(ends), scale, weight)

    # Cases and functions

    def choose(self, tree: ast.IfExp) -> Node:
        test, a, b = self.condition(tree.test), self.read(tree.body), self.read(tree.orelse)
        if a.op == "none" and b.op == "none":
            raise self.refuse(tree, "is None in each case")
        if a.op == "none":
            a = replace(a, type=b.type, low=b.low, high=b.high, scale=b.scale)
        if b.op == "none":
            b = replace(b, type=a.type, low=a.low, high=a.high, scale=a.scale)
        a, b = self.alike(tree, a, b)
        low, high = min(a.low, b.low), max(a.high, b.high)
        weight = 1 + test.weight + a.weight + b.weight
        return Node("choose", a.type, (test, a, b), None, low, high, a.scale, weight)

    def call(self, tree: ast.Call) -> Node:
        name = tree.func.id if isinstance(tree.func, ast.Name) else ""
        if tree.keywords or any(isinstance(argument, ast.Starred) for argument in tree.args):
            raise self.refuse(tree, "functions take their arguments in order, without names")
        if name in ("column", "date"):
            return self.of_text(tree, name)
        if name in _PARTS_OF_DATE and len(tree.args) == 1:
            return self.part_of_date(tree, name)
        if name in TEXT_CHANGES and len(tree.args) == 1:
            return self.changed_text(tree, name)
        forms = {("hour", 1): self.hour, ("period", 2): self.period, ("starts", 2): self.starts}
        forms["clip", 3] = self.clip
        if (name, len(tree.args)) in forms:
            return forms[name, len(tree.args)](tree)
        raise self.refuse(
            tree,
            "is not a function; there are clip(x, low, high), starts(text, 'J'), lower(text), "
            "upper(text), strip(text), normalize(text), date('2024-12-31'), year(d), quarter(d), "
            "month(d), day(d), weekday(d), period(d, 'month'), hour(d), and column('name')",
        )

    def part_of_date(self, tree: ast.Call, name: str) -> Node:
        part = self.value(tree.args[0])
        if part.type != "date":
            raise self.refuse(tree, f"{name} takes a date, and this is {_NAMES[part.type]}")
        if part.op != "column":
            raise self.refuse(tree, f"{name} takes a column; make its date a derived column")
        low, high, steps = _PARTS_OF_DATE[name]
        return Node(name, "number", (part,), None, low, high, 0, steps)

    def starts(self, tree: ast.Call) -> Node:
        part, start = self.value(tree.args[0]), self.value(tree.args[1])
        if part.type != "text" or start.type != "text" or start.op != "literal":
            raise self.refuse(tree, "starts takes a text column and a text, as 'J'")
        return Node("starts", "boolean", (part,), start.value, weight=3 + part.weight)

    def hour(self, tree: ast.Call) -> Node:
        part = self.value(tree.args[0])
        if part.op != "column" or not self.types[part.value].is_timed:
            raise self.refuse(
                tree, "hour takes a column of the data that is declared with type = 'date'"
            )
        return Node("hour", "number", (part,), None, 0, 23, 0, 4)

    def changed_text(self, tree: ast.Call, name: str) -> Node:
        part = self.value(tree.args[0])
        if part.type != "text":
            raise self.refuse(tree, f"{name} takes a text, and this is {_NAMES[part.type]}")
        # An engine computes a chain of changes in one step, which repeats its start.
        weight = part.weight + 4 if part.op in TEXT_CHANGES else 8 + 6 * part.weight
        return Node(name, "text", (part,), weight=weight)

    def period(self, tree: ast.Call) -> Node:
        part, unit = self.value(tree.args[0]), self.value(tree.args[1])
        if part.type != "date" or part.op != "column":
            raise self.refuse(tree, "period takes a date column and a length, as 'month'")
        if unit.op != "literal" or unit.value not in PERIODS:
            raise self.refuse(tree, f"the length of a period is one of {', '.join(PERIODS)}")
        return Node("period", "text", (part,), unit.value, weight=16)

    def clip(self, tree: ast.Call) -> Node:
        part, low, high = (self.number(argument) for argument in tree.args)
        if low.op != "literal" or high.op != "literal":
            raise self.refuse(tree, "the ends of a clip are numbers")
        scale = max(part.scale, low.scale, high.scale)
        if scale > part.scale:
            raise self.refuse(tree, f"the ends may have {part.scale} decimals, like the number")
        low, high = self.scaled(tree, low, scale), self.scaled(tree, high, scale)
        if low.value > high.value:
            raise self.refuse(tree, "the low end is above the high end")
        ends = low.value, high.value
        return Node("clip", "number", (part,), ends, *ends, scale, 4 + 2 * part.weight)

    def of_text(self, tree: ast.Call, name: str) -> Node:
        argument = tree.args[0] if len(tree.args) == 1 else None
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            raise self.refuse(tree, f"{name} takes one text, as {name}('...')")
        if name == "column":
            return self.column(tree, argument.value)
        try:
            if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", argument.value, re.ASCII):
                raise ValueError
            day = date.fromisoformat(argument.value)
        except ValueError:
            raise self.refuse(tree, "must be a date such as date('2024-12-31')") from None
        value = day.year * DATE[0] + day.month * DATE[1] + day.day
        return Node("literal", "date", value=value)

    forms: Mapping[type[ast.expr], Callable[[Any, Any], Node]] = {
        ast.Constant: constant,
        ast.Name: name,
        ast.Compare: compare,
        ast.BoolOp: boolean,
        ast.UnaryOp: unary,
        ast.BinOp: binary,
        ast.IfExp: choose,
        ast.Call: call,
    }
