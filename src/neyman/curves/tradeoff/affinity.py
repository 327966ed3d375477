"""Bound the affinity B(P, Q) = 2 int p q / (p + q) of the pairs that a trade-off function allows.

1 - B is an f-divergence. For a curve that covers both orders, it is the integral of 8 delta(log t)
/ (1 + t)^3 over t = e^epsilon >= 1, which is the mean of delta for s = 4 / (1 + t)^2 in [0, 1].
delta is convex in t. Therefore, on each interval of t, delta is below its chord, and its mean is
above its value at the mean of t [OP-1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from neyman.curves.profiles.profile import Profile
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import down, up


@dataclass(frozen=True)
class Limits:
    """Limits on the intervals of the integral."""

    pieces: int = 1500  # number of intervals of t
    largest_place: float = 1e9  # largest t: beyond it 1 - B is at most 4e-18
    rounding_share: float = 1e-12


LIMITS = Limits()


def affinity(profiles: list[Profile], method: str, *, costly: bool = False) -> Bound:
    """Return bounds on the smallest affinity of a pair that the profiles allow, in both orders.

    ``costly``: True if each delta takes a search.
    """
    pieces = 24 if costly else LIMITS.pieces  # if each delta takes a search
    places = np.concatenate([[0.0], np.geomspace(1e-6, LIMITS.largest_place, pieces)])  # t - 1
    start, end = 2 + places[:-1], 2 + places[1:]  # 1 + t
    width = np.diff(places)
    mass = 4 * width * (start + end) / (start * end) ** 2
    share = start / (start + end)  # the mean of 1 + t is harmonic
    # Logarithms and sums err by a few units.
    # slack: counted
    high = np.max([_deltas(p, np.log1p(places) * (1 - 8 * UNIT))[1] for p in profiles], axis=0)
    mean = np.log1p(places[:-1] + width * share) * (1 + 16 * UNIT)  # slack: counted
    low = np.max([_deltas(p, mean)[0] for p in profiles], axis=0)
    chord = high[:-1] * (1 - share) + high[1:] * share
    most = float(np.sum(mass * chord) + 4 / end[-1] ** 2 * high[-1]) * (1 + LIMITS.rounding_share)
    least = float(np.sum(mass * low)) * (1 - LIMITS.rounding_share)
    upper = min(up(1 - least, 1), 1.0)
    return Bound(min(down(1 - most, 1), upper) if most else 1.0, upper, "lower", method)


def _deltas(profile: Profile, epsilons: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds on delta at each epsilon."""
    low, high = profile.log_deltas(epsilons)
    high = np.nan_to_num(high, nan=0.0, neginf=-math.inf)
    least = np.exp(np.minimum(low, 0.0)) * (1 - LIMITS.rounding_share)
    most = np.exp(np.minimum(high, 0.0)) * (1 + LIMITS.rounding_share)
    return least, np.minimum(most, 1.0)
