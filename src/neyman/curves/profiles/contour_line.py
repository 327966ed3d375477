"""A vertical line in the plane of K: delta at every epsilon that the line suits, certified.

    delta(epsilon) = (1 / 2 pi i) * integral over Re z = c > 0 of e^{K(z) - epsilon z} / (z (z+1))

A trapezoid sum of step h on that line equals the sum over whole n of
e^{2 pi n c / h} delta(epsilon + 2 pi n / h): every term is non-negative, so the sum never falls
below delta. The terms n < 0 are at most 1 / (e^{2 pi c / h} - 1), because delta <= 1; those n > 0
follow a Chernoff bound at some c' > c. What is beyond the last node is bounded by the decay of
the tilted characteristic function and the integral of 1/u^2. Errors of K enter at each node. The
derivation stands in docs/certificates/contour.md.

Where the decay cannot be certified, or only too far out, a tiny Gaussian release of mu squared = v
is added: whoever sees more learns no less, so delta of the sum with it is an upper bound, and the
line has the factor e^{-v u^2 / 2}. What it adds is at most kappa times a Gaussian bump around
epsilon, kappa = about v, whose mean is an integral over the same nodes; without it stands a lower
bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array, imaginary_part, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import even_series, series


@dataclass(frozen=True)
class Limits:
    """Where a line goes, and what it may take."""

    error_efolds: float = 28.0  # aliasing and truncation are kept below e^-28 of delta
    blurred_error_efolds: float = 25.0  # the same with a tiny release
    algebraic_efolds: float = 3.5  # of truncation where |phi| falls like a power of u
    nodes: int = 1 << 16
    blurred_nodes: int = 1 << 14  # with a tiny release
    terms: float = 1e6  # of K
    node_terms: float = 4e7  # nodes times terms of K
    wave_terms: float = 3e8  # the same of sums over nodes that are alike for all, which is fast
    plain_node_terms: float = 3e6  # beyond which a line without a release is left to another engine
    blur_width: float = 1e-8  # relative width that a tiny release costs, if nodes allow
    # 1 - power below which nothing is asked: floats hold no digits of it.
    least_miss: float = 1e-300
    least_log_delta: float = -1e8  # beyond which no line goes
    least_tilt: float = 1e-9  # c of a line, at least
    largest_tilt: float = 1e9  # c of a line, at most
    first_octaves: int = 5  # of tilts in the first array, two an octave
    further_octaves: int = 3  # in each further array
    start_octaves: tuple[int, ...] = (-2, 0, 2, 4)  # where the first array may begin
    saddle_efolds: float = math.log(2.2)  # of log c, beyond a saddle, in which K is of use
    rise_share: float = 0.2  # part of a rise by which a trapezoid misses it where tilts are refined
    flat_efolds: float = 0.3  # e-folds of delta on a rise that is not refined
    tilt_gap: float = 1e-6  # of log c, between two tilts
    saddle_gap: float = 1e-3  # of log c, between a tilt and a saddle
    saddle_tilts: int = 9  # tilts from one to the next, where a saddle is looked for
    epsilon_width: float = 3e-3  # relative accuracy of an epsilon with which a line suits it
    least_cell_efolds: float = 0.5  # depth of a cell of epsilons
    cell_share: float = 0.125  # of the depth, of a cell
    cell_tilt_efolds: float = 0.35  # of log c, in a cell
    line_width: float = 5e-11  # relative width with which a line is good enough
    blurred_line_width: float = 1e-5  # the same with a tiny release
    lines: int = 4  # that are tried for one question
    settled_nodes: int = 1000  # nodes with which no better place is looked for
    cheap_nodes: int = 500  # nodes that cost less than everything else
    further_tilt: float = 1.35  # c' over c where K is known nowhere beyond
    chirp_places: int = 1 << 8  # epsilons and nodes from which sums at even places go by a chirp
    chirp_units: int = 8  # units of the largest epsilon by which a place may be off
    plain_nodes: int = 4000  # nodes beyond which a line without a release is left to another engine
    cancellation_efolds: float = 12.0  # of the terms against their sum, at most
    excess_efolds: float = 50.0  # the same, as far as floats hold


LIMITS = Limits()
BEYOND = [1.02, 1.05, 1.1, 1.2, 1.35, 1.55, 1.8, 2.2, 3.0]  # c' / c, for the terms after
# Powers of e^-L in Chernoff's bounds of a level and a miss.
CHERNOFF_POWERS = np.linspace(0.05, 0.95, 19)
LOG_2, LOG_LEAST = math.log(2), math.log2(LIMITS.least_tilt)
QUARTERS = np.array([0.25, 0.5, 0.75])  # of the way between two tilts, where more are needed
FACTORS = (1.0, 0.985, 0.97, 0.94, 0.88, 0.8)  # c over the saddle
# About a place, where a line may go and what follows it.
PLACES = np.sort(np.concatenate([FACTORS, 2 - np.array(FACTORS[1:4]), BEYOND]))
ABOUT = np.log(PLACES)
# Where the end is looked for, in units of where a normal distribution's would be.
END_FACTORS = 0.9 * 1.5 ** np.arange(14)
NEAR_ENDS = np.array([1.0, 1.03, 1.07, 1.13, 1.2, 1.3, 1.45, 1.7, 2.0, 2.5, 3.5, 6.0, 12.0, 40.0])
FINE_ENDS = np.append(END_FACTORS[:8], END_FACTORS[8] + 0.5 * np.arange(1 << 13))
ALL_ENDS = np.concatenate([END_FACTORS, END_FACTORS[-1] * 1.6 ** np.arange(1, 19)])


class Sum(Protocol):
    """A sum of independent losses, as the contour sees it."""

    @property
    def algebraic(self) -> bool:
        """Whether the characteristic function falls like a power of u."""
        ...

    def places(self, tilt: float, height: float) -> float:
        """About how many terms K takes at this height."""
        ...

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        """K(z), z real or on one line, and the error of e^K relative to e^{K(Re z)}.

        log_rest is the logarithm of a factor that each e^K will get: where both together are
        nothing, K need not be known.
        """
        ...

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """K, mean and variance under each tilt."""
        ...

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        """Bounds on log |phi| between the edges; no sharper than e^-need if that costs more."""
        ...


def log_kernel(c: Array) -> Array:
    """log of sup over x > 0 of (1 - e^-x) e^{-c x}: delta <= e^{K(c) - c epsilon + log_kernel}."""
    return c * np.log(c) - (c + 1) * np.log1p(c)


def terms_beyond(other: Array, k: Array, gap: Array) -> Array:
    """Return what bounds the terms after those of a line: `Line.beyond`, of shape (4, m).

    Args:
        other: c' above the c of the line.
        k: upper bounds on K there.
        gap: 2 pi (c' - c) / h.
    """
    sizes = np.abs(k) + 2 * other * np.abs(np.log(other)) + gap
    return np.array([other, k + log_kernel(other), gap, sizes])


@dataclass(frozen=True, eq=False)
class Line:
    """Nodes c + i u with the weights e^{K(z) - K(c)} h / (pi z (z + 1)).

    Args:
        c: where the line crosses the real axis.
        u: heights of the nodes, evenly spaced from 0.
        weight: complex weights, shape (n,).
        top: K(c).
        fixed, moving: the sum errs by at most fixed + moving |epsilon|.
        turns: 2 pi c / h.
        beyond: c', K + log kappa there, 2 pi (c' - c) / h, and the size of what is rounded in
            the three, for the terms after; shape (4, m).
        slack: error of K(c).
        noise: the part of ``fixed`` that errors of K are.
        bump: weights of what the tiny release may have added; none where there is none.
        widest: the largest width of log delta where the line was made for.
    """

    c: float
    u: Array
    weight: Array
    top: float
    fixed: float
    moving: float
    turns: float
    beyond: Array
    slack: float
    noise: float = 0.0
    bump: Array | None = None
    widest: float = math.inf

    @property
    def lines(self) -> tuple[Line, ...]:
        """Itself, as one of several."""
        return (self,)

    def sums(self, epsilon: float) -> tuple[float, float]:
        """Return the trapezoid sum over e^{K(c) - c epsilon}, and
        the logarithm's slope in epsilon.
        """
        terms = self.weight * np.exp(-1j * epsilon * self.u)
        total = float(np.add.reduce(real_part(terms)))
        fall = self.c * total - float(imaginary_part(terms) @ self.u)
        return total, -fall / total if total > 0 else 0.0

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Certified bounds at each epsilon, however wide; shape (m,)."""
        total, error = self._sums(self.weight, epsilon)
        scale = self.top - self.c * epsilon
        size = np.abs(epsilon)
        error = error + self.fixed + self.moving * size
        before = np.exp(np.minimum(-self.turns - scale, 700.0)) / -math.expm1(-self.turns)
        other, kernel, gap, sizes = self.beyond
        moved = np.multiply.outer(epsilon, other)
        bound = kernel - gap - moved - scale[:, None]
        # Each of the five terms errs by at most 4 units of itself; the kernel's is two c' log c'.
        sizes = sizes + np.abs(scale)[:, None]
        bound = bound + 8 * UNIT * (sizes + np.abs(moved) + 1)
        after = np.exp(np.minimum(bound, 700.0)) / -np.expm1(-gap)
        error = error + before + np.minimum.reduce(after, axis=1)
        added = 0.0
        if self.bump is not None:  # its own aliases are positive: more than it is taken off
            added, more = self._sums(self.bump, epsilon)
            error = error + more
        # What is no number claims nothing.
        low, high = np.fmax(total - added - error, 0.0), np.maximum(total + error, 0.0)
        high[np.isnan(high)] = math.inf
        slack = 8 * UNIT * (abs(self.top) + self.c * size + 1) + self.slack
        return np.log(low) + scale - slack, np.minimum(np.log(high) + scale + slack, 0.0)

    def _sums(self, weight: Array, epsilon: Array) -> tuple[Array, Array | float]:
        """Return the sums of the nodes at each epsilon, and their
        error beside `fixed` and `moving`.
        """
        if len(epsilon) >= LIMITS.chirp_places and len(weight) >= LIMITS.chirp_places:
            first, last = float(epsilon[0]), float(epsilon[-1])
            step, far = (last - first) / (len(epsilon) - 1), max(abs(first), abs(last))
            off = float(np.abs(first + step * np.arange(len(epsilon)) - epsilon).max())
            if off <= LIMITS.chirp_units * UNIT * far:
                h = float(self.u[1])
                sums, error = even_series(weight, first * h, step * h, len(epsilon))
                # An angle is off by EVEN units and a few of far, as `moving` has four of them.
                drift = (LIMITS.chirp_units + 4) * UNIT * far * float(np.abs(weight) @ self.u)
                return np.real(sums), error + drift
        return real_part(series(weight, epsilon * self.u[1])), 0.0

    def width(self, epsilon: float) -> float:
        """Return the width of the bounds on log delta there."""
        return self.largest_width([epsilon])

    def largest_width(self, epsilons: list[float]) -> float:
        """Return the largest width of the bounds on log delta at these epsilons."""
        low, high = self.log_delta(np.array(epsilons))
        least = float(np.minimum.reduce(low))
        return float(np.maximum.reduce(high - low)) if least > -math.inf else math.inf

    def settled(self, epsilon: float, excess: float) -> bool:
        """Whether no other place gives many more digits: the width is small, or that of K.

        Args:
            epsilon: at least 0.
            excess: of the terms over their sum at the best place, in e-folds.
        """
        error = (self.noise + self.moving * epsilon) * math.exp(min(excess, 300.0)) + self.slack
        return self.width(epsilon) < max(LIMITS.line_width, 4 * error)

    def middle(self, epsilon: float) -> float:
        """Return the logarithm of the sum there."""
        total = float(self.sums(epsilon)[0])
        return min(math.log(total) + self.top - self.c * epsilon, 0.0) if total > 0 else -math.inf

    def epsilon_at(self, log_delta: float, start: float) -> float:
        """About the epsilon at which the sum has this logarithm: Newton's method."""
        epsilon = start
        for _ in range(12):
            total, slope = self.sums(epsilon)
            if total <= 0 or slope >= 0:
                return start
            move = (self.top - self.c * epsilon + math.log(total) - log_delta) / slope
            epsilon = max(epsilon - move, 0.5 * epsilon)
            if abs(move) <= 1e-14 * epsilon:
                break
        return epsilon


