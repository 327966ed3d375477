"""Logistic regression: the shift holds for the computed fits, and intervals cover."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

import neyman as ny
from neyman.analysis.estimators import logistic as module
from neyman.analysis.estimators import logistic_fit
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

ANY = st.floats(allow_nan=True, allow_infinity=True)


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
    """200,000 random pairs per reach, and two rows with opposite parts off w."""
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
    """In exact units of the grid; wild rows, labels, sizes, and penalties."""
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
    """n = 50, penalty .1: a search found .1254, and 2 / (n penalty) is .4."""
    bound = largest_move(50, 0.1, False)
    assert 0.1254 < bound < 0.245 < 2 / (50 * 0.1)


def test_a_fit_of_one_record_moves_by_nearly_the_bound():
    """Two opposite rows at a large penalty, where the bound is near 1 / penalty."""
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
    """Separable, all equal, and one against many, at the least penalty: at most 60 steps."""
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
    noise = module.least_noise(ny.gdp(1), accuracy(200, 3, 0.1, True).squared_shift)
    hits = 0
    for _ in range(60):
        estimate = ny.estimate.logistic(x, labels, radius=2, penalty=0.1, budget=ny.gdp(1))
        low, high = estimate.interval(0.5, about="data")
        hits += bool(low[1] <= target <= high[1])
    assert hits >= binom.ppf(1e-6, 60, 0.5)
    assert hits <= binom.ppf(1 - 1e-6, 60, 0.6)
    assert estimate.mechanism == noise


def test_the_stated_noise_is_that_of_fresh_releases_and_no_other_error_is_stated():
    """The same records in 80 releases: a chi-square variable beyond 1e-6 on either side."""
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
    """In exact integers; wild rows, labels, and coefficients. The squares count both sums."""
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
    """Orthogonal rows, for every weight from 0 to 1, in exact integers."""
    largest = 0
    for t in np.linspace(-6, 6, 4001):
        one, two = (curvature(row, np.full(2, t)) for row in (np.eye(2)[:1], np.eye(2)[1:]))
        moved = sum(int(d) ** 2 for a, b in zip(one, two, strict=True) for d in (a - b).ravel())
        largest = max(largest, moved)
    assert curvature_shift(False) * 0.98 < largest <= curvature_shift(False)


def test_the_fit_and_its_curvature_meet_the_budget_together():
    """Squared shifts over variances add up to the squared mu that is stated, which is at most 1."""
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
            / (aim.squared_shift // module.LIMITS.budget_ratio)
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

    monkeypatch.setattr(module, "symmetric_noise", spy)
    fit_of = ny.estimate.logistic(
        np.ones((9, 1)), np.ones(9), radius=1, penalty=1, budget=ny.gdp(1), sampling=True
    )
    aim = accuracy(9, 2, 1.0, True)
    share = Fraction(curvature_shift(True)) / (aim.squared_shift // module.LIMITS.budget_ratio)
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
    monkeypatch.setattr(module, "fit", lambda *_: (_ for _ in ()).throw(NotConverged("no")))
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


def test_no_content_of_the_data_raises_an_error():
    x = [[math.nan, 1.0], [math.inf, 2], [1e308, -1e308], ["a", None], [10**400, 1], [5e-324, 1]]
    labels = [1.0, math.nan, True, 3.0, None, -math.inf]
    estimate = ny.estimate.logistic(
        x, labels, radius="0.001", penalty=0.1, budget=ny.gdp(1), dimension=2
    )
    assert np.isfinite(estimate.value).all()
    low, high = estimate.interval(about="data")
    assert (low <= high).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": -1}, "radius = -1 must be from 1e-100"),
        ({"penalty": 0}, "penalty = 0 must be between"),
        ({"labels": [1]}, "labels has 1 records and x has 2"),
        ({"neighboring": "add-remove"}, "the number of records divides the loss"),
        ({"budget": ny.pure(1)}, "no Gaussian noise meets it"),
        ({"budget": ny.gdp(3e-6), "sampling": True}, "the curvature needs more noise"),
        ({"classes": [0, 1, 2]}, "must be two different labels"),
        ({"classes": ["no", "no"]}, "must be two different labels"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_charged(change, message):
    ledger = ny.throwaway(1)
    given = {
        "x": np.array([[1.0], [2.0]]),
        "labels": [0, 1],
        "radius": 1,
        "penalty": 1,
        "budget": ny.zcdp(1),
    }
    with pytest.raises(ValueError, match=message):
        ny.estimate.logistic(**given | change, ledger=ledger, dataset="a@1")
