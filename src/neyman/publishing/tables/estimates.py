"""What noisy integers say: values, standard errors and 90% intervals, for every measure.

An interval holds what the data say (what counts after clipping, dropping and bounding of rows) with
probability at least 90%, in each row of a table by itself; of a mean, variance or quantile of no
rows nothing is claimed. It is about noise alone. The arithmetic is in doubles, whose rounding is
far below the noise; no privacy depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, log_ndtr, ndtri  # pyright: ignore[reportMissingTypeStubs]

from neyman.numerics.arrays import Array
from neyman.publishing.plan.query import Query, center, middle, rank_unit
from neyman.publishing.tables.key_selection import threshold

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Noisy = tuple[Integers, Fraction]
"""Noisy integers and the sigma squared of their noise, 0 for declared values."""


@dataclass(frozen=True)
class Limits:
    """When sums of noise are taken as normal."""

    wide_sigma: float = 50.0
    summed_size: float = 1e6
    large_sigma: int = 1000  # sigma from which the sum is the integral, but for a hundredth
    normal_quantile: float = 1.6448536269514722  # the normal distribution's 95th percentile
    # Sigma squared from which sums of whole noise are whole Gaussian noise themselves.
    smooth_variance: int = 4


LIMITS = Limits()
# The quantile, and what rounding and relative 1e-17 parts of it may take.
_ONE_SIDED = LIMITS.normal_quantile * (1 + 1e-9)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Values with their errors, an entry for each row of a table.

    Args:
        value, lower, upper: of one type: int64, or doubles.
        decimals: all four are in units of 10^-decimals (of 10^-2 decimals for a variance).
    """

    value: Array
    standard_error: Floats
    lower: Array
    upper: Array
    decimals: int = 0


def estimate(
    query: Query, decimals: int, noisy: Mapping[str, Noisy], *, rounded: bool = False
) -> Estimate:
    """Return the estimate of a query's rows.

    Args:
        decimals: those of the query's column, less those of ``over``; 0 without a column.
        noisy: by measure ("count", "units", "sum", "offset", "square", "keys") the noisy integers
            of the same cells, flat in declared order: for quantiles whole groups of bins.
        rounded: whether their noise is rounded Gaussian instead of discrete Gaussian, here and
            below.

    Returns:
        A row for each cell; for quantiles, for each group of bins a row for each quantile.
    """
    if query.measure == "mean" and query.clip:
        result = mean(query.clip, noisy["offset"], noisy["count"], rounded=rounded)
    elif query.measure in ("variance", "standard_deviation") and query.clip:
        kind = variance if query.measure == "variance" else standard_deviation
        parts = noisy["offset"], noisy["square"], noisy["count"]
        result = kind(query.clip, *parts, rounded=rounded)
        decimals *= 2 if query.measure == "variance" else 1
    elif query.measure == "ratio" and query.clip and query.clip_over:
        ranges = query.row_range("sum"), query.row_range("over")
        result = ratio(*ranges, noisy["sum"], noisy["over"], rounded=rounded)
    elif query.inverse_sensitivity and query.bins:
        result = quantile_draws(query.bins, noisy["rank"][0])
    elif query.ranked and query.bins:
        result = quantiles(tuple(query.bins), query.quantiles, noisy["count"], rounded=rounded)
    else:
        ((measure, (values, sigma_squared)),) = noisy.items()
        decimals = decimals if measure == "sum" else 0
        if measure == "keys" and query.delta is not None:
            least = threshold(sigma_squared, query.delta, rounded=rounded)
            result = shown(values, sigma_squared, least, rounded=rounded)
        else:
            result = with_margin(values, sigma_squared, rounded=rounded)
    return replace(result, decimals=decimals)


def rows_of(query: Query, cells: int) -> int:
    """How many rows a table has whose integers fill so many cells."""
    if query.ranked and query.bins and not query.inverse_sensitivity:
        return cells // (len(query.bins) - 1) * len(query.quantiles)
    return cells


# ---- one noisy number -------------------------------------------------------------------------


