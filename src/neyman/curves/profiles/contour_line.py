"""Bound delta by an integral along a vertical line in the complex plane, certified.

    delta(epsilon) = (1 / 2 pi i) * integral over Re z = c > 0 of e^{K(z) - epsilon z} / (z (z+1))

with K(z) = log E[e^{zL}]. A trapezoid sum of step h on this line equals the sum over integers n of
e^{2 pi n c / h} delta(epsilon + 2 pi n / h) (aliases). No term is negative, so the sum is at least
delta, the term n = 0. The terms n < 0 are at most 1 / (e^{2 pi c / h} - 1), because delta <= 1. A
Chernoff bound at some c' > c limits the terms n > 0. Beyond the last node, the bound uses the decay
of the tilted characteristic function and the integral of 1/u^2. Errors of K count at each node. See
docs/certificates/contour.md for the derivation.

If the decay is not certified, or only too far out, a tiny Gaussian release with mu^2 = v is added
to the sum. An attacker who sees more learns no less, so delta of the larger sum is an upper bound.
The integrand gets the factor e^{-v u^2 / 2}. The release adds to delta at most kappa, about v,
times the mean of a Gaussian bump around epsilon, an integral over the same nodes. Subtracting it
gives a lower bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np

from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array, dot, imaginary_part, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import even_series, series


@dataclass(frozen=True)
class Limits:
    """Limits on the position, accuracy, and cost of a line."""

    error_efolds: float = 28.0  # aliasing and truncation stay below e^-28 of delta
    nodes: int = 1 << 16
    terms: float = 1e6  # terms of K
    node_terms: float = 4e7  # nodes times terms of K
    plain_node_terms: float = 3e6  # the same for a line without a release
    least_miss: float = 1e-300  # least 1 - power to compute
    least_log_delta: float = -1e8  # least log delta to compute
    least_tilt: float = 1e-9  # least c of a line
    largest_tilt: float = 1e9  # largest c of a line
    first_octaves: int = 5  # octaves of tilts in the first array, two tilts each
    flat_efolds: float = 0.3  # e-folds of delta on a rise that is not refined
    tilt_gap: float = 1e-6  # least gap in log c between two tilts
    epsilon_width: float = 3e-3  # relative spacing of epsilons that share a line
    cell_share: float = 0.125  # size of a cell as a share of the depth
    line_width: float = 5e-11  # relative width that suffices
    lines: int = 4  # lines to try for one question
    cheap_nodes: int = 500  # nodes that cost as much as the overhead
    chirp_places: int = 1 << 8  # least number of epsilons and nodes for a chirp transform
    chirp_units: int = 8  # units of the largest epsilon by which an even place may be off
    excess_efolds: float = 50.0  # the same, to avoid overflow


LIMITS = Limits()
BEYOND = [1.02, 1.05, 1.1, 1.2, 1.35, 1.55, 1.8, 2.2, 3.0]  # c' / c for the terms n > 0
# Powers of e^-L in Chernoff's bounds on level and miss.
CHERNOFF_POWERS = np.linspace(0.05, 0.95, 19)
LOG_2, LOG_LEAST = math.log(2), math.log2(LIMITS.least_tilt)
QUARTERS = np.array([0.25, 0.5, 0.75])  # positions of extra tilts between two tilts
FACTORS = (1.0, 0.985, 0.97, 0.94, 0.88, 0.8)  # c over the saddle
# Candidates for c and c', relative to a place.
PLACES = np.sort(np.concatenate([FACTORS, 2 - np.array(FACTORS[1:4]), BEYOND]))
ABOUT = np.log(PLACES)
# Candidates for the last node, relative to the last node for a normal distribution.
END_FACTORS = 0.9 * 1.5 ** np.arange(14)
NEAR_ENDS = np.array([1.0, 1.03, 1.07, 1.13, 1.2, 1.3, 1.45, 1.7, 2.0, 2.5, 3.5, 6.0, 12.0, 40.0])
FINE_ENDS = np.append(END_FACTORS[:8], END_FACTORS[8] + 0.5 * np.arange(1 << 13))
ALL_ENDS = np.concatenate([END_FACTORS, END_FACTORS[-1] * 1.6 ** np.arange(1, 19)])


class LineSum(Protocol):
    """Describe what lines of integration need from a sum of independent losses."""

    @property
    def wave_nodes(self) -> int:
        """Return the most nodes of a line if K is a sum of waves, which `end` ends; else 0."""
        ...

    @property
    def span(self) -> float:
        """Return the span of the lattice of all finite losses; 0 without a lattice."""
        ...

    def places(self, tilt: float, height: float) -> float:
        """Estimate the number of terms in the computation of K(tilt + i height)."""
        ...

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        """Return K(z), and a bound on the error of e^{K(z)} relative to e^{K(Re z)}.

        All z are real, or share one real part.

        log_rest: logarithm of a factor by which the caller multiplies each e^K. If the product
        underflows, K need not be computed.
        """
        ...

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return K, mean, and variance of the loss under each tilt."""
        ...

    def end(self, tilt: float, need: float, step: float) -> tuple[float, float] | None:
        """Return a height, and the log of a bound on the sum over all nodes beyond it.

        Return None if only `log_decay` bounds them.
        """
        ...

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        """Bound log |phi|, the tilted characteristic function, between edges as in `Loss.decay`.

        Bounds below -need may be looser.
        """
        ...


def log_kernel(c: Array) -> Array:
    """Return log kappa(c), where kappa(c) is the largest (1 - e^-x) e^{-c x} over x > 0.

    delta <= e^{K(c) - c epsilon + log kappa(c)}.
    """
    return c * np.log(c) - (c + 1) * np.log1p(c)


def aliases(c: float, h: float, other: Array, k: Array) -> tuple[Array, Array]:
    """Return `Line.aliases` of a line for delta [C-1].

    Args:
        c, h: crossing of the line and the real axis, above 0, and its step.
        other: values c' above c.
        k: upper bounds on K(c').
    """
    turns, gap = math.tau * c / h, math.tau * (other - c) / h
    sizes = np.abs(k) + 2 * other * np.abs(np.log(other)) + gap
    beyond = np.array([other, k + log_kernel(other), gap, sizes])
    return np.array([[0.0], [0.0], [turns], [turns]]), beyond


