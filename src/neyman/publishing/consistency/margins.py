"""Least squares over tables that are margins of each other, on a hierarchy of places [CO-2].

Noise is alike on all cells of a table, so everything splits into parts that do not touch each
other, one for each set of columns. For each part the places are a tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from neyman.publishing.consistency.tree import Tree

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Set = frozenset[int]


@dataclass(frozen=True)
class Margin:
    """One noisy table.

    Args:
        level: which level of places its cells are at, 0 for the top one.
        columns: the columns that it is by, as positions in the sizes of all.
        variance: of the noise on each cell; 0 for what is known exactly.
    """

    level: int
    columns: Set
    variance: float

    def of(self, other: Margin) -> bool:
        """Whether this one is a margin of the other (or by the same cells)."""
        return self.level <= other.level and self.columns <= other.columns


class Margins:
    """Tables that must add up, over one hierarchy of places.

    A table's values have shape (places, k_0, k_1, ..., alike): k_i is the number of keys of column
    i where the table is by it, else 1; ``alike`` counts independent problems.

    Args:
        parents: for each level of places but the top one, each place's position in the level above.

    ``variances`` has for each table the variance of the estimate of a cell, by place.
    """

    def __init__(
        self,
        margins: Sequence[Margin],
        sizes: Sequence[int],
        parents: Sequence[Integers],
        places: int = 1,
    ) -> None:
        self.margins, self.sizes = tuple(margins), tuple(sizes)
        self._parents = parents
        self._places = [places, *(len(above) for above in parents)]
        subsets = {part for m in margins for part in _subsets(m.columns)}
        self._parts = sorted(subsets, key=lambda part: (len(part), sorted(part)))
        self._weights: dict[tuple[Set, int], dict[int, float]] = {}
        self._trees: dict[Set, tuple[list[int], Tree]] = {}
        for part in self._parts:
            self._trees[part] = self._tree(part)

    def _tree(self, part: Set) -> tuple[list[int], Tree]:
        """The levels at which a part is measured, and the tree that they make."""
        variances: dict[int, float] = {}
        for level in sorted({m.level for m in self.margins if part <= m.columns}):
            known = {
                i: m.variance * self._cells(m.columns - part)
                for i, m in enumerate(self.margins)
                if m.level == level and part <= m.columns
            }
            exact = [i for i, variance in known.items() if variance == 0]
            precision = math.fsum(1 / v for v in known.values()) if not exact else math.inf
            self._weights[part, level] = (
                dict.fromkeys(exact, 1 / len(exact))
                if exact
                else {i: 1 / variance / precision for i, variance in known.items()}
            )
            variances[level] = 1 / precision
        levels = list(variances)
        steps = [self._above(a, b) for a, b in pairwise(levels)]
        return levels, Tree(steps, list(variances.values()), self._places[levels[0]])

    def _above(self, upper: int, lower: int) -> Integers:
        """For each place of the lower level the one of the upper level that contains it."""
        index = self._parents[lower - 1]
        for level in range(lower - 1, upper, -1):
            index = self._parents[level - 1][index]
        return index

    def _cells(self, columns: Set) -> int:
        return math.prod(self.sizes[i] for i in columns)

    @cached_property
    def variances(self) -> list[Floats]:
        """The variance of the estimate of each table's cells, by place."""
        variances: list[Floats] = []
        for m in self.margins:
            total = np.zeros(self._places[m.level])
            for part in _subsets(m.columns):
                levels, tree = self._trees[part]
                factor = math.prod(1 - 1 / self.sizes[i] for i in part)
                factor /= self._cells(m.columns - part) ** 2
                total += factor * tree.after[levels.index(m.level)]
            variances.append(total)
        return variances

    def fit(self, values: Sequence[Floats]) -> list[Floats]:
        """The least-squares estimates of all tables, which add up; shaped as the values.

        Raises:
            ValueError: exact values contradict each other.
        """
        parts = [self._split(m, table) for m, table in zip(self.margins, values, strict=True)]
        fitted: dict[tuple[Set, int], Floats] = {}
        size = 1.0 + max(float(np.abs(table).max(initial=0.0)) for table in values)
        for part in self._parts:
            levels, tree = self._trees[part]
            joined: list[Floats] = []
            for level in levels:
                weights = self._weights[part, level]
                terms = (weight * parts[i][part] for i, weight in weights.items())
                joined.append(reduce(np.add, terms))
            shape = joined[0].shape[1:]
            by_level = tree.fit([table.reshape(len(table), -1) for table in joined], size)
            for level, table in zip(levels, by_level, strict=True):
                fitted[part, level] = table.reshape(len(table), *shape)
        return [
            reduce(
                np.add,
                (
                    fitted[part, m.level] / self._cells(m.columns - part)
                    for part in _subsets(m.columns)
                ),
            )
            for m in self.margins
        ]

    def _split(self, m: Margin, table: Floats) -> dict[Set, Floats]:
        """A table's parts: along each column its sum, and what is left without its mean."""
        parts = {frozenset[int](): table}
        for i in sorted(m.columns):
            for part, piece in list(parts.items()):
                parts[part] = piece.sum(axis=i + 1, keepdims=True)
                parts[part | {i}] = piece - parts[part] / self.sizes[i]
        return parts

    def finest(self) -> list[int]:
        """Positions of the tables that are a margin of no other one, one of each kind."""
        kinds = {(m.level, m.columns): i for i, m in reversed(list(enumerate(self.margins)))}
        return sorted(
            i
            for i in kinds.values()
            if not any(self.margins[i].of(self.margins[j]) for j in kinds.values() if j != i)
        )


def _subsets(columns: Set) -> list[Set]:
    ordered = sorted(columns)
    return [frozenset(c) for k in range(len(ordered) + 1) for c in combinations(ordered, k)]
