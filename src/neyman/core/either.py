"""Two engines for one sum: the quicker is asked first, the other where that says too little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.profile import Interval, Profile

__all__ = ["EitherProfile"]

Array = NDArray[Any]
ENOUGH = 1e-2  # relative width of power with which the quicker answer is left as it is
FINE = 1e-3  # and of delta


class EitherProfile(Profile):
    """Privacy profile of one ordered pair, by two engines whose intervals both hold.

    Args:
        quick: asked first.
        slow: asked beside it where its interval is wider than 1% (power) or 0.1% (delta).
    """

    def __init__(self, quick: Profile, slow: Profile) -> None:
        self._quick, self._slow = quick, slow
        self.method = quick.method

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bounds on log delta at many epsilons."""
        return self._both(epsilons, FINE, lambda profile, asked: profile.log_deltas(asked))

    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log delta(epsilon)."""
        low, high = self.log_deltas(np.array([epsilon]))
        return float(low[0]), float(high[0])

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bounds on log power at many levels."""
        return self._both(log_levels, ENOUGH, lambda profile, asked: profile.log_powers(asked))

    def log_power(self, log_level: float) -> Interval:
        """Bounds on log power."""
        low, high = self.log_powers(np.array([log_level]))
        return float(low[0]), float(high[0])

    def epsilon_near(self, log_delta: float) -> float:
        """About the epsilon that has this log delta."""
        return self._quick.epsilon_near(log_delta)

    def mu(self) -> Interval | None:
        """Neither can certify a supremum."""
        return None

    def _both(
        self, places: Array, enough: float, ask: Callable[[Profile, Array], tuple[Array, Array]]
    ) -> tuple[Array, Array]:
        low, high = (np.array(found, dtype=float) for found in ask(self._quick, places))
        with np.errstate(invalid="ignore"):  # where both are -inf nothing is missing
            wide = (high > low) & ~(high - low <= enough)
        if wide.any():
            below, above = ask(self._slow, np.asarray(places)[wide])
            low[wide], high[wide] = np.maximum(low[wide], below), np.minimum(high[wide], above)
            self.method = f"{self._quick.method}; {self._slow.method}"
        return low, high
