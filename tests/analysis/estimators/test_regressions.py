"""Fits of linear models: the shift holds for what is computed, and intervals cover."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import xlogy
from scipy.stats import binom, chi2

import neyman as ny
from neyman.analysis import RADIUS_UNITS, data_region, solve
from neyman.analysis.estimators import linear_model, logistic, logistic_fit
from neyman.analysis.estimators import regression as module
from neyman.analysis.estimators.least_squares import (
    model_rows,
    moment_shift,
    moments,
    noise_norm,
    population_width,
)
from neyman.analysis.estimators.logistic_fit import (
    NotConverged,
    accuracy,
    curvature,
    curvature_shift,
    fit,
    gradient_width,
    largest_move,
    most_length,
    signed_rows,
)
from neyman.ledger import ChargedError
from neyman.noise import SecureBits
from neyman.numerics import as_floats

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
    data, changed = np.array(rows), np.array(rows)
    changed[0] = other
    x = moments(data[:, :2], data[:, 2], 1.0, 1.0, intercept)
    replaced = moments(changed[:, :2], changed[:, 2], 1.0, 1.0, intercept)
    removed = moments(data[1:, :2], data[1:, 2], 1.0, 1.0, intercept)
    assert squared_distance(x, replaced) <= moment_shift(intercept, "replace-one")
    assert squared_distance(x, removed) <= moment_shift(intercept, "add-remove")


def test_the_shift_is_nearly_attained_by_orthogonal_rows():
    x = np.array([[1.0, 0.0]])
    for intercept, other in ((True, np.array([[0.0, 1.0]])), (False, x)):
        a = moments(x, np.array([1.0]), 1.0, 1.0, intercept)
        b = moments(other, np.array([-1.0]), 1.0, 1.0, intercept)
        assert 0.999 < squared_distance(a, b) / moment_shift(intercept, "replace-one") <= 1
        assert 0.999 < squared_distance(a, 0 * a) / moment_shift(intercept, "add-remove") <= 1


def test_moments_are_exact_sums():
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
        width = population_width(fit, 1500, 0.1)[1]
        hits += abs(error) <= width
        assert width < 1.8 * fit.standard_error[1]
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
        assert (width < 0.022).all()
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
    y = [1.0, math.nan, True, 3.0, None, -math.inf]
    given = {"radius": "0.001", "budget": ny.gdp(1), "dimension": 2}
    for intercept in (True, False):
        fit = ny.estimate.regression(x, y, bound=1, intercept=intercept, **given)
        assert np.isfinite(fit.value).all()
    fit = ny.estimate.logistic(x, y, penalty=0.1, **given)
    assert np.isfinite(fit.value).all()
    low, high = fit.interval(about="data")
    assert (low <= high).all()


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


REGRESSION = {"x": np.array([[1.0], [2.0]]), "y": [1.0, 2.0], "radius": 1, "bound": 1}
LOGISTIC = {"x": REGRESSION["x"], "labels": [0, 1], "radius": 1, "penalty": 1}


@pytest.mark.parametrize(
    ("given", "change", "message"),
    [
        (REGRESSION, {"radius": 0}, "radius = 0 must be from 1e-100"),
        (REGRESSION, {"bound": -1}, "bound = -1 must be from 1e-100"),
        (REGRESSION, {"ridge": -0.1}, "ridge = -0.1"),
        (REGRESSION, {"y": [1.0]}, "one y per row of x"),
        (REGRESSION, {"x": np.array([1.0, 2.0])}, "one row per record"),
        (
            REGRESSION,
            {"neighboring": "add-remove", "intercept": False, "x": np.ones((2, 1))},
            "the number of records is secret",
        ),
        (REGRESSION, {"neighboring": "any"}, "neighboring = 'any'"),
        (REGRESSION, {"budget": ny.pure(1)}, "no Gaussian noise meets it"),
        (LOGISTIC, {"radius": -1}, "radius = -1 must be from 1e-100"),
        (LOGISTIC, {"penalty": 0}, "penalty = 0 must be between"),
        (LOGISTIC, {"labels": [1]}, "labels has 1 records and x has 2"),
        (LOGISTIC, {"neighboring": "add-remove"}, "the number of records divides the loss"),
        (LOGISTIC, {"budget": ny.pure(1)}, "no Gaussian noise meets it"),
        (LOGISTIC, {"budget": ny.gdp(3e-6), "sampling": True}, "the curvature needs more noise"),
        (LOGISTIC, {"classes": [0, 1, 2]}, "must be two different labels"),
        (LOGISTIC, {"classes": ["no", "no"]}, "must be two different labels"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_charged(given, change, message):
    ledger = ny.throwaway(1)
    paid = {"budget": ny.zcdp(1), "ledger": ledger, "dataset": "a@1"}
    estimate = ny.estimate.logistic if "labels" in given else ny.estimate.regression
    with pytest.raises(ValueError, match=message):
        estimate(**paid | given | change)
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
        assert np.all(np.subtract(high, low) < (0.14, 0.07)[kind])
    assert np.all(hits >= binom.ppf(1e-5, runs, 0.95))


# ---- Huber, hinge, and Poisson fits


LOSSES: dict[str, dict[str, Any]] = {
    "huber": {"bound": 2, "width": 0.5},
    "smooth hinge": {"width": 0.5},
    "poisson": {"bound": 8},
}


def people(n, seed, loss):
    draw = np.random.default_rng(seed)
    x = draw.uniform(-0.7, 0.7, (n, 2))
    eta = 0.3 + x @ [1.5, -0.5]
    if loss == "poisson":
        return x, draw.poisson(np.exp(eta)).astype(float)
    if loss == "huber":
        return x, np.where(draw.random(n) < 0.1, 9.0, eta + draw.normal(0, 0.1, n))
    return x, np.where(draw.random(n) < 1 / (1 + np.exp(-4 * eta)), 1.0, -1.0)


def objective(loss, x, y, penalty, bound=1.0, width=0.5):
    """Return F by the losses' own formulas, of (a, b) in units of the bound for Huber."""
    rows = np.column_stack([np.ones(len(x)), x])

    def value(w):
        eta = rows @ w
        if loss == "huber":
            residual, corner = np.abs(np.clip(y, -bound, bound) / bound - eta), width / bound
            each = np.where(residual <= corner, residual**2 / 2, corner * (residual - corner / 2))
        elif loss == "smooth hinge":
            margin = eta * y
            square = (1 - margin) ** 2 / (2 * width)
            each = np.where(
                margin >= 1, 0, np.where(margin >= 1 - width, square, 1 - margin - width / 2)
            )
        else:
            top, count = math.log(bound), np.clip(y, 0, bound)
            rate = np.exp(np.minimum(eta, top)) + bound * np.maximum(eta - top, 0)
            each = (rate - count * eta) / bound
        return float(np.mean(each) + penalty / 2 * w @ w)

    return value


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", [0.3, 0.01])
def test_a_fit_with_next_to_no_noise_is_the_minimum_of_the_formula(loss, penalty):
    x, y = people(2000, 1, loss)
    given = LOSSES[loss]
    fit = ny.estimate.linear_model(
        x, y, loss=loss, radius=1, penalty=penalty, budget=ny.gdp(1e4), **given
    )
    value = objective(loss, x, y, penalty, **given)
    scale = float(given["bound"]) if loss == "huber" else 1.0
    best = minimize(
        value, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-13}
    )
    assert np.allclose(fit.value / scale, best.x, atol=2e-3)
    assert value(fit.value / scale) < best.fun + 1e-6
    low, high = fit.interval(0.999, about="data")
    assert np.all((low <= best.x * scale + 1e-6) & (best.x * scale - 1e-6 <= high))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_fits_of_neighbors_are_never_farther_apart_than_the_shift_says(loss):
    given, n, penalty = LOSSES[loss], 40, 0.05
    of_loss, _ = linear_model._loss(loss, float(given.get("bound", 1)), given.get("width"))
    aim = linear_model.accuracy(n, 3, penalty, intercept=True, loss=of_loss)
    farthest = 0.0
    for seed in range(60):
        x, y = people(n, seed, loss)
        draw, other = np.random.default_rng(seed), (x.copy(), y.copy())
        angle = draw.uniform(0, math.tau)
        other[0][0] = math.cos(angle), math.sin(angle)
        other[1][0] = draw.choice([-100.0, 0.0, 100.0])
        fits: list[Any] = []
        for features, target in ((x, y), other):
            rows = linear_model._rows(
                loss, features, target, 1.0, float(given.get("bound", 1)), True
            )
            fits.append(linear_model.fit(*rows, penalty, aim, of_loss))
        farthest = max(farthest, float(((fits[0] - fits[1]) ** 2).sum()))
    assert 0.02 * aim.squared_shift < farthest <= aim.squared_shift


