"""Select which discovered keys a release may show.

Neyman adds noise to the number of units with a key. It publishes the key and the noisy number if
the noisy number reaches the threshold. A key that only one unit holds is published with probability
at most delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pyarrow as pa

from neyman.noise.weights import RoundedWeights, exponential
from neyman.numerics.arrays import Integers
from neyman.numerics.roots import bisect_integers

_SUMMED_SIGMA_SQUARED = 1000**2  # sigma squared up to which tails are summed term by term


@lru_cache(maxsize=64)
def threshold(sigma_squared: Fraction, delta: Fraction, *, rounded: bool = False) -> int:
    """Return the least certified integer t with P(1 + X >= t) <= delta for discrete Gaussian X.

    Args:
        sigma_squared: sigma^2 of X from N_Z(0, sigma^2), exact, above 0.
        delta: from 1e-300 to 1/2, exact.
        rounded: True if X is round(N(0, sigma^2)) instead. Then t is the least for every sigma.

    Returns:
        t, which is certified to meet the condition. Up to sigma = 1000, integer interval arithmetic
        shows that t is the least. Above, t exceeds the least by at most one part in 10^6 plus 2 if
        delta is up to 1/10. For a greater delta, t is the threshold for 1/10.

    Raises:
        ValueError: sigma_squared or delta is outside its range.
    """
    if not sigma_squared > 0:
        raise ValueError(f"sigma_squared = {sigma_squared} must be above 0")
    if not Fraction(1, 10**300) <= delta <= Fraction(1, 2):
        raise ValueError(f"delta = {delta} must be from 1e-300 to 1/2")
    return 1 + (_least_rounded if rounded else _smallest_threshold)(sigma_squared, delta)


def selected(keys: pa.Table, noisy: Integers, least: int) -> Integers:
    """Return the positions of the keys whose noisy number reaches ``least``.

    They are sorted by the keys' UTF-8 bytes, so the order reveals nothing about that in the data.
    """
    shown = np.flatnonzero(noisy >= least)
    columns = [column.take(shown).to_pylist() for column in keys.columns]
    texts = zip(*(map(str, column) for column in columns), strict=True)
    rows = [tuple(text.encode("utf-8", "surrogatepass") for text in row) for row in texts]
    return shown[np.array(sorted(range(len(rows)), key=rows.__getitem__), dtype=np.int64)]


def _smallest_threshold(sigma_squared: Fraction, delta: Fraction) -> int:
    """Return the least k with P(X >= k) <= delta, X from N_Z(0, sigma^2) [UN-5].

    k is at least 1, since P(X >= 0) is above 1/2 and delta is not. N_Z is the discrete Gaussian.
    """
    if sigma_squared > _SUMMED_SIGMA_SQUARED:
        return _distant_threshold(sigma_squared, delta)
    precision = 128 + (delta.denominator // delta.numerator).bit_length()
    terms = list(_terms(sigma_squared, precision))
    # The terms beyond the last one add up to less than one unit.
    all_low = 2 * sum(a for a, _ in terms) - terms[0][1]
    above = sum(b for _, b in terms) + 1
    for k, (_, most) in enumerate(terms):
        if above <= delta * all_low:
            return k
        above -= most
    return len(terms)


def _least_rounded(sigma_squared: Fraction, delta: Fraction) -> int:
    """Return the least k >= 1 with P(round(N(0, sigma^2)) >= k) <= delta, by erf bounds [UN-5]."""
    precision = 128 + (delta.denominator // delta.numerator).bit_length()
    law = RoundedWeights(sigma_squared)

    def small(k: int) -> bool:
        return (1 << precision) - law.enclosure(k - 1, precision)[0] <= 2 * delta * (1 << precision)

    low, high = 0, 1  # P(X >= 0) is above a half
    while not small(high):
        low, high = high, 2 * high
    return bisect_integers(small, high, low)


def _terms(sigma_squared: Fraction, precision: int) -> Iterator[tuple[int, int]]:
    """Yield integers below and above w(j) = 2^precision exp(-j^2 / (2 sigma^2)), j = 0, 1, ....

    w(j+1) = w(j) r(j) and r(j+1) = r(j) s, for a ratio r(j) and a constant s. Products of lower
    bounds are rounded down and products of upper bounds are rounded up, with 128 extra bits. The
    ratios fall. So, with w(n) the first omitted term, the omitted terms add up to less than
    w(n) / (1 - r(n)). The loop ends when this bound is below 1.
    """
    extra = 128
    wide = precision + extra
    b = 1 / (2 * sigma_squared)
    low = high = 1 << wide
    ratio_low, ratio_high = exponential(b, wide)
    step_low, step_high = exponential(2 * b, wide)
    one = 1 << wide
    while True:
        yield low >> extra, -(-high >> extra)
        low = low * ratio_low >> wide
        high = -(-high * ratio_high >> wide)
        ratio_low = ratio_low * step_low >> wide
        ratio_high = min(-(-ratio_high * step_high >> wide), one - 1)
        if high << wide < (one - ratio_high) << extra:
            return


def _distant_threshold(sigma_squared: Fraction, delta: Fraction) -> int:
    """Return a k with P(X >= k) <= delta if the tail has too many terms to sum.

    P(X >= k) <= Q((k - 1/2) / sigma) for k from sigma on [UN-5], with Q the normal tail. A relative
    margin of 1e-6 in k is far larger than the rounding of the normal quantile.
    """
    from scipy.special import ndtri_exp  # pyright: ignore[reportMissingTypeStubs]

    sigma = math.sqrt(sigma_squared)
    if delta > Fraction(1, 10):
        delta = Fraction(1, 10)  # its quantile, 1.28 sigma, is where the weight is convex
    log_delta = math.log(delta.numerator) - math.log(delta.denominator)
    quantile = -float(ndtri_exp(log_delta * (1 + 1e-12)))
    return math.ceil(sigma * quantile * (1 + 1e-6) + 1)
