"""Represent a guarantee that consists of bounds on Renyi divergences, without a loss distribution.

The function tau(a) = (a - 1) D_a of the order a is convex, and 0 at a = 1. Every such guarantee is
one bound on it,

    tau(a) <= rho a (a - 1) + corners(a)    for 1 < a <= top,

a parabola plus a convex piecewise linear function. The bounds on independent losses add up exactly:
rho, the piecewise linear functions, and the bounds at order 1 (KL) are added, and the smallest top
remains. They hold in both directions. `binary_region` computes the curve that they imply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman.curves.losses.loss import Part
from neyman.numerics.arrays import Array

Order = Fraction | float  # exact, or inf
Corner = tuple[Fraction, Fraction]
ZERO, ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class RenyiBound(Part):
    """Represent a loss with known bounds on its Renyi divergences only, in both directions.

    Args:
        exact_rho: rho of the parabola, exact, at least 0.
        corners: points (order, bound on tau) at which the linear pieces meet, after (1, 0). The
            orders are above 1 and increase, and the bound is convex.
        kl: the bound on D_1 (KL) is exact_rho + kl; at most the slope of the first linear piece.
        top: the largest order with a bound, at least 1; or inf.
        slope: slope of the piecewise linear function beyond the last corner, if top is inf.
    """

    exact_rho: Fraction
    corners: tuple[Corner, ...] = ()
    kl: Fraction = ZERO
    top: Order = math.inf
    slope: Fraction = ZERO

    def linear(self, order: Fraction) -> Fraction:
        """Return the piecewise linear part of the bound on (a - 1) D_a, for 1 <= order <= top."""
        left = (ONE, ZERO)
        for right in self.corners:
            if order <= right[0]:
                share = (order - left[0]) / (right[0] - left[0])
                return left[1] + share * (right[1] - left[1])
            left = right
        return left[1] + self.slope * (order - left[0])

    def divergence(self, order: Order) -> Order:
        """Return the largest divergence of this order that the guarantee allows: exact, or inf."""
        if order == math.inf:
            return self.supremum
        a = Fraction(order)
        if a > self.top:
            return math.inf
        if a == 1:
            return self.exact_rho + self.kl
        return self.exact_rho * a + self.linear(a) / (a - 1)

    def within(self, other: RenyiBound) -> bool:
        """Return True if this guarantees at least as much as ``other``.

        It is enough to compare the two at all corners. Between corners, the difference is convex,
        or the sum of two functions whose signs are decided at the corners.
        """
        if other.top > self.top or self.exact_rho + self.kl > other.exact_rho + other.kl:
            return False
        more = self.exact_rho - other.exact_rho
        if other.top == math.inf and (more > 0 or self.slope > other.slope):
            return False
        places = {a for a, _ in (*self.corners, *other.corners) if a <= other.top}
        if other.top < math.inf:
            places.add(Fraction(other.top))
        more = max(more, ZERO)
        return all(
            more * a * (a - 1) + self.linear(a) <= other.linear(a) for a in places if a > 1
        ) and (bool(places) or more <= 0)

    @property
    def quadratic(self) -> bool:
        """Return True if the bound is rho-zCDP and nothing else."""
        return self.top == math.inf and not self.corners and not self.slope

    @property
    def supremum(self) -> Fraction | float:
        """Return the pure epsilon, or inf if there is none."""
        return math.inf if self.top < math.inf or self.exact_rho else self.slope

    @property
    def rho(self) -> float:
        """Return the largest D_a / a that the guarantee allows; inf if some order has no bound.

        On a linear piece s a + c, the piecewise linear part adds (s a + c) / (a (a - 1)). Its only
        maximum inside the piece is s / (2a - 1), where s a^2 + 2 c a = c. Just above order 1 it is
        the slope of the first piece, for every KL bound.
        """
        if self.top < math.inf:
            return math.inf
        places = [a for a, _ in self.corners]
        lines = zip([(ONE, ZERO), *self.corners], [*self.corners, None], strict=True)
        for left, right in lines:
            s = _slope(left, right) if right else self.slope
            c = left[1] - s * left[0]
            if s > 0 and c < -s:
                inner = Fraction(float(-c / s) * (1 + math.sqrt(1 + s / c)))
                if left[0] < inner and (right is None or inner < right[0]):
                    places.append(inner)
        first = _slope((ONE, ZERO), self.corners[0]) if self.corners else self.slope
        most = max([first, *(self.linear(a) / (a * (a - 1)) for a in places)])
        if self.slope:  # pure, so eps^2 / 2 (Bun and Steinke 2016, proposition 1.4)
            most = min(most, self.slope**2 / 2)
        value = self.exact_rho + most
        near = float(value) * (1 + 1e-12 * bool(self.corners))
        return near if near >= value else math.nextafter(near, math.inf)

    def reverse(self) -> RenyiBound:
        """Return this bound, which covers both directions."""
        return self

    def log_mgf(self, z: Array) -> Array:
        """Return the bound on K(z) = tau(z + 1), for real z >= 0."""
        flat = [z * float(self.divergence(1 + Fraction(z))) for z in np.ravel(z).tolist()]
        return np.array(flat).reshape(np.shape(z))

    def mgf_rounding(self, z: Array) -> Array:
        return np.zeros(np.shape(z))

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return K, mean, and variance of a Gaussian loss with the same KL bound; uncertified."""
        rho = float(self.exact_rho + self.kl)
        return tilts * (tilts + 1) * rho, (2 * tilts + 1) * rho, np.full(len(tilts), 2 * rho)


