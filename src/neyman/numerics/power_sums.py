"""Add few independent losses atom by atom, without a grid, with small relative errors.

The n-fold sum of a loss with m values has C(n + m - 1, m - 1) values, one for each list of counts
of the values. Their weights are multinomial. They are computed without cancellation of large
numbers (Loader 2000, "Fast and accurate computation of binomial probabilities"):

    log(n! / prod k_j! * prod p_j^k_j) = S(n) - sum [S(k_j) + D(k_j, n p_j)]

with S(k) = log k! - k log k + k, which grows slowly, and D(k, y) = k log(k / y) + y - k >= 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import LEAST_WEIGHT, UNIT
from neyman.numerics.binomial import divergence, slow
from neyman.numerics.discretization import Discretization
from neyman.numerics.operations import charge


@dataclass(frozen=True)
class Limits:
    """Limits on which sums are stored."""

    copies: int = 2000  # up to this many copies of a loss with two values, all sums are stored
    # Standard deviations stored for more copies. The omitted mass is about 1e-20.
    reach_deviations: float = 9.5


LIMITS = Limits()


def ways(count: int, values: int) -> int:
    """Return the number of stored sums of ``count`` copies of a loss with ``values`` atoms."""
    if values == 2:  # for many copies, only a window is stored
        window = math.ceil(LIMITS.reach_deviations * math.sqrt(count)) + 128
        return min(count, max(LIMITS.copies, window)) + 1
    return math.comb(count + values - 1, values - 1)


def power_sums(
    index: Array, unit: float, p: Array, count: int, tilt: float, *, relative: float, place: float
) -> Discretization:
    """Return the tilted distribution of the sum of ``count`` copies of a loss with few values.

    Args:
        index: the loss has the values ``index * unit``; shape (m,).
        p: probabilities of the values given that the loss is finite, shape (m,), each rounded from
            a distribution with sum 1.
        relative: bound on the relative error of p.
        place: bound on the error of each value ``index * unit``.
    """
    value = index * unit
    if len(value) == 1:
        loss = np.array([count * value[0]])
        return Discretization(
            loss,
            np.ones(1),
            tilt,
            tilt * float(loss[0]),
            0.0,
            # slack: counted
            4 * UNIT,
            count * place,
        )
    counts = _window(value, p, count, tilt) if len(value) == 2 else simplex(count, len(value))
    log_weight = np.full(len(counts), float(slow(np.array([count]))[0]))
    deviation = np.zeros(len(counts))
    for j, y in enumerate(count * p):
        low = int(counts[:, j].min())
        k = np.arange(low, int(counts[:, j].max()) + 1)
        table = slow(k) + divergence(k, float(y))
        log_weight -= table[counts[:, j] - low]
        deviation += np.abs(k - y)[counts[:, j] - low]
    total = counts @ index
    exponent = log_weight + tilt * (total * unit)
    scale = float(exponent.max())
    weight = np.exp(exponent - scale)
    # D errs by a few units of itself and of |k - y|, its slope in log p.
    # same: > LEAST_WEIGHT -> >= LEAST_WEIGHT: A weight of exactly the least one may stay or be
    # counted in the tail.
    mask = weight > LEAST_WEIGHT
    sizes = np.abs(log_weight) + np.abs(tilt * total * unit) + abs(scale)
    # slack: counted; sums_of_a_loss_with_two_values/a, sums_of_a_loss_with_two_values/b
    error = (relative + 2 * UNIT) * deviation + 4 * UNIT * (sizes + 32)  # [ES-1]
    tail = LEAST_WEIGHT * float(np.count_nonzero(~mask))
    if len(value) == 2:  # tails of the second value's count k, below and above the window
        tail += _beyond(weight) if counts[0, 1] > 0 else 0.0
        tail += _beyond(weight[::-1]) if counts[-1, 1] < count else 0.0
    total, weight = total[mask], weight[mask]
    order = np.argsort(total, kind="stable")
    loss = total[order] * unit
    most = float(np.abs(counts[mask] * np.abs(index)).sum(axis=1).max()) * abs(unit)
    exact = index.dtype.kind == "i"  # whole numbers have exact sums
    # slack: sums_of_a_loss_with_two_values
    wrong = count * place + 2 * UNIT * most * (1 if exact else len(value) + 1)
    return Discretization(loss, weight[order], tilt, scale, tail, error[mask][order], wrong)


def multinomial(
    index: Array,
    unit: float,
    log_p: Array,
    count: int,
    tilt: float,
    place: float,
    log_finite: float,
    relative: float = 0.0,
) -> Discretization:
    """Return the tilted sum of ``count`` losses with values ``index * unit``.

    Args:
        index, unit, log_p: the values, and the logs of their masses.
        count, tilt: terms of the sum, and t in the factor e^{t L} of a weight.
        place: bound on the error of each value.
        log_finite: the log of the sum of all masses, as it is known and not as it is rounded: n
            roundings of the sum would count in full.
        relative: bound on the error of each mass beyond its rounding.
    """
    # Probabilities given that the loss is finite: their sum is 1. The end restores the finite mass.
    p = np.exp(log_p - log_finite)
    # slack: sums_of_a_loss_with_two_values/a
    relative = relative + (2 * float(np.abs(log_p).max()) + 4) * UNIT
    dots = power_sums(index, unit, p, count, tilt, relative=relative, place=place)
    shift = count * log_finite
    return replace(
        dots,
        log_scale=dots.log_scale + shift,
        # slack: sums_of_a_loss_with_two_values/b
        relative=dots.relative + 4 * UNIT * abs(shift),
    )


def added(parts: Sequence[Discretization], tilt: float) -> Discretization:
    """Return the distribution of a sum of independent losses, from all combinations of atoms."""
    longest, *others = sorted(parts, key=lambda d: len(d.loss))
    for other in others:
        loss = np.add.outer(longest.loss, other.loss).ravel()
        weight = np.multiply.outer(longest.weight, other.weight).ravel()
        # same: > LEAST_WEIGHT -> >= LEAST_WEIGHT: A weight of exactly the least one may stay or be
        # counted in the tail.
        mask = weight > LEAST_WEIGHT
        first, second = (np.broadcast_to(d.relative, d.loss.shape) for d in (longest, other))
        log_scale = longest.log_scale + other.log_scale
        # slack: atoms_of_a_sum
        relative = np.add.outer(first, second).ravel() + (2 + abs(log_scale)) * UNIT
        sums = float(longest.weight.sum()), float(other.weight.sum())
        tail = longest.tail * (sums[1] + other.tail) + other.tail * sums[0]
        tail = tail * (1 + 1e-9) + LEAST_WEIGHT * float(np.count_nonzero(~mask))
        loss, weight, relative = loss[mask], weight[mask], relative[mask]
        order = np.argsort(loss, kind="stable")
        # slack: atoms_of_a_sum
        place = longest.place + other.place + UNIT * float(np.abs(loss).max())
        longest = Discretization(
            loss[order], weight[order], tilt, log_scale, tail, relative[order], place
        )
    return longest


def simplex(count: int, values: int) -> NDArray[np.int64]:
    """Return all ways to write ``count`` as a sum of ``values`` counts, shape (ways, values)."""
    places = count + values - 1
    rows = math.comb(places, values - 1)
    charge(300 * rows * values)
    # Counts are the gaps between bars at places among the terms; both orders are lexicographic.
    bars = np.fromiter(
        chain.from_iterable(combinations(range(places), values - 1)), np.int64, rows * (values - 1)
    ).reshape(rows, values - 1)
    return np.diff(bars, axis=1, prepend=-1, append=places) - 1


def _window(value: Array, p: Array, count: int, tilt: float) -> NDArray[np.int64]:
    """Return the counts of each of two values near the center of the tilted sum, shape (n, 2)."""
    log_p = np.log(p) + tilt * value
    share = 1 / (1 + math.exp(min(log_p[0] - log_p[1], 700.0)))  # share of the second value
    reach = count
    if count > LIMITS.copies:
        reach = LIMITS.reach_deviations * math.sqrt(count * share * (1 - share)) + 60
    low = max(0, math.floor(count * share - reach))
    high = min(count, math.ceil(count * share + reach))
    k = np.arange(low, high + 1)
    return np.stack([count - k, k], axis=1)


def _beyond(weight: Array) -> float:
    """Bound the total of the log-concave weights that come before the first given weight."""
    first, second = float(weight[0]), float(weight[1])
    return first * (first / second) / (1 - first / second) * (1 + 1e-6) if first < second else 1e9
