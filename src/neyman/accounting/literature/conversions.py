"""Convert Renyi and zCDP guarantees to (epsilon, delta) by named theorems.

Compare these theorems with `optimal`, the library's own curve: no conversion of the same guarantee
is below it. ``rho`` and ``epsilon`` are at least 0, ``order`` is above 1, and ``delta`` is in (0,
1). Upper ends are safe.
"""

from __future__ import annotations

import math
from fractions import Fraction

from neyman.curves.losses.finite import exact_log
from neyman.curves.tradeoff.curve import Described
from neyman.numerics import check
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import above, below

Number = float | Fraction | str


def bun_steinke(rho: Number, delta: Number) -> Bound:
    """Convert rho-zCDP to (epsilon, delta): epsilon = rho + 2 sqrt(rho ln 1/delta).

    This equals `mironov` with epsilon a rho, at the best real order a = 1 + sqrt(ln(1/delta) /
    rho).

    Source: Bun and Steinke 2016, proposition 1.3.
    """
    exact, far = _bound("rho", rho), _log_inverse(delta)
    return _around(float(exact) + 2 * math.sqrt(float(exact) * far), "Bun and Steinke")


def mean_concentrated(mean: Number, tau: Number) -> Bound:
    """Convert (mean, tau)-concentrated DP to zCDP: rho = max{mean, tau^2 / 2}.

    The privacy loss L has E L <= mean, and L - E L is tau-subgaussian. So D_a <= mean + (a - 1)
    tau^2 / 2, which is at most a rho [ZC-9].

    Args:
        mean: at least 0, in nats.
        tau: at least 0, at most 1e150, in nats.

    Returns:
        rho; the upper bound is safe. It loses nothing if mean = tau^2 / 2, as for Gaussian noise.

    Source: Dwork and Rothblum 2016 (the definition); Bun and Steinke 2016 (D_a).
    """
    centre, width = _bound("mean", mean), _bound("tau", tau)
    if width > 10**150:
        raise ValueError(f"tau = {tau!r} must be at most 1e150: beyond, rho says nothing")
    value = max(centre, width**2 / 2)
    return Bound(below(value), above(value), "upper", "subgaussian loss")


def subgaussian_loss(rho: Number) -> Bound:
    """Convert rho-zCDP to (rho, tau)-concentrated DP: tau = sqrt(2 (e^{2 rho} - 1)).

    Args:
        rho: at least 0, at most 100.

    Returns:
        tau for the mean rho; upper is safe. For small rho it is about sqrt(2) times the tau of
        Gaussian noise, sqrt(2 rho). It may not be the smallest tau.

    Source: [ZC-9].
    """
    exact = _bound("rho", rho)
    if exact > 100:
        raise ValueError(f"rho = {rho!r} must be at most 100: beyond, tau says nothing")
    return _around(math.sqrt(2 * math.expm1(2 * float(exact))), "subgaussian loss")


def mironov(order: Number, epsilon: Number, delta: Number) -> Bound:
    """Convert (order, epsilon)-Renyi DP to (epsilon', delta).

    epsilon' = epsilon + ln(1/delta)/(order - 1).

    Source: Mironov 2017, proposition 3.
    """
    a, e, far = _order(order), _bound("epsilon", epsilon), _log_inverse(delta)
    return _around(float(e) + far / float(a - 1), "Mironov")


def canonne_kamath_steinke(order: Number, epsilon: Number, delta: Number) -> Bound:
    """Convert (order, epsilon)-Renyi DP to (epsilon', delta).

    epsilon' = epsilon + ln(1 - 1/order) + (ln(1/delta) - ln(order)) / (order - 1), or 0 if that is
    negative. For one order in one direction, only a conversion that also uses the outcomes where a
    test answers no can be better.

    Source: Canonne, Kamath and Steinke 2020, proposition 12.
    """
    a, e, far = _order(order), _bound("epsilon", epsilon), _log_inverse(delta)
    more = float(a - 1)
    terms = (float(e), -math.log1p(1 / more), far / more, -math.log1p(more) / more)
    return _sum(terms, "Canonne, Kamath and Steinke")


