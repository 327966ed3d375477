"""Find the least mu whose Gaussian curve is safe at every level of a range.

Here mu = z(power) - z(level), with z the normal quantile. For powers on a line, mu is largest at
the ends of a range of levels [SM-1]. Therefore, a few tangents of a pair's curve bound mu on the
whole range, by its values where adjacent tangents meet [SM-2]. Each pair answers for the half of
its curve in which the level is at most the type II error. The reversed pair has the other half
[SM-3].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from neyman.curves.profiles.duality import log_power_near
from neyman.curves.profiles.profile import Interval, Profile
from neyman.curves.tradeoff.queries import source_note
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import normal_quantile

USUAL_LEVELS = (1e-4, 0.5)
"""The range of levels in reports, on the command line, and in accountants."""


@dataclass(frozen=True)
class Limits:
    """Limits on the cost and the precision of the search for a safe mu.

    Args:
        relative_width: interval width that ends the search, relative to mu.
        least_width: interval width that ends the search for a mu near 0.
        first_tangents: number of first tangents, evenly spaced in epsilon.
        most_tangents: most tangents of one half of a curve.
        most_parts: most parts into which one round divides an interval of epsilon.
        rounds: most rounds of new tangents.
        idle_rounds: rounds without a better bound that end the search: precision is exhausted.
        largest_guess: the largest mu that places the first tangents.
    """

    relative_width: float = 1e-6
    least_width: float = 1e-9
    first_tangents: int = 12
    most_tangents: int = 4000
    most_parts: int = 16
    rounds: int = 48
    idle_rounds: int = 12
    largest_guess: float = 38.0


@dataclass(frozen=True)
class SafeMu:
    """Represent the smallest mu with G_mu safe at every level of a range: a claim, not a curve.

    At each false positive rate in the range, every test has at most the power of the best test of
    N(mu, 1) against N(0, 1). It claims nothing about other levels: it does not compose, has no
    delta, and does not cover groups. Ask the curve for these.

    Args:
        mu: the least mu; the upper bound is safe.
        levels: the smallest and the largest level.
        ordered: True if the curve covers only one order of the pair. If False, the claim also holds
            at each false negative rate in the range [SM-3].
        sources: uncertified sources, as in `Tradeoff.sources`.

    Examples:
        >>> import neyman as ny
        >>> training = ny.Gaussian(1).subsample(rate=0.01) * 1000
        >>> safe = training.tradeoff().gdp(levels=(1e-4, 0.5))
        >>> safe
        SafeMu(mu=0.454075, levels=(0.0001, 0.5))
        >>> print(safe.sentence)
        At every false positive or false negative rate from 0.0001 to 0.5, no test ... N(0, 1)
    """

    mu: Bound
    levels: tuple[float, float]
    ordered: bool = False
    sources: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return the claim in words."""
        rate = "false positive rate" if self.ordered else "false positive or false negative rate"
        low, high = self.levels
        note = source_note(self.sources)
        if self.mu.upper == math.inf:
            where = f"{note}At some {rate} from {low!r} to {high!r}"
            return f"{where}, no Gaussian curve is known to be safe"
        return (
            f"{note}At every {rate} from {low!r} to {high!r}, no test beats the best test of "
            f"N({self.mu:.6g}, 1) against N(0, 1)"
        )

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        order = ", ordered=True" if self.ordered else ""
        sources = f", sources={self.sources!r}" if self.sources else ""
        return f"SafeMu(mu={self.mu:.6g}, levels={self.levels!r}{order}{sources})"


class Range(NamedTuple):
    """Describe the levels at which a half of a curve must be safe.

    Args:
        low, high: the smallest and the largest level, in (0, 1).
        false_positives: True if tests count whose false positive rate is in the range.
        false_negatives: True if tests count whose false negative rate is in the range.
    """

    low: float
    high: float
    false_positives: bool = True
    false_negatives: bool = True


