"""Compute profiles of losses with atoms, composed exactly or between two sums on a grid.

A factor e^{cL} centers the weights at the queried loss, so even a tiny answer is relatively
accurate. If the losses share a lattice, or have few sums, one exact measure is used. Otherwise, a
dominating and a dominated measure give two bounds. All answers use three running sums over the
losses l_k, from the largest downward,

    P_k = P(L >= l_k),    Q_k = Q(L >= l_k),    D_k = delta(l_k),

of non-negative terms only: D_{k-1} = D_k + Q_k (e^{l_k} - e^{l_{k-1}}), and likewise for an epsilon
between. The best test at a level between Q_k and Q_{k-1} has power P_k + (level - Q_k) e^{l_{k-1}}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.contour_line import LIMITS as LINE_LIMITS
from neyman.curves.profiles.contour_line import LineSum, least_log_powers, mgf_below, rough_epsilon
from neyman.curves.profiles.lattice.corners import largest_mu
from neyman.curves.profiles.profile import Engine, Interval, Profile
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import LEAST_WEIGHT, UNIT, Atoms
from neyman.numerics.discretization import Discretization
from neyman.numerics.operations import CALL, OperationLimit, charge, overhead
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import log_add, log_complement


@dataclass(frozen=True)
class Limits:
    """Limits on lattices and sums, and on the search for tilts. All values give valid bounds."""

    grid_places: int = 1 << 17  # most places of a grid between two distributions
    cell_efolds: float = 5.0  # largest tilt of weights within a cell of a coarse grid
    lattice_places: int = 1 << 19  # most places of a common lattice with exact sums
    untilted_places: int = 1 << 12  # most places of a common lattice that needs no tilt
    sums: int = 1 << 18  # most sums to list
    sums_beside_lattice: int = 1 << 14  # the same if a lattice exists
    counts: int = 1 << 23  # most counts of values in all sums
    least_reach: float = 1e-9  # range of a sum if the deviation is lost in rounding
    least_weight: float = 1e-26  # least stored weight over the largest, if sums are many
    tilt_reach: float = 1e6  # largest tilt times range, for accurate exponents
    stretches: int = 256  # most stretches of running sums, each over 600 e-folds
    exact_width: float = 1e-9  # width of log delta at which no better tilt is sought
    wide_width: float = 1e-3  # width beyond which all tilts are asked
    lost_width: float = 1e-2  # width beyond which tilt 0 is also asked
    miss_width: float = 1e-6  # relative width of 1 - power at which power is not asked
    near_one: float = -1e-2  # log power above which 1 - power is computed
    least_tilt: float = 1e-3  # distance of a tilt for 1 - power from 0 and from -1
    miss_tilts: int = 8  # most tilts to try for 1 - power
    known_deviations: float = 4.0  # deviations within which a tilted distribution is accurate
    shared_deviations: float = 1.0  # largest distance between centers that share a tilt


LIMITS = Limits()

SPAN_EFOLDS = 600.0  # e-folds that one stretch of running sums covers

Question = Callable[["Side", NDArray[np.bool_]], tuple[Array, Array]]
"""A function that returns bounds from one measure, for the queried losses that a mask selects."""


def tilt_of_level(losses: LineSum, log_level: float, largest: float) -> float:
    """Estimate the tilt above -1 whose mean loss is the threshold of the test at a level.

    If the distribution under the tilt c were normal, with mean m and variance v, then Q(L >= m)
    would be e^{K - (c + 1) m} erfcx((c + 1) sqrt(v / 2)) / 2.
    """

    def excess(law: tuple[float, float, float, float], c: float) -> float:
        at, k, mean, variance = law
        k += (mean + 0.5 * variance * (c - at)) * (c - at)
        tail = float(erfcx((c + 1) * math.sqrt(0.5 * variance)))
        return k - (c + 1) * (mean + variance * (c - at)) + math.log(0.5 * tail) - log_level

    low, high = math.log(0.1 * LIMITS.least_tilt), math.log1p(largest)
    guess = min(math.log(2.0), high)
    round_efolds = 3.0  # largest move in a round
    for _ in range(12):  # rounds of a search for the tilt of a level
        c = math.expm1(guess)
        k, mean, variance = (float(v[0]) for v in losses.moments(np.array([c])))
        law = c, k, mean, max(variance, 1e-300)
        low, high = (guess, high) if excess(law, c) > 0 else (low, guess)
        ends = bisect(lambda x, law=law: excess(law, math.expm1(x)) > 0, low, high, rounds=30)
        before, guess = guess, 0.5 * sum(ends)
        if (
            abs(math.expm1(guess) - c) * math.sqrt(law[3]) <= 0.2  # largest error of the found tilt
            or high - low < 1e-3
        ):
            break
        guess = min(
            max(guess, before - round_efolds), before + round_efolds
        )  # the distribution is not normal
    return math.expm1(guess)


@dataclass(frozen=True, eq=False)
class _Tails:
    """Hold logarithms of running sums of weights p and p e^-l at losses l, and of delta.

    Entry k of `p` and `q` is the sum over the losses from l_k on. Entry k of `delta` is delta at
    l_k. The last entry is an empty sum. Entries below `first` are not computed.
    """

    p: Array
    q: Array
    delta: Array
    first: int

    @staticmethod
    def of(loss: Array, weight: Array, tilt: float) -> _Tails:
        """Return the sums for tilted weights p e^{tilt l}, in pieces that do not overflow."""
        n = len(loss)
        p, q, delta = (np.full(n + 1, -math.inf) for _ in range(3))
        end, ahead = n, (-math.inf, -math.inf, -math.inf)
        for _ in range(LIMITS.stretches):
            if not end:
                break
            top = float(loss[end - 1])
            start = int(np.searchsorted(loss[:end], top - SPAN_EFOLDS / (tilt + 1)))
            part = slice(start, end)
            away = loss[part] - top  # at most 0
            with np.errstate(over="ignore"):  # an infinite sum gives a trivial bound
                mass = weight[part] * np.exp(-tilt * away)
                null = mass * np.exp(-away)
            # In units of e^{-tilt top} under P and e^{-(tilt + 1) top} under Q.
            units = tilt * top, (tilt + 1) * top
            p_sum = _from_above(mass) + _exp(ahead[0] + units[0])
            q_sum = _from_above(null) + _exp(ahead[1] + units[1])
            step = np.zeros(len(mass))
            with np.errstate(over="ignore", invalid="ignore"):
                step[:-1] = q_sum[1:] * np.exp(away[1:]) * -np.expm1(away[:-1] - away[1:])
            d_sum = _from_above(step)
            if end < n:
                next_loss = float(loss[end])
                d_sum += _exp(_fall(ahead[2], ahead[1], next_loss, top) + units[0])
            with np.errstate(divide="ignore", invalid="ignore"):
                p[part] = np.log(p_sum) - tilt * top
                q[part] = np.log(q_sum) - (tilt + 1) * top
                delta[part] = np.log(d_sum) - tilt * top
            ahead = (float(p[start]), float(q[start]), float(delta[start]))
            end = start
        return _Tails(p, q, delta, end)

    def delta_at(self, epsilon: Array, k: NDArray[np.intp], next_loss: Array) -> Array:
        """Return log delta at epsilons in [l_{k-1}, l_k]. ``next_loss`` is l_k."""
        gap = np.minimum(epsilon - next_loss, 0.0)
        with np.errstate(divide="ignore"):
            rest = np.log(-np.expm1(gap))
        return np.logaddexp(self.delta[k], self.q[k] + next_loss + rest)


def _fall(log_delta: float, log_q: float, loss: float, epsilon: float) -> float:
    """Return log delta at an epsilon below ``loss``: log(delta + Q (e^loss - e^epsilon)).

    delta and Q are those at ``loss``.
    """
    if loss <= epsilon or log_q == -math.inf:
        return log_delta
    return log_add(log_delta, log_q + loss + math.log(-math.expm1(epsilon - loss)))


def _from_above(x: Array) -> Array:
    """Return the sums of x from each index on. Two rounds of about sqrt(n) terms limit rounding."""
    n = len(x)
    size = math.isqrt(n) + 1
    rows = np.zeros(size * size)
    rows[:n] = x[::-1]
    with np.errstate(over="ignore"):  # an infinite sum gives a trivial bound
        sums = np.cumsum(rows.reshape(size, size), axis=1)
        sums[1:] += np.cumsum(sums[:-1, -1])[:, None]
    return sums.ravel()[:n][::-1]


@dataclass(frozen=True, eq=False)
class Side:
    """Represent one measure (exact, dominating, or dominated) by tilted weights and errors."""

    loss: Array
    weight: Array
    tilt: float
    log_scale: float
    tail: float
    relative: float | Array
    absolute: float
    place: float  # bound on the error of each place
    step: float = 0.0  # of a lattice

    @staticmethod
    def of(measure: Atoms | Discretization, tilt: float) -> Side:
        """Return the side of a measure, without weights that underflow."""
        lattice = isinstance(measure, Atoms)
        loss = measure.points() if lattice else measure.loss
        # Empty places of a coarser lattice need no entry. Subnormal weights count as omitted.
        mask = measure.weight > LEAST_WEIGHT
        if lattice and measure.absolute:  # an empty place also has this error
            mask[:] = True
        lost = LEAST_WEIGHT * float(np.count_nonzero(~mask & (measure.weight > 0)))
        mask[0] |= not mask.any()
        relative = measure.relative
        most = float(max(abs(loss[0]), abs(loss[-1])))
        return Side(
            loss[mask],
            measure.weight[mask],
            tilt,
            measure.log_scale,
            measure.tail + lost,
            relative[mask] if isinstance(relative, np.ndarray) else relative,
            measure.absolute if lattice else 0.0,
            # Errors of the first place, of the distance from it, and of their sum.
            # slack: places_of_a_lattice_whose_step_is_no_float
            4 * UNIT * most + (measure.drift if lattice else measure.place),
            float(measure.step) if lattice else 0.0,
        )

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Return mean and standard deviation of the tilted loss."""
        total = float(self.weight.sum())
        if not total > 0:
            return float(self.loss[0]), 0.0
        mean = float(self.weight @ self.loss / total)
        return mean, math.sqrt(max(float(self.weight @ (self.loss - mean) ** 2 / total), 0.0))

    @cached_property
    def tails(self) -> _Tails:
        """Return the running sums of the weights."""
        return _Tails.of(self.loss, self.weight, self.tilt)

    @cached_property
    def _noise(self) -> _Tails:
        """Return the running sums of the weights' relative errors."""
        if np.ndim(self.relative) == 0:
            t, log = self.tails, math.log(max(float(self.relative), 1e-300))
            return _Tails(t.p + log, t.q + log, t.delta + log, t.first)
        return _Tails.of(self.loss, self.weight * self.relative, self.tilt)

    def _even_noise(self, tilt: float, loss: Array, count: Array, *, delta: bool) -> Array:
        """Return the log of the sum of absolute errors at ``count`` losses from ``loss`` up [ES-7].

        If ``delta``, each has the factor 1 - e^{epsilon - l} of delta.
        """
        if not self.absolute:
            return np.full(np.shape(loss), -math.inf)
        sums = np.maximum(count, 0).astype(float)
        if tilt > 0:
            turn = tilt * self.step
            sums = np.minimum(sums, 1 + 1 / turn)
            if delta:
                sums = np.minimum(sums, (1 / turn + 1 / math.e) / tilt)
        with np.errstate(divide="ignore"):
            return np.log(sums * ((1 + 1e-9) * self.absolute)) - tilt * loss

    def _tail_noise(self, k: int) -> Interval:
        """Return the logarithms of bounds on the errors of P_k and Q_k."""
        count, at = np.array([len(self.loss) - k]), self.loss[[min(k, len(self.loss) - 1)]]
        p = self._even_noise(self.tilt, at, count, delta=False)
        q = self._even_noise(self.tilt + 1, at, count, delta=False)
        return (
            log_add(float(self._noise.p[k]), float(p[0])),
            log_add(float(self._noise.q[k]), float(q[0])),
        )

    @cached_property
    def rounding(self) -> float:
        """Return the relative rounding error of running sums and their exponents."""
        reach = (self.tilt + 1) * float(self.loss[-1] - self.loss[0])
        stretches = min(math.ceil(reach / SPAN_EFOLDS) + 1, LIMITS.stretches)
        return (
            # slack: counted
            (4 * (math.isqrt(len(self.loss)) + 8) + 4 * min(reach, SPAN_EFOLDS)) * stretches * UNIT
        )

    @cached_property
    def _tail_logs(self) -> tuple[Array, Array]:
        """Return -log Q(L >= l_k) and -log delta(l_k), unscaled, for k from ``tails.first`` on."""
        first = self.tails.first
        return -self.tails.q[first:], -self.tails.delta[first:]

    def place_of_level(self, log_level: float) -> int:
        """Return the first index k with Q(L >= l_k) at most the level."""
        place = np.searchsorted(self._tail_logs[0], self.log_scale - log_level, side="left")
        return self.tails.first + int(place)

    def epsilon_near(self, log_delta: float) -> float:
        """Estimate the epsilon with this log delta, by interpolation between two losses."""
        place = np.searchsorted(self._tail_logs[1], self.log_scale - log_delta, side="left")
        k = self.tails.first + int(place)
        if k == self.tails.first or k >= len(self.loss):
            return float(self.loss[min(k, len(self.loss) - 1)])
        # log_delta = log of D_k + Q_k (e^{l_k} - e^epsilon)
        top = float(self.loss[k])
        rise = log_delta - self.log_scale - float(self.tails.q[k]) - top
        drop = math.exp(min(rise, 0.0))
        drop -= _exp(min(float(self.tails.delta[k] - self.tails.q[k]) - top, 0.0))
        return top + math.log1p(-min(max(drop, 0.0), 1 - 1e-15))

    @np.errstate(invalid="ignore", over="ignore")  # overflow of sums
    def log_deltas(self, epsilon: Array) -> tuple[Array, Array]:
        """Bound log delta of the finite losses at each epsilon, shape (n,) each.

        It is the sum of p (1 - e^{epsilon - l}) over l > epsilon.
        """
        overhead(10 * (CALL + len(epsilon)))
        k = np.searchsorted(self.loss, epsilon, side="right")
        # Places have errors. Include all places that may be above epsilon.
        near = np.searchsorted(self.loss, epsilon - 2 * self.place, side="left")
        unknown = near < self.tails.first
        following = np.where(
            k < len(self.loss), self.loss[np.minimum(k, len(self.loss) - 1)], epsilon
        )
        value = self.tails.delta_at(epsilon, k, following)
        noise = np.logaddexp(
            self._noise.delta_at(epsilon, k, following),
            self._even_noise(self.tilt, epsilon, len(self.loss) - near, delta=True),
        )
        moved = self.tails.p[near]  # each 1 - e^{epsilon - l} moves by the place's error
        sizes = np.where(value > -math.inf, np.abs(value + self.log_scale), 0.0)
        sizes += abs(self.log_scale) + (self.tilt + 1) * np.abs(epsilon)
        rounding = self.rounding + 1.01 * self.tilt * self.place
        error = np.logaddexp(noise + 0.01, value + math.log(rounding))
        error = np.logaddexp(error, moved + math.log(1.01 * self.place + 1e-300))
        low, high = self._around(value, error, epsilon, np.where(value > -math.inf, sizes, 0.0))
        return np.where(unknown, -math.inf, low), np.where(unknown, 0.0, high)

    def _around(
        self, value: Array, error: Array, epsilon: Array, sizes: Array
    ) -> tuple[Array, Array]:
        """Return bounds on log delta from logs of a sum and its error, and omitted weight."""
        # Overflowed sums give trivial bounds.
        lost = ~((value < math.inf) & (error < math.inf))
        value, error = np.where(lost, -math.inf, value), np.where(lost, -math.inf, error)
        # Omitted weight counts fully: e^{-c (l - epsilon)} <= 1 if l > epsilon [ES-3].
        missed = math.log(self.tail) - self.tilt * epsilon if self.tail else -math.inf
        sure = error < value
        with np.errstate(invalid="ignore", divide="ignore"):
            rest = np.log(-np.expm1(np.where(sure, error - value, -1.0)))
        low = np.where(sure, value + rest, -math.inf)
        high = np.logaddexp(np.logaddexp(value, error), missed)
        # slack: a_sum_and_its_scale
        slack = 4 * UNIT * (sizes + abs(self.log_scale) + self.tilt * np.abs(epsilon) + 1)
        low, high = low + self.log_scale - slack, high + self.log_scale + slack
        return np.where(lost, -math.inf, low), np.where(lost, 0.0, high)

    def log_power(self, log_level: float) -> Interval:
        """Bound the log power of the best test at this level, for the finite losses.

        For any k, P_k + (level - Q_k) e^{l_{k-1}} is an upper bound: it is delta + e^epsilon level
        at epsilon = l_{k-1}. For the right k, it is the power. If an error of Q leads to another k,
        the excess is at most this error times e^loss, because power is concave.
        """
        k = self.place_of_level(log_level)
        if k <= self.tails.first:
            if k:
                return -math.inf, 0.0
            low = float(self.tails.p[0]) + self.log_scale
            relative = float(np.max(self.relative)) + self._spread(abs(low) + abs(self.log_scale))
            return low - 2 * relative, 0.0
        at = float(self.loss[k - 1])
        level = log_level - self.log_scale
        p, q = float(self.tails.p[k]), float(self.tails.q[k])
        rest = level + at + math.log(-math.expm1(q - level)) if q < level else -math.inf
        value = log_add(p, rest)
        size = log_add(p, level + at)  # errors are relative to this size [ES-5]
        p_noise, q_noise = self._tail_noise(k)
        noise = log_add(p_noise, q_noise + at)
        if level > float(self.tails.q[k - 1]) - 1e-6:
            noise = log_add(noise, self._tail_noise(k - 1)[0])
        sizes = abs(value) + abs(level) + abs(at) + abs(self.log_scale)
        error = log_add(noise + 0.7, size + math.log(self._spread(sizes)))
        bounds = self._around(*(np.array([x]) for x in (value, error, at, sizes)))
        return float(bounds[0][0]), float(bounds[1][0])

    def log_miss(self, log_level: float) -> tuple[Interval, float]:
        """Bound log(1 - power) at a level, and estimate the threshold of its test [ES-6].

        Under a tilt in (-1, 0), the upper tail of Q and the lower tail of P are sums of falling
        terms, so both are relatively accurate. Let B_k = P(L < l_k). 1 - power is convex in the
        level, so B_k + e^{l_k} (Q_k - level) is a lower bound for every k. The test that rejects
        for losses from l_k on, with Q_k certainly at most the level, gives an upper bound.
        """
        center, c = self.moments[0], self.tilt
        sums = self._miss_sums
        level = log_level - self.log_scale + (c + 1) * center
        if sums is None or abs(level) > SPAN_EFOLDS:
            # For a normal distribution, the log level at x is -(c + 1) x - x^2 / (2 variance).
            variance = max(self.moments[1] ** 2, LEAST_WEIGHT)
            root = math.sqrt(max((c + 1) ** 2 - 2 * level / variance, 0.0))
            return (-math.inf, 0.0), center + variance * (root - c - 1)
        loss, weight, size, q_error, below, b_error = sums
        v = math.exp(level)
        k = int(np.searchsorted(-size, -v, side="left"))
        threshold = float(loss[min(max(k - 1, 0), len(loss) - 1)])
        if k == 0 or k >= len(loss):
            return (-math.inf, 0.0), threshold
        sure = np.flatnonzero(size[k:] + q_error[k:] <= v)
        if not len(sure) or not 0 < (m := k + int(sure[0])) < len(loss):
            return (-math.inf, 0.0), threshold
        at = np.arange(max(k - 2, 0), k + 1)
        with np.errstate(over="ignore", invalid="ignore"):
            gain = np.exp(loss[at] - center) * (size[at] - q_error[at] - v)
        gain[~np.isfinite(gain)] = -math.inf  # no bound
        low = float(np.max(below[at] - b_error[at] + gain))
        away = float(loss[m - 1]) - center
        null, power = (float(weight[m - 1]) * math.exp(-t * away) for t in (c + 1, c))
        share = min((v - size[m] - q_error[m]) / (null + q_error[m - 1]), 1.0)
        high = below[m] + b_error[m] + self.tail * math.exp(-c * (float(loss[m]) - center))
        high -= share * (power - b_error[m]) if share > 0 else 0.0
        scale = self.log_scale - c * center
        # Errors of the scale. The log of a miss, at most 2 SPAN_EFOLDS, is covered by the
        # 4 SPAN_EFOLDS in `_miss_sums`.
        slack = 4 * UNIT * (abs(self.log_scale) + abs(c * center) + 1)  # slack: counted
        log_low = math.log(low) + scale - slack if low > 0 else -math.inf
        log_high = math.log(float(high)) + scale + slack if high > 0 else -math.inf
        return (log_low, min(log_high, 0.0)), threshold

    @cached_property
    def _miss_sums(self) -> tuple[Array, Array, Array, Array, Array, Array] | None:
        """Return losses, weights, and sums with their errors, for `log_miss` at every level.

        The sums are the mass of Q from each loss on, and the mass of P below it, both scaled by
        their factors at the center. Return None if no loss is near enough to avoid overflow.
        """
        center, c = self.moments[0], self.tilt
        away = self.loss - center
        start, end = (
            int(k) for k in np.searchsorted(away, [-SPAN_EFOLDS / (c + 1), -SPAN_EFOLDS / c])
        )
        if start >= end:
            return None
        # Outside, one factor overflows. The other factor's sum includes these losses.
        error = self.weight * self.relative + self.absolute
        rounding = self._spread(abs(self.log_scale) + 4 * SPAN_EFOLDS)
        null, power = np.exp(-(c + 1) * away[start:]), np.exp(-c * away[:end])
        places = end - start + 1
        size = np.append(_from_above(self.weight[start:] * null), 0.0)[:places]
        q_error = _from_above(error[start:] * null) + self.tail * null
        q_error = np.append(q_error, self.tail * null[-1])[:places] + rounding * size
        below = _cumulative_sums(self.weight[:end] * power)[start:]
        b_error = _cumulative_sums(error[:end] * power)[start:] + rounding * below
        return self.loss[start:end], self.weight[start:end], size, q_error, below, b_error

    def _spread(self, sizes: float) -> float:
        """Return the relative error from sums, losses, and exponents, for both P and Q.

        ``sizes``: of other exponents.
        """
        # slack: counted
        return 2 * (self.rounding + (self.tilt + 2) * self.place + 4 * UNIT * sizes)


