"""The contour engine: delta as an integral of the moment generating function of the loss.

    delta(epsilon) = (1 / 2 pi i) * integral over Re z = c > 0 of e^{K(z) - epsilon z} / (z (z+1))

A trapezoid sum of step h on that line equals the sum over whole n of
e^{2 pi n c / h} delta(epsilon + 2 pi n / h): every term is non-negative, so the sum never falls
below delta. The terms n < 0 are at most 1 / (e^{2 pi c / h} - 1), because delta <= 1; those n > 0
follow a Chernoff bound at some c' > c. What lies beyond the last node is bounded by the decay of
the tilted characteristic function and the integral of 1/u^2. Errors of K enter at each node. The
derivation stands in docs/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.atoms import UNIT
from neyman.numerics.profile import (
    Interval,
    Profile,
    log_delta_below_zero,
    log_power_by_duality,
)

__all__ = ["ContourProfile", "Sum", "node_count", "saddle"]

Array = NDArray[Any]
DIGITS = 25.0  # aliasing and truncation are kept below e^-25 of delta
MOST_NODES = 20_000
MOST_CANCELLATION = 5.0  # of the terms, in e-folds
BEYOND = (1.06, 1.15, 1.4, 2.0, 4.0)  # c' / c, for the terms after
LOOSE = 1e-3  # relative width beyond which another engine is asked as well
GOOD = 1e-8  # relative width at which a line that is there serves another epsilon


class Sum(Protocol):
    """A sum of independent losses, as the contour sees it."""

    def log_mgf(self, z: NDArray) -> NDArray:
        """K(z)."""
        ...

    def mgf(self, z: NDArray) -> tuple[NDArray, NDArray]:
        """K(z) on one vertical line, and a bound on its absolute error."""
        ...

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """K, mean and variance under a tilt."""
        ...

    def log_decay(self, tilt: float, u: float) -> float:
        """log of a bound on the tilted characteristic function from u on."""
        ...


def log_kernel(c: float) -> float:
    """log of sup over x > 0 of (1 - e^-x) e^{-c x}: delta <= e^{K(c) - c epsilon + log_kernel}."""
    return c * math.log(c) - (c + 1) * math.log1p(c)


def saddle(losses: Sum, epsilon: float, largest: float = 1e6) -> float:
    """About the c > 0 that minimizes K(c) - c epsilon - log c - log(c + 1), which is convex."""

    def slope(c: float) -> float:
        return losses.moments(c)[1] - epsilon - 1 / c - 1 / (c + 1)

    low = high = min(1.0, largest)
    while slope(low) > 0 and low > 1e-12:
        low /= 4
    while slope(high) < 0 and high < largest:
        high *= 4
    high = min(high, largest)
    for _ in range(12):
        if high / low < 1.05:
            break
        middle = math.sqrt(low * high)
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return math.sqrt(low * high)


def _peak(c: float, moments: tuple[float, float, float], epsilon: float) -> float:
    """log of the largest term on the line c."""
    return moments[0] - c * epsilon - math.log(c * (c + 1))


def _rough_log_delta(c: float, moments: tuple[float, float, float], epsilon: float) -> float:
    """About log delta(epsilon), by the bell of the terms around the saddle c."""
    bend = moments[2] + 1 / c**2 + 1 / (c + 1) ** 2
    return _peak(c, moments, epsilon) - 0.5 * math.log(math.tau * bend)


@dataclass(frozen=True, eq=False)
class _Line:
    """A vertical line with its nodes: every epsilon that it suits is answered from the same K."""

    c: float
    h: float
    z: Array
    values: Array
    error: Array
    log_cut: float
    beyond: tuple[tuple[float, float], ...]  # (c', K(c'))

    @staticmethod
    def through(losses: Sum, epsilon: float) -> _Line:
        """A line that suits ``epsilon``."""
        c, h, end = _best_line(losses, epsilon)
        count = min(math.ceil(end / h) + 1, MOST_NODES)
        z = c + 1j * h * np.arange(count + 1)
        values, error = losses.mgf(z)
        others = tuple(c * factor for factor in BEYOND)
        beyond = tuple((o, float(np.real(losses.log_mgf(np.array([o])))[0])) for o in others)
        cut = losses.log_decay(c, float(z[-1].imag))
        return _Line(c, h, z, values, error, cut, beyond)

    def log_delta(self, epsilon: float) -> Interval:
        """Certified bounds, however wide."""
        c, h, z = self.c, self.h, self.z
        top = float(self.values[0].real) - c * epsilon
        terms = np.exp(self.values - z * epsilon - top) / (z * (z + 1))
        terms[0] /= 2
        size = np.abs(terms)
        total = float(terms.real.sum()) * h / math.pi
        phase = np.abs(z) * abs(epsilon) + np.abs(self.values) + 16
        rounding = float(size @ (np.expm1(np.minimum(self.error, 600)) + 4 * UNIT * phase))
        rounding = (rounding + float(size.sum()) * len(z) * UNIT) * h / math.pi
        # Beyond the last node: h / pi times the sum of decay / u^2, at most its integral.
        end = float(z[-1].imag)
        cut = math.exp(self.log_cut) / (math.pi * end)
        turns = math.tau * c / h
        before = math.exp(-turns - top) / -math.expm1(-turns) if -turns - top < 700 else math.inf
        after = math.inf
        for other, k in self.beyond:
            gap = math.tau * (other - c) / h
            bound = k - other * epsilon + log_kernel(other) - top - gap
            if bound < 0:
                after = min(after, math.exp(bound) / -math.expm1(-gap))
        low, high = total - rounding - cut - before - after, total + rounding + cut
        slack = 8 * UNIT * (abs(float(self.values[0].real)) + abs(c * epsilon) + 1)
        slack += float(self.error[0])
        return (
            math.log(low) + top - slack if low > 0 else -math.inf,
            min(math.log(high) + top + slack, 0.0) if high > 0 else -math.inf,
        )


def _nodes(losses: Sum, c: float, epsilon: float, log_delta: float) -> tuple[float, float]:
    """Step and reach of the nodes on the line c, for about this log delta."""
    moments = losses.moments(c)
    top = moments[0] - c * epsilon
    # The terms before are below delta by e^-DIGITS, and so are those after it for some c' > c.
    after = 0.0
    for factor in BEYOND:
        other = c * factor
        excess = losses.moments(other)[0] - other * epsilon + log_kernel(other) - log_delta
        after = max(after, math.tau * (other - c) / max(excess + DIGITS, 1e-3))
    h = min(math.tau * c / (DIGITS - log_delta), after)
    need = -(DIGITS + max(top - log_delta, 0.0))
    end = 4 / math.sqrt(max(moments[2], 1e-300))
    while losses.log_decay(c, end) > need and end / h < MOST_NODES:
        end *= 1.25
    return h, end


def _best_line(losses: Sum, epsilon: float) -> tuple[float, float, float]:
    """The line, step and reach that need the fewest nodes: the saddle is not always the best.

    Off the saddle the terms outgrow their sum; lines on which they cancel too much are left out.
    """
    at = saddle(losses, epsilon)
    log_delta = min(_rough_log_delta(at, losses.moments(at), epsilon), 0.0)
    best = (at, *_nodes(losses, at, epsilon, log_delta))
    for c in (0.85 * at, 0.7 * at, 0.5 * at, 1.3 * at):
        if _peak(c, losses.moments(c), epsilon) - log_delta > MOST_CANCELLATION:
            continue
        now = (c, *_nodes(losses, c, epsilon, log_delta))
        if now[2] / now[1] < best[2] / best[1]:
            best = now
    return best


def node_count(losses: Sum, epsilon: float) -> float:
    """How many nodes a question would need; inf where the engine cannot certify its end."""
    _, h, end = _best_line(losses, epsilon)
    return end / h if end / h < MOST_NODES else math.inf


class ContourProfile(Profile):
    """Privacy profile of a sum of losses that is smooth enough.

    Args:
        losses: the sum.
        reverse: the sum of the reversed losses; the same object where they are equal.
        infinite, supremum: mass of infinite loss and largest finite loss, of both directions.
        otherwise: another engine, for questions where the end of the line cannot be certified.
    """

    def __init__(
        self,
        losses: Sum,
        reverse: Sum,
        infinite: tuple[float, float],
        supremum: tuple[float, float],
        otherwise: Callable[[], Profile],
    ) -> None:
        self.method = "contour"
        self._losses, self._reverse = losses, reverse
        self._infinite, self._supremum = infinite, supremum
        self._otherwise = otherwise
        self._lines: dict[bool, list[tuple[_Line, float, float]]] = {False: [], True: []}

    def _finite(self, epsilon: float, reverse: bool) -> Interval:
        """Bounds for the finite part: from a line that is there, if it serves."""
        if epsilon >= self._supremum[reverse]:
            return -math.inf, -math.inf
        lines = self._lines[reverse]
        best = (-math.inf, 0.0)
        for line, place, own in lines[-3:]:
            low, high = line.log_delta(epsilon)
            # Near its own place a line does about as well as any other would.
            enough = 2 * own if abs(epsilon - place) <= 0.01 * (1 + place) else 0.0
            if high - low <= max(GOOD, enough):
                return low, high
            best = max(best[0], low), min(best[1], high)
        line = _Line.through(self._reverse if reverse else self._losses, epsilon)
        low, high = line.log_delta(epsilon)
        lines.append((line, epsilon, high - low))
        return max(best[0], low), min(best[1], high)

    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log delta(epsilon); below zero from the reversed pair."""
        if epsilon >= 0:
            low, high = _plus(*self._finite(epsilon, False), self._infinite[0])
            if high - low > LOOSE or low == -math.inf < high:
                other = self._other.log_delta(epsilon)
                low, high = max(low, other[0]), min(high, other[1])
            return low, high
        same = self._reverse is self._losses
        backward = _plus(*self._finite(-epsilon, not same), self._infinite[1])
        low, high = log_delta_below_zero(epsilon, backward)
        if high - low > LOOSE:
            other = self._other.log_delta(epsilon)
            low, high = max(low, other[0]), min(high, other[1])
        return low, high

    @cached_property
    def _other(self) -> Profile:
        self.method = "contour; lattice, connecting the dots"
        return self._otherwise()

    def log_power(self, log_level: float) -> Interval:
        """Bounds on log power, by duality."""
        if log_level == -math.inf:
            return _plus(-math.inf, -math.inf, self._infinite[0])
        if log_level >= 0:
            return 0.0, 0.0
        low, high = log_power_by_duality(self.log_delta, log_level)
        least = _plus(-math.inf, -math.inf, self._infinite[0])[0]
        return max(low, least), min(high, 0.0)

    def epsilon_near(self, log_delta: float) -> float:
        """About the epsilon that has this log delta, from the saddle point."""

        def place(c: float) -> tuple[float, float]:
            """The epsilon that has its saddle at c, and about log delta there."""
            moments = self._losses.moments(c)
            epsilon = moments[1] - 1 / c - 1 / (c + 1)
            return epsilon, _rough_log_delta(c, moments, epsilon)

        low, high = 1e-9, 1.0
        for _ in range(60):
            if place(high)[1] < log_delta:
                break
            low, high = high, high * 2
        for _ in range(14):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if place(middle)[1] > log_delta else (low, middle)
            if high / low < 1.01:
                break
        return place(high)[0]

    def mu(self) -> Interval | None:
        """A grid cannot certify a supremum."""
        return None


def _plus(low: float, high: float, mass: float) -> Interval:
    if not mass:
        return low, min(high, 0.0)
    add = math.log(mass)
    slack = 4 * UNIT * (4 + abs(add))
    return (
        float(np.logaddexp(low, add)) - slack,
        min(float(np.logaddexp(high, add)) + slack, 0.0),
    )
