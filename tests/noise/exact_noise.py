"""Exact distributions of noise in mpmath, from sums that share nothing with the code under test."""

import math
from functools import cache

import mpmath

ALARM = 1e-6


def real(x):
    return mpmath.mpf(x.numerator) / x.denominator


def weight(law, parameter, k):
    exponent = abs(k) / real(parameter) if law == "laplace" else k**2 / (2 * real(parameter))
    return mpmath.exp(-exponent)


def total(law, parameter):
    if law == "laplace":
        return mpmath.coth(1 / (2 * real(parameter)))
    return mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * real(parameter))))


def survival(law, parameter, k):
    """P(|X| >= k)."""
    return _survival(law, parameter, k, mpmath.mp.prec)


@cache
def _survival(law, parameter, k, precision):
    if k == 0:
        return mpmath.mpf(1)
    with mpmath.workprec(precision + 32):
        first = weight(law, parameter, k)
        if law == "laplace":
            return 2 * first / (1 - weight(law, parameter, 1)) / total(law, parameter)
        terms, j, term = mpmath.mpf(0), k, first
        while term > mpmath.ldexp(first, -precision - 32):
            terms, j = terms + term, j + 1
            term = weight(law, parameter, j)
        return 2 * terms / total(law, parameter)


def magnitude(law, parameter, u):
    """The k with P(|X| < k) <= u < P(|X| <= k)."""
    k = 0
    while u >= 1 - survival(law, parameter, k + 1):
        k += 1
    return k


def assert_counts(counts, probabilities):
    """Each count within the Chernoff bound of its cell."""
    n = sum(counts)
    allowed = math.log(2 * len(counts) / ALARM)
    for observation, p in zip(counts, probabilities, strict=True):
        share = mpmath.mpf(int(observation)) / n
        divergence = mpmath.mpf(0)
        if share > 0:
            divergence += share * mpmath.log(share / p)
        if share < 1:
            divergence += (1 - share) * mpmath.log((1 - share) / (1 - p))
        assert n * divergence <= allowed, (observation, float(n * p))
