"""Solve least squares on the product of two trees, in two passes [CO-6].

Each cell of a table belongs to one place of each tree. So each node of one tree has a vector over
the places of the other tree, with a covariance matrix. Of the other tree's lowest places, only the
sums under one parent enter the vectors. Their deviations from the mean are fitted separately, as
numbers on the nodes. So the matrices are only as large as the other tree's second lowest level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from neyman.numerics.arrays import Floats, Integers
from neyman.publishing.consistency.tree import Chain, PlaceTree

Level = tuple[int, int]

_RELATIVE_ROUNDING = 1e-13  # the most that rounding may reduce a variance, relative to the noise


def _check_noise(
    first: Chain, second: Chain, levels: Sequence[Level], variances: Sequence[float]
) -> None:
    for level, variance in zip(levels, variances, strict=True):
        if not variance > 0 and first.sizes[level[0]] * second.sizes[level[1]] > 1:
            raise ValueError(f"variance {variance} at {level}: a table must have noise")


@final
class TreePair:
    """Compute the best linear unbiased estimates of tables that add up along two trees.

    For independent noise of the stated variances, ``fit`` minimizes the sum of (x - y)^2 / variance
    over all tables x that are sums of one table over the lowest places of both trees.

    Args:
        first, second: the trees, each with its levels from the top.
        levels: for each table the levels of its places, one of each tree, each pair once.
        variances: the variance of the noise on each cell, per table: above 0, or 0 for a single
            exact cell that is the sum of everything.

    ``after`` has, for each table, the variance of each cell's estimate, with the second tree's
    places fastest. Rounding increases it by at most 1e-13 of the noise's variance.

    Raises:
        ValueError: a table of several cells is exact.
    """

    def __init__(
        self, first: Chain, second: Chain, levels: Sequence[Level], variances: Sequence[float]
    ) -> None:
        _check_noise(first, second, levels, variances)
        self._turned = matrix_size(first) < matrix_size(second)
        nodes, across = (second, first) if self._turned else (first, second)
        self._shapes = [
            (nodes.sizes[a], across.sizes[b]) for a, b in map(self._order_level, levels)
        ]
        # A level of one place is the top. A top of one place is above all others.
        across = Chain(1, (np.zeros(across.places, np.int64), *across.parents))
        places = [
            (0 if m == 1 else a, 0 if n == 1 else b + 1)
            for (a, b), (m, n) in zip(map(self._order_level, levels), self._shapes, strict=True)
        ]
        lowest = max(b for _, b in places)
        self._block = across.parents[lowest - 1] if lowest else np.zeros(1, np.int64)
        self._within = np.bincount(self._block).astype(np.float64)
        self._lowest = [i for i, (_, b) in enumerate(places) if lowest and b == lowest]
        measured = [
            _Measured(a, b - 1, variance * self._within)
            if i in self._lowest
            else _Measured(a, b, np.full(across.sizes[b], variance))
            for i, ((a, b), variance) in enumerate(zip(places, variances, strict=True))
        ]
        self._sums = _Sums(nodes, across, measured)
        self._order = sorted(self._lowest, key=lambda i: places[i])
        depths = [places[i][0] for i in self._order]
        steps = [nodes.above(a, b) for a, b in pairwise(depths)]
        self._apart = (
            PlaceTree(steps, [variances[i] for i in self._order], nodes.sizes[depths[0]])
            if depths
            else None
        )
        after = map(np.minimum, self._after(), variances)
        self.after = [(table.T if self._turned else table).ravel() for table in after]

    def _order_level(self, level: Level) -> Level:
        return (level[1], level[0]) if self._turned else level

    def _after(self) -> Iterator[Floats]:
        apart = {i: self._apart.after[k] for k, i in enumerate(self._order)} if self._apart else {}
        for i, sums in enumerate(self._sums.after):
            if i in apart:
                each = self._within[self._block]
                yield sums[:, self._block] / each**2 + apart[i][:, None] * (1 - 1 / each)
            else:
                yield sums

    def fit(self, values: Sequence[Floats]) -> list[Floats]:
        """Return the estimates of every table.

        Args:
            values: for each table the noisy values, of shape (cells, columns). Columns are
                independent problems with the same variances.
        """
        tables = [self._as_grid(i, table) for i, table in enumerate(values)]
        sums = [
            _parent_sums(t, self._block, 1) if i in self._lowest else t
            for i, t in enumerate(tables)
        ]
        means = {i: (sums[i] / self._within[:, None])[:, self._block] for i in self._lowest}
        rest = [tables[i] - means[i] for i in self._order]
        fitted = self._sums.fit(sums)
        if self._apart is not None:
            left = self._apart.fit([table.reshape(len(table), -1) for table in rest])
            for i, table, own in zip(self._order, left, rest, strict=True):
                mean = (fitted[i] / self._within[:, None])[:, self._block]
                fitted[i] = mean + table.reshape(own.shape)
        flat = (table.swapaxes(0, 1) if self._turned else table for table in fitted)
        return [table.reshape(given.shape) for table, given in zip(flat, values, strict=True)]

    def _as_grid(self, i: int, table: Floats) -> Floats:
        m, n = self._shapes[i]
        if self._turned:
            return table.reshape(n, m, -1).swapaxes(0, 1)
        return table.reshape(m, n, -1)


def matrix_size(chain: Chain) -> int:
    """Return the number of rows of `TreePair`'s matrices if this tree gives their places."""
    return chain.sizes[-2] if len(chain.sizes) > 1 else 1


