"""Integers with rounded normal noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.rounded_gaussian import rounded_gaussian_loss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import UNLESS_NORM, exact_variance
from neyman.numerics import check

LEAST, MOST = Fraction(1, 10**4), Fraction(10) ** 30  # of sigma^2, as for the discrete Gaussian


@dataclass(frozen=True)
class Limits:
    """How far a record may move a release with rounded noise."""

    shift_units: int = 10**13  # one unit may move a cell of a plan by 10^12
    mu_squared: int = 10**12


LIMITS = Limits()


@dataclass(frozen=True, init=False)
class RoundedGaussian(Mechanism):
    """Integers with normal noise of standard deviation sigma, rounded to whole numbers.

    For an integer x, round(x + Z) = x + round(Z), so the release is a Gaussian one that was
    rounded. Its curve is at least G_mu, mu = |shift| / sigma, for every integer shift of this l2
    norm, in any dimension, composed or on samples, also where later queries depend on earlier
    answers: no list of shift vectors is needed. Rounding adds about 1/12 to the variance.

    Args:
        sigma: standard deviation before rounding, above 0; a float is read as the decimal that it
            prints.
        sensitivity: how far one coordinate moves between neighbors, a whole number, at least 0.
        sigma_squared: sigma^2, exact, instead of sigma; from 1e-4 to 1e30.
        squared_norm: the largest squared l2 norm of a shift, at least 1, instead of
            ``sensitivity``, where several coordinates move.

    One release with one coordinate and a small sigma is exact; ``.upper`` is the Gaussian's
    elsewhere, and ``.lower`` a test of integer thresholds. `rho()` is mu^2 / 2, exact.
    `neyman.noise.rounded_gaussian` draws it.

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
        if not LEAST <= exact <= MOST:
            raise ValueError(f"sigma^2 = {float(exact):g} must be between 1e-4 and 1e30")
        moved = check.integer("sensitivity", sensitivity)
        if squared_norm is not None:
            if sensitivity != 1:
                raise ValueError("give at most one of sensitivity= and squared_norm=")
            squared_norm = check.integer("squared_norm", squared_norm, 1)
        squared = moved**2 if squared_norm is None else squared_norm
        if squared > LIMITS.shift_units**2 or squared > LIMITS.mu_squared * exact:
            raise ValueError(
                f"the squared shift {squared} must be at most 1e26, and at most 1e12 sigma^2: "
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
        """One sum: the losses of coordinates whose squared shifts add up to the squared norm."""
        alone = self.squared_norm is None
        return (
            Composition.of(
                (rounded_gaussian_loss(self.sigma_squared, shift, alone=alone), 1)
                for shift in _squares(self.squared)
            ),
        )

    def rho(self) -> Fraction:
        """mu^2 / 2, that of the normal noise (Bun and Steinke 2016, proposition 1.6)."""
        return Fraction(self.squared) / (2 * self.sigma_squared)


def _squares(total: int) -> list[int]:
    """Whole numbers of at least 1 whose squares add up to this, the largest first."""
    numbers: list[int] = []
    while total:
        numbers.append(math.isqrt(total))
        total -= numbers[-1] ** 2
    return numbers
