"""The relation of neighboring datasets: how the records of one unit may differ between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Neighboring = Literal["replace-one", "add-remove"]

Relation = Literal["any", "add-remove", "replace-one"]
""" "any" where a shift or a curve is all that is known."""

NEIGHBORING: tuple[Neighboring, ...] = ("add-remove", "replace-one")
RELATIONS: tuple[Relation, ...] = ("any", *NEIGHBORING)

MOVES: Mapping[Neighboring, int] = {"add-remove": 1, "replace-one": 2}
"""How many records come or go: one that is replaced goes, and another one comes."""


def size_known(relation: Relation) -> bool:
    """Return True if neighbors have the same number of records, which is then public."""
    return relation == "replace-one"


def neighboring_of(value: object, why: str = "") -> Neighboring:
    """Return the relation.

    Args:
        value: what the caller gave.
        why: what the relation decides, for the message.

    Raises:
        ValueError: it is neither of the two.
    """
    for relation in NEIGHBORING:
        if value == relation:
            return relation
    raise ValueError(f"neighboring = {value!r} must be 'add-remove' or 'replace-one'{why}")


def relation_of(value: object) -> Relation:
    """Return the relation, or "any".

    Raises:
        ValueError: it is none of them.
    """
    for relation in RELATIONS:
        if value == relation:
            return relation
    raise ValueError(f"neighboring = {value!r} must be one of {', '.join(map(repr, RELATIONS))}")


def unified(a: Relation, b: Relation) -> Relation:
    """Return the relation of two things used together: "any" goes with each, others do not mix.

    Raises:
        ValueError: the two have different relations.
    """
    if "any" in (a, b) or a == b:
        return b if a == "any" else a
    raise ValueError(
        f"neighboring = {a!r} and {b!r} cannot be mixed: describe both under one relation"
    )
