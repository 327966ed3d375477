"""Compute sums over nodes of y, for one Gaussian step on a sample between two levels.

With the likelihood ratio R, the normal density phi, and the windows s of `step_grid`, the integrals

    M_low(w) = integral of phi R^w s_low,    M_bracket(w) = integral of phi R^w (s_high - s_low)

of two measures are trapezoid sums on the line Im y = a. There, |R^{iu}| = e^{-u arg R} <= 1 for
every u >= 0, so the number of nodes does not grow with u [LS-3]. An integral of sizes at one u
bounds both for all larger u [LS-5]. Without levels, there is one measure, of the entire step. See
docs/certificates/largest-step.md for the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from scipy.special import log_ndtr, ndtr

from neyman.curves.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.curves.losses.loss import Order
from neyman.curves.profiles.contour.brackets import CutTransform
from neyman.curves.profiles.sampled_steps.step_grid import LIMITS as STEP_GRID_LIMITS
from neyman.curves.profiles.sampled_steps.step_grid import PAD_DEVIATIONS, StepGrid
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import wave_sum
from neyman.numerics.operations import CALL, charge

T = TypeVar("T")

GROWTH_LOG = 1.1  # |e^-psi| <= e^GROWTH_LOG in the strip [LS-1]


@dataclass(frozen=True)
class Limits:
    """Limits on the cost and accuracy of nodes."""

    node_operations: float = 45.0  # operations per node of an array
    stored_arrays: int = 5  # arrays per stored result
    # Straight share of a bent path beyond its last node.
    straight_share: float = 0.99
    last_exponent: float = 100.0  # the window's exponent at the last node


LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class Panels:
    """Hold logs of upper bounds on the size of the integrand, for panels (intervals) of y [LS-4].

    Panels beyond the nodes extend to infinity.

    Args:
        low, bracket: bounds for M_low and M_bracket; ``low`` is -inf without a lower level.
        angle: lower bounds on the angle arg R, the rate at which a wave falls in u.
        outer: True for panels beyond the nodes.
    """

    low: Array
    bracket: Array
    angle: Array
    outer: Array


@dataclass(frozen=True, eq=False)
class StepNodes:
    """Represent nodes of y for one loss, between two levels of its size.

    Args:
        loss: the loss log R of the step, or log R if the step has the loss log R(y) - log R(-y).
        order: order of the pair, as in `StepGrid`.
        count: number of such steps.
        low, high: t_l at the two levels; -inf and inf without levels.
        last_tilt: the largest tilt to support.
        sharpness: m, the rate at which a window falls; None for no levels.
        grid: the grid of y, shared by all levels of the loss; None for a new grid.
    """

    loss: LikelihoodRatioLoss
    order: Order
    count: int
    low: float
    high: float
    last_tilt: float
    sharpness: float | None
    grid: StepGrid | None = None
    _cache: dict[object, Any] = field(default_factory=dict[object, Any], repr=False)

    def __post_init__(self) -> None:
        grid = self.grid or StepGrid(self.loss, self.order, self.sharpness, self.last_tilt)
        stop = self._stop()
        if not grid.rises:
            stop = max(self.loss.range(self.loss.power(self.last_tilt))[1], PAD_DEVIATIONS)
        if self.order == "symmetric":
            stop = max(stop / LIMITS.straight_share - self.loss.farthest / 2, PAD_DEVIATIONS)
        size = math.ceil((stop - grid.start) / grid.h) + 1
        # The distribution at tilt 0 extends at least to ``end``, even if a window cuts off nodes.
        end = PAD_DEVIATIONS + (self.loss.farthest if self.order == "symmetric" else 0.0)
        full = max(math.ceil((end - grid.start) / grid.h) + 1, size)
        grid.reach(full)
        for name, value in (("grid", grid), ("size", size), ("full", full)):
            object.__setattr__(self, name, value)

    size: int = field(init=False)
    full: int = field(init=False)

    @property
    def _grid(self) -> StepGrid:
        assert self.grid is not None
        return self.grid

    @property
    def a(self) -> float:
        """Return the height a = Im y of the line of the sums."""
        return self._grid.a

    @property
    def h(self) -> float:
        """Return the distance between adjacent nodes."""
        return self._grid.h

    @property
    def x(self) -> Array:
        """Return the parameter x of the nodes."""
        return self._grid.x()[: self.size]

    @property
    def rises(self) -> bool:
        """Return True if the integrand without its normal factor rises with y (no addition)."""
        return self._grid.rises

    @property
    def bulk(self) -> bool:
        """Return True if there is no lower level."""
        return self.low == -math.inf

    @property
    def _psi_units(self) -> float:
        return self._grid.psi_units(self.low, self.high)

    def _cache_once(self, build: Callable[[float], T], at: float) -> T:
        """Return ``build(at)``, computed once for each tilt or height ``at``."""
        key = build.__name__, at
        if key not in self._cache:
            charge(LIMITS.stored_arrays * (CALL + LIMITS.node_operations * self.size))
            self._cache[key] = build(at)
        return self._cache[key]

    def _most_power(self, tilt: float) -> float:
        """Bound the ratio of the slopes in y of log |integrand / normal factor| and of log R."""
        return 2 * tilt + 1 if self.order == "opposite" else float(self.loss.power(tilt))

    def _stop(self) -> float:
        """Return a y beyond which the integrand is negligible at every tilt."""
        mu = self.loss.farthest
        w, m = self._most_power(self.last_tilt), self.sharpness or 0.0
        stop = max(w, 1.0) * mu + PAD_DEVIATIONS
        if self.high < math.inf:
            x = np.linspace(0.0, STEP_GRID_LIMITS.psi_reach / m, 481)
            y = (self.high + x) / mu + mu / 2
            ratio = self.loss.log_ratio(y)
            slope = w * np.minimum(1.0, self.loss.slope(y) / mu)
            most = math.cos(STEP_GRID_LIMITS.strip_angle) * np.exp(m * x)
            far = (0.8 * most > LIMITS.last_exponent + w * ratio) & (0.9 * most > slope)
            last = float(x[int(np.argmax(far))]) if far.any() else STEP_GRID_LIMITS.psi_reach / m
            stop = min(stop, max((self.high + last) / mu + mu / 2, 1.0))
        return stop

    # Sums on the real line

    def weights(self, stride: int = 1) -> tuple[Array, Array | None, Array]:
        """Return losses, and the logs of their weights in M_low (None without it) and M_bracket.

        ``stride``: use every ``stride``-th node.
        """
        key = "weights", stride
        if key not in self._cache:
            charge(LIMITS.stored_arrays * (CALL + LIMITS.node_operations * self.size / stride))
            part, grid = slice(0, self.size, stride), self._grid
            first, place = (v[part] for v in grid.exponent(0.0))
            base = first + grid.normal(0.0)[part] + math.log(stride)
            none = np.zeros(len(base))
            ends = [
                grid.psi(level, 0.0, self.size)[part] if math.isfinite(level) else none
                for level in (self.low, self.high)
            ]
            low, inside = None, base - ends[1]
            if not self.bulk:
                low = base - ends[0]
                gap = -np.expm1(ends[1] - ends[0])
                inside = inside + np.log(np.maximum(gap, 5e-324))  # estimates need a mass
            if self.order == "symmetric":
                ratio = grid.log_ratio(0.0)[part]
                place = np.concatenate([place, -ratio, [0.0]])
                rest = np.append(grid.normal(0.0)[part] + math.log(stride), grid.log_rest)
                if low is None:
                    inside = np.append(inside, rest)
                else:
                    low = np.append(low, rest)
                    inside = np.append(inside, np.full(len(rest), -math.inf))
            self._cache[key] = place, low, inside
        return self._cache[key]

    def log_sums(self, tilt: float) -> tuple[float, float]:
        """Estimate log M_low and log M_bracket at a real tilt. `log_above` is certified."""
        place, low, inside = self.weights()
        charge(LIMITS.stored_arrays * CALL + LIMITS.node_operations * len(place))
        sums = [-math.inf if v is None else float(log_sum(tilt * place + v)) for v in (low, inside)]
        return sums[0], sums[1]

    def log_above(self, tilt: float) -> tuple[float, float]:
        """Return upper bounds on log M_low and log M_bracket at a real tilt.

        They include errors of the step, the ends, and rounding.
        """
        return self._cache_once(self._log_above, tilt)

    def _log_above(self, tilt: float) -> tuple[float, float]:
        sums = self.log_sums(tilt)
        strip, ends = self.panels(self.a, tilt), self._ends(tilt)
        base, first, second = (v[: self.size] for v in self._grid.units(0.0))
        # Rounding of a sum of ``size`` terms, units of each term, and logarithms of terms.
        units = UNIT * float((base + first + abs(tilt) * second).max())  # slack: counted
        # slack: counted
        rounding = (2 * self.size + 64) * UNIT + units + self._psi_units * LIMITS.last_exponent
        bounds: list[float] = []
        for value, side, end in zip(sums, (strip.low, strip.bracket), ends, strict=True):
            outside = math.log(2) + float(log_sum(side)) - self._digits
            more = np.logaddexp(end, outside)
            bounds.append(float(np.logaddexp(value + math.log1p(rounding), more)))
        return bounds[0], bounds[1]

    def moments(self, tilt: float) -> tuple[float, float]:
        """Return a lower bound on Var(L) under a tilt, and an upper bound on E(L - L')^4.

        L is the loss under M_low, or under the only measure, and L' an independent copy [LS-10].
        """
        return self._cache_once(self._moments, tilt)

    def _moments(self, tilt: float) -> tuple[float, float]:
        place, low, inside = self.weights()
        g = (inside if low is None else low) + tilt * place
        loss = place if self.rises else -place  # as in `_away`
        top = float(g.max())
        mass = np.exp(g - top)
        total = float(mass.sum())
        mass /= total
        mean = float(mass @ loss)
        away = (loss - mean) ** 2
        second, fourth = float(mass @ away), float(mass @ away**2)
        e0, e2, e4 = self._moment_errors(tilt, mean, top + math.log(total))
        if not e0 < 0.5:
            return 0.0, 0.0
        first = math.sqrt(e0 * e2) / (1 - e0)  # error of E(L - mean), by Cauchy and Schwarz
        variance = (second - e2) / (1 + e0) - first**2
        second, fourth = ((v + e) / (1 - e0) for v, e in ((second, e2), (fourth, e4)))
        spread = 2 * fourth + 8 * fourth**0.75 * first + 6 * second**2
        moment_margin = 1e-6  # relative margin of moments, for rounding
        return max(variance * (1 - moment_margin), 0.0), spread * (1 + moment_margin)

    def turn(self, tilt: float) -> float:
        """Return the u that minimizes 1 - u^2 Var(L) + u^4 E(L - L')^4 / 24."""
        variance, fourth = self.moments(tilt)
        return math.sqrt(12 * variance / fourth) if fourth > 0 else 0.0

    def _moment_errors(self, tilt: float, mean: float, log_mass: float) -> list[float]:
        """Bound the errors of the mean of |L - mean|^k, for k = 0, 2, 4 [LS-10].

        log_mass: log of the mass by which sums are divided.
        """
        parts: list[tuple[Array, Array, float]] = []
        outer = self._bound_panels(self._cache_once(self._outer_shape, 0.0), 0.0, tilt)
        # The strip's height, its panels, and the log factor of the panels.
        for height, panels, share in (
            (self.a, self.panels(self.a, tilt), math.log(2) - self._digits),
            (0.0, outer, 0.0),
        ):
            away = self._away(mean, height)
            if height == 0:
                ends = [0, self.size, self.size + 1, 2 * self.size + 1, 2 * self.size + 2]
                away = away[[k for k in ends if k < len(away)]]
            sizes = panels.bracket if self.bulk else panels.low
            if height == 0:
                sizes = np.where(panels.outer, sizes, -math.inf)
            parts.append((sizes, away, share - log_mass))
        errors: list[float] = []
        for power in (0, 2, 4):
            with np.errstate(divide="ignore", invalid="ignore"):
                each = [
                    share + float(log_sum(sizes + power * np.log(np.maximum(away, 1e-300))))
                    for sizes, away, share in parts
                ]
            errors.append(sum(math.exp(min(v, 600.0)) for v in each))
        return errors

    def _away(self, mean: float, height: float) -> Array:
        """Return upper bounds on |L - mean| on each panel, with a factor for infinite panels.

        On these, |L - mean| grows by at most b = 2 mu / cos(mu height) per unit of y, and the
        integrand falls at least like e^{-y}. The integral of (1 + s)^4 e^-s is 65, and a sum over
        nodes is at most 100. Below the first node, L has a limit, except in the opposite order.
        """
        grid, size, mu = self._grid, self.size, self.loss.farthest
        loss = grid.waves(height)[:size]
        turn = np.imag(grid.log_ratio(height)[:size])
        turn = np.append(turn, math.pi / 2)
        if self.order == "opposite":
            turn[1:] += -np.imag(grid.log_opposite(height)[:size])
            turn[0] += math.pi / 2

        def bounds(place: Array, least: float) -> Array:
            away = np.abs(place - mean)
            away = np.append(away[:1], np.append(np.maximum(away[:-1], away[1:]), away[-1:]))
            away[0] = max(away[0], abs(least - mean))
            away = np.hypot(away, turn)
            grows = [0, -1] if self.order == "opposite" else [-1]
            slope = 2 * mu / math.cos(mu * height)
            away[grows] = 100**0.25 * np.maximum(away[grows], slope)
            return away * (1 + 1e-9)

        least = self.loss.log_least if self.order == "one" else float(loss[0].real)
        if self.order != "symmetric":
            return bounds(np.real(loss), least)
        away = bounds(np.real(loss), 0.0), bounds(-np.real(loss), 0.0), [abs(mean)]
        return np.concatenate(away)

    @property
    def _digits(self) -> float:
        """Return log(e^{2 pi a / h} - 1): the trapezoid error has a factor e^-this."""
        return math.log(math.expm1(math.tau * self.a / self.h))

    # Sums on a line

    def line(self, tilt: float, u: Array) -> CutTransform:
        """Return M_low and M_bracket at tilt + iu, with u evenly spaced from 0 [LS-3]."""
        grid, size, a = self._grid, self.size, self.a
        ratio = grid.waves(a)[:size]
        normal = grid.normal(a)[:size]
        first, second = (v[:size] for v in grid.exponent(a))
        power = first + tilt * second
        base, constant, per_tilt = (v[:size] for v in grid.units(a))
        # slack: the_transform_of_a_step_at_a_real_tilt/a
        units = UNIT * base, UNIT * (constant + abs(tilt) * per_tilt)
        reach = grid.reaches(a)[:size]
        high = grid.psi(self.high, a, size) if self.high < math.inf else np.zeros(size)
        ends, strip = self.panels(a, tilt), self.panels(2 * a, tilt)
        above = self.log_above(tilt)

        # To avoid overflow, divide terms by the largest, and add its log to the sums' logarithms.
        most = float(np.max(np.real(normal + power - high)))
        scale = most if most > 600.0 else 0.0  # largest log of terms without scaling
        # Terms of losses below 0, which no window cuts. Their path is the conjugate path.
        below = np.zeros(0, complex)
        rest = math.exp(self._grid.log_rest - scale)
        if self.order == "symmetric":
            below = np.exp(normal - tilt * ratio - scale)
        # A sum lost in rounding counts as 0, with its upper bound as error.
        nothing = np.full(len(u), -1.0), np.ones(len(u))
        angle = np.maximum(np.imag(ratio), 1e-300)
        every = units[0] + units[1]

        def moved(terms: Array) -> tuple[Array, Array]:
            """Return the sum of terms times e^{iuL} - 1, and a bound on its error."""
            sizes = np.abs(terms)
            # Terms below this share of the largest term count as errors.
            used = sizes >= 1e-21 * float(sizes.max())
            # As in `rounding` of waves. A place moves by 2 units of the move of R.
            # slack: counted
            products = (np.count_nonzero(used) + 80 + 4 * math.log2(len(u) + 1)) * UNIT + every
            # |e^{iuL} - 1| <= u |L|, and u |L| e^{-u arg R} <= |L| / (e arg R).
            length = sizes * (products * reach + 0.125 * UNIT * per_tilt)  # slack: counted
            turned = float((products * sizes * 2 + length / angle).sum())
            error = np.minimum(u * float(length.sum()), turned)
            return wave_sum(ratio[used], terms[used], u), error + 2 * float(sizes[~used].sum())

        def summed(
            terms: Array,
            value: tuple[float, float, float],
            both: bool,
            side: Array,
            end: Array,
            bottom: float,
        ) -> tuple[float, Array, Array]:
            total, log_total, error = value
            if not (total > 0 and math.isfinite(total) and np.any(terms)):
                return bottom, *nothing
            wave, wave_error = moved(terms)
            if both and len(below):
                other, other_error = moved(below)
                wave, wave_error = wave + np.conj(other), wave_error + other_error
            outside = np.logaddexp(log_sum(side), bottom) - self._digits
            outside = np.logaddexp(log_sum(end[ends.outer]), outside)
            left_out = math.exp(min(float(outside) - scale, 700.0))
            errors = wave_error + error + 2 * left_out
            if not errors[0] < 0.5 * total:
                return bottom, *nothing
            return log_total + scale, wave / total, errors / total

        def measure(terms: Array, psi: Array) -> tuple[float, float, float]:
            """Return the sum of a distribution up to a level, its logarithm, and its error.

            Without a window, at tilt 0, the sum is 1. If the difference from 1 is small, sum the
            difference. Then errors stay relative to the difference in products of many steps.
            """
            log_psi = float(np.abs(terms) @ np.abs(psi)) * self._psi_units
            if scale == 0.0:
                gain, error = self._gain(terms, below, psi, tilt, units)
                if abs(gain) < 0.5:  # |M - 1| below which M - 1 is summed instead of M
                    return 1 + gain, math.log1p(gain), error + log_psi
            # Pairwise sums err by less than 64 units, log_rest by 2 units and 2 of its size. If the
            # latter exceeds 16, the rest is a small part, and the terms have spare units.
            value = float(terms.sum().real) + (rest if len(below) else 0.0)
            error = float(np.abs(terms) @ (every + 64 * UNIT)) + log_psi  # slack: counted
            if len(below):
                value += float(below.sum().real)
                # slack: counted
                error += float(np.abs(below) @ (every + 64 * UNIT)) + 16 * UNIT * rest
            return value, math.log(value) if value > 0 else 0.0, error

        none = np.zeros(len(u))
        if self.bulk:
            terms = np.exp(normal + power - high - scale)
            b = summed(terms, measure(terms, high), True, strip.bracket, ends.bracket, above[1])
            return CutTransform(-math.inf, b[0], none, b[1], none, b[2])
        low = grid.psi(self.low, a, size)
        terms = np.exp(normal + power - low - scale)
        s = summed(terms, measure(terms, low), True, strip.low, ends.low, above[0])
        base = normal + power - scale
        gap = _difference(base, low, high)  # both exponentials and the sum: less than 64 units
        error = float(np.abs(gap) @ (every + 64 * UNIT))  # slack: counted
        both = np.abs(terms) @ np.abs(low) + np.exp(np.real(base - high)) @ np.abs(high)
        error += float(both) * self._psi_units
        value = float(gap.sum().real)
        log_value = math.log(value) if value > 0 else 0.0
        b = summed(gap, (value, log_value, error), False, strip.bracket, ends.bracket, above[1])
        return CutTransform(s[0], b[0], s[1], b[1], s[2], b[2])

    def _gain(
        self, terms: Array, below: Array, psi: Array, tilt: float, units: tuple[Array, Array]
    ) -> tuple[float, float]:
        """Return the mass up to a level minus 1, and a bound on its error [LS-3].

        ``below``: terms of losses below 0. ``units``: errors of terms.
        """
        grid, size, a = self._grid, self.size, self.a
        ratio = grid.waves(a)[:size]
        normal = grid.normal(a)[: self.full]
        first, second = (v[:size] for v in grid.exponent(a))
        # slack: counted
        own, moving = units[0] + 80 * UNIT, units[1]  # as in `line`, and expm1
        plain = np.exp(normal)
        tail = plain[size:]
        if len(below):
            # Losses 0, above 0, and below 0 have total mass 1 under P at tilt 0. The density is
            # R phi above 0, and phi below 0.
            lifted = np.exp(normal + grid.log_ratio(a)[: self.full])
            gain, sizes = _difference_from(lifted[:size], terms, tilt * ratio - psi)
            other, other_sizes = _difference_from(plain[:size], below, -tilt * ratio)
            gain, sizes = gain + other, sizes + other_sizes
            error = float((np.abs(terms) + np.abs(below) + sizes) @ moving)
            tail = tail + lifted[size:]
        else:
            gain, sizes = _difference_from(plain[:size], terms, first + tilt * second - psi)
            error = float(np.abs(terms) @ moving)
        # At tilt 0, the trapezoid sum of the distribution differs from 1 by the strip and the ends.
        missed = 16 * math.exp(2 * a * a - self._digits) + 4 * math.exp(
            -PAD_DEVIATIONS * PAD_DEVIATIONS / 2
        )
        if self.order == "symmetric":
            missed += 4 * math.exp(grid.bend * grid.start)
        value = float(gain.sum().real) - float(tail.sum().real)
        # The tail's exponents are at most (PAD_DEVIATIONS + 20)^2. Differences are rounded again.
        error += (
            # slack: counted
            float(sizes @ own) + float(np.abs(tail).sum()) * UNIT * 16 * (PAD_DEVIATIONS + 20) ** 2
        )
        return value, error + missed + 4 * UNIT * abs(value)  # slack: counted

    # Bounds on panels

    @property
    def _last_real_part(self) -> float:
        """Return a lower bound on Re y at the last node. Beyond it, Re y rises as fast as x."""
        last = self._grid.start + self._grid.h * (self.size - 1)
        return last + (self.loss.farthest / 2 if self.order == "symmetric" else 0.0)

    def panels(self, height: float, tilt: float) -> Panels:
        """Return bounds on the integrand on the path Im x = ``height``, under a tilt [LS-4]."""
        last = self._cache.get(("panels", height))  # for one tilt, which is asked several times
        if last is None or last[0] != tilt:
            last = tilt, self._bound_panels(self._cache_once(self._shape, height), height, tilt)
            self._cache["panels", height] = last
        return last[1]

    def _bound_panels(self, shape: _Shape, height: float, tilt: float) -> Panels:
        g = shape.constant + tilt * shape.slope
        w = self._most_power(tilt)
        # log R errs by ratio_units of 1 plus 3 times its size. The parts of g may cancel. Places
        # move by much less than half a panel, by which the largest value exceeds the mean.
        each = 8 * UNIT * (1 + self.loss.ratio_units)  # slack: counted
        units = each * (np.abs(shape.constant) + np.abs(tilt * shape.slope) + abs(w) + 1)
        bracket, low = g + shape.bracket + units, g + shape.low + units
        self._bound_last(height, tilt, bracket, low)
        if self.order != "symmetric":
            return Panels(low, bracket, shape.angle, shape.outer)
        rest = np.append(shape.rest + tilt * shape.fall, self._grid.log_rest)
        sizes = np.append(np.abs(shape.rest) + np.abs(tilt * shape.fall), abs(self._grid.log_rest))
        rest += each * (sizes + abs(w) + 1)
        none = np.full(len(rest), -math.inf)
        return Panels(
            np.concatenate([low, none if self.bulk else rest]),
            np.concatenate([bracket, rest if self.bulk else none]),
            np.concatenate([shape.angle, shape.angle, [0.0]]),
            np.concatenate([shape.outer, shape.outer, [False]]),
        )

    def _ends(self, tilt: float) -> tuple[float, float]:
        """Bound the log masses of both measures beyond the nodes, on the real line."""
        panels = self._bound_panels(self._cache_once(self._outer_shape, 0.0), 0.0, tilt)
        return float(log_sum(panels.low[panels.outer])), float(
            log_sum(panels.bracket[panels.outer])
        )

    def _outer_shape(self, height: float) -> _Shape:
        """Return the shape of the first panel and the last, which `_bound_last` completes."""
        return self._shape(height, 1)

    def _bound_last(self, height: float, tilt: float, bracket: Array, low: Array) -> None:
        """Set the last entries of ``bracket`` and ``low``: bounds beyond the last node."""
        loss, mu, far = self.loss, self.loss.farthest, self._last_real_part
        grid, last = self._grid, self.size - 1
        w = self._most_power(tilt)
        first, second = (v[last] for v in grid.exponent(height))
        size = float((first + tilt * second).real)
        lift = 0.5 * height * height
        # As in `_bound_panels`. The normal tail errs by 64 units, plus rounding of sums.
        log_normal = float(log_ndtr(-far))
        each = 8 * (1 + loss.ratio_units)
        units = UNIT * (each * (abs(size) + abs(w) + 1) + 80 * abs(log_normal))  # slack: counted
        if not self.rises:
            end = log_normal + size + lift + units
            bracket[-1], low[-1] = end, -math.inf
            return
        bends = LIMITS.straight_share if self.order == "symmetric" else 1.0
        room = bends * far - w * mu  # the log slope beyond is at most w mu - y
        by_slope = math.inf
        if room > 1:
            by_slope = -0.5 * far * far + size - math.log(room) + GROWTH_LOG + lift
            by_slope += units  # far^2 / 2 is less than log_normal, which counts in ``units``
        bracket[-1], low[-1] = (
            by_slope + GROWTH_LOG,
            -math.inf if self.bulk else by_slope + GROWTH_LOG,
        )
        if self.high == math.inf:
            return
        # Beyond the last node, the size falls, so the normal tail bounds the integral.
        t = float(grid.path(height)[1][last].real)
        x, turn, m = t - self.high, mu * height, self.sharpness or 0.0
        growth = math.exp((turn / grid.sigma) ** 2 / 2)
        most = math.cos(m * turn) - growth * float(ndtr(-x / grid.sigma))
        y = np.real(grid.path(height)[0][last : last + 1])
        steep = float(loss.slope(y)[0]) / (mu * math.cos(turn)) * (1 + 1e-9)
        window = most * math.exp(m * min(x, grid.farthest_x))
        # The slope of log R rises by at most 1 per unit of t, the window by m.
        steep = min(1.0, steep) if m >= 1 else 1.0
        if m * window * bends > w * steep:
            end = log_normal + size - window + lift + math.log(2)
            end += units + self._psi_units * window
            bracket[-1], low[-1] = min(bracket[-1], end), min(low[-1], end)

    def _shape(self, height: float, most: float = math.inf) -> _Shape:
        """Return the parts of the bounds for any tilt, on at most ``most`` panels and beyond.

        The integrand without its normal factor and log R rise with y, and the part of losses below
        0 falls. Therefore, the last panel also covers everything beyond the nodes.
        """
        grid, size = self._grid, int(min(self.size, most))
        normal = np.append(grid.normal_bounds(height)[:size], 0.0)
        first, second = (np.real(v[:size]) for v in grid.exponent(height))
        if self.rises:  # the size is largest at the end of each panel
            constant, slope = (np.append(v, v[-1]) for v in (first, second))
        else:
            constant = np.concatenate([[0.0], first])
            slope = np.concatenate([[-self.loss.log_least], second])
        bracket, low = np.zeros(size + 1), np.full(size + 1, -math.inf)
        if self.high < math.inf:
            high_least, high_size = grid.window_bounds(self.high, height, size)
            bracket[:-1] = -high_least
        else:
            high_least, high_size = np.zeros(size), np.zeros(size)
        if not self.bulk:
            low_least, low_size = grid.window_bounds(self.low, height, size)
            low[:-1] = -low_least
            bracket[:-1] = np.minimum(
                np.logaddexp(-high_least, -low_least),
                np.log(high_size + low_size + 1e-300) + np.maximum(-high_least, -low_least),
            )
        angle = np.append(0.0, np.imag(grid.log_ratio(height)[:size]) if height else np.zeros(size))
        if self.order == "opposite" and height:
            away = np.append(-np.imag(grid.log_opposite(height)[:size]), 0.0)
            angle = angle + away
        outer = np.zeros(size + 1, bool)
        outer[[0, -1]] = True
        rest = fall = np.zeros(0)
        if self.order == "symmetric":  # for losses below 0, the size falls from 1
            ratio = np.real(grid.log_ratio(height)[:size])
            rest = normal.copy()
            rest[-1] = float(log_ndtr(-self._last_real_part)) + 0.5 * height * height
            fall = np.append(0.0, -ratio)
        return _Shape(normal + constant, slope, bracket, low, angle, outer, rest, fall)


@dataclass(frozen=True, eq=False)
class _Shape:
    """Hold the parts of the panel bounds at a height, from which those for any tilt follow."""

    constant: Array
    slope: Array
    bracket: Array
    low: Array
    angle: Array
    outer: Array
    rest: Array
    fall: Array


def _difference_from(plain: Array, terms: Array, move: Array) -> tuple[Array, Array]:
    """Return plain (e^move - 1), and the size of the numbers that were rounded.

    ``terms``: plain e^move.
    """
    near = np.abs(move) < 1
    gain = np.where(near, plain * np.expm1(np.where(near, move, 0.0)), terms - plain)
    return gain, np.where(near, np.abs(gain), np.abs(terms) + np.abs(plain))


def log_sum(terms: Array) -> Array:
    """Return the logarithm of the sum over the last axis of e^terms."""
    top = terms.max(axis=-1, keepdims=True)
    if np.isfinite(top).all():
        return np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):  # an infinite term gives an infinite sum
        return np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]


def _difference(base: Array, low: Array, high: Array) -> Array:
    """Return e^base (e^-high - e^-low), accurate for small low and high."""
    gap = low - high
    near = np.real(gap) > -1.0
    with np.errstate(over="ignore"):
        return np.where(
            near,
            -np.exp(base - high) * np.expm1(-np.where(near, gap, 0.0)),
            np.exp(base - low) * np.expm1(np.where(near, 0.0, gap)),
        )
