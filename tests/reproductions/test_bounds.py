"""Composition theorems by name, against sums of exact numbers and the mechanisms they speak of."""

from __future__ import annotations

import math
from fractions import Fraction as F
from itertools import product

import mpmath
import pytest

import neyman as ny
from reproductions import composition_bounds as bounds

mpmath.mp.dps = 40


def response_delta(epsilons, deltas, epsilon):
    """delta(epsilon) of randomized responses with failures, outcome by outcome."""
    e = mpmath.mpf(epsilon)
    selection = mpmath.mpf(1)
    for d in deltas:
        selection *= 1 - mpmath.mpf(d)
    total = mpmath.mpf(0)
    for signs in product((1, -1), repeat=len(epsilons)):
        p = q = mpmath.mpf(1)
        for s, each in zip(signs, epsilons, strict=True):
            t = mpmath.e ** mpmath.mpf(each)
            p *= (t if s > 0 else 1) / (1 + t)
            q *= (1 if s > 0 else t) / (1 + t)
        total += max(p - mpmath.e**e * q, 0)
    return 1 - selection * (1 - total)


def test_basic_composition_adds_exactly():
    result = bounds.basic([0.1] * 30, [1e-7] * 30)
    assert (result.epsilon.lower, result.epsilon.upper) == (3.0, 3.0)
    assert result.delta.lower <= 3e-6 <= result.delta.upper
    assert F(result.delta.upper) >= F(3, 10**6) >= F(result.delta.lower)
    assert result.tradeoff().delta(3).upper >= 3e-6


def test_advanced_composition_is_its_formula():
    for epsilon, count, slack in (("0.1", 30, "1e-6"), ("0.01", 5000, "1e-9"), ("2", 3, "0.5")):
        result = bounds.advanced(epsilon, "1e-9", count, slack)
        e = mpmath.mpf(epsilon)
        value = e * mpmath.sqrt(2 * count * mpmath.log(1 / mpmath.mpf(slack)))
        value += count * e * mpmath.expm1(e)
        assert result.epsilon.lower <= value <= result.epsilon.upper
        assert result.epsilon.width < 1e-13 * value
        assert result.delta.lower <= count * 1e-9 + float(slack) <= result.delta.upper * (1 + 1e-15)


def test_optimal_composition_of_thirty():
    result = bounds.optimal(0.1, 0, 30, 1e-6)
    assert result.width < 1e-10
    assert round(result.upper, 5) == 2.34589


@pytest.mark.parametrize(("count", "delta"), [(1, 0.0), (6, 0.0), (9, 1e-8)])
def test_optimal_composition_is_randomized_response(count, delta):
    """At the ends of the epsilon, delta is just what was asked for."""
    result = bounds.optimal(F(1, 4), delta, count, 1e-6)
    low = response_delta([0.25] * count, [delta] * count, max(result.lower - 1e-10, 0))
    high = response_delta([0.25] * count, [delta] * count, result.upper)
    assert low >= mpmath.mpf(1e-6) >= high


@pytest.mark.parametrize("target", [1e-9, 1e-6, 1e-3])
def test_different_guarantees_compose_like_their_pairs(target):
    epsilons, deltas = [0.1, 0.3, 0.31, 0.5, 0.123456, 0.7, 0.1], [0, 1e-10, 0, 2e-10, 0, 0, 0]
    result = bounds.heterogeneous(epsilons, deltas, target)
    assert response_delta(epsilons, deltas, result.lower - 1e-9) >= mpmath.mpf(target)
    assert response_delta(epsilons, deltas, result.upper) <= mpmath.mpf(target)


def test_equal_guarantees_are_a_case_of_different_ones():
    assert bounds.heterogeneous([0.1] * 30, None, 1e-6) == bounds.optimal(0.1, 0, 30, 1e-6)


def test_the_optimum_is_never_above_the_older_theorems():
    for epsilon, count in ((0.01, 400), (0.1, 30), (0.5, 4), (1.0, 1)):
        delta, slack = 1e-9, 1e-6
        old = bounds.advanced(epsilon, delta, count, slack)
        sums = bounds.basic([epsilon] * count, [delta] * count)
        exact = bounds.optimal(epsilon, delta, count, old.delta.upper)
        assert exact.lower <= old.epsilon.upper
        assert exact.lower <= sums.epsilon.upper


