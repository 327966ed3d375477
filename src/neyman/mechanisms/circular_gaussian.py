"""Describe normal noise around a circle, for answers that are directions."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.circular_arcs import CircularGaussianLoss
from neyman.curves.losses.composition import Composition
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import EXACT_POSITIVE, integer, private_integer
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.noise.parameters import secure_unless


@dataclass(frozen=True)
class Limits:
    """Limit the number of points, sigma over points, and sensitivity over sigma."""

    points: int = 2**41


LIMITS = Limits()


@dataclass(frozen=True, init=False)
class CircularGaussian(Mechanism):
    """Add Riemannian Gaussian noise on a circle of evenly spaced points.

    The noise has a density proportional to e^{-d^2 / (2 sigma^2)}, for the distance d from the
    exact answer along the circle. The curve is exact for the continuous noise. It is at least G_mu
    with mu = sensitivity / sigma, and above G_mu if sigma is not small compared with the circle.
    `draw` rounds to the nearest point. Rounding reveals no more.

    Args:
        points: number of points on the circle, public, odd, from 3 to 2^41. A direction of x turns
            is the point round(x points).
        sigma: noise scale in points, above 0, at most 10 circles.
        sensitivity: shift of the answer between neighbors, the shorter way around, in points: from
            1 to (points - 1) / 2, and at most 60 sigma. A shorter shift reveals less.

    Examples:
        >>> import neyman as ny
        >>> from neyman.mechanisms.circular_gaussian import CircularGaussian
        >>> noise = CircularGaussian(points=3601, sigma=1200, sensitivity=900)  # a quarter turn
        >>> f = noise.tradeoff()
        >>> f"{f.epsilon(delta=1e-6):.4f}", f"{f.pure():.4f}", f >= ny.gdp(0.75)
        ('0.8423', '0.8441', True)
        >>> 0 <= noise.draw(3600) < 3601
        True

    Source: Jiang, Chang, Liu, Ding, Kong and Jiang 2023; the curve is proven in [CI-1] to [CI-3].
    """

    RELATION = "any"

    points: int = field(metadata=integer(3, LIMITS.points))
    sigma: Fraction = field(metadata=EXACT_POSITIVE)
    sensitivity: int = field(metadata=integer(1))

    def __init__(self, points: int, sigma: float | Fraction | str, sensitivity: int = 1) -> None:
        self._keep(points=points, sigma=sigma, sensitivity=sensitivity)
        if self.points % 2 == 0:
            raise ValueError(
                f"points = {self.points} must be odd: then whole numbers fill the circle evenly; "
                f"take {self.points + 1}"
            )
        if self.sensitivity > self._farthest:
            raise ValueError(
                f"sensitivity = {self.sensitivity} must be at most {self._farthest}: no two of "
                f"{self.points} points are farther apart"
            )
        sigma_circles = 10  # above, a draw would be repeated more than 25 times on average
        if self.sigma > sigma_circles * self.points:
            raise ValueError(
                f"sigma = {float(self.sigma):g} must be at most {sigma_circles} times the "
                f"{self.points} points: a draw repeats until it falls within one turn"
            )
        shift_sigmas = 60  # of the sensitivity: above, the noise hides nothing
        if self.sensitivity > shift_sigmas * self.sigma:
            raise ValueError(
                f"sensitivity = {self.sensitivity} must be at most {shift_sigmas} sigma = "
                f"{float(shift_sigmas * self.sigma):g}: such noise hides nothing; add more"
            )

    @property
    def _farthest(self) -> int:
        return (self.points - 1) // 2

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, for the full shift [CI-2]."""
        loss = CircularGaussianLoss(self.sensitivity / self.sigma, self.points / self.sigma)
        return (Composition.of([(loss, 1)]),)

    def rho(self) -> Fraction:
        """Return mu^2 / 2, because the curve is at least G_mu [CI-3]."""
        return (self.sensitivity / self.sigma) ** 2 / 2

    def draw(self, value: int, *, bits: Bits | None = None) -> int:
        """Draw the noisy point exactly, from 0 to points - 1 [CI-6].

        This method reads private data but charges no ledger: charge the mechanism first. The time
        depends on the noise, not on the value.

        Args:
            value: the exact answer, private: an integer, taken modulo ``points``.
            bits: the source of randomness, by default `SecureBits`.

        Raises:
            TypeError: value is not an integer. The message does not show it.
        """
        place = private_integer("value", value)
        source = secure_unless(bits)
        while True:
            noise = int(rounded_gaussian(self.sigma**2, 1, source)[0])
            if abs(noise) <= self._farthest:
                return (place + noise) % self.points
