"""The lattice engine: losses with atoms, composed exactly or between two grids.

Under a tilt c the composed weights are centered where the question is asked, so the answer keeps
its relative accuracy however small it is. Where the losses share a lattice, `above` and `below`
are one exact measure; elsewhere they are the two sides that connecting the dots gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from neyman.numerics.atoms import UNIT, Atoms
from neyman.numerics.profile import Interval, Profile

__all__ = ["LatticeProfile"]

Array = NDArray[Any]
SHORT = 1 << 14  # places up to which every question sums directly


@dataclass(frozen=True)
class _Tilted:
    """One side, ready to be asked: composed weights and what surrounds them."""

    loss: Array
    weight: Array
    tilt: float
    log_scale: float
    tail: float
    relative: float
    absolute: float

    @staticmethod
    def of(atoms: Atoms, tilt: float) -> _Tilted:
        kept = atoms.weight > 0
        kept[0] |= not kept.any()
        # Empty places, of a coarser part of the lattice, ask for nothing.
        return _Tilted(
            atoms.points()[kept], atoms.weight[kept], tilt, atoms.log_scale,
            atoms.tail, atoms.relative, atoms.absolute,
        )  # fmt: skip

    def moments(self) -> tuple[float, float]:
        total = float(self.weight.sum())
        if not total > 0:
            return float(self.loss[0]), 0.0
        mean = float(self.weight @ self.loss / total)
        return mean, math.sqrt(max(float(self.weight @ (self.loss - mean) ** 2 / total), 0.0))

    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log of the sum of p (1 - e^{epsilon - l}) over l > epsilon."""
        # The places carry a rounding error: those that may lie above epsilon are counted.
        place = 4 * UNIT * (1 + abs(epsilon) + max(abs(self.loss[0]), abs(self.loss[-1])))
        first = int(np.searchsorted(self.loss, epsilon - place, side="left"))
        if first == len(self.loss):
            value = error = 0.0
        else:
            start = float(self.loss[first])
            p, p_error = self._tail_sum(first, null=False)
            q, q_error = self._tail_sum(first, null=True)
            # Relative to e^{-c start}: sum of w e^{-c (l - start)} (1 - e^{epsilon - l}).
            drop = math.exp(epsilon - start)
            value, error = p - drop * q, p_error + drop * q_error
            if value < 1e-3 * p or len(self.loss) <= SHORT:
                away = self.loss[first:] - epsilon
                gain = -np.expm1(-away)
                kept = self.weight[first:] * np.exp(-self.tilt * (self.loss[first:] - start))
                value = float(kept @ gain)
                error = value * (self.relative + (len(away) + 8) * UNIT)
                error += self.absolute * float(np.exp(-self.tilt * (away - away[0])) @ gain)
            error += 2 * (p + p_error) * place  # it moves 1 - e^{epsilon - l}
            move = math.exp(-self.tilt * (start - epsilon))
            value, error = value * move, error * move * (1 + 2 * self.tilt * place)
            error += 2 * abs(value) * self.tilt * place
        shift = self.log_scale - self.tilt * epsilon
        # Weight that was left out counts fully: e^{-c (l - epsilon)} <= 1 where l > epsilon.
        high, low = value + error + self.tail, value - error
        slack = 4 * UNIT * (abs(self.log_scale) + abs(self.tilt * epsilon) + 1)
        return (
            math.log(low) + shift - slack if low > 0 else -math.inf,
            math.log(high) + shift + slack if high > 0 else -math.inf,
        )

    def _tail_sum(self, k: int, *, null: bool) -> tuple[float, float]:
        """Sum over j >= k of w_j e^{-t (l_j - l_k)} and its error; t is the tilt, null or not."""
        tilt = self.tilt + (1.0 if null else 0.0)
        count = len(self.loss) - k
        if len(self.loss) > SHORT and tilt * (self.loss[-1] - self.loss[0]) < 600:
            sums, ones = self._suffixes[null]
            scale = math.exp(tilt * float(self.loss[k] - self.loss[0]))
            value, flat = float(sums[k]) * scale, float(ones[k]) * scale
        else:
            factor = np.exp(-tilt * (self.loss[k:] - self.loss[k]))
            value, flat = float(self.weight[k:] @ factor), float(factor.sum())
        size = abs(tilt) * (abs(float(self.loss[-1])) + abs(float(self.loss[0])))
        relative = self.relative + (count + 8 + 4 * size) * UNIT
        return value, value * relative + self.absolute * flat * (1 + 1e-9)

    @cached_property
    def _suffixes(self) -> dict[bool, tuple[Array, Array]]:
        """Sums from each place upward, once for all questions: where there are many places."""
        found = {}
        for null in (False, True):
            factor = np.exp(-(self.tilt + null) * (self.loss - self.loss[0]))
            weight = self.weight * factor
            found[null] = (np.cumsum(weight[::-1])[::-1], np.cumsum(factor[::-1])[::-1])
        return found

    @cached_property
    def _rough_log_q(self) -> Array:
        """About log Q(L >= l_k): to find a place, never to answer."""
        with np.errstate(divide="ignore"):
            log_weight = np.log(self.weight) + (self.log_scale - (self.tilt + 1) * self.loss)
        return np.logaddexp.accumulate(log_weight[::-1])[::-1]

    def place_of_level(self, log_level: float) -> int:
        """About the first place k with Q(L >= l_k) within the level."""
        return int(np.searchsorted(-self._rough_log_q, -log_level, side="left"))

    def threshold(self, log_level: float) -> float:
        """About the loss at which the null's tail mass passes the level."""
        place = self.place_of_level(log_level)
        return float(self.loss[min(max(place - 1, 0), len(self.loss) - 1)])

    def log_tail(self, k: int, *, null: bool) -> Interval:
        """Bounds on log P(L >= l_k) under the alternative, or log Q(L >= l_k) under the null."""
        tilt = self.tilt + (1.0 if null else 0.0)
        value, error = self._tail_sum(k, null=null)
        value_size = abs(self.log_scale) + abs(tilt * float(self.loss[k]))
        error += value * 4 * UNIT * value_size
        shift = self.log_scale - tilt * float(self.loss[k])
        low, high = value - error, value + error + self.tail
        return (
            math.log(low) + shift if low > 0 else -math.inf,
            math.log(high) + shift if high > 0 else -math.inf,
        )


