"""Describe the columns of queries: keys to group by, or numbers to sum as scaled integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from neyman.accounting.semantics.digits import exact_text
from neyman.numerics import check
from neyman.publishing.plan.hierarchy import KeyFile

Section: TypeAlias = dict[str, object]  # a section of a canonical plan: JSON types by field

KeyKind = Literal["text", "whole", "boolean"]
"""The type of a plan's keys. It decides how a value is read as a key."""


@dataclass(frozen=True)
class Column:
    """Represent a column that queries use: keys to group by, or numbers to sum.

    Args:
        keys: the public keys; empty for a column to sum or with unknown keys.
        unknown: for keys, the position of the key for unlisted values. For numbers, the scaled
            number that replaces a missing one. None drops the row from the tables by this column,
            or from the statistics of its numbers [UN-10].
        decimals: digits after the point of a column to sum. A value in the plan's units is integer
            / 10^decimals. Clips, edges, and ``unknown`` are stored as this integer.
        discover: True to discover keys in the data. Rows with a missing value are then dropped.
    """

    name: str
    keys: tuple[str | int | bool, ...]
    unknown: int | None
    decimals: int = 0
    discover: bool = False
    file: KeyFile | None = field(default=None, compare=False)
    measurement_unit: str | None = None

    @property
    def integer(self) -> bool:
        """Return True if the column has numbers to sum, and False if it has keys."""
        return not self.keys and not self.discover

    @property
    def kind(self) -> KeyKind:
        """Return the type of the keys: text, whole, or boolean. Discovered keys are texts."""
        first = self.keys[0] if self.keys else ""
        if isinstance(first, bool):
            return "boolean"
        return "whole" if isinstance(first, int) else "text"

    def to_dict(self) -> Section:
        """Return the column's section in a canonical plan."""
        if self.discover:
            return {"discover": True}
        if not self.integer:
            unknown = "drop" if self.unknown is None else self.keys[self.unknown]
            return {"keys": list(self.keys), "unknown": unknown}
        kind: Section = {"decimals": self.decimals} if self.decimals else {"integer": True}
        kind["unknown"] = "drop" if self.unknown is None else unscaled(self.unknown, self)
        unit = {"measurement_unit": self.measurement_unit} if self.measurement_unit else {}
        return kind | unit


def key_text(key: str | int | bool) -> str:
    """Return a key as a text for comparisons: ``true``/``false``, decimal digits, or the key."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def scaled(value: object, decimals: int) -> int | None:
    """Return value * 10^decimals if it is an integer, else None."""
    try:
        number = check.exact("value", value) * 10**decimals
    except (TypeError, ValueError):
        return None
    return int(number) if number.denominator == 1 else None


def unscaled(value: int, column: Column) -> int | str:
    """Return a scaled integer in the plan's units: an integer, or the text of an exact decimal."""
    return exact_text(Fraction(value, 10**column.decimals)) if column.decimals else value
