"""Test a probability of success with canonical noise on a count, and compute its exact p-value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Unpack

from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.shared_arguments import shares_arguments
from neyman.analysis.hypothesis_tests.arguments import (
    Alternative,
    alternative_of,
    clipped_count,
    inside,
    noise_of,
    records,
    released_number,
    tested_level,
)
from neyman.analysis.hypothesis_tests.binomial_sums import Interval, count, tail
from neyman.analysis.hypothesis_tests.released_test import KIND, TestResult
from neyman.curves.tradeoff.curve import Described
from neyman.mechanisms.canonical.canonical_noise import CanonicalNoise
from neyman.mechanisms.canonical.polygon_noise import PolygonNoise, polygons
from neyman.noise.bits import Bits
from neyman.numerics.bound import Bound
from neyman.numerics.roots import bisect, bisect_integers
from neyman.publishing.release.charged_call import Payment

RECORD_UNITS = 1 << 32  # grid points per record: a p-value steps by at most 2^-32
STEP = Fraction(1, RECORD_UNITS)
SURE = 1 + 1e-9, 1e-10  # relative and absolute: more than the width of a p-value [PT-6]
BISECTION_STEPS = 50
METHOD = "binomial sums with canonical noise"


@dataclass(frozen=True)
class NoisyCount:
    """Add canonical noise to a number of successes in n records, and bound its probabilities."""

    n: int
    mechanism: CanonicalNoise

    @cached_property
    def noise(self) -> PolygonNoise:
        """Return the noise that is drawn, from a polygon below the curve's power [PT-1]."""
        return PolygonNoise(polygons(self.mechanism.curve)[0])

    def draw(self, successes: object, bits: Bits) -> Fraction:
        """Return the count with noise, on the grid of 1 / `RECORD_UNITS`."""
        return clipped_count(successes, self.n) + Fraction(
            self.noise.draw(bits, RECORD_UNITS), RECORD_UNITS
        )

    def greater(self, place: Fraction, share: Fraction | float) -> Interval:
        """Return bounds on P(noisy count >= place) if the probability of success is ``share``."""
        return tail(self.noise, count(self.n, share), place)

    def less(self, place: Fraction, share: Fraction | float) -> Interval:
        """Return bounds on P(noisy count <= place) if the probability of success is ``share``."""
        low, high = tail(self.noise, count(self.n, share), place + STEP)
        return max(1 - high - 1e-15, 0.0), min(1 - low + 1e-15, 1.0)

    def ends(self, place: Fraction, confidence: float) -> tuple[float, float]:
        """Return a confidence interval for the probability of success, by inverting tests [PT-7].

        ``place``: the noisy count.
        """
        miss = (1 - confidence) / 2 * (1 - 1e-12)
        lower, upper = 0.0, 1.0
        if self.greater(place, 0.0)[1] <= miss:
            lower = bisect(
                lambda p: self.greater(place, p)[1] <= miss, 0.0, 1.0, rounds=BISECTION_STEPS
            )[0]
        if self.less(place, 1.0)[1] <= miss:
            upper = bisect(
                lambda p: self.less(place, p)[1] <= miss, 1.0, 0.0, rounds=BISECTION_STEPS
            )[0]
        return lower, upper