@lru_cache(maxsize=256)
def standard_error(sigma_squared: Fraction, *, rounded: bool = False) -> float:
    """Return the standard deviation of N_Z(0, sigma^2), a little below sigma, or of round(N(0,
    sigma^2)).

    By Poisson summation the two differ by a relative 8 pi^2 sigma^2 e^(-2 pi^2 sigma^2) or so:
    nothing that a double can hold from sigma = 2 on. Likewise the variance of the rounded one and
    sigma^2 + 1/12; below, E X^2 is the sum of (2 k + 1) P(|X| > k).
    """
    sigma = math.sqrt(sigma_squared)
    if rounded and sigma:
        if sigma > LIMITS.wide_sigma:
            return math.sqrt(sigma_squared + Fraction(1, 12))
        k = np.arange(0, int(40 * sigma) + 40, dtype=float)
        beyond = erfc((k + 0.5) / (sigma * math.sqrt(2)))
        return math.sqrt(math.fsum((2 * k + 1) * beyond))
    if sigma > LIMITS.wide_sigma or not sigma:
        return sigma
    k = np.arange(1, int(40 * sigma) + 40, dtype=float)
    weights = np.exp(-k * k / (2 * float(sigma_squared)))
    return math.sqrt(2 * math.fsum(k * k * weights) / (1 + 2 * math.fsum(weights)))


@lru_cache(maxsize=256)
def half_width(sigma_squared: Fraction, coverage: float = 0.9, *, rounded: bool = False) -> int:
    """Return the smallest k with P(abs(X) <= k) >= coverage for X from N_Z(0, sigma^2), or rounded.

    By sums of the mass function; above sigma = 10^6 by the midpoint rule, whose sum over the
    integers up to k is at least the integral up to k + 1/2. Rounded noise has this integral.
    """
    if sigma_squared == 0:
        return 0
    sigma = math.sqrt(sigma_squared)
    if rounded or sigma > LIMITS.summed_size:
        reach = sigma * float(ndtri((1 + coverage) / 2)) * (1 + 1e-9)
        return max(0, math.ceil(reach - 0.5))
    # The midpoint rule and the rounding of sums move the chance by less than 1 / (20 sigma^2) and
    # 1e-9, so k + 1/2 by less than .01: farther from a whole number the integral is enough.
    end = sigma * float(ndtri((1 + coverage) / 2)) - 0.5
    if sigma > LIMITS.large_sigma and coverage <= 0.99 and abs(end - round(end)) > 0.01:
        return math.ceil(end)
    # Beyond 9 sigma there is less than 1e-18, so the total over these is the total.
    k = np.arange(0, int(9 * sigma) + 40, dtype=np.float64)
    weights = np.exp(-k * k / (2 * float(sigma_squared)))
    weights[1:] *= 2
    reached = np.cumsum(weights)
    # One part in 10^12 more than is asked covers the rounding of the sums.
    return int(np.searchsorted(reached, coverage * (1 + 1e-12) * float(reached[-1])))


def with_margin(values: Integers, sigma_squared: Fraction, *, rounded: bool = False) -> Estimate:
    """Return a count or a sum: the noisy number itself, within the noise's 90%."""
    half = half_width(sigma_squared, rounded=rounded)
    error = np.full(len(values), standard_error(sigma_squared, rounded=rounded))
    return Estimate(values, error, values - half, values + half)


def shown(
    values: Integers, sigma_squared: Fraction, least: int, *, rounded: bool = False
) -> Estimate:
    """Numbers of units that are published because they reached the threshold.

    That they did is part of the story: with a true number c >= 1 the published Y is c + X given
    that c + X >= t, so the interval holds those c of which

        P(c + X >= y) / P(c + X >= t) > 0.05    and    P(t <= c + X <= y) / P(c + X >= t) > 0.05:

    each fails with probability at most 5% whatever c is. The first grows with c and the second
    falls, because the likelihood ratio is monotone, so both ends are found by halving.
    """
    distinct, back = np.unique(values, return_inverse=True)
    reach = 12 * math.ceil(math.sqrt(sigma_squared)) + 12
    one = np.ones_like(distinct)

    def log_tail(k: Integers) -> Floats:
        return _log_tail(k, sigma_squared, rounded)

    def high_enough(c: Integers) -> NDArray[np.bool_]:
        return log_tail(distinct - c) > log_tail(least - c) + math.log(0.05 * (1 + 1e-9))

    def low_enough(c: Integers) -> NDArray[np.bool_]:
        return log_tail(distinct + 1 - c) < log_tail(least - c) + math.log(0.95 * (1 - 1e-9))

    lower = _bisect(one, np.maximum(distinct, 1), high_enough)
    upper = _bisect(one, np.maximum(distinct + reach, 1), lambda c: ~low_enough(c + 1))
    error = np.full(len(values), standard_error(sigma_squared, rounded=rounded))
    return Estimate(values, error, lower[back], np.maximum(upper, lower)[back])


