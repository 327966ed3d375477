"""Numbers outside a question's domain: one clear refusal that names the argument."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction as F

import numpy as np
import pytest

import neyman as ny

NEVER = [
    math.nan,
    "1",
    True,
    None,
    [1],
    1j,
    np.array([0.5]),
    np.bool_(True),
    type,
    Decimal("NaN"),
    Decimal("sNaN"),
]
CURVES = {
    "gaussian": ny.gdp(1),
    "laplace": ny.Laplace(1).tradeoff(),
    "lattice": (ny.RandomizedResponse(1) * 3).tradeoff(),
    "mixture": (ny.RandomizedResponse(1) + ny.Gaussian(1)).tradeoff(),
    "zcdp": ny.zcdp("0.1"),
}
curves = pytest.mark.parametrize("f", CURVES.values(), ids=CURVES)


def refused(name, call):
    with pytest.raises((ValueError, TypeError), match=name) as caught:
        call()
    assert type(caught.value) in (ValueError, TypeError)


@curves
@pytest.mark.parametrize("value", [*NEVER, -1, math.inf, -math.inf, -1e-300], ids=repr)
def test_epsilon_outside_its_domain_is_refused_by_name(f, value):
    for question in (f.delta, f.log_delta, f.pbdp):
        refused("epsilon", lambda q=question: q(value))


@curves
@pytest.mark.parametrize("value", [*NEVER, -0.1, 1.5, math.inf], ids=repr)
def test_probabilities_outside_0_to_1_are_refused_by_name(f, value):
    if value is not None:
        refused("delta", lambda: f.epsilon(value))
        refused("level", lambda: f.power(value))
        refused("level", lambda: f.log_power(value))
    refused("alpha", lambda: f(value))


@curves
@pytest.mark.parametrize("value", [*NEVER, 0.1, math.inf], ids=repr)
def test_logarithms_above_0_are_refused_by_name(f, value):
    if value is not None:
        refused("log_delta", lambda: f.epsilon(log_delta=value))
        refused("log_level", lambda: f.power(log_level=value))


@curves
@pytest.mark.parametrize("value", [*NEVER, 0.5, -1, -math.inf], ids=repr)
def test_a_renyi_order_below_1_is_refused_by_name(f, value):
    refused("order", lambda: f.renyi(value))


@curves
def test_delta_1_is_refused_and_both_or_neither_spelling_too(f):
    refused("delta", lambda: f.epsilon(1.0))
    refused("delta", f.epsilon)
    refused("delta", lambda: f.epsilon(0.1, log_delta=-1))
    refused("level", f.power)


@curves
@pytest.mark.parametrize("value", [*NEVER, -1, 1.0, F(3, 2)], ids=repr)
def test_a_power_that_is_no_count_is_refused(f, value):
    refused("count", lambda: f**value)


@curves
@pytest.mark.parametrize("value", [0.5, F(1, 2), Decimal("0.5"), np.float64(0.5), np.float32(0.5)])
def test_any_real_number_is_a_good_number(f, value):
    assert f.delta(value) == f.delta(0.5)
    assert f.power(value) == f.power(0.5)
    assert f(value) == f(0.5)


@curves
@pytest.mark.parametrize("epsilon", [1e3, 1e6, 1e308])
def test_a_huge_epsilon_has_an_answer(f, epsilon):
    delta = f.delta(epsilon)
    assert 0 <= delta.lower <= delta.upper <= 1e-12


@curves
@pytest.mark.parametrize("order", [1e6, 1e308])
def test_a_huge_order_has_an_answer(f, order):
    divergence = f.renyi(order)
    assert 0 <= divergence.lower <= divergence.upper


@curves
def test_the_ends_of_the_curve_have_answers(f):
    assert f.power(0.0).upper < 1e-300
    assert f.power(1.0).upper == 1.0
    assert f(1.0).lower == 0.0
    assert f.epsilon(0.0) == f.pure()
    assert f.epsilon(1 - 1e-12).upper < 1e-3


FAMILIES = {
    "epsilon": [ny.pure, lambda v: ny.approximate(v, 1e-6)],
    "rho": [ny.zcdp],
    "mu": [ny.gdp],
    "delta": [lambda v: ny.approximate(1, v)],
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -1,
        "x",
        True,
        None,
        [1],
        1j,
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        10**400,
        F(10**400),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_a_family_refuses_what_is_no_parameter_of_it(name, value):
    for make in FAMILIES[name]:
        refused(name, lambda m=make: m(value))


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
