"""The best test itself, in exact fractions, against every other test and against the curve."""

import math
from fractions import Fraction as F
from itertools import product

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import best_test
from neyman.accounting import experiment

LEVELS = [F(0), F(1, 1000), F(1, 20), F(1, 3), F(9, 10), F(1)]


@st.composite
def laws(draw):
    n = draw(st.integers(2, 5))
    parts = [draw(st.lists(st.integers(0, 9), min_size=n, max_size=n).filter(any)) for _ in "pq"]
    return tuple([F(x, sum(v)) for x in v] for v in parts)


@settings(max_examples=150)
@given(laws(), st.fractions(0, 1, max_denominator=40))
def test_its_level_is_as_asked_and_its_power_is_the_sum_over_its_verdicts(pair, level):
    null, alternative = pair
    test = best_test(null, alternative, level)
    assert test.level == sum(a * w for a, w in zip(null, test.yes, strict=True)) == level
    assert test.power == sum(b * w for b, w in zip(alternative, test.yes, strict=True))
    for a, b, yes in zip(null, alternative, test.yes, strict=True):
        if a or b:
            ratio = b / a if a else math.inf
            expected = F(1) if ratio > test.threshold else F(0)
            assert yes == (test.tie if ratio == test.threshold else expected)


@settings(max_examples=100)
@given(laws(), st.fractions(0, 1, max_denominator=40))
def test_no_test_of_its_level_has_more_power(pair, level):
    null, alternative = pair
    best = best_test(null, alternative, level).power
    for sure in product([0, 1], repeat=len(null)):
        used = sum(a for a, s in zip(null, sure, strict=True) if s)
        if used > level:
            continue
        power = sum(b for b, s in zip(alternative, sure, strict=True) if s)
        extra = [
            min(F(1), (level - used) / a) * b
            for a, b, s in zip(null, alternative, sure, strict=True)
            if not s and a
        ]
        assert power + max(extra, default=F(0)) <= best


@settings(max_examples=60)
@given(laws(), st.sampled_from(LEVELS))
def test_its_power_is_that_of_the_curve(pair, level):
    null, alternative = pair
    exact = max(
        best_test(null, alternative, level).power, best_test(alternative, null, level).power
    )
    power = ny.between(null, alternative).power(float(level))
    assert power.lower - 1e-12 <= exact <= power.upper + 1e-12


MECHANISMS = [
    ny.RandomizedResponse(1.0),
    ny.RandomizedResponse(F(7, 3), categories=5),
    ny.DiscreteLaplace(2),
    ny.DiscreteLaplace("0.7", sensitivity=4),
    ny.DiscreteGaussian(1),
    ny.DiscreteGaussian(sigma_squared=F(5, 2), sensitivity=3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize("level", [0.001, 0.05, 0.3, 0.9])
def test_a_mechanisms_test_reaches_its_power(mechanism, level):
    test = experiment(mechanism).best_test(level)
    power = mechanism.tradeoff().power(level)
    assert power.lower - 1e-13 <= test.power <= power.upper + 1e-13
    assert test.level == F(str(level))


def test_the_outcomes_of_a_discrete_gaussian_are_its_law():
    observation = experiment(ny.DiscreteGaussian(sigma_squared=F(3, 2), sensitivity=2))
    with mpmath.workdps(60):
        total = mpmath.nsum(
            lambda x: mpmath.exp(-(x**2) / mpmath.mpf(3)), [-mpmath.inf, mpmath.inf]
        )
        for name, null, alternative in zip(*vars(observation).values(), strict=True):
            if name.lstrip("-").isdigit():
                x = int(name)
                for mass, center in ((null, 0), (alternative, 2)):
                    true = mpmath.exp(-((x - center) ** 2) / mpmath.mpf(3)) / total
                    result = mpmath.mpf(mass.numerator) / mass.denominator
                    assert abs(result - true) < mpmath.mpf(10) ** -40 * true
    assert sum(observation.null) == sum(observation.alternative) == 1


def test_a_discrete_laplace_answer_is_tested_by_its_size():
    observation = experiment(ny.DiscreteLaplace(2))
    assert observation.outcomes == ("at most 0", "at least 1")
    assert float(observation.null[0] / observation.alternative[0]) == pytest.approx(
        math.exp(0.5), rel=1e-15
    )
    test = observation.best_test("0.05")
    assert test.tie == F(1, 20) / observation.null[1]
    assert str(test) == f"say yes to: at least 1 (with probability {float(test.tie):.6g})"


def test_nothing_moves_nothing_is_found():
    assert experiment(ny.DiscreteLaplace(1, sensitivity=0)).best_test("0.1").power == F(1, 10)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: best_test([1], [F(1, 2), F(1, 2)], 0.1), "same"),
        (lambda: best_test([F(1, 2)] * 2, [F(1, 2)] * 2, 1.5), "level"),
        (lambda: best_test([F(1, 2)] * 2, [F(1, 3)] * 2, 0.5), "alternative"),
        (lambda: best_test([1], [1], 0.5, outcomes=["a", "b"]), "names"),
        (lambda: experiment(ny.DiscreteGaussian(1, [(1, 1)])), "one number"),
        (lambda: experiment(ny.DiscreteGaussian(10**5)), "larger units"),
        (lambda: experiment(ny.Gaussian(1)), r"tradeoff\(\).power"),
    ],
)
def test_refusals_say_what_is_wrong(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()


# ---- an attacker who knows only a distribution over everyone else -----------------------------


def count_laws(record, others):
    """The law of a count with discrete Laplace noise, over a window wide enough, exactly.

    ``others``: probability of each count among the others.
    """
    ratio = F(6, 10)  # e^{-1/scale} of some scale: any rational will do
    window = range(-60, 80)
    noise = {x: ratio ** abs(x) * (1 - ratio) / (1 + ratio) for x in range(-150, 150)}
    law = [sum(w * noise[y - record - s] for s, w in others.items()) for y in window]
    return [*law, 1 - sum(law)]


def test_uncertain_others_do_not_help_where_they_are_the_same_under_both_hypotheses():
    known = [count_laws(r, {0: F(1)}) for r in (0, 1)]
    others = {0: F(1, 2), 3: F(1, 3), 20: F(1, 6)}
    unknown = [count_laws(r, others) for r in (0, 1)]
    for level in LEVELS:
        assert best_test(*unknown, level).power <= best_test(*known, level).power


def test_correlated_others_help_beyond_the_curve():
    """Ten relatives who share what the record says move the count by eleven, not by one.

    The claim is then found out with probability .93 instead of .083 at the level .05: the curve
    bounds what the *record* gives away, not what others say about the person.
    """
    known = [count_laws(r, {0: F(1)}) for r in (0, 1)]
    family = [count_laws(r, {10 * r: F(1)}) for r in (0, 1)]
    level = F(1, 20)
    assert float(best_test(*known, level).power) == pytest.approx(1 / 12, abs=1e-12)
    assert best_test(*family, level).power > F(9, 10)
