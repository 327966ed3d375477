"""Describe draws of quantiles by exponential mechanisms over the points of a grid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from neyman.curves.losses.bounded_range import BoundedRangeLoss
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.losses.zcdp_parameters import bounded_range_rho
from neyman.mechanisms.additive import shifts_or_norm
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import EXACT_POSITIVE, UNLESS_NORM, integer, pure_epsilon


@dataclass(frozen=True, init=False)
class InverseSensitivity(Mechanism):
    """Draw a point with probability proportional to e^{-rate d}, d its distance from a quantile.

    The distance is a number of ranks. Between neighboring datasets, the distance of each point
    moves by at most the sensitivity, in either direction. The loss then has the range 2 rate
    sensitivity, like the loss of an `ExponentialMechanism`.

    Args:
        rate: above 0, per unit of sensitivity.
        sensitivity: the largest move of a distance from a dataset to its neighbor, an integer. For
            several groups, give an iterable of integer vectors, with one entry for each group whose
            rows change. A person who moves from one group to another is ``[(1, 1)]``: distances of
            two independent draws move by 1 each.
        draws: number of points drawn for each group, at least 1, such as one per quantile.
        squared_norm: the largest sum of squares of a vector, at least 1, if there are too many
            vectors to list. Then only rho-zCDP is claimed.

    For the median of one group, an added or removed row moves distances by 1/2, and a replaced row
    by 1. For the q-quantile, the shifts are max(q, 1 - q) and 1. Two independent draws that each
    move by 1/2 cost less than one draw that moves by 1. So for replacement, the worst case is a row
    that stays in its group, even if rows may change groups.

    With several vectors, the curve is for the worst vector. Later draws may depend on earlier
    draws. ``.upper`` is safe, as for several `ExponentialMechanism`.

    Examples:
        >>> import neyman as ny
        >>> median = ny.InverseSensitivity("1/2")  # a row is replaced
        >>> round(float(median.tradeoff().pure()), 6), round(float(median.rho()), 6)
        (1.0, 0.123302)

    Source: Asi and Duchi 2020; Dong, Durfee and Rogers 2020; [IS-1].
    """

    RELATION = "any"

    rate: Fraction = field(metadata=EXACT_POSITIVE)
    sensitivity: tuple[tuple[int, ...], ...] = field(metadata=UNLESS_NORM)
    draws: int = field(metadata=integer(1))
    squared_norm: int | None = field(default=None, metadata=integer(1))

    def __init__(
        self,
        rate: float | Fraction | str,
        sensitivity: int | Iterable[Iterable[int]] = 1,
        *,
        draws: int = 1,
        squared_norm: int | None = None,
    ) -> None:
        self._keep(rate=rate, squared_norm=squared_norm)
        vectors = shifts_or_norm(sensitivity, squared_norm)
        for move in {move for vector in vectors for move in vector}:
            pure_epsilon("the epsilon of rate and sensitivity", 2 * self.rate * move)
        self._keep(sensitivity=vectors, draws=draws)

    def losses(self) -> tuple[Composition, ...]:
        """Return losses of bounded range, one for each draw of each group.

        With a squared norm, return the bound by rho-zCDP.
        """
        if self.squared_norm is not None:
            return (Composition.of([(RenyiBound(self.rho()), 1)]),)
        return tuple(
            Composition.of((BoundedRangeLoss(2 * self.rate * v), self.draws) for v in vector)
            for vector in self.sensitivity
        ) or (Composition(),)

    def rho(self) -> Fraction:
        """Return the largest sum of the draws' rho: at most (rate v)^2 / 2 for a move v [ZC-7]."""
        if self.squared_norm is not None:
            return self.draws * self.rate**2 * self.squared_norm / 2
        sums = (
            sum((bounded_range_rho(2 * self.rate * v) for v in vector), Fraction(0))
            for vector in self.sensitivity
        )
        return self.draws * max(sums, default=Fraction(0))

    def _fields(self) -> dict[str, Any]:
        fields = super()._fields()
        return {"rate": fields.pop("rate"), "draws": fields.pop("draws"), **fields}
