"""Bound the ratio of a table's error to the least error under the same zCDP guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from neyman.accounting.optimality.guarantee import UP
from neyman.accounting.optimality.lower_bounds import moved_error, priors
from neyman.numerics.relation import Neighboring

GAP = (
    "The error is at most {} times the smallest error that any release with the same privacy "
    "guarantee could have."
)
"""The sentence about one table's gap."""


def cell_gap(
    standard_error: float,
    rho: Fraction,
    vectors: Sequence[Sequence[int]],
    cells: int | None,
    relation: Neighboring,
) -> float | None:
    """Return a cell's standard error divided by the least possible one, rounded up.

    Return None if no least error is proven.

    The least error is the root mean squared error over cells of any rho-zCDP release of only this
    table, on its worst data of any size. Its square is at least R^2 / c if one privacy unit changes
    a cell by R, and 2 (1 - 1/k) R^2 / c if it moves R from one of k cells to another, where c
    bounds the chi-square divergence of neighbors [OP-13].

    Args:
        standard_error: of a cell, on the scale of the table's whole numbers.
        rho: zCDP cost of the table.
        vectors: lists of absolute changes of cells that one unit can cause together.
        cells: k, the number of cells; None for discovered keys.
        relation: "replace-one" or "add-remove".
    """
    largest = max((max(v) for v in vectors), default=0)
    if not (largest and rho > 0 and standard_error > 0 and cells):
        return None
    chi_square = _chi_square(rho)
    least = largest**2 / chi_square
    both = any(sorted(v)[-2:] == [largest, largest] for v in vectors if len(v) > 1)
    if both and relation == "replace-one" and cells > 1:
        least = max(least, 2 * (1 - 1 / cells) * largest**2 / chi_square)
    return max(standard_error / math.sqrt(least) * UP, 1.0)


def mean_gap(
    standard_error: float, rho: Fraction, width: float, rows: int, relation: Neighboring
) -> float | None:
    """Return `cell_gap`'s ratio for the mean of ``rows`` values in an interval of this width.

    One record with two possible values moves the mean by width / rows [OP-7]. Under add-remove,
    replacing it takes two steps, which cost 4 rho.
    """
    if not (rho > 0 and standard_error > 0 and width > 0):
        return None
    chi_square = _chi_square(rho if relation == "replace-one" else 4 * rho)
    best = max(moved_error(rows, 2, alpha, chi_square) for alpha in priors(rows, 2)[::3])
    if best == 0:
        return None
    return max(standard_error * rows / (width * math.sqrt(best)) * UP, 1.0)


def _chi_square(rho: Fraction) -> float:
    """Return an upper bound on the chi-square divergence of neighbors under rho-zCDP."""
    return math.expm1(min(2 * float(rho), 700.0)) * UP
