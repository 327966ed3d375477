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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch

import numpy as np
from scipy.special import ndtri_exp

from neyman.losses.composition import Composition
from neyman.losses.gaussian import GaussianLoss
from neyman.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.losses.loss import Part
from neyman.losses.subsampled import (
    FixedSizeLoss,
    ReplaceOneSubsampledLoss,
    SubsampledGaussianLoss,
)
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p, series
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import above
from neyman.profiles.combination import CascadeProfile
from neyman.profiles.contour import GOOD, WIDE, ContourProfile, contour_profile
from neyman.profiles.contour_line import Line, log_kernel, saddle
from neyman.profiles.convolution import dots_profile
from neyman.profiles.duality import Conjugate
from neyman.profiles.few_steps import FewStepsProfile
from neyman.profiles.profile import Engine, Interval, Profile, log_delta_below_zero
from neyman.profiles.selection import register
from neyman.profiles.step_windows import Order, StepNodes, log_sum

__all__ = ["BracketSum", "LargestStepProfile"]

DIGITS = 27.0  # aliasing and truncation are kept below e^-27 of delta
FIRST = 8.0  # epsilon over the first level
SHARPNESS = (6.0, 10.0, 16.0)  # of windows; the next one where an answer is wide
RATIO = 8.0  # of a level to the one before
LAST = 20.0  # level from which no window cuts
FEW_TILTS, COARSE = 16, 4.0  # for a guess
TILTS = 40  # tilts at which a bracket's transform is looked at
MOST_NODES = 30_000
LAST_TILT = 30.0  # times the last level, which has no window above it
FARTHEST_PEAK = 300.0  # of the terms in y
MOST_TILT = 400.0  # times the level
HEIGHTS = np.geomspace(0.3, 1e9, 44)  # in units of the tilt
SHARES = (0.5, 1.0, 2.0)  # heights of y over a, on which the decay is bounded
CANCELLATION = 6.0  # of the terms, in e-folds
FINE = 1e-9  # width of log delta with which a line is good enough
ENOUGH = 1e-7  # width of log delta with which no other shape is tried
LOOSE = 1.0  # of a bound on log F
LEAST = 0.01  # epsilon over the spread of the sum below which a line that fails fails for all
MOST_FAILURES = 6  # on the way to a threshold
MOST_BRACKETS = 200  # that are stored
TRIES = 3  # of lines for one epsilon
NARROW = 1e-6  # width of log delta from which the next engine is asked, too
FAIR = 1e-5  # the same before a grid of a few steps, which is fast
SEVERAL = 64  # steps up to which the density of their sum is asked
MOST_DISTANCE = 10.0  # of the two normals, with which sums over y stay short
LEAST_WEIGHT = 200.0  # minus the logarithm of a normal's weight
NEAR = 0.05  # of the logarithm of a guess at epsilon
SEARCH = 24  # steps to the threshold of a level
NEWTON = 8  # steps to the epsilon of a delta


Kernel = Callable[[Array, float], Array]  # of tilts, at an epsilon


