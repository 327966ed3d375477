"""One of many points, drawn exactly with weights that fall exponentially with a score.

A uniform real is compared with cumulative weights in integers that are rounded down and up. Where
its first bits leave more than one answer possible, more bits are drawn, and the weights are
computed to more bits. No floating point takes part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from neyman.noise.bits import Bits
from neyman.noise.weights import exponential
from neyman.numerics.roots import bisect_integers

GUARD_BITS = 32  # bits of a weight beyond those of the uniform real


def weighted_choice(
    scores: Sequence[int], points: Sequence[int], rate: Fraction, bits: Bits
) -> int:
    """Draw an index i with probability proportional to points[i] exp(-rate scores[i]), exact.

    Args:
        scores: whole numbers.
        points: whole numbers of at least 0, not all 0.
        rate: a rational above 0.

    Raises:
        ValueError: no point has a weight.
    """
    used = [i for i, number in enumerate(points) if number > 0]
    if not used:
        raise ValueError("points: at least one must be above 0")
    least = min(scores[i] for i in used)
    size = sum(points[i] for i in used).bit_length()
    value, length = int(bits.words(1)[0]), 64
    while True:
        precision = length + size + GUARD_BITS
        weights: dict[int, tuple[int, int]] = {}
        for i in used:
            away = scores[i] - least
            if away not in weights:
                weights[away] = exponential(away * rate, precision)
        each = [(points[i], weights[scores[i] - least]) for i in used]
        low = list(accumulate(number * one[0] for number, one in each))
        high = list(accumulate(number * one[1] for number, one in each))
        place = _place(low, high, value, length)
        if place is not None:
            return used[place]
        value, length = value << 64 | int(bits.words(1)[0]), length + 64


@dataclass(frozen=True)
class Ring:
    """Cells that come next, and what is known of all later ones.

    Args:
        scores: of the cells, whole numbers of at least 0.
        points: how many points each cell has, at least 0.
        beyond: how many points all later cells have together.
        least: a score that no later cell is below.
    """

    scores: Sequence[int]
    points: Sequence[int]
    beyond: int
    least: int


def ringed_choice(rings: Iterator[Ring], rate: Fraction, bits: Bits) -> int:
    """Draw a cell as `weighted_choice` does; look at later rings where bits need them [EM-6].

    The cells stand in the order of the rings, so each has one place among the cumulative weights,
    whatever was looked at. What is beyond has a weight from 0 to beyond exp(-rate least).

    Args:
        rings: the last one has no points beyond; the first has a cell with the score 0 and a point.

    Returns:
        The number of the cell, over all rings.
    """
    scores: list[int] = []
    points: list[int] = []
    value, length, ring = 0, 0, None
    while True:
        if ring is None or ring.beyond:
            ring = next(rings)
            scores += ring.scores
            points += ring.points
        value, length = value << 64 | int(bits.words(1)[0]), length + 64
        size = (sum(points) + ring.beyond).bit_length()
        precision = length + size + GUARD_BITS
        weights = {s: exponential(s * rate, precision) for s in set(scores)}
        low = list(accumulate(n * weights[s][0] for s, n in zip(scores, points, strict=True)))
        high = list(accumulate(n * weights[s][1] for s, n in zip(scores, points, strict=True)))
        if ring.beyond:
            low.append(low[-1])
            high.append(high[-1] + ring.beyond * exponential(ring.least * rate, precision)[1])
        # What is beyond is never certain, because its least weight is 0.
        place = _place(low, high, value, length)
        if place is not None:
            return place


def _place(low: list[int], high: list[int], value: int, length: int) -> int | None:
    """Where a uniform real that starts with these bits certainly lies; None where that is open."""
    # The least index whose lower bound of the cumulative weight is certainly above the real.
    above = (value + 1) * high[-1]
    first = bisect_integers(lambda i: above <= low[i] << length, len(low) - 1, -1)
    if first and high[first - 1] << length > value * low[-1]:
        return None
    return first
