"""Compute profiles of Gaussian steps on samples by one line, or one per size of the largest step.

A window (`step_grid`) cuts off the losses of a step above a level. So sums over y are short, and
transforms of brackets (`brackets`) die out fast. See docs/certificates/largest-step.md for the
derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.curves.losses.loss import Loss, NormalRatio, Part
from neyman.curves.profiles.combination import LIMITS as COMBINATION_LIMITS
from neyman.curves.profiles.combination import CascadeProfile, group_profile
from neyman.curves.profiles.contour.brackets import (
    RATIO,
    BracketSum,
    CutTransform,
    CutWeights,
    LargestTermProfile,
)
from neyman.curves.profiles.contour.conditioning import conditioned
from neyman.curves.profiles.contour.contour import LIMITS as CONTOUR_LIMITS
from neyman.curves.profiles.contour.contour import smooth
from neyman.curves.profiles.contour_line import Mass
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.profile import Engine, Profile
from neyman.curves.profiles.sampled_steps.step_grid import StepGrid
from neyman.curves.profiles.sampled_steps.step_nodes import StepNodes, log_sum
from neyman.curves.profiles.selection import register
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import in_question


@dataclass(frozen=True)
class Limits:
    """Limits on the splitting of a sum. All values give valid bounds.

    Args:
        window_slope: smallest slope m of log psi in t, times 0.3 / mu if this is above 1 (0.6 / mu
            in a self-reverse pair). Flatter windows pass more losses above their level. Steeper
            windows need more nodes [LS-1].
        window_share: smallest ratio of m to the slope of the step's log density at epsilon. At x
            below a level, log(1 - s) falls by m x and (m x)^2 / 18. With a smaller ratio, smaller
            losses dominate.
        rare_deviations: y of losses that are negligible, unless epsilon is as large.
        atom_steps: most steps for which the sum's atom at 0 matters.
        grid_steps: most steps for which grids are fast.
    """

    rare_deviations: float = 18.0
    grid_steps: int = 64
    weight_efolds: float = 200.0  # minus the logarithm of a normal's least weight
    unlike_parts: int = 400  # parts beyond which all levels of all parts are too slow
    # Width of log delta at which a line with other losses suffices.
    line_width: float = 1e-9
    least_height: float = 0.3  # least height of a line's end, in units of the tilt


LIMITS = Limits()
SHARES = (1.0, 2.0)  # heights of y over a, for bounds on the decay


@dataclass(frozen=True)
class StepSum(BracketSum):
    """Represent the sums of steps of which the largest is between two levels.

    Args:
        losses: the sum: steps, Gaussian noise, and other losses [LS-11].
        low, high: the levels.
        scale: size of the losses for which windows are sharp enough; 0 without windows.
        last_tilt: the largest tilt.
    """

    losses: Composition
    low: float
    high: float
    scale: float
    last_tilt: float

    has_memory = True  # for `array_cache`: its nodes belong to a question

    @property
    def _own(self) -> _Nodes:
        return in_question(("steps", self), lambda: _Nodes(self))

    @property
    def wave_nodes(self) -> int:
        # Beside other losses, steps of tiny losses need many.
        return 1 << 15 if self._own.others is None else 1 << 20

    def places(self, tilt: float, height: float) -> float:
        if tilt > self.last_tilt:
            return math.inf
        own = self._own
        beside = own.others.places(tilt, height) if own.others is not None else 0.0
        return beside + sum(step.size for step in own.nodes)

    def weights(self) -> list[CutWeights]:
        # Every k-th node errs by about e^{-45 / k}, times the count.
        strides = [
            4 if n < 1e3 else 2 if n < 1e7 else 1 for n in (s.count for s in self._own.nodes)
        ]
        each = zip(self._own.nodes, strides, strict=True)
        return [CutWeights(step.count, *step.weights(stride)) for step, stride in each]

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return log F, and mean and variance of the measure under each tilt; uncertified."""
        k, mean, variance = super().moments(tilts)
        own, v = self._own, self._own.variance
        k, mean, variance = (
            k + 0.5 * v * tilts * (tilts + 1),
            mean + v * (tilts + 0.5),
            variance + v,
        )
        if own.others is None:
            return k, mean, variance
        more = own.others.moments(tilts)
        return k + more[0], mean + more[1], variance + more[2]

    def transforms(self, tilt: float, u: Array) -> list[tuple[int, CutTransform]]:
        each = [(step.count, step.line(tilt, u)) for step in self._own.nodes]
        # For added steps, the sums are conjugates of the transforms.
        conjugates = [(n, replace(x, inside=np.conj(x.inside))) for n, x in each]
        return each if self._own.nodes[0].rises else conjugates

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        """Return log F(z), and a bound on the error of F(z) relative to F(Re z)."""
        log_f, error = super().mgf(z)
        if z.dtype.kind == "c":
            return log_f, error
        # Of a bracket that rounding hides, only an upper bound is known: F errs by at most that.
        for k in np.flatnonzero(~(error < 0.5)).tolist():
            log_f[k], error[k] = self.log_above(float(z[k])), 1.0
        return log_f, error

    @np.errstate(all="ignore")
    def on_line(self, tilt: float, u: Array) -> tuple[Array, Array]:
        """Return log F(tilt + iu), with Gaussian noise and other losses [LS-2, LS-11]."""
        log_f, error = super().on_line(tilt, u)
        own, z = self._own, tilt + 1j * u
        normal = 0.5 * own.variance * z * (z + 1)
        if own.variance:
            fall = np.exp(-0.5 * own.variance * u * u)
            # slack: counted
            error = error * fall + 16 * UNIT * (1 + abs(normal[0]) + np.abs(normal) * fall)
        log_f = log_f + normal
        if own.others is None:
            return log_f, error
        k, more = own.others.mgf(z)
        # The error of each factor multiplies the other factor, largest at u = 0 [LS-11].
        error = error * (1 + 4 * more) + 2 * more * (1 + error[0])
        return log_f + k, np.where((more < 0.5) & (error < math.inf), error, math.inf)

    def mass(self, epsilon: float) -> Mass | None:
        """Return the masses of the bracket if all its losses are above epsilon, else None.

        Sums at a tilt of -1/2 are certified only for one order of a pair [LS-12].
        """
        one = all(step.order == "one" for step in self._own.nodes)
        return super().mass(epsilon) if one else None

    def log_above(self, tilt: float) -> float:
        """Return an upper bound on log F at a tilt, as F rises with each factor [LS-6]."""
        nodes = self._own.nodes
        each = [step.log_above(tilt) for step in nodes]
        if any(v == math.inf or b == math.inf for v, b in each):
            return math.inf  # no bound is known
        lows = [s.count * (v if self.split else b) for s, (v, b) in zip(nodes, each, strict=True)]
        normal, size = self._log_others(tilt)
        # Each product is rounded, and a sum of products may cancel.
        size += 1 + math.fsum(abs(v) for v in lows)
        value = math.fsum(lows) + normal
        if not self.split:
            # slack: the_transform_of_a_bracket_whose_factors_cancel
            return value + 16 * UNIT * size
        ratios = np.array([b - v for v, b in each])
        counts = np.array([float(s.count) for s in nodes])
        log_gains = log_sum(log_gain(counts, ratios))
        if log_gains == -math.inf:
            return -1e300
        value += float(log_expm1(log_gains[None])[0])
        # Ratios and logarithms of counts are rounded. For a gain g, log(e^g - 1) magnifies this.
        far = float(np.abs(ratios[ratios > -math.inf]).max() + np.log(counts.max()))
        moved = (4 + far) * (1 + math.exp(min(log_gains, 700.0)))
        # slack: the_transform_of_a_bracket_whose_factors_cancel
        return value + 16 * UNIT * (size + moved + abs(value))

    def _log_others(self, tilt: float) -> tuple[float, float]:
        """Return an upper bound on K(tilt) of all other losses, and the size of its terms."""
        own = self._own
        normal = 0.5 * own.variance * tilt * (tilt + 1)
        if own.others is None:
            return normal, normal
        k, error = (float(v[0]) for v in own.others.mgf(np.array([tilt])))
        return normal + k + math.log1p(error), normal + abs(k)

    @np.errstate(all="ignore")  # a NaN ends no line
    def end(self, tilt: float, need: float, step: float) -> tuple[float, float] | None:
        """Return a height, and the log of a bound on the nodes beyond it.

        The bound is on the sum of |F| h / (pi u^2) over all nodes u = j h beyond the height, over
        F at u = 0 [LS-7].

        Args:
            tilt: the c of the line.
            need: e-folds by which the bound should be below 1.
            step: the distance h of nodes.
        """
        top = float(self.mgf(np.array([tilt]))[0][0])
        if not math.isfinite(top):
            return None
        # Largest height of a line's end, in units of the tilt.
        low, high, at_high = LIMITS.least_height, 1e9, math.inf
        for points in (20, 10):
            heights = low * (high / low) ** np.linspace(0.0, 1.0, points + 1)
            u = heights * tilt
            bound = self.decay(tilt, u) - np.log(math.pi * u) - top
            enough = np.flatnonzero(bound < -need)
            if not len(enough):
                return None
            first = int(enough[0])
            high, at_high = float(heights[first]), float(bound[first])
            if first == 0:
                break
            low = float(heights[first - 1])
        return high * tilt, at_high

    def decay(self, tilt: float, u: Array) -> Array:
        """Return, for each u, an upper bound on log |F(tilt + iv)| for all v >= u [LS-5, LS-10]."""
        own, split = self._own, self.split
        falls = own.falls(tilt)
        most = [float(np.logaddexp(*step.log_above(tilt))) for step in own.nodes]
        turns = [step.turn(tilt) for step in own.nodes]
        heights = np.concatenate([u, turns])
        best = np.full(len(u), math.inf)
        for each in falls:
            laws: list[Array] = []
            insides: list[Array] = []
            for k, (step, top, fall) in enumerate(zip(own.nodes, most, each, strict=True)):
                inside = fall[1].below(heights)
                law = fall[0].below(heights) if split else inside
                near = self._by_moments(step, tilt, u, turns[k], float(law[len(u) + k]))
                law, inside = np.minimum(law[: len(u)], near), inside[: len(u)]
                laws.append(np.minimum(np.logaddexp(law, inside) if split else law, top))
                insides.append(inside)
            counts = [float(step.count) for step in own.nodes]
            bound = np.array(counts) @ np.array(laws)
            if split:
                gains = [math.log(n) + b - v for n, b, v in zip(counts, insides, laws, strict=True)]
                bound = bound + np.logaddexp.reduce(gains)
            best = np.minimum(best, bound)
        return best + self._log_others(tilt)[0] - 0.5 * own.variance * u * u + 1e-9

    def _by_moments(
        self, step: StepNodes, tilt: float, u: Array, turn: float, beyond: float
    ) -> Array:
        """Bound log |M| of a step for all v >= u, for each u below ``turn``; inf for the other u.

        ``beyond``: a bound for all v beyond the turn.
        """
        variance, fourth = step.moments(tilt)
        above = step.log_above(tilt)[0 if self.split else 1]
        square = np.where(u < turn, u * u, 0.0)
        fall = np.maximum(square * (variance - square * fourth / 24), 0.0)
        near = above + 0.5 * np.log1p(-np.minimum(fall, 0.999))
        return np.where(u < turn, np.maximum(near, beyond), math.inf)


