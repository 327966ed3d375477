"""Blackwell's order between curves: each verdict certified."""

from __future__ import annotations

from fractions import Fraction as F

import pytest

import neyman as ny


@pytest.mark.parametrize(
    ("f", "g", "verdict"),
    [
        (ny.gdp(1), ny.gdp(2), "at-least"),
        (ny.pure(1), ny.pure(1), "equal"),
        (ny.Laplace(1).tradeoff(), ny.pure(1), "at-least"),
        (ny.pure(1), ny.Laplace(1).tradeoff(), "at-most"),
        (ny.perfect(), ny.gdp(0.1), "at-least"),
        (ny.DiscreteGaussian(1).tradeoff(), ny.gdp(1), "incomparable"),
        (ny.DiscreteGaussian(1).tradeoff(), ny.gdp(1.0459), "at-least"),
        (
            ny.DiscreteGaussian(1, 2).tradeoff(),
            ny.DiscreteGaussian(1, [(1, 1, 1, 1)]).tradeoff(),
            "incomparable",
        ),
        (ny.RandomizedResponse(1, 5).tradeoff(), ny.RandomizedResponse(1).tradeoff(), "at-least"),
        (ny.approximate(1, 1e-6), ny.approximate(1, 1e-5), "at-least"),
    ],
)
def test_compare_gives_the_known_verdict(f, g, verdict):
    assert ny.compare(f, g) == verdict


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_a_smaller_epsilon_at_the_same_delta_is_at_least_as_private(delta):
    assert ny.compare(ny.approximate(1, delta), ny.approximate(2, delta)) == "at-least"


def test_guarantees_that_trade_epsilon_for_delta_are_incomparable():
    assert ny.compare(ny.approximate(2, 1e-6), ny.approximate(1, 1e-5)) == "incomparable"
    assert ny.compare(ny.gdp(1), ny.approximate(1, 1e-5)) == "incomparable"


def test_a_curve_that_is_worse_at_one_level_is_never_at_least():
    f = ny.DiscreteGaussian(1, [(2,), (1, 1, 1, 1)]).tradeoff()
    hull = f.symmetric()
    worse = any(hull.power(x).lower > f.power(x).upper for x in (1e-4, 0.01, 0.05))
    assert worse
    assert not hull >= f
    assert ny.compare(hull, f) != "equal"


def test_the_order_holds_in_both_spellings():
    assert ny.pure(1) >= ny.pure(2)
    assert ny.pure(2) <= ny.pure(1)
    assert not ny.pure(2) >= ny.pure(1)


def test_pure_guarantees_are_compared_exactly():
    just_more = F(1) + F(1, 10**30)
    assert ny.pure(1) >= ny.pure(just_more)
    assert not ny.pure(just_more) >= ny.pure(1)


@pytest.mark.parametrize("other", [3, "gdp", None, 1.5])
def test_comparing_with_what_is_no_curve_is_a_type_error(other):
    with pytest.raises(TypeError):
        ny.compare(ny.gdp(1), other)
    with pytest.raises(TypeError):
        _ = ny.gdp(1) >= other
    with pytest.raises(TypeError):
        _ = ny.gdp(1) @ other
