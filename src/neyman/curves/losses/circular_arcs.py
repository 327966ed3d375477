"""The loss of Riemannian Gaussian noise on a circle, moved along it.

Two arcs join the centers and the points opposite to them. On either of them the loss is linear, and
the density is a normal distribution's [CI-1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman.curves.losses.piecewise_analytic import Law, Piece, PiecewiseAnalyticLoss
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import above


@dataclass(frozen=True)
class Limits:
    """Where an arc is cut, and how high its strip is."""

    # Deviations beyond every peak of a tilted density at which an arc is cut.
    pad_deviations: float = 20.0
    # Deviations from both centers at which the far arc counts as lost.
    far_deviations: float = 100.0
    strip_height: float = 1.0  # distance from the real line: both functions are polynomials


LIMITS = Limits()


@dataclass(frozen=True)
class CircularGaussianLoss(PiecewiseAnalyticLoss):
    """The loss of two Riemannian Gaussian distributions on one circle: its own reverse, by
    reflection.

    Args:
        shift: the distance of the centers in standard deviations, exact, above 0.
        circumference: in standard deviations, exact, at least twice the shift.
    """

    shift: Fraction
    circumference: Fraction

    @property
    def arcs(self) -> tuple[tuple[float, float], ...]:
        """Slope and half length of the near arc and of the far one.

        On an arc of slope m a place s from its middle has the loss m s and the density
        e^{-(s - m / 2)^2 / 2 - log_total}.
        """
        near, far = self.shift, self.circumference - self.shift
        return (float(near), float(far / 2)), (float(far), float(near / 2))

    @property
    def log_total(self) -> float:
        """Logarithm of the integral of e^{-d^2 / 2} around the circle."""
        mass = math.erf(float(self.circumference) / math.sqrt(8))
        return 0.5 * math.log(math.tau) + math.log(mass)

    @property
    def supremum(self) -> Fraction:
        """Half the product of both ways between the centers, attained at two points."""
        return self.shift * (self.circumference - self.shift) / 2

    @property
    def top(self) -> float:
        """The largest loss, rounded up."""
        return above(self.supremum)

    @property
    def rho(self) -> float:
        """That of its Gaussian curve."""
        return above(self.shift**2 / 2)

    @property
    def mu(self) -> float:
        """The curve is above that of normal noise on the line [CI-3]."""
        return above(self.shift)

    def reverse(self) -> CircularGaussianLoss:
        """Return the same, by reflection."""
        return self

    @property
    def _far_is_lost(self) -> bool:
        return self.circumference / 2 - self.shift > LIMITS.far_deviations

    @property
    def support(self) -> tuple[tuple[float, float], ...]:
        """The arcs that are not lost."""
        return self.arcs[:1] if self._far_is_lost else self.arcs

    @property
    def lost_arcs(self) -> tuple[float, ...]:
        """Upper bounds on the logarithms of the masses of arcs that are lost."""
        if not self._far_is_lost:
            return ()
        away, half = float(self.circumference / 2 - self.shift), self.arcs[1][1]
        log_mass = math.log(2 * half) - self.log_total - away**2 / 2
        return (log_mass + 8 * UNIT * (8 + away**2),)

    @property
    def relative(self) -> float:
        """What rounded slopes do to a density, relative to it."""
        return UNIT * (16 + math.fsum(m * m for m, _ in self.support))

    @staticmethod
    def cut(m: float, half: float, size: float) -> float:
        """Return how far from its middle an arc of this slope is seen under tilts of that size."""
        return min(half, m * (size + 0.5) + LIMITS.pad_deviations)

    def law(self, size: float) -> Law:
        """Two arcs; the far one is lost where it has hardly any mass."""
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
        return Law(np.zeros(0), np.zeros(0), tuple(pieces), tuple(lost), self.relative)

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        """Bound both arcs by their ends and a whole normal distribution [CI-4], and by moments."""
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
    """Return an arc of this slope as far as it is seen."""
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
