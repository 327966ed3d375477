"""Filters and derived columns move no table further than its noise is for.

Every pair of neighboring tables of a few rows is tried: under replace-one one row becomes any
other (with a filter it may enter or leave), and under add-remove one row comes or goes.
"""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from neyman.publishing import (
    Plan,
    PlanError,
    aggregate_cells,
    check_schema,
    columns_read,
    moved,
    open_table,
    prepared,
    usual,
)
from plain_engine import KEY
from random_laws import is_small

KINDS = [
    {"age": age, "sex": sex, "pay": pay}
    for age in (None, 10, 30, 70)
    for sex in ("m", "?")
    for pay in (-3, 9)
]
QUERIES = [
    {"name": "all", "measure": "count"},
    {"name": "adults", "measure": "count", "where": "age >= 18"},
    {"name": "band", "measure": "count", "by": ["band"], "where": "sex == 'm'"},
    {"name": "sum", "measure": "sum", "column": "pay", "clip": [-1, 4], "where": "age >= 18"},
    {"name": "mean", "measure": "mean", "column": "pay", "clip": [-1, 4], "where": "pay > 0"},
    {"name": "bins", "measure": "histogram", "column": "double", "edges": [0, 40, 200]},
    {
        "name": "rate",
        "measure": "ratio",
        "column": "pay",
        "clip": [-1, 4],
        "over": "double",
        "clip_over": [1, 9],
        "where": "age >= 18",
    },
    {"name": "spread", "measure": "standard_deviation", "column": "pay", "clip": [-1, 4]},
    {"name": "bands", "measure": "distinct", "column": "band"},
    {"name": "kinds", "measure": "distinct", "column": "band", "by": ["ok"], "where": "pay < 5"},
    {"name": "middle", "measure": "median", "column": "double", "edges": [0, 40, 90, 200]},
]


def a_plan(neighboring, where=None, queries=QUERIES, **unit):
    share = f"1/{len(queries)}"
    table = {} if where is None else {"where": where}
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "neighbors",
            "dataset": "d@1",
            "table": "t",
            "unit": {"protects": "person", "neighboring": neighboring, **unit},
            "columns": {
                "age": {"type": "whole"},
                "sex": {"type": "text"},
                "pay": {"integer": True},
            },
            "derive": {
                "band": {"cut": "age", "edges": [0, 18, 65], "labels": ["minor", "adult"]},
                "double": {"expression": "age * 2", "range": [0, 200]},
                "ok": {"expression": "sex == 'm'"},
            },
            "budget": {"zcdp": 1},
            "query": [{**query, "share": share} for query in queries],
            **table,
        }
    )


def tables(plan, rows):
    schema = pa.schema(
        [("id", pa.string()), ("age", pa.int64()), ("sex", pa.string()), ("pay", pa.int64())]
    )
    source = pa.Table.from_pylist(rows, schema)
    check_schema(plan, open_table(source, rows=False))
    opened = open_table(source, columns=columns_read(plan, source.column_names))
    with prepared(plan, opened) as ready:
        counted = aggregate_cells(plan, ready, KEY)
    return {key: cells.dense() for key, cells in counted.items()}


def fits(shifts, difference):
    """Whether the cells that move fit into those of one of the shifts."""
    away = [abs(int(cell)) for cell in difference if cell]
    return any(
        all(
            sum(cell for cell, i in zip(away, spots, strict=True) if i == j) <= most
            for j, most in enumerate(shift)
        )
        for shift in shifts
        for spots in itertools.product(range(len(shift)), repeat=len(away))
    )


