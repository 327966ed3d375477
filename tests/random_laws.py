"""How many random examples a distribution tries: few in `make test`, more in CI, many in `make
fuzz`.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["INPUTS", "examples", "grows", "is_random", "is_small"]

INPUTS = int(os.environ.get("NEYMAN_FUZZ") or 0)
"""The size that `make fuzz` asks for; 0 elsewhere."""


def examples(number: int, least: int = 1) -> int:
    """Return half of a number, an eighth in `make test`, or ten times as many in `make fuzz`."""
    if INPUTS:
        return number * max(1, INPUTS // 5000)
    return max(least, number // (8 if is_small() else 2))


def is_random(test: Any) -> bool:
    """Return True if Hypothesis draws the examples of a collected test."""
    function = getattr(test, "obj", None)
    return getattr(function, "is_hypothesis_test", False) or hasattr(function, "draws")


def grows(test: Any) -> bool:
    """Return True if a collected test tries more in a larger tier: it is random, or asks for it."""
    asks = {"examples", "is_small"} & {*getattr(test.function, "__code__", grows.__code__).co_names}
    return bool(asks) or "share" in test.fixturenames or bool(test.get_closest_marker("random"))


def is_small() -> bool:
    """Return True if this run is of a tier that a contributor waits for (tests/tiers.py)."""
    return os.environ.get("NEYMAN_TIER") in ("fast", "test")
