"""Compare the fields of a receipt with recomputed fields, and name the first that differs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from neyman.numerics import check

# The relative difference in bounds that another machine may cause.
MACHINE_TOLERANCE = 1e-6
_VERSION_TOLERANCE = 1e-3
"""How much narrower, in relative terms, stored bounds may be if they overlap ours.

Two versions can give two valid intervals for one number. At a kink of a curve, their ends differ by
more than rounding. Bounds that do not overlap ours, or that claim more than this, are refused.
"""


class Differs(Exception):
    """Report a field of a receipt that differs from the recomputed one."""


def ratio(text: object) -> Fraction:
    """Return the exact nonnegative number in a text. Raise `Differs` for anything else."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,1300}(/[0-9]{1,1300})?", text):
        raise Differs(f"{short(text)} is not an exact number such as '1/4'")
    return Fraction(text)


def short(value: object) -> str:
    """Return the representation of a value, cut to 80 characters for a message."""
    return check.shortened(repr(value))


def keys(where: str, own: Iterable[object], said: object) -> None:
    """Raise `Differs` unless the stored ``said`` is a mapping with exactly the keys ``own``."""
    if not check.is_mapping(said):
        raise Differs(f"{where} is {short(said)}, and must be an object")
    for missing in (key for key in own if key not in said):
        raise Differs(f"{where}.{missing} is missing")
    for extra in (key for key in said if key not in own):
        raise Differs(f"{where}.{short(extra)} is not part of a receipt")


def _pairs(where: str, own: object, said: Any) -> list[tuple[str, Any, Any]] | None:
    """Return (path, own value, stored value) for each item of a mapping or a list.

    Return None if the recomputed value ``own`` is plain. Raise `Differs` if the stored ``said`` has
    other keys or another length.
    """
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
    """Raise `Differs` if the stored value ``said`` differs from the recomputed value ``own``.

    Keys, lengths, and types must be equal. Floats may differ by rounding.
    """
    pairs = _pairs(where, own, said)
    if pairs is not None:
        for place, value, other in pairs:
            same(place, value, other)
    elif isinstance(own, float):
        if not math.isclose(number(where, said), own, rel_tol=1e-9):
            raise Differs(f"{where} is {short(said)}, and is recomputed as {own!r}")
    elif type(said) is not type(own) or said != own:
        raise Differs(f"{where} is {short(said)}, and is recomputed as {short(own)}")


def number(where: str, said: object) -> float:
    """Return ``said``, a receipt's number at the path ``where``, as a float; "inf" as infinity."""
    if said == "inf":
        return math.inf
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        raise Differs(f"{where} is {short(said)}, which is not a number")
    return float(said)


def intervals(where: str, own: object, said: Any) -> Iterator[bool]:
    """Compare the stored bounds ``said`` with ours, ``own``. Refuse any other difference.

    Yields:
        For each pair of bounds, True if ours prove the stored bounds. If False, both intervals
        overlap and differ no more than two versions may.
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

    def contain_ours(tolerance: float) -> bool:
        return said_high >= high * (1 - tolerance) and said_low <= low * (1 + tolerance)

    # Another version may give wider bounds. Narrower bounds claim more than is proven here.
    proven, near = contain_ours(MACHINE_TOLERANCE), contain_ours(_VERSION_TOLERANCE)
    if not proven and not (near and said_low <= high and low <= said_high):
        raise Differs(
            f"{where} is stated in [{said_low}, {said_high}], and computed in [{low}, {high}]"
        )
    yield proven
