"""Compute the profile of losses on one lattice, by lines over one period [C-15].

delta is linear in e^epsilon between two places of the lattice, so it follows from that at places.
Powers follow from all masses of the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.contour.conditioning import ConditionedProfile
from neyman.curves.profiles.contour.contour import ContourProfile
from neyman.curves.profiles.contour_line import CHERNOFF_POWERS, mgf_below
from neyman.curves.profiles.lattice.convolution import masses_profile, sums_profile
from neyman.curves.profiles.profile import Engine, Interval, Profile, log_delta_below_zero
from neyman.curves.profiles.selection import register, select
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, common_step
from neyman.numerics.rounding import above

Places = NDArray[np.int64]
"""Indices k of places offset + k span."""


@dataclass(frozen=True)
class LatticeSum:
    """Represent a sum of losses on one lattice, for `line_at`.

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
    def wave_nodes(self) -> int:
        return 0

    def end(self, tilt: float, need: float, step: float) -> None:
        return None

    def places(self, tilt: float, height: float) -> float:
        return self.losses.places(tilt, height)

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        return self.losses.mgf(z, log_rest)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return self.losses.moments(tilts)

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        return self.losses.log_decay(tilt, edges, need)

    @cached_property
    def _ratio(self) -> tuple[int, int, int]:
        """Return whole numbers (a, b, n): the place k is (a + b k) / n."""
        n = math.lcm(self.offset.denominator, self.width.denominator)
        return int(self.offset * n), int(self.width * n), n

    def at(self, k: Places) -> Array:
        """Return places as floats, each rounded once."""
        a, b, n = self._ratio
        return np.array([(a + b * i) / n for i in k.tolist()])

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
        masses: the profile by all masses of the sum, for powers.
    """

    def __init__(self, total: LatticeSum, masses: Profile) -> None:
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
        self._sum, self._masses = total, masses
        bounded = losses.supremum < math.inf
        self._top = int(total.index(losses.supremum)) if bounded else 1 << 62

    @cached_property
    def reversed(self) -> LatticeContour:
        """Return the profile of the reversed losses."""
        backward = sum_on_lattice(self._sum.losses.reverse())
        assert backward is not None
        if backward == self._sum:
            return self
        masses = masses_profile(backward.losses)
        assert masses is not None
        return LatticeContour(backward, masses)

    def _at(self, k: Places) -> tuple[Array, Array]:
        """Bound log delta at places."""
        epsilon = self._sum.at(k)
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
        index = np.floor((moved - float(self._sum.offset)) / self._sum.span)
        index = np.clip(index, -(2.0**60), 2.0**60).astype(np.int64)  # delta is 1 and 0 beyond
        k, places = np.unique([index, index + 1], return_inverse=True)
        at, values = self._sum.at(k), self._at(k)
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

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power at many levels, by the masses of the sum."""
        return self._masses.log_powers(log_levels)

    def mu(self) -> Interval | None:
        """Bound mu by the corners of a finite curve. Return None for other curves."""
        return self._masses.mu()


@register(90, "the losses lie on one lattice, or have few sums: lines over a period, or masses")
def _on_lattice(composition: Composition) -> Profile | None:
    if (listed := sums_profile(composition)) is not None:
        return listed
    masses, total = masses_profile(composition), sum_on_lattice(composition)
    if total is None:
        return masses
    if masses is not None:
        return LatticeContour(total, masses)
    # The lattice is too fine. Perhaps all parts but those on the widest one have few sums to list.
    widest = max(composition.laws, key=lambda p: p[1] * float(p[0].moments(np.zeros(1))[2][0]))
    span = widest[0].lattice_places
    rest = [(x, n) for x, n in composition.laws if x.lattice_places == span]
    others = [(x, n) for x, n in composition.laws if x.lattice_places != span]
    size = math.prod(x.sum_size(n, truncated=True) for x, n in others)
    # Each of these sums is a place of a question.
    if not others or size > 32 or any(x.infinite for x, _ in rest):
        return None
    main = Composition.of(rest)
    return ConditionedProfile(composition, Composition.of(others), main, select(main))
