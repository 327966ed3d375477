"""Plans of several private tables: what is refused and counted, and how far one unit moves it."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from commands import answered
from neyman import Ledger, check_data
from neyman.publishing import (
    DataError,
    Plan,
    PlanError,
    Source,
    aggregate_cells,
    columns_of,
    discover,
    measures_of,
    open_table,
    prepared_tables,
    verify,
)
from plain_engine import KEY, Plain, aggregate, canonical, fits
from plans import SMALL, release

ID = {"events": "person", "people": "id", "visits": "person"}
TAG = {"events": "v", "people": "pv", "visits": "vv"}
"""The column of each table that holds the number of a unit's version."""

SCHEMAS = {
    "events": {"person": "s", "v": "n", "kind": "s", "size": "n", "word": "s"},
    "people": {"id": "s", "pv": "n", "sex": "s", "born": "n", "height": "f", "town": "s"},
    "visits": {"person": "s", "vv": "n", "site": "s"},
}
VALUES = {
    "kind": ["x", "y", "?", None], "size": [-9, 0, 2, None], "word": ["a", "b", "é", None],
    "sex": ["f", "m", "", None], "born": [1940, 1980, None],
    "height": [-0.0, 0.0, 1.5, math.nan, math.inf, None], "town": ["b", "B", "é", None],
    "site": ["s", "t", None],
}  # fmt: skip
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
        "schema": 2, "name": "joined", "dataset": "d@1", "table": "events",
        "unit": {
            "protects": "person", "neighboring": neighboring, "rows": draw.randint(1, 3),
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
            "town": {"keys": ["B", "b", "é"]}, "word": {"discover": True},
        },
        "budget": {"zcdp": 1, "delta": "1e-6"} if any(
            "delta" in query for query in queries
        ) else {"zcdp": 1},
        "query": [
            {"name": f"q{number}", "share": share, **query} for number, query in enumerate(queries)
        ],
    }  # fmt: skip


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
    return {
        name: [
            {ID[name]: unit, TAG[name]: (tags or {}).get(unit), **row}
            for unit, own in units.items()
            for row in own[name]
        ]
        for name in SCHEMAS
    }


def arrow(plan: Plan, data: dict) -> dict[str, pa.Table]:
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


DOCUMENT: dict[str, Any] = {
    "schema": 2, "name": "joined", "dataset": "d@1", "table": "events",
    "unit": {"protects": "person", "neighboring": "add-remove", "rows": 3, "id": "person"},
    "tables": {"people": {"id": "id", "join": ["sex", "born"]}},
    "columns": {
        "sex": {"keys": ["f", "m"]}, "kind": {"keys": ["x", "y"]}, "born": {"integer": True},
    },
    "budget": {"zcdp": 1},
    "query": [
        {"name": "events", "measure": "count", "by": ["sex"], "share": "1/2"},
        {"name": "people", "table": "people", "measure": "count", "by": ["sex"], "share": "1/2"},
    ],
}  # fmt: skip
EVENTS = {"person": ["a", "a", "b", "c", None], "kind": ["x", "y", "x", "x", "y"]}
PEOPLE = {
    "id": ["a", "b", "b", None, "d"], "sex": ["f", "m", "f", "f", "m"], "born": [1, 2, 3, 4, 5],
}  # fmt: skip


def changed(**sections: Any) -> dict[str, Any]:
    return DOCUMENT | sections


def data(**more: Any) -> dict[str, Any]:
    return {"events": pa.table(EVENTS), "people": pa.table(PEOPLE), **more}


def a_ledger(path: Any, cap: Any = 5) -> Ledger:
    book = Ledger(path)
    book.create("d@1", protects="person", neighboring="add-remove", rows=3, cap=cap)
    return book


# The plan


