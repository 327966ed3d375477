"""Plans: what is read, what is refused and how, and that each page prints the budget's number."""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from collections import Counter
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from commands import answered
from function_calls import first_calls
from mixed_plan import MIXED
from neyman import Bound
from neyman.accounting import AtMost, Zcdp, budget_of, exact_text, within_limit
from neyman.display import page
from neyman.publishing import Plan, PlanDocument, PlanError, guarantee, toml_text
from neyman.publishing.plan.query_part import QueryPart
from plans import SMALL

MOST_CLIP = 2**31 - 1  # with 2^31 rows, sums stay within 2^62

PLAN = """
schema = 2
name = "midwest"
dataset = "midwest-1990@1"
table = "people"

[unit]
protects = "person"
neighboring = "replace-one"
rows = 1

[columns.race]
keys = ["white", "black", "other"]
unknown = "drop"

[columns.age]
integer = true
unknown = 0

[hierarchy.place]
levels = ["region", "state", "county"]
keys = "places.csv"
unknown = "drop"

[budget]
zcdp = 0.1

[[query]]
name = "total"
measure = "count"
at = ["region", "state", "county"]
share = "1/2"
split = { state = "1/3", county = "2/3" }
public = { region = 5 }

[[query]]
name = "race"
measure = "count"
by = ["race"]
at = ["region", "state", "county"]
share = 0.25

[[query]]
name = "age"
measure = "mean"
column = "age"
clip = [0, 90]
share = 0.25
"""
PLACES = "region,state,county\nMW,IL,Adams\nMW,IL,Cook\nMW,IN,Adams\n"
DEMO = tomllib.loads(PLAN, parse_float=Decimal)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "places.csv").write_text(PLACES)
    return tmp_path


def changed(path: str, value: object, base: dict = DEMO) -> dict:
    """The plan with one field set, or taken out where the value is `...`."""
    data = copy.deepcopy(base)
    *above, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    part = data
    for step in above:
        part = part[step]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return data


def test_the_plan_of_the_design_page_is_read_as_it_is_written(folder):
    plan = Plan.load(folder / "plan.toml")
    assert plan.dataset == "midwest-1990@1"
    assert plan.query("total").split == (("state", Fraction(1, 3)), ("county", Fraction(2, 3)))
    assert [(e.query, e.level, e.measure, e.cells, e.share) for e in plan.entries()] == [
        ("total", "region", "count", 1, 0), ("total", "state", "count", 2, Fraction(1, 6)),
        ("total", "county", "count", 3, Fraction(1, 3)),
        ("race", "region", "count", 3, Fraction(1, 12)),
        ("race", "state", "count", 6, Fraction(1, 12)),
        ("race", "county", "count", 9, Fraction(1, 12)),
        ("age", "all", "offset", 1, Fraction(1, 8)), ("age", "all", "count", 1, Fraction(1, 8)),
    ]  # fmt: skip


def test_counties_of_one_name_in_two_states_are_two_places(folder):
    hierarchy = Plan.load(folder / "plan.toml").hierarchy
    assert hierarchy.paths("county")[0] == ("MW", "IL", "Adams")
    assert hierarchy.paths("county")[2] == ("MW", "IN", "Adams")
    assert list(hierarchy.parents("county", "state")) == [0, 0, 1]


def test_a_query_or_hierarchy_that_is_not_there_is_refused():
    kind = {"levels": ["kind"], "keys": [["x"], ["y"]]}
    plan = Plan.from_dict(WIDE | {"hierarchy": {**WIDE["hierarchy"], "kind": kind}})
    with pytest.raises(KeyError, match="no query 'rase'"):
        plan.query("rase")
    with pytest.raises(ValueError, match="take one from 'hierarchies'"):
        _ = plan.hierarchy


def test_the_canonical_plan_is_json_and_the_same_plan_again(folder):
    plans = Plan.load(folder / "plan.toml"), Plan.from_dict(WIDE)
    for plan in plans:
        again = Plan.from_dict(json.loads(json.dumps(plan.canonical())))
        assert again == plan
        assert again.hash == plan.hash
        assert hash(again) == hash(plan)
    for path in ("part", "most_rows", "consistency", "query.2.groups", "query.2.rows_per_group"):
        assert Plan.from_dict(changed(path, ..., WIDE)).hash != plans[1].hash


def test_the_hash_follows_meaning_not_spelling(folder):
    plan = Plan.load(folder / "plan.toml")
    same = Plan.from_dict(changed("query.1.share", "1/4"), folder=folder)
    assert same.hash == plan.hash
    (folder / "places.csv").write_text(PLACES.replace("Cook", "Coook"))
    assert Plan.load(folder / "plan.toml").hash != plan.hash


def test_a_zcdp_budget_is_divided_exactly(folder):
    plan = Plan.load(folder / "plan.toml")
    spent = [
        Fraction(entry.squared) / (2 * sigma_squared)
        for entry, sigma_squared in plan.calibrated()
        if entry.public is None
    ]
    assert sum(spent) == Fraction(1, 10)
    assert spent == [e.share / 10 for e in plan.entries() if e.public is None]


def test_the_schema_is_json_and_names_every_section():
    schema = Plan.schema()
    assert set(WIDE) <= set(schema["properties"])
    json.dumps(schema)
    for part in schema["$defs"].values():
        assert all("description" in field for field in part["properties"].values())


def test_a_plan_keeps_its_hash(folder):
    assert Plan.load(folder / "plan.toml").hash == (
        "sha256:0f164ca93897e7350decaa24a81c5d694961c51f8d400c8d9bee4b982fdac582"
    )


