"""Compute upper confidence limits on error rates from counts, at or above the exact limits.

SciPy proposes each limit. Then a bound on the binomial tail confirms the limit, or raises it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincinv, betaln, gammaln

from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import log_binomial
from neyman.numerics.roots import bisect


@dataclass(frozen=True)
class Limits:
    """Limit the computation of binomial tails."""

    least_tail: float = 1e-300  # a smaller tail counts as this


LIMITS = Limits()
# Relative error of SciPy's gammaln, of logarithms, and of their sums, with room.
BETA_RELATIVE_ERROR = 16 * UNIT  # slack: a_limit_at_every_number_of_trials


def tail_above(most: int, trials: int, rate: float) -> float:
    """Bound P(X <= most) for X ~ Bin(n, p) from above; 1 if ``most`` is far above the mean.

    From k = ``most`` downward, P(X = k - 1) / P(X = k) = k (1 - p) / ((n - k + 1) p) falls. So once
    it is below 1, a geometric sum bounds the rest.
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
        # Terms of a tail that are added at once.
        # same: max -> min: Safe: the ratio at k = 0 is 0, and so is each term from there on. The
        # slack counts more steps.
        k = np.arange(at, max(at - 4096, 0), -1, dtype=float)
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
    # A term errs by 6 units for each ratio before it, and the sum by one for each term.
    slack = (steps + 16) * 8 * UNIT  # slack: the_chance_of_as_many_correct_guesses/a
    first = max(math.exp(float(log_first[0] + error[0])), LIMITS.least_tail)
    return min(first * total * (1 + slack), 1.0)


def clopper_pearson(count: int, trials: int, chance: float) -> float:
    """Return an upper limit on a binomial rate. It is below the rate with at most this chance.

    The limit is the root p of P(Bin(trials, p) <= count) = chance, rounded up; 1 if count = trials.

    Args:
        count: number of errors, at most trials.
        chance: probability that the limit is below the rate, in (0, 1/2).

    Source: Clopper and Pearson 1934.
    """
    if count >= trials:
        return 1.0
    if not count:  # (1 - p)^n = chance
        # slack: a_limit_without_an_error
        return min(-math.expm1(math.log(chance) / trials) * (1 + 16 * UNIT), 1.0)
    limit = float(betaincinv(count + 1, trials - count, 1 - chance))
    if not 0 < limit < 1:
        limit = count / trials
    # slack: counted
    step = 16 * UNIT * limit  # first step of a search that ends at the tail's bound
    below = limit * (1 - 2.0**-20) if tail_above(count, trials, limit) <= chance else limit
    while tail_above(count, trials, limit) > chance:
        below, limit, step = limit, limit + step, 2 * step
        if limit >= 1:
            return 1.0
    # The smallest limit that the tail bound confirms, or near it.
    return bisect(
        lambda p: tail_above(count, trials, p) <= chance, limit, below, tolerance=4e-15, rounds=60
    )[0]


def error_rates(
    false_positives: int, negatives: int, false_negatives: int, positives: int, chance: float
) -> tuple[float, float]:
    """Return upper limits on a test's two error rates, each wrong with at most this chance."""
    first = clopper_pearson(false_positives, negatives, chance)
    return first, clopper_pearson(false_negatives, positives, chance)


def checked_confidence(value: object) -> Fraction:
    """Return a confidence as an exact number."""
    sure = check.exact("confidence", value)
    if not 0 < sure < 1:
        raise ValueError(f"confidence = {value!r} must be above 0 and below 1")
    return sure


def all_counts(trials: int, chance: float) -> tuple[Array, float]:
    """Return counts, and the chance x of each one's limit such that all limits hold at once.

    Let u_i be the limit of `clopper_pearson` at count i - 1 and chance x, and n = ``trials``. If
    the count is i - 1, a rate is at most the i-th smallest of n uniform numbers (see `scores`). So
    the limits of all counts hold at once if the i-th smallest number is at most u_i for each i. Let
    a_i be the probability that i is the first index at which it is larger. Then

        P(Bin(n, u_i) = i - 1) = sum over j <= i of
            a_j P(Bin(n - j + 1, (u_i - u_j) / (1 - u_j)) = i - j),

    because if j is the first such index, exactly j - 1 numbers are below u_j, and the others are
    uniform on (u_j, 1). An error in a_j moves the sum of all a by at most twice the error. For many
    trials, the function uses fewer counts, each with an equal share of ``chance``.

    Args:
        chance: probability that any of the limits is below its rate, in (0, 1/2).

    Returns:
        Rising counts that end at trials - 1, and x. At any other count, the next count's limit
        holds.

    Source: Berk and Jones 1979; Moscovich and Nadler 2017.
    """
    if chance < 1e-100:  # smallest chance for this: far above underflow
        # slack: chances_of_all_counts_add_up_to_the_chance
        return np.arange(trials), chance / trials * (1 - 4 * UNIT)
    if trials > 2000:  # up to this many trials, each count has its own limit
        size = math.ceil(8 * math.sqrt(trials))
        places = (trials - 1) * np.sin(np.linspace(0, math.pi / 2, size)) ** 2
        counts = np.unique(np.append(np.rint(places).astype(np.int64), trials - 1))
        # slack: chances_of_all_counts_add_up_to_the_chance
        return counts, chance / len(counts) * (1 - 4 * UNIT)
    return np.arange(trials), _equal_chance(trials, chance)


