"""List values of finite losses, and the likely sums of their copies.

A few copies of a loss with finitely many values have few sums that matter above some start. Sums
are built from the largest values down. A partial sum (a beginning) is omitted if Chernoff's bound
on all its continuations is negligible. See docs/certificates/finite-values.md for the derivation.
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
    """Limits on the position and size of lines and lists for finite sums.

    Args:
        digits_efolds: aliases, and terms beyond the nodes, should be below e^-digits of delta.
        level_ratio: ratio of successive levels.
        cancellation_efolds: largest log ratio of one line's bound to the bound by levels.
        table_tilts, fine_tilts: tilts of a table, and of a table around its smallest terms.
        most_nodes: most nodes of a line.
        most_terms, scan_terms: most nodes times values of a line, and of the cells of a scan.
        scan_deviations: width of a cell times the deviation of a step. In a cell, |m|^2 differs
            from its chord by less than a quarter of the squared width [FV-3].
        drop_efolds: weights below e^-drop of the largest weight are omitted.
        all_counts: most copies for which all counts of a value are tried.
        depth_efolds: the probability of the omitted counts is e^-depth.
        least_efolds: a list omits beginnings below e^-least of delta.
        good_width: width of log delta at which a list needs no lines.
        most_ways, most_work, most_sums: for a list, approximate most ways, most beginnings tried,
            and most sums.
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
    least_log_share: float = -1e5  # least log of a share to represent
    largest_tilt: float = 2.0**40  # largest tilt for which values are listed


LIMITS = Limits()
_FACTORIALS = gammaln(np.arange(LIMITS.all_counts + 1) + 1.0)
SUM_ERROR_UNITS = 40  # error of NumPy's pairwise sum, in units


@dataclass(frozen=True, eq=False)
class Values:
    """Hold the values of one loss that matter for tilts up to a limit.

    Args:
        place, log_p: values of the loss in increasing order, and their log masses under P.
        relative: bound on the relative error of each mass.
        moves: bound on the relative error of each value.
        lost: pairs (a, l) for omitted masses, each at most e^{a + c l} under a tilt c.
        missing: the mass of infinite loss, if it and all other masses sum to 1; else None.
        count: number of copies in the sum.
    """

    place: Array
    log_p: Array
    relative: Array
    moves: Array
    lost: tuple[tuple[float, float], ...]
    missing: float | None
    count: int

    def log_mgf(self, tilts: Array, low: float, high: float) -> tuple[Array, Array, Array]:
        """Return log M of values up to ``high``, its error, and a bound on the log share above low.

        M(c) = E[e^{cL}] at each tilt c.
        """
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
        # slack: counted
        units = relative + UNIT * (4 * (8 + np.abs(log_p) + np.abs(move)) + SUM_ERROR_UNITS)
        units = units + np.abs(move) * self.moves[inside]
        error = (weight * units).sum(axis=1) / total + 4 * UNIT * np.abs(k)  # slack: counted
        near = (np.abs(k) < 1) if self.missing is not None else np.zeros(len(k), bool)
        if self.missing is not None and near.any():
            gain = np.exp(log_p) * np.expm1(np.minimum(move[near], 1.0))
            far = move[near] > 1
            gain[far] = np.exp(g[near][far]) - np.exp(np.broadcast_to(log_p, far.shape)[far])
            outside = np.exp(self.log_p[~inside])
            beyond = float(outside.sum())
            unsure = (
                # slack: counted
                float((outside * self.relative[~inside]).sum()) + SUM_ERROR_UNITS * UNIT * beyond
            )
            # This avoids the mass minus 1, which is rounded to a unit of 1.
            unsure += 4 * UNIT * self.missing  # slack: counted
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
        """Bound the omitted mass with losses in (low, high], under each tilt."""
        log_mass, place = np.array(self.lost).reshape(-1, 2).T
        inside = (place > low) & (place <= high)
        exponent = log_mass[inside] + np.multiply.outer(tilts, place[inside])
        return np.exp(np.minimum(exponent, 600.0)).sum(axis=1)


@array_cache
def values_of(loss: Part) -> Values | None:
    """Return the values of one loss; None for a loss with a density, or of another kind."""
    if isinstance(loss, OffLatticeLoss):
        place, log_p = np.array(loss.values), np.array(loss.log_p)
        relative = 4 * UNIT * (8 + np.abs(log_p))  # slack: counted
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
    # Values dropped here have the loss -inf and are not part of M.
    if not used.all():
        missing = None
    place, log_p = law.loss[used][order], law.log_p[used][order]
    each = np.full(len(law.loss), law.relative) if law.units is None else law.units
    moves = np.full(len(law.loss), PLACE_ERROR) if law.moves is None else law.moves
    each, moves = each[used][order], moves[used][order]
    return Values(place, log_p, each, moves, law.lost, missing, 1)


