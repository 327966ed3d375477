"""Published tables: noisy values with their error, and the bytes of their files.

Everything here is computed from noisy integers and public numbers; nothing private comes in.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from neyman.release.plan import Plan
from neyman.release.plan.resolve import Query

__all__ = ["build", "csv_bytes", "half_width", "parquet_bytes", "standard_error"]

Integers = NDArray[np.int64]

_WIDE = 50.0
_SUMMED = 1e6


@lru_cache(maxsize=256)
def standard_error(sigma_squared: Fraction) -> float:
    """Standard deviation of N_Z(0, sigma^2), a little below sigma.

    By Poisson summation the two differ by a relative 8 pi^2 sigma^2 e^(-2 pi^2 sigma^2) or so:
    nothing that a double can hold from sigma = 2 on.
    """
    sigma = math.sqrt(sigma_squared)
    if sigma > _WIDE:
        return sigma
    k = np.arange(1, int(40 * sigma) + 40, dtype=float)
    weights = np.exp(-k * k / (2 * float(sigma_squared)))
    return math.sqrt(2 * math.fsum(k * k * weights) / (1 + 2 * math.fsum(weights)))


@lru_cache(maxsize=256)
def half_width(sigma_squared: Fraction, coverage: float = 0.9) -> int:
    """The smallest k with P(abs(X) <= k) >= coverage for X from N_Z(0, sigma^2).

    By sums of the mass function; above sigma = 10^6 by the midpoint rule, whose sum over the
    integers up to k is at least the integral up to k + 1/2.
    """
    if sigma_squared == 0:
        return 0
    sigma = math.sqrt(sigma_squared)
    if sigma > _SUMMED:
        from scipy.special import ndtri

        return math.ceil(sigma * float(ndtri((1 + coverage) / 2)) * (1 + 1e-9) - 0.5)
    # Beyond 9 sigma there is less than 1e-18, so the total over these is the total.
    k = np.arange(0, int(9 * sigma) + 40, dtype=float)
    weights = np.exp(-k * k / (2 * float(sigma_squared)))
    weights[1:] *= 2
    reached = np.cumsum(weights)
    # One part in 10^12 more than is asked covers the rounding of the sums.
    return int(np.searchsorted(reached, coverage * (1 + 1e-12) * reached[-1]))


def build(
    plan: Plan, query: Query, level: str, noisy: Mapping[str, tuple[Integers, Fraction]]
) -> pa.Table:
    """One published table.

    Args:
        plan, query, level: which.
        noisy: by measure ("count", "sum") the noisy integers, flat in declared order, with the
            sigma squared of their noise (0 for declared values).

    Returns:
        The key columns, then ``value``, ``standard_error``, ``lower`` and ``upper`` (90%). Counts
        and sums are whole numbers, value -+ k. A mean is the ratio of a noisy sum and a noisy
        count, with an interval by Bonferroni from 95% of each, cut to the clip; its standard error
        is that of the ratio to first order.
    """
    columns = _keys(plan, query, level)
    if query.measure == "mean":
        columns |= _mean(query.clip or (0, 1), noisy["sum"], noisy["count"])
    else:
        values, sigma_squared = noisy[query.measure]
        half = half_width(sigma_squared)
        error = standard_error(sigma_squared) if sigma_squared else 0.0
        columns |= {
            "value": pa.array(values, pa.int64()),
            "standard_error": pa.array(np.full(len(values), error)),
            "lower": pa.array(values - half, pa.int64()),
            "upper": pa.array(values + half, pa.int64()),
        }
    return pa.table(columns)


def _keys(plan: Plan, query: Query, level: str) -> dict[str, Any]:
    shape = plan.shape(query, level)
    index = np.indices(shape).reshape(len(shape), -1)
    found: dict[str, Any] = {}
    names = plan.key_columns(query, level)
    if plan.hierarchy and query.at:
        paths = plan.hierarchy.paths(level)
        for depth in range(len(names) - len(query.by)):
            found[names[depth]] = pa.array([paths[i][depth] for i in index[0]], pa.string())
    for axis, name in enumerate(query.by, 1):
        keys = plan.column(name).keys
        found[name] = pa.array([keys[i] for i in index[axis]])
    return found


def _mean(
    clip: tuple[int, int], total: tuple[Integers, Fraction], count: tuple[Integers, Fraction]
) -> dict[str, Any]:
    low, high = clip
    (sums, s2), (counts, n2) = total, count
    s, n = sums.astype(float), counts.astype(float)
    bottom = np.maximum(n, 1.0)
    value = np.clip(s / bottom, low, high)
    error = np.sqrt(standard_error(s2) ** 2 + (value * standard_error(n2)) ** 2) / bottom
    a, b = s - half_width(s2, 0.95), s + half_width(s2, 0.95)
    c, d = n - half_width(n2, 0.95), n + half_width(n2, 0.95)
    some = c > 0  # otherwise the count may be 0, and the mean anything
    c = np.where(some, c, 1.0)
    lower = np.clip(np.where(a >= 0, a / np.maximum(d, 1.0), a / c), low, high)
    upper = np.clip(np.where(b >= 0, b / c, b / np.maximum(d, 1.0)), low, high)
    return {
        "value": pa.array(value),
        "standard_error": pa.array(np.minimum(error, float(high - low))),
        "lower": pa.array(np.where(some, lower, float(low))),
        "upper": pa.array(np.where(some, upper, float(high))),
    }


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def csv_bytes(table: pa.Table) -> bytes:
    """The table as CSV in UTF-8 with a header."""
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    return sink.getvalue()
