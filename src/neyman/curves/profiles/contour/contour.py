"""Compute a privacy profile by integrals of e^{K(z) - epsilon z} over lines in the complex plane.

K(z) = log E[e^{zL}].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.combination import LIMITS as COMBINATION_LIMITS
from neyman.curves.profiles.combination import CascadeProfile, group_profile
from neyman.curves.profiles.contour.complement_line import LIMITS as COMPLEMENT_LIMITS
from neyman.curves.profiles.contour.complement_line import MissLine, log_type_two_error
from neyman.curves.profiles.contour_line import (
    CHERNOFF_POWERS,
    Line,
    LineSum,
    Mass,
    least_log_powers,
    line_at,
    line_for,
    log_chernoff,
    log_kernel,
    mgf_below,
    saddle,
    tilts_of,
)
from neyman.curves.profiles.contour_line import LIMITS as LINE_LIMITS
from neyman.curves.profiles.duality import Conjugate, log_power_by_duality
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.profile import (
    Engine,
    Interval,
    Profile,
    intersection,
    log_delta_below_zero,
)
from neyman.curves.profiles.selection import register, select
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import CALL, OperationLimit, charge, in_question, overhead, reserve
from neyman.numerics.rounding import above, log_complement


@dataclass(frozen=True)
class Limits:
    """Limits that decide when to try a line, and when its answer suffices."""

    grid_releases: int = 64  # largest number of releases for which a grid is accurate enough
    useless_width: float = 1e-2  # width of log delta beyond which another engine answers
    grid_width: float = 1e-3  # width of log delta beyond which a grid is also asked
    bound_terms: float = 1e5  # most terms of K at a tilt of a quick bound
    complement_log_power: float = -2e-2  # log power above which 1 - power is computed
    miss_width: float = 1e-8  # relative width of 1 - power that needs no further bound
    loose_width: float = 1e-3  # largest acceptable relative width
    least_log_delta: float = -1e7  # least log delta for which a line is tried
    search_operations: float = 100 * CALL  # the same for a search


LIMITS = Limits()
SADDLE_SHARES = np.linspace(0, 1, 9)  # quantiles of epsilons whose saddles give quick bounds
BOUND_TILTS = 2.0 ** (0.5 * np.arange(-6, 13))  # tilts of a quick bound on powers
AROUND = np.array([0.8, 0.9, 1.0])  # tilts of a quick bound, relative to a saddle
HALF = np.array([0.5])  # first power of e^-L for Chernoff's bound on a power


class ContourLines(Protocol):
    """Describe one or more lines of integration that together give delta near an epsilon."""

    @property
    def lines(self) -> tuple[Line | Mass, ...]:
        """Return each line."""
        ...

    @property
    def bump(self) -> Array | None:
        """Return weights that bound the effect of an added tiny release; None without one."""
        ...

    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Return certified bounds on log delta at each epsilon. They may be wide."""
        ...

    def width(self, epsilon: float) -> float:
        """Return the width of the bounds on log delta at this epsilon."""
        ...


