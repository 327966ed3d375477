"""Compute profiles of sums of losses with finitely many values off a lattice, by finite sums.

Losses of discrete noise on a sample are unevenly spaced. Their characteristic function is a short
sum that does not decay: it returns near 1 far out. But the mean of its squared size over any window
is at most about the mean around 0. Therefore, the nodes of a line themselves bound the terms beyond
the last node. Rare large losses are split off by size, as for Gaussian steps (`bracket_sum`). See
docs/certificates/finite-values.md for the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.losses.bracket import Parts
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.piecewise_analytic import PiecewiseAnalyticLoss
from neyman.curves.profiles.combination import CascadeProfile
from neyman.curves.profiles.contour.contour import ContourLines, ContourProfile, contour_profile
from neyman.curves.profiles.contour_line import Line, aliases, log_kernel
from neyman.curves.profiles.duality import Conjugate
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.profile import Profile
from neyman.curves.profiles.sampled_steps.bracket_sum import Telescope
from neyman.curves.profiles.sampled_steps.likely_sums import LIMITS as LIKELY_SUMS_LIMITS
from neyman.curves.profiles.sampled_steps.likely_sums import (
    Listing,
    Values,
    are_few,
    listed,
    listing,
)
from neyman.curves.profiles.selection import register
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p, rounding, wave_sum
from neyman.numerics.operations import in_question
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import above


@dataclass(frozen=True)
class Limits:
    """Limits on which losses are listed, and on the range of bounds."""

    values: int = 10_000  # values of one loss beyond which a grid is faster
    lattice_values: int = 4  # most values of a loss whose sums are nearly a lattice
    floor_efolds: float = 60.0  # largest minus log of a majorant
    bound_efolds: float = 600.0  # largest log of a finite bound
    listed_share: float = 0.85  # share of epsilon above which sums are listed


LIMITS = Limits()
WINDOWS = (1 + math.pi**2 / 6) / math.pi  # factor of a window's mean, over its end squared


@dataclass(frozen=True, eq=False)
class _FiniteSide:
    """Hold the values of one loss up to the top of a bracket, with tilted weights divided by M.

    M is the sum of all these weights.

    Args:
        place, weight: values up to the bracket's bottom.
        upper_place, upper_weight: values in the bracket.
        fixed: error of the sum below the bracket at every height, relative to M.
        sway: additional error per unit of height.
        upper_error: error of the sum in the bracket.
    """

    place: Array
    weight: Array
    upper_place: Array
    upper_weight: Array
    fixed: float
    sway: float
    upper_error: float
    upper_sway: float
    log_m: float
    count: int

    @staticmethod
    def of(values: Values, tilt: float, low: float, high: float) -> _FiniteSide:
        k, error, _ = (float(x[0]) for x in values.log_mgf(np.array([tilt]), low, high))
        inside = values.place <= high
        place, log_p = values.place[inside], values.log_p[inside]
        g = tilt * place + log_p
        upper = place > low if low > -math.inf else np.zeros(len(place), bool)
        top = float(g[upper].max()) if upper.any() else float(g.max())
        keep = g > top - LIKELY_SUMS_LIMITS.drop_efolds
        left_out = float(np.exp(g[~keep] - k).sum()) * (1 + 1e-9)
        left_above = float(np.exp(g[~keep & upper] - k).sum())
        place, log_p, weight, upper = place[keep], log_p[keep], np.exp(g[keep] - k), upper[keep]
        units = values.relative[inside][keep]
        units = units + UNIT * (4 * (8 + np.abs(log_p) + abs(k)))  # slack: counted
        # slack: counted
        units = units + np.abs(tilt * place) * (4 * UNIT + values.moves[inside][keep])
        size = weight * units
        sway = (size + values.moves[inside][keep] * weight) * np.abs(place)
        beyond = float(values.left_out(np.array([tilt]), low, high)[0]) * math.exp(min(-k, 700.0))
        return _FiniteSide(
            place[~upper],
            weight[~upper],
            place[upper],
            weight[upper],
            error + left_out,
            float(sway.sum()),
            float(size[upper].sum()) + 1.001 * left_above + beyond,
            float(sway[upper].sum()),
            k,
            values.count,
        )

    @cached_property
    def alpha(self) -> float:
        """Return the share of M that is in the bracket."""
        return float(self.upper_weight.sum())

    @cached_property
    def variance(self) -> float:
        """Return the variance of the values below the bracket."""
        total = float(self.weight.sum())
        if not total > 0:
            return 0.0
        mean = float(self.weight @ self.place) / total
        return float(self.weight @ (self.place - mean) ** 2) / total

    def below(self, u: Array) -> Array:
        """Return the sum of waves below the bracket minus its value at 0.

        u is evenly spaced from 0.
        """
        if not len(self.place):
            return np.zeros(len(u), complex)
        return wave_sum(self.place, self.weight, u)

    def inside(self, u: Array) -> Array:
        """Return the sum of waves in the bracket minus its value at 0."""
        if not len(self.upper_place):
            return np.zeros(len(u), complex)
        return wave_sum(self.upper_place, self.upper_weight, u)

    def squares(self, start: float, step: float, count: int) -> Array:
        """Return |m|^2 at start + k step for k < count. m is the sum of waves below the bracket."""
        if not len(self.place):
            return np.zeros(count)
        turned = self.weight * np.exp(1j * start * self.place)
        sums = turned.sum() + wave_sum(self.place, turned, step * np.arange(count))
        return np.abs(sums) ** 2

    def error(self, u: Array) -> tuple[Array, Array]:
        """Return bounds on the errors of the sums of waves below the bracket and in it."""
        e = self.fixed + self.sway * u
        low, high = e, self.upper_error + np.zeros(len(u))
        if len(self.place):
            low = low + rounding(self.place, self.weight, u)
        if len(self.upper_place):
            high = high + rounding(self.upper_place, self.upper_weight, u)
            high = high + self.upper_sway * u
        return low, high


def _even_power_bound(chi: Array, alpha: float, count: int) -> Array:
    """Return an upper bound on (chi + alpha)^count, with positive coefficients in chi^2 [FV-2].

    It rises with chi, and is at least e^-60.
    """
    if count == 0:
        return np.ones(len(chi))
    least = max(math.exp(-LIMITS.floor_efolds / count) - alpha, 1e-3 if alpha else 1e-30)
    large = chi > least
    x = np.append(least, chi[large])
    size = count * np.log(x + alpha)
    plus = np.exp(np.minimum(size, LIMITS.bound_efolds))
    if alpha:
        minus = np.exp(
            np.minimum(count * np.log(np.maximum(np.abs(alpha - x), 1e-300)), LIMITS.bound_efolds)
        )
        if count % 2:
            minus = np.where(x > alpha, -minus, minus)
        plus = 0.5 * (plus + minus) + 0.25 * (1 + x * x) * (plus - minus) / x
    elif count % 2:
        plus = plus * (0.5 * (x + 1 / x))
    # slack: counted
    plus = np.where(size < LIMITS.bound_efolds, plus * (1 + 1e-9 + 8 * count * UNIT), math.inf)
    value = np.full(len(chi), plus[0])
    value[large] = plus[1:]
    return value


def majorant(chis: Sequence[Array], alphas: Sequence[float], counts: Sequence[int]) -> Array:
    """Return an upper bound on |F| / (F at height 0) that is a characteristic function [FV-2].

    Args:
        chis: for each loss, the size of its sum of waves below the bracket, shape (m,).
        alphas: `_FiniteSide.alpha` of each loss; all 0 without a bracket.
        counts: copies of each loss.
    """
    evens = [_even_power_bound(chi, a, n) for chi, a, n in zip(chis, alphas, counts, strict=True)]
    with np.errstate(over="ignore"):  # an overflow gives no bound
        full = np.multiply.reduce(evens)
    if not any(alphas):
        return full
    scale = -math.expm1(math.fsum(n * _log1m(a) for a, n in zip(alphas, counts, strict=True)))
    large = math.fsum(n * a for a, n in zip(alphas, counts, strict=True))
    if large >= 1:
        return full / scale
    total = np.zeros(len(full))
    for i, (a, n) in enumerate(zip(alphas, counts, strict=True)):
        if a:
            rest = [x for j, x in enumerate(evens) if j != i]
            with np.errstate(over="ignore"):
                total += n * a * np.multiply.reduce([_even_power_bound(chis[i], a, n - 1), *rest])
    return total / scale * (1 + 1e-9)


def _log1m(alpha: float) -> float:
    return math.log1p(-alpha) if alpha < 1 else -math.inf


@dataclass(frozen=True, eq=False)
class Bracket:
    """Represent the sums whose largest term is in (low, high], or at most ``high`` if low is -inf.

    Args:
        parts: the losses with their counts.
        low, high: the ends of the bracket.
        tilts: increasing tilts at which the transform F is computed.
    """

    parts: Parts
    low: float
    high: float
    tilts: Array

    @cached_property
    def values(self) -> tuple[Values, ...]:
        """Return the values of the losses."""
        return listed(self.parts)

    @cached_property
    @np.errstate(over="ignore")  # an overflow means unknown
    def log_f(self) -> tuple[Array, Array]:
        """Return log F at the tilts (an upper bound if low > -inf), and its error."""
        total, error = np.zeros(len(self.tilts)), np.zeros(len(self.tilts))
        large = np.full(len(self.tilts), -math.inf)  # log mean number of steps in the bracket
        for v in self.values:
            k, e, share = v.log_mgf(self.tilts, self.low, self.high)
            total, error = total + v.count * k, error + v.count * e
            large = np.logaddexp(large, math.log(v.count) + share)
        if self.low > -math.inf:  # an upper bound, accurate enough to steer
            total = total + np.minimum(large, 0.0)
        known = error < 1.0  # otherwise omitted mass may matter
        # slack: counted
        return np.where(known, total, math.inf), error + 8 * UNIT * np.abs(total) + 1e-10

    def chernoff(self, epsilon: float) -> tuple[float, int]:
        """Return the smallest bound on log delta of the bracket, and the index of its tilt."""
        terms = self.log_f[0] - self.tilts * epsilon + log_kernel(self.tilts)
        k = int(np.argmin(terms))
        return float(terms[k]), k

    @cached_property
    def empty(self) -> bool:
        """Return True if no listed value is in the bracket."""
        return not any(np.any((v.place > self.low) & (v.place <= self.high)) for v in self.values)

    def bell(self, epsilon: float) -> float:
        """Estimate log delta of the bracket, from the bell shape of the integrand at its saddle."""
        c = self.tilts
        terms = self.log_f[0] - c * epsilon - np.log(c) - np.log1p(c)
        k = min(max(int(np.argmin(terms)), 1), len(c) - 2)
        around = terms[k - 1 : k + 2]
        if not np.all(np.isfinite(around)):
            return float(terms.min())
        slopes = np.diff(around) / np.diff(c[k - 1 : k + 2])
        bend = 2 * float(slopes[1] - slopes[0]) / float(c[k + 1] - c[k - 1])
        if not 0 < bend < math.inf or self.empty:
            return float(terms[k])
        return min(float(terms[k]) - 0.5 * math.log(math.tau * bend), 0.0)

    def certain(self, epsilon: float) -> tuple[float, float]:
        """Return the best Chernoff tilt, and an upper bound on log F at this tilt."""
        k = self.chernoff(epsilon)[1]
        return float(self.tilts[k]), float(self.log_f[0][k] + self.log_f[1][k])

    def finer(self, epsilon: float) -> Bracket:
        """Return this bracket with denser tilts near the one with the smallest terms."""
        k = int(np.argmin(self.log_f[0] - self.tilts * epsilon - np.log1p(self.tilts)))
        low, high = self.tilts[max(k - 3, 0)], self.tilts[min(k + 3, len(self.tilts) - 1)]
        tilts = cast(Array, np.geomspace(low, high, LIKELY_SUMS_LIMITS.fine_tilts))
        return Bracket(self.parts, self.low, self.high, tilts)

    def line(self, epsilon: float, log_delta: float) -> Line | None:
        """Return a line for an epsilon with this rough log delta; None if rounding hides it."""
        log_f, log_error = self.log_f
        terms = log_f - self.tilts * epsilon
        fine = terms - np.log1p(self.tilts)
        # The widest spacing that aliases permit, among tilts near the least terms.
        excess = terms + log_kernel(self.tilts) - log_delta
        best: tuple[float, int, int] | None = None
        for k in np.flatnonzero(fine < fine.min() + 0.5):
            gap = self.tilts - self.tilts[k]
            after = np.where(
                gap > 0,
                math.tau * gap / np.maximum(excess + LIKELY_SUMS_LIMITS.digits_efolds, 1e-3),
                0.0,
            )
            before = (
                math.tau * float(self.tilts[k]) / (LIKELY_SUMS_LIMITS.digits_efolds - log_delta)
            )
            h = min(before, float(after.max()))
            if best is None or h > best[0]:
                best = h, int(k), int(np.argmax(after))
        assert best is not None
        h, k, other = best
        if not h > 0:
            return None
        c = float(self.tilts[k])
        sides = [_FiniteSide.of(v, c, self.low, self.high) for v in self.values]
        top = math.fsum(s.count * s.log_m for s in sides)
        if self.low > -math.inf:
            scale = -math.expm1(math.fsum(s.count * _log1m(s.alpha) for s in sides))
            if scale < 1e-290:
                return None
            top += math.log(scale)
        goal = math.exp(
            min(log_delta - (top - c * epsilon) - LIKELY_SUMS_LIMITS.digits_efolds, 0.0)
        )
        nodes = _nodes(sides, h, c, self.low > -math.inf, goal)
        if nodes is None:
            return None
        u, phi, error, rest = nodes
        used = sorted({other, min(other + 3, len(self.tilts) - 1), max(other - 3, k + 1)})
        more = aliases(c, h, self.tilts[used], (log_f + log_error)[used])
        return Line.of(c, u, phi, error, rest, top, more)


def _nodes(
    sides: Sequence[_FiniteSide], h: float, c: float, split: bool, goal: float
) -> tuple[Array, Array, Array, float] | None:
    """Return heights, F / (F at height 0), its error, and a bound on the omitted nodes; or None.

    The bound is on the sum of |F| h / (pi u^2) over all omitted nodes u. c is the tilt, h the
    distance of nodes, and ``goal`` an acceptable bound.
    """
    counts = [s.count for s in sides]
    alphas = [s.alpha if split else 0.0 for s in sides]
    deviation = math.sqrt(math.fsum(s.count * s.variance for s in sides))
    values = max(len(s.place) + len(s.upper_place) for s in sides)
    most = int(min(LIKELY_SUMS_LIMITS.most_nodes, LIKELY_SUMS_LIMITS.most_terms / max(values, 1)))
    count = min(most, max(64, math.ceil(10 / (max(deviation, 1e-300) * h))))
    nodes = _FiniteNodes.of(sides, alphas, counts, h, count, c)
    mean = float(nodes.bound[0] + 2 * nodes.bound[1:].sum())
    if not math.isfinite(mean):
        return None
    end = count * h
    target = max(math.sqrt(4 * WINDOWS * mean * h / goal), 2 * end)
    scan = _Scan.of(sides, alphas, counts, end, target, h)
    # Extend the nodes until the scan's bound on the rest is negligible.
    after = np.append(np.cumsum(scan.size[::-1])[::-1], 0.0) * (h / math.pi)
    last = int(np.searchsorted(-after, -0.1 * goal))
    reach = end if last == 0 else float(scan.edge[last])
    if reach > end:
        count = min(most, math.ceil(reach / h))
        nodes = _FiniteNodes.of(sides, alphas, counts, h, count, c)
        last = int(np.searchsorted(scan.edge, count * h, side="right")) - 1
        last = max(last, 0)
    rest = float(after[last])
    mean = float(nodes.bound[0] + 2 * nodes.bound[1:].sum() + 2 * scan.mean[last:].sum())
    rest += WINDOWS * mean * h / (float(scan.edge[-1]) - h) ** 2 * (1 + 1e-9)
    # Replace negligible nodes by the bound.
    left = np.cumsum(nodes.size[::-1])[::-1]
    used = max(int(np.searchsorted(-left, -0.1 * goal)), 8)
    rest += float(left[used]) if used < count else 0.0
    transform = nodes.transform(used)
    return None if transform is None else (nodes.u[:used], *transform, rest)


@dataclass(frozen=True, eq=False)
class _Scan:
    """Hold bounds on cells: intervals of heights beyond the nodes.

    Args:
        edge: ends of the cells, shape (n + 1,).
        size, mean: bounds on the sums of |F| / u^2 and of |F| over the nodes in each cell.
    """

    edge: Array
    size: Array
    mean: Array

    @staticmethod
    def of(
        sides: Sequence[_FiniteSide],
        alphas: Sequence[float],
        counts: Sequence[int],
        start: float,
        end: float,
        h: float,
    ) -> _Scan:
        """Return bounds on cells from ``start`` to about ``end``. Cells widen up to a limit.

        h: distance of nodes.
        """
        values = sum(len(s.place) for s in sides)
        spread = math.sqrt(max(1e-300, *(s.variance for s in sides)))
        sharp = math.sqrt(math.fsum(s.count * s.variance for s in sides))
        widest = max(
            1.0 / max(sharp, 1e-300), values * (end - start) / LIKELY_SUMS_LIMITS.scan_terms
        )
        widest = min(widest, LIKELY_SUMS_LIMITS.scan_deviations / spread)
        end = min(end, start + widest * LIKELY_SUMS_LIMITS.most_terms / max(values, 1))
        edges: list[Array] = []
        ends: list[list[Array]] = []
        first = start
        while first < end:
            step = min(widest, first / 8)
            stop = end if step == widest else min(end, 8 * first)
            count = math.ceil((stop - first) / step)
            edges.append(first + step * np.arange(count + 1))
            squares = [s.squares(first, step, count + 1) for s in sides]
            ends.append([np.maximum(x[1:], x[:-1]) for x in squares])
            first = float(edges[-1][-1])
        low = np.concatenate([x[:-1] for x in edges])
        step = np.concatenate([np.diff(x) for x in edges])
        square = [np.concatenate(x) for x in zip(*ends, strict=True)]
        bound = _over(sides, square, alphas, counts, step, low + step) * (step / h + 1)
        return _Scan(np.append(low, first), bound / low**2, bound)


def _over(
    sides: Sequence[_FiniteSide],
    squares: Sequence[Array],
    alphas: Sequence[float],
    counts: Sequence[int],
    step: Array,
    u: Array,
) -> Array:
    """Return the `majorant` on cells of width ``step`` that end at u.

    ``squares``: the larger |m|^2 at the ends of each cell, for each loss.

    A square is at most its chord plus the largest second derivative times step^2 / 8 [FV-3].
    """
    chis = [
        np.sqrt(x + (0.25 * s.variance * float(s.weight.sum()) ** 2 * (1 + 1e-6)) * step**2)
        + 2 * s.error(u)[0]
        for s, x in zip(sides, squares, strict=True)
    ]
    return majorant(chis, alphas, counts)


@dataclass(frozen=True, eq=False)
class _FiniteNodes:
    """Hold the sums of waves at evenly spaced heights of a line.

    Args:
        u: the heights.
        bound, size: the `majorant` at the heights, and the same times the kernel of the integral.
    """

    u: Array
    sides: Sequence[_FiniteSide]
    alphas: Sequence[float]
    waves: list[tuple[Array, Array]]
    errors: list[tuple[Array, Array]]
    bound: Array
    size: Array

    @staticmethod
    def of(
        sides: Sequence[_FiniteSide],
        alphas: Sequence[float],
        counts: Sequence[int],
        h: float,
        count: int,
        c: float,
    ) -> _FiniteNodes:
        u = h * np.arange(count)
        waves = [(s.below(u), s.inside(u)) for s in sides]
        errors = [s.error(u) for s in sides]
        chis = [
            np.abs((1 - a) + w[0]) + e[0] for w, e, a in zip(waves, errors, alphas, strict=True)
        ]
        bound = majorant(chis, alphas, counts)
        size = bound * (h / math.pi) / np.maximum(u * u, c * (c + 1))
        return _FiniteNodes(u, sides, alphas, waves, errors, bound, size)

    def transform(self, last: int) -> tuple[Array, Array] | None:
        waves = [(a[:last], b[:last]) for a, b in self.waves]
        errors = [(a[:last], b[:last]) for a, b in self.errors]
        return _transform(self.sides, waves, errors, self.alphas, any(self.alphas))


def _transform(
    sides: Sequence[_FiniteSide],
    waves: Sequence[tuple[Array, Array]],
    errors: Sequence[tuple[Array, Array]],
    alphas: Sequence[float],
    split: bool,
) -> tuple[Array, Array] | None:
    """Return F / (F at height 0), and a bound on its error [FV-1]; None if the error is too large.

    waves, errors: below the bracket and inside, from each `_FiniteSide`.
    """
    last = len(waves[0][0])
    low, gain = np.zeros(last, complex), np.zeros(last, complex)
    size, error, worst, missing = np.ones(last), np.zeros(last), np.zeros(last), 0.0
    for s, (below, inside), (e_low, e_high), a in zip(sides, waves, errors, alphas, strict=True):
        m = below - a
        # slack: counted
        m = np.where(np.abs(1 + m) < 8 * UNIT, 8 * UNIT - 1, m)  # avoids log 0
        turned, more = log1p(m), log1p((a + inside) / (1 + m))
        low, gain = low + s.count * turned, gain + s.count * more
        size = size + s.count * (np.abs(turned) + np.abs(more))
        missing += s.count * _log1m(a)
        error, worst = error + s.count * e_high, worst + s.count * (e_low + e_high)
    if not float(worst.max()) < 1:
        return None
    if not split:
        phi = np.exp(low)
        return phi, worst * np.exp(worst) + 16 * UNIT * size * np.abs(phi)  # slack: counted
    scale = -math.expm1(missing)
    near = np.real(gain) < 30
    phi = np.exp(low) * np.expm1(np.where(near, gain, 0.0))
    phi = np.where(near, phi, np.exp(low + gain) - np.exp(low)) / scale
    error = (error / scale + worst) * np.exp(worst)
    return phi, error + 16 * UNIT * (size * np.abs(phi) + 1)  # slack: counted


class FiniteStepsProfile(ContourProfile):
    """Compute the privacy profile of a sum of losses with finitely many values."""

    def __init__(self, losses: Composition) -> None:
        super().__init__(
            losses,
            lambda: finite_steps_profile(losses.reverse()),
            losses.infinite,
            above(losses.supremum),
            losses.log_top,
            release=False,
        )
        self.method = "finite sums by largest step"
        self._beside = True
        self._parts = losses.parts
        _, mean, variance = (float(x[0]) for x in losses.moments(np.zeros(1)))
        self._spread = max(math.sqrt(max(variance, 0.0)), abs(mean), 1e-300)
        self._all = listed(losses.parts)
        self._places = np.unique(np.concatenate([v.place for v in self._all]))
        self._tables: dict[tuple[float, float], Bracket] = {}
        self._few = are_few(self._all)

    @cached_property
    def _levels(self) -> list[float]:
        """Return increasing levels: between values, then just above all listed values, then inf."""
        top = float(self._places[-1])
        levels: list[float] = [math.inf, top + 1e-9 * abs(top) + 1e-300]
        positive = self._places[self._places > 0]
        level = top
        while level > 0.03 * self._spread and len(levels) < 40:
            level /= LIKELY_SUMS_LIMITS.level_ratio
            k = int(np.searchsorted(positive, level))
            if k == 0:
                break
            between = 0.5 * (float(positive[k - 1]) + float(positive[k]))
            if between < levels[-1]:
                levels.append(between)
        return levels[::-1]

    def _bracket(self, low: float, high: float) -> Bracket:
        key = (low, high)
        if key not in self._tables:
            top = min(high, float(self._places[-1]))
            last = 4000 / max(top, 1e-300) if top > 0 else 1e4 / self._spread
            first = 1e-3 / max(self._spread, top, 1e-300)
            last = min(max(last, 1e4 * first), LIKELY_SUMS_LIMITS.largest_tilt)
            tilts = np.geomspace(first, last, LIKELY_SUMS_LIMITS.table_tilts)
            self._tables[key] = Bracket(self._parts, low, high, tilts)
        return self._tables[key]

    def _split(self, epsilon: float) -> list[Bracket]:
        """Return the brackets for an epsilon.

        The sum is split by levels only if this gains enough.
        """
        *lower, top, end = self._levels
        levels = [*(x for x in lower if x > epsilon / LIKELY_SUMS_LIMITS.level_ratio), top]
        one, beyond = self._bracket(-math.inf, top), self._bracket(top, end)
        brackets = [self._bracket(-math.inf, levels[0])]
        brackets += [self._bracket(a, b) for a, b in pairwise(levels)]
        return [*(brackets if self._gains(one, brackets, epsilon) else [one]), beyond]

    @staticmethod
    def _gains(one: Bracket, brackets: Sequence[Bracket], epsilon: float) -> bool:
        total = np.logaddexp.reduce([b.chernoff(epsilon)[0] for b in brackets])
        return bool(one.chernoff(epsilon)[0] - total > LIKELY_SUMS_LIMITS.cancellation_efolds)

    def _rough(self, epsilon: float) -> float:
        """Estimate log delta from `Bracket.bell` of each bracket."""
        return float(np.logaddexp.reduce([b.bell(epsilon) for b in self._split(epsilon)]))

    def _line(self, epsilon: float) -> ContourLines | None:
        best: ContourLines | None = None
        narrowest = math.inf
        brackets = [b.finer(epsilon) for b in self._split(epsilon)]
        bells = [b.bell(epsilon) for b in brackets]
        rough = float(np.logaddexp.reduce(bells))
        if self._few:
            likely = [b for b, x in zip(brackets, bells, strict=True) if x > rough - 20]
            tilts = np.array([b.certain(epsilon)[0] for b in likely])
            guess = rough
            for _ in range(3):
                if guess < -650:
                    break
                sums = listing(
                    self._all,
                    LIMITS.listed_share * epsilon,
                    tilts,
                    guess - LIKELY_SUMS_LIMITS.least_efolds,
                )
                if sums is None:
                    break
                low, high = (float(x[0]) for x in sums.log_delta(np.array([epsilon])))
                best, narrowest = sums, high - low
                if narrowest < LIKELY_SUMS_LIMITS.good_width:
                    return sums
                guess = low if low > -math.inf else guess - 50
        for _ in range(3):
            lines: list[Line] = []
            rest: list[tuple[float, float]] = []
            for bracket in brackets:
                hardly = bracket.chernoff(epsilon)[0] < rough - LIKELY_SUMS_LIMITS.digits_efolds - 2
                if hardly or bracket.empty:
                    rest.append(bracket.certain(epsilon))
                    continue
                line = bracket.line(epsilon, rough)
                if line is None:
                    return best
                lines.append(line)
            if not lines:
                return best
            telescope = Telescope(tuple(lines), tuple(rest))
            low, high = (float(x[0]) for x in telescope.log_delta(np.array([epsilon])))
            if high - low < narrowest or best is None:
                best, narrowest = telescope, high - low
            if low == -math.inf or low > rough - 1:
                break
            rough = low
        return best

    def _nearest_lines(self, epsilon: float) -> ContourLines | None:
        for lines, place, width in self._lines:
            near = abs(epsilon - place) <= 0.2 * (place + self._spread)
            if near and lines.width(epsilon) <= max(4 * width, self.good):
                return lines
        line = self._line_at(epsilon)
        return None if line is None else self._add_line(line, epsilon)[0]

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power at each level by deltas near its test's threshold, if above 0."""
        low, high = np.full(len(log_levels), -math.inf), np.zeros(len(log_levels))
        for k, level in enumerate(log_levels.tolist()):
            t = self._threshold(level)
            lines = None if t is None else self._nearest_lines(t)
            if t is None or not isinstance(lines, Listing | Telescope):
                low[[k]], high[[k]] = super()._by_duality(log_levels[[k]])
                continue
            places = t * (1 + np.linspace(-0.02, 0.02, 9))
            tails = lines.log_tails(places, ahead=False)
            z = ndtri_exp(np.clip(np.minimum.accumulate(tails), -1e300, -1e-12))
            low[[k]], high[[k]] = Conjugate(lines.log_delta, places, z).log_powers(log_levels[[k]])
        return low, high

    def _threshold(self, log_level: float) -> float | None:
        """Estimate the t > 0 with Q(L > t) equal to the level, or return None."""
        top = min(self._supremum, 1e9)
        ends = math.log(1e-5 * self._spread), math.log(top)

        def above(log_t: float) -> bool:
            return self._rough(math.exp(log_t)) - math.exp(log_t) > log_level

        if not ends[0] < ends[1] or not above(ends[0]) or above(ends[1]):
            return None
        t = math.exp(bisect(above, *ends, width=0.05, tolerance=1e-9)[0])
        for _ in range(12):
            lines = self._nearest_lines(t)
            if not isinstance(lines, Listing | Telescope):
                return None
            tail = lines.log_tails(t * np.array([1.0, 1.001]), ahead=False)
            if not np.all(np.isfinite(tail)):
                return None
            slope = float(tail[1] - tail[0]) / 1e-3
            move = (log_level - float(tail[0])) / slope if slope < 0 else 0.0
            t = min(t * math.exp(min(max(move, -1.0), 1.0)), 0.999999 * top)
            if abs(move) < 2e-3:
                return t
        return t

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon with this log delta by `_rough`, then by Newton's method on lines."""
        top = min(self._supremum, 1e9)
        if not math.isfinite(log_delta):
            return 1.0

        def enough(log_epsilon: float) -> bool:
            return self._rough(math.exp(log_epsilon)) > log_delta

        first, last = math.log(1e-6 * self._spread), math.log(top)
        if not enough(first):
            epsilon = 1e-3 * self._spread
        elif enough(last):
            return top
        else:
            epsilon = math.exp(bisect(enough, first, last, width=0.05, tolerance=1e-9)[0])
        for _ in range(12):
            lines = self._nearest_lines(epsilon)
            if lines is None:
                return epsilon
            below, higher = lines.log_delta(epsilon * (1 + np.array([0.0, 1e-5])))
            middle = 0.5 * (below + higher)
            if not np.all(np.isfinite(middle)):
                return epsilon
            slope = float(middle[1] - middle[0]) / 1e-5
            if not slope < 0:
                return epsilon
            move = (log_delta - float(middle[0])) / slope
            epsilon = min(epsilon * math.exp(min(max(move, -2.0), 2.0)), 0.999999 * top)
            if abs(move) <= 2e-3:
                break
        return epsilon