WIDE = {
    "schema": 2, "name": "jobs", "dataset": "payroll@3", "table": "payments", "part": "north",
    "most_rows": 10**6, "budget": {"zcdp": Decimal("0.1"), "delta": Decimal("1e-6")},
    "unit": {"protects": "person", "neighboring": "add-remove", "rows": 5, "id": "pid"},
    "columns": {
        "job": {"discover": True}, "sex": {"keys": ["f", "m"]},
        "pay": {"decimals": 2, "unknown": Decimal("0.5")}, "age": {"integer": True},
    },
    "hierarchy": {
        "place": {"levels": ["state", "county"], "keys": [["A", "x"], ["A", "y"], ["B", "z"]]}
    },
    "consistency": {"method": "integer"},
    "query": [
        {"name": "jobs", "measure": "units", "by": ["job", "sex"], "at": ["state", "county"],
         "groups": 3, "delta": Decimal("1e-8"), "share": "1/4"},
        {"name": "pay", "measure": "mean", "column": "pay", "clip": [Decimal("-10.25"), 5000],
         "by": ["sex"], "share": "1/4"},
        {"name": "spread", "measure": "variance", "column": "age", "clip": [0, 99],
         "at": ["county"], "groups": 2, "rows_per_group": 2, "share": "1/8"},
        {"name": "ages", "measure": "histogram", "column": "age", "edges": [0, 20, 40, 60, 120],
         "by": ["sex"], "groups": 2, "share": "1/8"},
        {"name": "typical", "measure": "quantiles", "column": "pay", "share": "1/8",
         "edges": [0, Decimal("1000.5"), 2000], "quantiles": [Decimal("0.25"), Decimal("0.5")]},
        {"name": "people", "measure": "units", "at": ["state"], "share": "1/8"},
    ],
}  # fmt: skip


def test_a_plan_of_many_measures_is_read_as_it_is_written():
    plan = Plan.from_dict(WIDE)
    assert [(e.query, e.level, e.measure, e.cells, e.share * 24) for e in plan.entries()] == [
        ("jobs", "state", "keys", None, 3), ("jobs", "county", "keys", None, 3),
        ("pay", "all", "offset", 2, 3), ("pay", "all", "count", 2, 3),
        ("spread", "county", "offset", 3, 1), ("spread", "county", "square", 3, 1),
        ("spread", "county", "count", 3, 1), ("ages", "all", "count", 8, 3),
        ("typical", "all", "count", 2, 3), ("people", "state", "units", 2, 3),
    ]  # fmt: skip
    entries = {(e.query, e.measure): e for e in plan.entries()}
    assert plan.column("pay").unknown == 50
    assert plan.query("pay").clip == (-1025, 500_000)
    assert plan.query("typical").bins == (0, 100_050, 200_000)
    assert (entries["jobs", "keys"].keys, entries["jobs", "keys"].shifts) == (3, ((1, 1, 1),))
    assert entries["pay", "offset"].shifts == ((5 * 501_025,),)
    assert entries["spread", "offset"].shifts == ((2 * 99, 2 * 99),)  # in halves, as pay
    assert entries["spread", "square"].shifts == ((2 * 50**2, 2 * 50**2),)
    assert entries["ages", "count"].shifts == ((5,),)  # nothing spread over cells tells more
    assert (plan.part, plan.most_rows, plan.consistency) == ("north", 10**6, "integer")


@pytest.mark.parametrize(
    ("budget", "delta"),
    [({"epsilon": 2, "delta": "1e-6"}, "1e-8"), ({"power": "0.25", "level": "0.05"}, "1e-13")],
)
def test_a_budget_of_several_kinds_is_kept_by_a_plan_with_unknown_keys(budget, delta):
    data = changed("budget", budget, WIDE)
    data["query"] = data["query"][:1]
    data["query"][0] |= {"share": 1, "delta": delta}
    plan = Plan.from_dict(data)
    assert plan.admits(plan.mechanism())


@pytest.mark.parametrize(("weight", "canonical_weight"), [
    (3, {"state": "3", "county": "3"}),
    (0.25, {"state": "0.25", "county": "0.25"}),
    ("1/3", {"state": "1/3", "county": "1/3"}),
    ({"county": "1e60"}, {"state": "1", "county": "1" + 60 * "0"}),
    ({"county": "1e-60", "state": 2}, {"state": "2", "county": "1/1" + 60 * "0"}),
])  # fmt: skip
def test_weights_are_part_of_a_plan_that_states_them(folder, weight, canonical_weight):
    plan = Plan.from_dict(changed("query.0.weight", weight), folder=folder)
    assert plan.canonical()["query"][0]["weight"] == canonical_weight
    assert plan.query("total").weight == tuple(
        (k, Fraction(v)) for k, v in canonical_weight.items()
    )
    assert plan.query("race").weight == ()
    again = Plan.from_dict(json.loads(json.dumps(plan.canonical())))
    assert again == plan
    assert again.hash == plan.hash != Plan.load(folder / "plan.toml").hash
    assert plan.entries() == Plan.load(folder / "plan.toml").entries()


def test_where_shifts_are_too_many_rho_is_what_is_claimed():
    data = changed("unit.rows", 300, WIDE)
    data["query"] = [data["query"][3] | {"share": 1, "rows_per_group": 101}]
    del data["query"][0]["groups"]
    data["budget"] = {"zcdp": Decimal("0.1")}
    plan = Plan.from_dict(data)
    assert plan.bare
    assert plan.mechanism().rho() == Fraction(1, 10)
    assert plan.mechanism(Fraction(30)).rho() == Fraction(1, 30)
    assert plan.entries()[0].shifts == ()
    assert plan.entries()[0].squared == 2 * 101**2 + 98**2
    curve = plan.mechanism().tradeoff()
    assert curve.epsilon(1e-6).upper == pytest.approx(ny.zcdp(0.1).epsilon(1e-6).upper)
    plan = Plan.from_dict(data | {"budget": {"epsilon": 1, "delta": "1e-6"}})
    assert plan.admits(plan.mechanism())
    assert plan.mechanism().tradeoff().epsilon(1e-6).upper == pytest.approx(1, rel=1e-7)
    assert ny.Mechanism.from_json(plan.mechanism().to_json()) == plan.mechanism()


