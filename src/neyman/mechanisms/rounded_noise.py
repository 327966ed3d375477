"""Describe normal noise that is added to integers and rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.rounded_gaussian import rounded_gaussian_loss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import UNLESS_NORM, exact_variance
from neyman.numerics import check


@dataclass(frozen=True, init=False)
class RoundedGaussian(Mechanism):
    """Add normal noise of standard deviation sigma to integers, and round to integers.

    For an integer x, round(x + Z) = x + round(Z), so the release is a rounded Gaussian release. Its
    curve is at least G_mu, mu = |shift| / sigma, for every integer shift of this l2 norm in any
    dimension. This also holds for compositions, for samples, and if later queries depend on earlier
    answers. So no list of shift vectors is needed. Rounding adds about 1/12 to the variance.

    Args:
        sigma: standard deviation before rounding, above 0. A float is read as the decimal that it
            prints.
        sensitivity: largest shift of one coordinate between neighbors, an integer, at least 0.
        sigma_squared: sigma^2, exact, instead of sigma; from 1e-4 to 1e30.
        squared_norm: the largest squared l2 norm of a shift, at least 1, instead of
            ``sensitivity``, if several coordinates move.

    The curve is exact for one release with one coordinate and a small sigma. Otherwise ``.upper``
    is the Gaussian bound, and ``.lower`` comes from a test with integer thresholds. `rho()` is
    exactly mu^2 / 2. `neyman.noise.rounded_gaussian` draws the noise.

    Examples:
        >>> import neyman as ny
        >>> f = ny.RoundedGaussian(2, squared_norm=4).tradeoff()  # a person in four cells
        >>> round(float(f.gdp()), 6), f >= ny.gdp(1)
        (1.0, True)
        >>> round(float(ny.RoundedGaussian(1).tradeoff().delta(0.5)), 4)  # the Gaussian has 0.2384
        0.1984

    Source: Dong, Roth and Su 2022, theorem 2.7 and lemma 2.2 (post-processing); [RG-1], [RG-2].
    """

    RELATION = "any"

    sigma_squared: Fraction
    sensitivity: int = field(metadata=UNLESS_NORM)
    squared_norm: int | None = None

    def __init__(
        self,
        sigma: float | Fraction | str | None = None,
        sensitivity: int = 1,
        *,
        sigma_squared: float | Fraction | str | None = None,
        squared_norm: int | None = None,
    ) -> None:
        exact = exact_variance(sigma, sigma_squared)
        moved = check.integer("sensitivity", sensitivity)
        if squared_norm is not None:
            if moved != 1:
                raise ValueError("give at most one of sensitivity= and squared_norm=")
            squared_norm = check.integer("squared_norm", squared_norm, 1)
        squared = moved**2 if squared_norm is None else squared_norm
        if squared > 10**26 or squared > 10**12 * exact:
            raise ValueError(
                "the squared sensitivity, or squared_norm, must be at most 1e26, and at most "
                f"1e12 sigma^2, and is {check.shortened(str(squared))}: "
                "count in larger units, or add more noise"
            )
        self._keep(sigma_squared=exact, sensitivity=moved, squared_norm=squared_norm)

    @property
    def sigma(self) -> float:
        """Return sigma as a float."""
        return math.sqrt(self.sigma_squared)

    @property
    def squared(self) -> int:
        """Return the largest squared l2 norm of a shift."""
        return self.sensitivity**2 if self.squared_norm is None else self.squared_norm

    def losses(self) -> tuple[Composition, ...]:
        """Return one sum of losses, for coordinates whose squared shifts add up to `squared`."""
        alone = self.squared_norm is None
        return (
            Composition.of(
                (rounded_gaussian_loss(self.sigma_squared, shift, alone=alone), 1)
                for shift in _squares(self.squared)
            ),
        )

    def rho(self) -> Fraction:
        """Return mu^2 / 2 of the normal noise (Bun and Steinke 2016, proposition 1.6)."""
        return Fraction(self.squared) / (2 * self.sigma_squared)


def _squares(total: int) -> list[int]:
    """Return positive integers whose squares add up to ``total``, the largest first."""
    numbers: list[int] = []
    while total:
        numbers.append(math.isqrt(total))
        total -= numbers[-1] ** 2
    return numbers
