"""Mechanisms written as text on the command line: public names, numbers, + and *, nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

import neyman
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.optimal_marginals import MarginalStrategy
from neyman.mechanisms.registry import COMBINATORS, MODULES

__all__ = ["MECHANISMS", "mechanism_from"]

OTHERS = ("optimal_marginals", "select_best", "Runs")
"""Public functions that return a mechanism under another name, and what they take."""

MECHANISMS = frozenset(name for name in dir(neyman) if name in MODULES) | frozenset(OTHERS)
"""The public names that a text may call and that make a mechanism or an argument of one."""

CURVES = frozenset(
    ("approximate", "gdp", "pbdp", "perfect", "pure", "renyi", "tcdp", "total_variation", "zcdp")
)
"""The public names that a text may call for a curve, which canonical noise takes."""

STRATEGIES = {
    "square_root": "neyman.matrix_mechanism.strategy",
}
"""The functions that a text may call for the strategy of a matrix mechanism, and their modules."""

_KNOWN = MECHANISMS | CURVES
_LONGEST = 10_000


def mechanism_from(text: str, **unknowns: float) -> Mechanism:
    """The mechanism that a text describes, such as ``Gaussian(sigma=2) * 10 + Laplace(scale=20)``.

    Args:
        text: mechanisms by name with numbers as arguments, joined by + and *.
        unknowns: values of names that stand for numbers, such as ``x``.

    Raises:
        ValueError: for anything else; nothing is evaluated.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"mechanism: {len(text)} characters are more than {_LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"mechanism = {text!r} cannot be read; {_example()}") from None
    try:
        value = _value(tree.body, unknowns)
    except TypeError as error:
        raise ValueError(f"mechanism = {text!r}: {error}") from None
    except RecursionError:
        raise ValueError(f"mechanism = {text[:60]!r}... is nested too deeply") from None
    if not isinstance(value, Mechanism):
        raise ValueError(f"mechanism = {text!r} is not a mechanism; {_example()}")
    return value


def _example() -> str:
    return (
        "write it like 'Gaussian(sigma=2) * 10 + Laplace(scale=20)'. Known mechanisms: "
        + ", ".join(sorted(MECHANISMS))
    )


def _value(node: ast.expr, unknowns: Mapping[str, float]) -> Any:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in unknowns:
            return unknowns[name]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [_value(element, unknowns) for element in elements]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_key(k): _value(v, unknowns) for k, v in pairs if k is not None}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            match _value(left, unknowns), _value(right, unknowns):
                case Mechanism() as a, Mechanism() as b:
                    return a + b
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            match _value(left, unknowns), _value(right, unknowns):
                case (Mechanism() as a, int() | float() as count) | (
                    int() | float() as count,
                    Mechanism() as a,
                ):
                    return a * cast(int, count)  # a fraction is refused, by its name
        case ast.Call(func=function, args=args, keywords=keywords):
            call = _callable(function, unknowns)
            if call is not None and all(k.arg for k in keywords):
                given = [_value(a, unknowns) for a in args]
                return call(*given, **{str(k.arg): _option(k.value, unknowns) for k in keywords})
        case _:
            pass
    raise ValueError(
        f"mechanism: {ast.unparse(node)!r} is not allowed here{_meant(node)}; {_example()}"
    )


def _option(node: ast.expr, unknowns: Mapping[str, float]) -> Any:
    """A keyword argument, which may also be true or false."""
    match node:
        case ast.Constant(value=bool() as value):
            return value
        case _:
            return _value(node, unknowns)


def _key(node: ast.expr) -> Any:
    """A key of a mapping: a constant, or a tuple of them."""
    value = _value(node, {})
    return tuple(value) if isinstance(value, list) else value


def _callable(node: ast.expr, unknowns: Mapping[str, float]) -> Callable[..., Any] | None:
    """What a text may call: a name, a constructor of a type, or a combinator; None if nothing."""
    match node:
        case ast.Name(id=name) if name in STRATEGIES:
            return getattr(import_module(STRATEGIES[name]), name)
        case ast.Name(id=name) if name in _KNOWN:
            return getattr(neyman, name)
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in _KNOWN:
            known = vars(getattr(neyman, name)).get(attr)
            builds = isinstance(known, (classmethod, staticmethod)) and not attr.startswith("_")
            return getattr(getattr(neyman, name), attr) if builds else None
        case ast.Attribute(value=inner, attr=attr) if attr in (*COMBINATORS, "mechanism"):
            base = _value(inner, unknowns)
            wanted = Mechanism if attr in COMBINATORS else MarginalStrategy
            return getattr(base, attr) if isinstance(base, wanted) else None
        case _:
            return None


def _meant(node: ast.expr) -> str:
    """A mechanism whose name is nearly the one that was written."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    near = get_close_matches(name, _KNOWN, 1)
    return f"; did you mean {near[0]}?" if near else ""
