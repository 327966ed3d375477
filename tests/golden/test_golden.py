"""Certified numbers, engines, and JSON of many cases are, bit by bit, what the golden file says.

A change of the code that changes no number leaves the file as it is. A change that improves a
number rewrites the file (``make golden``), and its commit says why.
"""

from __future__ import annotations

import json

import pytest
from cases import CASES, CURVES
from record import FILE, answers

RECORD = json.loads(FILE.read_text(encoding="utf-8"))


def test_every_case_is_recorded_and_no_other():
    assert list(RECORD) == [*CASES, *CURVES]


@pytest.mark.parametrize("expression", [*CASES, *CURVES])
def test_numbers_are_those_of_the_golden_file(expression):
    assert answers(expression) == RECORD[expression]
