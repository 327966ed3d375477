"""Simulate how often a private test rejects, and search for the number of records it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.analysis.hypothesis_tests.arguments import LIMITS as TEST_LIMITS
from neyman.analysis.hypothesis_tests.arguments import inside
from neyman.noise.bits import Bits
from neyman.numerics import check
from neyman.numerics.arrays import generator_of
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import largest_rate, least_rate
from neyman.numerics.bound import Bound, directed
from neyman.numerics.roots import bisect_integers


@dataclass(frozen=True)
class Limits:
    """Limit the simulations."""

    simulations: int = 10**6


LIMITS = Limits()


@dataclass(frozen=True, repr=False)
class SimulatedPower:
    """Estimate a test's power by the share of simulated releases that it rejects.

    Args:
        rejected: number of releases that the test rejects.
        simulations: number of independent releases.
        confidence: smallest probability that the interval covers the power.

    Examples:
        >>> from neyman.analysis.hypothesis_tests.power import SimulatedPower
        >>> SimulatedPower(rejected=812, simulations=1000, confidence=0.99)
        <power about 0.812: between 0.778 and 0.843 with confidence 0.99, 1000 simulated releases>

    Source: Clopper and Pearson 1934.
    """

    rejected: int
    simulations: int
    confidence: float

    def __float__(self) -> float:
        return self.rejected / self.simulations

    @property
    def lower(self) -> float:
        """Return the lower end of the interval."""
        return float(least_rate(self.rejected, self.simulations, self._miss))

    @property
    def upper(self) -> float:
        """Return the upper end of the interval."""
        return float(largest_rate(self.rejected, self.simulations, self._miss))

    @property
    def _miss(self) -> float:
        return (1 - self.confidence) / 2 * (1 - 2 * UNIT)  # slack: counted

    def __repr__(self) -> str:
        low, high = directed(self.lower, 3, up=False), directed(self.upper, 3, up=True)
        return (
            f"<power about {float(self):.3f}: between {low} and {high} with "
            f"confidence {self.confidence:g}, {self.simulations} simulated releases>"
        )


class GeneratorBits(Bits):
    """Draw words from a NumPy generator. Use them only to simulate releases of simulated data."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return ``n`` words of the generator."""
        return self._generator.integers(0, 1 << 64, n, dtype=np.uint64)


def simulated_power(
    rejects: Callable[[np.random.Generator, Bits], bool],
    simulations: int,
    confidence: float,
    generator: np.random.Generator | None,
) -> SimulatedPower:
    """Estimate the power of a test from independent simulated releases.

    Args:
        rejects: draws records and noise, and returns the test's decision.
        simulations: number of releases, from 1 to 10^6.
        confidence: confidence of the interval, in (0, 1).
        generator: random generator of records and noise, by default a new one.
    """
    number = check.integer("simulations", simulations, 1)
    if number > LIMITS.simulations:
        raise ValueError(f"simulations = {number} must be at most {LIMITS.simulations}")
    covers = float(inside("confidence", confidence))
    rng = generator_of(generator)
    bits = GeneratorBits(rng)
    rejected = sum(rejects(rng, bits) for _ in range(number))
    return SimulatedPower(rejected, number, covers)


def least_records(
    power: Callable[[int], Bound | SimulatedPower],
    at_least: float | Fraction | str,
    *,
    most: int = 10**7,
) -> int:
    """Return a number of records that reaches a power, while one record fewer does not.

    The lower end of the power must reach the target. The search doubles the number of records until
    it does, and then bisects. A smaller number may reach it too if the power does not rise with the
    number of records, or is simulated.

    Args:
        power: a function from the number of records to the power, as a test's ``power`` returns it.
        at_least: the target power, in (0, 1).
        most: the largest number of records that is tried, at most 10^9.

    Raises:
        ValueError: the power is not reached.

    Examples:
        >>> import neyman as ny
        >>> from neyman.analysis.hypothesis_tests.binomial_test import BinomialTest
        >>> from neyman.analysis.hypothesis_tests.power import least_records
        >>> def power(n):
        ...     test = BinomialTest(n=n, null="1/2", alternative="greater", budget=ny.gdp(0.5))
        ...     return test.power(truth=0.6, level=0.05)
        >>> least_records(power, at_least=0.8)
        168
    """
    target, last = inside("at_least", at_least), check.integer("most", most, 1)
    if last > TEST_LIMITS.records:
        raise ValueError(f"most = {last} must be at most {TEST_LIMITS.records:g}")

    def reached(n: int) -> bool:
        return power(n).lower >= target

    high, low = 1, 0
    while not reached(high):
        if high == last:
            raise ValueError(f"at_least = {at_least!r} is not reached with {last} records")
        high, low = min(2 * high, last), high
    return bisect_integers(reached, high, low)
