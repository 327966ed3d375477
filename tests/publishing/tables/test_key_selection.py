"""Unknown keys: thresholds against mpmath, what is shown, and the guarantee by enumeration."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from neyman.accounting import charge
from neyman.publishing import Plan, moved, selected, threshold
from neyman.publishing.plan.measurement import failure
from neyman.publishing.tables.key_selection import _terms

SIGMAS = [
    Fraction(1, 10),
    Fraction(1, 2),
    Fraction(1),
    Fraction(7, 3),
    Fraction(60),
    Fraction(4000),
]
DELTAS = [
    Fraction(1, 2),
    Fraction(1, 3),
    Fraction(1, 100),
    Fraction(1, 10**9),
    Fraction(1, 10**300),
]


def tail(sigma_squared, k, precision=1200):
    """Bounds on P(X >= k) below and above, by the terms that the threshold sums."""
    terms = list(_terms(sigma_squared, precision))
    low, high = sum(a for a, _ in terms[k:]), sum(b for _, b in terms[k:]) + 1
    all_low = 2 * sum(a for a, _ in terms) - terms[0][1]
    all_high = 2 * (sum(b for _, b in terms) + 1) - terms[0][0]
    return Fraction(low, all_high), Fraction(high, all_low)


def tails(sigma_squared):
    """P(X >= k) for k = 0, 1, ..., by mpmath, down to 1e-330."""
    with mpmath.workdps(380):
        twice = 2 * mpmath.mpf(sigma_squared.numerator) / sigma_squared.denominator
        last = int(mpmath.sqrt(twice * 330 * mpmath.log(10))) + 60
        weights = [mpmath.exp(-(mpmath.mpf(j) ** 2) / twice) for j in range(last)]
        total = 2 * mpmath.fsum(weights) - 1
        rest, results = mpmath.mpf(0), []
        for weight in reversed(weights):
            rest += weight
            results.append(rest / total)
    return results[::-1]


@pytest.mark.parametrize("sigma_squared", SIGMAS)
def test_a_threshold_is_the_least_that_keeps_delta(sigma_squared):
    """By the tails that mpmath sums to 380 digits."""
    reference = tails(sigma_squared)
    for delta in DELTAS:
        with mpmath.workdps(380):
            limit = mpmath.mpf(delta.numerator) / delta.denominator
            least = next(k for k, p in enumerate(reference) if p <= limit)
        assert threshold(sigma_squared, delta) == 1 + least


@pytest.mark.parametrize("sigma_squared", [*SIGMAS, Fraction(10**9)])
def test_a_threshold_for_rounded_noise_is_the_least_that_keeps_delta(sigma_squared):
    """P(round(N) >= k) is that of a normal number of at least k - 1/2, by mpmath to 380 digits."""
    for delta in DELTAS if sigma_squared < 9 else DELTAS[:-1]:
        least = threshold(sigma_squared, delta, rounded=True) - 1
        with mpmath.workdps(380):
            limit = mpmath.mpf(delta.numerator) / delta.denominator
            width = mpmath.sqrt(2 * mpmath.mpf(sigma_squared.numerator) / sigma_squared.denominator)
            at, before = (
                mpmath.erfc((k - mpmath.mpf(0.5)) / width) / 2 for k in (least, least - 1)
            )
            assert least >= 1
            assert at <= limit
            assert least == 1 or before > limit


@pytest.mark.parametrize("precision", [4, 8, 16, 40])
def test_a_tail_beyond_the_last_term_is_at_most_one_unit(precision):
    reference = tails(Fraction(4))
    for k in range(40):
        low, high = tail(Fraction(4), k, precision)
        with mpmath.workdps(380):
            assert low.numerator <= reference[k] * low.denominator
            assert reference[k] * high.denominator <= high.numerator
    assert low == 0
    assert high.denominator == high.denominator // high.numerator  # one unit of all


@pytest.mark.parametrize("sigma_squared", [Fraction(0), Fraction(-1)])
def test_no_noise_has_no_threshold(sigma_squared):
    with pytest.raises(ValueError, match=r"sigma_squared = .* must be above 0"):
        threshold(sigma_squared, Fraction(1, 100))


def test_tails_are_enclosed():
    """A lower and an upper bound around mpmath's, a hair apart."""
    reference = tails(Fraction(60))
    for k in (0, 1, 10, 50, 200):
        low, high = tail(Fraction(60), k)
        with mpmath.workdps(380):
            assert mpmath.mpf(low.numerator) / low.denominator <= reference[k]
            assert reference[k] <= mpmath.mpf(high.numerator) / high.denominator
        assert high - low < Fraction(1, 2**1100)


