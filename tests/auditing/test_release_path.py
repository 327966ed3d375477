"""The audit of the release path passes on plans as they are, and reports each planted fault."""

from __future__ import annotations

import json

import numpy as np
import pytest
from programs import JOINED
from typer.testing import CliRunner

from attacks import SIZE
from neyman.auditing import audit_plan
from neyman.cli import app
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
    monkeypatch.setattr(Plan, "rows_of", lambda plan, query: 2)
    plan = {**MIXED, "query": [{"name": "n", "measure": "count", "share": 1}]}
    plan["unit"] = {**MIXED["unit"], "neighboring": "add-remove", "rows": 4}
    assert "moves by" in faults_of(plan)
    query = {**JOINED["query"][0], "share": 1, "by": ["sex"]}
    tables = {"people": JOINED["tables"]["people"]}
    joined = {**JOINED, "unit": {**JOINED["unit"], "rows": 4}, "query": [query], "tables": tables}
    report = audit_plan(Plan.from_dict(joined), pairs=6, replays=100, seed=1)
    assert any("moves by" in fault for fault in report.faults)


def test_a_table_with_other_numbers_is_reported(monkeypatch):
    part = add_noise.noisy_part

    def one_more(*given):
        return {name: noisy + 1 for name, noisy in part(*given).items()}

    monkeypatch.setattr(add_noise, "noisy_part", one_more)
    assert "not the exact one plus its noise" in faults_of()


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