def from_orders(bounds: Mapping[Order, Fraction]) -> RenyiBound:
    """Return the guarantee that D_a <= bounds[a] at these orders implies for all orders [RB-1].

    Because tau is convex and tau(1) = 0, the lower convex hull of (1, 0) and the points (a, (a - 1)
    bounds[a]) is a bound on tau. This implies that D_a grows with a. The bound at order inf (a pure
    epsilon) bounds the slope of tau everywhere.

    Args:
        bounds: at least one order, each at least 1, or inf; bounds above 0.
    """
    pure = bounds.get(math.inf)
    finite = sorted(Fraction(a) for a in bounds if 1 < a < math.inf)
    hull: list[Corner] = [(ONE, ZERO)]
    for order in finite:
        point = (order, (order - 1) * bounds[order])
        while len(hull) > 1 and _slope(hull[-1], point) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    if pure is not None:
        while len(hull) > 1 and pure <= _slope(hull[-2], hull[-1]):
            hull.pop()
    first = _slope(hull[0], hull[1]) if len(hull) > 1 else pure
    given = [bound for bound in (first, bounds.get(ONE)) if bound is not None]
    top = math.inf if pure is not None else hull[-1][0]
    return RenyiBound(ZERO, tuple(hull[1:]), min(given), top, pure or ZERO)


def _slope(left: Corner, right: Corner) -> Fraction:
    return (right[1] - left[1]) / (right[0] - left[0])


def sum_of_bounds(parts: Iterable[tuple[RenyiBound, int]]) -> RenyiBound | None:
    """Return the sum of ``count`` copies of each guarantee, exactly; None if there are none."""
    chosen = [(loss, n) for loss, n in parts if n]
    if not chosen:
        return None
    top = min(loss.top for loss, _ in chosen)
    orders = {a for loss, _ in chosen for a, _ in loss.corners if a < top}
    if top < math.inf and any(loss.corners or loss.slope for loss, _ in chosen):
        orders.add(Fraction(top))
    orders.discard(ONE)

    def total(ask: Callable[[RenyiBound], Fraction]) -> Fraction:
        return sum((n * ask(loss) for loss, n in chosen), ZERO)

    corners = tuple((a, total(lambda loss, a=a: loss.linear(a))) for a in sorted(orders))
    slope = total(lambda loss: loss.slope) if top == math.inf else ZERO
    return RenyiBound(
        total(lambda loss: loss.exact_rho), corners, total(lambda loss: loss.kl), top, slope
    )
