"""The league compares answers with truths, and its page is what its record says."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from benchmarks import league

KNOWN: dict[str, Any] = json.loads(league.WHERE.read_text("utf-8"))
PLACES = range(len(KNOWN["questions"]))


def test_the_record_is_of_the_hundred_questions_and_its_page_says_what_it_says():
    assert KNOWN["questions"] == list(league.questions())
    said = league.filled((league.ROOT / "docs/league.md").read_text("utf-8"))
    assert "<!--" not in said
    answers = re.findall(r"^\|[^|\n]+\|default\|(\d+)\|", said, re.M)
    assert len(answers) == 10
    assert answers[0] == "100"


@pytest.mark.parametrize("place", PLACES)
def test_our_answer_today_holds_the_truth(place: int):
    q, (low, high) = KNOWN["questions"][place], KNOWN["truths"][place]["truth"]
    ours = league.PEERS[league.OURS](q, False)
    assert ours is not None
    kind, _ = league.verdict({"answer": ours, "cpu": 0}, [low, high], q["ask"])
    assert kind in ("inside", "safe")
    stored = KNOWN["libraries"][league.OURS]["answers"][place][0]
    assert kind == league.verdict(stored, [low, high], q["ask"])[0]


@pytest.mark.parametrize("place", [8, 25, 26, 45, 60])
def test_a_truth_is_found_again_by_both_routes(place: int):
    again = league.truth(KNOWN["questions"][place])
    assert again["routes"] == KNOWN["truths"][place]["routes"]
    assert again["truth"] == pytest.approx(KNOWN["truths"][place]["truth"], rel=1e-9)


@pytest.mark.parametrize(("answer", "ends", "said"), [
    ([0.9], [1, 1.0001], ("unsafe", 0.1)),
    ([0.5, 1.5], [1, 1], ("safe", 0.5)),
    ([1.2, 1.5], [1, 1], ("unsafe", 0.2)),
    ([1 + 1e-8], [1, 1], ("inside", 1e-8)),
    ([2], [1, math.inf], ("safe", 1)),
    ([math.inf], [1, 1], ("no answer", math.nan)),
])  # fmt: skip
def test_an_answer_is_judged_by_the_interval_of_the_truth(answer, ends, said):
    kind, size = league.verdict({"answer": answer, "cpu": 0}, ends, "epsilon")
    assert kind == said[0]
    assert size == pytest.approx(said[1], nan_ok=True)


def test_a_sum_over_all_outcomes_meets_a_convolution_in_fractions():
    """Three randomized responses of four values, added up one by one."""
    from fractions import Fraction

    law, _, _ = league.one_release("response", [math.log(2), 4])
    exact = {1: Fraction(2, 5), 0: Fraction(2, 5), -1: Fraction(1, 5)}
    assert {j: float(mass) for j, mass in law.items()} == pytest.approx(exact)
    total = {0: Fraction(1)}
    for _ in range(3):
        total = {
            s: sum(total.get(s - j, Fraction(0)) * exact[j] for j in exact)
            for s in range(min(total) - 1, max(total) + 2)
        }
    ours = league.convolved(law, 3)
    assert {s: float(mass) for s, mass in ours.items()} == pytest.approx(
        {s: float(mass) for s, mass in total.items()}
    )
