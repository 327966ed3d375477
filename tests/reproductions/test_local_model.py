"""The local model beside the central one and beside what no report can beat."""

import itertools
import math
from itertools import pairwise

import numpy as np
import pytest

from neyman import CategoryResponse
from reproductions.local_model import errors as local

EPSILONS = [0.01, 0.5, 1.0, 4.0, 10.0, 30.0, 40.0]


@pytest.mark.parametrize("epsilon", [*EPSILONS, 400.0])
@pytest.mark.parametrize("people", [1, 10, 1000, 10**6])
def test_the_least_error_is_positive_and_within_its_rate(epsilon, people):
    least = local.least_share_error(people, epsilon)
    assert 0 < least <= 0.25
    if epsilon <= 1 and people * epsilon**2 >= 100:
        product = local.encodings(epsilon, 2)["the category itself"]
        assert least <= local.worst_share_error(product, people) < 1.5 * least


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("categories", [2, 256])
@pytest.mark.parametrize("people", [10, 10**6])
def test_no_way_to_report_is_better_than_possible(epsilon, categories, people):
    least = local.least_share_error(people, epsilon, categories)
    for product in local.encodings(epsilon, categories).values():
        assert local.worst_share_error(product, people) >= least
    if epsilon <= 10:  # beyond, the attacker is always right, and no noise is to be compared
        for way in local.compared(epsilon, categories, people):
            assert way.ratio >= 1


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("categories", [2, 5])
def test_the_worst_share_is_the_worst_of_all_shares(epsilon, categories):
    for product in local.encodings(epsilon, categories).values():
        worst = local.worst_share_error(product, 100)
        shares = [i / 1000 for i in range(1001)]
        errors = [product.variance(p, 100) + p * (1 - p) / 100 for p in shares]
        assert max(errors) <= worst * (1 + 1e-12)
        assert max(errors) >= worst * (1 - 1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_the_error_of_a_share_is_that_of_all_samples_and_reports(share):
    mechanism, keep = CategoryResponse(1.0, 2), math.e / (1 + math.e)
    total = 0.0
    for people in itertools.product((0, 1), repeat=3):
        for reports in itertools.product((0, 1), repeat=3):
            chance = math.prod(share if held else 1 - share for held in people)
            chance *= math.prod(
                keep if held == sent else 1 - keep
                for held, sent in zip(people, reports, strict=True)
            )
            total += chance * (mechanism.frequencies(np.array(reports))[1] - share) ** 2
    assert total == pytest.approx(mechanism.variance(share, 3) + share * (1 - share) / 3, rel=1e-9)


def test_the_ratios_on_the_page_are_these():
    """The constants follow from the variances and from van Trees' bound by hand."""
    n = 100_000
    ways = {way.name: way.ratio for way in local.compared(1.0, 2, n)}
    keep, flip = math.e / (math.e + 1), 1 / (math.exp(0.5) + 1)
    spread = {
        "the category itself": keep * (1 - keep) / (2 * keep - 1) ** 2 + 1 / 4,
        "bits, symmetric": flip * (1 - flip) / (1 - 2 * flip) ** 2 + 1 / 4,
        "Hadamard": 1 / math.tanh(1 / 2) ** 2,
    }
    for name, variance in spread.items():
        assert ways[name] == pytest.approx(variance / (n * local.least_share_error(n, 1.0)))
    assert [round(ways[name], 4) for name in spread] == [1.0072, 3.5858, 4.0289]
    wide = {way.name: way.ratio for way in local.compared(4.0, 256, n)}
    assert round(wide["bits, symmetric"], 1) == 1.6


def test_the_least_error_falls_with_people_and_epsilon():
    results = [local.least_share_error(n, 0.1) for n in (10**5, 4 * 10**5, 16 * 10**5)]
    assert all(math.isclose(a, 4 * b, rel_tol=0.07) for a, b in pairwise(results))
    assert local.least_share_error(1000, 1.0) < local.least_share_error(1000, 0.5)


def test_trusting_somebody_pays():
    for c in local.compared(1.0, 16, 100_000):
        assert c.central < c.deviation / 20
