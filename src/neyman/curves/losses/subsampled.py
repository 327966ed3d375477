"""Define losses of releases from a sample: a Poisson sample, or a sample of fixed size.

Each record enters a Poisson sample with probability q. For a neighbor without the record, the pair
is

    remove: P = (1 - q) N(0, 1) + q N(mu, 1),  Q = N(0, 1),    L = log R(y)
    add:    P = N(0, 1),  Q = (1 - q) N(0, 1) + q N(mu, 1),    L = -log R(y)

with R(y) = 1 + q (e^{mu y - mu^2/2} - 1) (Zhu, Dong and Wang 2022, theorem 11). Both follow from

    M(w) = E_{N(0,1)}[R^w],    K_remove(z) = log M(z + 1),    K_add(z) = log M(-z),

which are sums over nodes of y (`likelihood_ratio`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from neyman.curves.losses.change_of_measure import Base, Stretch, law_under_q
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.likelihood_ratio import PAD_DEVIATIONS, LikelihoodRatioLoss
from neyman.curves.losses.loss import Loss, NormalRatio, Order
from neyman.curves.losses.piecewise_analytic import (
    Piece,
    PiecewiseAnalyticLoss,
    PiecewiseDistribution,
    UprightEnd,
    upright_ends,
)
from neyman.numerics.arrays import Array, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.characteristic_function import log1p
from neyman.numerics.roots import bisect, zero


def check_distance(distance: float) -> None:
    """Refuse a ``distance`` (sensitivity / sigma) above 2000: its sums would be too long."""
    if distance > 2000:
        raise ValueError(
            f"sigma is {distance:.3g} times smaller than the sensitivity: so little noise hides "
            "nothing under sampling; describe it as NonPrivate(rate=...), or add noise"
        )


@dataclass(frozen=True)
class SubsampledGaussianLoss(LikelihoodRatioLoss):
    """Represent the loss of a Poisson-subsampled Gaussian, in one of the two orders.

    Args:
        distance: mu, the distance of the two normals in standard deviations, above 0.
        rate: q, in (0, 1).
        removed: True for P = mixture and Q = normal, False for the reverse.
    """

    distance: float
    rate: float
    removed: bool

    def __post_init__(self) -> None:
        check_distance(self.distance)
        # The error of log R is only its rounding.
        self._keep(self.distance, 0.0, math.log1p(-self.rate))

    def places(self, tilt: float, height: float) -> float:
        """Return the number of nodes for K(tilt + i height), which grows with ``height``."""
        w = self.power(tilt)
        low, high = self.range(w)
        return (high - low) / self.spacing(height, w)

    @classmethod
    def sum_of_places(
        cls, losses: Sequence[SubsampledGaussianLoss], tilt: float, height: float
    ) -> float:
        """Estimate the sum of `places` over several losses. For 8 or more, interpolate."""
        if len(losses) < 8:
            return super().sum_of_places(losses, tilt, height)
        ordered = sorted(losses, key=lambda loss: loss.distance)
        asked = np.linspace(0, len(ordered) - 1, 6).astype(int)
        places = [ordered[int(k)].places(tilt, height) for k in asked]
        return float(np.interp(np.arange(len(ordered)), asked, places).sum())

    @property
    def supremum(self) -> float:
        """Return inf if P is the mixture. If P is the normal, return -log(1 - q), rounded up."""
        # slack: the_largest_loss_of_a_sampled_step
        return math.inf if self.removed else -math.log1p(-self.rate) * (1 + 8 * UNIT)

    @property
    def total_variation(self) -> float:
        """Return q times the total variation between the two normals."""
        return self.rate * math.erf(self.distance / math.sqrt(8)) * (1 + 1e-12)

    @property
    def sampled(self) -> bool:
        return True

    def reverse(self) -> SubsampledGaussianLoss:
        return SubsampledGaussianLoss(self.distance, self.rate, not self.removed)

    def log_ratio(self, y: Array) -> Array:
        """Return log R(y), accurate relative to its size, also where it is near 0."""
        return _log_ratio(self.rate, self.distance * y - self.distance**2 / 2)

    @classmethod
    def ratios(cls, losses: Sequence[LikelihoodRatioLoss], y: Array) -> Array:
        """Return log R(y) of several losses, shape (losses, n)."""
        if len(losses) == 1:
            return losses[0].log_ratio(y)[None]
        each = [(x.distance, x.rate) for x in losses if isinstance(x, SubsampledGaussianLoss)]
        mu, rate = np.array(each).T[:, :, None]
        return _log_ratio(rate, mu * y - mu * mu / 2)

    def log_ratio_on(self, y: Array, t: Array) -> Array:
        """Return log(1 + q (e^t - 1)), to relative accuracy near 0."""
        return _log_ratio(self.rate, t)

    @property
    def mean_shift(self) -> float:
        """Return q min(mu, 1)."""
        return self.rate * min(self.distance, 1.0)

    def slope(self, y: Array) -> Array:
        """Return the derivative of log R, which increases with y."""
        return self.distance * -np.expm1(self.log_least - self.log_ratio(y))

    def range(self, w: float) -> tuple[float, float]:
        """Return the ends of the region in which e^{-y^2/2} R^w is not negligible.

        The derivative of its logarithm is s w mu - y, with s in [0, 1].
        """
        peak = w * self.distance
        if w < 0:
            # One peak, at -y = |w| mu s, log-concave around it. The region includes the normal
            # distribution's unless the peak is far.
            peak = self._lower_peak(w)
            return min(
                peak, 0.0
            ) - PAD_DEVIATIONS, PAD_DEVIATIONS if peak > -PAD_DEVIATIONS else peak + PAD_DEVIATIONS
        low, high = -PAD_DEVIATIONS, peak + PAD_DEVIATIONS
        if high - low > 6 * PAD_DEVIATIONS:  # perhaps only one of the two humps counts
            first, last = self._hump(w, 0.0), self._hump(w, peak)
            if first is not None and last is not None:
                g = [self._exponent(w, y) for y in (first, last)]
                floor = max(g) - PAD_DEVIATIONS**2 / 2
                if last - first < 1:  # one hump, from which the terms fall on both sides
                    if self._exponent(w, low) < floor:
                        low = self._falls(w, last, low, floor)
                    floor -= math.log(high - low)
                    if self._exponent(w, high) < floor:
                        high = self._falls(w, last, high, floor)
                elif g[0] < floor:
                    low = self._falls(w, last, first, floor)
                elif g[1] < floor:
                    high = self._falls(w, first, last, floor)
        return float(low), float(high)

    def _exponent(self, w: float, y: float) -> float:
        t = self.distance * y - self.distance**2 / 2
        if t < 30:
            ratio = math.log1p(self.rate * math.expm1(t))
        else:
            ratio = t + math.log(self.rate) + math.log1p(math.exp(-t) * (1 - self.rate) / self.rate)
        return w * ratio - y * y / 2

    def _hump(self, w: float, y: float) -> float | None:
        """Return a peak of e^{-y^2/2} R^w, by iteration from y, or None if that is slow.

        It is a fixed point of y = w mu s(y), mu s(y) the derivative of log R.
        """
        for _ in range(200):
            t = min(self.distance * y - self.distance**2 / 2, 700.0)
            part = self.rate * math.exp(t)
            before, y = y, w * self.distance * part / (1 - self.rate + part)
            if abs(y - before) <= 1e-6 * (1 + y):
                return y
        return None

    def _falls(self, w: float, inside: float, outside: float, floor: float) -> float:
        """Return a y just outside the region where w log R(y) - y^2 / 2 exceeds ``floor``.

        The caller ensures that it exceeds ``floor`` at ``inside`` and not at ``outside``.
        """
        return bisect(
            lambda y: self._exponent(w, y) > floor, inside, outside, width=1.0, tolerance=1e-12
        )[1]

    def _lower_peak(self, w: float) -> float:
        """Return the peak of e^{-y^2/2} R^w for w < 0, or up to 0.02 less.

        It is the root of y = w mu s(y), where mu s(y) is the derivative of log R.
        """
        mu, least = self.distance, self.log_least
        odds = math.log(self.rate) - least

        def excess(y: float) -> float:
            t = mu * y - mu * mu / 2 + odds
            log_s = -math.log1p(math.exp(-t)) if t > -700 else t
            return log_s - math.log(y / (w * mu))

        if w * mu > -0.01 or excess(-0.01) <= 0:
            return max(w * mu, -0.01)
        # Below -(log |w mu| + 10) / mu - 10, s is also less than the root needs.
        low = max(w * mu, -(math.log(-w * mu) + 10) / mu - 10)
        return zero(excess, low, -0.01, 0.005) - 0.01

    def inverse(self, ratio: Array, low: float, high: float) -> Array:
        """Return the y with log R(y) = ``ratio``, clipped to [low, high].

        Values at or below log(1 - q) are left out.
        """
        ratio = ratio[ratio > self.log_least]
        near = np.expm1(np.minimum(ratio, 30.0)) + self.rate
        far = np.maximum(ratio, 30.0) + np.log1p(
            -(1 - self.rate) * np.exp(-np.maximum(ratio, 30.0))
        )
        good = (near > 0) | (ratio > 30)
        t = np.where(ratio < 30, np.log(np.where(near > 0, near, 1.0)), far)[good]
        t = t - math.log(self.rate)
        return np.clip(t / self.distance + self.distance / 2, low, high)


def _log_ratio(rate: Array | float, t: Array) -> Array:
    """Return log(1 + q (e^t - 1)), also for complex t, to relative accuracy near 0."""
    log_rate = np.log(rate)
    # Beyond this limit, q e^t is not small.
    near = real_part(t) < np.minimum(np.maximum(5 - log_rate, 30.0), 690.0)
    if np.logical_and.reduce(near, axis=None):
        return _log_mixture(rate, t)
    ratio = _log_mixture(rate, np.where(near, t, 0.0))
    rest = log1p(np.exp(-np.where(near, 30.0, t)) * (1 - rate) / rate)
    return np.where(near, ratio, t + log_rate + rest)


def _log_mixture(rate: Array | float, t: Array) -> Array:
    """Return log(1 - q + q e^t), to relative accuracy, with q = ``rate``.

    In log1p(q (e^t - 1)), e^t - 1 errs by 2 rounding units, the product by one, and the logarithm
    by 2. If the sum is above 1/2, the first three units count at most 1.5 times: 7 units in all.
    Below 1/2, they would count without bound. But then q > 1/2, so (1 - q) is exact and nothing
    cancels in 1 - q + q e^t: it errs by 4 units, and its logarithm, at least 0.69 in size, by 2: 8
    units.
    """
    ratio = log1p(rate * np.expm1(t))
    if not np.logical_or.reduce(np.greater(rate, 0.5), axis=None):
        return ratio
    total = 1 - rate + rate * np.exp(t)
    cancels = np.abs(total) < 0.5
    return np.where(cancels, np.log(np.where(cancels, total, 1.0)), ratio)


LOG_SLOPE_PAD = 20.0  # a log-concave density is cut off at the log slope of minus this


@dataclass(frozen=True)
class SubsampledLoss(PiecewiseAnalyticLoss):
    """Represent the loss of a Poisson-subsampled pair, in one of the two orders.

    Args:
        inner: the loss of (P, Q), Q without the record.
        rate: q, in (0, 1).
        removed: True for ((1 - q) Q + q P, Q), False for its reverse.
    """

    inner: Loss
    rate: float
    removed: bool

    @property
    def sampled(self) -> bool:
        return True

    @property
    def infinite(self) -> float:
        """Return q times the infinite mass of (P, Q), or 0 for the reverse: Q is in the mixture."""
        return self.rate * self.inner.infinite if self.removed else 0.0

    @property
    def supremum(self) -> float:
        """Return an upper bound on the largest loss, with g(l) = log(1 - q + q e^l).

        It is g at the largest inner loss, or -g at the least.
        """
        if self.removed:
            return _up(float(_g(np.array([_up(float(self.inner.supremum))]), self.rate)[0]))
        least = -math.inf if self._missing_mass else -_up(float(self.inner.reverse().supremum))
        return _up(-float(_g(np.array([least]), self.rate)[0]))

    @property
    def total_variation(self) -> float:
        return self.rate * max(self.inner.total_variation, self.inner.reverse().total_variation)

    @property
    def rho(self) -> float:
        """Return the rho without sampling, inf if it covers only a part of the outcomes.

        Seeing which pair was drawn would reveal more.
        """
        return math.inf if _fails(self.inner) else self.inner.rho

    @property
    def mu(self) -> float:
        return math.inf if _fails(self.inner) else self.inner.mu

    @property
    def _missing_mass(self) -> float:
        return self.inner.reverse().infinite

    def reverse(self) -> SubsampledLoss:
        return SubsampledLoss(self.inner, self.rate, not self.removed)

    def upright(self) -> tuple[UprightEnd, ...]:
        if not isinstance(self.inner, LaplaceLoss):
            return ()
        a, sign = self.inner.epsilon, 1 if self.removed else -1
        low, high = (sign * _g(np.array([-a, a]), self.rate)).tolist()
        return upright_ends((-a, a), (low, high), self.rate, 1 + self.removed, -a / 2)

    def law(self, size: float) -> PiecewiseDistribution:
        """Return the distribution of the loss: g(l) under the mixture, or -g(l) under Q.

        g(l) = log(1 - q + q e^l), for the inner loss l.
        """
        base, q = law_under_q(self.inner, size), self.rate
        loss, log_q = base.loss, base.log_q
        if self._missing_mass:
            loss = np.append(-np.inf, loss)
            log_q = np.append(math.log(self._missing_mass), log_q)
        value = _g(loss, q)
        pieces = tuple(_map_loss(s, q, self.removed, size, -math.inf) for s in base.stretches)
        lost = tuple(x for p in pieces for x in _ends(p, size))
        lost += _lost(base, q, self.removed, -math.inf)
        return PiecewiseDistribution(
            value if self.removed else -value,
            log_q + value if self.removed else log_q,
            pieces,
            lost,
            # slack: the_mass_of_the_largest_loss_that_is_sampled
            base.relative + _units(value if self.removed else value[:0]) * UNIT,
            not base.side,
            _mass_bounds(base, value if self.removed else 0 * value),
            _moves(loss, value, q),
        )


def _fails(inner: Loss) -> bool:
    """Return True if one distribution has outcomes that are impossible under the other.

    The inner rho and mu then cover only the other outcomes.
    """
    return inner.infinite > 0 or inner.reverse().infinite > 0


@dataclass(frozen=True)
class FixedSizeLoss(PiecewiseAnalyticLoss):
    """Represent the loss under samples of a fixed size: both orders combined, so its own reverse.

    Its trade-off curve is C_p(f), the convex hull of the curves of both orders.

    Args:
        inner: the loss of a pair that is its own reverse.
        share: p = size / population, in (0, 1).
    """

    inner: Loss
    share: float

    def __post_init__(self) -> None:
        if isinstance(self.inner, GaussianLoss):
            check_distance(self.inner.mu)

    @property
    def normal_ratio(self) -> NormalRatio | None:
        """Return the "symmetric" `NormalRatio` of a Poisson sample at rate ``share``.

        Return None if ``inner`` is not Gaussian.
        """
        return _ratio_of(self.inner, self.share, "symmetric")

    @property
    def infinite(self) -> float:
        return self.share * self.inner.infinite

    @property
    def supremum(self) -> float:
        return _up(float(_g(np.array([_up(float(self.inner.supremum))]), self.share)[0]))

    @property
    def total_variation(self) -> float:
        return self.share * self.inner.total_variation

    @property
    def rho(self) -> float:
        """Return the rho without sampling, a bound because the curve C_p(f) is at least f."""
        return math.inf if _fails(self.inner) else self.inner.rho

    @property
    def mu(self) -> float:
        return math.inf if _fails(self.inner) else self.inner.mu

    def reverse(self) -> FixedSizeLoss:
        """Return this loss: its trade-off curve C_p(f) is symmetric."""
        return self

    def upright(self) -> tuple[UprightEnd, ...]:
        if not isinstance(self.inner, LaplaceLoss):
            return ()
        a, p = self.inner.epsilon, self.share
        top = float(_g(np.array([a]), p)[0])
        up = upright_ends((0.0, a), (0.0, top), p, 2, -a / 2)
        return up + upright_ends((0.0, a), (0.0, -top), p, 1, -a / 2)

    def law(self, size: float) -> PiecewiseDistribution:
        """Return the distribution of the loss.

        For inner losses l > 0, it is g(l) = log(1 - p + p e^l) under the mixture and -g(l) under Q.
        The rest is at 0.
        """
        base, p = law_under_q(self.inner, size), self.share
        positive = base.loss > 0
        place, log_q = base.loss[positive], base.log_q[positive]
        value, mass = _g(place, p), np.exp(log_q)
        both = [(s, up) for s in base.stretches for up in (True, False)]
        pieces = tuple(_map_loss(s, p, up, size, 0.0) for s, up in both)
        if base.side:
            # The rest brings the sum to 1, or slightly more or less on the safe side.
            rest = 1 - float((mass + np.exp(log_q + value)).sum()) - self.infinite
            # Sums err by a unit per term. The masses count their own error: at least half of them
            # is above 0, and at 0 an error counts no more than above.
            rest += base.side * (64 + len(mass)) * UNIT  # slack: counted
        else:
            # P+ - Q+ plus the mass at 0, all positive: P- = Q+, by symmetry.
            near = mass * np.expm1(np.minimum(place, 1.0))
            gain = float(np.where(place < 1, near, np.exp(log_q + place) - mass).sum())
            gain += math.fsum(s.gain for s in base.stretches)
            rest = (1 - p) * (gain + self.inner.infinite)
            rest += float(np.exp(base.log_q[base.loss == 0]).sum())
        rest = max(rest, 1e-300)
        lost = tuple(x for piece in pieces for x in _ends(piece, size))
        lost += _lost(base, p, True, 0.0) + _lost(base, p, False, 0.0)
        return PiecewiseDistribution(
            np.concatenate([-value, [0.0], value]),
            np.concatenate([log_q, [math.log(rest)], log_q + value]),
            pieces,
            lost,
            # The rest at 0 is a sum of all masses.
            base.relative + (_units(value) + len(value)) * UNIT,  # slack: counted
            not base.side,
            self._units(base, positive, value),
            np.concatenate([_moves(place, value, p), [0.0], _moves(place, value, p)]),
        )

    def _units(self, base: Base, positive: Array, value: Array) -> Array | None:
        each = _mass_bounds(
            replace(base, units=None if base.units is None else base.units[positive]), value
        )
        if each is None:
            return None
        middle = base.relative + (_units(value) + len(value)) * UNIT  # slack: open
        return np.concatenate([each, [middle], each])


@dataclass(frozen=True)
class ReplaceOneSubsampledLoss(PiecewiseAnalyticLoss):
    """Represent the loss of a replaced record under Poisson sampling.

    P and Q are mixtures of the noise (weight 1 - q) and of noise moved to opposite sides.

    Args:
        inner: the loss of the noise moved to one side, against the noise: Gaussian or Laplace.
        rate: q, in (0, 1).
    """

    inner: GaussianLoss | LaplaceLoss
    rate: float

    @property
    def sampled(self) -> bool:
        return True

    @property
    def normal_ratio(self) -> NormalRatio | None:
        return _ratio_of(self.inner, self.rate, "opposite")

    @property
    def infinite(self) -> float:
        return 0.0

    @property
    def supremum(self) -> float:
        """Return inf for Gaussian noise, and g(a) - g(-a) for Laplace noise with largest loss a.

        g(l) = log(1 - q + q e^l).
        """
        a = _up(float(self.inner.supremum))
        if math.isinf(a):
            return math.inf
        return _up(float(np.diff(_g(np.array([-a, a]), self.rate))[0]), 16)

    @property
    def total_variation(self) -> float:
        """Return q times the total variation between the noises moved to opposite sides."""
        if isinstance(self.inner, GaussianLoss):
            return self.rate * math.erf(self.inner.mu / math.sqrt(2)) * (1 + 1e-12)
        return self.rate * -math.expm1(-self.inner.epsilon) * (1 + 1e-12)

    @property
    def rho(self) -> float:
        """Return 4 times the inner rho, which bounds the rho of noise moved by twice the shift."""
        return 4 * self.inner.rho

    @property
    def mu(self) -> float:
        """Return 2 times the inner mu: the pair post-processes noise moved by twice the shift."""
        return 2 * self.inner.mu

    def reverse(self) -> ReplaceOneSubsampledLoss:
        return self

    def upright(self) -> tuple[UprightEnd, ...]:
        if not isinstance(self.inner, LaplaceLoss):
            return ()
        a, q = self.inner.epsilon, self.rate
        far, near = _g(np.array([-a, a]), q).tolist()
        # Right of the middle, e^g is e^{far} times that of the mixture, left of it e^{far} itself.
        up = upright_ends((-a, a), (0.0, near - far), q, 2, -a / 2)
        return up + upright_ends((-a, a), (0.0, far - near), q, 1, far - a / 2)

    def law(self, size: float) -> PiecewiseDistribution:
        """Return the distribution of the loss, by the outcome t. The unmoved noise has center 0."""
        if isinstance(self.inner, GaussianLoss):
            piece = _opposite_gaussians(self.inner.mu, self.rate, size)
            return PiecewiseDistribution(np.zeros(0), np.zeros(0), (piece,), _ends(piece, size))
        a, q = self.inner.epsilon, self.rate
        ends = np.array([-a, a])
        low, high = _g(ends, q)
        log_mass = -a - math.log(2)
        # g(a) and -g(-a) are positive, so their sum errs by no more. `_moves` covers its rounding.
        moved = float(_moves(ends, np.array([low, high]), q).max())
        return PiecewiseDistribution(
            np.array([low - high, high - low]),
            log_mass + np.array([low, high]),
            _opposite_laplaces(a, q),
            (),
            # slack: the_mass_of_the_largest_loss_that_is_sampled
            _units(np.array([low, high])) * UNIT,
            moves=np.full(2, moved),
        )


def _ratio_of(inner: Loss, rate: float, order: Order) -> NormalRatio | None:
    if not isinstance(inner, GaussianLoss):
        return None
    return NormalRatio(SubsampledGaussianLoss(inner.mu, rate, True), order)


def _g(l: Array, q: float) -> Array:  # noqa: E741 - l is the loss, as in the docstrings
    """Return log(1 - q + q e^l), to relative accuracy near 0; log(1 - q) at -inf."""
    return _log_ratio(q, l)


def _units(value: Array) -> float:
    """Return the relative error of a mass under the mixture, in rounding units.

    It comes from g (``value``) and its sum with log Q.
    """
    return 16 * float(np.max(np.abs(value), where=np.isfinite(value), initial=1.0))


def _mass_bounds(base: Base, value: Array) -> Array | None:
    """Return a bound on each mass's relative error, or None if ``base`` has no such bounds."""
    if base.units is None or len(base.units) != len(value):
        return None
    # slack: counted
    return base.units + 16 * UNIT * np.where(np.isfinite(value), np.abs(value), 0.0)


