"""Fit a logistic regression by output perturbation, with the least noise on an integer grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number, fixed
from neyman.analysis.estimators.least_squares import LIMITS as LEAST_SQUARES_LIMITS
from neyman.analysis.estimators.least_squares import noise_norm
from neyman.analysis.estimators.logistic_fit import LIMITS as LOGISTIC_FIT_LIMITS
from neyman.analysis.estimators.logistic_fit import (
    accuracy,
    curvature,
    curvature_shift,
    fit,
    most_length,
    signed_rows,
)
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import LIMITS as NORMAL_NOISE_LIMITS
from neyman.analysis.estimators.normal_noise import (
    TooMuchNoise,
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
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, entries_of, one_per_record, vectors


@dataclass(frozen=True)
class Limits:
    """Limit the inputs of a logistic model."""

    records: int = 10**9
    budget_ratio: int = 10  # the fit's squared mu divided by its curvature's
    features: int = 2000
    least_penalty: float = 1e-6
    largest_penalty: float = 1e3


LIMITS = Limits()
Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]
Fit = tuple[Lanes, tuple[Lanes, Lanes] | None]
"""Hold the noisy fit and, if ``sampling``, its noisy curvature and squared gradients."""


@shares_arguments
def logistic(
    x: object,
    labels: object,
    *,
    radius: float | Fraction | str,
    penalty: float,
    budget: Budget,
    intercept: bool = True,
    sampling: bool = False,
    classes: Sequence[Any] | None = None,
    dimension: int | None = None,
    **paid: Unpack[Shared],
) -> Estimate:
    """Estimate the coefficients of a logistic regression with a penalty.

    The fit minimizes the mean of log(1 + exp(-label (a + x'b))) + penalty / 2 (a^2 + radius^2
    |b|^2). Replacing a record moves the fit, in units of 1 / radius, by at most D / (n penalty). D
    is the largest distance between two records' gradients at a fit. It is at most 2 R, with R^2 = 2
    (1 without an intercept). The computed fit is certified to be near the exact fit, rounded to a
    grid, and gets rounded Gaussian noise, drawn exactly. The sensitivity includes both distances.
    On request, a second step releases the curvature of the loss at the noisy fit, for errors that
    include sampling.

    Args:
        x: real numbers, one row of d features per record, d from 1 to 2000. Features are clipped to
            a ball. A record with an entry that is not a finite number counts as features 0 without
            a constant.
        labels: one per record: positive if above 0, and negative otherwise.
        radius: radius of the features' ball around 0, above 0, chosen without the data. Subtract
            public centers and divide by public scales first.
        penalty: from 1e-6 to 1e3, chosen without the data. A smaller one needs more noise.
        intercept: if True, the model has a constant a, the first entry of the value. It is
            penalized too.
        sampling: if True, the curvature of the loss at the released fit is released, too. It takes
            an eleventh of the budget's squared mu and gives standard errors and intervals about the
            population. The noise in the coefficients grows by 5%.
        classes: two labels, chosen without the data, the positive one last. A record with another
            label counts as not finite.
        dimension: d, needed if ``x`` is a list of rows, because no record may decide it. A row of
            another length counts as not finite.
        neighboring: "replace-one" only. The public number of records divides the loss.

    Returns:
        An `Estimate` with an array of the coefficients, the constant first. The interval about the
        data, ``interval(about="data")``, is proven. It covers each coefficient of the exact
        penalized fit of the clipped records by itself, and includes noise, rounding, and the
        search. ``noise_error`` is the standard deviation of the noise. With ``sampling``,
        ``standard_error`` includes sampling, and an interval about the population covers each
        coefficient of the penalized fit of the clipped distribution, if records are drawn
        independently. Both are approximations for many records. The logistic model need not hold.
        If noise may hide the curvature, the error is infinite and the interval contains all fits.
        Without ``sampling``, ``standard_error`` is NaN, and an interval about the population raises
        a ValueError. No interval covers the coefficients of a model without the penalty. No gap is
        stated, because no lower bound is proven.

    Examples:
        >>> import numpy as np
        >>> import neyman as ny
        >>> x = np.linspace(-1, 1, 20_001)[:, None]
        >>> fit = ny.estimate.logistic(x, x[:, 0] > 0, radius=1, penalty=0.01, budget=ny.gdp(1))
        >>> bool(fit.value[1] > 3)
        True

    Source: Chaudhuri, Monteleoni and Sarwate 2011 (output perturbation); [LO-1], [LO-2], [LO-3],
    [LO-4], [LO-7], [LO-8].
    """
    relation = relation_of(
        paid,
        valid=("replace-one",),
        why="the number of records divides the loss and must be public",
    )
    features = vectors("x", x, relation=relation, dimension=dimension)
    if classes is None:
        given = one_per_record("labels", labels, relation=relation)
    else:
        classes, given = _classes(classes), entries_of("labels", labels)
    n, size = features.shape
    check_records(n, size, "labels", len(given), intercept)
    check.truth("sampling", sampling)
    ball = radius_of(radius)
    weight = check.between("penalty", penalty, LIMITS.least_penalty, LIMITS.largest_penalty)
    aim = accuracy(n, size + intercept, weight, intercept)
    beside = aim.squared_shift // LIMITS.budget_ratio if sampling else 0
    noise = least_noise(budget, (math.isqrt(aim.squared_shift + beside - 1) + 1) ** 2)
    # In units of the fit's sensitivity, the curvature has the sensitivity sqrt(beside).
    variance = noise.sigma_squared * curvature_shift(intercept) / max(beside, 1)
    if sampling and variance > NORMAL_NOISE_LIMITS.sigma_squared:
        raise TooMuchNoise(
            "budget: the curvature needs more noise than can be drawn; give a larger one, or "
            "sampling=False"
        )
    arguments = {
        "radius": str(ball),
        "records": n,
        "features": size,
        "intercept": intercept,
        "penalty": weight,
        "unit": aim.unit,
        "sampling": sampling,
        **({} if classes is None else {"classes": [str(label) for label in classes]}),
    }
    scale = np.full(size + intercept, 1 / float(ball))
    if intercept:
        scale[0] = 1.0

    def noisy(bits: Bits) -> Fit:
        signs = as_floats(given) if classes is None else _signs(given, classes)
        rows = signed_rows(as_floats(features), signs, float(ball), intercept)
        exact = fit(rows, weight, aim)
        coefficients = exact + rounded_gaussian(noise.sigma_squared, len(exact), bits)
        if not sampling:
            return coefficients, None
        # At the noisy fit, so that the second step reads only the rows and the first release.
        bent, squares = curvature(rows, np.asarray(coefficients * aim.unit, np.float64))
        size = len(coefficients)
        return coefficients, (
            bent + symmetric_noise(variance, size, bits),
            squares + symmetric_noise(variance, size, bits),
        )

    def published(steps: Fit) -> dict[str, object]:
        result: dict[str, object] = {"coefficients_in_units": steps[0].tolist()}
        if steps[1] is not None:
            result |= {"curvature": steps[1][0].tolist(), "gradient_squares": steps[1][1].tolist()}
        return result

    statistic = Statistic("logistic", arguments, noise, noisy, published, "logistic")
    (released, bends), receipt = statistic.release(**paid)
    # The code below uses only the release and public numbers.
    value = np.asarray(released * aim.unit, np.float64)
    deviation = noise.sigma * aim.unit
    error = None
    if bends is not None:
        varies = _sampling_variance(*bends, value, math.sqrt(variance), n, weight)
        error = np.sqrt(varies + deviation**2)
    # Half a unit for the noise, half for the fit, and the search.
    beyond = aim.unit + aim.gradient / weight
    fitted = LogisticFit(value, error, deviation, beyond, most_length(weight), scale)
    return estimate_of("logistic", fitted, receipt, noise)


def check_records(n: int, size: int, name: str, count: int, intercept: object) -> None:
    """Refuse n rows of ``size`` features that do not fit ``count`` targets named ``name``."""
    if count != n:
        raise ValueError(f"{name} has {count} records and x has {n}; give one per row of x")
    if size > LIMITS.features:
        raise ValueError(f"x has {size} columns; it must have at most {LIMITS.features}")
    if n > LIMITS.records:
        raise ValueError(f"x has {n} records; it must have at most {LIMITS.records}")
    check.truth("intercept", intercept)


def _classes(classes: object) -> list[Any]:
    """Return two different labels."""
    listed = check.several("classes", classes, "['no', 'yes']")
    if len(listed) != 2 or _is_label(*listed):
        raise ValueError(
            f"classes = {listed!r} must be two different labels, the positive one last"
        )
    return listed


def _signs(labels: NDArray[Any], classes: Sequence[Any]) -> Floats:
    """Return 0 for the first class, 1 for the second, and NaN for any other label."""
    signs = np.full(len(labels), math.nan)
    for sign, label in enumerate(classes):
        if labels.dtype.kind in "fiubUS":
            signs[np.broadcast_to(np.asarray(labels == label, bool), labels.shape)] = sign
            continue
        signs[np.fromiter((_is_label(v, label) for v in labels), bool, len(labels))] = sign
    return signs


def _is_label(entry: object, label: object) -> bool:
    try:
        return bool(entry == label)
    except Exception:  # whatever an entry is, it must not raise
        return False


@dataclass(frozen=True)
class LogisticFit:
    """Hold a noisy fit and its errors, before each coefficient is scaled.

    Args:
        value: the noisy fit.
        error: standard errors of the value about the population. None without the curvature.
        deviation: standard deviation of the noise in each coordinate.
        beyond: the largest distance that rounding and the search add.
        longest: the largest length of a fit.
        scale: the factor of each coefficient from the fit's units to the records' units.
    """

    value: Floats
    error: Floats | None
    deviation: float
    beyond: float
    longest: float
    scale: Floats


def estimate_of(
    name: str, fitted: LogisticFit, receipt: Mapping[str, Any], noise: RoundedGaussian
) -> Estimate:
    """Return the `Estimate` of a noisy fit. name: the name of the estimator."""
    value, scale, longest = fitted.value, fitted.scale, fitted.longest
    error = np.full(len(value), math.nan) if fitted.error is None else fitted.error

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        if about == "population" and fitted.error is None:
            also = ", or call the estimator with sampling=True" if name == "logistic" else ""
            raise ValueError(
                "about = 'population': the release does not show how much the fit varies with the "
                f"records; give about='data' for the fit of these records, with noise alone{also}"
            )
        deviation = fitted.deviation if about == "data" else error
        width = normal_half_width(1.0, miss) * deviation + fitted.beyond
        low, high = np.maximum(value - width, -longest), np.minimum(value + width, longest)
        # The fit is in a ball. If noise has left the ball, an end on its surface remains.
        return fixed(np.minimum(low, longest) * scale), fixed(np.maximum(high, -longest) * scale)

    return Estimate(
        name,
        fixed(value * scale),
        fixed(error * scale),
        fixed(fitted.deviation * scale),
        receipt,
        noise,
        "Each coefficient of the penalized fit: of the distribution of the records, clipped to "
        "the ball, approximate, if its curvature was released; and of the clipped records, proven.",
        limits,
    )


def _sampling_variance(
    bent: Lanes, squares: Lanes, w: Floats, sigma: float, rows: int, penalty: float
) -> Floats:
    """Approximate the sampling variance of each coordinate of the fit [LO-8].

    Args:
        bent, squares: the two results of `curvature`, with noise.
        w: the point at which the sums were taken.
        sigma: standard deviation of the noise on their diagonals; sigma / sqrt(2) elsewhere.

    Returns:
        The diagonal of H^-1 G H^-1 / rows, for the curvature H and the gradients' covariance G,
        with a margin for the noise in G. Infinite if H's least eigenvalue is below 4 times the
        noise.
    """
    size, limits = len(w), LOGISTIC_FIT_LIMITS
    unit = 1.0 / (limits.curvature_units**2 * limits.weight_units * rows)
    hessian = bent * (unit / limits.bend_ratio) + penalty * np.eye(size)
    norm = noise_norm(sigma * unit / limits.bend_ratio, size)
    if float(np.linalg.eigvalsh(hessian)[0]) < LEAST_SQUARES_LIMITS.clear_norms * norm:
        return np.full(size, math.inf)
    inverse = np.linalg.inv(hessian)
    gradients = squares * unit - penalty**2 * np.outer(w, w)
    length = (inverse * inverse).sum(axis=1)
    spread = np.diagonal(inverse @ gradients @ inverse)
    return (np.maximum(spread, 0.0) + sigma * unit * length) / rows
