"""Orders of a pair: inverse, the larger and the smaller of both, the conjugate, and composition."""

from dataclasses import replace
from fractions import Fraction as F

import exact_polygons as cv
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import neyman as ny
import reference as ref
from neyman import Tradeoff
from random_laws import examples

LEVELS = [0.0, 1e-9, 0.03, 0.11, 0.25, 0.5, 0.7, 0.95, 1.0]
few = settings(max_examples=examples(120))


def points(f):
    return ny.from_points([x for x, _ in f], [y for _, y in f])


def tight(bound, truth, relative=1e-11):
    assert ref.holds(bound, ref.exact(truth), 1.0), (bound, float(truth))
    assert bound.width <= relative * (1 + abs(float(truth)))


@few
@given(cv.curves())
def test_the_inverse_is_that_of_the_curve_with_its_jumps_and_stays_ordered(corners):
    f = points(corners).inverse()
    assert f.ordered
    assert f.inverse() == points(corners)
    for level in LEVELS:
        tight(f(level), cv.inverse(corners, F(level)))


def test_the_inverse_of_a_changed_copy_is_that_of_the_copy():
    pair = points([(F(0), F(9, 10)), (F(1, 5), F(1, 2)), (F(1), F(0))])
    changed = replace(pair.inverse(), alternatives=ny.pure(3).alternatives)
    assert changed.inverse() == Tradeoff(ny.pure(3).alternatives, ordered=True).inverse()


def test_the_inverse_stays_joined():
    hull = points([(F(0), F(9, 10)), (F(1, 5), F(1, 2)), (F(1), F(0))]).symmetric()
    assert hull.inverse().joined
    assert hull.inverse().power(0.1).upper == hull.power(0.1).upper


@few
@given(cv.curves())
def test_mutual_is_the_larger_of_curve_and_inverse(corners):
    f = points(corners).mutual()
    assert not f.ordered
    for level in LEVELS:
        x = F(level)
        tight(f(level), max(cv.value(corners, x), cv.inverse(corners, x)))
    assert f.mutual() is f


@few
@given(cv.curves())
def test_symmetric_is_the_convex_curve_below_both(corners):
    f, hull = points(corners).symmetric(), cv.smallest(corners)
    for level in LEVELS:
        tight(f(level), cv.value(hull, F(level)), 2e-6)


@settings(max_examples=examples(50))
@given(cv.curves(3), st.sampled_from(["mutual", "symmetric"]), st.sampled_from([2, 3]))
def test_what_is_joined_composes_as_the_curve_that_it_is(corners, which, count):
    f = getattr(points(corners), which)() ** count
    total = cv.largest(corners) if which == "mutual" else cv.smallest(corners)
    p, q = cv.times(*cv.masses(total), count)
    for level in (1e-9, 0.03, 0.25, 0.7):
        truth = cv.power(p, q, F(level))
        tight(f.power(level), truth, 1e-8)


def test_a_hull_is_worse_than_its_orders_once_it_composes():
    f = points([(F(0), F(9, 10)), (F(1, 5), F(1, 2)), (F(1), F(0))])
    both = Tradeoff(f.alternatives)
    assert (both.symmetric() ** 2).power(0.1).lower > (both**2).power(0.1).upper


def test_one_order_meets_both_orders_of_a_pair_that_has_none():
    one = points([(F(0), F(9, 10)), (F(1, 5), F(1, 2)), (F(1), F(0))])
    pair = Tradeoff(points([(F(0), F(1)), (F(1, 8), F(1, 2)), (F(1), F(0))]).alternatives)
    power = (one @ pair).power(0.01).upper
    for other in (pair.alternatives[0], pair.alternatives[0].reverse()):
        assert power >= Tradeoff((one.alternatives[0] + other,)).power(0.01).lower


def test_products_of_pairs_put_first_beside_first():
    p, q = [F(6, 14), F(5, 14), F(3, 14)], [F(1, 10), F(2, 5), F(1, 2)]
    r, s = [F(4, 9), F(1, 2), F(1, 18)], [F(3, 5), F(1, 10), F(3, 10)]
    for a, b in ((r, s), (s, r)):
        total = [x * y for x in p for y in a], [x * y for x in q for y in b]
        f = ny.between(p, q) @ ny.between(a, b)
        for level in (0.01, 0.1, 0.3):
            truth = max(cv.power(*total, F(level)), cv.power(*total[::-1], F(level)))
            tight(f.power(level), truth)