@dataclass(frozen=True, eq=False)
class Line:
    """Represent a line Re z = c by nodes z = c + i u, h apart, with weights.

    The weight of z is e^{K(z) - K(c)} h / (pi z (z + 1)), and the sum over the nodes is delta, for
    c > 0. For -1 < c < 0 the weight has the other sign, and the sum is 1 - delta [C-10]. If all
    losses are on a lattice of span s, the nodes are those of one period, the sums hold at its
    places, and 1 / (z (z + 1)) is s (1 - e^-s) / ((1 - e^{-s z}) (1 - e^{-s (z + 1)})) [C-15].

    Args:
        c: crossing of the line and the real axis.
        u: heights of the nodes, evenly spaced from 0.
        weight: complex weights, shape (n,).
        top: K(c).
        fixed, moving: the error of the sum is at most fixed + moving |epsilon|.
        aliases: bounds for the aliases n < 0 and n > 0, each of shape (4, m): c', the log A of a
            bound e^{A - c' epsilon} on delta or 1 - delta, 2 pi |c' - c| / h, and the total size of
            the rounded numbers.
        slack: error of K(c).
        noise: the share of ``fixed`` that is due to errors of K.
        span: s; 0 without a lattice.
        bump: weights of the nodes that bound the effect of the tiny release; None without one.
        widest: largest width of log delta at the epsilons for which the line was built.
    """

    c: float
    u: Array
    weight: Array
    top: float
    fixed: float
    moving: float
    aliases: tuple[Array, Array]
    slack: float = 0.0
    noise: float = 0.0
    span: float = 0.0
    bump: Array | None = None
    widest: float = math.inf

    @classmethod
    def of(
        cls,
        c: float,
        u: Array,
        phi: Array,
        error: Array,
        rest: float,
        top: float,
        aliases: tuple[Array, Array],
        slack: float = 0.0,
        span: float = 0.0,
    ) -> Self:
        """Return a line from F(z) / F(c) at its nodes.

        Args:
            c, u: the nodes z = c + i u, the first one on the real axis.
            phi, error: F(z) / F(c), and bounds on its errors.
            rest: bound on the sum over all omitted nodes.
            top, aliases, slack, span: as above.
        """
        z = c + 1j * u
        kernel = np.zeros(len(u)) + float(u[1]) / (math.pi if c > 0 else -math.pi)
        kernel[0] /= 2
        if span:
            if len(u) - 1 == round(math.pi / (span * float(u[1]))):  # at half a period
                kernel[-1] /= 2
            kernel = kernel * (-span * math.expm1(-span))
            kernel = kernel / (np.expm1(-span * z) * np.expm1(-span * (z + 1)))
            # Two powers of e whose exponents are rounded, two products, and a quotient.
            size = 16 + 4 * span * (abs(c) + 1)
            error = error + size * UNIT * np.abs(phi)  # slack: counted
        else:
            kernel = kernel / (z * (z + 1))
        noise, weight = float(np.add.reduce(np.abs(kernel) * error)), phi * kernel
        # Errors of the height, the angle of the first node, and its multiple.
        units = 8 if span else 4  # a place and its next one are rounded, too
        moving = units * UNIT * float(np.add.reduce(np.abs(weight) * np.abs(z)))  # slack: counted
        return cls(c, u, weight, top, noise + rest, moving, aliases, slack, noise, span)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return a tuple with only this line."""
        return (self,)

    def sums(self, epsilon: float) -> tuple[float, float]:
        """Return the trapezoid sum divided by e^{K(c) - c epsilon}, and d log delta / d epsilon."""
        terms = self.weight * np.exp(-1j * (epsilon + self.span) * self.u)
        total = float(np.add.reduce(real_part(terms)))
        fall = self.c * total - float(np.add.reduce(imaginary_part(terms) * self.u))
        return total, -fall / total if total > 0 else 0.0

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Return certified bounds on log delta at each epsilon, shape (m,). They may be wide."""
        place = epsilon + self.span if self.span else epsilon
        total, error = self._sums(self.weight, place)
        scale = self.top - self.c * place
        size = np.abs(place)
        error = error + self.fixed + self.moving * size
        for other, most, gap, sizes in self.aliases:
            moved = np.multiply.outer(epsilon, other)
            bound = most - gap - moved - scale[:, None]
            # Each of the five terms errs by at most 4 units of its size. Log kappa: 2 c' log c'.
            size_of_all = sizes + np.abs(scale)[:, None] + np.abs(moved)
            bound = bound + 8 * UNIT * (size_of_all + 1)  # slack: a_line_of_one_node
            terms = np.exp(np.minimum(bound, 700.0)) / -np.expm1(-gap)
            error = error + np.minimum.reduce(terms, axis=1)
        added = 0.0
        if self.bump is not None:  # its aliases are positive, so at least the bump is subtracted
            added, more = self._sums(self.bump, epsilon)
            error = error + more
        # A NaN gives a trivial bound.
        low, high = np.fmax(total - added - error, 0.0), np.maximum(total + error, 0.0)
        high[np.isnan(high)] = math.inf
        # slack: a_line_of_one_node
        slack = 8 * UNIT * (abs(self.top) + abs(self.c) * size + 1) + self.slack
        return np.log(low) + scale - slack, np.minimum(np.log(high) + scale + slack, 0.0)

    def _sums(self, weight: Array, epsilon: Array) -> tuple[Array, Array | float]:
        """Return sums over nodes at each epsilon, and an error to add to ``fixed`` + ``moving``."""
        if len(epsilon) >= LIMITS.chirp_places and len(weight) >= LIMITS.chirp_places:
            first, last = float(epsilon[0]), float(epsilon[-1])
            step, far = (last - first) / (len(epsilon) - 1), max(abs(first), abs(last))
            off = float(np.abs(first + step * np.arange(len(epsilon)) - epsilon).max())
            if off <= LIMITS.chirp_units * UNIT * far:  # slack: counted
                h = float(self.u[1])
                sums, error = even_series(weight, first * h, step * h, len(epsilon))
                # An angle errs by `chirp_units` and a few units of ``far``, four in `moving`.
                # slack: counted
                drift = (LIMITS.chirp_units + 4) * UNIT * far * dot(np.abs(weight), self.u)
                return np.real(sums), error + drift
        return real_part(series(weight, epsilon * self.u[1])), 0.0

    def width(self, epsilon: float) -> float:
        """Return the width of the bounds on log delta at this epsilon."""
        return self.largest_width([epsilon])

    def largest_width(self, epsilons: list[float]) -> float:
        """Return the largest width of the bounds on log delta at these epsilons."""
        low, high = self.log_delta(np.array(epsilons))
        least = float(np.minimum.reduce(low))
        return float(np.maximum.reduce(high - low)) if least > -math.inf else math.inf

    def settled(self, epsilon: float, excess: float) -> bool:
        """Return True if no other c is much better: the width is small, or due to errors of K.

        Args:
            epsilon: at least 0.
            excess: log ratio of the terms' sizes to their sum, at the best c.
        """
        error = (self.noise + self.moving * epsilon) * math.exp(min(excess, 300.0)) + self.slack
        return self.width(epsilon) < max(LIMITS.line_width, 4 * error)

    def middle(self, epsilon: float) -> float:
        """Return an estimate of log delta, the log of the trapezoid sum."""
        total, scale = self.sums(epsilon)[0], self.top - self.c * (epsilon + self.span)
        return min(math.log(total) + scale, 0.0) if total > 0 else -math.inf

    def epsilon_at(self, log_delta: float, start: float) -> float:
        """Estimate the epsilon with this log delta, by Newton's method."""
        epsilon = start
        for _ in range(12):
            total, slope = self.sums(epsilon)
            if total <= 0 or slope >= 0:
                return start
            scale = self.top - self.c * (epsilon + self.span)
            move = (scale + math.log(total) - log_delta) / slope
            epsilon = max(epsilon - move, 0.5 * epsilon)
            if abs(move) <= 1e-14 * epsilon:
                break
        return epsilon


