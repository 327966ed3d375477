"""Plans with several hierarchies: levels of pairs, their tables, and how far one record moves them.

The reference counts rows in plain Python from the lists of places.
"""

import itertools
import json
import math
import tomllib
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

import neyman as ny
from commands import answered
from neyman.display import page
from neyman.publishing import (
    DataError,
    Plan,
    PlanError,
    aggregate_cells,
    check_schema,
    moved,
    open_table,
    prepared,
    toml_text,
    usual,
    verify,
)
from plain_engine import counted, maximal

PLACES = [["N", "a"], ["N", "b"], ["S", "a"]]
INDUSTRIES = [["X", "x1"], ["X", "x2"], ["Y", "y1"]]
LEVELS = ("region x sector", "region x job", "county x sector", "county x job")


def plan(relation="replace-one", *, at=("all pairs",), place="drop", industry="drop", **unit):
    return Plan.from_dict({
        "schema": 2, "name": "two", "dataset": "two@1", "table": "rows",
        "unit": {"protects": "person", "neighboring": relation, **unit},
        "hierarchy": {
            "place": {"levels": ["region", "county"], "keys": PLACES, "unknown": place},
            "industry": {"levels": ["sector", "job"], "keys": INDUSTRIES, "unknown": industry},
        },
        "budget": {"zcdp": 1},
        "query": [{"name": "n", "measure": "count", "at": list(at), "share": 1}],
    })  # fmt: skip


def listed(own, row, names):
    """The place of a row, or the one for unlisted rows; None for none."""
    path = [row[name] for name in names]
    return path if path in own else None


def cell(example, level, row):
    """The cell of a row in a table: none unless the query's finest table has a place for it."""
    paths = {}
    for names, own, tree in zip(
        (("region", "county"), ("sector", "job")),
        (PLACES, INDUSTRIES),
        example.hierarchies,
        strict=True,
    ):
        path = listed(own, row, names)
        if path is None and tree.unknown is not None:
            path = own[tree.unknown]
        paths |= {n: path and tuple(path[: i + 1]) for i, n in enumerate(names)}
    finest = example.finest(example.queries[0])
    if any(paths[name] is None for name in finest.split(" x ")):
        return None
    return tuple(paths[name] for name in level.split(" x "))


def every_row():
    places = [*PLACES, ["S", "b"]]
    industries = [*INDUSTRIES, ["Y", "x1"]]
    return [
        dict(zip(("region", "county", "sector", "job"), (*p, *i), strict=True))
        for p in places
        for i in industries
    ]


def moves(example, level, pairs):
    """The maximal shifts of a table over pairs of rows, one of which replaces the other."""
    vectors = set()
    for before, after in pairs:
        counts = Counter()
        for sign, row in ((1, before), (-1, after)):
            if row is not None and (where := cell(example, level, row)) is not None:
                counts[where] += sign
        vectors.add(tuple(sorted((abs(x) for x in counts.values() if x), reverse=True)))
    return maximal(vectors - {()})


def test_a_pair_of_levels_is_a_level_and_the_order_of_hierarchies_says_nothing():
    example = plan(at=["sector x region", "sector x county"])
    again = Plan.from_dict(json.loads(json.dumps(example.canonical(), sort_keys=True)))
    assert again.hash == example.hash
    assert [one.name for one in again.hierarchies] != [one.name for one in example.hierarchies]
    query = example.queries[0]
    assert example.key_columns(query, "sector x county") == ("sector", "region", "county")
    for one in (example, again):
        assert one.shape(query, "sector x county") == (6,)
        assert one.finest(query) == "sector x county"


def test_all_pairs_are_the_levels_of_one_tree_with_those_of_the_other():
    assert plan().queries[0].at == LEVELS
    assert plan().hash == plan(at=LEVELS).hash


@pytest.mark.parametrize(("at", "said"), [
    (["region", "sector"], ["no finest level", "'region x sector'"]),
    (["region x county"], ["'region x county'", "is not a level"]),
    (["region x sector", "sector x region"], ["at[1]", "listed twice"]),
    (["region x"], ["'region x'", "is not a level"]),
])  # fmt: skip
def test_levels_that_are_no_pair_are_refused_by_name(at, said):
    with pytest.raises(PlanError) as error:
        plan(at=at)
    for words in said:
        assert words in str(error.value)


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("place", ["drop", ["S", "a"]])
def test_the_shifts_of_pairs_are_those_of_all_neighbors(relation, place):
    example, rows = plan(relation, place=place), every_row()
    pairs = [(row, None) for row in rows]
    if relation == "replace-one":
        pairs = list(itertools.product(rows, repeat=2))
    for entry in example.entries():
        assert entry.shifts == moves(example, entry.level, pairs)


