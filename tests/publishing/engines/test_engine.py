"""The engine against plain Python, on messy data from every kind of source."""

import re
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from each_engine import on_each
from neyman.publishing import DataError, Plan, check_schema, open_table
from plain_engine import check, counted

PLACES = [("MW", "IL", "Adams"), ("MW", "IL", "Cook"), ("MW", "IN", "Adams"), ("S", "TX", "é😀")]
RACES = ["white", "black", "😀", "NULL", "nan"]


def a_plan(place_unknown="drop", race_unknown="drop", **unit) -> Plan:
    return Plan.from_dict({
        "schema": 2, "name": "test", "dataset": "test@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one", **unit},
        "columns": {
            "race": {"keys": RACES, "unknown": race_unknown}, "sex": {"keys": [0, 1, -7]},
            "owner": {"keys": [True, False]}, "age": {"integer": True, "unknown": 3, "parse": True},
        },
        "hierarchy": {
            "place": {
                "levels": ["region", "state", "county"], "keys": [list(row) for row in PLACES],
                "unknown": place_unknown,
            },
        },
        "budget": {"zcdp": 1},
        "query": [
            {"name": "all", "measure": "count", "share": "1/8"},
            {"name": "total", "measure": "count", "at": ["state", "county"], "share": "1/8"},
            {"name": "race", "measure": "count", "by": ["race"], "at": ["region", "county"],
             "share": "1/8"},
            {"name": "sex", "measure": "count", "by": ["sex", "race"], "share": "1/8"},
            {"name": "owner", "measure": "count", "by": ["owner"], "at": ["state"], "share": "1/8"},
            {"name": "sum", "measure": "sum", "column": "age", "clip": [-2, 90], "by": ["race"],
             "at": ["state"], "share": "1/8"},
            {"name": "other", "measure": "sum", "column": "age", "clip": [5, 9], "share": "1/8"},
            {"name": "mean", "measure": "mean", "column": "age", "clip": [0, 120], "by": ["owner"],
             "share": "1/8"},
        ],
    })  # fmt: skip


def texts(rows, **given):
    """An Arrow table of text columns, but for those that are given."""
    columns = {
        name: pa.array([row[name] for row in rows], pa.string())
        for name in ROW
        if name not in given
    }
    return pa.table({**columns, **given})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


def near(*keys):
    likely = st.sampled_from([*keys, *(f" {keys[0]}", f"{keys[0]} ", str(keys[0]).upper())])
    return st.none() | likely | likely | TEXT


ROW = {
    "region": near("MW", "S"), "state": near("IL", "IN", "TX"),
    "county": near("Adams", "Cook", "é😀", "e\u0301😀"), "race": near(*RACES),
    "sex": near("0", "1", "-7", "1.0", "01", "+1", "true", "1e0", "-70e-1", "-0.0", "1.5", "7e-1"),
    "owner": near("true", "false", "True", "1", "FALSE", "t", "0.0", "tRUE", "2", "true ", "1e0"),
    "age": near(
        "17", "-3", "99.9", "1e3", "4\n", "0x10", "1_0", "٣", "-0", "9" * 30, "inf", "NaN", "5e-1",
        "-1E+01", "12345e-3", ".5e1", "1e", "1e99999", "0e9999", "1e9999", "-1e-9999", "-Infinity",
    ),
}  # fmt: skip
# Numbers that are typed: every kind of column that a table may have beside text.
TYPED = {
    **ROW,
    "sex": st.none() | st.integers(-8, 2).map(float) | st.floats() | st.just(0.9999999999999999),
    "owner": st.none() | st.booleans(),
    "age": st.none() | st.integers(-5, 130).map(float) | st.floats(),
}


def rows_of(columns):
    return st.lists(st.fixed_dictionaries(columns), max_size=40)


@on_each(rows_of(ROW), st.sampled_from(["drop", "Cook"]), st.sampled_from(["drop", "black"]))
def test_text_rows_are_counted_as_plain_python_counts_them(engine, folders, rows, place, race):
    check(a_plan(place, race), texts(rows), rows, engine)


@on_each(rows_of(TYPED))
def test_numbers_nan_and_truth_values_follow_the_same_rules(engine, folders, rows):
    types = {"sex": pa.float64(), "owner": pa.bool_(), "age": pa.float64()}
    columns = {n: pa.array([r[n] for r in rows], types.get(n, pa.string())) for n in TYPED}
    check(a_plan(), pa.table(columns), rows, engine)


