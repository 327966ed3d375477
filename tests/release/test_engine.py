"""The engine against plain Python, on messy data from every kind of source."""

import csv
import itertools
import math
import re

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.release.engine import DataError, aggregate, check_schema, open_table
from neyman.release.engine.bounding import kept_rows
from neyman.release.plan import Plan

PLACES = [("MW", "IL", "Adams"), ("MW", "IL", "Cook"), ("MW", "IN", "Adams"), ("S", "TX", "é😀")]
RACES = ["white", "black", "😀", "NULL", "nan"]

# Ibis still calls DuckDB by a name that newer versions of DuckDB announce to go away.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")


def a_plan(place_unknown="drop", race_unknown="drop", **unit) -> Plan:
    return Plan.from_dict(
        {
            "schema": 1,
            "name": "test",
            "dataset": "test@1",
            "table": "people",
            "unit": {"protects": "person", "neighboring": "replace-one", **unit},
            "columns": {
                "race": {"keys": RACES, "unknown": race_unknown},
                "sex": {"keys": [0, 1, -7]},
                "owner": {"keys": [True, False]},
                "age": {"integer": True, "unknown": 3},
            },
            "hierarchy": {
                "place": {
                    "levels": ["region", "state", "county"],
                    "keys": [list(row) for row in PLACES],
                    "unknown": place_unknown,
                }
            },
            "budget": {"zcdp": 1},
            "query": [
                {"name": "all", "measure": "count", "share": "1/8"},
                {"name": "total", "measure": "count", "at": ["state", "county"], "share": "1/8"},
                {"name": "race", "measure": "count", "by": ["race"], "at": ["region", "county"],
                 "share": "1/8"},
                {"name": "sex", "measure": "count", "by": ["sex", "race"], "share": "1/8"},
                {"name": "owner", "measure": "count", "by": ["owner"], "at": ["state"],
                 "share": "1/8"},
                {"name": "sum", "measure": "sum", "column": "age", "clip": [-2, 90],
                 "by": ["race"], "at": ["state"], "share": "1/8"},
                {"name": "other", "measure": "sum", "column": "age", "clip": [5, 9],
                 "share": "1/8"},
                {"name": "mean", "measure": "mean", "column": "age", "clip": [0, 120],
                 "by": ["owner"], "share": "1/8"},
            ],
        }
    )  # fmt: skip


def texts(rows, **given):
    """An Arrow table of text columns, but for those that are given."""
    columns = {
        name: pa.array([row[name] for row in rows], pa.string())
        for name in ROW
        if name not in given
    }
    return pa.table({**columns, **given})


