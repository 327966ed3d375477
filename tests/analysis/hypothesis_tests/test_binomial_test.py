"""The private binomial test: its noise, its size, its power, and what it refuses."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog
from scipy.stats import binom

import neyman as ny
from neyman.analysis import BinomialTest
from neyman.ledger import BudgetRefused, ChargedError
from neyman.mechanisms import PolygonNoise, polygons
from neyman.noise import SecureBits
from random_laws import examples

CURVES = [ny.gdp(1), ny.gdp(0.3), ny.pure(1), ny.approximate(1, "0.01"), ny.total_variation("0.2")]
N = 50


def binomial_test(budget, n=N, null="1/2", alternative="greater"):
    return BinomialTest(n=n, null=null, alternative=alternative, budget=budget)


def largest_power(n, null, truth, level, epsilon, delta):
    """The most powerful test as a linear program over all tests phi(0), ..., phi(n)."""
    x = np.arange(n + 1)
    rows, bounds = [], []
    for a, b in [(i, i + 1) for i in range(n)] + [(i + 1, i) for i in range(n)]:
        for slope, start in ((math.exp(epsilon), delta), (math.exp(-epsilon), None)):
            row = np.zeros(n + 1)
            # phi(b) <= e^eps phi(a) + delta, and 1 - phi(a) <= e^eps (1 - phi(b)) + delta
            row[b], row[a] = 1, -slope
            rows.append(row)
            bounds.append(delta if start is not None else 1 - slope * (1 - delta))
    rows.append(binom.pmf(x, n, null))
    bounds.append(level)
    done = linprog(
        -binom.pmf(x, n, truth), A_ub=np.array(rows), b_ub=bounds, bounds=(0, 1), method="highs"
    )
    return -done.fun


def test_no_test_of_a_linear_program_has_more_power_and_this_one_has_as_much():
    best = largest_power(N, 0.5, 0.65, 0.05, 1.0, 0.01)
    power = binomial_test(ny.approximate(1, "0.01")).power(truth="0.65", level="0.05")
    assert best == pytest.approx(0.64559842, abs=1e-8)
    assert power.lower - 1e-8 <= best <= power.upper + 1e-8  # the program is solved to 1e-8
    assert power.width < 1e-8


@pytest.mark.parametrize("curve", CURVES)
def test_the_noise_is_as_private_as_the_curve_at_every_threshold(curve):
    inner, outer = polygons(curve)
    for polygon, side in ((inner, 1), (outer, -1)):
        noise = PolygonNoise(polygon)
        for start in (Fraction(-1, 2), Fraction(-1, 3), Fraction(1, 5), Fraction(1, 2)):
            low, high = noise.tails(start)
            ends = list(zip(low, high, strict=True))[:30]
            for power, level in pairwise(ends):
                if side > 0:
                    assert power[0] <= curve.power(level=level[1]).upper
                elif level[0] > 0:
                    assert power[1] >= curve.power(level=level[0]).lower
                if level[0] > 0:
                    near = float(curve.power(level=0.5 * (level[0] + level[1])))
                    assert near == pytest.approx(power[0], abs=1e-5)


@pytest.mark.parametrize("curve", [ny.pure(1), ny.approximate(1, "0.01"), ny.gdp(0.5)])
def test_a_draw_is_the_quantile_of_its_bits(curve):
    noise, other = PolygonNoise(polygons(curve)[0]), ny.CanonicalNoise(curve)
    rng = np.random.default_rng(5)
    for tail in [*rng.uniform(0, 0.5, 40), 1e-6, 1e-9]:
        value = int(tail * 2**300)
        size = noise._magnitude(value, value + 1, 300, 1 << 32)
        assert size / (1 << 32) == pytest.approx(float(other.isf(tail)), rel=2e-4, abs=1e-4)
        assert noise._magnitude(value >> 200, (value >> 200) + 1, 100, 1 << 20) == size >> 12


def test_a_draw_asks_for_more_bits_where_the_first_leave_two_answers():
    noise = PolygonNoise(polygons(ny.pure(1))[0])
    at = int(noise.c * 2**60)
    assert noise._magnitude(at, at + 1, 60, 16) is None
    half = 2**59
    assert noise._magnitude(half - 2**30, half, 60, 1 << 40) is None


@pytest.mark.parametrize("curve", [ny.gdp(0.5), ny.approximate(1, "0.01")])
def test_draws_have_the_tail_of_the_noise(curve):
    """Shares of 4000 draws beyond six places; false-alarm rate below 1e-6 (Hoeffding)."""
    noise, bits, size = PolygonNoise(polygons(curve)[0]), SecureBits(), 4000
    draws = np.array([noise.draw(bits, 1 << 10) for _ in range(size)]) / 2**10
    margin = math.sqrt(math.log(2 * 12 / 1e-6) / (2 * size))
    for place in (-3.25, -1.5, -0.25, 0.25, 1.5, 3.25):
        low, high = noise.tail_between(Fraction(place), 0, 0)
        assert low[0] - margin <= np.mean(draws >= place) <= high[0] + margin


@pytest.mark.parametrize("curve", [ny.pure(1), ny.approximate(1, "0.01")])
@pytest.mark.parametrize("null", ["1/2", "0.03", "0.9"])
def test_p_values_are_sums_over_counts_and_noise(curve, null):
    x, noise = np.arange(N + 1), ny.CanonicalNoise(curve)
    weights = binom.pmf(x, N, float(Fraction(null)))
    for place in (Fraction(-3), Fraction(57, 4), Fraction(101, 4), Fraction(60)):
        greater = float(weights @ (1 - noise.cdf(float(place) - x)))
        for alternative, expected in (("greater", greater), ("less", 1 - greater)):
            p = binomial_test(curve, null=null, alternative=alternative).p_value(place)
            assert p.lower - 1e-8 <= expected <= p.upper + 1e-8
            assert p.width < 1e-11
        both = binomial_test(curve, null=null, alternative="two-sided").p_value(place)
        assert float(both) == pytest.approx(2 * min(greater, 1 - greater), abs=1e-8)


@settings(max_examples=examples(30))
@given(
    curve=st.sampled_from(CURVES),
    n=st.integers(1, 300),
    null=st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=50),
    level=st.sampled_from(["0.001", "0.05", "0.3"]),
    alternative=st.sampled_from(["greater", "less", "two-sided"]),
)
def test_the_size_is_at_most_the_level_and_near_it(curve, n, null, level, alternative):
    size = binomial_test(curve, n, null, alternative).power(truth=null, level=level)
    assert size.lower <= float(Fraction(level))
    assert size.lower >= float(Fraction(level)) * (1 - 1e-3) - 1e-7


@pytest.mark.parametrize("alternative", ["greater", "less"])
@pytest.mark.parametrize("truth", [0.3, 0.7])
def test_power_on_either_side_of_the_null_is_that_of_one_threshold(alternative, truth):
    noise, counts = ny.CanonicalNoise(ny.gdp(1)), np.arange(10)

    def rejected(place, share):
        below = noise.cdf(place - counts)
        return binom.pmf(counts, 9, share) @ (below if alternative == "less" else 1 - below)

    place = brentq(lambda place: rejected(place, 0.5) - 0.1, -20, 30, xtol=1e-12)
    power = binomial_test(ny.gdp(1), 9, alternative=alternative).power(truth=truth, level=0.1)
    assert power.lower - 1e-6 <= rejected(place, truth) <= power.upper + 1e-6
    assert power.width < 1e-5


def test_power_rises_with_the_truth_the_level_and_the_budget():
    test = binomial_test(ny.gdp(1))
    by_truth = [test.power(truth=t, level=0.05).lower for t in (0.5, 0.55, 0.6, 0.7)]
    by_level = [test.power(truth=0.6, level=a).lower for a in (0.001, 0.01, 0.05, 0.5)]
    budgets = [binomial_test(ny.gdp(mu)).power(truth=0.65, level=0.05) for mu in (0.1, 1, 10)]
    for values in (by_truth, by_level, [b.lower for b in budgets]):
        assert values == sorted(values)
    # Without privacy: reject at 32 and above, and sometimes at 31.
    over = binom.sf(31, N, 0.5)
    share = (0.05 - over) / binom.pmf(31, N, 0.5)
    free = binom.sf(31, N, 0.65) + share * binom.pmf(31, N, 0.65)
    assert free == pytest.approx(0.6897074, abs=1e-7)
    assert budgets[-1].upper <= free + 1e-6
    assert budgets[-1].lower == pytest.approx(free, abs=1e-3)


def test_an_interval_is_the_set_of_nulls_that_are_not_rejected():
    noisy = binomial_test(ny.gdp(1))._count
    place = Fraction(31)
    lower, upper = noisy.ends(place, 0.9)
    assert 0 < lower < 31 / N < upper < 1
    assert noisy.greater(place, lower)[1] <= 0.05 < noisy.greater(place, lower + 1e-6)[0]
    assert noisy.less(place, upper)[1] <= 0.05 < noisy.less(place, upper - 1e-6)[0]
    assert noisy.ends(Fraction(-100), 0.9)[0] == 0
    assert noisy.ends(Fraction(200), 0.9)[1] == 1


def test_an_interval_next_to_zero_begins_where_the_null_is_rejected():
    noisy = binomial_test(ny.gdp(1), 5000)._count
    lower = noisy.ends(Fraction(5), 0.9)[0]
    assert 0 < lower < 0.001
    assert noisy.greater(Fraction(5), lower)[1] <= 0.05
    assert noisy.greater(Fraction(5), lower * 1.01)[0] > 0.05


@pytest.mark.parametrize("n", [1, 10**6])
def test_few_and_many_records_are_tested(n):
    assert binomial_test(ny.gdp(1), n).power(truth=0.6, level=0.05).lower > 0.0499


@pytest.mark.parametrize("value", [-7, 1e9, math.nan, math.inf, -math.inf, None, "x", [1], 3.7, 1j])
def test_no_count_raises_an_error(value):
    result = binomial_test(ny.pure(1)).release(value)
    assert 0 <= result.p_value.lower <= result.p_value.upper <= 1


def test_a_receipt_has_the_noisy_count_and_the_p_value_follows_from_it():
    """Nothing was charged without a ledger, and the receipt says so."""
    test = binomial_test(ny.approximate(1, "0.01"))
    result = test.release(30)
    receipt = json.loads(result.to_json(), parse_constant=pytest.fail)
    place = Fraction(receipt["result"]["noisy_count"])
    assert (place * receipt["arguments"]["grid"]).denominator == 1
    assert test.p_value(place) == result.p_value
    assert receipt["ledger"]["charged"] == "nothing"
    assert receipt["seeds"] is None
    assert receipt["test"] == "binomial-test"
    assert ny.Mechanism.from_dict(receipt["mechanism"]) == test.mechanism
    assert result.tradeoff() >= ny.approximate(1, "0.01")
    assert result.rejects("0.999") or result.p_value.upper > 0.999


def test_a_ledger_is_charged_before_the_noise_is_drawn(monkeypatch):
    ledger = ny.throwaway("3/4")
    test = binomial_test(ny.gdp(1))
    receipt = test.release(30, ledger=ledger, dataset="coins@1").receipt
    assert receipt["ledger"]["charged"] == "1/2"
    assert ledger.account("coins@1").left == Fraction(1, 4)
    with pytest.raises(BudgetRefused):
        test.release(30, ledger=ledger, dataset="coins@1")
    assert ledger.account("coins@1").left == Fraction(1, 4)
    small = binomial_test(ny.zcdp("1/8"))
    assert small.mechanism.rho() <= Fraction(1, 8)
    monkeypatch.setattr(PolygonNoise, "draw", lambda self, bits, parts: 1 / 0)
    with pytest.raises(ChargedError, match="charge, which stands"):
        small.release(30, ledger=ledger, dataset="coins@1")
    assert ledger.account("coins@1").left < Fraction(1, 4)


@pytest.mark.parametrize("question", [{"truth": 1, "level": 0.05}, {"truth": 0.6, "level": 0}])
def test_power_refuses_what_is_not_between_0_and_1(question):
    with pytest.raises(ValueError, match="between 0 and 1"):
        binomial_test(ny.pure(1)).power(**question)
