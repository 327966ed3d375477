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


def words(text: str) -> str:
    """Return an expression in words, or the expression itself if some part has no words."""
    try:
        return _words(parsed(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError, KeyError, IndexError):
        return text


def _words(tree: ast.expr) -> str:
    return _FORMS[type(tree)](tree)


def _constant(tree: ast.Constant) -> str:
    if tree.value is None:
        return "missing"
    if isinstance(tree.value, bool):
        return str(tree.value).lower()
    return f"“{tree.value}”" if isinstance(tree.value, str) else str(tree.value)


def _compare(tree: ast.Compare) -> str:
    left, parts = _words(tree.left), list[str]()
    for sign, right in zip(tree.ops, tree.comparators, strict=True):
        other = _words(right)
        parts.append(f"{left} {_SIGNS[type(sign)]} {other}")
        left = other
    return " and ".join(parts)


def _boolean(tree: ast.BoolOp) -> str:
    joined = " and " if isinstance(tree.op, ast.And) else " or "
    parts = [
        f"({_words(part)})" if isinstance(part, ast.BoolOp) else _words(part)
        for part in tree.values
    ]
    return joined.join(parts)


def _unary(tree: ast.UnaryOp) -> str:
    if isinstance(tree.op, ast.Not):
        return f"not ({_words(tree.operand)})"
    return ("−" if isinstance(tree.op, ast.USub) else "") + _words(tree.operand)


def _binary(tree: ast.BinOp) -> str:
    sides = [
        f"({_words(part)})" if isinstance(part, ast.BinOp) else _words(part)
        for part in (tree.left, tree.right)
    ]
    return f" {_OPERATORS[type(tree.op)]} ".join(sides)


def _call(tree: ast.Call) -> str:
    name = tree.func.id if isinstance(tree.func, ast.Name) else ""
    arguments = [_words(argument) for argument in tree.args]
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
    ast.IfExp: lambda tree: (
        f"{_words(tree.body)} if {_words(tree.test)}, else {_words(tree.orelse)}"
    ),
    ast.Call: _call,
    ast.List: lambda tree: ", ".join(map(_words, tree.elts)),
    ast.Tuple: lambda tree: ", ".join(map(_words, tree.elts)),
    ast.Set: lambda tree: ", ".join(map(_words, tree.elts)),
}
