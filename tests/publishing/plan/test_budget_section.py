"""Where a budget is met, every page prints the budget's number and nothing above it."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

import neyman as ny
from commands import answered
from neyman import Bound
from neyman.accounting import AtMost, Zcdp, budget_of, within_limit
from neyman.display import page
from neyman.publishing import Plan, PlanError, guarantee, toml_text

BUDGETS = [
    ({"epsilon": 3, "delta": Decimal("1e-6")}, "epsilon, delta 10⁻⁶", "3"),
    ({"epsilon": 1, "delta": Decimal("1e-3")}, "epsilon, delta 0.001", "1"),
    ({"zcdp": Decimal("0.1")}, "rho (zCDP)", "0.1"),
    ({"zcdp": Decimal("0.07")}, "rho (zCDP)", "0.07"),
    ({"gdp": Decimal("1.1")}, "mu (Gaussian)", "1.1"),
]


def plan_of(budget, queries=3):
    """A plan of two counts and a mean, whose noise has three different scales."""
    asked = [
        {"name": "total", "measure": "count", "share": "1/2"},
        {"name": "race", "measure": "count", "by": ["race"], "share": "1/4"},
        {"name": "age", "measure": "mean", "column": "age", "clip": [0, 90], "share": "1/4"},
    ]
    columns = {
        "race": {"keys": ["a", "b", "c"], "unknown": "drop"},
        "age": {"integer": True, "unknown": 0},
    }
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "test",
            "dataset": "d@1",
            "table": "people",
            "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1},
            "columns": columns,
            "budget": budget,
            "query": asked[:queries],
        }
    )


def printed(page):
    """The numbers of a table of the page, by the measure."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, flags=re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.S) for row in rows]
    return {row[0]: row[1].partition("<br>")[0] for row in cells}


@pytest.mark.parametrize(("budget", "measure", "number"), BUDGETS)
def test_the_report_prints_the_limit_that_was_chosen(budget, measure, number, tmp_path):
    """The row of the budget's own measure has the budget's digits."""
    ledger = ny.throwaway(10)
    ledger.register("d@1", protects="person", neighboring="replace-one", rows=1)
    rows = pa.table({"race": ["a"], "age": [1]})
    release = ny.run(plan_of(budget), rows, ledger, tmp_path / "out", pages={"page.html": page})
    assert printed((release.folder / "page.html").read_text())[measure] == number


def test_the_limit_holds_for_larger_deltas_and_stricter_levels_too():
    """Each number in the guarantee that the budget bounds is at most the budget's."""
    plan = plan_of({"epsilon": 1, "delta": Decimal("1e-6")})
    result = guarantee(plan.mechanism(), plan).to_dict()["epsilon"]
    assert [e["upper"] <= 1 for e in result] == [True, True, False, False]
    plan = plan_of({"power": Decimal("0.25"), "level": Decimal("0.05")})
    result = guarantee(plan.mechanism(), plan).to_dict()["power"]
    assert [p["upper"] <= 0.25 for p in result] == [True, True, False]


def test_a_budget_proves_nothing_about_a_release_with_less_noise():
    """The numbers of a mechanism that the budget does not admit stay above the budget's."""
    plan = plan_of({"epsilon": 3, "delta": Decimal("1e-6")})
    loud = plan.at_scale(plan.scale * Fraction(9, 10))
    assert plan.admits(plan.mechanism())
    assert not plan.admits(loud)
    assert guarantee(loud, plan).to_dict()["epsilon"][1]["lower"] > 3


def test_calibrate_prints_the_limit_that_was_chosen(tmp_path):
    """At its own budget a plan has epsilon 3, not 3.0000003."""
    plan = plan_of({"epsilon": 3, "delta": Decimal("1e-6")})
    (tmp_path / "plan.toml").write_text(toml_text(plan.canonical()))
    terms = ("--epsilon", "3", "--delta", "1e-6", "--json")
    said = json.loads(answered("calibrate", tmp_path / "plan.toml", *terms))
    assert said["epsilon"] <= 3


