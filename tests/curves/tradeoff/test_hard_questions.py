"""Questions that a fourth review found unanswered, or answered on the unsafe side."""

import math
import tracemalloc
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest

import neyman as ny
from neyman import Tradeoff
from neyman.accounting import from_pld
from neyman.curves import (
    Composition,
    DiscreteGaussianLoss,
    FiniteLoss,
    GaussianLoss,
    SubsampledGaussianLoss,
    response_loss,
    select,
)
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


@pytest.mark.parametrize("z", [2 + 3j, 0.5 + 150j])
@pytest.mark.parametrize("sigma_squared", [401, 10**6])
def test_theta_is_a_constant_for_a_large_sigma_within_the_stated_error(sigma_squared, z):
    """The mass function's transform is a ratio of two theta series, summed in the dual."""
    loss, sigma = DiscreteGaussianLoss(F(sigma_squared), 3), mp.sqrt(sigma_squared)
    with mp.workdps(40):

        def theta(u):
            ratio, turn = -2 * (mp.pi * sigma) ** 2, 2 * mp.pi * u
            return 1 + 2 * sum(mp.exp(ratio * k**2) * mp.cos(turn * k) for k in range(1, 9))

        def gaussian(z):
            return mp.exp(mp.mpmathify(z) * (mp.mpmathify(z) + 1) * 9 / (2 * mp.mpf(sigma_squared)))

        truth = gaussian(z) * theta(mp.mpmathify(z) * 3) / theta(mp.mpf(0))
        result = mp.exp(mp.mpmathify(complex(loss.log_mgf(np.array([z]))[0])))
        error = loss.mgf_rounding(np.array([z]))[0] + 1e-15
        assert abs(result - truth) <= gaussian(z.real) * error


def test_power_is_at_least_the_mass_that_gives_all_away():
    parts = [(GaussianLoss(0.000147), 1), (response_loss(F(146923, 5000000), failure=0.3), 10)]
    composition = Composition.of(parts)
    assert isinstance(parts[1][0], FiniteLoss)
    assert select(composition).log_power(-0.06336)[0] >= math.log(composition.infinite) - 1e-9


G = ny.Gaussian


@pytest.mark.parametrize(
    ("count", "epsilon"), [(1000, 2.4968801985871987), (2, 0.004993760397174397)]
)
def test_the_largest_loss_of_an_added_record_is_rounded_up(count, epsilon):
    """At the float below or at n times -log(1 - q) some delta is left, and is not called 0."""
    losses = Composition.of([(SubsampledGaussianLoss(30.0, 1 / 401, False), count)])
    assert select(losses).log_delta(epsilon)[1] > -math.inf


def test_a_tiny_probabilistic_delta_is_not_called_zero():
    """delta = sup of 1 - f(a) where it exceeds e^epsilon a is above 0 for every Gaussian."""
    assert ny.Gaussian(1000).tradeoff().pbdp(10).upper > 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda: (G(0.30353).subsample(rate=1.8e-6) * 2).tradeoff().epsilon(1e-12),
        lambda: (G(0.1).subsample(rate=0.01) * 20).tradeoff().epsilon(1e-6),
        lambda: (G(8.2061).subsample(size=25, population=10**7) * 2).tradeoff().delta(1e-4),
        lambda: (ny.Laplace(0.02637).subsample(rate=0.574) * 2).tradeoff().epsilon(1e-5),
        lambda: (G(1).subsample(rate=0.1, neighboring="replace-one") * 10).tradeoff().renyi(1e6),
        lambda: (ny.Laplace(0.1).subsample(rate=0.01) * 10).tradeoff().renyi(1e10),
        lambda: (ny.GaussianMixture(0.5, (0, 1), (0.5, 0.5)) * 10).tradeoff().renyi(1e8),
        lambda: (G(0.001).subsample(rate=0.5) * 2).tradeoff().epsilon(1e-6),
        lambda: (G(0.01).subsample(rate=1e-3) * 3).tradeoff().delta(10.0),
        lambda: (G(1.0).subsample(rate=0.01) * 1000).tradeoff().renyi(1e12),
        lambda: (G(1).subsample(rate=0.01) * 100).tradeoff().epsilon(log_delta=-1e4),
        lambda: (G(1).subsample(rate=0.01) * 100).tradeoff().epsilon(log_delta=-1e300),
    ],
)
def test_far_and_few_is_answered_in_little_memory(ask):
    tracemalloc.start()
    try:
        bound = ask()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bound.lower <= bound.upper
    assert bound.upper > 0
    assert peak < 1e9


