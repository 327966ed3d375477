"""Define a dp_accounting accountant with certified numbers. It needs `neyman[dp-accounting]`."""

from __future__ import annotations

import math
from typing import NoReturn

from neyman.accounting.dp_accounting.dp_events import UnsupportedEvent, described
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.extras import advice
from neyman.mechanisms.base import Mechanism
from neyman.numerics import check
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound
from neyman.numerics.relation import Neighboring

try:
    from dp_accounting import DpEvent, NeighboringRelation, PrivacyAccountant  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld import PLDAccountant  # pyright: ignore[reportMissingTypeStubs]
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(advice(missing), name=missing.name) from None

RELATIONS: dict[NeighboringRelation, Neighboring] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "add-remove",
    NeighboringRelation.REPLACE_ONE: "replace-one",
}


class NeymanAccountant(PLDAccountant):
    """Report Neyman's certified upper bounds as a `dp_accounting` accountant.

    Use it as any `PrivacyAccountant`, for example in `dp_accounting.calibrate_dp_mechanism`. It is
    a `PLDAccountant` because jax_privacy requires that class for truncated batches and mixtures of
    Gaussians. It does not use that class's loss distribution or arithmetic.

    Args:
        neighboring_relation: ADD_OR_REMOVE_ONE or REPLACE_ONE.

    Raises:
        ValueError: the relation is REPLACE_SPECIAL.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.dp_accounting.accountant import NeymanAccountant
        >>> from dp_accounting import GaussianDpEvent
        >>> accountant = NeymanAccountant().compose(GaussianDpEvent(2), count=10)
        >>> round(accountant.get_epsilon(1e-6), 3)
        8.306
    """

    def __init__(
        self, neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    ) -> None:
        if neighboring_relation not in RELATIONS:
            raise ValueError(
                f"neighboring_relation = {neighboring_relation!r}: Neyman knows ADD_OR_REMOVE_ONE "
                "and REPLACE_ONE; a record that becomes a special one is neither"
            )
        PrivacyAccountant.__init__(self, neighboring_relation)  # not `PLDAccountant`'s
        self._mechanism = Mechanism.nothing()

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse attributes that only `PLDAccountant`'s constructor sets, like its distribution."""
        raise AttributeError(
            f"NeymanAccountant has no {name}: it composes no distributions of dp_accounting; "
            "tradeoff() has the curve, and neyman.accounting.dp_accounting.privacy_loss.to_pld "
            "makes a distribution that dominates it"
        )

    def __repr__(self) -> str:
        return f"<NeymanAccountant of {self._mechanism!r}>"

    @property
    def mechanism(self) -> Mechanism:
        """Return the composed mechanism."""
        return self._mechanism

    def tradeoff(self) -> Tradeoff:
        """Return the trade-off curve of the composed mechanism."""
        return self._mechanism.tradeoff()

    def _maybe_compose(
        self, event: DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        try:
            mechanism = described(event, RELATIONS[self.neighboring_relation]) * count
            total = self._mechanism + mechanism
        except UnsupportedEvent as refusal:
            return self.CompositionErrorDetails(refusal.event, str(refusal))
        if do_compose:
            self._mechanism = total
        return None

    def get_epsilon(self, target_delta: float) -> float:
        """Return a certified upper bound on the smallest epsilon at delta.

        At delta 1 the bound is 0, or inf for an event that is not private at all, as for the other
        accountants of `dp_accounting`.
        """
        if check.probability("target_delta", target_delta) == 1:
            return math.inf if self._certain_loss().lower == 1 else 0.0
        return self.tradeoff().epsilon(target_delta).upper

    def get_delta(self, target_epsilon: float) -> float:
        """Return a certified upper bound on the smallest delta at epsilon.

        At epsilon inf it is the mass of outcomes that reveal everything, or 0 without such
        outcomes.
        """
        if target_epsilon == math.inf:
            return self._certain_loss().upper
        return self.tradeoff().delta(target_epsilon).upper

    def _certain_loss(self) -> Bound:
        """Bound the probability of outcomes with infinite loss, for the worst ordered pair."""
        pairs = self.tradeoff().directions
        low, high = max(c.least.infinite for c in pairs), max(c.infinite for c in pairs)
        if low == 1 or high == 0:
            return Bound(abs(low), abs(high))
        # The mass of one part errs by one unit, a logarithm by 2, a product and a sum by one each,
        # and expm1 by 2: 7 units.
        return Bound(low * (1 - 8 * UNIT), min(high * (1 + 8 * UNIT), 1.0))  # slack: counted
