"""How far one unit moves the tables: by enumeration of every pair of versions of a unit."""

import itertools
import math
import random

import numpy as np
import pytest

from attacks import SIZE
from neyman.publishing import Plan, middle
from neyman.publishing.plan.shifts import LIMITS as SHIFTS_LIMITS
from neyman.publishing.plan.shifts import maximal as listed
from neyman.publishing.plan.shifts import shifts
from plain_engine import maximal

# ---- the listing itself -----------------------------------------------------------------------


def versions(finer, cells, rows, values, groups, per):
    """What a unit of at most so many rows can add to tables of ``cells``, each ``finer`` cells."""
    fine = range(finer * cells)
    row = [None, *itertools.product(fine, values)]
    for chosen in itertools.combinations_with_replacement(row, rows):
        selection = [one for one in chosen if one is not None]
        inside = [sum(cell == i for cell, _ in selection) for i in fine]
        if sum(map(bool, inside)) > (groups or rows) or max(inside) > (per or rows):
            continue
        table = [0] * cells
        for cell, x in selection:
            table[cell // finer] += x
        yield tuple(table)


def differences(before, after):
    return {
        tuple(sorted((abs(a - b) for a, b in zip(u, v, strict=True) if a != b), reverse=True))
        for u in before
        for v in after
    }


SIZES = [(1, 1, 1), (2, 1, 2), (3, 1, 2), (2, 1, 3), (4, 1, 3), (1, 3, 3), (2, 2, 3), (2, 3, 2)]
RANGES = [(0, 1), (1, 1), (-1, 2), (-2, 2), (1, 3), (-3, -1)]
if SIZE > 1:
    ENDS = random.Random(SIZE)
    LOWS = [ENDS.randint(-9, 8) for _ in range(SIZE)]
    RANGES += [(low, ENDS.randint(low + 1, 9)) for low in LOWS]


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("cells", "finer", "rows"), SIZES)
def test_shifts_are_exactly_the_maximal_realized_ones_under_any_bounds(
    cells, finer, rows, neighboring, attempts
):
    for (low, high), groups, per in itertools.product(RANGES, (None, 1, 2), (None, 1, 2)):
        values = range(low, high + 1) if finer * cells < 3 else sorted({low, high})
        units = set(versions(finer, cells, rows, values, groups, per))
        others = units if neighboring == "replace-one" else {(0,) * cells}
        result = maximal(one for one in differences(units, others) if one)
        attempts(len(units) * len(others))
        declared = shifts(
            cells=cells, neighboring=neighboring, rows=rows, low=low, high=high, groups=groups,
            rows_per_group=per, finer=finer,
        )  # fmt: skip
        assert set(declared.vectors) == set(result), (low, high, groups, per)
        assert declared.squared == max(sum(x * x for x in one) for one in result)


def test_the_largest_norm_is_that_of_the_listed_vectors():
    draw = random.Random(7)
    compared = 0
    for _ in range(400 * SIZE):
        declared = shifts(
            cells=draw.randint(1, 12), neighboring=draw.choice(["replace-one", "add-remove"]),
            rows=draw.randint(1, 9), low=draw.randint(-3, 1), high=draw.randint(1, 4),
            groups=draw.choice([None, 1, 2, 4]), rows_per_group=draw.choice([None, 1, 2, 3]),
            finer=draw.choice([1, 1, 2, 5]),
        )  # fmt: skip
        if declared.vectors:
            compared += 1
            norms = [sum(x * x for x in one) for one in declared.vectors]
            assert declared.squared == max(norms)
    assert compared > 200 * SIZE


def powers(sigma_squared, shift, levels):
    """The largest power at each level between no shift and a vector: atoms by likelihood ratio."""
    far = math.ceil(13 * math.sqrt(sigma_squared)) + sum(shift)
    k = np.arange(-far, far + 1)
    laws = []
    for away in (0, 1):
        law = np.ones(1)
        for s in shift:
            mass = np.exp(-((k - away * s) ** 2) / (2 * sigma_squared))
            law = np.multiply.outer(law, mass / mass.sum()).ravel()
        laws.append(law)
    p, q = laws
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p > 0, q / p, np.inf)
    order = np.argsort(-ratio, kind="stable")
    reached = [np.concatenate([[0.0], np.cumsum(law[order])]) for law in laws]
    return np.interp(levels, *reached)


