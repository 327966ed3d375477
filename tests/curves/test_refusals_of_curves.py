"""Every refusal of curves and numbers: what was asked, and what the message must say."""

import math
from decimal import Decimal
from fractions import Fraction as F

import numpy as np
import pytest
import scipy.stats

import neyman as ny
from neyman import Bound, GaussianMixture, NonPrivate, between, from_points, from_profile, mixture
from neyman.accounting import conversions
from neyman.curves import OffLatticeLoss, garbling, register
from neyman.mechanisms import Choice
from neyman.numerics import check, in_order, order_key, vectors

NAN, INF = math.nan, math.inf
NANS = (NAN, Decimal("NaN"), Decimal("sNaN"), np.float64("nan"))
TINY, HALVES = F(1, 10**20), [0.5, 0.5]
NEXT_TO_ONE = "1." + "0" * 399 + "1"
CURVES = {
    "gaussian": ny.gdp(1),
    "laplace": ny.Laplace(1).tradeoff(),
    "lattice": (ny.RandomizedResponse(1) * 3).tradeoff(),
    "mixture": (ny.RandomizedResponse(1) + ny.Gaussian(1)).tradeoff(),
    "zcdp": ny.zcdp("0.1"),
}
ONE_ORDER = from_points([0, 0.2, 1], [0.9, 0.5, 0])
UP, DOWN = (
    garbling(
        *(
            [math.exp(e) / (1 + math.exp(e)), 1 / (1 + math.exp(e))][::k]
            for e in pair
            for k in (1, -1)
        )
    )
    for pair in ((1, 0.5), (0.5, 1))
)
SEVERAL = ny.DiscreteGaussian(2, [(2, 0), (1, 1)]).tradeoff()
VALUE_ERRORS = [
    # Guarantees in divergences
    ("bounds = {}", lambda: ny.renyi({})),
    ("order = 0.5", lambda: ny.renyi({0.5: 1})),
    ("order = nan", lambda: ny.renyi({NAN: 1})),
    (r"bounds\[2\] = -1", lambda: ny.renyi({2: -1})),
    (r"bounds\[2\] = nan", lambda: ny.renyi({2: NAN})),
    ("twice", lambda: ny.renyi({2: 1, "2": 1})),
    ("order = 10000000000000", lambda: ny.renyi({10**13: 1})),
    (r"bounds\[2\]", lambda: ny.renyi({2: "1e-200"})),
    ("omega = 1", lambda: ny.tcdp(1, 1)),
    ("omega = 0.5", lambda: ny.tcdp(1, 0.5)),
    ("rho = -1", lambda: ny.tcdp(-1, 2)),
    ("rho = -1", lambda: ny.zcdp(-1)),
    ("delta = 1", lambda: ny.zcdp(1, 1)),
    ("delta = -0.5", lambda: ny.zcdp(1, -0.5)),
    ("rho = 10000000000000", lambda: ny.zcdp(10**13)),
    ("mu", lambda: ny.gdp(1e-200)),  # too small for its square
    ("above 1, by at least", lambda: conversions.mironov(NEXT_TO_ONE, 0.1, 1e-6)),
    ("above 1, by at least", lambda: conversions.canonne_kamath_steinke(NEXT_TO_ONE, 0.1, 1e-6)),
    # Mixtures and choices
    ("sigma", lambda: GaussianMixture(0, [1], [1])),
    ("sensitivities", lambda: GaussianMixture(1, [-1], [1])),
    ("sensitivities has 2", lambda: GaussianMixture(1, [1, 2], [1])),
    ("probabilities", lambda: GaussianMixture(1, [1, 2], [0.5, 0.4])),
    ("probabilities", lambda: GaussianMixture(1, [1], [NAN])),
    ("probability", lambda: Choice(((0.5, ny.Gaussian(1)),))),
    ("one loss", lambda: Choice(((1.0, ny.Gaussian(1) * 1 + ny.Laplace(1)),))),
    ("rate", lambda: NonPrivate(1.5)),
    ("relation", lambda: NonPrivate(0.5)),
    ("zCDP", lambda: NonPrivate().rho()),
    ("sum of weights", lambda: mixture([0.5, 0.4], [ny.gdp(1), ny.gdp(2)])),
    (r"weights\[1\]", lambda: mixture([1.5, -0.5], [ny.gdp(1), ny.gdp(2)])),
    ("same number", lambda: mixture([1], [ny.gdp(1), ny.gdp(2)])),
    (r"curves\[1\].*pair of distributions", lambda: mixture(HALVES, [ny.gdp(1), ny.zcdp(1)])),
    # Samples
    *[("rate", lambda rate=rate: ny.Gaussian(2).subsample(rate)) for rate in (-0.1, 1.5, NAN)],
    ("add-remove", lambda: ny.Gaussian(2).subsample(0.1) + ny.RandomizedResponse(1)),
    ("NonPrivate", lambda: ny.Gaussian(1e-8).subsample(rate=0.5)),  # its nodes need any memory
    # Points, finite pairs, and profiles
    (r"point 1, .*0\.6.* above 1 - alpha", lambda: from_points([0, 0.5, 1], [1, 0.6, 0])),
    (r"point 2, .* rises", lambda: from_points([0, 0.1, 0.5, 1], [1, 0.4, 0.45, 0])),
    (
        r"point 2, .*\(0\.5, 0\.4\), is above the line .* convex",
        lambda: from_points([0, 0.1, 0.5, 1], [1, 0.7, 0.4, 0]),
    ),
    (r"point 2, .* convex", lambda: from_points([0, 0.2, 0.4, 0.6, 1], [1, 0.5, 0.4, 0.2, 0])),
    (r"point 2, .* larger alpha", lambda: from_points([0, 0.1, 0.1, 1], [1, 0.7, 0.4, 0])),
    (r"point 0, .* begins", lambda: from_points([0.1, 1], [0.5, 0])),
    (r"point 1, .* must not be the last", lambda: from_points([0, 0.5], [1, 0.2])),
    (r"point 1, .* at least 0", lambda: from_points([0, 0.5, 1], [1, -0.2, 0])),
    (r"point 2, .* at most 1", lambda: from_points([0, 0.5, 1.5], [1, 0.2, 0])),
    (r"point 1, .* above 1 - alpha", lambda: from_points([0, F(1, 2), 1], [1, F(1, 2) + TINY, 0])),
    ("2 and 3 entries", lambda: from_points([0, 1], [1, 0, 0])),
    ("at least 1", lambda: from_points([], [])),
    (r"alphas\[1\]", lambda: from_points([0, NAN], [1, 0])),
    *[("v = ", lambda v=v: ny.total_variation(v)) for v in (-0.1, 1.1, NAN)],
    ("2 and 1 outcomes", lambda: between(HALVES, [1])),
    ("sum of p is 0.9; it must be 1", lambda: between([0.5, 0.4], HALVES)),
    ("sum of q", lambda: between(HALVES, [0.5, 0.5 + 1e-11])),
    ("sum of p", lambda: between(["0.5", "0.5000000000001"], HALVES)),
    (r"q\[1\] = -0.5 must be at least 0", lambda: between(HALVES, [1.5, -0.5])),
    (r"p\[1\]", lambda: between([0.5, INF], HALVES)),
    ("sum of p is 0", lambda: between([], [])),
    ("profile is empty", lambda: from_profile({})),
    (r"profile\[1\] = -0.1", lambda: from_profile({1: -0.1})),
    (r"profile\[1\] = 1.5", lambda: from_profile({1: 1.5})),
    (r"profile\[1\] = nan", lambda: from_profile({1: NAN})),
    ("epsilon of profile = inf", lambda: from_profile({INF: 0.1})),
    ("reverse=", lambda: from_profile({-1: 0.7})),
    (r"1 - e\^epsilon", lambda: from_profile({-1: 0.5}, {0: 0.5})),
    (r"reverse\[-1\]", lambda: from_profile({0: 0.5}, {-1: 0.5})),
    ("at most", lambda: from_profile({1: 0.1, 1e9: 0.0})),
    *[("epsilon|delta", lambda x=x: ny.pbdp(*x)) for x in ((-1, 0.1), (1, -0.1), (1, 1.1))],
    ("values", lambda: OffLatticeLoss((), ())),
    ("increase", lambda: OffLatticeLoss((1.0, 1.0), (math.log(0.5),) * 2)),
    ("missing", lambda: OffLatticeLoss((1.0,), (0.0,))),
    # Channels
    ("p and q have 2 and 1", lambda: garbling(HALVES, [1], [1], [1])),
    ("p2 and q2 have 2 and 1", lambda: garbling([1], [1], HALVES, [1])),
    ("sum of p2 is 1.1", lambda: garbling([1], [1], [0.5, 0.6], HALVES)),
    ("sum of q2 is 0.5", lambda: garbling([1], [1], [1], [F(1, 2)])),
    (r"p\[1\] = -0.5", lambda: garbling([1.5, -0.5], HALVES, [1], [1])),
    ("must begin with", lambda: UP @ UP),
    ("second garbling has no channel", lambda: UP @ DOWN),
    # Groups, losses, conjugates, and ranges of levels
    *[("size", lambda size=size: ny.gdp(1).group(size)) for size in (0, -1, 2.0)],
    (r"one ordered pair.*mutual\(\)", lambda: ONE_ORDER.group(2)),
    ("statement", lambda: between(scipy.stats.norm(0), scipy.stats.norm(1)).group(2)),
    (r"f\.part\(pair\)", lambda: SEVERAL.loss),
    ("no distribution", lambda: ny.zcdp(1).loss),
    ("x =", lambda: ny.gdp(1).loss.cdf(NAN)),
    ("x =", lambda: ny.gdp(1).loss.cdf(INF)),
    ("t = nan", lambda: ny.gdp(1).loss.mgf(NAN)),
    ("slope", lambda: ny.gdp(1).conjugate(NAN)),
    ("priority = 10 is taken", lambda: register(10, "something else")(lambda composition: None)),
    *[
        (message, lambda levels=levels: ny.gdp(1).gdp(levels=levels))
        for message, levels in (
            ("above 0 and below 1", (0, 0.5)),
            ("above 0 and below 1", (1e-4, 1)),
            ("above 0 and below 1", (-0.1, 0.5)),
            ("the smaller one first", (0.5, 1e-4)),
            ("the smaller one first", (0.1, 0.1)),
            (r"levels\[0\] = nan must be finite", (NAN, 0.5)),
            (r"levels\[1\] = inf must be finite", (1e-4, INF)),
            ("must be two levels", (1e-4, 0.1, 0.5)),
        )
    ],
    # Numbers
    *[("lower", lambda x=x: Bound(*x)) for x in ((2.0, 1.0), (NAN, 1.0), (0.0, NAN))],
    ("safe", lambda: Bound(0.0, 1.0, "both")),
    *[
        ("ormat", lambda s=s: format(Bound(0.25, 0.25), s))
        for s in (",", "+", "08", "d", "x", "s", "abc")
    ],
    *[
        ("argument", lambda x=x, ask=ask: ask("argument", x))
        for ask in (check.finite, check.positive, check.non_negative, check.probability)
        for x in (
            NAN,
            INF,
            10**400,
            F(10**400),
            Decimal("NaN"),
            Decimal("sNaN"),
            Decimal("inf"),
            np.float64("nan"),
        )
    ],
    *[("argument", lambda x=x: check.exact("argument", x)) for x in ("x", "", *NANS, INF, "1/0")],
    *[("argument", lambda x=x: check.integer("argument", x)) for x in (-1, 1.0, F(2))],
]

