"""How far one unit can move a table: the finite set of integer shift vectors.

The argument, on which every guarantee of a release rests:

1. A table is a vector of cells; cell i holds the sum of x(row) over the kept rows that fall in it.
   A count has x = 1; a clipped sum has x in ``[low, high]``. A row whose keys are unknown falls in
   no cell, so a row may also contribute nothing, even to a table of a single cell: the range of
   contributions is extended to contain 0.
2. A unit has at most m rows (m = 1, or the rows are cut down to m before anything is summed, by a
   rule that looks at that unit's rows alone). Say k_i of its rows leave cell i and l_i rows enter
   it, with sum k_i <= m and sum l_i <= m under replace-one; under add-remove one of the two is 0.
   The most that cell i can move is then

       v_i = max(k_i high - l_i low, l_i high - k_i low),    low <= 0 <= high,

   and every shift that can happen is at most such a v, cell by cell, in absolute value. v_i grows
   with k_i and with l_i, so it is enough to list the ways of placing exactly m rows (unused rows
   may join a cell that is used), and only ways with as many moving cells as the table has.
3. The noise is independent and identically distributed over cells and symmetric, so neither the
   order of the cells nor the signs matter: relabelling and reflecting are bijections of the output.
4. A smaller shift is never worse. The discrete Gaussian is log-concave, so its shifts have monotone
   likelihood ratio; the best test of 0 against k at each level is a threshold, whose power grows
   with k. By Blackwell's theorem the pair (X, X + j) is a garbling of (X, X + k) for j <= k; doing
   so in each cell by itself garbles (X, X + v) into (X, X + w) for each w <= v. So only vectors
   that no other dominates (after sorting) need to be kept.

Dong, Roth and Su, "Gaussian differential privacy", JRSS B 84 (2022), theorem 2.10, has Blackwell's
theorem in this form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["MOST_ROWS", "maximal", "shift_vectors", "squared_norm"]

MOST_ROWS = 4
"""The most rows per unit for which the exact set is listed."""

Vector = tuple[int, ...]


def shift_vectors(
    *, cells: int, neighboring: str, rows: int = 1, low: int = 0, high: int = 1
) -> tuple[Vector, ...]:
    """The maximal absolute shifts of a table when one unit changes.

    Args:
        cells: number of cells, at least 1.
        neighboring: "replace-one" or "add-remove".
        rows: most rows of a unit that are kept, 1 to ``MOST_ROWS``.
        low, high: the range that one row's contribution is clipped to; a count has 0 and 1.

    Returns:
        Vectors of positive integers, each sorted downward, largest first. Every realized shift is,
        after sorting its absolute values, at most one of them in each cell.
    """
    if cells < 1 or not 1 <= rows <= MOST_ROWS or high < low:
        raise ValueError(f"no shifts for cells = {cells}, rows = {rows}, clip = [{low}, {high}]")
    low, high = min(low, 0), max(high, 0)
    entering = rows if neighboring == "replace-one" else 0
    most = (rows, entering)
    found = (
        sorted((max(k * high - n * low, n * high - k * low) for k, n in parts), reverse=True)
        for parts in _placements(rows, entering, cells, most)
    )
    return maximal(tuple(vector) for vector in found)


def squared_norm(vectors: Iterable[Vector]) -> int:
    """The largest squared l2 norm among the vectors."""
    return max(sum(x * x for x in vector) for vector in vectors)


def maximal(vectors: Iterable[Vector]) -> tuple[Vector, ...]:
    """The vectors (sorted downward) that no other dominates cell by cell, largest first."""
    kept: list[Vector] = []
    for vector in sorted(set(vectors), key=lambda v: (sum(x * x for x in v), v), reverse=True):
        if not any(_dominates(other, vector) for other in kept):
            kept.append(vector)
    return tuple(kept)


def _dominates(a: Vector, b: Vector) -> bool:
    # For vectors sorted downward this is the same as domination under some relabelling.
    return len(a) >= len(b) and all(x >= y for x, y in zip(a, b, strict=False))


def _placements(
    leave: int, enter: int, cells: int, most: tuple[int, int]
) -> Iterator[list[tuple[int, int]]]:
    """The ways to split (leave, enter) into at most ``cells`` parts, none above ``most``."""
    if leave == enter == 0:
        yield []
        return
    if cells == 0:
        return
    for k in range(leave, -1, -1):
        for n in range(enter, -1, -1):
            if (k, n) != (0, 0) and (k, n) <= most:
                for rest in _placements(leave - k, enter - n, cells - 1, (k, n)):
                    yield [(k, n), *rest]
