"""Rounding slacks of the certified core: each place where a bound is moved by units of rounding.

A slack is one name ``UNIT`` in a module. A comment at its line, ``# slack: LABEL``, names the test
that shows it, as in ``test_LABEL``. It reads "counted" if a comment counts the roundings instead,
and "open" if nothing does. Slacks of one line have labels in their order, with a semicolon between
two. A mark moves with its line, so no test knows the file of a slack.

`without` runs the library with 0 in the place of a slack. `needed` asks two things of a bound: the
exact number lies inside, and without the slack it does not.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import math
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import mpmath
import numpy as np
from mpmath import mpf

import neyman
from neyman.curves import Interval, Profile
from neyman.numerics.array_cache import CACHE

SOURCE = Path(neyman.__file__).parent
MARK = re.compile(r"# slack: (.+)")


class Slack(NamedTuple):
    """The name ``UNIT`` at one place, with the labels of its mark."""

    file: str
    line: int
    column: int
    labels: tuple[str, ...]


@cache
def slacks() -> tuple[Slack, ...]:
    """Return the slacks of the library: every ``UNIT`` that stands for a rounding."""
    return tuple(
        slack
        for path in sorted(SOURCE.rglob("*.py"))
        for slack in marked(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
    )


def marked(file: str, source: str) -> Iterator[Slack]:
    """Return the slacks of a source. A mark is at the end of their line, or above the line."""
    tree, lines = ast.parse(source), source.splitlines()
    roundings = any(_names_the_unit(node) for node in tree.body)
    places: dict[int, list[int]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name("UNIT", ast.Load()) if roundings:
                places.setdefault(node.lineno, []).append(node.col_offset)
    marks = 0
    for line, columns in sorted(places.items()):
        first = line
        while lines[first - 2].lstrip().startswith("#"):
            first -= 1
        texts = [MARK.search(text) for text in lines[first - 1 : line]]
        parts = " ".join(text[1] for text in texts if text).split("; ")
        marks += sum(text is not None for text in texts)
        assert parts[0], f"no mark at {file}:{line}"
        assert len(parts) in (1, len(columns)), f"too few labels at {file}:{line}"
        parts = parts if len(parts) > 1 else parts * len(columns)
        for column, part in zip(sorted(columns), parts, strict=True):
            yield Slack(file, line, column, tuple(part.split(", ")))
    assert marks == sum(map(bool, map(MARK.search, lines))), f"a mark without a slack in {file}"


def _names_the_unit(node: ast.stmt) -> bool:
    match node:
        case ast.ImportFrom(module=str(module), names=names):
            return "numerics" in module and any(each.name == "UNIT" for each in names)
        case ast.Assign(targets=[ast.Name("UNIT")], value=ast.BinOp(op=ast.Pow())):
            return True
    return False


@contextmanager
def without(*dropped: Slack) -> Iterator[None]:
    """Run the library with 0 in the place of slacks, in every module that uses their functions."""
    with ExitStack() as stack:
        for file in {slack.file for slack in dropped}:
            lines = (SOURCE / file).read_bytes().splitlines(keepends=True)
            for _, line, column, _ in (slack for slack in dropped if slack.file == file):
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


def needed(check: Check) -> Callable[[], None]:
    """Make a test of a check that compares bounds with exact numbers, point by point.

    Every point holds. Without any one slack that is marked with the name of the check at least one
    point fails. A letter marks a group whose slacks cover for one another: without one of them
    every point holds, and without all of them at least one fails.
    """
    label = check.__name__.removeprefix("test_")

    def test() -> None:
        groups: dict[object, list[Slack]] = {}
        for slack in slacks():
            for name, _, group in (each.partition("/") for each in slack.labels):
                if name == label:
                    groups.setdefault(group or slack, []).append(slack)
        assert groups, f"no slack has the mark {label}"
        with mpmath.workdps(60), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            wrong = [number for number, holds in enumerate(check()) if not holds]
            assert not wrong, f"points {wrong} lie outside"
            for dropped in groups.values():
                with without(*dropped):
                    assert not all(check()), f"no point needs {dropped}"
                for one in dropped if len(dropped) > 1 else ():
                    with without(one):
                        assert all(check()), f"the others do not cover for {one}"

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    vars(test).update(label=label)
    return test


def numbers(seed: int, count: int, *ranges: tuple[float, float]) -> list[tuple[float, ...]]:
    """Return points at random: each coordinate is uniform between two ends."""
    draw = random.Random(seed)
    return [tuple(draw.uniform(*ends) for ends in ranges) for _ in range(count)]


def held(bound: Any, exact: mpf) -> bool:
    """Whether a number lies between the ends of a bound: floats, or arrays of one."""
    ends = (bound.lower, bound.upper) if hasattr(bound, "lower") else bound
    low, high = (float(np.ravel(end)[0]) for end in ends)
    return low <= exact <= high


def log_kernel(c: float) -> mpf:
    """The logarithm of the largest c^c / (1 + c)^(1 + c), which Chernoff's bound of delta has."""
    return c * mpmath.log(c) - (mpf(c) + 1) * mpmath.log1p(c)


class Known(Profile):
    """One pair whose profile is log delta = a - b epsilon, exact at a few digits."""

    method = "closed form"

    def __init__(self, start: float, slope: float) -> None:
        self.start, self.slope = start, slope

    def log_delta(self, epsilon: float) -> Interval:
        exact = mpf(self.start) - mpf(self.slope) * epsilon
        return self._ends(exact)

    def _ends(self, exact: mpf) -> Interval:
        near = float(exact)
        low = near if near <= exact else math.nextafter(near, -math.inf)
        return low, low if low == exact else math.nextafter(low, math.inf)

    def log_power(self, log_level: float) -> Interval:
        return self._ends(mpf(self.start) - mpf(self.slope) * log_level)

    def epsilon_near(self, log_delta: float) -> float:
        return max((self.start - log_delta) / self.slope, 0.0)


class Perfect(Known):
    """P = Q: delta = 1 - e^epsilon, a straight line in e^epsilon."""

    def log_delta(self, epsilon: float) -> Interval:
        return self._ends(mpmath.log(-mpmath.expm1(epsilon))) if epsilon < 0 else (-math.inf,) * 2
