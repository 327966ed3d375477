"""Models for scikit-learn: its own checks, what is charged, and what private rows may decide."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import base, linear_model, model_selection, pipeline
from sklearn.compose import ColumnTransformer
from sklearn.utils.estimator_checks import check_estimator

import neyman as ny
from neyman.ledger import BudgetRefused
from neyman.sklearn import (
    PCA,
    GridSearchCV,
    LinearRegression,
    LogisticRegression,
    Ridge,
    StandardScaler,
)

NOISE = "the noise of two fits differs"
CONTENT = "no content of the data may raise an error"
LISTS = "no row of a list may decide the number of columns"
CLASSES = "classes are declared, and no label of the data decides them"
ENTRIES = {"check_dtype_object": CONTENT}
REFIT = {"check_fit_idempotent": NOISE}
TARGETS = {"check_supervised_y_no_nan": CONTENT}
LINES = {
    "check_regressors_train": LISTS,
    "check_regressor_data_not_an_array": NOISE,
    "check_supervised_y_2d": NOISE,
    "check_regressors_int": NOISE,
}
LABELS = {
    "check_classifiers_train": LISTS,
    "check_classifiers_classes": CLASSES,
    "check_classifiers_regression_target": CONTENT,
    "check_classifier_not_supporting_multiclass": CONTENT,
}
AMPLE = ny.gdp(10**4)
MODELS: list[tuple[Any, dict[str, str]]] = [
    (LinearRegression(budget=AMPLE, radius=20, bounds=(-300, 300)), LINES | TARGETS | REFIT),
    (Ridge(budget=AMPLE, radius=20, bounds=(-300, 300)), LINES | TARGETS | REFIT),
    (LogisticRegression(budget=AMPLE, radius=20, classes=(0, 1), alpha=1e-3), LABELS | TARGETS),
    (StandardScaler(budget=AMPLE, bounds=(-20, 20)), REFIT),
    (PCA(budget=AMPLE, radius=20), REFIT),
]
NAMES = [type(model).__name__ for model, _ in MODELS]


@pytest.mark.parametrize(("model", "refused"), MODELS, ids=NAMES)
def test_every_check_of_scikit_learn_holds_but_those_that_contradict_privacy(model, refused):
    expected = ENTRIES | refused
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks warn about their own inputs
        results = check_estimator(
            model, on_fail=None, on_skip=None, expected_failed_checks=expected
        )
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    excused = {r["check_name"] for r in results if r["status"] == "xfail"}
    assert excused >= {name for name, reason in expected.items() if reason != NOISE}


def create(ledger, cap, name="a@1"):
    terms = {"protects": "person", "neighboring": "replace-one", "rows": 1}
    ledger.create(name, currency="zcdp", cap=cap, **terms)


def table(rows=20_000, seed=1):
    """Return features in the unit ball, a linear target, and labels."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(-0.5, 0.5, (rows, 3))
    y = 0.2 + x @ [0.5, -0.25, 0.0] + draw.normal(0, 0.05, rows)
    return x, y, (draw.random(rows) < 1 / (1 + np.exp(-4 * x[:, 0]))).astype(int)


FITS: dict[str, Any] = {
    "line": lambda **paid: LinearRegression(radius=1, bounds=(-1, 1), **paid),
    "ridge": lambda **paid: Ridge(10, radius=1, bounds=(-1, 1), **paid),
    "logistic": lambda **paid: LogisticRegression(radius=1, classes=(0, 1), **paid),
    "scaler": lambda **paid: StandardScaler(bounds=(-1, 1), **paid),
    "components": lambda **paid: PCA(2, radius=1, **paid),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_charges_once_what_its_curve_says(name, tmp_path):
    x, y, labels = table(500)
    ledger = ny.Ledger(tmp_path / "l.db")
    create(ledger, cap="2")
    model = FITS[name](budget=ny.zcdp("1/8"), ledger=str(tmp_path / "l.db"), dataset="a@1")
    model.fit(x, labels if name == "logistic" else y)
    spent = 2 - ledger.account("a@1").left
    assert Fraction(1, 8) * (1 - Fraction(1, 10**6)) < spent <= Fraction(1, 8)
    assert model.receipt_["ledger"]["entry"]
    assert model.tradeoff_.epsilon(1e-6).upper < ny.zcdp("1/8").epsilon(1e-6).lower


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308, "x", None, b"1", {}])
def test_no_entry_of_a_row_raises_in_a_fit_or_after_it(name, bad):
    x, y, labels = table(300)
    x = x.astype(object)
    x[7, 1] = bad
    model = FITS[name](budget=ny.gdp(1))
    target = (labels if name == "logistic" else y).astype(object)
    target[9] = bad
    model.fit(x, target)
    after = model.predict(x) if hasattr(model, "predict") else model.transform(x)
    assert len(after) == 300