def slope(loss, eta, y, bound, width):
    """Return the derivative of the loss in eta, by its own formula."""
    if loss == "huber":
        return np.clip(eta - y, -width / bound, width / bound)
    if loss == "smooth hinge":
        return -np.clip((1 - eta) / width, 0, 1)
    return np.minimum(np.exp(eta), bound) / bound - y


@pytest.mark.parametrize("loss", LOSSES)
def test_the_search_ends_at_the_minimum_for_records_at_the_corners_of_their_range(loss):
    draw, corners = np.random.default_rng(7), (1e-6, 0.01, 0.5, 2.0)
    for _ in range(150):
        n, size = int(draw.integers(1, 8)), int(draw.integers(1, 4))
        penalty, bound = 10.0 ** draw.integers(-6, 2), float(draw.choice([1, 2, 1e6]))
        width = float(draw.choice(corners[1:])) if loss == "smooth hinge" else None
        if loss == "huber":
            width = bound * float(draw.choice(corners[:3]))
        x = draw.choice([-1.0, 0.0, 1.0], (n, size))
        y = draw.choice([-1.0, 0.0, 1.0, bound], n)
        of_loss, _ = linear_model._loss(loss, bound, width)
        aim = linear_model.accuracy(n, size, penalty, intercept=False, loss=of_loss)
        rows, goal = linear_model._rows(loss, x, y, 1.0, bound, False)
        w = linear_model.fit(rows, goal, penalty, aim, of_loss) * aim.unit
        gradient = rows.T @ slope(loss, rows @ w, goal, bound, width) / n + penalty * w
        bent = 1 / width if loss == "smooth hinge" and width else 1.0
        rounded = (bent + penalty) * aim.unit * math.sqrt(size) / 2
        assert np.linalg.norm(gradient) <= (aim.gradient + rounded) * (1 + 1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_interval_about_the_data_covers_in_at_least_its_share_of_runs(loss):
    """Fewer hits than this have a chance of 1e-5 if it covers in 80% of the runs."""
    runs, hits, given = 200, 0, LOSSES[loss]
    x, y = people(500, 3, loss)
    aim = {"loss": loss, "radius": 1, "penalty": 0.1, **given}
    near = ny.estimate.linear_model(x, y, budget=ny.gdp(1e3), **aim).value
    for _ in range(runs):
        low, high = ny.estimate.linear_model(x, y, budget=ny.gdp(1), **aim).interval(
            0.8, about="data"
        )
        hits += bool(low[1] <= near[1] <= high[1])
        assert np.subtract(high, low).max() < 0.16
    assert hits >= binom.ppf(1e-5, runs, 0.8)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_entry_raises_and_a_row_without_a_number_counts_as_none(loss):
    x, y = people(50, 5, loss)
    odd_x, odd_y = x.astype(object), y.astype(object)
    odd_x[3, 0], odd_x[4, 1], odd_y[5], odd_y[6] = "x", math.nan, None, math.inf
    of_loss = LOSSES[loss]
    fit = ny.estimate.linear_model(
        odd_x, odd_y, loss=loss, radius=1, penalty=0.1, budget=ny.gdp(1), **of_loss
    )
    assert np.isfinite(fit.value).all()
    rows, _ = linear_model._rows(loss, as_floats(odd_x), as_floats(odd_y), 1.0, 2.0, True)
    assert [k for k, row in enumerate(rows) if not row.any()] == [3, 4, 5, 6]


def test_bad_arguments_are_refused_by_name():
    x, y = people(50, 5, "huber")
    good = {"loss": "huber", "radius": 1, "bound": 1, "penalty": 0.1, "budget": ny.gdp(1)}
    for wrong in (
        {"loss": "squared"},
        {"bound": 0},
        {"width": 2},
        {"width": 0},
        {"penalty": 0},
        {"radius": -1},
        {"neighboring": "add-remove"},
        {"loss": "poisson", "width": 1},
        {"loss": "poisson", "bound": 0.5},
        {"loss": "smooth hinge", "width": 3},
    ):
        with pytest.raises(ValueError, match=list(wrong)[-1]):
            ny.estimate.linear_model(x, y, **good | wrong)
    with pytest.raises(ValueError, match="one per row"):
        ny.estimate.linear_model(x, y[1:], **good)
    with pytest.raises(ValueError, match="about = 'population'"):
        ny.estimate.linear_model(x, y, **good).interval()


def test_the_poisson_loss_is_the_negative_log_likelihood_below_its_bound():
    loss, y = linear_model.poisson(8.0), np.array([0.0, 3.0, 8.0])
    eta = np.linspace(-3, 2, 7)[:, None]
    step = 1e-6

    def likelihood(e):
        return (np.exp(e) - xlogy(y, np.exp(e))) / 8

    slope = (likelihood(eta + step) - likelihood(eta - step)) / (2 * step)
    assert np.allclose(loss.slope(eta, y / 8), slope, atol=1e-8)
    assert np.all(np.abs(loss.slope(np.linspace(-50, 50, 101)[:, None], y / 8)) <= 1)


# ---- logistic regression


def exact_fit(rows, penalty):
    """Return the minimum in 40 digits, by Newton's method."""
    with mpmath.workdps(40):
        n, size = rows.shape
        w = mpmath.zeros(size, 1)
        v = mpmath.matrix(rows.tolist())
        for _ in range(200):
            chances = [1 / (1 + mpmath.exp((v[i, :] * w)[0])) for i in range(n)]
            gradient = penalty * w - v.T * mpmath.matrix(chances) / n
            hessian = penalty * mpmath.eye(size)
            for i in range(n):
                hessian += v[i, :].T * v[i, :] * chances[i] * (1 - chances[i]) / n
            step = mpmath.lu_solve(hessian, gradient)
            d = mpmath.norm(step)
            w = w - step * (mpmath.log1p(d) / d if d else 1)
            if d < mpmath.mpf(10) ** -30:
                return w
        raise AssertionError("no fit")


def test_the_width_of_gradients_is_at_least_what_a_search_finds_and_close_to_it():
    rng = np.random.default_rng(1)
    for reach in (0.1, 0.5, 1.7, 5.0, 30.0):
        v, u = (rng.normal(size=(200_000, 2)) for _ in range(2))
        v, u = (
            a * (rng.random(200_000) ** 0.3 / np.linalg.norm(a, axis=1))[:, None] for a in (v, u)
        )
        lengths = reach * rng.random(200_000) ** 0.1
        gradients = [rows / (1 + np.exp(lengths * rows[:, 0]))[:, None] for rows in (v, u)]
        largest = np.linalg.norm(gradients[0] - gradients[1], axis=1).max()
        angle = np.linspace(0, math.pi / 2, 20_001)
        pair = (2 * np.cos(angle) / (1 + np.exp(-reach * np.sin(angle)))).max()
        assert max(largest, pair) <= gradient_width(reach) <= 1.004 * max(pair, 1)
    assert gradient_width(1e-9) <= 1.004
    assert gradient_width(1e9) <= 2


@settings(max_examples=60)
@given(st.data())
def test_replacing_a_record_moves_the_computed_fit_by_at_most_the_shift(data):
    n, size = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3))
    penalty = data.draw(st.sampled_from([1e-4, 0.01, 0.3, 20.0]))
    intercept = data.draw(st.booleans())
    entry = st.one_of(ANY, st.floats(-3, 3))
    draw = lambda: np.array(data.draw(st.lists(entry, min_size=size, max_size=size)))  # noqa: E731
    x = np.array([draw() for _ in range(n)])
    labels = np.array(data.draw(st.lists(entry, min_size=n, max_size=n)))
    other, changed = x.copy(), labels.copy()
    other[0], changed[0] = draw(), data.draw(entry)
    aim = accuracy(n, size + intercept, penalty, intercept)
    fits = [
        fit(signed_rows(a, b, 2.0, intercept), penalty, aim)
        for a, b in ((x, labels), (other, changed))
    ]
    assert sum(int(d) ** 2 for d in fits[0] - fits[1]) <= aim.squared_shift


