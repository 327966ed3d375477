"""Compute certified profiles of few steps on random samples, from the density of their sum.

Let A be the product of 1 / (1 - q) over steps, S the sum of X as in `log_sum_density`, and e^s the
threshold. For the addition of a record,

    delta(epsilon) = E_Q[(e^s - e^S)_+] / e^s,  s = log A - epsilon

is an integral over tau = log(e^S - 1) of a positive density times e^{tau*} - e^tau, with tau* =
log(e^s - 1). Nothing cancels, so any delta is relatively accurate. With little noise, a line of
integration needs too many nodes for additions, but never for removals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.subsampled import SubsampledGaussianLoss
from neyman.curves.profiles.contour.contour import LIMITS as CONTOUR_LIMITS
from neyman.curves.profiles.contour.contour import ContourProfile
from neyman.curves.profiles.contour_line import rough, rough_epsilon
from neyman.curves.profiles.profile import Engine, Interval
from neyman.curves.profiles.sampled_steps.log_sum_density import (
    ELLIPSE_HEIGHT,
    MAX_ANGLE,
    Step,
    TabulatedDensity,
    convolve,
    density_of_step,
)
from neyman.curves.profiles.selection import select
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import bisect

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)


@dataclass(frozen=True)
class Limits:
    """Limits on the range and size of a table for few steps."""

    tail_efolds: float = 32.0  # e-folds below the answer at which a tail is cut off
    panels: int = 300
    margin_half_panels: int = 16  # extra half panels on each side of the range
    least_log_delta: float = -300.0  # least log delta for a table
    guesses: int = 30  # most guesses of an epsilon
    reach_share: float = 0.1  # extra range of tau beyond the questions


LIMITS = Limits()
EMPTY = -math.inf


Steps = Sequence[tuple[Step, int]]


class FewSteps:
    """Tabulate the distribution of the sum of few steps, for thresholds tau* in a range.

    Args:
        steps: each distinct step with its count.
        low, high: range of tau*.
        depth: approximate log of the smallest E_Q[(e^s - e^S)_+] in the range.
    """

    def __init__(self, steps: Steps, low: float, high: float, depth: float) -> None:
        self._steps = tuple(steps)
        self.low, self.high = low, high
        level = depth - LIMITS.tail_efolds - math.log1p(math.exp(low))
        bottom = _end(lambda tau: log_left(self._steps, tau), low, level, -0.25)
        self._density = self._compose_density(bottom, high)
        self._accumulate()

    def _compose_density(self, low: float, high: float) -> TabulatedDensity:
        total = sum(count for _, count in self._steps)
        result: TabulatedDensity | None = None
        for step, count in self._steps:
            power = self._of_one(step, total, low, high)
            left = count
            while True:  # by repeated doubling
                if left & 1:
                    result = power if result is None else self._sum(result, power, total, low, high)
                left >>= 1
                if not left:
                    break
                power = self._sum(power, power, total, low, high)
        assert result is not None
        return result

    def _half(self, count: int) -> float:
        mu = min(step.distance for step, _ in self._steps)
        return min(0.5 * mu, 0.6 * mu / math.sqrt(count), MAX_ANGLE / ELLIPSE_HEIGHT)

    def _range(self, steps: Steps, total: int, low: float, high: float) -> tuple[float, float]:
        """Return the range of tau to tabulate for some of the steps. Almost no mass is left of it.

        ``total``: number of all steps, whose range is [low, high].
        """
        count = sum(n for _, n in steps)
        half = self._half(count)
        top = high + LIMITS.margin_half_panels * self._half(total)
        if count == total:
            return low - LIMITS.margin_half_panels * half, top
        top += 4 * self._half(1) * (math.log2(total / count) + 1)  # a margin for later sums
        mu = max(step.distance for step, _ in self._steps)
        # The part's share of the sum, minus nine deviations of its logarithm given the sum.
        lowest = low + math.log(count / total) - 9 * mu * math.sqrt(1 / count - 1 / total)
        return lowest - LIMITS.margin_half_panels * half / 2, top

    def _of_one(self, step: Step, total: int, low: float, high: float) -> TabulatedDensity:
        start, end = self._range(((step, 1),), total, low, high)
        return density_of_step(step, start, end, self._half(1))

    def _sum(
        self, one: TabulatedDensity, two: TabulatedDensity, total: int, low: float, high: float
    ) -> TabulatedDensity:
        steps = one.steps + two.steps
        count = sum(n for _, n in steps)
        start, end = self._range(steps, total, low, high)
        half = self._half(count)
        if (end - start) / (2 * half) > LIMITS.panels:
            raise OverflowError("too many panels")
        return convolve(one, two, start, end, half)

    # Running sums

    def _accumulate(self) -> None:
        """Compute, at each panel edge, bounds on the log mass below it and on `log_value` there."""
        h = self._density
        # [FS-10] 32 nodes integrate polynomials of degree 63. Bound the rest of the exponential.
        c = np.maximum(np.abs(1 - h.slope) * h.half, 1e-3)
        rest = 43 * np.log(c) - gammaln(44) + 2 * c + 12
        self._errors = h.error + np.exp(np.minimum(rest, 0.0))
        good = self._errors < 0.01
        # The contiguous certified panels around the middle of the range.
        middle = 0.5 * (self.low + self.high)
        at = int(np.clip(h.panel(np.array([middle]))[0], 0, h.panels - 1))
        bad = np.flatnonzero(~good)
        first = int(bad[bad < at].max()) + 1 if (bad < at).any() else 0
        last = int(bad[bad > at].min()) if (bad > at).any() else h.panels
        if not good[at]:
            first = last = at
        self._first, self._last = first, last
        width = 2 * h.half
        self._edges = h.low + width * np.arange(h.panels + 1)
        self._mass = np.full((2, h.panels + 1), EMPTY)
        self._delta = np.full((2, h.panels + 1), EMPTY)
        rest = np.append(
            h.peaks[1 : 1 + first] + math.log(width), log_left(self._steps, float(self._edges[0]))
        )
        self._mass[1, first] = np.asarray(logsumexp(rest))
        self._delta[1, first] = self._mass[1, first] + self._edges[first]
        if last <= first:
            return
        panels = np.arange(first, last)
        start, stop = self._edges[panels], self._edges[panels + 1]
        mass, gain = self._integrals(panels, start, stop, stop)
        error = self._errors[panels]
        for side, factor in ((0, np.log1p(-error)), (1, np.log1p(error))):
            own_mass, own_gain = mass + factor, gain + factor
            for p in panels:
                known = self._mass[side, p]
                lift = known + _log_gap(self._edges[p], self._edges[p + 1])
                self._mass[side, p + 1] = np.logaddexp(known, own_mass[p - first])
                self._delta[side, p + 1] = logsumexp(
                    [self._delta[side, p], lift, own_gain[p - first]]
                )

    def _integrals(
        self, panel: Array, start: Array, stop: Array, threshold: Array
    ) -> tuple[Array, Array]:
        """Return log integrals of the density h and of h (e^threshold - e^tau), from start to stop.

        ``panel``: their panel indices.
        """
        h = self._density
        half = 0.5 * (stop - start)
        tau = start[:, None] + half[:, None] * (NODES + 1)
        log_h = h.log_value(tau, np.broadcast_to(panel[:, None], tau.shape))
        log_w = np.log(np.maximum(half, 1e-300))[:, None] + np.log(WEIGHTS)
        gap = _log_gap(np.minimum(tau, threshold[:, None]), threshold[:, None])
        mass = np.asarray(logsumexp(log_h + log_w, axis=1))
        return mass, np.asarray(logsumexp(log_h + log_w + gap, axis=1))

    def log_value(self, tau: Array) -> tuple[Array, Array]:
        """Bound log E_Q[(e^s - e^S)_+] at thresholds tau* = ``tau``."""
        return self._sums(tau)[1]

    def log_mass(self, tau: Array) -> tuple[Array, Array]:
        """Bound the log of Q(tau_S < tau), with tau_S = log(e^S - 1)."""
        return self._sums(tau)[0]

    def _sums(self, tau: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        h = self._density
        panel = np.clip(h.panel(tau), self._first, max(self._last - 1, self._first))
        inside = (tau >= self._edges[self._first]) & (tau <= self._edges[self._last])
        inside &= self._last > self._first
        masses = np.full(len(tau), EMPTY), np.full(len(tau), math.inf)
        values = np.full(len(tau), EMPTY), np.full(len(tau), math.inf)
        if not inside.any():
            return masses, values
        at, p = tau[inside], panel[inside]
        edge = self._edges[p]
        mass, gain = self._integrals(p, np.minimum(edge, at), at, at)
        gap = _log_gap(np.minimum(at, edge), np.maximum(at, edge))
        # Errors: units of each exponent, plus a unit of the size and a few per running sum.
        size = np.abs(h.scale).max() + np.abs(at) * (np.abs(h.slope).max() + 2)
        slack = UNIT * ((16 + h.panels) * size + 1024)  # slack: counted
        for side, sign in ((0, -1), (1, 1)):
            error = np.log1p(sign * self._errors[p])
            known = self._mass[side, p]
            terms = [self._delta[side, p], known + gap, gain + error]
            values[side][inside] = logsumexp(terms, axis=0) + sign * slack
            masses[side][inside] = np.logaddexp(known, mass + error) + sign * slack
        return masses, values


def log_left(steps: Steps, tau: float) -> float:
    """[FS-9] Bound log Q(tau_S < tau) from above: it implies b < tau (see `log_sum_density`)."""
    return math.fsum(n * float(log_ndtr((tau - step.mean) / step.distance)) for step, n in steps)


def _log_gap(low: Array, high: Array) -> Array:
    """Return log(e^high - e^low)."""
    with np.errstate(divide="ignore"):
        return high + np.log(-np.expm1(np.minimum(low - high, 0.0)))


def _end(bound: Callable[[float], float], start: float, level: float, step: float) -> float:
    """Go from ``start``, first by ``step``, to a point with ``bound`` at most ``level``."""
    at = start
    while bound(at) > level:
        at += step
        step *= 1.15
        if abs(at - start) > 2000:
            break
    return at


class FewStepsProfile(ContourProfile):
    """Compute the profile of adding a record to few Poisson samples, with Gaussian noise.

    Args:
        losses: a sum of `SubsampledGaussianLoss` whose records are added.
    """

    def __init__(self, losses: Composition) -> None:
        super().__init__(
            losses, lambda: select(losses.reverse()), 0.0, float(losses.supremum), losses.log_top
        )
        self.method, self.engine = "density of the sum", Engine.DENSITY
        parts = [(x, n) for x, n in losses.parts if isinstance(x, SubsampledGaussianLoss)]
        self._steps = tuple((Step(x.rate, x.distance), n) for x, n in parts)
        self._total = sum(n for _, n in parts)
        self._log_a = math.fsum(n * step.log_total for step, n in self._steps)
        self._tables: list[FewSteps] = []
        self._log_total = losses.log_total_variation

    def _above_zero(self, epsilons: Array) -> tuple[Array, Array]:
        low, high = np.full(len(epsilons), EMPTY), np.zeros(len(epsilons))
        s = self._log_a - epsilons
        # [FS-11] The threshold is rounded, so each bound uses a threshold moved by the error.
        # `_sums` covers the rounding of tau.
        # slack: delta_of_a_threshold_that_is_rounded/a
        error = 8 * UNIT * (self._log_a + np.abs(epsilons)) + 4 * UNIT * s
        open_ = s > error
        high[~open_] = np.log(2 * error[~open_] + 1e-300)
        if not open_.any():
            return low, high
        first, last = (_log_expm1(s[open_] + sign * error[open_]) for sign in (-1, 1))
        below, above = self._values(np.concatenate([first, last])).reshape(2, 2, -1)
        # The expectation rises with the threshold.
        for ends, side, target in ((below[0], -1, low), (above[1], 1, high)):
            size = np.abs(s[open_]) + np.where(np.isfinite(ends), np.abs(ends), 0.0)
            # slack: delta_of_a_threshold_that_is_rounded
            slack = 8 * UNIT * (1 + size) + error[open_]  # a sum, and a rounded offset
            target[open_] = np.minimum(ends - s[open_] + side * slack, 0.0)
        return low, high

    def _values(self, tau: Array) -> Array:
        low, high = np.full(len(tau), EMPTY), np.full(len(tau), math.inf)
        for _ in range(2):
            for table in self._tables:
                inside = (tau >= table.low) & (tau <= table.high)
                below, above = table.log_value(tau[inside])
                low[inside] = np.maximum(low[inside], below)
                high[inside] = np.minimum(high[inside], above)
            missing = np.isinf(high)
            for table in self._tables:  # if one table does not certify tau, no other will
                missing &= (tau < table.low) | (tau > table.high)
            if not missing.any():
                break
            if not self._add(
                float(tau[missing].min()) - LIMITS.reach_share,
                float(tau[missing].max()) + LIMITS.reach_share,
            ):
                break
        return np.stack([low, high])

    def _add(self, low: float, high: float) -> bool:
        """Add a table for this range. Return False if it would be too large."""
        depth = self._depth(low)
        if depth < LIMITS.least_log_delta:
            return False
        try:
            self._tables.append(FewSteps(self._steps, low, high, depth))
        except OverflowError:
            return False
        return True

    def _depth(self, tau: float) -> float:
        """Estimate log E_Q[(e^s - e^S)_+] at tau from below, by all X below an equal share of s."""
        s = float(np.logaddexp(0.0, tau))
        place = float(_log_expm1(np.array([s / (1.5 * self._total)]))[0])
        mass = math.fsum(
            n * float(log_ndtr((place - step.mean) / step.distance)) for step, n in self._steps
        )
        epsilon = max(self._log_a - s, 0.0)
        return s + max(math.log(-math.expm1(-s / 3)) + mass, rough(self._losses, epsilon) - 3)

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta, by Newton's method in a table."""
        if log_delta <= LIMITS.least_log_delta or log_delta >= self._log_total:
            return 1.0
        epsilon = max(rough_epsilon(self._losses, log_delta), 1e-3 * self._log_a)
        s = np.array([self._log_a - epsilon])
        if s[0] > 0:
            end = float(_log_expm1(s)[0])
            pad = max(
                LIMITS.reach_share,
                2 * max(x.distance for x, _ in self._steps) / math.sqrt(self._total),
            )
            self._add(end - pad, end + pad)
        for _ in range(LIMITS.guesses):
            places = epsilon * (1 + np.array([0.0, 1e-4]))
            low, high = self.log_deltas(places)
            if not np.all(np.isfinite(low) & (high < 0)):
                return 1.0 if not math.isfinite(epsilon) else epsilon
            slope = float(high[1] - high[0]) / (1e-4 * epsilon)
            if not slope < 0:
                return epsilon
            move = (log_delta - 0.5 * float(low[0] + high[0])) / slope
            before, epsilon = epsilon, float(np.clip(epsilon + move, epsilon / 2, 2 * epsilon))
            if abs(epsilon - before) <= 1e-12 * before:
                break
        return epsilon

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power by the likelihood ratio test, whose threshold is found in a table."""
        answers = [self._power(float(v)) for v in log_levels]
        return np.array([a[0] for a in answers]), np.array([a[1] for a in answers])

    def _power(self, log_level: float) -> tuple[float, float]:
        if not LIMITS.least_log_delta < log_level < CONTOUR_LIMITS.largest_shared_log_level:
            return (0.0, 0.0) if log_level >= 0 else (EMPTY, 0.0)
        ends = self._thresholds(log_level)
        if not self._add(ends[0] - LIMITS.reach_share, ends[1] + LIMITS.reach_share):
            return EMPTY, 0.0
        table = self._tables[-1]
        # The threshold of a test that certainly meets the level.
        place = bisect(lambda t: self._level(table, t)[1] <= log_level, table.low, table.high)[0]
        at = np.array([place])
        fits = self._level(table, place)[1] <= log_level
        s = float(np.logaddexp(0.0, place))
        # Three sums each, with terms bounded by these sizes.
        slack = 16 * UNIT * (4 + abs(log_level) + s + self._log_a)  # slack: counted
        lower, most = table.log_mass(at)[0][0], table.log_value(at)[1][0]
        # At any threshold, power is at most delta + e^epsilon level.
        upper = float(np.logaddexp(most - s, self._log_a - s + log_level))
        return (float(lower) - slack if fits else EMPTY), min(upper + slack, 0.0)

    def _level(self, table: FewSteps, tau: float) -> Interval:
        """Bound the log level of the test with threshold ``tau``. The level is (e^s F - G) / A.

        F is the mass below tau, and G = E_Q[(e^s - e^S)_+].
        """
        at = np.array([tau])
        low, high = (float(v[0]) for v in table.log_mass(at))
        least, most = (float(v[0]) for v in table.log_value(at))
        s = float(np.logaddexp(0.0, tau))

        def less(one: float, two: float) -> float:
            return one + math.log(-math.expm1(two - one)) if two < one else EMPTY

        if not math.isfinite(high):
            return EMPTY, math.inf
        # Rounding of sums. If both ends cancel, the slack in `_sums` is much larger.
        slack = 16 * UNIT * (4 + abs(high) + s)  # slack: counted
        lower = less(s + low, most) - self._log_a - slack
        return lower, less(s + high, least) - self._log_a + slack

    def _thresholds(self, log_level: float) -> tuple[float, float]:
        """Return a range of tau that contains the threshold of the test at this level."""

        def all_below(tau: float, *, shared: bool) -> float:
            b = _log_expm1(np.logaddexp(0.0, np.array([tau])) / self._total)[0] if shared else tau
            masses: list[float] = []
            for step, n in self._steps:
                z = (b - step.mean) / step.distance
                sides = math.log1p(-step.rate) + log_ndtr(z), log_ndtr(z - step.distance)
                masses.append(n * float(np.logaddexp(sides[0], math.log(step.rate) + sides[1])))
            return math.fsum(masses)

        top = max(step.mean + 9 * step.distance for step, _ in self._steps)
        top += math.log(self._total) + 1
        high = _end(lambda tau: all_below(tau, shared=True), top, log_level, -0.1)
        low = _end(lambda tau: all_below(tau, shared=False), high, log_level, -0.1)
        return low, high + 0.3


def _log_expm1(s: Array) -> Array:
    """Return log(e^s - 1), s > 0."""
    return s + np.log(-np.expm1(-s))
