"""Filter adaptively chosen releases, so the total never exceeds a budget.

A filter grants a release if its cost fits into the remaining budget. After seeing all earlier
outcomes, the analyst may choose each mechanism and its cost, even at random. All granted releases
together meet the budget in the filter's currency: "pure" (epsilon; Rogers, Roth, Ullman and Vadhan
2016), "zcdp" (rho; Whitehouse, Ramdas, Rogers and Wu 2023), "gdp" (mu squared; Smith and Thakurta
2022) and "renyi:ORDER" (Feldman and Zrnic 2021). A release that may reveal a record outright also
costs a delta, which the filter caps too (`charge`).

Trade-off curves have no such filter. It would grant a release if the tensor product of all releases
stays above a curve. But an analyst may choose the second release by the answer of the first. This
mixes two products, and the mixture can be below the curve
(docs/decisions.md#adaptive-composition). Amounts that add up leave no such choice. So `charge` and
this module refuse curves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from neyman.accounting.charges import charge
from neyman.accounting.currency import Currency, RenyiEpsilon
from neyman.curves.tradeoff import guarantees
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.numerics import check
from neyman.numerics.rounding import above

Amount = Fraction | float | str
Cost = Mechanism | Amount | tuple[Amount, Amount]


@dataclass(frozen=True)
class Filter:
    """Represent a budget for adaptively chosen releases; immutable, exact.

    Args:
        currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared) or "renyi:ORDER".
        budget: the largest total amount, at least 0.
        spent: the amount already spent, from 0 to the budget.
        delta: the largest total delta of releases that may fail outright, in [0, 1).
        spent_delta: the total delta of past releases, from 0 to ``delta``.

    Raises:
        ValueError: the currency is unknown, or is a curve, which has no filter (see the module).

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.filters import Filter
        >>> left = Filter("zcdp", 1).after(ny.Gaussian(1))  # rho = 1/2
        >>> left.left, left.admits(ny.Gaussian(0.9))
        (Fraction(1, 2), False)
    """

    currency: str
    budget: Fraction
    spent: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    spent_delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        _known(self.currency)
        for name in ("budget", "spent", "delta", "spent_delta"):
            object.__setattr__(self, name, check.exact(name, getattr(self, name)))
        if self.budget < 0:
            raise ValueError(f"budget = {self.budget} must be at least 0")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta = {self.delta} must be at least 0 and below 1")
        if not 0 <= self.spent <= self.budget:
            raise ValueError(
                f"spent = {self.spent} must be between 0 and the budget, {self.budget}"
            )
        if not 0 <= self.spent_delta <= self.delta:
            raise ValueError(
                f"spent_delta = {self.spent_delta} must be between 0 and delta, {self.delta}"
            )

    @property
    def left(self) -> Fraction:
        """Return the remaining budget, in the filter's currency."""
        return self.budget - self.spent

    @property
    def left_delta(self) -> Fraction:
        """Return the remaining delta."""
        return self.delta - self.spent_delta

    def admits(self, release: Cost) -> bool:
        """Return True if the remaining budget certainly covers a release.

        Args:
            release: a mechanism, or its proven cost: an amount, or a pair (amount, delta).
        """
        cost, delta = _cost(release, self.currency)
        return cost <= self.left and delta <= self.left_delta

    def after(self, release: Cost) -> Filter:
        """Return the filter after a release. Use the new filter before the release reads data.

        Args:
            release: a mechanism, or its proven cost: an amount, or a pair (amount, delta).

        Raises:
            ValueError: the release does not fit. The message has its cost, the remainder, and the
                difference.
        """
        cost, delta = _cost(release, self.currency)
        if cost > self.left:
            lacking = f"{float(cost - self.left):.6g} too much" if _finite(cost) else "not enough"
            raise ValueError(
                f"release = {release!r} costs {float(cost):.6g} in {self.currency!r}, but "
                f"{float(self.left):.6g} is left: {lacking}; at most {self.left} fits"
            )
        if delta > self.left_delta:
            raise ValueError(
                f"release = {release!r} may fail with delta {float(delta):.6g}, but "
                f"{float(self.left_delta):.6g} of delta is left: "
                f"{float(delta - self.left_delta):.6g} too much; at most {self.left_delta} fits"
            )
        return replace(self, spent=self.spent + cost, spent_delta=self.spent_delta + delta)

    def tradeoff(self) -> Tradeoff:
        """Return the curve of all releases that fit, which fail with chance at most ``delta``."""
        return _known(self.currency).guarantee(self.budget, above(self.delta), guarantees)


