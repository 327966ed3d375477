"""Estimate the mean of records in an l2 ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number, shaped
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import (
    bounded_half_width,
    least_noise,
    normal_half_width,
)
from neyman.analysis.estimators.shared_arguments import (
    Shared,
    radius_of,
    relation_of,
    shares_arguments,
)
from neyman.analysis.training.clipping import careful_error, grid_rows
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics.raw_values import as_floats, one_per_record, vectors


@dataclass(frozen=True)
class Limits:
    """Hold the grid of a mean, and limit sizes so that sums fit into 64 bits."""

    grid_units: int = 1 << 24  # units in the radius
    piece_numbers: int = 1 << 17  # numbers clipped at a time, which fit in a cache
    dimension: int = 10**6
    records: int = 1 << 37  # their sum stays below 2^61


LIMITS = Limits()
COVERS = "Each coordinate of the mean of the distribution of the records, clipped to the ball."
Lanes = NDArray[np.int64]


@shares_arguments
def mean(
    records: object,
    *,
    radius: float | Fraction | str,
    budget: Budget,
    dimension: int | None = None,
    **paid: Unpack[Shared],
) -> Estimate:
    """Estimate the mean of records in an l2 ball around 0.

    Each record is clipped to the ball and rounded to an integer grid. A neighbor changes the sum by
    at most 2 radius (replace-one) or radius (add-remove). The sum gets rounded Gaussian noise,
    drawn exactly. Under replace-one, the number n of records is public and divides the sum. Under
    add-remove, a noisy number from the same release divides the sum.

    Args:
        records: real numbers, or one row of d numbers per record, d from 1 to 10^6. The shape of an
            array decides. A list has numbers, or rows if ``dimension`` is given. A row of another
            length counts as 0. So does a record with an entry that is not a finite number, and a
            record whose norm overflows a double.
        radius: radius of the ball, above 0, chosen without the data. Subtract a public center
            first.
        dimension: d, needed for a list of rows, because no record may decide it. Without it, each
            entry of a list is one record, and a row counts as 0.

    Returns:
        An `Estimate`. Under replace-one, the standard error is an upper bound for every
        distribution on the ball. The interval about the population assumes independent records from
        a distribution on the ball. It covers each coordinate of the distribution's mean for every
        n, and includes sampling, noise, and rounding. The interval about the data covers the mean
        of the clipped records. If the distribution leaves the ball, they cover the mean of the
        clipped distribution or records. The gap compares with "bounded-mean" or "ball-mean" of
        `least_error`. Under add-remove there is no gap, because n is unknown.

    Examples:
        >>> import neyman as ny
        >>> points = [(0.6, 0.0), (0.0, 0.8)] * 2000
        >>> estimate = ny.estimate.mean(points, radius=1, budget=ny.gdp(1), dimension=2)
        >>> estimate.value.shape, round(float(estimate.noise_error[0]), 5)
        ((2,), 0.0005)

    Source: Duchi, Jordan and Wainwright 2018; [EM-1], [EM-2], [EM-3], [EM-4], [EM-5].
    """
    relation = relation_of(paid)
    flat = dimension is None and getattr(records, "ndim", 1) == 1
    if flat:
        array = one_per_record("records", records, relation=relation)
    else:
        array = vectors("records", records, relation=relation, dimension=dimension)
    size = 1 if flat else array.shape[1]
    if size > LIMITS.dimension:
        raise ValueError(f"records has {size} columns; it must have at most {LIMITS.dimension}")
    return mean_of_array(array, flat, radius_of(radius), budget, paid)


class BallRows(Protocol):
    """Represent records that are read in slices, after the ledger is charged."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of records, and the number of entries in each."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, piece: slice) -> NDArray[Any]: ...


def mean_of_array(
    array: NDArray[Any] | BallRows, flat: bool, radius: Fraction, budget: Budget, paid: Shared
) -> Estimate:
    """Return the private mean of records. The caller has checked their shape.

    ``flat``: True if each record is one number. ``paid``: the arguments of `Shared`.
    """
    if relation_of(paid) == "replace-one":
        return _known_size(array, flat, radius, budget, paid)
    return _unknown_size(array, flat, radius, budget, paid)


