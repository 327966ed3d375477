"""The audit of the release path passes on plans as they are, and reports each planted fault."""

from __future__ import annotations

import json
import math
from datetime import date
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from attacks import SIZE
from neyman.auditing import audit_plan
from neyman.auditing.releases import release_path
from neyman.auditing.releases.release_path import chance_of_draws
from neyman.auditing.releases.small_data import neighbors
from neyman.cli import app
from neyman.noise import SecureBits, discrete_gaussian, rounded_gaussian
from neyman.publishing import Plan, add_noise

# Ibis's name for DuckDB's
pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

MIXED = {
    "schema": 2,
    "name": "mixed",
    "dataset": "people@1",
    "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 2, "id": "id"},
    "columns": {"race": {"keys": ["white", "black"], "unknown": "drop"}, "age": {"integer": True}},
    "hierarchy": {"place": {"levels": ["state", "county"], "keys": [["IL", "A"], ["IN", "B"]]}},
    "budget": {"zcdp": "2"},
    "query": [
        {"name": "total", "measure": "count", "at": ["state", "county"], "share": "1/2"},
        {"name": "race", "measure": "units", "by": ["race"], "share": "1/4"},
        {"name": "age", "measure": "mean", "column": "age", "clip": [0, 10], "share": "1/4"},
    ],
}
SINGLE = {
    **MIXED,
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "query": [{"name": "race", "measure": "count", "by": ["race"], "share": "1"}],
}
JOINED = {
    "schema": 2,
    "name": "joined",
    "dataset": "clinic@1",
    "table": "visits",
    "where": "day >= date('2020-02-01') or urgent",
    "unit": {"protects": "patient", "neighboring": "add-remove", "id": "patient", "rows": 2},
    "tables": {
        "people": {"id": "id", "join": ["sex"], "duplicates": "drop"},
        "bills": {"rows": 2},
    },
    "columns": {
        "sex": {"keys": ["f", "m"]},
        "paid": {"integer": True},
        "day": {"type": "date"},
        "urgent": {"type": "boolean"},
        "kind": {"type": "text"},
        "cost": {"type": "whole"},
    },
    "derive": {
        "emergency": {"map": "kind", "to": {"a": "yes", "b": "no"}, "unknown": "no"},
        "dear": {"expression": "cost * 2", "range": [0, 50]},
    },
    "lookup": {"desk": {"column": ["sex", "kind"], "keys": [["f", "a", "1"], ["m", "a", "2"]]}},
    "budget": {"zcdp": "2"},
    "query": [
        {"name": "n", "measure": "count", "by": ["desk", "emergency"], "share": "1/4"},
        {"name": "paid", "table": "bills", "measure": "sum", "column": "paid", "clip": [0, 9],
         "share": "1/4"},
        {"name": "cost", "measure": "sum", "column": "dear", "clip": [0, 40], "share": "1/4",
         "where": "kind in ['a', 'c'] and cost > 3"},
        {"name": "people", "table": "people", "measure": "units", "by": ["sex"], "share": "1/4"},
    ],
}  # fmt: skip
PLANS = {"mixed": MIXED, "single": SINGLE, "joined": JOINED}


@pytest.mark.parametrize("name", PLANS)
def test_the_release_path_has_no_fault(name, attempts):
    report = audit_plan(Plan.from_dict(PLANS[name]), pairs=2 * SIZE, replays=500 * SIZE)
    assert report.faults == ()
    assert report.pairs == 2 * SIZE
    attempts(report.draws)
    assert report.draws >= 8


def faults_of(plan=SINGLE, **more):
    return " ".join(audit_plan(Plan.from_dict(plan), pairs=2, replays=500, seed=1, **more).faults)


def test_noise_that_is_too_small_is_reported(monkeypatch):
    """A tenth of the deviation."""
    draw = add_noise.discrete_gaussian
    monkeypatch.setattr(
        add_noise, "discrete_gaussian", lambda s, n, b, out=None: draw(s / 100, n, b, out)
    )
    assert "the curve" in faults_of({**SINGLE, "budget": {"zcdp": "1/8"}})


def test_noise_of_another_distribution_is_reported(monkeypatch):
    draw = add_noise.discrete_gaussian
    monkeypatch.setattr(
        add_noise, "discrete_gaussian", lambda s, n, b, out=None: draw(s * 400, n, b, out)
    )
    query = {"name": "n", "measure": "count", "by": ["race"], "at": ["county"], "share": 1}
    plan = Plan.from_dict({**MIXED, "query": [query]})
    report = audit_plan(plan, pairs=6, replays=100, seed=1)
    assert any("draws of discrete noise" in fault for fault in report.faults)


def test_a_unit_with_more_rows_than_declared_is_reported(monkeypatch):
    """The engine bounds rows by the plan; here it is given a plan that allows ten."""
    counted = release_path.run

    def loose(plan, *data, **more):
        unit = plan.unit.model_copy(update={"rows": 10})
        monkeypatch.setattr(type(plan), "unit_rows", 2)
        return counted(plan.changed(unit=unit), *data, **more)

    plan = {**MIXED, "query": [{"name": "n", "measure": "count", "share": 1}]}
    plan["unit"] = {**MIXED["unit"], "neighboring": "add-remove"}
    monkeypatch.setattr(release_path, "run", loose)
    assert "moves by" in faults_of(plan)


def test_a_table_with_other_numbers_is_reported(monkeypatch):
    part = add_noise.noisy_part

    def one_more(*given):
        return {name: noisy + 1 for name, noisy in part(*given).items()}

    monkeypatch.setattr(add_noise, "noisy_part", one_more)
    assert "not the exact one plus its noise" in faults_of()


