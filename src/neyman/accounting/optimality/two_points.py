"""Two points: an estimator that must tell two parameters apart errs, if f does not let it.

For laws P and Q of one record, TV apart, a maximal coupling of n records changes K ~ Bin(n, TV) of
them. The joint laws of sample and output are mixtures over K, and the affinity is jointly concave,
so parameters that are 2 d apart cost a squared error of at least d^2 E[B(f_K)] [OP-4]. Assouad's
method adds such bounds over coordinates [OP-5].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import bdtr

from neyman.accounting.optimality.guarantee import SLACK, Guarantee
from neyman.numerics.arrays import Array

__all__ = ["best_pair", "data_pair", "mean_affinity"]

BLOCKS, MANY_BLOCKS = 40, 400  # of numbers of changed records
DISTANCES = 48
REACH = 9.0  # standard deviations of the number of changed records that count


def mean_affinity(guarantee: Guarantee, n: int, distance: float, blocks: int = BLOCKS) -> float:
    """Return a lower bound on E[B(f_K)] for K ~ Bin(n, distance).

    B(f_k) falls with k, so in each block of k it is at least what it is at the last one. Summed by
    parts all terms are positive.
    """
    t = min(distance * (1 + SLACK), 1.0)
    middle, spread = n * t, math.sqrt(n * t * (1 - t)) + 1
    first = max(math.floor(middle - REACH * spread), 0)
    last = min(math.ceil(middle + REACH * spread), n)
    ends = np.unique(np.linspace(first, last, min(last - first + 1, blocks)).astype(np.int64))
    affinity = guarantee.affinity(ends.astype(float))
    affinity = np.maximum.accumulate(affinity[::-1])[::-1]
    mass = np.asarray(bdtr(ends.astype(float), n, t)) * (1 - SLACK)
    mass[-1] = mass[-1] if last < n else 1 - SLACK
    return float(np.sum(mass * (affinity - np.append(affinity[1:], 0.0))))


def best_pair(
    guarantee: Guarantee,
    n: int,
    gain: Callable[[float], float],
    distance: Callable[[float], float],
    most: float,
) -> float:
    """Return the largest gain(d) E[B(f_K)], K ~ Bin(n, distance(d)), over 0 < d <= most.

    Args:
        guarantee: of one replaced record.
        n: number of records.
        gain: half the distance of the parameters, squared, or a sum of such squares.
        distance: the total variation of two records.
        most: the largest d.
    """

    def bound(d: float, blocks: int = BLOCKS) -> float:
        return gain(d) * mean_affinity(guarantee, n, distance(d), blocks)

    high = most
    low = most * 1e-3 / max(n, 1)
    places = np.geomspace(low, high, DISTANCES)
    best = 0.0
    for _ in range(2):
        values = np.array([bound(float(d)) for d in places])
        best = max(best, float(values.max()))
        i = int(np.argmax(values))
        ends = places[max(i - 1, 0)], places[min(i + 1, len(places) - 1)]
        places = np.geomspace(*ends, 12)
    return max(best, bound(float(places[len(places) // 2]), MANY_BLOCKS)) * (1 - SLACK)


def data_pair(guarantee: Guarantee, changes: Array) -> float:
    """Return the largest (c_k / 2)^2 B(f_k), where k replaced records move an answer by c_k."""
    sizes = np.arange(1, len(changes) + 1, dtype=float)
    return float(np.max((changes / 2) ** 2 * guarantee.affinity(sizes), initial=0.0)) * (1 - SLACK)
