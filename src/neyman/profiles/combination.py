"""Privacy profiles that combine others: a bracket, two engines, a convex hull, an external PLD."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from neyman.losses.bracket import LossBracket, sides
from neyman.losses.composition import Composition
from neyman.losses.external_pld import ExternalPld
from neyman.numerics.arrays import Array
from neyman.profiles.duality import log_power_by_duality
from neyman.profiles.profile import Interval, Profile
from neyman.profiles.selection import register, select

__all__ = ["BracketProfile", "ConvexHullProfile", "ExternalPldProfile", "TwoEngineProfile"]

ENOUGH = 1e-2  # relative width of power with which the quicker answer is left as it is
FINE = 1e-3  # and of delta


class BracketProfile(Profile):
    """Lower bounds from one profile, upper bounds from another.

    Args:
        lower: of a sum of losses that the one in question dominates.
        upper: of a sum of losses that dominates it.
        how: what holds it between them, in words.
    """

    def __init__(self, lower: Profile, upper: Profile, how: str) -> None:
        self.method, self.engine = f"{upper.method}, {how}", upper.engine
        self._lower, self._upper = lower, upper

    def log_delta(self, epsilon: float) -> Interval:
        """From both."""
        high = self._upper.log_delta(epsilon)[1]
        return min(self._lower.log_delta(epsilon)[0], high), high

    def log_power(self, log_level: float) -> Interval:
        """From both."""
        high = self._upper.log_power(log_level)[1]
        return min(self._lower.log_power(log_level)[0], high), high

    def epsilon_near(self, log_delta: float) -> float:
        """That of the upper one."""
        return self._upper.epsilon_near(log_delta)


class TwoEngineProfile(Profile):
    """Privacy profile of one ordered pair, by two engines whose intervals both hold.

    Args:
        quick: asked first.
        slow: asked beside it where its interval is wider than 1% (power) or 0.1% (delta).
    """

    def __init__(self, quick: Profile, slow: Profile) -> None:
        self._quick, self._slow = quick, slow
        self.method, self.engine = quick.method, quick.engine

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bounds on log delta at many epsilons."""
        return self._both(epsilons, FINE, lambda profile, asked: profile.log_deltas(asked))

    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log delta(epsilon)."""
        low, high = self.log_deltas(np.array([epsilon]))
        return float(low[0]), float(high[0])

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bounds on log power at many levels."""
        return self._both(log_levels, ENOUGH, lambda profile, asked: profile.log_powers(asked))

    def log_power(self, log_level: float) -> Interval:
        """Bounds on log power."""
        low, high = self.log_powers(np.array([log_level]))
        return float(low[0]), float(high[0])

    def epsilon_near(self, log_delta: float) -> float:
        """About the epsilon that has this log delta."""
        return self._quick.epsilon_near(log_delta)

    def _both(
        self, places: Array, enough: float, ask: Callable[[Profile, Array], tuple[Array, Array]]
    ) -> tuple[Array, Array]:
        low, high = (np.array(end, dtype=float) for end in ask(self._quick, places))
        with np.errstate(invalid="ignore"):  # where both are -inf nothing is missing
            wide = (high > low) & ~(high - low <= enough)
        if wide.any():
            below, above = ask(self._slow, np.asarray(places)[wide])
            low[wide], high[wide] = np.maximum(low[wide], below), np.minimum(high[wide], above)
            self.method = f"{self._quick.method}; {self._slow.method}"
        return low, high


class ConvexHullProfile(Profile):
    """The largest delta over several pairs; its conjugate is the hull of their powers.

    This is the biconjugate of the minimum of their curves: what one f-DP statement can say of all
    of them (Dong, Roth and Su 2022, proposition 2.4).
    """

    def __init__(self, profiles: tuple[Profile, ...]) -> None:
        self.method = "; ".join(dict.fromkeys(p.method for p in profiles)) + ", joined"
        self._profiles, self.engine = profiles, profiles[0].engine

    def log_delta(self, epsilon: float) -> Interval:
        """The largest."""
        brackets = [p.log_delta(epsilon) for p in self._profiles]
        return max(f[0] for f in brackets), max(f[1] for f in brackets)

    def log_power(self, log_level: float) -> Interval:
        """By duality: mixtures of the pairs' best tests."""
        brackets = [p.log_power(log_level) for p in self._profiles]
        least = max(f[0] for f in brackets)
        if not -1e300 < log_level < 0:
            return least, max(f[1] for f in brackets)
        low, high = log_power_by_duality(self.log_delta, log_level)
        return max(low, least), min(high, 0.0)

    def mu(self) -> Interval | None:
        """The largest, where each is known."""
        bounds = [p.mu() for p in self._profiles]
        known = [f for f in bounds if f is not None]
        if len(known) < len(bounds):
            return None
        return max(f[0] for f in known), max(f[1] for f in known)


class ExternalPldProfile(Profile):
    """Privacy profile of a sum with parts that another library computed; its method names them.

    Args:
        profile: of the sum, with the other library's numbers as they are.
        sources: which libraries, in words.
    """

    def __init__(self, profile: Profile, sources: Iterable[str]) -> None:
        self._profile, self.engine = profile, profile.engine
        self.method = "; ".join([*dict.fromkeys(sources), profile.method])

    def log_delta(self, epsilon: float) -> Interval:
        """As the profile says."""
        return self._profile.log_delta(epsilon)

    def log_power(self, log_level: float) -> Interval:
        """As the profile says."""
        return self._profile.log_power(log_level)

    def log_deltas(self, epsilons: NDArray) -> tuple[NDArray, NDArray]:
        """As the profile says."""
        return self._profile.log_deltas(epsilons)

    def log_powers(self, log_levels: NDArray) -> tuple[NDArray, NDArray]:
        """As the profile says."""
        return self._profile.log_powers(log_levels)

    def epsilon_near(self, log_delta: float) -> float:
        """As the profile says."""
        return self._profile.epsilon_near(log_delta)

    def mu(self) -> Interval | None:
        """As the profile says."""
        return self._profile.mu()


@register(30, "a part came in from another library, whose numbers are used as they are")
def _external(composition: Composition) -> Profile | None:
    external = [loss for loss, _ in composition.parts if isinstance(loss, ExternalPld)]
    if not external:
        return None
    parts = [(x.ahead if isinstance(x, ExternalPld) else x, n) for x, n in composition.parts]
    return ExternalPldProfile(select(Composition.of(parts)), [loss.source for loss in external])


@register(70, "a part is known between two laws: each side is composed by itself")
def _bracket(composition: Composition) -> Profile | None:
    how = dict.fromkeys(x.how for x, _ in composition.parts if isinstance(x, LossBracket))
    if not how:
        return None
    lower, upper = (select(Composition.of(parts)) for parts in sides(composition.parts))
    return BracketProfile(lower, upper, ", ".join(how))
