"""Bound how far one unit can move a table: list the vectors of changes in its cells.

UN-2 proves the possible shifts and the largest squared norm. UN-3 drops a shift that fits into
another one. A row with unknown keys adds nothing, so the range of contributions is extended to
contain 0. Noise is independent, symmetric, and equal in all cells. So neither the order of the
cells nor the signs of the changes matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from neyman.numerics.relation import Neighboring


@dataclass(frozen=True)
class Limits:
    """Limit the list of shift vectors."""

    rows: int = 1000  # the most rows of a unit
    # The largest number of listed shift vectors. Above it, only their l2 norm is given.
    vectors: int = 64


LIMITS = Limits()


Vector = tuple[int, ...]


@dataclass(frozen=True)
class Shifts:
    """Describe how far one unit can move a table.

    Args:
        vectors: the maximal shifts, largest norm first; empty if there are more than
            ``LIMITS.vectors``, or if nothing moves. Each has the absolute changes of the moved
            cells, in descending order.
        squared: the largest squared l2 norm of a shift.
    """

    vectors: tuple[Vector, ...]
    squared: int


class _TooMany(Exception):
    """Report that there are too many vectors to list."""


@dataclass(frozen=True)
class _Side:
    """Describe how the rows of a unit, before or after a change, can be placed in cells.

    The ``total`` rows go to at most ``cells`` cells, with at most ``most`` rows in each. Each cell
    has finer cells for ``size`` rows each. The unit may use ``room`` finer cells, and k rows in one
    cell use ceil(k / size) of them.
    """

    total: int
    cells: int
    most: int
    size: int
    room: int

    @property
    def full(self) -> bool:
        """Return True if all rows fit in one cell, or if they fill every cell completely."""
        return self.total in (self.most, self.most * self.cells)

    def cost(self, k: int) -> int:
        """Return how many of the ``room`` finer cells ``k`` rows in one cell use."""
        return -(-k // self.size)


def shifts(
    *,
    cells: int,
    neighboring: Neighboring,
    rows: int = 1,
    low: int = 0,
    high: int = 1,
    groups: int | None = None,
    rows_per_group: int | None = None,
    finer: int = 1,
    apart: bool = False,
) -> Shifts:
    """Return the maximal absolute shifts of a table when one unit changes.

    Args:
        cells: number of cells, at least 1.
        rows: the largest number of rows of a unit that count, 1 to ``LIMITS.rows``.
        low, high: the range to which one row's contribution is clipped; 0 and 1 for a count.
        groups: the largest number of cells with rows of one unit.
        rows_per_group: the largest number of rows of one unit in one cell.
        finer: the largest number of cells, as ``groups`` and ``rows_per_group`` count them, that
            form one cell of the table.
        apart: True if a cell here is a group whose rows may be in several cells of the table. Then
            rows that leave a group need not meet rows that enter it [UN-12].

    Returns:
        Every possible shift fits, cell by cell, into one of the vectors [UN-3]. Some unit causes
        each vector. ``squared`` is exact.
    """
    if cells < 1 or not 1 <= rows <= LIMITS.rows or high < low:
        # Guards against our own callers.
        raise ValueError(f"no shifts for cells = {cells}, rows = {rows}, clip = [{low}, {high}]")
    room, size = min(groups or rows, rows), min(rows_per_group or rows, rows)
    places = min(room, cells)
    most = min(rows, room * size, finer * size)  # in one cell
    total = min(rows, room * size, places * most)
    side = _Side(total, places, most, size, room)
    up, down = max(high, 0), -min(low, 0)
    if neighboring == "add-remove":
        vectors = (tuple(k * max(up, down) for k in parts) for parts in _partitions(side))
        full, rest = divmod(total, most)
        return Shifts(_few(vectors), (full * most**2 + rest**2) * max(up, down) ** 2)
    shared = 2 * places if apart else cells
    return Shifts(_few(_both(side, shared, up, down)), _joint_norm(side, shared, up, down))


def maximal(vectors: Iterable[Vector]) -> tuple[Vector, ...]:
    """Return the vectors that fit into no other one, largest norm first [UN-3].

    A vector fits if its entries can be packed into the other's. All are sorted downward. A
    redundant vector may remain.
    """
    result: list[Vector] = []
    for vector in sorted(set(vectors), key=lambda v: (sum(x * x for x in v), v), reverse=True):
        if not any(_dominates(other, vector) for other in result):
            result.append(vector)
    return tuple(result)


def _dominates(a: Vector, b: Vector) -> bool:
    # First fit. It places every cell of b if a is at least b cell by cell, and it places most
    # vectors b that fit in some other way. If it misses a fit, the list keeps a redundant vector,
    # which is never wrong.
    if sum(a) < sum(b):
        return False
    left = list(a)
    for size in b:
        spot = next((i for i, room in enumerate(left) if room >= size), None)
        if spot is None:
            return False
        left[spot] -= size
    return True


def _few(vectors: Iterator[Vector]) -> tuple[Vector, ...]:
    """Return the `maximal` vectors; () if there are too many to list."""
    candidates = 1024
    try:
        tried = list(islice(vectors, candidates + 1))
    except _TooMany:
        return ()
    largest = maximal(tried) if len(tried) <= candidates else ()
    return largest if len(largest) <= LIMITS.vectors else ()


# ---- the vectors ------------------------------------------------------------------------------


def _partitions(side: _Side) -> Iterator[list[int]]:
    """Yield the ways to place all rows of one side: the rows per cell, sorted downward.

    If all rows fit in one cell, yield only this placement, because all others fit into it. If every
    cell must be full, there is only one way.
    """
    if side.full:
        yield [side.most] * (side.total // side.most)
        return
    parts: list[int] = []
    left, room, top = side.total, side.room, side.most
    while True:
        cells = side.cells - len(parts)
        if left == 0:
            yield list(parts)
        elif left <= min(top * cells, top * room if top < side.size else side.size * room):
            top = min(left, top)
            parts.append(top)
            left, room = left - top, room - side.cost(top)
            continue
        if not parts:
            return
        last = parts.pop()
        left, room, top = left + last, room + side.cost(last), last - 1


def _both(side: _Side, cells: int, up: int, down: int) -> Iterator[Vector]:
    """Yield the shifts under replace-one: a unit's old rows leave cells, and its new rows enter.

    ``side`` describes both. Together they use at most ``cells`` cells. One row adds at most ``up``
    and subtracts at most ``down``.
    """
    if up == down and side.full:
        # A cell moves by up (k + n). So sides in different cells fit into sides in the same cells.
        yield tuple(2 * up * k for parts in _partitions(side) for k in parts)
        return
    if up and down:
        if side.total > 100:  # with more rows, pairs of values of both signs are not listed
            raise _TooMany
        for pairs in _placements(side, side, cells, (side.total, side.total)):
            moves = (max(k * up + n * down, n * up + k * down) for k, n in pairs)
            yield tuple(sorted(moves, reverse=True))
        return
    shared = min(cells, 2 * side.cells)
    for leaving in range(max(shared - side.cells, (shared + 1) // 2), side.cells + 1):
        for left in _partitions(_fit_side(side, leaving)):
            for entered in _partitions(_fit_side(side, shared - leaving)):
                moves = (k * max(up, down) for k in (*left, *entered))
                yield tuple(sorted(moves, reverse=True))


def _fit_side(side: _Side, cells: int) -> _Side:
    """Return the side with only ``cells`` cells, and with only the rows that fit in them."""
    return _Side(min(side.total, cells * side.most), cells, side.most, side.size, side.room)


def _placements(
    leave: _Side, enter: _Side, cells: int, most: tuple[int, int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield the ways to place the rows of both sides in at most ``cells`` cells.

    A way is a list of pairs (k, n): k rows leave a cell and n rows enter it. The pairs are in
    descending order, and the first is at most ``most``.
    """
    if min(leave.cells, leave.room, enter.cells, enter.room) < 0:
        return
    if leave.total == enter.total == 0:
        yield []
        return
    if cells == 0:
        return
    for k in range(min(leave.total, leave.most), -1, -1):
        for n in range(min(enter.total, enter.most), -1, -1):
            if (k, n) != (0, 0) and (k, n) <= most:
                for rest in _placements(_less(leave, k), _less(enter, n), cells - 1, (k, n)):
                    yield [(k, n), *rest]