BAD = [
    # field, value, then what the error must say: where, the value, what would be right
    ("name", "a/b", ["name = 'a/b'", "letters"]),
    ("dataset", "midwest", ["dataset = 'midwest'", "name@version"]),
    ("unit.neighboring", "replace-on", ["unit.neighboring = 'replace-on'", "'replace-one'?"]),
    ("unit.neighbouring", "x", ["unit.neighbouring", "did you mean 'neighboring'?"]),
    ("unit.protects", ..., ["unit.protects is missing"]),
    ("unit.protects", " ", ["unit.protects = ' '", "must not be blank"]),
    ("hierarchy.job", {"levels": ["job"], "keys": []}, ["keys lists no place"]),
    ("unit.rows", 0, ["unit.rows = 0", "1 to 1000"]),
    ("unit.rows", 1001, ["unit.rows = 1001", "1 to 1000"]),
    ("unit.rows", True, ["unit.rows = true"]),
    ("unit.rows", 2, ["unit.rows = 2", "unit.id"]),
    ("unit", ..., ["unit is missing", "[unit]"]),
    ("columns.race.keys", [], ["columns.race.keys = []", "at least one"]),
    ("columns.race.keys", ["a", "a"], ["columns.race.keys", "'a' is listed more than once"]),
    ("columns.race.keys", ["a", 1], ["columns.race.keys", "['a', 1]", "all whole numbers"]),
    ("columns.race.keys", ["a", ""], ["columns.race.keys[1] = ''", "blank"]),
    ("columns.race.keys", ["a", Decimal("1.5")], ["columns.race.keys[1] = 1.5", "whole number"]),
    ("columns.race.keys", ["a", "drop"], ["columns.race.keys", "'drop'"]),
    ("columns.race.unknown", "whit", ["columns.race.unknown = 'whit'", "did you mean 'white'?"]),
    ("columns.race.integer", True, ["columns.race", "either keys"]),
    ("columns.age.unknown", "none", ["columns.age.unknown = 'none'", "whole number"]),
    ("hierarchy.place.levels", [], ["hierarchy.place.levels", "level names"]),
    ("hierarchy.place.levels", ["region", "stat", "county"], ["'stat'", "no column", "'state'"]),
    ("hierarchy.place.keys", "nowhere.csv", ["hierarchy.place.keys", "nowhere.csv", "relative"]),
    ("hierarchy.place.keys", [["MW", "IL"]], ["hierarchy.place.keys", "row 1 has 2 values"]),
    ("hierarchy.place.keys", [["MW", "", "Cook"]], ["row 1 'Cook' is an orphan", "no state"]),
    ("hierarchy.place.keys", [["MW", "IL", ""]], ["row 1 has no name", "county = ''"]),
    ("hierarchy.place.keys", [["MW", "IL", "A"]] * 2, ["row 2 repeats row 1", "MW > IL > A"]),
    ("hierarchy.place.keys", [["MW", "IL ", "A"]], ["row 1 has state = 'IL '", "blanks"]),
    ("hierarchy.place.unknown", "Adams", ["hierarchy.place.unknown = 'Adams'", "names 2 places"]),
    ("hierarchy.place.unknown", "Cok", ["hierarchy.place.unknown = 'Cok'", "mean 'Cook'?"]),
    ("hierarchy.job", {"levels": ["state"], "keys": [["x"]]}, ["'state' is also in", "place"]),
    ("hierarchy.job", {"levels": ["a x b"], "keys": [["x"]]}, ["hierarchy.job", "' x '", "two"]),
    ("hierarchy.job", {"levels": ["all"], "keys": [["x"]]}, ["'all'", "over everything"]),
    ("budget", {}, ["budget has nothing", "exactly one"]),
    ("budget", {"zcdp": 1, "gdp": 1}, ["budget has zcdp = 1, gdp = 1", "exactly one"]),
    ("budget", {"epsilon": 1}, ["budget has epsilon = 1", "epsilon with delta"]),
    ("budget.zcdp", 0, ["budget.zcdp = 0", "above 0"]),
    ("budget.zcdp", Decimal(-1), ["budget.zcdp = -1", "above 0"]),
    ("budget.zcdp", Decimal("nan"), ["budget.zcdp = NaN", "finite"]),
    ("budget.zcdp", float("inf"), ["budget.zcdp = inf", "finite"]),
    ("budget", {"power": Decimal("0.05"), "level": Decimal("0.25")}, ["budget.power = 0.05"]),
    ("budget", {"epsilon": 1, "delta": 1}, ["budget.delta = 1", "below 1"]),
    ("query", [], ["query", "one or more"]),
    ("query.0.name", "race", ["query[0].name = 'race'", "differ"]),
    ("query.0.name", "../x", ["query[0].name = '../x'", "files"]),
    ("query.0.measure", "cuont", ["query[0].measure", "'cuont'", "did you mean 'count'?"]),
    ("query.0.at", ["sate"], ["query[0].at[0]", "'sate'", "did you mean 'state'?"]),
    ("query.0.at", ["state", "state"], ["query[0].at[1]", "'state'", "twice"]),
    ("query.1.by", ["rac"], ["query[1].by[0]", "'rac'", "did you mean 'race'?"]),
    ("query.1.by", ["age"], ["query[1].by[0]", "'age'", "is not a column with keys"]),
    ("query.1.by", "race", ["query[1].by", "'race'"]),
    ("query.1.share", "1/3", ["share", "13/12", "1/12 too much", "exactly 1"]),
    ("query.1.share", Decimal("0.2"), ["share", "0.95", "0.05 too little", "exactly 1"]),
    ("query.1.share", 0, ["query[1].share", "= 0", "above 0"]),
    ("query.1.share", "-1/4", ["query[1].share", "'-1/4'", "above 0"]),
    ("query.1.share", "a quarter", ["query[1].share", "'a quarter'", "'1/4'"]),
    ("query.1.share", ..., ["query[1].share", "'race'", "missing"]),
    ("query.1.shar", "1/4", ["query[1].shar", "did you mean 'share'?"]),
    ("query.0.split", {"state": "1/2", "county": "1/3"}, ["query[0].split", "5/6", "1/6 too"]),
    ("query.0.split", {"state": "1"}, ["query[0].split", "['state', 'county']"]),
    ("query.0.public", {"state": 5}, ["query[0].public.state", "2 places"]),
    ("query.0.public", {"regoin": 5}, ["query[0].public.regoin", "did you mean 'region'?"]),
    ("query.0.public", {"region": -5}, ["query[0].public", "-5"]),
    ("query.1.public", {"region": 5}, ["query[1].public.region", "without 'by'"]),
    ("unit.neighboring", "add-remove", ["query[0].public.region", "add-remove"]),
    ("query.2.column", ..., ["query[2].column", "missing", "'age'"]),
    ("query.2.column", "ag", ["query[2].column", "'ag'", "did you mean 'age'?"]),
    ("query.2.column", "race", ["query[2].column", "'race'", "integer = true"]),
    ("query.2.clip", ..., ["query[2].clip", "missing", "[low, high]"]),
    ("query.2.clip", [3, 3], ["query[2].clip", "[3, 3]", "below"]),
    ("query.2.clip", [0, 2 * MOST_CLIP + 2], ["query[2].clip", "middle", str(MOST_CLIP)]),
    ("query.2.clip", [0, Decimal("1.5")], ["query[2].clip", "whole numbers"]),
    ("query.1.clip", [0, 1], ["query[1].clip", "leave it out"]),
    ("columns.race.keys", [2**63, 1], ["columns.race.keys[0]", "64 bits"]),
    ("columns.race.keys", ["\ud800"], ["surrogate"]),
    ("columns.Race", {"keys": ["a"]}, ["'Race'", "'race'", "case only", "rename"]),
    ("columns.AGE", {"integer": True}, ["'AGE'", "'age'", "case only"]),
    ("columns.County", {"keys": ["a"]}, ["'county'", "'County'", "case only"]),
    ("unit.id", "RACE", ["unit.id", "'RACE'", "case only"]),
    ("hierarchy.place.levels", ["region", "Region", "county"], ["'Region'", "case only"]),
    ("query.0.name", "RACE", ["query[0].name = 'RACE'", "differ"]),
    ("unit", {**DEMO["unit"], "rows": 2, "id": "pid"}, ["query[0].public.region", "exactly one"]),
    ("unit", {**DEMO["unit"], "id": "pid"}, ["query[0].public.region", "exactly one"]),
    ("query.0.weight", 0, ["query[0].weight (of query 'total') = 0", "above 0"]),
    ("query.0.weight", "1e61", ["query[0].weight", "between 1e-60 and 1e60"]),
    ("query.0.weight", True, ["query[0].weight", "true", "finite number"]),
    ("query.0.weight", {}, ["query[0].weight", "{ county = 3 }"]),
    ("query.0.weight", [1, 2], ["query[0].weight", "finite number"]),
    ("query.0.weight", {"county": -1}, ["query[0].weight.county", "= -1", "above 0"]),
    ("query.0.weight", {"conty": 3}, ["query[0].weight.conty", "= 3", "did you mean 'county'?"]),
    ("query.0.weight", {"region": 3}, ["query[0].weight.region", "public", "no error"]),
    ("query.2.weight", {"county": 3}, ["query[2].weight.county", "there is 'all'"]),
    (
        "query.0",
        {
            "name": "total",
            "measure": "count",
            "at": ["region"],
            "public": {"region": 5},
            "weight": 2,
        },
        ["query[0].weight", "all its levels are public"],
    ),
    ("budget.zcdp", 10**6, ["budget.zcdp = 1000000", "between 1e-15 and 1e4"]),
    ("budget.zcdp", Decimal("1e-250"), ["budget.zcdp = ", "between 1e-15 and 1e4"]),
    ("budget", {"gdp": 10**9}, ["budget.gdp = ", "between"]),
    ("budget", {"epsilon": 10**9, "delta": Decimal("1e-6")}, ["budget.epsilon = ", "between"]),
    ("budget", {"epsilon": 1, "delta": Decimal("1e-305")}, ["budget.delta = ", "1e-300"]),
    ("budget", {"power": Decimal("0.25"), "level": Decimal("1e-13")}, ["budget.level", "1e-12"]),
]