NOT_NUMBERS = ["1", True, None, [1], 1j, np.bool_(True), np.array([1.0]), type]
TYPE_ERRORS = [
    ("bounds = ", lambda: ny.renyi([2, 0.1])),
    ("mapping", lambda: from_profile([1, 2])),
    (r"curves\[1\]", lambda: mixture(HALVES, [ny.gdp(1), 2])),
    *[
        (None, lambda p=p: between(p, [1]))
        for p in ("10", 0.5, {"a": 1}, {0.5}, None, [None], [True], scipy.stats.norm())
    ],
    (None, lambda: UP @ 2),
    ("size", lambda: ny.gdp(1).group(True)),
    ("levels = 0.5 must be a sequence", lambda: ny.gdp(1).gdp(levels=0.5)),
    (r"levels\[0\] = 'a' must be a real number", lambda: ny.gdp(1).gdp(levels=("a", 0.5))),
    *[
        (None, lambda x=x, ask=ask: ask(ny.gdp(1), x))
        for x in (3, "gdp", None, 1.5)
        for ask in (ny.compare, lambda f, x: f >= x, lambda f, x: f @ x)
    ],
    *[("real number", lambda x=x: Bound(x, 2)) for x in ("1", True, None, 1j)],
    *[
        ("argument", lambda x=x, ask=ask: ask("argument", x))
        for ask in (check.finite, check.positive, check.non_negative, check.probability)
        for x in NOT_NUMBERS
    ],
    *[("argument", lambda x=x: check.exact("argument", x)) for x in (True, None, [1], 1j)],
    *[("argument", lambda x=x: check.integer("argument", x)) for x in (True, "1")],
    ("make its class a frozen dataclass", lambda: order_key({"a": 1})),
    ("array of shape", lambda: vectors("rows", [(1.0, 2.0)], relation="add-remove")),
]


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [*((ValueError, *row) for row in VALUE_ERRORS), *((TypeError, *row) for row in TYPE_ERRORS)],
)
def test_a_refusal_says_what_is_wrong(error, message, call):
    with pytest.raises(error, match=message) as caught:
        call()
    assert type(caught.value) is error


