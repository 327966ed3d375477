"""Exact totals: neighbors that keep them move what the plan says, and no others have a limit.

Every row of a small grid is counted by each query and each table of totals, as a key of its own. A
unit has one row, so all neighbors are pairs of rows. Those that keep every total are known from
these tables alone.
"""

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
    columns_read,
    moves_total,
    open_table,
    prepared,
)
from plain_engine import KEY, maximal
from random_laws import is_small

PLACES = [["US", "S", "x"], ["US", "S", "y"], ["US", "T", "x"], ["CA", "U", "x"]]
GRID = {
    "race": ["w", "b", "?", "!"],
    "year": [2020, 2021, 1999, 1998],
    "age": [None, 0, 17, 40],
    "place": [*PLACES, ["US", "S", "?"], ["?", "?", "?"]],
}
ROWS = list(itertools.product(*GRID.values()))
SECTIONS = {
    "schema": 2,
    "name": "totals",
    "dataset": "d@1",
    "table": "t",
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1},
    "columns": {
        "race": {"keys": ["w", "b"], "unknown": "b"},
        "year": {"keys": [2020, 2021], "unknown": 2020},
        "age": {"integer": True},
    },
    "derive": {
        "band": {"cut": "age", "edges": [0, 18, 65], "labels": ["minor", "adult"]}
        | {"unknown": "none"}
    },
    "hierarchy": {
        "place": {"levels": ["land", "state", "county"], "keys": PLACES}
        | {"unknown": ["US", "T", "x"]}
    },
    "budget": {"zcdp": 1},
}
QUERIES = [
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


def table_of():
    """The rows of the grid, each with a number."""
    columns = dict(zip(GRID, zip(*ROWS, strict=True), strict=True))
    places = dict(
        zip(("land", "state", "county"), zip(*columns["place"], strict=True), strict=True)
    )
    numbers = {"race": columns["race"], "year": columns["year"], "row": range(len(ROWS))}
    ages = pa.array(columns["age"], pa.int64())
    return pa.table({**numbers, **places}).append_column("age", ages)


@pytest.fixture(scope="module")
def tables():
    """By query, level, and measure the tables of each row alone; and by its columns each total."""
    counts = [
        {"name": "total " + " ".join(by), "measure": "count"}
        | {"at": [name for name in by if name in ("land", "state", "county")]}
        | {"by": [name for name in by if name not in ("land", "state", "county")]}
        for by in TOTALS
    ]
    asked = [
        {**query, "by": ["row", *query.get("by", ())], "share": Fraction(1, len(QUERIES + counts))}
        for query in [*QUERIES, *counts]
    ]
    columns = {**SECTIONS["columns"], "row": {"keys": list(range(len(ROWS)))}}
    plan = Plan.from_dict(SECTIONS | {"columns": columns, "query": asked})
    source = table_of()
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


def section_of(by, tables):
    """The section of totals with the numbers of the grid's own rows."""
    (table,) = (value for key, value in tables.items() if key[0] == "total " + " ".join(by))
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


def same_cells(sections, tables):
    """Which pairs of rows are in one cell of every table of totals."""
    same = np.ones((len(ROWS), len(ROWS)), dtype=bool)
    for section in sections:
        name = "total " + " ".join(section["by"])
        (table,) = (value for key, value in tables.items() if key[0] == name)
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


def test_the_shifts_are_those_of_all_pairs_that_keep_every_total(tables, attempts):
    """For random plans: equal maximal shifts; refused are tables that no such pair moves."""
    draw, checked, plans = random.Random(5), 0, 12 if is_small() else 30
    for _ in range(plans):
        chosen = draw.sample(QUERIES, draw.randint(1, 4))
        totals = draw.sample(TOTALS, draw.randint(1, 3))
        sections = [section_of(by, tables) for by in totals]
        share = Fraction(1, len(chosen))
        data = SECTIONS | {"query": [{**query, "share": share} for query in chosen]}
        same = same_cells(sections, tables)
        attempts(int(same.sum()))
        own = [key for key in tables if key[0] in {query["name"] for query in chosen}]
        truth = {key: differences(tables[key], same) for key in own}
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
            table = tables[entry.query, entry.level, entry.measure].astype(np.int64)
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
