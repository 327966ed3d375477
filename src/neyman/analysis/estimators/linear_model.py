"""Fit linear models with a Lipschitz loss by output perturbation: Huber, smooth hinge, Poisson.

The fit minimizes F(w) = mean of phi(v'w, y) + penalty / 2 |w|^2 over rows v of norm at most R. Each
loss phi is convex, with a slope of at most L and a curvature of at most B. So replacing a row moves
the fit by at most 2 L R / (n penalty) [LM-1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Unpack, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import Estimate
from neyman.analysis.estimators.logistic import LIMITS as LOGISTIC_LIMITS
from neyman.analysis.estimators.logistic import LogisticFit, check_records, estimate_of
from neyman.analysis.estimators.logistic_fit import (
    DOUBLE_ROUNDING,
    FitAccuracy,
    NotConverged,
    accuracy_of,
    mean_of_rows,
    signed_rows,
)
from neyman.analysis.estimators.logistic_fit import LIMITS as LOGISTIC_FIT_LIMITS
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import least_noise
from neyman.analysis.estimators.shared_arguments import (
    Shared,
    radius_of,
    relation_of,
    shares_arguments,
)
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, one_per_record, vectors

# Assumed absolute error of a computed slope: exp errs by a few units in the last place.
SLOPE_ERROR = 2.0**-48


@dataclass(frozen=True)
class Limits:
    """Limit the search for a fit."""

    # Steps of a search. The most seen are 800, for 150 features [LM-2].
    steps: int = 1 << 17


LIMITS = Limits()
LossName = Literal["huber", "smooth hinge", "poisson"]
Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


@dataclass(frozen=True)
class RegressionLoss:
    """Represent a convex loss phi of eta = v'w and y, scaled so that its slope is at most 1.

    Args:
        slope: (eta, y) -> phi'.
        curvature: (eta, y) -> phi'', at a corner of phi' on either side.
        steepest: L, the largest slope.
        most_curvature: B, the largest curvature.
    """

    slope: Callable[[Floats, Floats], Floats]
    curvature: Callable[[Floats, Floats], Floats]
    steepest: float
    most_curvature: float


def huber(width: float) -> RegressionLoss:
    """Return Huber's loss of y - eta: quadratic up to ``width`` in size, and linear beyond."""
    return RegressionLoss(
        lambda eta, y: np.clip(eta - y, -width, width),
        lambda eta, y: (np.abs(eta - y) <= width).astype(float),
        width,
        1.0,
    )


def smooth_hinge(width: float) -> RegressionLoss:
    """Return the hinge loss max(0, 1 - eta) with a quadratic corner of this width."""
    return RegressionLoss(
        lambda eta, _: np.clip((eta - 1) / width, -1.0, 0.0),
        lambda eta, _: ((eta <= 1) & (eta >= 1 - width)) / width,
        1.0,
        1 / width,
    )


def poisson(bound: float) -> RegressionLoss:
    """Return the Poisson loss divided by ``bound``. Beyond the rate e^eta = bound, it is linear.

    The argument y is the count divided by ``bound``, so slopes are from -1 to 1.
    """
    top = math.log(bound)

    def rate(eta: Floats) -> Floats:
        return np.exp(np.minimum(eta - top, 0.0))

    return RegressionLoss(
        lambda eta, y: rate(eta) - y, lambda eta, _: np.where(eta <= top, rate(eta), 0.0), 1.0, 1.0
    )


