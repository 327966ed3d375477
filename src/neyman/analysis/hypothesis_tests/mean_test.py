"""Test the center of a distribution with a private t-test, which is valid for every n."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import least_noise
from neyman.analysis.estimators.shared_arguments import shares_arguments
from neyman.analysis.hypothesis_tests.arguments import (
    Alternative,
    alternative_of,
    inside,
    records,
    released_integer,
)
from neyman.analysis.hypothesis_tests.power import SimulatedPower, simulated_power
from neyman.analysis.hypothesis_tests.released_test import KIND, TestResult
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.raw_values import as_floats, one_per_record
from neyman.publishing.release.charged_call import Payment

CLIP_UNITS = 1 << 20  # units in the clipping distance
RECORD_SQUARED_NORM = 4 * CLIP_UNITS**2 + 2 * CLIP_UNITS + 1  # of a record's two numbers [PT-11]


@dataclass(frozen=True)
class Limits:
    """Hold the probability of a miss, and the error margins of a mean test."""

    # Chance that the sum of squares is outside its bounds: half per side.
    miss_chance: float = 1e-4
    berry_esseen: float = 0.56  # Shevtsova 2010, for any independent summands [PT-12]
    rounding_share: float = 1e-9  # relative: more than the rounding of each formula here


LIMITS = Limits()
METHOD = "tail of a sum with random signs, the lesser of two bounds"


@dataclass(frozen=True)
class MeanTest:
    """Test the center of a distribution from clipped records, by a private t-test.

    Each record x is clipped to the distance ``clip`` from the null value and enters as y = (x -
    null) / clip, in [-1, 1]. The release is the sum S of y and the sum Q of y^2, both with rounded
    Gaussian noise of standard deviation s (in these units). Under the null hypothesis, given all
    distances from the null value, S is a sum with random signs, and its variance is Q. So with V =
    Q + s^2, P(S + noise >= t) is at most exp(-t^2 / 2 V), and at most Phi(-t / sqrt(V)) + 0.56 Q /
    V^(3/2). The p-value is the smaller of the two bounds at the worst Q in its confidence interval,
    plus the chance that the interval misses Q. The size is at most the level for every n, with
    clipping.

    "greater" rejects this null hypothesis: at each distance from the null value, a record is at
    most as likely above it as below. It holds for a symmetric distribution with a center at most
    the null value and a density that falls from the center, such as a normal, t, or Laplace
    distribution. A skewed distribution with this mean may violate it, and is not covered.

    Args:
        null: the center under the null hypothesis, a finite number.
        n: public number of records, from 1 to 10^9. Neighbors replace one record.
        clip: the distance from the null value at which records are clipped, above 0. Choose it
            without the data: two to four standard deviations.
        alternative: "greater", "less", or "two-sided".
        budget: a curve such as ``ny.gdp(1)``, ``ny.zcdp``, ``ny.approximate`` with a delta, or
            ``ny.at_most``.

    Raises:
        TypeError, ValueError: an argument is wrong, or no Gaussian noise meets the budget.

    Examples:
        >>> import neyman as ny
        >>> from neyman.analysis.hypothesis_tests.mean_test import MeanTest
        >>> test = MeanTest(null=0, n=3000, clip=3, alternative="greater", budget=ny.gdp(1))
        >>> result = test.release([-0.5, 1.0, 0.5] * 1000)
        >>> result.rejects(level=0.01)
        True

    Source: Hoeffding 1963; Shevtsova 2010; [PT-11], [PT-12].
    """

    null: Fraction
    n: int
    clip: Fraction
    alternative: Alternative
    budget: Budget

    def __init__(
        self,
        *,
        null: float | Fraction | str,
        n: int,
        clip: float | Fraction | str,
        alternative: Alternative,
        budget: Budget,
    ) -> None:
        object.__setattr__(self, "null", check.exact("null", null))
        object.__setattr__(self, "n", records("n", n))
        distance = check.exact("clip", clip)
        if distance <= 0:
            raise ValueError(f"clip = {clip!r} must be above 0")
        object.__setattr__(self, "clip", distance)
        object.__setattr__(self, "alternative", alternative_of(alternative))
        object.__setattr__(self, "budget", budget)
        _ = self.mechanism

    @cached_property
    def mechanism(self) -> RoundedGaussian:
        """Return the noise of both sums, in grid units of 1 / 2^20."""
        return least_noise(self.budget, RECORD_SQUARED_NORM)

    def p_value(self, released: tuple[int, int]) -> Bound:
        """Return the p-value of the two noisy sums from a receipt.

        Args:
            released: the noisy sums of y and of y^2, in units of 1 / 2^20.

        Returns:
            The test's p-value, the same number at both ends.
        """
        listed = check.several("released", released, "(1024, 2048)")
        if len(listed) != 2:
            raise ValueError(f"released has {len(listed)} numbers; it must have 2, both noisy sums")
        total, squares = map(released_integer, listed)
        greater, less = self._tail(total, squares), self._tail(-total, squares)
        if self.alternative == "two-sided":
            p = min(2 * min(greater, less), 1.0)
        else:
            p = greater if self.alternative == "greater" else less
        return Bound(p, p, "upper", METHOD)

    def power(
        self,
        *,
        truth: Callable[[np.random.Generator, int], object],
        level: float | Fraction | str,
        simulations: int = 1000,
        confidence: float = 0.99,
        generator: np.random.Generator | None = None,
    ) -> SimulatedPower:
        """Estimate the chance that the test rejects at a level. This needs no data.

        Args:
            truth: (generator, n) -> n records from the true distribution.
            level: the level of the test, in (0, 1).
            simulations: number of simulated releases, from 1 to 10^6.
            confidence: confidence of the interval, in (0, 1).
            generator: random generator, by default a new one.

        Examples:
            >>> import neyman as ny
            >>> from neyman.analysis.hypothesis_tests.mean_test import MeanTest
            >>> test = MeanTest(null=0, n=2000, clip=3, alternative="greater", budget=ny.gdp(1))
            >>> power = test.power(truth=lambda rng, n: rng.normal(0.2, 1, n), level=0.05,
            ...                    simulations=100)
            >>> power.lower > 0.9
            True
        """
        most = inside("level", level)

        def rejects(rng: np.random.Generator, bits: Bits) -> bool:
            records = one_per_record("truth", truth(rng, self.n), relation="replace-one")
            if len(records) != self.n:
                raise ValueError(f"truth returned {len(records)} numbers in place of n = {self.n}")
            return self.p_value(self._noisy(records, bits)).upper <= most

        return simulated_power(rejects, simulations, confidence, generator)

    def _noisy(self, records: NDArray[Any], bits: Bits) -> tuple[int, int]:
        first, second = self._sums(records)
        noise = rounded_gaussian(self.mechanism.sigma_squared, 2, bits)
        return first + int(noise[0]), second + int(noise[1])

    def _tail(self, total: int, squares: int) -> float:
        """Return the p-value against the alternative of a larger center [PT-12].

        ``total``, ``squares``: the noisy sums of y and of y^2, in grid units.
        """
        variance = float(self.mechanism.sigma_squared)
        down, up = 1 - LIMITS.rounding_share, 1 + LIMITS.rounding_share
        away = (total - 0.5) * down  # noise is rounded by at most half a unit
        if away <= 0:
            return 1.0
        reach = -float(ndtri(LIMITS.miss_chance / 2)) * math.sqrt(variance) * up + 0.5
        # A square is rounded up by less than a unit.
        most = CLIP_UNITS * (squares + reach) * up
        least = max(CLIP_UNITS * (squares - reach - self.n) * down, 0.0)
        if most < 0:
            return LIMITS.miss_chance
        bound = math.exp(-(away**2) / (2 * (most + variance)) * down)
        normal = math.exp(float(log_ndtr(-away / math.sqrt(most + variance))))
        worst = min(max(2 * variance, least), most)
        third = LIMITS.berry_esseen * CLIP_UNITS * worst / (worst + variance) ** 1.5
        return min(min(bound, normal + third) * up + LIMITS.miss_chance, 1.0)

    @shares_arguments
    def release(self, values: object, **paid: Unpack[Payment]) -> TestResult:
        """Release both noisy sums and their p-value.

        Args:
            values: n real numbers, one per record. A value that is not a number counts as the null
                value.

        Returns:
            A `TestResult`. It estimates the mean of the clipped records, null + clip E[y].
        """
        array = one_per_record("values", values, relation="replace-one")
        if len(array) != self.n:
            raise ValueError(f"values has {len(array)} numbers; it must have n = {self.n}")
        arguments = {
            "null": str(self.null),
            "n": self.n,
            "clip": str(self.clip),
            "alternative": self.alternative,
            "grid": CLIP_UNITS,
        }

        def published(sums: tuple[int, int]) -> dict[str, object]:
            p = self.p_value(sums)
            estimate = float(self.null) + float(self.clip) * sums[0] / (self.n * CLIP_UNITS)
            return {
                "noisy_sums": list(sums),
                "p_value": {"lower": p.lower, "upper": p.upper},
                "estimate": estimate,
            }

        statistic = Statistic(
            "mean-test",
            arguments,
            self.mechanism,
            lambda bits: self._noisy(array, bits),
            published,
            *KIND,
        )
        return TestResult.of(statistic.release(**paid)[1], METHOD, None, self.mechanism)

    def _sums(self, array: NDArray[Any]) -> tuple[int, int]:
        """Return the sums of y and of y^2 in grid units. Records are rounded one by one [PT-11]."""
        with np.errstate(all="ignore"):
            scaled = (as_floats(array) - float(self.null)) / float(self.clip)
        scaled = np.clip(np.nan_to_num(scaled, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
        units = np.rint(scaled * CLIP_UNITS).astype(np.int64)
        squares = -(-(units * units) // CLIP_UNITS)
        return int(units.sum()), int(squares.sum())