READS = "this version reads plans of schema 2"


@pytest.mark.parametrize(("schema", "said"), [
    (
        1,
        f"schema = 1: {READS} only; write schema = 2. A missing number then no longer counts "
        "as 0; add unknown = 0 to a column to keep that",
    ),
    (3, f"schema = 3: {READS} only; write schema = 2"),
    (True, f"schema = true: {READS} only; write schema = 2"),
    ("2", f"schema = '2': {READS} only; write schema = 2"),
    (2.0, f"schema = 2.0: {READS} only; write schema = 2"),
    (..., f"schema is missing: {READS}; write schema = 2"),
])  # fmt: skip
@pytest.mark.parametrize("path", ["name", "unit.protects", "query.0.column"])
def test_a_plan_of_another_schema_is_refused_with_one_sentence(schema, said, path):
    with pytest.raises(PlanError) as error:
        Plan.from_dict(changed("schema", schema, changed(path, 7)))
    assert error.value.problems == (said,)
    with pytest.raises(PlanError, match="schema is missing"):
        Plan.from_dict({})


WORSE = [
    ("part", "a/b", ["part = 'a/b'", "letters"]),
    ("most_rows", 0, ["most_rows = 0", "the most rows"]),
    ("consistency", {"method": "least"}, ["consistency.method = 'least'", "'least-squares'"]),
    ("consistency", {}, ["consistency.method is missing", "'nonnegative'"]),
    ("unit.id", ..., ["unit.rows = 5", "unit.id"]),
    (
        "unit",
        {"protects": "person", "neighboring": "add-remove"},
        ["query[0].groups", "needs unit.id", "query[2].rows_per_group"],
    ),
    ("columns.job.keys", ["a"], ["columns.job", "discover = true", "either keys"]),
    ("columns.job.unknown", "other", ["columns.job.unknown = 'other'", "'drop'", "discovered"]),
    ("columns.pay.decimals", 10, ["columns.pay.decimals = 10", "0 to 9"]),
    ("columns.pay.integer", True, ["columns.pay", "either keys"]),
    ("columns.pay.unknown", Decimal("0.125"), ["columns.pay.unknown = 0.125", "2 decimals"]),
    ("columns.age.unknown", Decimal("0.5"), ["columns.age.unknown = 0.5", "whole number"]),
    ("columns.sex.unknown", Decimal("0.5"), ["columns.sex.unknown = 0.5", "one of the keys"]),
    ("query.0.measure", "mean", ["query[0].measure", "'mean'", "'units', 'count'", "discovered"]),
    ("query.0.measure", "sum", ["query[0].column", "a sum needs one"]),
    ("query.0.measure", "percentile", ["did you mean 'quantiles'?"]),
    ("query.0.measure", "avg", ["did you mean 'mean'?"]),
    ("query.0.measure", "unique", ["did you mean 'distinct'?"]),
    ("query.0.measure", "sums", ["did you mean 'sum'?"]),
    ("query.0.delta", ..., ["query[0].delta", "missing", "1e-8"]),
    ("query.0.delta", Decimal("0.6"), ["query[0].delta", "0.6", "1e-300 to 1/2"]),
    ("query.0.delta", Decimal("2e-7"), ["query[].delta", "3 keys a unit", "= 0.000001"]),
    ("query.0.rows_per_group", 2, ["query[0].rows_per_group", "counts once", "leave it out"]),
    ("query.0.groups", 0, ["query[0].groups", "1 to 1000"]),
    ("query.5.delta", Decimal("1e-8"), ["query[5].delta", "1e-8", "leave it out"]),
    ("query.1.clip", [0, Decimal("10.125")], ["query[1].clip", "10.125", "2 decimals", "'pay'"]),
    ("query.1.clip", [0, True], ["query[1].clip", "true"]),
    ("query.1.clip", [0, 10**14], ["query[1].clip", "within"]),
    ("query.1.clip", [0, 10**11], ["query[1].clip", "2^62", "most_rows", "5000000000000"]),
    ("query.1.clip", [0, 10**10], ["query[1].clip", "5 rows could move", "5000000000000"]),
    ("query.2.clip", [0, 10**11], ["query[2].clip", "2^31 from the middle"]),
    ("query.2.column", ..., ["query[2].column", "missing", "a variance needs one"]),
    ("query.3.edges", ..., ["query[3].edges", "missing", "at least two"]),
    ("query.3.edges", [3], ["query[3].edges", "[3]", "at least two"]),
    ("query.3.edges", [0, 5, 5], ["query[3].edges", "[0, 5, 5]", "must rise"]),
    ("query.3.edges", [0, Decimal("0.5")], ["query[3].edges", "0.5", "whole numbers", "'age'"]),
    ("query.3.clip", [0, 1], ["query[3].clip", "a histogram takes none"]),
    ("query.3.quantiles", [Decimal("0.5")], ["query[3].quantiles", "leave it out"]),
    ("query.4.quantiles", ..., ["query[4].quantiles", "between 0 and 1", "0.25"]),
    ("query.4.quantiles", [1], ["query[4].quantiles", "[1]", "between 0 and 1"]),
    ("query.4.quantiles", ["1/2", "1/4"], ["query[4].quantiles", "rising"]),
    ("query.4.column", "sex", ["query[4].column", "'sex'", "decimals"]),
    ("query.5.edges", [0, 1], ["query[5].edges", "a units takes none"]),
    ("query.1.by", ["job"], ["query[1].measure", "'mean'", "'units'"]),
    ("budget", {"zcdp": 1}, ["budget.zcdp = 1", "outright", "zcdp with delta"]),
    ("budget", {"gdp": 1}, ["budget.gdp = 1", "outright", "epsilon with delta"]),
    ("budget", {"epsilon": 1, "delta": "5e-8"}, ["query[].delta", "which must be larger"]),
    ("budget", {"power": "0.25", "level": "0.05"}, ["query[].delta", "leaves 1e-12"]),
]


