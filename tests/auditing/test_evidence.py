"""An audit never refutes a true claim more often than stated, and its numbers are the exact ones.

`NEYMAN_AUDITS` is the number of simulated audits: 2,000 here, 20,000 in `make test-audits`. Each
coverage test fails by chance at most once in a million runs.
"""

from __future__ import annotations

import math
import os
import re
from datetime import date
from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from programs import CORRECT, FAULTY, JOINED
from programs import LONG as FOUR
from programs import SHORT as THREE
from scipy.special import bdtr, betaln, ndtr, ndtri

import neyman as ny
from function_calls import function_calls
from neyman.auditing import ManyRuns
from neyman.auditing.evidence import OneRun
from neyman.auditing.one_run_bounds import Guesses, approximate_level, gaussian_level
from neyman.auditing.output_features import lowest_bit
from neyman.auditing.rate_limits import all_counts, anytime_limit, clopper_pearson, tail_above
from neyman.auditing.releases.release_path import chance_of_draws
from neyman.auditing.releases.small_data import neighbors
from neyman.noise import SecureBits, discrete_gaussian, rounded_gaussian
from neyman.publishing import Plan

AUDITS = int(os.environ.get("NEYMAN_AUDITS", "2000"))
RNG = np.random.default_rng


def most_false(audits: int, chance: float) -> int:
    """The least count that binomial errors exceed with a chance of at most 1e-6."""
    count = int(audits * chance)
    while bdtr(count, audits, chance) < 1 - 1e-6:
        count += 1
    return count


def exact_tail(most: int, trials: int, rate: float) -> mp.mpf:
    """P(Bin <= most), in 40 digits."""
    with mp.workdps(40):
        p = mp.mpf(rate)
        return mp.fsum(
            mp.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(most + 1)
        )


def test_the_limits_of_the_published_example():
    shown = ny.audit.counts(false_positives=5, negatives=1000, false_negatives=400, positives=1000)
    ((a, b),) = shown.points
    assert a == pytest.approx(0.0116294705598121, rel=1e-12)
    assert b == pytest.approx(0.431121554044107, rel=1e-12)
    least, _ = shown.best_case.points[0]
    assert least == pytest.approx(0.00368208389686567, rel=1e-12)
    assert shown.best_case.epsilon(1e-5) == pytest.approx(math.log((1 - 1e-5 - least) / least))
    assert f"{shown.best_case.epsilon(1e-5):.3f}" == "5.601"
    assert shown.gdp() == pytest.approx(-ndtri(a) - ndtri(b))


def test_a_limit_is_never_below_the_exact_one_and_hardly_above():
    rng = RNG(1)
    for _ in range(60):
        trials = int(10 ** rng.uniform(0, 3))
        count = int(rng.integers(0, trials))
        chance = float(10 ** rng.uniform(-9, -0.31))
        limit = clopper_pearson(count, trials, chance)
        exact = exact_tail(count, trials, limit)
        assert exact <= chance
        assert limit > 0.9 or exact >= chance * (1 - 1e-9)


def test_a_bound_on_a_tail_is_above_it():
    rng = RNG(2)
    for _ in range(60):
        trials = int(10 ** rng.uniform(0, 3))
        most, rate = int(rng.integers(0, trials)), float(rng.random())
        bound, exact = tail_above(most, trials, rate), exact_tail(most, trials, rate)
        assert bound >= exact
        assert bound <= max(exact * (1 + mp.mpf(10) ** -9), mp.mpf(10) ** -290) or bound == 1


def test_a_limit_that_holds_at_all_times_solves_its_equation():
    with mp.workdps(40):
        for count, trials, chance in [
            (0, 1, 0.025),
            (3, 50, 1e-3),
            (400, 1000, 0.025),
            (1, 10**5, 1e-7),
        ]:
            p = mp.mpf(anytime_limit(count, trials, chance))
            ratio = mp.beta(count + 0.5, trials - count + 0.5) / mp.pi / p**count
            ratio /= (1 - p) ** (trials - count)
            assert 1 <= ratio * chance < 1 + 1e-6


def test_bounds_of_one_run_are_those_computed_independently():
    shown = Guesses(1000, 100, 75, 0.05)
    assert shown.chance_under(math.log(3), 1e-4) == pytest.approx(0.571124610726486, rel=1e-11)
    assert shown.chance_under(0.67298466410742, 1e-4) == pytest.approx(0.05, rel=1e-10)
    assert Guesses(100, 100, 75, 0.05).gdp() == pytest.approx(0.4043119829838, rel=1e-10)
    for right, most in [(0.9, 0.880431593276765), (0.75, 0.460938385912920)]:
        shown = Guesses(10**6, 10**6, int(right * 10**6), 0.05)
        assert shown.most_gdp() == pytest.approx(most, rel=1e-9)
        assert most * (1 - 1e-6) < shown.gdp() <= shown.most_gdp()


