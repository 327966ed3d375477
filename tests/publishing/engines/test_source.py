"""Sources whose content may be anything: rows stay apart, no value is printed."""

import contextlib
import csv
import gc
import re
import sqlite3
import stat
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from test_engine import small_plan

from neyman.publishing import (
    DataError,
    Plan,
    Source,
    aggregate_cells,
    check_schema,
    columns_read,
    open_table,
    prepared,
    rehearse,
    with_plain_texts,
)
from plain_engine import KEY, aggregate, counted

HISTOGRAM = [{"name": "q", "measure": "count", "by": ["race"], "share": 1}]
SECRET = "Mallory Secret"


def a_plan(keys=("a", "b"), query=HISTOGRAM, columns=None, **unit) -> Plan:
    return Plan.from_dict({
        "schema": 2, "name": "p", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": "replace-one", **unit},
        "columns": columns or {"race": {"keys": list(keys)}}, "budget": {"zcdp": "1/2"},
        "query": list(query),
    })  # fmt: skip


def cells(plan, source):
    """The cells of each query, by the way of a run."""
    schema = open_table(source, rows=False)
    columns = columns_read(plan, list(schema.columns))
    check_schema(plan, schema)
    rehearse(plan, schema)
    result = aggregate(plan, open_table(source, columns=columns or None))
    return {table: values.tolist() for (table, _, _), values in result.items()}


def counts(plan, source):
    return cells(plan, source)["q"]


@pytest.fixture
def people(tmp_path):
    def write(content: bytes, name: str = "people.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write


LINES = st.lists(
    st.sampled_from(
        [b"", b",", b'"', b'""', b"a", b"b", b"\r", b"\xff", b"\x00", b'"a"', b",a", b"\xef\xbb"]
    ),
    max_size=8,
).map(b"".join)


def test_one_more_line_with_a_stray_quote_moves_no_other_row(people):
    rows = b"".join(b"%d,a\n" % i for i in range(1000))
    single = b'id,race\n9,"a\n' + rows
    assert counts(a_plan(), people(single)) == [1000, 0]
    assert counts(a_plan(), people(single + b'10,"a\n')) == [1000, 0]


def test_a_line_break_in_quotes_makes_ill_formed_lines_and_no_others(people):
    assert counts(a_plan(), people(b'id,race\n"x\ny",a\n1,b\n')) == [0, 1]


def test_a_carriage_return_within_a_line_costs_that_line_with_and_without_quotes_nearby(people):
    for other in (b"", b'"9",a\n'):
        rest = counts(a_plan(), people(b"id,race\n1,b\n" + other))
        for line in (b"7\r7,a\n", b"7,\ra\n", b"\r7,a\n", b"7,a\r\r\n", b'"7\r",a\n'):
            assert counts(a_plan(), people(b"id,race\n1,b\n" + line + other)) == rest, line


def test_text_that_is_no_utf8_is_an_unknown_key_of_its_own_row(people):
    rows = b"a,a\n\xff,a\na,\xff\na,a\xff\n"
    for quoted in (b"", b'"a","b"\n', b'"\xff","\xff"\n'):
        result = counts(a_plan(), people(b"id,race\n" + rows + quoted))
        assert result == [2, int(b"b" in quoted)]


def not_utf8(*values: bytes | None) -> pa.Array:
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_parquet_file_whose_text_is_no_utf8_is_counted_byte_for_byte(tmp_path, dictionary):
    race = not_utf8(b"a", b"b", b"\xff\xfe", b"a\xff", b"?", None, b"b")
    age = not_utf8(b"5", b"\xff", b"7\xff", b"1", None, b"2", b"3")
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"race": race, "age": age}), path, use_dictionary=dictionary)
    assert counts(a_plan(["a", "b", "?"]), path) == [1, 2, 1]
    total = [{"name": "q", "measure": "sum", "column": "age", "clip": [0, 9], "share": 1}]
    plan = a_plan(query=total, columns={"age": {"integer": True, "unknown": 4}})
    assert counts(plan, path) == [5 + 4 + 4 + 1 + 4 + 2 + 3]


@pytest.mark.parametrize("collation", ["NOCASE", "NOACCENT.NOCASE"])
@pytest.mark.parametrize("column", [True, False])
def test_a_collation_makes_no_two_keys_or_units_equal(collation, column):
    connection = ibis.duckdb.connect()  # pyright: ignore[reportAttributeAccessIssue]
    kind = f"varchar collate {collation}" if column else "varchar"
    if not column:
        connection.raw_sql(f"set default_collation = '{collation}'")
    connection.raw_sql(f"create table t (race {kind}, id {kind})")
    connection.raw_sql("insert into t values ('a', 'x'), ('á', 'X'), ('á', 'x')")
    keys = ["a", "A", "á"]
    assert counts(a_plan(keys), connection.table("t")) == [1, 0, 2]
    every = [{"name": "q", "measure": "count", "share": 1}]
    plan = a_plan(keys, query=every, rows=1, id="id")
    assert counts(plan, connection.table("t")) == [2]


