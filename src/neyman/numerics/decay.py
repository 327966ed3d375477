"""How fast a characteristic function certainly dies out: what lies beyond the last node."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decay"]

_KNEE = 2.5
_LOBES = math.sin(_KNEE) / _KNEE  # above every later lobe of |sin x / x|


@dataclass(frozen=True, slots=True, eq=False)
class Decay:
    """Bounds on |phi(u)|, phi the characteristic function of a (tilted) loss.

    Near zero, |phi|^2 = E cos(u (L - L')) <= 1 - u^2 Var(L) + u^4 E(L - L')^4 / 24, which falls
    until u^2 = 12 Var / E(L - L')^4. Farther out the line is cut into disjoint intervals. Where the
    density is at least m on one of length d, that part is uniform with mass m d, so
    |phi| <= 1 - sum of m d (1 - s(u d / 2)), s(x) the largest |sin v / v| over v >= x.

    Args:
        variance: lower bound on Var(L).
        fourth: upper bound on E(L - L')^4, L' an independent copy; 0 where it is not known.
        uniform: for each way of cutting, masses and lengths of the uniform parts, shape (2, n).
        gaussian: variance of an independent Gaussian part: |phi| <= e^{-gaussian u^2 / 2}.
    """

    variance: float = 0.0
    fourth: float = 0.0
    uniform: tuple[NDArray[Any], ...] = ()
    gaussian: float = 0.0

    def log_bound(self, u: float) -> float:
        """log of a bound on |phi(v)| for every v >= u > 0; at most 0."""
        smooth = -self.gaussian * u * u / 2
        if not self.fourth:
            return smooth + self._far(u)
        turn = math.sqrt(12 * self.variance / self.fourth)
        if u >= turn:
            return smooth + self._far(u)
        near = 1 - u * u * self.variance + u**4 * self.fourth / 24
        return smooth + min(max(0.5 * math.log(near), self._far(turn)), self._far(u))

    def _far(self, u: float) -> float:
        best = 0.0
        for mass, length in self.uniform:
            x = u * length / 2
            with np.errstate(divide="ignore", invalid="ignore"):
                largest = np.where(x < _KNEE, np.sinc(x / math.pi), np.minimum(_LOBES, 1 / x))
            best = min(best, math.log1p(-min(float(mass @ (1 - largest)), 1 - 1e-16) * (1 - 1e-9)))
        return best