@pytest.mark.parametrize("values", [{31.25, 4.5}, {31.25: 1}, "31.25", 31.25])
def test_an_error_about_private_values_shows_none(values):
    with pytest.raises(TypeError) as error:
        in_order("values", values)
    assert "31" not in str(error.value)


def refused(name, call):
    with pytest.raises((ValueError, TypeError), match=name) as caught:
        call()
    assert type(caught.value) in (ValueError, TypeError)


NEVER = [*NOT_NUMBERS, *NANS]
SHARES, LOGS = [-0.1, 1.5, INF], [0.1, INF]
QUESTIONS = [
    ("epsilon", lambda f, v: f.delta(v), [-1, INF, -INF, -1e-300]),
    ("epsilon", lambda f, v: f.log_delta(v), [-1, INF, -INF, -1e-300]),
    ("epsilon", lambda f, v: f.pbdp(v), [-1, INF, -INF, -1e-300]),
    ("delta", lambda f, v: f.epsilon(v), SHARES),
    ("level", lambda f, v: f.power(v), SHARES),
    ("level", lambda f, v: f.log_power(v), SHARES),
    ("alpha", lambda f, v: f(v), SHARES),
    ("log_delta", lambda f, v: f.epsilon(log_delta=v), LOGS),
    ("log_level", lambda f, v: f.power(log_level=v), LOGS),
    ("order", lambda f, v: f.renyi(v), [0.5, -1, -INF]),
    ("count", lambda f, v: f**v, [-1, 1.0, F(3, 2)]),
]
curves = pytest.mark.parametrize("f", CURVES.values(), ids=CURVES)