class LatticeProfile(Profile):
    """Compute the privacy profile of a loss from tilted weights.

    Args:
        compose: function of a tilt that returns (dominating, dominated) weights; one object twice
            if exact.
        tilt_for: function of epsilon that returns a tilt under which the mean loss is epsilon (any
            tilt is valid).
        infinite: mass of infinite loss.
        supremum: largest finite loss; if finite, the curve has finitely many corners.
        method: description of the method, in words.
        engine: kind of the method, for decisions in code.
        losses: the sum, whose moments guide tilts. Without it, searches start at tilt 0.
        log_top: lower bound on the log mass of the largest finite loss.
        largest: the largest tilt.
        few: True if the sums are exact and few. Then the tilt 0 is the most accurate.
        limits: limits of cost and searches.
    """

    def __init__(
        self,
        compose: Callable[[float], tuple[Atoms, Atoms] | tuple[Discretization, Discretization]],
        tilt_for: Callable[[float], float],
        infinite: float,
        supremum: float,
        method: str,
        engine: Engine = Engine.GRID,
        *,
        losses: LineSum | None = None,
        log_top: float = -math.inf,
        largest: float = 1e6,
        few: bool = False,
        limits: Limits = LIMITS,
    ) -> None:
        self._limits = limits
        self.method, self.engine, self._few = method, engine, few
        self._compose = compose
        self._tilt_for = tilt_for
        self._infinite = infinite
        self._supremum = supremum
        self._losses, self._log_top, self._largest = losses, log_top, largest
        self._sides: list[tuple[Side, Side]] = []
        self._miss_sides: list[tuple[Side, Side]] = []

    def _compose_sides(self, tilt: float) -> tuple[Side, Side]:
        dominating, dominated = self._compose(tilt)
        above = Side.of(dominating, tilt)
        charge(200 * (len(above.loss) + 1))
        return above, above if dominated is dominating else Side.of(dominated, tilt)

    def _add(self, tilt: float) -> tuple[Side, Side]:
        self._sides.append(self._compose_sides(tilt))
        return self._sides[-1]

    def _nearest_sides(self, epsilon: float) -> tuple[Side, Side]:
        """Return the two measures centered nearest to epsilon. Compute them if none exist."""
        if not self._sides:
            self._add(self._first_tilt(epsilon))
        return min(self._sides, key=lambda sides: _distance(sides, epsilon))

    def _first_tilt(self, epsilon: float) -> float:
        # Without a tilt, exact weights have the least rounding, and few sums lose no weight.
        if self._losses is None or self._few:
            return 0.0
        return max(self._tilt_for(epsilon), 0.0)

    def _flat(self) -> tuple[Side, Side]:
        """Return the two measures without a tilt, accurate unless probabilities are tiny."""
        return next((s for s in self._sides if s[0].tilt == 0), None) or self._add(0.0)

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta at many epsilons. Near epsilons share a tilt."""
        low, high = np.full((2, len(epsilons)), -math.inf)
        inside = epsilons < self._supremum
        if inside.any():
            places = epsilons[inside]
            low[inside], high[inside] = self._ask(
                places, lambda side, at: side.log_deltas(places[at])
            )
        return self._with_infinite(low, high)

    def _ask(self, losses: Array, question: Question) -> tuple[Array, Array]:
        """Return bounds at several losses, each from measures centered near it."""
        low, high = np.full(len(losses), -math.inf), np.zeros(len(losses))

        def narrow(sides: tuple[Side, Side], at: NDArray[np.bool_]) -> None:
            above, below = sides
            least, most = question(above, at)
            if below is not above:
                least = question(below, at)[0]
            low[at], high[at] = np.fmax(low[at], least), np.fmin(high[at], most)

        if not self._sides:
            self._add(self._first_tilt(float(losses[len(losses) // 2])))
        away = np.array([_distance(sides, losses) for sides in self._sides])
        nearest = np.argmin(away, axis=0)
        reach = np.array([_reach(sides) for sides in self._sides])[nearest]
        for k in np.unique(nearest):
            narrow(self._sides[int(k)], nearest == k)
        centers = [s.moments[0] for s, _ in self._sides if s.tilt == 0]
        with np.errstate(invalid="ignore"):  # if both are -inf, the interval is exact
            far = (high - low > self._limits.exact_width) & (away.min(axis=0) > reach)
        if centers:  # a tilt cannot center at smaller losses
            far &= losses > max(centers)
        while far.any():
            k = int(np.flatnonzero(far)[np.count_nonzero(far) // 2])
            far[k] = False
            try:
                tilt = max(self._tilt_for(float(losses[k])), 0.0)
                if any(abs(tilt - s.tilt) <= 1e-3 * s.tilt + 1e-9 for s, _ in self._sides):
                    continue
                sides = self._add(tilt)
            except OperationLimit:  # use the bounds so far
                break
            near = far & (_distance(sides, losses) <= _reach(sides))
            near[k] = True
            narrow(sides, near)
            far &= ~near
        with np.errstate(invalid="ignore"):
            width = high - low
        wide = width > self._limits.wide_width  # all bounds are valid: intersect them
        if np.any(width > self._limits.lost_width):  # a guessed tilt may miss one of few atoms
            with suppress(OperationLimit):
                self._flat()
        if wide.any():
            for sides in self._sides:
                narrow(sides, wide)
        return low, high

    def _power_beyond(self, threshold: float, log_level: float) -> Interval:
        """Bound log power at a level whose test has about the threshold ``threshold``."""

        def question(side: Side, _at: NDArray[np.bool_]) -> tuple[Array, Array]:
            low, high = side.log_power(log_level)
            return np.array([low]), np.array([high])

        low, high = self._ask(np.array([threshold]), question)
        return float(low[0]), float(high[0])

    def _with_infinite(self, low: Array, high: Array) -> tuple[Array, Array]:
        # An overflow gives trivial bounds: a NaN would pass every comparison.
        low, high = np.where(np.isnan(low), -math.inf, low), np.where(np.isnan(high), 0.0, high)
        if self._infinite:
            mass = math.log(self._infinite)
            slack = 4 * UNIT * (4 + abs(mass))  # slack: infinite_losses_beside_those_on_a_lattice
            low, high = np.logaddexp(low, mass) - slack, np.logaddexp(high, mass) + slack
        return np.minimum(low, 0.0), np.minimum(high, 0.0)

    def log_power(self, log_level: float) -> Interval:
        """Bound log power of the best test (Neyman and Pearson)."""
        if log_level >= 0:
            return 0.0, 0.0
        low = high = -math.inf
        if log_level > -math.inf:
            low, high = self._finite_power(log_level)
        ends = self._with_infinite(np.array([low]), np.array([high]))
        return float(ends[0][0]), float(ends[1][0])

    def _finite_power(self, log_level: float) -> Interval:
        """Bound log power for the finite losses."""
        # A test that rejects only at the largest loss has the largest power / level, e^supremum.
        gained = log_level + self._supremum
        slack = 8 * UNIT * (1 + abs(self._supremum) + abs(log_level))  # slack: counted
        # The supremum of a sample may be above it: by 28 units, and by 8 of an inner loss.
        below = 8 * slack
        if gained <= self._log_top - below:
            return gained - below, gained + slack
        threshold = self._known_threshold(log_level)
        tilt = None if self._few or threshold is not None else self._tilt_of_level(log_level)
        if tilt is not None and -1 < tilt < 0 and not self._infinite:
            _, mean, variance = self._moments(np.array([tilt, 0.0]))
            if mean[1] - mean[0] > self._limits.known_deviations * math.sqrt(
                max(variance.min(), 0.0)
            ):
                assert self._losses is not None
                least = float(least_log_powers(mgf_below(self._losses), np.array([log_level]))[0])
                if least > -LINE_LIMITS.least_miss:
                    return least, 0.0
                least, most = self._log_miss(log_level, tilt)
                if most - least <= self._limits.miss_width:
                    return log_complement(least, most)
        if threshold is None:
            threshold = self._threshold(log_level, tilt)
        low, high = self._power_beyond(threshold, log_level)
        with suppress(OperationLimit):  # the bounds so far are valid
            if high - low > self._limits.lost_width:  # the guess was bad: restart from tilt 0
                threshold = self._threshold(log_level, None)
                least, most = self._power_beyond(threshold, log_level)
                low, high = max(low, least), min(high, most)
            if low > self._limits.near_one and not self._infinite:
                tilt = self._tilt_of_level(log_level) if tilt is None else tilt
                least, most = self._log_miss(log_level, -0.5 if tilt is None else tilt)
                below, above = log_complement(least, most)
                low, high = max(low, below), min(high, above)
                if most - least > (
                    self._limits.exact_width if self._few else self._limits.wide_width
                ):
                    least, most = self._log_miss(log_level, -0.5)
                    below, above = log_complement(least, most)
                    low, high = max(low, below), min(high, above)
        return low, min(high, gained + slack)

    def _moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        assert self._losses is not None
        return self._losses.moments(tilts)

    def _tilt_of_level(self, log_level: float) -> float | None:
        if self._losses is None:
            return None
        return tilt_of_level(self._losses, log_level, self._largest)

    def _log_miss(self, log_level: float, tilt: float) -> Interval:
        """Bound log(1 - power), under a tilt whose mean loss is near the test's threshold."""
        low, high, ends = -math.inf, 0.0, (-1.0, 0.0)
        tilt = min(max(tilt, self._limits.least_tilt - 1), -self._limits.least_tilt)
        for _ in range(self._limits.miss_tilts):
            above, below = self._miss_sides_near(tilt)
            tilt = above.tilt
            if not above.moments[1] > 0:
                return low, high
            # The dominating distribution misses less.
            (least, most), threshold = above.log_miss(log_level)
            if below is not above:
                most = below.log_miss(log_level)[0][1]
            low, high = max(low, least), min(high, most)
            center, deviation = above.moments
            away = (threshold - center) / deviation
            if high - low <= self._limits.exact_width or abs(away) <= 2:
                break
            ends = (tilt, ends[1]) if away > 0 else (ends[0], tilt)
            following = tilt + away / deviation
            inside = ends[0] < following < ends[1]
            tilt = following if inside else 0.5 * (ends[0] + ends[1])
            if not self._limits.least_tilt < -tilt < 1 - self._limits.least_tilt:
                break
        return low, high

    def _miss_sides_near(self, tilt: float) -> tuple[Side, Side]:
        """Return the two measures under this tilt, or stored ones with a center near its own."""

        def away(sides: tuple[Side, Side]) -> float:
            return abs(sides[0].tilt - tilt) * sides[0].moments[1]

        near = min(self._miss_sides, key=away, default=None)
        if near is None or away(near) > self._limits.shared_deviations:
            near = self._compose_sides(tilt)
            self._miss_sides.append(near)
        return near

    def _known_threshold(self, log_level: float) -> float | None:
        """Return the threshold of the level's test if a computed measure has it, else None."""
        for sides in self._sides:
            side = sides[0]
            k = side.place_of_level(log_level)
            if side.tails.first < k < len(side.loss):
                threshold = float(side.loss[k - 1])
                if _distance(sides, threshold) <= _reach(sides):
                    return threshold
        return None

    def _threshold(self, log_level: float, tilt: float | None) -> float:
        """Estimate the threshold: the loss above which the mass of Q is the level."""
        if tilt is None:
            side = self._flat()[0]
        else:
            side = self._nearest_sides(float(self._moments(np.array([tilt]))[1][0]))[0]
        threshold = 0.0
        for _ in range(6):
            k = side.place_of_level(log_level)
            threshold = float(side.loss[min(max(k - 1, 0), len(side.loss) - 1)])
            reliable = (
                float(side.tails.q[min(k, len(side.loss) - 1)])
                > math.log(side.tail + 1e-280) - (side.tilt + 1) * threshold
            )
            center, deviation = side.moments
            if reliable and abs(threshold - center) <= 12 * deviation:
                break
            self._power_beyond(threshold, log_level)
            now = self._nearest_sides(threshold)[0]
            if now is side:
                break
            side = now
        return threshold

    def epsilon_near(self, log_delta: float) -> float:
        """Estimate the epsilon with this log delta."""
        guess = 0.0
        if self._losses is not None:
            guess = max(rough_epsilon(self._losses, log_delta), 0.0)
        for _ in range(3):
            sides = self._nearest_sides(guess)
            guess = sides[0].epsilon_near(log_delta)
            if self._losses is None or _distance(sides, guess) <= self._limits.known_deviations:
                break
            tilt = max(self._tilt_for(guess), 0.0)
            if all(abs(tilt - s.tilt) > 1e-3 * s.tilt + 1e-9 for s, _ in self._sides):
                self._add(tilt)
        return max(guess, 1e-9)

    def mu(self) -> Interval | None:
        """Bound mu by the corners of a finite exact curve. Return None for other curves."""
        if self.engine != Engine.EXACT or not isinstance(self._losses, Composition):
            return None
        return largest_mu(self._losses)


def _distance(sides: tuple[Side, Side], epsilon: Any) -> Any:
    """Return the distance of epsilon from the center of the measures, in standard deviations."""
    center, deviation = sides[0].moments
    return abs(epsilon - center) / (deviation + 1e-300)


def _reach(sides: tuple[Side, Side]) -> float:
    """Return the distance from the center, in deviations, within which no tilt is better."""
    return 5.0 if sides[0].absolute or sides[0].tail > 1e-60 else 12.0


def _cumulative_sums(weight: Array) -> Array:
    """Return the sum of all weights before each index, and of all; shape (n + 1,)."""
    return np.append(0.0, _from_above(weight[::-1])[::-1])


def _exp(x: float) -> float:
    """Return e^x, or inf for an overflow or a NaN. Bounds then become trivial."""
    if x <= -745:
        return 0.0
    return math.exp(x) if x < 709 else math.inf
