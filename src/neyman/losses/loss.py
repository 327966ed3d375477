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
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.atoms import Atoms
from neyman.numerics.discretization import Discretization

__all__ = ["Loss"]


# Gauss-Legendre nodes on (0, 1): exact to degree 15, and to 1e-16 for e^{ax} with |a| <= 1.
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
NODES, NODE_WEIGHTS = (NODES + 1) / 2, NODE_WEIGHTS / 2
WIDE_NODES, WIDE_WEIGHTS = np.polynomial.legendre.leggauss(32)
WIDE_NODES, WIDE_WEIGHTS = (WIDE_NODES + 1) / 2, WIDE_WEIGHTS / 2


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
    def dots(self, tilt: float, step: float) -> Discretization:
        """The same without a common lattice; cells of width ``step`` are resolved."""
