"""The check of private data: it agrees with the tables of a run, and says that it is private."""

import itertools
import json
import re
from collections import Counter
from dataclasses import replace

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_engine
import test_engine_units
from hypothesis import given, settings
from hypothesis import strategies as st
from test_source import LINES, a_plan

from each_engine import on_each
from neyman import Ledger, check_data
from neyman.publishing import (
    NOTICE,
    PLAIN_SOURCE,
    REASONS,
    DataError,
    Plan,
    SourcePart,
    counted_rows,
    line_faults,
    open_table,
)
from neyman.publishing import run as run_module
from neyman.publishing.engines import csv_reader as lines
from neyman.publishing.engines.drop_counts import query_rows
from plain_engine import KEY, Plain, aggregate, canonical, counted, number
from plans import release
from random_laws import examples

TWO = {"race": {"keys": ["a", "b"]}, "age": {"integer": True, "unknown": 0, "parse": True}}
BOTH = [
    {"name": "q", "measure": "count", "by": ["race"], "share": "1/2"},
    {"name": "s", "measure": "sum", "column": "age", "clip": [0, 90], "share": "1/2"},
]


def faults(path, columns=("race",), source=PLAIN_SOURCE, most=100):
    return line_faults([str(path)], columns, source, most)


# Lines


def test_each_reason_is_named_with_its_line_and_the_row_after_it_counts(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(
        b'id,race\n"x\ny",a\n1,b\n2,a"a\n3\n4,a,b\n\n5,a\rb\n6,\xff\n7,"a\n8,"a""\n'
        + b"9" * 2**20
        + b',a\n\xff,b\n\r\n10,"a"\r\n'
    )
    result = faults(path)
    assert [(fault.line, fault.reason, fault.column) for fault in result.listed] == [
        (2, "unclosed quote", None), (3, "bare quote", None), (5, "bare quote", None),
        (6, "too few fields", None), (7, "too many fields", None), (8, "blank line", None),
        (9, "carriage return", None), (10, "not text", "race"), (11, "unclosed quote", None),
        (12, "unclosed quote", None), (13, "too long", None), (15, "blank line", None),
    ]  # fmt: skip
    assert (result.read, result.rows, result.dropped) == (15, 4, 11)
    assert {fault.reason for fault in result.listed} == set(REASONS)
    assert lines.read_csv(str(path)).num_rows == result.rows


def test_a_list_of_lines_is_bounded_for_each_reason_and_the_count_is_not(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(b"id,race\n" + b"1\n" * 50 + b"\n" * 7 + b"1,a\n")
    result = faults(path, most=3)
    assert [fault.line for fault in result.listed] == [2, 3, 4, 52, 53, 54]
    assert result.reasons == {"too few fields": 50, "blank line": 7}
    assert faults(path, most=0).listed == ()


@settings(max_examples=examples(300))
@given(
    st.lists(LINES, max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
    st.integers(1, 3),
    st.sampled_from([1, 7, 1 << 24]),
)
def test_a_line_is_a_row_or_it_is_listed_as_reading_it_alone_decides(
    tmp_path_factory, some, end, width, chunk
):
    path = tmp_path_factory.mktemp("data") / "f.csv"
    names = ["x", "y", "z"][:width]
    header = ",".join(names).encode() + b"\n"

    def rows(content: bytes) -> int:
        path.write_bytes(header + content)
        return lines.read_csv(str(path)).num_rows

    alone = [rows(line + end) for line in some]
    path.write_bytes(header + b"".join(line + end for line in some))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK_BYTES", chunk)
        result = faults(path, names)
    dropped = [fault.line for fault in result.listed if fault.reason != "not text"]
    assert dropped == [i for i, n in enumerate(alone, 2) if n == 0]
    assert (result.read, result.rows) == (len(some), sum(alone))


def test_what_a_release_published_for_few_rows_is_explained(tmp_path):
    path = tmp_path / "people.csv"
    records = [b'%d,a,"two\nlines"\n' % i if i < 491 else b"%d,a,note\n" % i for i in range(3496)]
    path.write_bytes(b"id,race,note\n" + b"".join(records))
    plan = a_plan()
    check = check_data(plan, path)
    table = open_table(path, columns=["race"])
    assert check.rows == 3005 == aggregate(plan, table)["q", "all", "count"].sum()
    assert check.lines is not None
    assert check.lines.reasons == {"unclosed quote": 491, "bare quote": 491}


# Keys, numbers, and bounds, against plain Python and the tables of a run


def keyed(plan, rows):
    """By columns: how many rows match, are missing, match nothing; and the values that do not."""
    strict = plan.changed(
        columns=tuple(replace(c, unknown=None) if c.keys else c for c in plan.columns),
        hierarchies=(replace(plan.hierarchy, unknown=None),),
    )
    plain = Plain(strict, rows)
    lowest = plan.hierarchy.levels[-1]
    size = len(plan.hierarchy.rows)
    by_key = {plan.hierarchy.levels: lambda row: plain.place(row, lowest) < size}
    for column in plan.columns:
        if column.keys:
            keys = len(column.keys)
            by_key[(column.name,)] = lambda row, n=column.name, k=keys: (
                (code := plain.by(row, n)) is not None and code < k
            )
    counts = {}
    for names, known in by_key.items():
        values = Counter()
        number = Counter()
        for row in rows:
            value = tuple(row[name] for name in names)
            texts = tuple(None if v is None or v == "" else str(v) for v in value)
            kind = "yes" if known(row) else "no" if any(texts) else "none"
            number[kind] += 1
            if kind == "no":
                values[texts] += 1
        counts[names] = (number["yes"], number["none"], number["no"], values)
    return counts


@on_each(test_engine.rows_of(test_engine.ROW), st.sampled_from(["drop", "Cook"]), examples=6)
def test_matches_of_keys_and_numbers_are_those_of_plain_python(engine, folders, rows, place):
    plan = test_engine.a_plan(place, "drop" if place == "drop" else "black")
    check = check_data(plan, test_engine.texts(rows), engine, most=1000)
    assert check.rows == len(rows)
    right = keyed(plan, rows)
    assert {match.columns for match in check.keys} == set(right)
    for match in check.keys:
        known, missing, unknown, values = right[match.columns]
        assert (match.matched, match.missing, match.unmatched) == (known, missing, unknown)
        assert {f.value: f.rows for f in match.frequent} == values
        assert match.values == len(values)
        assert [f.rows for f in match.frequent] == sorted(values.values(), reverse=True)
    ages = [row["age"] for row in rows]
    (match,) = check.numbers
    low, high = -(2**53), 2**53
    read = {i: number(age, 0, low, high, low) for i, age in enumerate(ages)}
    numbers = [x for i, x in read.items() if x == number(ages[i], 0, low, high, high)]
    assert match.numbers == len(numbers)
    assert match.missing == ages.count(None) + ages.count("")
    assert match.unmatched == len(ages) - len(numbers) - match.missing
    assert sum(f.rows for f in match.frequent) == match.unmatched
    for clip in match.clips:
        assert clip.below == sum(x < clip.low for x in numbers)
        assert clip.above == sum(x > clip.high for x in numbers)


@on_each(test_engine.rows_of(test_engine.TYPED), examples=5)
def test_typed_columns_are_matched_and_the_queries_count_what_a_run_counts(engine, folders, rows):
    types = {"sex": pa.float64(), "owner": pa.bool_(), "age": pa.float64()}
    columns = {
        name: pa.array([row[name] for row in rows], types.get(name, pa.string()))
        for name in test_engine.TYPED
    }
    plan, table = test_engine.a_plan(), pa.table(columns)
    check = check_data(plan, table, engine)
    agree(plan, check.queries, counted(plan, table, engine))
    for match in check.keys:
        right = keyed(plan, rows)[match.columns]
        assert (match.matched, match.missing, match.unmatched) == right[:3]


def agree(plan, result, tables):
    """Each query's rows are the sum of its exact counts at its lowest level."""
    counts = {query.query: query for query in result}
    for query in plan.queries:
        lowest = max(query.at, key=plan.hierarchy.depth) if query.at else "all"
        if (query.name, lowest, "count") in tables:
            counted = counts[query.name].counted
            assert counted == sum(tables[query.name, lowest, "count"]), query.name
    for rows in result:
        dropped = rows.unknown + rows.without_number + rows.groups + rows.rows_per_group
        assert rows.read == dropped + rows.counted
        assert rows.taken == rows.missing + rows.unit_rows + rows.read
        assert rows.lost == rows.taken - rows.counted


@on_each(test_engine_units.ROWS, test_engine_units.BOUNDS, st.sampled_from([1, 2, 7]), examples=4)
def test_rows_that_bounds_drop_are_those_of_a_run_with_its_key(engine, folders, rows, bounds, most):
    plan = test_engine_units.a_plan(test_engine_units.some_queries(**bounds), most)
    source = test_engine_units.table_of(rows)
    result = query_rows(plan, open_table(source, engine), KEY)
    agree(plan, result, counted(plan, source, engine))
    plain = Plain(plan, rows)
    selection = plain.limited(plan.queries, rows)
    for rows_of, query in zip(result, plan.queries, strict=True):
        assert rows_of.read == len(selection)
        named = [row for row in rows if canonical(row["id"]) is not None]
        assert (rows_of.taken, rows_of.missing) == (len(rows), len(rows) - len(named))
        assert rows_of.unit_rows == len(named) - len(selection)
        label = 1 + 2 * plan.queries.index(query)
        left = [
            len(plain.restricted(part, selection, label))
            for part in (
                replace(query, groups=None, rows_per_group=None),
                replace(query, rows_per_group=None),
                query,
            )
        ]
        known, grouped, right = left
        assert rows_of.unknown + rows_of.without_number == len(selection) - known
        assert rows_of.groups == known - grouped
        assert (rows_of.rows_per_group, rows_of.counted) == (grouped - right, right)
    unit = check_data(plan, source, engine).unit
    sizes = Counter(canonical(row["id"]) for row in rows if canonical(row["id"]) is not None)
    assert unit is not None
    assert unit.missing == len(rows) - sum(sizes.values())
    assert (unit.units, unit.largest) == (len(sizes), max(sizes.values(), default=0))
    assert unit.over == sum(n > most for n in sizes.values())
    assert unit.dropped == sum(max(n - most, 0) for n in sizes.values())
    assert sum(sizes.values()) - unit.dropped == len(selection)


VISITS = pa.table({
    "id": ["a"] * 5 + ["b", "b", "c", None, None, "d"],
    "house": ["x", "x", "x", "y", "y", "z", "x", None, "w", None, "w"],
    "ward": ["S", "S", "T", "S", "?", "S", "?", None, "S", "T", "T"],
    "age": ["1", "2", "3", "4", "5", "6", "7", "8", "9", "1", "x"],
})  # fmt: skip


def visits_plan(where="age >= 2", unknown="drop", **unit):
    """Counts by ward, and of the rows with a high age."""
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "p",
            "dataset": "d@1",
            "table": "t",
            **({"where": where} if where else {}),
            "unit": {"protects": "patient", "neighboring": "replace-one", **unit},
            "columns": {
                "ward": {"keys": ["S", "T"], "unknown": unknown},
                "age": {"type": "whole", "parse": True},
            },
            "budget": {"zcdp": 1},
            "query": [
                {"name": "wards", "measure": "count", "by": ["ward"], "share": "1/2"},
                {"name": "old", "measure": "count", "where": "age >= 4", "share": "1/2"},
            ],
        }
    )


def test_rows_that_a_query_loses_are_counted_by_their_first_cause(engine):
    """Against SQL: the rows of a filter, without an id, over the bound, and outside the keys."""
    check = check_data(visits_plan(id="id", rows=2), VISITS, engine)
    connection = duckdb.connect()
    connection.register("visits", VISITS)
    wards, old = check.queries
    assert (wards.levels, wards.query, old.query) == (("all",), "wards", "old")
    for query, least in ((wards, 2), (old, 4)):
        sql = f"FROM visits WHERE try_cast(age AS INT) >= {least}"
        taken, named = connection.sql(f"SELECT count(*), count(id) {sql}").fetchall()[0]
        sizes = f"SELECT count(*) AS n {sql} AND id IS NOT NULL GROUP BY id"
        bounded = f"SELECT sum(least(n, 2)) FROM ({sizes})"
        ((read,),) = connection.sql(bounded).fetchall()
        assert (query.taken, query.missing) == (taken, taken - named)
        assert (query.unit_rows, query.read) == (named - read, read)
        assert query.lost == taken - query.counted
    assert (old.unknown, old.counted) == (0, old.read)
    # One row of b and none of c has a ward in the keys, and two of the four of a are drawn.
    assert wards.taken == 8
    assert wards.counted in (2, 3)


@pytest.mark.parametrize("unit", [{}, {"id": "row", "rows": 1}])
def test_rows_without_a_number_are_a_cause_of_their_own(engine, unit):
    """Against SQL: of each measure that skips them, and of a sum, a histogram, and a quantile."""
    numbers = ["1", "x", None, "4", "5", "", "7", "8", "9", "1", "2"]
    table = VISITS.append_column("w", [numbers]).append_column("row", [list(range(11))])
    measures = [
        {"name": "mean", "measure": "mean", "column": "w", "clip": [0, 9]},
        {"name": "sum", "measure": "sum", "column": "w", "clip": [0, 9]},
        {"name": "bins", "measure": "histogram", "column": "w", "edges": [0, 5, 9]},
        {"name": "median", "measure": "median", "column": "w", "edges": [0, 5, 9]},
        {"name": "replaced", "measure": "mean", "column": "age", "clip": [0, 9]},
        {"name": "count", "measure": "count"},
    ]
    data = visits_plan(where=None, **unit).canonical() | {"schema": 2}
    data["columns"] |= {
        "w": {"integer": True, "parse": True},
        "age": {"integer": True, "unknown": 3, "parse": True},
    }
    data["query"] = [{**m, "by": ["ward"], "share": "1/6"} for m in measures]
    check = check_data(Plan.from_dict(data), table, engine)
    connection = duckdb.connect()
    connection.register("visits", table)
    sql = "SELECT count(*), count(try_cast(w AS INT)) FROM visits WHERE ward IN ('S', 'T')"
    known, numbered = connection.sql(sql).fetchall()[0]
    assert (known, numbered) == (8, 5)
    for query in check.queries:
        assert (query.taken, query.unknown) == (11, 11 - known)
        skips = query.query in ("mean", "sum", "bins", "median")
        assert query.without_number == (known - numbered if skips else 0), query.query
        assert query.counted == known - query.without_number


@pytest.mark.parametrize("unit", [{}, {"id": "id", "rows": 3}])
def test_values_of_a_column_with_more_rows_than_the_plan_assumes_are_counted(engine, unit):
    plan = visits_plan(**unit)
    check = check_data(plan, VISITS, engine, id="house")
    ages, houses = (VISITS[name].to_pylist() for name in ("age", "house"))
    taken = [h for h, age in zip(houses, ages, strict=True) if age.isdigit() and int(age) >= 2]
    sizes = Counter(house for house in taken if house is not None)
    most = unit.get("rows", 1)
    assert check.assumed is not None
    assert (check.assumed.column, check.assumed.bound) == ("house", most)
    assert check.assumed.units == len(sizes)
    assert check.assumed.over == sum(n > most for n in sizes.values())
    assert check.assumed.largest == max(sizes.values())
    assert check.assumed.missing == len(taken) - sum(sizes.values()) == 1
    alone = check_data(plan, VISITS, engine)
    assert alone.assumed is None
    if not unit:  # a bound draws anew which rows it drops
        assert replace(alone, assumed=check.assumed) == check


def test_a_column_of_ids_that_the_data_do_not_have_or_that_names_no_unit_is_refused():
    for columns, named in ((VISITS, "home"), (VISITS.append_column("x", [[0.5] * 11]), "x")):
        with pytest.raises(DataError, match=named):
            check_data(visits_plan(), columns, id=named)


@pytest.mark.parametrize(("plan", "lost"), [
    (visits_plan(), 2), (visits_plan(unknown="T"), 0), (visits_plan(where=None, unknown="S"), 0),
    (visits_plan(id="id", unknown="T"), 4),
])  # fmt: skip
def test_a_plan_says_that_rows_may_not_count_exactly_where_rows_are_lost(plan, lost):
    which, effect = counted_rows(plan)
    check = check_data(plan, VISITS)
    assert max(query.lost for query in check.queries) >= lost
    assert bool(effect) == any(query.lost for query in check.queries)
    assert which.startswith("Every row") == (not effect)


@pytest.mark.parametrize("listed", [2, 40])
def test_texts_that_a_map_or_a_lookup_does_not_list_are_counted(listed, engine):
    wards = [
        "Surgery", "SURGERY", "surgery ", "Onkology", "Onkology", None, "", "Oncology", "\x1b[2J",
    ]  # fmt: skip
    table = pa.table({"ward": wards * 2, "n": [str(i) for i in range(18)]})
    pairs = {"Surgery": "S", "Oncology": "O"} | {f"text {i}": "T" for i in range(listed - 2)}
    plan = Plan.from_dict({
        "schema": 2, "name": "p", "dataset": "d@1", "table": "t", "where": "n >= 1",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"ward": {"type": "text"}, "n": {"type": "whole", "parse": True}},
        "derive": {"clean": {"map": "ward", "to": pairs, "unknown": "other"}},
        "lookup": {"found": {"column": "ward", "keys": [list(pair) for pair in pairs.items()]}},
        "budget": {"zcdp": 1},
        "query": [{"measure": "count", "by": ["clean", "found"], "share": 1}],
    })  # fmt: skip
    check = check_data(plan, table, engine, most=2)
    right = Counter(ward or None for i, ward in enumerate(wards * 2) if i >= 1)
    other = {ward: n for ward, n in right.items() if ward is not None and ward not in pairs}
    for texts, name, unknown in zip(check.texts, ("clean", "found"), ("other", None), strict=True):
        assert (texts.columns, texts.unknown) == ((name,), unknown)
        assert texts.matched == right["Surgery"] + right["Oncology"] == 3
        assert (texts.missing, texts.unmatched) == (right[None], sum(other.values()))
        assert texts.values == len(other)
        first, second = texts.frequent
        assert (first.value, first.rows) == (("Onkology",), 4)
        assert second.rows == 2
    assert check.plan_hash == plan.hash


