"""Rows from tables: near the tables, from the tables alone, and what is lost is said."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neyman as ny
from commands import answered, neyman
from neyman.publishing import synthesize

PAIRS = [("age", "edu"), ("edu", "income"), ("income", "region"), ("age", "sex")]


def people(size=50_000):
    draw = np.random.default_rng(1)
    age = draw.integers(0, 10, size)
    edu = (age + draw.integers(0, 5, size)) % 8
    income = (edu + draw.integers(0, 6, size)) % 12
    region = (income // 3 + draw.integers(0, 3, size)) % 6
    columns = {"age": age, "edu": edu, "income": income, "region": region}
    return pa.table({**columns, "sex": draw.integers(0, 2, size)})


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Four two-way tables of 50,000 people, and a table that no rows can be fitted to."""
    folder = tmp_path_factory.mktemp("synthetic")
    table = people()
    query = [
        {"name": f"{a} {b}", "measure": "count", "by": [a, b], "share": "2/9"} for a, b in PAIRS
    ]
    query.append(
        {"name": "old", "measure": "count", "by": ["sex"], "where": "years > 5", "share": "1/9"}
    )
    sizes = {name: max(table[name].to_pylist()) + 1 for name in table.column_names}
    keys = {name: {"keys": list(range(size))} for name, size in sizes.items()}
    plan = ny.Plan.from_dict({
        "schema": 2, "name": "p", "dataset": "p@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {**keys, "years": {"type": "whole"}}, "budget": {"zcdp": "1/2"}, "query": query,
    })  # fmt: skip
    ledger = ny.Ledger(str(folder / "ledger.db"))
    ledger.create("p@1", protects="person", neighboring="replace-one", cap=1)
    data = table.append_column("years", table["age"])
    return ny.run(plan, {"people": data}, ledger, folder / "release", pages={})


def test_rows_are_near_four_tables_of_fifty_thousand_people(release):
    result = synthesize(release)
    assert abs(result.rows.num_rows - 50_000) < 100
    for a, b in PAIRS:
        table = release.tables[f"{a} {b}.all"]
        values = np.array(table["value"].to_pylist(), float)
        keys = list(zip(*(map(str, table[c].to_pylist()) for c in (a, b)), strict=True))
        pairs = list(zip(*(result.rows[c].to_pylist() for c in (a, b)), strict=True))
        counted = dict.fromkeys(keys, 0)
        for pair in pairs:
            counted[pair] += 1
        share = np.array([counted[key] for key in keys]) / len(pairs)
        distance = np.abs(share - values / values.sum()).sum() / 2
        fit = next(one for one in result.tables if one.table == f"{a} {b}.all")
        assert fit.total_variation == pytest.approx(distance, abs=1e-12)
        assert distance < 0.005
    assert ("age", "income") in result.independent
    assert list(result.unused) == ["old.all"]
    assert b"belong to the released tables" in result.rows.schema.metadata[b"neyman"]


def test_tables_by_two_hierarchies_are_left_out_by_name(tmp_path):
    plan = ny.Plan.from_dict({
        "schema": 2, "name": "p", "dataset": "p@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1},
        "hierarchy": {
            "place": {"levels": ["state"], "keys": [["A"], ["B"]]},
            "job": {"levels": ["sector"], "keys": [["x"], ["y"]]},
        },
        "budget": {"zcdp": "1/2"},
        "query": [
            {"name": "all", "measure": "count", "share": 1}
            | {"at": ["state", "sector", "state x sector"]}
        ],
    })  # fmt: skip
    ledger = ny.Ledger(str(tmp_path / "ledger.db"))
    ledger.create("p@1", protects="person", neighboring="replace-one", cap=1)
    data = pa.table({"state": ["A", "B"] * 50, "sector": ["x"] * 100})
    result = synthesize(ny.run(plan, {"people": data}, ledger, tmp_path / "out", pages={}))
    assert list(result.unused) == ["all.state x sector"]
    assert "two hierarchies" in result.unused["all.state x sector"]
    assert {one.table for one in result.tables} == {"all.state", "all.sector"}


def test_the_command_reads_the_release_alone_and_says_what_is_lost(release, tmp_path, monkeypatch):
    shutil.copytree(release.folder, tmp_path / "release")
    book = (release.folder.parent / "ledger.db").read_bytes()
    monkeypatch.chdir(tmp_path)
    command = ["synthesize", "release", "--rows", "rows.parquet"]
    out = answered(*command, "--people", "1000")
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 1000
    for words in ("belong to the released tables", "old.all", "age x income", "charge nothing"):
        assert words in " ".join(out.split())
    assert (release.folder.parent / "ledger.db").read_bytes() == book
    again = neyman(*command, cwd=tmp_path, check=2)
    assert "already exists" in " ".join(again.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["release", "rows.parquet"]


def test_a_release_without_counts_is_refused(tmp_path):
    plan = ny.Plan.from_dict({
        "schema": 2, "name": "p", "dataset": "p@1", "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"age": {"integer": True}}, "budget": {"zcdp": "1/2"},
        "query": [{"name": "s", "measure": "sum", "column": "age", "clip": [0, 9], "share": 1}],
    })  # fmt: skip
    ledger = ny.Ledger(str(tmp_path / "ledger.db"))
    ledger.create("p@1", protects="person", neighboring="replace-one", cap=1)
    release = ny.run(plan, pa.table({"age": [1, 2]}), ledger, tmp_path / "release", pages={})
    with pytest.raises(ValueError, match="no table of counts by known keys"):
        synthesize(release)
    with pytest.raises(ValueError, match="people = 0"):
        synthesize(release, people=0)
