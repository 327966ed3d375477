"""The density of a sum of few steps: against mpmath, the grid, and identities."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.curves import Composition, dots_profile, select
from neyman.curves.profiles.sampled_steps.few_steps import FewStepsProfile, Step, log_left
from neyman.curves.profiles.sampled_steps.log_sum_density import (
    convolve,
    density_of_step,
    log_growth,
    split,
)
from random_laws import examples


def addition(*parts: tuple[float, float, int]) -> Composition:
    """The addition of a record to steps (rate, sigma, count)."""
    total = sum(
        (ny.Gaussian(sigma).subsample(rate=rate) * count for rate, sigma, count in parts[1:]),
        ny.Gaussian(parts[0][1]).subsample(rate=parts[0][0]) * parts[0][2],
    )
    one, two = total.tradeoff().directions
    return two if one.parts[0][0].removed else one


def exact_delta(rate: float, sigma: float, epsilon: float, removed: bool) -> Any:
    """delta of two steps: mpmath's integral over the first, the second in closed form."""
    with mp.workdps(30):
        q, mu = mp.mpf(rate), 1 / mp.mpf(sigma)

        def ratio(y: Any) -> Any:
            return 1 - q + q * mp.exp(mu * y - mu * mu / 2)

        def first(e: Any) -> Any:  # removal of one step
            x = 1 + (mp.exp(e) - 1) / q
            if x <= 0:
                return 1 - mp.exp(e)
            t = mp.log(x)
            return q * (mp.ncdf(mu / 2 - t / mu) - x * mp.ncdf(-mu / 2 - t / mu))

        def added(e: Any) -> Any:
            return 1 - mp.exp(e) + mp.exp(e) * first(-e)

        def term(y: Any) -> Any:
            loss = mp.log(ratio(y))
            if removed:
                return mp.npdf(y) * ratio(y) * first(mp.mpf(epsilon) - loss)
            return mp.npdf(y) * added(mp.mpf(epsilon) + loss)

        # The integrand bends where what is left of epsilon is about the loss of no record.
        bends = set()
        for k in range(-20, 30):
            for sign in (-1, 1):
                left = mp.log(1 - q) + sign * q * mp.mpf(2) ** k
                e = (mp.mpf(epsilon) - left) * (1 if removed else -1)
                x = 1 + (mp.exp(e) - 1) / q
                if x > 0:
                    bends.add(mp.log(x) / mu + mu / 2)
        inner = [b for b in bends if -14 < b < 20 + mu]
        places = sorted({mp.mpf(-14), *inner, *map(mp.mpf, range(-13, 20)), 20 + mu})
        return mp.quad(term, places)


@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize(
    ("rate", "sigma"), [(0.01, 1.0), (1.4e-4, 2.5), (0.1, 3.0), (1e-3, 1.5), (1e-6, 0.5)]
)
def test_two_steps_hold_the_integral_of_mpmath(rate, sigma, share):
    epsilon = -2 * math.log1p(-rate) * share
    profile = FewStepsProfile(addition((rate, sigma, 2)))
    low, high = profile.log_delta(epsilon)
    exact = float(mp.log(exact_delta(rate, sigma, epsilon, False)))
    assert low <= exact <= high
    assert high - low < 1e-7


@settings(max_examples=examples(12))
@given(
    rates=st.lists(st.floats(-6, -0.7), min_size=1, max_size=2),
    sigma=st.floats(0.5, 4),
    count=st.integers(2, 5),
    log_delta=st.floats(-30, -6),
)
def test_intervals_meet_those_of_the_grid(rates, sigma, count, log_delta):
    """Two engines that share no code certify one number."""
    steps = [(10**rate, sigma * (1 + 0.3 * k), count) for k, rate in enumerate(rates)]
    losses = addition(*steps)
    profile = FewStepsProfile(losses)
    epsilon = profile.epsilon_near(log_delta)
    low, high = profile.log_delta(epsilon)
    other_low, other_high = dots_profile(losses).log_delta(epsilon)
    assert low <= other_high + 1e-12
    assert other_low <= high + 1e-12