def _moves(l: Array, value: Array, q: float) -> Array:  # noqa: E741
    """Return the relative error of ``value`` = g(l): l errs by 4 relative units, and g by 8."""
    finite = np.isfinite(l)
    moved = np.where(finite, np.abs(l), 0.0) * _slope(np.where(finite, l, 0.0), q)
    return UNIT * (8 + 4 * moved / np.maximum(np.abs(value), 1e-300))  # slack: counted


def _slope(l: Array, q: float) -> Array:  # noqa: E741
    """Return the derivative of g at l, in (0, 1)."""
    return 1 / (1 + np.exp(np.minimum(math.log1p(-q) - math.log(q) - l, 700.0)))


def _speed(l: Array, q: float, near: Array | float) -> Array:  # noqa: E741
    """Bound |g'| within ``near`` <= 1, in the complex plane, of real points within 1/4 of l.

    It is at most g'(Re l) / cos(Im l / 2), and log g' has a slope below 1.
    """
    return np.minimum(1.0, np.exp(near + 0.25) * _slope(l, q)) / np.cos(np.multiply(near, 0.5))


def _inverse(value: Array, q: float) -> Array:
    """Return the l with g(l) = ``value``, for values above log(1 - q). It need not be accurate."""
    # The unit avoids the logarithm of 0. Places cut panels, so their accuracy does not matter.
    near = np.log1p(np.maximum(np.expm1(np.minimum(value, 30.0)) / q, UNIT - 1))  # slack: counted
    return np.where(value < 30, near, value - math.log(q) + np.log1p((q - 1) * np.exp(-value)))


