"""Mechanisms written as text on the command line: names, numbers, + and *, nothing else."""

from __future__ import annotations

import ast
from difflib import get_close_matches
from typing import Any

from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.randomized_response import RandomizedResponse

__all__ = ["mechanism_from"]

_KNOWN: dict[str, type[Mechanism]] = {
    kind.__name__: kind
    for kind in (DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, RandomizedResponse)
}
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
    return "write it like 'Gaussian(sigma=2) * 10 + Laplace(scale=20)'; known are " + ", ".join(
        sorted(_KNOWN)
    )


def _value(node: ast.expr, unknowns: dict[str, float]) -> Any:
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
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            a, b = _value(left, unknowns), _value(right, unknowns)
            if isinstance(a, Mechanism) and isinstance(b, Mechanism):
                return a + b
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            a, b = _value(left, unknowns), _value(right, unknowns)
            if isinstance(b, Mechanism):
                a, b = b, a
            if isinstance(a, Mechanism) and not isinstance(b, (Mechanism, str, list)):
                return a * b
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _KNOWN:
            named = {k.arg: _value(k.value, unknowns) for k in keywords if k.arg}
            return _KNOWN[name](*(_value(a, unknowns) for a in args), **named)
        case ast.Call(func=ast.Attribute(value=inner, attr="subsample"), args=args, keywords=kws):
            base = _value(inner, unknowns)
            named = {k.arg: _value(k.value, unknowns) for k in kws if k.arg}
            if isinstance(base, Mechanism):
                return base.subsample(*(_value(a, unknowns) for a in args), **named)
        case _:
            pass
    raise ValueError(
        f"mechanism: {ast.unparse(node)!r} has no place here{_meant(node)}; {_example()}"
    )


def _meant(node: ast.expr) -> str:
    """A mechanism whose name is nearly the one that was written."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    near = get_close_matches(name, _KNOWN, 1)
    return f"; did you mean {near[0]}?" if near else ""