@shares_arguments
def linear_model(
    x: object,
    y: object,
    *,
    loss: LossName,
    radius: float | Fraction | str,
    bound: float | Fraction | str = 1,
    width: float | None = None,
    penalty: float,
    budget: Budget,
    intercept: bool = True,
    dimension: int | None = None,
    **paid: Unpack[Shared],
) -> Estimate:
    """Estimate the coefficients of a robust regression, support vector machine, or Poisson rate.

    The fit minimizes the mean loss of eta = a + x'b and y, plus penalty / 2 (a^2 + radius^2 |b|^2).
    For "huber", this penalty is divided by bound^2. The losses are:

    - "huber" is Huber's loss of (y - eta) / bound, linear beyond ``width`` / bound. y is clipped to
      [-bound, bound].
    - "smooth hinge" is the hinge loss of eta times the label. The label is 1 if y is above 0, and
      -1 otherwise. Within ``width`` of its corner the loss is a square.
    - "poisson" is (e^eta - y eta) / bound, for a count y that is clipped to [0, bound]. If the rate
      e^eta is above the bound, the loss continues as a line.

    Replacing a record moves the fit, in these units, by at most 2 L R / (n penalty), with the
    largest slope L of the loss and R^2 = 2 (1 without an intercept). The computed fit is certified
    to be near the exact fit, rounded to a grid, and gets rounded Gaussian noise, drawn exactly. The
    sensitivity includes both distances.

    Args:
        x: real numbers, one row of d features per record, d from 1 to 2000. Features are clipped to
            a ball. A record with an entry of x or y that is not a finite number counts as features
            0 without a constant.
        y: one number per record.
        loss: "huber", "smooth hinge", or "poisson".
        radius: radius of the features' ball around 0, above 0, chosen without the data.
        bound: bound on y, above 0; for "poisson" at least 1. "smooth hinge" has none.
        width: width of the loss's corner. "huber": above 0 and at most the bound, by default half
            the bound. "smooth hinge": from 0.01 to 2, by default 0.5. "poisson" has none.
        penalty: from 1e-6 to 1e3, chosen without the data. A smaller one needs more noise.
        intercept: if True, the model has a constant a, the first entry of the value. It is
            penalized, too.
        dimension: d, needed if ``x`` is a list of rows, because no record may decide it.
        neighboring: "replace-one" only. The public number of records divides the loss.

    Returns:
        An `Estimate` with an array of the coefficients, the constant first. The interval about the
        data, ``interval(about="data")``, is proven. It covers each coefficient of the exact
        penalized fit of the clipped records by itself. The release does not show how the fit varies
        with the records, so ``standard_error`` is NaN, and an interval about the population raises
        a ValueError. No gap is stated.

    Examples:
        >>> import numpy as np
        >>> import neyman as ny
        >>> x = np.linspace(-1, 1, 20_001)[:, None]
        >>> y = np.where(np.arange(20_001) % 10, x[:, 0], 9.0)         # a tenth of y is an error
        >>> fit = ny.estimate.linear_model(
        ...     x, y, loss="huber", radius=1, bound=2, width=0.1, penalty=1e-3, budget=ny.gdp(1)
        ... )
        >>> bool(abs(fit.value[1] - 1) < 0.15)
        True

    Source: Chaudhuri, Monteleoni and Sarwate 2011 (output perturbation); [LM-1], [LM-2].
    """
    relation = relation_of(
        paid,
        valid=("replace-one",),
        why="the number of records divides the loss and must be public",
    )
    check.one_of("loss", loss, get_args(LossName))
    features = vectors("x", x, relation=relation, dimension=dimension)
    target = one_per_record("y", y, relation=relation)
    n, size = features.shape
    check_records(n, size, "y", len(target), intercept)
    ball, most = float(radius_of(radius)), float(radius_of(bound, "bound"))
    of_loss, corner = _loss(loss, most, width)
    weight = check.between(
        "penalty", penalty, LOGISTIC_LIMITS.least_penalty, LOGISTIC_LIMITS.largest_penalty
    )
    aim = accuracy(n, size + intercept, weight, intercept, of_loss)
    noise = least_noise(budget, aim.squared_shift)
    arguments: dict[str, Any] = {
        "loss": loss,
        "radius": str(radius_of(radius)),
        "bound": str(radius_of(bound, "bound")),
        "width": corner,
        "records": n,
        "features": size,
        "intercept": intercept,
        "penalty": weight,
        "unit": aim.unit,
    }

    def noisy(bits: Bits) -> Lanes:
        rows, goal = _rows(loss, as_floats(features), as_floats(target), ball, most, intercept)
        exact = fit(rows, goal, weight, aim, of_loss)
        return exact + rounded_gaussian(noise.sigma_squared, len(exact), bits)

    def published(units: Lanes) -> dict[str, object]:
        return {"coefficients_in_units": units.tolist()}

    name = "linear_model"
    released, receipt = Statistic(name, arguments, noise, noisy, published, name).release(**paid)
    size_of_y = most if loss == "huber" else 1.0
    scale = np.full(size + intercept, size_of_y / ball)
    if intercept:
        scale[0] = size_of_y
    longest = of_loss.steepest * math.sqrt(1 + intercept) / weight
    longest *= LOGISTIC_FIT_LIMITS.rounding_factor
    beyond = aim.unit + aim.gradient / weight
    value = np.asarray(released * aim.unit, np.float64)
    fitted = LogisticFit(value, None, noise.sigma * aim.unit, beyond, longest, scale)
    return estimate_of(name, fitted, receipt, noise)


