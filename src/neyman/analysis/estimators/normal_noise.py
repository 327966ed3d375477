"""Calibrate rounded Gaussian noise to a budget, and bound the error of a value with this noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from neyman.accounting.calibrate import Budget, NoParameter, calibrate_exact
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian


@dataclass(frozen=True)
class Limits:
    """Limit the search for sigma."""

    rounding_share: float = 1e-9  # relative, more than the rounding of each formula here
    tries: int = 40
    sigma_squared: Fraction = Fraction(10) ** 30  # the largest that can be drawn


LIMITS = Limits()
BUDGET_SPLITS = np.linspace(0.02, 0.98, 49)  # shares of a miss for sampling; the rest is for noise


def check_budget(budget: object, examples: str = "ny.gdp(1) or ny.zcdp(0.5)") -> None:
    """Refuse an object that is not a budget. ``examples``: budgets that the error names."""
    if not callable(getattr(budget, "admits", None)) or isinstance(budget, type):
        raise TypeError(f"budget = {budget!r} must be a budget, such as {examples}")


def least_noise(
    budget: Budget, squared_norm: int, beside: Mechanism | None = None
) -> RoundedGaussian:
    """Return the least rounded Gaussian noise certified to meet a budget.

    Args:
        squared_norm: the largest squared l2 norm of the change by one record, in squared units of
            the grid.
        beside: another mechanism that is released within the same budget.

    Raises:
        TypeError: ``budget`` is not a budget.
        TooMuchNoise: only a coarser grid would allow the sampler to draw the noise.
        ValueError: no noise of this kind meets the budget, such as a pure epsilon.
    """
    check_budget(budget)

    def released(variance: Fraction) -> Mechanism:
        noise = _noise(variance * squared_norm, squared_norm)
        return noise if beside is None else noise + beside

    def near(sigma: Fraction) -> Mechanism:
        # The Gaussian of the same mu, whose curve is quick to compute.
        return Gaussian(sigma) if beside is None else Gaussian(sigma) + beside

    rho = budget.tradeoff().bare_rho()
    try:
        if rho and beside is None:
            variance = 1 / (2 * rho)
        else:
            variance = calibrate_exact(near, budget) ** 2
    except NoParameter:
        raise ValueError(
            "budget: no Gaussian noise meets it, as none meets a pure epsilon; give ny.gdp, "
            "ny.zcdp, ny.approximate with a delta, or ny.at_most, or a larger budget"
        ) from None
    for _ in range(LIMITS.tries):
        if budget.admits(released(variance)):
            return _noise(variance * squared_norm, squared_norm)
        variance *= 1 + Fraction(1, 10**9)
    raise ValueError("budget: no Gaussian noise is certified to meet it; give a larger one")


class TooMuchNoise(ValueError):
    """Refuse noise whose standard deviation, in units of the grid, is too large for the sampler."""


def _noise(variance: Fraction, squared_norm: int) -> RoundedGaussian:
    if variance > LIMITS.sigma_squared:
        raise TooMuchNoise("budget: it needs more noise than can be drawn; give a larger one")
    return RoundedGaussian(sigma_squared=variance, squared_norm=squared_norm)


def normal_half_width(deviation: float, miss: float) -> float:
    """Return z with P(abs(N(0, deviation^2)) > z) <= miss.

    Noise that is rounded to an integer adds at most half a unit to z [EM-3].
    """
    return deviation * -float(ndtri(miss / 2)) * (1 + LIMITS.rounding_share)


def bounded_half_width(half_range: float, records: int, deviation: float, miss: float) -> float:
    """Bound the distance of a noisy mean of bounded records from its expectation [EM-4].

    Return the smaller of two bounds. The first adds Hoeffding's bound and the normal quantile, with
    the best split of the probability of a miss. The second treats the sum as a sub-Gaussian
    variable.

    Args:
        half_range: half width of the interval that contains each record.
        deviation: standard deviation of the noise in the mean.
        miss: probability of a miss, in (0, 1).
    """
    scale = half_range / math.sqrt(records)
    together = math.sqrt(2 * (scale**2 + deviation**2) * math.log(2 / miss))
    sampling = scale * np.sqrt(2 * np.log(2 / (BUDGET_SPLITS * miss)))
    noise = deviation * -ndtri((1 - BUDGET_SPLITS) * miss / 2)
    return min(together, float(np.min(sampling + noise))) * (1 + LIMITS.rounding_share)


def symmetric_noise(sigma_squared: Fraction, size: int, bits: Bits) -> NDArray[np.int64]:
    """Return a symmetric matrix of rounded noise with half the variance off the diagonal [RE-2].

    Args:
        sigma_squared: the variance on the diagonal, in squared units of the grid.
    """
    noise = np.zeros((size, size), np.int64)
    above = np.triu_indices(size, 1)
    noise[above] = rounded_gaussian(sigma_squared / 2, len(above[0]), bits)
    noise += noise.T
    noise[np.diag_indices(size)] = rounded_gaussian(sigma_squared, size, bits)
    return noise
