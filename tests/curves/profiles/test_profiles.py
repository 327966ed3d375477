"""The engines against mpmath, against one another, and against an independent library."""

from __future__ import annotations

import math
from fractions import Fraction as F

import mpmath as mp
import pytest

import neyman as ny
import reference as ref
from neyman import Bound
from neyman.curves import dots_profile, select

MIXED = {
    "one response": (ny.RandomizedResponse(1), [ref.response(F(1))]),
    "three responses": (ny.RandomizedResponse(F("0.3"), 5) * 3, [ref.response(F("0.3"), 5)] * 3),
    "a discrete gaussian": (ny.DiscreteGaussian(1), [ref.discrete_gaussian(F(1), 1)]),
    "both": (
        ny.DiscreteGaussian("0.7") + ny.RandomizedResponse(2) * 2,
        [ref.discrete_gaussian(F("0.49"), 1, 40), *[ref.response(F(2))] * 2],
    ),
}


@pytest.mark.parametrize("mu", [0.03, 0.5, 2.0])
@pytest.mark.parametrize("name", list(MIXED))
def test_a_gaussian_beside_a_discrete_loss_contains_the_mixture_of_gaussians(name, mu):
    mechanism, laws = MIXED[name]
    law = {v: p for v, p in ref.together(*laws).items() if p > mp.mpf(10) ** -250}
    f = (mechanism + ny.Gaussian(1, mu)).tradeoff()
    for epsilon in (0.0, 0.1, 0.9, 2.5, 6.0, 15.0):
        truth = ref.mixed_delta(law, mu, epsilon)
        if truth < mp.mpf(10) ** -200:
            continue
        assert ref.holds(f.log_delta(epsilon), mp.log(truth)), epsilon
        for profile in f.profiles:
            low, high = profile.log_delta(-epsilon)
            back = -mp.expm1(-mp.mpf(epsilon)) + mp.exp(-mp.mpf(epsilon)) * truth
            assert low <= mp.log(back) <= high, -epsilon
        dots = dots_profile(f.alternatives[0])
        assert ref.holds(Bound(*dots.log_delta(epsilon)), mp.log(truth)), epsilon


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.99])
def test_the_delta_of_one_laplace_release_is_its_formula_up_to_rounding(epsilon):
    truth = mp.log(-mp.expm1((mp.mpf(epsilon) - 1) / 2))
    bound = ny.Laplace(1).tradeoff().log_delta(epsilon)
    assert bound.lower <= truth <= bound.upper < bound.lower + 1e-12


def test_a_gaussian_beside_a_laplace_contains_the_integral_over_the_losses():
    a, mu = mp.mpf(1) / 2, mp.mpf(1)
    f = (ny.Laplace(2) + ny.Gaussian(1)).tradeoff()
    with mp.workdps(30):
        for epsilon in (0.0, 1.0, 3.0, 8.0):

            def density(v, epsilon=epsilon):
                return mp.exp((v - a) / 2) / 4 * ref.gaussian_delta(mu, epsilon - v)

            truth = mp.quad(density, [-a, 0, a])
            truth += ref.gaussian_delta(mu, epsilon - a) / 2
            truth += mp.exp(-a) / 2 * ref.gaussian_delta(mu, epsilon + a)
            log_delta = f.log_delta(epsilon)
            assert ref.holds(log_delta, mp.log(truth)), epsilon
            assert log_delta.width < 1e-6


HEAVY = [
    ny.RandomizedResponse(F("0.1")) * 1000,
    ny.RandomizedResponse(F("0.01"), 5) * 10_000,
    ny.DiscreteGaussian(10) * 100,
    ny.DiscreteGaussian(3) * 20 + ny.DiscreteGaussian(3, 2) * 5,
    ny.DiscreteLaplace(20, 3) * 300,
    ny.Gaussian(30) * 500 + ny.Laplace(50) * 200,
    ny.DiscreteGaussian(5) * 10 + ny.RandomizedResponse(F(1, 25)) * 10,
]