SCENARIOS = [
    (("region",), None, ("region", "county")), (("county",), "region", ("county",)),
    (("sector",), None, ("sector", "job")), (("job",), "sector", ("job",)),
    (("county", "job"), "region x sector", ("county", "job")),
    (("region", "job"), "sector", ("region", "county", "job")),
    (("place", "industry"), None, ("region", "county", "sector", "job")),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "within", "free"), SCENARIOS)
@pytest.mark.parametrize("places", [{}, {"industry": ["Y", "y1"]}])
def test_a_scenario_moves_the_tables_that_enumeration_moves(attributes, within, free, places):
    example, rows = plan(**places), every_row()
    # A place that stays within another one is listed.
    stays = {"region": PLACES, "sector": INDUSTRIES}
    staying = [name for name in (within or "").split(" x ") if name]
    names = {"region": ("region", "county"), "sector": ("sector", "job")}
    pairs = [
        (a, b)
        for a, b in itertools.product(rows, repeat=2)
        if all(a[name] == b[name] for name in a if name not in free)
        and all(listed(stays[n], row, names[n]) for n in staying for row in (a, b))
    ]
    expected = {level: moves(example, level, pairs) for level in LEVELS}
    shifts = {entry.level: entry.shifts for entry in moved(example, attributes, within)}
    assert shifts == {level: vectors for level, vectors in expected.items() if vectors}


def test_each_hierarchy_has_scenarios_of_its_own():
    assert usual(plan()) == (
        (("region",), None), (("county",), "region"), (("sector",), None), (("job",), "sector"),
    )  # fmt: skip


@pytest.mark.parametrize(("attributes", "within", "said"), [
    (("county", "job"), "region", "attribute 'job'"),
    (("county",), "sector", "within = 'sector'"),
    (("county", "job"), "region x county", "within = 'region x county'"),
    (("nothing",), None, "attribute 'nothing'"),
])  # fmt: skip
def test_a_scenario_that_does_not_fit_is_refused(attributes, within, said):
    with pytest.raises(ValueError, match=said):
        plan().concerning(*attributes, within=within)


def test_one_record_costs_the_worst_case_once():
    example = plan()
    assert example.mechanism().rho() == 1
    both = example.concerning("county", "job", within="region x sector")
    # Four tables with a quarter each, of which three move.
    assert both.rho() == Fraction(3, 4)
    assert example.concerning("place", "industry").rho() == 1


def test_plan_check_reads_a_plan_with_pairs(tmp_path):
    stored = Path(__file__).parents[2] / "compatibility/plans.toml"
    path = tmp_path / "pairs.toml"
    path.write_text(toml_text(tomllib.loads(stored.read_text("utf-8"))["pairs"]))
    assert " count  county x sector  6      1/2 " in answered("plan", "check", path)
    example = Plan.load(path)
    assert (example.held, example.totals_hash) == ((), "")


@pytest.mark.parametrize("unit", [{}, {"id": "id", "rows": 2}])
@pytest.mark.parametrize("unknown", [{}, {"place": ["S", "a"]}, {"place": "b", "industry": "y1"}])
def test_the_engine_counts_each_pair_as_plain_python_does(unit, unknown):
    example = plan(at=("region", "sector", "job x region", "job x county"), **unknown, **unit)
    rows = [row | {"id": str(i)} for i, row in enumerate(every_row() * 2)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    counted = aggregate_cells(example, open_table(pa.table(columns), "duckdb"))
    for level in example.queries[0].levels:
        expected = Counter(cell(example, level, row) for row in rows)
        shape = [one.paths(name) for one, name in example.parts(level)]
        values = [expected[tuple(path)] for path in itertools.product(*shape)]
        assert counted["n", level, "count"].dense().tolist() == values, level


@pytest.mark.parametrize("upper", ["value", "upper", "quantile", "detail"])
@pytest.mark.parametrize("lower", ["middle", "middle x sex"])
def test_a_level_above_has_no_name_that_the_table_uses(upper, lower):
    trees = {"place": {"levels": [upper, "middle"], "keys": [["A", "x"], ["B", "x"]]}}
    detail = {}
    if "x" in lower.split():
        trees["work"] = {"levels": ["sex"], "keys": [["f"], ["m"]]}
    if upper == "detail":
        lower = "middle"
        trees = {"place": trees["place"]}
        detail = {"detail": [[], ["age"]], "thresholds": [9]}
    document = {
        "schema": 2, "name": "names", "dataset": "names@1", "table": "rows",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"age": {"keys": [1, 2]}}, "hierarchy": trees, "budget": {"zcdp": 1},
        "query": [{"name": "n", "measure": "count", "at": [lower], "share": 1} | detail],
    }  # fmt: skip
    with pytest.raises(PlanError, match=rf"the tables use the name '{upper}'"):
        Plan.from_dict(document)


