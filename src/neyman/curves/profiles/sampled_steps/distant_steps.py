"""Bound sums of Gaussian steps on samples, by a mean over counts, if normals hardly overlap.

The outcome of a step nearly always reveals whether the step used the record. Therefore, the sum of
the losses is nearly that of k Gaussian steps and of constants, with k binomial. Bounds are valid
for every distance of the normals, and narrow for distances above about 12. See
docs/certificates/largest-step.md [LS-12, LS-13] for the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import log_ndtr

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Order, Part
from neyman.curves.profiles.closed_forms.closed_form import SPECIAL_FUNCTION_ERROR, GaussianProfile
from neyman.curves.profiles.combination import CascadeProfile
from neyman.curves.profiles.duality import log_power_near
from neyman.curves.profiles.profile import Engine, Interval, Profile
from neyman.curves.profiles.sampled_steps.step_nodes import log_sum
from neyman.curves.profiles.selection import register, rules
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import log_between, log_binomial
from neyman.numerics.operations import CALL, charge
from neyman.numerics.roots import bisect

RULE_PRIORITY = 94


@dataclass(frozen=True)
class Limits:
    """Limits on when to use this method, and on its range. All values give valid bounds.

    Args:
        least_distance: smallest distance of the two normals, in standard deviations, for the rule.
        sure_distance: distance from which no other method is better: Phi(-9) is 1e-19.
        most_counts: most counts k to list for the rule.
        enough_width: width of log delta beyond which the next method is asked.
        depth_efolds: at first, omitted counts have a probability of e^-depth.
        deepest_efolds: at last, omitted counts have a probability of e^-deepest.
        moved_share: share of e^epsilon that bounds the contribution of pairs.
        repeats: how often this bound is inserted into itself.
        cells: most entries of one array.
        farthest: largest epsilon. Larger epsilons use its bounds.
    """

    least_distance: float = 10.0
    sure_distance: float = 18.0
    most_counts: float = 1e5
    enough_width: float = 1e-7
    depth_efolds: float = 80.0
    deepest_efolds: float = 6000.0
    moved_share: float = 1e-11
    repeats: int = 4
    cells: int = 1 << 18
    farthest: float = 1e150


LIMITS = Limits()
TERM_OPERATIONS = 400.0  # operations of the delta of one count
SEARCH_HALVINGS = 60  # halvings in a search


@dataclass(frozen=True)
class _Counts:
    """Hold counts k of steps that use the record, with log probabilities and their errors.

    log_rest: log of the probability of all other counts.
    """

    k: Array
    log_chance: Array
    error: Array
    log_rest: float


class DistantStepsProfile(Profile):
    """Compute the profile of equal Gaussian steps on samples, plus Gaussian noise.

    Args:
        distance: mu, distance of the two normals in standard deviations.
        rate: q, probability that a step uses the record.
        count: T, number of steps.
        variance: mu^2 of the other Gaussian noise.
        order: "symmetric" for samples of a fixed size, or "one" for Poisson samples.
        removed: for the order "one", True if the record is removed, False if it is added.
        limits: limits of this method.
    """

    method, engine = "mean over the number of steps with the record", Engine.EXACT

    def __init__(
        self,
        distance: float,
        rate: float,
        count: int,
        *,
        variance: float = 0.0,
        order: Order = "one",
        removed: bool = True,
        limits: Limits = LIMITS,
    ) -> None:
        self._distance, self.rate, self.count, self.variance = distance, rate, count, variance
        self.removed, self.limits = removed or order == "symmetric", limits
        mu, log_q, log_p = distance, math.log(rate), math.log1p(-rate)
        # The constant losses of a step without the record and with it. The latter adds a Gaussian.
        self._without = 0.0 if order == "symmetric" else log_p
        self._with = log_q
        cut = mu / 2
        if order != "symmetric":
            cut = min(max(cut + (log_p - log_q) / mu, 0.1 * mu), 0.9 * mu)
        self._t_cut = (mu * cut - mu * mu / 2) + 16 * UNIT * mu * mu  # slack: counted
        # Log probabilities beyond the cut without the record, and below the cut with it, raised by
        # much more than their rounding.
        beyond = float(log_ndtr(-cut)) * (1 - 1e-12) + 1e-9
        below = float(log_ndtr(cut - mu)) * (1 - 1e-12) + 1e-9
        self._log_below = below
        log_t = math.log(count)
        lost = float(np.logaddexp(log_q + below, log_p + beyond)) + 1e-9
        if order == "symmetric":  # on both sides
            lost = beyond = beyond + math.log(2) + 1e-9
        self._log_beyond, self._log_lost = log_t + beyond, log_t + lost
        self._lift = max(log_q + self._t_cut, 0.0) + log_t - math.log(limits.moved_share) + 1e-6
        # The addition of a record moves a threshold by T log(1 + r).
        r = math.exp(min(log_q - log_p + below, 700.0)) / max(-math.expm1(beyond), 1e-300)
        self._moved = count * math.log1p(r) * (1 + 1e-9) if beyond < -1 else math.inf
        self._known: dict[float, _Counts] = {}

    # The mean over counts

    def _counts(self, depth: float) -> _Counts:
        if depth not in self._known:
            n, q = self.count, self.rate
            mean = n * q
            low = max(math.floor(mean - math.sqrt(2 * depth * mean)), 0)
            high = min(math.ceil(mean + math.sqrt(2 * depth * mean) + depth), n)
            charge(CALL + TERM_OPERATIONS * (high - low + 1))
            k = np.arange(low, high + 1)
            log_chance, error = log_binomial(n, q, 1 - q, k, 0.0)
            outside = np.array([[0, low - 1], [high + 1, n]])[[low > 0, high < n]]
            rest = log_between(n, q, 1 - q, *outside.T)
            log_rest = float(np.logaddexp.reduce(rest)) + 1e-9 if len(rest) else -math.inf
            self._known[depth] = _Counts(k.astype(float), log_chance, error, log_rest)
        return self._known[depth]

    def _places(self, epsilon: Array, k: Array) -> tuple[Array, Array, Array]:
        """Return epsilon minus constant losses, its error, and mu of k steps; shape (m, n)."""
        first, second = (self.count - k) * self._without, k * self._with
        place = epsilon[:, None] - (first + second)
        # slack: counted
        error = 8 * UNIT * (np.abs(epsilon)[:, None] + np.abs(first) + np.abs(second))
        return place, error, np.sqrt(k * self._distance**2 + self.variance)

    def _means(self, epsilon: Array, counts: _Counts, *, is_known: bool) -> tuple[Array, Array]:
        """Bound the log of the mean of deltas over the listed counts [LS-12].

        Args:
            epsilon: shape (m,).
            counts: the listed counts.
            is_known: True if the attacker knows which steps used the record. Then no loss is
                constant. If False, the lower bound subtracts the mass that is lost at the cut
                between the normals.
        """
        k = counts.k
        place, moved, mu = self._places(epsilon, k)
        if is_known:
            place, moved = np.broadcast_to(epsilon[:, None], place.shape), 0 * place
        low, high = _gaussian(place, moved, mu)
        if not is_known:
            with np.errstate(divide="ignore"):
                below = np.log(k) + self._log_below
            none = (k == 0) | ((k == 1) & (place > self._t_cut + 2 * moved) & (not self.variance))
            below = np.where(none, -math.inf, below)
            with np.errstate(divide="ignore", invalid="ignore"):
                gap = np.log(-np.expm1(np.minimum(below - low, 0.0)))
            # slack: counted
            low = np.where(low > below, low + np.where(none, 0.0, gap - 4 * UNIT), -math.inf)
        # slack: counted
        slack = counts.error + UNIT * (len(k) + 64 + 4 * np.abs(counts.log_chance))
        return log_sum(low + counts.log_chance - slack), log_sum(high + counts.log_chance + slack)

    def _removal_sum(self, epsilon: Array) -> tuple[Array, Array]:
        """Bound log delta of a removal [LS-12, LS-13]."""
        depth = self.limits.depth_efolds
        while True:
            counts = self._counts(depth)
            charge(
                CALL + TERM_OPERATIONS * len(epsilon) * len(counts.k) * (3 + self.limits.repeats)
            )
            low, high = self._means(epsilon, counts, is_known=False)
            enough = counts.log_rest < float(high.min()) - 30
            if enough or 4 * depth > self.limits.deepest_efolds:
                break
            depth *= 4
        # log(1 - T Phi(-cut)), if it exists.
        low = low + (math.log1p(-math.exp(self._log_beyond)) if self._log_beyond < -1 else -1e300)
        # Bound the contribution of the dropped parts of the steps by inserting the bound itself.
        most = np.zeros(len(epsilon))
        for j in range(self.limits.repeats, -1, -1):
            away = j * self._lift + 2 * self.limits.moved_share
            at = epsilon - away - 1e-14 * j * np.abs(epsilon)
            own = np.logaddexp(self._means(at, counts, is_known=False)[1], counts.log_rest)
            # slack: counted
            most = np.minimum(np.logaddexp(own, self._log_lost + most) + 8 * UNIT, 0.0)
        with_counts = np.logaddexp(self._means(epsilon, counts, is_known=True)[1], counts.log_rest)
        return low - 1e-14, np.minimum(np.minimum(most, with_counts) + 1e-14, 0.0)

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Return bounds on log delta at many epsilons."""
        epsilons = np.clip(np.asarray(epsilons, float), -self.limits.farthest, self.limits.farthest)
        if not self.removed:
            return self._addition_bounds(epsilons)
        size = max(1, self.limits.cells // len(self._counts(self.limits.depth_efolds).k))
        blocks = [
            self._removal_sum(epsilons[i : i + size]) for i in range(0, max(len(epsilons), 1), size)
        ]
        low, high = (np.concatenate([b[side] for b in blocks]) for side in (0, 1))
        return np.where(np.abs(epsilons) < self.limits.farthest, low, -math.inf), high

    # The addition of a record

    @property
    def _gain(self) -> float:
        """Return -T log(1 - q), the loss of all steps."""
        return -self.count * self._without

    def _addition_bounds(self, epsilons: Array) -> tuple[Array, Array]:
        mu = np.array([math.sqrt(self.variance)])
        moved = 8 * UNIT * (np.abs(epsilons)[:, None] + self._gain)  # slack: counted
        high = _gaussian(epsilons[:, None] - self._gain, moved, mu)[1][:, 0]
        low = _gaussian(epsilons[:, None] - self._gain + self._moved, moved, mu)[0][:, 0]
        if not self._log_beyond < -1:
            return np.full(len(low), -math.inf), np.zeros(len(high))
        low = low + math.log1p(-math.exp(self._log_beyond)) - 8 * UNIT  # slack: counted
        # slack: counted
        return low, np.minimum(np.logaddexp(high, self._log_beyond) + 8 * UNIT, 0.0)

    def _added_power(self, log_level: float) -> Interval:
        """Bound log power for additions.

        The lower bound is a test that also requires no outcome beyond the cut between the normals.
        The upper bound is the dual of the bound on delta.
        """
        if not self._log_beyond < -1:
            return log_level, 0.0
        beside = GaussianProfile(math.sqrt(self.variance)) if self.variance else None

        def power(level: float) -> Interval:
            level = min(level, 0.0)
            return beside.log_power(level) if beside is not None else (level, level)

        gained = log_level + self._gain
        slack = 8 * UNIT * (1 + abs(log_level) + self._gain)  # slack: counted
        low = power(gained - self._moved - slack)[0] + math.log1p(-math.exp(self._log_beyond))
        high = np.logaddexp(power(gained + slack)[1], self._log_beyond)
        return max(low - 8 * UNIT, log_level), min(float(high) + 8 * UNIT, 0.0)  # slack: counted

    # Powers

    def log_power(self, log_level: float) -> Interval:
        """Return bounds on log power."""
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        if not self.removed:
            return self._added_power(log_level)
        low, high = log_level, 0.0
        if not self.variance:  # all losses below the cut are equal
            low, high = self._power_at_atom(log_level)
        if high - low > self.limits.enough_width:
            guess = self._threshold(log_level)
            below, above = log_power_near(self.log_deltas, log_level, guess, 0.5)
            low, high = max(low, below), min(high, above)
        return low, high

    def _power_at_atom(self, log_level: float) -> Interval:
        """Bound log power by a threshold at the loss if no step uses the record [LS-13].

        The bounds are accurate for 1 - power: the probability that no step uses the record, minus
        the rejected mass.
        """
        start = self.count * self._without
        delta = self.log_delta(start)[1]
        slack = 8 * UNIT * (2 + abs(start) + abs(log_level) + abs(delta))  # slack: counted
        high = min(float(np.logaddexp(delta, start + log_level)) + slack, 0.0)
        if not (self._log_beyond < log_level and self._log_lost < -1):
            return log_level, high
        gamma = math.exp(log_level) - math.exp(self._log_beyond)
        log_none, share = self.count * math.log1p(-self.rate), math.exp(self._log_beyond)
        # slack: counted
        none, units = math.exp(log_none), 8 * UNIT * (2 + abs(log_none) + abs(start))
        most = max(none - math.exp(start) * gamma, 0.0) + math.exp(self._log_lost)
        least = none * (1 - share) - math.exp(start + log_level)
        rounding = units * (none + math.exp(start + log_level))
        low = math.log1p(-min(most + rounding, 1.0)) if most + rounding < 1 else -math.inf
        high = min(high, math.log1p(-max(least - rounding, 0.0)))
        return max(low - 4 * UNIT * abs(low), log_level), high * (1 - 4 * UNIT)  # slack: counted

    def _threshold(self, log_level: float) -> float:
        """Estimate the loss t with Q(L > t) equal to the level."""
        depth = max(self.limits.depth_efolds, min(-log_level, self.limits.deepest_efolds))
        counts = self._counts(depth)
        total = self.count * self._without
        most = float(counts.k[-1]) * self._distance**2 + self.variance
        high = most + 40 * math.sqrt(most) + 40
        low = total - 40 * math.sqrt(self.variance) - self.variance - 1e-9

        def above(t: float) -> bool:
            charge(CALL + TERM_OPERATIONS * len(counts.k))
            place, _, mu = self._places(np.array([t]), counts.k)
            with np.errstate(divide="ignore", invalid="ignore"):
                mass = log_ndtr(-(place / mu + mu / 2)) + (place - t)
            mass = np.where(mu > 0, mass, np.where(place < 0, place - t, -math.inf))
            return float(log_sum(mass + counts.log_chance)[0]) > log_level

        return sum(bisect(above, low, high, rounds=SEARCH_HALVINGS)) / 2

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta, by bisection."""
        high = 1.0
        while high < self.limits.farthest and self._middle(high) > log_delta:
            high *= 4
        ends = bisect(lambda e: self._middle(e) > log_delta, 0.0, high, rounds=SEARCH_HALVINGS)
        return max(sum(ends) / 2, 1e-9)

    def _middle(self, epsilon: float) -> float:
        if not self.removed:
            return float(self._addition_bounds(np.array([epsilon]))[1][0])
        counts = self._counts(self.limits.depth_efolds)
        charge(CALL + TERM_OPERATIONS * len(counts.k))
        return float(self._means(np.array([epsilon]), counts, is_known=False)[1][0])


def _gaussian(epsilon: Array, moved: Array, mu: Array) -> tuple[Array, Array]:
    """Bound log delta of Gaussian pairs (P = Q if mu is 0), at epsilons with errors ``moved``.

    With a = epsilon / mu - mu / 2 and b = a + mu, log delta is log(Phi(-a) - e^epsilon Phi(-b)).
    """
    some = mu > 0
    m = np.where(some, mu, 1.0)
    a, b = epsilon / m - m / 2, epsilon / m + m / 2
    first, second = cast(Array, log_ndtr(-a)), epsilon + cast(Array, log_ndtr(-b))
    rounded = 4 * UNIT * (np.abs(epsilon) / m + m)  # slack: counted
    e_first = SPECIAL_FUNCTION_ERROR * (1 + np.abs(first)) + rounded * (np.maximum(a, 0.0) + 1)
    e_second = SPECIAL_FUNCTION_ERROR * (1 + np.abs(epsilon) + np.abs(second - epsilon))
    e_second = e_second + rounded * (np.maximum(b, 0.0) + 1) + moved
    ratio = np.exp(np.minimum(second - first, 0.0))
    gap = -np.expm1(np.minimum(second - first, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = (e_first + ratio * e_second) / gap
        value = first + np.log(gap)
        known = error < 0.1
        low = np.where(known, value - 1.1 * error, -math.inf)
        high = np.where(known, np.minimum(value + 1.1 * error, 0.0), np.minimum(first + e_first, 0))
        # P = Q: (1 - e^epsilon)_+.
        miss = -np.expm1(np.minimum(epsilon - moved, 0.0))
        least = -np.expm1(np.minimum(epsilon + moved, 0.0))
        none = (
            np.log(least) - SPECIAL_FUNCTION_ERROR,
            np.minimum(np.log(miss) + SPECIAL_FUNCTION_ERROR, 0.0),
        )
    return np.where(some, low, none[0]), np.where(some, high, none[1])


@register(
    RULE_PRIORITY, "Gaussian steps on samples whose normals hardly overlap: a mean over counts"
)
def _distant(composition: Composition) -> Profile | None:
    steps = [(x, n) for x, n in composition.parts if type(x) is not GaussianLoss]
    if len(steps) != 1:
        return None
    loss, count = steps[0]
    step = _step(loss)
    if step is None or step[0] < LIMITS.least_distance:
        return None
    distance, rate, order, removed = step
    if not rate < 1 or count * rate > (LIMITS.most_counts / 26) ** 2:
        return None
    variance = math.fsum(
        n * x.mu_squared for x, n in composition.parts if isinstance(x, GaussianLoss)
    )
    profile = DistantStepsProfile(
        distance, rate, count, variance=variance, order=order, removed=removed
    )

    if distance >= LIMITS.sure_distance:
        return profile

    def following() -> Profile:
        later = (rule for rule in rules() if rule.priority > RULE_PRIORITY)
        return next(known for rule in later if (known := rule.build(composition)) is not None)

    engines: list[tuple[float, Callable[[], Profile]]] = [
        (0.0, lambda: profile),
        (LIMITS.enough_width, following),
    ]
    return CascadeProfile(engines, composition.log_total_variation)


def _step(loss: Part) -> tuple[float, float, Order, bool] | None:
    """Return distance, rate, order, and direction of a step, or None for another loss."""
    ratio = loss.normal_ratio
    if ratio is None or ratio.order == "opposite":
        return None
    rate, distance = getattr(ratio.loss, "rate", None), getattr(ratio.loss, "distance", None)
    if rate is None or distance is None:
        return None
    return distance, rate, ratio.order, ratio.loss.removed
