"""Define losses of mechanisms of bounded range: L in [t - epsilon, t] for some t in [0, epsilon].

The exponential mechanism is an example. For a given t, the worst pair has the two losses t and t -
epsilon. The largest delta over all t,

    delta(s) = (1 - e^{(s - epsilon)/2})^2 / (1 - e^-epsilon),    -epsilon <= s <= epsilon,

is attained at t = (s + epsilon)/2. It is the profile of one pair (the envelope): two logistic
distributions whose centers are epsilon scales apart, with power(level) = level / (level +
e^-epsilon (1 - level)). The envelope dominates the pair of every t. Therefore, its bounds compose,
even if each t depends on earlier outputs. But no mechanism has this delta at every s, so for
several releases the envelope is safe, not exact. Each order's divergence has its own worst t, and
these divergences add up exactly.

Source: Dong, Durfee and Rogers 2020; Cesar and Rogers 2021 (rho); [BR-1] to [BR-5], [ZC-7].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.bracket import Parts
from neyman.curves.losses.bracket import sides as bracket_sides
from neyman.curves.losses.change_of_measure import Base, Stretch, law_under_q
from neyman.curves.losses.finite import FiniteLoss, response_loss, response_mu
from neyman.curves.losses.loss import NODE_WEIGHTS, NODES, Loss, Part
from neyman.curves.losses.zcdp_parameters import bounded_range_rho, envelope_rho
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p
from neyman.numerics.decay import by_moments
from neyman.numerics.discretization import Discretization
from neyman.numerics.rounding import above

# Number of steps of epsilon: each two-point mechanism's t is a multiple of a step.
EPSILON_SHARES = 1 << 10
MIDDLE_SHARE = EPSILON_SHARES // 2
NEARLY_ALL = [EPSILON_SHARES - (1 << m) for m in range(6)]


@dataclass(frozen=True)
class EnvelopeLoss(Loss):
    """Represent the loss of density e^{(l - epsilon)/2} / (2 - 2 e^-epsilon), |l| <= epsilon.

    Args:
        exact_epsilon: epsilon, above 0.
    """

    exact_epsilon: Fraction

    @cached_property
    def epsilon(self) -> float:
        """Return epsilon as a float."""
        return float(self.exact_epsilon)

    @property
    def supremum(self) -> Fraction:
        return self.exact_epsilon

    @property
    def rho(self) -> float:
        """Return epsilon coth(epsilon / 2) - 2, the KL divergence [BR-4]."""
        return above(envelope_rho(self.exact_epsilon))

    @property
    def mu(self) -> float:
        """Return mu of the Gaussian curve G_mu that touches this curve at its fixed point [BR-2].

        The odds at the fixed point are e^{-epsilon/2}.
        """
        return response_mu(self.epsilon / 2)

    def reverse(self) -> EnvelopeLoss:
        return self

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) = S(epsilon (z + 1/2)) - S(epsilon / 2), S(x) = log(sinh x / x)."""
        a = self.epsilon
        return _log_sinhc(a * (z + 0.5)) - _log_sinhc(np.array([a / 2]))

    def mgf_rounding(self, z: Array) -> Array:
        # A few units of the exponent, or of its square if it is small.
        a = self.epsilon
        size = np.abs(z + 0.5) * a
        # slack: k_of_the_envelope_of_a_bounded_range
        return 16 * UNIT * np.where(size < 1, size**2 + a * a, 4 + size + a)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        a = self.epsilon
        first, second = _slopes(a * (tilts + 0.5))
        return self.log_mgf(tilts), a * first, a * a * second

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # |phi(u)| <= |w| coth(epsilon |w|) / |w + i u|, w = tilt + 1/2 [BR-5], by |sinh| <= cosh.
        # Near 0, E(L - L')^4 <= (2 epsilon)^2 2 Var(L).
        a, w = self.epsilon, abs(tilt + 0.5)
        far = (w / math.tanh(a * w) if a * w > 1e-8 else 1 / a) / np.hypot(w, edges)
        variance = float(self.moments(np.array([tilt]))[2][0])
        near = by_moments(variance * (1 - 1e-6), 8 * a * a * variance, edges)
        return np.minimum(near, np.log(np.minimum(far * (1 + 1e-12), 1.0)))

    def dots(self, tilt: float, step: float) -> Discretization:
        # Quadrature nodes between the multiples of ``step``.
        a = self.epsilon
        scale = float(self.log_mgf(np.array([tilt]))[0])
        inner = step * np.arange(math.floor(-a / step) + 1, math.ceil(a / step))
        edges = np.concatenate([[-a], inner[(inner > -a) & (inner < a)], [a]])
        fine = max(1, math.ceil((abs(tilt) + 1) * float(np.max(np.diff(edges)))))
        width = np.repeat(np.diff(edges) / fine, fine)
        start = (edges[:-1, None] + np.diff(edges)[:, None] / fine * np.arange(fine)).ravel()
        loss = (start[:, None] + width[:, None] * NODES).ravel()
        share = (width[:, None] * NODE_WEIGHTS).ravel()
        log_total = math.log(2) + math.log(-math.expm1(-a))
        weight = np.exp((tilt + 0.5) * loss - a / 2 - log_total - scale) * share
        # slack: nodes_of_the_envelope_of_a_bounded_range
        relative = 4 * UNIT * (abs(scale) + (abs(tilt) + 1) * a + 16) + 1e-15
        return Discretization(loss, weight, tilt, scale, 0.0, relative)