@dataclass(frozen=True, eq=False)
class BracketSum:
    """The transform of one bracket: F = product of M_high^n - product of M_low^n [LS-2].

    Args:
        nodes: of each step.
        variance: mu^2 of Gaussian noise beside the steps.
        tilts: real tilts at which it was looked at.
        log_f: log F there, shape (n,); to steer by.
    """

    nodes: tuple[StepNodes, ...]
    variance: float
    tilts: Array
    log_f: Array
    _above: dict[int, float] = field(default_factory=dict, repr=False)
    _decay: dict[int, Array] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(nodes: tuple[StepNodes, ...], variance: float, tilts: Array) -> BracketSum:
        """Look at the transform at real tilts; only at certified ones if the nodes are fine."""
        low, gain, bulk = np.zeros(len(tilts)), np.zeros(len(tilts)), False
        for step in nodes:
            below, bracket = step.log_sums(tilts)
            bulk = step.low == -math.inf
            low = low + step.count * (bracket if bulk else below)
            if not bulk:
                gain = gain + step.count * np.logaddexp(0.0, bracket - below)
        log_f = low + 0.5 * variance * tilts * (tilts + 1) + (0.0 if bulk else _log_expm1(gain))
        bracket = BracketSum(nodes, variance, tilts, log_f)
        good = bracket._certified() if nodes[0].coarse == 1.0 else len(tilts)
        return BracketSum(nodes, variance, tilts[:good], log_f[:good], bracket._above)

    def _certified(self) -> int:
        """How many tilts, from the first on, have a bound near log F: by bisection."""
        good, bad = 1, len(self.tilts)
        if not self._loose(bad - 1):
            return bad
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if self._loose(middle) else (middle, bad)
        return max(good, 2)

    def _loose(self, index: int) -> bool:
        return not self.log_f_above(index) - float(self.log_f[index]) < LOOSE

    @property
    def count(self) -> int:
        """How many steps there are."""
        return sum(step.count for step in self.nodes)

    def log_terms(self, epsilon: float) -> Array:
        """log of the terms at u = 0: F(c) e^{-c epsilon} / (c (c + 1))."""
        return self.log_f - self.tilts * epsilon - np.log(self.tilts * (self.tilts + 1))

    def chernoff(self, epsilon: float) -> tuple[float, int]:
        """About the log of the bracket's share of delta, at most, and the index of that tilt."""
        bound = self.log_f - self.tilts * epsilon + log_kernel(self.tilts)
        index = int(np.argmin(bound))
        return float(bound[index]), index

    def log_f_above(self, index: int) -> float:
        """An upper bound on log F at a tilt: F rises with each of its factors [LS-6]."""
        if index not in self._above:
            self._above[index] = self._log_f_above(float(self.tilts[index]))
        return self._above[index]

    def _log_f_above(self, tilt: float) -> float:
        each = [step.log_above(tilt) for step in self.nodes]
        if any(v == math.inf or b == math.inf for v, b in each):
            return math.inf  # no bound is known; a difference of two such says nothing
        bulk = self.nodes[0].low == -math.inf
        log_low = math.fsum(
            s.count * (b if bulk else v) for s, (v, b) in zip(self.nodes, each, strict=True)
        )
        normal = 0.5 * self.variance * tilt * (tilt + 1)
        size = 1 + abs(log_low) + normal
        if bulk:
            return log_low + normal + 16 * UNIT * size
        gain = math.fsum(
            s.count * float(np.logaddexp(0.0, b - v))
            for s, (v, b) in zip(self.nodes, each, strict=True)
        )
        value = log_low + normal + float(_log_expm1(np.array([gain]))[0])
        return value + 16 * UNIT * (size + abs(gain) + abs(value)) if gain > 0 else -1e300

    def decay(self, index: int) -> Array:
        """The bounds of `log_decay` at a tilt c and the heights c HEIGHTS."""
        if index not in self._decay:
            tilt = float(self.tilts[index])
            self._decay[index] = self.log_decay(tilt, HEIGHTS * tilt)
        return self._decay[index]

    def log_decay(self, tilt: float, u: Array) -> Array:
        """Bounds on log |F(c + iv)| for every v >= u [LS-5]."""
        best = np.full(len(u), math.inf)
        most = [float(np.logaddexp(*step.log_above(tilt))) for step in self.nodes]
        for share in SHARES:
            both: list[Array] = []
            brackets: list[Array] = []
            for step, top in zip(self.nodes, most, strict=True):
                panels = step.panels(share * step.a, tilt)
                bracket = _waning(panels.bracket, panels.angle, u)
                total = bracket
                if step.low > -math.inf:
                    total = np.logaddexp(bracket, _waning(panels.low, panels.angle, u))
                both.append(np.minimum(total, top))
                brackets.append(bracket)
            bound = sum(
                (s.count * v for s, v in zip(self.nodes, both, strict=True)), np.zeros(len(u))
            )
            if self.nodes[0].low > -math.inf:
                each = [
                    math.log(s.count) + b - v
                    for s, b, v in zip(self.nodes, brackets, both, strict=True)
                ]
                bound = bound + np.logaddexp.reduce(each)
            best = np.minimum(best, bound)
        return best + 0.5 * self.variance * (tilt * (tilt + 1) - u * u) + 1e-9

    def line(self, epsilon: float, log_delta: float) -> Line | None:
        """The line with the widest spacing; none if it would need too many nodes."""
        terms = self.log_terms(epsilon)
        fine = np.flatnonzero(terms < max(float(terms.min()), log_delta) + CANCELLATION)
        best = (0.0, 0, 0)
        for index in fine[fine < len(self.tilts) - 1]:
            c, others = float(self.tilts[index]), self.tilts[index + 1 :]
            excess = self.log_f[index + 1 :] - others * epsilon + log_kernel(others) - log_delta
            after = math.tau * (others - c) / np.maximum(excess + DIGITS, 1e-3)
            k = int(np.argmax(after))
            h = min(math.tau * c / (DIGITS - min(log_delta, 0.0)), float(after[k]))
            best = max(best, (h, int(index), int(index) + 1 + k))
        h, index, other = best
        if h == 0.0:
            return None
        c, top = float(self.tilts[index]), float(self.log_f[index])
        u = HEIGHTS * c
        decay = self.decay(index) - top
        need = log_delta - DIGITS - (top - c * epsilon)
        enough = np.flatnonzero(decay - np.log(math.pi * u) < need)
        if not len(enough) or not u[enough[0]] / h < MOST_NODES:
            return None
        first = int(enough[0])
        return self._built(index, other, h, float(u[first]), float(decay[first]))

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
        used = sorted({other, min(other + 2, len(self.tilts) - 1), max(other - 2, index + 1)})
        others = self.tilts[used]
        above = np.array([self.log_f_above(i) for i in used])
        beyond = np.array([others, above, math.tau * (others - c) / h])
        turns = math.tau * c / h
        return Line(c, heights, phi * kernel, top, fixed, moving, turns, beyond, 0.0)

    def _transform(self, c: float, top: float, u: Array) -> tuple[Array, Array] | None:
        """F(c + iu) / e^top and a bound on its error [LS-6]; none if it is lost in rounding."""
        sums = [step.line(c, u) for step in self.nodes]
        bulk = self.nodes[0].low == -math.inf
        lost = [s.bracket_error[0] == 1.0 for s in sums]
        if all(lost) or (bulk and any(lost)) or any(s.low_error[0] == 1.0 for s in sums):
            return None
        if not bulk and any(s.log_bracket - s.log_low > 700 for s in sums):
            return None
        low, gain = np.zeros(len(u), complex), np.zeros(len(u), complex)
        real_low, real_gain = 0.0, 0.0
        for step, s in zip(self.nodes, sums, strict=True):
            n, log_value = step.count, s.log_bracket if bulk else s.log_low
            moved = s.bracket if bulk else s.low
            # A value within rounding of 0 stands for any other; each error is at least 64 units.
            moved = np.where(np.abs(1 + moved) < 8 * UNIT, 8 * UNIT - 1, moved)
            low = low + n * (log_value + log1p(moved))
            real_low += n * log_value
            if not bulk:
                x = math.exp(s.log_bracket - s.log_low)
                gain = gain + n * log1p(x * (1 + s.bracket) / (1 + moved))
                real_gain += n * math.log1p(x)
        normal = 0.5 * self.variance * (c + 1j * u) * (c + 1 + 1j * u)
        log_low = low + normal - top
        size = 1 + abs(top) + np.abs(low) + np.abs(normal) + np.abs(gain)
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
        error = error + 16 * UNIT * size * rounding + 4 * UNIT * self.count * np.abs(phi)
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


