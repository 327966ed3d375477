"""Split a sum of steps into brackets by its largest step, with a line of integration for each.

A window cuts off the losses of a step above a level l_j. With mu_j the measure of the step that
remains, for increasing levels, and mu_last the entire step,

    mu^{*T} = mu_0^{*T} + sum over j of (mu_j^{*T} - mu_{j-1}^{*T}):

the bulk, plus, for each level, the sums whose largest step is near the level. Each term (bracket)
is a positive measure [LS-2], so the bounds of a vertical line (`contour_line`) apply to it. See
docs/certificates/largest-step.md for the derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from neyman.curves.profiles.contour_line import Line, LineSum, aliases, log_kernel
from neyman.curves.profiles.sampled_steps.real_sums import log_expm1, log_gain
from neyman.curves.profiles.sampled_steps.step_nodes import StepNodes, log_sum
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p
from neyman.numerics.roots import bisect_integers


@dataclass(frozen=True)
class Limits:
    """Limits on the position, accuracy, and cost of lines for brackets."""

    error_efolds: float = 27.0  # aliasing and truncation stay below e^-27 of delta
    guess_stride: int = 4  # stride of the nodes to guess a bracket's transform
    places: int = 4  # places of a line to try, if the first needs many nodes
    settled_nodes: int = 4000  # number of nodes below which no other place is tried
    nodes: int = 30_000
    node_terms: float = 1.5e9  # most nodes times terms of all K, with other losses
    least_height: float = 0.3  # least height of a line's end, in units of the tilt
    largest_height: float = 1e9  # largest height of a line's end, in units of the tilt
    # Share of the spacing for terms n < 0 below which terms n > 0 need closer tilts.
    spacing_share: float = 0.3
    bound_efolds: float = 1.0  # distance of a near bound from log F
    # E-folds below the largest wave at which a wave counts as constant.
    falling_efolds: float = 60.0
    angle_efolds: float = 0.1  # range of log angles that count as one


LIMITS = Limits()
SHARES = (1.0, 2.0)  # heights of y over a, for bounds on the decay


@dataclass(eq=False)
class BracketSum:
    """Compute the transform of one bracket, F = product of M_high^n - product of M_low^n [LS-2].

    M_low and M_high are the transforms of a step cut at the bracket's levels, n its count.

    Without levels, F is that of the entire sum.

    Args:
        nodes: nodes of each step.
        variance: mu^2 of Gaussian noise besides the steps.
        tilts: real tilts c, increasing, at which F is estimated.
        most_nodes: most nodes of a line.
        refined: True if the tilts are already concentrated near one epsilon.
        beside: other losses, whose transform is a further factor [LS-11].
    """

    nodes: tuple[StepNodes, ...]
    variance: float
    tilts: Array
    most_nodes: float = LIMITS.nodes
    refined: bool = False
    beside: LineSum | None = None

    def __post_init__(self) -> None:
        self.bulk = self.nodes[0].bulk
        self.count = sum(step.count for step in self.nodes)
        # Estimates of log F at the tilts.
        self.log_f = self._steering_logs()
        self._above: dict[int, float] = {}
        self._falls: tuple[float, list[list[tuple[_Fall, _Fall]]]] | None = None  # for a tilt
        # Number of tilts, from the first on, that may have a bound near log F.
        self._good = len(self.tilts)

    def _steering_logs(self) -> Array:
        low, log_gains = np.zeros(len(self.tilts)), np.full(len(self.tilts), -math.inf)
        for step in self.nodes:
            below, bracket = step.log_sums(self.tilts, LIMITS.guess_stride)
            low = low + step.count * (bracket if self.bulk else below)
            if not self.bulk:
                log_gains = np.logaddexp(log_gains, log_gain(step.count, bracket - below))
        normal = 0.5 * self.variance * self.tilts * (self.tilts + 1)
        if self.beside is not None:
            normal = normal + self.beside.moments(self.tilts)[0]
        return low + normal + (0.0 if self.bulk else log_expm1(log_gains))

    def log_terms(self, epsilon: float) -> Array:
        """Return the log of terms at u = 0: F(c) e^{-c epsilon} / (c (c + 1))."""
        return self.log_f - self.tilts * epsilon - np.log(self.tilts * (self.tilts + 1))

    def chernoff(self, epsilon: float) -> tuple[float, int]:
        """Estimate Chernoff's bound on the log of the bracket's share of delta.

        Also return the index of its tilt.
        """
        bound = self.log_f - self.tilts * epsilon + log_kernel(self.tilts)
        index = int(np.argmin(bound[: self._good]))
        return float(bound[index]), index

    def certain(self, epsilon: float) -> tuple[float, float]:
        """Return a tilt c and an upper bound on log F(c).

        The bracket's share of delta is at most kappa(c) F(c) e^{-c epsilon}.
        """
        while True:
            index = self.chernoff(epsilon)[1]
            if index <= 1 or self._is_near(index):
                return float(self.tilts[index]), self.log_f_above(index)

    def _is_near(self, index: int) -> bool:
        """Return True if the bound at a tilt is near log F. If not, drop tilts with bad bounds."""

        def near(place: int) -> bool:
            return self.log_f_above(place) - float(self.log_f[place]) < LIMITS.bound_efolds

        if near(index):
            return True
        self._good = bisect_integers(near, 0, index) + 1  # the number of tilts with near bounds
        return False

    def log_f_above(self, index: int) -> float:
        """Return an upper bound on log F at a tilt, as F rises with each factor [LS-6].

        ``index``: the index of the tilt.
        """
        if index not in self._above:
            self._above[index] = self._log_f_above(float(self.tilts[index]))
        return self._above[index]

    def _log_f_above(self, tilt: float) -> float:
        each = [step.log_above(tilt) for step in self.nodes]
        if any(v == math.inf or b == math.inf for v, b in each):
            return math.inf  # no bound is known
        lows = [
            s.count * (b if self.bulk else v) for s, (v, b) in zip(self.nodes, each, strict=True)
        ]
        log_low = math.fsum(lows)
        normal, size = self._log_others(tilt)
        # Each product is rounded, and a sum of products may cancel.
        size += 1 + math.fsum(abs(v) for v in lows)
        if self.bulk:
            # slack: the_transform_of_a_bracket_whose_factors_cancel
            return log_low + normal + 16 * UNIT * size
        ratios = np.array([b - v for v, b in each])
        counts = np.array([float(s.count) for s in self.nodes])
        log_gains = log_sum(log_gain(counts, ratios))
        if log_gains == -math.inf:
            return -1e300
        value = log_low + normal + float(log_expm1(log_gains[None])[0])
        # Ratios and logarithms of counts are rounded. For a gain g, log(e^g - 1) magnifies this.
        far = float(np.abs(ratios[ratios > -math.inf]).max() + np.log(counts.max()))
        moved = (4 + far) * (1 + math.exp(min(log_gains, 700.0)))
        # slack: the_transform_of_a_bracket_whose_factors_cancel
        return value + 16 * UNIT * (size + moved + abs(value))

    def _log_others(self, tilt: float) -> tuple[float, float]:
        """Return an upper bound on K(tilt) of all other losses, and the size of its terms."""
        normal = 0.5 * self.variance * tilt * (tilt + 1)
        if self.beside is None:
            return normal, normal
        k, error = (float(v[0]) for v in self.beside.mgf(np.array([tilt])))
        return normal + k + math.log1p(error), normal + abs(k)

    def log_decay(self, tilt: float, u: Array) -> Array:
        """Return, for each u, an upper bound on log |F(tilt + iv)| for all v >= u [LS-5, LS-10]."""
        if self._falls is None or self._falls[0] != tilt:
            self._falls = tilt, self._new_falls(tilt)
        most = [float(np.logaddexp(*step.log_above(tilt))) for step in self.nodes]
        turns = [self._turn(step, tilt) for step in self.nodes]
        heights = np.concatenate([u, turns])
        best = np.full(len(u), math.inf)
        for falls in self._falls[1]:
            laws: list[Array] = []
            brackets: list[Array] = []
            for k, (step, top, fall) in enumerate(zip(self.nodes, most, falls, strict=True)):
                bracket = fall[1].below(heights)
                law = bracket if self.bulk else fall[0].below(heights)
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
        return best + self._log_others(tilt)[0] - 0.5 * self.variance * u * u + 1e-9

    def _new_falls(self, tilt: float) -> list[list[tuple[_Fall, _Fall]]]:
        """Return bounds on the decay in u of each step's two measures, for some heights Im y."""
        falls: list[list[tuple[_Fall, _Fall]]] = []
        for share in SHARES:
            falls.append([])
            for step in self.nodes:
                panels = step.panels(share * step.a, tilt)
                bracket = _Fall.of(panels.bracket, panels.angle)
                law = bracket if self.bulk else _Fall.of(panels.low, panels.angle)
                falls[-1].append((law, bracket))
        return falls

    @staticmethod
    def _turn(step: StepNodes, tilt: float) -> float:
        """Return the u (turn) that minimizes 1 - u^2 Var(L) + u^4 E(L - L')^4 / 24."""
        variance, fourth = step.moments(tilt)
        return math.sqrt(12 * variance / fourth) if fourth > 0 else 0.0

    def _by_moments(
        self, step: StepNodes, tilt: float, u: Array, turn: float, beyond: float
    ) -> Array:
        """Bound log |M| of a step for all v >= u, for each u below ``turn``; inf for the other u.

        ``beyond``: a bound for all v beyond the turn.
        """
        variance, fourth = step.moments(tilt)
        above = step.log_above(tilt)[1 if self.bulk else 0]
        square = np.where(u < turn, u * u, 0.0)
        fall = np.maximum(square * (variance - square * fourth / 24), 0.0)
        near = above + 0.5 * np.log1p(-np.minimum(fall, 0.999))
        return np.where(u < turn, np.maximum(near, beyond), math.inf)

    def _end(self, tilt: float, need: float) -> tuple[float, float]:
        """Return a u beyond which |F| / (pi u) is below e^need, and a bound on log |F| there."""
        low, high, at_high = LIMITS.least_height, LIMITS.largest_height, math.inf
        for points in (20, 10):
            heights = low * (high / low) ** np.linspace(0.0, 1.0, points + 1)
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

    def plan(self, epsilon: float, log_delta: float, cancellation: float) -> LinePlan | None:
        """Plan a line with few nodes, or return None if every line has too many.

        ``cancellation``: the largest log ratio of the terms of the line to their sum.
        """
        best: LinePlan | None = None
        spacings = self._spacings(epsilon, log_delta, cancellation)
        if spacings and not self.refined:
            h, index, _ = spacings[0]
            if h < LIMITS.spacing_share * math.tau * float(self.tilts[index]) / (
                LIMITS.error_efolds - min(log_delta, 0.0)
            ):
                return self._finer(epsilon).plan(epsilon, log_delta, cancellation)
        for h, index, other in spacings:
            if other > index + 1 and not self._is_near(other):
                return self.plan(epsilon, log_delta, cancellation)  # with fewer tilts
            c, top = float(self.tilts[index]), float(self.log_f[index])
            end, decay = self._end(c, log_delta - LIMITS.error_efolds + c * epsilon)
            if best is None or end / h < best.size:
                best = LinePlan(self, index, other, h, end, decay - top)
            if best.size < LIMITS.settled_nodes:
                break
        if best is None or best.size >= self.most_nodes:
            return None
        if self.beside is not None:
            places = self.beside.places(float(self.tilts[best.index]), best.end)
            places += sum(step.size for step in self.nodes)
            if places * best.size > LIMITS.node_terms:
                return None
        return best

    def _finer(self, epsilon: float) -> BracketSum:
        """Return this bracket with denser tilts near the one with the smallest terms."""
        k = int(np.argmin(self.log_terms(epsilon) + np.log(self.tilts)))
        low, high = self.tilts[max(k - 2, 0)], self.tilts[min(k + 2, len(self.tilts) - 1)]
        tilts = cast(Array, np.geomspace(low, high, len(self.tilts)))
        return replace(self, tilts=tilts, refined=True)

    def _spacings(
        self, epsilon: float, log_delta: float, cancellation: float
    ) -> list[tuple[float, int, int]]:
        """Return spacings of nodes, the best first, each with the indices of two tilts.

        They are the tilt of the line and the tilt that bounds the aliases.
        """
        tilts = self.tilts[: self._good]
        # The sum of the terms is about c times the terms.
        terms = self.log_terms(epsilon)[: self._good] + np.log(tilts)
        fine = np.flatnonzero(terms[:-1] < max(float(terms.min()), log_delta) + cancellation)
        if not len(fine):
            return []
        excess = self.log_f[: self._good] - tilts * epsilon + log_kernel(tilts) - log_delta
        gap = tilts - tilts[fine][:, None]
        after = np.where(
            gap > 0, math.tau * gap / np.maximum(excess + LIMITS.error_efolds, 1e-3), 0.0
        )
        others = np.argmax(after, axis=1)
        before = math.tau * tilts[fine] / (LIMITS.error_efolds - min(log_delta, 0.0))
        spacing = np.minimum(before, after[np.arange(len(fine)), others])
        # Terms above their sum cost digits.
        excess = np.maximum(terms[fine] - max(float(terms.min()), log_delta), 0.0)
        best = int(np.argmax(spacing * np.exp(-excess)))
        # Lines with a smaller c decay later, but may cancel less.
        tried = dict.fromkeys(
            [best, *np.linspace(0, len(fine) - 1, LIMITS.places).astype(int).tolist()]
        )
        return [(float(spacing[k]), int(fine[k]), int(others[k])) for k in tried if spacing[k] > 0]

    def built(self, plan: LinePlan) -> Line | None:
        """Return the line of a plan for this bracket, or None if its sums are lost in rounding."""
        index, other, h, end, decay = plan.index, plan.other, plan.h, plan.end, plan.decay
        c, top = float(self.tilts[index]), float(self.log_f[index])
        heights = h * np.arange(math.ceil(end / h) + 1)
        values = self._transform(c, top, heights)
        if values is None:
            return None
        phi, error = values
        more = aliases(c, h, self.tilts[other : other + 1], np.array([self.log_f_above(other)]))
        rest = math.exp(decay) / (math.pi * end)
        return Line.of(c, heights, phi, error, rest, top, more)

    def _transform(self, c: float, top: float, u: Array) -> tuple[Array, Array] | None:
        """Return F(c + iu) / e^top and its error bound [LS-6], or None if rounding hides F."""
        sums = [step.line(c, u) for step in self.nodes]
        bulk = self.bulk
        lost = [s.bracket_error[0] == 1.0 for s in sums]
        if all(lost) or (bulk and any(lost)) or any(s.low_error[0] == 1.0 for s in sums):
            return None
        ratios = [0.0 if bulk else s.log_bracket - s.log_low for s in sums]
        if max(ratios) > 700:
            return None
        # Lift ratios that underflow. Then F is proportional to them, up to 1e-200.
        lift = max(-500.0 - max(ratios), 0.0)
        low, gain = np.zeros(len(u), complex), np.zeros(len(u), complex)
        real_low, real_gain, size = 0.0, 0.0, np.full(len(u), 1 + abs(top))
        for step, s, ratio in zip(self.nodes, sums, ratios, strict=True):
            n, log_value = step.count, s.log_bracket if bulk else s.log_low
            moved = s.bracket if bulk else s.low
            # A value near 0 is replaced by 8 units. Its error is at least 80 units.
            moved = np.where(np.abs(1 + moved) < 8 * UNIT, 8 * UNIT - 1, moved)  # slack: counted
            turned = log1p(moved)
            low = low + n * (log_value + turned)
            size = size + n * (abs(log_value) + np.abs(turned))
            real_low += n * log_value
            if not bulk:
                x = math.exp(ratio + lift)
                gained = log1p(x * (1 + s.bracket) / (1 + moved))
                gain = gain + n * gained
                size = size + n * np.abs(gained) + abs(ratio)
                real_gain += n * math.log1p(x)
        # For added steps, the sums are conjugates of the transforms, and so is the result.
        turn = 1j * u if self.nodes[0].rises else -1j * u
        normal = 0.5 * self.variance * (c + turn) * (c + 1 + turn)
        log_low = low + normal - top - lift
        scale = real_low - top + 0.5 * self.variance * c * (c + 1) - lift
        factor_error: Array | float = 0.0
        if self.beside is not None:
            k, factor_error = self.beside.mgf(c + 1j * u)
            if factor_error[0] > 0.5:
                return None
            log_low = log_low + (k if self.nodes[0].rises else np.conj(k))
            scale += float(k[0].real)
            size = size + np.abs(k)
        size = size + np.abs(normal)
        phi = np.exp(log_low) if bulk else _difference(log_low, gain)
        # F is a polynomial of the factors with positive coefficients. Its change is at most the
        # change for the sizes, which are largest at u = 0.
        if scale + real_gain > 690:
            return None
        product = math.exp(scale + real_gain)  # the product of M_high over e^top
        value = product if bulk else product * -math.expm1(-real_gain)
        error, worst = np.zeros(len(u)), 0.0
        for step, s, gone, ratio in zip(self.nodes, sums, lost, ratios, strict=True):
            if bulk:
                error = error + step.count * product * s.bracket_error
                worst = max(worst, float(s.bracket_error.max()))
                continue
            x = math.exp(ratio + lift)
            error = error + step.count * product * x / (1 + x) * s.bracket_error
            each = value if lift else min(value, product / (1 + x))
            error = error + step.count * each * s.low_error
            worst = max(worst, 0.0 if gone else float(s.bracket_error.max()))
            worst = max(worst, float(s.low_error.max()))
        error = error * math.exp(self.count * worst) if self.count * worst < 1 else math.inf
        # Each part of the exponent has a few relative rounding errors. The errors of sums, at
        # least 80 units, cover a ratio's logarithm.
        rounding = np.abs(phi) + (0.0 if bulk else value * 4 * UNIT)  # slack: counted
        error = error + 16 * UNIT * size * rounding  # slack: counted
        if self.beside is not None:
            # The error of each factor multiplies the other factor, largest at u = 0 [LS-11].
            error = error * (1 + 4 * factor_error) + 2 * factor_error * (value + error[0])
        return (phi if self.nodes[0].rises else np.conj(phi)), error