def _loss(name: LossName, bound: float, width: float | None) -> tuple[RegressionLoss, float | None]:
    """Return the loss, and the width of its corner or None."""
    if name == "poisson":
        if width is not None:
            raise ValueError(f"width = {width!r}: the Poisson loss has no corner; leave it out")
        if bound < 1:
            raise ValueError(f"bound = {bound!r} of a count must be at least 1")
        return poisson(bound), None
    if name == "huber":
        corner = bound / 2 if width is None else check.between("width", width, 1e-100, bound)
        return huber(corner / bound), corner
    # Smallest width of a hinge's corner.
    corner = 0.5 if width is None else check.between("width", width, 0.01, 2.0)
    return smooth_hinge(corner), corner


def _rows(
    name: LossName, x: Floats, y: Floats, radius: float, bound: float, intercept: bool
) -> tuple[Floats, Floats]:
    """Return the rows v, and y / bound. A record with a number that is not finite has v = 0."""
    labels = y if name == "smooth hinge" else np.where(np.isfinite(y), 1.0, np.nan)
    rows = signed_rows(x, labels, radius, intercept)
    if name == "smooth hinge":
        return rows, np.ones(len(rows))
    low = 0.0 if name == "poisson" else -bound
    return rows, np.clip(np.nan_to_num(y, nan=0.0), low, bound) / bound


def accuracy(
    rows: int, size: int, penalty: float, intercept: bool, loss: RegressionLoss
) -> FitAccuracy:
    """Choose the search's tolerance and the grid of a fit [LM-2].

    They add about 1% to the fit's largest change between neighbors.
    """
    length = math.sqrt(1 + intercept)
    move = 2 * loss.steepest * length / (rows * penalty) * LOGISTIC_FIT_LIMITS.rounding_factor
    reach = loss.steepest * length / penalty
    error = _rounding(size, length, penalty, 2 * reach + 1, loss)
    return accuracy_of(move, error, size, penalty, LIMITS.steps)


def fit(rows: Floats, y: Floats, penalty: float, aim: FitAccuracy, loss: RegressionLoss) -> Lanes:
    """Return the fit in grid units, each coordinate rounded [LM-2].

    A step along Newton's direction is halved until F falls by a fixed share of what its slope
    promises. F is convex, so two slopes along the step bound its change from above. They keep their
    digits near the minimum, where those of F are used up.

    Raises:
        NotConverged: after ``aim.steps`` steps.
    """
    size = rows.shape[1]
    length = math.sqrt(float((rows * rows).sum(axis=1).max(initial=0.0)))
    length *= LOGISTIC_FIT_LIMITS.rounding_factor

    def gradient_at(w: Floats) -> Floats:
        return penalty * w + mean_of_rows(rows, loss.slope(rows @ w, y))

    w = np.zeros(size)
    gradient = gradient_at(w)
    for _ in range(aim.steps):
        norm = float(np.linalg.norm(gradient)) * LOGISTIC_FIT_LIMITS.rounding_factor
        if norm + _rounding(size, length, penalty, float(np.linalg.norm(w)), loss) <= aim.gradient:
            return np.rint(w / aim.unit).astype(np.int64)
        weights = loss.curvature(rows @ w, y) / len(rows)
        curvature = penalty * np.eye(size) + (rows * weights[:, None]).T @ rows
        direction = -cho_solve(cho_factor(curvature), gradient)
        # Share of the fall that a Newton step guarantees.
        promised, share = 0.1 * float(gradient @ direction), 1.0
        ahead, halfway = gradient_at(w + direction), gradient_at(w + direction / 2)
        # Smallest share of a Newton step.
        # F rises by at most share / 2 times the sum of the slopes halfway and at the end.
        while float((halfway + ahead) @ direction) > promised and share > 2.0**-60:
            share /= 2
            ahead, halfway = halfway, gradient_at(w + direction * (share / 2))
        w, gradient = w + direction * share, ahead
    # Guards against a search that does not end.
    raise NotConverged(
        f"the search for the fit took more than {aim.steps} steps; report this as a defect"
    )


def _rounding(size: int, length: float, penalty: float, norm: float, loss: RegressionLoss) -> float:
    """Bound the error's norm of a gradient computed at a point w with |w| = ``norm`` [LM-2].

    ``size`` is the dimension, and ``length`` the largest norm of a row.
    """
    product = 1.01 * size * DOUBLE_ROUNDING * length * norm
    of_argument = product + 4 * DOUBLE_ROUNDING * (norm * length + 1)
    of_slope = loss.most_curvature * of_argument + SLOPE_ERROR
    of_sum = 1.01 * LOGISTIC_FIT_LIMITS.chunk_rows * DOUBLE_ROUNDING + 4 * DOUBLE_ROUNDING
    term = of_slope + loss.steepest * of_sum
    return 1.01 * (length * term + 4 * DOUBLE_ROUNDING * penalty * norm)