@pytest.mark.parametrize("name", FITS)
def test_bad_arguments_and_types_are_refused_before_a_charge(name, tmp_path):
    x, y, labels = table(100)
    target = labels if name == "logistic" else y
    ledger = ny.Ledger(tmp_path / "l.db")
    create(ledger, cap="2")
    paid = {"budget": ny.zcdp("1/8"), "ledger": ledger, "dataset": "a@1"}
    for wrong, error in (
        ({"budget": None}, ValueError),
        ({"confidence": 1}, ValueError),
        ({"neighboring": "near"}, ValueError),
        ({"dataset": None}, ValueError),
        ({"bounds": (1, 0)}, ValueError),
        ({"bounds": 3}, TypeError),
        ({"bounds": (0, 1, 2)}, TypeError),
        ({"confidence": 1 - Fraction(1, 10**301)}, ValueError),
        ({"classes": {0, 1}}, ValueError),
        ({"classes": (0, 1, 2)}, ValueError),
        ({"classes": (0, math.nan)}, ValueError),
        ({"radius": 0}, ValueError),
        ({"radius": None}, ValueError),
        ({"classes": (1, 1)}, ValueError),
        ({"alpha": -1}, ValueError),
        ({"n_components": 4}, ValueError),
    ):
        model = FITS[name](**paid)
        if set(wrong) <= set(model.get_params()):
            with pytest.raises(error, match=next(iter(wrong))):
                model.set_params(**wrong).fit(x, target)
    for rows in (x.astype(str), x.tolist(), x[:, 0], x + 1j, x[:0], [], None):
        with pytest.raises((TypeError, ValueError)):
            FITS[name](**paid).fit(rows, target)
    if name in ("line", "ridge"):
        with pytest.raises(TypeError, match=r"y has the type .* real numbers"):
            FITS[name](**paid).fit(x, target.astype(str))
    assert ledger.account("a@1").left == 2


def test_a_frame_is_read_by_name_and_a_text_column_is_refused_by_name():
    pandas = pytest.importorskip("pandas")
    x, y, _ = table()
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = FITS["line"](budget=ny.gdp(1)).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])
    with pytest.raises(TypeError, match="column 'b' of X has the type"):
        FITS["line"](budget=ny.gdp(1)).fit(frame.assign(b="x"), y)
    with pytest.raises(ValueError, match="bounds has 2 pairs, and X has 3 columns"):
        StandardScaler(budget=AMPLE, bounds=[(-1, 1)] * 2).fit(frame)
    missing = frame.assign(b=pandas.array([pandas.NA] * len(x), dtype="Int64"))
    assert np.isfinite(FITS["line"](budget=ny.gdp(1)).fit(missing, y).intercept_)


# ---- values -----------------------------------------------------------------------------------


def test_lines_agree_with_those_of_scikit_learn_within_the_noise():
    x, y, _ = table()
    exact = linear_model.LinearRegression().fit(x, y)
    model = LinearRegression(budget=AMPLE, radius=1, bounds=(-1, 1)).fit(x, y)
    assert np.allclose(model.coef_, exact.coef_, atol=1e-4)
    assert np.allclose(model.predict(x), exact.predict(x), atol=1e-4)
    through_zero = linear_model.LinearRegression(fit_intercept=False).fit(x, y)
    model = LinearRegression(budget=AMPLE, radius=1, bounds=(-1, 1), fit_intercept=False).fit(x, y)
    assert np.allclose(model.coef_, through_zero.coef_, atol=1e-4)


