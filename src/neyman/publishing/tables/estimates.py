"""Compute values, standard errors, and 90% intervals from noisy integers, for every measure.

For each row of a table separately, the interval contains the data's value with probability at least
90%. The data's value is computed after Neyman clips values, and drops and bounds rows. There is no
guarantee for a mean, variance, or quantile of no rows. The intervals cover noise only. The
arithmetic uses doubles. Their rounding is far below the noise, and privacy does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import erfc, log_ndtr, ndtri  # pyright: ignore[reportMissingTypeStubs]

from neyman.numerics.arrays import Array, Bools, Floats, Integers
from neyman.publishing.plan.measures import (
    Count,
    Distinct,
    Histogram,
    Maximum,
    Mean,
    Median,
    Minimum,
    Quantiles,
    Ratio,
    StandardDeviation,
    Sum,
    UnitRows,
    Units,
    Variance,
    center,
    middle,
    square_unit,
)
from neyman.publishing.plan.query import Query, rank_margin, rank_unit
from neyman.publishing.plan.query_part import QueryPart
from neyman.publishing.tables.key_selection import threshold

Noisy = tuple[Integers, Fraction]
"""Noisy integers, and the sigma squared of their noise (0 for declared values)."""


@dataclass(frozen=True)
class Limits:
    """Hold the noise scales from which normal formulas replace sums over the integers."""

    wide_sigma: float = 50.0  # sigma from which standard errors and tails are the normal ones
    summed_size: float = 1e6  # sigma from which no margin is summed term by term
    large_sigma: int = 1000  # sigma from which sum and integral agree within .01 in k
    normal_quantile: float = 1.6448536269514722  # the normal distribution's 95th percentile
    # The sigma squared from which `_normal_margin` bounds sums of integer noise by a normal one.
    smooth_variance: int = 4


LIMITS = Limits()
# The quantile with a margin for rounding and for relative parts of 1e-17.
_ONE_SIDED = LIMITS.normal_quantile * (1 + 1e-9)


@dataclass(frozen=True, eq=False)
class CellEstimates:
    """Represent estimates with their errors. Each array has one entry per row of a table.

    Args:
        value, lower, upper: estimates and the ends of 90% intervals, arrays of one type, int64 or
            double.
        decimals: all four arrays are in units of 10^-decimals. A variance has twice the decimals of
            its column.
    """

    value: Array
    standard_error: Floats
    lower: Array
    upper: Array
    decimals: int = 0


def estimate(
    query: Query, decimals: int, noisy: Mapping[str, Noisy], *, rounded: bool = False
) -> CellEstimates:
    """Return the estimate and its errors for each row of a query's table.

    Args:
        decimals: the decimals of the query's column, minus the decimals of ``over``. 0 without a
            column.
        noisy: the noisy integers by measure, such as "count" or "offset". All measures list the
            same cells, flat, in declared order. For quantiles they list entire groups of bins.
        rounded: True for rounded Gaussian noise, False for discrete Gaussian noise. All functions
            of this module use the same flag.

    Returns:
        One row per cell. For quantiles, one row per quantile for each group of bins.
    """
    of_keys = list(noisy) == ["keys"]
    result = (_keys if of_keys else ESTIMATES[query.kind])(query, noisy, rounded)
    return replace(result, decimals=0 if of_keys else decimals * query.kind.unit_power)


def _keys(query: Query, noisy: Mapping[str, Noisy], rounded: bool) -> CellEstimates:
    """Return the numbers of units of discovered keys."""
    values, sigma_squared = noisy["keys"]
    least = threshold(sigma_squared, query.delta or Fraction(0), rounded=rounded)
    return shown(values, sigma_squared, least, rounded=rounded)


def _number(query: Query, noisy: Mapping[str, Noisy], rounded: bool) -> CellEstimates:
    del query
    ((values, sigma_squared),) = noisy.values()
    return with_margin(values, sigma_squared, rounded=rounded)


def _mean(query: Query, noisy: Mapping[str, Noisy], rounded: bool) -> CellEstimates:
    return mean(query.clip or (0, 1), noisy["offset"], noisy["count"], rounded=rounded)


def _variance(query: Query, noisy: Mapping[str, Noisy], rounded: bool) -> CellEstimates:
    kind = variance if query.kind is Variance else standard_deviation
    parts = noisy["offset"], noisy["square"], noisy["count"]
    return kind(query.clip or (0, 1), *parts, rounded=rounded)


def _ratio(query: Query, noisy: Mapping[str, Noisy], rounded: bool) -> CellEstimates:
    ranges = query.row_range("sum"), query.row_range("over")
    return ratio(*ranges, noisy["sum"], noisy["over"], rounded=rounded)


def _quantiles(query: Query, noisy: Mapping[str, Noisy], rounded: bool) -> CellEstimates:
    bins = query.bins or range(2)
    if query.inverse_sensitivity:
        return quantile_draws(query, bins, noisy["rank"][0])
    return quantiles(tuple(bins), query.quantiles, noisy["count"], rounded=rounded)


ESTIMATES: Mapping[type[QueryPart], Callable[[Query, Mapping[str, Noisy], bool], CellEstimates]] = {
    **dict.fromkeys((Count, Units, Distinct, Sum, Histogram, UnitRows), _number),
    **dict.fromkeys((Quantiles, Median, Minimum, Maximum), _quantiles),
    **dict.fromkeys((Variance, StandardDeviation), _variance),
    Mean: _mean,
    Ratio: _ratio,
}
"""How each measure estimates its values from its noisy tables."""


def value_range(query: Query) -> tuple[float, float]:
    """Return the possible range of a quantile, mean, variance, or ratio, in scaled units."""
    low, high = query.clip or (0, 1)
    if query.clip_over:
        return ratio_range(query.row_range("sum"), query.row_range("over"))
    if query.kind is StandardDeviation:
        return 0, (high - low) / 2
    if query.kind is Variance:
        return 0, (high - low) ** 2 / 4
    if query.bins:
        return query.bins[0], query.bins[-1] - query.inverse_sensitivity
    return low, high


def rows_of(query: Query, cells: int) -> int:
    """Return the number of rows of a query's table, given its number of cells."""
    if query.inverse_sensitivity:
        return cells // len(query.draws) * len(query.quantiles)
    if query.ranked and query.bins:
        return cells // (len(query.bins) - 1) * len(query.quantiles)
    return cells


