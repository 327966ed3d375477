"""Compute lower bounds on an estimator's error, given a guarantee's closed forms.

The methods are:

- two points, which a release with trade-off function f can hardly distinguish [OP-4], and their sum
  over coordinates (Assouad) [OP-5];
- van Trees' inequality, with the Fisher information of a private output, and the prior on [-B, B]
  of density cos^2(pi t / 2 B) / B, whose information is pi^2 / B^2 [OP-9];
- packing [OP-11] and Fano's inequality [OP-12] for many close datasets;
- the information of one local report about a parameter [OP-15, OP-16];
- the Bayes risk under a conjugate prior: the risk without privacy, plus the risk that one moved
  record adds [OP-6, OP-7].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import betainc, betaincc, gammaln

from neyman.accounting.optimality.guarantee import DOWN, UP, Guarantee
from neyman.accounting.optimality.guarantee import LIMITS as OPTIMALITY_LIMITS
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT


@dataclass(frozen=True)
class Limits:
    """Limit the searches for the best lower bounds."""

    blocks: int = 40  # blocks of the number of changed records, in a search
    distances: int = 48  # distances of two points to try
    sizes: int = 24  # numbers of changed records to try, for a packing
    spread: float = 4.0  # standard deviations of that number
    epsilon: float = 300.0  # beyond it, ratios of probabilities count as unbounded
    priors: int = 28  # concentrations to try
    factors: int = 10**5  # factors of a probability to multiply


LIMITS = Limits()
UNIT_GRID = np.linspace(0.0, 1.0, 1025)
PACKING_DISTANCE = math.exp(-1)  # distance of the points, for a radius of 1
CONCENTRATION_GRID = np.geomspace(2.05, 1e6, 80)


# Two points


def mean_affinity(
    guarantee: Guarantee, n: int, distance: float, blocks: int = LIMITS.blocks
) -> float:
    """Return a lower bound on E[B(f_K)], K ~ Bin(n, distance), where B is the affinity.

    K is the number of changed records. B(f_k) falls with k. So each block of k uses the value at
    its last k, and after summation by parts all terms are positive.
    """
    t = min(distance * UP, 1.0)
    middle, spread = n * t, math.sqrt(n * t * (1 - t)) + 1
    record_deviations = 9.0  # standard deviations of the number of changed records
    first = max(math.floor(middle - record_deviations * spread), 0)
    last = min(math.ceil(middle + record_deviations * spread), n)
    ends = np.unique(np.linspace(first, last, min(last - first + 1, blocks)).astype(np.int64))
    affinity = guarantee.affinity(ends.astype(float))
    affinity = np.maximum.accumulate(affinity[::-1])[::-1]
    # P(K <= k). The binomial functions of SciPy are wrong for n of 2^31 or more.
    mass = np.asarray(betaincc(ends + 1.0, np.maximum(n - ends, 1.0), t)) * DOWN
    mass[-1] = mass[-1] if last < n else DOWN
    return float(np.sum(mass * (affinity - np.append(affinity[1:], 0.0))))


def best_pair(
    guarantee: Guarantee,
    n: int,
    gain: Callable[[float], float],
    distance: Callable[[float], float],
    most: float,
) -> float:
    """Return the largest gain(d) E[B(f_K)], K ~ Bin(n, distance(d)), over 0 < d <= most.

    B is the affinity, and d measures the distance of two parameters.

    Args:
        guarantee: closed forms for one replaced record.
        gain: function of d: (half the distance of the parameters)^2, or a sum of such squares.
        distance: function of d: the total variation distance of one record's distributions.
        most: the largest d.
    """

    def bound(d: float, blocks: int = LIMITS.blocks) -> float:
        return gain(d) * mean_affinity(guarantee, n, distance(d), blocks)

    places = cast(Array, np.geomspace(most * 1e-3 / max(n, 1), most, LIMITS.distances))
    best = 0.0
    for _ in range(2):
        values = np.array([bound(float(d)) for d in places])
        best = max(best, float(values.max()))
        i = int(np.argmax(values))
        ends = float(places[max(i - 1, 0)]), float(places[min(i + 1, len(places) - 1)])
        places = np.geomspace(*ends, 12)
    return max(best, bound(float(places[len(places) // 2]), 400)) * DOWN


def data_pair(guarantee: Guarantee, changes: Array) -> float:
    """Return the largest (c_k / 2)^2 B(f_k) over k, where B is the affinity.

    ``changes``: c_1, c_2, ... Replacing k records can change the answer by c_k.
    """
    sizes = np.arange(1, len(changes) + 1, dtype=float)
    return float(np.max((changes / 2) ** 2 * guarantee.affinity(sizes), initial=0.0)) * DOWN


# Van Trees' inequality


def _masses() -> Array:
    """Return weights of the points `UNIT_GRID` that bound the prior mean of a convex function.

    The weighted sum is an upper bound: between two points, the function is below its chord. The
    prior's mass and first moment between them have closed forms [OP-10].
    """
    u = UNIT_GRID
    mass = np.diff(u + np.sin(np.pi * u) / np.pi)
    moment = np.diff(u * u / 2 + u * np.sin(np.pi * u) / np.pi + np.cos(np.pi * u) / np.pi**2)
    share = (moment - u[:-1] * mass) / np.diff(u)
    return np.append(mass - share, 0.0) + np.append(0.0, share)


_MASSES = _masses()


def mean_information(information: Callable[[Array], Array], width: float) -> float:
    """Return an upper bound on the prior mean of a Fisher information on [-width, width].

    ``information``: an even, convex function of the parameter.
    """
    return float(np.sum(_MASSES * information(width * UNIT_GRID))) * UP


def cosine_risk(information: float, width: float) -> float:
    """Return van Trees' lower bound 1 / (information + pi^2 / width^2) on the Bayes risk."""
    prior = (math.pi / width) ** 2 if math.isfinite(width) else 0.0
    return DOWN / (information + prior) if information + prior > 0 else math.inf


