"""Estimate tails of a sum of steps from a table of real sums, to guide lines; uncertified."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from neyman.curves.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.curves.losses.loss import NormalRatio
from neyman.curves.profiles.contour_line import LineSum
from neyman.curves.profiles.sampled_steps.step_grid import PAD_DEVIATIONS, StepGrid
from neyman.curves.profiles.sampled_steps.step_nodes import log_sum
from neyman.numerics.arrays import Array


@dataclass(frozen=True)
class Limits:
    """Limits on the tilts and nodes of sums over y."""

    decade_tilts: int = 6  # tilts per decade
    sparse_ratio: float = 4.0  # distance of nodes, relative to certified sums
    widest_gap: float = 0.3  # largest distance of nodes
    # Ratio of the rises on both sides of a minimum beyond which it is no saddle.
    cliff_ratio: float = 8.0
    largest_reach: float = 5e3  # largest range of nodes y below 0
    weight_efolds: float = 200.0  # minus the logarithm of a normal's least weight


LIMITS = Limits()

Kernel = Literal["delta", "P", "Q"]  # delta(t), P(L > t), or Q(L > t)


def place_of(loss: LikelihoodRatioLoss, level: float) -> float:
    """Estimate the t = mu y - mu^2 / 2 at which log R is ``level``, above 0."""
    mu = loss.farthest
    most = (level + LIMITS.weight_efolds) / mu + mu
    return mu * float(loss.inverse(np.array([level]), 0.0, most)[0]) - mu * mu / 2


class RealSums:
    """Estimate tails from sums over real y at many tilts, cut sharply at each node; uncertified.

    As for the lines, the sum is split by its largest step, here at every node with a loss above 0.
    Each part is estimated by the bell shape of its integrand around the saddle point. A tail takes
    a few microseconds.

    Args:
        steps: steps with their counts.
        variance: mu^2 of Gaussian noise besides the steps.
        spread: approximate range of the sum of all losses.
        depth: approximate minus log of the smallest probability of interest.
        beside: other losses besides the steps.
    """

    def __init__(
        self,
        steps: Sequence[tuple[NormalRatio, int]],
        variance: float,
        spread: float,
        depth: float,
        beside: LineSum | None = None,
    ) -> None:
        self.depth = depth
        most = 3e4 * max(1.0, depth / 64) / spread
        self.tilts = c = np.geomspace(
            2e-3, most, round(LIMITS.decade_tilts * math.log10(most / 2e-3))
        )
        self.places = np.log(c)
        self.levels = np.zeros(0)
        total, log_gains = 0.5 * variance * c * (c + 1), np.zeros((len(c), 0))
        if beside is not None:
            total = total + beside.moments(c)[0]
        # The levels are the losses at the nodes of the step with the largest losses.
        for step, n in sorted(steps, key=lambda part: -part[0].loss.farthest):
            loss, last = step.loss, float(c[-1])
            # An added record with much noise would need millions of nodes at larger tilts.
            while not loss.removed and -loss.range(loss.power(last))[0] > LIMITS.largest_reach:
                last /= 4
            grid = StepGrid(loss, step.order, None, last, LIMITS.sparse_ratio, LIMITS.widest_gap)
            farthest = loss.farthest + math.sqrt(4 * depth + 80)
            stop = farthest if grid.rises else max(PAD_DEVIATIONS, loss.range(loss.power(last))[1])
            grid.reach(math.ceil((stop - grid.start) / grid.h) + 1)
            first, second = grid.exponent(0.0)
            g = first + grid.normal(0.0) + np.multiply.outer(c, second)
            rest = np.full(len(c), -math.inf)
            if step.order == "symmetric":
                below = np.multiply.outer(-c, grid.log_ratio(0.0)) + grid.normal(0.0)
                rest = np.logaddexp(log_sum(below), grid.log_rest)
            if not grid.rises:
                total = total + n * log_sum(g)
                continue
            waves = grid.waves(0.0)
            if not len(self.levels):
                self.levels = waves[waves > max(1e-4 * spread, 1e-12)]
                log_gains = np.full((len(c), len(self.levels)), -math.inf)
            if not len(self.levels):  # no step is large compared to the noise
                total = total + n * np.logaddexp(rest, log_sum(g))
                continue
            starts = np.searchsorted(waves, self.levels)
            rest = np.logaddexp(rest, log_sum(g[:, : starts[0]]))
            slices = g[:, starts[0] :]
            if len(slices[0]) != len(starts) or np.any(np.diff(starts) != 1):
                edges = np.minimum(starts, len(waves) - 1)
                slices = np.logaddexp.reduceat(g, edges, axis=1)
                slices[:, starts >= len(waves)] = -math.inf
            with np.errstate(over="ignore"):  # tilts far beyond the saddle
                below = np.logaddexp.accumulate(np.column_stack([rest, slices]), axis=1)
            total = total + n * rest
            log_gains = np.logaddexp(log_gains, log_gain(n, slices - below[:, :-1]))
        # log F of each part: the bulk, and the gain from the largest step at each level.
        gains = np.exp(log_gains)
        before = total[:, None] + np.cumsum(gains, axis=1) - gains
        self.log_f = np.column_stack([total, before + log_expm1(log_gains)])
        self.log_up_to = np.column_stack([total, before + gains])

    def _parts(self, epsilon: float, kind: Kernel) -> Array:
        """Estimate the log of each part's contribution to delta, or to a tail under P or Q."""
        c = self.tilts
        kernel = -np.log(c) if kind == "P" else -np.log(c + 1)
        if kind == "delta":
            kernel = kernel - np.log(c)
        g = self.log_f + (kernel - c * epsilon)[:, None]
        return self._bells(g) - (epsilon if kind == "Q" else 0.0)

    def _bells(self, g: Array) -> Array:
        """Estimate the log of the integral over a line at the minimum of g, for each column of g.

        g: log of the integrand at each tilt, shape (tilts, parts).
        """
        k = np.clip(np.argmin(g, axis=0), 1, len(g) - 2)
        at = np.arange(int(g.shape[1]))
        left, middle, right = g[k - 1, at], g[k, at], g[k + 1, at]
        step = self.places[1] - self.places[0]
        with np.errstate(invalid="ignore"):
            bend = np.maximum((left - 2 * middle + right) / step**2, 0.3)
            slope = (right - left) / (2 * step)
            below = np.maximum(np.minimum(left, right) - middle, 0.0)  # upper bound by convexity
            least = middle - np.minimum(0.5 * slope * slope / bend, below)
        # If a part's terms fall in c up to the last tilt, the part is small.
        least = np.where(np.isfinite(least), np.minimum(least, middle), middle)
        bells = least + self.places[k] - 0.5 * np.log(math.tau * bend)
        return np.where(np.isnan(bells), middle, bells)

    def log_tail(self, epsilon: float, kind: Kernel) -> float:
        """Estimate log delta(epsilon), log P(L > epsilon), or log Q(L > epsilon)."""
        return min(float(log_sum(self._parts(epsilon, kind))), 0.0)

    def log_delta(self, epsilon: float) -> float:
        """Estimate log delta(epsilon)."""
        return self.log_tail(epsilon, "delta")

    def saddle(self, epsilon: float, level: float = math.inf) -> tuple[float, float, float]:
        """Return the saddle c of the sum of steps with losses up to ``level``.

        Returns:
            c, the approximate log of the sum of the terms, and their log's second derivative in log
            c.
        """
        c = self.tilts
        column = int(np.searchsorted(self.levels, level))
        terms = self.log_up_to[:, column] - c * epsilon - np.log(c * (c + 1))
        k = min(max(int(np.argmin(terms)), 1), len(c) - 2)
        left, middle, right = (float(v) for v in terms[k - 1 : k + 2])
        step = float(self.places[1] - self.places[0])
        rises = left - middle, right - middle
        at, move = float(self.places[k]), 0.0
        if max(rises) > LIMITS.cliff_ratio * (1 + min(rises)):  # no parabola
            bend = max(2 * min(rises) / step**2, 0.3)
        else:
            bend = max(sum(rises) / step**2, 0.3)
            slope = (right - left) / (2 * step)
            move = min(max(-slope / bend, -step), step)
            middle += 0.5 * slope * move
        at += move
        return math.exp(at), middle + at - 0.5 * math.log(math.tau * bend), bend

    def last_level(self, epsilon: float, log_least: float) -> float:
        """Return the level above which all parts together add at most e^log_least to delta."""
        parts = self._parts(epsilon, "delta")[1:]
        if not len(parts):
            return 0.0
        above = np.logaddexp.accumulate(parts[::-1])[::-1]
        far = np.flatnonzero(above > log_least)
        return float(self.levels[far[-1]]) if len(far) else 0.0


def log_gain(count: Array | int, log_ratio: Array) -> Array:
    """Return an upper bound on log(count log(1 + e^log_ratio)), without overflow."""
    far = np.maximum(log_ratio, -40.0)
    return np.log(count) + np.where(log_ratio < -40, log_ratio, np.log(np.logaddexp(0.0, far)))


def log_expm1(log_x: Array) -> Array:
    """Return log(e^x - 1) from log x; an upper bound if x is small."""
    x = np.exp(np.clip(log_x, -40.0, 700.0))
    near = np.log(np.expm1(np.minimum(x, 30.0)))
    return np.where(log_x < -40, log_x + 1e-17, np.where(x < 30, near, x))
