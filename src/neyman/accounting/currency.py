"""The currencies of a ledger: amounts that add up, whatever is chosen after each release [CH-1].

A kind of currency is one class. A ledger reads currencies without NumPy, so a price and a curve
import what they need when they are asked for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from neyman.numerics import check

if TYPE_CHECKING:
    from neyman.mechanisms.base import Mechanism
    from neyman.tradeoff.tradeoff import Tradeoff

__all__ = ["Currency", "GdpMuSquared", "PureEpsilon", "RenyiEpsilon", "ZcdpRho"]


@dataclass(frozen=True)
class Currency(ABC):
    """What a ledger counts charges in."""

    kind: ClassVar[str]
    """The name of the kind, with which the text begins."""

    unit_format: ClassVar[str]
    """What one unit is called, with the fields in braces."""

    noise_size: ClassVar[str] = "variance"
    """The size of noise that falls with 1 over the amount."""

    exact: ClassVar[bool] = False
    """Whether the price of a mechanism is computed without rounding."""

    @staticmethod
    def read(text: object) -> Currency:
        """Read "pure", "zcdp", "gdp", or "renyi:ORDER".

        Raises:
            TypeError, ValueError: it is none of them.
        """
        if not isinstance(text, str):
            raise TypeError(f"currency = {text!r} must be text such as 'zcdp'")
        name, _, order = text.partition(":")
        if name == RenyiEpsilon.kind:
            with suppress(ValueError):
                exact = math.inf if order == "inf" else check.exact("order", order)
                if exact >= 1:
                    return RenyiEpsilon(exact)
        for kind in (PureEpsilon, ZcdpRho, GdpMuSquared):
            if text == kind.kind:
                return kind()
        raise ValueError(
            f"currency = {text!r} must be 'pure', 'zcdp', 'gdp' or 'renyi:ORDER' with an order of "
            "at least 1"
        )

    @property
    def text(self) -> str:
        """Return the text that a ledger stores."""
        return ":".join([self.kind, *map(str, vars(self).values())])

    @property
    def unit(self) -> str:
        """Return what one unit is called."""
        return self.unit_format.format(**vars(self))

    @abstractmethod
    def price(self, mechanism: Mechanism) -> Fraction | float:
        """Return an amount that certainly pays for a mechanism; inf if none does."""

    @abstractmethod
    def curve(self, amount: Fraction) -> Tradeoff:
        """Return the curve of all that an amount pays for."""

    def guarantee(self, amount: Fraction, delta: float) -> Tradeoff:
        """Return that curve with a chance of failing outright."""
        from neyman.tradeoff.guarantees import approximate

        curve = self.curve(amount)
        return curve @ approximate(0, delta) if delta else curve


class PureEpsilon(Currency):
    """The epsilon of pure DP (Rogers, Roth, Ullman and Vadhan 2016)."""

    kind = "pure"
    unit_format = "epsilon"
    noise_size = "a scale"

    def price(self, mechanism: Mechanism) -> Fraction | float:
        """Return the epsilon of the mechanism's curve."""
        return mechanism.tradeoff().exact_pure()

    def curve(self, amount: Fraction) -> Tradeoff:
        """Return the curve of epsilon."""
        return self.guarantee(amount, 0.0)

    def guarantee(self, amount: Fraction, delta: float) -> Tradeoff:
        """Return the curve of (epsilon, delta)."""
        from neyman.tradeoff.guarantees import approximate

        return approximate(amount, delta)


class ZcdpRho(Currency):
    """The rho of zCDP (Whitehouse, Ramdas, Rogers and Wu 2023)."""

    kind = "zcdp"
    unit_format = "zCDP rho"
    exact = True

    def price(self, mechanism: Mechanism) -> Fraction | float:
        """Return the mechanism's rho."""
        return mechanism.rho()

    def curve(self, amount: Fraction) -> Tradeoff:
        """Return the curve of rho."""
        from neyman.tradeoff.guarantees import zcdp

        return zcdp(amount)


class GdpMuSquared(Currency):
    """Mu squared of Gaussian DP (Smith and Thakurta 2022)."""

    kind = "gdp"
    unit_format = "GDP mu squared"

    def price(self, mechanism: Mechanism) -> Fraction | float:
        """Return mu squared, exact where all noise is Gaussian."""
        from neyman.losses.gaussian import GaussianLoss
        from neyman.losses.rounded_gaussian import RoundedGaussianLoss
        from neyman.numerics.rounding import up

        normal = (GaussianLoss, RoundedGaussianLoss)
        if all(isinstance(x, normal) for c in mechanism.losses() for x, _ in c.parts):
            return 2 * mechanism.rho()
        mu = mechanism.tradeoff().gdp().upper
        return up(mu * mu, 1) if mu else 0.0

    def curve(self, amount: Fraction) -> Tradeoff:
        """Return the curve of mu."""
        from neyman.losses.discrete_gaussian import root_above
        from neyman.tradeoff.guarantees import gdp

        return gdp(root_above(amount))


@dataclass(frozen=True)
class RenyiEpsilon(Currency):
    """The epsilon of Renyi DP at one order (Feldman and Zrnic 2021).

    Args:
        order: at least 1, exact or inf.
    """

    kind = "renyi"
    unit_format = "Renyi epsilon at order {order}"

    order: Fraction | float

    def price(self, mechanism: Mechanism) -> Fraction | float:
        """Return the mechanism's divergence at the order."""
        from neyman.tuning.winner import divergence

        order = float(self.order)
        amount = mechanism.tradeoff().renyi(order).upper
        return amount if amount < math.inf else divergence(mechanism, order)

    def curve(self, amount: Fraction) -> Tradeoff:
        """Return the curve of the divergence at the order."""
        from neyman.tradeoff.guarantees import renyi

        return renyi({float(self.order): amount})