def log_chernoff(losses: Sum, epsilon: float) -> float:
    """Upper bound on log delta where epsilon is too far out for a line."""
    far = 0.5 * LIMITS.largest_tilt
    while losses.places(far, 0.0) > 0.1 * LIMITS.terms and far > 1:
        far /= 10
    c = np.array([far])
    k, error = losses.mgf(c)
    exponent = k + np.log1p(error) - c * epsilon
    # Both terms of log kappa are about c log c.
    slack = 8 * UNIT * (np.abs(k) + c * epsilon + c * np.log(c))
    return min(float((exponent + log_kernel(c) + slack)[0]), 0.0)


def mgf_below(losses: Sum, a: Array = CHERNOFF_POWERS) -> Array:
    """Upper bounds on K(-a), which `least_log_powers` needs."""
    k, error = losses.mgf(-a)
    return k + np.log1p(error) + 8 * UNIT * (1 + np.abs(k))


def least_log_powers(most: Array, log_levels: Array, a: Array = CHERNOFF_POWERS) -> Array:
    """Lower bounds on log power by Chernoff, with the digits of 1 - power [C-9].

    Rejecting where L > t has a level of at most e^{K(-b) - (1 - b) t}, 0 <= b < 1, and it misses
    with P(L <= t) <= e^{K(-a) + a t}, 0 < a < 1.

    Args:
        most: from `mgf_below`, at the same a.
        log_levels: shape (m,).
        a: the powers of e^-L that are tried.
    """
    b, levels = np.append(0.0, a), np.append(0.0, most)
    with np.errstate(invalid="ignore", over="ignore"):
        slack = 8 * UNIT * (np.abs(levels) + np.abs(log_levels[:, None]))
        t = ((levels - log_levels[:, None] + slack) / (1 - b)).min(axis=1)
        t = t + 8 * UNIT * np.abs(t)
        misses = most + np.multiply.outer(t, a)
        misses = (misses + 8 * UNIT * np.abs(misses)).min(axis=1)
        misses = np.where(np.isfinite(log_levels), misses, 0.0)
        sure = misses < -1e-9
        # No power is 1: a miss that floats do not hold is below the least of them.
        least = np.minimum(np.log1p(-np.exp(np.where(sure, misses, -1.0))), -5e-324)
        return np.where(sure, least, -math.inf)


