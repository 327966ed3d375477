"""Draw once, exactly, from the Gaussian posterior of a mean [PS-4]."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Unpack

from neyman.analysis.estimators.ball_mean import LIMITS as BALL_MEAN_LIMITS
from neyman.analysis.estimators.ball_mean import Lanes, clipped_total
from neyman.analysis.estimators.estimate import About, Estimate, Number
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import LIMITS as NORMAL_NOISE_LIMITS
from neyman.analysis.estimators.normal_noise import TooMuchNoise, normal_half_width
from neyman.analysis.estimators.shared_arguments import (
    Shared,
    radius_of,
    relation_of,
    shares_arguments,
)
from neyman.analysis.training.clipping import careful_error
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics.raw_values import one_per_record


@shares_arguments
def posterior_draw(
    records: object,
    *,
    radius: float | Fraction | str,
    variance: float | Fraction | str,
    prior_variance: float | Fraction | str,
    **paid: Unpack[Shared],
) -> Estimate:
    """Draw once from the posterior of a normal mean. The draw is private by itself.

    In the model, n records are normal with mean m and a known variance v, and m is normal with mean
    0 and variance t. Given records clipped to [-radius, radius], m is normal with precision p = n /
    v + 1 / t and mean sum / (v p). A draw adds normal noise of variance v^2 p to the sum and
    divides by v p. So it is a Gaussian mechanism with mu = 2 radius / (v sqrt(p)). The sum is
    rounded to a grid, and the noise is an exact draw, rounded to this grid.

    There is no budget: the model sets the noise. A larger variance gives a tempered posterior and
    more privacy.

    Args:
        records: real numbers, one per record. A record that is not a number counts as 0.
        radius: clipping bound of a record, above 0, chosen without the data. Subtract a public
            center first.
        variance: v, the variance of a record, above 0, chosen without the data.
        prior_variance: t, the prior's variance, above 0, chosen without the data.
        neighboring: "replace-one" only: the posterior's width depends on the number of records.

    Returns:
        An `Estimate` whose value is one draw. The interval about the data covers the posterior
        mean. The interval about the population covers m if model and prior hold and no record is
        clipped: the draw minus m is then normal with variance 2 / p. Choose a radius that few
        records exceed.

    Examples:
        >>> import neyman as ny
        >>> draw = ny.estimate.posterior_draw(
        ...     [0.5] * 1000, radius=5, variance=1, prior_variance=1
        ... )
        >>> round(float(draw.tradeoff().gdp()), 4), round(float(draw.noise_error), 4)
        (0.3161, 0.0316)

    Source: Wang, Fienberg and Smola 2015 (one draw); [PS-4].
    """
    relation = relation_of(
        paid, valid=("replace-one",), why="the posterior's width depends on the number of records"
    )
    array = one_per_record("records", records, relation=relation)
    ball, n = radius_of(radius), len(array)
    v, t = radius_of(variance, "variance"), radius_of(prior_variance, "prior_variance")
    grid = BALL_MEAN_LIMITS.grid_units
    precision, unit = n / v + 1 / t, ball / grid
    squared = v * v * precision / unit**2
    if not Fraction(1, 10**4) <= squared <= NORMAL_NOISE_LIMITS.sigma_squared:
        raise TooMuchNoise(
            f"variance = {variance!r}: the noise of this posterior in units of radius / {grid} "
            "cannot be drawn; give a radius and a variance that are nearer to each other"
        )
    noise = RoundedGaussian(sigma_squared=squared, squared_norm=(2 * grid) ** 2)
    step = float(unit / (v * precision))

    def noisy(bits: Bits) -> Lanes:
        return clipped_total(array, float(ball)) + rounded_gaussian(squared, 1, bits)

    def published(total: Lanes) -> dict[str, object]:
        return {"value": float(total[0] * step)}

    arguments = {
        "radius": str(ball),
        "variance": str(v),
        "prior_variance": str(t),
        "records": n,
        "grid": grid,
    }
    name = "posterior_draw"
    statistic = Statistic(name, arguments, noise, noisy, published, "posterior-sample")
    total, receipt = statistic.release(**paid)
    deviation = 1 / math.sqrt(float(precision))
    value = float(total[0] * step)

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        factor = math.sqrt(2) if about == "population" else 1.0
        # Each record is rounded to the grid, and so is the noise.
        off_grid = (n * careful_error(1, grid) + 1) * step
        width = normal_half_width(deviation * factor, miss) + off_grid
        return value - width, value + width

    return Estimate(
        name,
        value,
        deviation * math.sqrt(2),
        deviation,
        receipt,
        noise,
        "The mean, where the model and the prior hold and no record is clipped; and the posterior "
        "mean of the clipped records.",
        limits,
    )