def test_a_million_canaries_take_fewer_calls_than_there_are_canaries():
    answers = []

    def audit():
        shown = ny.audit.one_run(canaries=10**6, guesses=10**6, correct=900_000)
        answers.extend((shown.gdp(), shown.epsilon(), shown.epsilon(1e-5)))
        assert shown.refutes(ny.gdp(0.88))

    assert function_calls(audit) < 10**6
    assert answers == pytest.approx([0.880432, 2.191739, 2.191371], abs=1e-6)


def least_chance(guesses: int, right: int, level) -> float:
    """The largest P(correct >= right) that the recursion allows, in plain steps and no rounding."""
    low, high = 0.0, 1.0
    for _ in range(60):
        t = (low + high) / 2
        r, h = t * right / guesses, t * (guesses - right) / guesses
        for i in range(right - 1, -1, -1):
            more = max(h, level(r))
            r, h = r + i / (guesses - i) * (more - h), more
        low, high = (low, t) if r + h > 1 else (t, high)
    return low


def test_the_recursion_agrees_with_plain_steps():
    for guesses, right, mu in [(10, 9, 0.5), (100, 75, 0.3), (100, 60, 0.05), (40, 40, 1.5)]:
        chance = least_chance(guesses, right, gaussian_level(mu))
        for factor, answer in [(1 - 1e-6, False), (1 + 1e-6, True)]:
            assert (
                Guesses(guesses, guesses, right, chance * factor).refutes(gaussian_level(mu))
                is answer
            )


@pytest.mark.parametrize("mu", [0.5, 1.0])
def test_the_recursion_bounds_the_chance_of_the_best_guesser(mu):
    for guesses in (1, 2, 5, 20):
        for right in range(1, guesses + 1):
            truth = 1 - bdtr(right - 1, guesses, ndtr(mu / 2))
            assert not Guesses(guesses, guesses, right, truth * (1 - 1e-9)).refutes(
                gaussian_level(mu)
            )


def test_randomized_response_attains_the_bound_for_epsilon():
    for epsilon in (0.5, 2.0):
        q = 1 / (1 + math.exp(-epsilon))
        for right in (10, 15, 20):
            exact = 1 - bdtr(right - 1, 20, q)
            assert Guesses(20, 20, right, 0.05).chance_under(epsilon, 0) == pytest.approx(exact)


def coverage(alphas, betas, audits, confidence, claim_mu, rng):
    """How many audits by counts refute mu-GDP that is true."""
    runs, chance = 1000, (1 - confidence) / 2
    counts = rng.binomial(runs, [[alphas], [betas]], (2, audits))
    limits = {int(k): clopper_pearson(int(k), runs, chance) for k in np.unique(counts)}
    a, b = (np.array([limits[int(k)] for k in row]) for row in counts)
    return int((-ndtri(a) - ndtri(b) > claim_mu).sum())


def test_audits_of_gaussian_canaries_refute_the_truth_seldom():
    for threshold in (-1.0, 0.5, 2.0):
        alpha, beta = ndtr(-threshold), ndtr(threshold - 1)
        false = coverage(alpha, beta, AUDITS, 0.95, 1.0, RNG(3))
        assert false <= most_false(AUDITS, 0.05)


