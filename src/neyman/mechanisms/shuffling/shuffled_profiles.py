"""Compute the dominating pairs for one person among many whose reports are shuffled.

Each of n people sends a report, and the reports come in random order. One person is the target. C
of the other reports can hide the target's report: each is of the first or the second kind with
probability 1/2. The target's report is of the first kind with probability a, of the second kind
with probability b, and otherwise uninformative. Under Q the kinds are swapped. The attacker sees
the numbers x and y of reports of both kinds. Let m = x + y, w the distribution of C, and
t = e^epsilon. Then

    P - t Q = w_{m-1} Bin(m, 1/2)(x) [2 g x / m - h],
    g = (a - b)(1 + t),    h = 2 (t a - b) + (1 - a - b)(t - 1) w_m / w_{m-1},

is positive from k = floor(h m / 2g) + 1 on. Sums of the binomial distribution give

    delta(epsilon) = sum over c of w_c [(g - h/2) Bin(c, 1/2)(k - 1) + (g - h) P(Bin(c, 1/2) >= k)].

For C ~ Bin(N, p), h m / 2g is linear in c, and k grows by 0 or 1 from c to c + 1.

- The pair with a = 1 - b = e^{epsilon_0} b, p = 2 b, N = n - 1 covers any epsilon_0-local report
  (Feldman, McMillan and Talwar 2023) [SH-1].
- Randomized response of k > 2 categories has a = e^{epsilon_0} b, b = 1 / (e^{epsilon_0} + k - 1).
  Its delta is at least the delta of the pair with p = 2 b, N = n - 1: all others hold a third
  category, and the attacker ignores the remaining categories (none for k = 3). Its delta is at
  most the delta of the mixture of the pairs with p = 2 / k over N ~ Bin(n - 1, k b), with N seen:
  each of the others answers at random with probability k b and else truly, and the attacker learns
  who answered truly [SH-2].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import betainc, betaincc

from neyman.curves.profiles.duality import Conjugate, log_power_by_duality
from neyman.curves.profiles.profile import Engine, Interval, Profile, log_delta_below_zero
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import log_between, log_binomial, log_half
from neyman.numerics.operations import CALL, charge


@dataclass(frozen=True)
class Limits:
    """Limit the sums over numbers of other people's reports, and their cost."""

    run_users: int = 64  # step in numbers of others between computed tails
    terms: int = 300_000


LIMITS = Limits()


@dataclass(frozen=True)
class ShufflePair:
    """Describe the pair of distributions of the numbers of reports of two kinds.

    Args:
        others: N, the number of reports that can hide the target, at least 0.
        epsilon: epsilon of the report, above 0, at most 300.
        categories: number of categories, at least 2: a = e^epsilon b,
            b = 1 / (e^epsilon + categories - 1).
        known: True if the attacker knows who answered at random: p = 2 / categories, not 2 b.
    """

    others: int
    epsilon: float
    categories: int = 2
    known: bool = False

    @property
    def rates(self) -> tuple[float, float]:
        """Return p and 1 - p, both with full relative accuracy."""
        k, s = self.categories, math.expm1(self.epsilon)
        if self.known:
            return 2 / k, (k - 2) / k
        return 2 / (s + k), (s + (k - 2)) / (s + k)


