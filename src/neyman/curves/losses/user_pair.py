"""Bound pairs of distributions that a user describes by functions and stated bounds.

The real line is cut into cells (intervals). In each cell, the log density is within a stated
distance of its chord. This bounds both masses of a cell, and the loss inside it. The cells give a
finite pair that dominates the user's pair in both orders, and one that it dominates [UD-2, UD-3].
All bounds hold if the user's statements, which `UserPair` lists, are true. Neyman checks the
statements as far as it can.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import cast

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.bracket import LossBracket, ends
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import PERFECT, OffLatticeLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

LogDensity = Callable[[Array], Array]
Mask = NDArray[np.bool_]
MAX_INTEGERS = 10**7  # most integers of a pair of distributions
# slack: counted
NARROW_PIECE = 1e4 * UNIT  # width, over the largest place, of a piece that only rounding separates
FULL_SHIFT = "estimate: the full shift alone, and no proof for smaller ones"


@dataclass(frozen=True)
class Limits:
    """Limits on how finely a pair is cut into cells."""

    cells: int = 1 << 16
    """Number of cells. The distance to a chord falls with the square of this number [UD-1]."""
    values: int = 1 << 12
    """Number of values of the finite distributions.

    delta errs by about (range of the loss / this number)^2 [UD-2].
    """
    rounding_units: float = 64.0
    """Error of a cell's mass and loss, in rounding units of 1 and of each log density [UD-1]."""
    least_mass: float = 1e-280
    """A cell with less mass counts as infinite loss, which is the safe side."""


@dataclass(frozen=True)
class _PairCells:
    """Hold the masses of cells: each true mass is ``mass`` times e^x, with |x| at most ``slack``.

    Args:
        mass, slack: shape (n,).
        edge: log density at the two ends of each cell, shape (2, n).
        known: True for cells with these bounds. The other cells have at most mass ``outside``
            together.
        nothing: True if the mass is certainly 0.
    """

    mass: Array
    slack: Array
    edge: Array
    known: Mask
    nothing: Mask
    outside: float


class Law(ABC):
    """Represent a distribution on the line or on the integers, with its user's statements."""

    log_concave: bool

    @property
    @abstractmethod
    def statements(self) -> tuple[str, ...]:
        """Return the user's statements in words, including those that are not checked."""

    @abstractmethod
    def shifted(self, shift: float, spare: float = 0.0) -> Law:
        """Return the law of X + shift, with bounds for all shifts within ``spare`` of it."""

    @abstractmethod
    def places(self) -> Array:
        """Return the points that must be edges of cells."""

    @abstractmethod
    def cells(self, edges: Array, limits: Limits) -> _PairCells:
        """Return this distribution's mass in each cell between consecutive ``edges``."""


