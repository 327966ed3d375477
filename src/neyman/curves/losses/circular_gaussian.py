"""The loss of Riemannian Gaussian noise on a circle, moved along it.

Two arcs join the centers and the points opposite to them. On either of them the loss is linear, and
the density is a normal law's [CI-1].
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

PAD = 20.0  # deviations beyond every peak of a tilted density at which an arc is cut
FAR = 100.0  # deviations from both centers at which the far arc counts as lost
ROOM = 1.0  # distance from the real line: both functions are polynomials


@dataclass(frozen=True)
class CircularGaussianLoss(PiecewiseAnalyticLoss):
    """The loss of two Riemannian Gaussian laws on one circle: its own reverse, by reflection.

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
    def rho(self) -> float:
        """That of its Gaussian curve."""
        return above(self.shift**2 / 2)

    @property
    def mu(self) -> float:
        """The curve lies above that of normal noise on the line [CI-3]."""
        return above(self.shift)

    def reverse(self) -> CircularGaussianLoss:
        """The same, by reflection."""
        return self

    def law(self, size: float) -> Law:
        """Two arcs; the far one is lost where it has hardly any mass."""
        near, far = self.arcs
        pieces, lost = _piece(near, self.log_total, size)
        relative = UNIT * (16 + near[0] ** 2)
        away = float(self.circumference / 2 - self.shift)
        if away > FAR:
            log_mass = math.log(2 * far[1]) - self.log_total - away**2 / 2
            log_mass += 8 * UNIT * (8 + away**2)
            top = float(self.supremum) * (1 + 2 * UNIT)
            lost += (log_mass, top), (log_mass, -top)
        else:
            more, left = _piece(far, self.log_total, size)
            pieces, lost = pieces + more, lost + left
            relative += UNIT * far[0] ** 2
        return Law(np.zeros(0), np.zeros(0), pieces, lost, relative)

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        """Bound both arcs by their ends and a whole normal law [CI-4], and by moments."""
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


def _piece(
    arc: tuple[float, float], log_total: float, size: float
) -> tuple[tuple[Piece, ...], tuple[tuple[float, float], ...]]:
    """Return an arc as far as tilts of that size see it, and what lies beyond [CI-4]."""
    m, half = arc
    end = min(half, m * (size + 0.5) + PAD)

    def log_p(s: Array) -> Array:
        return -((s - m / 2) ** 2) / 2 - log_total

    piece = Piece(
        -end,
        end,
        ROOM,
        loss=lambda s: m * s,
        log_p=log_p,
        slope=lambda s: np.full_like(s, m),
        speed=lambda s, near: np.full_like(s, m),
        bend=lambda s, near: np.abs(s - m / 2) + ROOM / 4 + near,
        place=lambda v: v / m,
    )
    if end == half:
        return (piece,), ()
    edge = np.array([-end, end])
    log_mass = log_p(edge) - math.log(PAD)
    return (piece,), tuple(zip(log_mass.tolist(), (m * edge).tolist(), strict=True))