@pytest.mark.parametrize("name", ["industry", "sector", "region"])
def test_of_several_hierarchies_none_has_the_name_of_a_column_or_of_anothers_level(name):
    document = plan().canonical()
    document["columns"] = {"industry": {"keys": ["old", "new"]}}
    document["hierarchy"] = {
        name: document["hierarchy"]["place"],
        "work": document["hierarchy"]["industry"],
    }
    if name == "region":  # a level of its own is no other meaning
        assert Plan.from_dict(document).hierarchies[0].name == name
        return
    with pytest.raises(PlanError, match="rename the hierarchy"):
        Plan.from_dict(document)


def test_a_row_of_a_listed_region_and_an_unlisted_county_counts_by_a_derived_column_alone():
    one = plan().canonical()
    one["derive"] = {"by_region": {"expression": "region"}}
    one["columns"] = {"by_region": {"keys": ["N", "S"]}}
    one["query"] = [
        {"name": "path", "measure": "count", "at": ["region"], "share": "1/2"},
        {"name": "column", "measure": "count", "by": ["by_region"], "share": "1/2"},
    ]
    columns = {"region": ["N", "N", "N", "S", "?"], "county": ["a", "?", None, "a", "a"]}
    columns |= {"sector": ["X"] * 5, "job": ["x1"] * 5}
    example = Plan.from_dict(one)
    with prepared(example, open_table(pa.table(columns), "duckdb")) as rows:
        counted = aggregate_cells(example, rows)
    assert counted["path", "region", "count"].dense().tolist() == [1, 1]
    assert counted["column", "all", "count"].dense().tolist() == [3, 1]


# ---- places of unequal depth -------------------------------------------------------------------

RAGGED = [
    ["US", "OH", "1"],
    ["US", "OH", "02"],
    ["US", "DC", ""],
    ["PR", "", ""],
    ["US", "IA", "1"],
]
NAMES = ["nation", "state", "county"]


def ragged(keys=RAGGED, **more):
    query = {"name": "n", "measure": "count", "at": NAMES, "share": 1}
    place = {name: more.pop(name) for name in ("unknown", "integer") if name in more}
    return Plan.from_dict({
        "schema": 2, "name": "ragged", "dataset": "d@1", "table": "rows",
        "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1},
        "hierarchy": {"place": {"levels": NAMES, "keys": keys, **place}},
        "budget": {"zcdp": 1}, "query": [query], **more,
    })  # fmt: skip


def rows_of(*paths):
    return pa.table(
        {n: pa.array([path[i] for path in paths], pa.string()) for i, n in enumerate(NAMES)}
    )


PEOPLE = rows_of(
    *[("US", "OH", "1")] * 5, *[("US", "OH", "02")] * 3, *[("US", "DC", None)] * 4,
    ("US", "DC", ""), ("US", "DC", "1"), ("US", "OH", None), *[("PR", None, None)] * 2,
    ("PR", "", ""), ("PR", "x", ""), (None, None, None), ("US", None, None), ("US", "IA", "1"),
)  # fmt: skip


def test_a_place_that_ends_above_the_lowest_level_counts_the_rows_without_a_name_below(engine):
    """A place is a whole path: a missing name differs from each name."""
    for keys, more in ((RAGGED, {}), ([*RAGGED[:1], ["US", "OH", "2"], *RAGGED[2:]], INTEGER)):
        result = counted(ragged(keys, **more), PEOPLE, engine)
        assert result["n", "county", "count"] == [5, 3, 5, 3, 1]
        assert result["n", "state", "count"] == [8, 5, 3, 1]
        assert result["n", "nation", "count"] == [14, 3]
    for unknown in ("DC", ["US", "DC"]):
        own = ragged(unknown=unknown)
        assert counted(own, PEOPLE, engine)["n", "county", "count"] == [5, 3, 10, 3, 1]
        assert own.canonical()["hierarchy"]["place"]["unknown"] == ["US", "DC"]


INTEGER = {"integer": ["county"]}


