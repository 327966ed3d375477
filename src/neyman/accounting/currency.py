"""Define the currencies of a ledger: amounts that add up under adaptive composition [CH-1].

Each kind of currency is a class. A ledger reads currencies without NumPy, so callers pass the
objects that compute prices and curves.
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
"""A cost, never below the true cost; inf if no finite amount pays."""


class Costs(Protocol):
    """Compute the cost of one mechanism in each currency."""

    def pure(self) -> Amount:
        """Return the pure-DP epsilon."""
        ...

    def rho(self) -> Amount:
        """Return the rho of zCDP."""
        ...

    def mu_squared(self) -> Amount:
        """Return the square of mu of Gaussian DP."""
        ...

    def renyi(self, order: float) -> Amount:
        """Return the Renyi divergence at an order."""
        ...


class Families(Protocol):
    """Build trade-off curves, like the module `neyman.curves.tradeoff.guarantees`."""

    def approximate(self, epsilon: Fraction, delta: float) -> Tradeoff:
        """Return the curve of (epsilon, delta)."""
        ...

    def zcdp(self, rho: Fraction) -> Tradeoff:
        """Return the curve of rho-zCDP."""
        ...

    def gdp_of_square(self, squared: Fraction) -> Tradeoff:
        """Return the curve of mu-GDP, with mu squared = ``squared``."""
        ...

    def renyi(self, bounds: dict[float, Fraction]) -> Tradeoff:
        """Return the curve of Renyi DP. ``bounds`` maps orders to divergences."""
        ...


@dataclass(frozen=True)
class Currency(ABC):
    """Represent a currency: a unit of privacy loss, in which a ledger counts charges."""

    kind: ClassVar[str]
    """Name of the kind. A currency's text begins with it."""

    unit_format: ClassVar[str]
    """Name of one unit, with the fields in braces."""

    larger_noise: ClassVar[str] = (
        "Gaussian noise with variance {0} times as large, or other noise with a scale {0} times as "
        "large,"
    )
    """Noise that costs at most 1 / {0} of the amount. Laplace noise needs the scale: of a small
    amount its cost is that of its squared epsilon, and of a large one that of its epsilon."""

    exact: ClassVar[bool] = False
    """True if the price of a mechanism is computed without rounding."""

    @staticmethod
    def read(text: object) -> Currency:
        """Read "pure", "zcdp", "gdp", or "renyi:ORDER".

        Raises:
            TypeError, ValueError: the text is no currency.
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
        """Return the name of the unit of amounts, such as "zCDP rho"."""
        return self.unit_format.format(**vars(self))

    @abstractmethod
    def price(self, costs: Costs) -> Amount:
        """Return an amount that certainly pays for the mechanism that ``costs`` describes."""

    @abstractmethod
    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the trade-off curve of all releases that ``amount`` pays for.

        ``families`` builds the curve.
        """

    def guarantee(self, amount: Fraction, delta: float, families: Families) -> Tradeoff:
        """Return the curve for an amount and the probability ``delta`` of full disclosure."""
        curve = self.curve(amount, families)
        return curve @ families.approximate(Fraction(0), delta) if delta else curve


class PureEpsilon(Currency):
    """Charge the epsilon of pure DP (Rogers, Roth, Ullman and Vadhan 2016)."""

    kind = "pure"
    unit_format = "epsilon"
    larger_noise = "Noise with a scale {0} times as large"

    def price(self, costs: Costs) -> Amount:
        """Return the pure-DP epsilon."""
        return costs.pure()

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the trade-off curve of epsilon-DP, with epsilon = ``amount``."""
        return families.approximate(amount, 0.0)

    def guarantee(self, amount: Fraction, delta: float, families: Families) -> Tradeoff:
        """Return the curve of (epsilon, delta)-DP."""
        return families.approximate(amount, delta)


class ZcdpRho(Currency):
    """Charge the rho of zCDP (Whitehouse, Ramdas, Rogers and Wu 2023)."""

    kind = "zcdp"
    unit_format = "zCDP rho"
    exact = True

    def price(self, costs: Costs) -> Amount:
        """Return the zCDP rho."""
        return costs.rho()

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the trade-off curve of rho-zCDP, with rho = ``amount``."""
        return families.zcdp(amount)


class GdpMuSquared(Currency):
    """Charge mu squared of Gaussian DP (Smith and Thakurta 2022)."""

    kind = "gdp"
    unit_format = "GDP mu squared"

    def price(self, costs: Costs) -> Amount:
        """Return mu squared of Gaussian DP."""
        return costs.mu_squared()

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the trade-off curve of mu-GDP, with mu^2 = ``amount``."""
        return families.gdp_of_square(amount)


@dataclass(frozen=True)
class RenyiEpsilon(Currency):
    """Charge the epsilon of Renyi DP at one order (Feldman and Zrnic 2021).

    Args:
        order: at least 1, exact or inf.
    """

    kind = "renyi"
    unit_format = "Renyi epsilon at order {order}"

    order: Fraction | float

    def price(self, costs: Costs) -> Amount:
        """Return the mechanism's Renyi divergence at the order of this currency."""
        return costs.renyi(float(self.order))

    def curve(self, amount: Fraction, families: Families) -> Tradeoff:
        """Return the trade-off curve for a Renyi divergence of ``amount`` at `order`."""
        return families.renyi({float(self.order): amount})