class ContourProfile(Profile):
    """Compute the privacy profile of a sum of losses by integrals over lines.

    Args:
        losses: the sum.
        backward: returns the profile of the reversed losses.
        infinite, supremum: mass of infinite loss, and largest finite loss.
        log_top: lower bound on the log mass of the largest finite loss.
        release: True if a line without a certified end may add a tiny Gaussian release.
    """

    good = 2e-8  # relative width at which a line serves another epsilon
    patient = True  # whether to search with many deltas for a power that three points do not decide

    def __init__(
        self,
        losses: LineSum,
        backward: Callable[[], Profile],
        infinite: float,
        supremum: float,
        log_top: float,
        release: bool = True,
    ) -> None:
        self.method, self.engine = "contour", Engine.CONTOUR
        self._losses, self._backward = losses, backward
        self._line_sum = losses  # for lines to the right of 0
        self._infinite, self._supremum, self._log_top = infinite, supremum, log_top
        self._release = release
        self._beside = not release  # another engine answers if no line is good
        self._failures: list[float] = []  # epsilons that no line suits
        self._lines: list[
            tuple[ContourLines, float, float]
        ] = []  # lines, their epsilons and widths
        self._complement_lines: list[MissLine] = []
        self._most_below: dict[int, Array] = {}  # bounds on K(-a), by the number of powers a

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta at many epsilons, each by a line that is accurate there."""
        above = epsilons >= 0
        if len(epsilons) and np.logical_and.reduce(above):
            return self._above_zero(epsilons)
        low, high = np.empty(len(epsilons)), np.empty(len(epsilons))
        if not above.all():
            below = self._backward().log_deltas(-epsilons[~above])
            low[~above], high[~above] = log_delta_below_zero(epsilons[~above], below)
        if above.any():
            low[above], high[above] = self._above_zero(epsilons[above])
        return low, high

    def _above_zero(self, epsilons: Array) -> tuple[Array, Array]:
        high = np.zeros(len(epsilons))
        low = high - math.inf
        wanting = epsilons < self._supremum
        high[~wanting] = -math.inf
        middle = float(epsilons[len(epsilons) // 2])
        lines = self._lines
        if len(lines) > 1:
            lines = sorted(lines, key=lambda known: abs(known[1] - middle))
        for known in lines:
            try:
                self._ask(known, epsilons, low, high, wanting)
            except OperationLimit:  # use the nearest known line
                with reserve():
                    self._ask(known, epsilons, low, high, wanting)
                wanting[:] = False
            if not np.logical_or.reduce(wanting):
                return _plus(low, high, self._infinite)
        wanting &= ~self._hopeless(epsilons)
        last = False  # start at both ends: two failures imply failures between them
        while wanting.any():
            k = int(np.nonzero(wanting)[0][-last])
            last, epsilon = not last, float(epsilons[k])
            try:
                line = self._line_at(epsilon)
            except OperationLimit:
                if not self._lines:
                    raise
                break
            if line is None:
                high[k] = min(high[k], log_chernoff(self._line_sum, epsilon))
            else:
                self._ask(self._add_line(line, epsilon), epsilons, low, high, wanting)
            wanting &= ~self._hopeless(epsilons)
            wanting[k] = False
        if np.any((low == -math.inf) & (high > -math.inf)):
            with reserve():
                high = np.minimum(high, self._chernoff_bound(epsilons))
        return _plus(low, high, self._infinite)

    def _chernoff_bound(self, epsilons: Array) -> Array:
        """Return Chernoff bounds on log delta, for epsilons without a good line [C-1]."""
        places: list[float] = np.quantile(epsilons, SADDLE_SHARES).tolist()
        saddles = [saddle(self._line_sum, epsilon) for epsilon in {*places}]
        c, log_most, slack = self._exponents(np.multiply.outer(AROUND, saddles).ravel())
        exponent = log_most - np.multiply.outer(epsilons, c)
        # slack: chernoff_by_a_few_tilts
        return (exponent + slack + 8 * UNIT * np.multiply.outer(epsilons, c)).min(axis=1)

    def _exponents(self, tilts: Sequence[float] | Array) -> tuple[Array, Array, Array]:
        """Return tilts c, exponents A = K(c) + log kappa(c), and bounds on their rounding [C-1].

        delta <= e^{A - c epsilon}. `log_kernel` defines kappa.
        """
        c = np.asarray(tilts, float)
        k, error = self._line_sum.mgf(c)
        # Both terms of log kappa are about c log c.
        slack = 8 * UNIT * (1 + np.abs(k) + c * np.abs(np.log(c)))  # slack: chernoff_by_a_few_tilts
        return c, k + np.log1p(error) + log_kernel(c), slack

    @cached_property
    def _powers(self) -> tuple[Array, Array, Array]:
        """Return `_exponents` at fixed tilts."""
        tilts = BOUND_TILTS
        while len(tilts) and self._line_sum.places(float(tilts[-1]), 0.0) > LIMITS.bound_terms:
            tilts = tilts[:-1]
        return self._exponents(tilts)

    def log_delta_above(self, epsilon: float, enough: float = -math.inf) -> float:
        """Return Chernoff's bound on log delta [C-12].

        Its tilt is near the saddle of a normal distribution or of the sum.
        """
        if self._infinite:
            return 0.0
        if epsilon >= self._supremum:
            return -math.inf
        high = 0.0
        if enough > -math.inf and epsilon > 0:
            t = math.sqrt(-2 * min(enough, -1.0))  # normal quantile of this delta
            c = t * (t + math.sqrt(t * t + 2 * epsilon)) / (2 * epsilon)
            if c < LINE_LIMITS.largest_tilt and self._line_sum.places(c, 0.0) <= LIMITS.bound_terms:
                high = self._exponent(epsilon, c)
        if high > enough:
            high = min(
                high, self._exponent(epsilon, math.exp(tilts_of(self._line_sum, epsilon)[1]))
            )
        return high

    def _exponent(self, epsilon: float, c: float) -> float:
        """Return the best Chernoff bound on log delta at tilts near c."""
        tilts, log_most, slack = self._exponents(c * AROUND)
        # slack: chernoff_near_the_saddle
        exponent = log_most - tilts * epsilon + slack + 8 * UNIT * tilts * abs(epsilon)
        return min(float(np.minimum.reduce(exponent)), 0.0)

    def log_powers_above(self, log_levels: Array) -> Array:
        """Return Chernoff bounds on log power, the minimum of delta + e^epsilon level [C-12].

        With delta(epsilon) <= e^{A - c epsilon}, A = K(c) + log kappa(c), power is at most (1 + 1 /
        c) c^{1 / (1 + c)} e^A^{1 / (1 + c)} level^{c / (1 + c)}.
        """
        if self._infinite:
            return np.zeros(len(log_levels))
        c, most, slack = self._powers
        inside = (log_levels > -1e300) & (log_levels < 0)
        if not len(c) or not inside.any():
            return np.zeros(len(log_levels))
        level = np.where(inside, log_levels, -1.0)[:, None]
        exponent = (most + np.log(c) + c * level) / (1 + c) + np.log1p(1 / c)
        slack = slack + 8 * UNIT * (1 + np.abs(level) + np.abs(most))  # slack: chernoff_of_a_power
        return np.where(inside, np.minimum((exponent + slack).min(axis=1), 0.0), 0.0)

    def _hopeless(self, epsilons: Array) -> Array:
        """Return True for epsilons near a failure, or between two failures and no good line."""
        if not self._beside or not self._failures:
            return np.zeros(len(epsilons), bool)
        failures = np.array([-math.inf, *sorted(self._failures), math.inf])
        right = np.searchsorted(failures, epsilons)
        below, above = failures[right - 1], failures[right]
        places = np.sort(
            [place for _, place, width in self._lines if width <= LIMITS.useless_width]
        )
        between = np.searchsorted(places, above) > np.searchsorted(places, below)
        alone = np.isinf(below) | np.isinf(above) | between
        # Ratio of epsilons near a failure at which another failure is expected.
        failure_share = 0.9
        near = (above <= epsilons / failure_share) | (below >= failure_share * epsilons)
        return near | ~alone

    def _line_at(self, epsilon: float) -> ContourLines | None:
        line = self._line(epsilon)
        if line is None or line.width(epsilon) > LIMITS.useless_width:
            self._failures.append(epsilon)
        return line

    def _line(self, epsilon: float) -> ContourLines | None:
        return line_at(self._line_sum, epsilon, release=self._release)

    def _add_line(
        self, line: ContourLines, place: float, width: float | None = None
    ) -> tuple[ContourLines, float, float]:
        self._lines.append((line, place, line.width(place) if width is None else width))
        return self._lines[-1]

    def alone(self, epsilon: float) -> bool:
        """Return True if all answers so far came from the line of this epsilon."""
        if len(self._lines) != 1 or len(self._lines[0][0].lines) != 1:
            return False
        line = line_at(self._line_sum, epsilon, release=not self._beside)
        return self._lines[0][0].lines[0] is line

    def _about(self, place: float) -> float:
        """Return the distance from its epsilon ``place`` up to which a line is about the best."""
        return 0.01 * (1 + place)

    def _farthest(self, place: float) -> float:
        """Return the largest |epsilon - ``place``| at which the line for ``place`` is used."""
        return math.inf

    def _ask(
        self,
        known: tuple[ContourLines, float, float],
        epsilons: Array,
        low: Array,
        high: Array,
        wanting: Array,
    ) -> None:
        """Narrow bounds in place by a ``known`` line, and unmark those that are narrow enough.

        known: line, its epsilon, and its width there. wanting: True for bounds that are too wide.
        """
        overhead(10 * CALL)  # operations besides those of arrays
        line, place, own = known
        at = (wanting & (np.abs(epsilons - place) <= self._farthest(place))).nonzero()[0]
        if not len(at):
            return
        stretch = epsilons[at[0] : at[-1] + 1]  # include all between: they may be evenly spaced
        if LINE_LIMITS.chirp_places <= len(stretch) <= 32 * len(at):
            below, above = line.log_delta(stretch)
            below, above = below[at - at[0]], above[at - at[0]]
        else:
            below, above = line.log_delta(epsilons[at])
        low[at], high[at] = intersection(low[at], high[at], below, above)
        width = _width(low[at], high[at])
        if np.maximum.reduce(width) <= self.good:
            wanting[at] = False
            return
        # A line with a tiny release is about equally good everywhere.
        near = np.abs(epsilons[at] - place) <= self._about(place)
        enough = np.where(near, 2 * own, self.good if line.bump is None else 2 * own)
        enough = np.clip(enough, self.good, LIMITS.loose_width)
        enough = np.where(np.abs(epsilons[at] - place) <= 1e-4 * place, math.inf, enough)
        wanting[at] = width > enough

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power at many levels, by duality."""
        inside = (log_levels > -math.inf) & (log_levels < 0)
        low, high = np.where(inside, -math.inf, 0.0), np.zeros(len(log_levels))
        least_power, most_power = _plus(
            np.full(1, -math.inf), np.full(1, -math.inf), self._infinite
        )
        low[log_levels == -math.inf], high[log_levels == -math.inf] = least_power, most_power
        # A test that ignores the data has power equal to its level. The logarithm of a level errs
        # by 2 units of its size, as in `level_slack`, and the difference by one more.
        # slack: a_power_is_at_least_the_level_and_gains_at_most_the_largest_loss
        level = log_levels - 4 * UNIT * (1 - np.maximum(log_levels, -1e300))
        least = np.maximum(self._chernoff(log_levels), level)
        low = np.where(inside, np.maximum(low, least), low)
        inside &= least < -LINE_LIMITS.least_miss  # above it, 1 - power underflows
        near = inside & (least > LIMITS.complement_log_power)
        if not self.patient:  # at higher levels, duality also asks the reversed pair
            near &= log_levels <= COMPLEMENT_LIMITS.high_log_level
        self._complement(log_levels, near, low, high)
        inside &= ~(near & (_width(low, high) <= LIMITS.miss_width * -low))
        largest_shared_log_level = -1e-5  # log level above which levels are asked one by one
        inner = inside & (log_levels < largest_shared_log_level) if self.patient else inside
        if inner.any():
            below, above = self._by_duality(log_levels[inner])
            low[inner], high[inner] = np.maximum(low[inner], below), np.minimum(high[inner], above)
        open_ = inside & (
            (_width(low, high) > LIMITS.loose_width) | (log_levels >= largest_shared_log_level)
        )
        open_ &= self.patient
        for k in np.nonzero(open_)[0]:
            try:
                charge(LIMITS.search_operations)
                below, above = log_power_by_duality(self.log_delta, float(log_levels[k]))
            except OperationLimit:
                break
            low[k], high[k] = max(low[k], below), min(high[k], above)
        low = np.maximum(low, least)
        # Relative width of 1 - power that needs no computation of 1 - power.
        near = (
            inside & ~near & (low > LIMITS.complement_log_power) & (_width(low, high) > 1e-7 * -low)
        )
        self._complement(log_levels, near, low, high)
        if math.isfinite(self._supremum):
            # Power / level is at most e^supremum. A test that rejects only at the top attains it.
            gained = log_levels + self._supremum
            size = np.where(np.isfinite(log_levels), np.abs(log_levels), 0.0)
            # slack: a_power_is_at_least_the_level_and_gains_at_most_the_largest_loss
            slack = 8 * UNIT * (1 + self._supremum + size)
            high = np.minimum(high, _plus(gained, gained, self._infinite)[1] + slack)
            # The supremum may be above the largest loss: by 28 units, and by 8 of an inner loss.
            # Where only the largest loss is rejected, no inner loss exceeds |log level|.
            # slack: a_power_is_at_least_the_level_and_gains_at_most_the_largest_loss
            slack = 64 * UNIT * (1 + self._supremum + size)
            all_top = gained <= self._log_top - slack
            low = np.where(all_top, np.maximum(low, gained - slack), low)
        return np.maximum(low, least_power), np.minimum(high, 0.0)

    def _complement(self, log_levels: Array, asked: Array, low: Array, high: Array) -> None:
        """Narrow bounds on log power in place, where ``asked``, by bounds on 1 - power [C-10]."""
        for k in np.nonzero(asked)[0]:
            try:
                charge(LIMITS.search_operations)
                below, above = log_complement(*self._log_miss(float(log_levels[k])))
            except OperationLimit:  # leave the known bounds
                break
            low[k], high[k] = max(low[k], below), min(high[k], above)

    def _log_miss(self, log_level: float) -> Interval:
        """Bound log(1 - power) [C-10]."""
        lines = self._complement_lines
        return log_type_two_error(self._losses, log_level, self._backward(), lines)

    def _chernoff(self, log_levels: Array) -> Array:
        """Return lower bounds on log power, accurate relative to 1 - power [C-9]."""
        low = self._least_powers(log_levels, HALF)
        near = low > -0.7  # quick lower bound above which more powers are tried
        if near.any():
            low[near] = np.maximum(low[near], self._least_powers(log_levels[near], CHERNOFF_POWERS))
        return low

    def _least_powers(self, log_levels: Array, a: Array) -> Array:
        if len(a) not in self._most_below:
            self._most_below[len(a)] = mgf_below(self._losses, a)
        return least_log_powers(self._most_below[len(a)], log_levels, a)

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        return self._conjugate(float(log_levels.min())).log_powers(log_levels)

    def _conjugate(self, log_level: float) -> Conjugate:
        """Return a `Conjugate` that reaches the level.

        Build a new one only if this level is smaller.
        """
        known = in_question((self, "conjugates"), list[Conjugate])  # each holds this profile
        least_shared_log_level = -14.0  # least log level that is always prepared
        if not known or not known[-1].reaches(log_level):
            lowest = -self._backward().epsilon_near(least_shared_log_level)
            highest = self.epsilon_near(1.05 * min(log_level, least_shared_log_level) - 3)
            known.append(Conjugate.over(self.log_deltas, lowest, highest))
        return known[-1]

    def epsilon_near(self, log_delta: float) -> float:
        """Estimate the epsilon with this log delta, by a line."""
        if self._infinite:
            if log_delta <= math.log(self._infinite):
                return 1.0
            log_delta += math.log(-math.expm1(math.log(self._infinite) - log_delta))
        if log_delta < LIMITS.least_log_delta:
            return -log_delta  # no line is tried here
        line_and_epsilon = line_for(self._line_sum, log_delta, release=self._release)
        if line_and_epsilon is None:
            return 1.0
        line, epsilon = line_and_epsilon
        self._add_line(line, epsilon)
        return min(epsilon, self._supremum)


