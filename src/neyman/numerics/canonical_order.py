"""Order values canonically, so that the order in which a sum is written does not matter."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any, cast


def order_key(value: object) -> tuple[Any, ...]:
    """Return a value's sort key: its class's name, then its exact fields in order.

    A number of any type sorts by the digits of its numerator, then of its denominator. A tuple
    sorts entry by entry. An object whose first field is a ``mechanism`` sorts right after that
    mechanism. The JSON of mechanisms uses this order since version 0.1.0. Fields that ``==``
    ignores do not count: two keys are equal if and only if the values are.

    Args:
        value: a number, text, None, or a tuple or frozen dataclass of such values.

    Raises:
        TypeError: the value has no canonical order.
    """
    if value is None:
        return (0,)
    if isinstance(value, (int, float, Fraction)):
        ratio = (value,) if abs(value) == math.inf else value.as_integer_ratio()
        return 1, *map(str, ratio)
    if isinstance(value, str):
        return 2, value
    if isinstance(value, tuple):
        entries = cast("tuple[object, ...]", value)
        return 3, *[
            (1, *map(str, entry.as_integer_ratio()))
            if isinstance(entry, float) and entry - entry == 0  # finite: most entries are
            else order_key(entry)
            for entry in entries
        ]
    kind = type(value)
    built, names = _names(kind)
    start = order_key(getattr(value, names[0])) if built else (4,)
    rest = names[1:] if built else names
    return *start, kind.__name__, kind.__module__, *[order_key(getattr(value, n)) for n in rest]


@cache
def _names(kind: type[object]) -> tuple[bool, tuple[str, ...]]:
    """Return True if a class's first compared field is ``mechanism``, and all compared names."""
    if not is_dataclass(kind):
        raise TypeError(
            f"a {kind.__name__} has no canonical order: make its class a frozen dataclass"
        )
    names = tuple(field.name for field in fields(kind) if field.compare)
    return names[:1] == ("mechanism",), names
