"""Bounds: what they refuse and what they print. Roots: certified brackets. Arguments: refusals."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.roots import falls_to, least

tries = settings(max_examples=300, deadline=None, derandomize=True)
reals = st.floats(1e-300, 1e15)


def test_a_bound_refuses_crossed_ends_nan_and_an_unknown_safe_side():
    for low, high in ((2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)):
        with pytest.raises(ValueError, match="lower"):
            Bound(low, high)
    with pytest.raises(ValueError, match="safe"):
        Bound(0.0, 1.0, "both")  # type: ignore[arg-type]


def test_a_bound_has_no_order_and_no_arithmetic():
    a, b = Bound(1.0, 2.0), Bound(3.0, 4.0)
    for use in (lambda: a < b, lambda: a + b, lambda: a * 2):
        with pytest.raises(TypeError):
            use()


def test_float_is_the_safe_end():
    assert float(Bound(1.0, 2.0)) == 2.0
    assert float(Bound(1.0, 2.0, "lower")) == 1.0


@tries
@given(reals, st.floats(1e-16, 1))
def test_what_is_printed_is_never_on_the_unsafe_side(low, width):
    high = low * (1 + width)
    assume(high > low)
    up, down = str(Bound(low, high)), str(Bound(low, high, "lower"))
    for said, bound, unsafe in ((up, high, low), (down, low, high)):
        if said.startswith("between"):
            below, above = said.removeprefix("between ").split(" and ")
            assert F(below) <= F(low)
            assert F(high) <= F(above)
        else:
            assert F(said) == bound or (F(said) > bound) == (bound > unsafe)


@tries
@given(reals)
def test_a_number_known_exactly_prints_on_the_safe_side_too(x):
    assert float(str(Bound(x, x))) >= x  # what is printed reads back as no less
    assert float(str(Bound(x, x, "lower"))) <= x


@tries
@given(st.floats(-50, 50), st.floats(0.01, 5))
def test_a_falling_function_is_bracketed_at_evaluated_points(root, slope):
    def f(x):
        return -math.tanh(slope * (x - root))

    low, high = falls_to(f, 0.0, -100.0, 100.0)
    assert f(low) > 0 >= f(high)
    assert high - low <= 1e-11 * max(1.0, abs(high))


def test_a_step_function_is_bracketed_at_its_step():
    low, high = falls_to(lambda x: 1.0 if x < 1 / 3 else -1.0, 0.0, 0.0, 1.0)
    assert low < 1 / 3 <= high
    assert high - low < 1e-11


@tries
@given(st.floats(-5, 5))
def test_the_least_place_of_a_unimodal_function_is_found(place):
    assert abs(least(lambda x: abs(x - place), -10.0, 10.0) - place) < 1e-6


NOT_NUMBERS = ["1", True, None, [1], 1j, np.bool_(True), np.array([1.0]), type]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_no_real_number_is_a_type_error_with_the_name(value):
    for ask in (check.finite, check.positive, check.non_negative, check.probability):
        with pytest.raises(TypeError, match="argument"):
            ask("argument", value)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        10**400,
        F(10**400),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        np.float64("nan"),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_what_is_not_finite_is_a_value_error_with_the_name(value):
    for ask in (check.finite, check.positive, check.non_negative, check.probability):
        with pytest.raises(ValueError, match="argument"):
            ask("argument", value)


def test_exact_reads_decimals_as_they_are_written():
    for value in (0.1, "0.1", Decimal("0.1"), F(1, 10), "1/10", np.float64(0.1)):
        assert check.exact("argument", value) == F(1, 10)
    for value in ("x", "", math.nan, math.inf, Decimal("NaN"), Decimal("sNaN"), "1/0"):
        with pytest.raises(ValueError, match="argument"):
            check.exact("argument", value)
    for value in (True, None, [1], 1j):
        with pytest.raises(TypeError, match="argument"):
            check.exact("argument", value)


def test_whole_refuses_floats_and_truth_values_but_not_numpy_integers():
    assert check.integer("argument", np.int64(3)) == 3
    for value in (1.0, True, "1", F(2)):
        with pytest.raises((TypeError, ValueError), match="argument"):
            check.integer("argument", value)
    with pytest.raises(ValueError, match="argument"):
        check.integer("argument", -1)


def test_a_function_that_is_level_between_its_ends_still_ends_in_a_bracket():
    """A stated difference may be gone when both ends are asked again: no division by zero."""
    answers = iter([1.0, -1.0, *([1.0] * 400)])

    def forgetful(x: float) -> float:
        del x
        return next(answers)

    low, high = falls_to(forgetful, 0.0, 1.0, 2.0)
    assert 1.0 <= low <= high <= 2.0
    level = falls_to(lambda x: 69.0 + 0 * x, 0.0, 9.3, 9.5)
    assert 9.3 <= level[0] <= level[1] <= 9.5