@law_under_q.register
def _(inner: EnvelopeLoss, size: float) -> Base:
    """Return the law under Q: the density e^{-(l + a)/2} / (2 - 2 e^-a) on |l| <= a = epsilon."""
    a = inner.epsilon
    log_total = math.log(2) + math.log(-math.expm1(-a))
    stretch = Stretch(
        -a,
        a,
        1.0,
        0.0,
        1.0,
        lambda t: -(t + a) / 2 - log_total,
        lambda t, near: np.full_like(t, 0.5),
        math.tanh(a / 4),
    )
    return Base(np.zeros(0), np.zeros(0), (stretch,))


@dataclass(frozen=True)
class BoundedRangeLoss(Part):
    """Represent the losses of all mechanisms of range epsilon: a set of pairs.

    For real z, K(z) is that of the worst pair at z. The K of several releases add up exactly.

    Args:
        exact_epsilon: the range epsilon, above 0.
    """

    exact_epsilon: Fraction

    @property
    def upper(self) -> EnvelopeLoss:
        """Return the pair that dominates all pairs [BR-1]."""
        return EnvelopeLoss(self.exact_epsilon)

    def pair(self, share: int) -> FiniteLoss:
        """Return the two-point mechanism whose largest loss t is ``share`` / 1024 of epsilon."""
        if share == MIDDLE_SHARE:
            return response_loss(self.exact_epsilon / 2)
        a = float(self.exact_epsilon)
        t = a * share / EPSILON_SHARES
        log_total = math.log(-math.expm1(-a))
        low = t - a + math.log(-math.expm1(-t)) - log_total
        high = math.log(-math.expm1(t - a)) - log_total
        return FiniteLoss(
            self.exact_epsilon / EPSILON_SHARES, (share - EPSILON_SHARES, share), (low, high)
        )

    @property
    def supremum(self) -> Fraction:
        """Return epsilon, the largest t."""
        return self.exact_epsilon

    @property
    def rho(self) -> float:
        """Return the zCDP parameter [ZC-7], which is the worst KL divergence.

        It is log(sinh(a) / a) + a coth(a) - 1 with a = epsilon / 2.
        """
        return above(bounded_range_rho(self.exact_epsilon))

    @property
    def mu(self) -> float:
        """Return mu of the envelope, which equals mu of randomized response at epsilon / 2."""
        return self.upper.mu

    def reverse(self) -> BoundedRangeLoss:
        """Return this loss itself, because it represents both orders of each pair.

        If L is in [t - epsilon, t], then -L is in [-t, epsilon - t], an interval of equal width.
        """
        return self

    def log_mgf(self, z: Array) -> Array:
        """Return the worst K(z) for real z, over all t [BR-3].

        It is (z + 1) S(a (z + 1)) - z S(a z) - S(a), with a = epsilon / 2 and S(x) = log(sinh x /
        x). The worst K is the largest, except for z in (-1, 0), where e^K is a concave divergence:
        there it is the smallest.
        """
        if np.iscomplexobj(z):
            raise ValueError(
                "mechanism: a loss of bounded range is not one distribution; use its envelope"
            )
        a = float(self.exact_epsilon) / 2
        x = np.maximum(z, -1 - z)  # K(z) = K(-1 - z)
        own = np.array([a])
        near = (x + 1) * _log_sinhc(a * (x + 1)) - x * _log_sinhc(a * x) - _log_sinhc(own)
        # With S(x) = x - log 2x + T(x) the large terms cancel in the formula.
        far = np.maximum(x, 1.0)
        tails = (far + 1) * _tail(a * (far + 1)) - far * _tail(a * far) - _tail(own)
        beyond = 2 * a * far - np.log1p(far) - far * np.log1p(1 / far) + tails
        return np.where(_is_near(a, x), near, beyond)

    def mgf_rounding(self, z: Array) -> Array:
        a = float(self.exact_epsilon) / 2
        x = np.maximum(z, -1 - z)
        y = a * (x + 1)
        near = (x + 1) * np.where(y < 1, y * y, 1 + y) + min(a * a, 1 + a)
        place = a * np.maximum(x, 1.0)
        tails = (x + 1) * np.abs(_tail(place)) * (2 + 2 * place) + np.abs(_tail(np.array([a])))
        # same: np.maximum -> np.minimum: Covered by the other terms: |T(a x)| is at least e^(-2 a
        # x), and 2 a x + 2 x e^(-2 a x) is above log(4 + x).
        far = 2 * place + np.log(4 + np.maximum(x, 1.0)) + tails
        return 16 * UNIT * np.where(_is_near(a, x), near, far)  # slack: k_of_a_bounded_range

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        a = float(self.exact_epsilon) / 2

        def slopes(x: Array) -> tuple[Array, Array]:
            """Return the first two derivatives of x S(a x)."""
            first, second = _slopes(a * x)
            return _log_sinhc(a * x) + a * x * first, 2 * a * first + a * a * x * second

        (mean, variance), (less, fewer) = slopes(tilts + 1), slopes(tilts)
        return self.log_mgf(tilts), mean - less, np.maximum(variance - fewer, 0.0)


