"""Published facts: the 2020 allocation, and figures printed in the literature."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["ALLOCATION", "PUBLISHED", "read"]


def read(name: str) -> dict[str, Any]:
    """Return the facts of a file in `reproductions/data`."""
    return json.loads((files("reproductions") / "data" / name).read_text(encoding="utf-8"))


ALLOCATION = read("pl94_allocation.json")
PUBLISHED = read("published.json")
