"""Guarantees that come in as profiles, as bounded probabilities, as mixtures."""

import math
from fractions import Fraction as F
from itertools import pairwise, zip_longest

import exact_polygons as cv
import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman import Tradeoff, from_profile, mixture, pbdp
from random_laws import examples

LEVELS = [1e-9, 0.003, 0.03, 0.11, 0.25, 0.5, 0.7, 0.95]
few = settings(max_examples=40)
shares = st.integers(0, 40).map(lambda n: F(n, 40))
epsilons = st.integers(0, 12).map(lambda n: F(n, 4))


def lowest(lines, level):
    x, result = mp.mpf(level), mp.mpf(1)
    for epsilon, delta in lines:
        t, d = mp.exp(ref.exact(epsilon)), ref.exact(delta)
        result = min(result, max(d + t * x, x), max(1 - (1 - d) / t + x / t, x))
    return result


@few
@given(st.dictionaries(epsilons, shares, min_size=1, max_size=5))
def test_a_profile_is_the_lowest_curve_that_keeps_its_points(profile):
    f = from_profile(profile)
    for level in LEVELS:
        power = f.power(level)
        assert ref.holds(power, lowest(profile.items(), level))


@few
@given(st.dictionaries(epsilons, shares, min_size=1, max_size=5))
def test_a_profile_keeps_its_points_and_no_more_than_others_force(profile):
    f = from_profile(profile)
    for epsilon, delta in profile.items():
        assert f.delta(float(epsilon)).lower <= delta
        others = [F(d) for e, d in profile.items() if e <= epsilon]
        assert f.delta(float(epsilon)).upper <= min(others) + F(1, 10**12)


def test_a_profile_taken_from_a_curve_is_never_tighter_than_it():
    g = ny.gdp(1)
    f = from_profile({e: g.delta(e).upper for e in (0, 0.5, 1, 1.5, 2, 3)})
    for level in LEVELS:
        assert f.power(level).upper >= g.power(level).lower
    for e in (0, 0.5, 1, 1.5, 2, 3):
        assert f.delta(e).upper == pytest.approx(g.delta(e).upper, rel=1e-12)


def test_one_point_is_the_named_guarantee():
    assert from_profile({1: 1e-5}) == ny.approximate(1, 1e-5)
    assert from_profile({"0.5": 0}) == ny.pure("0.5")
    assert from_profile({0: 0, 1: 0.2}) == ny.perfect()
    assert from_profile({2: 1}).power(0).upper == 1


def test_two_profiles_are_those_of_the_two_orders():
    corners = [(F(0), F(9, 10)), (F(1, 5), F(1, 2)), (F(1, 2), F(1, 5)), (F(1), F(0))]
    p, q = cv.masses(corners)
    places = [-2.0, -1.0, -0.3, 0.0, 0.4, 1.0, 2.5]

    def delta(a, b, e):
        t = mp.exp(mp.mpf(e))
        return float(sum(max(ref.exact(x) - t * ref.exact(y), 0) for x, y in zip(a, b))) + 1e-15  # noqa: B905

    f = from_profile({e: delta(p, q, e) for e in places}, {e: delta(q, p, e) for e in places})
    both = ny.between(p, q)
    for e in (0.0, 0.4, 1.0, 2.5):
        assert f.delta(e).upper == pytest.approx(both.delta(e).upper, abs=1e-12)
    for level in LEVELS:
        assert f.power(level).upper >= both.power(level).lower
    one = from_profile({e: delta(p, q, e) for e in places}, {0: 1})
    assert one.power(0.25).upper >= f.power(0.25).upper - 1e-12


@st.composite
def bounded_curves(draw):
    """A convex curve through or above both points of pbdp, and what it was made for."""
    epsilon, delta = draw(st.integers(1, 8)), F(draw(st.integers(1, 39)), 40)
    t = F(str(math.exp(epsilon / 4)))
    x, y = sorted((delta / t, 1 - delta))
    low, high = y / (1 - x), (1 - y) / x
    slopes = [low + (high - low) * F(draw(st.integers(0, 10)), 10) for _ in range(2)]
    return epsilon / 4, delta, (x, y), slopes


@few
@given(bounded_curves())
def test_every_curve_that_is_probabilistically_bounded_lies_above(case):
    """max{0, a line through (x, y), the mirror image of another}: the smallest that there are."""
    epsilon, delta, (x, y), (s, r) = case
    f = pbdp(epsilon, delta)
    for level in LEVELS:
        a = F(level)
        curve = max(F(0), y - s * (a - x), x - (a - y) / r)
        assert 1 - float(curve) <= f.power(level).upper + 1e-12


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 0.01, 0.3, 0.6, 0.97])
def test_what_is_probabilistically_bounded_never_comes_out_tighter(epsilon, delta):
    """The hull's delta is the largest of the three curves', its pbdp no less than what came in."""
    f = pbdp(epsilon, delta)
    assert f.pbdp(epsilon).upper >= delta
    t, d = mp.exp(mp.mpf(epsilon)), ref.exact(F(repr(delta)))
    if d * (1 + 1 / t) <= 1:
        leak = 1 - (1 - d) / (1 - d / t)
        for asked in (0.0, 0.5, 2.0):
            s = mp.exp(mp.mpf(asked))
            corner = (t - s) / (1 + t)  # of the pure curve
            truth = max(leak, corner, 1 - s * (1 - leak), 0)
            assert ref.holds(f.delta(asked), truth)