def line_at(losses: Sum, epsilon: float, *, release: bool = True) -> Line | None:
    """Return a line that suits ``epsilon``; none where that is too far out.

    Args:
        losses: the sum.
        epsilon: at least 0.
        release: whether a tiny Gaussian release may be added; without it a line must certify its
            own end, and there is none where it cannot.
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
    """Return the place of the line of an epsilon and of its neighbors, about whose saddle is e^x.

    Delta differs by a quarter of an e-fold at most.
    """
    if epsilon <= 0:
        return epsilon
    step = 2.0 ** math.floor(math.log2(min(LIMITS.epsilon_width * epsilon, 0.25 * math.exp(-x))))
    return step * round(epsilon / step)


@array_cache
def _line_of_cell(losses: Sum, blocks: int, cell: int, release: bool) -> Line | None:
    """Return a line that suits all epsilons of a cell, without a tiny release."""
    tilts = _tilts(losses, blocks)
    low, x, high = [tilts.place(tilts.cell, cell + share) for share in (0.0, 0.5, 1.0)]
    ends = [tilts.aim(low), tilts.aim(high)]
    return _best_line(losses, tilts, x, tilts.aim(x), ends, release, blurred=False)


@array_cache
def _line_at(losses: Sum, epsilon: float, release: bool) -> Line | None:
    """Return a line that suits one epsilon."""
    tilts, x = tilts_of(losses, epsilon)
    aim = epsilon, min(tilts.log_terms(x, epsilon), 0.0)
    return _best_line(losses, tilts, x, aim, [aim], release, blurred=release)


def _best_line(
    losses: Sum,
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
            object.__setattr__(line, "widest", width)  # no one else has the line yet
            best = line
        moved = middle - log_delta
        if middle == -math.inf or width > 0.5 * before or abs(moved) < 0.5:
            break
        if line.settled(epsilon, line.top - line.c * epsilon - middle):
            break
        # The terms were no bell: now their sum is known.
        before, log_delta, ends = width, middle, [(e, min(v + moved, 0.0)) for e, v in ends]
    return best


def rough(losses: Sum, epsilon: float) -> float:
    """About log delta(epsilon): by the bell of the terms around their saddle."""
    tilts, x = tilts_of(losses, epsilon)
    return min(tilts.log_terms(x, epsilon), 0.0)


def rough_epsilon(losses: Sum, log_delta: float) -> float:
    """About the epsilon that has this log delta, by the same bell; below 0 where there is none."""
    tilts, x = tilts_of(losses, None, log_delta)
    return (tilts.log_terms(x, 0.0) - log_delta) * math.exp(-x)


def line_for(losses: Sum, log_delta: float, *, release: bool = True) -> tuple[Line, float] | None:
    """Return a line that suits the epsilon which has this log delta, and about that epsilon.

    None where that epsilon is 0 or so.
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
        # Mostly the line that suits this epsilon is the same.
        width = line.width(epsilon) if before is not None or line.bump is not None else math.inf
        before = line
        if best is None or width < best[0]:
            best = width, line, epsilon
        if width < (LIMITS.line_width if line.bump is None else LIMITS.blurred_line_width):
            break
    return None if best is None else best[1:]


