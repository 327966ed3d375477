"""Compute binomial probabilities of any size in logarithms, with error bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special  # pyright: ignore[reportMissingTypeStubs]
from scipy.special import betainc

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import bisect


def _at_integers(function: Callable[[Array], Array], n: Array) -> Array:
    """Return ``function`` at each whole number in n.

    Compute it once per number, if that is less work.
    """
    if not n.size:
        return function(n)
    low, high = float(n.min()), float(n.max())
    if high - low + 1 < n.size:
        return function(np.arange(low, high + 1))[..., (n - low).astype(np.int64)]
    return function(n)


def slow(k: Array) -> Array:
    """Return S(k) = log k! - k log k + k for whole numbers k, within a rounding unit; S(0) = 0."""
    far = np.maximum(k, len(_EARLY)).astype(float)
    inverse = far**-2.0
    series = (1 / 12 - (1 / 360 - (1 / 1260 - inverse / 1680) * inverse) * inverse) / far
    log_factorial = 0.5 * np.log(math.tau * far) + series
    early = _EARLY[np.minimum(k, len(_EARLY) - 1).astype(np.int64)]
    return np.where(k < len(_EARLY), early, log_factorial)


# For these k, Stirling's series lacks digits. The quotient of whole numbers is rounded once.
_EARLY = np.array([0.0, *(math.log(math.factorial(j) / j**j) + j for j in range(1, 24))])


def divergence(k: Array, y: Array | float) -> Array:
    """Return D(k, y) = k log(k / y) + y - k, within a few rounding units of D and of k - y."""
    v = (k - y) / np.maximum(k + y, 1e-300)
    # log(k / y) = 2 atanh(v); for small v the series of 2 k atanh(v) - (k - y)
    near = np.abs(v) < 0.1
    u = np.where(near, v, 0.0)
    square, total, power = u * u, np.zeros_like(u), u * u * u
    for j in range(3, 25, 2):
        total, power = total + power / j, power * square
    close = (k - y) * u + 2 * k * total
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(k > 0, k * np.log(np.maximum(k, 1e-300) / y), 0.0) + y - k
    return np.where(near, close, far)


def log_binomial(n: int, p: float, q: float, c: Array, epsilon: float) -> tuple[Array, Array]:
    """Return log P(Bin(n, p) = c), and a bound on its error, by deviances (Loader 2000).

    q = 1 - p. Both p and q err by at most 4 + epsilon rounding units.
    """
    value, error = _at_integers(lambda x: _log_binomial(n, p, q, x, epsilon), c.astype(float))
    return value, error


def _log_binomial(n: int, p: float, q: float, x: Array, epsilon: float) -> Array:
    y = n - x
    if not q:
        return np.array([np.where(y == 0, 0.0, -math.inf), np.zeros(x.shape)])
    inner = (x > 0) & (y > 0)
    safe_x, safe_y = np.maximum(x, 1.0), np.maximum(y, 1.0)
    deviance = divergence(safe_x, n * p) + divergence(safe_y, n * q) if n else 0.0
    rest = slow(np.array([float(max(n, 1))])) - slow(safe_x) - slow(safe_y)
    log_p, log_q = (math.log1p(-q), math.log(q)) if p > 0.5 else (math.log(p), math.log1p(-p))
    ends = np.where(x == 0, n * log_q, n * log_p)
    value = np.where(inner, rest - deviance, ends)
    # n p and n q are rounded, by which a deviance moves by |x - n p| and |y - n q| units
    size = np.abs(value) + np.abs(x - n * p) + np.abs(y - n * q) + 64
    # slack: the_number_of_successes, the_chance_of_as_many_correct_guesses/a,
    # slack: delta_of_shuffled_binary_reports/a, delta_of_shuffled_binary_reports/b, a_binomial_law
    return np.array([value, (8 + 2 * epsilon) * UNIT * size])


def log_half(c: Array, j: Array) -> tuple[Array, Array]:
    """Return log P(Bin(c, 1/2) = j), and a bound on its error, for each pair (c, j)."""
    x, n = np.asarray(j, dtype=float), c.astype(float)
    y = n - x
    u = np.where(n > 0, (x - y) / np.maximum(n, 1.0), 0.0)
    inner = (x > 0) & (y > 0)
    near = np.abs(u) < 0.6
    small = np.where(near, u, 0.0)
    deviance = 0.5 * n * (np.log1p(-small * small) + 2 * small * np.arctanh(small))
    if not near.all():  # far out the two terms cancel, but the next two do not
        size, x_far, y_far = np.maximum(n, 1.0), np.maximum(x, 1.0), np.maximum(y, 1.0)
        far = x_far * np.log(2 * x_far / size) + y_far * np.log(2 * y_far / size)
        deviance = np.where(near, deviance, far)
    of_n, of_x, of_y = (_at_integers(slow, np.maximum(v, 1.0)) for v in (n, x, y))
    rest = of_n - of_x - of_y
    value = np.where(inner, rest - deviance, -n * math.log(2))
    # The deviance errs by at most 12 units of itself, and by 6 where one count is a twentieth.
    units = np.where(np.abs(u) < 0.9, 12.0, 8.0)
    return value, units * UNIT * (np.abs(value) + 64)  # slack: a_binomial_law_with_fair_coins


def log_between(n: int, p: float, q: float, low: Array, high: Array) -> Array:
    """Return Chernoff's upper bound on log P(low <= Bin(n, p) <= high), for each pair (low, high).

    q = 1 - p.
    """
    x = np.clip(np.where(high < n * p, high, low).astype(float), 0.0, n)
    outside = (high < n * p) | (low > n * p)
    deviance = divergence(x, n * p) + divergence(n - x, n * q)
    return np.where(outside, -np.maximum(deviance * (1 - 1e-9) - 1e-9, 0.0), 0.0)


def least_rate(counts: Array | float, trials: Array | float, chance: float) -> Array:
    """Return lower limits p on binomial rates: P(Bin(trials, p) >= count) <= ``chance``."""
    return _rate(counts, trials, chance, -1)


def largest_rate(counts: Array | float, trials: Array | float, chance: float) -> Array:
    """Return upper limits p on binomial rates: P(Bin(trials, p) <= count) <= ``chance``."""
    return _rate(counts, trials, chance, 1)


def _rate(counts: Array | float, trials: Array | float, chance: float, side: int) -> Array:
    """Return limits on binomial rates, below (side -1) or above (1).

    SciPy's inverse only proposes them: for small chances, it is far off or NaN. Its forward
    function decides, which errs by less than 1e-9 of itself above 1e-200.
    """
    special: Any = scipy.special
    shape = np.broadcast_shapes(np.shape(counts), np.shape(trials))
    k, n = (np.broadcast_to(np.asarray(v, float), shape).ravel() for v in (counts, trials))
    certain = k <= 0 if side < 0 else k >= n  # the limit is 0 or 1
    tail, inverse = (
        (special.betainc, special.betaincinv)
        if side < 0
        else (special.betaincc, special.betainccinv)
    )
    a, b = (k, n - k + 1) if side < 0 else (k + 1, n - k)
    a, b = np.where(certain, 1.0, a), np.where(certain, 1.0, b)

    def holds(p: Array, at: Array) -> Array:
        value, count, size = tail(a[at], b[at], p), k[at], n[at]
        with np.errstate(all="ignore"):
            deviance = divergence(count, size * p) + divergence(size - count, size * (1 - p))
        far = side * (size * p - count) > 0
        bounded = far & (deviance * (1 - 1e-9) - 1e-9 >= -math.log(chance))
        # SciPy's function can be 0 where a tail is 1e-250. There, Chernoff's bound decides.
        return np.where(value < 1e-200, bounded, value * (1 + 1e-9) <= chance)

    every = np.ones(len(a), bool)
    with np.errstate(all="ignore"):
        limit = np.clip(np.nan_to_num(inverse(a, b, chance)) * (1 + side * 1e-10), 0.0, 1.0)
    near = ~holds(np.minimum(limit * (1 - side * 1e-8), 1.0), every)
    lost = ~((limit > 0) & holds(limit, every) & near | certain)
    if lost.any():  # bisect log p, for a lower limit from a union bound
        n = a + b - 1
        safe = math.log(chance) / a[lost] - np.log(n[lost]) - 1e-9 if side < 0 else 0.0 * a[lost]
        other = 0.0 * safe if side < 0 else safe - 745.0
        for _ in range(64):
            middle = (safe + other) / 2
            good = holds(np.exp(middle), lost)
            safe, other = np.where(good, middle, safe), np.where(good, other, middle)
        limit[lost] = np.minimum(np.exp(safe) * (1 + side * 1e-13), 1.0)
    return np.where(certain, max(side, 0), limit).reshape(shape)


def student_tail(degrees: float, x: float) -> float:
    """Return P(T > x), x >= 0, for Student's T, within 1e-12. SciPy's stdtr errs by 1e-9."""
    square = x * x
    if x < 1:
        return (1 - float(betainc(0.5, degrees / 2, square / (degrees + square)))) / 2
    return float(betainc(degrees / 2, 0.5, degrees / (degrees + square))) / 2


def student_quantile(degrees: float, tail: float) -> float:
    """Return an x with P(T > x) <= ``tail`` for Student's T, close to the least; tail below 1/2."""
    if not degrees > 0:
        return math.inf
    high = 1.0
    while student_tail(degrees, high) > tail * (1 - 1e-12):
        high *= 2
    low = 0.0 if high == 1 else high / 2
    enough = tail * (1 - 1e-12)
    return bisect(lambda x: student_tail(degrees, x) <= enough, high, low, tolerance=1e-15)[0]
