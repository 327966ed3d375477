"""One table of integers of a plan: how far one unit can move it, and the noise that it gets."""

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
    """One table of integers to publish: a query at a level, or one of the parts of a measure.

    Args:
        measure: "count" (of rows; of a histogram and of quantiles, by bin), "units", "sum",
            "offset" (how far values are above the middle of their clip, in halves where that is
            one: see `query.middle`), "square" (about the middle, rounded down), or "keys": units by
            keys that are unknown. A mean has an offset and a count, a variance a square too.
        cells: number of cells; None where keys are unknown.
        share: exact part of the whole budget; 0 where the value is declared.
        shifts: the maximal absolute shifts when one unit changes; empty where they are too many
            to list.
        squared: the largest squared l2 norm of a shift, times ``draws``.
        draws: for "rank" how many quantiles are drawn from each group, else 1. The shifts are how
            far ranks move, in units of `query.rank_unit`.
        delta: the most that the chance may be with which a key of a single unit is published.
        relation: "replace-one" or "add-remove": what the failure depends on.
        searched: whether its clip follows from a histogram: its noise is proportional to the clip,
            and what is claimed is the Gaussian's curve, the same for each [UN-9].
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
        """The chance that a key which only one unit holds is published: 0 for known keys [UN-4]."""
        return failure(self.delta, self.keys) if self.delta is not None else Fraction(0)

    def moved(self, shifts: Shifts) -> Entry:
        """Return the same table, moved by other shifts: of a record that is in both datasets."""
        relation = "any" if self.delta is None else "replace-one"
        return replace(
            self, shifts=shifts.vectors, squared=self.draws * shifts.squared, relation=relation
        )

    def sigma_squared(self, scale: Fraction) -> Fraction:
        """squared * scale / (2 share): at a ``scale`` of 1/rho the entry spends share * rho.

        A quantile is drawn with the rate 1/sigma: its loss has the range 2 v / sigma where its rank
        moves by v, which costs v^2 / (2 sigma^2), as Gaussian noise does.
        """
        return self.squared * scale / (2 * self.share)

    def noise(self, sigma_squared: Fraction, *, listed: bool = True) -> Mechanism:
        """Return the mechanism that the table is published by.

        Args:
            listed: whether the curve of the listed shifts is claimed; otherwise, and where they
                are too many to list, only what the largest l2 norm proves: rho-zCDP. Rounded
                Gaussian noise needs no list [RG-1].
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

Cases: TypeAlias = Sequence[Sequence[Entry]]  # that a change can move together, in each [UN-11]


def rate_of(sigma_squared: Fraction) -> Fraction:
    """1/sigma, rounded down to fifteen digits: less than the budget is spent, never more."""
    inverse = 1 / sigma_squared
    places = 20 + max(0, len(str(sigma_squared.numerator // sigma_squared.denominator)))
    root = isqrt(inverse.numerator * 100**places // inverse.denominator)
    return Fraction(Context(prec=15, rounding=ROUND_FLOOR).divide(Decimal(root), 10**places))


def failure(delta: Fraction, keys: int) -> Fraction:
    """1 - (1 - delta)^keys, rounded up to fifteen digits: some of several keys is published."""
    exact = 1 - (1 - delta) ** keys
    context = Context(prec=40, rounding=ROUND_CEILING)
    above = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return min(Fraction(Context(prec=15, rounding=ROUND_CEILING).plus(above)), Fraction(1))


def fitting_delta(limit: Fraction, keys: int) -> str:
    """Return a delta, as a plan writes it, with which the failure of some keys fits a limit."""
    places = next(k for k in range(1, 301) if 2 * keys * Fraction(1, 10**k) <= limit)
    return f"1e-{places}"


def listed(entries: Iterable[Entry]) -> bool:
    """Whether the curves of listed shifts are claimed for a release of these tables.

    They are not where keys are discovered and the shifts allow too many combinations: what is
    claimed then is the sum of rho, beside the chance that a key is revealed.
    """
    entries = list(entries)
    if all(entry.delta is None for entry in entries):
        return True
    return math.prod(max(1, len(entry.shifts)) for entry in entries) <= TRADEOFF_LIMITS.alternatives


def together(parts: Calibrated) -> Mechanism:
    """Return the release of several tables, each with its sigma squared."""
    curves = listed(entry for entry, _ in parts)
    total = Mechanism.nothing()
    for entry, sigma_squared in parts:
        total = total + entry.noise(sigma_squared, listed=curves)
    return total


def at_scale(entries: Iterable[Entry], scale: Fraction) -> Mechanism:
    """Return the release of tables, each with its `sigma_squared` at 1/rho = ``scale``."""
    return together([(entry, entry.sigma_squared(scale)) for entry in _noisy_entries(entries)])


def normal_at_scale(entries: Iterable[Entry], scale: Fraction) -> Mechanism:
    """Return the release of tables with normal noise in place of rounded noise [RG-1]."""
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
    """Return True if rounded noise is calibrated as normal noise: not that of one listed shift."""
    measured = _noisy_entries(entries)
    single = [len(vector) for entry in measured for vector in entry.shifts] == [1]
    return not single and any(entry.rounded for entry in measured)


def claims_rho_alone(cases: Cases) -> bool:
    """Return True if only rho is claimed, and the curve that it implies: shifts are too many."""
    # Rounded noise has a curve for every shift of one norm.
    listed_ones = [[e for e in _noisy_entries(entries) if not e.rounded] for entries in cases]
    measured = [entry for entries in listed_ones for entry in entries]
    if not all(entry.shifts for entry in measured):
        return True
    if (
        sum(math.prod(len(e.shifts) for e in entries) for entries in listed_ones)
        <= SHIFTS_LIMITS.vectors
    ):
        return False  # none are measured, or their combinations can be listed
    least = max(2 * entry.share / entry.squared for entry in measured)  # sigma from 1 on
    losses = Alternatives.of(at_scale(entries, least) for entries in listed_ones).losses()
    return any(composition.bare is not None for composition in losses)


def _noisy_entries(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.public is None]
