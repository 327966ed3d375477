"""Compute the trade-off curve that bounds on Renyi divergences imply.

A test with level x and power y turns the pair into two coins, with means y under P and x under Q.
Their divergences obey the same bounds, and all coins that obey them are possible. So the curve
bounds the region

    { (x, y) : D_a(y||x) and D_a(x||y) are within the bounds at every order a }.

Any single order gives an upper bound. A point that passes every order is a lower bound. The set of
one order is convex, so its tangents bound delta. Source: Balle, Barthe, Gaboardi, Hsu and Sato 2020
(both directions, every order). Coins are stored as log-odds, for relative accuracy near 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neyman.curves.divergences.envelope import Ceiling, below_ceiling
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

FAR_LOG_ODDS = 800.0  # log-odds above those of the level at which the power counts as 1
ZOOMS = (0.0, 0.02, 2e-4)  # widths of ever finer ranges of orders
BACK = (1e-11, 1e-10, 1e-9, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.5)


def logs(odds: Array) -> tuple[Array, Array]:
    """Return log y and log(1 - y) from the log-odds of y."""
    return -np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)


def _moment(a: Array, y: tuple[Array, Array], x: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    """Return (a - 1) D_a(y||x) of coins y and x given by `logs`, its rounding error, and a share.

    The first result is log(y^a x^{1-a} + (1-y)^a (1-x)^{1-a}), or D_a at orders 1 and inf. The
    share is the first term divided by the sum.
    """
    (ly, my), (lx, mx) = y, x
    up, down = ly - lx, my - mx
    z = np.where(np.isfinite(a), a, 2.0) - 1
    with np.errstate(over="ignore", invalid="ignore"):  # a NaN excludes nothing
        first = ly + z * up
        value = np.logaddexp(first, my + z * down)
        share = np.exp(first - value)
        if (special := (a == 1) | np.isinf(a)).any():
            limit = np.where(a == 1, np.exp(ly) * up + np.exp(my) * down, np.maximum(up, down))
            value = np.where(special, limit, value)
        size = np.abs(np.minimum(ly, my)) + np.abs(np.minimum(lx, mx))
        # slack: the_moment_of_a_binary_pair
        return value, 16 * UNIT * (1 + (z + 2) * (size + 1)), share


@dataclass(frozen=True)
class RegionLine:
    """Represent certified lines power <= y + slope (level - x) above the region, in logarithms."""

    log_y: Array
    log_x: Array
    log_slope: Array
    rounding: Array

    def intercept(self, log_unit: Array) -> Array:
        """Return each line's power at level 0, (y - slope x) / e^log_unit, rounded up."""
        line = np.exp(self.log_slope + self.log_x - log_unit)
        size = self.rounding
        return np.exp(self.log_y - log_unit) * (1 + size) - line * (1 - size)

    def part(self, chosen: Array) -> RegionLine:
        """Return the lines with the indices ``chosen``."""
        return RegionLine(
            self.log_y[chosen], self.log_x[chosen], self.log_slope[chosen], self.rounding[chosen]
        )


@dataclass(frozen=True)
class _Asked:
    """Hold the orders to check in both directions, and their bounds, of shape (rows, orders)."""

    ahead: Array
    behind: Array
    allowed: Array

    @staticmethod
    def of(ways: tuple[Ceiling, Ceiling], ahead: Array, behind: Array) -> _Asked:
        """Return the orders with the bounds of both ceilings, rounded up."""
        allowed = [way.allowed(a) for way, a in zip(ways, (ahead, behind), strict=True)]
        # slack: a_ceiling_lies_on_its_side
        return _Asked(ahead, behind, np.concatenate(allowed, axis=1) * (1 + 8 * UNIT))


