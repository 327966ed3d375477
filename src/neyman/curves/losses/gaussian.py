"""Define the Gaussian privacy loss: the pair N(mu, 1) and N(0, 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from neyman.curves.losses.loss import NODE_WEIGHTS, NODES, Loss
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.discretization import Discretization
from neyman.numerics.operations import CALL, cells, charge

# Reach of a tilted Gaussian in standard deviations: the mass beyond is below 1e-147.
REACH_DEVIATIONS = 26.0


@dataclass(frozen=True)
class GaussianLoss(Loss):
    """Represent the loss L ~ N(mu^2/2, mu^2) of the pair N(mu, 1) and N(0, 1).

    Args:
        mu_squared: the square of the distance in standard deviations, above 0.
    """

    mu_squared: float

    @property
    def rho(self) -> float:
        """Return mu^2 / 2 (Bun and Steinke 2016, proposition 1.6)."""
        return self.mu_squared / 2

    @property
    def mu(self) -> float:
        """Return mu: the trade-off curve of the pair is G_mu."""
        return math.sqrt(self.mu_squared)

    def reverse(self) -> GaussianLoss:
        """Return this loss: the Gaussian pair is its own reverse."""
        return self

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) = z (z + 1) mu^2 / 2."""
        return z * (z + 1) * (self.mu_squared / 2)

    def mgf_rounding(self, z: Array) -> Array:
        # slack: the_divergence_of_a_gaussian_pair/a, the_moment_of_a_gaussian_pair/a,
        # slack: k_of_a_gaussian_loss, k_of_a_choice_between_losses/a
        return 8 * UNIT * np.abs(z * (z + 1)) * self.mu_squared

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        v = self.mu_squared
        return tilts * (tilts + 1) * v / 2, (tilts + 0.5) * v, np.full(len(tilts), v)

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # log |phi(u)| = -mu^2 u^2 / 2
        # slack: the_decay_of_a_gaussian_loss
        return -0.5 * self.mu_squared * (1 - 8 * UNIT) * edges**2

    def dots(self, tilt: float, step: float) -> Discretization:
        # Quadrature nodes of N((tilt + 1/2) mu^2, mu^2) in cells that divide ``step``.
        mu = self.mu
        center = (tilt + 0.5) * self.mu_squared
        panels = max(1, math.ceil(step / (mu / 32)))
        width = step / panels
        first = math.floor((center - REACH_DEVIATIONS * mu) / step)
        last = math.ceil((center + REACH_DEVIATIONS * mu) / step)
        nodes = (last - first) * panels * len(NODES)
        cells(nodes)
        charge(CALL + 150 * nodes)
        edges = first * step + width * np.arange((last - first) * panels)
        loss = (edges[:, None] + width * NODES).ravel()
        density = np.exp(-((loss - center) ** 2) / (2 * self.mu_squared))
        weight = density * np.tile(NODE_WEIGHTS, len(edges)) * (width / (mu * math.sqrt(math.tau)))
        relative = (REACH_DEVIATIONS**2 / 2 + 32) * UNIT + 1e-15  # slack: nodes_of_a_gaussian_loss
        scale = float(self.log_mgf(np.array([tilt]))[0])
        return Discretization(loss, weight, tilt, scale, 1e-147, relative)
