"""Compute the curve of the best of K runs, from the curve of one run and the distribution of K.

F(y) and F'(y) are the chances that a run scores below y on the two datasets. The winner's density
is psi'(F) times the density of one run, and F is at most the power of one run at level F'. So each
outcome adds to delta at most a convex function of its likelihood ratio, and delta of the winner is
at most an f-divergence of one run [BS-2].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np

from neyman.curves.tradeoff.piecewise_linear import Line, Polygon, envelope, mirrored_line
from neyman.mechanisms.tuning.runs import Runs
from neyman.numerics.arrays import Array
from neyman.numerics.roots import bisect


@dataclass(frozen=True)
class Limits:
    """Limit the resolution of the winner's curve, and the numbers that count as negligible."""

    pieces: int = 1 << 14  # number of pieces of log psi' along the curve
    epsilon_places: int = 600  # number of epsilons at which delta is bounded
    least_mass: float = 1e-280  # a smaller mass may have any loss
    sparse_delta: float = 1e-40  # below this delta, few epsilons are used
    largest_epsilon: float = 690.0  # its exponential does not overflow
    sum_error: float = 1e-12  # relative error of sums of at most 1e4 terms of one sign [BS-3]


LIMITS = Limits()


def winner(base: Polygon, runs: Runs) -> Polygon:
    """Return a polygon above the power of the winner, in both orders.

    Args:
        base: a polygon above the power of one run, in both orders.
        runs: the distribution of K.
    """
    a, b = weights(base, runs)
    top = float(a[-1])
    p = np.array([float(y - x) for (_, x), (_, y) in pairwise(base)])
    q = np.array([float(y - x) for (x, _), (y, _) in pairwise(base)])
    tiny = q < LIMITS.least_mass  # counted as possible on one dataset only, with the best score
    sure = (
        not tiny.any()
        and not ((p > 0) & (p < LIMITS.least_mass)).any()
        and not 0 < base[0][1] < LIMITS.least_mass
    )
    extra = (
        float(base[0][1]) * (1 + LIMITS.sum_error)
        + float(p[tiny].sum())
        + (not sure) * LIMITS.least_mass * len(p)
    )
    p, q = p[~tiny], q[~tiny]
    with np.errstate(divide="ignore"):
        log_ratio = np.log(p) - np.log(q)
    last = (float(log_ratio.max()) + float((a - b).max())) * (
        1 + LIMITS.sum_error
    ) + LIMITS.sum_error
    end = min(last, LIMITS.largest_epsilon - top)
    lines: list[Line] = []
    hull = _support(a, b)
    deltas = partial(_deltas, log_ratio, q, top, hull)
    places = _places(log_ratio, end, deltas)
    for epsilon, delta in zip(places, deltas(places), strict=True):
        total = (0.0 if epsilon >= last else delta + LIMITS.least_mass) + extra * math.exp(top)
        total *= 1 + LIMITS.sum_error
        if total < 1:  # skip totals that overflow or are trivial
            # Round e^epsilon up: delta falls in it.
            lines.append((Fraction(math.exp(epsilon) * (1 + 4e-16)), Fraction(total)))
    return envelope([(Fraction(0), Fraction(1)), *lines, *(mirrored_line(*x) for x in lines)])


