"""The contour's bounds hold exact numbers, and would not without their slacks.

The sum of losses is one whose K is exact in floats, so that only the rounding of the function under
test is left. The exact number is what the certificate names, in 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mpf

from neyman.curves.profiles.contour.contour import AROUND, ContourProfile, _plus
from neyman.curves.profiles.contour_line import (
    Line,
    LineSum,
    least_log_powers,
    log_chernoff,
    mgf_below,
    saddle,
    terms_beyond,
    tilts_of,
)
from neyman.curves.profiles.profile import Profile
from neyman.numerics.arrays import Array
from slacks import needed, numbers

PI = mpmath.pi


@dataclass(frozen=True)
class Sure(LineSum):
    """A loss that is certainly one number: K(c) = c x, exact if both have few digits."""

    loss: float
    error: float = 0.0  # that K is said to have

    def places(self, tilt: float, height: float) -> float:
        return 1.0

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        return z * self.loss, np.full(len(z), self.error)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return tilts * self.loss, np.full(len(tilts), self.loss), np.zeros(len(tilts))

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        return np.zeros(len(edges))


class Blind(ContourProfile):
    """A contour that knows nothing but the mass and the size of the largest losses."""

    def __init__(self, infinite: float = 0.0, supremum: float = math.inf) -> None:
        super().__init__(Sure(0.0), self._never, infinite, supremum, 0.0)
        self.patient = False

    def _never(self) -> Profile:
        raise AssertionError("it is its own reverse here")

    def _chernoff(self, log_levels: Array) -> Array:
        return np.full(len(log_levels), -math.inf)

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        return np.full(len(log_levels), -math.inf), np.zeros(len(log_levels))


def sure(loss: float) -> ContourProfile:
    return ContourProfile(Sure(loss), Blind, 0.0, loss, 0.0)


def log_kernel(c: float) -> mpf:
    return c * mpmath.log(c) - (mpf(c) + 1) * mpmath.log(mpf(c) + 1)


@needed
def test_a_mass_that_is_added_to_a_logarithm() -> Iterator[bool]:
    for x, y in numbers(1, 100, (-700.0, 0.0), (-700.0, 0.0)):
        mass = math.exp(y)
        low, high = _plus(np.array([x]), np.array([x]), mass)
        yield low[0] <= mpmath.log(mpmath.exp(x) + mass) and (
            high[0] >= min(mpmath.log(mpmath.exp(x) + mass), 0)
        )


@needed
def test_chernoff_by_a_few_tilts() -> Iterator[bool]:
    for loss, epsilon in [
        *numbers(2, 40, (0.0, 1e-3), (1e6, 1e9)),
        *numbers(3, 40, (0, 9), (0, 1)),
    ]:
        short = round(1024 * loss) / 1024
        tilts = saddle(Sure(short), epsilon) * AROUND
        exact = min(mpf(c) * mpf(short) + log_kernel(c) - mpf(c) * mpf(epsilon) for c in tilts)
        yield sure(short)._chernoff_bound(np.array([epsilon]))[0] >= exact


@needed
def test_chernoff_near_the_saddle() -> Iterator[bool]:
    for (epsilon,) in numbers(3, 60, (1e3, 1e9)):
        place = math.exp(tilts_of(Sure(0.0), epsilon)[1])
        exact = min(log_kernel(c) - mpf(c) * epsilon for c in place * AROUND)
        yield sure(0.0)._exponent(epsilon, place) >= exact


@needed
def test_chernoff_of_a_power() -> Iterator[bool]:
    tilts = 2.0 ** (0.5 * np.arange(-6, 13))
    for (level,) in numbers(4, 40, (-1e6, -1e3)):
        exact = min(
            (log_kernel(c) + mpmath.log(c) + c * mpf(level)) / (1 + mpf(c))
            + mpmath.log1p(1 / mpf(c))
            for c in tilts
        )
        yield sure(0.0).log_powers_above(np.array([level]))[0] >= exact


@needed
def test_a_power_is_at_least_the_level_and_gains_at_most_the_largest_loss() -> Iterator[bool]:
    for level, x, mass in numbers(5, 40, (1e-9, 0.9), (3.0, 9.0), (-600.0, -1.0)):
        log_level, infinite = math.log(level), math.exp(mass)
        yield Blind().log_power(log_level)[0] <= mpmath.log(level)
        low, high = Blind(supremum=x).log_power(mass)
        yield high >= x + mpf(mass)
        yield Blind(supremum=x).log_power(mass)[0] <= x + mpf(mass)
        low, high = Blind(infinite).log_power(-math.inf)
        yield low <= mpmath.log(infinite) <= high


@needed
def test_a_line_of_one_node() -> Iterator[bool]:
    far = terms_beyond(np.array([2.0]), np.array([-1e9]), np.ones(1))
    for c, top, epsilon, weight in numbers(7, 60, (0.1, 9.0), (0.1, 90), (100.0, 900.0), (0.1, 1)):
        line = Line(c, np.arange(2.0), np.array([weight, 0.0]), top, 0.0, 0.0, 700.0, far, 0.0)
        low, high = line.log_delta(np.array([epsilon]))
        yield low[0] <= mpmath.log(weight) + top - mpf(c) * epsilon <= high[0]
    for c, k, gap in numbers(8, 30, (1e6, 1e9), (1.0, 9.0), (1.0, 9.0)):
        beyond = terms_beyond(np.array([c]), np.array([k]), np.array([gap]))
        line = Line(1.0, np.arange(2.0), np.zeros(2), 0.0, 0.0, 0.0, 1e9, beyond, 0.0)
        kernel = c * mpmath.log(c) - (mpf(c) + 1) * mpmath.log(mpf(c) + 1)
        alias = k + kernel - gap - mpmath.log(-mpmath.expm1(-mpf(gap)))
        yield min(alias, 0) <= line.log_delta(np.zeros(1))[1][0]


@needed
def test_chernoff_far_out() -> Iterator[bool]:
    c = mpf(5e8)
    for (epsilon,) in numbers(8, 60, (0.0, 3.0)):
        exact = log_kernel(c) - c * epsilon
        yield log_chernoff(Sure(0.0), epsilon) >= exact
    for (epsilon,) in numbers(9, 60, (1e3, 1e9)):
        yield log_chernoff(Sure(0.0), epsilon) >= log_kernel(c) - c * epsilon


@needed
def test_the_error_of_k_is_added() -> Iterator[bool]:
    for loss, error in numbers(10, 60, (0.0, 20.0), (0.0, 1.0)):
        most = mgf_below(Sure(loss, error), np.array([0.5]))
        yield most[0] >= -mpf(loss) / 2 + mpmath.log1p(error)


@needed
def test_a_miss_by_chernoff() -> Iterator[bool]:
    for most, level, a in numbers(11, 200, (-9.0, 0.0), (-20.0, -1e-3), (0.01, 0.99)):
        t = min((x - mpf(level)) / (1 - mpf(b)) for b, x in ((0, mpf(0)), (a, mpf(most))))
        miss = most + t * a
        low = least_log_powers(np.array([most]), np.array([level]), np.array([a]))
        yield low[0] == -math.inf or low[0] <= mpmath.log1p(-mpmath.exp(miss))