@pytest.mark.parametrize("sigma_squared", [0.2, 1.0, 6.0])
@pytest.mark.parametrize("shift", [(1, 1), (2, 1), (3, 2), (1, 4)])
def test_a_shift_that_is_spread_tells_no_more_than_all_of_it_in_one_cell(sigma_squared, shift):
    """By the powers of all best tests; and those against a + b are those against a, then b."""
    levels = np.concatenate([np.logspace(-12, -1, 300), np.linspace(0.1, 1, 300)])
    together = powers(sigma_squared, (sum(shift),), levels)
    assert np.all(powers(sigma_squared, shift, levels) <= together + 1e-12)
    a, b = shift
    first = powers(sigma_squared, (a,), levels)
    assert np.allclose(powers(sigma_squared, (b,), first), together, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("given", "largest"), [
    ([(5,), (4, 1), (3, 2), (1, 1, 1, 1, 1)], [(5,)]),
    ([(4, 2), (2, 2, 2), (3, 3)], [(4, 2), (3, 3)]), ([(8,), (5, 5)], [(8,), (5, 5)]),
    ([(8,), (4, 4)], [(8,)]), ([(2, 1), (2, 1), (1, 1)], [(2, 1)]),
])  # fmt: skip
def test_only_vectors_are_kept_whose_cells_do_not_fit_into_another_s(given, largest):
    assert list(listed(given)) == list(maximal(given)) == largest


@pytest.mark.parametrize(("rows", "bounds", "vectors"), [
    (1000, {}, ((6000,),)), (1, {}, ((6,),)), (1000, {"cells": 1}, ((6000,),)),
    (1000, {"groups": 1000, "rows_per_group": 1}, ((6,) * 1000,)),
    (1000, {"groups": 3, "rows_per_group": 5}, ((30, 30, 30),)),
    (1000, {"cells": 2, "rows_per_group": 5}, ((30, 30),)),
])  # fmt: skip
def test_about_the_middle_of_a_clip_one_vector_says_all(rows, bounds, vectors):
    declared = shifts(
        **{"cells": 10**6, "neighboring": "replace-one", "rows": rows, "low": -3, "high": 3}
        | bounds
    )
    assert declared.vectors == vectors
    assert declared.squared == sum(x * x for x in vectors[0])


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
def test_a_mean_s_offset_never_moves_further_than_the_sum_of_its_values(neighboring):
    draw = random.Random(3)
    for _ in range(300 * SIZE):
        low = draw.randint(-30, 30)
        clip = (low, low + draw.randint(1, 30))
        bounds = {
            "cells": draw.randint(1, 9), "neighboring": neighboring, "rows": draw.randint(1, 6),
            "groups": draw.choice([None, 1, 3]), "rows_per_group": draw.choice([None, 1, 2]),
        }  # fmt: skip
        about = middle(clip)
        least, most = (about.denominator * x - about.numerator for x in clip)
        own = shifts(low=least, high=most, **bounds)
        total = shifts(low=clip[0], high=clip[1], **bounds)
        assert own.squared <= total.squared * about.denominator**2
    years = {"cells": 3, "neighboring": neighboring}
    own, total = shifts(low=-60, high=60, **years), shifts(low=1900, high=2020, **years)
    assert own.squared * 500 < total.squared


@pytest.mark.parametrize(("rows", "bounds", "squared"), [
    (1000, {}, 2 * 1000**2),
    (1000, {"groups": 1000, "rows_per_group": 1}, 2000),
    (1000, {"groups": 10, "rows_per_group": 7}, 2 * 10 * 49),
    (1000, {"rows_per_group": 300}, 2 * (3 * 300**2 + 100**2)),
    (1000, {"rows_per_group": 300, "finer": 2}, 2 * (600**2 + 400**2)),
    (999, {"low": -3, "high": 5}, 64 * 999**2),
])  # fmt: skip
def test_many_rows_have_their_norm_in_closed_form(rows, bounds, squared):
    declared = shifts(cells=10**6, neighboring="replace-one", rows=rows, **bounds)
    assert declared.squared == squared
    assert len(declared.vectors) <= SHIFTS_LIMITS.vectors
    assert bool(declared.vectors) == (not bounds or "groups" in bounds)


# ---- whole plans, through an aggregation in plain Python --------------------------------------

