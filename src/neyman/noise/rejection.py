"""Draw exact discrete Laplace and Gaussian noise of any scale, by rejection on arrays.

All arithmetic is on integers. Every random decision is "is a uniform real U below the rational p?",
from the leading 64 bits of U. Arrays of decisions (each a "lane") use 32-bit fixed-point bounds
low <= 2^32 p <= high. If these do not decide a lane, rational arithmetic does, with further bits of
U while both answers are possible. So the bounds affect only the time, never the distribution of the
result.

Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
algorithms 1 to 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits


@dataclass(frozen=True)
class Limits:
    """Hold the largest scales of noise by rejection, and the number of lanes per batch."""

    # Up to these scales, |noise| reaches 2^63 with probability below e^-1022. The draw then raises.
    scale: int = 2**53
    sigma_squared: int = (2**53 - 1) ** 2


LIMITS = Limits()

FIXED_POINT_ONE = 1 << 32
NO_BOUND = 1 << 62  # a trivial upper bound

Lanes = NDArray[np.int64]
Exact = Callable[[int], Fraction]  # the exact number of a lane


def discrete_laplace(scale: Fraction, out: Lanes, bits: Bits) -> Lanes:
    """Write draws, as `neyman.noise.discrete_laplace` does, to ``out``, and return it.

    Args:
        scale: a rational in (0, 2^53].
        out: a one-dimensional int64 array.

    With m = max(1, floor(scale)), the magnitude is u + m v. Here u is uniform on 0, ..., m - 1
    and accepted with probability exp(-u / scale), and v is geometric with ratio exp(-m / scale).
    The sign is a fair coin, and "minus zero" is rejected.
    """

    def draw(n: int) -> Lanes:
        y = _one_sided(scale, n, bits)
        minus = bits.words(y.size) >> np.uint64(63) == 1
        return np.where(minus, -y, y)[~(minus & (y == 0))]

    return _collect(draw, out)


def discrete_gaussian(sigma_squared: Fraction, out: Lanes, bits: Bits) -> Lanes:
    """Write draws, as `neyman.noise.discrete_gaussian` does, to ``out``, and return it.

    Args:
        sigma_squared: sigma^2, a rational in (0, (2^53 - 1)^2]. It is not quite the variance.
        out: a one-dimensional int64 array.

    A discrete Laplace y of scale t = floor(sigma) + 1 is accepted with probability
    exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2)).
    """
    t = math.isqrt(math.floor(sigma_squared)) + 1

    def draw(n: int) -> Lanes:
        y = discrete_laplace(Fraction(t), np.empty(n, np.int64), bits)
        low, high = _gaussian_exponent(np.abs(y), sigma_squared, t)

        def exact(i: int) -> Fraction:
            return (abs(int(y[i])) - sigma_squared / t) ** 2 / (2 * sigma_squared)

        return y[bernoulli_exp(low, high, exact, bits)]

    return _collect(draw, out)


def one_sided(scale: Fraction, out: Lanes, bits: Bits) -> None:
    """Write geometric draws to ``out``: P(X = x) = (1 - r) r^x, r = exp(-1 / scale).

    Args:
        scale: a rational in (0, 2^53].
        out: a one-dimensional int64 array.
    """
    _collect(lambda n: _one_sided(scale, n, bits), out)


def uniform(m: int, size: int, bits: Bits) -> Lanes:
    """Draw independent uniform integers on 0, ..., m - 1 for 1 <= m <= 2^63, as an int64 array."""
    length = (m - 1).bit_length()
    if length == 0:
        return np.zeros(size, np.int64)

    def draw(n: int) -> Lanes:
        leading = (bits.words(n) >> np.uint64(64 - length)).astype(np.int64)
        return leading[leading < m]

    return _collect(draw, np.empty(size, np.int64))


def bernoulli_exp(low: Lanes, high: Lanes, exact: Exact, bits: Bits) -> NDArray[np.bool_]:
    """Draw an array of independent truth values, True with probability exp(-gamma) each.

    Args:
        low: lower bounds on 2^32 gamma for each rational gamma, at least 0.
        high: upper bounds on 2^32 gamma.
        exact: a function from an index to its exact gamma.

    With n = floor(low / 2^32) <= gamma, exp(-gamma) = exp(-1)^n exp(-(gamma - n)). One geometric
    draw replaces the first n trials.
    """
    integers = low // FIXED_POINT_ONE
    accepted = np.ones(low.size, np.bool_)
    several = np.flatnonzero(integers)
    accepted[several] = _geometric(Fraction(1), several.size, bits) >= integers[several]

    low, high = low - integers * FIXED_POINT_ONE, high - integers * FIXED_POINT_ONE
    # The rest may exceed 1 if the bounds are wide.
    for i in np.flatnonzero(accepted & (high > FIXED_POINT_ONE)):
        accepted[i] = _bernoulli_exp_alone(exact(int(i)) - int(integers[i]), bits)
    lanes = np.flatnonzero(accepted & (high <= FIXED_POINT_ONE))
    accepted[lanes] = _alternating_series(
        low[lanes], high[lanes], lambda i: exact(int(lanes[i])) - int(integers[lanes[i]]), bits
    )
    return accepted


def below(word: int, p: Fraction, bits: Bits) -> bool:
    """Return True if a uniform real with the first 64 bits ``word`` is below the rational ``p``."""
    value, length = word, 64
    while True:
        scaled = p.numerator << length
        if (value + 1) * p.denominator <= scaled:
            return True
        if value * p.denominator >= scaled:
            return False
        value, length = value << 64 | int(bits.words(1)[0]), length + 64


def _one_sided(scale: Fraction, n: int, bits: Bits) -> Lanes:
    """Return at most n independent draws x >= 0, with P(x) proportional to exp(-x / scale)."""
    block = max(1, math.floor(scale))
    u = uniform(block, n, bits)
    if block > 1:
        low, high = _quotient(u, scale)
        u = u[_alternating_series(low, high, lambda i: int(u[i]) / scale, bits)]
    v = _geometric(block / scale, u.size, bits)
    if v.size and int(v.max()) >= (2**63 - 1) // block:
        raise OverflowError(f"a draw of scale = {scale} left the range of 64-bit integers")
    return u + block * v


def _alternating_series(low: Lanes, high: Lanes, exact: Exact, bits: Bits) -> NDArray[np.bool_]:
    """Draw as `bernoulli_exp`, for 0 <= gamma <= 1, by von Neumann's alternating series.

    Trials k = 1, 2, ... succeed with probability gamma / k. The first failure is at k with
    probability gamma^(k-1) / (k-1)! - gamma^k / k!. The sum over odd k is exp(-gamma).
    """
    accepted = np.zeros(low.size, np.bool_)
    lanes = np.arange(low.size)
    for k in count(1):
        if not lanes.size:
            break
        words = bits.words(lanes.size)
        leading = (words >> np.uint64(32)).astype(np.int64)
        passed = (leading + 1) * k <= low
        for i in np.flatnonzero(~passed & (leading * k < high)):
            passed[i] = below(int(words[i]), exact(int(lanes[i])) / k, bits)
        if k % 2:
            accepted[lanes[~passed]] = True
        lanes, low, high = lanes[passed], low[passed], high[passed]
    return accepted


def _bernoulli_exp_alone(gamma: Fraction, bits: Bits) -> bool:
    """Return True with probability exp(-gamma), for one rational gamma >= 0."""
    while gamma > 1:
        if not _bernoulli_exp_alone(Fraction(1), bits):
            return False
        gamma -= 1
    k = 1
    while below(int(bits.words(1)[0]), gamma / k, bits):
        k += 1
    return k % 2 == 1


def _geometric(gamma: Fraction, size: int, bits: Bits) -> Lanes:
    """Draw ``size`` numbers of successes, each by chance exp(-gamma), before the first failure."""
    trial = _alternating_series if gamma <= 1 else bernoulli_exp
    # If gamma is out of range, the bounds stay 2 apart, so bernoulli_exp uses the exact gamma.
    low = min(math.floor(gamma * FIXED_POINT_ONE), NO_BOUND - 2 * FIXED_POINT_ONE)
    high = min(math.ceil(gamma * FIXED_POINT_ONE), NO_BOUND)
    successes = np.zeros(size, np.int64)
    lanes = np.arange(size)
    while lanes.size:
        n = lanes.size
        lanes = lanes[trial(np.full(n, low), np.full(n, high), lambda i: gamma, bits)]
        successes[lanes] += 1
    return successes


def _quotient(u: Lanes, scale: Fraction) -> tuple[Lanes, Lanes]:
    """Bound 2^32 u / scale from below and above, for 0 <= u <= 16 scale and 1 <= scale <= 2^53.

    They differ by at most about 2^6 max(1, u / scale).
    """
    cut = max(0, math.floor(scale).bit_length() - 28)
    short = u >> cut  # below 2^33, so short * factor is below 2^62
    factor = math.floor((1 << cut + 56) / scale)
    low = (short * factor) >> 24
    high = (((short + 1 if cut else short) * (factor + 1)) >> 24) + 1
    return low, high


def _gaussian_exponent(y: Lanes, sigma_squared: Fraction, t: int) -> tuple[Lanes, Lanes]:
    """Bound 2^32 (y - sigma^2 / t)^2 / (2 sigma^2) from below and above, for y >= 0.

    ``t`` is the scale of the Laplace draw. For y above 16 t, the lower bound is that of 16 t, and
    the upper bound is trivial, so that no product overflows.
    """
    near = np.minimum(y, 16 * t)
    low, high = _quotient(near, Fraction(t))
    center = math.floor(FIXED_POINT_ONE * sigma_squared / t**2)
    low, high = (low - center - 1) >> 6, ((high - center) >> 6) + 1
    least = np.maximum(np.maximum(low, -high), 0)
    most = np.maximum(-low, high)

    c = Fraction(t**2) / (2 * sigma_squared)
    doublings = max(0, math.floor(c).bit_length() - 1)
    factor = math.floor(c * Fraction(2) ** (24 - doublings))
    shift = min(doublings, 20)
    low = (((least * least) >> 24) * factor >> 20) << shift
    if doublings > shift:
        return low, np.full(y.size, NO_BOUND)
    high = (((((most * most) >> 24) + 1) * (factor + 1) >> 20) + 1) << shift
    return low, np.where(y > near, NO_BOUND, high)


def _collect(draw: Callable[[int], Lanes], out: Lanes) -> Lanes:
    """Fill and return ``out``. Each call of ``draw(n)`` returns at most n of its draws."""
    have = 0
    while have < out.size:
        more = draw(min(2 * (out.size - have) + 8, 1 << 17))[: out.size - have]  # lanes per batch
        out[have : have + more.size] = more
        have += more.size
    return out
