"""Define the relation of neighboring datasets: how the records of one unit may differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from neyman.numerics import check

Neighboring = Literal["replace-one", "add-remove"]

Relation = Literal["any", "add-remove", "replace-one"]
"""A relation of neighboring datasets; "any" if only a shift or a curve is known."""

NEIGHBORING: tuple[Neighboring, ...] = ("add-remove", "replace-one")
RELATIONS: tuple[Relation, ...] = ("any", *NEIGHBORING)

MOVES: Mapping[Neighboring, int] = {"add-remove": 1, "replace-one": 2}
"""The number of records that differ between neighbors: a replacement removes one and adds one."""


def size_known(relation: Relation) -> bool:
    """Return True if neighbors have the same number of records, which is then public."""
    return relation == "replace-one"


def neighboring_of(value: object, why: str = "") -> Neighboring:
    """Return the relation, "add-remove" or "replace-one".

    Args:
        value: the caller's value.
        why: what the relation decides, for the message.

    Raises:
        ValueError: ``value`` is neither relation.
    """
    return check.one_of("neighboring", value, NEIGHBORING, why)


def relation_of(value: object) -> Relation:
    """Return ``value`` if it is a relation, or "any".

    Raises:
        ValueError: ``value`` is neither.
    """
    return check.one_of("neighboring", value, RELATIONS)


def unified(a: Relation, b: Relation) -> Relation:
    """Return the common relation of two objects. "any" combines with each.

    Raises:
        ValueError: the two have different relations.
    """
    if "any" in (a, b) or a == b:
        return b if a == "any" else a
    raise ValueError(
        f"neighboring = {a!r} and {b!r} cannot be mixed: describe both under one relation"
    )
