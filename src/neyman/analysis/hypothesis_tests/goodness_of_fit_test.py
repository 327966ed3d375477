"""Test if categories have given shares, by noisy counts and their simulated distribution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import least_noise
from neyman.analysis.estimators.shared_arguments import shares_arguments
from neyman.analysis.hypothesis_tests.arguments import (
    clipped_count,
    inside,
    records,
    released_integer,
)
from neyman.analysis.hypothesis_tests.power import SimulatedPower, simulated_power
from neyman.analysis.hypothesis_tests.released_test import KIND, TestResult
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise.bits import Bits, SecureBits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.raw_values import in_order
from neyman.publishing.release.charged_call import Payment

Lanes = NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """Limit the simulation, and hold which statistics count as equal."""

    categories: int = 10_000
    simulations: int = 10**6


LIMITS = Limits()
METHOD = "simulated noisy counts: a valid p-value for any number of simulations"


@dataclass(frozen=True)
class GoodnessOfFitTest:
    """Test whether categories have given shares, from noisy counts.

    The release is the count of each category with rounded Gaussian noise of standard deviation
    sigma. Replacing one record changes two counts by 1. With noisy counts Y_i, null shares p_i, and
    r_i = Y_i - n p_i, centered to have sum 0, the statistic is sum_i r_i^2 / (n p_i + sigma^2). Its
    null distribution is simulated: multinomial counts get the same kind of noise. If m of B
    simulated statistics are at least as large, the p-value is (1 + m) / (1 + B). The size is at
    most the level for every n, every sigma, and every B. No chi-square approximation is used.

    Args:
        shares: the shares p_i, 2 to 10^4 exact numbers above 0 with sum 1. "1/3" is exact.
        n: public number of records, from 1 to 10^9. Neighbors replace one record.
        budget: a curve such as ``ny.gdp(1)``, ``ny.zcdp``, ``ny.approximate`` with a delta, or
            ``ny.at_most``.
        simulations: number B of simulations, from 99 to 10^6. The p-value is at least 1 / (1 + B).

    Raises:
        TypeError, ValueError: an argument is wrong, or no Gaussian noise meets the budget.

    Examples:
        >>> import neyman as ny
        >>> from neyman.analysis.hypothesis_tests.goodness_of_fit_test import GoodnessOfFitTest
        >>> test = GoodnessOfFitTest(["1/2", "1/4", "1/4"], n=1000, budget=ny.gdp(1))
        >>> result = test.release(counts=[350, 300, 350])
        >>> result.rejects(level=0.01), result.p_value.lower == result.p_value.upper
        (True, True)

    Source: Gaboardi, Lim, Rogers and Vadhan 2016 (noisy counts and simulated null distributions);
    Barnard 1963 (the p-value); [PT-10].
    """

    shares: tuple[Fraction, ...]
    n: int
    budget: Budget
    simulations: int

    def __init__(
        self,
        shares: Iterable[float | Fraction | str],
        *,
        n: int,
        budget: Budget,
        simulations: int = 9999,
    ) -> None:
        listed = check.several("shares", shares, "['1/2', '1/2']")
        exact = tuple(inside(f"shares[{i}]", share) for i, share in enumerate(listed))
        if not 2 <= len(exact) <= LIMITS.categories:
            raise ValueError(f"shares has {len(exact)} numbers; it must have 2 to 10000")
        _check_sum("shares", exact)
        number = check.integer("simulations", simulations, 99)
        if number > LIMITS.simulations:
            raise ValueError(f"simulations = {number} must be at most {LIMITS.simulations}")
        object.__setattr__(self, "shares", exact)
        object.__setattr__(self, "n", records("n", n))
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "simulations", number)
        _ = self.mechanism

    @cached_property
    def mechanism(self) -> RoundedGaussian:
        """Return the noise of the counts. Replacing a record changes two counts by 1."""
        return least_noise(self.budget, 2)

    def p_value(self, released: Iterable[int]) -> Bound:
        """Return a p-value of noisy counts, by new simulations.

        Args:
            released: the noisy counts, as in a receipt.

        Returns:
            The p-value (1 + m) / (1 + B) at both ends. It differs from call to call.
        """
        listed = check.several("released", released, "[480, 520]")
        if len(listed) != len(self.shares):
            raise ValueError(
                f"released has {len(listed)} numbers; it must have {len(self.shares)}, one per "
                "category"
            )
        noisy = np.array([released_integer(x) for x in listed], np.int64)
        # Simulated counts are not released, so they need no secrecy. They take no seed.
        p = self._simulated_p_value(noisy, np.random.default_rng(), SecureBits())
        return Bound(p, p, "upper", METHOD)

    def power(
        self,
        *,
        truth: Iterable[float | Fraction | str],
        level: float | Fraction | str,
        simulations: int = 1000,
        confidence: float = 0.99,
        generator: np.random.Generator | None = None,
    ) -> SimulatedPower:
        """Estimate the chance that the test rejects at a level. This needs no data.

        Args:
            truth: the true shares, one per category, with sum 1. A share may be 0.
            level: the level of the test, in (0, 1).
            simulations: number of simulated releases, from 1 to 10^6. Each has its own p-value.
            confidence: confidence of the interval, in (0, 1).
            generator: random generator, by default a new one.

        Examples:
            >>> import neyman as ny
            >>> from neyman.analysis.hypothesis_tests.goodness_of_fit_test import GoodnessOfFitTest
            >>> test = GoodnessOfFitTest(["1/2", "1/2"], n=300, budget=ny.gdp(1), simulations=199)
            >>> test.power(truth=["0.6", "0.4"], level="0.05", simulations=100).lower > 0.7
            True
        """
        listed = check.several("truth", truth, "['1/2', '1/2']")
        shares = [check.exact(f"truth[{i}]", share) for i, share in enumerate(listed)]
        if len(shares) != len(self.shares) or min(shares) < 0:
            raise ValueError(
                f"truth must have {len(self.shares)} numbers of at least 0, one per category"
            )
        _check_sum("truth", shares)
        most = inside("level", level)
        chances = _floats(shares)

        def rejects(rng: np.random.Generator, bits: Bits) -> bool:
            counts = rng.multinomial(self.n, chances)
            noise = rounded_gaussian(self.mechanism.sigma_squared, len(chances), bits)
            return self._simulated_p_value(counts + noise, rng, bits) <= most

        return simulated_power(rejects, simulations, confidence, generator)

    def _simulated_p_value(self, noisy: Lanes, rng: np.random.Generator, bits: Bits) -> float:
        shares = _floats(self.shares)
        size = len(shares)
        # Statistics with a smaller relative difference count as equal. This raises the p-value
        # [PT-10].
        least = self._statistic(noisy[None, :])[0] * (1 - 1e-9)
        larger, left = 0, self.simulations
        while left:
            # same: 1 -> 2: The number of simulations per block of memory; their sum is the same.
            some = min(left, max(1, (1 << 22) // size))  # simulated counts at a time
            counts = rng.multinomial(self.n, shares, some)
            noise = rounded_gaussian(self.mechanism.sigma_squared, some * size, bits)
            larger += int(np.sum(self._statistic(counts + noise.reshape(some, size)) >= least))
            left -= some
        return (1 + larger) / (1 + self.simulations)

    def _statistic(self, counts: Lanes) -> NDArray[np.float64]:
        expected = np.array([float(self.n * share) for share in self.shares])
        rest = counts - expected
        rest -= rest.mean(axis=1, keepdims=True)
        return np.sum(rest * rest / (expected + float(self.mechanism.sigma_squared)), axis=1)

    @shares_arguments
    def release(self, counts: Iterable[float], **paid: Unpack[Payment]) -> TestResult:
        """Release the noisy counts and their p-value.

        Args:
            counts: number of records in each category, in the order of ``shares``. Each is rounded
                down and clipped to 0, ..., n. A value that is not a number counts as 0.

        Returns:
            A `TestResult` without an estimate or an interval. The receipt has the noisy counts.
        """
        listed = in_order("counts", counts)
        if len(listed) != len(self.shares):
            raise ValueError(
                f"counts has {len(listed)} numbers; it must have {len(self.shares)}, one per "
                "category"
            )
        arguments = {
            "n": self.n,
            "shares": [str(share) for share in self.shares],
            "simulations": self.simulations,
        }

        def noisy(bits: Bits) -> list[int]:
            exact = np.array([clipped_count(x, self.n) for x in listed], np.int64)
            exact += rounded_gaussian(self.mechanism.sigma_squared, len(exact), bits)
            return [int(x) for x in exact]

        def published(values: list[int]) -> dict[str, object]:
            p = self.p_value(values)
            return {"noisy_counts": values, "p_value": {"lower": p.lower, "upper": p.upper}}

        statistic = Statistic(
            "goodness-of-fit-test", arguments, self.mechanism, noisy, published, *KIND
        )
        return TestResult.of(statistic.release(**paid)[1], METHOD, None, self.mechanism)


def _check_sum(name: str, shares: Sequence[Fraction]) -> None:
    if (total := sum(shares)) != 1:
        raise ValueError(
            f"{name} have the sum {float(total):.12g}, exactly {total}; it must be 1."
            " Write them as fractions, such as '1/3'"
        )


def _floats(shares: Sequence[Fraction]) -> NDArray[np.float64]:
    """Return shares as floats, with sum 1 up to rounding."""
    floats = np.array([float(share) for share in shares])
    return floats / floats.sum()
