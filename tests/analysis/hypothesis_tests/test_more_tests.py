"""Private tests of two proportions, of shares, and of a center: their sizes and p-values."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

import neyman as ny
from neyman.analysis import GoodnessOfFitTest, MeanTest, ProportionsTest
from neyman.analysis.hypothesis_tests import binomial_test, proportions_test
from neyman.analysis.hypothesis_tests.mean_test import CLIP_UNITS, RECORD_SQUARED_NORM
from neyman.analysis.hypothesis_tests.proportions_test import LIMITS as PROPORTIONS_LIMITS
from neyman.noise import SecureBits, rounded_gaussian
from random_laws import examples

MARGIN = math.log(1 / 1e-6)  # of Hoeffding's bound at a false-alarm rate of 1e-6


def greater_tail(noise, n, p, place):
    """P(X + N >= place), from SciPy and the distribution of the noise."""
    x = np.arange(n + 1)
    return float(binom.pmf(x, n, p) @ (1 - noise.cdf(float(place) - x)))


@settings(max_examples=examples(24))
@given(
    n=st.sampled_from([(40, 60), (4, 300), (300, 4)]),
    cells=st.sampled_from([1, 5, 400]),
    shift=st.tuples(st.integers(-12, 12), st.integers(-12, 12)),
    share=st.floats(0.02, 0.98),
)
def test_the_p_value_of_two_groups_is_no_less_than_at_any_common_proportion(n, cells, shift, share):
    """Where both confidence sets have the proportion: against another computation of each part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proportions_test, "LIMITS", replace(PROPORTIONS_LIMITS, cells=cells))
        test = ProportionsTest(n=n, alternative="greater", budget=ny.pure(1))
        places = [Fraction(round(m * share) + s) for m, s in zip(n, shift, strict=True)]
        p = test.p_value(tuple(places))
    ends = [
        g.ends(z, 1 - PROPORTIONS_LIMITS.miss_chance / 2)
        for g, z in zip(test._groups, places, strict=True)
    ]
    assert 0 <= p.lower <= p.upper <= 1
    if not all(low <= share <= high for low, high in ends):
        return
    one, other = (greater_tail(test.mechanism, m, share, z) for m, z in zip(n, places, strict=True))
    weights = [math.sqrt(share * (1 - share) / m + test._noise_variance / m**2) for m in n]
    scores = norm.isf(one), norm.isf(1 - other)
    score = sum(w * z for w, z in zip(weights, scores, strict=True)) / math.hypot(*weights)
    assert norm.sf(score) <= p.upper * (1 + 1e-9) + 1e-9


@settings(max_examples=examples(60))
@given(
    tails=st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    n=st.sampled_from([(4, 300), (300, 4), (40, 60)]),
)
def test_the_worst_weights_of_a_run_are_no_better_than_those_of_a_proportion_in_it(tails, ends, n):
    """Two scores of unlike signs are weighted by the proportion: 99 of the run are tried."""
    side = ProportionsTest(n=n, alternative="greater", budget=ny.pure(1))._sides((1, 1))[0]
    large, small, low, high = (np.array([v]) for v in (*tails, *ends))
    worst = side._worst(large, small, low, high)
    for share in np.linspace(*ends, 99):
        one, other = (math.sqrt(share * (1 - share) / m + side.noise_variance / m**2) for m in n)
        scores = norm.isf(tails[0]), norm.isf(tails[1])
        score = (one * scores[0] + other * scores[1]) / math.hypot(one, other)
        assert norm.sf(score) <= worst * (1 + 1e-9)


def test_the_size_of_the_test_of_two_proportions_is_within_the_level(monkeypatch):
    """100 releases under one proportion, with few cells; false-alarm rate below 1e-6."""
    monkeypatch.setattr(proportions_test, "LIMITS", replace(proportions_test.LIMITS, cells=12))
    monkeypatch.setattr(binomial_test, "BISECTION_STEPS", 12)
    test = ProportionsTest(n=(30, 50), alternative="greater", budget=ny.pure(2))
    rng, rejected, size = np.random.default_rng(), 0, 100
    for _ in range(size):
        counts = rng.binomial(30, 0.3), rng.binomial(50, 0.3)
        places = [g.draw(c, SecureBits()) for g, c in zip(test._groups, counts, strict=True)]
        rejected += test.p_value(places).upper <= 0.05
    assert rejected <= binom.isf(1e-6, size, 0.05)


def test_two_proportions_far_apart_are_told_apart_in_the_right_direction():
    """And the interval holds the difference (chance of a miss below 1e-6)."""
    n, counts = (2000, 1500), (1200, 300)
    for alternative, rejects in (("greater", True), ("less", False), ("two-sided", True)):
        test = ProportionsTest(n=n, alternative=alternative, budget=ny.gdp(1))
        result = test.release(counts, confidence=1 - 1e-6)
        assert result.rejects(0.01) is rejects
        assert result.interval[0] < 0.4 < result.interval[1]
        assert test.p_value(map(Fraction, result.receipt["result"]["noisy_counts"])) == (
            result.p_value
        )


