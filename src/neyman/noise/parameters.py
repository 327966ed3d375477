"""The parameters that samplers accept: exact positive rationals, never floats."""

from __future__ import annotations

from fractions import Fraction
from numbers import Rational

__all__ = ["positive_rational"]


def positive_rational(name: str, value: object, most: int, beyond: str) -> Fraction:
    """``value`` as a fraction in ``(0, most]``.

    Args:
        name: what the caller's argument is called.
        value: what was given.
        most: the largest that is accepted.
        beyond: what goes wrong above that, for the message.

    Raises:
        TypeError: for floats and whatever else is not exact.
        ValueError: for a value outside ``(0, most]``.
    """
    if isinstance(value, bool) or not isinstance(value, Rational):
        raise TypeError(
            f"{name} = {value!r} must be exact, an int or a fractions.Fraction: "
            "write Fraction('0.1') rather than 0.1"
        )
    number = Fraction(int(value.numerator), int(value.denominator))
    if number <= 0:
        raise ValueError(f"{name} = {value!r} must be above 0")
    if number > most:
        raise ValueError(f"{name} = {value!r} must be at most {most}: beyond it, {beyond}")
    return number
