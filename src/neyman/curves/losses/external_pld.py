"""Represent losses that were computed elsewhere, for both orders of a pair, and their source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.loss import Part
from neyman.numerics.arrays import Array
from neyman.numerics.rounding import up


@dataclass(frozen=True, repr=False)
class ExternalPld(Part):
    """Represent the losses that a source states for a pair (P, Q) and for its reverse (Q, P).

    After rounding up, neither loss is the other's reverse. The reverse of one may be much worse
    than the other, because mass that was rounded up from below becomes infinite loss in the
    reverse.

    Args:
        ahead: stated for (P, Q).
        behind: stated for (Q, P).
        source: names the source in words.
    """

    ahead: FiniteLoss
    behind: FiniteLoss
    source: str

    @property
    def infinite(self) -> float:
        return self.ahead.infinite

    @property
    def supremum(self) -> Fraction:
        return self.ahead.supremum

    @property
    def rho(self) -> float:
        """Return the larger of rho - log(1 - missing) for both losses [RB-7].

        ``missing`` is the mass of outcomes that only Q can produce.
        """
        return max(up(x.rho - math.log1p(-x.missing)) for x in (self.ahead, self.behind))

    @property
    def mu(self) -> float:
        return max(self.ahead.mu, self.behind.mu)

    def reverse(self) -> ExternalPld:
        return ExternalPld(self.behind, self.ahead, self.source)

    def log_mgf(self, z: Array) -> Array:
        return self.ahead.log_mgf(z)

    def mgf_rounding(self, z: Array) -> Array:
        return self.ahead.mgf_rounding(z)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return self.ahead.moments(tilts)

    def __repr__(self) -> str:
        largest = float(self.ahead.supremum)
        return f"ExternalPld({self.source!r}, {len(self.ahead.index)} values up to {largest:g})"
