"""Rows without a number: what they add to each measure, and how far a record can move a table."""

import itertools
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from neyman.publishing import Plan, PlanError, aggregate_cells, moved, open_table, prepared
from plain_engine import check, counted, maximal, moves

QUERIES = [
    {"name": "sum", "measure": "sum", "column": "x", "clip": [3, 9]},
    {"name": "mean", "measure": "mean", "column": "x", "clip": [3, 9]},
    {"name": "variance", "measure": "variance", "column": "x", "clip": [3, 8]},
    {"name": "deviation", "measure": "standard_deviation", "column": "x", "clip": [3, 9]},
    {"name": "ratio", "measure": "ratio", "column": "x", "clip": [3, 9]}
    | {"over": "y", "clip_over": [1, 4]},
    {"name": "both", "measure": "ratio", "column": "x", "clip": [3, 9]}
    | {"over": "y", "clip_over": [1, 4], "complete": True},
    {"name": "histogram", "measure": "histogram", "column": "x", "edges": [0, 5, 9]},
    {"name": "quantiles", "measure": "quantiles", "column": "x", "edges": [0, 5, 9]}
    | {"quantiles": ["0.25", "0.5"]},
    {"name": "median", "measure": "median", "column": "x", "clip": [0, 9]}
    | {"method": "inverse-sensitivity"},
    {"name": "derived", "measure": "mean", "column": "z", "clip": [-5, 5]},
    {"name": "rows", "measure": "count"},
]
COLUMNS = {"x": {"integer": True}, "y": {"decimals": 1}, "g": {"keys": ["a", "b"]}}


def a_plan(queries=QUERIES, columns=COLUMNS, neighboring="replace-one", **unit):
    return Plan.from_dict({
        "schema": 2, "name": "missing", "dataset": "d@1", "table": "t",
        "unit": {"protects": "row", "neighboring": neighboring, **unit}, "columns": columns,
        "derive": {"z": {"expression": "x - 5", "range": [-9, 9]}}, "budget": {"zcdp": 1},
        "query": [{**query, "share": f"1/{len(queries)}"} for query in queries],
    })  # fmt: skip


ROWS = [
    {"id": f"{i % 3}", "x": x, "y": y, "g": g}
    for i, (x, y, g) in enumerate(
        itertools.product((None, -4, 4, 12), (None, 0.5, 2.25), ("a", "b", None))
    )
]
TABLE = pa.Table.from_pylist(
    ROWS,
    pa.schema([("id", pa.string()), ("x", pa.int64()), ("y", pa.float64()), ("g", pa.string())]),
)


def exact_integers(query):
    """The exact integers of one query on `TABLE`, by measure."""
    plan = a_plan([query])
    with prepared(plan, open_table(TABLE)) as rows:
        return {part: c.dense().tolist() for (_, _, part), c in aggregate_cells(plan, rows).items()}


