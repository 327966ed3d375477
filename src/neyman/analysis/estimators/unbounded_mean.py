"""Estimate the mean of normal records without a bound on it: locate it, then clip around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import check_budget, least_noise, normal_half_width
from neyman.analysis.estimators.shared_arguments import Shared, relation_of, shares_arguments
from neyman.mechanisms.inverse_sensitivity import InverseSensitivity
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.noise.quantile_draw import draw_sorted_quantile
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, one_per_record


@dataclass(frozen=True)
class Limits:
    """Hold the grid of the location, and the probability that a step fails."""

    grid_units: int = 1 << 24  # units in the clipping bound
    reach_sigmas: int = 1 << 50  # sigmas on each side of 0; a double has no more than 2^53
    failure_chance: float = 1e-4  # chance that the location is too far, or that a record is clipped
    # Share of the records that may be between the location and the median.
    rank_share: Fraction = Fraction(1, 8)


LIMITS = Limits()
POINTS = 2 * LIMITS.reach_sigmas + 1
KNOWN_SIZE = (
    "The clipping bound and the interval need a public number of records; register the dataset "
    'under "replace-one"'
)


@shares_arguments
def normal_mean(
    values: object, *, sigma: float | Fraction | str, budget: Budget, **paid: Unpack[Shared]
) -> Estimate:
    """Estimate the mean of normal records, without a bound on the mean.

    The first step draws a location near the median by inverse sensitivity, from a grid with step
    sigma. The second step clips the records around the location and adds rounded Gaussian noise to
    their sum. Both draws are exact. The clipping bound is computed from n and sigma. With
    probability at least 0.9999, no record is clipped. No release without a delta can search an
    infinite range [OP-11]. The grid reaches 2^50 sigma on both sides of 0. Farther out, doubles
    hardly represent steps of sigma.

    Args:
        values: real numbers, one per record. An infinite value counts as the nearer end. NaN, or a
            value that is not a number, counts as the lower end.
        sigma: standard deviation of a record, or an upper bound on it, from 1e-100 to 1e100, chosen
            without the data.
        budget: the privacy budget of the release, such as ``ny.gdp(1)`` or ``ny.zcdp(0.5)``. The
            first step needs epsilon = 735 / n. If n is too small for the budget, the call is
            refused.
        neighboring: "replace-one" only, because the number of records is public.

    Returns:
        An `Estimate`. If records are independent and normal with a standard deviation of at most
        sigma and a mean within 2^50 sigma of 0, the interval about the population covers the mean.
        It includes sampling, noise, clipping, and rounding. Its confidence is below 0.9999. The
        interval about the data covers the records' mean in this model. The standard error is an
        upper bound if no record is clipped. ``.least`` is the least error for "normal-mean". There
        is no gap, because an event of probability 0.9999 does not bound a mean squared error.

    Examples:
        >>> import neyman as ny
        >>> import numpy as np
        >>> heights = np.random.default_rng(3).normal(1e6, 2, size=5000)
        >>> estimate = ny.estimate.normal_mean(heights, sigma=2, budget=ny.gdp(1))
        >>> bool(abs(estimate.value - 1e6) < 0.2)
        True

    Source: Karwa and Vadhan 2018, for the two steps; [EM-1], [EM-3], [EM-11].
    """
    relation = relation_of(paid, valid=("replace-one",), why=KNOWN_SIZE)
    array = one_per_record("values", values, relation=relation)
    n = len(array)
    exact = check.exact("sigma", sigma)
    if not Fraction(1, 10**100) <= exact <= Fraction(10**100):
        raise ValueError(
            f"sigma = {sigma!r} must be from 1e-100 to 1e100; state the values in another unit"
        )
    check_budget(budget)
    wide = _reach(n)
    ranks = math.log(4 * POINTS / LIMITS.failure_chance)
    rate = Fraction(math.ceil(ranks * (1 + 1e-9) * 2**20), 2**20) / (LIMITS.rank_share * n)
    location = InverseSensitivity(rate)
    if not budget.admits(location):
        raise ValueError(
            f"values has {n} records, too few for this budget: the location needs epsilon = "
            f"{float(2 * rate):.3g}, which falls as 1 / n; give more records, a larger budget, or "
            "ny.estimate.mean with a radius"
        )
    noise = least_noise(budget, (2 * LIMITS.grid_units) ** 2, location)
    scale = float(exact)
    bound = scale * wide
    arguments = {
        "sigma": str(exact),
        "records": n,
        "rate": str(rate),
        "reach": LIMITS.reach_sigmas,
        "bound": bound,
        "grid": LIMITS.grid_units,
    }

    def noisy(bits: Bits) -> tuple[float, int]:
        numbers = as_floats(array)
        ranked = np.sort(_places(numbers, scale))
        place = draw_sorted_quantile(
            ranked, (-LIMITS.reach_sigmas, LIMITS.reach_sigmas), Fraction(1, 2), rate, bits
        )
        center = place * scale
        total = int(_around(numbers, center, bound).sum())
        return center, total + int(rounded_gaussian(noise.sigma_squared, 1, bits)[0])

    def published(steps: tuple[float, int]) -> dict[str, object]:
        return {"location": steps[0], "total": steps[1]}

    statistic = Statistic("normal_mean", arguments, noise + location, noisy, published)
    (center, total), receipt = statistic.release(**paid)
    # The code below uses only the release and public numbers.
    unit = bound / LIMITS.grid_units
    deviation = noise.sigma * unit / n
    value = center + total * unit / n
    error = math.hypot(scale / math.sqrt(n), deviation)
    off = unit + abs(value) * 2.0**-50  # rounding to the grid, of the noise, and of the sum

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        left = miss - LIMITS.failure_chance * (1 + 1e-9)
        if left <= 0:
            raise ValueError(
                f"confidence must be below {1 - LIMITS.failure_chance:g}: clipping may fail with "
                f"chance {LIMITS.failure_chance:g}"
            )
        width = normal_half_width(deviation if about == "data" else error, left) + off
        return value - width, value + width

    return Estimate(
        "normal_mean",
        value,
        error,
        deviation,
        receipt,
        statistic.mechanism,
        "The mean of the normal distribution of the records.",
        limits,
        None,
        {"problem": "normal-mean", "n": n, "sigma": scale},
    )


def _reach(n: int) -> float:
    """Return the clipping bound in sigmas, or refuse a small n [EM-11].

    With probability at least 1 - 1e-4, no record is farther from the location.
    """
    sampling = math.sqrt(math.log(8 / LIMITS.failure_chance) / (2 * n))
    share = float(LIMITS.rank_share) + sampling
    clipped_share = 0.47  # largest share of records beyond the location
    if share > clipped_share:
        gap = clipped_share - float(LIMITS.rank_share)
        least = math.ceil(math.log(8 / LIMITS.failure_chance) / (2 * gap**2))
        raise ValueError(
            f"values has {n} records; without a bound on the mean at least {least} are needed; "
            "with one, use ny.estimate.mean"
        )
    farthest = -float(ndtri(LIMITS.failure_chance / (4 * n)))
    return (float(ndtri(0.5 + share)) + 1 + farthest) * (1 + 1e-9)


def _places(numbers: NDArray[Any], scale: float) -> NDArray[np.int64]:
    """Return the index of the nearest point of the location's grid for each number."""
    with np.errstate(all="ignore"):
        places = np.clip(np.rint(numbers / scale), -LIMITS.reach_sigmas, LIMITS.reach_sigmas)
    return np.nan_to_num(places, nan=-LIMITS.reach_sigmas).astype(np.int64)


def _around(numbers: NDArray[Any], center: float, bound: float) -> NDArray[np.int64]:
    """Return each number minus the center, clipped to +-``bound``, in integer grid units."""
    units = LIMITS.grid_units
    with np.errstate(all="ignore"):
        distances = np.clip(np.rint((numbers - center) / bound * units), -units, units)
    return np.nan_to_num(distances, nan=-units).astype(np.int64)