L = TypeVar("L", bound=Line)


@dataclass(frozen=True)
class Mass:
    """Bound delta of a measure whose losses are far above epsilon by its masses [LS-12].

    (1 - e^{-x})_+ is between 1 - e^{-x / 2} and 1, so delta is between F(0) - e^{epsilon / 2}
    F(-1/2) and F(0).

    Args:
        low, high: bounds on log F(0).
        half: upper bound on log F(-1/2).
    """

    low: float
    high: float
    half: float

    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Return certified bounds on log delta at each epsilon, shape (m,)."""
        slack = 8 * UNIT * (1 + np.abs(epsilon))  # slack: counted
        lost = np.minimum(self.half + 0.5 * epsilon - self.low + slack, 0.0)
        with np.errstate(divide="ignore"):
            return self.low + np.log(-np.expm1(lost)), np.full(len(epsilon), self.high)


@dataclass(frozen=True, eq=False)
class Telescope:
    """Represent one line per bracket for epsilons near one epsilon.

    Their values sum to delta [LS-7].

    Args:
        lines: one line per bracket that matters, or its mass.
        rest: for each negligible bracket, a tilt and an upper bound on log F at the tilt.
    """

    lines: tuple[Line | Mass, ...]
    rest: tuple[tuple[float, float], ...]
    bump: None = None

    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Return certified bounds on log delta at each epsilon, shape (m,)."""
        if len(self.lines) == 1 and not self.rest:
            return self.lines[0].log_delta(epsilon)
        epsilon = np.asarray(epsilon, float)
        low, high = np.full(len(epsilon), -math.inf), np.full(len(epsilon), -math.inf)
        for line in self.lines:
            below, above = line.log_delta(epsilon)
            low, high = np.logaddexp(low, below), np.logaddexp(high, above)
        for tilt, log_f in self.rest:
            kernel = float(log_kernel(np.array([tilt]))[0])
            # Both terms of log kappa are about c log c.
            size = 1 + abs(log_f) + tilt * (np.abs(epsilon) + abs(math.log(tilt)))
            most = log_f - tilt * epsilon + kernel + 8 * UNIT * size  # slack: lines_that_add_up
            high = np.logaddexp(high, np.maximum(most, -1e300))
        # slack: counted
        slack = 4 * UNIT * (len(self.lines) + len(self.rest) + 1) * (1 + np.abs(epsilon))
        # slack: lines_that_add_up
        slack = slack + 8 * UNIT * np.where(np.isfinite(high), np.abs(high), 0.0)
        return low - slack, np.minimum(high + slack, 0.0)

    def width(self, epsilon: float) -> float:
        """Return the width of the bounds on log delta at this epsilon."""
        low, high = self.log_delta(np.array([epsilon]))
        return float(high[0] - low[0]) if low[0] > -math.inf else math.inf


def log_chernoff(losses: LineSum, epsilon: float) -> float:
    """Return Chernoff's bound on log delta, for an epsilon too large for a line."""
    far = 0.5 * LIMITS.largest_tilt
    while losses.places(far, 0.0) > 0.1 * LIMITS.terms and far > 1:
        far /= 10
    c = np.array([far])
    k, error = losses.mgf(c)
    exponent = k + np.log1p(error) - c * epsilon
    # Both terms of log kappa are about c log c.
    slack = 8 * UNIT * (np.abs(k) + c * epsilon + c * np.log(c))  # slack: chernoff_far_out
    return min(float((exponent + log_kernel(c) + slack)[0]), 0.0)


def mgf_below(losses: LineSum, a: Array = CHERNOFF_POWERS) -> Array:
    """Return upper bounds on K(-a), for `least_log_powers`."""
    k, error = losses.mgf(-a)
    return k + np.log1p(error) + 8 * UNIT * (1 + np.abs(k))  # slack: the_error_of_k_is_added


def least_log_powers(most: Array, log_levels: Array, a: Array = CHERNOFF_POWERS) -> Array:
    """Return lower bounds on the log power at each level, shape (m,) [C-9].

    Each comes from a Chernoff bound on 1 - power, so it is useful for powers near 1.

    The test that rejects if L > t has a level of at most e^{K(-b) - (1 - b) t}, for 0 <= b < 1, and
    a type II error of P(L <= t) <= e^{K(-a) + a t}, for 0 < a < 1.

    Args:
        most: upper bounds on K(-a) from `mgf_below`.
        log_levels: logarithms of the levels, shape (m,).
        a: the exponents a to try, with K(-a) = log E[e^{-a L}].
    """
    b, levels = np.append(0.0, a), np.append(0.0, most)
    with np.errstate(invalid="ignore", over="ignore"):
        # slack: a_miss_by_chernoff/a
        slack = 8 * UNIT * (np.abs(levels) + np.abs(log_levels[:, None]))
        t = ((levels - log_levels[:, None] + slack) / (1 - b)).min(axis=1)
        t = t + 8 * UNIT * np.abs(t)  # slack: a_miss_by_chernoff/b
        misses = most + np.multiply.outer(t, a)
        # slack: a_miss_by_chernoff/a, a_miss_by_chernoff/b
        misses = (misses + 8 * UNIT * np.abs(misses)).min(axis=1)
        misses = np.where(np.isfinite(log_levels), misses, 0.0)
        sure = misses < -1e-9
        # No power is 1: a miss that underflows is below the least positive float.
        least = np.minimum(np.log1p(-np.exp(np.where(sure, misses, -1.0))), -5e-324)
        return np.where(sure, least, -math.inf)


