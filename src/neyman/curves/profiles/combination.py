"""Combine privacy profiles: as bounds, in turn, in a convex hull, or from other libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TypeVar

import numpy as np

from neyman.curves.losses.bracket import LossBracket, Parts, sides
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.external_pld import ExternalPld
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.rounded_gaussian import RoundedGaussianLoss
from neyman.curves.losses.subsampled import SubsampledGaussianLoss
from neyman.curves.profiles.duality import log_power_by_duality
from neyman.curves.profiles.profile import Engine, Interval, Profile, intersection
from neyman.curves.profiles.selection import profile_of_one, register, select
from neyman.numerics.arrays import Array
from neyman.numerics.operations import OperationLimit, limit


@dataclass(frozen=True)
class Limits:
    """Limits that decide which of several engines answers."""

    unlike_parts: int = 5000  # number of parts beyond which each K takes too long
    coarse_rate_groups: int = 5  # for the first try of subsampled steps
    # Least number of parts to group if an engine stopped. Grouping leaves fewer.
    grouped_parts: int = 60
    failure_width: float = 0.5  # least width of log delta for which groups are asked
    least_log_delta: float = -1e4  # log delta or log power below which only the first is asked
    least_miss: float = 1e-30  # least 1 - power that needs relative accuracy


LIMITS = Limits()
T = TypeVar("T")


class BracketProfile(Profile):
    """Combine lower bounds from one profile with upper bounds from another.

    Args:
        lower: profile of a sum of losses that this sum dominates.
        upper: profile of a sum of losses that dominates this sum.
        how: in words, why this sum is between them.
    """

    def __init__(self, lower: Profile, upper: Profile, how: str) -> None:
        self.method, self.engine = f"{upper.method}, {how}", upper.engine
        self._lower, self._upper = lower.one_sided(-1), upper.one_sided(1)

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log delta by both profiles."""
        with limit(0.5, self):
            high = self._upper.log_delta(epsilon)[1]
        return min(self._lower.log_delta(epsilon)[0], high), high

    def log_power(self, log_level: float) -> Interval:
        """Bound log power by both profiles."""
        with limit(0.5, self):
            high = self._upper.log_power(log_level)[1]
        return min(self._lower.log_power(log_level)[0], high), high

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta by both profiles."""
        with limit(0.5, self):
            high = self._upper.log_deltas(epsilons)[1]
        return np.minimum(self._lower.log_deltas(epsilons)[0], high), high

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power by both profiles."""
        with limit(0.5, self):
            high = self._upper.log_powers(log_levels)[1]
        return np.minimum(self._lower.log_powers(log_levels)[0], high), high

    def epsilon_near(self, log_delta: float) -> float:
        """Return the answer of the upper profile."""
        return self._upper.epsilon_near(log_delta)

    def log_total_variation(self) -> float:
        """Return the answer of the upper profile."""
        return self._upper.log_total_variation()


