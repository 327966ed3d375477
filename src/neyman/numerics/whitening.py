"""Compute the norm of a shift of a normal vector, in coordinates of unit covariance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.numerics import check
from neyman.numerics.roots import bisect_integers
from neyman.numerics.rounding import above

Row = Sequence[float | Fraction | str]
Matrix = Sequence[Row] | NDArray[np.floating | np.integer]


@dataclass(frozen=True)
class Limits:
    """Limits on a shift: the most coordinates and the largest norm."""

    coordinates: int = 64
    norm: Fraction = Fraction(10) ** 150  # largest norm for the curve of a Gaussian


LIMITS = Limits()


def whitened_norm(
    covariance: Matrix, sensitivity: float | Fraction, shifts: Matrix | None = None
) -> float | Fraction:
    """Return an upper bound on the largest sqrt(d' S^-1 d) over the possible shifts d.

    Args:
        covariance: S, symmetric and positive definite, at most 64 by 64, in squared units of the
            answer. A float is read as the decimal that it prints.
        sensitivity: largest l2 norm of a shift, in units of the answer. It must be 1 if shifts are
            given.
        shifts: the possible shifts, each with one number per coordinate.

    Returns:
        The norm; upper is safe. For listed shifts, it is exact or rounded up once. For sensitivity
        D, it is D / sqrt(t), with t just below the smallest eigenvalue of S [GC-2].

    Raises:
        TypeError, ValueError: a matrix is not square, symmetric, or positive definite, a shift has
            another length, or shifts are given with a sensitivity other than 1.
    """
    matrix = _numbers("covariance", covariance)
    size = len(matrix)
    if not 1 <= size <= LIMITS.coordinates:
        raise ValueError(f"covariance has {size} rows; it must have 1 to {LIMITS.coordinates}")
    if any(len(row) != size for row in matrix):
        raise ValueError(f"covariance must be square: {size} rows of {size} numbers")
    for i in range(size):
        for j in range(i):
            if matrix[i][j] != matrix[j][i]:
                raise ValueError(
                    f"covariance must be symmetric: entry [{i}][{j}] is {float(matrix[i][j])!r}, "
                    f"and [{j}][{i}] is {float(matrix[j][i])!r}"
                )
    check.non_negative("sensitivity", sensitivity)
    if shifts is not None and sensitivity != 1:
        raise ValueError(
            f"sensitivity = {sensitivity!r} does not go with shifts; leave out one of the two"
        )
    vectors = [] if shifts is None else _numbers("shifts", shifts)
    if shifts is not None and not vectors:
        raise ValueError("shifts has no vector; give at least one, such as [[1, -1]]")
    for place, vector in enumerate(vectors):
        if len(vector) != size:
            raise ValueError(f"shifts[{place}] has {len(vector)} numbers; it must have {size}")
    forms = _forms(matrix, vectors)
    if forms is None:
        raise ValueError(
            "covariance must be positive definite: noise without spread in a direction hides "
            "nothing there"
        )
    if shifts is not None:
        square = max(forms)
    else:
        square = check.exact("sensitivity", sensitivity) ** 2 / _least_eigenvalue(matrix)
    if square and not LIMITS.norm**-2 <= square <= LIMITS.norm**2:
        raise ValueError(
            "the norm of a shift over its noise must be 0 or from 1e-150 to 1e150; check the units "
            "of covariance= and sensitivity= or shifts="
        )
    return _root_up(square)


def _numbers(name: str, rows: Matrix) -> list[list[Fraction]]:
    example = "[[4, 1], [1, 2]]"
    listed = check.several(name, rows.tolist() if isinstance(rows, np.ndarray) else rows, example)
    return [
        [
            check.exact(f"{name}[{i}][{j}]", entry)
            for j, entry in enumerate(check.several(f"{name}[{i}]", row, "[4, 1]"))
        ]
        for i, row in enumerate(listed)
    ]


def _forms(matrix: list[list[Fraction]], vectors: list[list[Fraction]]) -> list[Fraction] | None:
    """Return d' S^-1 d for each d in ``vectors``, with S = ``matrix`` [GC-3].

    Return None if S is not positive definite.
    """
    size = len(matrix)
    scale = math.lcm(*(entry.denominator for row in matrix for entry in row))
    unit = math.lcm(1, *(entry.denominator for vector in vectors for entry in vector))
    rows = [[int(entry * scale) for entry in row] for row in matrix]
    columns = [[int(entry * unit) for entry in vector] for vector in vectors]
    rows = [row + [column[i] for column in columns] for i, row in enumerate(rows)]
    corners = [0] * len(columns)
    before = 1
    for k in range(size):
        pivot = rows[k][k]  # the leading minor of order k + 1
        if pivot <= 0:
            return None
        # The matrix stays symmetric, so the row of a border is its column.
        for place in range(len(columns)):
            border = rows[k][size + place]
            corners[place] = (pivot * corners[place] - border * border) // before
        for i in range(k + 1, size):
            factor = rows[i][k]
            rows[i] = [
                (pivot * entry - factor * top) // before
                for entry, top in zip(rows[i], rows[k], strict=True)
            ]
        before = pivot
    return [Fraction(-corner, before) * scale / unit**2 for corner in corners]


def _least_eigenvalue(matrix: list[list[Fraction]]) -> Fraction:
    """Return a lower bound on the smallest eigenvalue of ``matrix``, close to it [GC-2]."""
    floats = np.array([[float(entry) for entry in row] for row in matrix])
    exact = [matrix[i][i] for i in range(len(matrix))]
    if all(matrix[i][j] == 0 for i in range(len(matrix)) for j in range(i)):
        return min(exact)
    values = np.linalg.eigvalsh(floats)
    # The error of the computed eigenvalue is a few units of the largest one; the test decides.
    margin = len(matrix) * 1e-15 * float(values[-1])
    while (low := float(values[0]) - margin) > 0:
        if _forms(_shift_diagonal(matrix, Fraction(low)), []) is not None:
            return Fraction(low)
        margin *= 4
    # Try the smallest diagonal entry times powers of 1/2. Find the first that passes by bisection.
    start, fails, passes = min(exact), 0, 1

    def passing(power: int) -> bool:
        return _forms(_shift_diagonal(matrix, start / 2**power), []) is not None

    while not passing(passes):
        fails, passes = passes, 2 * passes
    return start / 2 ** bisect_integers(passing, passes, fails)


def _shift_diagonal(matrix: list[list[Fraction]], value: Fraction) -> list[list[Fraction]]:
    return [
        [entry - value if i == j else entry for j, entry in enumerate(row)]
        for i, row in enumerate(matrix)
    ]


def _root_up(square: Fraction) -> float | Fraction:
    """Return the square root if it is rational, otherwise a float above it."""
    top, bottom = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if (top * top, bottom * bottom) == (square.numerator, square.denominator):
        root = Fraction(top, bottom)
        return float(root) if Fraction(repr(float(root))) == root else root
    bits = 62 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square * Fraction(4) ** bits
    value = above((math.isqrt(math.floor(scaled)) + 1) / Fraction(2) ** bits)
    return math.nextafter(value, math.inf)  # callers read it as its printed decimal
