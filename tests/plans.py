"""The small plan, and how most tests make a release: without its report, which takes longest."""

from __future__ import annotations

from functools import partial
from typing import Any

from neyman import run

release = partial(run, pages={})

SMALL: dict[str, Any] = {
    "schema": 2,
    "name": "small",
    "dataset": "people@1",
    "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {"race": {"keys": ["white", "black"]}},
    "budget": {"zcdp": "1/2"},
    "query": [{"name": "race", "measure": "count", "by": ["race"], "share": "1"}],
}
