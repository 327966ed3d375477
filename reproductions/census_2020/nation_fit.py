"""Least squares over the redistricting tables of a nation, state by state [CO-2].

A place has eleven tables: sums of one table of 2016 cells by kind of quarters, voting age,
ethnicity, and race. An orthogonal change of basis along each axis, whose first vector is constant,
turns independent noise into independent noise and each sum into a multiple of one coordinate. What
is left to solve is small. The three groups of quarters (households, institutions, other quarters)
differ in size, so their coordinates are one problem of three unknowns. All others stand alone. Each
problem is fitted along the tree of places: upward by pooling, downward by what the parents learned.

All of it is linear, and places of one level weigh their own tables alike. So blocks may be summed
first where only their sum is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproductions.census_2020.redistricting import Query

__all__ = ["AXES", "CELLS", "GROUPS", "Fit", "Weights", "add_up", "sums"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tables = Mapping[str, NDArray[Any]]
Part = tuple[int, int, slice]

AXES = {"hhgq": 8, "votingage": 2, "ethnicity": 2, "race": 63}
SHAPE = tuple(AXES.values())
CELLS = math.prod(SHAPE)
GROUPS = (1, 4, 3)  # kinds of quarters in each of the three groups
STARTS = (0, 1, 5)
AT_A_TIME = 64  # places whose cells are transformed at a time

_ROOTS = np.sqrt(np.array(GROUPS, float))
_PERSONAL = tuple(AXES)[1:]
_PARTS: tuple[Part, ...] = tuple(
    (v, h, races) for v in (0, 1) for h in (0, 1) for races in (slice(0, 1), slice(1, None))
)


def _basis(size: int) -> Floats:
    """Return a symmetric orthogonal matrix whose first row is constant (a reflection)."""
    apart = np.full(size, 1 / math.sqrt(size))
    apart[0] -= 1
    length = apart @ apart
    return np.eye(size) - (2 / length if length else 0) * np.outer(apart, apart)


def _quarters() -> Floats:
    """Return an orthogonal matrix whose first rows are the constants of the three groups."""
    rows = np.zeros((8, 8))
    within = 3
    for group, (start, size) in enumerate(zip(STARTS, GROUPS, strict=True)):
        own = slice(start, start + size)
        block = _basis(size)
        rows[group, own] = block[0]
        rows[within : within + size - 1, own] = block[1:]
        within += size - 1
    return rows


_QUARTERS, _TWO, _RACES = _quarters(), _basis(2), _basis(63)
_FOUR = np.kron(_TWO, _TWO)


def sums(detailed: NDArray[Any], query: Query) -> NDArray[Any]:
    """Return a query's cells, (places, cells), as sums of the detailed ones, (places, 2016)."""
    table = detailed.reshape(-1, *SHAPE)
    if query.name == "hhinstlevels":
        return np.add.reduceat(table.sum(axis=(2, 3, 4)), STARTS, axis=1)
    gone = tuple(i for i, name in enumerate(AXES, 1) if name not in query.attributes)
    return table.sum(axis=gone).reshape(len(table), -1) if gone else table.reshape(len(table), -1)


def add_up(values: NDArray[Any], children: Integers) -> NDArray[Any]:
    """Return the sums over each place's children, which lie together.

    Args:
        values: of shape (places, ...).
        children: how many each place above has, at least 1.
    """
    return np.add.reduceat(values, np.cumsum(children) - children, axis=0)


def _forward(detailed: NDArray[Any]) -> Floats:
    """Return the coordinates of tables of shape (places, 2016)."""
    table = detailed.reshape(-1, *SHAPE) @ _RACES
    table = _FOUR @ table.reshape(-1, 8, 4, 63)
    return (_QUARTERS @ table.reshape(-1, 8, 252)).reshape(-1, *SHAPE)


def _backward(values: Floats) -> Floats:
    table = _QUARTERS.T @ values.reshape(-1, 8, 252)
    table = _FOUR @ table.reshape(-1, 8, 4, 63)
    return (table @ _RACES).reshape(-1, CELLS)


