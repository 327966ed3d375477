"""The privacy profile of one ordered pair: what every engine answers.

    delta(epsilon) = H_{e^epsilon}(P || Q) = E_P[(1 - e^{epsilon - L})_+],    epsilon real

Its conjugate is the power of the best test of null Q against alternative P:

    power(level) = inf over epsilon of delta(epsilon) + e^epsilon level.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import least

__all__ = ["Interval", "Profile", "log_delta_below_zero", "log_power_by_duality"]

Interval = tuple[float, float]
FARTHEST = 1e6  # epsilons beyond which no minimum is sought


class Profile(ABC):
    """Certified answers about one ordered pair (P, Q). All are natural logarithms."""

    method: str

    @abstractmethod
    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log delta(epsilon), for any finite real epsilon."""

    @abstractmethod
    def log_power(self, log_level: float) -> Interval:
        """Bounds on log power(level), for log level in [-inf, 0]."""

    @abstractmethod
    def epsilon_near(self, log_delta: float) -> float:
        """A guess at the epsilon that has this log delta: where to begin looking."""

    @abstractmethod
    def mu(self) -> Interval | None:
        """Bounds on the smallest mu with power <= G_mu's at every level; None if unknown."""


def log_delta_below_zero(epsilon: float, backward: Interval) -> Interval:
    """Bounds on log delta(epsilon), epsilon < 0, from the reversed pair's at -epsilon.

    H_{e^epsilon}(P || Q) = 1 - e^epsilon + e^epsilon H_{e^-epsilon}(Q || P).
    """

    def value(log_delta: float) -> float:
        return math.log(-math.expm1(epsilon) + math.exp(epsilon + log_delta))

    low, high = backward
    # e^x errs by |x| units; beyond 745 it is nothing.
    slack = 4 * UNIT * (8 + min(abs(high), 745.0) + min(abs(epsilon), 745.0))
    return value(low) - slack, min(value(high) + slack, 0.0)


def _log_add(x: float, y: float) -> float:
    top = max(x, y)
    if math.isinf(top):
        return top
    return top + math.log1p(math.exp(min(x, y) - top))


def log_power_by_duality(log_delta: Callable[[float], Interval], log_level: float) -> Interval:
    """Bounds on log power from bounds on log delta, by convexity.

    With t = e^epsilon, g(t) = delta + t level is convex. Any value of it is an upper bound on its
    minimum. From t1 < t* < t2 with g(t1), g(t2) >= g(t*), the lines through (t1, t*) and (t*, t2)
    continue below g between t* and the other point: a lower bound that loses only second order.

    Args:
        log_delta: certified bounds at any epsilon.
        log_level: logarithm of the level, finite.
    """

    def g(epsilon: float) -> Interval:
        below, above = log_delta(epsilon)
        line = epsilon + log_level
        slack = 4 * UNIT * (2 + abs(above) + abs(epsilon) + abs(log_level))
        return _log_add(below, line) - slack, _log_add(above, line) + slack

    # g is unimodal: it is followed outward until it rises again.
    ends = []
    for side in (-2.0, 2.0):
        end = side
        while abs(end) < FARTHEST and g(2 * end)[1] < g(end)[1]:
            end *= 2
        ends.append(2 * end)
    low, high = ends
    star = least(lambda e: g(e)[1], low, high)
    for end in (low, high):
        if g(end)[1] < g(star)[1]:
            star = end
    below, above = g(star)
    best = -math.inf
    for ratio in (1e-5, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1):
        left, right = g(star - ratio), g(star + ratio)
        if left[0] < above or right[0] < above:
            continue
        # Relative to the value at t*; t2 - t* and t* - t1 differ by the factor e^ratio.
        rise = max(math.expm1(left[1] - below) * math.exp(ratio), math.expm1(right[1] - below))
        if rise < 1:
            best = max(best, below + math.log1p(-rise))
        if best > below - 1e-9:
            break
    return best, above