@dataclass(frozen=True)
class BinomialTest:
    """Test the probability of success of n records, under any symmetric trade-off curve.

    The release is Z = X + N: the number X of successes plus canonical noise N. The p-value under a
    null probability p0 is P(X' + N' >= Z) with X' ~ Bin(n, p0) and new noise N' ("less": P(X' + N'
    <= Z), "two-sided": twice the smaller of the two). The size is at most the level for every n. In
    a one-sided problem, no other test with this privacy guarantee and level has more power than the
    upper end of `power`.

    Args:
        n: public number of records, from 1 to 10^9. Neighbors replace one record.
        null: p0, in (0, 1), exact.
        alternative: "greater", "less", or "two-sided".
        budget: a curve that is its own inverse (``ny.gdp``, ``ny.pure``, ``ny.approximate``, or
            ``f.symmetric()``), ``ny.zcdp``, or ``ny.at_most``.

    Raises:
        TypeError, ValueError: an argument is wrong, the curve is not its own inverse, or the curve
            is nearly perfect privacy.

    Examples:
        >>> import neyman as ny
        >>> from neyman.analysis.hypothesis_tests.binomial_test import BinomialTest
        >>> test = BinomialTest(n=50, null="1/2", alternative="greater",
        ...                        budget=ny.approximate(1, "0.01"))
        >>> print(f"{test.power(truth=0.65, level=0.05):.4f}")
        0.6455
        >>> result = test.release(successes=41)
        >>> 0 < float(result.p_value) <= 1, len(result.interval)
        (True, 2)

    Source: Awan and Slavkovic 2018; Awan and Vadhan 2023; [PT-1] to [PT-7].
    """

    n: int
    null: Fraction
    alternative: Alternative
    budget: Described

    def __init__(
        self, *, n: int, null: float | Fraction | str, alternative: Alternative, budget: Described
    ) -> None:
        object.__setattr__(self, "n", records("n", n))
        object.__setattr__(self, "null", inside("null", null))
        object.__setattr__(self, "alternative", alternative_of(alternative))
        object.__setattr__(self, "budget", budget)
        _ = self.mechanism

    @cached_property
    def mechanism(self) -> CanonicalNoise:
        """Return the canonical noise that meets the budget."""
        return noise_of(self.budget)

    @cached_property
    def _count(self) -> NoisyCount:
        return NoisyCount(self.n, self.mechanism)

    def power(self, *, truth: float | Fraction | str, level: float | Fraction | str) -> Bound:
        """Return the chance that the test rejects at a level. This needs no data.

        Args:
            truth: the true probability of success, in (0, 1).
            level: the level of the test, in (0, 1).

        Returns:
            Bounds on the power; lower is safe. In a one-sided problem, no test with this privacy
            guarantee and level has more power than the upper end, if the truth is in the
            alternative.
        """
        share, most = inside("truth", truth), tested_level(level)
        sides = {"greater": (1,), "less": (-1,), "two-sided": (1, -1)}[self.alternative]
        each = most / len(sides)
        low = high = 0.0
        for side in sides:
            # "less" is "greater" for the failures: the noise is symmetric.
            null, true = (self.null, share) if side > 0 else (1 - self.null, 1 - share)
            least, best = self._one_sided(null, true, each)
            low, high = low + least, high + best
        best = "; upper end: of any test as private" if len(sides) == 1 else ""
        return Bound(max(low - 1e-15, 0.0), min(high + 1e-15, 1.0), "lower", METHOD + best)

    def _one_sided(self, null: Fraction, truth: Fraction, level: Fraction) -> Interval:
        """Bound this test's power from below, and that of any test as private from above [PT-3]."""
        most, relative, absolute = float(level), *SURE
        law, true = count(self.n, null), count(self.n, truth)
        inner, outer = self._count.noise, PolygonNoise(polygons(self.mechanism.curve)[1])

        def rejected(place: Fraction) -> bool:
            return tail(inner, law, place)[1] * relative + absolute <= most

        def largest(noise: PolygonNoise) -> float:
            """Bound the power of the tests that add this noise and have at most the level."""
            first = self._first(lambda at: not tail(noise, law, at)[0] >= most * (1 + 1e-15))
            return tail(noise, true, first - STEP)[1]

        least = tail(inner, true, self._first(rejected) + STEP)[0]
        best = largest(outer)
        # Outside the alternative, this test may reject more often than with the outer noise.
        return least, best if truth > null else max(best, largest(inner))

    def _first(self, holds: Callable[[Fraction], bool]) -> Fraction:
        """Return a grid point at which ``holds`` is True, but not at the point before it.

        The caller ensures that ``holds`` is False far below and True far above.
        """
        low, high = -1, self.n + 1
        step = 1
        while holds(Fraction(low)):
            low, step = low - step, 2 * step
        step = 1
        while not holds(Fraction(high)):
            high, step = high + step, 2 * step
        first, last = low * RECORD_UNITS, high * RECORD_UNITS
        return Fraction(
            bisect_integers(lambda k: holds(Fraction(k, RECORD_UNITS)), last, first), RECORD_UNITS
        )

    def p_value(self, released: Fraction) -> Bound:
        """Return the p-value of a noisy count from a receipt.

        Args:
            released: the noisy count, exact.

        Returns:
            Bounds on the p-value; the upper bound is safe.
        """
        place = released_number(released)
        greater = self._count.greater(place, self.null)
        less = self._count.less(place, self.null)
        if self.alternative == "two-sided":
            low = min(2 * min(greater[0], less[0]), 1.0)
            high = min(2 * min(greater[1], less[1]), 1.0)
        else:
            low, high = greater if self.alternative == "greater" else less
        return Bound(low, high, "upper", METHOD)

    @shares_arguments
    def release(
        self, successes: float, *, confidence: float = 0.95, **paid: Unpack[Payment]
    ) -> TestResult:
        """Release the noisy count, its p-value, and a confidence interval for the probability.

        Args:
            successes: number of records that are successes. It is rounded down and clipped to 0,
                ..., n. A value that is not a number counts as 0. No value raises an error.
            confidence: confidence of the interval, in (0, 1). Both ends miss equally often.

        Returns:
            A `TestResult`.
        """
        covers = float(inside("confidence", confidence))
        noisy = self._count
        arguments = {
            "n": self.n,
            "null": str(self.null),
            "alternative": self.alternative,
            "grid": RECORD_UNITS,
            "coverage": covers,
        }
        _ = noisy.noise

        def published(place: Fraction) -> dict[str, object]:
            p, ends = self.p_value(place), noisy.ends(place, covers)
            return {
                "noisy_count": str(place),
                "p_value": {"lower": p.lower, "upper": p.upper},
                "estimate": float(place) / self.n,
                "interval": list(ends),
            }

        statistic = Statistic(
            "binomial-test",
            arguments,
            self.mechanism,
            lambda bits: noisy.draw(successes, bits),
            published,
            *KIND,
        )
        return TestResult.of(statistic.release(**paid)[1], METHOD, covers, self.mechanism)