def line_at(losses: LineSum, epsilon: float, *, release: bool = True) -> Line | None:
    """Return a line with narrow bounds at ``epsilon``, or None if ``epsilon`` is too large.

    Args:
        losses: the sum.
        epsilon: at least 0.
        release: True if a tiny Gaussian release may be added. If False, the result is also None if
            the decay of K does not certify a last node.
    """
    tilts, x = tilts_of(losses, epsilon)
    if epsilon > tilts.own.values[-1]:
        return None
    deep = tilts.depth.values[-1] > -LIMITS.least_log_delta
    if deep and -tilts.at(tilts.depth, x) < LIMITS.least_log_delta:
        return None
    line = None
    if tilts.blocks:
        cell = math.floor(tilts.at(tilts.cell, x))
        line = _line_of_cell(losses, tilts.blocks, cell, release)
    if line is not None:
        narrow = line.widest < LIMITS.line_width
        if narrow or line.settled(epsilon, tilts.excess(x)):
            return line
    other = _line_at(losses, _neighbor(epsilon, x), release)
    if line is None or other is None:
        return other or line
    return min(line, other, key=lambda one: one.width(epsilon))


def _neighbor(epsilon: float, x: float) -> float:
    """Return a rounded epsilon, so that near epsilons share a line. Its saddle is about e^x.

    The rounding changes log delta by at most a quarter.
    """
    if epsilon <= 0:
        return epsilon
    step = 2.0 ** math.floor(math.log2(min(LIMITS.epsilon_width * epsilon, 0.25 * math.exp(-x))))
    return step * round(epsilon / step)


@array_cache
def _line_of_cell(losses: LineSum, blocks: int, cell: int, release: bool) -> Line | None:
    """Return a line without a tiny release for all epsilons of a cell (see `Tilts`), or None."""
    tilts = _tilts(losses, blocks)
    low, x, high = [tilts.place(tilts.cell, cell + share) for share in (0.0, 0.5, 1.0)]
    ends = [tilts.aim(low), tilts.aim(high)]
    return _best_line(losses, tilts, x, tilts.aim(x), ends, release, blurred=False)


@array_cache
def _line_at(losses: LineSum, epsilon: float, release: bool) -> Line | None:
    """Return a line for one epsilon, or None."""
    tilts, x = tilts_of(losses, epsilon)
    aim = epsilon, min(tilts.log_terms(x, epsilon), 0.0)
    return _best_line(losses, tilts, x, aim, [aim], release, blurred=release)


def _best_line(
    losses: LineSum,
    tilts: Tilts,
    x: float,
    center: tuple[float, float],
    ends: list[tuple[float, float]],
    release: bool,
    *,
    blurred: bool,
) -> Line | None:
    epsilon, log_delta = center
    best, before = None, math.inf
    for _ in range(LIMITS.lines):
        aim = Aim(math.exp(x), ends)
        plan = _best_plan(losses, tilts, aim, release, blurred)
        if plan is None:
            return best
        line = _built(losses, plan)
        width = line.largest_width([epsilon, *[e for e, _ in ends if e != epsilon]])
        middle = line.middle(epsilon)
        if best is None or width < before:
            object.__setattr__(line, "widest", width)  # the line is not shared yet
            best = line
        moved = middle - log_delta
        if middle == -math.inf or width > 0.5 * before or abs(moved) < 0.5:
            break
        if line.settled(epsilon, line.top - line.c * epsilon - middle):
            break
        # The terms were not bell-shaped. Replace the estimate of log delta by their sum.
        before, log_delta, ends = width, middle, [(e, min(v + moved, 0.0)) for e, v in ends]
    return best


def rough(losses: LineSum, epsilon: float) -> float:
    """Estimate log delta(epsilon), from the bell shape of the integrand around its saddle."""
    tilts, x = _coarse_tilts(losses, epsilon)
    return min(tilts.log_terms(x, epsilon), 0.0)


def rough_epsilon(losses: LineSum, log_delta: float) -> float:
    """Estimate the epsilon that has this log delta, as `rough` does; below 0 if none exists."""
    tilts, x = tilts_of(losses, None, log_delta)
    return (tilts.log_terms(x, 0.0) - log_delta) * math.exp(-x)


def line_for(
    losses: LineSum, log_delta: float, *, release: bool = True
) -> tuple[Line, float] | None:
    """Return a line for the epsilon with this log delta, and the approximate epsilon.

    Return None if this epsilon is about 0.
    """
    epsilon = rough_epsilon(losses, log_delta)
    best, before = None, None
    for _ in range(LIMITS.lines):
        line = line_at(losses, epsilon, release=release) if epsilon > 0 else None
        if line is None:
            break
        guess, epsilon = epsilon, line.epsilon_at(log_delta, epsilon)
        if line.bump is None and (
            line is before or abs(epsilon - guess) < LIMITS.epsilon_width * guess
        ):
            return line, epsilon
        # Usually the same line suits this epsilon.
        width = line.width(epsilon) if before is not None or line.bump is not None else math.inf
        before = line
        if best is None or width < best[0]:
            best = width, line, epsilon
        # A tiny release cannot reach the width of a plain line.
        if width < (LIMITS.line_width if line.bump is None else 1e-5):
            break
    return None if best is None else best[1:]


def saddle(losses: LineSum, epsilon: float, largest: float = LIMITS.largest_tilt) -> float:
    """Estimate the saddle: the c > 0 that minimizes K(c) - c epsilon - log c - log(c + 1)."""
    tilts = tilts_of(losses, epsilon)[0]
    return min(math.exp(_steep_place(losses, tilts, epsilon, 0.0)), largest)


class Row(NamedTuple):
    """Represent a function of x = log c by its values and slopes at each tilt c."""

    values: list[float]
    slopes: list[float]