@pytest.mark.parametrize("delta", [Fraction(1, 3), Fraction(1, 10**6), Fraction(1, 10**300)])
def test_beyond_the_sums_a_threshold_is_safe_and_close(delta):
    """At sigma just above 1000 it is at least, and hardly more than, that at just below."""
    below, above = threshold(Fraction(10**6), delta), threshold(Fraction(10**6) + 1, delta)
    assert below <= above <= below * (1 + Fraction(1, 10**5)) + 900 * (delta > Fraction(1, 10)) + 2


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(2, 3), Fraction(1, 10**301)])
def test_a_delta_outside_its_range_is_refused(delta):
    """With the range."""
    with pytest.raises(ValueError, match="1e-300 to 1/2"):
        threshold(Fraction(1), delta)


def test_keys_that_reach_the_threshold_come_in_the_order_of_their_bytes():
    """The order in which the data had them does not show; accents sort by their bytes."""
    keys = pa.table({"state": ["B", "A", "A", "B"], "job": ["z", "é", "z", "a"]})
    rows = selected(keys, np.array([5, 9, 7, 4]), 5)
    assert rows.tolist() == [2, 1, 0]
    shown = keys.take(pa.array(rows))
    assert shown.to_pydict() == {"state": ["A", "A", "B"], "job": ["z", "é", "z"]}
    nothing = selected(keys, np.array([1, 2, 3, 4]), 5)
    assert len(nothing) == 0
    assert keys.take(pa.array(nothing)).schema == keys.schema


def test_the_chance_that_some_key_is_shown_is_rounded_up():
    """1 - (1 - delta)^k, never below, by less than 1e-13 of itself."""
    for delta, keys in itertools.product([Fraction(1, 10**9), Fraction(1, 3)], [1, 2, 7, 1000]):
        exact = 1 - (1 - delta) ** keys
        assert exact <= failure(delta, keys) <= min(Fraction(1), exact * (1 + Fraction(1, 10**13)))


# ---- the guarantee, by enumeration of what can be seen ----------------------------------------

SIGMA_SQUARED, DELTA = Fraction(2), Fraction(1, 50)
FAR = 30


def counted(counts):
    """The distribution of what is published: for each key hidden, or its noisy number."""
    least = threshold(SIGMA_SQUARED, DELTA)
    x = np.arange(-FAR, FAR + 1)
    mass = np.exp(-(x**2) / (2 * float(SIGMA_SQUARED)))
    mass /= mass.sum()
    law = np.ones(1)
    for count in counts:
        one = np.zeros(2 * FAR + 3)  # hidden, then the numbers from the threshold on
        if count:
            values = count + x
            np.add.at(one, np.where(values < least, 0, values - least + 1), mass)
        else:
            one[0] = 1.0
        law = np.multiply.outer(law, one)
    return law.ravel()


def plan_of(neighboring, rows):
    """A plan that discovers one column's keys, with noise of about the variance above."""
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "keys",
            "dataset": "people@1",
            "table": "people",
            "unit": {"protects": "person", "neighboring": neighboring, "rows": rows, "id": "who"},
            "columns": {"job": {"discover": True}},
            "budget": {"zcdp": 10, "delta": "0.2"},
            "query": [
                {"name": "jobs", "measure": "units", "by": ["job"], "delta": DELTA, "share": 1}
            ],
        }
    )


