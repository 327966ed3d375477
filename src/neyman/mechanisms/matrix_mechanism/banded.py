"""Optimize strategies that store few steps, by gradient descent from the square root."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.mechanisms.matrix_mechanism.factorization import (
    PARTS,
    Factorization,
    check_objective,
    climbed,
    moved_by,
    prefix_bound,
    queries_of,
    record_of,
    size_of,
)
from neyman.mechanisms.matrix_mechanism.participation import pattern
from neyman.mechanisms.matrix_mechanism.strategy import (
    STRATEGY_UNIT,
    Toeplitz,
    Triangular,
    square_root,
)
from neyman.numerics import check

Array = NDArray[np.float64]


def optimized_band(
    workload: ArrayLike | int,
    band: int,
    objective: str = "largest",
    *,
    participations: int = 1,
    separation: int = 1,
) -> Factorization:
    """Optimize a banded lower triangular C whose columns have equal norm.

    With a band of at most the separation, a record's columns are orthogonal. So for every C, a
    record moves C x by the square root of its number of participations. Only the errors remain to
    be minimized. For "largest", this function minimizes the mean of the 128th powers of the errors,
    a smooth approximation of the maximum. A wider band is allowed but rarely helps.

    Args:
        workload: the queries, of shape ``(queries, steps)``, or n for the prefix sums of n steps.
            At most 1024 steps. The rank must be the number of steps.
        band: number of weights in a row, at least 1. The stream remembers this number of steps.
        objective: "largest" error of a query, or root of the "mean" squared error.
        participations: largest number of steps in which a record takes part.
        separation: smallest distance between these steps.

    Returns:
        A `Factorization`. Its lower bound holds for all strategies, of any band. The error is for
        the rounded strategy and its sensitivity.
    """
    from scipy.linalg import solve_triangular
    from scipy.optimize import minimize

    queries = queries_of(workload)
    count, n = queries.shape
    width = min(check.integer("band", band, 1), n)
    check_objective(objective)
    times, apart = pattern(n, participations, separation)
    records = [None] if times == 1 else [record_of(n, times, apart, part) for part in PARTS]
    # Rounds for a lower bound.
    bounds = [climbed(queries, record, objective, 12, 0.0)[1] for record in records]
    # The mean of this power of squared errors replaces the maximum.
    sharp = 64 if objective == "largest" else 1
    inside = np.tri(n, dtype=bool) & ~np.tri(n, k=-width, dtype=bool)
    identity = np.eye(n)

    def columns(entries: Array) -> tuple[Array, Array]:
        matrix = np.zeros((n, n))
        matrix[inside] = entries
        norms = np.linalg.norm(matrix, axis=0)
        return matrix / norms, norms

    def cost(entries: Array) -> tuple[float, Array]:
        """Return the log of the power mean of squared errors, and its gradient in ``entries``.

        The squared error e_i of query i has d e_i = -2 B_i dC C^-1 B_i', with row B_i of A C^-1.
        """
        matrix, norms = columns(entries)
        back = solve_triangular(matrix, identity, lower=True)
        rows = queries @ back
        squares = np.sum(rows**2, axis=1)
        top = float(squares.max())
        powers = (squares / top) ** (sharp - 1)
        mean = float((powers * squares).mean()) / top
        slope = -2 * (rows.T * (powers / (top * count * mean))) @ rows @ back.T
        slope = (slope - matrix * np.sum(slope * matrix, axis=0)) / norms
        return math.log(top) + math.log(mean) / sharp, slope[inside]

    start = Triangular.normalized(square_root(n, width)).matrix() / STRATEGY_UNIT
    options = {"maxiter": 200}  # descent rounds
    optimum = minimize(cost, start[inside], jac=True, method="L-BFGS-B", options=options).x
    strategy = Triangular.of(columns(optimum)[0])
    error = size_of(strategy.reading(queries), objective) * moved_by(strategy, times, apart)
    return Factorization(strategy, error, max(bounds))


def optimized_toeplitz(
    steps: int,
    band: int,
    objective: str = "largest",
    *,
    participations: int = 1,
    separation: int = 1,
) -> Factorization:
    """Optimize the falling weights of a band for prefix sums, by descent from the square root.

    Args:
        steps: number of steps, at most 2^16.
        band: number of weights, from 1 to 64. The stream remembers this number of steps.
        objective, participations, separation: as for `optimized_band`.
    """
    from scipy.optimize import minimize
    from scipy.signal import lfilter

    n, width = check.integer("steps", steps, 1), check.integer("band", band, 1)
    band_steps = 64
    if width > min(band_steps, n) or n > 1 << 16:
        raise ValueError(f"band = {band}, steps = {steps}: at most {band_steps} and {1 << 16}")
    check_objective(objective)
    times, apart = pattern(n, participations, separation)
    ones = np.ones(n)
    worst = np.zeros(n)
    worst[: times * apart : apart] = 1.0

    def weights(ratios: Array) -> Array:
        return np.asarray(np.cumprod(np.concatenate([[1.0], ratios])), float)

    counted = ones if objective == "largest" else 1 - np.arange(n) / n  # share of the sums

    def lagged(later: Array, earlier: Array) -> Array:
        return np.array([later[m:] @ earlier[: n - m] for m in range(width)])

    def cost(ratios: Array) -> tuple[float, Array]:
        """Return the logarithm of the error, and its gradient in ``ratios`` of adjacent weights w.

        The coefficients r of 1 / ((1 - z) w(z)) determine the error, and d r = -(d w) r / w(z).
        """
        w = weights(ratios)
        moved = np.convolve(worst, w)[:n]
        rows = np.asarray(lfilter([1.0], w, ones))
        back = np.asarray(lfilter([1.0], w, (counted * rows)[::-1]))[::-1]
        size, most = float(counted @ rows**2), float(moved @ moved)
        slope = lagged(moved, worst) / most - lagged(back, rows) / size
        return 0.5 * math.log(size * most), np.cumsum((slope * w)[:0:-1])[::-1] / ratios

    m = np.arange(1, width)
    start = (2 * m - 1) / (2 * m)
    strategies = [square_root(n, width)]
    if width > 1:
        bounds = [(1e-6, 1.0)] * (width - 1)
        minimum = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        integers = np.rint(weights(minimum) * STRATEGY_UNIT).astype(np.int64)
        strategies.append(Toeplitz(n, tuple(integers.tolist())))

    def error(strategy: Toeplitz) -> float:
        return size_of(strategy.spread(), objective) * moved_by(strategy, times, apart)

    best = min(strategies, key=error)
    return Factorization(best, error(best), prefix_bound(n, times, apart))
