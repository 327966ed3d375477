"""Staircase noise against its density, step by step in mpmath."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import pairwise

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Mechanism
from random_laws import examples

GAMMAS = st.fractions(0, 1, max_denominator=50)
EPSILONS = st.fractions(F(1, 5), 6, max_denominator=20)


def steps(epsilon, gamma, *, count=400):
    """Each step on the positive side: (from, to, density)."""
    b = mpmath.exp(-mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    a = (1 - b) / (2 * (gamma + b * (1 - gamma)))
    for k in range(count):
        yield k, k + gamma, a * b**k
        yield k + gamma, k + 1, a * b ** (k + 1)


def density(x, epsilon, gamma):
    k, rest = divmod(abs(x), 1)
    b = mpmath.exp(-mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    return (1 - b) / (2 * (gamma + b * (1 - gamma))) * b ** (k + (rest >= gamma))


def profile(epsilon, gamma, shift, at):
    """The integral of (p(x) - e^at p(x - shift))+, exact between the places of both densities."""
    reach = int(60 / epsilon) + 4
    places = {F(k) + sign * o for k in range(-reach, reach) for sign in (1, -1) for o in (0, gamma)}
    places = sorted(places | {x + shift for x in places})
    total = mpmath.mpf(0)
    for low, high in pairwise(places):
        middle = (low + high) / 2
        gain = density(middle, epsilon, gamma) - mpmath.exp(at) * density(
            middle - shift, epsilon, gamma
        )
        total += max(gain, 0) * (
            mpmath.mpf(high.numerator) / high.denominator
            - mpmath.mpf(low.numerator) / low.denominator
        )
    return total


@settings(max_examples=examples(24))
@given(EPSILONS, GAMMAS, st.floats(0, 1))
def test_the_curve_is_that_of_the_density_and_its_shift(epsilon, gamma, share):
    at = share * float(epsilon)
    bound = ny.Staircase(epsilon, gamma=gamma).tradeoff().delta(at)
    exact = float(profile(epsilon, gamma, F(1), at))
    assert bound.lower <= exact * (1 + 1e-12) + 1e-14
    assert exact <= bound.upper * (1 + 1e-12) + 1e-14
    assert bound.width <= 1e-9


@settings(max_examples=examples(24))
@given(EPSILONS, GAMMAS, st.fractions(0, 1, max_denominator=30), st.floats(0, 1))
def test_a_smaller_shift_is_never_easier_to_detect(epsilon, gamma, shift, share):
    at = share * float(epsilon)
    bound = ny.Staircase(epsilon, gamma=gamma).tradeoff().delta(at)
    assert float(profile(epsilon, gamma, shift, at)) <= bound.upper * (1 + 1e-12) + 1e-14


def moment(epsilon, gamma, power):
    parts = (
        weight * (mpmath.mpf(high) ** (power + 1) - mpmath.mpf(low) ** (power + 1)) / (power + 1)
        for low, high, weight in steps(epsilon, gamma)
    )
    return 2 * mpmath.fsum(parts)


@pytest.mark.parametrize("epsilon", [F(1, 2), F(1), F(3), F(10), F(90)])
def test_costs_are_those_of_the_density_and_its_gamma_has_the_least(epsilon):
    for cost, power in (("absolute", 1), ("squared", 2)):
        noise = ny.Staircase(epsilon, 2, cost=cost)
        gamma = mpmath.mpf(noise.gamma.numerator) / noise.gamma.denominator
        exact = moment(epsilon, gamma, power) * 2**power
        bound = noise.absolute_error() if power == 1 else noise.variance()
        assert bound.lower <= exact <= bound.upper
        assert bound.width <= 1e-14 * bound.upper
        for away in (-gamma / 100, gamma / 100):
            assert exact < moment(epsilon, gamma + away, power) * 2**power


def test_the_absolute_error_at_epsilon_one_is_the_published_one():
    published = mpmath.exp(mpmath.mpf(1) / 2) / mpmath.expm1(1)
    assert float(ny.Staircase(1).absolute_error()) == pytest.approx(float(published), rel=1e-15)
    assert float(ny.Laplace(1, 1).scale) > ny.Staircase(1).absolute_error().upper


def test_half_a_step_is_randomized_response_and_others_are_more_private():
    pure = ny.pure(1)
    assert ny.compare(ny.Staircase(1, gamma=F(1, 2)).tradeoff(), pure) == "equal"
    for gamma in (0, F(1, 3), F(4, 5), 1):
        assert ny.compare(ny.Staircase(1, gamma=gamma).tradeoff(), pure) == "at-least"


def test_a_description_survives_json():
    noise = ny.Staircase(F(1, 3), 5, cost="squared")
    assert Mechanism.from_json(noise.to_json()) == noise
    with pytest.raises(ValueError, match="gamma"):  # not the best one of some cost
        Mechanism.from_json('{"type": "Staircase", "epsilon": 1, "sensitivity": 1, "gamma": null}')