@pytest.mark.parametrize("listed", [2, 40])
def test_keys_of_several_columns_that_a_lookup_does_not_list_are_counted(listed, engine):
    rows = [("a", "x"), ("a", "y"), ("b", None), (None, None), ("b", None), ("x", "a"), ("b", "y")]
    table = pa.table({"s": [s for s, _ in rows], "k": [k for _, k in rows]})
    keys = [["a", "x", "A"], ["b", "y", "B"], *([f"t{i}", "y", "T"] for i in range(listed - 2))]
    plan = Plan.from_dict({
        "schema": 2, "name": "p", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"s": {"type": "text"}, "k": {"type": "text"}},
        "lookup": {"found": {"column": ["s", "k"], "keys": keys}}, "budget": {"zcdp": 1},
        "query": [{"measure": "count", "by": ["found"], "share": 1}],
    })  # fmt: skip
    (texts,) = check_data(plan, table, engine, most=1).texts
    assert (texts.matched, texts.missing, texts.unmatched, texts.values) == (2, 1, 4, 3)
    (most,) = texts.frequent
    assert (most.value, most.rows) == (("b", None), 2)


def test_keys_that_are_discovered_count_the_rows_that_have_them(engine):
    query = [
        {"name": "q", "measure": "units", "by": ["sex", "word"], "share": 1, "delta": "1e-9",
         "groups": 1},
    ]  # fmt: skip
    columns = {"word": {"discover": True}, "sex": {"keys": [0, 1]}}
    table = pa.table({"word": ["x", "y", None, "x", "z"], "sex": [0, 1, 1, 2, 0], "id": [*"ppppq"]})
    plan = test_engine.small_plan(query, columns, delta="1e-8", rows=4, id="id")
    check = check_data(plan, table, engine)
    words = next(match for match in check.keys if match.columns == ("word",))
    assert (words.matched, words.missing) == (4, 1)
    (rows,) = check.queries
    assert (rows.read, rows.unknown, rows.groups, rows.counted) == (5, 2, 1, 2)
    alone = test_engine.small_plan([{**query[0], "groups": None}], columns, delta="1e-8")
    (rows,) = check_data(alone, table, engine).queries
    assert (rows.read, rows.unknown, rows.groups, rows.counted) == (5, 2, 0, 3)


