"""Few steps on random samples: delta from the density of their sum, certified.

With A = the product of 1 / (1 - q), S = the sum of X as in `log_sum_density`, and e^s the
threshold,

    removal:   delta(epsilon) = E_Q[(e^S - e^s)_+] / A,    s = log A + epsilon
    addition:  delta(epsilon) = E_Q[(e^s - e^S)_+] / e^s,  s = log A - epsilon

are integrals of a positive density against e^tau - e^{tau*}, tau* = log(e^s - 1). Nothing cancels,
so relative accuracy survives at any delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.subsampled import SubsampledGaussianLoss
from neyman.curves.profiles.contour.contour import MOST_LOG_LEVEL, ContourProfile
from neyman.curves.profiles.contour_line import rough, rough_epsilon
from neyman.curves.profiles.profile import Engine, Interval
from neyman.curves.profiles.sampled_steps.log_sum_density import (
    ANGLE,
    MOST_ANGLE,
    Density,
    Step,
    convolve,
    density_of_step,
)
from neyman.curves.profiles.selection import select
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import bisect, zero

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
DEPTH = 32.0  # e-folds below the answer at which a tail is cut off
MOST_PANELS = 300
POWERS = np.unique(np.round(np.geomspace(1, 400, 40))).astype(int)  # of e^S in Chernoff's bound
EMPTY = -math.inf
MARGIN = 16  # half panels beside the range that is asked

FARTHEST = -300.0  # log delta beyond which no table is made
TRIES = 30  # of guesses at an epsilon
PAD = 0.1  # of tau, by which a table reaches beyond the questions

Steps = Sequence[tuple[Step, int]]


class FewSteps:
    """The sum of few steps in one order, for thresholds in a range.

    Args:
        steps: each distinct step with its count.
        removed: True for the removal of a record, False for its addition.
        low, high: range of tau*.
        depth: about the logarithm of the least answer, E_Q[...].
    """

    def __init__(self, steps: Steps, removed: bool, low: float, high: float, depth: float) -> None:
        self._steps, self._removed = tuple(steps), removed
        self.low, self.high = low, high
        top, bottom = high, low
        if removed:
            top = _end(lambda tau: log_right(self._steps, tau), high, depth - DEPTH, 0.25)
        else:
            level = depth - DEPTH - math.log1p(math.exp(low))
            bottom = _end(lambda tau: log_left(self._steps, tau), low, level, -0.25)
        self._density = self._composed(bottom, top)
        self._accumulate()

    def _composed(self, low: float, high: float) -> Density:
        total = sum(count for _, count in self._steps)
        result: Density | None = None
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
        return min(0.5 * mu, 0.6 * mu / math.sqrt(count), MOST_ANGLE / ANGLE)

    def _range(self, steps: Steps, total: int, low: float, high: float) -> tuple[float, float]:
        """The range of a part of the sum: left of it, it has almost no mass."""
        count = sum(n for _, n in steps)
        half = self._half(count)
        top = high + MARGIN * self._half(total)
        if count == total:
            return low - MARGIN * half, top
        top += 4 * self._half(1) * (math.log2(total / count) + 1)  # beyond what is made of it
        mu = max(step.distance for step, _ in self._steps)
        # The share of a part, and nine deviations of its logarithm given the sum.
        lowest = low + math.log(count / total) - 9 * mu * math.sqrt(1 / count - 1 / total)
        if self._removed:
            # Nearly all the mass of the largest part that is asked for; less of smaller ones.
            largest = total // 2
            lowest = _end(
                lambda tau: self._mass_below(steps, total // 2, tau), steps[0][0].mean, -DEPTH, -0.1
            )
            if count < largest:
                lowest += math.log(count / largest) - 6 * mu * math.sqrt(1 / count - 1 / largest)
        return lowest - MARGIN * half / 2, top

    @staticmethod
    def _mass_below(steps: Steps, count: int, tau: float) -> float:
        """log of a bound on Q(tau_S < tau) for so many of these steps."""
        most = max(float(log_ndtr((tau - step.mean) / step.distance)) for step, _ in steps)
        return count * most

    def _of_one(self, step: Step, total: int, low: float, high: float) -> Density:
        start, end = self._range(((step, 1),), total, low, high)
        return density_of_step(step, start, end, self._half(1))

    def _sum(self, one: Density, two: Density, total: int, low: float, high: float) -> Density:
        steps = one.steps + two.steps
        count = sum(n for _, n in steps)
        start, end = self._range(steps, total, low, high)
        half = self._half(count)
        if (end - start) / (2 * half) > MOST_PANELS:
            raise OverflowError("too many panels")
        return convolve(one, two, start, end, half)

    # Running sums

    def _accumulate(self) -> None:
        """At each edge: log of Q beyond it and of the answer with its threshold there, twice."""
        h = self._density
        # [FS-10] 32 nodes integrate a polynomial of degree 63: the rest of the exponential.
        c = np.maximum(np.abs(1 - h.slope) * h.half, 1e-3)
        rest = 43 * np.log(c) - gammaln(44) + 2 * c + 12
        self._errors = h.error + np.exp(np.minimum(rest, 0.0))
        good = self._errors < 0.01
        # The contiguous panels about the range of the questions.
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
        count = h.panels + 1
        self._mass = np.full((2, count), EMPTY)
        self._delta = np.full((2, count), EMPTY)
        if self._removed:
            end = float(self._edges[last])
            rest = h.peaks[1 + last : -1] + math.log(width)
            rest = np.append(
                rest + self._edges[last + 1 :], log_right(self._steps, float(self._edges[-1]))
            )
            self._mass[1, last] = np.asarray(logsumexp(rest)) - end
            self._delta[1, last] = np.asarray(logsumexp(rest))
            order = range(last - 1, first - 1, -1)
        else:
            end = float(self._edges[first])
            rest = h.peaks[1 : 1 + first] + math.log(width)
            rest = np.append(rest, log_left(self._steps, float(self._edges[0])))
            self._mass[1, first] = np.asarray(logsumexp(rest))
            self._delta[1, first] = np.asarray(logsumexp(rest)) + end
            order = range(first, last)
        if last <= first:
            return
        panels = np.arange(first, last)
        start, stop = self._edges[panels], self._edges[panels + 1]
        mass, gain = self._integrals(panels, start, stop, start if self._removed else stop)
        error = self._errors[panels]
        for side, factor in ((0, np.log1p(-error)), (1, np.log1p(error))):
            own_mass, own_gain = mass + factor, gain + factor
            for p in order:
                near, far = (p, p + 1) if self._removed else (p + 1, p)
                known = self._mass[side, far]
                lift = known + _log_gap(self._edges[p], self._edges[p + 1])
                self._mass[side, near] = np.logaddexp(known, own_mass[p - first])
                self._delta[side, near] = logsumexp(
                    [self._delta[side, far], lift, own_gain[p - first]]
                )

    def _integrals(
        self, panel: Array, start: Array, stop: Array, threshold: Array
    ) -> tuple[Array, Array]:
        """log of the integrals of h and of h |e^tau - e^threshold| over parts of panels."""
        h = self._density
        half = 0.5 * (stop - start)
        tau = start[:, None] + half[:, None] * (NODES + 1)
        log_h = h.log_value(tau, np.broadcast_to(panel[:, None], tau.shape))
        log_w = np.log(np.maximum(half, 1e-300))[:, None] + np.log(WEIGHTS)
        low, high = np.minimum(tau, threshold[:, None]), np.maximum(tau, threshold[:, None])
        gap = _log_gap(low, high)
        mass = np.asarray(logsumexp(log_h + log_w, axis=1))
        return mass, np.asarray(logsumexp(log_h + log_w + gap, axis=1))

    def log_value(self, tau: Array) -> tuple[Array, Array]:
        """Bounds on log E_Q[...] with the thresholds tau*."""
        return self._sums(tau)[1]

    def log_mass(self, tau: Array) -> tuple[Array, Array]:
        """Bounds on log of the mass under Q beyond tau* (removal), or below it (addition)."""
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
        if self._removed:
            far, edge = p + 1, self._edges[p + 1]
            mass, gain = self._integrals(p, at, np.maximum(edge, at), at)
        else:
            far, edge = p, self._edges[p]
            mass, gain = self._integrals(p, np.minimum(edge, at), at, at)
        gap = _log_gap(np.minimum(at, edge), np.maximum(at, edge))
        # Units of each exponent, and one of the size and a few for each of the running sums.
        size = np.abs(h.scale).max() + np.abs(at) * (np.abs(h.slope).max() + 2)
        slack = UNIT * ((16 + h.panels) * size + 1024)
        for side, sign in ((0, -1), (1, 1)):
            error = np.log1p(sign * self._errors[p])
            known = self._mass[side, far]
            terms = [self._delta[side, far], known + gap, gain + error]
            values[side][inside] = logsumexp(terms, axis=0) + sign * slack
            masses[side][inside] = np.logaddexp(known, mass + error) + sign * slack
        return masses, values


def log_left(steps: Steps, tau: float) -> float:
    """[FS-9] Bound log Q(tau_S < tau): each b is below tau."""
    return math.fsum(n * float(log_ndtr((tau - step.mean) / step.distance)) for step, n in steps)


def log_right(steps: Steps, tau: float) -> float:
    """[FS-9] Bound log E_Q[e^S; tau_S > tau].

    One b is above the mean share of the sum; or by Chernoff's bound.
    """
    total = sum(n for _, n in steps)
    s = float(np.logaddexp(0.0, tau))
    log_a = math.fsum(n * step.log_total for step, n in steps)
    place = math.log(math.expm1(s / total))
    terms: list[float] = []
    for step, n in steps:
        z = (place - step.mean) / step.distance
        one = float(np.logaddexp(log_ndtr(-z), step.log_odds + log_ndtr(step.distance - z)))
        terms.append(math.log(n) + one + log_a - step.log_total)
    single = float(np.asarray(logsumexp(terms)))
    if s < 0.3:
        return single
    chernoff = sum(n * _log_moments(step) for step, n in steps) - POWERS * s
    return min(single, float(chernoff.min()) + 1e-6)


@array_cache
def _log_moments(step: Step) -> Array:
    """log E_Q[(1 + e^b)^{1 + k}] for k in POWERS."""
    values: list[Array] = []
    for k in POWERS + 1:
        j = np.arange(int(k) + 1)
        log_ways = gammaln(k + 1) - gammaln(j + 1) - gammaln(k - j + 1)
        values.append(logsumexp(log_ways + j * step.mean + (j * step.distance) ** 2 / 2))
    return np.array(values) * (1 + 1e-12) + 1e-9


def _log_gap(low: Array, high: Array) -> Array:
    """log(e^high - e^low)."""
    with np.errstate(divide="ignore"):
        return high + np.log(-np.expm1(np.minimum(low - high, 0.0)))


def _end(bound: Callable[[float], float], start: float, level: float, step: float) -> float:
    """A place from start on, in growing steps, at which a bound is below the level."""
    at = start
    while bound(at) > level:
        at += step
        step *= 1.15
        if abs(at - start) > 2000:
            break
    return at


class FewStepsProfile(ContourProfile):
    """Privacy profile of few steps on Poisson samples of Gaussian noise.

    Args:
        losses: a sum of `SubsampledGaussianLoss` of one order.
    """

    def __init__(self, losses: Composition) -> None:
        super().__init__(
            losses, lambda: select(losses.reverse()), 0.0, float(losses.supremum), losses.log_top
        )
        self.method, self.engine = "density of the sum", Engine.DENSITY
        parts = [(x, n) for x, n in losses.parts if isinstance(x, SubsampledGaussianLoss)]
        self._steps = tuple((Step(x.rate, x.distance), n) for x, n in parts)
        self._removed = all(x.removed for x, _ in parts)
        self._total = sum(n for _, n in parts)
        self._log_a = math.fsum(n * step.log_total for step, n in self._steps)
        self._tables: list[FewSteps] = []
        self._log_total = losses.log_total_variation

    def _above_zero(self, epsilons: Array) -> tuple[Array, Array]:
        low, high = np.full(len(epsilons), EMPTY), np.zeros(len(epsilons))
        s = self._log_a + epsilons if self._removed else self._log_a - epsilons
        # [FS-11] The threshold is rounded: each side is asked a little beyond it. What rounds tau
        # counts in `_sums`.
        error = 8 * UNIT * (self._log_a + np.abs(epsilons)) + 4 * UNIT * s
        open_ = s > error
        high[~open_] = 0.0 if self._removed else np.log(2 * error[~open_] + 1e-300)
        if not open_.any():
            return low, high
        first, last = (_log_expm1(s[open_] + sign * error[open_]) for sign in (-1, 1))
        below, above = self._values(np.concatenate([first, last])).reshape(2, 2, -1)
        offset = -self._log_a if self._removed else -s[open_]
        # D falls and G rises with the threshold.
        lower, upper = (below[1], above[0]) if self._removed else (below[0], above[1])
        for ends, side, target in ((lower, -1, low), (upper, 1, high)):
            size = np.abs(offset) + np.where(np.isfinite(ends), np.abs(ends), 0.0)
            slack = 8 * UNIT * (1 + size) + error[open_]  # a sum, and an offset that is rounded
            target[open_] = np.minimum(ends + offset + side * slack, 0.0)
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
            for table in self._tables:  # what one does not certify another will not, either
                missing &= (tau < table.low) | (tau > table.high)
            if not missing.any():
                break
            if not self._add(float(tau[missing].min()) - PAD, float(tau[missing].max()) + PAD):
                break
        return np.stack([low, high])

    def _add(self, low: float, high: float) -> bool:
        """Make a table for this range; False where it would be too large."""
        depth = self._depth(high if self._removed else low)
        if depth < FARTHEST:
            return False
        try:
            self._tables.append(FewSteps(self._steps, self._removed, low, high, depth))
        except OverflowError:
            return False
        return True

    def _depth(self, tau: float) -> float:
        """A lower bound on log E_Q[...] there: one step alone, or all steps below their share."""
        if self._removed:
            each: list[float] = []
            for step, _ in self._steps:
                z = (tau - step.mean) / step.distance
                one, two = step.log_odds + log_ndtr(step.distance - z), tau + log_ndtr(-z)
                each.append(float(one + math.log(-math.expm1(min(two - one, -1e-12)))))
            return max(each)
        s = float(np.logaddexp(0.0, tau))
        place = float(_log_expm1(np.array([s / (1.5 * self._total)]))[0])
        mass = math.fsum(
            n * float(log_ndtr((place - step.mean) / step.distance)) for step, n in self._steps
        )
        epsilon = max(self._log_a - s, 0.0)
        return s + max(math.log(-math.expm1(-s / 3)) + mass, rough(self._losses, epsilon) - 3)

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta: by Newton's method on tables."""
        if log_delta <= FARTHEST or log_delta >= self._log_total:
            return 1.0
        epsilon = max(rough_epsilon(self._losses, log_delta), 1e-3 * self._log_a)
        first = self._of_one_jump(log_delta) if self._removed else epsilon
        s = self._log_a + np.array([first, epsilon]) * (1 if self._removed else -1)
        if s.min() > 0:
            ends = _log_expm1(s)
            pad = max(PAD, 2 * max(x.distance for x, _ in self._steps) / math.sqrt(self._total))
            self._add(float(ends.min()) - pad, float(ends.max()) + pad)
        epsilon = first if self._removed else epsilon
        for _ in range(TRIES):
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
        """Bounds on log power: the likelihood ratio test with its threshold in a table."""
        answers = [self._power(float(v)) for v in log_levels]
        return np.array([a[0] for a in answers]), np.array([a[1] for a in answers])

    def _power(self, log_level: float) -> tuple[float, float]:
        if not FARTHEST < log_level < MOST_LOG_LEVEL:
            return (0.0, 0.0) if log_level >= 0 else (EMPTY, 0.0)
        ends = self._thresholds(log_level)
        if not self._add(ends[0] - PAD, ends[1] + PAD):
            return EMPTY, 0.0
        table = self._tables[-1]
        low, high = table.low, table.high
        # The threshold whose test certainly has the level.
        inside, outside = (high, low) if self._removed else (low, high)
        place = bisect(lambda t: self._level(table, t)[1] <= log_level, inside, outside)[0]
        at = np.array([place])
        fits = self._level(table, place)[1] <= log_level
        s = float(np.logaddexp(0.0, place))
        # Three sums each, of what is at most as large as the power and these.
        slack = 16 * UNIT * (4 + abs(log_level) + s + self._log_a)
        (mass, _), (value, most) = table.log_mass(at), table.log_value(at)
        # Any threshold bounds the power by delta + e^epsilon level.
        if self._removed:
            upper = float(np.logaddexp(most[0] - self._log_a, s - self._log_a + log_level))
            lower = float(np.logaddexp(value[0], s + mass[0])) - self._log_a
        else:
            upper = float(np.logaddexp(most[0] - s, self._log_a - s + log_level))
            lower = float(mass[0])
        return (lower - slack if fits else EMPTY), min(upper + slack, 0.0)

    def _level(self, table: FewSteps, tau: float) -> Interval:
        """Bounds on log of the false positive rate of the test with this threshold."""
        at = np.array([tau])
        low, high = (float(v[0]) for v in table.log_mass(at))
        if self._removed:
            return low, high
        # Under the mixture: (e^s F - G) / A.
        least, most = (float(v[0]) for v in table.log_value(at))
        s = float(np.logaddexp(0.0, tau))

        def less(one: float, two: float) -> float:
            return one + math.log(-math.expm1(two - one)) if two < one else EMPTY

        if not math.isfinite(high):
            return EMPTY, math.inf
        # Sums; where both ends cancel, what `_sums` has moved them apart by is far more than that.
        slack = 16 * UNIT * (4 + abs(high) + s)
        lower = less(s + low, most) - self._log_a - slack
        return lower, less(s + high, least) - self._log_a + slack

    def _thresholds(self, log_level: float) -> tuple[float, float]:
        """A range that holds the threshold of the test of this level."""

        def share(tau: float) -> float:
            s = float(np.logaddexp(0.0, tau))
            return float(_log_expm1(np.array([s / self._total]))[0])

        def single(step: Step, b: float) -> float:
            z = (b - step.mean) / step.distance
            if self._removed:
                return float(log_ndtr(-z))
            parts = math.log1p(-step.rate) + log_ndtr(z)
            return float(np.logaddexp(parts, math.log(step.rate) + log_ndtr(z - step.distance)))

        start = min(step.mean for step, _ in self._steps)
        if self._removed:

            def least(tau: float) -> float:
                return max(single(step, tau) for step, _ in self._steps)

            def most(tau: float) -> float:
                each = [math.log(n) + single(step, share(tau)) for step, n in self._steps]
                return float(np.asarray(logsumexp(each)))

            far = _end(most, start, log_level, 0.1)
            near = -_end(lambda x: -least(-x), -far, -log_level, 0.1)
            return near, far

        def all_below(tau: float, *, shared: bool) -> float:
            place = share(tau) if shared else tau
            return math.fsum(n * single(step, place) for step, n in self._steps)

        top = max(step.mean + 9 * step.distance for step, _ in self._steps)
        top += math.log(self._total) + 1
        high = _end(lambda tau: all_below(tau, shared=True), top, log_level, -0.1)
        low = _end(lambda tau: all_below(tau, shared=False), high, log_level, -0.1)
        return low, high + 0.3

    def _of_one_jump(self, log_delta: float) -> float:
        """The epsilon at which the deltas of single steps sum to delta: a lower guess."""

        def excess(log_epsilon: float) -> float:
            epsilon = math.exp(log_epsilon)
            each: list[float] = []
            for step, n in self._steps:
                tau = float(_log_expm1(np.array([epsilon + step.log_total]))[0])
                z = (tau - step.mean) / step.distance
                one, two = step.log_odds + log_ndtr(step.distance - z), tau + log_ndtr(-z)
                gain = float(one + math.log(-math.expm1(min(two - one, -1e-12))))
                each.append(math.log(n) + gain - step.log_total)
            return float(np.asarray(logsumexp(each))) - log_delta

        low, high = math.log(1e-3 * self._log_a), 3.0
        if excess(low) <= 0:
            return math.exp(low)
        while excess(high) > 0 and high < 8:
            high += 0.5
        return math.exp(zero(excess, low, high, 1e-3)) if excess(high) < 0 else math.exp(high)


def _log_expm1(s: Array) -> Array:
    """log(e^s - 1), s > 0."""
    return s + np.log(-np.expm1(-s))
