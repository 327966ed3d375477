"""How many functions a piece of work calls: the same on every machine, unlike its time."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_each_call(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` at each call of a function, of Python's or of C's, in this thread.

    A garbage collection would call the finalizers of what earlier tests left, so none runs.
    """

    def on_event(_frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
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


def function_calls(work: Callable[[], object]) -> int:
    """Count the calls of functions while `work` runs."""
    count = 0

    def add() -> None:
        nonlocal count
        count += 1

    with on_each_call(add):
        work()
    return count
