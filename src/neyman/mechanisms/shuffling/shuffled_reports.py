"""Local reports that come in random order: no one knows whose is whose."""

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
    """The reports that are shuffled."""

    users: int = 10**10
    epsilon: int = 300  # of a report: beyond it no float tells it from the truth


LIMITS = Limits()


@dataclass(frozen=True, repr=False)
class Shuffled(Mechanism):
    """A report from each of ``users`` people, in random order; build it with ``.shuffle(users=)``.

    Each person applies the mechanism to their own record; an attacker sees the reports without
    their senders. Upper bounds are those of the exact clone pair, for any epsilon-local report; for
    randomized response of more than two categories the attacker is told who of the others answered
    truly. Lower bounds are attained: by others who all hold a third category, or the same bit of
    two; for `LocalRandomizer` by randomized response of three categories. Of other mechanisms
    nothing is claimed from below.

    Args:
        mechanism: local: pure, described under replace-one.
        users: n, from 1 to 1e10. More people only hide better.

    Raises:
        ValueError: for a mechanism that is not pure, or is described under add-remove.

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
                f"users = {self.users} must be at most {LIMITS.users:g}; fewer than there are is "
                "on the safe side"
            )
        if self.mechanism.neighboring not in ("any", "replace-one"):
            raise ValueError(
                f"mechanism = {self.mechanism!r} is described under "
                f"{self.mechanism.neighboring!r}, but a local report goes with 'replace-one': "
                "everyone sends one"
            )
        epsilon = self._epsilon()
        if epsilon > LIMITS.epsilon:
            raise ValueError(
                f"mechanism = {self.mechanism!r} is not pure (epsilon = {float(epsilon):g}, at "
                f"most {LIMITS.epsilon} is needed): shuffling is proven for local reports that "
                "are, such as RandomizedResponse, Laplace or LocalRandomizer"
            )

    def _epsilon(self) -> Fraction | float:
        return self.mechanism.tradeoff().exact_pure()

    def losses(self) -> tuple[Composition, ...]:
        """One loss, which is its own reverse."""
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
        """Return the rho of the report: no gain is claimed."""
        return self.mechanism.rho()

    def __repr__(self) -> str:
        return f"({self.mechanism!r}).shuffle(users={self.users})"
