"""Draw exactly which rows take part in a step of training, from secure bits.

Each distribution holds exactly: a rational rate is compared with bits until the answer is certain,
and integers are drawn by rejection, without floating-point arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.noise.rejection import below, uniform

Lanes = NDArray[np.int64]


def coins(rate: Fraction, rows: int, bits: Bits) -> Lanes:
    """Toss a coin for each row. Return the numbers of the rows with heads, in rising order.

    Args:
        rate: the chance of heads, in [0, 1].
        rows: number of rows.
    """
    scaled = rate * (1 << 16)  # first bits of a coin
    first = math.floor(scaled)
    rest = scaled - first
    parts: list[Lanes] = []
    batch_coins = 1 << 20  # coins per batch
    for start in range(0, rows, batch_coins):
        size = min(batch_coins, rows - start)
        lanes = bits.words(-(-size // 4)).view(np.uint16)[:size]
        heads = lanes < first
        for i in np.flatnonzero(lanes == first) if rest else ():
            heads[i] = below(int(bits.words(1)[0]), rest, bits)
        parts.append(np.flatnonzero(heads) + start)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def subset(rows: int, size: int, bits: Bits) -> Lanes:
    """Return ``size`` of the numbers 0, ..., rows - 1 in rising order, all subsets equally likely.

    The first ``size`` distinct numbers in independent uniform draws form such a subset.

    Args:
        size: number of rows to draw, at most ``rows``.
    """
    if 2 * size > rows:
        mask = np.ones(rows, np.bool_)
        mask[subset(rows, rows - size, bits)] = False
        return np.flatnonzero(mask)
    values = np.empty(0, np.int64)
    first = values
    while first.size < size:
        more = uniform(rows, size + size // 2 - first.size + 8, bits)
        values = np.concatenate([values, more])
        first = np.sort(np.unique(values, return_index=True)[1])
    return np.sort(values[first[:size]])


def order(rows: int, bits: Bits) -> Lanes:
    """Return the numbers 0, ..., rows - 1 in a random order, all orders equally likely.

    Rows are sorted by independent 64-bit keys, which are redrawn until they are distinct.
    """
    while True:
        keys = bits.words(rows)
        places = np.argsort(keys)
        ranked = keys[places]
        if not np.any(ranked[1:] == ranked[:-1]):
            return places
