"""How many random examples a law tries: few in CI, many in `make fuzz`."""

from __future__ import annotations

import os

__all__ = ["INPUTS", "examples"]

INPUTS = int(os.environ.get("NEYMAN_FUZZ") or 0)
"""The size that `make fuzz` asks for; 0 elsewhere."""


def examples(number: int, least: int = 1) -> int:
    """Half of a number, and at least so many; ten times the number in `make fuzz`."""
    return number * max(1, INPUTS // 5000) if INPUTS else max(least, number // 2)
