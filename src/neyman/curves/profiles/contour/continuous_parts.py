"""Compute profiles of T equal losses with atoms and a density, by the number of atoms [CP-1].

Each loss takes an atom or comes from the density. With k losses from the density,

    delta(epsilon) = sum over k of binom(T, k) E[(1 - e^{epsilon - A - S_k})_+].

A is the sum of T - k atoms, and S_k the sum of k draws from the density. Terms with
k < `CONTOUR_PARTS` use a lattice for the density alone. The other terms together have a
characteristic function that falls like |u|^-CONTOUR_PARTS, and a contour gives their sum. With the
atoms alone, the contour would not converge. If few losses come from the density, one lattice
contains all terms. Atoms lie exactly on its points, so only losses from the density are rounded
(`parts_lattice`) [CP-4].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.special import gammaln, logsumexp

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.piecewise_analytic import PiecewiseAnalyticLoss, PointMasses, Shares
from neyman.curves.profiles.combination import CascadeProfile
from neyman.curves.profiles.contour.contour import ContourProfile, contour_profile
from neyman.curves.profiles.contour_line import LineSum, rough_epsilon, saddle
from neyman.curves.profiles.duality import LIMITS as SEARCH_LIMITS
from neyman.curves.profiles.duality import log_power_near
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.lattice.lattice import LatticeProfile, Side, tilt_of_level
from neyman.curves.profiles.profile import Engine, Profile
from neyman.curves.profiles.selection import register, select
from neyman.numerics.array_cache import array_cache, counted
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, Atoms, compose, convolve
from neyman.numerics.discretization import contract, contract_dense, spread
from neyman.numerics.operations import in_question
from neyman.numerics.rounding import above, known


@dataclass(frozen=True)
class Limits:
    """Hold each engine's thresholds and cost. Other values also give valid bounds."""

    contour_efolds: float = 45.0  # least decay of the sums of atoms, for a contour
    grid_efolds: float = 20.0  # the same, for a grid
    # Mean number of parts from the density (about) below which one lattice suffices.
    few_parts: float = 7.0
    alone_parts: int = 150  # most parts for one lattice
    wide_range: float = 2.5  # range of one loss above which one lattice is as good
    tiny_range: float = 1e-6  # range of losses below which rounding of places is harmful
    wide_width: float = 1e-3  # relative width beyond which other engines are asked
    fair_width: float = 2e-7  # relative width beyond which the next engine is asked
    line_width: float = 1e-8  # relative width of the contour's terms at which a line is reused
    nothing_efolds: float = -30.0  # log share below which terms are not computed
    bend: float = 4.0  # tilt of one or two draws, times the range of a loss
    draws_width: float = 2e-9  # width of log delta due to the lattice of draws
    least_draws_cells: int = 1 << 7  # least cells of this lattice between the atoms
    most_draws_cells: int = 1 << 14  # most cells of this lattice
    parts_width: float = 2e-6  # width of log delta; power and epsilon are narrower
    least_parts_places: int = 1 << 14  # least places of the lattice that contains the atoms
    most_parts_places: int = 1 << 18  # most places of this lattice
    full_share: float = 0.4  # share of the wanted cells that justifies a shorter transform
    least_bend: float = 2.0  # least tilt times range to assume
    largest_bend: float = 20.0  # tilt times range beyond which only the largest loss matters
    largest_tilt: float = 1e3  # largest tilt times the largest loss
    levels_alone: int = 8  # most levels to search one by one


LIMITS = Limits()

CONTOUR_PARTS = 3  # least number of parts from the density for a contour