@curves
@pytest.mark.parametrize(("name", "ask", "outside"), QUESTIONS)
def test_a_number_outside_the_domain_of_a_question_is_refused_by_name(f, name, ask, outside):
    optional = name in ("delta", "level", "log_delta", "log_level")
    for value in [*NEVER, *outside]:
        if not (optional and value is None):
            refused(name, lambda v=value: ask(f, v))


@curves
def test_delta_1_is_refused_and_both_or_neither_spelling_too(f):
    refused("delta", lambda: f.epsilon(1.0))
    refused("delta", f.epsilon)
    refused("delta", lambda: f.epsilon(0.1, log_delta=-1))
    refused("level", f.power)


FAMILIES = [
    ("epsilon", ny.pure),
    ("epsilon", lambda v: ny.approximate(v, 1e-6)),
    ("rho", ny.zcdp),
    ("mu", ny.gdp),
    ("delta", lambda v: ny.approximate(1, v)),
]


@pytest.mark.parametrize(("name", "make"), FAMILIES)
def test_a_family_refuses_what_is_no_parameter_of_it(name, make):
    numbers = [INF, -1, Decimal("Infinity"), 10**400, F(10**400), "x"]
    for value in [*(x for x in NEVER if not isinstance(x, str)), *numbers]:
        refused(name, lambda v=value: make(v))


@curves
@pytest.mark.parametrize("value", [0.5, F(1, 2), Decimal("0.5"), np.float64(0.5), np.float32(0.5)])
def test_any_real_number_is_a_good_number(f, value):
    assert (f.delta(value), f.power(value), f(value)) == (f.delta(0.5), f.power(0.5), f(0.5))


@curves
def test_huge_numbers_and_the_ends_of_the_curve_have_answers(f):
    for epsilon in (1e3, 1e6, 1e308):
        assert 0 <= f.delta(epsilon).lower <= f.delta(epsilon).upper <= 1e-12
    for order in (1e6, 1e308):
        assert 0 <= f.renyi(order).lower <= f.renyi(order).upper
    assert f.power(0.0).upper < 1e-300
    assert f.power(1.0).upper == 1.0
    assert f(1.0).lower == 0.0
    assert f.epsilon(0.0) == f.pure()
    assert f.epsilon(1 - 1e-12).upper < 1e-3


@pytest.mark.parametrize("value", ["1e-400", 5e-324, F(1, 10**350)], ids=lambda v: repr(v)[:20])
def test_a_parameter_below_the_smallest_float_is_refused_or_answered(value):
    for name, make in (("epsilon", ny.pure), ("rho", ny.zcdp)):
        try:
            delta = make(value).delta(0.0)
        except ValueError as refusal:
            assert name in str(refusal)  # noqa: PT017 - either outcome is good
        else:
            assert 0 < delta.upper < 1e-150


@pytest.mark.parametrize("epsilon", [700, 800, 10**6, 1e300])
def test_a_huge_pure_epsilon_hides_nothing(epsilon):
    try:
        f = ny.pure(epsilon)
    except ValueError as refusal:
        assert "epsilon" in str(refusal)  # noqa: PT017 - either outcome is good
        return
    assert f.delta(1).upper == pytest.approx(1)
    assert f.power(0.5).upper == pytest.approx(1)
    assert f.gdp().upper >= 30
