"""One draw from a normal posterior: its distribution, its curve, and what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import neyman as ny

RECORDS = [0.5, -0.25, 1.75, 9.0, math.nan]  # clipped to 1.5, and 0
POSTERIOR = {"radius": Fraction(3, 2), "variance": 2, "prior_variance": "1/2"}


def test_draws_have_the_law_of_the_posterior_of_the_clipped_records():
    """Kolmogorov's test of 2,000 draws has a chance of 1e-5 to fail."""
    precision = 5 / 2 + 2
    mean = (0.5 - 0.25 + 1.5 + 1.5) / 2 / precision
    draws = [float(ny.estimate.posterior_draw(RECORDS, **POSTERIOR).value) for _ in range(2000)]
    assert stats.kstest(draws, stats.norm(mean, precision**-0.5).cdf).pvalue > 1e-5


def test_the_curve_is_that_of_the_library_for_a_posterior_of_this_convexity():
    """The difference of two potentials is linear, of slope 2 radius / v; the convexity is p."""
    draw = ny.estimate.posterior_draw(RECORDS, **POSTERIOR)
    same = ny.PosteriorSample(lipschitz=2 * 1.5 / 2, convexity=4.5).tradeoff()
    assert draw.tradeoff().gdp().upper == pytest.approx(float(same.gdp()), rel=1e-6)


def test_intervals_cover_the_posterior_mean_and_the_mean_of_the_model():
    """Fewer hits than this have a chance of 1e-5 if they cover in 90% of the runs."""
    runs, hits, draw = 400, np.zeros(2), np.random.default_rng(1)
    for _ in range(runs):
        mean = draw.normal(0, 0.3)
        records = draw.normal(mean, 1, 50)
        estimate = ny.estimate.posterior_draw(
            records, radius=9, variance=1, prior_variance=Fraction(9, 100)
        )
        truths = mean, records.sum() / (50 + 100 / 9)
        for k, about in enumerate(("population", "data")):
            low, high = estimate.interval(0.9, about=about)
            hits[k] += low <= truths[k] <= high
    assert np.all(hits >= stats.binom.ppf(1e-5, runs, 0.9))


def test_bad_arguments_are_refused_before_a_charge():
    ledger = ny.throwaway("1")
    paid = {"ledger": ledger, "dataset": "a@1"}
    for wrong in (
        {"radius": 0},
        {"variance": 0},
        {"prior_variance": -1},
        {"neighboring": "add-remove"},
        {"variance": 1e90},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ny.estimate.posterior_draw(RECORDS, **POSTERIOR | wrong, **paid)
    assert (
        ny.estimate.posterior_draw(RECORDS, **POSTERIOR).receipt["ledger"]["charged"] == "nothing"
    )