@dataclass(frozen=True)
class Fit:
    """Estimates of places of one level, in coordinates.

    Args:
        values: of shape (places, 8, 2, 2, 63).
        groups: for each part, the covariance of the three groups' coordinates, (8, places, 3, 3).
        rest: for each part, the variance of each other coordinate, of shape (8, places).
    """

    values: Floats
    groups: Floats
    rest: Floats

    def up(self, children: Integers) -> Fit:
        """Return the sums over each place's children."""
        starts = np.cumsum(children) - children
        return Fit(
            np.asarray(add_up(self.values, children), np.float64),
            np.add.reduceat(self.groups, starts, axis=1),
            np.add.reduceat(self.rest, starts, axis=1),
        )

    def joined(self, own: Floats, weights: Weights) -> Fit:
        """Return the estimates with the places' own tables.

        Args:
            own: as `Weights.estimates` gives them.
        """
        apart = own - self.values
        groups, rest = np.empty_like(self.groups), np.empty_like(self.rest)
        for i, (v, h, races) in enumerate(_PARTS):
            below = self.groups[i]
            # The transpose of (B + R)^-1 B is B (B + R)^-1, as both are symmetric.
            gain = np.linalg.solve(below + weights.groups[i], below).transpose(0, 2, 1)
            groups[i] = _symmetric(below - gain @ below)
            part = self.rest[i] / (self.rest[i] + weights.rest[i])
            rest[i] = self.rest[i] * (1 - part)
            apart[:, :3, v, h, races] = gain @ apart[:, :3, v, h, races]
            apart[:, 3:, v, h, races] *= part[:, None, None]
        apart += self.values
        return Fit(apart, groups, rest)

    def with_totals(self, totals: Integers) -> Fit:
        """Return the estimates after exact totals, one per place."""
        values, groups = self.values.copy(), self.groups.copy()
        scale = math.sqrt(252)  # of the constant coordinate
        row = groups[0] @ _ROOTS
        gain = row / (row @ _ROOTS)[:, None]
        missing = totals / scale - values[:, :3, 0, 0, 0] @ _ROOTS
        values[:, :3, 0, 0, 0] += gain * missing[:, None]
        groups[0] = _symmetric(groups[0] - gain[:, :, None] * row[:, None, :])
        return Fit(values, groups, self.rest)

    def down(self, below: Fit, above: Fit, children: Integers) -> Fit:
        """Return the estimates with what the places above learned from elsewhere.

        Args:
            below: the sums of these estimates, `up`.
            above: the final estimates of the places above.
            children: as in `up`.
        """
        values = self.values.copy()
        difference = above.values - below.values
        parent = np.repeat(np.arange(len(children)), children)
        groups, rest = np.empty((8, len(parent), 3, 3)), np.empty((8, len(parent)))
        for i, (v, h, races) in enumerate(_PARTS):
            # A total that is known exactly has no variance to share.
            inverse = np.linalg.pinv(below.groups[i], rcond=1e-9, hermitian=True)
            gain = self.groups[i] @ inverse[parent]
            change = (above.groups[i] - below.groups[i])[parent]
            groups[i] = _symmetric(self.groups[i] + gain @ change @ gain.transpose(0, 2, 1))
            part = self.rest[i] / below.rest[i][parent]
            rest[i] = self.rest[i] + part**2 * (above.rest[i] - below.rest[i])[parent]
            values[:, :3, v, h, races] += gain @ difference[parent, :3, v, h, races]
            values[:, 3:, v, h, races] += part[:, None, None] * difference[parent, 3:, v, h, races]
        return Fit(values, groups, rest)

    def take(self, places: slice) -> Fit:
        """Return the estimates of some places."""
        groups = self.groups if self.groups.shape[1] == 1 else self.groups[:, places]
        rest = self.rest if self.rest.shape[1] == 1 else self.rest[:, places]
        return Fit(self.values[places], groups, rest)

    def detailed(self) -> Floats:
        """Return the estimates of all cells, of shape (places, 2016)."""
        return _backward(self.values)

    def variances(self, query: Query) -> Floats:
        """Return the variance of the estimates of a query's cells, of shape (places, kinds).

        Returns:
            One column where the query is not by kind of quarters: its cells are alike. Else one per
            group of quarters.
        """
        sized, inside = _quarters_in(query)
        total = np.zeros((self.rest.shape[1], len(sized)))
        for i, (v, h, races) in enumerate(_PARTS):
            # The squared weight of the part's coordinates in a cell, axis by axis.
            factor = 1.0
            for name, varies in _varying(v, h, races):
                if name in query.attributes:
                    factor *= 1 - 1 / AXES[name] if varies else 1 / AXES[name]
                else:
                    factor *= 0 if varies else AXES[name]
            spread = np.einsum("kg,ngh,kh->nk", sized, self.groups[i], sized)
            total += factor * (spread + inside * self.rest[i][:, None])
        return total