@pytest.mark.parametrize(("sections", "reason"), [
    ({"unit": {"protects": "p", "neighboring": "add-remove"}}, "unit.id is missing"),
    ({"tables": {"people": {}, "more": {}}}, "tables.more: no query reads it"),
    ({"tables": {"people": {}, "Events": {}}}, "'events' is the name of another table"),
    ({"tables": {"people": {"rows": 2, "join": ["sex"]}}}, "with join the table has one row"),
    ({"tables": {"people": {"rows": 2, "duplicates": "drop"}}}, "with duplicates the table"),
    ({"tables": {"people": {"join": ["sex", "sex"]}}}, "is joined twice"),
    ({"tables": {"people": {"join": ["person"]}}}, "is unit.id, which the plan's table has"),
    ({"tables": {"people": {"join": ["Sex"]}}}, "differs from 'sex' .* in case only"),
    ({"tables": {"people": {"joins": ["sex"]}}}, "no field 'joins'; did you mean 'join'"),
    ({"tables": {"people": {"duplicates": "first"}}}, "must be 'drop' or 'least'"),
    ({"derive": {"old": {"expression": "born < 3"}}, "tables": {"people": {"join": ["old"]}}},
     "is a derived column; join the columns"),
    ({"query": [{**DOCUMENT["query"][0], "table": "peple", "share": 1}]},
     "must be a table of the plan; did you mean 'people'"),
    ({"query": [{**DOCUMENT["query"][1], "share": 1}]}, "table = 'events': no query reads it"),
])  # fmt: skip
def test_a_plan_that_mixes_its_tables_up_is_refused_by_the_field(sections, reason):
    with pytest.raises(PlanError, match=reason):
        Plan.from_dict(changed(**sections))


def test_a_plan_of_several_tables_is_its_canonical_form_and_one_without_is_as_before():
    plan = Plan.from_dict(DOCUMENT)
    again = Plan.from_dict(json.loads(json.dumps(plan.canonical())))
    assert again == plan
    assert again.hash == plan.hash
    named = Plan.from_dict(
        changed(query=[{**DOCUMENT["query"][0], "table": "events"}, DOCUMENT["query"][1]])
    )
    assert named.hash == plan.hash
    assert "tables" not in Plan.from_dict(SMALL).canonical()
    assert Plan.from_dict(SMALL).table_plans() == (Plan.from_dict(SMALL),)
    python = Plan(
        name="joined", dataset="d@1", table="events",
        unit=DOCUMENT["unit"], tables=DOCUMENT["tables"], columns=DOCUMENT["columns"],
        queries=DOCUMENT["query"], budget={"zcdp": 1},
    )  # fmt: skip
    assert python.hash == plan.hash


def test_each_table_has_the_shifts_of_its_own_bound_and_they_are_charged_together():
    plan = Plan.from_dict(DOCUMENT)
    assert [entry.shifts for entry in plan.entries()] == [((3,),), ((1,),)]
    spent = [Fraction(e.squared) / (2 * sigma) for e, sigma in plan.calibrated()]
    assert spent == [Fraction(1, 2), Fraction(1, 2)]
    assert plan.unit_rows == 3
    wide = changed(tables={"people": {"id": "id", "rows": 7}})
    wide["query"] = [{"name": "e", "measure": "count", "share": "1/2"}, DOCUMENT["query"][1]]
    plan = Plan.from_dict(wide)
    assert [entry.shifts for entry in plan.entries()] == [((3,),), ((7,),)]
    assert plan.unit_rows == 7


def test_tables_of_two_private_tables_do_not_add_up(tmp_path):
    plan = Plan.from_dict(changed(consistency={"method": "least-squares"}, budget={"zcdp": 1000}))
    done = release(plan, data(), a_ledger(tmp_path / "ledger.db", 1000), tmp_path / "out")
    for name, right in (("events", [2, 0]), ("people", [1, 1])):
        assert done.tables[f"consistent/{name}.all"]["value"].to_pylist() == right


# The data


def refused(tmp_path, reason, engine="duckdb", document=DOCUMENT, **more):
    """The run is refused with the reason, and nothing is charged."""
    book = a_ledger(tmp_path / "ledger.db")
    with pytest.raises(DataError, match=reason):
        release(Plan.from_dict(document), data(**more), book, tmp_path / "out", engine)
    assert book.account("d@1").spent == 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("more", "reason"), [
    ({"people": pa.table({"sex": ["f"], "born": [1]})}, "'people': data has no column 'id'"),
    ({"people": pa.table({"id": ["a"], "born": [1]})}, "'people': data has no column 'sex'"),
    ({"events": pa.table({"kind": ["x"]})}, "'events': data has no column 'person'"),
    ({"people": pa.table({**PEOPLE, "id": [1, 2, 2, None, 4]})},
     "'id' names the units and has type int64, and 'person' of table 'events' has type string"),
    ({"people": pa.table({**PEOPLE, "id": [1.0, 2, 2, None, 4]})}, "'id' has type float64"),
    ({"people": pa.table({**PEOPLE, "sex": [["f"]] * 5})}, "'sex' has type list"),
    ({"events": pa.table({**EVENTS, "Sex": ["f"] * 5})}, "'events': data has a column 'Sex'"),
    ({"people": pa.table({**PEOPLE, "sex": [1.5] * 5})}, "'sex' has type float64"),
])  # fmt: skip
def test_tables_that_cannot_be_joined_are_refused_before_the_charge(tmp_path, more, reason):
    refused(tmp_path, reason, **more)


