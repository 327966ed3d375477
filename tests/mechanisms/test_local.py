"""Local reports: their curves, their estimates, and how far these spread."""

import math
from fractions import Fraction

import numpy as np
import pytest

import neyman as ny
from neyman.noise import Bits

KINDS = (
    ny.CategoryResponse,
    ny.HadamardResponse,
    ny.UnaryEncoding,
    lambda e, k: ny.UnaryEncoding(e, k, optimised=True),
)


class Seeded(Bits):
    """Words of a seeded generator."""

    def __init__(self, seed):
        self.generator = np.random.Philox(seed)

    def words(self, n):
        """So many."""
        return np.atleast_1d(self.generator.random_raw(n)).astype(np.uint64)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1.0, 4, 20])
def test_no_more_than_epsilon_is_told(make, epsilon):
    answer = make(epsilon, 5).tradeoff().pure()
    assert answer.upper <= float(epsilon) * (1 + 1e-12)
    assert answer.lower >= float(epsilon) * (1 - 1e-9)
    assert make(epsilon, 5).tradeoff().delta(epsilon=0.05).upper <= ny.pure(epsilon).delta(
        epsilon=0.05
    ).upper * (1 + 1e-9)


def test_curves_are_those_of_their_pairs():
    for level in (0.01, 0.2):
        ours = ny.CategoryResponse(1.5, 4).tradeoff().power(level=level)
        other = ny.RandomizedResponse(1.5, 4).tradeoff().power(level=level)
        assert math.isclose(ours.upper, other.upper, rel_tol=1e-9)
        ours = ny.UnaryEncoding(1.5, 4).tradeoff().power(level=level)
        other = (ny.RandomizedResponse(0.75) * 2).tradeoff().power(level=level)
        assert math.isclose(ours.upper, other.upper, rel_tol=1e-9)
    # one report of the Hadamard entry: half of the columns tell nothing
    e = math.exp(1.5)
    delta = ny.HadamardResponse(1.5, 4).tradeoff().delta(epsilon=0.0)
    assert math.isclose(delta.upper, 0.5 * (e - 1) / (e + 1), rel_tol=1e-9)


def assert_spread(make, categories, runs):
    """Means are within 5.5 standard errors (false alarm below 1e-6 in all)."""
    mechanism, people = make(1.2, categories), 60
    held = np.minimum(np.arange(people) % 4, categories - 1)
    reports = mechanism.report(np.tile(held, runs), Seeded(20_261_120))
    result = np.array([mechanism.frequencies(r) for r in np.split(reports, runs)])
    shares = np.bincount(held, minlength=categories) / people
    assert np.allclose(result.sum(axis=1).mean(), 1, atol=0.2)
    for v, share in enumerate(shares):
        variance = mechanism.variance(float(share), people)
        assert abs(result[:, v].mean() - share) < 5.5 * math.sqrt(variance / runs)
        # the variance of a variance is about 2 variance^2 / runs: six deviations, and twelve
        allowed = max(0.12, 6 * math.sqrt(2 / runs))
        assert math.isclose(result[:, v].var(), variance, rel_tol=allowed)


def test_a_thousand_estimates_of_each_kind_spread_as_they_say():
    for make in KINDS:
        assert_spread(make, 3, 1000)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("categories", [2, 3, 8])
def test_estimates_are_unbiased_and_spread_as_they_say(make, categories):
    assert_spread(make, categories, 20_000)


@pytest.mark.parametrize("make", KINDS)
def test_one_report_has_the_stated_law(make):
    mechanism, n = make(1.0, 2), 200_000
    bits = Seeded(7)
    zero, one = (mechanism.report(np.full(n, v), bits).reshape(n, -1) for v in (0, 1))
    keys = np.unique(np.concatenate([zero, one]), axis=0)
    p = np.array([(zero == key).all(axis=1).mean() for key in keys])
    q = np.array([(one == key).all(axis=1).mean() for key in keys])
    variation = 0.5 * np.abs(p - q).sum()
    # each of at most 4 outcomes errs by less than 6 deviations, each at most sqrt(1 / 2n)
    assert abs(variation - mechanism.tradeoff().delta(epsilon=0.0).upper) < 4 * 6 / math.sqrt(4 * n)


def test_descriptions_and_refusals():
    for make in KINDS:
        mechanism = make(Fraction(3, 2), 9)
        assert ny.Mechanism.from_json(mechanism.to_json()) == mechanism
        with pytest.raises(ValueError, match="values"):
            mechanism.report([0, 9], Seeded(1))
        with pytest.raises(TypeError, match="values"):
            mechanism.report([0.5], Seeded(1))
        for epsilon in (0, -1, 41):
            with pytest.raises(ValueError, match="epsilon"):
                make(epsilon, 3)
        assert len(mechanism.report([], Seeded(1))) == 0
        assert mechanism.frequencies(mechanism.report([1] * 50)).shape == (9,)  # on secure bits


def test_a_mean_is_that_of_the_frequencies():
    mechanism = ny.CategoryResponse(30, 3)
    reports = mechanism.report(np.array([0, 0, 1, 2]), Seeded(3))
    assert math.isclose(mechanism.mean(reports, [1.0, 2.0, 4.0]), 2.0, rel_tol=1e-6)
