"""A cache of results that hold arrays: its limit is in bytes, not in entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from threading import Lock
from typing import TypeVar, TypeVarTuple, cast

import numpy as np

from neyman.numerics.arrays import Array
from neyman.numerics.operations import CALL, charge

__all__ = ["array_cache"]

Arguments = TypeVarTuple("Arguments")
R = TypeVar("R")
CELL = 8.0  # operations for each byte of a result
LEAST = 512  # bytes of an entry without arrays


def array_cache(most: int) -> Callable[[Callable[[*Arguments], R]], Callable[[*Arguments], R]]:
    """Return a decorator that keeps the latest results of a function, up to ``most`` bytes.

    Args:
        most: bytes of the arrays in the fields of all results together, as they are returned. A
            result above a quarter of it is computed each time.

    The function takes hashable positional arguments and returns an object with arrays as
    attributes, or a tuple of arrays. Threads may share it.
    """

    def decorate(function: Callable[[*Arguments], R]) -> Callable[[*Arguments], R]:
        results: OrderedDict[Hashable, tuple[R, int]] = OrderedDict()
        lock = Lock()
        held = 0

        @wraps(function)
        def cached(*args: *Arguments) -> R:
            nonlocal held
            with lock:
                known = results.get(args)
                if known is not None:
                    results.move_to_end(args)
            if known is not None:  # it counts as when it was computed: no history decides
                charge(CALL + CELL * known[1])
                return known[0]
            result = function(*args)
            size = _bytes(result)
            charge(CALL + CELL * size)
            if size > most // 4:
                return result
            with lock:
                if args not in results:
                    results[args] = result, size
                    held += size
                while held > most:
                    held -= results.popitem(last=False)[1][1]
            return result

        return cached

    return decorate


def _bytes(value: object) -> int:
    parts = cast("Iterable[object]", value if isinstance(value, tuple) else vars(value).values())
    return LEAST + sum(cast("Array", part).nbytes for part in parts if isinstance(part, np.ndarray))
