"""Fit a penalized logistic regression with a proven error, and bound its change by one record.

F(w) = mean of log(1 + exp(-v'w)) + penalty / 2 |w|^2 over rows v of norm at most R. A row v is the
label times the features. Newton steps have a proven decrease. They end when the computed gradient
plus a bound on its rounding is below a limit that is chosen without the data [LO-3].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from neyman.analysis.training.clipping import grid_rows

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """Hold the grid of a logistic fit, and limit sizes so that floats are exact."""

    # Units in the radius; a power of two, so that rows are exact in floats.
    grid_units: int = 1 << 16
    chunk_rows: int = 4096  # rows whose terms are added up in floats; chunks are added up exactly
    boxes: int = 1 << 20  # largest number of boxes
    curvature_units: int = 1 << 10  # units in the radius, for the curvature
    # Units of a weight in it, so that sums over 2^16 rows are exact in floats.
    weight_units: int = 1 << 10
    bend_ratio: int = 4  # times as many for p (1 - p) as for p^2: both are at most `weight_units`
    rounding_factor: float = 1 + 1e-9  # on a result of a few dozen roundings
    peak: float = 0.27847  # t / (1 + e^t) is at most W(1/e) = 0.278464...


LIMITS = Limits()
DOUBLE_ROUNDING = 2.0**-53


class NotConverged(RuntimeError):
    """Report a search that passed its proven number of steps. This is a defect."""


def signed_rows(x: Floats, labels: Floats, radius: float, intercept: bool) -> Floats:
    """Return label times (constant, features / radius). Its norm is at most sqrt(1 + intercept).

    Features are clipped to the radius and rounded to multiples of 2^-16. A label above 0 is 1, and
    any other label is -1. A row with an entry that is not finite becomes 0: it adds a constant to F
    [LO-1].
    """
    with np.errstate(all="ignore"):
        scaled = x / radius
    usable = np.isfinite(scaled).all(axis=1) & np.isfinite(labels)
    units = grid_rows(np.where(usable[:, None], scaled, 0.0), 1.0, LIMITS.grid_units)
    rows = units.astype(np.float64) / LIMITS.grid_units
    if intercept:
        rows = np.concatenate([usable[:, None].astype(np.float64), rows], axis=1)
    return rows * np.where(labels > 0, 1.0, -1.0)[:, None]


@lru_cache(maxsize=64)
def gradient_width(reach: float) -> float:
    """Return an upper bound on |s(-v'w) v - s(-u'w) u| for |u|, |v| <= 1 and |w| <= reach.

    Here s(t) = 1 / (1 + e^-t). The textbook bound is 2, the limit for large w. The search halves
    boxes of |w| and of the angles a and b of v and u, until all bounds are within 0.3% of an
    attained value [LO-2].
    """
    boxes = np.array([[0.0, reach, -math.pi / 2, math.pi / 2, -math.pi / 2, math.pi / 2]])
    largest = 1.0  # attained at w = 0
    while True:
        bounds = _box_bound(boxes)
        middle = (boxes[:, ::2] + boxes[:, 1::2]) / 2
        h, k = expit(middle[:, :1] * np.sin(middle[:, 1:])).T
        inside = h * h + k * k + 2 * h * k * np.cos(middle[:, 1] + middle[:, 2])
        largest = max(largest, float(inside.max()))
        # The square of a bound divided by one that is attained.
        if bounds.max() <= largest * 1.006 or len(boxes) > LIMITS.boxes:
            return min(math.sqrt(float(bounds.max())) * LIMITS.rounding_factor, 2.0)
        boxes, middle = boxes[bounds > largest], middle[bounds > largest]
        sides = (boxes[:, 1::2] - boxes[:, ::2]) * (1.0 / max(reach, 1.0), 1.0, 1.0)
        longest = sides.argmax(axis=1)
        rows = np.arange(len(boxes))
        low, high = boxes.copy(), boxes.copy()
        low[rows, 2 * longest + 1] = high[rows, 2 * longest] = middle[rows, longest]
        boxes = np.concatenate([low, high])


def _box_bound(boxes: Floats) -> Floats:
    """Bound the square of `gradient_width`'s distance per box. Columns: ends of |w|, a, and b."""
    sizes: list[Floats] = []
    for last in (boxes[:, 3], boxes[:, 5]):
        sine = np.sin(last)
        t = np.where(sine >= 0, boxes[:, 1], boxes[:, 0]) * sine
        beyond = t < -1.27  # the largest h is inside the ball
        sizes.append(np.where(beyond, LIMITS.peak / np.where(beyond, -t, 1.0), expit(t)))
    h, k = sizes
    first, last = boxes[:, 2] + boxes[:, 4], boxes[:, 3] + boxes[:, 5]
    crosses = (first <= 0) & (last >= 0)
    cosine = np.where(crosses, 1.0, np.maximum(np.cos(first), np.cos(last)))
    # Convex in (h, k): the maximum over [0, h] x [0, k] is at a corner.
    return np.maximum(np.maximum(h * h, k * k), h * h + k * k + 2 * h * k * cosine)


