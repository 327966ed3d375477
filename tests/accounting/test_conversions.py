"""The literature's conversions to (epsilon, delta): their formulas, their order, published uses."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman import renyi, zcdp
from neyman.accounting import conversions
from random_laws import examples

FACTS = Path(__file__).parents[2] / "reproductions" / "data"
rhos = st.floats(-6, 4).map(lambda v: Fraction(10) ** round(v))
deltas = st.sampled_from(["1e-300", "1e-10", "1e-6", "0.01", "0.3", "0.9"])


def formula(order, epsilon, delta):
    """Canonne, Kamath and Steinke's in 40 digits, from the delta that their proof gives."""
    with mp.workdps(40):
        a, e, d = mp.mpf(order), mp.mpf(epsilon), mp.mpf(delta)
        value = e + (mp.log(1 / d) + a * mp.log(1 - 1 / a) - mp.log(a - 1)) / (a - 1)
        return max(value, mp.mpf(0))


def number(x):
    return mp.mpf(x.numerator) / x.denominator


@settings(max_examples=60)
@given(st.fractions(Fraction(101, 100), 500, max_denominator=100), rhos, deltas)
def test_each_formula_lies_between_its_ends(order, epsilon, delta):
    with mp.workdps(40):
        a, e, d = number(order), number(epsilon), mp.mpf(delta)
        for result, value in (
            (conversions.bun_steinke(epsilon, delta), e + 2 * mp.sqrt(e * mp.log(1 / d))),
            (conversions.mironov(order, epsilon, delta), e + mp.log(1 / d) / (a - 1)),
            (conversions.canonne_kamath_steinke(order, epsilon, delta), formula(a, e, d)),
        ):
            assert result.lower <= value <= result.upper
            assert result.width <= 1e-12 * (1 + result.upper)


@pytest.mark.parametrize("digits", [1, 40, 400, 9000])
def test_the_logarithm_of_a_long_fraction_loses_no_digits(digits):
    shares = (Fraction(0.4981437715964537), Fraction("0.1"), Fraction(1, 3), Fraction(1, 10**310))
    for share in shares:
        delta = share + Fraction(1, 10**digits * share.denominator)
        with mp.workdps(9500):
            value = -mp.log(number(delta))
            result = conversions.mironov(2, 0, delta)
            assert result.lower <= value <= result.upper


@settings(max_examples=examples(60))
@given(rhos, deltas)
def test_the_best_order_is_found(rho, delta):
    result = conversions.canonne_kamath_steinke_zcdp(rho, delta)
    with mp.workdps(40):
        size, far = number(rho), -mp.log(mp.mpf(delta))
        at = lambda t: formula(1 + mp.exp(t), (1 + mp.exp(t)) * size, delta)  # noqa: E731
        slope = lambda t: size * mp.exp(2 * t) + mp.log1p(mp.exp(t)) - far  # noqa: E731
        best = at(mp.findroot(slope, (-20, 20), solver="bisect", maxsteps=200, verify=False))
        assert best <= min(map(at, np.linspace(-12, 24, 60)))
        assert result.lower <= best <= result.upper <= best * (1 + 1e-9) + 1e-12
    assert result.width <= 1e-7 * result.upper


@pytest.mark.parametrize("rho", ["1e-4", "0.1", "2.63", "50"])
@pytest.mark.parametrize("delta", [1e-30, 1e-10, 1e-5, 0.05])
def test_newer_conversions_of_zcdp_are_never_looser(rho, delta):
    best = conversions.optimal(zcdp(rho), delta)
    middle, old = (
        conversions.canonne_kamath_steinke_zcdp(rho, delta),
        conversions.bun_steinke(rho, delta),
    )
    assert best.lower <= middle.upper
    assert best.upper <= middle.upper * (1 + 1e-6)
    assert middle.upper <= old.upper
    if (rho, delta) == ("2.63", 0.05):
        assert best.upper < middle.lower


