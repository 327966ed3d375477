"""Define the budgets of a plan: each kind with its fields, target, sentence, and text.

Each kind of budget is a class. A plan's file names its numbers ({"zcdp": "1/10"}). A receipt adds
its kind ({"kind": "zcdp", "rho": "0.1"}). `budget_of` reads both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from neyman.accounting.calibrate import Budget
from neyman.accounting.charges import charge
from neyman.accounting.semantics.digits import delta as delta_text
from neyman.accounting.semantics.digits import (
    exact_text,
    level_percent,
    number,
    percent,
    short_text,
)
from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.guarantees import approximate, gdp, zcdp
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import above, below


@dataclass(frozen=True)
class Limits:
    """Limit the levels at which a budget's curve is checked."""

    least_level: float = 1e-12  # smallest level at which power is checked
    rounding_factor: float = 1.01  # allowed power divided by the Gaussian's
    lines: int = 400  # lines above the power, each from one delta
    least_delta: float = 1e-300


LIMITS = Limits()

PLAN_FIELDS = {"rho": "zcdp", "mu": "gdp"}
"""The fields with different names in a receipt and in a plan's file."""

RANGES = {
    "power": ("1e-12", "1"),
    "level": ("1e-12", "1"),
    "zcdp": ("1e-15", "1e4"),
    "gdp": ("1e-9", "1e4"),
    "epsilon": ("1e-9", "1e4"),
    "delta": ("1e-300", "1"),
}
"""The range of each number of a plan. Outside, there is almost no noise, or no usable noise."""

Question = Literal["epsilon", "power", "mu", "rho"]


@dataclass(frozen=True)
class PlanBudget(ABC):
    """Represent the limit on an attacker's information from a release, in exact numbers."""

    kind: ClassVar[str]
    """Name of the kind in a receipt."""

    flavor: ClassVar[str] = "Custom"
    """Name of the kind in a deployment record."""

    curve_needed: ClassVar[bool] = False
    """True if a claim of rho-zCDP alone implies nothing about the budget."""

    @property
    def numbers(self) -> dict[str, Fraction]:
        """Return the exact numbers of the budget by their names in a plan's file."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return {PLAN_FIELDS.get(name, name): value for name, value in given.items()}

    def to_fields(self) -> dict[str, str]:
        """Return the fields of a plan's file as text."""
        return {name: exact_text(value) for name, value in self.numbers.items()}

    def to_dict(self) -> dict[str, str]:
        """Return the kind and the numbers as text, as in a receipt."""
        numbers = ((name, value) for name, value in vars(self).items() if value is not None)
        return {"kind": self.kind} | {name: exact_text(value) for name, value in numbers}

    def text(self) -> str:
        """Return the names and numbers of the budget, for a message."""
        return " and ".join(f"budget.{n} = {short_text(v)}" for n, v in self.numbers.items())

    @property
    @abstractmethod
    def target(self) -> Budget:
        """Return the target for calibrating noise, on the safe side of the exact numbers."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """Return the limit in words, without a period."""

    @property
    @abstractmethod
    def rough_mu(self) -> float:
        """Return the approximate mu of Gaussian noise that spends the budget."""

    def tradeoff(self) -> Tradeoff:
        """Return the budget's trade-off curve."""
        return self.target.tradeoff()

    def admits(self, mechanism: Described) -> bool:
        """Return True if the mechanism certainly meets the budget."""
        return self.target.admits(mechanism)

    def limit(self, question: Question, at: float) -> Fraction | None:
        """Return the limit that each mechanism within the budget meets; None if nothing is proven.

        Args:
            question: epsilon at a delta, power at a level, mu, or rho.
            at: the delta or level; unused for mu and rho.
        """
        return None

    @property
    def power_limit(self) -> Callable[[Array], Array] | None:
        """Return a function from levels in [0, 1] to the largest allowed power; None if unknown."""
        return None

    @property
    def corner(self) -> float | None:
        """Return the level at which `power_limit` has a corner; None if it has none."""
        return None

    @property
    def claim(self) -> str:
        """Return the claim, such as "epsilon at delta", that other curves can be checked against.

        Return "" if there is none.
        """
        return ""

    def claimed_by(self, curve: Tradeoff) -> bool:
        """Return True if a curve certainly meets the claim."""
        raise ValueError(f"a budget in {self.kind} has no number at one point of a curve")

    @property
    def outright(self) -> Fraction | None:
        """Return the allowed probability of revealing keys outright; None for never."""
        return self.numbers.get("delta")

    def shortage(self, outright: Fraction) -> str:
        """Return the part of a message that says why keys cannot be revealed this often, or "".

        ``outright``: probability that discovered keys are revealed outright.
        """
        most = self.outright or Fraction(0)
        return f"budget.delta = {short_text(most)}" if outright > most else ""

    def problems(self, *, discovers: bool) -> Iterator[str]:
        """Yield the problems of the numbers in a plan.

        Args:
            discovers: True if keys are discovered, so that a key can be revealed outright.
        """
        if discovers and self.outright is None:
            name, value = next(iter(self.numbers.items()))
            yield (
                f"budget.{name} = {short_text(value)}: keys that are discovered can be revealed "
                "outright, so the budget needs a delta: give zcdp with delta, or epsilon with delta"
            )
        yield from self._own_problems(discovers=discovers)
        if not self.numbers.get("delta", Fraction(0)) < 1:
            yield f"budget.delta = {short_text(self.numbers['delta'])}: must be below 1"
        for name, value in self.numbers.items():
            low, high = RANGES[name]
            if not Fraction(low) <= value <= Fraction(high):
                yield f"budget.{name} = {short_text(value)}: must be between {low} and {high}"

    def _own_problems(self, *, discovers: bool) -> Iterator[str]:
        """Yield problems of the numbers that only this kind of budget has."""
        yield from ()


