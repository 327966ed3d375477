"""Bound how far one record can move the parts of marginals, all parts together [MA-1].

Finding the changed attributes D with the largest weighted sum of squared shifts is a maximum cut
problem, if attributes have two values and parts two attributes: a part moves only if exactly one of
its attributes changes. So the module tries all D, but only one of those that differ by an exchange
of equivalent attributes. The sum is a polynomial with one term for each set of attributes, so d 2^d
floating-point additions give its values at all 2^d sets. Sets that could be the largest despite
rounding are compared exactly [MA-3]. With more than 20 attributes and too few exchanges, the
largest shifts of all parts are added up.
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
"""Names of attributes, in the order of the given sizes."""


@dataclass(frozen=True)
class Limits:
    """Limits on the search for a record's worst change: the most tried, and compared exactly."""

    changes: int = 1 << 20  # changes of a record, times parts
    attributes: int = 20
    compared: int = 4096  # in exact arithmetic


LIMITS = Limits()


def shift_squared(part: Part, changed: Iterable[str] | None, sizes: Mapping[str, int]) -> int:
    """Return the squared l2 norm of the shift of r_B by one record, exact [MA-1].

    Args:
        part: B, whose vector r_B the module `marginals` defines.
        changed: the attributes in which the record and its replacement differ, or None if the
            record is added or removed.
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
    """Return the largest squared shift of one part if a record is replaced [MA-2]."""
    return max(shift_squared(part, changed, sizes) for changed in subsets(part))


def largest(
    sizes: Mapping[str, int], precisions: Mapping[Part, Fraction], neighboring: Neighboring
) -> tuple[Fraction, bool]:
    """Bound the sum of precision * shift^2 over the parts, for the worst change of a record.

    Args:
        precisions: precision of each part, exact, at least 0.
        neighboring: "add-remove" or "replace-one".

    Returns:
        An exact upper bound for all changes, and True if a change attains it.
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
    """Return sets of changed attributes that include the worst, or None if there are too many.

    Of the sets that differ by an exchange of equivalent attributes, it returns one.

    Args:
        weights: weights of the parts. Attributes are equivalent if exchanging them changes no
            weight.
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
    """Return the set of changed attributes with nearly the largest weighted sum of squared shifts.

    Return None if there are too many attributes.
    """
    if len(sizes) > LIMITS.attributes:
        return None
    return _part_names(sizes, int(np.argmax(_sums(sizes, weights)[0])))


def isomorphic(sizes: Mapping[str, int], weights: Mapping[Part, object]) -> list[Part]:
    """Return classes of attributes that can be exchanged without changing the weights."""
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
    """Return every subset, smaller subsets first, in the order of ``part``."""
    return [chosen for k in range(len(part) + 1) for chosen in combinations(part, k)]


def _contenders(sizes: Mapping[str, int], weights: Mapping[Part, int]) -> list[Part] | None:
    """Return sets of changed attributes that include the worst, or None if there are too many.

    Of the sets with equal numbers of attributes in each class of `isomorphic`, it returns one.
    """
    if len(sizes) > LIMITS.attributes:
        return None
    top = max(weights.values())  # integers may be too large for floats
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
    """Return the weighted sum of shift^2 for every set of changed attributes, and its error bound.

    With d_i = 1 if attribute i changes, else 0, the second product in `shift_squared` has the
    factors n_i (n_i - 1) - n_i^2 d_i. Expand it in products of d_i. The value at a set D is then
    the sum of the coefficients of all subsets of D. The index of D is the sum of 2^i over D.
    """
    bit = {name: 1 << i for i, name in enumerate(sizes)}
    table = np.zeros(1 << len(sizes))
    size = 0.0
    for part, weight in weights.items():
        for chosen in subsets(part)[1:]:  # without a changed attribute, nothing moves
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
    # A coefficient has a relative error of 2^-53 for each factor and each added part. A sum has
    # one for each attribute [MA-3]. All values are at most the sum of all sizes.
    steps = len(sizes) + len(weights) + 2 * max(map(len, weights)) + 8
    return table, 2.0 * steps * size * 2.0**-53


def _part_names(sizes: Mapping[str, int], place: int) -> Part:
    return tuple(name for i, name in enumerate(sizes) if place >> i & 1)
