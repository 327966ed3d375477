"""The table of published deployments: its sources, its curves, and the scale that they make."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from pathlib import Path

import pytest

import neyman as ny
from neyman.accounting import deployments, scale_sentence

FACTS = Path(__file__).parents[2] / "reproductions" / "data" / "published.json"


def test_each_row_names_its_unit_and_its_source_and_cannot_be_changed():
    assert len({each.name for each in ny.deployments}) == len(ny.deployments) >= 9
    for each in ny.deployments:
        assert each.url.startswith("https://")
        assert str(each.year) in each.citation or each.name.startswith("2020 Census")
        assert each.unit
        assert each.parameters
        given = [each.rho, each.epsilon]
        assert sum(value is not None for value in given) == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            each.year = 2000  # pyright: ignore[reportAttributeAccessIssue]


def test_the_census_has_the_powers_that_its_paper_prints():
    """Kifer, Abowd et al. 2022, table 2: the discrete noise has the powers of Gaussian noise."""
    facts = json.loads(FACTS.read_text())["power_of_2020_redistricting_release"]
    assert facts["gaussian"] == facts["discrete_gaussian"]
    (census,) = (each for each in ny.deployments if each.name.startswith("2020 Census"))
    assert census.rho == Fraction("2.63")
    for level, power in zip(facts["level"], facts["gaussian"], strict=True):
        assert float(census.tradeoff().power(level)) == pytest.approx(power, abs=0.01)


def test_a_guarantee_alone_gives_the_worst_that_it_permits():
    for each in ny.deployments:
        f = each.tradeoff()
        if each.form == "epsilon":
            assert f.pure().upper == pytest.approx(float(each.epsilon or 0))
        if each.form == "epsilon and delta":
            assert f.delta(float(each.epsilon or 0)).upper == pytest.approx(float(each.delta or 0))
        if each.form == "zCDP":
            assert f >= ny.zcdp(each.rho or 0)
        assert each.is_curve == (each.form == "Gaussian noise")


@pytest.mark.parametrize("level", [1e-6, 0.05, 0.5])
def test_the_scale_has_both_ends_and_rises(level):
    marks = deployments.scale(level)
    powers = [mark.power for mark in marks]
    assert powers == sorted(powers)
    assert (powers[0], powers[-1]) == (level, 1)
    assert len(marks) == len(ny.deployments) + 2
    sentence = scale_sentence(level, level)
    assert "no information" in sentence
    assert sentence.endswith("the data themselves 100%.")
