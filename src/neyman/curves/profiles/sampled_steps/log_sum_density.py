"""Compute the density of a sum of few steps on random samples, with certified relative accuracy.

A step with rate q and distance mu has dM/dQ = (1 - q) (1 + e^b), b ~ N(m, mu^2) under Q, with m =
log(q / (1 - q)) - mu^2 / 2. Therefore, X = log(1 + e^b) is positive, and the sum S of several X has

    e^S = product of (1 + e^b),    tau = log(e^S - 1).

Two sums with tau values alpha and beta give (1 + e^alpha) (1 + e^beta) = 1 + e^tau. With r = beta -
alpha, the density of tau under Q is

    h(tau) = integral of h_1(alpha) h_2(beta) (A + B + A B) / (A + B + 2 A B) dr,    [FS-1]

with A = e^alpha, B = e^beta, and h_1, h_2 the densities of alpha and beta. All terms are positive,
so h is relatively accurate in both tails. `TabulatedDensity` holds h as Chebyshev polynomials on
panels (intervals of tau).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from scipy.special import log_ndtr, logsumexp

from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import CALL, charge


@dataclass(frozen=True)
class Limits:
    """Limits on the accuracy and cost of panels."""

    value_operations: float = 80.0  # operations per value of a table
    bound_rounds: int = 4  # rounds of better bounds between the nodes [FS-3]
    samples: int = 2048  # samples of a polynomial, for its least value
    # E-folds below the largest panel of a row beyond which a panel is only bounded.
    bounded_efolds: float = 40.0
    block_nodes: int = 300_000  # nodes evaluated at a time


LIMITS = Limits()
PANEL_NODES = 22  # Chebyshev nodes of a panel
LEBESGUE = 1 + 2 / math.pi * math.log(PANEL_NODES + 1)  # Lebesgue constant bound
GAUSS = (12, 16, 20)  # Gauss-Legendre nodes of a panel of r, for few to many steps
ELLIPSE_RADIUS = 3 + math.sqrt(8)  # the ellipse's major axis ends one panel beyond both ends
ELLIPSE_HEIGHT = (ELLIPSE_RADIUS - 1 / ELLIPSE_RADIUS) / 2  # its minor axis over half a panel
ELLIPSES = (1.6, 2.2, 3.0, 4.0, 5.2, 6.6)  # rho of ellipses around a panel of tau
MAX_ANGLE = 0.8  # largest angle of an ellipse, for small constants [FS-2]
PLACE_SHARE = 0.35  # [FS-2]: a real place within this share of the angle squared bounds h
SLOPE_BOUND = 1.2  # upper bound on |g'|, g(z) = z / (1 - e^-z), if |arg z| <= MAX_ANGLE


@dataclass(frozen=True)
class Step:
    """Represent one step with Gaussian noise on a Poisson sample.

    Args:
        rate: q, in (0, 1).
        distance: mu, above 0.
    """

    rate: float
    distance: float

    @property
    def log_odds(self) -> float:
        """Return log(q / (1 - q))."""
        return math.log(self.rate) - math.log1p(-self.rate)

    @property
    def mean(self) -> float:
        """Return m, the mean of b under Q."""
        return self.log_odds - self.distance**2 / 2

    @property
    def log_total(self) -> float:
        """Return -log(1 - q), the logarithm of E_Q[e^X]."""
        return -math.log1p(-self.rate)


@dataclass(frozen=True, eq=False)
class TabulatedDensity:
    """Hold the density h of tau under Q for a sum of steps, on panels.

    Args:
        steps: each distinct step with its count.
        low, half: start of the first panel, and half the width of each panel.
        coefficients: Chebyshev coefficients of h e^{slope (tau - middle) - scale}, shape
            (PANEL_NODES, panels).
        slope, scale: shape (panels,).
        peaks: upper bounds on log h left of the table, on each panel, and right of the table.
        error: bound on the relative error on each panel; inf if not certified.
        exact: the step, if h is its normal density. Then no polynomial is used.
    """

    steps: tuple[tuple[Step, int], ...]
    low: float
    half: float
    coefficients: Array
    slope: Array
    scale: Array
    peaks: Array
    error: Array
    exact: Step | None = None

    @property
    def panels(self) -> int:
        """Return the number of panels."""
        return len(self.slope)

    @property
    def high(self) -> float:
        """Return the end of the last panel."""
        return self.low + 2 * self.half * self.panels

    @property
    def count(self) -> int:
        """Return the number of steps."""
        return sum(count for _, count in self.steps)

    @cached_property
    def _largest(self) -> list[Array]:
        """Return arrays of the largest of 1, 2, 4, ... consecutive entries of ``peaks``."""
        levels = [self.peaks]
        while 2 ** len(levels) <= len(self.peaks):
            reach = 2 ** (len(levels) - 1)
            levels.append(np.maximum(levels[-1][:-reach], levels[-1][reach:]))
        return levels

    def panel(self, tau: Array) -> Array:
        """Return the panel index of each tau: -1 left of the table, `panels` right of it."""
        index = np.floor((tau - self.low) / (2 * self.half))
        return np.clip(index, -1, self.panels).astype(int)

    def certified(self, tau: Array) -> Array:
        """Return True for each tau on a panel with a finite error."""
        panel = self.panel(tau)
        known = np.isfinite(self.error[np.clip(panel, 0, self.panels - 1)])
        return known & (panel >= 0) & (panel < self.panels)

    def log_value(self, tau: Array, panel: Array | None = None) -> Array:
        """Return log h at each tau, within the table."""
        if self.exact is not None:
            z = (tau - self.exact.mean) / self.exact.distance
            return -0.5 * z * z - 0.5 * math.log(math.tau) - math.log(self.exact.distance)
        charge(CALL + LIMITS.value_operations * tau.size)
        panel = np.clip(self.panel(tau) if panel is None else panel, 0, self.panels - 1)
        x = np.clip((tau - self.low) / self.half - (2 * panel + 1), -1.0, 1.0)
        twice = 2 * x
        one, two, product = np.zeros_like(x), np.zeros_like(x), np.empty_like(x)
        for k in range(PANEL_NODES - 1, 0, -1):  # Clenshaw's recurrence
            np.multiply(twice, one, out=product)
            product -= two
            product += np.take(self.coefficients[k], panel)
            one, two, product = product, one, two
        value = np.maximum(np.take(self.coefficients[0], panel) + x * one - two, 1e-300)
        return np.log(value) + self.scale[panel] - self.slope[panel] * x * self.half

    def log_most(self, low: Array, high: Array) -> Array:
        """Return upper bounds on log h in each interval [low, high]."""
        charge(CALL + LIMITS.value_operations * low.size)
        first, last = self.panel(low) + 1, self.panel(high) + 1
        level = np.floor(np.log2(last - first + 1)).astype(int)
        most = np.empty(first.shape)
        for k, table in enumerate(self._largest):
            at = level == k
            most[at] = np.maximum(table[first[at]], table[last[at] - 2**k + 1])
        return most

    def log_left(self, tau: float | Array) -> float | Array:
        """[FS-4] Bound log Q(tau_S < tau) from above: tau_S < tau implies b < tau for each step."""
        return sum(n * log_ndtr((tau - step.mean) / step.distance) for step, n in self.steps)


def log_growth(steps: tuple[tuple[Step, int], ...], angle: float, tau: Array) -> Array:
    """[FS-2] Return log K for complex z with |Im z| <= angle and Re z <= tau.

    |h(z)| is at most K times h at a real point within PLACE_SHARE angle^2 of Re z.
    """
    s = np.logaddexp(0.0, tau)
    cosines = math.cos(angle) * math.cos(angle / 2)
    g = np.minimum(s / -np.expm1(-s), 1 / cosines)
    twist = g * math.log(math.tan(angle) + 1 / math.cos(angle))  # largest twist of each b
    total = np.full(tau.shape, -math.log(cosines))
    for step, count in steps:
        m, square = step.mean, step.distance**2
        behind = math.exp(m - 1) if m <= 0 else (m + 1) ** 2
        each = twist**2 / 2 + SLOPE_BOUND * angle**2 / 2 * behind
        total = total + count * (each / square - math.log(math.cos(angle)))
    lowest = min(step.mean for step, _ in steps)
    least = min(step.distance for step, _ in steps) ** 2
    turned = np.minimum(angle**2 * s, 0.41 * (angle / cosines) ** 2)
    return total + SLOPE_BOUND / 2 * turned * np.maximum(tau - lowest, 0.0) / least


def density_of_step(step: Step, low: float, high: float, half: float) -> TabulatedDensity:
    """Return the density of b for one step, a normal density, on panels."""
    m, mu = step.mean, step.distance
    panels = max(math.ceil((high - low) / (2 * half)), 1)
    edges = low + 2 * half * np.arange(panels + 1)
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    # On each panel, and beyond both ends, the density is largest nearest to the mean.
    away = np.maximum(np.maximum(ends[:-1] - m, m - ends[1:]), 0.0) / mu
    peaks = -0.5 * away**2 - 0.5 * math.log(math.tau) - math.log(mu) + 1e-9
    z = np.maximum(np.abs(edges[1:] - m), np.abs(edges[:-1] - m)) / mu
    # The mean errs by units of its size, z by 2, and z^2 / 2 and sums by 4 units of z^2 and a few.
    # slack: the_density_of_one_step
    error = 4 * UNIT * (4 + z * z + z * (np.abs(edges).max() + abs(m)) / mu)
    nothing = np.zeros(panels)
    return TabulatedDensity(
        ((step, 1),),
        low,
        half,
        np.zeros((1, panels)),
        (edges[:-1] + half - m) / mu**2,
        nothing,
        peaks,
        error,
        step,
    )


def convolve(
    one: TabulatedDensity, two: TabulatedDensity, low: float, high: float, half: float
) -> TabulatedDensity:
    """Return the density of tau for the sum of two independent sums, on panels from low to high."""
    counts: dict[Step, int] = {}
    for step, count in one.steps + two.steps:
        counts[step] = counts.get(step, 0) + count
    panels = max(math.ceil((high - low) / (2 * half)), 1)
    steps = tuple(counts.items())
    prior = _prior(one, two, low + 2 * half * np.arange(panels + 1))
    return _tabulate(steps, low, half, panels, prior, lambda tau: _row(one, two, tau))


def _prior(one: TabulatedDensity, two: TabulatedDensity, edges: Array) -> Array:
    """[FS-4] Bound log h of the sum: left of the edges, between them, and right of them.

    Outside the edges, the larger of alpha and beta is in an interval up to tau, and the smaller has
    at most the mass below tau. Between edges, the largest densities bound each panel of r.
    """
    starts, stops = np.append(edges[-1], edges[:-1]), np.append(1e6, edges[1:])
    halves = split(starts, np.zeros(len(starts)))[0] - 1e-9
    halves = np.append(halves, -1e6)
    stops = np.append(stops, edges[0])
    outer = math.log(2) + np.logaddexp(
        one.log_most(halves, stops) + np.minimum(two.log_left(stops), 0.0),
        two.log_most(halves, stops) + np.minimum(one.log_left(stops), 0.0),
    )
    right, between, left = outer[0], outer[1:-1], outer[-1]
    width = 2 * min(one.half, two.half)
    first = math.floor((two.low - edges[-1]) / width) - 1
    last = math.ceil((edges[-1] - one.low) / width) + 1
    r = cast(Array, width * np.arange(first, last + 1))
    alpha, beta = split(edges[:, None], r[None, :])
    inner = one.log_most(alpha[:-1, 1:], alpha[1:, :-1])
    inner += two.log_most(beta[:-1, :-1], beta[1:, 1:])
    inner = np.asarray(logsumexp(inner, axis=1)) + math.log(width)
    # Left of the first edge of r and right of the last, one part has almost no mass.
    for table, other in ((one, two), (two, one)):
        gap = np.where(edges[:-1] > table.low + math.log(2), 0.0, np.inf)
        lowest = edges[:-1] - math.log(2) - math.log1p(math.exp(table.low))
        rest = table.log_left(table.low) + other.log_most(lowest, edges[1:]) + math.log(2)
        inner = np.logaddexp(inner, rest + gap)
    between = np.minimum(between, inner)
    return np.concatenate([[left], between, [right]]) + 1e-9


def split(tau: Array, r: Array) -> tuple[Array, Array]:
    """Return alpha and beta with (1 + e^alpha) (1 + e^beta) = 1 + e^tau and beta - alpha = r."""
    e = np.exp(-np.abs(r))
    one = 1 + e
    larger = tau + math.log(2) - np.log(one + np.sqrt(one * one + 4 * e * np.exp(tau)))
    return larger - np.maximum(r, 0.0), larger + np.minimum(r, 0.0)


def _row(one: TabulatedDensity, two: TabulatedDensity, tau: Array) -> tuple[Array, Array]:
    """Return log h of the sum at each tau, and a bound on its error, by quadrature in r."""
    half = min(one.half, two.half)
    width = 2 * half
    first = math.floor((two.low - float(tau.max())) / width) - 2
    last = math.ceil((float(tau.max()) - one.low) / width) + 2
    edges = width * np.arange(first, last + 1)
    alpha, beta = split(tau[:, None], edges[None, :])
    inside = (alpha > one.low) & (beta > two.low)
    # Panel j is between edges j and j + 1, within both tables.
    j = np.arange(1, len(edges) - 2)
    good = inside[:, j] & inside[:, j + 1]
    sure = one.certified(alpha) & two.certified(beta)
    angle = half * ELLIPSE_HEIGHT
    up = (PLACE_SHARE + 0.14) * angle * angle
    # [FS-5]: alpha falls with r and beta rises; on the ellipse both move by a little more.
    wide = one.log_most(alpha[:, 1:] - up, alpha[:, :-1] + up)
    wide += two.log_most(beta[:, :-1] - up, beta[:, 1:] + up)
    most = np.maximum(np.maximum(wide[:, j - 1], wide[:, j]), wide[:, j + 1])
    own = one.log_most(alpha[:, j + 1], alpha[:, j]) + two.log_most(beta[:, j], beta[:, j + 1])
    growth = log_growth(one.steps, angle, tau + up) + log_growth(two.steps, angle, tau + up)
    growth -= math.log(math.cos(angle / 2))
    sure = sure[:, j] & sure[:, j + 1]
    top = np.where(good & sure, own, -np.inf).max(axis=1)
    top = np.where(np.isfinite(top), top, 0.0)
    used = good & sure & (own > top[:, None] - LIMITS.bounded_efolds)
    row, column = np.nonzero(used)
    count = one.count + two.count
    gauss = GAUSS[0] if count <= 3 else GAUSS[1] if count <= 40 else GAUSS[2]
    nodes, weights = np.polynomial.legendre.leggauss(gauss)
    share, inherited = np.empty(len(row)), np.empty(len(row))
    reach = 3 * (abs(one.low) + abs(two.low))
    rows = max(1, LIMITS.block_nodes // gauss)
    for start in range(0, len(row), rows):
        part = slice(start, start + rows)
        r = edges[j[column[part]]][:, None] + half * (nodes + 1)
        at = tau[row[part]][:, None]
        a, b = split(at, r)
        pa, pb = one.panel(a), two.panel(b)
        log_f = one.log_value(a, pa) + two.log_value(b, pb)
        product = np.exp(a + b - at)  # A B / (A + B + A B)
        f = np.exp(log_f - top[row[part]][:, None]) / (1 + product)
        pa, pb = np.clip(pa, 0, one.panels - 1), np.clip(pb, 0, two.panels - 1)
        share[part] = f @ weights * half
        steep = np.abs(one.slope[pa]) + np.abs(two.slope[pb])
        # Places err by units of their size plus 3 units of the table's low end. Apart from its
        # slope, the logarithm on a panel is flat: half^2 / mu^2 is at most 0.36.
        places = 8 * (np.abs(a) + np.abs(b) + 4) + reach
        units = UNIT * (places * (steep + 0.5 / half) + 64)  # slack: counted
        inherited[part] = (f * (one.error[pa] + two.error[pb] + units)) @ weights * half
    total = np.bincount(row, weights=share, minlength=len(tau)).astype(float)
    absolute = np.bincount(row, weights=inherited, minlength=len(tau)).astype(float) * 1.01
    # [FS-6]: quadrature error of each panel. Omitted panels count fully.
    factor = (
        math.log(64 / 15 * half)
        - 2 * gauss * math.log(ELLIPSE_RADIUS)
        - math.log1p(-(ELLIPSE_RADIUS**-2))
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        bound = np.exp(most + growth[:, None] + factor - top[:, None])
        dropped = np.exp(own - top[:, None]) * width
        absolute += np.where(used, bound, np.where(good, dropped, 0.0)).sum(axis=1)
        # [FS-7]: near the left end of a table, the part has little mass.
        for table, other in ((one, two), (two, one)):
            end = table.low + 2 * width
            far = tau > end + math.log(2)
            lowest = tau + np.log1p(-np.exp(np.where(far, end - tau, -1.0)))
            lowest -= math.log1p(math.exp(end)) + 1e-9
            mass = table.log_left(end) + other.log_most(lowest, tau) + math.log(2)
            absolute += np.where(far & (tau <= table.high), np.exp(mass - top), np.inf)
        relative = np.where(total > 0, absolute / total, np.inf)
        # Errors of exponents relative to the top, and of sums over nodes and panels.
        terms = 4 * gauss + np.bincount(row, minlength=len(tau)) + 64
        return np.log(total) + top, relative + UNIT * (8 * np.abs(top) + terms)  # slack: counted


def _tabulate(
    steps: tuple[tuple[Step, int], ...],
    low: float,
    half: float,
    panels: int,
    prior: Array,
    row: Callable[[Array], tuple[Array, Array]],
) -> TabulatedDensity:
    """Return the table of a density log h. ``row`` returns its values and relative errors at tau.

    ``prior`` has coarse bounds on log h: left of the table, on each panel, and right of the table.
    """
    k = np.arange(PANEL_NODES)
    x = np.cos(math.pi * (k + 0.5) / PANEL_NODES)
    middle = low + half * (2 * np.arange(panels) + 1)
    tau = middle[:, None] + half * x
    log_h, error = (v.reshape(tau.shape) for v in row(tau.ravel()))
    log_h = np.where(np.isfinite(log_h), log_h, -1e5)
    slope = (log_h[:, -1] - log_h[:, 0]) / (tau[:, 0] - tau[:, -1])
    flat = log_h + slope[:, None] * (tau - middle[:, None])
    scale = flat.max(axis=1)
    flat = np.exp(flat - scale[:, None])
    basis = np.cos(math.pi * np.multiply.outer(k, k + 0.5) / PANEL_NODES)
    coefficients = basis @ flat.T * (2 / PANEL_NODES)
    coefficients[0] /= 2
    tops = scale + math.log(LEBESGUE)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        nodes = (error * flat).max(axis=1)
        tops = tops + np.log1p(nodes) + 2e-6
        peaks, missed = _panel_errors(steps, half, middle, tops, slope, scale, prior)
        # A polynomial in cos(x) moves by at most its degree times its size times the move of x.
        least = (coefficients.T @ _chebyshev()).min(axis=1) - PANEL_NODES * math.pi / LIMITS.samples
        least = np.where(least > 0.02, least, np.nan)
        # Coefficients are twice a mean of terms of at most 1. The sums err by 1,100 units over all
        # degrees, cosines by 3 units of their angle or 1,500, and the recurrence by 300.
        rounding = 8 * UNIT * PANEL_NODES * (PANEL_NODES + 4)  # slack: counted
        # [FS-8]: error of the polynomial, relative to the least value on the panel.
        relative = 1.02 * (nodes * LEBESGUE + missed + rounding) / least
    relative = np.where(np.isfinite(relative) & (relative < 0.01), relative, np.inf)
    peaks = np.concatenate([prior[:1], peaks, prior[-1:]])
    return TabulatedDensity(steps, low, half, coefficients, slope, scale, peaks, relative)


def _panel_errors(
    steps: tuple[tuple[Step, int], ...],
    half: float,
    middle: Array,
    tops: Array,
    slope: Array,
    scale: Array,
    prior: Array,
) -> tuple[Array, Array]:
    """[FS-3] Bound log h on each panel, and the distance of h from its polynomial, over e^scale.

    On a panel, h exceeds its polynomial by at most a share of the largest h e^{slope tau} near an
    ellipse around the panel. Therefore, coarse bounds on h on all panels (``prior``) give better
    bounds, repeatedly.
    """
    panels = len(tops)
    ellipses: list[tuple[float, Array]] = []
    for rho in ELLIPSES:
        angle = half * (rho - 1 / rho) / 2
        if angle > MAX_ANGLE:
            continue
        major = half * (rho + 1 / rho) / 2
        reach = major + PLACE_SHARE * angle**2
        share = math.log(4) - (PANEL_NODES - 1) * math.log(rho) - math.log(rho - 1)
        share = (
            share
            + log_growth(steps, angle, middle + reach)
            + np.abs(slope) * PLACE_SHARE * angle**2
        )
        ellipses.append((reach, share - scale))
    base, line = prior.copy(), np.zeros(panels + 2)
    best = np.full(panels, np.inf)
    for _ in range(LIMITS.bound_rounds):
        best = np.full(panels, np.inf)
        for reach, share in ellipses:
            hops = math.ceil(reach / (2 * half) - 0.5)
            most = np.full(panels, -np.inf)
            for hop in range(-hops, hops + 1):
                at = np.clip(np.arange(panels) + 1 + hop, 0, panels + 1)
                lift = slope * 2 * half * hop + np.abs(slope - line[at]) * half
                # The bound on h outside is constant, so the factor e^{slope tau} counts fully.
                outer = (at < 1) | (at > panels)
                lift = np.where(outer, np.abs(slope) * (reach + half), lift)
                most = np.maximum(most, base[at] + lift)
            best = np.minimum(best, most + share)
        better = np.logaddexp(tops, best + scale)
        use = better + np.abs(slope) * half < prior[1:-1]
        base[1:-1] = np.where(use, better, prior[1:-1])
        line[1:-1] = np.where(use, slope, 0.0)
    return base[1:-1] + np.abs(line[1:-1]) * half, np.exp(np.minimum(best, 0.0))


@array_cache
def _chebyshev() -> Array:
    x = math.pi * (np.arange(LIMITS.samples) + 0.5) / LIMITS.samples
    return np.cos(np.multiply.outer(np.arange(PANEL_NODES), np.concatenate([[0.0], x, [math.pi]])))
