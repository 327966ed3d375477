"""Compute profiles of T equal losses with atoms and a density, on a bent contour [CP-1].

The characteristic function of such a sum does not die out, so a vertical line has no end if few
losses come from the density. But rays upward from the ends of the density give the transform of one
loss as a sum over two or three places l,

    E e^{zL} = sum over l of A_l(z) e^{zl},

with slow functions A_l. In its T-th power each place of the sum has its own term. The contour goes
up from c to c + i U. There it turns left for places above epsilon, and right for all others, so all
terms fall exponentially. Sums of many losses from the density have a vertical line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.loss import Part
from neyman.curves.losses.piecewise_analytic import (
    NODE_ERROR,
    PiecewiseAnalyticLoss,
    UprightEnd,
    panel_nodes,
    rule,
)
from neyman.curves.profiles.combination import CascadeProfile
from neyman.curves.profiles.contour.complement_line import complement_saddle, log_type_two_error
from neyman.curves.profiles.contour.contour import ContourProfile, contour_profile
from neyman.curves.profiles.contour_line import Line, LineSum, line_at, rough_epsilon, tilts_of
from neyman.curves.profiles.duality import LIMITS as SEARCH_LIMITS
from neyman.curves.profiles.duality import Conjugate, log_power_near
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.lattice.lattice import tilt_of_level
from neyman.curves.profiles.profile import Interval, Profile, intersection
from neyman.curves.profiles.selection import register
from neyman.numerics.array_cache import array_cache, counted
from neyman.numerics.arrays import Array, imaginary_part, real_part
from neyman.numerics.atoms import UNIT, repeated
from neyman.numerics.characteristic_function import log1p
from neyman.numerics.operations import CALL, OperationLimit, cells, charge, in_question
from neyman.numerics.rounding import above, known


@dataclass(frozen=True)
class Limits:
    """Set when to ask each engine, and the size of a bent contour. All values give valid bounds."""

    line_efolds: float = 45.0  # least decay of the sums of atoms, for a vertical line
    sharp_bend: float = 30.0  # range times bend of a density with a late end of a line
    sharp_count: int = 250  # most losses with such a density for a bent contour
    fair_width: float = 1e-8  # relative width beyond which a line gives way to a contour
    wide_width: float = 1e-2  # relative width beyond which other engines are asked
    largest_tilt: float = 1e3  # largest tilt of a vertical line times the largest loss
    # Gap below the largest loss where a chord bounds delta, over a step or this loss.
    top_gap: float = 1e-7
    top_gap_units: float = 256.0  # the same, at least, in rounding units of the largest loss
    top_share: float = 1e-2  # gap at which the largest loss alone guesses an epsilon, in steps
    guess_contours: int = 12  # most contours that improve a guess of an epsilon
    levels_alone: int = 8  # most levels to search one by one
    most_tilt: float = 100.0  # largest tilt of a bent contour, times the distance of places
    least_height: float = 16.0  # least U; rays end where they have turned by less than pi
    growth_efolds: float = 2.0  # largest log ratio of the bound on all terms at U to M(c)^T
    most_growth_efolds: float = 16.0  # the same, if the trunk would be long
    least_growth_efolds: float = -100.0  # the same, at least; sums of terms must not underflow
    long_trunk_nodes: int = 4000  # nodes of a long trunk
    most_trunk_nodes: int = 1 << 14  # most nodes of a trunk
    trunk_order: int = 25  # nodes of a panel of the trunk
    branch_order: int = 17  # the same of a branch
    long_branch_order: int = 25  # the same, if the trunk would be long
    ray_order: int = 15  # the same of a ray
    trunk_axes: float = 2.37  # sum of the half-axes of a trunk's ellipse, over half the panel
    trunk_deviations: float = 3.0  # half-width of the ellipse, in inverse deviations of the sum
    pole_share: float = 0.6  # the same, at most, as a share of the distance from a pole
    branch_efolds: float = 38.0  # decay at which a branch ends
    least_gap: float = 1e-9  # least distance from a place that a branch resolves, in steps
    least_share: float = 1e-24  # share of all terms below which terms are omitted
    most_terms: int = 1 << 12  # most terms
    line_width: float = 2e-10  # relative width at which a contour serves another epsilon
    coarse_width: float = 1e-8  # the same, for many epsilons
    zooms: int = 6  # zooms of a search for the least delta + e^epsilon level on a contour
    power_width: float = 1e-10  # relative width of a power at which a search stops
    bend_shares: tuple[float, ...] = (1e-2, 1e-5)  # distances from a place with a bend, in steps
    cell_efolds: float = 0.25  # size of a cell of epsilons with one contour, times c
    cell_share: float = 1 / 64  # the same, at most, in steps
    gap_share: float = 0.25  # distance of epsilons that share a contour, in gaps to the top


LIMITS = Limits()
# Panels of a branch after the first are [t, 3 t]. In their ellipses, |Im t| <= Re t.
RATIO, RATIO_AXES = 3.0, 2.8
FIRST_EFOLDS, FIRST_AXES = 6.0, 4.0  # the first panel, in e-folds of the farthest term
RAY_EDGES = np.array([1, 2.5, 5.5, 11, 19, 28, 38])  # panels of a ray, times the height
# Distances from a place where a profile bends, in steps.
PLACE_CHORDS = np.array([-0.1, -1e-2, -1e-3, -1e-4, -1e-5, 0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1])
RAY_AXES = np.linspace(1.2, 12.0, 55)[:, None]  # ellipses to choose from


def _panel_error(axes: Array | float, order: int) -> Array:
    """Bound the error of a panel, over half its width and the largest value nearby [PA-1]."""
    return np.asarray(64 / 15 * axes ** (2.0 - 2 * order) / (1 - axes**-2.0))


@dataclass(frozen=True, eq=False)
class _Ray:
    """Hold a bound on the size of a density on the upright ray from its end [CP-1]."""

    bend: float
    place: Array
    size: Array

    @staticmethod
    def of(end: UprightEnd) -> _Ray:
        y = np.append(0.0, np.geomspace(1e-7 / end.bend, math.pi, 1000))
        return _Ray(end.bend, y, _ray_size(end.bend, y))

    def mass(self, height: float) -> float:
        """Bound the integral of e^{-height y} |density| over that at the end."""
        fall = np.exp(-height * self.place[:-1]) * -np.expm1(-height * np.diff(self.place))
        total = float(self.size[:-1] @ fall) + self._above_pi(height)
        return total / height * (1 + 1e-9)

    def _above_pi(self, height: float) -> float:
        """Bound the same integral from y = pi on, times the height."""
        # The size is even about pi, and at most 1.
        half = float(_ray_size(self.bend, np.array(math.pi / 2)))
        return half * math.exp(-math.pi * height) + math.exp(-1.5 * math.pi * height)

    def errors(self, edges: Array, heights: Array, order: int) -> Array:
        """Bound the error of the panels, times the height, at each of rising heights [CP-2]."""
        errors, low = np.empty(len(heights)), float(heights[0])
        while True:
            last = low >= self.bend
            errors[heights >= low] = self._error(edges, low, order, 0.0 if last else 1 / 16)
            if last or low > heights[-1]:
                return errors
            low *= 4

    def _error(self, edges: Array, height: float, order: int, share: float) -> float:
        """Return a bound at this height, and at larger ones: up to four times it, or all."""
        half, r = np.diff(edges) / 2, RAY_AXES
        across, along = half * (r - 1 / r) / 2, half * (r + 1 / r) / 2
        least = edges[:-1] + half - along
        d = self.bend * across / height
        y = np.maximum(least, 0.0) / height
        turned = np.exp(-across / height) * np.maximum(1 - y * y / 12, 0.0)
        far = turned * self.bend * (self.bend - 1) * y * y
        near = np.maximum(1 - d, 0.0)
        square = np.maximum(near * near, far / np.maximum(d * d + far, 1e-300))
        square = np.maximum(square, share * far)
        with np.errstate(divide="ignore", over="ignore"):
            size = square**-0.75 * np.exp(2 * across / height + across - least)
        each = (half * size * _panel_error(r, order)).min(axis=0)
        end = float(_ray_size(self.bend, np.array(edges[-1] / height / 4))) if share else 1.0
        rest = end * math.exp(-float(edges[-1])) + self._above_pi(height)
        return float(each.sum()) + rest * (1 + 1e-9)


def _ray_size(bend: float, y: Array) -> Array:
    """Return the size of the density at each height y <= pi of a ray, over that at its end."""
    return np.asarray((1 + 4 * bend * (bend - 1) * np.sin(y / 2) ** 2) ** -0.75)


def _ray_edges(bend: float, height: float) -> Array:
    """Return panels of y times the height, fine enough for a density with this bend."""
    more = max(math.ceil(math.log2(RAY_EDGES[0] * bend / height)), 0)
    return np.concatenate([[0.0], RAY_EDGES[0] * 2.0 ** np.arange(-more, 0), RAY_EDGES])


@dataclass(frozen=True, eq=False)
class _Branch:
    """Hold the part of a contour that goes left or right.

    Args:
        away: z - c at the nodes.
        weight: weights of the nodes, with 1 / (pi z (z + 1)).
        terms: terms of the T-th power at the nodes, shape (places, nodes).
        waves: e^{k (z - c) step}, k whole, toward smaller values.
        ends: the ends of the panels, over sqrt 2.
        sums: known sums over terms, by the first one.
    """

    away: Array
    weight: Array
    terms: Array
    waves: Array
    ends: Array
    sums: dict[int, Array] = field(default_factory=dict[int, Array])

    def sum(self, first: int, gaps: Array, direction: int, efolds: float) -> tuple[Array, Array]:
        """Return integrals of all terms from ``first`` on, ``gaps`` above each epsilon.

        Panels beyond ``efolds`` e-folds of all terms are omitted. Also return the ends of the last
        panels.
        """
        if first not in self.sums:
            terms = self.terms[first:] if direction > 0 else self.terms[first::-1]
            charge(CALL + 4 * terms.size)
            self.sums[first] = np.einsum("ij,ij->j", terms, self.waves[: len(terms)]) * self.weight
        sums, nodes = self.sums[first], len(self.away) // len(self.ends)
        with np.errstate(divide="ignore"):
            last = np.searchsorted(self.ends, efolds / np.abs(gaps))
        last = np.minimum(last, len(self.ends) - 1)
        total = np.zeros(len(gaps))
        # Few epsilons share the panels of one, so that they take one call of NumPy.
        few = len(gaps) < 8  # number of epsilons below which they share all panels
        stops: list[int] = [int(last.max())] if few else np.unique(last).tolist()
        start = 0
        for stop in stops:
            at = slice(None) if start == 0 else (last >= stop).nonzero()[0]
            part, asked = slice(start, nodes * (stop + 1)), gaps[at]
            charge(CALL + 60.0 * len(asked) * (part.stop - start))
            waves = np.exp(np.multiply.outer(asked, self.away[part]))
            total[at] += imaginary_part(waves @ sums[part])
            start = part.stop
        return total, self.ends[last]


@dataclass(frozen=True, eq=False)
class BentContour:
    """Represent a contour that suits epsilons near one place. Numbers are over e^{top - c epsilon}.

    Args:
        c: crossing of the trunk and the real axis.
        top: about T K(c).
        height: U.
        u, weight: heights and weights of the trunk's nodes.
        left, right: the branches.
        lowest, step: the lowest place, and the distance of two places.
        sizes: bounds on the terms, shape (places,).
        efolds: decay of all terms beyond which panels of a branch are not summed.
        fixed, moving: the error is at most fixed + moving |epsilon|, besides those below.
        drift: error of a place.
        aside: tilts, and logarithms of the trunk's error over e^{-tilt epsilon}; shape (2, 2).
    """

    c: float
    top: float
    height: float
    u: Array
    weight: Array
    left: _Branch
    right: _Branch
    lowest: float
    step: float
    sizes: Array
    efolds: float
    fixed: float
    moving: float
    drift: float
    aside: Array

    bump = None

    @property
    def lines(self) -> tuple[()]:
        """Return nothing: there is no vertical line."""
        return ()

    def sum(self, epsilon: Array) -> tuple[Array, Array]:
        """Return the integral at each epsilon, and bounds on their errors, shape (m,) [CP-5]."""
        count, nodes = len(self.sizes), len(self.u) + 2 * len(self.left.away)
        block = max((1 << 18) // (nodes + count), 1)  # cells of an array of epsilons and nodes
        if len(epsilon) > block:
            blocks = np.array_split(epsilon, math.ceil(len(epsilon) / block))
            totals, errors = zip(*map(self.sum, blocks), strict=True)
            return np.concatenate(totals), np.concatenate(errors)
        charge(20 * CALL + len(epsilon) * (50.0 * len(self.u) + 4 * count))
        turn = np.multiply.outer(epsilon, self.u)
        total = np.cos(turn) @ real_part(self.weight) + np.sin(turn) @ imaginary_part(self.weight)
        size, left_out = float(self.sizes.sum()), np.zeros(len(epsilon))
        near = np.full(len(epsilon), math.inf)
        place = (epsilon - self.lowest) / self.step
        below = np.clip(np.floor(place), -1, count - 1).astype(int)
        for last in np.unique(below).tolist():
            at = (below == last).nonzero()[0]
            for branch, first, direction in ((self.left, last + 1, 1), (self.right, last, -1)):
                if 0 <= first < count:
                    gaps = self.lowest + first * self.step - epsilon[at]
                    sums, end = branch.sum(first, gaps, direction, self.efolds)
                    total[at] += sums
                    gaps = np.maximum(np.abs(gaps) - self.drift, 0.0)
                    near[at] = np.minimum(near[at], gaps)
                    left_out[at] += 0.5 * size * np.exp(-end * gaps) / (self.height + end)
        moved = 2 * self.drift * size * np.log1p(1 / np.maximum(near * self.height, 1e-200))
        away = np.abs(np.subtract.outer(epsilon, self.lowest + self.step * np.arange(count)))
        # A distance times z - c errs by 8 units of itself.
        rounding = 8 * UNIT * (away @ self.sizes + size / self.height)  # slack: counted
        exponents = self.aside[1] - np.multiply.outer(epsilon, self.aside[0])
        exponents -= (self.top - self.c * epsilon)[:, None]
        trunk = np.exp(np.minimum(exponents, 700.0)).sum(axis=1)
        error = self.fixed + self.moving * np.abs(epsilon) + left_out + moved + rounding + trunk
        # Beyond the places, the first panels of the branches may be too wide.
        return total, np.where((place >= -1) & (place <= count), error, math.inf)

    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Return certified bounds on log delta at each epsilon, shape (m,). They may be wide."""
        return self._logs(epsilon, 1)

    def log_complement(self, epsilon: Array) -> tuple[Array, Array]:
        """Return the same for log(1 - delta), if -1 < c < 0."""
        return self._logs(epsilon, -1)

    def _logs(self, epsilon: Array, sign: int) -> tuple[Array, Array]:
        total, error = self.sum(epsilon)
        scale = self.top - self.c * epsilon
        # Two products, a difference, and two logarithms.
        slack = 16 * UNIT * (abs(self.top) + np.abs(self.c * epsilon) + 1)  # slack: counted
        with np.errstate(divide="ignore"):
            low = np.log(np.maximum(sign * total - error, 0.0)) + scale - slack
            high = np.log(np.maximum(sign * total + error, 0.0)) + scale + slack
        high = np.minimum(high, 0.0)
        return np.minimum(low, high), high

    def near(self, epsilon: float) -> float:
        """Estimate log(1 - delta) to scale floats; 0 if unknown."""
        value = float(self.log_complement(np.array([epsilon]))[1][0])
        return value if value > -1e300 else 0.0

    def width(self, epsilon: float) -> float:
        """Return the width of the bounds on log delta at this epsilon."""
        low, high = self.log_delta(np.array([epsilon]))
        return float(high[0] - low[0]) if low[0] > -math.inf else math.inf

    def middle(self, epsilon: float) -> float:
        """Estimate log delta; -inf if its error is large."""
        return float(self.middles(np.array([epsilon]))[0])

    def middles(self, epsilon: Array) -> Array:
        """Estimate log delta at each epsilon; -inf if its error is large."""
        total, error = self.sum(epsilon)
        known = np.where(total > 8 * error, total, 0.0)
        with np.errstate(divide="ignore"):
            return np.log(known) + self.top - self.c * epsilon