# ---- one noisy number -------------------------------------------------------------------------


@lru_cache(maxsize=256)
def standard_error(sigma_squared: Fraction, *, rounded: bool = False) -> float:
    """Return the standard deviation of the discrete Gaussian N_Z(0, sigma^2).

    If ``rounded``, return that of round(N(0, sigma^2)) instead. The standard deviation of N_Z is
    slightly below sigma. By Poisson summation, the relative difference is about 8 pi^2 sigma^2
    e^(-2 pi^2 sigma^2). From sigma = 2 on, this is too small for a double. The variance of rounded
    noise differs just as little from sigma^2 + 1/12. Up to sigma = 50, it is computed as E X^2, the
    sum of (2 k + 1) P(|X| > k).
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
    """Return the smallest k with P(|X| <= k) >= coverage for the noise X.

    X is N_Z(0, sigma^2), the discrete Gaussian, or round(N(0, sigma^2)) if ``rounded``. The mass
    function is summed. Above sigma = 10^6, the midpoint rule is used: P(|X| <= k) is at least the
    normal probability of [-k - 1/2, k + 1/2]. For rounded noise, the two are equal.
    """
    if sigma_squared == 0:
        return 0
    sigma = math.sqrt(sigma_squared)
    chance = 1 - coverage  # exact from 1/2 on
    # Near 1/2, a quantile errs by units of 1.
    reach = sigma * (-float(ndtri(chance / 2)) * (1 + 1e-9) + 1e-15)
    if rounded or sigma > LIMITS.summed_size:
        return max(0, math.ceil(reach - 0.5))
    # The midpoint rule and the rounding of sums change the probability by less than 1 / (20
    # sigma^2) and 1e-9. They move k + 1/2 by less than .01. If the end is farther from an integer,
    # the integral is enough.
    end = reach - 0.5
    if sigma > LIMITS.large_sigma and coverage <= 0.99 and abs(end - round(end)) > 0.01:
        return math.ceil(end)
    # Sums from the far end have the digits of small tails. The mass beyond 9 sigma is below 1e-18.
    k = np.arange(0, int(9 * sigma) + 40, dtype=np.float64)
    weights = np.exp(-k * k / (2 * float(sigma_squared)))
    weights[1:] *= 2
    beyond = np.append(np.cumsum(weights[:0:-1])[::-1], 0.0)  # from k + 1 on
    total = float(beyond[0]) + 1
    # Each addition has one rounding. One part in 10^12 covers those of the weights.
    margin = 1e-12 + len(k) * 2.0**-52
    allowed = (chance * (1 - margin) - 1e-18) * total
    return int(np.argmax(beyond * (1 + margin) <= allowed))


def with_margin(
    values: Integers, sigma_squared: Fraction, *, rounded: bool = False
) -> CellEstimates:
    """Return the estimates of counts or sums: the noisy numbers with their 90% margin."""
    half = half_width(sigma_squared, rounded=rounded)
    error = np.full(len(values), standard_error(sigma_squared, rounded=rounded))
    return CellEstimates(values, error, values - half, values + half)


def shown(
    values: Integers, sigma_squared: Fraction, least: int, *, rounded: bool = False
) -> CellEstimates:
    """Return estimates of numbers of units that are published because they reached the threshold.

    The interval accounts for this selection. Let c >= 1 be the true number, X its noise, and t the
    threshold ``least``. The published number is c + X, given that c + X >= t. For a published y,
    the interval contains each c that meets both conditions:

        P(c + X >= y) / P(c + X >= t) > 0.05    and    P(t <= c + X <= y) / P(c + X >= t) > 0.05.

    The true c fails each condition with probability at most 5%. The likelihood ratio is monotone,
    so the first ratio grows with c and the second falls. Bisection finds both ends.
    """
    distinct, back = np.unique(values, return_inverse=True)
    reach = 12 * math.ceil(math.sqrt(sigma_squared)) + 12
    one = np.ones_like(distinct)

    def log_tail(k: Integers) -> Floats:
        return _log_tail(k, sigma_squared, rounded)

    def high_enough(c: Integers) -> Bools:
        return log_tail(distinct - c) > log_tail(least - c) + math.log(0.05 * (1 + 1e-9))

    def low_enough(c: Integers) -> Bools:
        return log_tail(distinct + 1 - c) < log_tail(least - c) + math.log(0.95 * (1 - 1e-9))

    lower = _bisect(one, np.maximum(distinct, 1), high_enough)
    upper = _bisect(one, np.maximum(distinct + reach, 1), lambda c: ~low_enough(c + 1))
    error = np.full(len(values), standard_error(sigma_squared, rounded=rounded))
    return CellEstimates(values, error, lower[back], np.maximum(upper, lower)[back])


def _bisect(low: Integers, high: Integers, passed: Callable[[Integers], Bools]) -> Integers:
    """Return, for each entry, the first integer from ``low`` on that passes, or ``high``.

    If a later integer fails again, another integer that passes after one that fails is possible.
    """
    while np.any(low < high):
        middle = (low + high) // 2
        good = passed(middle)
        low, high = np.where(good | (low == high), low, middle + 1), np.where(good, middle, high)
    return low


def _log_tail(k: Integers, sigma_squared: Fraction, rounded: bool) -> Floats:
    """Return log P(X >= k) for the noise X.

    Up to sigma = 50, the mass function of N_Z is summed. Above, and for rounded noise, the result
    is the normal tail at k - 1/2. This is the midpoint rule, which is exact for rounded noise.
    """
    sigma = math.sqrt(sigma_squared)
    if rounded or sigma > LIMITS.wide_sigma:
        return log_ndtr((0.5 - k) / sigma)
    far = math.ceil(38 * sigma) + 2
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * float(sigma_squared)))
    with np.errstate(divide="ignore"):
        tails = np.log(np.cumsum(weights[::-1])[::-1] / math.fsum(weights))
    return tails[np.clip(k + far, 0, 2 * far)]


# ---- ratios -----------------------------------------------------------------------------------


def mean(
    clip: tuple[int, int], offset: Noisy, count: Noisy, *, rounded: bool = False
) -> CellEstimates:
    """Return the mean of clipped values: the clip's middle plus the mean deviation from it.

    An offset is a sum of b x - a over values x, with a / b the middle of the clip. With S the sum
    of the signed deviations from the middle and n the count, the mean is the middle plus S / n. A
    deviation is at most half of the clip's width in size. So hiding it takes less noise than hiding
    a value. The standard error of the ratio is to first order in the noise.

    The interval contains the mean deviations d that a test of level 10% does not reject. The test
    uses the noisy S - d n, which is X - d Y at the true d. X and Y are the noise of S and n. Two
    tests have a proven level, and at each d the one with the smaller margin may be used:

    - By Bonferroni, |X - d Y| <= x + |d| y. The bounds |X| <= x and |Y| <= y each hold with
      probability at least 95%.
    - A sum of discrete Gaussians is stochastically below a normal variable plus a unit of each, see
      `_normal_margin`. Rounding moves a normal variable by half a unit. So |X - d Y| <= 1.645
      sqrt(sx^2 + d^2 sy^2) + u + |d|, with u the unit of S, and sx and sy the sigmas of X and Y.
      This is Fieller's interval with a correction for integers.

    The interval is the intersection of both tests' intervals, cut to the clip, which contains every
    mean.

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
    # same: 1.0 -> 1.001: Safe: d is a whole number and 1 only for a count of 1 without noise; then
    # the lower end is smaller.
    first = np.where(a >= 0, a / np.maximum(d, 1.0), a / c)
    last = np.where(b >= 0, b / c, b / np.maximum(d, 1.0))
    if rounded or min(offset[1], n2) >= LIMITS.smooth_variance:
        unit = 1 / middle(clip).denominator
        variances = float(offset[1]) * unit**2, float(n2)
        first = np.maximum(first, _fieller(s, n, variances, unit))
        last = np.minimum(last, -_fieller(-s, n, variances, unit))
    # The value passes every test, so rounding must not push the ends past it.
    lower = np.minimum(np.clip(about + first, low, high), value)
    upper = np.maximum(np.clip(about + last, low, high), value)
    return CellEstimates(
        value,
        np.minimum(error, float(high - low)),
        np.where(some, lower, float(low)),
        np.where(some, upper, float(high)),
    )