def _bisect(low: Integers, high: Integers, passed: Callable[[Integers], Bools]) -> Integers:
    """For each entry the first whole number from ``low`` on that passes; at most ``high``."""
    while np.any(low < high):
        middle = (low + high) // 2
        good = passed(middle)
        low, high = np.where(good | (low == high), low, middle + 1), np.where(good, middle, high)
    return low


def _log_tail(k: Integers, sigma_squared: Fraction, rounded: bool) -> Floats:
    """log P(X >= k): by sums, and above sigma = 50 by the midpoint rule; rounded, by definition."""
    sigma = math.sqrt(sigma_squared)
    if rounded or sigma > LIMITS.wide_sigma:
        return log_ndtr((0.5 - k) / sigma)
    far = math.ceil(38 * sigma) + 2
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * float(sigma_squared)))
    with np.errstate(divide="ignore"):
        tails = np.log(np.cumsum(weights[::-1])[::-1] / math.fsum(weights))
    return tails[np.clip(k + far, 0, 2 * far)]


# ---- ratios -----------------------------------------------------------------------------------


def mean(clip: tuple[int, int], offset: Noisy, count: Noisy, *, rounded: bool = False) -> Estimate:
    """Return the mean of clipped values: the middle of the clip, and how far they are above it.

    With S the sum of the distances from the middle and n the count, it is the middle plus S / n:
    distances are at most half of the clip's width, so noise that hides one is less than noise that
    hides a value. The standard error is that of the ratio to first order.

    The interval has the distances d = S / n that a test of level 10% does not reject. It looks at
    the noisy S - d n, which is X - d Y at the true d, X and Y the noise of both. Two tests are
    proven, and at each d the one with the smaller margin may be taken:

    - by Bonferroni, |X - d Y| <= x + |d| y, each of x and y holding 95%;
    - a sum of discrete Gaussians is stochastically below a normal one plus a unit of each, see
      `_normal_margin`, and rounding moves a normal one by half a unit: |X - d Y| <= 1.645
      sqrt(sx^2 + d^2 sy^2) + u + |d|, u the unit of S. This is Fieller's interval with a
      correction for whole numbers.

    What passes both is their intersection, cut to the clip, in which every mean lies. An offset is
    a sum of d x - m, m / d the middle of the clip.

    Source: Fieller 1954, "Some problems in interval estimation".
    """
    low, high = clip
    (s, s_error, s_half), (counts, n2) = _distances(clip, offset, 0.95, rounded), count
    n_error, n_half = standard_error(n2, rounded=rounded), half_width(n2, 0.95, rounded=rounded)
    n, about = counts.astype(float), float(middle(clip))
    bottom = np.maximum(n, 1.0)
    value = np.clip(about + s / bottom, low, high)
    error = np.sqrt(s_error**2 + ((value - about) * n_error) ** 2) / bottom
    a, b = s - s_half, s + s_half
    c, d = n - n_half, n + n_half
    some = c > 0  # otherwise the count may be 0, and the mean anything
    c = np.where(some, c, 1.0)
    first = np.where(a >= 0, a / np.maximum(d, 1.0), a / c)
    last = np.where(b >= 0, b / c, b / np.maximum(d, 1.0))
    if rounded or min(offset[1], n2) >= LIMITS.smooth_variance:
        unit = 1 / middle(clip).denominator
        variances = float(offset[1]) * unit**2, float(n2)
        first = np.maximum(first, _fieller(s, n, variances, unit))
        last = np.minimum(last, -_fieller(-s, n, variances, unit))
    # Rounding cannot push the ends past the value, which passes every test.
    lower = np.minimum(np.clip(about + first, low, high), value)
    upper = np.maximum(np.clip(about + last, low, high), value)
    return Estimate(
        value,
        np.minimum(error, float(high - low)),
        np.where(some, lower, float(low)),
        np.where(some, upper, float(high)),
    )


