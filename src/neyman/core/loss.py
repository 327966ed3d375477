"""The privacy loss of one ordered pair (P, Q): L = log dP/dQ under P.

Every leaf mechanism supplies its losses; composition adds independent losses; every question is
answered from their sum. A loss says what it is in three ways, each for an engine of its own:

- `log_mgf`, K(z) = log E_P[e^{zL}; L < inf], for Renyi orders and for the contour;
- `atoms`, its exact lattice under a tilt, where it has one;
- `dots`, the same for any loss, to be moved onto a grid.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from neyman.numerics.atoms import UNIT, Atoms
from neyman.numerics.decay import by_moments
from neyman.numerics.dots import Dots

__all__ = [
    "FiniteLoss",
    "GaussianLoss",
    "LaplaceLoss",
    "Loss",
    "discrete_laplace_loss",
    "response_loss",
]

Array = NDArray[Any]

# Gauss-Legendre nodes on (0, 1): exact to degree 15, and to 1e-16 for e^{ax} with |a| <= 1.
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
NODES, NODE_WEIGHTS = (NODES + 1) / 2, NODE_WEIGHTS / 2
WIDE_NODES, WIDE_WEIGHTS = np.polynomial.legendre.leggauss(32)
WIDE_NODES, WIDE_WEIGHTS = (WIDE_NODES + 1) / 2, WIDE_WEIGHTS / 2
LEAST_EPSILON = Fraction(1, 10**150)
MOST_EPSILON = 10**6  # of one release: beyond it nothing is hidden anyway
REACH = 26.0  # standard deviations kept of a tilted Gaussian: what lies beyond is below 1e-147


class Loss(ABC):
    """The privacy loss of an ordered pair, as a frozen value."""

    @property
    @abstractmethod
    def infinite(self) -> float:
        """P(L = inf): mass of outcomes that only P can produce, in [0, 1]."""

    @property
    @abstractmethod
    def supremum(self) -> Fraction | float:
        """Least upper bound of the finite part of the loss: exact, or inf."""

    @property
    @abstractmethod
    def step(self) -> Fraction | None:
        """Step of the lattice that holds the loss (up to an offset); None if there is none."""

    @property
    @abstractmethod
    def rho(self) -> float:
        """A proven zCDP parameter of the finite part, for both directions; inf if none is."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """A proven GDP parameter of the finite part, for both directions; inf if none is."""

    @property
    def rough_mu(self) -> float:
        """One that costs nothing to find, if a little larger."""
        return self.mu

    @property
    def rounded(self) -> bool:
        """Whether the supremum is rounded up rather than exact."""
        return isinstance(self.supremum, float) and self.supremum < math.inf

    @property
    def log_top(self) -> float:
        """log P(L = supremum), or a lower bound of it; -inf where nothing is claimed."""
        return -math.inf

    def places(self, tilt: float, height: float) -> float:
        """About how many terms K takes on a line, at this height: a few where it is a formula."""
        return 10.0

    @abstractmethod
    def reverse(self) -> Loss:
        """The loss of (Q, P)."""

    @abstractmethod
    def log_mgf(self, z: NDArray) -> NDArray:
        """K(z) = log E_P[e^{zL}; L < inf] for real z or complex z of one real part, shape (n,)."""

    @abstractmethod
    def mgf_rounding(self, z: NDArray) -> NDArray:
        """Bound on the error of the computed e^{K(z)}, relative to e^{K(Re z)}."""

    @abstractmethod
    def moments(self, tilts: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """K, and mean and variance of the tilted loss, each of shape (n,): to steer by."""

    @abstractmethod
    def decay(self, tilt: float, edges: NDArray) -> NDArray:
        """Bounds on log |phi(u)|, phi the characteristic function of the tilted loss.

        Entry j holds for all u in [edges[j], edges[j + 1]], the last one for all u >= edges[-1].
        """

    @abstractmethod
    def atoms(self, tilt: float) -> Atoms:
        """Weights on the exact lattice with the factor e^{tilt L}, scaled to a sum near one."""

    @abstractmethod
    def dots(self, tilt: float, step: float) -> Dots:
        """The same without a common lattice; cells of width ``step`` are resolved."""


@dataclass(frozen=True)
class GaussianLoss(Loss):
    """L ~ N(mu^2/2, mu^2): the pair N(mu, 1) and N(0, 1).

    Args:
        mu_squared: the square of the distance in standard deviations, above 0.
    """

    mu_squared: float

    @property
    def infinite(self) -> float:
        """None."""
        return 0.0

    @property
    def supremum(self) -> float:
        """Unbounded."""
        return math.inf

    @property
    def step(self) -> None:
        """No lattice."""
        return None

    @property
    def rho(self) -> float:
        """mu^2 / 2 (Bun and Steinke 2016, proposition 1.6)."""
        return self.mu_squared / 2

    @property
    def mu(self) -> float:
        """The pair is G_mu itself."""
        return math.sqrt(self.mu_squared)

    def reverse(self) -> GaussianLoss:
        """The same: the Gaussian pair is its own reverse."""
        return self

    def log_mgf(self, z: NDArray) -> NDArray:
        """K(z) = z (z + 1) mu^2 / 2."""
        return z * (z + 1) * (self.mu_squared / 2)

    def mgf_rounding(self, z: NDArray) -> NDArray:
        """A few units of K."""
        return 8 * UNIT * np.abs(z * (z + 1)) * self.mu_squared

    def moments(self, tilts: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """K, (tilt + 1/2) mu^2 and mu^2."""
        v = self.mu_squared
        return tilts * (tilts + 1) * v / 2, (tilts + 0.5) * v, np.full(len(tilts), v)

    def decay(self, tilt: float, edges: NDArray) -> NDArray:
        """-mu^2 u^2 / 2."""
        return -0.5 * self.mu_squared * (1 - 8 * UNIT) * edges**2

    def atoms(self, tilt: float) -> Atoms:
        """A Gaussian loss has no lattice."""
        raise TypeError("a Gaussian loss has no lattice; use dots")

    def dots(self, tilt: float, step: float) -> Dots:
        """Quadrature nodes of N((tilt + 1/2) mu^2, mu^2) in cells that `step` divides evenly."""
        mu = self.mu
        center = (tilt + 0.5) * self.mu_squared
        panels = max(1, math.ceil(step / (mu / 32)))
        width = step / panels
        first = math.floor((center - REACH * mu) / step)
        last = math.ceil((center + REACH * mu) / step)
        edges = first * step + width * np.arange((last - first) * panels)
        loss = (edges[:, None] + width * NODES).ravel()
        density = np.exp(-((loss - center) ** 2) / (2 * self.mu_squared))
        weight = density * np.tile(NODE_WEIGHTS, len(edges)) * (width / (mu * math.sqrt(math.tau)))
        relative = (REACH**2 / 2 + 32) * UNIT + 1e-15
        scale = float(self.log_mgf(np.array([tilt]))[0])
        return Dots(loss, weight, tilt, scale, 1e-147, relative)


@dataclass(frozen=True)
class LaplaceLoss(Loss):
    """The loss of two Laplace distributions whose centers are ``exact_epsilon`` scales apart.

    L has atoms e^-epsilon / 2 at -epsilon and 1/2 at epsilon, and between them the density
    e^{(l - epsilon)/2} / 4.
    """

    exact_epsilon: Fraction

    @property
    def infinite(self) -> float:
        """None."""
        return 0.0

    @property
    def step(self) -> None:
        """No lattice: there is a density."""
        return None

    @cached_property
    def epsilon(self) -> float:
        """Epsilon as a float."""
        return float(self.exact_epsilon)

    @property
    def supremum(self) -> Fraction:
        """Epsilon, attained."""
        return self.exact_epsilon

    @property
    def log_top(self) -> float:
        """log 1/2."""
        return -math.log(2)

    @property
    def rho(self) -> float:
        """epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4)."""
        return self.epsilon**2 / 2

    @property
    def mu(self) -> float:
        """The curve lies above randomized response's, whose corner is on this G_mu."""
        return response_mu(self.epsilon)

    def reverse(self) -> LaplaceLoss:
        """The same, by reflection."""
        return self

    def log_mgf(self, z: NDArray) -> NDArray:
        """K(z) = log(e^{az}/2 + e^{-a(1+z)}/2 + (e^{az} - e^{-a(z+1)}) / (4z + 2)), a = epsilon."""
        a = self.epsilon
        w = z + 0.5
        # e^{-a/2} [cosh(aw) + sinh(aw)/(2w)], scaled by e^{|Re aw|}
        size = np.abs(np.real(w)) * a
        plus, minus = np.exp(a * w - size), np.exp(-a * w - size)
        small = np.abs(a * w) < 1e-3
        safe = np.where(small, 1.0, w)
        square = (a * w) ** 2
        series = a * (1 + square / 6 * (1 + square / 20)) / 2 * np.exp(-size)
        sinhc = np.where(small, series, (plus - minus) / (4 * safe))
        return size - a / 2 + np.log((plus + minus) / 2 + sinhc)

    def mgf_rounding(self, z: NDArray) -> NDArray:
        """A few units for each exponent."""
        return 16 * UNIT * (4 + np.abs(z + 1) * self.epsilon)

    def _parts(self, tilts: Array) -> tuple[Array, Array, Array, Array]:
        """K, and the tilted masses of the atoms at -a and a and of the density between them."""
        a = self.epsilon
        k = self.log_mgf(tilts)
        low = np.exp(-a * (1 + tilts) - k) / 2
        high = np.exp(a * tilts - k) / 2
        return k, low, high, np.maximum(1 - low - high, 0.0)

    def moments(self, tilts: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """K, and sums over the atoms and quadrature nodes of the density e^{(tilt + 1/2) l}."""
        a = self.epsilon
        k, low, high, _ = self._parts(tilts)
        # The density falls from the end it leans to: nodes where it is above e^-40.
        lean = tilts + 0.5
        length = np.minimum(2 * a, 40 / np.maximum(np.abs(lean), 1e-300))
        start = np.where(lean > 0, a - length, -a)
        place = start[:, None] + length[:, None] * WIDE_NODES
        weight = np.exp(lean[:, None] * place - a / 2 - k[:, None]) / 4
        weight *= length[:, None] * WIDE_WEIGHTS
        mean = (high - low) * a + (weight * place).sum(axis=1)
        away = (place - mean[:, None]) ** 2
        variance = low * (a + mean) ** 2 + high * (a - mean) ** 2 + (weight * away).sum(axis=1)
        return k, mean, variance

    def decay(self, tilt: float, edges: NDArray) -> NDArray:
        """The atoms keep their masses; the density's part is at most its two ends over |w|.

        Near 0 E(L - L')^4 <= (2a)^2 2 Var(L).
        """
        a = self.epsilon
        at = np.array([tilt])
        _, low, high, inner = (float(v[0]) for v in self._parts(at))
        ends = (low + high) / 2 / np.hypot(tilt + 0.5, edges)
        far = low + high + np.minimum(ends, inner)
        variance = float(self.moments(at)[2][0])
        near = by_moments(variance * (1 - 1e-6), 8 * a * a * variance, edges)
        with np.errstate(divide="ignore"):
            return np.minimum(near, np.log(np.minimum(far * (1 + 1e-12), 1.0)))

    def atoms(self, tilt: float) -> Atoms:
        """A Laplace loss has a density between its atoms."""
        raise TypeError("a Laplace loss has no lattice; use dots")

    def dots(self, tilt: float, step: float) -> Dots:
        """Its two atoms, and quadrature nodes between the multiples of ``step``."""
        a = self.epsilon
        scale = float(self.log_mgf(np.array([tilt]))[0])
        inner = step * np.arange(math.floor(-a / step) + 1, math.ceil(a / step))
        edges = np.concatenate([[-a], inner[(inner > -a) & (inner < a)], [a]])
        fine = max(1, math.ceil((tilt + 1) * float(np.max(np.diff(edges)))))
        if fine > 1:
            pieces = [np.linspace(x, y, fine, endpoint=False) for x, y in pairwise(edges)]
            edges = np.concatenate([*pieces, [a]])
        width = np.diff(edges)
        loss = (edges[:-1, None] + width[:, None] * NODES).ravel()
        share = (width[:, None] * NODE_WEIGHTS).ravel()
        weight = np.exp((tilt + 0.5) * loss - a / 2 - scale) / 4 * share
        ends = np.exp(np.array([-a * (1 + tilt), a * tilt]) - scale) / 2
        relative = 4 * UNIT * (abs(scale) + (tilt + 1) * a + 16) + 1e-15
        return Dots(
            np.concatenate([[-a], loss, [a]]), np.concatenate([ends[:1], weight, ends[1:]]),
            tilt, scale, 0.0, relative,
        )  # fmt: skip


@dataclass(frozen=True)
class FiniteLoss(Loss):
    """A loss with finitely many values on a lattice.

    Args:
        lattice: the step, exact, above 0.
        index: the values are ``index * lattice``; increasing whole numbers.
        log_p: logarithm of P(L = value), same length. Their Q-masses are p e^-value.
        failure: P(L = inf).
        missing: Q-mass of outcomes that P cannot produce (the infinite mass of the reverse).
    """

    lattice: Fraction
    index: tuple[int, ...]
    log_p: tuple[float, ...]
    failure: float = 0.0
    missing: float = 0.0

    @property
    def infinite(self) -> float:
        """The mass that only P can produce."""
        return self.failure

    @property
    def step(self) -> Fraction:
        """The lattice's step."""
        return self.lattice

    @property
    def supremum(self) -> Fraction:
        """The largest finite value."""
        return self.lattice * self.index[-1]

    @property
    def log_top(self) -> float:
        """That of the last value."""
        return self.log_p[-1]

    @property
    def _largest(self) -> float:
        return float(self.lattice * max(abs(self.index[0]), abs(self.index[-1])))

    @property
    def rho(self) -> float:
        """epsilon^2 / 2 for the pure epsilon of the finite part (Bun and Steinke 2016)."""
        return self._largest**2 / 2

    @property
    def mu(self) -> float:
        """The mu of randomized response at the pure epsilon of the finite part."""
        return response_mu(self._largest)

    def reverse(self) -> FiniteLoss:
        """Values change sign, masses become those of Q."""
        values = [float(self.lattice * i) for i in self.index]
        log_q = [p - v for p, v in zip(self.log_p, values, strict=True)]
        backward = FiniteLoss(
            self.lattice, tuple(-i for i in reversed(self.index)), tuple(reversed(log_q)),
            self.missing, self.failure,
        )  # fmt: skip
        return self if _close(self, backward) else backward

    def _arrays(self) -> tuple[Array, Array]:
        return np.array(self.index, float) * float(self.lattice), np.array(self.log_p)

    def log_mgf(self, z: NDArray) -> NDArray:
        """K(z) = log sum p e^{zv} over the finite values v."""
        value, log_p = self._arrays()
        exponent = np.multiply.outer(z, value) + log_p
        top = np.real(exponent).max(axis=-1)
        return top + np.log(np.exp(exponent - top[..., None]).sum(axis=-1))

    def mgf_rounding(self, z: NDArray) -> NDArray:
        """A few units for each exponent."""
        value, log_p = self._arrays()
        return 4 * UNIT * (8 + np.abs(log_p).max() + np.abs(z) * np.abs(value).max())

    def moments(self, tilts: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Sums over the values."""
        value, log_p = self._arrays()
        k = self.log_mgf(tilts)
        p = np.exp(log_p + np.multiply.outer(tilts, value) - k[:, None])
        mean = p @ value
        return k, mean, (p * (value - mean[:, None]) ** 2).sum(axis=1)

    def decay(self, tilt: float, edges: NDArray) -> NDArray:
        """From the moments: E(L - L')^4 <= range^2 2 Var(L). Atoms on a lattice never die out."""
        variance = float(self.moments(np.array([tilt]))[2][0])
        reach = float(self.lattice * (self.index[-1] - self.index[0]))
        return by_moments(variance * (1 - 1e-6), 2 * reach**2 * variance, edges)

    def atoms(self, tilt: float) -> Atoms:
        """The weights p e^{tilt v} / e^{K(tilt)}."""
        value, log_p = self._arrays()
        scale = float(self.log_mgf(np.array([tilt]))[0])
        exponent = log_p + tilt * value - scale
        weight = np.zeros(self.index[-1] - self.index[0] + 1)
        weight[np.array(self.index) - self.index[0]] = np.exp(exponent)
        size = float(np.max(np.abs(log_p) + np.abs(tilt * value))) + abs(scale)
        return Atoms(
            self.lattice, Fraction(0), self.index[0], weight, scale,
            relative=(2 * size + 8) * UNIT,
        )  # fmt: skip

    def dots(self, tilt: float, step: float) -> Dots:
        """The same atoms."""
        value, log_p = self._arrays()
        scale = float(self.log_mgf(np.array([tilt]))[0])
        size = float(np.max(np.abs(log_p) + np.abs(tilt * value))) + abs(scale)
        weight = np.exp(log_p + tilt * value - scale)
        return Dots(value, weight, tilt, scale, 0.0, (2 * size + 8) * UNIT)


def response_mu(epsilon: float) -> float:
    """Mu of the Gaussian curve through randomized response's corner (1, 1) / (1 + e^epsilon)."""
    return -2 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon)))) * (1 + 1e-14)


