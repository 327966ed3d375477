"""Values and measures on both engines, and each thing in which the two engines differ by nature.

Under one Ibis expression DuckDB and Spark answer differently in the cases below. Each has a test
that the answer here is the same, or that a plan cannot get there.
"""

import ast
import base64
import inspect
import logging
import math
import re
import secrets
import tomllib
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from test_engine import ONE, small_plan

import neyman as ny
from each_engine import on_each
from function_calls import first_calls
from mixed_plan import MIXED
from neyman.publishing import (
    aggregate_cells,
    backend_of,
    close_table,
    key_bytes,
    open_table,
    prepared,
    square_unit,
)
from neyman.publishing.engines.aggregate import _summand
from neyman.publishing.engines.bounding import first_cells, first_rows
from neyman.publishing.engines.expressions import bin_of, scaled_integer, total
from neyman.publishing.plan.measures import range_in
from plain_engine import KEY, check, counted, fetched, number

NAN, INF = float("nan"), float("inf")
COLUMN = {"x": {"integer": True, "unknown": 4}, "g": {"keys": ["a", "b"]}}


def a_sum(clip=(-10, 10), **more):
    return {"name": "q", "measure": "sum", "column": "x", "clip": list(clip), "share": 1, **more}


def one_sum(values, engine, clip=(-10, 10), kind=None, column=None):
    plan = small_plan([a_sum(clip)], {"x": column or COLUMN["x"]})
    source = pa.table({"x": pa.array(values, kind)})
    check(plan, source, [{"x": v} for v in values], engine)
    return counted(plan, source, engine)["q", "all", "sum"][0]


# Known differences


def test_nan_is_neither_above_nor_below_anything(engine):
    """Spark takes NaN for larger than all numbers: a clip would count it as the high end."""
    assert one_sum([NAN, -NAN, 1.0], engine) == 4 + 4 + 1


def test_nan_is_missing(engine):
    assert one_sum([NAN, None, 7.0], engine) == 4 + 4 + 7
    query = {"name": "q", "measure": "histogram", "column": "x", "edges": [0, 4, 5, 9], "share": 1}
    plan = small_plan([query], {"x": COLUMN["x"]})
    result = counted(plan, pa.table({"x": [NAN, None, 7.0]}), engine)
    assert result["q", "all", "count"] == [0, 2, 1]


def test_extremes_and_means_see_no_nan(engine):
    """One NaN makes a mean NaN, and a maximum on one engine: sums here are of whole numbers."""
    query = [a_sum(measure="mean")]
    result = counted(
        small_plan(query, COLUMN), pa.table({"x": [NAN, 1.0], "g": ["a", "b"]}), engine
    )
    assert result["q", "all", "offset"] == [5]
    assert result["q", "all", "count"] == [2]


def test_nan_is_no_key_and_both_zeros_are_one(engine):
    """Whether NaN equals NaN in a group depends on the engine: a float becomes its whole number."""
    values = [NAN, -NAN, INF, -INF, None, 1.0, 1.5, 0.0, -0.0, -7.0, 1e300, 0.9999999999999999]
    result = counted(small_plan(), pa.table({"sex": values}), engine)
    assert result["q", "all", "count"] == [2, 1, 1]


def test_numbers_are_rounded_down_and_never_by_a_cast(engine):
    """2.5 as an integer is 2 or 3, and -2.7 is -3 or -2: here they are 2 and -3, in any type."""
    for kind in (pa.float64(), pa.float32(), pa.string(), pa.decimal128(9, 4)):
        values = [2.5, -2.7, 0.5, -0.5, 3.5]
        if kind == pa.string():
            values = [str(v) for v in values]
        elif pa.types.is_decimal(kind):
            values = [Decimal(str(v)) for v in values]
        assert one_sum(values, engine, kind=kind) == 2 - 3 + 0 - 1 + 3