def test_tables_on_other_engines_and_random_ones_are_refused():
    other = ibis.sqlite.connect()  # pyright: ignore[reportAttributeAccessIssue]
    other.raw_sql("create table t (race text collate nocase)")
    random = ibis.memtable(pa.table({"race": ["a"]})).mutate(id=ibis.random())
    for table in (other.table("t"), random, ibis.table({"race": "string"}, name="t")):
        with pytest.raises(DataError):
            open_table(table, rows=False)
    other.disconnect()


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_values_that_are_not_separated_by_commas_are_asked_about(people, mark):
    with pytest.raises(DataError, match=r"\[source\] declare the delimiter"):
        counts(a_plan(), people(f"race{mark}sex\na{mark}b\n".encode()))


def test_no_error_before_the_charge_prints_a_row_of_a_file_without_a_header(people):
    secret = SECRET.encode()
    contents = [
        secret + b",white\nBob,b\n", secret + b"," + secret + b"\n",
        b'id,"race\n' + secret + b',a\n"\n', b"id,race\r" + secret + b",a\r",
        f"id,race\n{SECRET},a\n".encode("utf-16"), secret + b",\xff\n", secret * 100_000,
    ]  # fmt: skip
    for content in contents:
        with pytest.raises(DataError) as caught:
            counts(a_plan(), people(content))
        assert SECRET not in str(caught.value)
        assert "\\x" not in str(caught.value)


def test_two_columns_whose_names_differ_in_case_get_one_answer_from_every_source(people, tmp_path):
    table = pa.table({"Race": ["b", "b"], "race": ["a", "b"], "sex": ["a", "b"]})
    pq.write_table(table, tmp_path / "people.parquet")
    sources = [
        table, table.to_pandas(), pl.from_arrow(table), tmp_path / "people.parquet",
        people(b"Race,race,sex\nb,a,a\nb,b,b\n"),
    ]  # fmt: skip
    by_sex = a_plan(query=[{**HISTOGRAM[0], "by": ["sex"]}], columns={"sex": {"keys": ["a", "b"]}})
    for source in sources:
        assert counts(by_sex, source) == [1, 1]
        for rows in (False, True):
            opened = open_table(source, rows=rows)
            assert opened.columns == ("sex",)
            for name in ("race", "Race"):
                with pytest.raises(DataError, match=f"2 columns called '{name}' if case is"):
                    open_table(source, columns=[name], rows=rows)
    with pytest.raises(DataError, match="'Race' meant"):
        counts(a_plan(), people(b"Race\na\n"))


def test_columns_that_a_plan_does_not_use_may_differ_between_files(people, tmp_path):
    others = [
        {"x": pa.array([1.5, 2.5]), "y": ["p", "q"]},
        {"y": pa.nulls(2), "X": [1, 2]},
        {"z": [b"1", b"2"], "Z": [1, 2], "x": pa.array([[1], [2]])},
    ]
    tables = [pa.table({**other, "race": ["a", "b"]}) for other in others]
    tables.append(pa.table({"race": ["a", "b"]}))
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    for first in range(len(tables)):
        files = [tmp_path / f"{(first + i) % len(tables)}.parquet" for i in range(len(tables))]
        assert counts(a_plan(), files) == [4, 4]
        assert open_table(files).columns == open_table(files, rows=False).columns == ("race",)
    rows = [{"name": "q", "measure": "count", "share": 1}]
    assert counts(a_plan(query=rows), tmp_path) == [8]
    lines = [people(b"race,x\na,1\nb,2\n", "0.csv"), people(b"y,race\n1,a\n2,b\n", "1.csv")]
    assert counts(a_plan(), lines) == [2, 2]
    assert counts(a_plan(query=rows), lines) == [4]
    for names in ("race,,", "race,x,x", ",race,", "x,race,X"):
        places = [name == "race" for name in names.split(",")]
        rows = [",".join(key if own else "p" for own in places) for key in "aba"]
        assert counts(a_plan(), people("\n".join([names, *rows, ""]).encode())) == [2, 1]
    with pytest.raises(DataError, match="has 2 columns called 'race'"):
        open_table(people(b"race,race\na,b\n"), columns=["race"])