def largest_move(rows: int, penalty: float, intercept: bool) -> float:
    """Bound how far the exact fit moves if one of ``rows`` rows is replaced [LO-2].

    The bound is D / (rows penalty). D is the largest distance between two rows' gradients at the
    fit. The textbook has D = 2 R. The fit has a norm of at most sqrt(0.27847 / penalty), which
    makes D smaller: if R = 1, D is below 1.22 at penalty 0.1 and below 1.65 at penalty 0.01.
    """
    length = math.sqrt(1 + intercept)
    width = gradient_width(length * most_length(penalty))
    return width * length / (rows * penalty) * LIMITS.rounding_factor


def most_length(penalty: float) -> float:
    """Bound the norm of a fit w from above [LO-2].

    penalty |w|^2 is a mean of t / (1 + e^t), which is at most 0.27847.
    """
    return math.sqrt(LIMITS.peak / penalty) * LIMITS.rounding_factor


@dataclass(frozen=True)
class FitAccuracy:
    """Hold the limits of the search, the grid, and the sensitivity, chosen without the data.

    Args:
        gradient: the largest norm of F's gradient at the end of the search, rounding included.
        unit: unit of the released grid, a power of two.
        squared_shift: a square number that bounds the squared norm of a change of the rounded fit,
            in units. As it is a square, an integer shift of one coordinate has the same curve.
        steps: a number of Newton steps that always suffices.
    """

    gradient: float
    unit: float
    squared_shift: int
    steps: int


def accuracy(rows: int, size: int, penalty: float, intercept: bool) -> FitAccuracy:
    """Choose the search's tolerance and the grid of a fit [LO-4].

    They add about 1% to the fit's largest change between neighbors.
    """
    move = largest_move(rows, penalty, intercept)
    length = math.sqrt(1 + intercept)
    reach = most_length(penalty)
    # Any w with a gradient norm of at most this limit is within limit / penalty of the fit.
    error = _rounding(size, length, penalty, 2 * reach + 1)
    steps = math.ceil(5 * (1 + intercept) / penalty) + 100
    return accuracy_of(move, error, size, penalty, steps)


def accuracy_of(move: float, error: float, size: int, penalty: float, steps: int) -> FitAccuracy:
    """Choose the tolerance and the grid, for a fit that moves by at most ``move`` [LO-4].

    Args:
        move: largest move of the exact fit.
        error: largest error of a computed gradient, at any point where the search may end.
    """
    move_parts = 400  # the search may add 1 / this of the exact fit's move
    limit = move * penalty / (2 * move_parts) + 2 * error
    unit = 2.0 ** math.floor(math.log2(move / (move_parts / 2 * math.sqrt(size))))
    shift = ((move + 2 * limit / penalty) / unit + math.sqrt(size)) * LIMITS.rounding_factor
    return FitAccuracy(limit, unit, math.ceil(shift) ** 2, steps)


