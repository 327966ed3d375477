"""Compute with losses given by the distribution of an outcome: atoms, and analytic stretches.

A subclass describes its distribution (`PiecewiseDistribution`). This module answers the engines by
quadrature. Take a panel of width h with an exponent whose derivative is at most W / h, also within
a distance D of the panel in the complex plane. Then n Gauss-Legendre nodes err, relative to the
panel's mass, by at most 4.4 e^{W (r/4 + 1)} r^{-2(n-1)} for every r in (2, 4D/h] (Trefethen,
Approximation Theory and Approximation Practice, theorem 19.3: r is the parameter of an ellipse
inside that distance).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from neyman.curves.losses.loss import Loss, TiltedValues
from neyman.numerics.array_cache import array_cache, counted
from neyman.numerics.arrays import Array, dot
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p, rounding, wave_sum
from neyman.numerics.decay import by_moments, by_pieces
from neyman.numerics.discretization import Discretization
from neyman.numerics.operations import CALL, cells, charge
from neyman.numerics.power_sums import multinomial, ways

Function = Callable[[Array], Array]
Bound = Callable[[Array, Array | float], Array]
# Nodes of a panel, and the largest change of the exponent on the panel. With h <= D / 2 the rule
# errs by less than 1e-18 with r = 8. The second rule is for waves [PA-1].
RULE, LONG_RULE = (16, 6.0), (32, 20.0)
NODE_ERROR = 1e-15  # of Gauss-Legendre nodes and weights as NumPy computes them
LARGEST_LOSS, LARGEST_BEND = 300.0, 1e100  # with rays: e^l and the bend's square are floats
PHASE_STARTS = 16  # heights whose waves are in one array
OVERLAP_SHARE = 1e-6  # largest overlap of two ranges that meet, relative to a range


LEAST_LOG_SHARE = -100.0  # log of a share below which a value is left out of a list of sums


@dataclass(frozen=True, eq=False)
class Piece:
    """Describe a stretch of outcomes t in (low, high) on which the loss is monotone.

    Args:
        low, high: finite ends.
        distance: D, up to which the bounds below hold.
        loss: value of the loss, to relative accuracy.
        log_p: logarithm of P's density in t.
        slope: |d loss / dt| on the real line.
        speed, bend: bounds on |d loss / dt| and |d log_p / dt| within a distance d <= D, in the
            complex plane, of any point within D / 4 of t.
        place: the t at which the loss takes a value.
    """

    low: float
    high: float
    distance: float
    loss: Function
    log_p: Function
    slope: Function
    speed: Bound
    bend: Bound
    place: Function


@dataclass(frozen=True, eq=False)
class PiecewiseDistribution:
    """Describe the distribution of a loss under P, as far as tilts up to some size need it.

    Args:
        loss, log_p: atoms, shape (n,).
        pieces: stretches; their ranges of the loss may overlap.
        lost: (a, l): omitted mass, at most e^{a + c l} under a tilt c of this size.
        relative: bound on the relative error of each atom's mass.
        normalized: True if all masses sum to 1 - infinite (a lower side may have less).
        units: the relative error of each single atom's mass, if known.
        moves: the relative error of each atom's loss, if known.
    """

    loss: Array
    log_p: Array
    pieces: tuple[Piece, ...] = ()
    lost: tuple[tuple[float, float], ...] = ()
    relative: float = 0.0
    normalized: bool = True
    units: Array | None = None
    moves: Array | None = None


@dataclass(frozen=True)
class UprightEnd:
    """Describe a density of the loss on the upright ray from one end of its stretch [CP-1].

    At the end plus i y, 0 <= y < pi, the density is its value at the end times

        e^{i slope y} (1 + bend (e^{i sign y} - 1))^{-3/2}.

    Args:
        place: the loss at the end.
        log_density: the logarithm of the density of P there.
        relative: the relative error of this density, here and on the ray, due to the bend's error.
        bend: at least 1.
        slope, sign: as in the formula; the sign is 1 or -1, the slope at most 2 in size.
        above: whether the stretch is above the end.
    """

    place: float
    log_density: float
    relative: float
    bend: float
    slope: float
    sign: float
    above: bool


def upright_ends(
    inner: tuple[float, float],
    value: tuple[float, float],
    rate: float,
    power: int,
    log_factor: float,
) -> tuple[UprightEnd, ...]:
    """Return both ends of a stretch of Laplace noise on a sample, with the loss +-g(l) + constant.

    With g(l) = log(1 - q + q e^l), the density in g is e^{log_factor - 3 l / 2 + power g} / (4 q).

    Args:
        inner: the least and the largest l of the stretch.
        value: the losses there.
        rate: q, in (0, 1].
        power: 2 for the density of the mixture, 1 for that of the noise.
        log_factor: logarithm of a constant factor.
    """
    if max(inner) > LARGEST_LOSS or (1 - rate) / rate * math.exp(-inner[0]) > LARGEST_BEND:
        return ()
    sign = math.copysign(1.0, value[1] - value[0])
    ends: list[UprightEnd] = []
    for t, place in zip(inner, value, strict=True):
        g = math.log(1 - rate + rate * math.exp(t))
        log_density = log_factor - math.log(4 * rate) - 1.5 * t + power * g
        # g is only accurate to units of 1. Each other term errs by 2 units, a sum by one. The bend
        # errs by |t| + 8 units, and the density by three times as much [CP-2].
        size = abs(log_factor) + abs(math.log(4 * rate)) + 3 * abs(t) + 4 * abs(g) + 16
        bend = 1 + (1 - rate) / rate * math.exp(-t)
        ends.append(
            UprightEnd(
                place,
                log_density,
                4 * UNIT * size,  # slack: counted
                bend,
                sign * power,
                sign,
                (t == inner[0]) == (sign > 0),
            )
        )
    return tuple(ends)


class PiecewiseAnalyticLoss(Loss):
    """Represent a loss by its distribution."""

    def upright(self) -> tuple[UprightEnd, ...]:
        """Return both ends of each stretch of the density; none if rays from them are unknown."""
        return ()

    @abstractmethod
    def law(self, size: float) -> PiecewiseDistribution:
        """Return the distribution, for tilts c with -1 - size <= c <= size."""

    @property
    def log_top(self) -> float:
        """Return the log of the highest atom's mass, or -inf if mass is above the atom."""
        law = _law(self, 1.0)
        # Both are the same function at the same end, accurate to 8 units.
        # slack: counted
        if not len(law.loss) or law.lost or _range(law)[1] > law.loss.max() * (1 + 8 * UNIT):
            return -math.inf
        log_p = float(law.log_p[np.argmax(law.loss)])
        # slack: the_mass_of_the_largest_loss_that_is_sampled
        return log_p - 2 * law.relative - 4 * UNIT * abs(log_p)  # a sum of logarithms

    def places(self, tilt: float, height: float) -> float:
        """Estimate the number of terms of K(tilt + i height): atoms plus quadrature nodes.

        The wave e^{i height l} turns by ``height`` times the range of the density's losses l. So
        the nodes grow with ``height`` and this range, and a small range needs few.
        """
        law = _law(self, _size(tilt))
        if not law.pieces:
            return float(len(law.loss))
        ends = [np.array([piece.low, piece.high]) for piece in law.pieces]
        moves = [abs(float(np.diff(p.loss(t))[0])) for p, t in zip(law.pieces, ends, strict=True)]
        turns = min(math.fsum(moves), 1.0)
        return len(law.loss) + 200.0 + (4 * height + 30 * abs(tilt)) * turns

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) by quadrature. Complex z are on one vertical line and share nodes."""
        z = np.atleast_1d(z)
        if not np.iscomplexobj(z):
            return np.array([_tilt_density(self, float(c), 0.0).log_mgf for c in z])
        line = _on_line(self, z)
        return line.log_mgf + log1p(wave_sum(line.loss, line.p, np.imag(z)))

    def mgf_rounding(self, z: Array) -> Array:
        """Return omitted mass, plus the quadrature's error, plus units per exponent and sum."""
        z = np.atleast_1d(z)
        if not np.iscomplexobj(z):
            return np.array([_tilt_density(self, float(c), 0.0).error for c in z])
        line = _on_line(self, z)
        u = np.imag(z)
        apart = np.minimum(2 * line.blur, np.abs(u) * line.sway)
        return line.error + apart + np.abs(u) * line.turn + rounding(line.loss, line.p, u)

    def tilted_values(self, tilt: float) -> TiltedValues | None:
        if _law(self, _size(tilt)).pieces:
            return None
        t = _tilt_density(self, tilt, 0.0)
        lost = tuple((a + tilt * x - t.log_mgf, x) for a, x in t.law.lost)
        return TiltedValues(t.loss, t.log_share, t.units, t.moves, t.log_mgf, t.error, lost)

    @property
    def value_count(self) -> float:
        """Return the number of values; inf with a density."""
        law = _law(self, 1.0)
        return math.inf if law.pieces else float(len(law.loss))

    def sum_size(self, count: int, *, truncated: bool = False) -> float:
        values = self.tilted_values(0.0)
        if values is None or not _law(self, 1.0).normalized:
            return math.inf
        likely = max(int(np.count_nonzero(values.log_p > LEAST_LOG_SHARE)), 1)
        return ways(count, likely) if count + likely < 1000 or likely < 3 else math.inf

    def sum_atoms(self, count: int, tilt: float, least: float) -> Discretization:
        # Multinomial weights of the shares under the tilt, which hardly miss a sum of 1 [FV-4].
        values = self.tilted_values(tilt)
        assert values is not None
        order = np.argsort(values.place)
        used = order[values.log_p[order] > LEAST_LOG_SHARE]
        left = float(np.exp(values.log_p[values.log_p <= LEAST_LOG_SHARE]).sum()) + math.fsum(
            math.exp(min(log_share, 700.0)) for log_share, _ in values.lost
        )
        place = values.place[used]
        off = float(np.max((values.moves[used] + 8 * UNIT) * np.abs(place)))  # slack: counted
        # A share errs with its mass and with the sum of all masses.
        finite, relative = math.log1p(-min(left, 0.5)), 2 * float(values.units[used].max())
        sums = multinomial(place, 1.0, values.log_p[used], count, 0.0, off, finite, relative)
        log_scale = count * values.log_mgf
        # Each K errs, and so does what the listed values miss.
        error = count * (values.error + 2 * left) + 4 * UNIT * abs(log_scale)  # slack: counted
        return replace(
            sums,
            tilt=tilt,
            log_scale=sums.log_scale + log_scale,
            tail=sums.tail + 1.01 * count * left * math.exp(min(-sums.log_scale, 700.0)),
            relative=sums.relative + error,
        )

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Return K, mean, and variance of the tilted loss. Tilts share nodes if few are enough."""
        out = np.empty((3, len(tilts)))
        for size in {_size(float(c)) for c in tilts}:
            mine = [_size(float(c)) == size for c in tilts]
            nodes = self._rough_nodes(size)
            if nodes is not None:
                out[:, mine] = nodes.moments(tilts[mine])
            else:
                each = [_tilt_density(self, float(c), 0.0) for c in tilts[mine]]
                out[:, mine] = np.array([(t.log_mgf, t.mean, t.variance) for t in each]).T
        return out[0], out[1], out[2]

    def _rough_nodes(self, size: float) -> _RoughNodes | None:
        return _rough_nodes(self, size)

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        """Bound the decay by moments, by the density's least values, and by its variation [PA-2].

        A density of variation V on a stretch, with the values f and g at its ends, has a
        characteristic
        function of at most (f + g + V) / |u|, and at most its mass. Atoms keep their masses.
        """
        tilted = _tilt_density(self, tilt, 0.0)
        best = self._decay_by_moments(tilt, edges)
        if not tilted.law.pieces:  # atoms never decay
            return best
        places, mass, rough, share = tilted.density
        far = tilted.atoms + np.minimum(rough / edges, share) + tilted.lost
        with np.errstate(divide="ignore"):
            best = np.minimum(best, np.log(np.minimum(far * (1 + 1e-9), 1.0)))
        return np.minimum(best, by_pieces(places, mass, edges, best > enough))

    def _decay_by_moments(self, tilt: float, edges: Array) -> Array:
        """Return bounds as `decay` does, sharp near 0."""
        tilted = _tilt_density(self, tilt, 0.0)
        return by_moments(tilted.variance * (1 - 1e-6), tilted.fourth * (1 + 1e-6), edges)

    def dots(self, tilt: float, step: float) -> Discretization:
        """Return atoms, and nodes in panels that end at multiples of ``step`` of the loss."""
        law = self.law(_size(tilt))
        scale = _tilt_density(self, tilt, 0.0).log_mgf
        exponent = tilt * law.loss + law.log_p - scale
        return _nodes_of_law(law, tilt, step, scale, (law.loss, exponent, law.log_p))

    def phases(self, tilt: float, start: Array, offset: Array) -> tuple[float, Array, Array]:
        """Return K(tilt), and phi - 1 and its errors at heights start + offset [PA-1].

        The arrays have the shape (starts, offsets). Errors are those of M(z) e^{-K(tilt)}.
        """
        u = np.add.outer(start, offset)
        line = _on_line(self, tilt + 1j * u.ravel())
        size = len(line.p)
        cells(float(size * (PHASE_STARTS + len(offset))))
        charge(3 * CALL + 60 * size * (len(start) + len(offset)) + size * u.size)
        near = np.expm1(1j * np.multiply.outer(offset, line.loss)).T
        rest = line.p @ near
        moved = np.empty(u.shape, complex)
        for first in range(0, len(start), PHASE_STARTS):
            part = slice(first, first + PHASE_STARTS)
            far = np.expm1(1j * np.multiply.outer(start[part], line.loss))
            # e^{a + b} - 1 = (e^a - 1) e^b + (e^b - 1), as in `wave_sum`.
            moved[part] = (far * line.p) @ (near + 1) + rest
        error = line.error + np.minimum(2 * line.blur, u * line.sway) + u * line.turn
        return line.log_mgf, moved, error + 2 * rounding(line.loss, line.p, u)

    def point_masses(self) -> PointMasses | None:
        """Return the atoms, if there are at least two and all other mass is between them."""
        law = _law(self, 1.0)
        if len(law.loss) < 2 or not law.pieces or law.lost or self.infinite:
            return None
        order = np.argsort(law.loss)
        place, log_mass = law.loss[order], law.log_p[order]
        # slack: counted
        slack = 8 * UNIT * float(np.abs(place).max())  # error of both
        low, high = _range(law)
        if low < place[0] - slack or high > place[-1] + slack:
            return None
        # slack: counted
        moves = np.full(len(place), 8 * UNIT) if law.moves is None else law.moves[order]
        return PointMasses(place, log_mass, law.relative, float(np.max(moves * np.abs(place))))


@dataclass(frozen=True, eq=False)
class PointMasses:
    """Hold the atoms of a distribution.

    Args:
        place: losses in increasing order.
        log_mass: logarithms of their masses under P.
        relative: bound on the relative error of each mass.
        place_error: bound on the error of each loss.
    """

    place: Array
    log_mass: Array
    relative: float
    place_error: float


def _range(law: PiecewiseDistribution) -> tuple[float, float]:
    """Return the least and the largest loss of the stretches."""
    ends = [piece.loss(np.array([piece.low, piece.high])) for piece in law.pieces]
    return (float(np.min(ends)), float(np.max(ends))) if ends else (math.inf, -math.inf)


def _nodes_of_law(
    law: PiecewiseDistribution,
    tilt: float,
    step: float,
    scale: float,
    atoms: tuple[Array, Array, Array],
) -> Discretization:
    """Return atoms (loss, exponent, log mass), and nodes in panels at n ``step``."""
    loss, exponent, size = ([part] for part in atoms)
    tail = 1e-290
    for piece in law.pieces:
        edges, left_out, move = _panels(piece, tilt, 0.0, RULE[1])
        tail += math.exp(min(left_out - scale, 700.0))
        ends: list[float] = np.sort(piece.loss(edges[[0, -1]])).tolist()
        first, last = (x / step for x in ends)
        cells(RULE[0] * (last - first))
        charge(2000 * (last - first))
        grid = step * np.arange(math.floor(first) + 1, math.ceil(last))
        inner = np.sort(piece.place(grid[(grid > ends[0]) & (grid < ends[1])]))
        inner = inner[(inner > edges[0]) & (inner < edges[-1])]
        edges = np.unique(np.concatenate([edges, inner]))
        width = float(np.diff(edges).max())
        order = _order(width, move * width, piece.distance)
        cells(len(edges) * order)
        charge(CALL + 250 * len(edges) * order)
        t, gauss = panel_nodes(edges, order)
        loss.append(piece.loss(t))
        size.append(piece.log_p(t))
        exponent.append(tilt * loss[-1] + size[-1] + np.log(gauss) - scale)
    losses, exponents, sizes = (np.concatenate(x) for x in (loss, exponent, size))
    keep = exponents > exponents.max() - 700
    order = np.argsort(losses[keep], kind="stable")
    losses, exponents, sizes = (x[keep][order] for x in (losses, exponents, sizes))
    most = float(np.max(np.abs(sizes) + abs(tilt) * np.abs(losses)))
    return Discretization(
        losses,
        np.exp(exponents),
        tilt,
        scale,
        tail + math.fsum(math.exp(min(a + tilt * x - scale, 700.0)) for a, x in law.lost),
        # slack: atoms_of_a_pair_that_is_sampled
        law.relative + 4 * UNIT * (most + abs(scale) + 8) + 4 * NODE_ERROR,
    )


@dataclass(frozen=True, eq=False)
class _Tilted:
    """Hold nodes of a distribution under a tilt, and derived values."""

    law: PiecewiseDistribution
    tilt: float
    loss: Array
    p: Array
    log_share: Array  # log p
    units: Array  # relative error of p
    moves: Array  # relative error of the atoms' losses, where it is more than a few units
    log_mgf: float
    error: float  # relative error of e^K
    blur: float  # mean of ``units``
    sway: float  # mean of |loss| times ``units``
    turn: float  # mean error of the atoms' losses, where it is more than a few units
    atoms: float  # the share of the atoms
    lost: float
    mean: float
    variance: float
    fourth: float  # E(L - L')^4

    @cached_property
    def density(self) -> tuple[Array, Array, float, float]:
        """Return uniform parts below the tilted density, its ends plus variation, and its mass."""
        places: list[Array] = []
        masses: list[Array] = []
        rough = 0.0
        stretches: list[tuple[Array, Array]] = []
        for piece in self.law.pieces:
            edges, _, _ = _panels(piece, self.tilt, 0.0, RULE[1])
            span = float(edges[-1] - edges[0])
            count = max(160, math.ceil(2 * span / piece.distance)) + 1
            t = np.linspace(float(edges[0]), float(edges[-1]), count)
            h = t[1] - t[0]
            place, slope = piece.loss(t), np.maximum(piece.slope(t), 1e-300)
            log_f = piece.log_p(t) + self.tilt * place - self.log_mgf - np.log(slope)
            middle = 0.5 * (t[1:] + t[:-1])
            # The slope is of g(l) = log(1 - q + q e^l), or of a sum of such: d log g' / dl <= 1.
            steep = (
                abs(self.tilt) * piece.speed(middle, 0.0)
                + piece.bend(middle, 0.0)
                + 2 / piece.distance
            )
            f = np.exp(np.minimum(log_f, 600.0))
            least = np.exp(np.minimum(0.5 * (log_f[1:] + log_f[:-1]) - 0.5 * h * steep, 600.0))
            most = np.exp(np.minimum(0.5 * (log_f[1:] + log_f[:-1]) + 0.5 * h * steep, 600.0))
            rough += float(f[0] + f[-1]) + float((most * np.minimum(h * steep, 700.0)).sum())
            # slack: open
            width = np.maximum(np.abs(np.diff(place)) - 8 * UNIT * np.abs(place[1:]), 0.0)
            mass = least * width * (1 - 1e-9)
            if place[-1] < place[0]:
                place, mass = place[::-1], mass[::-1]
            stretches.append((place, mass))
        for place, mass in sorted(_separate_ranges(stretches), key=lambda s: float(s[0][0])):
            if places:  # no mass between two stretches
                masses.append(np.zeros(1))
            places.append(place)
            masses.append(mass)
        together = np.maximum.accumulate(np.concatenate(places))
        # The mass is 1 minus the atoms. Sums over the places would miss mass so close to a place
        # that floats cannot separate the two.
        return together, np.concatenate(masses), rough, max(1.0 - self.atoms, 0.0)


def _separate_ranges(stretches: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """Return the stretches with most mass whose ranges overlap by rounding at most."""
    chosen: list[tuple[Array, Array]] = []
    for place, mass in sorted(stretches, key=lambda s: -float(s[1].sum())):
        least = OVERLAP_SHARE * float(place[-1] - place[0])
        if all(min(place[-1], x[-1]) - max(place[0], x[0]) <= least for x, _ in chosen):
            chosen.append((place, mass))
    return chosen


def _size(tilt: float) -> float:
    """Return a power of two that covers the tilt. Distributions are computed for this size."""
    return 2.0 ** math.ceil(math.log2(max(abs(tilt), 1.0)))


def _on_line(loss: PiecewiseAnalyticLoss, z: Array) -> _Tilted:
    reach = float(np.abs(np.imag(z)).max())
    reach = 2.0 ** math.ceil(math.log2(reach)) if reach > 1e-300 else 0.0
    return _tilt_density(loss, float(z[0].real), reach)


@array_cache
def _law(loss: PiecewiseAnalyticLoss, size: float) -> PiecewiseDistribution:
    return loss.law(size)


@array_cache
def _rough_nodes(loss: PiecewiseAnalyticLoss, size: float) -> _RoughNodes | None:
    return _RoughNodes.of(_law(loss, size), size, loss.infinite)


@dataclass(frozen=True, eq=False)
class _RoughNodes:
    """Hold nodes of a distribution that tilts of at most some size share; uncertified.

    Args:
        place, log_p: losses, and logarithms of their weights under P.
        infinite: mass of infinite loss, if all masses with it add to 1; else None.
    """

    place: Array
    log_p: Array
    infinite: float | None

    @staticmethod
    def of(law: PiecewiseDistribution, size: float, infinite: float) -> _RoughNodes | None:
        """Return nodes in panels that suit the largest tilt, or None if there are many panels."""
        places, logs = [law.loss], [law.log_p]
        for piece in law.pieces:
            edges, _, _ = _panels(piece, size, 0.0, RULE[1], math.inf)
            if len(edges) > 400:
                return None
            t, gauss = panel_nodes(edges, 12)
            places.append(piece.loss(t))
            logs.append(piece.log_p(t) + np.log(gauss))
        place, log_p = np.concatenate(places), np.concatenate(logs)
        finite = np.isfinite(place) & np.isfinite(log_p)
        return _RoughNodes(place[finite], log_p[finite], infinite if law.normalized else None)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Estimate K, mean, and variance under each tilt."""
        charge(CALL + 50 * len(tilts) * len(self.place))
        move = np.multiply.outer(tilts, self.place)
        g = move + self.log_p
        top = g.max(axis=1, keepdims=True)
        weight = np.exp(g - top)
        total = weight.sum(axis=1)
        k = top[:, 0] + np.log(total)
        small = np.abs(k) < 1
        if self.infinite is not None and small.any():  # K near 0, to relative accuracy
            flat, moved = np.exp(self.log_p), move[small]
            gain = flat * np.expm1(np.minimum(moved, 700.0))
            far = moved > 700.0  # a mass that underflows times a factor that overflows
            gain[far] = np.exp(g[small][far])
            k[small] = np.log1p(np.maximum(gain.sum(axis=1) - self.infinite, -0.99))
        mean = (weight * self.place).sum(axis=1) / total
        away = self.place - mean[:, None]
        return k, mean, (weight * away**2).sum(axis=1) / total