@dataclass(frozen=True)
class Zcdp(PlanBudget):
    """Represent a budget of rho-zCDP, with a delta for discovered keys."""

    kind = "zcdp"
    flavor = "Zero-concentrated DP"

    rho: Fraction
    delta: Fraction | None = None

    @property
    def target(self) -> Tradeoff:
        """Return the guarantee itself. Its rho is compared exactly."""
        return zcdp(self.rho, delta=self.delta or Fraction(0))

    @property
    def sentence(self) -> str:
        """Return rho in words, and delta if there is one."""
        beside = "" if self.delta is None else f" and delta {delta_text(self.delta)}"
        return f"zCDP with rho {number(self.rho)}{beside}"

    @property
    def rough_mu(self) -> float:
        """Return the mu of one Gaussian release that costs rho."""
        return math.sqrt(2 * self.rho)

    def admits(self, mechanism: Described) -> bool:
        """Return True if the mechanism meets the budget, compared exactly."""
        if not isinstance(mechanism, Mechanism):
            return self.target.admits(mechanism)
        rho, delta = charge(mechanism, "zcdp")
        return rho <= self.rho and delta <= (self.delta or 0)

    def limit(self, question: Question, at: float) -> Fraction | None:
        """Return rho if the question is rho, else None."""
        return self.rho if question == "rho" else None

    def _own_problems(self, *, discovers: bool) -> Iterator[str]:
        if self.delta is not None and not discovers:
            yield (
                f"budget.delta = {short_text(self.delta)}: nothing can be revealed outright, as no "
                "query is by a column with discover = true; leave it out"
            )


@dataclass(frozen=True)
class Gdp(PlanBudget):
    """Represent a budget of mu-Gaussian DP."""

    kind = "gdp"
    curve_needed = True

    mu: Fraction

    @property
    def target(self) -> Tradeoff:
        """Return the Gaussian curve of the float at or below mu."""
        return gdp(below(self.mu))

    @property
    def sentence(self) -> str:
        """Return mu in words."""
        return f"Gaussian differential privacy with mu {number(self.mu)}"

    @property
    def rough_mu(self) -> float:
        """Return mu."""
        return float(self.mu)

    def limit(self, question: Question, at: float) -> Fraction | None:
        """Return mu if the question is mu, else None."""
        return self.mu if question == "mu" else None

    @property
    def power_limit(self) -> Callable[[Array], Array]:
        """Return the power of the Gaussian curve."""
        return _gaussian(float(self.mu))


