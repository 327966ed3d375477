"""Limit the operations of an engine, and give cheap bounds if it stops [C-14].

Each engine answers within `engine_limit`: an operation beyond the question's limit raises
`OperationLimit`. An engine that already has bounds returns these wider bounds. Otherwise, upper
bounds use Chernoff exponents at a few tilts, a proven mu, the total variation, and the largest
loss. Lower bounds use the mass of infinite loss and the test that ignores the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.contour_line import (
    CHERNOFF_POWERS,
    least_log_powers,
    log_kernel,
    mgf_below,
)
from neyman.curves.profiles.profile import Engine, Interval, Profile, log_delta_below_zero
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import (
    CALL,
    OperationLimit,
    engine_limit,
    in_question,
    overhead,
    reserve,
)
from neyman.numerics.rounding import above

CHEAP_TILTS = 2.0 ** np.arange(-6, 11, 2)
AWAY, LARGEST_TILT = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0), 1e9
T = TypeVar("T")


class ExponentProfile(Profile):
    """Bound delta and power of any sum of losses in few operations.

    Args:
        losses: the sum.
    """

    method, engine = "exponents at a few tilts", Engine.ENVELOPE

    def __init__(self, losses: Composition) -> None:
        self.losses = losses

    @cached_property
    def _exponents(self) -> tuple[Array, Array, Array]:
        """Return tilts c, exponents A = K(c) + log kappa(c), and bounds on the rounding of A.

        K(c) = log E[e^{cL}], kappa as in `log_kernel`, and delta <= e^{A - c epsilon} [C-1].
        """
        none = np.zeros(0)
        try:
            with engine_limit(), reserve(), np.errstate(all="ignore"):
                terms = self.losses.places
                c = np.array([x for x in CHEAP_TILTS.tolist() if terms(x, 0.0) <= 1e5])
                k, error = self.losses.mgf(c)
        except OperationLimit:
            return none, none, none
        exponent = k + np.log1p(error) + log_kernel(c)
        # slack: exponents_at_a_few_tilts
        slack = 8 * UNIT * (1 + np.abs(k) + c * np.abs(np.log(c)))
        known = np.isfinite(exponent)
        return c[known], exponent[known], slack[known]

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta. Upper bounds use exponents, a proven mu, and the total variation."""
        epsilons = np.asarray(epsilons, float)
        low, high = self._lower_infinite(len(epsilons)), np.zeros(len(epsilons))
        below = epsilons < 0
        if below.any():
            other = ExponentProfile(self.losses.reverse())
            ends = log_delta_below_zero(epsilons[below], other.log_deltas(-epsilons[below]))
            low[below], high[below] = np.maximum(low[below], ends[0]), ends[1]
        if not below.all():
            high[~below] = self._upper_delta(epsilons[~below])
            low[~below] = np.maximum(low[~below], self._lower_delta(epsilons[~below]))
        return np.minimum(low, high), high

    @cached_property
    def _misses(self) -> Array | None:
        """Return upper bounds on K(-a), a in `CHERNOFF_POWERS`; None beyond the operation limit."""
        try:
            with engine_limit(), reserve(), np.errstate(all="ignore"):
                most = mgf_below(self.losses)
        except OperationLimit:
            return None
        return most if np.all(np.isfinite(most)) else None

    def _lower_delta(self, epsilons: Array) -> Array:
        """Return the log of lower bounds on delta, from tests that reject if L > t = epsilon + s.

        They are P(L > t) - e^epsilon Q(L > t), for some s > 0.

        P(L <= t) <= e^{K(-a) + a t} and Q(L > t) <= e^-t.
        """
        if self._misses is None:
            return np.full(len(epsilons), -math.inf)
        best = np.zeros(len(epsilons))
        for s in AWAY:
            t = epsilons + s
            exponents = self._misses + np.multiply.outer(t, CHERNOFF_POWERS)
            # A product and two sums. The last sum is below 0.
            # slack: counted
            error = 16 * UNIT * (1 + np.abs(self._misses) + np.multiply.outer(t, CHERNOFF_POWERS))
            miss = np.exp(np.minimum((exponents + error).min(axis=1), 0.0))
            # slack: delta_by_the_test_that_rejects_large_losses
            best = np.maximum(best, (1 - miss - math.exp(-s)) - 8 * UNIT)
        return np.where(best > 0, np.log(np.maximum(best, 1e-300)), -math.inf)

    def _lower_infinite(self, count: int) -> Array:
        mass = self.losses.least.infinite
        return np.full(count, _log_mass(mass, -1) if mass else -math.inf)

    def _upper_delta(self, epsilons: Array) -> Array:
        """Return upper bounds on log delta at epsilons of at least 0."""
        c, most, slack = self._exponents
        rows = [np.zeros(len(epsilons))]
        for k in range(len(c)):
            # slack: delta_by_exponents_and_by_a_proven_mu
            error = slack[k] + 8 * UNIT * (np.abs(most[k]) + c[k] * epsilons)
            rows.append(most[k] - c[k] * epsilons + error)
        # slack: counted
        mu = self.losses.mu * (1 + 8 * UNIT)  # a root of a sum of squares, 4 units at most
        if mu < 1e8:  # Chernoff's bound for the Gaussian pair, about its best tilt
            tilt = np.maximum(epsilons / max(mu * mu, 1e-300) - 0.5, 0.1)
            tilt = np.minimum(tilt, LARGEST_TILT)
            sizes = 0.5 * mu * mu * tilt * (tilt + 1), tilt * epsilons, tilt * np.log(tilt + 1)
            # slack: delta_by_exponents_and_by_a_proven_mu
            error = 16 * UNIT * (8 + sizes[0] + sizes[1] + sizes[2])
            rows.append(sizes[0] - sizes[1] + log_kernel(tilt) + error)
        high = np.min(rows, axis=0)
        high = np.where(epsilons >= above(self.losses.supremum), -math.inf, high)
        mass = self.losses.infinite
        if mass:
            # slack: delta_by_exponents_and_by_a_proven_mu
            high = np.logaddexp(high, math.log(mass)) + 8 * UNIT * (1 + abs(math.log(mass)))
        return np.minimum(np.minimum(high, self.losses.log_total_variation), 0.0)

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power. Power is at least the level, and at most delta + e^epsilon level."""
        levels = np.asarray(log_levels, float)
        low, high = np.maximum(levels, self._lower_infinite(len(levels))), np.zeros(len(levels))
        if self._misses is not None:
            low = np.maximum(low, least_log_powers(self._misses, levels))
        inside = (levels > -1e300) & (levels < 0)
        mass, log_tv = self.losses.infinite, self.losses.log_total_variation
        high[levels == -math.inf] = _log_mass(mass, 1) if mass else -math.inf
        level = np.where(inside, levels, -1.0)
        # slack: a_power_by_exponents_and_by_the_largest_loss
        error = 16 * UNIT * (1 + np.abs(level))
        rows = [np.zeros(len(levels)), np.logaddexp(level, log_tv) + error]  # delta(0) + level
        if not mass:
            top = above(self.losses.supremum)
            # The rounding error of the sum is relative: below 0, less than that of the level.
            rows.append(level + top + error if top < math.inf else rows[0])
            for c, most, slack in zip(*self._exponents, strict=True):
                # Two sums and a quotient, relative to ``most``. The logarithms err by 24 units.
                exponent = (most + math.log(c) + c * level) / (1 + c) + math.log1p(1 / c)
                rows.append(exponent + slack + error + 8 * UNIT * (1 + abs(most)))  # slack: counted
        high = np.where(inside, np.minimum(np.min(rows, axis=0), 0.0), high)
        return np.minimum(low, high), high

    def log_total_variation(self) -> float:
        return self.losses.log_total_variation


class LimitProfile(Profile):
    """Represent the profile of an engine that stops at the question's limit of operations.

    For each question, a new engine is built, so earlier questions cannot affect the answer.

    Args:
        key: identifies the engine within a question. Profiles with equal keys share the engine.
        build: returns the engine.
        losses: the sum of losses.
        like: a profile with the engine's method.
    """

    def __init__(
        self, key: object, build: Callable[[], Profile], losses: Composition, like: Profile
    ) -> None:
        self._key, self._build, self._losses = key, build, losses
        self.method, self.engine, self.costly = like.method, like.engine, like.costly

    @property
    def inner(self) -> Profile:
        """Return the engine of this question."""
        return in_question(self._key, self._build)

    @property
    def _rest(self) -> ExponentProfile:
        return in_question(("exponents", self._losses), lambda: ExponentProfile(self._losses))

    def _ask_engine(self, ask: Callable[[Profile], T], rest: Callable[[Profile], T]) -> T:
        try:
            with engine_limit():
                return ask(in_question(self._key, self._build))
        except OperationLimit:
            return rest(self._rest)

    def _ends(self, ask: Callable[[Profile], tuple[Array, Array]]) -> tuple[Array, Array]:
        """Return the engine's bounds from ``ask``.

        If the engine reached its limit of operations, intersect them with the cheap bounds of
        `ExponentProfile`, or return only these if it has none.
        """
        try:
            with engine_limit() as meter:
                overhead(5 * CALL)
                low, high = ask(in_question(self._key, self._build))
                stopped = meter.reached
        except OperationLimit:
            return ask(self._rest)
        if not stopped:
            return low, high
        least, most = ask(self._rest)
        return np.maximum(low, least), np.minimum(high, most)

    def log_delta(self, epsilon: float) -> Interval:
        low, high = self._ends(lambda profile: _as_arrays(profile.log_delta(epsilon)))
        return float(low[0]), float(high[0])

    def log_power(self, log_level: float) -> Interval:
        low, high = self._ends(lambda profile: _as_arrays(profile.log_power(log_level)))
        return float(low[0]), float(high[0])

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        return self._ends(lambda profile: profile.log_deltas(epsilons))

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        return self._ends(lambda profile: profile.log_powers(log_levels))

    def meets(self, epsilon: float, log_delta: float) -> bool:
        """Return True if the engine, or a cheap bound, certifies delta(epsilon) <= e^log_delta."""
        sure = self._ask_engine(lambda p: p.meets(epsilon, log_delta), lambda _: False)
        return sure or self._rest.log_delta(epsilon)[1] <= log_delta

    def alone(self, epsilon: float) -> bool:
        return self._ask_engine(lambda p: p.alone(epsilon), lambda _: False)

    def log_delta_above(self, epsilon: float, enough: float = -math.inf) -> float:
        return self._ask_engine(lambda p: p.log_delta_above(epsilon, enough), lambda _: 0.0)

    def log_powers_above(self, log_levels: Array) -> Array:
        none = np.zeros(len(log_levels))
        return self._ask_engine(lambda p: p.log_powers_above(log_levels), lambda _: none)

    def epsilon_near(self, log_delta: float) -> float:
        """Return the engine's guess, or the default 1.0 if it stopped."""
        return self._ask_engine(lambda p: p.epsilon_near(log_delta), lambda _: 1.0)

    def log_total_variation(self) -> float:
        return self._losses.log_total_variation

    def _like(self, name: str, derive: Callable[[Profile], Profile]) -> Profile:
        return LimitProfile((name, self._key), lambda: derive(self.inner), self._losses, self)

    def from_above(self) -> Profile:
        return self._like("from above", lambda p: p.from_above())

    def one_sided(self, side: int) -> Profile:
        return self._like(f"side {side}", lambda p: p.one_sided(side))

    def coarse(self) -> Profile:
        return self._like("coarse", lambda p: p.coarse())

    def mu(self) -> Interval | None:
        return self._ask_engine(lambda p: p.mu(), lambda _: None)


def _log_mass(mass: float, side: int) -> float:
    """Return log mass, rounded up (side 1) or down (-1), for a mass computed from a sum of logs."""
    # slack: the_logarithm_of_a_mass_of_infinite_loss
    return math.log(mass) + side * 8 * UNIT * (1 + abs(math.log(mass)))


def _as_arrays(ends: Interval) -> tuple[Array, Array]:
    return np.array(ends[:1]), np.array(ends[1:])
