"""Sums of subsampled Gaussian steps, telescoped by the largest step: a line for each level.

With mu_j the law of a step whose loss a window cuts at level l_j,

    mu^{*T} = mu_0^{*T} + sum over j of (mu_j^{*T} - mu_{j-1}^{*T}):

the bulk, and for each level the sums whose largest step is about there. Each bracket is a positive
measure [LS-2], so the bounds of a vertical line (`contour_line`) hold for it as they stand. It has
a saddle point of its own, at about one over its level, so that a few rare large losses among many
small ones do not force one line to serve both. The derivation stands in
docs/certificates/largest-step.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.special import ndtri_exp

from neyman.losses.composition import Composition
from neyman.losses.gaussian import GaussianLoss
from neyman.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.losses.loss import Order, Part
from neyman.losses.subsampled import SubsampledGaussianLoss
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p, series
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import above
from neyman.profiles.combination import CascadeProfile
from neyman.profiles.contour import GOOD, WIDE, ContourProfile, Lines
from neyman.profiles.contour_line import Line, line_at, log_kernel
from neyman.profiles.convolution import dots_profile
from neyman.profiles.duality import Conjugate
from neyman.profiles.few_steps import FewStepsProfile
from neyman.profiles.profile import Engine, Interval, Profile, log_delta_below_zero
from neyman.profiles.selection import register
from neyman.profiles.step_windows import PAD, StepGrid, StepNodes, log_sum

__all__ = ["BracketSum", "LargestStepProfile"]

DIGITS = 27.0  # aliasing and truncation are kept below e^-27 of delta
SHARPNESS = (6.0, 12.0, 24.0)  # of windows; the next one where an answer is wide
RATIO = 8.0  # of a level to the one before, and of epsilon to the first one
SOFT = 4.0  # losses over a level that its window lets through in part
LAST = 20.0  # level from which no window cuts
STEERS, SPARSE, WIDEST = 6, 4.0, 0.3  # tilts per decade and distances of nodes for a guess
STRIDE = 4  # of the nodes for a guess at a bracket's transform
CLIFF = 8.0  # ratio of the rises on both sides of a least value beyond which it is no saddle
FARTHEST = 1e9  # epsilon beyond which no guess goes
DEEP = 300.0  # minus a log delta whose guess is rough
DEEPEST = 1e5  # minus a log probability beyond which guesses do not go
PLACES = 4  # of a line that are tried where the first needs many nodes
FEW = 500  # nodes with which no other place is tried
TILTS = 40  # tilts at which a bracket's transform is looked at
MOST_PLACES = 60_000  # nodes of y beyond which no line is tried
MANY = 4000  # nodes of y with which sharper windows are slow
FEW_NODES = 4000  # of one line, beyond which levels are tried
MOST_NODES = 30_000
RARE = 1e-3, 2.0  # tilts of a last level that hardly counts
LAST_TILT = 30.0  # times the last level, which has no window above it
FARTHEST_PEAK = 300.0  # of the terms in y
MOST_TILT = 400.0  # times the level
LEAST_HEIGHT, LARGEST_HEIGHT = 0.3, 1e9  # of a line's end, in units of the tilt
SHARES = (1.0, 2.0)  # heights of y over a, on which the decay is bounded
CANCELLATIONS = (6.0, 2.0)  # of the terms, in e-folds; the next where an answer is wide
FINE = 1e-9  # width of log delta with which a line is good enough
ENOUGH = 3e-7  # width of log delta with which no other shape is tried
USELESS = 1e-2  # width of log delta that less cancellation does not help
LOOSE = 1.0  # of a bound on log F
MOST_FAILURES = 6  # on the way to a threshold
MOST_BRACKETS = 24  # lists of them that are stored
TRIES = 3  # of lines for one epsilon
NARROW = 1e-6  # width of log delta from which the next engine is asked, too
FAIR = 1e-5  # the same before a grid of a few steps, which is fast
FEWEST = 16  # steps up to which moments do not bound the decay of their sum soon enough
SEVERAL = 64  # steps up to which the density of their sum is asked
MOST_DISTANCE = 10.0  # of the two normals, with which sums over y stay short
LEAST_WEIGHT = 200.0  # minus the logarithm of a normal's weight
NEAR = 1e-3  # of the logarithm of a guess at epsilon
SEARCH = 24  # steps to the threshold of a level
NEWTON = 12  # steps to the epsilon of a delta
CLOSE = 2e-3  # of the logarithm of an epsilon with which a search begins


Kernel = Literal["delta", "P", "Q"]  # delta, or the tail P(L > t) or Q(L > t)


class RealSums:
    """Sums over real y at many tilts, cut sharply at each node: to steer by, nothing is certified.

    The law of the sum is split by its largest step as for the lines, at every node whose loss is
    above 0. Each part is about the bell of its terms around its saddle point, so that a tail costs
    some microseconds.

    Args:
        steps: each with its count.
        variance: mu^2 of Gaussian noise beside the steps.
        spread: about how far the sum of all losses spreads.
        depth: about minus the logarithm of the smallest probability that is asked.
    """

    def __init__(
        self, steps: Sequence[tuple[Step, int]], variance: float, spread: float, depth: float
    ) -> None:
        self.depth = depth
        most = 3e4 * max(1.0, depth / 64) / spread
        self.tilts = c = np.geomspace(2e-3, most, round(STEERS * math.log10(most / 2e-3)))
        self.places = np.log(c)
        self.levels = np.zeros(0)
        rises = steps[0][0].order != "one" or steps[0][0].loss.removed
        total, gains = 0.5 * variance * c * (c + 1), np.zeros((len(c), 0))
        for step, n in steps:
            loss, grid = step.loss, StepGrid(step.loss, step.order, None, float(c[-1]), SPARSE)
            grid.h = min(grid.h, WIDEST)
            farthest = loss.farthest + math.sqrt(4 * depth + 80)
            stop = farthest if rises else max(PAD, loss.range(loss.power(float(c[-1])))[1])
            grid.reach(math.ceil((stop - grid.start) / grid.h) + 1)
            first, second = grid.exponent(0.0)
            g = first + grid.normal(0.0) + np.multiply.outer(c, second)
            rest = np.full(len(c), -math.inf)
            if step.order == "symmetric":
                below = np.multiply.outer(-c, grid.log_ratio(0.0)) + grid.normal(0.0)
                zero = loss.log_least + math.log(math.erf(loss.farthest / math.sqrt(8)))
                rest = np.logaddexp(log_sum(below), zero)
            if not rises:
                total = total + n * log_sum(g)
                continue
            waves = grid.waves(0.0)
            if not len(self.levels):
                self.levels = waves[waves > max(1e-4 * spread, 1e-12)]
                gains = np.zeros((len(c), len(self.levels)))
            starts = np.searchsorted(waves, self.levels)
            rest = np.logaddexp(rest, log_sum(g[:, : starts[0]]))
            slices = g[:, starts[0] :]
            if len(slices[0]) != len(starts) or np.any(np.diff(starts) != 1):
                edges = np.minimum(starts, len(waves) - 1)
                slices = np.logaddexp.reduceat(g, edges, axis=1)
                slices[:, starts >= len(waves)] = -math.inf
            below = np.logaddexp.accumulate(np.column_stack([rest, slices]), axis=1)
            total = total + n * rest
            gains += n * np.logaddexp(0.0, slices - below[:, :-1])
        # log F of each part: the bulk, and what its largest step adds at each level.
        before = total[:, None] + np.cumsum(gains, axis=1) - gains
        self.log_f = np.column_stack([total, before + _log_expm1(gains)])
        self.log_up_to = np.column_stack([total, before + gains])

    def _parts(self, epsilon: float, kind: Kernel) -> Array:
        """The logarithms of the parts' tails."""
        c = self.tilts
        kernel = -np.log(c) if kind == "P" else -np.log(c + 1)
        if kind == "delta":
            kernel = kernel - np.log(c)
        g = self.log_f + (kernel - c * epsilon)[:, None]
        return self._bells(g) - (epsilon if kind == "Q" else 0.0)

    def _bells(self, g: Array) -> Array:
        """Integrals of e^g along lines through the least values of g, about; shape (parts,)."""
        k = np.clip(np.argmin(g, axis=0), 1, len(g) - 2)
        at = np.arange(g.shape[1])
        left, middle, right = g[k - 1, at], g[k, at], g[k + 1, at]
        step = self.places[1] - self.places[0]
        with np.errstate(invalid="ignore"):
            bend = np.maximum((left - 2 * middle + right) / step**2, 0.3)
            slope = (right - left) / (2 * step)
            below = np.maximum(np.minimum(left, right) - middle, 0.0)  # by convexity, at most
            least = middle - np.minimum(0.5 * slope * slope / bend, below)
        # Where the terms of a part fall in c up to the last tilt, or in all of them, it is small.
        least = np.where(np.isfinite(least), np.minimum(least, middle), middle)
        bells = least + self.places[k] - 0.5 * np.log(math.tau * bend)
        return np.where(np.isnan(bells), middle, bells)

    def log_tail(self, epsilon: float, kind: Kernel) -> float:
        """About log delta(epsilon), log P(L > epsilon), or log Q(L > epsilon)."""
        return min(float(log_sum(self._parts(epsilon, kind))), 0.0)

    def log_delta(self, epsilon: float) -> float:
        """About log delta(epsilon)."""
        return self.log_tail(epsilon, "delta")

    def saddle(self, epsilon: float, level: float = math.inf) -> tuple[float, float, float]:
        """The c at which the terms are least, without losses above a level.

        Returns:
            c, the logarithm of the terms, and its second derivative in log c.
        """
        c = self.tilts
        column = int(np.searchsorted(self.levels, level))
        terms = self.log_up_to[:, column] - c * epsilon - np.log(c * (c + 1))
        k = min(max(int(np.argmin(terms)), 1), len(c) - 2)
        left, middle, right = (float(v) for v in terms[k - 1 : k + 2])
        step = float(self.places[1] - self.places[0])
        rises = left - middle, right - middle
        if max(rises) > CLIFF * (1 + min(rises)):  # no parabola
            return float(c[k]), middle, max(2 * min(rises) / step**2, 0.3)
        bend = max(sum(rises) / step**2, 0.3)
        slope = (right - left) / (2 * step)
        move = min(max(-slope / bend, -step), step)
        return float(c[k]) * math.exp(move), middle + 0.5 * slope * move, bend

    def last_level(self, epsilon: float, log_least: float) -> float:
        """The level above which all parts together are below a logarithm."""
        parts = self._parts(epsilon, "delta")[1:]
        if not len(parts):
            return 0.0
        above = np.logaddexp.accumulate(parts[::-1])[::-1]
        far = np.flatnonzero(above > log_least)
        return float(self.levels[far[-1]]) if len(far) else 0.0


