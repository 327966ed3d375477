"""Counts and sums by keys found in the data, from the plan to a verified release."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

import neyman as ny
from forging import rewrite
from neyman.publishing import verify

BASE: dict[str, Any] = {
    "schema": 2, "name": "found", "dataset": "d@1", "table": "t",
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 3, "id": "id"},
    "columns": {"word": {"discover": True}, "pay": {"decimals": 2, "unknown": 0, "parse": True}},
    "budget": {"zcdp": 100, "delta": "1e-6"},
}  # fmt: skip
ROWS = [
    {"id": f"p{i // 3}", "word": f"w{i % 7}" if i % 50 else f"rare {i}", "pay": f"{i % 9}.25"}
    for i in range(3000)
]
DATA = pa.Table.from_pylist(ROWS)


def a_plan(*queries, **sections):
    share = f"1/{len(queries)}"
    return ny.Plan.from_dict(
        BASE | sections | {"query": [{"share": share, **query} for query in queries]}
    )


COUNT = {"name": "rows", "measure": "count", "by": ["word"], "delta": "1e-8"}
SUM = {
    "name": "pay", "measure": "sum", "column": "pay", "clip": [0, "5.5"], "by": ["word"],
    "delta": "1e-8",
}  # fmt: skip


@pytest.mark.parametrize("noise", ["discrete-gaussian", "rounded-gaussian"])
@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
def test_a_release_has_numbers_of_keys_with_enough_units_and_verifies(noise, neighboring, tmp_path):
    plan = a_plan(COUNT, SUM, noise=noise, unit=BASE["unit"] | {"neighboring": neighboring})
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create(
        "d@1", protects="person", neighboring=neighboring, rows=3, cap=100, delta_cap="1e-6"
    )
    release = ny.run(plan, {"t": DATA}, ledger, tmp_path / "release")
    exact = defaultdict(list)
    for row in ROWS:
        exact[row["word"]].append(min(float(row["pay"]), 5.5))
    common = sorted(word for word in exact if word.startswith("w"))
    for table, number in (("rows.all", len), ("pay.all", sum)):
        published = release.tables[table]
        assert published.column_names == ["word", "value", "standard_error", "lower", "upper"]
        assert published["word"].to_pylist() == common
        errors = published["standard_error"].to_pylist()
        values = published["value"].to_pylist()
        for word, value, error in zip(common, values, errors, strict=True):
            assert abs(float(value) - number(exact[word])) < 7 * error < 0.1 * number(exact[word])
    assert [check.name for check in verify(tmp_path / "release") if not check.ok] == []
    receipt = json.loads((tmp_path / "release" / "receipt.json").read_text())
    parts = [(part["query"], part["measure"]) for part in receipt["mechanisms"]]
    assert parts == [("rows", "keys"), ("rows", "count"), ("pay", "keys"), ("pay", "sum")]


def test_a_value_that_is_not_that_of_its_noise_fails(tmp_path):
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create(
        "d@1", protects="person", neighboring="replace-one", rows=3, cap=100, delta_cap="1e-6"
    )
    ny.run(a_plan(COUNT), {"t": DATA}, ledger, tmp_path / "release")
    zeros = lambda table: pa.array([0] * len(table), table.schema.field("value").type)  # noqa: E731
    rewrite(tmp_path / "release", "rows.all", lambda t: t.set_column(1, "value", zeros(t)))
    failed = {check.name for check in verify(tmp_path / "release") if not check.ok}
    assert "tables/rows.all.parquet" in failed


def test_a_clip_that_no_noise_fits_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(ValueError, match=r"query\[0\]\.clip"):
        a_plan(SUM | {"clip": [0, 10**13]})


def test_the_mean_by_unknown_keys_is_refused_with_what_is_valid():
    with pytest.raises(ValueError, match=r"must be 'units', 'count' or 'sum'"):
        a_plan(SUM | {"measure": "mean"})