def saddle(losses: Sum, epsilon: float, largest: float = LIMITS.largest_tilt) -> float:
    """About the c > 0 that minimizes K(c) - c epsilon - log c - log(c + 1), which is convex."""
    tilts = tilts_of(losses, epsilon)[0]
    return min(math.exp(_steep_place(losses, tilts, epsilon, 0.0)), largest)


class Row(NamedTuple):
    """A function of log c at each tilt, and its slope there."""

    values: list[float]
    slopes: list[float]


@dataclass(frozen=True, eq=False)
class Tilts:
    """K and what follows from it at a row of tilts c: to steer by, nothing here is certified.

    Between two tilts functions of x = log c are cubic. Epsilons are divided into cells, so that a
    line which suits the middle of a cell suits all of it.

    Args:
        blocks: how many blocks of tilts there are; 0 if they are those about one place.
        first: the binary logarithm of the first one.
        complete: whether no larger tilts are of use.
        rows: log c, K, mean, and variance.
        x: log c, rising.
        k: K.
        own: the epsilon of which c is the saddle.
        depth: about -log delta there, by the bell of the terms.
        log_width: of the terms, log sqrt(2 pi bend).
        cell: how many cells are below c.
        uneven: whether the cubic of ``own`` from each tilt on may be far off.
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
        """Return a function at a place."""
        i = min(max(bisect_right(self.x, x), 1), len(self.x) - 1) - 1
        size, low = self.x[i + 1] - self.x[i], row.values[i]
        rise, a, b = row.values[i + 1] - low, row.slopes[i] * size, row.slopes[i + 1] * size
        s = (x - self.x[i]) / size
        return low + s * (a + s * (3 * rise - 2 * a - b + s * (a + b - 2 * rise)))

    def k_at(self, x: Array) -> Array:
        """K at several places."""
        places, k, mean = self.rows[:3]
        i = places.searchsorted(x, side="right")
        i = np.minimum(np.maximum(i, 1), len(places) - 1)
        size, rise, slope = places[i] - places[i - 1], k[i] - k[i - 1], np.exp(places) * mean
        a, b, s = slope[i - 1] * size, slope[i] * size, (x - places[i - 1]) / size
        return k[i - 1] + s * (a + s * (3 * rise - 2 * a - b + s * (a + b - 2 * rise)))

    def place(self, row: Row, value: float) -> float:
        """Return the place where a function that rises has a value; an end where it nowhere has."""
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
        """About the logarithm of the sum of the terms on the line e^x, by their bell."""
        return self.at(self.k, x) - math.exp(x) * epsilon - self.excess(x)

    def excess(self, x: float) -> float:
        """About by how much they exceed their sum there, at their own saddle."""
        c = math.exp(x)
        return math.log(c * (c + 1)) + self.at(self.log_width, x)

    def aim(self, x: float) -> tuple[float, float]:
        """Return the epsilon of which e^x is the saddle, at least 0, and about its log delta."""
        return max(self.at(self.own, x), 0.0), min(-self.at(self.depth, x), 0.0)

    def deviation(self, x: float) -> float:
        """About the deviation of the loss under the tilt e^x."""
        c = math.exp(x)
        bend = math.exp(2 * self.at(self.log_width, x)) / math.tau - 1 / c**2 - 1 / (c + 1) ** 2
        return math.sqrt(max(bend, 1e-300))


def tilts_of(losses: Sum, epsilon: float | None, log_delta: float = 0.0) -> tuple[Tilts, float]:
    """Tilts of a sum, and the place of an epsilon or of a log delta on them.

    Where a cubic is not enough these are tilts about the place alone.
    """
    blocks = 1
    while True:
        tilts = _tilts(losses, blocks)
        row, value = (tilts.depth, -log_delta) if epsilon is None else (tilts.own, epsilon)
        x = tilts.place(row, value)
        if tilts.complete:
            break
        if (
            x + LIMITS.saddle_efolds < tilts.x[-1]
            and tilts.at(tilts.cell, x) + 1 < tilts.cell.values[-1]
        ):
            break
        blocks += 1
    if not tilts.uneven[min(bisect_right(tilts.x, x), len(tilts.x) - 1) - 1]:
        return tilts, x
    if epsilon is not None:
        epsilon = _neighbor(epsilon, x)
    return _uneven_tilts(losses, blocks, epsilon, log_delta)


@array_cache
def _uneven_tilts(
    losses: Sum, blocks: int, epsilon: float | None, log_delta: float
) -> tuple[Tilts, float]:
    """Tilts about the place of an epsilon or of a log delta, and that place."""
    x = _steep_place(losses, _tilts(losses, blocks), epsilon, log_delta)
    places = x + ABOUT
    while len(places) > len(FACTORS) + 1 and not _has_few_terms(
        losses, math.exp(float(places[-1]))
    ):
        places = places[:-1]
    return _steer_tilts(_rows(losses, places), 0, 0, complete=True), x


def _steep_place(losses: Sum, tilts: Tilts, epsilon: float | None, log_delta: float) -> float:
    """Return the place of an epsilon or of a log delta: by tilts
    between the nearest ones, and Newton.
    """
    row, value = (tilts.depth, -log_delta) if epsilon is None else (tilts.own, epsilon)
    i = min(max(bisect_right(row.values, value), 1), len(tilts.x) - 1)
    low, high = tilts.x[i - 1], tilts.x[i]
    while True:
        rows = _rows(losses, np.linspace(low, high, LIMITS.saddle_tilts))
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
        if (
            abs(move) <= LIMITS.saddle_gap and abs(excess[j]) <= flat
        ) or high - low <= LIMITS.tilt_gap:
            return min(max(float(x[j]) + move, low), high)
        first = min(max(int(np.count_nonzero(excess > 0)), 1), len(x) - 1)
        low, high = float(x[first - 1]), float(x[first])


@array_cache
def _tilts(losses: Sum, blocks: int) -> Tilts:
    if blocks == 1:
        first, rows = _first_block(losses)
    else:
        before = _tilts(losses, blocks - 1)
        first = before.first
        block = _block(
            losses,
            first + LIMITS.first_octaves + LIMITS.further_octaves * (blocks - 2),
            LIMITS.further_octaves,
        )
        rows = np.concatenate([before.rows, block[:, 1:]], axis=1)
    end = first + LIMITS.first_octaves + LIMITS.further_octaves * (blocks - 1)
    complete = float(rows[0, -1]) < (end - 0.5) * LOG_2
    return _steer_tilts(rows, blocks, first, complete=complete)


def _steer_tilts(rows: Array, blocks: int, first: int, *, complete: bool) -> Tilts:
    """Return the tilts with what follows from K at them."""
    x, k, mean, variance = rows
    c = np.exp(x)
    bend = variance + 1 / c**2 + 1 / (c + 1) ** 2
    own = np.maximum.accumulate(mean - 1 / c - 1 / (c + 1))
    log_width = 0.5 * np.log(math.tau * bend)
    depth = np.maximum.accumulate(c * own + np.log(c * (c + 1)) + log_width - k)
    # In a cell c rises by a third at most, and log delta about as the square of ``away``.
    away = np.sqrt(np.maximum(2 * depth, 0.0))
    size = x[1:] - x[:-1]
    rise = (away[1:] - away[:-1]) / np.maximum(
        LIMITS.least_cell_efolds, away[1:] * LIMITS.cell_share
    )
    cell = np.zeros(len(x))
    np.add.accumulate(np.maximum(rise, size / LIMITS.cell_tilt_efolds), out=cell[1:])
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
    """Where the epsilon of which c is the saddle rises unevenly from one tilt to the next."""
    c, own, size = np.exp(rows[0]), _integrand_slope(rows), rows[0, 1:] - rows[0, :-1]
    steep = c * rows[3] + 1 / c + c / (c + 1) ** 2
    rise = own[1:] - own[:-1]
    bent = np.abs(0.5 * size * (steep[1:] + steep[:-1]) - rise) > LIMITS.rise_share * rise
    return bent & (c[1:] * rise > LIMITS.flat_efolds)


def _neighbor_values(values: Array) -> tuple[Array, Array]:
    """Split values between neighbors into the parts left of each tilt and right of it."""
    left, right = np.empty((2, len(values) + 1))
    left[0], left[1:], right[:-1], right[-1] = values[0], values, values, values[-1]
    return left, right


def _slopes(values: Array, size: Array) -> Array:
    """Of a function whose values are known: the mean of the slopes on both sides."""
    left, right = _neighbor_values((values[1:] - values[:-1]) / size)
    return 0.5 * (left + right)


def _monotone_row(values: Array, slopes: Array, size: Array) -> Row:
    """Return a row whose slopes keep each cubic monotone."""
    most = np.minimum(*_neighbor_values(3 * (values[1:] - values[:-1]) / size))
    return Row(values.tolist(), np.minimum(np.maximum(slopes, 0.0), most).tolist())


def _first_block(losses: Sum) -> tuple[int, Array]:
    """Return the tilts whose first one is the saddle of an
    epsilon below 0, and its binary logarithm.
    """
    least = _integrand_slope(_rows(losses, np.array(LIMITS.start_octaves[1:]) * LOG_2))
    first = LIMITS.start_octaves[int(np.count_nonzero(least <= 0))]
    while True:
        rows = _block(losses, first, LIMITS.first_octaves)
        if first <= LOG_LEAST or float(_integrand_slope(rows[:, :1])[0]) <= 0:
            return first, rows
        first -= LIMITS.first_octaves


def _block(losses: Sum, first: int, octaves: int) -> Array:
    """log c, K, mean, and variance at tilts from 2^first on, closer where they bend; shape (4, n).

    They end where K has too many terms, or is no number.
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
def _rows(losses: Sum, x: Array) -> Array:
    rows = np.array([x, *losses.moments(np.exp(x))])
    known = np.logical_and.reduce(np.isfinite(rows), axis=0)
    return rows if np.logical_and.reduce(known) else rows[:, : max(int(np.argmin(known)), 2)]