def clipped_total(
    array: NDArray[Any] | BallRows, radius: float, grid: int = LIMITS.grid_units
) -> Lanes:
    """Clip each record to the ball and return the sum, in units of radius / grid [EM-2].

    If one record is added or removed, the sum changes by a vector of l2 norm at most ``grid``.
    """
    size = array.shape[1] if len(array.shape) > 1 else 1
    total = np.zeros(size, np.int64)
    step = max(1, LIMITS.piece_numbers // size)
    for start in range(0, len(array), step):
        piece = as_floats(array[start : start + step]).reshape(-1, size)
        total += grid_rows(piece, radius, grid, careful=True).sum(axis=0)
    return total


def _known_size(
    array: NDArray[Any] | BallRows, flat: bool, exact: Fraction, budget: Budget, paid: Shared
) -> Estimate:
    n, size = len(array), 1 if flat else array.shape[1]
    if n > LIMITS.records:
        raise ValueError(f"records has {n} entries; it must have at most {LIMITS.records}")
    radius = float(exact)
    noise = least_noise(budget, (2 * LIMITS.grid_units) ** 2)
    unit = radius / LIMITS.grid_units
    arguments = {"radius": str(exact), "records": n, "dimension": size, "grid": LIMITS.grid_units}

    def noisy(bits: Bits) -> Number:
        total = clipped_total(array, radius)
        total += rounded_gaussian(noise.sigma_squared, size, bits)
        return shaped(total * (unit / n), flat)

    def published(value: Number) -> dict[str, object]:
        return {"value": np.asarray(value).tolist()}

    value, receipt = Statistic("mean", arguments, noise, noisy, published).release(**paid)
    # The code below uses only the release and public numbers.
    deviation = noise.sigma * unit / n
    # Rounding of the records, and of the noise [EM-3].
    off_grid = careful_error(size, LIMITS.grid_units) * unit + unit / n

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        if about == "data":
            width = normal_half_width(deviation, miss)
        else:
            width = bounded_half_width(radius, n, deviation, miss)
        return _ends(value, width + off_grid, radius)

    shape = np.ones(np.shape(value))
    error = math.hypot(radius / math.sqrt(n), deviation)
    worst = math.hypot(radius / math.sqrt(n), math.sqrt(size) * (deviation + unit / n))
    problem = {"problem": "bounded-mean"} if flat else {"problem": "ball-mean", "dimension": size}
    return Estimate(
        "mean",
        value,
        shaped((shape * error).reshape(-1), flat),
        shaped((shape * deviation).reshape(-1), flat),
        receipt,
        noise,
        COVERS,
        limits,
        worst + math.sqrt(size) * off_grid,
        problem | {"n": n, "radius": radius},
    )


def _unknown_size(
    array: NDArray[Any] | BallRows, flat: bool, exact: Fraction, budget: Budget, paid: Shared
) -> Estimate:
    """Estimate the mean from a noisy sum and a noisy number of records. No error bound is proven.

    ``exact``: the radius.
    """
    size, radius = 1 if flat else array.shape[1], float(exact)
    weight = max(1, round(LIMITS.grid_units * size**-0.25))  # units per counted record [EM-5]
    # Round the norm of the shift up to an integer, so that one coordinate describes the pair.
    noise = least_noise(budget, (math.isqrt(LIMITS.grid_units**2 + weight**2 - 1) + 1) ** 2)
    unit = radius / LIMITS.grid_units
    arguments = {
        "radius": str(exact),
        "dimension": size,
        "grid": LIMITS.grid_units,
        "weight": weight,
    }

    def noisy(bits: Bits) -> tuple[NDArray[np.float64], float]:
        units = rounded_gaussian(noise.sigma_squared, size + 1, bits)
        total = clipped_total(array, radius) + units[:-1]
        return np.asarray(total * unit, np.float64), (len(array) * weight + int(units[-1])) / weight

    def published(sums: tuple[NDArray[np.float64], float]) -> dict[str, object]:
        return {"total": sums[0].tolist(), "records": sums[1]}

    statistic = Statistic("mean", arguments, noise, noisy, published)
    (total, records), receipt = statistic.release(**paid)
    # The code below uses only the release and public numbers.
    count = max(records, 1.0)
    value = np.clip(total / count, -radius, radius)
    sigma = noise.sigma
    deviation = np.hypot(sigma * unit, value * (sigma / weight)) / count

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        share = miss / 2 if about == "data" else miss / 3
        around = normal_half_width(sigma * unit, share) + unit
        margin = normal_half_width(sigma / weight, share) + 1 / weight
        least, most = max(records - margin, 0.0), max(records + margin, 1.0)
        if least < 1:
            return _ends(shaped(np.zeros(size), flat), radius, radius)
        ends = [(total + side * around) / n for side in (-1, 1) for n in (least, most)]
        beyond = careful_error(size, LIMITS.grid_units) * unit
        if about == "population":
            beyond += radius * math.sqrt(2 * math.log(2 / share) / least) * (1 + 1e-9)
        low, high = np.min(ends, axis=0) - beyond, np.max(ends, axis=0) + beyond
        low, high = np.clip(low, -radius, radius), np.clip(high, -radius, radius)
        return shaped(low, flat), shaped(high, flat)

    error = np.hypot(deviation, radius / math.sqrt(count))
    return Estimate(
        "mean",
        shaped(value, flat),
        shaped(error, flat),
        shaped(deviation, flat),
        receipt,
        noise,
        COVERS,
        limits,
    )


def _ends(value: Number, width: float, radius: float) -> tuple[Number, Number]:
    """Return value -+ width, clipped to [-radius, radius], in the shape of ``value``."""
    low = np.clip(np.asarray(value) - width, -radius, radius)
    high = np.clip(np.asarray(value) + width, -radius, radius)
    flat = np.ndim(value) == 0
    return shaped(low, flat), shaped(high, flat)
