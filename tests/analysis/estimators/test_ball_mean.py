"""Means in a ball: exact shifts, charges before data, intervals that cover, and no beaten bound."""

from __future__ import annotations

import itertools
import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom

import neyman as ny
from neyman.analysis import MeanTest, careful_error, grid_rows
from neyman.noise import SecureBits
from neyman.publishing import EstimateReceipt
from neyman.publishing import TestReceipt as OfTest

pytestmark = pytest.mark.needs("release")
RHO = ny.zcdp("1/8")
ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 4), st.just(3)), elements=ANY),
    arrays(np.float64, 3, elements=ANY),
    st.sampled_from([2**4, 2**12, 2**24]),
)
@settings(max_examples=150)
def test_the_sum_moves_by_at_most_the_stated_norm_for_any_doubles(rows, other, grid):
    total, without, replaced = (
        grid_rows(data, 0.7, grid, careful=True).astype(object).sum(axis=0)
        for data in (rows, rows[1:], np.vstack([other, rows[1:]]))
    )
    assert sum((total - without) ** 2) <= grid**2
    assert sum((total - replaced) ** 2) <= (2 * grid) ** 2


def test_every_clipped_row_is_as_near_the_real_one_as_the_interval_assumes():
    random = np.random.default_rng(5)
    for size in (1, 2, 7, 40):
        rows = random.normal(size=(60, size)) * 10.0 ** random.integers(-3, 4, size=(60, 1))
        rows[0] = 1 / np.sqrt(size)
        rows[1] = 0.999999 / np.sqrt(size)
        grid = 1 << 24
        units = grid_rows(rows, 1.0, grid, careful=True)
        for row, unit in zip(rows, units, strict=True):
            exact = [Fraction(float(x)) for x in row]
            squared = sum(x * x for x in exact)
            shrink = 1 / max(1.0, float(squared) ** 0.5)
            apart = [
                abs(float(x) * shrink * grid - u) for x, u in zip(exact, unit.tolist(), strict=True)
            ]
            assert max(apart) <= careful_error(size, grid)


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "budget", [ny.gdp(0.5), RHO, ny.approximate(1, 1e-6), ny.at_most(0.25, 0.05)]
)
def test_the_mechanism_meets_the_budget_and_states_the_largest_shift(budget, relation):
    estimate = ny.estimate.mean(
        [[0.1, 0.2]] * 9, radius=2, budget=budget, dimension=2, neighboring=relation
    )
    assert budget.admits(estimate.mechanism)
    weight = estimate.receipt["arguments"].get("weight", 0)
    units = estimate.receipt["arguments"]["grid"]
    shift = (2 * units) ** 2 if relation == "replace-one" else units**2 + weight**2
    assert shift <= estimate.mechanism.squared <= shift * (1 + 1e-6)
    copy = ny.Mechanism.from_dict(estimate.receipt["mechanism"])
    assert copy == estimate.mechanism


def test_the_charge_is_durable_before_the_data_are_read():
    ledger = ny.throwaway("1/4")
    events = []

    class Spy:
        def __float__(self) -> float:
            events.append([(e.state, e.charge) for e in ledger.entries("toy@1")])
            return 0.5

    data = np.array([Spy(), Spy()], dtype=object)
    estimate = ny.estimate.mean(data, radius=1, budget=RHO, ledger=ledger, dataset="toy@1")
    assert events == [[("reading", Fraction(1, 8))]] * 2
    (entry,) = ledger.entries("toy@1")
    assert entry.state == "released"
    assert estimate.receipt["ledger"]["charged"] == "1/8"
    _, files = ledger.published("toy@1", entry.key)
    assert json.loads(files["receipt.json"]) == estimate.receipt