@pytest.mark.parametrize("threshold", ["split", "all"])
def test_a_threshold_from_the_data_refutes_the_truth_seldom(threshold):
    rng, audits = RNG(4), max(AUDITS // 40, 50)
    false = 0
    for i in range(audits):
        members, others = rng.normal(1, 1, 100), rng.normal(0, 1, 100)
        if i % 2:
            members, others = members.round(1), others.round(1)
        shown = ny.audit.scores(members, others, threshold=threshold, seed=i)
        false += shown.gdp() > 1
    assert false <= most_false(audits, 0.05)


@pytest.mark.parametrize("trials", [1, 2, 7, 60, 2500])
def test_the_limits_of_all_counts_hold_at_once(trials):
    rng, audits, chance = RNG(8), max(AUDITS, 2000), 0.25
    counts, each = all_counts(trials, chance)
    limits = np.array([clopper_pearson(int(count), trials, each) for count in counts])
    ordered = np.sort(rng.random((audits, trials)), axis=1)
    wrong = (ordered[:, counts] > limits).any(axis=1).sum()
    assert wrong <= most_false(audits, chance)
    assert counts[-1] == trials - 1
    if trials <= 60:  # the chance is used up
        assert audits - wrong <= most_false(audits, 1 - chance)
    if trials == 2:
        assert 1 - (2 * limits[0] * limits[1] - limits[0] ** 2) == pytest.approx(chance, rel=2e-5)
    if trials == 7:  # a volume, by recursion over polynomials in 50 digits
        with mp.workdps(50):
            volume = [mp.mpf(1)]  # of x: the part of ordered points below x and the limits
            for i in range(trials, 0, -1):
                top = mp.mpf(float(limits[i - 1]))
                integral = [c / (k + 1) for k, c in enumerate(volume)]
                at_top = mp.fsum(c * top ** (k + 1) for k, c in enumerate(integral))
                volume = [at_top, *(-c for c in integral)]
            exact = 1 - volume[0] * mp.factorial(trials)
        assert float(exact) == pytest.approx(chance, rel=2e-5)
        assert exact <= chance


def test_all_thresholds_show_more_than_half_of_the_scores():
    rng, shown = RNG(9), {"all": 0.0, "split": 0.0}
    for i in range(10):
        members, others = rng.normal(1, 1, 500), rng.normal(0, 1, 500)
        for threshold in shown:
            evidence = ny.audit.scores(members, others, threshold=threshold, seed=i)
            shown[threshold] += evidence.gdp() / 10
    assert 0.9 > shown["all"] > shown["split"]


def test_scores_without_information_show_nothing():
    rng = RNG(5)
    for i in range(20):
        scores = rng.normal(size=(2, 300))
        for threshold in (0.5, "split", "all"):
            shown = ny.audit.scores(*scores, threshold=threshold, seed=i, confidence=1 - 1e-6)
            assert (shown.epsilon(), shown.gdp()) == (0, 0)
            assert not shown.refutes(ny.perfect())


def test_an_audit_that_looks_after_each_run_has_wrong_limits_seldom():
    rng, audits, looks, rate, chance = RNG(6), max(AUDITS // 4, 200), 300, ndtr(-0.5), 0.25
    runs = np.arange(1, looks + 1)
    errors = np.cumsum(rng.random((2, audits, looks)) < rate, axis=2)
    logs = betaln(errors + 0.5, runs - errors + 0.5) - math.log(math.pi)
    logs -= errors * math.log(rate) + (runs - errors) * math.log1p(-rate)
    wrong = (logs >= -math.log(chance)) & (errors < runs * rate)
    for side, audit, look in np.argwhere(wrong)[::50]:
        limit = anytime_limit(int(errors[side, audit, look]), int(runs[look]), chance)
        assert limit < rate * (1 + 1e-9)
    assert 0 < wrong.any(axis=(0, 2)).sum() <= most_false(audits, 2 * chance)
    fixed = ny.audit.counts(false_positives=0, negatives=9, false_negatives=0, positives=9)
    always = ny.audit.counts(
        false_positives=0, negatives=9, false_negatives=0, positives=9, anytime=True
    )
    assert 0 < always.epsilon() < fixed.epsilon()


def test_a_guesser_of_gaussian_canaries_refutes_the_truth_seldom():
    canaries, mu = 200, 1.0
    right = RNG(7).binomial(canaries, ndtr(mu / 2), AUDITS)
    refuted = {
        c: ny.audit.one_run(canaries=canaries, guesses=canaries, correct=int(c)).refutes(ny.gdp(mu))
        for c in np.unique(right)
    }
    assert sum(refuted[c] for c in right) <= most_false(AUDITS, 0.05)


def gaussian_canaries(mu: float, number: int, rng: np.random.Generator):
    """The scores of independent canaries that are in the data, and of those that are not."""
    inserted = rng.random(number) < 0.5
    scores = rng.normal(mu * inserted - mu / 2)
    return scores[inserted], scores[~inserted]


def test_one_run_shows_nine_tenths_of_mu_with_ten_thousand_independent_canaries():
    rng = RNG(11)
    shown = [
        ny.audit.scores(*gaussian_canaries(1, 10_000, rng), threshold=0, one_run=True).gdp()
        for _ in range(101)
    ]
    assert 0.9 < np.median(shown) < 1


def test_independent_canaries_in_one_run_refute_the_truth_seldom():
    rng, audits = RNG(12), AUDITS
    false = sum(
        ny.audit.scores(*gaussian_canaries(1, 1000, rng), threshold=0, one_run=True).gdp() >= 1
        for _ in range(audits)
    )
    # 12 of 10,000: both rates would have to be unlucky.
    assert false <= most_false(audits, 0.05)


def test_canaries_that_depend_on_each_other_are_for_guesses_alone():
    """AC-2: a release that one time in seven shows what Gaussian noise shows, up to a score."""
    mu, number, cut, chance = 1.0, 10_000, 3.1, 0.1472
    levels = np.linspace(0, cut, 1000)
    low, high = (chance * ndtr(side * mu / 2 - levels) for side in (-1, 1))
    true = float(np.max(ndtri(1 - low) - ndtri(1 - high)))
    assert 0.87 < true < 0.871
    far = ndtr(mu / 2 - cut) / (ndtr(mu / 2 - cut) + ndtr(-mu / 2 - cut))  # right beyond the cut
    rng, audits, false = RNG(13), AUDITS // 4, {"scores": 0, "guesses": 0}
    for _ in range(audits):
        inserted = rng.random(number) < 0.5
        scores = rng.normal(0, 1, number)
        if rng.random() < chance:
            scores += np.where(inserted, mu / 2, -mu / 2)
            right = np.where(rng.random(number) < far, 1, -1) * np.where(inserted, 1, -1)
            scores = np.where(abs(scores) > cut, abs(scores) * right, scores)
        sides = scores[inserted], scores[~inserted]
        false["scores"] += ny.audit.scores(*sides, threshold=0, one_run=True).gdp() >= true
        guessed = np.argsort(-abs(scores))[:250]
        correct = int(((scores > 0) == inserted)[guessed].sum())
        shown = ny.audit.one_run(canaries=number, guesses=250, correct=max(correct, 125))
        false["guesses"] += shown.gdp() >= true
    assert false["scores"] > most_false(audits, 0.05) >= false["guesses"]


def test_a_claim_of_any_form_is_refuted_where_it_is_false():
    many = ny.audit.counts(false_positives=5, negatives=1000, false_negatives=400, positives=1000)
    one = ny.audit.one_run(canaries=1000, guesses=1000, correct=900)
    weak = ny.Gaussian(10).subsample(rate=0.01) * 100
    for claim in (
        ny.gdp(0.5),
        ny.pure(1),
        ny.approximate(1, 1e-5),
        ny.zcdp(0.05),
        ny.Laplace(1),
        weak,
    ):
        assert many.refutes(claim)
        assert one.refutes(claim), claim
    for claim in (ny.gdp(3), ny.pure(5), ny.approximate(4, 0.1), ny.zcdp(5), ny.Laplace(0.2)):
        assert not many.refutes(claim)
        assert not one.refutes(claim)


def test_a_refuted_epsilon_and_the_claim_agree():
    for shown in (
        ny.audit.counts(false_positives=5, negatives=1000, false_negatives=400, positives=1000),
        ny.audit.counts(false_positives=40, negatives=100, false_negatives=1, positives=300),
        ny.audit.one_run(canaries=500, guesses=300, correct=250),
    ):
        for delta in (0.0, 1e-3):
            largest = shown.epsilon(delta)
            assert shown.refutes(ny.approximate(largest * (1 - 1e-6), delta))
            assert not shown.refutes(ny.approximate(largest * (1 + 1e-6), delta))
        assert shown.refutes(ny.gdp(shown.gdp() * (1 - 1e-6)))
        assert not shown.refutes(ny.gdp(shown.gdp() * (1 + 1e-6)))


def test_power_is_shown_only_where_claims_with_less_are_refuted():
    for shown in (
        ny.audit.counts(false_positives=5, negatives=1000, false_negatives=400, positives=1000),
        ny.audit.one_run(canaries=1000, guesses=1000, correct=900),
    ):
        for level in (0.0, 0.01, 0.1, 0.5, 1.0):
            power = shown.power_at_least(level)
            assert level <= power <= 1
        # (epsilon, delta) curves with less power at this level are refuted.
        power = shown.power_at_least(0.1)
        for epsilon in (0.1, 0.5):
            delta = power * (1 - 1e-3) - 0.1 * math.exp(epsilon)
            assert delta <= 0 or shown.refutes(ny.approximate(epsilon, delta))


def test_the_sentences():
    shown = ny.audit.counts(false_positives=5, negatives=1000, false_negatives=400, positives=1000)
    assert shown.sentence(ny.Laplace(1)) == (
        "With 95% confidence, this mechanism does not satisfy Laplace(scale=1, sensitivity=1)."
    )
    assert "never shows more than epsilon = 5.601" in str(shown)
    assert shown.sentence(ny.gdp(9)).endswith("That is not a proof.")
    nothing = ny.audit.counts(false_positives=5, negatives=10, false_negatives=5, positives=10)
    assert nothing.sentence().endswith("refutes no epsilon. That is not a proof.")
    canaries = str(ny.audit.scores([2.0] * 500, [0.0] * 400, threshold=1, one_run=True))
    assert canaries.startswith("If the scores of canaries are independent: with 95% confidence")
    assert "This design (400 + 500 canaries) never shows more than" in canaries
    one = ny.audit.one_run(canaries=1000, guesses=1000, correct=900)
    assert "At 90% accuracy, no number of canaries shows more than mu = 0.881." in str(one)


def test_bad_designs_are_refused():
    with pytest.raises(ValueError, match="Exchange members and others"):
        ny.audit.scores(np.zeros(100), np.ones(100))
    with pytest.raises(ValueError, match=r"canaries\[2\] equals canaries\[0\]"):
        ny.audit.one_run(canaries=[[1, 2], [3, 4], [1, 2]], guesses=1, correct=1)
    with pytest.raises(ValueError, match="exchange the two guesses"):
        ny.audit.one_run(canaries=100, guesses=100, correct=10)
    removed = ny.audit.counts(
        false_positives=0, negatives=9, false_negatives=0, positives=9, neighboring="add-remove"
    )
    with pytest.raises(ValueError, match="audit under the relation of the claim"):
        removed.refutes(ny.RandomizedResponse(1))
    assert ny.audit.one_run(canaries=[[1, 2], [3, 4]], guesses=2, correct=2).canaries == 2
    with pytest.raises(ValueError, match=r"members\[1\] = nan must be finite"):
        ny.audit.scores([1, math.nan], [0])


LONG = np.zeros(5000)
LONG[2500] = 1.0


@pytest.mark.parametrize(
    "pair",
    [
        [0.0, -0.0],
        [1, 1.0],
        [Fraction(1, 2), 0.5],
        [2**60, float(2**60)],
        [math.nan, math.nan],
        [[1, 2], np.array([1.0, 2.0], np.float32)],
        [[[1, 2], [3]], [(1.0, 2), [3]]],
        [{"x": LONG, "y": 1}, {"y": True, "x": LONG.astype(int)}],
        [["a", 1], ["a", 1.0]],
        [bytearray(b"a"), bytearray(b"a")],
    ],
)
def test_equal_canaries_are_refused(pair):
    with pytest.raises(ValueError, match=r"canaries\[1\] equals canaries\[0\]"):
        ny.audit.one_run(canaries=pair, guesses=1, correct=1)


@pytest.mark.parametrize(
    "pair",
    [
        [{"x": LONG}, {"x": np.zeros(5000)}],
        [[LONG, [1]], [np.zeros(5000), [1]]],
        [2**60, 2**60 + 1],
        [[2**53, 0.5], [2**53 + 1, 0.5]],
        [np.array([2**60]), np.array([2**60 + 1])],
        [["a", 1], ["a", "1"]],
        [[1, 2], [[1, 2]]],
        [[[1, 2], [3, 4]], [[1, 2, 3, 4]]],
        [[LONG[:4], LONG[:4]], [LONG[:2], LONG[:2], LONG[:2], LONG[:2]]],
        [10**400, 10**400 + 1],
        [1j, 1],
    ],
)
def test_different_canaries_are_accepted(pair):
    assert ny.audit.one_run(canaries=pair, guesses=1, correct=1).canaries == 2


class Odd:  # noqa: PLW1641 (it has no hash)
    def __eq__(self, other: object) -> bool:
        raise RuntimeError


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda a: a.scores([10**400], [0.0]), ValueError, "members has a number that is too"),
        (lambda a: a.scores([1], [0], threshold=np.array([1, 2])), TypeError, "threshold = "),
        (
            lambda a: a.one_run(canaries=[[Odd()], [Odd()]], guesses=1, correct=1),
            TypeError,
            "cannot be compared by ==",
        ),
        (lambda a: a.scores([1], [0], threshold="split"), ValueError, "needs 2 scores"),
        (
            lambda a: a.lira([1], np.full((4, 1), np.nan), np.array([[1], [1], [0], [0]], bool)),
            ValueError,
            "shadows has a score that is not finite",
        ),
        (lambda a: a.likelihood_ratio([2], [0, 1], [0, 1]), ValueError, "must be from 0 to 1"),
        (lambda a: a.likelihood_ratio([0], [0, 1], [0, 1]), ValueError, "that both distributions"),
        (lambda a: a.likelihood_ratio([0], [0.5, 0.5], [1]), ValueError, "have 2 and 1 outcomes"),
        (
            lambda a: a.lira([1e200], np.ones((4, 1)), np.array([[1], [1], [0], [0]], bool)),
            ValueError,
            r"scores has a score of size 1e\+200",
        ),
        (
            lambda a: a.lira([1], np.full((4, 1), 1e200), np.array([[1], [1], [0], [0]], bool)),
            ValueError,
            r"shadows has a score of size 1e\+200",
        ),
        (
            lambda a: a.likelihood_ratio([0], [0.5, 0.1, 0], [0, 0.5, 0.5]),
            ValueError,
            "null sums to 0.6 and must sum to 1",
        ),
        (
            lambda a: a.likelihood_ratio([0], [0.5, 0.5], [1.5, -0.5]),
            ValueError,
            r"alternative\[1\] = -0.5 must be at least 0",
        ),
    ],
)
def test_numbers_that_no_score_can_use_are_refused(ask, error, words):
    with pytest.raises(error, match=words):
        ask(ny.audit)


