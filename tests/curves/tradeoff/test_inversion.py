"""Epsilon at a delta inverts delta at an epsilon: tight to one part in 10^12, on the safe side."""

from __future__ import annotations

import pytest

import neyman as ny
from neyman.curves.tradeoff import queries
from neyman.numerics.roots import falls_to

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
    """The upper end is within delta; one part in 10^12 below it the proven delta is larger."""
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


def test_an_engine_that_remembers_nothing_searches_once(monkeypatch):
    searches = []
    search = queries._searched
    monkeypatch.setattr(queries, "_searched", lambda *a: searches.append(a) or search(*a))
    ny.RandomizedResponse(1, 4).shuffle(users=50).tradeoff().epsilon(delta=1e-3)
    assert len(searches) == 1


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