PLACES = [["A", "x"], ["A", "y"], ["B", "x"], ["B", "z"]]
QUERIES = [
    {"measure": "count", "at": ["state", "county"], "groups": 2},
    {"measure": "count", "at": ["state", "county"], "rows_per_group": 1},
    {"measure": "count", "by": ["sex"], "groups": 1}, {"measure": "count"},
    {"measure": "units", "at": ["state", "county"], "groups": 2},
    {"measure": "units", "at": ["state"]}, {"measure": "units"},
    {"measure": "sum", "column": "x", "clip": [-1, 2], "at": ["county"], "groups": 1},
    {"measure": "sum", "column": "x", "clip": [1, 3], "at": ["state"], "rows_per_group": 1},
    {"measure": "variance", "column": "x", "clip": [-2, 3], "at": ["state"], "rows_per_group": 2},
    {"measure": "mean", "column": "x", "clip": [1, 5], "at": ["state", "county"], "groups": 1},
    {"measure": "mean", "column": "x", "clip": [-1, 2], "by": ["sex"], "rows_per_group": 1},
    {"measure": "mean", "column": "x", "clip": [-7, -1]},
    {"measure": "histogram", "column": "x", "edges": [-1, 1, 2, 4], "groups": 2},
    {"measure": "histogram", "column": "x", "edges": [0, 2, 4], "at": ["state", "county"]},
    {"measure": "quantiles", "column": "x", "edges": [0, 2], "quantiles": [0.5], "by": ["sex"]},
]  # fmt: skip


def plan_of(query, neighboring, rows):
    return Plan.from_dict({
        "schema": 2, "name": "small", "dataset": "people@1", "table": "people",
        "unit": {"protects": "person", "neighboring": neighboring, "rows": rows, "id": "who"},
        "columns": {"sex": {"keys": ["f", "m"]}, "x": {"integer": True}},
        "hierarchy": {"place": {"levels": ["state", "county"], "keys": PLACES}},
        "budget": {"zcdp": 1}, "query": [{"name": "q", "share": 1, **query}],
    })  # fmt: skip


def cell_of(query, place, sex, x, level):
    """Where a row falls, or None: its place, its keys and its bin."""
    if level != "all" and place is None:
        return None
    cell = [] if level == "all" else [place[: 1 + ["state", "county"].index(level)]]
    if "by" in query:
        if sex is None:
            return None
        cell.append(sex)
    if "edges" in query:
        if x is None:
            return None
        edges = query["edges"]
        inside = min(max(x, edges[0]), edges[-1] - 1)
        cell.append(max(i for i, edge in enumerate(edges[:-1]) if edge <= inside))
    return tuple(cell)


def added(query, measure, x):
    if measure in ("count", "units"):
        return 1
    low, high = query["clip"]
    value = min(max(0 if x is None else x, low), high)
    if measure == "offset":
        return (2 * value - low - high) // (1 if (low + high) % 2 else 2)
    return value if measure == "sum" else (value - (low + high) // 2) ** 2


def tables(query, measure, level, rows):
    """All that a unit can add to a table, by every choice of rows that keeps to the bounds."""
    reads_place, reads_x = "at" in query, "column" in query
    places = [*map(tuple, PLACES), None] if reads_place else [None]
    values = (-9, -1, 0, 1, 9, None) if reads_x else (0,)
    sexes = ("f", "m", None) if "by" in query else ("f",)
    records = list(itertools.product(places, sexes, values))
    lowest = max(query.get("at", ["all"]), key=["all", "state", "county"].index)
    result = set()
    for number in range(rows + 1):
        for chosen in itertools.combinations_with_replacement(records, number):
            fine = [cell for row in chosen if (cell := cell_of(query, *row, lowest)) is not None]
            most = max((fine.count(cell) for cell in fine), default=0)
            if len(set(fine)) > query.get("groups", rows) or most > query.get(
                "rows_per_group", rows
            ):
                continue
            table = {}
            for row in chosen:
                cell = cell_of(query, *row, level)
                if cell is not None:
                    one = added(query, measure, row[2])
                    table[cell] = one if measure == "units" else table.get(cell, 0) + one
            result.add(tuple(sorted(table.items())))
    return [dict(table) for table in result]


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
@pytest.mark.parametrize("query", QUERIES, ids=lambda q: "-".join(map(str, q.values())))
def test_neighboring_datasets_move_a_table_by_just_what_is_declared(query, neighboring, attempts):
    plan = plan_of(query, neighboring, 2)
    for entry in plan.entries():
        own = tables(query, entry.measure, entry.level, 2)
        others = own if neighboring == "replace-one" else [{}]
        attempts(len(own) * len(others))
        cells = sorted({cell for table in own for cell in table})
        before = {tuple(table.get(cell, 0) for cell in cells) for table in own}
        after = {tuple(table.get(cell, 0) for cell in cells) for table in others}
        result = maximal(one for one in differences(before, after) if one)
        assert max(sum(x * x for x in one) for one in result) == entry.squared
        assert set(result) == set(entry.shifts)
