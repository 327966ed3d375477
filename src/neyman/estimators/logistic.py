"""Logistic regression by output perturbation: the exact fit's least noise, on an integer grid."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.estimators.estimate import About, Estimate, Number, fixed
from neyman.estimators.logistic_fit import (
    accuracy,
    fit,
    most_length,
    signed_rows,
)
from neyman.estimators.normal_noise import least_noise, normal_half_width
from neyman.estimators.payment import Release, radius_of, relation_of
from neyman.ledger.ledger import Ledger
from neyman.noise import Bits, rounded_gaussian
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, one_per_record, vectors

__all__ = ["logistic"]

MOST_RECORDS = 10**9
MOST_FEATURES = 2000
LEAST_PENALTY, MOST_PENALTY = 1e-6, 1e3
Lanes = NDArray[np.int64]


def logistic(
    x: object,
    labels: object,
    *,
    radius: float | Fraction | str,
    penalty: float,
    budget: Budget,
    intercept: bool = True,
    dimension: int | None = None,
    neighboring: str = "replace-one",
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    account: str | None = None,
) -> Estimate:
    """Estimate the coefficients of a logistic regression with a penalty.

    The fit minimizes the mean of log(1 + exp(-label (a + x'b))) + penalty / 2 (a^2 + radius^2
    |b|^2). Replacing a record moves it, in units of 1 / radius, by at most D / (n penalty), where
    D <= 2 R, R^2 = 2 (1 without an intercept), is the largest distance of two records' gradients at
    a fit. The computed fit is certified to be near the exact one, rounded to a grid, and gets
    rounded Gaussian noise, drawn exactly. Both distances are in the shift.

    Args:
        x: real numbers, one row of d features per record, d from 1 to 2000. Features are clipped
            to a ball. A record with an entry that is not finite, or is no number, counts as
            features 0 without a constant.
        labels: one per record: positive if above 0, and negative otherwise.
        radius: of the features' ball around 0, above 0, chosen without the data. Subtract public
            centers and divide by public scales first.
        penalty: from 1e-6 to 1e3, chosen without the data. Less of it needs more noise.
        budget: what the release may reveal: a curve such as ``ny.gdp(1)``, ``ny.zcdp``,
            ``ny.approximate``, or ``ny.at_most``.
        intercept: if True, the model has a constant a, the first entry of the value. It is
            penalized too.
        dimension: d, if ``x`` is a list of rows: no record decides it. A row of another length
            counts as one that is not finite. An array has its own.
        neighboring: "replace-one" only, with a public number of records: the fit's divisor.
        ledger: a `Ledger`, or its path; without one nothing is charged, and the receipt says so.
        dataset: "name@version" in the ledger, with one row per unit.
        account: the allocation of the dataset's account that pays.

    Returns:
        `Estimate`, with an array of the coefficients, the constant first. Its interval about the
        data, ``interval(level, about="data")``, is proven. It covers each coefficient of the exact
        penalized fit of the clipped records, by itself, and includes noise, rounding, and the
        search. ``noise_error`` is the deviation of the noise. Other records of the same law would
        have another fit. How far apart the fits are depends on the curvature of the loss at the
        fit, which is not released. What is proven for every law is tens to hundreds of times the
        real deviation. So ``standard_error`` is NaN, and an interval about the population raises a
        ValueError. No interval covers a model without the penalty. No gap is stated, since no lower
        bound is proven.

    Raises:
        TypeError, ValueError: an argument is wrong. No content of the data raises an error.
        LedgerError, BudgetRefused: the dataset is not registered so, or too little is left. In all
            of these cases nothing is charged.
        ChargedError: the computation failed after its charge, which stands.

    Examples:
        >>> import numpy as np
        >>> import neyman as ny
        >>> x = np.linspace(-1, 1, 20_001)[:, None]
        >>> fit = ny.estimate.logistic(x, x[:, 0] > 0, radius=1, penalty=0.01, budget=ny.gdp(1))
        >>> bool(fit.value[1] > 3)
        True

    Source: Chaudhuri, Monteleoni and Sarwate 2011 (output perturbation); [LO-1], [LO-2], [LO-3],
    [LO-4], [LO-5].
    """
    relation = relation_of(
        neighboring,
        valid=("replace-one",),
        why="the number of records divides the loss and must be public",
    )
    features = vectors("x", x, relation=relation, dimension=dimension)
    given = one_per_record("labels", labels, relation=relation)
    n, size = features.shape
    if len(given) != n:
        raise ValueError(f"labels has {len(given)} records and x has {n}; give one per row of x")
    if size > MOST_FEATURES:
        raise ValueError(f"x has {size} columns; it must have at most {MOST_FEATURES}")
    if n > MOST_RECORDS:
        raise ValueError(f"x has {n} records; it must have at most {MOST_RECORDS}")
    if not isinstance(intercept, bool):
        raise TypeError(f"intercept = {intercept!r} must be True or False")
    ball = radius_of(radius)
    weight = check.between("penalty", penalty, LEAST_PENALTY, MOST_PENALTY)
    aim = accuracy(n, size + intercept, weight, intercept)
    noise = least_noise(budget, aim.squared_shift)
    arguments = {
        "radius": str(ball),
        "records": n,
        "features": size,
        "intercept": intercept,
        "penalty": weight,
        "unit": aim.unit,
    }
    paid = ledger, dataset, account
    release = Release.of("logistic", arguments, noise, relation, *paid, proof="logistic")
    scale = np.full(size + intercept, 1 / float(ball))
    if intercept:
        scale[0] = 1.0

    def compute(bits: Bits) -> Lanes:
        rows = signed_rows(as_floats(features), as_floats(given), float(ball), intercept)
        exact = fit(rows, weight, aim)
        return exact + rounded_gaussian(noise.sigma_squared, len(exact), bits)

    released, receipt = release.draw(compute, lambda v: {"coefficients_in_units": v.tolist()})
    # From here on only the release and public numbers are used.
    value = released * aim.unit
    deviation = noise.sigma * aim.unit
    # Half a unit for the noise, half for the fit, and the search.
    beyond = aim.unit + aim.gradient / weight
    longest = most_length(weight)

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        if about == "population":
            raise ValueError(
                "about = 'population': the release does not show how much the fit varies with the "
                "records, and no useful interval is proven; give about='data' for the fit of these "
                "records, with noise alone"
            )
        width = normal_half_width(deviation, miss) + beyond
        low, high = np.maximum(value - width, -longest), np.minimum(value + width, longest)
        # The fit is in a ball; where noise has left it, an end on its surface remains.
        return fixed(np.minimum(low, longest) * scale), fixed(np.maximum(high, -longest) * scale)

    return Estimate(
        "logistic",
        fixed(value * scale),
        fixed(np.full(len(value), math.nan)),
        fixed(deviation * scale),
        receipt,
        noise,
        "Each coefficient of the exact penalized fit of the records, clipped to the ball.",
        limits,
    )
