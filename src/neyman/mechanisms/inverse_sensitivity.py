"""Quantiles by inverse sensitivity: exponential mechanisms over the points of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from neyman.curves.losses.bounded_range import BoundedRangeLoss
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.losses.zcdp_parameters import bounded_range_rho
from neyman.mechanisms.additive import shift_vectors
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.randomized_response import pure_epsilon
from neyman.numerics import check
from neyman.numerics.relation import Relation

__all__ = ["InverseSensitivity"]


@dataclass(frozen=True, init=False)
class InverseSensitivity(Mechanism):
    """Draw a point with probability proportional to e^{-rate times its distance}.

    The distance of a point from a quantile is a number of ranks that neighbors move by at most the
    sensitivity, in either direction. The loss then has the range 2 rate sensitivity, as an
    `ExponentialMechanism` has.

    Args:
        rate: above 0, for one unit of sensitivity.
        sensitivity: how far neighbors move the distances. A whole number v says that those of one
            draw move by at most v. Otherwise an iterable of vectors of whole numbers, with a number
            for each group whose rows change: a person who moves from one group to another is
            ``[(1, 1)]``, two independent draws.
        draws: how many points of each group are drawn, at least 1, such as one for each quantile.
        squared_norm: the largest sum of squares of a vector, at least 1, instead of the vectors,
            where these are too many to list. Then only rho-zCDP is claimed.

    For the median of one group, a row that is added or removed moves distances by 1/2, and a row
    that is replaced by 1. For the q-quantile it is max(q, 1 - q), and 1. Two independent draws
    that move by 1/2 each cost less than one draw that moves by 1, so a row that stays in its group
    is the worst case of replacement, also where it may change its group.

    With several vectors the answer is that of the worst one. Later draws may depend on earlier
    ones. ``.upper`` is safe, as that of several `ExponentialMechanism`.

    Examples:
        >>> import neyman as ny
        >>> median = ny.InverseSensitivity("1/2")  # a row is replaced
        >>> round(float(median.tradeoff().pure()), 6), round(float(median.rho()), 6)
        (1.0, 0.123302)

    Source: Asi and Duchi 2020; Dong, Durfee and Rogers 2020; [IS-1].
    """

    rate: Fraction
    sensitivity: tuple[tuple[int, ...], ...]
    draws: int
    squared_norm: int | None = None

    def __init__(
        self,
        rate: float | Fraction | str,
        sensitivity: int | Iterable[Iterable[int]] = 1,
        *,
        draws: int = 1,
        squared_norm: int | None = None,
    ) -> None:
        exact = check.exact("rate", rate)
        if exact <= 0:
            raise ValueError(f"rate = {rate!r} must be above 0")
        vectors = shift_vectors(sensitivity)
        if squared_norm is not None:
            if sensitivity != 1:
                raise ValueError("give at most one of sensitivity= and squared_norm=")
            vectors, squared_norm = (), check.integer("squared_norm", squared_norm, 1)
        for vector in vectors:
            for move in vector:
                pure_epsilon(2 * exact * move)
        object.__setattr__(self, "rate", exact)
        object.__setattr__(self, "sensitivity", vectors)
        object.__setattr__(self, "draws", check.integer("draws", draws, 1))
        object.__setattr__(self, "squared_norm", squared_norm)

    @property
    def neighboring(self) -> Relation:
        """ "any": how far distances may move is said under the relation in force."""
        return "any"

    def losses(self) -> tuple[Composition, ...]:
        """Losses of bounded range, one for each draw of each group; or what rho alone says."""
        if self.squared_norm is not None:
            return (Composition.of([(RenyiBound(self.rho()), 1)]),)
        return tuple(
            Composition.of((BoundedRangeLoss(2 * self.rate * v), self.draws) for v in vector)
            for vector in self.sensitivity
        ) or (Composition(),)

    def rho(self) -> Fraction:
        """The largest sum of the draws' rho, each at most (rate v)^2 / 2 [ZC-7]."""
        if self.squared_norm is not None:
            return self.draws * self.rate**2 * self.squared_norm / 2
        sums = (
            sum((bounded_range_rho(2 * self.rate * v) for v in vector), Fraction(0))
            for vector in self.sensitivity
        )
        return self.draws * max(sums, default=Fraction(0))

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"rate": str(self.rate), "draws": self.draws}
        if self.squared_norm is not None:
            return fields | {"squared_norm": self.squared_norm}
        return fields | {"sensitivity": [list(vector) for vector in self.sensitivity]}

    @classmethod
    def _from_fields(cls, fields: Mapping[str, Any]) -> InverseSensitivity:
        draws = fields["draws"]
        if "squared_norm" in fields:
            return cls(fields["rate"], draws=draws, squared_norm=fields["squared_norm"])
        return cls(fields["rate"], fields["sensitivity"], draws=draws)