def test_a_ridge_whose_penalty_has_no_square_in_floats_is_refused_before_a_charge(paid):
    x, y, _ = table(100)
    with pytest.raises(ValueError, match="too large for radius"):
        Ridge(1e15, radius=1e-90, bounds=(-1, 1), **paid).fit(x, y)
    assert left(paid) == 1


@pytest.mark.parametrize("alpha", [0.0, 3.0, 2e3])
def test_a_ridge_has_the_penalty_of_scikit_learn_and_none_on_the_intercept(alpha):
    x, y, _ = table()
    for bounds in ((-1, 1), (-3, 1)):
        exact = linear_model.Ridge(alpha).fit(x, y)
        model = Ridge(
            alpha, budget=ny.gdp(100), radius=2, bounds=bounds, confidence=1 - Fraction(1, 10**9)
        ).fit(x, y)
        assert np.allclose(model.coef_, exact.coef_, atol=1e-3)
        assert abs(model.intercept_ - exact.intercept_) < 1e-3
        low, high = model.interval_
        assert np.all((low < exact.coef_) & (exact.coef_ < high))
        assert model.intercept_interval_[0] < exact.intercept_ < model.intercept_interval_[1]


def test_a_logistic_fit_ranks_rows_and_an_unknown_label_counts_as_no_row():
    x, _, labels = table()
    words = np.array(["no", "yes"])[labels]
    model = LogisticRegression(budget=ny.gdp(1), radius=1, classes=("no", "yes")).fit(x, words)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(x, words) > np.mean((x[:, 0] > 0) == labels) - 0.02
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1)
    cut = np.where(np.arange(len(x)) % 2 == 0, words, "perhaps")
    half = LogisticRegression(budget=AMPLE, radius=1, classes=("no", "yes")).fit(x, cut)
    weight = np.where(np.arange(len(x)) % 2 == 0, 1.0, 0.0)
    # The loss is the mean over all rows, and half of them carry none of it: the penalty doubles.
    exact = linear_model.LogisticRegression(C=1 / (0.01 * len(x)), tol=1e-10, max_iter=1000)
    exact = exact.fit(np.hstack([x, np.ones((len(x), 1))]), labels, sample_weight=weight)
    assert np.allclose(half.coef_[0], exact.coef_[0][:3], rtol=0.1)


def test_a_scaler_has_the_moments_of_the_entries_that_are_there():
    x, _, _ = table()
    x = x * [1, 2, 4] + [0, 1, -2]
    x[::3, 1] = np.nan
    model = StandardScaler(budget=AMPLE, bounds=[(-1, 1), (-1, 3), (-5, 1)]).fit(x)
    assert np.allclose(model.mean_, np.nanmean(x, axis=0), atol=1e-3)
    assert np.allclose(model.var_, np.nanvar(x, axis=0), rtol=1e-2)
    moved = model.transform(x)
    assert np.array_equal(np.isnan(moved), np.isnan(x))
    assert np.allclose(model.inverse_transform(moved), x, equal_nan=True)


@pytest.mark.parametrize("value", [-1.5, -1, 0, 1, 1.5])
def test_the_ball_of_the_scaler_has_room_for_the_parts_of_each_row(value):
    model = StandardScaler(budget=AMPLE, bounds=(-1, 1)).fit(np.full((2000, 2), value))
    assert np.allclose(model.mean_, np.clip(value, -1, 1), atol=1e-4)
    assert np.allclose(model.var_, 0, atol=1e-3)


def test_components_are_those_of_the_exact_covariance_within_the_noise():
    draw = np.random.default_rng(3)
    x = np.clip(draw.normal(size=(20_000, 4)) * [0.2, 0.1, 0.05, 0.02], -0.5, 0.5)
    x = x @ stats.ortho_group.rvs(4, random_state=5) + 0.1
    model = PCA(2, budget=AMPLE, radius=2).fit(x)
    values, vectors = np.linalg.eigh(np.cov(x.T))
    assert np.allclose(model.explained_variance_, values[::-1][:2], rtol=1e-2)
    assert np.allclose(np.abs(model.components_ @ vectors[:, ::-1][:, :2]), np.eye(2), atol=0.02)
    assert np.allclose(model.mean_, x.mean(axis=0), atol=1e-3)
    back = model.inverse_transform(model.transform(x))
    assert np.mean((back - x) ** 2) < 1.1 * values[:2].sum() / 4


