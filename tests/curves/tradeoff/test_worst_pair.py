"""The worst of several ordered pairs is that of all of them, however few are asked."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Tradeoff
from neyman.curves import Composition, DiscreteGaussianLoss, select
from neyman.curves.tradeoff.tradeoff import by_decreasing_mu, supremum
from random_laws import examples

SHIFTS = [[(5,), (4, 3), (3, 3, 2)], [(2,), (1, 1)], [(7,), (1, 6), (5, 5), (4, 4, 4)]]


@settings(max_examples=examples(30))
@given(
    st.sampled_from(SHIFTS),
    st.sampled_from(SHIFTS),
    st.fractions(Fraction(1, 2), 300, max_denominator=50),
)
def test_the_worst_of_many_ways_is_that_of_each_of_them_asked(first, second, sigma_squared):
    """Delta, epsilon and power of all are the largest of those of each alternative alone."""
    f = (
        ny.DiscreteGaussian(sigma_squared=sigma_squared, sensitivity=first)
        + ny.DiscreteGaussian(sigma_squared=2 * sigma_squared, sensitivity=second)
    ).tradeoff()
    each = [Tradeoff((way,)) for way in f.alternatives]
    assert len(each) > 3
    levels, epsilons = [1e-9, 1e-3, 0.05, 0.5], np.array([-0.5, 0.0, 0.3, 2.0])
    assert f.delta(0.3).upper == max(g.delta(0.3).upper for g in each)
    assert f.delta(0.3).lower == max(g.delta(0.3).lower for g in each)
    assert f.power(0.05).upper == max(g.power(0.05).upper for g in each)
    assert f.power(0.05).lower == max(g.power(0.05).lower for g in each)
    assert f.epsilon(1e-6).upper == max(g.epsilon(1e-6).upper for g in each)
    assert f.epsilon(1e-6).lower == max(g.epsilon(1e-6).lower for g in each)
    for i, bound in enumerate(f.powers(levels)):
        assert bound.upper >= max(g.powers(levels)[i].lower for g in each)
        assert bound.upper == pytest.approx(max(g.powers(levels)[i].upper for g in each), rel=1e-9)
    above = [g.deltas_above(epsilons) for g in each]
    assert f.deltas_above(epsilons) == pytest.approx(np.max(above, axis=0), rel=1e-9)


def test_what_another_pair_settles_is_not_asked():
    """Of two shifts, one far smaller than the other, only the larger is asked for its own curve."""
    pairs = [
        Composition.of([(DiscreteGaussianLoss(Fraction(100), shift), 1)]) for shift in (1, 9, 2, 3)
    ]
    asked = []

    def ask(losses, profile):
        if profile is select(losses):
            asked.append(losses)
        return profile.log_delta(0.5)

    low, high = supremum(by_decreasing_mu((c, select(c)) for c in pairs), ask)
    assert asked == [pairs[1]]
    assert (low, high) == select(pairs[1]).log_delta(0.5)


@pytest.mark.parametrize("sigma_squared", [101, 10**4, 10**6 + 1, 10**7, 10**9, 10**12])
@pytest.mark.parametrize("ratio", [0.1, 1, 4])
def test_wide_noise_is_hardly_more_than_the_gaussian(sigma_squared, ratio):
    """The proven mu is above what every level shows, and above it by 3 / sigma^2 at most."""
    shift = max(1, round(ratio * math.sqrt(sigma_squared)))
    loss = DiscreteGaussianLoss(Fraction(sigma_squared), shift)
    exact = shift / math.sqrt(sigma_squared)
    assert exact <= loss.mu <= loss.rough_mu * (1 + 2e-6)
    assert loss.rough_mu <= exact * (1 + 3.2 / sigma_squared + 1e-14)
    profile = select(Composition.of([(loss, 1)]))
    curve = ny.gdp(loss.mu)
    for level in (1e-30, 1e-6, 0.05, 0.5, 0.9):
        assert profile.log_power(math.log(level))[0] <= curve.log_power(level).upper


def test_a_pair_whose_second_law_has_outcomes_of_its_own_is_asked():
    """Q can produce what P cannot: no loss is infinite, and a test of level 7/12 has power 1."""
    null, near, far = [Fraction(7, 12), Fraction(5, 12)], [Fraction(1, 3), Fraction(2, 3)], [1, 0]
    pairs = [pair for law in (near, far) for pair in ny.between(null, law).alternatives]
    f = Tradeoff.of(pairs)
    for level in (0.3, 0.5, 6 / 11, 0.7):
        assert f.power(level).upper == max(f.part(c).power(level).upper for c in f.directions)
    for epsilon in (-0.45, -0.2, 0.3):
        each = [float(f.part(c).deltas_above(np.array([epsilon]))[0]) for c in f.directions]
        assert f.deltas_above(np.array([epsilon]))[0] == max(each)
    assert all(f.part(c).gdp().upper == math.inf for c in f.directions[2:])
