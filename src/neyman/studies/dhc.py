"""The Demographic and Housing Characteristics levels: one exact curve against two conversions.

At each level of place n counting queries share a zCDP budget rho equally and get discrete Gaussian
noise with sigma^2 = n / (2 rho). One cell of each query moves by one, as the paper has it; under
replace-one neighbors two do, and the same noise is worth more than that epsilon.

Source: Su, Su and Wang 2024, "The 2020 United States decennial census is more private than you
(might) think"; the March and August 2022 allocations.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from neyman.accounting.calibrate import calibrate_exact
from neyman.accounting.conversions import (
    bun_steinke,
    canonne_kamath_steinke_zcdp,
    optimal,
)
from neyman.core.families import approximate, zcdp
from neyman.mechanisms.additive import DiscreteGaussian
from neyman.mechanisms.algebra import Mechanism
from neyman.numerics.bound import Bound
from neyman.studies.facts import PUBLISHED

__all__ = ["ALLOCATIONS", "DELTA", "Epsilons", "Level"]

DELTA = 1e-11


@dataclass(frozen=True)
class Epsilons:
    """The epsilon of one level at delta 1e-11, by who computes it.

    Args:
        bun_steinke: from zCDP, rho + 2 sqrt(rho log(1 / delta)).
        canonne_kamath_steinke: from zCDP, the best order of theirs.
        optimal: from zCDP, by all that it implies: the best conversion that there is.
        exact: of the noise itself, one cell of each query moving.
        two_cells: of the noise itself, two cells moving: replace-one neighbors.
    """

    bun_steinke: Bound
    canonne_kamath_steinke: Bound
    optimal: Bound
    exact: Bound
    two_cells: Bound

    @property
    def reduction(self) -> tuple[float, float]:
        """Bounds on the percentage by which the exact epsilon is below Bun and Steinke's."""
        high = self.bun_steinke
        return (
            100 * (1 - self.exact.upper / high.lower),
            100 * (1 - self.exact.lower / high.upper),
        )

    @property
    def by_conversion(self) -> float:
        """About what share of that a better conversion of the same zCDP brings, in [0, 1]."""
        best = self.bun_steinke.upper - self.optimal.upper
        return best / (self.bun_steinke.upper - self.exact.upper)


@dataclass(frozen=True)
class Level:
    """One level of place, taken alone.

    Args:
        place: its name.
        rho: its zCDP budget, exact: that of one moving cell a query.
        count: how many queries share it.
    """

    place: str
    rho: Fraction
    count: int

    @property
    def sigma_squared(self) -> Fraction:
        """That of each query."""
        return self.count / (2 * self.rho)

    def release(self, cells: int = 1, sigma_squared: Fraction | None = None) -> Mechanism:
        """All its queries.

        Args:
            cells: how many cells of each query move by one: 1, or 2 under replace-one neighbors.
            sigma_squared: other noise than its own.
        """
        noise = self.sigma_squared if sigma_squared is None else sigma_squared
        return DiscreteGaussian(sigma_squared=noise, sensitivity=[(1,) * cells]) * self.count

    @cached_property
    def epsilons(self) -> Epsilons:
        """What it comes to at delta 1e-11."""
        return Epsilons(
            bun_steinke(self.rho, DELTA),
            canonne_kamath_steinke_zcdp(self.rho, DELTA),
            optimal(zcdp(self.rho), DELTA),
            self.release().tradeoff().epsilon(DELTA),
            self.release(2).tradeoff().epsilon(DELTA),
        )

    def noise_saved(self, epsilon: float) -> float:
        """The percentage by which sigma^2 can fall and still keep (epsilon, 1e-11), certified.

        Args:
            epsilon: the guarantee to keep, at least its own.
        """
        needed = calibrate_exact(
            lambda noise: self.release(sigma_squared=noise), approximate(epsilon, DELTA),
            start=float(self.sigma_squared),
        )  # fmt: skip
        return 100 * float(1 - needed / self.sigma_squared)


def _levels(facts: dict[str, Any]) -> tuple[Level, ...]:
    (key,) = (name for name in facts if name.startswith("shares_per_"))
    whole = Fraction(str(facts["rho"])) / int(key.removeprefix("shares_per_"))
    return tuple(Level(place, share * whole, facts["n"]) for place, share in facts[key].items())


ALLOCATIONS: dict[str, tuple[Level, ...]] = {
    when: _levels(PUBLISHED["dhc_f_dp"][when]) for when in ("march_2022", "august_2022")
}
