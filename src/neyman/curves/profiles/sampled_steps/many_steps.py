"""Compute profiles of Gaussian steps on samples by one line, or by one per largest step's size.

If a sum has a few rare large losses among many small ones, no single line of integration is good
for both. Therefore, each bracket (`bracket_sum`) of the largest step has its own line, near its
saddle point of about 1 / level. A table of real sums (`real_sums`) guesses where the lines should
be. See docs/certificates/largest-step.md for the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Loss, NormalRatio, Part
from neyman.curves.profiles.combination import LIMITS as COMBINATION_LIMITS
from neyman.curves.profiles.combination import CascadeProfile, group_profile
from neyman.curves.profiles.contour.conditioning import conditioned
from neyman.curves.profiles.contour.contour import LIMITS as CONTOUR_LIMITS
from neyman.curves.profiles.contour.contour import ContourProfile, smooth
from neyman.curves.profiles.contour_line import Line, Telescope, line_at, line_for, log_kernel
from neyman.curves.profiles.duality import Conjugate
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.profile import Engine, Profile, log_delta_below_zero
from neyman.curves.profiles.sampled_steps.bracket_sum import LIMITS as BRACKET_SUM_LIMITS
from neyman.curves.profiles.sampled_steps.bracket_sum import BracketSum
from neyman.curves.profiles.sampled_steps.real_sums import LIMITS as REAL_SUMS_LIMITS
from neyman.curves.profiles.sampled_steps.real_sums import Kernel, RealSums, place_of
from neyman.curves.profiles.sampled_steps.step_grid import PAD_DEVIATIONS, StepGrid
from neyman.curves.profiles.sampled_steps.step_nodes import StepNodes
from neyman.curves.profiles.selection import register
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import in_question
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import above


@dataclass(frozen=True)
class Limits:
    """Limits on the splitting of a sum, and on searches. All values give valid bounds.

    Args:
        window_slope: smallest slope m of log psi in t, times 0.3 / mu if this is above 1 (0.6 / mu
            in a self-reverse pair). Flatter windows pass more losses above their level. Steeper
            windows need more nodes [LS-1].
        window_share: smallest ratio of m to the slope of the step's log density at epsilon. At x
            below a level, log(1 - s) falls by m x and (m x)^2 / 18. With a smaller ratio, smaller
            losses dominate.
        level_ratio: ratio of successive levels, and of epsilon to the first level. The line of a
            level is good for losses that differ by about this ratio.
        last_loss: from this level on, there are no windows.
        cancellation_efolds: largest log ratio of the terms of one line to their sum. It costs as
            many digits.
        cell_efolds: change of log delta between two epsilons that share lines.
        one_line_nodes: if one line needs more nodes, levels are tried.
        outcome_nodes: if sums over y need more nodes, no line is tried.
        bracket_tilts: number of tilts at which a bracket's transform is estimated.
        sure_steps: if more steps on average use the record, one line of K is tried first.
        enough_width: width of log delta at which no other split is tried.
        atom_steps: most steps for which the sum's atom at 0 matters.
        deep_efolds, deepest_efolds: -log delta beyond which the guess is rough, and beyond which
            only a line with a cheap K is tried.
        grid_steps: most steps for which grids are fast.
    """

    window_slope: float = 6.0
    window_share: float = 0.4
    level_ratio: float = 10.0
    last_loss: float = 20.0
    cancellation_efolds: float = 4.0
    cell_efolds: float = 4.0
    one_line_nodes: float = 4000
    outcome_nodes: float = 60_000
    bracket_tilts: int = 40
    sure_steps: float = 5.0
    enough_width: float = 3e-7
    atom_steps: int = 8
    deep_efolds: float = 300.0
    deepest_efolds: float = 1e5
    grid_steps: int = 64
    largest_epsilon: float = 1e9  # largest epsilon of a guess
    largest_peak: float = 300.0  # largest peak of the terms in y
    guess_share: float = 0.03  # relative error of a guess of log delta
    # Width of log delta at which a line with other losses suffices.
    line_width: float = 1e-9
    # Most nodes of a line with other losses, if the next engine is a grid.
    nodes_beside_losses: float = 1e6
    listed_sums: int = 1 << 8  # most sums of other losses to list
    unlike_parts: int = 400  # parts beyond which all levels of all parts are too slow
    threshold_failures: int = 6  # most failures in a search for a threshold
    repeated_failures: int = 2  # the same if the sum has an atom at 0
    narrow_width: float = 1e-6  # width of log delta beyond which the next engine is asked
    fair_width: float = 1e-5  # the same for grids
    coarse_points: int = 1 << 13  # points of the first grid
    medium_points: int = 1 << 15  # points of the second grid
    normal_distance: float = 18.0  # largest distance of the two normals, for short sums over y
    least_threshold: float = 1e-5  # least threshold over the spread
    reuse_share: float = 0.2  # distance within which a line is reused, over epsilon plus spread
    reuse_spreads: float = 3.0  # largest reach of lines for many levels, over epsilon plus spread
    level_thresholds: int = 65  # thresholds for many levels
    threshold_steps: int = 24  # most steps to the threshold of a level
    newton_steps: int = 12  # most steps to the epsilon of a delta
    epsilon_efolds: float = 2e-3  # largest last move of log epsilon in a guess


LIMITS = Limits()
LOG_HALF = math.log(0.5)


class StepSum:
    """Find lines of integration for an epsilon, for a sum of steps that are mixtures of normals.

    Args:
        losses: the sum.
        limits: limits of the search.
    """

    def __init__(self, losses: Composition, limits: Limits) -> None:
        self.losses, self.limits = losses, limits
        parts: list[tuple[NormalRatio, int]] = []
        others: list[tuple[Part, int]] = []
        self.variance, self.farthest, count = 0.0, 0.0, 0
        sure: list[float] = []
        for loss, n in losses.parts:
            if type(loss) is GaussianLoss:
                self.variance += n * loss.mu_squared
            elif (step := loss.normal_ratio) is None:
                others.append((loss, n))
            else:
                parts.append((step, n))
                self.farthest, count = max(self.farthest, step.loss.farthest), count + n
                sure.append(n * step.loss.ratio_floor)
        self.parts = tuple(parts)
        self.others = Composition.of(others) if others else None
        self.enough_width = limits.enough_width if self.others is None else LIMITS.line_width
        self.removed = self.parts[0][0].loss.removed
        order = self.parts[0][0].order
        # Whether K is a short sum on its own line, and decays fast because of many steps.
        self.cheap = (self.variance > 0 or count > 2 * limits.atom_steps) and order == "one"
        self.cheap &= self.others is None or smooth(losses)
        # Whether several steps almost surely have the record, so no single step dominates.
        self.ordinary = self.cheap and math.fsum(sure) > limits.sure_steps
        # The approximate spread of the sum of all losses.
        self.sides = 1 if order == "one" else 2
        spread = math.fsum([n * (self.sides * x.loss.mean_shift) ** 2 for x, n in parts])
        if self.others is not None:
            spread += float(self.others.moments(np.zeros(1))[2][0])
        self.spread = math.sqrt(spread + self.variance)
        self.symmetric = order == "symmetric"
        # A few such steps have an atom at 0. No line works near it.
        self.atom_at_zero = self.symmetric and count <= limits.atom_steps and not self.variance
        self.supremum = above(losses.supremum)
        self._tables: dict[float, RealSums] = {}

    def table(self, log_target: float) -> RealSums:
        """Return a table of real sums that includes probabilities as small as e^log_target."""
        depth = 64.0
        while depth < min(-log_target, self.limits.deepest_efolds):
            depth *= 2
        if depth not in self._tables:
            self._tables[depth] = _real_sums(
                self.parts, self.variance, self.spread, depth, self.others
            )
        return self._tables[depth]

    def rough(self, epsilon: float) -> tuple[float, RealSums]:
        """Estimate log delta. Also return a table that includes such small probabilities."""
        table = self.table(0.0)
        rough = table.log_delta(epsilon)
        if rough < -table.depth:
            table = self.table(rough)
            rough = table.log_delta(epsilon)
        return rough, table

    def place(self, epsilon: float) -> float:
        """Return epsilon rounded down, so that near epsilons share lines.

        Between two such epsilons, log delta falls by about `Limits.cell_efolds`. The share of each
        bracket and the error of its line also fall.
        """
        room = min(self.scale(epsilon), 0.5 * (self.supremum - epsilon))
        if self.atom_at_zero:
            room = min(room, 0.5 * epsilon)
        if not 0 < room < LIMITS.largest_epsilon:
            return epsilon
        rough, table = self.rough(epsilon)
        fall = rough - table.log_delta(epsilon + 0.1 * room)  # over a tenth of the room
        if not (fall > 0 and -rough < self.limits.deepest_efolds):
            return epsilon
        cell = room * min(0.1 * self.limits.cell_efolds / fall, 0.5)
        cell = 2.0 ** math.floor(math.log2(cell))
        return cell * math.floor(epsilon / cell)

    def scale(self, epsilon: float) -> float:
        """Estimate the size of the losses that determine delta at this epsilon."""
        return max(epsilon, 0.1 * self.spread)

    def lines(self, epsilon: float) -> Telescope | None:
        """Return lines for an epsilon: one if its terms do not cancel, else one per level.

        Return None if there are none.
        """
        limits = self.limits
        if epsilon > LIMITS.largest_epsilon:
            return None
        best, narrowest = None, math.inf
        rough, table = self.rough(epsilon)
        if self.cheap and rough < -limits.deep_efolds:
            best, narrowest = self.one_line(epsilon)
        if rough < -limits.deepest_efolds:  # only a line with a cheap K works
            return best
        log_delta, tried = rough * (1 + LIMITS.guess_share), list[Sequence[BracketSum]]()
        for brackets in self._splits(epsilon, rough, table):
            if narrowest < self.enough_width:
                break
            telescope = self._telescope(brackets, epsilon, log_delta)
            width = telescope.width(epsilon) if telescope is not None else math.inf
            if width < narrowest:
                best, narrowest = telescope, width
            tried.append(brackets)
        if best is None and not self.atom_at_zero:  # small brackets may count by their bounds
            share = math.log(CONTOUR_LIMITS.loose_width)
            each = (self._telescope(brackets, epsilon, log_delta, share) for brackets in tried)
            return next(filter(None, each), None)
        return best

    def one_line(self, epsilon: float) -> tuple[Telescope | None, float]:
        """Return a line of K (None if its bounds are infinite), and the width of its bounds."""
        line = line_at(self.losses, epsilon, release=False)
        width = math.inf if line is None else line.width(epsilon)
        return None if line is None or width == math.inf else Telescope((line,), ()), width

    def _splits(
        self, epsilon: float, rough: float, table: RealSums
    ) -> Iterator[Sequence[BracketSum]]:
        """Yield splits of the sum: no split if terms cancel little, then by largest step."""
        half = self.limits.bracket_tilts // 2
        c, top, bend = table.saddle(epsilon)
        # Above c, until the terms rise enough for aliases. Below c, while they fall.
        reach = min(max(9.0 / math.sqrt(bend), 0.02), 1.4)
        ahead = np.linspace(0.0, reach, half)
        tilts = c * np.exp(np.append(np.linspace(-0.7, 0.0, half)[:-1], ahead))
        enough = rough + self.limits.cancellation_efolds + 1 - LIMITS.guess_share * rough
        short = float(tilts[-1]) * self.farthest < LIMITS.largest_peak
        if not self.removed or (top < enough and short):
            yield self.one_bracket(tilts)
        if self.removed:
            yield self._levels(epsilon, rough)
        if self.others is not None:  # the next engine is a grid
            long = partial(replace, most_nodes=LIMITS.nodes_beside_losses)
            yield [long(bracket) for bracket in self.one_bracket(tilts)]
            if self.removed:
                yield [long(bracket) for bracket in self._levels(epsilon, rough)]

    def _telescope(
        self,
        brackets: Sequence[BracketSum],
        epsilon: float,
        log_delta: float,
        unsummed: float = -math.inf,
    ) -> Telescope | None:
        """Return lines for all brackets that matter, or None if one of them has no line.

        ``unsummed``: log share of delta below which a bracket without a line counts by its bound.
        """
        lines: list[Line] = []
        rest: list[tuple[float, float]] = []
        # Start with the bracket that fails most often: the last, or the bulk near an atom.
        for bracket in brackets if self.atom_at_zero else reversed(brackets):
            share = bracket.chernoff(epsilon)[0] - log_delta
            line = None
            if share >= -BRACKET_SUM_LIMITS.error_efolds - 2:
                plan = bracket.plan(epsilon, log_delta, self.limits.cancellation_efolds)
                line = plan.bracket.built(plan) if plan is not None else None
                if line is None and share >= unsummed:
                    return None
            if line is not None:
                lines.append(line)
            else:
                rest.append(bracket.certain(epsilon))
        return Telescope(tuple(lines), tuple(rest)) if lines else None

    def one_bracket(self, tilts: Array) -> list[BracketSum]:
        """Return the entire sum as one bracket, or an empty list if sums over y are too long."""
        nodes = tuple(
            StepNodes(x.loss, x.order, n, -math.inf, math.inf, float(tilts[-1]), None)
            for x, n in self.parts
        )
        if any(step.full >= self.limits.outcome_nodes for step in nodes):
            return []
        if not self.removed:
            return [BracketSum(nodes, self.variance, tilts, beside=self.others)]
        most = self.limits.one_line_nodes
        return [BracketSum(nodes, self.variance, tilts, most, beside=self.others)]

    def _levels(self, epsilon: float, log_delta: float) -> list[BracketSum]:
        """Return the brackets for one epsilon: the bulk up to a first level, then one per level."""
        scale = self.scale(epsilon)
        # Deep in a tail, the terms of one level cancel more.
        ratio = max(self.limits.level_ratio / max(1.0, -0.01 * log_delta), 3.0)
        last = self.table(log_delta).last_level(
            epsilon, log_delta - 2 * BRACKET_SUM_LIMITS.error_efolds
        )
        levels = [-math.inf, scale / ratio]
        # A window passes some losses a few times below its level.
        while levels[-1] < min(max(self.limits.last_loss, 4 * scale), max(3 * last, 2 * scale)):
            levels.append(levels[-1] * ratio)
        rare = levels[-1] >= last  # losses beyond the last level are negligible
        levels.append(math.inf)
        tilts: list[Array] = []
        for low, high in pairwise(levels):
            start, end = 0.02 / max(low, scale), 400.0 / high
            if high == math.inf:
                end = min(
                    30.0 / max(low, scale), max(LIMITS.largest_peak / self.farthest, 4 * start)
                )
            if high == math.inf and rare:  # the nodes cover all mass that matters
                pad = math.sqrt(2 * (3 * BRACKET_SUM_LIMITS.error_efolds - log_delta)) + 2
                start, end = 1e-3, max(2.0, (pad - PAD_DEVIATIONS) / self.farthest)
            tilts.append(np.geomspace(start, end, self.limits.bracket_tilts))
        columns: list[list[StepNodes]] = []
        for x, n in self.parts:
            places = [v if math.isinf(v) else place_of(x.loss, v) for v in levels]
            mu = x.loss.farthest
            slope = self.limits.window_slope * max(1.0, 0.3 * self.sides / mu)
            start = place_of(x.loss, min(scale, last))
            sharpness = max(slope, self.limits.window_share * start / mu**2)
            sharpness /= max(1.0, scale / 16)
            grid = StepGrid(x.loss, x.order, sharpness, float(tilts[-1][-1]))
            columns.append(
                [
                    StepNodes(x.loss, x.order, n, low, high, float(c[-1]), sharpness, grid)
                    for (low, high), c in zip(pairwise(places), tilts, strict=True)
                ]
            )
        if any(step.full >= self.limits.outcome_nodes for column in columns for step in column):
            return []
        return [
            BracketSum(nodes, self.variance, c, beside=self.others)
            for nodes, c in zip(zip(*columns, strict=True), tilts, strict=True)
        ]


@array_cache
def _real_sums(
    parts: tuple[tuple[NormalRatio, int], ...],
    variance: float,
    spread: float,
    depth: float,
    beside: Composition | None,
) -> RealSums:
    return RealSums(parts, variance, spread, depth, beside)


@array_cache
def _lines_at(losses: Composition, epsilon: float, limits: Limits) -> Telescope | None:
    return StepSum(losses, limits).lines(epsilon)


class LargestStepProfile(ContourProfile):
    """Compute the profile of steps that are mixtures of normals, plus Gaussian noise.

    Args:
        losses: the composition. Its steps are `LikelihoodRatioLoss` (all for removal or all for
            addition of a record), `ReplaceOneSubsampledLoss`, or `FixedSizeLoss`. It can also have
            one `GaussianLoss`, and losses of other types that are never infinite.
        limits: limits of the search for lines of integration.
    """

    patient = False

    def __init__(self, losses: Composition, limits: Limits = LIMITS) -> None:
        super().__init__(
            losses,
            lambda: largest_step_profile(losses.reverse()),
            0.0,
            above(losses.supremum),
            losses.log_top,
        )
        self._beside = True
        self._sum = StepSum(losses, limits)
        self._spread = self._sum.spread
        # Additions have a largest loss, except with Gaussian noise.
        self._bounded = math.isfinite(self._supremum)
        self._middle = 0.5 * self._supremum if self._bounded else 0.1 * self._spread
        self._start = 0.5 * min(self._spread, 0.5 * self._supremum)

    def _chernoff_bound(self, epsilons: Array) -> Array:
        """Return Chernoff bounds on log delta, by a few tilts of the entire sum [C-1]."""
        places = np.minimum(np.quantile(epsilons, (0, 0.5, 1)), LIMITS.largest_epsilon)
        table = self._sum.rough(float(places[2]))[1]
        saddles = {_round_scale(table.saddle(float(e))[0]) for e in places}
        most = math.inf
        if self._sum.removed:  # beyond it, sums over y are long
            most = LIMITS.largest_peak / self._sum.farthest
        tilts = np.unique(np.minimum(np.multiply.outer(sorted(saddles), (0.5, 1.0)), most))
        brackets = self._sum.one_bracket(tilts)
        if not brackets:
            return np.zeros(len(epsilons))
        tilts = brackets[0].tilts
        above = np.array([brackets[0].log_f_above(k) for k in range(len(tilts))])
        moved = np.multiply.outer(np.minimum(epsilons, 1e200), tilts)  # delta falls beyond
        exponent = above + log_kernel(tilts) - moved
        # Both terms of log kappa are about c log c.
        size = np.abs(above) + moved + tilts * np.abs(np.log(tilts))
        # slack: chernoff_by_a_few_tilts_of_steps
        bound = np.minimum((exponent + 16 * UNIT * (1 + size)).min(axis=1), 0.0)
        # Above 10^15 steps, these bounds lose all digits. K itself errs less, near 1.
        return np.minimum(bound, super()._chernoff_bound(epsilons)) if self._sum.cheap else bound

    def _line(self, epsilon: float) -> Telescope | None:
        if self._sum.ordinary:
            line, width = self._sum.one_line(epsilon)
            if width < self._sum.enough_width:
                return line
        return _lines_at(self._sum.losses, self._sum.place(epsilon), self._sum.limits)

    def _guess(self, log_target: float, kind: Kernel) -> tuple[float, bool]:
        """Return (epsilon, True), with the epsilon at which a log tail falls to ``log_target``.

        It is an estimate. If none is possible, return (start, False), with an epsilon to start at.
        """
        table = self._sum.table(log_target)

        def rough(epsilon: float) -> float:
            return table.log_tail(epsilon, kind)

        low = high = start = self._middle
        if not rough(start) > log_target:
            while not rough(low) > log_target:
                if low < 1e-6 * start:
                    return start, False  # the real sums are inexact at 0
                low /= 4
            high = 4 * low
        else:
            # Halve the distance to the supremum, but stop before floats coincide.
            while rough(high) > log_target and high < min(
                LIMITS.largest_epsilon, (1 - 1e-9) * self._supremum
            ):
                high = 0.5 * (high + self._supremum) if self._bounded else 4 * high
            low = 2 * high - self._supremum if self._bounded else high / 4
        if not (low < high and rough(low) > log_target >= rough(high)):
            return high, False
        ends = math.log(low), math.log(high)
        low, high = falls_to(lambda x: rough(math.exp(x)), log_target, *ends, 1e-3)
        return math.exp(0.5 * (low + high)), True

    def _about(self, place: float) -> float:
        return LIMITS.reuse_share * (place + self._spread)

    def _farthest(self, place: float) -> float:
        return self._about(place)

    def _suitable_telescope(self, epsilon: float) -> Telescope | None:
        """Return known lines if their bounds at this epsilon are narrow, else new lines."""
        for lines, place, width in self._lines:
            far = abs(epsilon - place) > self._about(place)
            if far or not isinstance(lines, Telescope):
                continue
            if lines.width(epsilon) <= max(4 * width, CONTOUR_LIMITS.reuse_width):
                return lines
        return self._telescope_at(epsilon)

    def _telescope_at(self, epsilon: float) -> Telescope | None:
        """Return lines of integration for an epsilon, and store them; None for a single line."""
        lines = self._line_at(epsilon)
        if not isinstance(lines, Telescope):
            return None
        if all(lines is not known for known, _, _ in self._lines):
            self._add_line(lines, epsilon)
        return lines

    def _first_threshold(self, log_mass: float, *, ahead: bool) -> tuple[float, bool] | None:
        """Return a first guess for `threshold`, and True if a threshold certainly exists.

        Return None if no threshold above 0 exists.
        """
        if self._sum.symmetric and not ahead and log_mass > LOG_HALF:
            return None  # Q(L > 0) <= P(L > 0) = Q(L < 0), so Q(L > 0) is at most one half
        if ahead:
            t, near = self._guess(log_mass, "P")
        else:
            t, near = self._guess(log_mass, "Q")
        if near:
            return t, True
        if not self._sum.atom_at_zero:
            return LIMITS.least_threshold * self._spread, False
        return None if log_mass > LOG_HALF else (self._start, True)

    def threshold(self, log_mass: float, *, ahead: bool) -> float | None:
        """Estimate the t > 0 at which P(L > t), or Q(L > t) if not ``ahead``, has this log mass.

        Return None if no t exists, or if there are no good lines at t.
        """
        low, high, failures = 0.0, math.inf, 0
        first = self._first_threshold(log_mass, ahead=ahead)
        if first is None:
            return None
        t, near = first
        most_failures = (
            LIMITS.repeated_failures if self._sum.atom_at_zero else LIMITS.threshold_failures
        )
        for step in range(LIMITS.threshold_steps):
            lines = self._suitable_telescope(t)
            failures += lines is None
            if failures > most_failures:
                return None
            tail = np.full(2, -math.inf)
            if lines is not None:
                tail = lines.log_tails(t * (1 + np.array([0.0, 1e-4])), ahead=ahead)
            if not np.all(np.isfinite(tail)):  # too far out, or too near 0
                if step == 0 and not near:
                    t = self._start
                    continue
                high, t = t, math.sqrt(low * t) if low > 0 else 0.25 * t
                continue
            low, high = (t, high) if tail[0] > log_mass else (low, t)
            if step == 0 and not near:  # check that a threshold above 0 exists
                if tail[0] <= log_mass:
                    return None
                t = self._start
                continue
            slope = float(tail[1] - tail[0]) / 1e-4  # in log t
            move = (log_mass - float(tail[0])) / slope if slope < 0 else 0.0
            if abs(move) < 1e-3:
                self._start = t
                return t * math.exp(move)
            # The tail bends down in log t: halve long moves outward, but not moves inward.
            following = t * math.exp(min(max(move if move < 0 else 0.5 * move, -1.5), 1.0))
            if abs(move) < 0.2:
                following = t * math.exp(move)
            if not low < following < high:
                following = math.sqrt(low * high) if low > 0 else 0.25 * high
            if following < LIMITS.least_threshold * self._spread or high < low * (1 + 1e-6):
                return None
            t = following
        return None

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power by lines at the threshold of the likelihood ratio test [LS-8].

        Levels with near thresholds share lines.
        """
        low, high = np.full(len(log_levels), -math.inf), np.zeros(len(log_levels))
        rest = np.argsort(-log_levels)  # thresholds rise
        while len(rest):
            first = float(log_levels[rest[0]])
            alone, count = len(rest) == 1, 1
            conjugate = self._conjugate_for(first, alone=alone)
            if conjugate is not None and not alone:
                inside = ndtri_exp(log_levels[rest]) >= conjugate.z[-2]
                count = max(int(np.count_nonzero(inside)), 1)
            now, rest = rest[:count], rest[count:]
            if conjugate is None:
                continue
            low[now], high[now] = conjugate.log_powers(log_levels[now])
            if alone:
                continue
            for k in now[~(high[now] - low[now] <= self._sum.limits.enough_width)]:
                closer = self._conjugate_for(float(log_levels[k]), alone=True)
                if closer is not None:
                    ends = closer.log_powers(log_levels[[k]])
                    low[k], high[k] = max(low[k], ends[0][0]), min(high[k], ends[1][0])
        return low, high

    def _conjugate_for(self, log_level: float, *, alone: bool) -> Conjugate | None:
        """Return the `Conjugate` for a level and, if not ``alone``, for nearby smaller levels."""
        t = self.threshold(log_level, ahead=False)
        if t is None:
            return self._reversed_conjugate(log_level, alone=alone)
        lines = self._suitable_telescope(t)
        if lines is None:
            return None
        places = t * (1 + np.linspace(-0.02, 0.02, 9))
        if not alone:
            step = t + self._spread
            places = np.linspace(
                0.98 * t, t + _reach(lines, t, step) * step, LIMITS.level_thresholds
            )
        return _by_lines(lines.log_delta, places, lines.log_tails(places, ahead=False))

    def _reversed_conjugate(self, log_level: float, *, alone: bool) -> Conjugate | None:
        """Return the `Conjugate` for a level with a threshold below 0, from the reversed pair.

        delta(-t) = 1 - e^-t + e^-t delta_reverse(t), so 1 - power is e^-t ((1 - level) -
        delta_reverse(t)) at the best t.
        """
        other = self._backward()
        if not isinstance(other, LargestStepProfile):
            return None
        t = other.threshold(math.log(-math.expm1(log_level)), ahead=True)
        if t is None:
            return None
        lines = other._suitable_telescope(t)
        if lines is None:
            return None

        def log_deltas(epsilon: Array) -> tuple[Array, Array]:
            return log_delta_below_zero(epsilon, lines.log_delta(-epsilon))

        places = -t * (1 + np.linspace(0.02, -0.02, 9))
        if not alone:
            step = t + other._spread
            nearest = max(t - _reach(lines, t, -step) * step, 1e-3 * t)
            places = np.linspace(-1.02 * t, -nearest, LIMITS.level_thresholds)
        tails = np.minimum(lines.log_tails(-places, ahead=True), -1e-300)
        return _by_lines(log_deltas, places, np.log(-np.expm1(tails)))

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta, by real sums and Newton's method."""
        if log_delta < -self._sum.limits.deepest_efolds:
            return super().epsilon_near(log_delta)
        if self._sum.ordinary:
            first = line_for(self._losses, log_delta, release=False)
            width = math.inf if first is None else first[0].width(first[1])
            if first is not None and width < self._sum.limits.enough_width:
                self._add_line(Telescope(first[:1], ()), first[1], width)
                return min(first[1], self._supremum)
        epsilon, near = self._guess(log_delta, "delta")
        if not near and epsilon > self._middle:
            return min(epsilon, self._supremum)
        if not near:  # delta may be below the target even at 0
            epsilon = 1e-3 * self._spread
        for _ in range(LIMITS.newton_steps):
            lines = self._telescope_at(epsilon)
            if lines is None:  # another engine answers
                return epsilon
            below, above = lines.log_delta(epsilon * (1 + np.array([0.0, 1e-5])))
            middle = 0.5 * (below + above)
            slope = float(middle[1] - middle[0]) / 1e-5  # in the logarithm of epsilon
            if not (math.isfinite(middle[0]) and slope < 0):
                return epsilon
            move = (log_delta - float(middle[0])) / slope
            epsilon *= math.exp(min(max(move, -2.0), 2.0))
            if abs(move) <= LIMITS.epsilon_efolds:
                break
        return min(epsilon, self._supremum)


