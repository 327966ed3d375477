"""Releases whose tables add up: what is published, and what verification finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from forging import rewrite
from neyman.display import page
from neyman.publishing import PlanError, verify

METHODS = ("least-squares", "nonnegative", "integer")


def plan(method: str, **more: Any) -> ny.Plan:
    """Counts by place and race, a sum in cents, and a mean that takes no part."""
    query = [
        {"name": "total", "measure": "count", "at": ["state", "county"], "share": "1/4"},
        {"name": "race", "measure": "count", "by": ["race"], "at": ["county"], "share": "1/4"},
        {"name": "paid", "measure": "sum", "column": "pay", "clip": [0, "10.5"],
         "at": ["state", "county"], "share": "1/4"},
        {"name": "age", "measure": "mean", "column": "age", "clip": [0, 100], "share": "1/4"},
    ]  # fmt: skip
    return ny.Plan.from_dict(
        {
            "schema": 2, "name": "adding up", "dataset": "people@1", "table": "people",
            "unit": {"protects": "person", "neighboring": "replace-one"},
            "columns": {
                "race": {"keys": ["a", "b"], "unknown": "b"},
                "age": {"integer": True, "unknown": 0}, "pay": {"decimals": 2, "unknown": 0},
            },
            "hierarchy": {
                "place": {
                    "levels": ["state", "county"], "keys": [["s", "c1"], ["s", "c2"], ["t", "c3"]],
                    "unknown": ["t", "c3"],
                },
            },
            "budget": {"zcdp": 0.5}, "consistency": {"method": method}, "query": query,
        }
        | more
    )  # fmt: skip


def people() -> pa.Table:
    rows = np.arange(40)
    county = np.array(["c1", "c2", "c3"])[rows % 3]
    return pa.table({
        "state": np.where(county == "c3", "t", "s"), "county": county,
        "race": np.array(["a", "b"])[rows % 2], "age": rows, "pay": rows / 4,
    })  # fmt: skip


def released(method: str, folder: Path) -> ny.Release:
    ledger = ny.Ledger(str(folder / "ledger.db"))
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    return ny.run(plan(method), data=people(), ledger=ledger, out=folder / "out")


@pytest.mark.parametrize("method", METHODS)
def test_published_tables_add_up_and_are_verified(method: str, tmp_path: Path) -> None:
    release = released(method, tmp_path)
    assert {name for name in release.tables if name.startswith("consistent/")} == {
        f"consistent/{name}"
        for name in ("total.state", "total.county", "race.county", "paid.state", "paid.county")
    }
    for name in ("total", "paid"):
        county = release.tables[f"consistent/{name}.county"].to_pandas()
        state = release.tables[f"consistent/{name}.state"].to_pandas()
        summed = county.groupby("state")["value"].sum().astype(float).tolist()
        assert summed == pytest.approx(state["value"].astype(float).tolist(), abs=1e-6)
    race = release.tables["consistent/race.county"].to_pandas()
    county = release.tables["consistent/total.county"].to_pandas()
    summed = race.groupby("county")["value"].sum().tolist()
    assert summed == pytest.approx(county["value"].tolist(), abs=1e-6)
    assert release.receipt["consistency"]["method"] == method
    checks = verify(tmp_path / "out", {"report.html": page})
    assert [check for check in checks if not check.ok] == []
    assert "Tables that add up" in (tmp_path / "out" / "report.html").read_text()


def test_an_edited_table_that_adds_up_is_found(tmp_path: Path) -> None:
    def off(table: pa.Table) -> pa.Table:
        value = table.column("value").to_numpy().copy()
        value[0] += 0.25
        return table.set_column(table.column_names.index("value"), "value", pa.array(value))

    released("least-squares", tmp_path)
    rewrite(tmp_path / "out", "consistent/total.state", off)
    failed = {check.name for check in verify(tmp_path / "out") if not check.ok}
    assert "tables/consistent/total.state.parquet" in failed


def test_what_the_receipt_says_of_adding_up_is_checked(tmp_path: Path) -> None:
    released("integer", tmp_path)
    receipt = tmp_path / "out" / "receipt.json"
    content = json.loads(receipt.read_text())
    total = content.pop("consistency")
    receipt.write_text(json.dumps(content))
    assert any(not check.ok for check in verify(receipt))
    content["consistency"] = total | {"left_out": []}
    receipt.write_text(json.dumps(content))
    assert {check.name for check in verify(receipt) if not check.ok} == {"tables"}


def test_what_cannot_add_up_is_refused_before_the_charge(tmp_path: Path) -> None:
    ledger = ny.Ledger(str(tmp_path / "ledger.db"))
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    by_age = [
        {"name": "race", "measure": "count", "by": ["race"], "share": "1/2"},
        {"name": "bins", "measure": "histogram", "column": "age", "edges": [0, 50, 100],
         "share": "1/2"},
    ]  # fmt: skip
    with pytest.raises(PlanError, match="whole numbers need one table"):
        ny.run(plan("integer", query=by_age), people(), ledger, tmp_path / "out")
    assert ledger.account("people@1").spent == 0
    assert not (tmp_path / "out").exists()
