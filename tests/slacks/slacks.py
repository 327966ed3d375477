"""Rounding slacks of the certified core: each place where a bound is moved by units of rounding.

A slack is one name ``UNIT`` in a module. `without` runs the library with 0 in its place. `needed`
asks two things of a bound: the exact number lies inside, and without the slack it does not.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import mpmath

import neyman
from neyman.numerics.array_cache import CACHE

SOURCE = Path(neyman.__file__).parent
CORE = (
    "accounting", "analysis/hypothesis_tests", "auditing", "curves", "mechanisms", "numerics",
)  # fmt: skip


class Slack(NamedTuple):
    """The name ``UNIT`` at one place: in a function, or in the value of a constant."""

    file: str
    place: str
    line: int
    column: int


@cache
def _source(file: str) -> str:
    return (SOURCE / file).read_text(encoding="utf-8")


def _walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.Name]]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            names = (*names, name)
        case ast.Assign(targets=[ast.Name(name), *_]) if not names:
            names = (name,)
        case ast.Name("UNIT", ast.Load()):
            yield ".".join(names), node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, names)


@cache
def _all(file: str) -> tuple[Slack, ...]:
    names = _walk(ast.parse(_source(file)), ())
    return tuple(sorted(Slack(file, at, name.lineno, name.col_offset) for at, name in names))


def slacks(file: str, place: str = "") -> list[Slack]:
    """Return the slacks of a file: all, or those of one function, class, or constant."""
    return [s for s in _all(file) if not place or f"{s.place}.".startswith(f"{place}.")]


def every_slack() -> list[Slack]:
    """Return the slacks of the certified core."""
    files = [p for name in CORE for p in sorted((SOURCE / name).rglob("*.py"))]
    return [slack for p in files for slack in slacks(p.relative_to(SOURCE).as_posix())]


@contextmanager
def without(*dropped: Slack) -> Iterator[None]:
    """Run the library with 0 in the place of slacks, in every module that uses their functions."""
    with ExitStack() as stack:
        for file in {slack.file for slack in dropped}:
            lines = _source(file).encode().splitlines(keepends=True)
            for _, _, line, column in (slack for slack in dropped if slack.file == file):
                text = lines[line - 1]
                lines[line - 1] = text[:column] + b"0.0 " + text[column + len("UNIT") :]
            inside = {slack.line for slack in dropped if slack.file == file}
            for statement in ast.parse(b"".join(lines)).body:
                if inside & set(range(statement.lineno, (statement.end_lineno or 0) + 1)):
                    stack.enter_context(_replaced(file, statement))
        CACHE.clear()  # of results with the slacks, and then of those without them
        try:
            yield
        finally:
            CACHE.clear()


@contextmanager
def _replaced(file: str, statement: ast.stmt) -> Iterator[None]:
    """Run the library with another function, class, or constant in a module."""
    module = importlib.import_module("neyman." + file.removesuffix(".py").replace("/", "."))
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module([statement], []), file, "exec", flags)
    if isinstance(statement, ast.Assign):
        (target,) = (node.id for node in statement.targets if isinstance(node, ast.Name))
        old = getattr(module, target)
        users = [m for name, m in sys.modules.items() if name.startswith("neyman.")]
        users = [m for m in users if vars(m).get(target) is old]  # who imports the constant
        exec(code, vars(module))
        new = getattr(module, target)
        try:
            for user in users:
                setattr(user, target, new)
            yield
        finally:
            for user in users:
                setattr(user, target, old)
        return
    codes = {c.co_qualname: c for c in _codes(code)}
    functions = [f for f in _functions(module) if f.__qualname__ in codes]
    codes_before = [f.__code__ for f in functions]
    try:
        for function in functions:
            function.__code__ = codes[function.__qualname__]
        yield
    finally:
        for function, before in zip(functions, codes_before, strict=True):
            function.__code__ = before


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _functions(module: Any) -> Iterator[FunctionType]:
    """The functions and methods that a module defines, behind their decorators."""
    own = [v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__]
    for value in [w for v in own for w in (vars(v).values() if isinstance(v, type) else [v])]:
        match value:
            case property(fget=member) | cached_property(func=member):
                pass
            case staticmethod() | classmethod():
                member = value.__func__
            case _:
                member = value
        member = getattr(member, "__wrapped__", member)
        if isinstance(member, FunctionType) and member.__module__ == module.__name__:
            yield member


Check = Callable[[], Iterable[Any]]


def needed(
    *places: str, together: Sequence[Sequence[int]] = (), but: Sequence[int] = ()
) -> Callable[[Check], Callable[[], None]]:
    """Make a test of a check that compares bounds with exact numbers, point by point.

    Every point holds. Without any one slack of these places at least one point fails.

    Args:
        places: a file and a function, class, or constant in it, as
            "curves/profiles/duality.py:chord".
        together: groups of slacks, numbered from 0 over all places. Any one of a group covers for
            the others: with it every point holds, and without all of them at least one fails.
        but: numbers of slacks that no point needs: the source says which roundings they cover.
    """
    every = [s for place in places for s in slacks(*place.split(":"))]
    single = set(range(len(every))) - {n for group in (*together, but) for n in group}
    drops = [[every[n] for n in group] for group in (*([n] for n in sorted(single)), *together)]

    def decorate(check: Check) -> Callable[[], None]:
        def test() -> None:
            with mpmath.workdps(60), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                wrong = [number for number, holds in enumerate(check()) if not holds]
                assert not wrong, f"points {wrong} lie outside"
                for dropped in drops:
                    with without(*dropped):
                        assert not all(check()), f"no point needs {dropped}"
                    for last in dropped if len(dropped) > 1 else ():
                        with without(*(slack for slack in dropped if slack != last)):
                            assert all(check()), f"{last} does not cover for the others"

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        vars(test).update(check=check, every=every, drops=drops)
        return test

    return decorate


def numbers(seed: int, count: int, *ranges: tuple[float, float]) -> list[tuple[float, ...]]:
    """Return points at random: each coordinate is uniform between two ends."""
    draw = random.Random(seed)
    return [tuple(draw.uniform(*ends) for ends in ranges) for _ in range(count)]