class ManyFromDensity:
    """Represent the sum of T equal losses if at least `CONTOUR_PARTS` come from the density [CP-2].

    e^{K(z)} is the transform of a measure. Its mass is the probability of this event.
    """

    algebraic = True

    def __init__(self, loss: PiecewiseAnalyticLoss, count: int) -> None:
        self._loss, self._count = loss, count

    def places(self, tilt: float, height: float) -> float:
        """Return the number of terms of one loss. Its shares are always sums over nodes."""
        return PiecewiseAnalyticLoss.places(self._loss, tilt, height)

    def _log_weights(self, shares: Shares) -> Array:
        """Return log probabilities of k = CONTOUR_PARTS .. T parts from the density."""
        return _log_binomial(self._count, shares)[CONTOUR_PARTS:]

    def mgf(self, z: Array, log_rest: Array | None = None) -> tuple[Array, Array]:
        """Return K(z), and the error of e^K relative to e^{K(Re z)} [CP-2]."""
        n = self._count
        # Three log factorials of at most n log n each, to 4 units, and n of each logarithm. The
        # line counts errors relative to K.
        units = n * (64 + 8 * math.log(n + 1)) * UNIT
        if not np.iscomplexobj(z):
            k, error = np.empty(len(z)), np.empty(len(z))
            rounding = np.broadcast_to(self._loss.mgf_rounding(z), z.shape)
            for i, c in enumerate(z):
                shares = self._loss.shares(float(c))
                k[i] = n * shares.log_mgf + _log_sum(self._log_weights(shares))
                least = min(shares.atoms, shares.density)  # relative errors are over this share
                error[i] = math.expm1(min(4 * n * (rounding[i] + 8 * UNIT) / least, 600.0)) + units
            return k, error
        shares = self._loss.shares(float(z[0].real))
        atoms, density, part = self._loss.characteristic_functions(z)
        # Both are relative to the total. Their difference errs by units of the larger one.
        both, log_atoms = np.log(atoms + density), np.log(atoms)
        value = np.exp(n * both)
        for j in range(CONTOUR_PARTS):
            value -= math.comb(n, j) * density**j * np.exp((n - j) * log_atoms)
        k = np.log(np.maximum(np.abs(value), 1e-300)) + 1j * np.angle(value)
        k += n * shares.log_mgf
        log_mass = _log_sum(self._log_weights(shares))
        grown = np.expm1(np.minimum(n * part, 600.0))
        # Far out, each term has at least CONTOUR_PARTS - 1 small factors from the density.
        left = np.minimum(n * (np.abs(density) + part * shares.density), 1.0) ** (CONTOUR_PARTS - 1)
        grown = np.minimum(grown, 3 * n * part * left * math.exp(min(-log_mass, 600.0)))
        lost = (1e-300 + (16 * n + 64) * UNIT) * math.exp(min(-log_mass, 600.0))
        return k, grown + lost

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return K, mean, and variance under each tilt, by conditioning on the number of parts."""
        n = self._count
        log_mgf, atoms, density, mean, variance = self._loss.rough_shares(tilts)
        k = np.arange(CONTOUR_PARTS, n + 1)
        log_w = _log_ways(n, k) + np.multiply.outer(np.log(atoms), n - k)
        log_w += np.multiply.outer(np.log(density), k)
        top = logsumexp(log_w, axis=1, keepdims=True)
        w = np.exp(log_w - top)
        means = np.multiply.outer(mean[0], n - k) + np.multiply.outer(mean[1], k)
        center = (w * means).sum(axis=1)
        within = np.multiply.outer(variance[0], n - k) + np.multiply.outer(variance[1], k)
        spread = (w * (within + (means - center[:, None]) ** 2)).sum(axis=1)
        return n * log_mgf + top[:, 0], center, spread

    def log_decay(self, tilt: float, edges: Array, need: float) -> Array:
        """Bound log |phi| by the shares. The share of the density falls like 1 / u [CP-2]."""
        shares = self._loss.shares(tilt)
        log_w = self._log_weights(shares)
        k = np.arange(CONTOUR_PARTS, self._count + 1)
        fall = np.log(np.minimum(self._loss.density_decay(tilt, edges) / shares.density, 1.0))
        log_size = np.asarray(logsumexp(log_w + np.multiply.outer(fall, k), axis=1))
        return np.minimum(log_size - _log_sum(log_w) + 1e-9, 0.0)


def _log_sum(logs: Array) -> float:
    return float(np.asarray(logsumexp(logs)))


def _log_binomial(count: int, shares: Shares) -> Array:
    """Return log probabilities of k = 0 .. count parts from the density."""
    k = np.arange(count + 1)
    return _log_ways(count, k) + (count - k) * math.log(shares.atoms) + k * math.log(shares.density)


def _log_ways(count: int, k: Array) -> Array:
    """Return log binom(count, k)."""
    return gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)


@array_cache
def _sums_of_atoms(log_mass: tuple[float, ...], count: int, density: int) -> tuple[Array, Array]:
    """Return the sums of T - k atoms, in units of the range, and log of binom(T, k) P(sum).

    T is ``count``, and k is ``density``.
    """
    n = count - density
    log_ways = float(_log_ways(count, np.array([density]))[0])
    if len(log_mass) == 2:
        top = np.arange(n + 1)
        log_w = _log_ways(n, top) + (n - top) * log_mass[0] + top * log_mass[1]
        return counted((top.astype(float), log_ways + log_w))
    index = np.arange(2 * n + 1)  # in half ranges; the middle atom is at 1
    top = np.arange(n + 1)[:, None]
    middle = index - 2 * top
    low = n - top - middle
    good = (middle >= 0) & (low >= 0)
    middle, low = np.where(good, middle, 0), np.where(good, low, 0)
    log_w = gammaln(n + 1) - gammaln(top + 1) - gammaln(middle + 1) - gammaln(low + 1)
    log_w = log_w + top * log_mass[2] + middle * log_mass[1] + low * log_mass[0]
    log_w = np.asarray(logsumexp(np.where(good, log_w, -math.inf), axis=0))
    return counted((index / 2, log_ways + log_w))


@dataclass(frozen=True, eq=False)
class _Power:
    """Represent a sum of losses whose atoms are on a coarser lattice [CP-4].

    Args:
        atoms: the sums of atoms only, on the coarse lattice.
        rest: all other sums, on the fine lattice.
    """

    atoms: Atoms
    rest: Atoms

    def doubled(self) -> _Power:
        """Return the sum of two copies: A A, and R (R + 2 A), with A = atoms and R = rest."""
        twice = replace(self.atoms, weight=2 * self.atoms.weight)
        rest = convolve(self.rest, _add_measures(self.rest, twice), 1e6)
        return _Power(convolve(self.atoms, self.atoms), rest)

    def extended(self, one: _Power) -> _Power:
        """Return the sum plus one loss with atoms a and rest r: A a, and (R + A) r + R a."""
        rest = convolve(self.total(), one.rest, 1e6)
        rest = _add_measures(rest, _convolve_few(self.rest, one.atoms))
        return _Power(convolve(self.atoms, one.atoms), rest)

    def total(self) -> Atoms:
        """Return the measure of all sums."""
        return _add_measures(self.rest, self.atoms)


def _add_measures(fine: Atoms, coarse: Atoms) -> Atoms:
    """Add two measures of one scale. The lattice of the first refines that of the second."""
    other = coarse.strided(fine.step)
    start = min(fine.start, other.start)
    weight = np.zeros(max(fine.start + len(fine), other.start + len(other)) - start)
    for part in (fine, other):
        weight[part.start - start : part.start - start + len(part)] += part.weight
    tail, absolute = fine.tail + other.tail, fine.absolute + other.absolute
    relative = max(fine.relative, other.relative) + 2 * UNIT
    return replace(
        fine, start=start, weight=weight, tail=tail, relative=relative, absolute=absolute
    )


def _convolve_few(fine: Atoms, few: Atoms) -> Atoms:
    """Convolve with a few atoms on a coarser lattice, atom by atom."""
    stride = int(few.step / fine.step)
    weight = np.zeros(len(fine) + (len(few) - 1) * stride)
    for k, share in enumerate(few.weight):
        weight[k * stride : k * stride + len(fine)] += share * fine.weight
    mass = float(few.weight.sum())
    # A product and a sum for each atom, and five roundings here.
    relative = (1 + fine.relative) * (1 + few.relative) * (1 + (len(few) + 5) * UNIT) - 1
    return replace(
        fine,
        start=fine.start + few.start * stride,
        weight=weight,
        log_scale=fine.log_scale + few.log_scale,
        tail=fine.tail * mass,
        relative=relative,
        absolute=fine.absolute * mass * (1 + few.relative),
    )


def parts_lattice(losses: Composition, limits: Limits = LIMITS) -> LatticeProfile:
    """Return the profile of equal losses with atoms and a density, on a lattice with all atoms.

    Args:
        losses: one `PiecewiseAnalyticLoss` with `point_masses`, several times.
        limits: limits of the lattice.
    """
    ((loss, count),) = losses.parts
    assert isinstance(loss, PiecewiseAnalyticLoss)
    atoms = loss.point_masses()
    assert atoms is not None
    width = float(atoms.place[-1]) - float(atoms.place[0])
    largest = limits.largest_bend / max(width, 1e-300)  # beyond it only the largest loss matters

    def between(tilt: float) -> tuple[Atoms, Atoms]:
        # Both bounds move a part from the density by its variance on a cell. The lower bound moves
        # the half cell above the lowest atom by a quarter cell.
        bend = max((abs(tilt) + 1) * width, limits.least_bend)
        moved = loss.shares(tilt).density * bend + loss.lowest_density(tilt) * width
        cells = max(
            math.sqrt(count * moved * bend / (8 * limits.parts_width)),
            limits.least_parts_places / count,
        )
        # Use the full length of the transform.
        length = 2.0 ** math.ceil(math.log2(cells * count + 2))
        length *= 0.5 if 0.5 * length > limits.full_share * cells * count else 1.0
        cells = 2 * math.floor(0.5 * (min(length, limits.most_parts_places) - 2) / count)
        return _sides(loss, atoms, count, tilt, cells)

    return LatticeProfile(
        between,
        lambda epsilon: saddle(losses, epsilon, largest),
        0.0,
        above(losses.supremum),
        "lattice that holds the atoms",
        Engine.GRID,
        losses=losses,
        log_top=losses.log_top,
        largest=largest,
    )


def _sides(
    loss: PiecewiseAnalyticLoss, masses: PointMasses, count: int, tilt: float, cells: int
) -> tuple[Atoms, Atoms]:
    """Return the dominating and the dominated sum, with so many cells between end atoms [CP-4]."""
    origin = float(masses.place[0])
    step = (float(masses.place[-1]) - origin) / cells
    # `spread` needs panels between the places, `contract_dense` panels around them.
    between = loss.density_dots(tilt, step, origin)
    about = loss.density_dots(tilt, step, origin - 0.5 * step)
    about = replace(about, loss=about.loss - 0.5 * step)
    scale = between.log_scale + tilt * origin
    exponent = tilt * masses.place + masses.log_mass
    sizes = np.abs(tilt * masses.place) + np.abs(masses.log_mass)
    size = float(np.max(sizes)) + abs(scale) + abs(tilt * origin) + 8
    # Exponents are products and three sums, and exponentials err by 2 units, as for the rest.
    relative = masses.relative + 4 * UNIT * size
    every = cells // (len(masses.place) - 1)
    few = Atoms(
        Fraction(step) * every, Fraction(0), 0, np.exp(exponent - scale), scale, relative=relative
    )
    sums: list[Atoms] = []
    for rest in (spread(between, step), contract_dense(about, step)):
        shared = replace(rest, log_scale=scale, relative=rest.relative + 4 * UNIT * size)
        one = total = _Power(few, shared)
        for bit in bin(count)[3:]:
            total = total.doubled()
            total = total.extended(one) if bit == "1" else total
        # Rounding of atoms and step, in each loss. The step is a difference of two atoms and a
        # quotient, and its error counts once per cell.
        place = 8 * UNIT * count * float(np.abs(masses.place).max())
        sums.append(replace(total.total(), offset=count * Fraction(origin), place=place))
    return sums[0], sums[1]


class PartsContour(ContourProfile):
    """Compute the profile of equal losses by contours, with few deltas for one level's power.

    Args:
        losses: one `PiecewiseAnalyticLoss`, many times.
        backward: returns the profile of the reversed losses.
        release: whether a line without a certified end may add a tiny Gaussian release.
        limits: limits of cost and searches.
    """

    def __init__(
        self,
        losses: Composition,
        backward: Callable[[], Profile],
        *,
        release: bool,
        limits: Limits = LIMITS,
    ) -> None:
        self._limits = limits
        largest = above(losses.supremum)
        super().__init__(losses, backward, losses.infinite, largest, losses.log_top, release)
        ((loss, _),) = losses.parts
        self._largest = self._limits.largest_tilt / max(above(loss.supremum), 1e-300)

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        if len(log_levels) > self._limits.levels_alone:
            return super()._by_duality(log_levels)
        low, high = near_thresholds(self, self._losses, log_levels, self._largest)
        unknown = low == -math.inf
        if self._release and unknown.any():
            low[unknown], high[unknown] = super()._by_duality(log_levels[unknown])
        return low, high


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


class ContinuousPartsProfile(ContourProfile):
    """Compute the profile of equal losses with atoms and a density, by the number of atoms.

    Args:
        losses: one `PiecewiseAnalyticLoss` with `point_masses`, several times.
        limits: limits of cost and searches.
    """

    def __init__(self, losses: Composition, limits: Limits = LIMITS) -> None:
        self._limits = limits
        largest = above(losses.supremum)
        super().__init__(losses, lambda: select(losses.reverse()), 0.0, largest, losses.log_top)
        ((loss, count),) = losses.parts
        assert isinstance(loss, PiecewiseAnalyticLoss)
        atoms = loss.point_masses()
        assert atoms is not None
        self._atoms, self._log_total = atoms, losses.log_total_variation
        self._largest_tilt = self._limits.largest_tilt / max(above(loss.supremum), 1e-300)
        self.method, self.engine = "sums by the number of continuous parts", Engine.CONTOUR
        self._loss, self._count = loss, count
        self.patient = count > self._limits.alone_parts  # otherwise a lattice is asked
        self._rest: ContourProfile | None = None
        if count >= CONTOUR_PARTS:
            many = ManyFromDensity(loss, count)
            self._rest = ContourProfile(
                many, self._backward, 0.0, largest, -math.inf, release=False
            )
            self._rest.good = self._limits.line_width

    def _above_zero(self, epsilons: Array) -> tuple[Array, Array]:
        low, high = np.full(len(epsilons), -math.inf), np.full(len(epsilons), -math.inf)
        inside = epsilons < self._supremum
        if not inside.any():
            return low, high
        at = epsilons[inside]
        below, above = self._few_from_density(at, 0)
        for density in range(1, min(CONTOUR_PARTS, self._count + 1)):
            ends = self._few_from_density(at, density)
            below, above = np.logaddexp(below, ends[0]), np.logaddexp(above, ends[1])
        if self._rest is not None:
            least, most = np.full(len(at), -math.inf), self._most_from_density(at)
            asked = ~(most < below + self._limits.nothing_efolds)
            if asked.any():
                least[asked], most[asked] = self._rest.log_deltas(at[asked])
            below, above = np.logaddexp(below, least), np.logaddexp(above, most)
        # Sums of two logarithms err by 2 units plus 2 units of their size.
        low[inside] = below - 8 * UNIT * (1 + known(below))
        high[inside] = np.minimum(above + 8 * UNIT * (1 + known(above)), self._log_total)
        return np.minimum(low, high), high

    @cached_property
    def _rest_exponents(self) -> tuple[Array, Array, Array]:
        assert self._rest is not None
        width = float(self._atoms.place[-1] - self._atoms.place[0])
        return self._rest._exponents(8.0 ** np.arange(5) / width)

    def _most_from_density(self, epsilons: Array) -> Array:
        """Return Chernoff's bound on the terms with many density parts, at a few tilts [C-1]."""
        c, log_most, slack = self._rest_exponents
        moved = np.multiply.outer(epsilons, c)
        return (log_most - moved + slack + 8 * UNIT * np.abs(moved)).min(axis=1)

    def _few_from_density(self, epsilons: Array, density: int) -> tuple[Array, Array]:
        """Bound the log of the terms with ``density`` parts from the density, 0, 1, or 2 [CP-3]."""
        n, origin = self._count, float(self._atoms.place[0])
        width = float(self._atoms.place[-1]) - origin
        log_mass = tuple(self._atoms.log_mass.tolist())
        share, log_w = _sums_of_atoms(log_mass, n, density)
        at = n * origin + share * width  # draws are relative to their origins
        x = epsilons[:, None] - at
        error = 8 * UNIT * (np.abs(epsilons)[:, None] + n * abs(origin) + share * width) + 1e-300
        if density:
            low = self._draws_at(density, False, (x + error).ravel())[0].reshape(x.shape)
            high = self._draws_at(density, True, (x - error).ravel())[1].reshape(x.shape)
            # No draw exceeds the highest atom.
            high = np.where(x - 2 * error >= density * width, -math.inf, high)
        else:
            with np.errstate(divide="ignore"):
                low = np.log(-np.expm1(np.minimum(x + error, 0.0)))
                high = np.log(-np.expm1(np.minimum(x - error, 0.0)))
        # Errors of binomials and masses. The error of a sum with a delta is relative to its size.
        size = n * (float(np.abs(self._atoms.log_mass).max()) + 8 + 2 * math.log(n + 1))
        slack = (64 + 8 * size + n) * UNIT + n * self._atoms.relative
        sums: list[Array] = []
        for ends, side in ((low, -1), (high, 1)):
            term = ends + log_w
            slacks = slack + 4 * UNIT * known(term)
            with np.errstate(divide="ignore"):
                sums.append(np.asarray(logsumexp(term + side * slacks, axis=1)))
        return sums[0], sums[1]

    def _draws_at(self, density: int, above: bool, x: Array) -> tuple[Array, Array]:
        """Bound log delta at x for one or two draws from the density, minus their origins."""
        side = _draws(self._loss, self._count, density, self._limits)[0 if above else 1]
        low, high = side.log_deltas(np.maximum(x, 0.0))
        # If x < 0, all draws exceed x: delta is 1 - e^x times their mass, plus e^x times delta at
        # 0. The mass errs like the atoms' mass, plus a unit of 1 for each sum.
        mass = 1 - float(np.exp(self._atoms.log_mass).sum())
        error = density * (self._atoms.relative + 16 * UNIT) / mass
        below = np.minimum(x, 0.0)
        with np.errstate(divide="ignore"):
            gain = np.log(-np.expm1(below)) + density * math.log(mass)
        slack = error + 16 * UNIT * (1 + known(low) + known(high) + known(gain))
        low = np.where(x < 0, np.logaddexp(gain, below + low) - slack, low)
        return low, np.where(x < 0, np.logaddexp(gain, below + high) + slack, high)

    def _by_duality(self, log_levels: Array) -> tuple[Array, Array]:
        if len(log_levels) > self._limits.levels_alone:
            return super()._by_duality(log_levels)
        return near_thresholds(self, self._losses, log_levels, self._largest_tilt)

    def epsilon_near(self, log_delta: float) -> float:
        """Guess the epsilon that has this log delta, by Newton's method."""
        return newton_epsilon(self, self._losses, log_delta, self._supremum)


