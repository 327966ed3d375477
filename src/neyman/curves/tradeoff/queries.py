"""The searches behind the questions that a trade-off function answers, and their rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.profiles.duality import line_at, log_power_by_duality
from neyman.curves.profiles.profile import Interval, Profile
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import fresh_engines
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import above, exp_down, exp_up, log_of


@dataclass(frozen=True)
class Limits:
    """How an epsilon is looked for."""

    epsilon_width: float = 1e-12  # relative tolerance of an epsilon that a search finds
    end_distance: float = 1e-6  # of a largest loss, relative, where no secant goes
    secant_step: float = 1e-7  # of a secant, relative
    guess_moves: int = 5  # of a guess at an epsilon, each of which doubles its digits
    line_deviations: float = 2.0  # deviations of a normal law that the lines of one epsilon serve
    quick_epsilons: int = 12  # epsilons at which a costly profile is asked for quick bounds
    alone_widths: float = 2.0  # times the width of an answer alone, at which it is asked alone
    settled_width: float = 1e-12  # relative width with which it is not
    last_log_level: float = -1e-9  # logarithm of the largest level at which a search ends
    largest_epsilon: float = 1e12  # an epsilon beyond which only masses of infinite loss count
    slope_log_level: float = 1e-5  # of the logarithm of a level, from which a slope is taken
    least_slope: float = 1e-300  # of a curve that rises
    power_width: float = 1e-9  # width of log power with which one line is enough


LIMITS = Limits()
NEARER = (1e-3, 1e-2, 0.1, 0.5)  # distances from an upper end at which a lower one is looked for
PRIOR_OF_SUCCESS = "if the baseline is the attacker's best chance once they know all other records"


def source_note(sources: tuple[str, ...]) -> str:
    """Return what a sentence begins with whose number is not certified; "" where all is."""
    reasons = "; ".join(source.removeprefix("estimate: ") for source in sources)
    if any(source.startswith("estimate: ") for source in sources):
        return f"Estimate, and no guarantee ({reasons}). "
    return f"{reasons[:1].upper()}{reasons[1:]}. " if reasons else ""


def level_slack(log_level: float) -> float:
    """By how much the logarithm of a level may be rounded."""
    return 2 * UNIT * (1 + abs(log_level))


def target_slack(log_delta: Any) -> Any:
    """By how much the logarithm of a delta, or of several, may be rounded."""
    return 2 * UNIT * (1 + np.abs(log_delta))


def settled(log_level: float, low: float, high: float) -> Interval:
    """Bounds on log power: at least the level, whose logarithm is rounded."""
    if log_level == -math.inf:
        return low, high
    slack = level_slack(log_level)  # log power moves by at most as much as the level's
    high = min(max(high, log_level) + slack, 0.0)
    return min(max(low, log_level) - slack, high), high


def concave_power(
    log_delta: Callable[[float], Interval],
    log_power: Callable[[float], Interval],
    log_level: float,
    known: Interval,
) -> Interval:
    """Bounds on the log of the least concave curve above the powers of several pairs [RK-2].

    That curve is the least of delta + e^epsilon level, with the worst delta of all pairs [DU-1].
    One line is enough where one pair has the largest power near the level.

    Args:
        log_delta: bounds on the worst log delta of all pairs, at any epsilon.
        log_power: bounds on the largest log power of all pairs.
        log_level: logarithm of the level, finite and below 0.
        known: those of the largest log power at the level.
    """
    slope = max(
        (known[1] - log_power(log_level - LIMITS.slope_log_level)[1]) / LIMITS.slope_log_level,
        LIMITS.least_slope,
    )
    epsilon = known[1] - log_level + math.log(slope)
    high = line_at(log_delta(epsilon), epsilon, log_level)[1]
    if high - known[0] <= LIMITS.power_width:
        return known[0], max(high, known[0])
    least, most = log_power_by_duality(log_delta, log_level)
    high = min(high, most, 0.0)
    return min(max(known[0], least), high), high


def within(mass: float, delta: float | None, log_delta: float) -> bool:
    """Whether a mass of infinite loss fits into delta."""
    return mass <= delta if delta is not None else log_of(mass) <= log_delta


def epsilon_at(
    profile: Profile, target: float, supremum: Fraction | float, *, alone: bool = True
) -> Interval:
    """Bounds on the smallest epsilon >= 0 with log delta <= target; at most the supremum.

    Each end inverts its own side of the profile to a relative 1e-12, and on the safe side: the
    profile's upper bound of delta at the upper end is within the target. So is the answer of an
    engine that is asked for the delta there alone, unless ``alone`` is False.
    """
    # The logarithm of delta is rounded: each side is asked for a little more than it.
    slack = float(target_slack(target))
    if profile.log_total_variation() + slack <= target:
        return 0.0, 0.0
    near = min(max(profile.epsilon_near(target), 1e-9), LIMITS.largest_epsilon)
    ends = _search_profile(profile, target, slack, supremum, near)
    if not alone or not 0 < ends[1] < above(supremum) or profile.alone(ends[1]):
        return ends
    with fresh_engines():
        meets = profile.log_delta(ends[1])[1] + slack <= target
        if meets and profile.log_delta(ends[1] * (1 - LIMITS.epsilon_width))[1] + slack > target:
            return ends  # what this engine would find, too
        return _search_profile(profile, target, slack, supremum, ends[1])


def _search_profile(
    profile: Profile, target: float, slack: float, supremum: Fraction | float, near: float
) -> Interval:
    """Return the same by one engine, which answers from what is nearby, from a guess on."""
    most = above(supremum)
    if near * (1 + LIMITS.end_distance) < most:
        answer = _secants(profile, np.array([target]), np.array([near]))
        if answer[0][0] >= 0:
            return float(answer[0][0]), float(answer[1][0])

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
            if low >= most or high > LIMITS.largest_epsilon:
                return min(low, most), most
        while low > 0 and ask(low, side) <= target:
            low, high, grow = max(low - grow, 0.0), low, 4 * grow
        return falls_to(
            lambda e: ask(e, side), target, low, high, LIMITS.epsilon_width, floor=1e-9
        )  # [DU-3]

    low, high = crossing(1)
    high = min(high, most)
    if low < high and ask(low, 0) > target:
        return low, high  # one bracket certifies both ends
    least = crossing(0)[0]
    if least == 0 < high < math.inf:  # an engine that knows nothing of 0 may know delta near there
        for share in NEARER:
            place = (1 - share) * high
            if ask(place, 0) > target:
                least = falls_to(
                    lambda e: ask(e, 0), target, place, high, LIMITS.epsilon_width, floor=1e-9
                )[0]
                break
    return min(least, high), high


@np.errstate(invalid="ignore", divide="ignore")
def _secants(
    profile: Profile,
    targets: Array,
    near: Array,
    side: int | None = None,
    moves: int = LIMITS.guess_moves,
) -> tuple[Array, Array]:
    """Return the same where the guesses are good: secants find both ends, and four questions
    certify them.

    Args:
        profile: of an ordered pair.
        targets: logarithms of delta, falling.
        near: a guess at the epsilon of each.
        side: the bounds of log delta to invert alone, 0 for the lower and 1 for the upper ones.
        moves: of a guess, at most.

    Returns:
        The ends; nan where a secant does not settle.
    """
    slack = target_slack(targets)
    shift = np.array([-slack, slack]) - targets
    sides = [0, 1] if side is None else [side, side]
    near, count = near.copy(), len(targets)

    def excess(places: Array, at: Array) -> Array:
        """By how much the bounds exceed the targets; the first axis is the side."""
        rows = places.reshape(-1, len(at)).T  # those of a target stand together
        bounds = np.array(profile.log_deltas(rows.ravel())).reshape(2, *rows.shape)
        bounds = bounds.transpose(0, 2, 1)[sides].reshape(2, *places.shape)
        return bounds + shift[:, at].reshape(2, *(1,) * (places.ndim - 1), -1)

    def newton(at: Array) -> tuple[Array, Array]:
        """Where both sides cross the targets, and how steep they are."""
        place, step = near[at], LIMITS.secant_step * near[at]
        rise = excess(np.array([place - step, place + step]), at)
        slopes = (rise[:, 0] - rise[:, 1]) / (2 * step)
        return place - step + rise[:, 0] / slopes, slopes

    at = np.arange(count)
    ends, slopes = newton(at)
    good = at >= 0
    for _ in range(moves):
        fits = (slopes > 0) & (np.abs(ends - near) <= 0.5 * near)
        good &= np.logical_and.reduce(fits, axis=0)
        moved = 0.5 * np.add.reduce(ends, axis=0)
        at = (good & (np.abs(moved - near) > 5 * LIMITS.secant_step * near)).nonzero()[0]
        if not len(at):
            break
        near[at] = moved[at]
        ends[:, at], slopes[:, at] = newton(at)
    half, answer = LIMITS.epsilon_width * near / 4, np.zeros((2, count)) + math.nan
    for _ in range(4):
        fits = (slopes > 0) & (np.abs(ends - near) <= 10 * LIMITS.secant_step * near)
        good &= np.logical_and.reduce(fits, axis=0)
        at = good.nonzero()[0]
        if not len(at):
            break
        places = np.array([ends[:, at] - half[at], ends[:, at] + half[at]])
        rise = excess(places, at)
        rise = np.array([rise[0, :, 0], rise[1, :, 1]])  # each side at its own two places
        sure = np.logical_and.reduce((rise[:, 0] > 0) & (rise[:, 1] <= 0), axis=0)
        done = at[sure]
        high = places[1, 1, sure]
        answer[1, done] = high
        answer[0, done] = np.minimum(np.maximum(places[0, 0, sure], 0.0), high)
        ends[:, at] += 0.5 * np.add.reduce(rise, axis=1) / slopes[:, at]
        good[done] = False
    return answer[0], answer[1]


def surely_within(profile: Profile, epsilons: Array, log_deltas: Array) -> Array:
    """Whether log delta at each epsilon is certainly at most so much.

    Of a costly profile quick bounds at a few epsilons come first, because delta falls. Then lines
    decide, as many as serve all that is left.
    """
    sure = np.zeros(len(epsilons), bool)
    if profile.costly:
        first = np.unique(np.linspace(0, len(epsilons) - 1, LIMITS.quick_epsilons).astype(int))
        least = np.minimum.reduceat(epsilons, first)
        quick = np.array([profile.log_delta_above(float(v)) for v in least])
        sure = np.repeat(quick, np.diff(np.append(first, len(epsilons)))) <= log_deltas
    if not sure.all():
        sure[~sure] = profile.log_deltas(epsilons[~sure])[1] <= log_deltas[~sure]
    return sure


def deltas_at(profile: Profile, epsilons: Array) -> tuple[Array, Array]:
    """Bounds on log delta at increasing epsilons, about as narrow as those of each alone.

    An epsilon in the middle is asked alone, of an engine that no one has asked. What serves it
    serves its neighbors, and those that it serves badly are asked the same way.
    """
    low, high = np.empty(len(epsilons)), np.empty(len(epsilons))
    chunks = [np.arange(len(epsilons))]
    while chunks:
        at = chunks.pop()
        middle = int(at[len(at) // 2])
        others = at[at != middle]
        with fresh_engines():
            low[middle], high[middle] = profile.log_delta(float(epsilons[middle]))
            if len(others):
                low[others], high[others] = profile.log_deltas(epsilons[others])
        width = _widths(low[at], high[at], 1 + np.abs(high[at]))
        own = max(float(width[len(at) // 2]), LIMITS.settled_width)
        wide = at[width > LIMITS.alone_widths * own]
        chunks += [part for part in (wide[wide < middle], wide[wide > middle]) if len(part)]
    return low, high


def epsilons_at(
    profile: Profile, targets: Array, supremum: Fraction | float
) -> tuple[Array, Array]:
    """Bounds on the epsilons of falling log deltas: those of a neighborhood by the same lines.

    The search of `epsilon_at` finds one in the middle. Secants find the others of its neighborhood
    from there on, all at once. What they find less narrow is asked the same way.
    """
    low, high = np.empty(len(targets)), np.empty(len(targets))
    # A line serves about a deviation of a normal distribution, whose log delta at x of them is -
    # x^2 / 2.
    place = np.floor(
        (np.sqrt(-2 * targets) - math.sqrt(-2 * float(targets[0]))) / LIMITS.line_deviations
    )
    chunks = [np.flatnonzero(place == k) for k in np.unique(place)]
    most = above(supremum)
    while chunks:
        at = chunks.pop()
        middle = int(at[len(at) // 2])
        others = at[at != middle]
        with fresh_engines():
            alone = len(targets) == 1
            ends = epsilon_at(profile, float(targets[middle]), supremum, alone=alone)
            low[middle], high[middle] = ends
            if len(others) and ends[0] > 0 and ends[1] * (1 + LIMITS.end_distance) < most:
                below, over = _neighbors(profile, targets[others], ends, float(targets[middle]))
                low[others], high[others] = below, np.minimum(over, most)
            else:  # epsilon is 0 above a delta, and the largest loss below one
                low[others], high[others] = ends
                exact = (
                    ends[0] == ends[1]
                    or ends[1] - ends[0] <= LIMITS.settled_width * ends[1] < math.inf
                )
                same = others < middle if ends[1] == 0 else (others > middle) & (ends[1] >= most)
                low[others[~(same & exact)]] = math.nan
        width = _widths(low[at], high[at], high[at])
        own = max(float(width[len(at) // 2]), LIMITS.settled_width)
        wide = at[~(width <= LIMITS.alone_widths * own)]
        chunks += [part for part in (wide[wide < middle], wide[wide > middle]) if len(part)]
    return np.minimum(low, high), high


def _neighbors(
    profile: Profile, targets: Array, ends: Interval, target: float
) -> tuple[Array, Array]:
    """Bounds on the epsilons of log deltas near one that is known; nan where nothing is found."""
    center = 0.5 * (ends[0] + ends[1])
    step = LIMITS.secant_step * center
    first, last = map(float, profile.log_deltas(np.array([center - step, center + step]))[1])
    slope = (last - first) / (2 * step) if first > -math.inf else math.nan
    if not -math.inf < slope < 0:
        return np.full(len(targets), math.nan), np.full(len(targets), math.nan)
    near = np.maximum(center + (targets - target) / slope, 0.1 * center)
    low, high = _secants(profile, targets, near, moves=2 * LIMITS.guess_moves)
    lost = np.flatnonzero(np.isnan(low))
    if len(lost):  # the bounds of delta are apart: each side has its own crossing
        low[lost] = _secants(profile, targets[lost], near[lost], 0, 2 * LIMITS.guess_moves)[0]
        high[lost] = _secants(profile, targets[lost], near[lost], 1, 2 * LIMITS.guess_moves)[1]
    return low, high


def _widths(low: Array, high: Array, scale: Array) -> Array:
    """Relative widths of intervals, 0 where both ends are the same, even infinity."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(low == high, 0.0, (high - low) / scale)


def sampled_mu(profile: Profile) -> float:
    """Return the largest certified z(power) - z(level) over a set of levels."""
    log_levels = np.log(np.concatenate([np.geomspace(1e-12, 0.1, 12), [0.2, 0.3, 0.4, 0.5]]))
    low = np.minimum(profile.one_sided(-1).log_powers(log_levels)[0], 0.0)
    sure = low < 0
    mus = ndtri_exp(low[sure]) - ndtri_exp(log_levels[sure])
    return max(0.0, float(mus.max())) if sure.any() else 0.0


def pbdp_delta(profile: Profile, epsilon: float, known: float = 0.0) -> Interval:
    """Bounds on the largest power at which power / level still exceeds e^epsilon.

    Args:
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
        low, high = first, min(LIMITS.last_log_level, 1e-6 - epsilon)
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
            low, width = near, LIMITS.epsilon_width * max(1.0, abs(near))
            while near + width < high and ask(near + width) > epsilon:
                low, width = near + width, 16 * width
            high = min(near + width, high)
        near, right = falls_to(ask, epsilon, low, high)
        results.append(power(right if side else near)[side])
    return min(exp_down(results[0]), exp_up(results[1])), exp_up(results[1])
