"""Compute the privacy profile that Renyi guarantees imply together with known losses.

Outcomes that only P can produce have mass m, and those that only Q can, mass n. P' and Q' are P and
Q conditioned on the others. The best test decides for P on the first outcomes, for Q on the second,
and tests P' against Q' on the others:

    power(level) = m + (1 - m) power'(level / (1 - n)),
    delta(epsilon) = m + (1 - m) delta'(epsilon + log((1 - n) / (1 - m))).

power' and delta' come from `binary_region.Region`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np

from neyman.curves.divergences.binary_region import Region, RegionLine, logs, one_order
from neyman.curves.divergences.envelope import Ceiling
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.profiles.profile import Engine, Interval, Profile, log_delta_below_zero
from neyman.curves.profiles.selection import register, select
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import in_question
from neyman.numerics.rounding import below


@dataclass(frozen=True)
class Limits:
    """Limits on the levels of a profile."""

    log_level: float = 1e15  # largest -log level


LIMITS = Limits()

TANGENT_LOG_ODDS = np.linspace(-120.0, 12.0, 6601)  # log-odds of the tangents' levels
AWAY = np.array([-0.3, -1e-2, -1e-3, -1e-4, 1e-4, 1e-3, 1e-2, 0.3])


class ImpliedProfile(Profile):
    """Compute the profile that bounds on Renyi divergences and known losses imply.

    Args:
        bare: the sum of the guarantees that only bound Renyi divergences.
        known: the sum of the known losses. They enter upper bounds by their divergences. Lower
            bounds use the bare guarantees with the masses of infinite loss, and the known losses
            with a Gaussian mechanism that meets rho-zCDP.
    """

    def __init__(self, bare: RenyiBound, known: Composition) -> None:
        kind = "zCDP" if bare.quadratic else "Renyi bounds"
        self.engine = Engine.RENYI
        self.method = f"{kind}, every order and both directions"
        felt = Composition.of(p for p in known.parts if not _only_masses(p[0]))
        self._reached: Profile | None = None
        if felt.parts:
            self.method += "; other mechanisms entered by their divergences"
            if mu_squared := below(2 * bare.exact_rho):
                one = Composition.of([*known.parts, (GaussianLoss(mu_squared), 1)])
                self._reached = select(one)
        ahead, behind = (Ceiling.above(bare, k) for k in (felt, felt.reverse()))
        least = Ceiling.below(bare)
        self._regions = Region(ahead, behind, least), Region(behind, ahead, least)
        alone = Ceiling.above(bare)
        self._alone = Region(alone, alone, least) if felt.parts else self._regions[0]
        self._pure = ahead.largest
        # slack: counted
        most = 1 - UNIT  # avoids log 0; `_mix_infinite_loss` moves bounds by at least 32 units
        self._infinite = min(known.infinite, most)
        self._missing = min(known.reverse().infinite, most)
        self._keep, self._held = math.log1p(-self._infinite), math.log1p(-self._missing)
        self._tangents = False  # whether tangents at many levels suffice

    def _mix_infinite_loss(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return bounds on log(m + (1 - m) v) from bounds on log v, m the infinite mass [RB-6]."""
        high = np.minimum(high, 0.0)
        if not self._infinite:
            return np.minimum(low, high), high
        m = math.log(self._infinite)
        # slack: a_mass_of_infinite_loss_is_mixed_in
        slack = 8 * UNIT * (4 + abs(m) + abs(self._keep))
        high = np.minimum(np.logaddexp(m, self._keep + high) + slack, 0.0)
        return np.minimum(np.logaddexp(m, self._keep + low) - slack, high), high

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        shift = self._held - self._keep
        # slack: an_epsilon_among_outcomes_that_both_can_produce
        slack = 8 * UNIT * (np.abs(epsilons) + abs(shift)) if shift else 0.0 * epsilons
        low = self._inner(epsilons + shift + slack)[0]
        low, high = self._mix_infinite_loss(low, self._inner(epsilons + shift - slack)[1])
        if self._reached is not None:
            low = np.maximum(low, self._reached.log_deltas(epsilons)[0])
        return np.minimum(low, high), high

    def _inner(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta' at ``epsilons``, and store the bounds for this question."""
        known = in_question((self, "answers"), dict[float, Interval])
        new = np.array([e for e in dict.fromkeys(epsilons.tolist()) if e not in known])
        for forward in (True, False):
            chosen = new[(new >= 0) == forward]
            if not len(chosen):
                continue
            log_delta = np.full((2, len(chosen)), -math.inf)  # delta is 0 beyond the pure epsilon
            inner = np.abs(chosen) < self._pure
            if inner.any():
                log_delta[:, inner] = self._solve(not forward, np.abs(chosen[inner]))
            if not forward:
                log_delta = log_delta_below_zero(chosen, (log_delta[0], log_delta[1]))
            known.update(zip(chosen.tolist(), zip(*map(list, log_delta), strict=True), strict=True))
        both = np.array([known[e] for e in epsilons.tolist()]).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def from_above(self) -> Profile:
        """Return a copy with upper bounds from tangents at fixed levels, without searches."""
        other = copy(self)
        other._tangents = True
        return other

    def _by_lines(self, side: int, epsilons: Array) -> tuple[Array, Array]:
        """Return upper bounds on log delta from two tangents around each epsilon [RB-5].

        Also return True for each epsilon above the log of every tangent's slope.
        """
        line = in_question((self, side), lambda: self._line(side))
        last = len(line.log_slope) - 1
        if last < 0:
            return np.zeros(len(epsilons)), np.ones(len(epsilons), bool)
        following = np.searchsorted(line.log_slope, epsilons, side="right")
        steep, flat = (np.clip(following + k, 0, last) for k in (0, -1))
        bounds = _log_delta_over(line.part(steep), line.part(flat), epsilons)
        return bounds, following > last

    def _line(self, side: int) -> RegionLine:
        line = self._regions[side].tangents(TANGENT_LOG_ODDS)
        order = np.argsort(line.log_slope, kind="stable")
        return line.part(order[np.isfinite(line.log_slope[order])])

    def _solve(self, side: int, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta' at epsilons >= 0, in order (P, Q) if ``side`` is 0, else (Q, P)."""
        region = self._regions[side]
        a, tau = _moments(region)
        if self._tangents:
            best, beyond = self._by_lines(side, epsilons)
            for k in np.flatnonzero((best == 0) | beyond):
                best[k] = min(best[k], one_order(a, tau, float(epsilons[k]))[0])
            return np.full(len(epsilons), -math.inf), best
        guesses = np.array([one_order(a, tau, float(e)) for e in epsilons])
        best, center = guesses[:, 0], _odds(np.clip(guesses[:, 1], -LIMITS.log_level, -0.1))
        x = _search(region, center, lambda ly, lx: _log_gain(ly, lx, epsilons[:, None]))
        line = region.tangents((x[:, None] + AWAY).ravel())
        half = len(AWAY) // 2
        for i in range(half):
            steep = line.part(np.arange(len(x)) * 2 * half + i)
            flat = line.part(np.arange(len(x)) * 2 * half + 2 * half - 1 - i)
            best = np.minimum(best, _log_delta_over(steep, flat, epsilons))
        ly, lx = logs(self._alone.reached(x))[0], logs(x)[0]
        low = _log_gain(ly, lx, epsilons) - 1e-13 * (1 + np.abs(ly))
        return np.where(ly > epsilons + lx, np.minimum(low, best), -math.inf), best

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        levels = np.asarray(log_levels, float)
        shared = levels - self._held
        # `_held` errs by 2 units, the difference by one.
        # slack: counted
        slack = 8 * UNIT * (1 + np.abs(np.maximum(levels, -1e300)) + abs(self._held))
        low, high = np.full(len(levels), -math.inf), np.zeros(len(levels))
        high[levels == -math.inf] = -math.inf
        # A level of log-odds x. At the ends of the float range, the level is 0 or 1.
        upper = shared + slack
        asked = np.isfinite(upper) & (upper < 0)
        region = self._regions[0]
        if asked.any():
            x = _odds(np.maximum(upper[asked], -LIMITS.log_level))
            odds = region.excluded(x)[0]
            high[asked] = np.where(np.isfinite(odds), logs(np.minimum(odds, 1e300))[0], 0.0)
            high[asked] += slack[asked]
        lower = np.minimum(shared - slack, -1e-300)
        # same: lower > - -> lower >= -: A level of exactly e^-log_level may be asked: _odds() has a
        # value there.
        asked = lower > -LIMITS.log_level
        if asked.any():
            x = _odds(lower[asked])
            low[asked] = logs(self._alone.reached(x))[0] - slack[asked]
        low[levels >= 0] = 0.0
        low, high = self._mix_infinite_loss(low, high)
        if self._reached is not None:
            low = np.maximum(low, self._reached.log_powers(levels)[0])
        return np.minimum(low, high), high

    def epsilon_near(self, log_delta: float) -> float:
        """Estimate epsilon at delta: the largest log((power - delta) / level) over levels."""
        m = math.log(self._infinite) if self._infinite else -math.inf
        if log_delta <= m:
            return 1.0
        target = log_delta + math.log(-math.expm1(m - log_delta)) - self._keep
        a, tau = _moments(self._regions[0])
        good = (a > 1) & np.isfinite(a) & np.isfinite(tau)
        if target >= 0 or not good.any():
            return 1.0
        a, tau = a[good], tau[good]
        with np.errstate(over="ignore"):
            each = (tau + a * np.log1p(-1 / a) - np.log(a - 1) - target) / (a - 1)
        best = int(np.argmin(each))
        level = tau[best] - a[best] * (max(float(each[best]), 1e-9) - math.log1p(-1 / a[best]))

        def score(ly: Array, lx: Array) -> Array:
            over = np.minimum(target - ly, -1e-300)
            return np.where(ly > target, ly + np.log(-np.expm1(over)) - lx, ly - target - 1e6)

        region = self._regions[0]
        x = _search(region, _odds(np.array([min(max(level, -LIMITS.log_level), -0.1)])), score)
        # same: logs(x)[0] -> logs(x)[1]: epsilon_near is a guess where a search begins: the answer
        # is certified around any guess.
        ly, lx = logs(region.excluded(x)[0])[0], logs(x)[0]
        return max(float(score(ly, lx)[0]) - self._held + self._keep, 0.0)

    def mu(self) -> Interval | None:
        """Return inf if losses are unbounded (then no G_mu is below the curve), else None."""
        return (math.inf, math.inf) if self._pure == math.inf or self._infinite else None


def _only_masses(loss: Part) -> bool:
    return isinstance(loss, FiniteLoss) and loss.index == (0,)


def _odds(log_level: Array) -> Array:
    """Return the log-odds of a probability below 1, given its logarithm."""
    at = np.minimum(log_level, -1e-15)
    return at - np.log(-np.expm1(at))


def _log_gain(ly: Array, lx: Array, epsilon: Array) -> Array:
    """Return log(y - e^epsilon x) from log y and log x; a very low number if it has no log."""
    over = np.minimum(epsilon + lx - ly, -1e-300)
    gain = ly + np.log(-np.expm1(over))
    return np.where(ly > epsilon + lx, gain, ly - lx - epsilon - 1e9)


def _moments(region: Region) -> tuple[Array, Array]:
    a = region.ahead.worth_trying(1e3)
    return a, region.ahead.allowed(a)


def _search(region: Region, center: Array, score: Callable[[Array, Array], Array]) -> Array:
    """Estimate the levels (log-odds) with the largest unimodal ``score`` (log power, log level).

    The search starts at ``center``. No bound needs exact levels.
    """
    width = np.maximum(0.5, 0.1 * np.abs(center))
    search_levels = 9  # levels per round of a search
    rows, steps = np.arange(len(center)), np.linspace(-1, 1, search_levels)
    for _ in range(40):
        x = center[:, None] + width[:, None] * steps
        y = region.excluded(x.ravel())[0].reshape(x.shape)
        scores = score(logs(np.minimum(y, 1e300))[0], logs(x)[0])
        best = scores.argmax(axis=1)
        inner = (best > 0) & (best < search_levels - 1)
        i = np.clip(best, 1, search_levels - 2)
        f = [scores[rows, np.clip(i + k, 0, search_levels - 1)] for k in (-2, -1, 0, 1, 2)]
        bend = f[1] - 2 * f[2] + f[3]
        # The vertex of a parabola, if the score is nearly one.
        uneven = [f[k] - 3 * f[k + 1] + 3 * f[k + 2] - f[k + 3] for k in (0, 1)]
        even = np.max(np.abs(uneven), axis=0) < 0.03 * np.abs(bend)
        with np.errstate(divide="ignore", invalid="ignore"):
            move = 0.5 * (f[1] - f[3]) / bend
        move = np.where(inner & (np.abs(move) < 1), move, 0.0) * width * (steps[1] - steps[0])
        center = x[rows, best]
        if np.all(inner & (width < 0.2) & (even | (width < 1e-3))):
            return center + move
        width = np.where(inner, np.maximum(width / 3.5, 1e-3 / 2), 3 * width)
    return center


def _log_delta_over(steep: RegionLine, flat: RegionLine, epsilon: Array) -> Array:
    """Return upper bounds on log delta from two tangents, steep and flat, for each epsilon.

    The power at level 0 of a line with slope t' bounds delta(log t'). delta falls and is convex in
    t = e^epsilon, so bounds are interpolated between two slopes. One slope below t suffices.
    """
    unit = np.where(flat.log_y == 0, np.maximum(steep.log_y, -700.0), flat.log_y)
    first, second = steep.intercept(unit), flat.intercept(unit)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        down = -np.expm1(flat.log_slope - epsilon)
        share = down / (np.expm1(np.minimum(steep.log_slope - epsilon, 600.0)) + down)
        between = share * first + (1 - share) * second
    best = np.where(flat.log_slope <= epsilon, second, math.inf)
    alone = steep.log_slope <= epsilon
    best = np.where(alone, np.minimum(best, first), best)
    apart = ~alone & (flat.log_slope < epsilon) & (steep.log_slope - epsilon < 600)
    best = np.where(apart, np.minimum(best, between), best)
    with np.errstate(invalid="ignore", divide="ignore"):
        # The share errs by 6 units, and the sum with `unit` by one of its size. Both lines allow
        # at least 256 units, in proportion to log y. The steep line's y is above half of the flat
        # line's y.
        value = np.log(best) + unit + 16 * UNIT  # slack: counted
    # If rounding errors dominate, the bound is trivial.
    return np.where(best > 0, np.minimum(np.nan_to_num(value, nan=0.0), 0.0), 0.0)


@register(40, "only bounds on Renyi divergences are known about a part")
def _renyi(composition: Composition) -> Profile | None:
    bound = composition.bare
    return None if bound is None else ImpliedProfile(bound, composition.known)
