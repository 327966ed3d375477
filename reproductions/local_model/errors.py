"""The local model: what reports cost that nobody has to be trusted with.

Each of n people sends a report of the own category. Each way to report is compared with two things:
counts with discrete Gaussian noise, made by somebody who is trusted with all records and calibrated
to the same attacker (the same power at the same level), and the least error that any epsilon-local
reports allow.

Le Cam's method for a mean of n numbers -1 or 1, of expectation d or -d: the worst mean squared
error is at least d^2 (1 - TV) / 2, TV the total variation of all reports, at most the root of half
their divergence K. Two bounds on K are proven, and any d in (0, 1] may be put in:

- K <= n min(4, e^{2 epsilon}) (e^epsilon - 1)^2 d^2 / 2, Duchi, Jordan and Wainwright's contraction
  (the smaller of both orders is half of their sum);
- K <= n d r log((1 + d r) / (1 - d r)), r = tanh(epsilon / 2): of one bit every epsilon-local
  report is a garbling of its randomized response, whose expectation is d r. It is the better one.

A share of two categories is (1 + mean) / 2: a quarter of that. The rate 1 / (n epsilon^2) cannot be
bettered; the constants are proven, and can.

Source: Duchi, Jordan and Wainwright 2018, "Minimax optimal procedures for locally private
estimation", theorem 1 (2013 for the first version); Kairouz, Oh and Viswanath 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from neyman.accounting.calibrate import calibrate
from neyman.accounting.target import at_most
from neyman.mechanisms.additive import DiscreteGaussian
from neyman.mechanisms.local_randomizers import (
    CategoryResponse,
    Encoding,
    HadamardResponse,
    UnaryEncoding,
)
from neyman.numerics import check
from neyman.numerics.bound import Bound

__all__ = [
    "LEVEL",
    "Compared",
    "compared",
    "encodings",
    "least_mean_error",
    "least_share_error",
    "worst_share_error",
]

LEVEL = 0.05


def least_mean_error(people: int, epsilon: float) -> float:
    """A mean squared error that no epsilon-local estimate of a mean in [-1, 1] beats everywhere.

    Args:
        people: n, at least 1.
        epsilon: above 0.
    """
    n = check.integer("people", people, 1)
    check.positive("epsilon", epsilon)
    epsilon = min(float(epsilon), 300.0)  # with more, the bound is no larger
    r, best = math.tanh(epsilon / 2), 0.0
    contraction = min(2.0, math.exp(epsilon)) * math.expm1(epsilon) * math.sqrt(n) / 2
    for i in range(1, 2000):
        d = min(i / 1000, 1.0) / (math.sqrt(n) * r) if n > 1 else i / 2000
        if d >= 1:
            break
        divergence = n * d * r * (math.log1p(d * r) - math.log1p(-d * r))
        answer = min(math.sqrt(divergence / 2), contraction * d)
        best = max(best, 0.5 * d * d * (1 - answer))
    return best * (1 - 1e-9)


def least_share_error(people: int, epsilon: float) -> float:
    """The same for the share of one category: a quarter of it."""
    return least_mean_error(people, epsilon) / 4


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
    """The ways to report a category, by their names."""
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
                worst_share_error(product, people) / least_share_error(people, epsilon),
            )
        )
    return results


@cache
def _central_sigma(power: float) -> float:
    """The least sigma for all counts of categories: one record moves two cells by one."""
    target = at_most(power=power, level=LEVEL)
    return float(calibrate(lambda s: DiscreteGaussian(s, sensitivity=[(1, 1)]), target=target))
