"""Compute the moments that Renyi guarantees and known losses allow at each order, rounded safely.

The moment tau(a) = (a - 1) D_a is convex in a and 0 at a = 1. Order 1 stands for D_1 (KL), and
order inf for D_inf (the largest loss).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss, OffLatticeLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import above, below


@dataclass(frozen=True)
class Limits:
    """Limits on the orders at which moments are computed and compared."""

    terms: float = 1e5  # most terms of K at an order
    halvings: int = 44  # most halvings of an interval of orders
    intervals: int = 20_000


LIMITS = Limits()


@dataclass(frozen=True)
class Ceiling:
    """Represent a bound on the moment tau at each order, for one direction.

    Args:
        rho: coefficient of the parabola rho a (a - 1).
        orders, values: corners of the piecewise linear part of the bound, from (1, 0).
        slope: slope of the linear part beyond the last corner.
        top: the largest order with a bound.
        kl: bound on D_1.
        largest: bound on D_inf; inf if there is none.
        other: rho of the known losses, another bound on their moments; inf if there is none.
        known: moments of the known losses at ``orders``, convex; None without known losses.
    """

    rho: float
    orders: Array
    values: Array
    slope: float
    top: float
    kl: float
    largest: float
    other: float = math.inf
    known: Array | None = None

    @staticmethod
    def below(bare: RenyiBound) -> Ceiling:
        """Return lower bounds on the moments that the guarantee allows [RB-4].

        Orders are rounded up: moving corners to the right lowers a non-decreasing function. Values
        and slope are reduced by 8 rounding units, because `allowed` rounds each 6 times.
        """
        orders = np.array([1.0, *(above(a) for a, _ in bare.corners)])
        # slack: a_ceiling_lies_on_its_side
        values = np.array([0.0, *(below(tau) for _, tau in bare.corners)]) * (1 - 8 * UNIT)
        rho, kl = below(bare.exact_rho), below(bare.exact_rho + bare.kl)
        slope, top = below(bare.slope) * (1 - 8 * UNIT), above(bare.top)  # slack: counted
        return Ceiling(rho, orders, values, slope, top, kl, below(bare.supremum))

    @staticmethod
    def above(bare: RenyiBound, known: Composition | None = None) -> Ceiling:
        """Return upper bounds on the sum of moments of the guarantee and of known losses [RB-3].

        Only the losses' finite part counts. Chords between any orders are above a convex function.
        Values, slope, and moments of known losses are raised by 8 rounding units, because `allowed`
        rounds each 6 times. Sums and products here round at most 4 times.
        """
        top, rho = below(bare.top), above(bare.exact_rho)
        orders = {1.0, *(min(below(a), top) for a, _ in bare.corners)}
        others = known.parts if known is not None else ()
        normal = [(loss, n) for loss, n in others if isinstance(loss, GaussianLoss)]
        # slack: a_ceiling_from_above
        rho += math.fsum(n * loss.rho for loss, n in normal) * (1 + 8 * UNIT)
        rest = Composition.of(p for p in others if p not in normal)
        trusted = trusted_rho(rest)
        if rest.parts and (added := min(float(top), 1 + _reach(rest, trusted + rho))) > 1:
            # Orders at which moments of known losses are computed.
            orders.update((1 + np.geomspace(1e-3, added - 1, 240)).tolist())
        places = np.array(sorted(orders))
        values = np.array([above(bare.linear(Fraction(a))) for a in places.tolist()])
        # slack: a_ceiling_from_above; counted
        values, slope = values * (1 + 8 * UNIT), above(bare.slope) * (1 + 8 * UNIT)
        if not rest.parts:
            # slack: counted
            kl = above(bare.exact_rho + bare.kl) + (rho - above(bare.exact_rho)) * (1 + 4 * UNIT)
            largest = above(bare.supremum) if not normal else math.inf
            return Ceiling(rho, places, values, slope, top, kl, largest)
        more = np.concatenate([[0.0], loss_moment(rest, places[1:])])
        if np.isfinite(trusted):
            # slack: counted
            more = np.minimum(more, places * (places - 1) * trusted * (1 + 8 * UNIT))
        kl = trusted if len(places) == 1 else min(trusted, more[1] / (places[1] - 1))
        kl = (above(bare.kl) + rho + kl) * (1 + 8 * UNIT)  # slack: counted
        more *= 1 + 8 * UNIT  # slack: counted
        return Ceiling(rho, places, values, slope, top, kl, math.inf, trusted, more)

    @property
    def smooth(self) -> bool:
        """Return True if orders between the corners may give the best bound."""
        return self.rho > 0 or (self.known is not None and self.other < math.inf)

    def allowed(self, a: Array) -> Array:
        """Return the bounds on the moment at orders a (on D_a at orders 1 and inf), or inf."""
        at = np.where(np.isfinite(a), a, 1.0)
        last = self.orders[-1]
        value = np.interp(at, self.orders, self.values) + self.slope * np.maximum(at - last, 0.0)
        value = value + self.rho * at * (at - 1)
        if self.known is not None:
            more = np.interp(at, self.orders, self.known, right=math.inf)
            if self.other < math.inf:
                more = np.minimum(more, self.other * at * (at - 1))
            value = value + more
        value = np.where(a == 1, self.kl, np.where(np.isinf(a), self.largest, value))
        return np.where((a > self.top) & np.isfinite(a), math.inf, value)

    def worth_trying(self, reach: float) -> Array:
        """Return orders at which to start a search, for losses up to about ``reach``."""
        orders = [self.orders]
        if self.smooth:
            scale = self.rho + (self.other if self.other < math.inf else 0.0)
            far = min(max(4.0, 4 * reach / scale), 1e7, self.top - 1)
            if far > 0:
                orders.append(1 + np.geomspace(min(1e-3, far / 2), far, 48))
        if self.largest < math.inf:
            orders.append(np.array([math.inf]))
        return np.unique(np.concatenate(orders))


def trusted_rho(losses: Composition) -> float:
    """Return the proven rho of the normalized finite part, or inf if it is unknown.

    It is unknown if a part has infinite loss (in either order) and infinitely many values. The rho
    of finitely many values already refers to the normalized part.
    """
    for loss, _ in losses.parts:
        partial = loss.infinite or loss.reverse().infinite
        if partial and not isinstance(loss, (FiniteLoss, OffLatticeLoss)):
            return math.inf
    # slack: rho_of_a_sum_of_gaussian_losses
    return losses.rho * (1 + 8 * UNIT)  # [RB-7]


def _reach(losses: Composition, rho: float) -> float:
    """Return the largest a - 1 to use: enough for delta near 1e-300, less if K has many terms."""
    if rho < math.inf:
        scale = rho
    else:
        scale = max(float(losses.moments(np.zeros(1))[2][0]), 1e-12)
    far = min(max(60 / math.sqrt(scale), 4.0), 1e6)
    while far > 1e-2 and losses.places(far, 0.0) > LIMITS.terms:
        far /= 4
    return far


def loss_moment(losses: Composition, a: Array) -> Array:
    """Return upper bounds on (a - 1) D_a of the normalized finite part, at orders a > 1.

    With masses m and n of outcomes that only P and only Q can produce, it is
    K(a - 1) + (a - 1) log(1 - n) - a log(1 - m), K(z) = log E[e^{zL}].
    """
    if not losses.parts:
        return np.zeros(len(a))
    z = a - 1
    with np.errstate(over="ignore", invalid="ignore"):
        k = np.real(losses.log_mgf(z))
        rounding = [(loss.mgf_rounding(z), n) for loss, n in losses.parts]
        each = sum((n * np.where(e < 0.5, e / (1 - e), math.inf) for e, n in rounding), 0 * z)
    m, n = math.log1p(-losses.infinite), math.log1p(-losses.reverse().infinite)
    value = k + each + z * n - a * m
    # slack: the_moment_of_a_gaussian_pair/a
    value = value + 16 * UNIT * (1 + len(losses.parts)) * (np.abs(k) + a * (abs(m) + abs(n)))
    return np.where(np.isfinite(value), np.maximum(value, 0.0), math.inf)


Moments = Callable[[NDArray[np.intp], Array], Array]


def below_ceiling(
    moment: Moments, kl: Array, largest: Array, ceiling: Ceiling
) -> NDArray[np.bool_]:
    """Return True for rows whose convex moments are certified below a ceiling at every order.

    Between two orders, a convex function is below its chord. Compare the chord with the ceiling,
    and halve intervals that fail. Orders a with D_inf <= rho a need no check.

    Args:
        moment: function of (rows, orders above 1) that returns upper bounds on their moments.
        kl: upper bounds on D_1, shape (rows,).
        largest: upper bounds on D_inf, shape (rows,); may be inf.
        ceiling: `Ceiling.below`.
    """
    rho = ceiling.rho
    good = (kl <= ceiling.kl) & (largest <= ceiling.largest)
    tops = np.full(len(kl), ceiling.top)
    if rho:
        with np.errstate(over="ignore"):
            enough = np.maximum(1.01 * largest / rho, 1.01 * ceiling.orders[-1])
        tops = np.minimum(tops, np.maximum(enough, 2.0))
    elif ceiling.top == math.inf:  # D_inf bounds the slope beyond the last corner
        tops = np.full(len(kl), ceiling.orders[-1])
    good &= np.isfinite(tops)
    row: list[NDArray[np.intp]] = []
    low: list[Array] = []
    high: list[Array] = []
    for i in np.flatnonzero(good):
        edges = ceiling.orders[ceiling.orders <= tops[i]]
        if tops[i] > 1:
            if rho:
                grid = cast(Array, 1 + np.geomspace(min(1e-4, (tops[i] - 1) / 2), tops[i] - 1, 48))
                edges = np.concatenate([edges, grid])
            edges = np.unique(np.append(edges, tops[i]))
        row.append(np.full(len(edges) - 1, i, np.intp))
        low.append(edges[:-1])
        high.append(edges[1:])
    if not row:
        return good
    at: NDArray[np.intp] = np.concatenate(row)
    left: Array = np.concatenate(low)
    right: Array = np.concatenate(high)

    def asked(at: NDArray[np.intp], a: Array) -> Array:
        value = np.zeros(len(a))
        inner = a > 1
        value[inner] = moment(at[inner], a[inner])
        return value

    f: Array = asked(at, left)
    g: Array = asked(at, right)
    for _ in range(LIMITS.halvings):
        p, q = _linear(ceiling, left), _linear(ceiling, right)
        # Interpolation errs by 5 units of its rise, rho a (a - 1) by 3 of its size, and two sums
        # and the last product by one each. All terms are at least 0: 8 units of their sum.
        # slack: counted
        good[at[~(g <= (q + rho * right * (right - 1)) * (1 - 8 * UNIT))]] = False  # not met
        if not (len(at) and rho):
            return good  # the ends decide for linear functions
        live = np.isfinite(g) & (right > left)
        at = at[live]
        left, right, f, g, p, q = (v[live] for v in (left, right, f, g, p, q))
        slope: Array = (g - f - (q - p)) / (right - left)
        # The largest f - p + slope (a - left) - rho a (a - 1) between the two orders.
        peak: Array = np.clip((slope / rho + 1) / 2, left, right)
        worst: Array = f - p + slope * (peak - left) - rho * peak * (peak - 1)
        worst = np.where(left == 1, (slope - rho) * (right - 1), worst)
        # The slope times a length errs by 7 units of g + q, interpolation of p and q by 6 of q, the
        # parabola by 4 of its size, and three sums by one each: 16 units of the largest terms.
        worst = worst + 16 * UNIT * (g + q + rho * right * right)  # slack: counted
        again = (worst > 0) & good[at]
        if np.count_nonzero(again) > LIMITS.intervals:
            break
        at = at[again]
        left, right, f, g = (v[again] for v in (left, right, f, g))
        middle: Array = 0.5 * (left + right)
        h = asked(at, middle)
        at = np.concatenate([at, at])
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        f, g = np.concatenate([f, h]), np.concatenate([h, g])
    good[at] = False
    return good


def _linear(ceiling: Ceiling, a: Array) -> Array:
    beyond = np.maximum(a - ceiling.orders[-1], 0.0)
    return np.interp(a, ceiling.orders, ceiling.values) + ceiling.slope * beyond
