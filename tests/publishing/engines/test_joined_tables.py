"""Plans of several private tables: what is refused, which row a unit has, and a whole release."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from joined_plans import counted, plain

from commands import answered
from neyman import Ledger, check_data
from neyman.display import page
from neyman.publishing import DataError, Plan, PlanError, Source, prepared_tables, verify
from plain_engine import aggregate
from plans import SMALL, release

DOCUMENT: dict[str, Any] = {
    "schema": 2,
    "name": "joined",
    "dataset": "d@1",
    "table": "events",
    "unit": {"protects": "person", "neighboring": "add-remove", "rows": 3, "id": "person"},
    "tables": {"people": {"id": "id", "join": ["sex", "born"]}},
    "columns": {
        "sex": {"keys": ["f", "m"]},
        "kind": {"keys": ["x", "y"]},
        "born": {"integer": True},
    },
    "budget": {"zcdp": 1},
    "query": [
        {"name": "events", "measure": "count", "by": ["sex"], "share": "1/2"},
        {"name": "people", "table": "people", "measure": "count", "by": ["sex"], "share": "1/2"},
    ],
}
EVENTS = {"person": ["a", "a", "b", "c", None], "kind": ["x", "y", "x", "x", "y"]}
PEOPLE = {
    "id": ["a", "b", "b", None, "d"],
    "sex": ["f", "m", "f", "f", "m"],
    "born": [1, 2, 3, 4, 5],
}


def changed(**sections: Any) -> dict[str, Any]:
    return DOCUMENT | sections


def data(**more: Any) -> dict[str, Any]:
    return {"events": pa.table(EVENTS), "people": pa.table(PEOPLE), **more}


def a_ledger(path: Any, cap: Any = 5) -> Ledger:
    book = Ledger(path)
    book.create("d@1", protects="person", neighboring="add-remove", rows=3, cap=cap)
    return book


# The plan


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
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
    ],
)  # fmt: skip
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
    """Three rows of a person move a count of events by 3, and one row moves one of people by 1."""
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
    """Counts of events and of people have one form, and other sums; noise is 0 at this budget."""
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


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"people": pa.table({"sex": ["f"], "born": [1]})}, "'people': data has no column 'id'"),
        ({"people": pa.table({"id": ["a"], "born": [1]})}, "'people': data has no column 'sex'"),
        ({"events": pa.table({"kind": ["x"]})}, "'events': data has no column 'person'"),
        ({"people": pa.table({**PEOPLE, "id": [1, 2, 2, None, 4]})},
         "'id' names the units and has type int64, and 'person' of table 'events' has type string"),
        ({"people": pa.table({**PEOPLE, "id": [1.0, 2, 2, None, 4]})}, "'id' has type float64"),
        ({"people": pa.table({**PEOPLE, "sex": [["f"]] * 5})}, "'sex' has type list"),
        ({"events": pa.table({**EVENTS, "Sex": ["f"] * 5})}, "'events': data has a column 'Sex'"),
        ({"people": pa.table({**PEOPLE, "sex": [1.5] * 5})}, "'sex' has type float64"),
    ],
)  # fmt: skip
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
    """What is counted before noise, by query."""
    source = Source.of(plan, {"events": events, "people": people}, engine, None, None)
    tables = source.open_tables(plan, source.rehearse(plan))
    with prepared_tables(plan, tables) as prepared:
        counts = [aggregate(own, rows) for own, rows in prepared]
    return {name: cells.tolist() for one in counts for (name, _, _), cells in one.items()}


def test_a_table_may_be_on_the_other_connection_or_in_a_file(engine, tmp_path):
    """Parquet, CSV, a frame, and a table of the caller's connection give the same numbers."""
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
    """Such a text names its unit, and is not a key."""

    def texts(*values):
        return pa.array(values, pa.binary()).view(pa.string())

    events = pa.table({"person": texts(b"\xff", b"\xff", b"\xfe", None)})
    people = pa.table({**PEOPLE, "id": texts(b"\xff", b"b", b"b", None, b"\xfe")})
    people = people.set_column(1, "sex", texts(b"f", b"m", b"f", b"f", b"\xff"))
    plan = Plan.from_dict(DOCUMENT)
    assert tables_of(plan, events, people) == {"events": [2, 0], "people": [1, 0]}


def test_the_least_row_does_not_depend_on_the_order_of_rows(engine):
    """Every order of one person's rows gives what plain Python gives."""
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
            ("m", None, -0.0),
            ("f", 1940, 0.0),
            ("m", 1940, 0.0),
            ("f", 3, float("nan")),
            ("m", 9, None),
        ]
    ]
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


def test_the_page_of_a_release_says_what_is_joined_and_bounded(tmp_path):
    book = a_ledger(tmp_path / "ledger.db")
    text = page(release(Plan.from_dict(DOCUMENT), data(), book, tmp_path / "out"))
    assert "of the records of each person, at most 3 in events, 1 in people" in text.casefold()
    assert "sex, born from people to each row of events." in text
    assert "records (up to 4)" in text


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
