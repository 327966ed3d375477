"""Compute the steps of canonical noise: the effect of one unit of shift on a tail probability.

If s is the tail probability at x >= -1/2, the tail probability at x + 1 is g(s) = f(1 - s). As f is
its own inverse, g is the inverse of the power: g(s) is the level whose test has power s. So from t
in the middle [-1/2, 1/2], where the noise is uniform, n steps of g lead outward to n + t, and n
steps of the power lead back. `Stepwise` computes the steps of a curve without a closed form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from neyman.curves.profiles.closed_forms.closed_form import SPECIAL_FUNCTION_ERROR
from neyman.curves.profiles.profile import Interval
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

Arrays = tuple[Array, Array]
LEAST_LOG_POWER = -1e300


class Ladder(ABC):
    """Compute iterates of g, the step outward by one unit, with certified bounds [CN-1].

    Probabilities are natural logarithms.

    Attributes:
        log_c: bounds on log c, where c = f(c) = P(Z > 1/2).
        gap: bounds on 1 - 2c, the density in the middle and the total variation of f.
    """

    log_c: Interval
    gap: Interval

    @abstractmethod
    def out(self, log_s: Array, n: Array) -> Arrays:
        """Bound log g^n(s): the log tail probability n units outward of s, for s <= 1 - c."""

    @abstractmethod
    def place(self, log_u: Array) -> Arrays:
        """Bound the x with P(Z > x) = u, for u <= c. If u = 0, x is the end of the noise."""

    @abstractmethod
    def log_slope(self, log_s: Array, n: Array) -> Arrays:
        """Bound the log of the derivative of g^n (n steps outward) at s, one-sided at a jump."""

    def middle(self, s_low: Array, s_high: Array) -> Arrays:
        """Bound the t in [-1/2, 1/2] with P(Z > t) = s, for s from ``s_low`` to ``s_high``."""
        low, high = self.line(s_low, s_high)
        return np.clip(low, -0.5, 0.5), np.clip(high, -0.5, 0.5)

    def line(self, s_low: Array, s_high: Array) -> Arrays:
        """Bound (1/2 - s) / (1 - 2c): the t with P(Z > t) = s, if it is in [-1/2, 1/2]."""
        gap_low, gap_high = self.gap
        low, high = 0.5 - s_high, 0.5 - s_low
        low = low / np.where(low > 0, gap_high, gap_low) - 4 * UNIT  # slack: a_place_in_the_middle
        # slack: canonical_noise_of_a_pure_guarantee/a, a_place_in_the_middle
        return low, high / np.where(high > 0, gap_low, gap_high) + 4 * UNIT


class ClosedLadder(Ladder):
    """Compute n steps outward, and n steps inward, by closed forms."""

    @abstractmethod
    def back(self, log_u: Array, n: Array) -> Arrays:
        """Bound the log tail probability n units inward of u."""

    @abstractmethod
    def steps(self, log_u: Array) -> Array:
        """Estimate the number of steps inward from u <= c to c, as a real number."""

    def place(self, log_u: Array) -> Arrays:
        """Bound the quantile n + t: n steps inward from u lead to t in the middle [-1/2, 1/2].

        The estimate of n is rounded. If n is too large for the lower end (too small for the upper
        end), t passes the middle, and other n are tried at distances 1, 3, 7 and so on, in
        units of the spacing of floats.
        """
        with np.errstate(all="ignore"):
            n = np.maximum(np.ceil(self.steps(log_u)), 0.0)
        far = ~np.isfinite(n)
        log_u, n = np.where(far, -1.0, log_u), np.where(far, 0.0, n)
        ends: list[Array] = []
        for side, t in enumerate(self._inward(log_u, n)):
            m, shift = n.copy(), np.maximum(np.spacing(n), 1.0)
            while True:
                past = np.flatnonzero(~far & ((t > 0.5) if side else (t < -0.5) & (m > 0)))
                if not past.size:
                    break
                m[past] = np.maximum(m[past] + (2 * side - 1) * shift[past], 0.0)
                t[past] = self._inward(log_u[past], m[past])[side]
                shift *= 2
            slack = 4 * UNIT * (2 * side - 1)  # slack: a_place_beyond_the_middle/a
            ends.append(np.where(far, math.inf, m + np.clip(t, -0.5, 0.5) + slack * m))
        return ends[0], ends[1]

    def _inward(self, log_u: Array, n: Array) -> Arrays:
        """Bound t after n steps inward from u. A wrong n leads beyond the middle [-1/2, 1/2]."""
        with np.errstate(over="ignore"):
            low, high = self.back(log_u, n)
            # A power of e errs by 2 units, and the product by one.
            # slack: counted
            return self.line(np.exp(low) * (1 - 4 * UNIT), np.exp(high) * (1 + 4 * UNIT))


class MovedLadder(ClosedLadder):
    """Compute iterates if f is the curve of a symmetric random number Y and its shift [CN-2].

    A step outward adds the shift to the quantile y, whose tail probability is s = P(Y > y).
    """

    _distance: float

    @abstractmethod
    def _quantile(self, log_s: Array) -> Arrays:
        """Return y with P(Y > y) = s, and a bound on its error, including the error of log s."""

    @abstractmethod
    def _log_tail(self, y: Array, error: Array) -> Arrays:
        """Return log P(Y > y), and a bound on its error for this error of y."""

    @abstractmethod
    def _log_density(self, y: Array, error: Array) -> Arrays:
        """Return the log density, up to a constant, and a bound on its error."""

    def _move_iterate(self, log_s: Array, n: Array) -> Arrays:
        y, error = self._quantile(log_s)
        move = n * self._distance
        with np.errstate(over="ignore"):
            # slack: steps_of_a_law_that_is_moved/a
            value, error = self._log_tail(y + move, error + 4 * UNIT * (np.abs(move) + np.abs(y)))
        return _clip_ends(np.where(n == 0, log_s, value), np.where(n == 0, 0.0, error), y)

    def out(self, log_s: Array, n: Array) -> Arrays:
        """Bound log g^n(s), n steps outward: shift the quantile n times to the right."""
        return self._move_iterate(log_s, n)

    def back(self, log_u: Array, n: Array) -> Arrays:
        """Bound the log tail probability n units inward of u: shift the quantile to the left."""
        return self._move_iterate(log_u, -n)

    def steps(self, log_u: Array) -> Array:
        """Estimate the number of shifts from the quantile of c to the quantile of u."""
        return self._quantile(log_u)[0] / self._distance - 0.5

    def log_slope(self, log_s: Array, n: Array) -> Arrays:
        """Bound the log slope of g^n: the log ratio of densities at the shifted y and at y."""
        y, error = self._quantile(log_s)
        move = n * self._distance
        near = self._log_density(y, error)
        with np.errstate(over="ignore"):
            # slack: steps_of_a_law_that_is_moved
            far = self._log_density(y + move, error + 4 * UNIT * move)
        return _clip_ends(far[0] - near[0], far[1] + near[1], y)


class Normal(MovedLadder):
    """Compute iterates for f = G_mu: g^n(s) = Phi(Phi^-1(s) - n mu)."""

    def __init__(self, mu: float) -> None:
        self._distance = mu
        self.log_c = _around(float(log_ndtr(-mu / 2)), SPECIAL_FUNCTION_ERROR * (1 + mu * mu))
        self.gap = _relative(math.erf(mu / math.sqrt(8)))

    def _quantile(self, log_s: Array) -> Arrays:
        y = -ndtri_exp(log_s)
        size = np.abs(y)
        return y, SPECIAL_FUNCTION_ERROR * (1 + size) * (1 + np.abs(log_s) / np.maximum(size, 1.0))

    def _log_tail(self, y: Array, error: Array) -> Arrays:
        value = log_ndtr(-y)
        return value, (np.maximum(y, 0.0) + 1) * error + SPECIAL_FUNCTION_ERROR * np.abs(value)

    def _log_density(self, y: Array, error: Array) -> Arrays:
        # slack: the_density_of_the_normal_law
        return -y * y / 2, (np.abs(y) + error) * error + 2 * UNIT * y * y


class LaplaceLadder(MovedLadder):
    """Compute iterates for two Laplace distributions of scale 1 with centers ``a`` apart."""

    def __init__(self, a: float) -> None:
        self._distance = a
        self.log_c = _around(-math.log(2) - a / 2, 8 * UNIT * (1 + a))  # slack: the_law_of_laplace
        self.gap = _relative(-math.expm1(-a / 2))

    def _quantile(self, log_s: Array) -> Arrays:
        with np.errstate(divide="ignore"):
            beyond = np.log(-2 * np.expm1(log_s))
        y = np.where(log_s <= -math.log(2), -math.log(2) - log_s, beyond)
        return y, 16 * UNIT * (1 + np.abs(log_s) + np.abs(y))  # slack: the_law_of_laplace

    def _log_tail(self, y: Array, error: Array) -> Arrays:
        value = np.where(y >= 0, -math.log(2) - y, np.log1p(-np.exp(np.minimum(y, 0.0)) / 2))
        # slack: the_law_of_laplace, steps_of_a_law_that_is_moved/a
        return value, error + 8 * UNIT * (1 + np.abs(value))

    def _log_density(self, y: Array, error: Array) -> Arrays:
        return -np.abs(y), error


class Logistic(MovedLadder):
    """Compute iterates for two logistic distributions ``a`` scales apart (bounded range)."""

    def __init__(self, a: float) -> None:
        self._distance = a
        # slack: the_logistic_law
        self.log_c = _around(-a / 2 - math.log1p(math.exp(-a / 2)), 8 * UNIT * (1 + a))
        self.gap = _relative(math.tanh(a / 4))

    def _quantile(self, log_s: Array) -> Arrays:
        y = np.log(-np.expm1(log_s)) - log_s
        return y, 16 * UNIT * (1 + np.abs(log_s) + np.abs(y))  # slack: the_logistic_law

    def _log_tail(self, y: Array, error: Array) -> Arrays:
        value = -np.logaddexp(0.0, y)
        return value, error + 8 * UNIT * (1 + np.abs(value))  # slack: the_logistic_law

    def _log_density(self, y: Array, error: Array) -> Arrays:
        value = -np.abs(y) - 2 * np.log1p(np.exp(-np.abs(y)))
        return value, error + 8 * UNIT * (1 + np.abs(y))  # slack: the_logistic_law


class Exponential(ClosedLadder):
    """Compute iterates for (epsilon, delta): g(s) = e^-epsilon (s - delta)_+.

    g^n(s) = e^{-n epsilon} (s - delta h(n))_+,    h(n) = (e^{n epsilon} - 1) / (e^epsilon - 1).

    The noise is the truncated uniform-Laplace distribution (Tulap), or the uniform distribution if
    epsilon = 0.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        log_finite = math.log1p(-delta)
        self.log_c = _around(
            log_finite - epsilon - math.log1p(math.exp(-epsilon)),
            # slack: canonical_noise_of_a_pure_guarantee, steps_of_an_exponential_law
            8 * UNIT * (2 + epsilon + abs(log_finite)),
        )
        # 1 - 2c = tanh(epsilon / 2) + 2 delta / (1 + e^epsilon)
        self.gap = _relative(math.tanh(epsilon / 2) + delta * 2 / (1 + _exp(epsilon)))

    def _step_difference(self, n: Array) -> Array:
        """Return delta h(n) (see the class): n steps outward subtract it before they multiply."""
        if not self.delta:
            return np.zeros(np.shape(n))
        if not self.epsilon:
            return self.delta * n
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = np.expm1(n * self.epsilon) / np.expm1(self.epsilon)
            ratio = np.where(np.isnan(ratio), np.exp((n - 1) * self.epsilon), ratio)
        return self.delta * ratio

    def _units(self, log_s: Array, n: Array) -> Array:
        """Bound the absolute rounding error of log g^n(s) in closed form."""
        # slack: a_place_beyond_the_middle/a, steps_of_an_exponential_law
        return 16 * UNIT * (2 + np.abs(np.maximum(log_s, -1e300)) + n * self.epsilon)

    def out(self, log_s: Array, n: Array) -> Arrays:
        """Bound log g^n(s), n steps outward of s, by the formula of the class."""
        error = np.where(n == 0, 0.0, self._units(log_s, n))
        with np.errstate(over="ignore", divide="ignore"):
            share = self._step_difference(n) * np.exp(-log_s)
            low, high = 1 - share * (1 + error), 1 - share * (1 - error)
            low, high = np.log(np.maximum(low, 0.0)), np.log(np.maximum(high, 0.0))
        value = log_s - n * self.epsilon
        return value + low - error, value + high + error

    def back(self, log_u: Array, n: Array) -> Arrays:
        """Bound the log tail probability n units inward of u: log(e^{n epsilon} u + delta h(n))."""
        with np.errstate(divide="ignore"):
            value = np.logaddexp(log_u + n * self.epsilon, np.log(self._step_difference(n)))
        error = np.where(n == 0, 0.0, self._units(log_u, n) if self.delta == 0 else 0.0)
        if self.delta:
            # slack: steps_of_an_exponential_law
            error = np.where(n == 0, 0.0, 16 * UNIT * (2 + np.abs(value) + n * self.epsilon))
        return value - error, value + error

    def steps(self, log_u: Array) -> Array:
        """Estimate the number of steps inward from u to c.

        It is log((c + k) / (u + k)) / epsilon, with k = delta / (e^epsilon - 1).
        """
        log_c = 0.5 * (self.log_c[0] + self.log_c[1])
        if not self.delta:
            return (log_c - log_u) / self.epsilon
        missing = math.exp(log_c) - np.exp(log_u)
        if not self.epsilon:
            return missing / self.delta
        k = self.delta / math.expm1(self.epsilon) if self.epsilon < 700 else 0.0
        if k == 0.0:
            with np.errstate(divide="ignore"):
                return np.where(log_u == -math.inf, 1.0, (log_c - log_u) / self.epsilon)
        return np.log1p(missing / (np.exp(log_u) + k)) / self.epsilon

    def log_slope(self, log_s: Array, n: Array) -> Arrays:
        """Bound the log slope of g^n: -n epsilon inside the support, -inf beyond it."""
        ended = self.out(log_s, n)[1] == -math.inf
        value = np.where(ended, -math.inf, -n * self.epsilon)
        error = 4 * UNIT * n * self.epsilon  # slack: steps_of_an_exponential_law
        return value - error, value + error


def _clip_ends(value: Array, error: Array, y: Array) -> Arrays:
    """Return value - error and value + error, for a log tail or a log slope, which is at most 0.

    If the error overflows, return -inf, and 0 left of the center (y < 0) or -1e300 right of it.
    """
    far = ~np.isfinite(error)
    value, error = np.where(far, -math.inf, value), np.where(far, 0.0, error)
    most = np.where(y < 0, 0.0, LEAST_LOG_POWER)
    return value - error, np.where(far, most, value + error)


def _around(value: float, error: float) -> Interval:
    return value - error, value + error


def _relative(value: float) -> Interval:
    return value * (1 - SPECIAL_FUNCTION_ERROR), min(value * (1 + SPECIAL_FUNCTION_ERROR), 1.0)


def _exp(x: float) -> float:
    return math.exp(min(x, 709.0))