def test_a_score_at_the_threshold_counts_against_the_attack():
    shown = ny.audit.scores([0.5] * 50, [0.5] * 50)
    assert shown.points == ((1.0, 1.0),)


def test_the_likelihood_ratio_score_is_that_of_the_best_test():
    null, alternative = [0.5, 0.3, 0.2, 0], [0.1, 0.3, 0.2, 0.4]
    scores = ny.audit.likelihood_ratio([0, 1, 2, 3], null, alternative)
    test = ny.best_test(null, alternative, level=Fraction(1, 4))
    assert [bool(y) for y in test.yes] == [
        bool(s >= math.log(float(test.threshold))) for s in scores
    ]
    assert np.isfinite(scores).all()
    assert scores.argmax() == 3


def test_lira_scores_separate_members():
    rng = RNG(8)
    offset, inside = 5 * rng.normal(size=400), rng.random((64, 400)) < 0.5
    shadows = offset + inside + rng.normal(size=inside.shape)
    truth = np.arange(400) % 2 == 0
    scores = ny.audit.lira(offset + truth + rng.normal(size=400), shadows, inside)
    expected = ndtr(1 / math.sqrt(2))  # of a likelihood ratio with mu = 1
    above = (scores[truth][:, None] > scores[~truth]).mean()
    assert above == pytest.approx(expected, abs=0.06)
    with pytest.raises(ValueError, match="fewer than 2 shadow models with it"):
        ny.audit.lira([1.0], np.ones((3, 1)), np.zeros((3, 1), bool))