@pytest.mark.parametrize("delta", [0.042, 0.05, 0.0507, 0.3, 0.9, 0.999999])
def test_deltas_about_the_total_variation_give_epsilon_down_to_zero(delta):
    f = (G(1).subsample(rate=0.01) * 100).tradeoff()
    epsilon = f.epsilon(delta)
    if delta >= f.advantage().upper:
        assert epsilon.lower == epsilon.upper == 0
        return
    assert f.delta(epsilon.upper).upper <= delta * (1 + 1e-12)
    assert epsilon.lower == 0 or f.delta(epsilon.lower).lower >= delta * (1 - 1e-12)


def test_no_epsilon_is_enough_for_more_infinite_loss_than_delta():
    epsilon = ny.approximate(1, 0.1).epsilon(0.01)
    assert epsilon.lower == epsilon.upper == math.inf


def test_products_of_ordered_pairs_stay_ordered():
    curve = ny.from_points([0.0, 0.2, 1.0], [0.7, 0.3, 0.0])
    assert (curve**1).power(0.3).upper == curve.power(0.3).upper
    assert (curve @ ny.perfect()).ordered is False
    assert (curve @ curve).ordered


def test_the_pure_epsilon_of_a_finite_pair_contains_the_logarithm():
    epsilon = ny.between([0.5, 0.5], [0.9, 0.1]).pure()
    assert epsilon.lower <= 1.609437912434100374600759333 <= epsilon.upper


def test_humps_far_apart_are_both_kept_or_the_higher_one():
    """K of a removal at a large tilt is that of the two humps' sum (Laplace's method, both)."""
    for sigma, rate in ((200.0, math.exp(-4)), (1000.0, math.exp(-2.5))):
        loss = SubsampledGaussianLoss(1 / sigma, rate, True)
        k = loss.log_mgf(np.geomspace(1e3, 1e6, 12))
        # Convex in the tilt, with the far hump's slope at the end.
        assert np.all(np.diff(k) > 0)
        w = 1e6 + 1
        far = w * math.log(rate) + w * (w - 1) / (2 * sigma**2)
        assert k[-1] >= far


def test_an_estimate_certifies_nothing():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    reference = from_pld(pld.from_gaussian_mechanism(1.0, value_discretization_interval=1e-2), 1e-2)
    assert isinstance(reference, Tradeoff)
    assert not reference >= ny.gdp(3.0)
    assert ny.compare(reference, ny.pure(1)) == "undecided"
    assert "PLD" in reference.pure().method


def test_a_curve_may_be_asked_at_its_ends():
    none, all_, half = (G(1).subsample(rate=0.1) * 100).tradeoff().powers([0, 1, 0.5])
    assert (none.lower, none.upper, all_.upper) == (0, 0, 1)
    assert half.lower > 0.5


def test_a_sum_whose_exact_lattice_is_finer_than_any_float_is_answered():
    """The exact common step of 14 float sigmas is below every float: there is no lattice."""
    rhos = [0.013, *(0.01 * (i + 1.3) for i in range(1, 14))]
    parts = [ny.DiscreteGaussian(sigma=math.sqrt(1 / rho)) for rho in rhos]
    delta = sum(parts[1:], parts[0]).tradeoff().delta(epsilon=3.0)
    gaussian = ny.gdp(math.sqrt(sum(rhos))).delta(epsilon=3.0)
    assert 0.9 * gaussian.lower < delta.lower <= delta.upper < 1.1 * gaussian.upper
