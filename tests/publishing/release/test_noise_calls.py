"""Every published number has noise, of exactly the variance that the receipt states."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from neyman.publishing import add_noise
from plans import release

ROWS = [(f"p{i}", ("north", "south")[i % 2], f"w{i % 3}", i % 11) for i in range(300)]
TABLE = pa.table(
    dict(zip(("id", "place", "word", "pay"), map(list, zip(*ROWS, strict=True)), strict=True))
)
FORMS: dict[str, dict[str, Any]] = {
    "count": {}, "units": {}, "sum": {"column": "pay", "clip": [0, 10]},
    "mean": {"column": "pay", "clip": [0, 10]}, "variance": {"column": "pay", "clip": [0, 10]},
    "standard_deviation": {"column": "pay", "clip": [0, 10]},
    "ratio": {"column": "pay", "clip": [0, 10], "over": "pay", "clip_over": [0, 10]},
    "histogram": {"column": "pay", "edges": [0, 4, 8, 12]}, "distinct": {"column": "word"},
}  # fmt: skip
FAR = 10**6
"""Noise that no true value and no other noise of the test can be taken for."""


def plan_of(noise: str, *queries: dict[str, Any], **budget: Any) -> ny.Plan:
    return ny.Plan.from_dict({
        "schema": 2, "name": "noise", "dataset": "d@1", "table": "t", "noise": noise,
        "unit": {"protects": "person", "neighboring": "add-remove", "rows": 1, "id": "id"},
        "columns": {
            "place": {"keys": ["north", "south"]},
            "word": {"discover": True} if budget else {"keys": ["w0", "w1", "w2"]},
            "pay": {"integer": True},
        },
        "budget": {"zcdp": 10, **budget},
        "query": [{"share": Fraction(1, len(queries)), **query} for query in queries],
    })  # fmt: skip


def listed(noise: str, measures: Iterable[str] = FORMS) -> ny.Plan:
    """A plan with each measure, over keys that the plan lists."""
    return plan_of(
        noise, *({"name": one, "measure": one, "by": ["place"], **FORMS[one]} for one in measures)
    )


def discovered(noise: str) -> ny.Plan:
    """A plan with each measure that keys found in the data may have."""
    return plan_of(
        noise,
        *(
            {"name": one, "measure": one, "by": ["word"], "delta": "1e-8", **FORMS[one]}
            for one in ("count", "units", "sum")
        ),
        delta="1e-6",
    )


class Spy:
    """Stands before the samplers. It notes each call, and moves each draw far away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[tuple[str, Fraction]] = Counter()
        for name in ("discrete_gaussian", "rounded_gaussian"):
            monkeypatch.setattr(add_noise, name, self.sampler(name, getattr(add_noise, name)))

    def sampler(self, name: str, draw: Any) -> Any:
        def spied(sigma_squared: Fraction, size: int, bits: Any) -> Any:
            self.calls[name, sigma_squared] += size
            return draw(sigma_squared, size, bits) * 0 + FAR

        return spied


def published(plan: ny.Plan, folder: Path) -> tuple[dict[str, pa.Table], list[dict[str, Any]]]:
    ledger = ny.Ledger(folder / "ledger.db")
    ledger.create("d@1", protects="person", neighboring="add-remove", cap=100, delta_cap="1e-6")
    tables = release(plan, {"t": TABLE}, ledger, folder / "release").tables
    return tables, json.loads((folder / "release" / "receipt.json").read_text())["mechanisms"]


def gaussians(mechanism: dict[str, Any]) -> list[dict[str, Any]]:
    parts = [part["mechanism"] for part in mechanism.get("parts", ())] or [mechanism]
    return [part for part in parts if "sigma_squared" in part]


@pytest.mark.parametrize("noise", ["discrete-gaussian", "rounded-gaussian"])
@pytest.mark.parametrize("form", [listed, discovered])
def test_each_form_draws_noise_of_just_the_receipt_s_variance(form, noise, tmp_path, monkeypatch):
    spy = Spy(monkeypatch)
    _, mechanisms = published(form(noise), tmp_path)
    wanted: Counter[tuple[str, Fraction]] = Counter()
    for part in mechanisms:
        (gaussian,) = gaussians(part["mechanism"])
        wanted[noise.replace("-", "_"), Fraction(gaussian["sigma_squared"])] += part["cells"] or 3
    assert spy.calls == wanted
    assert "sum" in {part["measure"] for part in mechanisms}


def true_numbers(by: int) -> dict[str, dict[str, int]]:
    """By measure and key, the numbers that a table has without noise."""
    groups: dict[str, list[int]] = defaultdict(list)
    for row in ROWS:
        groups[row[by]].append(min(row[3], 10))
    return {
        "count": {key: len(values) for key, values in groups.items()},
        "units": {key: len(values) for key, values in groups.items()},
        "sum": {key: sum(values) for key, values in groups.items()},
    }


@pytest.mark.parametrize("by", ["place", "word"])
def test_each_number_is_the_true_one_and_what_the_sampler_returned(by, tmp_path, monkeypatch):
    Spy(monkeypatch)
    known = true_numbers(1 if by == "place" else 2)
    noise = "discrete-gaussian"
    plan = listed(noise, known) if by == "place" else discovered(noise)
    tables, _ = published(plan, tmp_path)
    for measure, numbers in known.items():
        table = tables[f"{measure}.all"]
        values = dict(zip(table[by].to_pylist(), map(int, table["value"].to_pylist()), strict=True))
        assert values == {key: number + FAR for key, number in numbers.items()}


def test_numbers_that_follow_from_noisy_parts_move_with_the_noise(tmp_path, monkeypatch):
    Spy(monkeypatch)
    tables, _ = published(listed("discrete-gaussian"), tmp_path)
    assert np.allclose(np.array(tables["ratio.all"]["value"], float), 1, atol=1e-3)
    assert min(map(int, tables["histogram.all"]["value"].to_pylist())) >= FAR