def listed(parts: Parts) -> tuple[Values, ...]:
    """Return the values of all parts, or of none if a part has too many values to list."""
    each: list[Values] = []
    for loss, n in parts:
        values = values_of(loss)
        if values is None:
            return ()
        each.append(replace(values, count=n))
    return tuple(each)


@dataclass(frozen=True, eq=False)
class Listing:
    """Hold the sums that matter for epsilons from ``start`` on, with their probabilities [FV-4].

    Args:
        loss, chance: sums in decreasing order, and their probabilities under P.
        relative, place: bounds on the relative errors of ``chance``, and on the errors of ``loss``.
        start: the smallest epsilon.
        lost: bound on the contribution of all omitted sums to delta(start).
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
        """Return certified bounds on log delta at each epsilon."""
        ends = np.array([self._ends(float(e)) for e in np.asarray(epsilon, float)])
        with np.errstate(divide="ignore"):
            low, high = np.log(ends.reshape(-1, 2)).T
        slack = 4 * UNIT * np.where(np.isfinite(low), np.abs(low), 0.0)  # slack: counted
        return low - slack, np.minimum(high + slack, 0.0)

    def _ends(self, epsilon: float) -> Interval:
        if epsilon < self.start:
            return 0.0, 1.0
        k = int(np.searchsorted(-self.loss, -epsilon, side="left"))
        charge(CALL + 20 * k)
        gain = self.chance[:k] * -np.expm1(epsilon - self.loss[:k])
        value = float(gain.sum())
        # A sum below epsilon by at most its error gains at most this error.
        far = int(np.searchsorted(-self.loss, -epsilon + 2 * float(self.place.max())))
        # slack: counted
        moved = float((self.chance * self.place)[:far].sum()) + 4 * UNIT * abs(epsilon) * float(
            self.chance[:far].sum()
        )
        # slack: counted
        error = float((gain * self.relative[:k]).sum()) + moved + value * (k + 16) * UNIT
        return max(value - error, 0.0), value + error + self.lost

    def log_tails(self, epsilon: Array, *, ahead: bool) -> Array:
        """Estimate log P(L > epsilon), or log Q(L > epsilon) if not ``ahead``."""
        mass = self.chance if ahead else self.chance * np.exp(-self.loss)
        total = np.append(0.0, np.cumsum(mass))
        with np.errstate(divide="ignore"):
            return np.log(total[np.searchsorted(-self.loss, -np.asarray(epsilon))])

    def width(self, epsilon: float) -> float:
        """Return the width of the bounds on log delta at this epsilon."""
        low, high = self.log_delta(np.array([epsilon]))
        return float(high[0] - low[0]) if low[0] > -math.inf else math.inf


def _counts(left: Array, share: Array, count: int) -> Array:
    """Return the likely numbers of copies of a value, at least 1, among the remaining terms.

    Args:
        left: number of remaining terms of each beginning.
        share: probability of the value among the remaining values, at each tilt.
        count: terms of the sum.
    """
    low, high = 1, int(left.max())
    if count > LIMITS.all_counts:
        # Bernstein: counts farther from the mean have probability below e^-depth.
        depth = LIMITS.depth_efolds
        most, least = float(left.max() * share.max()), float(left.min() * share.min())
        high = min(high, math.ceil(most + math.sqrt(2 * depth * most) + depth))
        low = max(low, math.floor(least - math.sqrt(2 * depth * least)))
    return np.arange(low, high + 1)


def _log_binomial(n: Array, k: Array, rest: Array, log_r: float, log_s: float) -> Array:
    """Return the log of n! / (k! rest!) r^k s^rest, without cancellation (`power_sums`)."""
    if int(n.max()) <= LIMITS.all_counts:
        return (_FACTORIALS[n] - _FACTORIALS[k] - _FACTORIALS[rest]) + (k * log_r + rest * log_s)
    away = divergence(k, n * math.exp(log_r)) + divergence(rest, n * math.exp(log_s))
    return slow(n) - slow(k) - slow(rest) - away


def are_few(values: Sequence[Values]) -> bool:
    """Return True if the likely sums of these losses are few enough for a list."""
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
    """Hold beginnings: sums of some of the terms, those with the largest values.

    Args:
        total, log_chance: the sums, and their log probabilities.
        relative, place: bounds on the relative errors of probabilities, and on errors of the sums.
        left: remaining terms of the same loss.
    """

    total: Array
    log_chance: Array
    relative: Array
    place: Array
    left: Array

    def where(self, mask: Array) -> _Beginnings:
        """Return the beginnings that ``mask`` selects."""
        return _Beginnings(
            self.total[mask],
            self.log_chance[mask],
            self.relative[mask],
            self.place[mask],
            self.left[mask],
        )

    @staticmethod
    def joined(parts: Sequence[_Beginnings], left: int) -> _Beginnings:
        """Concatenate beginnings, with ``left`` remaining terms of the next loss."""
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
    """List the likely sums of losses, from the largest values down [FV-4].

    Args:
        start: sums above this loss matter.
        tilts, kernel: tilts of Chernoff's bounds, 0 first, and log kappa at them.
        log_least: log of the least contribution to delta of a listed beginning.
        work, lost: number of beginnings so far, and contribution of the omitted ones.
    """

    start: float
    tilts: Array
    kernel: Array
    log_least: float
    work: float = 0.0
    lost: float = 0.0

    def share(self, rows: _Beginnings, left: Array, total: Array, m: Array, rest: Array) -> Array:
        """Bound the log contribution of each beginning to delta(start), minus its log probability.

        m, rest: log transforms of one remaining term and of later losses, at each tilt.
        """
        bound = np.full(np.broadcast_shapes(left.shape, total.shape), math.inf)
        for i, c in enumerate(self.tilts.tolist()):
            move = c * (total - self.start) + (self.kernel[i] + rest[i])
            np.minimum(bound, left * m[i] + move, out=bound)
        return bound

    def add(self, v: Values, below: Array, rest: Array, rows: _Beginnings) -> _Beginnings | None:
        """Return the sums ``rows`` plus all copies of a loss, or None if there are too many.

        Args:
            v: the values of the loss.
            below: log transform of the loss up to each value, at each tilt.
            rest: log transform of the later losses, at each tilt.
            rows: the sums so far.
        """
        p, units = np.exp(v.log_p), v.relative + 8 * UNIT * (2 + np.abs(v.log_p))  # slack: counted
        # If the sum of masses is known, their errors count times the distance of count and mean.
        mean = v.count * p if v.missing is not None else 0 * p
        off = (
            0.0
            if v.missing is None
            else abs(float(p.sum()) + v.missing - 1) + SUM_ERROR_UNITS * UNIT  # slack: counted
        )
        later = np.append(0.0, np.cumsum(mean * units))
        rows = _Beginnings(
            rows.total,
            rows.log_chance + v.count * below[-1, 0],
            rows.relative + v.count * (off + 16 * UNIT),  # slack: counted
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
                # slack: counted
                place=rows.place + rows.left * abs(x) * (float(v.moves[0]) + len(p) * UNIT),
            )
        )
        return _Beginnings.joined(done, 0)

    def _with(
        self, v: Values, j: int, below: Array, rest: Array, rows: _Beginnings
    ) -> tuple[_Beginnings, Array] | None:
        """Return the beginnings plus each likely number of copies of value j, and these numbers."""
        x, log_below = float(v.place[j]), float(below[j, 0])
        log_r, log_s = float(v.log_p[j]) - log_below, float(below[j - 1, 0]) - log_below
        share = np.exp(self.tilts * x + v.log_p[j] - below[j])
        k = np.append(0, _counts(rows.left, share, v.count))
        size, many = len(rows.left) * len(k), v.count > LIMITS.all_counts
        self.work += 6 * size if many else size
        if self.work > LIMITS.most_work or max(len(rows.left), size // 8) > LIMITS.most_sums:
            return None
        charge(CALL + 200.0 * size)
        if many:  # counts that are not tried
            own = self.share(rows, rows.left, rows.total, below[j] - log_below, rest)
            self.lost += 2 * math.exp(-LIMITS.depth_efolds) * _sum(own + rows.log_chance)
        left = rows.left[:, None] - k
        fits = left >= 0
        left = np.maximum(left, 0)
        log_b = _log_binomial(rows.left[:, None], k, left, log_r, log_s)
        total = rows.total[:, None] + k * x
        # Later terms have smaller values.
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
            rows.relative[row] + units * UNIT,  # slack: counted
            # slack: counted
            rows.place[row] + more * abs(x) * (float(v.moves[j]) + len(v.place) * UNIT),
            left[keep],
        )
        return beginnings, more


def _sum(exponents: Array) -> float:
    return float(np.exp(np.minimum(exponents, 700.0)).sum()) * (1 + 1e-9)


def listing(
    values: Sequence[Values], start: float, tilts: Array, log_least: float
) -> Listing | None:
    """Return the list of sums above ``start``, or None if there are too many.

    Args:
        values: values of the losses.
        start: sums above this loss are listed.
        tilts: tilts of Chernoff's bounds, above 0.
        log_least: log of a negligible contribution to delta.
    """
    order = sorted(values, key=lambda v: len(v.place))
    tilts = np.append(0.0, tilts)
    sums = _List(start, tilts, np.append(0.0, log_kernel(tilts[1:])), log_least)
    below = [
        np.logaddexp.accumulate(np.multiply.outer(v.place, tilts) + v.log_p[:, None]) for v in order
    ]
    log_m = [v.count * b[-1] for v, b in zip(order, below, strict=True)]
    log_all = np.add.reduce(log_m)
    for v, b in zip(order, below, strict=True):  # one omitted value, and any other values
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
    relative = rows.relative[down] + UNIT * adds * (1 + np.abs(log_chance))  # slack: counted
    return Listing(
        rows.total[down], np.exp(log_chance), relative, rows.place[down], start, sums.lost
    )
