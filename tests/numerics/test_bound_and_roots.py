"""Bounds: what they refuse and what they print. Roots: certified brackets. Arguments: refusals."""

import math
import operator
from decimal import Decimal
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Bound
from neyman.numerics import bisect, bisect_integers, check, falls_to, least

tries = settings(max_examples=300)
reals = st.floats(1e-300, 1e15)


@given(
    st.one_of(st.integers(), st.sampled_from([10**400, -(10**400), 2**53 + 1]), st.fractions()),
    st.sampled_from([int, F, Decimal]),
)
def test_an_end_of_any_exact_kind_becomes_a_float_and_never_the_unsafe_one(end, kind):
    """Also where no float is as large; each text of it is a number."""
    given_end = end if isinstance(end, F) and kind is not F else kind(end)
    bound = Bound(given_end, given_end)
    assert type(bound.lower) is type(bound.upper) is float
    assert bound.lower <= given_end <= bound.upper
    assert math.nextafter(bound.lower, math.inf) >= bound.upper
    for safe in ("lower", "upper"):
        one = Bound(given_end, given_end, safe)
        assert all((str(one), format(one, ".3f"), repr(one), one._repr_html_()))


def test_a_bound_has_no_arithmetic_and_equals_no_plain_number():
    a, b = Bound(1.0, 1.0), Bound(3.0, 4.0)
    for use in (lambda: a + b, lambda: a * 2, lambda: 1 - a, lambda: a < "2", lambda: a > None):
        with pytest.raises(TypeError):
            use()
    assert a != 1.0
    assert a not in [1, 1.0]
    assert a == Bound(1.0, 1.0)
    assert {a, Bound(1.0, 1.0), Bound(1.0, 1.0, "lower")} == {a, Bound(1.0, 1.0, "lower")}


def test_float_is_the_safe_end():
    assert (float(Bound(1.0, 2.0)), float(Bound(1.0, 2.0, "lower"))) == (2.0, 1.0)


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
def test_a_number_known_exactly_reads_back_on_the_safe_side_too(x):
    assert float(str(Bound(x, x))) >= x >= float(str(Bound(x, x, "lower")))


ends = st.floats(allow_nan=False)
specs = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "<30", "*>40", "=+30", " ", "030", "+"]),
    st.sampled_from(["", ","]),
    st.sampled_from(["", ".0", ".1", ".3", ".9", ".14", ".17", ".40"]),
    st.sampled_from(["f", "e", "g", "F", "E", "G", "%"]),
)


@tries
@given(ends, st.one_of(ends, st.just(None)), specs, st.sampled_from(["lower", "upper"]))
@example(0.1, 0.3, ".3f", "upper")
@example(999.5, 999.51, ".3g", "upper")
@example(-1e-9, -1e-10, ".3f", "upper")
@example(0.999, 0.99999, ".2%", "upper")
@example(9.99e22, 9.995e22, ".2e", "upper")
@example(5e-324, 1.0, "g", "lower")
@example(3e-310, 1.0, ".3e", "upper")
def test_a_format_rounds_the_safe_end_toward_the_safe_side(a, b, spec, safe):
    """What is printed is never on the unsafe side, and is the nearest of its form."""
    low, high = (a, a) if b is None else sorted((a, b))
    bound = Bound(low, high, safe)
    end = float(bound)
    text = format(bound, spec).strip("* ").replace(",", "").replace(" ", "")
    if math.isinf(end):
        assert text.replace("0", "").strip("+%").lower() == str(end)
        return
    said = Decimal(text.rstrip("%"))
    if said.is_infinite():  # rounded beyond the floats
        assert abs(end) > 1e307
        assert said > end if safe == "upper" else said < end
        return
    printed = F(said) / (100 if text.endswith("%") else 1)
    read = F(repr(end)) if low == high else F(end)
    sign = 1 if safe == "upper" else -1
    assert sign * (printed - read) >= 0
    places = int(spec.split(".")[1].rstrip("fegFEG%") or 6) if "." in spec else 6
    if text.endswith("%") or spec[-1] in "fF":
        unit = F(10) ** -(places + 2 * text.endswith("%"))
    else:
        digits = places + 1 if spec[-1] in "eE" else max(places, 1)
        unit = F(10) ** (said.adjusted() - digits + 1)
    assert sign * (printed - read) < unit


