"""Losses from losses: what Poisson subsampling makes of a Gaussian pair.

Each record enters with probability q. Against a neighbor without the record the pair is

    remove: P = (1 - q) N(0, 1) + q N(mu, 1),  Q = N(0, 1),    L = log R(y)
    add:    P = N(0, 1),  Q = (1 - q) N(0, 1) + q N(mu, 1),    L = -log R(y)

with R(y) = 1 + q (e^{mu y - mu^2/2} - 1) (Zhu, Dong and Wang 2022, theorem 11). Both follow from

    M(w) = E_{N(0,1)}[R^w],    K_remove(z) = log M(z + 1),    K_add(z) = log M(-z),

a trapezoid sum in y, whose error falls geometrically: R has no zero in |Im y| < pi / mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.core.loss import NODE_WEIGHTS, NODES, Loss
from neyman.numerics.atoms import UNIT, Atoms
from neyman.numerics.decay import Decay
from neyman.numerics.dots import Dots

__all__ = ["SubsampledGaussianLoss"]

Array = NDArray[Any]
DROP = 45.0  # y beyond which the integrand is below e^-45 of its peak is left out
ACCURACY = 44.0  # the trapezoid errs by at most e^-44 of M(Re w)


@dataclass(frozen=True)
class SubsampledGaussianLoss(Loss):
    """The loss of a Gaussian pair that is only seen with a probability.

    Args:
        distance: mu, the distance of the two normals in standard deviations, above 0.
        rate: q, in (0, 1).
        removed: True for (mixture, normal), False for (normal, mixture).
    """

    distance: float
    rate: float
    removed: bool

    @property
    def infinite(self) -> float:
        """None."""
        return 0.0

    @property
    def supremum(self) -> float:
        """Unbounded for the mixture; -log(1 - q) for the normal."""
        return math.inf if self.removed else -math.log1p(-self.rate)

    @property
    def step(self) -> None:
        """No lattice."""
        return None

    @property
    def rho(self) -> float:
        """mu^2 / 2, as without subsampling: mixing is post-processing of which pair is seen."""
        return self.distance**2 / 2

    @property
    def mu(self) -> float:
        """Mu, as without subsampling."""
        return self.distance * (1 + 8 * UNIT)

    def reverse(self) -> SubsampledGaussianLoss:
        """The other direction."""
        return SubsampledGaussianLoss(self.distance, self.rate, not self.removed)

    def _log_ratio(self, y: Array) -> Array:
        """log R(y), to relative accuracy near 0."""
        t = self.distance * y - self.distance**2 / 2
        near = np.log1p(self.rate * np.expm1(np.minimum(t, 30.0)))
        rest = np.exp(-np.maximum(t, 30.0)) * (1 - self.rate) / self.rate
        return np.where(t < 30, near, t + math.log(self.rate) + np.log1p(rest))

    def _power(self, z: Array) -> Array:
        return z + 1 if self.removed else -z

    def _range(self, w: float) -> tuple[float, float]:
        """Where e^{-y^2/2} R^w is above e^-DROP of its peak (log slope s w mu - y, s <= 1)."""
        low, high = min(w * self.distance, 0.0) - 12.0, max(w * self.distance, 0.0) + 12.0
        y = np.linspace(low, high, 400)
        g = w * self._log_ratio(y) - y * y / 2
        keep = np.nonzero(g > g.max() - DROP)[0]
        pad = y[1] - y[0]
        return float(y[keep[0]] - pad), float(y[keep[-1]] + pad)

    def _step(self, reach: float, w: float) -> float:
        """A step h of y with strip bound e^-ACCURACY for |Im w| <= reach."""
        edge = math.pi / self.distance
        a = np.minimum(np.geomspace(0.05, 12.0, 60), 0.97 * edge)
        cost = a * a / 2 + reach * self.distance * a
        if w < 0:
            cost = cost + w * np.log(np.cos(np.minimum(self.distance * a, 3.05) / 2))
        return float(np.max(math.tau * a / (ACCURACY + 1 + cost)))

    def log_mgf(self, z: NDArray) -> NDArray:
        """K(z) = log M, by trapezoid sums; all z on one vertical line share the same nodes."""
        z = np.atleast_1d(z)
        w = self._power(z)
        result = np.empty(w.shape, dtype=np.result_type(w.dtype, float))
        for real in np.unique(np.real(w)):
            line = np.nonzero(np.real(w) == real)[0]
            order = line[np.argsort(np.abs(np.imag(w[line])))]
            low, high = self._range(float(real))
            start = 0
            while start < len(order):
                # A block of nodes up to twice as far up the line shares one step of y.
                first = abs(float(np.imag(w[order[start]])))
                reach = max(2 * first, 8.0)
                stop = start
                while stop < len(order) and abs(float(np.imag(w[order[stop]]))) <= reach:
                    stop += 1
                block = order[start:stop]
                result[block] = self._line(w[block], float(real), reach, low, high)
                start = stop
        return result

    def _line(self, w: Array, real: float, reach: float, low: float, high: float) -> Array:
        h = self._step(reach, real)
        y = h * np.arange(math.floor(low / h), math.ceil(high / h) + 1)
        ratio = self._log_ratio(y)
        log_weight = -y * y / 2
        top = float(np.max(real * ratio + log_weight))
        if np.max(np.abs(real * ratio)) < 1 and real * ratio[-1] < 1:
            # M - 1 to relative accuracy: the weights sum to one.
            weight = np.exp(log_weight) * (h / math.sqrt(math.tau))
            return _log1p(np.expm1(np.multiply.outer(w, ratio)) @ weight)
        exponent = np.multiply.outer(w, ratio) + (log_weight - top)
        return top + np.log(np.exp(exponent).sum(axis=-1) * (h / math.sqrt(math.tau)))

    def mgf_rounding(self, z: NDArray) -> NDArray:
        """Strip bound, what was left out, and a few units for each exponent."""
        z = np.atleast_1d(z)
        found = np.empty(z.shape)
        for tilt in np.unique(np.real(z)):
            line = np.real(z) == tilt
            law = _law(self, float(tilt))
            found[line] = law.absolute * np.abs(self._power(z[line])) * 6 * UNIT + law.constant
        return found

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """K, mean and variance of the tilted loss."""
        law = _law(self, tilt)
        return law.log_mgf, law.mean, law.variance

    def decay(self, tilt: float) -> Decay:
        """From the moments and the density of the tilted loss."""
        return _law(self, tilt).decay

    def atoms(self, tilt: float) -> Atoms:
        """A subsampled Gaussian loss has no lattice."""
        raise TypeError("a subsampled Gaussian loss has no lattice; use dots")

    def dots(self, tilt: float, step: float) -> Dots:
        """Quadrature nodes of y, in panels that the multiples of ``step`` of the loss bound."""
        w = float(self._power(np.array([tilt]))[0])
        low, high = self._range(w)
        ends = self._log_ratio(np.array([low, high]))
        places = step * np.arange(math.floor(ends[0] / step) + 1, math.ceil(ends[1] / step))
        inner = self._inverse(places)
        edges = np.unique(np.concatenate([np.linspace(low, high, 257), inner]))
        width = np.diff(edges)
        y = (edges[:-1, None] + width[:, None] * NODES).ravel()
        share = (width[:, None] * NODE_WEIGHTS).ravel()
        ratio = self._log_ratio(y)
        law = _law(self, tilt)
        weight = np.exp(w * ratio - y * y / 2 - law.log_mgf) * share / math.sqrt(math.tau)
        loss = ratio if self.removed else -ratio
        order = np.argsort(loss)
        relative = 8 * UNIT * (abs(w) * float(np.max(np.abs(ratio))) + 60) + 1e-13
        return Dots(loss[order], weight[order], tilt, law.log_mgf, math.exp(-DROP + 5), relative)

    def _inverse(self, ratio: Array) -> Array:
        """The y at which log R takes these values, all above log(1 - q)."""
        excess = np.expm1(ratio) + self.rate
        good = excess > 0
        t = np.log(excess[good] / self.rate)
        return t / self.distance + self.distance / 2


@dataclass(frozen=True, eq=False)
class _Law:
    """The law of y under a tilt, on nodes of step h, and what follows from it."""

    loss: SubsampledGaussianLoss
    w: float
    h: float
    y: Array
    ratio: Array
    p: Array
    log_mgf: float
    top: float

    @cached_property
    def mean(self) -> float:
        """Of the loss."""
        mean = float(self.p @ self.ratio)
        return mean if self.loss.removed else -mean

    @cached_property
    def _away(self) -> Array:
        return self.ratio - float(self.p @ self.ratio)

    @cached_property
    def variance(self) -> float:
        """Of the loss."""
        return float(self.p @ self._away**2)

    @cached_property
    def absolute(self) -> float:
        """The mean size of the loss: what rounding of its multiples is proportional to."""
        return float(self.p @ np.abs(self.ratio))

    @cached_property
    def constant(self) -> float:
        """Strip bound, and rounding that does not fall with the loss."""
        found = 4 * math.exp(-ACCURACY)
        if np.max(np.abs(self.w * self.ratio)) >= 1:
            found += (16 + abs(self.top)) * UNIT
        return found

    @cached_property
    def decay(self) -> Decay:
        """From the moments, and from uniform parts of the density."""
        mu, y, ratio = self.loss.distance, self.y, self.ratio
        fourth = 2 * float(self.p @ self._away**4) + 6 * self.variance**2
        slope = mu * -np.expm1(math.log1p(-self.loss.rate) - ratio)  # of log R in y
        density = np.divide(self.p / self.h, slope, out=np.zeros_like(y), where=slope > 1e-200)
        # Between two nodes log density moves by at most h / 2 times its slope.
        slack = np.exp(-self.h / 2 * (np.abs(y) + self.h + (abs(self.w) + 1) * mu)) * 0.999
        uniform = tuple(_uniform(density * slack, ratio, cells) for cells in (4, 8, 16, 32, 64))
        return Decay(self.variance * (1 - 1e-6), fourth * (1 + 1e-6), uniform)


@lru_cache(maxsize=4096)
def _law(loss: SubsampledGaussianLoss, tilt: float) -> _Law:
    w = float(loss._power(np.array([tilt]))[0])
    low, high = loss._range(w)
    h = loss._step(1.0, w) / 2
    y = h * np.arange(math.floor(low / h), math.ceil(high / h) + 1)
    ratio = loss._log_ratio(y)
    g = w * ratio - y * y / 2
    top = float(g.max())
    weight = np.exp(g - top)
    total = float(weight.sum())
    log_mgf = top + math.log(total * h / math.sqrt(math.tau))
    return _Law(loss, w, h, y, ratio, weight / total, log_mgf, top)


def _uniform(density: Array, place: Array, cells: int) -> Array:
    """Masses and lengths of the uniform parts of a density, in cells of equal mass or so."""
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(place))])
    edges = np.unique(np.searchsorted(mass, np.linspace(0, mass[-1], cells + 1)))
    edges = np.minimum(edges, len(place) - 1)
    parts = [
        (float(density[a : b + 1].min() * (place[b] - place[a])), float(place[b] - place[a]))
        for a, b in pairwise(edges)
        if b > a
    ]
    return np.array(parts).T


def _log1p(m: Array) -> Array:
    """log(1 + m), complex too, to relative accuracy near 0."""
    if not np.iscomplexobj(m):
        return np.log1p(m)
    a, b = np.real(m), np.imag(m)
    return 0.5 * np.log1p(2 * a + a * a + b * b) + 1j * np.arctan2(b, 1 + a)