def _less(side: _Side, k: int) -> _Side:
    used = 1 if k else 0
    room = side.room - side.cost(k)
    return _Side(side.total - k, side.cells - used, side.most, side.size, room)


# ---- the largest norm -------------------------------------------------------------------------


def _joint_norm(side: _Side, cells: int, up: int, down: int) -> int:
    """Return the largest squared norm of a shift of `_both` with these arguments [UN-2]."""

    def square(k: int, n: int) -> int:
        return max(k * up + n * down, n * up + k * down) ** 2

    r = side.most
    full, rest = divmod(side.total, r)
    used = 2 * (full + (rest > 0))
    # The remainders are alone, in a full cell of the other side, or in one cell together.
    places: set[tuple[int, int, int]] = {(0, 0, 2 * square(rest, 0))}
    if rest:
        places.add((0, 1, square(rest, rest)))
        places.add((1, 1, square(r, rest) + square(rest, 0)))
        places.add((2, 2, 2 * square(r, rest)))
    best = 0
    for taken, joined, rests in places:
        # `alike` full cells of each side are also full cells of the other side.
        for alike in range(full + 1):
            alone = 2 * (full - alike) - taken
            if alone < 0 or (taken == 2 and alike == full) or used - alike - joined > cells:
                continue
            best = max(best, alike * square(r, r) + alone * square(r, 0) + rests)
    return best
