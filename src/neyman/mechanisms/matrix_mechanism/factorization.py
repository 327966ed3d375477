"""Optimize strategies, and bound the error of every strategy from below.

The mechanism answers a workload A as A x + A C^-1 Z, from the measurement C x + Z. At mu = 1, the
error of query i is Delta (the sensitivity of C) times the norm of row i of B = A C^-1. For all
weights p of queries and v of steps, each with sum 1, ||P^1/2 A V^1/2||_tr is a lower bound on the
largest error, with P = diag(p) and V = diag(v). The largest lower bound equals the smallest
possible error: the gamma-2 norm of A [MM-7]. With equal p, it also bounds the root mean squared
error. `optimized` climbs over p and v, and returns the corresponding strategy.

Sources: Li and Miklau 2013 (lower bounds); Denisov et al. 2022 (the fixed point); Matousek, Nikolov
and Talwar 2020 (gamma-2 of prefix sums).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.mechanisms.matrix_mechanism.participation import pattern
from neyman.mechanisms.matrix_mechanism.strategy import (
    STRATEGY_UNIT,
    Strategy,
    Triangular,
    floats,
    steps_up_to,
)
from neyman.numerics import check


@dataclass(frozen=True)
class Limits:
    """Limit the steps and the entries of a workload, and the effort of the search."""

    rounds: int = 200  # singular value decompositions
    steps: int = 1024
    bound: int = 1 << 20
    least_entry: float = 1e-60  # powers of smaller entries would underflow


LIMITS = Limits()

PARTS = (0.2, 0.4, 0.6, 0.8)  # shares of records that take part every b steps
OBJECTIVES = ("largest", "mean")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Factorization:
    """Store a strategy with its error and a lower bound, at mu = 1 and sensitivity 1.

    Args:
        strategy: C, rounded to integers.
        error: the minimized error, for the rounded C, computed in floats.
        bound: a lower bound on the error of every C, computed in floats.
    """

    strategy: Strategy
    error: float
    bound: float

    @property
    def gap(self) -> float:
        """Return error / bound, which is at least 1 up to rounding."""
        return self.error / self.bound


@lru_cache(maxsize=64)
def prefix_bound(steps: int, participations: int = 1, separation: int = 1) -> float:
    """Bound the largest and the root mean squared error of prefix sums from below [MM-7].

    The bound is for mu = 1 and sensitivity 1. The triangular matrix A of ones has the singular
    values 1 / (2 sin((2j - 1) pi / (4n + 2))). Their sum over n is the bound for one step. For more
    steps, any random record that meets the participation rule gives the bound
    ||A V^1/2||_tr / sqrt n. V is the mean of x x' over its contributions x. The record takes part
    in each step with probability min(1 / b, k / n) and a random sign. For at most 512 steps,
    records that take part every b steps from a random start are mixed in.

    Args:
        steps: n, from 1 to 2^20.
        participations: k.
        separation: b.
    """
    n = steps_up_to(steps, LIMITS.bound)
    times, apart = pattern(n, participations, separation)
    j = np.arange(1, n + 1)
    trace = float(np.sum(0.5 / np.sin((2 * j - 1) * math.pi / (4 * n + 2))))
    share = min(1 / apart, times / n)
    bound = trace * math.sqrt(share / n)
    if times == 1 or n > 512:  # mixed steps
        return bound
    for part in PARTS:
        root = np.linalg.cholesky(record_of(n, times, apart, part))
        values = np.linalg.svd(np.tri(n) @ root, compute_uv=False)
        bound = max(bound, float(values.sum()) / math.sqrt(n))
    return bound


def record_of(n: int, times: int, apart: int, part: float) -> Array:
    """Return E[x x'], shape (n, n), for a random record with x_t = 1 or -1 at its steps t, else 0.

    The record takes part in at most k = ``times`` steps, at least b = ``apart`` steps apart. With
    chance ``part``, it takes part in k steps, b apart, from a random start, with x_t = 1.
    Otherwise, each step has probability min(1 / b, k / n) and a random sign. A random set of steps
    with these probabilities exists: the constraints form an interval matrix, so the polytope of
    probabilities has integer vertices, the allowed sets.
    """
    starts = np.arange(n - (times - 1) * apart)
    joint = np.zeros((n, len(starts)))
    joint[starts + apart * np.arange(times)[:, None], starts] = 1 / math.sqrt(len(starts))
    return part * joint @ joint.T + (1 - part) * min(1 / apart, times / n) * np.eye(n)


def optimized(workload: ArrayLike | int, objective: str = "largest") -> Factorization:
    """Optimize a lower triangular C for a workload, if each record takes part in one step.

    Each round computes the singular value decomposition U S W' of P^1/2 A V^1/2. The strategy for
    the weights is C'C = V^-1/2 (W S W') V^-1/2, with B B' = P^-1/2 (U S U') P^-1/2. Steps and
    queries with large norms then get more weight. The rounds certify nothing: the error of the
    rounded strategy and the bound are computed afterwards.

    Args:
        workload: the queries, of shape ``(queries, steps)``, or n for the prefix sums of n steps.
            At most 1024 steps. The rank must be the number of steps.
        objective: "largest" error of a query, or root of the "mean" squared error.
    """
    queries = queries_of(workload)
    check_objective(objective)
    # The search stops if the gap is at most 1 + this.
    gram, bound = climbed(queries, None, objective, LIMITS.rounds, 1e-3)
    # In reversed order of steps, Cholesky gives the lower triangular C with C'C = gram.
    factor = cast(Array, np.linalg.cholesky(gram[::-1, ::-1] / gram.diagonal().max()))
    strategy = Triangular.of(factor[::-1, ::-1].T)
    error = size_of(strategy.reading(queries), objective) * moved_by(strategy, 1, 1)
    return Factorization(strategy, error, bound)


def climbed(
    queries: Array, record: Array | None, objective: str, rounds: int, tolerance: float
) -> tuple[Array, float]:
    """Search for a strategy C. Return C'C and a lower bound on the error of every strategy.

    Each round reweights ``queries``, the workload, and the steps unless a ``record`` of `record_of`
    is given.
    """
    count, n = queries.shape
    p, v = np.full(count, 1 / count), np.full(n, 1 / n)
    root = None if record is None else np.linalg.cholesky(record)
    best, gram, bound = math.inf, np.eye(n), 0.0
    for _ in range(rounds):
        rooted = queries * np.sqrt(v) if root is None else queries @ root
        u, s, w = np.linalg.svd(np.sqrt(p)[:, None] * rooted, full_matrices=False)
        if s[-1] < 1e-12 * s[0]:
            raise ValueError(f"workload must have rank {n}: drop steps that no query needs")
        nuclear_norm, before = float(s.sum()), bound
        bound = max(bound, nuclear_norm)
        steps, asked = s @ w**2, u**2 @ s
        moved = float((steps / v).max()) if root is None else nuclear_norm
        reached = size_of(np.sqrt(asked / p), objective) * math.sqrt(moved)
        if reached < best:
            half = np.sqrt(s)[:, None] * w
            half = half / np.sqrt(v) if root is None else np.linalg.solve(root.T, half.T).T
            best, gram = reached, half.T @ half
        still = root is not None and bound <= before * (1 + tolerance * 1e-3)
        if best <= bound * (1 + tolerance) or still:
            break
        v = steps / steps.sum()
        if objective == "largest":
            p = np.maximum(asked / asked.sum(), 1e-9 / count)
            p /= p.sum()
    return gram, bound


def size_of(errors: Array, objective: str) -> float:
    """Return the largest error, or the root mean squared error."""
    return float(errors.max() if objective == "largest" else np.sqrt(np.mean(errors**2)))


def moved_by(strategy: Strategy, times: int, apart: int) -> float:
    """Bound the l2 distance by which one record moves C x."""
    return math.sqrt(strategy.largest(times, apart)) / STRATEGY_UNIT


def check_objective(objective: object) -> None:
    """Refuse an objective other than "largest" and "mean"."""
    check.one_of("objective", objective, OBJECTIVES)


def queries_of(workload: ArrayLike | int) -> Array:
    """Return the workload as a matrix. A number of steps means prefix sums."""
    if isinstance(workload, int) and not isinstance(workload, bool):
        queries = np.asarray(
            np.tri(min(check.integer("workload", workload, 1), LIMITS.steps + 1)), float
        )
    else:
        queries = floats("workload", workload)
    if queries.ndim != 2 or not 1 <= queries.shape[1] <= min(LIMITS.steps, len(queries)):
        raise ValueError(
            f"workload has the shape {queries.shape}; give queries as rows over 1 to "
            f"{LIMITS.steps} steps, at least as many as steps"
        )
    size = np.abs(queries).max(axis=1)
    if not ((size >= LIMITS.least_entry) & (size <= 1 / LIMITS.least_entry)).all():
        raise ValueError(
            "workload must have finite rows that are not all 0; the largest entry of each in size "
            "from 1e-60 to 1e60"
        )
    return queries
