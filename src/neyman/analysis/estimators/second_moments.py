"""Estimate the covariance of records in an l2 ball, from one release of noisy sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number, fixed
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import (
    TooMuchNoise,
    bounded_half_width,
    least_noise,
    normal_half_width,
    symmetric_noise,
)
from neyman.analysis.estimators.shared_arguments import (
    Shared,
    radius_of,
    relation_of,
    shares_arguments,
)
from neyman.analysis.training.clipping import careful_error, grid_rows
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, vectors

GRIDS = (1 << 20, 1 << 16, 1 << 12)  # units in the radius, the finest that fits


@dataclass(frozen=True)
class Limits:
    """Limit sizes so that products of integers stay exact."""

    dimension: int = 1024
    piece_numbers: int = 1 << 17  # numbers clipped at a time, which fit in a cache
    rounding_factor: float = 1 + 1e-9


LIMITS = Limits()
TOO_MUCH = (
    "budget: it needs more noise than the sampler can draw, or there are too many records; give a "
    "larger budget"
)
_ABOUT = (
    "Each entry by itself of the covariance of the distribution of the records, clipped to the "
    "ball."
)
Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]
Sums = tuple[Lanes, Lanes, int]
"""Hold the sum of x x^T, the sum of x, and the number of records."""


@dataclass(frozen=True)
class _MomentPlan:
    """Hold the noise of the sums. A sum is multiplied by its weight before noise is added."""

    noise: RoundedGaussian
    grid: int  # units in the radius
    weight: int  # of the sum of x; 0 if it is not released
    of_number: int = 0  # of the number of records; 0 if it is public


@shares_arguments
def covariance(
    records: object,
    *,
    radius: float | Fraction | str,
    budget: Budget,
    centered: bool = True,
    dimension: int | None = None,
    **paid: Unpack[Shared],
) -> Estimate:
    """Estimate the covariance matrix of records in an l2 ball around 0.

    Each record x is clipped to the ball and rounded to an integer grid. One release has the sum of
    x x^T and, if ``centered``, the sum of x, with rounded Gaussian noise that is drawn exactly.
    Replacing a record moves the sum of x x^T by at most sqrt(2) radius^2 in the Frobenius norm.
    Adding or removing a record moves it by at most radius^2. An entry off the diagonal counts twice
    in that norm, so it needs half the noise variance. Under replace-one, the number of records is
    public and divides the sums. Under add-remove, a noisy number from the same release divides the
    sums.

    Args:
        records: real numbers, one row of d numbers per record, d from 1 to 1024; at least 2 records
            under replace-one. A record counts as 0 if an entry is not a finite number or if its
            norm overflows a double.
        radius: radius of the ball, above 0, chosen without the data. Subtract a public center
            first.
        centered: if True, estimate E (x - m)(x - m)^T with the mean m. If False, estimate E x x^T.
        dimension: d, needed if ``records`` is a list of rows, because no record may decide it. A
            row of another length counts as not finite.

    Returns:
        An `Estimate` with a symmetric value of shape (d, d), which may have negative eigenvalues.
        The interval about the population covers each entry by itself, for every distribution on the
        ball from which the records are drawn independently. It includes sampling, noise, and
        rounding. The interval about the data covers the covariance of the clipped records, with the
        divisor n - 1 if centered, and n otherwise. The noise error is right to first order. The
        standard error adds a bound on sampling. Under add-remove both errors are estimates, and the
        interval is infinite if there may be fewer than 2 records. There is no gap, because no lower
        bound is proven for this problem.

    Examples:
        >>> import neyman as ny
        >>> rows = [(0.6, 0.5), (-0.6, -0.5), (0.6, -0.5), (-0.6, 0.5)] * 5000
        >>> estimate = ny.estimate.covariance(rows, radius=1, budget=ny.gdp(1), dimension=2)
        >>> [round(float(x), 1) for x in estimate.value.diagonal() - (0.06, 0.05)]
        [0.3, 0.2]

    Source: [EM-1], [EM-2], [EM-3], [EM-4], [EM-10], [EM-13].
    """
    relation = relation_of(paid)
    array = vectors("records", records, relation=relation, dimension=dimension)
    n, size = array.shape
    if size > LIMITS.dimension:
        raise ValueError(f"records has {size} columns; it must have at most {LIMITS.dimension}")
    exact = radius_of(radius)
    check.truth("centered", centered)
    known = relation == "replace-one"
    if known and n < 2:
        raise ValueError(f"records has {n} entry; a covariance needs at least 2")
    plan = _plan(budget, n if known else None, size, centered)
    noise, grid, weight, real = plan.noise, plan.grid, plan.weight, float(exact)
    arguments = {
        "radius": str(exact),
        "dimension": size,
        "centered": centered,
        "grid": grid,
        "weight": weight,
        **({"records": n} if known else {"weight_of_number": plan.of_number}),
    }

    def noisy(bits: Bits) -> Sums:
        squares, total = moments(array, real, grid)
        squares += symmetric_noise(noise.sigma_squared, size, bits)
        if weight:
            total += rounded_gaussian(noise.sigma_squared / (2 * weight**2), size, bits)
        else:
            total[:] = 0
        if known:
            return squares, total, n
        extra = rounded_gaussian(noise.sigma_squared / plan.of_number**2, 1, bits)
        return squares, total, n + int(extra[0])

    def published(sums: Sums) -> dict[str, object]:
        squares, total, records = sums
        content: dict[str, object] = {
            "squares": squares.tolist(),
            "total": total.tolist() if weight else None,
        }
        return content if known else content | {"records": records}

    released = Statistic("covariance", arguments, noise, noisy, published).release(**paid)
    return (_of_known_size if known else _of_unknown_size)(*released, plan, centered, real)


def _of_known_size(
    sums: Sums, receipt: Mapping[str, Any], plan: _MomentPlan, centered: bool, radius: float
) -> Estimate:
    (squares, total, n), size = sums, len(sums[1])
    noise, grid, weight = plan.noise, plan.grid, plan.weight
    unit = radius / grid
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
            half = radius * radius / 2
            entry = [bounded_half_width(half, n, s, share) for s in (sigma, sigma / math.sqrt(2))]
            around = bounded_half_width(radius, n, of_mean, share) + off_mean if centered else 0.0
        width = np.where(diagonal, entry[0], entry[1]) + off_square
        width = width + around * np.add.outer(np.abs(mean), np.abs(mean)) + around**2
        times = scale if about == "data" else 1.0
        return fixed((raw - width) * times), fixed((raw + width) * times)

    squared = np.add.outer(mean**2, mean**2) * np.where(diagonal, 2.0, 1.0) * of_mean**2
    noise_error = np.sqrt(deviations**2 + squared) * scale
    error = np.hypot(noise_error, _sampling(diagonal, centered, radius) / math.sqrt(n) * scale)
    entries = fixed(value), fixed(error), fixed(noise_error)
    return Estimate("covariance", *entries, receipt, noise, _ABOUT, limits)


def _of_unknown_size(
    sums: Sums, receipt: Mapping[str, Any], plan: _MomentPlan, centered: bool, radius: float
) -> Estimate:
    """Return the estimate under add-remove: noisy sums / a noisy number of records [EM-13]."""
    (squares, total, records), size = sums, len(sums[1])
    noise, grid, weight, of_number = plan.noise, plan.grid, plan.weight, plan.of_number
    unit = radius / grid
    count = max(float(records), 2.0)
    second, mean = squares * (unit * unit / count), total * (unit / count)
    diagonal = np.eye(size, dtype=bool)
    sigmas = np.where(diagonal, noise.sigma, noise.sigma / math.sqrt(2))
    of_total = noise.sigma / (math.sqrt(2) * weight) if weight else 0.0
    of_mean = of_total * unit / count
    scale = count / (count - 1) if centered else 1.0
    outer = np.outer(mean, mean)
    value = (second - outer + of_mean**2 * np.eye(size)) * scale
    off = careful_error(size, grid)

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        sampled = about == "population"
        # Noise in a square, in two means, and in the number; sampling in the first three.
        share = miss / ((7 if sampled else 4) if centered else (3 if sampled else 2))
        margin = normal_half_width(noise.sigma / of_number, share) + 0.5
        least, most = math.ceil(records - margin), math.floor(records + margin)
        # same: < 2 -> <= 2: Safe: with at least 2 records for certain the interval is infinite, and
        # so wider.
        if least < 2:
            unknown = np.full((size, size), math.inf)
            return fixed(-unknown), fixed(unknown)
        deviation = (
            math.sqrt(2 * math.log(2 / share) / least) * LIMITS.rounding_factor if sampled else 0.0
        )
        around = np.where(
            diagonal, *(normal_half_width(noise.sigma / r, share) for r in (1.0, math.sqrt(2)))
        )
        beyond = (2 * grid * off + off * off) * unit * unit + deviation * radius * radius / 2
        low, high = _over(squares, around + 0.5, least, most, unit * unit, beyond)
        if not centered:
            return fixed(low), fixed(high)
        of_sum = np.asarray(normal_half_width(of_total, share) + 0.5)
        ends = _over(total, of_sum, least, most, unit, off * unit + deviation * radius)
        products = [np.outer(one, other) for one in ends for other in ends]
        low, high = low - np.max(products, axis=0), high - np.min(products, axis=0)
        if not sampled:
            factors = [n / (n - 1) for n in (least, most)]
            low = np.min([low * f for f in factors], axis=0)
            high = np.max([high * f for f in factors], axis=0)
        return fixed(low), fixed(high)

    squared = np.add.outer(mean**2, mean**2) * np.where(diagonal, 2.0, 1.0) * of_mean**2
    by_number = (second - 2 * outer) * (noise.sigma / of_number / count)
    noise_error = np.sqrt((sigmas * unit * unit / count) ** 2 + squared + by_number**2) * scale
    error = np.hypot(noise_error, _sampling(diagonal, centered, radius) / math.sqrt(count) * scale)
    entries = fixed(value), fixed(error), fixed(noise_error)
    return Estimate("covariance", *entries, receipt, noise, _ABOUT, limits)


def _sampling(diagonal: NDArray[Any], centered: bool, radius: float) -> Floats:
    """Return a bound on each entry's sampling error times sqrt(number of records).

    ``diagonal``: True on the diagonal.
    """
    part = np.where(diagonal, 2.0, 1.0) if centered else np.full(diagonal.shape, 0.5)
    return part * radius * radius


def _over(
    sums: Lanes, around: Floats, least: int, most: int, unit: float, beyond: float
) -> tuple[Floats, Floats]:
    """Bound unit * sums / n for n from ``least`` to ``most``.

    ``around``: largest error of the sums. ``beyond``: further error of the quotient.
    """
    ends = [(sums + side * around) * (unit / n) for side in (-1, 1) for n in (least, most)]
    return np.min(ends, axis=0) - beyond, np.max(ends, axis=0) + beyond


def moments(array: NDArray[Any], radius: float, grid: int) -> tuple[Lanes, Lanes]:
    """Return the exact sums of v v^T and of v, for records clipped and rounded to v [EM-2].

    Products of doubles are exact here. In a block of 2^13 rows with squared norms up to 2^40, all
    partial sums are integers of at most 2^53, in any order.
    """
    size = array.shape[1]
    squares, total = np.zeros((size, size), np.int64), np.zeros(size, np.int64)
    step = max(1, LIMITS.piece_numbers // size)
    exact_rows = 1 << 13  # their products of numbers up to 2^20 add up to at most 2^53
    for start in range(0, len(array), step):
        rows = grid_rows(as_floats(array[start : start + step]), radius, grid, careful=True)
        total += rows.sum(axis=0)
        for first in range(0, len(rows), exact_rows):
            block = rows[first : first + exact_rows].astype(np.float64)
            squares += (block.T @ block).astype(np.int64)
    return squares, total


def _plan(budget: Budget, n: int | None, size: int, centered: bool) -> _MomentPlan:
    """Choose the finest grid that the sampler and 64 bits allow, and its noise [EM-10].

    n is None if the number of records is secret. Then a noisy number is released, too [EM-13].
    """
    for grid in GRIDS if n is not None else GRIDS[1:]:
        weight = grid // 2 if centered else 0
        if n is None:
            # 4 times the squared shift: 4 for the squares, 2 for the sum, 1 for the number.
            squared, of_number = grid**4 * (4 + (2 if centered else 0) + 1) // 4, grid * grid // 2
        elif n * grid * grid > (1 << 61):  # largest sum of squares
            continue
        else:
            # A record with one more coordinate, the weight, has this squared norm at most.
            longest = grid * grid + weight * weight
            squared = longest**2 if size == 1 and not centered else 2 * longest**2
            of_number = 0
        try:
            # Round the norm up to an integer, so that noise on one coordinate has the same curve.
            noise = least_noise(budget, (math.isqrt(squared - 1) + 1) ** 2)
        except TooMuchNoise:
            continue
        return _MomentPlan(noise, grid, weight, of_number)
    raise TooMuchNoise(TOO_MUCH)
