"""Propose a sensitivity, test privately that it holds, and then release with its noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from neyman.curves.losses.composition import Composition
from neyman.curves.tradeoff.enclosure import enclosed, exponential
from neyman.curves.tradeoff.piecewise_linear import (
    GUESSING,
    Corner,
    Pair,
    Polygon,
    composition_between,
    hull,
)
from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Laplace
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import NUMBER, private_integer, rational
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import discrete_gaussian, discrete_laplace, rounded_gaussian
from neyman.noise.parameters import secure_unless
from neyman.numerics import check
from neyman.numerics.relation import Relation
from neyman.numerics.roots import bisect_integers
from neyman.numerics.rounding import up

T = TypeVar("T")

LEAST_DELTA, MOST_DELTA = Fraction(1, 10**100), Fraction(1, 4)
MAX_DISTANCE_RECORDS = 10**15
Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class ProposeTestRelease(Mechanism):
    """Test privately that a proposed sensitivity holds, and only then release with its noise.

    Let g(x) be the number of records that must change before some neighbor of the data moves the
    statistic by more than b. Let W be the noise of ``test``. If g(x) + W > T, the mechanism
    releases the statistic with the noise of ``release``, whose sensitivity is b. Otherwise it
    reports "no answer". T is the smallest threshold with P(W > T) <= delta. Either the statistics
    of two neighbors differ by at most b. Or both neighbors have g = 0, and each passes with
    probability at most delta. So

        delta(epsilon) = max(P(W > T), the worst passing pair's delta),

    a maximum and not a sum. The second number is the largest of p H(epsilon - log(p / q)) +
    (1 - p - e^epsilon (1 - q))_+ over a few passing probabilities p and q, with the profile H of
    ``release`` [ST-1, ST-2].

    Args:
        test: `Laplace` or `DiscreteLaplace` noise for the distance, with sensitivity 1.
        release: the noise of the statistic, with sensitivity b. None releases the exact statistic,
            which needs b = 0: the distance counts changes until the statistic changes.
        delta: the largest chance that unstable data pass, from 1e-100 to 1/4.

    Fix the bound b, the noise, and delta before anyone sees the data. **A bound that depends on the
    data breaks the guarantee.** So does a second try for free: each try is one release. The
    distance must be the true distance, or a lower bound that moves by at most 1 between neighbors
    [ST-3], such as from `distance_to_instability`. The output "no answer" is charged too.

    The curve is the convex hull of the curves of all pairs of neighbors. So it composes, even if
    later questions depend on earlier answers. Some pair attains ``delta(epsilon)`` of one release.

    Examples:
        >>> import neyman as ny
        >>> median = ny.ProposeTestRelease(ny.DiscreteLaplace(2), ny.DiscreteLaplace(2), delta=1e-6)
        >>> median.threshold
        26
        >>> f = median.tradeoff()
        >>> round(float(f.delta(epsilon=0)), 4), round(float(f.delta(epsilon=1)), 8)
        (0.2449, 8.5e-07)

    Source: Dwork and Lei 2009 (the mechanism); [ST-1, ST-2] (the curve).
    """

    test: Laplace | DiscreteLaplace
    release: Mechanism | None = None
    delta: float | Fraction = field(default=Fraction(1, 10**6), metadata=NUMBER)

    def __post_init__(self) -> None:
        if not isinstance(self.test, Laplace | DiscreteLaplace):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"test = {self.test!r} must be ny.Laplace(scale) or ny.DiscreteLaplace(scale), the "
                "noise of the distance"
            )
        if rational(self.test.sensitivity) != 1:
            raise ValueError(
                f"test = {self.test!r} must have sensitivity 1: the distance moves by at most 1 "
                "between neighbors"
            )
        if self.release is not None and not isinstance(self.release, Mechanism):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"release = {self.release!r} must be a mechanism whose sensitivity is the proposed "
                "bound, such as ny.DiscreteLaplace(20, sensitivity=10), or None for a bound of 0"
            )
        exact = check.exact("delta", self.delta)
        if not LEAST_DELTA <= exact <= MOST_DELTA:
            raise ValueError(f"delta = {self.delta!r} must be between 1e-100 and 0.25")
        super().__post_init__()

    @property
    def neighboring(self) -> Relation:
        """Return the relation of the statistic's noise, or "any" if a shift alone describes it."""
        return "any" if self.release is None else self.release.neighboring

    @property
    def _scale(self) -> Fraction:
        return rational(self.test.scale)

    @cached_property
    def threshold(self) -> int | float:
        """Return T, an integer for integer noise: data pass if their noisy distance is above T."""
        delta, scale = rational(self.delta), self._scale
        # Laplace noise is above T with probability e^{-T / scale} / 2.
        near = float(scale) * -math.log(2 * float(delta))
        if isinstance(self.test, Laplace):
            while self._tail(Fraction(near), continuous=True)[1] > delta:
                near = up(near, 1)
            return near
        first = max(math.floor(near) - 2 - math.ceil(float(scale)), 0)
        last = first + 1
        # same: + 1 -> - 1: The bracket of a bisection may be wider: the least threshold is the
        # same.
        while self._tail(Fraction(last + 1))[1] > delta:
            # same: 2 -> 3: The bracket of a bisection may be wider: the least threshold is the
            # same.
            last = 2 * last + 1
        # The smallest threshold that is certified.
        return bisect_integers(lambda t: self._tail(Fraction(t + 1))[1] <= delta, last, first - 1)

    def _tail(self, least: Fraction, *, continuous: bool = False) -> Interval:
        """Bound the chance that noise (``continuous``, or integer) is at least ``least`` >= 0."""
        low, high = exponential(-least / self._scale)
        if continuous:
            return low / 2, high / 2
        one = exponential(-1 / self._scale)
        return low / (1 + one[1]), high / (1 + one[0])

    def _pass_chances(self, distance: int) -> tuple[Interval, Interval]:
        """Bound the chances that data at this distance pass, and that they fail, the test."""
        continuous = isinstance(self.test, Laplace)
        short = Fraction(self.threshold) - distance
        least = abs(short) if continuous or short < 0 else short + 1
        low, high = self._tail(least, continuous=continuous)
        rare, other = (low, high), (1 - high, 1 - low)
        return (rare, other) if short >= 0 else (other, rare)

    def _distances(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of two neighbors' distances to instability that may reveal most [ST-2]."""
        last = math.floor(self.threshold)
        neighbors = [(last, last + 1)]
        if isinstance(self.test, Laplace):
            neighbors += [(last + 1, last + 2), (last - 1, last)]
        for i, j in neighbors:
            if i >= 0:
                yield i, j
                yield j, i

    @cached_property
    def _curves(self) -> Pair:
        """Return polygons below and above the convex hull of all pairs' powers [ST-1]."""
        pairs: list[Pair] = [(GUESSING, GUESSING)]
        if self.release is not None:
            pairs = [enclosed(losses) for losses in self.release.tradeoff().directions]
        leak = self._pass_chances(0)[0]
        ends: list[Polygon] = []
        for side in (0, 1):
            points: list[Corner] = [(Fraction(0), leak[side]), (1 - leak[side], Fraction(1))]
            for pair in pairs:
                points += pair[side]  # both are certain to pass
                for i, j in self._distances():
                    points += _after_test(
                        pair[side], self._pass_chances(i), self._pass_chances(j), side
                    )
            ends.append(hull(points))
        return ends[0], ends[1]

    @cached_property
    def _losses(self) -> tuple[Composition, ...]:
        return (composition_between(self._curves),)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, between two finite pairs that enclose the curve."""
        return self._losses

    def rho(self) -> Fraction:
        """Refuse, because data at distance 0 may pass the test: no zCDP parameter exists.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"delta = {self.delta!r}: propose-test-release may reveal unstable data outright, so "
            "it has no zCDP parameter; use its curve, or charge epsilon and delta"
        )

    def draw(self, distance: int, value: T, *, bits: Bits | None = None) -> T | int | None:
        """Run the test and return the noisy value, or None for "no answer".

        This method reads private data but charges no ledger: charge the mechanism first.

        Args:
            distance: the distance to instability, at least 0, such as `.distance` from
                `distance_to_instability`.
            value: the exact statistic as an integer number of grid steps, such as `.steps` from
                `distance_to_instability`. Any value if ``release`` is None.
            bits: the source of randomness, by default `SecureBits`.

        Returns:
            The value with integer noise, or None. If ``release`` is None, the value itself.

        Raises:
            TypeError: the noise has no exact sampler: ``test`` must be `DiscreteLaplace`, and
                ``release`` None, `DiscreteLaplace`, `DiscreteGaussian`, or `RoundedGaussian`.

        Examples:
            >>> import neyman as ny
            >>> seen = ny.distance_to_instability.mode(["red"] * 90 + ["blue"] * 10,
            ...                                        keys=["blue", "red"])
            >>> favorite = ny.ProposeTestRelease(ny.DiscreteLaplace(1), delta=1e-6)
            >>> favorite.draw(seen.distance, seen.value)
            'red'
        """
        source = secure_unless(bits)
        away = min(max(private_integer("distance", distance), 0), MAX_DISTANCE_RECORDS)
        if not isinstance(self.test, DiscreteLaplace):
            raise TypeError(
                f"test = {self.test!r} has no exact sampler; use ny.DiscreteLaplace(scale)"
            )
        answer = value
        if self.release is not None:
            # Drawn in any case, so that the time does not reveal if the data pass.
            answer = private_integer("value", value) + self._noise(source)
        noisy = away + int(discrete_laplace(self._scale, 1, source)[0])
        return answer if noisy > self.threshold else None

    def _noise(self, source: Bits) -> int:
        kind = self.release
        if isinstance(kind, DiscreteLaplace):
            return int(discrete_laplace(kind.scale, 1, source)[0])
        if isinstance(kind, DiscreteGaussian):
            return int(discrete_gaussian(kind.sigma_squared, 1, source)[0])
        if isinstance(kind, RoundedGaussian):
            return int(rounded_gaussian(kind.sigma_squared, 1, source)[0])
        raise TypeError(
            f"release = {kind!r} has no exact sampler of one number; use ny.DiscreteLaplace, "
            "ny.DiscreteGaussian, or ny.RoundedGaussian"
        )


def _after_test(
    polygon: Polygon, first: tuple[Interval, Interval], second: tuple[Interval, Interval], side: int
) -> list[Corner]:
    """Return corners of the power if P and Q pass the test with different chances [ST-1].

    They are rounded outward.

    Args:
        polygon: the polygon of the statistic's noise.
        first, second: bounds on the chances to pass and to fail, under P and under Q.
        side: 0 for corners below the power, 1 for corners above it.
    """
    (p, p_fail), (q, q_fail) = ((c[side] for c in first), (c[1 - side] for c in second))
    outcomes = [(Fraction(0), p * polygon[0][1])]
    outcomes += [(q * (x1 - x0), p * (y1 - y0)) for (x0, y0), (x1, y1) in pairwise(polygon)]
    place = next((k for k, (b, a) in enumerate(outcomes) if a * q_fail < p_fail * b), len(outcomes))
    outcomes.insert(place, (q_fail, p_fail))
    level = power = Fraction(0)
    corners: list[Corner] = []
    for b, a in outcomes:
        level, power = min(level + b, Fraction(1)), min(power + a, Fraction(1))
        corners.append((level, power))
    return corners
