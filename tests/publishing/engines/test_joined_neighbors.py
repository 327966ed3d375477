"""Plans of several tables: engines count as plain Python does, and no table moves further than its
noise is for when one unit's rows change in all tables at once.

300 random plans are tried by ``NEYMAN_JOINED=300``, on each engine; CI tries fewer.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable

import numpy as np
from joined_plans import SCHEMAS, TAG, a_document, a_unit, counted, data_of, plain

from neyman.publishing import Plan
from plain_engine import fits

PLANS = int(os.environ.get("NEYMAN_JOINED") or 0)
FEW = {"duckdb": 6, "spark": 1}
VERSIONS = 14
EMPTY: dict = {name: [] for name in SCHEMAS}


def within(entry, difference: Iterable[int]) -> bool:
    """Whether a difference is one of those that a table's noise is for."""
    away = tuple(sorted((abs(int(cell)) for cell in difference if cell), reverse=True))
    if sum(cell * cell for cell in away) > entry.squared:
        return False
    return not entry.shifts or any(fits(away, shift) for shift in entry.shifts)


def minus(one, other) -> list[int]:
    """The cells of one table less those of another; of found keys by their names."""
    if isinstance(one, dict):
        return [one.get(key, 0) - other.get(key, 0) for key in {**one, **other}]
    return (np.array(one) - np.array(other)).tolist()


def tagged(document: dict) -> dict:
    """The same plan, with the version of a unit as a key of each query whose keys are known."""
    tables = [query.get("table", "events") for query in document["query"]]
    queries = [
        query if "delta" in query else {**query, "by": [TAG[table], *query["by"]]}
        for query, table in zip(document["query"], tables, strict=True)
    ]
    columns = {tag: {"keys": list(range(VERSIONS))} for tag in TAG.values()}
    return document | {"query": queries, "columns": document["columns"] | columns}


def entries(document: dict, neighboring: str) -> dict:
    unit = document["unit"] | {"neighboring": neighboring}
    plan = Plan.from_dict(document | {"unit": unit})
    return {(e.query, e.level, e.measure): e for e in plan.entries()}


def test_tables_move_by_no_more_than_declared_when_a_unit_changes_in_all_tables(
    engine, attempts, size
):
    """Each plan counts the versions of a unit at once, each a unit whose rows have its number as a
    key. All pairs are neighbors under replace-one, and each with nothing is under add-remove. What
    the engine counts is what plain Python counts. Beside them are rows without an id."""
    draw = random.Random(engine == "spark")
    moving = 0
    for number in range(PLANS or FEW[engine] * size):
        document = a_document(draw, "replace-one")
        plan = Plan.from_dict(tagged(document))
        units = {f"u{i}": EMPTY if i == 0 else a_unit(draw) for i in range(VERSIONS)}
        tags = {f"u{i}": i for i in range(VERSIONS)}
        data = data_of({**units, None: a_unit(draw)}, tags)
        result = counted(plan, data, engine)
        assert result == plain(plan, data), (number, document)
        ways = {how: entries(document, how) for how in ("replace-one", "add-remove")}
        for key, cells in result.items():
            if isinstance(cells, dict):
                continue
            tables = np.reshape(cells, (VERSIONS, -1))
            for i, one in enumerate(tables):
                assert within(ways["add-remove"][key], one), (number, document, key, i)
                for j, other in enumerate(tables[:i]):
                    assert within(ways["replace-one"][key], one - other), (document, key, i, j)
                    moving += bool((one != other).any())
            attempts(VERSIONS * (VERSIONS + 1) // 2)
    assert moving > 50  # tables differ, or the pairs would try nothing


def test_data_that_differ_in_one_unit_give_tables_that_differ_as_declared(engine, attempts, size):
    """Whole datasets: four units, of which one comes, goes, or changes in all tables at once."""
    draw = random.Random(2 + (engine == "spark"))
    for number in range(PLANS or max(1, FEW[engine] * size // 2)):
        document = a_document(draw, "replace-one")
        plan = Plan.from_dict(document)
        others = {name: a_unit(draw) for name in ("p", "é", "r", None)}
        versions = [EMPTY, a_unit(draw), a_unit(draw)]
        results = [counted(plan, data_of({**others, "u": own}), engine) for own in versions]
        ways = {how: entries(document, how) for how in ("replace-one", "add-remove")}
        for key in results[0]:
            for one in results[1:]:
                moved = minus(one[key], results[0][key])
                assert within(ways["add-remove"][key], moved), (number, document, key)
            for one, other in itertools.combinations(results, 2):
                moved = minus(one[key], other[key])
                assert within(ways["replace-one"][key], moved), (number, document, key)
        attempts(5)
