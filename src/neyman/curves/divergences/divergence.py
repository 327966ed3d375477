"""Certified Renyi divergences of a composition, and its zCDP parameter."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from neyman.curves.divergences.envelope import Ceiling, below_ceiling, trusted_rho
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.profiles.profile import Interval
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import above, down, up

MOST_PLACES = 1e5  # terms of K that an order may take


def renyi_divergence(c: Composition, order: float | Fraction) -> Interval:
    """Bounds on D_order = K(order - 1) / (order - 1); KL is the slope of K at 0.

    A bare guarantee adds what it allows. From below it adds what a Gaussian attains, where it is
    zCDP and nothing else, or the coins x and 1 - x that keep it.
    """
    if (bare := c.bare) is not None:
        near = float(order)
        away = math.nextafter(near, 1.0 if near > order else math.inf)
        ends = {near, near if near == order else away}
        low = renyi_divergence(c.known, min(ends))[0]
        high = renyi_divergence(c.known, max(ends))[1]
        most = above(bare.divergence(Fraction(order)))
        reached = min(_attained(bare, order), most)
        sure = low + reached
        if high and sure < math.inf:
            sure = down(sure, 1)
        return sure, up(high + most, 1) if high else most
    if not c.parts:
        return 0.0, 0.0
    order = float(order)

    def k(z: float) -> float:
        return float(np.real(c.log_mgf(np.array([z], dtype=float)))[0])

    def rounding(z: float) -> float:
        at = np.array([z])
        each = math.fsum(n * float(loss.mgf_rounding(at)[0]) for loss, n in c.parts)
        return each + 16 * UNIT * (1 + len(c.parts)) * abs(k(z))

    if order > 1 and c.places(order - 1, 0.0) > MOST_PLACES:
        # So far out K is a sum too long; D_a grows with a and is at most a rho.
        low = renyi_divergence(c, 1 + (order - 1) / 10)[0]
        return low, min(up(order * zcdp_above(c), 4), up(float(c.supremum), 2))
    if order > 1:
        z = order - 1
        value, error = k(z) / z, rounding(z) / z
    else:
        # K is convex, so its slope at 0 lies between the chords on either side; their distance
        # grows with d, the rounding falls with it.
        d = min(1e-2, math.sqrt(rounding(1e-3) / max(float(c.moments(np.zeros(1))[2][0]), 1e-300)))
        d = max(d, 1e-8)
        value, error = 0.5 * (k(d) - k(-d)) / d, 0.5 * abs(k(d) + k(-d)) / d
        error += (rounding(d) + rounding(-d)) / d
    # D_a is at most the largest loss, and never negative.
    high = min(value + error, up(float(c.supremum), 2))
    return min(max(value - error, 0.0), high), high


def zcdp_above(c: Composition) -> float:
    """A proven rho with D_a(P||Q) <= a rho, for a pair without infinite loss.

    What only Q can produce, of mass n, adds log 1 / (1 - n) to the divergence from the rest.
    """
    missing = c.reverse().infinite
    return trusted_rho(c) - math.log1p(-missing) if missing else c.rho


def _attained(bare: RenyiBound, order: float | Fraction) -> float:
    """Lower bound: a Renyi divergence attained by some pair that satisfies the guarantee."""
    exact = bare.divergence(Fraction(order))
    if exact == math.inf or not (bare.corners or bare.kl):
        # Beyond the top nothing bounds it; up to there a Gaussian keeps the parabola.
        return down(float(exact), 1) if exact < math.inf else math.inf
    ceiling = Ceiling.below(bare)

    def moment(odds: float, a: Array) -> Array:
        """(a - 1) D_a of the coins with these log-odds and minus them: randomized response."""
        z, p = a - 1, 1 / (1 + math.exp(-odds))
        log_q = -odds - math.log1p(math.exp(-odds))
        return np.logaddexp(math.log(p) + z * odds, log_q - z * odds)

    def possible(odds: float) -> bool:
        kl = np.array([odds * math.tanh(odds / 2) * (1 + 1e-14)])
        largest = np.array([odds])
        return bool(
            below_ceiling(
                lambda _, a: moment(odds, a) + 1e-14 * (1 + a * odds), kl, largest, ceiling
            )[0]
        )

    low, high = 0.0, 1.0
    while possible(high) and high < 700:
        low, high = high, 2 * high
    low = bisect(possible, low, high, rounds=40)[0]
    if order == 1:
        return low * math.tanh(low / 2) * (1 - 1e-14)
    bound = float(moment(low, np.array([float(order)]))[0]) - 1e-14 * (1 + order * low)
    return max(bound / (order - 1), 0.0)