def _integrand_slope(rows: Array) -> Array:
    c = np.exp(rows[0])
    return rows[2] - 1 / c - 1 / (c + 1)


def _has_few_terms(losses: Sum, c: float) -> bool:
    """Whether K has few terms."""
    return c <= LIMITS.largest_tilt and losses.places(c, 0.0) <= 0.1 * LIMITS.terms


@dataclass(frozen=True, eq=False)
class Aim:
    """The place of a line, and epsilons with the log deltas that it should give.

    Args:
        c: where the line crosses the real axis.
        ends: pairs of an epsilon and about its log delta.
        digits: e-folds of delta below which errors stay.
    """

    c: float
    ends: list[tuple[float, float]]
    digits: float = LIMITS.error_efolds


@dataclass(frozen=True, eq=False)
class _Plan:
    """Step and reach of the nodes on the line c, and K at c and beyond."""

    c: float
    h: float
    end: float
    log_left: float
    real: Array
    k: Array
    k_error: Array
    excess: float  # of the terms over their sum, in e-folds
    release: float = 0.0  # v
    far: float = math.inf  # beyond it only the release bounds |phi|

    @property
    def count(self) -> float:
        return self.end / self.h

    @property
    def cost(self) -> float:
        """Nodes, times what their terms lose in digits."""
        return (self.count + LIMITS.cheap_nodes) * math.exp(min(self.excess, LIMITS.excess_efolds))


