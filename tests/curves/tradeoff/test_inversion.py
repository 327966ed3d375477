"""Epsilon at a delta inverts delta at an epsilon: tight to one part in 10^12, on the safe side."""

import mpmath as mp
import numpy as np
import pytest

import neyman as ny
from neyman.numerics import falls_to, question_meter

TIGHT = 2e-12

RELEASES = {
    "Gaussian": lambda: ny.Gaussian(sigma=1),
    "Laplace": lambda: ny.Laplace(scale=1),
    "exact sums": lambda: ny.DiscreteGaussian(sigma=3) * 10,
    "lattice of two steps": lambda: (
        ny.DiscreteGaussian(sigma=3) * 2
        + ny.DiscreteGaussian(sigma=5, sensitivity=[(1, 1)])
        + ny.DiscreteGaussian(sigma=300, sensitivity=45)
    ),
    "contour": lambda: ny.Laplace(scale=3) * 10,
    "contour of two kinds": lambda: ny.Laplace(scale=3) * 3 + ny.Gaussian(sigma=4),
    "samples": lambda: ny.Gaussian(sigma=1).subsample(rate=0.01) * 1000,
    "zCDP": lambda: ny.zcdp("3.325"),
    "small": lambda: ny.Gaussian(sigma=5000),
    "promise": lambda: ny.approximate(3, 1e-6),
}


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-11])
@pytest.mark.parametrize("name", RELEASES)
def test_no_smaller_epsilon_is_certified_at_this_delta(name, delta):
    curve = RELEASES[name]().tradeoff()
    epsilon = curve.epsilon(delta=delta).upper
    if epsilon in (0.0, float("inf")):
        assert curve.delta(epsilon=0.0).upper <= delta or curve.pure().upper == epsilon
        return
    assert curve.delta(epsilon=epsilon).upper <= delta * (1 + 1e-13)
    assert curve.delta(epsilon=epsilon * (1 - TIGHT)).upper > delta


@pytest.mark.parametrize("epsilon", [3.0, 1.0, 0.01])
@pytest.mark.parametrize("name", RELEASES)
def test_a_delta_goes_back_to_the_epsilon_that_it_came_from(name, epsilon):
    """Where delta is proven at epsilon 3, the epsilon at that delta is 3 and not 3.0000003."""
    curve = RELEASES[name]().tradeoff()
    delta = curve.delta(epsilon=epsilon).upper
    if 0 < delta < 1:
        assert curve.epsilon(delta=delta).upper <= epsilon * (1 + TIGHT)


@pytest.mark.parametrize("name", RELEASES)
def test_many_epsilons_and_deltas_agree_with_those_asked_alone(name):
    """In any order, with repeats, far out, and about as narrow; one alone is the same number."""
    curve = RELEASES[name]().tradeoff()
    deltas = [1e-7, 0.0, 0.6, 1e-300, *np.geomspace(0.03, 1e-13, 7).tolist(), 1e-7, 0.999]
    epsilons = [2.0, 0.0, 1e9, *np.linspace(0.1, 9, 7).tolist(), 1e13, 2.0]
    for asked, several, alone in (
        (deltas, curve.epsilons, curve.epsilon),
        (epsilons, curve.deltas, curve.delta),
    ):
        answers = several(asked)
        assert several(asked[::-1]) == answers[::-1]
        assert several([]) == []
        assert several(asked[-1:]) == [alone(asked[-1])]
        for value, many in zip(asked, answers, strict=True):
            one = alone(value)
            assert max(many.lower, one.lower) <= min(many.upper, one.upper)
            assert (many.safe, many.method) == (one.safe, one.method)
            if many != one:
                assert many.width <= 4 * one.width + 4e-12 * many.upper


@pytest.mark.parametrize("mu", [0.01, 1, 30])
def test_many_epsilons_of_a_gaussian_curve_hold_its_closed_form(mu):
    deltas = np.geomspace(0.4 * mu / (1 + mu), 1e-290, 60)
    with mp.workdps(40):
        for delta, bound in zip(deltas, ny.gdp(mu).epsilons(deltas), strict=True):
            below, above = (
                mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
                for e in (mp.mpf(bound.lower), mp.mpf(bound.upper))
            )
            assert below >= delta >= above
            assert bound.width <= 1e-11 * bound.upper


def test_a_hundred_epsilons_take_a_tenth_of_the_operations_of_a_hundred_searches():
    """Of training, whose pairs have lines: by the count of operations, not by time."""
    curve = (ny.Gaussian(0.8).subsample(rate=0.004) * 14062).tradeoff()
    counts = []
    for ask in (curve.epsilon, lambda _: curve.epsilons(np.geomspace(1e-3, 1e-12, 100))):
        with question_meter() as meter:
            ask(1e-6)
            counts.append(meter.count)
    assert counts[1] <= 10 * counts[0]


@pytest.mark.parametrize("root", [1e-8, 0.3, 7.0, 4e5])
@pytest.mark.parametrize("cliff", [1.0, 1 + 1e-3])
def test_a_bracket_closes_in_a_few_questions_wherever_the_root_is(root, cliff):
    """Where the function falls to minus infinity behind the root, and from a guess beside it."""
    asked = 0

    def f(x):
        nonlocal asked
        asked += 1
        return root - x if x <= root * cliff else -float("inf")

    low, high = falls_to(f, 0.0, root * 0.5, root * 2, 1e-12, floor=1e-9)
    assert f(low) > 0 >= f(high)
    assert high - low <= 1e-12 * max(1e-9, high)
    assert asked <= 60


def test_an_engine_that_remembers_nothing_searches_once():
    """A second search takes 190 million operations in place of 109."""
    with question_meter() as meter:
        ny.RandomizedResponse(1, 4).shuffle(users=50).tradeoff().epsilon(delta=1e-3)
    assert meter.count < 1.4e8
