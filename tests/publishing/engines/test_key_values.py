"""Keys and numbers by the types of columns: what each value is, and what is refused."""

import csv
import decimal
from datetime import date
from decimal import Decimal

import duckdb
import ibis
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from test_engine import ONE, small_plan

from each_engine import on_each
from neyman import Ledger
from neyman.publishing import DataError, Plan, PlanError, as_source, check_schema, open_table
from neyman.publishing import run as run_module
from plain_engine import canonical, counted
from plans import release

INTEGERS = {"sex": {"keys": [0, 1, -7]}}
TRUTH = {"sex": {"keys": [True, False]}}
QUOTED = {"sex": {"keys": ["0", "1"]}}
TRUE = ["True", "TRUE", "true", "t", "T", "1", "1.0", "01", "1e0"]
FALSE = ["False", "FALSE", "false", "f", "F", "0", "0.0", "-0", "0e5"]
NEITHER = ["", "yes", "tRUE", "true ", " t", "2", "0.5", "trüe", "falſe", "\\x31", "1\\", "on"]
NUMBERS = [
    "0", "1", "-7", "0.0", "1.0", "-7.0", "01", "-0", "1e0", "10E-1", "1.5", "+1", " 1", ".0",
]  # fmt: skip
"""What a text may be: keys in every way of writing them, and what resembles one."""


def write(path, values):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("sex", "other"), *((value, "x") for value in values)])
    return path


def count(source, engine="duckdb", columns=INTEGERS):
    return counted(small_plan(ONE, columns), source, engine)["q", "all", "count"]


def test_whole_floats_match_whole_keys(engine, tmp_path):
    values = [0.0, -0.0, 1.0, -7.0, 0.5, 2.0, None]
    pq.write_table(pa.table({"sex": values}), tmp_path / "x.parquet")
    path = write(tmp_path / "x.csv", ["" if v is None else repr(v) for v in values])
    for source in (pa.table({"sex": values}), tmp_path / "x.parquet", path):
        assert count(source, engine) == [2, 1, 1]
        assert count(source, engine, TRUTH) == [1, 2]


def test_each_way_to_write_true_and_false_matches_a_boolean_key(engine, tmp_path):
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
    assert count(pa.table({"sex": values}), engine, TRUTH) == [2, 1]


def test_keys_in_quotes_are_texts_and_match_only_themselves(engine, tmp_path):
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
    values = [v.encode("utf-8", "replace").decode() for v in values]
    rows = pa.table({"sex": pa.array(values, pa.string())})
    for kind, keys in (("whole", [0, 1, -7]), ("boolean", [True, False])):
        result = count(rows, engine, {"sex": {"keys": keys, "unknown": keys[0]}})
        assert sum(result) == len(values)
        texts = [str(key).lower() for key in keys]
        alone = [canonical(value, kind) for value in values]
        assert result[1:] == [alone.count(text) for text in texts[1:]]


def place_plan(keys, integer=(), levels=("state", "county")):
    return Plan.from_dict({
        "schema": 2, "name": "places", "dataset": "test@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "hierarchy": {"place": {"levels": list(levels), "keys": keys, "integer": list(integer)}},
        "budget": {"zcdp": 1},
        "query": [{"name": "q", "measure": "count", "at": [levels[-1]], "share": 1}],
    })  # fmt: skip


def test_a_level_that_is_declared_integer_matches_numbers_in_any_form(engine, tmp_path):
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
    plan = place_plan([["AL", "1001"]])
    path = tmp_path / "x.csv"
    path.write_text("state,county\nAL,1001\nAL,1001.0\nAL,01001\n")
    assert counted(plan, path, engine)["q", "county", "count"] == [1]
    with pytest.raises(DataError, match=r"write integer = \['county'\] in \[hierarchy\.place\]"):
        check_schema(plan, open_table(pa.table({"state": ["AL"], "county": [1001.0]}), engine))


