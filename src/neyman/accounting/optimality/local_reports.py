"""What one report of the local model says about a parameter.

A report of a bit is a garbling of the pair that the curve allows, so its information about a mean
theta in [-1, 1] is at most (1 - B(f)) / (1 - c theta^2), c = tanh^2(eps/2) for a pure epsilon and
else 1 [OP-15]. A report of one of k categories has at uniform shares an information whose trace is
at most k V, V the largest variance of k numbers of mean 1 and ratio e^epsilon [OP-16]. The prior of
the shares is a Dirichlet law.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from neyman.accounting.optimality.guarantee import SLACK, Guarantee
from neyman.numerics.arrays import Array

__all__ = ["category_risk", "information_of_a_bit", "largest_variance"]

MOST_EPSILON = 300.0
PRIORS = np.geomspace(2.05, 1e6, 80)


def information_of_a_bit(guarantee: Guarantee) -> Callable[[Array], Array]:
    """Return the bound on a report's information as a function of the mean, even and convex."""
    share = math.tanh(guarantee.pure / 2) ** 2 * (1 + SLACK) if guarantee.pure < 35 else 1.0
    share, bit = min(share, 1.0), guarantee.bit

    def information(mean: Array) -> Array:
        with np.errstate(divide="ignore"):
            return bit / (1 - share * np.minimum(mean, 1.0) ** 2)

    return information


def category_risk(guarantee: Guarantee, n: int, categories: int) -> float:
    """Return the lower bound on the sum of squared errors of k shares from n reports."""
    k = categories
    alpha = PRIORS
    inverse = (k * alpha - 1) / (k * (alpha - 1))  # the mean of the sum of 1 / (k^2 p_x)
    prior = (k - 1) * (k * alpha - 1) * (k * alpha - 2) / (alpha - 2)
    variance = min(largest_variance(guarantee.pure, k), k - 1.0) * inverse
    if math.isfinite(guarantee.chi_square):
        mean = (1 - 1 / k) * guarantee.chi_square
        variance = np.minimum(variance, mean * np.array([_largest_inverse(k, a) for a in alpha]))
    information = n * k * variance * (1 + SLACK)
    return float(np.max((k - 1) ** 2 / (information + prior))) * (1 - SLACK)


def largest_variance(epsilon: float, k: int) -> float:
    """V of k numbers of mean 1 whose ratios are at most e^epsilon."""
    if epsilon >= MOST_EPSILON:
        return math.inf
    more = math.expm1(epsilon)
    peak = int(k / (2 + more))  # the function of a real size has its only maximum at k / (2 + more)
    size = np.array(sorted({min(max(peak + i, 1), k - 1) for i in (-1, 0, 1, 2)})) / k
    return float(np.max(size * (1 - size) * (more / (1 + size * more)) ** 2))


def _largest_inverse(k: int, alpha: float) -> float:
    """At least the prior mean of the largest 1 / (k p_x), by its moments."""
    best = math.inf
    for m in (1, 2, 4, 8, 16, 32, 64):
        if m >= alpha:
            break
        i = np.arange(1, m + 1)
        log = math.log(k) + float(np.sum(np.log((k * alpha - i) / (k * (alpha - i)))))
        best = min(best, math.exp(log / m))
    return best * (1 + SLACK)
