"""Gaussian, Laplace and named curves against their formulas in 60 digits and printed figures."""

import math
from fractions import Fraction as F

import mpmath as mp
import pytest

import neyman as ny
import reference as ref

MUS = [1e-9, 1e-6, 1e-3, 0.1, 1.0, 3.0, 20.0, 300.0]


@pytest.mark.parametrize("mu", MUS)
def test_delta_of_a_gaussian_contains_balle_and_wangs_formula(mu):
    f = ny.gdp(mu)
    for away in (-8.0, -3.0, 0.0, 0.5, 4.9, 5.1, 12.0, 40.0, 100.0):
        epsilon = mu * mu / 2 + mu * away
        if epsilon >= 0:
            truth = ref.gaussian_delta(mu, epsilon)
            assert ref.holds(f.log_delta(epsilon), mp.log(truth)), (mu, away)
    assert ref.holds(f.delta(0.0), ref.gaussian_delta(mu, 0))


@pytest.mark.parametrize("mu", MUS)
def test_power_of_a_gaussian_contains_its_formula(mu):
    f = ny.gdp(mu)
    for level in (1e-300, 1e-30, 1e-5, 0.05, 0.5, 0.9, 1 - 1e-12):
        truth, miss = ref.gaussian_power(mu, level), ref.gaussian_miss(mu, level)
        assert ref.holds(f.power(level), truth), (mu, level)
        log_truth = mp.log(truth) if truth < 0.5 else mp.log1p(-miss)
        assert ref.holds(f.log_power(level), log_truth), (mu, level)
        assert ref.holds(f(level), miss), (mu, level)


@pytest.mark.parametrize("sigma", [0.01, 0.3, 1.0, 17.0, 1e4, 1e9])
@pytest.mark.parametrize("delta", [1e-5, 1e-30, 1e-300])
def test_epsilon_of_a_gaussian_brackets_the_root(sigma, delta):
    epsilon = ny.Gaussian(sigma).tradeoff().epsilon(delta)
    mu = 1 / mp.mpf(sigma)
    assert ref.gaussian_delta(mu, epsilon.upper) <= mp.mpf(delta)
    assert epsilon.lower == 0 or ref.gaussian_delta(mu, epsilon.lower) >= mp.mpf(delta)


def test_epsilon_answers_below_the_smallest_float():
    epsilon = ny.gdp(1).epsilon(log_delta=-1000)
    low, high = (mp.log(ref.gaussian_delta(1, e)) for e in (epsilon.upper, epsilon.lower))
    assert low <= -1000 <= high
    assert epsilon.width < 1e-9


@pytest.mark.parametrize("scale", ["0.01", "0.3", "1", "3", "7", "1000"])
def test_laplace_contains_its_three_pieces(scale):
    f, a = ny.Laplace(F(scale)).tradeoff(), 1 / ref.exact(F(scale))
    for share in (0.0, 0.3, 0.9, 0.999999999):
        epsilon = float(a) * share
        assert ref.holds(f.delta(epsilon), -mp.expm1((mp.mpf(epsilon) - a) / 2))
    for level in (1e-300, 1e-9, 0.05, 0.3, 0.49, 0.51, 0.9, 1 - 1e-12):
        x = mp.mpf(level)
        if x <= mp.exp(-a) / 2:
            truth = mp.exp(a) * x
        elif x <= 0.5:
            truth = 1 - mp.exp(-a) / (4 * x)
        else:
            truth = 1 - mp.exp(-a) * (1 - x)
        assert ref.holds(f.power(level), truth), level


def test_zcdp_and_gdp_of_gaussians_contain_their_exact_parameters():
    for sigma in (0.3, 0.7, 1.1, 2.9, 13.7, 0.01, 1234.5):
        for count in (1, 3, 7, 49):
            m = ny.Gaussian(sigma, 0.3) * count
            rho, f = m.rho(), m.tradeoff()
            assert F(f.zcdp().lower) <= rho <= F(f.zcdp().upper)
            assert F(f.gdp().lower) ** 2 <= 2 * rho <= F(f.gdp().upper) ** 2


def test_gaussians_compose_by_the_root_of_the_sum_of_squares():
    f = (ny.Gaussian(2) * 9 + ny.Gaussian(4, 8)).tradeoff()
    assert ref.holds(f.delta(1.0), ref.gaussian_delta(mp.sqrt(mp.mpf(25) / 4), 1))


def test_power_of_pure_dp_prints_table_1_of_kifer_and_abowd():
    # Their misprints are set right: .546 for .55, .082 for .82, .369 for .37.
    table = {
        0.01: (0.011, 0.016, 0.027, 0.074, 0.546),
        0.05: (0.055, 0.082, 0.136, 0.369, 0.983),
        0.10: (0.111, 0.165, 0.272, 0.739, 0.984),
    }
    for level, row in table.items():
        for epsilon, printed in zip(("0.1", "0.5", "1", "2", "4"), row, strict=True):
            assert round(ny.pure(epsilon).power(level).upper, 3) == printed


def test_the_2020_redistricting_release_prints_table_2_of_kifer_and_abowd():
    rho = F("2.63")
    gaussian = ny.gdp(math.sqrt(2 * float(rho)))
    # Ten histogram queries, two cells moved by one in each: sigma^2 = 1 / rho of the query.
    discrete = (ny.DiscreteGaussian(sigma_squared=10 / rho, sensitivity=[(1, 1)]) * 10).tradeoff()
    for level, g, z in ((0.01, 0.49, 0.70), (0.05, 0.74, 0.95), (0.10, 0.84, 0.96)):
        assert round(gaussian.power(level).upper, 2) == g
        assert round(discrete.power(level).upper, 2) == g
        assert round(ny.zcdp(rho).power(level).upper, 2) == z


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10, 1e-20])
def test_the_pair_of_epsilon_and_delta_answers_its_own_definition(delta):
    f = ny.approximate(1, delta)
    assert ref.holds(f.log_delta(1.0), mp.log(delta))
    assert 1 - 1e-5 <= f.epsilon(delta * (1 + 1e-9)).upper <= 1
    assert f.epsilon(delta).upper <= 1 + 1e-9


def test_a_power_of_zero_is_perfect_privacy_for_every_family():
    for f in (ny.gdp(1), ny.zcdp(1), ny.pure(1), ny.approximate(1, 1e-3), ny.perfect()):
        assert ny.compare(f**0, ny.perfect()) == "equal"
        assert (f**0).delta(0.0).upper < 1e-300


@pytest.mark.parametrize("exponent", [-149, -122, -90, -40, -17, -9, -3])
def test_the_logarithm_of_a_tiny_delta_contains_its_formula(exponent):
    """The rounding of a logarithm grows with it: at 0 and near the largest loss."""
    for digit in range(1, 10):
        size = F(digit) * F(10) ** exponent
        with mp.workdps(400):
            x = ref.exact(size)
            mu = mp.mpf(float(size))
            assert ref.holds(ny.gdp(float(size)).log_delta(0), mp.log(mp.erf(mu / mp.sqrt(8))))
            laplace = -mp.expm1(-x / 2)
            assert ref.holds(ny.Laplace(1 / size).tradeoff().log_delta(0), mp.log(laplace))
            assert ref.holds(ny.pure(size).log_delta(0), mp.log(mp.tanh(x / 2)))
