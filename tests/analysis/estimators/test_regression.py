"""Linear regression: the shift holds for what is computed, and intervals cover."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

import neyman as ny
from neyman.analysis import RADIUS_UNITS, data_region, solve
from neyman.analysis.estimators import regression as module
from neyman.analysis.estimators.least_squares import (
    model_rows,
    moment_shift,
    moments,
    noise_norm,
    population_width,
)
from neyman.noise import SecureBits

ANY = st.floats(allow_nan=True, allow_infinity=True)


def squared_distance(a, b):
    """Return the squared Frobenius norm of a difference, in Python's integers."""
    return sum(int(v) ** 2 for v in (a - b).ravel())


def noisy(x, y, radius, bound, intercept, mu):
    """Return noisy second moments, drawn as a release draws them, and sigma."""
    variance = Fraction(moment_shift(intercept, "replace-one")) / Fraction(mu) ** 2
    total = moments(x, y, radius, bound, intercept)
    noise = module.symmetric_noise(variance, len(total), SecureBits())
    return (total + noise).astype(float), math.sqrt(variance)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(ANY, ANY, ANY), min_size=1, max_size=6),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
    st.booleans(),
)
def test_a_row_of_any_floats_has_at_most_the_stated_length(rows, radius, bound, intercept):
    data = np.array(rows)
    values = model_rows(data[:, :2], data[:, 2], radius, bound, intercept)
    for z in values.tolist():
        features = z[intercept:-1]
        assert sum(v * v for v in features) <= RADIUS_UNITS**2
        assert sum(v * v for v in z) <= (2 + intercept) * RADIUS_UNITS**2
        if intercept:
            assert 0 <= z[0] <= RADIUS_UNITS


@settings(max_examples=100)
@given(st.lists(st.tuples(ANY, ANY, ANY), min_size=2, max_size=9))
def test_a_row_is_the_same_in_any_company(rows):
    data = np.array(rows)
    together = model_rows(data[:, :2], data[:, 2], 1.5, 0.7, True)
    alone = [model_rows(d[None, :2], d[None, 2], 1.5, 0.7, True)[0] for d in data]
    assert (together == np.array(alone)).all()


@settings(max_examples=100)
@given(
    st.lists(st.tuples(ANY, ANY, ANY), min_size=1, max_size=5),
    st.tuples(ANY, ANY, ANY),
    st.booleans(),
)
def test_neighbors_are_within_the_shift(rows, other, intercept):
    """For both relations, in exact integers."""
    data, changed = np.array(rows), np.array(rows)
    changed[0] = other
    x = moments(data[:, :2], data[:, 2], 1.0, 1.0, intercept)
    replaced = moments(changed[:, :2], changed[:, 2], 1.0, 1.0, intercept)
    removed = moments(data[1:, :2], data[1:, 2], 1.0, 1.0, intercept)
    assert squared_distance(x, replaced) <= moment_shift(intercept, "replace-one")
    assert squared_distance(x, removed) <= moment_shift(intercept, "add-remove")


def test_the_shift_is_nearly_attained_by_orthogonal_rows():
    """So that no smaller shift is right; the literature's 2 R^2 is sqrt(2) times too large."""
    x = np.array([[1.0, 0.0]])
    for intercept, other in ((True, np.array([[0.0, 1.0]])), (False, x)):
        a = moments(x, np.array([1.0]), 1.0, 1.0, intercept)
        b = moments(other, np.array([-1.0]), 1.0, 1.0, intercept)
        assert 0.999 < squared_distance(a, b) / moment_shift(intercept, "replace-one") <= 1
        assert 0.999 < squared_distance(a, 0 * a) / moment_shift(intercept, "add-remove") <= 1


