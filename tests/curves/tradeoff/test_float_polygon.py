"""Polygons of floats stay on their side of exact ones, and near them."""

from fractions import Fraction as F
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.curves import hull
from neyman.curves.tradeoff.float_polygon import after_rounded, thinned
from neyman.curves.tradeoff.piecewise_linear import after, rounded
from random_laws import examples

NEAR = F(1, 10**12)  # relative
SMALL = F(1, 10**200)  # of a level, and of a type II error, below which corners move farther


def power_at(polygon, level):
    """The power of a polygon at a level, exactly."""
    for (x0, y0), (x1, y1) in pairwise(polygon):
        if level <= x1:
            return y0 + (y1 - y0) * (level - x0) / (x1 - x0)
    raise AssertionError(level)


def coordinates():
    """Numbers in [0, 1], some of them very near an end."""
    near = st.floats(1e-210, 0.5).map(F)
    tiny = st.integers(1, 210).flatmap(lambda k: st.integers(1, 9).map(lambda d: F(d, 10**k) / 2))
    small = near | tiny
    return small | small.map(lambda x: 1 - x)


def polygons(side):
    """Concave polygons above guessing, of floats."""
    corner = st.tuples(coordinates(), coordinates())
    return st.lists(corner, min_size=0, max_size=9).map(lambda c: rounded(hull(c), side))


@given(polygons(-1), polygons(-1))
@settings(max_examples=examples(600))
def test_a_test_after_another_rounded_down_lies_below_the_exact_one_and_near_it(first, second):
    exact, below = after(first, second), after_rounded(first, second, -1)
    assert all(power <= power_at(exact, level) for level, power in below)
    for level, power in exact:
        least = power_at(below, level)
        if SMALL < level < 1 and power > SMALL and 1 - power > SMALL:
            miss = 1 - power + power * NEAR
            assert least >= power * (1 - NEAR) or 1 - least <= miss * (1 + NEAR)


@given(polygons(1), polygons(1))
@settings(max_examples=examples(600))
def test_a_test_after_another_rounded_up_lies_above_the_exact_one_and_near_it(first, second):
    exact, above = after(first, second), after_rounded(first, second, 1)
    assert all(power_at(above, level) >= power for level, power in exact)
    for level, power in exact:
        if SMALL < level < 1 and power > SMALL and 1 - power > SMALL:
            assert power_at(above, level) <= power * (1 + NEAR) + SMALL


@given(polygons(1), st.sampled_from([-1, 1]))
@settings(max_examples=examples(600))
def test_a_polygon_with_fewer_corners_stays_on_its_side(polygon, side):
    fewer = thinned(polygon, side)
    assert len(fewer) <= len(polygon)
    if side > 0:
        assert all(power_at(fewer, level) >= power for level, power in polygon)
    else:
        assert all(power <= power_at(polygon, level) for level, power in fewer)


def test_fewer_lines_around_a_smooth_curve_stay_close():
    """1,000 lines about the square root: half of them leave a gap of the spacing's square."""
    places = [F(k, 1000) for k in range(1, 1000)]
    curve = rounded(hull((x * x, 2 * x - x * x) for x in places), 1)
    fewer = thinned(curve, 1)
    assert len(fewer) < 0.51 * len(curve)
    gaps = [power_at(fewer, level) - power for level, power in curve]
    assert 0 <= min(gaps) <= max(gaps) < F(2, 10**6)