@pytest.mark.parametrize("kind", ["discrete", "rounded"])
@pytest.mark.parametrize("variance", [Fraction(1, 10), 2, 400, 10**9])
def test_draws_of_the_samplers_fit_their_distribution(kind, variance):
    draw = {"discrete": discrete_gaussian, "rounded": rounded_gaussian}[kind]
    draws = draw(Fraction(variance), 4000, SecureBits())
    assert chance_of_draws(kind, float(variance), draws) > 1e-7
    if variance > 1:
        assert chance_of_draws(kind, float(variance), 2 * draws) < 1e-7


def test_data_have_values_on_both_sides_of_each_constant():
    plan = Plan.from_dict(JOINED)
    one, other = neighbors(plan, np.random.default_rng(1))
    visits = one["visits"]
    assert set(visits.column_names) == {"patient", "paid", "day", "urgent", "kind", "cost"}
    assert {"a", "b", "c", "another text"} & set(visits["kind"].to_pylist())
    days = [day for day in visits["day"].to_pylist() if day]
    assert min(days) < date(2020, 2, 1) <= max(days)
    assert {"id", "sex"} <= set(one["people"].column_names)
    # One unit is in the data or not: in each table, its rows alone.
    for name, most in (("visits", 3), ("bills", 3), ("people", 1)):
        assert len(one[name]) - len(other[name]) == most


def test_a_sensitivity_that_forgets_a_join_is_reported(monkeypatch):
    """The engine bounds visits by 2 per patient; here it is given a plan that allows ten."""
    counted = release_path.run

    def loose(plan, *data, **more):
        monkeypatch.setattr(type(plan), "unit_rows", 2)
        return counted(plan.changed(unit=plan.unit.model_copy(update={"rows": 10})), *data, **more)

    monkeypatch.setattr(release_path, "run", loose)
    plan = {**JOINED, "query": [{**JOINED["query"][0], "share": 1, "by": []}]}
    plan["tables"] = {"people": JOINED["tables"]["people"]}
    plan["query"][0]["by"] = ["sex"]
    report = audit_plan(Plan.from_dict(plan), pairs=6, replays=100, seed=1)
    assert any("moves by" in fault for fault in report.faults)


def test_what_is_not_tested_is_refused_with_the_reason():
    discovered = {
        **SINGLE,
        "columns": {"town": {"discover": True}},
        "budget": {"zcdp": "1", "delta": "1e-6"},
        "query": [{"name": "t", "measure": "units", "by": ["town"], "delta": "1e-9", "share": 1}],
    }
    median = {"name": "m", "measure": "median", "column": "age", "clip": [0, 9], "share": 1}
    for change, name in [
        (discovered, "discovered keys"),
        ({**MIXED, "query": [{**median, "method": "inverse-sensitivity"}]}, "inverse sensitivity"),
    ]:
        with pytest.raises(ValueError, match=f"has .*{name}.* does not test: .*without them"):
            audit_plan(Plan.from_dict({**SINGLE, **change}))
    for argument, value in [("pairs", 0), ("replays", 99), ("confidence", 1)]:
        with pytest.raises(ValueError, match=argument):
            audit_plan(Plan.from_dict(SINGLE), **{argument: value})


def test_a_plan_of_a_part_has_the_release_path_of_the_plan_without_it():
    """A part changes only the account that is charged."""
    report = audit_plan(Plan.from_dict({**SINGLE, "part": "west"}), pairs=1, replays=100)
    assert report.faults == ()


def test_the_command_prints_what_it_tested(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(
        'schema = 2\nname = "small"\ndataset = "d@1"\ntable = "t"\n'
        'unit = {protects = "person", neighboring = "replace-one"}\n'
        'columns = {k = {keys = ["x", "y"]}}\nbudget = {zcdp = 1}\n'
        '[[query]]\nname = "n"\nmeasure = "count"\nby = ["k"]\nshare = 1\n'
    )
    answer = CliRunner().invoke(
        app, ["audit", str(path), "--pairs", "1", "--replays", "100", "--json"]
    )
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["faults"] == []
    assert np.isclose(json.loads(answer.stdout)["tables"], 2)


def test_an_unlikely_count_of_small_noise_is_judged_by_its_exact_chance():
    """A chi-square of such small expected counts gave a chance 300 times too small."""
    draws = np.array([1] * 12 + [-1] * 3 + [0] * 135)
    ones = 2 * math.exp(-0.5 / 0.36**2) / (1 + 2 * math.exp(-0.5 / 0.36**2)) / 2
    exact = sum(math.comb(150, k) * ones**k * (1 - ones) ** (150 - k) for k in range(12, 151))
    assert exact > 5e-5
    assert chance_of_draws("discrete", 0.36**2, draws) >= exact


@pytest.mark.parametrize(("sigma", "size"), [(0.3, 300), (0.5, 60), (3.0, 400), (40.0, 200)])
def test_noise_with_its_own_distribution_is_seldom_accused(sigma: float, size: int):
    """False alarms of 400 samples at a chance of 1e-6 each: at most 4e-4 of this test."""
    k = np.arange(-int(12 * sigma) - 3, int(12 * sigma) + 4)
    weight = np.exp(-(k**2) / (2 * sigma**2))
    rng = np.random.default_rng(2718)
    for _ in range(400):
        draws = rng.choice(k, size=size, p=weight / weight.sum())
        assert chance_of_draws("discrete", sigma**2, draws) > 1e-6
