"""Normal noise with a covariance, rounded normal noise, and staircase noise, against their laws."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import pairwise
from typing import Any

import mpmath
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from function_calls import function_calls
from neyman import Mechanism
from neyman.accounting import charge
from random_laws import examples

small = st.fractions(-4, 4, max_denominator=9)


def mu_of(one: ny.Gaussian) -> F:
    """Its sensitivity as the library reads it; sigma is 1."""
    assert one.sigma == 1
    return F(repr(one.sensitivity)) if isinstance(one.sensitivity, float) else F(one.sensitivity)


@st.composite
def factors(draw: Any) -> tuple[list[list[F]], list[F]]:
    """A lower triangular matrix with a positive diagonal, and a vector."""
    size = draw(st.integers(1, 5))
    lower = [[draw(small) if j < i else F(0) for j in range(size)] for i in range(size)]
    for i in range(size):
        lower[i][i] = draw(st.fractions(F(1, 9), 4, max_denominator=9))
    return lower, [draw(small) for _ in range(size)]


@given(factors())
def test_a_listed_shift_has_the_norm_that_forward_substitution_finds(pair):
    lower, shift = pair
    size = len(lower)
    covariance = [
        [sum((lower[i][k] * lower[j][k] for k in range(size)), F(0)) for j in range(size)]
        for i in range(size)
    ]
    x: list[F] = []
    for i in range(size):
        x.append((shift[i] - sum((lower[i][k] * x[k] for k in range(i)), F(0))) / lower[i][i])
    square = sum((v * v for v in x), F(0))
    mu = mu_of(ny.Gaussian(covariance=covariance, shifts=[shift]))
    assert square <= mu**2 <= square * (1 + F(1, 10**14))


@pytest.mark.parametrize("size", [1, 2, 7, 20])
def test_an_l2_norm_is_bounded_by_the_smallest_eigenvalue_and_is_nearly_attained(size):
    """Eigenvalues by mpmath with 40 digits: no shift of the norm is above mu, one is close."""
    rng = np.random.default_rng(size)
    root = rng.integers(-9, 10, (size, size))
    covariance = root @ root.T + np.eye(size, dtype=int)
    with mp.workdps(40):
        least = min(mp.eigsy(mp.matrix(covariance.tolist()), eigvals_only=True))
        truth = 3 / mp.sqrt(least)
        mu = ny.Gaussian(covariance=covariance, sensitivity=3).sensitivity
        assert truth * (1 - mp.mpf(10) ** -35) <= mu <= truth * (1 + mp.mpf(10) ** -9)


def test_a_matrix_near_the_edge_still_has_a_bound_on_the_safe_side():
    covariance = [[1, 1], [1, 1 + F(1, 10**20)]]
    least = F(1, 10**20) / 2  # about; the smaller root of t^2 - (2 + e) t + e = 0 is below e / 2
    mu = mu_of(ny.Gaussian(covariance=covariance, sensitivity=1))
    assert 1 / least <= mu**2 <= 4 / least


def test_scaled_unit_noise_is_the_plain_gaussian():
    one = ny.Gaussian(covariance=[[4, 0], [0, 4]], sensitivity=3)
    assert one == ny.Gaussian(sigma=1, sensitivity=1.5)
    assert ny.Gaussian(covariance=[[9]]) == ny.Gaussian(sigma=1, sensitivity=F(1, 3))


def test_the_worst_of_several_shifts_decides():
    covariance = [[2, 1], [1, 3]]
    shifts = [[1, 0], [1, -1], [0, 1]]
    each = [mu_of(ny.Gaussian(covariance=covariance, shifts=[d])) for d in shifts]
    assert mu_of(ny.Gaussian(covariance=covariance, shifts=shifts)) == max(each)
    assert mu_of(ny.Gaussian(covariance=covariance, shifts=[[-1, 1]])) == each[1]


def test_the_best_test_between_two_correlated_answers_meets_the_power():
    """2 10^6 draws of each hypothesis: the power is within 6 standard errors (chance 2e-9)."""
    covariance = np.array([[2.0, 1.2], [1.2, 1.0]])
    shift = np.array([0.5, -0.25])
    one = ny.Gaussian(covariance=covariance, shifts=[shift.tolist()])
    rng = np.random.default_rng(7)
    noise = rng.multivariate_normal([0, 0], covariance, size=2_000_000)
    direction = np.linalg.solve(covariance, shift)
    threshold = np.quantile(noise @ direction, 0.95)
    shown = np.mean((noise + shift) @ direction > threshold)
    assert abs(shown - one.tradeoff().power(0.05).upper) < 6 * (0.5 + 1) / 2_000_000**0.5


def test_it_goes_through_json_samples_and_sums():
    one = ny.Gaussian(covariance=[[2, 1], [1, 3]], shifts=[[1, 1]])
    both = one.subsample(rate=0.1) * 10 + one
    assert ny.Mechanism.from_dict(both.to_dict()) == both
    assert one.rho() >= F(3, 10)  # d' S^-1 d = 3/5


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


GAMMAS = st.fractions(0, 1, max_denominator=50)
EPSILONS = st.fractions(F(1, 5), 6, max_denominator=20)


def steps(epsilon, gamma, *, count=400):
    """Each step on the positive side: (from, to, density)."""
    b = mpmath.exp(-mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    a = (1 - b) / (2 * (gamma + b * (1 - gamma)))
    for k in range(count):
        yield k, k + gamma, a * b**k
        yield k + gamma, k + 1, a * b ** (k + 1)


def density(x, epsilon, gamma):
    k, rest = divmod(abs(x), 1)
    b = mpmath.exp(-mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    return (1 - b) / (2 * (gamma + b * (1 - gamma))) * b ** (k + (rest >= gamma))


def profile(epsilon, gamma, shift, at):
    """The integral of (p(x) - e^at p(x - shift))+, exact between the places of both densities."""
    reach = int(60 / epsilon) + 4
    places = {F(k) + sign * o for k in range(-reach, reach) for sign in (1, -1) for o in (0, gamma)}
    places = sorted(places | {x + shift for x in places})
    total = mpmath.mpf(0)
    for low, high in pairwise(places):
        middle = (low + high) / 2
        gain = density(middle, epsilon, gamma) - mpmath.exp(at) * density(
            middle - shift, epsilon, gamma
        )
        total += max(gain, 0) * (
            mpmath.mpf(high.numerator) / high.denominator
            - mpmath.mpf(low.numerator) / low.denominator
        )
    return total


@settings(max_examples=examples(24))
@given(EPSILONS, GAMMAS, st.floats(0, 1))
def test_the_curve_is_that_of_the_density_and_its_shift(epsilon, gamma, share):
    at = share * float(epsilon)
    bound = ny.Staircase(epsilon, gamma=gamma).tradeoff().delta(at)
    exact = float(profile(epsilon, gamma, F(1), at))
    assert bound.lower <= exact * (1 + 1e-12) + 1e-14
    assert exact <= bound.upper * (1 + 1e-12) + 1e-14
    assert bound.width <= 1e-9


@settings(max_examples=examples(24))
@given(EPSILONS, GAMMAS, st.fractions(0, 1, max_denominator=30), st.floats(0, 1))
def test_a_smaller_shift_is_never_easier_to_detect(epsilon, gamma, shift, share):
    at = share * float(epsilon)
    bound = ny.Staircase(epsilon, gamma=gamma).tradeoff().delta(at)
    assert float(profile(epsilon, gamma, shift, at)) <= bound.upper * (1 + 1e-12) + 1e-14


def moment(epsilon, gamma, power):
    parts = (
        weight * (mpmath.mpf(high) ** (power + 1) - mpmath.mpf(low) ** (power + 1)) / (power + 1)
        for low, high, weight in steps(epsilon, gamma)
    )
    return 2 * mpmath.fsum(parts)


@pytest.mark.parametrize("epsilon", [F(1, 2), F(1), F(3), F(10), F(90)])
def test_costs_are_those_of_the_density_and_its_gamma_has_the_least(epsilon):
    for cost, power in (("absolute", 1), ("squared", 2)):
        noise = ny.Staircase(epsilon, 2, cost=cost)
        gamma = mpmath.mpf(noise.gamma.numerator) / noise.gamma.denominator
        exact = moment(epsilon, gamma, power) * 2**power
        bound = noise.absolute_error() if power == 1 else noise.variance()
        assert bound.lower <= exact <= bound.upper
        assert bound.width <= 1e-14 * bound.upper
        for away in (-gamma / 100, gamma / 100):
            assert exact < moment(epsilon, gamma + away, power) * 2**power


def test_the_absolute_error_at_epsilon_one_is_the_published_one():
    published = mpmath.exp(mpmath.mpf(1) / 2) / mpmath.expm1(1)
    assert float(ny.Staircase(1).absolute_error()) == pytest.approx(float(published), rel=1e-15)
    assert float(ny.Laplace(1, 1).scale) > ny.Staircase(1).absolute_error().upper


def test_half_a_step_is_randomized_response_and_others_are_more_private():
    pure = ny.pure(1)
    assert ny.compare(ny.Staircase(1, gamma=F(1, 2)).tradeoff(), pure) == "equal"
    for gamma in (0, F(1, 3), F(4, 5), 1):
        assert ny.compare(ny.Staircase(1, gamma=gamma).tradeoff(), pure) == "at-least"


def test_a_description_survives_json():
    noise = ny.Staircase(F(1, 3), 5, cost="squared")
    assert Mechanism.from_json(noise.to_json()) == noise
    with pytest.raises(ValueError, match="gamma"):  # not the best one of some cost
        Mechanism.from_json('{"type": "Staircase", "epsilon": 1, "sensitivity": 1, "gamma": null}')
