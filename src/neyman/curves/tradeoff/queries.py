"""Search for epsilon and other answers of a trade-off function, and bound their rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from neyman.curves.profiles.duality import line_at, log_power_by_duality
from neyman.curves.profiles.profile import Interval, Profile
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import fresh_engines
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import above, exp_down, exp_up, log_of, normal_quantile


@dataclass(frozen=True)
class Limits:
    """Limits on the tolerances and steps of the search for an epsilon."""

    epsilon_width: float = 1e-12  # relative tolerance of an epsilon
    end_distance: float = 1e-6  # relative distance from the largest loss that secants need
    secant_step: float = 1e-7  # relative step of a secant
    guess_moves: int = 5  # most moves of a guess; each doubles the correct digits
    line_deviations: float = 2.0  # normal standard deviations that one epsilon's lines serve
    alone_widths: float = 2.0  # width, over a single answer's width, that asks for a new search
    settled_width: float = 1e-12  # relative width that never asks for a new search
    largest_epsilon: float = 1e12  # beyond it, only masses of infinite loss count
    power_width: float = 1e-9  # width of log power for which one line is enough


LIMITS = Limits()
NEARER = (1e-3, 1e-2, 0.1, 0.5)  # relative distances from the upper end to try as a lower end
PRIOR_OF_SUCCESS = "if the baseline is the attacker's best chance once they know all other records"


def source_note(sources: tuple[str, ...]) -> str:
    """Return the text that introduces an uncertified number, or "" if there are no sources."""
    reasons = "; ".join(source.removeprefix("estimate: ") for source in sources)
    if any(source.startswith("estimate: ") for source in sources):
        return f"Estimate, and no guarantee ({reasons}). "
    return f"{reasons[:1].upper()}{reasons[1:]}. " if reasons else ""


def level_slack(log_level: float) -> float:
    """Bound the rounding error of the logarithm of a level."""
    return 2 * UNIT * (1 + abs(log_level))  # slack: a_level_whose_logarithm_is_rounded


def target_slack(log_delta: Any) -> Any:
    """Bound the rounding error of the logarithm of one or several deltas."""
    return 2 * UNIT * (1 + np.abs(log_delta))  # slack: an_epsilon_where_delta_hardly_falls


def settled(log_level: float, low: float, high: float) -> Interval:
    """Return bounds on log power, widened by the rounding of the level, and at least the level."""
    if log_level == -math.inf:
        return low, high
    slack = level_slack(log_level)  # log power moves by at most as much as the log level
    high = min(max(high, log_level) + slack, 0.0)
    return min(max(low, log_level) - slack, high), high


def concave_power(
    log_delta: Callable[[float], Interval],
    log_power: Callable[[float], Interval],
    log_level: float,
    known: Interval,
) -> Interval:
    """Bound the log of the smallest concave power above the powers of several pairs [RK-2].

    It is the minimum of delta + e^epsilon level over epsilon, for the worst delta of all pairs
    [DU-1]. One epsilon is enough if one pair has the largest power near the level.

    Args:
        log_delta: returns bounds on the worst log delta of all pairs, at any epsilon.
        log_power: returns bounds on the largest log power of all pairs.
        log_level: logarithm of the level, finite and below 0.
        known: bounds on the largest log power at the level.
    """
    slope_log_level = 1e-5  # step of the log level that gives a slope
    slope = max(
        (known[1] - log_power(log_level - slope_log_level)[1]) / slope_log_level,
        1e-300,  # smallest slope of log power
    )
    epsilon = known[1] - log_level + math.log(slope)
    high = line_at(log_delta(epsilon), epsilon, log_level)[1]
    if high - known[0] <= LIMITS.power_width:
        return known[0], max(high, known[0])
    least, most = log_power_by_duality(log_delta, log_level)
    high = min(high, most, 0.0)
    return min(max(known[0], least), high), high


def within(mass: float, delta: float | None, log_delta: float) -> bool:
    """Return True if a mass of infinite loss is at most delta (from its log if it is None)."""
    return mass <= delta if delta is not None else log_of(mass) <= log_delta


def epsilon_at(
    profile: Profile, target: float, supremum: Fraction | float, *, alone: bool = True
) -> Interval:
    """Bound the smallest epsilon >= 0 with log delta <= target. No bound exceeds the supremum.

    Each end inverts one bound of the profile to a relative 1e-12, on the safe side. At the upper
    end, the profile's upper bound on delta meets the target. Unless ``alone`` is False, this also
    holds if delta is computed at this epsilon alone.
    """
    # The log of delta is rounded, so each side must exceed the target by a small slack.
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
            return ends  # this engine would find the same
        return _search_profile(profile, target, slack, supremum, ends[1])


def _search_profile(
    profile: Profile, target: float, slack: float, supremum: Fraction | float, near: float
) -> Interval:
    """Bound epsilon as `epsilon_at` does, from a guess ``near``, in one search."""
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
        # An engine far above 0 may have no bound at 0.
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
    if least == 0 < high < math.inf:  # without a bound at 0, delta near the upper end may have one
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
    """Bound epsilons from good guesses: secants find both ends, and deltas certify them.

    Args:
        profile: profile of an ordered pair.
        targets: logarithms of delta, decreasing.
        near: a guess at each epsilon.
        side: 0 to invert only the lower bounds of log delta, 1 to invert only the upper bounds.
        moves: largest number of moves of a guess.

    Returns:
        The lower and upper ends, shape (targets,) each; nan if a secant does not settle.
    """
    slack = target_slack(targets)
    shift = np.array([-slack, slack]) - targets
    sides = [0, 1] if side is None else [side, side]
    near, count = near.copy(), len(targets)

    def excess(places: Array, at: Array) -> Array:
        """Return the differences of bounds and targets. The first axis is the side."""
        rows = places.reshape(-1, len(at)).T  # one row per target
        bounds = np.array(profile.log_deltas(rows.ravel())).reshape(2, *rows.shape)
        bounds = bounds.transpose(0, 2, 1)[sides].reshape(2, *places.shape)
        return bounds + shift[:, at].reshape(2, *(1,) * (places.ndim - 1), -1)

    def newton(at: Array) -> tuple[Array, Array]:
        """Return the places at which both sides cross the targets, and their slopes."""
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
        rise = np.array([rise[0, :, 0], rise[1, :, 1]])  # each side at its two places
        sure = np.logical_and.reduce((rise[:, 0] > 0) & (rise[:, 1] <= 0), axis=0)
        done = at[sure]
        high = places[1, 1, sure]
        answer[1, done] = high
        answer[0, done] = np.minimum(np.maximum(places[0, 0, sure], 0.0), high)
        ends[:, at] += 0.5 * np.add.reduce(rise, axis=1) / slopes[:, at]
        good[done] = False
    return answer[0], answer[1]


def surely_within(profile: Profile, epsilons: Array, log_deltas: Array) -> Array:
    """Return True for each epsilon at which log delta is certainly at most the given value.

    Because delta falls, a costly profile first gives quick bounds at a few epsilons, which hold for
    larger epsilons too. Then integrals decide, over lines that all remaining epsilons share.
    """
    sure = np.zeros(len(epsilons), bool)
    if profile.costly:
        # Epsilons with quick bounds of a costly profile.
        first = np.unique(np.linspace(0, len(epsilons) - 1, 12).astype(int))
        least = np.minimum.reduceat(epsilons, first)
        quick = np.array([profile.log_delta_above(float(v)) for v in least])
        sure = np.repeat(quick, np.diff(np.append(first, len(epsilons)))) <= log_deltas
    if not sure.all():
        sure[~sure] = profile.log_deltas(epsilons[~sure])[1] <= log_deltas[~sure]
    return sure


def deltas_at(profile: Profile, epsilons: Array) -> tuple[Array, Array]:
    """Bound log delta at increasing epsilons, about as narrowly as at each epsilon alone.

    delta is computed anew at a middle epsilon. Its lines of integration are also used for the
    others. Epsilons with wide bounds are computed again.
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
    """Bound the epsilons of decreasing log deltas. Nearby log deltas share lines of integration.

    `epsilon_at` finds a middle epsilon of each group of nearby ones. From there, secants find the
    others together. Epsilons with wide bounds are computed again.
    """
    low, high = np.empty(len(targets)), np.empty(len(targets))
    # Lines serve about ``line_deviations`` standard deviations of a normal distribution, whose log
    # delta at x deviations is -x^2 / 2.
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
            else:  # epsilon is 0 at large deltas, and the largest loss at small deltas
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
    """Bound the epsilons of log deltas near a known one; nan where the search fails.

    ``ends``: bounds on the epsilon at which log delta is ``target``.
    """
    center = 0.5 * (ends[0] + ends[1])
    step = LIMITS.secant_step * center
    first, last = map(float, profile.log_deltas(np.array([center - step, center + step]))[1])
    slope = (last - first) / (2 * step) if first > -math.inf else math.nan
    if not -math.inf < slope < 0:
        return np.full(len(targets), math.nan), np.full(len(targets), math.nan)
    near = np.maximum(center + (targets - target) / slope, 0.1 * center)
    low, high = _secants(profile, targets, near, moves=2 * LIMITS.guess_moves)
    lost = np.flatnonzero(np.isnan(low))
    if len(lost):  # the bounds of delta differ, so search for each side's crossing
        low[lost] = _secants(profile, targets[lost], near[lost], 0, 2 * LIMITS.guess_moves)[0]
        high[lost] = _secants(profile, targets[lost], near[lost], 1, 2 * LIMITS.guess_moves)[1]
    return low, high


