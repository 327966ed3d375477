"""The covariance of records in an l2 ball, from one release of second moments and the mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.estimators.estimate import About, Estimate, Number, shaped
from neyman.estimators.normal_noise import (
    TooMuchNoise,
    bounded_half_width,
    least_noise,
    normal_half_width,
    symmetric_noise,
)
from neyman.estimators.payment import Release, radius_of, relation_of
from neyman.ledger.ledger import Ledger
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise import Bits, rounded_gaussian
from neyman.numerics.raw_values import as_floats, vectors
from neyman.training.clipping import careful_error, grid_rows

__all__ = ["covariance", "moments"]

GRIDS = (1 << 20, 1 << 16, 1 << 12)  # units in the radius, the finest that fits
MOST_DIMENSION = 1024
MOST_SUM = 1 << 61  # of squares
EXACT_ROWS = 1 << 13  # their products of numbers up to 2^20 add up to at most 2^53
PIECE = 1 << 17  # numbers clipped at a time, which fit in a cache
KNOWN_SIZE = (
    "Only a noisy number of records could divide the moments, and no interval is proven for that; "
    'register the dataset under "replace-one", where the number of records is public'
)
Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


def covariance(
    rows: object,
    *,
    radius: float | Fraction | str,
    budget: Budget,
    centered: bool = True,
    dimension: int | None = None,
    neighboring: str = "replace-one",
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    account: str | None = None,
) -> Estimate:
    """Estimate the covariance matrix of records in an l2 ball around 0.

    Each record x is clipped to the ball and rounded to an integer grid. One release has the sum of
    x x^T and, if ``centered``, the sum of x, with rounded Gaussian noise that is drawn exactly.
    Replacing a record moves x x^T by at most sqrt(2) radius^2 in Frobenius norm. An entry off the
    diagonal counts twice in that norm, so it needs half the noise variance.

    Args:
        rows: real numbers, one row of d numbers per record, d from 1 to 1024; at least 2 records. A
            record with an entry that is not finite, or is no number, counts as 0, and so does one
            whose norm is beyond the largest double.
        radius: of the ball, above 0, chosen without the data. Subtract a public center first.
        budget: as for `ny.estimate.mean`.
        centered: if True, estimate E (x - m)(x - m)^T with the mean m; if False, E x x^T.
        dimension: d, if ``rows`` is a list of rows: no record decides it. A row of another length
            counts as one that is not finite. An array has its own.
        neighboring: "replace-one" only: the number of records is public.
        ledger, dataset, account: as for `ny.estimate.mean`.

    Returns:
        `Estimate` of shape (d, d), symmetric. It may have negative eigenvalues. Its interval about
        the population covers each entry by itself, for every law on the ball from which the
        records are drawn independently, with sampling, noise, and rounding. About the data it
        covers the covariance of the clipped records, with the divisor n - 1 if centered, else n.
        The noise error is one to first order, and the standard error adds a bound on sampling.
        There is no gap, because no lower bound is proven for this problem.

    Raises:
        TypeError, ValueError: an argument is wrong. No content of the data raises an error.
        LedgerError, BudgetRefused: the dataset is not registered so, or too little is left. In all
            of these cases nothing is charged.
        ChargedError: the computation failed after its charge, which stands.

    Examples:
        >>> import neyman as ny
        >>> rows = [(0.6, 0.5), (-0.6, -0.5), (0.6, -0.5), (-0.6, 0.5)] * 5000
        >>> estimate = ny.estimate.covariance(rows, radius=1, budget=ny.gdp(1), dimension=2)
        >>> [round(float(x), 1) for x in estimate.value.diagonal() - (0.06, 0.05)]
        [0.3, 0.2]

    Source: [EM-1], [EM-2], [EM-3], [EM-4], [EM-10].
    """
    relation = relation_of(neighboring, valid=("replace-one",), why=KNOWN_SIZE)
    array = vectors("rows", rows, relation=relation, dimension=dimension)
    n, size = array.shape
    if size > MOST_DIMENSION:
        raise ValueError(f"rows has {size} columns; it must have at most {MOST_DIMENSION}")
    if n < 2:
        raise ValueError(f"rows has {n} record; a covariance needs at least 2")
    exact = radius_of(radius)
    plan = _plan(budget, n, size, centered)
    noise, grid, weight = plan.noise, plan.grid, plan.weight
    arguments = {
        "radius": str(exact),
        "records": n,
        "dimension": size,
        "centered": centered,
        "grid": grid,
        "weight": weight,
    }
    release = Release.of("covariance", arguments, noise, relation, ledger, dataset, account)
    real = float(exact)

    def compute(bits: Bits) -> tuple[Lanes, Lanes]:
        squares, total = moments(array, real, grid)
        squares += symmetric_noise(noise.sigma_squared, size, bits)
        if weight:
            total += rounded_gaussian(noise.sigma_squared / (2 * weight**2), size, bits)
        else:
            total[:] = 0
        return squares, total

    (squares, total), receipt = release.draw(
        compute, lambda v: {"squares": v[0].tolist(), "total": v[1].tolist() if weight else None}
    )
    unit = real / grid
    second, mean = squares * (unit * unit / n), total * (unit / n)
    diagonal = np.eye(size, dtype=bool)
    sigma = noise.sigma * unit * unit / n
    deviations = np.where(diagonal, sigma, sigma / math.sqrt(2))
    of_mean = noise.sigma / (math.sqrt(2) * weight) * unit / n if weight else 0.0
    raw = second - np.outer(mean, mean)
    scale = n / (n - 1) if centered else 1.0
    value = (raw + of_mean**2 * np.eye(size)) * scale
    off = careful_error(size, grid)
    off_square = (2 * grid * off + off * off) * unit * unit + unit * unit / n
    off_mean = off * unit + unit / n

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        share = miss / 3 if centered else miss
        if about == "data":
            entry = [normal_half_width(s, share) for s in (sigma, sigma / math.sqrt(2))]
            around = normal_half_width(of_mean, share) + off_mean if centered else 0.0
        else:
            half = real * real / 2
            entry = [bounded_half_width(half, n, s, share) for s in (sigma, sigma / math.sqrt(2))]
            around = bounded_half_width(real, n, of_mean, share) + off_mean if centered else 0.0
        width = np.where(diagonal, entry[0], entry[1]) + off_square
        width = width + around * np.add.outer(np.abs(mean), np.abs(mean)) + around**2
        times = scale if about == "data" else 1.0
        return shaped((raw - width) * times, flat=False), shaped((raw + width) * times, flat=False)

    squared = np.add.outer(mean**2, mean**2) * np.where(diagonal, 2.0, 1.0) * of_mean**2
    noise_error = np.sqrt(deviations**2 + squared) * scale
    sampling = np.where(diagonal, 2.0 if centered else 0.5, 1.0 if centered else 0.5)
    error = np.hypot(noise_error, sampling * real * real / math.sqrt(n) * scale)
    return Estimate(
        "covariance",
        shaped(value, flat=False),
        shaped(error, flat=False),
        shaped(noise_error, flat=False),
        receipt,
        noise,
        "Each entry by itself of the covariance of the law of the records, clipped to the ball.",
        limits,
    )


def moments(array: NDArray[Any], radius: float, grid: int) -> tuple[Lanes, Lanes]:
    """Return the sums of v v^T and of v, exact, for records clipped and rounded to v [EM-2].

    Products of doubles are exact here: in a block of 2^13 rows with squared norms up to 2^40 all
    partial sums are whole numbers of at most 2^53, in any order.
    """
    size = array.shape[1]
    squares, total = np.zeros((size, size), np.int64), np.zeros(size, np.int64)
    step = max(1, PIECE // size)
    for start in range(0, len(array), step):
        rows = grid_rows(as_floats(array[start : start + step]), radius, grid, careful=True)
        total += rows.sum(axis=0)
        for first in range(0, len(rows), EXACT_ROWS):
            block = rows[first : first + EXACT_ROWS].astype(np.float64)
            squares += (block.T @ block).astype(np.int64)
    return squares, total


@dataclass(frozen=True)
class _Plan:
    noise: RoundedGaussian
    grid: int
    weight: int


def _plan(budget: Budget, n: int, size: int, centered: bool) -> _Plan:
    """Return the noise on the finest grid that the sampler and 64 bits allow [EM-10]."""
    for grid in GRIDS:
        if n * grid * grid > MOST_SUM:
            continue
        weight = grid // 2 if centered else 0
        # A record with one more coordinate, the weight, has this squared norm at most.
        longest = grid * grid + weight * weight
        squared = longest**2 if size == 1 and not centered else 2 * longest**2
        try:
            # A whole norm, a little above the shift's, so that one coordinate describes the pair.
            return _Plan(least_noise(budget, (math.isqrt(squared - 1) + 1) ** 2), grid, weight)
        except TooMuchNoise:
            continue
    raise TooMuchNoise(
        "budget: it needs more noise than the sampler can draw, or there are too many records; "
        "give a larger budget"
    )