class _Nodes:
    """Hold the nodes of each step of a sum, and what else its lines ask several times."""

    def __init__(self, total: StepSum) -> None:
        steps, self.variance, self.others = _parts(total.losses)
        nodes: list[StepNodes] = []
        each = [x for x, _ in steps]
        farthest = LIMITS.rare_deviations
        if total.scale and deviations(each, total.scale / 64) > farthest:
            farthest = deviations(each, total.scale)  # epsilon is rare, too
        for x, n in steps:
            mu, sharpness = x.loss.farthest, None
            low, high = (
                v if math.isinf(v) else place_of(x.loss, v) for v in (total.low, total.high)
            )
            if total.scale:
                sharpness = 6.0 * max(1.0, (0.3 if x.order == "one" else 0.6) / mu)
                y = min(place_of(x.loss, total.scale) / mu, farthest)
                sharpness = max(sharpness, 0.4 * y / mu)
                sharpness /= max(1.0, total.scale / 100)
            last = total.last_tilt if not (x.order != "one" or x.loss.removed) else 1.0
            key = "grid", x.loss, x.order, sharpness, last
            grid = in_question(
                key, lambda x=x, m=sharpness, c=last: StepGrid(x.loss, x.order, m, c)
            )
            nodes.append(StepNodes(x.loss, x.order, n, low, high, total.last_tilt, sharpness, grid))
        self.nodes = tuple(nodes)
        self._falls: tuple[float, Any] | None = None  # for a tilt

    def falls(self, tilt: float) -> list[list[tuple[_Fall, _Fall]]]:
        """Return bounds on the decay in u of each step's two measures, for some heights Im y."""
        if self._falls is None or self._falls[0] != tilt:
            every: list[list[tuple[_Fall, _Fall]]] = []
            for share in SHARES:
                every.append([])
                for step in self.nodes:
                    panels = step.panels(share * step.a, tilt)
                    inside = _Fall.of(panels.bracket, panels.angle)
                    low = inside if step.bulk else _Fall.of(panels.low, panels.angle)
                    every[-1].append((low, inside))
            self._falls = tilt, every
        return self._falls[1]


