"""Answer questions about a trade-off function of ordered pairs, with certified bounds.

Each answer is for the worst pair [WD-1]. To compute a pair's curve takes time, but a proven mu
gives a Gaussian curve below it at no cost. `supremum` asks the pair with the largest mu first. It
skips a pair if even this Gaussian curve gives no worse answer than another pair certainly has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from neyman import notebook
from neyman.curves.divergences.divergence import renyi_divergence, zcdp_above
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.external_pld import ExternalPld
from neyman.curves.losses.user_pair import user_pairs
from neyman.curves.profiles.closed_forms.closed_form import GaussianProfile
from neyman.curves.profiles.combination import ConvexHullProfile
from neyman.curves.profiles.profile import Interval, Profile
from neyman.curves.profiles.selection import select
from neyman.curves.tradeoff.affinity import affinity
from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.group import group
from neyman.curves.tradeoff.loss_variable import PrivacyLoss
from neyman.curves.tradeoff.nearest_gaussian import NearestGaussian, nearest_gaussian
from neyman.curves.tradeoff.order import admits, at_least, excess
from neyman.curves.tradeoff.queries import LIMITS as QUERY_LIMITS
from neyman.curves.tradeoff.queries import (
    PRIOR_OF_SUCCESS,
    concave_power,
    deltas_at,
    epsilon_at,
    epsilons_at,
    level_slack,
    pbdp_delta,
    sampled_mu,
    settled,
    surely_within,
    target_slack,
    within,
)
from neyman.curves.tradeoff.safe_mu import HalfCurve, Range, SafeMu, level_range
from neyman.curves.tradeoff.symmetry import conjugate, joined_composition, mutual
from neyman.elements import Node
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound, directed
from neyman.numerics.check import log_probability
from neyman.numerics.operations import limit, method_note, question
from neyman.numerics.raw_values import array_of
from neyman.numerics.relation import Relation, unified
from neyman.numerics.rounding import above, below, down, exp_down, exp_up, log_of, up

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SHOWN_LEVELS = (1e-3, 3e-3, 0.01, 0.02, 0.04, 0.07, 0.11, 0.16, 0.23, 0.32, 0.43, 0.56, 0.7, 0.85)
"""Levels of the small curve of power in a notebook.