class CascadeProfile(Profile):
    """Ask several engines in turn about one ordered pair, and intersect their intervals [C-8].

    Args:
        engines: pairs of a width and a function that builds an engine. The first engine is always
            asked, any other only if the interval for log delta so far is wider than its width.
        log_total_variation: an upper bound on log delta(0).
        powers: indices of the engines to ask for powers, in this order; all by default.
        method: the first engine's method and kind. If given, that engine is built only when asked.
        alone_from: epsilon from which on only the first engine is asked.
    """

    costly = True

    def __init__(
        self,
        engines: Sequence[tuple[float, Callable[[], Profile]]],
        log_total_variation: float,
        powers: Sequence[int] | None = None,
        method: tuple[str, Engine] | None = None,
        alone_from: float = math.inf,
    ) -> None:
        self._alone_from = alone_from
        self._widths, self._builders = zip(*engines, strict=True)
        self._built: dict[int, Profile] = {}
        self._log_total_variation = log_total_variation
        self._order = tuple(range(len(engines)))
        self._hopeless: list[float] = []  # epsilons for which the first engine's bounds are useless
        self._powers = self._order if powers is None else tuple(powers)
        self._coarse = False
        first = method or (self._engine(0).method, self._engine(0).engine)
        self.method, self.engine = first

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta at many epsilons."""
        if self._alone_from < math.inf and (far := epsilons >= self._alone_from).any():
            low, high = np.empty((2, len(epsilons)))
            low[far], high[far] = self._engine(0).log_deltas(epsilons[far])
            if not far.all():
                low[~far], high[~far] = self.log_deltas(epsilons[~far])
            return low, high
        near = bool(self._hopeless) and any(
            (np.abs(epsilons - one) <= 0.1 * abs(one)).all()  # relative distance of nearby epsilons
            for one in self._hopeless
        )
        low, high = self._ask(
            self._order[1:] or self._order if near else self._order,
            epsilons,
            1.0,
            False,
            lambda profile, asked: profile.log_deltas(asked),
        )
        high = np.minimum(high, 0.0)
        np.minimum(high, self._log_total_variation, out=high, where=np.asarray(epsilons) >= 0)
        return np.minimum(low, high), high

    def meets(self, epsilon: float, log_delta: float) -> bool:
        """Return True if an engine certifies delta(epsilon) <= e^log_delta.

        Stop at the first engine that decides.
        """
        if self.log_delta_above(epsilon, log_delta) <= log_delta:
            return True
        for index in self._order:
            low, high = self._engine(index).log_delta(epsilon)
            if high <= log_delta or low > log_delta:
                return high <= log_delta
        return False

    def alone(self, epsilon: float) -> bool:
        """Return True if only the first engine has been built, and its `alone` returns True."""
        return len(self._built) == 1 and self._engine(0).alone(epsilon)

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power at many levels."""
        return self._ask(
            self._powers,
            log_levels,
            10.0,  # allowed width of log power, over that of log delta
            True,
            lambda profile, asked: profile.log_powers(asked),
        )

    def log_delta_above(self, epsilon: float, enough: float = -math.inf) -> float:
        """Return the smaller of the first engine's bound and the total variation's bound."""
        most = self._log_total_variation if epsilon >= 0 else 0.0
        return min(self._engine(0).log_delta_above(epsilon, enough), most)

    def log_powers_above(self, log_levels: Array) -> Array:
        """Return the first engine's upper bounds on log power."""
        return self._engine(0).log_powers_above(log_levels)

    def epsilon_near(self, log_delta: float) -> float:
        """Return the guess of the first engine whose bounds on delta are narrow at its guess."""
        if log_delta < LIMITS.least_log_delta:
            return self._engine(0).epsilon_near(log_delta)
        first = 1.0
        for index in range(len(self._widths)):
            try:
                with limit(self._share(index), self):
                    guess = self._engine(index).epsilon_near(log_delta)
            except OperationLimit:
                continue
            if guess == 1.0:  # perhaps no epsilon has this log delta
                if index == 0 and self._engine(0).log_delta(0.0)[1] <= log_delta:
                    return 1e-9  # the guess for an epsilon of 0
                continue
            low, high = self._engine(index).log_delta(guess)
            # Largest width of log delta for a good guess of epsilon.
            if guess >= self._alone_from or high - low <= 1e-2:
                return guess
            first = guess if first == 1.0 else first
        return first

    def log_total_variation(self) -> float:
        """Return an upper bound on log delta(0)."""
        return self._log_total_variation

    def coarse(self) -> Profile:
        """Return a copy that accepts wider intervals for smaller deltas, as do its engines."""
        other = copy(self)
        other._coarse = True
        other._built = {index: engine.coarse() for index, engine in self._built.items()}
        other._builders = tuple(partial(_coarse_engine, build) for build in self._builders)
        return other

    def _share(self, index: int) -> float:
        """Return the share of operations that engine ``index`` may use, less than all."""
        left = len(self._widths) - 1 - index
        # Share of a question's operations that the first engine leaves to others.
        return 1 - 0.25 * left / max(len(self._widths) - 1, 1)

    def _engine(self, index: int) -> Profile:
        if index not in self._built:
            self._built[index] = self._builders[index]()
        return self._built[index]

    def _ask(
        self,
        order: Sequence[int],
        places: Array,
        wider: float,
        powers: bool,
        ask: Callable[[Profile, Array], tuple[Array, Array]],
    ) -> tuple[Array, Array]:
        high = np.zeros(len(places))
        low = high - math.inf
        if order[1:]:
            try:  # leave operations for the other engines
                with limit(self._share(order[0]), self):
                    low, high = np.array(ask(self._engine(order[0]), places), float)
            except OperationLimit:
                pass
        else:
            low, high = np.array(ask(self._engine(order[0]), places), float)
        # Width of log delta beyond which the first is not asked nearby.
        wide = (high > low + 1.0) & (high > LIMITS.least_log_delta)
        if not (powers or order[0]) and np.logical_and.reduce(wide):
            self._hopeless.append(float(np.mean(places)))
        before = order[0]
        coarse_log_delta = math.log(1e-14)  # below it, wider bounds suffice for a polygon
        upper_log_delta = math.log(1e-60)  # below it, an upper bound suffices for a polygon
        for index in order[1:]:
            enough = wider * self._widths[index]
            if self._coarse:
                enough = np.maximum(
                    enough,
                    1e-7  # width of log delta that suffices for a polygon
                    * np.exp(
                        0.25
                        * np.clip(coarse_log_delta - high, 0.0, coarse_log_delta - upper_log_delta)
                    ),
                )
                enough = np.where(high < upper_log_delta, math.inf, enough)
            # If both are -inf, the interval is exact.
            gap = np.subtract(high, low, out=np.zeros(len(low)), where=high > low)
            wide = (gap > enough) & (high > LIMITS.least_log_delta)
            if powers:  # near power 1, the relative accuracy of 1 - power matters
                most, least = -np.expm1(low), -np.expm1(high)
                with np.errstate(invalid="ignore"):
                    wide |= (most > LIMITS.least_miss) & ~(most - least <= enough * most)
            if not np.logical_or.reduce(wide):
                break
            try:
                profile = self._engine(index)
            except OperationLimit:
                break
            if profile.engine == self._engine(before).engine == Engine.GRID:
                wide &= np.isfinite(low)  # a finer grid has no wider range
                if not wide.any():
                    break
            before = index
            try:
                with limit(self._share(index), self):
                    below, above = ask(profile, np.asarray(places)[wide])
            except OperationLimit:
                continue
            low[wide], high[wide] = intersection(low[wide], high[wide], below, above)
        return low, high