def test_keys_keep_their_case(engine):
    """Upper-case of ß is SS on one engine and ẞ or ß on another: keys are compared as they are."""
    keys = ["ß", "ẞ", "SS", "ss", "ı", "I", "i", "İ", "é", "e\u0301", "É", "ﬁ", "fi"]
    values = [key for i, key in enumerate(keys) for _ in range(i + 1)]
    plan = small_plan([{**ONE[0], "by": ["x"]}], {"x": {"keys": keys}})
    result = counted(plan, pa.table({"x": values}), engine)
    assert result["q", "all", "count"] == list(range(1, 14))


def calls(module):
    """The names of all methods that a module's source calls: an engine has nothing else."""
    tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
    items = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [f.attr for f in items if isinstance(f, ast.Attribute)]


def test_what_engines_compute_differently_is_called_nowhere():
    """No hash (each engine has its own), random, case, division, mean or extreme is in use.

    But three: rows are put into buckets of units by a hash on DuckDB, which changes no result, a
    condition that is always true looks random to DuckDB, and the rank of a bin, a whole number that
    is never missing, has the same largest value anywhere.
    """
    for name in ("aggregate", "backends", "bounding", "encoding", "expressions"):
        module = __import__(f"neyman.publishing.engines.{name}", fromlist=["x"])
        result = set(calls(module)) - {"max"} - ({"random"} if name == "backends" else set())
        assert calls(module).count("max") == (name == "aggregate")
        wrong = {"random", "upper", "lower", "mean", "min", "first", "arbitrary", "now"}
        assert not result & wrong, name
        assert calls(module).count("hash") == (name == "backends")
        assert calls(module).count("random") == (name == "backends")
    source = inspect.getsource(bin_of)
    assert source.count(" / ") == 1  # by a positive constant, exactly


def test_nothing_is_divided_by_zero(engine):
    """x / 0 is NULL, infinity or an error: the one division is by the width of a bin."""
    for step in (1, 3, 2**40, 10**15):
        edges = [i * step - 7 for i in range(9)]
        values = [e + d for e in edges for d in (-1, 0, 1) if edges[0] <= e + d < edges[-1]]
        table = open_table(pa.table({"x": pa.array(values, pa.int64())}), engine)
        result = fetched(table.select(b=bin_of(table["x"], edges)))["b"].to_pylist()
        assert result == [(v + 7) // step for v in values]


def test_sums_of_integers_do_not_overflow(engine):
    """A sum past 64 bits wraps, widens or fails: here it stops at 2^62."""
    for sign in (1, -1):
        values = pa.array([sign * 2**62] * 5 + [sign], pa.int64())
        table = open_table(pa.table({"x": values}), engine)
        result = fetched(table.aggregate(s=total(table["x"])))["s"].to_pylist()
        assert result == [sign * 2**62]
    assert one_sum([2**63 - 1] * 3, engine, (-(2**20), 2**20), pa.int64()) == 3 * 2**20


def test_sums_do_not_depend_on_the_order_of_rows(engine):
    """Sums of doubles differ from run to run: 1e16, 1 and -1e16 here always add up to 1."""
    values = [1e15, 1.0, -1e15] * 100
    for turned in (values, values[::-1], sorted(values)):
        table = open_table(pa.table({"x": turned}), engine)
        number = scaled_integer(table["x"], backend_of(table), 0, -(2**53), 2**53, 0)
        assert fetched(table.aggregate(s=total(number)))["s"].to_pylist() == [100]


# Values

LIKELY = st.sampled_from([
    "0.29", "-0.29", "12.345", "-12.345", "0.005", "-0.005", "1e3", ".5", "5.", "-5.e1", "-.",
    "--1", "007.10", "-0", "-0.0", "1" * 41, "1" * 120, "-" + "9" * 120, "9" * 121,
    "0." + "9" * 120, "0." + "9" * 121, "-0." + "0" * 119 + "1", "", "1.2.3", " 1", "１", "2,5",
    "9" * 28, "9" * 29, "4611686018427387904", "5e-05", "-5e-05", "1e+16", "1E16", "29e-2",
    "-2.9e-1", "0.0029E2", "1e-9999", "-1e-9999", "-0e5", "0e9999", "1e9999",
    "." + "0" * 119 + "1e120", "." + "0" * 119 + "12e125", "0" * 119 + "1e-1", "1e10000", "1e",
    "1e+", "1e5.0", "e5", "1e5e5", "1e+-5", "inf", "-inf", "Infinity", "+inf", "nan",
    "9" * 120 + "." + "9" * 120 + "e-120", "-" + "9" * 120 + "e-118", "123456789e-9",
])  # fmt: skip
DIGITS = st.from_regex(r"\A-?[0-9]{1,22}(\.[0-9]{1,12})?([eE][-+]?[0-9]{1,2})?\Z")
NEARLY = st.from_regex(r"\A-?[0-9]{0,14}(0|9)(\.(0{0,16}|9{0,16})[0-9])?([eE]-?[0-9]{1,2})?\Z")
ENDS = st.integers(-(2**53), 2**53)


@on_each(
    st.lists(st.none() | LIKELY | DIGITS | NEARLY, max_size=50),
    st.integers(0, 9),
    st.tuples(ENDS, ENDS).map(sorted),
)
def test_a_text_is_read_exactly_as_a_decimal(engine, folders, values, decimals, ends):
    """floor(x 10^d) of the exact decimal, clipped; what is not a number is the stand-in."""
    same(engine, pa.array(values, pa.string()), values, decimals, *ends)


@on_each(
    st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
    st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=40),
    st.integers(0, 9),
    st.tuples(ENDS, ENDS).map(sorted),
)
def test_a_decimal_is_read_exactly(engine, folders, form, numbers, decimals, ends):
    precision, scale = form
    kind, sign = pa.decimal128(precision, scale), (1, -1)
    # From text: arithmetic on decimals would round to 28 digits.
    scaled_integer = [sign[n < 0] * (abs(n) % 10**precision) for n in numbers]
    values = [Decimal(f"{n}e-{scale}") for n in scaled_integer]
    same(engine, pa.array([*values, None], kind), [*values, None], decimals, *ends)