# Packing and Fano


def packing_success(guarantee: Guarantee, log_count: float, size: int) -> float:
    """Bound the smallest of M success probabilities from above, by packing.

    The task is to name the right one of M = e^log_count datasets. Two of them differ in at most
    ``size`` records.
    """
    count = log_count + math.log(-math.expm1(-log_count))  # log(M - 1)
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2
        log_mass = count + guarantee.log_level(p, size)
        low, high = (low, p) if log_mass > 0 or math.exp(log_mass) + p > 1 else (p, high)
    return high


def fano_success(guarantee: Guarantee, log_count: float, size: int) -> float:
    """Bound the mean probability of naming the right one of M datasets from above, by Fano.

    M and ``size`` are as in `packing_success`.
    """
    return min((size * size * guarantee.rho + math.log(2)) / log_count, 1.0)


def ball_packing(guarantee: Guarantee, n: int, dimension: int) -> tuple[float, float]:
    """Return two lower bounds on a mean's squared error in a ball of radius 1: packing and Fano.

    n: number of records.
    """
    count = float(dimension)  # log M
    best = [0.0, 0.0]
    for size in np.unique(np.geomspace(1, n, LIMITS.sizes).astype(int)).tolist():
        share = max(size - LIMITS.spread * math.sqrt(size), size / 8) / n if size < n else 1.0
        more = float(betainc(size + 1.0, n - size, share)) * UP if size < n else 0.0
        gain = (share * PACKING_DISTANCE / 2) ** 2
        for i, success in enumerate((packing_success, fano_success)):
            error = gain * (1 - success(guarantee, count, size) - more - 4 * UNIT)  # slack: counted
            best[i] = max(best[i], error * DOWN)
    return best[0], best[1]


# Local reports


