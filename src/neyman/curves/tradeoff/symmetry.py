"""Combine the two orders of a pair: the inverse, both orders together, and the conjugate.

T(Q, P) is the inverse of T(P, Q). If a curve holds for every ordered pair of neighbors, (S, S') and
(S', S), so does its inverse, and the larger of both. If it holds for one order, only the smaller of
both holds for either. The largest convex curve below this minimum composes.
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.user_pair import resting_on
from neyman.curves.tradeoff.enclosure import enclosed
from neyman.curves.tradeoff.piecewise_linear import (
    Pair,
    composition_between,
    hull,
    mirrored,
    smallest,
)
from neyman.numerics import check
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound

if TYPE_CHECKING:
    from neyman.curves.tradeoff.curve import Curve


def mutual(f: Curve) -> Curve:
    """Return max{f, f^-1}: see `Tradeoff.mutual`."""
    if not f.ordered:
        return f
    curves = [joined_composition(f)] if f.joined else list(f.alternatives)
    if len(curves) == 1 and curves[0].reverse() == curves[0]:
        return f.replace(curves)
    sides = [enclosed(c) for c in curves]
    pairs = [
        curves[i]
        if i == j and curves[i].reverse() == curves[i]
        else resting_on(curves, composition_between(_larger_curve(sides[i], sides[j])))
        for i, j in combinations_with_replacement(range(len(curves)), 2)
    ]
    return f.replace(pairs)


def _larger_curve(ahead: Pair, behind: Pair) -> Pair:
    """Return max{f, g^-1}, from polygons of f (``ahead``) and g (``behind``) [TC-5].

    It has the smaller power at each level.
    """
    below = smallest(ahead[0], mirrored(behind[0]))
    if ahead[0] is ahead[1] and behind[0] is behind[1]:
        return below, below
    return below, smallest(ahead[1], mirrored(behind[1]))


def joint(curves: tuple[Composition, ...]) -> Pair:
    """Return the largest convex curve below several, between two polygons."""
    sides = [enclosed(c) for c in curves]
    below = hull(corner for low, _ in sides for corner in low)
    if all(low is high for low, high in sides):
        return below, below
    return below, hull(corner for _, high in sides for corner in high)


def joined_composition(f: Curve) -> Composition:
    """Return one loss whose curve is below all curves of ``f``, in place of joined pairs."""
    curves = f.directions
    if len(curves) == 1:
        return curves[0]
    return resting_on(curves, composition_between(joint(curves)))


def conjugate(f: Curve, slope: float) -> Bound:
    """Return the convex conjugate f*(slope): see `Tradeoff.conjugate`."""
    slope = check.finite("slope", slope)
    if slope >= 0:
        return Bound(slope, slope, "upper", "closed form")
    epsilon = math.log(-slope)
    error = 4 * UNIT * (1 + abs(epsilon))  # slack: the_conjugate_of_a_curve
    low = max(p.log_delta(epsilon + error)[0] for p in f.profiles)
    high = max(p.log_delta(epsilon - error)[1] for p in f.profiles)
    # f*(y) >= y - f(1) and f(1) = 0. f*(y) >= -f(0) [TC-8]. The value of expm1 is at most 1 in size
    # and errs by 2 units. The product before it adds less than one unit.
    # slack: counted; the_conjugate_of_a_curve
    least = max(math.expm1(low * (1 + 2 * UNIT)) - 4 * UNIT, slope, -1.0)
    # slack: counted; the_conjugate_of_a_curve
    most = min(math.expm1(min(high, 0.0) * (1 - 2 * UNIT)) + 4 * UNIT, 0.0)
    return Bound(min(least, max(most, slope)), max(most, slope), "upper", f.method)