def test_rows_that_a_real_run_counts_are_the_rows_of_the_check(tmp_path, monkeypatch):
    path = tmp_path / "people.csv"
    path.write_bytes(
        b'race,age\na,1\nb,200\n"a\nb",7\na\n\xff,3\nA,4\n,5\na,x\nb,\n\na,-1\na,999999999\n'
    )
    plan = a_plan(query=BOTH, columns=TWO)
    check = check_data(plan, {"t": path})
    by_key = {}

    def counting(plan, table, **more):
        by_key.update({name: c.dense() for name, c in cells(plan, table, **more).items()})
        return cells(plan, table, **more)

    cells = run_module.aggregate_cells
    monkeypatch.setattr(run_module, "aggregate_cells", counting)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("d@1", protects="person", neighboring="replace-one", cap=1)
    release(plan, {"t": path}, ledger, tmp_path / "out")
    race, rows = next(k for k in check.keys), {q.query: q for q in check.queries}
    assert by_key["q", "all", "count"].sum() == rows["q"].counted == race.matched == 6
    assert (race.missing, race.unmatched, race.frequent[0].value) == (2, 1, ("A",))
    assert check.rows == 9 == rows["s"].counted
    assert check.lines is not None
    assert check.lines.reasons == {
        "unclosed quote": 1, "bare quote": 1, "too few fields": 1, "blank line": 1, "not text": 1,
    }  # fmt: skip
    (age,) = check.numbers
    clip = age.clips[0]
    assert (age.missing, age.unmatched, clip.below, clip.above) == (1, 1, 1, 2)
    selection = [1, 90, 3, 4, 5, 0, 0, 0, 90]
    assert by_key["s", "all", "sum"].tolist() == [sum(selection)]