def test_each_alternative_is_another_one_with_the_groups_exchanged(monkeypatch):
    monkeypatch.setattr(proportions_test, "LIMITS", replace(proportions_test.LIMITS, cells=4))
    monkeypatch.setattr(binomial_test, "BISECTION_STEPS", 12)

    def p(alternative, *groups):
        counts, sizes = zip(*groups, strict=True)
        test = ProportionsTest(n=sizes, alternative=alternative, budget=ny.pure(2))
        return test.p_value(map(Fraction, counts))

    one, other = (12, 30), (9, 50)
    assert p("less", one, other) == p("greater", other, one)
    sides = p("greater", one, other), p("greater", other, one)
    assert p("two-sided", one, other).upper == min(2 * min(side.upper for side in sides), 1)


def test_a_p_value_of_one_is_no_evidence_and_of_zero_is_all_of_it():
    """The sum of two normal scores where one of them is infinite, or both are."""
    first, second = np.array([1.0, 1.0, 0.0, 0.5]), np.array([0.0, 0.5, 0.5, 0.5])
    both = proportions_test._combined_p_value(first, second, np.full(4, 0.6), np.full(4, 0.8))
    assert both.tolist() == [1, 1, 0, 0.5]


def test_an_interval_of_a_difference_ends_at_one(monkeypatch):
    """Noise of 1,000 hides one record: nothing is excluded (but for a chance below 1e-6)."""
    monkeypatch.setattr(proportions_test, "LIMITS", replace(proportions_test.LIMITS, cells=4))
    test = ProportionsTest(n=(1, 1), alternative="less", budget=ny.pure("0.001"))
    assert test.release((1, 0), confidence=1 - 1e-6).interval == (-1.0, 1.0)


def exact_fit_p_value(test, noisy):
    """The null distribution of the statistic for two categories, by enumeration."""
    n, variance = test.n, float(test.mechanism.sigma_squared)
    share, sigma = float(test.shares[0]), math.sqrt(variance)
    reach = math.ceil(9 * sigma)
    r = np.arange(-reach, reach + 1)
    law = norm.cdf((r + 0.5) / sigma) - norm.cdf((r - 0.5) / sigma)
    difference = np.convolve(law, law)  # of the two noises; the sum does not count
    d = np.arange(-2 * reach, 2 * reach + 1)
    moved = (noisy[0] - noisy[1]) - n * (2 * share - 1)
    x = np.arange(n + 1)
    apart = (2 * x[:, None] - n + d[None, :]) - n * (2 * share - 1)
    far = np.abs(apart) >= abs(moved) * (1 - 1e-12)
    return float(binom.pmf(x, n, share) @ (far @ difference))


@pytest.mark.parametrize("noisy", [[12, 28], [21, 19], [9, 30]])
def test_the_simulated_null_law_is_the_enumerated_one(noisy):
    """Two categories, 20000 simulations; false-alarm rate below 1e-6 per case."""
    test = GoodnessOfFitTest(["1/3", "2/3"], n=40, budget=ny.gdp(0.5), simulations=20_000)
    p = float(test.p_value(noisy))
    assert abs(p - exact_fit_p_value(test, noisy)) <= math.sqrt(math.log(2e6) / 4e4) + 1e-4


def test_the_size_of_the_test_of_shares_is_within_the_level():
    """600 releases with 99 simulations each; false-alarm rate below 1e-6."""
    shares = ["1/2", "3/10", "1/5"]
    test = GoodnessOfFitTest(shares, n=30, budget=ny.gdp(1), simulations=99)
    rng, bits, size = np.random.default_rng(), SecureBits(), 600
    rejected = 0
    for _ in range(size):
        noise = rounded_gaussian(test.mechanism.sigma_squared, 3, bits)
        rejected += test.p_value(rng.multinomial(30, [0.5, 0.3, 0.2]) + noise).upper <= 0.1
    assert rejected / size <= 0.1 + math.sqrt(MARGIN / (2 * size))


def test_wrong_shares_are_rejected_and_the_receipt_has_the_noisy_counts():
    """A record moves two counts, so the noise has the squared norm 2."""
    test = GoodnessOfFitTest(["1/2", "1/2"], n=500, budget=ny.gdp(1), simulations=999)
    result = test.release([150, 350])
    assert float(result.p_value) == 1 / 1000
    assert len(result.receipt["result"]["noisy_counts"]) == 2
    assert result.interval is None
    assert test.mechanism.tradeoff() >= ny.gdp(1)
    assert test.mechanism.squared_norm == 2
    test.release([math.nan, "x"])


def mean_test(n, budget=None, alternative="greater", clip=1, null=0):
    return MeanTest(null=null, n=n, clip=clip, alternative=alternative, budget=budget or ny.gdp(1))