def test_a_column_that_one_of_several_files_lacks_is_refused_with_the_file(people, tmp_path):
    pq.write_table(pa.table({"race": ["a"], "x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
    lines = [people(b"race,x\na,1\n", "0.csv"), people(b"x\n1\n", "1.csv")]
    for files in ([tmp_path / "a.parquet", tmp_path / "b.parquet"], lines):
        for order in (files, files[::-1]):
            with pytest.raises(DataError, match="has no column 'race' among its 1") as caught:
                open_table(order, columns=["race"], rows=False)
            assert repr(str(files[1])) in str(caught.value)


def test_names_like_those_the_engine_makes_do_no_harm():
    names = ["one", "unit", "rows", "p0", "b0", "s0", "t0", "j0_t0"]
    columns = {name: {"keys": ["a", "b"]} for name in names}
    query = [
        {"name": f"q{i}", "measure": "count", "by": [name], "share": "1/8"}
        for i, name in enumerate(names)
    ]
    plan = a_plan(query=query, columns=columns)
    table = pa.table({name: ["a"] * i + ["b"] * (9 - i) for i, name in enumerate(names)})
    assert cells(plan, table) == {f"q{i}": [i, 9 - i] for i in range(8)}


def test_sums_of_one_column_with_several_clips_stay_apart():
    columns = {"x": {"integer": True, "unknown": 0}, "y": {"integer": True, "unknown": 0}}
    query = [
        {"name": f"q{i}", "measure": "sum", "column": name, "clip": clip, "share": "1/4"}
        for i, (name, clip) in enumerate(
            [("x", [0, 5]), ("y", [0, 5]), ("x", [0, 9]), ("y", [1, 2])]
        )
    ]
    plan = a_plan(query=query, columns=columns)
    table = pa.table({"x": [7, 7], "y": [3, 1]})
    assert cells(plan, table) == {"q0": [10], "q1": [4], "q2": [14], "q3": [3]}


def test_a_plan_that_only_counts_rows_counts_them_in_every_kind_of_source(people, tmp_path):
    plan = a_plan(query=[{"name": "q", "measure": "count", "share": 1}])
    table = pa.table({"id": ["1", "2", None], "race": ["a", "b", "c"]})
    pq.write_table(table, tmp_path / "people.parquet")
    sources = [table, table.to_pandas(), ibis.memtable(table), tmp_path / "people.parquet"]
    lines = b"\n1,a\n2,b\n,c\n"
    files = [people(name + lines, f"{i}.csv") for i, name in enumerate((b",race", b",", b"x,X"))]
    for source in (*sources, *files):
        assert counts(plan, source) == [3]


def test_a_file_that_is_no_parquet_is_refused_without_its_content(tmp_path):
    (tmp_path / "a.parquet").write_text(SECRET)
    with pytest.raises(DataError, match="not readable Parquet") as caught:
        open_table(tmp_path, rows=False)
    assert SECRET not in str(caught.value)


def test_a_rehearsal_finds_what_cannot_be_counted_and_reads_no_row():
    connection = ibis.duckdb.connect()  # pyright: ignore[reportAttributeAccessIssue]
    connection.raw_sql("create table t as select 'a' as race")
    connection.raw_sql("create view v as select error('a row was read') as race from t")
    rehearse(a_plan(), connection.table("v"))
    gone = connection.table("t")
    connection.raw_sql("drop view v")
    connection.raw_sql("drop table t")
    with pytest.raises(DataError, match="rehearsal"):
        rehearse(a_plan(), gone)


def test_spilled_rows_go_to_a_folder_of_this_user_alone_that_is_removed(people):
    data = pa.table({"race": ["a"]})
    before = set(Path(tempfile.gettempdir()).glob("neyman-*"))
    for source in (data, data.to_pandas(), people(b"race\na\n"), ibis.memtable(data)):
        table = open_table(source)
        setting = "select current_setting('temp_directory')"
        connection: Any = table.get_backend()
        answer = connection.raw_sql(setting).fetchall()
        folder = Path(answer[0][0]).parent
        assert folder not in before
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert aggregate(a_plan(), table)["q", "all", "count"].tolist() == [1, 0]
        del table, connection
        gc.collect()
        assert not folder.exists()


def test_columns_of_nothing_but_null_are_text(tmp_path):
    table = pa.table({"k": pa.nulls(2), "n": [1, 2]})
    pq.write_table(table, tmp_path / "x.parquet")
    for source in (table, tmp_path / "x.parquet", table.to_pandas()):
        for rows in (False, True):
            assert open_table(source, rows=rows).schema()["k"].is_string()


@pytest.mark.parametrize("memory", ["lots", "1XB", "", 5])
def test_an_amount_of_memory_that_is_none_is_refused_without_rows(memory):
    with pytest.raises(DataError, match="memory = "):
        open_table(pa.table({"n": [1]}), rows=False, memory=memory)


MISSING = [
    # a text, and whether it is missing
    (None, True),
    ("", True),
    (" ", False),
    ("NULL", False),
    ("NaN", False),
    ("n/a", False),
    ("x", False),
]


def every_source(table: pa.Table, folder: Path) -> dict[str, Any]:
    pq.write_table(table, folder / "t.parquet")
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
        )
    frame, texts = table.to_pandas(), ", ".join(f"{name} TEXT" for name in table.column_names)
    marks = ", ".join("?" * table.num_columns)
    rows = list(zip(*table.to_pydict().values(), strict=True))
    with contextlib.closing(sqlite3.connect(folder / "t.sqlite")) as connection:
        connection.execute(f"CREATE TABLE t ({texts})")
        connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
        connection.commit()
    with duckdb.connect(folder / "t.duckdb") as connection:
        connection.execute(f"CREATE TABLE t ({texts})")
        connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    coded = pa.table({name: table[name].dictionary_encode() for name in table.column_names})
    own = ibis.duckdb.connect()  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "csv": folder / "t.csv", "parquet": folder / "t.parquet", "arrow": table,
        "dictionaries": coded, "dataset": ds.dataset(folder / "t.parquet"),
        "pandas objects": frame.astype(object), "pandas string": frame.astype("string"),
        "pandas arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas category": frame.astype("category"), "polars": pl.from_arrow(table),
        "relation": duckdb.from_arrow(table), "ibis in memory": ibis.memtable(table),
        "ibis": own.read_parquet(folder / "t.parquet"),
        "duckdb file": f"duckdb://{folder}/t.duckdb?table=t",
        "sqlite": f"sqlite://{folder}/t.sqlite?table=t",
    }  # fmt: skip


def test_one_table_says_what_is_missing_in_every_source(tmp_path):
    texts = [text for text, _ in MISSING]
    table = pa.table({name: pa.array(texts, pa.string()) for name in ("id", "key", "word")})
    present = sum(not missing for _, missing in MISSING)
    queries = [
        {"name": "rows", "measure": "count"},
        {"name": "units", "measure": "units"},
        {"name": "keys", "measure": "count", "by": ["key"]},
        {"name": "different", "measure": "distinct", "column": "key"},
        {"name": "none", "measure": "count", "by": ["none"]},
        {"name": "mapped", "measure": "count", "by": ["mapped"]},
    ]
    plan = Plan.from_dict({
        **a_plan(id="id").canonical(),
        "columns": {
            "key": {"keys": [" ", "NULL", "NaN", "n/a", "x", "?"], "unknown": "?"},
            "word": {"type": "text"},
        },
        "derive": {
            "none": {"expression": "word is None"},
            "mapped": {"map": "word", "to": {" ": "blank", "x": "x"}, "unknown": "other"},
        },
        "query": [{**query, "share": "1/6"} for query in queries],
    })  # fmt: skip
    right = {
        "rows": [present], "units": [present], "keys": [1] * present + [0], "different": [present],
        "none": [0, present], "mapped": [1, 1, present - 2],
    }  # fmt: skip
    for name, source in every_source(table, tmp_path).items():
        opened = open_table(source, columns=columns_read(plan, table.column_names))
        with prepared(plan, opened) as rows:
            result = aggregate(plan, rows)
        counted = {table: values.tolist() for (table, _, _), values in result.items()}
        assert counted == right, name


def decision(source, part: dict[str, Any], **query) -> str:
    """What a run answers to a source before its charge; empty if it would count it."""
    given = {"name": "q", "measure": "count", "share": "1", **query}
    plan = Plan.from_dict({**a_plan().canonical(), "columns": {"x": part}, "query": [given]})
    try:
        Source.of(plan, source, "duckdb", None, None).rehearse(plan)
    except DataError as error:
        return str(error)
    return ""


NUMBERS = {
    "mean": ({"integer": True}, {"measure": "mean", "column": "x", "clip": [0, 9]}),
    "sum": ({"decimals": 2}, {"measure": "sum", "column": "x", "clip": [0, 9]}),
    "bins": ({"integer": True}, {"measure": "histogram", "column": "x", "edges": [0, 5, 9]}),
    "expression": ({"type": "whole"}, {"where": "x > 3"}),
    "expression over keys": ({"keys": [1, 2]}, {"where": "x > 3"}),
}
UNTYPED = ("csv", "pandas objects", "pandas category", "sqlite")


@pytest.mark.parametrize("use", NUMBERS)
def test_a_text_column_is_no_number_where_the_schema_gives_the_type(use, tmp_path):
    part, query = NUMBERS[use]
    for name, source in every_source(pa.table({"x": ["1", "n/a", None]}), tmp_path).items():
        answer = decision(source, part, **query)
        if name in UNTYPED:
            assert not answer, name
        else:
            assert re.search(r"'x' has type string.*parse = true", answer), name
        assert not decision(source, {**part, "parse": True}, **query), name
    for kind in (pa.int64(), pa.float32(), pa.null(), pa.decimal128(9, 2)):
        assert not decision(pa.table({"x": pa.nulls(1, kind)}), part, **query), kind
    assert not decision(pa.table({"x": ["1"]}), {"keys": [1, 2]}, by=["x"])


@pytest.mark.parametrize("odd", [None, "n/a", "", 7, 2.5, True, b"\xff", [1], pd.Timestamp(0)])
def test_one_odd_record_in_any_row_decides_nothing(odd, tmp_path):
    part, query = NUMBERS["sum"]
    plan = Plan.from_dict({
        **a_plan().canonical(), "columns": {"x": part},
        "query": [{"name": "q", **query, "share": 1}],
    })  # fmt: skip
    usual = counts(plan, pd.DataFrame({"x": ["1", "2"]}))[0]
    own = 100 * odd if isinstance(odd, (int, float)) else 0
    own = 0 if odd is True else own  # True is the text "true"
    for place in range(3):
        values: list[Any] = ["1", "2"]
        values.insert(place, odd)
        frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
        assert not decision(frame, part, **query)
        assert counts(plan, frame) == [usual + own]
        given = pd.DataFrame({"x": values})  # pandas chooses the dtype: "str" or object
        assert not decision(given, part, **query)
        if isinstance(odd, (str, int, float, type(None))):
            with contextlib.closing(sqlite3.connect(tmp_path / f"{place}.db")) as connection:
                connection.execute("CREATE TABLE t (x)")
                connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
                connection.commit()
            assert not decision(f"sqlite://{tmp_path}/{place}.db?table=t", part, **query)


def test_categories_of_objects_are_read_one_by_one():
    for categories in ([1, 2, "x"], ["1", "2", "x"], [1, 2], ["x", 1, 2]):
        index = pd.Index(categories, dtype=object)
        column = pd.Categorical([categories[0], None, categories[-1]], categories=index)
        opened = open_table(pd.DataFrame({"x": column}))
        assert opened.schema()["x"].is_string()
        texts = [str(categories[0]), None, str(categories[-1])]
        assert opened.to_pyarrow()["x"].to_pylist() == texts


class OddItem:
    """An object that raises when its item is asked for."""

    @property
    def item(self):
        raise RuntimeError


class OddFloat(float):
    def __abs__(self):
        raise RuntimeError


@pytest.mark.parametrize("odd", [OddItem(), OddFloat(2)], ids=["item", "size"])
def test_an_object_that_raises_has_no_value_and_leaves_the_others_alone(odd):
    values = np.array(["a", odd, "a"], dtype=object)
    plan = small_plan([{"name": "q", "measure": "count", "by": ["k"], "share": 1}], KEYED)
    assert counted(plan, pd.DataFrame({"k": values}))["q", "all", "count"] == [2, 0]


KEYED = {"k": {"keys": ["a", "b"]}}


def test_a_dataset_whose_files_differ_in_the_unit_of_a_time_is_refused_by_its_types(tmp_path):
    """Arrow would cast each value, and fail on some."""
    for number, unit in enumerate(("us", "ns")):
        kind = pa.timestamp(unit)
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"d": pa.array([1000], kind)}), path, version="2.6")
    with pytest.raises(DataError, match="has type timestamp"):
        open_table(ds.dataset(tmp_path), columns=["d"], rows=False)


def test_numbers_of_more_digits_than_a_float_keep_their_point_beside_marks():
    values = pd.DataFrame({"d": np.array([1.125, 2.5], dtype=np.longdouble)})
    query = {"name": "q", "measure": "sum", "column": "d", "clip": [0, 100], "share": 1}
    base = small_plan([query], {"d": {"decimals": 3, "unknown": 0}}).canonical()
    plan = Plan.from_dict({**base, "source": {"decimal": ",", "thousands": "."}})
    with with_plain_texts(plan, open_table(values, csv=plan.source)) as table:
        assert aggregate_cells(plan, table, KEY)["q", "all", "sum"].dense().tolist() == [3625]
