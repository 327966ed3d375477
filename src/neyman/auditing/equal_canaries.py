"""Make a key for each canary. Two keys are equal if and only if their canaries are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any, cast

import numpy as np

from neyman.numerics.arrays import Array

Key = tuple[Any, ...]
"""A hashable key: the name of a kind, and the content that equal canaries share."""
MAX_EXACT_FLOAT = 2.0**53  # a float represents every whole number below it


class _ByEquality:
    """Wrap a value without a hash, and compare it by ==."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __eq__(self, other: object) -> bool:
        try:
            return bool(self.value == getattr(other, "value", self))
        except Exception as error:
            raise TypeError(
                f"canaries: two of type {type(self.value).__name__} cannot be compared by ==; "
                "give their numbers as arrays"
            ) from error


def key_of(canary: object) -> Key:
    """Return a canary's hashable key. 1 and 1.0 have one key, and so do 0.0 and -0.0."""
    if isinstance(canary, Mapping):
        entries = cast(Mapping[Any, Any], canary).items()
        return "mapping", frozenset((name, key_of(value)) for name, value in entries)
    if is_dataclass(canary) and not isinstance(canary, type):
        values = (key_of(getattr(canary, field.name)) for field in fields(canary))
        return "dataclass", type(canary), tuple(values)
    if hasattr(canary, "__array__"):
        return _array(np.asarray(canary))
    if isinstance(canary, Number):
        return _number(canary)
    if isinstance(canary, (list, tuple)):
        return _sequence(cast(Sequence[object], canary))
    try:
        hash(canary)
    except TypeError:
        return "unhashed", _ByEquality(canary)
    return "object", canary


def _number(value: Any) -> Key:
    try:
        near = float(value)
    except (OverflowError, ValueError):  # too large
        near = None
    except TypeError:  # complex
        near = None if value.imag else value.real
    if near is not None and (near == value or near != near):
        return _floats(np.array(near))
    return "exact", value


def _floats(values: Array) -> Key:
    floats = values.astype(float) + 0.0  # -0.0 becomes 0.0
    return "numbers", floats.shape, np.where(np.isnan(floats), np.nan, floats).tobytes()


def _sequence(values: Sequence[object]) -> Key:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):  # parts of unequal lengths
        array = None
    if array is not None and array.dtype.kind in "biuf" and _has_exact_integers(array):
        return _floats(array)
    return _sequence_key([key_of(value) for value in values])


def _sequence_key(keys: list[Key]) -> Key:
    """Return the key of a sequence, given the keys of its entries.

    If all entries are arrays of one shape, it equals the key of the whole array.
    """
    if keys and all(key[:2] == keys[0][:2] and key[0] == "numbers" for key in keys):
        return "numbers", (len(keys), *keys[0][1]), b"".join(key[2] for key in keys)
    return "sequence", tuple(keys)


def _has_exact_integers(array: Array) -> bool:
    """Return True if each number is so small that conversion to an array cannot have rounded it."""
    sizes = np.abs(array.astype(float))
    return array.dtype.itemsize <= 8 and bool((~(sizes >= MAX_EXACT_FLOAT) | np.isinf(sizes)).all())


def _array(array: Array) -> Key:
    kind = array.dtype.kind
    if kind in "biuf" and array.dtype.itemsize <= 8 and (kind == "f" or _has_exact_integers(array)):
        return _floats(array)
    if not array.ndim:
        item = array.item()
        is_numpy = isinstance(item, (np.generic, np.ndarray))
        return ("object", str(cast(object, item))) if is_numpy else key_of(item)
    return _sequence_key([key_of(part) for part in (array.tolist() if array.ndim == 1 else array)])
