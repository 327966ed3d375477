"""A number that is known to lie between two others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Bound", "directed"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A certified interval ``[lower, upper]`` around a computed number.

    Args:
        lower: certified lower end.
        upper: certified upper end; ``lower <= upper``.
        safe: the end that keeps the privacy promise: "upper" for epsilon, delta and power,
            "lower" for a type II error. ``float(bound)`` is that end.
        method: how the number was found. It says so when the number is an estimate.

    Bounds have no arithmetic and no order: take the end that is meant.

    Examples:
        >>> import neyman as ny
        >>> found = ny.gdp(1).epsilon(delta=1e-6)
        >>> print(found)
        4.88655411747
        >>> float(found) == found.upper >= found.lower
        True
    """

    lower: float
    upper: float
    safe: Literal["lower", "upper"] = "upper"
    method: str = ""

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise ValueError(f"lower = {self.lower!r} must not exceed upper = {self.upper!r}")
        if self.safe not in ("lower", "upper"):
            raise ValueError(f"safe = {self.safe!r} must be 'lower' or 'upper'")

    def __float__(self) -> float:
        return self.upper if self.safe == "upper" else self.lower

    @property
    def width(self) -> float:
        """Return upper - lower (0 where both ends are the same infinity)."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    def __str__(self) -> str:
        return format_between(self.lower, self.upper, self.safe)

    def __repr__(self) -> str:
        how = f", method={self.method!r}" if self.method else ""
        return f"Bound({self}; lower={self.lower!r}, upper={self.upper!r}, safe={self.safe!r}{how})"


def format_between(lower: float, upper: float, safe: str = "upper", most: int = 15) -> str:
    """As many digits as both ends vouch for, rounded toward the safe side.

    The printed number is the safe end, rounded away from the other end, with the last digit that
    the interval's width leaves meaningful. An interval too wide for two digits prints both ends,
    rounded outward.
    """
    end = upper if safe == "upper" else lower
    if math.isinf(end):
        return "inf" if end > 0 else "-inf"
    if lower == upper:
        short = f"{end:.{most}g}"
        return short if float(short) == end else directed(end, most, up=safe == "upper")
    apart = f"between {directed(lower, 3, up=False)} and {directed(upper, 3, up=True)}"
    if math.isinf(upper - lower):
        return apart
    if end == 0:
        return "0" if upper - lower < 1e-15 else apart
    digits = math.floor(math.log10(abs(end))) - math.floor(math.log10(upper - lower))
    digits = min(digits, most)
    if digits < 2:
        return apart
    return directed(end, digits, up=safe == "upper")


def directed(x: float, digits: int, *, up: bool) -> str:
    """``x`` in so many significant digits, rounded up or down."""
    if math.isinf(x) or x == 0:
        return format(x, "g")
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    rounded = context.create_decimal(Decimal(x))
    # A plain number where that reads well, an exponent elsewhere.
    return f"{rounded:f}" if -6 <= rounded.adjusted() < 16 else f"{rounded:e}"