@array_cache
def _draws(
    loss: PiecewiseAnalyticLoss, count: int, density: int, limits: Limits
) -> tuple[Side, Side]:
    """Bracket one or two draws from the density, minus their origins [CP-3]."""
    masses = loss.point_masses()
    assert masses is not None
    origin = float(masses.place[0])
    width = float(masses.place[-1]) - origin
    tilt = max(1.0, limits.bend / width)
    # Each draw is spread by its variance on a cell. The number of cells is odd, because `contract`
    # also mixes the end cells.
    log_chances = _log_binomial(count, loss.shares(tilt))
    share = math.exp(min(float(log_chances[1:CONTOUR_PARTS].max()), 0.0))
    nodes = math.sqrt(share / (6 * limits.draws_width)) * (tilt + 1) * width
    nodes = 2.0 ** math.ceil(
        math.log2(min(max(nodes, limits.least_draws_cells), limits.most_draws_cells))
    )
    step = width / (nodes + 1)
    # `contract` merges cells that end in the middle between two places [DI-2].
    dots = loss.density_dots(tilt, step / 2, origin)
    sums = [compose([(one, density)]) for one in (spread(dots, step), contract(dots, step))]
    return counted((Side.of(sums[0], tilt), Side.of(sums[1], tilt)))


def _contour(losses: Composition, *, beside: bool) -> PartsContour:
    """Return the contour, alone or as one of several engines."""

    def backward() -> Profile:
        reverse = losses.reverse()
        if not beside:
            return select(reverse)
        return in_question(("parts", reverse), lambda: _contour(reverse, beside=True))

    return PartsContour(losses, backward, release=not beside)