def sides(parts: Parts) -> tuple[Parts, Parts]:
    """Return lower and upper versions of the parts.

    A bracket becomes its lower or upper loss, a loss of bounded range a pair or its envelope.
    """
    low, high = bracket_sides(parts)
    return (
        tuple((x.pair(MIDDLE_SHARE) if isinstance(x, BoundedRangeLoss) else x, n) for x, n in low),
        tuple((x.upper if isinstance(x, BoundedRangeLoss) else x, n) for x, n in high),
    )


def _log_sinhc(x: Array) -> Array:
    """Return S(x) = log(sinh x / x), to relative accuracy near 0; even, real or complex."""
    x = np.where(np.real(x) < 0, -x, x)
    small = np.abs(x) < 1
    y = np.where(small, x, 0.0) ** 2
    series = np.ones_like(y)
    for k in (210, 156, 110, 72, 42, 20):
        series = 1 + y / k * series
    safe = np.where(small, 1.0, x)
    return np.where(small, log1p(y / 6 * series), safe + np.log(-np.expm1(-2 * safe) / (2 * safe)))


def _slopes(x: Array) -> tuple[Array, Array]:
    """Return S' = coth x - 1/x and S'' = 1/x^2 - 1/sinh^2 x, for S(x) = log(sinh x / x)."""
    small = np.abs(x) < 0.1
    y = np.where(small, x, 0.0)
    safe = np.clip(np.where(small, 1.0, x), -300.0, 300.0)
    first = np.where(small, y / 3 - y**3 / 45, 1 / np.tanh(safe) - 1 / np.where(small, 1.0, x))
    second = 1 / np.where(small, 1.0, x) ** 2 - 1 / np.sinh(safe) ** 2
    return first, np.where(small, 1 / 3 - y**2 / 15, second)


def _tail(x: Array) -> Array:
    """Return log(1 - e^{-2x}), x > 0, to relative accuracy."""
    far = np.maximum(x, 0.35)
    return np.where(
        x < 0.35, np.log(-np.expm1(-2 * np.minimum(x, 0.35))), np.log1p(-np.exp(-2 * far))
    )


def _is_near(a: float, x: Array) -> NDArray[np.bool_]:
    """Return True where the direct formula gives K(x) without cancellation, for a = epsilon / 2."""
    return (x <= 1) | (a * (x + 1) < 1)
