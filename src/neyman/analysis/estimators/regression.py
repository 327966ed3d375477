"""Fit a linear regression from second moments with rounded Gaussian noise, in one release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number, fixed
from neyman.analysis.estimators.least_squares import (
    RADIUS_UNITS,
    data_region,
    moment_shift,
    moments,
    population_width,
    solve,
)
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import least_noise, symmetric_noise
from neyman.analysis.estimators.shared_arguments import (
    Shared,
    radius_of,
    relation_of,
    shares_arguments,
)
from neyman.noise.bits import Bits
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, one_per_record, vectors


@dataclass(frozen=True)
class Limits:
    """Limit the numbers of records and features of a regression."""

    records: int = 1 << 32  # their second moments stay below 2^62
    features: int = 2000


LIMITS = Limits()

Lanes = NDArray[np.int64]


@shares_arguments
def regression(
    x: object,
    y: object,
    *,
    radius: float | Fraction | str,
    bound: float | Fraction | str,
    budget: Budget,
    center: float | Fraction | str = 0,
    intercept: bool = True,
    ridge: float | None = None,
    dimension: int | None = None,
    **paid: Unpack[Shared],
) -> Estimate:
    """Estimate the coefficients of a linear regression.

    The rows z = (1, x / radius, y / bound) are rounded to an integer grid. If a row's features are
    longer than the radius, the entire row is scaled down, so the linear model still holds for it.
    One release holds the sums of all products of two entries of z, with rounded Gaussian noise,
    drawn exactly. With R^2 = 3 (2 without an intercept), a neighbor changes the sums by at most
    sqrt(2) R^2 (replace-one) or R^2 (add-remove) in the Frobenius norm. The coefficients are
    computed from the release alone.

    Args:
        x: real numbers, one row of d features per record, d from 1 to 2000. A record with an entry
            of x or y that is not a finite number counts as a row of zeros.
        y: one real number per record.
        radius: radius of the features' ball around 0, above 0, chosen without the data. Subtract
            public centers and divide by public scales first.
        bound: a number above 0, chosen without the data. y is clipped to [center - bound, center +
            bound]. No interval includes the bias by clipping.
        center: number subtracted from y and added to the intercept, chosen without the data.
        intercept: if True, the model has a constant, the first entry of the value.
        ridge: number of at least 0 added to the mean squares of x / radius, chosen without the
            data. By default, the release decides: the ridge is 0 if the noise is small beside the
            second moments, and otherwise lifts the least eigenvalue to the size of the noise.
        dimension: d, needed if ``x`` is a list of rows, because no record may decide it. A row of
            another length counts as not finite.
        neighboring: "replace-one" makes the number of records public. "add-remove" needs the
            intercept, because its noisy sum counts the records.

    Returns:
        An `Estimate` with an array of the coefficients, the intercept first. The standard errors
        are estimates, for the coefficients without the ridge. The interval about the population
        covers a coefficient of y = intercept + x'b + e. It assumes that e is independent of x, with
        mean 0 and constant variance, that no y is clipped, and, without an intercept, that no row
        is missing or scaled down. It includes sampling and noise, to first order in noise over
        second moments. It is infinite if the least eigenvalue is below 4 times the size of the
        noise. The interval about the data is proven for all data and for all coordinates together.
        It covers the least squares coefficients, without the ridge, of the clipped and rounded
        rows. No gap is stated, because the error has no finite bound over all distributions of x.

    Examples:
        >>> import numpy as np
        >>> import neyman as ny
        >>> x = np.linspace(-1, 1, 20_001)[:, None]
        >>> fit = ny.estimate.regression(x, 0.25 + 0.5 * x[:, 0], radius=1, bound=1,
        ...                              budget=ny.gdp(1))
        >>> fit.value.round(2).tolist()
        [0.25, 0.5]

    Source: Dwork, Talwar, Thakurta and Zhang 2014 (noise in X'X); Wang 2018 (a ridge from the
    released eigenvalue); [RE-1], [RE-2], [RE-3], [RE-4], [RE-5], [RE-6].
    """
    relation = relation_of(paid)
    features = vectors("x", x, relation=relation, dimension=dimension)
    target = one_per_record("y", y, relation=relation)
    n, size = features.shape
    if len(target) != n:
        raise ValueError("y and x have different numbers of records; give one y per row of x")
    if size > LIMITS.features:
        raise ValueError(f"x has {size} columns; it must have at most {LIMITS.features}")
    # If n is secret, no refusal may depend on it. Sums that wrap around spoil only the value.
    if relation == "replace-one" and n > LIMITS.records:
        raise ValueError(f"x must have at most {LIMITS.records} records")
    check.truth("intercept", intercept)
    if relation == "add-remove" and not intercept:
        raise ValueError(
            "intercept = False: under 'add-remove' the number of records is secret, and only the "
            "intercept's noisy sum counts them; give intercept=True, or neighboring='replace-one'"
        )
    ball, most = radius_of(radius), radius_of(bound, "bound")
    middle = check.exact("center", center)
    if middle and not intercept:
        raise ValueError(f"center = {center!r} needs intercept=True; leave it out without one")
    added = None if ridge is None else check.non_negative("ridge", ridge)
    noise = least_noise(budget, moment_shift(intercept, relation))
    arguments = {
        "radius": str(ball),
        "bound": str(most),
        "features": size,
        "intercept": intercept,
        "ridge": added,
        "grid": RADIUS_UNITS,
        **({"center": str(middle)} if middle else {}),
        **({"records": n} if relation == "replace-one" else {}),
    }
    parts = float(ball), float(most), intercept

    def noisy(bits: Bits) -> Lanes:
        with np.errstate(all="ignore"):
            y = as_floats(target) - float(middle)
        total = moments(as_floats(features), y, *parts)
        return total + symmetric_noise(noise.sigma_squared, len(total), bits)

    def published(total: Lanes) -> dict[str, object]:
        return {"second_moments": total.tolist()}

    statistic = Statistic("regression", arguments, noise, noisy, published, "regression")
    scale = np.full(size + intercept, float(most) / float(ball))
    if intercept:
        scale[0] = float(most)
    released, receipt = statistic.release(**paid)
    # The code below uses only the release and public numbers.
    sums, sigma = released.astype(np.float64), noise.sigma
    # A missing or scaled row says less about the errors. The release has the sum of the weights.
    weight = max(float(sums[0, 0]) / RADIUS_UNITS**2, 1.0) if intercept else math.inf
    rows = min(float(n), weight) if relation == "replace-one" else weight
    divisor = (n if relation == "replace-one" else 0) or rows
    fit = solve(sums, sigma, rows, None if added is None else added * divisor * RADIUS_UNITS**2)
    moved = np.append(float(middle), np.zeros(len(scale) - 1))

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        if about == "data":
            center, width = data_region(sums, sigma, miss)
        else:
            center, width = fit.center, population_width(fit, rows, miss)
        return fixed((center - width) * scale + moved), fixed((center + width) * scale + moved)

    return Estimate(
        "regression",
        fixed(fit.coefficients * scale + moved),
        fixed(fit.standard_error * scale),
        fixed(fit.noise_error * scale),
        receipt,
        noise,
        "Each coefficient of a linear model with errors of constant variance, if no y is clipped; "
        "approximate, to first order in noise over second moments.",
        limits,
    )
