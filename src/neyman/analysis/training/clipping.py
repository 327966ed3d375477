"""Gradients clipped to a norm and rounded to whole numbers, each row by itself.

The sum of a batch may change by no more than the clipping norm when a row comes or goes. Two things
make that exact. The squared norm of each rounded row is checked in integers, whatever floating
point did before. And nothing that a row becomes depends on the other rows: every operation on
floats is one on single elements, which IEEE arithmetic rounds the same in any place, or a maximum;
every sum is one of integers, whose order is of no matter [TR-1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """The grid of clipped gradients, and the numbers worked on at a time."""

    clip_units: int = 1 << 24  # units in the clipping norm
    parameters: int = 1 << 32
    rough_units: int = 1 << 20  # units of the first, rough measurement of a norm
    careful_units: int = 1 << 24  # the same where no row may end shorter than rounding needs
    batch_numbers: int = 1 << 22  # numbers worked on at a time
    slice_squares: int = 1 << 14  # squares below 2^48 that are added up in 64 bits


LIMITS = Limits()


def clipped_sum(gradients: Floats, clip: float, grid: int) -> Lanes:
    """Return the sum of the clipped, rounded rows, in units of clip / grid.

    Args:
        gradients: one row per record, and one column per parameter.
        clip: the largest l2 norm of a row, above 0.
        grid: the number of units in ``clip``, at most `LIMITS.clip_units`.

    Returns:
        A sum that differs by a vector of l2 norm at most ``grid`` if a row comes or goes.
    """
    rows, size = gradients.shape
    total = np.zeros(size, np.int64)
    most = max(1, LIMITS.batch_numbers // max(size, 1))
    for start in range(0, rows, most):
        total += grid_rows(gradients[start : start + most], clip, grid).sum(axis=0)
    return total


def grid_rows(gradients: Floats, clip: float, grid: int, *, careful: bool = False) -> Lanes:
    """Return each row clipped and rounded to whole units; its squared norm is at most grid^2.

    A row with an entry that is not finite becomes 0: an error would reveal that there is one.

    Args:
        careful: if True, the margin covers the worst rounding, so that no entry of a clipped row is
            farther than `careful_error` from the real one [EM-2].
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
        # Toward zero, and a little shorter. What floating point still left too long becomes 0.
        values[long] = np.trunc(scaled[long] * (1 - 2.0**-10)).astype(np.int64)
        values[_squared_norms(values) > grid * grid] = 0
    return values


def careful_error(size: int, grid: int) -> float:
    """Return the most units between an entry of a real clipped row and its whole number [EM-2].

    Args:
        grid: units in the clipping norm.
    """
    return 2 * _careful_margin(size, grid) + 0.5


def _careful_margin(size: int, grid: int) -> float:
    """Half a unit per entry, what the rough norm may be short of, and floating point."""
    return 0.5 * size**0.5 * (1 + 1.01 * grid / LIMITS.careful_units) + 1.0


def _rough_squares(rows: Lanes) -> Floats:
    """Return the squared norm of each row of whole numbers up to 2^24, to a few units of 2^-53.

    Each slice has an exact sum, and slices are added in order: each row by itself.
    """
    total = np.zeros(len(rows), np.float64)
    for start in range(0, rows.shape[1], LIMITS.slice_squares):
        part = rows[:, start : start + LIMITS.slice_squares]
        total += (part * part).sum(axis=1).astype(np.float64)
    return total


def _squared_norms(rows: Lanes) -> Lanes:
    """Return the exact squared norm of each row of whole numbers up to 2^24, or 2^61 if larger."""
    total = np.zeros(len(rows), np.int64)
    for start in range(0, rows.shape[1], LIMITS.slice_squares):
        part = rows[:, start : start + LIMITS.slice_squares]
        total = np.minimum(total + (part * part).sum(axis=1), 1 << 61)
    return total
