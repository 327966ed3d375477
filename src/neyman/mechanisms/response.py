"""Mechanisms that answer with one of finitely many categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from neyman.core.composition import Composition
from neyman.core.loss import LEAST_EPSILON, MOST_EPSILON, response_loss
from neyman.mechanisms.algebra import Mechanism, plain, told
from neyman.numerics import check

__all__ = ["RandomizedResponse"]

MOST_CATEGORIES = 10**15


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """The truth with probability e^epsilon / (e^epsilon + k - 1), else any of the k - 1 others.

    Args:
        epsilon: at least 0; it is pure epsilon-DP.
        categories: k, at least 2. With more of them the same epsilon reveals less.

    A person's answer is replaced by another, so the relation is replace-one.

    Source: Warner 1965; Kairouz, Oh and Viswanath 2016.
    """

    epsilon: float | Fraction
    categories: int = 2

    def __post_init__(self) -> None:
        check.non_negative("epsilon", self.epsilon)
        object.__setattr__(self, "epsilon", check.number("epsilon", self.epsilon))
        object.__setattr__(self, "categories", check.whole("categories", self.categories, 2))
        if self.epsilon and not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise ValueError(
                f"epsilon = {self.epsilon!r} must be 0, or from 1e-150 to {MOST_EPSILON:g}"
            )
        if self.categories > MOST_CATEGORIES:
            raise ValueError(f"categories = {self.categories!r} must be at most {MOST_CATEGORIES}")

    @property
    def neighboring(self) -> str:
        """ "replace-one": one answer becomes another."""
        return "replace-one"

    def losses(self) -> tuple[Composition, ...]:
        """One loss with the values epsilon, -epsilon and, for k > 2, 0."""
        epsilon = check.exact("epsilon", self.epsilon)
        if not epsilon:
            return (Composition(),)
        return (Composition.of([(response_loss(epsilon, self.categories), 1)]),)

    def rho(self) -> Fraction:
        """epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4)."""
        return check.exact("epsilon", self.epsilon) ** 2 / 2

    def _fields(self) -> dict[str, Any]:
        return {"epsilon": plain(self.epsilon), "categories": self.categories}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> RandomizedResponse:
        return cls(told(fields["epsilon"]), fields["categories"])