def _parts(losses: Composition) -> tuple[list[tuple[NormalRatio, int]], float, Composition | None]:
    """Return the steps with their counts, mu^2 of Gaussian noise, and the other losses."""
    steps: list[tuple[NormalRatio, int]] = []
    others: list[tuple[Part, int]] = []
    variance = 0.0
    for loss, n in losses.parts:
        if type(loss) is GaussianLoss:
            variance += n * loss.mu_squared
        elif (step := loss.normal_ratio) is None:
            others.append((loss, n))
        else:
            steps.append((step, n))
    return steps, variance, Composition.of(others) if others else None


def place_of(loss: LikelihoodRatioLoss, level: float) -> float:
    """Estimate the t = mu y - mu^2 / 2 at which log R is ``level``, above 0."""
    mu = loss.farthest
    most = (level + LIMITS.weight_efolds) / mu + mu
    return mu * float(loss.inverse(np.array([level]), 0.0, most)[0]) - mu * mu / 2


def _one_bracket(losses: Composition, steps: list[NormalRatio], spread: float) -> StepSum:
    """Return a sum of this ``spread`` without levels, for tilts with short sums over y."""
    last = 300 / spread
    if steps[0].loss.removed:
        # Largest peak of the terms in y.
        last = min(last, 300.0 / max(x.loss.farthest for x in steps))
    else:  # an added record with much noise would need millions of nodes at larger tilts
        while any(x.loss.range(x.loss.power(last))[0] < -5e3 for x in steps):
            last /= 4
    return StepSum(losses, -math.inf, math.inf, 0.0, last)


