"""Compute exactly how far one more change can move an order statistic after k changes.

Let x(i) be the sorted rows, with lower before the first row and upper after the last. The largest
local sensitivity of x(r) at Hamming distance at most k is

    A(k) = max over 0 <= t <= k + 1 of x(r + t) - x(r + t - k - 1)      [ST-8].
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.roots import bisect_integers


@dataclass(frozen=True, eq=False)
class OrderStatistic:
    """Represent one order statistic, a row of the sorted rows on a grid.

    Args:
        rows: sorted values, in grid steps from 0 to ``last``.
        rank: r, from 0 to n - 1.
        last: the upper end of the grid.
    """

    rows: NDArray[np.int64]
    rank: int
    last: int

    @property
    def value(self) -> int:
        """Return the order statistic, in steps."""
        return int(self.rows[self.rank])

    def sensitivity(self, changes: int) -> int:
        """Return A(k) for k = ``changes``: the largest move by one more change, in steps [ST-8]."""
        first = self.rank - changes - 1
        window = self._rows_between(first, self.rank + changes + 2)
        return int((window[changes + 1 :] - window[: changes + 2]).max())

    def _rows_between(self, first: int, end: int) -> NDArray[np.int64]:
        """Return rows from index ``first`` to before ``end``, padded with the ends of the grid."""
        inner = self.rows[max(first, 0) : max(end, 0)]
        before, after = max(-first, 0), max(end - len(self.rows), 0)
        return np.concatenate([np.zeros(before, np.int64), inner, np.full(after, self.last)])

    def changes_above(self, bound: Fraction) -> int:
        """Return the smallest k with ``sensitivity(k)`` above ``bound``, at most n [ST-9].

        Args:
            bound: in steps, at least 0 and below ``last``.
        """
        return bisect_integers(lambda k: self.sensitivity(k) > bound, len(self.rows), -1)
