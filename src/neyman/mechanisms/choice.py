"""Choose one of several mechanisms, by a visible coin or by the change of the data."""

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
from neyman.curves.tradeoff.tradeoff import LIMITS as TRADEOFF_LIMITS
from neyman.curves.tradeoff.tradeoff import unified
from neyman.mechanisms.base import Composed, Mechanism, one_relation
from neyman.mechanisms.description import form, probability
from neyman.mechanisms.gaussian_mixture import check_sum
from neyman.numerics import check
from neyman.numerics.canonical_order import order_key
from neyman.numerics.relation import Relation

Parts = tuple[tuple[float, Mechanism], ...]


def _write_parts(parts: Parts) -> list[dict[str, object]]:
    return [{"probability": p, "mechanism": m.to_dict()} for p, m in parts]


def _read(parts: Sequence[Mapping[str, Any]]) -> Parts:
    return tuple((p["probability"], Mechanism.from_dict(p["mechanism"])) for p in parts)


@dataclass(frozen=True)
class Choice(Mechanism):
    """Run one of several mechanisms, chosen by a public coin.

    Args:
        parts: pairs (probability, mechanism). Probabilities are above 0, with sum 1. Each mechanism
            has one loss (a leaf, or a subsampled mechanism).

    A public coin is the worst case. The curve also bounds a mechanism with a secret coin.
    """

    parts: Parts = field(metadata=form(write=_write_parts, read=_read))

    def __post_init__(self) -> None:
        parts = [(float(probability("probability", p)), mechanism) for p, mechanism in self.parts]
        object.__setattr__(self, "parts", tuple(parts))
        for p, _ in parts:
            check.positive("probability", p)
        check_sum("probability", [p for p, _ in self.parts])
        _ = self.neighboring
        self.losses()

    @property
    def neighboring(self) -> Relation:
        """Return the one relation of all parts."""
        return reduce(unified, (mechanism.neighboring for _, mechanism in self.parts))

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss: the random choice between the losses of the parts."""
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
        bracket = LossBracket(low, high, "each choice between two distributions")
        chosen = Composition.of([(bracket, 1)])
        return (resting_on([Composition.of((x, 1) for _, x in parts)], chosen),)

    def rho(self) -> Fraction:
        """Return the largest rho of the parts."""
        return max(mechanism.rho() for _, mechanism in self.parts)


def _only_loss(mechanism: Mechanism) -> Part:
    (composition, *more) = mechanism.losses()
    if more or len(composition.parts) > 1 or any(n > 1 for _, n in composition.parts):
        raise ValueError(f"mechanism = {mechanism!r} must have one loss to be chosen among others")
    return composition.parts[0][0] if composition.parts else FiniteLoss(Fraction(1), (0,), (0.0,))


def _sort_mechanisms(name: str, mechanisms: object) -> tuple[Mechanism, ...]:
    if not mechanisms:
        raise ValueError(f"{name} = {mechanisms!r} must list at least one mechanism")
    distinct = set(cast("Iterable[object]", mechanisms))
    listed = [one for one in distinct if isinstance(one, Mechanism)]
    if len(listed) < len(distinct):
        raise TypeError(f"{name} = {mechanisms!r} must list mechanisms, such as ny.Gaussian(1)")
    return tuple(sorted(listed, key=order_key))


@dataclass(frozen=True)
class Alternatives(Mechanism):
    """Bound a release by several mechanisms. Each change of a record is covered by one [UN-11]."""

    mechanisms: tuple[Mechanism, ...] = field(
        metadata=form(_sort_mechanisms, read=lambda given: tuple(map(Mechanism.from_dict, given)))
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.neighboring  # refuses two relations early

    @staticmethod
    def of(mechanisms: Iterable[Mechanism]) -> Mechanism:
        """Return a mechanism that covers all of these: common parts, and `Alternatives` of others.

        A single mechanism is returned itself.
        """
        distinct = tuple(dict.fromkeys(mechanisms))
        if len(distinct) == 1:
            return distinct[0]
        every = [Counter(dict(one.leaves)) for one in distinct]
        worst = [one for one in every if not any(one < other for other in every)]
        common = reduce(lambda a, b: a & b, worst)
        known = Composed.of(list(common.items()))
        apart = (Composed.of(list((one - common).items())) for one in worst)
        return known if len(worst) == 1 else known + Alternatives(tuple(apart))

    @property
    def neighboring(self) -> Relation:
        """Return the one relation of all mechanisms."""
        return one_relation([(mechanism, 1) for mechanism in self.mechanisms])

    def losses(self) -> tuple[Composition, ...]:
        """Return the losses of all mechanisms.

        For more than 256 losses, or if a loss is known only by its rho, return the bound by rho
        alone.
        """
        losses = dict.fromkeys(loss for one in self.mechanisms for loss in one.losses())
        if len(losses) > TRADEOFF_LIMITS.alternatives or any(
            loss.bare is not None for loss in losses
        ):
            return (Composition.of([(RenyiBound(self.rho()), 1)]),)
        return tuple(losses)

    def rho(self) -> Fraction:
        """Return the largest rho of the mechanisms."""
        return max(mechanism.rho() for mechanism in self.mechanisms)