@dataclass(frozen=True, kw_only=True)
class Density(Law):
    """Represent a distribution with a density, and statements about it.

    At least one of curvature, slope, and monotone is needed.

    Args:
        log_density: the logarithm of the density at an array of points. Neyman calls it from
            ``low`` to ``high``, and beside each break at the adjacent floats.
        low, high: the range of the log density. Outside of it, only ``tails`` is known.
        tails: the largest probability outside of [low, high]; 0 if there is none.
        error: the largest error of ``log_density``.
        total: the integral of the density as given; None if unknown. Neyman then normalizes it by
            the cells and ``tails``, which is a share of the total.
        breaks: increasing points, at which the density may jump. The following statements hold
            between them.
        curvature: the largest absolute second derivative of the log density between breaks: one
            number, or one for each piece.
        slope: the largest absolute derivative of the log density between breaks, in the same form.
            Bounds for all smaller shifts need it, unless the density is log-concave.
        monotone: True if the density is monotone between consecutive breaks. Its limit at each
            break is its value at the adjacent float.
        log_concave: True if the density is log-concave on the whole line.
    """

    log_density: LogDensity
    low: float
    high: float
    tails: float
    error: float = 0.0
    total: float | None = 1.0
    breaks: tuple[float, ...] = ()
    curvature: float | Sequence[float] | None = None
    slope: float | Sequence[float] | None = None
    monotone: bool = False
    log_concave: bool = False
    _moved: tuple[float, float] = (0.0, 0.0)  # the shift, and the largest difference from it

    def __post_init__(self) -> None:
        places = [check.finite("low", self.low), *self.breaks, check.finite("high", self.high)]
        if any(not a < b for a, b in pairwise(places)):
            raise ValueError(f"low, breaks, and high = {places} must increase")
        _check_mass(self.tails, self.error)
        if self.total is not None:
            check.positive("total", self.total)
        if self.curvature is None and self.slope is None and not self.monotone:
            raise ValueError("state curvature=, slope=, or monotone=True: see Density")
        for name in ("curvature", "slope"):
            each = self._piece_bounds(name)
            if each is not None and not (np.isfinite(each).all() and (each >= 0).all()):
                raise ValueError(f"{name} = {getattr(self, name)!r} must be finite, at least 0")

    def _piece_bounds(self, name: str) -> Array | None:
        """Return the bound ``name`` for each piece between breaks, or None if it is not stated."""
        given, pieces = getattr(self, name), len(self.breaks) + 1
        if given is None:
            return None
        each = np.atleast_1d(np.asarray(given, float))
        if len(each) not in (1, pieces):
            raise ValueError(f"{name} has {len(each)} numbers for {pieces} pieces between breaks")
        return np.broadcast_to(each, (pieces,))

    @property
    def statements(self) -> tuple[str, ...]:
        named = getattr(self.log_density, "__qualname__", type(self.log_density).__name__)
        within = f" between the breaks {list(self.breaks)}" if self.breaks else ""
        total = "unknown" if self.total is None else f"{self.total:.15g}"
        said = [
            f"log_density ({named}) errs by at most {self.error:g} "
            f"from {self.low!r} to {self.high!r}",
            f"the integral of the density is {total}, of which at most {self.tails:g} is outside",
        ]
        for name, words in (("curvature", "second derivative"), ("slope", "derivative")):
            if (each := self._piece_bounds(name)) is not None:
                given = each.tolist()
                shown = ", ".join(map(repr, given if len(set(given)) > 1 else given[:1]))
                said.append(f"its {words} is at most {shown}{within}")
        if self.monotone:
            said.append(f"the density is monotone{within or ' on the line'}")
        return (*said, "the density is log-concave") if self.log_concave else tuple(said)

    def shifted(self, shift: float, spare: float = 0.0) -> Density:
        if spare and self.slope is None:
            raise ValueError("slope= is needed for all smaller shifts, unless log_concave=True")
        return replace(self, _moved=(self._moved[0] + shift, self._moved[1] + spare))

    def places(self) -> Array:
        """Return the ends and the breaks."""
        return self._moved[0] + np.array([self.low, *self.breaks, self.high])

    def cells(self, edges: Array, limits: Limits) -> _PairCells:
        """Return each cell's mass, the integral of e^chord, and a bound on its error [UD-1]."""
        shift = self._moved[0]
        cuts = self.places()
        known = (edges[:-1] >= cuts[0]) & (edges[1:] <= cuts[-1])
        # A break that both distributions share may be two floats.
        narrow = known & (np.diff(edges) <= NARROW_PIECE * np.abs(edges).max())
        known &= ~narrow
        left, right = edges[:-1][known], edges[1:][known]
        width, piece = right - left, np.searchsorted(cuts[1:-1], 0.5 * (left + right))
        own = np.array([self.low, *self.breaks, self.high])
        # Stay in the piece even if the shift is rounded: beyond a break is another density.
        first, last = np.nextafter(own[piece], np.inf), np.nextafter(own[piece + 1], -np.inf)
        x = np.clip(np.stack([left, right]) - shift, first, last)
        g = _finite(self.log_density, x)
        m = (g[1] - g[0]) / width
        each = {
            name: v[piece]
            for name in ("curvature", "slope")
            if (v := self._piece_bounds(name)) is not None
        }
        steepest = np.abs(m) + each["curvature"] * width if "curvature" in each else np.abs(m)
        steepest = np.minimum(steepest, each.get("slope", np.inf))
        # slack: counted
        near = limits.rounding_units * UNIT * (8 + np.abs(g).max(axis=0)) + self.error
        # Effect of a rounded place, and of the float next to an edge, on the log density.
        # slack: counted
        near = near + 8 * UNIT * steepest * (np.abs(x).max(axis=0) + 2 * abs(shift))
        self._refuse_wrong(m, width, piece, near, each)
        away: list[Array] = []
        if "curvature" in each:
            away.append(each["curvature"] * width**2 / 8)
        if "slope" in each:
            away.append(each["slope"] * width / 2)
        if self.monotone:  # a rounded place is at most in a neighboring cell
            away.append(np.convolve(np.abs(g[1] - g[0]), np.ones(3), "same"))
        slack = np.minimum.reduce(away) + near
        mass = np.maximum(width * np.exp(g.mean(axis=0)) * _sinhc(0.5 * (g[1] - g[0])), 1e-300)
        cells = _normalize(self, known, mass, slack, g, self.total)
        if narrow.any():
            between = float(np.diff(edges)[narrow].sum()) * math.exp(
                1 + float(cells.edge[:, known].max())
            )
            outside = min(cells.outside + between, 1.0)
            cells = replace(cells, nothing=cells.nothing & ~narrow, outside=outside)
        return self._near_shifts(cells, edges, near) if self._moved[1] else cells

    def _near_shifts(self, cells: _PairCells, edges: Array, near: Array) -> _PairCells:
        """Widen the cells' bounds to hold for all shifts that `shifted` allows [UD-4]."""
        spare, cuts = self._moved[1], self.places()
        slopes = cast(Array, self._piece_bounds("slope"))
        left, right, known = edges[:-1], edges[1:], cells.known
        move, g = np.zeros(len(left)), cells.edge
        for k, slope in enumerate(slopes):  # all pieces that a place may come from
            here = (right > cuts[k] - spare) & (left < cuts[k + 1] + spare)
            move[here] = np.maximum(move[here], slope * spare)
        for at, j in zip(cuts[1:-1].tolist(), np.searchsorted(left, cuts[1:-1]), strict=True):
            jump = abs(g[0, j] - g[1, j - 1]) + 2 * float(near.max())
            move += np.where((right > at - spare) & (left < at + spare), jump, 0.0)
        out = known & ((left < cuts[0] + 2 * spare) | (right > cuts[-1] - 2 * spare))
        outside = min(cells.outside + _mass(cells, out, 1), 1.0)
        inside = known & ~out
        none = np.zeros(len(left), bool)
        return replace(cells, slack=cells.slack + move, known=inside, nothing=none, outside=outside)

    def _refuse_wrong(
        self, m: Array, width: Array, piece: Array, near: Array, each: dict[str, Array]
    ) -> None:
        """Refuse a statement that ``log_density`` contradicts. This detects most errors [UD-1]."""
        room = 4 * near / width
        if "slope" in each and (wrong := np.abs(m) > each["slope"] + room).any():
            _refuse("slope", float(np.abs(m)[wrong].max()))
        turn, between = np.diff(m), room[1:] + room[:-1]
        same = piece[1:] == piece[:-1]
        if "curvature" in each:
            most = each["curvature"][1:] * 0.5 * (width[1:] + width[:-1]) + between
            if (wrong := same & (np.abs(turn) > most)).any():
                largest = 2 * np.abs(turn) / (width[1:] + width[:-1])
                _refuse("curvature", float(largest[wrong].max()))
        if self.log_concave:
            if (turn > between).any():
                raise ValueError("log_concave = True, but the log density bends up somewhere")
            self._refuse_jumps(piece, near)
        if self.monotone:
            for k in range(len(self.breaks) + 1):
                if (m > room)[piece == k].any() and (m < -room)[piece == k].any():
                    raise ValueError(f"monotone = True, but the density turns in piece {k}")

    def _refuse_jumps(self, piece: Array, near: Array) -> None:
        """Refuse a jump at a break if the user states that the density is log-concave."""
        at = np.array(self.breaks)
        if not len(at):
            return
        beside = np.stack([np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])
        g = _finite(self.log_density, beside)
        jump = np.abs(g[1] - g[0])
        after = np.searchsorted(piece, np.arange(1, len(at) + 1))
        room = near[np.maximum(after - 1, 0)] + near[np.minimum(after, len(near) - 1)]
        if (wrong := jump > room).any():
            raise ValueError(
                f"log_concave = True, but the log density jumps by {jump[wrong][0]:g} at the break "
                f"{at[wrong][0]:g}; a log-concave density is continuous inside its support"
            )