@array_cache
def _tilt_density(loss: PiecewiseAnalyticLoss, tilt: float, reach: float) -> _Tilted:
    law = _law(loss, _size(tilt))
    places, plain = [law.loss], [law.log_p]
    dropped: list[float] = []
    for piece in law.pieces:
        order, most = LONG_RULE if reach > 200 else RULE
        edges, left_out, _ = _panels(piece, tilt, reach, most)
        cells(len(edges) * order)
        t, gauss = panel_nodes(edges, order)
        places.append(piece.loss(t))
        plain.append(piece.log_p(t) + np.log(gauss))
        dropped.append(left_out)
    place, log_plain = np.concatenate(places), np.concatenate(plain)
    move = tilt * place
    g = move + log_plain
    top = float(g.max())
    weight = np.exp(g - top)
    total = float(weight.sum())
    p = weight / total
    finite = np.isfinite(log_plain)
    exponents = np.where(finite, np.abs(move) + np.abs(np.where(finite, log_plain, 0.0)), 0.0) + 8
    moves = np.zeros(len(place))
    if law.moves is not None:
        moves[: len(law.moves)] = law.moves
    exponents += np.abs(move) * moves / UNIT  # slack: open
    spread = dot(p, exponents) + abs(top) + len(p)
    if law.normalized and abs(top) < 5:
        # M - 1 to relative accuracy: all finite losses have the mass 1 - infinite.
        flat = np.exp(log_plain)
        with np.errstate(over="ignore"):
            gain = np.where(
                np.abs(move) < 1, flat * np.expm1(np.clip(move, -1, 1)), np.exp(g) - flat
            )
        excess = float(gain.sum()) - loss.infinite
        log_mgf = math.log1p(excess)
        size = np.abs(gain)
        units = dot(size, exponents) + float(size.sum()) * (len(p) + 32)
        # slack: open
        share = (float(size.sum()) * (law.relative + 4 * NODE_ERROR) + units * UNIT) / (1 + excess)
    else:
        log_mgf = top + math.log(total)
        share = law.relative + 4 * NODE_ERROR + (spread + 16) * UNIT  # slack: open
    logs = [*dropped, *(a + tilt * x for a, x in law.lost)]
    lost = math.fsum(math.exp(min(x - log_mgf, 700.0)) for x in logs)
    # slack: open
    rough = law.relative + 4 * NODE_ERROR + (4 * exponents + abs(top) + len(p)) * UNIT
    mean = dot(p, place)
    square = (place - mean) ** 2
    variance = dot(p, square)
    tilted = _Tilted(
        law,
        tilt,
        place,
        p,
        g - (top + math.log(total)),
        rough,
        moves,
        log_mgf,
        2 * (share + lost),
        dot(p, rough),
        dot(p, rough * np.abs(place)),
        dot(p, moves * np.abs(place)),
        float(p[: len(law.loss)].sum()),
        lost,
        mean,
        variance,
        2 * dot(p, square**2) + 6 * variance**2,
    )
    return counted(tilted)