def _places(log_ratio: Array, end: float, deltas: Callable[[Array], Array]) -> Array:
    """Return epsilons from 0 to ``end`` for ``deltas``: many while delta is not negligible."""
    high, _ = bisect(
        lambda e: bool(deltas(np.array([e]))[0] < LIMITS.sparse_delta), end, 0.0, rounds=30
    )
    even = np.linspace(0.0, high, LIMITS.epsilon_places)
    near = np.geomspace(high * 1e-6, high, LIMITS.epsilon_places // 8)
    far = np.linspace(high, end, LIMITS.epsilon_places // 8)
    known = log_ratio[(log_ratio > 0) & (log_ratio < high)]
    known = known[:: 1 + len(known) // (LIMITS.epsilon_places // 2)]
    return np.unique(np.concatenate([even, near, far, known]))


def weights(base: Polygon, runs: Runs) -> tuple[Array, Array]:
    """Bound log psi'(F) from above and log psi'(F') from below, from worst to best score [BS-3].

    F and F' are the chances that a run scores lower, on the two datasets. Along each edge of the
    polygon, (F', F) moves on a line, which is cut into pieces. In a piece, the upper bound uses its
    end, and the lower bound its start.
    """
    level = np.array([float(1 - x) for x, _ in base])
    power = np.array([float(1 - y) for _, y in base])
    range_ = float(runs.log_slope(np.zeros(1), 1)[0] - runs.log_slope(np.ones(1), -1)[0])
    step = max(2 * range_ / LIMITS.pieces, 1e-12)
    moved = sum(np.abs(np.diff(runs.log_slope(c, 1))) for c in (level, power))
    pieces = np.maximum(np.ceil(moved / step), 1).astype(int)
    first = np.repeat(np.arange(len(pieces)), pieces)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    share = np.append(offset / pieces[first], 1.0)
    side = np.append(first, len(pieces) - 1)
    c_level = (1 - share) * level[side] + share * level[side + 1]
    c_power = (1 - share) * power[side] + share * power[side + 1]
    return runs.log_slope(c_power[1:], 1), runs.log_slope(c_level[:-1], -1)


def _support(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return the pairs (psi'(F), psi'(F')) at which s psi'(F) - psi'(F') is largest for some s.

    Return them as two arrays, scaled by the largest psi'(F), and the s between adjacent pairs.
    ``a`` and ``b`` are the results of `weights`.
    """
    x, y = np.exp(a - a[-1]), np.exp(b - a[-1])
    hull = _lower_hull(x, y)
    line = cast(Array, np.interp(x, x[hull], y[hull]))
    ratio = np.divide(y, line, out=np.ones_like(y), where=line > 0)
    too_high = float(np.max(1 - ratio, initial=0.0))  # excess by rounding [BS-3]
    x, y = x[hull], y[hull] * (1 - too_high - LIMITS.sum_error)
    return x, y, np.diff(y) / np.diff(x) if len(x) > 1 else np.zeros(0)


def _deltas(
    log_ratio: Array, q: Array, top: float, support: tuple[Array, Array, Array], places: Array
) -> Array:
    """Bound the sum over outcomes of the largest (psi'(F) p - t psi'(F') q)_+ from above [BS-2].

    Args:
        log_ratio: log(p / q) of each outcome.
        q: the mass of each outcome.
        top: log of the largest psi'(F).
        support: the result of `_support`.
        places: the epsilons, log t.
    """
    x, y, breaks = support
    totals: list[float] = []
    for epsilon in places:
        s = np.exp(log_ratio - epsilon) * (1 + LIMITS.sum_error)
        near = cast(Array, np.searchsorted(breaks, s)) + np.array([[-1], [0], [1]])
        near = near.clip(0, len(x) - 1)
        best = np.maximum((x[near] * s - y[near]).max(axis=0), 0.0)
        totals.append(float((best * q).sum()) * math.exp(epsilon + top))
    # same: 1 + LIMITS -> 1 - LIMITS: Safe: s and y have this room, too, and winner() adds it again.
    # same: * (1 -> / (1: As above.
    # same: 1 + LIMITS.sum_error -> 1: As above.
    return np.array(totals) * (1 + LIMITS.sum_error)


def _lower_hull(x: Array, y: Array) -> list[int]:
    """Return the indices of the points on the lower convex hull, for nondecreasing x."""
    corners: list[int] = []
    for i in range(len(x)):
        if corners and x[i] == x[corners[-1]]:
            if y[i] >= y[corners[-1]]:
                continue
            corners.pop()
        while len(corners) > 1:
            j, k = corners[-2], corners[-1]
            if (y[k] - y[j]) * (x[i] - x[j]) < (y[i] - y[j]) * (x[k] - x[j]):
                break
            corners.pop()
        corners.append(i)
    return corners
