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
from scipy.stats import binom, binomtest, norm

import neyman as ny
from neyman.analysis import (
    BinomialTest,
    GoodnessOfFitTest,
    MeanTest,
    ProportionsTest,
    SimulatedPower,
    least_records,
)
from neyman.analysis.hypothesis_tests import binomial_test, proportions_test
from neyman.analysis.hypothesis_tests.mean_test import CLIP_UNITS, RECORD_SQUARED_NORM
from neyman.analysis.hypothesis_tests.proportions_test import LIMITS as PROPORTIONS_LIMITS
from neyman.noise import SecureBits, rounded_gaussian
from random_laws import examples

MARGIN = math.log(1 / 1e-6)  # of Hoeffding's bound at a false-alarm rate of 1e-6


@pytest.fixture
def coarse(monkeypatch):
    """A search over few common proportions: the distribution of each p-value stays valid."""
    monkeypatch.setattr(proportions_test, "LIMITS", replace(PROPORTIONS_LIMITS, cells=12))
    monkeypatch.setattr(binomial_test, "BISECTION_STEPS", 12)


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
    side = ProportionsTest(n=n, alternative="greater", budget=ny.pure(1))._sides((1, 1))[0]
    large, small, low, high = (np.array([v]) for v in (*tails, *ends))
    worst = side._worst(large, small, low, high)
    for share in np.linspace(*ends, 99):
        one, other = (math.sqrt(share * (1 - share) / m + side.noise_variance / m**2) for m in n)
        scores = norm.isf(tails[0]), norm.isf(tails[1])
        score = (one * scores[0] + other * scores[1]) / math.hypot(one, other)
        assert norm.sf(score) <= worst * (1 + 1e-9)


def test_the_size_of_the_test_of_two_proportions_is_within_the_level(coarse):
    """100 releases under one proportion, with few cells; false-alarm rate below 1e-6."""
    test = ProportionsTest(n=(30, 50), alternative="greater", budget=ny.pure(2))
    rng, rejected, size = np.random.default_rng(), 0, 100
    for _ in range(size):
        counts = rng.binomial(30, 0.3), rng.binomial(50, 0.3)
        places = [g.draw(c, SecureBits()) for g, c in zip(test._groups, counts, strict=True)]
        rejected += test.p_value(places).upper <= 0.05
    assert rejected <= binom.isf(1e-6, size, 0.05)


def test_two_proportions_far_apart_are_told_apart_in_the_right_direction():
    n, counts = (2000, 1500), (1200, 300)
    for alternative, rejects in (("greater", True), ("less", False), ("two-sided", True)):
        test = ProportionsTest(n=n, alternative=alternative, budget=ny.gdp(1))
        result = test.release(counts, confidence=1 - 1e-6)
        assert result.rejects(0.01) is rejects
        assert result.interval[0] < 0.4 < result.interval[1]
        assert result.interval[1] - result.interval[0] < 0.25
        usual = test.release(counts).interval
        assert 0.05 < usual[1] - usual[0] < 0.11
        assert test.p_value(map(Fraction, result.receipt["result"]["noisy_counts"])) == (
            result.p_value
        )


def test_each_alternative_is_another_one_with_the_groups_exchanged(coarse):

    def p(alternative, *groups):
        counts, sizes = zip(*groups, strict=True)
        test = ProportionsTest(n=sizes, alternative=alternative, budget=ny.pure(2))
        return test.p_value(map(Fraction, counts))

    one, other = (12, 30), (9, 50)
    assert p("less", one, other) == p("greater", other, one)
    sides = p("greater", one, other), p("greater", other, one)
    assert p("two-sided", one, other).upper == min(2 * min(side.upper for side in sides), 1)


def test_a_p_value_of_one_is_no_evidence_and_of_zero_is_all_of_it():
    first, second = np.array([1.0, 1.0, 0.0, 0.5]), np.array([0.0, 0.5, 0.5, 0.5])
    both = proportions_test._combined_p_value(first, second, np.full(4, 0.6), np.full(4, 0.8))
    assert both.tolist() == [1, 1, 0, 0.5]