@dataclass(eq=False)
class BracketSum:
    """The transform of one bracket: F = product of M_high^n - product of M_low^n [LS-2].

    Without levels it is that of the whole sum.

    Args:
        nodes: of each step.
        variance: mu^2 of Gaussian noise beside the steps.
        tilts: real tilts at which it was looked at.
    """

    nodes: tuple[StepNodes, ...]
    variance: float
    tilts: Array

    def __post_init__(self) -> None:
        self.bulk = self.nodes[0].bulk
        self.count = sum(step.count for step in self.nodes)
        # log F at the tilts: to steer by.
        self.log_f = self._steered()
        self._above: dict[int, float] = {}
        # How many tilts, from the first on, may have a bound near log F.
        self._good = len(self.tilts)

    def _steered(self) -> Array:
        low, gain = np.zeros(len(self.tilts)), np.zeros(len(self.tilts))
        for step in self.nodes:
            below, bracket = step.log_sums(self.tilts, STRIDE)
            low = low + step.count * (bracket if self.bulk else below)
            if not self.bulk:
                gain = gain + step.count * np.logaddexp(0.0, bracket - below)
        normal = 0.5 * self.variance * self.tilts * (self.tilts + 1)
        return low + normal + (0.0 if self.bulk else _log_expm1(gain))

    def log_terms(self, epsilon: float) -> Array:
        """log of the terms at u = 0: F(c) e^{-c epsilon} / (c (c + 1))."""
        return self.log_f - self.tilts * epsilon - np.log(self.tilts * (self.tilts + 1))

    def chernoff(self, epsilon: float) -> tuple[float, int]:
        """About the log of the bracket's share of delta, at most, and the index of that tilt."""
        bound = self.log_f - self.tilts * epsilon + log_kernel(self.tilts)
        index = int(np.argmin(bound[: self._good]))
        return float(bound[index]), index

    def certain(self, epsilon: float) -> tuple[float, float]:
        """A tilt c and a bound on log F there: the share is at most kappa(c) F e^{-c epsilon}."""
        while True:
            index = self.chernoff(epsilon)[1]
            if index <= 1 or self._is_near(index):
                return float(self.tilts[index]), self.log_f_above(index)

    def _is_near(self, index: int) -> bool:
        """Whether the bound at a tilt is near log F; if not, no larger tilt is used."""
        if self.log_f_above(index) - float(self.log_f[index]) < LOOSE:
            return True
        self._good = index
        return False

    def log_f_above(self, index: int) -> float:
        """An upper bound on log F at a tilt: F rises with each of its factors [LS-6]."""
        if index not in self._above:
            self._above[index] = self._log_f_above(float(self.tilts[index]))
        return self._above[index]

    def _log_f_above(self, tilt: float) -> float:
        each = [step.log_above(tilt) for step in self.nodes]
        if any(v == math.inf or b == math.inf for v, b in each):
            return math.inf  # no bound is known; a difference of two such says nothing
        log_low = math.fsum(
            s.count * (b if self.bulk else v) for s, (v, b) in zip(self.nodes, each, strict=True)
        )
        normal = 0.5 * self.variance * tilt * (tilt + 1)
        size = 1 + abs(log_low) + normal
        if self.bulk:
            return log_low + normal + 16 * UNIT * size
        gain = math.fsum(
            s.count * float(np.logaddexp(0.0, b - v))
            for s, (v, b) in zip(self.nodes, each, strict=True)
        )
        value = log_low + normal + float(_log_expm1(np.array([gain]))[0])
        return value + 16 * UNIT * (size + abs(gain) + abs(value)) if gain > 0 else -1e300

    def log_decay(self, tilt: float, u: Array) -> Array:
        """Bounds on log |F(c + iv)| for every v >= u [LS-5, LS-10]."""
        most = [float(np.logaddexp(*step.log_above(tilt))) for step in self.nodes]
        turns = [self._turn(step, tilt) for step in self.nodes]
        heights = np.concatenate([u, turns])
        best = np.full(len(u), math.inf)
        for share in SHARES:
            laws: list[Array] = []
            brackets: list[Array] = []
            for k, (step, top) in enumerate(zip(self.nodes, most, strict=True)):
                panels = step.panels(share * step.a, tilt)
                bracket = _waning(panels.bracket, panels.angle, heights)
                law = bracket if self.bulk else _waning(panels.low, panels.angle, heights)
                near = self._by_moments(step, tilt, u, turns[k], float(law[len(u) + k]))
                law, bracket = np.minimum(law[: len(u)], near), bracket[: len(u)]
                laws.append(np.minimum(law if self.bulk else np.logaddexp(law, bracket), top))
                brackets.append(bracket)
            bound = sum(
                (s.count * v for s, v in zip(self.nodes, laws, strict=True)), np.zeros(len(u))
            )
            if not self.bulk:
                each = [
                    math.log(s.count) + b - v
                    for s, b, v in zip(self.nodes, brackets, laws, strict=True)
                ]
                bound = bound + np.logaddexp.reduce(each)
            best = np.minimum(best, bound)
        return best + 0.5 * self.variance * (tilt * (tilt + 1) - u * u) + 1e-9

    @staticmethod
    def _turn(step: StepNodes, tilt: float) -> float:
        """The height where 1 - u^2 V + u^4 E(L - L')^4 / 24 is least."""
        variance, fourth = step.moments(tilt)
        return math.sqrt(12 * variance / fourth) if fourth > 0 else 0.0

    def _by_moments(
        self, step: StepNodes, tilt: float, u: Array, turn: float, beyond: float
    ) -> Array:
        """Bounds on log |M| for every v >= u, given one beyond the turn; inf from there on."""
        variance, fourth = step.moments(tilt)
        above = step.log_above(tilt)[1 if self.bulk else 0]
        square = np.where(u < turn, u * u, 0.0)
        fall = np.maximum(square * (variance - square * fourth / 24), 0.0)
        near = above + 0.5 * np.log1p(-np.minimum(fall, 0.999))
        return np.where(u < turn, np.maximum(near, beyond), math.inf)

    def _end(self, tilt: float, need: float) -> tuple[float, float]:
        """A height u with |F| / (pi u) below e^need for good, and the bound on log |F| there."""
        low, high, at_high = LEAST_HEIGHT, LARGEST_HEIGHT, math.inf
        for points in (6, 6, 5):
            heights = np.geomspace(low, high, points + 1)
            u = heights * tilt
            decay = self.log_decay(tilt, u)
            enough = np.flatnonzero(decay - np.log(math.pi * u) < need)
            if not len(enough):
                return math.inf, 0.0
            first = int(enough[0])
            high, at_high = float(heights[first]), float(decay[first])
            if first == 0:
                break
            low = float(heights[first - 1])
        return high * tilt, at_high

    def line(
        self,
        epsilon: float,
        log_delta: float,
        most: float = MOST_NODES,
        cancellation: float = CANCELLATIONS[0],
    ) -> Line | None:
        """The line with few nodes, whose terms cancel by so many e-folds; none if with too many."""
        best: tuple[float, int, int, float, float, float] | None = None
        for h, index, other in self._spacings(epsilon, log_delta, cancellation):
            if other > index + 1 and not self._is_near(other):
                return self.line(epsilon, log_delta, most, cancellation)  # with fewer tilts
            c, top = float(self.tilts[index]), float(self.log_f[index])
            end, decay = self._end(c, log_delta - DIGITS + c * epsilon)
            if best is None or end / h < best[0]:
                best = end / h, index, other, h, end, decay - top
            if best[0] < FEW:
                break
        if best is None or not best[0] < most:
            return None
        return self._built(*best[1:])

    def _spacings(
        self, epsilon: float, log_delta: float, cancellation: float
    ) -> list[tuple[float, int, int]]:
        """Spacings, each with its tilt and the tilt that bounds the aliases; the widest first."""
        tilts = self.tilts[: self._good]
        terms = self.log_terms(epsilon)[: self._good]
        fine = np.flatnonzero(terms[:-1] < max(float(terms.min()), log_delta) + cancellation)
        if not len(fine):
            return []
        excess = self.log_f[: self._good] - tilts * epsilon + log_kernel(tilts) - log_delta
        gap = tilts - tilts[fine][:, None]
        after = np.where(gap > 0, math.tau * gap / np.maximum(excess + DIGITS, 1e-3), 0.0)
        others = np.argmax(after, axis=1)
        before = math.tau * tilts[fine] / (DIGITS - min(log_delta, 0.0))
        spacing = np.minimum(before, after[np.arange(len(fine)), others])
        best = int(np.argmax(spacing))
        # Lines with a smaller c die out later, and may have fewer terms that cancel.
        tried = dict.fromkeys([best, *np.linspace(0, len(fine) - 1, PLACES).astype(int).tolist()])
        return [(float(spacing[k]), int(fine[k]), int(others[k])) for k in tried if spacing[k] > 0]

    def _built(self, index: int, other: int, h: float, end: float, decay: float) -> Line | None:
        c, top = float(self.tilts[index]), float(self.log_f[index])
        heights = h * np.arange(math.ceil(end / h) + 1)
        values = self._transform(c, top, heights)
        if values is None:
            return None
        phi, error = values
        z = c + 1j * heights
        share = np.full(len(heights), h / math.pi)
        share[0] /= 2
        kernel = share / (z * (z + 1))
        fixed = float(np.abs(kernel) @ error) + math.exp(decay) / (math.pi * end)
        moving = 4 * UNIT * float(np.abs(phi * kernel) @ np.abs(z))
        used = sorted({other, min(other + 2, self._good - 1), max(other - 2, index + 1)})
        others = self.tilts[used]
        above = np.array([self.log_f_above(i) for i in used])
        beyond = np.array([others, above, math.tau * (others - c) / h])
        turns = math.tau * c / h
        return Line(c, heights, phi * kernel, top, fixed, moving, turns, beyond, 0.0)

    def _transform(self, c: float, top: float, u: Array) -> tuple[Array, Array] | None:
        """F(c + iu) / e^top and a bound on its error [LS-6]; none if it is lost in rounding."""
        sums = [step.line(c, u) for step in self.nodes]
        bulk = self.bulk
        lost = [s.bracket_error[0] == 1.0 for s in sums]
        if all(lost) or (bulk and any(lost)) or any(s.low_error[0] == 1.0 for s in sums):
            return None
        if not bulk and any(s.log_bracket - s.log_low > 700 for s in sums):
            return None
        low, gain = np.zeros(len(u), complex), np.zeros(len(u), complex)
        real_low, real_gain, size = 0.0, 0.0, np.full(len(u), 1 + abs(top))
        for step, s in zip(self.nodes, sums, strict=True):
            n, log_value = step.count, s.log_bracket if bulk else s.log_low
            moved = s.bracket if bulk else s.low
            # A value within rounding of 0 stands for any other; its error is at least 80 units.
            moved = np.where(np.abs(1 + moved) < 8 * UNIT, 8 * UNIT - 1, moved)
            turned = log1p(moved)
            low = low + n * (log_value + turned)
            size = size + n * (abs(log_value) + np.abs(turned))
            real_low += n * log_value
            if not bulk:
                x = math.exp(s.log_bracket - s.log_low)
                gained = log1p(x * (1 + s.bracket) / (1 + moved))
                gain = gain + n * gained
                size = size + n * np.abs(gained)
                real_gain += n * math.log1p(x)
        normal = 0.5 * self.variance * (c + 1j * u) * (c + 1 + 1j * u)
        log_low = low + normal - top
        size = size + np.abs(normal)
        phi = np.exp(log_low) if bulk else _difference(log_low, gain)
        # F as a polynomial of the factors has positive coefficients: its change is at most that
        # of the sizes, which are largest at u = 0.
        scale = real_low - top + 0.5 * self.variance * c * (c + 1)
        product = math.exp(min(scale + real_gain, 700.0))  # the product of M_high over e^top
        value = product if bulk else math.exp(min(scale, 700.0)) * math.expm1(min(real_gain, 700.0))
        error, worst = np.zeros(len(u)), 0.0
        for step, s, gone in zip(self.nodes, sums, lost, strict=True):
            if bulk:
                error = error + step.count * product * s.bracket_error
                worst = max(worst, float(s.bracket_error.max()))
                continue
            x = math.exp(s.log_bracket - s.log_low)
            error = error + step.count * product * x / (1 + x) * s.bracket_error
            error = error + step.count * min(value, product / (1 + x)) * s.low_error
            worst = max(worst, 0.0 if gone else float(s.bracket_error.max()))
            worst = max(worst, float(s.low_error.max()))
        error = error * math.exp(self.count * worst) if self.count * worst < 1 else math.inf
        rounding = np.abs(phi) + (0.0 if bulk else value * 4 * UNIT)
        error = error + 16 * UNIT * size * rounding
        return (phi if self.nodes[0].rises else np.conj(phi)), error