def test_the_known_worst_case_is_within_the_bound_and_the_textbook_is_looser():
    bound = largest_move(50, 0.1, False)
    assert 0.1254 < bound < 0.245 < 2 / (50 * 0.1)


def test_a_fit_of_one_record_moves_by_nearly_the_bound():
    penalty, n = 50.0, 1
    aim = accuracy(n, 2, penalty, False)
    fits = [
        fit(signed_rows(np.array([row]), np.ones(1), 1.0, False), penalty, aim) * aim.unit
        for row in ([1.0, 0.0], [-1.0, 0.0])
    ]
    assert np.linalg.norm(fits[0] - fits[1]) > 0.95 * largest_move(n, penalty, False)


@pytest.mark.parametrize("penalty", [1e-3, 0.1])
def test_the_computed_fit_is_within_the_certified_distance_of_the_exact_one(penalty):
    rng = np.random.default_rng(7)
    rows = signed_rows(rng.normal(size=(40, 2)), rng.normal(size=40), 1.0, True)
    aim = accuracy(40, 3, penalty, True)
    units = fit(rows, penalty, aim)
    exact = exact_fit(rows, penalty)
    distance = math.dist((units * aim.unit).tolist(), [float(e) for e in exact])
    assert distance <= aim.gradient / penalty + aim.unit * math.sqrt(3) / 2
    assert float(mpmath.norm(exact)) <= most_length(penalty)


