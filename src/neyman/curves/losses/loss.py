"""Define the privacy loss of one ordered pair (P, Q): L = log dP/dQ under P.

Every mechanism supplies its losses. Composition adds independent losses, and every answer comes
from their sum. A loss describes itself in three ways, each for one method of computation:

- `log_mgf`, K(z) = log E_P[e^{zL}; L < inf], for Renyi orders and for the contour;
- `atoms`, its tilted weights on its exact lattice, if it has one;
- `dots`, its tilted weights at any points, such as quadrature nodes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import Atoms, power
from neyman.numerics.discretization import Discretization

MOST_POWERS = 10_000  # most atoms of one loss's powers, because they are convolved directly

Order = Literal["one", "opposite", "symmetric"]


def _gauss_legendre(count: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes on (0, 1), and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


# Exact to degree 15, and to 1e-16 for e^{ax} with |a| <= 1.
NODES, NODE_WEIGHTS = _gauss_legendre(8)
WIDE_NODES, WIDE_WEIGHTS = _gauss_legendre(32)


@dataclass(frozen=True)
class NormalRatio:
    """Represent a loss as a function of log R(y), R the ratio of a normal mixture to a normal.

    Args:
        loss: log R as a `LikelihoodRatioLoss`.
        order: "one" for log R or -log R; "opposite" for log R(y) - log R(-y); "symmetric" for the
            pair whose trade-off curve is the convex hull of both orders.
    """

    loss: Any
    order: Order


class Part(ABC):
    """Represent the known facts about the loss of one ordered pair: one summand of a composition.

    A part is immutable, and of one of three kinds. A `Loss` is a distribution. A `LossBracket` is
    between two other losses. A `RenyiBound` has bounds on Renyi divergences, without a
    distribution.
    """

    @property
    def infinite(self) -> float:
        """Return P(L = inf): the mass of outcomes that only P can produce, in [0, 1]."""
        return 0.0

    @property
    def supremum(self) -> Fraction | float:
        """Return the least upper bound of the finite part of the loss: exact, or inf."""
        return math.inf

    @property
    def rho(self) -> float:
        """Return a proven zCDP parameter of the finite part, both directions; inf if unknown."""
        return math.inf

    @property
    def mu(self) -> float:
        """Return a proven GDP parameter of the finite part, both directions; inf if unknown."""
        return math.inf

    @property
    def rough_mu(self) -> float:
        """Return a GDP parameter that is cheaper to compute than `mu`, and at least as large."""
        return self.mu

    @property
    def total_variation(self) -> float:
        """Return an upper bound on delta(0): 2 Phi(mu / 2) - 1 if mu is known, and at most 1."""
        if self.infinite or self.mu == math.inf:
            return 1.0
        return min(math.erf(self.mu / math.sqrt(8)) * (1 + 1e-12), 1.0)

    @property
    def rounded(self) -> bool:
        """Return True if the supremum is rounded up rather than exact."""
        return isinstance(self.supremum, float) and self.supremum < math.inf

    @property
    def log_top(self) -> float:
        """Return log P(L = supremum), or a lower bound on it; -inf if nothing is claimed."""
        return -math.inf

    @property
    def normal_ratio(self) -> NormalRatio | None:
        """Return the loss as a function of the ratio of a normal mixture to a normal density.

        `NormalRatio` has the forms of this function. Return None if the loss has none of them.
        """
        return None

    @property
    def sampled(self) -> bool:
        """Return True if rare large losses occur among many small ones, as with subsampling."""
        return False

    @property
    def costly(self) -> bool:
        """Return True if K has so many terms that a grid is cheaper for few releases."""
        return False

    def places(self, tilt: float, height: float) -> float:
        """Estimate the number of terms of K(tilt + i height); few for a closed form."""
        return 10.0

    @abstractmethod
    def reverse(self) -> Part:
        """Return the part of (Q, P)."""

    @abstractmethod
    def log_mgf(self, z: Array) -> Array:
        """Return K(z) = log E_P[e^{zL}; L < inf], shape (n,).

        z is real, or complex with a common real part.
        """

    @abstractmethod
    def mgf_rounding(self, z: Array) -> Array:
        """Bound the error of the computed e^{K(z)}, relative to e^{K(Re z)}."""

    @abstractmethod
    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return K, and mean and variance of the tilted loss, each of shape (n,); uncertified."""

    @classmethod
    def sum_of_places(cls, losses: Sequence[Any], tilt: float, height: float) -> float:
        """Return the sum of `places` over several losses of this class, each counted once."""
        return math.fsum([loss.places(tilt, height) for loss in losses])

    @classmethod
    def mgfs(cls, losses: Sequence[Any], z: Array) -> tuple[Array, Array]:
        """Return `log_mgf` and `mgf_rounding` of losses of this class; shape (losses, n)."""
        errors = [np.broadcast_to(loss.mgf_rounding(z), z.shape) for loss in losses]
        return np.array([loss.log_mgf(z) for loss in losses]), np.array(errors)

    @classmethod
    def sum_of_moments(cls, losses: Sequence[Any], counts: Array, tilts: Array) -> Array:
        """Return K, mean, and variance of a tilted sum of such losses; shape (3, n); uncertified.

        The sum has ``counts[k]`` copies of ``losses[k]``.
        """
        total = np.zeros((3, len(tilts)))
        for loss, count in zip(losses, counts.tolist(), strict=True):
            total += count * np.array(loss.moments(tilts))
        return total


