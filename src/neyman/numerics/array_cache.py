"""Cache results that hold arrays, up to one limit in bytes for the whole library.

Mark a function as `array_cache` if its arguments are values and alone decide its result. All such
functions share the limit. A question counts the operations of a small result once, and of a large
result at each use, stored or not. Therefore, no answer depends on earlier questions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from itertools import chain
from threading import Lock
from typing import Any, TypeVar, TypeVarTuple

import numpy as np

from neyman.numerics.operations import CALL, METER, apart, charge, in_question, question_meter

Arguments = TypeVarTuple("Arguments")
R = TypeVar("R")
LARGE_BYTES = 1 << 20  # size in bytes above which a result is dropped first, and each use counts
NUMBER_BYTES = 40  # approximate bytes of a number in a tuple
NUMBERS: set[type] = {bool, float, int, Fraction, type(None)}


@dataclass(slots=True)
class _CachedArrays:
    result: Any
    size: int
    operations: float
    cells: float  # cells of the largest array in the computation
    used: bool = True  # used since the cache last skipped it


class ArrayCache:
    """Store results by function and arguments. Drop the oldest, but skip a used result once.

    Args:
        most: largest size of all results together, in bytes.
    """

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0
        self._entries: OrderedDict[Hashable, _CachedArrays] = OrderedDict()
        self._large: OrderedDict[Hashable, _CachedArrays] = OrderedDict()  # dropped first
        self._lock = Lock()

    def get(self, key: Hashable) -> _CachedArrays | None:
        """Return the entry of a key and mark it as used. Return None if there is none."""
        known = self._entries.get(key)
        if known is not None:
            known.used = True
        return known

    def put(self, key: Hashable, entry: _CachedArrays) -> None:
        """Add an entry of at most a quarter of the limit. Drop entries until all fit in the limit.

        Entries above `LARGE_BYTES` are dropped first. Otherwise, the oldest unused entry is
        dropped.
        """
        with self._lock:
            if entry.size <= self.most // 4 and self._entries.setdefault(key, entry) is entry:
                self.held += entry.size
                if entry.size > LARGE_BYTES:
                    self._large[key] = entry
            while self.held > self.most:
                entries = self._large or self._entries
                oldest, known = next(iter(entries.items()))
                if known.used:
                    known.used = False
                    entries.move_to_end(oldest)
                else:
                    self.held -= self._entries.pop(oldest).size
                    self._large.pop(oldest, None)

    def clear(self) -> None:
        """Drop all results."""
        with self._lock:
            self._entries.clear()
            self._large.clear()
            self.held = 0


CACHE = ArrayCache(128 << 20)


def array_cache(function: Callable[[*Arguments], R]) -> Callable[[*Arguments], R]:
    """Decorate a function to store its results in the cache.

    Args:
        function: a function of hashable values, which alone decide its result. Callers must not
            change the result.

    A result above a quarter of the limit is computed each time. Threads may share the cache.
    """

    @wraps(function)
    def cached(*args: *Arguments) -> R:
        meter = METER.get()
        if meter is None:
            with question_meter():
                return cached(*args)
        key = (function, args)
        # A memory makes a result cost less after others: it is of the question, too.
        if args and getattr(args[0], "has_memory", False):
            return in_question(key, lambda: function(*args))
        known, paid = CACHE.get(key), meter.paid
        if key in paid:
            if known is not None:
                return known.result
            with apart():  # the cache dropped it meanwhile: do not count it again
                return function(*args)
        # A result that would exceed the limit is computed again, and stops at the same place.
        if known is not None and (not meter.strict or meter.fits(known.operations, known.cells)):
            charge(known.operations, known.cells)
            if known.size <= LARGE_BYTES:
                paid.add(key)
            return known.result
        before, most_cells = meter.count + meter.spared, meter.most_cells
        # Count everything within it, so that its operations do not depend on the question.
        meter.paid, meter.most_cells = set(), 0.0
        try:
            result = function(*args)
        finally:
            cells, meter.most_cells = meter.most_cells, max(most_cells, meter.most_cells)
            meter.paid = paid
        if known is None:
            operations = meter.count + meter.spared - before
            # The key and the entry's containers take about 2048 bytes.
            known = _CachedArrays(result, 2048 + _bytes(result), operations, cells)
            CACHE.put(key, known)
        if known.size <= LARGE_BYTES:
            paid.add(key)
        return result

    return cached


def counted(result: R) -> R:
    """Charge the operations of a cached ``result``, by its size in bytes, and return it."""
    charge(CALL + 8 * _bytes(result))
    return result


def _bytes(value: object) -> int:
    """Estimate the bytes of a value's arrays, numbers, and texts. A repeated object counts once."""
    total, identities = 0, set[int]()
    values: list[Any] = [value]
    for one in values:  # it grows
        kind = type(one)  # pyright: ignore[reportUnknownVariableType]
        total += NUMBER_BYTES
        if kind in NUMBERS or id(one) in identities:
            continue
        identities.add(id(one))
        if kind is np.ndarray:
            total += one.nbytes
        elif kind is tuple or kind is list:
            kinds = {*map(type, one)}
            total += NUMBER_BYTES * len(one)
            if kinds == {tuple} and _is_table(one):
                total += len(one) * _bytes(one[0])
            elif not kinds <= NUMBERS:
                values += one
        elif kind is dict:
            values += one.values()
        elif kind is str:
            total += len(one)
        elif kind.__module__.startswith("neyman"):
            fields: dict[str, Any] = getattr(one, "__dict__", {})
            values += fields.values()
            if tuple in kind.__mro__:
                values += one
    return total


def _is_table(rows: tuple[tuple[object, ...], ...]) -> bool:
    """Return True if all rows have the same length and contain only numbers."""
    return len({*map(len, rows)}) == 1 and {*map(type, chain(*rows))} <= NUMBERS
