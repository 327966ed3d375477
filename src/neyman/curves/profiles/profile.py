"""Define the privacy profile of one ordered pair (P, Q): the interface of all computations.

    delta(epsilon) = H_{e^epsilon}(P || Q) = E_P[(1 - e^{epsilon - L})_+],    epsilon real

L is the privacy loss. The conjugate is the power of the best test of Q (null) against P
(alternative):

    power(level) = inf over epsilon of delta(epsilon) + e^epsilon level.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import numpy as np

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

Interval = tuple[float, float]


class Engine(StrEnum):
    """Name the way a profile is computed, for decisions in code. `Profile.method` is for people."""

    CLOSED_FORM = "closed form"
    CONTOUR = "contour"
    EXACT = "exact sums"
    GRID = "grid"
    ENVELOPE = "envelope"
    RENYI = "Renyi divergences"
    SHUFFLE = "sums over reports"


class Profile:
    """Represent certified bounds for one ordered pair (P, Q), as natural logarithms.

    An engine defines `log_delta` or `log_deltas`, and `log_power` or `log_powers`.
    """

    method: str
    """The method that is used first, in words. The text never changes."""

    engine: Engine = Engine.CLOSED_FORM

    costly: bool = False
    """True if one question is much cheaper than the search for an epsilon."""

    @property
    def inner(self) -> Profile:
        """Return the engine that answers, without limits on its operations."""
        return self

    def __init_subclass__(cls) -> None:
        for one, many in (("log_delta", "log_deltas"), ("log_power", "log_powers")):
            if all(getattr(cls, name) is getattr(Profile, name) for name in (one, many)):
                raise TypeError(f"a {cls.__name__} must define {one} or {many}")

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log delta(epsilon), for any finite real epsilon."""
        low, high = self.log_deltas(np.array([epsilon]))
        return float(low[0]), float(high[0])

    def log_power(self, log_level: float) -> Interval:
        """Bound log power(level), for log level in [-inf, 0]."""
        low, high = self.log_powers(np.array([log_level]))
        return float(low[0]), float(high[0])

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Return arrays of lower and upper bounds on log delta, at many epsilons."""
        brackets = np.array([self.log_delta(float(e)) for e in epsilons]).reshape(-1, 2)
        return brackets[:, 0], brackets[:, 1]

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Return arrays of lower and upper bounds on log power, at many levels."""
        brackets = np.array([self.log_power(float(v)) for v in log_levels]).reshape(-1, 2)
        return brackets[:, 0], brackets[:, 1]

    def meets(self, epsilon: float, log_delta: float) -> bool:
        """Return True if delta(epsilon) is certified to be at most e^log_delta."""
        return self.log_delta(epsilon)[1] <= log_delta

    def alone(self, epsilon: float) -> bool:
        """Return True if the answer at this epsilon certainly does not depend on other epsilons."""
        return self.engine == Engine.CLOSED_FORM

    def log_delta_above(self, epsilon: float, enough: float = -math.inf) -> float:
        """Return a cheap upper bound on log delta(epsilon), or 0 if there is none.

        Args:
            epsilon: a finite number.
            enough: a logarithm. The search stops at a bound this small.
        """
        return 0.0

    def log_powers_above(self, log_levels: Array) -> Array:
        """Return cheap upper bounds on log power, 0 where there is none."""
        return np.zeros(len(log_levels))

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta, as the start of a search."""
        return 1.0

    def log_total_variation(self) -> float:
        """Return an upper bound on log delta(0) that needs no search, or 0 if there is none."""
        return 0.0

    def from_above(self) -> Profile:
        """Return a profile to use only for upper bounds of delta, at many epsilons."""
        return self.coarse()

    def one_sided(self, side: int) -> Profile:
        """Return a profile to use only for upper bounds (1) or only for lower bounds (-1)."""
        return self

    def coarse(self) -> Profile:
        """Return a profile with cheaper bounds, which may be wider if delta is small."""
        return self

    def mu(self) -> Interval | None:
        """Bound the smallest mu with power at most that of G_mu at every level, or None."""
        return None


def log_delta_below_zero(epsilon: Any, backward: tuple[Any, Any]) -> tuple[Any, Any]:
    """Bound log delta(epsilon), epsilon < 0, from bounds for the reversed pair at -epsilon.

    Arguments are numbers or arrays. H_{e^epsilon}(P || Q) = 1 - e^epsilon + e^epsilon
    H_{e^-epsilon}(Q || P).
    """

    def value(log_delta: Any) -> Any:
        return np.log(-np.expm1(epsilon) + np.exp(epsilon + log_delta))

    low, high = backward
    # The error of e^x is |x| units. Below -745, e^x underflows.
    # slack: delta_below_zero
    slack = 4 * UNIT * (8 + np.minimum(np.abs(high), 745.0) + np.minimum(np.abs(epsilon), 745.0))
    return value(low) - slack, np.minimum(value(high) + slack, 0.0)


def intersection(low: Array, high: Array, below: Array, above: Array) -> tuple[Array, Array]:
    """Intersect two certified intervals, elementwise. Ignore an end that is NaN.

    If two intervals are disjoint, one is wrong. Return the interval that contains both.
    """
    apart = (below > high) | (above < low)
    shared = np.fmax(low, below), np.fmin(high, above)
    if not np.logical_or.reduce(apart):
        return shared
    return np.where(apart, np.fmin(low, below), shared[0]), np.where(
        apart, np.fmax(high, above), shared[1]
    )
