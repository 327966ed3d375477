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
from neyman.numerics.bound import Bound


@dataclass(frozen=True)
class Limits:
    """Limits on the intervals of the integral."""

    pieces: int = 1500  # number of intervals of t
    costly_pieces: int = 24  # if each delta takes a search
    largest_place: float = 1e9  # largest t: beyond it 1 - B is at most 4e-18
    rounding_share: float = 1e-12


LIMITS = Limits()


def affinity(profiles: list[Profile], method: str, *, costly: bool = False) -> Bound:
    """Return bounds on the smallest affinity of a pair that the profiles allow, in both orders.

    ``costly``: True if each delta takes a search.
    """
    pieces = LIMITS.costly_pieces if costly else LIMITS.pieces
    t = 1 + np.concatenate([[0.0], np.geomspace(1e-6, LIMITS.largest_place, pieces)])
    mass = np.diff(-4 / (1 + t) ** 2)
    # int 8 t / (1 + t)^3 = 4 / (1 + t)^2 - 8 / (1 + t), up to a constant
    first = np.diff(4 / (1 + t) ** 2 - 8 / (1 + t))
    mean = np.clip(first / mass, t[:-1], t[1:])
    high = np.max([_deltas(p, t)[1] for p in profiles], axis=0)
    low = np.max([_deltas(p, mean)[0] for p in profiles], axis=0)
    share = np.clip((mean - t[:-1]) / np.diff(t), 0.0, 1.0)
    chord = high[:-1] + (high[1:] - high[:-1]) * share
    most = float(np.sum(mass * chord)) * (1 + LIMITS.rounding_share)
    most += 4 / (1 + t[-1]) ** 2 * float(high[-1])
    # The mean of t on a piece errs by a share of the piece, and so does the chord's value.
    most += float(np.sum(mass * (high[:-1] - high[1:]))) * 1e-6
    least = float(np.sum(mass * low)) * (1 - LIMITS.rounding_share)
    least -= float(np.sum(mass * np.abs(np.gradient(low)))) * 1e-6
    upper = min(max(1 - least, 0.0), 1.0)
    return Bound(float(min(max(1 - most, 0.0), upper)), float(upper), "lower", method)


def _deltas(profile: Profile, t: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds on delta at each t = e^epsilon."""
    low, high = profile.log_deltas(np.log(t))
    high = np.nan_to_num(high, nan=0.0, neginf=-math.inf)
    least = np.exp(np.minimum(low, 0.0)) * (1 - LIMITS.rounding_share)
    most = np.exp(np.minimum(high, 0.0)) * (1 + LIMITS.rounding_share)
    return least, np.minimum(most, 1.0)