# ---- intervals --------------------------------------------------------------------------------


def test_intervals_of_a_scaler_and_a_line_cover_in_at_least_their_share_of_runs():
    """Fewer hits than this have a chance of 1e-5 if the intervals cover in 95% of the runs."""
    runs = 120
    least = int(stats.binom.ppf(1e-5, runs, 0.95))
    hits = np.zeros(2)
    for run in range(runs):
        x, y, _ = table(2000, seed=run)
        low, high = LinearRegression(budget=ny.gdp(4), radius=1, bounds=(-1, 1)).fit(x, y).interval_
        hits[0] += low[0] <= 0.5 <= high[0]
        assert high[0] - low[0] < 0.04
        x[:: 1 + run % 5, 0] = np.nan
        low, high = StandardScaler(budget=ny.gdp(4), bounds=(-1, 1)).fit(x).interval_
        hits[1] += low[1] <= 0.0 <= high[1]
        assert high[1] - low[1] < 0.36
    assert np.all(hits >= least)


# ---- pipelines and searches -------------------------------------------------------------------


@pytest.fixture
def paid(tmp_path):
    path = tmp_path / "l.db"
    ledger = ny.Ledger(path)
    create(ledger, cap="1")
    return {"budget": ny.zcdp("1/16"), "ledger": str(path), "dataset": "a@1"}


def left(paid):
    return ny.Ledger(paid["ledger"]).account("a@1").left


def test_a_pipeline_charges_each_of_its_steps(paid):
    x, y, _ = table(1000)
    steps = (
        StandardScaler(bounds=(-1, 1), **paid),
        LinearRegression(radius=9, bounds=(-1, 1), **paid),
    )
    model = pipeline.make_pipeline(*steps).fit(x, y)
    assert 1 - left(paid) == pytest.approx(1 / 8, rel=1e-6)
    assert model.predict(x).shape == (1000,)
    assert left(paid) == left(paid)
    assert base.clone(model).get_params()["linearregression__ledger"] == paid["ledger"]


def test_a_search_charges_every_fit_and_one_that_overspends_begins_none(paid):
    x, y, _ = table(1000)
    model = pipeline.make_pipeline(Ridge(radius=1, bounds=(-1, 1), **paid))
    with pytest.warns(UserWarning, match="without noise or charge"):
        GridSearchCV(model, {"ridge__alpha": [0.1, 1.0]}, cv=3).fit(x, y)
    assert 1 - left(paid) == pytest.approx(7 / 16, rel=1e-6)
    before = left(paid)
    with pytest.raises(BudgetRefused) as caught:
        GridSearchCV(model, {"ridge__alpha": [0.1, 1.0, 10.0]}, cv=3).fit(x, y)
    assert "10 fits" in " ".join(caught.value.__notes__)
    assert caught.value.requested == pytest.approx(10 / 16, rel=1e-6)
    assert left(paid) == before
    plain = model_selection.GridSearchCV(model, {"ridge__alpha": [1.0]}, cv=2)
    plain.fit(x, y)
    assert before - left(paid) == pytest.approx(3 / 16, rel=1e-6)


def test_a_search_adds_up_what_copies_of_a_ledger_and_parts_of_a_model_charge(paid):
    x, y, _ = table(1000)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    book = {**paid, "ledger": ny.Ledger(paid["ledger"])}  # a search copies it
    parts = ColumnTransformer([("scaled", StandardScaler(bounds=(-1, 1), **book), ["a", "b"])])
    model = pipeline.make_pipeline(parts, Ridge(radius=9, bounds=(-1, 1), **paid))
    with pytest.raises(BudgetRefused) as caught:
        GridSearchCV(model, {"ridge__alpha": [0.1, 1.0, 10.0]}, cv=3).fit(frame, y.tolist())
    assert caught.value.requested == pytest.approx(2 * 10 / 16, rel=1e-6)
    assert left(paid) == 1
    trial = {**paid, "ledger": ny.throwaway("1")}
    search = GridSearchCV(Ridge(radius=1, bounds=(-1, 1), **trial), {"alpha": [1, 2]}, cv=2)
    with pytest.warns(UserWarning, match="without noise or charge"):
        search.fit(x, y)
    assert trial["ledger"].account("a@1").left == pytest.approx(1 - 5 / 16, rel=1e-6)


