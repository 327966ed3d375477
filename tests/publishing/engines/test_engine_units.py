"""Units with many rows: bounds, the same choice on both engines, and a key that no one sees."""

import itertools
import math
import secrets
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from test_engine import small_plan

from each_engine import on_each
from neyman.publishing import Plan, aggregate_cells, followed, measures_of, open_table
from plain_engine import KEY, Plain, check, counted, discovered
from random_laws import is_small

PLACES = [["N", "a"], ["N", "b"], ["S", "a"], ["S", "c"]]
COLUMNS = {"k": {"keys": ["x", "y", "z"]}, "n": {"decimals": 1, "unknown": 1, "parse": True}}


def a_plan(query, rows=3, columns=COLUMNS, **more):
    return Plan.from_dict({
        "schema": 2, "name": "units", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": "add-remove", "rows": rows, "id": "id"},
        "columns": columns, "hierarchy": {"place": {"levels": ["north", "town"], "keys": PLACES}},
        "budget": {"zcdp": 1, **more}, "query": query,
    })  # fmt: skip


def queries(**bounds):
    share = "1/8"
    return [
        {"name": "c", "measure": "count", "by": ["k"], "at": ["north", "town"], "share": share},
        {"name": "g", "measure": "count", "by": ["k"], "at": ["north", "town"], "share": share,
         **bounds},
        {"name": "u", "measure": "units", "by": ["k"], "at": ["north", "town"], "share": share,
         **{name: bounds[name] for name in bounds if name == "groups"}},
        {"name": "s", "measure": "variance", "column": "n", "clip": [-2, 2], "by": ["k"],
         "share": share, **bounds},
        {"name": "h", "measure": "histogram", "column": "n", "edges": [-2, -1, 0.5, 2],
         "share": share, **bounds},
        {"name": "d", "measure": "distinct", "column": "k", "at": ["north", "town"],
         "share": share, **bounds},
        {"name": "m", "measure": "median", "method": "inverse-sensitivity", "column": "n",
         "clip": [-2, 2], "by": ["k"], "at": ["north", "town"], "share": share, **bounds},
        {"name": "r", "measure": "ratio", "column": "n", "clip": [-2, 2], "over": "n",
         "clip_over": [0.5, 1], "by": ["k"], "share": share, **bounds},
    ]  # fmt: skip


def some_queries(**bounds):
    """Those queries, or the first four in `make test`, where each takes a tenth of a second."""
    some = queries(**bounds)[: 4 if is_small() else None]
    return [{**query, "share": f"1/{len(some)}"} for query in some]


ROW = {
    "id": st.sampled_from(["p", "q", "q", "é", "", None, "\x00", "p "]),
    "north": st.sampled_from(["N", "S", "S"]),
    "town": st.sampled_from(["a", "b", "c", None]),
    "k": st.sampled_from(["x", "y", "z", "w", None]),
    "n": st.sampled_from(["0.1", "-1.25", "2", "?", None]),
}
ROWS = st.lists(st.fixed_dictionaries(ROW), max_size=60)
BOUNDS = st.fixed_dictionaries(
    {}, optional={"groups": st.integers(1, 3), "rows_per_group": st.integers(1, 3)}
)


def table_of(rows):
    return pa.table({n: pa.array([row[n] for row in rows], pa.string()) for n in ROW})


@on_each(ROWS, BOUNDS, st.sampled_from([1, 2, 3, 7]), examples=4)
def test_both_engines_keep_the_rows_that_plain_python_keeps(engine, folders, rows, bounds, most):
    check(a_plan(queries(**bounds), most), table_of(rows), rows, engine)