def _map_loss(s: Stretch, q: float, up: bool, size: float, floor: float) -> Piece:
    """Return the piece of the loss g (``up``) or -g over the inner losses above ``floor``.

    ``size`` bounds the tilts for which the piece is used.
    """
    low, high = max(s.low, (floor - s.shift) / s.scale), s.high
    if math.isinf(high):  # Gaussian: the tilted log slope is -t + w scale g', |w| <= size + 1
        most = (size + 1) * s.scale
        high = most + LOG_SLOPE_PAD
        pull = math.log(most * q / (1 - q)) / s.scale if most * q > 1 - q else 0.0
        low = max(low, -LOG_SLOPE_PAD - 1 - min(most, pull))
    sign = 1.0 if up else -1.0

    def inner(t: Array) -> Array:
        return s.scale * t + s.shift

    def speed(t: Array, near: Array | float) -> Array:
        return s.scale * _speed(inner(t), q, np.multiply(near, s.scale))

    return Piece(
        low,
        high,
        s.distance,
        loss=lambda t: sign * _g(inner(t), q),
        log_p=lambda t: s.log_q(t) + (_g(inner(t), q) if up else 0.0),
        slope=lambda t: s.scale * _slope(inner(t), q),
        speed=speed,
        bend=lambda t, near: s.bend(t, near) + (speed(t, near) if up else 0.0),
        place=lambda v: (_inverse(sign * v, q) - s.shift) / s.scale,
    )


