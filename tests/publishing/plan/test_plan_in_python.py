"""A plan in Python is the plan of the TOML file: one canonical form, one hash."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from mixed_plan import MIXED
from neyman.accounting import budget_of
from neyman.publishing import Measure, PlanError, toml_text

UNIT = ny.Unit("person", neighboring="replace-one", rows=1)
GIVEN: dict[str, Any] = {
    "name": "survey", "dataset": "survey@1", "table": "people", "unit": UNIT,
    "columns": {"sex": ny.keys(["m", "f"], unknown="drop"), "income": {"integer": True}},
    "queries": [
        ny.query.count(by=["sex"], share=1), ny.query.mean("income", clip=(0, 200_000), share=1),
    ],
    "budget": ny.at_most(power=0.25, level=0.05),
}  # fmt: skip
MEASURES = {measure: getattr(ny.query, measure) for measure in get_args(Measure)}
STORED = Path(__file__).parents[2] / "compatibility/plans.toml"
PLANS = tomllib.loads(STORED.read_text("utf-8"), parse_float=Decimal)


def in_python(data: dict[str, Any]) -> ny.Plan:
    """The plan of a TOML file's dictionary, by the constructor and the functions."""
    sections = {name: part for name, part in data.items() if name != "schema"}
    unit = dict(sections.pop("unit"))
    queries = []
    for query in sections.pop("query"):
        fields = dict(query)
        measure = MEASURES[fields.pop("measure")]
        first = [fields.pop("column")] if "column" in fields else []
        queries.append(measure(*first, **fields))
    budget = sections.pop("budget")
    if set(budget) == {"power", "level"}:
        budget = ny.at_most(**budget)
    elif set(budget) == {"epsilon", "delta"}:
        budget = ny.approximate(**budget)
    elif "zcdp" in budget and "unspent" not in budget:
        budget = ny.zcdp(budget["zcdp"], budget.get("delta", 0))
    elif "gdp" in budget:
        budget = ny.gdp(float(Fraction(str(budget["gdp"]))))
    unit = ny.Unit(unit.pop("protects"), **{"rows": 1, **unit})
    return ny.Plan(unit=unit, queries=queries, budget=budget, **sections)


@pytest.mark.parametrize("name", PLANS)
def test_each_stored_plan_has_the_same_hash_in_python(name):
    data = copy.deepcopy(PLANS[name])
    plan = ny.Plan.from_dict(data, folder=STORED.parent)
    consistency = data.pop("consistency", None)
    more = {"folder": STORED.parent} | ({"consistency": consistency} if consistency else {})
    assert in_python({**data, **more}).hash == plan.hash


BUDGETS = st.one_of(
    st.fixed_dictionaries({"power": st.decimals("0.2", "0.9", places=3), "level": st.just("0.05")}),
    st.fixed_dictionaries({"zcdp": st.fractions("1/1000", 2, max_denominator=1000).map(str)}),
    st.fixed_dictionaries({"gdp": st.decimals("0.01", 3, places=4)}),
    st.fixed_dictionaries({
        "epsilon": st.fractions("1/100", 9, max_denominator=100).map(str),
        "delta": st.sampled_from(["1e-6", "1e-12", "0.0001", "3e-9", "1e-300"]),
    }),
)  # fmt: skip
KEYS = st.one_of(
    st.lists(st.text("abcäß ,'\"", min_size=1, max_size=4), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(-9, 99), min_size=1, max_size=4, unique=True),
    st.just([True, False]),
)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    keys = draw(KEYS)
    several = draw(st.booleans())
    unit = {
        "protects": "person",
        "neighboring": draw(st.sampled_from(["replace-one", "add-remove"])),
    }
    if several:
        unit |= {"id": "who", "rows": draw(st.integers(1, 5))}
    decimals = draw(st.integers(0, 3))
    low, high = sorted(draw(st.tuples(st.integers(-50, 49), st.integers(50, 99))))
    where = draw(st.sampled_from([{}, {"where": "pay > 3"}]))
    unknown = draw(st.sampled_from([{}, {"unknown": 0}, {"unknown": "drop"}]))
    pool = [
        {"name": "n", "measure": "count", "by": ["key"], **where},
        {"name": "u", "measure": "units"},
        {"name": "s", "measure": "sum", "column": "pay", "clip": [low, high]},
        {"name": "m", "measure": "mean", "column": "pay", "clip": [low, high], "by": ["key"]},
        {"name": "v", "measure": "variance", "column": "pay", "clip": [low, high]},
        {"name": "h", "measure": "histogram", "column": "pay", "edges": [low, 50, 100]},
        {"name": "q", "measure": "quantiles", "column": "pay", "edges": [low, 50, 100],
         "quantiles": ["0.5", "0.75"]},
    ]  # fmt: skip
    chosen = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4, unique_by=id))
    weights = [draw(st.integers(1, 9)) for _ in chosen]
    total = Fraction(sum(weights))
    queries = [
        {**query, "share": str(weight / total)}
        for query, weight in zip(chosen, weights, strict=True)
    ]
    return {
        "schema": 2, "name": "some plan", "dataset": "d@1", "table": "t", "unit": unit,
        "columns": {"key": {"keys": keys}, "pay": {"decimals": decimals, **unknown}},
        "budget": draw(BUDGETS), "query": queries,
        **draw(st.sampled_from([{}, {"most_rows": 5000}, {"where": "pay is not None"}])),
    }  # fmt: skip


