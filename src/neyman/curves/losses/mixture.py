"""Define losses of mixtures: of normal distributions, and of pairs whose index is observed.

For a mixture of normals against one normal, with distances c_i >= 0 and weights p_i,

    remove: P = sum p_i N(c_i, 1),  Q = N(0, 1),    L = log R(y)
    add:    P = N(0, 1),  Q = sum p_i N(c_i, 1),    L = -log R(y)

with R(y) = sum p_i e^{c_i y - c_i^2 / 2}. A Poisson-subsampled Gaussian (`subsampled`) is the
mixture of two. As there, both follow from M(w) = E_{N(0,1)}[R^w]: K_remove(z) = log M(z + 1) and
K_add(z) = log M(-z). Let c be the largest distance. For Im y = a, the terms of R have arguments in
[0, c a]. Therefore, R has no zero in |Im y| < pi / c, and `likelihood_ratio` applies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import logsumexp

from neyman.curves.losses.likelihood_ratio import PAD_DEVIATIONS, LikelihoodRatioLoss
from neyman.curves.losses.loss import Loss, Part
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p
from neyman.numerics.discretization import Discretization
from neyman.numerics.operations import cells, charge

SUM_LOG_TERM = 600.0  # largest log of a term for which R - 1 is a sum of differences
NEGLIGIBLE_WEIGHT = 1e-25  # omitted weight, which counts as a tail


@dataclass(frozen=True)
class GaussianMixtureLoss(LikelihoodRatioLoss):
    """Represent the loss of a mixture of normal distributions against one normal distribution.

    Args:
        distances: c_i in standard deviations, at least 0 and increasing, the largest above 0.
        weights: p_i, above 0, with sum 1.
        removed: True for (mixture, normal), False for (normal, mixture).

    Source: Choquette-Choo et al. 2024, "Privacy amplification for matrix mechanisms", section 3.
    """

    distances: tuple[float, ...]
    weights: tuple[float, ...]
    removed: bool

    def __post_init__(self) -> None:
        # The sum in R errs by units of its terms, and by one of each weight. The least log R is
        # log p_0 if c_0 is 0. Otherwise log R is unbounded below.
        least = math.log(self.weights[0]) if self.distances[0] == 0 else -math.inf
        self._keep(self.distances[-1], max(8.0, 5.0 + len(self.weights)), least)

    def places(self, tilt: float, height: float) -> float:
        return 200.0 + 10 * height + 10 * abs(tilt)

    @property
    def supremum(self) -> float:
        """Return inf if P is the mixture.

        If P is the normal, return -log p_0 if c_0 is 0, else inf.
        """
        if self.removed or self.distances[0] > 0:
            return math.inf
        return -math.log(self.weights[0]) * (1 + 4 * UNIT)  # slack: the_largest_loss_of_a_mixture

    @property
    def total_variation(self) -> float:
        """Return the mean total variation of the normals: an upper bound by convexity."""
        pairs = zip(self.distances, self.weights, strict=True)
        most = math.fsum(p * math.erf(c / math.sqrt(8)) for c, p in pairs)
        return min(most * (1 + 1e-12), 1.0)

    def reverse(self) -> GaussianMixtureLoss:
        return GaussianMixtureLoss(self.distances, self.weights, not self.removed)

    def log_ratio(self, y: Array) -> Array:
        c, p = np.array(self.distances), np.array(self.weights)
        self._count(y)
        z = np.multiply.outer(y, c) - c * c / 2
        real = np.real(z)
        top = real.max(axis=-1, keepdims=True)
        far = np.log(np.exp(z - top) @ p) + top[:, 0]
        gain = np.expm1(np.where(real < SUM_LOG_TERM, z, 0.0)) @ p
        near = (top[:, 0] < SUM_LOG_TERM) & (np.real(gain) > -0.5)
        return np.where(near, log1p(np.where(near, gain, 0.0)), far)

    def _count(self, y: Array) -> None:
        """Count the operations of all terms of R at each y, except two that every loss has."""
        terms = np.size(y) * (len(self.weights) - 2.0)
        cells(terms)
        charge(40.0 * max(terms, 0.0))

    @property
    def mean_shift(self) -> float:
        """Return the mean of min(c_i, 1)."""
        pairs = zip(self.distances, self.weights, strict=True)
        return math.fsum(w * min(c, 1.0) for c, w in pairs)

    def slope(self, y: Array) -> Array:
        """Return the derivative of log R, increasing in y: the posterior mean distance given y."""
        c = np.array(self.distances)
        self._count(y)
        t = np.multiply.outer(y, c) - c * c / 2
        p = np.exp(t - t.max(axis=-1, keepdims=True)) * np.array(self.weights)
        return (p @ c) / p.sum(axis=-1)

    def inverse(self, ratio: Array, low: float, high: float) -> Array:
        """Return the y in [low, high] with log R(y) = ``ratio``, by Newton's method."""
        grid = np.linspace(low, high, 4096)
        y = np.interp(ratio, self.log_ratio(grid), grid)
        for _ in range(4):
            move = (ratio - self.log_ratio(y)) / np.maximum(self.slope(y), 1e-300)
            y = np.clip(y + np.clip(move, -grid[1] + grid[0], grid[1] - grid[0]), low, high)
        return y

    def range(self, w: float) -> tuple[float, float]:
        # The log slope of e^{-y^2/2} R^w is s w - y, with s between the least and the largest c.
        peaks = w * self.distances[0], w * self.distances[-1]
        low, high = min(peaks) - PAD_DEVIATIONS, max(peaks) + PAD_DEVIATIONS
        # For w >= 0 the second derivative of g is at least -1, so between two points g is at most
        # h^2 / 8 above them. For w < 0 it has one peak only.
        for _ in range(8):  # over the range of a sum
            y = np.linspace(low, high, 2048)
            g = w * self.log_ratio(y) - y * y / 2
            h = y[1] - y[0]
            keep = np.nonzero(g > g.max() - PAD_DEVIATIONS**2 / 2 - 10 - h * h / 8)[0]
            before = high - low
            low = float(max(y[keep[0]] - h, low))
            high = float(min(y[keep[-1]] + h, high))
            if high - low > 0.5 * before:
                break
        return low, high


