"""Blackwell's order between curves: each verdict certified."""

import math
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from function_calls import function_calls
from neyman import Tradeoff
from neyman.curves import Composition, DiscreteGaussianLoss, select
from random_laws import examples

D, RR = ny.DiscreteGaussian, ny.RandomizedResponse
VERDICTS = [
    (ny.gdp(1), ny.gdp(2), "at-least"),
    (ny.pure(1), ny.pure(1), "equal"),
    (ny.Laplace(1).tradeoff(), ny.pure(1), "at-least"),
    (ny.pure(1), ny.Laplace(1).tradeoff(), "at-most"),
    (ny.perfect(), ny.gdp(0.1), "at-least"),
    (D(1).tradeoff(), ny.gdp(1), "incomparable"),
    (D(1).tradeoff(), ny.gdp(1.0459), "at-least"),
    (D(1, 2).tradeoff(), D(1, [(1, 1, 1, 1)]).tradeoff(), "incomparable"),
    (RR(1, 5).tradeoff(), RR(1).tradeoff(), "at-least"),
    (ny.approximate(1, 1e-6), ny.approximate(1, 1e-5), "at-least"),
    *((ny.approximate(1, d), ny.approximate(2, d), "at-least") for d in (1e-3, 1e-6, 1e-12)),
    (ny.approximate(2, 1e-6), ny.approximate(1, 1e-5), "incomparable"),
    (ny.gdp(1), ny.approximate(1, 1e-5), "incomparable"),
]


@pytest.mark.parametrize(("f", "g", "verdict"), VERDICTS)
def test_compare_gives_the_known_verdict(f, g, verdict):
    assert ny.compare(f, g) == verdict


def test_a_curve_that_is_worse_at_one_level_is_never_at_least():
    f = ny.DiscreteGaussian(1, [(2,), (1, 1, 1, 1)]).tradeoff()
    hull = f.symmetric()
    worse = any(hull.power(x).lower > f.power(x).upper for x in (1e-4, 0.01, 0.05))
    assert worse
    assert not hull >= f
    assert ny.compare(hull, f) != "equal"


def test_pure_guarantees_are_compared_exactly_and_in_both_spellings():
    just_more = F(1) + F(1, 10**30)
    for small, large in ((1, just_more), (1, 2)):
        assert ny.pure(small) >= ny.pure(large)
        assert ny.pure(large) <= ny.pure(small)
        assert not ny.pure(large) >= ny.pure(small)


SHIFTS = [[(5,), (4, 3), (3, 3, 2)], [(2,), (1, 1)], [(7,), (1, 6), (5, 5), (4, 4, 4)]]


@settings(max_examples=examples(30))
@given(
    st.sampled_from(SHIFTS), st.sampled_from(SHIFTS), st.fractions(F(1, 2), 300, max_denominator=50)
)
def test_the_worst_of_many_ways_is_that_of_each_of_them_asked(first, second, sigma_squared):
    f = (
        ny.DiscreteGaussian(sigma_squared=sigma_squared, sensitivity=first)
        + ny.DiscreteGaussian(sigma_squared=2 * sigma_squared, sensitivity=second)
    ).tradeoff()
    each = [Tradeoff((way,)) for way in f.alternatives]
    assert len(each) > 3
    levels, epsilons = [1e-9, 1e-3, 0.05, 0.5], np.array([-0.5, 0.0, 0.3, 2.0])
    for ask in (lambda f: f.delta(0.3), lambda f: f.power(0.05), lambda f: f.epsilon(1e-6)):
        ends = [ref.ends(ask(g)) for g in each]
        assert ref.ends(ask(f)) == tuple(map(max, zip(*ends, strict=True)))
    for bound, *ways in zip(f.powers(levels), *(g.powers(levels) for g in each), strict=True):
        assert bound.upper >= max(b.lower for b in ways)
        assert bound.upper == pytest.approx(max(b.upper for b in ways), rel=1e-9)
    above = [g.deltas_above(epsilons) for g in each]
    assert f.deltas_above(epsilons) == pytest.approx(np.max(above, axis=0), rel=1e-9)


@pytest.mark.parametrize("sigma_squared", [101, 10**4, 10**6 + 1, 10**7, 10**9, 10**12])
@pytest.mark.parametrize("ratio", [0.1, 1, 4])
def test_wide_noise_is_hardly_more_than_the_gaussian(sigma_squared, ratio):
    """The proven mu is above what every level shows, and above it by 3 / sigma^2 at most."""
    shift = max(1, round(ratio * math.sqrt(sigma_squared)))
    loss = DiscreteGaussianLoss(F(sigma_squared), shift)
    exact = shift / math.sqrt(sigma_squared)
    assert exact <= loss.mu <= loss.rough_mu * (1 + 2e-6)
    assert loss.rough_mu <= exact * (1 + 3.2 / sigma_squared + 1e-14)
    profile = select(Composition.of([(loss, 1)]))
    curve = ny.gdp(loss.mu)
    for level in (1e-30, 1e-6, 0.05, 0.5, 0.9):
        assert profile.log_power(math.log(level))[0] <= curve.log_power(level).upper


def test_a_pair_whose_second_law_has_outcomes_of_its_own_is_asked():
    """Q can produce what P cannot: no loss is infinite, and a test of level 7/12 has power 1."""
    null, near, far = [F(7, 12), F(5, 12)], [F(1, 3), F(2, 3)], [1, 0]
    pairs = [pair for law in (near, far) for pair in ny.between(null, law).alternatives]
    f = Tradeoff.of(pairs)
    for level in (0.3, 0.5, 6 / 11, 0.7):
        assert f.power(level).upper == max(f.part(c).power(level).upper for c in f.directions)
    for epsilon in (-0.45, -0.2, 0.3):
        each = [float(f.part(c).deltas_above(np.array([epsilon]))[0]) for c in f.directions]
        assert f.deltas_above(np.array([epsilon]))[0] == max(each)
    assert all(f.part(c).gdp().upper == math.inf for c in f.directions[2:])


@pytest.mark.parametrize("ask", [lambda f: f.delta(0.5), lambda f: f.power(0.05)])
def test_what_another_pair_settles_is_not_asked(ask):

    def calls(*shifts):
        pairs = [Composition.of([(DiscreteGaussianLoss(F(100), k), 1)]) for k in shifts]
        return min(function_calls(lambda: ask(Tradeoff.of(pairs))) for _ in range(2))

    assert calls(1, 9, 2, 3) < 2.2 * calls(9)


def test_no_decision_is_made_where_the_truth_is_between_the_ends():
    """Four choices of range 1: two-point mechanisms below, an envelope above."""
    mechanism, better = ny.ExponentialMechanism(1) * 4, ny.ExponentialMechanism("0.98") * 4
    f = mechanism.tradeoff()
    for make, bound in (
        (lambda x: ny.approximate(1, x), f.delta(1)),
        (ny.gdp, f.gdp()),
        (lambda x: ny.at_most(power=x, level=0.05), f.power(0.05)),
    ):
        assert bound.lower * 1.1 < bound.upper < bound.lower * 1.4
        assert not make(math.sqrt(bound.lower * bound.upper)).admits(mechanism)
        assert make(bound.upper * 1.01).admits(mechanism)
    middle = ny.approximate(1, math.sqrt(f.delta(1).lower * f.delta(1).upper))
    assert ny.compare(f, middle) == ny.compare(better.tradeoff(), f) == "undecided"
