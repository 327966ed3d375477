"""Mechanisms that draw at random what they do: mixtures, and what is not private at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.mixture import GaussianMixtureLoss, MixtureLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.subsampled import SubsampledGaussianLoss
from neyman.mechanisms.base import (
    MOST_COUNT,
    Mechanism,
    probability,
)
from neyman.numerics import check
from neyman.numerics.canonical_order import order_key
from neyman.numerics.relation import RELATIONS, Relation, unified

__all__ = ["Choice", "GaussianMixture", "NonPrivate", "RandomSubset"]

SUM_SLACK = 1e-9  # by which probabilities that were given as floats may miss one


@dataclass(frozen=True, init=False)
class GaussianMixture(Mechanism):
    """Normal noise around a shift drawn at random: sum p_i N(c_i, sigma^2) and N(0, sigma^2).

    Args:
        sigma: standard deviation, above 0.
        sensitivities: the possible shifts c_i, at least 0, same units; the same one may come twice.
        probabilities: p_i, same length, with sum 1, each 0 or at least 1e-300.

    The shift is there with a record and not without it: the relation is add-remove. Poisson
    subsampling of a Gaussian is the mixture with shifts (0, sensitivity).

    Examples:
        >>> import neyman as ny
        >>> sampled = ny.GaussianMixture(sigma=1, sensitivities=[0, 1], probabilities=[0.99, 0.01])
        >>> round(float((sampled * 1000).tradeoff().epsilon(delta=1e-5)), 3)
        1.828

    Source: Choquette-Choo et al. 2024, "Privacy amplification for matrix mechanisms".
    """

    sigma: float | Fraction
    sensitivities: tuple[float | Fraction, ...]
    probabilities: tuple[float | Fraction, ...]

    def __init__(
        self,
        sigma: float | Fraction,
        sensitivities: Iterable[float | Fraction],
        probabilities: Iterable[float | Fraction],
    ) -> None:
        check.positive("sigma", sigma)
        shifts = tuple(
            check.number("sensitivities", c) for c in check.several("sensitivities", sensitivities)
        )
        shares = tuple(
            probability("probabilities", p) for p in check.several("probabilities", probabilities)
        )
        if len(shifts) != len(shares) or not shifts:
            raise ValueError(
                f"sensitivities has {len(shifts)} entries and probabilities {len(shares)}: give as "
                "many of one as of the other, at least one"
            )
        for c in shifts:
            check.non_negative("sensitivities", c)
        check_sum("probabilities", shares)
        ratio = max(map(float, shifts)) / float(sigma)
        if ratio and not 1e-150 < ratio <= MOST_DISTANCE:
            raise ValueError(
                f"sensitivities / sigma = {ratio:g} must be 0, or from 1e-150 to {MOST_DISTANCE:g}"
            )
        object.__setattr__(self, "sigma", check.number("sigma", sigma))
        object.__setattr__(self, "sensitivities", shifts)
        object.__setattr__(self, "probabilities", shares)

    @property
    def neighboring(self) -> Relation:
        """ "add-remove": the shift is there with the record only."""
        return "add-remove"

    def losses(self) -> tuple[Composition, ...]:
        """One loss; a Gaussian one for a single shift, a sampled one for none and another."""
        sigma = float(self.sigma)
        gathered: dict[float, float] = {}
        for c, p in zip(self.sensitivities, self.probabilities, strict=True):
            distance = float(c) / sigma
            gathered[distance] = gathered.get(distance, 0.0) + float(p)
        shifts = sorted((c, p) for c, p in gathered.items() if p > 0)
        if len(shifts) == 1:
            distance = shifts[0][0]
            return (Composition.of([(GaussianLoss(distance**2), 1)] if distance else []),)
        distances, weights = zip(*shifts, strict=True)
        total = math.fsum(weights)
        shares = tuple(w / total for w in weights)
        if len(shares) == 2 and distances[0] == 0:
            return (Composition.of([(SubsampledGaussianLoss(distances[1], shares[1], True), 1)]),)
        return (Composition.of([(GaussianMixtureLoss(distances, shares, True), 1)]),)

    def rho(self) -> Fraction:
        """That of the largest shift: a mixture is a noisier view of it."""
        largest = max(check.exact("sensitivities", c) for c in self.sensitivities)
        return (largest / check.exact("sigma", self.sigma)) ** 2 / 2


MOST_DISTANCE = 1e3  # beyond it nothing is hidden anyway


@dataclass(frozen=True)
class Choice(Mechanism):
    """One of several mechanisms, drawn by a coin that everyone sees.

    Args:
        parts: (probability, mechanism), the probabilities above 0 with sum 1; each mechanism has
            one loss (a leaf, or a subsampled one).

    That everyone sees the coin is the worst case: it bounds a mechanism that keeps it to itself.
    """

    parts: tuple[tuple[float, Mechanism], ...]

    def __post_init__(self) -> None:
        for p, _ in self.parts:
            check.positive("probability", probability("probability", p))
        check_sum("probability", [p for p, _ in self.parts])
        _ = self.neighboring
        self.losses()

    @property
    def neighboring(self) -> Relation:
        """The one relation of all parts."""
        relation = "any"
        for _, mechanism in self.parts:
            relation = unified(relation, mechanism.neighboring)
        return relation

    def losses(self) -> tuple[Composition, ...]:
        """The choice between the parts' losses."""
        shares: dict[Part, float] = {}
        for p, mechanism in self.parts:
            loss = _only_loss(mechanism)
            shares[loss] = shares.get(loss, 0.0) + p
        if len(shares) == 1:
            return (Composition.of([(next(iter(shares)), 1)]),)
        total = math.fsum(shares.values())
        parts = sorted(((p / total, loss) for loss, p in shares.items()), key=order_key)
        return (Composition.of([(MixtureLoss(tuple(parts)), 1)]),)

    def rho(self) -> Fraction:
        """The largest of the parts'."""
        return max(mechanism.rho() for _, mechanism in self.parts)

    def _fields(self) -> dict[str, Any]:
        return {"parts": [{"probability": p, "mechanism": m.to_dict()} for p, m in self.parts]}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> Choice:
        return cls(
            tuple((p["probability"], Mechanism.from_dict(p["mechanism"])) for p in fields["parts"])
        )


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

    rate: float | Fraction = 1
    relation: Relation = "any"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", probability("rate", self.rate))
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
        return check.exact("rate", self.rate)


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

    size: int
    population: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check.integer("size", self.size))
        object.__setattr__(self, "population", check.integer("population", self.population, 1))
        if self.size > self.population:
            raise ValueError(
                f"size = {self.size} must be at most population = {self.population}: no record is "
                "released twice"
            )
        if self.population > MOST_COUNT:
            raise ValueError(f"population = {self.population!r} must be at most {MOST_COUNT:g}")

    @property
    def neighboring(self) -> Relation:
        """ "replace-one": the number of records stays."""
        return "replace-one"

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


def check_sum(name: str, shares: Iterable[float | Fraction]) -> None:
    """Refuse probabilities that do not add up to one."""
    total = math.fsum(map(float, shares))
    if abs(total - 1) > SUM_SLACK:
        raise ValueError(f"{name}: they add up to {total!r} and must add up to 1")


def _only_loss(mechanism: Mechanism) -> Part:
    (composition, *more) = mechanism.losses()
    if more or len(composition.parts) > 1 or any(n > 1 for _, n in composition.parts):
        raise ValueError(f"mechanism = {mechanism!r} must have one loss to be chosen among others")
    return composition.parts[0][0] if composition.parts else FiniteLoss(Fraction(1), (0,), (0.0,))