@dataclass(frozen=True)
class Approximate(PlanBudget):
    """Represent a budget of (epsilon, delta)-DP."""

    kind = "approximate"
    flavor = "Approximate DP"

    epsilon: Fraction
    delta: Fraction

    @property
    def target(self) -> Tradeoff:
        """Return the curve of epsilon and the float at or below delta."""
        return approximate(self.epsilon, below(self.delta))

    @property
    def sentence(self) -> str:
        """Return epsilon and delta in words."""
        return f"epsilon {number(self.epsilon)} at delta {delta_text(self.delta)}"

    @property
    def rough_mu(self) -> float:
        """Return the approximate mu, by the usual conversion from zCDP to epsilon and delta."""
        # rho + 2 sqrt(rho log(1 / delta)) = epsilon
        log = -math.log(max(float(self.delta), LIMITS.least_delta))
        return math.sqrt(2) * (math.sqrt(log + self.epsilon) - math.sqrt(log))

    def limit(self, question: Question, at: float) -> Fraction | None:
        """Return epsilon if the question is epsilon at the budget's delta or above, else None."""
        return self.epsilon if question == "epsilon" and at >= below(self.delta) else None

    @property
    def power_limit(self) -> Callable[[Array], Array]:
        """Return min(1, e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)) at each level a."""
        delta, factor = float(self.delta), math.exp(min(float(self.epsilon), 700.0))

        def power(levels: Array) -> Array:
            powers = np.minimum(factor * levels + delta, 1 - (1 - delta - levels) / factor)
            return np.where(levels < 1, np.clip(powers, 0, 1), 1.0)

        return power

    @property
    def corner(self) -> float:
        """Return the level where `power_limit`'s two lines meet, (1 - delta) / (1 + e^epsilon)."""
        return (1 - float(self.delta)) / (1 + math.exp(min(float(self.epsilon), 700.0)))

    @property
    def claim(self) -> str:
        """Return the claim "epsilon at delta" as text."""
        return f"epsilon {exact_text(self.epsilon)} at delta {exact_text(self.delta)}"

    def claimed_by(self, curve: Tradeoff) -> bool:
        """Return True if delta at epsilon is certainly at most the budget's."""
        return curve.delta(float(self.epsilon)).upper <= self.delta

    def shortage(self, outright: Fraction) -> str:
        """Return why no delta is left for the noise, or "" if some is left."""
        larger = f"budget.delta = {short_text(self.delta)}, which must be larger"
        return larger if outright >= self.delta else ""


