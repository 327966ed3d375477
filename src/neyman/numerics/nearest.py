"""The floats next to an exact number, on either side."""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["above", "below"]


def above(value: Fraction | float) -> float:
    """The float at or just above an exact number."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def below(value: Fraction | float) -> float:
    """The float at or just below an exact number."""
    near = float(value)
    return near if near <= value else math.nextafter(near, -math.inf)
