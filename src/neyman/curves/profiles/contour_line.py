"""A vertical line in the plane of K: delta at every epsilon that the line suits, certified.

    delta(epsilon) = (1 / 2 pi i) * integral over Re z = c > 0 of e^{K(z) - epsilon z} / (z (z+1))

A trapezoid sum of step h on that line equals the sum over whole n of
e^{2 pi n c / h} delta(epsilon + 2 pi n / h): every term is non-negative, so the sum never falls
below delta. The terms n < 0 are at most 1 / (e^{2 pi c / h} - 1), because delta <= 1; those n > 0
follow a Chernoff bound at some c' > c. What lies beyond the last node is bounded by the decay of
the tilted characteristic function and the integral of 1/u^2. Errors of K enter at each node. The
derivation stands in docs/certificates.md.

Where the decay cannot be certified, or only too far out, a tiny Gaussian release of mu squared = v
is added: whoever sees more learns no less, so delta of the sum with it is an upper bound, and the
line has the factor e^{-v u^2 / 2}. What it adds is at most kappa times a Gaussian bump around
epsilon, kappa = about v, whose mean is an integral over the same nodes; without it stands a lower
bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import even_series, series
from neyman.numerics.roots import bisect, zero

DIGITS = 25.0  # aliasing and truncation are kept below e^-25 of delta
FEWER = 3.5  # digits of truncation where |phi| falls like a power of u
MOST_NODES = 1 << 16
BLURRED_NODES = 1 << 14  # with a tiny release
MOST_PLACES = 1e6  # terms of K
MOST_WORK = 4e7  # nodes times terms of K
MOST_WAVES = 3e8  # the same of sums over nodes that are alike for all, which is fast
SOME_WORK = 3e6  # beyond which a line without a release is left to another engine
BLUR = 1e-8  # relative width that a tiny release costs, if nodes allow
BEYOND = np.array([1.35, 2.2, 1.02, 1.05, 1.1, 1.2, 1.55, 1.8, 3.0])  # c' / c, for the terms after
BELOW = np.linspace(0.05, 0.95, 19)  # powers of e^-L in Chernoff's bounds of a level and a miss
LEAST_MISS = 1e-300  # 1 - power below which nothing is asked: floats hold no digits of it
FARTHEST = -1e8  # log delta beyond which no line goes
LEAST, LARGEST = 1e-9, 1e9  # of c
NEAR = 1e-3  # relative accuracy of c
FINE = 1e-9  # relative width with which a line is good enough
FAIR = 1e-5  # the same with a tiny release
TRIES = 4  # of lines
STEPS = 14  # of guesses at c before it is bracketed
FARTHEST_STEP = 2.0  # of log c
FACTORS = (1.0, 0.985, 0.97, 0.94, 0.88, 0.8)  # c over the saddle
FEW = 500  # nodes with which no better place is looked for
MANY_PLACES = 1 << 8  # epsilons and nodes from which sums at even places go by a chirp
EVEN = 8  # units of the largest epsilon by which a place may be off
MANY = 4000  # nodes beyond which a line without a release is left to another engine
MOST_CANCELLATION = 12.0  # of the terms, in e-folds
# Where the end is looked for, in units of where a normal law's would be.
ENDS = 0.9 * 1.5 ** np.arange(14)
QUICK_ENDS = np.append(ENDS[:6], ENDS[6] * 3.0 ** np.arange(4))
FINE_ENDS = np.append(ENDS[:8], ENDS[8] + 0.5 * np.arange(1 << 13))
ALL_ENDS = np.concatenate([ENDS, ENDS[-1] * 1.6 ** np.arange(1, 19)])


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
        beyond: c', its K, and 2 pi (c' - c) / h, for the terms after; shape (3, m).
        slack: error of K(c).
        bump: weights of what the tiny release may have added; none where there is none.
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
    bump: Array | None = None

    def sums(self, epsilon: float) -> tuple[float, float]:
        """The trapezoid sum over e^{K(c) - c epsilon}, and the logarithm's slope in epsilon."""
        terms = self.weight * np.exp(-1j * epsilon * self.u)
        total = float(np.real(terms).sum())
        fall = self.c * total - float((np.imag(terms) * self.u).sum())
        return total, -fall / total if total > 0 else 0.0

    @np.errstate(over="ignore", invalid="ignore")
    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Certified bounds at each epsilon, however wide; shape (m,)."""
        epsilon = np.asarray(epsilon, float)
        total, error = self._sums(self.weight, epsilon)
        scale = self.top - self.c * epsilon
        error = error + self.fixed + self.moving * np.abs(epsilon)
        before = np.exp(np.minimum(-self.turns - scale, 700.0)) / -math.expm1(-self.turns)
        other, k, gap = self.beyond
        moved = np.multiply.outer(epsilon, other)
        bound = k + log_kernel(other) - gap - moved - scale[:, None]
        # Each of the five terms errs by at most 4 units of itself; the kernel's is two c' log c'.
        size = np.abs(k) + 2 * other * np.abs(np.log(other)) + gap + np.abs(scale)[:, None]
        bound = bound + 8 * UNIT * (size + np.abs(moved) + 1)
        after = np.exp(np.minimum(bound, 700.0)) / -np.expm1(-gap)
        error = error + before + after.min(axis=1)
        added = 0.0
        if self.bump is not None:  # its own aliases are positive: more than it is taken off
            added, more = self._sums(self.bump, epsilon)
            error = error + more
        low, high = np.maximum(total - added - error, 0.0), np.maximum(total + error, 0.0)
        low, high = np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), math.inf, high)
        slack = 8 * UNIT * (abs(self.top) + np.abs(self.c * epsilon) + 1) + self.slack
        with np.errstate(divide="ignore"):
            return np.log(low) + scale - slack, np.minimum(np.log(high) + scale + slack, 0.0)

    def _sums(self, weight: Array, epsilon: Array) -> tuple[Array, Array | float]:
        """The sums of the nodes at each epsilon, and their error beside `fixed` and `moving`."""
        if len(epsilon) >= MANY_PLACES and len(weight) >= MANY_PLACES:
            first, last = float(epsilon[0]), float(epsilon[-1])
            step, far = (last - first) / (len(epsilon) - 1), max(abs(first), abs(last))
            off = float(np.abs(first + step * np.arange(len(epsilon)) - epsilon).max())
            if off <= EVEN * UNIT * far:
                h = float(self.u[1])
                sums, error = even_series(weight, first * h, step * h, len(epsilon))
                # An angle is off by EVEN units and a few of far, as `moving` has four of them.
                drift = (EVEN + 4) * UNIT * far * float(np.abs(weight) @ self.u)
                return np.real(sums), error + drift
        return np.real(series(weight, epsilon * self.u[1])), 0.0

    def width(self, epsilon: float) -> float:
        """The width of the bounds on log delta there."""
        low, high = self.log_delta(np.array([epsilon]))
        return float(high[0] - low[0]) if low[0] > -math.inf else math.inf

    def middle(self, epsilon: float) -> float:
        """The logarithm of the sum there."""
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
    far = 0.5 * LARGEST
    while losses.places(far, 0.0) > 0.1 * MOST_PLACES and far > 1:
        far /= 10
    c = np.array([far])
    k, error = losses.mgf(c)
    exponent = k + np.log1p(error) - c * epsilon
    # Both terms of log kappa are about c log c.
    slack = 8 * UNIT * (np.abs(k) + c * epsilon + c * np.log(c))
    return min(float((exponent + log_kernel(c) + slack)[0]), 0.0)


def mgf_below(losses: Sum, a: Array = BELOW) -> Array:
    """Upper bounds on K(-a), which `least_log_powers` needs."""
    k, error = losses.mgf(-a)
    return k + np.log1p(error) + 8 * UNIT * (1 + np.abs(k))


def least_log_powers(most: Array, log_levels: Array, a: Array = BELOW) -> Array:
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
    """A line that suits ``epsilon``; none where that is too far out.

    Args:
        losses: the sum.
        epsilon: at least 0.
        release: whether a tiny Gaussian release may be added; without it a line must certify its
            own end, and there is none where it cannot.
    """
    return _line_at(losses, epsilon, release)


@array_cache
def _line_at(losses: Sum, epsilon: float, release: bool) -> Line | None:
    c = saddle(losses, epsilon)
    if c > 0.9 * LARGEST or losses.places(c, 0.0) > MOST_PLACES:
        return None
    log_delta = min(_rough(_model(losses, c), c, epsilon), 0.0)
    if log_delta < FARTHEST:
        return None
    best = None
    for _ in range(TRIES):
        plan = _best_plan(losses, c, epsilon, log_delta, release)
        if plan is None:
            return None if best is None else best[1]
        line = _built(losses, plan)
        width, middle = line.width(epsilon), line.middle(epsilon)
        before = math.inf if best is None else best[0]
        if best is None or width < before:
            best = width, line
        settled = abs(middle - log_delta) < 0.5 or middle == -math.inf
        if width < FINE or width > 0.5 * before or settled:
            break
        log_delta = middle  # the terms were no bell: now their sum is known
    assert best is not None
    return best[1]


def rough(losses: Sum, epsilon: float) -> float:
    """About log delta(epsilon): by the bell of the terms around their saddle."""
    c = saddle(losses, epsilon)
    return min(_rough(_model(losses, c), c, epsilon), 0.0)


def rough_epsilon(losses: Sum, log_delta: float) -> float:
    """About the epsilon that has this log delta, by the same bell; below 0 where there is none."""
    c = _crossing(losses, lambda m, c: log_delta - _rough(m, c, _own(m, c)), LARGEST)
    return _own(_model(losses, c), c)


def line_for(losses: Sum, log_delta: float, *, release: bool = True) -> tuple[Line, float] | None:
    """A line that suits the epsilon which has this log delta, and about that epsilon.

    None where that epsilon is 0 or so.
    """
    return _line_for(losses, log_delta, release)


@array_cache
def _line_for(losses: Sum, log_delta: float, release: bool) -> tuple[Line, float] | None:

    def excess(model: Model, c: float) -> float:
        return log_delta - _rough(model, c, _own(model, c))

    c = _crossing(losses, excess, LARGEST)
    epsilon = _own(_model(losses, c), c)
    best = None
    for _ in range(TRIES):
        if not epsilon > 0:
            break
        plan = _best_plan(losses, c, epsilon, log_delta, release)
        if plan is None:
            break
        line = _built(losses, plan)
        guess, epsilon = epsilon, line.epsilon_at(log_delta, epsilon)
        width = line.width(epsilon)
        before = math.inf if best is None else best[0]
        if best is None or width < before:
            best = width, line, epsilon
        enough = FINE if line.bump is None else FAIR
        if width < enough or width > 0.5 * before or abs(epsilon - guess) * c < 0.5:
            break
        c = saddle(losses, epsilon)
    return None if best is None else best[1:]


def saddle(losses: Sum, epsilon: float, largest: float = LARGEST) -> float:
    """About the c > 0 that minimizes K(c) - c epsilon - log c - log(c + 1), which is convex."""
    return _crossing(losses, lambda model, c: _own(model, c) - epsilon, largest)


Model = tuple[float, float, float, float]  # about c0: c0, K, mean, variance


def _model(losses: Sum, c: float) -> Model:
    k, mean, variance = losses.moments(np.array([c]))
    return c, float(k[0]), float(mean[0]), float(variance[0])


def _own(model: Model, c: float) -> float:
    """The epsilon of which c is the saddle, as if the law were normal about c0."""
    at, _, mean, variance = model
    return mean + variance * (c - at) - 1 / c - 1 / (c + 1)


def _rough(model: Model, c: float, epsilon: float) -> float:
    """About log delta(epsilon), by the bell of the terms around the saddle c."""
    at, k, mean, variance = model
    k += (mean + 0.5 * variance * (c - at)) * (c - at)
    bend = variance + 1 / c**2 + 1 / (c + 1) ** 2
    return k - c * epsilon - math.log(c * (c + 1)) - 0.5 * math.log(math.tau * bend)


def _crossing(losses: Sum, rising: Callable[[Model, float], float], largest: float) -> float:
    """About the c at which a function of the law under the tilt c rises through zero.

    The law is taken for normal about the last guess and the next is where that has its crossing;
    where this does not settle the crossing is bracketed.
    """
    while losses.places(largest, 0.0) > 0.1 * MOST_PLACES and largest > 1:
        largest /= 10
    low, high = math.log(LEAST), math.log(largest)
    ends = [False, False]  # whether the function has been seen at them
    guess = min(0.0, high)
    model = _model(losses, math.exp(guess))
    for step in range(STEPS):
        model = model if step == 0 else _model(losses, math.exp(guess))
        above = rising(model, math.exp(guess)) > 0
        low, high = (low, guess) if above else (guess, high)
        ends[above] = True
        if high - low <= NEAR:
            break
        # No farther than what is known of the law about here can tell.
        before, guess = guess, _zero(model, rising, low, high)
        guess = min(max(guess, before - FARTHEST_STEP), before + FARTHEST_STEP)
        # The terms are a bell of width 1 / deviation about c.
        if abs(guess - before) <= max(NEAR, 0.05 / (math.exp(guess) * math.sqrt(model[3]) + 1)):
            return math.exp(guess)

    if not all(ends):
        return math.exp(high if ends[1] else low)
    if high - low > NEAR:

        def excess(log_c: float) -> float:
            c = math.exp(log_c)
            return rising(_model(losses, c), c)

        close = max(NEAR, 0.05 / (math.exp(guess) * math.sqrt(model[3]) + 1))
        return math.exp(zero(excess, low, high, close))
    return math.exp(0.5 * (low + high))


def _zero(model: Model, rising: Callable[[Model, float], float], low: float, high: float) -> float:
    """Where the function of the model crosses zero between two logarithms of c: by bisection."""
    return 0.5 * sum(
        bisect(lambda x: rising(model, math.exp(x)) <= 0, low, high, width=0.1 * NEAR, rounds=40)
    )


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
    release: float = 0.0  # v
    far: float = math.inf  # beyond it only the release bounds |phi|

    @property
    def count(self) -> float:
        return self.end / self.h


def _best_plan(
    losses: Sum, c: float, epsilon: float, log_delta: float, release: bool
) -> _Plan | None:
    """The one with the fewest nodes: the saddle is not always the best place.

    Off the saddle the terms outgrow their sum; where they cancel too much nothing is gained.
    """
    best = None
    for factor in FACTORS[:1] if losses.algebraic else FACTORS:
        plan = _plan(losses, factor * c, epsilon, log_delta)
        if factor < 1 and float(plan.k[0]) - plan.c * epsilon - log_delta > MOST_CANCELLATION:
            break
        if best is None or plan.count < best.count:
            best = plan
        if best.count < FEW or (not (release or losses.algebraic) and best.count > MANY):
            break
    assert best is not None
    most, work = (MOST_NODES, MOST_WORK) if release else (MANY, SOME_WORK)
    if losses.algebraic:
        most, work = MOST_NODES, MOST_WAVES
    if best.count <= most:
        places = losses.places(best.c, best.end)
        if places <= MOST_PLACES and best.count * places <= work:
            return best
    return _smoothed(losses, c, epsilon, log_delta) if release else None


def _smoothed(losses: Sum, c: float, epsilon: float, log_delta: float) -> _Plan | None:
    """Plan a line with a Gaussian release that is as small as the limits permit [C-6].

    None where a few nodes already need too many terms of K.
    """
    plan = _plan(losses, c, epsilon, log_delta, certified=False)
    need = DIGITS + max(float(plan.k[0]) - c * epsilon - log_delta, 0.0)
    count = BLURRED_NODES
    places = losses.places(c, count * plan.h)
    while count > 4 and (places > MOST_PLACES or count * places > MOST_WORK):
        count //= 2
        places = losses.places(c, count * plan.h)
    if places > MOST_PLACES:
        return None
    most = min(count * plan.h, math.sqrt(2 * need * (c + 1) * c / BLUR))
    variance = float(losses.moments(np.array([c]))[2][0])
    edges = math.sqrt(2 * need / max(variance, 1e-300)) * FINE_ENDS
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


def _plan(
    losses: Sum, c: float, epsilon: float, log_delta: float, *, certified: bool = True
) -> _Plan:
    # The terms before are below delta by e^-DIGITS, and so are those after it for some c' > c
    # [C-1].
    before = math.tau * c / (DIGITS - log_delta)
    for factors in (BEYOND[:2], BEYOND):
        real = np.append(c, c * factors)
        k, k_error = losses.mgf(real)
        excess = k[1:] - real[1:] * epsilon + log_kernel(real[1:]) - log_delta
        after = float(np.max(math.tau * (real[1:] - c) / np.maximum(excess + DIGITS, 1e-3)))
        if after >= before:
            break
    top = float(k[0]) - c * epsilon
    need = DIGITS + max(top - log_delta, 0.0)
    end, log_left = end_of(losses, c, need) if certified else (math.inf, 0.0)
    return _Plan(c, min(before, after), end, log_left, real, k, k_error)


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
    share = np.full(len(u), h / math.pi)
    share[0] /= 2
    kernel = share / (z * (z + 1))
    # Beyond the last node: h / pi times the sum of |phi| / u^2, at most its integral [C-2].
    end = float(u[-1])
    fixed = float(np.abs(kernel) @ error) + math.exp(plan.log_left) / (math.pi * end)
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
    gap = math.tau * (real[1:] - c) / h
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
        np.array([real[1:], safe, gap]),
        slack,
        bump,
    )


def end_of(losses: Sum, c: float, need: float) -> tuple[float, float]:
    """Where |phi| is certainly below e^-need for good, and the log of its bound; inf if nowhere."""
    variance = float(losses.moments(np.array([c]))[2][0])
    normal = math.sqrt(2 * need / max(variance, 1e-300))
    # Where a cheap bound suffices near the end, rough ones suffice beyond it.
    cheap = losses.log_decay(c, normal * QUICK_ENDS[:4], 0.0)[:3]
    for ends in (QUICK_ENDS, ENDS, ALL_ENDS)[0 if float(cheap.min()) <= -need else 1 :]:
        edges = normal * ends
        bound = losses.log_decay(c, edges, need)
        left = np.maximum.accumulate(bound[::-1])[::-1]
        # What is beyond counts with 1 / u: that matters where |phi| falls like a power of u.
        gain = np.log(np.maximum(math.pi * edges, 1.0)) + FEWER if losses.algebraic else 0.0
        enough = np.nonzero(left - gain <= -need)[0]
        if len(enough):
            return float(edges[enough[0]]), float(left[enough[0]])
    return math.inf, 0.0