@pytest.mark.parametrize(("keys", "integer", "said"), [
    ([["AL", "x"]], ["county"], "county = 'x', and integer lists 'county'"),
    ([["AL", "٣"]], ["county"], "write a whole number"),
    ([["AL", "7"], ["IL", "07"]], ["county"], "the same number as '7'"),
    ([["AL", "7"]], ["county", "city"], "integer: 'city' is not one of the levels"),
])  # fmt: skip
def test_a_level_whose_names_are_not_distinct_whole_numbers_cannot_be_integer(keys, integer, said):
    with pytest.raises(PlanError, match=said):
        place_plan(keys, integer)


D = decimal.Decimal


def pair(value, kind=None):
    return pa.array([value, None], kind)


def not_utf8(*values):
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def out_of_form(kind, *values):
    """Numbers that their type cannot hold, as a broken writer leaves them."""
    data = b"".join(v.to_bytes(kind.bit_width // 8, "little", signed=True) for v in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


USABLE = {
    "null": pa.nulls(2), "bool": pair(True),
    **{str(k): pair(1, k) for k in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(k): pair(1, k) for k in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "half": pair(1.0, pa.float32()).cast(pa.float16()), "float": pair(1.0, pa.float32()),
    "double": pair(1.0), "decimal32": pair(D("1.00"), pa.decimal32(5, 2)),
    "decimal64": pair(D("1.00"), pa.decimal64(15, 2)),
    "decimal128": pair(D("1.00"), pa.decimal128(20, 2)), "widest": pair(D(1), pa.decimal128(38, 0)),
    "date32": pair(date(2020, 2, 29)), "date64": pair(date(2020, 2, 29), pa.date64()),
    "string": pair("1"), "large": pair("1", pa.large_string()), "view": pair("1", pa.string_view()),
    "words": pair("1").dictionary_encode(), "numbers": pair(1).dictionary_encode(),
    "halves": pa.DictionaryArray.from_arrays(
        pair(0, pa.int8()), pa.array([1.0], pa.float32()).cast(pa.float16()),
    ),
}  # fmt: skip
ARROW_ONLY = {
    "runs": pc.run_end_encode(pair("1")),
    "integer runs": pc.run_end_encode(pair(1)),
    "odd index": pa.DictionaryArray.from_arrays(pair(2, pa.uint64()), pa.array(["a", None, "1"])),
}
NEVER = {
    "decimal256": pair(D("1.00"), pa.decimal256(50, 2)),
    "narrow decimal256": pair(D("1.00"), pa.decimal256(20, 2)), "seconds": pair(1, pa.time32("s")),
    "time": pair(1, pa.time64("ns")), "duration": pair(1, pa.duration("s")), "bytes": pair(b"1"),
    "large bytes": pair(b"1", pa.large_binary()), "byte view": pair(b"1", pa.binary_view()),
    "two bytes": pair(b"11", pa.binary(2)), "list": pair([1]),
    "large list": pair([1], pa.large_list(pa.int64())),
    "list view": pair([1], pa.list_view(pa.int64())),
    "fixed list": pair([1], pa.list_(pa.int64(), 1)), "struct": pair({"a": 1}),
    "map": pair([("a", 1)], pa.map_(pa.string(), pa.int64())),
    "wide dictionary": pa.DictionaryArray.from_arrays(
        pair(0, pa.int8()), pa.array([D("1.00")], pa.decimal256(50, 2)),
    ),
    "uuid": pair(b"1" * 16, pa.uuid()), "json": pair("1", pa.json_()),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pair(1, pa.int8())),
}  # fmt: skip
NEVER_ARROW_ONLY = {
    "negative scale": pair(D("1E+3"), pa.decimal128(5, -2)),
    "months": pair((1, 2, 3), pa.month_day_nano_interval()),
    "union": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["1"])]
    ),
}
KEYS = {
    "bool": [True], "date32": ["2020-02-29"], "date64": ["2020-02-29"],
    **{n: ["1"] for n in ("null", "string", "large", "view", "words", "runs", "odd index")},
}  # fmt: skip
FLOATS = {"half", "float", "double", "halves"}


