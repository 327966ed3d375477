"""The power of private tests from simulated releases, beside enumeration, and their design."""

from __future__ import annotations

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
from neyman.analysis.hypothesis_tests.mean_test import CLIP_UNITS
from random_laws import examples

SURE = 1 - 1e-6  # false-alarm rate of each comparison with a simulation


@pytest.fixture
def coarse(monkeypatch):
    """A search over few common proportions: the distribution of each p-value stays valid."""
    monkeypatch.setattr(proportions_test, "LIMITS", replace(proportions_test.LIMITS, cells=12))
    monkeypatch.setattr(binomial_test, "BISECTION_STEPS", 12)


@settings(max_examples=examples(40))
@given(
    first=st.fractions(-5, 45, max_denominator=7),
    second=st.fractions(-5, 65, max_denominator=7),
    alternative=st.sampled_from(["greater", "less", "two-sided"]),
)
def test_a_decision_is_that_of_the_p_value(first, second, alternative):
    """At fixed levels, and at levels next to the p-value on both sides."""
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
    """All counts, with the noise at the middles of ten parts of equal chance."""
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
    """Two categories: the distribution of the statistic, and of the rank of each among its
    simulations.
    """
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
    """Records of 1 and -1: all sums, with both noises at the middles of parts of equal chance."""
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
    """At the ends of SciPy's, or up to 2e-6 outside of them."""
    interval = SimulatedPower(count, trials, confidence)
    exact = binomtest(count, trials).proportion_ci(confidence, "exact")
    assert interval.lower <= exact.low + 1e-12
    assert exact.high - 1e-12 <= interval.upper
    assert interval.lower == pytest.approx(exact.low, abs=2e-6)
    assert interval.upper == pytest.approx(exact.high, abs=2e-6)


def test_a_simulation_repeats_with_its_generator():
    """And differs without one."""
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
    """Beside a search one by one from the first number."""

    def power(n):
        test = BinomialTest(n=n, null="1/2", alternative="greater", budget=ny.pure(1))
        return test.power(truth=0.8, level=0.05)

    least = least_records(power, at_least="0.8")
    assert least == next(n for n in range(1, 100) if power(n).lower >= 0.8)


def test_a_power_that_is_not_reached_is_refused():
    """The largest number is tried."""
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


REFUSED = [
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


@pytest.mark.parametrize(("ask", "name", "value"), REFUSED)
def test_bad_arguments_of_a_power_are_refused_by_name(ask, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        ask(**{name: value})
