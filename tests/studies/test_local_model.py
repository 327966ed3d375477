"""The local model beside the central one and beside what no report can beat."""

import math
from itertools import pairwise

import pytest

from neyman.studies import local


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 30.0, 400.0])
@pytest.mark.parametrize("people", [1, 10, 1000, 10**6])
def test_nothing_beats_the_least_error(epsilon, people):
    """Of two categories every way to report has at least the proven error, and within its rate."""
    least = local.least_share_error(people, epsilon)
    assert 0 < least <= 0.25
    if epsilon <= 40:
        for made in local.encodings(epsilon, 2).values():
            # variances are linear in the share, so that one end is the worst
            worst = max(made.variance(share, people) for share in (0.0, 1.0))
            worst += 0.25 / people  # that the people are a sample themselves
            assert worst >= least
    if epsilon <= 1 and people * epsilon**2 >= 100:
        made = local.encodings(epsilon, 2)["the category itself"]
        assert made.variance(0.5, people) < 20 * least


def test_the_least_error_falls_with_people_and_epsilon():
    """More people or a larger epsilon allow less error; 1 / (n epsilon^2) is the rate."""
    found = [local.least_mean_error(n, 0.1) for n in (1000, 4000, 16000)]
    assert all(math.isclose(a, 4 * b, rel_tol=0.01) for a, b in pairwise(found))
    assert local.least_mean_error(1000, 1.0) < local.least_mean_error(1000, 0.5)


def test_trusting_somebody_pays():
    """At the same attacker power a trusted party errs far less than any report."""
    for c in local.compared(1.0, 16, 100_000):
        assert c.central < c.deviation / 20
        assert c.ratio > 1
