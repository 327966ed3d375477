"""Change the measure: compute the distribution of a loss under Q, for subsampling.

A loss on a lattice is evaluated under a few tilts. Each tilt covers one part of an unbounded
distribution and bounds the mass that it omits. Discrete Gaussians and finite distributions list
their masses. Smooth pairs give their densities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from neyman.curves.losses.circular_arcs import CircularGaussianLoss
from neyman.curves.losses.discrete_gaussian import DiscreteGaussianLoss
from neyman.curves.losses.finite import OffLatticeLoss
from neyman.curves.losses.gaussian import REACH_DEVIATIONS, GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.loss import WIDE_NODES, WIDE_WEIGHTS, Loss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, Atoms

SEAM_INDICES = 6  # indices on either side of a cut that must agree


@dataclass(frozen=True, eq=False)
class Stretch:
    """Describe an interval low < t < high, in which t has a density under Q.

    The inner loss is ``scale`` t + ``shift``, and ``log_q`` is the log density. ``distance`` and
    ``bend`` are as in `Piece`.
    """

    low: float
    high: float
    scale: float
    shift: float
    distance: float
    log_q: Callable[[Array], Array]
    bend: Callable[[Array, Array | float], Array]
    gain: float  # P(l > 0) - Q(l > 0) on the interval, for the inner loss l


@dataclass(frozen=True, eq=False)
class Base:
    """Hold the distribution under Q of the inner loss l (the loss before sampling).

    Args:
        loss, log_q: losses and log masses of the atoms, shape (n,).
        stretches: intervals of an underlying variable t with a density.
        lost: (t, a, low, high): the mass omitted for low < l < high, weighted by e^{(t + 1) l}, is
            at most e^a [SA-5].
        relative: bound on the relative error of each atom's mass.
        side: 0 for the distribution itself, 1 for one that dominates it, -1 for one that it
            dominates.
        units: the same for each atom, shape (n,), if known.
    """

    loss: Array
    log_q: Array
    stretches: tuple[Stretch, ...] = ()
    lost: tuple[tuple[float, float, float, float], ...] = ()
    relative: float = 0.0
    side: int = 0
    units: Array | None = None


@singledispatch
def law_under_q(inner: Loss, size: float) -> Base:
    """Return the distribution under Q of a loss on a lattice, for tilts up to ``size``.

    Each atom comes from the tilt that resolves it best.
    """
    tilts = [-1.0, 0.0]
    discretized: list[tuple[Atoms, Array]] = []
    centers: list[float] = []
    while len(discretized) < len(tilts):
        t = tilts[len(discretized)]
        atoms = inner.atoms(t)
        place, weight = atoms.points(), atoms.weight
        total = float(weight.sum())
        discretized.append((atoms, place))
        centers.append(float(weight @ place) / total)
        top = float(inner.supremum) - 2 * float(atoms.step)
        most = min(size, 100 / float(atoms.step))  # 100 e-folds a step
        if 0 <= t < most and place[-1] < top:
            deviation = math.sqrt(float(weight @ (place - centers[-1]) ** 2) / total)
            near = t * deviation < 60  # standard deviations; the next tilt is 12 farther out
            tilts.append(min(t + 12 / max(deviation, 1e-9), most) if near else most)
    # Cut between the centers, by index: each atom must count exactly once.
    first, step, side = discretized[0][0], float(discretized[0][0].step), getattr(inner, "side", 0)
    ends: list[tuple[float, float]] = []
    low = -math.inf
    for k in range(len(discretized) - 1):
        middle = 0.5 * (centers[k] + centers[k + 1]) - float(first.offset)
        cut, good = _agreement_index(
            tilts[k : k + 2], discretized[k : k + 2], math.ceil(middle / step)
        )
        overlap = 0 if good or not side else SEAM_INDICES * side
        ends.append((low, cut + overlap))
        low = cut - overlap
    ends.append((low, math.inf))
    places: list[Array] = []
    log_qs: list[Array] = []
    lost: list[tuple[float, float, float, float]] = []
    relative = 0.0
    for t, (atoms, place), (low, high) in zip(tilts, discretized, ends, strict=True):
        index = atoms.start + np.arange(len(place))
        mask = (atoms.weight > 0) & (index >= low) & (index < high)
        places.append(place[mask])
        log_qs.append(_log_q(t, atoms, place)[mask])
        size_of = abs(atoms.log_scale) + (abs(t) + 2) * float(np.abs(place).max())
        off = (abs(t) + 2) * atoms.drift  # a step that is not a float errs once for each place
        relative = max(relative, atoms.relative + 4 * UNIT * (8 + size_of) + off)  # slack: open
        if atoms.tail:
            bottom, top = (float(first.offset) + step * x for x in (low, high))
            if high == math.inf and t < size:  # the largest loss, at most 1e9
                top = min(float(inner.supremum), 1e9)  # beyond it, nothing is claimed
            lost.append((t, math.log(atoms.tail) + atoms.log_scale, bottom, top))
    return Base(np.concatenate(places), np.concatenate(log_qs), (), tuple(lost), relative, side)


def _log_q(tilt: float, atoms: Atoms, place: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(atoms.weight) + (atoms.log_scale - (tilt + 1) * place)


def _agreement_index(
    tilts: list[float], discretized: list[tuple[Atoms, Array]], near: int
) -> tuple[int, bool]:
    """Return a lattice index near ``near`` around which the atoms of two tilts agree, and True.

    Rounding of losses to the grid may differ between tilts, in a few indices per atom. If all agree
    around a cut, the cut splits no atom. Return ``near`` and False if there is no such index.
    """
    (a, a_place), (b, b_place) = discretized
    low = max(a.start, b.start, near - 200)
    high = min(a.start + len(a), b.start + len(b), near + 200)
    if high - low < 2 * SEAM_INDICES:
        return near, False
    with np.errstate(invalid="ignore"):
        apart = _log_q(tilts[0], a, a_place)[low - a.start : high - a.start]
        apart = apart - _log_q(tilts[1], b, b_place)[low - b.start : high - b.start]
    both_empty = np.isnan(apart)
    same = both_empty | (np.abs(apart) < 1e-7)
    run = np.convolve(same, np.ones(2 * SEAM_INDICES), "valid") == 2 * SEAM_INDICES
    if not run.any():
        return near, False
    cuts = low + SEAM_INDICES + np.nonzero(run)[0]
    return int(cuts[np.argmin(np.abs(cuts - near))]), True


@law_under_q.register
def _(inner: DiscreteGaussianLoss, size: float) -> Base:
    """Return the masses by their formula, up to 40 sigma. Farther mass counts as lost [FV-5]."""
    s2, shift = float(inner.sigma_squared), inner.shift
    sigma = math.sqrt(s2)
    # A tilt of this size moves the distribution by at most (size + 2) shift. Beyond 26 more sigma,
    # less than e^-337 of it remains.
    end = (size + 2) * shift + REACH_DEVIATIONS * sigma
    dense = min(end, (14 + REACH_DEVIATIONS) * sigma + 20 * shift)  # each mass up to here is listed
    x = np.arange(-math.ceil(REACH_DEVIATIONS * sigma) - 1, math.ceil(dense) + 2, dtype=float)
    step = float(inner.step or 0)
    place = step * (x - 0.5 * shift)
    exponent = x * x / (2 * s2)
    log_total = math.log(float(np.exp(-exponent).sum()))
    # slack: open
    units = (4 * exponent + 72) * UNIT  # NumPy's pairwise sum errs by 40
    lost = [(-1.0, -337.0, -math.inf, float(place[0]))]
    edge = float(x[-1])
    if dense < end:
        edges = np.geomspace(edge, end, 300)
        log_mass = np.log(np.diff(edges) + 1) - edges[:-1] ** 2 / (2 * s2) * (1 - 1e-9)
        ends = step * (edges - 0.5 * shift)
        places = ends.tolist()
        lost += [(-1.0, *x) for x in zip(log_mass.tolist(), places[:-1], places[1:], strict=True)]
        edge = end
    t = (edge - REACH_DEVIATIONS * sigma) / shift - 1
    lost.append((t, t * (t + 1) * shift**2 / (2 * s2) - 337, step * (edge - 0.5 * shift), math.inf))
    return Base(place, -exponent - log_total, (), tuple(lost), float(units.max()), 0, units)


@law_under_q.register
def _(inner: OffLatticeLoss, size: float) -> Base:
    """Return the values with their masses."""
    value, log_p = np.array(inner.values), np.array(inner.log_p)
    # A value errs by 4 relative units, its log mass by 2 relative units, the difference by one.
    units = 8 * UNIT * (1 + np.abs(log_p) + np.abs(value))  # slack: open
    return Base(value, log_p - value, (), (), float(units.max()), 0, units)


@law_under_q.register
def _(inner: LaplaceLoss, size: float) -> Base:
    """Return the distribution under Q of a Laplace loss l with epsilon a.

    It has atoms 1/2 at -a and e^-a / 2 at a, and the density e^{-(l + a) / 2} / 4 between them.
    """
    a = inner.epsilon
    stretch = Stretch(
        -a,
        a,
        1.0,
        0.0,
        1.0,
        lambda t: -(t + a) / 2 - math.log(4),
        lambda t, near: np.full_like(t, 0.5),
        math.expm1(-a / 2) ** 2 / 2,
    )
    log_half = -math.log(2)
    return Base(np.array([-a, a]), np.array([log_half, log_half - a]), (stretch,))


@law_under_q.register
def _(inner: GaussianLoss, size: float) -> Base:
    """Return the density of t ~ N(0, 1) under Q, with L = mu t - mu^2 / 2."""
    mu = inner.mu
    room = min(1.0, 1 / mu)
    stretch = Stretch(
        -math.inf,
        math.inf,
        mu,
        -mu * mu / 2,
        room,
        lambda t: -t * t / 2 - 0.5 * math.log(math.tau),
        lambda t, near: np.abs(t) + room / 4 + near,
        math.erf(mu / math.sqrt(8)),
    )
    return Base(np.zeros(0), np.zeros(0), (stretch,))


@law_under_q.register
def _(inner: CircularGaussianLoss, size: float) -> Base:
    """Return two arcs with L = m s, as far as tilts of this size need them [CI-4]."""
    stretches: list[Stretch] = []
    lost: list[tuple[float, float, float, float]] = []
    top, log_total = inner.top, inner.log_total
    for m, half in inner.support:
        end, room = inner.cut(m, half, size), min(1.0, 1 / m)

        def log_q(s: Array, m: float = m) -> Array:
            return -((s + m / 2) ** 2) / 2 - log_total

        def bend(s: Array, near: Array | float, m: float = m, room: float = room) -> Array:
            return np.abs(s + m / 2) + room / 4 + near

        reach = min(end, m / 2 + REACH_DEVIATIONS)
        panels = 1 + math.ceil(reach * (1 + m / 2))
        s = reach / panels * (np.arange(panels)[:, None] + WIDE_NODES)
        gain = float((np.exp(log_q(-s)) * -np.expm1(-m * s) @ WIDE_WEIGHTS).sum()) * reach / panels
        stretches.append(Stretch(-end, end, m, 0.0, room, log_q, bend, gain))
        if end < half:
            below, above = (-((end + side * m / 2) ** 2) / 2 - log_total for side in (-1, 1))
            # The lower end under Q, the upper end under the steepest tilt.
            lost.append((-1.0, below, -top, -m * end))
            lost.append((size, above + (size + 1) * m * end, m * end, top))
    lost += [(-1.0, log_mass, -top, top) for log_mass in inner.lost_arcs]
    return Base(np.zeros(0), np.zeros(0), tuple(stretches), tuple(lost), inner.relative)


@law_under_q.register
def _(inner: NonPrivateLoss, size: float) -> Base:
    """Return an empty distribution: no outcome is possible under both."""
    return Base(np.zeros(0), np.zeros(0))
