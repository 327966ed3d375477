"""Scenarios: which tables a change of some attributes can move, and exactly how far."""

import copy
import itertools
from fractions import Fraction

import pytest

import neyman as ny
from neyman.publishing import Plan, moved, usual
from plain_engine import maximal

DROPS = {
    "schema": 2, "name": "small", "dataset": "people@1", "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {
        "race": {"keys": ["w", "b", "o"]}, "sex": {"keys": ["f", "m"], "unknown": "m"},
        "vet": {"keys": ["yes"]}, "alive": {"keys": ["yes"], "unknown": "yes"},
        "debt": {"integer": True, "unknown": 1}, "age": {"integer": True, "unknown": 0},
        "unused": {"keys": ["a", "b"]},
    },
    "hierarchy": {
        "place": {
            "levels": ["land", "state", "county"],
            "keys": [["A", "S", "x"], ["A", "S", "y"], ["A", "T", "x"], ["B", "U", "x"]],
        }
    },
    "budget": {"zcdp": 0.1},
    "query": [
        {"name": "all", "measure": "count"},
        {"name": "places", "measure": "count", "at": ["land", "state", "county"]},
        {"name": "races", "measure": "count", "by": ["race"], "at": ["state"]},
        {"name": "vets", "measure": "count", "by": ["vet", "alive"]},
        {"name": "living", "measure": "count", "by": ["alive"]},
        {"name": "both", "measure": "count", "by": ["sex", "race"], "at": ["county"]},
        {"name": "owed", "measure": "sum", "column": "debt", "clip": [-2, 5], "by": ["sex"]},
        {"name": "ages", "measure": "mean", "column": "age", "clip": [3, 7], "at": ["land"]},
        {"name": "spread", "measure": "variance", "column": "debt", "clip": [-3, 4], "by": ["sex"]},
        {
            "name": "bins", "measure": "histogram", "column": "age", "edges": [0, 5, 9],
            "by": ["vet"],
        },
        {"name": "one bin", "measure": "histogram", "column": "age", "edges": [0, 5]},
        {
            "name": "median", "measure": "quantiles", "column": "debt", "edges": [0, 5, 9],
        } | {"quantiles": [0.5], "at": ["state"]},
        {"name": "people", "measure": "units", "by": ["alive"], "at": ["land"]},
    ],
}  # fmt: skip
for one in DROPS["query"]:
    one["share"] = f"1/{len(DROPS['query'])}"
MAPS = copy.deepcopy(DROPS)
MAPS["hierarchy"]["place"]["unknown"] = ["A", "T", "x"]
CHAIN = copy.deepcopy(DROPS)
CHAIN["hierarchy"]["place"]["keys"] = [["A", "S", "x"], ["A", "S", "y"]]
ADDED = copy.deepcopy(DROPS)
ADDED["unit"]["neighboring"] = "add-remove"
PUBLIC = copy.deepcopy(CHAIN)
PUBLIC["query"][1]["public"] = {"land": 20}
SKIPS = copy.deepcopy(DROPS)
SKIPS["schema"] = 2
for column in ("debt", "age"):
    SKIPS["columns"][column]["unknown"] = "drop"
SKIPS["query"] += [
    {"name": "dear", "measure": "sum", "column": "debt", "clip": [3, 5]},
    {"name": "rate", "measure": "ratio", "column": "debt", "clip": [-2, 5], "over": "age"}
    | {"clip_over": [1, 7], "by": ["race"]},
]
SKIPS["query"].append(SKIPS["query"][-1] | {"name": "full", "complete": True})
for one in SKIPS["query"]:
    one["share"] = f"1/{len(SKIPS['query'])}"
PLANS = {"drops": DROPS, "maps": MAPS, "chain": CHAIN, "add-remove": ADDED, "public": PUBLIC}
PLANS["skips"] = SKIPS

ASKED = [
    (("race",), None), (("sex",), None), (("vet",), None), (("alive",), None), (("debt",), None),
    (("age",), None), (("unused",), None), (("county",), "state"), (("county",), "land"),
    (("state",), "land"), (("land",), None), (("place",), None), (("place",), "state"),
    (("race", "county"), "state"), (("vet", "debt", "state"), "land"),
    (("sex", "age", "place"), None),
]  # fmt: skip
DEBTS, AGES = (-9, 0, 4, 9, None), (None, 1, 7)
PARTS = {
    "mean": ("offset", "count"), "variance": ("offset", "square", "count"), "histogram": ("count",),
    "quantiles": ("count",), "ratio": ("sum", "over"),
}  # fmt: skip


