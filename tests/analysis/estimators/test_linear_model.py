"""Huber, hinge, and Poisson fits against a general minimizer, and how far neighbors are apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import xlogy

import neyman as ny
from neyman.analysis.estimators import linear_model

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
    """Ends of the range in place of random records: up to half of the bound is attained."""
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
    """The gradient by the loss's own formula is near 0, also where Newton's full steps circle."""
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
    assert hits >= stats.binom.ppf(1e-5, runs, 0.8)


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
    from neyman.numerics import as_floats

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
    """Up to a constant of y: the deviance of scipy's formula has the same differences."""
    loss, y = linear_model.poisson(8.0), np.array([0.0, 3.0, 8.0])
    eta = np.linspace(-3, 2, 7)[:, None]
    step = 1e-6

    def likelihood(e):
        return (np.exp(e) - xlogy(y, np.exp(e))) / 8

    slope = (likelihood(eta + step) - likelihood(eta - step)) / (2 * step)
    assert np.allclose(loss.slope(eta, y / 8), slope, atol=1e-8)
    assert np.all(np.abs(loss.slope(np.linspace(-50, 50, 101)[:, None], y / 8)) <= 1)
