"""How far one record can move the parts of marginals, all of them together [MA-1].

Which attributes D of a replaced record move a weighted sum of parts most is a cut problem: with two
values each, and parts of two attributes, a part moves just where one of its attributes changes. So
all D are tried, but for exchanges of attributes that play the same role. The sum is a polynomial
with one term for each set of attributes, so its values at all 2^d sets come in d 2^d additions of
floats. Those that could be the largest in spite of rounding are compared in exact numbers [MA-3].
Beyond 20 attributes without exchanges, the largest shifts of all parts are added up instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.relation import Neighboring

Part = tuple[str, ...]
"""Attributes by name, in the order in which their sizes were given."""


@dataclass(frozen=True)
class Limits:
    """How many changes of a record are tried."""

    changes: int = 1 << 20  # changes of a record, times parts
    attributes: int = 20
    compared: int = 4096  # in exact numbers


LIMITS = Limits()


def shift_squared(part: Part, changed: Iterable[str] | None, sizes: Mapping[str, int]) -> int:
    """By how much a record moves r_B: the squared l2 norm, exact [MA-1].

    Args:
        part: B.
        changed: the attributes in which the record and its replacement differ; None where it is
            added or removed.
    """
    alone = math.prod(sizes[name] * (sizes[name] - 1) for name in part)
    if changed is None:
        return alone
    differ = set(changed)
    both = math.prod(
        -sizes[name] if name in differ else sizes[name] * (sizes[name] - 1) for name in part
    )
    return 2 * (alone - both)


def largest_shift(part: Part, sizes: Mapping[str, int]) -> int:
    """Return the largest squared shift of one part when a record is replaced [MA-2]."""
    return max(shift_squared(part, changed, sizes) for changed in subsets(part))


def largest(
    sizes: Mapping[str, int], precisions: Mapping[Part, Fraction], neighboring: Neighboring
) -> tuple[Fraction, bool]:
    """Return the largest sum of precision * shift^2, and whether some change of a record reaches
    it.

    Args:
        precisions: of the parts, exact, at least 0.
        neighboring: "add-remove" or "replace-one".

    Returns:
        An exact number that no change exceeds; True where one reaches it.
    """
    common = math.lcm(*(p.denominator for p in precisions.values()))
    weights = {part: int(p * common) for part, p in precisions.items()}

    def cost(changed: Iterable[str] | None) -> int:
        return sum(k * shift_squared(part, changed, sizes) for part, k in weights.items())

    if neighboring == "add-remove":
        return Fraction(cost(None), common), True
    tried = few_changes(sizes, weights)
    if tried is None:
        tried = _contenders(sizes, weights)
    if tried is None:
        most = sum(k * largest_shift(part, sizes) for part, k in weights.items())
        return Fraction(most, common), False
    return Fraction(max(map(cost, tried)), common), True


def few_changes(sizes: Mapping[str, int], weights: Mapping[Part, object]) -> list[Part] | None:
    """Return replacements that contain the worst one, by exchanges alone; None if they are many.

    Args:
        weights: of the parts; attributes that can be exchanged without changing them are alike.
    """
    classes = isomorphic(sizes, weights)
    if math.prod(len(group) + 1 for group in classes) * len(weights) > LIMITS.changes:
        return None
    counts = product(*(range(len(group) + 1) for group in classes))
    return [
        tuple(name for group, n in zip(classes, chosen, strict=True) for name in group[:n])
        for chosen in counts
        if any(chosen)
    ]


def worst_change(sizes: Mapping[str, int], weights: Mapping[Part, float]) -> Part | None:
    """Return a replacement that moves a weighted sum of parts
    most, but for rounding; None if unknown.
    """
    if len(sizes) > LIMITS.attributes:
        return None
    return _part_names(sizes, int(np.argmax(_sums(sizes, weights)[0])))


def isomorphic(sizes: Mapping[str, int], weights: Mapping[Part, object]) -> list[Part]:
    """Attributes in classes: any two of a class can be exchanged without changing the weights."""
    place = {name: i for i, name in enumerate(sizes)}
    by_name: dict[str, list[Part]] = {name: [] for name in sizes}
    for part in weights:
        for name in part:
            by_name[name].append(part)

    def exchanged(part: Part, a: str, b: str) -> Part:
        swap = {a: b, b: a}
        return tuple(sorted((swap.get(name, name) for name in part), key=place.__getitem__))

    classes: list[list[str]] = []
    for name in sizes:
        for group in classes:
            other = group[0]
            if sizes[other] == sizes[name] and all(
                weights.get(exchanged(part, name, other)) == weights[part]
                for part in (*by_name[name], *by_name[other])
            ):
                group.append(name)
                break
        else:
            classes.append([name])
    return [tuple(group) for group in classes]


def subsets(part: Sequence[str]) -> list[Part]:
    """Every subset, smaller ones first; in the order of the whole."""
    return [chosen for k in range(len(part) + 1) for chosen in combinations(part, k)]


def _contenders(sizes: Mapping[str, int], weights: Mapping[Part, int]) -> list[Part] | None:
    """Return replacements that contain the worst one, one of each kind; None if they are many."""
    if len(sizes) > LIMITS.attributes:
        return None
    top = max(weights.values())  # whole numbers may be too large for floats
    near = {part: float(Fraction(k, top)) for part, k in weights.items()}
    sums, rounding = _sums(sizes, near)
    places = np.flatnonzero(sums >= sums.max() - 2 * rounding)
    if len(places) > LIMITS.compared * 64:
        return None
    classes = isomorphic(sizes, weights)
    kinds: dict[tuple[int, ...], Part] = {}
    for place in places.tolist():
        changed = _part_names(sizes, place)
        kinds.setdefault(tuple(sum(n in group for n in changed) for group in classes), changed)
    return list(kinds.values()) if len(kinds) <= LIMITS.compared else None


def _sums(
    sizes: Mapping[str, int], weights: Mapping[Part, float]
) -> tuple[NDArray[np.float64], float]:
    """Return the weighted sum of shift^2 for every set of changed attributes, and how far it may be
    off.

    With d_i = 1 where attribute i changes, a part's second product is that of
    n_i (n_i - 1) - n_i^2 d_i; sorted by products of d_i, the value at D is the sum of the
    coefficients of all subsets of D. The position of D is the sum of 2^i.
    """
    bit = {name: 1 << i for i, name in enumerate(sizes)}
    table = np.zeros(1 << len(sizes))
    size = 0.0
    for part, weight in weights.items():
        for chosen in subsets(part)[1:]:  # no attribute changed: nothing moves
            factors = [
                -(sizes[name] ** 2) if name in chosen else sizes[name] * (sizes[name] - 1)
                for name in part
            ]
            value = -2.0 * weight * math.prod(map(float, factors))
            table[sum(bit[name] for name in chosen)] += value
            size += abs(value)
    for i in range(len(sizes)):
        halves = table.reshape(-1, 2, 1 << i)
        halves[:, 1] += halves[:, 0]
    # A coefficient is right to one part in 2^53 for each factor and each part that adds to it, a
    # sum to one for each attribute [MA-3]; all of them are at most the sum of all sizes.
    steps = len(sizes) + len(weights) + 2 * max(map(len, weights)) + 8
    return table, 2.0 * steps * size * 2.0**-53


def _part_names(sizes: Mapping[str, int], place: int) -> Part:
    return tuple(name for i, name in enumerate(sizes) if place >> i & 1)
