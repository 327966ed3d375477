"""Adjust noisy values on a tree so that they add up, by least squares in two passes [CO-1].

The time is linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from neyman.numerics.arrays import Floats, Integers

_RELATIVE_TOLERANCE = 1e-9  # exact values with a larger relative difference contradict each other


@dataclass(frozen=True, eq=False)
class Chain:
    """Represent the levels of places of one tree, from the top.

    Args:
        places: the number of places on the top level.
        parents: for each level but the top one, each place's position in the level above.
    """

    places: int = 1
    parents: Sequence[Integers] = ()

    @property
    def sizes(self) -> list[int]:
        """Return the number of places on each level."""
        return [self.places, *map(len, self.parents)]

    def above(self, upper: int, lower: int) -> Integers:
        """Return, for each place of a lower level, the position of its place on an upper level."""
        index = np.arange(self.sizes[lower])
        for level in range(lower, upper, -1):
            index = self.parents[level - 1][index]
        return index


@final
class PlaceTree:
    """Compute the best linear unbiased estimates of values that add up along a tree.

    For independent noise of the stated variances, ``fit`` minimizes the sum of (x - y)^2 / variance
    over all x with x[parent] = sum of x[children].

    Args:
        parents: for each level but the top one, the position in the level above of each node's
            parent, int64 of shape (nodes,), in any order.
        variances: for each level from the top, the variance of the noise on each node, a number or
            an array of shape (nodes,): 0 for an exact value, inf for an unmeasured one. A node
            without children must be measured.

    ``after`` has, for each level, the variance of each node's estimate. This variance holds for any
    noise distribution, up to rounding relative to the given variances.

    Raises:
        ValueError: a parent does not exist, a variance is negative, or the variance of a leaf is
            not finite.

    Source: Hay, Rastogi, Miklau and Suciu (2010) for equal variances and children.
    """

    def __init__(
        self, parents: Sequence[Integers], variances: Sequence[Floats | float], nodes: int = 1
    ) -> None:
        if len(variances) != len(parents) + 1:
            raise ValueError(
                f"variances has {len(variances)} levels and parents {len(parents)}; there must be "
                "one more of the former, since the top level has no parents"
            )
        sizes = [nodes, *(len(above) for above in parents)]
        given = [
            _variance(depth, variance, size)
            for depth, (variance, size) in enumerate(zip(variances, sizes, strict=True))
        ]
        for depth, above in enumerate(parents, 1):
            if len(above) and (above.min() < 0 or above.max() >= sizes[depth - 1]):
                raise ValueError(
                    f"parents[{depth - 1}] goes from {above.min()} to {above.max()}, and must be "
                    f"positions in the level above, 0 to {sizes[depth - 1] - 1}"
                )
        self._parents, self._sizes = tuple(parents), sizes
        self._own: list[Floats] = []  # weight of a node's own value
        self._rest: list[Floats] = []  # weight of its children's sum
        self._down: list[Floats] = []  # a child's part of its parent's move
        self._upward(given)
        self._downward()

    def _upward(self, given: list[Floats]) -> None:
        pooled = given[-1]
        _check_leaves(len(given) - 1, pooled)
        self._pooled: list[Floats] = [pooled]
        self._below: list[Floats] = []
        for depth in range(len(given) - 2, -1, -1):
            above, size, own = self._parents[depth], self._sizes[depth], given[depth]
            below = _sums(pooled, above, size)
            leaf = np.bincount(above, minlength=size) == 0
            _check_leaves(depth, np.where(leaf, own, 0.0))
            below[leaf] = np.inf
            closer = own < below
            least, most = np.minimum(own, below), np.maximum(own, below)
            # This form preserves the digits of a weight far below 1.
            ratio = np.zeros(size)
            np.divide(least, most, out=ratio, where=(most > 0) & (most < np.inf))
            near, far = 1 / (1 + ratio), ratio / (1 + ratio)
            closer |= most == 0
            pooled = least * near
            self._own.insert(0, np.where(closer, near, far))
            self._rest.insert(0, np.where(closer, far, near))
            self._pooled.insert(0, pooled)
            self._below.insert(0, below)

    def _downward(self) -> None:
        self.after: list[Floats] = [self._pooled[0]]
        for above, pooled, below in zip(self._parents, self._pooled[1:], self._below, strict=True):
            down = np.zeros(len(pooled))
            np.divide(pooled, below[above], out=down, where=pooled > 0)
            left = (1 - down) * pooled
            left += down * down * self.after[-1][above]
            self._down.append(down)
            self.after.append(left)

    def fit(self, values: Sequence[Floats], size: float = 1.0) -> list[Floats]:
        """Return the estimates of every level, from the top.

        Args:
            values: for each level from the top, the noisy values, of shape (nodes,) or (nodes,
                columns). Columns are independent problems with the same variances. Values of
                unmeasured nodes are ignored.
            size: the largest absolute value of the numbers from which the values were computed. It
                sets the tolerance for their rounding.

        Raises:
            ValueError: values have other shapes, or exact values contradict others.
        """
        shape = values[-1].shape[1:]
        if [v.shape for v in values] != [(size, *shape) for size in self._sizes]:
            raise ValueError(
                f"values has shapes {[v.shape for v in values]}; the tree has levels of "
                f"{self._sizes} nodes"
            )
        joined = [values[-1]]
        sums: list[Floats] = []
        for depth in range(len(values) - 2, -1, -1):
            total = _sums(joined[0], self._parents[depth], self._sizes[depth])
            own, rest = self._own[depth], self._rest[depth]
            self._agree(depth, values[depth], total, size)
            if shape:
                own, rest = own[:, None], rest[:, None]
            with np.errstate(invalid="ignore"):
                apart = np.where(own == 0, 0.0, values[depth] - total)
            # Start from the side with more weight, so that exact values stay exact.
            near = np.where(own < 0.5, total + own * apart, values[depth] - rest * apart)
            joined.insert(0, near)
            sums.insert(0, total)
        fitted = [joined[0]]
        for above, down, mine, total in zip(
            self._parents, self._down, joined[1:], sums, strict=True
        ):
            moved = np.take(fitted[-1] - total, above, axis=0)
            moved *= down[:, None] if shape else down
            moved += mine
            fitted.append(moved)
        return fitted

    def _agree(self, depth: int, values: Floats, total: Floats, size: float) -> None:
        fixed = (self._pooled[depth] == 0) & (self._below[depth] == 0) & (self._own[depth] == 1)
        if not fixed.any():
            return
        apart = np.abs(values[fixed] - total[fixed])
        if (apart > _RELATIVE_TOLERANCE * (size + np.abs(values[fixed]))).any():
            raise ValueError(
                f"level {depth} has a value that is known exactly and differs from the sum of its "
                "children, which are exact too; make them agree or leave one out"
            )


def _variance(depth: int, variance: Floats | float, size: int) -> Floats:
    given = np.asarray(variance, dtype=np.float64)
    if given.shape not in ((), (size,)):
        # Guards against our own callers.
        raise ValueError(
            f"variances[{depth}] has shape {given.shape}; give a number or {size} of them"
        )
    if not (given >= 0).all():
        raise ValueError(f"variances[{depth}] must be at least 0 (0 for exact, inf for unmeasured)")
    return np.broadcast_to(given, (size,))


def _check_leaves(depth: int, variance: Floats) -> None:
    if np.isinf(variance).any():
        raise ValueError(
            f"variances[{depth}] is infinite for a node without children, which was not measured; "
            "leave the node out"
        )


def _sums(values: Floats, parents: Integers, size: int) -> Floats:
    """Return, for each of ``size`` nodes, the sum of its children's values."""
    if values.ndim == 1:
        return np.bincount(parents, weights=values, minlength=size).astype(np.float64, copy=False)
    from scipy.sparse import csc_array  # pyright: ignore[reportMissingTypeStubs]

    nodes = len(parents)
    below: Any = csc_array((np.ones(nodes), parents, np.arange(nodes + 1)), shape=(size, nodes))
    return below @ values