def _coarse_engine(build: Callable[[], Profile]) -> Profile:
    """Return the coarse form of a built engine."""
    return build().coarse()


class ConvexHullProfile(Profile):
    """Compute the largest delta over several pairs, and the concave hull of their powers.

    This is the biconjugate of the minimum of the pairs' trade-off curves: the best single f-DP
    guarantee for all pairs (Dong, Roth and Su 2022, proposition 2.4).
    """

    def __init__(self, profiles: tuple[Profile, ...]) -> None:
        self.method = "; ".join(dict.fromkeys(p.method for p in profiles)) + ", joined"
        self._profiles, self.engine = profiles, profiles[0].engine

    def log_delta(self, epsilon: float) -> Interval:
        """Return bounds on the largest log delta."""
        brackets = [p.log_delta(epsilon) for p in self._profiles]
        return max(f[0] for f in brackets), max(f[1] for f in brackets)

    def log_power(self, log_level: float) -> Interval:
        """Bound log power by duality. It is attained by mixtures of the pairs' best tests."""
        brackets = [p.log_power(log_level) for p in self._profiles]
        least = max(f[0] for f in brackets)
        if not -1e300 < log_level < 0:
            return least, max(f[1] for f in brackets)
        low, high = log_power_by_duality(self.log_delta, log_level)
        return max(low, least), min(high, 0.0)

    def mu(self) -> Interval | None:
        """Return bounds on the largest mu of the pairs, or None if one is unknown."""
        bounds = [p.mu() for p in self._profiles]
        known = [f for f in bounds if f is not None]
        if len(known) < len(bounds):
            return None
        return max(f[0] for f in known), max(f[1] for f in known)


class ExternalPldProfile(Profile):
    """Represent the profile of a sum with parts that other libraries computed.

    Args:
        profile: profile of the sum, with the other libraries' numbers unchanged.
        sources: names of the libraries, for `method`.
    """

    def __init__(self, profile: Profile, sources: Iterable[str]) -> None:
        self._profile, self.engine = profile, profile.engine
        self.method = "; ".join([*dict.fromkeys(sources), profile.method])

    def log_delta(self, epsilon: float) -> Interval:
        """Return the bounds of ``profile`` on log delta at epsilon."""
        return self._profile.log_delta(epsilon)

    def log_power(self, log_level: float) -> Interval:
        """Return the bounds of ``profile`` on log power at the level."""
        return self._profile.log_power(log_level)

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Return the bounds of ``profile`` on log delta at each epsilon."""
        return self._profile.log_deltas(epsilons)

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Return the bounds of ``profile`` on log power at each level."""
        return self._profile.log_powers(log_levels)

    def epsilon_near(self, log_delta: float) -> float:
        """Return the guess of ``profile``."""
        return self._profile.epsilon_near(log_delta)

    def mu(self) -> Interval | None:
        """Return the bounds of ``profile``."""
        return self._profile.mu()


