"""Compute binomial probabilities of any size in logarithms, with error bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betainc, betaincinv

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT


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
    return value, units * UNIT * (np.abs(value) + 64)


def log_between(n: int, p: float, q: float, low: Array, high: Array) -> Array:
    """Return Chernoff's upper bound on log P(low <= Bin(n, p) <= high), for each pair (low, high).

    q = 1 - p.
    """
    x = np.clip(np.where(high < n * p, high, low).astype(float), 0.0, n)
    outside = (high < n * p) | (low > n * p)
    deviance = divergence(x, n * p) + divergence(n - x, n * q)
    return np.where(outside, -np.maximum(deviance * (1 - 1e-9) - 1e-9, 0.0), 0.0)


def least_rate(counts: Array | float, trials: Array | float, chance: float) -> Array:
    """Return lower limits p on binomial rates: P(Bin(trials, p) >= count) <= ``chance``.

    For an upper limit at count k, subtract that of trials - k from 1, rounded up. SciPy's inverse
    only proposes p: for small chances, it is far off or NaN. Its forward function decides. It errs
    by less than 1e-11 of itself.
    """
    shape = np.broadcast_shapes(np.shape(counts), np.shape(trials))
    k, n = (np.broadcast_to(np.asarray(v, float), shape).ravel() for v in (counts, trials))
    inside = k > 0
    k, n = np.where(inside, k, 1.0), np.maximum(n, np.where(inside, k, 1.0))

    def holds(p: Array, at: Array) -> Array:
        return betainc(k[at], n[at] - k[at] + 1, p) * (1 + 1e-11) <= chance

    everywhere = np.ones(k.shape, bool)
    with np.errstate(all="ignore"):
        limit = np.nan_to_num(betaincinv(k, n - k + 1, chance) * (1 - 1e-10))
    near = ~holds(np.minimum(limit * (1 + 1e-8), 1.0), everywhere)
    lost = ~((limit > 0) & holds(limit, everywhere) & near)
    if lost.any():  # bisect log p, from a union bound
        low, high = math.log(chance) / k[lost] - np.log(n[lost]) - 1e-9, np.zeros(np.sum(lost))
        for _ in range(64):
            middle = (low + high) / 2
            safe = holds(np.exp(middle), lost)
            low, high = np.where(safe, middle, low), np.where(safe, high, middle)
        limit = limit.copy()
        limit[lost] = np.exp(low) * (1 - 1e-14)
    return np.where(inside, limit, 0.0).reshape(shape)


def largest_rate(counts: Array | float, trials: Array | float, chance: float) -> Array:
    """Return upper limits p on binomial rates: P(Bin(trials, p) <= count) <= ``chance``."""
    return np.minimum(np.nextafter(1 - least_rate(trials - counts, trials, chance), 2.0), 1.0)


def student_tail(degrees: float, x: float) -> float:
    """Return P(T > x), x > 0, for Student's T. SciPy's `stdtr` errs by 1e-9, this by 1e-13."""
    return float(betainc(degrees / 2, 0.5, degrees / (degrees + x * x))) / 2
