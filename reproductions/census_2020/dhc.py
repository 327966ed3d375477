"""The Demographic and Housing Characteristics: one exact curve against two conversions.

An allocation divides a zCDP budget among eight levels of place. At each level n counting queries
share that level's rho equally and get discrete Gaussian noise with sigma^2 = n / (2 rho). One cell
of each query moves by one, as in the paper. Under replace-one neighbors two cells move, and the
same noise gives a larger epsilon. One record moves the queries of all levels, so the release has
8 n queries: 72 in March 2022 and 80 in August 2022.

Source: Su, Su and Wang 2024, "The 2020 United States decennial census is more private than you
(might) think"; the March and August 2022 allocations. The level between the county and the tract
subset group, the Bureau's "Prim", has the tract subset group's share in both: the strategies of
August 2022 in the Bureau's production code give both levels the same share, and with it the shares
sum to 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from neyman import Bound, DiscreteGaussian, Mechanism, approximate, zcdp
from neyman.accounting import calibrate_exact
from neyman.accounting.literature.conversions import (
    bun_steinke,
    canonne_kamath_steinke_zcdp,
    optimal,
)
from neyman.mechanisms import Composed
from reproductions.facts import PUBLISHED

__all__ = ["ALLOCATIONS", "DELTA", "Allocation", "Epsilons", "Level"]

DELTA = 1e-11


@dataclass(frozen=True)
class Epsilons:
    """The epsilon of a level, or of all levels, at delta 1e-11, by who computes it.

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


class _Priced(ABC):
    """Discrete Gaussian noise of a known zCDP budget: a level, or an allocation."""

    rho: Fraction

    @abstractmethod
    def release(self, cells: int = 1, noise: Fraction = Fraction(1)) -> Mechanism:
        """Return the mechanism of all queries; see `Level.release`."""

    @cached_property
    def epsilons(self) -> Epsilons:
        """The epsilons at delta 1e-11."""
        return Epsilons(
            bun_steinke(self.rho, DELTA),
            canonne_kamath_steinke_zcdp(self.rho, DELTA),
            optimal(zcdp(self.rho), DELTA),
            self.release().tradeoff().epsilon(DELTA),
            self.release(2).tradeoff().epsilon(DELTA),
        )

    def noise_saved(self, epsilon: float) -> float:
        """Return the percentage by which all sigma^2 can fall and still meet (epsilon, 1e-11).

        Args:
            epsilon: the guarantee to meet, at least the exact one.

        Returns:
            A certified percentage: with the noise that is left the guarantee holds.
        """
        left = calibrate_exact(
            lambda noise: self.release(noise=noise), approximate(epsilon, DELTA), start=1.0
        )
        return 100 * float(1 - left)


@dataclass(frozen=True)
class Level(_Priced):
    """One level of place, taken alone.

    Args:
        place: its name.
        share: its share of the allocation's budget, in (0, 1).
        rho: its zCDP budget, exact: that of one moving cell per query.
        count: how many queries share it.
    """

    place: str
    share: Fraction
    rho: Fraction
    count: int

    @property
    def sigma_squared(self) -> Fraction:
        """The variance parameter of each query's noise."""
        return self.count / (2 * self.rho)

    def release(self, cells: int = 1, noise: Fraction = Fraction(1)) -> Mechanism:
        """Return the mechanism of the level's queries.

        Args:
            cells: how many cells of each query move by one: 1, or 2 under replace-one neighbors.
            noise: a factor on sigma^2, above 0.
        """
        sigma_squared = self.sigma_squared * noise
        return DiscreteGaussian(sigma_squared=sigma_squared, sensitivity=[(1,) * cells]) * (
            self.count
        )


@dataclass(frozen=True)
class Allocation(_Priced):
    """All levels of place together: one record moves the queries of each.

    Args:
        rho: the zCDP budget that the levels share, exact.
        levels: from the nation to the block; their shares sum to 1.
    """

    rho: Fraction
    levels: tuple[Level, ...]

    @property
    def count(self) -> int:
        """The number of queries of all levels."""
        return sum(level.count for level in self.levels)

    def release(self, cells: int = 1, noise: Fraction = Fraction(1)) -> Mechanism:
        """Return the mechanism of all queries of all levels; see `Level.release`."""
        return Composed.of([(level.release(cells, noise), 1) for level in self.levels])


def _allocation(facts: dict[str, Any]) -> Allocation:
    (key,) = (name for name in facts if name.startswith("shares_per_"))
    rho, parts = Fraction(str(facts["rho"])), int(key.removeprefix("shares_per_"))
    shares = {place: Fraction(share, parts) for place, share in facts[key].items()}
    levels = (Level(place, share, share * rho, facts["n"]) for place, share in shares.items())
    return Allocation(rho, tuple(levels))


ALLOCATIONS: dict[str, Allocation] = {
    when: _allocation(PUBLISHED["dhc_f_dp"][when]) for when in ("march_2022", "august_2022")
}
