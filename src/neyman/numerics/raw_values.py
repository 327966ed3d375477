"""Read records as arrays. An invalid entry raises no error, is not shown, and affects no other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from neyman.numerics import check
from neyman.numerics.relation import Neighboring, Relation, size_known

Floats = NDArray[np.float64]


def one_per_record(name: str, values: object, *, relation: Relation) -> NDArray[Any]:
    """Return an array with one number per record.

    An array's type and shape are checked, but not its content. In a list or another sequence, each
    entry is read separately, and is NaN if it is no number.

    Args:
        name: name of the argument.
        values: an array of one dimension, or a sequence.
        relation: under "replace-one" the number of records is public and must be at least 1.

    Raises:
        TypeError: the array's type has no real numbers, or the records have no order.
        ValueError: the shape is wrong, or there are no records although their number is public.
    """
    if not _is_array(values):
        entries = in_order(name, values)
        return _some(name, np.fromiter(map(_number, entries), np.float64, len(entries)), relation)
    array = _array(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; it must have one number per record")
    return _some(name, array, relation)


def vectors(
    name: str, rows: object, *, relation: Neighboring, dimension: int | None = None
) -> NDArray[Any]:
    """Return an array with one row per record.

    An array's type and shape are checked, but not its content. From a list, the result has
    ``dimension`` columns, and a record of another length or type is all NaN. Thus no record decides
    the shape of the result.

    Args:
        name: name of the argument.
        rows: an array of two dimensions, or a sequence of rows.
        relation: under "replace-one" the number of records is public and must be at least 1.
        dimension: the number of columns, required for a list.

    Raises:
        TypeError, ValueError: as `one_per_record`; or a list has no dimension, or an array has
            another one.
    """
    columns = None if dimension is None else check.integer("dimension", dimension, 1)
    if _is_array(rows):
        array = _array(name, rows)
        if array.ndim != 2 or not array.shape[1]:
            raise ValueError(
                f"{name} has shape {array.shape}; it must have one row per record and at least one "
                "column"
            )
        if columns not in (None, array.shape[1]):
            raise ValueError(
                f"dimension = {columns}, and {name} has {array.shape[1]} columns; they must agree"
            )
        return _some(name, array, relation)
    records = in_order(name, rows)
    if columns is None:
        raise TypeError(
            f"{name} is a {type(rows).__name__} of rows, and no record may decide its number of "
            "columns; give dimension=, or a NumPy array of shape (n, d)"
        )
    read = np.full((len(records), columns), np.nan)
    for k, record in enumerate(records):
        numbers = _numbers(record, columns + 1)
        if len(numbers) == columns:
            read[k] = numbers
    return _some(name, read, relation)


def entries_of(name: str, values: object) -> NDArray[Any]:
    """Return an array with one unchanged entry per record. Each entry of a list is read separately.

    Raises:
        TypeError: the records have no order.
        ValueError: an array has another number of dimensions.
    """
    if _is_array(values):
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(f"{name} has shape {array.shape}; it must have one entry per record")
        return array
    entries = in_order(name, values)
    array = np.empty(len(entries), object)
    for k, entry in enumerate(entries):
        array[k] = entry
    return array


def array_of(name: str, values: object, kinds: str, axes: int) -> NDArray[Any]:
    """Return an array of these kinds of numbers and this number of axes. An error shows no value.

    Raises:
        TypeError: the values are no such array, such as rows of different lengths.
    """
    with suppress(ValueError):
        array = np.asarray(values)
        if array.ndim == axes and (not array.size or array.dtype.kind in kinds):
            return array
    what = {"iu": "whole numbers", "b": "truth values"}.get(kinds, "numbers")
    raise TypeError(f"{name} must be {'a list' if axes == 1 else 'rows'} of {what}")


def as_floats(array: NDArray[Any]) -> Floats:
    """Return each entry as a double, or NaN if it is not a number. This never raises an error."""
    if array.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            return array.astype(np.float64)
    flat = np.fromiter((_number(entry) for entry in array.flat), np.float64, array.size)
    return flat.reshape(array.shape)


def _is_array(values: object) -> bool:
    return hasattr(values, "dtype") or hasattr(values, "ndim")


def _array(name: str, values: object) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "fiubO":
        raise TypeError(
            f"{name} has the type {array.dtype}; it must have real numbers, as an array or a list"
        )
    return array


def in_order(name: str, values: object) -> list[Any]:
    """Return the records as a list, in order.

    An error message shows only the type of the records.
    """
    items = cast("Iterable[Any]", values)
    if not isinstance(values, (str, bytes, Mapping, AbstractSet)):
        try:
            return list(items)
        except TypeError:
            pass
    raise TypeError(
        f"{name} is a {type(items).__name__}; it must be an array or a sequence of records"
    )


def _some(name: str, array: NDArray[Any], relation: Relation) -> NDArray[Any]:
    if size_known(relation) and not len(array):
        raise ValueError(f"{name} is empty: give at least 1 record")
    return array


def _numbers(record: Any, most: int) -> list[float]:
    """Return at most ``most`` numbers of a record, or [] if it cannot be read."""
    try:
        return [_number(entry) for entry in islice(record, most)]
    except Exception:  # no record may raise an error
        return []


def _number(entry: object) -> float:
    try:
        if isinstance(entry, (complex, np.complexfloating)):
            return math.nan
        return _double(entry)
    except Exception:  # no entry may raise an error
        return math.nan


def _double(entry: Any) -> float:
    try:
        return float(entry)
    except OverflowError:
        return math.inf if entry > 0 else -math.inf