@pytest.mark.parametrize(
    ("base", "case"),
    [(base, case) for base, cases in ((DEMO, BAD), (WIDE, WORSE)) for case in cases],
    ids=lambda part: "" if isinstance(part, dict) else f"{part[0]}={part[1]}"[:60],
)
def test_a_wrong_plan_gets_one_error_with_its_field_value_and_what_is_right(folder, base, case):
    path, value, said = case
    with pytest.raises(PlanError) as error:
        Plan.from_dict(changed(path, value, base), folder=folder)
    for words in said:
        assert words in str(error.value)
    assert "pydantic" not in str(error.value).lower()


def test_a_delta_beside_zcdp_needs_something_that_can_fail(folder):
    with pytest.raises(PlanError, match=r"budget\.delta = 0\.00001.*discover = true"):
        Plan.from_dict(changed("budget", {"zcdp": 1, "delta": "1e-5"}), folder=folder)


def test_a_curve_that_is_not_known_is_no_promise_of_power(folder):
    data = changed("unit", {**DEMO["unit"], "rows": 50, "id": "pid"})
    del data["query"][0]["public"]
    data["query"][0]["split"] = {"region": "1/3", "state": "1/3", "county": "1/3"}
    plan = Plan.from_dict(data | {"budget": {"power": "0.25", "level": "0.05"}}, folder=folder)
    assert plan.admits(plan.mechanism())  # all fifty rows in one cell cover all other ways
    data["query"][1]["rows_per_group"] = 12
    for budget in ({"power": "0.25", "level": "0.05"}, {"gdp": 1}):
        with pytest.raises(PlanError, match=r"unit\.rows = 50 .*give the budget as zcdp"):
            Plan.from_dict(data | {"budget": budget}, folder=folder)


@pytest.mark.parametrize("name", ["CON", "prn", "Aux", "nul", "COM1", "lpt9", "con "])
def test_a_name_that_windows_keeps_for_a_device_names_no_file(name):
    query = {"name": name, "measure": "count", "share": 1}
    for wrong in ({"query": [query]}, {"name": name}):
        with pytest.raises(PlanError, match="is the name of a device on Windows"):
            Plan.from_dict({**SMALL, "schema": 2, **wrong})
    column = {name: {"keys": ["a"]}}
    query = {"name": f"{name}-1", "measure": "count", "by": [name], "share": 1}
    assert Plan.from_dict({**SMALL, "schema": 2, "columns": column, "query": [query]}).query(
        f"{name}-1"
    )


def test_days_are_keys_as_toml_writes_them():
    text = """keys = [2024-01-31, "2024-02-01"]
unknown = 2024-01-31"""
    days = tomllib.loads(text)
    rows = [[day, "x"] for day in days["keys"]]
    sections = {
        "query": [{"measure": "count", "by": ["d"], "share": 1}],
        "columns": {"d": days, "t": {"type": "text"}},
        "hierarchy": {"h": {"levels": ["day", "place"], "keys": rows}},
        "lookup": {"l": {"column": "t", "keys": rows}},
    }
    same = json.loads(json.dumps(sections, default=str))
    plan = Plan.from_dict({**SMALL, "schema": 2, **sections})
    assert plan.hash == Plan.from_dict({**SMALL, "schema": 2, **same}).hash
    assert plan.column("d").keys == ("2024-01-31", "2024-02-01")
    wrong = {"d": tomllib.loads("keys = [2024-01-31T10:00:00]")}
    with pytest.raises(PlanError, match=r"keys\[0\] = 2024-01-31 10:00:00: .* such as 2024-12-31"):
        Plan.from_dict({**SMALL, "schema": 2, **sections, "columns": wrong})


