"""How many functions a piece of work calls: the same on every machine, unlike its time."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


@contextmanager
def on_each_call(act: Callable[[], object], *, of_python: bool = False) -> Iterator[None]:
    """Call `act` at each call of a function in this thread, of Python's or of C's.

    With ``of_python`` only those count whose body Python runs.

    A garbage collection would call the finalizers of what earlier tests left, so none runs.
    """

    def on_event(_frame: object, event: str, _argument: object) -> None:
        if event == "call" or (event == "c_call" and not of_python):
            act()

    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()


def function_calls(work: Callable[[], object], *, of_python: bool = False) -> int:
    """Count the calls of functions while `work` runs, as `on_each_call`."""
    count = 0

    def add() -> None:
        nonlocal count
        count += 1

    with on_each_call(add, of_python=of_python):
        work()
    return count


def first_calls(folder: str, work: Callable[[], object]) -> list[tuple[CodeType, dict[str, Any]]]:
    """The calls of functions of a folder while ``work`` runs, each with its arguments by name.

    A generator counts once, though it resumes often. The arguments stay alive, so that their ids
    differ.
    """
    calls: list[tuple[CodeType, dict[str, Any]]] = []
    frames: set[FrameType] = set()

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and folder in code.co_filename and frame not in frames:
            frames.add(frame)
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            calls.append((code, {name: frame.f_locals[name] for name in names}))

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