PEOPLE = pa.table({"race": ["a", "c", "c", None, "b"], "age": ["1", "x", "95", None, "7"]})


@pytest.fixture(scope="module")
def right(engine):
    return check_data(a_plan(query=BOTH, columns=TWO), PEOPLE, engine)


@pytest.mark.parametrize("kind", ["pandas", "ibis", "parquet", "csv"])
def test_every_kind_of_source_gives_the_same_check(kind, right, tmp_path, engine):
    source = tmp_path / f"people.{kind}"
    if kind == "parquet":
        pq.write_table(PEOPLE, source)
    elif kind == "csv":
        source.write_text("race,age\na,1\nc,x\nc,95\n,\nb,7\n")
    else:
        source = PEOPLE.to_pandas() if kind == "pandas" else ibis.memtable(PEOPLE)
    assert right.lines is None
    assert (right.keys[0].unmatched, right.keys[0].values, right.keys[0].missing) == (2, 1, 1)
    check = check_data(a_plan(query=BOTH, columns=TWO), source, engine)
    assert replace(check, lines=None) == right


def test_numbers_and_keys_that_only_look_right_are_listed_as_they_are_written():
    columns = {"race": {"keys": ["a"]}, "age": {"decimals": 1, "unknown": "0.5", "parse": True}}
    query = [BOTH[0], {**BOTH[1], "clip": [0, 9.5]}]
    rows = {"race": ["a", " a", "A", "A", None], "age": ["1,5", "1,5", " 2", "9.6", None]}
    check = check_data(a_plan(query=query, columns=columns), pa.table(rows))
    assert [(f.value, f.rows) for f in check.keys[0].frequent] == [(("A",), 2), ((" a",), 1)]
    (age,) = check.numbers
    assert [(f.value, f.rows) for f in age.frequent] == [(("1,5",), 2), ((" 2",), 1)]
    assert (age.unknown, age.clips[0].high, age.clips[0].above) == ("0.5", "9.5", 1)


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(9, 3), pa.string(), pa.int64()])
@pytest.mark.parametrize(("decimals", "rounded"), [(0, 4), (1, 3), (2, 1), (3, 0)])
def test_the_numbers_that_a_plan_rounds_down_are_counted(kind, decimals, rounded, engine):
    texts = ["0", "-0.5", "0.29", "-0.57", "0.005", "1", "90", None]
    columns = {"race": {"keys": ["a"]}, "age": {"decimals": decimals, "parse": True}}
    values = pa.array(texts)
    if kind == pa.int64():
        values, rounded = pa.array(["0", "1", str(-(2**63)), str(2**63 - 1), None]), 0
    rows = {"race": ["a"] * len(values), "age": values.cast(kind)}
    (age,) = check_data(a_plan(query=BOTH, columns=columns), pa.table(rows), engine).numbers
    assert (age.rounded, age.missing) == (rounded, 1)