@settings(max_examples=60)
@given(plans())
def test_any_plan_has_the_same_hash_in_python(data):
    try:
        plan = ny.Plan.from_dict(data)
    except PlanError:
        with pytest.raises(PlanError):
            in_python(data)
        return
    assert in_python(data).hash == plan.hash
    scaled = [{**q, "share": Fraction(q["share"]) * 7} for q in data["query"]]
    assert in_python({**data, "query": scaled}).hash == plan.hash


@pytest.mark.parametrize(("change", "says"), [
    ({"budget": 0.5}, "budget = 0.5: must be ny.at_most"),
    ({"budget": ny.pure(1)}, "budget = .*must be ny.at_most"),
    ({"budget": ny.zcdp(1) @ ny.gdp(1)}, "budget = .*must be ny.at_most"),
    ({"budget": ny.gdp(1) ** 2}, "budget = .*must be ny.at_most"),
    ({"queries": ny.query.count(share=1)}, "queries = .*must be a list"),
    ({"queries": [ny.query.count(), ny.query.count()]}, "queries need names that differ"),
    ({"queries": [ny.query.count(by="sexx")]}, "did you mean 'sex'"),
    ({"queries": [ny.query.count(share=0)]}, "share .*must be above 0"),
    (
        {"queries": [ny.query.count(shares=1)]},
        "there is no field 'shares'; did you mean 'share'",
    ),
    ({"queries": ["count"]}, "query"), ({"queries": []}, "query"), ({"unit": "person"}, "unit"),
    ({"unit": None}, r"unit = None: must be a \[unit\] section"),
    ({"budget": None}, "budget = None: must be ny.at_most"),
    ({"queries": None}, "queries = None: must be a list"),
    ({"columns": ["sex"]}, r"columns = \['sex'\]: must be"),
    ({"lookup": 3}, "lookup = 3: must be"),
    (
        {"columns": GIVEN["columns"] | {"income": {"type": "whole"}}},
        r"column \(of query 'mean'\) = 'income': is not a column with integer = true or",
    ),
    (
        {"columns": {"sex": ny.keys(["m", "f"], unknown="drop")}},
        r"'income'.*declare columns.income with integer = true \(0.7 counts as 0\) or decimals",
    ),
    ({"columns": {"sex": 5}}, "columns.sex = 5: must be a section with fields such as keys"),
    ({"consistency": "least"}, "must be 'least-squares'"),
])  # fmt: skip
def test_what_is_wrong_is_named(change, says):
    with pytest.raises(PlanError, match=says):
        ny.Plan(**{**GIVEN, **change})


def test_a_guarantee_that_was_combined_is_not_taken_for_one_of_its_parts():
    for curve in (ny.zcdp("0.1") ** 3, ny.zcdp("0.1", 1e-6) @ ny.approximate(0, 1e-6)):
        plan = (
            ny.Plan(**{**GIVEN, "budget": curve, "queries": [ny.query.count()]})
            if curve == ny.zcdp("0.3")
            else None
        )
        if plan is None:
            with pytest.raises(PlanError):
                ny.Plan(**{**GIVEN, "budget": curve})
        else:
            assert plan.budget.rho == Fraction(3, 10)


