"""What a positive test means: from a level and a power to the chance that a finding is right."""

from __future__ import annotations

from fractions import Fraction
from typing import overload

from neyman.numerics import check


# Floats in, a float out; fractions in, the exact fraction out (which `words` rounds by itself).
@overload
def positive_predictive_value(power: Fraction, level: Fraction, prior: Fraction) -> Fraction: ...
@overload
def positive_predictive_value(power: float, level: float, prior: float) -> float: ...
def positive_predictive_value(
    power: float | Fraction, level: float | Fraction, prior: float | Fraction
) -> float | Fraction:
    """Return the probability that a claim is true once a test has confirmed it.

    P(true | confirmed) = prior * power / (prior * power + (1 - prior) * level)

    Args:
        power: probability that the test confirms a claim that is true, in [0, 1].
        level: probability that it confirms a claim that is false, in [0, 1].
        prior: probability that the claim is true before the test, in [0, 1].

    Returns:
        A probability, a ``Fraction`` where all three are fractions. It grows with ``power``, so an
        upper bound of the power gives an upper bound, which is the safe side. It speaks of tests
        at this level: one at a smaller level confirms fewer claims and may be right more often.

    Raises:
        ValueError: an argument is outside [0, 1], or no claim is ever confirmed (the probability
            is then 0/0).
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