@pytest.mark.parametrize("measure", ["variance", "standard_deviation", "mean", "sum"])
def test_a_clip_of_a_hundred_million_units_needs_no_most_rows(measure):
    def calibrated(clip, **more):
        query = {"measure": measure, "column": "x", "clip": clip, "share": 1}
        column = {"x": {"decimals": 2}}
        document = {**SMALL, "schema": 2, "columns": column, "query": [query], **more}
        return Plan.from_dict(document).calibrated()

    for clip in ([84, 1544], [0, 10**6], [-(10**6), 10**6], [10**6, 2 * 10**6]):
        assert calibrated(clip)
    with pytest.raises(PlanError, match="declare the table's most_rows"):
        calibrated([0, 10**9])
    assert calibrated([0, 10**7], most_rows=10**6)
    if measure in ("variance", "standard_deviation"):
        with pytest.raises(PlanError, match=r"at most 2\^31 from the middle of the clip"):
            calibrated([0, 10**8], most_rows=10**6)


def test_several_problems_are_told_at_once(folder):
    data = changed("query.0.at", ["sate"])
    data["query"][1]["by"] = ["rac"]
    with pytest.raises(PlanError) as error:
        Plan.from_dict(data, folder=folder)
    assert any("sate" in problem for problem in error.value.problems)
    assert any("rac" in problem for problem in error.value.problems)


def test_files_that_are_no_plan_are_refused_by_name(tmp_path):
    with pytest.raises(PlanError, match=r"nothing\.toml"):
        Plan.load(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(PlanError, match="is not TOML"):
        Plan.load(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="UTF-8"):
        Plan.load(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 3000 + "]" * 3000,
        "a = " + "9" * 5000,
        PLAN.replace("share = 0.25", "share = " + "9" * 5000, 1),
        PLAN.replace("zcdp = 0.1", "zcdp = 1e999999999999999999999"),
        PLAN.replace("zcdp = 0.1", "zcdp = 1e-400"),
        PLAN.replace("zcdp = 0.1", "epsilon = 1\ndelta = 1e-400"),
        PLAN.replace("zcdp = 0.1", "zcdp = 1e400"),
    ],
    ids=["deep", "digits", "digits in a share", "exponent", "tiny zcdp", "tiny delta", "huge"],
)
def test_absurd_toml_is_a_plan_error_in_words(folder, text):
    (folder / "plan.toml").write_text(text)
    with pytest.raises(PlanError) as error:
        Plan.load(folder / "plan.toml")
    assert len(str(error.value)) < 500
    assert "set_int_max_str_digits" not in str(error.value)
    assert "Fraction(" not in str(error.value)


@pytest.mark.parametrize("budget", [
    {"zcdp": "1e-15"}, {"gdp": 9999}, {"epsilon": 9999, "delta": "1e-6"},
    {"power": "0.05000000001", "level": "0.05"},
])  # fmt: skip
def test_a_budget_that_no_noise_can_meet_is_told_by_its_fields(folder, budget):
    data = changed("budget", budget)
    data["query"][2]["clip"] = [-MOST_CLIP, MOST_CLIP]
    data["query"][2]["share"], data["query"][1]["share"] = "1e-9", "0.499999999"
    plan = Plan.from_dict(data, folder=folder)
    with pytest.raises(PlanError) as error:
        plan.calibrated()
    for name in budget:
        assert str(error.value).count(f"budget.{name} = ") == 1


INLINE = changed("hierarchy.place.keys", [line.split(",") for line in PLACES.split()[1:]])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=4), SCALARS)
VALUES |= st.fractions() | st.integers(2, 10**20)
FIELDS = [
    (INLINE, name) for name in sorted({"table", "columns", "hierarchy", *(b[0] for b in BAD)})
]
FIELDS += [(WIDE, name) for name in sorted({case[0] for case in WORSE} - {"unit.id"})]


@settings(max_examples=200)
@given(st.sampled_from(FIELDS).filter(lambda field: field[1] != "unit"), VALUES)
def test_no_value_in_any_field_gives_anything_but_a_plan_or_a_plan_error(field, value):
    base, path = field
    try:
        plan = Plan.from_dict(changed(path, value, base))
    except PlanError:
        return
    assert Plan.from_dict(plan.canonical()) == plan


@given(st.fractions())
def test_exact_text_is_exact(value):
    assert Fraction(exact_text(value)) == value


def test_a_plan_states_its_publisher_and_units_only_where_they_are_given():
    plain = Plan.from_dict(changed("hierarchy", ...) | {"query": [DEMO["query"][2] | {"share": 1}]})
    assert "publisher" not in plain.canonical()
    assert "measurement_unit" not in json.dumps(plain.canonical())
    data = plain.canonical() | {"publisher": "Office <of> Statistics"}
    data["columns"]["age"] |= {"measurement_unit": "years"}
    data["columns"]["born"] = {"type": "date"}
    derived = {"expression": "year(born)", "range": [1900, 2030], "measurement_unit": "AD"}
    data["derive"] = {"year": derived}
    plan = Plan.from_dict(data)
    content = plan.canonical()
    assert content["publisher"] == plan.publisher == "Office <of> Statistics"
    assert content["columns"]["age"]["measurement_unit"] == "years"
    assert content["derive"]["year"]["measurement_unit"] == "AD"
    assert plan.column("year").measurement_unit == "AD"
    assert Plan.from_dict(content).hash == plan.hash != plain.hash
    assert plan.mechanism().to_dict() == plain.mechanism().to_dict()