def _widths(low: Array, high: Array, scale: Array) -> Array:
    """Return (high - low) / scale; 0 if both ends are equal, even both infinite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(low == high, 0.0, (high - low) / scale)


def sampled_mu(profile: Profile) -> float:
    """Return the largest certified z(power) - z(level) over some levels, z the normal quantile."""
    log_levels = np.log(np.concatenate([np.geomspace(1e-12, 0.1, 12), [0.2, 0.3, 0.4, 0.5]]))
    low = np.minimum(profile.one_sided(-1).log_powers(log_levels)[0], 0.0)
    sure = low < 0
    ends = normal_quantile(low[sure]), normal_quantile(log_levels[sure])
    # A log level errs by 2 units. So does `log_powers`, rounded inward.
    mus = ends[0] - ends[1] - 64 * UNIT * (2 + np.abs(ends[0]) + np.abs(ends[1]))  # slack: counted
    return max(0.0, float(mus.max())) if sure.any() else 0.0


def pbdp_delta(profile: Profile, epsilon: float, known: float = 0.0) -> Interval:
    """Bound the largest power at which power / level still exceeds e^epsilon.

    Args:
        epsilon: at least 0.
        known: lower bound on the answer of another pair. If this pair's answer is not larger,
            ``known`` (rounded up) is the upper end.
    """
    power = cache(profile.log_power)
    if known > 0:
        level = math.log(known) - epsilon
        # slack: another_pair_has_no_larger_power_there
        slack = 4 * UNIT * (1 + abs(level) + epsilon)
        if power(level)[1] - level <= epsilon - slack:  # at power = e^epsilon level = known
            return 0.0, exp_up(level + epsilon + slack)

    def excess(side: int) -> Callable[[float], float]:
        return lambda log_level: power(log_level)[side] - log_level

    # The largest power - e^epsilon level is delta. It is reached before power and e^epsilon level
    # meet. There the power is at least delta and at most 1. The lowest level comes first, because
    # its engine serves the others.
    least = profile.log_delta(epsilon)[0] - epsilon - 1
    first = min(-1.0, least) if least > -1e6 else -1.0
    results: list[float] = []
    near = None
    for side in (0, 1):
        ask = excess(side)
        low, high = first, min(-1e-9, 1e-6 - epsilon)  # logarithm of the largest level of a search
        while ask(low) <= epsilon and low > -1e6:
            low, high = 2 * low, low
        if ask(low) <= epsilon:
            # The ratio is at most e^epsilon down to this level.
            rest = power(-math.inf)[side]
            results.append(max(rest, low + epsilon) if side else rest)
            continue
        if ask(high) > epsilon:
            results.append(0.0 if side else power(high)[0])
            continue
        if near is not None:  # the upper bounds cross slightly beyond the lower bounds
            low, width = near, LIMITS.epsilon_width * max(1.0, abs(near))
            while near + width < high and ask(near + width) > epsilon:
                low, width = near + width, 16 * width
            high = min(near + width, high)
        near, right = falls_to(ask, epsilon, low, high)
        results.append(power(right if side else near)[side])
    return min(exp_down(results[0]), exp_up(results[1])), exp_up(results[1])