def test_what_the_deltas_cannot_pay_for_is_infinite():
    assert bounds.optimal(0.1, 1e-3, 10, 1e-3).upper == math.inf
    assert bounds.heterogeneous([0.1, 0.2], [1e-3, 0], 0.0).upper == math.inf
    assert bounds.optimal(0.1, 1e-3, 0, 0.0).upper == 0
    assert bounds.advanced(1000, 0, 2, 0.1).epsilon.upper == math.inf


def test_gaussian_composition_is_pythagoras():
    assert bounds.gaussian([3, 4]) == ny.Bound(5.0, 5.0, "upper", "sum of squares")
    result = bounds.gaussian([0.1] * 7)
    assert F(result.lower) ** 2 <= F(7, 100) <= F(result.upper) ** 2
    assert result.upper <= math.nextafter(result.lower, 1)
    assert bounds.gaussian([]).upper == 0


def test_the_textbook_sigma_is_its_formula():
    result = bounds.textbook_sigma(0.5, 1e-5, 3)
    value = 3 * mpmath.sqrt(2 * mpmath.log(mpmath.mpf("1.25") / mpmath.mpf("1e-5"))) / 0.5
    assert result.lower <= value <= result.upper
    assert result.width < 1e-13 * value


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1, 0.9])
def test_the_textbook_keeps_its_promise_below_one(epsilon, delta):
    sigma = bounds.textbook_sigma(epsilon, delta)
    assert ny.Gaussian(sigma.lower).tradeoff().delta(epsilon).upper <= delta
    assert bounds.textbook_waste(epsilon, delta).lower > 1


def test_the_waste_is_the_ratio_to_the_exact_sigma():
    """Between the ends lies the sigma at which delta is what was asked, with forty digits."""
    epsilon, delta = mpmath.mpf("0.5"), mpmath.mpf("1e-5")

    def missing(sigma):
        mu = 1 / sigma
        left, right = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return mpmath.ncdf(left) - mpmath.exp(epsilon) * mpmath.ncdf(right) - delta

    exact = mpmath.findroot(missing, (7.0, 7.1))
    ratio = mpmath.sqrt(2 * mpmath.log(mpmath.mpf("1.25") / delta)) / epsilon / exact
    result = bounds.textbook_waste("0.5", 1e-5)
    assert result.lower <= ratio <= result.upper
    assert result.width < 1e-8


def test_where_the_textbook_starts_to_break():
    assert bounds.textbook_waste("8.4197", 1e-5).lower > 1
    assert bounds.textbook_waste("8.4198", 1e-5).upper < 1


def test_the_textbook_breaks_its_promise_for_a_large_epsilon():
    result = bounds.textbook_waste(20, 1e-5)
    assert result.upper < 1
    sigma = math.sqrt(2 * math.log(1.25e5)) / 20
    assert ny.Gaussian(sigma).tradeoff().delta(20).lower > 1e-5


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: bounds.basic([-0.1]), r"epsilons\[0\] = -0.1"),
        (lambda: bounds.basic([0.1], [2]), r"deltas\[0\] = 2"),
        (lambda: bounds.basic([0.1], [0, 0]), "1 and 2 entries"),
        (lambda: bounds.advanced(0.1, 0, 3, 0), "slack = 0"),
        (lambda: bounds.advanced(0.1, 0, -3, 0.1), "count = -3"),
        (lambda: bounds.optimal(0.1, 1, 3, 0.1), "delta = 1"),
        (lambda: bounds.gaussian([1, -1]), r"mus\[1\] = -1"),
        (lambda: bounds.textbook_sigma(1, 1e-5), "epsilon = 1 must be above 0 and below 1"),
        (lambda: bounds.textbook_sigma(0.5, 0), "delta = 0"),
        (lambda: bounds.textbook_sigma(0.5, 1e-5, 0), "sensitivity = 0"),
        (lambda: bounds.textbook_sigma(1e-300, 0.5, 1e300), "sensitivity / epsilon"),
        (lambda: bounds.textbook_waste(0, 1e-5), "epsilon = 0"),
    ],
)
def test_refusals_name_the_argument(ask, said):
    with pytest.raises(ValueError, match=said):
        ask()