@dataclass(frozen=True)
class Step:
    """A step whose loss comes from log R in one of the orders of `StepNodes`."""

    loss: LikelihoodRatioLoss
    order: Order

    def place(self, level: float) -> float:
        """About the t = mu y - mu^2 / 2 at which log R is a level above 0."""
        mu = self.loss.farthest
        most = (level + LEAST_WEIGHT) / mu + mu
        return mu * float(self.loss.inverse(np.array([level]), 0.0, most)[0]) - mu * mu / 2


def _step(loss: Part) -> Step | None:
    """The step behind a loss; none where it is no ratio of mixtures of normals."""
    ratio = loss.normal_ratio
    return None if ratio is None else Step(ratio.loss, ratio.order)


@dataclass(frozen=True, eq=False)
class Telescope:
    """Lines for one epsilon and its neighbors; together they are delta [LS-7].

    Args:
        lines: one for each bracket that counts.
        rest: brackets that hardly count, each with the index of its tilt and an upper bound on
            log F there.
    """

    lines: tuple[Line, ...]
    rest: tuple[tuple[float, float], ...]
    bump: None = None

    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Certified bounds on log delta at each epsilon; shape (m,)."""
        epsilon = np.asarray(epsilon, float)
        low, high = np.full(len(epsilon), -math.inf), np.full(len(epsilon), -math.inf)
        for line in self.lines:
            below, above = line.log_delta(epsilon)
            low, high = np.logaddexp(low, below), np.logaddexp(high, above)
        for tilt, log_f in self.rest:
            kernel = float(log_kernel(np.array([tilt]))[0])
            high = np.logaddexp(high, np.maximum(log_f - tilt * epsilon + kernel, -1e300))
        slack = 4 * UNIT * (len(self.lines) + len(self.rest) + 1) * (1 + np.abs(epsilon))
        slack = slack + 8 * UNIT * np.where(np.isfinite(high), np.abs(high), 0.0)
        return low - slack, np.minimum(high + slack, 0.0)

    def width(self, epsilon: float) -> float:
        """The width of the bounds on log delta there."""
        low, high = self.log_delta(np.array([epsilon]))
        return float(high[0] - low[0]) if low[0] > -math.inf else math.inf

    def log_tails(self, epsilon: Array, *, ahead: bool) -> Array:
        """About log P(L > epsilon), or log Q(L > epsilon) where not ``ahead``; to steer by."""
        total = np.full(len(epsilon), -math.inf)
        for line in self.lines:
            z = line.c + 1j * line.u
            sums = np.real(series(line.weight * (z + 1 if ahead else z), epsilon * line.u[1]))
            scale = line.top - line.c * epsilon - (0.0 if ahead else epsilon)
            with np.errstate(divide="ignore"):
                total = np.logaddexp(total, np.log(np.maximum(sums, 0.0)) + scale)
        return total


class LargestStepProfile(ContourProfile):
    """Privacy profile of steps that are mixtures of normals, beside Gaussian noise.

    Args:
        losses: a sum of `LikelihoodRatioLoss` of one order, of `ReplaceOneSubsampledLoss`, or of
            `FixedSizeLoss`, of Gaussian noise, and at most one `GaussianLoss`.
    """

    patient = False

    def __init__(self, losses: Composition) -> None:
        super().__init__(
            losses,
            lambda: largest_step_profile(losses.reverse()),
            0.0,
            above(losses.supremum),
            losses.log_top,
        )
        self._beside = True
        steps = [(_step(x), n) for x, n in losses.parts]
        self._parts = [(step, n) for step, n in steps if step is not None]
        self._variance = math.fsum(
            n * x.mu_squared for x, n in losses.parts if isinstance(x, GaussianLoss)
        )
        self._removed = self._parts[0][0].loss.removed
        # Whether K is a short sum on a line of its own, and so many steps die out soon on it.
        enough = self._variance > 0 or sum(n for _, n in self._parts) > FEWEST
        self._cheap = enough and all(step.order == "one" for step, _ in self._parts)
        # About how far the sum of all losses spreads.
        sides = 1 if self._parts[0][0].order == "one" else 2
        spread = math.fsum(n * (sides * x.loss.mean_shift) ** 2 for x, n in self._parts)
        self._spread = math.sqrt(spread + self._variance)
        self._tables: list[RealSums] = []
        self._bracket_at: dict[tuple[float, ...], list[BracketSum]] = {}
        self._middle = 0.1 * self._spread if self._removed else 0.5 * self._supremum
        self._start = 0.5 * min(self._spread, 0.5 * self._supremum)
        self.method, self.engine = "contour", Engine.CONTOUR

    def _table(self, log_target: float) -> RealSums:
        """The real sums that reach as far as this logarithm of a probability needs."""
        depth = 64.0
        while depth < min(-log_target, DEEPEST):
            depth *= 2
        if not self._tables or self._tables[0].depth < depth:
            self._tables = [RealSums(self._parts, self._variance, self._spread, depth)]
        return self._tables[0]

    def _added(self, line: Lines, place: float) -> tuple[Lines, float, float]:
        if isinstance(line, Telescope) and len(line.lines) + len(line.rest) > 1:
            self.method = "contour, by the largest step"
        return super()._added(line, place)

    def _most(self, epsilons: Array) -> Array:
        """Chernoff's bound by a few tilts of the whole sum [C-1]."""
        table = self._table(0.0)
        places = np.minimum(np.quantile(epsilons, (0, 0.5, 1)), FARTHEST)
        saddles = {_rounded(table.saddle(float(e))[0]) for e in places}
        most = math.inf
        if self._removed:  # beyond it sums over y are long
            most = FARTHEST_PEAK / max(x.loss.farthest for x, _ in self._parts)
        tilts = np.unique(np.minimum(np.multiply.outer(sorted(saddles), (0.5, 1.0)), most))
        brackets = self._one_bracket(tilts)
        if not brackets:
            return np.zeros(len(epsilons))
        bracket = brackets[0]
        above = np.array([bracket.log_f_above(k) for k in range(len(tilts))])
        moved = np.multiply.outer(np.minimum(epsilons, 1e200), tilts)  # delta falls beyond
        exponent = above + log_kernel(tilts) - moved
        size = np.abs(above) + moved
        return np.minimum((exponent + 16 * UNIT * (1 + size)).min(axis=1), 0.0)

    def _line(self, epsilon: float) -> Telescope | None:
        """Lines for an epsilon: one where its terms do not cancel, else one for each level."""
        if epsilon > FARTHEST:
            return None
        table = self._table(0.0)
        rough = table.log_delta(epsilon)
        if rough < -table.depth:
            table = self._table(rough)
            rough = table.log_delta(epsilon)
        best, narrowest = None, math.inf
        deep = rough < -DEEPEST  # only a line whose K is cheap goes there
        alone = rough < -DEEP or table.saddle(epsilon)[1] < rough + CANCELLATIONS[0] + 2
        if self._cheap and alone:
            line = line_at(self._losses, epsilon, release=False)
            if line is not None:
                best = Telescope((line,), ())
                narrowest = best.width(epsilon)
            if narrowest < ENOUGH:
                return best
        if deep:
            return best
        for brackets, most in self._candidates(epsilon, rough, table):
            for cancellation in CANCELLATIONS:
                telescope = self._telescope(brackets, epsilon, rough, most, cancellation)
                width = telescope.width(epsilon) if telescope is not None else math.inf
                if width < narrowest:
                    best, narrowest = telescope, width
                if not ENOUGH < width < USELESS:
                    break
            size = max((x.size for bracket in brackets for x in bracket.nodes), default=0)
            if narrowest < (ENOUGH if size < MANY else FAIR):
                break
        return best

    def _candidates(
        self, epsilon: float, rough: float, table: RealSums
    ) -> Iterator[tuple[list[BracketSum], float]]:
        """Ways to split the sum, and the most nodes of a line: the one with fewest lines first."""
        farthest = max(x.loss.farthest for x, _ in self._parts)
        enough = rough + CANCELLATIONS[0] + 2
        c, top, bend = table.saddle(epsilon)
        # Above c as far as the terms rise by what aliases need; below it as far as they fall.
        reach = min(max(9.0 / math.sqrt(bend), 0.02), 1.4)
        ahead = np.linspace(0.0, reach, TILTS // 2)
        tilts = c * np.exp(np.append(np.linspace(-0.7, 0.0, TILTS // 2)[:-1], ahead))
        if not self._removed:
            yield self._one_bracket(tilts), MOST_NODES
            return
        scale = _rounded(max(epsilon, 0.1 * self._spread))
        # In t a window is as wide as a law of a small mu permits, or as a large loss.
        sharpness = max(1.0, 0.3 / farthest) / max(1.0, scale / 16)
        if top < enough and float(tilts[-1]) * farthest < FARTHEST_PEAK:
            yield self._one_bracket(tilts), FEW_NODES
        elif table.saddle(epsilon, SOFT * RATIO * scale)[1] < enough:
            for times in SHARPNESS[:2]:
                yield self._brackets(epsilon, RATIO * scale, times * sharpness, rough), MOST_NODES
        for times in SHARPNESS:
            yield self._brackets(epsilon, scale / RATIO, times * sharpness, rough), MOST_NODES

    def _telescope(
        self,
        brackets: Sequence[BracketSum],
        epsilon: float,
        log_delta: float,
        most: float,
        cancellation: float,
    ) -> Telescope | None:
        best = None
        for _ in range(TRIES):
            telescope = self._planned(brackets, epsilon, log_delta, most, cancellation)
            if telescope is None:
                return best
            best = telescope
            low, high = telescope.log_delta(np.array([epsilon]))
            if high[0] - low[0] < FINE or low[0] == -math.inf or low[0] > log_delta - 1:
                break
            log_delta = float(low[0])
        return best

    def _planned(
        self,
        brackets: Sequence[BracketSum],
        epsilon: float,
        log_delta: float,
        most: float,
        cancellation: float,
    ) -> Telescope | None:
        lines: list[Line] = []
        rest: list[tuple[float, float]] = []
        for bracket in brackets:
            share = bracket.chernoff(epsilon)[0]
            if share < log_delta - DIGITS - 2:
                rest.append(bracket.certain(epsilon))
                continue
            line = bracket.line(epsilon, log_delta, most, cancellation)
            if line is None:
                return None
            lines.append(line)
        return Telescope(tuple(lines), tuple(rest)) if lines else None

    def _one_bracket(self, tilts: Array) -> list[BracketSum]:
        """The sum without levels; nothing where sums over y are too long."""
        key = (float(tilts[0]), float(tilts[-1]))
        if key not in self._bracket_at:
            nodes = tuple(
                StepNodes(x.loss, x.order, n, -math.inf, math.inf, float(tilts[-1]), None)
                for x, n in self._parts
            )
            short = all(step.full < MOST_PLACES for step in nodes)
            self._store(key, [BracketSum(nodes, self._variance, tilts)] if short else [])
        return self._bracket_at[key]

    def _brackets(
        self, epsilon: float, first: float, sharpness: float, log_delta: float
    ) -> list[BracketSum]:
        """The bulk up to a first level, and the levels above it, for one epsilon."""
        scale = max(epsilon, 0.1 * self._spread)
        last = self._table(log_delta).last_level(epsilon, log_delta - 2 * DIGITS)
        levels = [-math.inf, first]
        while levels[-1] < min(max(LAST, 4 * scale), max(last, 2 * scale)):
            levels.append(levels[-1] * RATIO)
        rare = levels[-1] >= last  # what is beyond the last level hardly counts
        levels.append(math.inf)
        # Half an octave of what lies below delta, so that neighbors have the same brackets.
        depth = 2.0 ** (math.ceil(2 * math.log2(3 * DIGITS - log_delta)) / 2)
        key = (first, sharpness, float(len(levels)), float(rare), depth)
        if key not in self._bracket_at:
            brackets = self._new_brackets(levels, _rounded(scale), sharpness, rare, depth)
            self._store(key, brackets)
        return self._bracket_at[key]

    def _store(self, key: tuple[float, ...], brackets: list[BracketSum]) -> None:
        if len(self._bracket_at) >= MOST_BRACKETS:
            self._bracket_at.clear()
        self._bracket_at[key] = brackets

    def _new_brackets(
        self,
        levels: Sequence[float],
        scale: float,
        sharpness: float,
        rare: bool,
        depth: float,
    ) -> list[BracketSum]:
        farthest = max(x.loss.farthest for x, _ in self._parts)
        tilts: list[Array] = []
        for low, high in pairwise(levels):
            start = 0.02 / max(low, scale)
            last = MOST_TILT / high
            if high == math.inf:
                last = min(LAST_TILT / max(low, scale), max(FARTHEST_PEAK / farthest, 4 * start))
            if high == math.inf and rare:  # the nodes reach as far as its mass counts
                pad = math.sqrt(2 * max(depth, 0.0)) + 2
                start, last = RARE[0], max(RARE[1], (pad - PAD) / farthest)
            tilts.append(np.geomspace(start, last, TILTS))
        columns: list[list[StepNodes]] = []
        for x, n in self._parts:
            places = [v if math.isinf(v) else x.place(v) for v in levels]
            grid = StepGrid(x.loss, x.order, sharpness, float(tilts[-1][-1]))
            columns.append(
                [
                    StepNodes(x.loss, x.order, n, low, high, float(c[-1]), sharpness, grid)
                    for (low, high), c in zip(pairwise(places), tilts, strict=True)
                ]
            )
        if any(step.full >= MOST_PLACES for column in columns for step in column):
            return []
        return [
            BracketSum(nodes, self._variance, c)
            for nodes, c in zip(zip(*columns, strict=True), tilts, strict=True)
        ]

    def _guess(self, log_target: float, kind: Kernel) -> tuple[float, bool]:
        """About where a tail falls to a logarithm, and whether it does; a start otherwise."""
        table = self._table(log_target)

        def rough(epsilon: float) -> float:
            return table.log_tail(epsilon, kind)

        low = high = start = self._middle
        if not rough(start) > log_target:
            while not rough(low) > log_target:
                if low < 1e-6 * start:
                    return start, False  # the real sums are a little off at 0
                low /= 4
            high = 4 * low
        else:
            # Half of the way to the supremum, but never so near that floats stand still.
            while rough(high) > log_target and high < min(FARTHEST, (1 - 1e-9) * self._supremum):
                high = 4 * high if self._removed else 0.5 * (high + self._supremum)
            low = high / 4 if self._removed else 2 * high - self._supremum
        if not (low < high and rough(low) > log_target >= rough(high)):
            return high, False
        ends = math.log(low), math.log(high)
        low, high = falls_to(lambda x: rough(math.exp(x)), log_target, *ends, NEAR)
        return math.exp(0.5 * (low + high)), True

    def _near(self, epsilon: float) -> Telescope | None:
        """Lines for an epsilon: those that are there if they suit it."""
        for lines, place, width in self._lines:
            if not isinstance(lines, Telescope) or abs(epsilon - place) > 0.1 * (
                place + self._spread
            ):
                continue
            if lines.width(epsilon) <= max(4 * width, GOOD):
                return lines
        line = self._line_at(epsilon)
        if not isinstance(line, Telescope):
            return None
        self._added(line, epsilon)
        return line

    def threshold(self, log_mass: float, *, ahead: bool) -> float | None:
        """About the t > 0 at which P(L > t), or Q(L > t) where not ``ahead``, has this logarithm.

        None where there is none or no line suits it.
        """
        low, high, failures = 0.0, math.inf, 0
        if ahead:
            t, near = self._guess(log_mass, "P")
        else:
            t, near = self._guess(log_mass, "Q")
        if not near:
            t = self._start
        for _ in range(SEARCH):
            lines = self._near(t)
            failures += lines is None
            if failures > MOST_FAILURES:
                return None
            tail = np.full(2, -math.inf)
            if lines is not None:
                tail = lines.log_tails(t * (1 + np.array([0.0, 1e-4])), ahead=ahead)
            if not np.all(np.isfinite(tail)):  # too far out
                high, t = t, math.sqrt(low * t) if low > 0 else 0.25 * t
                continue
            low, high = (t, high) if tail[0] > log_mass else (low, t)
            slope = float(tail[1] - tail[0]) / 1e-4  # in log t
            move = (log_mass - float(tail[0])) / slope if slope < 0 else 0.0
            if abs(move) < 1e-3:
                self._start = t
                return t * math.exp(move)
            # The tail bends down in log t: half of a long way out, and all of a way in.
            following = t * math.exp(min(max(move if move < 0 else 0.5 * move, -1.5), 1.0))
            if abs(move) < 0.2:
                following = t * math.exp(move)
            if not low < following < high:
                following = math.sqrt(low * high) if low > 0 else 0.25 * high
            if following < 1e-5 * self._spread or high < low * (1 + 1e-6):
                return None
            t = following
        return None

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        """The line at the threshold of the likelihood ratio test gives the power [LS-8]."""
        low, high = np.full(len(log_levels), -math.inf), np.zeros(len(log_levels))
        for k, level in enumerate(log_levels.tolist()):
            t = self.threshold(level, ahead=False)
            if t is None:
                low[k], high[k] = self._from_reverse(level)
            else:
                low[k], high[k] = self._at_threshold(level, t)
        return low, high

    def _at_threshold(self, log_level: float, t: float) -> Interval:
        lines = self._near(t)
        if lines is None:
            return -math.inf, 0.0
        places = t * (1 + np.linspace(-0.02, 0.02, 9))
        z = np.minimum.accumulate(
            ndtri_exp(np.clip(lines.log_tails(places, ahead=False), -1e300, -1e-12))
        )
        conjugate = Conjugate(lines.log_delta, places, z)
        below, above = conjugate.log_powers(np.array([log_level]))
        return float(below[0]), float(above[0])

    def _from_reverse(self, log_level: float) -> Interval:
        """Where the threshold is below 0, from the reversed pair: it misses where that rejects.

        delta(-t) = 1 - e^-t + e^-t delta_reverse(t), so that the miss is at most and at least
        e^-t ((1 - level) - delta_reverse(t)) at the best t.
        """
        other = self._backward()
        if not isinstance(other, LargestStepProfile):
            return -math.inf, 0.0
        rest = math.log(-math.expm1(log_level))
        t = other.threshold(rest, ahead=True)
        if t is None:
            return -math.inf, 0.0
        lines = other._near(t)
        if lines is None:
            return -math.inf, 0.0

        def log_deltas(epsilon: Array) -> tuple[Array, Array]:
            return log_delta_below_zero(epsilon, lines.log_delta(-epsilon))

        places = -t * (1 + np.linspace(0.02, -0.02, 9))
        tails = np.log(-np.expm1(np.minimum(lines.log_tails(-places, ahead=True), -1e-300)))
        z = np.minimum.accumulate(ndtri_exp(np.clip(tails, -1e300, -1e-12)))
        below, above = Conjugate(log_deltas, places, z).log_powers(np.array([log_level]))
        return float(below[0]), float(above[0])

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta: by the real sums, then by Newton's method."""
        if log_delta < -DEEPEST:
            return super().epsilon_near(log_delta)
        epsilon, near = self._guess(log_delta, "delta")
        if not near and epsilon > self._middle:
            return min(epsilon, self._supremum)
        if not near:  # delta may be below this already at 0
            epsilon = 1e-3 * self._spread
        for _ in range(NEWTON):
            lines = self._near(epsilon)
            if lines is None:  # another engine is asked
                return epsilon
            below, above = lines.log_delta(epsilon * (1 + np.array([0.0, 1e-5])))
            middle = 0.5 * (below + above)
            slope = float(middle[1] - middle[0]) / 1e-5  # in the logarithm of epsilon
            if not (math.isfinite(middle[0]) and slope < 0):
                return epsilon
            move = (log_delta - float(middle[0])) / slope
            epsilon *= math.exp(min(max(move, -2.0), 2.0))
            if abs(move) <= CLOSE:
                break
        return min(epsilon, self._supremum)


def _rounded(scale: float) -> float:
    """To a quarter of an octave, so that neighboring epsilons have the same brackets."""
    return 2.0 ** (round(4 * math.log2(scale)) / 4)


def _waning(terms: Array, angle: Array, u: Array) -> Array:
    """log of the sum of e^{terms - u angle} for each u."""
    used = terms > float(terms.max()) - 60
    rest = log_sum(terms[~used]) if not used.all() else -math.inf
    return np.logaddexp(log_sum(terms[used] - np.multiply.outer(u, angle[used])), rest)


def _log_expm1(x: Array) -> Array:
    """log(e^x - 1), x > 0; -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.where(x < 30, np.log(np.expm1(np.minimum(x, 30.0))), x)


def _difference(log_low: Array, gain: Array) -> Array:
    """e^log_low (e^gain - 1), with the digits of a small gain."""
    near = np.real(gain) < 30
    with np.errstate(over="ignore"):
        small = np.exp(log_low) * np.expm1(np.where(near, gain, 0.0))
        return np.where(near, small, np.exp(log_low + gain) - np.exp(log_low))


def largest_step_profile(losses: Composition) -> LargestStepProfile:
    """The profile of a sum, the same for the same sum."""
    return losses.cache("largest step", LargestStepProfile)


@register(95, "mixtures of normals, as Gaussian steps on samples: lines for each largest step")
def _sampled_steps(composition: Composition) -> Profile | None:
    kinds = [loss for loss, _ in composition.parts if not isinstance(loss, GaussianLoss)]
    steps = [step for step in map(_step, kinds) if step is not None]
    one_order = len({(step.order, step.loss.removed) for step in steps}) == 1
    if not one_order or len(steps) < len(kinds) or not all(map(_suits, steps)):
        return None
    engines: list[tuple[float, Callable[[], Profile]]] = [
        (0.0, lambda: largest_step_profile(composition)),
    ]
    count = sum(n for _, n in composition.parts)
    subsampled = all(isinstance(loss, SubsampledGaussianLoss) for loss, _ in composition.parts)
    if count <= SEVERAL and subsampled:
        engines.append((NARROW, lambda: FewStepsProfile(composition)))
    engines.append((FAIR if count <= SEVERAL else WIDE, lambda: dots_profile(composition)))
    return CascadeProfile(engines, composition.log_total_variation)


def _suits(step: Step) -> bool:
    """Whether sums over y stay short, and log R has a least value that floats hold."""
    return step.loss.farthest <= MOST_DISTANCE and step.loss.log_least > -LEAST_WEIGHT