def _close(a: FiniteLoss, b: FiniteLoss) -> bool:
    """Whether two losses are equal but for the last bits of their logarithms."""
    return (
        a.index == b.index
        and a.failure == b.failure
        and np.allclose(a.log_p, b.log_p, rtol=0, atol=1e-15 * (1 + abs(float(a.supremum))))
    )


def response_loss(epsilon: Fraction, categories: int = 2, failure: float = 0.0) -> FiniteLoss:
    """The loss of randomized response: e^epsilon : 1 between the truth and each other category.

    Args:
        epsilon: exact, above 0.
        categories: how many answers there are, at least 2. The two hypotheses are two of them.
        failure: probability that all is revealed instead, in [0, 1): the pair that dominates all
            (epsilon, failure) mechanisms (Kairouz, Oh and Viswanath 2015).
    """
    e = float(epsilon)
    log_total = e + math.log1p((categories - 1) * math.exp(-e)) - math.log1p(-failure)
    others = [] if categories == 2 else [math.log(categories - 2) - log_total]
    index = (-1, 1) if categories == 2 else (-1, 0, 1)
    return FiniteLoss(epsilon, index, (-log_total, *others, e - log_total), failure, failure)


def discrete_laplace_loss(scale: Fraction, shift: int) -> FiniteLoss:
    """The loss of discrete Laplace noise of mass ~ e^{-|x| / scale}, moved by ``shift`` >= 1.

    At x <= 0 it is shift / scale, at x >= shift its negative, between them (shift - 2x) / scale.
    """
    b = float(scale)
    log_total = math.log1p(math.exp(-1 / b))  # log of (1 + r), r = e^{-1/scale}
    log_gap = math.log(-math.expm1(-1 / b))  # log of (1 - r)
    between = [log_gap - log_total - x / b for x in range(shift - 1, 0, -1)]
    index = tuple(range(-shift, shift + 1, 2))
    return FiniteLoss(1 / scale, index, (-shift / b - log_total, *between, -log_total))