def _fieller(s: Floats, n: Floats, variances: tuple[float, float], unit: float) -> Floats:
    """Return the lower end of the second test's interval for d = S / n, see `mean` [IN-2].

    This is the least d with s - d n <= z sqrt(A + d^2 B) + unit + |d|, where z = 1.645. A and B are
    the ``variances`` of the noisy sum s and the noisy count n. If n > z sqrt(B) + 1, the right side
    minus the left side rises with d; else the result is -inf. With r = s - unit, its root solves (d
    m - r)^2 = z^2 (A + d^2 B). Here m is n + 1 if the root is positive, else n - 1.
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
    """Return sums of distances from the clip's middle, their standard error, and their margin.

    The noise of a sum is within the margin with probability at least ``coverage``.
    """
    (offsets, sigma_squared), part = offset, middle(clip).denominator
    half = half_width(sigma_squared, coverage, rounded=rounded)
    return offsets / part, standard_error(sigma_squared, rounded=rounded) / part, half / part


def variance(
    clip: tuple[int, int], offset: Noisy, square: Noisy, count: Noisy, *, rounded: bool = False
) -> CellEstimates:
    """Return the variance of clipped values about their mean, divided by their number.

    S is the sum of the distances from the middle of the clip. Q is the sum of the squared distances
    from c, which is the middle or the integer 1/2 below it. It is counted in `square_unit`, to the
    nearest, and the interval is wider by half a unit. With n the count, t = 1/n, and r = c
    minus the middle, the variance is

        v = Q t - (S t - r)^2.

    The interval uses Bonferroni: S, Q, and n are each within an interval with probability at least
    1 - 0.1/3. So all three are with probability at least 90%, and then v is between its extremes
    over this box. The interval is cut to 0 to (high - low)^2 / 4, the possible variances of values
    in [low, high]. v grows with Q. It is concave in S and in t separately, so the least v is at a
    corner. Maximizing over S leaves

        Q t - max(0, S_low t - r, r - S_high t)^2,

    which is concave in t. The maximum is at an end of the range of t, at a kink r / S, or at a
    point of slope 0, t = (Q + 2 S r) / (2 S^2). The standard error is to first order in the noise.
    """
    low, high = clip
    rest, most = float(center(clip) - middle(clip)), (high - low) ** 2 / 4
    share = 1 - 0.1 / 3
    (s, s_error, s_half), (squares, q2), (counts, n2) = (
        _distances(clip, offset, share, rounded),
        square,
        count,
    )
    unit = float(square_unit(clip))
    q, n = squares * unit, counts.astype(float)
    q_half, n_half = (half_width(x, share, rounded=rounded) for x in (q2, n2))
    q_error, n_error = (standard_error(x, rounded=rounded) for x in (q2, n2))
    q_half, q_error = q_half * unit, q_error * unit
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
    # The difference of two numbers of about this size loses its last digits, and the squares are
    # rounded to their unit.
    slack = 1e-14 * (high - low) ** 2 + (unit / 2 if unit > 1 else 0)
    return CellEstimates(
        value,
        error,
        np.where(some, np.clip(lower - slack, 0.0, most), 0.0),
        np.where(some, np.clip(upper + slack, 0.0, most), most),
    )


def standard_deviation(
    clip: tuple[int, int], offset: Noisy, square: Noisy, count: Noisy, *, rounded: bool = False
) -> CellEstimates:
    """Return the standard deviation of clipped values: the root of their `variance` and its ends.

    The standard error is to first order. It is at most the root of the variance's standard error.
    """
    squared = variance(clip, offset, square, count, rounded=rounded)
    value, lower, upper = (np.sqrt(x) for x in (squared.value, squared.lower, squared.upper))
    with np.errstate(over="ignore"):  # a value of 0 has no first order
        first_order = squared.standard_error / np.maximum(2 * value, 1e-300)
    most = (clip[1] - clip[0]) / 2
    error = np.minimum(np.minimum(first_order, np.sqrt(squared.standard_error)), most)
    return CellEstimates(value, error, lower, np.minimum(upper, most))


def ratio(
    clip: tuple[int, int],
    clip_over: tuple[int, int],
    above: Noisy,
    over: Noisy,
    *,
    rounded: bool = False,
) -> CellEstimates:
    """Return the ratio of two sums of clipped values, ``above`` / ``over``.

    Both sums are within their 95% intervals with probability at least 90%. Then the ratio is
    between its extremes over this box. Denominators below 1 are left out: if the ratio exists, its
    denominator is a positive integer. If every value in the denominator is positive, the ratio is
    also between the least and the largest ratio of one row. The standard error is to first order in
    the noise.

    Args:
        clip, clip_over: bounds of what one row adds to each sum. They include 0 if a row without a
            number adds nothing.
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
    return CellEstimates(value, error, np.minimum(lower, value), np.maximum(upper, value))


