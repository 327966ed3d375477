"""Tabulate the power function of a symmetric trade-off curve from its privacy profile.

A costly profile is evaluated once, and powers follow from the table. With t = e^epsilon, g(t) =
delta + t level is convex, and its smallest value is the power. Any other value of g is an upper
bound. For a lower bound between two adjacent nodes: g is above the extended line through the two
nodes before them, and above the extended line through the two nodes after them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.profiles.profile import Profile, log_delta_below_zero
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import bisect

Arrays = tuple[Array, Array]


@dataclass(frozen=True)
class Limits:
    """Limit the number, the spacing, and the range of the nodes, the epsilons of the table."""

    first_share: float = 1e-5  # first of these nodes, as a share of the farthest
    nodes: int = 1500  # for levels down to 1e-15
    least_log_delta: float = -720.0  # smallest log delta at a node
    largest_place: float = 1e6


LIMITS = Limits()
SPREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def _reach(profile: Profile, log_delta: float, most: float) -> float:
    """Return an epsilon of at most ``most`` with log delta at most ``log_delta``, else ``most``."""
    end = min(1.0, most)
    while end < most and profile.log_delta(end)[1] > log_delta:
        end = min(2 * end, most)
    # A few digits are enough to place the nodes well.
    return bisect(lambda e: profile.log_delta(e)[1] <= log_delta, end, 0.0, rounds=20)[0]


def _tangent_levels(epsilon: Array, log_delta: Array) -> Array:
    """Return the log levels at which delta + level e^epsilon is equal for adjacent epsilons."""
    with np.errstate(all="ignore"):
        drop = np.log(-np.expm1(np.minimum(np.diff(log_delta), -1e-300)))
        crossing = log_delta[:-1] + drop - epsilon[:-1] - np.log(np.expm1(np.diff(epsilon)))
    return np.minimum.accumulate(np.where(np.isnan(crossing), -math.inf, crossing))


class TabulatedPower:
    """Compute the power of a curve that is its own inverse, from a table of its profile.

    Args:
        profile: the profile of the curve.
        supremum: the largest finite loss, or inf.
        infinite: the mass of infinite loss.
    """

    def __init__(self, profile: Profile, supremum: float, infinite: float) -> None:
        floor = math.log(infinite) + 1e-15 if infinite else -math.inf
        far = _reach(
            profile, max(LIMITS.least_log_delta, floor), min(supremum, LIMITS.largest_place)
        )
        # Nodes that decide where more nodes are placed.
        first = np.geomspace(far * LIMITS.first_share, far, 300)
        # Place nodes evenly in the normal quantiles of the levels.
        z = -ndtri_exp(np.minimum(_tangent_levels(first, profile.log_deltas(first)[1]), -1e-12))
        z = np.maximum.accumulate(np.where(np.isfinite(z), z, 0.0))
        z, at = np.unique(z, return_index=True)
        near = np.linspace(float(z[0]), 8.0, LIMITS.nodes)
        wanted = np.concatenate([near, np.linspace(8.0, 38.0, 400)])  # for smaller levels
        middle = np.interp(wanted, z, first[:-1][at])
        # Evenly spaced nodes, because the distribution may have atoms.
        nodes = np.unique(np.concatenate([first, np.linspace(0, far, 1000)[1:], middle]))
        # Smallest relative distance between nodes.
        nodes = nodes[np.append(np.diff(nodes) > 1e-9 * nodes[:-1], True)]
        step = float(nodes[-1] - nodes[-2])
        nodes = np.concatenate([nodes, far + step * 2.0 ** np.arange(9)])
        low, high = profile.log_deltas(np.concatenate([[0.0], nodes]))
        ended = np.concatenate([[0.0], nodes]) >= supremum
        end = math.log(infinite) if infinite else -math.inf
        # slack: what_is_left_beyond_the_largest_loss
        slack = 4 * UNIT * (4 + abs(end)) if infinite else 0.0  # the rounding error is relative
        low, high = np.where(ended, end - slack, low), np.where(ended, end + slack, high)
        below = log_delta_below_zero(-nodes, (low[1:], high[1:]))
        self._epsilon = np.concatenate([-nodes[::-1], [0.0], nodes])
        self._low = np.concatenate([below[0][::-1], low])
        self._high = np.concatenate([below[1][::-1], high])
        # The levels at which the minimum moves to the next node. Below 0, use reflection: if the
        # curve has the slope e^epsilon at (level, power), it has the slope e^-epsilon at
        # (1 - power, 1 - level).
        at = np.concatenate([[0.0], nodes])
        touch = _tangent_levels(at, high)
        power = np.exp(high[:-1]) + np.exp(at[:-1] + touch)
        mirror = np.log1p(-np.minimum(power, 1 - 1e-16))[::-1]
        self._touch = np.minimum.accumulate(np.concatenate([mirror, touch]))
        self._anchors = np.zeros((2, 0))
        levels = np.unique(self._touch[np.isfinite(self._touch) & (self._touch < -1e-12)])
        powers = self.log_powers(levels)[0]
        # The power is concave: below an anchor its ratio to the level is no smaller, and above an
        # anchor the power is no smaller.
        ratio = np.maximum.accumulate((powers - levels)[::-1])[::-1]
        self._anchors = np.array([levels, np.maximum.accumulate(powers), ratio])

    def log_powers(self, log_levels: Array) -> Arrays:
        """Return certified bounds on log power at many finite log levels."""
        last = len(self._epsilon) - 1
        star = np.searchsorted(-self._touch, -log_levels)
        near = np.clip(star[:, None] + np.arange(-4, 5), 0, last)
        values = np.logaddexp(self._high[near], self._epsilon[near] + log_levels[:, None])
        # Errors: a sum of logarithms has a relative error of one unit, and the logarithm of a sum
        # of powers 4 units, relative and absolute. The power is at least the level, so its
        # logarithm is no larger in size.
        slack = 8 * UNIT * (2 + np.abs(log_levels))  # slack: counted
        high = values.min(axis=1)
        star = near[np.arange(len(star)), values.argmin(axis=1)]
        low = log_levels.copy()  # the power is at least the level
        for m in SPREADS:
            good = np.flatnonzero((star >= 2 * m) & (star <= last - 2 * m))
            if len(good):
                lower = self._power_floor(star[good], m, log_levels[good], high[good])
                low[good] = np.maximum(low[good], lower)
        if self._anchors.size:
            levels, powers, ratio = self._anchors
            at = np.searchsorted(levels, log_levels)
            low = np.maximum(low, np.append(ratio, 0.0)[at] + log_levels)
            low = np.maximum(low, np.append(-math.inf, powers)[at])
        size = np.where(np.isfinite(high), np.abs(high), 0.0)
        # slack: counted
        return np.minimum(low - slack, high), np.minimum(high + slack + 8 * UNIT * size, 0.0)

    def _power_floor(self, star: Array, m: int, log_levels: Array, base: Array) -> Array:
        """Bound log power from below by five nodes [CN-6], or return -inf if they prove nothing.

        Args:
            star: index of the middle node, for each level.
            m: distance of the nodes, in indices.
            base: an upper bound on log power, for scaling.
        """
        at = star[:, None] + m * np.arange(-2, 3)
        epsilon, line = self._epsilon[at], self._epsilon[at] + log_levels[:, None]
        with np.errstate(all="ignore"):
            low = np.exp(np.logaddexp(self._low[at], line) - base[:, None])
            high = np.exp(np.logaddexp(self._high[at], line) - base[:, None])
            t = np.expm1(epsilon - epsilon[:, 2:3])
            value = np.minimum(_valley(t, low, high, 1), _valley(t, low, high, 2))
            inside = (low[:, 1] >= high[:, 2]) & (low[:, 3] >= high[:, 2])
            size = 64 * UNIT * (1 + np.max(high, axis=1))  # slack: open
            value = np.where(inside & (value > size), np.log(value - size) + base, -math.inf)
        return np.where(np.isnan(value), -math.inf, value)


def _valley(t: Array, low: Array, high: Array, i: int) -> Array:
    """Return a lower bound on a convex function between node i and the next node.

    ``low`` and ``high`` bound its values at the nodes ``t``. All have the shape (levels, nodes).
    """
    # A lower bound on the slope from the left, and an upper bound from the right.
    a = (low[:, i] - high[:, i - 1]) / (t[:, i] - t[:, i - 1])
    b = (high[:, i + 2] - low[:, i + 1]) / (t[:, i + 2] - t[:, i + 1])
    width = t[:, i + 1] - t[:, i]
    start, end = low[:, i], low[:, i + 1]
    cross = np.clip(np.nan_to_num((end - b * width - start) / (a - b)), 0.0, width)
    inner = [np.maximum(start + a * x, end - b * (width - x)) for x in (0.0, width, cross)]
    return np.minimum.reduce(inner)