def _varying(v: int, h: int, races: slice) -> Iterator[tuple[str, bool]]:
    """Each personal axis, and whether a part's coordinates vary along it."""
    return zip(_PERSONAL, (v == 1, h == 1, races.start == 1), strict=True)


def _symmetric(matrices: Floats) -> Floats:
    return (matrices + matrices.transpose(0, 2, 1)) / 2


def _quarters_in(query: Query) -> tuple[Floats, Floats]:
    """Return a cell's coordinates of the three groups, and its
    square length in the others, by kind.
    """
    if query.name == "hhinstlevels":
        return np.diag(_ROOTS), np.zeros(3)
    if "hhgq" in query.attributes:
        return np.diag(1 / _ROOTS), 1 - 1 / _ROOTS**2
    return _ROOTS[None, :], np.zeros(1)


class Weights:
    """What the tables of one level say about a place by themselves.

    Args:
        queries: those of one level, "detailed" among them; sigma^2 = 1 / rho on each cell.

    ``groups`` and ``rest`` are as in `Fit`, with one place for all.
    """

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries = tuple(queries)
        self._precision = {query.name: float(query.rho) for query in queries}
        information = np.empty((8, 3, 3))
        rest = np.full((8, 1), self._precision["detailed"])
        for i, (v, h, races) in enumerate(_PARTS):
            information[i] = self._precision["detailed"] * np.eye(3)
            varies = {name for name, used in _varying(v, h, races) if used}
            for query, size in self._summed():
                if varies <= query.attributes:
                    information[i] += self._precision[query.name] * size * np.outer(_ROOTS, _ROOTS)
        for query, size in self._by_quarters():
            own = self._precision[query.name] * size
            if query.name == "hhinstlevels":
                information[0] += own * np.diag(_ROOTS**2)
            else:
                information[0] += own * np.eye(3)
                rest[0] += own
        self.groups = np.asarray(np.linalg.inv(information), np.float64)[:, None]
        self.rest = 1 / rest

    def _summed(self) -> Iterator[tuple[Query, int]]:
        """Yield the queries that are not by quarters, and how many cells of the others one sums."""
        for query in self.queries:
            if "hhgq" not in query.attributes:
                yield query, 252 // query.cells

    def _by_quarters(self) -> Iterator[tuple[Query, int]]:
        for query in self.queries:
            if query.attributes == {"hhgq"}:
                yield query, 252

    def estimates(self, tables: Tables) -> Floats:
        """Return the best estimates from a place's own tables, or from sums of such tables.

        Args:
            tables: of each query the noisy cells, of shape (places, cells).
        """
        values = np.empty((len(tables["detailed"]), *SHAPE))
        for start in range(0, len(values), AT_A_TIME):
            some = slice(start, start + AT_A_TIME)
            values[some] = self._estimates({name: table[some] for name, table in tables.items()})
        return values

    def _estimates(self, tables: Tables) -> Floats:
        values = _forward(tables["detailed"])
        values *= self._precision["detailed"]
        for query, size in self._summed():
            table = tables[query.name] * (self._precision[query.name] * math.sqrt(size))
            shape = [AXES[name] if name in query.attributes else 1 for name in _PERSONAL]
            table = table.reshape(-1, *shape)
            for axis, basis in enumerate((_TWO, _TWO, _RACES), 1):
                if shape[axis - 1] > 1:
                    table = np.moveaxis(np.moveaxis(table, axis, -1) @ basis, -1, axis)
            own = (slice(None), slice(0, 3), *(slice(0, size) for size in shape))
            values[own] += _ROOTS[:, None, None, None] * table[:, None]
        for query, size in self._by_quarters():
            table = tables[query.name] * (self._precision[query.name] * math.sqrt(size))
            if query.name == "hhinstlevels":
                values[:, :3, 0, 0, 0] += table * _ROOTS
            else:
                values[:, :, 0, 0, 0] += table @ _QUARTERS.T
        for i, (v, h, races) in enumerate(_PARTS):
            values[:, :3, v, h, races] = self.groups[i] @ values[:, :3, v, h, races]
            values[:, 3:, v, h, races] *= self.rest[i]
        return values

    def alone(self, tables: Tables) -> Fit:
        """Return the estimates of places without children."""
        return Fit(self.estimates(tables), self.groups, self.rest)

    def of_sums(self, tables: Tables, children: Integers) -> Fit:
        """Return the sums over each place's children, from the sums of their tables."""
        return Fit(
            self.estimates(tables),
            self.groups * children[None, :, None, None],
            self.rest * children[None, :],
        )