def test_an_interval_of_a_difference_ends_at_one(coarse):
    """Noise of 1,000 hides one record: nothing is excluded (but for a chance below 1e-6)."""
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
    test = mean_test(len(sizes), ny.gdp(mu))
    sigma = math.sqrt(float(test.mechanism.sigma_squared))
    units = [round(size * CLIP_UNITS) for size in sizes]
    squares = sum(-(-(u * u) // CLIP_UNITS) for u in units)
    sums = np.array([np.dot(s, units) for s in itertools.product((1, -1), repeat=len(sizes))])
    for total in (1, CLIP_UNITS // 4, CLIP_UNITS, 3 * CLIP_UNITS, 8 * CLIP_UNITS):
        exact = float(np.mean(norm.sf((total - 0.5 - sums) / sigma)))
        assert exact <= float(test.p_value((total, squares))) + 1e-12


def test_one_record_moves_both_sums_by_the_stated_norm_at_most():
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
    rng = np.random.default_rng()
    values = rng.normal(0.3, 1, 4000)
    assert mean_test(4000, clip=3).release(values).rejects(0.01)
    exact = mean_test(4000, ny.gdp(1000), clip=3, null=0.25).release(values).receipt["result"]
    assert exact["estimate"] == pytest.approx(np.clip(values, -2.75, 3.25).mean(), abs=1e-3)
    assert not mean_test(4000, clip=3, alternative="less").release(values).rejects(0.01)
    assert mean_test(4000, clip=3, alternative="two-sided").release(values).rejects(0.01)
    odd = [math.nan, math.inf, -math.inf, None, "x", 10**400, 1.0]
    result = mean_test(7).release(odd)
    assert 0 < float(result.p_value) <= 1
    assert mean_test(7)._sums(np.array(odd, dtype=object)) == (2 * CLIP_UNITS, 4 * CLIP_UNITS)


def test_each_test_charges_a_ledger():
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


# ---- power from simulated releases


SURE = 1 - 1e-6  # false-alarm rate of each comparison with a simulation


@settings(max_examples=examples(40))
@given(
    first=st.fractions(-5, 45, max_denominator=7),
    second=st.fractions(-5, 65, max_denominator=7),
    alternative=st.sampled_from(["greater", "less", "two-sided"]),
)
def test_a_decision_is_that_of_the_p_value(first, second, alternative):
    test = ProportionsTest(n=(40, 60), alternative=alternative, budget=ny.pure(1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proportions_test, "LIMITS", replace(proportions_test.LIMITS, cells=16))
        patched.setattr(binomial_test, "BISECTION_STEPS", 20)
        p = test.p_value((first, second)).upper
        sides = test._sides((first, second))
        for level in (0.001, 0.05, 0.3, 0.7, p, p * (1 - 1e-9), p * (1 + 1e-9)):
            if level < 1:
                within = [side.within(level / len(sides)) for side in sides]
                assert any(within) == (p <= level)


def test_the_power_of_two_proportions_is_the_enumerated_one(coarse):
    n, truth, level = (3, 2), (0.9, 0.2), 0.25
    test = ProportionsTest(n=n, alternative="greater", budget=ny.pure(3))
    noise = ny.CanonicalNoise(ny.pure(3))
    steps = [Fraction(float(noise.isf((i + 0.5) / 10))) for i in range(10)]
    exact = 0.0
    for x in range(n[0] + 1):
        for y in range(n[1] + 1):
            chance = binom.pmf(x, n[0], truth[0]) * binom.pmf(y, n[1], truth[1])
            share = np.mean(
                [test.p_value((x + a, y + b)).upper <= level for a in steps for b in steps]
            )
            exact += chance * share
    power = test.power(truth=truth, level=level, simulations=300, confidence=SURE)
    assert 0.1 < exact < 0.9
    assert power.lower - 0.05 <= exact <= power.upper + 0.05


def test_the_power_at_a_common_proportion_is_the_size(coarse):
    test = ProportionsTest(n=(30, 50), alternative="two-sided", budget=ny.gdp(2))
    size = test.power(truth=(0.3, 0.3), level=0.1, simulations=100, confidence=SURE)
    assert size.lower <= 0.1


def test_the_power_for_shares_is_the_enumerated_one():
    n, share, truth, level, simulations = 40, 1 / 3, 0.5, 0.1, 99
    test = GoodnessOfFitTest(["1/3", "2/3"], n=n, budget=ny.gdp(1), simulations=simulations)
    sigma = math.sqrt(float(test.mechanism.sigma_squared))
    reach = math.ceil(9 * sigma)
    r = np.arange(-reach, reach + 1)
    law = norm.cdf((r + 0.5) / sigma) - norm.cdf((r - 0.5) / sigma)
    difference = np.convolve(law, law)
    d = np.arange(-2 * reach, 2 * reach + 1)
    x = np.arange(n + 1)
    apart = np.abs(2 * x[:, None] - n + d[None, :] - n * (2 * share - 1))
    null, true = (binom.pmf(x, n, p)[:, None] * difference[None, :] for p in (share, truth))
    places, at = np.unique(np.round(apart, 6), return_inverse=True)
    chances = [np.bincount(at.ravel(), weights=w.ravel()) for w in (null, true)]
    p = np.cumsum(chances[0][::-1])[::-1]  # of a statistic at least as large
    most = math.floor(level * (1 + simulations)) - 1
    exact = float(chances[1] @ binom.cdf(most, simulations, np.minimum(p, 1)))
    assert len(places) == len(p)
    power = test.power(truth=["1/2", "1/2"], level="0.1", simulations=2000, confidence=SURE)
    assert 0.2 < exact < 0.9
    assert power.lower <= exact <= power.upper
    assert power.upper - power.lower < 0.12


def test_the_power_for_a_center_is_the_enumerated_one():
    n, share, level = 60, 0.75, 0.05
    test = MeanTest(null=0, n=n, clip=1, alternative="greater", budget=ny.gdp(0.6))
    sigma = math.sqrt(float(test.mechanism.sigma_squared))
    first, second = (sigma * norm.isf((np.arange(k) + 0.5) / k) for k in (60, 8))
    exact = 0.0
    for x, chance in enumerate(binom.pmf(np.arange(n + 1), n, share)):
        if chance > 1e-6:
            rejected = [
                test.p_value((round((2 * x - n) * CLIP_UNITS + a), round(n * CLIP_UNITS + b))).upper
                <= level
                for a in first
                for b in second
            ]
            exact += chance * np.mean(rejected)
    power = test.power(
        truth=lambda rng, n: np.where(rng.random(n) < share, 1, -1),
        level=level,
        simulations=4000,
        confidence=SURE,
    )
    assert 0.2 < exact < 0.9
    assert power.lower - 0.01 <= exact <= power.upper + 0.01


@pytest.mark.parametrize(("count", "trials"), [(0, 9), (9, 9), (1, 10), (500, 1000), (7, 10**6)])
@pytest.mark.parametrize("confidence", [0.5, 0.99, SURE])
def test_an_interval_is_that_of_clopper_and_pearson(count, trials, confidence):
    interval = SimulatedPower(count, trials, confidence)
    exact = binomtest(count, trials).proportion_ci(confidence, "exact")
    assert interval.lower <= exact.low + 1e-12
    assert exact.high - 1e-12 <= interval.upper
    assert interval.lower == pytest.approx(exact.low, abs=2e-6)
    assert interval.upper == pytest.approx(exact.high, abs=2e-6)


def test_a_simulation_repeats_with_its_generator():
    test = MeanTest(null=0, n=50, clip=2, alternative="two-sided", budget=ny.gdp(2))

    def power(generator=None):
        return test.power(
            truth=lambda rng, n: rng.normal(0.4, 1, n),
            level=0.05,
            simulations=400,
            generator=generator,
        )

    same = [power(np.random.default_rng(5)) for _ in range(2)]
    assert same[0] == same[1]
    assert len({power().rejected for _ in range(4)}) > 1


def test_the_least_number_of_records_has_the_power_and_one_fewer_has_not():
    def power(n):
        test = BinomialTest(n=n, null="1/2", alternative="greater", budget=ny.pure(1))
        return test.power(truth=0.8, level=0.05)

    least = least_records(power, at_least="0.8")
    assert least == next(n for n in range(1, 100) if power(n).lower >= 0.8)


def test_a_power_that_is_not_reached_is_refused():
    asked = []

    def power(n):
        asked.append(n)
        return SimulatedPower(min(n, 90), 100, 0.9)

    with pytest.raises(ValueError, match="not reached with 100 records"):
        least_records(power, at_least=0.95, most=100)
    assert asked[-1] == 100
    assert least_records(power, at_least="0.8", most=100) < 100


def fit(**changed):
    test = GoodnessOfFitTest(["1/2", "1/2"], n=9, budget=ny.gdp(1), simulations=99)
    return test.power(**{"truth": ["1/2", "1/2"], "level": 0.1, "simulations": 2} | changed)


def center(**changed):
    test = MeanTest(null=0, n=9, clip=1, alternative="less", budget=ny.gdp(1))
    given = {"truth": lambda rng, n: rng.normal(0, 1, n), "level": 0.1, "simulations": 2}
    return test.power(**given | changed)


def groups(**changed):
    test = ProportionsTest(n=(3, 4), alternative="less", budget=ny.gdp(1))
    return test.power(**{"truth": (0.1, 0.2), "level": 0.1, "simulations": 2} | changed)


REFUSED_POWERS = [
    (fit, "truth", ["1/2", "1/3"]),
    (fit, "truth", ["3/2", "-1/2"]),
    (fit, "truth", ["1"]),
    (center, "truth", lambda rng, n: [1.0]),
    (groups, "truth", (0.1,)),
    (groups, "truth", (0, 0.5)),
    *((ask, "level", 1) for ask in (fit, center, groups)),
    *((ask, "simulations", 0) for ask in (fit, center, groups)),
    (fit, "simulations", 10**7),
    (fit, "confidence", 1),
    (fit, "generator", 7),
]


@pytest.mark.parametrize(("ask", "name", "value"), REFUSED_POWERS)
def test_bad_arguments_of_a_power_are_refused_by_name(ask, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        ask(**{name: value})


# ---- arguments far out


BINOMIAL = BinomialTest(n=50, null="1/2", alternative="greater", budget=ny.gdp(1))


@pytest.mark.parametrize("released", [10**299, -(10**299)])
def test_a_released_count_far_out_is_refused(released):
    with pytest.raises(ValueError, match="released"):
        BINOMIAL.p_value(released)


def test_a_level_below_the_digits_of_a_tail_is_refused():
    with pytest.raises(ValueError, match="level"):
        BINOMIAL.power(truth=0.6, level=1e-291)


@pytest.mark.parametrize("released", [(10**400, 5), (1, 2, 3), 5])
def test_released_sums_of_a_mean_test_are_two_numbers(released):
    test = MeanTest(n=50, null=0, clip=1, alternative="greater", budget=ny.gdp(1))
    with pytest.raises((TypeError, ValueError), match="released"):
        test.p_value(released)


def test_a_budget_that_hides_nothing_is_called_so():
    with pytest.raises(ValueError, match="hides so little"):
        BinomialTest(n=50, null="1/2", alternative="greater", budget=ny.gdp(50))


def test_a_count_beyond_the_floats_is_clipped_to_n():
    test = BinomialTest(n=50, null="1/2", alternative="greater", budget=ny.gdp(10))
    assert test.release(10**400).p_value.upper < 0.01


def test_errors_show_no_private_count():
    test = ProportionsTest(n=(900, 800), alternative="greater", budget=ny.gdp(1))
    with pytest.raises(TypeError) as error:
        test.release(517)
    assert "517" not in str(error.value)