def finite_steps_profile(losses: Composition) -> FiniteStepsProfile:
    """Return the profile of a sum. Equal sums in one question share it."""
    return in_question(("finite steps", losses), lambda: FiniteStepsProfile(losses))


@register(96, "samples of discrete noise: lists of sums, or lines that are finite sums")
def _finite_steps(composition: Composition) -> Profile | None:
    parts = composition.parts
    samples = any(isinstance(x, PiecewiseAnalyticLoss) for x, _ in parts)
    values = listed(parts) if samples else ()
    if len(values) < max(len(parts), 1) or max(len(v.place) for v in values) > LIMITS.values:
        return None

    def lines() -> Profile:
        return finite_steps_profile(composition)

    def contour() -> Profile:
        return contour_profile(composition)

    # Sums of a few values are nearly a lattice, so a contour with a tiny release goes first.
    lattice = max(len(v.place) for v in values) <= LIMITS.lattice_values and not are_few(values)
    first, second = (contour, lines) if lattice else (lines, contour)
    engines: list[tuple[float, Callable[[], Profile]]] = [
        (0.0, first),
        (1e-6 if lattice else 1e-8, second),
        (1e-3, lambda: dots_profile(composition)),
        (1e-2, second),
    ]
    # A power costs one question of the first engine, but a hundred of the second, asked last.
    return CascadeProfile(engines, composition.log_total_variation, powers=(0, 2, 3))
