"""Compute integrands on a grid of outcomes y of one Gaussian step on a sample, for each Im y.

A window keeps the losses of a step up to about l: a factor s_l(y) = exp(-psi(t - t_l)), with psi(x)
= e^{m x} Phi(m x / 3), t = mu y - mu^2 / 2, and t_l the t at which log R = l. R is the likelihood
ratio. The window is analytic and rises with l. Below l, 1 - s_l falls faster than any power of the
loss [LS-1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erfc, log_ndtr, ndtr

from neyman.curves.losses.likelihood_ratio import LikelihoodRatioLoss
from neyman.curves.losses.loss import Order
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p
from neyman.numerics.operations import CALL, charge


@dataclass(frozen=True)
class Limits:
    """Limits on the strip around a path of y, and on its nodes."""

    node_operations: float = 150.0  # operations per node of an array
    # Largest height of the strip times m and mu: it bounds Re psi from below.
    strip_angle: float = 1.2
    strip_height: float = 4.0  # largest height of the strip
    error_efolds: float = 45.0  # a sum over y errs by about e^-45
    psi_reach: float = 72.0  # m x at which e^-psi underflows
    psi_error: float = 1e-12  # relative error of psi; the complex erf errs by 1e-13


LIMITS = Limits()

PAD_DEVIATIONS = 12.0  # beyond it, the normal density is below e^-72


class StepGrid:
    """Hold a grid of outcomes y for one loss, and stored arrays for each height Im y.

    All levels of a loss share the grid, so each array is computed once.

    Args:
        loss: the loss log R of the step, or log R if the step has the loss log R(y) - log R(-y).
        order: "one" for one order of the pair; "opposite" if the other distribution is R(-y) times
            the normal distribution, as under replace-one; "symmetric" for the hull of both orders,
            with the losses log R and -log R where log R > 0 [LS-9].
        sharpness: m, the rate at which a window falls; None for no windows.
        last_tilt: the largest tilt to support; used only if the integrand falls with y.
        coarse: distance of nodes, divided by that for certified sums.
        widest: the largest distance of nodes.
    """

    def __init__(
        self,
        loss: LikelihoodRatioLoss,
        order: Order,
        sharpness: float | None,
        last_tilt: float,
        coarse: float = 1.0,
        widest: float = math.inf,
    ) -> None:
        self.loss, self.order, self.sharpness = loss, order, sharpness
        # Standard deviation of the window's normal distribution, in units of 1 / m.
        self.sigma = 3.0 / sharpness if sharpness else math.inf
        self.farthest_x = LIMITS.psi_reach / sharpness if sharpness else math.inf
        mu = loss.farthest
        self.start, self.bend = -PAD_DEVIATIONS, 1.0
        if not self.rises:
            self.start = min(loss.range(loss.power(last_tilt))[0], -PAD_DEVIATIONS)
        bent_angle = 0.6  # less for a negative power of R, which grows with the height
        # Height times mu of a strip without windows, below a quarter turn [LS-4].
        turn = 1.5 if order == "one" and loss.removed else bent_angle
        height = min(
            (turn if sharpness is None else LIMITS.strip_angle / sharpness) / mu,
            LIMITS.strip_height,
        )
        # Height times kappa of a bent path's strip: size and angle rise [LS-9].
        bent_strip_angle = 0.9
        if order == "symmetric":
            height = min(height, bent_angle / mu, bent_strip_angle)
            self.bend = bent_strip_angle / height
            self.start = -(LIMITS.error_efolds + 5) / self.bend
        self.a = 0.5 * height
        h = coarse * math.tau * self.a / (LIMITS.error_efolds + 2 * self.a * self.a + 1)
        # Places are exact: multiples of a number with few bits.
        mantissa, exponent = math.frexp(min(h, widest))
        distance_bits = 24  # bits of the distance of nodes
        self.h = math.ldexp(
            math.floor(math.ldexp(mantissa, distance_bits)), exponent - distance_bits
        )
        self._first = math.floor(self.start / self.h)
        self.start = self._first * self.h
        self._count = 0
        self._arrays: dict[tuple[Any, ...], Any] = {}

    @property
    def rises(self) -> bool:
        """Return True if the integrand without its normal factor rises with y (no addition)."""
        return self.order != "one" or self.loss.removed

    @property
    def log_rest(self) -> float:
        """Return the log mass of the loss 0.

        For the symmetric order, it is (1 - p) erf(mu / sqrt 8).
        """
        if self.order != "symmetric":
            return -math.inf
        return self.loss.log_least + math.log(math.erf(self.loss.farthest / math.sqrt(8)))

    def reach(self, count: int) -> None:
        """Extend the grid to at least ``count`` nodes."""
        if count > self._count:
            self._count = max(count, self._count + self._count // 2)
            self._arrays.clear()

    def _stored_array(self, name: str, *key: float) -> Any:
        at = (name, *key)
        if at not in self._arrays:
            charge(CALL + LIMITS.node_operations * self._count)
            self._arrays[at] = getattr(self, "_" + name)(*key)
        return self._arrays[at]

    def x(self) -> Array:
        """Return the real parameter x of the path at each node."""
        return self._stored_array("x")

    def _x(self) -> Array:
        return self.h * (self._first + np.arange(self._count))

    def path(self, height: float) -> tuple[Array, Array, Array]:
        """Return y, t = mu y - mu^2 / 2, and log(dy / dx) at the nodes, for Im x = height.

        y = x, or y = mu / 2 + log(1 + e^{kappa x}) / kappa for the symmetric order, which starts at
        log R = 0. All are real at height 0.
        """
        return self._stored_array("path", height)

    def _path(self, height: float) -> tuple[Array, Array, Array]:
        mu, z = self.loss.farthest, self.x() + (1j * height if height else 0.0)
        if self.order != "symmetric":
            return z, mu * z - mu * mu / 2, np.zeros(len(z))
        away = _softplus(self.bend * z) / self.bend
        return mu / 2 + away, mu * away, -_softplus(-self.bend * z)

    def log_ratio(self, height: float) -> Array:
        """Return log R at the nodes of the path, for |mu height| < pi / 2."""
        return self._stored_array("log_ratio", height)

    def _log_ratio(self, height: float) -> Array:
        y, t, _ = self.path(height)
        return self.loss.log_ratio_on(y, t)

    def log_opposite(self, height: float) -> Array:
        """Return log R(-y) at the nodes for Im y = height: the conjugate of log R at -conj(y)."""
        return self._stored_array("log_opposite", height)

    def _log_opposite(self, height: float) -> Array:
        mirrored = -self.x() + (1j * height if height else 0.0)
        return np.conj(self.loss.log_ratio(mirrored))

    def waves(self, height: float) -> Array:
        """Return the loss at the nodes, up to its sign."""
        ratio = self.log_ratio(height)
        return ratio - self.log_opposite(height) if self.order == "opposite" else ratio

    def exponent(self, height: float) -> tuple[Array, Array]:
        """Return u and v, so that e^{u + c v} is the integrand at tilt c without its normal factor.

        In the symmetric order, they are for losses above 0.
        """
        ratio = self.log_ratio(height)
        if self.order == "opposite":
            return ratio, ratio - self.log_opposite(height)
        if self.loss.removed:
            return ratio, ratio
        return np.zeros(len(ratio)), -ratio

    def normal(self, height: float) -> Array:
        """Return the log of the integrand's normal factor times the weight of a node."""
        return self._stored_array("normal", height)

    def _normal(self, height: float) -> Array:
        y, _, log_jacobian = self.path(height)
        return -0.5 * y * y + log_jacobian + math.log(self.h / math.sqrt(math.tau))

    def normal_bounds(self, height: float) -> Array:
        """Bound the log of the normal factor on each panel (interval of nodes) except the last."""
        return self._stored_array("normal_bounds", height)

    def _normal_bounds(self, height: float) -> Array:
        y, _, log_jacobian = self.path(height)
        y, jacobian = np.real(y), np.real(log_jacobian)
        near = np.where((y[:-1] < 0) & (y[1:] > 0), 0.0, np.minimum(abs(y[:-1]), abs(y[1:])))
        inner = -0.5 * near * near + math.log(self.h / math.sqrt(math.tau)) + jacobian[1:]
        # On a bent path, the Jacobian left of the first node is at most e^{kappa x}.
        before = float(log_ndtr(y[0]))
        if self.order == "symmetric":
            before = self.bend * self.start - math.log(self.bend)
            before += -0.5 * float(y[0]) ** 2 - 0.5 * math.log(math.tau)
        return np.append(before, inner) + 0.5 * height * height

    def units(self, height: float) -> tuple[Array, Array, Array]:
        """Return three parts of the relative error of a term at the tilt c, in rounding units.

        The second part is for the factor e^u of `exponent`. The third is to be multiplied by c.
        """
        return self._stored_array("units", height)

    def _units(self, height: float) -> tuple[Array, Array, Array]:
        loss, mu = self.loss, self.loss.farthest
        y, t, log_jacobian = self.path(height)
        real = np.real(y)
        # |R'| / |R| is at most the slope on the real line over cos(mu height).
        steep = mu * math.cos(mu * height)
        size = np.abs(t) + mu**2 + 1
        moved = self.reaches(height) + loss.slope(real) / steep * size
        base = 8 * (np.abs(y) ** 2 + np.abs(log_jacobian)) + 64
        first = 16 * moved if self.rises else np.zeros(len(moved))
        if self.order != "opposite":
            return base, first, 16 * moved
        away = np.abs(self.log_opposite(height)) + loss.slope(-real) / steep * size
        return base, first, 16 * (moved + away)

    def reaches(self, height: float) -> Array:
        """Return the sizes of log R and log R(-y), if used, plus their errors in rounding units."""
        return self._stored_array("reaches", height)

    def _reaches(self, height: float) -> Array:
        reach = np.abs(self.log_ratio(height))
        if self.order == "opposite":
            reach = reach + np.abs(self.log_opposite(height))
        return reach + self.loss.ratio_units * (3 * reach + self.loss.ratio_floor)

    def psi(self, level: float, height: float, count: int) -> Array:
        """Return psi of the window at a level (given as t_l), at the first ``count`` nodes."""
        at = ("psi", level, height)
        known = self._arrays.get(at)
        if known is None or len(known) < count:
            known = self._psi(self.path(height)[1][:count] - level)
            self._arrays[at] = known
        return known[:count]

    def _psi(self, x: Array) -> Array:
        """Return e^{m x} Phi(x / sigma), also for complex x; constant if e^-psi underflows."""
        m, real = self.sharpness or 0.0, np.minimum(np.real(x), self.farthest_x)
        if not np.iscomplexobj(x):
            return np.exp(m * real) * ndtr(real / self.sigma)
        x = real + 1j * np.imag(x)
        value = np.exp(m * x)
        # Standard deviations beyond which |Phi - 1| < LIMITS.psi_error in the strip [LS-1].
        last = int(np.searchsorted(real, 8.0 * self.sigma))
        value[:last] *= 0.5 * erfc(-x[:last] / (self.sigma * math.sqrt(2)))
        return value

    def psi_units(self, *levels: float) -> float:
        """Bound the relative error of psi: from functions, and m times that of t and levels."""
        # t is a product and a difference: 2 units of its size, of the level, and of mu^2. If the
        # distance of t and the level is larger than these, m times it is at most 745, or psi is 0.
        m, mu = self.sharpness or 0.0, self.loss.farthest
        far = max((abs(v) for v in levels if math.isfinite(v)), default=0.0)
        return LIMITS.psi_error + 8 * UNIT * m * (far + mu * mu + 1)  # slack: counted

    def window_bounds(self, level: float, height: float, count: int) -> tuple[Array, Array]:
        """Bound Re psi from below and |psi| from above, on all panels except the last [LS-4]."""
        at = ("window_bounds", level, height)
        known = self._arrays.get(at)
        if known is None or len(known[0]) < count:
            known = self._window_bounds(level, height, count)
            self._arrays[at] = known
        return known[0][:count], known[1][:count]

    def _window_bounds(self, level: float, height: float, count: int) -> tuple[Array, Array]:
        turn, m, sigma = self.loss.farthest * height, self.sharpness or 0.0, self.sigma
        growth = math.exp(turn * turn / (2 * sigma * sigma))
        _, t, log_jacobian = self.path(height)
        x = np.minimum(np.real(t[:count]) - level, self.farthest_x)
        x0, x1 = x[:-1], x[1:]
        value = np.real(self.psi(level, height, count))
        power = np.exp(m * x)
        mass = ndtr(x / sigma)
        size = growth * power[1:] * mass[1:]
        bell = np.exp(-0.5 * (np.minimum(x1, 0.0) / sigma) ** 2) / (sigma * math.sqrt(math.tau))
        steep = growth * power[1:] * (m * mass[1:] + bell)
        length = self.loss.farthest * self.h * np.exp(np.real(log_jacobian[1:count])) * (1 + 1e-12)
        least: Array = np.minimum(value[:-1], value[1:]) - 0.5 * length * steep
        right = power[:-1] * (math.cos(m * turn) - growth * ndtr(-x0 / sigma))
        least = np.where(right > 0, np.maximum(least, right), least)
        least -= self.psi_units(level) * size
        first = growth * float(power[0]) * float(mass[0])
        return np.append(-first, least), np.append(first, size)


def _softplus(z: Array) -> Array:
    """Return log(1 + e^z), also for complex z."""
    left = np.real(z) < 0
    e = np.exp(np.where(left, z, -z))
    return np.where(left, 0.0, z) + log1p(e)
