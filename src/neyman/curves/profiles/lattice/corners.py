"""Compute the corners of finite curves in logarithms, and the least mu above all of them.

The curve of a sum of losses with finitely many values has a corner for each of its values l_k. The
test that rejects from l_k on has level Q(L >= l_k) and power P(L >= l_k). By [SM-1], the largest
z(power) - z(level) is at a corner, z the normal quantile. A mass below the floats decides as much
as any other: at the last corner of n equal losses, mu >= z(a^n) - z(b^n), with a the largest mass
of P and b that of Q. Therefore, all masses, sums, and quantiles are in logarithms, and each corner
counts [ES-8].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import PLACE_ERROR, FiniteLoss, OffLatticeLoss
from neyman.curves.profiles.profile import Interval
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, common_step, direct_sums, repeated
from neyman.numerics.binomial import slow
from neyman.numerics.operations import CALL, cells, charge
from neyman.numerics.power_sums import simplex
from neyman.numerics.rounding import normal_quantile


@dataclass(frozen=True)
class Limits:
    """Limits on the sums whose corners are listed. Beyond them, nothing is claimed."""

    sums: int = 1 << 18  # most sums
    products: float = 3e7  # most products of a convolution
    block_efolds: float = 300.0  # range of the masses of a block, whose products are floats
    blocks: int = 1 << 12  # most pairs of blocks of a convolution


LIMITS = Limits()
LOG_HALF = math.log(0.5)


class _TooManyError(Exception):
    """Report that a sum has more values than the limits allow."""


@dataclass(frozen=True, slots=True, eq=False)
class _Masses:
    """Hold the logarithms of the masses that P gives to the values of a loss.

    Args:
        place: the values, in units of ``step``; shape (n,).
        log_p: logarithms of the masses; -inf at places of a lattice without a value.
        step: the exact step of a lattice with adjacent places; None for values anywhere.
        error: bound on the error of each entry of ``log_p``.
        apart: bound on the error of each value, beyond the rounding of a product.
    """

    place: Array
    log_p: Array
    step: Fraction | None
    error: float
    apart: float = 0.0


@array_cache
def largest_mu(losses: Composition) -> Interval | None:
    """Bound the largest z(power) - z(level) at the corners of a finite curve [ES-8].

    Return None if a loss has other values than finitely many finite ones, or too many of them.
    """
    if losses.infinite or losses.reverse().infinite:
        return None
    try:
        total = _sum_of(losses)
    except _TooManyError:
        return None
    return None if total is None else _mu(total)


def _sum_of(losses: Composition) -> _Masses | None:
    """Return the sum of all losses: on their common lattice if it is short enough, or as a list."""
    parts: list[tuple[FiniteLoss | OffLatticeLoss, int]] = []
    for loss, count in losses.laws:
        if not isinstance(loss, FiniteLoss | OffLatticeLoss):
            return None
        parts.append((loss, count))
    steps = [loss.lattice for loss, _ in parts if isinstance(loss, FiniteLoss)]
    if len(steps) == len(parts):
        step = common_step(steps)
        if losses.supremum + losses.reverse().supremum <= LIMITS.sums * step:
            powers = (_power(loss, count, step) for loss, count in parts)
            return reduce(_convolved, sorted(powers, key=lambda m: len(m.place)))
    return reduce(_added, [_power(loss, count, None) for loss, count in parts])


def _power(loss: FiniteLoss | OffLatticeLoss, count: int, step: Fraction | None) -> _Masses:
    """Return the sum of ``count`` copies of a loss, on a lattice or as a list.

    A mass is rounded from a logarithm that errs by a few units. The log of a multinomial weight is
    S(n) - sum [S(k_j) + k_j (log(k_j / n) - log p_j)], as in `power_sums`.
    """
    log_p, values = np.array(loss.log_p), len(loss.log_p)
    most = float(np.abs(log_p).max())
    lattice = isinstance(loss, FiniteLoss)
    if lattice and step is not None:
        place = np.array(loss.index) * int(loss.lattice / step)
    else:
        place = np.array(loss.index) * float(loss.lattice) if lattice else np.array(loss.values)
    apart = count * PLACE_ERROR * float(np.abs(place).max()) if step is None else 0.0
    if step is not None and values > 2:
        one = _dense(place, log_p, step, (4 * most + 16) * UNIT)  # slack: counted
        return repeated(one, count, _convolved)
    rows = math.comb(count + values - 1, values - 1)
    if rows > LIMITS.sums:
        raise _TooManyError
    cells(rows * values)
    k = simplex(count, values)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(k > 0, k * (np.log(k / count) - log_p), 0.0)
    weight = float(slow(np.array([count]))[0]) - (slow(k) + each).sum(axis=1)
    # The errors of the terms of all k_j, and of their sum.
    error = (count * ((4 + values) * most + 2 * values + 16) + 64 * values) * UNIT  # slack: counted
    place = k @ place
    if step is not None:
        return _dense(place, weight, step, error)
    order = np.argsort(place, kind="stable")
    return _Masses(place[order], weight[order], None, error, apart * (1 + values))


def _dense(place: Array, log_p: Array, step: Fraction, error: float) -> _Masses:
    """Return masses at all places of a lattice from the first to the last value."""
    first, last = int(place.min()), int(place.max())
    filled = np.full(last - first + 1, -math.inf)
    filled[place - first] = log_p
    return _Masses(np.arange(first, last + 1), filled, step, error)


def _added(a: _Masses, b: _Masses) -> _Masses:
    """Return the list of all sums of two values."""
    if len(a.place) * len(b.place) > LIMITS.sums:
        raise _TooManyError
    charge(CALL + 100 * len(a.place) * len(b.place))
    place, log_p = (np.add.outer(x, y).ravel() for x, y in ((a.place, b.place), (a.log_p, b.log_p)))
    order = np.argsort(place, kind="stable")
    error = a.error + b.error + UNIT * float(np.abs(log_p).max())  # slack: counted
    apart = a.apart + b.apart + UNIT * float(np.abs(place).max())  # slack: counted
    return _Masses(place[order], log_p[order], None, error, apart)


def _convolved(a: _Masses, b: _Masses) -> _Masses:
    """Return the sum on a lattice: no product of two blocks underflows."""
    short, long = sorted((a, b), key=lambda m: len(m.log_p))
    firsts, seconds = _blocks(short.log_p), _blocks(long.log_p)
    products = float(len(short.log_p)) * len(long.log_p)
    pairs = len(firsts) * len(seconds)
    if products > LIMITS.products or pairs > LIMITS.blocks:
        raise _TooManyError
    charge(CALL * (1 + pairs) + 0.4 * products)
    log_p, most = np.full(len(short.log_p) + len(long.log_p) - 1, -math.inf), 0
    for i, x, x_top in firsts:
        for j, y, y_top in seconds:
            sums, roundings = direct_sums(*sorted((x, y), key=len))
            part = slice(i + j, i + j + len(sums))
            with np.errstate(divide="ignore"):
                log_p[part] = np.logaddexp(log_p[part], np.log(sums) + (x_top + y_top))
            most = max(most, roundings)
    size = float(np.max(np.abs(log_p), where=log_p > -math.inf, initial=0.0))
    reach = max(float(np.ptp(m.log_p[m.log_p > -math.inf])) for m in (a, b))
    reach = min(reach, LIMITS.block_efolds)
    # An exponential errs by its exponent and 2 units, a logarithm by 2 units of itself, a sum of
    # two by one, and a log of a sum of two by a unit of itself and 4. At most ``met`` blocks meet
    # at a place.
    met = len(firsts) + len(seconds) - 2
    units = most + 8 * reach + 32 + (2 + met) * size + 4 * met
    error = a.error + b.error + units * UNIT  # slack: counted
    first = int(a.place[0]) + int(b.place[0])
    return _Masses(np.arange(first, first + len(log_p)), log_p, a.step, error)


def _blocks(log_p: Array) -> list[tuple[int, Array, float]]:
    """Return blocks of masses: the first index, the masses over the largest, and its logarithm."""
    blocks: list[tuple[int, Array, float]] = []
    known = np.flatnonzero(log_p > -math.inf)
    while len(known):
        x = log_p[known]
        range_of = np.maximum.accumulate(x) - np.minimum.accumulate(x)
        n = int(np.searchsorted(range_of, LIMITS.block_efolds, side="right"))
        first, top = int(known[0]), float(x[:n].max())
        blocks.append((first, np.exp(log_p[first : int(known[n - 1]) + 1] - top), top))
        known = known[n:]
        if len(blocks) > LIMITS.blocks:
            raise _TooManyError
    return blocks


def _mu(total: _Masses) -> Interval:
    """Bound the largest z(power) - z(level) at the corners, with rounding.

    Let the masses and the values err by so little that each mass of P and of Q errs by a factor of
    at most e^r. On each set of outcomes, P and Q are within e^2r of the pair of the computed masses
    over their totals. The mu of a pair is that of some set, and the best set of the computed pair
    is at a corner. So the two mu differ by what a factor of e^2r, and e^r for the totals, moves z.
    For a tail p <= 1/2, this is 3 r p / phi(z) <= 3 r min(1.26, 1 / |z|).
    """
    there = total.log_p > -math.inf
    unit = 1.0 if total.step is None else float(total.step)
    log_p, loss = total.log_p[there], total.place[there] * unit
    if len(loss) == 1:
        return 0.0, 0.0
    charge(CALL + 500 * len(loss))
    log_q = log_p - loss
    # The mass from each value on, and the mass below it, each summed from its own end.
    level, power = _sums_from_above(log_q)[1:], _sums_from_above(log_p)[1:]
    cover, miss = (_sums_from_above(v[::-1])[::-1][:-1] for v in (log_q, log_p))
    z_level = np.where(level < cover, -_quantile(level), _quantile(cover))
    z_power = np.where(power < miss, _quantile(power), -_quantile(miss))
    mu = z_level + z_power
    # Each step of a running sum errs by 4 units and a unit of its logarithm. On average over the
    # terms, the logarithm of a part of the sum is at most log n farther from 0.
    steps = 2 * math.isqrt(len(loss)) + 8
    place = total.apart + 2 * UNIT * float(np.abs(loss).max())  # slack: counted
    error = np.zeros(len(mu))
    for z, log_tail in ((z_level, np.minimum(level, cover)), (z_power, np.minimum(power, miss))):
        size = np.abs(log_tail) + math.log(len(loss)) + 4
        each = 3 * (total.error + place) + steps * UNIT * size  # slack: counted
        # slack: counted
        error += 1.3 * each / np.maximum(np.abs(z), 1.0) + 32 * UNIT * (1 + np.abs(z))
    return max(float(np.max(mu - error)), 0.0), max(float(np.max(mu + error)), 0.0)


def _quantile(log_p: Array) -> Array:
    return normal_quantile(np.minimum(log_p, LOG_HALF))


def _sums_from_above(x: Array) -> Array:
    """Return log sum e^x from each index on. Two rounds of about sqrt(n) terms limit rounding."""
    size = math.isqrt(len(x)) + 1
    rows = np.full(size * size, -math.inf)
    rows[: len(x)] = x[::-1]
    sums = np.logaddexp.accumulate(rows.reshape(size, size), axis=1)
    before = np.logaddexp.accumulate(sums[:-1, -1])
    sums[1:] = np.logaddexp(sums[1:], before[:, None])
    return sums.ravel()[: len(x)][::-1]
