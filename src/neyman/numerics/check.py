"""Arguments checked once, by name: every refusal says which argument, its value, what is right."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Integral, Rational, Real

__all__ = ["between", "exact", "finite", "non_negative", "positive", "probability", "whole"]


def finite(name: str, value: object) -> float:
    """``value`` as a float; refuses what is not a finite real number."""
    if isinstance(value, (bool, str, bytes)) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"{name} = {value!r} must be a real number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} = {value!r} must be finite")
    return number


def positive(name: str, value: object) -> float:
    """``value`` as a float above zero."""
    number = finite(name, value)
    if number <= 0:
        raise ValueError(f"{name} = {value!r} must be above 0")
    return number


def non_negative(name: str, value: object) -> float:
    """``value`` as a float of at least zero."""
    number = finite(name, value)
    if number < 0:
        raise ValueError(f"{name} = {value!r} must be at least 0")
    return number


def between(name: str, value: object, low: float, high: float) -> float:
    """``value`` as a float in ``[low, high]``."""
    number = finite(name, value)
    if not low <= number <= high:
        raise ValueError(f"{name} = {value!r} must be between {low:g} and {high:g}")
    return number


def probability(name: str, value: object) -> float:
    """``value`` as a float in [0, 1]."""
    return between(name, value, 0.0, 1.0)


def whole(name: str, value: object, least: int = 0) -> int:
    """``value`` as an int of at least ``least``; a float is refused even if whole."""
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"{name} = {value!r} must be a whole number (int)")
    if not isinstance(value, Integral):
        raise ValueError(f"{name} = {value!r} must be a whole number (int)")
    number = int(value)
    if number < least:
        raise ValueError(f"{name} = {value!r} must be at least {least}")
    return number


def exact(name: str, value: object) -> Fraction:
    """``value`` as a rational number: ints, fractions, decimals, "3/7", "0.1".

    A float is read as the shortest decimal that prints it: 0.1 is 1/10, as its writer meant.
    """
    if isinstance(value, bool):
        raise TypeError(f"{name} = {value!r} must be a number, not a truth value")
    try:
        if isinstance(value, (str, Rational, Decimal)):
            return Fraction(value)
        if isinstance(value, Real):
            return Fraction(repr(float(value)))
    except (ValueError, OverflowError, InvalidOperation, ZeroDivisionError):
        raise ValueError(
            f"{name} = {value!r} must be a finite number such as 0.25, '0.25' or '1/4'"
        ) from None
    raise TypeError(f"{name} = {value!r} must be a number such as 0.25, '0.25' or '1/4'")