@tries
@given(ends, st.one_of(ends, st.just(None)), st.integers(-320, 340), st.booleans())
def test_round_goes_to_the_safe_side_and_no_farther(a, b, places, upper):
    low, high = (a, a) if b is None else sorted((a, b))
    bound = Bound(low, high, "upper" if upper else "lower")
    end = float(bound)
    if math.isinf(end):
        assert round(bound, places) == end
        with pytest.raises(OverflowError):
            round(bound)
        return
    rounded = round(bound, places)
    assert rounded >= end if upper else rounded <= end
    if math.isfinite(rounded):
        assert abs(F(rounded) - F(end)) <= F(10) ** -places + F(math.ulp(rounded))
    integer = round(bound)
    assert type(integer) is int
    assert integer == (math.ceil(end) if upper else math.floor(end))


def test_a_format_without_precision_aligns_the_text():
    formats = {"": "0.25", "6": "  0.25", "<6": "0.25  ", "_^8": "__0.25__"}
    assert all(format(Bound(0.25, 0.25), spec) == text for spec, text in formats.items())


numbers = st.one_of(
    st.integers(-5, 5),
    st.fractions(-5, 5),
    st.decimals(-5, 5),
    st.floats(-5, 5),
    st.floats(-5, 5).map(np.float64),
    st.floats(-5, 5, width=32).map(np.float32),
    st.integers(-5, 5).map(np.int8),
    st.sampled_from([math.inf, -math.inf, np.float32(math.inf), np.longdouble(0.1)]),
)
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge]


@tries
@given(st.floats(-5, 5), st.floats(0, 2), numbers, st.sampled_from(COMPARISONS))
def test_a_comparison_answers_exactly_where_every_number_of_the_interval_agrees(low, more, x, than):
    bound = Bound(low, low + more)
    small = isinstance(x, np.int8)
    number = F(int(x) if small else x) if small or isinstance(x, int | F | Decimal) else x
    if not isinstance(number, F):
        number = F(*x.as_integer_ratio()) if np.isfinite(x) else float(x)
    for ask, truths in (
        (lambda: than(bound, x), {than(bound.lower, number), than(bound.upper, number)}),
        (lambda: than(x, bound), {than(number, bound.lower), than(number, bound.upper)}),
    ):
        if len(truths) == 1:
            assert ask() == truths.pop()
        else:
            with pytest.raises(ValueError, match="inside the interval"):
                ask()


@tries
@given(*[st.floats(-3, 3)] * 4, st.sampled_from(COMPARISONS))
def test_two_bounds_compare_where_every_pair_of_their_numbers_agrees(a, b, c, d, than):
    one, other = Bound(*sorted((a, b))), Bound(*sorted((c, d)))
    pairs = {than(x, y) for x in (one.lower, one.upper) for y in (other.lower, other.upper)}
    if len(pairs) == 1:
        assert than(one, other) is pairs.pop()
    else:
        with pytest.raises(ValueError, match="inside the interval"):
            than(one, other)


def test_bounds_refuse_to_compare_with_nan_and_sort_where_they_are_apart():
    apart = [Bound(3.0, 4.0), Bound(1.0, 2.0), Bound(2.5, 2.5)]
    assert sorted(apart) == [apart[1], apart[2], apart[0]]
    assert max(apart) is apart[0]
    assert (np.array([1.0, 5.0]) > apart[0]).tolist() == [False, True]
    for nan in (math.nan, np.float32(math.nan), Decimal("nan")):
        with pytest.raises(ValueError, match="not a number"):
            apart[0] < nan  # noqa: B015


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