def ratio_range(clip: tuple[int, int], clip_over: tuple[int, int]) -> tuple[float, float]:
    """Return the least and the largest possible ratio of two clipped sums; may be infinite."""
    (low, high), (low_over, high_over) = clip, clip_over
    if low_over == 0:
        return (0.0 if low >= 0 else -math.inf, 0.0 if high <= 0 else math.inf)
    return low / (high_over if low >= 0 else low_over), high / (
        low_over if high >= 0 else high_over
    )


# ---- quantiles --------------------------------------------------------------------------------


def quantiles(
    bins: tuple[int, ...], levels: tuple[Fraction, ...], count: Noisy, *, rounded: bool = False
) -> CellEstimates:
    """Compute quantiles from noisy counts of bins, with edges around each quantile [IN-3].

    The q-quantile of n > 0 values is the least value with at least q n values at or below it. It is
    in the first bin j with D_j >= 0, where D_j = C_j - q C_B. C_j counts the values in bins 1 to j,
    B is the number of bins, and X_i is the noise of bin i. The noise of D_j is

        W_j = (1 - q) (X_1 + ... + X_j) - q (X_{j+1} + ... + X_B),   variance factor
        v_j = sigma^2 ((1 - q)^2 j + q^2 (B - j)).

    W_j exceeds the margin w_j on either side with probability at most 5% (`_normal_margin`). Bin j
    is rejected if the noisy D_j < -w_j (the quantile is later) or the noisy D_{j-1} >= w_{j-1} (it
    is earlier). The interval reaches from the first bin that is not rejected to the last.

    Args:
        bins: the B + 1 rising edges, scaled integers.
        levels: the levels of the quantiles, in (0, 1).
        count: noisy counts, flat, with the B bins of a group together.

    Returns:
        One row per level for each group. ``lower`` and ``upper`` are edges around the quantile. A
        value outside the grid counts in the first or last bin. For ``value``, a search finds a bin
        where the noisy D_j changes sign, and linear interpolation in this bin gives a scaled
        integer. ``standard_error`` is the standard deviation of a normal distribution whose 90%
        interval is as wide.
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
    return CellEstimates(value, error, lower, upper)


def quantile_draws(query: Query, points: Sequence[int], values: Integers) -> CellEstimates:
    """Return the estimates of quantiles that inverse sensitivity drew.

    The interval lies between the draws at its ends, and holds the estimate [IS-4]. The standard
    error is that of a normal distribution whose 90% interval is as wide. Without such draws, a draw
    shows nothing else about the data near it: the interval is the clip, and the standard error is
    infinite. `rank_margin` is known before any data.

    Args:
        points: the candidates of a draw, then the last one plus 1.
    """
    if not query.interval:
        low, high = np.full(len(values), points[0]), np.full(len(values), points[-1] - 1)
        return CellEstimates(values, np.full(len(values), math.inf), low, high)
    low, value, high = np.moveaxis(values.reshape(-1, len(query.quantiles), 3), 2, 0)
    value = np.sort(value, axis=1).ravel()  # quantiles rise
    lower, upper = np.minimum(low.ravel(), value), np.maximum(high.ravel(), value)
    error = (upper - lower).astype(float) / (2 * LIMITS.normal_quantile)
    return CellEstimates(value, error, lower, upper)


def rank_error(query: Query, sigma_squared: Fraction) -> tuple[float, float]:
    """Return the standard error and the 90% margin, in ranks, of a drawn quantile.

    If the values near the quantile are spread evenly, its distance in ranks is Laplace, with
    standard error sqrt(2) / rate. `rank_margin` holds for any rows.
    """
    rank = math.sqrt(sigma_squared) * float(rank_unit(query))
    return math.sqrt(2) * rank, rank_margin(query, sigma_squared)


def _rounded_margin(factor: Floats, weight: Floats, sigma_squared: Fraction) -> Floats:
    """Return a margin that W exceeds with probability at most 5% on either side [IN-4].

    W is a weighted sum of rounded Gaussian noises. Its squared weights sum to ``factor``, and their
    absolute values sum to ``weight``. Before rounding, each noise has the variance
    ``sigma_squared``.
    """
    if sigma_squared < LIMITS.smooth_variance:
        return _ONE_SIDED * np.sqrt(float(sigma_squared) * factor) + weight / 2
    return _ONE_SIDED * np.sqrt((float(sigma_squared) + 1 / (2 * math.pi)) * factor) + 1


def _normal_margin(variance: Floats, sigma_squared: Fraction) -> Floats:
    """Return a margin that W = (1 - q) A - q B exceeds with probability at most 5% on either side.

    [IN-1] A and B are sums of discrete Gaussian noise with this sigma squared, and 0 < q < 1.
    ``variance`` is the variance factor v of W: P(W >= w) <= exp(-w^2 / (2 v)) (Canonne, Kamath and
    Steinke 2020). From sigma = 2 on, W is also stochastically below a normal variable of variance
    v, plus 1.
    """
    margin = np.sqrt(2 * math.log(20) * variance)
    if sigma_squared < LIMITS.smooth_variance:
        return margin
    return np.minimum(margin, _ONE_SIDED * np.sqrt(variance) + 1)


def _locate_quantile(
    reached: Integers, q: float, sigma_squared: Fraction, edges: Integers, rounded: bool
) -> tuple[Integers, Integers, Integers]:
    """Return the q-quantile, and the edges around it, for each row of noisy cumulative counts."""
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


def _search(passed: Bools) -> Integers:
    """Return, for each row, a position where False turns True. The last position counts as True."""
    row = np.arange(len(passed))
    return _bisect(0 * row, 0 * row + passed.shape[1] - 1, lambda at: passed[row, at])
