"""Few steps on random samples: a recursion of positive terms, certified.

A step with rate q and distance mu has R = dM/dQ = (1 - q) (1 + e^b), b ~ N(m, mu^2) under Q, with
m = log(q / (1 - q)) - mu^2 / 2. So X = log(1 + e^b) is positive, and the sum of T steps has the
likelihood ratio e^S / A, S = X_1 + ... + X_T, A = prod 1 / (1 - q). With e^s = A e^epsilon,

    removal:   delta = D_T / A,    D_T = E_Q[(e^S - e^s)_+]
    addition:  delta = G_T / e^s,  G_T = E_Q[(e^s - e^S)_+],  e^s = A e^-epsilon.

In tau = log(e^s - 1) both obey V_t(tau) = integral of N(b; m, mu^2) (1 + e^b) V_{t-1}(a) db, where
(1 + e^a) (1 + e^b) = 1 + e^tau, and D_t has a closed form for what lies above b = tau. Every term
is positive, so relative accuracy survives at any delta. The variable r = b - a resolves both ends.
The labels FS-n are the inequalities of docs/certificates/few-steps.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

__all__ = ["FewSteps", "Step"]

QUADRATURE = 14  # Gauss-Legendre nodes of a panel for one step; more for more steps
CHEBYSHEV = 22  # nodes of a panel of the table
RHO = 3 + math.sqrt(8)  # the ellipse whose major axis reaches one panel beyond both ends
DROP = 40.0  # e-folds below the largest panel of a row at which a panel is only bounded
MOST_PAIRS = 400_000  # nodes evaluated at a time
ELLIPSES = (1.6, 2.2, 3.0, 4.0, 5.2, 6.6)  # rho of the ellipses of a table's panel


@dataclass(frozen=True)
class Step:
    """One step on a Poisson sample of Gaussian noise.

    Args:
        rate: q, in (0, 1).
        distance: mu, above 0.
    """

    rate: float
    distance: float

    @property
    def log_odds(self) -> float:
        """log(q / (1 - q))."""
        return math.log(self.rate) - math.log1p(-self.rate)

    @property
    def mean(self) -> float:
        """m, the mean of b under Q."""
        return self.log_odds - self.distance**2 / 2

    @property
    def log_total(self) -> float:
        """-log(1 - q), the logarithm of E_Q[e^X]."""
        return -math.log1p(-self.rate)


@dataclass(frozen=True, eq=False)
class _Table:
    """V_t on panels of tau: values at Chebyshev nodes, each panel with a factor e^{slope tau}.

    Args:
        low, width: where the first panel starts, and the width of each.
        coefficients: of Chebyshev polynomials, shape (panels, nodes), of V e^{slope (tau - middle)}
            over e^scale.
        slope, scale: shape (panels,).
        error: bound on the relative error of each interpolated value.
        below: V to the left of the table (an upper bound), as a logarithm.
    """

    low: float
    width: float
    coefficients: Array
    slope: Array
    scale: Array
    error: float
    below: float

    @property
    def high(self) -> float:
        return self.low + self.width * len(self.slope)

    def log_value(self, tau: Array) -> Array:
        """log V at places within the table."""
        place = (tau - self.low) / self.width
        panel = np.clip(place.astype(int), 0, len(self.slope) - 1)
        x = 2 * (place - panel) - 1
        x = np.clip(x, -1.0, 1.0)
        c = self.coefficients[panel]
        twice = 2 * x
        one, two = np.zeros_like(x), np.zeros_like(x)
        for k in range(c.shape[1] - 1, 0, -1):
            one, two = c[:, k] + twice * one - two, one
        value = c[:, 0] + x * one - two
        with np.errstate(divide="ignore", invalid="ignore"):
            log_value = np.log(np.maximum(value, 1e-300))
        return log_value + self.scale[panel] - self.slope[panel] * x * self.width / 2


class FewSteps:
    """The sum of few steps, in one order.

    Args:
        steps: at least two.
        removed: True for D (removal), False for G (addition).
        lowest, highest: range of tau that questions may have.
    """

    def __init__(
        self, steps: Sequence[Step], removed: bool, lowest: float, highest: float
    ) -> None:
        self.steps, self.removed = tuple(steps), removed
        self.log_total = math.fsum(step.log_total for step in steps)
        self.lowest, self.highest = lowest, highest
        self._half = min(0.5 * min(step.distance for step in steps), 0.5)
        self._tables: list[_Table | None] = [None]  # of V_1 there is a closed form
        for count in range(2, len(self.steps)):
            self._tables.append(self._tabulated(count))

    def log_value(self, tau: Array) -> tuple[Array, Array]:
        """Bounds on log V_T."""
        log_value, error = self._row(len(self.steps), tau)
        with np.errstate(divide="ignore"):
            low = np.where(error < 1, np.log1p(-np.minimum(error, 1 - 1e-16)), -np.inf)
        return log_value + low, log_value + np.log1p(error)

    # One step

    def _first(self, tau: Array) -> Array:
        """log V_1: the prices of a call and of a put in the Black-Scholes formula."""
        step = self.steps[0]
        z = (tau - step.mean) / step.distance
        if self.removed:
            one, two = step.log_odds + log_ndtr(step.distance - z), tau + log_ndtr(-z)
        else:
            one, two = tau + log_ndtr(z), step.log_odds + log_ndtr(z - step.distance)
        with np.errstate(divide="ignore"):
            return one + np.log(-np.expm1(np.minimum(two - one, -1e-300)))

    def _first_error(self, tau: Array) -> Array:
        """Relative error of V_1: the two terms nearly agree far out."""
        step = self.steps[0]
        z = np.abs(tau - step.mean) / step.distance
        lost = (z + step.distance + 2) ** 2 / min(step.distance, 1.0)
        return 32 * UNIT * lost * (1 + z / step.distance * (1 + np.abs(tau)) + z * z)

    def _upper(self, count: int, tau: Array) -> Array:
        """An upper bound on log V_count, anywhere."""
        if count == 1:
            return self._first(tau) + np.log1p(self._first_error(tau))
        table = self._tables[count - 1]
        assert table is not None
        inside = table.log_value(np.clip(tau, table.low, table.high)) + math.log1p(table.error)
        if self.removed:  # falls: below the table its limit A - 1 bounds it
            return np.where(tau < table.low, table.below, inside)
        saturated = np.logaddexp(0.0, tau)  # rises, and is at most e^s
        return np.where(tau > table.high, saturated, inside)

    def _value(self, count: int, tau: Array) -> Array:
        if count == 1:
            return self._first(tau)
        table = self._tables[count - 1]
        assert table is not None
        return table.log_value(tau)

    def _error(self, count: int, tau: Array) -> float:
        if count == 1:
            return float(self._first_error(tau).max()) if len(tau) else 0.0
        table = self._tables[count - 1]
        assert table is not None
        return table.error

    def _growth(self, count: int, angle: float, highest: float) -> tuple[float, float]:
        """log K and the shift of FS-4: |V(tau + i angle)| <= K V(tau + shift)."""
        log_k, shift = 0.0, 0.0
        cosine = math.cos(angle / 2)
        for index, step in enumerate(self.steps[:count]):
            log_k += angle**2 / (2 * step.distance**2)
            if not index:
                continue
            log_k -= 3 * math.log(cosine)  # |1 + e^b| and db/dr
            move = (angle**2 / 2) / (1 - angle**2 / 4)
            if self.removed:
                away = math.exp(step.mean - 1) if step.mean <= 1 else step.mean
                log_k += away * move / (cosine * step.distance**2)
            else:
                share = min(0.25, math.exp(min(highest, 1.0)) / cosine)
                each = share * move
                shift += each
                log_k += max(highest + each - step.mean, 0.0) * each / step.distance**2
        return log_k, shift

    def _row(self, count: int, tau: Array) -> tuple[Array, Array]:
        """log V_count, and a bound on its relative error: by quadrature in r."""
        if count == 1:
            return self._first(tau), self._first_error(tau)
        step, before = self.steps[count - 1], count - 1
        m, mu = step.mean, step.distance
        width = 2 * self._half
        reach = math.sqrt(2 * (DROP + 45.0)) + mu
        # FS-5: left of `first` the normal law has no mass, right of `last` V_{t-1} is known.
        floor = self._floor(before)
        first = math.floor((m - reach * mu - float(tau.max())) / width) - 1
        last = math.ceil((float(tau.max()) - floor + 2 * width) / width) + 1
        edges = width * np.arange(first - 1, last + 2)
        a, b = _split(tau[:, None], edges[None, :])
        angle = self._half * (RHO - 1 / RHO) / 2
        log_k, shift = self._growth(before, angle, float(tau.max()))
        up = -math.log(math.cos(angle / 2))
        places = a if self.removed else a + shift + up
        upper = self._upper(before, places.ravel()).reshape(a.shape)
        value = self._upper(before, a.ravel()).reshape(a.shape) if not self.removed else upper
        log_norm = -0.5 * math.log(math.tau) - math.log(mu)
        # Panel j lies between the edges j and j + 1; its ellipse reaches from j - 1 to j + 2.
        j = np.arange(1, len(edges) - 2)
        peak = _log_normal_most(b[:, j - 1], b[:, j + 2] + up, m, mu) + log_norm
        peak += np.logaddexp(0.0, b[:, j + 2] + up)
        bound_v = upper[:, j + 2] if self.removed else upper[:, j - 1]
        # |f| on the ellipse (FS-6), and at most on the panel itself.
        ellipse = peak + bound_v + log_k + angle**2 / (2 * mu**2) + up
        own = _log_normal_most(b[:, j], b[:, j + 1], m, mu) + log_norm
        own += np.logaddexp(0.0, b[:, j + 1]) + (value[:, j + 1] if self.removed else value[:, j])
        open_ = np.ones(own.shape, bool)
        if self.removed:
            open_ = a[:, j] > floor
            closed = b[np.arange(len(tau)), np.minimum(j[0] + open_.sum(axis=1), len(edges) - 1)]
        top = np.where(open_, own, -np.inf).max(axis=1, keepdims=True)
        if self.removed:
            rest, rest_error = self._closed(before, step, tau, closed)
            with np.errstate(divide="ignore"):
                top = np.maximum(top, np.log(rest)[:, None])
        kept = open_ & (own > top - DROP)
        n = QUADRATURE + count // 3
        nodes, weights = np.polynomial.legendre.leggauss(n)
        row, column = np.nonzero(kept)
        shares = np.empty(len(row))
        error_before = 0.0
        for start in range(0, len(row), max(1, MOST_PAIRS // n)):
            part = slice(start, start + max(1, MOST_PAIRS // n))
            r = edges[j[column[part]]][:, None] + self._half * (nodes + 1)
            at, bt = _split(tau[row[part]][:, None], r)
            z = (bt - m) / mu
            log_f = -0.5 * z * z + log_norm + np.logaddexp(0.0, bt)
            log_f += self._value(before, at.ravel()).reshape(at.shape)
            log_f += _log_slope(r, bt)
            shares[part] = np.exp(log_f - top[row[part]]) @ weights * self._half
            if before == 1 and at.size:
                heavy = log_f > top[row[part]] - DROP
                if heavy.any():
                    error_before = max(error_before, self._error(1, at[heavy]))
        if before > 1:
            error_before = self._error(before, tau)
        total = np.bincount(row, weights=shares, minlength=len(tau)).astype(float)
        # FS-7: Gauss-Legendre on each panel; panels left out count fully.
        factor = math.log(64 / 15 * self._half) - 2 * n * math.log(RHO) - math.log1p(-(RHO**-2))
        missed = np.exp(np.minimum(ellipse + factor - top, 700.0)) * kept
        missed += np.exp(np.minimum(own - top, 0.0)) * width * (open_ & ~kept)
        absolute = missed.sum(axis=1)
        # Left of the first panel: the normal law's tail, times V at its largest.
        tail = log_ndtr((b[:, 1] - m) / mu) + np.logaddexp(0.0, b[:, 1])
        most = upper[:, 1] if self.removed else self._upper(before, tau + shift + up)
        absolute += np.exp(tail + most - top[:, 0])
        if self.removed:
            total += rest * np.exp(-top[:, 0])
            absolute += rest_error * np.exp(-top[:, 0])
        else:
            # Right of the last panel V_{t-1} is at most what it is there.
            rest = log_ndtr((tau - m) / mu) + np.logaddexp(0.0, tau) + value[:, -2]
            absolute += np.exp(np.minimum(rest - top[:, 0], 700.0))
        # Exponents: each z^2 / 2 errs by z / mu times the error of b, and so do values in a.
        size = np.abs(tau) + abs(m) + 4
        steep = (math.sqrt(2 * DROP) + mu + np.abs(tau - m) / mu) / mu
        rounding = UNIT * (16 * size * (steep + 4) + 4 * n + 64 + 4 * DROP)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(total > 0, absolute / total, np.inf)
            return np.log(total) + top[:, 0], relative + error_before + rounding

    def _floor(self, count: int) -> float:
        """FS-5: the tau below which D_count = A - e^s up to e^-60 of itself, or G is not asked."""
        if not self.removed:
            table = self._tables[count - 1] if count > 1 else None
            return self.lowest - 60 * self._half if table is None else table.low
        least = min(step.mean - 9 * step.distance for step in self.steps[:count])
        return least - 1.0

    def _closed(self, before: int, step: Step, tau: Array, b: Array) -> tuple[Array, Array]:
        """The part of D above b: A E[1 + e^b] - (1 + e^tau) Q(b), and its error (FS-5)."""
        m, mu = step.mean, step.distance
        z = (b - m) / mu
        log_a = math.fsum(s.log_total for s in self.steps[:before])
        one = math.exp(step.log_odds + log_a) * ndtr(mu - z)
        gap = math.expm1(log_a) - np.exp(tau)
        two = gap * ndtr(-z)
        size = one + np.abs(two)
        units = UNIT * (64 + 16 * (np.abs(z) + mu) * (np.abs(b) + abs(m) + 2) / mu)
        floor = b * 0 + self._floor(before)
        left = sum(log_ndtr((floor - s.mean) / s.distance) for s in self.steps[:before])
        spare = np.exp(np.minimum(left, 0.0)) * (one + ndtr(-z)) * 2
        return np.maximum(one + two, 0.0), size * units + spare

    def _tabulated(self, count: int) -> _Table:
        """V_count on the range of tau that the following steps ask for."""
        width = 2 * self._half
        low, high = self._range(count)
        panels = max(math.ceil((high - low) / width), 1)
        x = np.cos(math.pi * (np.arange(CHEBYSHEV) + 0.5) / CHEBYSHEV)
        middle = low + width * (np.arange(panels) + 0.5)
        tau = middle[:, None] + self._half * x
        log_value, error = self._row(count, tau.ravel())
        log_value = log_value.reshape(tau.shape)
        slope = (log_value[:, -1] - log_value[:, 0]) / (tau[:, 0] - tau[:, -1])
        flat = log_value + slope[:, None] * (tau - middle[:, None])
        scale = flat.max(axis=1)
        flat = np.exp(flat - scale[:, None])
        k = np.arange(CHEBYSHEV)
        basis = np.cos(math.pi * np.multiply.outer(k, np.arange(CHEBYSHEV) + 0.5) / CHEBYSHEV)
        coefficients = flat @ basis.T * (2 / CHEBYSHEV)
        coefficients[:, 0] /= 2
        largest = float(error.max())
        limit = math.log(math.expm1(math.fsum(s.log_total for s in self.steps[:count])))
        table = _Table(low, width, coefficients, slope, scale, 0.0, limit)
        interpolation = self._interpolation(count, table, tau, log_value + math.log1p(largest))
        ratio = 1 / float(flat.min())
        rounding = 8 * UNIT * CHEBYSHEV * (CHEBYSHEV + 4) * ratio
        # The error of the nodes' values: their polynomial multiplies it by the Lebesgue constant.
        lebesgue = (2 / math.pi * math.log(CHEBYSHEV + 1) + 1) * ratio
        return _Table(
            low, width, coefficients, slope, scale,
            largest * lebesgue + interpolation + rounding, limit,
        )

    def _interpolation(self, count: int, table: _Table, tau: Array, upper: Array) -> float:
        """FS-8: the largest relative error of the polynomials, on the best ellipse of each panel."""
        order = np.argsort(tau.ravel())
        places, logs = tau.ravel()[order], upper.ravel()[order]
        middle = table.low + table.width * (np.arange(len(table.slope)) + 0.5)
        best = np.full(len(middle), np.inf)
        for rho in ELLIPSES:
            angle = self._half * (rho - 1 / rho) / 2
            if angle > 1.4:
                continue
            reach = self._half * (rho + 1 / rho) / 2
            log_k, shift = self._growth(count, angle, table.high + reach)
            factor = math.log(4) + log_k - CHEBYSHEV * math.log(rho) - math.log(rho - 1)
            for p, center in enumerate(middle):
                # Between two nodes a monotone V is at most what it is at one of them.
                ends = np.linspace(center - reach, center + reach, 33)
                if self.removed:
                    at = np.searchsorted(places, ends[:-1], side="right") - 1
                    v = np.where(at < 0, table.below, logs[np.maximum(at, 0)])
                else:
                    at = np.searchsorted(places, ends[1:] + shift)
                    saturated = np.logaddexp(0.0, ends[1:] + shift)
                    v = np.where(at >= len(places), saturated, logs[np.minimum(at, len(logs) - 1)])
                lift = np.maximum(table.slope[p] * (ends[1:] - center), table.slope[p] * (ends[:-1] - center))
                best[p] = min(best[p], float((v + lift).max()) + factor)
        least = (table.coefficients @ _chebyshev(CHEBYSHEV)).min(axis=1)
        return float(np.exp(best - table.scale - np.log(least)).max())

    def _range(self, count: int) -> tuple[float, float]:
        after = len(self.steps) - count
        if self.removed:
            return self._floor(count) - 4 * self._half, self.highest + 2 * self._half
        low = self.lowest - (1.5 * after + 1) * 2 * self._half - math.log(1 + after / count)
        return low, self.highest + 8 * self._half


def _split(tau: Array, r: Array) -> tuple[Array, Array]:
    """a and b with (1 + e^a) (1 + e^b) = 1 + e^tau and b - a = r."""
    e = np.exp(r)
    one = 1 + e
    a = tau + math.log(2) - np.log(one + np.sqrt(one * one + 4 * np.exp(r + tau)))
    return a, a + r


def _log_slope(r: Array, b: Array) -> Array:
    """log of db/dr at fixed tau: (1 + e^b) / (1 + e^r + 2 e^b)."""
    return np.logaddexp(0.0, b) - np.log(1 + np.exp(r) + 2 * np.exp(b))


def _log_normal_most(low: Array, high: Array, m: float, mu: float) -> Array:
    """The largest -(b - m)^2 / (2 mu^2) for b between low and high."""
    away = np.maximum(np.maximum(low - m, m - high), 0.0) / mu
    return -0.5 * away * away


def _chebyshev(count: int) -> Array:
    x = np.linspace(-1, 1, 65)
    return np.cos(np.multiply.outer(np.arange(count), np.arccos(x)))