NUMBERS = [Fraction("1.1"), Fraction("0.1"), Fraction(1, 3), Fraction(2, 3), Fraction(3)]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_a_budget_proves_is_the_next_float_above_it(number):
    """A bound above the budget becomes the budget's number, and one below it stays."""
    wide, tight = Bound(0.01, 50.0, "upper", "x"), Bound(0.01, 0.02, "upper", "x")
    delta, level = Fraction(1, 10**6), Fraction(1, 20)
    asked = [
        ("epsilon", {"epsilon": number, "delta": delta}, (float(delta),)),
        ("power", {"power": number, "level": level}, (float(level),)),
        ("mu", {"gdp": number}, ()),
        ("rho", {"zcdp": number}, ()),
    ]
    for name, numbers, at in asked:
        budget = budget_of(numbers)
        upper = within_limit(budget, name, wide, *at).upper
        assert math.nextafter(upper, 0) < number <= upper
        assert within_limit(budget, name, tight, *at) == tight
        assert within_limit(None, name, wide, *at) == wide
        above = Bound(40.0, 50.0, "upper", "x")
        assert within_limit(budget, name, above, *at).lower == upper


def test_a_budget_proves_an_epsilon_and_a_power_on_its_own_side_only():
    wide = Bound(0.0, 50.0, "upper", "x")
    for delta in (Fraction("1e-6"), Fraction(1, 10**7), Fraction(1, 3)):
        budget = budget_of({"epsilon": Fraction(3), "delta": delta})
        near = float(delta)
        floor = near if near <= delta else math.nextafter(near, 0)
        assert within_limit(budget, "epsilon", wide, floor).upper == 3
        assert within_limit(budget, "epsilon", wide, 1.0).upper == 3
        assert within_limit(budget, "epsilon", wide, math.nextafter(floor, 0)) == wide
    budget = AtMost(Fraction(1, 4), Fraction(1, 20))
    assert within_limit(budget, "power", wide, 0.01).upper == 0.25
    assert within_limit(budget, "power", wide, math.nextafter(0.05, 1)) == wide


def test_no_finite_rho_is_proven_where_a_loss_is_infinite():
    endless = Bound(1.0, math.inf, "upper", "x")
    assert within_limit(Zcdp(Fraction(1)), "rho", endless) == endless


@pytest.mark.parametrize("delta", ["1e-6", "1e-7", "1e-5", "3e-9", "0.001", "0.0078125"])
def test_the_target_of_a_plan_is_the_float_below_its_budget(delta):
    plan = plan_of({"epsilon": 1, "delta": Decimal(delta)})
    (loss,) = [loss for loss, _ in plan.target.alternatives[0].parts]
    failure = Fraction(loss.failure)
    assert failure <= Fraction(delta) < Fraction(math.nextafter(loss.failure, 1))


def test_a_success_and_its_baseline_are_the_power_budget_of_a_plan():
    """A plan keeps one spelling: its hash, its noise, and its receipt are those of the power."""
    given = {"success": Decimal("0.25"), "baseline": Decimal("0.05")}
    plan = plan_of(given)
    same = plan_of({"power": Decimal("0.25"), "level": Decimal("0.05")})
    assert plan.canonical() == same.canonical()
    assert plan.hash == same.hash
    assert plan.canonical()["budget"] == {"power": "0.25", "level": "0.05"}
    assert plan.mechanism().tradeoff().success(0.05).upper <= 0.25 * 1.01


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"success": 0.1, "baseline": 0.2}, "success = 0.1: must be above budget.baseline = 0.2"),
        ({"success": 1, "baseline": 0.2}, "success = 1: must be above .* and below 1"),
        ({"success": 0.1}, "budget has success = 0.1: must be exactly one of"),
        ({"success": 0.1, "level": 0.05}, "must be exactly one of .*success with baseline"),
        ({"success": 0.1, "baseline": 0.05, "zcdp": 1}, "must be exactly one of"),
    ],
)
def test_a_success_without_its_baseline_is_refused(given, problem):
    with pytest.raises(PlanError, match=problem):
        plan_of(given)
