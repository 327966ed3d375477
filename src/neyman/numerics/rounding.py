"""Round exact numbers to adjacent floats, up or down."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

HALF_DIGITS = 2.0**27 + 1  # a factor that keeps the upper half of the 53 digits of a float


def above(value: Fraction | float) -> float:
    """Return the float at or just above an exact number."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def below(value: Fraction | float) -> float:
    """Return the float at or just below an exact number."""
    near = float(value)
    return near if near <= value else math.nextafter(near, -math.inf)


def product(x: Array, y: Array | float) -> tuple[Array, Array]:
    """Return x y, rounded, and its exact rounding error (Dekker 1971).

    Args:
        x, y: numbers of size 0 or 1e-140 to 1e140.
    """
    y = np.asarray(y)
    near = x * y
    (x_head, x_tail), (y_head, y_tail) = _halves(x), _halves(y)
    error = ((x_head * y_head - near) + x_head * y_tail + x_tail * y_head) + x_tail * y_tail
    return near, error


def total(x: Array, y: Array | float) -> tuple[Array, Array]:
    """Return x + y, rounded, and its exact rounding error (Knuth 1969)."""
    near = x + y
    moved = near - x
    return near, (x - (near - moved)) + (y - moved)


def _halves(x: Array) -> tuple[Array, Array]:
    """Return two numbers of 26 digits that sum to x (Veltkamp 1968)."""
    turned = HALF_DIGITS * x
    head = turned - (turned - x)
    return head, x - head


def exp_up(value: float) -> float:
    """Return an upper bound on the probability e^value. Return exactly 0 for -inf.

    The bound allows for one rounding of ``value``. exp errs by less than one float, and `up` adds
    two.
    """
    if value == -math.inf:
        return 0.0
    # slack: chances_that_the_rest_does_not_explain/a, chances_that_the_rest_does_not_explain/d,
    # slack: powers_of_e_of_a_logarithm_that_is_rounded
    return min(up(math.exp(min(value, 0.0) * (1 - 2 * UNIT))), 1.0)


def exp_down(value: float) -> float:
    """Return a lower bound on the probability e^value, allowing for one rounding of ``value``."""
    # slack: chances_that_the_rest_does_not_explain/b, chances_that_the_rest_does_not_explain/c,
    # slack: powers_of_e_of_a_logarithm_that_is_rounded
    return down(math.exp(min(value, 0.0) * (1 + 2 * UNIT)))


def log_of(value: float) -> float:
    """Return the logarithm; -inf for 0."""
    return math.log(value) if value > 0 else -math.inf


def log_add(x: float, y: float) -> float:
    """Return log(e^x + e^y), not as a bound: it is rounded to either side."""
    top = max(x, y)
    return top if math.isinf(top) else top + math.log1p(math.exp(min(x, y) - top))


def log_complement(low: float, high: float) -> tuple[float, float]:
    """Return bounds on log(1 - x), given bounds ``low`` and ``high`` on log x [RO-1].

    The bounds allow for 6 units of rounding.
    """
    # slack: the_logarithm_of_what_is_left_of_one
    return (1 + 8 * UNIT) * _log_complement(high), (1 - 8 * UNIT) * _log_complement(low)


def _log_complement(value: float) -> float:
    if value >= 0:
        return -math.inf
    return math.log1p(-math.exp(value)) if value < -0.7 else math.log(-math.expm1(value))


def up(x: float, steps: int = 2) -> float:
    """Return the float ``steps`` floats above ``x``."""
    for _ in range(steps):
        x = math.nextafter(x, math.inf)
    return x


def down(x: float, steps: int = 2) -> float:
    """Return the float ``steps`` floats below ``x``, but not below 0."""
    for _ in range(steps):
        x = math.nextafter(x, -math.inf)
    return max(x, 0.0)


def known(x: Array) -> Array:
    """Return |x|, or 0 where x is not finite.

    If x is a logarithm, its rounding is relative to |x|.
    """
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def normal_quantile(log_p: Any) -> Any:
    """Return the z with log Phi(z) = ``log_p``, within 32 units of 1 + |z| for log_p <= log(1/2).

    SciPy's inverse errs by up to 6,000 units of z between e^-3000 and e^-10^9. Therefore, far out,
    a step of Newton's method corrects it by `log_ndtr`, which errs by less than 16 units. There,
    the slope of log Phi is between |z| and |z| + 1 / |z|.
    """
    z = np.asarray(ndtri_exp(log_p))
    far = (z < -40.0) & np.isfinite(z)
    at = np.where(far, z, -1.0)
    return np.where(far, at + (log_ndtr(at) - log_p) / at, z)
