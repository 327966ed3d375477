"""Compute certified bounds on tail probabilities of a binomial count plus canonical noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman.mechanisms.canonical.polygon_noise import PolygonNoise
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import log_between, log_binomial

Interval = tuple[float, float]


@dataclass(frozen=True)
class Limits:
    """Limit the terms of a binomial sum that are added up, with error margins."""

    deviations: float = 10.0  # standard deviations around the mean
    # slack: counted
    sum_error: float = 256 * UNIT  # relative error of a sum of products in pairs [PT-6]


LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class BinomialCount:
    """Hold lower and upper bounds on a count's binomial distribution near its mean [PT-6].

    Args:
        first: the smallest number with a bound.
        low: lower bounds of the probabilities of ``first``, ``first + 1``, ...
        high: upper bounds.
        outside: upper bound of the probability of all other numbers.
    """

    first: int
    low: Array
    high: Array
    outside: float

    @property
    def last(self) -> int:
        """Return the largest number with a bound."""
        return self.first + len(self.low) - 1


@array_cache
def count(n: int, p: Fraction | float) -> BinomialCount:
    """Return bounds on the distribution of the number of successes in n trials.

    Args:
        n: number of trials, at least 1.
        p: probability of success, in [0, 1].
    """
    if p <= 0 or p >= 1:
        return BinomialCount(0 if p <= 0 else n, np.ones(1), np.ones(1), 0.0)
    share, rest = float(p), float(1 - p)
    if not share or not rest:  # nearer to 0 or 1 than floats resolve
        return BinomialCount(0, np.zeros(1), np.ones(1), 1.0)
    half = LIMITS.deviations * math.sqrt(n * share * rest) + 60  # records around the mean
    first = max(math.floor(n * share - half), 0)
    last = min(math.ceil(n * share + half), n)
    value, error = log_binomial(n, share, rest, np.arange(first, last + 1), 0.0)
    # Errors in units in the last place: 1 for a sum of logarithms, 2 for exp, 1 for a product.
    error = error + 4 * UNIT * (1 + np.abs(value))  # slack: counted
    outside = 0.0
    for low, high in ((0, first - 1), (last + 1, n)):
        if low <= high:
            ends = np.array([low]), np.array([high])
            chernoff = math.exp(float(log_between(n, share, rest, *ends)[0]))
            outside += chernoff * (1 + 1e-6)  # for rounding
    # same: 1 - 4 * UNIT -> (1): Covered by the line before: 4 units of 1 + |value| hold the
    # rounding of value - error, and the 2 units of a power of e.
    low = np.exp(value - error) * (1 - 4 * UNIT)  # slack: counted
    high = np.exp(value + error) * (1 + 4 * UNIT)  # slack: counted
    return BinomialCount(first, low, np.minimum(high, 1.0), outside)


def tail(noise: PolygonNoise, law: BinomialCount, place: Fraction) -> Interval:
    """Return bounds on P(X + N >= place) for a binomial count X and the noise N [PT-6]."""
    low, high = noise.tail_between(place, law.first, law.last)
    least = float(np.sum(law.low * low)) * (1 - LIMITS.sum_error)
    most = float(np.sum(law.high * high)) * (1 + LIMITS.sum_error) + law.outside
    return max(least, 0.0), min(most, 1.0)
