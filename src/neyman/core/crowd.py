"""One person among many whose reports are shuffled: the pairs that decide what is learned.

Of n people each sends a report, and the reports come in random order. The n - 1 others hide the one
by the reports that could as well be theirs: C ~ Bin(n - 1, p) of them, each of the one kind or of
the other with probability 1/2. The one adds a report of the first kind with probability a, of the
second with probability b, and none that tells with probability 1 - a - b; under Q the kinds are
swapped. Seen are the numbers x and y of reports of both kinds. With m = x + y, w the law of C, and
t = e^epsilon,

    P - t Q = w_{m-1} Bin(m, 1/2)(x) [2 g x / m - h],
    g = (a - b)(1 + t),    h = 2 (t a - b) + (1 - a - b)(t - 1) w_m / w_{m-1},

is positive from k = floor(h m / 2g) + 1 on, and by the sums of the binomial law

    delta(epsilon) = sum over c of w_c [(g - h/2) Bin(c, 1/2)(k - 1) + (g - h) P(Bin(c, 1/2) >= k)].

Any epsilon_0-local report is covered by a = 1 - b = e^{epsilon_0} b, p = 2 b (Feldman, McMillan and
Talwar 2023). Randomized response of k > 2 categories is b = 1 / (e^{epsilon_0} + k - 1),
a = e^{epsilon_0} b, p = 2 b, exactly: tell the attacker which of the others answered truly; what
they would have answered instead is any category alike, and nothing is told by it where all others
hold a third one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, gammaln

from neyman.numerics.atoms import UNIT
from neyman.numerics.duality import log_power_by_duality
from neyman.numerics.profile import Interval, Profile, log_delta_below_zero

__all__ = ["BinaryCrowdProfile", "Crowd", "CrowdProfile"]

Array = NDArray[Any]
SEEN = 50.0  # e-folds below the largest term at which terms are left to the bounds on the rest
FEW = 5000  # others of whom every number is looked at
COARSE = 600  # numbers of others at which the terms are looked at first
MOST_TERMS = 4_000_000  # that are summed one by one
RUN = 1000  # terms from one place to the next at which a tail is asked for
MOST_FAR = 400  # terms of a series far out
SMALL = 16  # below it Stirling's series is not used


@dataclass(frozen=True)
class Crowd:
    """The pair of numbers of reports of two kinds.

    Args:
        others: n - 1, how many reports hide the one, at least 0.
        rate: p, with which each of them is of the two kinds, in (0, 1].
        own: a, with which the report in question is of its own kind.
        other: b < a, with which it is of the other kind.
    """

    others: int
    rate: float
    own: float
    other: float


class CrowdProfile(Profile):
    """The profile of a `Crowd`, which is its own reverse."""

    method = "sums over the others' reports"

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._found: dict[float, Interval] = {}

    def log_delta(self, epsilon: float) -> Interval:
        """The sum over the numbers of others, what is left out bounded."""
        if epsilon < 0:
            low, high = log_delta_below_zero(epsilon, self.log_delta(-epsilon))
            return float(low), float(high)
        if epsilon not in self._found:
            self._found[epsilon] = self._sum(epsilon)
        return self._found[epsilon]

    def _sum(self, epsilon: float) -> Interval:
        crowd = self._crowd
        top = math.log(crowd.own / crowd.other)
        if epsilon >= top * (1 + 4 * UNIT):
            return -math.inf, -math.inf
        n, p = crowd.others, crowd.rate
        if n and n * p < 1e-290:
            raise ValueError(f"rate = {p!r} is too small for any of the others to hide anything")
        low, high, starts = self._window(epsilon)
        if high - low > MOST_TERMS:  # so far out that nobody asks: blocks alone bound it
            blocks = np.linspace(low, high, 4 * COARSE).astype(np.int64)
            starts, low, high = np.union1d(starts, blocks[:-1]), high, high
        below, above = self._terms(np.arange(low, high + 1), epsilon)
        # Beyond both ends: more others never tell more, so each block is at most as its first.
        starts = np.append(starts, high + 1) if high < n else starts
        ends = np.append(starts[1:], n + 1) - 1
        ends = np.where(starts < low, np.minimum(ends, low - 1), ends)
        alone = self._given(starts, epsilon, np.zeros(len(starts)))[1]
        rest = _log_between(n, p, starts, ends) + alone
        return _log_sum(below), min(float(np.logaddexp(_log_sum(above), _log_sum(rest))), 0.0)

    def _window(self, epsilon: float) -> tuple[int, int, Array]:
        """The numbers of others that matter, and a coarse grid of those below them."""
        n, p = self._crowd.others, self._crowd.rate
        if n <= FEW:
            return 0, n, np.zeros(0, np.int64)
        mean, deviation = n * p, math.sqrt(n * p * (1 - p)) + 1
        spread = np.concatenate([
            np.geomspace(1, n + 1, COARSE // 2) - 1,
            mean + deviation * np.linspace(-40, 40, COARSE // 2),
            np.linspace(0, mean, COARSE // 2),
        ])  # fmt: skip
        places = whole = _whole(spread, n)
        while True:
            terms = self._terms(places, epsilon)[1]
            near = np.flatnonzero(terms > terms.max() - SEEN)
            if not len(near):
                return 0, n, np.zeros(0, np.int64)
            low, high = max(near[0] - 1, 0), min(near[-1] + 1, len(places) - 1)
            first, last = int(places[low]), int(places[high])
            if high - low > COARSE // 8 or last - first < COARSE:
                return first, last, whole[whole < first]
            places = _whole(np.linspace(first, last, COARSE), n)

    def _terms(self, c: Array, epsilon: float) -> tuple[Array, Array]:
        """Logarithms of the terms, rounded down and up."""
        n, p = self._crowd.others, self._crowd.rate
        weight, error = _log_binomial(n, p, c)
        with np.errstate(divide="ignore"):
            next_ = (n - c) / (c + 1.0) * (p / (1 - p) if p < 1 else 0.0)
        low, high = self._given(c, epsilon, next_)
        return low + weight - error, high + weight + error

    def _given(self, c: Array, epsilon: float, following: Array) -> tuple[Array, Array]:
        """The brackets in the sum, w_m / w_{m-1} being ``following``: logarithms, both sides."""
        a, b = self._crowd.own, self._crowd.other
        t, more = math.exp(epsilon), math.expm1(epsilon)
        none = max(1 - a - b, 0.0)
        g = (a - b) * (1 + t)
        h = 2 * (t * a - b) + none * following * more
        m = c + 1.0
        k = np.floor(h / (2 * g) * m) + 1
        inside = k <= m
        k = np.minimum(k, m)
        log_pmf, pmf_error = _log_half(c, k - 1)
        # g - h/2 and g - h, without cancellation where epsilon is small
        first = (a - b * t) - none * following * more / 2
        second = -more * ((a + b) + none * following)
        ratio, ratio_error = _tail_over(c, k, log_pmf)
        value = first + second * ratio
        error = 8 * UNIT * (a + b * t + none * following * more) + np.abs(second) * ratio * (
            ratio_error + pmf_error + 8 * UNIT
        )
        far = inside & np.isnan(ratio)
        least, most = value - error, value + error
        if far.any():
            place = (k - h / (2 * g) * m)[far]
            low, high = _far(c[far], k[far], np.clip(place, 0.0, 1.0))
            least[far], most[far] = low * g / k[far], high * g / k[far]
        logs = [
            np.where(inside & (x > 0), np.log(np.where(x > 0, x, 1.0)), -math.inf)
            for x in (least, most)
        ]
        return logs[0] + log_pmf - pmf_error, logs[1] + log_pmf + pmf_error

    def log_power(self, log_level: float) -> Interval:
        """By duality."""
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        low, high = log_power_by_duality(self.log_delta, log_level)
        return low, min(high, 0.0)

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval | None:
        """Unknown."""
        return None


class BinaryCrowdProfile(Profile):
    """What a reported bit tells if the n - 1 others all hold 0: a curve that shuffling cannot beat.

    P = Bin(n - 1, b) + Bin(1, a) and Q = Bin(n, b), a = 1 - b = e^{epsilon_0} b; with t = e^epsilon

        delta = (a - t b) Bin(k - 1) - (t - 1) P(Bin >= k),    Bin = Bin(n - 1, b),

    at the least k at which it pays, likewise from below for (Q, P). The upper end is 1.
    """

    method = "all others hold the same bit"

    def __init__(self, users: int, epsilon: float) -> None:
        self._users, self._epsilon = users, epsilon

    def log_delta(self, epsilon: float) -> Interval:
        """Of the worse order; whatever k, it is a lower bound."""
        if epsilon < 0:
            return float(log_delta_below_zero(epsilon, self.log_delta(-epsilon))[0]), 0.0
        n, b = self._users - 1, 1 / (math.exp(self._epsilon) + 1)
        a, t, more = 1 - b, math.exp(epsilon), math.expm1(epsilon)
        if epsilon >= self._epsilon * (1 - 16 * UNIT):
            return -math.inf, 0.0
        ratio = (t * a - b) / (a - t * b)
        odds = math.exp(self._epsilon)
        up = np.clip(math.ceil((n + 1) * ratio / (odds + ratio)) + np.arange(-1, 2), 1, n + 1)
        down = np.clip(math.floor((n + 1) / (1 + ratio * odds)) + np.arange(-1, 2), 0, n)
        best = -math.inf
        for place, tail in (
            (up - 1, np.where(up <= n, betainc(up, np.maximum(n - up, 0) + 1.0, b), 0.0)),
            (down, np.where(down > 0, betaincc(np.maximum(down, 1), n - down + 1.0, b), 0.0)),
        ):
            log_pmf, error = _log_binomial(n, b, place)
            # in units of the pmf; the incomplete beta function is off by less than 1e-9
            value = (a - t * b) * (1 - 16 * UNIT) - more * tail * (1 + 1e-9) * np.exp(
                np.minimum(-log_pmf, 700.0)
            )
            good = (value > 0) & (log_pmf > -600)
            if good.any():
                best = max(best, float((np.log(value[good]) + (log_pmf - error)[good]).max()))
        return best, 0.0

    def log_power(self, log_level: float) -> Interval:
        """By duality, from below."""
        if not -math.inf < log_level < 0:
            return log_level, 0.0
        return log_power_by_duality(self.log_delta, log_level)[0], 0.0

    def epsilon_near(self, log_delta: float) -> float:
        """Nothing better than one."""
        return 1.0

    def mu(self) -> Interval | None:
        """Unknown."""
        return None


def _log_sum(terms: Any) -> float:
    """log of a sum of exponentials."""
    values = np.asarray(terms, dtype=float)
    top = float(values.max(initial=-math.inf))
    if top == -math.inf:
        return top
    return top + math.log(float(np.exp(values - top).sum()))


def _whole(places: Array, n: int) -> Array:
    return np.unique(np.clip(np.rint(places), 0, n)).astype(np.int64)


def _tail_over(c: Array, k: Array, log_pmf: Array) -> tuple[Array, Array]:
    """P(Bin(c, 1/2) >= k) / Bin(c, 1/2)(k - 1) and its relative error; nan where it is too far.

    The incomplete beta function is slow near the middle: there it is asked at a few places, and
    between them P(Bin(c + 1) >= k) = P(Bin(c) >= k) + Bin(c)(k - 1) / 2.
    """
    spread = 2 * k - c
    error = UNIT * (256 + 8 * np.abs(spread))  # measured: a sixteenth of it, up to c = 1e9
    asked = np.arange(len(c))
    runs = len(c) > 8 * RUN and bool(np.all(np.diff(c) == 1))
    if runs:
        runs = float(np.median(spread / np.sqrt(c + 1.0))) < 3
    moves = np.diff(k)
    if runs and np.all((moves == 0) | (moves == 1)):
        asked = np.arange(0, len(c), RUN)
    tail = np.where(k <= c, betainc(k, np.maximum(c - k, 0) + 1.0, 0.5), 0.0) if len(
        asked
    ) == len(c) else np.empty(len(c))
    if len(asked) < len(c):
        at = asked
        start = betainc(k[at], c[at] - k[at] + 1.0, 0.5)
        pmf = np.exp(log_pmf)
        # Bin(c + 1)(k) = Bin(c)(k - 1) (c + 1) / (2 k)
        change = 0.5 * pmf[:-1] * (1 - moves * (c[:-1] + 1.0) / k[:-1])
        total = np.concatenate([[0.0], np.cumsum(change)])
        tail = np.repeat(start - total[at], RUN)[: len(c)] + total
        error = error + 4 * UNIT * len(c)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(tail > 1e-280, tail * np.exp(np.minimum(-log_pmf, 700.0)), math.nan)
    ratio = np.where(k > c, 0.0, ratio)
    return ratio, error


def _far(c: Array, k: Array, place: Array) -> tuple[Array, Array]:
    """Bounds on the sum over i of R_i (place + i), R_i = prod (m - k - j) / (k + j + 1), m = c + 1.

    All terms are positive. Where they are too many, the ratios are bounded by the first one, and
    from below by a later one.
    """
    m = c + 1.0
    first = (m - k) / (k + 1)
    need = 45.0 / np.maximum(-np.log(np.maximum(first, 1e-300)), 1e-300)
    low, high = np.empty(len(c)), np.empty(len(c))
    few = need < MOST_FAR
    if few.any():
        mf, kf, x = m[few], k[few], place[few]
        total, weight = np.zeros(len(x)), np.ones(len(x))
        for i in range(int(need[few].max()) + 2):
            total += weight * (x + i)
            weight *= np.maximum(mf - kf - i, 0.0) / (kf + i + 1)
        # what is left is below a geometric series; the place is rounded
        count = int(need[few].max()) + 2
        rest = weight * (x + count) / (1 - first[few]) ** 2
        slack = (8 * count + 64) * UNIT * total + 16 * UNIT * m[few] / (1 - first[few])
        low[few], high[few] = total - slack, total + rest + slack
    many = ~few
    if many.any():
        mf, kf, x, ratio = m[many], k[many], place[many], first[many]
        slack = 16 * UNIT * mf / (1 - ratio)
        high[many] = (x / (1 - ratio) + ratio / (1 - ratio) ** 2) * (1 + 1e-9) + slack
        far = 8 / (1 - ratio)
        last = np.maximum(mf - kf - far, 0.0) / (kf + far + 1)
        # of the terms up to there: all but e^-8 (1 + 8) of a geometric series with the last ratio
        low[many] = 0.99 * (x / (1 - last) + last / (1 - last) ** 2) * (1 - 1e-9) - slack
    return low, high


def _stirling(n: Array) -> Array:
    """log n! - (n + 1/2) log n + n - log(2 pi) / 2, 0 standing for 1: to 1e-16."""
    big = np.maximum(n, SMALL)
    square = big * big
    series = _horner(square) / big
    few = np.maximum(np.minimum(n, SMALL), 1.0)
    exact = gammaln(few + 1) - (few + 0.5) * np.log(few) + few - math.log(math.tau) / 2
    return np.where(n < SMALL, exact, series)


def _horner(square: Array) -> Array:
    total = np.zeros_like(square)
    for coefficient in (1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        total = total / square + coefficient
    return total


def _log_binomial(n: int, p: float, c: Array) -> tuple[Array, Array]:
    """log Bin(n, p)(c) and a bound on its error, by deviances (Loader 2000)."""
    if p >= 1:
        return np.where(c == n, 0.0, -math.inf), np.zeros(len(c))
    x, y = c.astype(float), (n - c).astype(float)
    deviance = _deviance(x, n * p) + _deviance(y, n * (1 - p))
    inner = (x > 0) & (y > 0)
    safe_x, safe_y = np.maximum(x, 1.0), np.maximum(y, 1.0)
    rest = _stirling(np.array([float(max(n, 1))])) - _stirling(safe_x) - _stirling(safe_y)
    rest = rest + 0.5 * (math.log(max(n, 1) / math.tau) - np.log(safe_x) - np.log(safe_y))
    ends = np.where(x == 0, n * math.log1p(-p), n * math.log(p))
    value = np.where(inner, rest - deviance, ends)
    # n p is rounded, by which the deviance moves by |x - n p| units
    size = np.abs(value) + np.abs(x - n * p) + 64
    return value, 8 * UNIT * size


def _deviance(x: Array, mean: float) -> Array:
    """x log(x / mean) + mean - x, to relative accuracy."""
    v = (x - mean) / np.maximum(x + mean, 1e-300)
    # log(x / mean) = 2 atanh(v); for small v the series of x 2 atanh(v) - (x - mean)
    near = np.abs(v) < 0.1
    u = np.where(near, v, 0.0)
    square, total, power = u * u, np.zeros_like(u), u * u * u
    for j in range(3, 25, 2):
        total, power = total + power / j, power * square
    close = (x - mean) * u + 2 * x * total
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(x > 0, x * np.log(np.maximum(x, 1e-300) / mean), 0.0) + mean - x
    return np.where(near, close, far)


def _log_half(c: Array, j: Array) -> tuple[Array, Array]:
    """log Bin(c, 1/2)(j) and a bound on its error."""
    x, n = np.asarray(j, dtype=float), c.astype(float)
    y = n - x
    u = np.where(n > 0, (x - y) / np.maximum(n, 1.0), 0.0)
    inner = (x > 0) & (y > 0)
    kept = np.where(inner, u, 0.0)
    deviance = 0.5 * n * (np.log1p(-kept * kept) + 2 * kept * np.arctanh(kept))
    safe_x, safe_y = np.maximum(x, 1.0), np.maximum(y, 1.0)
    rest = _stirling(np.maximum(n, 1.0)) - _stirling(safe_x) - _stirling(safe_y)
    rest = rest + 0.5 * (np.log(np.maximum(n, 1.0) / math.tau) - np.log(safe_x) - np.log(safe_y))
    value = np.where(inner, rest - deviance, -n * math.log(2))
    return value, 8 * UNIT * (np.abs(value) + 64)


def _log_between(n: int, p: float, low: Array, high: Array) -> Array:
    """log P(low <= Bin(n, p) <= high), rounded up: by the smaller tail, or Chernoff's bound."""
    upper = np.where(low > 0, betainc(np.maximum(low, 1), n - np.maximum(low, 1) + 1.0, p), 1.0)
    inner = np.minimum(high, n - 1)
    lower = np.where(high < n, betaincc(inner + 1.0, np.maximum(n - inner, 1), p), 1.0)
    least = np.minimum(upper, lower)
    x = np.where(high < n * p, high, low).astype(float)
    outside = (high < n * p) | (low > n * p)
    chernoff = _deviance(x, n * p) + (_deviance(n - x, n * (1 - p)) if p < 1 else 0.0)
    chernoff = np.where(outside, -chernoff * (1 - 1e-9), 0.0)
    with np.errstate(divide="ignore"):
        exact = np.where(least > 1e-290, np.log(least) + 1e-9, chernoff)
    return np.minimum(exact, chernoff + 1e-9)