@lru_cache(maxsize=64)
def _equal_chance(trials: int, chance: float) -> float:
    """Return the chance of a miss for each count's limit, such that all limits hold at once.

    They hold with probability at least 1 - ``chance``.
    """
    float_share = 1e-5  # relative room for float errors, which are below 1e-7
    target = chance * (1 - float_share)
    each = target / (2 + 2 * math.log(trials))
    for _ in range(8):
        ratio = target / _chance_of_any(trials, each)
        if 0 <= ratio - 1 < float_share:
            return each
        each *= ratio * (1 - float_share / 4)
    while _chance_of_any(trials, each) > target:
        each *= 0.99
    return each


def _chance_of_any(trials: int, each: float) -> float:
    """Return the probability that any limit is below its rate, if each has chance ``each``."""
    i = np.arange(1, trials + 1)
    beyond = betaincinv(trials - i + 1.0, i, each)  # 1 - u_i, accurate even if tiny
    if not np.allclose(betainc(trials - i + 1.0, i, beyond), each, rtol=1e-10, atol=0):
        return min(trials * each, 1.0)  # SciPy's inverse is off
    limits = 1 - beyond
    logs = gammaln(np.arange(trials + 3.0))  # logs[k] = log((k - 1)!)
    above = np.log(beyond)
    left = logs[trials - i + 2] - (trials - i + 1) * above  # a factor of j
    first = np.zeros(trials)  # a_i
    for k in range(trials):
        moved = np.arange(k, 0, -1)  # i - j
        gaps = np.maximum(limits[k] - limits[:k], LIMITS.least_tail)
        terms = moved * np.log(gaps) - logs[moved + 1]
        here = -left[k]
        start = logs[trials + 1] - logs[k + 1] + k * math.log(limits[k]) + here
        first[k] = math.exp(start) - float(first[:k] @ np.exp(terms + left[:k] + here))
    return float(first.sum())


def proposed_limits(counts: Array, trials: int, chance: float) -> Array:
    """Approximate `clopper_pearson` at many counts. The results are not certified."""
    inner = np.minimum(counts, trials - 1)
    limits = 1 - betaincinv(np.maximum(trials - inner, 1.0), inner + 1.0, chance)
    return np.where(counts >= trials, 1.0, limits)


def anytime_limit(count: int, trials: int, chance: float) -> float:
    """Return an upper limit that holds after every number of trials at once.

    Consider the likelihood ratio of a mixture, with rates from Beta(1/2, 1/2), to the rate p. If p
    is the true rate, the ratio is a martingale. It ever exceeds 1 / chance with at most this chance
    (Ville). The limit is the p above count / trials at which the ratio is 1 / chance, rounded up.

    Args:
        chance: probability that the limit is ever below the rate, in (0, 1).

    Source: Ville 1939; Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021.
    """
    if count >= trials:
        return 1.0
    mixed = float(betaln(count + 0.5, trials - count + 0.5)) - math.log(math.pi)
    target = -math.log(chance)
    # betaln combines three gammaln. The largest, at trials + 1, errs most.
    terms = (trials + 1) * math.log(trials + 2)

    def reached(p: float) -> bool:
        hits, misses = count * math.log(p) if count else 0.0, (trials - count) * math.log1p(-p)
        size = abs(mixed) + abs(hits) + abs(misses) + target + terms + 1
        return mixed - hits - misses - BETA_RELATIVE_ERROR * size >= target

    low, high = count / trials, math.nextafter(1.0, 0.0)
    if not reached(high):
        return 1.0
    return bisect(reached, high, low, tolerance=1e-13)[0]
