"""Compute curves of two distributions, or of given points.

A piecewise-linear curve f is the curve of a finite pair. The piece from (a, f(a)) to (b, f(b)) is
an outcome of probability b - a under one hypothesis and f(a) - f(b) under the other. The remaining
1 - f(0) is an outcome that reveals everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, Protocol, cast

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.external_pld import ExternalPld
from neyman.curves.losses.finite import MOST_EPSILON, FiniteLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.user_pair import Law, UserPair
from neyman.curves.tradeoff.enclosure import exponential
from neyman.curves.tradeoff.guarantees import approximate
from neyman.curves.tradeoff.piecewise_linear import (
    Line,
    Polygon,
    composition_between,
    envelope,
    finite_pair,
    hull,
    mirrored_line,
    polygon_loss,
)
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.arrays import Array

Point = tuple[Fraction, Fraction]

FLOAT_TOLERANCE = Fraction(1, 10**12)  # largest error of sums and curves that users give as floats


@dataclass(frozen=True)
class Limits:
    """Limits on the bins of two distributions."""

    cells: int = 2000  # bins of equal probability under each distribution
    relative_width: float = 1e-12  # least bin width, relative to scale and distance from the median
    lattice_places: int = 1 << 15  # points of the lattice for estimated losses


LIMITS = Limits()
LARGEST_BELOW_ONE = 1 - 2.0**-53
ESTIMATE = "estimate: two distributions seen in cells"


class Distribution(Protocol):
    """Represent a frozen distribution of scipy.stats, by the methods that Neyman calls."""

    def cdf(self, x: Any, /) -> Any:
        """Return the probability of at most x."""

    def sf(self, x: Any, /) -> Any:
        """Return the probability of more than x."""

    def ppf(self, q: Any, /) -> Any:
        """Return the lower quantile."""

    def isf(self, q: Any, /) -> Any:
        """Return the upper quantile."""


def between(
    p: Iterable[object] | Distribution | Law, q: Iterable[object] | Distribution | Law
) -> Tradeoff:
    """Return the trade-off curve between two distributions, in both orders.

    It covers T(P, Q) and T(Q, P) and answers for the worse, so the order of the arguments does not
    matter. But `@` combines p with the p of the other curve.

    Args:
        p, q: probabilities of the same outcomes, in the same order: integers, fractions, decimals,
            or floats (read as the decimal that they print), at least 0. The sum is 1 (for floats,
            to within 1e-12). Or two distributions with stated bounds, see
            `neyman.curves.losses.user_pair`. Or two frozen distributions of scipy.stats.

    Returns:
        The curve of the finite pair. For two distributions with stated bounds it is certified under
        the statements, which `Tradeoff.statements` lists. For two distributions of scipy.stats it
        is an estimate, as `Tradeoff.method` says, from some thousand bins, equally probable in the
        middle and finer down to tails of 1e-40. If the likelihood ratio changes within a bin, the
        estimate overstates privacy.

    Raises:
        ValueError: if an entry is negative, a sum is not 1, or the outcomes differ in number.

    Examples:
        >>> import neyman as ny
        >>> f = ny.between([0.5, 0.5], [0.9, 0.1])
        >>> round(float(f.power(level=0.05)), 6), round(float(f.advantage()), 6)
        (0.25, 0.4)

    Source: Dong, Roth and Su 2022, definition 2.1; Neyman and Pearson 1933.
    """
    if isinstance(p, Law) or isinstance(q, Law):
        if type(p) is not type(q):
            raise TypeError("p and q must both be a Density, or both be Masses")
        return Tradeoff.of([Composition.of([(UserPair.of(cast(Law, p), cast(Law, q)), 1)])])
    continuous = hasattr(p, "cdf"), hasattr(q, "cdf")
    if any(continuous):
        for name, value, right in zip("pq", (p, q), continuous, strict=True):
            if not right:
                raise TypeError(
                    f"{name} = {value!r} must be a frozen distribution of scipy.stats like the "
                    "other one, or both must be sequences of probabilities"
                )
        return Tradeoff.of([_estimate_pair(cast(Distribution, p), cast(Distribution, q))])
    first, _ = law("p", cast(Iterable[object], p))
    second, _ = law("q", cast(Iterable[object], q))
    if len(first) != len(second):
        raise ValueError(
            f"p and q have {len(first)} and {len(second)} outcomes; they must have the same "
            "(give an outcome that one of them lacks the probability 0)"
        )
    return Tradeoff.of([finite_pair(first, second)])


def from_points(alphas: Iterable[object], betas: Iterable[object]) -> Tradeoff:
    """Return the piecewise-linear curve through f(alphas[i]) = betas[i].

    It is the curve of one ordered pair (`Tradeoff.ordered`). If f-DP is claimed at these points,
    they hold for every ordered pair of neighbors, so for both orders.

    Args:
        alphas: levels (type I errors), increasing from 0 to 1. The last may be smaller if f is 0
            there.
        betas: type II errors at these levels, decreasing, convex, and at most 1 - alpha. Both lists
            are read like the probabilities of `between`. If floats miss convexity by up to 1e-12,
            Neyman uses the convex curve below them, which is the safe side.

    Raises:
        ValueError: names the first point that no trade-off function has.

    Examples:
        >>> import neyman as ny
        >>> f = ny.from_points([0, 0.2, 1], [1, 0.5, 0])
        >>> round(float(f(0.1)), 6)
        0.75

    Source: Dong, Roth and Su 2022, proposition 2.2: f is a trade-off function if and only if it is
        convex, continuous, non-increasing and f(x) <= 1 - x.
    """
    xs, ys = check.several("alphas", alphas), check.several("betas", betas)
    if len(xs) != len(ys) or not xs:
        raise ValueError(
            f"alphas and betas have {len(xs)} and {len(ys)} entries; they must have the same "
            "number, at least 1"
        )
    slack = FLOAT_TOLERANCE if _has_floats(xs) or _has_floats(ys) else Fraction(0)
    points = [
        (check.exact(f"alphas[{i}]", x), check.exact(f"betas[{i}]", y))
        for i, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    return Tradeoff((polygon_loss(_curve(points, slack)),), ordered=True)


def from_profile(
    profile: Mapping[Any, object], reverse: Mapping[Any, object] | None = None
) -> Tradeoff:
    """Return the tightest curve of a privacy profile: (epsilon, delta)-DP at each of its points.

    f = max over i of 1 - delta_i - e^epsilon_i a, and the inverses of these lines. It is the lowest
    curve that meets all points.

    Args:
        profile: delta by epsilon, both read like the probabilities of `between`; epsilon at least 0
            and delta in [0, 1]. It holds for neighbors in both orders.
        reverse: if given, ``profile`` is H_{e^epsilon}(P || Q) of one pair and ``reverse`` is
            H_{e^epsilon}(Q || P). Epsilons may then have any sign. The curve covers both orders of
            this pair, each with its own profile.

    Returns:
        A curve with finitely many corners. If the other points imply a smaller delta than a given
        one, the curve has the smaller delta.

    Raises:
        ValueError: if a profile is empty, a number is out of range, or a delta is below 1 -
            e^epsilon, the least of any profile.

    Examples:
        >>> import neyman as ny
        >>> f = ny.from_profile({1: 1e-3, 2: 1e-6})
        >>> round(float(f.epsilon(delta=1e-6)), 6), round(float(f.power(level=0.05)), 4)
        (2.0, 0.1369)

    Source: Dong, Roth and Su 2022, proposition 2.5; Balle, Barthe and Gaboardi 2018.
    """
    ahead = _profile("profile", profile, signed=reverse is not None)
    if reverse is None and len(profile) == 1:
        ((epsilon, delta),) = profile.items()
        if check.exact("delta", delta) < 1:
            return approximate(epsilon, cast(Fraction, delta))
    behind = ahead if reverse is None else _profile("reverse", reverse, signed=True)
    below, above = (
        envelope([line[side] for line in ahead] + [mirrored_line(*line[side]) for line in behind])
        for side in (0, 1)
    )
    return Tradeoff.of([composition_between((below, above))])


def total_variation(v: float | Fraction | str) -> Tradeoff:
    """Return the curve of total variation at most v: f(alpha) = max(0, 1 - v - alpha).

    This is (0, v)-DP.

    Args:
        v: in [0, 1]; 1 claims nothing.

    Examples:
        >>> import neyman as ny
        >>> round(float(ny.total_variation("0.1").power(level=0.05)), 6)
        0.15

    Source: Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015.
    """
    exact = check.exact("v", v)
    if not 0 <= exact <= 1:
        raise ValueError(f"v = {v!r} must be between 0 and 1")
    return (
        approximate(0, v) if exact < 1 else Tradeoff.of([Composition.of([(NonPrivateLoss(), 1)])])
    )


def law(name: str, masses: Iterable[object]) -> tuple[list[Fraction], bool]:
    """Return ``masses`` as fractions with the sum 1, and True if an entry was a float.

    Raises:
        ValueError: if an entry is negative, or the sum is not 1 (to within 1e-12 for floats).
    """
    entries = check.several(name, masses)
    exact = [check.exact(f"{name}[{i}]", x) for i, x in enumerate(entries)]
    for i, x in enumerate(exact):
        if x < 0:
            raise ValueError(f"{name}[{i}] = {entries[i]!r} must be at least 0")
    total, rounded = sum(exact, Fraction(0)), _has_floats(entries)
    if abs(total - 1) > (FLOAT_TOLERANCE if rounded else 0):
        within = " to within 1e-12" if rounded else ""
        raise ValueError(f"the sum of {name} is {_shown(total)}; it must be 1{within}")
    return [x / total for x in exact], rounded


def _profile(name: str, profile: Mapping[Any, object], *, signed: bool) -> list[tuple[Line, Line]]:
    """Return the lines power <= delta + e^epsilon level of a profile [TC-10].

    Each is a pair of lines (slope, start), for e^epsilon rounded down and up.
    """
    if not isinstance(profile, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} = {profile!r} must be a mapping such as {{1.0: 1e-5, 2.0: 1e-9}}")
    if not profile:
        raise ValueError(f"{name} is empty: give at least one epsilon with its delta")
    lines: list[tuple[Line, Line]] = []
    for key, value in profile.items():
        epsilon = check.exact(f"an epsilon of {name}", key)
        delta = check.exact(f"{name}[{key!r}]", value)
        if not 0 <= delta <= 1:
            raise ValueError(f"{name}[{key!r}] = {value!r} must be between 0 and 1")
        if abs(epsilon) > MOST_EPSILON:
            raise ValueError(f"epsilon = {key!r} of {name} must be at most {MOST_EPSILON:g}")
        if epsilon < 0 and not signed:
            raise ValueError(
                f"epsilon = {key!r} of {name} must be at least 0; below 0 it describes the other "
                "order: give that order's profile as reverse="
            )
        low, high = exponential(epsilon)
        if delta < 1 - high - (FLOAT_TOLERANCE if _has_floats([key, value]) else 0):
            raise ValueError(
                f"{name}[{key!r}] = {value!r} must be at least 1 - e^epsilon = "
                f"{_shown(1 - low)}: no pair of distributions has less"
            )
        if low > 0:
            lines.append(((low, delta), (high, delta)))
    return lines


def _has_floats(values: Iterable[object]) -> bool:
    return any(isinstance(x, Real) and not isinstance(x, Rational) for x in values)


def _shown(x: Fraction) -> str:
    near = repr(float(x))
    return near if Fraction(near) == x or len(str(x)) > 20 else str(x)


def _curve(points: list[Point], slack: Fraction) -> Polygon:
    """Return the power (1 - f) of the curve through the points. Refuse points that no curve has."""
    for i, (a, b) in enumerate(points):
        where = f"point {i}, (alpha, beta) = ({_shown(a)}, {_shown(b)}),"
        if i == 0 and a != 0:
            raise ValueError(f"{where} must be at alpha = 0, where every curve begins")
        if i and a <= points[i - 1][0]:
            raise ValueError(f"{where} must have a larger alpha than the point before it")
        if a > 1:
            raise ValueError(f"{where} must have alpha at most 1")
        if b < -slack:
            raise ValueError(f"{where} must have beta at least 0")
        if b > 1 - a + slack:
            raise ValueError(f"{where} is above 1 - alpha, where guessing is")
        if i and b > points[i - 1][1] + slack:
            raise ValueError(f"{where} rises: beta must not exceed {_shown(points[i - 1][1])}")
    a, b = points[-1]
    if a < 1 and b > slack:
        raise ValueError(
            f"point {len(points) - 1}, (alpha, beta) = ({_shown(a)}, {_shown(b)}), must not be "
            "the last: a curve goes on to (1, 0); add that point if it goes there straight"
        )
    corners = [(x, min(max(y, Fraction(0)), 1 - x)) for x, y in points]
    polygon = hull((x, 1 - y) for x, y in corners)
    curve = [(x, 1 - y) for x, y in polygon]  # (1, 0) is always its last corner
    at = 0
    for i, (x, y) in enumerate(corners):
        while curve[at + 1][0] < x:
            at += 1
        (x0, y0), (x1, y1) = curve[at], curve[at + 1]
        if y > y0 + (y1 - y0) * (x - x0) / (x1 - x0) + slack:
            raise ValueError(
                f"point {i}, (alpha, beta) = ({_shown(x)}, {_shown(y)}), is above the line from "
                f"({_shown(x0)}, {_shown(y0)}) to ({_shown(x1)}, {_shown(y1)}): a curve is convex"
            )
    return polygon


def _estimate_pair(p: Distribution, q: Distribution) -> Composition:
    """Return the loss of the binned pair, moved to a lattice.

    Masses under P and Q keep their sums.
    """
    a, b = _cells(p, q)
    both = (a > 0) & (b > 0)
    failure, missing = (min(float(x[~both].sum()), LARGEST_BELOW_ONE) for x in (a, b))
    loss = FiniteLoss(Fraction(1), (0,), (math.log1p(-failure),), failure, missing)
    value = np.log(a[both]) - np.log(b[both])
    reach = float(np.max(np.abs(value), initial=0.0))
    if reach > 1e-9:
        loss = _lattice_loss(
            value, a[both], Fraction(reach) / (LIMITS.lattice_places // 2), failure, missing
        )
    return Composition.of([(ExternalPld(loss, loss.reverse(), ESTIMATE), 1)])


def _lattice_loss(
    value: Array, mass: Array, step: Fraction, failure: float, missing: float
) -> FiniteLoss:
    """Return a loss on a lattice: split each ``mass`` between the two nearest lattice points.

    The sums of the masses under P and under Q do not change.

    The split spreads the likelihood ratio, so an attacker is at least as strong.

    Source: Doroshenko et al. 2022.
    """
    h = float(step)
    left = np.floor(value / h).astype(int)
    right = np.expm1(np.minimum(left * h - value, 0.0)) / math.expm1(-h) * mass
    first = int(left.min())
    total = np.zeros(int(left.max()) - first + 2)
    np.add.at(total, left - first, np.maximum(mass - right, 0.0))
    np.add.at(total, left - first + 1, right)
    nonzero = np.flatnonzero(total)
    index = tuple(int(i) + first for i in nonzero)
    return FiniteLoss(step, index, tuple(np.log(total[nonzero]).tolist()), failure, missing)


def _cells(p: Distribution, q: Distribution) -> tuple[Array, Array]:
    """Return the probabilities of the same bins under both distributions, each with the sum 1."""
    tail_decades = 40  # decades of the tails that have bins
    count = (tail_decades - 3) * 20  # bins per decade
    tail = np.geomspace(10.0**-tail_decades, 1 / LIMITS.cells, count)
    share = np.append(tail, np.arange(2, LIMITS.cells // 2 + 1) / LIMITS.cells)
    with np.errstate(all="ignore"):
        tails = [_quantiles(name, d, share) for name, d in (("p", p), ("q", q))]
        # One bin covers each end at which either distribution has almost no mass. On the left the
        # end may be an atom, so an edge before it is needed.
        ends = max(lower.min() for lower, _ in tails), min(upper.max() for _, upper in tails)
        edges = np.unique(np.concatenate([side for both in tails for side in both]))
        first, last = (int(np.searchsorted(edges, float(x))) for x in (min(ends), max(ends)))
        edges = edges[max(first - 1, 0) : last + 1]
        # Drop bins so narrow that rounding dominates their probabilities.
        width = np.min([_scale(d, edges) for d in (p, q)], axis=0)
        wide = np.diff(edges, prepend=-math.inf) > LIMITS.relative_width * width
        wide[-1] = True
        edges = edges[wide]
        masses = [_masses(d.cdf, d.sf, edges) for d in (p, q)]
    for name, mass in zip("pq", masses, strict=True):
        if not np.all(np.isfinite(mass)) or abs(float(mass.sum()) - 1) > 1e-6:
            raise ValueError(
                f"the cells of {name} have the sum {float(mass.sum())!r}, not 1: its cdf, sf, ppf "
                "and isf disagree; give both distributions as finite sequences of probabilities"
            )
    return masses[0] / masses[0].sum(), masses[1] / masses[1].sum()


def _quantiles(name: str, d: Distribution, share: Array) -> tuple[Array, Array]:
    """Return the finite lower and upper quantiles at the probabilities ``share``."""
    ends = [np.asarray(f(share), dtype=float) for f in (d.ppf, d.isf)]
    lower, upper = (x[np.isfinite(x)] for x in ends)
    if not len(lower) or not len(upper):
        raise ValueError(f"{name} = {d!r} must have finite quantiles")
    return lower, upper


def _scale(d: Distribution, edges: Array) -> Array:
    """Return each edge's distance from the median of d, plus the interquartile range of d."""
    left, middle, right = (float(d.ppf(x)) for x in (0.25, 0.5, 0.75))
    return np.abs(edges - middle) + (right - left)


def _masses(cdf: Callable[[Any], Any], sf: Callable[[Any], Any], edges: Array) -> Array:
    """Return probabilities below, between, and above the edges, from differences of tails."""
    below = np.concatenate([[0.0], np.asarray(cdf(edges), float), [1.0]])
    above = np.concatenate([[1.0], np.asarray(sf(edges), float), [0.0]])
    mass = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
    return np.maximum(mass, 0.0)