def test_the_errors_of_a_plan_are_a_data_frame():
    plan = ny.Plan.from_dict(tomllib.loads(MIXED, parse_float=Decimal))
    frame = plan.errors()
    assert list(frame["query"] + "." + frame["level"])[:3] == [
        "total.state", "total.county", "race.county",
    ]  # fmt: skip
    assert frame["share"].sum() == pytest.approx(1)
    ((_, sigma_squared), *_) = plan.calibrated()
    assert frame["standard_error"][0] == pytest.approx(float(sigma_squared) ** 0.5, rel=1e-3)
    means = frame[frame["measure"] == "mean"]
    assert means["standard_error"].isna().all()
    assert (means["standard_error_at_1000"] > 0).all()
    assert frame["cells"].tolist()[:3] == [2, 5, 15]


def test_a_plan_is_copied_and_pickled_as_it_is():
    plan = ny.Plan(**GIVEN)
    for same in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan), plan.changed()):
        assert same == plan
        assert same.hash == plan.hash


@pytest.mark.parametrize("delta", [1e-6, 1e-7, 1e-5, 3e-8, "1e-6", Fraction(1, 10**7)])
@pytest.mark.parametrize("epsilon", [1, 2, 0.5, "0.3"])
def test_a_budget_in_epsilon_takes_a_float_as_the_decimal_that_it_prints_as(epsilon, delta):
    plan = ny.Plan(**GIVEN | {"budget": ny.approximate(epsilon, delta)})
    assert plan.budget.delta == Fraction(str(delta))
    assert plan.budget.epsilon == Fraction(str(epsilon))


@pytest.mark.parametrize(("curve", "fields"), [
    (ny.gdp(Fraction(1, 3)), {"gdp": "0.3333333333333333"}),
    (ny.gdp(0.1 + 0.2), {"gdp": "0.30000000000000004"}),
    (ny.zcdp("1/7"), {"zcdp": "1/7"}),
    (ny.approximate("2/3", "1e-6"), {"epsilon": "2/3", "delta": "0.000001"}),
    (ny.at_most("2/7", "1/20"), {"power": "2/7", "level": "0.05"}),
])  # fmt: skip
def test_a_budget_has_the_numbers_that_were_written(curve, fields):
    plan = ny.Plan(**GIVEN | {"budget": curve})
    assert plan.canonical()["budget"] == fields
    assert budget_of(fields) == budget_of(plan.budget_dict()) == plan.budget
    assert ny.Plan(**GIVEN | {"budget": plan.budget}).hash == plan.hash


def test_a_curve_that_was_made_of_another_one_has_no_definition():
    for curve in (ny.gdp(1) ** 2, ny.gdp(1).inverse(), ny.gdp(1) @ ny.perfect(), ny.pure(1)):
        assert curve.definition == ()


# What the guarantee assumes about the rows of a unit


def with_unit(**unit):
    return {**GIVEN, "unit": {"neighboring": "replace-one", **unit}}


@pytest.mark.parametrize("protects", ["person", "household", "patient record", "rows"])
def test_a_plan_warns_if_a_unit_that_is_no_row_states_neither_its_id_nor_its_rows(protects):
    with pytest.warns(UserWarning, match=f"each {protects} has at most one row") as caught:
        plan = ny.Plan(**with_unit(protects=protects))
    assert caught[0].filename == __file__
    assert plan.assumption == f"The guarantee assumes that each {protects} has at most one row."
    with pytest.warns(UserWarning, match="state rows = 1"):
        ny.Plan(**{**GIVEN, "unit": ny.Unit(protects, neighboring="replace-one")})


@pytest.mark.parametrize("unit", [
    {"protects": "household", "rows": 1},
    {"protects": "household", "id": "house"},
    {"protects": "household", "id": "house", "rows": 3},
    *(
        {"protects": word}
        for word in ("entry", "line", "observation", "record", "row", "Row", " record ")
    ),
])  # fmt: skip
def test_a_plan_that_states_its_rows_or_protects_rows_is_silent(unit):
    plan = ny.Plan(**with_unit(**unit))
    assert bool(plan.assumption) == (unit == {"protects": "household", "rows": 1})


def test_rows_that_are_stated_do_not_change_the_hash_and_a_stored_plan_loads_in_silence(tmp_path):
    with pytest.warns(UserWarning, match="household"):
        plan = ny.Plan(**with_unit(protects="household"))
    one_row = ny.Plan(**with_unit(protects="household", rows=1))
    assert one_row.hash == plan.hash
    assert one_row.canonical() == plan.canonical()
    stored = ny.Plan.from_dict(json.loads(json.dumps(plan.canonical())))
    assert stored.hash == plan.hash
    unit = {"protects": "household", "neighboring": "replace-one"}
    (tmp_path / "plan.toml").write_text(toml_text({**plan.canonical(), "unit": unit}))
    assert ny.Plan.load(tmp_path / "plan.toml").rows_not_stated
    assert stored.rows_not_stated == ""