def plan_of(names):
    """A plan that counts by, or adds up, each column that may be used so."""
    columns, query = {}, []
    share = f"1/{len(names) + 1}"
    for name in names:
        asked = {"name": f"q {name}", "share": share}
        if name in FLOATS:
            columns[name] = {"integer": True, "unknown": 0}
            query.append({**asked, "measure": "sum", "column": name, "clip": [0, 5]})
        else:
            columns[name] = {"keys": KEYS.get(name, [1])}
            query.append({**asked, "measure": "count", "by": [name]})
    columns["race"] = {"keys": ["a", "b"]}
    query.append({"name": "race", "measure": "count", "by": ["race"], "share": share})
    return small_plan(query, columns)


def check(result, names):
    race = result.pop(("race", "all", "count"))
    right = {("q " + n, "all", "sum" if n in FLOATS else "count"): [1] for n in names}
    right["q null", "all", "count"] = [0]
    assert result == right
    return race


RACES = {"text": pa.array(["a", "b"]), "bytes": not_utf8(b"a", b"\xff")}


@pytest.mark.parametrize("race", RACES)
def test_every_type_is_counted_or_refused_by_its_type_whatever_is_beside_it(engine, tmp_path, race):
    table = pa.table({**USABLE, **NEVER, "race": RACES[race]})
    path = tmp_path / "people.parquet"
    pq.write_table(table, path)
    for name in NEVER:
        with pytest.raises(DataError, match=f"column '{name}' has type"):
            open_table(path, engine, [name], rows=False)
    unreadable = []
    for name in USABLE if engine == "spark" else ():
        try:
            open_table(path, engine, [name], rows=False)
        except DataError:
            unreadable.append(name)
    assert unreadable == (["half", "halves"] if engine == "spark" else [])
    names = [name for name in USABLE if name not in unreadable]
    result = counted(plan_of(names), path, engine)
    assert check(result, names) == [1, int(race == "text")]


def test_every_type_of_an_arrow_table_is_counted_or_refused_by_its_type(engine):
    usable, never = {**USABLE, **ARROW_ONLY}, {**NEVER, **NEVER_ARROW_ONLY}
    table = pa.table({**usable, **never, "race": RACES["bytes"]})
    for name in never:
        with pytest.raises(DataError, match=f"column '{name}' has type"):
            open_table(table, engine, [name], rows=False)
    assert check(counted(plan_of(list(usable)), table, engine), usable) == [1, 0]


def test_a_form_has_each_column_and_a_plan_that_uses_none_of_its_types_is_refused(engine):
    table = pa.table({**USABLE, **ARROW_ONLY, **NEVER, **NEVER_ARROW_ONLY})
    form = open_table(table, engine, rows=False)
    assert list(form.columns) == table.column_names
    for name in (*NEVER, *NEVER_ARROW_ONLY):
        with pytest.raises(DataError, match="has type"):
            check_schema(small_plan([{**BY, "by": [name]}], {name: {"keys": ["1"]}}), form)


BY = {"name": "q", "measure": "count", "share": 1}
ODD = {
    "decimal(5, 2)": out_of_form(pa.decimal128(5, 2), 10**30, -(10**37), 100),
    "decimal(15, 2)": out_of_form(pa.decimal128(15, 2), 10**30, -(10**37), 100),
    "decimal(38, 2)": out_of_form(pa.decimal128(38, 2), 2**127 - 1, -(2**127), 100),
    "decimal32": out_of_form(pa.decimal32(3, 2), 2**31 - 1, -(2**31), 100),
    "decimal64": out_of_form(pa.decimal64(12, 2), 2**63 - 1, -(2**63), 100),
}
DAYS = {
    "date32": out_of_form(pa.date32(), 2**31 - 1, -(2**31), -(2**31) + 1, 1),
    "date64": out_of_form(pa.date64(), 2**63 - 1, -(2**63), 2**31 * 86_400_000, 86_400_001),
}


