"""Draw one of many points exactly, with weights that fall exponentially with a score.

A uniform real is compared with cumulative weights, in integers rounded down and up. While its bits
leave more than one answer, more bits are drawn, and the weights are computed to more bits, without
floating-point arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from neyman.noise.bits import Bits
from neyman.noise.weights import exponential
from neyman.numerics.roots import bisect_integers

GUARD_BITS = 32  # bits of a weight in addition to the bits of the uniform real


def weighted_choice(
    scores: Sequence[int], points: Sequence[int], rate: Fraction, bits: Bits
) -> int:
    """Draw an index i with probability proportional to points[i] exp(-rate scores[i]), exact.

    Args:
        scores: the integer score of each index.
        points: number of points that share an index and its score, at least 0, not all 0.
        rate: a rational above 0.

    Raises:
        ValueError: no point has a weight.
    """
    if not any(points):
        raise ValueError("points: at least one must be above 0")
    least = min(score for score, number in zip(scores, points, strict=True) if number)
    # A candidate without points may have any score: it is never drawn.
    away = [max(score - least, 0) for score in scores]
    return ringed_choice(iter([Ring(away, points, 0, 0)]), rate, bits)


@dataclass(frozen=True)
class Ring:
    """Hold the next candidates of a choice, and bounds for all later candidates.

    Args:
        scores: scores of the candidates, integers of at least 0.
        points: number of points of each candidate, at least 0.
        beyond: total number of points of all later candidates.
        least: a lower bound on the scores of all later candidates.
    """

    scores: Sequence[int]
    points: Sequence[int]
    beyond: int
    least: int


def ringed_choice(rings: Iterator[Ring], rate: Fraction, bits: Bits) -> int:
    """Draw a candidate as `weighted_choice` does, and read later rings only if needed [EM-6].

    The candidates have the order of the rings. So the cumulative weight of a candidate does not
    depend on how many rings are read. The candidates after a ring have a total weight from 0 to
    ``beyond`` exp(-rate ``least``).

    Args:
        rings: the rings in order. The last has no points beyond. The first has a candidate with
            score 0 and at least one point.

    Returns:
        The index of the candidate, counted through all rings.
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
        # Later candidates are never certain, because their smallest weight is 0.
        place = _place(low, high, value, length)
        if place is not None:
            return place


def _place(low: list[int], high: list[int], value: int, length: int) -> int | None:
    """Return the index that a uniform real selects, or None if several are possible.

    Args:
        low, high: bounds on the cumulative weights of all indices.
        value: the first ``length`` bits of the real.
    """
    # The first index whose cumulative weight is certainly above the real.
    above = (value + 1) * high[-1]
    first = bisect_integers(lambda i: above <= low[i] << length, len(low) - 1, -1)
    if first and high[first - 1] << length > value * low[-1]:
        return None
    return first
