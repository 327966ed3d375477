"""Which key a value stands for: one number is one key, in every type and on every engine."""

import csv
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from test_engine import ONE, small_plan

from each_engine import on_each
from neyman.publishing import DataError, Plan, PlanError, check_schema, open_table
from plain_engine import canonical, counted

INTEGERS = {"sex": {"keys": [0, 1, -7]}}
TRUTH = {"sex": {"keys": [True, False]}}
QUOTED = {"sex": {"keys": ["0", "1"]}}
TRUE = ["True", "TRUE", "true", "t", "T", "1", "1.0", "01", "1e0"]
FALSE = ["False", "FALSE", "false", "f", "F", "0", "0.0", "-0", "0e5"]
NEITHER = ["", "yes", "tRUE", "true ", " t", "2", "0.5", "trüe", "falſe", "\\x31", "1\\", "on"]
NUMBERS = [
    "0",
    "1",
    "-7",
    "0.0",
    "1.0",
    "-7.0",
    "01",
    "-0",
    "1e0",
    "10E-1",
    "1.5",
    "+1",
    " 1",
    ".0",
]
"""What a text may be: keys in every way of writing them, and what resembles one."""


def write(path, values):
    """A CSV file with a column of these texts."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("sex", "other"), *((value, "x") for value in values)])
    return path


def count(source, engine="duckdb", columns=INTEGERS):
    return counted(small_plan(ONE, columns), source, engine)["q", "all", "count"]


def test_whole_floats_match_whole_keys(engine, tmp_path):
    """0.0 is 0 in a CSV file, in Parquet and in memory."""
    values = [0.0, -0.0, 1.0, -7.0, 0.5, 2.0, None]
    pq.write_table(pa.table({"sex": values}), tmp_path / "x.parquet")
    path = write(tmp_path / "x.csv", ["" if v is None else repr(v) for v in values])
    for source in (pa.table({"sex": values}), tmp_path / "x.parquet", path):
        assert count(source, engine) == [2, 1, 1]
        assert count(source, engine, TRUTH) == [1, 2]


def test_each_way_to_write_true_and_false_matches_a_boolean_key(engine, tmp_path):
    """True, TRUE, t and 1 are true where the plan says so, and nothing else that resembles them."""
    path = write(tmp_path / "x.csv", [*TRUE, *FALSE, *NEITHER])
    assert count(path, engine, TRUTH) == [len(TRUE), len(FALSE)]
    table = pa.table({"sex": [*TRUE, *FALSE, *NEITHER]})
    assert count(table, engine, TRUTH) == [len(TRUE), len(FALSE)]


TYPES = [
    pa.array([1, 0, 1, 2, None], pa.int8()),
    pa.array([1, 0, 1, 2, None], pa.uint64()),
    pa.array([1, 0, 1, 0.5, float("nan")], pa.float32()),
    pa.array([Decimal(1), Decimal(0), Decimal(1), Decimal("0.5"), None], pa.decimal128(9, 3)),
    pa.array([True, False, True, None, None], pa.bool_()),
]


@pytest.mark.parametrize("values", TYPES, ids=lambda values: str(values.type))
def test_the_numbers_1_and_0_match_true_and_false(engine, values):
    """A column of numbers has truth values where the plan says boolean."""
    assert count(pa.table({"sex": values}), engine, TRUTH) == [2, 1]


def test_keys_in_quotes_are_texts_and_match_only_themselves(engine, tmp_path):
    """250 and 250.0 may be two codes: the plan decides, by quotes, and floats are refused then."""
    assert count(write(tmp_path / "x.csv", [*NUMBERS, *TRUE]), engine, QUOTED) == [1, 2]
    assert count(pa.table({"sex": [0, 1, 1]}), engine, QUOTED) == [1, 2]
    with pytest.raises(DataError, match="write the keys as whole numbers or as true and false"):
        check_schema(small_plan(ONE, QUOTED), open_table(pa.table({"sex": [1.0]}), engine))


@on_each(
    st.lists(
        st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.0, -7.0, 1e-9, 0.9999999999999999]),
        max_size=30,
    )
)
def test_a_float_column_from_csv_counts_like_one_from_parquet(engine, folders, values):
    """Whatever pandas writes for a float, exponents and infinities too, is the same key."""
    folder = folders.mktemp("data")
    frame = pd.DataFrame({"sex": pd.Series(values, dtype="float64"), "other": 1})
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_parquet(folder / "x.parquet")
    for columns in (INTEGERS, TRUTH):
        assert count(folder / "x.csv", engine, columns) == count(
            folder / "x.parquet", engine, columns
        )


@on_each(
    st.lists(
        st.decimals(-(10**6), 10**6, places=6).map(float)
        | st.sampled_from(
            [5e-05, 1.5e-06, 1e16, -1e16, 1e300, float("inf"), float("-inf"), float("nan")]
        ),
        max_size=30,
    )
)
def test_a_sum_over_csv_is_the_sum_over_parquet(engine, folders, values):
    """5e-05 and inf in a CSV file are the numbers that the same floats are in Parquet."""
    folder = folders.mktemp("data")
    frame = pd.DataFrame({"x": pd.Series(values, dtype="float64"), "other": 1})
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_parquet(folder / "x.parquet")
    query = {"name": "q", "measure": "sum", "column": "x", "clip": [-1000, 1000], "share": 1}
    plan = small_plan([query], {"x": {"decimals": 6, "unknown": 3}})
    tables = [counted(plan, folder / name, engine) for name in ("x.csv", "x.parquet")]
    assert tables[0] == tables[1]


@on_each(st.lists(st.sampled_from([*NUMBERS, *TRUE, *FALSE, *NEITHER]) | st.text(max_size=4)))
def test_a_record_falls_into_exactly_one_cell_whatever_the_others_are(engine, folders, values):
    """With a key for the unknown, the counts add up to the rows; the key is the value's alone."""
    values = [v.encode("utf-8", "replace").decode() for v in values]
    rows = pa.table({"sex": pa.array(values, pa.string())})
    for kind, keys in (("whole", [0, 1, -7]), ("boolean", [True, False])):
        result = count(rows, engine, {"sex": {"keys": keys, "unknown": keys[0]}})
        assert sum(result) == len(values)
        texts = [str(key).lower() for key in keys]
        alone = [canonical(value, kind) for value in values]
        assert result[1:] == [alone.count(text) for text in texts[1:]]


