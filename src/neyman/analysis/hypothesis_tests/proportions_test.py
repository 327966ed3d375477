"""The private test for the difference of two proportions, valid for every common proportion."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Unpack

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.shared_arguments import shares_arguments
from neyman.analysis.hypothesis_tests.arguments import (
    Alternative,
    alternative_of,
    inside,
    noise_of,
    records,
    released_number,
)
from neyman.analysis.hypothesis_tests.binomial_sums import Interval
from neyman.analysis.hypothesis_tests.binomial_test import PARTS, SURE, NoisyCount
from neyman.analysis.hypothesis_tests.released_test import KIND, TestResult
from neyman.curves.tradeoff.curve import Described
from neyman.former_names import former_arguments
from neyman.mechanisms.canonical.canonical_noise import CanonicalNoise
from neyman.noise import Bits
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.raw_values import in_order
from neyman.publishing.release.charged_call import Payment

Pair = tuple[Fraction, Fraction]
MISS = 1e-4  # chance that the common proportion lies outside of what is searched [PT-9]
CELLS = 400
SLACK = 1e-9  # relative, of a combined p-value: more than the rounding of normal quantiles
METHOD = "two exact p-values, combined, at the worst common proportion"


@dataclass(frozen=True)
class ProportionsTest:
    """Test whether two groups have the same proportion, under any symmetric trade-off curve.

    Each group's number of successes gets canonical noise. One record is in one group, so both
    releases together have the curve of one. Under a common proportion p each noisy count has an
    exact p-value, and the two are independent. They are combined as a weighted sum of normal
    scores, in the proportions of a test of the difference. The result is the largest combination
    over a confidence set for p, plus the chance that the set misses p. The size is at most the
    level, for every n.

    Args:
        n: number of records in the first and in the second group, each from 1 to 10^9; public.
            Neighbors replace one record within its group.
        alternative: "greater" if the first proportion is larger, "less", or "two-sided".
        budget: as in `BinomialTest`.

    Raises:
        TypeError, ValueError: an argument is wrong, or the budget has no canonical noise.

    Examples:
        >>> import neyman as ny
        >>> from neyman.analysis.hypothesis_tests.proportions_test import ProportionsTest
        >>> test = ProportionsTest(n=(800, 700), alternative="two-sided", budget=ny.gdp(1))
        >>> result = test.release(successes=(500, 250))
        >>> result.rejects(level=0.01), len(result.interval)
        (True, 2)

    Source: Berger and Boos 1994 (the confidence set); [PT-8], [PT-9].
    """

    n: tuple[int, int]
    alternative: Alternative
    budget: Described

    def __init__(self, *, n: Iterable[int], alternative: Alternative, budget: Described) -> None:
        sizes = check.several("n", n, "(800, 700)")
        if len(sizes) != 2:
            raise ValueError(f"n = {sizes!r} must be two numbers, one per group")
        object.__setattr__(self, "n", tuple(records("n", size) for size in sizes))
        object.__setattr__(self, "alternative", alternative_of(alternative))
        object.__setattr__(self, "budget", budget)
        _ = self.mechanism

    @cached_property
    def mechanism(self) -> CanonicalNoise:
        """Return the canonical noise of each group, whose curve is that of both together."""
        return noise_of(self.budget)

    @cached_property
    def _groups(self) -> tuple[NoisyCount, NoisyCount]:
        first, second = self.n
        return NoisyCount(first, self.mechanism), NoisyCount(second, self.mechanism)

    @property
    def _swapped(self) -> tuple[NoisyCount, NoisyCount]:
        first, second = self._groups
        return second, first

    @cached_property
    def _noise_variance(self) -> float:
        """About the variance of the noise: it is used in weights alone."""
        tails = self._groups[0].noise.tails(Fraction(1, 2))[1]
        return float(4 * np.sum((np.arange(len(tails)) + 0.5) * tails))

    def p_value(self, released: Iterable[Fraction]) -> Bound:
        """Return the p-value of two noisy counts, from a receipt.

        Args:
            released: the noisy counts of both groups, exact.

        Returns:
            Upper is safe.
        """
        places = [released_number(x) for x in check.several("released", released)]
        if len(places) != 2:
            raise ValueError(f"released = {places!r} must be two numbers, one per group")
        first, second = places
        if self.alternative == "greater":
            low, high = self._larger((first, second), self._groups)
        elif self.alternative == "less":
            low, high = self._larger((second, first), self._swapped)
        else:
            sides = (
                self._larger((first, second), self._groups),
                self._larger((second, first), self._swapped),
            )
            low, high = (min(2 * min(side[i] for side in sides), 1.0) for i in (0, 1))
        return Bound(low, high, "upper", METHOD)

    def _larger(self, places: Pair, groups: tuple[NoisyCount, NoisyCount]) -> Interval:
        """Return bounds on the p-value against a larger proportion in the first group [PT-9]."""
        ends = [g.ends(z, 1 - MISS / 2) for g, z in zip(groups, places, strict=True)]
        if ends[1][0] > ends[0][1]:
            return 1.0, 1.0  # the second proportion is larger
        lower, upper = max(e[0] for e in ends), min(e[1] for e in ends)
        if lower > upper:
            return 0.0, MISS
        grid = np.linspace(lower, upper, CELLS + 1)
        grid[0], grid[-1] = lower, upper
        large = np.array([groups[0].greater(places[0], p)[1] for p in grid])
        small = np.array([groups[1].less(places[1], p)[1] for p in grid])
        # The first rises with p and the second falls: a cell lies below its two worst ends.
        middle = 0.5 * (grid[1:] + grid[:-1])
        weights = [
            np.sqrt(middle * (1 - middle) / g.n + self._noise_variance / g.n**2) for g in groups
        ]
        most = float(np.max(_combined(large[1:], small[:-1], *weights)))
        least = float(np.max(_combined(large[:-1], small[1:], *weights)))
        low = min(max(least * (1 - SLACK) - SURE[1], 0.0) + MISS, 1.0)
        return low, min(most * (1 + SLACK) + MISS, 1.0)

    @former_arguments(coverage="confidence")
    @shares_arguments
    def release(
        self, successes: Iterable[float], *, confidence: float = 0.95, **paid: Unpack[Payment]
    ) -> TestResult:
        """Release both noisy counts, with their p-value and an interval for the difference.

        Args:
            successes: number of successes in the first and in the second group, each clipped as in
                `BinomialTest.release`.
            confidence: of the interval for the first proportion minus the second, in (0, 1).

        Returns:
            `TestResult`.
        """
        covers = float(inside("confidence", confidence))
        counts = in_order("successes", successes)
        if len(counts) != 2:
            raise ValueError("successes must be two numbers, one per group")
        arguments = {
            "n": list(self.n),
            "alternative": self.alternative,
            "grid": PARTS,
            "coverage": covers,
        }
        groups = self._groups
        _ = groups[0].noise, groups[1].noise

        def noisy(bits: Bits) -> Pair:
            return groups[0].draw(counts[0], bits), groups[1].draw(counts[1], bits)

        def published(places: Pair) -> dict[str, object]:
            p = self.p_value(places)
            # Both intervals cover together with the product of their chances.
            each = math.sqrt(covers) * (1 - 1e-15) + 1e-15
            ends = [g.ends(z, each) for g, z in zip(groups, places, strict=True)]
            return {
                "noisy_counts": [str(place) for place in places],
                "p_value": {"lower": p.lower, "upper": p.upper},
                "estimate": float(places[0]) / self.n[0] - float(places[1]) / self.n[1],
                "interval": [
                    math.nextafter(ends[0][0] - ends[1][1], -1.0),
                    math.nextafter(ends[0][1] - ends[1][0], 1.0),
                ],
            }

        statistic = Statistic(
            "proportions-test", arguments, self.mechanism, noisy, published, *KIND
        )
        return TestResult.of(statistic.release(**paid)[1], METHOD, covers, self.mechanism)


def _combined(
    first: np.ndarray, second: np.ndarray, weight: np.ndarray, other: np.ndarray
) -> np.ndarray:
    """Return the p-value of a weighted sum of two normal scores."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = [-ndtri_exp(np.log(np.minimum(p, 1.0))) for p in (first, second)]
        total = (weight * scores[0] + other * scores[1]) / np.sqrt(weight**2 + other**2)
    total = np.where(
        np.isinf(scores[0]) | np.isinf(scores[1]),
        # A p-value of 1 is no evidence, whatever the other one is.
        np.where(np.minimum(scores[0], scores[1]) == -math.inf, -math.inf, math.inf),
        total,
    )
    return np.exp(log_ndtr(-total))
