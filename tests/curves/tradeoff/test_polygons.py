"""Polygons on either side of a curve, against mpmath and enumeration."""

from fractions import Fraction as F
from itertools import pairwise

import exact_polygons as cv
import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman.curves import Composition, composition_between, enclosed, exponential, hull, mirrored
from neyman.curves.tradeoff.enclosure import _last_corner
from neyman.curves.tradeoff.float_polygon import after_rounded, thinned
from neyman.curves.tradeoff.piecewise_linear import after, rounded
from random_laws import examples


def concave(polygon):
    assert polygon[0][0] == 0
    assert polygon[-1] == (1, 1)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(polygon)]
    assert all(x > y for x, y in pairwise(slopes))
    assert slopes[-1] >= 0


def normal_power(mu, level):
    """1 - power where it is small, so that digits are kept at both ends."""
    if level < 0.5:
        z = ref.quantile(mp.log(level))
    else:
        z = -ref.quantile(mp.log(1 - level))
    return mp.erfc(-(z + mu) / mp.sqrt(2)) / 2, mp.erfc((z + mu) / mp.sqrt(2)) / 2


@pytest.mark.parametrize("mu", [0.01, 1, 5])
def test_a_gaussian_curve_lies_between_its_polygons(mu):
    below, above = enclosed(ny.gdp(mu).alternatives[0])
    mp.mp.dps = 340  # levels near 1 are told from it
    try:
        for polygon, side in ((below, -1), (above, 1)):
            concave(polygon)
            for level, power in polygon[1 : -1 : len(polygon) // 23]:
                if min(level, 1 - power) < F(1, 10**60):
                    continue
                truth, missed = normal_power(mp.mpf(mu), ref.exact(level))
                gap = side * (ref.exact(power) - truth)
                assert gap >= 0
                if min(level, 1 - power) > F(1, 10**12):
                    assert gap <= 1e-4 * min(truth, missed * 1e4)
    finally:
        mp.mp.dps = 60


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [
        (ny.DiscreteGaussian(sigma=2), ref.discrete_gaussian(F(4), 1)),
        (ny.DiscreteLaplace(2, 3), ref.discrete_laplace(F(2), 3)),
        (ny.RandomizedResponse(1, 4), ref.response(F(1), 4)),
        (ny.RandomizedResponse(1, 4) * 3, ref.together(*[ref.response(F(1), 4)] * 3)),
    ],
    ids=["discrete gaussian", "discrete laplace", "response", "three responses"],
)
def test_lattices_are_held_to_rounding(mechanism, law):
    (pair, *_) = mechanism.tradeoff().alternatives
    f = ny.Tradeoff((composition_between(enclosed(pair)),))
    for level in (1e-9, 1e-3, 0.1, 0.5, 0.9):
        power, truth = f.power(level), ref.power(law, level)
        assert ref.holds(power, truth, 1e-10)


def test_a_laplace_curve_keeps_its_corners():
    f = ny.Tradeoff((composition_between(enclosed(ny.Laplace(2).tradeoff().alternatives[0])),))
    e = mp.exp(mp.mpf(1) / 2)
    truths = {1e-9: e * mp.mpf(1e-9), 0.5: 1 - 1 / e / 2, 0.9: 1 - (1 - mp.mpf(0.9)) / e}
    for level, truth in truths.items():
        assert ref.holds(f.power(level), truth)
        assert f.power(level).width <= 1e-10
    assert f.power(0.4).width <= 1e-4


def test_one_test_after_another_is_the_composition_of_powers():
    a = ((F(0), F(1, 10)), (F(1, 4), F(1, 2)), (F(1), F(1)))
    b = ((F(0), F(0)), (F(1, 5), F(3, 5)), (F(4, 5), F(1)), (F(1), F(1)))
    result = after(a, b)
    for level in (F(0), F(1, 50), F(1, 4), F(3, 5), F(1)):
        assert cv.value(result, level) == cv.value(b, cv.value(a, level))
    assert mirrored(mirrored(b)) == b


@pytest.mark.parametrize("epsilon", [F(0), F(1), F(-7, 3), F(1, 10**9), F(900), F(-900)])
def test_powers_of_e_lie_between_two_rationals(epsilon):
    low, high = exponential(epsilon)
    with mp.workdps(100):
        truth = mp.exp(mp.mpf(epsilon.numerator) / epsilon.denominator)
        assert mp.mpf(low.numerator) / low.denominator <= truth
        assert truth <= mp.mpf(high.numerator) / high.denominator
    assert high - low <= high / 10**50