@dataclass(frozen=True)
class _Measured:
    """Represent a noisy table of `_Sums`."""

    depth: int  # the level of its nodes
    level: int  # the level of its places in the other tree
    variances: Floats  # of the noise on a cell, by its place in the other tree


@dataclass(frozen=True)
class _Update:
    """Describe how an observation of a node's vector changes the vector's estimate."""

    table: int | None  # the observed table; None for the sum of the nodes below
    level: int  # the level of the observation's places
    gains: list[Floats]  # by class of nodes, the factor of observation minus estimate


@dataclass(frozen=True)
class _Nodes:
    """Represent the nodes at one depth. Each has a vector over places of the other tree.

    Args:
        level: the level of the places in each node's vector.
        kinds: the class of each node. Nodes of one class have the same matrices.
        prior: the table from which the estimate of each vector starts; None for the sum of the
            nodes below.
        updates: the further observations, in order.
        variances: for each class, the covariance matrix of a vector, given all tables at the node
            and below.
        below: for each class, the covariance matrix of the sum of the nodes below.
    """

    level: int
    kinds: Integers
    prior: int | None
    updates: list[_Update]
    variances: list[Floats]
    below: list[Floats]


class _Sums:
    """Solve least squares on the nodes of a tree, with vectors over the places of another tree.

    The first pass goes up, and uses the tables at each node and below. The second goes down, with
    all other tables.
    """

    def __init__(self, nodes: Chain, across: Chain, tables: Sequence[_Measured]) -> None:
        self._nodes, self._across, self._tables = nodes, across, tables
        self._levels: list[_Nodes] = []
        for depth in range(max(table.depth for table in tables), -1, -1):
            self._levels.insert(0, self._upward(depth))
        self._ways: list[tuple[Integers, list[Floats]]] = []  # for each depth but the top one
        self.after: list[Floats] = [np.zeros(0)] * len(tables)
        self._downward()

    def _sum(self, lower: int, upper: int) -> Floats:
        """Return the matrix that sums a vector over level ``lower`` to one over level ``upper``."""
        matrix = np.zeros((self._across.sizes[upper], self._across.sizes[lower]))
        matrix[self._across.above(upper, lower), np.arange(matrix.shape[1])] = 1
        return matrix

    def _sum_to_level(self, vectors: Floats, lower: int, upper: int) -> Floats:
        return vectors if lower == upper else self._sum(lower, upper) @ vectors

    def _upward(self, depth: int) -> _Nodes:
        own = [i for i, table in enumerate(self._tables) if table.depth == depth]
        own.sort(key=lambda i: -self._tables[i].level)
        kinds, below, level = np.zeros(self._nodes.sizes[depth], np.int64), list[Floats](), -1
        if self._levels:
            lower = self._levels[0]
            counts = np.zeros((len(kinds), len(lower.variances)), np.int64)
            np.add.at(counts, (self._nodes.parents[depth], lower.kinds), 1)
            distinct, kinds = np.unique(counts, axis=0, return_inverse=True)
            kinds, level = kinds.ravel(), lower.level
            below = [
                np.tensordot(row, np.stack(lower.variances), 1) for row in distinct.astype(float)
            ]
        finer = bool(own) and self._tables[own[0]].level > level
        prior = own.pop(0) if finer else None
        if prior is None:
            variances = list(below)
        else:
            level = self._tables[prior].level
            start = np.diag(self._tables[prior].variances)
            variances = [start for _ in below or [start]]
        updates: list[_Update] = []
        steps: list[int | None] = [*own]
        if prior is not None and below:
            steps.insert(0, None)
        for i in steps:
            at = self._levels[0].level if i is None else self._tables[i].level
            sums, gains = self._sum(level, at), list[Floats]()
            for k, variance in enumerate(variances):
                noise = below[k] if i is None else np.diag(self._tables[i].variances)
                shared = sums @ variance
                gain = _solve(shared @ sums.T + noise, shared).T
                left = np.eye(len(variance)) - gain @ sums
                variances[k] = left @ variance @ left.T + gain @ noise @ gain.T
                gains.append(gain)
            updates.append(_Update(i, at, gains))
        return _Nodes(level, kinds, prior, updates, variances, below)

    def _downward(self) -> None:
        top = self._levels[0]
        kinds, after, known = top.kinds, top.variances, top.kinds
        owner = list(range(len(after)))
        self._state(0, kinds, after)
        for depth, (upper, lower) in enumerate(pairwise(self._levels), 1):
            above = self._nodes.parents[depth - 1]
            pairs, kinds = np.unique(
                np.stack([known[above], lower.kinds], axis=1), axis=0, return_inverse=True
            )
            kinds, sums = kinds.ravel(), self._sum(upper.level, lower.level)
            ways: list[Floats] = []
            variances: list[Floats] = []
            rows: list[tuple[int, int]] = pairs.tolist()
            for parent, child in rows:
                own = lower.variances[child]
                way = _solve(upper.below[owner[parent]], own).T
                known_sum = sums @ after[parent] @ sums.T
                variances.append(own - way @ own + way @ known_sum @ way.T)
                ways.append(way)
            self._ways.append((kinds, ways))
            owner, after, known = [child for _, child in rows], variances, kinds
            self._state(depth, kinds, after)

    def _state(self, depth: int, kinds: Integers, after: list[Floats]) -> None:
        level, exact = self._levels[depth].level, _RELATIVE_ROUNDING
        for i, table in enumerate(self._tables):
            if table.depth == depth:
                sums = self._sum(level, table.level)
                spread = [np.einsum("ij,jk,ik->i", sums, one, sums) for one in after]
                each = np.maximum(np.array(spread), 0.0) + exact * table.variances
                self.after[i] = np.where(table.variances > 0, each, 0.0)[kinds]

    def fit(self, values: Sequence[Floats]) -> list[Floats]:
        joined: list[Floats] = []
        sums: list[Floats] = []
        for depth in range(len(self._levels) - 1, -1, -1):
            nodes = self._levels[depth]
            below = (
                _parent_sums(joined[0], self._nodes.parents[depth], 0, self._nodes.sizes[depth])
                if joined
                else np.zeros(0)
            )
            estimate = below if nodes.prior is None else values[nodes.prior]
            for update in nodes.updates:
                observed = below if update.table is None else values[update.table]
                apart = observed - self._sum_to_level(estimate, nodes.level, update.level)
                estimate = estimate + _apply_matrices(update.gains, nodes.kinds, apart)
            joined.insert(0, estimate)
            sums.insert(0, below)
        fitted = [joined[0]]
        for depth in range(1, len(self._levels)):
            upper, lower = self._levels[depth - 1], self._levels[depth]
            above, (kinds, ways) = self._nodes.parents[depth - 1], self._ways[depth - 1]
            total = self._sum_to_level(fitted[-1], upper.level, lower.level)
            moved = joined[depth] + _apply_matrices(ways, kinds, (total - sums[depth - 1])[above])
            # Spread the rounding error, so that the sum holds.
            left = total - _parent_sums(moved, above, 0, len(total))
            share = np.bincount(above, minlength=len(total)).astype(np.float64)
            fitted.append(moved + (left / share[:, None, None])[above])
        tables = [
            self._sum_to_level(fitted[table.depth], self._levels[table.depth].level, table.level)
            for table in self._tables
        ]
        for i, table in enumerate(self._tables):
            if not table.variances.any():
                tables[i] = values[i]
        return tables


