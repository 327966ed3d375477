"""Compute certified Renyi divergences of a composition, and its zCDP parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman.curves.divergences.envelope import Ceiling, below_ceiling, trusted_rho
from neyman.curves.losses.bracket import LossBracket, sides
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.profiles.profile import Interval
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import OperationLimit, engine_limit
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import above, down, up


@dataclass(frozen=True)
class Limits:
    """Limits on the computation of K and of its slope at 0."""

    terms: float = 1e5  # most terms of K at an order
    largest_moment: float = 10.0  # largest E cosh(r X) - 1
    rounding_share: float = 1e-6  # relative error of K from which a proven rho is asked


LIMITS = Limits()
SLOPE_SHARES = np.arange(1, 7) / 48  # shares j d / r of the order r that give the slope of K
_SQUARED_SHARES = SLOPE_SHARES**2
WEIGHTS = np.array(
    [np.prod([s / (s - t) for s in _SQUARED_SHARES if s != t]) for t in _SQUARED_SHARES]
)
REMAINDER_FACTOR = float(np.prod(_SQUARED_SHARES / (1 - _SQUARED_SHARES))) * (1 + 1e-12)


def renyi_divergence(c: Composition, order: float | Fraction) -> Interval:
    """Bound D_order = K(order - 1) / (order - 1), with K(z) = log E[e^{zL}].

    D_1 (KL) is the slope of K at 0.

    A bare guarantee adds the largest divergence it allows to the upper bound. To the lower bound,
    it adds that of a Gaussian if it is only zCDP, else of coins with means x and 1 - x that meet
    it.
    """
    if (bare := c.bare) is not None:
        near = float(order)
        away = math.nextafter(near, 1.0 if near > order else math.inf)
        ends = {near, near if near == order else away}
        low = renyi_divergence(c.known, min(ends))[0]
        high = renyi_divergence(c.known, max(ends))[1]
        most = above(bare.divergence(Fraction(order)))
        reached = min(_attained_divergence(bare, order), most)
        sure = low + reached
        if high and sure < math.inf:
            sure = down(sure, 1)
        return sure, up(high + most, 1) if high else most
    if not c.parts:
        return 0.0, 0.0
    order = float(order)
    if order == 1 and any(isinstance(part, LossBracket) for part, _ in c.parts):
        lower, upper = (renyi_divergence(Composition.of(v), 1.0) for v in sides(c.parts))
        return min(lower[0], upper[1]), upper[1]

    def k(z: float) -> float:
        return float(np.real(c.log_mgf(np.array([z], dtype=float)))[0])

    def rounding(z: float) -> float:
        at = np.array([z])
        each = math.fsum(n * float(loss.mgf_rounding(at)[0]) for loss, n in c.parts)
        # slack: the_divergence_of_a_gaussian_pair/a
        return each + 16 * UNIT * (1 + len(c.parts)) * abs(k(z))

    def proven() -> float:
        return min(up(order * zcdp_above(c), 4), up(float(c.supremum), 2))

    if order > 1 and c.places(order - 1, 0.0) > LIMITS.terms:
        # K has too many terms at this order. D_a grows with a and is at most a rho.
        return renyi_divergence(c, 1 + (order - 1) / 10)[0], proven()
    try:
        with engine_limit():
            if order > 1:
                z = order - 1
                value, error = k(z) / z, rounding(z) / z
            else:
                value, error = slope_at_zero(c)
    except OperationLimit:
        return 0.0, proven()
    # D_a is at most the largest loss, and never negative.
    high = min(value + error, up(float(c.supremum), 2))
    if not c.infinite and error > LIMITS.rounding_share * value:  # a tiny K has no digits
        high = min(high, proven())
    return min(max(value - error, 0.0), high), high


def slope_at_zero(c: Composition) -> Interval:
    """Bound K'(0), the mean of the loss [PL-5].

    With X = L - m, m near the mean, E sinh(j d X) / (j d) is E X plus a series in (j d)^2. The
    combination for j = 1 .. n that cancels the first n - 1 terms of the series errs by at most (E
    cosh(r X) - 1) / r times the product of all t q / (1 - t q), t = j^2, with q = (d / r)^2.
    """
    _, mean, variance = (float(v[0]) for v in c.moments(np.zeros(1)))
    steps = np.append(SLOPE_SHARES, -SLOPE_SHARES)
    r = 4 / math.sqrt(max(variance, 1e-300))
    for _ in range(40):  # tries for the size of orders near 0
        twice = math.inf
        if max(c.places(r, 0.0), c.reverse().places(r, 0.0)) <= LIMITS.terms:
            twice = float(np.sum(exponentials(c, r * np.array([1.0, -1.0]), mean)))
        if twice <= 2 * LIMITS.largest_moment:
            most = 0.5 * twice / r
            value, error = (v.reshape(2, -1) for v in exponentials(c, r * steps, mean))
            each = (value[0] - value[1]) / (2 * r * SLOPE_SHARES)
            away = float(WEIGHTS @ each)
            # Differences, quotients, and a sum of six terms; then the last sum.
            # slack: counted
            rounding = error.sum(axis=0) / (2 * r * SLOPE_SHARES) + 8 * UNIT * np.abs(each)
            slack = float(np.abs(WEIGHTS) @ rounding) + most * REMAINDER_FACTOR
            # slack: counted
            return mean + away, slack * (1 + 1e-12) + 4 * UNIT * (abs(mean) + abs(away))
        r /= 4
    return 0.0, math.inf


def log_moment(c: Composition, z: float) -> Interval:
    """Bound K(z) = log E e^{z L} over finite losses, z at least -1/2."""
    if z > 0 and c.places(z, 0.0) > LIMITS.terms:
        low, high = renyi_divergence(c, 1 + z)
        return -math.inf if c.infinite else down(z * low, 1), up(z * high, 1)
    at = np.array([z])
    with np.errstate(all="ignore"):
        k = float(np.real(c.log_mgf(at))[0])
        each = math.fsum(n * float(part.mgf_rounding(at)[0]) for part, n in c.parts)
    if not (math.isfinite(k) and each < 0.5):  # no finite loss has mass, or an overflow
        return -math.inf, -math.inf if k == -math.inf else math.inf
    error = -math.log1p(-each) + 16 * UNIT * (1 + len(c.parts)) * abs(k)  # slack: open
    return math.nextafter(k - error, -math.inf), math.nextafter(k + error, math.inf)


def exponentials(c: Composition, z: Array, mean: float) -> tuple[Array, Array]:
    """Return E e^{z (L - mean)} - 1 at real z, and a bound on its error."""
    with np.errstate(all="ignore"):  # an infinite error gives a trivial bound
        k = np.real(c.log_mgf(z))
        away = k - z * mean
        error = np.sum([n * part.mgf_rounding(z) for part, n in c.parts], axis=0)
        # slack: a_variance_from_k_at_small_orders
        error = error + 16 * UNIT * ((1 + len(c.parts)) * np.abs(k) + np.abs(z * mean))
        value = np.expm1(away)  # to 2 units
        error = np.expm1(error) * (1 + value) * 1.001 + 4 * UNIT * np.abs(value)  # slack: counted
    known = np.isfinite(value) & np.isfinite(error)
    return np.where(known, value, math.inf), np.where(known, error, math.inf)


def zcdp_above(c: Composition) -> float:
    """Return a proven rho with D_a(P||Q) <= a rho for all a > 1, for a pair without infinite loss.

    ``c``: the composition with the loss of (P, Q). Outcomes that only Q can produce, of mass n, add
    -log(1 - n) to the divergence from Q conditioned on the others.
    """
    missing = c.reverse().infinite
    return trusted_rho(c) - math.log1p(-missing) if missing else c.rho


def _attained_divergence(bare: RenyiBound, order: float | Fraction) -> float:
    """Return a Renyi divergence that some pair with this guarantee attains, rounded down."""
    exact = bare.divergence(Fraction(order))
    if exact == math.inf or not (bare.corners or bare.kl):
        # Beyond the top order, no bound exists. Up to it, a Gaussian attains the parabola.
        return down(float(exact), 1) if exact < math.inf else math.inf
    ceiling = Ceiling.below(bare)

    def moment(odds: float, a: Array) -> Array:
        """Return (a - 1) D_a of coins with log-odds +-``odds`` (randomized response)."""
        z, p = a - 1, 1 / (1 + math.exp(-odds))
        log_q = -odds - math.log1p(math.exp(-odds))
        return np.logaddexp(math.log(p) + z * odds, log_q - z * odds)

    def possible(odds: float) -> bool:
        kl = np.array([odds * math.tanh(odds / 2) * (1 + 1e-14)])

        def most(_: object, a: Array) -> Array:
            return moment(odds, a) + 1e-14 * (1 + a * odds)

        return bool(below_ceiling(most, kl, np.array([odds]), ceiling)[0])

    low, high = 0.0, 1.0
    while possible(high) and high < 700:
        low, high = high, 2 * high
    low = bisect(possible, low, high, rounds=40)[0]
    if order == 1:
        return low * math.tanh(low / 2) * (1 - 1e-14)
    bound = float(moment(low, np.array([float(order)]))[0]) - 1e-14 * (1 + order * low)
    return max(bound / (order - 1), 0.0)
