"""Two small plans, and how most tests make a release: without its report, which takes longest."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from neyman import Plan, run

release = partial(run, pages={})

SMALL: dict[str, Any] = {
    "schema": 2, "name": "small", "dataset": "people@1", "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {"race": {"keys": ["white", "black"]}}, "budget": {"zcdp": "1/2"},
    "query": [{"name": "race", "measure": "count", "by": ["race"], "share": "1"}],
}  # fmt: skip


COUNTIES = [
    ["US", "Ohio", "Adams"], ["US", "Ohio", "Allen"], ["US", "Iowa", "Boone"],
    ["US", "Iowa", "Clay"],
]  # fmt: skip
STATE_TOTAL: dict[str, Any] = {"by": ["state"], "values": [["US", "Ohio", 60], ["US", "Iowa", 40]]}
YEAR_TOTAL: dict[str, Any] = {"by": ["year"], "values": [[2020, 70], [2021, 30]]}
TOTALS: dict[str, Any] = {
    "schema": 2,
    "name": "people",
    "dataset": "people@1",
    "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one", "rows": 1},
    "columns": {
        "race": {"keys": ["white", "black", "other"], "unknown": "other"},
        "year": {"keys": [2020, 2021], "unknown": 2020},
    },
    "hierarchy": {
        "place": {
            "levels": ["nation", "state", "county"],
            "keys": COUNTIES,
            "unknown": ["US", "Iowa", "Clay"],
        }
    },
    "budget": {"zcdp": "1/10"},
    "query": [
        {"name": "all", "measure": "count", "by": ["race", "year"], "at": ["county"]}
        | {"share": "1/2"},
        {"name": "race", "measure": "count", "by": ["race"], "at": ["county"], "share": "1/2"},
    ],
}


def plan_with_totals(*totals: Any, folder: Path | None = None, **more: Any) -> Plan:
    """Counts by county, beside totals."""
    return Plan.from_dict(TOTALS | {"totals": list(totals)} | more, folder=folder)
