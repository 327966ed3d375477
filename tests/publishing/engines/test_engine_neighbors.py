"""Tables of neighboring data on Spark: whatever one unit is, they move by at most what is declared.

DuckDB and Spark count alike (see `test_engine_units`); here the bounds themselves are tried on
Spark, over all small versions of a unit, and on whole datasets that differ in one unit.
"""

import itertools

import numpy as np
import pyarrow as pa

from neyman.publishing import Plan
from plain_engine import counted, fits

KINDS = [("x", "-9"), ("x", "9"), ("y", "-9"), ("y", "0.5"), (None, "9")]
VERSIONS = [
    rows for size in range(4) for rows in itertools.combinations_with_replacement(KINDS, size)
]
MEASURES = [
    {"measure": "count"},
    {"measure": "units"},
    {"measure": "sum", "column": "n", "clip": [-1, 2]},
    {"measure": "variance", "column": "n", "clip": [-1, 2]},
    {"measure": "count", "groups": 1},
    {"measure": "sum", "column": "n", "clip": [-1, 2], "groups": 1, "rows_per_group": 1},
]


def a_plan(measures, by=(), neighboring="replace-one"):
    """At most 2 rows of each unit; the tables are by the columns ``by`` and by k."""
    share = f"1/{len(measures)}"
    query = [
        {"name": f"q{i}", "by": [*by, "k"], "share": share, **more}
        for i, more in enumerate(measures)
    ]
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "neighbors",
            "dataset": "d@1",
            "table": "t",
            "unit": {"protects": "person", "neighboring": neighboring, "rows": 2, "id": "id"},
            "columns": {
                "k": {"keys": ["x", "y"]},
                "v": {"keys": list(range(len(VERSIONS)))},
                "n": {"integer": True},
            },
            "budget": {"zcdp": 1},
            "query": query,
        }
    )


def table_of(rows):
    names = ["id", "v", "k", "n"]
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


def moved(entry, difference):
    """Whether the cells that move fit into those of one of the shifts that the noise is for."""
    away = tuple(sorted((abs(int(cell)) for cell in difference if cell), reverse=True))
    return any(fits(away, shift) for shift in entry.shifts)


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
            assert moved(removed[key], one), (key, VERSIONS[i])
            attempts(1 + i)
            for j, other in enumerate(tables[:i]):
                assert moved(replaced[key], one - other), (key, VERSIONS[i], VERSIONS[j])
                most = max(most, np.abs(one - other).max())
    assert most > 2  # the bounds are reached, or the pairs would try nothing


def test_data_that_differ_in_one_unit_give_tables_that_differ_as_declared(spark_running):
    """The others' rows are more than are kept of them: which ones stay does not depend on the one
    unit that comes, goes or changes."""
    measures = [
        {"measure": "count", "groups": 1},
        {"measure": "sum", "column": "n", "clip": [-1, 2], "rows_per_group": 1},
    ]
    others = [(name, "0", *row) for name in ("p", "é", "r") for row in KINDS * 2]
    versions = [(), KINDS[:1], [KINDS[1]] * 3, KINDS[2:4], KINDS]
    plan = a_plan(measures)
    tables = [
        counted(plan, table_of([*others, *(("q", "0", *row) for row in rows)]), "spark")
        for rows in versions
    ]
    replaced, removed = (entries(measures, how) for how in ("replace-one", "add-remove"))
    for key in replaced:
        without, *having = (np.array(table[key]) for table in tables)
        assert any((without != table).any() for table in having)
        for one in having:
            assert moved(removed[key], one - without)
        for one, other in itertools.combinations([without, *having], 2):
            assert moved(replaced[key], one - other)