def test_the_bound_on_rounding_covers_the_error_of_a_computed_gradient():
    rng = np.random.default_rng(8)
    rows, w = rng.uniform(-0.5, 0.5, size=(300, 4)), np.array([30.0, -20.0, 5.0, 0.1])
    computed = logistic_fit.mean_of_rows(rows, 1 / (1 + np.exp(rows @ w)))
    with mpmath.workdps(40):
        v = mpmath.matrix(rows.tolist())
        products = v * mpmath.matrix(w.tolist())
        exact = v.T * mpmath.matrix([1 / (1 + mpmath.exp(t)) for t in products]) / 300
        error = float(mpmath.norm(mpmath.matrix(computed.tolist()) - exact))
    assert error <= logistic_fit._rounding(4, 1.0, 0.01, float(np.linalg.norm(w)))


def test_hard_data_take_few_steps():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(400, 3))
    cases = [(x, x[:, 0]), (np.ones((400, 3)), np.ones(400)), (x, np.r_[1.0, -np.ones(399)])]
    for features, labels in cases:
        aim = accuracy(400, 4, 1e-6, True)
        rows = signed_rows(features, labels, 1.0, True)
        assert fit(rows, 1e-6, replace(aim, steps=60)) is not None


def test_a_row_is_the_same_in_any_company_and_short_enough():
    rng = np.random.default_rng(10)
    x = rng.standard_cauchy(size=(500, 3)) * 10.0 ** rng.integers(-5, 5, size=(500, 1))
    rows = signed_rows(x, x[:, 0], 1.0, True)
    assert all(sum(Fraction(v) ** 2 for v in row) <= 2 for row in rows.tolist())
    for i in range(0, 500, 50):
        assert (signed_rows(x[i : i + 1], x[i : i + 1, 0], 1.0, True)[0] == rows[i]).all()


