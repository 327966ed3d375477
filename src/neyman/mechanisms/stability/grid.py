"""Place private values on a public grid, as integer numbers of steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.mechanisms.description import exact_above_zero
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, one_per_record

MAX_GRID_STEPS = 2**52  # floats hold these numbers, and sums of two
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """Represent the points lower, lower + step, ..., upper.

    Args:
        lower, upper: the ends, exact.
        step: above 0, exact. It divides upper - lower.
        last: upper in steps above lower, at least 1.
    """

    lower: Fraction
    upper: Fraction
    step: Fraction
    last: int

    @staticmethod
    def of(lower: object, upper: object, step: object, most: int = MAX_GRID_STEPS) -> Grid:
        """Return the grid of these public numbers, of at most ``most`` steps.

        Raises:
            ValueError: the numbers do not form a grid, or the grid has more steps.
        """
        low, high = check.exact("lower", lower), check.exact("upper", upper)
        width = exact_above_zero("step", step)
        if high <= low:
            raise ValueError(f"upper = {upper!r} must be above lower = {lower!r}")
        steps = (high - low) / width
        if steps.denominator != 1 or steps > most:
            raise ValueError(
                f"step = {step!r} must divide upper - lower = {high - low} into a whole number of "
                f"steps, at most {most:,}"
            )
        return Grid(low, high, width, int(steps))

    def steps(self, values: Iterable[Any]) -> Steps:
        """Return each value in steps above lower: rounded, clipped, and 0 if not a number."""
        return self.nearest(one_per_record("values", values, relation="any"))

    def nearest(self, array: NDArray[Any]) -> Steps:
        """Return the steps of `Grid.steps` for an array with one entry per record."""
        near = as_floats(array)
        with np.errstate(all="ignore"):
            place = (near - float(self.lower)) / float(self.step)
            place = np.clip(np.nan_to_num(place, nan=0.0), 0, self.last)
        return np.rint(place).astype(np.int64)

    def value(self, steps: Fraction | int) -> Fraction:
        """Return the number that is this number of steps (perhaps fractional) above lower."""
        return self.lower + self.step * steps


def row_count(steps: Steps, least: int) -> int:
    """Return the public number of rows.

    Raises:
        ValueError: there are fewer than ``least`` rows.
    """
    if len(steps) < least:
        raise ValueError(
            f"values has {len(steps)} rows; this statistic needs at least {least} (their number is "
            "public if rows are replaced)"
        )
    return len(steps)


def rank_of(level: object, rows: int) -> int:
    """Return ceil(q n) - 1, at least 0: the index of the q-quantile in n = ``rows`` sorted rows.

    Raises:
        ValueError: q, the ``level``, is not above 0 and at most 1.
    """
    q = check.exact("q", level)
    if not 0 < q <= 1:
        raise ValueError(f"q = {level!r} must be above 0 and at most 1")
    return max(-(-q.numerator * rows // q.denominator) - 1, 0)