@dataclass(frozen=True, eq=False)
class _Places:
    """Hold the places of one loss, and the sizes of its atoms and densities under a tilt.

    Args:
        place: two or three places, at even distances.
        atoms: sizes of the atoms, shape (places,).
        atom_error: their total error.
        place_error: a bound on the error of each place.
        ends: ends of densities, with the index of a place, the size, its relative error, and a
            bound on the ray.
    """

    place: Array
    atoms: Array
    atom_error: float
    place_error: float
    ends: list[tuple[UprightEnd, int, float, float, _Ray]]

    @staticmethod
    def of(loss: PiecewiseAnalyticLoss, tilt: float, log_mgf: float) -> _Places:
        """Return sizes under a tilt, over e^log_mgf."""
        place = _places(loss)
        masses, ends = loss.point_masses(), loss.upright()
        assert masses is not None

        def error(log_size: float, at: float) -> float:
            # Products and sums of logarithms err by a few units of their size.
            units = 4 * (abs(log_size) + abs(tilt * at) + abs(log_mgf) + 1)
            return units * UNIT + abs(tilt) * masses.place_error  # slack: counted

        atoms, wrong = np.zeros(len(place)), 0.0
        for at, log_mass in zip(masses.place.tolist(), masses.log_mass.tolist(), strict=True):
            size = math.exp(log_mass + tilt * at - log_mgf)
            atoms[int(np.argmin(np.abs(place - at)))] = size
            wrong += size * (masses.relative + error(log_mass, at))
        each: list[tuple[UprightEnd, int, float, float, _Ray]] = []
        for end in ends:
            size = math.exp(end.log_density + tilt * end.place - log_mgf)
            index = int(np.argmin(np.abs(place - end.place)))
            wrong_end = end.relative + error(end.log_density, end.place)
            each.append((end, index, size, wrong_end, _Ray.of(end)))
        return _Places(place, atoms, wrong, masses.place_error, each)

    def sizes(self, height: float) -> Array:
        """Bound |A_l(z)| e^{cl} at this height and above, for each place l."""
        sizes = self.atoms.copy()
        for _, index, size, _, ray in self.ends:
            sizes[index] += size * ray.mass(height)
        return sizes

    def log_size(self, height: float) -> float:
        """Bound the log of the sum over all places."""
        return math.log(float(self.sizes(height).sum()))


