"""Type II errors near 0, from contours between the poles at -1 and 0, against mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.curves import Composition, FiniteLoss, GaussianLoss, contour_profile
from neyman.curves.profiles.contour.complement_line import (
    _largest_around,
    complement_line,
    log_type_two_error,
)
from random_laws import examples

LEVELS = [0.01, 0.5, 0.88, 0.9, 0.995, 1 - 2.0**-30]
MASSES = {-1: 0.25, 0: 0.5, 3: 0.24}  # of 1/2 times the key; the rest is an infinite loss
MISSING = 1 - sum(p * math.exp(-k / 2) for k, p in MASSES.items())
FINITE = FiniteLoss(
    Fraction(1, 2), tuple(MASSES), tuple(math.log(p) for p in MASSES.values()), 0.01, MISSING
)


def gaussian_complement(epsilon, mu):
    """1 - delta(epsilon) of a Gaussian release."""
    z = epsilon / mu
    return mp.ncdf(z - mu / 2) + mp.exp(epsilon) * mp.ncdf(-z - mu / 2)


def complement(epsilon, mu, count):
    """1 - delta(epsilon) of a Gaussian release and ``count`` finite losses."""
    if not count:
        return gaussian_complement(epsilon, mu)
    return mp.fsum(
        p * complement(epsilon - mp.mpf(k) / 2, mu, count - 1) for k, p in MASSES.items()
    )


def type_two_error(log_level, mu, count):
    """The largest 1 - delta - e^epsilon level, by ternary search in 50 digits."""
    with mp.workdps(50):
        level = mp.exp(mp.mpf(log_level))

        def gain(epsilon):
            return complement(epsilon, mu, count) - mp.exp(epsilon) * level

        low, high = mp.mpf(-mu * mu - 40), mp.mpf(mu * mu + 40)
        for _ in range(170):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if gain(left) < gain(right) else (low, right)
        return mp.log(gain((low + high) / 2))


@pytest.mark.parametrize("mu", [3.0, 8.0, 30.0])
@pytest.mark.parametrize("level", LEVELS)
def test_the_type_two_error_of_a_gaussian_is_enclosed(mu, level):
    composition = Composition.of([(GaussianLoss(mu * mu), 1)])
    low, high = log_type_two_error(composition, math.log(level), contour_profile(composition))
    assert low <= type_two_error(math.log(level), mu, 0) <= high
    assert high - low < (1e-6 if low > -300 else 1e-5)  # 1 - delta and level cancel


@pytest.mark.parametrize("level", [v for v in LEVELS if v < (1 - MISSING) ** 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_type_two_error_with_infinite_losses_is_enclosed(level, reverse):
    parts = Composition.of([(GaussianLoss(36.0), 1), (FINITE, 2)])
    other = parts.reverse()
    composition, other = (other, parts) if reverse else (parts, other)
    low, high = log_type_two_error(composition, math.log(level), contour_profile(other))
    assert high - low < 1e-6
    if not reverse:
        assert low <= type_two_error(math.log(level), 6.0, 2) <= high
        return
    # The curve of the reversed pair is the inverse: f(f'(level)) is the level.
    with mp.workdps(50):
        back = [mp.exp(type_two_error(end, 6.0, 2)) for end in (high, low)]
    assert back[0] <= level * (1 + 1e-15)
    assert level * (1 - 1e-15) <= back[1]


def test_nothing_is_claimed_where_the_type_two_error_is_0():
    parts = Composition.of([(GaussianLoss(36.0), 1), (FINITE, 2)])
    low, _ = log_type_two_error(parts, math.log(0.995), contour_profile(parts.reverse()))
    assert low == -math.inf


@pytest.mark.parametrize("epsilon", [-12.0, -3.0, 0.0, 2.0, 25.0])
def test_one_minus_delta_is_enclosed_on_and_off_the_place_of_a_line(epsilon):
    composition = Composition.of([(GaussianLoss(36.0), 1), (FINITE, 2)])
    line = complement_line(composition, epsilon)
    places = epsilon + np.array([-30.0, -2.0, -0.1, 0.0, 0.1, 2.0, 30.0])
    low, high = line.log_complement(places)
    with mp.workdps(50):
        for place, least, most in zip(places, low, high, strict=True):
            assert least <= mp.log(complement(mp.mpf(place), 6.0, 2)) <= most
    assert high[3] - low[3] < 1e-9


@pytest.mark.parametrize(
    ("mechanism", "level"),
    [
        (ny.Gaussian(1).subsample(rate=0.1) * 10**5, 0.05),
        (ny.Gaussian(1).subsample(rate=0.01) * 449_000, 0.9),
        (ny.Laplace(1).subsample(rate=0.1) * 10**4, 0.05),
        (ny.Gaussian(1).subsample(rate=0.01) * 10**4, 0.999999),
    ],
)
def test_a_type_two_error_near_0_has_digits(mechanism, level):
    f = mechanism.tradeoff()
    error, power = f(level), f.power(level=level)
    assert 0 < error.lower <= error.upper <= error.lower * (1 + 1e-6)
    assert power.lower <= 1 - error.lower
    assert 1 - error.upper <= power.upper


@settings(max_examples=examples(60))
@given(
    left=st.floats(0.01, 5.0),
    right=st.floats(0.01, 5.0),
    curve=st.floats(0.0, 3.0),
    bend=st.floats(-4.0, 4.0),
    move=st.sampled_from([0.0, 0.0, 1e-9, -1e-5, 3e-3]),
    width=st.sampled_from([0.0, 1e-12, 1e-9]),
)
def test_chords_at_a_bend_hold_the_largest_value_of_a_concave_function(
    left, right, curve, bend, move, width
):
    """It is 1 less two slopes and a parabola in t; its largest value is 1 at a place near."""
    top = math.exp(bend + move)

    def gain(epsilon):
        away = np.exp(epsilon) / top - 1
        value = 1 - np.where(away < 0, -left, right) * away - curve * away**2
        return value - width - 1e-14, value + width + 1e-14

    low, high = _largest_around(gain, bend)
    assert low <= 1e-12
    assert high >= -1e-12
    if move == 0:
        assert high - low < 20 * width + 1e-6 * (1 + curve)
