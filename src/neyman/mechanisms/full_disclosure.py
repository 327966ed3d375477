"""Mechanisms that reveal a record outright, with some probability."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import LIMITS as DESCRIPTION_LIMITS
from neyman.mechanisms.description import PROBABILITY, integer, rational
from neyman.numerics.relation import RELATIONS, Relation


@dataclass(frozen=True)
class NonPrivate(Mechanism):
    """A non-private release: with probability ``rate`` it reveals everything about the record.

    Args:
        rate: 0, or from 1e-300 to 1; 1 hides nothing, 0 uses nothing.
        relation: what the rate depends on: under "add-remove" an outcome without the record may
            come from either neighbor, and is the likelier without it; under "replace-one" it says
            nothing. "any" goes with the rates 0 and 1.

    Examples:
        >>> import neyman as ny
        >>> float(ny.NonPrivate().tradeoff().power(level=0.05))
        1.0
    """

    rate: float | Fraction = field(default=1, metadata=PROBABILITY)
    relation: Relation = "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        undecided = self.relation == "any" and 0 < self.rate < 1
        if self.relation not in RELATIONS or undecided:
            raise ValueError(
                f"relation = {self.relation!r} must be 'add-remove' or 'replace-one' where "
                f"rate = {self.rate!r} is between 0 and 1"
            )

    @property
    def neighboring(self) -> Relation:
        """Return the neighboring relation of the rate."""
        return self.relation

    def losses(self) -> tuple[Composition, ...]:
        """Infinite with probability ``rate``, else log(1 - rate), or 0 under replace-one."""
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
            ValueError: unless the rate is 0.
        """
        if not self.rate:
            return Fraction(0)
        raise ValueError(f"rate = {self.rate!r}: what reveals everything has no zCDP parameter")

    def revealed(self) -> Fraction:
        """Return the probability that everything is revealed; otherwise nothing is."""
        return rational(self.rate)


@dataclass(frozen=True)
class RandomSubset(Mechanism):
    """Release a random subset of the records themselves.

    Args:
        size: how many records are released, at least 0; all subsets of this size are as likely.
        population: of how many, from 1 to 1e18 and at least ``size``.

    A replaced record is among them with probability size / population, and then all of it is
    known; otherwise nothing is. So it is (0, size / population)-DP, exactly, under replace-one,
    and neither epsilon nor any Renyi parameter is finite: a ledger charges a delta for it.

    Examples:
        >>> import neyman as ny
        >>> f = ny.RandomSubset(size=10, population=1000).tradeoff()
        >>> round(float(f.delta(epsilon=5)), 6), float(f.pure())
        (0.01, inf)
    """

    RELATION = "replace-one"

    size: int = field(metadata=integer())
    population: int = field(metadata=integer(1, DESCRIPTION_LIMITS.count))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size > self.population:
            raise ValueError(
                f"size = {self.size} must be at most population = {self.population}: no record is "
                "released twice"
            )

    def losses(self) -> tuple[Composition, ...]:
        """Infinite with probability size / population, else 0."""
        return NonPrivate(self.revealed(), self.neighboring).losses()

    def rho(self) -> Fraction:
        """Return 0 at size 0; no other size has a finite rho.

        Raises:
            ValueError: unless the size is 0.
        """
        if not self.size:
            return Fraction(0)
        raise ValueError(f"size = {self.size}: what reveals records has no zCDP parameter")

    def revealed(self) -> Fraction:
        """Return the probability that a record is revealed; otherwise nothing is."""
        return Fraction(self.size, self.population)
