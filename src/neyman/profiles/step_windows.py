"""One subsampled Gaussian step, cut smoothly by the size of its loss: sums over nodes of y.

A window lets a step through up to a loss of about l: s_l(y) = exp(-psi(t - t_l)) with
psi(x) = e^{m x} Phi(x / SIGMA), t = mu y - mu^2 / 2 and log R = l at t_l. It is analytic, it rises
with l, and 1 - s_l dies out faster than any power of the loss below l [LS-1]. For two levels

    M_low(w) = integral of phi R^w s_low,    M_bracket(w) = integral of phi R^w (s_high - s_low)

are trapezoid sums on the line Im y = a, where |R^{iu}| = e^{-u arg R} <= 1 for every u >= 0: their
number of nodes does not grow with u [LS-3]. The same positive integral bounds what is beyond u
[LS-5]. The derivation stands in docs/certificates/largest-step.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import erfc, log_ndtr, ndtr

from neyman.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.losses.subsampled import SubsampledGaussianLoss
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p, wave_sum

__all__ = ["LineSums", "Order", "Panels", "StepNodes", "log_sum"]

Order = Literal["one", "opposite", "symmetric"]

SIGMA = 0.5  # of the window, in units of t
ANGLE = 1.2  # m times mu times the height of the strip, at most: there Re psi > -GROWTH
GROWTH = 1.1  # |e^-psi| <= e^GROWTH in the strip [LS-1]
TALLEST = 4.0  # of the strip
NARROWEST = 0.9  # height of the strip for a path that bends: size and angle rise on it [LS-9]
BENDS = 0.99  # how much of its length such a path is straight, beyond its last node
PAD = 12.0  # the normal density beyond is e^-72
ACCURACY = 45.0  # a sum over y errs by about e^-45
FARTHEST_X = 12.0  # where e^-psi is 0
BEYOND = 100.0  # the window's exponent at the last node
PSI_UNITS = 1e-12  # relative error of psi; the complex error function is good to 1e-13
LARGE = 600.0  # log of terms that floats hold with room
SMALL = 1e-21  # terms below this part of the largest are not summed, but counted as errors


@dataclass(frozen=True, eq=False)
class Panels:
    """Logarithms of upper bounds on the integrand's size over panels of y [LS-4].

    Those beyond the nodes reach to infinity.

    Args:
        low, bracket: for the two measures; -inf where there is no lower level.
        angle: lower bounds on the angle of the loss, by which a wave falls.
        outer: whether a panel lies beyond the nodes.
    """

    low: Array
    bracket: Array
    angle: Array
    outer: Array


@dataclass(frozen=True, eq=False)
class LineSums:
    """Sums on a line of heights u, relative to their values at u = 0.

    Args:
        log_low, log_bracket: logarithms of the values at u = 0.
        low, bracket: M(c + iu) / M(c) - 1; -1 for a bracket that is lost in rounding, whose error
            is 1 and whose log is an upper bound.
        low_error, bracket_error: bounds on their errors, and on that of the value at 0.
    """

    log_low: float
    log_bracket: float
    low: Array
    bracket: Array
    low_error: Array
    bracket_error: Array


@dataclass(frozen=True, eq=False)
class StepNodes:
    """Nodes of y for one loss, between two levels of its size.

    Args:
        loss: the step's loss log R, or the log R(y) of log R(y) - log R(-y).
        order: "one" for one order of the pair; "opposite" where the other law is R(-y) times the
            normal law, as under replace-one; "symmetric" for the hull of both orders, with the
            loss log R or -log R where log R is above 0 [LS-9].
        count: how many there are.
        low, high: t at the two levels; -inf and inf without them.
        last_tilt: the largest tilt that will be asked for.
        sharpness: m, how fast a window falls.
        coarse: by how much nodes are farther apart than for certified sums.
    """

    loss: LikelihoodRatioLoss
    order: Order
    count: int
    low: float
    high: float
    last_tilt: float
    sharpness: float
    coarse: float = 1.0
    _cache: dict[tuple[float | str, ...], Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        mu = self.loss.farthest
        start, stop = -PAD, self._stop()
        if not self.rises:
            start, stop = self.loss.range(self.loss.power(self.last_tilt))
            start, stop = min(start, -PAD), max(stop, PAD)
        tallest = TALLEST
        if self.order == "symmetric":
            start, stop, tallest = -ACCURACY - 5, max(stop / BENDS - mu / 2, PAD), NARROWEST
        a = 0.5 * min(ANGLE / (self.sharpness * mu), tallest)
        h = self.coarse * math.tau * a / (ACCURACY + 2 * a * a + 1)
        x = start + h * np.arange(math.ceil((stop - start) / h) + 1)
        for name, value in (("a", a), ("h", h), ("x", x)):
            object.__setattr__(self, name, value)

    a: float = field(init=False)
    h: float = field(init=False)
    x: Array = field(init=False)

    def _stored(self, build: Callable[..., Any], *key: float) -> Any:
        """What a method says of these heights and levels, which no tilt changes."""
        at = (build.__name__, *key)
        if at not in self._cache:
            self._cache[at] = build(*key)
        return self._cache[at]

    @property
    def rises(self) -> bool:
        """Whether the integrand's size without the normal law rises with y: not where added."""
        return self.order != "one" or self.loss.removed

    @property
    def log_rest(self) -> float:
        """log of the mass of the loss 0: of the symmetric order (1 - p) erf(mu / sqrt 8)."""
        if self.order != "symmetric":
            return -math.inf
        return self.loss.log_least + math.log(math.erf(self.loss.farthest / math.sqrt(8)))

    def path(self, height: float) -> tuple[Array, Array, Array]:
        """Complex y at the nodes, t = mu y - mu^2 / 2, and log dy / dx, on Im x = height.

        y = x, and y = mu / 2 + log(1 + e^x) for the symmetric order, which begins at log R = 0.
        """
        return self._stored(self._path, height)

    def _path(self, height: float) -> tuple[Array, Array, Array]:
        mu, z = self.loss.farthest, self.x + 1j * height
        if self.order != "symmetric":
            return z, mu * z - mu * mu / 2, np.zeros(len(z))
        away = _softplus(z)
        return mu / 2 + away, mu * away, -_softplus(-z)

    def _most_power(self, tilt: float) -> float:
        """By how much the log slope of the size exceeds that of log R, at most."""
        return 2 * tilt + 1 if self.order == "opposite" else float(self.loss.power(tilt))

    def _stop(self) -> float:
        """Where the integrand has died out for every tilt, by the normal law or by the window."""
        mu = self.loss.farthest
        w, m = self._most_power(self.last_tilt), self.sharpness
        stop = max(w, 1.0) * mu + PAD
        if self.high < math.inf:
            x = np.linspace(0.0, FARTHEST_X, 481)
            y = (self.high + x) / mu + mu / 2
            ratio = self.loss.log_ratio(y)
            slope = w * np.minimum(1.0, self.loss.slope(y) / mu)
            most = math.cos(ANGLE) * np.exp(m * x)
            far = (0.8 * most > BEYOND + w * ratio) & (0.9 * most > slope)
            last = float(x[int(np.argmax(far))]) if far.any() else FARTHEST_X
            stop = min(stop, max((self.high + last) / mu + mu / 2, 1.0))
        return stop

    def _psi(self, x: Array) -> Array:
        """e^{m x} Phi(x / SIGMA), for complex x too; as at FARTHEST_X to the right of it."""
        m, real = self.sharpness, np.minimum(np.real(x), FARTHEST_X)
        if not np.iscomplexobj(x):
            return np.exp(m * real) * ndtr(real / SIGMA)
        x = real + 1j * np.imag(x)
        return np.exp(m * x) * 0.5 * erfc(-x / (SIGMA * math.sqrt(2)))

    def _cut(self, height: float, level: float) -> Array:
        """psi of the window at a level; 0 without one."""
        t = self.path(height)[1]
        t = t if height else np.real(t)
        return self._psi(t - level) if level < math.inf else np.zeros_like(t)

    def log_ratio(self, height: float) -> Array:
        """log R on the path, 0 up to a quarter turn."""
        return self._stored(self._log_ratio, height)

    def _log_ratio(self, height: float) -> Array:
        y, t, _ = self.path(height)
        if isinstance(self.loss, SubsampledGaussianLoss):
            return self.loss.log_ratio_at(t)
        return self.loss.log_ratio(y)

    def log_opposite(self, height: float) -> Array:
        """log R(-y) on the line Im y = height, the conjugate of that at the mirrored place."""
        return self._stored(self._log_opposite, height)

    def _log_opposite(self, height: float) -> Array:
        return np.conj(self.loss.log_ratio(-self.x + 1j * height))

    def waves(self, height: float) -> Array:
        """What the loss is on the path, up to its sign."""
        ratio = self.log_ratio(height)
        return ratio - self.log_opposite(height) if self.order == "opposite" else ratio

    def exponent(self, tilts: Array | float, height: float) -> Array:
        """The logarithm of R's part of the integrand; of losses above 0 if symmetric."""
        ratio = self.log_ratio(height) if height else np.real(self.log_ratio(height))
        if self.order != "opposite":
            power = np.add(tilts, 1) if self.loss.removed else np.negative(tilts)
            return np.multiply.outer(power, ratio)
        other = self.log_opposite(height) if height else np.real(self.log_opposite(height))
        return np.multiply.outer(np.add(tilts, 1), ratio) - np.multiply.outer(tilts, other)

    def _normal(self, height: float) -> Array:
        """The logarithm of the normal law's part, with the share of a node."""
        y, _, log_jacobian = self.path(height)
        if not height:
            y, log_jacobian = np.real(y), np.real(log_jacobian)
        return -0.5 * y * y + log_jacobian + math.log(self.h / math.sqrt(math.tau))

    def log_sums(self, tilts: Array) -> tuple[Array, Array]:
        """log M_low and log M_bracket at real tilts, shape (n,): to steer by; see `log_above`."""
        normal = self._normal(0.0)
        g = self.exponent(tilts, 0.0) + normal
        rest = np.full(len(tilts), self.log_rest)
        if self.order == "symmetric":
            below = np.multiply.outer(-tilts, np.real(self.log_ratio(0.0))) + normal
            rest = np.logaddexp(rest, log_sum(below))
        high = self._stored(self._cut, 0.0, self.high)
        if self.low == -math.inf:
            return np.full(len(tilts), -math.inf), np.logaddexp(log_sum(g - high), rest)
        low = self._stored(self._cut, 0.0, self.low)
        with np.errstate(divide="ignore"):
            share = np.log(-np.expm1(high - low))
        return np.logaddexp(log_sum(g - low), rest), log_sum(g - high + share)

    def log_above(self, tilt: float) -> tuple[float, float]:
        """Upper bounds on log M_low and log M_bracket: the strip, the ends, and rounding."""
        sums = self.log_sums(np.array([tilt]))
        strip, ends = self.panels(self.a, tilt), self.panels(0.0, tilt)
        units = self._units(tilt, 0.0)
        rounding = (2 * len(self.x) + 64) * UNIT + float(units.max()) + PSI_UNITS * BEYOND
        bounds: list[float] = []
        for value, side, end in zip(
            sums, (strip.low, strip.bracket), (ends.low, ends.bracket), strict=True
        ):
            left_out = log_sum(end[ends.outer])
            outside = math.log(2) + log_sum(side) - self._digits
            more = np.logaddexp(left_out, outside)
            bounds.append(float(np.logaddexp(value[0] + math.log1p(rounding), more)))
        return bounds[0], bounds[1]

    @property
    def _digits(self) -> float:
        """log(e^{2 pi a / h} - 1)."""
        return math.log(math.expm1(math.tau * self.a / self.h))

    def _units(self, tilt: float, height: float) -> Array:
        """Relative errors of the terms' exponents without those of psi."""
        loss, mu = self.loss, self.loss.farthest
        y, t, log_jacobian = self.path(height)
        real = np.real(y)
        # |R'| / |R| is at most the slope on the real line over cos(mu height).
        steep = mu * math.cos(mu * height)
        size = np.abs(t) + mu**2 + 1
        w = abs(tilt + 1) if self.rises else abs(tilt)
        moved = self._reach(height) + loss.slope(real) / steep * size
        exponent = np.abs(y) ** 2 + np.abs(log_jacobian) + 2 * w * moved
        if self.order == "opposite":
            away = np.abs(self.log_opposite(height)) + loss.slope(-real) / steep * size
            exponent = exponent + 2 * abs(tilt) * away
        return UNIT * (8 * exponent + 64)

    def _reach(self, height: float) -> Array:
        """Sizes of both logarithms of R, and of their errors over a unit."""
        reach = np.abs(self.log_ratio(height))
        if self.order == "opposite":
            reach = reach + np.abs(self.log_opposite(height))
        return reach + self.loss.ratio_units * (3 * reach + self.loss.ratio_floor)

    def line(self, tilt: float, u: Array) -> LineSums:
        """The two sums at c + iu, u evenly spaced from 0 [LS-3]."""
        ratio = self.waves(self.a)
        base = self.exponent(tilt, self.a) + self._normal(self.a)
        units, reach = self._units(tilt, self.a), self._reach(self.a)
        high = self._stored(self._cut, self.a, self.high)
        ends, strip, floor = (self.panels(x, tilt) for x in (self.a, 2 * self.a, 0.0))

        # Terms beyond the floats are divided by the largest, which their sums' logarithms get back.
        most = float(np.max(np.real(base - high)))
        scale = most if most > LARGE else 0.0
        base = base - scale
        # Of losses below 0, which no window cuts; their path is the conjugate one.
        below = np.zeros(0, complex)
        rest = math.exp(self.log_rest - scale)
        if self.order == "symmetric":
            below = np.exp(self._normal(self.a) - tilt * ratio - scale)
        # A sum that is lost in rounding counts as 0, with its upper bound as its error.
        lost = (self.log_above(tilt)[1], np.full(len(u), -1.0), np.ones(len(u)))

        def moved(terms: Array) -> tuple[Array, Array]:
            """The sum of terms times e^{iuL} - 1, and a bound on its error."""
            size = np.abs(terms)
            used = size > SMALL * float(size.max())
            angle = np.maximum(np.imag(ratio), 1e-300)
            length = size * reach
            rounding = float(size @ units + size[~used].sum() * 2) + 64 * UNIT * float(size.sum())
            products = (np.count_nonzero(used) + 64 + 4 * math.log2(len(u) + 1)) * UNIT
            # |e^{iuL} - 1| <= u |L|, and u |L| e^{-u arg R} <= |L| / (e arg R).
            most = np.minimum(u * float(length.sum()), float((size * 2 + length / angle).sum()))
            return wave_sum(ratio[used], terms[used], u), rounding + (products + 16 * UNIT) * most

        def summed(
            terms: Array, psi_error: Array, both: bool, side: Array, end: Array, bottom: Array
        ) -> tuple[float, Array, Array]:
            wave, error = moved(terms)
            value = float(np.real(terms.sum()))
            if both and len(below):
                other, other_error = moved(below)
                wave, error = wave + np.conj(other), error + other_error + 16 * UNIT * rest
                value += float(np.real(below.sum())) + rest
            if not (value > 0 and math.isfinite(value)):
                return lost
            outside = np.logaddexp(log_sum(side), log_sum(bottom)) - self._digits
            outside = np.logaddexp(log_sum(end[ends.outer]), outside)
            left_out = math.exp(min(float(outside) - scale, 700.0))
            error = error + float(psi_error.sum()) + 2 * left_out
            if not error[0] < 0.5 * value:
                return lost
            return math.log(value) + scale, wave / value, error / value

        if self.low == -math.inf:
            terms = np.exp(base - high)
            psi_error = np.abs(terms) * np.abs(high) * PSI_UNITS
            b = summed(terms, psi_error, True, strip.bracket, ends.bracket, floor.bracket)
            nothing = np.zeros(len(u))
            return LineSums(-math.inf, b[0], nothing, b[1], nothing, b[2])
        low = self._stored(self._cut, self.a, self.low)
        terms = np.exp(base - low)
        psi_error = np.abs(terms) * np.abs(low) * PSI_UNITS
        s = summed(terms, psi_error, True, strip.low, ends.low, floor.low)
        terms = _difference(base, low, high)
        psi_error = np.exp(np.real(base - low)) * np.abs(low)
        psi_error = (psi_error + np.exp(np.real(base - high)) * np.abs(high)) * PSI_UNITS
        b = summed(terms, psi_error, False, strip.bracket, ends.bracket, floor.bracket)
        return LineSums(s[0], b[0], s[1], b[1], s[2], b[2])

    def _panel_bounds(self, height: float, size: Array, first: float, rises: bool) -> Array:
        """Bounds on a size times the normal law over the panels, both without a window.

        Args:
            height: of the path.
            size: its logarithm at the nodes, which rises or falls along the path.
            first: its limit before the first node.
            rises: which of the two.
        """
        start, inner = (size[0], size[1:]) if rises else (first, size[:-1])
        sizes = np.concatenate([[start], inner, [size[-1]]])
        return self._stored(self._normal_bounds, height) + sizes

    def _normal_bounds(self, height: float) -> Array:
        y, _, log_jacobian = self.path(height)
        y, jacobian = np.real(y), np.real(log_jacobian)
        near = np.where((y[:-1] < 0) & (y[1:] > 0), 0.0, np.minimum(abs(y[:-1]), abs(y[1:])))
        inner = -0.5 * near * near + math.log(self.h / math.sqrt(math.tau)) + jacobian[1:]
        # Left of the first node the Jacobian is at most e^x where the path bends.
        before = float(log_ndtr(y[0]))
        if self.order == "symmetric":
            before = float(self.x[0]) - 0.5 * y[0] ** 2 - 0.5 * math.log(math.tau)
        after = float(log_ndtr(-self._far))
        return np.concatenate([[before], inner, [after]]) + 0.5 * height * height

    @property
    def _far(self) -> float:
        """The real part of y at the last node, at least, which then rises as fast as x."""
        return float(self.x[-1]) + (self.loss.farthest / 2 if self.order == "symmetric" else 0.0)

    def panels(self, height: float, tilt: float) -> Panels:
        """Bounds on the integrand at c on the path at a height [LS-4]."""
        loss, mu = self.loss, self.loss.farthest
        size, far = np.real(self.exponent(tilt, height)), self._far
        w = self._most_power(tilt)
        g = self._panel_bounds(height, size, -tilt * loss.log_least, self.rises)
        bends = BENDS if self.order == "symmetric" else 1.0
        if self.rises:  # the log slope beyond is at most w mu - y
            room = bends * far - w * mu
            by_slope = -0.5 * far * far + size[-1] - math.log(room) if room > 1 else math.inf
            g[-1] = by_slope + GROWTH + 0.5 * height * height
        slack = (1 + loss.ratio_units) * (abs(w) + 1)
        g += 8 * UNIT * (np.abs(g) + slack)
        bracket = g + self._stored(self._bracket_bounds, height)
        low = np.full(len(g), -math.inf)
        if self.low > -math.inf:
            low = g - self._stored(self._window_bounds, height, self.low)[0]
        if self.rises and self.high < math.inf:
            # From the last node on the size falls, so the normal law's rest bounds it.
            y, t, _ = self.path(height)
            x, turn = float(np.real(t[-1])) - self.high, mu * height
            most = math.cos(self.sharpness * turn)
            most -= math.exp((turn / SIGMA) ** 2 / 2) * ndtr(-x / SIGMA)
            steep = float(loss.slope(np.real(y[-1:]))[0]) / (mu * math.cos(turn)) * (1 + 1e-9)
            window = most * math.exp(self.sharpness * x)
            if self.sharpness * window * bends > w * min(1.0, steep):
                end = float(log_ndtr(-far)) + size[-1] - window
                end += 0.5 * height * height + math.log(2) + 8 * UNIT * abs(w * size[-1])
                bracket[-1], low[-1] = min(bracket[-1], end), min(low[-1], end)
        angle = np.concatenate([[0.0], np.imag(self.log_ratio(height))])
        if self.order == "opposite":
            angle = angle + np.append(-np.imag(self.log_opposite(height)), 0.0)
        outer = np.zeros(len(g), bool)
        outer[[0, -1]] = True
        if self.order != "symmetric":
            return Panels(low, bracket, angle, outer)
        fall = -tilt * np.real(self.log_ratio(height))
        rest = np.append(self._panel_bounds(height, fall, 0.0, False), self.log_rest)
        rest += 8 * UNIT * (np.abs(rest) + slack)
        none = np.full(len(rest), -math.inf)
        bulk = self.low == -math.inf
        return Panels(
            np.concatenate([low, none if bulk else rest]),
            np.concatenate([bracket, rest if bulk else none]),
            np.concatenate([angle, angle, [0.0]]),
            np.concatenate([outer, outer, [False]]),
        )

    def _bracket_bounds(self, height: float) -> Array:
        """Upper bounds on log |e^-psi_high - e^-psi_low| over the panels."""
        low_bound, low_size = self._stored(self._window_bounds, height, self.low)
        high_bound, high_size = self._stored(self._window_bounds, height, self.high)
        if self.low == -math.inf:
            return -high_bound
        return np.minimum(
            np.logaddexp(-high_bound, -low_bound),
            np.log(high_size + low_size + 1e-300) + np.maximum(-high_bound, -low_bound),
        )

    def _window_bounds(self, height: float, level: float) -> tuple[Array, Array]:
        """Lower bounds on Re psi and upper bounds on |psi| over the panels [LS-4]."""
        count = len(self.x) + 1
        if level == math.inf:
            return np.zeros(count), np.zeros(count)
        if level == -math.inf:
            return np.full(count, math.inf), np.zeros(count)
        turn, m = self.loss.farthest * height, self.sharpness
        growth = math.exp(turn * turn / (2 * SIGMA * SIGMA))
        _, t, log_jacobian = self.path(height)
        x = np.minimum(np.real(t) - level, FARTHEST_X)
        x0, x1 = x[:-1], x[1:]
        value = np.real(self._psi(x + 1j * np.imag(t)))
        mass = ndtr(x1 / SIGMA)
        size = growth * np.exp(m * x1) * mass
        bell = np.exp(-0.5 * (np.minimum(x1, 0.0) / SIGMA) ** 2) / (SIGMA * math.sqrt(math.tau))
        steep = growth * np.exp(m * x1) * (m * mass + bell)
        length = self.loss.farthest * self.h * np.exp(np.real(log_jacobian[1:])) * (1 + 1e-12)
        least = np.minimum(value[:-1], value[1:]) - 0.5 * length * steep
        right = np.exp(m * x0) * (math.cos(m * turn) - growth * ndtr(-x0 / SIGMA))
        least = np.where(right > 0, np.maximum(least, right), least) - PSI_UNITS * size
        first = growth * math.exp(m * x[0]) * float(ndtr(x[0] / SIGMA))
        rest = float(right[-1]) if right[-1] > 0 else -GROWTH
        return np.concatenate([[-first], least, [rest]]), np.concatenate([[first], size, [1e300]])


def _softplus(z: Array) -> Array:
    """log(1 + e^z) for complex z."""
    left = np.real(z) < 0
    e = np.exp(np.where(left, z, -z))
    return np.where(left, 0.0, z) + log1p(e)


def log_sum(terms: Array) -> Array:
    """The logarithm of the sum over the last axis of e^terms."""
    top = np.max(terms, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):  # the sum with an infinite term is infinite
        return np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]


def _difference(base: Array, low: Array, high: Array) -> Array:
    """e^base (e^-high - e^-low), with the digits of small low and high."""
    gap = low - high
    near = np.real(gap) > -1.0
    with np.errstate(over="ignore"):
        return np.where(
            near,
            -np.exp(base - high) * np.expm1(-np.where(near, gap, 0.0)),
            np.exp(base - low) * np.expm1(np.where(near, 0.0, gap)),
        )
