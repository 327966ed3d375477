"""The loss of a Poisson-subsampled Gaussian: digits from independent integration."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom

import neyman as ny
import reference as ref
from neyman.curves import Composition, SubsampledGaussianLoss, select


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
    result = loss.log_mgf(np.array([z]))[0]
    error = float(loss.mgf_rounding(np.array([z]))[0]) * math.exp(
        float(loss.log_mgf(np.array([z.real]))[0].real) - float(truth.real)
    )
    assert abs(complex(truth) - result) <= error + 4e-16 * abs(complex(truth))


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("tilt", [-0.5, 0.5, 4.0, 7.0])
@pytest.mark.parametrize(
    ("mu", "rate"), [(1.0, 0.05), (3.0, 0.01), (0.2, 0.4), (1.0, 1e-4), (0.02, 0.9), (12.0, 1e-7)]
)
def test_the_decay_bound_is_above_the_characteristic_function(removed, tilt, mu, rate):
    """Each entry bounds log |phi| on all of its interval, whatever the intervals' length."""
    loss = SubsampledGaussianLoss(mu, rate, removed)
    # Higher up K takes minutes.
    scale = min(1 / math.sqrt(loss.moments(np.array([tilt]))[2][0]), 1.0)
    for ratio in (1.15, 1.6, 4.0):
        edges = scale * 0.05 * ratio ** np.arange(int(math.log(2e3) / math.log(ratio)))
        bound = loss.decay(tilt, edges)
        u = np.geomspace(edges[0], min(3 * edges[-1], 4e3), 200)
        base = float(loss.log_mgf(np.array([tilt]))[0])
        size = np.real(loss.log_mgf(tilt + 1j * u)) - base
        error = loss.mgf_rounding(tilt + 1j * u) * np.exp(np.minimum(-size, 600)) + 1e-15
        which = np.searchsorted(edges, u, side="right") - 1
        assert np.all(size <= bound[which] + error)


def test_a_billion_steps_stay_within_what_is_claimed():
    """K of one step errs by so little that 10^9 of them do not leave the bound (mpmath digits)."""
    loss = SubsampledGaussianLoss(1.0, 2e-5, False)
    k, error = Composition.of([(loss, 10**9)]).mgf(np.array([6.0]))
    assert abs(k[0] - 14.42733307078087813960565) <= math.log1p(error[0]) + 1e-14
    assert error[0] < 1e-7
    low, high = select(Composition.of([(loss, 10**9)])).log_delta(3.95180605511799)
    assert low - 1e-12 <= math.log(1e-6) <= high + 1e-12


@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize("epsilon", [0.0, 0.005, 0.05, 0.5])
def test_one_step_is_the_closed_form_in_both_directions(rate, epsilon):
    for removed in (True, False):
        truth = ref.sampled_delta(1, rate, epsilon, removed)
        profile = select(Composition.of([(SubsampledGaussianLoss(1.0, rate, removed), 1)]))
        low, high = profile.log_delta(epsilon)
        assert math.exp(low) <= truth * (1 + mp.mpf(10) ** -14)
        assert truth <= math.exp(high) * (1 + 1e-14)


def test_sampling_nobody_reveals_nothing_and_everybody_is_the_mechanism():
    gaussian = ny.Gaussian(2)
    assert gaussian.subsample(0).tradeoff().advantage().upper == 0
    assert gaussian.subsample(1).tradeoff().delta(1) == gaussian.tradeoff().delta(1)


@pytest.mark.parametrize(
    ("mechanism", "one"),
    [
        (ny.Gaussian(0.02).subsample(rate=0.05, neighboring="replace-one"), 1250.0),
        (ny.Laplace(0.004).subsample(rate=0.05, neighboring="replace-one"), 250.0),
        (ny.Laplace(0.004).subsample(rate=0.05), 247.0),
    ],
    ids=["Gaussian", "Laplace, replace-one", "Laplace"],
)
def test_little_noise_counts_the_samples_that_hold_the_person(mechanism, one):
    """A sample without the person has a loss so near 0 that floats do not tell it from an atom."""
    f = (mechanism * 100).tradeoff()
    for inclusions in (1, 2, 5):
        truth = float(binom.logsf(inclusions - 1, 100, 0.05))
        bound = f.log_delta((inclusions - 0.5) * one)
        assert bound.lower <= truth + 1e-6
        assert bound.upper >= truth - 1e-6
