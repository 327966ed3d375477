"""Enclose a curve between two polygons, exactly if it has finitely many corners.

For other curves, some values t = e^epsilon are chosen. For each, power <= delta(t) + t level is a
line above the curve. Let a be minus the slope of delta in t there. Then h(t) = delta(t) + a t is
convex, and its minimum is near this t. Values nearby give a lower bound b on h, so (level a, power
b) is a point below the curve. The gaps are of second order in the spacing of t. For t < 1, the
reversed pair at 1 / t is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import accumulate

import numpy as np

from neyman.curves.losses.bracket import ComposedLattice, LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.external_pld import ExternalPld
from neyman.curves.losses.finite import FiniteLoss, OffLatticeLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.user_pair import UserPair
from neyman.curves.profiles.profile import Engine, Profile
from neyman.curves.profiles.selection import select
from neyman.curves.tradeoff.piecewise_linear import (
    GUESSING,
    REVEALED,
    Corner,
    Line,
    Pair,
    envelope,
    hull,
    mirrored_line,
)
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import OperationLimit, engine_limit, question_meter
from neyman.numerics.rounding import up


@dataclass(frozen=True)
class Limits:
    """Limits on the epsilons (places) that enclose a curve without a formula."""

    power_width: float = 2e-6  # tolerance, relative to power and to delta_share times delta
    least_delta: float = 1e-240  # delta below which no place is used
    sparse_delta: float = 1e-40  # delta below which places are few
    terms: float = 1e5  # most terms of K at a tilt
    largest_epsilon: float = 500.0
    places: int = 1800
    outcomes: int = 400  # most outcomes of a finite product
    digits: int = 60  # of e^epsilon


LIMITS = Limits()
MOMENT_TILTS = 2.0 ** np.arange(-8, 14)


def enclosed(losses: Composition) -> Pair:
    """Return a polygon below the power of an ordered pair and one above it [TC-1].

    Both are equal if the curve has finitely many, exactly known corners. Otherwise, they agree to
    about 1e-5 of the power and of delta, for deltas down to 1e-14. If only divergences are known,
    they agree to about 1e-2.

    Raises:
        ValueError: if the curve rests on an uncertified statement or estimate.
    """
    if not losses.parts:
        return GUESSING, GUESSING
    for loss, _ in losses.parts:
        if isinstance(loss, (ExternalPld, UserPair)) and loss.source:
            raise ValueError(
                f"the curve rests on a statement ({loss.source}), which has no certified polygon: "
                "describe the mechanism, or give its curve by from_points or from_profile"
            )
        if isinstance(loss, NonPrivateLoss):
            return REVEALED, REVEALED
    known = corners(losses)
    if known is not None:
        return known
    points, lines = _half(losses)
    back_points, back_lines = _half(losses.reverse())
    below = hull([*points, *((1 - y, 1 - x) for x, y in back_points)])
    return below, envelope([*lines, *(mirrored_line(*line) for line in back_lines)])


# Finite pairs


def corners(losses: Composition) -> Pair | None:
    """Return the polygons of a finite pair, or None if the pair is not finite or is too large."""
    if len(losses.parts) != 1 or losses.parts[0][1] != 1:
        return _product_polygon(losses)
    loss = losses.parts[0][0]
    if isinstance(loss, LossBracket):
        sides = [enclosed(Composition.of([(x, 1)])) for x in (loss.lower, loss.upper)]
        return sides[0][0], sides[1][1]
    if isinstance(loss, OffLatticeLoss) and loss.masses:
        curve = _steps([*reversed(loss.masses)])
        return curve, curve
    if isinstance(loss, FiniteLoss) and loss.approximate:
        return _approximate(loss)
    return _by_values(loss) if isinstance(loss, OffLatticeLoss) else _on_lattice(losses)


def _product_polygon(losses: Composition) -> Pair | None:
    """Return the polygon of independent exact pairs, if their product has few outcomes."""
    outcomes: dict[Fraction, Corner] = {Fraction(1): (Fraction(1), Fraction(1))}
    for loss, count in losses.parts:
        if not isinstance(loss, OffLatticeLoss) or not loss.masses or count > LIMITS.outcomes:
            return _on_lattice(losses)
        for _ in range(count):
            product: dict[Fraction, Corner] = {}
            for p, q in outcomes.values():
                for a, b in loss.masses:
                    x, y = product.get(p * a / (q * b), (Fraction(0), Fraction(0)))
                    product[p * a / (q * b)] = x + p * a, y + q * b
            if len(product) > LIMITS.outcomes:
                return None
            outcomes = product
    curve = _steps([outcomes[ratio] for ratio in sorted(outcomes, reverse=True)])
    return curve, curve


def _steps(masses: list[Corner]) -> tuple[Corner, ...]:
    """Return the polygon of finitely many outcomes, from their masses under P and Q.

    The largest loss comes first. Missing mass of P has infinite loss.
    """
    failure = 1 - sum((p for p, _ in masses), Fraction(0))
    above = accumulate(
        masses, lambda at, step: (at[0] + step[1], at[1] + step[0]), initial=(Fraction(0), failure)
    )
    return hull(above)


def _approximate(loss: FiniteLoss) -> Pair:
    """Return the polygons of (epsilon, delta)-DP, from power <= delta + e^epsilon level."""
    delta = Fraction(loss.failure)
    if loss.index == (0,):
        curve = envelope([(Fraction(1), delta)])
        return curve, curve
    sides = [envelope([(t, delta), mirrored_line(t, delta)]) for t in exponential(loss.lattice)]
    return sides[0], sides[1]


def exponential(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return rationals below and above e^epsilon, about 1e-50 epsilon apart.

    Outside of e^+-1000, they are farther apart.
    """
    place = min(max(epsilon, Fraction(-1000)), Fraction(1000))
    digits = LIMITS.digits + (-math.frexp(float(place))[1] // 3 if 0 < abs(place) < 1 else 0)
    context = Context(prec=digits, Emax=10**6, Emin=-(10**6))
    near = context.divide(Decimal(place.numerator), Decimal(place.denominator))
    value = Fraction(context.exp(near))
    slack = value * (abs(place) / 10 ** (LIMITS.digits - 2) + Fraction(1, 10 ** (digits - 2)))
    low, high = value - slack if place else value, value + slack if place else value
    if epsilon > 1000:
        high = 10**1000 * high  # the difference matters only at levels that count as 0
    if epsilon < -1000:
        low = Fraction(0)
    return low, high


def exponential_above(epsilon: Fraction) -> Fraction:
    """Return a rational just above e^epsilon, epsilon at least 0, of about 0.43 epsilon digits."""
    parts = max(math.ceil(epsilon / 1000), 1)
    return exponential(epsilon / parts)[1] ** parts


def _by_values(loss: OffLatticeLoss) -> Pair:
    """Return the polygons of a finite loss whose masses are known by their logarithms."""
    value, log_p = np.array(loss.values), np.array(loss.log_p)
    size = 8 + len(value) + 4 * float(np.abs(value).max() + np.abs(log_p).max())
    p, q, alone = np.exp(log_p), np.exp(log_p - value), (loss.failure, loss.missing)
    # slack: corners_from_logarithms_of_masses
    return _round_polygon(p, q, 2 * size * UNIT, alone, (0.0, 0.0))


def _on_lattice(losses: Composition) -> Pair | None:
    """Return the polygons from masses on one lattice, or None if that is impossible or too large.

    The masses of Q are computed separately, under a tilt of -1.
    """
    joint = ComposedLattice.exact(losses.parts)
    if joint is None:
        return None
    p, q = joint.atoms(0.0), joint.atoms(-1.0)
    first, last = max(p.start, q.start), min(p.start + len(p), q.start + len(q))
    if p.absolute or q.absolute or last <= first:
        return None
    masses: list[Array] = []
    tails: list[float] = []
    for atoms in (p, q):
        weight = atoms.weight * math.exp(atoms.log_scale)
        before, weights, after = np.split(weight, [first - atoms.start, last - atoms.start])
        masses.append(weights)
        tail = atoms.tail * math.exp(atoms.log_scale) + math.fsum((*before, *after))
        tails.append(tail * (1 + 1e-9))
    # A power of e errs by 2 units plus its exponent's rounding. A product errs by one unit. Sums
    # are exact.
    # slack: counted
    slack = p.relative + q.relative + 16 * UNIT * (len(p) + abs(p.log_scale) + abs(q.log_scale) + 1)
    alone = joint.infinite, joint.reverse().infinite
    return _round_polygon(masses[0], masses[1], slack, alone, (tails[0], tails[1]))


def _round_polygon(
    p: Array, q: Array, relative: float, alone: tuple[float, float], tails: tuple[float, float]
) -> Pair:
    """Return polygons from rounded masses. Each corner uses the masses on both sides of it.

    So both kinds of errors stay accurate.

    Args:
        p, q: masses of the outcomes of finite loss, the smallest loss first.
        relative: relative error of the masses and of their sums.
        alone: masses of the outcomes that only P, or only Q, can produce.
        tails: bounds on the omitted mass under P and under Q; it may have any loss.
    """
    # A subnormal or underflowing mass errs by a few of the least floats.
    slack, least = Fraction(relative), 4 * len(p) * Fraction(math.ulp(0.0))
    lost_p, lost_q = (Fraction(tail) + least for tail in tails)
    steps = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(p, q, strict=True)]
    power = [*accumulate((a for a, _ in reversed(steps)), initial=Fraction(alone[0]))]
    level = [*accumulate((b for _, b in reversed(steps)), initial=Fraction(0))]
    beta = [*accumulate((a for a, _ in steps), initial=Fraction(0))][::-1]
    rest = [*accumulate((b for _, b in steps), initial=Fraction(alone[1]))][::-1]
    less, more = 1 - slack, 1 + slack
    below: list[Corner] = []
    above: list[Corner] = []
    for x, y, u, v in zip(level, power, rest, beta, strict=True):
        below.append((min(x * more, 1 - u * less), max(y * less, 1 - v * more - lost_p)))
        above.append((max(x * less, 1 - u * more - lost_q), min(y * more + lost_p, 1 - v * less)))
    return hull(_clamp_corners(below)), hull(_clamp_corners(above))


