"""The contour engine: delta as an integral of the moment generating function of the loss.

    delta(epsilon) = (1 / 2 pi i) * integral over Re z = c > 0 of e^{K(z) - epsilon z} / (z (z+1))

A trapezoid sum of step h on that line equals the sum over whole n of
e^{2 pi n c / h} delta(epsilon + 2 pi n / h): every term is non-negative, so the sum never falls
below delta. The terms n < 0 are at most 1 / (e^{2 pi c / h} - 1), because delta <= 1; those n > 0
follow a Chernoff bound at some c' > c. The line is cut where a Gaussian part of the loss has
damped it: |e^{K(c + iu)}| <= e^{K(c) - v u^2 / 2}, v the variance of that part. Rounding is the sum
of the terms' sizes times a unit for each operation on their exponents.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.atoms import UNIT
from neyman.numerics.profile import Interval, Profile, log_power_by_duality, reach_for

__all__ = ["ContourProfile", "nodes_needed"]

DIGITS = 30.0  # aliasing and truncation are kept below e^-30 of delta
MOST_NODES = 200_000


def log_kernel(c: float) -> float:
    """log of sup over x > 0 of (1 - e^-x) e^{-c x}: delta <= e^{K(c) - c epsilon + log_kernel}."""
    return c * math.log(c) - (c + 1) * math.log1p(c)


class ContourProfile(Profile):
    """Privacy profile of a loss with a Gaussian part.

    Args:
        log_mgf: K, on complex arrays of shape (n,), with real part above -1.
        reverse: the same for the reversed pair; `log_mgf` itself where the pair is symmetric.
        variance: v, the variance of the Gaussian part of the loss, above 0.
        infinite, reverse_infinite: masses of infinite loss of the two directions.
        parts: number of losses summed (each K errs by a few units).
    """

    def __init__(
        self,
        log_mgf: Callable[[NDArray], NDArray],
        reverse: Callable[[NDArray], NDArray],
        variance: float,
        infinite: float,
        reverse_infinite: float,
        parts: int,
    ) -> None:
        self.method = "contour"
        self._k, self._k_reverse = log_mgf, reverse
        self._variance = variance
        self._infinite, self._reverse_infinite = infinite, reverse_infinite
        self._parts = parts

    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log delta(epsilon); below zero from the reversed pair."""
        if epsilon >= 0:
            low, high = _integral(self._k, epsilon, self._variance, self._parts)
            return _plus(low, high, self._infinite)
        low, high = _plus(
            *_integral(self._k_reverse, -epsilon, self._variance, self._parts),
            self._reverse_infinite,
        )
        base, factor = -math.expm1(epsilon), math.exp(epsilon)
        slack = 16 * UNIT
        return (
            math.log(base + factor * math.exp(low)) - slack,
            min(math.log(base + factor * math.exp(high)) + slack, 0.0),
        )

    def log_power(self, log_level: float) -> Interval:
        """Bounds on log power, by duality."""
        if log_level == -math.inf:
            return _plus(-math.inf, -math.inf, self._infinite)
        if log_level >= 0:
            return 0.0, 0.0
        reach = reach_for(self.log_delta, log_level)
        low, high = log_power_by_duality(self.log_delta, log_level, -reach, reach)
        return low, min(high, 0.0)

    def mu(self) -> Interval | None:
        """A grid cannot certify a supremum."""
        return None


def _plus(low: float, high: float, mass: float) -> Interval:
    if not mass:
        return low, min(high, 0.0)
    add = math.log(mass)
    return (
        float(np.logaddexp(low, add)) - 16 * UNIT,
        min(float(np.logaddexp(high, add)) + 16 * UNIT, 0.0),
    )


def _real(k: Callable[[NDArray], NDArray], c: float) -> float:
    return float(np.real(k(np.array([c])))[0])


def saddle(k: Callable[[NDArray], NDArray], epsilon: float, largest: float = 1e12) -> float:
    """About the c > 0 that minimizes K(c) - c epsilon - log c - log(c + 1), which is convex."""

    def slope(c: float) -> float:
        d = 1e-4 * c
        return (_real(k, c + d) - _real(k, c - d)) / (2 * d) - epsilon - 1 / c - 1 / (c + 1)

    low = high = 1.0
    while slope(low) > 0 and low > 1e-12:
        low /= 4
    while slope(high) < 0 and high < largest:
        high *= 4
    high = min(high, largest)
    for _ in range(12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return math.sqrt(low * high)


def _line(
    k: Callable[[NDArray], NDArray], epsilon: float, variance: float
) -> tuple[float, float, float, int]:
    """The line c, K(c) - c epsilon, the step h, and the number of nodes."""
    c = saddle(k, epsilon)
    top = _real(k, c) - c * epsilon
    width = math.sqrt(max(variance, 1e-300))
    # About log delta: the peak times the width of the bell.
    log_delta = min(top - math.log(c * (c + 1)) - 1 - max(math.log(width), 0.0), 0.0)
    h = math.tau * c / (DIGITS - log_delta)
    reach = math.sqrt(2 * max(DIGITS + top - log_delta, DIGITS)) / width
    return c, top, h, math.ceil(reach / h) + 1


def nodes_needed(k: Callable[[NDArray], NDArray], epsilon: float, variance: float) -> int:
    """How many nodes the engine would need for this question."""
    return _line(k, epsilon, variance)[3]


def _integral(
    k: Callable[[NDArray], NDArray], epsilon: float, variance: float, parts: int
) -> Interval:
    c, top, h, count = _line(k, epsilon, variance)
    count = min(count, MOST_NODES)
    u = h * np.arange(count + 1)
    z = c + 1j * u
    values = k(z)
    exponent = values - z * epsilon - top
    terms = np.exp(exponent) / (z * (z + 1))
    terms[0] /= 2
    total = float(terms.real.sum()) * h / math.pi
    size = np.abs(terms) * (np.abs(values) + np.abs(z) * epsilon + abs(top) + 4 * parts + 16)
    rounding = float(size.sum()) * h / math.pi * 8 * UNIT
    end = float(u[-1])
    # Beyond the last node: h / pi * sum of e^{-v u^2 / 2} / u^2, at most its integral.
    cut = math.exp(-variance * end * end / 2) / (math.pi * end) if end > 0 else math.inf
    # Everything so far is relative to e^top.
    turns = math.tau * c / h
    before = math.exp(-turns - top) / -math.expm1(-turns) if -turns - top < 700 else math.inf
    after = math.inf
    for factor in (1.25, 1.5, 2.0, 3.0, 5.0, 9.0):
        other = c * factor
        gap = math.tau * (other - c) / h
        bound = _real(k, other) - other * epsilon + log_kernel(other) - top - gap
        if bound < 0:
            after = min(after, math.exp(bound) / -math.expm1(-gap))
    low, high = total - rounding - cut - before - after, total + rounding + cut
    slack = 8 * UNIT * (abs(top) + abs(c * epsilon) + 1)
    return (
        math.log(low) + top - slack if low > 0 else -math.inf,
        min(math.log(high) + top + slack, 0.0) if high > 0 else -math.inf,
    )