@pytest.mark.needs("release")
def test_a_figure_marks_what_is_refuted():
    shown = ny.audit.counts(false_positives=5, negatives=1000, false_negatives=400, positives=1000)
    for mu, refuted in [(1, True), (4, False)]:
        _, labels = shown.figure(ny.gdp(mu)).get_legend_handles_labels()
        assert ("refuted part of the claim" in labels) is refuted


@pytest.mark.parametrize("confidence", ["0.95", "0.9", "0.99", "2/3", "1/2", "0.999999"])
def test_the_chance_of_a_false_refutation_is_the_float_below_the_stated_one(confidence):
    sure = Fraction(confidence)
    chance = OneRun(sure, "add-remove", 10, 10, 9)._guesses.chance
    assert Fraction(chance) <= 1 - sure < Fraction(math.nextafter(chance, 1))


@pytest.mark.parametrize("delta", [0.0, 1e-9, 0.1, 0.3])
def test_a_refuted_epsilon_of_two_error_rates_is_just_below_the_exact_one(delta):
    rates = [(0.1 * (1 + k / 977), 0.2 + k / 3137) for k in range(40)]
    rates += [(10.0**-k / 3, 0.1 + k / 977) for k in range(40)]
    rates += [(near := (1 - delta) / 2 * (1 - 2.0**-k), near) for k in range(4, 52)]
    rates += [(10.0**-9 / k, 1 - delta - 10.0**-8 / k**0.5) for k in range(2, 90)]  # cancel
    with mp.workdps(60):
        for a, b in rates:
            shown = ManyRuns(Fraction(1, 2), "add-remove", ((a, b),), 10, 10, (a, b))
            d = mp.mpf(delta)
            exact = max(mp.log((1 - d - y) / x) for x, y in ((mp.mpf(a), b), (mp.mpf(b), a)))
            epsilon = shown.epsilon(delta)
            assert epsilon <= max(exact, 0)
            assert epsilon >= exact * (1 - 20 * 2.0**-53) - 20 * 2.0**-53