def test_text_that_is_no_utf8_is_shown_with_its_bytes(tmp_path):
    raw = pa.array([b"a", b"\xff\xfe", b"\xff\xfe"], pa.binary())
    race = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    pq.write_table(pa.table({"race": race}), tmp_path / "people.parquet")
    (keys,) = check_data(a_plan(), tmp_path / "people.parquet").keys
    assert [(f.value, f.rows) for f in keys.frequent] == [(("\\xff\\xfe",), 2)]


# What it does not do


def test_the_check_says_that_it_is_private_in_every_form():
    check = check_data(a_plan(), pa.table({"race": ["a", "Mallory"]}))
    content = check.to_dict()
    assert next(iter(content)) == "private"
    assert content["private"] == NOTICE
    json.dumps(content)
    for part in (check, *check.keys, *check.keys[0].frequent, *check.queries):
        assert NOTICE in repr(part)
        assert NOTICE in str(part)


def test_the_check_writes_no_file(tmp_path, monkeypatch):
    path = tmp_path / "data" / "people.csv"
    path.parent.mkdir()
    path.write_bytes(b"id,race\n1,a\n")
    monkeypatch.chdir(path.parent)
    check_data(a_plan(), path)
    assert [p.name for p in tmp_path.rglob("*")] == ["data", "people.csv"]


