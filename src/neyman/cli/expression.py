"""Read mechanisms from text on the command line: only public names and arithmetic."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, cast

import neyman
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.registry import COMBINATORS, MODULES, type_of_package
from neyman.numerics import check

OTHERS = ("optimal_marginals", "select_best", "Runs")
"""Public functions, and a type of their arguments, for mechanisms that have other names."""

IN_MODULES = ("CircularGaussian",)
"""A text may call these mechanisms, which Python programs import from their modules."""

MECHANISMS = frozenset((*(name for name in dir(neyman) if name in MODULES), *OTHERS, *IN_MODULES))
"""A text may call these public names, which make a mechanism or an argument of one."""

CURVES = frozenset(
    ("approximate", "gdp", "pbdp", "perfect", "pure", "renyi", "tcdp", "total_variation", "zcdp")
)
"""A text may call these public names for a curve, the argument of canonical noise."""

STRATEGIES = ("square_root",)
"""A text may call these functions of `matrix_mechanism.strategy`."""

_KNOWN = MECHANISMS | CURVES


@dataclass(frozen=True)
class Limits:
    """Limit the size of an expression."""

    letters: int = 10_000


LIMITS = Limits()


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b,
}


def mechanism_from(text: str, **unknowns: float) -> Mechanism:
    """Return the mechanism in a text, such as ``Gaussian(sigma=2) * 10 + Laplace(scale=20)``.

    Args:
        text: mechanisms by name, with numbers as arguments, joined by + and *. A number may be
            exact arithmetic, such as ``256/60_000``.
        unknowns: values of names that stand for numbers, such as ``x``.

    Raises:
        ValueError: the text has anything else, which is not evaluated.
    """
    if len(text) > LIMITS.letters:
        raise ValueError(f"mechanism: {len(text)} characters are more than {LIMITS.letters}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"mechanism = {text!r} cannot be read; {_example()}") from None
    try:
        value = _value(tree.body, unknowns)
    except (TypeError, ZeroDivisionError) as error:
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
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            match _value(operand, unknowns):
                case int() | float() | Fraction() as number:
                    return -number if isinstance(sign, ast.USub) else number
                case _:
                    pass
        case ast.Name(id=name) if name in unknowns:
            return unknowns[name]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [_value(element, unknowns) for element in elements]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_key(k): _value(v, unknowns) for k, v in pairs if k is not None}
        case ast.BinOp(left=left, right=right):
            combined = _combine(node, _value(left, unknowns), _value(right, unknowns))
            if combined is not None:
                return combined
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


def _combine(node: ast.BinOp, left: object, right: object) -> object:
    """Return a sum or multiple of mechanisms, or a number. Return None for anything else."""
    match left, node.op, right:
        case Mechanism(), ast.Add(), Mechanism():
            return left + right
        case (Mechanism() as one, ast.Mult(), int() | float() | Fraction() as count) | (
            int() | float() | Fraction() as count,
            ast.Mult(),
            Mechanism() as one,
        ):
            return one * cast(int, count)  # refuses a fraction, by its name
        case int() | float() | Fraction(), operation, int() | float() | Fraction():
            return _calculate(node, left, right) if type(operation) in _OPERATORS else None
        case _:
            return None


def _calculate(
    node: ast.BinOp, a: int | float | Fraction, b: int | float | Fraction
) -> int | float | Fraction:
    """Return the result of an operation on two numbers. It is exact, except for roots and unknowns.

    Raises:
        ValueError: the number is not defined, or has too many digits.
    """
    exact = not any(isinstance(part, ast.Name) for part in ast.walk(node))
    try:
        if exact:
            a, b = check.exact("number", a), check.exact("number", b)
            bits = sum(part.bit_length() for x in (a, b) for part in x.as_integer_ratio())
            # Bits of a numerator or a denominator.
            if bits * (max(1, abs(b)) if isinstance(node.op, ast.Pow) else 1) > 4096:
                raise OverflowError
        value = _OPERATORS[type(node.op)](a, b)
        integral = check.finite("number", value).is_integer() and value == int(value)
    except (ArithmeticError, TypeError, ValueError):
        raise ValueError(
            f"mechanism: {ast.unparse(node)[:60]!r} is not a finite number, or has too many digits"
        ) from None
    return int(value) if exact and integral else value


def _fraction(top: object, bottom: object = 1) -> Fraction:
    return check.exact("Fraction", top) / check.exact("Fraction", bottom)


def _option(node: ast.expr, unknowns: Mapping[str, float]) -> object:
    match node:
        case ast.Constant(value=bool() as value):
            return value
        case _:
            return _value(node, unknowns)


def _key(node: ast.expr) -> object:
    """Return a key of a mapping: a constant, or a tuple of constants."""
    value = _value(node, {})
    return tuple(cast(list[object], value)) if isinstance(value, list) else value


def _callable(node: ast.expr, unknowns: Mapping[str, float]) -> Callable[..., Any] | None:
    """Return what a text may call (a name, a constructor, or a combinator), or None."""
    match node:
        case ast.Name(id="Fraction"):
            return _fraction
        case ast.Name(id=name) if name in STRATEGIES:
            from neyman.mechanisms.matrix_mechanism import strategy

            return getattr(strategy, name)
        case ast.Name(id=name):
            return _known(name) if name in _KNOWN else type_of_package(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in _KNOWN:
            known: object = vars(cast(type, _known(name))).get(attr)
            builds = isinstance(known, (classmethod, staticmethod)) and not attr.startswith("_")
            return getattr(_known(name), attr) if builds else None
        case ast.Attribute(value=inner, attr=attr) if attr in COMBINATORS or attr == "user":
            base = _value(inner, unknowns)
            return getattr(base, attr) if isinstance(base, Mechanism) else None
        case ast.Attribute(value=inner, attr="mechanism"):
            from neyman.mechanisms.optimal_marginals import MarginalStrategy

            base = _value(inner, unknowns)
            return base.mechanism if isinstance(base, MarginalStrategy) else None
        case _:
            return None


def _known(name: str) -> Any:
    """Return the object with a known name."""
    if name in IN_MODULES:
        from neyman.mechanisms import circular_gaussian

        return getattr(circular_gaussian, name)
    return getattr(neyman, name)


def _meant(node: ast.expr) -> str:
    """Return a hint with the mechanism whose name is closest to the written name."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    near = get_close_matches(name, _KNOWN, 1)
    return f"; did you mean {near[0]}?" if near else ""