@pytest.mark.parametrize(("path", "value", "says"), [
    ("publisher", " office", "without blanks around it"),
    ("publisher", "two\nlines", "one line of 1 to 100 printable characters"),
    ("publisher", "x" * 101, "one line of 1 to 100 printable characters"),
    ("publisher", 7, "must be the name of the publisher, such as 'Office"),
    ("columns.age.measurement_unit", "", "one line of 1 to 100 printable characters"),
    ("columns.age.measurement_unit", "ye\u202ears", "one line of 1 to 100 printable characters"),
    ("columns.race.measurement_unit", "USD", "is for a column to sum"),
    (
        "columns.x", {"type": "whole", "measurement_unit": "USD"},
        "measurement_unit = 'USD': does not go with type",
    ),
    (
        "derive", {"x": {"expression": "age + 1", "measurement_unit": "years"}},
        "is for a column to sum; give its range",
    ),
])  # fmt: skip
def test_a_publisher_or_unit_that_a_report_cannot_print_is_refused(path, value, says):
    with pytest.raises(PlanError, match=says):
        Plan.from_dict(changed(path, value))


DISCOVERED = {
    "schema": 2, "name": "words", "dataset": "words@1", "table": "posts",
    "unit": {"protects": "person", "neighboring": "add-remove", "id": "id", "rows": 7},
    "columns": {"word": {"discover": True}, "tag": {"discover": True}},
}  # fmt: skip


def proposed(error, field):
    return re.search(rf"{field}.*, such as '?([^' ]+?)'?$", str(error), re.M)[1]


def test_an_error_proposes_the_largest_power_of_ten_that_leaves_half_of_the_delta():
    """Five keys of one unit in one table, twice: ten times 1e-7 is 1e-6."""
    query = {"measure": "units", "by": ["word"], "name": "q", "share": 1, "groups": 5}
    plan = DISCOVERED | {"budget": {"epsilon": 1, "delta": "1e-6"}, "query": [query]}
    with pytest.raises(PlanError) as refused:
        Plan.from_dict(plan)
    assert proposed(refused.value, "delta") == "1e-7"


@pytest.mark.parametrize("budget", [
    {"power": "0.25", "level": "0.05"}, {"epsilon": 1, "delta": "1e-6"},
    {"epsilon": 1, "delta": "1e-9"}, {"zcdp": "0.1", "delta": "1e-9"},
    {"zcdp": "0.1", "delta": "0.3"},
])  # fmt: skip
def test_the_delta_that_an_error_proposes_is_accepted(budget):
    for columns in (["word"], ["word", "tag"]):
        share = f"1/{len(columns)}"
        queries = [
            {"measure": "units", "by": [c], "name": c, "share": share, "groups": 3} for c in columns
        ]
        plan = DISCOVERED | {"budget": budget, "query": queries}
        for delta in (None, "0.4"):
            for query in queries:
                query.pop("delta", None)
                query.update({} if delta is None else {"delta": delta})
            with pytest.raises(PlanError) as error:
                Plan.from_dict(plan)
            for query in queries:
                query["delta"] = proposed(error.value, "delta")
            assert Plan.from_dict(plan).queries[0].delta == Fraction(queries[0]["delta"])


@pytest.mark.parametrize("number", [1, 2])
def test_only_so_few_shifts_are_listed_that_their_combinations_can_be(number):
    """Two tables of discovered keys have too many, and claim what their largest norms prove."""
    query = {"measure": "sum", "column": "x", "clip": [-3, 5], "by": ["word"], "delta": "1e-9"}
    query |= {"share": f"1/{number}", "groups": 4, "rows_per_group": 3}
    plan = Plan.from_dict(
        DISCOVERED
        | {"unit": DISCOVERED["unit"] | {"neighboring": "replace-one"}}
        | {"columns": {"word": {"discover": True}, "x": {"integer": True}}}
        | {"budget": {"zcdp": "0.1", "delta": "1e-6"}}
        | {"query": [query | {"name": f"q{i}"} for i in range(number)]}
    )
    assert ("squared_norm" in str(plan.mechanism())) == (number == 2)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_the_share_that_an_error_proposes_is_accepted(missing):
    shares = ["1/7", "2/7", "1/3"][missing:]
    queries = [{"measure": "count", "name": f"q{i}", "by": ["sex"]} for i in range(3)]
    for query, share in zip(queries[missing:], shares, strict=True):
        query["share"] = share
    plan = DISCOVERED | {"columns": {"sex": {"keys": ["f", "m"]}}, "budget": {"zcdp": 1}}
    with pytest.raises(PlanError) as error:
        Plan.from_dict(plan | {"query": queries})
    share = proposed(error.value, "share")
    assert Plan.from_dict(plan | {"query": [{"share": share} | query for query in queries]})


def _titled(**queries) -> Plan:
    """Return a plan of counts with one title each, by the name of the query."""
    parts = [
        {"name": name, "measure": "count", "by": ["sex"], "share": f"1/{len(queries)}"}
        | (title if isinstance(title, dict) else {"title": title})
        for name, title in queries.items()
    ]
    return Plan.from_dict({
        "schema": 2, "name": "titles", "dataset": "d@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"sex": {"keys": ["f", "m "]}, "race": {"keys": ["a", "b"]}},
        "budget": {"zcdp": "1/10"}, "query": parts,
    })  # fmt: skip


def test_a_title_is_part_of_the_plan_and_each_key_of_a_partition_has_its_own():
    plan = _titled(count="People by sex")
    assert plan.canonical()["query"][0]["title"] == "People by sex"
    parts = {"title": "People of race", "partition": "race", "by": ["sex"]}
    split = _titled(count=parts)
    titles = [query["title"] for query in split.canonical()["query"]]
    assert titles == ["People of race: a", "People of race: b"]
    for one in (plan, split, _titled(count={"title": "t", "partition": "sex", "by": ["race"]})):
        assert Plan.from_dict(one.canonical()).hash == one.hash


@pytest.mark.parametrize(("queries", "error"), [
    ({"count": "two\nlines"}, "printable characters"),
    ({"count": " blank"}, "without blanks around it"),
    ({"count": "x" * 101}, "1 to 100"),
    ({"count": "same", "other": "same"}, "another query has this title"),
    ({"count": {"title": "x" * 99, "partition": "race", "by": ["sex"]}}, "write at most 97"),
])  # fmt: skip
def test_a_title_that_a_report_could_not_print_is_refused(queries, error):
    with pytest.raises(PlanError, match=rf"title.*{error}"):
        _titled(**queries)


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
    return Plan.from_dict({
        "schema": 2, "name": "test", "dataset": "d@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1}, "columns": columns,
        "budget": budget, "query": asked[:queries],
    })  # fmt: skip


