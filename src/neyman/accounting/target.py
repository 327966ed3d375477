"""A budget as a policy maker puts it: how often an attacker may find out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.special import ndtr, ndtri

from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.guarantees import gdp
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.arrays import Array

__all__ = ["PowerBudget", "at_most"]

LEAST_LEVEL = 1e-12
SLACK = 1.01
LINES = 400


@dataclass(frozen=True)
class PowerBudget:
    """At most this power at this level, in the strong sense of `at_most`.

    Args:
        power: probability that the best test finds out, above the level and below 1; exact.
        level: probability of a false alarm, above 0; exact.
    """

    power: Fraction
    level: Fraction

    @property
    def mu(self) -> float:
        """mu = z(1 - level) - z(1 - power): the Gaussian curve through the point."""
        return float(ndtri(float(self.power)) - ndtri(float(self.level)))

    def tradeoff(self) -> Tradeoff:
        """The Gaussian curve through the point."""
        return gdp(self.mu)

    def admits(self, mechanism: Described) -> bool:
        """Whether a mechanism certainly keeps the promise.

        The power at the level is within the number; at every level from 1e-12 up it is within 1%
        of the Gaussian's; and delta at the epsilon where the Gaussian's is 1e-12 is at most 2e-12.
        """
        spent = _spent(mechanism)
        if spent.bare_rho() is not None:
            raise ValueError(
                "budget: a mechanism of which only rho-zCDP is claimed (its shifts allow too many "
                "combinations) cannot be held against a power; give the budget as zcdp"
            )
        level = math.nextafter(float(self.level), 1)  # at or above the exact one
        if Fraction(spent.power(level).upper) > self.power:
            return False
        far = self.tradeoff().epsilon(LEAST_LEVEL).upper
        if spent.delta(far).upper > 2 * LEAST_LEVEL:
            return False
        reached, allowed = self._everywhere(spent)
        return bool(np.all(reached <= allowed))

    def excess(self, mechanism: Described) -> float | None:
        """About log(spent / allowed) of the power at the level, to steer by."""
        spent = _spent(mechanism)
        if spent.bare_rho() is not None:
            return None
        return spent.log_power(float(self.level)).upper - math.log(float(self.power))

    def excess_elsewhere(self, mechanism: Described) -> float:
        """About the same of what else `admits` looks at: other levels, and delta far out."""
        spent = _spent(mechanism)
        far = self.tradeoff().epsilon(LEAST_LEVEL).upper
        reached, allowed = self._everywhere(spent)
        beyond = spent.log_delta(far).upper - math.log(2 * LEAST_LEVEL)
        return max(beyond, float(np.log(np.max(reached / allowed))))

    def _everywhere(self, spent: Tradeoff) -> tuple[Array, Array]:
        """Bounds on the power, and 1.01 G, at places that decide about every level from 1e-12 up.

        Each delta(epsilon) + e^epsilon level is a line above the power. From one crossing of
        neighboring lines to the next a line is straight and G is concave, so the crossings decide.
        """
        mu = self.mu
        top = float(ndtr(ndtri(1 / SLACK) - mu))  # from this level on 1.01 G is above 1
        z = np.linspace(-ndtri(LEAST_LEVEL) + 0.3, -ndtri(top) - 0.3, LINES)
        epsilons = mu * z - mu * mu / 2
        slope = np.exp(epsilons)
        base = spent.deltas_above(epsilons)
        crossing = np.clip((base[:-1] - base[1:]) / (slope[1:] - slope[:-1]), LEAST_LEVEL, top)
        levels = np.concatenate([[LEAST_LEVEL], crossing, [top]])
        # Line i serves between crossings i - 1 and i. The chain runs from the least level to the
        # top, so its rising pieces cover every level.
        allowed = SLACK * ndtr(ndtri(levels) + mu)
        left, right = base + slope * levels[:-1], base + slope * levels[1:]
        rising = levels[:-1] < levels[1:]
        reached = np.concatenate([left[rising], right[rising]])
        return reached, np.concatenate([allowed[:-1][rising], allowed[1:][rising]])


def _spent(mechanism: Described) -> Tradeoff:
    """The curve in both orders: a promise to neighbors is about both."""
    return replace(check.described("mechanism", mechanism).tradeoff(), ordered=False)


def at_most(power: float | Fraction | str, level: float | Fraction | str) -> PowerBudget:
    """Return the budget "power at most ``power`` at level ``level``", in the strong sense.

    A promise at one level alone is weak: a leak of everything with probability .20 passes "power
    at most .25 at level .05". So the Gaussian curve through that point is meant,
    mu = z(1 - level) - z(1 - power). A mechanism keeps it if its power at the level is within the
    number, at every level from 1e-12 up within 1% of that Gaussian's, and its delta at that
    Gaussian's epsilon for 1e-12 at most 2e-12.

    Args:
        power: in (level, 1).
        level: in (0, 1).

    Examples:
        >>> import neyman as ny
        >>> target = ny.at_most(power=0.10, level=0.05)
        >>> round(float(ny.calibrate(ny.Gaussian, target)), 3)
        2.753
    """
    exact_power, exact_level = check.exact("power", power), check.exact("level", level)
    if not 0 < exact_level < 1:
        raise ValueError(f"level = {level!r} must be between 0 and 1, both excluded")
    if not exact_level < exact_power < 1:
        raise ValueError(
            f"power = {power!r} must be above level = {level!r}, which guessing reaches, and below "
            "1"
        )
    if float(exact_level) < LEAST_LEVEL or math.isclose(float(exact_power), float(exact_level)):
        raise ValueError(
            f"level = {level!r}, power = {power!r}: the level must be at least {LEAST_LEVEL:g} and "
            "the power clearly above it"
        )
    return PowerBudget(exact_power, exact_level)
