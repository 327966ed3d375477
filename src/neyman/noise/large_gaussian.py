"""Draw exact discrete and rounded Gaussian noise of large scales, by strips of equal chances.

The half line x >= 0 is cut into strips of width 2^b, each about a hundredth of sigma wide, and a
tail. One of 2^15 equally probable cells picks a strip, and fair bits pick a place x in the strip.
The place is accepted with probability C w(x) / n. Here w(x) = exp(-x^2 / (2 sigma^2)), n is the
number of cells that pick the strip, and C is a constant. The chance of the strip is proportional to
n, so the distribution is exact for any C and n [NT-6]. A place is an integer for the discrete
Gaussian. For the rounded Gaussian it is a real number, with bits drawn on demand.

The place is accepted if a uniform real V is below the acceptance probability. The first 16 bits of
V decide 98 percent of draws. For the others, 30 bits, and then more, are compared with integer
bounds until one answer is certain [NT-7].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.noise.lane_arithmetic import chances, exponents, series
from neyman.noise.rejection import one_sided
from neyman.noise.weights import exponential
from neyman.numerics.roots import bisect_integers

LEAST_SIGMA_SQUARED = 128**2
"""The smallest sigma^2 for strips: from here on, a strip has a width of at least 2."""

LEAD_BITS = 16  # bits that pick a sign and a cell, and number of first bits of V
CELLS = 1 << LEAD_BITS - 1


@dataclass(frozen=True)
class Limits:
    """Hold the width of strips, the precision of places, and the numbers of draws per batch."""

    batch_draws: int = 1 << 14  # draws per batch
    tables: int = 16


LIMITS = Limits()

TAIL_SIGMAS = Fraction(17, 4)  # start of the tail, in sigma
FIRST_WORD_BITS = 32  # largest number of bits of a place in the first word
SECOND_STAGE_BITS = 20  # bits of a place in the second stage
FIXED_POINT_ONE = 1 << 30  # of probabilities in the second stage

Words = NDArray[np.uint64]
Lanes = NDArray[np.int64]


class Strips:
    """Draw symmetric integer noise of a large scale by strips, as the module describes.

    Args:
        sigma_squared: sigma^2, exact, from ``LEAST_SIGMA_SQUARED`` to (2^53 - 1)^2.
        rounded: True for round(N(0, sigma^2)); False for the discrete Gaussian.
        reach: start of the tail in sigma, at most 7.

    Attributes:
        width: b: a strip is 2^b wide.
        fine: number of bits after the binary point of a place, as first drawn.
        number: number of strips.
        most: C, the constant of the acceptance probability.
        counts: number of cells of each strip, and of the tail.
    """

    def __init__(
        self, sigma_squared: Fraction, rounded: bool, reach: Fraction = TAIL_SIGMAS
    ) -> None:
        self.sigma_squared, self.rounded = sigma_squared, rounded
        sigma = math.isqrt(math.floor(sigma_squared))
        # Strips per sigma, at least this number and below twice this number.
        self.width = (sigma // 64).bit_length() - 1
        self.number = math.ceil(reach * (sigma + 1) / (1 << self.width))
        # Smallest number of bits of a real place within its strip.
        self.fine = max(1, 24 - self.width) if rounded else 0
        precision = 64
        heights = [
            exponential(self._exponent(h << self.width), precision) for h in range(self.number + 1)
        ]

        count_parts = 1024  # C is a multiple of 1/1024

        # The largest C for which every strip gets the cells it needs, and the tail at least one.
        def cells(most: int) -> list[int]:
            return [_up(most * top, count_parts << precision) for _, top in heights[:-1]]

        low = bisect_integers(lambda most: sum(cells(most)) < CELLS, 0, count_parts * CELLS)
        needed = cells(low)
        self.counts = (*needed, CELLS - sum(needed))
        self.most = Fraction(low, count_parts)
        # The tail proposal has ratio r, and requires C w(T) <= 2^b n (1 - r).
        if self.tail_most > FIXED_POINT_ONE:
            # Guards against our own search for strips.
            raise ArithmeticError(f"no strips for sigma_squared = {sigma_squared}")
        sure: list[int] = []
        starts: list[int] = []
        for h, count in enumerate(needed):
            scale = count_parts * count << precision
            sure.append(min((low * heights[h + 1][0] << LEAD_BITS) // scale, (1 << LEAD_BITS) - 1))
            starts.append(min(low * heights[h][0] * FIXED_POINT_ONE // scale, FIXED_POINT_ONE - 1))
        packed = np.array([h << LEAD_BITS | s for h, s in enumerate([*sure, 0])], np.uint32)
        side = np.repeat(packed, self.counts)
        self.guide, self.starts = np.concatenate([side, side]), np.array(starts, np.int64)
        if not rounded:  # zeros with a minus sign are refused
            self.guide[CELLS : CELLS + self.counts[0]] = 0
        self.guide.flags.writeable = self.starts.flags.writeable = False

    @property
    def factor(self) -> int:
        """Return 2^34 c, rounded down, for c = 4^b / (2 sigma^2). It is below 2^21."""
        return math.floor(Fraction(1 << 2 * self.width + 34) / (2 * self.sigma_squared))

    @property
    def tail_most(self) -> int:
        """Return an upper bound on 2^30 times each acceptance probability in the tail."""
        precision = 64
        _, top = exponential(self._exponent(self.number << self.width), precision)
        _, ratio = exponential(self._rate, precision)
        room = (self.counts[-1] << self.width) * ((1 << precision) - ratio)
        return math.ceil(self.most * top * FIXED_POINT_ONE / room)

    @property
    def _rate(self) -> Fraction:
        """Return T / sigma^2 for the start T of the tail, a rate at which w falls there.

        For g >= 0, w(T + g) <= w(T) e^(-g T / sigma^2).
        """
        return Fraction(self.number << self.width) / self.sigma_squared

    def _exponent(self, x: int | Fraction) -> Fraction:
        return Fraction(x) ** 2 / (2 * self.sigma_squared)

    def fill(self, out: Lanes, bits: Bits) -> None:
        """Write independent draws to all of ``out``, a one-dimensional int64 array."""
        # Draws per block. The undecided draws of a block are decided together.
        block_draws = 1 << 20
        for start in range(0, out.size, block_draws):
            self._block(out[start : start + block_draws], bits)

    def _block(self, out: Lanes, bits: Bits) -> None:
        """Fill ``out``: decide most draws by 16 bits, and the others together by more bits."""
        left: list[tuple[Lanes, Words, Words]] = []
        for start in range(0, out.size, LIMITS.batch_draws):
            part = out[start : start + LIMITS.batch_draws]
            words = bits.words(part.size)
            low = self._low_bits(words, bits)
            cells = (words & np.uint64(0xFFFF)).view(np.int64)
            # No cell is outside the guide: "wrap" only spares a copy.
            picked = np.take(self.guide, cells, mode="wrap")
            first = words.astype(np.uint32) >> np.uint32(LEAD_BITS)
            undecided = np.flatnonzero(first >= (picked & np.uint32(0xFFFF)))
            place = (picked >> np.uint32(LEAD_BITS)).astype(np.int64)
            place <<= self.width + self.fine
            place |= low.view(np.int64)
            part[:] = self._sign_lanes(place, cells >> (LEAD_BITS - 1))
            left.append((undecided + start, words[undecided], low[undecided]))
        lanes = np.concatenate([a for a, _, _ in left])
        if lanes.size:
            words = np.concatenate([a for _, a, _ in left])
            low = np.concatenate([a for _, _, a in left]).view(np.int64)
            more = (bits.words(lanes.size) >> np.uint64(LEAD_BITS)).view(np.int64)
            self._finish(out, lanes, words, low, more, bits)

    def settle(self, words: Words, low: Lanes, more: Lanes, bits: Bits) -> Lanes:
        """Return one draw per proposal: the proposal if it is accepted, else a new draw.

        Args:
            words: the last 16 bits of each pick a sign and a cell. The 16 bits before them begin V.
            low: the random bits of each place within its strip.
            more: the next 48 bits of each V.
            bits: the source of further bits.
        """
        cells = (words & np.uint64(0xFFFF)).view(np.int64)
        place = (np.take(self.guide, cells) >> np.uint32(LEAD_BITS)).astype(np.int64)
        out = self._sign_lanes(place << self.width + self.fine | low, cells >> LEAD_BITS - 1)
        self._finish(out, np.arange(out.size), words, low, more, bits)
        return out

    def _finish(
        self, out: Lanes, lanes: Lanes, words: Words, low: Lanes, more: Lanes, bits: Bits
    ) -> None:
        again = lanes[~self._decide(out, lanes, words, low, more, bits)]
        new = np.empty(again.size, np.int64)
        if again.size:
            self._block(new, bits)
        out[again] = new

    def _low_bits(self, words: Words, bits: Bits) -> Words:
        """Return random bits of each place within its strip, from ``words`` if they suffice."""
        length = self.width + self.fine
        source = words if length <= FIRST_WORD_BITS else bits.words(words.size)
        return source >> np.uint64(64 - length)

    def _sign_lanes(self, place: Lanes, minus: Lanes) -> Lanes:
        """Round each ``place`` to an integer, negate it where ``minus`` is 1, and overwrite it."""
        if self.rounded:
            place += 1 << self.fine - 1
            place >>= self.fine
        place ^= -minus
        place += minus
        return place

    def _decide(
        self, out: Lanes, lanes: Lanes, words: Words, low: Lanes, more: Lanes, bits: Bits
    ) -> NDArray[np.bool_]:
        """Return True for each accepted draw. Write draws from the tail to ``out``.

        ``lanes`` has the index of each draw in ``out``. The other arguments are as in `settle`.
        """
        cells = (words & np.uint64(0xFFFF)).view(np.int64)
        strip = (np.take(self.guide, cells) >> np.uint32(LEAD_BITS)).astype(np.int64)
        first = (words >> np.uint64(LEAD_BITS) & np.uint64(0xFFFF)).astype(np.int64)
        least, most = self._bounds(strip, low)
        value = first << 14 | more >> 34
        accepted = value < least
        for i in np.flatnonzero((value >= least) & (value < most)):
            v = int(first[i]) << 48 | int(more[i])
            x = (int(strip[i]) << self.width + self.fine) + int(low[i])
            accepted[i] = self._is_below(v, self.counts[int(strip[i])], Fraction(0), x, bits)
        tail = np.flatnonzero(strip == self.number)
        far = np.empty(tail.size, np.int64)
        one_sided(1 / self._rate, far, bits)
        for i, g in zip(tail.tolist(), far.tolist(), strict=True):
            v = int(first[i]) << 48 | int(more[i])
            x = (self.number << self.width) + g << self.fine
            x += int(low[i]) & (1 << self.fine) - 1
            accepted[i] = self._is_below(v, self.counts[-1], g * self._rate, x, bits)
            place = np.array([x], np.int64)
            out[lanes[i]] = self._sign_lanes(place, np.array([cells[i] >> LEAD_BITS - 1]))[0]
        if not self.rounded:
            accepted &= (out[lanes] != 0) | (cells < CELLS)
        return accepted

    def _bounds(self, strip: Lanes, low: Lanes) -> tuple[Lanes, Lanes]:
        """Bound 2^30 times the acceptance probabilities C w(x) / n. In the tail, return 0.

        ``strip`` is h, and ``low`` has the bits of s. The place x = 2^b (h + s) has weight
        w(x) = w(2^b h) e^-d with d = c s (2 h + s) and c = 4^b / (2 sigma^2) < 2^-13.
        """
        length = self.width + self.fine
        if length > SECOND_STAGE_BITS:
            near = low >> length - SECOND_STAGE_BITS
            far = near + 1
        else:
            near = far = low << SECOND_STAGE_BITS - length  # an integer
        ends = np.append(self.starts, 0)[strip]
        d_low, d_high = exponents(strip, near, far, self.factor)
        least, most = chances(ends, series(d_low), series(d_high))
        tail = strip == self.number
        least[tail] = most[tail] = 0
        return least, most

    def _is_below(self, value: int, count: int, taken: Fraction, x: int, bits: Bits) -> bool:
        """Return True if the uniform real V is below the acceptance probability.

        It is C w(x) e^taken / n. In the tail it is divided by 2^b (1 - r), r = e^(-T / sigma^2).

        Args:
            value: the first 64 bits of V.
            count: n, the number of cells.
            taken: in the tail, g T / sigma^2 for the proposal T + g; 0 in a strip.
            x: the place in units of 2^-fine. For a real place, its first bits.
        """
        length, point = 64, self.fine
        tail = x >> point >= self.number << self.width
        while True:
            precision = length + 64
            one = 1 << precision
            least, most = exponential(self._exponent(Fraction(x, 1 << point)) - taken, precision)
            if self.rounded:
                end = Fraction(x + 1, 1 << point)
                least, _ = exponential(self._exponent(end) - taken, precision)
            small, large = _ratio(self._rate, precision) if tail else (0, 0)
            scale = self.most.denominator * count << (self.width if tail else 0)
            needed_low, needed_high = scale * (one - large), scale * (one - small)
            low, high = (self.most.numerator * w << precision for w in (least, most))
            if (value + 1) * needed_high << precision <= low << length:
                return True
            if value * needed_low << precision >= high << length:
                return False
            value, length = value << 64 | int(bits.words(1)[0]), length + 64
            if self.rounded:
                x, point = x << 64 | int(bits.words(1)[0]), point + 64


@lru_cache(maxsize=64)
def _ratio(rate: Fraction, precision: int) -> tuple[int, int]:
    return exponential(rate, precision)


def _up(x: int, y: int) -> int:
    return -(-x // y)


@lru_cache(maxsize=LIMITS.tables)
def strips(sigma_squared: Fraction, *, rounded: bool) -> Strips:
    """Return the stored `Strips` of a scale, about 300 kB."""
    return Strips(sigma_squared, rounded)
