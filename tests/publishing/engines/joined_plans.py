"""Random plans of several tables, data for them, and what plain Python counts of it."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from neyman.publishing import (
    Plan,
    aggregate_cells,
    columns_of,
    discover,
    measures_of,
    open_table,
    prepared_tables,
)
from plain_engine import KEY, Plain, canonical

ID = {"events": "person", "people": "id", "visits": "person"}
TAG = {"events": "v", "people": "pv", "visits": "vv"}
"""The column of each table that holds the number of a unit's version."""

SCHEMAS = {
    "events": {"person": "s", "v": "n", "kind": "s", "size": "n", "word": "s"},
    "people": {"id": "s", "pv": "n", "sex": "s", "born": "n", "height": "f", "town": "s"},
    "visits": {"person": "s", "vv": "n", "site": "s"},
}
VALUES = {
    "kind": ["x", "y", "?", None],
    "size": [-9, 0, 2, None],
    "word": ["a", "b", "é", None],
    "sex": ["f", "m", "", None],
    "born": [1940, 1980, None],
    "height": [-0.0, 0.0, 1.5, math.nan, math.inf, None],
    "town": ["b", "B", "é", None],
    "site": ["s", "t", None],
}
CONDITIONS = {
    "size > 0": lambda row: row["size"] is not None and row["size"] > 0,
    "sex == 'f'": lambda row: row["sex"] == "f",
    "born < 1950": lambda row: row["born"] is not None and row["born"] < 1950,
    "site == 's' or site is None": lambda row: row["site"] in ("s", None),
}
TYPES = {"s": pa.string(), "n": pa.int64(), "f": pa.float64()}


def a_document(draw: random.Random, neighboring: str) -> dict:
    """A plan of up to three tables, of which at least one is further."""
    join = draw.choice([[], ["sex"], ["sex", "born"], ["height", "sex", "born"], ["town", "sex"]])
    tables: dict = {}
    if join or draw.random() < 0.8:
        tables["people"] = {"id": "id", "join": join}
        if draw.random() < 0.7:
            tables["people"]["duplicates"] = draw.choice(["drop", "least"])
        elif not join:
            tables["people"]["rows"] = draw.randint(1, 2)
    if not tables or draw.random() < 0.5:
        tables["visits"] = {"rows": draw.randint(1, 2)}
    queries = [a_query(draw, "events", ["kind", *("sex" for name in join if name == "sex")], join)]
    for name in tables:
        keyed = {"people": ["sex"], "visits": ["site"]}[name]
        if draw.random() < 0.7 or not tables[name].get("join"):
            numbers = ["born"] if name == "people" else []
            queries.append({**a_query(draw, name, keyed, numbers), "table": name})
    queries += [a_query(draw, "events", ["kind"], join) for _ in range(draw.randint(0, 1))]
    share = f"1/{len(queries)}"
    return {
        "schema": 2,
        "name": "joined",
        "dataset": "d@1",
        "table": "events",
        "unit": {
            "protects": "person",
            "neighboring": neighboring,
            "rows": draw.randint(1, 3),
            "id": "person",
        },
        "tables": tables,
        "columns": {
            "kind": {"keys": ["x", "y"], "unknown": draw.choice(["drop", "x"])},
            "sex": {"keys": ["f", "m"], "unknown": draw.choice(["drop", "m"])},
            "site": {"keys": ["s", "t"]},
            "size": {"integer": True, "unknown": draw.choice(["drop", 0])},
            "born": {"integer": True, "unknown": draw.choice(["drop", 0, 1970])},
            "height": {"decimals": 1, "unknown": draw.choice(["drop", 0])},
            "town": {"keys": ["B", "b", "é"]},
            "word": {"discover": True},
        },
        "budget": {"zcdp": 1, "delta": "1e-6"}
        if any("delta" in query for query in queries)
        else {"zcdp": 1},
        "query": [
            {"name": f"q{number}", "share": share, **query} for number, query in enumerate(queries)
        ],
    }


def a_query(draw: random.Random, table: str, keyed: list[str], join: list[str]) -> dict:
    """One query on a table, by keys and numbers that it has."""
    numbers = ["size"] if table == "events" else []
    numbers += [name for name in ("born", "height") if name in join]
    by = [name for name in keyed if draw.random() < 0.6]
    kinds = ["count", "units", *(["sum", "mean", "histogram", "variance"] if numbers else [])]
    if table == "events" and draw.random() < 0.15:
        return {"measure": "units", "by": [*by, "word"], "delta": "1e-9"}
    measure = draw.choice(kinds)
    query: dict = {"measure": measure, "by": by}
    if measure in ("sum", "mean", "variance"):
        query |= {"column": draw.choice(numbers), "clip": draw.choice([[-1, 2], [0, 3]])}
    elif measure == "histogram":
        query |= {"column": numbers[0], "edges": [-5, 1, 1960]}
    if by and draw.random() < 0.4:
        query["groups"] = draw.randint(1, 2)
    if measure != "units" and draw.random() < 0.3:
        query["rows_per_group"] = 1
    conditions = {
        "events": ["size > 0", *(["sex == 'f'"] if "sex" in join else [])],
        "people": ["born < 1950"],
        "visits": ["site == 's' or site is None"],
    }[table]
    if "born" in join:
        conditions.append("born < 1950")
    if draw.random() < 0.4:
        query["where"] = draw.choice(conditions)
    return query