Lines between its points are below the curve.
"""


@dataclass(frozen=True)
class Limits:
    """Limits on a curve, and on its text."""

    # log power above which 1 - power needs more digits of the level
    complement_log_power: float = -1e-4
    largest_mu: float = 1e3  # above it, no Gaussian curve stands for a pair
    alternatives: int = 256
    count: int = 10**18  # factors of a product


LIMITS = Limits()

Pair = tuple[Composition, Profile, Profile | None]
"""Losses of an ordered pair, its profile, and a Gaussian profile that bounds it, or None."""


def mu_above(losses: Composition, profile: Profile) -> float:
    """Return a proven GDP parameter of an ordered pair without a search, or inf if none."""
    if _singular(losses):
        return math.inf
    mu = profile.mu()
    return min(up(losses.mu, 4), math.inf if mu is None else mu[1])


def _singular(losses: Composition) -> bool:
    """Return True if one distribution has outcomes that the other cannot produce.

    Then no mu is finite. `Composition.mu` covers only the other outcomes. If Q has outcomes that P
    cannot produce, no loss is infinite, but a test of a level below 1 still has power 1.
    """
    return bool(losses.infinite or losses.reverse().infinite)


def by_decreasing_mu(pairs: Iterable[tuple[Composition, Profile]]) -> tuple[Pair, ...]:
    """Return the pairs with Gaussian profiles that bound them, by decreasing mu.

    One or two pairs keep their order, without such profiles.
    """
    items = list(pairs)
    if len(items) <= 2:
        return tuple((losses, profile, None) for losses, profile in items)
    known = [math.inf if _singular(losses) else up(losses.rough_mu, 4) for losses, _ in items]
    order = sorted(range(len(items)), key=lambda i: -known[i])

    def cover(mu: float) -> Profile | None:
        # Below 1e-9, no Gaussian curve stands for a pair.
        return GaussianProfile(mu) if 1e-9 < mu < LIMITS.largest_mu else None

    return tuple((*items[i], cover(known[i])) for i in order)


def supremum(
    pairs: Iterable[Pair],
    ask: Callable[[Composition, Profile], tuple[Any, Any]],
    within: Callable[[Composition, Profile], tuple[Any, Any]] | None = None,
) -> tuple[Any, Any]:
    """Return bounds (low, high) on the maximum over all pairs of a number, or of each in an array.

    The number, such as delta at an epsilon, grows as privacy gets weaker.

    Args:
        pairs: from `by_decreasing_mu`.
        ask: returns bounds on the number for one pair, from its losses and its profile.
        within: the same, from the losses and the Gaussian profile that bounds the pair; by default
            ``ask``. Pass it if ``ask`` stores lower bounds: those for the Gaussian profile need not
            hold for the pair.
    """
    low: Any = None
    high: Any = None
    within = within or ask
    items = list(pairs)
    for k, (losses, profile, cover) in enumerate(items):
        if low is not None and cover is not None and np.all(within(losses, cover)[1] <= low):
            continue
        if k == len(items) - 1:
            bracket = ask(losses, profile)
        else:
            with limit((len(items) - k) ** -0.3):  # each pair gets a share of the operations
                bracket = ask(losses, profile)
        low = bracket[0] if low is None else _larger(low, bracket[0])
        high = bracket[1] if high is None else _larger(high, bracket[1])
    return low, high


def _larger(a: Any, b: Any) -> Any:
    return np.maximum(cast(Array, a), b) if isinstance(a, np.ndarray) else max(a, b)


@dataclass(frozen=True)
class Tradeoff:
    """Represent a trade-off function: the smallest type II error at each type I error.

    For one ordered pair (P, Q), f(alpha) = inf { type II error : type I error <= alpha } is convex,
    non-increasing, and at most 1 - alpha. A `Tradeoff` covers several pairs (``alternatives``) and
    both orders of each. Every answer is a `Bound` for the worst pair, certified from both sides.

    Args:
        alternatives: the possible losses. Each is a sum of independent losses of one ordered pair.
        joined: True if the pairs are merged into one convex curve (see `symmetric`).
        neighboring: the neighboring relation; "any" if only the curve is known.
        ordered: True if each pair counts only in its given order.

    Examples:
        >>> import neyman as ny
        >>> f = ny.Laplace(scale=1).tradeoff()
        >>> round(float(f.power(level=0.05)), 4), round(float(f.epsilon(delta=1e-6)), 4)
        (0.1359, 1.0)
        >>> f >= ny.pure(1), ny.compare(f, ny.gdp(1))
        (True, 'incomparable')
        >>> round(float((f ** 10).epsilon(delta=1e-6)), 3)
        9.999

    Source: Dong, Roth and Su 2022; Wasserman and Zhou 2010.
    """

    alternatives: tuple[Composition, ...]
    joined: bool = False
    neighboring: Relation = "any"
    ordered: bool = False
    definition: tuple[tuple[str, Fraction], ...] = field(
        default=(), init=False, repr=False, compare=False
    )
    """Exact numbers by name that define a guarantee; () for any other curve."""
    _origin: Tradeoff | None = field(default=None, init=False, repr=False, compare=False)
    """The curve that `inverse` reversed to get this curve, if any."""

    @staticmethod
    def of(
        alternatives: Iterable[Composition], neighboring: Relation = "any", *, ordered: bool = False
    ) -> Tradeoff:
        """Return the curve for the worst of several compositions. Equal compositions count once."""
        distinct = tuple(dict.fromkeys(alternatives))
        if len(distinct) > LIMITS.alternatives:
            raise ValueError(
                f"the sensitivities allow {len(distinct)} combinations of shifts, more than "
                f"{LIMITS.alternatives}; declare fewer shift vectors, or dominate them by "
                "larger ones"
            )
        return Tradeoff(distinct, neighboring=neighboring, ordered=ordered)

    def __getstate__(self) -> dict[str, object]:
        """Return only the fields, because a copy computes its profiles anew."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @cached_property
    def directions(self) -> tuple[Composition, ...]:
        """Return the composition of each ordered pair: both orders, unless ``ordered``."""
        if self.ordered:
            return self.alternatives
        return tuple(dict.fromkeys(c for a in self.alternatives for c in (a, a.reverse())))

    @cached_property
    def _worst_candidates(self) -> tuple[Pair, ...]:
        """Return the pairs for `supremum`, or one pair with a joint profile if they are joined."""
        return by_decreasing_mu(zip(self.directions, self.profiles, strict=False))

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        """Return the privacy profile of each ordered pair."""
        profiles = tuple(select(c) for c in self.directions)
        return (ConvexHullProfile(profiles),) if self.joined and len(profiles) > 1 else profiles

    @property
    def _pairs(self) -> list[tuple[Composition, Profile]]:
        """Return the loss and the profile of each ordered pair, even if the pairs are joined."""
        return [(c, select(c)) for c in self.directions]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Return the uncertified sources of this curve; empty if Neyman certifies all numbers.

        For a pair that a user describes, they are certified if its `statements` are true.
        """
        parts = [loss for c in self.alternatives for loss, _ in c.parts]
        sources = [x.source for x in parts if isinstance(x, ExternalPld)]
        sources += [x.source for part in parts for x in user_pairs(part) if x.source]
        return tuple(dict.fromkeys(sources))

    @cached_property
    def statements(self) -> tuple[str, ...]:
        """Return the user's statements about distributions. All answers hold if these are true."""
        parts = [loss for c in self.alternatives for loss, _ in c.parts]
        return tuple(dict.fromkeys(s for x in parts for u in user_pairs(x) for s in u.statements))

    def _method_text(self, method: str) -> str:
        return method_note("; ".join([*self.sources, method]))

    @property
    def method(self) -> str:
        """Return a text that names the methods of the answers."""
        return method_note("; ".join(dict.fromkeys(p.method for p in self.profiles)))

    def _log_delta(self, epsilon: float) -> Interval:
        least = -math.inf  # lower bound from earlier pairs

        def ask(_: Composition, profile: Profile) -> Interval:
            nonlocal least
            if least > -math.inf and profile.costly:
                most = profile.log_delta_above(epsilon, least)
                if most <= least:
                    return -math.inf, least
            ends = profile.log_delta(epsilon)
            least = max(least, ends[0])
            return ends

        return supremum(self._worst_candidates, ask, lambda _, profile: profile.log_delta(epsilon))

    # Questions

    @question
    def log_delta(self, epsilon: float) -> Bound:
        """Return the natural logarithm of `delta`. It works even if delta underflows."""
        epsilon = check.non_negative("epsilon", epsilon)
        if epsilon > QUERY_LIMITS.largest_epsilon:  # delta falls: the bound there holds beyond
            mass = max(c.least.infinite for c in self.directions)
            high = self._log_delta(QUERY_LIMITS.largest_epsilon)[1]
            # slack: the_mass_of_infinite_losses_is_what_is_left_far_out
            return Bound(log_of(mass) * (1 + 8 * UNIT), high, "upper", self.method)
        low, high = self._log_delta(epsilon)
        return Bound(low, high, "upper", self.method)

    @question
    def delta(self, epsilon: float) -> Bound:
        """Return the smallest delta at epsilon: the hockey-stick divergence of order e^epsilon.

        Args:
            epsilon: at least 0.

        Returns:
            delta in [0, 1]; the upper bound is safe.
        """
        bound = self.log_delta(epsilon)
        return Bound(exp_down(bound.lower), exp_up(bound.upper), "upper", self.method)

    @question
    def affinity(self) -> Bound:
        """Return B(f), the smallest 2 int p q / (p + q) of pairs that are as private as f.

        If an attacker estimates one of two equally likely numbers, 2 d apart, from one output,
        their mean squared error is at least d^2 B(f). B = 1 is perfect privacy, and B = 0 is none.
        For data that differ in k units, ask ``f.group(k).affinity()``.

        Returns:
            B(f) in [0, 1]; lower is safe.

        Examples:
            >>> import neyman as ny
            >>> print(f"{ny.gdp(1).affinity():.4f}", f"{ny.pure(2).affinity():.4f}")
            0.7959 0.4199
        """
        f = self.symmetric() if self.ordered else self
        costly = any(c.bare is not None for c in f.directions)
        return affinity(list(f.profiles), self._method_text("mean of delta"), costly=costly)

    @question
    def deltas(self, epsilons: Iterable[float]) -> list[Bound]:
        """Return `delta` at many epsilons, at little more than the cost of one.

        Nearby epsilons share lines of integration, so an interval may be a few times as wide as
        from `delta`, mostly less than twice. The order of the epsilons does not matter.

        Args:
            epsilons: each at least 0.
        """
        given = check.several("epsilons", epsilons, "[0.5, 1]")
        asked = [check.non_negative("epsilon", v) for v in given]
        answers = {v: self.delta(v) for v in asked if v > QUERY_LIMITS.largest_epsilon}
        places = np.array(sorted({*asked} - {*answers}))
        least = np.full(len(places), -math.inf)  # lower bounds from earlier pairs

        def ask(_: Composition, profile: Profile) -> tuple[Array, Array]:
            nonlocal least
            low, high = np.full(len(places), -math.inf), least.copy()
            wanted = least == -math.inf
            if not wanted.all():  # skip epsilons at which this pair is certainly more private
                wanted[~wanted] = ~surely_within(profile, places[~wanted], least[~wanted])
            if wanted.any():
                low[wanted], high[wanted] = deltas_at(profile, places[wanted])
            least = np.maximum(least, low)
            return low, high

        if len(places):
            low, high = supremum(
                self._worst_candidates, ask, lambda _, profile: profile.log_deltas(places)
            )
            for place, *ends in zip(places.tolist(), low, high, strict=True):
                value = exp_down(float(ends[0])), exp_up(float(ends[1]))
                answers[place] = Bound(*value, "upper", self.method)
        return [answers[v] for v in asked]

    @question
    def deltas_above(self, epsilons: Array) -> Array:
        """Return certified upper bounds on delta at many real epsilons, also below 0."""
        asked = array_of("epsilons", epsilons, "iuf", 1)
        log_deltas = supremum(
            self._worst_candidates, lambda _, p: p.one_sided(1).log_deltas(asked)
        )[1]
        return np.array([exp_up(float(v)) for v in log_deltas])

    @question
    def epsilon(self, delta: float | None = None, *, log_delta: float | None = None) -> Bound:
        """Return the smallest epsilon at delta; the upper bound is safe.

        Args:
            delta: in [0, 1). Zero asks for the pure epsilon, which may be inf.
            log_delta: natural logarithm of delta instead, for deltas that underflow.

        Returns:
            epsilon in [0, inf]; 0 if delta is at least the total variation.
        """
        target = log_probability("delta", delta, log_delta)
        if target == -math.inf:
            return self.pure()
        if target >= 0:
            given = "log_delta = 0" if delta is None else f"delta = {delta!r}"
            raise ValueError(f"{given}: delta must be below 1")

        largest = 0.0  # lower bound on epsilon from earlier pairs

        def ask(losses: Composition, profile: Profile) -> Interval:
            nonlocal largest
            # A pair that meets delta at this epsilon needs no search: its epsilon is no larger.
            less = target - 2 * float(target_slack(target))
            if largest and profile.costly and profile.meets(largest, less):
                return 0.0, largest
            ends = search(losses, profile)
            largest = max(largest, ends[0] if ends[0] < math.inf else 0.0)
            return ends

        def search(losses: Composition, profile: Profile) -> Interval:
            most = self._most_epsilon(losses, delta, target)
            return (math.inf, math.inf) if most is None else epsilon_at(profile, target, most)

        low, high = supremum(self._worst_candidates, ask, search)
        return Bound(max(low, 0.0), max(high, 0.0), "upper", self.method)

    def _most_epsilon(
        self, losses: Composition, delta: float | None, target: float
    ) -> Fraction | float | None:
        """Return an upper bound on a pair's epsilon at delta, or None if no epsilon is enough.

        ``target``: the logarithm of delta.
        """
        if self.joined:
            return self.exact_pure()
        # No finite loss exceeds the supremum. If the mass of infinite loss exceeds delta, no
        # epsilon is enough.
        if within(losses.infinite, delta, target):
            return losses.supremum
        # The relative error is 6 units for the mass and 2 units for each logarithm.
        certain = log_of(losses.least.infinite)
        # slack: no_epsilon_is_enough_only_if_the_infinite_losses_exceed_delta
        return None if certain > target + 8 * UNIT * (1 - target) else math.inf

    @question
    def epsilons(self, deltas: Iterable[float]) -> list[Bound]:
        """Return `epsilon` at many deltas, at little more than the cost of one.

        Nearby deltas share lines of integration, so an interval may be a few times as wide as from
        `epsilon`, mostly less than twice. The order of the deltas does not matter.

        Args:
            deltas: each in [0, 1), as in `epsilon`.
        """
        asked = check.several("deltas", deltas, "[1e-6, 1e-5]")
        logs = [log_probability("delta", v, None) for v in asked]
        at_one = [v for v, log in zip(asked, logs, strict=True) if log >= 0]
        if at_one:
            raise ValueError(f"delta = {at_one[0]!r}: delta must be below 1")
        falling = dict(sorted(zip(logs, asked, strict=True), key=itemgetter(0), reverse=True))
        answers = {-math.inf: self.pure()} if falling.pop(-math.inf, None) is not None else {}
        targets = np.array([*falling])
        largest = np.zeros(len(targets))  # lower bounds from earlier pairs

        def ask(losses: Composition, profile: Profile) -> tuple[Array, Array]:
            nonlocal largest
            low, high = np.zeros(len(targets)), largest.copy()
            wanted = (largest <= 0) | (largest == math.inf)
            if not wanted.all():  # a pair that meets delta at this epsilon needs no search
                less = (targets - 2 * target_slack(targets))[~wanted]
                wanted[~wanted] = ~surely_within(profile, largest[~wanted], less)
            if wanted.any():
                low[wanted], high[wanted] = (v[wanted] for v in search(losses, profile, wanted))
            largest = np.maximum(largest, np.where(low < math.inf, low, 0.0))
            return low, high

        def search(
            losses: Composition, profile: Profile, wanted: Array | None = None
        ) -> tuple[Array, Array]:
            low, high = np.full((2, len(targets)), math.inf)
            tops = [self._most_epsilon(losses, v, log) for log, v in falling.items()]
            for top in dict.fromkeys(tops):
                these = np.array([v == top for v in tops]) & (True if wanted is None else wanted)
                if top is not None and these.any():
                    low[these], high[these] = epsilons_at(profile, targets[these], top)
            return low, high

        if falling:
            low, high = supremum(self._worst_candidates, ask, search)
            for log, *ends in zip(targets.tolist(), low, high, strict=True):
                least, most = (max(float(v), 0.0) for v in ends)
                answers[log] = Bound(least, most, "upper", self.method)
        return [answers[log] for log in logs]

    @question
    def power(self, level: float | None = None, *, log_level: float | None = None) -> Bound:
        """Return the largest true positive rate of a test at this level; the upper bound is safe.

        The answer is for the worst direction at each level, never an average of two directions.

        Args:
            level: false positive rate, in [0, 1].
            log_level: natural logarithm of the level instead.
        """
        low, high = self._log_power(log_probability("level", level, log_level))
        return Bound(exp_down(low), exp_up(high), "upper", self.method)

    @question
    def powers(self, levels: Iterable[float]) -> list[Bound]:
        """Return `power` at many levels, at little more than the cost of one."""
        asked = check.several("levels", levels, "[0.01, 0.05]")
        logs = np.array([log_probability("level", v, None) for v in asked])
        largest = np.full(len(logs), -math.inf)  # lower bounds from earlier pairs

        def ask(_: Composition, profile: Profile) -> tuple[Array, Array]:
            nonlocal largest
            low, high = logs.copy(), np.zeros(len(logs))
            wanted = np.ones(len(logs), bool)
            if profile.costly and np.any(largest > -math.inf):
                high = profile.log_powers_above(logs)
                wanted = ~(high <= largest)
            if wanted.any():
                low[wanted], high[wanted] = profile.log_powers(logs[wanted])
            largest = np.maximum(largest, low)
            return low, high

        low, high = supremum(
            self._worst_candidates, ask, lambda _, profile: profile.log_powers(logs)
        )
        ends = (settled(*v) for v in zip(logs, low, high, strict=True))
        return [Bound(exp_down(a), exp_up(b), "upper", self.method) for a, b in ends]

    @question
    def log_power(self, level: float | None = None, *, log_level: float | None = None) -> Bound:
        """Return the natural logarithm of `power`."""
        low, high = self._log_power(log_probability("level", level, log_level))
        return Bound(low, high, "upper", self.method)

    @question
    def success(self, baseline: float | Fraction | str) -> Bound:
        """Return the largest chance of a right guess about one record; the upper bound is safe.

        It is 1 - f(baseline), where f is the largest convex curve below all pairs in both orders
        [RK-2]. It covers re-identification, attribute inference, and reconstruction: `neyman.risk`
        has the baseline and the conditions of each. Membership at a prior is a different number.

        Args:
            baseline: the best chance of a right guess without the release, above 0 and at most 1.
                The attacker's prior is what they believe after they know all other records.

        Examples:
            >>> import neyman as ny
            >>> print(f"{ny.gdp(1).success(baseline=0.1):.5f}")
            0.38915

        Source: Kulynych et al. 2025.
        """
        exact = check.exact("baseline", baseline)
        if not 0 < exact <= 1:
            raise ValueError(f"baseline = {baseline!r} must be above 0 and at most 1")
        method = self._method_text(f"{self.method}; {PRIOR_OF_SUCCESS}")
        if not any(c.parts for c in self.alternatives):  # perfect: no release changes the chance
            near = float(exact)
            decimal = Fraction(repr(near)) == exact  # then the float stands for the decimal
            ends = (near, near) if decimal else (below(exact), above(exact))
            return Bound(*ends, "upper", method)
        log_level = log_of(above(exact))
        low, high = self._log_power(log_level)
        if not self.joined and len(self.directions) > 1 and log_level < 0:
            low, high = concave_power(self._log_delta, self._log_power, log_level, (low, high))
        # The power T is concave, so T(b) >= T(b') b / b' for the float b' >= the baseline b.
        low -= 4 * UNIT  # slack: counted
        return Bound(min(exp_down(low), exp_up(high)), exp_up(high), "upper", method)

    def _log_power(self, log_level: float) -> Interval:
        low, high = self._power_at(log_level)
        if low < LIMITS.complement_log_power or not -1e300 < log_level < 0:
            return settled(log_level, low, high)
        # The level's rounding may move power by more than 1 - power: ask at both ends of the level.
        less, more = (log_level + side * level_slack(log_level) for side in (-1, 1))
        low = self._power_at(less)[0]
        high = self._power_at(more)[1] if more < 0 else 0.0
        return min(max(low, less), high), high

    def _power_at(self, log_level: float) -> Interval:
        largest = -math.inf  # lower bound on the power from earlier pairs

        def ask(losses: Composition, profile: Profile) -> Interval:
            nonlocal largest
            if log_level > -1e300 and not losses.infinite:
                # log power exceeds the log level by at most the largest loss.
                most = log_level + above(losses.supremum)
                most += 8 * UNIT * (1 + abs(most) + abs(log_level))  # slack: counted
                if most <= largest:
                    return log_level, most
            if largest > -math.inf and profile.costly:
                most = float(profile.log_powers_above(np.array([log_level]))[0])
                if most <= largest:
                    return log_level, most
            low, high = profile.log_power(log_level)
            largest = max(largest, low)
            return low, high

        return supremum(self._worst_candidates, ask, lambda _, cover: cover.log_power(log_level))

    @question
    def __call__(self, alpha: float) -> Bound:
        """Return the type II error 1 - power at type I error ``alpha`` in [0, 1]; lower is safe."""
        level = check.probability("alpha", alpha)
        low, high = self._log_power(log_probability("alpha", level, None))
        least, most = -math.expm1(high), -math.expm1(low)  # accurate also for small errors
        return Bound(max(down(least), 0.0), min(up(most), 1.0), "lower", self.method)

    def advantage(self) -> Bound:
        """Return the total variation distance delta(0), the largest power - level.

        Upper is safe.
        """
        return self.delta(0.0)

    def pure(self) -> Bound:
        """Return the smallest pure epsilon: the largest loss, or inf if an outcome reveals all."""
        value = self.exact_pure()
        near = float(value)
        method = self._method_text("largest loss")
        least = max(math.inf if c.least.infinite else c.least.supremum for c in self.directions)
        if least < value:
            high = near if value == near else up(near, 1)
            return Bound(down(float(least) * (1 - 1e-14)), high, "upper", method)
        if math.isfinite(near) and any(c.rounded for c in self.directions):
            below = near * (1 - 1e-14)  # the supremum is rounded up
            return Bound(below, up(near, 1), "upper", method)
        if value == near:
            return Bound(near, near, "upper", method)
        return Bound(down(near, 1), up(near, 1), "upper", method)

    def exact_pure(self) -> Fraction | float:
        """Return the pure epsilon as an exact rational, or inf."""
        return max(math.inf if c.infinite else c.supremum for c in self.directions)

    @question
    def renyi(self, order: float | Fraction) -> Bound:
        """Return the Renyi divergence D_order of the worse direction; the upper bound is safe.

        Args:
            order: 1 (KL) or above; inf is the pure epsilon.
        """
        if isinstance(order, float) and order == math.inf:
            return self.pure()
        a = check.finite("order", order)
        if a < 1:
            raise ValueError(f"order = {order!r} must be at least 1 (1 is KL, inf is pure)")
        if a > QUERY_LIMITS.largest_epsilon:  # D_a grows with order a, up to the pure epsilon
            least = self.renyi(QUERY_LIMITS.largest_epsilon).lower
            return Bound(least, self.pure().upper, "upper", "largest loss")
        if any(c.infinite for c in self.directions):
            sure = [
                math.inf if c.least.infinite else renyi_divergence(c.least, a)[0]
                for c in self.directions
            ]
            method = self._method_text("outcomes of infinite loss")
            return Bound(max(sure), math.inf, "upper", method)
        low = high = 0.0
        for c in self.directions:
            # A bare guarantee takes the order as written: 1.1 is 11/10.
            asked = check.exact("order", order) if c.bare is not None else a
            below, above = renyi_divergence(c, asked)
            low, high = max(low, below), max(high, above)
        return Bound(low, high, "upper", self._method_text("moment generating function"))

    @question
    def zcdp(self) -> Bound:
        """Return the least rho with D_a <= a rho for all a > 1, both ways; the upper bound is safe.

        The upper end is proven: the sum of the parts' rho. The lower end is the largest D_a / a at
        some orders. The ends coincide if D_1 is the largest: for Gaussian and Laplace noise, on the
        reals and on the integers, for pure epsilon-DP, a bounded range, and sums of these.
        """
        low = high = 0.0
        for c in self.directions:
            if c.infinite:
                low = math.inf if c.least.infinite else low
                return Bound(low, math.inf, "upper", self._method_text("outcomes of infinite loss"))
            if c.bare is not None and c.bare.top < math.inf:
                return Bound(math.inf, math.inf, "upper", "nothing is said of large orders")
            high = max(high, zcdp_above(c))
            if c.parts and math.isfinite(c.rho):
                low = max(
                    low, *(renyi_divergence(c, a)[0] / a for a in (1.0, 1.5, 2.0, 4.0, 16.0, 64.0))
                )
        high = up(high, 4)
        method = self._method_text("sum of the parts' proven rho")
        return Bound(min(low, high), high, "upper", method)

    @overload
    def gdp(self) -> Bound: ...
    @overload
    def gdp(self, levels: tuple[float, float]) -> SafeMu: ...
    @question
    def gdp(self, levels: tuple[float, float] | None = None) -> Bound | SafeMu:
        """Return the smallest mu with f >= G_mu, at all levels or between two ``levels``.

        Without levels, the answer is exact for Gaussian mechanisms and for curves with finitely
        many corners. For other curves, the upper end is the root of the sum of the parts' proven
        mu^2 (inf if there is none), and the lower end is the largest z(power) - z(level) at some
        levels, z the normal quantile. Rare losses decide the answer. It is often far above what
        tests at usual levels can do.

        Args:
            levels: two levels, such as (1e-4, 0.5). The answer is then the largest z(power) -
                z(level) over all levels between them, certified to a relative 1e-6 [SM-1 to SM-4].
                It holds on this range only, so the result is not a `Tradeoff`.
        """
        if levels is not None:
            return self._safe_mu(level_range(levels))
        low = 0.0
        for _, profile in self._pairs:
            mu = profile.mu()
            low = max(low, sampled_mu(profile) if mu is None else mu[0])
        high = self.gdp_above()
        method = self._method_text("largest z(power) - z(level)")
        return Bound(min(low, high), high, "upper", method)

    def _safe_mu(self, levels: tuple[float, float]) -> SafeMu:
        known = 0.0  # lower bound from earlier pairs

        def ask(losses: Composition, profile: Profile) -> Interval:
            nonlocal known
            most = self.gdp_above() if self.joined else mu_above(losses, profile)
            loss = above(losses.supremum)
            halves = [(profile, Range(*levels), loss)]
            if self.ordered:
                halves = [(profile, Range(*levels, false_negatives=False), loss)]
                other = losses.reverse()
                back = self.inverse().profiles[0] if self.joined else select(other)
                halves.append((back, Range(*levels, false_positives=False), above(other.supremum)))
            low = high = 0.0
            for half, asked, largest in halves:
                ends = HalfCurve(half, asked, most, largest).largest_mu(known)
                low, high = max(low, ends[0]), max(high, ends[1])
                known = max(known, low)
            return low, high

        low, high = supremum(
            self._worst_candidates, ask, lambda _, cover: cast(Interval, cover.mu())
        )
        high = min(high, self.gdp_above())
        method = self._method_text("largest z(power) - z(level) under tangents")
        mu = Bound(min(low, high), high, "upper", method)
        return SafeMu(mu, levels, self.ordered, self.sources)

    @question
    def nearest_gaussian(self) -> NearestGaussian:
        """Return the Gaussian curve nearest to this curve in sup distance, and the distance.

        It is a summary for curves on which rare losses put `gdp` far above what most tests can do.
        Its mu is not a guarantee: at some levels, the power exceeds that of G_mu by up to
        ``distance`` (the regret). For a safe mu on a range of levels, use ``gdp(levels=...)``.

        Source: Gomez and others 2025, who report mu with its regret.
        """
        return nearest_gaussian(self.profiles, self._method_text("power at many levels"))

    def gdp_above(self) -> float:
        """Return the upper end of `gdp`, without a search."""
        return max((mu_above(*pair) for pair in self._pairs), default=0.0)

    @question
    def pbdp(self, epsilon: float) -> Bound:
        """Return the delta of probabilistically bounded DP at epsilon; the upper bound is safe.

        delta = sup { 1 - f(a) : 1 - f(a) > e^epsilon a }, or 0 if no level a qualifies, in the
        worse direction. It is the largest mass of outcomes whose average likelihood ratio is above
        e^epsilon (Kifer, Abowd et al. 2022).

        Args:
            epsilon: at least 0.
        """
        at = check.non_negative("epsilon", epsilon)
        if self.exact_pure() <= check.exact("epsilon", epsilon):
            return Bound(0.0, 0.0, "upper", self._method_text("largest loss"))
        low = high = 0.0
        for profile in self.profiles:
            least, most = pbdp_delta(profile, at, low)
            low, high = max(low, least), max(high, most)
        return Bound(low, high, "upper", self.method)

    @property
    def loss(self) -> PrivacyLoss:
        """Return the privacy loss random variable of the pair (P, Q). For (Q, P), use `inverse`.

        Raises:
            ValueError: the curve covers several pairs, each with its own loss, or only bounds are
                known.
        """
        if len(self.alternatives) != 1:
            raise ValueError(
                f"loss: the curve covers {len(self.alternatives)} pairs of distributions, each "
                "with its own loss; ask f.part(pair).loss for a pair of f.alternatives"
            )
        (pair,) = self.alternatives
        return PrivacyLoss(pair)

    # Order

    def __ge__(self, other: Tradeoff) -> bool:
        """Return True if this is certainly at least as private as ``other`` (Blackwell's order)."""
        if not isinstance(other, Tradeoff):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return at_least(self, other)

    def __le__(self, other: Tradeoff) -> bool:
        """Return True if ``other`` is certainly at least as private as this."""
        if not isinstance(other, Tradeoff):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return at_least(other, self)

    def admits(self, mechanism: Described) -> bool:
        """Return True if the mechanism is certified to meet this budget.

        A curve admits every mechanism that is at least as private. A budget of bounds on Renyi
        divergences, such as zCDP, is checked at each order, because the curve that they imply does
        not imply them.
        """
        return admits(self, mechanism)

    def excess(self, mechanism: Described) -> float | None:
        """Estimate log(spent / budget) of a mechanism, for calibration.

        Returns:
            a number above 0 if the mechanism spends too much; None if no parameter defines the
            budget.
        """
        return excess(self, mechanism)

    def bare_rho(self) -> Fraction | None:
        """Return rho if the curve claims only rho-zCDP, else None."""
        bare = self.alternatives[0].bare if len(self.alternatives) == 1 else None
        if bare is None or not bare.quadratic or self.alternatives[0].known.parts:
            return None
        return bare.exact_rho

    def tradeoff(self) -> Tradeoff:
        """Return this curve, so that a budget has the same method as a mechanism."""
        return self

    # Algebra

    @cached_property
    def composable(self) -> tuple[Composition, ...]:
        """Return the compositions to use in products; one convex curve replaces joined pairs.

        A mechanism above the convex curve need not be above any curve of a pair. Two such
        mechanisms together may reveal more than any two of the pairs.
        """
        if self.joined and len(self.directions) > 1:
            return (joined_composition(self),)
        return self.alternatives

    def __matmul__(self, other: Tradeoff) -> Tradeoff:
        """Return the tensor product: an attacker sees both outputs, with independent randomness.

        Pairs are combined in their given order. If one curve covers one order and the other both,
        the first is combined with each order of the other.
        """
        if not isinstance(other, Tradeoff):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        mine, theirs = self.composable, other.composable
        if self.ordered and not other.ordered:
            theirs = (*theirs, *(c.reverse() for c in theirs))
        if other.ordered and not self.ordered:
            mine = (*mine, *(c.reverse() for c in mine))
        return Tradeoff.of(
            (a + b for a in mine for b in theirs),
            unified(self.neighboring, other.neighboring),
            ordered=self.ordered and other.ordered,
        )

    def __pow__(self, count: int) -> Tradeoff:
        """Return the tensor product of ``count`` copies. A count of 0 gives perfect privacy."""
        count = check.integer("count", count)
        if count > LIMITS.count:
            raise ValueError(f"count = {count!r} must be at most {LIMITS.count:g}")
        each = self.composable
        if len(each) == 1:
            return Tradeoff.of([each[0] * count], self.neighboring, ordered=self.ordered)
        chosen = [Composition()]
        for _ in range(count):
            chosen = list(dict.fromkeys(c + a for c in chosen for a in each))
            if len(chosen) > LIMITS.alternatives:
                break
        return Tradeoff.of(chosen, self.neighboring, ordered=self.ordered)

    def part(self, composition: Composition) -> Tradeoff:
        """Return the curve of one ordered pair alone."""
        return Tradeoff((composition,), ordered=True)

    def replace(self, alternatives: Iterable[Composition]) -> Tradeoff:
        """Return the curve of other pairs, under the same relation, unordered and not joined."""
        return Tradeoff.of(alternatives, self.neighboring)

    def inverse(self) -> Tradeoff:
        """Return f^-1, the curve of the reversed pairs.

        If both orders count, the guarantee is the same.
        """
        if self._origin is not None:  # reversing twice may move masses by a unit
            return self._origin
        reversed_pairs = tuple(c.reverse() for c in self.alternatives)
        curve = Tradeoff(reversed_pairs, self.joined, self.neighboring, self.ordered)
        object.__setattr__(curve, "_origin", self)
        return curve

    def symmetric(self) -> Tradeoff:
        """Return the largest convex curve below all pairs in both orders.

        It is the biconjugate of the minimum of their curves.
        """
        return Tradeoff(self.alternatives, True, self.neighboring)

    @question
    def mutual(self) -> Tradeoff:
        """Return max{f, f^-1}, a guarantee if f is one for every ordered pair of neighbors.

        If f is one for one order only (a removal, say), use `symmetric`. A curve that covers both
        orders is returned unchanged. The result is exact for finitely many corners, and otherwise
        between two polygons.

        Source: Dong, Roth and Su 2022, proposition 2.4.
        """
        return mutual(self)

    @question
    def conjugate(self, slope: float) -> Bound:
        """Return the conjugate f*(y) = sup over x in [0, 1] of x y - f(x); the upper bound is safe.

        Let y = slope. For y < 0 it is delta(log(-y)) - 1, in the worse direction. For y >= 0 it is
        y (Dong, Roth and Su 2022, proposition 2.12).
        """
        return conjugate(self, slope)

    @question
    def group(self, size: int) -> Tradeoff:
        """Return the trade-off curve for datasets that differ in ``size`` units.

        It holds for every such pair of datasets: a units added and k - a removed, for every a. For
        all records of one user, `Mechanism.user` may give a better bound.

        For k = ``size``, 1 - f_k = m(m(... m(level))), with m = 1 - f the power. Each step may go
        in either order, so f is the `symmetric` curve. Gaussian, pure, and zCDP guarantees keep
        their form, with k mu, k epsilon, and k^2 rho. Other curves are computed as in `mutual`. A
        curve of one order is refused.

        Args:
            size: k, at least 1.

        Source: Dong, Roth and Su 2022, theorem 2.14; Bun and Steinke 2016, proposition 1.9.
        """
        return group(self, size)

    def __repr__(self) -> str:
        shown_alternatives = 3  # alternatives in a text
        what = " or ".join(
            " + ".join(f"{n} x {loss}" if n > 1 else str(loss) for loss, n in c.parts) or "perfect"
            for c in self.alternatives[:shown_alternatives]
        )
        left = len(self.alternatives) - shown_alternatives
        more = f" or {left} more" if left > 0 else ""
        return f"Tradeoff({notebook.shortened(what)}{more}, neighboring={self.neighboring!r})"

    def _repr_html_(self) -> str:
        return notebook.safe_html(self._shown, self)

    def _shown(self) -> Iterator[Node]:
        """Yield the elements of the notebook's view: the title, the curve, and the main numbers."""
        powers = [min(power.upper, 1.0) for power in self.powers(SHOWN_LEVELS)]
        yield notebook.title(repr(self))
        yield notebook.curve([0.0, *SHOWN_LEVELS, 1.0], [self.power(0.0).upper, *powers, 1.0])
        questions = [
            ("power(level=0.01)", self.power(0.01)),
            ("power(level=0.05)", self.power(0.05)),
            ("power(level=0.1)", self.power(0.1)),
            ("epsilon(delta=1e-06)", self.epsilon(1e-6)),
            ("advantage()", self.advantage()),
        ]
        rows = [
            [question, directed(b.lower, 6, up=False), directed(b.upper, 6, up=True)]
            for question, b in questions
        ]
        yield notebook.table(["Question", "At least", "At most"], rows)

    def plot(self, *, axes: Axes | None = None) -> Axes:
        """Draw the curve with `neyman.display.plots.figures.tradeoff`.

        Args:
            axes: matplotlib axes to draw on; a new figure if left out.

        Returns:
            The axes. The line shows the lower end of each type II error, the safe side.

        Raises:
            ImportError: matplotlib is not installed.
        """
        from neyman.display.plots.figures import tradeoff  # figures import this module

        return tradeoff(self, axes=axes)