def deviations(steps: list[NormalRatio], level: float) -> float:
    """Return the least y at which a step has a loss of ``level``."""
    return min(place_of(x.loss, level) / x.loss.farthest for x in steps)


class LargestStepProfile(LargestTermProfile):
    """Compute the profile of steps that are mixtures of normals, plus Gaussian noise.

    Args:
        losses: the composition. Its steps are `LikelihoodRatioLoss` (all for removal or all for
            addition of a record), `ReplaceOneSubsampledLoss`, or `FixedSizeLoss`. It can also have
            one `GaussianLoss`, and losses of other types that are never infinite.
    """

    # Far out in a tail, tilts make the losses at a bracket's ends likelier than those between.
    ratios, fair_width = (RATIO, math.sqrt(RATIO)), 3e-7

    def __init__(self, losses: Composition) -> None:
        steps, variance, others = _parts(losses)
        self._steps, count, square = list[NormalRatio](), 0, variance
        for x, n in steps:
            sides = 1 if x.order == "one" else 2
            self._steps.append(x)
            count, square = count + n, square + n * (sides * x.loss.mean_shift) ** 2
        self._removed = self._steps[0].loss.removed
        # Whether K is a short sum on its own line, and decays fast because of many steps.
        cheap = (variance > 0 or count > 16) and self._steps[0].order == "one"
        cheap &= others is None or smooth(losses)
        if others is not None:
            square += float(others.moments(np.zeros(1))[2][0])
        spread = math.sqrt(square)
        line_sum = losses if cheap else _one_bracket(losses, self._steps, spread)
        super().__init__(
            losses, line_sum, losses, lambda: largest_step_profile(losses.reverse()), spread
        )
        self._beside = True
        if others is not None:
            self.ratios = (RATIO,)
            self.good_width = self.fair_width = LIMITS.line_width
        if isinstance(line_sum, StepSum):
            self._largest_tilt = line_sum.last_tilt

    def brackets(self, epsilon: float, ratio: float = RATIO) -> list[StepSum]:
        """Return brackets for an epsilon: the bulk far below it, then one per level."""
        if not self._removed:  # no loss is large
            if isinstance(self._line_sum, StepSum):
                return [self._line_sum]
            return [_one_bracket(self._composition, self._steps, self._spread)]
        size = max(epsilon, 0.1 * self._spread)
        levels = [ratio ** math.floor(math.log(size * ratio / 24, ratio))]
        scale = 64 * levels[0]
        while levels[-1] <= scale or deviations(self._steps, levels[-1]) < LIMITS.rare_deviations:
            levels.append(ratio * levels[-1])
        brackets: list[StepSum] = []
        for low, high in pairwise([-math.inf, *levels, math.inf]):
            last = 400 / high
            if high == math.inf:
                # Steps above the last level need a smaller peak.
                last = 40.0 / max(x.loss.farthest for x in self._steps)
            brackets.append(StepSum(self._composition, low, high, scale, last))
        return brackets


