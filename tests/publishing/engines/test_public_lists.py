"""Joins with public lists by several columns, and by each other's columns."""

import random
from collections import Counter
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest

from neyman import Session, throwaway
from neyman.publishing import Plan, PlanError, columns_read, open_table, prepared
from plain_engine import fetched

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

TEXTS = ["a", "A", "a ", "á", "a\u0301", "b", "1", "01", "it's", "a,b"]  # no two are one key
BASE = {
    "schema": 2, "name": "p", "dataset": "d@1", "table": "t",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {name: {"type": "text"} for name in ("x", "y", "z")}, "budget": {"zcdp": 1},
}  # fmt: skip


def random_plan(draw):
    """Three lookups: by two or three columns, by a lookup and a column, and by two lookups."""
    lists = {
        "first": (draw.choice([["x", "y"], ["z", "x"], ["x", "y", "z"]]), 60),
        "second": (draw.sample(["first", "z"], 2), 12),
        "third": (["second", "first"], 40),
    }
    lookup = {}
    for name, (columns, most) in lists.items():
        values = [["p", "q", "r"] if one in lists else TEXTS for one in columns]
        size = draw.choice([3, most])
        keys = {tuple(map(draw.choice, values)): draw.choice("pqr") for _ in range(size)}
        part = {"column": columns, "keys": [[*key, label] for key, label in keys.items()]}
        lookup[name] = part | ({"unknown": "q"} if draw.random() < 0.5 else {})
    query = [{"name": "n", "measure": "count", "by": list(lists), "share": 1}]
    return Plan.from_dict(BASE | {"lookup": lookup, "query": query})


def random_rows(draw):
    values = [*TEXTS, *TEXTS[:3] * 4, None, ""]
    return pa.table({name: draw.choices(values, k=60) for name in BASE["columns"]})


def looked_up(plan, rows):
    results = Counter()
    for row in rows.to_pylist():
        for name, part in plan.canonical()["lookup"].items():
            labels = {tuple(key): label for *key, label in part["keys"]}
            key = tuple(row[column] or None for column in part["column"])
            row[name] = labels.get(key, part.get("unknown"))
        results[row["first"], row["second"], row["third"]] += 1
    return results


def by_sql(plan, rows):
    """Each row's values by left joins in SQL, with which a row of the data stays one row."""
    with duckdb.connect() as connection:
        connection.register("data", rows)
        sql = "(SELECT * FROM data)"
        for number, (name, part) in enumerate(plan.canonical()["lookup"].items()):
            names = [f"k{i}" for i in range(len(part["column"]))]
            columns = zip([*names, "label"], zip(*part["keys"], strict=True), strict=True)
            connection.register(name, pa.table({key: list(texts) for key, texts in columns}))
            both = zip(part["column"], names, strict=True)
            on = " AND ".join(f"l.{column} = r.{key}" for column, key in both)
            value = f"coalesce(r.label, '{part['unknown']}')" if "unknown" in part else "r.label"
            sql = f"(SELECT l.*, {value} AS {name} FROM {sql} l LEFT JOIN {name} r ON {on})"
            assert number < 3
        return Counter(connection.execute(f"SELECT first, second, third FROM {sql}").fetchall())


def counted(plan, data, engine="duckdb"):
    form = open_table(data, engine, rows=False)
    opened = open_table(data, engine, columns_read(plan, list(form.columns)))
    with prepared(plan, opened) as rows:
        groups = rows.group_by("first", "second", "third").aggregate(n=rows.count())
        results = Counter()
        for *labels, n in zip(*fetched(groups).to_pydict().values(), strict=True):
            results[tuple(label if label is None else label.decode() for label in labels)] += n
        return results