def information_of_a_bit(guarantee: Guarantee) -> Callable[[Array], Array]:
    """Return a bound on the Fisher information of one report of a bit, a function of its mean.

    The function is even and convex.
    """
    share = math.tanh(guarantee.pure / 2) ** 2 * UP if guarantee.pure < 35 else 1.0
    share, bit = min(share, 1.0), guarantee.bit

    def information(mean: Array) -> Array:
        with np.errstate(divide="ignore"):
            return bit / (1 - share * np.minimum(mean, 1.0) ** 2)

    return information


def category_risk(guarantee: Guarantee, n: int, categories: int) -> float:
    """Return a lower bound on the summed squared errors of k category shares.

    n: number of local reports.
    """
    k = categories
    alpha = CONCENTRATION_GRID
    inverse = (k * alpha - 1) / (k * (alpha - 1))  # the mean of the sum of 1 / (k^2 p_x)
    prior = (k - 1) * (k * alpha - 1) * (k * alpha - 2) / (alpha - 2)
    variance = min(largest_variance(guarantee.pure, k), k - 1.0) * inverse
    if math.isfinite(guarantee.chi_square):
        mean = (1 - 1 / k) * guarantee.chi_square
        variance = np.minimum(variance, mean * np.array([_largest_inverse(k, a) for a in alpha]))
    information = n * k * variance * UP
    return float(np.max((k - 1) ** 2 / (information + prior))) * DOWN


def largest_variance(epsilon: float, k: int) -> float:
    """Return the largest variance of k positive numbers with mean 1 and ratios up to e^epsilon."""
    if epsilon >= LIMITS.epsilon:
        return math.inf
    more = math.expm1(epsilon)
    peak = int(k / (2 + more))  # for a real size, the only maximum is at k / (2 + more)
    size = np.array(sorted({min(max(peak + i, 1), k - 1) for i in (-1, 0, 1, 2)})) / k
    return float(np.max(size * (1 - size) * (more / (1 + size * more)) ** 2))


def _largest_inverse(k: int, alpha: float) -> float:
    """Bound the prior mean of the largest 1 / (k p_x) over x from above, by its moments.

    p_x is the share of category x under a symmetric Dirichlet prior of concentration ``alpha``.
    """
    best = math.inf
    for m in (1, 2, 4, 8, 16, 32, 64):
        if m >= alpha:
            break
        i = np.arange(1, m + 1)
        log = math.log(k) + float(np.sum(np.log((k * alpha - i) / (k * (alpha - i)))))
        best = min(best, math.exp(log / m))
    return best * UP


# One moved record


def priors(n: int, categories: int) -> list[float]:
    """Return the concentrations that a search over symmetric Dirichlet priors tries."""
    least = 1.05 if categories == 2 else 3.05
    most = max(4 * math.sqrt(n) / categories, 40.0)
    return [math.sqrt(n) / categories, *np.geomspace(least, most, LIMITS.priors).tolist()]


def bayes_risk(n: int, categories: int, alpha: float) -> float:
    """Return the summed posterior variance of all shares from n records, without privacy.

    ``alpha``: concentration of the symmetric Dirichlet prior.
    """
    total = categories * alpha
    return (1 - 1 / categories) * total / (total + 1) / (n + total)


def moved_error(n: int, categories: int, alpha: float, chi_square: float) -> float:
    """Return D with E[((M - N)_a - (M - N)_b)^2] >= 4 D for two categories a and b [OP-7].

    N are the counts, and M is any private output. D = (1 - p_0)^2 / C, where p_j is the probability
    that a category has j records. If one record moves from b to a, the joint distribution of N and
    M changes by a chi-square divergence of at most C = chi_square (1 - 2 p_0 + S) + S - p_0 + 2
    p_1. S = E[(r - 1)^2], and r is the probability of the counts after the move over that of N.

    Args:
        n: number of records, at least 1.
        categories: k, the number of categories, at least 2.
        alpha: concentration of the symmetric Dirichlet prior of the shares. If it is at most 1, or
            at most 3 for more than two categories, the function returns 0.
        chi_square: chi-square divergence of outputs on neighbors.
    """
    if alpha <= (1 if categories == 2 else 3) or not math.isfinite(chi_square):
        return 0.0
    none, some = _chances(n, alpha, (categories - 1) * alpha)
    one = none * n * alpha / (n - 1 + (categories - 1) * alpha)
    two = categories == 2
    spread = two_spread(n, alpha) if two else many_spread(n, categories, alpha)
    most = chi_square * (1 - 2 * none + spread) + spread - none + 2 * one
    return some**2 / (most * UP + 1e-300)


