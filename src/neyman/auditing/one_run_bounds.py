"""Bound the probability of at least c correct guesses in one run, if a privacy claim is true.

A coin per canary decides if it is in the data. An attacker guesses some of the coins. If the claim
is true, two bounds hold on P(correct >= c). A claim is refuted if either is at most 1 - confidence.
Both bound the same probability, so no correction for two bounds is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from neyman.auditing.rate_limits import clopper_pearson, tail_above
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import log_binomial
from neyman.numerics.roots import bisect

Level = Callable[[float], float]
"""A lower bound on the smallest level at which a test has a given power."""

# slack: a_level_under_epsilon_and_delta/a
ROUND_DOWN_FACTOR = 1 - 4 * UNIT  # a product with it rounds the few operations before it down
# slack: a_level_on_a_gaussian_curve
NORMAL_RELATIVE_ERROR = 256 * UNIT  # relative error of ndtr and ndtri, with room
MIN_LEVEL_STEP = 1e-14  # relative step of the level at which the recursion stops


@dataclass(frozen=True)
class Guesses:
    """Represent correct guesses of coins in one run, and the chance of a false refutation.

    Args:
        canaries: m, the number of canaries.
        guesses: g, the largest number of guessed coins, fixed before the run.
        correct: c, the number of correct guesses.
        chance: 1 - confidence, rounded down.
    """

    canaries: int
    guesses: int
    correct: int
    chance: float

    def refutes(self, level: Level) -> bool:
        """Return True if P(correct >= c) is certainly below the chance under a convex curve.

        Let p_n = P(correct = n), r_j = sum over n >= j of n p_n / m, and h_j = sum over n >= j of
        (g - n) p_n / m. A claim gives h_j >= level(r_{j+1}). Let w_j = j / (g - j), and assume
        P(correct >= c) >= chance. The recursion starts from the least possible r_c and s = r_c -
        w_{c-1} h_c. For j = c - 1, ..., 0, h_j is this lower bound, r_j = s + w_j h_j, and s grows
        by h_j (w_j - w_{j-1}). All grow with the earlier values, so rounding down is safe. r_j +
        h_j > g / m is a contradiction.

        Source: Mahloujifar, Melis and Chaudhuri 2024, theorem 9 and algorithm 3.
        """
        m, g, c, t = self.canaries, self.guesses, self.correct, self.chance
        if not c:
            return False
        r, h = t * c / m * ROUND_DOWN_FACTOR, t * (g - c) / m * ROUND_DOWN_FACTOR
        s = t * g / (m * (g - c + 1)) * ROUND_DOWN_FACTOR * ROUND_DOWN_FACTOR
        # slack: counted
        most = g / m * (1 + 8 * UNIT)  # a quotient, a product, and r + h: 3 units
        for j in range(c - 1, -1, -1):
            needed = level(r)
            if needed <= h + MIN_LEVEL_STEP * h:
                return False
            h = needed
            r = max(r, (s + h * (j / (g - j))) * ROUND_DOWN_FACTOR)
            if r + h > most:
                return True
            s = (s + h * (g / ((g - j) * (g - j + 1.0))) * ROUND_DOWN_FACTOR) * ROUND_DOWN_FACTOR
        return False

    def chance_under(self, epsilon: float, delta: float) -> float:
        """Return an upper bound on P(correct >= c) under (epsilon, delta)-DP.

        The bound is P(Bin(g, q) >= c) + 2 m delta max over i of P(c - i <= Bin(g, q) < c) / i,
        where q = 1 / (1 + e^-epsilon).

        Source: Steinke, Nasr and Jagielski 2023, corollary 5.4.
        """
        beta, alpha = self._tail(epsilon), self._window(epsilon) if delta else 0.0
        # Three products and a sum: 4 units.
        # slack: counted
        return min((beta + 2 * self.canaries * delta * alpha) * (1 + 8 * UNIT), 1.0)

    def _tail(self, epsilon: float) -> float:
        # A power of e errs by 2 units; then a sum, a quotient, and a product: 5 units.
        wrong = 1 / (1 + math.exp(min(epsilon, 700.0))) * (1 - 8 * UNIT)  # slack: counted
        return tail_above(self.guesses - self.correct, self.guesses, wrong)

    def _window(self, epsilon: float) -> float:
        """Return an upper bound on the largest P(c - i <= Bin(g, q) < c) / i of all i >= 1.

        Here q = 1 / (1 + e^-epsilon). If one i gives v, no i above 1 / v gives more.
        """
        g, c = self.guesses, self.correct
        wrong = 1 / (1 + math.exp(min(epsilon, 700.0)))
        length = min(c, 64 + 12 * math.isqrt(g))
        while True:
            misses = np.arange(g - c + 1, g - c + 1 + length)
            logs, errors = log_binomial(g, wrong, 1 - wrong, misses, 8.0)
            # Each power errs by 2 units, and each sum by one: at most length + 2 units.
            sums = np.cumsum(np.exp(logs + errors)) * (1 + 8 * UNIT * length)  # slack: counted
            largest = float(np.max(np.minimum(sums, 1.0) / np.arange(1, length + 1)))
            if length == c or largest * length >= 1:
                return largest
            length = c if not largest else min(c, math.ceil(1 / largest) + 1)

    def epsilon(self, delta: float) -> float:
        """Return the largest epsilon that either bound refutes at delta, or 0."""
        g, c = self.guesses, self.correct
        if not c:
            return 0.0
        wrong = clopper_pearson(g - c, g, self.chance)  # at delta = 0 this bound decides
        # Start from the largest epsilon that can be refuted, and check each answer.
        # slack: counted
        pure = math.log((1 - wrong) / wrong) * (1 - 8 * UNIT) if wrong < 0.5 else 0.0
        first = _largest(lambda e: self.chance_under(e, delta) <= self.chance, pure)
        if not delta:
            return first
        best = _largest(lambda e: self.refutes(approximate_level(e, delta)), self.ceiling(delta))
        return max(first, best)

    def ceiling(self, delta: float) -> float:
        """Return an upper bound on the epsilons that `refutes` can refute at ``delta``."""
        t, right = self.chance, self.correct / self.canaries
        wrong = (self.guesses - self.correct) / self.canaries
        if t * right <= delta:
            return 0.0
        return math.log((t * right - delta) / (t * wrong)) + 1e-9 if wrong else 40.0

    def delta(self, epsilon: float) -> float:
        """Return the largest delta that either bound refutes at epsilon, or 0."""
        if not self.correct:
            return 0.0
        room = self.chance - self._tail(epsilon)
        first = 0.0
        if room > 0:
            # A difference, a product, a quotient, and a product: 4 units.
            # slack: counted
            first = room / (2 * self.canaries * self._window(epsilon)) * (1 - 16 * UNIT)
        most = self.chance * self.correct / self.canaries
        best = _largest(lambda d: self.refutes(approximate_level(epsilon, d)), most, 24)
        return max(first, best)

    def gdp(self) -> float:
        """Return the largest mu that is refuted, or 0."""
        return _largest(lambda mu: self.refutes(gaussian_level(mu)), self.most_gdp())

    def most_gdp(self) -> float:
        """Return the largest mu that this accuracy can show, for any number of canaries.

        See `OneRun.most_gdp_at_this_accuracy`.
        """
        t, part = self.chance, self.guesses / self.canaries
        a = self.correct / self.guesses if self.guesses else 0.0
        if a <= 0.5:
            return 0.0
        if a == 1:  # all guesses are correct: the largest mu that floats distinguish
            return 40.0
        first, last = float(ndtri(t * a * part)), float(ndtri(t * (1 - a) * part))
        return first - last + NORMAL_RELATIVE_ERROR * (1 + abs(first) + abs(last))


def _largest(refuted: Callable[[float], bool], most: float, halvings: int = 52) -> float:
    """Return the largest number up to ``most`` that ``refuted`` accepts, by bisection, or 0."""
    if most <= 0:
        return 0.0
    if refuted(most):
        return most
    low, high, step = 0.0, most, most * 2.0**-20
    while (near := most - step) > 0:  # most roots are near, and calls far below cost more
        if refuted(near):
            low = near
            break
        high, step = near, 8 * step
    return bisect(refuted, low, high, tolerance=1e-13, rounds=halvings)[0]


def gaussian_level(mu: float) -> Level:
    """Return the function power -> level, Phi(z(power) - mu), of mu-GDP, rounded down."""

    def level(power: float) -> float:
        if power >= 1:
            return 1.0
        z = float(ndtri(power))
        low = float(ndtr(z - mu - NORMAL_RELATIVE_ERROR * (1 + abs(z) + mu)))
        return low * (1 - NORMAL_RELATIVE_ERROR)

    return level


def approximate_level(epsilon: float, delta: float) -> Level:
    """Return the function power -> least level under (epsilon, delta)-DP, rounded down."""
    # slack: a_level_under_epsilon_and_delta/a; counted
    slope, other = math.exp(-epsilon) * (1 - 8 * UNIT), math.exp(epsilon) * (1 + 8 * UNIT)

    def level(power: float) -> float:
        # Powers of e err by 2 units. Differences and products add one each, of at most 1 + other.
        # slack: a_level_under_epsilon_and_delta
        steep = 1 - delta - other * (1 - power) - 8 * UNIT * (1 + other)
        return max(slope * (power - delta) * ROUND_DOWN_FACTOR, steep, 0.0)

    return level


def polygon_level(epsilons: Array, deltas: Array) -> Level:
    """Return the function power -> least level under all these guarantees, rounded down.

    Args:
        epsilons: in rising order; they may be below 0.
        deltas: upper bounds on delta at the epsilons.
    """
    order = np.argsort(-epsilons)  # in the order of rising slopes e^-epsilon
    # slack: a_level_under_a_polygon/a
    slopes: list[Any] = (np.exp(-epsilons[order]) * (1 - 8 * UNIT)).tolist()
    starts: list[Any] = deltas[order].tolist()
    last = len(slopes) - 1
    place = 0

    def level(power: float) -> float:
        nonlocal place
        best = slopes[place] * (power - starts[place])
        for nearby in (1, -1):
            while 0 <= place + nearby <= last:
                value = slopes[place + nearby] * (power - starts[place + nearby])
                if value < best:
                    break
                place, best = place + nearby, value
        # slack: a_level_under_a_polygon/a
        return max(best * (1 - 4 * UNIT), 0.0)  # a difference and a product: 2 units

    return level
