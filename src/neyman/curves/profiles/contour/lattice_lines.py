"""Compute the profile of losses on one lattice, by lines over one period [C-15].

delta is linear in e^epsilon between two places of the lattice, so all answers follow from delta at
places. A power is the least delta + e^epsilon level over the places: a convex sequence, whose least
term is certain once terms on both sides are larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.contour.complement_line import LIMITS as COMPLEMENT_LIMITS
from neyman.curves.profiles.contour.complement_line import (
    ComplementLine,
    complement_line,
    gain_of_line,
    threshold_near,
)
from neyman.curves.profiles.contour.conditioning import ConditionedProfile
from neyman.curves.profiles.contour.contour import ContourProfile
from neyman.curves.profiles.contour_line import CHERNOFF_POWERS, mgf_below
from neyman.curves.profiles.contour_line import LIMITS as LINE_LIMITS
from neyman.curves.profiles.lattice.convolution import reach
from neyman.curves.profiles.lattice.corners import largest_mu
from neyman.curves.profiles.lattice.lattice import tilt_of_level
from neyman.curves.profiles.profile import Engine, Interval, Profile, log_delta_below_zero
from neyman.curves.profiles.selection import register, select
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, common_step
from neyman.numerics.rounding import above, log_complement

MOST_PLACES = 1 << 18  # places within the reach of a sum
LISTED_SUMS = 1 << 5  # sums of other lattices: each is a place of a question
Places = NDArray[np.int64]
"""Indices k of places offset + k span."""
Gain = Callable[[Places], tuple[Array, Array]]
"""A function that returns bounds on a concave sequence at places, in proportion to its largest."""


@dataclass(frozen=True)
class LatticeSum:
    """Represent a sum of losses on one lattice, for `line_at` and `complement_line`.

    Args:
        losses: the sum.
        offset, width: a place of its lattice, and the distance of two places.
    """

    losses: Composition
    offset: Fraction
    width: Fraction

    @property
    def span(self) -> float:
        return float(self.width)

    @property
    def algebraic(self) -> bool:
        return False

    def places(self, tilt: float, height: float) -> float:
        return self.losses.places(tilt, height)

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        return self.losses.mgf(z, log_rest)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return self.losses.moments(tilts)

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        return self.losses.log_decay(tilt, edges, need)

    def index(self, value: Fraction | float) -> Fraction:
        """Return the index of a place, or the fraction of another number."""
        return (Fraction(value) - self.offset) / self.width


def sum_on_lattice(losses: Composition) -> LatticeSum | None:
    """Return a sum with its lattice, or None if the losses do not share one."""
    offset, spans = Fraction(0), list[Fraction]()
    for loss, count in losses.laws:
        places = loss.lattice_places
        if places is None:
            return None
        offset += count * places[0]
        spans.append(places[1])
    width = common_step(spans)
    return LatticeSum(losses, offset % width, width) if float(width) > 0 else None


class LatticeContour(ContourProfile):
    """Compute the profile of a sum on a lattice by lines over one period.

    Args:
        total: the sum.
    """

    good = 1e-10

    def __init__(self, total: LatticeSum) -> None:
        losses = total.losses
        super().__init__(
            total,
            lambda: self.reversed,
            losses.infinite,
            above(losses.supremum),
            losses.log_top,
            release=False,
        )
        self._beside = False
        self.method, self.engine = "contour over a period", Engine.EXACT
        self._sum = total
        bounded = losses.supremum < math.inf
        self._top = int(total.index(losses.supremum)) if bounded else 1 << 62

    @cached_property
    def reversed(self) -> LatticeContour:
        """Return the profile of the reversed losses."""
        backward = sum_on_lattice(self._sum.losses.reverse())
        assert backward is not None
        return self if backward == self._sum else LatticeContour(backward)

    def _epsilon(self, k: Places) -> Array:
        """Return places as floats."""
        offset, width = self._sum.offset, self._sum.width
        below = math.lcm(offset.denominator, width.denominator)
        first, step = int(offset * below), int(width * below)
        return np.array([(first + step * i) / below for i in k.tolist()])  # rounded once

    def _at(self, k: Places) -> tuple[Array, Array]:
        """Bound log delta at places."""
        epsilon = self._epsilon(k)
        low, high = np.full((2, len(k)), -math.inf)
        inside = (epsilon >= 0) & (k < self._top)
        if inside.any():
            low[inside], high[inside] = self._above_zero(epsilon[inside])
            low[inside] = np.maximum(low[inside], self._least(epsilon[inside]))
        if self._infinite and not inside.all():
            far = (epsilon >= 0) & ~inside
            low[far], high[far] = self._top_mass()
        below = epsilon < 0
        if below.any():
            low[below], high[below] = self._below_zero(k[below], epsilon[below])
        return low, high

    def _least(self, epsilon: Array) -> Array:
        """Bound log delta from below: 1 - delta <= e^{K(-a) + a epsilon} for 0 < a < 1 [C-10]."""
        miss = self._misses + np.multiply.outer(epsilon, CHERNOFF_POWERS)
        size = 1 + np.abs(miss) + np.abs(epsilon)[:, None]
        miss = (miss + 8 * UNIT * size).min(axis=1)  # slack: counted
        least = np.log1p(-np.exp(np.minimum(miss, -1e-9)))
        return np.where(miss < -1e-9, least * (1 + 8 * UNIT), -math.inf)  # slack: counted

    @cached_property
    def _misses(self) -> Array:
        """Return upper bounds on K(-a)."""
        return mgf_below(self._sum)

    def _top_mass(self) -> Interval:
        """Bound the log of the mass of infinite loss, which is delta from the largest loss on."""
        mass = math.log(self._infinite)
        slack = 16 * UNIT * (1 + abs(mass))  # slack: counted
        return mass - slack, mass + slack

    def _below_zero(self, k: Places, epsilon: Array) -> tuple[Array, Array]:
        turn = self._sum.index(-self.reversed._sum.offset)
        return log_delta_below_zero(epsilon, self.reversed._at(int(turn) - k))

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta at many epsilons, each between two places."""
        epsilons = np.asarray(epsilons, float)
        # A place, its distance from epsilon, and the index err by a few units of their sizes.
        off = 8 * UNIT * (np.abs(epsilons) + 2 * self._sum.span)  # slack: counted
        moved = np.array([epsilons + off, epsilons - off])
        index = np.floor((moved - float(self._sum.offset)) / self._sum.span).astype(np.int64)
        k, places = np.unique([index, index + 1], return_inverse=True)
        at, values = self._epsilon(k), self._at(k)
        left, right = np.asarray(places).reshape(2, *moved.shape)
        # The share of the left place in e^epsilon, between those of both.
        share = np.expm1(np.minimum(moved - at[right], 0.0)) / math.expm1(-self._sum.span)
        share = np.clip(share, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            logs = np.log(share), np.log1p(-share)
        ends: list[Array] = []
        for side, value in enumerate(values):
            total = np.logaddexp(
                logs[0][side] + value[left[side]], logs[1][side] + value[right[side]]
            )
            size = np.where(np.isfinite(total), np.abs(total), 0.0)
            ends.append(total + (2 * side - 1) * 8 * UNIT * (4 + size))  # slack: counted
        return np.minimum(ends[0], ends[1]), np.minimum(ends[1], 0.0)

    def mu(self) -> Interval | None:
        """Bound mu by the corners of a finite curve. Return None for other curves."""
        return largest_mu(self._sum.losses)

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power at many levels."""
        ends = [self._log_power(float(level)) for level in log_levels]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    def _log_power(self, log_level: float) -> Interval:
        if log_level >= 0:
            return 0.0, 0.0
        if log_level < -1e300:
            return self._top_mass() if self._infinite else (-math.inf, -math.inf)
        least = float(self._chernoff(np.array([log_level]))[0])
        if least > -LINE_LIMITS.least_miss:
            return least, 0.0
        tilt = tilt_of_level(self._sum, log_level, LINE_LIMITS.largest_tilt)
        _, mean, variance = (float(v[0]) for v in self._sum.moments(np.array([tilt])))
        k, stride = self._near(mean, math.sqrt(max(variance, 0.0)))
        base = float(self._cost(np.array([k]), log_level)[1][0])

        def gain(k: Places) -> tuple[Array, Array]:
            low, high = (np.exp(np.minimum(v - base, 700.0)) for v in self._cost(k, log_level))
            return -high, -low

        slack = 8 * UNIT * (1 + abs(base) + abs(log_level))  # slack: counted
        _, most, less = _largest(gain, k, stride, self._sum.span)
        low, high = _log(-less, -1) + base - slack, _log(-most, 1) + base + slack
        low, high = max(low, least, log_level - slack), min(high, 0.0)
        if low > -2e-2 and high - low > 1e-7 * -low and not self._infinite:
            below, above_ = log_complement(*self._log_miss(log_level))
            low, high = max(low, below), min(high, above_)
        return low, high

    def _near(self, epsilon: float, deviation: float) -> tuple[int, int]:
        """Return the index of the place at or below epsilon, and a stride of a search there."""
        k = math.floor((epsilon - float(self._sum.offset)) / self._sum.span)
        return min(k, self._top), max(round(0.2 * deviation / self._sum.span), 1)

    def _cost(self, k: Places, log_level: float) -> tuple[Array, Array]:
        """Bound log(delta + e^epsilon level) at places."""
        taken = self._epsilon(k) + log_level
        size = 4 * UNIT * (4 + np.abs(taken) + abs(log_level))  # slack: counted
        low, high = self._at(k)
        return np.logaddexp(low, taken) - size, np.logaddexp(high, taken) + size

    def _log_miss(self, log_level: float) -> Interval:
        """Bound log(1 - power): the largest 1 - delta - e^epsilon level over the places [C-10]."""
        if log_level > COMPLEMENT_LIMITS.high_log_level:
            return self._log_miss_by_reverse(-math.expm1(log_level))
        star, deviation = threshold_near(self._sum, log_level)
        low, high = -math.inf, 0.0
        k, stride = self._near(star, deviation)
        for _ in range(2):
            line = complement_line(self._sum, float(self._epsilon(np.array([k]))[0]))
            if line is None:
                break
            base = line.near(float(self._epsilon(np.array([k]))[0]))

            def gain(
                k: Places, line: ComplementLine = line, base: float = base
            ) -> tuple[Array, Array]:
                return gain_of_line(line, self._epsilon(k), log_level, base)

            k, least, most = _largest(gain, k, stride, self._sum.span)
            low = max(low, _log(least, -1) + base - 4 * UNIT * abs(base))  # slack: counted
            high = min(high, _log(most, 1) + base + 4 * UNIT * abs(base))  # slack: counted
            stride = 1
        return low, high

    def _log_miss_by_reverse(self, share: float) -> Interval:
        """Bound it by the largest e^epsilon (1 - level - delta'(-epsilon)) of the reversed pair."""
        other = self.reversed
        if share <= other._infinite:
            return -math.inf, 0.0
        turn = int(self._sum.index(-other._sum.offset))

        def gain(k: Places) -> tuple[Array, Array]:
            below, above_ = (np.exp(v) for v in other._at(turn - k))
            epsilon, error = self._epsilon(k), 4 * UNIT * (share + above_)  # slack: counted
            scale, far = np.exp(np.minimum(epsilon, 700.0)), epsilon > 700
            low, high = scale * (share - above_ - error), scale * (share - below + error)
            # slack: counted
            low, high = low - np.abs(low) * 8 * UNIT, high + np.abs(high) * 8 * UNIT
            return np.where(far, -1.0, low), np.where(far, 1.0, high)  # no miss is above 1

        near = other.epsilon_near(math.log(other._infinite + (share - other._infinite) / math.e))
        k, stride = self._near(-near, 0.5 * near)
        _, least, most = _largest(gain, k, stride, self._sum.span)
        return _log(least, -1), min(_log(most, 1), 0.0)


def _largest(gain: Gain, k: int, stride: int, span: float) -> tuple[int, float, float]:
    """Return the place of the largest gain, and bounds on its logarithm [C-15].

    Args:
        gain: bounds on a function that is concave in e^epsilon, and linear between places.
        k, stride: index of a place near the largest gain, and the steps of a search.
        span: distance of two places.
    """
    for _ in range(64):
        near = k + stride * np.arange(-12, 13)
        best = int(np.argmax(gain(near)[0]))
        k = int(near[best])
        if best in (0, 24):
            stride *= 4
        elif stride == 1:
            break
        else:
            stride = max(stride // 11, 1)
    apart = 2 ** np.arange(min(24, max(int(math.log2(1 + 60 / span)), 1)))
    low, high = gain(np.concatenate([[k], k - apart, k + apart]))
    left, right = slice(1, len(apart) + 1), slice(len(apart) + 1, None)
    sure = (high[left] <= low[0]) & (high[right] <= low[0])
    # Chords through the place and a neighbor, extended to the other one. None is between next ones.
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(apart * span)
        rise = np.maximum((high[0] - low[left]) * ratio, (high[0] - low[right]) / ratio)
    rise[0] = 0.0
    most = high[0] + rise + 8 * UNIT * (np.abs(high[0]) + np.abs(rise))  # slack: counted
    return k, float(low[0]), float(np.where(sure, most, math.inf).min())


def _log(value: float, side: int) -> float:
    """Return the logarithm of a bound from below (-1) or above (1), moved by its rounding."""
    if not 0 < value < math.inf:
        return -math.inf if not value > 0 else math.inf
    log = math.log(value)
    return log + side * 4 * UNIT * (1 + abs(log))  # slack: counted


@register(92, "the losses lie on one lattice that is not too fine: lines over a period")
def _on_lattice(composition: Composition) -> Profile | None:
    total = sum_on_lattice(composition)
    if total is None:
        return None
    if reach(composition) <= MOST_PLACES * total.span:
        return LatticeContour(total)
    # Another lattice than that of the widest part has few enough sums to list.
    widest = max(composition.laws, key=lambda p: p[1] * float(p[0].moments(np.zeros(1))[2][0]))
    span = widest[0].lattice_places
    rest = [(x, n) for x, n in composition.laws if x.lattice_places == span]
    listed = [part for part in composition.laws if part not in rest]
    size = math.prod(x.sum_size(n, truncated=True) for x, n in listed)
    if not listed or size > LISTED_SUMS or any(x.infinite for x, _ in rest):
        return None
    others = Composition.of(rest)
    return ConditionedProfile(composition, Composition.of(listed), others, select(others))
