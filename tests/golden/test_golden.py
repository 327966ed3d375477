"""Certified numbers, engines, and JSON of many cases are, bit by bit, what the golden file says.

A change of the code that changes no number leaves the file as it is. A change that improves a
number rewrites the file (``make record-golden``), and its commit says why.
"""

import json
import math

import pytest
from cases import CASES, CURVES
from record import ENVIRONMENT, FILE, recorded

CONTENT = json.loads(FILE.read_text(encoding="utf-8"))
RECORD = CONTENT["cases"]


def test_every_case_is_recorded_and_no_other():
    assert list(RECORD) == [*CASES, *CURVES]


@pytest.fixture(scope="module")
def numbers():
    return recorded()


@pytest.mark.parametrize("expression", [*CASES, *CURVES])
def test_numbers_are_those_of_the_golden_file(expression, numbers):
    """Bit by bit on every x86-64 processor; with other versions of the libraries, to 1e-9."""
    result, expected = numbers[expression], RECORD[expression]
    if CONTENT["environment"] == ENVIRONMENT:
        assert result == expected
        return
    assert list(result) == list(expected)
    for question, text in expected.items():
        # Where one end is unknown, a search has put the other, along a curve that is flat there.
        relative = 1e-6 if "-inf" in text else 1e-9
        for one, other in zip(result[question].split(" "), text.split(" "), strict=True):
            assert one == other or close(one, other, relative), question


def close(one, other, relative):
    """Return True if two hexadecimal floats are equal but for the rounding of another build."""
    if "0x" not in one or "0x" not in other:
        return False
    return math.isclose(float.fromhex(one), float.fromhex(other), rel_tol=relative, abs_tol=1e-12)