@dataclass(frozen=True, eq=False)
class _Fall:
    """Bound a sum of waves at height u by e^rest + the sum of e^{terms - u angle}."""

    terms: Array
    angle: Array
    rest: float

    @staticmethod
    def of(terms: Array, angle: Array) -> _Fall:
        """Return a bound with fewer terms: those with nearly equal angles are added.

        Each group of adjacent terms has its smallest angle.
        """
        # E-folds below the largest wave at which a wave counts as constant.
        used = terms > float(terms.max()) - 60.0
        if not used.any():
            return _Fall(np.array([-math.inf]), np.zeros(1), float(terms.max()))
        rest = float(log_sum(terms[~used])) if not used.all() else -math.inf
        terms, angle = terms[used], angle[used]
        # Range of log angles that count as one.
        group = np.floor(np.log(np.maximum(angle, 1e-300)) / 0.1)
        starts = np.append(0, np.flatnonzero(np.diff(group)) + 1)
        top = float(terms.max())
        with np.errstate(divide="ignore"):
            sums = top + np.log(np.add.reduceat(np.exp(terms - top), starts)) + 1e-12
        return _Fall(sums, np.minimum.reduceat(angle, starts), rest)

    def below(self, u: Array) -> Array:
        """Return the log of an upper bound on the sum at each u."""
        moved = log_sum(self.terms - np.multiply.outer(u, self.angle))
        return np.logaddexp(moved, self.rest)


