"""The searches behind the questions that a trade-off function answers, and their rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.profiles.profile import Interval, Profile
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import fresh_engines
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import above, exp_down, exp_up, log_of

TIGHT = 1e-12  # relative tolerance of an epsilon that a search finds
STEP = 1e-7  # of a secant, relative
NEARER = (1e-3, 1e-2, 0.1, 0.5)  # distances from an upper end at which a lower one is looked for
MOVES = 5  # of a guess at an epsilon, each of which doubles its digits
LAST_LEVEL = -1e-9  # logarithm of the largest level at which a search ends
FARTHEST = 1e12  # an epsilon beyond which only masses of infinite loss count


def level_slack(log_level: float) -> float:
    """By how much the logarithm of a level may be rounded."""
    return 2 * UNIT * (1 + abs(log_level))


def settled(log_level: float, low: float, high: float) -> Interval:
    """Bounds on log power: at least the level, whose logarithm is rounded."""
    if log_level == -math.inf:
        return low, high
    slack = level_slack(log_level)  # log power moves by at most as much as the level's
    high = min(max(high, log_level) + slack, 0.0)
    return min(max(low, log_level) - slack, high), high


def within(mass: float, delta: float | None, log_delta: float) -> bool:
    """Whether a mass of infinite loss fits into delta."""
    return mass <= delta if delta is not None else log_of(mass) <= log_delta


def epsilon_at(profile: Profile, target: float, supremum: Fraction | float) -> Interval:
    """Bounds on the smallest epsilon >= 0 with log delta <= target; at most the supremum.

    Each end inverts its own side of the profile to a relative 1e-12, and on the safe side: the
    profile's upper bound of delta at the upper end is within the target. So is the answer of an
    engine that is asked for the delta there alone.
    """
    # The logarithm of delta is rounded: each side is asked for a little more than it.
    slack = 2 * UNIT * (1 + abs(target))
    if profile.log_total_variation() + slack <= target:
        return 0.0, 0.0
    near = min(max(profile.epsilon_near(target), 1e-9), FARTHEST)
    ends = _searched(profile, target, slack, supremum, near)
    if not 0 < ends[1] < above(supremum) or profile.alone(ends[1]):
        return ends
    with fresh_engines():
        meets = profile.log_delta(ends[1])[1] + slack <= target
        if meets and profile.log_delta(ends[1] * (1 - TIGHT))[1] + slack > target:
            return ends  # what this engine would find, too
        return _searched(profile, target, slack, supremum, ends[1])


def _searched(
    profile: Profile, target: float, slack: float, supremum: Fraction | float, near: float
) -> Interval:
    """The same by one engine, which answers from what is nearby, from a guess on."""
    most = above(supremum)
    if near * (1 + 1e-6) < most and (ends := _secant(profile, target, slack, near)) is not None:
        return ends

    def ask(epsilon: float, side: int) -> float:
        value = profile.log_delta(epsilon)[side]
        return value + slack if side else value - slack

    def crossing(side: int) -> tuple[float, float]:
        low, high = (0.0, near) if near == 1.0 else (near * (1 - 1e-3), near * (1 + 1e-3))
        grow = high - low
        # Far above 0 an engine may know nothing of 0.
        if not (low > 0 and ask(low, side) > target) and ask(0.0, side) <= target:
            return 0.0, 0.0
        while ask(high, side) > target:
            low, high, grow = high, min(high + grow, most), 4 * grow
            if low >= most or high > FARTHEST:
                return min(low, most), most
        while low > 0 and ask(low, side) <= target:
            low, high, grow = max(low - grow, 0.0), low, 4 * grow
        return falls_to(lambda e: ask(e, side), target, low, high, TIGHT, floor=1e-9)  # [DU-3]

    low, high = crossing(1)
    high = min(high, most)
    if low < high and ask(low, 0) > target:
        return low, high  # one bracket certifies both ends
    least = crossing(0)[0]
    if least == 0 < high < math.inf:  # an engine that knows nothing of 0 may know delta near there
        for share in NEARER:
            place = (1 - share) * high
            if ask(place, 0) > target:
                least = falls_to(lambda e: ask(e, 0), target, place, high, TIGHT, floor=1e-9)[0]
                break
    return min(least, high), high


def _secant(profile: Profile, target: float, slack: float, near: float) -> Interval | None:
    """The same where the guess is good: secants find both ends, and four questions certify them."""
    shift = np.array([-slack, slack])[:, None] - target

    def newton(near: float) -> tuple[Array, Array]:
        """Where both sides cross the target, and how steep they are."""
        step = STEP * near
        first, last = (np.array(profile.log_deltas(near + np.array([-step, step]))) + shift).T
        with np.errstate(invalid="ignore", divide="ignore"):
            slopes = (first - last) / (2 * step)
            return near - step + first / slopes, slopes

    ends, slopes = newton(near)
    for _ in range(MOVES):
        if not (np.all(slopes > 0) and np.all(np.abs(ends - near) <= 0.5 * near)):
            return None
        moved = float(ends.mean())
        if abs(moved - near) <= 5 * STEP * near:
            break
        near = moved
        ends, slopes = newton(near)
    half = TIGHT * near / 4
    for _ in range(4):
        if not (np.all(slopes > 0) and np.all(np.abs(ends - near) <= 10 * STEP * near)):
            return None
        places = np.array([ends - half, ends + half])
        below, above = (end.reshape(2, 2) for end in profile.log_deltas(places.ravel()))
        excess = np.array([below[:, 0], above[:, 1]]) + shift  # a row for each side
        if np.all(excess[:, 0] > 0) and np.all(excess[:, 1] <= 0):
            high = float(places[1, 1])
            return min(max(float(places[0, 0]), 0.0), high), high
        ends = ends + excess.mean(axis=1) / slopes
    return None


def sampled_mu(profile: Profile) -> float:
    """The largest certified z(power) - z(level) over a set of levels."""
    log_levels = np.log(np.concatenate([np.geomspace(1e-12, 0.1, 12), [0.2, 0.3, 0.4, 0.5]]))
    low = np.minimum(profile.one_sided(-1).log_powers(log_levels)[0], 0.0)
    sure = low < 0
    mus = ndtri_exp(low[sure]) - ndtri_exp(log_levels[sure])
    return max(0.0, float(mus.max())) if sure.any() else 0.0


def pbdp_delta(profile: Profile, epsilon: float, known: float = 0.0) -> Interval:
    """Bounds on the largest power at which power / level still exceeds e^epsilon.

    Args:
        profile: of an ordered pair.
        epsilon: at least 0.
        known: what another pair has; if this pair has no more, that is the upper end.
    """
    power = cache(profile.log_power)
    if known > 0:
        level = math.log(known) - epsilon
        slack = 4 * UNIT * (1 + abs(level) + epsilon)
        if power(level)[1] - level <= epsilon - slack:  # where they meet power = e^epsilon level
            return 0.0, exp_up(level + epsilon + slack)

    def excess(side: int) -> Callable[[float], float]:
        return lambda log_level: power(log_level)[side] - log_level

    # The largest power - e^epsilon level is delta, which is reached before the two meet: where they
    # meet, the power is at least delta, and at most 1. The lowest level comes first, so that what
    # is built for it serves the others.
    least = profile.log_delta(epsilon)[0] - epsilon - 1
    first = min(-1.0, least) if least > -1e6 else -1.0
    results: list[float] = []
    near = None
    for side in (0, 1):
        ask = excess(side)
        low, high = first, min(LAST_LEVEL, 1e-6 - epsilon)
        while ask(low) <= epsilon and low > -1e6:
            low, high = 2 * low, low
        if ask(low) <= epsilon:
            # Not above e^epsilon down to this level: power is at most e^epsilon times it there.
            rest = power(-math.inf)[side]
            results.append(max(rest, low + epsilon) if side else rest)
            continue
        if ask(high) > epsilon:
            results.append(0.0 if side else power(high)[0])
            continue
        if near is not None:  # the upper bounds cross a little beyond the lower ones
            low, width = near, TIGHT * max(1.0, abs(near))
            while near + width < high and ask(near + width) > epsilon:
                low, width = near + width, 16 * width
            high = min(near + width, high)
        near, right = falls_to(ask, epsilon, low, high)
        results.append(power(right if side else near)[side])
    return min(exp_down(results[0]), exp_up(results[1])), exp_up(results[1])