ONE = [{"name": "q", "measure": "count", "by": ["sex"], "share": 1}]


def small_plan(query=ONE, columns=None, delta=None, **unit) -> Plan:
    return Plan.from_dict({
        "schema": 2, "name": "small", "dataset": "test@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one", **unit},
        "columns": columns or {"sex": {"keys": [0, 1, -7]}},
        "budget": {"zcdp": 1, **({"delta": delta} if delta else {})}, "query": query,
    })  # fmt: skip


@on_each(st.binary(max_size=60), st.binary(max_size=40), examples=25)
def test_no_bytes_in_a_csv_file_stop_the_release_or_lose_its_good_lines(engine, folders, a, b):
    path = folders.mktemp("data") / "people.csv"
    path.write_bytes(b"x,sex\n1,0\n" + a.replace(b'"', b"'") + b"\n2,0\n" + b)
    assert counted(small_plan(), path, engine)["q", "all", "count"][0] >= 2


SEX_TYPES = [
    pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.string(), pa.large_string(), pa.float32(),
    pa.float64(), pa.decimal128(30, 2), pa.decimal128(38, 37), pa.decimal128(9, 9),
    pa.decimal128(38, 0), pa.dictionary(pa.int32(), pa.string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", SEX_TYPES, ids=str)
@pytest.mark.parametrize("stored", [True, False], ids=["parquet", "memory"])
def test_whole_keys_match_in_columns_of_any_type_that_holds_them(engine, kind, stored, tmp_path):
    values = [0, 1, 1, None] if "uint" in str(kind) else [0, 1, 1, -7, 5, None]
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or hasattr(kind, "index_type")
    plain = [str(v) if text and v is not None else v for v in values]
    if pa.types.is_decimal(kind):
        values = [0, None, 0] if kind.scale == 9 else values
        plain = [None if v is None else Decimal(v) for v in values]
        plain += [Decimal("0.5"), Decimal("1e-37")] if kind.scale == 37 else []
    sex = pa.array(plain, None if text else kind).cast(kind)
    source = pa.table({"sex": sex})
    if stored:
        pq.write_table(source, tmp_path / "x.parquet")
        source = tmp_path / "x.parquet"
    keys = [0, 1] if "uint" in str(kind) else [0, 1, -7]
    plan = small_plan(columns={"sex": {"keys": keys}})
    right = [values.count(key) for key in keys]
    assert counted(plan, source, engine)["q", "all", "count"] == right


def test_dates_are_keys_by_their_digits(engine, tmp_path):
    keys = ["2020-02-29", "1500-02-28", "0001-01-01", "9999-12-31", "1969-12-31"]
    days = [*map(date.fromisoformat, keys), date(1582, 10, 10), None]
    far = pa.array([date.max.toordinal(), 10**6 * 4], pa.int32()).cast(pa.date32())
    born = pa.chunked_array([pa.array(days * 2, pa.date32()), far])
    pq.write_table(pa.table({"born": born}), tmp_path / "x.parquet")
    columns = {"born": {"keys": keys}}
    plan = small_plan([{**ONE[0], "by": ["born"]}], columns)
    for source in (tmp_path / "x.parquet", pa.table({"born": pa.array(days * 2)})):
        assert counted(plan, source, engine)["q", "all", "count"] == [2] * 5


ROWS = [
    dict(zip(ROW, values, strict=True))
    for values in [
        ("MW", "IL", "Cook", "white", "0", "true", "5"),
        ("MW", "IN", "Adams", "black", "1", "false", "-5"),
        ("S", "TX", "é😀", "😀", None, "x", "12.7"),
    ]
]


def test_files_of_several_partitions_and_row_groups_are_one_table(engine, tmp_path):
    race = [["a", "b", None][i % 3] for i in range(3000)]
    for part in range(4):
        folder = tmp_path / f"race={part}"
        folder.mkdir()
        table = pa.table({"race": pa.array(race[part::4], pa.string())})
        pq.write_table(table, folder / "x.parquet", row_group_size=100)
    plan = small_plan([{**ONE[0], "by": ["race"]}], {"race": {"keys": ["b", "a"]}})
    assert counted(plan, tmp_path, engine)["q", "all", "count"] == [1000, 1000]


def test_a_column_of_mixed_objects_is_no_reason_to_stop(engine):
    sex = [0, "1", -7.0, None, float("nan"), True, "\ud800", b"1", object(), np.int64(1)]
    frame = pd.DataFrame({"sex": pd.Series(sex, dtype=object)})
    assert counted(small_plan(), frame, engine)["q", "all", "count"] == [1, 2, 1]


def test_no_rows_and_no_known_rows_give_zeros(engine):
    columns = {name: pa.array([], pa.string()) for name in ROW}
    nulls = {name: pa.nulls(3) for name in ROW}
    for source in (pa.table(columns), pa.table(nulls)):
        result = counted(a_plan(), source, engine)
        assert len(result) == 11
        assert not any(any(v) for (name, *_), v in result.items() if name not in ("all", "other"))
    assert result["all", "all", "count"] == [3]


def test_a_hundred_thousand_groups_are_all_found(engine):
    keys = [f"k{i}" for i in range(100_000)]
    picked = np.random.default_rng(0).integers(0, 110_000, 200_000)
    source = pa.table({"x": [f"k{i}" for i in picked]})
    plan = small_plan([{**ONE[0], "by": ["x"]}], {"x": {"keys": keys}})
    right = np.bincount(picked, minlength=110_000)[:100_000].tolist()
    assert counted(plan, source, engine)["q", "all", "count"] == right


def test_a_level_that_is_not_in_the_data_follows_from_the_others(engine):
    table = texts([dict.fromkeys(ROW) | {"region": "S", "state": "TX", "county": "é😀"}])
    result = counted(a_plan(), table.drop(["region"]), engine)
    assert result["total", "county", "count"] == [0, 0, 0, 1]
    with pytest.raises(DataError, match=r"'region'.*do not determine"):
        check_schema(a_plan(), open_table(table.drop(["region", "state"])))


WRONG = [
    (lambda t: t.drop(["race"]), "no column 'race'"),
    (lambda t: t.drop(["age"]), "no column 'age'"),
    (lambda t: t.set_column(3, "race", pa.array([[1]])), "column 'race' has type"),
    (lambda t: t.set_column(3, "race", pa.array([1])), "key 'white' can never"),
    (lambda t: t.set_column(4, "sex", pa.array([True])), "key '0' can never"),
    (lambda t: t.set_column(4, "sex", pa.array([date(2000, 1, 1)])), "key '0' is not a day"),
    (lambda t: t.set_column(5, "owner", pa.array([date(2000, 1, 1)])), "key 'true' is not a day"),
    (lambda t: t.set_column(3, "race", pa.array([1.0])), "write the keys as whole numbers"),
    (lambda t: t.set_column(0, "region", pa.array([1.0])), "write integer = ['region'] in [hier"),
    (lambda t: t.set_column(6, "age", pa.array([date(2000, 1, 1)])), "do not add up"),
]


def test_data_of_the_wrong_form_are_refused_with_the_column(engine, tmp_path):
    table = pa.table({name: pa.array(["x"]) for name in ROW})
    path = tmp_path / "people.parquet"
    for change, said in WRONG:
        with pytest.raises(DataError, match=re.escape(said)):
            check_schema(a_plan(), open_table(change(table), engine, rows=False))
        pq.write_table(change(table), path)
        with pytest.raises(DataError, match=re.escape(said)) as caught:
            check_schema(a_plan(), open_table(path, engine, rows=False), path)
        assert str(path) in str(caught.value)


def test_a_unit_that_is_named_by_floats_is_refused():
    plan = small_plan(rows=2, id="id")
    with pytest.raises(DataError, match="'id' has type float64"):
        check_schema(plan, open_table(pa.table({"id": [1.5], "sex": [1]}), rows=False))


def test_what_is_no_source_is_refused(engine, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    for source in (tmp_path / "none.parquet", tmp_path, tmp_path / "x.json", 3, [1]):
        with pytest.raises(DataError):
            open_table(source, engine)
    for wrong in ({"engine": "other"}, {"memory": "much"}, {"memory": "4"}):
        with pytest.raises(DataError, match=re.escape(repr(next(iter(wrong.values()))))):
            open_table(pa.table({"x": [1]}), **wrong)
    with pytest.raises(DataError, match="master"):
        open_table(pa.table({"x": [1]}), master="local[1]")


def test_large_values_neither_overflow_nor_stop(engine):
    age = pa.array([2**63 - 1, -(2**63), 2**53 + 1, None], pa.int64())
    rows = [dict.fromkeys(ROW) | {"age": v} for v in age.to_pylist()]
    check(a_plan(), texts(rows, age=age), rows, engine)