@pytest.mark.parametrize("guesses", [1, 2, 5, 12])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_guesses_that_are_all_correct_refute_from_the_exact_chance_on(guesses, epsilon):
    with mp.workdps(60):
        exact = (1 + mp.exp(-mp.mpf(epsilon))) ** -guesses
        near = float(exact)
        below = near if near < exact else math.nextafter(near, 0)
        claim = approximate_level(epsilon, 0.0)
        for chance in (below, below * (1 - 1e-15), below * (1 - 1e-14), below / 2):
            assert not Guesses(guesses, guesses, guesses, chance).refutes(claim)
        assert Guesses(guesses, guesses, guesses, below * (1 + 1e-12)).refutes(claim)


def test_no_count_of_coins_is_refuted_below_its_exact_chance():
    designs = [(m, g, c) for m in range(1, 14) for g in range(1, m + 1) for c in range(1, g + 1)]
    for m, g, c in designs:
        exact = Fraction(sum(math.comb(g, k) for k in range(c, g + 1)), 2**g)
        below = math.nextafter(float(exact), 0)
        for chance in (below, math.nextafter(below, 0)):
            assert not Guesses(m, g, c, chance).refutes(float)
        if c == g:
            assert Guesses(m, g, c, below * (1 + 1e-12)).refutes(float)


