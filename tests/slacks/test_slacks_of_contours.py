"""Bounds by contours and by exponents hold exact numbers, and would not without their slacks.

K of the sum is exact in floats, so that only the rounding of the bound is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import mpmath
import numpy as np
from mpmath import mpf

from neyman.curves import (
    Composition,
    ContourProfile,
    Line,
    LineSum,
    Profile,
    least_log_powers,
    log_chernoff,
    mgf_below,
    saddle,
    terms_beyond,
    tilts_of,
)
from neyman.curves.profiles.contour.contour import AROUND, _plus
from neyman.curves.profiles.operation_limits import AWAY, CHEAP_TILTS, LARGEST_TILT, ExponentProfile
from neyman.numerics import Array
from slacks import held, log_kernel, needed, numbers

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
        yield held(Blind(supremum=x).log_power(mass), x + mpf(mass))
        yield held(Blind(infinite).log_power(-math.inf), mpmath.log(infinite))


@needed
def test_a_line_of_one_node() -> Iterator[bool]:
    far = terms_beyond(np.array([2.0]), np.array([-1e9]), np.ones(1))
    for c, top, epsilon, weight in numbers(7, 60, (0.1, 9.0), (0.1, 90), (100.0, 900.0), (0.1, 1)):
        line = Line(c, np.arange(2.0), np.array([weight, 0.0]), top, 0.0, 0.0, 700.0, far, 0.0)
        yield held(line.log_delta(np.array([epsilon])), mpmath.log(weight) + top - mpf(c) * epsilon)
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


@dataclass(frozen=True)
class Facts:
    """What a sum says of itself: the loss is certainly one number, where K is known."""

    loss: float = math.inf
    infinite: float = 0.0
    supremum: float = math.inf
    log_total_variation: float = 0.0
    mu: float = math.inf

    @property
    def least(self) -> Facts:
        return self

    def places(self, tilt: float, height: float) -> float:
        return 1.0

    def mgf(self, z: Array) -> tuple[Array, Array]:
        return z * self.loss, np.zeros(len(z))


def profile(facts: Facts) -> ExponentProfile:
    return ExponentProfile(cast("Composition", facts))


def short(x: float) -> float:
    """A number of few bits, of which every product with a tilt is exact."""
    return round(1024 * x) / 1024


def exponent(c: float, loss: float) -> mpf:
    return c * mpf(loss) + c * mpmath.log(c) - (c + 1) * mpmath.log1p(c)


@needed
def test_exponents_at_a_few_tilts() -> Iterator[bool]:
    for (loss,) in numbers(1, 40, (-90.0, 90.0)):
        tilts, most, slack = profile(Facts(short(loss)))._exponents
        for c, a, more in zip(tilts.tolist(), most.tolist(), slack.tolist(), strict=True):
            yield abs(a - exponent(c, short(loss))) <= more


@needed
def test_delta_by_exponents_and_by_a_proven_mu() -> Iterator[bool]:
    for loss, epsilon in numbers(2, 60, (0.0, 9.0), (1e3, 1e6)):
        exact = min(exponent(c, short(loss)) - c * mpf(epsilon) for c in CHEAP_TILTS.tolist())
        yield profile(Facts(short(loss))).log_delta(epsilon)[1] >= exact
    for squared, share in numbers(3, 60, (0.1, 9.0), (2.0, 90.0)):
        epsilon, c = share * 9 * LARGEST_TILT, mpf(LARGEST_TILT)
        exact = squared * c * (c + 1) / 2 - c * mpf(epsilon) + exponent(LARGEST_TILT, 0.0)
        yield profile(Facts(mu=math.sqrt(squared))).log_delta(epsilon)[1] >= exact
    for (x,) in numbers(4, 60, (-600.0, -1.0)):
        mass = math.exp(x)
        yield profile(Facts(0.0, infinite=mass)).log_delta(1e9)[1] >= mpmath.log(mass)


@needed
def test_delta_by_the_test_that_rejects_large_losses() -> Iterator[bool]:
    for loss, epsilon in numbers(5, 60, (1e3, 1e6), (0.0, 9.0)):
        # No loss is below the threshold, up to e^-99.
        exact = max(-mpmath.expm1(-mpf(s)) for s in AWAY)
        yield profile(Facts(short(loss))).log_delta(epsilon)[0] <= mpmath.log(exact)


@needed
def test_the_logarithm_of_a_mass_of_infinite_loss() -> Iterator[bool]:
    for (x,) in numbers(6, 60, (-700.0, -1.0)):
        mass = math.exp(x)
        yield held(profile(Facts(infinite=mass)).log_power(-math.inf), mpmath.log(mass))


@needed
def test_a_power_by_exponents_and_by_the_largest_loss() -> Iterator[bool]:
    for level, x in numbers(7, 60, (-1e6, -1e3), (-90.0, -1.0)):
        most = profile(Facts(log_total_variation=level * 1.5)).log_power(level)[1]
        yield most >= mpmath.log(mpmath.exp(level) + mpmath.exp(mpf(level * 1.5)))
        yield profile(Facts(supremum=-x)).log_power(level)[1] >= level - mpf(x)
    for loss, level in numbers(8, 200, (-1e9, 0.0), (-9.0, -1.0)):
        exact = min(
            (exponent(c, short(loss)) + mpmath.log(c) + c * mpf(level)) / (1 + mpf(c))
            + mpmath.log1p(1 / mpf(c))
            for c in CHEAP_TILTS.tolist()
        )
        yield profile(Facts(short(loss))).log_power(level)[1] >= exact