@array_cache
def _places(loss: Part) -> Array:
    """Return the places of atoms and of ends of densities."""
    assert isinstance(loss, PiecewiseAnalyticLoss)
    masses = loss.point_masses()
    assert masses is not None
    low, high = float(masses.place[0]), float(masses.place[-1])
    inner = any(low < e.place < high for e in loss.upright())
    return counted(np.array([low, 0.0, high] if inner else [low, high]))


def _terms(sizes: Array, count: int, least: float) -> tuple[int, Array, float]:
    """Return the first index and bounds of the terms of the power, and a bound on the others.

    Each trim omits a share of at most ``least``, which every later factor repeats.
    """

    def product(a: tuple[int, Array], b: tuple[int, Array]) -> tuple[int, Array]:
        terms = np.convolve(a[1], b[1])
        index = np.nonzero(terms > least * float(terms.sum()) / len(terms))[0]
        return a[0] + b[0] + int(index[0]), terms[index[0] : index[-1] + 1]

    first, terms = repeated((0, sizes), count, product)
    return first, terms, 4 * count * least * float(terms.sum())


@array_cache
def bent_contour(
    losses: Composition, epsilon: float, reach: float, limits: Limits, complement: bool
) -> BentContour | None:
    """Return a contour for epsilons within ``reach``, or None if it needs too many nodes [CP-3].

    If ``complement``, the contour is between the poles, and gives delta - 1 [C-10].
    """
    ((loss, count),) = losses.parts
    assert isinstance(loss, PiecewiseAnalyticLoss)
    c = (complement_saddle if complement else _saddle)(losses, epsilon)
    k, _, variance = (float(v[0]) for v in losses.moments(np.array([c])))
    one = k / count  # any number scales all sums
    bend = variance + 1 / c**2 + 1 / (c + 1) ** 2
    places = _Places.of(loss, c, one)
    low, step = float(places.place[0]), float(places.place[1] - places.place[0])
    # The trunk: its height and its panels.
    r = limits.trunk_axes
    pole = min(abs(c), 1 + c)
    across = min(limits.trunk_deviations / math.sqrt(bend), limits.pole_share * pole)
    panel = 4 * across / (r - 1 / r)
    height = max(c + 1, limits.least_height)
    while (growth := count * places.log_size(height)) > limits.growth_efolds:
        long = limits.trunk_order * height > limits.long_trunk_nodes * panel
        if long and growth <= limits.most_growth_efolds:
            break
        height *= 1.25
    if growth < limits.least_growth_efolds:
        return None
    panels = math.ceil(height / panel)
    if panels * limits.trunk_order > limits.most_trunk_nodes:
        return None
    panel = height / panels
    first, sizes, outside = _terms(places.sizes(height), count, limits.least_share)
    length = 1 << (len(sizes) - 1).bit_length()
    if length > limits.most_terms:
        return None
    lowest = count * low + first * step
    u, weight, noise, moving, aside = _trunk(losses, c, one, panel, panels, limits)
    # The branches: panels of the distance t from the trunk's end, over sqrt 2.
    place = (epsilon - lowest) / step
    near = max(abs(place - round(place)) * step - reach, limits.least_gap * step)
    edges = [0.0, min(FIRST_EFOLDS / ((len(sizes) + 1) * step), height / 8)]
    while edges[-1] * near < limits.branch_efolds:
        edges.append(edges[-1] * RATIO)
    order = limits.branch_order if growth <= limits.growth_efolds else limits.long_branch_order
    t, dt = panel_nodes(np.array(edges), order)
    amplitudes, unsure = _amplitudes(places, c, height + t, t, height, limits)
    root = np.exp(2j * math.pi * np.arange(length) / length)
    phases = root ** np.arange(len(places.place))[:, None]
    turned = root[(-first * np.arange(length)) % length][:, None]
    cells(float(length * len(t)))
    charge(40 * CALL + length * len(t) * 250.0)
    branches: list[_Branch] = []
    for turn, amplitude in zip((-1 + 1j, 1 + 1j), amplitudes, strict=True):
        value = np.einsum("kl,kt->lt", phases, amplitude)
        most = np.maximum.reduce(np.abs(value), axis=0) + unsure
        terms = (
            np.fft.fft(repeated(value, count, np.multiply) * turned, axis=0)[: len(sizes)] / length
        )
        away = turn * t + 1j * height
        z = c + away
        scale = turn * dt / (math.pi * z * (z + 1))
        # Each factor errs by 40 units, besides the amplitudes. Transforms err as in ES-4.
        # slack: counted
        part = count * (unsure / most + 40 * UNIT) + (24 * math.log2(length) + 32) * UNIT
        added = (len(sizes) + 2 * len(t) + 32) * UNIT + 8 * NODE_ERROR  # slack: counted
        wrong = math.sqrt(length) * most**count * np.expm1(np.minimum(part, 600.0))
        wrong += added * np.add.reduce(np.abs(terms), axis=0)
        noise += float(np.abs(scale) @ wrong)
        sign = -1 if turn.real > 0 else 1
        waves = np.exp(np.multiply.outer(sign * step * np.arange(len(sizes)), away))
        branches.append(_Branch(away, scale, terms, waves, np.array(edges[1:])))
    # Errors of the panels of both branches, the terms left out, and the end of the trunk.
    total = math.exp(min(count * places.log_size(height), 700.0))
    start, half = np.array(edges[1:-1]), np.diff(edges)[1:] / 2
    kernel = half / (0.25 * (0.42 * start) ** 2 + 0.5 * height**2)
    quadrature = float(_panel_error(RATIO_AXES, order)) * total * float(kernel.sum())
    early = math.exp(min(count * places.log_size(height - 1.51 * edges[1]), 700.0))
    early *= math.exp(1.51 * FIRST_EFOLDS) * edges[1] / 2 / (0.25 * height**2)
    quadrature += float(_panel_error(FIRST_AXES, order)) * early
    # The trunk's end errs by 4 units.
    fixed = noise + quadrature + (outside + 4 * UNIT * total) / height  # slack: counted
    return counted(
        BentContour(
            c,
            count * one,
            height,
            u,
            weight,
            branches[0],
            branches[1],
            lowest,
            step,
            sizes,
            limits.branch_efolds,
            fixed,
            moving,
            # Sums, the step, and its multiple err by a few units of themselves.
            # slack: counted
            count * (places.place_error + 8 * UNIT * max(abs(low), float(places.place[-1]))),
            aside,
        )
    )