def cell_and_value(data, query, level, measure, record):
    """Where a record falls and what it adds, by the rules of the engine in plain Python."""
    places = data["hierarchy"]["place"]
    cell = []
    if level != "all":
        place = record["place"]
        if place not in places["keys"]:
            place = places.get("unknown", "drop")
        if place == "drop":
            return None
        cell.append(tuple(place[: places["levels"].index(level) + 1]))
    for name in query.get("by", ()):
        column = data["columns"][name]
        key = record[name] if record[name] in column["keys"] else column.get("unknown", "drop")
        if key == "drop":
            return None
        cell.append(key)
    measured = query["over"] if measure == "over" else query.get("column")
    needed = [query["column"], query["over"]] if query.get("complete") else [measured]
    for name in needed if measured and query["measure"] != "units" else ():
        if record[name] is None and data["columns"][name]["unknown"] == "drop":
            return None
    if "edges" in query:
        value, edges = record[query["column"]], query["edges"]
        value = data["columns"][query["column"]]["unknown"] if value is None else value
        value = min(max(value, edges[0]), edges[-1] - 1)
        cell.append(max(edge for edge in edges if edge <= value))
    if measure in ("count", "units"):
        return tuple(cell), 1
    value = record[measured]
    value = data["columns"][measured]["unknown"] if value is None else value
    low, high = query["clip_over" if measure == "over" else "clip"]
    value = min(max(value, low), high)
    offset = (2 * value - low - high) // (1 if (low + high) % 2 else 2)
    added = {"offset": offset, "square": (value - (low + high) // 2) ** 2}
    return tuple(cell), added.get(measure, value)


def difference(before, after):
    """The sizes of the changes of a table's cells, largest first."""
    cells = {}
    for sign, result in ((-1, before), (1, after)):
        if result is not None:
            cells[result[0]] = cells.get(result[0], 0) + sign * result[1]
    return tuple(sorted((abs(x) for x in cells.values() if x), reverse=True))


def raw_values(data):
    """Every value that matters of each attribute: listed ones, an unlisted one, both clips."""
    keyed = {
        name: [*column["keys"], "?"] for name, column in data["columns"].items() if "keys" in column
    }
    del keyed["unused"]
    places = [*data["hierarchy"]["place"]["keys"], ["?", "?", "?"]]
    return keyed | {"debt": DEBTS, "age": AGES, "place": places}


def realized(data, attributes, within):
    """The maximal differences of every table over all records and all changes of the attributes."""
    levels = data["hierarchy"]["place"]["levels"]
    listed = data["hierarchy"]["place"]["keys"]
    goes = data["hierarchy"]["place"].get("unknown")
    values = raw_values(data)
    free = [("place" if name in levels else name) for name in attributes]
    free = [name for name in free if name in values]
    known_levels = levels.index(within) + 1 if within else 0

    def allowed(place, other):
        if "place" not in free or place == other or within is None:
            return True
        place, other = (p if p in listed else goes for p in (place, other))
        return bool(place and other) and place[:known_levels] == other[:known_levels]

    tables = [
        (query, level, measure)
        for query in data["query"]
        for level in query.get("at", ["all"])
        for measure in PARTS.get(query["measure"], (query["measure"],))
        if level not in query.get("public", ())
    ]
    by_key = {}
    for query, level, measure in tables:
        # Only what this table reads can matter to it.
        reads = {*query.get("by", ()), query.get("column"), query.get("over")}
        reads |= set(["place"] * (level != "all"))
        reads = [name for name in values if name in reads]
        moving = [name for name in reads if name in free]
        differences = set()
        for chosen in itertools.product(*(values[name] for name in reads)):
            record = dict(zip(reads, chosen, strict=True))
            before = cell_and_value(data, query, level, measure, record)
            for changed in itertools.product(*(values[name] for name in moving)):
                other = record | dict(zip(moving, changed, strict=True))
                if "place" in record and not allowed(record["place"], other["place"]):
                    continue
                after = cell_and_value(data, query, level, measure, other)
                differences.add(difference(before, after))
        selection = maximal(one for one in differences if one)
        if selection:
            by_key[query["name"], level, measure] = selection
    return by_key


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(("attributes", "within"), ASKED, ids=str)
def test_the_tables_that_can_move_and_their_shifts_are_those_enumerated(name, attributes, within):
    data = PLANS[name]
    plan = Plan.from_dict(data)
    by_key = {(e.query, e.level, e.measure): e.shifts for e in moved(plan, attributes, within)}
    assert by_key == realized(data, attributes, within)


def test_a_change_that_moves_several_tables_may_move_all_of_them_at_once():
    plan = Plan.from_dict(DROPS)
    here = {"race": "w", "sex": "f", "place": ["A", "S", "x"]}
    there = here | {"race": "b", "place": ["A", "S", "y"]}
    queries = {query["name"]: query for query in DROPS["query"]}
    for entry in moved(plan, ("race", "county"), "state"):
        asked = (DROPS, queries[entry.query], entry.level, entry.measure)
        shift = difference(cell_and_value(*asked, here), cell_and_value(*asked, there))
        assert (shift,) == entry.shifts


IDS = {
    "schema": 2, "name": "rows", "dataset": "people@1", "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 2, "id": "who"},
    "columns": {"a": {"keys": [0, 1], "unknown": 1}, "b": {"keys": [0, 1]}},
    "budget": {"zcdp": 0.1},
    "query": [
        {"name": "all", "measure": "count", "share": "1/4"},
        {"name": "a", "measure": "count", "by": ["a"], "share": "1/4"},
        {"name": "b", "measure": "count", "by": ["b"], "share": "1/4"},
        {"name": "ab", "measure": "count", "by": ["a", "b"], "share": "1/4"},
    ],
}  # fmt: skip


def test_where_rows_are_cut_down_another_choice_of_rows_counts_as_well():
    reads = {"all": (), "a": (0,), "b": (1,), "ab": (0, 1)}
    pairs_of_rows = list(itertools.combinations(range(4), 2))
    differences = {name: set() for name in reads}
    for rows in itertools.combinations_with_replacement(list(itertools.product((0, 1), "01?")), 4):
        for changed in itertools.product((0, 1), repeat=4):
            after = [(a, b) for a, (_, b) in zip(changed, rows, strict=True)]
            for selection, other in itertools.product(pairs_of_rows, pairs_of_rows):
                for name, columns in reads.items():
                    cells = {}
                    for sign, row in [(-1, rows[i]) for i in selection] + [
                        (1, after[i]) for i in other
                    ]:
                        cell = tuple(row[c] for c in columns)
                        if "?" not in cell:
                            cells[cell] = cells.get(cell, 0) + sign
                    sizes = sorted((abs(x) for x in cells.values() if x), reverse=True)
                    differences[name].add(tuple(sizes))
    expected = {name: maximal(d for d in by_key if d) for name, by_key in differences.items()}
    by_key = {e.query: e.shifts for e in moved(Plan.from_dict(IDS), ("a",))}
    assert by_key == {name: shifts for name, shifts in expected.items() if shifts}
    assert set(by_key) == {"a", "b", "ab"}


def test_where_keys_are_unknown_a_record_may_change_to_any_or_to_none():
    data = copy.deepcopy(DROPS)
    data["columns"]["job"] = {"discover": True}
    data["budget"]["delta"] = "1e-6"
    data["query"][0] |= {"measure": "units", "by": ["job", "sex"], "delta": "1e-8"}
    plan = Plan.from_dict(data)
    for attribute in ("job", "sex"):
        by_key = {e.query: e for e in moved(plan, (attribute,))}["all"]
        assert (by_key.measure, by_key.shifts, by_key.squared) == ("keys", ((1, 1),), 2)
    assert [e.query for e in moved(plan, ("job",))] == ["all"]
    assert "all" not in {e.query for e in moved(plan, ("race",))}
    curve = plan.concerning("job").tradeoff()
    assert curve.delta(30).upper == pytest.approx(1e-8, rel=1e-9)


def test_where_units_have_many_rows_bounds_of_a_query_hold_for_its_scenario_too():
    data = copy.deepcopy(IDS)
    data["unit"]["rows"] = 50
    data["query"][3] |= {"groups": 2, "rows_per_group": 3}
    by_key = {e.query: e for e in moved(Plan.from_dict(data), ("a",))}
    assert by_key["ab"].shifts == ((3, 3, 3, 3),)
    assert (by_key["b"].shifts, by_key["b"].squared) == (((50, 50),), 2 * 50**2)


def test_an_attribute_that_is_not_read_moves_nothing():
    data = copy.deepcopy(IDS)
    data["columns"]["c"] = {"keys": ["x", "y"]}
    plan = Plan.from_dict(data)
    nothing = plan.concerning("c")
    assert nothing == ny.Mechanism.nothing()
    assert nothing.tradeoff().power(0.05).upper == pytest.approx(0.05, rel=1e-12)
    assert nothing.rho() == 0


def test_the_noise_is_that_of_the_calibrated_plan():
    plan = Plan.from_dict(CHAIN | {"budget": {"power": 0.25, "level": 0.05}})
    noise = {(e.query, e.level): s for e, s in plan.calibrated()}
    reads = {query.name: query.by for query in plan.queries}
    by_hand = ny.DiscreteGaussian(sigma_squared=noise["races", "state"], sensitivity=[(1, 1)])
    by_hand += ny.DiscreteGaussian(sigma_squared=noise["both", "county"], sensitivity=[(1, 1)])
    assert plan.concerning("race") == by_hand
    assert plan.concerning("race").rho() == sum(
        1 / noise[k] for k in noise if "race" in reads[k[0]]
    )
    assert plan.concerning("race").tradeoff("replace-one").power(0.05).upper < 0.25


def test_more_attributes_never_tell_less_and_their_order_does_not_matter():
    plan = Plan.from_dict(DROPS)
    race, county = plan.concerning("race").rho(), plan.concerning("county", within="state").rho()
    both = plan.concerning("race", "county", within="state")
    assert both == plan.concerning("county", "race", within="state")
    assert max(race, county) <= both.rho() <= plan.mechanism().rho() == Fraction(1, 10)
    assert county <= plan.concerning("county", within="land").rho()
    assert plan.concerning("county", within="land") == plan.concerning("state", within="land")


def test_under_add_remove_a_changed_record_moves_two_cells():
    plan = Plan.from_dict(ADDED)
    entries = {(e.query, e.level): e for e in plan.entries()}
    (races,) = (e for e in moved(plan, ("race",)) if e.query == "races")
    assert entries["races", "state"].shifts == ((1,),)
    assert races.shifts == ((1, 1),)


def test_the_usual_scenarios_are_the_columns_and_each_level_within_the_one_above():
    columns = [(("race",), None), (("sex",), None), (("vet",), None), (("debt",), None)]
    columns.append((("age",), None))
    levels = [(("land",), None), (("state",), "land"), (("county",), "state")]
    assert usual(Plan.from_dict(DROPS)) == (*columns, *levels)
    assert usual(Plan.from_dict(CHAIN)) == (*columns, levels[2])
    assert usual(Plan.from_dict(IDS)) == ((("a",), None), (("b",), None))


@pytest.mark.parametrize(("attributes", "within", "message"), [
    ((), None, "name at least one"),
    (("rase",), None, r"'rase'.* did you mean 'race'\? there are 'race', 'sex'.*'county'"),
    (("county",), None, "within = 'land' or within = 'state'; or name 'land'"),
    (("state",), "state", "for the attribute 'state' must be within = 'land'"),
    (("county", "state"), "state", "for the attribute 'state' must be within = 'land'"),
    (("county",), "stat", "must be within = 'land' or within = 'state'"),
    (("land",), "land", "no level is above"),
    (("race",), "state", "no attribute is a level"),
])  # fmt: skip
def test_a_scenario_that_does_not_fit_is_refused_with_what_would(attributes, within, message):
    with pytest.raises(ValueError, match=message):
        Plan.from_dict(DROPS).concerning(*attributes, within=within)


def test_a_plan_without_a_hierarchy_has_nothing_to_be_within():
    with pytest.raises(ValueError, match="the plan has none"):
        Plan.from_dict(IDS).concerning("a", within="state")
