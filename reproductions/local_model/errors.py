"""The local model: what reports cost that nobody has to be trusted with.

Each of n people sends a report of the own category. Each way to report is compared with two things:
counts with discrete Gaussian noise, made by someone who is trusted with all records and calibrated
to the same attacker (the same power at the same level), and the least error that any epsilon-local
reports allow.

The least error is `neyman.least_error` in the local model. For two categories van Trees' inequality
bounds a share: of one bit every epsilon-local report is a garbling of its randomized response. For
more categories the worst share is also at least the mean over categories of the bound on the sum.
Both hold for a share among k categories, and the larger one counts.

Sources: Gill and Levit 1995 (van Trees); Kairouz, Oh and Viswanath 2016; Ye and Barg 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from neyman import (
    Bound,
    CategoryResponse,
    DiscreteGaussian,
    HadamardResponse,
    UnaryEncoding,
    at_most,
    calibrate,
    least_error,
    pure,
)
from neyman.mechanisms.local_randomizers import Encoding
from neyman.numerics import check

__all__ = ["LEVEL", "Compared", "compared", "encodings", "least_share_error", "worst_share_error"]

LEVEL = 0.05


def least_share_error(people: int, epsilon: float, categories: int = 2) -> float:
    """Return a squared error of a share that no epsilon-local estimate of k shares beats
    everywhere.

    Args:
        people: n, at least 1.
        epsilon: above 0.
        categories: k, at least 2.
    """
    check.integer("people", people, 1)
    check.positive("epsilon", epsilon)
    budget = pure(min(float(epsilon), 300.0))  # with more, the bound is no larger
    one = least_error("share", n=people, budget=budget, model="local").lower
    k = categories
    every = least_error("category-shares", n=people, budget=budget, categories=k, model="local")
    return max(one, every.lower / k)


def worst_share_error(encoding: Encoding, people: int) -> float:
    """Return the largest mean squared error of a population's share, over all shares.

    The people are drawn from the population, as in `least_share_error`: at share p their own share
    varies by p (1 - p) / n, and the reports add V(p), which is linear in p. The sum is concave, so
    it is largest where its slope n (V(1) - V(0)) + 1 - 2 p is 0, or at an end.

    Args:
        encoding: the way to report.
        people: n, at least 1.
    """
    n = check.integer("people", people, 1)
    slope = n * (encoding.variance(1.0, n) - encoding.variance(0.0, n))
    share = min(max((1 + slope) / 2, 0.0), 1.0)
    return encoding.variance(share, n) + share * (1 - share) / n


def encodings(epsilon: float, categories: int) -> dict[str, Encoding]:
    """Return the ways to report a category, by their names."""
    return {
        "the category itself": CategoryResponse(epsilon, categories),
        "bits, symmetric": UnaryEncoding(epsilon, categories),
        "bits, optimised": UnaryEncoding(epsilon, categories, optimised=True),
        "Hadamard": HadamardResponse(epsilon, categories),
    }


@dataclass(frozen=True)
class Compared:
    """One way to report beside the central model and the least error.

    Args:
        name: of the way to report.
        power: of the best attacker at `LEVEL`.
        deviation: standard error of the estimated share, at share 1 / k.
        central: that of a count with discrete Gaussian noise of the same power, over n.
        ratio: `worst_share_error` over `least_share_error`, at least 1: both count that the people
            are a sample.
    """

    name: str
    power: Bound
    deviation: float
    central: float
    ratio: float


def compared(epsilon: float, categories: int, people: int) -> list[Compared]:
    """All ways to report one of k categories."""
    results = []
    for name, product in encodings(epsilon, categories).items():
        power = product.tradeoff().power(level=LEVEL)
        results.append(
            Compared(
                name,
                power,
                math.sqrt(product.variance(1 / categories, people)),
                _central_sigma(power.upper) / people,
                worst_share_error(product, people) / least_share_error(people, epsilon, categories),
            )
        )
    return results


@cache
def _central_sigma(power: float) -> float:
    """Return the least sigma for all counts of categories: one record moves two cells by one."""
    target = at_most(power=power, level=LEVEL)
    return float(calibrate(lambda s: DiscreteGaussian(s, sensitivity=[(1, 1)]), budget=target))