def _trunk(
    losses: Composition, c: float, one: float, panel: float, panels: int, limits: Limits
) -> tuple[Array, Array, float, float, Array]:
    """Return heights and weights of the trunk's nodes, its errors, and those of its panels [CP-4].

    The errors are as in `BentContour`: fixed, moving, and aside.
    """
    ((loss, count),) = losses.parts
    assert isinstance(loss, PiecewiseAnalyticLoss)
    node, share = rule(limits.trunk_order)
    starts, offsets = panel * np.arange(panels), panel * node
    log_mgf, moved, error = loss.phases(c, starts, offsets)
    u, moved, error = np.add.outer(starts, offsets).ravel(), moved.ravel(), error.ravel()
    shift, log_phi = count * (log_mgf - one), log1p(moved)
    phi = np.exp(count * log_phi + shift)
    z = c + 1j * u
    kernel = np.tile(panel * share, panels) / (math.pi * z * (z + 1))
    weight = kernel * phi
    # Errors of M are relative to M(c). A node errs by `NODE_ERROR` of a panel.
    farthest = float(np.abs(_places(loss)).max())
    size, error = np.exp(real_part(log_phi)), error + NODE_ERROR * panel * farthest
    rise = count * np.log1p(error / np.maximum(size, 1e-300))
    power = np.exp(np.minimum(count * np.log(size + error) + shift, 600.0))
    from_errors = np.where(rise < 1, np.abs(phi) * np.expm1(np.minimum(rise, 1.0)), power)
    # slack: counted
    units = UNIT * (4 * count * np.abs(log_phi) + 4 * abs(shift) + len(u) + 64) + 4 * NODE_ERROR
    wrong = from_errors + np.abs(phi) * units
    moving = float(np.abs(weight) @ (4 * UNIT * np.abs(z) + NODE_ERROR * panel))  # slack: counted
    # On the ellipse around a panel, all sizes are at most those on the real axis.
    half, r = panel / 2, limits.trunk_axes
    across, along = half * (r - 1 / r) / 2, half * (r + 1 / r) / 2
    least = np.maximum(starts + half - along, 0.0)
    sizes = 1 / (np.hypot(abs(c) - across, least) * np.hypot(1 + c - across, least))
    most = half * float(_panel_error(r, limits.trunk_order)) * float(sizes.sum()) / math.pi
    tilts = np.array([c - across, c + across])
    k, k_error = losses.mgf(tilts)
    log_most = k + np.log1p(k_error) + 8 * UNIT * (np.abs(k) + 1) + math.log(most)  # slack: counted
    return u, weight, float(np.abs(kernel) @ wrong), moving, np.array([tilts, log_most])


