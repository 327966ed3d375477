"""Bound a trade-off curve for drawing by tangents above it, all computed at once.

power(level) <= delta(epsilon) + e^epsilon level for every real epsilon, with equality at one
epsilon. So any set of epsilons gives a certified upper bound at every level, and between levels. It
needs one evaluation of the privacy profile, even if the curve itself needs a search at each level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neyman.curves.profiles.profile import Profile
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics.arrays import Array


@dataclass(frozen=True)
class Limits:
    """Hold the numbers of tangents of a drawn curve, and what a drawing cannot show."""

    spread: float = 4.0  # how much denser the epsilons are near 0
    rounding: float = 1e-13


LIMITS = Limits()


def outline(curve: Tradeoff, levels: Sequence[float], level: float) -> tuple[list[float], float]:
    """Return upper bounds on the power at many levels, and a closer bound at one level.

    Args:
        levels: the levels of the drawing, in (0, 1).
        level: the level of the closer bound, in (0, 1), with an error below 1e-6.

    Returns:
        Certified upper bounds. At the levels, they exceed the power by less than a drawing shows
        (1e-3 in tests).
    """
    log_slope = 12.0  # log of the largest slope: e^-12 is below any drawn level
    # A delta that no drawing shows.
    reach = min(max(curve.epsilon(1e-4).upper, 1e-9), log_slope)
    # A power that is shown as 1.
    if reach == log_slope and curve.delta(log_slope).lower > 1 - 1e-6:
        return [1.0] * len(levels), 1.0
    places = np.linspace(-LIMITS.spread, LIMITS.spread, 129)  # tangents
    epsilons = reach * np.sinh(places) / math.sinh(LIMITS.spread)
    powers, nearest = np.zeros(len(levels)), 0.0
    for profile in curve.profiles:
        deltas = profile.log_deltas(epsilons)[1]
        powers = np.maximum(
            powers, _tangent_heights(epsilons, deltas, np.asarray(levels)).min(axis=0)
        )
        nearest = max(nearest, _closer(profile, epsilons, deltas, level))
    return [float(p) for p in np.maximum(powers, levels)], max(nearest, level)


def _tangent_heights(epsilons: Array, log_deltas: Array, levels: Array) -> Array:
    """Return the height of each tangent (row) at each level (column), rounded up, at most 1."""
    logs = np.logaddexp(log_deltas[:, None], epsilons[:, None] + np.log(levels))
    return np.minimum(np.exp(np.minimum(logs, 0.0)) * (1 + LIMITS.rounding), 1.0)


def _closer(profile: Profile, epsilons: Array, log_deltas: Array, level: float) -> float:
    """Bound the power at a level by the least height of tangents. Add tangents near the best."""
    best, at = 1.0, np.array([level])
    for left in range(2, -1, -1):  # level rounds
        heights = _tangent_heights(epsilons, log_deltas, at)[:, 0]
        k = int(np.argmin(heights))
        best = min(best, float(heights[k]))
        if left:
            low, high = epsilons[max(k - 1, 0)], epsilons[min(k + 1, len(epsilons) - 1)]
            # Tangents per round around one level.
            epsilons = np.linspace(float(low), float(high), 33)
            log_deltas = profile.log_deltas(epsilons)[1]
    return best