class LatticeProfile(Profile):
    """Privacy profile of a loss given by its tilted weights.

    Args:
        compose: tilt -> (dominating, dominated) weights; the same object where exact.
        tilt_for: epsilon -> the tilt under which the loss centers there (any choice is valid).
        infinite: mass of infinite loss.
        supremum: largest finite loss; if finite the curve has finitely many corners.
        method: how the answer is found, in words.
    """

    def __init__(
        self,
        compose: Callable[[float], tuple[Atoms, Atoms]],
        tilt_for: Callable[[float], float],
        infinite: float,
        supremum: float,
        method: str,
    ) -> None:
        self.method = method
        self._compose = compose
        self._tilt_for = tilt_for
        self._infinite = infinite
        self._supremum = supremum
        self._sides: list[tuple[_Tilted, _Tilted, float, float, float]] = []

    def _at(self, epsilon: float) -> tuple[_Tilted, _Tilted]:
        """The two sides under a tilt that suits ``epsilon``: one that is there, or a new one."""
        if not self._sides:
            self._add(0.0)
        best = min(self._sides, key=lambda s: abs(epsilon - s[2]) / (s[3] + 1e-300))
        above, below, center, deviation, near = best
        if abs(epsilon - center) > near * deviation and epsilon > self._sides[0][2]:
            tilt = max(self._tilt_for(epsilon), 0.0)
            if tilt > best[0].tilt * 1.001 + 1e-9 or tilt < best[0].tilt * 0.999 - 1e-9:
                above, below, *_ = self._add(tilt)
        return above, below

    def _add(self, tilt: float) -> tuple[_Tilted, _Tilted, float, float, float]:
        dominating, dominated = self._compose(tilt)
        above = _Tilted.of(dominating, tilt)
        below = above if dominated is dominating else _Tilted.of(dominated, tilt)
        near = 12.0 if above.absolute == 0 else 5.0
        side = (above, below, *above.moments(), near)
        self._sides.append(side)
        return side

    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log delta(epsilon)."""
        low = high = -math.inf
        if epsilon < self._supremum:
            above, below = self._at(epsilon)
            low, high = above.log_delta(epsilon)
            if below is not above:
                low = below.log_delta(epsilon)[0]
        if self._infinite:
            mass = math.log(self._infinite)
            slack = 4 * UNIT * (4 + abs(mass))
            low = float(np.logaddexp(low, mass)) - slack
            high = float(np.logaddexp(high, mass)) + slack
        return low, min(high, 0.0)

    def log_power(self, log_level: float) -> Interval:
        """Bounds on log power: the lines delta(epsilon) + e^epsilon level, and the tests."""
        if log_level == -math.inf:
            mass = math.log(self._infinite) if self._infinite else -math.inf
            if not self._infinite:
                return mass, mass
            slack = 4 * UNIT * (4 + abs(mass))
            return mass - slack, mass + slack
        if log_level >= 0:
            return 0.0, 0.0
        self._at(0.0)
        above, below = self._sides[0][:2]
        threshold = above.threshold(log_level)
        for _ in range(3):
            now = self._at(threshold)
            if now[0] is above:
                break
            above, below = now
            threshold = above.threshold(log_level)
        high = min(0.0, float(np.logaddexp(self.log_delta(threshold)[1], threshold + log_level)))
        high += 8 * UNIT * (1 + abs(threshold) + abs(log_level))
        return min(self._log_power_of_tests(below, log_level), high), min(high, 0.0)

    def _log_power_of_tests(self, side: _Tilted, log_level: float) -> float:
        """Lower bound: reject from a place upward, and one place further with some probability."""
        nothing = -math.inf
        if self._infinite:
            nothing = math.log(self._infinite) * (1 + 8 * UNIT) - 16 * UNIT
        guess = side.place_of_level(log_level)
        inside: tuple[float, float] = (-math.inf, nothing)  # (log level, log power) of a test
        for k in (guess - 1, guess, guess + 1):
            if 0 <= k < len(side.loss) and side.log_tail(k, null=True)[1] <= log_level:
                inside = (side.log_tail(k, null=True)[1], self._found(side, k))
                guess = k
                break
        else:
            guess = min(guess + 2, len(side.loss))
            if guess < len(side.loss) and side.log_tail(guess, null=True)[1] > log_level:
                return nothing
        if guess == 0:
            return inside[1]
        outer_level = side.log_tail(guess - 1, null=True)[1]
        if outer_level - log_level > 600:
            return inside[1]  # the next place holds so much that its share is nothing
        span = math.exp(outer_level - log_level) - math.exp(inside[0] - log_level)
        room = -math.expm1(inside[0] - log_level)
        share = min(room / span, 1.0) * (1 - 16 * UNIT) if span > 0 and room > 0 else 0.0
        if share in (0.0, 1.0):
            return inside[1]
        mixed = np.logaddexp(
            math.log1p(-share) + inside[1], math.log(share) + self._found(side, guess - 1)
        )
        return max(inside[1], float(mixed) - 16 * UNIT * (1 + abs(float(mixed))))

    def _found(self, side: _Tilted, k: int) -> float:
        """Certified log power of the test that rejects from place k upward."""
        low = side.log_tail(k, null=False)[0]
        if not self._infinite:
            return low
        mass = math.log(self._infinite)
        return float(np.logaddexp(low, mass)) - 4 * UNIT * (4 + abs(mass))

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval | None:
        """At the corners of a finite curve: the largest z(power) - z(level)."""
        if math.isinf(self._supremum) or self._infinite:
            return None
        self._at(0.0)
        above, below = self._sides[0][:2]
        if above.absolute or above is not below or above.tail:
            return None
        weight = above.weight * math.exp(above.log_scale)
        other = weight * np.exp(np.minimum(-above.loss, 700.0))
        # Both chances of each corner, summed from their own ends: neither is one minus the other.
        level, cover = _tails(other)
        power, miss = _tails(weight)
        used = (level > 0) & (cover > 0) & (power > 0) & (miss > 0)
        if not used.any() or np.max(np.abs(above.loss)) > 690:
            return None
        level, cover, power, miss = (v[used] for v in (level, cover, power, miss))
        z_level = np.where(
            level < 0.5, -ndtri(np.minimum(level, 0.5)), ndtri(np.minimum(cover, 0.5))
        )
        z_power = np.where(
            power < 0.5, ndtri(np.minimum(power, 0.5)), -ndtri(np.minimum(miss, 0.5))
        )
        # An error r p of a tail moves z by r p / phi(z), and p / phi(z) <= 1.26 for p <= 1/2.
        error = 3 * (above.relative + (len(level) + 16) * UNIT)
        found = float(np.max(z_level + z_power))
        error += 1e-14 * (float(np.max(np.abs(z_level))) + float(np.max(np.abs(z_power))))
        return max(found - error, 0.0), found + error


def _tails(weight: Array) -> tuple[Array, Array]:
    """Sums from each place upward, and of all places below it."""
    up = np.cumsum(weight[::-1])[::-1]
    return up, np.concatenate([[0.0], np.cumsum(weight)[:-1]])