def _ends(piece: Piece, size: float) -> tuple[tuple[float, float], ...]:
    """Return (log mass, loss) at each cut end of a piece: a bound on the mass beyond the end.

    Beyond it, the log density falls with a slope of at least LOG_SLOPE_PAD - 1.

    For an end that was not cut off, this counts a small mass that does not exist.
    """
    t = np.array([piece.low, piece.high])
    log_p, loss = piece.log_p(t) - math.log(LOG_SLOPE_PAD - 1), piece.loss(t)
    return tuple(
        (float(a), float(x))
        for a, x in zip(log_p, loss, strict=True)
        if a < -LOG_SLOPE_PAD * LOG_SLOPE_PAD / 2
    )


def _lost(base: Base, q: float, up: bool, floor: float) -> tuple[tuple[float, float], ...]:
    """Return (log mass, loss) for each bound on the mass that ``base`` omits above ``floor``.

    A tilt c gives weights e^{w g(l)}, w = c + 1 for g (``up``) and w = -c for -g. On an interval of
    ``base.lost``, e^{w g(l) - (t + 1) l} is largest at an end: w g is convex for w >= 0, and both
    terms fall for w < 0. Beyond the last tilt, t + 1 >= w, it falls.
    """
    if not base.lost:
        return ()
    t, log_mass, low, high = np.array(base.lost).T
    ends = np.stack([np.maximum(low, floor), high])
    used = (high > floor) & (ends < math.inf)
    end, t, log_mass = (np.broadcast_to(x, used.shape)[used] for x in (ends, t, log_mass))
    g = _g(end, q)
    a = log_mass - np.where(t > -1, (t + 1) * np.where(t > -1, end, 0.0), 0.0)
    pairs = (a + g, g) if up else (a, -g)
    return tuple(zip(*(x.tolist() for x in pairs), strict=True))