def _refuse(name: str, largest: float) -> None:
    raise ValueError(
        f"{name} is too small: the log density reaches about {largest:g}; state a larger one"
    )


@dataclass(frozen=True, kw_only=True)
class Masses(Law):
    """Represent a distribution on integers, and statements about it.

    Args:
        masses: probabilities of first, first + 1, ...; a 0 is exact.
        first: the first integer.
        tails: the largest total probability of all other integers; 0 if there is none.
        error: the largest error of the logarithm of a mass.
        log_concave: True if the distribution is log-concave on all integers.
    """

    masses: tuple[float, ...]
    first: int = 0
    tails: float = 0.0
    error: float = 0.0
    log_concave: bool = False
    _moved: int = 0

    def __post_init__(self) -> None:
        given = check.several("masses", self.masses)
        object.__setattr__(self, "masses", tuple(check.finite("a mass", x) for x in given))
        _check_mass(self.tails, self.error)
        if not self.masses or min(self.masses) < 0:
            raise ValueError("masses must be one number or more, each at least 0")
        check.integer("first", self.first, -(10**15))
        with np.errstate(divide="ignore"):
            g = np.log(np.array(self.masses))
        if self.log_concave and len(g) > 2:
            some = np.flatnonzero(g > -np.inf)
            inside = g[some[0] : some[-1] + 1] if len(some) else g[:0]
            # slack: counted
            room = 4 * self.error + 64 * UNIT * (1 + np.abs(inside).max(initial=0.0))
            if np.isinf(inside).any() or (np.diff(inside, 2) > room).any():
                raise ValueError("log_concave = True, but the masses bend up somewhere")

    @property
    def statements(self) -> tuple[str, ...]:
        last = self.first + len(self.masses) - 1
        said = (
            f"each mass on {self.first}..{last} errs by at most {self.error:g} of its logarithm",
            f"all other whole numbers have at most {self.tails:g} together",
        )
        return (*said, "the distribution is log-concave") if self.log_concave else said

    def shifted(self, shift: float, spare: float = 0.0) -> Masses:
        if spare or shift != int(shift):
            raise ValueError(f"shift = {shift!r} of masses on whole numbers must be one of them")
        return replace(self, _moved=self._moved + int(shift))

    def places(self) -> Array:
        """Return the lower end of the first integer's cell, and the upper end of the last one's."""
        start = float(self.first + self._moved)
        return np.array([start - 0.5, start + len(self.masses) - 0.5])

    def cells(self, edges: Array, limits: Limits) -> _PairCells:
        start, end = self.places()
        known = (edges[:-1] >= start) & (edges[1:] <= end)
        mass = np.array(self.masses)
        with np.errstate(divide="ignore"):
            g = np.stack([np.log(mass)] * 2)
        size = np.where(np.isfinite(g[0]), np.abs(g[0]), 0.0)
        slack = self.error + limits.rounding_units * UNIT * (8 + size)  # slack: counted
        return _normalize(self, known, mass, slack, g, 1.0)


