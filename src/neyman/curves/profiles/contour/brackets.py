"""Compute profiles by lines of integration, one per size of the largest term where one is wide.

If a sum has a few rare large losses among many small ones, no single line is good for both. With
mu_j the measure of a term that is cut at the level l_j, for increasing levels,

    mu^{*n} = mu_0^{*n} + sum over j of (mu_j^{*n} - mu_{j-1}^{*n}):

the bulk, plus, for each level, the sums whose largest term is near the level. Each of these
(brackets) is a positive measure [LS-2, FV-1], so the bounds of a line (`contour_line`) apply to it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.contour.contour import ContourLines, ContourProfile
from neyman.curves.profiles.contour_line import (
    LIMITS,
    Line,
    LineSum,
    Mass,
    Telescope,
    line_at,
    line_for,
    rough,
    tilts_of,
)
from neyman.curves.profiles.duality import Conjugate, log_power_near
from neyman.curves.profiles.lattice.lattice import tilt_of_level
from neyman.curves.profiles.profile import Interval, Profile
from neyman.numerics.arrays import Array, imaginary_part, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p
from neyman.numerics.operations import CALL, charge, in_question
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import above

GOOD_POWER_WIDTH = 1e-6  # width of log power at which no other deltas are sought
RATIO = 8.0  # ratio of levels: the line of a bracket is good for losses that differ by about this


@dataclass(frozen=True, eq=False)
class CutTransform:
    """Hold the transforms M_low and M_inside of a term below a bracket and inside it.

    Args:
        log_low, log_inside: logarithms of their values at u = 0; -inf without a lower level.
        low, inside: M(c + iu) / M(c) - 1 at heights u. If rounding hides the inside, it is -1, with
            error 1, and ``log_inside`` is an upper bound.
        low_error, inside_error: bounds on the errors of these and of the values at 0.
    """

    log_low: float
    log_inside: float
    low: Array
    inside: Array
    low_error: Array
    inside_error: Array


@dataclass(frozen=True, eq=False)
class CutWeights:
    """Hold the losses of a term, with the logarithms of their weights below a bracket and inside.

    Args:
        count: number of such terms.
        place: the losses.
        low, inside: logarithms of the weights; ``low`` is None without a lower level.
    """

    count: int
    place: Array
    low: Array | None
    inside: Array


class BracketSum(ABC):
    """Compute the transform of one bracket, F = product of M_high^n - product of M_low^n.

    M_low and M_high are the transforms of a term cut at the bracket's levels, n its count. Without
    a lower level, F is the first product. A subclass also implements `LineSum.wave_nodes`,
    `LineSum.places`, and `LineSum.end`.
    """

    low: float
    high: float

    @property
    def span(self) -> float:
        return 0.0

    @property
    def split(self) -> bool:
        """Return True if there is a lower level."""
        return self.low > -math.inf

    @abstractmethod
    def transforms(self, tilt: float, u: Array) -> list[tuple[int, CutTransform]]:
        """Return the transforms of each term with its count, at tilt + iu."""

    @abstractmethod
    def weights(self) -> list[CutWeights]:
        """Return the weights of each term, to estimate moments."""

    @property
    @abstractmethod
    def wave_nodes(self) -> int: ...

    @abstractmethod
    def places(self, tilt: float, height: float) -> float: ...

    @abstractmethod
    def end(self, tilt: float, need: float, step: float) -> tuple[float, float] | None: ...

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        return np.zeros(len(edges))  # `end` bounds the nodes

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        """Return log F(z), and a bound on the error of F(z) relative to F(Re z)."""
        if z.dtype.kind == "c":
            return self.on_line(float(z[0].real), imaginary_part(z))
        each = [self.on_line(c, np.zeros(1)) for c in z.tolist()]
        log_f, error = np.real(np.array(each))[:, :, 0].T
        return log_f, error

    @np.errstate(all="ignore")  # a NaN gives a trivial bound
    def on_line(self, tilt: float, u: Array) -> tuple[Array, Array]:
        """Return log F(tilt + iu), and a bound on the error of F relative to F(tilt) [LS-6, FV-1].

        With x = M_inside / M_low, F is the product of M_low^n times e^g - 1, where g is the sum of
        n log(1 + x). It is a polynomial of M_low and M_inside with positive coefficients, and both
        are largest at u = 0.
        """
        split, sums = self.split, self.transforms(tilt, u)
        ratios = [s.log_inside - s.log_low if split else 0.0 for _, s in sums]
        if max(ratios) > 700:
            return np.zeros(len(u), complex), np.full(len(u), math.inf)
        lift = max(-500.0 - max(ratios), 0.0)  # F is proportional to ratios that underflow
        total, gain = np.zeros(len(u), complex), np.zeros(len(u), complex)
        real_gain, size, errors = 0.0, np.ones(len(u)), list[Array]()
        for (n, s), ratio in zip(sums, ratios, strict=True):
            log_value, moved = (s.log_low, s.low) if split else (s.log_inside, s.inside)
            # A value near 0 is replaced by 8 units.
            hidden = np.abs(1 + moved) < 8 * UNIT  # slack: counted
            moved = np.where(hidden, 8 * UNIT - 1, moved)  # slack: counted
            wrong = s.low_error if split else s.inside_error
            errors.append(wrong + 16 * UNIT * hidden)  # slack: counted
            turned = log1p(moved)
            total = total + n * (log_value + turned)
            size = size + n * (abs(log_value) + np.abs(turned))
            if split:
                x = math.exp(ratio + lift)
                gained = log1p(x * (1 + s.inside) / (1 + moved))
                gain, real_gain = gain + n * gained, real_gain + n * math.log1p(x)
                size = size + n * np.abs(gained) + abs(ratio)
        # F over the product of M_high^n, at u = 0.
        share = -math.expm1(-real_gain) if split else 1.0
        error, power = np.zeros(len(u)), np.zeros(len(u))
        rise = 1 + np.max([s.inside_error for _, s in sums], axis=0)
        for (n, s), ratio, own in zip(sums, ratios, errors, strict=True):
            each = more = own
            if split:
                x = math.exp(ratio + lift)
                inside = x / (1 + x) * s.inside_error
                low = min(1.0, 1 / ((1 + x) * share)) * own * rise
                each, more = inside / share + low, own / (1 + x) + inside
            error, power = error + n * each, power + n * more
        error = error * np.exp(power)
        # What rounding hides is not in log F.
        error = error / (1 - error[0])
        if not 0 <= error[0] < 0.5:
            return np.zeros(len(u), complex), np.full(len(u), math.inf)
        if split:
            near = np.real(gain) < 30
            gained = np.log(np.expm1(np.where(near, gain, 1.0)))
            far = gain + np.log1p(-np.exp(-np.where(near, 30.0, gain)))
            total = total + np.where(near, gained, far) - lift
        # |F| over its value at u = 0, which it does not exceed.
        phi = np.exp(np.minimum(real_part(total) - total[0].real, 0.0))
        error = error + 16 * UNIT * (size * phi + 1)  # slack: counted
        return total, np.where(np.isfinite(error), error, math.inf)

    @np.errstate(all="ignore")
    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return log F, and mean and variance of the measure under each tilt; uncertified."""
        k, mean, variance, missing, scale, rises, bends = np.zeros((7, len(tilts)))
        inner: list[tuple[int, Array, Array, Array]] = []
        for each in self.weights():
            n, place = each.count, each.place
            charge(CALL + 100 * len(tilts) * len(place))
            moved = np.multiply.outer(tilts, place)
            main, m, v = _tilted(place, moved + (each.inside if each.low is None else each.low))
            mean, variance = mean + n * m, variance + n * v
            if each.low is not None:
                log_inside, far, square = _tilted(place, moved + each.inside, m)
                log_inside, main = log_inside - main, np.logaddexp(main, log_inside)
                inner.append((n, log_inside - np.logaddexp(0.0, log_inside), far, square - v))
            k = k + n * main
        if not inner:
            return k, mean, variance
        # Shares that underflow are lifted: they add to each of these sums in proportion.
        lift = np.maximum(-300.0 - np.max([log_share for _, log_share, _, _ in inner], axis=0), 0.0)
        for n, log_share, far, more in inner:
            share = np.exp(np.minimum(log_share + lift, 0.0))
            scale, missing = scale + n * share, missing + n * np.log1p(-share)
            rises, bends = rises + n * share * far, bends + n * share * (more - share * far * far)
        scale = np.where(lift > 0, scale, -np.expm1(missing))
        move = rises / scale
        spread = variance + (bends + rises * rises) / scale - move * move
        return k + np.log(scale) - lift, mean + move, np.maximum(spread, 1e-300)

    def bound(self, epsilon: float, enough: float) -> tuple[float, float]:
        """Return a tilt c, and an upper bound on log F(c), for Chernoff's bound at an epsilon.

        The saddle is the best c, unless rounding hides F there and not at smaller tilts.

        enough: a log share of delta below which no better bound is sought.
        """
        c = math.exp(tilts_of(self, epsilon)[1])
        log_f = self.log_above(c)
        for _ in range(12):
            if log_f < max(enough + c * epsilon, float(self.moments(np.array([c]))[0][0]) + 1):
                break
            c /= 2
            log_f = self.log_above(c)
        return c, log_f

    def rough(self, epsilon: float) -> float:
        """Estimate the log of the bracket's share of delta."""
        k, mean, variance = in_question(("bracket", self), lambda: self.moments(np.zeros(1)))
        if epsilon < float(mean[0]) - 4 * math.sqrt(float(variance[0])):
            return float(k[0])  # almost all losses are above epsilon
        return rough(self, epsilon)

    def mass(self, epsilon: float) -> Mass | None:
        """Return the masses of the bracket if all its losses are above epsilon, else None."""
        if not self.low > epsilon:
            return None
        k, error = self.mgf(np.array([0.0, -0.5]))
        if not error.max() < 0.5:
            return None
        low, high = k + np.log1p(-error), k + np.log1p(error)
        slack = 8 * UNIT * (1 + np.abs(k))  # slack: counted
        return Mass(float((low - slack)[0]), float((high + slack)[0]), float((high + slack)[1]))

    def log_above(self, tilt: float) -> float:
        """Return an upper bound on log F at a real tilt."""
        k, error = (float(v[0]) for v in self.mgf(np.array([tilt])))
        # slack: counted
        return k + math.log1p(error) + 8 * UNIT * abs(k) if error < math.inf else math.inf


