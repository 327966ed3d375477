"""Rounded Gaussian noise for a budget, and how far a value with it lies from the parameter."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy.special import ndtri

from neyman.accounting.calibrate import Budget, calibrate_exact
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.rounded_noise import RoundedGaussian

__all__ = ["bounded_half_width", "least_noise", "normal_half_width"]

SLACK = 1e-9  # relative, more than the rounding of each formula here
MOST_TRIES = 40
MOST_SIGMA_SQUARED = Fraction(10) ** 30
SPLITS = np.linspace(0.02, 0.98, 49)


def least_noise(
    budget: Budget,
    squared_norm: int,
    beside: Callable[[RoundedGaussian], Mechanism] | None = None,
) -> RoundedGaussian:
    """Return the least rounded Gaussian noise that meets a budget, certified.

    Args:
        budget: a curve, ``ny.zcdp``, ``ny.approximate``, ``ny.at_most``, or another budget.
        squared_norm: the largest squared l2 norm of a shift, in squared units of the grid.
        beside: the noise -> all that is released, where that is more than the noise.

    Returns:
        A mechanism that the budget admits, with everything beside it.

    Raises:
        TypeError: the budget is none.
        ValueError: no noise of this kind meets it, as for a pure epsilon.
    """
    if not callable(getattr(budget, "admits", None)) or isinstance(budget, type):
        raise TypeError(f"budget = {budget!r} must be a budget, such as ny.gdp(1) or ny.zcdp(0.5)")

    def released(variance: Fraction) -> Mechanism:
        noise = _noise(variance * squared_norm, squared_norm)
        return noise if beside is None else beside(noise)

    def near(sigma: Fraction) -> Mechanism:
        # The Gaussian of the same mu, whose curve is quick to compute.
        return Gaussian(sigma) if beside is None else released(sigma**2)

    rho = budget.tradeoff().bare_rho()
    try:
        if rho and beside is None:
            variance = 1 / (2 * rho)
        else:
            variance = calibrate_exact(near, budget) ** 2
    except ValueError as error:
        if "keeps the target" not in str(error):
            raise
        raise ValueError(
            "budget: no Gaussian noise meets it, as none meets a pure epsilon; give ny.gdp, "
            "ny.zcdp, ny.approximate with a delta, or ny.at_most, or a larger budget"
        ) from None
    for _ in range(MOST_TRIES):
        if budget.admits(released(variance)):
            return _noise(variance * squared_norm, squared_norm)
        variance *= 1 + Fraction(1, 10**9)
    raise ValueError("budget: no Gaussian noise is certified to meet it; give a larger one")


def _noise(variance: Fraction, squared_norm: int) -> RoundedGaussian:
    if variance > MOST_SIGMA_SQUARED:
        raise ValueError("budget: it needs more noise than the sampler can draw; give a larger one")
    return RoundedGaussian(sigma_squared=variance, squared_norm=squared_norm)


def normal_half_width(deviation: float, miss: float) -> float:
    """Return z with P(abs(N(0, deviation^2)) > z) <= miss.

    Noise rounded to a whole number is within half a unit more [EM-3].
    """
    return deviation * -float(ndtri(miss / 2)) * (1 + SLACK)


def bounded_half_width(half_range: float, records: int, deviation: float, miss: float) -> float:
    """Bound how far a mean of bounded records with normal noise is from its expectation [EM-4].

    The lesser of Hoeffding's bound and the normal quantile with the best split of the chance,
    and of the bound for the sum as a sub-Gaussian variable.

    Args:
        half_range: each record is in an interval of this half width.
        records: number of independent records.
        deviation: of the noise in the mean.
        miss: chance of a miss, in (0, 1).
    """
    scale = half_range / math.sqrt(records)
    together = math.sqrt(2 * (scale**2 + deviation**2) * math.log(2 / miss))
    sampling = scale * np.sqrt(2 * np.log(2 / (SPLITS * miss)))
    noise = deviation * -ndtri((1 - SPLITS) * miss / 2)
    return min(together, float(np.min(sampling + noise))) * (1 + SLACK)
