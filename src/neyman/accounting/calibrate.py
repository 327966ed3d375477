"""Find the parameter of a mechanism, such as a noise scale, that just meets a privacy budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Protocol, runtime_checkable

from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.roots import bisect, bisect_integers, zero


@dataclass(frozen=True)
class Limits:
    """Limit the search for a parameter."""

    largest_ratio: float = 1e15
    relative_width: float = 2e-10  # relative gap between the result and a refused parameter


LIMITS = Limits()


class Budget(Protocol):
    """Represent a privacy budget, with a certified test of whether a mechanism meets it."""

    def admits(self, mechanism: Described) -> bool:
        """Return True if the mechanism certainly meets this budget."""
        ...

    def excess(self, mechanism: Described) -> float | None:
        """Estimate log(mechanism's privacy loss / allowed privacy loss); None if unknown."""
        ...

    def tradeoff(self) -> Tradeoff:
        """Return the budget's trade-off curve."""
        ...


@runtime_checkable
class PowerBudget(Budget, Protocol):
    """Represent a budget that first checks one false positive rate, and then all others."""

    def excess_elsewhere(self, mechanism: Described) -> float:
        """Estimate `excess` at all false positive rates except the first one."""
        ...


class NoParameter(ValueError):
    """Report that all parameters that were tried meet the budget, or that none does."""


def calibrate(make: Callable[[Any], Described], budget: Budget, *, whole: bool = False) -> float:
    """Find the parameter value that just meets a budget, certified.

    Args:
        make: function from a parameter above 0 to a mechanism. Privacy may grow with the parameter
            (a noise scale) or fall with it (a rate, an epsilon).
        budget: a budget: a curve such as ``ny.approximate(2, 1e-6)``, or ``ny.at_most(...)``.
        whole: True if the parameter is a whole number of at least 1, such as a count of steps.

    Returns:
        A parameter that certainly meets the budget. If privacy is monotone in the parameter, the
        result is within a relative 1e-9 of the best. Discrete Gaussian noise is not monotone, so a
        slightly smaller sigma may also meet the budget. If ``whole``, the next whole number with
        less privacy does not meet the budget.

    Raises:
        ValueError: no parameter between 1e-15 and 1e15 meets the budget, or all do.

    Examples:
        >>> import neyman as ny
        >>> sigma = ny.calibrate(lambda s: ny.Gaussian(s) * 10, budget=ny.approximate(1, 1e-6))
        >>> round(sigma, 3)
        13.36
    """
    if not hasattr(budget, "admits"):
        raise TypeError(f"budget = {budget!r} must be a budget, such as ny.approximate(2, 1e-6)")
    if not callable(make):
        raise TypeError(
            f"make = {make!r} must be a function from a parameter to a mechanism, such as "
            "ny.Gaussian"
        )

    def described(x: float) -> Described:
        return check.described(f"make({x!r})", make(x))

    if check.truth("whole", whole):
        return _first_admitted(lambda n: budget.admits(described(n)))
    return _search_parameter(budget, described, 1.0, LIMITS.relative_width)


def _first_admitted(admits: Callable[[int], bool]) -> int:
    """Return the admitted one of two adjacent whole numbers, of which one is refused.

    The search doubles from 1, then bisects.
    """
    first = admits(1)
    known, following = 1, 2
    while admits(following) == first:
        known, following = following, 2 * following
        if following > LIMITS.largest_ratio:
            raise ValueError(
                f"{'every' if first else 'no'} whole number up to {known} meets the budget: check "
                "that the parameter changes the mechanism's privacy"
            )
    known = bisect_integers(lambda n: admits(n) == first, known, following)
    return known if first else known + 1


def calibrate_exact(
    make: Callable[[Fraction], Described], budget: Budget, digits: int = 9, start: float = 1.0
) -> Fraction:
    """Return the smallest certified noise scale with ``digits`` significant decimal digits.

    Args:
        make: function from a parameter to a mechanism. Privacy must grow with the parameter.
        digits: significant decimal digits of the result, 2 to 15.
        start: where the search starts. A good guess saves time.

    Returns:
        An exact decimal that certainly meets the budget. Sampler, accountant, and receipt share it.

    Raises:
        ValueError: as `calibrate`.
    """

    if not 2 <= check.integer("digits", digits) <= 15:
        raise ValueError(f"digits = {digits!r} must be between 2 and 15")

    value = _search_parameter(
        budget,
        lambda x: make(_decimal(x, digits)),
        start,
        10.0 ** (1 - digits) / 4,
        noise=True,
        # Rounded to the last digit, the excess has no slope that could steer the search.
        steered=lambda x: make(_decimal(x, 15)),  # significant digits of a trial parameter
    )
    return _decimal(value, digits)


def _search_parameter(
    budget: Budget,
    make: Callable[[float], Described],
    start: float,
    tolerance: float,
    *,
    noise: bool = False,
    steered: Callable[[float], Described] | None = None,
) -> float:
    """Return a parameter that meets the budget, within ``tolerance`` of one that does not.

    The budget's excess steers the search. ``budget.admits`` has accepted the returned parameter.

    Args:
        tolerance: the largest relative distance.
        noise: True if privacy must grow with the parameter.
        steered: function from a parameter to the mechanism whose excess steers the search. By
            default ``make``.
    """

    def admits(x: float) -> bool:
        return budget.admits(make(x))

    def near(x: float) -> Tradeoff:
        curve = (steered or make)(x).tradeoff()
        assert isinstance(curve, Tradeoff)  # the only kind of curve
        return curve

    @cache
    def gap(x: float) -> float | None:
        return budget.excess(near(x))

    def excess(x: float) -> float:
        value = gap(x)
        assert value is not None  # it was not None at the start
        return _clip(value)

    known = gap(start) is not None
    bad, good = _bracket((lambda x: excess(x) <= 0) if known else admits, start)
    if noise and good < bad:
        raise ValueError("make: privacy falls with the parameter; give one that adds noise")
    if known:
        sign = 1 if good > bad else -1
        of_worst = _excess_of_worst(budget, near, good)
        middle = zero(
            lambda t: _clip(of_worst(math.exp(sign * t))),
            sign * math.log(bad),
            sign * math.log(good),
            tolerance / 8,
            (excess(bad), excess(good)),
        )
        low, high = middle - 0.4 * tolerance, middle + 0.4 * tolerance
        # The verdict may differ a little from the excess. Step out until both ends have theirs.
        step, tries = tolerance / 2, 0
        while not admits(math.exp(sign * high)):
            low, high, step, tries = high, high + step, _longer(step, tries), tries + 1
            if tries == 2 and isinstance(budget, PowerBudget):  # another level decides the verdict
                middle = _by_other_levels(
                    budget, lambda t: near(math.exp(sign * t)), high, tolerance
                )
                low, high, step = middle - 0.4 * tolerance, middle + 0.4 * tolerance, tolerance / 2
        step, tries = tolerance / 2, 0
        while admits(math.exp(sign * low)):
            low, high, step, tries = low - step, low, _longer(step, tries), tries + 1
        bad, good = math.exp(sign * low), math.exp(sign * high)
    return bisect(
        admits, good, bad, tolerance=-math.expm1(-tolerance), middle=lambda a, b: math.sqrt(a * b)
    )[0]


def _clip(excess: float) -> float:
    far_excess = 1e3  # the search clips an excess to this
    return min(max(excess, -far_excess), far_excess)


def _longer(step: float, tries: int) -> float:
    """Return the next step of a search: small for rounding, then longer for errors of the excess.

    The factors are 4, 16, 256, and so on, up to a step of 0.1 or a factor of 4.
    """
    return min(step * 4.0 ** min(2**tries, 32), max(4 * step, 0.1))


def _by_other_levels(
    budget: PowerBudget, curve: Callable[[float], Tradeoff], refused: float, tolerance: float
) -> float:
    """Estimate the log parameter that meets the budget at all other false positive rates too.

    ``curve`` is a function of the log parameter. ``refused`` is too low.
    """

    @cache
    def excess(t: float) -> float:
        return _clip(budget.excess_elsewhere(curve(t)))

    first_log_step = 1e-3  # step of the parameter's logarithm
    low, high, step = refused, refused + first_log_step, first_log_step
    if excess(low) <= 0:
        return low
    while excess(high) > 0:
        low, step = high, 4 * step
        high += step
    return zero(excess, low, high, tolerance / 8, (excess(low), excess(high)))


def _excess_of_worst(
    budget: Budget, curve: Callable[[float], Tradeoff], parameter: float
) -> Callable[[float], float]:
    """Return a function from a parameter to the excess of one ordered pair of distributions.

    The pair is the one with the largest excess at ``parameter``.
    """

    def of(spent: Tradeoff) -> float:
        gap = budget.excess(spent)
        return -math.inf if gap is None else gap

    def of_pair(spent: Tradeoff, pair: int) -> float:
        pairs = spent.directions
        return of(Tradeoff((pairs[min(pair, len(pairs) - 1)],), ordered=True))

    spent = curve(parameter)
    # Of more than 8 ordered pairs, all steer.
    if spent.joined or len(spent.directions) > 8:
        return lambda x: of(curve(x))
    each = [of_pair(spent, pair) for pair in range(len(spent.directions))]
    worst = each.index(max(each))
    return lambda x: of_pair(curve(x), worst)


def _decimal(x: float, digits: int) -> Fraction:
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return Fraction(context.create_decimal(Decimal(x)))


def _bracket(admits: Callable[[float], bool], start: float = 1.0) -> tuple[float, float]:
    """Return a parameter that misses the budget and one that meets it, close to each other.

    As for a noise scale, try smaller parameters first if ``start`` is admitted, else larger ones.
    Steps grow, so a distant answer needs few tries.
    """
    first = admits(start)
    tried = [start]
    for grow in (not first, first):
        x, factor = start, 2.0
        while 1 / LIMITS.largest_ratio < x < LIMITS.largest_ratio:
            following = x * factor if grow else x / factor
            try:
                now = admits(following)
            except (ValueError, OverflowError):
                break  # out of the parameter's range
            tried.append(following)
            if now != first:
                return (following, x) if first else (x, following)
            x, factor = following, min(factor**2, 1e4)
    verdict = "every" if first else "no"
    raise NoParameter(
        f"{verdict} parameter that was tried meets the budget, from {min(tried):g} to "
        f"{max(tried):g}: the end of the parameter's range may be the answer; or the budget does "
        "not fit the mechanism (a Gaussian is never pure), or the parameter does not change its "
        "privacy"
    )
