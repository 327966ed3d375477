"""What fuzzers of curves share: seeded draws, sums over pairs of laws, and a tally of answers.

A truth is an interval: both ends agree where it is known, and the upper end is infinite where an
attack bounds it from below alone.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hostile import FIXED, INPUTS
from numpy.typing import NDArray

__all__ = ["Tally", "cases", "delta", "draws", "log_uniform", "power", "renyi", "tally"]

Array = NDArray[np.float64]


def draws(name: str) -> random.Random:
    """The generator of one test. By default it draws the same cases each time."""
    return random.Random(name if FIXED else f"{name} {INPUTS}")


def cases(number: int) -> range:
    """So many cases by default, and as many times more as there are inputs beyond 1,000."""
    return range(max(1, round(number * INPUTS / 1000)))


def log_uniform(draw: random.Random, low: float, high: float) -> float:
    """A number between two positive ones, uniform in its logarithm."""
    return math.exp(draw.uniform(math.log(low), math.log(high)))


@dataclass
class Tally:
    """Counts answers that were held against the truth, and the widest of them.

    Args:
        attempts: adds to what the summary of the attacks counts.
        answers: how many.
        widest: the largest upper end less the lower one, over the upper one, of a known truth.
        case: which it was.
    """

    attempts: Callable[[int], None]
    answers: int = 0
    widest: float = 0.0
    case: str = ""

    def count(self) -> None:
        """Count one more answer."""
        self.answers += 1
        self.attempts(1)

    def holds(self, bound: Any, low: Any, high: Any, case: object, measured: bool = True) -> None:
        """Fail unless the interval of an answer meets that of the truth.

        Args:
            bound: the answer.
            low, high: the ends of the truth.
            case: what was asked, for the message.
            measured: whether its width counts.
        """
        text = f"{case}: {bound.lower!r} to {bound.upper!r}, truth {low!s} to {high!s}"
        assert bound.lower <= bound.upper, text
        assert mp.mpf(bound.upper) >= low, f"UNSAFE {text}"
        assert mp.mpf(bound.lower) <= high, f"lower end above the truth, {text}"
        self.count()
        width = (bound.upper - bound.lower) / bound.upper if bound.upper else 0.0
        if measured and high < math.inf and width > self.widest:
            self.widest, self.case = width, str(case)


@pytest.fixture
def tally(
    request: pytest.FixtureRequest, attempts: Callable[[int], None]
) -> Generator[Tally, None, None]:
    """The tally of a test, which the summary of the attacks counts.

    The file that NEYMAN_TALLY names gets a line for each test.
    """
    result = Tally(attempts)
    yield result
    if path := os.environ.get("NEYMAN_TALLY"):
        line = [request.node.name, result.answers, result.widest, result.case]
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def delta(p: Array, q: Array, epsilon: float) -> float:
    """The hockey-stick divergence of the worse order of two finite distributions."""
    t = math.exp(epsilon)
    return float(max(np.maximum(p - t * q, 0).sum(), np.maximum(q - t * p, 0).sum()))


def power(p: Array, q: Array, level: float) -> float:
    """The power of the best test of Q against P, or of P against Q if that is larger."""
    return max(_power(p, q, level), _power(q, p, level))


def _power(p: Array, q: Array, level: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(q > 0, p / q, np.inf), kind="stable")
    levels = np.concatenate([[0.0], np.cumsum(q[order])])
    powers = np.concatenate([[0.0], np.cumsum(p[order])])
    return float(np.interp(level, levels, np.maximum.accumulate(powers)))


def renyi(p: Array, q: Array, order: float) -> float:
    """The Renyi divergence of the worse order of two finite distributions with the same
    outcomes.
    """
    both = (p > 0) & (q > 0)
    a, b = np.log(p[both]), np.log(q[both])
    sums = [np.exp(order * x - (order - 1) * y).sum() for x, y in ((a, b), (b, a))]
    return float(np.log(max(sums)) / (order - 1))
