"""Budgets, calibration to them, and what the ledger is charged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest

import neyman as ny
from neyman import Tradeoff
from neyman.accounting import PlanBudget, budget_of, budget_warnings, calibrate_exact, charge
from neyman.curves import Composition, FiniteLoss, LossBracket

BUDGET = ny.at_most(power=0.25, level=0.05)


@dataclass(frozen=True)
class Curve:
    """A described curve, as a budget meets it."""

    curve: Tradeoff

    def tradeoff(self):
        return self.curve


def admits(curve):
    return BUDGET.admits(Curve(curve))


def phi(x):
    return mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2


def test_at_most_admits_the_gaussian_just_inside_it_and_not_the_one_outside():
    assert admits(ny.gdp(BUDGET.mu * (1 - 1e-9)))
    assert not admits(ny.gdp(BUDGET.mu * (1 + 1e-9)))


def test_a_leak_of_everything_is_refused_although_its_power_at_the_level_is_low():
    leak = ny.approximate(0, 0.19)
    assert leak.power(0.05).upper < 0.25
    assert not admits(leak)
    for delta in (1e-3, 1e-6, 1e-9, 3e-12):
        assert not admits(ny.approximate(0, delta) @ ny.gdp(0.1)) or delta < 2e-12


def test_a_failure_only_beyond_the_last_level_is_seen_in_delta():
    assert not admits(ny.approximate(0, 2.1e-12) @ ny.gdp(0.3))
    assert admits(ny.approximate(0, 1.5e-12) @ ny.gdp(0.3))


def test_a_curve_known_from_both_sides_is_judged_by_its_upper_end():
    low, high = (ny.approximate(0, d).alternatives[0].parts[0][0] for d in (1.5e-12, 2.1e-12))
    for upper, admitted in ((low, True), (high, False)):
        between = Tradeoff.of([Composition.of([(LossBracket(low, upper), 1)])])
        assert admits(between @ ny.gdp(0.3)) == admitted


@pytest.mark.parametrize(
    ("kind", "ask"),
    [("approximate", lambda curve: curve.delta(1.0)), ("at_most", lambda curve: curve.power(0.05))],
)
def test_a_claim_is_met_only_if_the_upper_end_of_the_curve_meets_it(kind, ask):
    curve = (ny.Gaussian(2).subsample(rate=0.01) * 1000).tradeoff()
    bound = ask(curve)
    assert bound.lower < bound.upper
    for number, met in (((F(bound.lower) + F(bound.upper)) / 2, False), (F(bound.upper), True)):
        point = (
            {"epsilon": 1, "delta": number}
            if kind == "approximate"
            else {"level": F(1, 20), "power": number}
        )
        assert budget_of(point).claimed_by(curve) == met


def test_a_charge_is_for_the_upper_end_of_a_curve_too():
    training = ny.Gaussian(2).subsample(rate=0.01) * 1000
    mu = training.tradeoff().gdp()
    assert mu.lower < mu.upper
    assert charge(training, "gdp")[0] >= F(mu.upper) ** 2
    assert charge(training, "renyi:8")[0] >= F(training.tradeoff().renyi(8).upper)


@pytest.mark.parametrize("mu", [0.3, 0.7, 1.5])
def test_a_power_of_exactly_the_number_is_admitted_and_one_above_it_is_not(mu):
    reached = ny.gdp(mu).power(math.nextafter(0.05, 1)).upper
    for number, admitted in ((reached, True), (math.nextafter(reached, 0), False)):
        assert ny.at_most(power=F(number), level=0.05).admits(Curve(ny.gdp(mu))) == admitted


def test_a_claim_of_rho_alone_is_not_held_against_a_power():
    with pytest.raises(ValueError, match="cannot be held against a power"):
        admits(ny.zcdp(0.001))
    assert BUDGET.excess(Curve(ny.zcdp(0.001))) is None


def corner(level, power):
    """The pair of three outcomes whose curve has its corner about (level, power), on a lattice."""
    up = math.log(power / level)
    step, down = F(up) / 40, round(3 * 40 / up)
    low = -down * float(step)
    p = power * -math.expm1(-up) / math.expm1(-low)  # P-mass at the low outcome: Q sums to one
    logs = (math.log(p), math.log1p(-p - power), math.log(power))
    return Tradeoff.of([Composition.of([(FiniteLoss(step, (-down, 0, 40), logs), 1)])])


def meets_the_definition(curve, slack):
    """The definition of at_most, level by level; ``slack`` widens (above 1) or narrows it."""
    mu = mp.mpf(BUDGET.mu)
    if curve.power(0.05).lower > 0.25 * slack:
        return False
    levels = np.concatenate([np.geomspace(1e-12, 0.01, 300), np.linspace(0.0101, 0.9999, 300)])
    for level in levels:
        gaussian = float(phi(_z(level) + mu))
        if curve.power(float(level)).lower > 1.01 * gaussian * slack:
            return False
    far = ny.gdp(BUDGET.mu).epsilon(1e-12).lower
    return curve.delta(far).lower <= 2e-12 * slack


def _z(level):
    from scipy.special import ndtri

    return mp.mpf(float(ndtri(level)))


@pytest.mark.parametrize("level", [1e-12, 1e-9, 1e-5, 1e-3, 0.03, 0.06, 0.2, 0.5])
@pytest.mark.parametrize("factor", [0.97, 1.003, 1.03])
def test_at_most_agrees_with_its_definition_for_curves_with_one_corner(level, factor):
    power = float(phi(_z(level) + mp.mpf(BUDGET.mu))) * factor
    curve = corner(level, power)
    if admits(curve):
        assert meets_the_definition(curve, 1 + 1e-9)
    else:
        assert not meets_the_definition(curve, 1 - 1e-3)


def test_the_excess_is_the_logarithm_by_which_a_number_is_missed():
    wide = Curve(ny.gdp(BUDGET.mu * 1.1))
    at_level = mp.log(phi(_z(0.05) + mp.mpf(BUDGET.mu * 1.1)) / mp.mpf("0.25"))
    assert BUDGET.excess(wide) == pytest.approx(float(at_level), abs=1e-6)
    curve = corner(1e-3, float(phi(_z(1e-3) + mp.mpf(BUDGET.mu))) * 1.03)
    levels = np.geomspace(1e-4, 0.1, 301).tolist()
    allowed = [1.01 * float(phi(_z(level) + mp.mpf(BUDGET.mu))) for level in levels]
    reached = [curve.power(level).upper for level in levels]
    most = max(math.log(r / a) for r, a in zip(reached, allowed, strict=True))
    assert most > 0
    assert BUDGET.excess_elsewhere(Curve(curve)) == pytest.approx(most, abs=0.01)
    assert BUDGET.excess_elsewhere(Curve(ny.approximate(0, 1e-9))) == pytest.approx(math.log(500))
    assert BUDGET.excess_elsewhere(Curve(ny.gdp(0.1))) < 0


def test_the_least_level_makes_sense():
    assert ny.at_most(power=0.25, level="1e-12").level == F(1, 10**12)


@pytest.mark.parametrize(("power", "level"), [(0.25, 0.05), (0.5000001, 0.5), (0.9, 1e-3)])
def test_the_power_at_the_level_is_within_the_number_itself(power, level):
    sigma = calibrate_exact(ny.Gaussian, ny.at_most(power, level), digits=15)
    assert ny.Gaussian(sigma).tradeoff().power(level).lower <= power
    mu = ny.at_most(power, level).mu
    assert 1 / float(sigma) <= mu * (1 + 1e-9)


TARGETS = {
    "pure": ny.pure(1),
    "approximate": ny.approximate(1, 1e-6),
    "tiny delta": ny.approximate(1, 1e-300),
    "gdp": ny.gdp(1),
    "zcdp": ny.zcdp("0.5"),
    "at most": BUDGET,
}
MAKES = {
    "gaussian": ny.Gaussian,
    "laplace": ny.Laplace,
    "laplaces": lambda s: ny.Laplace(s) * 3,
    "responses": lambda e: ny.RandomizedResponse(e) * 3,
    "discrete gaussian": ny.DiscreteGaussian,
    "discrete laplace": lambda s: ny.DiscreteLaplace(s, 2),
}
PAIRS = [(m, t) for m in MAKES for t in TARGETS if not ("gaussian" in m and t == "pure")]


@pytest.mark.parametrize(("make", "target"), PAIRS)
def test_the_calibrated_parameter_keeps_its_target_and_a_little_more_does_not(make, target):
    build, budget = MAKES[make], TARGETS[target]
    parameter = ny.calibrate(build, budget)
    assert budget.admits(build(parameter))
    if make != "discrete gaussian":
        worse = parameter * (1 + 2e-9) if make == "responses" else parameter * (1 - 2e-9)
        assert not budget.admits(build(worse))


def test_calibration_of_the_closed_forms_gives_their_parameters():
    assert ny.calibrate(ny.Gaussian, ny.gdp(2)) == pytest.approx(0.5, rel=1e-9)
    assert ny.calibrate(ny.Laplace, ny.pure("0.1")) == pytest.approx(10, rel=1e-9)
    assert ny.calibrate(ny.RandomizedResponse, ny.pure("0.5")) == pytest.approx(0.5, rel=1e-9)
    assert ny.calibrate(ny.Laplace, ny.Laplace(2).tradeoff()) == pytest.approx(2, rel=1e-9)


def test_exact_calibration_returns_a_decimal_of_so_many_digits():
    for digits in (2, 5, 12):
        sigma = calibrate_exact(ny.DiscreteGaussian, ny.zcdp("0.3"), digits=digits)
        assert ny.zcdp("0.3").admits(ny.DiscreteGaussian(sigma))
        text = f"{float(sigma):.17g}"
        assert sigma == F(round(sigma * 10 ** (digits - 1)), 10 ** (digits - 1)), text


@pytest.mark.parametrize("digits", [15, 16, 17, 40])
def test_more_digits_than_a_float_has_end_too(digits):
    calls = iter(range(1000))  # a search that goes on and on runs out of them

    def make(sigma):
        next(calls)
        return ny.Gaussian(sigma)

    try:
        sigma = calibrate_exact(make, ny.gdp(0.37), digits=digits)
    except ValueError as refusal:
        assert "digits" in str(refusal)  # noqa: PT017 - either outcome is good
    else:
        assert ny.gdp(0.37).admits(ny.Gaussian(sigma))


def test_a_calibration_of_training_asks_ten_mechanisms():
    """Log of log delta is almost a line in log sigma; 13 when log delta was interpolated."""
    asked = []

    def make(sigma):
        asked.append(sigma)
        return ny.Gaussian(sigma).subsample(rate=0.01) * 10_000

    sigma = ny.calibrate(make, ny.approximate(1, 1e-6))
    assert sigma == pytest.approx(4.302106466, rel=1e-9)
    assert len(asked) <= 10


# What the ledger is charged

CURRENCIES = ["pure", "zcdp", "gdp", "renyi:2", "renyi:8", "renyi:1", "renyi:inf"]


def small_response_divergence(epsilon, order):
    e = mp.mpf(epsilon)
    p, q = 1 / (1 + mp.exp(-e)), 1 / (1 + mp.exp(e))
    if order == 1:
        return (p - q) * e
    return mp.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 1), (1.0, 200), (1e-4, 10**6), (1e-8, 10**9)])
def test_no_currency_charges_less_than_the_truth(epsilon, count):
    mp.mp.dps = 50
    m = ny.RandomizedResponse(epsilon) * count
    e = mp.mpf(repr(epsilon))
    for order in (1, 2, 8):
        paid = charge(m, f"renyi:{order}")[0]
        assert mp.mpf(paid.numerator) / paid.denominator >= count * small_response_divergence(
            e, order
        )
    assert charge(m, "pure")[0] == F(repr(epsilon)) * count
    rho = charge(m, "zcdp")[0]
    truth = count * small_response_divergence(e, 1)  # the worst order
    assert truth <= mp.mpf(rho.numerator) / rho.denominator <= truth * (1 + mp.mpf("1.1e-14"))
    # Any test's z(power) - z(level) is a lower bound of mu; here the majority of the answers.
    if count <= 200:
        p = 1 / (1 + mp.exp(-e))
        half = count // 2
        power = mp.fsum(
            mp.binomial(count, k) * p**k * (1 - p) ** (count - k)
            for k in range(half + 1, count + 1)
        )
        level = mp.fsum(
            mp.binomial(count, k) * (1 - p) ** k * p ** (count - k)
            for k in range(half + 1, count + 1)
        )
        mu = math.sqrt(float(charge(m, "gdp")[0]))
        assert phi(_z(float(level)) + mu * (1 + 1e-9)) >= power * (1 - mp.mpf("1e-9"))


def test_gaussian_charges_are_never_below_the_exact_parameter():
    for sigma in (0.3, 1 / 3, 1.7, 12.3, 997.1):
        m = ny.Gaussian(sigma) * 7
        rho = m.rho()
        assert charge(m, "zcdp")[0] == rho
        assert charge(m, "gdp")[0] >= 2 * rho
        assert charge(m, "renyi:3")[0] >= 3 * rho


def test_a_number_of_steps_is_calibrated_in_whole_numbers():
    assert ny.calibrate(lambda n: ny.Gaussian(20) * n, ny.zcdp("0.1"), whole=True) == 80
    parameter = ny.calibrate(ny.Gaussian, ny.gdp(0.3), whole=True)
    assert parameter == 4
    train = ny.Gaussian(1).subsample(rate=0.01)
    steps = ny.calibrate(lambda n: train * n, ny.approximate(1, 1e-5), whole=True)
    assert (train * int(steps)).tradeoff().delta(1).upper <= 1e-5
    assert (train * (int(steps) + 1)).tradeoff().delta(1).upper > 1e-5


# ---- warnings


def budget(**given: object) -> PlanBudget:
    return budget_of({name: F(str(value)) for name, value in given.items()})


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": 1000, "delta": "1e-6"},
        {"epsilon": 1000, "delta": "1e-300"},
        {"zcdp": 6},
        {"gdp": 4},
        {"power": "0.96", "level": "0.05"},
        {"delta": "0.01", "epsilon": 1},
    ],
)
def test_an_absurd_budget_has_a_warning_with_its_budget(given):
    (warning,) = budget_warnings(budget(**given))
    assert next(iter(given)) in warning


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": 10, "delta": "1e-9"},
        {"zcdp": "2.63"},
        {"gdp": 3},
        {"power": "0.99", "level": "0.9"},
        {"power": "0.25", "level": "0.05"},
        {"zcdp": 1, "delta": "1e-6"},
    ],
)
def test_a_budget_in_use_has_none(given):
    assert budget_warnings(budget(**given)) == ()


def test_the_powers_in_the_text_are_those_of_gaussian_noise():
    assert round(float(ny.gdp((2 * 2.63) ** 0.5).power(level=0.05)), 2) == 0.74
    for rho in ("5.4", "5.42"):
        power = float(ny.gdp((2 * float(rho)) ** 0.5).power(level=0.05))
        assert bool(budget_warnings(budget(zcdp=rho))) == (power >= 0.95)
    assert "about 97% of true claims" in budget_warnings(budget(zcdp=6))[0]
    assert "nearly every true claim" in budget_warnings(budget(zcdp=60))[0]
