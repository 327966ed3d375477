"""Represent one integer table of a plan: how far one unit can move it, and its noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import isqrt
from typing import TypeAlias

from neyman.curves.tradeoff.tradeoff import LIMITS as TRADEOFF_LIMITS
from neyman.mechanisms.additive import DiscreteGaussian, Gaussian
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.choice import Alternatives
from neyman.mechanisms.full_disclosure import NonPrivate
from neyman.mechanisms.inverse_sensitivity import InverseSensitivity
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.numerics.relation import Relation
from neyman.publishing.plan.shifts import LIMITS as SHIFTS_LIMITS
from neyman.publishing.plan.shifts import Shifts


@dataclass(frozen=True)
class Entry:
    """Represent one integer table to publish: one part of a query's measure, at one level.

    Args:
        measure: "count" (of rows; by bin for a histogram and for quantiles), "units", "sum",
            "offset" (distance of values above the middle of their clip, in halves if the middle is
            a half-integer: see `query.middle`), "square" (about the middle, rounded down,
            in units of `query.square_unit`), or "keys": units by unknown keys. A mean has an offset
            and a count. A variance also has a square.
        cells: number of cells; None if keys are unknown.
        share: exact part of the whole budget; 0 for a declared value.
        shifts: the maximal vectors of absolute changes in the cells when one unit changes; empty if
            there are too many to list.
        public: the declared value of a table without noise.
        squared: the largest squared l2 norm of a shift, times ``draws``.
        keys: the largest number of unknown keys with rows of one unit.
        draws: for "rank", the number of draws from each group, else 1. The shifts of
            "rank" are rank changes in units of `query.rank_unit`.
        delta: the largest allowed probability of publishing a key of a single unit.
        relation: "replace-one" or "add-remove": the relation on which the failure depends.
        searched: True if the clip is derived from a histogram. Then the noise is proportional to
            the clip, and the claimed curve is the Gaussian's, equal for all clips [UN-9].
    """

    query: str
    level: str
    measure: str
    cells: int | None
    share: Fraction
    shifts: tuple[tuple[int, ...], ...]
    public: int | None = None
    squared: int = 0
    keys: int = 0
    delta: Fraction | None = None
    relation: Relation = "any"
    draws: int = 1
    rounded: bool = False
    searched: bool = False

    @property
    def failure(self) -> Fraction:
        """Return the probability of publishing a key of only one unit: 0 for known keys [UN-4]."""
        return failure(self.delta, self.keys) if self.delta is not None else Fraction(0)

    def moved(self, shifts: Shifts) -> Entry:
        """Return the table with these shifts, of a change that keeps the record in the dataset."""
        relation = "any" if self.delta is None else "replace-one"
        return replace(
            self, shifts=shifts.vectors, squared=self.draws * shifts.squared, relation=relation
        )

    def sigma_squared(self, scale: Fraction) -> Fraction:
        """Return sigma^2 = squared * scale / (2 share) of the noise, or 0 for a declared value.

        With ``scale`` = 1/rho, the table costs share * rho in zCDP. A quantile is drawn by the
        exponential mechanism with rate 1/sigma. If its rank moves by v, the privacy loss has the
        range 2 v / sigma, which costs v^2 / (2 sigma^2), as Gaussian noise does.
        """
        return Fraction(0) if self.public is not None else self.squared * scale / (2 * self.share)

    def noise(self, sigma_squared: Fraction, *, listed: bool = True) -> Mechanism:
        """Return the mechanism that publishes the table.

        Args:
            listed: True to claim the trade-off curve of the listed shifts. If False, or if there
                are too many shifts to list, claim only the rho-zCDP that the largest l2 norm
                proves. Rounded Gaussian noise needs no list [RG-1].
        """
        if self.measure == "rank":
            rate = rate_of(sigma_squared)
            if self.shifts and (listed or len(self.shifts) == 1):
                return InverseSensitivity(rate, self.shifts, draws=self.draws)
            norm = self.squared // self.draws
            return InverseSensitivity(rate, draws=self.draws, squared_norm=norm)
        if self.rounded:
            one = len(self.shifts) == 1 == len(self.shifts[0]) and not self.searched
            moved = {"sensitivity": self.shifts[0][0]} if one else {"squared_norm": self.squared}
            noise: Mechanism = RoundedGaussian(sigma_squared=sigma_squared, **moved)
        elif self.shifts and (listed or len(self.shifts) == 1):
            noise = DiscreteGaussian(sigma_squared=sigma_squared, sensitivity=self.shifts)
        else:
            noise = DiscreteGaussian(sigma_squared=sigma_squared, squared_norm=self.squared)
        if self.delta is None:
            return noise
        return noise + NonPrivate(self.failure, self.relation)


Calibrated: TypeAlias = Sequence[tuple[Entry, Fraction]]
"""Tables of integers, each with the sigma squared of its noise."""

Cases: TypeAlias = Sequence[Sequence[Entry]]  # entries that move together, by case [UN-11]


def rate_of(sigma_squared: Fraction) -> Fraction:
    """Return 1/sigma, rounded down to fifteen digits, so that the budget is never exceeded."""
    inverse = 1 / sigma_squared
    places = 20 + max(0, len(str(sigma_squared.numerator // sigma_squared.denominator)))
    root = isqrt(inverse.numerator * 100**places // inverse.denominator)
    return Fraction(Context(prec=15, rounding=ROUND_FLOOR).divide(Decimal(root), 10**places))


def failure(delta: Fraction, keys: int) -> Fraction:
    """Return 1 - (1 - delta)^keys, rounded up to 15 digits: the chance that any key appears."""
    exact = 1 - (1 - delta) ** keys
    context = Context(prec=40, rounding=ROUND_CEILING)
    above = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return min(Fraction(Context(prec=15, rounding=ROUND_CEILING).plus(above)), Fraction(1))


def fitting_delta(limit: Fraction, keys: int) -> str:
    """Return a delta, as text, for which `failure` of ``keys`` keys is at most ``limit``."""
    places = next(k for k in range(1, 301) if 2 * keys * Fraction(1, 10**k) <= limit)
    return f"1e-{places}"


def listed(entries: Iterable[Entry]) -> bool:
    """Return True if a release of these tables claims the trade-off curves of listed shifts.

    Return False if keys are discovered and the shifts allow too many combinations. The release then
    claims only the sum of rho, and the probability that a key is revealed.
    """
    entries = list(entries)
    if all(entry.delta is None for entry in entries):
        return True
    return math.prod(max(1, len(entry.shifts)) for entry in entries) <= TRADEOFF_LIMITS.alternatives


def together(parts: Calibrated) -> Mechanism:
    """Return the mechanism that publishes several tables, each with its sigma squared."""
    curves = listed(entry for entry, _ in parts)
    total = Mechanism.nothing()
    for entry, sigma_squared in parts:
        total = total + entry.noise(sigma_squared, listed=curves)
    return total


def at_scale(entries: Iterable[Entry], scale: Fraction) -> Mechanism:
    """Return the mechanism that publishes the tables, with the noise for 1/rho = ``scale``."""
    return together([(entry, entry.sigma_squared(scale)) for entry in _noisy_entries(entries)])


def normal_at_scale(entries: Iterable[Entry], scale: Fraction) -> Mechanism:
    """Return the mechanism of `at_scale` with normal noise instead of rounded noise [RG-1]."""
    measured = _noisy_entries(entries)
    share = sum((entry.share for entry in measured if entry.rounded), Fraction(0))
    total = Gaussian(sigma=math.sqrt(scale / (2 * share))) if share else Mechanism.nothing()
    for entry in measured:
        if not entry.rounded:
            total = total + together([(entry, entry.sigma_squared(scale))])
        elif entry.delta is not None:
            total = total + NonPrivate(entry.failure, entry.relation)
    return total


def calibrates_as_normal(entries: Iterable[Entry]) -> bool:
    """Return True if rounded noise in the release is calibrated as normal noise.

    This holds if a table has rounded noise, unless the release's only listed shift moves one cell.
    """
    measured = _noisy_entries(entries)
    single = [len(vector) for entry in measured for vector in entry.shifts] == [1]
    return not single and any(entry.rounded for entry in measured)


def claims_rho_alone(cases: Cases) -> bool:
    """Return True if a case of ``cases`` has too many shifts, or combinations of them, to list.

    The release then claims only rho and the curve that rho implies.
    """
    # Rounded noise has a curve for all shifts of one norm.
    listed_ones = [[e for e in _noisy_entries(entries) if not e.rounded] for entries in cases]
    measured = [entry for entries in listed_ones for entry in entries]
    if not all(entry.shifts for entry in measured):
        return True
    if (
        sum(math.prod(len(e.shifts) for e in entries) for entries in listed_ones)
        <= SHIFTS_LIMITS.vectors
    ):
        return False  # no listed entry is measured, or their combinations can be listed
    least = max(2 * entry.share / entry.squared for entry in measured)  # sigma is at least 1
    losses = Alternatives.of(at_scale(entries, least) for entries in listed_ones).losses()
    return any(composition.bare is not None for composition in losses)


def _noisy_entries(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.public is None]
