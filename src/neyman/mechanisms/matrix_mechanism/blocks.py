"""Describe strategies that sum old steps in blocks, so a stream stores about log2(steps) sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from neyman.mechanisms.description import TRUTH, integer
from neyman.mechanisms.matrix_mechanism import noise_stream as stream
from neyman.mechanisms.matrix_mechanism.participation import pattern
from neyman.mechanisms.matrix_mechanism.strategy import LIMITS as STRATEGY_LIMITS
from neyman.mechanisms.matrix_mechanism.strategy import (
    STEPS,
    STRATEGY_UNIT,
    Strategy,
    largest_of,
    prefix_spread,
    root_weights,
    small,
)
from neyman.noise.bits import Bits


@dataclass(frozen=True)
class Tree(Strategy):
    """Measure the sums of all blocks of 2^l steps that start at a multiple of 2^l.

    Args:
        steps: number of steps, at most 2^20.
        optimal: True combines a block with the blocks inside it (Honaker 2015), for the best
            unbiased estimate from released numbers. False uses the block alone.
    """

    steps: int = field(metadata=STEPS)
    optimal: bool = field(default=True, metadata=TRUTH)

    def matrix(self) -> NDArray[np.int64]:
        """Return W = 65536 C, with a row per block."""
        small(self.steps)
        rows: list[NDArray[np.int64]] = []
        for t in range(1, self.steps + 1):
            for level in range((t & -t).bit_length()):
                row = np.zeros(self.steps, np.int64)
                row[t - 2**level : t] = STRATEGY_UNIT
                rows.append(row)
        return np.array(rows)

    def largest(self, participations: int = 1, separation: int = 1) -> int:
        """Bound the squared l2 sensitivity of the block sums W x, for W = 65536 C [MM-6].

        It is a sum over block sizes 2^l. The worst case at each size is that the participations
        fill as few blocks as ``separation`` b allows. The bound is exact for one step, for b = 1,
        and if the number of steps and b are powers of 2.
        """
        times, apart = pattern(self.steps, participations, separation)
        total = 0
        for level in range(self.steps.bit_length()):
            blocks = self.steps >> level
            most = min(times, -(-(1 << level) // apart))
            full, rest = divmod(min(times, blocks * most), most)
            total += full * most**2 + rest**2
        return total * STRATEGY_UNIT**2

    def spread(self) -> NDArray[np.float64]:
        """Return the standard error of each prefix sum.

        A prefix sum uses one block per 1 in its binary length.
        """
        levels = self.steps.bit_length()
        variances = stream.tree_trust(levels) if self.optimal else [1.0] * levels
        t = np.arange(1, self.steps + 1)
        return np.sqrt(sum(v * (t >> level & 1) for level, v in enumerate(variances)))

    def stream(
        self, sigma_squared: Fraction, width: int, bits: Bits
    ) -> tuple[stream.Encoder, stream.Decoder]:
        """Return an encoder and a decoder that store one sum per block size."""
        return (
            stream.TreeEncoder(self.steps, STRATEGY_UNIT, sigma_squared, self.room(), width, bits),
            stream.TreeDecoder(self.steps, STRATEGY_UNIT, optimal=self.optimal),
        )


@dataclass(frozen=True)
class Binned(Strategy):
    """Use the weights of `square_root`, but one weight for each block of old steps.

    A block of 2^s steps starts at a multiple of 2^s. From ``fine`` 2^s steps after its end, all its
    steps get the weight of its middle. A stream stores about ``fine`` log2(steps / fine) sums.

    Args:
        steps: number of steps, at most 2^20. Above 4096, the error is not computed.
        fine: number of blocks of each size, from 1 to 2^20.

    Source: Andersson and Pagh 2024, with blocks that are fixed in advance.
    """

    steps: int = field(metadata=STEPS)
    fine: int = field(default=4, metadata=integer(1, STRATEGY_LIMITS.steps))

    def matrix(self) -> NDArray[np.int64]:
        """Return W = 65536 C, of shape ``(steps, steps)``."""
        small(self.steps)
        weights, t = root_weights(self.steps), np.arange(self.steps)
        lags = t[:, None] - t[None, :]
        matrix = np.where(lags >= 0, weights[np.maximum(lags, 0)], 0)
        for level in range(1, self.steps.bit_length()):
            size = 1 << level
            start = t >> level << level
            held = stream.merged(start, size, t[:, None], self.fine)  # pyright: ignore[reportArgumentType]
            middle = np.broadcast_to(t[:, None] - start - size // 2, matrix.shape)
            matrix = np.where(held, weights[np.maximum(middle, 0)], matrix)
        return matrix

    def largest(self, participations: int = 1, separation: int = 1) -> int:
        """Return an upper bound on the squared l2 sensitivity of W x, for W = 65536 C.

        The bound is exact for one step. For several steps, it is the `pattern_bound`.
        """
        times, _ = pattern(self.steps, participations, separation)
        if times > 1:
            return largest_of(self, participations, separation)
        return _largest_column(self.steps, self.fine)

    def spread(self) -> NDArray[np.float64]:
        """Return the standard error of each prefix sum."""
        return prefix_spread(self.matrix())

    def covers_restarts(self, separation: int) -> bool:
        """Return True, because no weight is negative."""
        return True

    def memory(self, width: int, kind: type) -> stream.Blocks:
        """Return an empty memory that stores one sum per block."""
        return stream.Blocks(root_weights(self.steps), self.fine, width, kind)


@lru_cache(maxsize=64)
def _largest_column(steps: int, fine: int) -> int:
    squares = np.concatenate([[0], np.cumsum(root_weights(steps) ** 2)])
    t = np.arange(steps)
    total, since, middle = np.zeros(steps, np.int64), t, t
    for level in range(1, steps.bit_length() + 1):
        start = t >> level << level
        until = np.minimum(start + (1 << level) - 1 + fine * (1 << level), steps)
        total += squares[until - middle] - squares[since - middle]
        since, middle = until, np.minimum(start + (1 << level) // 2, until)
    return int(total.max())
