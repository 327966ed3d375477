"""Compute the guarantee for groups: datasets that differ in several units.

Datasets that differ by k people are k steps between neighbors apart. A test of level a has at most
power m(a) after one step, m(m(a)) after two, and so on (Dong, Roth and Su 2022, theorem 2.14). If a
step may add or remove a person, m is the larger of both powers. A `Tradeoff` of one pair can only
claim the concave hull of m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, log1p
from typing import TYPE_CHECKING

from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import MOST_EPSILON, PERFECT, FiniteLoss, response_loss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.losses.user_pair import resting_on
from neyman.curves.tradeoff.enclosure import exponential_above
from neyman.curves.tradeoff.float_polygon import after_rounded, thinned
from neyman.curves.tradeoff.piecewise_linear import LIMITS as PIECEWISE_LINEAR_LIMITS
from neyman.curves.tradeoff.piecewise_linear import (
    Pair,
    Polygon,
    after,
    composition_between,
    envelope,
    mirrored_line,
    polygon_loss,
    rounded,
    shortened,
    smallest,
)
from neyman.curves.tradeoff.symmetry import joint
from neyman.numerics import check
from neyman.numerics.rounding import above, up

if TYPE_CHECKING:
    from neyman.curves.tradeoff.curve import Curve


@dataclass(frozen=True)
class Limits:
    """Limits on the parameters of a group. Beyond them, Neyman claims no privacy."""

    rho: int = 10**12
    epsilon: int = 20_000  # e^epsilon is an exact number of 9,000 digits


LIMITS = Limits()

FAR = "beyond what is told apart"
UNKNOWN = LossBracket(PERFECT, NonPrivateLoss(), FAR)


def group(f: Curve, size: int) -> Curve:
    """Return the curve for data that differ in ``size`` units: see `Tradeoff.group`."""
    size = check.integer("size", size, 1)
    if f.ordered:
        raise ValueError(
            "f is the curve of one ordered pair of neighbors, and a group can join or leave. If f "
            "bounds every ordered pair of neighbors, use f.mutual().group(size). If it bounds one "
            "order only, use f.symmetric().group(size)"
        )
    if size == 1:
        return f
    curves = f.directions
    closed = _closed_form_group(curves[0], size) if len(curves) == 1 else None
    if closed is None:
        below, above = _repeat(joint(curves), size)
        closed = composition_between((below, above))
        if above[0][1]:  # nothing is claimed about levels below `least_level`
            closed = _within_pure(closed, above, curves, size)
        closed = resting_on(curves, closed)
    return f.replace([closed])


def _within_pure(
    group: Composition, above: Polygon, curves: Sequence[Composition], size: int
) -> Composition:
    """Return the group's curve between polygons, within ``size`` times the largest loss, if any."""
    if any(c.infinite or c.reverse().infinite for c in curves):
        return group
    epsilon = size * max(max(c.supremum, c.reverse().supremum) for c in curves)
    loss = group.parts[0][0]
    if epsilon > LIMITS.epsilon or not isinstance(loss, LossBracket):
        return group
    power = exponential_above(Fraction(epsilon))
    pure = envelope([(power, Fraction(0)), mirrored_line(power, Fraction(0))])
    most = polygon_loss(smallest(above, pure)).parts
    upper = most[0][0] if most else PERFECT
    return Composition.of([(LossBracket(loss.lower, upper, loss.how), 1)])


def _bare_rho(curve: Composition, bare: RenyiBound) -> Fraction:
    """Return rho of a curve with a bare guarantee; a group has k^2 rho, bare, too.

    Source: Bun and Steinke 2016, proposition 1.9.
    """
    known = Fraction(up(curve.known.rho)) if curve.known.parts else Fraction(0)
    return known + (bare.exact_rho if bare.quadratic else Fraction(bare.rho))


def _closed_form_group(curve: Composition, size: int) -> Composition | None:
    """Return the curve of a group if a formula gives it, else None."""
    if not curve.parts or isinstance(curve.parts[0][0], NonPrivateLoss):
        return curve
    if curve.bare is not None and not curve.infinite and curve.rho < inf:
        rho = _bare_rho(curve, curve.bare) * size**2
        return Composition.of([(RenyiBound(rho) if rho <= LIMITS.rho else UNKNOWN, 1)])
    loss, count = curve.parts[0]
    if len(curve.parts) > 1 or count > 1:
        return None
    mu_squared = Fraction(10**12)
    if isinstance(loss, GaussianLoss):
        square = Fraction(loss.mu_squared) * size**2
        if square <= mu_squared:
            return Composition.of([(GaussianLoss(float(square)), 1)])
        nearly = LossBracket(GaussianLoss(float(mu_squared)), NonPrivateLoss(), FAR)
        return Composition.of([(nearly, 1)])
    if isinstance(loss, FiniteLoss) and not loss.infinite and loss.index == (-1, 1):
        epsilon = loss.supremum * size
        if epsilon <= MOST_EPSILON:
            return Composition.of([(response_loss(epsilon), 1)])
    if isinstance(loss, FiniteLoss) and loss.failure == loss.missing and loss.index == (0,):
        delta = above(Fraction(loss.failure) * size)  # power <= level + delta
        if delta >= 1:
            return Composition.of([(NonPrivateLoss(), 1)])
        return Composition.of([(FiniteLoss(loss.lattice, (0,), (log1p(-delta),), delta, delta), 1)])
    return None


def _repeat(m: Pair, times: int) -> Pair:
    """Return m(m(...)), ``times`` times, as polygons below and above [TC-7]."""
    power, square = None, m if m[0] is m[1] else (rounded(m[0], -1), rounded(m[1], 1))
    while True:
        if times & 1:
            power = square if power is None else _after(power, square)
        times >>= 1
        if not times and power is not None:
            return power
        longer = _after(square, square)
        if longer == square:  # more steps change nothing
            return square if power is None else _after(power, square)
        square = longer


def _after(first: Pair, second: Pair) -> Pair:
    """Return second(first(level)) as polygons below and above, exactly if both are exact.

    Long results are rounded.
    """
    if first[0] is first[1] and second[0] is second[1]:
        exact = after(first[0], second[0])
        return shortened((exact, exact))
    both = [
        (rounded(pair[0], -1), rounded(pair[1], 1)) if pair[0] is pair[1] else pair
        for pair in (first, second)
    ]
    below, above = (
        after_rounded(one, other, side) for one, other, side in zip(*both, (-1, 1), strict=True)
    )
    return _limit_corners(below, -1), _limit_corners(above, 1)


def _limit_corners(polygon: Polygon, side: int) -> Polygon:
    """Return a polygon on the same side with at most about `PIECEWISE_LINEAR_LIMITS.corners`."""
    while len(polygon) > PIECEWISE_LINEAR_LIMITS.corners:
        fewer = thinned(polygon, side)
        if len(fewer) == len(polygon):
            break
        polygon = fewer
    return polygon