@pytest.mark.parametrize("mechanism", HEAVY, ids=lambda m: repr(m)[:40])
def test_the_chosen_engine_and_connected_dots_never_contradict_each_other(mechanism):
    for losses in mechanism.tradeoff().directions:
        chosen, dots = select(losses), dots_profile(losses)
        for epsilon in (0.0, 0.5, 2.0, 5.0, -1.0):
            a, b = chosen.log_delta(epsilon), dots.log_delta(epsilon)
            assert a[0] <= b[1], epsilon
            assert b[0] <= a[1], epsilon
        for log_level in (-60.0, -30.0, -3.0, -0.1):
            a, b = chosen.log_power(log_level), dots.log_power(log_level)
            assert a[0] <= b[1], log_level
            assert b[0] <= a[1], log_level


def test_power_of_a_mixture_is_narrow_at_every_level():
    for m in (ny.Gaussian(1) + ny.Laplace(1), ny.Gaussian(1) + ny.RandomizedResponse(1) * 5):
        f = m.tradeoff()
        for level in (1e-30, 1e-9, 0.05, 0.3679, 0.7, 0.9):
            power = f.power(level)
            assert power.width <= 1e-4 * power.upper, (m, level)


def test_a_power_is_at_most_twice_as_wide_as_the_delta_at_its_threshold():
    """Rare steps, whose delta has a relative width of 1e-9; five times as wide by three points."""
    f = (ny.Gaussian(1.4452748891116796).subsample(rate=0.022357525367953174) * 108).tradeoff()
    power = f.power(6.165832254732546e-24)
    width = math.expm1(f.log_delta(3.565354).width)
    assert 1e-12 < power.width / power.upper <= 2 * width


def test_duality_holds_between_power_and_delta_of_a_mixture():
    f = (ny.Gaussian(2) + ny.Laplace(3) * 2).tradeoff()
    for level in (1e-6, 0.01, 0.2):
        power = f.power(level)
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            line = f.delta(epsilon).upper + math.exp(epsilon) * level
            assert power.lower <= line * (1 + 1e-14)


@pytest.mark.parametrize(
    "make",
    [
        (lambda: ny.Gaussian(3) * 10 + ny.Laplace(5) * 5, [("g", 3.0, 10), ("l", 5.0, 5)]),
        (lambda: ny.Laplace(10) * 50, [("l", 10.0, 50)]),
        (
            lambda: ny.DiscreteGaussian(3) * 3 + ny.DiscreteGaussian(F(7, 2)) * 4,
            [("d", 3.0, 3), ("d", 3.5, 4)],
        ),
        (lambda: ny.DiscreteLaplace(4, 2) * 6, [("q", 0.25, 6)]),
    ],
    ids=["gaussian and laplace", "laplace", "incommensurate discrete gaussians", "geometric"],
)
def test_an_independent_library_lies_above_the_certified_lower_end(make):
    # Its rounding is pessimistic, so its epsilon and delta are upper bounds of the truth; with a
    # fine grid they come close.
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    build, parts = make
    theirs = None
    for kind, parameter, count in parts:
        options = {"value_discretization_interval": 1e-3}
        one = {
            "g": lambda p, o=options: pld.from_gaussian_mechanism(p, **o),
            "l": lambda p, o=options: pld.from_laplace_mechanism(p, **o),
            "d": lambda p, o=options: pld.from_discrete_gaussian_mechanism(p, **o),
            "q": lambda p, o=options: pld.from_discrete_laplace_mechanism(p, sensitivity=2, **o),
        }[kind](parameter).self_compose(count)
        theirs = one if theirs is None else theirs.compose(one)
    assert theirs is not None
    f = build().tradeoff()
    for epsilon in (0.1, 0.5, 1.5):
        delta, other = f.delta(epsilon), theirs.get_delta_for_epsilon(epsilon)
        assert delta.lower <= other * (1 + 1e-9)
        assert other <= delta.upper * 1.01


def test_a_billion_small_losses_are_answered_within_bounds_and_memory():
    epsilon = (ny.RandomizedResponse(F(1, 10**8)) * 10**9).tradeoff().epsilon(1e-5)
    mu = mp.mpf("1e-8") * mp.sqrt(10**9)
    assert ref.gaussian_delta(mu * (1 - mp.mpf("1e-6")), epsilon.upper) <= 1e-5
