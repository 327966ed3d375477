"""Values of finite losses, and lists of the sums of their copies that are likely.

A few copies of a loss with finitely many values have few sums that count above a place. They are
listed from the largest values down, and a beginning is left out where Chernoff's bound of all that
may follow is nothing. The derivation stands in docs/certificates/finite-values.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from neyman.curves.losses.bracket import Parts
from neyman.curves.losses.finite import PLACE_ERROR, OffLatticeLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.piecewise_analytic import PiecewiseAnalyticLoss
from neyman.curves.profiles.contour_line import Line, log_kernel
from neyman.curves.profiles.profile import Interval
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import CALL, charge
from neyman.numerics.power_sums import divergence, slow


@dataclass(frozen=True)
class Limits:
    """Where the lines of finite sums go, and how far.

    Args:
        digits_efolds: aliases, and what is beyond the nodes, should be below e^-digits of delta.
        level_ratio: of a level to the one before.
        cancellation_efolds: by which one line's bound may exceed that of levels.
        table_tilts, fine_tilts: tilts of a table, and of one around its least terms.
        most_nodes: of a line.
        most_terms, scan_terms: nodes times values of a line, and of the cells of a scan.
        scan_deviations: width of a cell over the inverse deviation of a step: |m|^2 bends in it by
            less than a quarter of the square [FV-3].
        drop_efolds: weights below e^-drop of the largest count as left out.
        all_counts: copies up to which all counts of a value are tried.
        depth_efolds: of the chance of a count that is not tried.
        least_efolds: beginnings below e^-least of delta are left out of a list.
        good_width: of log delta, with which no lines are asked beside a list.
        most_ways, most_work, most_sums: of a list: ways about, beginnings tried, and sums.
    """

    digits_efolds: float = 24.0
    level_ratio: float = 8.0
    cancellation_efolds: float = 3.0
    table_tilts: int = 80
    fine_tilts: int = 40
    most_nodes: int = 1 << 18
    most_terms: float = 6e7
    scan_terms: float = 1.5e7
    scan_deviations: float = 0.2
    drop_efolds: float = 60.0
    all_counts: int = 40
    depth_efolds: float = 60.0
    least_efolds: float = 33.0
    good_width: float = 1e-9
    most_ways: float = 1e8
    most_work: float = 1.5e7
    most_sums: int = 1 << 18
    least_log_share: float = -1e5  # log of a share, below which it counts as that
    largest_tilt: float = 2.0**40  # for which values are listed


LIMITS = Limits()
_FACTORIALS = gammaln(np.arange(LIMITS.all_counts + 1) + 1.0)
SUM_ERROR_UNITS = 40  # units by which NumPy's sum in pairs errs


@dataclass(frozen=True, eq=False)
class Values:
    """The values of one loss, as far as tilts up to some size ask for them.

    Args:
        place, log_p: in increasing order, with their masses under P.
        relative: bound on the relative error of each mass.
        moves: bound on the relative error of each place.
        lost: (a, l): mass left out, at most e^{a + c l} under a tilt c.
        missing: the mass that no value has, if all others are known without their sum; else None.
        count: how many copies the sum has.
    """

    place: Array
    log_p: Array
    relative: Array
    moves: Array
    lost: tuple[tuple[float, float], ...]
    missing: float | None
    count: int

    def log_mgf(self, tilts: Array, low: float, high: float) -> tuple[Array, Array, Array]:
        """Log of M up to ``high``, its error, and log of the most of it that is above ``low``."""
        inside = self.place <= high
        place, log_p = self.place[inside], self.log_p[inside]
        charge(CALL + 60 * len(tilts) * len(place))
        move = np.multiply.outer(tilts, place)
        g = move + log_p
        top = g.max(axis=1)
        weight = np.exp(g - top[:, None])
        total = weight.sum(axis=1)
        k = top + np.log(total)
        relative = self.relative[inside]
        units = relative + UNIT * (4 * (8 + np.abs(log_p) + np.abs(move)) + SUM_ERROR_UNITS)
        units = units + np.abs(move) * self.moves[inside]
        error = (weight * units).sum(axis=1) / total + 4 * UNIT * np.abs(k)
        near = (np.abs(k) < 1) if self.missing is not None else np.zeros(len(k), bool)
        if self.missing is not None and near.any():
            gain = np.exp(log_p) * np.expm1(np.minimum(move[near], 1.0))
            far = move[near] > 1
            gain[far] = np.exp(g[near][far]) - np.exp(np.broadcast_to(log_p, far.shape)[far])
            outside = np.exp(self.log_p[~inside])
            beyond = float(outside.sum())
            unsure = (
                float((outside * self.relative[~inside]).sum()) + SUM_ERROR_UNITS * UNIT * beyond
            )
            # Not the mass less 1, which is rounded to a unit of 1.
            unsure += 4 * UNIT * self.missing
            excess = gain.sum(axis=1) - self.missing - beyond
            k[near] = np.log1p(excess)
            # e^x - 1 moves by at most |x| e^x times the error of x, which is relative.
            size = (
                np.abs(gain) * units[near]
                + np.exp(g[near]) * np.abs(move[near]) * self.moves[inside]
            )
            unsure += float(self.left_out(np.zeros(1), -math.inf, math.inf)[0])
            error[near] = (size.sum(axis=1) + unsure) / (1 + excess)
        scale = np.exp(np.minimum(-k, 700.0))
        missing = self.left_out(tilts, -math.inf, high) * scale
        share = np.full(len(k), LIMITS.least_log_share)
        upper = g[:, place > low] if low > -math.inf else g[:, :0]
        if upper.shape[1]:
            top = upper.max(axis=1)
            share = top + np.log(np.exp(upper - top[:, None]).sum(axis=1)) - k
        more = self.left_out(tilts, low, high) * scale
        with np.errstate(divide="ignore"):
            share = np.maximum(np.logaddexp(share, np.log(more)), LIMITS.least_log_share)
        return k, error + missing, share

    def left_out(self, tilts: Array, low: float, high: float) -> Array:
        """Bound on the mass between two places that is not listed, under the tilts."""
        log_mass, place = np.array(self.lost).reshape(-1, 2).T
        inside = (place > low) & (place <= high)
        exponent = log_mass[inside] + np.multiply.outer(tilts, place[inside])
        return np.exp(np.minimum(exponent, 600.0)).sum(axis=1)


@array_cache
def values_of(loss: Part) -> Values | None:
    """Return the values of one copy; None where there is a density, or a loss of another kind."""
    if isinstance(loss, OffLatticeLoss):
        place, log_p = np.array(loss.values), np.array(loss.log_p)
        relative = 4 * UNIT * (8 + np.abs(log_p))
        moves = np.full(len(place), PLACE_ERROR)
        return Values(place, log_p, relative, moves, (), loss.failure, 1)
    if not isinstance(loss, PiecewiseAnalyticLoss):
        return None
    law = loss.law(LIMITS.largest_tilt)
    if law.pieces:
        return None
    used = np.isfinite(law.loss) & np.isfinite(law.log_p)
    order = np.argsort(law.loss[used], kind="stable")
    missing = loss.infinite if law.normalized else None
    # Values that are missing here have the loss -inf: they are no part of M.
    if not used.all():
        missing = None
    place, log_p = law.loss[used][order], law.log_p[used][order]
    each = np.full(len(law.loss), law.relative) if law.units is None else law.units
    moves = np.full(len(law.loss), PLACE_ERROR) if law.moves is None else law.moves
    each, moves = each[used][order], moves[used][order]
    return Values(place, log_p, each, moves, law.lost, missing, 1)


def listed(parts: Parts) -> tuple[Values, ...]:
    """Return the values of all parts."""
    each = [(values_of(loss), n) for loss, n in parts]
    return tuple(replace(v, count=n) for v, n in each if v is not None)


@dataclass(frozen=True, eq=False)
class Listing:
    """The sums that count above a place, each with its chance [FV-4].

    Args:
        loss, chance: the sums, falling, and their chances.
        relative, place: bounds on the relative errors of the chances, and on those of the sums.
        start: the place.
        lost: bound on the share in delta(start) of all sums that are not listed.
    """

    loss: Array
    chance: Array
    relative: Array
    place: Array
    start: float
    lost: float
    lines: tuple[Line, ...] = ()
    bump: None = None

    def log_delta(self, epsilon: Array) -> tuple[Array, Array]:
        """Certified bounds on log delta at each epsilon."""
        ends = np.array([self._ends(float(e)) for e in np.asarray(epsilon, float)])
        with np.errstate(divide="ignore"):
            low, high = np.log(ends.reshape(-1, 2)).T
        slack = 4 * UNIT * np.where(np.isfinite(low), np.abs(low), 0.0)
        return low - slack, np.minimum(high + slack, 0.0)

    def _ends(self, epsilon: float) -> Interval:
        if epsilon < self.start:
            return 0.0, 1.0
        k = int(np.searchsorted(-self.loss, -epsilon, side="left"))
        charge(CALL + 20 * k)
        gain = self.chance[:k] * -np.expm1(epsilon - self.loss[:k])
        value = float(gain.sum())
        # What is within its error below epsilon gains at most that error.
        far = int(np.searchsorted(-self.loss, -epsilon + 2 * float(self.place.max())))
        moved = float((self.chance * self.place)[:far].sum()) + 4 * UNIT * abs(epsilon) * float(
            self.chance[:far].sum()
        )
        error = float((gain * self.relative[:k]).sum()) + moved + value * (k + 16) * UNIT
        return max(value - error, 0.0), value + error + self.lost

    def log_tails(self, epsilon: Array, *, ahead: bool) -> Array:
        """About log P(L > epsilon), or log Q(L > epsilon) where not ``ahead``; to steer by."""
        mass = self.chance if ahead else self.chance * np.exp(-self.loss)
        total = np.append(0.0, np.cumsum(mass))
        with np.errstate(divide="ignore"):
            return np.log(total[np.searchsorted(-self.loss, -np.asarray(epsilon))])

    def width(self, epsilon: float) -> float:
        """Return the width of the bounds on log delta there."""
        low, high = self.log_delta(np.array([epsilon]))
        return float(high[0] - low[0]) if low[0] > -math.inf else math.inf


def _counts(left: Array, share: Array, count: int) -> Array:
    """How often a value may come, at least once, among terms of which so many are left.

    Args:
        left: for each beginning.
        share: of the value among those that may still come, for each tilt.
        count: terms of the sum.
    """
    low, high = 1, int(left.max())
    if count > LIMITS.all_counts:
        # Bernstein: what is farther from the mean has a chance below e^-depth.
        depth = LIMITS.depth_efolds
        most, least = float(left.max() * share.max()), float(left.min() * share.min())
        high = min(high, math.ceil(most + math.sqrt(2 * depth * most) + depth))
        low = max(low, math.floor(least - math.sqrt(2 * depth * least)))
    return np.arange(low, high + 1)


def _log_binomial(n: Array, k: Array, rest: Array, log_r: float, log_s: float) -> Array:
    """log of n! / (k! rest!) r^k s^rest, without large numbers that cancel (`power_sums`)."""
    if int(n.max()) <= LIMITS.all_counts:
        return (_FACTORIALS[n] - _FACTORIALS[k] - _FACTORIALS[rest]) + (k * log_r + rest * log_s)
    away = divergence(k, n * math.exp(log_r)) + divergence(rest, n * math.exp(log_s))
    return slow(n) - slow(k) - slow(rest) - away


def are_few(values: Sequence[Values]) -> bool:
    """Whether the sums may be listed: about how many come with a chance above e^-near."""
    log_ways, near = 0.0, LIMITS.least_efolds
    for v in values:
        log_mean = np.sort(v.log_p + math.log(v.count))
        likely = max(1, int(np.count_nonzero(log_mean > -near)))
        if v.count <= LIMITS.all_counts:
            log_ways += math.log(math.comb(likely + v.count - 1, v.count))
            continue
        mean = np.exp(log_mean[-likely:-1])
        spread = np.sqrt(2 * near * mean) + near / np.log(near / np.minimum(mean, 1.0))
        log_ways += float(np.log1p(spread).sum())
    return log_ways <= math.log(LIMITS.most_ways)


@dataclass(frozen=True, eq=False)
class _Beginnings:
    """Sums of the first terms, each with what is left to add.

    Args:
        total, log_chance: the sums, and log of their chances.
        relative, place: bounds on the relative errors of the chances, and on those of the sums.
        left: terms of the same loss that are still to come.
    """

    total: Array
    log_chance: Array
    relative: Array
    place: Array
    left: Array

    def where(self, mask: Array) -> _Beginnings:
        """Those that are asked for."""
        return _Beginnings(
            self.total[mask],
            self.log_chance[mask],
            self.relative[mask],
            self.place[mask],
            self.left[mask],
        )

    @staticmethod
    def joined(parts: Sequence[_Beginnings], left: int) -> _Beginnings:
        """All of them, with so many terms of the next loss to come."""
        total = np.concatenate([p.total for p in parts])
        return _Beginnings(
            total,
            np.concatenate([p.log_chance for p in parts]),
            np.concatenate([p.relative for p in parts]),
            np.concatenate([p.place for p in parts]),
            np.full(len(total), left),
        )


@dataclass
class _List:
    """Lists the likely sums of losses, the largest values first [FV-4].

    Args:
        start: the place above which sums count.
        tilts, kernel: of Chernoff's bounds, with the tilt 0 first.
        log_least: log of a share in delta, below which a beginning is left out.
        work, lost: beginnings so far, and the share of those that were left out.
    """

    start: float
    tilts: Array
    kernel: Array
    log_least: float
    work: float = 0.0
    lost: float = 0.0

    def share(self, rows: _Beginnings, left: Array, total: Array, m: Array, rest: Array) -> Array:
        """Log of the most that a beginning's sums add to delta, less log of its chance."""
        bound = np.full(np.broadcast_shapes(left.shape, total.shape), math.inf)
        for i, c in enumerate(self.tilts.tolist()):
            move = c * (total - self.start) + (self.kernel[i] + rest[i])
            np.minimum(bound, left * m[i] + move, out=bound)
        return bound

    def add(self, v: Values, below: Array, rest: Array, rows: _Beginnings) -> _Beginnings | None:
        """Return the sums with all copies of a loss added; None where they are too many.

        Args:
            v: the values of the loss.
            below: log of its transform up to each value, at each tilt.
            rest: log of the transform of what comes later, at each tilt.
            rows: the sums so far.
        """
        p, units = np.exp(v.log_p), v.relative + 8 * UNIT * (2 + np.abs(v.log_p))
        # Errors of masses whose sum is known count by how far a count is from its mean.
        mean = v.count * p if v.missing is not None else 0 * p
        off = (
            0.0
            if v.missing is None
            else abs(float(p.sum()) + v.missing - 1) + SUM_ERROR_UNITS * UNIT
        )
        later = np.append(0.0, np.cumsum(mean * units))
        rows = _Beginnings(
            rows.total,
            rows.log_chance + v.count * below[-1, 0],
            rows.relative + v.count * (off + 16 * UNIT),
            rows.place,
            np.full(len(rows.total), v.count),
        )
        done: list[_Beginnings] = []
        for j in range(len(p) - 1, 0, -1):
            if not len(rows.left):
                break
            beginnings = self._with(v, j, below, rest, rows)
            if beginnings is None:
                return None
            rows, k = beginnings
            rows = replace(rows, relative=rows.relative + np.abs(k - mean[j]) * units[j])
            ready = rows.where(rows.left == 0)
            done.append(replace(ready, relative=ready.relative + later[j]))
            rows = rows.where(rows.left > 0)
        x = float(v.place[0])
        done.append(
            replace(
                rows,
                total=rows.total + rows.left * x,
                relative=rows.relative + np.abs(rows.left - mean[0]) * units[0],
                place=rows.place + rows.left * abs(x) * (float(v.moves[0]) + len(p) * UNIT),
            )
        )
        return _Beginnings.joined(done, 0)

    def _with(
        self, v: Values, j: int, below: Array, rest: Array, rows: _Beginnings
    ) -> tuple[_Beginnings, Array] | None:
        """Return the beginnings with each number of copies of one value, and these numbers."""
        x, log_below = float(v.place[j]), float(below[j, 0])
        log_r, log_s = float(v.log_p[j]) - log_below, float(below[j - 1, 0]) - log_below
        share = np.exp(self.tilts * x + v.log_p[j] - below[j])
        k = np.append(0, _counts(rows.left, share, v.count))
        size, many = len(rows.left) * len(k), v.count > LIMITS.all_counts
        self.work += 6 * size if many else size
        if self.work > LIMITS.most_work or max(len(rows.left), size // 8) > LIMITS.most_sums:
            return None
        charge(CALL + 200.0 * size)
        if many:  # counts beyond those that are tried
            own = self.share(rows, rows.left, rows.total, below[j] - log_below, rest)
            self.lost += 2 * math.exp(-LIMITS.depth_efolds) * _sum(own + rows.log_chance)
        left = rows.left[:, None] - k
        fits = left >= 0
        left = np.maximum(left, 0)
        log_b = _log_binomial(rows.left[:, None], k, left, log_r, log_s)
        total = rows.total[:, None] + k * x
        # What follows takes smaller values only.
        m = below[j - 1] - below[j - 1, 0]
        bound = self.share(rows, left, total, m, rest) + (log_b + rows.log_chance[:, None])
        keep = (bound > self.log_least) & fits
        self.lost += _sum(bound[fits & ~keep])
        row, column = np.nonzero(keep)
        more, log_b = k[column], log_b[keep]
        away = np.abs(more - rows.left[row] * math.exp(log_r))
        units = 8 * (np.abs(log_b) + away) + 1000 * (more > 0)
        beginnings = _Beginnings(
            total[keep],
            rows.log_chance[row] + log_b,
            rows.relative[row] + units * UNIT,
            rows.place[row] + more * abs(x) * (float(v.moves[j]) + len(v.place) * UNIT),
            left[keep],
        )
        return beginnings, more


def _sum(exponents: Array) -> float:
    return float(np.exp(np.minimum(exponents, 700.0)).sum()) * (1 + 1e-9)


def listing(
    values: Sequence[Values], start: float, tilts: Array, log_least: float
) -> Listing | None:
    """Return the sums above a place; None where they are too many.

    Args:
        values: of the losses.
        start: the place.
        tilts: of Chernoff's bounds, above 0.
        log_least: log of a share in delta that does not count.
    """
    order = sorted(values, key=lambda v: len(v.place))
    tilts = np.append(0.0, tilts)
    sums = _List(start, tilts, np.append(0.0, log_kernel(tilts[1:])), log_least)
    below = [
        np.logaddexp.accumulate(np.multiply.outer(v.place, tilts) + v.log_p[:, None]) for v in order
    ]
    log_m = [v.count * b[-1] for v, b in zip(order, below, strict=True)]
    log_all = np.add.reduce(log_m)
    for v, b in zip(order, below, strict=True):  # a step that is not listed, and any others
        missing = v.count * v.left_out(tilts, -math.inf, math.inf)
        with np.errstate(divide="ignore"):
            bound = np.log(missing) + log_all - b[-1] - tilts * start + sums.kernel
        sums.lost += math.exp(min(float(bound.min()) + 1e-6, 700.0))
    rows: _Beginnings | None = _Beginnings(*(np.zeros(1) for _ in range(5)))
    for i, (v, b) in enumerate(zip(order, below, strict=True)):
        rest = np.add.reduce([np.zeros(len(tilts)), *log_m[i + 1 :]])
        rows = sums.add(v, b, rest, rows)
        if rows is None:
            return None
    down = np.argsort(-rows.total, kind="stable")
    log_chance = rows.log_chance[down]
    adds = sum(len(v.place) for v in values) + 8
    relative = rows.relative[down] + UNIT * adds * (1 + np.abs(log_chance))
    return Listing(
        rows.total[down], np.exp(log_chance), relative, rows.place[down], start, sums.lost
    )
