"""One step of noisy gradient descent from a random start, against integration."""

import math

import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from reproductions.shuffling.random_initialization import from_a_random_start


def gaussian_delta(mu, epsilon):
    """delta of G_mu, by the closed form."""
    if mu < 1e-12:
        return 0.0
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.5), (-0.3, 0.0), (0.0, 1.2)])
def test_delta_is_the_integral_over_the_start(slope, offset):
    """The interval holds the integral and is narrow."""
    epsilons = [0.0, 0.5, 1.0, 2.0]
    for e, answer in zip(epsilons, from_a_random_start(slope, offset, epsilons), strict=True):
        true = quad(
            lambda z, e=e: gaussian_delta(abs(slope * z + offset), e) * math.exp(-z * z / 2),
            -12,
            12,
            limit=400,
            points=[-offset / slope] if slope else None,
        )[0] / math.sqrt(math.tau)
        assert answer.lower <= true * (1 + 1e-8)
        assert true * (1 - 1e-8) <= answer.upper
        assert answer.upper - answer.lower < 0.1 * answer.upper + 1e-6