@pytest.mark.parametrize("engine", ["duckdb"])  # Spark keeps and finds the same, see above
@on_each(ROWS, BOUNDS, st.sampled_from([1, 3]), examples=4)
def test_no_unit_is_in_more_than_it_may(engine, folders, rows, bounds, most):
    plan = a_plan(some_queries(**bounds), most)
    groups, each = bounds.get("groups", most), bounds.get("rows_per_group", most)
    for unit in ("q", "p"):
        own = table_of([row for row in rows if row["id"] == unit])
        alone = counted(plan, own, engine, rehearsed=unit == "p")
        for (name, level, part), cells in alone.items():
            if name == "c":
                assert sum(cells) <= most
            elif part in ("count", "units"):
                assert sum(cells) <= min(most, groups * each)
                assert sum(cell > 0 for cell in cells) <= min(most, groups)
                assert max(cells) <= (each if level in ("town", "all") else most)


@pytest.mark.parametrize("engine", ["duckdb"])  # Spark keeps and finds the same, see above
@on_each(ROWS, ROWS, BOUNDS, examples=4)
def test_what_is_kept_of_a_unit_does_not_depend_on_others(engine, folders, rows, more, bounds):
    plan, key = a_plan(some_queries(**bounds), 2), secrets.token_bytes(18)
    rows = [row for row in rows if row["id"] in ("p", "é")]
    more = [row for row in more if row["id"] not in ("p", "é")]
    both = counted(plan, table_of(rows + more), engine, key)
    one, two = (counted(plan, table_of(r), engine, key, rehearsed=True) for r in (rows, more))
    for name, cells in both.items():
        assert cells == [a + b for a, b in zip(one[name], two[name], strict=True)]


@pytest.mark.parametrize("part", [slice(4), slice(4, None)], ids=["counts", "others"])
def test_buckets_change_nothing(part, monkeypatch):
    rng = np.random.default_rng(1)
    rows = [
        {
            "id": str(rng.integers(20)), "north": "S", "town": "ac"[rng.integers(2)],
            "k": "xyzw"[rng.integers(4)], "n": str(rng.integers(-3, 3)),
        } for _ in range(130)
    ]  # fmt: skip
    some = [{**query, "share": "1/4"} for query in queries(groups=2, rows_per_group=2)[part]]
    plan, source = a_plan(some), table_of(rows)
    unbucketed = counted(plan, source)
    monkeypatch.setattr(sys.modules["neyman.publishing.engines.backends"], "_RANKED_ROWS", 30)
    bucketed = counted(plan, source, rehearsed=True)
    assert bucketed == unbucketed == Plain(plan, rows).tables()


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(20, 0), pa.string(), pa.bool_()])
def test_units_are_told_apart_in_columns_of_any_type(engine, kind):
    ids = pa.array([0, 1, 1, 1, None, 0]).cast(kind)
    plan = small_plan([{"name": "q", "measure": "count", "share": 1}], rows=2, id="id")
    assert counted(plan, pa.table({"id": ids}), engine)["q", "all", "count"] == [4]


def test_text_that_is_no_utf8_names_units_of_its_own(engine, tmp_path):
    raw = pa.array([b"\xff", b"\xfe", b"\xff", b"?", None], pa.binary())
    ids = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    pq.write_table(pa.table({"id": ids, "k": ids}), tmp_path / "x.parquet")
    query = [{"name": "q", "measure": "count", "by": ["k"], "share": 1}]
    plan = small_plan(query, {"k": {"keys": ["?", "\ufffd"]}}, rows=1, id="id")
    assert counted(plan, tmp_path / "x.parquet", engine)["q", "all", "count"] == [1, 0]
    every = small_plan([{"name": "q", "measure": "count", "share": 1}], rows=1, id="id")
    assert counted(every, tmp_path / "x.parquet", engine)["q", "all", "count"] == [3]