def _amplitudes(
    places: _Places, c: float, v: Array, t: Array, height: float, limits: Limits
) -> tuple[Array, Array]:
    """Return A_l(z) e^{cl} at z = c -+ t + i v, shape (2, places, nodes), and their total error."""
    edges = _ray_edges(max(end.bend for end, *_ in places.ends), height)
    tau, weight = panel_nodes(edges, limits.ray_order)
    cells(float(len(t) * len(tau)))
    charge(20 * CALL + len(t) * len(tau) * (100.0 + 150 * len(places.ends)))
    y = tau / v[:, None]
    sine, rise = np.sin(y), 2 * np.sin(y / 2) ** 2
    weight = weight * np.exp(-tau)
    back = np.exp(-1j * t[:, None] * y)
    forth = np.conj(back)
    amplitudes = np.zeros((2, len(places.place), len(t)), complex) + places.atoms[:, None]
    unsure = np.full(len(t), places.atom_error)
    for end, index, size, relative, ray in places.ends:
        square = 1 + 2 * end.bend * (end.bend - 1) * rise
        turn = np.arctan2(end.bend * sine, 1 - end.bend * rise)
        wave = weight * square**-0.75 * np.exp(1j * ((end.slope + c) * y - 1.5 * end.sign * turn))
        scale = (1j if end.above else -1j) * size / v
        amplitudes[0, index] += scale * np.add.reduce(wave * back, axis=1)
        amplitudes[1, index] += scale * np.add.reduce(wave * forth, axis=1)
        # The power errs by 40 units, the wave by 8 of y z, NumPy's pairwise sum by 24.
        units = relative + 64 * UNIT + 12 * NODE_ERROR  # slack: counted
        unsure = unsure + size * units * np.minimum(1 / v, ray.mass(height))
        unsure = unsure + size / v * ray.errors(edges, v, limits.ray_order)
    return amplitudes, unsure