@dataclass(frozen=True)
class AtMost(PlanBudget):
    """Represent "at most this power at this level", in the strong sense of `at_most`.

    Args:
        power: probability that the best test confirms a true claim, above the level; exact.
        level: probability that it confirms a false claim, above 0; exact.
    """

    kind = "at_most"
    curve_needed = True

    power: Fraction
    level: Fraction

    @property
    def target(self) -> AtMost:
        """Return the budget itself, which checks power at many levels."""
        return self

    @property
    def sentence(self) -> str:
        """Return the true and the false positive rate in words."""
        return (
            f"a true positive rate of at most {percent(self.power)} at a "
            f"{level_percent(self.level)} false positive rate"
        )

    @property
    def rough_mu(self) -> float:
        """Return mu of the Gaussian curve through (level, power)."""
        return self.mu

    def limit(self, question: Question, at: float) -> Fraction | None:
        """Return the power if the question is power at the level or below, else None."""
        return self.power if question == "power" and at <= float(self.level) else None

    @property
    def power_limit(self) -> Callable[[Array], Array] | None:
        """Return the power of the Gaussian curve through (level, power), if there is one."""
        inside = 0 < float(self.level) < 1 and 0 < float(self.power) < 1
        return _gaussian(self.mu) if inside else None

    @property
    def claim(self) -> str:
        """Return the claim "power at level" as text."""
        return f"power at most {exact_text(self.power)} at level {exact_text(self.level)}"

    def claimed_by(self, curve: Tradeoff) -> bool:
        """Return True if power at the level is certainly at most the budget's."""
        return curve.power(float(self.level)).upper <= self.power

    @property
    def outright(self) -> Fraction:
        """Return 1e-12, the allowed probability of revealing keys outright.

        `admits` allows a delta of 2e-12. The noise uses up to 1e-12 of it.
        """
        return Fraction(1, 10**12)

    def shortage(self, outright: Fraction) -> str:
        """Return the part of a message that says why 1e-12 is too small, or "" if it is not."""
        return "budget.power leaves 1e-12 for it" if outright > self.outright else ""

    def _own_problems(self, *, discovers: bool) -> Iterator[str]:
        if not self.level < self.power < 1:
            yield (
                f"budget.power = {short_text(self.power)}: must be above the level "
                f"{short_text(self.level)} (which guessing reaches) and below 1"
            )

    @property
    def mu(self) -> float:
        """Return mu = z(1 - level) - z(1 - power), of the Gaussian curve through (level, power)."""
        return float(ndtri(float(self.power)) - ndtri(float(self.level)))

    def tradeoff(self) -> Tradeoff:
        """Return the Gaussian curve through (level, power)."""
        return gdp(self.mu)

    def admits(self, mechanism: Described) -> bool:
        """Return True if a mechanism certainly meets the three conditions of `at_most`."""
        spent = _spent(mechanism)
        if spent.bare_rho() is not None:
            raise ValueError(
                "budget: a mechanism of which only rho-zCDP is claimed (its shifts allow too many "
                "combinations) cannot be held against a power; give the budget as zcdp"
            )
        # same: 1 -> 2: The next float towards 2 is the next float towards 1.
        level = math.nextafter(float(self.level), 1)  # at or above the exact level
        if Fraction(spent.power(level).upper) > self.power:
            return False
        # same: .upper -> .lower: Safe: a smaller epsilon asks for no larger delta. Both ends of a
        # Gaussian curve differ by rounding.
        far = self.tradeoff().epsilon(LIMITS.least_level).upper
        # same: > 2 -> >= 2: Safe: equality is refused. No curve was found whose upper end is
        # exactly this float.
        if spent.delta(far).upper > 2 * LIMITS.least_level:
            return False
        reached, allowed = self._everywhere(spent)
        # same: <= allowed -> < allowed: Safe: equality of two rounded numbers is refused.
        return bool(np.all(reached <= allowed))

    def excess(self, mechanism: Described) -> float | None:
        """Estimate log(power / allowed power) at the level; None if unknown."""
        spent = _spent(mechanism)
        if spent.bare_rho() is not None:
            return None
        # same: .upper -> .lower: It steers a search, whose answer admits() decides.
        return spent.log_power(float(self.level)).upper - math.log(float(self.power))

    def excess_elsewhere(self, mechanism: Described) -> float:
        """Estimate log(spent / allowed) of the other checks of `admits`: other levels and delta."""
        spent = _spent(mechanism)
        # same: .upper -> .lower: Safe: a smaller epsilon asks for no larger delta. Both ends of a
        # Gaussian curve differ by rounding.
        far = self.tradeoff().epsilon(LIMITS.least_level).upper
        reached, allowed = self._everywhere(spent)
        # same: .upper -> .lower: It steers a search, whose answer admits() decides.
        beyond = spent.log_delta(far).upper - math.log(2 * LIMITS.least_level)
        return max(beyond, float(np.log(np.max(reached / allowed))))

    def _everywhere(self, spent: Tradeoff) -> tuple[Array, Array]:
        """Return upper bounds on the power, and 1.01 G, at the levels that must be compared.

        G is the Gaussian's power. The power is below each line delta(epsilon) + e^epsilon level.
        Between crossings of adjacent lines, this bound is straight and G is concave. So comparing
        them at the crossings suffices.
        """
        mu = self.mu
        # From this level on 1.01 G is above 1.
        # same: ndtri(1 / LIMITS.rounding_factor) - mu -> (ndtri(1 / LIMITS.rounding_factor)): Safe:
        # more levels are compared.
        top = float(ndtr(ndtri(1 / LIMITS.rounding_factor) - mu))
        ends = -float(ndtri(LIMITS.least_level)) + 0.3, -float(ndtri(top)) - 0.3
        z = np.linspace(*ends, LIMITS.lines)
        epsilons = mu * z - mu * mu / 2
        slope = np.exp(epsilons)
        base = spent.deltas_above(epsilons)
        crossing = np.clip(
            (base[:-1] - base[1:]) / (slope[1:] - slope[:-1]), LIMITS.least_level, top
        )
        levels = np.concatenate([[LIMITS.least_level], crossing, [top]])
        # Line i serves between crossings i - 1 and i. The chain runs from the least level to the
        # top, so its rising pieces cover every level.
        allowed = LIMITS.rounding_factor * ndtr(ndtri(levels) + mu)
        left, right = base + slope * levels[:-1], base + slope * levels[1:]
        rising = levels[:-1] < levels[1:]
        reached = np.concatenate([left[rising], right[rising]])
        return reached, np.concatenate([allowed[:-1][rising], allowed[1:][rising]])


