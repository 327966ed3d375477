"""Normal noise with a covariance, against independent linear algebra."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neyman as ny

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