@dataclass(frozen=True, eq=False)
class Tilts:
    """Tabulate K(c) = log E[e^{cL}] and functions of it at rising tilts c, to choose lines.

    A line Re z = c is a path of integration. Nothing here is certified. Between two tilts, a cubic
    in x = log c interpolates. The epsilons are divided into cells: one line, chosen for the middle
    of a cell, is accurate in all of it.

    Args:
        blocks: number of computed blocks of tilts; 0 if the tilts are only those near one saddle.
        first: binary logarithm of the first tilt.
        complete: True if no larger tilts are useful.
        rows: log c, K(c), and the mean and variance of the loss under the tilt c, shape (4, n).
        x: log c, as a list.
        k: K(c).
        own: for each tilt c, the epsilon for which c is the saddle.
        depth: saddle-point approximation of -log delta at the epsilon ``own``.
        log_width: log sqrt(2 pi b), where b is the integrand's second log derivative at the saddle.
        cell: number of cells between the first tilt and c, not rounded.
        uneven: for each tilt, True if the cubic of ``own`` after it may be inaccurate.
    """

    blocks: int
    first: int
    complete: bool
    rows: Array
    x: list[float]
    k: Row
    own: Row
    depth: Row
    log_width: Row
    cell: Row
    uneven: list[bool]

    def at(self, row: Row, x: float) -> float:
        """Return the value of the function ``row`` at x = log c."""
        i = min(max(bisect_right(self.x, x), 1), len(self.x) - 1) - 1
        size, low = self.x[i + 1] - self.x[i], row.values[i]
        rise, a, b = row.values[i + 1] - low, row.slopes[i] * size, row.slopes[i + 1] * size
        s = (x - self.x[i]) / size
        return low + s * (a + s * (3 * rise - 2 * a - b + s * (a + b - 2 * rise)))

    def k_at(self, x: Array) -> Array:
        """Return K at several x = log c."""
        places, k, mean = self.rows[:3]
        i = places.searchsorted(x, side="right")
        i = np.minimum(np.maximum(i, 1), len(places) - 1)
        size, rise, slope = places[i] - places[i - 1], k[i] - k[i - 1], np.exp(places) * mean
        a, b, s = slope[i - 1] * size, slope[i] * size, (x - places[i - 1]) / size
        return k[i - 1] + s * (a + s * (3 * rise - 2 * a - b + s * (a + b - 2 * rise)))

    def place(self, row: Row, value: float) -> float:
        """Return the x at which a rising function has this value, or an end if it never does."""
        i = min(max(bisect_right(row.values, value), 1), len(self.x) - 1) - 1
        size, low = self.x[i + 1] - self.x[i], row.values[i]
        rise, a, b = row.values[i + 1] - low, row.slopes[i] * size, row.slopes[i + 1] * size
        if not 0 < value - low < rise:
            return self.x[i] if value <= low else self.x[i + 1]
        c, d = 3 * rise - 2 * a - b, a + b - 2 * rise
        below, above, s = 0.0, 1.0, (value - low) / rise
        while above - below > LIMITS.tilt_gap:
            excess, slope = low - value + s * (a + s * (c + s * d)), a + s * (2 * c + 3 * s * d)
            below, above = (below, s) if excess > 0 else (s, above)
            before, s = s, s - excess / slope if slope > 0 else -1.0
            if not below <= s <= above:
                s = 0.5 * (below + above)
            if abs(s - before) <= LIMITS.tilt_gap:
                break
        return self.x[i] + s * size

    def log_terms(self, x: float, epsilon: float) -> float:
        """Estimate the log of the sum over the line c = e^x, from the bell shape of its terms."""
        return self.at(self.k, x) - math.exp(x) * epsilon - self.excess(x)

    def excess(self, x: float) -> float:
        """Estimate log of (e^{K(c) - c epsilon} / sum of terms), if their saddle is c = e^x."""
        c = math.exp(x)
        return math.log(c * (c + 1)) + self.at(self.log_width, x)

    def aim(self, x: float) -> tuple[float, float]:
        """Return the epsilon whose saddle is e^x, at least 0, and an estimate of its log delta."""
        return max(self.at(self.own, x), 0.0), min(-self.at(self.depth, x), 0.0)

    def deviation(self, x: float) -> float:
        """Estimate the standard deviation of the loss under the tilt e^x."""
        c = math.exp(x)
        bend = math.exp(2 * self.at(self.log_width, x)) / math.tau - 1 / c**2 - 1 / (c + 1) ** 2
        return math.sqrt(max(bend, 1e-300))


def tilts_of(losses: LineSum, epsilon: float | None, log_delta: float = 0.0) -> tuple[Tilts, float]:
    """Return tilts of a sum, and x = log c of the saddle for an epsilon or a log delta.

    ``log_delta`` is used if ``epsilon`` is None. If the cubics are too inaccurate, return only
    tilts around this x.
    """
    tilts, x = _coarse_tilts(losses, epsilon, log_delta)
    if not tilts.uneven[min(bisect_right(tilts.x, x), len(tilts.x) - 1) - 1]:
        return tilts, x
    if epsilon is not None:
        epsilon = _neighbor(epsilon, x)
    return _uneven_tilts(losses, tilts.blocks, epsilon, log_delta)


def _coarse_tilts(
    losses: LineSum, epsilon: float | None, log_delta: float = 0.0
) -> tuple[Tilts, float]:
    """Return the blocks of tilts up to the saddle, and its x. Their cubics may be inaccurate."""
    blocks = 1
    while True:
        tilts = _tilts(losses, blocks)
        row, value = (tilts.depth, -log_delta) if epsilon is None else (tilts.own, epsilon)
        x = tilts.place(row, value)
        if tilts.complete:
            return tilts, x
        if (
            x + math.log(2.2) < tilts.x[-1]  # range of log c beyond a saddle in which K is useful
            and tilts.at(tilts.cell, x) + 1 < tilts.cell.values[-1]
        ):
            return tilts, x
        blocks += 1


@array_cache
def _uneven_tilts(
    losses: LineSum, blocks: int, epsilon: float | None, log_delta: float
) -> tuple[Tilts, float]:
    """Return tilts around the saddle for an epsilon or a log delta, and its x = log c."""
    x = _steep_place(losses, _tilts(losses, blocks), epsilon, log_delta)
    places = x + ABOUT
    while len(places) > len(FACTORS) + 1 and not _has_few_terms(
        losses, math.exp(float(places[-1]))
    ):
        places = places[:-1]
    return _steer_tilts(_rows(losses, places), 0, 0, complete=True), x


def _steep_place(losses: LineSum, tilts: Tilts, epsilon: float | None, log_delta: float) -> float:
    """Return x of the saddle for an epsilon or a log delta, by finer tilts and Newton's method."""
    row, value = (tilts.depth, -log_delta) if epsilon is None else (tilts.own, epsilon)
    i = min(max(bisect_right(row.values, value), 1), len(tilts.x) - 1)
    low, high = tilts.x[i - 1], tilts.x[i]
    while True:
        # Tilts per interval in a search for a saddle.
        rows = _rows(losses, np.linspace(low, high, 9))
        x, k, mean, variance = rows
        c = np.exp(x)
        bend = variance + 1 / c**2 + 1 / (c + 1) ** 2
        at, slope = mean - 1 / c - 1 / (c + 1), c * bend
        if epsilon is None:
            at = c * at + np.log(c * (c + 1) * np.sqrt(math.tau * bend)) - k
            slope = c * slope
        excess = value - at
        j = int(np.argmin(np.abs(excess) / slope))
        move = float(excess[j] / slope[j])
        flat = LIMITS.flat_efolds * float(1.0 if epsilon is None else 1 / c[j])
        # Largest gap in log c between a tilt and a saddle.
        if (abs(move) <= 1e-3 and abs(excess[j]) <= flat) or high - low <= LIMITS.tilt_gap:
            return min(max(float(x[j]) + move, low), high)
        first = min(max(int(np.count_nonzero(excess > 0)), 1), len(x) - 1)
        low, high = float(x[first - 1]), float(x[first])