@pytest.mark.parametrize("where", [None, "band is not None or sex == 'm'"])
def test_no_pair_of_neighboring_tables_is_further_apart_than_declared(where):
    """All pairs of the 16 records, and each against none, beside two rows of others."""
    others = [KINDS[2], KINDS[9]]
    counting = a_plan("replace-one", where)
    versions = [tables(counting, [*others, kind]) for kind in KINDS]
    without = tables(counting, others)
    for neighboring in ("replace-one", "add-remove"):
        plan = a_plan(neighboring, where)
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
                assert fits(shifts, difference), (key, difference)
                reached[key] = max(reached[key], int(np.abs(difference).sum()))
        assert reached["adults", "all", "count"] == reached["bands", "all", "distinct"] == 1
        assert reached["kinds", "all", "distinct"] == (2 if neighboring == "replace-one" else 1)
        assert reached["band", "all", "count"] == (2 if neighboring == "replace-one" else 1)


def test_a_unit_of_several_rows_is_bounded_after_the_filter():
    """At most 2 rows per unit that the filter takes, of up to 3; all pairs of units are tried."""
    kinds = [KINDS[i] for i in ((2, 12) if is_small() else (2, 6, 12))]
    units = [
        [{"id": "u", **kind} for kind in chosen]
        for size in range(4)
        for chosen in itertools.combinations_with_replacement(kinds, size)
    ]
    others = [{"id": "v", **kinds[0]}, {"id": "v", **kinds[-1]}]
    queries = [
        *QUERIES[1:4],
        *QUERIES[6:10],
        {"name": "units", "measure": "units", "where": "age >= 18"},
    ]
    plans = {
        neighboring: a_plan(neighboring, "pay > -9", queries, id="id", rows=2)
        for neighboring in ("replace-one", "add-remove")
    }
    versions = [tables(plans["replace-one"], [*others, *unit]) for unit in units]
    for neighboring, plan in plans.items():
        declared = {(e.query, e.level, e.measure): e.shifts for e in plan.entries()}
        for i, one in enumerate(versions):
            for other in versions[: 1 if neighboring == "add-remove" else i]:
                for key, shifts in declared.items():
                    assert fits(shifts, one[key] - other[key]), key
    # A unit's rows that a filter leaves out take no room of those that it takes.
    full = [{"id": "u", **KINDS[0]}] * 5 + [{"id": "u", **KINDS[12]}] * 2
    assert tables(plans["add-remove"], full)["adults", "all", "count"].tolist() == [2]


def test_an_attribute_moves_no_table_further_than_its_scenario_says():
    """All pairs of records that differ in one column alone, against `Plan.concerning`."""
    filters = (None, "age < 65 or pay > 0")
    for where in filters[-1:] if is_small() else filters:
        plan = a_plan("add-remove", where)
        counted = [tables(plan, [kind]) for kind in KINDS]
        assert [names for names, _ in usual(plan)] == [("pay",), ("age",), ("sex",)]
        for attribute in ("age", "sex", "pay"):
            declared = {(e.query, e.level, e.measure): e.shifts for e in moved(plan, (attribute,))}
            for (i, one), (j, other) in itertools.combinations(enumerate(KINDS), 2):
                if any(one[name] != other[name] for name in one if name != attribute):
                    continue
                for key, cells in counted[i].items():
                    difference = cells - counted[j][key]
                    assert fits(declared.get(key, ((),)), difference), (attribute, key)
    # A derived column stands for the columns that it is computed from.
    assert moved(plan, ("band",)) == moved(plan, ("age",))


def test_a_filtered_total_is_not_public():
    """Under replace-one the total of all rows stays, and that of a filter's rows does not."""
    total = {"name": "total", "measure": "count", "public": {"all": 3}}
    more = {"name": "sex", "measure": "count", "by": ["band"]}
    queries = [total, more]
    for sections in ({"where": "age > 3"}, {"query": [{**total, "where": "age > 3"}, more]}):
        document = a_plan("replace-one", queries=[more]).canonical()
        document["query"] = [total, {**more, "share": 1}]
        if "query" in sections:
            document["query"] = [{**total, "where": "age > 3"}, {**more, "share": 1}]
        else:
            document |= sections
        with pytest.raises(PlanError, match="total is not public"):
            Plan.from_dict(document)
    assert queries[0]["public"] == {"all": 3}