def _newton(w: Array, g: Array, slope: Array) -> Array:
    """Estimate the root of each order's excess g by a Newton step from w; inf if there is none."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        place = w[:, None] - g / slope
    return np.where((slope > 1e-300) & np.isfinite(place), place, math.inf)


class Region:
    """Represent the coins (y, x) that a guarantee allows, or a larger set.

    Args:
        ahead: upper bounds on D_a(y||x).
        behind: upper bounds on D_a(x||y).
        least: lower bounds on the divergences that the bare guarantee allows.
    """

    def __init__(self, ahead: Ceiling, behind: Ceiling, least: Ceiling) -> None:
        self.ahead, self.behind, self.least = ahead, behind, least

    def _excess(self, ask: _Asked, y: Array, x: Array) -> tuple[Array, Array]:
        """Return how far coins certainly exceed each order's bound, and its slope in log-odds y."""
        ys, xs = logs(y[:, None]), logs(x[:, None])
        hit = np.exp(ys[0])
        a = ask.ahead
        value, error, share = _moment(a, ys, xs)
        rise = np.where(np.isinf(a), 1.0, a) * (share - hit)
        if (one := a == 1).any():
            up = ys[0] - xs[0] - ys[1] + xs[1]
            rise = np.where(one, np.exp(ys[0] + ys[1]) * up, rise)
        if (far := np.isinf(a)).any():
            rise = np.where(far, np.exp(ys[1]), rise)
        b = ask.behind
        other, slack, share = _moment(b, xs, ys)
        fall = (np.where(np.isinf(b), 2.0, b) - 1) * (hit - share)
        if (one := b == 1).any():
            fall = np.where(one, hit - np.exp(xs[0]), fall)
        if (far := np.isinf(b)).any():
            fall = np.where(far, hit, fall)
        with np.errstate(invalid="ignore"):
            passed = np.concatenate([value - error, other - slack], axis=1) - ask.allowed
        return passed, np.concatenate([rise, fall], axis=1)

    def _start(self, ask: _Asked, x: Array) -> Array:
        """Return log-odds above the boundary at x, since a moment exceeds each of its two terms."""
        lx, mx = logs(x[:, None])
        cut = ask.ahead.shape[1]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            a, allowed = ask.ahead, ask.allowed[:, :cut]
            top = np.where(np.isinf(a), allowed + lx, (allowed + (a - 1) * lx) / a)
            by_power = np.where((top < 0) & (a > 1), top - np.log(-np.expm1(top)), math.inf)
            b, allowed = ask.behind, ask.allowed[:, cut:]
            low = np.where(np.isinf(b), mx - allowed, (b * mx - allowed) / (b - 1))
            by_miss = np.where((low < 0) & (b > 1), np.log(-np.expm1(low)) - low, math.inf)
        bound = np.nan_to_num(np.concatenate([by_power, by_miss], axis=1), nan=math.inf)
        return np.minimum(bound.min(axis=1) + 1e-9, np.maximum(x, 0.0) + FAR_LOG_ODDS + np.abs(x))

    def _solve(self, ask: _Asked, x: Array, w: Array) -> tuple[Array, Array, Array]:
        """Return about the lowest power that some order excludes, by a search from log-odds ``w``.

        Returns:
            Log-odds of the power, the excess of each order, and an estimate of each order's
            boundary.
        """
        low, high = x.copy(), np.maximum(x, 0.0) + 2 * FAR_LOG_ODDS + np.abs(x)
        tiny = 1e-14 * np.maximum(1.0, np.abs(x))
        for _ in range(80):
            g, slope = self._excess(ask, w, x)
            out = g.max(axis=1) > 0
            high, low = np.where(out, np.minimum(w, high), high), np.where(out, low, w)
            place = np.where(out[:, None] & (g <= 0), math.inf, _newton(w, g, slope))
            following = place.min(axis=1)
            done = (np.abs(following - w) <= 8 * tiny) | (high - low <= tiny)
            if done.all():
                break
            inner = (following > low) & (following < high)
            w = np.where(done, w, np.where(inner, following, 0.5 * (low + high)))
        # Then move up until an order certainly excludes the power.
        w, push = w + tiny, tiny.copy()
        g, slope = self._excess(ask, w, x)
        for _ in range(60):
            out = g.max(axis=1) > 0
            if np.all(out | (w > np.abs(x) + 2 * FAR_LOG_ODDS)):
                break
            w = np.where(out, w, w + push)
            push = np.where(out, push, 4 * push)
            g, slope = self._excess(ask, w, x)
        return w, g, _newton(w, g, slope)

    def excluded(self, x: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return certified upper bounds on power at levels with log-odds ``x``, and their orders.

        Returns:
            Log-odds of powers that some order excludes (inf if no order does), this order, and True
            if it is an order of D_a(y||x), False for D_a(x||y).
        """
        reach = float(np.max(np.abs(x))) + 40
        ways, rows = (self.ahead, self.behind), np.arange(len(x))
        ask = _Asked.of(ways, *(np.tile(c.worth_trying(reach), (len(x), 1)) for c in ways))
        w, g, place = self._solve(ask, x, self._start(ask, x))
        for width in ZOOMS if any(c.smooth for c in ways) else ():
            cut = ask.ahead.shape[1]
            ask = _Asked.of(
                ways,
                _zoom_orders(ask.ahead, place[:, :cut], width, self.ahead.top),
                _zoom_orders(ask.behind, place[:, cut:], width, self.behind.top),
            )
            w, g, place = self._solve(ask, x, w)
        best: Array = np.argmin(np.where(g > 0, place, math.inf), axis=1)
        out = g.max(axis=1) > 0
        best = np.where(g[rows, best] > 0, best, np.argmax(g, axis=1))
        orders = np.concatenate([ask.ahead, ask.behind], axis=1)
        return np.where(out, w, math.inf), orders[rows, best], best < ask.ahead.shape[1]

    def reached(self, x: Array) -> Array:
        """Return log-odds of certified lower bounds on power, at levels with log-odds x."""
        high = self.excluded(x)[0]
        result, left = x.copy(), np.arange(len(x))
        for back in BACK:
            top = np.where(np.isfinite(high[left]), high[left], x[left] + FAR_LOG_ODDS)
            gap = np.maximum(back * (top - x[left]), 4e-14 * np.maximum(1.0, np.abs(top)))
            y = top - gap
            good = (y > x[left]) & self.possible(y, x[left])
            result[left[good]] = y[good]
            left = left[~good]
            if not len(left):
                break
        return result

    def possible(self, y: Array, x: Array) -> NDArray[np.bool_]:
        """Return True for coins that certainly obey the bare guarantee at all orders, both ways."""
        ys, xs = logs(y), logs(x)
        first = [np.concatenate([u, v]) for u, v in zip(ys, xs, strict=True)]
        second = [np.concatenate([v, u]) for u, v in zip(ys, xs, strict=True)]

        def moment(row: NDArray[np.intp], a: Array) -> Array:
            value, error, _ = _moment(
                a, (first[0][row], first[1][row]), (second[0][row], second[1][row])
            )
            return value + error

        rows, one = np.arange(2 * len(x)), np.ones(2 * len(x))
        kl, largest = moment(rows, one), moment(rows, one * math.inf)
        possible = below_ceiling(moment, kl, largest, self.least)
        return possible[: len(x)] & possible[len(x) :]

    def tangents(self, x: Array) -> RegionLine:
        """Return tangents at log-odds ``x`` of the convex sets of the excluding orders [RB-5]."""
        y, a, ahead = self.excluded(x)
        known = np.isfinite(y)
        (ly, my), (lx, mx) = logs(np.where(known, y, x + 1.0)), logs(x)
        r, s = ly - lx, my - mx  # r > 0 > s
        gap = np.maximum(r - s, 1e-300)
        z = np.where(a == 1, 1.0, a - 1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            wide = np.log(-np.expm1(-(z + 1) * gap)) - np.log(-np.expm1(-z * gap))
            wide = wide - np.log1p(1 / z)  # log(z / (z + 1)): near order 1 the other form cancels
            kl = np.log(-np.expm1(-gap)) - np.log(gap)
            slope = np.where(ahead, r + np.where(a == 1, kl, wide), s - np.where(a == 1, kl, wide))
            size = np.abs(ly) + np.abs(lx) + np.abs(my) + np.abs(mx)
            # log y and log x err by 4 units of their size, r and s by 5 units. An error of the gap
            # moves each logarithm by at most the error over the gap. The logarithms, at most
            # 1 / gap or size, err by 2 units, and their sums by one.
            # `intercept` adds two sums and a power, and `_log_delta_over` a share of 6 units and a
            # logarithm.
            # slack: tangents_of_the_best_order
            rounding = 64 * UNIT * (4 + size + size / gap + np.abs(slope))
        known &= np.isfinite(slope) & (rounding < 1)
        none = -math.inf
        return RegionLine(
            np.where(known, ly, 0.0),
            np.where(known, lx, none),
            np.where(known, slope, none),
            # slack: counted
            np.where(known, rounding, 8 * UNIT),  # the line y = 1
        )


def _zoom_orders(orders: Array, place: Array, width: float, top: float) -> Array:
    """Return orders around each row's best order (with the lowest ``place``), including it.

    Args:
        orders, place: orders, and estimates of the power that each excludes, shape (rows, orders).
        width: half of the new range in log(a - 1), around the vertex of a parabola through the best
            three; 0 for the range between the orders beside the best.
        top: the largest order.
    """
    rows = np.arange(len(orders))
    best = np.argmin(place, axis=1)
    orders_near = orders[rows, best]
    last = orders.shape[1] - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.log(np.where(np.isfinite(orders), orders, 1e9) - 1)
    t = np.maximum(t, -9.0)
    left, right = t[rows, np.maximum(best - 1, 0)], t[rows, np.minimum(best + 1, last)]
    if width:
        i = np.clip(best, 1, max(last - 1, 1))
        t0, t1, t2 = (t[rows, np.clip(i + k, 0, last)] for k in (-1, 0, 1))
        p0, p1, p2 = (place[rows, np.clip(i + k, 0, last)] for k in (-1, 0, 1))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            up, down = (p2 - p1) / (t2 - t1), (p1 - p0) / (t1 - t0)
            vertex = 0.5 * (t0 + t1) - 0.5 * down * (t2 - t0) / (up - down)
        here = t[rows, best]
        vertex = np.where(np.isfinite(vertex) & (vertex > left) & (vertex < right), vertex, here)
        left, right = vertex - width, vertex + width
    between = left[:, None] + (right - left)[:, None] * np.linspace(0, 1, 8)
    new = np.minimum(1 + np.exp(between), top)
    return np.sort(np.concatenate([new, orders_near[:, None]], axis=1), axis=1)


def one_order(orders: Array, moments: Array, epsilon: float) -> tuple[float, float]:
    """Return the upper bound on log delta from the best of ``orders``, and the log of its level.

    The bound is the log of the least e^{tau - (a-1) epsilon} (1 - 1/a)^a / (a - 1), with tau in
    ``moments``. Every a > 1 is valid (Canonne, Kamath and Steinke 2020, proposition 12).
    """
    good = (orders > 1) & np.isfinite(orders) & np.isfinite(moments)
    if not good.any():
        return 0.0, -abs(epsilon) - 1.0
    a, tau = orders[good], moments[good]
    # If log(1 - 1/a) would cancel, compute it from a - 1: it errs by at most 15 units.
    edge = np.where(a < 1.1, -np.log1p(1 / (a - 1)), np.log1p(-1 / a))
    value = tau - (a - 1) * epsilon + a * edge - np.log(a - 1)
    # slack: delta_of_one_order
    value = value + 8 * UNIT * (tau + (a - 1) * abs(epsilon) + a * np.abs(edge) + 4)
    best = int(np.argmin(value))
    return min(float(value[best]), 0.0), float(tau[best] - a[best] * (epsilon - edge[best]))
