"""Sums of Gaussian steps on samples: one line, or a line for each size of the largest step.

A bracket (`bracket_sum`) has a saddle point of its own, at about one over its level, so that a few
rare large losses among many small ones do not force one line to serve both. A table of real sums
(`real_sums`) guesses where lines go. The derivation stands in docs/certificates/largest-step.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.subsampled import SubsampledGaussianLoss
from neyman.curves.profiles.combination import (
    FAILED,
    FEW_GROUPS,
    MANY_UNLIKE,
    CascadeProfile,
    group_profile,
)
from neyman.curves.profiles.contour.contour import GOOD, WIDE, ContourProfile
from neyman.curves.profiles.contour_line import Line, line_at, line_for, log_kernel
from neyman.curves.profiles.duality import Conjugate
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.profile import Engine, Profile, log_delta_below_zero
from neyman.curves.profiles.sampled_steps.bracket_sum import (
    CANCELLATIONS,
    DIGITS,
    MOST_NODES,
    BracketSum,
    LinePlan,
    Telescope,
)
from neyman.curves.profiles.sampled_steps.few_steps import FewStepsProfile
from neyman.curves.profiles.sampled_steps.real_sums import LEAST_WEIGHT, Kernel, RealSums, Step
from neyman.curves.profiles.sampled_steps.step_grid import PAD, StepGrid
from neyman.curves.profiles.sampled_steps.step_nodes import StepNodes
from neyman.curves.profiles.selection import register
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import in_question
from neyman.numerics.roots import falls_to
from neyman.numerics.rounding import above

SHARPNESS = (6.0, 12.0, 24.0)  # of windows; the next one where an answer is wide
RATIO = 8.0  # of a level to the one before, and of epsilon to the first one
SOFT = 4.0  # losses over a level that its window lets through in part
LAST = 20.0  # level from which no window cuts
FARTHEST = 1e9  # epsilon beyond which no guess goes
DEEP = 300.0  # minus a log delta whose guess is rough
DEEPEST = 1e5  # minus a log probability beyond which guesses do not go
TILTS = 40  # tilts at which a bracket's transform is looked at
MOST_PLACES = 60_000  # nodes of y beyond which no line is tried
MANY = 4000  # nodes of y with which sharper windows are slow
FEW_NODES = 4000  # of one line, beyond which levels are tried
RARE = 1e-3, 2.0  # tilts of a last level that hardly counts
LAST_TILT = 30.0  # times the last level, which has no window above it
FARTHEST_PEAK = 300.0  # of the terms in y
MOST_TILT = 400.0  # times the level
EXCESS = 5.0  # e-folds by which the terms of one line may cancel, about
DOUBT = 0.03  # part of a log delta by which a guess at it may be off
FINE = 1e-9  # width of log delta with which a line is good enough
ENOUGH = 3e-7  # width of log delta with which no other shape is tried
USELESS = 1e-2  # width of log delta that less cancellation does not help
MOST_FAILURES, FEW_FAILURES = 6, 2  # on the way to a threshold
MOST_BRACKETS = 24  # lists of them that are stored
MOST_UNLIKE = 400  # parts, beyond which all levels of all of them take too long
MOST_STORED = 1_500_000  # nodes in them, of half a kilobyte each
TRIES = 3  # of lines for one epsilon
NARROW = 1e-6  # width of log delta from which the next engine is asked, too
FAIR = 1e-5  # the same before a grid of a few steps, which is fast
COARSE, MEDIUM = 1 << 13, 1 << 15  # points of grids before the finest
FEW_ATOMS = 8  # steps up to which the atom at 0 of their sum counts
FEWEST = 16  # steps up to which moments do not bound the decay of their sum soon enough
SEVERAL = 64  # steps up to which the density of their sum is asked
MOST_DISTANCE = 10.0  # of the two normals, with which sums over y stay short
MANY_LARGE = 5.0  # steps with the record, on average, from which one line is tried first
LOG_HALF = math.log(0.5)
NEAR = 1e-3  # of the logarithm of a guess at epsilon
LEAST_PLACE = 1e-5  # of the spread, below which a threshold counts as none
REUSE = 0.2  # of an epsilon and the spread, within which lines may suit another epsilon
FARTHEST_REUSE = 3.0  # of the same, for many levels
MANY_PLACES = 65  # of thresholds for many levels
SEARCH = 24  # steps to the threshold of a level
NEWTON = 12  # steps to the epsilon of a delta
CLOSE = 2e-3  # of the logarithm of an epsilon with which a search begins


def _step(loss: Part) -> Step | None:
    """The step behind a loss; none where it is no ratio of mixtures of normals."""
    ratio = loss.normal_ratio
    return None if ratio is None else Step(ratio.loss, ratio.order)


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
        self._farthest = max(step.loss.farthest for step, _ in self._parts)
        # Whether K is a short sum on a line of its own, and so many steps die out soon on it.
        enough = self._variance > 0 or sum(n for _, n in self._parts) > FEWEST
        self._cheap = enough and all(step.order == "one" for step, _ in self._parts)
        # Whether several steps with the record are sure, so that no single one is the largest.
        self._ordinary = (
            self._cheap
            and math.fsum(n * step.loss.ratio_floor for step, n in self._parts) > MANY_LARGE
        )
        # About how far the sum of all losses spreads.
        sides = 1 if self._parts[0][0].order == "one" else 2
        spread = math.fsum(n * (sides * x.loss.mean_shift) ** 2 for x, n in self._parts)
        self._spread = math.sqrt(spread + self._variance)
        self._tables: list[RealSums] = []
        self._bracket_at: dict[tuple[float, ...], list[BracketSum]] = {}
        self._stored = 0  # nodes in them
        self._symmetric = self._parts[0][0].order == "symmetric"
        # Few such steps have an atom at 0, near which no line goes.
        few = sum(n for _, n in self._parts) <= FEW_ATOMS
        self._atom_at_zero = self._symmetric and few and not self._variance
        # Additions have a largest loss, but not beside Gaussian noise.
        self._bounded = math.isfinite(self._supremum)
        self._middle = 0.5 * self._supremum if self._bounded else 0.1 * self._spread
        self._start = 0.5 * min(self._spread, 0.5 * self._supremum)

    def _table(self, log_target: float) -> RealSums:
        """The real sums that reach as far as this logarithm of a probability needs."""
        depth = 64.0
        while depth < min(-log_target, DEEPEST):
            depth *= 2
        if not self._tables or self._tables[0].depth < depth:
            self._tables = [RealSums(self._parts, self._variance, self._spread, depth)]
        return self._tables[0]

    def _most(self, epsilons: Array) -> Array:
        """Chernoff's bound by a few tilts of the whole sum [C-1]."""
        table = self._table(0.0)
        places = np.minimum(np.quantile(epsilons, (0, 0.5, 1)), FARTHEST)
        saddles = {_rounded(table.saddle(float(e))[0]) for e in places}
        most = math.inf
        if self._removed:  # beyond it sums over y are long
            most = FARTHEST_PEAK / self._farthest
        tilts = np.unique(np.minimum(np.multiply.outer(sorted(saddles), (0.5, 1.0)), most))
        brackets = self._one_bracket(tilts)
        if not brackets:
            return np.zeros(len(epsilons))
        bracket = brackets[0]
        tilts = bracket.tilts  # those of a bracket that is stored may differ between the ends
        above = np.array([bracket.log_f_above(k) for k in range(len(tilts))])
        moved = np.multiply.outer(np.minimum(epsilons, 1e200), tilts)  # delta falls beyond
        exponent = above + log_kernel(tilts) - moved
        # Both terms of log kappa are about c log c.
        size = np.abs(above) + moved + tilts * np.abs(np.log(tilts))
        bound = np.minimum((exponent + 16 * UNIT * (1 + size)).min(axis=1), 0.0)
        # Above 10^15 steps these bounds lose all digits; a K of its own errs less, near 1.
        return np.minimum(bound, super()._most(epsilons)) if self._cheap else bound

    def _line(self, epsilon: float) -> Telescope | None:
        """Lines for an epsilon: one where its terms do not cancel, else one for each level."""
        if epsilon > FARTHEST:
            return None
        best, narrowest = None, math.inf
        if self._ordinary:
            best, narrowest = self._one_line(epsilon)
            if narrowest < ENOUGH:
                return best
        table = self._table(0.0)
        rough = table.log_delta(epsilon)
        if rough < -table.depth:
            table = self._table(rough)
            rough = table.log_delta(epsilon)
        one = rough < -DEEP or table.saddle(epsilon)[1] < rough + EXCESS - DOUBT * rough
        if self._cheap and one and not self._ordinary:
            best, narrowest = self._one_line(epsilon)
            if narrowest < ENOUGH:
                return best
        if rough < -DEEPEST:  # only a line whose K is cheap goes there
            return best
        for brackets in self._candidates(epsilon, rough, table):
            for cancellation in CANCELLATIONS:
                telescope = self._telescope(brackets, epsilon, rough, cancellation)
                width = telescope.width(epsilon) if telescope is not None else math.inf
                if width < narrowest:
                    best, narrowest = telescope, width
                if not ENOUGH < width < USELESS:
                    break
            size = max((x.size for bracket in brackets for x in bracket.nodes), default=0)
            if narrowest < (ENOUGH if size < MANY else FAIR):
                break
        return best

    def _one_line(self, epsilon: float) -> tuple[Telescope | None, float]:
        """A line of K, and the width of its bounds; none where it knows nothing."""
        line = line_at(self._losses, epsilon, release=False)
        width = math.inf if line is None else line.width(epsilon)
        return None if line is None or width == math.inf else Telescope((line,), ()), width

    def _candidates(
        self, epsilon: float, rough: float, table: RealSums
    ) -> Iterator[list[BracketSum]]:
        """Ways to split the sum, the one with fewest lines first."""
        enough = rough + EXCESS - DOUBT * rough
        c, top, bend = table.saddle(epsilon)
        # Above c as far as the terms rise by what aliases need; below it as far as they fall.
        reach = min(max(9.0 / math.sqrt(bend), 0.02), 1.4)
        ahead = np.linspace(0.0, reach, TILTS // 2)
        tilts = c * np.exp(np.append(np.linspace(-0.7, 0.0, TILTS // 2)[:-1], ahead))
        if not self._removed:
            yield self._one_bracket(tilts)
            return
        scale = _rounded(max(epsilon, 0.1 * self._spread))
        # In t a window is as wide as a law of a small mu permits, or as a large loss.
        sharpness = max(1.0, 0.3 / self._farthest) / max(1.0, scale / 16)
        if top < enough and float(tilts[-1]) * self._farthest < FARTHEST_PEAK:
            yield self._one_bracket(tilts)
        elif table.saddle(epsilon, SOFT * RATIO * scale)[1] < enough:
            for times in SHARPNESS[:2]:
                yield self._brackets(epsilon, RATIO * scale, times * sharpness, rough)
        for times in SHARPNESS:
            yield self._brackets(epsilon, scale / RATIO, times * sharpness, rough)

    def _telescope(
        self, brackets: Sequence[BracketSum], epsilon: float, log_delta: float, cancellation: float
    ) -> Telescope | None:
        best = None
        log_delta *= 1 + DOUBT
        for _ in range(TRIES):
            telescope = self._planned(brackets, epsilon, log_delta, cancellation)
            if telescope is None:
                return best
            best = telescope
            low, high = telescope.log_delta(np.array([epsilon]))
            if high[0] - low[0] < FINE or low[0] == -math.inf or low[0] > log_delta - 1:
                break
            log_delta = float(low[0])
        return best

    def _planned(
        self, brackets: Sequence[BracketSum], epsilon: float, log_delta: float, cancellation: float
    ) -> Telescope | None:
        plans: list[LinePlan] = []
        rest: list[BracketSum] = []
        # The bracket whose line fails most often first: the last one, but the bulk near an atom.
        for bracket in brackets if self._atom_at_zero else reversed(brackets):
            if bracket.chernoff(epsilon)[0] < log_delta - DIGITS - 2:
                rest.append(bracket)
                continue
            plan = bracket.plan(epsilon, log_delta, cancellation)
            if plan is None:
                return None
            plans.append(plan)
        lines: list[Line] = []
        for plan in plans:
            line = plan.bracket.built(plan)
            if line is None:
                return None
            lines.append(line)
        return Telescope(tuple(lines), tuple(x.certain(epsilon) for x in rest)) if lines else None

    def _one_bracket(self, tilts: Array) -> list[BracketSum]:
        """The sum without levels; nothing where sums over y are too long."""
        key = (float(tilts[0]), float(tilts[-1]))
        if key not in self._bracket_at:
            nodes = tuple(
                StepNodes(x.loss, x.order, n, -math.inf, math.inf, float(tilts[-1]), None)
                for x, n in self._parts
            )
            short = all(step.full < MOST_PLACES for step in nodes)
            most = FEW_NODES if self._removed else MOST_NODES  # levels are tried beyond
            self._store(key, [BracketSum(nodes, self._variance, tilts, most)] if short else [])
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
        nodes = sum(step.full for bracket in brackets for step in bracket.nodes)
        if len(self._bracket_at) >= MOST_BRACKETS or self._stored + nodes > MOST_STORED:
            self._bracket_at.clear()
            self._stored = 0
        self._stored += nodes
        self._bracket_at[key] = brackets

    def _new_brackets(
        self, levels: Sequence[float], scale: float, sharpness: float, rare: bool, depth: float
    ) -> list[BracketSum]:
        tilts: list[Array] = []
        for low, high in pairwise(levels):
            start = 0.02 / max(low, scale)
            last = MOST_TILT / high
            if high == math.inf:
                last = min(
                    LAST_TILT / max(low, scale), max(FARTHEST_PEAK / self._farthest, 4 * start)
                )
            if high == math.inf and rare:  # the nodes reach as far as its mass counts
                pad = math.sqrt(2 * max(depth, 0.0)) + 2
                start, last = RARE[0], max(RARE[1], (pad - PAD) / self._farthest)
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
                high = 0.5 * (high + self._supremum) if self._bounded else 4 * high
            low = 2 * high - self._supremum if self._bounded else high / 4
        if not (low < high and rough(low) > log_target >= rough(high)):
            return high, False
        ends = math.log(low), math.log(high)
        low, high = falls_to(lambda x: rough(math.exp(x)), log_target, *ends, NEAR)
        return math.exp(0.5 * (low + high)), True

    def _about(self, place: float) -> float:
        return REUSE * (place + self._spread)

    def _near(self, epsilon: float) -> Telescope | None:
        """Lines for an epsilon: those that are there if they suit it."""
        for lines, place, width in self._lines:
            far = abs(epsilon - place) > self._about(place)
            if far or not isinstance(lines, Telescope):
                continue
            if lines.width(epsilon) <= max(4 * width, GOOD):
                return lines
        line = self._line_at(epsilon)
        if not isinstance(line, Telescope):
            return None
        self._added(line, epsilon)
        return line

    def _first_threshold(self, log_mass: float, *, ahead: bool) -> tuple[float, bool] | None:
        """Where to look for the threshold of `threshold`, and whether there is one for certain.

        None where there is none above 0.
        """
        if self._symmetric and not ahead and log_mass > LOG_HALF:
            return None  # Q(L > 0) <= P(L > 0) = Q(L < 0), so it is at most one half
        if ahead:
            t, near = self._guess(log_mass, "P")
        else:
            t, near = self._guess(log_mass, "Q")
        if near:
            return t, True
        if not self._atom_at_zero:
            return LEAST_PLACE * self._spread, False
        return None if log_mass > LOG_HALF else (self._start, True)

    def threshold(self, log_mass: float, *, ahead: bool) -> float | None:
        """About the t > 0 at which P(L > t), or Q(L > t) where not ``ahead``, has this logarithm.

        None where there is none or no line suits it.
        """
        low, high, failures = 0.0, math.inf, 0
        first = self._first_threshold(log_mass, ahead=ahead)
        if first is None:
            return None
        t, near = first
        most_failures = FEW_FAILURES if self._atom_at_zero else MOST_FAILURES
        for step in range(SEARCH):
            lines = self._near(t)
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
            if step == 0 and not near:  # whether there is a threshold above 0
                if tail[0] <= log_mass:
                    return None
                t = self._start
                continue
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
            if following < LEAST_PLACE * self._spread or high < low * (1 + 1e-6):
                return None
            t = following
        return None

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        """The line at the threshold of the likelihood ratio test gives the power [LS-8].

        Of many levels those whose thresholds suit one line are answered together.
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
            for k in now[~(high[now] - low[now] <= ENOUGH)]:
                closer = self._conjugate_for(float(log_levels[k]), alone=True)
                if closer is not None:
                    ends = closer.log_powers(log_levels[[k]])
                    low[k], high[k] = max(low[k], ends[0][0]), min(high[k], ends[1][0])
        return low, high

    def _conjugate_for(self, log_level: float, *, alone: bool) -> Conjugate | None:
        """The power at a level, and at smaller ones with thresholds nearby if not ``alone``."""
        t = self.threshold(log_level, ahead=False)
        if t is None:
            return self._reversed_conjugate(log_level, alone=alone)
        lines = self._near(t)
        if lines is None:
            return None
        places = t * (1 + np.linspace(-0.02, 0.02, 9))
        if not alone:
            step = t + self._spread
            places = np.linspace(0.98 * t, t + _reach(lines, t, step) * step, MANY_PLACES)
        return _by_lines(lines.log_delta, places, lines.log_tails(places, ahead=False))

    def _reversed_conjugate(self, log_level: float, *, alone: bool) -> Conjugate | None:
        """Where the threshold is below 0, from the reversed pair: it misses where that rejects.

        delta(-t) = 1 - e^-t + e^-t delta_reverse(t), so that the miss is at most and at least
        e^-t ((1 - level) - delta_reverse(t)) at the best t.
        """
        other = self._backward()
        if not isinstance(other, LargestStepProfile):
            return None
        t = other.threshold(math.log(-math.expm1(log_level)), ahead=True)
        if t is None:
            return None
        lines = other._near(t)
        if lines is None:
            return None

        def log_deltas(epsilon: Array) -> tuple[Array, Array]:
            return log_delta_below_zero(epsilon, lines.log_delta(-epsilon))

        places = -t * (1 + np.linspace(0.02, -0.02, 9))
        if not alone:
            step = t + other._spread
            nearest = max(t - _reach(lines, t, -step) * step, 1e-3 * t)
            places = np.linspace(-1.02 * t, -nearest, MANY_PLACES)
        tails = np.minimum(lines.log_tails(-places, ahead=True), -1e-300)
        return _by_lines(log_deltas, places, np.log(-np.expm1(tails)))

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta: by the real sums, then by Newton's method."""
        if log_delta < -DEEPEST:
            return super().epsilon_near(log_delta)
        if self._ordinary:
            first = line_for(self._losses, log_delta, release=False)
            if first is not None and first[0].width(first[1]) < ENOUGH:
                self._added(Telescope(first[:1], ()), first[1])
                return min(first[1], self._supremum)
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


def _by_lines(
    log_deltas: Callable[[Array], tuple[Array, Array]], places: Array, log_levels: Array
) -> Conjugate:
    """A conjugate, given about the levels whose thresholds the places are."""
    z = ndtri_exp(np.clip(log_levels, -1e300, -1e-12))
    return Conjugate(log_deltas, places, np.minimum.accumulate(z))


def _reach(lines: Telescope, t: float, step: float) -> float:
    """How many steps from t the lines are about as narrow as there."""
    enough = max(4 * lines.width(t), GOOD)
    reach = REUSE
    while reach < FARTHEST_REUSE and lines.width(max(t + 2 * reach * step, 0.0)) <= enough:
        reach *= 2
    return reach


def _rounded(scale: float) -> float:
    """To a quarter of an octave, so that neighboring epsilons have the same brackets."""
    return 2.0 ** (round(4 * math.log2(scale)) / 4)


def largest_step_profile(losses: Composition) -> LargestStepProfile:
    """The profile of a sum, the same for the same sum in one question."""
    return in_question(("largest step", losses), lambda: LargestStepProfile(losses))


@register(95, "ratios of mixtures of normals, as Gaussian steps on samples: lines by largest step")
def _sampled_steps(composition: Composition) -> Profile | None:
    kinds = [loss for loss, _ in composition.parts if not isinstance(loss, GaussianLoss)]
    steps = [step for step in map(_step, kinds) if step is not None]
    one_order = len({(step.order, step.loss.removed) for step in steps}) == 1
    if not one_order or len(steps) < len(kinds) or not all(map(_suits, steps)):
        return None
    engines: list[tuple[float, Callable[[], Profile]]] = [
        (0.0, lambda: largest_step_profile(composition))
    ]
    if len(composition.parts) > MOST_UNLIKE:
        return group_profile(composition, FEW_GROUPS)
    if len(composition.parts) > MANY_UNLIKE:
        engines.append((FAILED, lambda: group_profile(composition, FEW_GROUPS)))
    count = sum(n for _, n in composition.parts)
    subsampled = all(isinstance(loss, SubsampledGaussianLoss) for loss, _ in composition.parts)
    if count <= SEVERAL and subsampled:
        engines.append((NARROW, lambda: FewStepsProfile(composition)))
    # A grid of few steps is fast where a loss is a ratio alone, without a piecewise law.
    fast = count <= SEVERAL and all(step.order == "one" for step in steps)
    enough = FAIR if fast else WIDE
    # A coarse grid decides most questions, in a tenth of the time.
    engines.append((enough, lambda: dots_profile(composition, COARSE)))
    engines.append((FAIR, lambda: dots_profile(composition, MEDIUM)))
    engines.append((enough, lambda: dots_profile(composition)))
    method = "contour", Engine.CONTOUR
    return CascadeProfile(engines, composition.log_total_variation, method=method)


def _suits(step: Step) -> bool:
    """Whether sums over y stay short, and log R has a least value that floats hold."""
    return step.loss.farthest <= MOST_DISTANCE and step.loss.log_least > -LEAST_WEIGHT