def test_data_without_one_of_the_tables_are_refused(tmp_path):
    book = a_ledger(tmp_path / "ledger.db")
    for given in (pa.table(EVENTS), {"events": pa.table(EVENTS)}, {"people": pa.table(PEOPLE)}):
        with pytest.raises(DataError, match=r"give data = \{'events': ..., 'people': ...\}"):
            release(Plan.from_dict(DOCUMENT), given, book, tmp_path / "out")
    assert book.account("d@1").spent == 0


def test_ids_of_any_two_whole_number_types_are_one():
    """7 in 64 bits is 7 in 32 bits, and in decimals."""
    plan = Plan.from_dict(DOCUMENT)
    for kind in (pa.int32(), pa.decimal128(9, 0), pa.uint64()):
        events = pa.table({**EVENTS, "person": pa.array([1, 1, 2, 3, None], pa.int64())})
        people = pa.table({**PEOPLE, "id": pa.array([1, 2, 2, None, 4], kind)})
        assert tables_of(plan, events, people) == {"events": [2, 0], "people": [1, 1]}


def tables_of(plan: Plan, events: Any, people: Any, engine: str = "duckdb") -> dict[str, list[int]]:
    source = Source.of(plan, {"events": events, "people": people}, engine, None, None)
    tables = source.open_tables(plan, source.rehearse(plan))
    with prepared_tables(plan, tables) as prepared:
        counts = [aggregate(own, rows) for own, rows in prepared]
    return {name: cells.tolist() for one in counts for (name, _, _), cells in one.items()}


def test_a_table_may_be_on_the_other_connection_or_in_a_file(engine, tmp_path):
    plan = Plan.from_dict(DOCUMENT)
    pq.write_table(pa.table(EVENTS), tmp_path / "events.parquet")
    pq.write_table(pa.table(PEOPLE), tmp_path / "people.parquet")
    pyarrow.csv.write_csv(pa.table(PEOPLE), tmp_path / "people.csv")
    right = {"events": [2, 0], "people": [1, 1]}
    files = [str(tmp_path / name) for name in ("events.parquet", "people.parquet", "people.csv")]
    assert tables_of(plan, files[0], files[2], engine) == right
    if engine == "duckdb":
        connection = ibis.duckdb.connect()
        for name, table in (("e", EVENTS), ("p", PEOPLE)):
            connection.con.register("arrow", pa.table(table))
            connection.con.execute(f"CREATE TABLE {name} AS FROM arrow").fetchall()
            connection.con.unregister("arrow")
        own = [connection.table("e"), connection.table("p")]
        for events in (own[0], files[0], pa.table(EVENTS)):
            for people in (own[1], files[1], pa.table(PEOPLE).to_pandas()):
                assert tables_of(plan, events, people) == right
        left = connection.con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert sorted(left) == [("e",), ("p",)]  # nothing of ours


def test_text_that_is_no_utf8_is_joined_by_its_bytes():
    def texts(*values):
        return pa.array(values, pa.binary()).view(pa.string())

    events = pa.table({"person": texts(b"\xff", b"\xff", b"\xfe", None)})
    people = pa.table({**PEOPLE, "id": texts(b"\xff", b"b", b"b", None, b"\xfe")})
    people = people.set_column(1, "sex", texts(b"f", b"m", b"f", b"f", b"\xff"))
    plan = Plan.from_dict(DOCUMENT)
    assert tables_of(plan, events, people) == {"events": [2, 0], "people": [1, 0]}


