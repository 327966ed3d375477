"""How often and when a record takes part in a stream, and how far that can move a measurement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neyman.numerics import check

MAX_INTEGER_SUM = 1 << 61  # for whole numbers that 64 bits must hold


def pattern(steps: int, participations: int, separation: int) -> tuple[int, int]:
    """How many steps can really be had, and how far apart they are.

    Args:
        participations: at most so many, at least 1.
        separation: at least so far apart, at least 1.
    """
    times = check.integer("participations", participations, 1)
    apart = check.integer("separation", separation, 1)
    return min(times, -(-steps // apart)), min(apart, steps)


def pattern_bound(gram: NDArray[np.int64], participations: int, separation: int) -> int:
    """Return an upper bound on the sum over i, j in S of |G_ij|, over all S that are possible
    [MM-5].

    It is exact for one step a record, and where steps in S have nothing in common.

    Args:
        gram: G, of shape ``(steps, steps)``, whole numbers.
        participations: k, the most steps in S.
        separation: b, the least distance of two of them.
    """
    sizes = np.abs(gram)
    times, apart = pattern(len(sizes), participations, separation)
    if times**2 * int(sizes.max()) >= MAX_INTEGER_SUM:
        raise ValueError(f"participations = {participations}: its sums do not fit in 64 bits")
    t = np.arange(len(sizes))
    others = np.where(np.abs(t[:, None] - t[None, :]) >= apart, sizes, 0)
    reach = np.diagonal(sizes).copy()
    if times > 1 and others.any():
        # Where k is no limit it need not be counted: what goes with i are then k - 1 at most.
        reach += _best(others, times - (times * apart < len(sizes)), apart)
    return int(_best(reach[None, :], times, apart)[0])


def _best(values: NDArray[np.int64], times: int, apart: int) -> NDArray[np.int64]:
    """For each row, the largest sum of at most ``times`` entries at least ``apart`` apart."""
    rows, n = values.shape
    columns = np.ascontiguousarray(values.T)
    fewer = np.zeros((n + apart, rows), np.int64)
    if times * apart >= n:  # no more could be had: there is nothing to count
        for t in range(n - 1, -1, -1):
            np.maximum(fewer[t + 1], columns[t] + fewer[t + apart], out=fewer[t])
        return fewer[0]
    for _ in range(times):
        more = np.zeros_like(fewer)
        for t in range(n - 1, -1, -1):
            np.maximum(more[t + 1], columns[t] + fewer[t + apart], out=more[t])
        fewer = more
    return fewer[0]
