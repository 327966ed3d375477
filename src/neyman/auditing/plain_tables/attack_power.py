"""Enumerate the trade-off curve of one record for random rounding and random swaps.

An attacker who knows all other rows tests one value of a person against another. A method without
randomness makes either the same table from both, or two tables: then the power is 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from neyman.auditing.plain_tables.counted import Integers, Table
from neyman.curves.losses.composition import Composition
from neyman.curves.tradeoff.piecewise_linear import finite_pair
from neyman.curves.tradeoff.tradeoff import Tradeoff

Law = dict[tuple[int, ...], Fraction]
Powers = dict[str, dict[str, float]]
LEVELS = (0.01, 0.05)


RECORDS = 12  # of a group of rows that match, for swaps
STEPS = 200_000  # of the enumeration of swaps
CURVES = 3_000  # different pairs of laws


def largest_powers(pairs: Iterable[Composition]) -> Powers | None:
    """Return the largest power against any of some pairs, in both orders, by level.

    Returns:
        The bounds, those of guessing if no pair differs, or None if the pairs are too many.
    """
    curves = [Tradeoff.of([one]) for one in dict.fromkeys(pairs) if one.parts]
    if len(curves) > CURVES:
        return None
    bounds = {level: [curve.power(level) for curve in curves] for level in LEVELS}
    return {
        str(level): {
            "lower": max((one.lower for one in of), default=level),
            "upper": max((one.upper for one in of), default=level),
        }
        for level, of in bounds.items()
    }


def composition(p: Law, q: Law) -> Composition:
    """Return the loss of two laws of one table."""
    outcomes, none = [*{**p, **q}], Fraction(0)
    return finite_pair(*([law.get(one, none) for one in outcomes] for law in (p, q)))


def rounded_move(base: int, rest: int, step: int) -> Composition:
    """Return the loss of a count of this rest that changes by a step, and is rounded at random."""
    laws = (divmod(base + rest + by, base) for by in (0, step))
    return composition(
        *({(down,): 1 - Fraction(r, base), (down + 1,): Fraction(r, base)} for down, r in laws)
    )


def exchanges(table: Table) -> tuple[list[Composition], int]:
    """Return the losses of exchanges in groups of rows that match, for random swaps.

    In an exchange, two rows of a group change their values of the swapped column. Swaps leave
    unchanged what one such row changes, so an attacker who knows all other rows reads its values.

    Returns:
        The losses, and how many people are in groups that are too large.
    """
    losses, left, steps = list[Composition](), 0, iter(range(STEPS))
    if (rate := table.method.rate) is None:
        return losses, left
    matched = math.prod(table.shape[: len(table.method.match)])
    for group in table.counts.reshape(matched, -1, table.shape[-1]):
        counts = group[group.any(axis=1)][:, group.any(axis=0)]
        others: list[Integers] = []
        for (a, b), (c, d) in combinations(np.argwhere(counts).tolist(), 2):
            if a != c and b != d and counts.sum() <= RECORDS:
                others.append(counts.copy())
                others[-1][[a, c, a, c], [b, d, d, b]] += [-1, -1, 1, 1]
        laws = [_swapped_law(each, rate, steps) for each in [counts, *others] if others]
        if counts.sum() > RECORDS or next(steps, None) is None:
            left += int(counts.sum())
        else:
            losses += (composition(laws[0], law) for law in laws[1:])
    return losses, left


def _swapped_law(counts: Integers, rate: Fraction, steps: Iterator[int]) -> Law:
    """Return the law of a group's counts after random swaps. It takes a step for each number.

    Args:
        counts: the counts by the other columns and the swapped one.
        steps: the steps that are left. If they do not suffice, the law is not complete.
    """
    law, number = Law(), int(counts.sum())
    flat: list[int] = counts.ravel().tolist()
    for draw in product(*(range(count + 1) for count in flat)):
        moved, size = np.reshape(draw, counts.shape), sum(draw)
        chance = rate**size * (1 - rate) ** (number - size) * math.prod(map(math.comb, flat, draw))
        rows, columns = moved.sum(axis=1).tolist(), moved.sum(axis=0).tolist()
        ways = math.prod(map(math.factorial, (*rows, *columns)))
        for placed in _tables(rows, columns):
            if next(steps, None) is None:
                return law
            same = math.factorial(size) * math.prod(map(math.factorial, placed))
            after = (x - out + back for x, out, back in zip(flat, draw, placed, strict=True))
            key = tuple(after)
            law[key] = law.get(key, 0) + chance * Fraction(ways, same)
    return law


def _tables(rows: Sequence[int], columns: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield each table with these margins."""
    if not rows:
        yield ()
        return
    for first in product(*(range(min(rows[0], column) + 1) for column in columns)):
        if sum(first) == rows[0]:
            left = [column - x for column, x in zip(columns, first, strict=True)]
            yield from ((*first, *rest) for rest in _tables(rows[1:], left))