def test_each_kind_of_receipt_is_read_and_written_to_the_same_bytes():
    ledger = ny.throwaway(9)
    paid = {"ledger": ledger, "dataset": "toy@1"}
    ny.estimate.mean([0.5] * 9, radius=1, budget=RHO, **paid)
    MeanTest(null=0, n=9, clip=3, alternative="greater", budget=RHO).release([0.5] * 9, **paid)
    kinds = (EstimateReceipt, "estimator"), (OfTest, "test")
    for entry, (kind, name) in zip(ledger.entries("toy@1"), kinds, strict=True):
        content = ledger.published("toy@1", entry.key)[1]["receipt.json"]
        receipt = kind.read(json.loads(content))
        assert receipt.to_bytes() == content
        assert receipt.ledger.charged == json.loads(content)["ledger"]["charged"]
        with pytest.raises(ValueError, match=f"no field '{name}'"):
            kind.read({k: part for k, part in json.loads(content).items() if k != name})


def test_a_full_ledger_reads_nothing_and_draws_nothing(monkeypatch):
    ledger = ny.throwaway("1/9")

    events = []

    class Spy:
        def __float__(self) -> float:
            events.append("read")
            return 0.5

    monkeypatch.setattr(SecureBits, "words", lambda *_: events.append("drawn"))
    data = np.array([Spy()], dtype=object)
    with pytest.raises(Exception, match="asked for"):
        ny.estimate.mean(data, radius=1, budget=RHO, ledger=ledger, dataset="toy@1")
    assert (events, ledger.account("toy@1").spent) == ([], 0)


def test_a_failure_after_the_charge_says_nothing_of_the_data(monkeypatch):
    ledger = ny.throwaway(1)

    def draw(*_):
        raise ValueError("secret 42")

    monkeypatch.setattr(SecureBits, "words", draw)
    for paid, words in (
        ({"ledger": ledger, "dataset": "toy@1"}, "the charge, which stands"),
        ({}, r"failed \(ValueError\)"),
    ):
        with pytest.raises(RuntimeError, match=words) as raised:
            ny.estimate.mean([0.5], radius=1, budget=RHO, **paid)
        assert "42" not in str(raised.value)
        assert raised.value.__context__ is raised.value.__cause__ is None
    assert ledger.account("toy@1").spent == Fraction(1, 8)


def test_two_estimates_are_charged_twice_and_have_other_noise():
    ledger = ny.throwaway(1)
    values = [
        ny.estimate.mean([0.5], radius=1, budget=RHO, ledger=ledger, dataset="toy@1").value
        for _ in range(2)
    ]
    assert ledger.account("toy@1").spent == Fraction(1, 4)
    assert values[0] != values[1]


@pytest.mark.parametrize(
    "values",
    [
        [0.5, None, "x", "0.5", 10**400, float("nan"), -float("inf"), object(), 1j, b"1"],
        np.array([np.nan, np.inf, -1e308, 1e-320]),
        np.array([2**63], dtype=np.uint64),
        np.array([True, False]),
    ],
)
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_no_content_of_the_data_raises_an_error(values, relation):
    estimate = ny.estimate.mean(values, radius=1, budget=RHO, neighboring=relation)
    assert np.isfinite(estimate.value)


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_with_next_to_no_noise_it_is_the_mean_of_the_clipped_records(relation):
    rows = np.random.default_rng(1).normal(size=(200_001, 3))
    clipped = rows / np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
    given = {"radius": 1, "budget": ny.gdp(1e5), "neighboring": relation}
    for records, mean in ((rows, clipped.mean(axis=0)), ([0.5, None, "x", math.nan], 0.125)):
        estimate = ny.estimate.mean(records, **given)
        assert estimate.value == pytest.approx(mean, abs=1e-4)
        low, high = estimate.interval(about="data")
        assert np.all((low <= mean) & (mean <= high) & (high - low < 1e-3))


