"""Define the loss of Riemannian Gaussian noise on a circle whose center moves along the circle.

The two points opposite the centers divide the circle into two arcs. On each arc, the loss is linear
in the distance, and the density is normal [CI-1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman.curves.losses.piecewise_analytic import (
    Piece,
    PiecewiseAnalyticLoss,
    PiecewiseDistribution,
)
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import above


@dataclass(frozen=True)
class Limits:
    """Limits on the arcs: where they are cut, and how far bounds extend into the complex plane."""

    pad_deviations: float = 20.0  # an arc is cut so far beyond every peak of a tilted density
    strip_height: float = 1.0  # distance from the real line: both functions are polynomials


LIMITS = Limits()


@dataclass(frozen=True)
class CircularGaussianLoss(PiecewiseAnalyticLoss):
    """Represent the loss of two Riemannian Gaussian distributions on one circle.

    By reflection, the loss is its own reverse.

    Args:
        shift: the distance between the centers in standard deviations, exact, above 0.
        circumference: in standard deviations, exact, at least twice the shift.
    """

    shift: Fraction
    circumference: Fraction

    @property
    def arcs(self) -> tuple[tuple[float, float], ...]:
        """Return the slope of the loss and the half length, for the near arc and the far arc.

        On an arc of slope m, a point at signed distance s from the middle has the loss m s and the
        density e^{-(s - m / 2)^2 / 2 - log_total}.
        """
        near, far = self.shift, self.circumference - self.shift
        return (float(near), float(far / 2)), (float(far), float(near / 2))

    @property
    def log_total(self) -> float:
        """Return the logarithm of the integral of e^{-d^2 / 2} around the circle."""
        mass = math.erf(float(self.circumference) / math.sqrt(8))
        return 0.5 * math.log(math.tau) + math.log(mass)

    @property
    def supremum(self) -> Fraction:
        """Return half the product of the distances between the centers along both arcs."""
        return self.shift * (self.circumference - self.shift) / 2

    @property
    def top(self) -> float:
        """Return the largest loss, rounded up."""
        return above(self.supremum)

    @property
    def rho(self) -> float:
        """Return rho of the Gaussian pair at the same shift."""
        return above(self.shift**2 / 2)

    @property
    def mu(self) -> float:
        """Return the shift: the curve is above that of normal noise on the real line [CI-3]."""
        return above(self.shift)

    def reverse(self) -> CircularGaussianLoss:
        """Return this loss: a reflection of the circle exchanges P and Q."""
        return self

    @property
    def _far_is_lost(self) -> bool:
        # So far from both centers, the far arc counts as lost.
        return self.circumference / 2 - self.shift > 100.0

    @property
    def support(self) -> tuple[tuple[float, float], ...]:
        """Return `arcs`, without the far arc if its mass is negligible."""
        return self.arcs[:1] if self._far_is_lost else self.arcs

    @property
    def lost_arcs(self) -> tuple[float, ...]:
        """Return an upper bound on the omitted far arc's log mass, or nothing if it is kept."""
        if not self._far_is_lost:
            return ()
        away, half = float(self.circumference / 2 - self.shift), self.arcs[1][1]
        log_mass = math.log(2 * half) - self.log_total - away**2 / 2
        return (log_mass + 8 * UNIT * (8 + away**2),)  # slack: counted

    @property
    def relative(self) -> float:
        """Return a bound on the relative error of a density, from rounded slopes."""
        return UNIT * (16 + math.fsum(m * m for m, _ in self.support))  # slack: counted

    @staticmethod
    def cut(m: float, half: float, size: float) -> float:
        """Return the half length at which an arc of slope m is cut, for tilts up to ``size``."""
        return min(half, m * (size + 0.5) + LIMITS.pad_deviations)

    def law(self, size: float) -> PiecewiseDistribution:
        # Two arcs. The far arc is lost if its mass is negligible.
        pieces: list[Piece] = []
        lost: list[tuple[float, float]] = []
        for m, half in self.support:
            end = self.cut(m, half, size)
            pieces.append(_piece(m, end, self.log_total))
            if end < half:
                edge = np.array([-end, end])
                log_mass = pieces[-1].log_p(edge) - math.log(LIMITS.pad_deviations)
                lost += zip(log_mass.tolist(), (m * edge).tolist(), strict=True)
        lost += [(log_mass, side * self.top) for log_mass in self.lost_arcs for side in (-1, 1)]
        return PiecewiseDistribution(
            np.zeros(0), np.zeros(0), tuple(pieces), tuple(lost), self.relative
        )

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # Bound both arcs by their ends and a full normal distribution [CI-4], and by moments.
        log_mgf = float(self.log_mgf(np.array([tilt]))[0])
        total = np.zeros(len(edges))
        for m, half in self.arcs:
            center = m * (tilt + 0.5)
            top = (center**2 - m * m / 4) / 2 - self.log_total - log_mgf
            near = half - abs(center)
            total += 2 * np.exp(top - near**2 / 2) / (m * edges)
            if near > 0:
                total += 2 * np.exp(top - (half + abs(center)) ** 2 / 2) / (m * edges)
                total += np.exp(top + 0.5 * math.log(math.tau) - (m * edges) ** 2 / 2)
        with np.errstate(divide="ignore"):
            far = np.log(np.minimum(total * (1 + 1e-9), 1.0))
        return np.minimum(far, self._decay_by_moments(tilt, edges))


def _piece(m: float, end: float, log_total: float) -> Piece:
    """Return the part |s| <= ``end`` of the arc of slope m."""
    return Piece(
        -end,
        end,
        LIMITS.strip_height,
        loss=lambda s: m * s,
        log_p=lambda s: -((s - m / 2) ** 2) / 2 - log_total,
        slope=lambda s: np.full_like(s, m),
        speed=lambda s, near: np.full_like(s, m),
        bend=lambda s, near: np.abs(s - m / 2) + LIMITS.strip_height / 4 + near,
        place=lambda v: v / m,
    )
