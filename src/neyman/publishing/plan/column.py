"""A column that queries use: keys to group by, or numbers to sum, kept as scaled whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from neyman.accounting.semantics.digits import exact_text
from neyman.numerics import check
from neyman.publishing.plan.hierarchy import KeyFile

Section: TypeAlias = dict[str, object]  # a section of a canonical plan: JSON types by field

KeyKind = Literal["text", "whole", "boolean"]
"""What a plan's keys are, which decides how a value is read as a key."""


@dataclass(frozen=True)
class Column:
    """A column that queries use: keys to group by, or numbers to sum.

    Args:
        keys: the public keys; empty for a column to sum and for one whose keys are unknown.
        unknown: the position of the key that unlisted values go to, or the number that replaces a
            missing one in a column to sum, scaled. None drops the row: from the tables by this
            column, or from the statistics of its numbers [UN-10].
        decimals: digits after the point of a column to sum: a value in the plan's units is
            whole / 10^decimals, and clips, edges and ``unknown`` are kept as that whole number.
        discover: whether its keys are unknown and found in the data; a missing value is dropped.
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
        """Whether the column is one to sum, of whole or fixed-point numbers."""
        return not self.keys and not self.discover

    @property
    def kind(self) -> KeyKind:
        """What the keys are: texts, whole numbers or true/false. Discovered keys are texts."""
        first = self.keys[0] if self.keys else ""
        if isinstance(first, bool):
            return "boolean"
        return "whole" if isinstance(first, int) else "text"

    def to_dict(self) -> Section:
        """Return the section of a canonical plan."""
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
    """Return the text that a key is compared as: ``true``/``false``, decimal digits, or itself."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def scaled(value: object, decimals: int) -> int | None:
    """Return the whole number value * 10^decimals; None where it is none."""
    try:
        number = check.exact("value", value) * 10**decimals
    except (TypeError, ValueError):
        return None
    return int(number) if number.denominator == 1 else None


def unscaled(value: int, column: Column) -> int | str:
    """Return a scaled whole number as the plan writes it: a whole
    number, or an exact decimal in text.
    """
    return exact_text(Fraction(value, 10**column.decimals)) if column.decimals else value
