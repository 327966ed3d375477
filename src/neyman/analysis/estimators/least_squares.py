"""Least squares from a noisy matrix of second moments: rows in integers, ridge, and intervals.

A row (c, c x / radius, c y / bound) has c = min(1, radius / |x|), so that a long row shrinks as a
whole, with its constant and its target: the linear model still holds for it. Each part is rounded
to whole numbers with an exact limit on its length, and the sums are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, stdtrit

from neyman.analysis.training.clipping import grid_rows
from neyman.numerics.relation import MOVES, Neighboring

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]

RADIUS_UNITS = 1 << 15  # units in the radius, and in the bound


@dataclass(frozen=True)
class Limits:
    """The grid of least squares, and what floats hold exactly."""

    rough_units: int = 1 << 20  # units of a rough norm
    # Rows of a product: its sums are below 2^16 2^30 = 2^46, exact in floats.
    chunk_rows: int = 1 << 16
    rounding_factor: float = 1 + 1e-9  # of eigenvalues and sums of a few hundred terms in floats
    clear_norms: int = 4  # an eigenvalue this many noise norms large has intervals


LIMITS = Limits()


def model_rows(x: Floats, y: Floats, radius: float, bound: float, intercept: bool) -> Lanes:
    """Return the rows (constant, features, target) in whole numbers, each of its row alone.

    The features have an l2 norm of at most `RADIUS_UNITS`, and the constant and the target are at
    most `RADIUS_UNITS` in absolute value, all exactly. A row with an entry that is not finite
    becomes 0 [RE-1].
    """
    with np.errstate(all="ignore"):
        features, target = x / radius, y / bound
        usable = np.isfinite(features).all(axis=1) & np.isfinite(target)
        features = np.where(usable[:, None], features, 0.0)
        target = np.where(usable, target, 0.0)
        peak = np.abs(features).max(axis=1, initial=0.0)
        shape = np.rint(
            features / np.where(peak > 0, peak, 1.0)[:, None] * LIMITS.rough_units
        ).astype(np.int64)
        # An exact sum of integers, so that the root is the same in any place of the array.
        norm = peak * (np.sqrt((shape * shape).sum(axis=1).astype(np.float64)) / LIMITS.rough_units)
        factor = np.where(usable, 1 / np.maximum(norm, 1.0), 0.0)
        columns = [grid_rows(features, 1.0, RADIUS_UNITS)]
        if intercept:
            columns.insert(0, np.rint(factor * RADIUS_UNITS).astype(np.int64)[:, None])
        scaled = np.clip(target * factor, -1.0, 1.0)
        columns.append(np.rint(scaled * RADIUS_UNITS).astype(np.int64)[:, None])
    return np.concatenate(columns, axis=1)


def moments(x: Floats, y: Floats, radius: float, bound: float, intercept: bool) -> Lanes:
    """Return the exact sum of z z' over the rows z of `model_rows`."""
    size = x.shape[1] + 1 + intercept
    total = np.zeros((size, size), np.int64)
    for start in range(0, len(x), LIMITS.chunk_rows):
        part = slice(start, start + LIMITS.chunk_rows)
        rows = model_rows(x[part], y[part], radius, bound, intercept).astype(np.float64)
        total += (rows.T @ rows).astype(np.int64)
    return total


def moment_shift(intercept: bool, neighboring: Neighboring) -> int:
    """Return a square above the squared Frobenius norm of each change of `moments` [RE-2].

    A whole norm, so that one coordinate describes the pair; it is larger by less than 1e-9.

    Args:
        neighboring: "replace-one": 2 R^4; "add-remove": R^4, where R^2 is the largest squared norm
            of a row, (2 + intercept) `RADIUS_UNITS`^2.
    """
    shift = MOVES[neighboring] * ((2 + intercept) * RADIUS_UNITS**2) ** 2
    return (math.isqrt(shift - 1) + 1) ** 2


def noise_norm(sigma: float, size: int, chance: float = 1e-3) -> float:
    """Return what the operator norm of the noise exceeds with at most this chance [RE-4].

    Args:
        sigma: standard deviation on the diagonal; sigma / sqrt(2) off it.
        chance: in (0, 1).
    """
    return sigma * (math.sqrt(2 * size) + math.sqrt(2 * math.log(1 / chance)))