def test_several_curves_of_every_order_meet_each_others_inverses():
    a = [(F(0), F(9, 10)), (F(1, 5), F(1, 2)), (F(1), F(0))]
    b = [(F(0), F(1)), (F(1, 8), F(1, 2)), (F(1), F(0))]
    f = Tradeoff(points(a).alternatives + points(b).alternatives, ordered=True).mutual()
    for level in LEVELS:
        x = F(level)
        truth = min(max(cv.value(u, x), cv.inverse(v, x)) for u in (a, b) for v in (a, b))
        tight(f(level), truth)


@few
@given(cv.curves(), st.sampled_from([-50.0, -7.0, -2.0, -1.0, -0.5, -0.03, 0.0, 0.4, 3.0]))
def test_the_conjugate_is_the_largest_of_the_corners(corners, slope):
    f = points(corners)
    tight(f.conjugate(slope), max(F(slope) * x - y for x, y in corners))
    assert f.conjugate(slope).safe == "upper"


def test_the_conjugate_of_a_gaussian_curve_is_its_delta_less_one():
    result = ny.gdp(1).conjugate(-2.0)
    assert ref.holds(result, ref.gaussian_delta(1, mp.log(2)) - 1)
    assert result.width < 1e-12


def test_mutual_of_one_order_of_a_sampled_gaussian_against_mpmath():
    """The smaller of m and its mirror image, m that of (1 - q) N(0, 1) + q N(d, 1) and N(0, 1)."""
    q, d = mp.mpf(1) / 10, mp.mpf(5) / 4
    pair = ny.Gaussian(sigma=0.8).subsample(rate=0.1).tradeoff()

    def tail(x):
        return mp.erfc(x / mp.sqrt(2)) / 2

    def mixed(z):
        return (1 - q) * tail(z) + q * tail(z - d)

    def place(of, target):
        """z with of(z) = target, by bisection."""
        low, high = mp.mpf(-12), mp.mpf(12)
        for _ in range(150):
            z = (low + high) / 2
            low, high = (z, high) if of(z) > target else (low, z)
        return z

    for c in pair.directions:
        f = Tradeoff((c,), ordered=True).mutual()
        assert f.pure().upper == pytest.approx(float(-mp.log(1 - q)), rel=1e-9)
        for level in (1e-12, 1e-4, 0.05, 0.3, 0.6, 0.99):
            a = mp.mpf(level)
            ahead = mixed(place(tail, a))
            behind = 1 - tail(place(mixed, 1 - a))
            power = f.power(level)
            assert ref.holds(power, min(ahead, behind), 1e-6)


def test_mutual_is_at_least_as_private_as_the_hull():
    f = points([(F(0), F(9, 10)), (F(1, 5), F(1, 2)), (F(1), F(0))])
    assert f.mutual() >= f.symmetric()


@pytest.mark.parametrize("exact_first", [True, False])
def test_the_larger_of_an_exact_and_an_enclosed_curve_has_the_smaller_power(exact_first):
    """Each of the two curves is its own inverse, and so stays what it is."""
    coins = ny.between([F(3, 4), F(1, 4)], [F(1, 4), F(3, 4)])
    pair = coins.alternatives[0], ny.gdp(1).alternatives[0]
    f = Tradeoff(pair if exact_first else pair[::-1], ordered=True).mutual()
    (larger,) = (f.part(c) for c in f.alternatives if c not in pair)
    levels = np.linspace(0.01, 0.99, 99)
    truth = np.minimum(ndtr(ndtri(levels) + 1), np.minimum(3 * levels, 1 - (1 - levels) / 3))
    low, high = np.array([(b.lower, b.upper) for b in larger.powers(levels.tolist())]).T
    assert np.all(low <= truth + 1e-12)
    assert np.all(truth <= high + 1e-12)
    assert np.all(high <= truth + 1e-3)
    assert np.max(high - low) > 1e-9