def printed(page):
    """The numbers of a table of the page, by the measure."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, flags=re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.S) for row in rows]
    return {row[0]: row[1].partition("<br>")[0] for row in cells}


@pytest.mark.parametrize(("budget", "measure", "number"), BUDGETS)
def test_the_report_prints_the_limit_that_was_chosen(budget, measure, number, tmp_path):
    ledger = ny.throwaway(10)
    ledger.register("d@1", protects="person", neighboring="replace-one", rows=1)
    rows = pa.table({"race": ["a"], "age": [1]})
    release = ny.run(plan_of(budget), rows, ledger, tmp_path / "out", pages={"page.html": page})
    assert printed((release.folder / "page.html").read_text())[measure] == number


def test_the_limit_holds_for_larger_deltas_and_stricter_levels_too():
    plan = plan_of({"epsilon": 1, "delta": Decimal("1e-6")})
    result = guarantee(plan.mechanism(), plan).to_dict()["epsilon"]
    assert [e["upper"] <= 1 for e in result] == [True, True, False, False]
    plan = plan_of({"power": Decimal("0.25"), "level": Decimal("0.05")})
    result = guarantee(plan.mechanism(), plan).to_dict()["power"]
    assert [p["upper"] <= 0.25 for p in result] == [True, True, False]


def test_a_budget_proves_nothing_about_a_release_with_less_noise():
    plan = plan_of({"epsilon": 3, "delta": Decimal("1e-6")})
    loud = plan.at_scale(plan.scale * Fraction(9, 10))
    assert plan.admits(plan.mechanism())
    assert not plan.admits(loud)
    assert guarantee(loud, plan).to_dict()["epsilon"][1]["lower"] > 3


def test_calibrate_prints_the_limit_that_was_chosen(tmp_path):
    plan = plan_of({"epsilon": 3, "delta": Decimal("1e-6")})
    (tmp_path / "plan.toml").write_text(toml_text(plan.canonical()))
    terms = ("--epsilon", "3", "--delta", "1e-6", "--json")
    said = json.loads(answered("calibrate", tmp_path / "plan.toml", *terms))
    assert said["epsilon"] <= 3


NUMBERS = [Fraction("1.1"), Fraction("0.1"), Fraction(1, 3), Fraction(2, 3), Fraction(3)]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_a_budget_proves_is_the_next_float_above_it(number):
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
    given = {"success": Decimal("0.25"), "baseline": Decimal("0.05")}
    plan = plan_of(given)
    same = plan_of({"power": Decimal("0.25"), "level": Decimal("0.05")})
    assert plan.canonical() == same.canonical()
    assert plan.hash == same.hash
    assert plan.canonical()["budget"] == {"power": "0.25", "level": "0.05"}
    assert plan.mechanism().tradeoff().success(0.05).upper <= 0.25 * 1.01


@pytest.mark.parametrize(("given", "problem"), [
    ({"success": 0.1, "baseline": 0.2}, "success = 0.1: must be above budget.baseline = 0.2"),
    ({"success": 1, "baseline": 0.2}, "success = 1: must be above .* and below 1"),
    ({"success": 0.1}, "budget has success = 0.1: must be exactly one of"),
    ({"success": 0.1, "level": 0.05}, "must be exactly one of .*success with baseline"),
    ({"success": 0.1, "baseline": 0.05, "zcdp": 1}, "must be exactly one of"),
])  # fmt: skip
def test_a_success_without_its_baseline_is_refused(given, problem):
    with pytest.raises(PlanError, match=problem):
        plan_of(given)


def test_no_function_of_a_plan_takes_the_same_document_or_query_twice(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("race,age,pay,state,county\na,40,10.5,A,A1\nb,30,20,B,B2\n", encoding="utf-8")
    plan = tmp_path / "plan.toml"
    plan.write_text(MIXED, encoding="utf-8")
    ledger = ny.throwaway("1/10")
    ledger.register("d@1", protects="person", neighboring="replace-one", rows=1)

    def release():
        ny.run(ny.Plan.load(plan), path, ledger, tmp_path / "out")

    calls = first_calls("publishing/plan/", release)
    # A query's own methods are how it is read by others.
    taken = Counter(
        (code, id(value))
        for code, arguments in calls
        if "self" not in arguments
        for value in arguments.values()
        if isinstance(value, (PlanDocument, QueryPart))
    )
    assert len(taken) > 30
    assert {code.co_qualname for (code, _), times in taken.items() if times > 1} == set()


def of_queries(*queries: dict[str, Any], **sections: Any) -> Plan:
    columns = SMALL["columns"] | {"age": {"integer": True}}
    content = {**SMALL, "columns": columns, "query": list(queries), **sections}
    return Plan.from_dict(content)


def test_a_filter_is_an_expression_before_a_key_is_added_to_it():
    """Within parentheses, "age > 3) or (True" would be a filter that takes every row."""
    query = {"measure": "count", "name": "q", "partition": "race", "share": 1}
    for where in ("age > 3) or (True", "zz > 3"):
        with pytest.raises(PlanError) as error:
            of_queries({**query, "where": where})
        assert len(error.value.problems) == 1
        assert error.value.problems[0].startswith(f"query[0].where (of query 'q') = {where!r}")


def test_all_pairs_stand_for_their_levels_in_the_parts_of_a_partition():
    hierarchy = {
        name: {"levels": [f"{name}1", f"{name}2"], "keys": [["a", "b"], ["c", "d"]]}
        for name in ("x", "y")
    }
    parts = {"white": {"at": ["all pairs"]}}
    query = {"measure": "count", "partition": "race", "at": ["x1 x y1"], "parts": parts, "share": 1}
    plan = of_queries(query, hierarchy=hierarchy)
    assert plan.queries[0].at == ("x1 x y1", "x1 x y2", "x2 x y1", "x2 x y2")
    assert plan.queries[1].at == ("x1 x y1",)


def test_a_measure_may_be_an_enumeration_and_a_field_of_others_may_be_off():
    kind = Enum("kind", {"COUNT": "count"}, type=str)
    plan = of_queries({"measure": kind["COUNT"], "complete": False, "clip": None, "share": 1})
    assert plan.canonical()["query"][0]["measure"] == "count"
