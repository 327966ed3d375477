"""Published facts: the 2020 allocation, and figures printed in the literature."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["ALLOCATION", "PUBLISHED"]


def _read(name: str) -> dict[str, Any]:
    return json.loads((files("reproductions") / "data" / name).read_text(encoding="utf-8"))


ALLOCATION = _read("pl94_allocation.json")
PUBLISHED = _read("published.json")
