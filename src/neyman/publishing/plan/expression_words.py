"""Put row expressions in words for a report: ``age >= 18`` becomes "age is at least 18"."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from neyman.publishing.plan.row_expression import parsed

_SIGNS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "is",
    ast.NotEq: "is not",
    ast.Lt: "is below",
    ast.LtE: "is at most",
    ast.Gt: "is above",
    ast.GtE: "is at least",
    ast.In: "is one of",
    ast.NotIn: "is none of",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "plus",
    ast.Sub: "minus",
    ast.Mult: "times",
    ast.FloorDiv: "divided (rounded down) by",
    ast.Mod: "modulo",
}

_TEXTS: Mapping[str, str] = {
    "lower": "in lower case",
    "upper": "in upper case",
    "strip": "without blanks around it",
    "normalize": "in one Unicode form",
}


def words(*texts: str) -> str:
    """Return an expression in words, or the expression itself if some part has no words.

    Several conditions are joined by "and". An "or" within one of them has parentheses.
    """
    try:
        trees = [parsed(text) for text in texts]
        return _words(trees[0] if len(trees) == 1 else ast.BoolOp(ast.And(), trees))
    except (SyntaxError, ValueError, RecursionError, MemoryError, KeyError, IndexError):
        return texts[0] if len(texts) == 1 else " and ".join(f"({text})" for text in texts)


def _words(tree: ast.expr) -> str:
    return _FORMS[type(tree)](tree)


def _part(tree: ast.expr, *apart: type[ast.expr]) -> str:
    """Return the words of an operand, in parentheses if it is of a kind in ``apart``."""
    return f"({_words(tree)})" if isinstance(tree, apart) else _words(tree)


def _is_chain(tree: ast.expr) -> bool:
    """Return True for ``0 <= n < 5``, whose words have an "and"."""
    return isinstance(tree, ast.Compare) and len(tree.ops) > 1


def _ends_in_list(tree: ast.expr) -> bool:
    """Return True for ``n in [1, 2]``, whose list would seem to go on with what follows."""
    return isinstance(tree, ast.Compare) and isinstance(tree.ops[-1], ast.In | ast.NotIn)


def _constant(tree: ast.Constant) -> str:
    if tree.value is None:
        return "missing"
    if isinstance(tree.value, bool):
        return str(tree.value).lower()
    return f"“{tree.value}”" if isinstance(tree.value, str) else str(tree.value)


def _operand(tree: ast.expr) -> str:
    """Return the words of a side of a comparison."""
    is_not = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
    return f"({_words(tree)})" if is_not else _part(tree, ast.BoolOp, ast.IfExp, ast.Compare)


def _compare(tree: ast.Compare) -> str:
    left, parts = _operand(tree.left), list[str]()
    for sign, right in zip(tree.ops, tree.comparators, strict=True):
        other = _operand(right)
        parts.append(f"{left} {_SIGNS[type(sign)]} {other}")
        left = other
    return " and ".join(parts)


def _boolean(tree: ast.BoolOp) -> str:
    is_or, last = isinstance(tree.op, ast.Or), tree.values[-1]
    parts = [
        f"({_words(part)})"
        if (is_or and _is_chain(part)) or (part is not last and _ends_in_list(part))
        else _part(part, ast.BoolOp, ast.IfExp)
        for part in tree.values
    ]
    return (" or " if is_or else " and ").join(parts)


def _unary(tree: ast.UnaryOp) -> str:
    if isinstance(tree.op, ast.Not):
        return f"not ({_words(tree.operand)})"
    operand = _part(tree.operand, ast.BinOp, ast.IfExp)
    return f"−{operand}" if isinstance(tree.op, ast.USub) else operand


def _binary(tree: ast.BinOp) -> str:
    sides = [_part(part, ast.BinOp, ast.IfExp) for part in (tree.left, tree.right)]
    return f" {_OPERATORS[type(tree.op)]} ".join(sides)


def _choice(tree: ast.IfExp) -> str:
    body, test = (_part(part, ast.BoolOp, ast.IfExp) for part in (tree.body, tree.test))
    return f"{body} if {test}, else {_part(tree.orelse, ast.BoolOp, ast.IfExp)}"


def _call(tree: ast.Call) -> str:
    name = tree.func.id if isinstance(tree.func, ast.Name) else ""
    arguments = [_part(argument, ast.BinOp, ast.IfExp) for argument in tree.args]
    if name in ("column", "date"):
        value: Any = getattr(tree.args[0], "value", "")
        return str(value)
    if name == "starts":
        return f"{arguments[0]} starts with {arguments[1]}"
    if name == "clip":
        return f"{arguments[0]} (clipped to {arguments[1]} to {arguments[2]})"
    if name == "period":
        return f"the {getattr(tree.args[1], 'value', '')} of {arguments[0]}, with its year"
    if name in _TEXTS:
        return f"{arguments[0]} ({_TEXTS[name]})"
    return f"the {name} of {arguments[0]}"


_FORMS: Mapping[type[ast.expr], Callable[[Any], str]] = {
    ast.Constant: _constant,
    ast.Name: lambda tree: tree.id,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.IfExp: _choice,
    ast.Call: _call,
    ast.List: lambda tree: ", ".join(map(_words, tree.elts)),
    ast.Tuple: lambda tree: ", ".join(map(_words, tree.elts)),
    ast.Set: lambda tree: ", ".join(map(_words, tree.elts)),
}
