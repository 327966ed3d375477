"""Survival curves against Kaplan and Meier's own formula, enumeration, and simulation."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

import neyman as ny

TIMES = [0.25, 0.5, 1.0, 2.0]


def kaplan_meier(durations, events, times):
    """Return the product over all event times of the records."""
    rows = sorted(zip(durations, (not e for e in events), strict=True))  # events first in a tie
    curve, result = Fraction(1), dict.fromkeys(times, Fraction(1))
    for k, (duration, censored) in enumerate(rows):
        curve *= 1 if censored else 1 - Fraction(1, len(rows) - k)
        result.update((t, curve) for t in times if duration <= t)
    return [float(result[t]) for t in times]


def cells(durations, events):
    """The counts that a release without noise publishes, in its order."""
    result = ny.estimate.survival(
        durations, events, times=TIMES, budget=ny.gdp(90), neighboring="add-remove"
    ).receipt["result"]
    both = np.array([result["events"], result["censored"]]).T
    return np.array([*both.ravel(), result["later"], result["missing"]])


def people(n, seed, late=3.0):
    draw = np.random.default_rng(seed)
    death, leaves = draw.exponential(1, n), np.minimum(draw.exponential(2, n), late)
    return np.minimum(death, leaves), (death <= leaves).astype(int)


def test_without_noise_the_curve_is_that_of_kaplan_and_meier_where_all_are_censored_at_a_time():
    durations, events = people(400, 1)
    censored = ~events.astype(bool)
    durations[censored] = np.array(TIMES)[np.searchsorted(TIMES[:-1], durations[censored])]
    counts = cells(durations, events)
    given = counts[:-2:2], counts[1:-2:2], counts[-2]
    curve = ny.estimate.survival_curve(*given, sigma=0)
    truth = kaplan_meier(durations, events, TIMES)
    assert curve.value[0] == pytest.approx(truth[0], abs=1e-12)
    band = ny.estimate.survival_curve(*given, sigma=0, about="data")
    assert np.allclose(band.lower, truth, atol=1e-12)  # all leave before the events of an interval


def test_without_noise_the_band_about_the_data_is_the_extremes_of_all_orders():
    for order in set(product((0, 1), repeat=5)):
        durations = [(k + 1) / 10 for k in range(5)] + [9.0] * 10
        truth = kaplan_meier(durations, [*order, *([0] * 10)], [1.0])[0]
        some = sum(order)
        band = ny.estimate.survival_curve([some], [5 - some], 10, sigma=0, about="data")
        assert band.lower[0] <= truth + 1e-12
        assert truth - 1e-12 <= band.upper[0]
        assert band.lower[0] - 1e-12 <= band.value[0] <= band.upper[0] + 1e-12
    band = ny.estimate.survival_curve([3], [2], 10, sigma=0, about="data")
    assert (band.lower[0], band.upper[0]) == (pytest.approx(10 / 13), pytest.approx(12 / 15))


def test_bands_cover_the_records_and_the_population_in_at_least_their_share_of_runs():
    """Fewer hits than this have a chance of 1e-5 if a band of 80% covers in 80% of the runs."""
    runs, hits = 100, np.zeros((2, 2))
    least = int(stats.binom.ppf(1e-5, runs, 0.8))
    for run, known in product(range(runs), (0, 1)):
        durations, events = people(1000, run)
        estimate = ny.estimate.survival(
            durations,
            events,
            times=TIMES,
            budget=ny.gdp(0.5),
            neighboring="replace-one" if known else "add-remove",
        )
        truths = np.exp(-np.array(TIMES)), kaplan_meier(durations, events, TIMES)
        for k, about in enumerate(("population", "data")):
            low, high = estimate.interval(0.8, about=about)
            hits[known, k] += np.all((low <= truths[k]) & (truths[k] <= high))
            assert np.all(np.subtract(high, low) < 0.5)  # each end decides something
    assert np.all(hits >= least)


@pytest.mark.parametrize(("n", "rate", "mu"), [(20_000, 5e-5, 50), (500, 0.01, 10)])
def test_a_band_about_the_population_covers_where_there_are_few_events(n, rate, mu):
    """Fewer hits than this have a chance of 1e-5 if it covers in 95% of the runs."""
    runs, hits, draw = 150, 0, np.random.default_rng(4)
    for _ in range(runs):
        death = draw.exponential(1 / rate, n)
        estimate = ny.estimate.survival(
            np.minimum(death, 2), death <= 2, times=[1, 2], budget=ny.gdp(mu)
        )
        low, high = estimate.interval(0.95)
        truth = np.exp(-rate * np.array([1, 2]))
        hits += bool(np.all((low <= truth) & (truth <= high)))
        assert np.all(np.subtract(high, low) < 0.1)
    assert hits >= stats.binom.ppf(1e-5, runs, 0.95)


def test_a_record_is_in_one_cell_and_an_entry_that_is_no_number_takes_no_part():
    kinds = [0.0, 0.25, 0.26, 2.0, 2.1, math.inf, math.nan, -1.0]
    rows = list(product(kinds, (0.0, 1.0, 2.0, math.nan)))
    base = cells(*np.array(rows[1:], float).T)
    for row in rows:
        more = cells(*np.array([*rows[1:], row], float).T)
        assert np.abs(more - base).sum() == 1
    at = np.array([0.25, 0.26, 2.0, 2.1, -1])
    assert cells(at, np.ones(5)).tolist() == [1, 0, 1, 0, 0, 0, 1, 0, 1, 1]
    assert cells(at, np.zeros(5)).tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 2, 1]
    odd = np.array([1.0, "x", None, {}, math.nan, -3, 10**400], object)
    estimate = ny.estimate.survival(odd, odd, times=TIMES, budget=ny.gdp(1))
    assert np.isfinite(estimate.value).all()


def test_curves_fall_and_bands_hold_them_however_large_the_noise():
    for seed in range(20):
        durations, events = people(30, seed)
        estimate = ny.estimate.survival(durations, events, times=TIMES, budget=ny.gdp(0.05))
        assert (np.diff([1, *estimate.value]) <= 0).all()
        for about in ("population", "data"):
            low, high = estimate.interval(about=about)
            assert (low >= 0).all()
            assert (low <= high).all()
            assert (high <= 1).all()


def test_bad_arguments_are_refused():
    rows = [0.5, 1.0], [1, 0]
    for times in ([], [0, 1], [1, 1], [2, 1], [1, math.inf]):
        with pytest.raises(ValueError, match="times"):
            ny.estimate.survival(*rows, times=times, budget=ny.gdp(1))
    with pytest.raises(ValueError, match="give one per record"):
        ny.estimate.survival([1.0], [1, 0], times=[1], budget=ny.gdp(1))
    for wrong, message in (
        ({"censored": [1]}, "one number each"),
        ({"sigma": -1}, "sigma"),
        ({"events": [1, math.nan]}, "finite"),
        ({"later": math.inf}, "later"),
        ({"events": [], "censored": []}, "one number each"),
        ({"confidence": 1}, "confidence"),
        ({"about": "all"}, "about"),
    ):
        given = {"events": [1, 1], "censored": [1, 1], "later": 3, "sigma": 1} | wrong
        with pytest.raises(ValueError, match=message):
            ny.estimate.survival_curve(**given)
