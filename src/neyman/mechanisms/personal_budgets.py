"""Personal budgets: a record with a smaller budget enters the sample with a smaller chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.composition import Composition
from neyman.curves.tradeoff.enclosure import exponential
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import rational
from neyman.mechanisms.sampling import Subsampled
from neyman.noise.bits import Bits, SecureBits
from neyman.noise.row_draws import coins
from neyman.numerics import check
from neyman.numerics.relation import Neighboring
from neyman.numerics.rounding import below

MAX_BUDGETS = 1000


@dataclass(frozen=True)
class PersonalBudgets(Mechanism):
    """A pure mechanism on a sample in which each record enters by its owner's public budget.

    With t the epsilon of the mechanism, a record with the budget e enters with probability
    (e^e - 1) / (e^t - 1), rounded down, or 1 if e is at least t, independently of all others. For
    its owner the release is then e-DP, and its curve is that of ``mechanism.subsample(rate=)``.

    Args:
        mechanism: what is released about the sample; pure epsilon-DP under add-remove.
        budgets: the epsilons that owners may have, each above 0. They are public, and so is who has
            which: a budget that depends on private data needs protection itself.
        relation: "add-remove", the only relation for which this holds.

    Raises:
        ValueError: under replace-one, where a new record may bring another budget; for a mechanism
            that is not pure; for a budget that is not above 0.
        TypeError: for a column's name in place of budgets, or a number or a curve in place of a
            mechanism.

    Examples:
        >>> import neyman as ny
        >>> counts = ny.PersonalBudgets(ny.Laplace(1), budgets=[0.1, 0.5, 1])
        >>> round(counts.rate(0.5), 4)
        0.3775
        >>> round(float(counts.of(0.5).tradeoff().pure()), 4)
        0.5
        >>> rows = counts.draw([0.1, 1, 0.5, 0.1])  # the sample, on secure bits

    Source: Jorgensen, Yu and Cormode 2015; [PB-1].
    """

    mechanism: Mechanism
    budgets: Sequence[float | Fraction] | tuple[float | Fraction, ...]
    relation: Neighboring = "add-remove"

    def __post_init__(self) -> None:
        if self.relation != "add-remove":
            raise ValueError(
                f"relation = {self.relation!r} must be 'add-remove': a record that is replaced may "
                "get another budget, and then no one budget bounds what its change reveals"
            )
        release: Any = self.mechanism
        if not isinstance(release, Mechanism):
            raise TypeError(
                f"mechanism = {release!r} must be a mechanism that is pure epsilon-DP, such as "
                "ny.Laplace(1): a number or a curve alone cannot run on a sample"
            )
        given: Any = self.budgets
        if isinstance(given, str):
            raise TypeError(
                f"budgets = {given!r} must be numbers that are public: a column of the private "
                "table is data, and who has which budget would be revealed unprotected"
            )
        levels = {check.exact("budgets", x): x for x in check.several("budgets", given, "[0.5, 1]")}
        if not levels or len(levels) > MAX_BUDGETS or min(levels) <= 0:
            raise ValueError(
                f"budgets = {given!r} must be epsilons above 0, from 1 to {MAX_BUDGETS} of them"
            )
        ordered = tuple(check.number("budgets", levels[x]) for x in sorted(levels))
        self._keep(budgets=ordered)
        if self._epsilon is None:
            raise ValueError(
                f"mechanism = {self.mechanism!r} must be pure epsilon-DP: the chances are made for "
                "a pure epsilon. For other noise, mechanism.subsample(rate=) is the curve of a "
                "record that enters with this chance"
            )
        self.losses()

    @property
    def _epsilon(self) -> Fraction | None:
        most = self.mechanism.tradeoff().exact_pure()
        return most if isinstance(most, Fraction) else None

    @property
    def neighboring(self) -> Neighboring:
        """ "add-remove": a record is there or not."""
        return self.relation

    def rate(self, budget: float | Fraction) -> float:
        """Return the chance that a record with this budget enters the sample, rounded down [PB-1].

        Args:
            budget: one of ``budgets``.

        Raises:
            ValueError: for another budget.
        """
        own, most = check.exact("budget", budget), self._epsilon
        if own not in map(rational, self.budgets):
            raise ValueError(f"budget = {budget!r} must be one of {self.budgets!r}")
        if most is None or own >= most:
            return 1.0
        return below((exponential(own)[0] - 1) / (exponential(most)[1] - 1))

    def of(self, budget: float | Fraction) -> Mechanism:
        """Return what the release is for a record with this budget: the mechanism on a sample.

        Args:
            budget: one of ``budgets``.
        """
        return self.mechanism.subsample(rate=self.rate(budget))

    def draw(
        self, budgets: Sequence[float | Fraction], bits: Bits | None = None
    ) -> NDArray[np.int64]:
        """Return the rows of the sample, exactly drawn, in rising order. The sample is secret.

        Args:
            budgets: of the owner of each row, each one of ``budgets``; one row per owner.
            bits: the source of randomness; fresh `SecureBits` if none is given.
        """
        source = bits or SecureBits()
        owners: dict[Fraction, list[int]] = {}
        for row, budget in enumerate(check.several("budgets", budgets)):
            owners.setdefault(check.exact("budgets", budget), []).append(row)
        chosen: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        for budget, rows in owners.items():
            heads = coins(Fraction(self.rate(budget)), len(rows), source)
            chosen.append(np.array(rows, np.int64)[heads])
        return np.sort(np.concatenate(chosen))

    def losses(self) -> tuple[Composition, ...]:
        """Those of an owner with the largest budget: a larger chance reveals no less."""
        return Subsampled(self.mechanism, self.rate(self.budgets[-1])).losses()

    def rho(self) -> Fraction:
        """Return the rho of a pure mechanism with the largest budget, or of the mechanism."""
        most = rational(self.budgets[-1])
        return min(self.mechanism.rho(), most * most / 2)