def _panels(
    piece: Piece, tilt: float, reach: float, move: float, drop: float = 60.0
) -> tuple[Array, float, float]:
    """Return edges of panels on which the exponent moves by at most ``move`` up to a height.

    Panels below e^-drop are omitted at both ends. The second result is the log of their mass. The
    third
    bounds the exponent's derivative within D.
    """
    count = max(1, math.ceil((piece.high - piece.low) / (piece.distance / 2)))
    cells(count)
    charge(CALL + 100.0 * count)
    edges = np.linspace(piece.low, piece.high, count + 1)
    h = (piece.high - piece.low) / count
    t = 0.5 * (edges[1:] + edges[:-1])
    exponent = piece.log_p(t)
    exponent = np.maximum(exponent, exponent + tilt * piece.loss(t))
    most = exponent + h * (abs(tilt) * piece.speed(t, 0.0) + piece.bend(t, 0.0))
    keep = np.nonzero(most > exponent.max() - drop)[0]
    first, last = int(keep[0]), int(keep[-1]) + 1
    outside = np.concatenate([most[:first], most[last:]])
    dropped = -math.inf
    if len(outside):
        top = float(outside.max())
        dropped = top + math.log(h * float(np.exp(outside - top).sum()))
    # For r = 8 a panel needs a distance of two widths. Narrow panels need the bounds only at a
    # small distance, at which they are smaller.
    t, near = t[first:last], np.full(last - first, piece.distance)
    parts, height = near, math.hypot(tilt, reach)
    steepest = float((height * piece.speed(t, near) + piece.bend(t, near)).max())
    for _ in range(3):
        steep = height * piece.speed(t, near) + piece.bend(t, near)
        parts = np.maximum(np.ceil(h * steep / move), np.ceil(2 * h / near))
        near = np.minimum(piece.distance, 4 * h / parts)
    cells(8 * float(parts.sum()))
    charge(CALL + 100 * float(parts.sum()))
    parts = parts.astype(int)
    start, width = np.repeat(edges[first:last], parts), np.repeat(h / parts, parts)
    within = np.arange(len(start)) - np.repeat(np.cumsum(parts) - parts, parts)
    nodes = np.append(start + within * width, edges[last])
    return nodes, dropped, steepest


def panel_nodes(edges: Array, order: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes between the edges, and their weights."""
    node, weight = rule(order)
    width = np.diff(edges)[:, None]
    return (edges[:-1, None] + width * node).ravel(), (width * weight).ravel()


@array_cache
def rule(order: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes on (0, 1), and their weights."""
    node, weight = np.polynomial.legendre.leggauss(order)
    return (node + 1) / 2, weight / 2


def _order(width: float, move: float, distance: float) -> int:
    """Return the least number of nodes that errs by less than 1e-17 for this width and move."""
    r = np.geomspace(2.001, max(4 * distance / width, 2.1), 60)
    for order in (3, 4, 5, 6, 8, 12):
        error = math.log(4.4) + move * (r / 4 + 1) - 2 * (order - 1) * np.log(r)
        if float(error.min()) < math.log(1e-17):
            return order
    return RULE[0]