def test_moments_are_exact_sums():
    """Against Python's integers, over a chunk's edge."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(70_000, 2)), rng.normal(size=70_000)
    rows = model_rows(x, y, 1.0, 2.0, True).tolist()
    exact = sum(r[1] * r[3] for r in rows), sum(r[0] * r[0] for r in rows)
    total = moments(x, y, 1.0, 2.0, True)
    assert (int(total[1, 3]), int(total[0, 0])) == exact
    assert (total == total.T).all()


def test_noise_has_half_the_variance_off_the_diagonal():
    """Sums of squares are within quantiles of chi-square: a false alarm in 4e-7 of runs."""
    size, variance = 150, Fraction(10**12)
    noise = module.symmetric_noise(variance, size, SecureBits()).astype(float)
    assert (noise == noise.T).all()
    parts = (np.diagonal(noise), 1e12), (noise[np.triu_indices(size, 1)], 0.5e12)
    for values, expected in parts:
        low, high = chi2.ppf([1e-7, 1 - 1e-7], len(values))
        assert low < float((values**2).sum()) / expected < high


def test_intervals_about_the_population_cover():
    """With clipped rows and noise as large as the sampling error; a false alarm in 1e-6 of runs.

    600 data sets with intervals at 90%. Coverage is counted for one coordinate, so that runs are
    independent. They are not far too wide either.
    """
    rng, hits, runs, square = np.random.default_rng(11), 0, 600, 0.0
    slopes, constant, radius, bound = np.array([0.6, -0.3]), 0.2, 2.0, 4.0
    for _ in range(runs):
        x = rng.normal(size=(1500, 2))
        y = constant + x @ slopes + 0.5 * rng.normal(size=1500)
        matrix, sigma = noisy(x, y, radius, bound, True, 1)
        fit = solve(matrix, sigma, 1500, None)
        error = fit.center[1] - slopes[0] * radius / bound
        hits += abs(error) <= population_width(fit, 1500, 0.1)[1]
        square += (error / fit.standard_error[1]) ** 2
        assert fit.ridge == 0
    assert hits >= binom.ppf(1e-6, runs, 0.9)
    assert square / runs > 0.5


def test_intervals_about_the_data_cover_all_coordinates_together():
    """At 80%, also where the model is wrong; a false alarm in 1e-6 of 500 runs."""
    rng, hits, runs = np.random.default_rng(5), 0, 500
    x = rng.normal(size=(900, 2))
    y = np.abs(x[:, 0]) + rng.standard_cauchy(900)
    exact = moments(x, y, 2.0, 1.0, True).astype(float)
    target = np.linalg.solve(exact[:-1, :-1], exact[:-1, -1])
    for _ in range(runs):
        matrix, sigma = noisy(x, y, 2.0, 1.0, True, 2)
        center, width = data_region(matrix, sigma, 0.2)
        hits += bool((np.abs(center - target) <= width).all())
        assert np.isfinite(width).all()
    assert hits >= binom.ppf(1e-6, runs, 0.8)


def test_the_size_of_the_noise_is_not_exceeded_more_often_than_stated():
    """400 draws with a chance of at most 1e-3 on each side: a false alarm in 1e-6 of runs."""
    sigma = 1e6
    limit = noise_norm(sigma, 6)
    above = 0
    for _ in range(400):
        noise = module.symmetric_noise(Fraction(10**12), 6, SecureBits()).astype(float)
        above += np.abs(np.linalg.eigvalsh(noise)).max() > limit
    assert above <= binom.ppf(1 - 1e-6, 400, 2e-3)


def test_where_noise_may_hide_the_moments_no_interval_is_finite():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    fit = ny.estimate.regression(x, y, radius=3, bound=3, budget=ny.gdp(0.1))
    assert np.isfinite(fit.value).all()
    for about in ("population", "data"):
        low, high = fit.interval(about=about)
        assert np.isneginf(low).all()
        assert np.isposinf(high).all()
    assert np.isinf(fit.standard_error).all()


def test_the_ridge_lifts_the_least_eigenvalue_to_the_size_of_the_noise():
    sigma = 1.0
    matrix = np.diag([100.0, 1.0, 50.0])
    fit = solve(matrix, sigma, 50, None)
    assert fit.ridge == pytest.approx(noise_norm(sigma, 2) - 1)
    assert solve(100 * matrix, sigma, 50, None).ridge == 0
    assert solve(matrix, sigma, 50, 7.0).ridge == 7


def test_a_negative_direction_that_a_ridge_leaves_carries_nothing():
    matrix = np.array([[4.0, 0.0, 2.0], [0.0, -3.0, 9.0], [2.0, 9.0, 1.0]])
    assert solve(matrix, 1.0, 50, 0.0).coefficients.tolist() == [0.5, 0.0]


def test_with_a_large_budget_it_is_least_squares():
    rng = np.random.default_rng(2)
    x = rng.uniform(-0.5, 0.5, size=(40_000, 2))
    y = 0.1 + x @ [0.3, -0.2] + 0.1 * rng.normal(size=40_000)
    fit = ny.estimate.regression(x, y, radius=1, bound=1, budget=ny.zcdp(50))
    design = np.column_stack([np.ones(40_000), x])
    expected = np.linalg.lstsq(design, y, rcond=None)[0]
    assert np.abs(fit.value - expected).max() < 8 * fit.noise_error.max()
    residuals = y - design @ expected
    error = np.sqrt(residuals @ residuals / 39_997 * np.diag(np.linalg.inv(design.T @ design)))
    assert fit.noise_error.max() < 0.2 * error.max()
    assert fit.standard_error == pytest.approx(np.hypot(error, fit.noise_error), rel=0.02)


def test_long_rows_do_not_bias_a_linear_model():
    """Half of the features are outside the radius; each row is scaled down as a whole."""
    x = np.linspace(-2, 2, 40_001)[:, None]
    fit = ny.estimate.regression(x, 0.2 + 0.5 * x[:, 0], radius=1, bound=2, budget=ny.zcdp(50))
    assert fit.value == pytest.approx([0.2, 0.5], abs=1e-3)


def test_a_ridge_shrinks_and_the_interval_is_without_it():
    x = np.linspace(-1, 1, 20_001)[:, None]
    y = 0.5 * x[:, 0]
    fit = ny.estimate.regression(x, y, radius=1, bound=1, budget=ny.zcdp(50), ridge=1 / 3)
    assert fit.value[1] == pytest.approx(0.25, abs=0.01)
    low, high = fit.interval()
    assert low[1] < 0.5 < high[1]


def test_no_content_of_the_data_raises_an_error():
    x = [[math.nan, 1.0], [math.inf, 2], [1e308, -1e308], ["a", None], [10**400, 1], [5e-324, 1]]
    y = [1.0, 2.0, math.inf, 3.0, None, -math.inf]
    for intercept in (True, False):
        fit = ny.estimate.regression(
            x, y, radius="0.001", bound=1, budget=ny.gdp(1), intercept=intercept, dimension=2
        )
        assert np.isfinite(fit.value).all()


def test_the_receipt_names_the_noise_and_the_ledger_is_charged():
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, size=(500, 1))
    for neighboring in ("replace-one", "add-remove"):
        ledger = ny.throwaway(1)
        fit = ny.estimate.regression(
            x, x[:, 0], radius=1, bound=1, budget=ny.zcdp("1/8"), neighboring=neighboring,
            ledger=ledger, dataset="a@1",
        )  # fmt: skip
        assert ledger.account("a@1").left == Fraction(7, 8)
        mechanism = ny.Mechanism.from_dict(fit.receipt["mechanism"])
        assert mechanism.rho() == Fraction(1, 8)
        assert mechanism.squared == moment_shift(True, neighboring)
        assert ("records" in fit.receipt["arguments"]) == (neighboring == "replace-one")
        moments_of = np.array(fit.receipt["result"]["second_moments"])
        assert moments_of.shape == (3, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": 0}, "radius = 0 must be from 1e-100"),
        ({"bound": -1}, "bound = -1 must be from 1e-100"),
        ({"ridge": -0.1}, "ridge = -0.1"),
        ({"y": [1.0]}, "one y per row of x"),
        ({"x": np.array([1.0, 2.0])}, "one row per record"),
        (
            {"neighboring": "add-remove", "intercept": False, "x": np.ones((2, 1))},
            "the number of records is secret",
        ),
        ({"neighboring": "any"}, "neighboring = 'any'"),
        ({"budget": ny.pure(1)}, "no Gaussian noise meets it"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_charged(change, message):
    ledger = ny.throwaway(1)
    given = {
        "x": np.array([[1.0], [2.0]]),
        "y": [1.0, 2.0],
        "radius": 1,
        "bound": 1,
        "budget": ny.zcdp(1),
    }
    with pytest.raises(ValueError, match=message):
        ny.estimate.regression(**given | change, ledger=ledger, dataset="a@1")
    ledger.register("a@1", protects="person", neighboring="replace-one", rows=1)
    assert not ledger.entries("a@1")


def test_intervals_cover_where_half_of_the_rows_are_missing_or_scaled_down():
    """Fewer hits than this have a chance of 1e-5 if they cover in 95% of the runs."""
    runs, hits = 200, np.zeros((2, 2))
    for run, kind in product(range(runs), (0, 1)):
        draw = np.random.default_rng(run)
        x, errors = draw.uniform(-1, 1, (2000, 1)), draw.uniform(-0.8, 0.8, 2000)
        x[::2] *= 3 if kind else 1
        y = 0.1 + 0.03 * x[:, 0] + errors
        y[::2] = y[::2] if kind else math.nan
        low, high = ny.estimate.regression(x, y, radius=1, bound=2, budget=ny.gdp(2)).interval()
        hits[kind] += (low <= [0.1, 0.03]) & (high >= [0.1, 0.03])
    assert np.all(hits >= binom.ppf(1e-5, runs, 0.95))
