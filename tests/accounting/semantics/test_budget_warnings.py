"""Budgets that protect almost nothing are named, and usual ones are not."""

from __future__ import annotations

from fractions import Fraction

import pytest

import neyman as ny
from neyman.accounting import PlanBudget, budget_of, budget_warnings


def budget(**given: object) -> PlanBudget:
    return budget_of({name: Fraction(str(value)) for name, value in given.items()})


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
    """74% for the Census, and from zcdp 5.42 on at least 95%."""
    assert round(float(ny.gdp((2 * 2.63) ** 0.5).power(level=0.05)), 2) == 0.74
    for rho in ("5.4", "5.42"):
        power = float(ny.gdp((2 * float(rho)) ** 0.5).power(level=0.05))
        assert bool(budget_warnings(budget(zcdp=rho))) == (power >= 0.95)
    assert "about 97% of true claims" in budget_warnings(budget(zcdp=6))[0]
    assert "nearly every true claim" in budget_warnings(budget(zcdp=60))[0]