def _check_mass(tails: float, error: float) -> None:
    if check.probability("tails", tails) == 1:
        raise ValueError("tails = 1 must be below 1")
    if check.non_negative("error", error) > 1:
        raise ValueError(f"error = {error!r} must be at most 1")


def _finite(log_density: LogDensity, x: Array) -> Array:
    """Return ``log_density`` at the points x. Check that it is finite, one number per point."""
    with np.errstate(all="ignore"):
        g = np.asarray(log_density(x.ravel()), float)
    if g.shape != (x.size,):
        raise ValueError(f"log_density returns shape {g.shape} for {x.size} places")
    if not np.isfinite(g).all():
        at = float(x.ravel()[int(np.argmin(np.isfinite(g)))])
        raise ValueError(f"log_density({at!r}) is not finite; move low, high, or breaks")
    return g.reshape(x.shape)


def _sinhc(t: Array) -> Array:
    """Return sinh(t) / t."""
    small = np.abs(t) < 1e-4
    safe = np.where(small, 1.0, t)
    return np.where(small, 1 + t * t / 6, np.sinh(safe) / safe)


def _normalize(
    law: Density | Masses, known: Mask, mass: Array, slack: Array, g: Array, total: float | None
) -> _PairCells:
    """Return the cells, with masses divided by the total. Check the stated total [UD-1]."""
    least, most = math.fsum(mass * np.exp(-slack)), math.fsum(mass * np.exp(slack))
    if not most > 0:
        raise ValueError("the distribution has no mass where it is known")
    if total is None:
        total = math.fsum(mass)
        away = max(math.log(most / total) - math.log1p(-law.tails), math.log(total / least))
        slack = slack + away
    elif least > total or most < total * (1 - law.tails) * (1 - 8 * UNIT):  # slack: counted
        raise ValueError(
            f"the distribution has between {least / total:.15g} and {most / total:.15g} of the "
            f"stated total where it is known, and tails = {law.tails!r} outside: these do not add "
            f"up to 1"
        )
    out = np.zeros((4, len(known)))
    out[0, known], out[1, known], out[2:, known] = mass / total, slack, g - math.log(total)
    nothing = ~known & (law.tails == 0)
    if isinstance(law, Masses):
        nothing |= known & (out[0] == 0)
    return _PairCells(out[0], out[1], out[2:], known, nothing, law.tails)


