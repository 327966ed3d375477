"""Compute smooth sensitivity: the smallest smooth upper bound on the local sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from neyman.curves.tradeoff.enclosure import exponential
from neyman.mechanisms.description import exact_above_zero
from neyman.mechanisms.stability.grid import Grid, rank_of, row_count
from neyman.mechanisms.stability.order_statistics import OrderStatistic
from neyman.mechanisms.stability.variance_changes import VarianceChanges
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import above, below

Exact = float | Fraction | str
LOG_TOLERANCE = 1e-9  # logarithms in floats that are closer are compared exactly


@dataclass(frozen=True)
class SmoothSensitivity:
    """Store a statistic and its smooth sensitivity S = max e^{-smoothness k} A(k): **private**.

    Args:
        value: the exact statistic.
        smoothness: beta.
        changes: the k at which e^{-beta k} A(k) is largest.
        local: A(k) at this k, the largest local sensitivity after k changes, exact.
    """

    value: Fraction
    smoothness: Fraction
    changes: int
    local: Fraction

    @property
    def bound(self) -> Bound:
        """Return proven bounds on S. Use ``upper``."""
        low, high = (e * self.local for e in exponential(-self.smoothness * self.changes))
        return Bound(below(low), above(high), "upper", "largest of e^(-beta k) A(k)")

    def __float__(self) -> float:
        return self.bound.upper


class SmoothSensitivities:
    """Compute S(x) = max over k of e^{-beta k} A(k), the beta-smooth sensitivity of a statistic.

    A(k) is the largest local sensitivity of any dataset that differs from x in at most k records.
    Records are replaced, and values are on a public grid. A(k) is computed exactly, in integers. S
    is at least the local sensitivity, and log S changes by at most beta between neighbors. S is the
    smallest such function [ST-13].

    The results are private: S depends on the data, and so does an interval from S.

    Examples:
        >>> import neyman as ny
        >>> ages = [23, 25, 31, 34, 38, 41, 44, 52, 67]
        >>> s = ny.smooth_sensitivity.median(ages, lower=0, upper=120, smoothness=0.5)
        >>> s.changes, s.local, round(float(s), 3)
        (4, Fraction(82, 1), 11.097)
    """

    def median(
        self,
        values: Iterable[Any],
        *,
        lower: Exact,
        upper: Exact,
        smoothness: Exact,
        step: Exact = 1,
    ) -> SmoothSensitivity:
        """Return the smooth sensitivity of the median. Of two middle rows, use the lower.

        Args:
            values: one number per row. Each is rounded and clipped to the grid, or becomes `lower`
                if it is not a number.
            lower, upper, step: the public grid, in the units of the values.
            smoothness: beta, above 0.

        Returns:
            A `SmoothSensitivity`.

        Raises:
            ValueError: there is no row, the grid is invalid, or smoothness is not above 0.
        """
        half = Fraction(1, 2)
        return self.quantile(
            values, half, lower=lower, upper=upper, smoothness=smoothness, step=step
        )

    def quantile(
        self,
        values: Iterable[Any],
        q: Exact,
        *,
        lower: Exact,
        upper: Exact,
        smoothness: Exact,
        step: Exact = 1,
    ) -> SmoothSensitivity:
        """Return the smooth sensitivity of the q-quantile, the row of rank ceil(q n).

        Args:
            values, lower, upper, step, smoothness: as for `median`.
            q: above 0 and at most 1.
        """
        grid, beta = Grid.of(lower, upper, step), exact_above_zero("smoothness", smoothness)
        rows = np.sort(grid.steps(values))
        statistic = OrderStatistic(rows, rank_of(q, row_count(rows, 1)), grid.last)
        changes, local = _largest(statistic.sensitivity, len(rows), beta)
        return SmoothSensitivity(grid.value(statistic.value), beta, changes, local * grid.step)

    def variance(
        self,
        values: Iterable[Any],
        *,
        lower: Exact,
        upper: Exact,
        smoothness: Exact,
        step: Exact = 1,
    ) -> SmoothSensitivity:
        """Return the smooth sensitivity of the variance, the mean squared deviation from the mean.

        For many rows and any data, S is at least about 1/8 of the global sensitivity (n - 1) / n^2
        (upper - lower)^2 [ST-12]. So smoothness gains little.

        Args:
            values, lower, upper, step, smoothness: as for `median`, with at least 2 rows.
        """
        grid, beta = Grid.of(lower, upper, step), exact_above_zero("smoothness", smoothness)
        rows = np.sort(grid.steps(values))
        statistic = VarianceChanges(rows, grid.last)
        changes, local = _largest(statistic.sensitivity, row_count(rows, 2), beta)
        square = grid.step**2
        return SmoothSensitivity(statistic.value * square, beta, changes, local * square)


def _largest(
    sensitivity: Callable[[int], int | Fraction], rows: int, beta: Fraction
) -> tuple[int, Fraction]:
    """Return the k with the largest e^{-beta k} A(k), and A(k), for nondecreasing A [ST-13].

    A(k) is ``sensitivity`` at k, for k from 0 to ``rows``. Between k1 and k2, no term is above
    e^{-beta k1} A(k2), so most terms are never computed.
    """
    rate = float(beta)
    terms: dict[int, Fraction] = {}
    logs: dict[int, float] = {}

    def log_at(k: int) -> float:
        if k not in terms:
            terms[k] = Fraction(sensitivity(k))
            logs[k] = _log(terms[k]) - rate * k
        return logs[k]

    best = max(log_at(0), log_at(rows))
    open_ = [(0, rows)]
    while open_:
        first, last = open_.pop()
        if last - first < 2 or _log(terms[last]) - rate * (first + 1) < best - LOG_TOLERANCE * (
            1 + abs(best)
        ):
            continue
        middle = (first + last) // 2
        best = max(best, log_at(middle))
        open_ += [(middle, last), (first, middle)]
    slack = LOG_TOLERANCE * (1 + abs(best) + rate * rows * 1e-6)
    near = sorted(k for k, value in logs.items() if value >= best - slack)
    chosen = near[0]
    for k in near[1:]:
        # e^{-beta (k - chosen)} A(k) > A(chosen). Equality is impossible: e^rational is irrational.
        if exponential(-beta * (k - chosen))[0] * terms[k] > terms[chosen]:
            chosen = k
    return chosen, terms[chosen]


def _log(x: Fraction) -> float:
    return math.log(x.numerator) - math.log(x.denominator) if x else -math.inf


smooth_sensitivity = SmoothSensitivities()