@dataclass(frozen=True)
class Odometer:
    """Track the budget spent on adaptively chosen releases, with no cap.

    In "pure", the reading bounds the privacy loss of every outcome seen, at any stopping time. In
    the other currencies a guarantee is an average over outcomes, so an amount that depends on
    outcomes is no guarantee. But for each multiple of ``step``, all releases up to the last one
    within the multiple meet it, like one filter (Rogers et al. 2016; Feldman and Zrnic 2021). An
    odometer does not read the delta of releases that may fail outright: a `Filter` caps it.

    Args:
        currency: as for `Filter`.
        step: the reading is a multiple of this step, above 0.
        spent: the amount already spent, at least 0.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.filters import Odometer
        >>> read = Odometer("zcdp", "0.1").after(ny.Gaussian(2)).after(ny.Gaussian(5))
        >>> read.spent, read.reading
        (Fraction(29, 200), Fraction(1, 5))
    """

    currency: str
    step: Fraction
    spent: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        _known(self.currency)
        for name in ("step", "spent"):
            object.__setattr__(self, name, check.exact(name, getattr(self, name)))
        if self.step <= 0:
            raise ValueError(f"step = {self.step} must be above 0")
        if self.spent < 0:
            raise ValueError(f"spent = {self.spent} must be at least 0")

    @property
    def reading(self) -> Fraction:
        """Return the smallest multiple of the step that covers the budget spent.

        The guarantee belongs to the rule "stop before this multiple is exceeded", not to the
        outcomes.
        """
        return math.ceil(self.spent / self.step) * self.step

    def after(self, release: Cost) -> Odometer:
        """Return the odometer after a release.

        Raises:
            ValueError: no finite amount pays for the release, or it has a delta.
        """
        cost, delta = _cost(release, self.currency)
        if not _finite(cost):
            raise ValueError(
                f"release = {release!r} costs no finite amount in {self.currency!r}; use zCDP, "
                "which can pay for Gaussian noise"
            )
        if delta:
            raise ValueError(
                f"release = {release!r} may fail with delta {float(delta):.6g}, which an odometer "
                "does not read; use Filter(..., delta=...), which caps it"
            )
        return replace(self, spent=self.spent + cost)


def _known(text: object) -> Currency:
    try:
        currency = Currency.read(text)
        if not isinstance(currency, RenyiEpsilon) or currency.order < math.inf:
            return currency
        why = f"currency = {text!r} must have a finite order; 'pure' is the infinite one"
    except ValueError as error:
        why = str(error)
    raise ValueError(
        f"{why}: trade-off curves and (epsilon, delta) do not add up when releases are chosen "
        "adaptively, and a filter that multiplies curves is broken by mixing them over outcomes"
    )


def _cost(release: Cost, currency: str) -> tuple[Fraction | float, Fraction]:
    """Return the cost of a release in the currency, and its delta, both never below the truth.

    Both are exact rationals, or the cost is inf if no finite amount pays.
    """
    if isinstance(release, Mechanism):
        try:
            return charge(release, currency)
        except ValueError:  # no finite amount pays in a known currency
            return math.inf, Fraction(0)
    given = release if isinstance(release, tuple) else (release, 0)
    if len(given) != 2:
        raise ValueError(f"release = {release!r} must be an amount, or a pair (amount, delta)")
    amount, delta = (check.exact("release", x) for x in given)
    if amount < 0 or not 0 <= delta <= 1:
        raise ValueError(
            f"release = {release!r} must cost at least 0, and its delta must be from 0 to 1"
        )
    return amount, delta


def _finite(cost: Fraction | float) -> bool:
    return isinstance(cost, Fraction)