@on_each(
    st.lists(st.floats() | st.decimals(-(10**9), 10**9, places=3).map(float), max_size=50),
    st.integers(0, 9),
    st.tuples(ENDS, ENDS).map(sorted),
)
def test_a_double_is_cut_at_the_decimal_that_it_prints_as(engine, folders, values, decimals, ends):
    values = [*values, 0.29, -0.29, 4.35, NAN, INF, -INF, -0.0, 5e-324, 2.0**52 + 1, 1.5 * 2**51]
    same(engine, pa.array(values, pa.float64()), values, decimals, *ends)
    hundredths = read(engine, pa.array([0.29, -0.29, 4.35, 1.1]), 2, -(10**6), 10**6)
    assert hundredths == [29, -29, 435, 110]


@on_each(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(0, 9), st.tuples(ENDS, ENDS))
def test_integers_of_all_sizes_are_scaled_without_overflow(engine, folders, values, decimals, ends):
    same(engine, pa.array([*values, None], pa.int64()), [*values, None], decimals, *sorted(ends))
    large = [2**64 - 1, 2**63, 0, None]
    same(engine, pa.array(large, pa.uint64()), large, decimals, *sorted(ends))
    same(engine, pa.array([True, False, None]), [True, False, None], decimals, *sorted(ends))


def read(engine, array, decimals, low, high, unknown=7):
    table = open_table(pa.table({"i": range(len(array)), "x": array}), engine)
    result = table.select(
        "i", v=scaled_integer(table["x"], backend_of(table), decimals, low, high, unknown)
    )
    return fetched(result).sort_by("i")["v"].to_pylist()


def same(engine, array, values, decimals, low, high):
    right = [number(value, decimals, low, high, 7) for value in values]
    assert read(engine, array, decimals, low, high) == right