def _spent(mechanism: Described) -> Tradeoff:
    """Return the mechanism's curve for both orders of neighbors, as a guarantee covers both."""
    return replace(check.described("mechanism", mechanism).tradeoff(), ordered=False)


@dataclass(frozen=True)
class SuccessAtMost(AtMost):
    """Represent an `AtMost` that also limits `Tradeoff.success`, the chance of a right guess.

    The success is 1 - f for the convex curve f below all pairs in both orders. It equals the power
    if one pair has the largest power near the level. A plan stores the budget as power and level.
    Then the success is at most 1.01 times the power [RK-6].
    """

    def admits(self, mechanism: Described) -> bool:
        """Return True if the mechanism certainly meets both the power budget and the success."""
        success = _spent(mechanism).success
        return super().admits(mechanism) and success(self.level).upper <= self.power

    def excess_elsewhere(self, mechanism: Described) -> float:
        """Estimate log(spent / allowed) of the other checks of `admits`, including the success."""
        success = _spent(mechanism).success(self.level).upper
        own = math.log(success) - math.log(float(self.power))
        return max(super().excess_elsewhere(mechanism), own)


def at_most(
    power: float | Fraction | str | None = None,
    level: float | Fraction | str | None = None,
    *,
    success: float | Fraction | str | None = None,
    baseline: float | Fraction | str | None = None,
) -> AtMost:
    """Return the budget "power at most ``power`` at level ``level``", in the strong sense.

    A guarantee at only one level is weak: a leak of everything with probability .20 passes "power
    at most .25 at level .05". So the budget means the Gaussian curve through the point, mu = z(1 -
    level) - z(1 - power). A mechanism meets it under three conditions. Its power at the level is at
    most ``power``. At every level from 1e-12 up, its power is at most 1% above the Gaussian's. At
    the epsilon where the Gaussian's delta is 1e-12, its delta is at most 2e-12.

    Args:
        power: in (level, 1).
        level: in (0, 1).
        success: instead of power: the largest chance of a right guess about one record, in
            (baseline, 1). `Tradeoff.success` must also meet it.
        baseline: instead of level: the best chance without the release, in (0, 1).

    Examples:
        >>> import neyman as ny
        >>> target = ny.at_most(power=0.10, level=0.05)
        >>> round(float(ny.calibrate(ny.Gaussian, target)), 3)
        2.753
        >>> target = ny.at_most(success=0.10, baseline=0.05)
        >>> round(float(ny.calibrate(ny.Gaussian, target)), 3)
        2.753
    """
    kind, most, at = AtMost, "power", "level"
    if success is not None or baseline is not None:
        if power is not None or level is not None:
            raise TypeError("at_most: give power with level, or success with baseline, not both")
        kind, most, at, power, level = SuccessAtMost, "success", "baseline", success, baseline
    for name, value, other in ((most, power, at), (at, level, most)):
        if value is None:
            raise TypeError(f"at_most: {name} is missing; give it together with {other}")
    exact_power, exact_level = check.exact(most, power), check.exact(at, level)
    if not 0 < exact_level < 1:
        raise ValueError(f"{at} = {level!r} must be between 0 and 1, both excluded")
    if not exact_level < exact_power < 1:
        raise ValueError(
            f"{most} = {power!r} must be above {at} = {level!r}, which guessing reaches, and "
            "below 1"
        )
    near = math.isclose(float(exact_power), float(exact_level))
    if float(exact_level) < LIMITS.least_level or near:
        raise ValueError(
            f"{at} = {level!r}, {most} = {power!r}: the {at} must be at least "
            f"{LIMITS.least_level:g} and the {most} clearly above it"
        )
    return kind(exact_power, exact_level)