def _opposite_gaussians(mu: float, q: float, size: float) -> Piece:
    reach = (2 * size + 2) * mu + LOG_SLOPE_PAD
    room = min(1.0, 1 / mu)
    half = mu * mu / 2

    def loss(t: Array) -> Array:
        x = mu * np.abs(t)
        small = np.minimum(x, 40.0)
        ratio = 2 * q * math.exp(-half) * np.sinh(small) / (1 - q + q * np.exp(-small - half))
        return np.sign(t) * np.where(x < 40, np.log1p(ratio), _g(x - half, q) - _g(-x - half, q))

    def towards(t: Array, near: Array | float) -> Array:
        return mu * _speed(mu * t - half, q, np.multiply(near, mu))

    def place(v: Array) -> Array:
        away = np.maximum(np.abs(v) / 2, 1e-300)
        log_sinh = away + np.log(-np.expm1(-2 * away)) - math.log(2)
        log_x = log_sinh + math.log((1 - q) / q) + half
        far = np.where(log_x < 20, np.arcsinh(np.exp(np.minimum(log_x, 20.0))), log_x + math.log(2))
        return (v / 2 + np.sign(v) * far) / mu

    return Piece(
        -reach,
        reach,
        room,
        loss,
        log_p=lambda t: -t * t / 2 - 0.5 * math.log(math.tau) + _g(mu * t - half, q),
        slope=lambda t: mu * (_slope(mu * t - half, q) + _slope(-mu * t - half, q)),
        speed=lambda t, near: towards(t, near) + towards(-t, near),
        bend=lambda t, near: np.abs(t) + room / 4 + near + towards(t, near),
        place=place,
    )