def test_which_rows_of_a_unit_are_kept_is_random_and_fair(engine):
    """2 of 4 rows in each of 2,000 units: each row half the time; false alarms 2e-7 (5.5 sigma).

    Of 3 equal rows and another one, the other is kept half the time too: copies are rows.
    """
    units, query = 2_000, {"name": "q", "measure": "count", "by": ["code"], "share": 1}
    for codes in ([0, 1, 2, 3], [0, 0, 0, 3]):
        ids = pa.array([i // 4 for i in range(4 * units)])
        source = pa.table({"unit": ids, "code": np.tile(codes, units)})
        plan = small_plan([query], {"code": {"keys": [0, 1, 2, 3]}}, rows=2, id="unit")
        selection = aggregate_cells(plan, open_table(source, engine), KEY)["q", "all", "count"]
        assert selection.dense().sum() == 2 * units
        for code in set(codes):
            right = units * codes.count(code) / 2
            assert abs(selection.dense()[code] - right) <= 5.5 * math.sqrt(units) / 2


def test_each_call_draws_a_key_of_its_own(engine):
    """Two counts of the same rows keep other rows: 100 units, alike with probability 2^-100."""
    ids = [str(i // 2) for i in range(200)]
    query = [{"name": "q", "measure": "count", "by": ["sex"], "share": 1}]
    columns = {"sex": {"keys": list(range(200))}}
    plan = small_plan(query, columns, rows=1, id="id")
    table = open_table(pa.table({"id": ids, "sex": range(200)}), engine)
    one, two = (aggregate_cells(plan, table)["q", "all", "count"] for _ in range(2))
    assert len(one.index) == len(two.index) == 100
    assert one.index.tolist() != two.index.tolist()


def test_progress_ends_at_1_if_one_aggregation_serves_several_levels():
    query = {"name": "c", "measure": "count", "at": ["north", "town"], "groups": 1, "share": 1}
    source = pa.table({"id": ["u", "v"], "north": ["N", "S"], "town": ["a", "c"]})
    parts = []
    aggregate_cells(a_plan([query]), open_table(source), progress=parts.append)
    assert parts == [0, 1]


def test_rows_are_bounded_within_a_memory_limit_and_spill_to_a_private_folder(tmp_path):
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 10**6, 2 * 10**6)
    source = pa.table({"id": ids, "sex": rng.integers(0, 2, 2 * 10**6)})
    pq.write_table(source, tmp_path / "x.parquet")
    plan = small_plan(rows=1, id="id")
    table = open_table(tmp_path / "x.parquet", memory="200MB")
    limit = "select current_setting('memory_limit')"
    assert table.get_backend().con.execute(limit).fetchall()[0][0].startswith("190")
    parts = []
    result = aggregate_cells(plan, table, progress=parts.append)["q", "all", "count"].dense()
    assert result.sum() == len(np.unique(ids))
    assert (parts[0], parts[-1]) == (0, 1)
    assert parts == sorted(parts)


def test_an_interrupted_query_ends_and_what_interrupts_it_is_raised():
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    connection.execute("CREATE TABLE t AS FROM range(1000000)")
    slow = "SELECT count(*) FROM t a, t b WHERE hash(a.range + b.range) = 1"

    def stop(part):
        assert 0 < part < 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        followed(connection, lambda: connection.execute(slow).fetchall(), stop)
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(1000000,)]


# Unknown keys

FIND = {"k": {"keys": ["x", "y"]}, "w": {"discover": True}, "n": {"integer": True, "parse": True}}


def a_search(groups=None, by=("w", "k"), at=("north", "town")):
    query = {
        "name": "q", "measure": "units", "by": list(by), "at": list(at), "share": 1, "delta": 1e-9,
    }  # fmt: skip
    return [{**query, "groups": groups} if groups else query]


WORDS = st.fixed_dictionaries(
    {**ROW, "w": st.sampled_from(["new", "ß", "SS", "", None, "drop"]) | st.text(max_size=1)}
)


@pytest.mark.parametrize("engine", ["duckdb"])  # Spark finds the same, see below
@on_each(st.lists(WORDS, max_size=50), st.sampled_from([None, 1, 2]), examples=4)
def test_the_keys_that_are_there_are_found_with_their_units(engine, folders, rows, groups):
    plan = a_plan(a_search(groups), 2, FIND, delta=1e-6)
    source = pa.table({n: pa.array([r[n] for r in rows], pa.string()) for n in (*ROW, "w")})
    for level in ("north", "town"):
        result = Plain(plan, rows).keys(plan.query("q"), level)
        paths = plan.hierarchy.paths(level)
        right = {
            (*paths[place], word.decode(), "xy"[k]): units
            for (place, word, k), units in result.items()
        }
        assert discovered(plan, source, engine, level) == right


@pytest.mark.parametrize("bounds", [{}, {"groups": 2, "rows_per_group": 2}, {"rows_per_group": 1}])
@pytest.mark.parametrize(("measure", "unknown"), [("count", "drop"), ("sum", "drop"), ("sum", 0)])
def test_rows_and_sums_by_unknown_keys_are_those_of_plain_python(measure, unknown, bounds, engine):
    words = ["é", "ß", "new", "", "a,b", "new", None]
    numbers = ["1", "-7", "2.9", "x", None, "1e3", "-inf"]
    rows = [
        {"id": unit, "north": north, "town": town, "k": "xyz"[i % 3], "n": n, "w": word}
        for unit in "pqrstu"
        for i, (word, n) in enumerate(zip(words, numbers, strict=True))
        for north, town in (PLACES[i % 4], PLACES[(i + 1) % 4])
    ]
    source = pa.table({n: pa.array([r[n] for r in rows], pa.string()) for n in (*ROW, "w")})
    query = a_search()[0] | {"measure": measure, **bounds}
    query |= {"column": "n", "clip": [-3, 10]} if measure == "sum" else {}
    columns = FIND | {"n": {**FIND["n"], "unknown": unknown}}
    plan = a_plan([query], 5, columns, delta=1e-6)
    parts = measures_of(plan.query("q"))
    assert parts == ("keys", measure)
    for level, part in itertools.product(("north", "town"), parts):
        paths = plan.hierarchy.paths(level)
        right = {
            (*paths[place], word.decode(), "xy"[k]): number
            for (place, word, k), number in Plain(plan, rows)
            .keys(plan.query("q"), level, part)
            .items()
        }
        assert len(right) > 3
        assert discovered(plan, source, engine, level, measure=part) == right


def test_rows_with_unknown_keys_are_chosen_alike(engine):
    """Of more rows than a unit may have, the same are kept on both engines and at each level, keys
    that are missing or not ASCII among them, and of its cells too."""
    words = ["é", "ß", "new", "", "a,b", "\\xC3", None]
    rows = [
        {"id": unit, "north": north, "town": town, "k": "xyz"[i % 3], "n": "1", "w": word}
        for unit in "pqrstuv"
        for i, word in enumerate(words)
        for north, town in (PLACES[i % 4], PLACES[(i + 1) % 4])
    ]
    source = pa.table({n: pa.array([r[n] for r in rows], pa.string()) for n in (*ROW, "w")})
    for groups, level in ((None, "town"), (2, "north")):
        plan = a_plan(a_search(groups), 3, FIND, delta=1e-6)
        paths = plan.hierarchy.paths(level)
        right = {
            (*paths[place], word.decode(), "xy"[k]): units
            for (place, word, k), units in Plain(plan, rows).keys(plan.query("q"), level).items()
        }
        assert discovered(plan, source, engine, level) == right


def test_keys_that_are_missing_or_no_text_are_not_found(engine, tmp_path):
    raw = pa.array([b"\xff", "é".encode(), b"", None], pa.binary())
    words = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    query = a_search(by=["w"], at=[])
    plan = small_plan(query, {"w": {"discover": True}}, delta=1e-6)
    for array, right in (
        (words, {("é",): 1}),
        (pa.array([3, 3, -1, None]), {("3",): 2, ("-1",): 1}),
        (pa.array([], pa.string()), {}),
    ):
        pq.write_table(pa.table({"w": array}), tmp_path / "x.parquet")
        assert discovered(plan, tmp_path / "x.parquet", engine) == right
