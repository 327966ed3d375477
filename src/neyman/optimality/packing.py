"""Packing and Fano: many datasets that are near each other, with answers that are far apart.

In the ball of radius 1 in d dimensions lie M >= e^d points that are 1/e apart. Records are at 0 but
for a share t, which is at one of these points. If at most D records differ, then the least of the
M success probabilities p satisfies (M - 1) level_D(p) + p <= 1, level_D(p) the least level at which
a test of f_D has power p [OP-11]. Under rho-zCDP Fano's inequality gives
p <= (D^2 rho + log 2) / log M [OP-12].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import bdtrc

from neyman.optimality.guarantee import SLACK, Guarantee

__all__ = ["ball_packing", "fano_success", "packing_success"]

APART = math.exp(-1)  # of the points, for a radius of 1
SIZES = 24
SPREAD = 4.0


def packing_success(guarantee: Guarantee, log_count: float, size: int) -> float:
    """Return an upper bound on the least success probability of M answers, by packing."""
    count = log_count + math.log(-math.expm1(-log_count))  # log(M - 1)
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2
        log_mass = count + guarantee.log_level(p, size)
        low, high = (low, p) if log_mass > 0 or math.exp(log_mass) + p > 1 else (p, high)
    return high


def fano_success(guarantee: Guarantee, log_count: float, size: int) -> float:
    """Return an upper bound on the mean success probability of M answers, by Fano's inequality."""
    return min((size * size * guarantee.rho + math.log(2)) / log_count, 1.0)


def ball_packing(guarantee: Guarantee, n: int, dimension: int) -> tuple[float, float]:
    """Return the bounds of packing and of Fano on a mean in a ball of radius 1, squared error."""
    count = float(dimension)  # log M
    best = [0.0, 0.0]
    for size in np.unique(np.geomspace(1, n, SIZES).astype(int)).tolist():
        share = max(size - SPREAD * math.sqrt(size), size / 8) / n if size < n else 1.0
        more = float(bdtrc(size, n, share)) * (1 + SLACK) if size < n else 0.0
        gain = (share * APART / 2) ** 2
        for i, success in enumerate((packing_success, fano_success)):
            error = gain * (1 - success(guarantee, count, size) - more)
            best[i] = max(best[i], error * (1 - SLACK))
    return best[0], best[1]