def _opposite_laplaces(a: float, q: float) -> tuple[Piece, Piece]:
    """Return the pieces of the loss on (-a, 0) and (0, a), for Laplace noise moved by a each way.

    For t > 0, the density of noise moved left is e^-a times that of the unmoved noise.
    """
    far = float(_g(np.array([-a]), q)[0])

    def loss(t: Array) -> Array:  # t in (0, a)
        ratio = q * math.exp(-a) * np.expm1(np.minimum(2 * t, 30.0)) / math.exp(far)
        return np.where(2 * t < 30, np.log1p(ratio), _g(2 * t - a, q) - far)

    def slope(t: Array) -> Array:
        return 2 * _slope(2 * t - a, q)

    def speed(t: Array, near: Array | float) -> Array:
        return 2 * _speed(2 * t - a, q, np.multiply(near, 2.0))

    def place(v: Array) -> Array:
        return np.clip((_inverse(v + far, q) + a) / 2, 0.0, a)

    right = Piece(
        0.0,
        a,
        0.5,
        loss,
        log_p=lambda t: -t - math.log(2) + _g(2 * t - a, q),
        slope=slope,
        speed=speed,
        bend=lambda t, near: 1 + speed(t, near),
        place=place,
    )
    left = Piece(
        -a,
        0.0,
        0.5,
        lambda t: -loss(-t),
        log_p=lambda t: t - math.log(2) + far,
        slope=lambda t: slope(-t),
        speed=lambda t, near: speed(-t, near),
        bend=lambda t, near: np.ones_like(t),
        place=lambda v: -place(-v),
    )
    return left, right


def _up(value: float, units: int = 8) -> float:
    """Return a slightly larger value, an upper bound despite rounding by ``units``."""
    # slack: the_largest_loss_of_a_pair_that_is_sampled
    return value + units * UNIT * abs(value) if math.isfinite(value) else value
