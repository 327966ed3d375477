"""Rounded normal noise: at least the Gaussian's curve, and its own where one coordinate moves."""

from __future__ import annotations

from fractions import Fraction as F

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from function_calls import function_calls
from neyman.accounting import charge
from random_laws import examples

SIGMAS = st.fractions(F(1, 4), 8, max_denominator=20)


def tail(x):
    return mp.erfc(x / mp.sqrt(2)) / 2


def deltas(sigma, shift, epsilon):
    """delta(epsilon) of the pair, by the sum of its positive parts: no order of losses is used."""
    s = mp.mpf(sigma.numerator) / sigma.denominator
    reach = int(24 * s) + shift + 2

    def mass(x):
        return tail((x - mp.mpf(1) / 2) / s) - tail((x + mp.mpf(1) / 2) / s)

    e = mp.exp(mp.mpf(epsilon))
    return mp.fsum(max(mass(x - shift) - e * mass(x), 0) for x in range(-reach, reach + 1))


@settings(max_examples=examples(50))
@given(SIGMAS, st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.5]))
def test_one_coordinate_is_exact(sigma, shift, epsilon):
    with mp.workdps(60):
        truth = deltas(sigma, shift, epsilon)
        bound = ny.RoundedGaussian(sigma, shift).tradeoff().delta(epsilon)
        assert bound.lower <= truth * (1 + mp.mpf("1e-20"))
        assert truth <= bound.upper * (1 + mp.mpf("1e-20")) + mp.mpf("1e-110")
        assert bound.width <= 1e-3 * bound.upper + 1e-9


@settings(max_examples=examples(20))
@given(st.fractions(F(1, 2), 40, max_denominator=10), st.integers(1, 6))
def test_its_curve_is_certified_to_be_at_least_the_gaussians(sigma, squared):
    mechanism = ny.RoundedGaussian(sigma, squared_norm=squared)
    normal = ny.Gaussian(sigma, squared_norm_root(squared)).tradeoff()
    for level in (1e-9, 0.05, 0.5):
        power = mechanism.tradeoff().power(level)
        assert power.lower <= normal.power(level).upper
        assert power.upper <= normal.power(level).upper * (1 + 1e-12)
    assert mechanism.rho() == F(squared) / (2 * sigma**2)
    assert charge(mechanism * 3, "gdp") == (3 * F(squared) / sigma**2, 0)


def squared_norm_root(squared):
    return F(squared**0.5)


@pytest.mark.parametrize("vector", [(2,), (1, 1, 1, 1), (1, 1), (3,), (2, 2, 1)])
def test_no_shift_of_a_norm_tells_more_than_the_bound(vector):
    squared = sum(s * s for s in vector)
    f = ny.RoundedGaussian(1, squared_norm=squared).tradeoff()
    shifts = vector[:2]
    x = range(-12, 16)
    with mp.workdps(40):
        mass = {k: tail(k - mp.mpf(1) / 2) - tail(k + mp.mpf(1) / 2) for k in range(-20, 20)}
        p = [(mp.mpf(1), mp.mpf(1))]
        for s in shifts:
            p = [(a * mass[k - s], b * mass[k]) for a, b in p for k in x]
        for epsilon in (0.0, 0.5, 2.0):
            e = mp.exp(epsilon)
            assert mp.fsum(max(a - e * b, 0) for a, b in p) <= f.delta(epsilon).upper


def test_a_budget_in_mu_is_met_exactly():
    assert ny.gdp(1).admits(ny.RoundedGaussian(1))
    assert ny.gdp(F(1, 2)).admits(ny.RoundedGaussian(4, squared_norm=4))
    assert not ny.gdp(F(1, 2)).admits(ny.RoundedGaussian("3.9999", squared_norm=4))
    assert ny.RoundedGaussian(2, squared_norm=4).tradeoff() >= ny.gdp(1)
    assert charge(ny.RoundedGaussian(3, squared_norm=2), "gdp") == (F(2, 9), 0)
    assert charge(ny.RoundedGaussian(3, squared_norm=2), "zcdp") == (F(1, 9), 0)


def test_samples_and_sums_stay_between_their_two_laws():
    sampled = ny.RoundedGaussian(2).subsample(rate=0.01) * 100
    normal = ny.Gaussian(2).subsample(rate=0.01) * 100
    ours, theirs = (m.tradeoff().epsilon(1e-6) for m in (sampled, normal))
    assert ours.lower < theirs.lower
    assert ours.upper == pytest.approx(theirs.upper, rel=1e-6)
    many = (ny.RoundedGaussian(10) * 100).tradeoff()
    assert many.epsilon(1e-6).upper == pytest.approx(ny.gdp(1).epsilon(1e-6).upper, rel=1e-9)
    assert many.epsilon(1e-6).lower > 0.998 * ny.gdp(1).epsilon(1e-6).lower


def test_nothing_moves_and_json():
    assert ny.RoundedGaussian(1, 0).tradeoff().delta(0).upper == 0
    for m in (ny.RoundedGaussian("0.5", 3), ny.RoundedGaussian(2, squared_norm=7) * 2):
        assert ny.Mechanism.from_json(m.to_json()) == m


@pytest.mark.parametrize(("sigma", "shift"), [("0.01", 1), (1, 1000), (1, 40), ("0.1", 3), (2, 59)])
def test_a_shift_far_beyond_the_noise_is_nearly_all_revealed(sigma, shift):
    f = ny.RoundedGaussian(sigma, shift).tradeoff()
    bound = f.delta(1)
    assert 0.99 < bound.lower <= bound.upper <= 1
    assert f.power(0).lower == 0
    assert f.power(1e-3).lower > 0.99


@pytest.mark.parametrize("noise", [ny.RoundedGaussian(1), ny.RoundedGaussian(1, 5)])
def test_one_release_is_summed_and_not_integrated(noise):
    f = noise.tradeoff()
    levels = [k / 80 for k in range(1, 80)]
    assert function_calls(lambda: f.powers(levels)) < 200_000
    assert "contour" not in f.method
    assert all(b.upper - b.lower < 1e-11 for b in f.powers(levels))