@dataclass(frozen=True, eq=False)
class Fit:
    """Coefficients in units of the clipped rows, the constant first, and what is known of them.

    Args:
        coefficients: with the ridge.
        ridge: what was added to the diagonal of the second moments.
        center: without the ridge; the intervals about the population are around it.
        standard_error: of ``center``, with sampling and noise; infinite where the noise may be as
            large as the second moments.
        noise_error: of ``center``, with noise alone.
        bias: of ``center`` by noise in the second moments, absolute.
        variance: of the residuals, an upper estimate.
    """

    coefficients: Floats
    ridge: float
    center: Floats
    standard_error: Floats
    noise_error: Floats
    bias: Floats
    variance: float


def solve(noisy: Floats, sigma: float, rows: float, ridge: float | None) -> Fit:
    """Fit a linear model to noisy second moments. It reads nothing else [RE-3] [RE-5].

    Args:
        noisy: the second moments of features and target plus symmetric noise, the target last.
        sigma: standard deviation of the noise on the diagonal; sigma / sqrt(2) off it.
        rows: number of rows, or a noisy number.
        ridge: what is added to the diagonal; where None, what is missing to `noise_norm` in the
            least eigenvalue.
    """
    a, c, yy = noisy[:-1, :-1], noisy[:-1, -1], float(noisy[-1, -1])
    size = len(a)
    eigenvalues, basis = np.linalg.eigh(a)
    least, norm = float(eigenvalues[0]), noise_norm(sigma, size)
    if ridge is None:
        ridge = max(0.0, norm - least)
    lifted = eigenvalues + ridge
    # Directions that noise has made negative, and a ridge leaves so, carry nothing.
    usable = lifted > 0
    value = basis @ np.where(usable, basis.T @ c / np.where(usable, lifted, 1.0), 0.0)
    if rows <= size or least < LIMITS.clear_norms * norm:
        unknown = np.full(size, math.inf)
        return Fit(value, ridge, value, unknown, unknown, unknown, math.inf)
    inverse = (basis / eigenvalues) @ basis.T
    center = inverse @ c
    square = float(center @ center)
    half = sigma**2 / 2
    noise = half * ((1 + square) * np.eye(size) + np.outer(center, center))
    left = yy - float(c @ center) + float(np.trace(inverse @ noise))
    variance = (max(left, 0.0) + sigma * (1 + square)) / (rows - size)
    noisy_part = np.diagonal(inverse @ noise @ inverse)
    sampled = variance * np.diagonal(inverse)
    bias = np.abs(inverse @ (half * (np.trace(inverse) * center + inverse @ center)))
    error = np.sqrt(np.maximum(noisy_part + sampled, 0.0))
    return Fit(value, ridge, center, error, np.sqrt(np.maximum(noisy_part, 0.0)), bias, variance)


def population_width(fit: Fit, rows: float, miss: float) -> Floats:
    """Return the half widths of intervals about the population's coefficients: approximate [RE-5].

    Args:
        rows: number of rows, or a noisy number.
        miss: chance of a miss, of each interval.
    """
    if math.isinf(fit.variance):
        return fit.standard_error
    quantile = -float(stdtrit(rows - len(fit.center), miss / 2))
    return quantile * fit.standard_error + fit.bias


def data_region(noisy: Floats, sigma: float, miss: float) -> tuple[Floats, Floats]:
    """Return center and half widths that cover the clipped rows' own coefficients: proven [RE-6].

    All coordinates together are covered with chance 1 - miss, over the noise alone, for all data.
    Half widths are infinite where the noise may be as large as the second moments.
    """
    a, c = noisy[:-1, :-1], noisy[:-1, -1]
    size = len(a)
    eigenvalues, basis = np.linalg.eigh(a)
    limit = sigma * math.sqrt(float(chdtri(size, miss)) / 2) + math.sqrt(size * (size + 1)) / 2
    k = (limit * LIMITS.rounding_factor) ** 2
    inner = eigenvalues**2 * (2 - LIMITS.rounding_factor) - 2 * k
    if inner.min() <= 0:
        return np.zeros(size), np.full(size, math.inf)
    turned = basis.T @ c
    center = basis @ (eigenvalues * turned / inner)
    radius = k * (1 + 2 * float((turned**2 / inner).sum()))
    return center, np.sqrt(radius * (basis**2 / inner).sum(axis=1)) * LIMITS.rounding_factor
