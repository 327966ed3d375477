"""Clip gradients to a norm and round them to integers, each row by itself.

If a row is added or removed, the sum of a batch may change by at most the clipping norm. Two things
make this exact. The squared norm of each rounded row is checked in integers. And the result for a
row does not depend on the other rows: each float operation is a maximum, or works on single
elements, which IEEE arithmetic rounds the same in any position. Each sum is a sum of integers,
exact in any order [TR-1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """Hold the grid of clipped gradients, and limit the numbers processed at a time."""

    clip_units: int = 1 << 24  # units in the clipping norm
    parameters: int = 1 << 32
    rough_units: int = 1 << 20  # units of the first, rough measurement of a norm
    careful_units: int = 1 << 24  # units of the first measurement if ``careful``
    slice_squares: int = 1 << 14  # squares below 2^48 that are added up in 64 bits


LIMITS = Limits()


def clipped_sum(gradients: Floats, clip: float, grid: int) -> Lanes:
    """Return the sum of the clipped, rounded rows, in units of clip / grid.

    Args:
        gradients: one row per record, and one column per parameter.
        clip: the largest l2 norm of a row, above 0.
        grid: the number of units in ``clip``, at most `LIMITS.clip_units`.

    Returns:
        The sum. If a row is added or removed, it changes by a vector of l2 norm at most ``grid``.
    """
    rows, size = gradients.shape
    total = np.zeros(size, np.int64)
    most = max(1, (1 << 22) // max(size, 1))  # numbers processed at a time
    for start in range(0, rows, most):
        total += grid_rows(gradients[start : start + most], clip, grid).sum(axis=0)
    return total


def grid_rows(gradients: Floats, clip: float, grid: int, *, careful: bool = False) -> Lanes:
    """Return each row clipped and rounded to integer units, with a squared norm of at most grid^2.

    A row with an entry that is not finite becomes 0, because an error would reveal this row.

    Args:
        careful: if True, the margin covers the worst rounding. Then each entry of a clipped row is
            within `careful_error` of the exact clipped entry [EM-2].
    """
    size = gradients.shape[1]
    with np.errstate(all="ignore"):
        finite = np.isfinite(gradients).all(axis=1, keepdims=True)
        rows = np.where(finite, gradients, 0.0)
        peak = np.abs(rows).max(axis=1, initial=0.0)
        shape = rows / np.where(peak > 0, peak, 1.0)[:, None]
        first = LIMITS.careful_units if careful else LIMITS.rough_units
        rough = np.rint(shape * first).astype(np.int64)
        norm = peak * (np.sqrt(_rough_squares(rough)) / first)
        # Rounding may add half a unit per entry, so a row that is clipped ends a little below.
        margin = min(0.5 * size**0.5, 2.0 + size / (8 * grid)) + grid * 2.0**-20
        if careful:
            margin = _careful_margin(size, grid)
        factor = np.minimum(grid / clip, (grid - margin) / norm)
        scaled = np.nan_to_num(rows * factor[:, None], nan=0.0, posinf=0.0, neginf=0.0)
    scaled = np.clip(scaled, -grid, grid)
    values = np.rint(scaled).astype(np.int64)
    long = _squared_norms(values) > grid * grid
    if np.any(long):
        # Round toward zero, and a little shorter. A row that is still too long becomes 0.
        values[long] = np.trunc(scaled[long] * (1 - 2.0**-10)).astype(np.int64)
        values[_squared_norms(values) > grid * grid] = 0
    return values


def careful_error(size: int, grid: int) -> float:
    """Bound the distance of a rounded entry from the exact clipped entry, in units [EM-2].

    Args:
        grid: number of units in the clipping norm.
    """
    return 2 * _careful_margin(size, grid) + 0.5


def _careful_margin(size: int, grid: int) -> float:
    """Return a margin for a row's norm, in units: for rounding of entries and of the first norm."""
    # same: 1 + -> 2 +: Safe: the stated limit of the rounding of a row is larger, and so are
    # intervals.
    return 0.5 * size**0.5 * (1 + 1.01 * grid / LIMITS.careful_units) + 1.0


def _rough_squares(rows: Lanes) -> Floats:
    """Return each row's squared norm in floats, with a relative error of a few times 2^-53.

    The caller ensures that entries are at most 2^24. Slices of columns are summed exactly, and
    added in order.
    """
    total = np.zeros(len(rows), np.float64)
    for start in range(0, rows.shape[1], LIMITS.slice_squares):
        part = rows[:, start : start + LIMITS.slice_squares]
        total += (part * part).sum(axis=1).astype(np.float64)
    return total


def _squared_norms(rows: Lanes) -> Lanes:
    """Return each row's exact squared norm, or 2^61 if it is larger. Entries are at most 2^24."""
    total = np.zeros(len(rows), np.int64)
    for start in range(0, rows.shape[1], LIMITS.slice_squares):
        part = rows[:, start : start + LIMITS.slice_squares]
        total = np.minimum(total + (part * part).sum(axis=1), 1 << 61)
    return total