def _width(low: Array, high: Array) -> Array:
    """Return the widths of intervals, 0 for an empty interval or one known to be -inf."""
    return np.subtract(high, low, out=np.zeros(len(low)), where=high > low)


def _plus(low: Array, high: Array, mass: float) -> tuple[Array, Array]:
    """Return bounds on log(x + mass), from bounds on log x.

    Errors in rounding units: 2 relative units for the log of the mass; 6 relative units for the
    mass of a sum of losses; 4 units plus 2 relative units for the log of the sum, which is no
    farther from 0.
    """
    if not mass:
        return low, np.minimum(high, 0.0)
    add = math.log(mass)
    slack = 4 * UNIT * (4 + abs(add))  # slack: a_mass_that_is_added_to_a_logarithm
    return np.logaddexp(low, add) - slack, np.minimum(np.logaddexp(high, add) + slack, 0.0)


def contour_profile(losses: Composition, *, release: bool = True) -> ContourProfile:
    """Return the contour profile of any sum with a known K.

    Args:
        losses: the sum.
        release: True if a line may add a tiny Gaussian release.
    """

    def backward() -> Profile:
        """Return the profile of the reversed losses: the selected one if it is a contour."""
        reverse = losses.reverse()
        known = select(reverse)
        if isinstance(known.inner, (ContourProfile, CascadeProfile)):
            return known
        return in_question(("contour", reverse), lambda: contour_profile(reverse))

    largest = above(losses.supremum)
    return ContourProfile(losses, backward, losses.infinite, largest, losses.log_top, release)


