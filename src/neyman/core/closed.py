"""Profiles with a closed form: the Gaussian pair, and one Laplace pair."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtri_exp

from neyman.numerics.atoms import UNIT
from neyman.numerics.profile import Interval, Profile

__all__ = ["GaussianProfile", "LaplaceProfile", "PerfectProfile"]

ACCURACY = 64 * UNIT  # relative, of SciPy's erfcx, ndtr and ndtri and the few steps around them


def _widened(value: float, error: float) -> Interval:
    return value - error, value + error


class PerfectProfile(Profile):
    """P = Q: delta(epsilon) = (1 - e^epsilon)_+ and power = level."""

    method = "closed form"

    def log_delta(self, epsilon: float) -> Interval:
        """log (1 - e^epsilon)_+."""
        if epsilon >= 0:
            return -math.inf, -math.inf
        return _widened(math.log(-math.expm1(epsilon)), ACCURACY)

    def log_power(self, log_level: float) -> Interval:
        """The level."""
        return log_level, log_level

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval:
        """Zero."""
        return 0.0, 0.0


class GaussianProfile(Profile):
    """N(mu, 1) against N(0, 1), mu > 0.

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) (Balle and Wang
    2018) and power(level) = Phi(mu + Phi^-1(level)) (Dong, Roth and Su 2022).
    """

    method = "closed form"

    def __init__(self, mu: float) -> None:
        self._mu = mu

    def log_delta(self, epsilon: float) -> Interval:
        """With a = epsilon/mu - mu/2 and b = a + mu it is log phi(a) (R(a) - R(b)), R = Mills."""
        mu = self._mu
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        if a < -5:
            # Far below the center delta is near one and the terms do not cancel.
            first, second = float(log_ndtr(-a)), epsilon + float(log_ndtr(-b))
            gap = -math.expm1(second - first)
            if gap <= 0:
                return -math.inf, first
            error = ACCURACY * (1 + abs(epsilon) + abs(second)) / gap
            return _widened(first + math.log(gap), error) if error < 1 else (-math.inf, first)
        # R(a) - R(b) = integral of 1 - x R(x) over (a, b), R(x) = sqrt(pi/2) erfcx(x / sqrt 2).
        log_phi = -a * a / 2 - 0.5 * math.log(math.tau)
        ra, rb = _mills(a), _mills(b)
        error = ACCURACY * (ra + rb)
        # a itself is rounded: d log phi = a da, and the Mills ratios move by at most da.
        place = 4 * UNIT * (abs(epsilon) / mu + mu)
        error += place * mu
        log_error = place * (abs(a) + 1) + 4 * UNIT * abs(log_phi)
        value = ra - rb
        if mu < 0.2 * max(1.0, abs(a)):
            value, relative = _mills_difference(a, mu)
            error = value * (relative + place * 8)
        if value - error <= 0:
            return -math.inf, log_phi + math.log(value + error) + log_error
        return (
            log_phi + math.log(value - error) - log_error,
            min(log_phi + math.log(value + error) + log_error, 0.0),
        )

    def log_power(self, log_level: float) -> Interval:
        """log Phi(mu + Phi^-1(level))."""
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        z = float(ndtri_exp(log_level))
        # Phi^-1 amplifies the rounding of log_level by about 1 / |z|, less where z is near 0.
        z_error = ACCURACY * (1 + abs(z)) * (1 + abs(log_level) / max(abs(z), 1.0))
        x = z + self._mu
        value = float(log_ndtr(x))
        slope = max(-x, 0.0) + 1.0  # of log Phi, an upper bound
        error = slope * (z_error + 2 * UNIT * (abs(z) + self._mu)) + ACCURACY * abs(value)
        low, high = value - error, min(value + error, 0.0)
        return low, high

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval:
        """Mu, which is the root of a rounded square."""
        return self._mu * (1 - 8 * UNIT), self._mu * (1 + 8 * UNIT)


def _mills(x: float) -> float:
    """Mills' ratio (1 - Phi(x)) / phi(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


@cache
def _nodes() -> tuple[NDArray[Any], NDArray[Any]]:
    return np.polynomial.legendre.leggauss(16)


def _mills_difference(a: float, mu: float) -> tuple[float, float]:
    """R(a) - R(a + mu) and its relative error, for a >= -5 and mu small.

    R(x) is the Laplace transform of e^{-t^2/2}, so the difference is the integral over t > 0 of
    e^{-a t - t^2/2} (1 - e^{-mu t}), all positive: Gauss-Legendre on panels.
    """
    nodes, weights = _nodes()
    panels = 24
    width = 2 / a if a > 3 else 0.65
    edges = np.arange(panels) * width
    t = (edges[:, None] + (nodes + 1) * width / 2).ravel()
    w = np.tile(weights * width / 2, panels)
    value = float(np.sum(w * np.exp(-a * t - t * t / 2) * -np.expm1(-mu * t)))
    return value, 2e-14


class LaplaceProfile(Profile):
    """Two Laplace distributions whose centers are ``a`` scales apart.

    delta(epsilon) = 1 - e^{(epsilon - a)/2} for |epsilon| <= a, and
    power(level) = e^a level, 1 - e^-a / (4 level) or 1 - e^-a (1 - level), the middle one for
    levels between e^-a / 2 and 1/2 (Dong, Roth and Su 2022, proposition 2.7).
    """

    method = "closed form"

    def __init__(self, exact: Fraction) -> None:
        self._exact, self._a = exact, float(exact)

    def log_delta(self, epsilon: float) -> Interval:
        """log (1 - e^{(epsilon - a)/2})."""
        a = self._a
        if Fraction(epsilon) >= self._exact:
            return -math.inf, -math.inf
        exponent = (epsilon - a) / 2 if epsilon > -a else epsilon
        value = max(-math.expm1(exponent), UNIT * (abs(epsilon) + a))
        error = ACCURACY + 2 * UNIT * (abs(epsilon) + a) / value
        return value_interval(value, error)

    def log_power(self, log_level: float) -> Interval:
        """The three pieces."""
        a = self._a
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        error = ACCURACY * (1 + a + abs(log_level))
        if log_level <= -a - math.log(2):
            low, high = _widened(log_level + a, error)
        elif log_level <= -math.log(2):
            low, high = _widened(math.log1p(-math.exp(-a - log_level) / 4), error)
        else:
            low, high = _widened(math.log1p(math.exp(-a) * math.expm1(log_level)), error)
        return low, min(high, 0.0)

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval | None:
        """Unknown in closed form."""
        return None


def value_interval(value: float, relative: float) -> Interval:
    """Bounds on log value from a relative error."""
    if relative >= 1:
        return -math.inf, math.log(value) + math.log1p(relative)
    return math.log(value) + math.log1p(-relative), min(math.log(value) + math.log1p(relative), 0.0)