def _log_rise(gap: Array, first_gap: float) -> Array:
    """Return log((1 - e^-gap) / (1 - e^-first_gap)), rounded up by 8 units of each logarithm.

    It is an upper bound also if the gaps are from an upper bound on the largest loss.
    """
    ratio = np.log(-np.expm1(-gap)) - math.log(-math.expm1(-first_gap))
    return ratio + 8 * UNIT * (2 + np.abs(np.log(gap)) + abs(math.log(first_gap)))  # slack: counted


class PartsProfile(ContourProfile):
    """Compute the profile of equal losses with atoms and a density.

    Few losses from the density need bent contours [CP-3], many have vertical lines.

    Args:
        losses: one `PiecewiseAnalyticLoss` with `upright` ends and `point_masses`, several times.
        limits: sizes of contours.
    """

    good = LIMITS.line_width
    costly = True

    def __init__(self, losses: Composition, limits: Limits = LIMITS) -> None:
        ((loss, count),) = losses.parts
        assert isinstance(loss, PiecewiseAnalyticLoss)
        self._limits = limits
        places, masses = _places(loss), loss.point_masses()
        assert masses is not None
        # A vertical line ends early if the sums of atoms are negligible, and the density is smooth.
        decay = -count * math.log(float(np.exp(masses.log_mass).sum()))
        sharp = max(e.bend for e in loss.upright()) * float(np.ptp(places)) > limits.sharp_bend
        few = limits.line_efolds if count > limits.sharp_count or not sharp else math.inf
        self._bent = decay < few
        self._step = float(places[1] - places[0])
        self._most = limits.most_tilt / self._step
        # A sum of largest losses is at least this, and at most the supremum.
        # slack: counted
        self._top = count * (float(places[-1]) - masses.place_error) * (1 - 8 * UNIT)
        reverse = losses.reverse()
        super().__init__(
            losses,
            lambda: in_question(("bent", reverse), lambda: PartsProfile(reverse, limits)),
            0.0,
            above(losses.supremum),
            losses.log_top,
            release=False,
        )
        self.method = "bent contour" if self._bent else "contour"
        self._sum = losses
        # The chord near the largest loss starts here.
        gap = limits.top_gap * min(self._step, self._supremum)
        gap = max(gap, limits.top_gap_units * UNIT * self._supremum)  # slack: counted
        self.chord_start = self._supremum - gap

    def _above_zero(self, epsilons: Array) -> tuple[Array, Array]:
        # [CP-6]: delta is at least P(L = top) (1 - e^{epsilon - top}), and convex in e^epsilon.
        near = epsilons >= self.chord_start
        low, high = np.full((2, len(epsilons)), -math.inf)
        if (far := ~near).any():
            low[far], high[far] = super()._above_zero(epsilons[far])
        if (inside := near & (epsilons < self._supremum)).any():
            start = np.array([self.chord_start])
            most = super()._above_zero(start)[1]
            gap = self._supremum - np.append(start, epsilons[inside])  # exact
            # slack: counted
            high[inside] = most + _log_rise(gap[1:], float(gap[0])) + 2 * UNIT * known(most)
        with np.errstate(divide="ignore"):
            least = np.log(-np.expm1(np.minimum(epsilons - self._top, 0.0))) + self._log_top
        low = np.maximum(low, least - 8 * UNIT * (2 + known(least)))  # slack: counted
        high = np.minimum(high, self.log_total_variation())
        return np.minimum(low, high), high

    def log_total_variation(self) -> float:
        """Return an upper bound on log delta(0)."""
        return self._sum.log_total_variation

    def _line(self, epsilon: float) -> Line | BentContour | None:
        """Return the line or the contour of a cell of epsilons, whichever is narrower.

        Far out the atoms have most of the tilted mass, so a line is wide for many losses, too.
        """
        line = None if self._bent else line_at(self._sum, epsilon, release=False)
        if line is not None and line.width(epsilon) <= self._limits.fair_width:
            return line
        c = _saddle(self._sum, epsilon)
        size = min(self._limits.cell_efolds / c, self._limits.cell_share * self._step)
        size = 2.0 ** math.floor(math.log2(min(size, 0.25 * (self._supremum - epsilon))))
        center = size * round(epsilon / size)
        bent = bent_contour(self._sum, center, size / 2, self._limits, False)
        if line is None or bent is None:
            return bent or line
        return bent if bent.width(epsilon) < line.width(epsilon) else line

    def _farthest(self, place: float) -> float:
        # Near the largest loss, delta falls by a factor within a part of the distance to it.
        return self._limits.gap_share * (self._supremum - place)

    def _log_miss(self, log_level: float) -> Interval:
        if not self._bent:
            return super()._log_miss(log_level)

        def contour_at(epsilon: float) -> BentContour | None:
            reach = self._limits.cell_share * self._step
            return bent_contour(self._sum, epsilon, reach, self._limits, True)

        lines, back = self._complement_lines, self._backward()
        return log_type_two_error(
            self._losses, log_level, back, lines, contour_at, self._place_near
        )

    def _place_near(self, epsilon: float) -> float:
        """Return the place of a sum next to epsilon."""
        return float(self._places_near(np.array(epsilon)))

    def _places_near(self, epsilons: Array) -> Array:
        """Return the place next to each epsilon."""
        return self._supremum - self._step * np.round((self._supremum - epsilons) / self._step)

    def coarse(self) -> Profile:
        """Return a copy that accepts wider intervals, for many epsilons."""
        other = copy(self)
        other.good = self._limits.coarse_width
        other._lines = []
        return other

    def alone(self, epsilon: float) -> bool:
        """Return True if all answers so far came from this epsilon's contour."""
        return len(self._lines) == 1 and self._lines[0][0] is self._line(epsilon)

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log power at many levels. A small level is rejected at the largest loss only."""
        # The level errs by 2 units of its logarithm, the sums by a unit of their terms.
        # slack: counted
        gained, slack = log_levels + self._supremum, 16 * UNIT * (1 + self._supremum)
        slack = slack + 16 * UNIT * np.minimum(np.abs(log_levels), 1e300)  # slack: counted
        top = (gained <= self._log_top - slack) & (log_levels > -math.inf)
        low, high = log_levels + self._top - slack, np.minimum(gained + slack, 0.0)
        if not top.all():
            low[~top], high[~top] = super().log_powers(log_levels[~top])
        return low, high

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        many = len(log_levels) > self._limits.levels_alone
        if not self._bent and not many:
            return near_thresholds(self, self._losses, log_levels, self._most)
        if not many:
            powers = np.array([self._power(level) for level in log_levels.tolist()]).T
            return powers[0], powers[1]
        low, high = super()._by_duality(log_levels)
        if not self._bent:
            return low, high
        wide = np.nonzero(high - low > self._limits.fair_width)[0]
        try:
            if len(wide):
                below, above = self._powers_at_places(log_levels[wide])
                low[wide], high[wide] = intersection(low[wide], high[wide], below, above)
            for k in np.nonzero(high - low > self._limits.fair_width)[0]:
                below, above = self._power(float(log_levels[k]))
                low[k], high[k] = max(low[k], below), min(high[k], above)
        except OperationLimit:  # the bounds so far hold
            pass
        return low, high

    def _power(self, log_level: float) -> Interval:
        """Bound log power at one level, from deltas near its threshold."""
        enough = self._limits.power_width
        low, high = log_power_near(self.log_deltas, log_level, *self._best_place(log_level), enough)
        if high - low > enough:  # perhaps the profile bends at a place
            below, above = self._power_at_place(log_level)
            low, high = max(low, below), min(high, above)
        return low, high

    def _best_place(self, log_level: float) -> tuple[float, float]:
        """Estimate the epsilon with the least delta + e^epsilon level, and the estimate's error."""
        star, scale = _threshold(self._losses, log_level, self._most)
        line = self._line(min(max(star, 0.0), self.chord_start))
        if not isinstance(line, BentContour):
            return star, scale
        for _ in range(self._limits.zooms):
            places = np.maximum(star + scale * np.linspace(-1, 1, 9), 0.0)
            log_delta = line.middles(places)
            above = np.where(log_delta > -math.inf, log_delta, 0.0)
            k = int(np.argmin(np.logaddexp(above, places + log_level)))
            star, scale = float(places[k]), scale / 3 if 0 < k < 8 else scale
        return star, scale

    def _power_at_place(self, log_level: float) -> Interval:
        """Bound log power from deltas around the best place near the threshold."""
        guess, scale = _threshold(self._losses, log_level, self._most)
        first = self._supremum - self._step * math.floor((self._supremum - guess) / self._step)
        reach = math.ceil(2 * scale / self._step) + 1
        places = first + self._step * np.arange(-reach, reach + 1)
        above = np.logaddexp(self.log_deltas(places)[1], places + log_level)
        place = float(places[int(np.argmin(above))])
        low, high = -math.inf, 0.0
        for share in self._limits.bend_shares:
            near = place - share * self._step, place + share * self._step
            ends = Conjugate.over(self.log_deltas, *near, 17, self._limits.power_width)
            below, above = ends.log_powers(np.array([log_level]))
            low, high = max(low, float(below[0])), min(high, float(above[0]))
        return low, high

    def _powers_at_places(self, log_levels: Array) -> tuple[Array, Array]:
        """Bound log powers from chords on both sides of the place next to each threshold."""
        conjugate = self._conjugate(float(log_levels.min()))
        places = self._places_near(conjugate.minima(log_levels))
        low, high, _ = conjugate.chords(places, self._step * PLACE_CHORDS, log_levels)
        return low, high

    def epsilon_near(self, log_delta: float) -> float:
        """Estimate the epsilon with this log delta, on the contour of its cell."""
        if not self._bent:
            return super().epsilon_near(log_delta)
        top = self._supremum
        gap = math.exp(min(log_delta - self._log_top, 0.0))
        if top - gap >= self.chord_start:
            return top - gap
        epsilon = min(max(rough_epsilon(self._sum, log_delta), 0.0), self.chord_start)
        if gap <= self._limits.top_share * self._step:
            epsilon = top - gap
        low, high, before = 0.0, self.chord_start, None
        for _ in range(self._limits.guess_contours):
            line = self._line(epsilon)
            value = -math.inf if line is None else line.middle(epsilon)
            if line is None or value == -math.inf:
                return 1.0
            if line is before:
                break
            low, high = (epsilon, high) if value > log_delta else (low, epsilon)
            before, epsilon = line, _epsilon_on(line, log_delta, epsilon, top)
            if not low <= epsilon <= high:
                epsilon = 0.5 * (low + high)
        return epsilon


