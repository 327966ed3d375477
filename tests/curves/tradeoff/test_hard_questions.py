"""Questions that a fourth review found unanswered, or answered on the unsafe side."""

import math
from fractions import Fraction as F

import pytest

import neyman as ny
from neyman import Tradeoff
from neyman.accounting import conversions
from random_laws import is_small

# Guarantees in and out, and their order


@pytest.mark.parametrize("order", [2, 11, 40])
def test_the_rho_of_a_guarantee_covers_every_pair_that_keeps_it(order):
    """A small KL bound beside a pure epsilon leaves large orders far above KL times the order."""
    ratio = F(271828, 100000)  # a little less than e
    q = F(3, 10**4)
    pair = ny.between([q * ratio, 1 - q * ratio], [q, 1 - q])
    bounds = ny.renyi({1: "0.001", math.inf: 1})
    assert bounds.admits(pair)
    assert bounds.zcdp().upper >= pair.renyi(order).lower / order


@pytest.mark.parametrize(
    "budget", [ny.pure("0.588"), ny.approximate(0.3, 0.3), ny.from_profile({0.2: 0.35, 0.588: 0})]
)
def test_one_order_within_a_budget_is_not_both(budget):
    """delta of P against Q says nothing of Q against P: the curve is compared at every slope."""
    one = ny.from_points([0, "0.5", 1], [1, "0.1", 0])
    assert one.delta(0.588).upper < 1e-3
    assert one.power(0.5).lower > budget.power(0.5).upper
    assert not one >= budget
    assert ny.compare(one, budget) != "at-least"


def test_a_budget_of_divergences_holds_for_both_orders():
    """KL of one order is .368 and of the other .511."""
    one = ny.from_points([0, "0.5", 1], [1, "0.1", 0])
    assert not ny.renyi({1: "0.4"}).admits(one)
    assert ny.renyi({1: "0.52"}).admits(one)


def test_a_smooth_curve_is_held_against_a_profile():
    """Each line of a profile is asked of the Gaussian: noise can be calibrated to one."""
    budget = ny.from_profile({0.5: 0.01, 2: 1e-6})
    sigma = ny.calibrate(ny.Gaussian, budget)
    curve, less = ny.Gaussian(sigma).tradeoff(), ny.Gaussian(sigma * (1 - 1e-6)).tradeoff()
    assert curve >= budget
    assert curve.delta(0.5).upper <= 0.01
    assert curve.delta(2).upper <= 1e-6
    assert not less >= budget
    assert less.delta(0.5).lower > 0.01
    assert curve >= ny.total_variation(1)  # which claims nothing


@pytest.mark.parametrize("bounds", [{2: 0.1, math.inf: 2}, {1: 0.1, math.inf: 2}])
def test_a_gaussian_never_keeps_a_pure_epsilon(bounds):
    """It is told so, and not that every parameter keeps the budget."""
    with pytest.raises(ValueError, match="no parameter that was tried"):
        ny.calibrate(ny.Gaussian, ny.renyi(bounds))


def test_an_order_next_to_one_is_kept_by_rho():
    """K at 1e-12 drowns in rounding; a Laplace release with e = 1 / b has rho e - 1 + exp(-e)."""
    scale = ny.calibrate(lambda b: ny.Laplace(b) * 10, ny.tcdp(0.1, 1 + 1e-12))
    epsilon = 1 / scale
    assert math.isclose(10 * (epsilon + math.expm1(-epsilon)), 0.1, rel_tol=1e-6)


def test_an_epsilon_next_to_nothing_is_not_more():
    """e^epsilon is at least 1, and tanh(epsilon / 2) above what is known from below."""
    for epsilon in ("1e-200", "1e-70", "1e-20"):
        delta = ny.from_profile({epsilon: 0, 1: 0}).delta(0)
        assert delta.lower <= float(F(epsilon)) / 2
        assert delta.upper >= float(F(epsilon)) / 2 * (1 - 1e-9)


def test_a_delta_that_is_no_float_is_rounded_up():
    """1/3 is above the float next to it; strings and fractions are read as elsewhere."""
    for make in (
        lambda d: ny.approximate(1, d),
        ny.total_variation,
        lambda d: ny.from_profile({1: d}),
        lambda d: ny.zcdp(0, delta=d),
    ):
        for delta in (F(1, 3), "1/3", "0.3"):
            assert F(make(delta).alternatives[0].infinite) >= F(delta)


def test_an_infinite_order_far_out_is_asked_without_a_warning():
    """Where a coin's two shares are equal the slope of an infinite order is still a number."""
    f = ny.renyi({math.inf: "0.001", 1: "1e-8"})
    for level in (1e-300, 1e-6, 0.05, 0.999, 1 - 1e-15):
        assert f.power(level).upper <= min(1.0, level * math.exp(0.001) * (1 + 1e-9))
    for pure, order, bound in (("0.09620853", 8, "0.2506027"), (9, 1.5, 7)):
        assert ny.renyi({math.inf: pure, order: bound}).power(1 - 1e-15).upper == 1


def test_a_level_a_hair_above_a_corner_has_an_answer():
    """1/3 as a float and the sum of its mass differ by less than e^x can tell from 1."""
    f = ny.between([F(1, 3), F(2, 3), 0], [F(1, 3), F(1, 9), F(5, 9)])
    assert f.power(1 / 3).lower <= F(8, 9) <= f.power(1 / 3).upper
    g = Tradeoff(f.alternatives, ordered=True)
    assert g.power(1 / 3).upper > 0.75


@pytest.mark.parametrize("bounds", [{10**12: 1}, {"1.000000000000001": 5}])
def test_orders_and_levels_far_out_give_an_interval(bounds):
    """Where an order times a logarithm is not a float that order excludes nothing."""
    f = ny.renyi(bounds)
    bracket = f.log_power(log_level=-1e300)
    assert bracket.lower <= bracket.upper <= 0
    assert f.epsilon(log_delta=-1e300).upper == math.inf


def test_an_order_that_no_float_tells_from_one_is_refused():
    """Its reciprocal distance from 1 is not a number."""
    for convert in (conversions.mironov, conversions.canonne_kamath_steinke):
        with pytest.raises(ValueError, match="above 1, by at least"):
            convert("1." + "0" * 399 + "1", 0.1, 1e-6)


def test_groups_of_a_guarantee_in_divergences_take_seconds():
    """Steps of approximate zCDP: between one step and what as many failures alone allow."""
    f, size = ny.zcdp("0.1", delta="0.01"), 2 if is_small() else 3
    power = f.group(size).power(0.05)
    assert power.lower > f.power(0.05).upper
    assert power.lower >= ny.gdp(size * math.sqrt(0.2)).power(0.05).lower
    assert power.upper <= power.lower * 1.03


def test_a_promise_of_power_is_about_both_orders():
    """A curve of one order is held against power at a level in the other order too."""
    one_way = ny.from_points([0, F(23, 25), 1], [1, 0, 0])  # the reverse leaks all with 2/25
    assert one_way.power(0.05).upper < 0.1
    assert not ny.at_most(power=0.25, level=0.05).admits(one_way)
