"""Compute the privacy loss random variable of one ordered pair (P, Q): L = log dP/dQ under P.

Its distribution follows from the privacy profile delta(x). delta is convex in u = e^x, and its
slope to the right is -Q(L > x). Therefore,

    P(L > x) = delta(x) + e^x Q(L > x),

and Q(L > x) is between minus the slopes of chords of delta on either side of x. For small P(L <=
x), chords of the profile of (Q, P) give an accurate value [PL-1].
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from neyman.curves.divergences.divergence import exponentials, log_moment, renyi_divergence
from neyman.curves.losses.bracket import LossBracket, sides
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss, OffLatticeLoss
from neyman.curves.losses.loss import Loss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.profiles.profile import Interval, Profile
from neyman.curves.profiles.selection import select
from neyman.curves.tradeoff.loss_tails import Tail, tails_of_one
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, common_step
from neyman.numerics.bound import Bound
from neyman.numerics.operations import method_note, question
from neyman.numerics.rounding import down, exp_down, exp_up, up

# Lengths of the chords, in standard deviations up to 1.
CHORD_DEVIATIONS = np.geomspace(1e-9, 0.25, 18)


@dataclass(frozen=True)
class Limits:
    """Limits on the precision of probabilities, moments, and draws of a loss."""

    largest_moment: float = 1e21  # largest E e^{z X} that a variance uses
    least_log: float = -650.0  # log of the smallest number that is accurate in floats
    largest_loss: float = 1e12  # terms of a profile overflow beyond it


LIMITS = Limits()


@dataclass(frozen=True)
class PrivacyLoss:
    """Represent the privacy loss random variable L = log dP/dQ(omega), with omega drawn from P.

    P is the distribution of the output on one dataset and Q on its neighbor. For the reverse order
    (Q, P), use ``f.inverse().loss``. Post-processing does not preserve tail probabilities of L, so
    do not state a guarantee in them (use `Tradeoff.pbdp`).

    Args:
        composition: the independent losses whose sum is L. Get the variable as ``f.loss``.

    Examples:
        >>> import neyman as ny
        >>> loss = (ny.RandomizedResponse(1) * 2).tradeoff().loss
        >>> f"{loss.tail(1):.6f}", f"{loss.mean:.6f}", f"{loss.variance:.6f}", loss.infinite.upper
        ('0.534447', '0.924235', '1.572896', 0.0)
        >>> loss.sample(4, seed=1).tolist()
        [2.0, 2.0, 0.0, 2.0]

    Source: Kifer, Abowd et al. 2022, section 4.
    """

    composition: Composition

    def __post_init__(self) -> None:
        for part, _ in self.composition.parts:
            if not isinstance(part, Loss | LossBracket | NonPrivateLoss):
                raise ValueError(
                    f"loss: only bounds are known about a {type(part).__name__}, and no "
                    "distribution of a privacy loss; ask the curve for epsilon, delta, or power "
                    "instead"
                )

    @question
    def cdf(self, x: float) -> Bound:
        """Return P(L <= x); lower is safe.

        Args:
            x: a loss in nats, any real number, read as the decimal that it prints. If a
                distribution without a lattice has an atom at x, or within rounding of x, the
                interval contains both P(L < x) and P(L <= x), and the method says so.
        """
        (low, high), _, method = self._both(x)
        return Bound(float(low), float(high), "lower", method_note(method))

    @question
    def tail(self, x: float) -> Bound:
        """Return P(L > x), with infinite losses; the upper bound is safe. ``x`` is as for `cdf`."""
        _, (low, high), method = self._both(x)
        return Bound(float(low), float(high), "upper", method_note(method))

    @property
    def infinite(self) -> Bound:
        """Return P(L = inf), the mass of outcomes that reveal all; the upper bound is safe."""
        low, high = self.composition.least.infinite, self.composition.infinite
        revealed = any(isinstance(part, NonPrivateLoss) for part, _ in self.composition.parts)
        if low == high and (not low or revealed):  # another mass of 1.0 is rounded
            return Bound(abs(low), abs(high), "upper", "mass")
        # slack: the_mass_of_infinite_losses
        return Bound(low * (1 - 8 * UNIT), min(high * (1 + 8 * UNIT), 1.0), "upper", "mass")

    @property
    @question
    def mean(self) -> Bound:
        """Return E[L], the Kullback-Leibler divergence of P from Q; the upper bound is safe."""
        if self.composition.infinite:
            return self._endless()
        low, high = renyi_divergence(self.composition, 1.0)
        return Bound(low, high, "upper", "moment generating function")

    @property
    @question
    def variance(self) -> Bound:
        """Return Var(L), or inf if infinite losses have mass; the upper bound is safe."""
        if self.composition.infinite:
            return self._endless()
        low, high = _variance(self.composition)
        return Bound(low, high, "upper", "moment generating function")

    @question
    def mgf(self, t: float) -> Bound:
        """Return the moment generating function E[e^{t L}].

        The upper bound is safe, except for t in (-1, 0).

        Args:
            t: any real number. Above 0, the result is e^{t D}, with D the Renyi divergence of order
                1 + t.

        Returns:
            A `Bound`. For t above 0 it is inf if infinite losses have mass. Below 0 they add
            nothing. Between -1 and 0, a loss that reveals more has a smaller moment, so lower is
            safe.
        """
        t = check.finite("t", t)
        if not t or not self.composition.parts:
            return Bound(1.0, 1.0, "upper", "moment generating function")
        if t > 0 and self.composition.infinite:
            return self._endless()
        # E_P e^{t L} = E_Q e^{-(1 + t) (-L)}: below -1/2 the reverse has the smaller exponent.
        c, z = (self.composition, t) if t > -0.5 else (self.composition.reverse(), -1 - t)
        both = [Composition.of(v) for v in sides(c.parts)]  # equal if no part is a bracket
        logs = [log_moment(one, z) for one in both]
        low, high = min(low for low, _ in logs), max(high for _, high in logs)
        safe = "lower" if -1 < t < 0 else "upper"
        with np.errstate(over="ignore"):  # an overflow gives inf, an upper bound
            ends = np.exp([low, high])
        least = min(float(ends[0]), sys.float_info.max)
        return Bound(down(least, 2), up(float(ends[1]), 2), safe, "moment generating function")

    @question
    def sample(self, count: int, seed: int | None = None) -> Array:
        """Draw losses for a simulation. Do not use them as noise for privacy: use a mechanism.

        Draws interpolate the inverse distribution function. A draw errs by at most 0.001 in
        probability or 0.0002 standard deviations. Draws are exact if the losses are on a lattice.

        Args:
            count: number of draws, at least 0.
            seed: a number gives equal draws at each call; None gives new draws.

        Returns:
            An array of shape ``(count,)``; inf for an outcome that reveals everything.
        """
        chance = np.random.default_rng(seed).random(check.integer("count", count))
        if not self.composition.parts:
            return np.zeros(len(chance))
        certain = 1 - self.composition.infinite
        if certain <= 0:
            return np.full(len(chance), math.inf)
        place, cdf = self._inverse
        losses = np.interp(chance, cdf, place)
        if self._lattice is not None:
            offset, step = map(float, self._lattice)
            losses = offset + step * np.round((losses - offset) / step)
        return np.where(chance < certain, losses, math.inf)

    def _endless(self) -> Bound:
        least = math.inf if self.composition.least.infinite else 0.0
        return Bound(least, math.inf, "upper", "outcomes of infinite loss")

    @property
    def _profile(self) -> Profile:
        return select(self.composition)

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Estimate the mean and standard deviation of the finite part."""
        _, mean, variance = (float(v[0]) for v in self.composition.moments(np.zeros(1)))
        return mean, math.sqrt(max(variance, 0.0))

    @cached_property
    def _lattice(self) -> tuple[Fraction, Fraction] | None:
        """Return the offset and step of a lattice that contains all finite losses, if any."""
        known = [(part, n) for part, n in self.composition.parts if isinstance(part, Loss)]
        steps = [part.step for part, _ in known]
        if not known or len(known) < len(self.composition.parts) or None in steps:
            return None
        step = common_step([s for s in steps if s])
        # Smallest step of a lattice, relative to the loss.
        if float(step) <= 1e-12 * max(map(abs, self._moments)):
            return None
        return sum((n * part.atoms(0.0).offset for part, n in known), Fraction(0)), step

    def _both(self, x: float) -> tuple[Interval, Interval, str]:
        """Return bounds on P(L <= x) and on P(L > x), and the method."""
        check.finite("x", x)
        exact = check.exact("x", x)
        composition = self.composition
        method = self._profile.method
        if composition.infinite < 1 and exact >= composition.supremum:
            mass = self.infinite
            low = down(1 - mass.upper, 1) if mass.upper else 1.0
            high = min(up(1 - mass.lower, 1), 1.0)
            return (low, high), (mass.lower, mass.upper), method
        if composition.least.infinite >= 1 or exact < -composition.reverse().supremum:
            return (0.0, 0.0), (1.0, 1.0), method
        if (lattice := self._lattice) is not None:  # no loss is between two lattice points
            offset, step = lattice
            at = offset + step * ((exact - offset) // step)
            below, beyond = self._on_line(float(at), float(at + step), float(step))
            if not _wide(below, beyond):
                return below, beyond, method
            exact = at + step / 2
        near = min(max(float(exact), -LIMITS.largest_loss), LIMITS.largest_loss)
        if lattice is None and abs(exact) <= LIMITS.largest_loss:
            if len(composition.parts) == composition.parts[0][1] == 1 and (
                known := tails_of_one(composition.parts[0][0], near)
            ):
                beyond, below = known[0]
                return below, beyond, method + _note(below, beyond)
            below, beyond = self._on_line(near, near)
            if not _wide(below, beyond):
                return below, beyond, "contour" + _note(below, beyond)
        below, beyond = self._by_profile(exact, near, lattice is None)
        return below, beyond, method if lattice is not None else method + _note(below, beyond)

    def _by_profile(self, exact: Fraction, near: float, between: bool) -> tuple[Interval, Interval]:
        """Bound P(L <= x) and P(L > x) at ``exact`` by the profile at ``near`` and beside it.

        ``between``: True if x may be a loss.
        """
        ends = [near]
        if between and near != exact:
            ends.append(math.nextafter(near, math.inf if near < exact else -math.inf))
        asked = [self._at(v) for v in ends]
        below = min(v[0][0] for v in asked), max(v[0][1] for v in asked)
        beyond = min(v[1][0] for v in asked), max(v[1][1] for v in asked)
        if exact > LIMITS.largest_loss:  # P(L <= x) is at least, P(L > x) at most, its value there
            below, beyond = (below[0], 1.0), (0.0, beyond[1])
        if exact < -LIMITS.largest_loss:
            below, beyond = (0.0, below[1]), (beyond[0], 1.0)
        return below, beyond

    def _on_line(self, x: float, following: float, step: float = 0.0) -> tuple[Interval, Interval]:
        """Bound P(L <= x) and P(L > x), by an integral over a line for the smaller one [PL-6].

        Without a lattice the bounds also hold for P(L < x) and P(L >= x). P(L <= x) is the tail at
        -x of the loss of (Q, P), under its second distribution P.

        Args:
            x: a loss; if there is a lattice, a lattice point.
            following: the next lattice point, or x.
            step: step of the lattice; 0 for none.
        """
        if not all(isinstance(part, Loss) for part, _ in self.composition.parts):
            return (0.0, 1.0), (0.0, 1.0)
        if x < self._moments[0]:
            low, high = Tail(self.composition.reverse(), -x, 1, step).bounds()
            cdf = exp_down(low), exp_up(high)
            return cdf, _complementary((0.0, 1.0), cdf)
        low, high = Tail(self.composition, following, 0, step).bounds()
        mass = self.infinite
        tail = exp_down(low) + mass.lower, exp_up(high) + mass.upper
        tail = tail[0] * (1 - UNIT), min(tail[1] * (1 + 2 * UNIT), 1.0)  # slack: counted
        return _complementary((0.0, 1.0), tail), tail

    def _at(self, x: float) -> tuple[Interval, Interval]:
        scale = min(self._moments[1] or 1.0, 1.0)
        if self._lattice is not None:
            scale = min(scale, float(self._lattice[1]))
        lengths = scale * CHORD_DEVIATIONS
        delta, slope = _chords(self._profile, x, lengths)
        tail = min(max(delta[0] + slope[0], 0.0), 1.0), min(delta[1] + slope[1], 1.0)
        _, slope = _chords(select(self.composition.reverse()), -x, lengths)
        if x < -LIMITS.least_log:
            size = slope[0] * down(math.exp(x)), slope[1] * up(math.exp(x))
            # A product errs by one unit or the smallest float. The power of e is rounded outward.
            # slack: counted
            cdf = min(max(size[0], 0.0), 1.0), min(up(size[1] * (1 + 4 * UNIT)), 1.0)
            cdf = cdf if slope[1] else (0.0, 0.0)
        else:
            cdf = 0.0, 1.0
        cdf, tail = _complementary(cdf, tail), _complementary(tail, cdf)
        return cdf, tail

    @cached_property
    def _inverse(self) -> tuple[Array, Array]:
        """Return losses and estimates of P(L <= loss), between which draws interpolate."""
        mean, deviation = self._moments
        if not deviation > 0:
            return np.array([mean, mean]), np.array([0.0, 1.0])
        profile, certain = self._profile, 1 - self.composition.infinite

        def log_delta(at: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.nan_to_num(np.mean(profile.log_deltas(at), axis=0), nan=-np.inf)

        def cdf(at: Array, logs: Array) -> Array:
            delta, gap = np.exp(logs), np.minimum(np.diff(at), 700.0)
            drop = -np.diff(delta)
            ahead = np.append(drop / np.expm1(gap), 0.0)
            behind = np.append(ahead[:1], drop / -np.expm1(-gap))
            return np.clip(np.maximum.accumulate(1 - delta - (ahead + behind) / 2), 0.0, certain)

        least, most = -float(self.composition.reverse().supremum), float(self.composition.supremum)
        reach = 12 * deviation
        draw_mass = 1e-17  # a mass that no draw of 53 bits hits
        while reach < 1e6 * deviation:  # standard deviations of the largest draw
            ends = mean + reach * np.array([-1, -0.99, 0.99, 1])
            first, *_, last = cdf(ends, log_delta(ends))
            if first <= draw_mass and last >= certain - draw_mass:
                break
            reach *= 2
        width = reach / 128
        place = np.linspace(max(least, mean - reach) - width, min(most, mean + reach) + width, 257)
        thin = 1e-4 * deviation
        if self._lattice is not None:
            thin = min(thin, float(self._lattice[1]) / 8)
        logs = log_delta(place)
        while True:
            value = cdf(place, logs)
            # Least number of masses between which a draw interpolates.
            wide = (np.diff(value) > 1 / 1000) & (np.diff(place) > thin)
            if not wide.any():
                return place, value
            middle = (place[:-1] + place[1:])[wide] / 2
            at = np.searchsorted(place, middle)
            place, logs = np.insert(place, at, middle), np.insert(logs, at, log_delta(middle))


def _wide(below: Interval, beyond: Interval) -> bool:
    """Return True if bounds on the smaller probability are wider than expected of an integral.

    below, beyond: bounds on P(L <= x) and P(L > x).
    """
    low, high = min(below, beyond, key=lambda ends: ends[1])
    # A smaller probability is not accurate in floats.
    # Relative width of bounds that shows no relevant atom.
    return not high - low <= max(1e-6 * high, 1e-300)


def _note(below: Interval, beyond: Interval) -> str:
    """Return the note for an interval that may contain an atom, or ""."""
    return "; holds P(L < x) and P(L <= x)" if _wide(below, beyond) else ""


def _complementary(one: Interval, other: Interval) -> Interval:
    """Return bounds on a probability, from bounds on it and on its complement."""
    low = max(one[0], 1 - other[1] - UNIT)  # slack: a_probability_from_the_rest
    high = min(one[1], 1 - other[0] + UNIT)  # slack: a_probability_from_the_rest
    return max(min(low, high), 0.0), min(max(low, high), 1.0)


def _chords(profile: Profile, x: float, lengths: Array) -> tuple[Interval, Interval]:
    """Bound delta(x), and -e^x times the slope of delta in e^x at x.

    The slope is between those of the chords right and left of x, whose ``lengths`` are in epsilon.
    """
    right, left = x + lengths, x - lengths
    with np.errstate(all="ignore"):  # far out a profile may return NaN, which bounds nothing
        lower, upper = profile.log_deltas(np.concatenate([[x], right, left]))
    lower, upper = np.nan_to_num(lower, nan=-np.inf, neginf=-np.inf), np.fmin(upper, 0.0)
    unit, n = float(upper[0]), len(lengths)
    if unit == -math.inf:
        return (0.0, 0.0), (0.0, 0.0)
    if unit < LIMITS.least_log:  # only the chord from the left to 0 does not underflow
        # slack: the_slope_of_a_profile_between_its_chords
        longest = -math.expm1(left[-1] - x) * (1 - 16 * UNIT)
        most = exp_up(float(upper[-1])) / longest if longest > 0 else math.inf
        return (0.0, exp_up(unit)), (0.0, most)
    error = 8 * UNIT * (4 + abs(unit))  # slack: the_slope_of_a_profile_between_its_chords
    size = math.exp(unit)
    at = math.exp(lower[0] - unit) * (1 - error), 1 + error
    ahead, behind = np.exp(np.minimum(upper[1:] - unit, 700.0)).reshape(2, n) * (1 + error)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        below = (at[0] - ahead) / np.expm1(right - x) - error
        above = (behind - at[0]) / -np.expm1(left - x) + error
    # expm1 errs by 2 units, and quotient and product by one each. The error above covers them.
    below = np.where(right > x, below, 0.0) * (1 - 16 * UNIT)  # slack: counted
    above = np.where(left < x, above, np.inf) * (1 + 16 * UNIT)  # slack: counted
    slope = max(float(np.nanmax(below)), 0.0) * size, float(np.nanmin(above)) * size
    return (at[0] * size * (1 - error), at[1] * size * (1 + error)), slope


def _variance(c: Composition) -> Interval:
    """Bound Var(L): the sum over losses with few values, and moments of the rest."""
    few = [(x, n) for x, n in c.parts if isinstance(x, FiniteLoss | OffLatticeLoss)]
    rest = Composition.of(part for part in c.parts if part not in few)
    low, high = _variance_by_moments(rest, renyi_divergence(rest, 1.0))
    for loss, n in few:
        least, most = loss.variance()
        low, high = low + n * least, high + n * most
    # slack: counted
    return low * (1 - 4 * len(c.parts) * UNIT), high * (1 + 4 * len(c.parts) * UNIT)


def _variance_by_moments(c: Composition, mean: Interval) -> Interval:
    """Bound Var(L) from moments E[e^{zL}] at small z.

    Let X = L - m, m near the mean. Combine E[2 cosh(j d X) - 2] for j = 1 .. n so that d^2 E[X^2]
    remains, and the next n - 1 terms of the series in d cancel. The remainder has one sign: odd n
    bound E[X^2] from above, even n from below [PL-2]. Var(L) = E[X^2] - (E[L] - m)^2.
    """
    if not c.parts:
        return 0.0, 0.0
    m = 0.5 * (mean[0] + mean[1])
    deviation = math.sqrt(max(float(c.moments(np.zeros(1))[2][0]), 1e-300))
    low, high = 0.0, math.inf
    variance_nodes = 6  # multiples of an order at which a variance uses the moments
    j = np.arange(1, variance_nodes + 1)
    for d in np.geomspace(3e-3, 0.5, 12) / deviation:
        z = d * np.concatenate([j, -j])
        value, error = exponentials(c, z, m)
        if not (np.all(value < LIMITS.largest_moment) and np.all(error < 0.1 * (1 + value))):
            continue
        value, error = value.reshape(2, -1).sum(axis=0), error.reshape(2, -1).sum(axis=0)
        for n in range(1, variance_nodes + 1):
            t = (j[:n] ** 2).astype(float)
            weight = np.array([np.prod([s / (s - r) for s in t if s != r]) / r for r in t])
            total = float(weight @ value[:n]) / d**2
            # slack: counted
            slack = float(np.abs(weight) @ (error[:n] + 8 * UNIT * np.abs(value[:n]))) / d**2
            slack *= 1 + 1e-12
            if n % 2:
                high = min(high, total + slack)
            else:
                low = max(low, total - slack)
    shift = (0.51 * (mean[1] - mean[0])) ** 2
    return max(low - shift, 0.0), high