@pytest.mark.parametrize("name", ODD)
def test_a_decimal_that_its_type_cannot_hold_is_missing(engine, name):
    plan = small_plan([{**BY, "by": ["x"]}], {"x": {"keys": [1]}})
    assert counted(plan, pa.table({"x": ODD[name]}), engine)["q", "all", "count"] == [1]
    total = [{**BY, "measure": "sum", "column": "x", "clip": [0, 9]}]
    plan = small_plan(total, {"x": {"integer": True, "unknown": 3}})
    assert counted(plan, pa.table({"x": ODD[name]}), engine)["q", "all", "sum"] == [7]


@pytest.mark.parametrize("name", DAYS)
def test_a_date_out_of_all_calendars_is_an_unknown_key(engine, name):
    plan = small_plan([{**BY, "by": ["x"]}], {"x": {"keys": ["1970-01-02"]}})
    assert counted(plan, pa.table({"x": DAYS[name]}), engine)["q", "all", "count"] == [1]


def test_text_that_is_not_utf8_is_the_same_number_for_both_readers_of_a_file(tmp_path):
    """Parts of characters, which are only beside each other a character, in each encoding."""
    values = [
        b"\xc3", b"\xa9", b"7\xc3", b"\xa9", b"7", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0",
    ]  # fmt: skip
    encodings = ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY"]
    for encoding in encodings:
        given = (
            {"use_dictionary": True}
            if encoding == "RLE_DICTIONARY"
            else {"use_dictionary": False, "column_encoding": encoding}
        )
        path = tmp_path / f"{encoding}.parquet"
        pq.write_table(pa.table({"x": not_utf8(*values)}), path, **given)
        total = [{**BY, "measure": "sum", "column": "x", "clip": [0, 9]}]
        plan = small_plan(total, {"x": {"integer": True, "unknown": 1}})
        assert counted(plan, path)["q", "all", "sum"] == [len(values) - 1 + 7]
        plan = small_plan([{**BY, "by": ["x"]}], {"x": {"keys": ["é", "7"]}})
        assert counted(plan, path)["q", "all", "count"] == [0, 1]


# Kinds of data

PEOPLE = pa.table({"sex": [0, 1, 1, None], "age": [1.5, 2.5, None, 4.0]})


class Stream:
    """Something with a stream that is asked for once, and no schema beside it."""

    def __init__(self, table):
        self.left = [table]

    def __arrow_c_stream__(self, requested_schema=None):
        return self.left.pop().to_reader().__arrow_c_stream__(requested_schema)


class SchemaStream(Stream):
    """The same with a schema: the stream is not touched before the rows are read."""

    def __arrow_c_schema__(self):
        return PEOPLE.schema.__arrow_c_schema__()


EXTRA = pa.table({"sex": [0, 0], "age": [1.5, 1.5], "x": [2, 2]})


def parquet_dataset(folder, more=None):
    folder.mkdir(exist_ok=True)
    for number in range(2):
        pq.write_table(PEOPLE.slice(2 * number, 2), folder / f"{number}.parquet")
    if more is not None:
        pq.write_table(more, folder / "more.parquet")
    return ds.dataset(folder, schema=None if more is None else more.schema)