def _best_plan(losses: Sum, tilts: Tilts, aim: Aim, release: bool, blurred: bool) -> _Plan | None:
    """Return the one with few nodes and digits: the saddle is not always the best place.

    Off the saddle the terms outgrow their sum; where they cancel too much nothing is gained.
    """
    best = None
    for place in _places(tilts, aim, 1 if losses.algebraic else len(FACTORS)):
        if best is not None and (best.count < LIMITS.settled_nodes or best.cost <= place[2]):
            break
        plan = _plan(losses, tilts, aim, place)
        if best is None or plan.cost < best.cost:
            best = plan
        if not (release or losses.algebraic) and best.count > LIMITS.plain_nodes:
            break
    assert best is not None
    most, work = (
        (LIMITS.nodes, LIMITS.node_terms)
        if release
        else (LIMITS.plain_nodes, LIMITS.plain_node_terms)
    )
    if losses.algebraic:
        most, work = LIMITS.nodes, LIMITS.wave_terms
    if best.count <= most:
        places = losses.places(best.c, best.end)
        if places <= LIMITS.terms and best.count * places <= work:
            return best
    return _plan_with_gaussian(losses, tilts, aim) if blurred else None


Place = tuple[float, float, float]
"""A place c of a line, the c' of the terms after, and what its nodes cost."""