def place_plan(keys, integer=(), levels=("state", "county")):
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "places",
            "dataset": "test@1",
            "table": "people",
            "unit": {"protects": "person", "neighboring": "replace-one"},
            "hierarchy": {
                "place": {"levels": list(levels), "keys": keys, "integer": list(integer)}
            },
            "budget": {"zcdp": 1},
            "query": [{"name": "q", "measure": "count", "at": [levels[-1]], "share": 1}],
        }
    )


def test_a_level_that_is_declared_integer_matches_numbers_in_any_form(engine, tmp_path):
    """County 01001 is 1001, 1001.0 and 01001 in the data; it is published as the plan writes it."""
    plan = place_plan([["AL", "01001"], ["IL", "17031"]], ["county"])
    texts = ["1001", "1001.0", "01001", "17031.0", "1.7031e4", "17031.5", "", "x"]
    rows = [f"{'AL' if i < 3 else 'IL'},{text}\n" for i, text in enumerate(texts)]
    path = tmp_path / "x.csv"
    path.write_text("state,county\n" + "".join(rows))
    assert counted(plan, path, engine)["q", "county", "count"] == [3, 2]
    floats = pa.table({"state": ["AL", "IL", "AL"], "county": [1001.0, 17031.0, 17031.0]})
    assert counted(plan, floats, engine)["q", "county", "count"] == [1, 1]
    total = pa.table({"state": ["AL"], "county": [1001]})
    assert counted(plan, total, engine)["q", "county", "count"] == [1, 0]
    assert Plan.from_dict(plan.canonical()) == plan
    assert plan.hierarchy
    assert plan.hierarchy.paths("county")[0] == ("AL", "01001")


def test_a_level_of_texts_matches_texts_and_says_how_floats_would_match(engine, tmp_path):
    """Without the declaration nothing changes, and a float column is refused with the remedy."""
    plan = place_plan([["AL", "1001"]])
    path = tmp_path / "x.csv"
    path.write_text("state,county\nAL,1001\nAL,1001.0\nAL,01001\n")
    assert counted(plan, path, engine)["q", "county", "count"] == [1]
    with pytest.raises(DataError, match=r"write integer = \['county'\] in \[hierarchy\.place\]"):
        check_schema(plan, open_table(pa.table({"state": ["AL"], "county": [1001.0]}), engine))


@pytest.mark.parametrize(
    ("keys", "integer", "said"),
    [
        ([["AL", "x"]], ["county"], "county = 'x', and integer lists 'county'"),
        ([["AL", "٣"]], ["county"], "write a whole number"),
        ([["AL", "7"], ["IL", "07"]], ["county"], "the same number as '7'"),
        ([["AL", "7"]], ["county", "city"], "integer: 'city' is not one of the levels"),
    ],
)
def test_a_level_whose_names_are_not_distinct_whole_numbers_cannot_be_integer(keys, integer, said):
    """Two names of one number would be two places for one row."""
    with pytest.raises(PlanError, match=said):
        place_plan(keys, integer)


@pytest.mark.parametrize(
    ("kind", "ends"), [("int8", (-128, 127)), ("uint8", (0, 255)), ("int64", (-(2**63), 2**63 - 1))]
)
def test_a_whole_key_beyond_the_type_of_the_column_is_refused(kind, ends):
    table = open_table(pa.table({"sex": pa.array([1], type=getattr(pa, kind)())}))
    texts = [str(end) for end in ends]
    check_schema(small_plan(columns={"sex": {"keys": texts}}), table)
    for key in (ends[0] - 1, ends[1] + 1):
        with pytest.raises(DataError, match="can never be one of its values"):
            check_schema(small_plan(columns={"sex": {"keys": [str(key)]}}), table)