class _Crowded(Profile):
    """Compute powers by duality from the profile of a pair that is its own reverse."""

    _conjugate: Conjugate | None = None

    def rough(self, epsilons: Array) -> Array:
        """Estimate log delta, only to steer the search."""
        raise NotImplementedError

    def _top(self) -> float:
        raise NotImplementedError

    def log_delta(self, epsilon: float) -> Interval:
        low, high = self.log_deltas(np.array([epsilon], dtype=float))
        return float(low[0]), float(high[0])

    def log_power(self, log_level: float) -> Interval:
        low, high = self.log_powers(np.array([log_level], dtype=float))
        return float(low[0]), float(high[0])

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log powers by duality, near an estimate of the minimum."""
        bounds = np.zeros((2, len(log_levels)))
        bounds[:, np.isneginf(log_levels)] = -math.inf
        if self._conjugate is None:
            guess = Conjugate.over(
                lambda e: (self._both(e), self._both(e)), -self._reach(), self._reach()
            )
            self._conjugate = replace(guess, log_deltas=self.log_deltas)
        inner = (log_levels < -1e-12) & (log_levels > -math.inf)
        near = inner & np.array([self._conjugate.reaches(float(v)) for v in log_levels])
        if near.any():
            bounds[:, near] = self._conjugate.log_powers(log_levels[near])
        for i in np.flatnonzero((log_levels < 0) & (log_levels > -math.inf) & ~near):
            bounds[:, i] = log_power_by_duality(self.log_delta, float(log_levels[i]))
        return bounds[0], np.minimum(bounds[1], 0.0)

    def _both(self, epsilons: Array) -> Array:
        forward = self.rough(np.abs(epsilons))
        with np.errstate(divide="ignore"):
            back = np.log(-np.expm1(-np.abs(epsilons)) + np.exp(-np.abs(epsilons) + forward))
        return np.minimum(np.where(epsilons < 0, back, forward), 0.0)

    def _reach(self) -> float:
        """Return the epsilon at which delta falls to about e^-60."""
        return min(self.epsilon_near(-60.0), self._top() * (1 - 1e-9))

    def epsilon_near(self, log_delta: float) -> float:
        top = self._top()
        # same: * 1e -> / 1e: epsilon_near is a guess where a search begins: the answer is certified
        # around any guess.
        low, high = top * 1e-9, top * (1 - 1e-12)
        for _ in range(4):
            place = np.geomspace(low, high, 48)
            value = np.maximum.accumulate(self.rough(place)[::-1])[::-1]
            i = int(np.searchsorted(-value, -log_delta))
            if i in (0, len(place)):
                return float(place[min(i, len(place) - 1)])
            low, high = float(place[i - 1]), float(place[i])
        return 0.5 * (low + high)


class ShuffleProfile(_Crowded):
    """Compute the profile of a `ShufflePair`, which is its own reverse."""

    method = "sums over the others' reports"
    engine = Engine.SHUFFLE

    def __init__(self, crowd: ShufflePair) -> None:
        self.crowd = crowd
        self._p, self._q = crowd.rates

    def _top(self) -> float:
        return self.crowd.epsilon

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta, by a sum over c (reports that can hide) and bounds on omitted terms."""
        values = np.asarray(epsilons, dtype=float)
        asked, where = np.unique(np.abs(values), return_inverse=True)
        bounds = np.full((2, len(asked)), -math.inf)
        top = self.crowd.epsilon
        # The report's epsilon is rounded. Close to it, a slightly smaller epsilon bounds delta.
        safe = np.minimum(asked, top * (1 - 16 * UNIT))  # slack: counted
        inside = np.flatnonzero(asked < top * (1 + 4 * UNIT))  # slack: counted
        first, last = self._window(safe[inside])
        at = 0
        while at < len(inside):
            size = np.maximum.accumulate((last - first)[at:]) + 1
            count = max(
                int(np.count_nonzero(size * np.arange(1, len(size) + 1) <= LIMITS.terms)), 1
            )
            some = slice(at, at + count)
            bounds[:, inside[some]] = self._sums(safe[inside[some]], first[some], last[some])
            at += count
        # Epsilon and each product have an error of one unit: from 16 units below epsilon on, delta
        # may be 0.
        bounds[0, asked >= top * (1 - 16 * UNIT)] = -math.inf  # slack: counted
        low, high = bounds[0][where], bounds[1][where]
        below = values < 0
        if below.any():
            low[below], high[below] = log_delta_below_zero(values[below], (low[below], high[below]))
        return low, high

    def _sums(self, epsilon: Array, first: Array, last: Array) -> Array:
        n = self.crowd.others
        width = int((last - first).max()) + 1
        c = np.minimum(first, max(n + 1 - width, 0))[:, None] + np.arange(min(width, n + 1))
        below, above = self._terms(c, epsilon[:, None])
        low, high = _log_sum(below), _log_sum(above)
        # Outside both ends: more others never reveal more. So the first number of a block bounds
        # the block, with the falling ratio w_m / w_{m-1} of its last number [SH-4].
        steps = np.concatenate([[0], 2.0 ** np.arange(0, math.log2(n + 1) + 2)])
        span = np.maximum(0.05 * width, 1.0)
        left = np.maximum(c[:, :1] - np.ceil(steps[1:] * span), 0)
        ends = np.maximum(c[:, :1] - np.ceil(steps[:-1] * span), 0) - 1
        right = c[:, -1:] + 1 + np.floor(steps[:-1] * span)
        right_ends = np.minimum(c[:, -1:] + np.floor(steps[1:] * span), n)
        starts = np.concatenate([left, np.minimum(right, n)], 1)
        ends = np.concatenate([ends, right_ends], 1)
        real = np.concatenate([left <= ends[:, : left.shape[1]], right <= right_ends], 1)
        alone = self._bracket_logs(
            starts, epsilon[:, None], self._weight_ratio(ends) * (1 - 1e-12)
        )[1]
        rest = np.where(real, log_between(n, self._p, self._q, starts, ends) + alone, -math.inf)
        high = np.logaddexp(high, _log_sum(rest))
        # Errors: differences from the largest term, at most 20 units in the mean, a power 2, a
        # pairwise sum 40 (PT-6), two logarithms of 2 units, and two sums.
        slack = 64 * UNIT * (1 + np.abs(np.where(np.isfinite(high), high, 0.0)))  # slack: counted
        return np.array([low - slack, np.minimum(high + slack, 0.0)])

    def rough(self, epsilons: Array) -> Array:
        """Estimate log delta from some of the terms."""
        # Close to the report's epsilon, proceed as in `log_deltas`. The result only steers.
        # slack: counted
        first, last = self._window(np.minimum(epsilons, self._top() * (1 - 16 * UNIT)))
        stride = np.maximum((last - first) // 200, 1)  # numbers of others for an estimate of a sum
        count = int(((last - first) // stride).max()) + 1
        c = first[:, None] + stride[:, None] * np.arange(count)
        inside = c <= self.crowd.others
        c = np.minimum(c, self.crowd.others)
        # slack: counted
        low, high = self._terms(c, np.minimum(epsilons, self._top() * (1 - 16 * UNIT))[:, None])
        middle = np.where(np.isneginf(low), high - 1, 0.5 * (low + high))
        middle = np.where(np.isnan(middle), -math.inf, middle)
        return np.minimum(_log_sum(np.where(inside, middle, -math.inf)) + np.log(stride), 0.0)

    def _slopes(self, epsilon: Array) -> tuple[Array, Array]:
        """Return (first, second) in h m / 2g = first m + second (N - c); see the module."""
        crowd = self.crowd
        s, t, more = math.expm1(crowd.epsilon), np.exp(epsilon), np.expm1(epsilon)
        first = (t * s + more) / (s * (1 + t))
        if crowd.categories == 2:
            return first, np.zeros_like(first)
        odds = self._p / self._q
        return first, (crowd.categories - 2) * more * odds / (2 * s * (1 + t))

    def _window(self, epsilon: Array) -> tuple[Array, Array]:
        """Return the first and the last c of the sum, around its largest term.

        The log of a term is about log w_c + entropy - c log 2. Entropy - c log 2 is concave in (c,
        k), and k is linear in c. So terms fall at least as fast as binomial probabilities whose
        mean is at the maximum.
        """
        n, p, q = self.crowd.others, self._p, self._q
        first, second = self._slopes(epsilon)
        low, high = np.zeros(len(epsilon)), np.full(len(epsilon), float(n))
        for _ in range(64 if n else 0):
            c = 0.5 * (low + high)
            r = np.clip(first + second * (n - c) / (c + 1), 0.5, 1 - 1e-16)
            fall = np.log(2 * (1 - r)) + (first - second) * np.log(r / (1 - r))
            rise = np.log(np.maximum(n - c, 1e-300) / np.maximum(c, 1e-300)) + math.log(p / q)
            up = rise > fall
            low, high = np.where(up, c, low), np.where(up, high, c)
            if np.all(high - low < 0.5):
                break
        c = 0.5 * (low + high)
        if n <= 64:  # up to this many others, every number is summed
            return np.zeros(len(c), np.int64), np.full(len(c), n)
        spread = c * (1 - c / n)
        # Depth in e-folds below the largest term: smaller terms go to the bounds on the rest.
        depth_efolds = 36.0
        far = depth_efolds / 3 + np.sqrt((depth_efolds / 3) ** 2 + 2 * depth_efolds * spread) + 2
        return (
            np.maximum(np.floor(c - far), 0).astype(np.int64),
            np.minimum(np.ceil(c + far), n).astype(np.int64),
        )

    def _terms(self, c: Array, epsilon: Array) -> tuple[Array, Array]:
        """Bound the logarithms of the terms of the sum, for c reports that can hide."""
        n, p, q = self.crowd.others, self._p, self._q
        weight, error = log_binomial(n, p, q, c, self.crowd.epsilon)
        low, high = self._bracket_logs(c, epsilon, self._weight_ratio(c))
        return low + weight - error, high + weight + error

    def _weight_ratio(self, c: Array) -> Array:
        """Return w_{c+1} / w_c, the ratio of the probabilities of C = c + 1 and C = c."""
        odds = self._p / self._q if self._q else 0.0
        return np.maximum(self.crowd.others - c, 0) / (np.maximum(c, 0) + 1.0) * odds

    def _bracket_logs(self, c: Array, epsilon: Array, following: Array) -> tuple[Array, Array]:
        """Bound the logarithms of the factors in brackets in the module's sum for delta.

        ``following`` is the ratio w_m / w_{m-1}, with m = c + 1.
        """
        crowd = self.crowd
        top, none = crowd.epsilon, crowd.categories - 2
        s, t, more = math.expm1(top), np.exp(epsilon), np.expm1(epsilon)
        # In units of b, without cancellation if either epsilon is small or both are close.
        gap = t * np.expm1(top - epsilon)
        hidden = none * following * more
        first, g = gap - 0.5 * hidden, s * (1 + t)
        second = -more * (s + 2 + none * following)
        # Powers, products, and sums: 6 units. The report's epsilon and its difference from the
        # other epsilon are rounded: 2 units of top times e^top = t + gap. If gap dominates and top
        # is large, the 768 units of `log_half` and more cover the error, on both terms.
        off = 8 * UNIT * (gap + hidden) + 4 * UNIT * t * top  # slack: counted
        m = c + 1.0
        charge(CALL + 600.0 * m.size)  # operations per term
        place = m * first / g
        # same: * off -> / off: Safe: outside of it first and second are below 0, so the lower end
        # stays at -inf; only error can lift the upper one.
        inside = place > -m * off / g
        most = np.clip(np.ceil(place) - 1, 0.0, c)  # of the other kind
        k = m - most
        log_pmf, pmf_error = log_half(c, k - 1)
        ratio, ratio_error = _tail_over(c, k, log_pmf, pmf_error)
        value = first + second * ratio
        # The last term, if rounding decides about it: it is about 0, in units of the pmf.
        # The factor has an error of 5 units, the product and the sum of one each.
        error = 8 * UNIT * np.abs(second) * ratio + np.abs(second) * ratio_error  # slack: counted
        error = error + off * (3 + m / (most + 1))
        logs: list[Array] = []
        for x in (value - error, value + error):
            good = inside & (x > 0)
            logs.append(np.where(good, np.log(np.where(good, x, 1.0)), -math.inf))
        # Two logarithms have relative errors of 2 units, the second is at most top + 7, and two
        # sums have errors of one unit.
        slack = pmf_error + 8 * UNIT * (4 + top)  # slack: counted
        base = log_pmf - math.log(s + crowd.categories)
        return logs[0] + base - slack, logs[1] + base + slack


class BlanketProfile(_Crowded):
    """Bound randomized response of k categories if the attacker learns who else answered truly.

    The number of random answers is grouped in blocks: more random answers never reveal more.
    """

    method = "sums over the others' reports"
    engine = Engine.SHUFFLE

    def __init__(
        self, others: int, epsilon: float, categories: int, *, blocks: int | None = None
    ) -> None:
        self._epsilon, self._arguments = epsilon, (others, epsilon, categories)
        s = math.expm1(epsilon)
        p, q = categories / (s + categories), s / (s + categories)
        mean, deviation = others * p, math.sqrt(others * p * q)
        if others <= 40:
            starts = np.arange(others + 1)
        else:
            # With many others, their number is close to its mean.
            near = blocks or (28 if others < 10**6 else 9)
            out = -np.geomspace(1 + math.sqrt(others), 5, near - 4)
            far = np.concatenate([out, np.linspace(-4.5, 4.5, near)])
            starts = np.unique(np.clip(np.floor(mean + far * deviation), 0, others)).astype(
                np.int64
            )
            starts = np.union1d(starts, [0])
        tail = np.where(starts > 0, betainc(np.maximum(starts, 1), others - starts + 1.0, p), 1.0)
        lower = np.where(starts > 0, betaincc(np.maximum(starts, 1), others - starts + 1.0, p), 0.0)
        ends = np.append(tail[1:], 0.0)
        rising = np.append(lower[1:], 1.0)
        # The smaller tail has the digits. Both have an error of 1e-9 plus rounding.
        mass = np.where(tail < 0.5, tail - ends * (1 - 2e-9), rising - lower * (1 - 2e-9))
        mass = np.maximum(mass * (1 + 2e-9), 1e-300)
        self._log_mass = np.log(mass)
        self._profiles = [
            ShuffleProfile(ShufflePair(int(c), epsilon, categories, known=True)) for c in starts
        ]

    def _top(self) -> float:
        return self._epsilon

    def coarse(self) -> Profile:
        """Return a profile with fewer blocks if there are many others."""
        if self._arguments[0] < 4000:  # from this many others on, coarse bounds use few blocks
            return self
        return BlanketProfile(*self._arguments, blocks=9)

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Return an upper bound on log delta. The lower end is trivial."""
        values = np.asarray(epsilons, dtype=float)
        at = np.abs(values)
        log_deltas = np.array([profile.log_deltas(at)[1] for profile in self._profiles]).T
        high = np.minimum(_log_sum(log_deltas + self._log_mass) + 1e-12, 0.0)
        below = values < 0
        low = np.full(len(at), -math.inf)
        with np.errstate(divide="ignore"):
            low[below] = np.log(-np.expm1(values[below])) - 1e-12
        if below.any():
            high[below] = log_delta_below_zero(values[below], (high[below], high[below]))[1]
        return low, high

    def rough(self, epsilons: Array) -> Array:
        """Estimate log delta for the most probable block."""
        middle = self._profiles[int(np.argmax(self._log_mass))]
        return middle.rough(epsilons)


Order = Literal["P, Q", "Q, P"]
_BOTH: tuple[Order, ...] = ("P, Q", "Q, P")


class BinaryShuffleProfile(Profile):
    """Compute the profile of a reported bit if the n - 1 others all hold 0: a lower bound on delta.

    P = Bin(n - 1, b) + Bin(1, a) and Q = Bin(n, b), a = 1 - b = e^{epsilon_0} b. With
    t = e^epsilon,

        delta = (a - t b) Bin(k - 1) - (t - 1) P(Bin >= k),    Bin = Bin(n - 1, b),

    at the smallest k with P(k) > t Q(k), and similarly with the lower tail for (Q, P). The upper
    end holds for this pair only: do not use it for a curve of all neighbors [SH-8].

    Args:
        users: n, at least 1.
        epsilon: epsilon_0, above 0.
        orders: (P, Q), (Q, P), or both. Both give the larger delta and the larger power. No pair
            has all these deltas, so do not use them in sums or moments.
    """

    method = "all others hold the same bit"
    engine = Engine.SHUFFLE

    def __init__(self, users: int, epsilon: float, orders: tuple[Order, ...] = _BOTH) -> None:
        self._users, self._epsilon, self._orders = users, epsilon, orders

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta, in the worse of the orders."""
        at = np.asarray(epsilons, dtype=float)
        low, high = np.full(len(at), -math.inf), np.full(len(at), -math.inf)
        inside = np.abs(at) < self._epsilon * (1 - 16 * UNIT)  # slack: counted
        # Here delta is at most e^(top - epsilon) - 1: 16 units of top, and one for rounding.
        # slack: counted
        high[~inside & (np.abs(at) <= self._epsilon)] = math.log(64 * UNIT * (1 + self._epsilon))
        below = at < 0
        other: tuple[Order, ...] = tuple(o for o in _BOTH if (o,) != self._orders)
        for side, orders in ((~below, self._orders), (below, other)):
            asked = inside & side
            if asked.any():
                low[asked], high[asked] = self._interior_bounds(np.abs(at[asked]), orders)
        low[below], high[below] = log_delta_below_zero(at[below], (low[below], high[below]))
        return low, np.minimum(high, 0.0)

    def _interior_bounds(self, epsilons: Array, orders: tuple[Order, ...]) -> tuple[Array, Array]:
        n, top, s = self._users - 1, self._epsilon, math.expm1(self._epsilon)
        b, a = 1 / (s + 2), (s + 1) / (s + 2)
        t, more = np.exp(epsilons), np.expm1(epsilons)[:, None]
        gap = b * t * np.expm1(top - epsilons)
        # slack: delta_of_shuffled_binary_reports/a, delta_of_shuffled_binary_reports/b
        slack = 16 * UNIT * (gap + b * t * top)
        least, most = np.maximum(gap - slack, 1e-300)[:, None], (gap + slack)[:, None]
        ratio = (t * a - b) / least[:, 0]
        odds, near = math.exp(top), np.arange(-1, 2)
        up = np.clip(np.ceil((n + 1) * ratio / (odds + ratio))[:, None] + near, 1, n + 1)
        down = np.clip(np.floor((n + 1) / (1 + ratio * odds))[:, None] + near, 0, n)
        lows: list[Array] = []
        highs: list[Array] = []
        for order, place, tail in (
            ("P, Q", up - 1, np.where(up <= n, betainc(up, np.maximum(n - up, 0) + 1.0, b), 0.0)),
            (
                "Q, P",
                down,
                np.where(down > 0, betaincc(np.maximum(down, 1), n - down + 1.0, b), 0.0),
            ),
        ):
            if order not in orders:
                continue
            log_pmf, error = log_binomial(n, b, a, place, top)
            # in units of the pmf; the incomplete beta function has an error below 1e-9
            rest = more * tail * np.exp(np.minimum(-log_pmf, 700.0))
            value = least - rest * (1 + 1e-9) * np.exp(error)
            known = log_pmf > -600
            good = (value > 0) & known
            lows.append(
                np.where(good, np.log(np.where(good, value, 1.0)) + log_pmf - error, -np.inf)
            )
            value = np.where(known, most - rest * (1 - 1e-9) * np.exp(-error), most)
            # If rounding cancels everything, the rest is below a unit of the larger term.
            highs.append(np.log(np.maximum(value, UNIT * most)) + log_pmf + error)  # slack: counted
        low, high = np.max(lows, axis=(0, 2)), np.max(highs, axis=(0, 2))
        # A logarithm and two sums have relative errors of 4 units.
        # slack: delta_of_shuffled_binary_reports/a; delta_of_shuffled_binary_reports/b
        low, high = low - 8 * UNIT * (1 + np.abs(low)), high + 8 * UNIT * (1 + np.abs(high))
        # Largest number of others for which the best test is located to +- 1.
        # With more users, a rounded place may be more than one away from the best.
        return low, high if n <= 10**9 else np.zeros(len(high))

    def log_power(self, log_level: float) -> Interval:
        """Bound log power from below, by duality, in the better of the orders.

        Duality from the larger delta would give the power of a mixture, which no test attains.
        """
        if not -math.inf < log_level < 0:
            return log_level, 0.0
        best = max(
            log_power_by_duality(type(self)(self._users, self._epsilon, (o,)).log_delta, log_level)
            for o in self._orders
        )
        return best[0], 0.0


def _log_sum(terms: Array) -> Array:
    """Return the logarithm of sums of exponentials along the last axis."""
    top: Array = terms.max(axis=-1, initial=-math.inf, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]


def _tail_over(c: Array, k: Array, log_pmf: Array, pmf_error: Array) -> tuple[Array, Array]:
    """Return P(Bin(c, 1/2) >= k) / Bin(c, 1/2)(k - 1), and a bound on its error [SH-3].

    ``log_pmf`` is the log of the denominator. If c grows by one along a row, compute the tail at a
    few places, and between them use P(Bin(c + 1) >= k) = P(Bin(c) >= k) + Bin(c)(k - 1) / 2.
    """
    moves = np.diff(k, axis=1)
    if c.shape[1] < 3 or not (
        np.all(np.diff(c, axis=1) == 1) and np.all((moves == 0) | (moves == 1))
    ):
        ratio, error = _tail_asked(c, k, log_pmf)
        return ratio, error * ratio
    rows, width = c.shape
    short = -width % LIMITS.run_users
    start, start_error = _tail_asked(
        c[:, :: LIMITS.run_users], k[:, :: LIMITS.run_users], log_pmf[:, :: LIMITS.run_users]
    )
    base = np.repeat(log_pmf[:, :: LIMITS.run_users], LIMITS.run_users, axis=1)[:, :width]
    pmf = np.exp(np.minimum(log_pmf - base, 700.0))
    # Bin(c + 1)(k) = Bin(c)(k - 1) (c + 1) / (2 k)
    change = 0.5 * pmf[:, :-1] * (1 - moves * (c[:, :-1] + 1.0) / k[:, :-1])
    change = np.pad(change, ((0, 0), (1, short)))
    change[:, :: LIMITS.run_users] = 0.0
    runs = change.reshape(rows, -1, LIMITS.run_users)
    total = start[..., None] + np.cumsum(runs, axis=2)
    size = start[..., None] + np.cumsum(np.abs(runs), axis=2)
    # A sum of `run_users` terms; then a quotient, a power of e (2 units), and a difference.
    wrong = (start * start_error)[..., None] + (LIMITS.run_users * UNIT) * size  # slack: counted
    total = total.reshape(rows, -1)[:, :width]
    moved = (size - start[..., None]).reshape(rows, -1)[:, :width]
    wrong = wrong.reshape(rows, -1)[:, :width] + 2 * pmf_error.max() * moved
    # slack: counted
    return np.maximum(total, 0.0) / pmf, wrong / pmf + 8 * UNIT * np.abs(total) / pmf


def _tail_asked(c: Array, k: Array, log_pmf: Array) -> tuple[Array, Array]:
    """Return the ratio of `_tail_over` from the incomplete beta function, and its relative error.

    Far in the tail, the function underflows. There, its continued fraction (DLMF 8.17.22) needs few
    terms.
    """
    spread = np.abs(2 * k - c)
    # slack: a_tail_over_a_probability/a
    error = UNIT * (256 + 8 * spread)  # measured: a sixteenth of this, up to c = 1e9
    tail = np.where(k <= c, betainc(k, np.maximum(c - k, 0) + 1.0, 0.5), 0.0)
    ratio = tail * np.exp(np.minimum(-log_pmf, 700.0))
    error = error + 8 * UNIT * (np.abs(log_pmf) + 64)  # slack: a_tail_over_a_probability/a
    far = (tail < 1e-280) & (k <= c)
    if far.any():
        a, b = k[far], (c - k)[far] + 1.0
        value = np.ones(len(a))
        for j in range(100, 0, -1):  # levels of the continued fraction
            i = j // 2
            if j % 2:
                d = -(a + i) * (a + b + i) / (2 * (a + 2 * i) * (a + 2 * i + 1))
            else:
                d = i * (b - i) / (2 * (a + 2 * i - 1) * (a + 2 * i))
            value = 1 + d / value
        ratio[far] = b / (2 * a) / value
        error[far] = 1e-13 * (1 + a / (spread[far] + 1))
    return ratio, error