@array_cache
def _tilts(losses: LineSum, blocks: int) -> Tilts:
    further_octaves = 3  # octaves in each further array
    if blocks == 1:
        first, rows = _first_block(losses)
    else:
        before = _tilts(losses, blocks - 1)
        first = before.first
        block = _block(
            losses, first + LIMITS.first_octaves + further_octaves * (blocks - 2), further_octaves
        )
        rows = np.concatenate([before.rows, block[:, 1:]], axis=1)
    end = first + LIMITS.first_octaves + further_octaves * (blocks - 1)
    complete = float(rows[0, -1]) < (end - 0.5) * LOG_2
    return _steer_tilts(rows, blocks, first, complete=complete)


def _steer_tilts(rows: Array, blocks: int, first: int, *, complete: bool) -> Tilts:
    """Return the tilts of ``rows`` (log c, K, mean, variance), with the functions of K."""
    x, k, mean, variance = rows
    c = np.exp(x)
    bend = variance + 1 / c**2 + 1 / (c + 1) ** 2
    own = np.maximum.accumulate(mean - 1 / c - 1 / (c + 1))
    log_width = 0.5 * np.log(math.tau * bend)
    depth = np.maximum.accumulate(c * own + np.log(c * (c + 1)) + log_width - k)
    # In a cell, c rises by at most a third. Log delta falls about like the square of ``away``.
    away = np.sqrt(np.maximum(2 * depth, 0.0))
    size = x[1:] - x[:-1]
    rise = (
        (away[1:] - away[:-1])
        / np.maximum(
            0.5,  # least depth of a cell of epsilons
            away[1:] * LIMITS.cell_share,
        )
    )
    cell = np.zeros(len(x))
    np.add.accumulate(np.maximum(rise, size / 0.35), out=cell[1:])  # range of log c in a cell
    widens = _slopes(log_width, size)
    steep = c * bend
    return Tilts(
        blocks,
        first,
        complete,
        rows,
        x.tolist(),
        Row(k.tolist(), (c * mean).tolist()),
        _monotone_row(own, steep, size),
        _monotone_row(depth, c * steep + widens, size),
        Row(log_width.tolist(), widens.tolist()),
        _monotone_row(cell, _slopes(cell, size), size),
        _bent(rows).tolist(),
    )


def _bent(rows: Array) -> Array:
    """Return True for each gap between tilts in which the epsilon of the saddle rises unevenly."""
    c, own, size = np.exp(rows[0]), _integrand_slope(rows), rows[0, 1:] - rows[0, :-1]
    steep = c * rows[3] + 1 / c + c / (c + 1) ** 2
    rise = own[1:] - own[:-1]
    # Relative error of a trapezoid above which tilts are refined.
    bent = np.abs(0.5 * size * (steep[1:] + steep[:-1]) - rise) > 0.2 * rise
    return bent & (c[1:] * rise > LIMITS.flat_efolds)


def _neighbor_values(values: Array) -> tuple[Array, Array]:
    """Return, for each tilt, the values of the gaps to its left and right."""
    left, right = np.empty((2, len(values) + 1))
    left[0], left[1:], right[:-1], right[-1] = values[0], values, values, values[-1]
    return left, right


def _slopes(values: Array, size: Array) -> Array:
    """Return a function's slope at each tilt, the mean of those in the gaps on either side."""
    left, right = _neighbor_values((values[1:] - values[:-1]) / size)
    return 0.5 * (left + right)


def _monotone_row(values: Array, slopes: Array, size: Array) -> Row:
    """Return a row with ``slopes`` limited so that each cubic is monotone.

    ``size``: widths of gaps.
    """
    most = np.minimum(*_neighbor_values(3 * (values[1:] - values[:-1]) / size))
    return Row(values.tolist(), np.minimum(np.maximum(slopes, 0.0), most).tolist())


def _first_block(losses: LineSum) -> tuple[int, Array]:
    """Return the binary log of the first tilt, and rows. The first saddle's epsilon is below 0."""
    start_octaves = (-2, 0, 2, 4)  # possible starts of the first array
    least = _integrand_slope(_rows(losses, np.array(start_octaves[1:]) * LOG_2))
    first = start_octaves[int(np.count_nonzero(least <= 0))]
    while True:
        rows = _block(losses, first, LIMITS.first_octaves)
        if first <= LOG_LEAST or float(_integrand_slope(rows[:, :1])[0]) <= 0:
            return first, rows
        first -= LIMITS.first_octaves


def _block(losses: LineSum, first: int, octaves: int) -> Array:
    """Return log c, K, mean, and variance at tilts from 2^first, shape (4, n).

    Tilts are denser where functions bend. They end where K has too many terms or is not finite.
    """
    exponents = first + 0.5 * np.arange(2 * octaves + 1)
    while len(exponents) > 2 and not _has_few_terms(losses, 2.0 ** float(exponents[-1])):
        exponents = exponents[:-1]
    rows = _rows(losses, exponents * LOG_2)
    bent = _bent(rows)
    if not np.logical_or.reduce(bent):
        return rows
    size = rows[0, 1:] - rows[0, :-1]
    between = (rows[0, :-1] + np.multiply.outer(QUARTERS, size))[:, bent].ravel()
    rows = np.concatenate([rows, _rows(losses, between)], axis=1)
    return rows[:, np.argsort(rows[0])]


@np.errstate(all="ignore")
def _rows(losses: LineSum, x: Array) -> Array:
    rows = np.array([x, *losses.moments(np.exp(x))])
    known = np.logical_and.reduce(np.isfinite(rows), axis=0)
    return rows if np.logical_and.reduce(known) else rows[:, : max(int(np.argmin(known)), 2)]


def _integrand_slope(rows: Array) -> Array:
    c = np.exp(rows[0])
    return rows[2] - 1 / c - 1 / (c + 1)


def _has_few_terms(losses: LineSum, c: float) -> bool:
    """Return True if K(c) has few terms and c is allowed."""
    return c <= LIMITS.largest_tilt and losses.places(c, 0.0) <= 0.1 * LIMITS.terms


