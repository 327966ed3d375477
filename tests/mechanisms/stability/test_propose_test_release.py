"""Propose-test-release: its curve against all distances, and exact distributions of small
mechanisms.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest

import neyman as ny
from neyman.noise import Bits

EPSILONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class Words(Bits):
    """The same words in every run."""

    def __init__(self, seed):
        self.stream = np.random.default_rng(seed)

    def words(self, count):
        return self.stream.integers(0, 2**64, count, dtype=np.uint64)


def laplace_profile(e, epsilon):
    """The hockey-stick divergence of a Laplace pair at any real order."""
    if abs(e) >= epsilon:
        return max(mp.mpf(0), 1 - mp.exp(e)) if e <= 0 else mp.mpf(0)
    return 1 - mp.exp((e - epsilon) / 2)


def discrete_profile(e, scale, shift):
    """That of a discrete Laplace pair, by summing its masses."""
    r = math.exp(-1 / scale)
    mass = (1 - r) / (1 + r) * r ** np.abs(np.arange(-150, 151))
    p, q = np.append(np.zeros(shift), mass), np.append(mass, np.zeros(shift))
    return np.maximum(p - math.exp(e) * q, 0).sum()


def laplace_pass(distance, threshold, scale):
    short = mp.mpf(threshold) - distance
    rare = mp.exp(-abs(short) / scale) / 2
    return rare if short >= 0 else 1 - rare


def discrete_pass(distance, threshold, scale):
    r, short = mp.exp(-1 / mp.mpf(scale)), threshold - distance
    return r ** (short + 1) / (1 + r) if short >= 0 else 1 - r**-short / (1 + r)


def worst(e, profile, passing, last):
    """The largest delta over all pairs of distances up to ``last``, and of unstable data."""
    answers = [passing(0), profile(e)]
    for i, j in [(i + a, i + 1 - a) for i in range(last) for a in (0, 1)]:
        if i + j:
            p, q = passing(i), passing(j)
            alone = max(mp.mpf(0), 1 - p - mp.exp(e) * (1 - q))
            answers.append(p * profile(e - mp.log(p / q)) + alone)
    return max(answers)


@pytest.mark.parametrize(("test_scale", "delta"), [(2, 1e-6), (0.7, 0.01), (F(5, 3), 0.2)])
def test_the_curve_is_the_worst_of_all_pairs_of_distances(test_scale, delta):
    mp.mp.dps = 20
    mechanism = ny.ProposeTestRelease(ny.Laplace(test_scale), ny.Laplace(2), delta)
    f, t = mechanism.tradeoff(), mechanism.threshold
    exact = F(str(test_scale))
    scale = mp.mpf(exact.numerator) / exact.denominator
    assert abs(laplace_pass(0, t, scale) - delta) < 1e-12 * delta
    last = int(t) + 12
    for e in EPSILONS:
        right = worst(
            e, lambda x: laplace_profile(x, 0.5), lambda i: laplace_pass(i, t, scale), last
        )
        bound = f.delta(e)
        assert bound.lower - 1e-15 <= right <= bound.upper + 1e-15
        assert bound.width < 1e-6
    mechanism = ny.ProposeTestRelease(
        ny.DiscreteLaplace(test_scale), ny.DiscreteLaplace(4, sensitivity=2), delta
    )
    f, t = mechanism.tradeoff(), mechanism.threshold
    assert discrete_pass(0, t, scale) <= delta
    assert t == 0 or discrete_pass(0, t - 1, scale) > delta
    table = {}

    def profile(x):
        return table.setdefault(x, discrete_profile(x, 4, 2))

    for e in EPSILONS[::2]:
        right = worst(e, profile, lambda i: discrete_pass(i, t, scale), t + 8)
        bound = f.delta(e)
        assert bound.lower - 1e-8 <= right <= bound.upper + 1e-8  # the sum is cut at 150
        assert bound.width < 1e-12


def test_the_published_check_values():
    mechanism = ny.ProposeTestRelease(test=ny.Laplace(2), release=ny.Laplace(2), delta=1e-6)
    f = mechanism.tradeoff()
    assert abs(mechanism.threshold - 26.2447) < 1e-4
    assert abs(float(f.delta(0)) - 0.237299008) < 1e-7
    assert abs(float(f.delta(1)) - 1e-6) < 1e-15
    assert f >= ny.approximate(1, 1.0000001e-6)
    assert float(f.advantage()) < float(ny.approximate(1, 1e-6).advantage())
    assert f.pure().lower == math.inf


def test_no_pair_of_datasets_is_above_the_curve():
    """Exact laws of a whole mechanism: the median of seven values on a grid of four points.

    All tables and all their neighbors: distance, test, and noise of the value together.
    """
    grid, bound = range(4), 1
    mechanism = ny.ProposeTestRelease(
        ny.DiscreteLaplace(F(1, 2)), ny.DiscreteLaplace(1, sensitivity=bound), 0.05
    )
    f, t = mechanism.tradeoff(), mechanism.threshold
    r = math.exp(-1)
    outcomes = np.arange(-25, 29)

    def law(table):
        place = ny.distance_to_instability.median(table, bound=bound, lower=0, upper=3)
        p = float(discrete_pass(place.distance, t, 0.5))
        noise = (1 - r) / (1 + r) * r ** np.abs(outcomes - place.steps)
        return np.append(p * noise, 1 - p)

    laws = {x: law(x) for x in itertools.combinations_with_replacement(grid, 7)}
    claimed = {e: f.delta(e).upper for e in (0.0, 0.5, 1.5, 3.0)}
    tightest = 0.0
    for x in laws:
        for i, y in itertools.product(range(7), grid):
            other = laws[tuple(sorted((*x[:i], y, *x[i + 1 :])))]
            for e, most in claimed.items():
                delta = np.maximum(laws[x] - math.exp(e) * other, 0).sum()
                assert delta <= most + 1e-10
                tightest = max(tightest, delta / most)
    assert tightest > 0.5


def test_an_exact_release_costs_the_test_and_the_leak_alone():
    f = ny.ProposeTestRelease(ny.DiscreteLaplace(2), None, 1e-6).tradeoff()
    for e in (0.0, 0.2, 0.4):
        right = (math.exp(0.5) - math.exp(e)) / (1 + math.exp(0.5))
        assert abs(float(f.delta(e)) - right) < 1e-12
    assert float(f.delta(0.5)) <= 1e-6


@pytest.mark.parametrize("delta", [0.01, 0.02, 0.05, 0.1])
def test_an_exact_release_with_laplace_noise_is_as_bad_as_its_worst_distances(delta):
    mp.mp.dps = 20
    mechanism = ny.ProposeTestRelease(ny.Laplace(F(7, 10)), None, delta)
    f, t, scale = mechanism.tradeoff(), mechanism.threshold, mp.mpf("0.7")
    for e in (0.0, 0.5, 1.0, 1.3, 1.42):
        right = worst(
            e,
            lambda x: max(mp.mpf(0), 1 - mp.exp(x)),
            lambda i: laplace_pass(i, t, scale),
            int(t) + 5,
        )
        assert f.delta(e).lower - 1e-14 <= right <= f.delta(e).upper + 1e-14


def test_it_composes_and_joins_with_others():
    one = ny.ProposeTestRelease(ny.DiscreteLaplace(2), ny.DiscreteLaplace(2), 1e-6)
    both = (one * 10 + ny.Gaussian(5)).tradeoff()
    assert float(both.delta(30)) <= 1e-5
    assert float(both.epsilon(1e-4)) < 10.5
    answer = ny.ProposeTestRelease(ny.Laplace(1), ny.RandomizedResponse(1), 1e-6)
    assert answer.neighboring == "replace-one"


def test_draws_follow_the_law():
    """2,000 draws at each of three distances: a false alarm of 1e-7 each, by Hoeffding."""
    mechanism = ny.ProposeTestRelease(ny.DiscreteLaplace(2), ny.DiscreteLaplace(1), 0.01)
    t, bits, size = mechanism.threshold, Words(3), 2000
    for distance in (t - 1, t, t + 2):
        answers = Counter(mechanism.draw(distance, 50, bits=bits) for _ in range(size))
        passes = size - answers[None]
        expected = float(discrete_pass(distance, t, 2))
        assert abs(passes / size - expected) < math.sqrt(math.log(2e7) / (2 * size))
        r = math.exp(-1)
        exact = expected * (1 - r) / (1 + r)
        assert abs(answers[50] / size - exact) < math.sqrt(math.log(2e7) / (2 * size))
    stable = ny.ProposeTestRelease(ny.DiscreteLaplace(1), None, 1e-6)
    assert stable.draw(10**20, "blue") == "blue"
    assert ny.ProposeTestRelease(ny.DiscreteLaplace(1), None, 1e-30).draw(0, "blue") is None


def test_a_statistic_on_the_largest_grid_is_released_as_it_is():
    mechanism = ny.ProposeTestRelease(ny.DiscreteLaplace(1), ny.DiscreteLaplace(1), delta=1e-6)
    assert abs(mechanism.draw(10**9, 2**52) - 2**52) < 1000  # else by chance e^-1000