def _fieller(s: Floats, n: Floats, variances: tuple[float, float], unit: float) -> Floats:
    """Return the least d with s - d n <= z sqrt(A + d^2 B) + unit + |d|; -inf if n is noise [IN-2].

    The right side less the left one rises with d if n > z sqrt(B) + 1. Its root is where
    z^2 (A + d^2 B) = (r - d m)^2, r = s - unit, and m = n + 1 or n - 1 as the root is positive.
    """
    above, below = variances
    z2 = _ONE_SIDED**2
    r = s - unit
    m = np.where(r * r * np.sign(r) >= z2 * above, n + 1, n - 1)
    rest = m * m - z2 * below
    good = (m > 1) & (rest > 0) & (n - 1 > math.sqrt(z2 * below))
    rest = np.where(good, rest, 1.0)
    spread = np.sqrt(z2 * np.maximum(above * rest + below * r * r, 0.0))
    return np.where(good, (r * m - spread) / rest, -np.inf)


def _distances(
    clip: tuple[int, int], offset: Noisy, coverage: float, rounded: bool
) -> tuple[Floats, float, float]:
    """Return the sums of distances from the middle of the clip,
    their standard error and half width.
    """
    (offsets, sigma_squared), part = offset, middle(clip).denominator
    half = half_width(sigma_squared, coverage, rounded=rounded)
    return offsets / part, standard_error(sigma_squared, rounded=rounded) / part, half / part