def _chances(n: int, a: float, b: float) -> tuple[float, float]:
    """Return the probabilities p_0 and 1 - p_0 of a beta-binomial count, with few rounding errors.

    p_0 is the product of (b + i) / (a + b + i) over i < n. The first factors are multiplied. Then
    Stirling's series to order 1 gives the logarithm of the others. All of its terms are below a few
    a, whatever n and b. At more than 10^5, the next order is below 10^-17.

    a, b: parameters of the beta prior.
    """
    factors = min(n, LIMITS.factors)
    log = float(np.sum(np.log1p(-a / (a + b + np.arange(factors)))))
    if n > factors:
        x, y = b + factors, b + n
        log -= a * math.log1p((n - factors) / (x + a))
        log -= (y - 0.5) * math.log1p(a / y) - (x - 0.5) * math.log1p(a / x)
        log -= a * (1 / (x * (x + a)) - 1 / (y * (y + a))) / 12
    return math.exp(log), -math.expm1(log)


def _log_mass(j: Array, n: int, a: float, b: float) -> Array:
    """Return the log beta-binomial probability of each j of n. It has rounding errors.

    a, b: parameters of the beta prior.
    """
    choose = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    beta = gammaln(j + a) + gammaln(n - j + b) - gammaln(n + a + b)
    return choose + beta - (gammaln(a) + gammaln(b) - gammaln(a + b))


def two_spread(n: int, alpha: float) -> float:
    """Bound S of `moved_error` for two categories, from above [OP-8].

    In each block of counts, the probability and r - 1 are monotone, so their larger values at the
    two ends bound them.
    """
    middle = n // 2
    near = np.arange(0, min(200, middle) + 1)
    half = 750  # nodes for the distribution of a count
    nodes = np.concatenate([np.linspace(0, middle, half), np.linspace(middle, n, half)])
    starts = np.unique(np.concatenate([near, n - near, nodes.astype(np.int64)]))
    ends = np.append(starts[1:] - 1, n)  # each block includes its start and end
    both = np.stack([starts, ends]).astype(float)
    # Nine values of log gamma, each at most n + 2 alpha times its logarithm, of 5 units, and 8
    # sums.
    slack = (
        # slack: counted
        64 * UNIT * (n + 2 * alpha) * math.log(n + 2 * alpha + 2) + OPTIMALITY_LIMITS.rounding_share
    )
    mass = np.exp(_log_mass(both, n, alpha, alpha)).max(axis=0)
    ratio = (alpha - 1) * np.abs(n - 2 * both - 1) / ((both + 1) * (n - both - 1 + alpha))
    count = ends - starts + 1
    return float(np.sum(count * mass * ratio.max(axis=0) ** 2)) * (1 + slack)


def many_spread(n: int, categories: int, alpha: float) -> float:
    """Bound S of `moved_error` for more than two categories, from above.

    |r - 1| <= (alpha - 1) / (the smaller count of both categories + 1) [OP-8].
    """
    total = categories * alpha
    second = (total - 1) * (total - 2) / ((alpha - 1) * (alpha - 2))
    third = second * (total - 3) / (alpha - 3)
    inverse = second / ((n + 1) * (n + 2)) + 3 * third / ((n + 1) * (n + 2) * (n + 3))
    return 2 * (alpha - 1) ** 2 * min(inverse, 1.0) * UP
