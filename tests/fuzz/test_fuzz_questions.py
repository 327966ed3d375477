"""Random questions about random mechanisms: each has an answer, within its operations."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
from truth import Tally, cases, draws, tally

import neyman as ny
from benchmarks.questions import FAMILIES, QUESTIONS, mechanism, question
from neyman.numerics import question_meter

__all__ = ["tally"]


def checked(answer: Any, case: str) -> None:
    """Fail if the ends of an answer are no interval."""
    if isinstance(answer, list):
        for one in answer:
            checked(one, case)
    elif isinstance(answer, ny.Bound):
        assert answer.lower <= answer.upper, case
    else:
        checked([answer.mu, answer.distance], case)


def test_random_questions_never_raise(tally: Tally):
    """Documented errors of the domain are all that may come."""
    draw = draws("any question")
    families, kinds = list(FAMILIES), list(QUESTIONS)
    for number in cases(7):
        of = mechanism(draw, families[number % len(families)])
        asked = question(draw, draw.choice(kinds))
        case = f"f = ({of}).tradeoff(); {asked}"
        with warnings.catch_warnings(), question_meter() as meter:
            warnings.simplefilter("error")
            most = 1.5 * meter.most  # its last array, and its reserve, come on top
            try:
                f = eval(of, {"ny": ny}).tradeoff()
                answer = eval(asked, {"ny": ny, "f": f})
            except ValueError:
                tally.count()
                continue
            except Exception as error:
                pytest.fail(f"{error!r} in {case}")
        checked(answer, case)
        assert meter.count + meter.spared <= most, case
        tally.count()


def test_every_family_is_read_back_as_it_is_written():
    draw = draws("families")
    for family in FAMILIES:
        first = mechanism(draw, family)
        f = eval(first, {"ny": ny})
        assert isinstance(f, ny.Mechanism)
        assert math.isfinite(len(f.to_json()))
