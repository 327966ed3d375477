"""Tables of neighboring data: one unit moves them by at most what is declared, on each engine."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from neyman.publishing import (
    Plan,
    PlanError,
    aggregate_cells,
    check_schema,
    columns_read,
    moves_total,
    open_table,
    prepared,
    usual,
)
from neyman.publishing import moved as concerned
from plain_engine import KEY, counted, maximal, moves
from random_laws import is_small

KINDS = [("x", "-9"), ("x", "9"), ("y", "-9"), ("y", "0.5"), (None, "9")]
VERSIONS = [
    rows for size in range(4) for rows in itertools.combinations_with_replacement(KINDS, size)
]
MEASURES = [
    {"measure": "count"}, {"measure": "units"}, {"measure": "sum", "column": "n", "clip": [-1, 2]},
    {"measure": "variance", "column": "n", "clip": [-1, 2]}, {"measure": "count", "groups": 1},
    {"measure": "sum", "column": "n", "clip": [-1, 2], "groups": 1, "rows_per_group": 1},
]  # fmt: skip


def a_plan(measures, by=(), neighboring="replace-one"):
    """At most 2 rows of each unit; the tables are by the columns ``by`` and by k."""
    share = f"1/{len(measures)}"
    query = [
        {"name": f"q{i}", "by": [*by, "k"], "share": share, **more}
        for i, more in enumerate(measures)
    ]
    return Plan.from_dict({
        "schema": 2, "name": "neighbors", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": neighboring, "rows": 2, "id": "id"},
        "columns": {
            "k": {"keys": ["x", "y"]}, "v": {"keys": list(range(len(VERSIONS)))},
            "n": {"integer": True},
        },
        "budget": {"zcdp": 1}, "query": query,
    })  # fmt: skip


def table_of(rows):
    names = ["id", "v", "k", "n"]
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


def entries(measures, neighboring):
    plan = a_plan(measures, neighboring=neighboring)
    return {(e.query, e.level, e.measure): e for e in plan.entries()}


def test_no_two_versions_of_a_unit_are_further_apart_than_declared(spark_running, attempts):
    """All 56 multisets of up to 3 rows of 5 kinds, where 2 are kept, at once: each is a unit whose
    rows have its number as a key. All pairs of them are neighbors under replace-one, and each with
    nothing is under add-remove."""
    rows = [(f"{i}", f"{i}", *row) for i, rows in enumerate(VERSIONS) for row in rows]
    result = counted(a_plan(MEASURES, by=["v"]), table_of(rows), "spark")
    replaced, removed = (entries(MEASURES, how) for how in ("replace-one", "add-remove"))
    assert set(result) == set(replaced) == set(removed)
    most = 0
    for key, cells in result.items():
        tables = np.reshape(cells, (len(VERSIONS), -1))
        assert tables.any()
        for i, one in enumerate(tables):
            assert moves(removed[key].shifts, one), (key, VERSIONS[i])
            attempts(1 + i)
            for j, other in enumerate(tables[:i]):
                assert moves(replaced[key].shifts, one - other), (key, VERSIONS[i], VERSIONS[j])
                most = max(most, np.abs(one - other).max())
    assert most > 2  # the bounds are reached, or the pairs would try nothing


PEOPLE = [
    {"age": age, "sex": sex, "pay": pay}
    for age in (None, 10, 30, 70)
    for sex in ("m", "?")
    for pay in (-3, 9)
]
NUMBERS = list(range(24))
QUERIES = [
    {"name": "all", "measure": "count"},
    {"name": "adults", "measure": "count", "where": "age >= 18"},
    {"name": "band", "measure": "count", "by": ["band"], "where": "sex == 'm'"},
    {"name": "sum", "measure": "sum", "column": "pay", "clip": [-1, 4], "where": "age >= 18"},
    {"name": "mean", "measure": "mean", "column": "pay", "clip": [-1, 4], "where": "pay > 0"},
    {"name": "bins", "measure": "histogram", "column": "double", "edges": [0, 40, 200]},
    {"name": "rate", "measure": "ratio", "column": "pay", "clip": [-1, 4], "over": "double",
     "clip_over": [1, 9], "where": "age >= 18"},
    {"name": "spread", "measure": "standard_deviation", "column": "pay", "clip": [-1, 4]},
    {"name": "bands", "measure": "distinct", "column": "band"},
    {"name": "kinds", "measure": "distinct", "column": "band", "by": ["ok"], "where": "pay < 5"},
    {"name": "middle", "measure": "median", "column": "double", "edges": [0, 40, 90, 200]},
]  # fmt: skip


def a_filtered_plan(neighboring, where=None, queries=QUERIES, **unit):
    share = f"1/{len(queries)}"
    table = {} if where is None else {"where": where}
    return Plan.from_dict({
        "schema": 2, "name": "neighbors", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": neighboring, **unit},
        "columns": {
            "age": {"type": "whole"}, "sex": {"type": "text"}, "pay": {"integer": True},
            "version": {"keys": NUMBERS},
        },
        "derive": {
            "band": {"cut": "age", "edges": [0, 18, 65], "labels": ["minor", "adult"]},
            "double": {"expression": "age * 2", "range": [0, 200]},
            "ok": {"expression": "sex == 'm'"},
        },
        "budget": {"zcdp": 1}, "query": [{**query, "share": share} for query in queries], **table,
    })  # fmt: skip


def tables_of(versions, where=None, queries=QUERIES, **unit):
    """The tables of each version of the data: one query counts all of them, by their numbers."""
    numbered = [{**query, "by": ["version", *query.get("by", ())]} for query in queries]
    plan = a_filtered_plan("replace-one", where, numbered, **unit)
    rows = [
        {**row, "version": number, "id": f"{row.get('id')} of {number}"}
        for number, version in enumerate(versions)
        for row in version
    ]
    kinds = {"id": pa.string(), "version": pa.int64(), "age": pa.int64(), "sex": pa.string()}
    source = pa.Table.from_pylist(rows, pa.schema([*kinds.items(), ("pay", pa.int64())]))
    check_schema(plan, open_table(source, rows=False))
    opened = open_table(source, columns=columns_read(plan, source.column_names))
    with prepared(plan, opened) as ready:
        counted = aggregate_cells(plan, ready, KEY)
    cells = {key: np.reshape(c.dense(), (len(NUMBERS), -1)) for key, c in counted.items()}
    return [{key: c[number] for key, c in cells.items()} for number in range(len(versions))]


@pytest.mark.parametrize("where", [None, "band is not None or sex == 'm'"])
def test_no_pair_of_neighboring_tables_is_further_apart_than_declared(where):
    others = [PEOPLE[2], PEOPLE[9]]
    without, *versions = tables_of([others, *([*others, kind] for kind in PEOPLE)], where)
    for neighboring in ("replace-one", "add-remove"):
        plan = a_filtered_plan(neighboring, where)
        declared = {(e.query, e.level, e.measure): e.shifts for e in plan.entries()}
        pairs = (
            itertools.combinations(versions, 2)
            if neighboring == "replace-one"
            else ((version, without) for version in versions)
        )
        reached = dict.fromkeys(declared, 0)
        for one, other in pairs:
            for key, shifts in declared.items():
                difference = one[key] - other[key]
                assert moves(shifts, difference), (key, difference)
                reached[key] = max(reached[key], int(np.abs(difference).sum()))
        assert reached["adults", "all", "count"] == reached["bands", "all", "distinct"] == 1
        assert reached["kinds", "all", "distinct"] == (2 if neighboring == "replace-one" else 1)
        assert reached["band", "all", "count"] == (2 if neighboring == "replace-one" else 1)


def test_a_unit_of_several_rows_is_bounded_after_the_filter():
    kinds = [PEOPLE[i] for i in (2, 6, 12)]
    units = [
        [{"id": "u", **kind} for kind in chosen]
        for size in range(4)
        for chosen in itertools.combinations_with_replacement(kinds, size)
    ]
    others = [{"id": "v", **kinds[0]}, {"id": "v", **kinds[-1]}]
    # A unit's rows that a filter leaves out take no room of those that it takes.
    full = [{"id": "u", **PEOPLE[0]}] * 5 + [{"id": "u", **PEOPLE[12]}] * 2
    queries = [
        *QUERIES[1:4], *QUERIES[6:10], {"name": "units", "measure": "units", "where": "age >= 18"},
    ]  # fmt: skip
    given = {"where": "pay > -9", "queries": queries, "id": "id", "rows": 2}
    alone, *versions = tables_of([full, *([*others, *unit] for unit in units)], **given)
    assert alone["adults", "all", "count"].tolist() == [2]
    for neighboring in ("replace-one", "add-remove"):
        plan = a_filtered_plan(neighboring, **given)
        declared = {(e.query, e.level, e.measure): e.shifts for e in plan.entries()}
        for i, one in enumerate(versions):
            for other in versions[: 1 if neighboring == "add-remove" else i]:
                for key, shifts in declared.items():
                    assert moves(shifts, one[key] - other[key]), key


def test_an_attribute_moves_no_table_further_than_its_scenario_says():
    for where in (None, "age < 65 or pay > 0"):
        plan = a_filtered_plan("add-remove", where)
        counted = tables_of([[kind] for kind in PEOPLE], where)
        assert [names for names, _ in usual(plan)] == [("pay",), ("age",), ("sex",)]
        for attribute in ("age", "sex", "pay"):
            declared = {
                (e.query, e.level, e.measure): e.shifts for e in concerned(plan, (attribute,))
            }
            for (i, one), (j, other) in itertools.combinations(enumerate(PEOPLE), 2):
                if any(one[name] != other[name] for name in one if name != attribute):
                    continue
                for key, cells in counted[i].items():
                    difference = cells - counted[j][key]
                    assert moves(declared.get(key, ((),)), difference), (attribute, key)
    # A derived column stands for the columns that it is computed from.
    assert concerned(plan, ("band",)) == concerned(plan, ("age",))


def test_a_filtered_total_is_not_public():
    total = {"name": "total", "measure": "count", "public": {"all": 3}}
    more = {"name": "sex", "measure": "count", "by": ["band"]}
    queries = [total, more]
    for sections in ({"where": "age > 3"}, {"query": [{**total, "where": "age > 3"}, more]}):
        document = a_filtered_plan("replace-one", queries=[more]).canonical()
        document["query"] = [total, {**more, "share": 1}]
        if "query" in sections:
            document["query"] = [{**total, "where": "age > 3"}, {**more, "share": 1}]
        else:
            document |= sections
        with pytest.raises(PlanError, match="total is not public"):
            Plan.from_dict(document)
    assert queries[0]["public"] == {"all": 3}


PLACES = [["US", "S", "x"], ["US", "S", "y"], ["US", "T", "x"], ["CA", "U", "x"]]
GRID = {
    "race": ["w", "b", "?", "!"], "year": [2020, 2021, 1999, 1998], "age": [None, 0, 17, 40],
    "place": [*PLACES, ["US", "S", "?"], ["?", "?", "?"]],
}  # fmt: skip
ROWS = list(itertools.product(*GRID.values()))
SECTIONS = {
    "schema": 2, "name": "totals", "dataset": "d@1", "table": "t",
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1},
    "columns": {
        "race": {"keys": ["w", "b"], "unknown": "b"},
        "year": {"keys": [2020, 2021], "unknown": 2020}, "age": {"integer": True},
    },
    "derive": {
        "band": {
            "cut": "age", "edges": [0, 18, 65], "labels": ["minor", "adult"],
        } | {"unknown": "none"}
    },
    "hierarchy": {
        "place": {
            "levels": ["land", "state", "county"], "keys": PLACES,
        } | {"unknown": ["US", "T", "x"]}
    },
    "budget": {"zcdp": 1},
}  # fmt: skip
ASKED = [
    {"name": "all", "measure": "count"},
    {"name": "land", "measure": "count", "at": ["land"]},
    {"name": "counties", "measure": "count", "at": ["county"]},
    {"name": "race", "measure": "count", "by": ["race"]},
    {"name": "races", "measure": "count", "by": ["race", "year"], "at": ["state"]},
    {"name": "bands", "measure": "count", "by": ["band"], "at": ["county"]},
    {"name": "ages", "measure": "sum", "column": "age", "clip": [5, 30], "by": ["race"]},
    {"name": "mean", "measure": "mean", "column": "age", "clip": [0, 20], "by": ["year"]},
    {"name": "bins", "measure": "histogram", "column": "age", "edges": [0, 15, 30]},
    {"name": "adults", "measure": "count", "by": ["race"], "where": "age >= 18"},
    {"name": "w", "measure": "count", "at": ["state"], "where": "race == 'w'"},
    {"name": "young", "measure": "count", "by": ["year"], "where": "band == 'minor'"},
    {"name": "odd", "measure": "count", "where": "race == '?'"},
]
TOTALS = [["land"], ["state"], ["county"], ["race"], ["year"], ["band"], ["race", "year"]]
TOTALS += [["year", "state"], ["county", "band"]]


LIMITED = {"adults": "band", "w": "race", "young": "band", "odd": "race"}
LIMITED |= {"ages": "band", "mean": "band", "bins": "band"}
"""What a query reads of values that a total holds by their key: its charge may be larger."""


def _largest(shifts):
    return max((sum(x * x for x in shift) for shift in shifts), default=0)


def grid():
    columns = dict(zip(GRID, zip(*ROWS, strict=True), strict=True))
    places = dict(
        zip(("land", "state", "county"), zip(*columns["place"], strict=True), strict=True)
    )
    numbers = {"race": columns["race"], "year": columns["year"], "row": range(len(ROWS))}
    ages = pa.array(columns["age"], pa.int64())
    return pa.table({**numbers, **places}).append_column("age", ages)


@pytest.fixture(scope="module")
def grid_tables():
    """By query, level, and measure the tables of each row alone; and by its columns each total."""
    counts = [
        {"name": "total " + " ".join(by), "measure": "count"}
        | {"at": [name for name in by if name in ("land", "state", "county")]}
        | {"by": [name for name in by if name not in ("land", "state", "county")]}
        for by in TOTALS
    ]
    asked = [
        {**query, "by": ["row", *query.get("by", ())], "share": Fraction(1, len(ASKED + counts))}
        for query in [*ASKED, *counts]
    ]
    columns = {**SECTIONS["columns"], "row": {"keys": list(range(len(ROWS)))}}
    plan = Plan.from_dict(SECTIONS | {"columns": columns, "query": asked})
    source = grid()
    opened = open_table(source, "duckdb", columns_read(plan, source.column_names))
    with prepared(plan, opened) as ready:
        result = aggregate_cells(plan, ready, KEY)
    flat = {}
    for entry in plan.entries():
        key = entry.query, entry.level, entry.measure
        cells, query = result[key].dense(), plan.query(entry.query)
        # Places come first, and then the key of the row.
        shape = plan.shape(query, entry.level)
        flat[key] = np.moveaxis(np.reshape(cells, shape), 1, 0).reshape(len(ROWS), -1)
    return flat


def section_of(by, grid_tables):
    """The section of totals with the numbers of the grid's own rows."""
    (table,) = (value for key, value in grid_tables.items() if key[0] == "total " + " ".join(by))
    level = next((name for name in by if name in ("land", "state", "county")), None)
    depth = ("land", "state", "county").index(level) + 1 if level else 0
    places = list(dict.fromkeys(tuple(place[:depth]) for place in PLACES))
    listed = {"race": ["w", "b"], "year": [2020, 2021], "band": ["minor", "adult", "none"]}
    keys = itertools.product(places, *(listed[name] for name in by if name in listed))
    sums = table.sum(axis=0).tolist()
    return {
        "by": by,
        "values": [[*place, *own, n] for (place, *own), n in zip(keys, sums, strict=True)],
    }