@dataclass(frozen=True, repr=False)
class UserPair(LossBracket):
    """Represent the loss of a pair that a user describes, between two finite distributions.

    Args:
        statements: the user's statements, on which the bounds rest.
        source: what is not proven, in words; "" if all follows from the statements.
    """

    statements: tuple[str, ...] = ()
    source: str = ""

    @staticmethod
    def of(
        p: Law,
        q: Law,
        statements: Sequence[str] = (),
        *,
        estimate: bool = False,
        limits: Limits | None = None,
    ) -> UserPair:
        """Return the loss of (P, Q), from descriptions of both.

        Args:
            p, q: the two distributions; both have densities, or both are on integers.
            statements: what the user states about the pair, beyond the statements of p and q.
            estimate: True if smaller shifts are assumed, without a proof, to be no worse. The
                results are then estimates.
            limits: number of cells into which the real line is cut, and their accuracy.

        Raises:
            ValueError: a function or a statement is wrong, as far as Neyman can check.
        """
        if type(p) is not type(q):
            raise TypeError("p and q must both be a Density, or both Masses")
        limits = limits or Limits()
        edges = _edges(p, q, limits)
        lower, upper = _laws(p.cells(edges, limits), q.cells(edges, limits), limits)
        said = tuple(dict.fromkeys([*p.statements, *q.statements, *statements]))
        source = FULL_SHIFT if estimate else ""
        how = source or _under(said)
        return UserPair(lower, upper, how, said, source)

    def reverse(self) -> UserPair:
        """Return the reversed distributions, under the same statements."""
        return replace(self, lower=self.lower.reverse(), upper=self.upper.reverse())

    def __repr__(self) -> str:
        return f"UserPair({self.how}: {'; '.join(self.statements)})"


