"""Bound the privacy loss and the curve of Student noise whose center and scale both change.

P is the distribution of Z and Q is the distribution of e^t Z + u, with |t| <= beta and
0 <= u <= s min(1, e^t). For each t the largest u is the worst [ST-6]. A change of t moves the loss
by at most max(d, 1) times the change, so finitely many t bound all [ST-7].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import betainc

from neyman.curves.tradeoff.piecewise_linear import (
    Corner,
    Line,
    Pair,
    envelope,
    hull,
    mirrored_line,
)
from neyman.numerics.arrays import Array
from neyman.numerics.rounding import up


@dataclass(frozen=True)
class Limits:
    """Limit the errors and the effort of the bounds on delta for Student noise."""

    # Of a probability. The error of `lower_tail` is below 1e-13, as a test checks.
    probability_error: float = 1e-11
    loss_error: float = 1e-12  # of a loss: covers roundings of logarithms and square roots
    epsilon_places: int = 160  # number of epsilons at which delta is bounded
    first_cells: int = 16  # initial cells of the interval of t
    split_cells: int = 8  # parts of a cell that is split
    rounds: int = 5  # number of rounds of splitting
    cells: int = 2048  # largest number of cells


LIMITS = Limits()


def largest_loss(
    degrees: float, smoothness: float, scale: float, *, scale_change: float | None = None
) -> tuple[float, float]:
    """Bound the largest privacy loss of all pairs (P, Q), or of the pairs with one |t| [ST-5].

    Args:
        degrees: d, above 0.
        smoothness: beta.
        scale: s.
        scale_change: |t|. None takes the worse of 0 and beta.
    """
    changes = (0.0, smoothness) if scale_change is None else (scale_change,)
    value = max(_loss_at(degrees, t, scale * math.exp(-t / 2)) for t in changes)
    return value * (1 - LIMITS.loss_error), value * (1 + LIMITS.loss_error)


def _loss_at(d: float, t: float, u: float) -> float:
    """Return the largest loss at one t >= 0: (d + 1) v / 2 + |d - 1| t / 2 [ST-4].

    Here cosh v = cosh t + u^2 / (2 d), where ``u`` is the shift divided by e^{t / 2}.
    """
    y = 2 * math.sinh(t / 2) ** 2 + u * u / (2 * d)  # cosh v - 1
    v = math.log1p(y + math.sqrt(y * (y + 2)))
    return (d + 1) * v / 2 + abs(d - 1) * t / 2


def enclosing_polygons(degrees: float, smoothness: float, scale: float) -> Pair:
    """Return polygons below and above the convex hull of all pairs' powers [ST-6, ST-7]."""
    top = largest_loss(degrees, smoothness, scale)[1]
    places = np.linspace(0.0, top, LIMITS.epsilon_places)
    points: list[Corner] = []
    cells = _Cells.even(smoothness, LIMITS.first_cells)
    known = np.zeros(LIMITS.epsilon_places)  # lower bound, attained by some pair
    bound = np.zeros(LIMITS.epsilon_places)  # upper bound over the settled values of t
    for i in range(LIMITS.rounds):
        change = np.concatenate([cells.center, [-smoothness, smoothness]])
        shift = scale * np.minimum(1.0, np.exp(change)) * (1 - LIMITS.loss_error)
        level, power = _tests(degrees, change, shift, places)
        delta = power - np.exp(places) * level
        best = np.unique(np.argmax(delta, axis=0))
        points += _corners(level[best], power[best])
        known = np.maximum(known, delta.max(axis=0))
        # In a cell, u is at most u at the right end, and t moves by at most the half-width.
        widest = scale * np.minimum(1.0, np.exp(cells.center + cells.half))
        moved = max(degrees, 1.0) * cells.half * (1 + LIMITS.loss_error)
        level, power = _tests(degrees, cells.center, widest, places - moved)
        ends = power - np.exp(places - moved) * level
        # Relative gap of delta between the two polygons.
        open_: Array = np.any(ends > known * (1 + 2e-5) + LIMITS.probability_error, axis=1)
        last = i == LIMITS.rounds - 1 or open_.sum() * LIMITS.split_cells > LIMITS.cells
        settled = np.ones_like(open_) if last else ~open_
        bound = np.maximum(bound, ends[settled].max(axis=0, initial=0.0))
        if last or not open_.any():
            break
        cells = cells.split(open_)
    lines: list[Line] = [(Fraction(up(math.exp(up(top)), 4)), Fraction(0))]
    for epsilon, delta in zip(places, bound + LIMITS.probability_error, strict=True):
        lines.append((Fraction(up(math.exp(epsilon), 4)), Fraction(float(delta))))
    lines += [mirrored_line(*line) for line in lines]
    points += [(1 - y, 1 - x) for x, y in points]  # the reversed pair is one of the pairs
    return hull(points), envelope(lines)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Represent intervals of t, the log change of scale, by centers and a common half-width."""

    center: Array
    half: float

    @staticmethod
    def even(smoothness: float, count: int) -> _Cells:
        """Return ``count`` equal parts of [-smoothness, smoothness], the half-width rounded up."""
        half = smoothness / count
        return _Cells(
            (2 * np.arange(count) + 1) * half - smoothness, half * (1 + LIMITS.loss_error)
        )

    def split(self, chosen: Array) -> _Cells:
        """Return the chosen intervals, each split into equal parts."""
        half = self.half / LIMITS.split_cells
        offset = (2 * np.arange(LIMITS.split_cells) + 1) * half - self.half
        center = (self.center[chosen][:, None] + offset).ravel()
        return _Cells(center, half * (1 + LIMITS.loss_error))


def _tests(d: float, t: Array, u: Array, places: Array) -> tuple[Array, Array]:
    """Return level and power of the tests "the loss is above e", for each e in ``places``.

    Both have the shape (pairs, places). Any set is a test, so a rounded root has only a
    second-order effect. The loss is above e if (k - h) z^2 - 2 k u z + k u^2 + d (1 - h) > 0, k =
    e^{-2 t}, h = e^{2 (e - t) / (d + 1)}.
    """
    t, u = t[:, None], u[:, None]
    k = np.exp(-2 * t)
    h = np.exp(2 * (places - t) / (d + 1))
    first, middle, last = k - h, k * u, k * u * u + d * (1 - h)
    first = np.where(first == 0, 1e-300, first)
    square = middle * middle - first * last
    with np.errstate(all="ignore"):
        root = middle + np.sqrt(np.maximum(square, 0.0))
        one, other = root / first, last / root
        low, high = np.fmin(one, other), np.fmax(one, other)

        def inside(left: Array, right: Array) -> Array:
            """Return the mass of Z inside or outside an interval, accurate for a small mass."""
            outer = lower_tail(d, -right) + lower_tail(d, left)
            inner = np.where(
                left > 0,
                lower_tail(d, -left) - lower_tail(d, -right),
                lower_tail(d, right) - lower_tail(d, left),
            )
            mass = np.where(first > 0, outer, inner)
            return np.where(square > 0, mass, np.where(first > 0, 1.0, 0.0))

        power = inside(low, high)
        level = inside((low - u) * np.exp(-t), (high - u) * np.exp(-t))
    return level, power


def lower_tail(d: float, x: Array) -> Array:
    """Return P(Z <= x) for Z from Student's distribution with d degrees of freedom."""
    with np.errstate(all="ignore"):
        square = x * x
        half: Array = 0.5 * betainc(0.5, d / 2, square / (d + square))
        tail: Array = 0.5 * betainc(d / 2, 0.5, d / (d + square))
    return np.where(square < d, 0.5 + np.sign(x) * half, np.where(x < 0, tail, 1.0 - tail))


def _corners(level: Array, power: Array) -> list[Corner]:
    """Return the points (level, power) of tests, moved down and right by their rounding error."""
    x = np.minimum(level + LIMITS.probability_error, 1.0).ravel().tolist()
    y = np.maximum(power - LIMITS.probability_error, 0.0).ravel().tolist()
    return [(Fraction(a), Fraction(b)) for a, b in zip(x, y, strict=True)]