@dataclass(frozen=True, eq=False)
class Aim:
    """Hold the requirements of a line: where it crosses, its epsilons, and its accuracy.

    Args:
        c: crossing of the line and the real axis.
        ends: pairs of an epsilon and its approximate log delta.
        digits: errors stay below e^-digits of delta.
    """

    c: float
    ends: list[tuple[float, float]]
    digits: float = LIMITS.error_efolds


@dataclass(frozen=True, eq=False)
class _Plan:
    """Hold the step ``h`` and the end of the nodes on the line Re z = c, and K at c and c'."""

    c: float
    h: float
    end: float
    log_left: float
    real: Array
    k: Array
    k_error: Array
    excess: float  # log ratio of the terms to their sum
    release: float = 0.0  # v
    far: float = math.inf  # height beyond which only the release bounds |phi|

    @property
    def count(self) -> float:
        return self.end / self.h if self.h > 0 else math.inf

    @property
    def cost(self) -> float:
        """Return the number of nodes, increased by a constant, times the loss by cancellation."""
        return (self.count + LIMITS.cheap_nodes) * math.exp(min(self.excess, LIMITS.excess_efolds))


def _best_plan(
    losses: LineSum, tilts: Tilts, aim: Aim, release: bool, blurred: bool
) -> _Plan | None:
    """Return the cheapest plan of a line, or None. The saddle is not always the best c.

    Off the saddle, terms are larger than their sum, and cancellation loses digits.
    """
    best, span, waves = None, losses.span, losses.wave_nodes
    plain_nodes = 4000  # largest number of nodes without a release
    most, work, enough = plain_nodes, LIMITS.plain_node_terms, float(plain_nodes)
    if waves:
        most, work, enough = waves, 1.5e9, math.inf  # K as a sum of waves is fast
    elif release or span:
        most, work, enough = LIMITS.nodes, LIMITS.node_terms, math.inf
    for place in _places(tilts, aim, 1 if waves else len(FACTORS)):
        # Number of nodes below which the search for a place stops.
        if best is not None and (best.count < 1000 or best.cost <= place[2]):
            break
        plan = _plan(losses, tilts, aim, place)
        if best is None or plan.cost < best.cost:
            best = plan
        if best.count > enough:
            break
    assert best is not None
    if not best.h > 0:  # no alias has a bound
        return None
    if best.count <= most:
        places = losses.places(best.c, best.end)
        if places <= LIMITS.terms and best.count * places <= work:
            return best
    return None if span or not blurred else _plan_with_gaussian(losses, tilts, aim)


Place = tuple[float, float, float]
"""The c of a line, the c' for the aliases n > 0, and the cost of the nodes."""


def _places(tilts: Tilts, aim: Aim, most: int = 1) -> list[Place]:
    """Return c of lines at and below the saddle, cheapest first, by estimates of K [C-1]."""
    epsilons, log_deltas = np.array(aim.ends).T
    c, others = aim.c * np.array(FACTORS[:most]), aim.c * PLACES
    others = others[others <= math.exp(tilts.x[-1])]
    if others[-1] <= aim.c:  # K ends here
        others = np.append(others, 1.35 * aim.c)  # c' / c if K is unknown beyond c
    x = np.log([*c, *others])
    k = tilts.k_at(x)
    # The terms n < 0 are at most e^-digits of delta, and so are the terms n > 0 for some c' > c.
    before = math.tau * c / (aim.digits - float(np.minimum.reduce(log_deltas)))
    after = _step_after(aim, c, others, k[most:])
    best = after.argmax(axis=1)
    h = np.minimum(before, np.maximum.reduce(after, axis=1))
    excess = k[:most, None] - np.multiply.outer(c, epsilons) - log_deltas
    excess = np.maximum.reduce(excess, axis=1)
    # The bulk's deviation: if a few large losses dominate a variance, phi decays no faster.
    deviation = min(map(tilts.deviation, x[:most].tolist()))
    count = np.sqrt(2 * (aim.digits + np.maximum(excess, 0.0))) / (deviation * h)
    cost = (count + LIMITS.cheap_nodes) * np.exp(np.minimum(excess, LIMITS.excess_efolds))
    # Largest ratio of the terms to their sum, in e-folds.
    # Stop before the first place whose terms cancel too much.
    cancels = (excess[1:] > 12.0).nonzero()[0]
    order = cost[: 1 + (int(cancels[0]) if len(cancels) else most)].argsort(kind="stable")
    return [(float(c[i]), float(others[best[i]]), float(cost[i])) for i in order.tolist()]


def _plan_with_gaussian(losses: LineSum, tilts: Tilts, aim: Aim) -> _Plan | None:
    """Plan a line with the smallest Gaussian release that the limits permit [C-6].

    Return None if even a few nodes need too many terms of K.
    """
    c, aim = aim.c, replace(aim, digits=25.0)  # less with a tiny release
    plan = _plan(losses, tilts, aim, _places(tilts, aim)[0], certified=False)
    need = aim.digits + max(plan.excess, 0.0)
    count = 1 << 14  # with a tiny release
    places = losses.places(c, count * plan.h)
    while count > 4 and (places > LIMITS.terms or count * places > LIMITS.node_terms):
        count //= 2
        places = losses.places(c, count * plan.h)
    if places > LIMITS.terms:
        return None
    # Relative width due to a tiny release, if nodes allow.
    most = min(count * plan.h, math.sqrt(2 * need * (c + 1) * c / 1e-8))
    edges = math.sqrt(2 * need) / tilts.deviation(math.log(c)) * FINE_ENDS
    fails = np.append(losses.log_decay(c, edges, math.inf)[:-1] > -need, True)
    following = np.minimum.accumulate(np.where(fails, edges, math.inf)[::-1])[::-1]
    # From ``end`` to ``far`` the decay is certified. Beyond ``far`` the release ensures decay.
    reach = np.where(~fails & (edges <= most), following, 0.0)
    far = float(reach.max())
    end = float(edges[int(np.argmax(reach))]) if far > most else most
    far = max(far, most)
    v = 2 * need / far**2
    k = plan.k + 0.5 * v * plan.real * (plan.real + 1)
    return replace(plan, end=end, far=far, log_left=math.log(2) - need, k=k, release=v)


def _plan(
    losses: LineSum, tilts: Tilts, aim: Aim, place: Place, *, certified: bool = True
) -> _Plan:
    c, ends = place[0], np.array(aim.ends)
    real = np.array(place[:2])
    k, k_error = losses.mgf(real)
    before = math.tau * c / (aim.digits - float(np.minimum.reduce(ends[:, 1])))
    h = min(before, float(_step_after(aim, real[:1], real[1:], k[1:])[0, 0]))
    excess = float(np.maximum.reduce(k[0] - c * ends[:, 0] - ends[:, 1]))
    end, log_left = math.inf, 0.0
    if certified:
        deviation = tilts.deviation(math.log(c))
        end, log_left = end_of(losses, c, h, aim.digits + max(excess, 0.0), deviation)
    return _Plan(c, h, end, log_left, real, k, k_error, excess)


