"""Directed rounding: each float is on the stated side of the exact number, and next to it."""

import math
from fractions import Fraction as F

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.numerics import (
    above,
    below,
    down,
    exp_down,
    exp_up,
    log_add,
    log_of,
    product,
    total,
    up,
)

middle = st.floats(1e-130, 1e130) | st.floats(-1e130, -1e-130) | st.just(0.0)
EXACT = [
    sign * (near + part * step)
    for near, step in (
        (F(0), F(5, 10**325)),
        (F(1), F(1, 2**53)),
        (F(1, 3), F(1, 2**54)),
        (F(2**60), F(2**7)),
        (F(1, 2**1070), F(1, 2**1074)),
        (F(10) ** 300, F(10) ** 283),
    )
    for part in (F(0), F(1, 7), F(1, 2), F(6, 7), F(1))
    for sign in (1, -1)
]


@pytest.mark.parametrize("exact", EXACT)
def test_above_and_below_are_the_next_floats_on_the_stated_side(exact):
    high, low = above(exact), below(exact)
    assert F(low) <= exact <= F(high)
    assert F(math.nextafter(high, -math.inf)) < exact
    assert F(math.nextafter(low, math.inf)) > exact


@pytest.mark.parametrize("x", [0.0, 5e-324, 1e-310, 0.1, 1 / 3, 1.0, 1e300, -1.0, -0.1])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_up_and_down_are_so_many_floats_away(x, steps):
    high = low = x
    for _ in range(steps):
        high, low = math.nextafter(high, math.inf), math.nextafter(low, -math.inf)
    assert (up(x, steps), down(x, steps)) == (high, max(low, 0.0))
    assert (up(x), down(x)) == (up(x, 2), down(x, 2))


@given(st.lists(st.tuples(middle, middle), min_size=1, max_size=9))
def test_a_product_and_a_sum_are_exact_with_their_errors(pairs):
    x, y = np.array(pairs).T
    near, error = product(x, y)
    added, missed = total(x, y)
    for k, (a, b) in enumerate(pairs):
        assert F(float(near[k])) + F(float(error[k])) == F(a) * F(b)
        assert F(float(added[k])) + F(float(missed[k])) == F(a) + F(b)


@pytest.mark.parametrize(
    "value", [*(-(10.0**k) for k in range(-17, 3)), *(-k * 0.37 for k in range(40)), -708.3, -744.0]
)
def test_powers_of_e_hold_for_an_argument_that_a_rounding_moved_and_are_close(value):
    unit = mpmath.mpf(2) ** -53
    low, high = mpmath.mpf(exp_down(value)), mpmath.mpf(exp_up(value))
    least, most = mpmath.exp(value * (1 + unit)), mpmath.exp(value * (1 - unit))
    assert low <= least
    assert most <= high
    last = 4 * mpmath.mpf(5e-324)
    assert high - most <= (7 + 2 * abs(value)) * unit * most + last
    assert least - low <= (7 + 2 * abs(value)) * unit * least + last


def test_probabilities_are_at_most_one_and_exactly_zero_where_they_are_certain():
    assert exp_up(0.0) == exp_up(3.0) == 1.0 > exp_down(3.0)
    assert exp_up(-math.inf) == exp_down(-math.inf) == exp_down(-800.0) == 0.0 < exp_up(-800.0)
    assert (log_of(0.0), log_of(0.25)) == (-math.inf, math.log(0.25))


@pytest.mark.parametrize(
    ("x", "y"), [(-1.0, -1.0), (-700.0, -800.0), (-0.1, -40.0), (-math.inf, -3.0)]
)
def test_sums_in_logarithms_are_those_of_the_powers(x, y):
    exact = mpmath.log(mpmath.exp(x) + mpmath.exp(y))
    assert abs(mpmath.mpf(log_add(x, y)) - exact) <= abs(exact) * 4e-16
    assert log_add(x, y) == log_add(y, x)
    assert log_add(-math.inf, -math.inf) == -math.inf