def _solve(matrix: Floats, right: Floats) -> Floats:
    """Solve a system with a symmetric positive matrix, after scaling its rows and columns."""
    size = np.sqrt(np.maximum(np.diagonal(matrix), np.finfo(np.float64).tiny))
    scaled = matrix / size / size[:, None]
    try:
        return np.linalg.solve(scaled, right / size[:, None]) / size[:, None]
    except np.linalg.LinAlgError:
        return np.linalg.pinv(scaled, hermitian=True) @ (right / size[:, None]) / size[:, None]


def _apply_matrices(matrices: Sequence[Floats], kinds: Integers, vectors: Floats) -> Floats:
    result = np.empty((len(vectors), len(matrices[0]), vectors.shape[2]))
    order = np.argsort(kinds, kind="stable")
    ends = np.searchsorted(kinds[order], np.arange(len(matrices) + 1))
    for matrix, (start, end) in zip(matrices, pairwise(ends.tolist()), strict=True):
        rows = order[start:end]
        result[rows] = matrix @ vectors[rows]
    return result


def _parent_sums(table: Floats, parents: Integers, axis: int, size: int = 0) -> Floats:
    """Return ``size`` sums of a table along an axis.

    ``parents`` has the position of each entry's sum.
    """
    size = size or int(parents.max()) + 1
    shape = list(table.shape)
    shape[axis] = size
    sums = np.zeros(shape)
    np.add.at(np.moveaxis(sums, axis, 0), parents, np.moveaxis(table, axis, 0))
    return sums
