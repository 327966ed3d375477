"""Compute the steps of canonical noise for a curve without a closed form, one at a time.

A step inward is the power of the best test. A step outward is the level with a given power, from a
search with certified ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from neyman.curves.profiles.profile import Interval
from neyman.mechanisms.canonical.iterates_closed_form import Ladder
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import log_of

Arrays = tuple[Array, Array]


@dataclass(frozen=True)
class Limits:
    """Limit the number of steps, and the width and the rounds of the search for one step."""

    steps: int = 100_000  # largest number of single steps


LIMITS = Limits()


class Stepwise(Ladder):
    """Compute iterates for any curve that is its own inverse.

    Args:
        log_powers: returns certified bounds on log power at many log levels.
        log_delta_zero: bounds on the logarithm of the total variation, which is 1 - 2c because
            power - level is largest at c, where the power has slope 1.
        infinite: mass of infinite loss, power(0).
    """

    def __init__(
        self, log_powers: Callable[[Array], Arrays], log_delta_zero: Interval, infinite: float
    ) -> None:
        self._ask, self._infinite = log_powers, infinite
        low, high = (math.exp(v) for v in log_delta_zero)
        # slack: the_middle_of_a_curve_that_is_asked
        self.gap = low * (1 - 8 * UNIT), min(high * (1 + 8 * UNIT), 1.0)
        ends = (max(0.5 * (1 - v), 1e-17) for v in (self.gap[1], self.gap[0]))
        c_low, c_high = ends
        # slack: the_middle_of_a_curve_that_is_asked
        self.log_c = math.log(c_low * (1 - 8 * UNIT)), math.log(c_high * (1 + 8 * UNIT))

    def _powers(self, log_level: Array) -> Arrays:
        """Bound the log power at each log level. At level 0, power is the mass of infinite loss."""
        none = ~np.isfinite(log_level)
        end = math.log(self._infinite) if self._infinite else -math.inf
        low, high = np.full(len(log_level), end), np.full(len(log_level), end)
        if not none.all():
            powers = self._ask(log_level[~none])
            low[~none], high[~none] = powers
        # slack: the_middle_of_a_curve_that_is_asked
        slack = np.where(np.isfinite(low), 4 * UNIT * (2 + np.abs(low)), 0.0)
        return np.maximum(low, log_level) - slack, np.minimum(high + slack, 0.0)

    def _levels(self, log_p: Array) -> Arrays:
        """Bound the log level with power p, by a secant search in normal quantiles.

        In normal quantiles, a Gaussian curve is a line of slope 1. The result is certified: the
        power is at most p at the lower end, and at least p at the upper end.
        """
        low = np.full(len(log_p), -math.inf)
        high = np.minimum(log_p, 0.0)  # the power is at least the level
        if not len(log_p):
            return low, high
        open_, shut = np.isfinite(log_p), np.full(len(log_p), -math.inf)
        if self._infinite:
            # The power is concave, so it exceeds its value m at level 0 by at least (1 - m) level.
            # Values within 8 units of log m (with an error of 2) are at most e^(2 room) m.
            end = math.log(self._infinite)
            room = 8 * UNIT * (1 - end)  # slack: a_level_next_to_the_end_of_the_support
            most = end + log_of(4 * room) - math.log1p(-self._infinite)
            open_ = log_p > end + room
            shut[log_p >= end - room] = most
        high = np.where(open_, high, np.minimum(shut, high))
        at = np.flatnonzero(open_)
        if not len(at):
            return low, high
        goal = ndtri_exp(np.minimum(log_p[at], -1e-17))
        mu = -2 * float(ndtri_exp(self.log_c[1]))
        # Ends of the search in z: the power is at most p at `a`, at least p at `b`.
        a, fa = np.full(len(at), -np.inf), np.full(len(at), -np.inf)
        b, fb = goal.copy(), np.full(len(at), mu)
        x = goal - mu
        blur = np.zeros(len(at))
        for turn in range(40):  # rounds of a search
            bottom, top = self._powers(log_ndtr(x))
            f = ndtri_exp(np.minimum(0.5 * (bottom + top), -1e-17)) - goal
            f = np.where(np.isnan(f), -np.inf, f)
            blur = np.where(np.isfinite(bottom), top - bottom, 1.0)
            under = f <= 0
            a, fa = np.where(under, x, a), np.where(under, f, fa)
            b, fb = np.where(under, b, x), np.where(under, fb, f)
            known = np.isfinite(a) & np.isfinite(fa)
            width = np.where(known, (b - a) * (np.abs(goal) + 1), np.inf)
            # Target width of a level's logarithm.
            # same: + blur -> - blur: Ends of a search: _asked() compares the power with p at each
            # end that is returned.
            if np.all(width <= 1e-13 + blur) or np.all(f == 0):
                break
            with np.errstate(all="ignore"):
                guess = b - fb * (b - a) / (fb - fa)
                middle = 0.5 * (a + b)
            if turn % 3 == 2:
                guess = middle
            inside = (guess > a) & (guess < b)
            inner = np.where(inside, guess, middle)
            # Illinois method: step slightly over the root, so that both ends converge.
            hair = 1e-15 * (1 + np.abs(x))
            inner = np.where(under, np.minimum(inner + hair, b), np.maximum(inner - hair, a))
            outward = np.where(np.isfinite(x + f), x - np.maximum(f, 0.1 * mu), x - mu)
            outward = outward - np.abs(outward - goal) * 0.5 * (turn > 4)
            x = np.where(known, inner, outward)
        best = np.where(np.isfinite(fa) & (-fa < np.abs(fb)), a, b)
        best = np.where(np.isfinite(a), best, x)
        low[at], high[at] = self._ask_power(log_ndtr(best), log_p[at], blur)
        return low, high

    def _ask_power(self, log_level: Array, log_p: Array, blur: Array) -> Arrays:
        """Return two log levels near a guess: one with a power of at most p, one of at least p.

        Args:
            log_level: the guess.
            log_p: log p.
            blur: the width of the bounds on log power at the guess.
        """
        low = np.full(len(log_p), -math.inf)
        high = np.minimum(log_p, 0.0)
        away = np.maximum(4 * blur, 1e-14 * (1 + np.abs(log_level)))
        for side, end in ((-1.0, low), (1.0, high)):
            left, step = np.arange(len(log_p)), away
            for _ in range(30):
                there = np.minimum(log_level[left] + side * step[left], 0.0)
                powers = self._powers(there)
                good = powers[1] <= log_p[left] if side < 0 else powers[0] >= log_p[left]
                end[left[good]] = there[good]
                left, step = left[~good], step * 4
                if not len(left):
                    break
        return low, np.minimum(high, log_p)

    def out(self, log_s: Array, n: Array) -> Arrays:
        """Bound log g^n(s), where each of n steps outward takes the level with power s."""
        low, high = log_s.copy(), log_s.copy()
        for i in range(_few(n)):
            going = np.flatnonzero((n > i) & (high > -math.inf))
            if not len(going):
                break
            both = self._levels(np.concatenate([low[going], high[going]]))
            low[going], high[going] = both[0][: len(going)], both[1][len(going) :]
        return low, high

    def place(self, log_u: Array) -> Arrays:
        """Bound the quantile x with P(Z > x) = u, by steps inward until the tail exceeds c."""
        s = np.concatenate([log_u, log_u])  # lower and upper bounds
        n = np.zeros(len(s))
        half = len(log_u)
        log_c = 0.5 * (self.log_c[0] + self.log_c[1])
        for _ in range(LIMITS.steps):
            going = np.flatnonzero((s <= log_c) & np.isfinite(n))
            if not len(going):
                break
            powers = self._powers(s[going])
            power = np.where(going < half, powers[0], powers[1])
            n[going] = np.where(power == -math.inf, math.inf, n[going] + 1)
            s[going] = power
        else:
            _few(np.full(1, math.inf))
        s = np.exp(np.where(np.isfinite(n), s, log_c))
        # A power of e errs by 2 units, and the product by one.
        first, last = self.middle(s * (1 - 4 * UNIT), s * (1 + 4 * UNIT))  # slack: counted
        return n[half:] + first[half:], n[:half] + last[:half]

    def log_slope(self, log_s: Array, n: Array) -> Arrays:
        """Bound the log slope of g^n: minus the log slopes of the power, summed over the steps."""
        low, high = np.zeros(len(log_s)), np.zeros(len(log_s))
        s_low, s_high = log_s.copy(), log_s.copy()
        for i in range(_few(n)):
            going = np.flatnonzero((n > i) & (s_high > -math.inf))
            if not len(going):
                break
            both = self._levels(np.concatenate([s_low[going], s_high[going]]))
            below, above = both[0][: len(going)], both[1][len(going) :]
            s_low[going], s_high[going] = below, above
            flat, steep = self._slopes(below, above)
            low[going] -= steep
            high[going] -= flat
        ended = s_high == -math.inf
        return np.where(ended, -math.inf, low), np.where(ended, -math.inf, high)

    def _slopes(self, low: Array, high: Array) -> Arrays:
        """Bound the log slope of the power between two log levels, by chords [CN-4]."""
        powers = self._powers(np.concatenate([low, high]))
        k = len(low)
        blur = np.maximum(powers[1][k:] - powers[0][k:], 0.0) + (high - low)
        blur = np.where(np.isfinite(blur), blur, 1.0)
        h = np.clip(np.sqrt(blur), 1e-6, 0.1)
        before, after = low + np.log1p(-h), np.minimum(high + np.log1p(h), 0.0)
        near = self._powers(np.concatenate([before, after]))

        def log_chord(x: Array, y: Array, p: Array, q: Array) -> Array:
            """Return log of (e^q - e^p) / (e^y - e^x)."""
            with np.errstate(all="ignore"):
                rise = q + np.log(-np.expm1(np.minimum(p - q, 0.0)))
                return rise - y - np.log(-np.expm1(x - y))

        steep = log_chord(before, low, near[0][:k], powers[1][:k])
        flat = log_chord(high, after, powers[1][k:], near[0][k:])
        flat = np.where(np.isnan(flat), -math.inf, flat)
        return flat, np.where(np.isnan(steep), math.inf, steep)


def _few(n: Array) -> int:
    """Return the largest number of steps as an integer. Refuse too many."""
    most = float(np.max(n, initial=0.0))
    if most > LIMITS.steps:
        raise ValueError(
            f"x is more than {LIMITS.steps} sensitivities from 0, or the curve is too near perfect "
            "privacy: only curves in closed form (gdp, pure, approximate, one Laplace) are "
            "computed that far"
        )
    return int(most)