@pytest.mark.parametrize("miss", ["4e-13", "1e-30", "0.005", "1/3"])
def test_a_sentence_never_states_more_confidence_than_the_evidence_has(miss):
    """A confidence of 1 - 4e-13 was written as one of 1 - 1e-15."""
    confidence = 1 - Fraction(miss)
    shown = ny.audit.one_run(canaries=100, guesses=100, correct=90, confidence=confidence)
    said = re.match(r"With ([\d.]+)% confidence", shown.sentence())
    assert said
    certain = Fraction(said[1]) / 100
    assert confidence - Fraction(1, 10**12) <= certain <= confidence


@pytest.mark.parametrize("level", [5e-324, 1.5e-323, 1e-310, 1e-300, 1e-17, 1e-16, 3e-9])
def test_power_at_tiny_levels_is_rounded_down(level):
    shown = ny.audit.counts(false_positives=5, negatives=900, false_negatives=400, positives=1000)
    ((a, b),) = shown.points
    exact = max(
        Fraction(level) * (1 - Fraction(miss)) / Fraction(alarm) for alarm, miss in ((a, b), (b, a))
    )
    assert Fraction(shown.power_at_least(level)) <= max(exact, Fraction(level))
    one = ny.audit.one_run(canaries=1000, guesses=1000, correct=520)
    epsilons, deltas = one._refuted_pairs
    with mp.workdps(60):
        lines = [
            min(mp.exp(e) * level + d, 1 - mp.exp(-e) * (1 - mp.mpf(level) - mp.mpf(d)))
            for e, d in zip(epsilons[:-1].tolist(), deltas[1:].tolist(), strict=True)
        ]
        assert one.power_at_least(level) <= max(min(lines), mp.mpf(level))


# ---- a search for faults in programs: ten have one, and ten have none

LARGE = AUDITS > 2000
RUNS = 100_000 if LARGE else 12_000


@pytest.mark.parametrize("program", FAULTY, ids=lambda p: p.__name__)
def test_a_planted_fault_is_refuted(program):
    shown = ny.audit.search(program, FOUR, THREE, claim=FAULTY[program], runs=RUNS, seed=1)
    assert shown.refuted, shown.test


@pytest.mark.parametrize("program", CORRECT, ids=lambda p: p.__name__)
def test_a_correct_program_is_not_accused(program):
    shown = ny.audit.search(
        program, FOUR, THREE, claim=CORRECT[program], runs=RUNS, confidence="0.9999999"
    )
    assert not shown.refuted, shown.test


def test_a_learner_of_the_caller_is_one_more_test():
    class Nearest:
        def fit(self, numbers, labels):
            self.means = [numbers[labels == k].mean(axis=0) for k in (0, 1)]

        def predict_proba(self, numbers):
            first, second = (((numbers - mean) ** 2).sum(axis=1) for mean in self.means)
            return np.stack([second, first], axis=1) / (first + second + 1e-9)[:, None]

    shown = ny.audit.search(len, FOUR, THREE, claim=ny.pure(1), runs=400, learner=Nearest())
    assert shown.refuted


def test_what_cannot_be_searched_is_refused():
    for bad in (3, "x", 39, None):
        with pytest.raises((ValueError, TypeError), match="runs"):
            ny.audit.search(len, FOUR, THREE, claim=ny.pure(1), runs=bad)
    with pytest.raises(TypeError, match="run = 1 must be a function"):
        ny.audit.search(1, FOUR, THREE, claim=ny.pure(1))
    with pytest.raises(TypeError, match="claim"):
        ny.audit.search(len, FOUR, THREE, claim=1)