def _saddle(losses: Composition, epsilon: float) -> float:
    """Return a tilt for an epsilon. Far out, the largest tilt is good enough."""
    places = _places(losses.parts[0][0])
    most = LIMITS.most_tilt / float(places[1] - places[0])
    mean = float(losses.moments(np.array([most]))[1][0])
    if epsilon >= mean - 1 / most - 1 / (most + 1):
        return most
    return math.exp(tilts_of(losses, epsilon)[1])


def _epsilon_on(line: Line | BentContour, log_delta: float, start: float, top: float) -> float:
    """Estimate the epsilon with this log delta on one contour, by secants in log(top - epsilon)."""
    x = math.log(top - start)
    value = line.middle(start)
    step = 1e-3 / (1 + line.c * (top - start))
    before, last = line.middle(top - math.exp(x + step)), x + step
    for _ in range(20):
        slope = (value - before) / (x - last)
        if not slope > 0:
            break
        move = min(max((log_delta - value) / slope, -3.0), 3.0)
        most = math.log(top)
        last, x = x, min(x + move, most)
        before, value = value, line.middle(top - math.exp(x))
        if not math.isfinite(value):
            break
        if abs(move) * math.exp(x) <= 1e-13 * top or last == x:
            break
    return max(top - math.exp(x), 0.0)