def test_the_relation_of_the_dataset_and_its_rows_are_checked_before_the_charge(tmp_path):
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create("one@1", protects="person", neighboring="add-remove", cap=1)
    ledger.create("many@1", protects="person", neighboring="replace-one", rows=3, cap=1)
    for dataset, words in (("one@1", "registered under 'add-remove'"), ("many@1", "up to 3 rows")):
        with pytest.raises(ValueError, match=words):
            ny.estimate.mean([0.5], radius=1, budget=RHO, ledger=ledger, dataset=dataset)
        assert ledger.account(dataset).spent == 0


def test_an_empty_data_set_is_no_error_where_the_number_of_records_is_secret():
    estimate = ny.estimate.mean([], radius=1, budget=RHO, neighboring="add-remove")
    assert (
        estimate.interval(confidence=0.99) == (-1.0, 1.0)
        or estimate.receipt["result"]["records"] > 1
    )


def test_without_a_public_number_of_records_the_receipt_has_only_noisy_ones():
    values = np.full(12_345, 0.25)
    estimate = ny.estimate.mean(values, radius=1, budget=RHO, neighboring="add-remove")
    assert not re.search(r"(?<![.\d])12345(?![.\d])", estimate.to_json())
    assert estimate.gap is None
    assert estimate.problem is None


REPEATS = 300
FALSE_ALARM = 1e-6  # of each coverage test below
WIDEST = {  # a mean of intervals, about a tenth above what it is
    ("replace-one", "population"): 0.87,
    ("replace-one", "data"): 0.28,
    ("add-remove", "population"): 1.26,
    ("add-remove", "data"): 0.37,
}


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("about", ["population", "data"])
def test_intervals_cover_the_mean_at_the_stated_rate(relation, about):
    """False-alarm rate 1e-6: misses are at most binomial with chance 0.2."""
    random = np.random.default_rng(8)
    misses, widths = 0, []
    for _ in range(REPEATS):
        # Of the largest variance on the ball; in the same moment noise and sampling matter alike.
        values = random.choice([-1.0, 1.0], size=40, p=[0.3, 0.7])
        estimate = ny.estimate.mean(values, radius=1, budget=RHO, neighboring=relation)
        low, high = estimate.interval(confidence="4/5", about=about)
        truth = 0.4 if about == "population" else values.mean()
        misses += not low <= truth <= high
        widths.append(high - low)
    assert np.mean(widths) < WIDEST[relation, about]
    assert misses <= binom.ppf(1 - FALSE_ALARM, REPEATS, 0.2)
    if (relation, about) == ("replace-one", "data"):  # here the interval is exact
        assert misses >= binom.ppf(FALSE_ALARM, REPEATS, 0.19)


def test_the_standard_error_of_a_mean_adds_the_worst_record_and_the_noise():
    for values in (np.zeros(400), np.zeros((400, 3))):
        estimate = ny.estimate.mean(values, radius=2, budget=RHO, neighboring="replace-one")
        error = np.hypot(2 / np.sqrt(400), estimate.noise_error)
        assert np.shape(estimate.standard_error) == values.shape[1:]
        assert estimate.standard_error == pytest.approx(error)


def test_no_mean_has_an_error_below_the_least_one():
    for n in (1, 5, 100, 10_000):
        for mu in (0.01, 1):
            flat = ny.estimate.mean(np.zeros(n), radius=3, budget=ny.gdp(mu))
            ball = ny.estimate.mean(np.zeros((n, 4)), radius=3, budget=ny.gdp(mu))
            for estimate in (flat, ball):
                assert estimate.largest_error**2 >= estimate.least.lower
                assert estimate.gap >= 1


def test_an_estimate_cannot_be_changed_and_says_what_was_charged():
    estimate = ny.estimate.mean([[0.5, 0.1]], radius=1, budget=RHO, dimension=2)
    with pytest.raises(ValueError, match="read-only"):
        estimate.value[0] = 1
    with pytest.raises(AttributeError):
        estimate.name = "x"
    assert "charged nothing" in repr(estimate)
    assert "nothing was charged" in estimate.receipt["ledger"]["note"]
    for confidence in (0, 1, "x"):
        with pytest.raises(ValueError, match="confidence"):
            estimate.interval(confidence)
    with pytest.raises(ValueError, match="about"):
        estimate.interval(about="x")


