"""Interpret a positive test: compute its predictive value from a level and a power."""

from __future__ import annotations

from fractions import Fraction
from typing import overload

from neyman.numerics import check


# Floats return a float. Fractions return the exact fraction, which `sentences` rounds.
@overload
def positive_predictive_value(power: Fraction, level: Fraction, prior: Fraction) -> Fraction: ...
@overload
def positive_predictive_value(power: float, level: float, prior: float) -> float: ...
def positive_predictive_value(
    power: float | Fraction, level: float | Fraction, prior: float | Fraction
) -> float | Fraction:
    """Return the probability that a claim is true, given that a test confirmed it.

    P(true | confirmed) = prior * power / (prior * power + (1 - prior) * level)

    Args:
        power: probability that the test confirms a true claim, in [0, 1].
        level: probability that the test confirms a false claim, in [0, 1].
        prior: prior probability that the claim is true, in [0, 1].

    Returns:
        A probability, as a ``Fraction`` if all three arguments are fractions. It grows with
        ``power``, so an upper bound on the power gives an upper bound, which is safe. The result is
        about tests at this level. A test at a smaller level confirms fewer claims and may be right
        more often.

    Raises:
        ValueError: an argument is outside [0, 1], or no claim is ever confirmed (the probability is
            then 0/0).
    """
    for name, value in (("power", power), ("level", level), ("prior", prior)):
        check.probability(name, value)
    # In rationals: products of small floats would underflow to 0/0.
    true = Fraction(prior) * Fraction(power)
    confirmed = true + (1 - Fraction(prior)) * Fraction(level)
    if confirmed == 0:
        raise ValueError(
            f"power = {power!r}, level = {level!r}, prior = {prior!r}: such a test never confirms "
            "a claim, so it has no predictive value; give a level above 0"
        )
    answer = true / confirmed
    numbers = (power, level, prior)
    return answer if all(isinstance(x, Fraction) for x in numbers) else float(answer)
