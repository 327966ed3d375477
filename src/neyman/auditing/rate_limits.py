"""Upper limits on an error rate from counts: no limit is below the exact one.

SciPy proposes each limit. A bound on the binomial tail then confirms it, or moves it up.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.special import betaincinv, betaln

from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import log_binomial

__all__ = [
    "anytime_limit",
    "checked_confidence",
    "clopper_pearson",
    "error_rates",
    "proposed_limits",
    "tail_above",
]

TERMS = 4096  # of a tail that are added at once
LEAST = 1e-300  # what is below it counts as this
SPECIAL = 4096 * UNIT  # relative error of SciPy's betaln, with room


def tail_above(most: int, trials: int, rate: float) -> float:
    """Return a bound from above on P(X <= most) for X binomial; 1 where most is far above the mean.

    The probabilities change from ``most`` downward by ratios k (1 - p) / ((n - k + 1) p), which
    fall, so once they are below 1 the rest of the sum is below a geometric one.
    """
    if most < 0:
        return 0.0
    if rate <= 0 or most >= trials or most > trials * rate + 8 * math.sqrt(trials * rate):
        return 1.0
    q = 1.0 - rate
    if q <= 0:
        return 0.0
    log_first, error = log_binomial(trials, rate, q, np.array([most]), 4.0)
    total, term, at, steps = 1.0, 1.0, most, 0
    while at > 0:
        k = np.arange(at, max(at - TERMS, 0), -1, dtype=float)
        ratios = k * q / ((trials - k + 1) * rate)
        terms = term * np.cumprod(ratios)
        total += float(terms.sum())
        term, at, steps = float(terms[-1]), at - len(k), steps + len(k)
        last = float(ratios[-1])
        if at == 0:
            break
        if last < 1 and term * last / (1 - last) < 1e-17 * total:
            total += term * last / (1 - last)
            break
    slack = (steps + 16) * 8 * UNIT
    first = max(math.exp(float(log_first[0] + error[0])), LEAST)
    return min(first * total * (1 + slack), 1.0)


def clopper_pearson(count: int, trials: int, chance: float) -> float:
    """Return an upper limit on a rate that a binomial count exceeds with at most this chance.

    It is the root p of P(Bin(trials, p) <= count) = chance, rounded up; 1 where count = trials.

    Args:
        count: number of errors, at most trials.
        trials: number of independent trials.
        chance: probability that the limit is below the rate, in (0, 1/2).

    Source: Clopper and Pearson 1934.
    """
    if count >= trials:
        return 1.0
    if not count:  # (1 - p)^n = chance
        return min(-math.expm1(math.log(chance) / trials) * (1 + 16 * UNIT), 1.0)
    limit = float(betaincinv(count + 1, trials - count, 1 - chance))
    if not 0 < limit < 1:
        limit = count / trials
    step = 16 * UNIT * limit
    below = limit * (1 - 2.0**-20) if tail_above(count, trials, limit) <= chance else limit
    while tail_above(count, trials, limit) > chance:
        below, limit, step = limit, limit + step, 2 * step
        if limit >= 1:
            return 1.0
    for _ in range(60):  # the least limit that the tail confirms, or near it
        middle = (below + limit) / 2
        if limit - below <= 4e-15 * limit:
            break
        if tail_above(count, trials, middle) <= chance:
            limit = middle
        else:
            below = middle
    return limit


def error_rates(
    false_positives: int, negatives: int, false_negatives: int, positives: int, chance: float
) -> tuple[float, float]:
    """Return upper limits on the two error rates of a test, each wrong with at most this chance."""
    return (
        clopper_pearson(false_positives, negatives, chance),
        clopper_pearson(false_negatives, positives, chance),
    )


def checked_confidence(value: object) -> Fraction:
    """Return a confidence as an exact number.

    Raises:
        ValueError: it is not in (0, 1).
    """
    sure = check.exact("confidence", value)
    if not 0 < sure < 1:
        raise ValueError(f"confidence = {value!r} must be above 0 and below 1")
    return sure


def proposed_limits(counts: Array, trials: int, chance: float) -> Array:
    """Return what `clopper_pearson` begins with, at many counts at once: near, not certified."""
    inner = np.minimum(counts, trials - 1)
    limits = betaincinv(inner + 1.0, np.maximum(trials - inner, 1.0), 1 - chance)
    return np.where(counts >= trials, 1.0, limits)


def anytime_limit(count: int, trials: int, chance: float) -> float:
    """Return an upper limit that holds after every number of trials at once.

    The likelihood ratio of a mixture, with rates from Beta(1/2, 1/2), to the rate p is a
    martingale where p is the rate. It ever exceeds 1 / chance with at most this chance (Ville).
    The limit is the p above count / trials at which it is 1 / chance, rounded up.

    Args:
        count, trials: what was seen up to now.
        chance: probability that the limit is ever below the rate, in (0, 1).

    Source: Ville 1939; Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021.
    """
    if count >= trials:
        return 1.0
    mixed = float(betaln(count + 0.5, trials - count + 0.5)) - math.log(math.pi)
    target = -math.log(chance)

    def reached(p: float) -> bool:
        hits, misses = count * math.log(p) if count else 0.0, (trials - count) * math.log1p(-p)
        size = abs(mixed) + abs(hits) + abs(misses) + target + 1
        return mixed - hits - misses - SPECIAL * size >= target

    low, high = count / trials, math.nextafter(1.0, 0.0)
    if not reached(high):
        return 1.0
    while True:
        middle = (low + high) / 2
        if not low < middle < high or high - low <= 1e-13 * high:
            return high
        if reached(middle):
            high = middle
        else:
            low = middle