def canonne_kamath_steinke_zcdp(rho: Number, delta: Number) -> Bound:
    """Convert rho-zCDP to (epsilon, delta): `canonne_kamath_steinke` at the best real order.

    For order a, its epsilon is a rho. The 2020 Census's published privacy-loss certificates use
    this conversion.

    Source: Canonne, Kamath and Steinke 2020, corollary 13.
    """
    exact, far = _bound("rho", rho), _log_inverse(delta)
    method = "Canonne, Kamath and Steinke, best order"
    if not exact:
        return Bound(0.0, 0.0, "upper", method)
    r = float(exact)

    def at(more: float) -> Bound:
        terms = ((1 + more) * r, -math.log1p(1 / more), far / more, -math.log1p(more) / more)
        return _sum(terms, method)

    def falls(t: float) -> bool:  # epsilon falls with the order
        more = math.exp(t)  # order - 1
        return r * more * more + math.log1p(more) - far < 0

    least, largest = 1e-15, 1e15  # of the orders searched, minus 1
    more = math.exp(0.5 * sum(bisect(falls, math.log(least), math.log(largest))))
    high = at(more).upper
    if high == 0:
        return Bound(0.0, 0.0, "upper", method)
    # With F(a) = (a - 1)(a rho - epsilon) + (a - 1) ln(a - 1) - a ln a + ln 1/delta, convex in a,
    # epsilon is too small if F > 0 everywhere: at the crossing of two tangents [RB-8].
    gap = 1e-13
    while gap < 1 and not _too_small(high * (1 - gap), more, r, far):
        gap *= 4
    return Bound(max(high * (1 - gap), 0.0), high, "upper", method)


def optimal(guarantee: Described, delta: float) -> Bound:
    """Return the epsilon of the guarantee's own curve, from every order and both directions.

    Args:
        guarantee: ``ny.zcdp(...)``, ``ny.renyi(...)``, or any object with a curve.
        delta: in [0, 1).

    Returns:
        epsilon, upper is safe.

    Source: Balle, Barthe, Gaboardi, Hsu and Sato 2020.
    """
    return check.described("guarantee", guarantee).tradeoff().epsilon(delta)


def _too_small(epsilon: float, more: float, rho: float, far: float) -> bool:
    """Return True if F(a) > 0 is proven for every order a, where F is convex.

    F is defined in `canonne_kamath_steinke_zcdp`. The tangents at both sides of a = 1 + ``more``,
    near the minimum, bound F. ``far`` is ln(1/delta).
    """

    def tangent(d: float) -> tuple[float, float]:
        value = d * ((1 + d) * rho - epsilon) + d * math.log(d) - (1 + d) * math.log1p(d) + far
        size = d * ((1 + d) * rho + epsilon) + d * abs(math.log(d)) + (1 + d) * math.log1p(d) + far
        slope = (1 + 2 * d) * rho - epsilon - math.log1p(1 / d)
        # A term errs by at most 6 units with rho and far, and three sums by one each: 9 units. The
        # others cover the crossing's place, which rounds f - g.
        return value - 32 * UNIT * size, slope  # slack: counted

    left, right = more * (1 - 1e-4), more * (1 + 1e-4)
    (f, down), (g, rise) = tangent(left), tangent(right)
    if not down < 0 < rise:
        return False
    width = right - left
    place = (g - f + (-rise) * width) / (down - rise)
    # The crossing is between; slopes err by at most 8 units of their terms (the logarithm of
    # 1 / d is below 40), over at most the width. The difference of two near floats is exact.
    # slack: counted
    error = 64 * UNIT * width * (abs(down) + rise + (1 + 2 * right) * rho + epsilon + 40)
    return 0 <= place <= width and f + down * place - error > 0


def _order(order: Number) -> Fraction:
    exact = check.exact("order", order)
    order_gap = Fraction(1, 10**150)
    if exact - 1 < order_gap:
        raise ValueError(f"order = {order!r} must be above 1, by at least {float(order_gap):g}")
    return exact


def _bound(name: str, value: Number) -> Fraction:
    exact = check.exact(name, value)
    check.non_negative(name, float(exact))
    return exact


def _log_inverse(delta: Number) -> float:
    """Return ln(1/delta), to relative accuracy."""
    exact = check.exact("delta", delta)
    if not 0 < exact < 1:
        raise ValueError(f"delta = {delta!r} must be above 0 and below 1")
    return -exact_log(exact)


def _around(value: float, method: str) -> Bound:
    # slack: sums_and_products_of_numbers_that_are_rounded
    return Bound(value * (1 - 32 * UNIT), value * (1 + 32 * UNIT), "upper", method)


def _sum(terms: tuple[float, ...], method: str) -> Bound:
    """Return bounds on max(0, sum of terms). Each term is accurate to a few rounding units."""
    # slack: sums_and_products_of_numbers_that_are_rounded
    value, slack = math.fsum(terms), 32 * UNIT * math.fsum(map(abs, terms))
    return Bound(max(value - slack, 0.0), max(value + slack, 0.0), "upper", method)