def test_the_hull_of_a_probabilistic_bound_is_an_approximate_guarantee():
    epsilon, delta = mp.mpf(1), mp.mpf("0.01")
    leak = 1 - (1 - delta) / (1 - delta * mp.exp(-epsilon))
    corner = 1 / (1 + mp.exp(epsilon))
    slope = mp.log((1 - leak - corner) / corner)
    f = pbdp(1, "0.01")
    for level in (1e-6, 0.01, 0.2):
        first = leak + mp.exp(slope) * mp.mpf(level)
        assert f.power(level).upper == pytest.approx(float(first), rel=1e-5)
        assert f.power(level).upper >= first
    assert (f**2).power(0.01).upper > f.power(0.01).upper


def test_probabilistic_bounds_at_their_ends():
    assert pbdp(1, 0) == ny.pure(1)
    assert pbdp(1, 1).power(0).upper == 1
    assert pbdp(0, 0.1).power(0.25).upper == pytest.approx(0.25, rel=1e-9)


def test_who_is_named_by_epsilon_delta_is_probabilistically_bounded_with_more():
    """(epsilon, delta)-DP has pbdp 1 - f where f(a) = e^epsilon a crosses: its curve is above."""
    g = ny.approximate(1, 1e-3)
    f = pbdp(2, g.pbdp(2).upper)
    for level in LEVELS:
        assert g.power(level).lower <= f.power(level).upper


def test_a_seen_mixture_has_the_mean_of_the_deltas():
    parts = [ny.gdp(1), ny.pure(1), (ny.Laplace(3) + ny.Gaussian(2)).tradeoff()]
    weights = [F(1, 2), F(3, 10), F(1, 5)]
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        each = [g.delta(epsilon) for g in parts]
        low, high = (
            math.fsum(float(w) * x for w, x in zip(weights, ends, strict=True))
            for ends in ([b.lower for b in each], [b.upper for b in each])
        )
        delta = mixture(weights, parts).delta(epsilon)
        assert ref.meet(delta, (low * (1 - 1e-14), high * (1 + 1e-14)))
        assert delta.upper == pytest.approx(high, rel=1e-4)


@settings(max_examples=examples(30))
@given(cv.curves(2), cv.curves(2), st.integers(1, 9))
def test_seen_mixtures_compose_as_pairs_and_hidden_ones_never_exceed_them(f, g, tenths):
    w = F(tenths, 10)
    draws = [
        Tradeoff.of(ny.from_points([x for x, _ in h], [y for _, y in h]).alternatives, ordered=True)
        for h in (f, g)
    ]
    shown, hidden = (mixture([w, 1 - w], draws, observed=observed) for observed in (True, False))
    observation = shown**2
    sides = [*zip(cv.masses(f), cv.masses(g), strict=True)]
    both = cv.times(*([w * a for a in one] + [(1 - w) * a for a in two] for one, two in sides), 2)
    pairs = [zip_longest(one, two, fillvalue=F(0)) for one, two in sides]
    mixed = [[w * a + (1 - w) * b for a, b in pair] for pair in pairs]
    for level in (0.003, 0.11, 0.5):
        power = observation.power(level)
        assert ref.holds(power, ref.exact(cv.power(*both, F(level))), 1e-4)
        bound = hidden.power(level)
        assert cv.power(*mixed, F(level)) <= F(bound.upper)
        assert bound.upper <= shown.power(level).upper * (1 + 1e-9)
        assert bound.lower <= level
        assert hidden.delta(0.2).lower == 0
    assert "bound" in hidden.method or hidden == draws[0]


def test_mixtures_that_reveal_all_sometimes_are_leaks():
    nothing = ny.NonPrivate().tradeoff()
    f = mixture([0.1, 0.9], [nothing, ny.perfect()])
    assert f.power(0.5).upper == pytest.approx(0.6)
    g = mixture([F(1, 10), F(9, 10)], [nothing, ny.gdp(1)])
    assert g.delta(1).upper == pytest.approx(0.1 + 0.9 * ny.gdp(1).delta(1).upper, rel=1e-6)
    assert g.pure().upper == math.inf


NOTHING = ny.NonPrivate().tradeoff()


@pytest.mark.parametrize(("first", "top"), [(ny.pure(1), 2), (NOTHING, math.inf)])
def test_what_a_hidden_mixture_may_hide_is_not_claimed(first, top):
    f = mixture([0.5, 0.5], [first, ny.pure(2)], observed=False)
    assert (f.pure().lower, f.pure().upper) == (0, top)
    assert (f.renyi(2).lower, f.epsilon(0.01).lower) == (0, 0)


def test_mixtures_of_sums_compose():
    sub = (ny.Gaussian(1).subsample(rate=0.1) * 3).tradeoff()
    f = mixture([0.25, 0.75], [sub, (ny.Laplace(3) * 2).tradeoff()])
    known = 0.25 * sub.delta(0.5).upper + 0.75 * (ny.Laplace(3) * 2).tradeoff().delta(0.5).upper
    assert f.delta(0.5).upper == pytest.approx(known, rel=1e-3)
    assert f.neighboring == "add-remove"
    assert (f**3).delta(0.5).upper > f.delta(0.5).upper


def test_corners_stay_convex():
    f = from_profile({0: 0.3, 0.5: 0.2, 1: 0.1, 2: 0.05})
    powers = [f.power(i / 50).upper for i in range(51)]
    rises = [b - a for a, b in pairwise(powers)]
    assert all(b <= a + 1e-12 for a, b in pairwise(rises))