def near_thresholds(
    profile: Profile,
    losses: LineSum,
    log_levels: Array,
    largest: float,
    enough: float = SEARCH_LIMITS.search_width,
) -> tuple[Array, Array]:
    """Bound log power at a few levels, from deltas near each threshold."""
    ends = [
        log_power_near(profile.log_deltas, float(v), *_threshold(losses, v, largest), enough)
        for v in log_levels
    ]
    low, high = np.array(ends).T
    return low, high


def newton_epsilon(profile: Profile, losses: LineSum, log_delta: float, supremum: float) -> float:
    """Estimate the epsilon with this log delta by Newton's method, from a normal guess."""
    most = (1 - 1e-9) * supremum
    epsilon = min(max(rough_epsilon(losses, log_delta), 1e-9 * min(most, 1.0)), most)
    for _ in range(12):
        low, high = profile.log_deltas(epsilon * (1 + np.array([0.0, 1e-5])))
        middle = np.where(low > -math.inf, 0.5 * (low + high), high)
        if not np.all(np.isfinite(middle)):  # too far out
            epsilon *= 0.5
            continue
        slope = float(middle[1] - middle[0]) / 1e-5  # in the logarithm of epsilon
        if not slope < 0:
            break
        move = (log_delta - float(middle[0])) / slope
        epsilon = min(epsilon * math.exp(min(max(move, -2.0), 2.0)), most)
        if abs(move) <= 1e-6:
            break
    return epsilon


def _threshold(losses: LineSum, log_level: float, largest: float) -> tuple[float, float]:
    """Estimate the loss above which the null's mass is a level, and the estimate's error."""
    c = tilt_of_level(losses, float(log_level), largest)
    _, mean, variance = (float(v[0]) for v in losses.moments(np.array([c])))
    return mean, min(2 / (c + 1), math.sqrt(max(variance, 1e-300)))


@register(97, "equal losses with atoms and a bounded density: bent contours, or lines for many")
def _continuous_parts(composition: Composition) -> Profile | None:
    if len(composition.parts) != 1:
        return None
    loss, count = composition.parts[0]
    if not isinstance(loss, PiecewiseAnalyticLoss) or count < 2:
        return None
    if not loss.upright() or loss.point_masses() is None:
        return None
    parts = PartsProfile(composition)
    engines: list[tuple[float, Callable[[], Profile]]]
    # The least widths of log delta at which the next engine is asked.
    engines = [(0.0, lambda: parts), (1e-3, lambda: contour_profile(composition))]
    engines.append((LIMITS.wide_width, lambda: dots_profile(composition)))
    return CascadeProfile(
        engines, composition.log_total_variation, (0, 2, 1), alone_from=parts.chord_start
    )