@pytest.mark.parametrize("order", [1.5, 2, 16])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 4])
@pytest.mark.parametrize("delta", [1e-10, 1e-3, 0.2])
def test_newer_conversions_of_one_order_are_never_looser(order, epsilon, delta):
    best = conversions.optimal(renyi({order: epsilon}), delta)
    middle = conversions.canonne_kamath_steinke(order, epsilon, delta)
    assert best.upper <= middle.upper * (1 + 1e-6)
    assert middle.upper <= conversions.mironov(order, epsilon, delta).upper
    if epsilon == 0.01 and middle.lower > 0:
        assert best.upper < middle.lower


def test_zcdp_of_rho_one_is_the_textbook_example():
    assert round(conversions.bun_steinke(1, "1e-6").upper, 4) == 8.4338
    assert round(conversions.canonne_kamath_steinke_zcdp(1, "1e-6").upper, 4) == 7.7662
    assert conversions.mironov(2, 0, 0.5).upper == pytest.approx(float(mp.log(2)))


def test_no_privacy_loss_needs_no_epsilon():
    assert (
        conversions.canonne_kamath_steinke_zcdp(0, 0.1).upper
        == conversions.bun_steinke(0, 0.1).upper
        == 0
    )
    assert conversions.canonne_kamath_steinke(2, 0.1, 0.9).upper == 0


def test_the_2020_redistricting_certificates_are_reproduced():
    pl = json.loads((FACTS / "pl94_allocation.json").read_text())
    printed = json.loads((FACTS / "published.json").read_text())[
        "redistricting_epsilon_at_delta_1e-10"
    ]
    persons, units = (Fraction(pl["rho"][f"{k}_production_exact"]) for k in ("persons", "housing"))

    def shown(rho):
        return round(conversions.canonne_kamath_steinke_zcdp(rho, "1e-10").upper, 2)

    levels = ["Block", "Block_Group", "Tract", "County", "State", "US"]
    above = ["block_group", "tract", "county", "state", "us", "total"]
    for shares, rho, name in (
        ("geolevel_persons", persons, "persons"),
        ("geolevel_housing", units, "units"),
    ):
        spent = Fraction(0)
        for level, place in zip(levels, above, strict=True):
            spent += Fraction(pl[shares][level])
            total = place == "total"
            figure = printed[f"{name}_total"] if total else printed[f"{name}_within"][place]
            assert shown(spent * rho) == figure
    for name, attribute in (
        ("hhgq", "hhgq"),
        ("voting_age", "votingage"),
        ("ethnicity", "ethnicity"),
        ("race", "race"),
    ):
        share = sum(
            Fraction(pl["geolevel_persons"][level]) * Fraction(part)
            for level in levels
            for query, part in pl["query_proportions"][level].items()
            if attribute in pl["attributes_of_query"][query]
        )
        assert shown(share * persons) == printed[name]


def test_a_loss_is_subgaussian_with_the_tau_that_its_rho_gives():
    """Of randomized response and of Gaussian noise, at orders of both signs [ZC-9]."""
    z = np.concatenate([np.geomspace(1e-3, 50, 60), -np.geomspace(1e-3, 50, 60)])
    for epsilon in (0.01, 0.3, 1, 2, 5):
        q = 1 / (1 + np.exp(-epsilon))
        rho = epsilon * np.tanh(epsilon / 2)  # also the mean
        mgf = np.logaddexp(np.log(q) + z * epsilon, np.log1p(-q) - z * epsilon) - z * rho
        assert (mgf <= z**2 * conversions.subgaussian_loss(rho).upper ** 2 / 2 + 1e-12).all()
    for mu in (0.1, 1, 3):
        assert mu <= conversions.subgaussian_loss(mu * mu / 2).upper
        assert conversions.mean_concentrated(mu * mu / 2, mu).upper == pytest.approx(mu * mu / 2)
    with pytest.raises(ValueError, match="at most 100"):
        conversions.subgaussian_loss(101)


def test_a_concentrated_loss_of_any_size_is_rounded_up():
    for tau in (1e-300, 1e-170, 1e-161, 0.1, 3, 1e150):
        bound, exact = conversions.mean_concentrated(0, tau), Fraction(repr(tau)) ** 2 / 2
        assert Fraction(bound.lower) <= exact <= Fraction(bound.upper)
    with pytest.raises(ValueError, match="tau"):
        conversions.mean_concentrated(0, 1e200)