KINDS: tuple[type[PlanBudget], ...] = (AtMost, Zcdp, Gdp, Approximate)


def budget_of(given: Mapping[str, object]) -> PlanBudget:
    """Read a budget from the fields of a plan, or from its kind and numbers in a receipt.

    Raises:
        TypeError, ValueError: the fields match no kind, or a number is not valid.
    """
    numbers = {PLAN_FIELDS.get(name, name): x for name, x in given.items() if name != "kind"}
    for kind in KINDS:
        own = {PLAN_FIELDS.get(part.name, part.name): part for part in fields(kind)}
        needed = {name for name, part in own.items() if part.default is MISSING}
        if needed <= set(numbers) <= set(own) and given.get("kind", kind.kind) == kind.kind:
            exact = {own[name].name: check.exact(name, x) for name, x in numbers.items()}
            return kind(**exact)
    raise ValueError(f"budget = {dict(given)!r:.200} is none that a plan has")


def budget_from(value: object) -> PlanBudget:
    """Return the budget for a Python value: a budget, or a named guarantee.

    Raises:
        TypeError: the value is neither.
    """
    if isinstance(value, PlanBudget):
        return value
    if isinstance(value, Tradeoff):
        if value.definition:
            return budget_of(dict(value.definition))
        rho = value.bare_rho()
        if rho is not None and value == zcdp(rho):  # however it was composed
            return Zcdp(rho)
    raise TypeError(
        f"budget = {value!r}: must be ny.at_most(power, level), ny.zcdp(rho), "
        "ny.gdp(mu), ny.approximate(epsilon, delta), or fields such as {'zcdp': '1/10'}"
    )


def within_limit(
    budget: PlanBudget | None, question: Question, bound: Bound, at: float = 0.0
) -> Bound:
    """Return the smaller of a bound on an answer and the budget's proven limit.

    If a release just meets a budget of epsilon 3, the search for the smallest epsilon may end above
    3, by at most a relative 1e-12, and a page that rounds up would print 3.01.

    Args:
        budget: a budget that admits the mechanism; None proves nothing.
    """
    limit = None if budget is None else budget.limit(question, at)
    # Outcomes of infinite loss leave no finite rho.
    if limit is None or (question == "rho" and bound.upper == math.inf):
        return bound
    most = above(limit)
    return replace(bound, lower=min(bound.lower, most), upper=min(bound.upper, most))


def _gaussian(mu: float) -> Callable[[Array], Array]:
    return lambda levels: np.where(levels < 1, ndtr(ndtri(levels) + mu), 1.0)