@pytest.mark.parametrize("unordered", [set, frozenset])
def test_no_set_gets_into_a_plan_because_its_order_would_be_in_the_hash(unordered):
    with pytest.raises(TypeError, match=r"values is a (frozen)?set .*sorted\(values\)"):
        ny.keys(unordered(["m", "f"]))
    for ordered in (["m", "f"], ("m", "f"), {"m": 1, "f": 2}.keys(), (x for x in "mf")):
        assert ny.keys(ordered) == {"keys": ["m", "f"]}
    bins = {"measure": "quantiles", "column": "n", "edges": [0, 5], "quantiles": [0.5], "share": 1}
    columns = {"g": {"keys": ["a", "b"]}, "n": {"integer": True}}
    plan = {
        "name": "p", "dataset": "d@1", "table": "t", "budget": {"zcdp": 1}, "columns": columns,
        "unit": ny.Unit("person", neighboring="add-remove", rows=1), "queries": [bins],
    }  # fmt: skip
    ny.Plan(**plan)
    total = {"measure": "sum", "column": "n", "clip": [0, 1], "share": 1}
    places = [
        {"columns": columns | {"g": {"keys": unordered(["a", "b"])}}},
        {"queries": [bins | {"by": unordered(["g"])}]},
        {"queries": [bins | {"edges": unordered([0, 5])}]},
        {"queries": [bins | {"quantiles": unordered([0.5, 0.75])}]},
        {"queries": [total | {"clip": unordered([0, 1])}]},
        {"hierarchy": {"place": {"levels": unordered(["s"]), "keys": [["A"]]}}},
        {"hierarchy": {"place": {"levels": ["s"], "keys": unordered([("A",), ("B",)])}}},
    ]
    for change in places:
        with pytest.raises(PlanError):
            ny.Plan(**{**plan, **change})


# ---- what a budget leaves ----------------------------------------------------------------------

KINDS = [
    {"zcdp": "1/10"}, {"gdp": "1/2"}, {"epsilon": 1, "delta": "1e-6"},
    {"power": "1/4", "level": "1/20"},
]  # fmt: skip
RELATIONS = ["replace-one", "add-remove"]


def leaving(unspent=None, *, rest=None, neighboring="replace-one", budget=KINDS[0], **more):
    """A plan that leaves a part of its budget, or one whose ``rest`` is the share of a query."""
    unit = ny.Unit("person", neighboring=neighboring, rows=1)
    queries = [*more.pop("queries", GIVEN["queries"])]
    queries += [] if rest is None else [ny.query.count(name="rest", share=rest)]
    budget = budget if unspent is None else {**budget, "unspent": unspent}
    return ny.Plan(**GIVEN | {"unit": unit, "queries": queries, "budget": budget} | more)


def noise_of(plan):
    return {(e.query, e.level, e.measure): float(s) for e, s in plan.calibrated()}


def same_noise(plan, other, within=1e-9):
    noise = noise_of(other)
    return noise_of(plan) == pytest.approx({name: noise[name] for name in noise_of(plan)}, within)


@pytest.mark.parametrize("neighboring", RELATIONS)
@pytest.mark.parametrize("budget", KINDS)
def test_what_is_unspent_leaves_the_noise_of_a_plan_with_one_more_query(budget, neighboring):
    given = {"budget": budget, "neighboring": neighboring}
    for noise, within in (("rounded-gaussian", 1e-9), ("discrete-gaussian", 5e-3)):
        plan = leaving("1/5", noise=noise, **given)
        assert same_noise(plan, leaving(rest=Fraction(1, 2), noise=noise, **given), within)
        assert [query.share for query in plan.queries] == [Fraction(2, 5)] * 2
        assert plan.left == Fraction(1, 5)


@pytest.mark.parametrize("budget", KINDS)
def test_what_a_plan_leaves_can_be_spent_within_the_budget_and_no_more(budget):
    plan = leaving("1/5", budget=budget)
    published, mu = plan.mechanism(), float(2 * plan.left / plan.scale) ** 0.5
    assert published.rho() * 5 == 4 / plan.scale
    assert plan.admits(published)
    assert plan.admits(published + ny.Gaussian(1, sensitivity=mu * (1 - 1e-12)))
    assert not plan.admits(published + ny.Gaussian(1, sensitivity=mu * 1.01))
    every = leaving(budget=budget).mechanism()
    power, most = (one.tradeoff().power(level=0.05) for one in (published, every))
    assert power.upper < most.lower