@dataclass(frozen=True, eq=False)
class LinePlan:
    """Represent a plan for the line of a bracket.

    Args:
        bracket: the bracket.
        index: index of the line's tilt.
        other: index of the tilt that bounds aliases.
        h: distance of the nodes.
        end: height of the last node.
        decay: bound on log |F| beyond ``end``, minus log F at the tilt.
    """

    bracket: BracketSum
    index: int
    other: int
    h: float
    end: float
    decay: float

    @property
    def size(self) -> float:
        """Return the approximate number of nodes."""
        return self.end / self.h


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
        used = terms > float(terms.max()) - LIMITS.falling_efolds
        if not used.any():
            return _Fall(np.array([-math.inf]), np.zeros(1), float(terms.max()))
        rest = float(log_sum(terms[~used])) if not used.all() else -math.inf
        terms, angle = terms[used], angle[used]
        group = np.floor(np.log(np.maximum(angle, 1e-300)) / LIMITS.angle_efolds)
        starts = np.append(0, np.flatnonzero(np.diff(group)) + 1)
        top = float(terms.max())
        with np.errstate(divide="ignore"):
            sums = top + np.log(np.add.reduceat(np.exp(terms - top), starts)) + 1e-12
        return _Fall(sums, np.minimum.reduceat(angle, starts), rest)

    def below(self, u: Array) -> Array:
        """Return the log of an upper bound on the sum at each u."""
        moved = log_sum(self.terms - np.multiply.outer(u, self.angle))
        return np.logaddexp(moved, self.rest)


def _difference(log_low: Array, gain: Array) -> Array:
    """Return e^log_low (e^gain - 1), accurate for a small gain."""
    near = np.real(gain) < 30
    with np.errstate(over="ignore"):
        small = np.exp(log_low) * np.expm1(np.where(near, gain, 0.0))
        return np.where(near, small, np.exp(log_low + gain) - np.exp(log_low))
