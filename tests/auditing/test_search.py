"""A search finds ten planted faults, and accuses none of ten correct programs.

`NEYMAN_AUDITS` of 20,000 (`make test-audits`) asks for 100,000 runs; the default asks for few.
"""

from __future__ import annotations

import math
import os
from itertools import pairwise

import numpy as np
import pytest
from programs import CORRECT, FAULTY, LONG, SHORT

import neyman as ny
from neyman.auditing.output_features import lowest_bit

LARGE = int(os.environ.get("NEYMAN_AUDITS", "2000")) > 2000
RUNS = 100_000 if LARGE else 12_000


@pytest.mark.parametrize("program", FAULTY, ids=lambda p: p.__name__)
def test_a_planted_fault_is_refuted(program):
    """At 95%; a fault is missed by chance far less often than once in a million runs."""
    shown = ny.audit.search(program, LONG, SHORT, claim=FAULTY[program], runs=RUNS, seed=1)
    assert shown.refuted, shown.test


@pytest.mark.parametrize("program", CORRECT, ids=lambda p: p.__name__)
def test_a_correct_program_is_not_accused(program):
    """At 1 - 1e-7, so that a false accusation here is not an accident."""
    shown = ny.audit.search(
        program, LONG, SHORT, claim=CORRECT[program], runs=RUNS, confidence="0.9999999"
    )
    assert not shown.refuted, shown.test


def test_a_learner_of_the_caller_is_one_more_test():
    """It is fit on a part of the runs, and answers with probabilities."""

    class Nearest:
        def fit(self, numbers, labels):
            self.means = [numbers[labels == k].mean(axis=0) for k in (0, 1)]

        def predict_proba(self, numbers):
            first, second = (((numbers - mean) ** 2).sum(axis=1) for mean in self.means)
            return np.stack([second, first], axis=1) / (first + second + 1e-9)[:, None]

    shown = ny.audit.search(len, LONG, SHORT, claim=ny.pure(1), runs=400, learner=Nearest())
    assert shown.refuted


def test_what_cannot_be_searched_is_refused():
    for bad in (3, "x", 39, None):
        with pytest.raises((ValueError, TypeError), match="runs"):
            ny.audit.search(len, LONG, SHORT, claim=ny.pure(1), runs=bad)
    with pytest.raises(TypeError, match="run = 1 must be a function"):
        ny.audit.search(1, LONG, SHORT, claim=ny.pure(1))
    with pytest.raises(TypeError, match="claim"):
        ny.audit.search(len, LONG, SHORT, claim=1)


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
    """The power of 2 that the odd part is multiplied by, also of numbers below all normal ones."""
    numbers = [1.0, 3.0, 12.0, 0.1, -0.375, 2.0**60 + 2.0**10, 5 * 2.0**-1074, 1e308]
    for number, place in zip(numbers, lowest_bit(np.array(numbers)), strict=True):
        top, bottom = abs(number).as_integer_ratio()
        assert place == (top & -top).bit_length() - bottom.bit_length()
    assert lowest_bit(np.zeros(1)) > 1023
