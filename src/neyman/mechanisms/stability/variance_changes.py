"""Compute exactly how far one more change can move the variance after k changes.

With the mean m of the other n - 1 rows, a row at y adds (n - 1) / n^2 (y - m)^2 to the variance
(the mean squared deviation). So replacing a row z by y moves the variance by (n - 1) / n^2
|(y - m)^2 - (z - m)^2|. `VarianceChanges.sensitivity` is the largest such number after k changes
[ST-12]. All sums are exact integers, in steps of the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class VarianceChanges:
    """Represent the variance of sorted rows on a grid.

    Args:
        rows: at least two sorted values, in steps from 0 to ``last``.
        last: the upper end of the grid.
    """

    rows: NDArray[np.int64]
    last: int

    @property
    def value(self) -> Fraction:
        """Return the variance, in squared steps."""
        n = len(self.rows)
        exact = self.rows.astype(object)
        return Fraction(int(n * (exact * exact).sum() - exact.sum() ** 2), n * n)

    def sensitivity(self, changes: int) -> Fraction:
        """Return the largest move of the variance by one more change after ``changes`` [ST-12].

        The unit is a squared step.
        """
        n = len(self.rows)
        best = max(self._one_side(changes), self._mirror._one_side(changes))
        # Divide by (n - 1)^2, and multiply by (n - 1) / n^2.
        return Fraction(best, (n - 1) * n * n)

    @cached_property
    def _mirror(self) -> VarianceChanges:
        return VarianceChanges((self.last - self.rows)[::-1].copy(), self.last)

    @cached_property
    def _sums(self) -> list[int]:
        return list(accumulate(self.rows.tolist(), initial=0))

    def _one_side(self, k: int) -> int:
        """Return the largest (n - 1)^2 |(y - m)^2 - (z - m)^2| after k rows become 0.

        Here a row z becomes y, and m is the mean of the other rows, which is small.
        """
        others = len(self.rows) - 1
        best = 0
        if k:  # the replaced row is a changed row: it moves from near m to the other end
            total = self._sums[others - (k - 1)]
            best = (others * self.last - total) ** 2 - self._least_square(total)
        # Or it is an original row z. Tied rows are equivalent, so each value counts once.
        distinct, places = self._distinct
        cut = others + 1 - min(k, others)  # the k largest of the others go to 0
        sums = self._sums
        for z, i in zip(distinct, places, strict=True):
            total = sums[cut] - z if i < cut else sums[cut - 1]
            away = (others * z - total) ** 2
            best = max(
                best, (others * self.last - total) ** 2 - away, away - self._least_square(total)
            )
        return best

    @cached_property
    def _distinct(self) -> tuple[list[int], list[int]]:
        """Return each distinct value, and the index of its first row."""
        values, places = np.unique(self.rows, return_index=True)
        return values.tolist(), places.tolist()

    def _least_square(self, total: int) -> int:
        """Return ((n - 1) (y - m))^2 for the grid point y closest to m = total / (n - 1)."""
        others = len(self.rows) - 1
        rest = total % others
        return min(rest, others - rest) ** 2