def test_a_search_asks_each_account_only_for_what_its_own_fits_charge(paid, tmp_path):
    x, y, _ = table(1000)
    books = [ny.Ledger(paid["ledger"]), ny.Ledger(tmp_path / "other.db")]
    for book, name in ((books[0], "b@1"), (books[1], "a@1")):
        create(book, cap="3/8", name=name)
    books[0].allocate("a@1", "team", cap="3/8")
    payers = [{}, {"dataset": "b@1"}, {"ledger": books[1]}, {"account": "team"}]
    parts = [StandardScaler(bounds=(-1, 1), **paid | terms) for terms in payers]
    model = pipeline.make_pipeline(*parts, Ridge(radius=9, bounds=(-1, 1), budget=AMPLE))
    with pytest.warns(UserWarning, match="without noise or charge"):
        GridSearchCV(model, {"ridge__alpha": [1, 2]}, cv=2).fit(x, y)
    accounts = books[0].account("a@1", "team"), books[0].account("b@1"), books[1].account("a@1")
    assert [float(each.left) for each in accounts] == pytest.approx([1 / 16] * 3, rel=1e-6)


@pytest.mark.parametrize("name", ["line", "logistic"])
@pytest.mark.parametrize("odd", ["x", b"x", [1, 2], 1j, None, {}, (1, 2)])
def test_an_entry_of_a_list_changes_how_no_other_entry_is_read(name, odd):
    x, y, labels = table(400)
    target = (labels if name == "logistic" else y).tolist()
    without = [math.nan if k == 7 else v for k, v in enumerate(target)]
    target[7] = odd
    fits = [FITS[name](budget=AMPLE).fit(x, values).coef_ for values in (target, without)]
    assert np.allclose(*fits, atol=0.05)


def test_a_search_counts_the_dearest_candidate_for_the_fit_on_all_rows(paid):
    x, y, _ = table(1000)
    budgets = [ny.zcdp("1/64"), ny.zcdp("1/2")]
    model = Ridge(radius=1, bounds=(-1, 1), **paid)
    with pytest.raises(BudgetRefused) as caught:
        GridSearchCV(model, {"budget": budgets}, cv=2).fit(x, y)
    assert caught.value.requested == pytest.approx(2 / 64 + 2 / 2 + 1 / 2, rel=1e-6)
    assert left(paid) == 1


def test_a_search_refuses_folds_that_labels_or_a_secret_number_decide(paid):
    x, _, labels = table(1000)
    model = LogisticRegression(radius=1, classes=(0, 1), **paid)
    with pytest.raises(ValueError, match="may split by labels"):
        GridSearchCV(model, {"alpha": [0.1]}, cv=model_selection.StratifiedKFold(3)).fit(x, labels)
    secret = LinearRegression(radius=1, bounds=(-1, 1), neighboring="add-remove", **paid)
    with pytest.raises(ValueError, match="number of rows, which is secret"):
        GridSearchCV(secret, {"radius": [1, 2]}).fit(x, labels)
    assert left(paid) == 1


@pytest.mark.parametrize("name", FITS)
def test_no_entry_is_read_before_the_charge_is_durable(name, paid):
    class Spy:
        """A number that says what was left when it was read."""

        readings: list[Fraction]

        def __float__(self):
            self.readings.append(left(paid))
            return 0.5

        def __eq__(self, other):
            self.readings.append(left(paid))
            return False

        __hash__ = None

    spy = Spy()
    spy.readings = []
    x, y, labels = table(50)
    x, target = x.astype(object), (labels if name == "logistic" else y).astype(object)
    x[3, 1] = target[4] = spy
    FITS[name](**paid).fit(x, target)
    assert spy.readings
    assert max(spy.readings) < 1