def test_each_measure_of_integers_is_that_of_sql():
    connection = duckdb.connect()
    connection.register("data", TABLE)

    def sql(text):
        return connection.sql(text).limit(1).fetchall()[0]

    # `greatest` of NULL and 3 is 3, hence the cases.
    x = "CASE WHEN x IS NOT NULL THEN least(greatest(x, 3), 9) END"
    narrow = "CASE WHEN x IS NOT NULL THEN least(greatest(x, 3), 8) END"
    y = "CASE WHEN y IS NOT NULL THEN least(greatest(10 * y, 10), 40) END"
    for by in ("true", "g = 'a'"):
        where = f"FROM data WHERE {by}"
        n, total, spread, over = sql(
            f"SELECT count(x), sum({x}), var_pop({narrow}), sum(floor({y})) {where}"
        )
        pairs = sql(f"SELECT sum({x}), sum(floor({y})) {where} AND x IS NOT NULL AND y IS NOT NULL")
        here = {
            q["name"]: exact_integers({**q, "by": ["g"]} if by != "true" else q)
            for q in QUERIES[:7]
        }
        at = 0
        assert here["sum"]["sum"][at] == total
        assert here["mean"]["count"][at] == n
        assert here["mean"]["offset"][at] == total - 6 * n
        assert here["ratio"]["sum"][at] == total
        assert here["ratio"]["over"][at] == over
        assert (here["both"]["sum"][at], here["both"]["over"][at]) == pairs
        assert sum(here["histogram"]["count"][:2]) == n
        m, s, q = (here["variance"][part][at] for part in ("count", "offset", "square"))
        about = Fraction(s, 2 * m) + Fraction(1, 2)  # of 5, the middle less a half
        assert float(Fraction(q, m) - about**2) == pytest.approx(spread, rel=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_engines_count_rows_without_a_number_as_plain_python_does(engine, rows):
    queries = [
        {**query, "by": ["g"], **bound}
        for query, bound in itertools.product(QUERIES, ({}, {"rows_per_group": 1, "groups": 1}))
        if query["name"] != "derived"
    ]
    queries = [{**query, "name": f"q{i}"} for i, query in enumerate(queries)]
    check(a_plan(queries, id="id", rows=rows), TABLE, ROWS, engine)
    if rows == 1:
        plain = [query for query in queries if "groups" not in query]
        check(a_plan(plain), TABLE, ROWS, engine)


KINDS = [
    {"x": x, "y": y, "g": g}
    for x, y, g in itertools.product((None, -4, 4, 12), (None, 0.5, 9.0), ("a", "b", "?"))
]


def tables_of(queries, records):
    """The tables of each record alone: one query counts all of them, by their numbers."""
    numbered = [{**query, "by": ["row", *query["by"]]} for query in queries]
    plan = a_plan(numbered, COLUMNS | {"row": {"keys": list(range(len(records)))}})
    rows = [{**row, "row": number} for number, own in enumerate(records) for row in own]
    table = pa.Table.from_pylist(rows, TABLE.schema.append(pa.field("row", pa.int64())))
    cells = {key: np.reshape(c, (len(records), -1)) for key, c in counted(plan, table).items()}
    return [{key: c[number] for key, c in cells.items()} for number in range(len(records))]


@pytest.mark.parametrize("by", [[], ["g"]], ids=["one cell", "two cells"])
def test_no_neighbor_is_further_apart_than_declared_and_some_is_as_far(by):
    queries = [{**query, "by": by} for query in QUERIES if query["name"] != "derived"]
    nothing, *versions = tables_of(queries, [[], *([kind] for kind in KINDS)])
    for neighboring in ("replace-one", "add-remove"):
        plan = a_plan(queries, neighboring=neighboring)
        pairs = (
            itertools.combinations(versions, 2)
            if neighboring == "replace-one"
            else ((version, nothing) for version in versions)
        )
        differences = {}
        for one, other in pairs:
            for key in one:
                away = [abs(int(cell)) for cell in one[key] - other[key] if cell]
                differences.setdefault(key, set()).add(tuple(sorted(away, reverse=True)))
        for entry in plan.entries():
            if entry.measure != "rank":
                key = entry.query, entry.level, entry.measure
                largest = max(sum(c * c for c in one) for one in maximal(differences[key]))
                assert all(moves(entry.shifts, one) for one in differences[key]), key
                assert largest == entry.squared or (entry.query == "rows" and not by), key


def test_a_record_that_differs_in_one_attribute_moves_no_table_further_than_declared():
    queries = [{**query, "by": ["g"]} for query in QUERIES if query["name"] != "derived"]
    plan = a_plan(queries)
    versions = tables_of(queries, [[kind] for kind in KINDS])
    for attribute in ("x", "y", "g"):
        declared = {(e.query, e.level, e.measure): e.shifts for e in moved(plan, (attribute,))}
        reached = set()
        for (i, one), (j, other) in itertools.combinations(enumerate(KINDS), 2):
            if any(one[name] != other[name] for name in one if name != attribute):
                continue
            for key, cells in versions[i].items():
                difference = cells - versions[j][key]
                assert moves(declared.get(key, ((),)), difference), (attribute, key)
                reached |= {key[:1] + key[2:]} if np.any(difference) else set()
        assert reached == {(entry.query, entry.measure) for entry in moved(plan, (attribute,))}
        if attribute == "x":
            # The count of a mean moves with the measured column alone: this is what changed.
            assert {("mean", "count"), ("variance", "count"), ("both", "over")} <= reached
            assert ("rows", "count") not in reached


def test_a_mean_of_no_number_is_charged_like_any_other_mean():
    for neighboring in ("replace-one", "add-remove"):
        skips = a_plan(neighboring=neighboring)
        replaces = a_plan(
            columns={
                **COLUMNS, "x": {"integer": True, "unknown": 5}, "y": {"decimals": 1, "unknown": 2},
                "z": {"integer": True, "unknown": 0},
            },
            neighboring=neighboring,
        )  # fmt: skip
        assert skips.entries() == replaces.entries()
        assert skips.calibrated() == replaces.calibrated()
        assert skips.hash != replaces.hash


@pytest.mark.parametrize(
    ("given", "replacement", "rows"),
    [({}, "drop", 27), ({"unknown": "drop"}, "drop", 27), ({"unknown": 0}, 0, 36)],
)
def test_a_missing_number_drops_the_row_unless_a_number_replaces_it(given, replacement, rows):
    plan = a_plan(columns={**COLUMNS, "x": {"integer": True, **given}})
    assert plan.canonical()["schema"] == 2
    assert plan.canonical()["columns"]["x"] == {"integer": True, "unknown": replacement}
    assert Plan.from_dict(plan.canonical()) == plan
    assert Plan.from_dict(plan.canonical()).hash == plan.hash
    queries = [query for query in QUERIES if query["name"] != "derived"]
    result = counted(a_plan(queries, {**COLUMNS, "x": {"integer": True, **given}}), TABLE)
    assert result["mean", "all", "count"] == [rows]


@pytest.mark.parametrize(("change", "says"), [
    ({"columns": {"x": {"integer": True, "unknown": "keep"}}}, "unknown = 'keep': .*'drop'"),
    ({"columns": {"x": {"integer": True, "unknown": True}}}, "unknown = true"),
    ({"queries": [{**QUERIES[1], "complete": True}]}, "= true: a mean takes none, only a ratio"),
])  # fmt: skip
def test_what_is_wrong_is_named(change, says):
    with pytest.raises(PlanError, match=says):
        a_plan(**change)