def _step_after(aim: Aim, c: Array, others: Array, k: Array) -> Array:
    """Return the step that makes the aliases n > 0 small enough, shape (c, others)."""
    epsilons, log_deltas = np.array(aim.ends).T
    kernel = (k + log_kernel(others))[:, None]
    excess = kernel - np.multiply.outer(others, epsilons) - log_deltas
    excess = np.maximum.reduce(excess, axis=1)
    return math.tau * (others - c[:, None]) / np.maximum(excess + aim.digits, 1e-3)


def nodes(
    span: float, c: float, h: float, end: float, log_left: float
) -> tuple[float, Array, float]:
    """Return a step of at most ``h``, heights up to ``end``, and a bound on all omitted nodes.

    log_left: log of a bound on |phi| beyond ``end``.
    """
    if not span:
        u = h * np.arange(math.ceil(end / h) + 1)
        # Beyond the last node: h / pi times the sum of |phi| / u^2, at most its integral [C-2].
        return h, u, math.exp(log_left) / (math.pi * float(u[-1]))
    half = math.ceil(math.pi / (span * h))  # nodes in half a period
    h = math.pi / (span * half)
    count = min(math.ceil(end / h), half)
    u = h * np.arange(count + 1)
    if count == half:
        return h, u, 0.0
    # |1 - e^{-s z}|^2 = (1 - e^{-s c})^2 + 4 e^{-s c} sin^2(s u / 2) rises with u [C-15].
    turn = 2 * math.sin(0.5 * span * float(u[-1]))
    ends = span * np.array([c, c + 1])
    with np.errstate(over="ignore"):
        least = np.hypot(np.expm1(-ends), np.exp(-0.5 * ends) * turn)
    rest = -math.expm1(-span) * math.exp(log_left) / float(least[0] * least[1])
    return h, u, rest * (1 + 1e-9) + 1e-300


def _transform(
    losses: LineSum, c: float, u: Array, log_rest: Array | None = None
) -> tuple[Array, Array, float]:
    """Return F(c + iu) / F(c) at heights u, bounds on its errors, and one on that of K(c)."""
    values, error = losses.mgf(c + 1j * u, log_rest)
    phi = np.exp(values - values[0].real)
    # [C-3]: errors of each exponent, of waves as products, and of a sum of terms.
    rounding = np.abs(phi) * UNIT * (4 * np.abs(values) + 3 * len(u) + 64)  # slack: counted
    return phi, error + rounding, 1.01 * float(error[0])


def line_of(
    losses: LineSum,
    c: float,
    u: Array,
    rest: float,
    k: float,
    k_error: float,
    more: tuple[Array, Array],
    span: float,
    kind: type[L],
) -> L:
    """Return the line with nodes c + iu. ``more`` are its `aliases`."""
    phi, error, first = _transform(losses, c, u)
    # K(c) enters twice, once with the nodes of the line.
    slack = k_error + first + 8 * UNIT * abs(k)  # slack: counted
    return kind.of(c, u, phi, error, rest, k, more, slack, span)


@np.errstate(over="ignore", invalid="ignore")  # an overflow gives a trivial bound
def _built(losses: LineSum, plan: _Plan) -> Line:
    c, real, k, v = plan.c, plan.real, plan.k, plan.release
    safe = k + np.log1p(plan.k_error) + 8 * UNIT * np.abs(k)  # slack: counted
    span = losses.span
    h, u, rest = nodes(span, c, plan.h, plan.end, plan.log_left)
    more = aliases(c, h, real[1:], safe[1:])
    if not v:
        return line_of(losses, c, u, rest, float(k[0]), float(plan.k_error[0]), more, span, Line)
    phi, error, first = _transform(losses, c, u, -0.5 * v * u**2)
    # e^{v z (z + 1) / 2} on the line, over its value at c
    factor = np.exp(-0.5 * v * u * (u - 1j * (2 * c + 1)))
    size = np.abs(factor)
    # slack: counted
    error = size * (error + np.abs(phi) * UNIT * (8 + v * u * (u + 2 * c + 1)))
    phi = phi * factor
    top = float(k[0])
    # K(c) enters twice, once with the nodes of the line.
    slack = float(plan.k_error[0]) + first + 8 * UNIT * abs(top)  # slack: counted
    line = Line.of(c, u, phi, error, rest, top, more, slack)
    share = np.full(len(u), h / math.pi)
    share[0] /= 2
    # erf(s / sqrt 8) sqrt(2 pi v) e^{v / 8}, s = sqrt v, is about v. The bump has no kernel.
    kappa = (
        math.erf(math.sqrt(v / 8))
        * math.sqrt(math.tau * v)
        * math.exp(min(v / 8, 600.0))
        * (1 + 1e-13)
    )
    bump = phi * (kappa * share)
    # |phi| e^{-v u^2 / 2} from the end to ``far``, and beyond ``far``.
    left = math.sqrt(math.pi / (2 * v)) + 1 / (v * plan.far)
    left *= math.exp(plan.log_left) / math.pi
    fixed = line.fixed + kappa * (float(np.add.reduce(share * error)) + left)
    moving = line.moving + 4 * UNIT * dot(np.abs(bump), np.abs(c + 1j * u))  # slack: counted
    return replace(line, fixed=fixed, moving=moving, bump=bump)


def end_of(
    losses: LineSum, c: float, h: float, need: float, deviation: float
) -> tuple[float, float]:
    """Return a height beyond which |phi| is certified below e^-need, and the bound on log |phi|.

    Return an infinite height, or half a period of a lattice, if no height is certified.
    """
    if losses.wave_nodes:
        known = losses.end(c, need, h)
        # `nodes` divides by pi times the last height, which is less than h beyond this one.
        return (
            (math.inf, 0.0)
            if known is None
            else (known[0], known[1] + math.log(4 * (known[0] + h)))
        )
    normal = math.sqrt(2 * need) / deviation
    span = losses.span
    half = math.pi / span if span else math.inf
    for ends in (NEAR_ENDS, ALL_ENDS):
        edges = normal * ends
        if half < math.inf:
            edges = np.append(edges[edges < half], half)
        bound = losses.log_decay(c, edges, need)
        bound = bound[:-1] if half < math.inf else bound
        left = np.maximum.accumulate(bound[::-1])[::-1]
        enough = (left <= -need).nonzero()[0]
        if len(enough):
            return float(edges[enough[0]]), float(left[enough[0]])
    return half, 0.0