CHANGES = [
    # counts of three keys without and with the unit, or with one version of it and another
    ("add-remove", 1, (0, 3, 5), (1, 3, 5)),
    ("add-remove", 1, (0, 3, 5), (0, 4, 5)),
    ("add-remove", 2, (0, 0, 5), (1, 1, 5)),
    ("add-remove", 2, (0, 2, 5), (1, 3, 5)),
    ("add-remove", 2, (4, 2, 5), (5, 3, 5)),
    ("replace-one", 1, (1, 0, 5), (0, 1, 5)),
    ("replace-one", 1, (1, 4, 5), (0, 5, 5)),
    ("replace-one", 1, (4, 5, 1), (5, 4, 1)),
    ("replace-one", 2, (1, 1, 0), (0, 0, 1)),
    ("replace-one", 2, (1, 1, 4), (0, 1, 5)),
    ("replace-one", 2, (1, 3, 4), (0, 2, 5)),
]


@pytest.mark.parametrize(("neighboring", "rows", "without", "having"), CHANGES)
def test_what_is_seen_of_unknown_keys_is_within_the_declared_mechanism(
    neighboring, rows, without, having
):
    """Both deltas of the enumerated distributions are at most the certified ones, at every
    epsilon.
    """
    (entry,) = plan_of(neighboring, rows).entries()
    assert entry.measure == "keys"
    assert (entry.cells, entry.keys) == (None, rows)
    curve = entry.noise(SIGMA_SQUARED).tradeoff(neighboring)
    p, q = counted(having), counted(without)
    for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
        most = max(
            float(np.sum(np.maximum(a - np.exp(epsilon) * b, 0.0))) for a, b in ((p, q), (q, p))
        )
        assert most <= curve.delta(epsilon).upper + 1e-12


# ---- counts and sums by unknown keys -----------------------------------------------------------


def measured(sigma_squared, cells, decimals=0):
    """The law of what is published: for each key hidden, or its noisy number.

    A cell is (units, number); the noise on units has `SIGMA_SQUARED`, that on numbers its own.
    """
    least = threshold(SIGMA_SQUARED, DELTA)
    x = np.arange(-FAR, FAR + 1)
    chance = np.exp(-(x**2) / (2 * float(SIGMA_SQUARED)))
    chance /= chance.sum()
    mass = np.exp(-(x**2) / (2 * float(sigma_squared)))
    mass /= mass.sum()
    law = np.ones(1)
    for units, number in cells:
        one = np.zeros(2 * FAR + 2 + 2 * MOST)  # hidden, then the numbers from -FAR - MOST on
        shown = float(chance[units + x >= least].sum()) if units else 0.0
        one[0] = 1 - shown
        one[1 + MOST + number : 2 + MOST + number + 2 * FAR] += shown * mass
        law = np.multiply.outer(law, one)
    return law.ravel()


MOST = 8


def plan_that_measures(neighboring, rows, measure, **bounds):
    plan = plan_of(neighboring, rows).canonical()
    (query,) = plan["query"]
    query |= {"measure": measure, **bounds}
    if measure == "sum":
        plan["columns"]["pay"] = {"integer": True}
        query |= {"column": "pay", "clip": [-1, 2]}
    return Plan.from_dict(plan)


MEASURED = [
    # relation, rows of a unit, measure, bounds, and keys as (units, number) before and after
    ("add-remove", 3, "count", {}, [(0, 0), (3, 4)], [(1, 3), (3, 4)]),
    ("add-remove", 3, "count", {}, [(0, 0), (3, 4)], [(1, 2), (4, 5)]),
    ("add-remove", 3, "count", {}, [(4, 4), (3, 4)], [(5, 7), (3, 4)]),
    ("add-remove", 3, "count", {"rows_per_group": 2}, [(4, 4), (3, 4)], [(5, 6), (4, 5)]),
    ("add-remove", 2, "count", {"groups": 1}, [(0, 0), (3, 4)], [(1, 2), (3, 4)]),
    ("add-remove", 1, "sum", {}, [(4, 4), (3, -4)], [(5, 6), (3, -4)]),
    ("add-remove", 2, "sum", {}, [(0, 0), (3, -4)], [(1, 2), (4, -5)]),
    ("replace-one", 3, "count", {}, [(1, 3), (3, 4)], [(0, 0), (4, 7)]),
    ("replace-one", 2, "count", {}, [(1, 2), (0, 0)], [(0, 0), (1, 2)]),
    ("replace-one", 2, "count", {}, [(4, 6), (4, 4)], [(3, 4), (5, 6)]),
    ("replace-one", 2, "sum", {}, [(4, 6), (3, -4)], [(4, 0), (3, -4)]),
    ("replace-one", 1, "sum", {}, [(1, 2), (4, 4)], [(0, 0), (5, 3)]),
    ("replace-one", 1, "sum", {}, [(4, 2), (4, 4)], [(3, 0), (5, 6)]),
]


