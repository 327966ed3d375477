"""Define the Laplace privacy loss: two Laplace distributions with different centers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from neyman.curves.losses.finite import response_mu
from neyman.curves.losses.loss import WIDE_NODES, WIDE_WEIGHTS
from neyman.curves.losses.piecewise_analytic import (
    Piece,
    PiecewiseAnalyticLoss,
    PiecewiseDistribution,
    UprightEnd,
    upright_ends,
)
from neyman.curves.losses.zcdp_parameters import laplace_rho
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.decay import by_moments
from neyman.numerics.rounding import above


@dataclass(frozen=True)
class LaplaceLoss(PiecewiseAnalyticLoss):
    """Represent the loss of two Laplace distributions with centers ``exact_epsilon`` scales apart.

    L has atoms e^-epsilon / 2 at -epsilon and 1/2 at epsilon. Between them it has the density
    e^{(l - epsilon)/2} / 4.
    """

    exact_epsilon: Fraction

    @cached_property
    def epsilon(self) -> float:
        """Return epsilon as a float."""
        return float(self.exact_epsilon)

    @property
    def supremum(self) -> Fraction:
        return self.exact_epsilon

    @property
    def log_top(self) -> float:
        return -math.log(2)

    @property
    def rho(self) -> float:
        """Return epsilon - 1 + e^-epsilon, the KL divergence [ZC-6]."""
        return above(laplace_rho(self.exact_epsilon))

    @property
    def mu(self) -> float:
        """Return mu of the Gaussian curve through the corner of randomized response.

        The curve of randomized response at this epsilon is below the Laplace curve.
        """
        return response_mu(self.epsilon)

    def reverse(self) -> LaplaceLoss:
        return self

    def law(self, size: float) -> PiecewiseDistribution:
        # Two atoms, and the density between them.
        a = self.epsilon
        piece = Piece(
            -a,
            a,
            1.0,
            loss=lambda t: t,
            log_p=lambda t: (t - a) / 2 - math.log(4),
            slope=np.ones_like,
            speed=lambda t, near: np.ones_like(t),
            bend=lambda t, near: np.full_like(t, 0.5),
            place=lambda v: v,
        )
        log_mass = np.array([-a - math.log(2), -math.log(2)])
        # slack: the_law_of_a_laplace_loss
        return PiecewiseDistribution(np.array([-a, a]), log_mass, (piece,), (), 4 * UNIT * (a + 2))

    def upright(self) -> tuple[UprightEnd, ...]:
        a = self.epsilon
        return upright_ends((-a, a), (-a, a), 1.0, 2, -a / 2)

    def places(self, tilt: float, height: float) -> float:
        # A small number: K has a closed form.
        return 10.0

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) from the closed form.

        K(z) = log(e^{az}/2 + e^{-a(1+z)}/2 + (e^{az} - e^{-a(z+1)}) / (4z + 2)), a = epsilon.
        """
        return _log_mgf(self.epsilon, z)

    def mgf_rounding(self, z: Array) -> Array:
        return _mgf_rounding(self.epsilon, z)

    @classmethod
    def mgfs(cls, losses: Sequence[LaplaceLoss], z: Array) -> tuple[Array, Array]:
        a = np.array([[loss.epsilon] for loss in losses])
        return _log_mgf(a, z), _mgf_rounding(a, z)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        k, mean, variance = _moments(np.array([[self.epsilon]]), tilts)
        return k[0], mean[0], variance[0]

    @classmethod
    def sum_of_moments(cls, losses: Sequence[LaplaceLoss], counts: Array, tilts: Array) -> Array:
        a = np.array([[loss.epsilon] for loss in losses])
        return np.einsum("i,kij->kj", counts, np.array(_moments(a, tilts)))

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # Atoms keep their masses, and the density adds at most its ends divided by |w|, where
        # w = tilt + 1/2 + i u. Near 0, E(L - L')^4 <= (2a)^2 2 Var(L).
        a = self.epsilon
        at = np.array([tilt])
        _, low, high, inner = (float(v[0]) for v in _tilted_masses(a, at))
        ends = (low + high) / 2 / np.hypot(tilt + 0.5, edges)
        far = low + high + np.minimum(ends, inner)
        variance = float(self.moments(at)[2][0])
        near = by_moments(variance * (1 - 1e-6), 8 * a * a * variance, edges)
        with np.errstate(divide="ignore"):
            return np.minimum(near, np.log(np.minimum(far * (1 + 1e-12), 1.0)))


# Functions of a, the epsilon of one loss or a column of epsilons; shape (losses, n).


def _log_mgf(a: Array | float, z: Array) -> Array:
    w = z + 0.5
    # e^{-a/2} [cosh(aw) + sinh(aw)/(2w)], scaled by e^{|Re aw|}
    size = np.abs(np.real(w)) * a
    plus, minus = np.exp(a * w - size), np.exp(-a * w - size)
    small = np.abs(a * w) < 0.03  # here the difference loses more than 32 units
    sinhc = (plus - minus) / (4 * np.where(small, 1.0, w))
    if small.any():
        square = (a * w) ** 2
        series = a * (1 + square / 6 * (1 + square / 20 * (1 + square / 42))) / 2 * np.exp(-size)
        sinhc = np.where(small, series, sinhc)
    return size - a / 2 + np.log((plus + minus) / 2 + sinhc)


def _mgf_rounding(a: Array | float, z: Array) -> Array:
    return 16 * UNIT * (4 + np.abs(z + 1) * a)  # slack: k_of_a_laplace_loss


def _tilted_masses(a: Array | float, tilts: Array) -> tuple[Array, Array, Array, Array]:
    """Return K, and the tilted masses of the atom at -a, the atom at a, and the density."""
    k = _log_mgf(a, tilts)
    low = np.exp(-a * (1 + tilts) - k) / 2
    high = np.exp(a * tilts - k) / 2
    return k, low, high, np.maximum(1 - low - high, 0.0)


def _moments(a: Array, tilts: Array) -> tuple[Array, Array, Array]:
    """Return K, mean, and variance for each tilt, from atoms and nodes of the density."""
    k, low, high, _ = _tilted_masses(a, tilts)
    # The density decreases from one end: use nodes where it is above e^-40.
    lean = tilts + 0.5
    length = np.minimum(2 * a, 40 / np.maximum(np.abs(lean), 1e-300))
    start = np.where(lean > 0, a - length, -a)
    place = start[..., None] + length[..., None] * WIDE_NODES
    weight = np.exp(lean[:, None] * place - a[..., None] / 2 - k[..., None]) / 4
    weight *= length[..., None] * WIDE_WEIGHTS
    mean = (high - low) * a + (weight * place).sum(axis=-1)
    away = (place - mean[..., None]) ** 2
    variance = low * (a + mean) ** 2 + high * (a - mean) ** 2 + (weight * away).sum(axis=-1)
    return k, mean, variance