def same_cells(sections, grid_tables):
    """Which pairs of rows are in one cell of every table of totals."""
    same = np.ones((len(ROWS), len(ROWS)), dtype=bool)
    for section in sections:
        name = "total " + " ".join(section["by"])
        (table,) = (value for key, value in grid_tables.items() if key[0] == name)
        assert (table.sum(axis=1) == 1).all()
        cell = table.argmax(axis=1)
        same &= cell[:, None] == cell[None, :]
    return same


def differences(table, same):
    """The maximal sorted changes of a table's cells over the pairs of rows."""
    kinds, which = np.unique(table, axis=0, return_inverse=True)
    which = which.ravel()
    codes = which[:, None] * len(kinds) + which[None, :]
    vectors = set()
    for one, other in (divmod(code, len(kinds)) for code in np.unique(codes[same])):
        sizes = np.abs(kinds[one].astype(np.int64) - kinds[other])
        vectors.add(tuple(sorted(sizes[sizes > 0].tolist(), reverse=True)))
    return maximal(vectors - {()})


def test_the_shifts_are_those_of_all_pairs_that_keep_every_total(grid_tables, attempts):
    draw, checked, plans = random.Random(5), 0, 12 if is_small() else 30
    for _ in range(plans):
        chosen = draw.sample(ASKED, draw.randint(1, 4))
        totals = draw.sample(TOTALS, draw.randint(1, 3))
        sections = [section_of(by, grid_tables) for by in totals]
        share = Fraction(1, len(chosen))
        data = SECTIONS | {"query": [{**query, "share": share} for query in chosen]}
        same = same_cells(sections, grid_tables)
        attempts(int(same.sum()))
        own = [key for key in grid_tables if key[0] in {query["name"] for query in chosen}]
        truth = {key: differences(grid_tables[key], same) for key in own}
        try:
            plan = Plan.from_dict(data | {"totals": sections})
        except PlanError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            unmoved = any(not shifts for shifts in truth.values())
            assert unmoved or "close a cycle" in refused, (totals, refused)
            continue
        checked += 1
        listed = {(e.query, e.level, e.measure): e.shifts for e in plan.entries()}
        for key, shifts in truth.items():
            if LIMITED.get(key[0]) in {name for by in totals for name in by}:
                assert _largest(shifts) <= _largest(listed[key])
            else:
                assert listed[key] == shifts, (totals, key)
        spent = 0
        for entry, sigma_squared in plan.calibrated():
            table = grid_tables[entry.query, entry.level, entry.measure].astype(np.int64)
            norms = (table**2).sum(axis=1)
            moved = norms[:, None] + norms[None, :] - 2 * table @ table.T
            assert moved[same].max() <= entry.squared
            spent = spent + moved / (2 * float(sigma_squared))
        assert spent[same].max() <= 1 + 1e-9
        names = ("race", "year", "age", "place")
        pairs = np.argwhere(~same)
        for i, j in pairs[draw.sample(range(len(pairs)), 20)].tolist():
            changed = [n for n, a, b in zip(names, ROWS[i], ROWS[j], strict=True) if a != b]
            assert moves_total(plan, tuple(changed)), (totals, ROWS[i], ROWS[j])
            assert plan.concerning(*changed) == ny.NonPrivate()
    assert 3 <= checked < plans