@pytest.mark.parametrize("sizes", [[1.0] * 8, [0.9, 0.1, 0.5, 0.5, 0.2, 1.0, 0.3, 0.7], [0.01] * 8])
@pytest.mark.parametrize("mu", [1, 50])
def test_the_tail_of_random_signs_is_within_the_p_value(sizes, mu):
    """All signs enumerated, with the noise added exactly, at several sums."""
    test = mean_test(len(sizes), ny.gdp(mu))
    sigma = math.sqrt(float(test.mechanism.sigma_squared))
    units = [round(size * CLIP_UNITS) for size in sizes]
    squares = sum(-(-(u * u) // CLIP_UNITS) for u in units)
    sums = np.array([np.dot(s, units) for s in itertools.product((1, -1), repeat=len(sizes))])
    for total in (1, CLIP_UNITS // 4, CLIP_UNITS, 3 * CLIP_UNITS, 8 * CLIP_UNITS):
        exact = float(np.mean(norm.sf((total - 0.5 - sums) / sigma)))
        assert exact <= float(test.p_value((total, squares))) + 1e-12


def test_one_record_moves_both_sums_by_the_stated_norm_at_most():
    """Over pairs of records on the grid, the extreme ones among them; it is reached."""
    test = mean_test(1)
    places = [*np.linspace(-1, 1, 41), 1 / 3, 1e-7, -1e-7, 2.0, -3.0]
    sums = [test._sums(np.array([x])) for x in places]
    moved = [(a - c) ** 2 + (b - d) ** 2 for a, b in sums for c, d in sums]
    assert 4 * CLIP_UNITS**2 <= max(moved) <= RECORD_SQUARED_NORM


@pytest.mark.parametrize("law", ["normal", "laplace", "uniform"])
def test_the_size_of_the_test_of_a_center_is_within_the_level(law):
    """1000 releases of 40 clipped records; false-alarm rate below 1e-6."""
    test = mean_test(40, ny.gdp(2), clip=1.5)
    rng, bits, size = np.random.default_rng(), SecureBits(), 1000
    draws = {
        "normal": rng.normal,
        "laplace": rng.laplace,
        "uniform": lambda *a: rng.uniform(-1, 1, a[2]),
    }
    records = draws[law](0, 1, (size, 40))
    noise = rounded_gaussian(test.mechanism.sigma_squared, 2 * size, bits).reshape(size, 2)
    rejected = 0
    for row, (a, b) in zip(records, noise, strict=True):
        first, second = test._sums(row)
        rejected += test.p_value((first + int(a), second + int(b))).upper <= 0.1
    assert rejected / size <= 0.1 + math.sqrt(MARGIN / (2 * size))


def test_a_shifted_center_is_found_and_no_value_raises_an_error():
    """What is not a number counts as the null value."""
    rng = np.random.default_rng()
    values = rng.normal(0.3, 1, 4000)
    assert mean_test(4000, clip=3).release(values).rejects(0.01)
    assert not mean_test(4000, clip=3, alternative="less").release(values).rejects(0.01)
    assert mean_test(4000, clip=3, alternative="two-sided").release(values).rejects(0.01)
    odd = [math.nan, math.inf, -math.inf, None, "x", 10**400, 1.0]
    result = mean_test(7).release(odd)
    assert 0 < float(result.p_value) <= 1
    assert mean_test(7)._sums(np.array(odd, dtype=object)) == (2 * CLIP_UNITS, 4 * CLIP_UNITS)


def test_each_test_charges_a_ledger():
    """The charge of the receipt is that of the ledger."""
    ledger = ny.throwaway(2)
    tests = [
        (ProportionsTest(n=(20, 20), alternative="less", budget=ny.gdp(1)), (3, 4)),
        (GoodnessOfFitTest(["1/2", "1/2"], n=20, budget=ny.gdp(1), simulations=99), (3, 17)),
        (mean_test(3), [1, 2, 3]),
    ]
    for i, (test, data) in enumerate(tests, 1):
        result = test.release(data, ledger=ledger, dataset="d@1")
        assert Fraction(result.receipt["ledger"]["charged"]) <= Fraction(1, 2)
        assert ledger.account("d@1").spent >= Fraction(i, 2) * Fraction(999, 1000)


REFUSED = [
    (lambda: ProportionsTest(n=(3,), alternative="less", budget=ny.gdp(1)), "n ="),
    (lambda: ProportionsTest(n=(3, 0), alternative="less", budget=ny.gdp(1)), "n ="),
    (lambda: GoodnessOfFitTest([0.5, 0.4], n=9, budget=ny.gdp(1)), "shares"),
    (lambda: GoodnessOfFitTest(["1"], n=9, budget=ny.gdp(1)), "shares"),
    (lambda: GoodnessOfFitTest(["1/2"] * 2, n=9, budget=ny.pure(1)), "budget"),
    (lambda: GoodnessOfFitTest(["1/2"] * 2, n=9, budget=ny.gdp(1), simulations=9), "simulations"),
    (lambda: mean_test(9, clip=0), "clip"),
    (lambda: mean_test(9, null=math.nan), "null"),
    (lambda: mean_test(9).release([1, 2]), "values"),
    (lambda: mean_test(9, alternative="up"), "alternative"),
]


@pytest.mark.parametrize(("make", "name"), REFUSED)
def test_bad_arguments_are_refused_by_name(make, name):
    """Before anything is spent."""
    with pytest.raises((TypeError, ValueError), match=name):
        make()
