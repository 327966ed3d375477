"""Bound how far a record moves a measurement, from its participations in a stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neyman.numerics import check

MAX_INTEGER_SUM = 1 << 61  # for integers that must fit in 64 bits


def pattern(steps: int, participations: int, separation: int) -> tuple[int, int]:
    """Return (participations, separation), reduced to what ``steps`` steps allow.

    Args:
        participations: largest number of steps with the record, at least 1.
        separation: smallest distance between these steps, at least 1.
    """
    times = check.integer("participations", participations, 1)
    apart = check.integer("separation", separation, 1)
    return min(times, -(-steps // apart)), min(apart, steps)


def pattern_bound(gram: NDArray[np.int64], participations: int, separation: int) -> int:
    """Bound the sum over i, j in S of |G_ij| from above, for all possible sets S of steps [MM-5].

    This bounds the squared shift of W x for G = W'W. The bound is exact for one step per record,
    and if G_ij = 0 for all different i, j in S.

    Args:
        gram: G, of shape ``(steps, steps)``, integers.
        participations: k, the largest number of steps in S.
        separation: b, the smallest distance between two steps in S.
    """
    sizes = np.abs(gram)
    times, apart = pattern(len(sizes), participations, separation)
    if times**2 * int(sizes.max()) >= MAX_INTEGER_SUM:
        raise ValueError(f"participations = {participations}: its sums do not fit in 64 bits")
    t = np.arange(len(sizes))
    others = np.where(np.abs(t[:, None] - t[None, :]) >= apart, sizes, 0)
    reach = np.diagonal(sizes).copy()
    if times > 1 and others.any():
        # If k is no restriction, steps need no count. Otherwise at most k - 1 steps join i.
        reach += _best(others, times - (times * apart < len(sizes)), apart)
    return int(_best(reach[None, :], times, apart)[0])


def _best(values: NDArray[np.int64], times: int, apart: int) -> NDArray[np.int64]:
    """Return each row's largest sum of at most ``times`` entries at least ``apart`` apart."""
    rows, n = values.shape
    columns = np.ascontiguousarray(values.T)
    fewer = np.zeros((n + apart, rows), np.int64)
    if times * apart >= n:  # no more entries fit: no count is needed
        for t in range(n - 1, -1, -1):
            np.maximum(fewer[t + 1], columns[t] + fewer[t + apart], out=fewer[t])
        return fewer[0]
    for _ in range(times):
        more = np.zeros_like(fewer)
        for t in range(n - 1, -1, -1):
            np.maximum(more[t + 1], columns[t] + fewer[t + apart], out=more[t])
        fewer = more
    return fewer[0]