def test_single_floats_are_read_with_the_digits_that_they_have(engine):
    """0.29 as a single float is 0.28999999165534973: still 29 hundredths."""
    singles = pa.array([0.29, 4.35, -2.7, 1e30, NAN], pa.float32())
    assert read(engine, singles, 2, -(10**6), 10**6) == [29, 435, -270, 10**6, 7]
    assert read(engine, singles, 0, -(10**6), 10**6) == [0, 4, -3, 10**6, 7]


# Measures

PEOPLE = st.fixed_dictionaries({
    "x": st.none() | st.decimals(-20, 20, places=2).map(str) | st.just("?"),
    "g": st.sampled_from(["a", "b", "c", None]),
})  # fmt: skip
FIXED = {"x": {"decimals": 1, "unknown": "0.3"}, "g": COLUMN["g"]}


@on_each(st.lists(PEOPLE, max_size=40), st.sampled_from([[0, 1], [-20, 20], [-3, 15.5]]))
def test_every_measure_of_a_fixed_point_column_is_exact(engine, folders, rows, clip):
    share = "1/6"
    edges = [-5, -4.5, 0, 0.1, 3]
    query = [
        a_sum(clip, name="s", share=share, by=["g"]),
        a_sum(clip, name="m", share=share, measure="mean"),
        a_sum(clip, name="v", share=share, measure="variance", by=["g"]),
        {"name": "h", "measure": "histogram", "column": "x", "edges": edges, "by": ["g"],
         "share": share},
        {"name": "p", "measure": "quantiles", "column": "x", "edges": [-9, -6, -3, 0],
         "quantiles": [0.5], "share": share},
        {"name": "u", "measure": "units", "by": ["g"], "share": share},
    ]  # fmt: skip
    source = pa.table({n: pa.array([row[n] for row in rows], pa.string()) for n in ("x", "g")})
    check(small_plan(query, FIXED), source, rows, engine)


WIDE = [(-(2**31), 2**31), (0, 10**8), (-(10**8), 10**8), (8400, 154_400), (0, 92_681), (0, 92_683)]


