"""Enumerate the trade-off curve of one record for random rounding and random swaps.

An attacker who knows all other rows tests one value of a person against another. A method without
randomness makes either the same table from both, or two tables: then the power is 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, product

from neyman.auditing.plain_tables.allowed import Neighbors
from neyman.auditing.plain_tables.counted import Table
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.tradeoff.piecewise_linear import finite_pair
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics.bound import Bound

Law = Mapping[object, Fraction]
Counts = tuple[tuple[int, ...], ...]
Change = tuple[int, tuple[tuple[int, int], ...]] | None
"""How one person's other value changes a table: the base of random rounding, and each count before
and after. The base 0 stands for two tables without a common outcome, and None for no change."""
APART: Change = (0, ())
Powers = dict[float, Bound]
LEVELS = (0.01, 0.05)


@dataclass(frozen=True)
class Limits:
    """Limit the enumeration of tables."""

    records: int = 12  # of a group of rows that match, for swaps
    steps: int = 200_000  # drawn rows and permutations of all groups
    curves: int = 500  # different pairs of laws


LIMITS = Limits()


def power_at_levels(pairs: Sequence[Composition]) -> Powers | None:
    """Return the largest power against any of some pairs, in both orders. None for no pair."""
    if not pairs:
        return None
    curve = Tradeoff.of(dict.fromkeys(pairs))
    return {level: curve.power(level) for level in LEVELS}


def largest_powers(changes: set[tuple[Change, ...]]) -> Powers | None:
    """Return the largest power against any change of some tables, or None if they are too many."""
    if any(APART in each for each in changes):
        return power_at_levels([Composition.of([(NonPrivateLoss(), 1)])])
    if len(changes) > LIMITS.curves:
        return None
    return power_at_levels(
        [
            Composition.of(part for one in each if one for part in _rounded(*one).parts)
            for each in changes or {()}
        ]
    )


class Moves:
    """Describe what a table reveals if one person moves from a cell to another."""

    def __init__(self, table: Table) -> None:
        self.table, self._neighbors = table, Neighbors(table)
        self._found: dict[tuple[int, int], tuple[bool, Change]] = {}

    def of(self, before: int, after: int) -> tuple[bool, Change]:
        """Return whether the table is still possible, and how its law changes."""
        if before == after:
            return True, None
        if (before, after) not in self._found:
            self._found[before, after] = self._compare(before, after)
        return self._found[before, after]

    def _compare(self, before: int, after: int) -> tuple[bool, Change]:
        possible, rule = self._neighbors.possible(before, after), self.table.method.round
        if rule is None or not rule.random:
            return possible, None if possible else APART
        base, counts = rule.base, []
        for block, (count,) in self._neighbors.changes(before, after):
            old = self._neighbors.sums[block][0]
            counts.append((old % base + base, count - old + old % base + base))
        return possible, (base, tuple(sorted(counts)))


@cache
def _rounded(base: int, counts: tuple[tuple[int, int], ...]) -> Composition:
    """Return the loss of counts before and after a change, which are rounded at random."""
    return composition(*(_rounded_law(each, base) for each in zip(*counts, strict=True)))


def _rounded_law(counts: Sequence[int], base: int) -> Law:
    each: list[list[tuple[int, Fraction]]] = []
    for count in counts:
        down, rest = divmod(count, base)
        chances = (down, 1 - Fraction(rest, base)), (down + 1, Fraction(rest, base))
        each.append([(value, chance) for value, chance in chances if chance])
    return {
        tuple(value for value, _ in choice): math.prod((p for _, p in choice), start=Fraction(1))
        for choice in product(*each)
    }


def composition(p: Law, q: Law) -> Composition:
    """Return the loss of two laws of one table."""
    outcomes, none = [*{**p, **q}], Fraction(0)
    return finite_pair(*([law.get(one, none) for one in outcomes] for law in (p, q)))


class Swaps:
    """Enumerate swaps within groups of rows, as long as steps are left."""

    def __init__(self, rate: Fraction) -> None:
        self.rate, self._steps, self._laws = rate, LIMITS.steps, dict[Counts, Law]()

    def pairs(self, counts: Counts) -> list[tuple[Law, Law]] | None:
        """Return the laws of a group, and those after two of its rows exchange their values.

        Args:
            counts: the group's number of rows by the other columns and the swapped one.

        Returns:
            A pair of laws for each exchange that changes the counts. None if the group has too many
            rows, or too few steps are left.
        """
        if sum(map(sum, counts)) > LIMITS.records:
            return None
        result: list[tuple[Law, Law]] = []
        places = [(a, b) for a, row in enumerate(counts) for b, count in enumerate(row) if count]
        for (a, b), (c, d) in combinations(places, 2):
            if a != c and b != d:
                other = [[*row] for row in counts]
                for row, column, by in ((a, b, -1), (c, d, -1), (a, d, 1), (c, b, 1)):
                    other[row][column] += by
                pair = self._law(counts), self._law(tuple(map(tuple, other)))
                if pair[0] is None or pair[1] is None:
                    return None
                result.append((pair[0], pair[1]))
        return result

    def _law(self, counts: Counts) -> Law | None:
        """Return the law of a group's counts, or None if it takes too many steps."""
        if counts not in self._laws:
            flat, width = [count for row in counts for count in row], len(counts[0])
            law: dict[object, Fraction] = {}
            for drawn in product(*(range(count + 1) for count in flat)):
                number = sum(drawn)
                chance = self.rate**number * (1 - self.rate) ** (sum(flat) - number)
                chance *= math.prod(map(math.comb, flat, drawn))
                rows = [sum(drawn[k : k + width]) for k in range(0, len(flat), width)]
                columns = tuple(sum(drawn[k::width]) for k in range(width))
                ways = math.factorial(number) // math.prod(map(math.factorial, columns))
                for placed, orders in _placements(rows, columns):
                    self._steps -= 1
                    if self._steps < 0:
                        return None
                    after = tuple(map(sum, zip(flat, placed, strict=True)))
                    after = tuple(x - out for x, out in zip(after, drawn, strict=True))
                    law[after] = law.get(after, Fraction(0)) + chance * Fraction(orders, ways)
            self._laws[counts] = law
        return self._laws[counts]


def _placements(
    rows: Sequence[int], columns: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each table of these margins, and in how many orders of the values it comes about."""
    if not rows:
        yield (), 1
        return
    for row in _shares(rows[0], columns):
        ways = math.factorial(rows[0]) // math.prod(map(math.factorial, row))
        left = tuple(x - y for x, y in zip(columns, row, strict=True))
        for rest, weight in _placements(rows[1:], left):
            yield (*row, *rest), ways * weight


def _shares(number: int, most: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield each way to take a number of values of several kinds."""
    if len(most) == 1:
        if number <= most[0]:
            yield (number,)
        return
    for first in range(min(number, most[0]) + 1):
        for rest in _shares(number - first, most[1:]):
            yield (first, *rest)