class LargestTermProfile(ContourProfile):
    """Compute the profile of a sum by one line, or by one per bracket where one is wide.

    Args:
        losses: the sum.
        line_sum: the sum for one line, without levels.
        composition: the sum as its parts.
        backward: returns the profile of the reversed losses.
        spread: approximate standard deviation of the sum.
    """

    patient = False
    ratios: tuple[float, ...] = (RATIO,)  # of levels, to try in turn
    good_width = 1e-8  # of log delta, at which brackets are not tried
    fair_width = 1e-8  # the same for other brackets, and lines with a tiny release

    def __init__(
        self,
        losses: LineSum,
        line_sum: LineSum,
        composition: Composition,
        backward: Callable[[], Profile],
        spread: float,
    ) -> None:
        top = above(composition.supremum), composition.log_top
        super().__init__(losses, backward, composition.infinite, *top)
        self._line_sum, self._composition, self._spread = line_sum, composition, spread
        self._largest_tilt = LIMITS.largest_tilt

    @abstractmethod
    def brackets(self, epsilon: float, ratio: float = RATIO) -> Sequence[BracketSum]:
        """Return brackets for an epsilon, which together are the sum up to the last level.

        ``ratio``: ratio of successive levels.
        """

    def beyond(self, last: float) -> list[tuple[float, float]]:
        """Return a tilt and a bound on log F for what is above the ``last`` level, if anything."""
        return []

    def _line(self, epsilon: float) -> ContourLines | None:
        """Return the narrowest of one line and brackets; with a tiny release if both are wide."""
        best: ContourLines | None = None
        narrowest = math.inf
        for release in (False, True):
            for ratio in (0.0, *self.ratios):
                if ratio:
                    lines = self._split(epsilon, release, ratio)
                elif not release or isinstance(self._line_sum, BracketSum):
                    lines = self._one_line(epsilon, release)
                else:  # K is no sum of waves: brackets are faster
                    continue
                width = math.inf if lines is None else lines.width(epsilon)
                if width < narrowest or best is None:
                    best, narrowest = lines, width
                if narrowest <= (self.fair_width if ratio or release else self.good_width):
                    return best
        return best

    def _one_line(self, epsilon: float, release: bool) -> Line | None:
        return line_at(self._line_sum, epsilon, release=release)

    def _split(self, epsilon: float, release: bool, ratio: float) -> Telescope | None:
        """Return a line for each bracket that matters, and bounds on the others."""
        brackets = self.brackets(epsilon, ratio)
        if brackets[0] is self._line_sum:
            return None
        shares = [x.rough(epsilon) for x in brackets]
        lines: list[Line | Mass] = []
        rest: list[tuple[float, float]] = []
        for bracket, share in zip(brackets, shares, strict=True):
            one = None
            if not share < max(shares) - 30:  # NaN: no estimate
                one = line_at(bracket, epsilon, release=release) or bracket.mass(epsilon)
            if one is None:
                rest.append(bracket.bound(epsilon, max(shares) - 40))
            else:
                lines.append(one)
        last = self.beyond(brackets[-1].high)
        return Telescope(tuple(lines), (*rest, *last)) if lines else None

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon with this log delta: by one line, else by a search with brackets."""
        first = line_for(self._line_sum, log_delta, release=False)
        width = math.inf if first is None else first[0].width(first[1])
        if first is not None and width <= self.good_width:
            self._add_line(*first, width)
            return min(first[1], self._supremum)
        top = min(self._supremum, 1e9)
        # Far beyond the spread, estimates are too large: go out until delta is small.
        low, high = 1e-6 * self._spread, min(0.1 * self._spread, top)
        if not (low < high and self._rough(low) > log_delta):
            return 1.0
        while high < top and self._rough(high) > log_delta:
            low, high = high, min(4 * high, top)

        def above_delta(log_epsilon: float) -> bool:
            return self._rough(math.exp(log_epsilon)) > log_delta

        ends = math.log(low), math.log(high)
        epsilon = math.exp(bisect(above_delta, *ends, width=0.05)[0])
        for _ in range(8):
            low, high = self.log_deltas(epsilon * np.array([1.0, 1 + 1e-5]))
            middle = 0.5 * (low + high)
            if not np.all(np.isfinite(middle)) or middle[1] >= middle[0]:
                break
            slope = float(middle[1] - middle[0]) / 1e-5
            move = (log_delta - float(middle[0])) / slope
            epsilon = min(epsilon * math.exp(min(max(move, -2.0), 2.0)), 0.999999 * top)
            if abs(move) < 1e-3:
                break
        return epsilon

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log powers by deltas near the threshold of the test [LS-8]. Many share deltas."""
        shared = len(log_levels) > 6
        low, high = np.full(len(log_levels), -math.inf), np.zeros(len(log_levels))
        if shared:
            low, high = super()._by_duality(log_levels)
            # Thresholds that differ by less than a factor share closer epsilons.
            star = self._conjugate(float(log_levels.min())).minima(log_levels)
            octave = np.floor(np.log(np.maximum(np.abs(star), 1e-300)) / math.log(4.0))
            octave = np.where(high - low > GOOD_POWER_WIDTH, octave, math.nan)
            for each in {(o, s) for o, s in zip(octave, star > 0, strict=True) if o == o}:
                at = (octave == each[0]) & ((star > 0) == each[1])
                ends = 0.8 * float(star[at].min()), 1.25 * float(star[at].max())
                if not each[1]:
                    ends = 1.25 * float(star[at].min()), 0.8 * float(star[at].max())
                below, above = Conjugate.over(self.log_deltas, *ends, 65).log_powers(log_levels[at])
                low[at], high[at] = np.maximum(low[at], below), np.minimum(high[at], above)
        for k in np.flatnonzero(high - low > GOOD_POWER_WIDTH).tolist():
            near = self._near_threshold(float(log_levels[k]))
            if near[0] == -math.inf and not shared:
                ends = super()._by_duality(log_levels[[k]])
                near = float(ends[0][0]), float(ends[1][0])
            low[k], high[k] = max(low[k], near[0]), min(high[k], near[1])
        return low, high

    def _near_threshold(self, log_level: float) -> Interval:
        """Bound one log power by deltas near an estimate of the threshold."""
        tilt = np.array([tilt_of_level(self._line_sum, log_level, self._largest_tilt)])
        _, star, variance = (float(v[0]) for v in self._line_sum.moments(tilt))
        enough = 3e-7 * -math.expm1(log_level)  # relative to 1 - power, too
        other = self._backward()
        assert isinstance(other, LargestTermProfile)
        line = (self if star > 0 else other)._one_line(abs(star), False)
        if line is not None and line.width(abs(star)) <= self.good_width:
            near = log_power_near(
                self.log_deltas, log_level, star, 0.3 * math.sqrt(variance), enough
            )
            if near[0] > -math.inf:
                return near
        star = self._threshold(log_level)
        near = log_power_near(self.log_deltas, log_level, star, 0.2 * star, enough)
        if near[0] > -math.inf:
            return near
        star = other._threshold(log_level, reverse=True)
        return log_power_near(self.log_deltas, log_level, -star, 0.2 * star, enough)

    def _threshold(self, log_level: float, *, reverse: bool = False) -> float:
        """Estimate the epsilon above 0 at which delta + e^epsilon level is least.

        If ``reverse``, epsilon is that at which this is so for -epsilon and the reversed losses,
        where delta is 1 - e^-epsilon + e^-epsilon delta of these losses.
        """
        epsilon = np.geomspace(1e-3, 1e3, 61) * self._spread
        epsilon = epsilon[epsilon < self._supremum]
        delta = np.exp([self._rough(e) for e in epsilon.tolist()])
        if reverse:
            delta = 1 - np.exp(-epsilon) * (1 - delta)
        sign = -1.0 if reverse else 1.0
        line = np.exp(np.minimum(sign * epsilon + log_level, 700.0))
        return float(epsilon[int(np.argmin(delta + line))])

    def _rough(self, epsilon: float) -> float:
        """Estimate log delta, from the bell shapes of the integrands of all brackets."""
        brackets = self.brackets(0.0)
        if brackets[-1].low < epsilon and brackets[-1].high == math.inf:
            brackets = self.brackets(epsilon)  # sums of losses above the last level are flat
        each = np.array([x.rough(epsilon) for x in brackets])
        return float(np.logaddexp.reduce(np.where(np.isnan(each), -math.inf, each)))


def _tilted(place: Array, logs: Array, about: Array | None = None) -> tuple[Array, Array, Array]:
    """Return the log of the mass, the mean, and the variance of weights, for each row of ``logs``.

    If ``about`` is given, the mean is that of the distance from it, and the variance that of its
    square.
    """
    top = logs.max(axis=1)
    p = np.exp(logs - top[:, None])
    total = p.sum(axis=1)
    mean = p @ place / total
    away = place - (mean if about is None else about)[:, None]
    return (
        top + np.log(total),
        mean if about is None else mean - about,
        (p * away**2).sum(axis=1) / total,
    )
