"""One release of a mixture, in closed form: no engine is asked.

With R(y) = sum p_i e^{e_i}, e_i = c_i y - c_i^2 / 2, and delta_i the profile of N(c_i, 1) against
N(0, 1), at every y

    remove: delta(log R(y))  = sum p_i delta_i(e_i)
    add:    delta(-log R(y)) = sum p_i e^{e_i} / R(y) delta_i(-e_i)

because the best test, y above (below) a threshold, is the same for every i. No term is negative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from neyman.core.closed import GaussianProfile
from neyman.core.mixture import GaussianMixtureLoss
from neyman.numerics.atoms import UNIT
from neyman.numerics.duality import log_power_by_duality
from neyman.numerics.profile import Interval, Profile

__all__ = ["ChoiceProfile", "GaussianMixtureProfile"]

Array = NDArray[Any]
FAR = 60.0  # standard deviations beyond which a normal law holds nothing


class GaussianMixtureProfile(Profile):
    """The profile of a mixture of normal laws against one normal law, or in the other order."""

    method = "closed form"

    def __init__(self, loss: GaussianMixtureLoss) -> None:
        self._loss = loss
        # The mass that stays at distance 0, where log R ends.
        self._left = loss.weights[0] if loss.distances[0] == 0 else 0.0
        self._parts = [
            (math.log(p), c, GaussianProfile(c))
            for c, p in zip(loss.distances, loss.weights, strict=True)
            if c > 0  # at distance 0 nothing is told apart
        ]

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """From two places between which log R certainly takes the value that is asked for."""
        epsilons = np.asarray(epsilons, dtype=float)
        removed = self._loss.removed
        low, high = self._places(epsilons if removed else -epsilons)
        below, above = (high, low) if removed else (low, high)
        least, most = self._at(below)[0], self._at(above)[1]
        # delta >= 1 - e^epsilon, with equality below every loss.
        with np.errstate(divide="ignore"):
            line = np.log(-np.expm1(np.minimum(epsilons, 0.0)))
        slack = np.where(epsilons < 0, 8 * UNIT * (1 + np.minimum(np.abs(line), 800.0)), 0.0)
        least = np.maximum(least, line - slack)
        most = np.minimum(np.maximum(most, line + slack), 0.0)
        return np.minimum(least, most), most

    def log_delta(self, epsilon: float) -> Interval:
        """The same at one epsilon."""
        low, high = self.log_deltas(np.array([epsilon]))
        return float(low[0]), float(high[0])

    def _rounding(self, y: Array) -> Array:
        """Bound on the error of log R(y)."""
        largest = self._loss.distances[-1]
        return 16 * UNIT * (len(self._parts) + largest * np.abs(y) + largest**2)

    def _places(self, value: Array) -> tuple[Array, Array]:
        """y with log R(y) certainly at most, and certainly at least, the value; -inf if none."""
        loss = self._loss
        smallest, largest = loss.distances[0], loss.distances[-1]
        low, high = -FAR, FAR + largest
        if smallest > 0:  # log R(y) <= c_0 y for y < 0
            low = min(low, float(value.min()) / smallest - 1)
        top = float(value.max()) - math.log(loss.weights[-1]) + largest**2 / 2
        high = max(high, top / largest + 1)
        y = loss.inverse(value, low, high)
        away = 4 * self._rounding(y) / np.maximum(loss.slope(y), 1e-12) + 4 * UNIT * np.abs(y)
        left, right = y - away, y + away
        for _ in range(50):
            near = np.maximum(left, 3 * low)  # -inf stands for none
            good = loss.log_ratio(near) + self._rounding(near) <= value
            enough = loss.log_ratio(right) - self._rounding(right) >= value
            if np.all(good & enough):
                break
            away = 2 * away
            left, right = np.where(good, left, y - away), np.where(enough, right, y + away)
            # Below log p_0 there is no such place.
            left = np.where(~good & (left < 2 * low), -math.inf, left)
            if np.all((good | np.isinf(left)) & enough):
                break
        certain = loss.log_ratio(np.maximum(left, 3 * low)) + self._rounding(left) <= value
        return np.where(certain, left, -math.inf), right

    def _at(self, y: Array) -> tuple[Array, Array]:
        """Bounds on log delta at the loss of y."""
        removed = self._loss.removed
        found = np.full((2, len(y), len(self._parts)), -math.inf)
        finite = np.nonzero(np.isfinite(y))[0]
        ratio = self._loss.log_ratio(y[finite])
        for i, (log_p, c, profile) in enumerate(self._parts):
            place = c * y[finite] - c * c / 2
            error = 4 * UNIT * (c * np.abs(y[finite]) + c * c + abs(log_p) + 4)
            asked = place if removed else -place
            low, high = profile.log_deltas(asked + error)[0], profile.log_deltas(asked - error)[1]
            shift = np.full(len(finite), log_p)
            if not removed:
                shift += place - ratio
                error = error + self._rounding(y[finite])
            found[0, finite, i] = low + shift - error
            found[1, finite, i] = high + shift + error
        total = np.asarray(logsumexp(found, axis=-1))
        # At the far end all mass but the one at distance 0 is told apart, or nothing is.
        end = math.log1p(-self._left) if removed and self._left < 1 else -math.inf
        least = np.where(np.isfinite(y), total[0] - 16 * UNIT, -math.inf)
        return least, np.where(np.isfinite(y), total[1] + 16 * UNIT, end + 4 * UNIT)

    def log_power(self, log_level: float) -> Interval:
        """By duality."""
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        return log_power_by_duality(self.log_delta, log_level)

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval | None:
        """Unknown."""
        return None


class ChoiceProfile(Profile):
    """The profile of one of several pairs, where everyone sees which: delta is the mean.

    Args:
        parts: (weight, profile), the weights with sum 1.
    """

    def __init__(self, parts: tuple[tuple[float, Profile], ...]) -> None:
        self._parts = parts
        self.method = "; ".join(dict.fromkeys(p.method for _, p in parts))

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """The mean of the deltas."""
        found = np.array([p.log_deltas(epsilons) for _, p in self._parts])
        weights = np.array([w for w, _ in self._parts])[:, None, None]
        total = np.asarray(logsumexp(found, b=weights, axis=0))
        slack = UNIT * (16 + len(self._parts) + 4 * np.abs(total))
        slack = np.where(np.isfinite(total), slack, 0.0)
        return total[0] - slack[0], np.minimum(total[1] + slack[1], 0.0)

    def log_delta(self, epsilon: float) -> Interval:
        """The same at one epsilon."""
        low, high = self.log_deltas(np.array([epsilon]))
        return float(low[0]), float(high[0])

    def log_power(self, log_level: float) -> Interval:
        """By duality: the level may be shared among the pairs."""
        if log_level >= 0:
            return 0.0, 0.0
        if log_level == -math.inf:
            found = np.array([p.log_power(log_level) for _, p in self._parts])
            weights = np.array([[w] for w, _ in self._parts])
            total = np.asarray(logsumexp(found, b=weights, axis=0))
            return float(total[0]) - 32 * UNIT, min(float(total[1]) + 32 * UNIT, 0.0)
        return log_power_by_duality(self.log_delta, log_level)

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval | None:
        """Unknown."""
        return None