@pytest.mark.parametrize("clip", WIDE)
def test_squares_of_wide_clips_are_rounded_to_their_unit_without_overflow(engine, clip):
    """At the default most_rows, the squares of all rows stay below 2^62."""
    low, high = clip
    values = sorted({low, low + 1, -1, 0, 3, (low + high) // 2, high - 1, high} | {2**30 - 7})
    values = [value for value in values if low <= value <= high]
    table = open_table(pa.table({"x": values}), engine)
    squares = fetched(table.select("x", s=_summand(table["x"], "square", clip))).to_pylist()
    close_table(table)
    middle, unit = (low + high) // 2, square_unit(clip)
    assert {row["x"]: row["s"] for row in squares} == {
        x: math.floor(Fraction((x - middle) ** 2, unit) + Fraction(1, 2)) for x in values
    }
    assert range_in(clip, "square")[1] == max(row["s"] for row in squares) < 2**31
    assert (unit == 1) == (max(high - middle, middle - low) ** 2 < 2**31)


def test_most_cells_of_a_wide_histogram_take_no_memory(engine):
    """A table of 10^7 cells with rows in three holds three numbers."""
    keys = {f"k{i}": {"keys": list(range(1000))} for i in range(2)}
    query = [{"name": "h", "measure": "count", "by": list(keys), "share": 1}]
    source = pa.table({"k0": [1, 999, 0, 0, 5000], "k1": [7, 999, 0, 0, 1]})
    cells = aggregate_cells(small_plan(query, keys), open_table(source, engine))[
        "h", "all", "count"
    ]
    assert len(cells) == 10**6
    assert cells.index.tolist() == [0, 1007, 999_999]
    assert cells.values.tolist() == [2, 1, 1]
    assert cells.dense(1000, 1010).tolist() == [0] * 7 + [1, 0, 0]
    assert cells.dense().sum() == 4


def test_edges_of_uneven_width_find_their_bin(engine):
    edges = [-100, -99, 0, 1, 2, 50, 51, 1000]
    values = list(range(-100, 1000))
    table = open_table(pa.table({"x": values}), engine)
    result = fetched(table.select("x", b=bin_of(table["x"], edges)))
    right = (np.searchsorted(edges, result["x"].to_numpy(), "right") - 1).tolist()
    assert result["b"].to_pylist() == right


# The choice of rows


def shown(rows, engine):
    """All that an engine tells of how it will run a query."""
    backend = rows.get_backend()
    if engine == "duckdb":
        sql = str(backend.compile(rows))
        answers = [
            backend.con.execute(f"explain {how} {sql}").fetchall() for how in ("", "analyze")
        ]
        return f"{sql} {answers}"
    frame = backend._session.sql(backend.compile(rows))
    modes = ("simple", "extended", "codegen", "cost", "formatted")
    if "connect" in type(frame).__module__:
        return f"{backend.compile(rows)} {[frame._explain_string(mode=mode) for mode in modes]}"
    plan = frame._jdf.queryExecution()
    frame.collect()
    answers = [frame._sc._jvm.PythonSQLUtils.explainString(plan, mode) for mode in modes]
    return f"{backend.compile(rows)} {answers} {plan.toString()} {frame._jdf.toString()}"


def test_the_key_is_in_no_query_no_plan_and_no_log(engine, caplog, capfd):
    key = secrets.token_bytes(18)
    text = base64.b64encode(key).decode()
    answers = [text[:8], text, key.hex(), repr(key)]
    caplog.set_level(logging.DEBUG)
    table = open_table(pa.table({"unit": ["a", "a", "b"], "code": [1, 2, 3]}), engine)
    table = table.mutate(unit=key_bytes(table["unit"], backend_of(table)))
    with backend_of(table).secret(key) as secret:
        rows = first_rows(table, ["code"], 1, secret, 0)
        fetched(rows)
        text = shown(rows, engine) + repr(rows) + repr(secret.op())
    captured = capfd.readouterr()
    text += caplog.text + captured.out + captured.err
    assert "sha" in text.lower()
    assert not any(form in text for form in answers)
    backend = table.get_backend()
    if engine == "duckdb":
        left = backend.con.execute("show tables").fetchall()
    else:
        left = [view.name for view in backend._session.catalog.listTables()]
    assert "people" in str(left)
    assert "neyman_" not in str(left)


def test_spark_moves_the_rows_of_a_unit_once(spark_running):
    source = pa.table({"unit": ["a", "a", "b"], "code": [1, 2, 3], "n": [1, 1, 2]})
    table = open_table(source, "spark")
    table = table.mutate(unit=key_bytes(table["unit"], backend_of(table)))
    with backend_of(table).secret(KEY) as key:
        rows = first_cells(table, ["code", "n"], 2, key, 1, ["code"])
        rows = first_rows(rows, ["code", "n"], 1, key, 2, ["code"])
        text = shown(rows.group_by("code").aggregate(rows=rows.count()), "spark")
    shuffles = re.findall(r"Exchange hashpartitioning\((.*?), \d+\)", text)
    assert {re.sub(r"#\d+L?", "", columns) for columns in shuffles} == {"unit", "code"}


def test_an_aggregate_asks_a_column_for_its_coded_expression_once():
    plan = ny.Plan.from_dict(tomllib.loads(MIXED))
    rows = pa.table(
        {"race": ["a", "b"], "age": [40, 30], "pay": [10.5, 20.0]}
        | {"state": ["A", "B"], "county": ["A1", "B2"]}
    )
    with prepared(plan, open_table(rows, "duckdb", rows.column_names)) as table:
        calls = first_calls("publishing/engines/", lambda: aggregate_cells(plan, table))
    asked = Counter(
        (code.co_name, arguments["column"].get_name(), *map(arguments.get, ("low", "high")))
        for code, arguments in calls
        if code.co_name in ("raw_key", "scaled_integer")
    )
    assert {name for _, name, *_ in asked} == {*rows.column_names}
    assert set(asked.values()) == {1}
