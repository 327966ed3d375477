"""Test the difference of two proportions privately, with a size that holds for all proportions."""

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
from neyman.analysis.hypothesis_tests.binomial_test import RECORD_UNITS, SURE, NoisyCount
from neyman.analysis.hypothesis_tests.power import SimulatedPower, simulated_power
from neyman.analysis.hypothesis_tests.released_test import KIND, TestResult
from neyman.curves.tradeoff.curve import Described
from neyman.mechanisms.canonical.canonical_noise import CanonicalNoise
from neyman.noise.bits import Bits
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.bound import Bound
from neyman.numerics.raw_values import in_order
from neyman.publishing.release.charged_call import Payment

Pair = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Limits:
    """Limit the search over the common proportion."""

    # Chance that the common proportion is outside the searched range [PT-9].
    miss_chance: float = 1e-4
    cells: int = 400  # parts of that range, in each of which the p-value is bounded
    tail_share: float = 1e-6  # relative: exceeds drops in computed tails [PT-13]
    # Relative, of a combined p-value: more than the rounding of normal quantiles.
    rounding_share: float = 1e-9


LIMITS = Limits()
METHOD = "two exact p-values, combined, at the worst common proportion"


@dataclass(frozen=True)
class ProportionsTest:
    """Test whether two groups have the same proportion, under any symmetric trade-off curve.

    Each group's number of successes gets canonical noise. Each record is in one group, so both
    releases together have the curve of one release. Under a common proportion p, each noisy count
    has an exact p-value. The two p-values are independent. The test adds their normal scores, with
    the weights of a test of the difference, and turns the sum into a p-value. The result is the
    largest such p-value over a confidence set for p, plus the chance that the set misses p. The
    size is at most the level for every n.

    Args:
        n: public numbers of records in both groups, each from 1 to 10^9. Neighbors replace one
            record within its group.
        alternative: "greater" if the first proportion is larger, "less", or "two-sided".
        budget: a budget as in `BinomialTest`.

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
        """Return the canonical noise of each group. Both groups together have its curve."""
        return noise_of(self.budget)

    @cached_property
    def _groups(self) -> tuple[NoisyCount, NoisyCount]:
        first, second = self.n
        return NoisyCount(first, self.mechanism), NoisyCount(second, self.mechanism)

    @cached_property
    def _noise_variance(self) -> float:
        """Return the approximate variance of the noise, which the weights of both groups use."""
        tails = self._groups[0].noise.tails(Fraction(1, 2))[1]
        return float(4 * np.sum((np.arange(len(tails)) + 0.5) * tails))

    def p_value(self, released: Iterable[Fraction]) -> Bound:
        """Return the p-value of two noisy counts from a receipt.

        Args:
            released: the noisy counts of both groups, exact.

        Returns:
            Bounds on the p-value; the upper bound is safe.
        """
        places = [released_number(x) for x in check.several("released", released)]
        if len(places) != 2:
            raise ValueError(f"released = {places!r} must be two numbers, one per group")
        each = [side.p_value() for side in self._sides((places[0], places[1]))]
        low, high = (min(len(each) * min(ends[i] for ends in each), 1.0) for i in (0, 1))
        return Bound(low, high, "upper", METHOD)

    def power(
        self,
        *,
        truth: Iterable[float | Fraction | str],
        level: float | Fraction | str,
        simulations: int = 400,
        confidence: float = 0.99,
        generator: np.random.Generator | None = None,
    ) -> SimulatedPower:
        """Estimate the chance that the test rejects at a level. This needs no data.

        Args:
            truth: the true proportions of both groups, in (0, 1).
            level: the level of the test, in (0, 1).
            simulations: number of simulated releases, from 1 to 10^6.
            confidence: confidence of the interval, in (0, 1).
            generator: random generator, by default a new one.

        Examples:
            >>> import neyman as ny
            >>> from neyman.analysis.hypothesis_tests.proportions_test import ProportionsTest
            >>> test = ProportionsTest(n=(90, 70), alternative="greater", budget=ny.gdp(1))
            >>> test.power(truth=(0.7, 0.3), level=0.05, simulations=20).lower > 0.5
            True
        """
        listed = check.several("truth", truth, "(0.6, 0.5)")
        if len(listed) != 2:
            raise ValueError(f"truth = {listed!r} must be two numbers, one per group")
        shares = [float(inside(f"truth[{i}]", share)) for i, share in enumerate(listed)]
        most = float(inside("level", level))

        def rejects(rng: np.random.Generator, bits: Bits) -> bool:
            first, second = (
                group.draw(int(rng.binomial(group.n, share)), bits)
                for group, share in zip(self._groups, shares, strict=True)
            )
            sides = self._sides((first, second))
            return any(side.within(most / len(sides)) for side in sides)

        return simulated_power(rejects, simulations, confidence, generator)

    def _sides(self, places: Pair) -> list[LargerProportion]:
        (one, other), (first, second) = places, self._groups
        greater = LargerProportion((one, other), (first, second), self._noise_variance)
        less = LargerProportion((other, one), (second, first), self._noise_variance)
        sides = {"greater": [greater], "less": [less], "two-sided": [greater, less]}
        return sides[self.alternative]

    @shares_arguments
    def release(
        self, successes: Iterable[float], *, confidence: float = 0.95, **paid: Unpack[Payment]
    ) -> TestResult:
        """Release both noisy counts, their p-value, and an interval for the difference.

        Args:
            successes: number of successes in the first and in the second group, each clipped as in
                `BinomialTest.release`.
            confidence: confidence of the interval for the first proportion minus the second, in (0,
                1).

        Returns:
            A `TestResult`.
        """
        covers = float(inside("confidence", confidence))
        counts = in_order("successes", successes)
        if len(counts) != 2:
            raise ValueError("successes must be two numbers, one per group")
        arguments = {
            "n": list(self.n),
            "alternative": self.alternative,
            "grid": RECORD_UNITS,
            "coverage": covers,
        }
        groups = self._groups
        _ = groups[0].noise, groups[1].noise

        def noisy(bits: Bits) -> Pair:
            return groups[0].draw(counts[0], bits), groups[1].draw(counts[1], bits)

        def published(places: Pair) -> dict[str, object]:
            p = self.p_value(places)
            # Both intervals cover with the product of their probabilities.
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


@dataclass(frozen=True)
class LargerProportion:
    """Test two noisy counts against the alternative of a larger first proportion [PT-9].

    Args:
        places: both noisy counts.
        groups: the model of each noisy count.
        noise_variance: approximate variance of the noise. Only the weights use it.
    """

    places: Pair
    groups: tuple[NoisyCount, NoisyCount]
    noise_variance: float

    @cached_property
    def _grid(self) -> Array | float:
        """Return the ends of the intervals of p to search, or a p-value if no search is needed."""
        ends = [
            g.ends(z, 1 - LIMITS.miss_chance / 2)
            for g, z in zip(self.groups, self.places, strict=True)
        ]
        if ends[1][0] > ends[0][1]:
            return 1.0  # the second proportion is larger
        lower, upper = max(e[0] for e in ends), min(e[1] for e in ends)
        if lower > upper:
            return LIMITS.miss_chance
        grid = np.linspace(lower, upper, LIMITS.cells + 1)
        grid[0], grid[-1] = lower, upper
        return grid

    def _upper_tail(self, share: float) -> float:
        return self.groups[0].greater(self.places[0], share)[1]

    def _lower_tail(self, share: float) -> float:
        return self.groups[1].less(self.places[1], share)[1]

    def _weights(self, share: Array) -> list[Array]:
        return [
            np.sqrt(share * (1 - share) / g.n + self.noise_variance / g.n**2) for g in self.groups
        ]

    def p_value(self) -> Interval:
        """Return bounds on the p-value."""
        grid = self._grid
        if not isinstance(grid, np.ndarray):
            return (0.0 if grid < 1 else 1.0), grid
        large = np.array([self._upper_tail(p) for p in grid])
        small = np.array([self._lower_tail(p) for p in grid])
        # The first tail rises with p and the second falls, so the two worst ends bound a cell.
        most = self._worst(large[1:], small[:-1], grid[:-1], grid[1:])
        weights = self._weights(0.5 * (grid[1:] + grid[:-1]))
        least = float(np.max(_combined_p_value(large[:-1], small[1:], *weights)))
        low = min(max(least * (1 - LIMITS.rounding_share) - SURE[1], 0.0) + LIMITS.miss_chance, 1.0)
        return low, _upper_end(most)

    def _worst(self, large: Array, small: Array, low: Array, high: Array) -> float:
        """Bound the p-value on runs of p from ``low`` to ``high``, from the tails [PT-13].

        The ratio of the weights is between those at the ends and at p = 1/2.
        """
        first, second = self._weights(np.stack([low, high, np.clip(0.5, low, high)]))
        ratio = second / first
        least, most = ratio.min(axis=0), ratio.max(axis=0)
        a, b = _normal_score(large), _normal_score(small)
        with np.errstate(divide="ignore", invalid="ignore"):
            opposite = np.where((a < 0) & (b < 0), np.nan_to_num(b / a), least)
        ratios = least, most, np.clip(opposite, least, most)
        return max(float(np.max(_combined_p_value(large, small, 1.0, r))) for r in ratios)

    def within(self, level: float) -> bool:
        """Return True if the upper end of the p-value is at most a level.

        In a run of adjacent intervals of `_grid`, the tails at both ends and the worst weights
        bound the p-values. These weights are at its ends or nearest to p = 1/2 [PT-13]. If the
        bound exceeds the level, the run is halved.
        """
        grid = self._grid
        if not isinstance(grid, np.ndarray):
            return grid <= level
        open_ = [(0, len(grid) - 1)]
        while open_:
            first, last = open_.pop()
            large, small = self._upper_tail(grid[last]), self._lower_tail(grid[first])
            most = self._worst(*(np.array([v]) for v in (large, small, grid[first], grid[last])))
            if last - first == 1:
                if _upper_end(most) > level:
                    return False
            elif _upper_end(most) > min(level, 0.4) * (1 - LIMITS.tail_share):
                half = (first + last) // 2
                open_ += [(first, half), (half, last)]
        return True


def _upper_end(most: float) -> float:
    return min(most * (1 + LIMITS.rounding_share) + LIMITS.miss_chance, 1.0)


def _normal_score(p: np.ndarray) -> np.ndarray:
    """Return the upper normal quantile of p-values; -inf for 1."""
    with np.errstate(divide="ignore"):
        return -ndtri_exp(np.log(np.minimum(p, 1.0)))


def _combined_p_value(
    first: np.ndarray, second: np.ndarray, weight: Array | float, other: Array
) -> np.ndarray:
    """Return the p-value of the weighted sum of two p-values' normal scores.

    ``weight`` is for ``first``, and ``other`` for ``second``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = [_normal_score(p) for p in (first, second)]
        total = (weight * scores[0] + other * scores[1]) / np.sqrt(weight**2 + other**2)
    total = np.where(
        np.isinf(scores[0]) | np.isinf(scores[1]),
        # If one p-value is 1, there is no evidence, whatever the other p-value is.
        np.where(np.minimum(scores[0], scores[1]) == -math.inf, -math.inf, math.inf),
        total,
    )
    return np.exp(log_ndtr(-total))