@pytest.mark.parametrize("level", [1e-9, 0.01, 0.6])
@pytest.mark.parametrize("part", [(0.0055, 0.27, 13), (2e-6, 0.2, 5)])
def test_a_power_without_a_line_is_near_its_level(part, level):
    """Small noise, where lines need too many nodes: powers by duality from deltas."""
    low, high = select(addition(part)).log_power(math.log(level))
    assert math.log(level) - 1e-12 <= low <= high < low + 2e-5


@pytest.mark.parametrize(
    ("rate", "sigma", "count", "delta"),
    [
        (1e-6, 1, 5, 1e-12),
        (1e-7, 0.8, 2, 1e-12),
        (1e-4, 3, 2, 1e-12),
        (1e-5, 0.5, 10, 1e-8),
        (1e-3, 0.8, 20, 1e-8),
        (1.4e-4, 2.5, 2, 7e-12),
        (1e-7, 10, 20, 1e-5),
    ],
)
def test_questions_that_were_loose_are_tight(rate, sigma, count, delta):
    """Some were wider than half of their value, and one raised ZeroDivisionError."""
    epsilon = (ny.Gaussian(sigma).subsample(rate=rate) * count).tradeoff().epsilon(delta)
    assert epsilon.upper - epsilon.lower <= 1e-6 * epsilon.upper


def test_a_density_is_within_its_error_of_the_integral_of_mpmath():
    step = Step(0.01, 0.7)
    one = density_of_step(step, -14, 4, 0.25)
    two = convolve(one, one, -9, 1, 0.25)
    for tau in (-6.0, -4.4, -1.0):
        with mp.workdps(30):

            def term(r: Any, tau: float = tau) -> Any:
                e, grow = mp.exp(tau), mp.exp(r)
                first = mp.log(2 * e / (1 + grow + mp.sqrt((1 + grow) ** 2 + 4 * grow * e)))
                second = first + r
                density = mp.npdf(first, step.mean, step.distance)
                density *= mp.npdf(second, step.mean, step.distance)
                return density * e / (e + mp.exp(first + second))

            exact = mp.log(mp.quad(term, [-20, -8, -4, -2, 0, 2, 4, 8, 20]))
        place = np.array([tau])
        error = float(two.error[two.panel(place)][0])
        assert abs(float(two.log_value(place)[0]) - float(exact)) <= error + 1e-13
        assert error < 1e-8


@given(tau=st.floats(-20, 8), r=st.floats(-30, 30))
def test_a_split_gives_back_its_sum(tau, r):
    alpha, beta = (float(v[0]) for v in split(np.array([tau]), np.array([r])))
    both = math.log1p(math.exp(alpha)) + math.log1p(math.exp(beta))
    assert math.isclose(both, math.log1p(math.exp(tau)), rel_tol=1e-12)
    assert math.isclose(beta - alpha, r, abs_tol=1e-12 * (1 + abs(tau)))


@settings(max_examples=60)
@given(rate=st.floats(-7, -0.4), mu=st.floats(0.1, 4), tau=st.floats(-3, 3), share=st.floats(-1, 1))
def test_growth_bounds_a_density_at_complex_places(rate, mu, tau, share):
    """FS-2 for one step, where the density is a normal distribution in log(e^S - 1)."""
    step = Step(10**rate, mu)
    angle = 0.8 * min(1.0, mu)
    place = complex(step.mean + tau * mu * 2, share * angle)
    size = -((place - step.mean) ** 2).real / (2 * mu**2)
    real = np.linspace(place.real - 0.35 * angle**2, place.real + 0.35 * angle**2, 41)
    nearby = float(np.max(-((real - step.mean) ** 2)) / (2 * mu**2))
    bound = log_growth(((step, 1),), angle, np.array([place.real + 0.35 * angle**2]))
    assert size <= nearby + float(bound[0]) + 1e-12


@pytest.mark.parametrize("tau", [-4.0, -2.0, 0.5, 3.0])
def test_tails_of_a_sum_are_bounded_by_simulation(tau):
    """Three steps, 10^6 draws: a mass above its bound by 6 deviations has probability 1e-9."""
    step, draws = Step(0.05, 1.2), 10**6
    b = np.random.default_rng(7).normal(step.mean, step.distance, (3, draws))
    log_ratio = np.log1p(np.exp(b)).sum(axis=0)
    left = float((np.log(np.expm1(log_ratio)) < tau).mean())
    assert left <= math.exp(log_left(((step, 3),), tau)) + 6 * math.sqrt(left / draws) + 1e-5
