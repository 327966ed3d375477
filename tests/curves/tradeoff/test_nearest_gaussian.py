"""The nearest Gaussian curve against closed forms and dense grids of levels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

import neyman as ny

tries = settings(max_examples=25)
GRID = np.concatenate([[0.0, 1.0], np.linspace(0, 1, 20_001), np.geomspace(1e-9, 1, 4001)])


def with_corners(*corners):
    """The grid and the levels of a polygon's corners, where a distance may be largest."""
    return np.unique(np.concatenate([GRID, np.clip(corners, 0, 1)]))


def gaussian(mu, levels):
    with np.errstate(invalid="ignore"):
        inside = ndtr(mu + ndtri(levels))
    return np.where(levels <= 0, 0.0, np.where(levels >= 1, 1.0, inside))


def agrees(nearest, levels, power, grid=5e-5):
    """Whether both intervals fit what a dense grid says, which errs by the grid."""

    def distance(mu):
        return float(np.max(np.abs(power - gaussian(mu, levels))))

    best = minimize_scalar(distance, bounds=(0, 12), method="bounded")
    assert nearest.distance.upper >= distance(nearest.mu.upper) - 1e-12
    assert nearest.distance.lower <= best.fun + grid
    assert nearest.distance.upper <= best.fun * 1.0015 + grid
    assert nearest.mu.lower - 5e-3 <= best.x <= nearest.mu.upper + 5e-3


@tries
@given(st.floats(0.1, 6))
def test_the_nearest_to_pure_privacy(epsilon):
    odds = math.exp(epsilon)
    levels = with_corners(1 / (1 + odds))
    power = np.minimum(odds * levels, 1 - (1 - levels) / odds)
    agrees(ny.pure(epsilon).nearest_gaussian(), levels, power)


@tries
@given(st.floats(0.2, 5))
def test_the_nearest_to_laplace_noise(scale):
    e, levels = 1 / scale, with_corners(0.5)
    middle = 1 - math.exp(-e) / (4 * np.maximum(levels, 1e-300))
    power = np.where(levels <= 0.5, middle, 1 - math.exp(-e) * (1 - levels))
    power = np.where(levels <= math.exp(-e) / 2, math.exp(e) * levels, power)
    agrees(ny.Laplace(scale).tradeoff().nearest_gaussian(), levels, power)


@tries
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_nearest_to_two_finite_distributions(weights, random):
    """Neyman and Pearson's polygon in both orders; the larger power counts."""
    p = np.array(weights) / sum(weights)
    other = [random.uniform(0.01, 1) for _ in weights]
    q = np.array(other) / sum(other)

    def polygon(p, q):
        order = np.argsort(-(p / q))
        return np.append(0, np.cumsum(q[order])), np.append(0, np.cumsum(p[order]))

    one, other = polygon(p, q), polygon(q, p)
    levels = with_corners(*one[0], *other[0])
    power = np.maximum(np.interp(levels, *one), np.interp(levels, *other))
    agrees(ny.between(p.tolist(), q.tolist()).nearest_gaussian(), levels, power)


def test_gaussians_are_their_own_and_the_ends_have_their_limits():
    nearest = (ny.Gaussian(1) * 4).tradeoff().nearest_gaussian()
    assert nearest.mu.lower <= 2 <= nearest.mu.upper
    assert nearest.distance.upper < 1e-14
    nothing = ny.perfect().nearest_gaussian()
    assert (nothing.mu.upper, nothing.distance.upper) == (0, 0)
    everything = ny.NonPrivate().tradeoff().nearest_gaussian()
    assert everything.mu.lower == math.inf


@pytest.mark.parametrize(
    "mechanism",
    [
        ny.Gaussian(0.8).subsample(rate=0.01) * 1000,
        ny.Gaussian(1).subsample(rate=0.3),
        ny.DiscreteGaussian(2, [(2, 0), (1, 1)]),
        ny.RandomSubset(3, 10),
    ],
    ids=repr,
)
def test_no_power_exceeds_the_nearest_gaussian_by_more_than_the_distance(mechanism):
    f = mechanism.tradeoff()
    nearest = f.nearest_gaussian()
    levels = np.concatenate([np.geomspace(1e-12, 0.5, 60), 1 - np.geomspace(1e-9, 0.5, 30)])
    powers = np.array([(b.lower, b.upper) for b in f.powers(levels.tolist())])
    curve = gaussian(nearest.mu.upper, levels)
    assert np.all(powers[:, 0] <= curve + nearest.distance.upper)
    assert np.all(powers[:, 1] >= curve - nearest.distance.upper)
    assert np.max(np.abs(powers[:, 1] - curve)) <= nearest.distance.upper + 1e-9
    assert nearest.distance.width <= 0.02 * nearest.distance.upper + 1e-6


def test_the_summary_of_a_training_run_is_far_below_its_supremum():
    """Rare losses decide the supremum, whose proven end ignores the samples."""
    f = (ny.Gaussian(0.8).subsample(rate=0.01) * 1000).tradeoff()
    nearest = f.nearest_gaussian()
    assert f.gdp().upper > 30
    assert nearest.mu < 0.6
    assert nearest.distance < 0.006
