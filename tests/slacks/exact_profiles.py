"""Profiles that know their exact numbers, up to the two floats around each."""

from __future__ import annotations

import math

import mpmath
from mpmath import mpf

from neyman.curves import Interval, Profile


class Known(Profile):
    """One pair whose profile is log delta = a - b epsilon, exact at a few digits."""

    method = "closed form"

    def __init__(self, start: float, slope: float) -> None:
        self.start, self.slope = start, slope

    def log_delta(self, epsilon: float) -> Interval:
        exact = mpf(self.start) - mpf(self.slope) * epsilon
        return self._ends(exact)

    def _ends(self, exact: mpf) -> Interval:
        near = float(exact)
        low = near if near <= exact else math.nextafter(near, -math.inf)
        return low, low if low == exact else math.nextafter(low, math.inf)

    def log_power(self, log_level: float) -> Interval:
        return self._ends(mpf(self.start) - mpf(self.slope) * log_level)

    def epsilon_near(self, log_delta: float) -> float:
        return max((self.start - log_delta) / self.slope, 0.0)


class Perfect(Known):
    """P = Q: delta = 1 - e^epsilon, a straight line in e^epsilon."""

    def log_delta(self, epsilon: float) -> Interval:
        return self._ends(mpmath.log(-mpmath.expm1(epsilon))) if epsilon < 0 else (-math.inf,) * 2