@dataclass(frozen=True)
class MixtureLoss(Loss):
    """Represent the loss of one of several pairs, chosen at random. The choice is observed.

    P = sum w_k P_k and Q = sum w_k Q_k on outcomes that include the index k. Therefore, e^K = sum
    w_k e^{K_k}.

    Args:
        parts: (w_k, loss), the w_k above 0 with sum 1, in a canonical order.
    """

    parts: tuple[tuple[float, Part], ...]

    def places(self, tilt: float, height: float) -> float:
        return 200.0 + 10 * height + 10 * abs(tilt)

    @property
    def infinite(self) -> float:
        return min(math.fsum(w * loss.infinite for w, loss in self.parts), 1.0)

    @property
    def supremum(self) -> Fraction | float:
        return max(loss.supremum for _, loss in self.parts)

    @property
    def rho(self) -> float:
        """Return the largest rho: the Renyi divergences are between those of the parts."""
        return max(loss.rho for _, loss in self.parts)

    @property
    def mu(self) -> float:
        """Return the largest mu, which suffices because the Gaussian curve G_mu is convex."""
        return max(loss.mu for _, loss in self.parts)

    @property
    def total_variation(self) -> float:
        """Return the mean total variation of the parts."""
        most = math.fsum(w * loss.total_variation for w, loss in self.parts)
        return min(most * (1 + 1e-12), 1.0)

    def reverse(self) -> MixtureLoss:
        return MixtureLoss(tuple((w, loss.reverse()) for w, loss in self.parts))

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) = log sum w_k e^{K_k(z)}, to relative accuracy near 0."""
        log_mgfs = np.array([loss.log_mgf(z) for _, loss in self.parts])
        weights = np.array([w for w, _ in self.parts])
        top = np.maximum(np.real(log_mgfs).max(axis=0), 0.0)
        total = weights @ np.exp(log_mgfs - top)
        # An underflow is below every rounding error that is counted.
        far = top + np.log(np.where(np.abs(total) > 1e-300, total, 1e-300))
        if self.infinite:
            return far
        near = log1p(weights @ np.expm1(np.where(np.abs(log_mgfs) < 0.5, log_mgfs, 0.0)))
        return np.where((np.abs(log_mgfs) < 0.5).all(axis=0), near, far)

    def _shares(self, z: Array) -> Array:
        """Return the parts' weights under the tilt Re z: w_k e^{K_k - K}, shape (parts, n)."""
        real = np.real(np.atleast_1d(z)).astype(float)
        log_share = np.array([math.log(w) + loss.log_mgf(real) for w, loss in self.parts])
        return np.exp(log_share - np.asarray(logsumexp(log_share, axis=0)))

    def mgf_rounding(self, z: Array) -> Array:
        # The mean rounding of the parts, under the tilt.
        each = np.array([np.broadcast_to(x.mgf_rounding(z), np.shape(z)) for _, x in self.parts])
        # K_k in e^{K_k} is rounded in proportion to its size.
        size = np.array([np.abs(loss.log_mgf(z)) for _, loss in self.parts])
        # slack: k_of_a_choice_between_losses/a
        return (self._shares(z) * (each + 8 * UNIT * (2 + size))).sum(axis=0) * (1 + 1e-9)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        # K, mean, and variance, by the laws of total expectation and variance.
        moments = np.array([loss.moments(tilts) for _, loss in self.parts])
        share = self._shares(tilts)
        mean = (share * moments[:, 1]).sum(axis=0)
        variance = (share * (moments[:, 2] + (moments[:, 1] - mean) ** 2)).sum(axis=0)
        return np.real(self.log_mgf(np.asarray(tilts, dtype=float))), mean, variance

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # The mean of the parts' bounds, under the tilt.
        share = self._shares(np.array([tilt]))[:, 0]
        nothing = np.zeros(len(edges))
        each = np.array(
            [x.decay(tilt, edges) if isinstance(x, Loss) else nothing for _, x in self.parts]
        )
        return np.minimum(np.log(share @ np.exp(np.maximum(each, -700.0))) + 1e-12, 0.0)

    def dots(self, tilt: float, step: float) -> Discretization:
        each: list[tuple[float, Discretization]] = []
        for share, loss in self.parts:
            if not isinstance(loss, Loss):
                raise TypeError(f"a {type(loss).__name__} is not one distribution: it has no dots")
            each.append((share, loss.dots(tilt, step)))
        # Any scale is valid. K would underflow below e^-690 if all losses are negative.
        scale = float(np.logaddexp.reduce([math.log(w) + d.log_scale for w, d in each]))
        places: list[Array] = []
        weights: list[Array] = []
        tail = relative = 0.0
        for share, dots in each:
            factor = share * math.exp(dots.log_scale - scale)
            weight = factor * dots.weight
            used = weight > NEGLIGIBLE_WEIGHT / (len(weight) * len(self.parts))
            places.append(dots.loss[used])
            weights.append(weight[used])
            tail += factor * dots.tail + NEGLIGIBLE_WEIGHT
            size = 2 + abs(dots.log_scale) + abs(scale)
            # slack: atoms_of_a_choice_between_losses/a
            relative = max(relative, dots.relative + 16 * UNIT * size)
        loss, weight = np.concatenate(places), np.concatenate(weights)
        order = np.argsort(loss, kind="stable")
        return Discretization(loss[order], weight[order], tilt, scale, tail, relative)