def test_exact_reads_decimals_as_they_are_written():
    for value in (0.1, "0.1", Decimal("0.1"), F(1, 10), "1/10", np.float64(0.1)):
        assert check.exact("argument", value) == F(1, 10)
    assert check.integer("argument", np.int64(3)) == 3


def test_a_function_that_is_level_between_its_ends_still_ends_in_a_bracket():
    """A stated difference may be gone when both ends are asked again: no division by zero."""
    answers = iter([1.0, -1.0, *([1.0] * 400)])

    def forgetful(x):
        del x
        return next(answers)

    low, high = falls_to(forgetful, 0.0, 1.0, 2.0)
    assert 1.0 <= low <= high <= 2.0
    level = falls_to(lambda x: 69.0 + 0 * x, 0.0, 9.3, 9.5)
    assert 9.3 <= level[0] <= level[1] <= 9.5


@given(
    st.fractions(1, 100),
    st.sampled_from([float, F]),
    st.booleans(),
    st.sampled_from([{"tolerance": 1e-9}, {"width": 1e-6}, {"rounds": 7}]),
)
def test_bisection_returns_asked_ends_on_their_own_sides(place, kind, rising, limit):
    inside, outside = (kind(-200), kind(200)) if rising else (kind(200), kind(-200))
    asked = {inside: True, outside: False}

    def holds(x):
        asked[x] = x <= place if rising else x >= place
        return asked[x]

    first, last = bisect(holds, inside, outside, **limit)
    assert asked[first]
    assert not asked[last]
    assert len(asked) <= 2 + limit.get("rounds", 400)
    if "rounds" not in limit:
        assert abs(last - first) <= 1e-6


def test_bisection_of_floats_ends_where_nothing_lies_between():
    first, last = bisect(lambda x: x * x <= 2, 1.0, 2.0)
    assert first * first <= 2 < last * last
    assert last == math.nextafter(first, 2)


@given(st.integers(-50, 50), st.integers(1, 10**30), st.booleans())
def test_bisection_of_whole_numbers_finds_the_last_that_holds(place, room, rising):
    step = 1 if rising else -1
    last = bisect_integers(
        lambda k: step * k <= step * place, place - step * (room // 3), place + step * room
    )
    assert last == place


@pytest.mark.parametrize("kind", [np.float64, np.float32, int, F])
def test_the_ends_of_a_bound_are_python_floats(kind):
    bound, third = Bound(kind(1), kind(2)), Bound(F(1, 3), F(1, 3))
    assert type(bound.lower) is type(bound.upper) is float
    assert third.lower < F(1, 3) < third.upper


@pytest.mark.parametrize("text", ["0.5", "1/2"])
def test_every_constructor_reads_a_budget_or_a_size_given_as_text(text):
    half = F(1, 2)
    makers = [
        ny.pure, ny.gdp, ny.zcdp, ny.Laplace, ny.Gaussian, ny.DiscreteLaplace, ny.DiscreteGaussian,
        ny.RandomizedResponse, ny.ExponentialMechanism, ny.InverseSensitivity, ny.Staircase,
        ny.RoundedGaussian, ny.ReportNoisyMax, ny.total_variation,
        lambda x: ny.SparseVector(threshold_scale=x, query_scale=x, answers=1),
        lambda x: ny.approximate(x, x), lambda x: ny.pbdp(x, x), lambda x: ny.tcdp(x, 5),
        lambda x: ny.Laplace(1, x), lambda x: ny.Gaussian(1).subsample(rate=x),
        lambda x: ny.RandomizedResponse(x, 4), lambda x: ny.UnaryEncoding(x, 4),
        lambda x: ny.CategoryResponse(x, 4), lambda x: ny.HadamardResponse(x, 4),
        lambda x: ny.DPSGD(n=100, batch=10, epochs=2, sigma=x),
        lambda x: ny.at_most(x, level="0.05"),
    ]  # fmt: skip
    for make in makers:
        assert make(text) == make(half), make
