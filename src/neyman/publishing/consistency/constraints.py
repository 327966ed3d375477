"""Adjust values by least squares so that they meet any linear constraints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import ArrayLike, NDArray

from neyman.numerics.arrays import Floats

if TYPE_CHECKING:
    from scipy.sparse import sparray  # pyright: ignore[reportMissingTypeStubs]


@dataclass(frozen=True)
class ConsistentFit:
    """Represent the result of `least_squares`.

    Args:
        values: the estimates.
        standard_errors: the standard error of each estimate; None if the problem was too large to
            decompose.
        residual: the largest remaining |A x - b|.
    """

    values: Floats
    standard_errors: Floats | None
    residual: float


def least_squares(
    y: ArrayLike, variances: ArrayLike, A: ArrayLike | sparray, b: ArrayLike
) -> ConsistentFit:
    """Return the x with A x = b that minimizes the sum of (x - y)^2 / variance.

    Let S be the diagonal matrix of the square roots of the variances. Then x = y + S u, where u is
    the shortest solution of (A S) u = b - A y. Up to 10^6 entries, A S is decomposed into singular
    values. Then the standard error of value i is S_ii sqrt(1 - P_ii), with P the projection onto
    the row space of A S. For larger matrices, LSQR finds u and runs again on the residual.

    Args:
        y: noisy values of shape (n,), with independent noise.
        variances: the variance of each value's noise, of shape (n,): finite, and 0 for an exact
            value.
        A: matrix of shape (m, n), sparse (SciPy) or dense. Rows may be redundant.
        b: right-hand side, of shape (m,).

    Returns:
        The estimates. `ConsistentFit.residual` measures how well they meet the constraints.

    Raises:
        ValueError: shapes do not fit, a variance is negative or infinite, or constraints contradict
            each other or the values of variance 0.

    Source: Paige and Saunders (1982) for LSQR.
    """
    noisy = np.asarray(y, dtype=np.float64)
    given = np.asarray(variances, dtype=np.float64)
    sparse: Any = scipy.sparse
    matrix = sparse.csr_array(A, dtype=np.float64)
    right = np.asarray(b, dtype=np.float64)
    _check(noisy, given, matrix.shape, matrix.data, right)
    spread = np.sqrt(given)
    scaled = sparse.csr_array(matrix @ sparse.diags_array(spread))
    lengths = np.sqrt(np.asarray((scaled * scaled).sum(axis=1)).ravel())
    # Scaling a constraint does not change it. Constraints of equal length are solved more exactly.
    lengths = np.where(lengths > 0, lengths, 1.0)
    scaled = sparse.csr_array(sparse.diags_array(1 / lengths) @ scaled)
    small = len(right) * len(noisy) <= 1_000_000
    solve, factors = _dense(scaled.toarray()) if small else _sparse(scaled, 20 * max(scaled.shape))
    fitted = noisy.copy()
    for _ in range(3):  # repeat for the rounding residual
        fitted += spread * solve((right - matrix @ fitted) / lengths)
    off = np.abs(right - matrix @ fitted)
    # same: 1 + np.abs(right) -> (1): The limit of a residual, which is at least |b| - |A||x|. Where
    # it is small, |b| is at most |A||x|, and 1 + |b| + |A||x| at most twice 1 + |A||x|.
    size = 1 + np.abs(right) + abs(matrix) @ np.abs(fitted)
    if (off > 1e-6 * size).any():  # constraints that miss by more contradict each other
        worst = int(np.argmax(off / size))
        raise ValueError(
            f"A x = b cannot be met: row {worst} misses by {off[worst]:.3g}; the constraints "
            "contradict each other or values of variance 0, or differ too much in size"
        )
    errors = None if factors is None else spread * factors
    return ConsistentFit(fitted, errors, float(off.max(initial=0.0)))


def _check(
    y: Floats, variances: Floats, shape: tuple[int, int], entries: Floats, b: Floats
) -> None:
    if y.ndim != 1 or variances.shape != y.shape:
        raise ValueError(
            f"y has shape {y.shape} and variances {variances.shape}; both must be of shape (n,)"
        )
    if shape != (len(b), len(y)):
        raise ValueError(f"A has shape {shape}; it must be ({len(b)}, {len(y)})")
    if not (np.isfinite(variances).all() and (variances >= 0).all()):
        raise ValueError(
            "variances must be finite and at least 0; give an unmeasured value a large one"
        )
    if not (np.isfinite(y).all() and np.isfinite(b).all() and np.isfinite(entries).all()):
        raise ValueError("y, A and b must be finite")


def _dense(scaled: Floats) -> tuple[Callable[[Floats], Floats], Floats]:
    """Return a function from r to the shortest solution u of ``scaled`` u = r.

    Also return the share of each value's standard deviation that remains.
    """
    left, sizes, right = np.linalg.svd(scaled, full_matrices=False)
    rank = int((sizes > max(scaled.shape) * 2.0**-52 * sizes.max(initial=0.0)).sum())
    left, sizes, right = left[:, :rank], sizes[:rank], right[:rank]

    def solve(missed: Floats) -> Floats:
        return right.T @ ((left.T @ missed) / sizes)

    return solve, _remaining(scaled, rank)


def _remaining(scaled: Floats, rank: int) -> Floats:
    """Return the lengths of the rows of an orthonormal basis of the null space.

    Elimination with complete pivoting solves for ``rank`` values: u = -F v, with v the others. With
    F = U D W^T, the squared lengths are the diagonals of F W (1 + D^2)^-1 W^T F^T and of
    1 - W D^2 (1 + D^2)^-1 W^T. The pivots are the largest entries, so no small length is a
    difference of larger numbers.
    """
    import scipy.linalg  # pyright: ignore[reportMissingTypeStubs]

    linear: Any = scipy.linalg
    rows: Floats = scaled.copy()
    order: NDArray[np.int64] = np.arange(scaled.shape[1], dtype=np.int64)
    for k in range(rank):
        row, column = divmod(int(np.argmax(np.abs(rows[k:, k:]))), len(order) - k)
        rows[[k, k + row]] = rows[[k + row, k]]
        rows[:, [k, k + column]] = rows[:, [k + column, k]]
        order[[k, k + column]] = order[[k + column, k]]
        if rows[k, k] == 0:
            rank = k
            break
        rows[k + 1 :, k:] -= np.outer(rows[k + 1 :, k] / rows[k, k], rows[k, k:])
    if not 0 < rank < len(order):  # nothing is known, or all
        return np.full(len(order), float(rank == 0))
    solved = linear.solve_triangular(rows[:rank, :rank], rows[:rank, rank:])
    _, sizes, right = np.linalg.svd(solved, full_matrices=False)
    shrunk = 1 / np.hypot(1, sizes)
    lengths = np.empty(scaled.shape[1])
    lengths[order[:rank]] = np.hypot.reduce(solved @ right.T * shrunk, axis=1)
    lengths[order[rank:]] = np.sqrt(np.maximum(1 - (sizes * shrunk) ** 2 @ right**2, 0.0))
    return lengths


def _sparse(scaled: sparray, steps: int) -> tuple[Callable[[Floats], Floats], None]:
    import scipy.sparse.linalg  # pyright: ignore[reportMissingTypeStubs]

    linear: Any = scipy.sparse.linalg

    def solve(missed: Floats) -> Floats:
        return linear.lsqr(scaled, missed, atol=1e-14, btol=1e-14, conlim=0, iter_lim=steps)[0]

    return solve, None
