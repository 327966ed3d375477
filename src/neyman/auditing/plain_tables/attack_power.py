"""Enumerate the trade-off curve of one record for random rounding and random swaps.

An attacker who knows all other rows tests one value of a person against another. A method without
randomness makes either the same table from both, or two tables: then the power is 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from neyman.auditing.plain_tables.allowed import with_totals
from neyman.auditing.plain_tables.counted import Integers, Table
from neyman.curves.losses.composition import Composition
from neyman.curves.tradeoff.piecewise_linear import finite_pair
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics.bound import Bound

Law = Mapping[object, Fraction]
Powers = dict[float, Bound]
LEVELS = (0.01, 0.05)


@dataclass(frozen=True)
class Limits:
    """Limit the enumeration of tables."""

    records: int = 12  # of a group of rows that match, for swaps
    steps: int = 1_000_000  # of the enumeration of swaps
    curves: int = 500  # different pairs of laws


LIMITS = Limits()


def largest_powers(pairs: Iterable[Composition]) -> Powers | None:
    """Return the largest power against any of some pairs, in both orders, by level."""
    if not (different := [*dict.fromkeys(pairs)]) or len(different) > LIMITS.curves:
        return None
    curve = Tradeoff.of(different)
    return {level: curve.power(level) for level in LEVELS}


def composition(p: Law, q: Law) -> Composition:
    """Return the loss of two laws of one table."""
    outcomes, none = [*{**p, **q}], Fraction(0)
    return finite_pair(*([law.get(one, none) for one in outcomes] for law in (p, q)))


def rests(table: Table, base: int, before: Integers, after: Integers) -> Integers:
    """Return what decides the laws of random rounding if a person moves from a cell to another.

    These are the rests of the counts of both cells and of the totals of both lines. A count that
    does not change has -1.
    """
    full, width = with_totals(table.method, table.counts), table.counts.shape[1]
    lines = [cells // width for cells in (before, after)]
    cells = [full[line, at % width] for line, at in zip(lines, (before, after), strict=True)]
    totals = [full[line, -1] for line in lines]
    same = [before == after] * 2 + [(lines[0] == lines[1]) | (table.method.total is None)] * 2
    return np.where(same, -1, np.array([*cells, *totals]) % base).T


def rounded_pair(rest: Sequence[int], base: int) -> Composition:
    """Return the loss of the tables before and after a move, which are rounded at random."""
    old = [
        (r + base, r + base + step) for r, step in zip(rest, (-1, 1, -1, 1), strict=True) if r >= 0
    ]
    return composition(*(rounded_law([pair[k] for pair in old], base) for k in (0, 1)))


def rounded_law(counts: Sequence[int], base: int) -> Law:
    """Return the law of counts that are rounded at random."""
    law: dict[object, Fraction] = {(): Fraction(1)}
    for count in counts:
        down, up = count // base, Fraction(count % base, base)
        law = {
            (*values, value): chance * part
            for values, chance in law.items()
            for value, part in ((down, 1 - up), (down + 1, up))
            if part
        }
    return law


def exchanges(table: Table) -> tuple[list[Composition], int]:
    """Return the losses of exchanges in groups of rows that match, for random swaps.

    In an exchange, two rows of a group change their values of the swapped column. Swaps leave
    unchanged what one such row changes, so an attacker who knows all other rows reads its values.

    Returns:
        The losses, and how many people are in groups that are too large.
    """
    method, losses, left = table.method, list[Composition](), 0
    if method.swap is None or method.rate is None:
        return [], 0
    matched, steps = math.prod(table.shape[: len(method.match)]), iter(range(LIMITS.steps))
    for group in table.counts.reshape(matched, -1, table.shape[-1]):
        counts = group[group.any(axis=1)][:, group.any(axis=0)]
        small = int(counts.sum()) <= LIMITS.records
        tables = [counts, *_exchanged(counts)] if small else []
        laws = [swapped_law(one, method.rate, steps) for one in tables if len(tables) > 1]
        if None in laws or not small:
            left += int(counts.sum())
        else:
            losses += [composition(laws[0], law) for law in laws[1:]]
    return losses, left


def _exchanged(counts: Integers) -> Iterator[Integers]:
    """Yield the counts after each exchange that changes them."""
    for (a, b), (c, d) in combinations(np.argwhere(counts).tolist(), 2):
        if a != c and b != d:
            other = counts.copy()
            other[[a, c, a, c], [b, d, d, b]] += [-1, -1, 1, 1]
            yield other


def swapped_law(counts: Integers, rate: Fraction, steps: Iterator[int]) -> Law | None:
    """Return the law of a group's counts after random swaps, or None if no steps are left.

    Args:
        counts: the counts by the other columns and the swapped one.
        steps: one for each number that is added.
    """
    flat, shape = counts.ravel().tolist(), counts.shape
    number = sum(flat)
    # Drawn rows by the other columns, values that they may get, and the counts without them.
    states: dict[tuple[tuple[int, ...], ...], Fraction] = {}
    for drawn in product(*(range(count + 1) for count in flat)):
        out, size = np.reshape(drawn, shape), sum(drawn)
        chance = rate**size * (1 - rate) ** (number - size) * math.prod(map(math.comb, flat, drawn))
        rest = (*map(tuple, (out.sum(axis=1).tolist(), out.sum(axis=0).tolist())),)
        states[*rest, tuple(x - y for x, y in zip(flat, drawn, strict=True))] = chance
        if next(steps, None) is None:
            return None
    for _ in range(number):
        after: Counter[tuple[tuple[int, ...], ...]] = Counter()
        for (rows, values, table), chance in states.items():
            row = next((k for k, count in enumerate(rows) if count), None)
            if row is None:
                after[rows, values, table] += chance
            for value, count in enumerate(values) if row is not None else ():
                if count:
                    place = row * shape[1] + value
                    moved = _plus(rows, row, -1), _plus(values, value, -1), _plus(table, place, 1)
                    after[moved] += chance * Fraction(count, sum(values))
                    if next(steps, None) is None:
                        return None
        states = after
    return {table: chance for (_, _, table), chance in states.items()}


def _plus(counts: tuple[int, ...], place: int, step: int) -> tuple[int, ...]:
    return (*counts[:place], counts[place] + step, *counts[place + 1 :])