def test_a_value_that_is_no_whole_number_is_not_a_missing_name(engine):
    """On a level of whole numbers, it has no place, as an unlisted number."""
    keys = [["US", "OH", "1"], ["US", "DC", ""]]
    texts = [None, "", "abc", "7.5", "-0.5", "inf", "true", "7"]
    floats = [None, math.nan, 7.5, -0.5, math.inf, 7.0, 1.0, 2.0**70]
    for values, kind in ((texts, pa.string()), (floats, pa.float64())):
        columns = [["US"] * 8, ["DC"] * 8, pa.array(values, kind)]
        data = pa.table(dict(zip(NAMES, columns, strict=True)))
        assert counted(ragged(keys, **INTEGER), data, engine)["n", "county", "count"] == [0, 2]


def test_a_derived_level_without_a_name_is_missing(engine):
    derive = {"county": {"map": "code", "to": {"a": "1", "b": "02"}}}
    codes = {"1": "a", "02": "b", "": None, None: None}
    data = PEOPLE.drop(["county"]).append_column(
        "code", pa.array([codes.get(one, "c") for one in PEOPLE["county"].to_pylist()], pa.string())
    )
    keys = [*RAGGED, ["US", "UT", "none of these"]]
    own = ragged(keys, derive=derive, columns={"code": {"type": "text"}})
    with prepared(own, open_table(data, engine, ["nation", "state", "code"])) as rows:
        cells = aggregate_cells(own, rows)["n", "county", "count"]
    assert cells.dense().tolist() == [5, 3, 5, 3, 1, 0]


def test_one_row_moves_ragged_tables_as_it_moves_tables_of_equal_depth():
    even = [["US", "OH", "1"], ["US", "OH", "02"], ["US", "DC", "3"], ["PR", "4", "5"]]
    own, other = ragged(RAGGED[:4]), ragged(even)
    assert own.entries() == other.entries()
    assert [*usual(own)] == [*usual(other)]
    for scenario in usual(own):
        assert moved(own, *scenario) == moved(other, *scenario)


def test_a_ragged_plan_is_written_read_released_and_verified(tmp_path):
    totals = [{"by": ["county"], "values": [[*row, 3 + i] for i, row in enumerate(RAGGED)]}]
    known = {"unknown": ["US", "DC"], "columns": {"sex": {"keys": ["f", "m"], "unknown": "m"}}}
    by_sex = [{"measure": "count", "by": ["sex"], "share": 1}]
    for more in ({}, known, known | {"totals": totals, "query": by_sex}):
        own = ragged(**more, consistency={"method": "integer"})
        again = Plan.from_dict(tomllib.loads(toml_text(own.canonical())))
        assert (again, again.hash) == (own, own.hash)
    own = ragged(consistency={"method": "integer"})
    ledger = ny.throwaway(9)
    ledger.register("d@1", protects="person", neighboring="replace-one", rows=1)
    release = ny.run(own, PEOPLE, ledger, tmp_path / "out")
    assert all(check.ok for check in verify(release.folder, {"report.html": page}))
    table = release.tables["consistent/n.county"]
    assert table.select(NAMES).to_pylist() == [dict(zip(NAMES, row, strict=True)) for row in RAGGED]
    states = release.tables["consistent/n.state"]["value"].to_pylist()
    counties = table["value"].to_pylist()
    assert states == [counties[0] + counties[1], *counties[2:]]


@pytest.mark.parametrize(("keys", "said"), [
    ([["US", "", "1"]], "row 1 '1' is an orphan: it has no state"),
    ([["US", "OH", "1"], ["", "", ""]], "row 2 has no name .nation = ''"),
    ([["US", "OH", ""], ["US", "DC", ""]], "no name .county = ''., nor has any other row"),
    ([["US", "OH", "1"], ["US", "DC", " "]], "row 2 ' ' is an orphan|county = ' ' with blanks"),
    ([["US", "OH", "1"], ["US", "DC"]], "row 2 has 2 values.*write '' on the levels below"),
    ([["US", "OH", "1"], ["US", "DC", ""], ["US", "DC", ""]], "row 3 repeats row 2"),
])  # fmt: skip
def test_places_that_end_nowhere_are_refused(keys, said):
    with pytest.raises(PlanError, match=said):
        ragged(keys)


def test_a_place_without_a_name_below_needs_the_column_of_its_own_level():
    with pytest.raises(DataError, match="no column 'nation', and the place 'PR' has no name below"):
        check_schema(ragged(), open_table(PEOPLE.drop(["nation"]), "duckdb"))
    own = ragged([row for row in RAGGED if row[0] == "US"])
    data = PEOPLE.drop(["nation"])
    assert counted(own, data)["n", "county", "count"] == [5, 3, 5, 1]
