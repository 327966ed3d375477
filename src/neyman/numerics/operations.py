"""Operations of one question: what its arrays cost, and where its engines have to stop.

The functions that take time count their work before they do it: cells of arrays, and a fixed number
for a call. An engine is asked within `bounded`. There a count beyond what is left raises
`OperationLimit`, and so does an array that memory should not hold. The caller of the engine catches
this and takes the bounds that are there. Time never decides: a question has one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

__all__ = [
    "CALL",
    "Meter",
    "OperationLimit",
    "bounded",
    "cells",
    "charge",
    "limit",
    "noted",
    "question",
    "spare",
]

MOST_OPERATIONS = 1.2e10  # of a question: some six seconds of one core
RESERVE = 0.25  # of these, for bounds from what is there when they are used up
MOST_CELLS = 1 << 22  # of one array beside which others of its size stand: 32 MiB each
CALL = 2e4  # operations of one call of NumPy functions on short arrays
NOTE = "stopped at its limit of operations"

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


class OperationLimit(Exception):
    """A question has no operations left for what an engine would do."""


@dataclass
class Meter:
    """Counts the operations of a question.

    Args:
        most: operations that its engines may take.
        reserve: further ones for bounds from what is there.
        count: those that were taken.
        reached: whether an engine had to stop.
        strict: whether an operation beyond the most raises.
        spare: whether the reserve may be used, too.
    """

    most: float
    reserve: float
    count: float = 0.0
    reached: bool = False
    strict: bool = False
    spare: bool = False

    def part(self, share: float) -> Meter:
        """A meter with a share of what is left."""
        left = max(self.most - self.count, 0.0)
        rest = min(max(self.most + self.reserve - self.count, 0.0), self.reserve)
        return Meter(share * left, share * rest, strict=self.strict, spare=self.spare)

    def add(self, count: float, cells: float) -> None:
        """Count operations, and refuse those beyond the most and arrays that are too large."""
        self.count += count
        most = self.most + (self.reserve if self.spare else 0.0)
        if self.strict and (self.count > most or cells > MOST_CELLS):
            self.reached = True
            raise OperationLimit


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""The meter of the question that this thread answers; None between two questions."""


def charge(count: float) -> None:
    """Count operations that are about to be done.

    Raises:
        OperationLimit: an engine asks for more than is left.
    """
    meter = _METER.get()
    if meter is not None:
        meter.add(count, 0.0)


def cells(count: float) -> None:
    """Say how many cells an array is about to have.

    Raises:
        OperationLimit: an engine asks for more than memory should hold.
    """
    meter = _METER.get()
    if meter is not None:
        meter.add(0.0, count)


@contextmanager
def limit(share: float = 1.0) -> Iterator[Meter]:
    """Give the block a share of the operations that are left; all where nothing was asked yet.

    What the block takes counts for the meter around it, too.
    """
    outer = _METER.get()
    meter = (
        Meter(MOST_OPERATIONS, RESERVE * MOST_OPERATIONS) if outer is None else outer.part(share)
    )
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)
        if outer is not None:
            outer.count += meter.count
            outer.reached |= meter.reached


@contextmanager
def bounded() -> Iterator[None]:
    """Within the block operations beyond the most raise `OperationLimit`."""
    with limit() as meter:
        meter.strict = True
        yield


@contextmanager
def spare() -> Iterator[None]:
    """Within the block the reserve may be used: for bounds from what is there."""
    with limit() as meter:
        meter.spare = True
        yield


def noted(method: str) -> str:
    """The method of an answer, with a note if an engine had to stop on the way to it."""
    meter = _METER.get()
    return f"{method}; {NOTE}" if meter is not None and meter.reached else method


def question(ask: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Give a method that answers a question its operations, as a decorator.

    The answer at which an engine had to stop is kept with the object: asked again, when more has
    been computed, the question has the same answer.
    """

    @wraps(ask)
    def answer(self: S, *args: P.args, **options: P.kwargs) -> R:
        if _METER.get() is not None:  # a part of another question
            return ask(self, *args, **options)
        known: dict[str, R] = vars(self).setdefault("_stopped", {})
        name = f"{ask.__name__} {args!r} {options!r}"
        if name in known:
            return known[name]
        with limit() as meter:
            result = ask(self, *args, **options)
        if meter.reached:
            known[name] = result
        return result

    return answer
