"""Describe mechanisms that reveal a whole record with some probability."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import COUNT, PROBABILITY, integer, rational
from neyman.numerics import check
from neyman.numerics.relation import RELATIONS, Relation


@dataclass(frozen=True)
class NonPrivate(Mechanism):
    """Reveal everything about the record with probability ``rate``.

    Args:
        rate: 0, or from 1e-300 to 1. Rate 1 hides nothing, and rate 0 does not use the record.
        relation: the neighboring relation. Under "add-remove", a release that does not reveal the
            record is likelier for the neighbor without it. Under "replace-one", such a release
            reveals nothing. Use "any" only with the rates 0 and 1.

    Examples:
        >>> import neyman as ny
        >>> float(ny.NonPrivate().tradeoff().power(level=0.05))
        1.0
    """

    rate: float | Fraction = field(default=1, metadata=PROBABILITY)
    relation: Relation = "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.one_of("relation", self.relation, RELATIONS)
        if self.relation == "any" and 0 < self.rate < 1:
            raise ValueError(
                f"relation = {self.relation!r} must be 'add-remove' or 'replace-one' if rate = "
                f"{self.rate!r} is between 0 and 1"
            )

    @property
    def neighboring(self) -> Relation:
        """Return the declared relation."""
        return self.relation

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, which is infinite with probability ``rate``.

        Otherwise the loss is log(1 - rate), or 0 under replace-one.
        """
        rate = float(self.rate)
        if rate in (0.0, 1.0):
            return (Composition.of([(NonPrivateLoss(), 1)] if rate else []),)
        log_finite = math.log1p(-rate)
        if self.relation == "replace-one":
            loss = FiniteLoss(Fraction(1), (0,), (log_finite,), rate, rate)
        else:
            loss = FiniteLoss(Fraction(-log_finite), (-1,), (log_finite,), rate, 0.0)
        return (Composition.of([(loss, 1)]),)

    def rho(self) -> Fraction:
        """Return 0 at rate 0; no other rate has a finite rho.

        Raises:
            ValueError: the rate is not 0.
        """
        if not self.rate:
            return Fraction(0)
        raise ValueError(f"rate = {self.rate!r}: a full disclosure has no zCDP parameter")

    def revealed(self) -> Fraction:
        """Return the probability that the release reveals everything, instead of nothing."""
        return rational(self.rate)


@dataclass(frozen=True)
class RandomSubset(Mechanism):
    """Release a random subset of the records themselves.

    Args:
        size: number of released records, at least 0. All subsets of this size are equally likely.
        population: number of all records, from 1 to 1e18 and at least ``size``.

    The release reveals all of a record with probability size / population, and otherwise nothing.
    So it is exactly (0, size / population)-DP under replace-one. It has no finite pure epsilon or
    Renyi parameter: a ledger charges a delta for it.

    Examples:
        >>> import neyman as ny
        >>> f = ny.RandomSubset(size=10, population=1000).tradeoff()
        >>> round(float(f.delta(epsilon=5)), 6), float(f.pure())
        (0.01, inf)
    """

    RELATION = "replace-one"

    size: int = field(metadata=integer())
    population: int = field(metadata=COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size > self.population:
            raise ValueError(
                f"size = {self.size} must be at most population = {self.population}: no record is "
                "released twice"
            )

    def losses(self) -> tuple[Composition, ...]:
        """Return the loss: infinite with probability size / population, else 0."""
        return NonPrivate(self.revealed(), self.neighboring).losses()

    def rho(self) -> Fraction:
        """Return 0 at size 0; no other size has a finite rho.

        Raises:
            ValueError: the size is not 0.
        """
        if not self.size:
            return Fraction(0)
        raise ValueError(f"size = {self.size}: a release of records has no zCDP parameter")

    def revealed(self) -> Fraction:
        """Return the probability that the release reveals the record."""
        return Fraction(self.size, self.population)