def test_intervals_about_the_data_cover_the_exact_penalized_fit():
    """At 50%, for one coordinate; a false alarm in 2e-6 of 60 real releases."""
    rng = np.random.default_rng(12)
    x = rng.normal(size=(200, 2))
    labels = x[:, 0] + rng.logistic(size=200)
    target = float(exact_fit(signed_rows(x, labels, 2.0, True), 0.1)[1]) / 2
    noise = logistic.least_noise(ny.gdp(1), accuracy(200, 3, 0.1, True).squared_shift)
    hits = 0
    for _ in range(60):
        estimate = ny.estimate.logistic(x, labels, radius=2, penalty=0.1, budget=ny.gdp(1))
        low, high = estimate.interval(0.5, about="data")
        hits += bool(low[1] <= target <= high[1])
    assert hits >= binom.ppf(1e-6, 60, 0.5)
    assert hits <= binom.ppf(1 - 1e-6, 60, 0.6)
    assert estimate.mechanism == noise


def test_the_stated_noise_is_that_of_fresh_releases_and_no_other_error_is_stated():
    rng = np.random.default_rng(13)
    x = rng.uniform(-1, 1, size=(2000, 1))
    labels = x[:, 0] + rng.logistic(size=2000) / 3 > 0
    releases = [
        ny.estimate.logistic(x, labels, radius=1, penalty=0.1, budget=ny.gdp(1)) for _ in range(80)
    ]
    values = np.array([r.value for r in releases])
    ratio = ((values - values.mean(axis=0)) ** 2).sum(axis=0) / releases[0].noise_error ** 2
    assert (chi2.ppf(1e-6, 79) < ratio).all()
    assert (ratio < chi2.ppf(1 - 1e-6, 79)).all()
    assert np.isnan(releases[0].standard_error).all()
    with pytest.raises(ValueError, match="give about='data'"):
        releases[0].interval()


