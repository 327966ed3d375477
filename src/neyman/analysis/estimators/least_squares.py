"""Compute least squares from noisy sums of products: integer rows, a ridge, and intervals.

A row is (c, c x / radius, c y / bound) with c = min(1, radius / |x|). So a long row shrinks
together with its constant and its target, and the linear model still holds for it. The constant,
the features, and the target are rounded to integers with exact limits on their lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray
from scipy.special import chdtri

from neyman.analysis.training.clipping import grid_rows
from neyman.numerics.binomial import student_quantile
from neyman.numerics.relation import MOVES, Neighboring
from neyman.numerics.roots import grown

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]

RADIUS_UNITS = 1 << 15  # units in the radius, and in the bound


@dataclass(frozen=True)
class Limits:
    """Hold the grid of least squares, and limit sizes so that floats are exact."""

    rough_units: int = 1 << 20  # units of a rough norm
    # Rows of a product: its sums are below 2^16 2^30 = 2^46, exact in floats.
    chunk_rows: int = 1 << 16
    rounding_factor: float = 1 + 1e-9  # for eigenvalues and sums of a few hundred floats
    clear_norms: int = 4  # intervals need a least eigenvalue of this many noise norms


LIMITS = Limits()


def model_rows(x: Floats, y: Floats, radius: float, bound: float, intercept: bool) -> Lanes:
    """Return rows (constant, features, target) in integers. Each depends on its own record alone.

    The features have an l2 norm of at most `RADIUS_UNITS`. The constant and the target are at most
    `RADIUS_UNITS` in absolute value. Both limits are exact. A row with an entry that is not finite
    becomes 0 [RE-1].
    """
    with np.errstate(all="ignore"):
        features, target = x / radius, y / bound
        usable = np.isfinite(features).all(axis=1) & np.isfinite(target)
        features = np.where(usable[:, None], features, 0.0)
        target = np.where(usable, target, 0.0)
        peak = np.abs(features).max(axis=1, initial=0.0)
        ratio = features / np.where(peak > 0, peak, 1.0)[:, None]
        shape = np.rint(ratio * LIMITS.rough_units).astype(np.int64)
        # The sum of integers is exact, so the root does not depend on the place in the array.
        norm = peak * (np.sqrt((shape * shape).sum(axis=1).astype(np.float64)) / LIMITS.rough_units)
        factor = np.where(usable, 1 / np.maximum(norm, 1.0), 0.0)
        columns = [grid_rows(features, 1.0, RADIUS_UNITS)]
        if intercept:
            columns.insert(0, np.rint(factor * RADIUS_UNITS).astype(np.int64)[:, None])
        scaled = np.clip(target * factor, -1.0, 1.0)
        columns.append(np.rint(scaled * RADIUS_UNITS).astype(np.int64)[:, None])
    return np.concatenate(columns, axis=1)


def moments(x: Floats, y: Floats, radius: float, bound: float, intercept: bool) -> Lanes:
    """Return the exact sum of z z^T over the rows z of `model_rows`."""
    size = x.shape[1] + 1 + intercept
    total = np.zeros((size, size), np.int64)
    for start in range(0, len(x), LIMITS.chunk_rows):
        part = slice(start, start + LIMITS.chunk_rows)
        rows = model_rows(x[part], y[part], radius, bound, intercept).astype(np.float64)
        total += (rows.T @ rows).astype(np.int64)
    return total


def moment_shift(intercept: bool, neighboring: Neighboring) -> int:
    """Bound the squared Frobenius norm of the change of `moments` between neighbors [RE-2].

    The bound is rounded up to the square of an integer, by less than a relative 1e-9. So a shift of
    one coordinate by this integer has the same curve.

    Args:
        neighboring: the bound is 2 R^4 under "replace-one" and R^4 under "add-remove". R^2 = (2 +
            intercept) `RADIUS_UNITS`^2 is the largest squared norm of a row.
    """
    shift = MOVES[neighboring] * ((2 + intercept) * RADIUS_UNITS**2) ** 2
    return (math.isqrt(shift - 1) + 1) ** 2


def noise_norm(sigma: float, size: int, chance: float = 1e-3) -> float:
    """Bound the operator norm of symmetric noise from above, with probability 1 - chance [RE-4].

    Args:
        sigma: standard deviation of the noise on the diagonal; sigma / sqrt(2) elsewhere.
        chance: a probability in (0, 1).
    """
    return sigma * (math.sqrt(2 * size) + math.sqrt(2 * math.log(1 / chance)))


@dataclass(frozen=True, eq=False)
class Fit:
    """Hold coefficients in units of the clipped rows, the constant first, with their errors.

    Args:
        coefficients: the fit with the ridge.
        ridge: the number added to the diagonal of the second moments.
        center: the fit without the ridge, the center of intervals about the population.
        standard_error: standard errors of ``center``, with sampling and noise. Infinite if the
            noise may be as large as the second moments.
        noise_error: standard errors of ``center``, with noise alone.
        bias: absolute bias of ``center`` by noise in the second moments.
        variance: an upper estimate of the variance of the residuals.
    """

    coefficients: Floats
    ridge: float
    center: Floats
    standard_error: Floats
    noise_error: Floats
    bias: Floats
    variance: float


def solve(noisy: Floats, sigma: float, rows: float, ridge: float | None) -> Fit:
    """Fit a linear model to noisy second moments, without other data [RE-3] [RE-5].

    Args:
        noisy: the second moments of features and target plus symmetric noise, the target last.
        sigma: standard deviation of the noise on the diagonal; sigma / sqrt(2) elsewhere.
        rows: number of rows, exact or noisy.
        ridge: the number to add to the diagonal. None adds just enough to lift the least eigenvalue
            to `noise_norm`.
    """
    a, c, yy = noisy[:-1, :-1], noisy[:-1, -1], float(noisy[-1, -1])
    size = len(a)
    eigenvalues, basis = np.linalg.eigh(a)
    least, norm = float(eigenvalues[0]), noise_norm(sigma, size)
    if ridge is None:
        ridge = max(0.0, norm - least)
    lifted = eigenvalues + ridge
    # Drop directions whose eigenvalue is still at most 0 after the ridge.
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
    """Approximate the half widths of intervals about the population's coefficients [RE-5].

    Args:
        rows: number of rows, exact or noisy.
        miss: probability of a miss, for each interval.
    """
    if math.isinf(fit.variance):
        return fit.standard_error
    quantile = student_quantile(rows - len(fit.center), miss / 2)
    return quantile * fit.standard_error + fit.bias


def data_region(noisy: Floats, sigma: float, miss: float) -> tuple[Floats, Floats]:
    """Return the center and half widths of proven intervals about the clipped rows' own fit [RE-6].

    For all data, the intervals cover all coordinates together with probability 1 - miss over the
    noise. Half widths are infinite if the noise may be as large as the second moments.
    """
    a, c = noisy[:-1, :-1], noisy[:-1, -1]
    size = len(a)
    eigenvalues, basis = np.linalg.eigh(a)
    special: Any = scipy.special
    square = grown(float(chdtri(size, miss)), lambda x: special.gammaincc(size / 2, x / 2) <= miss)
    limit = sigma * math.sqrt(square / 2) + math.sqrt(size * (size + 1)) / 2
    k = (limit * LIMITS.rounding_factor) ** 2
    inner = eigenvalues**2 * (2 - LIMITS.rounding_factor) - 2 * k
    if inner.min() <= 0:
        return np.zeros(size), np.full(size, math.inf)
    turned = basis.T @ c
    center = basis @ (eigenvalues * turned / inner)
    radius = k * (1 + 2 * float((turned**2 / inner).sum()))
    return center, np.sqrt(radius * (basis**2 / inner).sum(axis=1)) * LIMITS.rounding_factor
