"""Printed figures of the literature, reproduced; misprints are known by name."""

import json
from fractions import Fraction
from importlib.resources import files

import pytest

import neyman as ny

PUBLISHED = json.loads((files("neyman") / "data" / "published.json").read_text())
PURE = PUBLISHED["power_of_pure_dp"]
CENSUS = PUBLISHED["power_of_2020_redistricting_release"]
MISPRINTS = {("0.01", 4): 0.546, ("0.05", 0.5): 0.082, ("0.05", 2): 0.369}


def rounds_to(bound: ny.Bound, printed: float, digits: int) -> bool:
    """Whether both ends round to the printed figure."""
    return round(bound.lower, digits) == round(bound.upper, digits) == printed


@pytest.mark.parametrize("level", PURE["level"])
def test_the_power_of_pure_dp_is_table_1_of_kifer_and_abowd(level):
    for epsilon, printed in zip(PURE["epsilon"], PURE["level"][level], strict=True):
        true = MISPRINTS.get((level, epsilon), printed)
        assert rounds_to(ny.pure(epsilon).power(float(level)), true, 3), (level, epsilon)


def test_the_misprints_of_table_1_are_those_that_the_facts_name():
    assert {tuple(k.split(",")) for k in PURE["misprints"]} == {
        (level, f"{epsilon:g}") for level, epsilon in MISPRINTS
    }


@pytest.mark.parametrize(
    ("column", "curve"),
    [("gaussian", ny.gdp((2 * 2.63) ** 0.5)), ("zcdp_upper_bound", ny.zcdp("2.63"))],
)
def test_the_power_of_gaussian_and_zcdp_at_rho_2_63_is_table_2(column, curve):
    found = [curve.power(level) for level in CENSUS["level"]]
    assert all(
        rounds_to(bound, printed, 2) for bound, printed in zip(found, CENSUS[column], strict=True)
    ), found


def test_discrete_is_not_gaussian_where_one_query_takes_the_whole_budget():
    whole = ny.DiscreteGaussian(sigma_squared=Fraction(100, 263), sensitivity=[(1, 1)])
    powers = [whole.tradeoff().power(level) for level in (0.01, 0.05, 0.1)]
    assert [round(p.upper, 4) for p in powers] == [0.3834, 0.7533, 0.8033]
