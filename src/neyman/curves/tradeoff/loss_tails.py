"""Bound tail probabilities of the loss: by a formula for one release, by an integral for a sum.

The integral is over a vertical line Re z = c > -s in the complex plane, with s = 0 for P and s = 1
for Q [PL-6]:

    P_s(L > x) = (1 / 2 pi i) * integral of e^{K(z) - (z + s) x} / (z + s).

The factor 1 / (z + s) falls only like 1 / u, u = Im z, so the decay of e^K must be certified far
out. Beyond that, tiny Gaussian noise on the loss makes the integrand fall. The noise exceeds a
distance d with negligible probability. So the tail is between the noisy tails at x + d and x - d.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from scipy.special import log_ndtr

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.subsampled import SubsampledGaussianLoss, SubsampledLoss
from neyman.curves.profiles.profile import Interval
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import series
from neyman.numerics.rounding import exp_down, exp_up


@dataclass(frozen=True)
class Limits:
    """Limits on the cost and the precision of an integral over a line.

    Args:
        e_folds: aliases (errors of the finite step) and terms beyond the last node are below
            e^-e_folds of the tail.
        few_e_folds: e_folds to use instead if no line can be certified for these.
        nodes: most nodes of a line.
        operations: largest product of nodes and terms of K.
        terms: most terms of K at one node.
        tries: most lines for one tail, while the guess still moves.
    """

    e_folds: float = 28.0
    few_e_folds: float = 23.0
    nodes: int = 1 << 16
    operations: float = 1e8
    terms: float = 1e6
    tries: int = 4
    line_width: float = 1e-9  # width that ends the search for a better line


LIMITS = Limits()
UNKNOWN = -math.inf, 0.0
TILT_GRID = np.linspace(0.0, 1.0, 25)
BEYOND = np.array([1.02, 1.05, 1.1, 1.2, 1.35, 1.55, 1.8, 2.2, 3.0])  # (c' + s) / (c + s)


@dataclass(frozen=True)
class Tail:
    """Represent the tail P_s(x < L < inf), or P_s(x <= L < inf) if losses are on a lattice.

    Args:
        losses: a sum of distributions.
        x: a finite loss, perhaps an atom; if there is a lattice, a lattice point.
        s: 0 for P and 1 for Q.
        step: step of a lattice that contains all finite losses; 0 for none.
        limits: limits of the line integral.
    """

    losses: Composition
    x: float
    s: int
    step: float = 0.0
    limits: Limits = LIMITS

    def bounds(self) -> Interval:
        """Bound the logarithm of the tail.

        Return (-inf, 0) if no line is certified within the limits. Without a lattice the bounds
        also hold for P_s(x <= L < inf), and at the floats next to x.
        """
        return _bounds(self)


@array_cache
def _bounds(tail: Tail) -> Interval:
    a = _saddle(tail)
    k, _, variance = (float(v[0]) for v in tail.losses.moments(np.array([a - tail.s])))
    if not (math.isfinite(k) and variance > 0):
        return UNKNOWN
    bell = 0.5 * math.log(math.tau * (variance + 1 / a**2))
    guess = min(k - a * tail.x - math.log(a) - bell, 0.0)
    best, e_folds = UNKNOWN, tail.limits.e_folds
    for _ in range(tail.limits.tries):
        plan = _plan(tail, a, guess, math.sqrt(variance), e_folds)
        if plan is None and best == UNKNOWN and e_folds > tail.limits.few_e_folds:
            e_folds = tail.limits.few_e_folds
            continue
        if plan is None:
            break
        low, high = _on_line(tail, plan)
        if high - low < best[1] - best[0]:
            best = low, high
        if low == -math.inf or high - low < LIMITS.line_width or abs(low - guess) < 0.5:
            break
        guess = low
    return best


def _saddle(tail: Tail) -> float:
    """Estimate the a = c + s whose line has the smallest integrand at its real point."""
    low, high = math.log(1e-9), math.log(1e9)  # of c + s
    while high > 0 and tail.losses.places(math.exp(high), 0.0) > 0.1 * tail.limits.terms:
        high -= math.log(10)
    for _ in range(3):
        logs = low + (high - low) * TILT_GRID
        a = np.exp(logs)
        with np.errstate(all="ignore"):
            falls = tail.losses.moments(a - tail.s)[1] - tail.x - 1 / a < 0
        k = len(a) - 1 if falls.all() else max(int(np.argmin(falls)), 1)
        low, high = float(logs[k - 1]), float(logs[k])
    return math.exp(0.5 * (low + high))


@dataclass(frozen=True, eq=False)
class _TailPlan:
    """Hold the nodes of a line, and bounds on the omitted terms.

    Args:
        a: c + s.
        h, count: step and number of the nodes.
        real: a and larger values, for the bound on aliases.
        k, error: K at ``real`` - s, and a bound on its error.
        need: terms at the last node are below e^-need.
        left: pi times a bound on the sum of the terms beyond the last node.
        v: variance of the noise that is added to the loss.
        guess: estimate of the logarithm of the tail.
    """

    a: float
    h: float
    count: int
    real: Array
    k: Array
    error: Array
    need: float
    left: float
    v: float
    guess: float


def _plan(tail: Tail, a: float, guess: float, deviation: float, e_folds: float) -> _TailPlan | None:
    """Return the nodes of the line at a = c + s, or None if the limits allow no certified end."""
    losses, x, step, limits = tail.losses, tail.x, tail.step, tail.limits
    c, real = a - tail.s, a * np.append(1.0, BEYOND)
    k, k_error = losses.mgf(real - tail.s)
    k = np.where(np.isnan(k), math.inf, k)
    need = e_folds + max(float(k[0]) - a * x - guess, 0.0)
    # P_s <= 1 bounds the aliases on one side, Chernoff's bound the aliases on the other side.
    excess = k[1:] - real[1:] * x - guess + e_folds
    h = float(np.max(math.tau * (real[1:] - a) / np.maximum(excess, 1e-3)))
    h = min(h, math.tau * a / (e_folds - guess))
    end, far, left = math.pi / step if step else 0.0, math.inf, 0.0
    if not step:
        decay = _decay(losses, c, deviation, need) if need < math.inf else None
        if decay is None:
            return None
        end, far, left = decay
    places = losses.places(c, end)
    if not (h * limits.nodes > end and places <= limits.terms):
        return None
    half = math.ceil(end / h)
    if places * half > limits.operations:
        return None
    h = end / (half + 0.5) if step else h  # one period of an odd number of nodes
    # Beyond ``far`` the terms are at most the integral of e^{v (a^2 - u^2) / 2} / u, and one more.
    v = 2 * need / far**2
    left = 1.1 * (left + math.exp(-need) / need) if v else 0.0
    return _TailPlan(a, h, half + 1, real, k, k_error, need, left, v, guess)


def _decay(
    losses: Composition, c: float, deviation: float, need: float
) -> tuple[float, float, float] | None:
    """Return (end, far, bound), which say where the sum over nodes u > 0 on a line may end.

    Let phi be the characteristic function of the loss under the tilt c. The sum uses nodes up to
    ``end``. Up to ``far``, a decreasing bound b(u) on |phi(u)| is certified. ``bound`` is at least
    the integral of b(u) / u from ``end`` to ``far``, so the omitted terms up to ``far`` sum to at
    most ``bound`` / pi. It is at most e^-need. Return None if this holds for no ``end``.

    Args:
        deviation: standard deviation of the loss under the tilt, to choose the values of u to try.
        need: minus the log of the largest allowed ``bound``.
    """
    normal_end = math.sqrt(2 * need) / deviation  # height at which a normal distribution ends
    edges = normal_end * (0.9 * 1.5 ** np.arange(84))
    with np.errstate(all="ignore"):
        bound = np.asarray(losses.log_decay(c, edges, need))
    bound = bound[:-1]
    left = np.maximum.accumulate(bound[::-1])[::-1]
    terms = np.cumsum((np.exp(left) * np.diff(np.log(edges)))[::-1])[::-1] * (1 + 1e-9)
    enough = np.flatnonzero(terms <= math.exp(-need))
    if not len(enough):
        return None
    k = int(enough[0])
    return float(edges[k]), float(edges[-1]), float(terms[k])


@np.errstate(over="ignore", invalid="ignore")  # a sum that overflows claims nothing
def _on_line(tail: Tail, plan: _TailPlan) -> Interval:
    """Bound the logarithm of the tail by the sum over the nodes of a plan."""
    x, step = tail.x, tail.step
    a, h, real, k, v = plan.a, plan.h, plan.real, plan.k, plan.v
    u = h * np.arange(plan.count)
    values, error = tail.losses.mgf(a - tail.s + 1j * u)
    phi = np.exp(values - values[0].real)
    top, first = float(k[0]), 1.01 * float(error[0])
    # [C-3]: errors of each exponent, of waves that are products, and of the sum of the terms. The
    # kernel errs by at most 16 units.
    error = error + np.abs(phi) * UNIT * (4 * np.abs(values) + 3 * len(u) + 64)  # slack: counted
    # The noise has the transform e^{v w^2 / 2}, w = a + i u: next to 1 at the nodes.
    error = error + np.abs(phi) * (v * (a * a + u * u))
    w = a + 1j * u
    kernel = step / -np.expm1(-w * step) if step else 1 / w
    kernel *= np.append(0.5, np.ones(len(u) - 1)) * (h / math.pi)
    weight = phi * kernel
    error = float(np.abs(kernel) @ error) + plan.left / math.pi
    # Errors of the height, the angle of the first node, a multiple of this angle, and x.
    error += 4 * UNIT * float(np.abs(weight) @ np.abs(w)) * abs(x)  # slack: counted
    # The noise exceeds the room with probability at most e^{guess - need}.
    room = math.sqrt(2 * v * (plan.need - plan.guess))
    if not step:
        # slack: counted
        room += 4 * UNIT * (abs(x) + room)  # roundings of the places and of x
    places = np.array([x + room, x - room])
    total, scale = np.real(series(weight, places * h)), top - a * places
    gap, turns = math.tau * (real[1:] - a) / h, math.tau * a / h
    safe = k[1:] + np.log1p(plan.error[1:]) + 0.5 * v * real[1:] ** 2
    # Each term errs by at most 4 relative units.
    after = safe - gap - np.multiply.outer(places, real[1:]) - scale[:, None]
    after += 8 * UNIT * (np.abs(k[1:]) + gap + 1 + np.abs(scale)[:, None])  # slack: counted
    after += 8 * UNIT * np.multiply.outer(np.abs(places), real[1:])  # slack: counted
    error = error + (np.exp(np.minimum(after, 700.0)) / -np.expm1(-gap)).min(axis=1)
    error = error + np.exp(np.minimum(-turns - scale, 700.0)) / -math.expm1(-turns)
    if v:
        error = error + np.exp(np.minimum(plan.guess - plan.need - scale, 700.0))
    # K(a - s) enters twice, once through the nodes.
    # slack: counted
    slack = 8 * UNIT * (abs(top) + a * np.abs(places) + 1) + float(plan.error[0]) + first
    low, high = float(total[0] - error[0]), float(total[1] + error[1])
    if not (0 < high < math.inf and v * (a * a + float(u[-1]) ** 2) < 0.1):
        return UNKNOWN
    log_low = math.log(low) + float(scale[0] - slack[0]) if low > 0 else -math.inf
    return log_low, min(math.log(high) + float(scale[1] + slack[1]), 0.0)


# slack: the_tails_of_a_normal_loss/a
LOG_NDTR_ERROR = 64 * UNIT  # error of SciPy's log_ndtr, relative to 1 + its size
Tails = tuple[Interval, Interval]
"""Bounds on P(L > x) and P(L <= x), also valid for P(L >= x), P(L < x), and at floats next to x."""
ALL = (1.0, 1.0), (0.0, 0.0)


@singledispatch
def tails_of_one(loss: Part, x: float) -> tuple[Tails, Tails] | None:
    """Bound the tails of one release under P and under Q [PL-7].

    Return None if there is no formula.
    """
    return None


@tails_of_one.register
def _(loss: GaussianLoss, x: float) -> tuple[Tails, Tails]:
    return _normal_tails(loss.mu, x)


def _normal_tails(mu: float, x: float) -> tuple[Tails, Tails]:
    """Return the tails of N(mu^2 / 2, mu^2) under P and of N(-mu^2 / 2, mu^2) under Q."""
    z, half = x / mu, 0.5 * mu
    away = 8 * UNIT * (abs(z) + mu)  # slack: the_tails_of_a_normal_loss/a

    def tail(v: float) -> Interval:
        low, high = float(log_ndtr(v - away)), float(log_ndtr(v + away))
        low, high = low - LOG_NDTR_ERROR * (1 + abs(low)), high + LOG_NDTR_ERROR * (1 + abs(high))
        return exp_down(low), exp_up(min(high, 0.0))

    return (tail(half - z), tail(z - half)), (tail(-half - z), tail(z + half))


@tails_of_one.register
def _laplace_tails(loss: LaplaceLoss, x: float) -> tuple[Tails, Tails]:
    a = loss.epsilon
    away = 8 * UNIT * (abs(x) + a)  # slack: counted

    def cdf(x: float) -> float:
        if x < -a:
            return 0.0
        return 0.5 * math.exp(0.5 * (x - a)) if x < a else 1.0

    def tails(x: float) -> Tails:
        # slack: the_tails_of_a_laplace_loss; counted
        low, high = cdf(x - away) * (1 - 16 * UNIT), min(cdf(x + away) * (1 + 16 * UNIT), 1.0)
        # slack: the_tails_of_a_laplace_loss
        return (max(1 - high - UNIT, 0.0), min(1 - low + UNIT, 1.0)), (low, high)

    above, below = tails(-x)
    return tails(x), (below, above)  # the loss is its own reverse: Q(L <= x) = P(L >= -x)


@tails_of_one.register
def _(loss: SubsampledGaussianLoss, x: float) -> tuple[Tails, Tails] | None:
    return _sampled_tails(loss, lambda y: _normal_tails(loss.distance, y), x)


@tails_of_one.register
def _(loss: SubsampledLoss, x: float) -> tuple[Tails, Tails] | None:
    if loss.infinite or loss.reverse().infinite:
        return None
    return _sampled_tails(loss, lambda y: tails_of_one(loss.inner, y), x)


def _sampled_tails(
    loss: SubsampledGaussianLoss | SubsampledLoss,
    inner: Callable[[float], tuple[Tails, Tails] | None],
    x: float,
) -> tuple[Tails, Tails] | None:
    """Return the tails of log(1 - q + q e^l) under (1 - q) Q + q P and Q, or of the reverse.

    l is the loss of (P, Q), and ``inner`` returns its tails under P and Q.
    """
    q, at = loss.rate, x if loss.removed else -x
    if at > 700.0:  # e^x does not overflow
        return None
    ratio = math.expm1(at) / q
    # slack: counted
    error = 8 * UNIT * (abs(ratio) + math.exp(at) * abs(at) / q)  # of the ratio and of x
    ends: list[tuple[Tails, Tails]] = []
    for side in (-1, 1):  # certain lower and upper ends of l
        if ratio + side * error <= -1:
            ends.append((ALL, ALL))
            continue
        place = math.log1p(ratio + side * error)
        known = inner(place + side * 4 * UNIT * abs(place))  # slack: counted
        if known is None:
            return None
        ends.append(known)
    (p_last, q_last), (p_first, q_first) = ends[1], ends[0]

    def mixed(here: float, there: float, side: int) -> float:
        return min(((1 - q) * there + q * here) * (1 + side * 8 * UNIT), 1.0)  # slack: counted

    above = mixed(p_last[0][0], q_last[0][0], -1), mixed(p_first[0][1], q_first[0][1], 1)
    below = mixed(p_first[1][0], q_first[1][0], -1), mixed(p_last[1][1], q_last[1][1], 1)
    null = (q_last[0][0], q_first[0][1]), (q_first[1][0], q_last[1][1])
    return ((above, below), null) if loss.removed else ((null[1], null[0]), (below, above))