class Loss(Part):
    """Represent the distribution of the privacy loss L = log dP/dQ under P of an ordered pair."""

    @property
    def step(self) -> Fraction | None:
        """Return the step of the lattice of the loss (up to an offset); None without a lattice."""
        return None

    @property
    def lattice_places(self) -> tuple[Fraction, Fraction] | None:
        """Return a place of the loss's lattice and the distance of two; None without a lattice."""
        return None

    @abstractmethod
    def reverse(self) -> Loss:
        """Return the loss of (Q, P)."""

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        """Bound log |phi(u)|, where phi is the characteristic function of the tilted loss.

        Entry j holds for all u in [edges[j], edges[j + 1]], the last one for all u >= edges[-1]. A
        bound at or below ``enough`` need not be improved. This base class returns 0 everywhere:
        |phi| <= 1.
        """
        return np.zeros(len(edges))

    def tilted_values(self, tilt: float) -> TiltedValues | None:
        """Return all values of the loss under a tilt; None if they are not finitely many."""
        return None

    @property
    def value_count(self) -> float:
        """Return the number of finite values of the loss; inf if they are not listed."""
        return math.inf

    def sum_size(self, count: int, *, truncated: bool = False) -> float:
        """Return how many atoms `sum_atoms` returns; inf if it cannot list the atoms of this sum.

        Args:
            count: terms of the sum, at least 1.
            truncated: True if atoms of negligible weight may be omitted.
        """
        return math.inf

    def sum_atoms(self, count: int, tilt: float, least: float) -> Discretization:
        """Return all atoms of the sum of ``count`` independent copies of the loss, under a tilt.

        Args:
            count: terms of the sum, at least 1.
            tilt: t in the factor e^{t L} of a weight.
            least: share of the largest weight; smaller weights may go to the tail.

        Raises:
            TypeError: the loss cannot list such atoms. If `sum_size` is inf, they may be too many.
        """
        raise TypeError(f"a {type(self).__name__} has no sums atom by atom; use dots")

    def atoms(self, tilt: float) -> Atoms:
        """Return the masses on the exact lattice times e^{tilt L}, scaled to a sum near one."""
        raise TypeError(f"a {type(self).__name__} has no lattice; use dots")

    @abstractmethod
    def dots(self, tilt: float, step: float) -> Discretization:
        """Return masses times e^{tilt L} at any losses, with a resolution of ``step``."""


@dataclass(frozen=True, eq=False)
class TiltedValues:
    """Hold the values of a loss with their shares under a tilt.

    Args:
        place, log_p: the values, and the logs of their shares, with the sum 1 without ``lost``.
        units, moves: relative errors of the shares, without that of K, and of the values.
        log_mgf, error: K(tilt), and a bound on the relative error of e^K.
        lost: bounds on the shares of all other values: the log of each, and the value above it.
    """

    place: Array
    log_p: Array
    units: Array
    moves: Array
    log_mgf: float
    error: float
    lost: tuple[tuple[float, float], ...] = ()


def lattice_sum(loss: Loss, count: int, tilt: float, least: float) -> Discretization:
    """Return `Loss.sum_atoms` of a loss with a lattice, by convolving its weights.

    Weights below ``least`` times the largest go to the tail.
    """
    dots = Discretization.of(power(loss.atoms(tilt), count), tilt)
    keep = dots.weight > least * dots.weight.max()
    lost = float(dots.weight[~keep].sum()) * (1 + 1e-9)
    return replace(dots, loss=dots.loss[keep], weight=dots.weight[keep], tail=dots.tail + lost)