def test_disjoint_queries_leave_what_a_query_of_all_rows_would_take():
    columns = {"age": {"type": "whole"}, "sex": ny.keys(["m", "f"], unknown="drop")}
    apart = [ny.query.count(name="young", where="age < 18"), ny.query.count(where="age >= 18")]
    parted = [ny.query.count(partition="sex", share=3), ny.query.count(name="all")]
    for neighboring, queries, more in itertools.product(
        RELATIONS, (apart, parted), ({"disjoint": True}, {"disjoint": True, "budget": {"gdp": 1}})
    ):
        given = {"columns": columns, "queries": queries, "neighboring": neighboring} | more
        given["noise"] = "rounded-gaussian"
        plan = leaving("1/3", **given)
        spending = leaving(rest=sum(Fraction(q.get("share", 1)) for q in queries) / 2, **given)
        assert same_noise(plan, spending)
        taken = sum(e.share for e in spending.entries() if e.query == "rest")
        assert plan.left == taken
        assert plan.admits(plan.mechanism() + plan.rest(plan.scale))
        assert ny.Plan.from_dict(plan.canonical()) == plan


@pytest.mark.parametrize("more", [
    {"queries": [ny.query.sum("income", clip="discover"), ny.query.count(by=["sex"])]},
    {"unit": {"protects": "person", "neighboring": "replace-one", "rows": "discover", "id": "who"}},
])  # fmt: skip
def test_a_plan_with_bounds_to_discover_leaves_a_part(more):
    plan = leaving("1/5", noise="rounded-gaussian", **more)
    assert same_noise(plan, leaving(rest=Fraction(1, 2), noise="rounded-gaussian", **more))
    assert sum(entry.share for entry in plan.entries()) + plan.left == 1
    assert plan.mechanism().rho() == (1 - plan.left) / 10
    assert ny.Plan.from_dict(plan.canonical()).hash == plan.hash


def test_a_plan_with_keys_to_discover_leaves_rho_and_not_their_delta():
    columns = {"job": {"discover": True}}
    queries = [ny.query.count(by=["job"], delta="1e-7"), ny.query.count(name="all")]
    budget = {"epsilon": 1, "delta": "1e-6"}
    plan = leaving("1/5", columns=columns, queries=queries, budget=budget)
    assert plan.admits(plan.mechanism() + plan.rest(plan.scale))
    assert same_noise(
        plan, leaving(rest=Fraction(1, 2), columns=columns, queries=queries, budget=budget), 5e-3
    )


def test_what_is_unspent_is_in_the_canonical_plan_and_its_text():
    plan, other = leaving("1/5"), leaving()
    assert plan.canonical()["budget"] == {"zcdp": "0.1", "unspent": "0.2"}
    assert "unspent" not in other.canonical()["budget"]
    assert plan.hash != other.hash
    again = ny.Plan.from_dict(tomllib.loads(toml_text(plan.canonical())))
    assert (again, again.hash) == (plan, plan.hash)
    assert "rho 0.1, unspent 0.2" in repr(plan)


@pytest.mark.parametrize("unspent", [0, 1, "3/2", -1, "a fifth", True])
def test_an_unspent_part_of_no_budget_is_refused_alone(unspent):
    with pytest.raises(PlanError) as refused:
        leaving(unspent)
    (problem,) = refused.value.problems
    assert problem.startswith("budget.unspent = ")


def test_shares_and_what_is_unspent_add_up_to_one_in_a_file():
    plan = leaving("1/5").canonical()
    plan["query"][0]["share"] = "1/5"
    with pytest.raises(PlanError, match=r"0.8, .* \(.*, budget.unspent 1/5\); or .* = '2/5'"):
        ny.Plan.from_dict(plan)
    plan["query"][0]["share"] = "1/2"
    with pytest.raises(PlanError, match=r"too much; .*unspent 1/5\)$"):
        ny.Plan.from_dict(plan)
    del plan["budget"]["unspent"], plan["query"][0]["share"]
    with pytest.raises(PlanError, match=r"share .* is missing; .* such as '3/5'"):
        ny.Plan.from_dict(plan)
    plan["query"][0]["share"] = "1/2"
    with pytest.raises(PlanError, match=r"0.1 too little.*budget.unspent = '1/10'"):
        ny.Plan.from_dict(plan)