def _clamp_corners(points: list[Corner]) -> list[Corner]:
    return [
        (min(max(x, Fraction(0)), Fraction(1)), min(max(y, Fraction(0)), Fraction(1)))
        for x, y in points
    ]


# Curves of any other kind


@array_cache
def _half(losses: Composition) -> tuple[list[Corner], list[Line]]:
    """Return points below the curve of power and lines above it, where its slope is at least 1."""
    profile, top = select(losses).coarse(), float(losses.supremum)
    end = min(top, LIMITS.largest_epsilon)
    sure = not any(isinstance(loss, LossBracket) for loss, _ in losses.parts)
    points: list[Corner] = (
        # slack: lines_and_points_at_the_mass_of_infinite_losses
        [(Fraction(0), Fraction(losses.infinite) * (1 - Fraction(8 * UNIT)))] if sure else []
    )
    lines: list[Line] = []
    if top <= LIMITS.largest_epsilon:
        high = up(math.exp(up(top, 1)))
        # slack: lines_and_points_at_the_mass_of_infinite_losses
        lines.append((Fraction(high), Fraction(losses.infinite) * (1 + Fraction(8 * UNIT))))
        if sure and losses.log_top - top > math.log(LIMITS.least_delta):
            points.append(_last_corner(losses, top))
    place = np.array([0.0])
    if end > 0:
        spread = math.sqrt(max(float(losses.moments(np.zeros(1))[2][0].real), 0.0))
        deep, end = (min(x, end) for x in _about(losses, (LIMITS.sparse_delta, LIMITS.least_delta)))
        spread = min(spread, deep) if 0 < spread < math.inf else deep
        near, far = np.geomspace(spread * 1e-2, deep, 90), np.geomspace(deep, end, 10)
        place = np.unique(np.concatenate([[0.0], near, far]))
    # Divides the numbers of places if only divergences are known.
    share = 10 if losses.bare is not None else 1  # each delta is costly
    if profile.engine == Engine.SHUFFLE:
        share = _shuffled_share(profile, place)
        place = place[:: min(share, 8)]
    places = _Places(profile, place)
    first_places = 400  # first places in one order
    for most in (first_places // share, LIMITS.places // share):
        try:
            for _ in range(12):
                if not places.refine(most):
                    break
            if most == first_places // share:
                places = _Places(profile, places.evenly(1500 // share))
        except OperationLimit:  # the lines and points so far bound the curve
            break
    for t, delta, level, power in places.rows():
        lines.append((Fraction(t), Fraction(delta)))
        if power > 0:
            points.append((Fraction(level), Fraction(power)))
    return points, lines


def _shuffled_share(profile: Profile, place: Array) -> int:
    """Return a factor by which to reduce the number of places, if a delta takes many operations."""
    probe_epsilons = 8  # epsilons that measure a delta's operations
    if len(place) < probe_epsilons:
        return 1
    several = place[:: len(place) // probe_epsilons]
    with question_meter() as meter:
        counts = [meter.count]
        for asked in (several[-1:], several):
            profile.log_deltas(asked)
            counts.append(meter.count)
    each = (counts[2] - 2 * counts[1] + counts[0]) / (len(several) - 1)
    # A place takes 12 deltas, with its point and its refinement, and an order 3e9 operations.
    return max(math.ceil(each * 12 * LIMITS.places / 3e9), 1)


def _about(losses: Composition, deltas: Sequence[float]) -> list[float]:
    """Return, for each of ``deltas``, an epsilon at which Chernoff's bound on delta equals it."""
    tilts = np.array([c for c in MOMENT_TILTS if losses.places(float(c), 0.0) <= LIMITS.terms])
    k = None
    while k is None and len(tilts):
        try:
            with np.errstate(all="ignore"), engine_limit():
                k = losses.moments(tilts)[0]
        except OperationLimit:  # K at the largest tilts may have too many terms
            tilts = tilts[: len(tilts) // 2]
    if k is None:
        return [math.inf for _ in deltas]
    with np.errstate(all="ignore"):
        ends = [np.where(np.isfinite(k), (k - math.log(d)) / tilts, math.inf) for d in deltas]
    return [max(float(np.min(e)), 1e-300) for e in ends]


def _last_corner(losses: Composition, top: float) -> Corner:
    """Return level and power of the test that decides for P at the largest loss only [TC-3].

    If its mass has only a lower bound, use that.
    """
    # slack: the_corner_of_the_largest_loss
    slack = 64 * UNIT * (2 + abs(losses.log_top) + abs(top))
    level = math.exp(losses.log_top - top) * (1 + slack)
    power = Fraction(math.exp(losses.log_top)) + Fraction(losses.infinite)
    return min(Fraction(level), Fraction(1)), power * (1 - Fraction(2 * slack))


class _Places:
    """Hold the lines above a curve and the points below it, for increasing epsilons (places).

    Args:
        place: epsilons, at least 0, increasing.
    """

    def __init__(self, profile: Profile, place: Array) -> None:
        self._profile = profile
        high = _up(profile.log_deltas(place)[1])
        number = max(int(np.count_nonzero(high > LIMITS.least_delta)), 1) + 1  # one beyond
        self.place, self.high = place[:number], high[:number]
        gaps = np.diff(self.place)
        each = np.append(gaps, gaps[-1:]) if len(gaps) else np.full(1, 1e-3)
        self.level, self.power = self._points(self.place, each)

    def _points(self, place: Array, gap: Array) -> tuple[Array, Array]:
        """Return a level for each place, and a lower bound on the power at this level, or 0 [TC-2].

        gap: distance to the next place.

        The module's h is computed at five epsilons. If the outer two values are above the adjacent
        ones, h rises beyond them. Between them, h is above the extended chords on either side.
        """
        level, power = np.ones(len(place)), np.zeros(len(place))
        wanting = np.arange(len(place))
        with np.errstate(all="ignore"):  # after overflow a comparison fails: no point
            for near, far in ((1 / 32, 1 / 4), (1 / 32, 2.0), (1 / 4, 16.0)):
                at, r = place[wanting], np.minimum(gap[wanting] * near, 0.5)
                wide = np.minimum(gap[wanting] * far, 16.0)
                five = np.stack([at - wide, at - r, at, at + r, at + wide])
                bracket = self._profile.log_deltas(five.ravel())
                low, high = _down(bracket[0]).reshape(5, -1), _up(bracket[1]).reshape(5, -1)
                t, middle = np.exp(five), 0.5 * (low + high)
                slope = np.clip((middle[1] - middle[3]) / (t[3] - t[1]), 0.0, 1.0)
                # t equals e^epsilon to a few units of t and of epsilon. These count against the
                # point: two units for the exponential, one for epsilon, and one for each product
                # and sum. The slack of `_up` and `_down` covers the sum with delta.
                units = 16 * UNIT * (1 + np.abs(five))  # slack: counted
                least, most = low + slope * t * (1 - units), high + slope * t * (1 + units)
                left = (np.exp(-r) - np.exp(-wide)) / -np.expm1(-r)
                right = (np.exp(wide) - np.exp(r)) / np.expm1(r)

                def fall(
                    i: int, j: int, times: Array, most: Array = most, least: Array = least
                ) -> Array:
                    """Return the least value beyond j of the extended chord from place i to j."""
                    return least[j] - np.maximum(most[i] - least[j], 0.0) * times * (1 + 1e-3)

                bound = np.minimum(
                    np.minimum(fall(2, 1, left), fall(2, 3, right)),
                    np.minimum(fall(1, 2, np.exp(r)), fall(3, 2, np.exp(-r))),
                )
                good = (least[0] >= most[1]) & (least[4] >= most[3]) & (bound > 0) & (slope > 0)
                level[wanting[good]] = slope[good]
                # The inner difference errs by a relative unit, which 1e-3 covers, the last by one.
                # slack: counted
                power[wanting[good]] = np.minimum(bound[good] * (1 - 8 * UNIT), 1.0)
                wanting = wanting[~good]
                if not len(wanting):
                    break
        return level, power

    def _gaps(self) -> Array:
        """Return the gap between lines and points after each place, divided by the tolerance."""
        t = np.exp(self.place)
        a, b = self.level, self.power
        with np.errstate(all="ignore"):
            at = (b[:-1] - b[1:]) / (a[:-1] - a[1:])
        at = np.clip(np.where(np.isfinite(at), at, t[:-1]), t[:-1], t[1:])
        # same: 1.0 -> 1.001: Where t[1:] is t[:-1], at is both, and 0 is divided.
        share = (at - t[:-1]) / np.where(t[1:] > t[:-1], t[1:] - t[:-1], 1.0)
        above = self.high[:-1] + (self.high[1:] - self.high[:-1]) * share
        below = np.maximum(b[:-1] - a[:-1] * at, b[1:] - a[1:] * at)
        below = np.maximum(np.where((b[:-1] > 0) | (b[1:] > 0), below, 0.0), 0.0)
        scale = np.minimum(above + np.minimum(a[:-1], a[1:]) * at, 16.0 * above)  # delta share
        # Delta below which the tolerance grows.
        ease = np.maximum(1e-14 / np.maximum(above, 1e-300), 1.0) ** 0.25
        gap = (above - below) / (LIMITS.power_width * ease * np.maximum(scale, 1e-300))
        known = (b[:-1] > 0) & (b[1:] > 0)
        gap = np.where(known, gap, np.maximum(gap, 4.0))
        width = self.place[1:] - self.place[:-1]
        fine = (width > 1e-8 * (1 + self.place[1:])) & (above > LIMITS.least_delta)
        return np.where(fine & (above > below), gap, 0.0)

    def evenly(self, most: int) -> Array:
        """Return at most ``most`` new places, chosen for about equal gaps."""
        root = np.sqrt(self._gaps())
        need = np.concatenate([[0.0], np.cumsum(np.clip(root, 1e-3, 1e3))])
        count = int(min(max(need[-1], 2.0), most))
        return np.unique(np.interp(np.linspace(0.0, float(need[-1]), count), need, self.place))

    def refine(self, most: int) -> bool:
        """Add places where lines and points are too far apart. Return False if none is needed."""
        gap = self._gaps()
        # If there is no room for all, reduce all in proportion.
        ease = max(1.0, float(np.sqrt(gap).sum()) / most) ** 2
        while True:
            pieces = np.clip(np.ceil(np.sqrt(gap / ease)), 1, 8).astype(int)
            added = int((pieces - 1).sum())
            if not added:
                return False
            if len(self.place) + added <= most:
                break
            ease *= 1.5
        left, width = self.place[:-1], np.diff(self.place)
        new: list[Array] = []
        gaps: list[Array] = []
        for k in range(1, 8):
            cut = pieces > k
            new.append(left[cut] + width[cut] * k / pieces[cut])
            gaps.append(width[cut] / pieces[cut])
        # The points at the ends of divided intervals can be sharpened, too.
        closer = np.where(pieces > 1, width / pieces, math.inf)
        closer = np.minimum(np.append(closer, math.inf), np.append(math.inf, closer))
        again = np.nonzero(closer < math.inf)[0]
        fresh = np.concatenate(new)
        place = np.concatenate([fresh, self.place[again]])
        level, power = self._points(place, np.concatenate([*gaps, closer[again]]))
        better = power[len(fresh) :] > 0
        self.level[again[better]] = level[len(fresh) :][better]
        self.power[again[better]] = power[len(fresh) :][better]
        high = _up(self._profile.log_deltas(fresh)[1])
        order = np.argsort(np.concatenate([self.place, fresh]), kind="stable")
        self.place = np.concatenate([self.place, fresh])[order]
        self.high = np.concatenate([self.high, high])[order]
        self.level = np.concatenate([self.level, level[: len(fresh)]])[order]
        self.power = np.concatenate([self.power, power[: len(fresh)]])[order]
        return True

    def rows(self) -> list[tuple[float, float, float, float]]:
        """Return for each place upper bounds on e^epsilon and delta, a level, and its power."""
        # slack: slopes_of_lines_are_moved_up
        t = np.exp(self.place) * (1 + 16 * UNIT * (1 + self.place))
        return [
            (float(x), float(d), float(a), float(b))
            for x, d, a, b in zip(t, self.high, self.level, self.power, strict=True)
        ]


def _up(log_value: Array) -> Array:
    # slack: powers_of_e_are_moved_outward/a
    value = np.exp(np.minimum(log_value, 0.0) * (1 - 4 * UNIT)) * (1 + 8 * UNIT)
    value = np.minimum(value + math.ulp(0.0), 1.0)  # e^-800 is not 0
    return np.where(np.isneginf(log_value), 0.0, value)


def _down(log_value: Array) -> Array:
    # slack: powers_of_e_are_moved_outward/b
    return np.exp(np.minimum(log_value, 0.0) * (1 + 4 * UNIT)) * (1 - 8 * UNIT)