def test_what_a_run_refuses_the_check_refuses(tmp_path):
    with pytest.raises(DataError, match="no column 'race'"):
        check_data(a_plan(), pa.table({"sex": ["a"]}))
    with pytest.raises(DataError, match="no table 't'"):
        check_data(a_plan(), {"people": pa.table({"race": ["a"]})})
    with pytest.raises(ValueError, match="most = -1"):
        check_data(a_plan(), pa.table({"race": ["a"]}), most=-1)


def test_a_file_that_changes_during_the_check_is_said_to_have_changed(tmp_path, monkeypatch):
    path = tmp_path / "people.csv"
    path.write_bytes(b"id,race\n1,a\n")
    from neyman.publishing.release import data_check

    def changed(*args):
        path.write_bytes(b"id,race\n1,a\n2,b\n")
        return line_faults(*args)

    monkeypatch.setattr(data_check, "line_faults", changed)
    with pytest.raises(DataError, match="changed while it was checked"):
        check_data(a_plan(), path)


def test_faults_of_several_files_are_listed_file_by_file(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(b"race;id\na\nb;2\n\n")
    plan = a_plan()
    plan = plan.changed(source=SourcePart(delimiter=";"))
    check = check_data(plan, str(tmp_path / "*.csv"))
    assert check.lines is not None
    listed = [(re.sub(".*/", "", f.file), f.line) for f in check.lines.listed]
    assert listed == list(itertools.product(["a.csv", "b.csv"], [2, 4]))
    assert (check.rows, check.lines.read) == (2, 6)