@pytest.mark.parametrize(
    ("neighboring", "rows", "measure", "bounds", "without", "having"), MEASURED
)
def test_what_is_seen_of_numbers_by_unknown_keys_is_within_the_declared_mechanism(
    neighboring, rows, measure, bounds, without, having
):
    """Both deltas of the enumerated distributions are at most the certified ones, at every
    epsilon.
    """
    plan = plan_that_measures(neighboring, rows, measure, **bounds)
    keys, values = plan.entries()
    assert (keys.measure, values.measure) == ("keys", measure)
    assert (values.cells, values.delta, values.failure) == (None, None, 0)
    noise = Fraction(values.squared, keys.squared) * SIGMA_SQUARED
    curve = (keys.noise(SIGMA_SQUARED) + values.noise(noise)).tradeoff(neighboring)
    p, q = measured(noise, having), measured(noise, without)
    for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
        most = max(
            float(np.sum(np.maximum(a - np.exp(epsilon) * b, 0.0))) for a, b in ((p, q), (q, p))
        )
        assert most <= curve.delta(epsilon).upper + 1e-9


def test_a_count_of_units_with_one_row_is_the_number_of_units():
    """It costs no second noise; with more rows in a cell, or on two levels, it does."""
    assert [e.measure for e in plan_that_measures("add-remove", 1, "count").entries()] == ["keys"]
    (entry,) = plan_that_measures("add-remove", 3, "count", rows_per_group=1).entries()
    assert (entry.measure, entry.keys) == ("keys", 3)
    levels = plan_that_measures("add-remove", 3, "count", rows_per_group=1).canonical()
    levels["hierarchy"] = {"place": {"levels": ["a", "b"], "keys": [["x", "y"], ["x", "z"]]}}
    levels["query"][0] |= {"at": ["a", "b"], "split": {"a": "1/2", "b": "1/2"}}
    levels["budget"]["delta"] = "0.3"
    measures = [entry.measure for entry in Plan.from_dict(levels).entries()]
    assert measures == ["keys", "count", "keys", "count"]


def test_numbers_by_unknown_keys_are_charged_once_to_delta():
    """Units and values share rho, and only units can reveal a key."""
    plan = plan_that_measures("replace-one", 2, "sum")
    assert charge(plan.mechanism(), "zcdp") == (10, failure(DELTA, 2))
    keys, values = plan.entries()
    assert keys.share == values.share == Fraction(1, 2)
    assert (
        values.squared == (2 * 2 + 2 * 1) ** 2
    )  # in one cell two rows of -1 leave, two of 2 enter


def test_a_key_of_a_single_unit_is_what_the_delta_is_about():
    """Where only the unit has the key, its chance of being shown is at most the declared one."""
    p, q = counted((1,)), counted((0,))
    shown = float(np.sum(p[q == 0]))
    assert 0.2 * float(DELTA) < shown <= float(DELTA)


def test_keys_are_charged_to_rho_and_to_delta():
    """The plan's mechanism costs its rho, and what may be revealed outright."""
    plan = plan_of("add-remove", 2)
    assert charge(plan.mechanism(), "zcdp") == (10, failure(DELTA, 2))
    assert plan.admits(plan.mechanism())
    assert not plan.admits(plan.mechanism() + ny.NonPrivate(Fraction(17, 100), "add-remove"))
    assert not plan.admits(plan.mechanism(plan.scale * Fraction(99, 100)))


def test_a_record_that_stays_may_lose_a_key_and_gain_one():
    """The scenario of a job moves two counts and may fail as under replace-one."""
    (entry,) = moved(plan_of("add-remove", 1), ("job",))
    assert entry.shifts == ((1, 1),)
    assert entry.relation == "replace-one"
    assert plan_of("add-remove", 1).concerning("job").neighboring == "replace-one"