@array_cache
def smooth(losses: Composition) -> bool:
    """Return True if e^K decays enough for integrals over lines, or K is cheap far out."""
    if (
        any(x.costly for x, _ in losses.parts)
        and sum(n for _, n in losses.parts) <= LIMITS.grid_releases
    ):
        return False
    if losses.places(1.0, 1e6) < 2 * losses.places(1.0, 1.0):
        return True
    tilt = np.ones(1)
    far = 1e9 / math.sqrt(max(float(losses.moments(tilt)[2][0]), 1e-300))
    decay_efolds = 45.0  # E-folds by which the characteristic function must decay for the contour.
    return bool(losses.log_decay(1.0, np.array([far]), decay_efolds)[0] <= -decay_efolds)


@register(100, "few releases whose K is costly, or K does not decay: discretization on a grid")
def _grid(composition: Composition) -> Profile | None:
    return None if smooth(composition) else dots_profile(composition)


@register(110, "everything else: the contour, with a grid beside it where the contour is wide")
def _contour(composition: Composition) -> Profile:
    if not any(loss.sampled for loss, _ in composition.parts):
        return contour_profile(composition)
    engines: list[tuple[float, Callable[[], Profile]]]
    engines = [(0.0, lambda: contour_profile(composition))]
    if len(composition.parts) > COMBINATION_LIMITS.grouped_parts:
        engines.append(
            (
                COMBINATION_LIMITS.failure_width,
                lambda: group_profile(composition, COMBINATION_LIMITS.coarse_rate_groups),
            )
        )
    engines.append((LIMITS.grid_width, lambda: dots_profile(composition)))
    return CascadeProfile(engines, composition.log_total_variation)
