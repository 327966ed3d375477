"""The currencies of a ledger: amounts that add up, whatever is chosen after each release [CH-1].

A kind of currency is one class. A ledger reads currencies without NumPy, so whoever asks for a
price or a curve brings what computes it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

from neyman.numerics import check

if TYPE_CHECKING:
    from neyman.curves.tradeoff.tradeoff import Tradeoff

Amount = Fraction | float
"""Never below the truth; inf where no finite amount pays."""


class Costs(Protocol):
    """What one mechanism costs by each definition."""

    def pure(self) -> Amount:
        """Return epsilon."""
        ...

    def rho(self) -> Amount:
        """Return rho of zCDP."""
        ...

    def mu_squared(self) -> Amount:
        """Return the square of mu of Gaussian DP."""
        ...

    def renyi(self, order: float) -> Amount:
        """Return the Renyi divergence at an order."""
        ...


class Families(Protocol):
    """The guarantees by name: the module `neyman.curves.tradeoff.guarantees`."""

    def approximate(self, epsilon: Fraction, delta: float) -> Tradeoff:
        """Return the curve of (epsilon, delta)."""
        ...

    def zcdp(self, rho: Fraction) -> Tradeoff:
        """Return the curve of rho."""
        ...

    def gdp_of_square(self, squared: Fraction) -> Tradeoff:
        """Return the curve of the mu with this square."""
        ...

    def renyi(self, bounds: dict[float, Fraction]) -> Tradeoff:
        """Return the curve of divergences by their orders."""
        ...


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
    def price(self, costs: Costs) -> Amount:
        """Return an amount that certainly pays for a mechanism, from what it costs."""

    @abstractmethod
    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the curve of all that an amount pays for."""

    def guarantee(self, amount: Fraction, delta: float, families: Families) -> Tradeoff:
        """Return that curve with a chance of failing outright."""
        curve = self.curve(amount, families)
        return curve @ families.approximate(Fraction(0), delta) if delta else curve


class PureEpsilon(Currency):
    """The epsilon of pure DP (Rogers, Roth, Ullman and Vadhan 2016)."""

    kind = "pure"
    unit_format = "epsilon"
    noise_size = "a scale"

    def price(self, costs: Costs) -> Amount:
        """Return epsilon."""
        return costs.pure()

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the curve of epsilon."""
        return families.approximate(amount, 0.0)

    def guarantee(self, amount: Fraction, delta: float, families: Families) -> Tradeoff:
        """Return the curve of (epsilon, delta)."""
        return families.approximate(amount, delta)


class ZcdpRho(Currency):
    """The rho of zCDP (Whitehouse, Ramdas, Rogers and Wu 2023)."""

    kind = "zcdp"
    unit_format = "zCDP rho"
    exact = True

    def price(self, costs: Costs) -> Amount:
        """Return rho."""
        return costs.rho()

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the curve of rho."""
        return families.zcdp(amount)


class GdpMuSquared(Currency):
    """Mu squared of Gaussian DP (Smith and Thakurta 2022)."""

    kind = "gdp"
    unit_format = "GDP mu squared"

    def price(self, costs: Costs) -> Amount:
        """Return mu squared."""
        return costs.mu_squared()

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the curve of mu."""
        return families.gdp_of_square(amount)


@dataclass(frozen=True)
class RenyiEpsilon(Currency):
    """The epsilon of Renyi DP at one order (Feldman and Zrnic 2021).

    Args:
        order: at least 1, exact or inf.
    """

    kind = "renyi"
    unit_format = "Renyi epsilon at order {order}"

    order: Fraction | float

    def price(self, costs: Costs) -> Amount:
        """Return the divergence at the order."""
        return costs.renyi(float(self.order))

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the curve of the divergence at the order."""
        return families.renyi({float(self.order): amount})
