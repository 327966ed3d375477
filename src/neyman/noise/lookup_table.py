"""Draw exact integer noise of common scales. Most draws take 16 random bits and one table look-up.

Inversion gives the magnitude: with a uniform real U and F(k) = P(|X| <= k), |X| is the k with
F(k-1) <= U < F(k) [NT-1]. The bits of U, and one bit for the sign, are drawn in three stages:

1. Draw the sign and the first 15 bits of U. Each value of these 16 bits is a *cell*. A table, the
   *guide*, has the answer for each cell in which only one k is possible. At sigma 10 these
   are all but 0.15 percent of the cells.
2. For other cells, draw the next 49 bits. Compare U with thresholds that equal 2^64 F(k) up to a
   known slack, by bisection among the thresholds in the cell [NT-2].
3. If U is within the slack of a threshold, or above the last one (the infinite tail), draw
   further bits. Compute F to the same precision, until one answer is certain [NT-4].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.noise.weights import RoundedWeights, Weights


@dataclass(frozen=True)
class Limits:
    """Hold the number of draws per batch, and the largest number of stored tables."""

    batch_draws: int = 1 << 16
    tables: int = 8  # the largest takes 37 MB


LIMITS = Limits()

OPEN = np.iinfo(np.int64).min  # a guide entry that needs more bits

Words = NDArray[np.uint64]
Lanes = NDArray[np.int64]


class MagnitudeDistribution(Protocol):
    """Represent a distribution of magnitudes that is computable to any number of digits."""

    def place(self, value: int, length: int) -> int | None:
        """Return |X| for U with ``length`` first bits ``value``, or None if they do not fix it."""
        ...


@dataclass(frozen=True, eq=False)
class Table:
    """Draw symmetric integer noise from a table.

    Args:
        law: the distribution of the magnitude, for draws that the thresholds leave open.
        thresholds: integers t(0) <= t(1) <= ..., at least one.
        slack: an integer with t(k) <= 2^precision F(k) <= t(k) + slack for all k.
        lead: number of bits of the first stage, including the sign, 2 to 16.
        precision: number of bits of U in the first two stages, ``lead`` to 64.
        further: number of bits in each later step, 1 to 64.
    """

    law: MagnitudeDistribution
    thresholds: Words
    slack: int
    lead: int = 16
    precision: int = 64
    further: int = 64
    guide: Lanes = field(init=False, repr=False)
    first: Lanes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cells = np.arange(1 << self.lead - 1).astype(np.uint64)
        start = cells << np.uint64(self._middle)
        end = start + np.uint64((1 << self._middle) - 1)
        first, last = (np.searchsorted(self.thresholds, u, "right") for u in (start, end))
        # If the first U of a cell is clear of the threshold below it, so are the others [NT-2].
        filled = (first == last) & self._is_clear(start, first)
        guide = np.concatenate([np.where(filled, sign * first, OPEN) for sign in (1, -1)])
        ends = np.append(first, self.thresholds.size)
        for name, array in (("guide", guide), ("first", ends), ("thresholds", self.thresholds)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def _middle(self) -> int:
        return self.precision - (self.lead - 1)

    def fill(self, out: Lanes, bits: Bits) -> None:
        """Write independent draws to all of ``out``, a one-dimensional int64 array."""
        for start in range(0, out.size, LIMITS.batch_draws):
            part = out[start : start + LIMITS.batch_draws]
            cells = bits.words(-(-part.size // 4)).view(np.uint16)[: part.size]
            if self.lead < 16:
                cells = cells >> np.uint16(16 - self.lead)
            # No cell is outside the guide: "wrap" only spares a copy.
            np.take(self.guide, cells, out=part, mode="wrap")
            lanes = np.flatnonzero(part == OPEN)
            if lanes.size:
                part[lanes] = self._decide(cells[lanes].astype(np.int64), bits)

    def _decide(self, cells: Lanes, bits: Bits) -> Lanes:
        """Return the draws of ``cells`` in which several k are possible, by further bits."""
        cell = cells & ((1 << self.lead - 1) - 1)
        value = bits.words(cell.size) >> np.uint64(64 - self._middle)
        value |= cell.astype(np.uint64) << np.uint64(self._middle)
        k = self.magnitudes(value, bits)
        return np.where(cells == cell, k, -k)

    def magnitudes(self, value: Words, bits: Bits) -> Lanes:
        """Return each |X|, given ``value``, the first ``precision`` bits of its U."""
        cell = (value >> np.uint64(self._middle)).astype(np.int64)
        k = _count(self.thresholds, value, self.first[cell], self.first[cell + 1])
        for i in np.flatnonzero(~self._is_clear(value, k)):
            k[i] = self._refine(int(value[i]), bits)
        return k

    def _is_clear(self, value: Words, k: Lanes) -> NDArray[np.bool_]:
        """Return True where every U with first bits ``value`` is in [F(k-1), F(k)).

        The caller ensures that t(k-1) <= value < t(k).
        """
        below = self.thresholds[np.maximum(k - 1, 0)]
        clear = (k == 0) | (value - below >= np.uint64(self.slack))
        return clear & (k < self.thresholds.size)

    def _refine(self, value: int, bits: Bits) -> int:
        """Return the magnitude for a U with first bits ``value``. Draw further bits as needed."""
        length = self.precision
        while (k := self.law.place(value, length)) is None:
            word = int(bits.words(1)[0]) >> 64 - self.further
            value, length = value << self.further | word, length + self.further
        return k


def _count(thresholds: Words, value: Words, first: Lanes, last: Lanes) -> Lanes:
    """Return the number of thresholds that are at most each ``value``.

    The caller ensures that this number is from ``first`` to ``last``.
    """
    counts = first.copy()
    lanes = np.arange(value.size)
    while True:
        still = np.flatnonzero(first < last)
        if not still.size:
            return counts
        lanes, value, first, last = lanes[still], value[still], first[still], last[still]
        middle = (first + last) >> 1
        at_most = thresholds[middle] <= value
        first = np.where(at_most, middle + 1, first)
        last = np.where(at_most, last, middle)
        counts[lanes] = first


@lru_cache(maxsize=LIMITS.tables)
def weights_table(a: Fraction, b: Fraction) -> Table:
    """Return the table for P(X = x) proportional to exp(-a |x| - b x^2); see `Weights`."""
    weights = Weights(a, b)
    return Table(weights, *weights.thresholds())


@lru_cache(maxsize=LIMITS.tables)
def rounded_table(sigma_squared: Fraction) -> Table:
    """Return the table for round(Z), Z ~ N(0, sigma^2)."""
    law = RoundedWeights(sigma_squared)
    return Table(law, *law.thresholds())
