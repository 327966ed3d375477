"""A mechanism that a visible coin draws among others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from neyman.curves.losses.bracket import LossBracket, ends
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.mixture import MixtureLoss
from neyman.curves.losses.user_pair import resting_on
from neyman.curves.tradeoff.tradeoff import unified
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import form, probability
from neyman.mechanisms.gaussian_mixture import check_sum
from neyman.numerics import check
from neyman.numerics.canonical_order import order_key
from neyman.numerics.relation import Relation

Parts = tuple[tuple[float, Mechanism], ...]


def _written(parts: Parts) -> list[dict[str, object]]:
    return [{"probability": p, "mechanism": m.to_dict()} for p, m in parts]


def _read(parts: Sequence[Mapping[str, Any]]) -> Parts:
    return tuple((p["probability"], Mechanism.from_dict(p["mechanism"])) for p in parts)


@dataclass(frozen=True)
class Choice(Mechanism):
    """One of several mechanisms, drawn by a coin that everyone sees.

    Args:
        parts: (probability, mechanism), the probabilities above 0 with sum 1; each mechanism has
            one loss (a leaf, or a subsampled one).

    That everyone sees the coin is the worst case: it bounds a mechanism that keeps it to itself.
    """

    parts: Parts = field(metadata=form(write=_written, read=_read))

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
        low, high = (
            MixtureLoss(tuple(sorted(((p, ends(x)[side]) for p, x in parts), key=order_key)))
            for side in (0, 1)
        )
        if low == high:
            return (Composition.of([(low, 1)]),)
        chosen = Composition.of([(LossBracket(low, high, "each choice between two laws"), 1)])
        return (resting_on([Composition.of((x, 1) for _, x in parts)], chosen),)

    def rho(self) -> Fraction:
        """The largest of the parts'."""
        return max(mechanism.rho() for _, mechanism in self.parts)


def _only_loss(mechanism: Mechanism) -> Part:
    (composition, *more) = mechanism.losses()
    if more or len(composition.parts) > 1 or any(n > 1 for _, n in composition.parts):
        raise ValueError(f"mechanism = {mechanism!r} must have one loss to be chosen among others")
    return composition.parts[0][0] if composition.parts else FiniteLoss(Fraction(1), (0,), (0.0,))