@pytest.mark.parametrize("size", [8192, 8193, 20_000, 100_000])
def test_a_long_record_of_many_equal_entries_is_clipped_and_not_dropped(size):
    """The rough norm was capped, so that such a record became 0."""
    units = grid_rows(np.ones((2, size)), 1.0, 1 << 24, careful=True).sum(axis=0)
    near = 2 * (1 << 24) / np.sqrt(size)
    assert np.abs(units - near).max() <= 2 * careful_error(size, 1 << 24)
    assert int((units.astype(object) ** 2).sum()) <= 4 * (1 << 48)
    estimate = ny.estimate.mean(np.ones((2, size)), radius=1, budget=ny.gdp(1e5))
    assert estimate.value == pytest.approx(np.full(size, size**-0.5), abs=1e-4)


def test_neighbors_without_a_record_have_an_estimate_of_the_same_form():
    settings = {"radius": 1, "budget": ny.gdp(1), "neighboring": "add-remove"}
    for empty, one in (([], [0.5]), (np.empty((0, 2)), np.ones((1, 2)))):
        values = [ny.estimate.mean(rows, **settings).value for rows in (empty, one)]
        assert np.shape(values[0]) == np.shape(values[1])
    with pytest.raises(TypeError, match="array"):
        ny.estimate.regression([], [], bound=1, **settings)


ODD_RECORDS = [
    None,
    0.5,
    "x",
    [],
    [0.5],
    [0.5, 0.5, 0.5],
    [[1], 2],
    {},
    itertools.count(),
    object(),
]


@pytest.mark.parametrize("odd", range(len(ODD_RECORDS)))
@pytest.mark.parametrize("place", [0, 2])
def test_no_record_decides_the_form_of_an_estimate(odd, place):
    rows = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    changed = [*rows[:place], ODD_RECORDS[odd], *rows[place + 1 :]]
    numbers = [0.1, 0.2, 0.3]
    given = {"radius": 1, "budget": RHO}
    assert np.ndim(ny.estimate.mean([*numbers[:place], ODD_RECORDS[odd]], **given).value) == 0
    for data in (rows, changed):
        assert ny.estimate.mean(data, dimension=2, **given).value.shape == (2,)
        assert ny.estimate.covariance(data, dimension=2, **given).value.shape == (2, 2)
        fit = ny.estimate.regression(data, [1, 0, 1], bound=1, dimension=2, **given)
        assert fit.value.shape == (3,)
        fit = ny.estimate.logistic(data, [1, 0, 1], penalty=1, dimension=2, **given)
        assert fit.value.shape == (3,)
        with pytest.raises(TypeError, match="no record may decide"):
            ny.estimate.covariance(data, **given)


def test_a_list_with_a_dimension_is_read_as_its_array():
    rows = [[0.1, 0.2], [0.3, -0.4]]
    for relation in ("add-remove", "replace-one"):
        given = {"radius": 1, "budget": ny.gdp(1e6), "neighboring": relation}
        read = ny.estimate.mean(rows, dimension=2, **given)
        assert read.value == pytest.approx(np.mean(rows, axis=0), abs=1e-4)
    given["neighboring"] = "add-remove"
    assert ny.estimate.mean([], dimension=3, **given).value.shape == (3,)
    with pytest.raises(ValueError, match="dimension = 3, and records has 2 columns"):
        ny.estimate.mean(np.array(rows), radius=1, budget=RHO, dimension=3)
    with pytest.raises(ValueError, match="dimension"):
        ny.estimate.mean(rows, radius=1, budget=RHO, dimension=0)


def test_a_level_beyond_the_floats_is_refused():
    estimate = ny.estimate.mean([1.0], radius=1, budget=ny.gdp(1))
    with pytest.raises(ValueError, match="confidence"):
        estimate.interval(confidence="0." + "9" * 400)