def variance(
    clip: tuple[int, int], offset: Noisy, square: Noisy, count: Noisy, *, rounded: bool = False
) -> Estimate:
    """Return the variance of clipped values about their mean, divided by their number.

    With S the sum of the distances from the middle of the clip, Q that of the squares of those from
    c, the middle or the whole number 1/2 below it, n the count, t = 1/n, and r = c less the middle,

        v = Q t - (S t - r)^2.

    The interval is by Bonferroni: each of S, Q and n is within its own 1 - 0.1/3 with probability
    at least that, so all three do with 90%, and v between its extremes over that box, cut to what a
    variance of values in [low, high] can be, 0 to (high - low)^2 / 4. v grows with Q and is concave
    in S and in t, each by itself, so the least is at a corner. The most over S leaves

        Q t - max(0, S_low t - r, r - S_high t)^2,

    which is concave in t: it is largest at an end, at a kink r / S, or where a piece is flat,
    t = (Q + 2 S r) / (2 S^2). The standard error is to first order.
    """
    low, high = clip
    rest, most = float(center(clip) - middle(clip)), (high - low) ** 2 / 4
    share = 1 - 0.1 / 3
    (s, s_error, s_half), (squares, q2), (counts, n2) = (
        _distances(clip, offset, share, rounded),
        square,
        count,
    )
    q, n = squares.astype(float), counts.astype(float)
    q_half, n_half = (half_width(x, share, rounded=rounded) for x in (q2, n2))
    q_error, n_error = (standard_error(x, rounded=rounded) for x in (q2, n2))
    t = 1 / np.maximum(n, 1.0)
    off = s * t - rest
    value = np.clip(q * t - off**2, 0.0, most)
    slope_n = (2 * off * s - q) * t * t
    parts = (q_error * t, 2 * off * t * s_error, slope_n * n_error)
    error = np.minimum(np.sqrt(sum(part**2 for part in parts)), most)
    some = n - n_half > 0  # otherwise the count may be 0, and the variance anything
    first = 1 / np.maximum(n + n_half, 1.0)
    last = 1 / np.where(some, n - n_half, 1.0)
    ends = (s - s_half, s + s_half)
    lower = np.min(
        [(q - q_half) * x - (end * x - rest) ** 2 for x in (first, last) for end in ends], axis=0
    )
    above = np.maximum(q + q_half, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        flat = [(above + 2 * end * rest) / (2 * end**2) for end in ends]
        tried = [first, last, *(rest / end for end in ends), *flat]
    inside = [np.clip(np.nan_to_num(x), first, last) for x in tried]
    least_off = [np.maximum.reduce([0 * x, ends[0] * x - rest, rest - ends[1] * x]) for x in inside]
    upper = np.max([above * x - away**2 for x, away in zip(inside, least_off, strict=True)], axis=0)
    # Two numbers of about that size are subtracted, whose last digits are lost.
    slack = 1e-14 * (high - low) ** 2
    return Estimate(
        value,
        error,
        np.where(some, np.clip(lower - slack, 0.0, most), 0.0),
        np.where(some, np.clip(upper + slack, 0.0, most), most),
    )


def standard_deviation(
    clip: tuple[int, int], offset: Noisy, square: Noisy, count: Noisy, *, rounded: bool = False
) -> Estimate:
    """Return the standard deviation of clipped values: the root of their `variance`, ends included.

    The standard error is to first order, and at most the root of the variance's.
    """
    squared = variance(clip, offset, square, count, rounded=rounded)
    value, lower, upper = (np.sqrt(x) for x in (squared.value, squared.lower, squared.upper))
    with np.errstate(over="ignore"):  # of a value of 0 there is none
        first_order = squared.standard_error / np.maximum(2 * value, 1e-300)
    most = (clip[1] - clip[0]) / 2
    error = np.minimum(np.minimum(first_order, np.sqrt(squared.standard_error)), most)
    return Estimate(value, error, lower, np.minimum(upper, most))


def ratio(
    clip: tuple[int, int],
    clip_over: tuple[int, int],
    above: Noisy,
    over: Noisy,
    *,
    rounded: bool = False,
) -> Estimate:
    """Return the ratio of two sums of clipped values.

    Each sum is within its own 95% with probability at least that, so both do with 90%, and the
    ratio between its extremes over that box. The sum below is a whole number above 0 where there is
    a ratio. If each of its values is above 0, the ratio is between the least and the largest
    ratio of one row. The standard error is to first order. A clip is of what one row adds: with 0
    where a row without a number adds nothing to one of the sums.
    """
    (sums, above_variance), (sums_over, over_variance) = above, over
    s, o = sums.astype(float), sums_over.astype(float)
    noises = above_variance, over_variance
    s_half, o_half = (half_width(x, 0.95, rounded=rounded) for x in noises)
    s_error, o_error = (standard_error(x, rounded=rounded) for x in noises)
    bottom = np.maximum(o, 1.0)
    first, last = np.maximum(o - o_half, 1.0), np.maximum(o + o_half, 1.0)
    a, b = s - s_half, s + s_half
    least, most = ratio_range(clip, clip_over)
    value = np.clip(s / bottom, least, most)
    error = np.hypot(s_error, value * o_error) / bottom
    lower = np.clip(np.where(a >= 0, a / last, a / first), least, most)
    upper = np.clip(np.where(b >= 0, b / first, b / last), least, most)
    error = np.minimum(error, most - least)
    return Estimate(value, error, np.minimum(lower, value), np.maximum(upper, value))


def ratio_range(clip: tuple[int, int], clip_over: tuple[int, int]) -> tuple[float, float]:
    """Return the range of a ratio of sums of clipped values."""
    (low, high), (low_over, high_over) = clip, clip_over
    if low_over == 0:
        return (0.0 if low >= 0 else -math.inf, 0.0 if high <= 0 else math.inf)
    return low / (high_over if low >= 0 else low_over), high / (
        low_over if high >= 0 else high_over
    )


# ---- quantiles --------------------------------------------------------------------------------


def quantiles(
    bins: tuple[int, ...], levels: tuple[Fraction, ...], count: Noisy, *, rounded: bool = False
) -> Estimate:
    """Quantiles from noisy counts of bins: edges between which each of them lies [IN-3].

    The q-quantile of n > 0 values is the least value that at least q n of them do not exceed. It
    is in the first bin with D_j >= 0, where D_j = C_j - q C_B and C_j counts the values of the
    bins up to j. The noise of D_j is

        W_j = (1 - q) (X_1 + ... + X_j) - q (X_j+1 + ... + X_B),   variance factor
        v_j = sigma^2 ((1 - q)^2 j + q^2 (B - j)).

    With a margin w_j that W_j exceeds on either side with probability at most 5% (`_normal_margin`)
    a bin j is rejected if the noisy D_j < -w_j or the noisy D_j-1 >= w_j-1. The interval goes from
    the first bin that is not rejected to the last.

    Args:
        bins: n rising edges, scaled whole numbers.
        levels: which quantiles, in (0, 1).
        count: noisy counts, flat, the n - 1 bins of a group together.

    Returns:
        For each group, a row for each level: between the edges ``lower`` and ``upper`` of values
        moved into the grid (a value outside is in the first or last bin); ``value`` by a search
        for where the noisy D_j changes sign, and by linear interpolation in that bin, on the grid
        of whole scaled numbers; ``standard_error`` as a normal distribution's of an interval so
        wide.
    """
    values, sigma_squared = count
    number = len(bins) - 1
    edges = np.array(bins, dtype=np.int64)
    reached = np.cumsum(values.reshape(-1, number), axis=1, dtype=np.int64)
    located = [
        _locate_quantile(reached, float(level), sigma_squared, edges, rounded) for level in levels
    ]
    value, lower, upper = (
        np.stack(column, axis=1).reshape(-1) for column in zip(*located, strict=True)
    )
    error = (upper - lower).astype(float) / (2 * LIMITS.normal_quantile)
    return Estimate(value, error, lower, upper)


def quantile_draws(points: Sequence[int], values: Integers) -> Estimate:
    """Quantiles that were drawn: nothing of the data around them is known, but for the clip.

    So the interval is the clip. How far the rank may be off is known before any data
    (`neyman.publishing.planning.accuracy`). ``points`` has one more than were drawn from.
    """
    low, high = np.full(len(values), points[0]), np.full(len(values), points[-1] - 1)
    error = (high - low).astype(float) / (2 * LIMITS.normal_quantile)
    return Estimate(values, error, low, high)


def rank_error(query: Query, sigma_squared: Fraction) -> tuple[float, float]:
    """How many ranks a quantile that is drawn may be off: standard error, and 90% margin.

    The standard error is sqrt(2) over the rate, that of a Laplace distribution, which the distance
    has where the values near the quantile are spread evenly. The margin holds for any rows [IS-3]:
    one point has distance 0, so that P(d >= a) <= points exp(-rate a).
    """
    rank = math.sqrt(sigma_squared) * float(rank_unit(query))
    points = len(query.bins or range(2)) - 1
    return math.sqrt(2) * rank, rank * math.log(10 * points) * (1 + 1e-12)


def _rounded_margin(factor: Floats, weight: Floats, sigma_squared: Fraction) -> Floats:
    """Return the margin of `_normal_margin` for rounded Gaussian noise [IN-4].

    W's squared coefficients sum to ``factor``, and their absolute values to ``weight``.
    """
    if sigma_squared < LIMITS.smooth_variance:
        return _ONE_SIDED * np.sqrt(float(sigma_squared) * factor) + weight / 2
    return _ONE_SIDED * np.sqrt((float(sigma_squared) + 1 / (2 * math.pi)) * factor) + 1


def _normal_margin(variance: Floats, sigma_squared: Fraction) -> Floats:
    """Return a margin that W = (1 - q) A - q B exceeds with probability at most 5%, on either side
    [IN-1].

    A and B are sums of whole noise of sigma squared each, and ``variance`` is W's factor. W is
    sub-Gaussian: P(W >= w) <= exp(-w^2 / (2 v)) (Canonne, Kamath and Steinke 2020). From sigma = 2
    on it is also stochastically below a normal distribution of the variance v, plus 1.
    """
    margin = np.sqrt(2 * math.log(20) * variance)
    if sigma_squared < LIMITS.smooth_variance:
        return margin
    return np.minimum(margin, _ONE_SIDED * np.sqrt(variance) + 1)


def _locate_quantile(
    reached: Integers, q: float, sigma_squared: Fraction, edges: Integers, rounded: bool
) -> tuple[Integers, Integers, Integers]:
    """Value, lower and upper edge of one quantile for each row of cumulated counts."""
    number = reached.shape[1]
    j = np.arange(1, number + 1, dtype=np.int64)
    above = reached - q * reached[:, -1:]
    factor = (1 - q) ** 2 * j + q * q * (number - j)
    if rounded:
        margin = _rounded_margin(factor, (1 - q) * j + q * (number - j), sigma_squared)
    else:
        margin = _normal_margin(float(sigma_squared) * factor, sigma_squared)
    reachable = above >= -margin
    reachable[:, -1] = True  # the last bin reaches the quantile, whatever the noise
    reachable[:, 1:] &= above[:, :-1] < margin[:-1]
    first = np.argmax(reachable, axis=1)
    last = number - 1 - np.argmax(reachable[:, ::-1], axis=1)
    best = _search(above >= 0)
    row = np.arange(len(reached))
    start = np.where(best > 0, above[row, best - 1], -q * reached[:, -1])
    rise = above[row, best] - start
    part = np.clip(-start / np.where(rise > 0, rise, 1.0), 0.0, 1.0)
    low, high = edges[best], edges[best + 1]
    value = low + np.floor(part * (high - 1 - low)).astype(np.int64)
    return value, edges[first], edges[last + 1]


def _search(passed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """By halving, where each row turns true; the last place is taken to be."""
    row = np.arange(len(passed))
    return _bisect(0 * row, 0 * row + passed.shape[1] - 1, lambda at: passed[row, at])