def _places(tilts: Tilts, aim: Aim, most: int = 1) -> list[Place]:
    """Places of a line at the saddle and below it, by what K is about [C-1].

    The first one with few nodes comes first, then those with fewer nodes than others.
    """
    epsilons, log_deltas = np.array(aim.ends).T
    c, others = aim.c * np.array(FACTORS[:most]), aim.c * PLACES
    others = others[others <= math.exp(tilts.x[-1])]
    if others[-1] <= aim.c:  # K ends here
        others = np.append(others, LIMITS.further_tilt * aim.c)
    x = np.log([*c, *others])
    k = tilts.k_at(x)
    # The terms before are below delta by e^-digits, and so are those after it for some c' > c.
    before = math.tau * c / (aim.digits - float(np.minimum.reduce(log_deltas)))
    after = _step_after(aim, c, others, k[most:])
    best = after.argmax(axis=1)
    h = np.minimum(before, np.maximum.reduce(after, axis=1))
    excess = k[:most, None] - np.multiply.outer(c, epsilons) - log_deltas
    excess = np.maximum.reduce(excess, axis=1)
    # That of the bulk: where few large losses make a variance, phi dies out no sooner.
    deviation = min(map(tilts.deviation, x[:most].tolist()))
    count = np.sqrt(2 * (aim.digits + np.maximum(excess, 0.0))) / (deviation * h)
    cost = (count + LIMITS.cheap_nodes) * np.exp(np.minimum(excess, LIMITS.excess_efolds))
    # Up to the first one whose terms cancel too much.
    cancels = (excess[1:] > LIMITS.cancellation_efolds).nonzero()[0]
    order = cost[: 1 + (int(cancels[0]) if len(cancels) else most)].argsort(kind="stable")
    return [(float(c[i]), float(others[best[i]]), float(cost[i])) for i in order.tolist()]


def _plan_with_gaussian(losses: Sum, tilts: Tilts, aim: Aim) -> _Plan | None:
    """Plan a line with a Gaussian release that is as small as the limits permit [C-6].

    None where a few nodes already need too many terms of K.
    """
    c, aim = aim.c, replace(aim, digits=LIMITS.blurred_error_efolds)
    plan = _plan(losses, tilts, aim, _places(tilts, aim)[0], certified=False)
    need = aim.digits + max(plan.excess, 0.0)
    count = LIMITS.blurred_nodes
    places = losses.places(c, count * plan.h)
    while count > 4 and (places > LIMITS.terms or count * places > LIMITS.node_terms):
        count //= 2
        places = losses.places(c, count * plan.h)
    if places > LIMITS.terms:
        return None
    most = min(count * plan.h, math.sqrt(2 * need * (c + 1) * c / LIMITS.blur_width))
    edges = math.sqrt(2 * need) / tilts.deviation(math.log(c)) * FINE_ENDS
    fails = np.append(losses.log_decay(c, edges, math.inf)[:-1] > -need, True)
    following = np.minimum.accumulate(np.where(fails, edges, math.inf)[::-1])[::-1]
    # From ``end`` to ``far`` the decay is certified, beyond it the release sees to it.
    reach = np.where(~fails & (edges <= most), following, 0.0)
    far = float(reach.max())
    end = float(edges[int(np.argmax(reach))]) if far > most else most
    far = max(far, most)
    v = 2 * need / far**2
    k = plan.k + 0.5 * v * plan.real * (plan.real + 1)
    return replace(plan, end=end, far=far, log_left=math.log(2) - need, k=k, release=v)


