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
from dataclasses import dataclass, field

import numpy as np
from scipy.special import erfc, log_ndtr, ndtr

from neyman.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import wave_sum

__all__ = ["LineSums", "Panels", "StepNodes", "log_sum"]

SIGMA = 0.5  # of the window, in units of t
ANGLE = 1.2  # m times mu times the height of the strip, at most: there Re psi > -GROWTH
GROWTH = 1.1  # |e^-psi| <= e^GROWTH in the strip [LS-1]
TALLEST = 4.0  # of the strip
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

    The first and the last panel reach to infinity.

    Args:
        low, bracket: for the two measures; -inf where there is no lower level.
        angle: lower bounds on arg R.
    """

    low: Array
    bracket: Array
    angle: Array


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
        opposite: whether the other law is R(-y) times the normal law, as under replace-one.
        count: how many there are.
        low, high: t at the two levels; -inf and inf without them.
        last_tilt: the largest tilt that will be asked for.
        sharpness: m, how fast a window falls.
        coarse: by how much nodes are farther apart than for certified sums.
    """

    loss: LikelihoodRatioLoss
    opposite: bool
    count: int
    low: float
    high: float
    last_tilt: float
    sharpness: float
    coarse: float = 1.0
    _cache: dict[tuple[float, bool], Array] = field(default_factory=dict, repr=False)
    _windows: dict[tuple[float, float], tuple[Array, Array]] = field(
        default_factory=dict, repr=False
    )

    def __post_init__(self) -> None:
        mu = self.loss.farthest
        start, stop = -PAD, self._stop()
        if not self.rises:
            start, stop = self.loss.range(self.loss.power(self.last_tilt))
            start, stop = min(start, -PAD), max(stop, PAD)
        a = 0.5 * min(ANGLE / (self.sharpness * mu), TALLEST)
        h = self.coarse * math.tau * a / (ACCURACY + 2 * a * a + 1)
        y = start + h * np.arange(math.ceil((stop - start) / h) + 1)
        t = mu * y - mu * mu / 2
        for name, value in (("a", a), ("h", h), ("y", y), ("t", t)):
            object.__setattr__(self, name, value)

    a: float = field(init=False)
    h: float = field(init=False)
    y: Array = field(init=False)
    t: Array = field(init=False)

    @property
    def rises(self) -> bool:
        """Whether the integrand's size without the normal law rises with y: not where added."""
        return self.opposite or self.loss.removed

    def _most_power(self, tilt: float) -> float:
        """By how much the log slope of the size exceeds that of log R, at most."""
        return 2 * tilt + 1 if self.opposite else float(self.loss.power(tilt))

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
            far = (0.8 * most > BEYOND + w * ratio) & (most > slope)
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

    def log_ratio(self, height: float) -> Array:
        """log R on the line Im y = height, 0 up to a quarter turn."""
        if (height, False) not in self._cache:
            self._cache[height, False] = self.loss.log_ratio_on_line(self.y, height)
        return self._cache[height, False]

    def log_opposite(self, height: float) -> Array:
        """log R(-y) on the line Im y = height, the conjugate of that at the mirrored place."""
        if (height, True) not in self._cache:
            mirrored = self.loss.log_ratio_on_line(-self.y, height)
            self._cache[height, True] = np.conj(mirrored)
        return self._cache[height, True]

    def waves(self, height: float) -> Array:
        """What the loss is on the line Im y = height, up to its sign."""
        ratio = self.log_ratio(height)
        return ratio - self.log_opposite(height) if self.opposite else ratio

    def exponent(self, tilts: Array | float, height: float) -> Array:
        """The logarithm of the integrand without the normal law and the window."""
        ratio = self.log_ratio(height) if height else np.real(self.log_ratio(height))
        if not self.opposite:
            power = np.add(tilts, 1) if self.loss.removed else np.negative(tilts)
            return np.multiply.outer(power, ratio)
        other = self.log_opposite(height) if height else np.real(self.log_opposite(height))
        return np.multiply.outer(np.add(tilts, 1), ratio) - np.multiply.outer(tilts, other)

    def log_sums(self, tilts: Array) -> tuple[Array, Array]:
        """log M_low and log M_bracket at real tilts, shape (n,): to steer by; see `log_above`."""
        g = self.exponent(tilts, 0.0) - 0.5 * self.y * self.y
        g += math.log(self.h / math.sqrt(math.tau))
        high = self._psi(self.t - self.high) if self.high < math.inf else np.zeros(len(self.t))
        if self.low == -math.inf:
            return np.full(len(tilts), -math.inf), log_sum(g - high)
        low = self._psi(self.t - self.low)
        with np.errstate(divide="ignore"):
            share = np.log(-np.expm1(high - low))
        return log_sum(g - low), log_sum(g - high + share)

    def log_above(self, tilt: float) -> tuple[float, float]:
        """Upper bounds on log M_low and log M_bracket: the strip, the ends, and rounding."""
        sums = self.log_sums(np.array([tilt]))
        strip, ends = self.panels(self.a, tilt), self.panels(0.0, tilt)
        units = self._units(tilt, 0.0)
        rounding = (len(self.y) + 64) * UNIT + float(units.max()) + PSI_UNITS * BEYOND
        bounds: list[float] = []
        for value, side, end in zip(
            sums, (strip.low, strip.bracket), (ends.low, ends.bracket), strict=True
        ):
            left_out = np.logaddexp(end[0], end[-1])
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
        # |R'| / |R| is at most the slope on the real line over cos(mu height).
        steep = mu * math.cos(mu * height)
        size = np.abs(self.t) + mu**2 + 1
        w = abs(tilt + 1) if self.rises else abs(tilt)
        exponent = self.y * self.y + 2 * w * (self._reach(height) + loss.slope(self.y) / steep * size)
        if self.opposite:
            away = np.abs(self.log_opposite(height)) + loss.slope(-self.y) / steep * size
            exponent = exponent + 2 * abs(tilt) * away
        return UNIT * (8 * exponent + 64)

    def _reach(self, height: float) -> Array:
        """Sizes of both logarithms of R, and of their errors over a unit."""
        reach = np.abs(self.log_ratio(height))
        if self.opposite:
            reach = reach + np.abs(self.log_opposite(height))
        return reach + self.loss.ratio_units * (3 * reach + self.loss.ratio_floor)

    def line(self, tilt: float, u: Array) -> LineSums:
        """The two sums at c + iu, u evenly spaced from 0 [LS-3]."""
        y, ratio = self.y + 1j * self.a, self.waves(self.a)
        base = self.exponent(tilt, self.a) - 0.5 * y * y + math.log(self.h / math.sqrt(math.tau))
        units = self._units(tilt, self.a)
        at = self.t + 1j * self.loss.farthest * self.a
        high = self._psi(at - self.high) if self.high < math.inf else np.zeros(len(y), complex)
        ends, strip, floor = (self.panels(x, tilt) for x in (self.a, 2 * self.a, 0.0))

        # Terms beyond the floats are divided by the largest, which their sums' logarithms get back.
        most = float(np.max(np.real(base - high)))
        scale = most if most > LARGE else 0.0
        base = base - scale
        # A sum that is lost in rounding counts as 0, with its upper bound as its error.
        lost = (self.log_above(tilt)[1], np.full(len(u), -1.0), np.ones(len(u)))

        def summed(
            terms: Array, psi_error: Array, side: Array, end: Array, bottom: Array
        ) -> tuple[float, Array, Array]:
            size = np.abs(terms)
            value = float(np.real(terms.sum()))
            if not (value > 0 and math.isfinite(value)):
                return lost
            used = size > SMALL * float(size.max())
            wave = wave_sum(ratio[used], terms[used], u)
            angle = np.maximum(np.imag(ratio), 1e-300)
            length = size * self._reach(self.a)
            rounding = float(size @ units + size[~used].sum() * 2 + psi_error.sum())
            rounding += 64 * UNIT * float(size.sum())
            products = (np.count_nonzero(used) + 64 + 4 * math.log2(len(u) + 1)) * UNIT
            # |e^{iuL} - 1| <= u |L|, and u |L| e^{-u arg R} <= |L| / (e arg R).
            moved = np.minimum(u * float(length.sum()), float((size * 2 + length / angle).sum()))
            outside = np.logaddexp(log_sum(side), log_sum(bottom)) - self._digits
            outside = np.logaddexp(np.logaddexp(end[0], end[-1]), outside)
            left_out = math.exp(min(float(outside) - scale, 700.0))
            error = rounding + 2 * left_out + (products + 16 * UNIT) * moved
            if not error[0] < 0.5 * value:
                return lost
            return math.log(value) + scale, wave / value, error / value

        if self.low == -math.inf:
            terms = np.exp(base - high)
            psi_error = np.abs(terms) * np.abs(high) * PSI_UNITS
            b = summed(terms, psi_error, strip.bracket, ends.bracket, floor.bracket)
            nothing = np.zeros(len(u))
            return LineSums(-math.inf, b[0], nothing, b[1], nothing, b[2])
        low = self._psi(at - self.low)
        terms = np.exp(base - low)
        s = summed(terms, np.abs(terms) * np.abs(low) * PSI_UNITS, strip.low, ends.low, floor.low)
        terms = _difference(base, low, high)
        psi_error = np.exp(np.real(base - low)) * np.abs(low)
        psi_error = (psi_error + np.exp(np.real(base - high)) * np.abs(high)) * PSI_UNITS
        b = summed(terms, psi_error, strip.bracket, ends.bracket, floor.bracket)
        return LineSums(s[0], b[0], s[1], b[1], s[2], b[2])

    def panels(self, height: float, tilt: float) -> Panels:
        """Bounds on the integrand at c on the line Im y = height [LS-4]."""
        loss, mu = self.loss, self.loss.farthest
        size = np.real(self.exponent(tilt, height))
        w = self._most_power(tilt)
        y = self.y
        near = np.where((y[:-1] < 0) & (y[1:] > 0), 0.0, np.minimum(abs(y[:-1]), abs(y[1:])))
        normal = -0.5 * near * near + math.log(self.h / math.sqrt(math.tau))
        # The size without the normal law rises with y on the line, or falls.
        inner = normal + (size[1:] if self.rises else size[:-1])
        first = float(log_ndtr(y[0])) + (size[0] if self.rises else -tilt * loss.log_least)
        last = float(log_ndtr(-y[-1])) + size[-1]
        if self.rises:  # the log slope beyond is at most w mu - y
            room = float(y[-1]) - w * mu
            by_slope = -0.5 * y[-1] ** 2 + size[-1] - math.log(room) if room > 1 else math.inf
            by_slope += GROWTH
            last = by_slope
        g = np.concatenate([[first], inner, [last]]) + 0.5 * height * height
        g += 8 * UNIT * (np.abs(g) + (1 + loss.ratio_units) * (abs(w) + 1))
        low_bound, low_size = self._window(height, self.low)
        high_bound, high_size = self._window(height, self.high)
        bracket = g - high_bound
        if self.low > -math.inf:
            bracket = g + np.minimum(
                np.logaddexp(-high_bound, -low_bound),
                np.log(high_size + low_size + 1e-300) + np.maximum(-high_bound, -low_bound),
            )
        low = g - low_bound if self.low > -math.inf else np.full(len(g), -math.inf)
        if self.rises and self.high < math.inf:
            # From the last node on the size falls, so the normal law's rest bounds it.
            x, turn = float(self.t[-1]) - self.high, mu * height
            most = math.cos(self.sharpness * turn)
            most -= math.exp((turn / SIGMA) ** 2 / 2) * ndtr(-x / SIGMA)
            steep = min(1.0, float(loss.slope(y[-1:])[0]) / (mu * math.cos(turn)) * (1 + 1e-9))
            window = most * math.exp(self.sharpness * x)
            if self.sharpness * window > w * steep:
                end = float(log_ndtr(-y[-1])) + size[-1] - window
                end += 0.5 * height * height + math.log(2) + 8 * UNIT * abs(w * size[-1])
                bracket[-1], low[-1] = min(bracket[-1], end), min(low[-1], end)
        angle = np.concatenate([[0.0], np.imag(self.log_ratio(height))])
        if self.opposite:
            angle = angle + np.append(-np.imag(self.log_opposite(height)), 0.0)
        return Panels(low, bracket, angle)

    def _window(self, height: float, level: float) -> tuple[Array, Array]:
        """Lower bounds on Re psi and upper bounds on |psi| over the panels [LS-4]."""
        if (height, level) not in self._windows:
            self._windows[height, level] = self._window_bounds(height, level)
        return self._windows[height, level]

    def _window_bounds(self, height: float, level: float) -> tuple[Array, Array]:
        count = len(self.t) + 1
        if level == math.inf:
            return np.zeros(count), np.zeros(count)
        if level == -math.inf:
            return np.full(count, math.inf), np.zeros(count)
        turn, m = self.loss.farthest * height, self.sharpness
        growth = math.exp(turn * turn / (2 * SIGMA * SIGMA))
        x = np.minimum(self.t - level, FARTHEST_X)
        x0, x1 = x[:-1], x[1:]
        value = np.real(self._psi(x + 1j * turn))
        mass = ndtr(x1 / SIGMA)
        size = growth * np.exp(m * x1) * mass
        bell = np.exp(-0.5 * (np.minimum(x1, 0.0) / SIGMA) ** 2) / (SIGMA * math.sqrt(math.tau))
        steep = growth * np.exp(m * x1) * (m * mass + bell)
        least = np.minimum(value[:-1], value[1:]) - 0.5 * (x1 - x0) * steep
        right = np.exp(m * x0) * (math.cos(m * turn) - growth * ndtr(-x0 / SIGMA))
        least = np.where(right > 0, np.maximum(least, right), least) - PSI_UNITS * size
        first = growth * math.exp(m * x[0]) * float(ndtr(x[0] / SIGMA))
        rest = float(right[-1]) if right[-1] > 0 else -GROWTH
        return np.concatenate([[-first], least, [rest]]), np.concatenate([[first], size, [1e300]])


def log_sum(terms: Array) -> Array:
    """The logarithm of the sum over the last axis of e^terms."""
    top = np.max(terms, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
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
