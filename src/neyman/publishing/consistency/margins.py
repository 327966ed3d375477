"""Solve least squares over tables that are margins of each other, on hierarchies of places [CO-2].

All cells of a table have equal noise. So the problem splits into independent parts, one for each
set of columns. In each part, the places form a tree, or a product of two trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations, pairwise

import numpy as np

from neyman.numerics.arrays import Floats, Integers
from neyman.publishing.consistency.tree import Chain, PlaceTree
from neyman.publishing.consistency.tree_pair import TreePair

Set = frozenset[int]
Level = tuple[int, int]

ONE_PLACE = Chain()


@dataclass(frozen=True)
class Margin:
    """Represent one noisy table: the levels of its places, its columns, and its noise.

    Args:
        level: the level of the table's places, 0 for the top one.
        across: the level of the table's places in a second tree.
        columns: the columns of the table, as positions in ``sizes`` of `Margins`.
        variance: the variance of the noise on each cell; 0 for exact cells.
    """

    level: int
    columns: Set
    variance: float
    across: int = 0

    @property
    def at(self) -> tuple[int, int]:
        """Return the levels of the table's places in both trees."""
        return self.level, self.across

    def of(self, other: Margin) -> bool:
        """Return True if sums of the other table's cells give this table."""
        above = self.level <= other.level and self.across <= other.across
        return above and self.columns <= other.columns


class Margins:
    """Represent tables that must add up, over the places of one tree or of two.

    A table's values have shape (places, k_0, k_1, ..., alike). For two trees, the places are pairs,
    with the second tree's places fastest. k_i is the number of keys of column i if the table has
    this column, else 1. ``alike`` is the number of independent problems.

    Args:
        sizes: the number of keys of each column.
        parents: for each level of places but the top one, the position in the level above of each
            place's parent.
        places: the number of places of the top level.
        across: the second tree.

    ``variances`` has, for each table, the variance of a cell's estimate, by place.
    """

    def __init__(
        self,
        margins: Sequence[Margin],
        sizes: Sequence[int],
        parents: Sequence[Integers],
        places: int = 1,
        across: Chain = ONE_PLACE,
    ) -> None:
        self.margins, self.sizes = tuple(margins), tuple(sizes)
        self.places, self.across = Chain(places, parents), across
        subsets = {part for m in margins for part in _subsets(m.columns)}
        self._parts = sorted(subsets, key=lambda part: (len(part), sorted(part)))
        self._weights: dict[tuple[Set, Level], dict[int, float]] = {}
        self._trees = {part: self._tree(part) for part in self._parts}

    def _tree(self, part: Set) -> tuple[list[Level], PlaceTree | TreePair]:
        """Return the levels of tables with all columns of ``part``, and the tree that fits them."""
        variances: dict[Level, float] = {}
        for level in sorted({m.at for m in self.margins if part <= m.columns}):
            known = {
                i: m.variance * self._cells(m.columns - part)
                for i, m in enumerate(self.margins)
                if m.at == level and part <= m.columns
            }
            exact = [i for i, variance in known.items() if variance == 0]
            precision = math.fsum(1 / v for v in known.values()) if not exact else math.inf
            self._weights[part, level] = (
                dict.fromkeys(exact, 1 / len(exact))
                if exact
                else {i: 1 / variance / precision for i, variance in known.items()}
            )
            variances[level] = 1 / precision
        levels, noise = list(variances), list(variances.values())
        if self.across.sizes != [1]:
            return levels, TreePair(self.places, self.across, levels, noise)
        steps = [self.places.above(a, b) for (a, _), (b, _) in pairwise(levels)]
        return levels, PlaceTree(steps, noise, self.places.sizes[levels[0][0]])

    def _cells(self, columns: Set) -> int:
        return math.prod(self.sizes[i] for i in columns)

    @cached_property
    def variances(self) -> list[Floats]:
        """Return, for each table, the variance of the estimate of a cell at each place."""
        variances: list[Floats] = []
        for m in self.margins:
            total = np.zeros(self.places.sizes[m.level] * self.across.sizes[m.across])
            for part in _subsets(m.columns):
                levels, tree = self._trees[part]
                factor = math.prod(1 - 1 / self.sizes[i] for i in part)
                factor /= self._cells(m.columns - part) ** 2
                total += factor * tree.after[levels.index(m.at)]
            variances.append(total)
        return variances

    def fit(self, values: Sequence[Floats]) -> list[Floats]:
        """Return the least-squares estimates of all tables, in the shapes of the values.

        The estimates add up.

        Raises:
            ValueError: exact values contradict each other.
        """
        parts = [self._split(m, table) for m, table in zip(self.margins, values, strict=True)]
        fitted: dict[tuple[Set, Level], Floats] = {}
        size = 1.0 + max(float(np.abs(table).max(initial=0.0)) for table in values)
        for part in self._parts:
            levels, tree = self._trees[part]
            joined: list[Floats] = []
            for level in levels:
                weights = self._weights[part, level]
                terms = (weight * parts[i][part] for i, weight in weights.items())
                joined.append(reduce(np.add, terms))
            shape = joined[0].shape[1:]
            flat = [table.reshape(len(table), -1) for table in joined]
            by_level = tree.fit(flat, size) if isinstance(tree, PlaceTree) else tree.fit(flat)
            for level, table in zip(levels, by_level, strict=True):
                fitted[part, level] = table.reshape(len(table), *shape)
        return [
            reduce(
                np.add,
                (
                    fitted[part, m.at] / self._cells(m.columns - part)
                    for part in _subsets(m.columns)
                ),
            )
            for m in self.margins
        ]

    def _split(self, m: Margin, table: Floats) -> dict[Set, Floats]:
        """Split a table, along each column, into sums and deviations from the mean.

        The key of a part is the set of columns along which it has deviations.
        """
        parts = {frozenset[int](): table}
        for i in sorted(m.columns):
            for part, piece in list(parts.items()):
                parts[part] = piece.sum(axis=i + 1, keepdims=True)
                parts[part | {i}] = piece - parts[part] / self.sizes[i]
        return parts

    def finest(self) -> list[int]:
        """Return the positions of tables that are sums of no other.

        Of tables with equal levels and columns, only the first counts.
        """
        kinds = {(m.at, m.columns): i for i, m in reversed(list(enumerate(self.margins)))}
        return sorted(
            i
            for i in kinds.values()
            if not any(self.margins[i].of(self.margins[j]) for j in kinds.values() if j != i)
        )


def _subsets(columns: Set) -> list[Set]:
    ordered = sorted(columns)
    return [frozenset(c) for k in range(len(ordered) + 1) for c in combinations(ordered, k)]