@register(30, "a part came in from another library, whose numbers are used as they are")
def _external(composition: Composition) -> Profile | None:
    if ExternalPld not in composition.kinds:
        return None
    external = [loss for loss, _ in composition.parts if isinstance(loss, ExternalPld)]
    parts = [(x.ahead if isinstance(x, ExternalPld) else x, n) for x, n in composition.parts]
    return ExternalPldProfile(select(Composition.of(parts)), [loss.source for loss in external])


@register(70, "a part is known between two distributions: each side is composed by itself")
def _bracket(composition: Composition) -> Profile | None:
    if LossBracket not in composition.kinds:
        return None
    how = dict.fromkeys(x.how for x, _ in composition.parts if isinstance(x, LossBracket))
    lower, upper = (select(Composition.of(parts)) for parts in sides(composition.parts))
    return BracketProfile(lower, upper, ", ".join(how))


@register(65, "very many unlike parts: like ones are held between two of their kind")
def _many(composition: Composition) -> Profile | None:
    if len(composition.parts) <= LIMITS.unlike_parts:
        return None
    steps = all(isinstance(loss, SubsampledGaussianLoss) for loss, _ in composition.parts)
    groups = (
        LIMITS.coarse_rate_groups if steps else 12  # groups by rate, and groups by noise in each
    )  # sums by the largest step take longer
    high = part_groups(composition.parts, groups)[1]
    # Largest number of grouped parts for which K is fast enough.
    return None if len(high) > 2000 else group_profile(composition, groups)


def group_profile(composition: Composition, groups: int) -> Profile:
    """Return the profile of a sum of many parts, bounded by groups of similar parts.

    Args:
        composition: the sum.
        groups: number of groups by rate, and of groups by noise in each.
    """
    low, high = (Composition.of(parts) for parts in part_groups(composition.parts, groups))
    return BracketProfile(select(low), select(high), "parts held between two of their kind")


def part_groups(parts: Parts, groups: int) -> tuple[Parts, Parts]:
    """Return parts that bound a sum from below, and parts that bound it from above, by groups.

    Similar parts form a group. In the first list, each group becomes a part that every member
    dominates; in the second, a part that dominates every member. More noise is noise added to less
    noise, and a smaller sampling rate thins a larger one. Both are post-processing [C-13].
    """
    kinds: dict[tuple[str, bool], list[tuple[tuple[float, float], Part, int]]] = {}
    low: list[tuple[Part, int]] = []
    for loss, n in parts:
        if isinstance(loss, LaplaceLoss):
            kinds.setdefault(("Laplace", True), []).append(((0.0, loss.epsilon), loss, n))
        elif isinstance(loss, SubsampledGaussianLoss):
            place = loss.rate, loss.distance
            kinds.setdefault(("steps", loss.removed), []).append((place, loss, n))
        else:
            low.append((loss, n))
    high = [*low]
    for kind in kinds.values():
        for rates in _cut(sorted(kind, key=itemgetter(0)), groups):
            for group in _cut(sorted(rates, key=lambda item: item[0][::-1]), groups):
                count = sum(n for _, _, n in group)
                for side, extreme in ((low, 0), (high, -1)):
                    loss = group[extreme][1]
                    if isinstance(loss, SubsampledGaussianLoss):
                        pick = max if extreme else min
                        loss = replace(loss, rate=pick(place[0] for place, _, _ in group))
                    side.append((loss, count))
    return tuple(low), tuple(high)


def _cut(items: list[T], pieces: int) -> list[list[T]]:
    """Split items, in order, into at most ``pieces`` lists of about equal length."""
    size = -(-len(items) // pieces)
    return [items[k : k + size] for k in range(0, len(items), size)]


@profile_of_one.register
def _(loss: RoundedGaussianLoss) -> Profile | None:
    """Return a profile between two finite pairs if all thresholds are listed, else None."""
    if loss.exact is None:
        return None
    lower, upper = (select(Composition.of([(law, 1)])) for law in (loss.lower, loss.exact))
    return BracketProfile(lower, upper, loss.how)
