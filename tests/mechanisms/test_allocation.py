"""Random allocation: one pass over batches into which records fall at random."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

import neyman as ny
from neyman.curves import select


def two_batches(mu, epsilon):
    """Both deltas for T = 2: given x_1, the test is a threshold on x_2."""
    t = math.exp(epsilon)

    def factor(x):
        return np.exp(mu * x - mu * mu / 2)

    def threshold(x, level):  # the x_2 at which S = level
        rest = level - factor(x)
        return (math.log(rest) + mu * mu / 2) / mu if rest > 0 else -math.inf

    def removed(x):  # E over x_2 of (S/2 - t)+
        k = threshold(x, 2 * t)
        return norm.pdf(x) * ((factor(x) / 2 - t) * ndtr(-k) + ndtr(mu - k) / 2)

    def added(x):  # of (1 - t S/2)+
        k = threshold(x, 2 / t)
        return norm.pdf(x) * ((1 - t * factor(x) / 2) * ndtr(k) - t / 2 * ndtr(k - mu))

    bends = [(math.log(2 * t) + mu * mu / 2) / mu, (math.log(2 / t) + mu * mu / 2) / mu]
    ends = sorted([-10.0, *bends, 10.0 + mu])
    pieces = list(pairwise(ends))
    return [
        sum(quad(f, a, b, limit=200, epsabs=1e-13)[0] for a, b in pieces) for f in (removed, added)
    ]


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
def test_two_batches_are_what_integration_says(mu, epsilon):
    allocation = ny.Gaussian(1 / Fraction(str(mu))).random_allocation(2)
    removed, added = two_batches(mu, epsilon)
    (total,) = allocation.losses()
    for losses, truth in ((total, removed), (total.reverse(), added)):
        low, high = (math.exp(v) for v in select(losses).log_delta(epsilon))
        assert low - 1e-11 <= truth <= high + 1e-11
        assert high - low <= 2e-3 * truth + 1e-9
    delta = allocation.tradeoff().delta(epsilon)
    assert delta.lower - 1e-11 <= max(removed, added) <= delta.upper + 1e-11


@pytest.mark.parametrize("mu", [0.8, 2.0])
def test_three_batches_are_what_integration_says(mu):
    epsilon = 0.5
    t = math.exp(epsilon)
    x = np.linspace(-9, 9 + mu, 2001)
    weight = norm.pdf(x) * (x[1] - x[0])
    y = np.exp(mu * x - mu * mu / 2)
    other = np.add.outer(y, y)
    rest = np.maximum(3 * t - other, 1e-300)
    k = np.where(other < 3 * t, (np.log(rest) + mu * mu / 2) / mu, -np.inf)
    inner = (other / 3 - t) * ndtr(-k) + ndtr(mu - k) / 3
    truth = float(weight @ inner @ weight)
    allocation = ny.Gaussian(1 / Fraction(str(mu))).random_allocation(3)
    (losses,) = allocation.losses()
    low, high = (math.exp(v) for v in select(losses).log_delta(epsilon))
    assert low - 1e-7 <= truth <= high + 1e-7
    assert high - low < 2e-3 * truth


def test_one_batch_is_the_mechanism():
    allocation = ny.Gaussian(0.8).random_allocation(1)
    assert allocation.losses() == ny.Gaussian(0.8).losses()


def test_what_it_hides_is_about_what_poisson_samples_hide():
    batches, step = 100, ny.Gaussian(1.0)
    for passes in (1, 4):
        allocated = (step.random_allocation(batches) * passes).tradeoff().epsilon(1e-5)
        rate = Fraction(1, batches)
        poisson = (step.subsample(rate=rate) * (passes * batches)).tradeoff().epsilon(1e-5)
        assert 0.5 * poisson.lower < allocated.lower <= allocated.upper < poisson.lower
        assert allocated.width < 2e-3 * allocated.upper


def test_an_adaptive_pass_tells_no_more():
    """Two steps, the second's shift chosen by what the first showed: still within the bound.

    The attacker halves the second shift where the first outcome was low. By integration on a grid.
    """
    mu, t = 1.2, math.exp(0.4)
    x = np.linspace(-9, 9 + mu, 3001)
    h = x[1] - x[0]
    shift = np.where(x < 0.6, mu / 2, mu)
    first, null = norm.pdf(x - mu), norm.pdf(x)
    k = np.add.outer(-shift, x)
    p = 0.5 * first[:, None] * norm.pdf(x) + 0.5 * null[:, None] * norm.pdf(k)
    q = null[:, None] * norm.pdf(x)
    removed = np.maximum(p - t * q, 0).sum() * h * h
    added = np.maximum(q - t * p, 0).sum() * h * h
    (total,) = ny.Gaussian(1 / Fraction("1.2")).random_allocation(2).losses()
    for losses, result in ((total, removed), (total.reverse(), added)):
        assert result < math.exp(select(losses).log_delta(0.4)[1]) + 1e-6


def test_simulated_allocation_stays_within_the_ends():
    """The mean of what 20,000 outcomes add to delta, to 6 deviations: false alarms below 1e-8."""
    mu, count, draws, epsilon = 1.0, 8, 20_000, 0.5
    random = np.random.default_rng(20)
    x = random.normal(size=(draws, count))
    x[np.arange(draws), random.integers(count, size=draws)] += mu
    ratio = np.exp(mu * x - mu * mu / 2).mean(axis=1)
    part = np.maximum(1 - math.exp(epsilon) / ratio, 0)
    slack = 6 * part.std() / math.sqrt(draws)
    (total,) = ny.Gaussian(1 / Fraction(mu)).random_allocation(count).losses()
    low, high = (math.exp(v) for v in select(total).log_delta(epsilon))
    assert part.mean() - slack <= high < 1.01 * low
    assert low <= part.mean() + slack


def test_what_shows_nothing_shows_nothing_in_a_batch():
    assert (ny.Gaussian(1) * 0).random_allocation(5).tradeoff().delta(0).upper == 0


def test_many_gaussians_are_one():
    mechanism = (ny.Gaussian(2) * 4).random_allocation(5)
    allocation = ny.Gaussian(1).random_allocation(5)
    assert mechanism.tradeoff().delta(0.5) == allocation.tradeoff().delta(0.5)