class Learner:
    """Answers each output with the same score."""

    def __init__(self, score):
        self.score = score

    def fit(self, numbers, labels):
        pass

    def predict_proba(self, numbers):
        return np.full((len(numbers), 2), self.score)


@pytest.mark.parametrize("learner", [3, Learner, object()])
def test_what_cannot_learn_is_refused_before_the_first_run(learner):
    calls = []
    with pytest.raises(TypeError, match=r"learner = .* methods fit and predict_proba"):
        ny.audit.search(calls.append, 1, 0, claim=ny.pure(1), runs=40, learner=learner)
    assert not calls


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_of_a_learner_that_are_not_finite_are_refused(score):
    with pytest.raises(ValueError, match=r"learner: .* not finite"):
        ny.audit.search(float, 1, 0, claim=ny.pure(1), runs=40, learner=Learner(score))


SPECIAL = [math.inf, -math.inf, math.nan, 10**400, -(10**400), [], 0.0]


@pytest.mark.parametrize(("one", "other"), [*pairwise(SPECIAL), (10**400, 0)])
def test_outputs_that_are_not_finite_are_told_apart(one, other):
    shown = ny.audit.search(lambda d: one if d else other, 1, 0, claim=ny.pure(1), runs=1000)
    assert shown.refuted


def test_the_lowest_bit_of_a_number_is_that_of_its_fraction():
    numbers = [1.0, 3.0, 12.0, 0.1, -0.375, 2.0**60 + 2.0**10, 5 * 2.0**-1074, 1e308]
    for number, place in zip(numbers, lowest_bit(np.array(numbers)), strict=True):
        top, bottom = abs(number).as_integer_ratio()
        assert place == (top & -top).bit_length() - bottom.bit_length()
    assert lowest_bit(np.zeros(1)) > 1023


# ---- the release path


@pytest.mark.parametrize("kind", ["discrete", "rounded"])
@pytest.mark.parametrize("variance", [Fraction(1, 10), 2, 400, 10**9])
def test_draws_of_the_samplers_fit_their_distribution(kind, variance):
    draw = {"discrete": discrete_gaussian, "rounded": rounded_gaussian}[kind]
    draws = draw(Fraction(variance), 4000, SecureBits())
    assert chance_of_draws(kind, float(variance), draws) > 1e-7
    if variance > 1:
        assert chance_of_draws(kind, float(variance), 2 * draws) < 1e-7


def test_an_unlikely_count_of_small_noise_is_judged_by_its_exact_chance():
    draws = np.array([1] * 12 + [-1] * 3 + [0] * 135)
    ones = 2 * math.exp(-0.5 / 0.36**2) / (1 + 2 * math.exp(-0.5 / 0.36**2)) / 2
    exact = sum(math.comb(150, k) * ones**k * (1 - ones) ** (150 - k) for k in range(12, 151))
    assert exact > 5e-5
    assert chance_of_draws("discrete", 0.36**2, draws) >= exact


@pytest.mark.parametrize(("sigma", "size"), [(0.3, 300), (0.5, 60), (3.0, 400), (40.0, 200)])
def test_noise_with_its_own_distribution_is_seldom_accused(sigma: float, size: int):
    """False alarms of 400 samples at a chance of 1e-6 each: at most 4e-4 of this test."""
    k = np.arange(-int(12 * sigma) - 3, int(12 * sigma) + 4)
    weight = np.exp(-(k**2) / (2 * sigma**2))
    rng = np.random.default_rng(2718)
    for _ in range(400):
        draws = rng.choice(k, size=size, p=weight / weight.sum())
        assert chance_of_draws("discrete", sigma**2, draws) > 1e-6


def test_data_have_values_on_both_sides_of_each_constant():
    plan = Plan.from_dict(JOINED)
    one, other = neighbors(plan, np.random.default_rng(1))
    visits = one["visits"]
    assert set(visits.column_names) == {"patient", "paid", "day", "urgent", "kind", "cost"}
    assert {"a", "b", "c", "another text"} & set(visits["kind"].to_pylist())
    days = [day for day in visits["day"].to_pylist() if day]
    assert min(days) < date(2020, 2, 1) <= max(days)
    assert {"id", "sex"} <= set(one["people"].column_names)
    # One unit is in the data or not: in each table, its rows alone.
    for name, most in (("visits", 3), ("bills", 3), ("people", 1)):
        assert len(one[name]) - len(other[name]) == most