def _plan(losses: Sum, tilts: Tilts, aim: Aim, place: Place, *, certified: bool = True) -> _Plan:
    c, ends = place[0], np.array(aim.ends)
    real = np.array(place[:2])
    k, k_error = losses.mgf(real)
    before = math.tau * c / (aim.digits - float(np.minimum.reduce(ends[:, 1])))
    h = min(before, float(_step_after(aim, real[:1], real[1:], k[1:])[0, 0]))
    excess = float(np.maximum.reduce(k[0] - c * ends[:, 0] - ends[:, 1]))
    end, log_left = math.inf, 0.0
    if certified:
        deviation = tilts.deviation(math.log(c))
        end, log_left = end_of(losses, c, aim.digits + max(excess, 0.0), deviation)
    return _Plan(c, h, end, log_left, real, k, k_error, excess)


def _step_after(aim: Aim, c: Array, others: Array, k: Array) -> Array:
    """Return the step with which the terms after are as small as
    they should be; shape (c, others).
    """
    epsilons, log_deltas = np.array(aim.ends).T
    kernel = (k + log_kernel(others))[:, None]
    excess = kernel - np.multiply.outer(others, epsilons) - log_deltas
    excess = np.maximum.reduce(excess, axis=1)
    return math.tau * (others - c[:, None]) / np.maximum(excess + aim.digits, 1e-3)


@np.errstate(over="ignore", invalid="ignore")  # sums that left the floats claim nothing
def _built(losses: Sum, plan: _Plan) -> Line:
    c, h, real, k, v = plan.c, plan.h, plan.real, plan.k, plan.release
    u = h * np.arange(math.ceil(plan.end / h) + 1)
    z = c + 1j * u
    values, error = losses.mgf(z, -0.5 * v * u**2 if v else None)
    top, first = float(k[0]), 1.01 * float(error[0])
    phi = np.exp(values - values[0].real)
    error = error + np.abs(phi) * UNIT * (4 * np.abs(values) + 3 * len(u) + 64)
    if v:  # e^{v z (z + 1) / 2} on the line, over its value at c
        factor = np.exp(-0.5 * v * u * (u - 1j * (2 * c + 1)))
        size = np.abs(factor)
        error = size * (error + np.abs(phi) * UNIT * (8 + v * u * (u + 2 * c + 1)))
        phi = phi * factor
    share = np.zeros(len(u)) + h / math.pi
    share[0] /= 2
    kernel = share / (z * (z + 1))
    # Beyond the last node: h / pi times the sum of |phi| / u^2, at most its integral [C-2].
    end = float(u[-1])
    noise = float(np.abs(kernel) @ error)
    fixed = noise + math.exp(plan.log_left) / (math.pi * end)
    bump = None
    if v:
        # erf(s / sqrt 8) sqrt(2 pi v) e^{v / 8}, s = sqrt v, is about v; no kernel beside it.
        kappa = (
            math.erf(math.sqrt(v / 8))
            * math.sqrt(math.tau * v)
            * math.exp(min(v / 8, 600.0))
            * (1 + 1e-13)
        )
        bump = phi * (kappa * share)
        # |phi| e^{-v u^2 / 2} from the end to far, and from there on.
        left = math.sqrt(math.pi / (2 * v)) + 1 / (v * plan.far)
        left *= math.exp(plan.log_left) / math.pi
        fixed += kappa * (float(share @ error) + left)
    weight = phi * kernel
    moving = 4 * UNIT * float(np.abs(weight) @ np.abs(z))
    if bump is not None:
        moving += 4 * UNIT * float(np.abs(bump) @ np.abs(z))
    other = real[1:]
    gap = math.tau * (other - c) / h
    safe = k[1:] + np.log1p(plan.k_error[1:]) + 8 * UNIT * np.abs(k[1:])
    # K(c) comes twice, once with the nodes of the line.
    slack = float(plan.k_error[0]) + first + 8 * UNIT * abs(top)
    return Line(
        c,
        u,
        weight,
        top,
        fixed,
        moving,
        math.tau * c / h,
        terms_beyond(other, safe, gap),
        slack,
        noise,
        bump,
    )


def end_of(losses: Sum, c: float, need: float, deviation: float) -> tuple[float, float]:
    """Where |phi| is certainly below e^-need for good, and the log of its bound; inf if nowhere."""
    normal = math.sqrt(2 * need) / deviation
    for ends in (NEAR_ENDS, ALL_ENDS):
        edges = normal * ends
        bound = losses.log_decay(c, edges, need)
        left = np.maximum.accumulate(bound[::-1])[::-1]
        # What is beyond counts with 1 / u: that matters where |phi| falls like a power of u.
        gain = (
            np.log(np.maximum(math.pi * edges, 1.0)) + LIMITS.algebraic_efolds
            if losses.algebraic
            else 0.0
        )
        enough = (left - gain <= -need).nonzero()[0]
        if len(enough):
            return float(edges[enough[0]]), float(left[enough[0]])
    return math.inf, 0.0