@register(97, "equal losses with atoms and a bounded density, too few for the contour alone")
def _continuous_parts(composition: Composition) -> Profile | None:
    if len(composition.parts) != 1:
        return None
    loss, count = composition.parts[0]
    if not isinstance(loss, PiecewiseAnalyticLoss) or count < 2:
        return None
    atoms = loss.point_masses()
    if atoms is None or len(atoms.place) > 3:
        return None
    if len(atoms.place) == 3 and (atoms.place[1] != 0 or atoms.place[0] != -atoms.place[2]):
        return None
    engines: list[tuple[float, Callable[[], Profile]]]
    # The contour alone certifies its end if the sums of atoms are negligible.
    atoms_left = -count * math.log(loss.shares(0.0).atoms)
    engines = []
    if atoms_left >= LIMITS.contour_efolds:
        engines.append((0.0, lambda: _contour(composition, beside=True)))
    wide = float(atoms.place[-1] - atoms.place[0]) > LIMITS.wide_range
    if count > LIMITS.alone_parts or (atoms_left >= LIMITS.few_parts and not wide):
        width = LIMITS.fair_width if engines else 0.0
        engines.append((width, lambda: ContinuousPartsProfile(composition)))
    if count <= LIMITS.alone_parts:
        width = LIMITS.fair_width if engines else 0.0
        engines.append((width, lambda: parts_lattice(composition)))
    if atoms_left >= LIMITS.grid_efolds or atoms.place[-1] - atoms.place[0] < LIMITS.tiny_range:
        engines.append((LIMITS.wide_width, lambda: contour_profile(composition)))
        engines.append((LIMITS.wide_width, lambda: dots_profile(composition)))
    return CascadeProfile(engines, composition.log_total_variation)
