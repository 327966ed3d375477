"""Bounds without a line hold exact numbers, and would not without their slacks.

The sum is one whose K is exact in floats, so that only the rounding of the bound is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import mpmath
import numpy as np
from mpmath import mpf

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.operation_limits import AWAY, CHEAP_TILTS, LARGEST_TILT, ExponentProfile
from neyman.numerics.arrays import Array
from slacks import needed, numbers


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
        low, high = profile(Facts(infinite=mass)).log_power(-math.inf)
        yield low <= mpmath.log(mass) <= high


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
