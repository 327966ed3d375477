"""The least noise that keeps a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Protocol

from neyman.core.order import Described
from neyman.core.tradeoff import Tradeoff
from neyman.numerics import check

__all__ = ["Budget", "calibrate", "calibrate_exact"]

WIDEST = 1e15


class Budget(Protocol):
    """Whatever can say, certified, whether a mechanism keeps it."""

    def admits(self, mechanism: Described) -> bool:
        """Whether the mechanism certainly keeps this budget."""
        ...

    def tradeoff(self) -> Tradeoff:
        """The curve that the budget stands for."""
        ...


def calibrate(make: Callable[[float], Described], target: Budget) -> float:
    """The parameter that just keeps the target, certified.

    Args:
        make: parameter -> mechanism, for parameters above 0; privacy may grow with the parameter
            (a scale of noise) or fall with it (a rate, an epsilon).
        target: a budget: a curve such as ``ny.approximate(2, 1e-6)``, or ``ny.at_most(...)``.

    Returns:
        A parameter that certainly keeps the target. Where privacy is monotone in it, it is within
        a relative 1e-9 of the best. Discrete Gaussian noise is not monotone: there a slightly
        smaller sigma may keep it too, but the one that is returned does.

    Raises:
        ValueError: if no parameter between 1e-15 and 1e15 is admitted, or all of them are.
    """
    if not hasattr(target, "admits"):
        raise TypeError(f"target = {target!r} must be a budget, such as ny.approximate(2, 1e-6)")

    def admits(x: float) -> bool:
        return target.admits(make(x))

    return _narrowed(admits, *_bracket(admits), 2e-10)


def calibrate_exact(
    make: Callable[[Fraction], Described], target: Budget, digits: int = 9, start: float = 1.0
) -> Fraction:
    """The smallest parameter of so many significant digits that is certified, for scales of noise.

    Args:
        make: parameter -> mechanism, privacy growing with the parameter.
        target: the budget.
        digits: significant decimal digits of the result, at least 2.
        start: where to begin looking; a good guess saves time.

    Returns:
        An exact decimal that certainly keeps the target: sampler, accountant and receipt share it.

    Raises:
        ValueError: as `calibrate`.
    """

    if not 2 <= check.whole("digits", digits) <= 15:
        raise ValueError(f"digits = {digits!r} must be between 2 and 15")

    def admits(x: float) -> bool:
        return target.admits(make(_decimal(x, digits)))

    bad, good = _bracket(admits, start)
    if good < bad:
        raise ValueError("make: privacy falls with the parameter; give one that adds noise")
    return _decimal(_narrowed(admits, bad, good, 10.0 ** (1 - digits) / 4), digits)


def _narrowed(admits: Callable[[float], bool], bad: float, good: float, tolerance: float) -> float:
    """An admitted parameter within a relative tolerance of a refused one."""
    while abs(math.log(good / bad)) > tolerance:
        middle = math.sqrt(good * bad)
        if middle in (good, bad):
            break
        good, bad = (middle, bad) if admits(middle) else (good, middle)
    return good


def _decimal(x: float, digits: int) -> Fraction:
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return Fraction(context.create_decimal(Decimal(x)))


def _bracket(admits: Callable[[float], bool], start: float = 1.0) -> tuple[float, float]:
    """A refused and an admitted parameter, close enough to search between.

    The first step goes the way that noise would: to less where the start is admitted, to more where
    it is not. Steps grow, so that a far answer costs few tries.
    """
    first = admits(start)
    for grow in (not first, first):
        x, factor = start, 2.0
        while 1 / WIDEST < x < WIDEST:
            following = x * factor if grow else x / factor
            try:
                now = admits(following)
            except (ValueError, OverflowError):
                break  # out of the parameter's range
            if now != first:
                return (following, x) if first else (x, following)
            x, factor = following, min(factor**2, 1e4)
    verdict = "every" if first else "no"
    raise ValueError(
        f"{verdict} parameter that was tried keeps the target: check that the target fits the "
        "mechanism (a Gaussian is never pure) and that the parameter changes its privacy"
    )