SOURCES = {
    "table": lambda folder: PEOPLE,
    "batch": lambda folder: PEOPLE.to_batches()[0],
    "reader": lambda folder: PEOPLE.to_reader(),
    "stream": lambda folder: Stream(PEOPLE),
    "stream with a schema": lambda folder: SchemaStream(PEOPLE),
    "dataset of files": parquet_dataset,
    "dataset of a table": lambda folder: ds.dataset(PEOPLE),
    "dataset of a reader": lambda folder: ds.dataset(PEOPLE.to_reader()),
    "filtered dataset": lambda folder: ds.dataset(
        pa.concat_tables([PEOPLE.append_column("x", pa.array([1] * 4)), EXTRA])
    ).filter(pc.field("x") == 1),
    "filtered dataset of files": lambda folder: parquet_dataset(folder, EXTRA).filter(
        pc.field("x").is_null()
    ),
    "union of datasets": lambda folder: ds.dataset(
        [ds.dataset(PEOPLE.slice(0, 1)), ds.dataset(PEOPLE.slice(1))]
    ),
    "scanner": lambda folder: ds.dataset(PEOPLE).scanner(),
    "scanner of a reader": lambda folder: ds.Scanner.from_batches(PEOPLE.to_reader()),
    "relation": lambda folder: duckdb.connect().sql(
        "select * from (values (0, 1.5), (1, 2.5), (1, null), (null, 4.0)) t (sex, age)"
    ),
    "pandas": lambda folder: PEOPLE.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas floats": lambda folder: pd.DataFrame({"sex": pd.Series([0, 1, 1, None], dtype=object)}),
    "relation with odd types": lambda folder: duckdb.connect().sql(
        "select *, null::interval i, null::union(a int) u, null::variant v from (values (0), (1), "
        "(1), (null)) t (sex)"
    ),
    "polars with odd types": lambda folder: pl.from_arrow(PEOPLE).with_columns(
        wide=pl.lit(1, pl.Int128),
        span=pl.duration(days=1),
        thing=pl.Series([{1}] * 4, dtype=pl.Object),
    ),
    "narwhals": lambda folder: nw.from_native(PEOPLE),
    "narwhals of pandas": lambda folder: nw.from_native(
        PEOPLE.to_pandas(types_mapper=pd.ArrowDtype)
    ),
    "lazy narwhals": lambda folder: nw.from_native(duckdb.from_arrow(PEOPLE)),
    "narwhals of ibis": lambda folder: nw.from_native(ibis.memtable(PEOPLE)),
    "memory table": lambda folder: ibis.memtable(PEOPLE),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_data_is_counted_and_its_rehearsal_takes_no_row(engine, tmp_path, kind):
    source = as_source(SOURCES[kind](tmp_path / "people"))
    assert counted(small_plan(), source, engine)["q", "all", "count"] == [1, 2, 0]


@pytest.mark.parametrize("kind", ["reader", "stream", "dataset of files", "relation", "scanner"])
def test_a_release_reads_a_stream_once_and_a_failed_check_leaves_it_whole(tmp_path, kind):
    ledger = Ledger(tmp_path / "ledger.db")
    source = SOURCES[kind](tmp_path / "people")
    with pytest.raises(Exception, match="there is no ledger"):
        release(small_plan(), source, ledger, tmp_path / "out")
    ledger.create("test@1", protects="person", neighboring="replace-one", cap=1)
    if kind != "stream":
        wrong = small_plan([{**BY, "by": ["nowhere"]}], {"nowhere": {"keys": ["1"]}})
        with pytest.raises(DataError, match="no column 'nowhere'"):
            release(wrong, source, ledger, tmp_path / "out")
    counts = {}

    def counting(plan, table, **_):
        counts["rows"] = int(table.count().to_pyarrow().as_py())
        return aggregate_cells(plan, table)

    aggregate_cells = run_module.aggregate_cells
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "aggregate_cells", counting)
        release(small_plan(), source, ledger, tmp_path / "out")
    assert counts == {"rows": 4}
    assert ledger.account("test@1").spent == 1


class Nothing:
    pass


REFUSED = {
    "numbers": lambda folder: [[1, 2]], "a dictionary": lambda folder: {"sex": [1]},
    "an array": lambda folder: np.zeros(3), "an Arrow array": lambda folder: pa.array([1]),
    "a series": lambda folder: pd.Series([1], name="sex"),
    "a generator": lambda folder: (batch for batch in PEOPLE.to_batches()),
    "a file": lambda folder: (folder / "x").open("wb"),
    "a connection": lambda folder: duckdb.connect(), "nothing": lambda folder: None,
    "an object": lambda folder: Nothing(),
    "a narwhals series": lambda folder: nw.from_native(pd.Series([1]), series_only=True),
    "a closed relation": lambda folder: closed_relation(),
}  # fmt: skip


