"""Compare the fields of a receipt with what follows from its terms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from neyman.numerics import check

# Relative difference of bounds that another machine may compute in their last digits.
MACHINE_TOLERANCE = 1e-6
_VERSION_TOLERANCE = 1e-3
"""How much narrower stored bounds may be, relative to each, where they meet ours.

Two versions enclose one number in two intervals, and both hold. Where a curve has a kink, their
ends differ by more than rounding does. Bounds that miss ours or claim more than this are refused.
"""


class Differs(Exception):
    """A field of a receipt does not follow from its terms."""


def ratio(text: object) -> Fraction:
    """Return an exact number that is at least 0, from its text."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,1300}(/[0-9]{1,1300})?", text):
        raise Differs(f"{short(text)} is not an exact number such as '1/4'")
    return Fraction(text)


def short(value: object) -> str:
    """Return a value as it can stand in a message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def keys(where: str, own: Iterable[object], said: object) -> None:
    """Require a mapping with exactly the expected keys."""
    if not check.is_mapping(said):
        raise Differs(f"{where} is {short(said)}, and must be an object")
    for missing in (key for key in own if key not in said):
        raise Differs(f"{where}.{missing} is missing")
    for extra in (key for key in said if key not in own):
        raise Differs(f"{where}.{short(extra)} is not part of a receipt")


def _pairs(where: str, own: object, said: Any) -> list[tuple[str, Any, Any]] | None:
    """Return the parts of a mapping or a list, each with its place; None for a plain value."""
    if check.is_mapping(own):
        keys(where, own, said)
        return [(f"{where}.{key}", value, said[key]) for key, value in own.items()]
    if not check.is_list(own):
        return None
    length = len(said) if check.is_list(said) else short(said)
    if length != len(own):
        raise Differs(f"{where} has {len(own)} items, and the receipt {length}")
    return [(f"{where}[{index}]", value, said[index]) for index, value in enumerate(own)]


def same(where: str, own: object, said: object) -> None:
    """Refuse any difference of keys, lengths, types, values; floats may differ by a rounding."""
    pairs = _pairs(where, own, said)
    if pairs is not None:
        for place, value, other in pairs:
            same(place, value, other)
    elif isinstance(own, float):
        if not math.isclose(number(where, said), own, rel_tol=1e-9):
            raise Differs(f"{where} is {short(said)}, and follows as {own!r}")
    elif type(said) is not type(own) or said != own:
        raise Differs(f"{where} is {short(said)}, and follows as {short(own)}")


def number(where: str, said: object) -> float:
    """Return a number of a receipt, infinity included."""
    if said == "inf":
        return math.inf
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        raise Differs(f"{where} is {short(said)}, which is not a number")
    return float(said)


def intervals(where: str, own: object, said: Any) -> Iterator[bool]:
    """Compare stored bounds with ours: the same questions, and bounds that guarantee no more.

    Yields:
        For each pair of bounds, whether ours prove the stored ones. If not, the two intervals meet,
        and differ by less than what separates two versions.
    """
    pairs = _pairs(where, own, said)
    if pairs is None:
        same(where, own, said)
        return
    if not check.is_mapping(own) or "lower" not in own:
        for place, value, other in pairs:
            yield from intervals(place, value, other)
        return
    for key in own:
        if key not in ("lower", "upper"):
            same(f"{where}.{key}", own[key], said[key])
    low, high = number(where, own["lower"]), number(where, own["upper"])
    said_low = number(f"{where}.lower", said["lower"])
    said_high = number(f"{where}.upper", said["upper"])
    most = 1.0 if re.search("power|curve|total_variation|posterior", where) else math.inf
    if not 0 <= said_low <= said_high <= most:
        raise Differs(f"{where} is stated in [{said_low}, {said_high}], which is not an interval")
    # Wider is another version's right. Narrower claims what is not proven here.
    proven = said_high >= high * (1 - MACHINE_TOLERANCE) and said_low <= low * (
        1 + MACHINE_TOLERANCE
    )
    near = said_high >= high * (1 - _VERSION_TOLERANCE) and said_low <= low * (
        1 + _VERSION_TOLERANCE
    )
    if not proven and not (near and said_low <= high and low <= said_high):
        raise Differs(
            f"{where} is stated in [{said_low}, {said_high}], and computed in [{low}, {high}]"
        )
    yield proven
