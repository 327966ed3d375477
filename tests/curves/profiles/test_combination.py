"""Few or rare samples: engines whose intervals all hold are better together than one."""

from __future__ import annotations

import math

import numpy as np
import pytest

import neyman as ny
from neyman.curves import (
    CascadeProfile,
    Profile,
    contour_profile,
    dots_profile,
    intersection,
    select,
)


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(2, 1e-4, 300), (0.6, 1e-3, 50)])
def test_rare_samples_are_answered_within_what_each_engine_alone_allows(sigma, rate, steps):
    """Delta and power lie in the intervals of both engines, and are known to 1%."""
    f = (ny.Gaussian(sigma).subsample(rate=rate) * steps).tradeoff()
    assert any(isinstance(profile.inner, CascadeProfile) for profile in f.profiles)
    for c in f.directions:
        if not isinstance(select(c).inner, CascadeProfile):
            continue
        dots, contour = dots_profile(c), contour_profile(c)
        for epsilon in (0.0, 0.01, 0.5):
            low, high = select(c).log_delta(epsilon)
            for other in (dots, contour):
                below, above = other.log_delta(epsilon)
                assert below <= high
                assert low <= above
            assert low <= high <= dots.log_delta(epsilon)[1]
        low, high = select(c).log_power(math.log(0.05))
        assert high - low < 1e-2


def test_a_rare_sample_has_an_epsilon_of_its_size():
    """300 steps of noise 2 at rate 1e-4: the contour alone left .0024 to .18."""
    result = (ny.Gaussian(2).subsample(rate=1e-4) * 300).tradeoff().epsilon(1e-6)
    assert result.lower > 0.0026
    assert result.upper < 0.00262


class Unknown(Profile):
    """Knows that delta is at most 1, and nothing else."""

    method, engine = "a test's", "none"

    def log_delta(self, epsilon):
        return -math.inf, 0.0

    def log_deltas(self, epsilons):
        return np.full(len(epsilons), -math.inf), np.zeros(len(epsilons))

    def log_power(self, log_level):
        return log_level, 0.0


def test_one_engine_that_knows_nothing_is_asked_again():
    """Epsilons near one of which the first engine knows nothing go to the others: here none."""
    profile = CascadeProfile([(0.0, Unknown)], -0.5)
    for _ in range(2):
        assert profile.log_delta(1.0) == (-math.inf, -0.5)


def test_intervals_that_contradict_each_other_give_the_interval_that_holds_both():
    """An intersection would be narrow, and wrong on one side; what is not a number claims
    nothing.
    """
    low, high = np.array([0.0, 0.0, 0.0, -math.inf]), np.array([1.0, 1.0, 1.0, 0.0])
    below, above = np.array([2.0, 0.5, math.nan, -1.0]), np.array([3.0, 2.0, math.nan, -0.5])
    ends = intersection(low, high, below, above)
    assert np.array_equal(ends[0], [0.0, 0.5, 0.0, -1.0])
    assert np.array_equal(ends[1], [3.0, 1.0, 1.0, -0.5])