def closed_relation():
    connection = duckdb.connect()
    relation = connection.sql("select 1 as sex")
    connection.close()
    return relation


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_every_other_kind_of_data_is_refused_before_the_charge(tmp_path, kind):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("test@1", protects="person", neighboring="replace-one", cap=1)
    with pytest.raises(DataError, match="data"):
        release(small_plan(), {"people": REFUSED[kind](tmp_path)}, ledger, tmp_path / "out")
    assert ledger.account("test@1").spent == 0


def test_a_dataset_whose_types_follow_from_rows_or_differ_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("sex\n0\n")
    pq.write_table(pa.table({"sex": pa.array([0], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"sex": pa.array([2**40])}), tmp_path / "b.parquet")
    (tmp_path / "c.parquet").symlink_to(tmp_path / "a.parquet")
    wrong = {
        "types follow from their rows": ds.dataset(tmp_path / "a.csv", format="csv"),
        "one type in all files": ds.dataset([tmp_path / "a.parquet", tmp_path / "b.parquet"]),
        "twice": ds.dataset([tmp_path / "a.parquet", tmp_path / "c.parquet"]),
    }
    for said, dataset in wrong.items():
        for source in (dataset, ds.dataset([dataset])):
            with pytest.raises(DataError, match=said):
                open_table(source, columns=["sex"], rows=False)


def test_a_relation_of_the_widest_integers_is_counted():
    """DuckDB gives them as decimals of 38 digits, which they may exceed."""
    relation = duckdb.connect().sql(
        "select unnest([-170141183460469231731687303715884105728,"
        " 170141183460469231731687303715884105727, 1])::hugeint as sex"
    )
    assert counted(small_plan(), as_source(relation))["q", "all", "count"] == [0, 1, 0]
    relation = duckdb.connect().sql("select 1::uhugeint as sex, 0 as other")
    assert list(open_table(relation, columns=["other"]).columns) == ["other"]
    with pytest.raises(DataError, match="at most 38 digits"):
        open_table(relation, columns=["sex"], rows=False)


def test_names_of_a_relation_are_not_read_as_sql():
    relation = duckdb.connect().sql('select 1 as "a"", ""b", 2 as "sex; drop"')
    plan = small_plan([{**BY, "by": ['a", "b']}], {'a", "b': {"keys": [1]}})
    assert counted(plan, as_source(relation))["q", "all", "count"] == [1]


def test_a_pandas_column_has_the_type_that_it_has_without_rows():
    frame = pd.DataFrame({"sex": pd.Categorical([0, 1, None], categories=[0, 1]), "n": [1, 2, 3]})
    assert counted(small_plan(), as_source(frame))["q", "all", "count"] == [1, 1, 0]
    for series in (pd.Series([1, None], dtype="Sparse[float]"), pd.Series([1 + 2j, 3])):
        form = open_table(pd.DataFrame({"x": series}), rows=False)
        assert open_table(pd.DataFrame({"x": series})).schema() == form.schema()


def test_text_of_each_layout_in_a_dataset_of_files_is_read(tmp_path):
    days = pa.array([0, 1, 2], pa.date32())
    for number, kind in enumerate((pa.string(), pa.large_string())):
        table = pa.table({"sex": pa.array(["a", "b", "a"], kind), "day": days})
        folder = tmp_path / str(number)
        pq.write_to_dataset(table, folder)
        opened = open_table(ds.dataset(folder), columns=["sex", "day"])
        assert sorted(opened.to_pyarrow()["sex"].to_pylist()) == ["a", "a", "b"]
    wide = pa.table({"sex": ["a", "b"], "x": pa.array([1, 2], pa.decimal256(20, 0))})
    opened = open_table(ds.dataset(wide), columns=["sex"])
    assert opened.to_pyarrow()["sex"].to_pylist() == ["a", "b"]


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
