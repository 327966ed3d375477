"""A mechanism that is one of several: by a visible coin, or by the change of the data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any, cast

from neyman.curves.losses.bracket import LossBracket, ends
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.mixture import MixtureLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.losses.user_pair import resting_on
from neyman.curves.tradeoff.tradeoff import MOST_ALTERNATIVES, unified
from neyman.mechanisms.base import Composed, Mechanism
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
        return _relation(mechanism for _, mechanism in self.parts)

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


def _relation(mechanisms: Iterable[Mechanism]) -> Relation:
    relation: Relation = "any"
    for mechanism in mechanisms:
        relation = unified(relation, mechanism.neighboring)
    return relation


def _only_loss(mechanism: Mechanism) -> Part:
    (composition, *more) = mechanism.losses()
    if more or len(composition.parts) > 1 or any(n > 1 for _, n in composition.parts):
        raise ValueError(f"mechanism = {mechanism!r} must have one loss to be chosen among others")
    return composition.parts[0][0] if composition.parts else FiniteLoss(Fraction(1), (0,), (0.0,))


def _several(name: str, given: object) -> tuple[Mechanism, ...]:
    mechanisms = set(cast("Sequence[Mechanism]", given))
    if not mechanisms:
        raise ValueError(f"{name} = {given!r} must list at least one mechanism")
    return tuple(sorted(mechanisms, key=order_key))


_EACH = form(
    _several,
    write=lambda mechanisms: [one.to_dict() for one in mechanisms],
    read=lambda given: tuple(map(Mechanism.from_dict, given)),
)


@dataclass(frozen=True)
class Alternatives(Mechanism):
    """One of several mechanisms: the change of the data decides which, and nobody draws it.

    It is what several releases reveal of which a unit takes part in one alone [UN-11]. Every
    question is answered for the worst of them.

    Args:
        mechanisms: in any order.
    """

    mechanisms: tuple[Mechanism, ...] = field(metadata=_EACH)

    @staticmethod
    def of(mechanisms: Iterable[Mechanism]) -> Mechanism:
        """Return the worst of several, without those that are a part of another one.

        What all have in common is released beside the rest. One alone is itself.
        """
        distinct = tuple(dict.fromkeys(mechanisms))
        if len(distinct) == 1:
            return distinct[0]
        every = [Counter(dict(one.leaves)) for one in distinct]
        worst = [
            one
            for i, one in enumerate(every)
            if not any(one <= other for j, other in enumerate(every) if j < i or one < other)
        ]
        common = reduce(lambda a, b: a & b, worst)
        apart = [Composed.of(list((one - common).items())) for one in worst]
        known = Composed.of(list(common.items()))
        return known if len(worst) == 1 else known + Alternatives(tuple(apart))

    @property
    def neighboring(self) -> Relation:
        """Return the one relation of all of them."""
        return _relation(self.mechanisms)

    def losses(self) -> tuple[Composition, ...]:
        """Return the losses of each; only rho-zCDP is claimed where that of one is, or of many."""
        losses = dict.fromkeys(loss for one in self.mechanisms for loss in one.losses())
        if len(losses) > 1 and (
            len(losses) > MOST_ALTERNATIVES or any(loss.bare is not None for loss in losses)
        ):
            return (Composition.of([(RenyiBound(self.rho()), 1)]),)
        return tuple(losses)

    def rho(self) -> Fraction:
        """Return the largest of theirs."""
        return max(mechanism.rho() for mechanism in self.mechanisms)