def user_pairs(part: object) -> Iterator[UserPair]:
    """Yield the user pairs within a part: itself, or the parts that it contains."""
    if isinstance(part, UserPair):
        yield part
    elif isinstance(part, Part) and is_dataclass(part):
        for one in fields(part):
            yield from user_pairs(getattr(part, one.name))
    elif isinstance(part, tuple) and part and not all(isinstance(part[i], Real) for i in (0, -1)):
        for one in cast("tuple[object, ...]", part):
            yield from user_pairs(one)


def resting_on(given: Iterable[Composition], result: Composition) -> Composition:
    """Return ``result`` with the statements of the sums ``given``, from which it was computed."""
    pairs = [x for c in given for part, _ in c.parts for x in user_pairs(part)]
    if not pairs:
        return result
    said = tuple(dict.fromkeys(text for x in pairs for text in x.statements))
    source = next((x.source for x in pairs if x.source), "")
    parts: list[tuple[Part, int]] = []
    for part, count in result.parts:
        how = [part.how] if isinstance(part, LossBracket) else []
        how = ", ".join([*how, source or _under(said)])
        parts.append((UserPair(*ends(part), how, said, source), count))
    return Composition.of(parts)


def _under(statements: Sequence[str]) -> str:
    return f"under {len(statements)} statements of the user"