def fit(rows: Floats, penalty: float, aim: FitAccuracy) -> Lanes:
    """Return the fit in grid units, each coordinate rounded.

    Before rounding, the computed fit is within ``aim.gradient / penalty`` of the exact fit, because
    F is strongly convex and the gradient is small. Newton steps of length log(1 + d) / d with d = R
    |direction| lower F by a proven amount [LO-3].

    Raises:
        NotConverged: after ``aim.steps`` steps, which exact arithmetic never takes.
    """
    size = rows.shape[1]
    length = math.sqrt(float((rows * rows).sum(axis=1).max(initial=0.0))) * LIMITS.rounding_factor
    w = np.zeros(size)
    for _ in range(aim.steps):
        chances = expit(-(rows @ w))
        gradient = penalty * w - mean_of_rows(rows, chances)
        norm = float(np.linalg.norm(gradient)) * LIMITS.rounding_factor
        if norm + _rounding(size, length, penalty, float(np.linalg.norm(w))) <= aim.gradient:
            return np.rint(w / aim.unit).astype(np.int64)
        curvature = penalty * np.eye(size)
        weights = chances * (1 - chances) / len(rows)
        for start in range(0, len(rows), 1 << 16):
            part = rows[start : start + (1 << 16)]
            curvature += (part * weights[start : start + (1 << 16), None]).T @ part
        direction = -cho_solve(cho_factor(curvature), gradient)
        d = length * float(np.linalg.norm(direction))
        w = w + direction * (math.log1p(d) / d if d > 0 else 1.0)
    raise NotConverged(
        f"the search for the fit took more than {aim.steps} steps; report this as a defect"
    )


def mean_of_rows(rows: Floats, weights: Floats) -> Floats:
    """Return the mean of weight times row. Chunks are summed in floats, and their sums exactly."""
    parts = np.array([
        weights[start : start + LIMITS.chunk_rows] @ rows[start : start + LIMITS.chunk_rows]
        for start in range(0, len(rows), LIMITS.chunk_rows)
    ])  # fmt: skip
    return np.array([math.fsum(column) for column in parts.T]) / len(rows)


def _rounding(size: int, length: float, penalty: float, norm: float) -> float:
    """Bound the error's norm of a gradient computed at a point w with |w| = ``norm`` [LO-3].

    ``size`` is the dimension, and ``length`` the largest norm of a row.
    """
    product = 1.01 * size * DOUBLE_ROUNDING * length * norm
    of_sum = 1.01 * LIMITS.chunk_rows * DOUBLE_ROUNDING
    # Absolute error of expit: a few units, assumed.
    term = product / 4 + 2.0**-48 + of_sum + 4 * DOUBLE_ROUNDING
    return 1.01 * (length * term + 4 * DOUBLE_ROUNDING * penalty * norm)


def curvature(rows: Floats, w: Floats) -> tuple[Lanes, Lanes]:
    """Return the sums of 4 p (1 - p) z z^T and of p^2 z z^T in integer units [LO-7].

    p = 1 / (1 + e^{v'w}).

    z is the row v, rounded toward 0 to multiples of 2^-10. The first sum gives the loss's curvature
    at w. The second gives the mean square of its gradients. Each term depends on its own row and w
    alone.
    """
    size = rows.shape[1]
    sums = np.zeros((2, size, size), np.int64)
    for start in range(0, len(rows), 1 << 16):
        part = rows[start : start + (1 << 16)]
        p = expit(-(part * w).sum(axis=1))
        z = np.trunc(part * LIMITS.curvature_units)
        for k, share in enumerate((LIMITS.bend_ratio * p * (1 - p), p * p)):
            sums[k] += ((z * np.rint(share * LIMITS.weight_units)[:, None]).T @ z).astype(np.int64)
    return sums[0], sums[1]


def curvature_shift(intercept: bool) -> int:
    """Bound the squared norm of the change of `curvature` by a square number (replace-one)."""
    longest = ((1 + intercept) * LIMITS.curvature_units**2) ** 2  # |z|^4
    weights = LIMITS.weight_units**2 * 27 // 25  # 16 p^2 (1 - p)^2 + p^4 <= 1.073, and rounding
    return (math.isqrt(2 * weights * longest) + 1) ** 2
