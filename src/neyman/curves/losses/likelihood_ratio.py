"""Compute losses log R(y) by sums over y. R is the density ratio of a normal mixture to a normal.

    M(w) = E_{N(0,1)}[R^w],    K_remove(z) = log M(z + 1),    K_add(z) = log M(-z)

M is computed by a trapezoid rule in y, whose error decreases geometrically. Let c be the largest
distance of a normal. For Im y = a, the terms of R have arguments in [0, c a]. So R(Re y) cos(c a /
2) <= |R(y)| <= R(Re y), and R has no zero in |Im y| < pi / c.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

import numpy as np

from neyman.curves.losses.loss import NODE_WEIGHTS, NODES, Loss, NormalRatio
from neyman.numerics.array_cache import array_cache, counted
from neyman.numerics.arrays import Array, imaginary_part, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import evenly, log1p, rounding, wave_sum, wave_sums
from neyman.numerics.decay import by_moments, by_pieces
from neyman.numerics.discretization import Discretization
from neyman.numerics.operations import CALL, cells, charge


@dataclass(frozen=True)
class Limits:
    """Limits on the nodes of sums over y, and on the strips around the real y.

    Bounds stay valid.
    """

    shared_peak: float = 100.0  # largest peak of the terms in y for which tilts share nodes
    block_terms: int = 1 << 19  # most terms of sums that are computed together
    half_strip: float = 0.75  # half height of the strip in y times the distance, for the decay
    widest_strip: float = 4.0  # largest half height of the strip
    shifts: tuple[float, ...] = (0.5, 1.0)  # shifts of y, relative to the best shift near 0
    enough_reach: float = 3.0  # reach, over a normal distribution's, that needs no other bound
    density_panels: int = 1 << 16  # most places y between which the density is bounded
    decay_heights: int = 12  # heights at which the decay is computed
    decay_nodes: int = 4096  # nodes per height
    decay_efolds: float = 32.0  # largest e-folds of the decay's error below 1
    share_efolds: float = 10.0  # e-folds of the decay's error below the decay that is enough


LIMITS = Limits()

# The integrand falls like a normal density beyond its peaks: the omitted part is e^-50.
PAD_DEVIATIONS = 10.0
ERROR_EFOLDS = 44.0  # the trapezoid errs by at most e^-44 of M(Re w)
MOST_POWER = 1 << 12  # largest -w for which sums share nodes if peaks are near 0
MOST_EQUAL = 1e-13  # variance, relative to the second moment, that is only rounding
STRIP_HEIGHTS = np.geomspace(0.05, 12.0, 40)


class LikelihoodRatioLoss(Loss):
    """Represent the loss of a mixture of normals against N(0, 1), or the reverse."""

    removed: bool  # True for (mixture, normal), False for (normal, mixture)
    farthest: float  # the largest distance of the mixture's normals, above 0
    ratio_units: float  # error of log R in units, in addition to its rounding
    log_least: float  # the infimum of log R on the real line: its limit at minus infinity
    ratio_floor: float  # 1 - p_0: the error of log R is in units of this plus 3 |log R|
    limits: ClassVar[Limits] = LIMITS

    def _keep(self, farthest: float, ratio_units: float, log_least: float) -> None:
        """Store the values that every sum over y uses.

        Args:
            farthest: c, the largest distance of a normal.
            ratio_units: error of log R in rounding units, besides its rounding.
            log_least: infimum of log R.
        """
        vars(self).update(
            farthest=farthest,
            ratio_units=ratio_units,
            log_least=log_least,
            ratio_floor=-math.expm1(log_least),
        )

    @property
    def normal_ratio(self) -> NormalRatio:
        return NormalRatio(self, "one")

    @abstractmethod
    def log_ratio(self, y: Array) -> Array:
        """Return log R(y), which increases with y, to relative accuracy near 0.

        Args:
            y: real, or complex with 0 <= farthest * Im y <= pi / 2.
        """

    def log_ratio_on(self, y: Array, t: Array) -> Array:
        """Return log R(y), given an accurate t = mu y - mu^2 / 2, where mu is ``farthest``."""
        return self.log_ratio(y)

    @property
    @abstractmethod
    def mean_shift(self) -> float:
        """Estimate by how many standard deviations one step (release) moves the distribution.

        It is the mean distance of the normals, each at most 1.
        """

    @abstractmethod
    def slope(self, y: Array) -> Array:
        """Return the derivative of log R, which increases with y."""

    @abstractmethod
    def inverse(self, ratio: Array, low: float, high: float) -> Array:
        """Return the y at which log R(y) takes the values ``ratio``, clipped to [low, high]."""

    @abstractmethod
    def range(self, w: float) -> tuple[float, float]:
        """Return the ends of the region in which e^{-y^2/2} R^w is not negligible."""

    @property
    def rho(self) -> float:
        """Return c^2 / 2, c = ``farthest``: no normal is farther, and mixing is post-processing."""
        return self.farthest**2 / 2

    @property
    def mu(self) -> float:
        """Return the largest distance of a normal, because mixing is post-processing."""
        # slack: counted
        return self.farthest * (1 + 8 * UNIT)  # a quotient, perhaps of a square root: 3 units

    def power(self, tilt: float) -> float:
        """Return the w with K(tilt) = log M(w), where M(w) = E[R^w] (see the module)."""
        return tilt + 1 if self.removed else -tilt

    def spacing(self, reach: float, w: float) -> float:
        """Return a step of y that makes the trapezoid error of E[R^{w + iu}] small [C-7].

        For |u| <= ``reach``, it is at most e^-ERROR_EFOLDS of M(w), by the best line Im y = a.
        """
        c, digits = self.farthest, ERROR_EFOLDS + 1
        edge = 0.97 * math.pi / c
        if w >= 0:
            a = min(math.sqrt(2 * digits), edge)
            return math.tau * a / (digits + a * (a / 2 + reach * c))
        a = np.minimum(STRIP_HEIGHTS, edge)
        cost = a * (a / 2 + reach * c) + w * np.log(np.cos(c / 2 * a))
        return float(np.maximum.reduce(math.tau * a / (digits + cost)))

    def log_mgf(self, z: Array) -> Array:
        """Return K(z). All z are real, or share one real part and nodes of y."""
        return self.mgfs((self,), np.atleast_1d(z))[0][0]

    def mgf_rounding(self, z: Array) -> Array:
        # The trapezoid error plus rounding units for each exponent and sum.
        return self.mgfs((self,), np.atleast_1d(z))[1][0]

    @classmethod
    def ratios(cls, losses: Sequence[LikelihoodRatioLoss], y: Array) -> Array:
        """Return log R of several losses at the same real y; shape (losses, n)."""
        return np.array([loss.log_ratio(y) for loss in losses])

    @classmethod
    def mgfs(cls, losses: Sequence[LikelihoodRatioLoss], z: Array) -> tuple[Array, Array]:
        if z.dtype.kind != "c":
            k, error = _real_sums(losses, z, steering=False)
            return k, error
        if len(losses) == 1:
            law, u = losses[0]._on_line(z)
            k = law.log_mgf + log1p(wave_sum(law.ratio, law.p, u))
            return k[None], (law.error + law.spread * rounding(law.ratio, law.p, u))[None]
        if len({loss.removed for loss in losses}) > 1:
            return super().mgfs(losses, z)
        turn = 1.0 if losses[0].removed else -1.0
        u = turn * np.imag(z)
        if not evenly(turn * u):
            return super().mgfs(losses, z)
        laws = _laws(losses, float(z[0].real), _reach(u))
        sums = wave_sums(turn * laws.ratio, laws.p, turn * u)
        error = rounding(laws.ratio, laws.p, u)
        k = laws.log_mgf[:, None] + log1p(sums)
        return k, laws.error[:, None] + laws.spread[:, None] * error

    @classmethod
    def sum_of_moments(
        cls, losses: Sequence[LikelihoodRatioLoss], counts: Array, tilts: Array
    ) -> Array:
        k, mean, variance = _real_sums(losses, tilts, steering=True)
        return np.array([counts @ k, counts @ mean, counts @ variance])

    def _on_line(self, z: Array) -> tuple[_RatioDistribution, Array]:
        """Return the distribution of y at the tilt Re z, and the heights u = +-Im z of R^{iu}."""
        u = imaginary_part(z) if self.removed else -imaginary_part(z)
        return _law(self, float(z[0].real), _reach(u)), u

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        k, mean, variance = _real_sums((self,), tilts, steering=True)
        return k[0], mean[0], variance[0]

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        """Bound log |phi| as `Loss.decay` says, by moments, by pieces, and by shifts of y [C-4].

        With Im y > 0, |R^{iu}| falls with u.
        """
        law = _law(self, tilt, 0.0)
        # The mean is rounded: a variance below the square of its rounding counts as 0.
        # slack: open
        variance = max(law.variance * (1 - 1e-6) - (4 * UNIT * abs(law.mean)) ** 2, 0.0)
        near = by_moments(variance, law.fourth * (1 + 1e-6), edges)
        wanted = (near > enough).nonzero()[0]
        if not len(wanted):
            return near
        # Near 0 the best shift of y is u times the mean slope, which bounds |phi| by this height.
        pull = float(law.p @ self.slope(law.y))
        k = int(edges[wanted].searchsorted(math.sqrt(-2 * enough) / max(pull, 1e-300)))
        beside = self._decay_beyond(law, edges, wanted[max(k - 1, 0) : k + 2], pull, enough)
        if not beside[-1] <= enough:
            used = wanted[:: -(-len(wanted) // self.limits.decay_heights)]
            beside = self._decay_beyond(law, edges, used, pull, enough)
        near = np.minimum(near, beside)
        over = edges[near > enough]
        normal = math.sqrt(-2 * enough / variance) if variance > 0 else 0.0
        if not len(over) or float(over[-1]) < self.limits.enough_reach * normal < math.inf:
            return near
        # If few steps are large, one shift of y does not suit both small and large steps.
        return np.minimum(near, by_pieces(*law.pieces, edges, near > enough))

    def _decay_beyond(
        self, law: _RatioDistribution, edges: Array, used: Array, pull: float, enough: float
    ) -> Array:
        """Return bounds on log |phi| at all edges, from shifts y + i a.

        There |R^{iu}| is e^{-u arg R}, with arg R >= 0. A bound also holds for larger u.

        Args:
            law: the tilted distribution of y.
            used: indices of the edges at which to compute; before the first, nothing is claimed.
            pull: u times this is the best shift a near u = 0.
            enough: log |phi| that suffices.
        """
        c, w, heights = self.farthest, law.w, edges[used]
        b = min(self.limits.half_strip / c, self.limits.widest_strip)
        a = np.minimum(np.multiply.outer(self.limits.shifts, heights * pull), b)[..., None]
        log_size = math.log(-enough) if enough < 0 else -math.inf
        digits = min(self.limits.share_efolds + max(-enough, -log_size), self.limits.decay_efolds)
        cost = digits + b * b + min(w, 0.0) * math.log(math.cos(c * b))
        low, high, h = float(law.y[0]), float(law.y[-1]), math.tau * b / cost
        if high - low > self.limits.decay_nodes * h:
            return np.zeros(len(edges))
        y, h = _grid(low, high, h)
        charge(CALL + 200 * a.size * len(y))
        ratio = self.log_ratio((y + 1j * a).ravel()).reshape(*a.shape[:2], len(y))
        fixed = 0.5 * (a * a - y * y) + (math.log(h / math.sqrt(math.tau)) - law.log_mgf)
        moved = w * real_part(ratio)
        g = fixed + moved - heights[:, None] * imaginary_part(ratio)
        size = 64 + float(np.maximum.reduce(np.abs(fixed) + 2 * np.abs(moved), axis=None))
        bound = np.minimum.reduce(np.add.reduce(np.exp(g), axis=2))
        bound = bound * (1 + 8 * UNIT * (size + len(y)) + 2 * law.error)  # slack: counted
        # Aliases, and the part beyond the nodes.
        beyond = 0.5 * b * b + min(w, 0.0) * math.log(math.cos(0.5 * c * b)) - ERROR_EFOLDS
        bound = bound + 8 * math.exp(-digits) + math.exp(min(beyond, 0.0))
        # A bound at a height holds beyond it.
        last = used.searchsorted(np.arange(len(edges)), side="right") - 1
        return np.where(last < 0, 0.0, np.log(np.minimum(bound, 1.0))[last])

    def dots(self, tilt: float, step: float) -> Discretization:
        """Return quadrature nodes in y.

        Their panels end where the loss is a multiple of ``step``.
        """
        w = self.power(tilt)
        low, high = self.range(w)
        ends: list[float] = self.log_ratio(np.array([low, high])).tolist()
        cells((ends[1] - ends[0]) / step)
        places = step * np.arange(math.floor(ends[0] / step) + 1, math.ceil(ends[1] / step))
        # The exponent w log R - y^2 / 2 moves by at most one on a panel.
        even = np.linspace(low, high, max(256, math.ceil(20 * (high - low))) + 1)
        parts = np.ceil(np.diff(even) * _steepest(even, w * self.slope(even))).astype(int) + 1
        nodes = (int(parts.sum()) + len(places)) * len(NODES)
        cells(nodes)
        charge(CALL + 150 * nodes)
        within = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
        even = np.repeat(even[:-1], parts) + np.repeat(np.diff(even) / parts, parts) * within
        edges = np.unique(np.concatenate([even, [high], self.inverse(places, low, high)]))
        width = np.diff(edges)
        y = (edges[:-1, None] + width[:, None] * NODES).ravel()
        share = (width[:, None] * NODE_WEIGHTS).ravel()
        ratio = self.log_ratio(y)
        scale = _law(self, tilt, 0.0).log_mgf
        weight = np.exp(w * ratio - y * y / 2 - scale) * share / math.sqrt(math.tau)
        loss = ratio if self.removed else -ratio
        order = np.argsort(loss, kind="stable")
        # slack: nodes_of_a_sampled_step
        relative = 8 * UNIT * (abs(w) * float(np.max(np.abs(ratio))) + 60) + 1e-13
        return Discretization(
            loss[order], weight[order], tilt, scale, math.exp(5 - PAD_DEVIATIONS**2 / 2), relative
        )


@dataclass(frozen=True, eq=False)
class _RatioDistribution:
    """Hold the distribution of y under a tilt: masses ``p`` and ``ratio`` = log R at nodes y.

    Sums of R^{iu} over the nodes err only by the trapezoid error, for |u| up to the reach for which
    the nodes were chosen.
    """

    loss: LikelihoodRatioLoss
    w: float
    y: Array
    ratio: Array
    p: Array
    log_mgf: float
    error: float
    spread: float

    @cached_property
    def mean(self) -> float:
        """Return the mean of log R."""
        return float(self.p @ self.ratio)

    @property
    def _square_away(self) -> Array:
        return (self.ratio - self.mean) ** 2

    @cached_property
    def variance(self) -> float:
        """Return the variance of the loss."""
        return float(self.p @ self._square_away)

    @cached_property
    def fourth(self) -> float:
        """Return E(L - L')^4, L' an independent copy of L."""
        return 2 * float(self.p @ self._square_away**2) + 6 * self.variance**2

    @cached_property
    def pieces(self) -> tuple[Array, Array]:
        """Return values of log R, and a lower bound on the mass spread evenly between each two.

        They are arguments of `by_pieces`.
        """
        loss, w = self.loss, self.w
        low, high = float(self.y[0]), float(self.y[-1])
        count = math.ceil((high - low) / min(0.08, 0.25 / loss.farthest)) + 1
        y = np.linspace(low, high, min(count, loss.limits.density_panels))
        ratio, slope = loss.log_ratio(y), loss.slope(y)
        g = w * ratio - y * y / 2 - self.log_mgf - 0.5 * math.log(math.tau)
        steep = _steepest(y, w * slope)
        least = 0.5 * (g[1:] + g[:-1] - (y[1] - y[0]) * steep)
        # Each place errs by 2 relative units and by the error of log R.
        size = np.abs(ratio[1:])
        # slack: open
        width = np.diff(ratio) - UNIT * (4 * size + 2 * loss.ratio_units * (1 + size))
        mass = np.exp(np.maximum(least, -700.0)) * (1 - 1e-9) * np.maximum(width, 0.0)
        return np.maximum.accumulate(ratio), mass / np.maximum(slope[1:] * (1 + 1e-12), 1e-300)


def _pull(losses: Sequence[LikelihoodRatioLoss]) -> float:
    """Return an upper bound on the slopes of log R at y <= 0, over all ``losses``.

    Each e^{mu y - mu^2 / 2} is at most 1 there.
    """
    return max([loss.farthest * loss.ratio_floor for loss in losses])


def _steepest(y: Array, pull: Array) -> Array:
    """Return the largest |pull - y| between adjacent entries of y. Both are monotone in y."""
    ends = slice(None, -1), slice(1, None)
    return np.maximum.reduce([np.abs(pull[i] - y[j]) for i in ends for j in ends])


def _reach(u: Array) -> float:
    """Return a power of two at or above all |u|, so that requests of similar reach share nodes."""
    reach = float(np.maximum.reduce(np.abs(u)))
    return 2.0 ** math.ceil(math.log2(reach)) if reach > 1e-300 else 0.0


@array_cache
def _law(loss: LikelihoodRatioLoss, tilt: float, reach: float) -> _RatioDistribution:
    w = loss.power(tilt)
    y, h = _grid(*loss.range(w), loss.spacing(reach, w))
    ratio = loss.ratios((loss,), y)
    p, k, error, units = _tilt_masses(ratio, np.array([w]), y, h, loss.ratio_units)
    spread = max(float(units[0, 0]) / len(y), 1.0)
    return counted(
        _RatioDistribution(
            loss, w, y, ratio[0], p[0, 0], float(k[0, 0]), float(error[0, 0]), spread
        )
    )


def _grid(low: float, high: float, h: float) -> tuple[Array, float]:
    """Return equally spaced nodes that cover [low, high], and their distance ``h``."""
    charge(0.0, (high - low) / h)
    return low + h * np.arange(math.ceil((high - low) / h) + 1), h


def _tilt_masses(
    ratio: Array, w: Array, y: Array, h: float, ratio_units: float, *, steering: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Return tilted masses of y for several losses and powers w, log M, its error, and its units.

    If ``steering`` is True, the error and the units are not computed: they are NaN.

    Args:
        ratio: log R at the nodes, shape (losses, n).
        w: powers, shape (m,).
        y: the nodes, shape (n,), ``h`` apart.
        ratio_units: error of log R in rounding units, in addition to its rounding.

    Returns:
        Arrays of shape (losses, m, n), and (losses, m) three times.
    """
    log_weight = y * y * -0.5 + math.log(h / math.sqrt(math.tau))
    move = w[:, None] * ratio[:, None, :]
    charge(CALL + 40 * move.size)
    g = move + log_weight
    tops = np.maximum.reduce(g, axis=2, keepdims=True)
    g -= tops
    p = np.exp(g, out=g)
    totals = np.add.reduce(p, axis=2, keepdims=True)
    top, total = tops[:, :, 0], totals[:, :, 0]
    log_m, size = top + np.log(total), np.abs(move)
    small, gain, rest = top < 5, None, top
    if (
        np.logical_or.reduce(small, axis=None)
        and y[0] <= -PAD_DEVIATIONS
        and y[-1] >= PAD_DEVIATIONS
    ):
        # M - 1 to relative accuracy: all weights of the normal distribution are here, with sum 1.
        plain = np.exp(log_weight)
        gain = p * np.exp(np.minimum(tops, 5.0)) - plain
        np.multiply(plain, np.expm1(np.minimum(move, 1.0)), out=gain, where=size < 1)
        rest = np.add.reduce(gain, axis=2)
        small &= rest > -0.5
        np.log1p(rest, out=log_m, where=small)
    p /= totals
    if steering:
        unknown = log_m * math.nan
        return p, log_m, unknown, unknown
    # Each exponent is rounded in proportion to its parts, each sum to its length.
    exponents = size - log_weight + ratio_units * np.abs(w)[:, None]
    spread = np.add.reduce(p * exponents, axis=2) + np.abs(top) + (len(y) + 32)
    units = spread + 16
    if gain is not None:
        lost = np.add.reduce(np.abs(gain) * (exponents + (len(y) + 32)), axis=2)
        # The errors are relative to M, so a small M has larger ones.
        np.divide(lost, np.minimum(1 + rest, 1.0), out=units, where=small)
    # slack: k_of_a_sampled_step
    return p, log_m, units * UNIT + 4 * math.exp(-ERROR_EFOLDS), spread


def _real_sums(losses: Sequence[LikelihoodRatioLoss], tilts: Array, *, steering: bool) -> Array:
    """Return K of several losses at real tilts with a bound on its error, shape (2, losses, m).

    For ``steering``, return uncertified K, mean, and variance, shape (3, losses, m). Tilts whose
    integrands have peaks near y = 0 share nodes of y, and so do losses of one order.
    """
    several = len(losses) > 1
    first = max(losses, key=attrgetter("farthest")) if several else losses[0]
    w = tilts + 1 if first.removed else -tilts
    pull = _pull(losses) if several else first.farthest * first.ratio_floor
    near = np.maximum(w * first.farthest, w * -pull) <= first.limits.shared_peak
    near &= w > -MOST_POWER
    alone = not several or len({loss.removed for loss in losses}) > 1
    out = np.empty((3 if steering else 2, len(losses), len(tilts)))
    far = np.arange(len(tilts)) if alone and several else (~near).nonzero()[0]
    # Peaks this far apart have no nodes in common.
    apart = np.abs(w[far]) * first.farthest > (-1 if alone else 1000)
    for j in far[apart].tolist():
        out[:, :, j] = _sums_alone(losses, float(tilts[j]), steering=steering)
    groups = [*far[~apart, None]]  # of one tilt each
    if len(far) < len(tilts):
        groups.append(near.nonzero()[0])
    for group in groups:
        some = w[group]
        least, most = float(np.minimum.reduce(some)), float(np.maximum.reduce(some))
        ends = (
            min(least * pull, 0.0) - PAD_DEVIATIONS,
            max(most * first.farthest, 0.0) + PAD_DEVIATIONS,
        )
        y, h = _grid(*ends, first.spacing(0.0, least))
        rows = max(1, first.limits.block_terms // (len(some) * len(y)))
        units = max(map(attrgetter("ratio_units"), losses))
        sign = 1 if first.removed else -1
        for k in range(0, len(losses), rows):
            ratio = first.ratios(losses[k : k + rows], y)
            p, log_m, error, _ = _tilt_masses(ratio, some, y, h, units, steering=steering)
            if not steering:
                out[:, k : k + rows, group] = np.array([log_m, error])
                continue
            powers = p @ np.array([ratio, ratio * ratio]).transpose(1, 2, 0)
            mean = powers[:, :, 0]
            variance = powers[:, :, 1] - mean * mean
            variance[variance < MOST_EQUAL * powers[:, :, 1]] = 1e-300  # only rounding
            out[:, k : k + rows, group] = np.array([log_m, sign * mean, variance])
    return out


def _sums_alone(losses: Sequence[LikelihoodRatioLoss], tilt: float, *, steering: bool) -> Array:
    """Return `_real_sums` of a tilt, of which each loss has its own nodes."""
    rows: list[tuple[float, ...]] = []
    for loss in losses:
        law = _law(loss, tilt, 0.0)
        mean = law.mean if loss.removed else -law.mean
        rows.append((law.log_mgf, mean, law.variance) if steering else (law.log_mgf, law.error))
    return np.array(rows).T


@dataclass(frozen=True, eq=False)
class _Laws:
    """Hold distributions of y for several losses of one order, under one tilt, on shared nodes."""

    ratio: Array
    p: Array
    log_mgf: Array
    error: Array
    spread: Array


def _laws(losses: Sequence[LikelihoodRatioLoss], tilt: float, reach: float) -> _Laws:
    first = max(losses, key=lambda loss: loss.farthest)
    w = first.power(tilt)
    low, high = (
        min(w * _pull(losses), 0.0) - PAD_DEVIATIONS,
        max(w * first.farthest, 0.0) + PAD_DEVIATIONS,
    )
    if high - low > 4 * PAD_DEVIATIONS:
        ends = [loss.range(w) for loss in losses]
        low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    y, h = _grid(low, high, first.spacing(reach, w))
    ratio = first.ratios(losses, y)
    units = max(loss.ratio_units for loss in losses)
    p, k, error, spread = (v[:, 0] for v in _tilt_masses(ratio, np.array([w]), y, h, units))
    return _Laws(ratio, p, k, error, np.maximum(spread / len(y), 1.0))
