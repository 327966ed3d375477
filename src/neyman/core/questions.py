"""The searches behind the questions that a trade-off function answers, and their rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from neyman.core.bare import BareLoss
from neyman.core.moments import Ceiling, keeps, trusted_rho
from neyman.numerics import check
from neyman.numerics.atoms import UNIT
from neyman.numerics.profile import Interval, Profile
from neyman.numerics.roots import falls_to

if TYPE_CHECKING:
    from neyman.core.composition import Composition

__all__ = [
    "down", "epsilon_at", "exp_down", "exp_up", "log_of", "log_probability", "pbdp_delta",
    "renyi_divergence", "sampled_mu", "settled", "up", "within", "zcdp_above",
]  # fmt: skip

Array = NDArray[Any]
MOST_PLACES = 1e5  # terms of K that an order may take
TIGHT = 1e-12  # relative tolerance of an epsilon that a search finds
FARTHEST = 1e12  # an epsilon beyond which only masses of infinite loss are told apart


def exp_up(value: float) -> float:
    """A probability that is certainly at least e^value; exactly 0 for what is certainly 0."""
    if value == -math.inf:
        return 0.0
    return min(up(math.exp(min(value, 0.0) * (1 - 2 * UNIT))), 1.0)


def exp_down(value: float) -> float:
    """A probability that is certainly at most e^value."""
    return down(math.exp(min(value, 0.0) * (1 + 2 * UNIT)))


def log_of(value: float) -> float:
    """The logarithm, -inf of 0."""
    return math.log(value) if value > 0 else -math.inf


def up(x: float, steps: int = 2) -> float:
    """So many floats up."""
    for _ in range(steps):
        x = math.nextafter(x, math.inf)
    return x


def down(x: float, steps: int = 2) -> float:
    """So many floats down, but not below 0."""
    for _ in range(steps):
        x = math.nextafter(x, -math.inf)
    return max(x, 0.0)


def log_probability(name: str, value: float | None, logarithm: float | None) -> float:
    """The logarithm of a probability that is given as itself or as its logarithm."""
    if (value is None) == (logarithm is None):
        raise ValueError(f"give exactly one of {name}= and log_{name}=")
    if value is not None:
        number = check.probability(name, value)
        return math.log(number) if number > 0 else -math.inf
    if isinstance(logarithm, float) and logarithm == -math.inf:
        return -math.inf
    number = check.finite(f"log_{name}", logarithm)
    if number > 0:
        raise ValueError(f"log_{name} = {logarithm!r} must be at most 0")
    return number


def settled(log_level: float, low: float, high: float) -> Interval:
    """Bounds on log power: at least the level, whose logarithm is rounded."""
    if log_level == -math.inf:
        return low, high
    slack = 2 * UNIT * (1 + abs(log_level))  # log power moves by at most as much as the level's
    high = min(max(high, log_level) + slack, 0.0)
    return min(max(low, log_level) - slack, high), high


def within(mass: float, delta: float | None, log_delta: float) -> bool:
    """Whether a mass of infinite loss fits into delta."""
    return mass <= delta if delta is not None else log_of(mass) <= log_delta


def epsilon_at(profile: Profile, target: float, supremum: Fraction | float) -> Interval:
    """Bounds on the smallest epsilon >= 0 with log delta <= target; at most the supremum.

    Each end inverts its own side of the profile to a relative 1e-12, and on the safe side: the
    profile's upper bound of delta at the upper end is within the target.
    """
    # The logarithm of delta is rounded: each side is asked for a little more than it.
    slack = 2 * UNIT * (1 + abs(target))
    most = float(supremum)
    most = most if most >= supremum else math.nextafter(most, math.inf)
    near = min(max(profile.epsilon_near(target), 1e-9), FARTHEST)
    if near * (1 + 1e-6) < most and (ends := _secant(profile, target, slack, near)) is not None:
        return ends

    def ask(epsilon: float, side: int) -> float:
        value = profile.log_delta(epsilon)[side]
        return value + slack if side else value - slack

    def crossing(side: int) -> tuple[float, float]:
        if ask(0.0, side) <= target:
            return 0.0, 0.0
        low, high = (0.0, near) if near == 1.0 else (near * (1 - 1e-3), near * (1 + 1e-3))
        grow = max(high - low, 1e-3)
        while ask(high, side) > target:
            low, high, grow = high, min(high + grow, most), 2 * grow
            if low >= most or high > FARTHEST:
                return min(low, most), most
        while low > 0 and ask(low, side) <= target:
            low, high, grow = max(low - grow, 0.0), low, 2 * grow
        return falls_to(lambda e: ask(e, side), target, low, high, TIGHT, floor=1e-9)

    low, high = crossing(1)
    high = min(high, most)
    if low < high and ask(low, 0) > target:
        return low, high  # one bracket certifies both ends
    return min(crossing(0)[0], high), high


def _secant(profile: Profile, target: float, slack: float, near: float) -> Interval | None:
    """The same where the guess is good: secants find both ends, and four questions certify them."""
    step, half = 1e-7 * near, TIGHT * near / 4
    shift = np.array([-slack, slack])[:, None] - target
    first, last = (np.array(profile.log_deltas(near + np.array([-step, step]))) + shift).T
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = (first - last) / (2 * step)
        ends = near - step + first / slopes
    if not np.all(slopes > 0):
        return None
    for _ in range(4):
        if not np.all(np.abs(ends - near) <= 10 * step):
            return None
        places = np.array([ends - half, ends + half])
        below, above = (found.reshape(2, 2) for found in profile.log_deltas(places.ravel()))
        excess = np.array([below[:, 0], above[:, 1]]) + shift  # a row for each side
        if np.all(excess[:, 0] > 0) and np.all(excess[:, 1] <= 0):
            high = float(places[1, 1])
            return min(max(float(places[0, 0]), 0.0), high), high
        ends = ends + excess.mean(axis=1) / slopes
    return None


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
        most = bare.divergence(Fraction(order))
        above = float(most)
        above = above if above >= most else math.nextafter(above, math.inf)
        reached = min(_attained(bare, order), above)
        sure = low + reached
        if high and sure < math.inf:
            sure = down(sure, 1)
        return sure, up(high + above, 1) if high else above
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


def _attained(bare: BareLoss, order: float | Fraction) -> float:
    """A divergence of this order that some pair has which keeps the bounds."""
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

    def kept(odds: float) -> bool:
        kl = np.array([odds * math.tanh(odds / 2) * (1 + 1e-14)])
        largest = np.array([odds])
        return bool(
            keeps(lambda _, a: moment(odds, a) + 1e-14 * (1 + a * odds), kl, largest, ceiling)[0]
        )

    low, high = 0.0, 1.0
    while kept(high) and high < 700:
        low, high = high, 2 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    if order == 1:
        return low * math.tanh(low / 2) * (1 - 1e-14)
    found = float(moment(low, np.array([float(order)]))[0]) - 1e-14 * (1 + order * low)
    return max(found / (order - 1), 0.0)


def sampled_mu(profile: Profile) -> float:
    """The largest certified z(power) - z(level) over a set of levels."""
    log_levels = np.log(np.concatenate([np.geomspace(1e-12, 0.1, 12), [0.2, 0.3, 0.4, 0.5]]))
    low = np.minimum(profile.log_powers(log_levels)[0], 0.0)
    sure = low < 0
    found = ndtri_exp(low[sure]) - ndtri_exp(log_levels[sure])
    return max(0.0, float(found.max())) if sure.any() else 0.0


def pbdp_delta(profile: Profile, epsilon: float) -> Interval:
    """Bounds on the largest power at which power / level still exceeds e^epsilon."""

    def excess(side: int) -> Callable[[float], float]:
        return lambda log_level: profile.log_power(log_level)[side] - log_level

    results = []
    for side in (0, 1):
        ask = excess(side)
        low = -1.0
        while ask(low) <= epsilon and low > -1e6:
            low *= 2
        if ask(low) <= epsilon:
            # Not above e^epsilon down to this level: power is at most e^epsilon times it there.
            least = profile.log_power(-math.inf)[side]
            results.append(max(least, low + epsilon) if side else least)
            continue
        if ask(-1e-9) > epsilon:
            results.append(0.0 if side else profile.log_power(-1e-9)[0])
            continue
        left, right = falls_to(ask, epsilon, low, -1e-9)
        results.append(profile.log_power(right if side else left)[side])
    return min(exp_down(results[0]), exp_up(results[1])), exp_up(results[1])