@settings(max_examples=100)
@given(st.data())
def test_replacing_a_record_moves_the_curvature_by_at_most_the_shift(data):
    n, size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    intercept = data.draw(st.booleans())
    entry = st.one_of(ANY, st.floats(-3, 3))
    x = np.array([[data.draw(entry) for _ in range(size)] for _ in range(n)])
    labels = np.array([data.draw(entry) for _ in range(n)])
    w = np.array([data.draw(st.floats(-1e3, 1e3)) for _ in range(size + intercept)])
    other, changed = x.copy(), labels.copy()
    other[0], changed[0] = [data.draw(entry) for _ in range(size)], data.draw(entry)
    one, two = (
        curvature(signed_rows(a, b, 2.0, intercept), w) for a, b in ((x, labels), (other, changed))
    )
    squares = sum(int(d) ** 2 for a, b in zip(one, two, strict=True) for d in (a - b).ravel())
    assert squares <= curvature_shift(intercept)
    together = curvature(signed_rows(x, labels, 2.0, intercept), w)
    each = signed_rows(x, labels, 2.0, intercept)
    parts = [curvature(each[i : i + 1], w) for i in range(n)]
    assert all((together[k] == sum(part[k] for part in parts)).all() for k in (0, 1))


def test_two_opposed_records_move_the_curvature_by_nearly_the_shift():
    largest = 0
    for t in np.linspace(-6, 6, 4001):
        one, two = (curvature(row, np.full(2, t)) for row in (np.eye(2)[:1], np.eye(2)[1:]))
        moved = sum(int(d) ** 2 for a, b in zip(one, two, strict=True) for d in (a - b).ravel())
        largest = max(largest, moved)
    assert curvature_shift(False) * 0.98 < largest <= curvature_shift(False)


