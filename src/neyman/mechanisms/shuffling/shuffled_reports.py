"""Describe local reports in random order, without their senders."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import response_loss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import integer
from neyman.mechanisms.randomized_response import LocalRandomizer, RandomizedResponse
from neyman.mechanisms.shuffling.shuffled_loss import shuffled


@dataclass(frozen=True)
class Limits:
    """Limit the number of shuffled reports, and the epsilon of a report."""

    users: int = 10**10
    epsilon: int = 300  # of a report: above, floats cannot distinguish it from the truth


LIMITS = Limits()


@dataclass(frozen=True, repr=False)
class Shuffled(Mechanism):
    """Shuffle the reports of ``users`` people. Build it with ``.shuffle(users=)``.

    Each person applies the mechanism to their own record. An attacker sees the reports without
    their senders. Upper bounds come from the exact clone pair, for any epsilon-local report. For
    randomized response of more than two categories, they let the attacker see who else answered
    truly. Lower bounds are attained if all others hold a third category or, for two categories, the
    same bit. For `LocalRandomizer`, randomized response of three categories attains them. For other
    mechanisms, the lower bound is trivial.

    Args:
        mechanism: a local mechanism: pure, described under replace-one.
        users: n, from 1 to 1e10. More people hide a report better.

    Raises:
        ValueError: the mechanism is not pure, or is described under add-remove.

    Source: Feldman, McMillan and Talwar 2023, "Stronger privacy amplification by shuffling for
        Renyi and approximate differential privacy"; [SH-2] (categories).
    """

    RELATION = "replace-one"

    mechanism: Mechanism
    users: int = field(metadata=integer(1))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.users > LIMITS.users:
            raise ValueError(
                f"users = {self.users} must be at most {LIMITS.users:g}; a number below the true "
                "one is safe"
            )
        if self.mechanism.neighboring not in ("any", "replace-one"):
            raise ValueError(
                f"mechanism = {self.mechanism!r} is described under "
                f"{self.mechanism.neighboring!r}, but a local report needs 'replace-one': every "
                "person sends one"
            )
        if any(isinstance(leaf, Shuffled) for leaf, _ in self.mechanism.leaves):
            raise ValueError(
                f"mechanism = {self.mechanism!r} is what many people send, not the report of one; "
                "shuffle a local report once, with all users"
            )
        epsilon = self._epsilon()
        if epsilon > LIMITS.epsilon:
            raise ValueError(
                f"mechanism = {self.mechanism!r} is not pure (epsilon = {float(epsilon):g}, at "
                f"most {LIMITS.epsilon} is needed): shuffling is proven for pure local reports, "
                "such as RandomizedResponse, Laplace or LocalRandomizer"
            )

    def _epsilon(self) -> Fraction | float:
        return self.mechanism.tradeoff().exact_pure()

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, which is its own reverse."""
        epsilon = self._epsilon()
        if not epsilon:
            return (Composition(),)
        exact = Fraction(epsilon) if math.isfinite(epsilon) else Fraction(0)
        categories = None
        if isinstance(self.mechanism, RandomizedResponse):
            categories = self.mechanism.categories
        if self.users == 1:
            alone = self.mechanism.losses() if categories else None
            return alone or (Composition.of([(response_loss(exact), 1)]),)
        worst = isinstance(self.mechanism, LocalRandomizer)
        return (Composition.of([(shuffled(exact, self.users, categories, worst=worst), 1)]),)

    def rho(self) -> Fraction:
        """Return the rho of the report, without amplification."""
        return self.mechanism.rho()

    def __repr__(self) -> str:
        return f"({self.mechanism!r}).shuffle(users={self.users})"