def _by_lines(
    log_deltas: Callable[[Array], tuple[Array, Array]], places: Array, log_levels: Array
) -> Conjugate:
    """Return a `Conjugate` over epsilons ``places`` and the levels with these thresholds."""
    z = ndtri_exp(np.clip(log_levels, -1e300, -1e-12))
    return Conjugate(log_deltas, places, np.minimum.accumulate(z))


def _reach(lines: Telescope, t: float, step: float) -> float:
    """Return the number of steps from t up to which the bounds of lines stay about as narrow."""
    enough = max(4 * lines.width(t), CONTOUR_LIMITS.reuse_width)
    reach = LIMITS.reuse_share
    while reach < LIMITS.reuse_spreads and lines.width(max(t + 2 * reach * step, 0.0)) <= enough:
        reach *= 2
    return reach


def _round_scale(scale: float) -> float:
    """Return 2^(k / 4) nearest to ``scale``, k whole, so that near epsilons share brackets."""
    return 2.0 ** (round(4 * math.log2(scale)) / 4)


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
        # Sums over y must be short, and the least value of R must not underflow.
        short = step.loss.farthest <= LIMITS.normal_distance
        if not short or not step.loss.log_least > -REAL_SUMS_LIMITS.weight_efolds:
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
        listed = conditioned(composition, LIMITS.listed_sums, largest_step_profile)
        if listed is not None:
            engines.append((LIMITS.line_width, lambda: listed))
        engines.append((LIMITS.narrow_width, lambda: dots_profile(composition)))
        # For steps with an atom at 0, each power would need many lines.
        asked = (0, len(engines) - 1) if order == "symmetric" else None
        return CascadeProfile(engines, composition.log_total_variation, asked)
    # A grid of few steps is fast if a loss is only a ratio, without a piecewise distribution.
    fast = few and order == "one"
    enough = LIMITS.fair_width if fast else CONTOUR_LIMITS.grid_width
    # A coarse grid answers most questions in a tenth of the time.
    engines.append((enough, lambda: dots_profile(composition, LIMITS.coarse_points)))
    engines.append((LIMITS.fair_width, lambda: dots_profile(composition, LIMITS.medium_points)))
    engines.append((enough, lambda: dots_profile(composition)))
    method = "contour", Engine.CONTOUR
    return CascadeProfile(engines, composition.log_total_variation, method=method)
