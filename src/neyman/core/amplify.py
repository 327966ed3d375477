"""Losses from losses: what Poisson subsampling makes of a Gaussian pair.

Each record enters with probability q. Against a neighbor without the record the pair is

    remove: P = (1 - q) N(0, 1) + q N(mu, 1),  Q = N(0, 1),    L = log R(y)
    add:    P = N(0, 1),  Q = (1 - q) N(0, 1) + q N(mu, 1),    L = -log R(y)

with R(y) = 1 + q (e^{mu y - mu^2/2} - 1) (Zhu, Dong and Wang 2022, theorem 11). Both follow from

    M(w) = E_{N(0,1)}[R^w],    K_remove(z) = log M(z + 1),    K_add(z) = log M(-z),

sums over nodes of y (`nodes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.core.nodes import PAD, RatioLoss
from neyman.numerics.atoms import UNIT

__all__ = ["SubsampledGaussianLoss", "check_distance"]

Array = NDArray[Any]
MOST_DISTANCE = 2000.0  # of the two normals, in standard deviations


def check_distance(distance: float) -> None:
    """Refuse noise that hides nothing: sums over it would have no end."""
    if distance > MOST_DISTANCE:
        raise ValueError(
            f"sigma is {distance:.3g} times smaller than the sensitivity: so little noise hides "
            "nothing under sampling; describe it as NonPrivate(rate=...), or add noise"
        )


@dataclass(frozen=True)
class SubsampledGaussianLoss(RatioLoss):
    """The loss of a Gaussian pair that is only seen with a probability.

    Args:
        distance: mu, the distance of the two normals in standard deviations, above 0.
        rate: q, in (0, 1).
        removed: True for (mixture, normal), False for (normal, mixture).
    """

    distance: float
    rate: float
    removed: bool

    def __post_init__(self) -> None:
        check_distance(self.distance)

    def places(self, tilt: float, height: float) -> float:
        """A sum over more nodes the farther up."""
        w = self.power(tilt)
        low, high = self.range(w)
        return (high - low) / self.spacing(height, w)

    @property
    def supremum(self) -> float:
        """Unbounded for the mixture; -log(1 - q), rounded up, for the normal."""
        return math.inf if self.removed else -math.log1p(-self.rate) * (1 + 8 * UNIT)

    @property
    def farthest(self) -> float:
        """Mu."""
        return self.distance

    @property
    def ratio_units(self) -> float:
        """None: log R is as good as its own rounding."""
        return 0.0

    def reverse(self) -> SubsampledGaussianLoss:
        """The other direction."""
        return SubsampledGaussianLoss(self.distance, self.rate, not self.removed)

    def log_ratio(self, y: Array) -> Array:
        """log R(y), to relative accuracy near 0."""
        t = self.distance * y - self.distance**2 / 2
        if t.max() < 30:
            return np.log1p(self.rate * np.expm1(t))
        near = np.log1p(self.rate * np.expm1(np.minimum(t, 30.0)))
        rest = np.exp(-np.maximum(t, 30.0)) * (1 - self.rate) / self.rate
        return np.where(t < 30, near, t + math.log(self.rate) + np.log1p(rest))

    def slope(self, y: Array) -> Array:
        """The derivative of log R, which rises with y."""
        return self.distance * -np.expm1(math.log1p(-self.rate) - self.log_ratio(y))

    def range(self, w: float) -> tuple[float, float]:
        """Where e^{-y^2/2} R^w is: its log slope is s w mu - y with s in [0, 1]."""
        peak = w * self.distance
        if w < 0:
            # One peak, where -y = |w| mu s, and log-concave about it; the normal law's beside it
            # as long as it is not far.
            peak = self._lower_peak(w)
            return min(peak, 0.0) - PAD, PAD if peak > -PAD else peak + PAD
        low, high = -PAD, peak + PAD
        if high - low > 6 * PAD:  # one of the two humps may be all that counts
            first, last = self._hump(w, 0.0), self._hump(w, peak)
            if first is not None and last is not None:
                g = [self._exponent(w, y) for y in (first, last)]
                floor = max(g) - PAD**2 / 2
                if last - first < 1 and self._exponent(w, low) < floor:  # they are one
                    low = self._falls(w, last, low, floor)
                elif g[0] < floor:
                    low = self._falls(w, last, first, floor)
                elif g[1] < floor:
                    high = self._falls(w, first, last, floor)
        return float(low), float(high)

    def _exponent(self, w: float, y: float) -> float:
        return w * float(self.log_ratio(np.array([y]))[0]) - y * y / 2

    def _hump(self, w: float, y: float) -> float | None:
        """The fixed point of y = w mu s(y) that iterating leads to; none where that is slow."""
        for _ in range(200):
            t = min(self.distance * y - self.distance**2 / 2, 700.0)
            part = self.rate * math.exp(t)
            before, y = y, w * self.distance * part / (1 - self.rate + part)
            if abs(y - before) <= 1e-6 * (1 + y):
                return y
        return None

    def _falls(self, w: float, inside: float, outside: float, floor: float) -> float:
        """Where w log R - y^2 / 2 is below the floor, next to where it is not."""
        while abs(outside - inside) > max(1.0, 1e-12 * abs(inside)):
            y = 0.5 * (inside + outside)
            inside, outside = (y, outside) if self._exponent(w, y) > floor else (inside, y)
        return outside

    def _lower_peak(self, w: float) -> float:
        """The root of y = w mu s(y), s = 1 - (1 - q) / R the slope of log R over mu, for w < 0."""
        mu, q = self.distance, self.rate
        low, high = w * mu, 0.0
        while high - low > 0.01:
            y = 0.5 * (low + high)
            t = min(mu * y - mu * mu / 2, 700.0)
            part = q * math.exp(t)
            low, high = (y, high) if y < w * mu * part / (1 - q + part) else (low, y)
        return low

    def inverse(self, ratio: Array, low: float, high: float) -> Array:
        """The y at which log R takes these values, all above log(1 - q)."""
        ratio = ratio[ratio > math.log1p(-self.rate)]
        near = np.expm1(np.minimum(ratio, 30.0)) + self.rate
        far = np.maximum(ratio, 30.0) + np.log1p(
            -(1 - self.rate) * np.exp(-np.maximum(ratio, 30.0))
        )
        good = (near > 0) | (ratio > 30)
        t = np.where(ratio < 30, np.log(np.where(near > 0, near, 1.0)), far)[good]
        t = t - math.log(self.rate)
        return np.clip(t / self.distance + self.distance / 2, low, high)
