"""Compute power(level) = inf over epsilon of delta(epsilon) + e^epsilon level, with bounds.

With t = e^epsilon, g(t) = delta + t level is convex. Any value of g is an upper bound on its
minimum [DU-1]. Take t1 < t* < t2 with g(t1), g(t2) >= g(t*). The chord of g from t1 to t*,
extended, is below g between t* and t2, and vice versa. This gives a lower bound with an error of
second order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.profiles.profile import Interval
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import least
from neyman.numerics.rounding import log_add

CHORDS = np.array([-8.0, -3, -1, -0.4, -0.15, -0.06, -0.02, 0.02, 0.06, 0.15, 0.4, 1, 3, 8])
# Distances at which chords rise surely, and at which they lose at most the deltas' own width.
NEAR_CHORDS = np.array([-9.0, -3, -1, 0, 1, 3, 9])


@dataclass(frozen=True)
class Limits:
    """Hold thresholds on the relative width of the bounds on a power, to steer a search."""

    search_width: float = 3e-7  # the search stops


LIMITS = Limits()


def between_chords(low: Array, high: Array, size: Array) -> tuple[Array, Array, Array, Array]:
    """Bound a convex function between points, by chords extended from both sides [DU-2].

    Args:
        low, high: bounds on its values at increasing points, shape (..., n).
        size: distances of the points, shape (n - 1,) or (..., n - 1).

    Returns:
        Lower bounds on the chords' slopes, upper bounds on them, lower bounds between the inner
        points before rounding, shape (..., n - 3), and the size of the numbers in each of these.
    """
    from_left = (low[..., 1:] - high[..., :-1]) / size
    from_right = (high[..., 1:] - low[..., :-1]) / size
    a, b = from_left[..., :-2], from_right[..., 2:]
    start, end, width = low[..., 1:-2], low[..., 2:-1], size[..., 1:-1]
    # start + a x and end - b (width - x) cross at:
    with np.errstate(all="ignore"):
        cross = np.clip(np.nan_to_num((end - b * width - start) / (a - b)), 0.0, width)
    inner = np.minimum.reduce(
        [np.maximum(start + a * x, end - b * (width - x)) for x in (0.0, width, cross)]
    )
    sizes = np.abs(start) + np.abs(end) + (np.abs(a) + np.abs(b)) * width
    return from_left, from_right, inner, sizes


@dataclass(frozen=True, eq=False)
class Conjugate:
    """Compute the power of a smooth profile at many levels.

    Args:
        log_deltas: returns certified bounds on log delta at many epsilons.
        place: epsilons, evenly spaced, shape (n,).
        z: decreasing normal quantiles of the levels whose g is smallest at these epsilons.
        enough: relative width of a power at which the search stops.
    """

    log_deltas: Callable[[Array], tuple[Array, Array]]
    place: Array
    z: Array
    enough: float = LIMITS.search_width

    @staticmethod
    def over(
        log_deltas: Callable[[Array], tuple[Array, Array]],
        low: float,
        high: float,
        points: int = 400,
        enough: float = LIMITS.search_width,
    ) -> Conjugate:
        """Return a `Conjugate` for levels whose g is smallest between epsilons low and high."""
        epsilon = np.linspace(low, high, points)
        above = log_deltas(epsilon)[1]
        least = above[np.isfinite(above)].min(initial=0.0)
        above = np.maximum(above, least - 50)  # beyond the largest loss
        # At midpoints, the level is -d delta / dt = e^-epsilon delta |d log delta / d epsilon|.
        fall = np.maximum(-np.diff(above), 1e-300) / np.diff(epsilon)
        middle = 0.5 * (epsilon[1:] + epsilon[:-1])
        log_level = 0.5 * (above[1:] + above[:-1]) - middle + np.log(fall)
        z = np.minimum.accumulate(ndtri_exp(np.minimum(log_level, -1e-12)))
        return Conjugate(log_deltas, middle, z, enough)

    def reaches(self, log_level: float) -> bool:
        """Return True if this level is at least the smallest prepared level."""
        return bool(ndtri_exp(log_level) >= self.z[-1])

    def minima(self, log_levels: Array) -> Array:
        """Estimate the epsilon at which each level's g is smallest."""
        star = cast(Array, np.interp(-ndtri_exp(log_levels), -self.z, self.place))
        return np.where(np.isfinite(star), star, self.place[0])

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Return certified bounds on log power; a lower bound is -inf if none is proven."""
        z, star = ndtri_exp(log_levels), self.minima(log_levels)
        spacing = self.place[1] - self.place[0]
        # d log level / d epsilon, from dz / d epsilon: the normal hazard is about |z| or 1.
        drop = cast(Array, np.interp(-z, -self.z, -np.gradient(self.z, spacing)))
        hazard = np.exp(-0.5 * z * z - 0.5 * math.log(math.tau) - log_levels) * drop
        best = np.full(len(z), -math.inf)
        top = np.zeros(len(z))
        wanting = np.arange(len(z))
        for times in (1.0, 1.0, 1.0, 6.0, 40.0):
            with np.errstate(all="ignore"):  # a NaN gives a trivial bound
                bracket, better = self._around(
                    star[wanting], log_levels[wanting], hazard[wanting], times
                )
            star[wanting] = np.where(np.isfinite(better), better, star[wanting])
            best[wanting] = np.maximum(best[wanting], bracket[0])
            top[wanting] = np.minimum(top[wanting], bracket[1])
            wanting = wanting[top[wanting] - best[wanting] > self.enough]
            if not len(wanting):
                self._narrow(star, log_levels, hazard, best, top)
                return best, top
        # The remaining levels have a kink near the minimum, at which chords from both sides meet.
        scale = self.place[1] - self.place[0]
        for _ in range(3):
            with np.errstate(all="ignore"):
                low, high, star[wanting] = self.chords(
                    star[wanting], scale * CHORDS, log_levels[wanting]
                )
            best[wanting] = np.fmax(best[wanting], low)
            top[wanting] = np.fmin(top[wanting], high)
            wanting = wanting[top[wanting] - best[wanting] > self.enough]
            if not len(wanting):
                break
            scale /= 30
        self._narrow(star, log_levels, hazard, best, top)
        return best, top

    def _narrow(
        self, star: Array, log_levels: Array, hazard: Array, best: Array, top: Array
    ) -> None:
        """Narrow ``best`` and ``top`` in place, by chords so short that only g's error matters.

        They bound log power. Other arguments are as in `_reach`.
        """
        width = top - best
        at = np.flatnonzero((width > 1e-10) & (width < math.inf))  # near chords are tried above it
        if not len(at):
            return
        below, above = self._line(star[at], log_levels[at])
        with np.errstate(all="ignore"):  # a NaN gives a trivial bound
            r = self._reach(star[at], log_levels[at], above, hazard[at], 0.5 * (above - below))
            low, high, _ = self.chords(star[at], r[:, None] * NEAR_CHORDS, log_levels[at])
        best[at], top[at] = np.fmax(best[at], low), np.fmin(top[at], high)

    def chords(self, star: Array, offsets: Array, log_levels: Array) -> tuple[Array, Array, Array]:
        """Return bounds on log power from several points around each guess, and the best point.

        A convex function is above its extended chords. Therefore, between two points, g is above
        the chord extended from the left and the chord extended from the right.

        Args:
            star: guesses, shape (m,).
            offsets: increasing distances from the guesses, shape (n,) or (m, n).
            log_levels: shape (m,).
        """
        epsilon = star[:, None] + offsets
        bracket = self._line(epsilon.ravel(), np.repeat(log_levels, epsilon.shape[1]))
        low, high = (v.reshape(epsilon.shape) for v in bracket)
        base = high.min(axis=1)
        low, high = np.exp(low - base[:, None]), np.exp(high - base[:, None])
        t = np.exp(offsets)
        size = np.diff(t)
        from_left, from_right, inner, sizes = between_chords(low, high, size)
        # Each is a difference of numbers that may be far larger [DU-2]. Powers of e err by 2 units,
        # chords by 6 units of the numbers they subtract, and extended chords by 3 more.
        inner = (inner - 64 * UNIT * (sizes + 1)).min(axis=1)  # slack: chords_that_meet_at_a_kink/a
        outer = np.minimum(low[:, 1], low[:, -2])
        bound = np.minimum(inner, outer - 64 * UNIT * (outer + 1))  # slack: counted
        inside = (from_left[:, -2] >= 0) & (from_right[:, 1] <= 0) & (bound > 0)
        best = np.where(inside, np.log(np.where(inside, bound, 1.0)) + base, -np.inf)
        at = epsilon[np.arange(len(star)), np.argmin(high, axis=1)]
        return best, np.minimum(base, 0.0), at

    def _around(
        self, star: Array, log_levels: Array, hazard: Array, times: float
    ) -> tuple[tuple[Array, Array], Array]:
        """Return bounds on log power from three points around each guess, and better guesses."""
        below, above = self._line(star, log_levels)
        r = times * self._reach(star, log_levels, above, hazard, 6 * (above - below))
        r = np.minimum(r, 30.0)
        before, after = star - r, star + r
        left, right = self._line(before, log_levels), self._line(after, log_levels)
        good = (left[0] >= above) & (right[0] >= above)
        ratio = chord_ratio(before, star, after)
        rise = np.maximum(  # relative to the value at t*
            np.expm1(np.minimum(left[1] - below, 1.0)) * ratio,
            np.expm1(np.minimum(right[1] - below, 1.0)) / ratio,
            # slack: counted
        ) * (1 + 8 * UNIT)  # see `chord_ratio`
        bound = np.where(good & (rise < 1), below + np.log1p(-np.minimum(rise, 1 - 1e-16)), -np.inf)
        # The vertex of the parabola through the three points, if it is convex.
        bend = left[1] - 2 * above + right[1]
        move = 0.5 * r * (left[1] - right[1]) / np.where(bend > 0, bend, 1.0)
        reach = np.maximum(8 * r, 0.02 * (self.place[1] - self.place[0]))
        move = np.where(
            bend > 0, np.clip(move, -reach, reach), np.where(left[1] < right[1], -reach, reach)
        )
        bound = np.where(np.isnan(bound), -np.inf, bound)
        above = np.where(np.isnan(above), 0.0, np.minimum(above, 0.0))
        return (bound, above), star + np.where(good, 0.0, move)

    @staticmethod
    def _reach(star: Array, log_levels: Array, above: Array, hazard: Array, rise: Array) -> Array:
        """Return distances r from the minimum at which log g has risen by about ``rise`` / 2.

        Near the minimum, log g rises by curve r^2 / 2, for r in epsilon.
        """
        curve = np.exp(np.minimum(star + log_levels - above, 0.0)) * np.maximum(hazard, 1e-12)
        return np.sqrt((rise + 6e-15) / curve)

    def _line(self, epsilon: Array, log_levels: Array) -> tuple[Array, Array]:
        below, above = self.log_deltas(epsilon)
        line = epsilon + log_levels
        size = np.where(np.isfinite(above), np.abs(above), 0.0)
        # slack: a_line_that_is_added_to_delta, chords_that_meet_at_a_kink/a
        slack = 4 * UNIT * (2 + size + np.abs(epsilon) + np.abs(log_levels))
        return np.logaddexp(below, line) - slack, np.logaddexp(above, line) + slack


def log_power_near(
    log_deltas: Callable[[Array], tuple[Array, Array]],
    log_level: float,
    guess: float,
    scale: float,
    enough: float = LIMITS.search_width,
) -> Interval:
    """Bound log power at one level, from deltas near a guess of the minimizing epsilon.

    Args:
        log_deltas: returns certified bounds on log delta at many epsilons.
        log_level: logarithm of the level, finite.
        guess: approximate epsilon that minimizes delta + e^epsilon level.
        scale: expected error of the guess. The search moves on if it is larger.
        enough: relative width of a power at which the search stops.

    Returns:
        Bounds on log power, or (-inf, 0) if delta is not known near the guess.
    """
    level = np.array([log_level])
    z = float(ndtri_exp(log_level))
    low, high = -math.inf, 0.0
    below, above = log_deltas(np.array([guess]))
    if not above[0] - below[0] <= 1e-2:
        return low, high
    for _ in range(6):  # each move about doubles the digits of a guess
        local = Conjugate.over(log_deltas, guess - scale, guess + scale, 17, enough)
        if local.z[0] > z > local.z[-1]:
            below, above = local.log_powers(level)
            low, high = max(low, float(below[0])), min(high, float(above[0]))
            if high - low <= enough:
                break
            # Near the threshold, the profile bends on a smaller scale.
            guess, scale = float(np.interp(-z, -local.z, local.place)), scale / 8.0
            continue
        guess, scale = guess + (scale if z <= local.z[-1] else -scale), 2 * scale
    return low, high


def chord_ratio(left: Any, star: Any, right: Any) -> Any:
    """Return (t2 - t*) / (t* - t1) with t = e^epsilon, for three rounded epsilons.

    Its relative error is at most (7 + r) u, with u = `UNIT`, for epsilons at a distance r. The
    caller multiplies it by a difference of two values such as g(t), which adds 5 u. The caller's
    bounds on each value are wider than necessary by (4 + |epsilon|) u. This covers both errors,
    because r is at most the sum of two |epsilon|.
    """
    return np.expm1(right - star) / -np.expm1(left - star)


def line_at(log_delta: Interval, epsilon: float, log_level: float) -> Interval:
    """Bound log(delta + e^epsilon level). The upper end also bounds log power [DU-1]."""
    below, above = log_delta
    line = epsilon + log_level
    size = abs(above) if above > -math.inf else 0.0
    slack = 4 * UNIT * (2 + size + abs(epsilon) + abs(log_level))  # slack: counted
    return log_add(below, line) - slack, log_add(above, line) + slack


def log_power_by_duality(log_delta: Callable[[float], Interval], log_level: float) -> Interval:
    """Bound log power at one level, for any profile.

    Args:
        log_delta: returns certified bounds on log delta at any epsilon.
        log_level: logarithm of the level, finite.
    """

    def g(epsilon: float) -> Interval:
        return line_at(log_delta(epsilon), epsilon, log_level)

    # g is unimodal: go outward until it rises again.
    ends: list[float] = []
    for side in (-2.0, 2.0):
        end = side
        while abs(end) < 1e6 and g(2 * end)[1] < g(end)[1]:
            end *= 2
        ends.append(2 * end)
    low, high = ends
    star = least(lambda e: g(e)[1], low, high)
    for end in (low, high):
        if g(end)[1] < g(star)[1]:
            star = end
    below, above = g(star)
    best = -math.inf
    for distance in (1e-5, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1):
        places = star - distance, star + distance
        left, right = (g(place) for place in places)
        if left[0] < above or right[0] < above:
            continue
        # Relative to the value at t*.
        before, after = (math.expm1(min(side[1] - below, 700.0)) for side in (left, right))
        ratio = float(chord_ratio(places[0], star, places[1]))
        # slack: open
        rise = max(before * ratio, after / ratio) * (1 + 8 * UNIT)  # see `chord_ratio`
        if rise < 1:
            best = max(best, below + math.log1p(-rise))
        if best > below - 1e-9:
            break
    return best, above