def log_gain(count: Array | int, log_ratio: Array) -> Array:
    """Return an upper bound on log(count log(1 + e^log_ratio)), without overflow."""
    far = np.maximum(log_ratio, -40.0)
    return np.log(count) + np.where(log_ratio < -40, log_ratio, np.log(np.logaddexp(0.0, far)))


def log_expm1(log_x: Array) -> Array:
    """Return log(e^x - 1) from log x; an upper bound if x is small."""
    x = np.exp(np.clip(log_x, -40.0, 700.0))
    near = np.log(np.expm1(np.minimum(x, 30.0)))
    return np.where(log_x < -40, log_x + 1e-17, np.where(x < 30, near, x))


def largest_step_profile(losses: Composition) -> LargestStepProfile:
    """Return the profile of a sum. Equal sums in one question share it."""
    return in_question(("largest step", losses), lambda: LargestStepProfile(losses))


@register(95, "ratios of mixtures of normals, as Gaussian steps on samples: lines by largest step")
def _sampled_steps(composition: Composition) -> Profile | None:
    orders: set[tuple[str, bool]] = set()  # of pairs, and removal or addition
    others, count = False, 0
    for loss, n in composition.parts:
        count += n
        if type(loss) is GaussianLoss:
            continue
        step = loss.normal_ratio
        if step is None:
            # A finite loss with a cheap K is one more factor on a line.
            if not isinstance(loss, Loss) or loss.infinite or loss.costly:
                return None
            others = True
            continue
        # Largest distance of the two normals, for short sums over y.
        # Sums over y must be short, and the least value of R must not underflow.
        short = step.loss.farthest <= 18.0
        if not short or not step.loss.log_least > -LIMITS.weight_efolds:
            return None
        orders.add((step.order, step.loss.removed))
    if len(orders) != 1:
        return None
    ((order, _),) = orders
    engines: list[tuple[float, Callable[[], Profile]]] = [
        (0.0, lambda: largest_step_profile(composition))
    ]
    if others and len(composition.parts) > COMBINATION_LIMITS.grouped_parts:
        return None
    if len(composition.parts) > LIMITS.unlike_parts:
        return group_profile(composition, COMBINATION_LIMITS.coarse_rate_groups)
    if len(composition.parts) > COMBINATION_LIMITS.grouped_parts:
        engines.append(
            (
                COMBINATION_LIMITS.failure_width,
                lambda: group_profile(composition, COMBINATION_LIMITS.coarse_rate_groups),
            )
        )
    few = count <= LIMITS.grid_steps
    if others:
        # Most sums of other losses to list.
        listed = conditioned(composition, 1 << 8, largest_step_profile)
        if listed is not None:
            engines.append((LIMITS.line_width, lambda: listed))
        # Width of log delta beyond which the next engine is asked.
        engines.append((1e-6, lambda: dots_profile(composition)))
        # For steps with an atom at 0, each power would need many lines.
        asked = (0, len(engines) - 1) if order == "symmetric" else None
        return CascadeProfile(engines, composition.log_total_variation, asked)
    # A grid of few steps is fast if a loss is only a ratio, without a piecewise distribution.
    fast = few and order == "one"
    fair_width = 1e-5  # width of log delta beyond which a finer grid is asked
    enough = fair_width if fast else CONTOUR_LIMITS.grid_width
    # A coarse grid answers most questions in a tenth of the time.
    engines.append((enough, lambda: dots_profile(composition, 1 << 13)))  # points of the first grid
    # Points of the second grid.
    engines.append((fair_width, lambda: dots_profile(composition, 1 << 15)))
    engines.append((enough, lambda: dots_profile(composition)))
    method = "contour", Engine.CONTOUR
    return CascadeProfile(engines, composition.log_total_variation, method=method)