@pytest.mark.parametrize("form", ["arrow", "csv", "pandas", "polars"])
def test_random_lists_give_each_row_what_dictionaries_and_sql_give(form, tmp_path):
    draw = random.Random(form)
    matched = 0
    for _ in range(6):
        plan, rows = random_plan(draw), random_rows(draw)
        right = looked_up(plan, rows)
        assert right == by_sql(plan, rows)
        given = rows
        if form == "csv":
            given = str(tmp_path / "data.csv")
            pyarrow.csv.write_csv(rows, given)
        elif form != "arrow":
            given = rows.to_pandas() if form == "pandas" else pl.from_arrow(rows)
        assert counted(plan, given) == right
        matched += sum(n for labels, n in right.items() if None not in labels)
    assert matched


def test_spark_gives_each_row_what_dictionaries_give(spark_running):
    draw = random.Random(7)
    plan, rows = random_plan(draw), random_rows(draw)
    assert counted(plan, rows, "spark") == looked_up(plan, rows)


def test_a_list_of_one_column_is_the_plan_that_names_the_column():
    query = [{"name": "n", "measure": "count", "by": ["r"], "share": 1}]

    def plan(column, keys):
        return Plan.from_dict(
            BASE | {"lookup": {"r": {"column": column, "keys": keys}}, "query": query}
        )

    one = plan("x", [["a", "p"]])
    assert plan(["x"], [["a", "p"]]).hash == one.hash
    assert one.canonical()["lookup"]["r"] == {"column": "x", "keys": [["a", "p"]]}
    two = plan(["x", "y"], [["a", "b", "p"]])
    assert two.canonical()["lookup"]["r"] == {"column": ["x", "y"], "keys": [["a", "b", "p"]]}
    assert Plan.from_dict(two.canonical()).hash == two.hash


def test_a_file_has_a_column_for_each_text(tmp_path):
    query = [{"name": "n", "measure": "count", "by": ["r"], "share": 1}]

    def plan(text, **part):
        Path(tmp_path, "list.csv").write_text(text)
        lookup = {"r": {"column": ["x", "lower(y)"], "keys": "list.csv"} | part}
        return Plan.from_dict(BASE | {"lookup": lookup, "query": query}, folder=tmp_path)

    named = plan("r,low,other,x\np,b,z,a\nq,c,z,a\n", on=["x", "low"])
    assert named.hash == plan("x,lower(y),r\na,b,p\na,c,q\n").hash
    assert named.canonical()["lookup"]["r"]["keys"] == [["a", "b", "p"], ["a", "c", "q"]]
    for rows, reason in (
        ("x,low,r\na,b,p\na,c,p\na,b,p\n", r"row 3 of keys repeats 'a', 'b'; list each key once"),
        ("x,low,r\na,b,p\na,,p\n", r"row 2 of keys must be \[text, text, value\], none blank"),
        ("x,r\na,p\n", "has no column 'low'"),
    ):
        with pytest.raises(PlanError, match=reason):
            plan(rows, on=["x", "low"])


def test_sessions_and_sql_group_by_a_list_of_two_columns():
    rows = pa.table({"x": ["a", "a", "b", None] * 100, "y": ["b", "c", "b", "b"] * 100})
    session = Session(
        rows, ledger=throwaway(200), dataset="d@1",
        unit={"protects": "person", "neighboring": "replace-one", "rows": 1},
        columns={"x": {"type": "text"}, "y": {"type": "text"}},
        lookup={"r": {"column": ["x", "y"], "keys": [["a", "b", "p"], ["b", "b", "q"]]}},
    )  # fmt: skip
    asked = session.ask({"measure": "count", "by": ["r"], "share": 1}, zcdp=50)
    counts = {"p": 100, "q": 100}
    assert {row["r"]: round(row["value"], -1) for row in asked.table.to_pylist()} == counts
    answer = session.sql("SELECT r, COUNT(*) AS n FROM data WHERE x = 'a' GROUP BY r", zcdp=50)
    assert [round(row["n"], -1) for row in answer.selected.to_pylist()] == [100, 0]
    with pytest.raises(ValueError, match=r"\[lookup\] a public list"):
        session.sql("SELECT r, COUNT(*) FROM data JOIN other USING (x, y) GROUP BY r", zcdp=1)
    assert session.left == 100