def test_the_least_row_does_not_depend_on_the_order_of_rows(engine):
    draw = random.Random(3)
    document = changed(
        tables={"people": {"id": "id", "join": ["height", "born", "sex"], "duplicates": "least"}}
    )
    document["columns"] = document["columns"] | {"height": {"decimals": 1}}
    document["query"] = [
        {"name": "sum", "measure": "sum", "column": "height", "clip": [-9, 9], "share": "1/4"},
        {"name": "n", "measure": "count", "by": ["sex"], "where": "born < 1950", "share": "3/4"},
    ]
    plan = Plan.from_dict(document)
    people = [
        {"id": "u", "pv": 0, "sex": sex, "born": born, "height": height, "town": "B"}
        for sex, born, height in [
            ("m", None, -0.0), ("f", 1940, 0.0), ("m", 1940, 0.0), ("f", 3, float("nan")),
            ("m", 9, None),
        ]
    ]  # fmt: skip
    events = [{"person": "u", "v": 0, "kind": "x", "size": 1, "word": "a"}] * 2
    results = set()
    for _ in range(4 if engine == "duckdb" else 1):
        draw.shuffle(people)
        rows = {"events": events, "people": people, "visits": []}
        result = counted(plan, rows, engine)
        assert result == plain(plan, rows)
        results.add(json.dumps(list(result.values())))
    assert results == {json.dumps([[0], [2, 0]])}


# A release


def test_a_release_of_several_tables_is_published_verified_and_not_charged_twice(tmp_path):
    book = a_ledger(tmp_path / "ledger.db")
    plan = Plan.from_dict(DOCUMENT)
    done = release(plan, data(), book, tmp_path / "out")
    assert book.account("d@1").spent == 1
    assert all(check.ok for check in verify(tmp_path / "out"))
    assert done.receipt["unit"] == {"protects": "person", "rows": 3}
    assert done.receipt["plan"]["tables"]["people"] == {
        "id": "id", "rows": 1, "join": ["sex", "born"], "duplicates": "drop",
    }  # fmt: skip
    again = release(plan, data(), book, tmp_path / "again")
    assert again.published_before
    assert book.account("d@1").spent == 1


def test_of_each_unit_with_several_rows_one_is_not_dropped_where_the_least_stays():
    people = {**DOCUMENT["tables"]["people"], "duplicates": "least"}
    ids = ["a", "b", "b", None, "c", "c", "c", "d"]
    rows = pa.table({"id": ids, "sex": ["f"] * 8, "born": list(range(8))})
    plan = Plan.from_dict(changed(tables={"people": people}))
    (joined,) = check_data(plan, data(people=rows)).joins
    assert (joined.missing, joined.units, joined.several, joined.dropped) == (1, 4, 2, 3)
    assert (joined.matched, joined.unmatched) == (4, 0)


def test_the_custodian_sees_what_a_join_drops(tmp_path):
    check = check_data(Plan.from_dict(DOCUMENT), data())
    (joined,) = check.joins
    assert (joined.table, joined.missing, joined.units, joined.several) == ("people", 1, 3, 1)
    assert (joined.dropped, joined.matched, joined.unmatched) == (2, 2, 2)
    (people,) = check.others
    assert (people.table, people.rows) == ("people", 5)
    assert [query.counted for query in (*check.queries, *people.queries)] == [2, 2]
    (tmp_path / "plan.json").write_text("")
    pq.write_table(pa.table(EVENTS), tmp_path / "events.parquet")
    pq.write_table(pa.table(PEOPLE), tmp_path / "people.parquet")
    toml = (
        'schema = 2\nname = "joined"\ndataset = "d@1"\ntable = "events"\n'
        '[unit]\nprotects = "person"\nneighboring = "add-remove"\nrows = 3\nid = "person"\n'
        '[tables.people]\nid = "id"\njoin = ["sex"]\n[columns.sex]\nkeys = ["f", "m"]\n'
        '[budget]\nzcdp = 1\n[[query]]\nmeasure = "count"\nby = ["sex"]\nshare = 1\n'
    )
    (tmp_path / "plan.toml").write_text(toml)
    names = [f"--data={name}={tmp_path / name}.parquet" for name in ("events", "people")]
    said = answered("data", "check", tmp_path / "plan.toml", *names)
    assert "2 rows of events have a row in people, and 2 have none" in said
    done = json.loads(answered("plan", "check", tmp_path / "plan.toml", "--json"))
    assert done["tables"]["people"]["duplicates"] == "drop"


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


def test_tables_move_by_no_more_than_declared_if_a_unit_changes_every_table(engine, attempts, size):
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
