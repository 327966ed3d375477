"""Private numbers as arrays: no content of the data raises an error, or moves another record."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_floats", "one_per_record", "vectors"]

Floats = NDArray[np.float64]


def one_per_record(name: str, values: object, *, relation: str) -> NDArray[Any]:
    """Return an array with one entry per record; its type and shape are checked, its content not.

    Args:
        name: of the argument.
        values: a sequence or array of one dimension.
        relation: under "replace-one" the number of records is public and must be at least 1.

    Raises:
        TypeError: the type of the array has no real numbers.
        ValueError: another shape, or no records where their number is public.
    """
    array = _array(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; it must have one number per record")
    return _some(name, array, relation)


def vectors(name: str, rows: object, *, relation: str) -> NDArray[Any]:
    """Return an array with one row per record; its type and shape are checked, its content not.

    Raises:
        TypeError, ValueError: as `one_per_record`.
    """
    array = _array(name, rows)
    if array.ndim != 2 or not array.shape[1]:
        raise ValueError(
            f"{name} has shape {array.shape}; it must have one row per record and at least one "
            "column"
        )
    return _some(name, array, relation)


def as_floats(array: NDArray[Any]) -> Floats:
    """Return each entry as a double, and NaN where it is no number; this never raises."""
    if array.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            return array.astype(np.float64)
    flat = np.fromiter((_number(entry) for entry in array.flat), np.float64, array.size)
    return flat.reshape(array.shape)


def _array(name: str, values: object) -> NDArray[Any]:
    if isinstance(values, (list, tuple)):
        # Entry by entry, so that no entry decides how another one is read.
        array = np.array(values, dtype=object)
    else:
        array = np.asarray(values)
    if array.dtype.kind not in "fiubO":
        raise TypeError(
            f"{name} has the type {array.dtype}; it must have real numbers, as an array or a list"
        )
    return array


def _some(name: str, array: NDArray[Any], relation: str) -> NDArray[Any]:
    if relation == "replace-one" and not len(array):
        raise ValueError(f"{name} has no records; give at least 1")
    return array


def _number(entry: Any) -> float:
    try:
        return float(entry)
    except OverflowError:
        return float("inf")
    except Exception:  # whatever an entry is, it must not raise
        return float("nan")
