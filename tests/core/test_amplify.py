"""The loss of a Poisson-subsampled Gaussian: digits from independent integration."""

import math

import mpmath as mp
import numpy as np
import pytest

from neyman.core.amplify import SubsampledGaussianLoss
from neyman.core.composition import Composition
from neyman.core.tradeoff import Tradeoff

DIGITS = [
    # sigma, rate, steps, delta, removed, epsilon (of that direction)
    (1.0, 0.01, 1000, 1e-5, True, 1.8282366665165768730736),
    (1.0, 0.01, 1000, 1e-5, False, 1.416661948036175132250912),
    (0.8, 256 / 60_000, 14_062, 1e-5, True, 4.5498387256971616018860),
]


@pytest.mark.parametrize(("sigma", "rate", "steps", "delta", "removed", "epsilon"), DIGITS)
def test_delta_at_the_known_epsilon_is_the_known_delta(sigma, rate, steps, delta, removed, epsilon):
    loss = SubsampledGaussianLoss(1 / sigma, rate, removed)
    low, high = Composition.of([(loss, steps)]).profile.log_delta(epsilon)
    # The epsilon is a float, and log delta falls by less than 30 a unit there.
    assert low - 1e-13 <= math.log(delta) <= high + 1e-13
    assert high - low < 1e-6


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("z", [0.5, 3.0, 2 + 5j, 1 + 40j])
def test_the_moment_generating_function_is_the_integral(removed, z):
    mp.mp.dps = 30
    mu, q = mp.mpf("1.25"), mp.mpf("0.02")
    w = z + 1 if removed else -z

    def integrand(y):
        ratio = 1 + q * (mp.e ** (mu * y - mu**2 / 2) - 1)
        return mp.npdf(y) * ratio ** mp.mpmathify(w)

    truth = mp.log(mp.quad(integrand, [-14, -4, -1, 0, 1, 2, 3, 4, 6, 8, 12, 20]))
    loss = SubsampledGaussianLoss(1.25, 0.02, removed)
    found = loss.log_mgf(np.array([z]))[0]
    error = float(loss.mgf_rounding(np.array([z]))[0]) * math.exp(
        float(loss.log_mgf(np.array([z.real]))[0].real) - float(truth.real)
    )
    assert abs(complex(truth) - found) <= error + 4e-16 * abs(complex(truth))


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("tilt", [0.5, 4.0])
def test_the_decay_bound_is_above_the_characteristic_function(removed, tilt):
    loss = SubsampledGaussianLoss(1.0, 0.05, removed)
    u = np.geomspace(1e-2, 2000, 60)
    base = float(loss.log_mgf(np.array([tilt]))[0])
    size = np.real(loss.log_mgf(tilt + 1j * u)) - base
    bound = np.array([loss.decay(tilt).log_bound(float(v)) for v in u])
    # From each u on: the bound covers everything beyond, too.
    assert np.all(np.maximum.accumulate(size[::-1])[::-1] <= bound + 1e-9)


def test_both_directions_are_one_pair():
    removed = SubsampledGaussianLoss(1.0, 0.01, True)
    assert removed.reverse() == SubsampledGaussianLoss(1.0, 0.01, False)
    curve = Tradeoff.of([Composition.of([(removed, 1000)])])
    worst = curve.epsilon(1e-5)
    assert worst.lower <= 1.8282366665165768730736 <= worst.upper