def level_range(levels: object) -> tuple[float, float]:
    """Return the two levels of a range as floats.

    Raises:
        ValueError: they are not two levels inside (0, 1), the smaller one first.
    """
    ends = check.several("levels", levels, "(1e-4, 0.5)")
    if len(ends) != 2:
        raise ValueError(f"levels = {levels!r} must be two levels, such as (1e-4, 0.5)")
    low, high = (check.finite(f"levels[{i}]", end) for i, end in enumerate(ends))
    if not 0 < low < high < 1:
        raise ValueError(
            f"levels = {levels!r} must be above 0 and below 1, the smaller one first, such as "
            "(1e-4, 0.5)"
        )
    return low, high


def mu_of_points(points: Iterable[tuple[float, float]], levels: tuple[float, float]) -> float:
    """Return an upper bound on the mu of a range, from powers at some levels [SM-5].

    Args:
        points: levels, and upper bounds on the power at these levels.
        levels: the smallest and the largest level.

    Returns:
        mu, or inf if no point has a level at or below the range.
    """
    known = dict(sorted(points))  # keeps the larger of two powers at a level
    at = np.array(sorted(a for a in known if 0 < a < 1))
    if not len(at) or at[0] > levels[0]:
        return math.inf
    power = np.minimum(np.array([known[a] for a in at.tolist()]), 1.0)
    first, last = at, np.append(at[1:], 1.0)  # the ends of each cell; the last cell ends at 1
    steep = power / first
    flat = np.append((1 - power[1:]) / (1 - at[1:]), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = np.clip(np.nan_to_num((1 - flat) / (steep - flat), nan=1.0), first, last)
    inside = (last > levels[0]) & (first < levels[1])
    level = np.concatenate([v[inside] for v in (first, cut, cut, last)])
    tops = (power, steep * cut, 1 - flat * (1 - cut), np.append(power[1:], 1.0))
    top = np.concatenate([v[inside] for v in tops])
    level, top = level[level < 1], top[level < 1]
    with np.errstate(divide="ignore"):
        # Sums, products, and quotients of a few numbers err by less than 16 units of 1 or of top.
        log_power = np.log(top * (1 + 16 * UNIT) + 16 * UNIT * (top > 0.5))  # slack: counted
        mu = _quantile(log_power) - normal_quantile(np.log(level))
    return max(float(np.max(mu + _slack(mu), initial=0.0)), 0.0)


class _Corners(NamedTuple):
    """Hold the corners at which a polygon of tangents may have its largest mu, shape (n,) each.

    Args:
        mu: upper bounds on mu.
        level: logarithms of the levels.
        line: index of the tangent, or of the first of two tangents that meet.
        end: True if the range of levels ends at the corner, which is then on one tangent.
    """

    mu: Array
    level: Array
    line: Array
    end: Array


class HalfCurve:
    """Bound mu on the half of a pair's curve in which the level is at most the type II error.

    Args:
        profile: profile of the ordered pair.
        asked: the levels at which mu is needed.
        most: a mu that is proven at every level.
        largest_loss: the largest loss, at which a tangent may be exact; inf if there is none.
        limits: limits of the search.
    """

    def __init__(
        self,
        profile: Profile,
        asked: Range,
        most: float,
        largest_loss: float = math.inf,
        limits: Limits | None = None,
    ) -> None:
        self._profile, self._asked, self._most = profile, asked, most
        self._largest_loss, self._limits = largest_loss, limits or Limits()
        self._logs = math.log(asked.low), math.log(asked.high)
        self._epsilon = self._above = np.zeros(0)
        self._sure: dict[float, float] = {}

    def largest_mu(self, known: float) -> Interval:
        """Bound the largest mu in the range. The upper bound is sharp only above ``known``.

        Args:
            known: a mu that other levels or pairs certainly need.
        """
        if self._profile.log_delta(0.0)[1] == -math.inf:
            return 0.0, 0.0
        limits = self._limits
        self._add(self._first_epsilons())
        low, high, idle, before = 0.0, self._most, 0, (0.0, math.inf)
        for _ in range(limits.rounds):
            corners = self._corners()
            high = min(high, max(0.0, float(corners.mu.max(initial=0.0))))
            idle = idle + 1 if (low, high) == before else 0
            before = low, high
            if self._done(low, high, known) or idle > limits.idle_rounds:
                break
            for these in (corners.end, ~corners.end):  # each kind may have the largest mu
                k = int(np.argmax(np.where(these, corners.mu, -math.inf)))
                if not self._done(low, float(corners.mu[k]), known):
                    low = max(low, self._certain(corners, k))
            if self._done(low, high, known) or len(self._epsilon) > limits.most_tangents:
                break
            if not self._add(self._new_epsilons(corners, max(low, known))):
                break
        return min(low, high), high

    def _width(self, mu: float) -> float:
        return max(self._limits.relative_width * mu, self._limits.least_width)

    def _done(self, low: float, high: float, known: float) -> bool:
        least = max(low, known)
        return high <= least or high - least <= self._width(least)

    def _add(self, epsilons: Array) -> bool:
        """Add tangents. Return False if none are new."""
        new = np.setdiff1d(epsilons[np.isfinite(epsilons)], self._epsilon)
        if not len(new):
            return False
        above = self._profile.log_deltas(new)[1]
        at = np.searchsorted(self._epsilon, new)
        self._epsilon = np.insert(self._epsilon, at, new)
        self._above = np.insert(self._above, at, np.where(above < 0, above, 0.0))
        return True

    def _first_epsilons(self) -> Array:
        """Return epsilons of the first tangents, from the Gaussian curve with the same delta(0)."""
        asked = self._asked
        miss = math.log(0.5) + _log_complement(self._profile.log_delta(0.0)[1])
        mu = min(-2 * float(normal_quantile(miss)), self._limits.largest_guess)
        ends: list[float] = []
        if asked.false_positives:
            ends.append(float(normal_quantile(self._logs[0])))
        if asked.false_negatives:
            ends.append(-float(normal_quantile(self._logs[1])) - mu)
        right = -mu / 2
        if asked.false_positives and not asked.false_negatives:
            right = min(right, float(normal_quantile(self._logs[1])))
        first, last = (-mu * z - mu * mu / 2 for z in (right, min(ends)))
        last = max(1.25 * last, first + 0.25 * mu)
        places = np.linspace(first, last, self._limits.first_tangents)
        inside = first < self._largest_loss < 2 * last
        return np.append(places, [0.0, self._largest_loss] if inside else 0.0)

    def _meetings(self) -> Array:
        """Return logarithms of the levels at which adjacent tangents meet, decreasing."""
        epsilon, above = self._epsilon, self._above
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = above[:-1] + np.log(-np.expm1(np.minimum(above[1:] - above[:-1], 0.0)))
            meet = fall - epsilon[1:] - np.log(-np.expm1(epsilon[:-1] - epsilon[1:]))
        return np.minimum.accumulate(np.nan_to_num(meet, nan=-math.inf, neginf=-math.inf))

    def _ranges(self) -> list[tuple[float, float]]:
        """Return the ranges of log levels on which the tangents must bound mu [SM-3]."""
        asked, (low, high) = self._asked, self._logs
        miss = -np.expm1(self._above)  # 1 - each tangent at level 0, to a unit
        with np.errstate(divide="ignore"):
            cross = float(np.max(np.log(miss) - np.logaddexp(0.0, self._epsilon)))
            least, most = (
                # slack: counted
                float(np.max(np.log(np.maximum(miss - v - 4 * UNIT, 0.0)) - self._epsilon))
                for v in (asked.high, asked.low)
            )
        # The difference above errs by 2 units, the logarithm by 2 relative units, this sum by one.
        least -= 8 * UNIT * (1 + abs(least) + float(np.abs(self._epsilon).max()))  # slack: counted
        ranges = [(low, min(max(cross, low), high))] if asked.false_positives else []
        if asked.false_negatives and least <= high:
            ranges.append((least, max(least, min(cross, most))))
        return ranges

    def _corners(self) -> _Corners:
        """Return upper bounds on mu where tangents meet and at the ends of the range [SM-2]."""
        meet, parts = self._meetings(), list[_Corners]()
        for left, right in self._ranges():
            first, last = (int(np.sum(meet > x)) for x in (right, left))  # tangents at the ends
            inner = np.arange(first, last)
            level = np.concatenate([[left, right], meet[inner], meet[inner]])
            line = np.concatenate([[last, first], inner, inner + 1])
            mu = self._mu(level, line)
            if right < self._logs[1]:  # the half ends at power = 1 - level
                far, near = normal_quantile(np.array([max(right, self._logs[0]), right])).tolist()
                cap = -far - near
                cap += float(_slack(cap))
                mu[:2] = (cap, cap) if right == left else (mu[0], max(mu[1], cap))
            ends = np.concatenate([[last, first], inner, inner])
            parts.append(_Corners(mu, level, ends, np.arange(len(mu)) < 2))
        if not parts:
            nothing = np.zeros(0)
            return _Corners(nothing, nothing, np.zeros(0, int), np.zeros(0, bool))
        return _Corners(*(np.concatenate(v) for v in zip(*parts, strict=True)))

    def _mu(self, log_level: Array, line: Array) -> Array:
        """Return upper bounds on z(power) - z(level), with z the normal quantile.

        The power is that of a tangent at each level. ``line``: index of the tangent for each level.
        """
        above, steep = self._above[line], self._epsilon[line] + log_level
        with np.errstate(invalid="ignore", over="ignore"):
            # A sum of two logarithms errs by 2 relative units, and each logarithm by one.
            log_power = np.logaddexp(above, steep)
            size = 2 + np.abs(above) + np.abs(self._epsilon[line]) + np.abs(log_level)
            # slack: counted
            log_power = log_power + 4 * UNIT * np.where(np.isfinite(size), size, 1.0)
            mu = _quantile(log_power) - normal_quantile(log_level)
            mu = mu + _slack(mu)
        return np.where(np.isnan(mu) | (log_level == -math.inf), math.inf, mu)

    def _certain(self, corners: _Corners, k: int) -> float:
        """Return a lower bound on mu, from the power at or just inside corner k [SM-4]."""
        asked, log_level, line = self._asked, float(corners.level[k]), int(corners.line[k])
        for times in (2.0, 4.0, 16.0, 256.0):
            if log_level in self._sure:
                return self._sure[log_level]
            low, high = self._power(log_level, line)
            if log_level == -math.inf:  # at level 0, the power is the mass of infinite loss
                # slack: counted
                return math.inf if -math.expm1(low) + 4 * UNIT <= asked.high else 0.0
            if asked.false_positives and self._logs[0] <= log_level <= self._logs[1]:
                outside = 0.0
            else:  # expm1 errs by less than 2 units of a number of at most 1
                # slack: counted
                most, least = -math.expm1(low) + 4 * UNIT, -math.expm1(high) - 4 * UNIT
                outside = max(most - asked.high, 0.0) or min(least - asked.low, 0.0)
            if not outside:
                break
            # Power falls by e^epsilon (the slope) times the decrease of the level.
            log_level += times * outside * math.exp(min(-self._epsilon[line] - log_level, 600.0))
            if not log_level < 0:
                return 0.0
        mu = 0.0 if outside else float(_quantile(np.array([low]))[0] - normal_quantile(log_level))
        mu -= float(_slack(mu)) if mu < math.inf else 0.0
        self._sure[float(corners.level[k])] = self._sure[log_level] = max(mu, 0.0)
        return max(mu, 0.0)

    def _power(self, log_level: float, line: int) -> Interval:
        """Bound the logarithm of the power at a level near the tangent with index ``line``."""
        profile, epsilon = self._profile, self._epsilon
        if log_level == -math.inf or not profile.costly:
            return profile.log_power(log_level)
        around = epsilon[min(line + 1, len(epsilon) - 1)] - epsilon[max(line - 1, 0)]
        low, high = log_power_near(
            profile.log_deltas, log_level, self._tangent_epsilon(log_level), float(around)
        )
        ends = _quantile(np.array([low, high]))
        if not ends[1] - ends[0] <= 0.1 * self._width(float(ends[1] - normal_quantile(log_level))):
            below, above = profile.log_power(log_level)
            low, high = max(low, below), min(high, above)
        # slack: counted
        slack = 2 * UNIT * (1 + abs(log_level))  # log power moves at most as much as the log level
        return low - slack, high

    def _tangent_epsilon(self, log_level: float) -> float:
        """Estimate the epsilon of the tangent at a level, as a linear function of z(level)."""
        meet, middle = self._meetings(), (self._epsilon[1:] + self._epsilon[:-1]) / 2
        z = normal_quantile(np.clip(meet, -1e300, -1e-300))
        known = np.append(True, np.diff(z) < 0) & (meet > -1e300)
        z, middle, at = z[known], middle[known], float(normal_quantile(log_level))
        if len(z) < 2 or z[-1] <= at <= z[0]:
            return float(np.interp(-at, -z, middle)) if len(z) else 0.0
        k = len(z) - 2 if at < z[-1] else 0
        return float(middle[k] + (at - z[k]) * (middle[k + 1] - middle[k]) / (z[k + 1] - z[k]))

    def _new_epsilons(self, corners: _Corners, least: float) -> Array:
        """Return epsilons of new tangents, to lower upper bounds on mu that exceed ``least``."""
        epsilon, limits = self._epsilon, self._limits
        width = self._width(least)
        most = float(corners.mu.max())
        enough = least + max(0.5 * width, 0.1 * (most - least))
        wide = corners.mu > enough if most < math.inf else np.isinf(corners.mu)
        places: list[Array] = []
        for k in np.unique(corners.line[wide & ~corners.end]).tolist():
            left, right = float(epsilon[k]), float(epsilon[k + 1])
            excess = float(corners.mu[wide & ~corners.end & (corners.line == k)].max()) - least
            loss = (right - left) ** 2 / (8 * max(least, limits.least_width))  # for a smooth curve
            room = max(width / 2, width - excess + loss) if excess < math.inf else loss
            parts = math.ceil(min(math.sqrt(loss / room), limits.most_parts))
            places.append(np.linspace(left, right, max(parts, 2) + 1)[1:-1])
        for k in np.flatnonzero(wide & corners.end).tolist():
            at = int(corners.line[k])
            span = float(epsilon[-1] - epsilon[0])
            last = at + 1 == len(epsilon)
            before = float(epsilon[at - 1]) if at else float(epsilon[0]) - span
            after = float(epsilon[-1]) + span if last else float(epsilon[at + 1])
            here = float(epsilon[at])
            near = min(max(self._tangent_epsilon(float(corners.level[k])), before), after)
            if last or not at:
                places.append(np.array([before, after]))
            places.append(np.array([(before + here) / 2, near, (here + after) / 2]))
        return np.concatenate(places) if places else np.zeros(0)


def _log_complement(log_value: float) -> float:
    return math.log(-math.expm1(log_value)) if log_value < 0 else -math.inf


def _quantile(log_power: Array) -> Array:
    """Return normal quantiles of powers. Near 1, use the complement."""
    log_power = np.minimum(log_power, 0.0)
    with np.errstate(divide="ignore"):
        below: Array = normal_quantile(log_power)
        beyond: Array = -normal_quantile(np.log(-np.expm1(log_power)))
    return np.where(log_power < math.log(0.5), below, beyond)


def _slack(mu: Any) -> Any:
    """Bound the rounding error of z(power) - z(level).

    `normal_quantile` errs by 32 units of 1 and of its value. The two values are at most 38 if
    powers and levels are floats. Beyond 38, their error grows with mu. A logarithm errs by 2
    relative units and is at most 745. It moves z by less than 1.26 times its error, divided by |z|
    in the tails: 200 units. The sum is below 16384 + 256 mu units.
    """
    return 256 * UNIT * (64 + np.abs(mu))  # slack: counted