def _edges(p: Law, q: Law, limits: Limits) -> Array:
    """Return edges of cells: all `Law.places` of both, and about equally many between each two."""
    fixed: list[float] = sorted({*p.places().tolist(), *q.places().tolist()})
    if isinstance(p, Masses):
        if fixed[-1] - fixed[0] > MAX_INTEGERS:
            raise ValueError(
                f"masses: the distributions span more than {MAX_INTEGERS:,} whole numbers"
            )
        return np.arange(int(2 * fixed[0]), int(2 * fixed[-1]) + 1, 2) * 0.5
    count = max(limits.cells // (len(fixed) - 1), 8)
    few = 8 * count * NARROW_PIECE * max(map(abs, fixed))  # a width that is not cut
    pieces = [np.linspace(a, b, (count if b - a > few else 1) + 1) for a, b in pairwise(fixed)]
    return np.concatenate([*(piece[:-1] for piece in pieces), fixed[-1:]])


def _laws(p: _PairCells, q: _PairCells, limits: Limits) -> tuple[Part, Part]:
    """Return a finite loss that the pair dominates, and one that dominates the pair."""
    both = np.logical_and.reduce([c.known & (c.mass > limits.least_mass) for c in (p, q)])
    # In other cells, one mass is 0, too small, or unknown: bound the mass of infinite loss.
    most = [_mass(c, ~both, 1) + c.outside for c in (p, q)]
    least = [
        _mass(one, other.nothing & (one.mass > limits.least_mass), -1)
        for one, other in ((p, q), (q, p))
    ]
    if max(most) >= 1 or not both.any():
        return _Law.of([], [], least, -1).loss(), NonPrivateLoss()
    slack, edge = (p.slack + q.slack)[both], p.edge[:, both] - q.edge[:, both]
    low, high = edge.min(axis=0) - slack, edge.max(axis=0) + slack
    order = np.argsort(low + high, kind="stable")
    middle = 0.5 * (low + high)[order]
    step = max(float(middle[-1] - middle[0]) / limits.values, limits.least_mass)
    starts = np.flatnonzero(np.diff(np.floor(middle / step), prepend=-np.inf))
    # slack: counted
    grow = UNIT * (len(order) + 16)  # relative error of a sum
    (pl, ph), (ql, qh) = (
        [
            np.add.reduceat((c.mass * np.exp(side * c.slack))[both][order], starts)
            * (1 + side * grow)
            for side in (-1, 1)
        ]
        for c in (p, q)
    )
    low = np.minimum.reduceat(low[order], starts) - 2 * grow
    high = np.maximum.reduceat(high[order], starts) + 2 * grow
    up, down = np.log(pl / qh) > 0, np.log(ph / ql) < 0
    lower = _Law.of([(pl[up], qh[up])], [(ph[down], ql[down])], least, -1).loss()
    return lower, _upper(pl, ph, ql, qh, low, high, most)


def _mass(cells: _PairCells, chosen: Mask, side: int) -> float:
    return math.fsum((cells.mass * np.exp(side * cells.slack))[chosen])


def _upper(
    pl: Array, ph: Array, ql: Array, qh: Array, low: Array, high: Array, most: list[float]
) -> Part:
    """Return a dominating loss: put each group's masses at the ends of the group's loss [UD-2].

    Losses above and below 0 are handled separately. A group near 0 stores the part that counts
    above 0 at its upper end or farther out, and likewise the part below 0. Farther out, the same
    delta(0) takes less mass. Losses move as far as a sum of 1 requires.

    pl, ph, ql, qh: bounds on each group's mass under P and Q. low, high: bounds on its loss. most:
    bounds on infinite mass.
    """
    wide = -np.expm1(low - high)
    top = ph * -np.expm1(-np.clip(np.log(ph / ql) - low, 0.0, high - low)) / wide  # at high
    end = qh * -np.expm1(-np.clip(high - np.log(pl / qh), 0.0, high - low)) / wide  # of Q, at low
    # delta(0) of a group in either order: the relevant masses at both ends.
    top, end = np.minimum(top, ph), np.minimum(end, qh)
    excess = np.where(low < 0, top * -np.expm1(-high), ph - ql)
    lack = np.where(high > 0, end * -np.expm1(low), qh - pl)
    reach = float(max(high[-1], -low[0], 1e-300))
    first: _Law | None = None
    for near in (0.0, *(reach * 2.0**k for k in range(-14, 4))):
        up, down = low >= near, high <= -near
        above, below = ~up & (high > 0), ~down & (low < 0)
        u, v = np.maximum(high[above], near), np.minimum(low[below], -near)
        q, p = excess[above] / np.expm1(u), lack[below] / np.expm1(-v)
        law = _Law.of(
            [
                (q * np.exp(u), q),
                (top[up], (top * np.exp(-high))[up]),
                ((ph - top)[up], ((ph - top) * np.exp(-low))[up]),
            ],
            [
                (p, p * np.exp(-v)),
                ((end * np.exp(low))[down], end[down]),
                (((qh - end) * np.exp(high))[down], (qh - end)[down]),
            ],
            most,
            1,
        )
        first = first or law
        # A change of all masses moves every loss by its share. Here, losses move up to ``near``.
        if min(law.rest) > 0 and near * near <= first.change:
            return law.loss()
        if first.change <= near * near:
            break
    assert first is not None
    return first.loss()


@dataclass
class _Law:
    """Hold the masses of outcomes under P and under Q, shape (2, n), by the sign of the loss.

    Args:
        above, below: outcomes with losses above 0 and below 0.
        alone: mass of infinite loss under P, and under Q for the reverse.
        side: 1 for a distribution that dominates, -1 for one that is dominated.
    """

    above: Array
    below: Array
    alone: list[float]
    side: int

    @staticmethod
    def of(
        above: list[tuple[Array, Array]],
        below: list[tuple[Array, Array]],
        alone: list[float],
        side: int,
    ) -> _Law:
        """Return the distribution with all outcomes of several lists."""
        none = np.zeros((2, 0))
        one, other = (np.concatenate([none, *map(np.array, x)], axis=1) for x in (above, below))
        return _Law(one, other, alone, side)

    @property
    def rest(self) -> list[float]:
        """Return 1 minus the total mass, under P and under Q."""
        return [1 - math.fsum([*self.above[i], *self.below[i], self.alone[i]]) for i in (0, 1)]

    def loss(self) -> Part:
        """Return the loss. If masses do not sum to 1, add an outcome or change masses [UD-3]."""
        rest = self.rest
        parts = [self.above, self.below]
        # Infinite loss may become zero loss, which lowers delta: equal amounts for P and Q.
        most = max(*rest, UNIT)  # slack: counted
        moved = [most - x for x in rest]
        if min(rest) > 0 and (self.side > 0 or abs(math.log(rest[0] / rest[1])) <= self._nearest):
            parts.append(np.array(rest)[:, None])
        elif self.side < 0 and all(m <= a for m, a in zip(moved, self.alone, strict=True)):
            parts.append(np.full((2, 1), most))
            self.alone = [a - m for a, m in zip(self.alone, moved, strict=True)]
        elif not self._absorb(self._cut(rest)):
            return NonPrivateLoss() if self.side > 0 else PERFECT
        masses = np.concatenate(parts, axis=1)
        some = (masses > 0).all(axis=0)
        lost = [math.fsum(x) if self.side > 0 else 0.0 for x in masses[:, ~some]]
        failure, missing = (min(a + b, 1.0) for a, b in zip(self.alone, lost, strict=True))
        values, place = np.unique(np.subtract(*np.log(masses[:, some])), return_inverse=True)
        log_p = np.log(np.bincount(place, weights=masses[0, some]))
        return OffLatticeLoss(tuple(values.tolist()), tuple(log_p.tolist()), failure, missing)

    @property
    def _nearest(self) -> float:
        """Return the smallest absolute loss of the outcomes."""
        values = np.concatenate([np.log(x[0] / x[1]) for x in (self.above, self.below)])
        return float(np.abs(values).min(initial=math.inf))

    def _cut(self, rest: list[float]) -> list[float]:
        """Remove the excess over a total of 1 from both measures, if the other side of 0 is empty.

        Return the new ``rest``.

        Missing mass under one measure only becomes infinite loss. Both steps raise delta.
        """
        if self.side < 0:
            return rest
        rest = [*rest]
        for i, (mine, other) in enumerate(((self.above, self.below), (self.below, self.above))):
            total = math.fsum(mine[1 - i])
            if 0 < -rest[i] < total and not other.size:
                mine[:] = mine - mine[1 - i] * (-rest[i] / total)
                rest = [x - rest[i] for x in rest]
                if rest[1 - i] > 0:
                    self.alone[1 - i] += rest[1 - i]
                    rest[1 - i] = 0.0
        return rest

    def _shares(self, rest: list[float]) -> list[tuple[Array, float]]:
        """Return, for P and for Q, masses to change, and the relative change that adds ``rest``."""
        shares: list[tuple[Array, float]] = []
        for i, (more, fewer) in enumerate(((self.above, self.below), (self.below, self.above))):
            chosen = (more if (rest[i] > 0) == (self.side > 0) else fewer)[i]
            total = math.fsum(chosen)
            shares.append((chosen, rest[i] / total if total else rest[i]))
        return shares

    @property
    def change(self) -> float:
        """Return the largest relative change of a mass that makes the masses sum to 1."""
        return max(abs(share) for _, share in self._shares(self.rest))

    def _absorb(self, rest: list[float]) -> bool:
        """Change masses to add ``rest``, on the safe side. Return False if that is impossible."""
        shares = self._shares(rest)
        if not all(share > -1 and (masses.size or not share) for masses, share in shares):
            return False
        for masses, share in shares:
            masses[:] = masses * (1 + share)
        return self.side > 0 or bool(
            (self.above[0] >= self.above[1]).all() and (self.below[0] <= self.below[1]).all()
        )