def a_unit(draw: random.Random) -> dict[str, list[dict]]:
    """The rows of one unit in each table, without its id and its version."""
    most = {"events": 4, "people": 3, "visits": 3}
    return {
        name: [
            {column: draw.choice(VALUES[column]) for column in SCHEMAS[name] if column in VALUES}
            for _ in range(draw.randint(0, most[name]))
        ]
        for name in SCHEMAS
    }


def data_of(
    units: Mapping[Any, dict[str, list[dict]]], tags: Mapping[Any, int] | None = None
) -> dict:
    """The rows of each table, by units' ids."""
    return {
        name: [
            {ID[name]: unit, TAG[name]: (tags or {}).get(unit), **row}
            for unit, own in units.items()
            for row in own[name]
        ]
        for name in SCHEMAS
    }


def arrow(plan: Plan, data: dict) -> dict[str, pa.Table]:
    """The tables that a plan reads, in Arrow."""
    names = [plan.table, *(table.name for table in plan.tables)]
    return {
        name: pa.Table.from_pylist(
            data[name], pa.schema([(column, TYPES[kind]) for column, kind in SCHEMAS[name].items()])
        )
        for name in names
    }


def counted(plan: Plan, data: dict, engine: str) -> dict:
    """What an engine counts: known keys as lists, found ones as dictionaries of units."""
    sources = arrow(plan, data)
    columns = columns_of(plan, {name: source.column_names for name, source in sources.items()})
    tables = {name: open_table(sources[name], engine, columns[name]) for name in sources}
    results: dict = {}
    with prepared_tables(plan, tables) as prepared:
        for own, rows in prepared:
            for key, cells in aggregate_cells(own, rows, KEY).items():
                results[key] = cells.dense().tolist()
            for query in own.queries:
                if query.delta is not None:
                    keys, exact = discover(own, query, "all", rows, KEY)
                    texts = zip(*(column.to_pylist() for column in keys.columns), strict=True)
                    units = exact["keys"].tolist()
                    results[query.name, "all", "keys"] = dict(zip(texts, units, strict=True))
    return results


# ---- the rules in plain Python ----------------------------------------------------------------


def single(table, rows: list[dict], columns: tuple[str, ...]) -> list[dict]:
    """One row per unit, by the table's rule."""
    units = defaultdict(list)
    for row in rows:
        if canonical(row[table.id]) is not None:
            units[canonical(row[table.id])].append(row)
    if table.duplicates == "drop":
        return [own[0] for own in units.values() if len(own) == 1]
    order = [*table.join, *sorted(set(columns) - {*table.join, table.id})]
    return [min(own, key=lambda row: [_place(row[n]) for n in order]) for own in units.values()]


def _place(value):
    """Where a value stands: NaN after all numbers, a missing value after all."""
    if value is None or value == "":
        return (2, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value.encode() if isinstance(value, str) else value)


def plain(plan: Plan, data: dict) -> dict:
    """What plain Python counts."""
    sources = arrow(plan, data)
    columns = columns_of(plan, {name: table.column_names for name, table in sources.items()})
    rows = {name: [dict(row) for row in data[name]] for name in sources}
    for table in plan.tables:
        if table.duplicates is not None:
            rows[table.name] = single(table, rows[table.name], columns[table.name])
    for table in plan.tables:
        by_unit = {canonical(row[table.id]): row for row in rows[table.name]} if table.join else {}
        for row in rows[plan.table] if table.join else ():
            other = by_unit.get(canonical(row["person"]), {})
            row |= {name: other.get(name) for name in table.join}
    results: dict = {}
    for own in plan.table_plans():
        for where in {query.where: None for query in own.queries}:
            left = [row for row in rows[own.table] if where is None or CONDITIONS[where](row)]
            engine = Plain(own, left)
            asked = [query for query in own.queries if query.where == where]
            results |= engine.tables([query for query in asked if query.measure != "distinct"])
            for query in asked:
                if measures_of(query)[0] == "keys":
                    results[query.name, "all", "keys"] = _named(own, engine, query)
    return results


def _named(plan: Plan, engine: Plain, query) -> dict:
    keys = {}
    for codes, units in engine.keys(query, "all").items():
        names = [
            code.decode() if isinstance(code, bytes) else plan.column(name).keys[code]
            for name, code in zip(query.by, codes, strict=True)
        ]
        keys[tuple(names)] = units
    return keys