@singledispatch
def _step(loss: Part) -> Step | None:
    """The step behind a loss; none where it is no ratio of mixtures of normals."""
    return None


@_step.register
def _(loss: LikelihoodRatioLoss) -> Step | None:
    return Step(loss, "one")


@_step.register
def _(loss: ReplaceOneSubsampledLoss) -> Step | None:
    return _subsampled(loss.inner, loss.rate, "opposite")


@_step.register
def _(loss: FixedSizeLoss) -> Step | None:
    return _subsampled(loss.inner, loss.share, "symmetric")


def _subsampled(inner: Part, rate: float, order: Order) -> Step | None:
    if not isinstance(inner, GaussianLoss):
        return None
    return Step(SubsampledGaussianLoss(inner.mu, rate, True), order)


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
        # About how far the sum of all losses spreads.
        sides = 1 if self._parts[0][0].order == "one" else 2
        spread = math.fsum(n * (sides * x.loss.mean_shift) ** 2 for x, n in self._parts)
        self._spread = math.sqrt(spread + self._variance)
        self._composition = losses
        self._bracket_at: dict[tuple[float, ...], BracketSum] = {}
        self._middle = 0.1 * self._spread if self._removed else 0.5 * self._supremum
        self._start = 0.5 * min(self._spread, 0.5 * self._supremum)
        self.method, self.engine = "contour, by the largest step", Engine.CONTOUR

    def _line(self, epsilon: float) -> Telescope | None:
        best, narrowest = None, math.inf
        for sharpness in SHARPNESS if self._removed else SHARPNESS[:1]:
            telescope = self._telescope(epsilon, sharpness)
            width = telescope.width(epsilon) if telescope is not None else math.inf
            if width < narrowest:
                best, narrowest = telescope, width
            if narrowest < ENOUGH or (best is None and epsilon < LEAST * self._spread):
                break
        return best

    def _telescope(self, epsilon: float, sharpness: float) -> Telescope | None:
        brackets = self._brackets(epsilon, sharpness)
        peaks = [float(b.log_terms(epsilon).min()) for b in brackets]
        log_delta = min(float(np.logaddexp.reduce(peaks)) - 2.0, 0.0)
        best = None
        for _ in range(TRIES):
            telescope = self._planned(brackets, epsilon, log_delta)
            if telescope is None:
                return best
            best = telescope
            low, high = telescope.log_delta(np.array([epsilon]))
            if high[0] - low[0] < FINE or low[0] == -math.inf or low[0] > log_delta - 1:
                break
            log_delta = float(low[0])
        return best

    def _planned(
        self, brackets: Sequence[BracketSum], epsilon: float, log_delta: float
    ) -> Telescope | None:
        lines: list[Line] = []
        rest: list[tuple[float, float]] = []
        for bracket in brackets:
            most, index = bracket.chernoff(epsilon)
            if most < log_delta - DIGITS - 2:
                rest.append((float(bracket.tilts[index]), bracket.log_f_above(index)))
                continue
            line = bracket.line(epsilon, log_delta)
            if line is None:
                return None
            lines.append(line)
        return Telescope(tuple(lines), tuple(rest)) if lines else None

    def _brackets(self, epsilon: float, sharpness: float, coarse: float = 1.0) -> list[BracketSum]:
        """The bulk and the levels for one epsilon."""
        scale = _rounded(max(epsilon, 0.1 * self._spread))
        if not self._removed:
            c = _rounded(saddle(self._composition, epsilon))
            tilts = c * np.geomspace(0.2, 8.0, TILTS)
            return [self._bracket(-math.inf, math.inf, tilts, 2.0, coarse)]
        brackets: list[BracketSum] = []
        low, high = -math.inf, scale / FIRST
        while high < max(LAST, 4 * scale):
            brackets.append(self._level(low, high, scale, sharpness, coarse))
            low, high = high, high * RATIO
            # Larger losses than a level that hardly counts need no levels of their own.
            shares = [bracket.chernoff(epsilon)[0] for bracket in brackets]
            if low > 2 * scale and shares[-1] < max(shares) - 2 * DIGITS:
                break
        return [*brackets, self._level(low, math.inf, scale, sharpness, coarse)]

    def _level(
        self, low: float, high: float, scale: float, sharpness: float, coarse: float
    ) -> BracketSum:
        start = 0.02 / max(low, scale)
        last = MOST_TILT / high
        if high == math.inf:
            farthest = max(x.loss.farthest for x, _ in self._parts)
            last = min(LAST_TILT / max(low, scale), max(FARTHEST_PEAK / farthest, 4 * start))
        tilts = np.geomspace(start, last, TILTS if coarse == 1.0 else FEW_TILTS)
        return self._bracket(low, high, tilts, sharpness, coarse)

    def _bracket(
        self, low: float, high: float, tilts: Array, sharpness: float, coarse: float
    ) -> BracketSum:
        key = (low, high, float(tilts[0]), sharpness, coarse)
        if key not in self._bracket_at:
            if len(self._bracket_at) >= MOST_BRACKETS:
                self._bracket_at.clear()
            self._bracket_at[key] = self._new_bracket(low, high, tilts, sharpness, coarse)
        return self._bracket_at[key]

    def _new_bracket(
        self, low: float, high: float, tilts: Array, sharpness: float, coarse: float
    ) -> BracketSum:
        def place(step: Step, level: float) -> float:
            return level if math.isinf(level) else step.place(level)

        nodes = tuple(
            StepNodes(
                x.loss,
                x.order,
                n,
                place(x, low),
                place(x, high),
                float(tilts[-1]),
                sharpness,
                coarse,
            )
            for x, n in self._parts
        )
        return BracketSum.of(nodes, self._variance, tilts)

    def _rough(self, epsilon: float, kernel: Kernel) -> float:
        """About log delta(epsilon) or log of a tail, from the real sums alone."""
        brackets = self._brackets(epsilon, SHARPNESS[0], COARSE)
        peaks = [
            float((b.log_f - b.tilts * epsilon + kernel(b.tilts, epsilon)).min()) for b in brackets
        ]
        return min(float(np.logaddexp.reduce(peaks)) - 1.0, 0.0)

    def _guess(self, log_target: float, kernel: Kernel) -> tuple[float, bool]:
        """About where `_rough` falls to a logarithm, and whether it does; a start otherwise."""

        def rough(epsilon: float) -> float:
            return self._rough(epsilon, kernel)

        low = high = start = self._middle
        if not rough(start) > log_target:
            while not rough(low) > log_target:
                if low < 1e-6 * start:
                    return start, False  # the real sums are a few e-folds off at 0
                low /= 4
            high = 4 * low
        else:
            # Half of the way to the supremum, but never so near that floats stand still.
            while rough(high) > log_target and high < min(1e4, (1 - 1e-9) * self._supremum):
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
            t, near = self._guess(log_mass, lambda c, _: -np.log(c))
        else:  # Q(L > t) is the mean of e^-L under P
            t, near = self._guess(log_mass, lambda c, t: -np.log(c + 1) - t)
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
        epsilon, near = self._guess(log_delta, lambda c, _: -np.log(c * (c + 1)))
        if not near and epsilon > self._middle:
            return min(epsilon, self._supremum)
        for _ in range(NEWTON):
            telescope = self._line_at(epsilon)
            if telescope is None:  # too far out
                epsilon /= 2
                continue
            self._added(telescope, epsilon)
            places = epsilon * (1 + np.array([0.0, 1e-5]))
            below, above = telescope.log_delta(places)
            middle = 0.5 * (below + above)
            slope = float(middle[1] - middle[0]) / (1e-5 * epsilon)
            if not (math.isfinite(middle[0]) and slope < 0):
                return epsilon
            move = (log_delta - float(middle[0])) / slope
            before, epsilon = epsilon, min(max(epsilon + move, epsilon / 8), 8 * epsilon)
            if abs(epsilon - before) <= 0.02 * before:
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
        (NARROW, lambda: contour_profile(composition, release=False, beside=True)),
        (NARROW, lambda: largest_step_profile(composition)),
    ]
    count, long = sum(n for _, n in composition.parts), -1
    subsampled = all(isinstance(loss, SubsampledGaussianLoss) for loss, _ in composition.parts)
    if count <= SEVERAL and subsampled:
        engines.append((NARROW, lambda: FewStepsProfile(composition)))
    if count > SEVERAL or all(step.order == "one" for step in steps):
        # Otherwise K is costly as far as a tiny release needs it.
        engines.append((NARROW, lambda: contour_profile(composition, beside=True)))
        long = len(engines) - 1
    engines.append((FAIR if count <= SEVERAL else WIDE, lambda: dots_profile(composition)))
    powers = [k for k in range(len(engines)) if k != long]  # a power takes many lines
    return CascadeProfile(engines, composition.log_total_variation, powers)


def _suits(step: Step) -> bool:
    """Whether sums over y stay short, and log R has a least value that floats hold."""
    return step.loss.farthest <= MOST_DISTANCE and step.loss.log_least > -LEAST_WEIGHT