def canonical(value):
    """The text that a value is compared as, by the documented rules; None if it has none."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if abs(value) < 2**53 and value == int(value) else None
    return str(value)


def number(value, low, high, unknown=3):
    """What a row adds to a sum, by the documented rules."""
    if isinstance(value, str):
        value = value if re.fullmatch(r"-?[0-9]{1,30}(\.[0-9]{1,30})?", value, re.ASCII) else None
    value = None if value is None else float(value)
    if value is None or math.isnan(value):
        return min(max(unknown, low), high)
    return math.floor(min(max(value, low), high))


def expected(plan, rows, kept=lambda rows: rows):
    """The tables in plain Python, one row at a time."""
    found = {}
    for query in plan.queries:
        for level in query.levels:
            length = plan.hierarchy.depth(level) + 1 if query.at else 0
            places = plan.hierarchy.paths(level) if query.at else ((),)
            keys = [[canonical(k) for k in plan.column(name).keys] for name in query.by]
            cells = {cell: [0, 0] for cell in itertools.product(places, *keys)}
            for row in kept(rows):
                path = tuple(canonical(row[name]) for name in ("region", "state", "county"))
                if path not in plan.hierarchy.rows and plan.hierarchy.unknown is not None:
                    path = plan.hierarchy.rows[plan.hierarchy.unknown]
                place = path[:length] if path in plan.hierarchy.rows or not length else None
                cell = [place]
                for name, listed in zip(query.by, keys, strict=True):
                    text, column = canonical(row[name]), plan.column(name)
                    if text not in listed and column.unknown is not None:
                        text = listed[column.unknown]
                    cell.append(text)
                if tuple(cell) in cells:
                    cells[tuple(cell)][0] += 1
                    if query.clip:
                        cells[tuple(cell)][1] += number(row["age"], *query.clip)
            parts = {"mean": ("count", "sum")}.get(query.measure, (query.measure,))
            for part in parts:
                values = [cell[part == "sum"] for cell in cells.values()]
                found[query.name, level, part] = values
    return found


def check(plan, source, rows):
    check_schema(plan, open_table(source, rows=False))
    found = aggregate(plan, open_table(source))
    right = expected(plan, rows)
    assert set(found) == set(right)
    for key, values in found.items():
        assert values.dtype == np.int64
        assert values.tolist() == right[key], key


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


def near(*keys):
    """Mostly keys, with everything that resembles one."""
    likely = st.sampled_from([*keys, *(f" {keys[0]}", f"{keys[0]} ", str(keys[0]).upper())])
    return st.none() | likely | likely | TEXT


ROW = {
    "region": near("MW", "S"),
    "state": near("IL", "IN", "TX"),
    "county": near("Adams", "Cook", "é😀", "e\u0301😀"),
    "race": near(*RACES),
    "sex": near("0", "1", "-7", "1.0", "01", "+1", "true"),
    "owner": near("true", "false", "True", "1"),
    "age": near("17", "-3", "99.9", "1e3", "4\n", "0x10", "1_0", "٣", "-0", "9" * 30, "inf", "NaN"),
}
TYPED = {
    **ROW,
    "sex": st.none() | st.integers(-8, 2).map(float) | st.floats(),
    "owner": st.none() | st.booleans(),
    "age": st.none() | st.integers(-5, 130).map(float) | st.floats(),
}
MORE = settings(max_examples=12, deadline=None)


def rows_of(columns):
    return st.lists(st.fixed_dictionaries(columns), max_size=40)


@MORE
@given(rows_of(ROW), st.sampled_from(["drop", "Cook"]), st.sampled_from(["drop", "black"]))
def test_text_rows_are_counted_as_plain_python_counts_them(rows, place, race):
    table = texts(rows)
    check(a_plan(place, race), table, rows)


@MORE
@given(rows_of(TYPED))
def test_numbers_nan_and_truth_values_follow_the_same_rules(rows):
    types = {"sex": pa.float64(), "owner": pa.bool_(), "age": pa.float64()}
    columns = {n: pa.array([r[n] for r in rows], types.get(n, pa.string())) for n in TYPED}
    check(a_plan(), pa.table(columns), rows)


@MORE
@given(st.lists(st.fixed_dictionaries({n: s.filter(lambda v: v != "") for n, s in ROW.items()})))
def test_a_csv_file_and_a_parquet_file_give_the_same_tables(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("data")
    with (folder / "people.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
        writer.writerow(ROW)
        writer.writerows([row[name] for name in ROW] for row in rows)
    pq.write_table(texts(rows), folder / "people.parquet")
    check(a_plan(), folder / "people.parquet", rows)
    # Every value of ours can be written in CSV but one: a line break ends a record there.
    if not any({"\r", "\n"} & set(str(value)) for row in rows for value in row.values()):
        check(a_plan(), str(folder / "people.csv"), rows)


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=40))
def test_no_bytes_in_a_csv_file_stop_the_release_or_lose_its_good_lines(tmp_path_factory, a, b):
    path = tmp_path_factory.mktemp("data") / "people.csv"
    good = b"S,TX,x,white,0,true,5\n"
    head = ",".join(ROW).encode() + b"\n"
    path.write_bytes(head + good + a.replace(b'"', b"'") + b"\n" + good + b)
    check_schema(a_plan(), open_table(path, rows=False))
    found = aggregate(a_plan(), open_table(path))
    assert found["sex", "all", "count"][0] >= 2


def test_a_stray_quote_costs_its_own_line_only(tmp_path):
    path = tmp_path / "people.csv"
    good = "S,TX,x,white,0,true,5\n"
    path.write_text(",".join(ROW) + "\n" + good + 'S,TX,"x,white,0,true,5\n' + good * 3)
    assert aggregate(a_plan(), open_table(path))["all", "all", "count"][0] == 4


SEX_TYPES = [
    pa.int8(), pa.int16(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(),
    pa.decimal128(30, 2), pa.decimal128(38, 0), pa.dictionary(pa.int32(), pa.string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", SEX_TYPES, ids=str)
def test_integer_keys_are_found_in_columns_of_any_type_that_can_hold_them(kind):
    values = [0, 1, 1, -7, 5, None]
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or hasattr(kind, "index_type")
    sex = pa.array([str(v) if text and v is not None else v for v in values]).cast(kind)
    rows = [dict.fromkeys(ROW) | {"sex": v, "race": "white"} for v in values]
    check(a_plan(), texts(rows, sex=sex), rows)


def test_every_kind_of_source_gives_the_same_tables(tmp_path):
    rows = [
        dict(zip(ROW, values, strict=True))
        for values in [
            ("MW", "IL", "Cook", "white", "0", "true", "5"),
            ("MW", "IN", "Adams", "black", "1", "false", "-5"),
            ("S", "TX", "é😀", "😀", None, "x", "12.7"),
        ]
    ]
    table = texts(rows)
    frame = pd.DataFrame(rows)
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(table.slice(0, 1), folder / "a.parquet")
    pq.write_table(table.slice(1), folder / "b.parquet")
    for source in (table, frame, ibis.memtable(table), folder, str(folder / "*.parquet")):
        check(a_plan(), source, rows)


def test_a_column_of_mixed_objects_is_no_reason_to_stop():
    sex = [0, "1", -7.0, None, float("nan"), True, "\ud800", b"1", object(), np.int64(1)]
    frame = pd.DataFrame([dict.fromkeys(ROW, "white") for _ in sex])
    frame["sex"] = pd.Series(sex, dtype=object)
    found = aggregate(a_plan(), open_table(frame))
    white = found["sex", "all", "count"].reshape(3, -1)[:, 0]
    assert white.tolist() == [1, 2, 1]


def test_no_rows_and_no_known_rows_give_zeros():
    columns = {name: pa.array([], pa.string()) for name in ROW}
    nulls = {name: pa.nulls(3) for name in ROW}
    for source in (pa.table(columns), pa.table(nulls)):
        found = aggregate(a_plan(), open_table(source))
        assert not any(v.any() for (name, *_), v in found.items() if name not in ("all", "other"))


def test_a_level_that_is_not_in_the_data_follows_from_the_others():
    rows = [dict.fromkeys(ROW) | {"region": "S", "state": "TX", "county": "é😀"}]
    table = texts(rows)
    check_schema(a_plan(), open_table(table.drop(["region"])))
    found = aggregate(a_plan(), open_table(table.drop(["region"])))
    assert found["total", "county", "count"].tolist() == [0, 0, 0, 1]
    with pytest.raises(DataError, match=r"'region'.*do not determine"):
        check_schema(a_plan(), open_table(table.drop(["region", "state"])))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.drop(["race"]), "no column 'race'"),
        (lambda t: t.drop(["age"]), "no column 'age'"),
        (lambda t: t.set_column(3, "race", pa.array([[1]])), "column 'race' has type"),
        (lambda t: t.set_column(3, "race", pa.array([1])), "key 'white' can never"),
        (lambda t: t.set_column(5, "owner", pa.array([1])), "key 'true' can never"),
        (lambda t: t.set_column(4, "sex", pa.array([True])), "key '0' can never"),
    ],
)
def test_data_of_the_wrong_form_are_refused_with_the_column(change, said):
    table = pa.table({name: pa.array(["x"]) for name in ROW})
    with pytest.raises(DataError, match=re.escape(said)):
        check_schema(a_plan(), open_table(change(table), rows=False))


def test_what_is_no_source_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    for source in (tmp_path / "none.parquet", tmp_path, tmp_path / "x.json", 3, [1]):
        with pytest.raises(DataError):
            open_table(source)


def test_large_values_neither_overflow_nor_stop():
    age = pa.array([2**63 - 1, -(2**63), 2**53 + 1, None], pa.int64())
    rows = [dict.fromkeys(ROW) | {"age": v} for v in age.to_pylist()]
    check(a_plan(), texts(rows, age=age), rows)


@MORE
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 9))), st.data())
def test_no_unit_adds_more_than_its_rows_allow_and_small_units_add_all(pairs, data):
    most = data.draw(st.sampled_from([1, 2, 3]))
    plan = a_plan(rows=most, id="id")
    columns = {name: pa.array(["white"] * len(pairs)) for name in ROW}
    columns["age"] = pa.array([age for _, age in pairs], pa.int64())
    columns["id"] = pa.array([unit for unit, _ in pairs], pa.string())
    found = aggregate(plan, open_table(pa.table(columns)))
    sizes = [sum(unit == u for unit, _ in pairs) for u in "abc"]
    assert found["all", "all", "count"][0] == sum(min(size, most) for size in sizes)
    most_sum = sum(
        sum(sorted((max(5, age) for unit, age in pairs if unit == u), reverse=True)[:most])
        for u in "abc"
    )
    least_sum = sum(
        sum(sorted(max(5, age) for unit, age in pairs if unit == u)[:most]) for u in "abc"
    )
    assert least_sum <= found["other", "all", "sum"][0] <= most_sum


def test_which_rows_of_a_unit_are_kept_is_random_and_fair():
    """2 of 4 rows in each of 2,000 units: each row half the time; false alarms 2e-7 (5.5 sigma)."""
    units = 2_000
    ids = pa.array([str(i // 4).encode() for i in range(4 * units)])
    coded = ibis.memtable(pa.table({"unit": ids, "code": np.arange(4 * units) % 4}))
    kept = kept_rows(coded, ["code"], 2).to_pyarrow()["code"].to_pylist()
    assert len(kept) == 2 * units
    for code in range(4):
        assert abs(kept.count(code) - units / 2) <= 5.5 * math.sqrt(units) / 2