def test_the_fit_and_its_curvature_meet_the_budget_together():
    data = np.array([[0.5], [-0.5], [0.1]])
    for intercept in (True, False):
        given = {"radius": 1, "penalty": 0.1, "budget": ny.gdp(1), "intercept": intercept}
        plain = ny.estimate.logistic(data, [1, 0, 1], **given)
        both = ny.estimate.logistic(data, [1, 0, 1], sampling=True, **given)
        aim = accuracy(3, 1 + intercept, 0.1, intercept)
        sigma_squared = both.mechanism.sigma_squared
        variance = (
            sigma_squared
            * curvature_shift(intercept)
            / (aim.squared_shift // logistic.LIMITS.budget_ratio)
        )
        mu_squared = aim.squared_shift / sigma_squared + curvature_shift(intercept) / variance
        assert mu_squared <= both.mechanism.squared / sigma_squared <= 1
        assert 1.04 < both.noise_error[0] / plain.noise_error[0] < 1.06
        assert ny.gdp(1).admits(both.mechanism)
        assert both.receipt["result"].keys() - plain.receipt["result"].keys() == {
            "curvature", "gradient_squares",
        }  # fmt: skip


def test_the_curvature_gets_the_noise_that_its_shift_needs(monkeypatch):
    given = []

    def spy(variance, size, bits):
        given.append(variance)
        return np.zeros((size, size), np.int64)

    monkeypatch.setattr(logistic, "symmetric_noise", spy)
    fit_of = ny.estimate.logistic(
        np.ones((9, 1)), np.ones(9), radius=1, penalty=1, budget=ny.gdp(1), sampling=True
    )
    aim = accuracy(9, 2, 1.0, True)
    share = Fraction(curvature_shift(True)) / (aim.squared_shift // logistic.LIMITS.budget_ratio)
    assert given == [fit_of.mechanism.sigma_squared * share] * 2


def test_intervals_about_the_population_cover_its_penalized_fit():
    """The law is uniform on sixty records, so that its fit is exact. At 50%, 120 releases.

    Misses are at most binomial with chance 0.5, and hits with 0.75: false alarms of 1e-6 each. The
    labels do not follow a logistic model.
    """
    rng = np.random.default_rng(13)
    x = rng.uniform(-1, 1, size=(60, 1))
    labels = np.where(rng.random(60) < 0.2 + 0.6 * (np.abs(x[:, 0]) > 0.4), 1.0, -1.0)
    target = exact_fit(signed_rows(x, labels, 1.0, True), 0.1)
    hits, errors, values = 0, [], []
    for _ in range(120):
        chosen = rng.integers(60, size=3000)
        estimate = ny.estimate.logistic(
            x[chosen], labels[chosen], radius=1, penalty=0.1, budget=ny.gdp(1), sampling=True
        )
        low, high = estimate.interval("1/2")
        hits += bool(low[1] <= float(target[1]) <= high[1])
        errors.append(estimate.standard_error[1])
        values.append(estimate.value[1])
    assert binom.ppf(1e-6, 120, 0.5) <= hits <= binom.ppf(1 - 1e-6, 120, 0.75)
    # The stated error is near the real one: a chi-square variable, and a margin of 30%.
    ratio = np.var(values) * 120 / np.median(errors) ** 2
    assert chi2.ppf(1e-6, 119) / 1.3**2 < ratio < chi2.ppf(1 - 1e-6, 119)


def test_a_curvature_that_noise_may_hide_has_no_finite_interval():
    estimate = ny.estimate.logistic(
        [[1.0], [math.nan], None], [1, 0, 1], radius=1, penalty=0.1, budget=ny.gdp(1),
        sampling=True, dimension=1,
    )  # fmt: skip
    low, high = estimate.interval()
    assert np.isinf(estimate.standard_error).all()
    assert (low <= high).all()


def test_a_search_that_does_not_end_releases_nothing_and_its_charge_stands(monkeypatch):
    monkeypatch.setattr(logistic, "fit", lambda *_: (_ for _ in ()).throw(NotConverged("no")))
    ledger = ny.throwaway(1)
    with pytest.raises(ChargedError, match="NotConverged"):
        ny.estimate.logistic(
            np.array([[1.0], [2.0]]), [0, 1], radius=1, penalty=1, budget=ny.zcdp("1/4"),
            ledger=ledger, dataset="a@1",
        )  # fmt: skip
    assert ledger.account("a@1").left == Fraction(3, 4)
    rows = signed_rows(np.array([[1.0]]), np.ones(1), 1.0, False)
    with pytest.raises(NotConverged):
        fit(rows, 0.1, replace(accuracy(1, 1, 0.1, False), steps=0))
