"""Describe releases about a sample that people with smaller budgets enter less often."""

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
from neyman.noise.bits import Bits
from neyman.noise.parameters import secure_unless
from neyman.noise.row_draws import coins
from neyman.numerics import check
from neyman.numerics.relation import Neighboring
from neyman.numerics.rounding import below

MAX_BUDGETS = 1000


@dataclass(frozen=True)
class PersonalBudgets(Mechanism):
    """Run a pure mechanism on a sample. Each record enters by its owner's public budget.

    Let t be the epsilon of the mechanism. A record with budget b enters independently with
    probability (e^b - 1) / (e^t - 1), rounded down, or 1 if b is at least t. Then the release is
    b-DP for its owner, with the curve of ``mechanism.subsample(rate=)``.

    Args:
        mechanism: the release about the sample, pure epsilon-DP under add-remove.
        budgets: the possible epsilons of owners, each above 0. The budget of each owner is public.
            A budget that depends on private data needs protection itself.
        relation: "add-remove", the only relation with a proof.

    Raises:
        ValueError: the relation is replace-one (a new record may have another budget), the
            mechanism is not pure, or a budget is not above 0.
        TypeError: budgets is a column name, or mechanism is a number or a curve.

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
        why = ": a replaced record may get another budget, and no one budget bounds that change"
        check.one_of("relation", self.relation, ("add-remove",), why)
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
        """Return "add-remove": neighbors differ by one added or removed record."""
        return self.relation

    def rate(self, budget: float | Fraction) -> float:
        """Return the sampling probability of a record with this budget, rounded down [PB-1].

        Args:
            budget: one of ``budgets``.

        Raises:
            ValueError: the budget is not one of ``budgets``.
        """
        own, most = check.exact("budget", budget), self._epsilon
        if own not in map(rational, self.budgets):
            raise ValueError(f"budget = {budget!r} must be one of {self.budgets!r}")
        if most is None or own >= most:
            return 1.0
        # same: 0 -> 1: Both ends have 60 digits, and the rate differs only if a float lies between
        # them.
        return below((exponential(own)[0] - 1) / (exponential(most)[1] - 1))

    def of(self, budget: float | Fraction) -> Mechanism:
        """Return the release for a record with this budget: the mechanism on a sample.

        Args:
            budget: one of ``budgets``.
        """
        return self.mechanism.subsample(rate=self.rate(budget))

    def draw(
        self, budgets: Sequence[float | Fraction], bits: Bits | None = None
    ) -> NDArray[np.int64]:
        """Draw the sample exactly, as row numbers in rising order. Keep the sample secret.

        Args:
            budgets: the budget of each row's owner, one of the mechanism's budgets. Each owner has
                one row.
            bits: the source of randomness, by default `SecureBits`.
        """
        source = secure_unless(bits)
        owners: dict[Fraction, list[int]] = {}
        for row, budget in enumerate(check.several("budgets", budgets)):
            owners.setdefault(check.exact("budgets", budget), []).append(row)
        chosen: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        for budget, rows in owners.items():
            heads = coins(Fraction(self.rate(budget)), len(rows), source)
            chosen.append(np.array(rows, np.int64)[heads])
        return np.sort(np.concatenate(chosen))

    def losses(self) -> tuple[Composition, ...]:
        """Return the losses for the largest budget. A larger probability reveals no less."""
        return Subsampled(self.mechanism, self.rate(self.budgets[-1])).losses()

    def rho(self) -> Fraction:
        """Return the smaller of the mechanism's rho and e^2 / 2, for the largest budget e."""
        most = rational(self.budgets[-1])
        return min(self.mechanism.rho(), most * most / 2)