LAST = [(e, d, n) for e in (F(1, 10), F(1), F(7)) for d in (F(0), F(1, 4)) for n in (1, 20)]
LAST += [(F(k, 3), F(1, 10**9), 1) for k in range(10, 90, 7)]
LAST += [(F(1, 1000), F(0), 780), *((480 + F(k, 7), F(0), 1) for k in range(7))]


@pytest.mark.parametrize(("epsilon", "delta", "count"), LAST)
def test_the_last_corner_has_the_mass_of_the_largest_and_of_infinite_loss(epsilon, delta, count):
    """The test that takes the largest loss and what is infinite, just below its exact power."""
    loss = ny.approximate(epsilon, delta).alternatives[0].parts[0][0]
    level, power = _last_corner(Composition.of([(loss, count)]), float(count * epsilon))
    with mp.workdps(400):
        t, d = mp.exp(mp.mpf(epsilon.numerator) / epsilon.denominator), mp.mpf(float(delta))
        top = ((1 - d) * t / (1 + t)) ** count
        least, most = top * t**-count, top + 1 - (1 - d) ** count
        assert least <= mp.mpf(level.numerator) / level.denominator <= least * (1 + 1e-10)
        assert most * (1 - 1e-10) <= mp.mpf(power.numerator) / power.denominator <= most


def test_the_last_corner_of_guessing_is_at_level_1():
    loss = ny.approximate(0, 1e-300).alternatives[0].parts[0][0]
    level, power = _last_corner(Composition.of([(loss, 1)]), 0.0)
    assert level == 1
    assert 1 - F(1, 10**12) < power <= 1


NEAR = F(1, 10**12)  # relative
SMALL = F(1, 10**200)  # of a level, and of a type II error, below which corners move farther


def coordinates():
    """Numbers in [0, 1], some of them very near an end."""
    near = st.floats(1e-210, 0.5).map(F)
    tiny = st.integers(1, 210).flatmap(lambda k: st.integers(1, 9).map(lambda d: F(d, 10**k) / 2))
    small = near | tiny
    return small | small.map(lambda x: 1 - x)


def polygons(side):
    corner = st.tuples(coordinates(), coordinates())
    return st.lists(corner, min_size=0, max_size=9).map(lambda c: rounded(hull(c), side))


@given(polygons(-1), polygons(-1))
@settings(max_examples=examples(600))
def test_a_test_after_another_rounded_down_lies_below_the_exact_one_and_near_it(first, second):
    exact, below = after(first, second), after_rounded(first, second, -1)
    assert all(power <= cv.value(exact, level) for level, power in below)
    for level, power in exact:
        least = cv.value(below, level)
        if SMALL < level < 1 and power > SMALL and 1 - power > SMALL:
            miss = 1 - power + power * NEAR
            assert least >= power * (1 - NEAR) or 1 - least <= miss * (1 + NEAR)


@given(polygons(1), polygons(1))
@settings(max_examples=examples(600))
def test_a_test_after_another_rounded_up_lies_above_the_exact_one_and_near_it(first, second):
    exact, above = after(first, second), after_rounded(first, second, 1)
    assert all(cv.value(above, level) >= power for level, power in exact)
    for level, power in exact:
        if SMALL < level < 1 and power > SMALL and 1 - power > SMALL:
            assert cv.value(above, level) <= power * (1 + NEAR) + SMALL


@given(polygons(1), st.sampled_from([-1, 1]))
@settings(max_examples=examples(600))
def test_a_polygon_with_fewer_corners_stays_on_its_side(polygon, side):
    fewer = thinned(polygon, side)
    assert len(fewer) <= len(polygon)
    if side > 0:
        assert all(cv.value(fewer, level) >= power for level, power in polygon)
    else:
        assert all(power <= cv.value(polygon, level) for level, power in fewer)


def test_fewer_lines_around_a_smooth_curve_stay_close():
    """1,000 lines about the square root: half of them leave a gap of the spacing's square."""
    places = [F(k, 1000) for k in range(1, 1000)]
    curve = rounded(hull((x * x, 2 * x - x * x) for x in places), 1)
    fewer = thinned(curve, 1)
    assert len(fewer) < 0.51 * len(curve)
    gaps = [cv.value(fewer, level) - power for level, power in curve]
    assert 0 <= min(gaps) <= max(gaps) < F(2, 10**6)
