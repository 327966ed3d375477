"""Compute profiles by closed forms: Gaussian, Laplace, circular, and mixture pairs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, logsumexp, ndtri_exp

from neyman.curves.losses.circular_arcs import CircularGaussianLoss
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.mixture import GaussianMixtureLoss, MixtureLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.profiles.duality import log_power_by_duality
from neyman.curves.profiles.profile import Interval, Profile, log_delta_below_zero
from neyman.curves.profiles.selection import profile_of_one, register, select
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

LARGEST, SMALLEST = 1e300, 1e-300  # float range, with room for sums
# Relative error of SciPy's erfcx, ndtr, and ndtri, and the few steps around them.
# slack: delta_of_equal_laws, delta_of_a_gaussian_pair, the_power_of_a_gaussian_pair,
# slack: delta_of_a_laplace_pair/a, delta_of_a_bounded_range/a, delta_of_a_bounded_range/b,
# slack: delta_of_a_mixture_of_normal_laws/a
SPECIAL_FUNCTION_ERROR = 64 * UNIT
SUBNORMAL_LOSS = 1e-322  # largest rounding error of subnormal numbers


def _widen(value: float, error: float) -> Interval:
    return value - error, value + error


class PerfectProfile(Profile):
    """Represent the profile of P = Q: delta(epsilon) = (1 - e^epsilon)_+ and power = level."""

    method = "closed form"

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log (1 - e^epsilon)_+."""
        if epsilon >= 0:
            return -math.inf, -math.inf
        return value_interval(-math.expm1(epsilon), SPECIAL_FUNCTION_ERROR)

    def log_power(self, log_level: float) -> Interval:
        return log_level, log_level

    def mu(self) -> Interval:
        return 0.0, 0.0


class GaussianProfile(Profile):
    """Compute the profile of N(mu, 1) against N(0, 1), mu > 0.

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) (Balle and Wang
    2018) and power(level) = Phi(mu + Phi^-1(level)) (Dong, Roth and Su 2022).
    """

    method = "closed form"

    def __init__(self, mu: float) -> None:
        self._mu = mu

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log delta = log(phi(a) (R(a) - R(b))), a = epsilon/mu - mu/2, b = a + mu.

        R is Mills' ratio.
        """
        mu = self._mu
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        if a < -5:
            # Far below the center, delta is near 1 and the terms do not cancel.
            first, second = float(log_ndtr(-a)), epsilon + float(log_ndtr(-b))
            gap = -math.expm1(second - first)
            if gap <= 0:
                return -math.inf, first
            error = SPECIAL_FUNCTION_ERROR * (1 + abs(epsilon) + abs(second)) / gap
            return _widen(first + math.log(gap), error) if error < 1 else (-math.inf, first)
        # R(a) - R(b) = integral of 1 - x R(x) over (a, b), R(x) = sqrt(pi/2) erfcx(x / sqrt 2).
        if a * a > LARGEST:
            return -math.inf, -LARGEST / 4
        log_phi = -a * a / 2 - 0.5 * math.log(math.tau)
        ra, rb = _mills(a), _mills(b)
        error = SPECIAL_FUNCTION_ERROR * (ra + rb)
        # a itself is rounded: d log phi = a da, and the Mills ratios move by at most da.
        # slack: delta_of_a_gaussian_pair/a, delta_of_a_mixture_of_normal_laws/a
        place = 4 * UNIT * (abs(epsilon) / mu + mu)
        error += place * mu
        # slack: delta_of_a_gaussian_pair/a, delta_of_a_mixture_of_normal_laws/a
        log_error = place * (abs(a) + 1) + 4 * UNIT * abs(log_phi)
        value = ra - rb
        if mu < 0.2 * max(1.0, abs(a)):
            value, relative = _mills_difference(a, mu)
            error = value * (relative + place * 8)
        if value - error <= 0:
            # An underflowed number is below the smallest float.
            most = log_phi + math.log(max(value + error, SMALLEST)) + log_error
            return -math.inf, min(most, 0.0)
        # slack: delta_of_a_gaussian_pair
        log_error += 4 * UNIT * abs(math.log(value - error))  # of the logarithms
        return (
            log_phi + math.log(value - error) - log_error,
            min(log_phi + math.log(value + error) + log_error, 0.0),
        )

    def log_power(self, log_level: float) -> Interval:
        """Bound log Phi(mu + Phi^-1(level))."""
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        z = float(ndtri_exp(log_level))
        # Phi^-1 amplifies the rounding of log_level by about 1 / |z|, or less if z is near 0.
        z_error = SPECIAL_FUNCTION_ERROR * (1 + abs(z)) * (1 + abs(log_level) / max(abs(z), 1.0))
        x = z + self._mu
        value = float(log_ndtr(x))
        # slack: counted
        moved = z_error + 2 * UNIT * (abs(z) + self._mu)  # a sum
        slope = max(-x, 0.0) + 1.0  # of log Phi, an upper bound
        if x - moved > 1:  # there Phi > 0.84, so phi / Phi < 1.2 phi
            slope = 0.48 * math.exp(-0.5 * (x - moved) ** 2)
        error = slope * moved + SPECIAL_FUNCTION_ERROR * abs(value) + SUBNORMAL_LOSS
        return value - error, min(value + error, 0.0)

    def mu(self) -> Interval:
        """Bound mu, computed as the root of a rounded square."""
        # slack: the_mu_of_a_gaussian_pair
        return self._mu * (1 - 8 * UNIT), self._mu * (1 + 8 * UNIT)


def _mills(x: float) -> float:
    """Return Mills' ratio (1 - Phi(x)) / phi(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


@array_cache
def _nodes() -> tuple[NDArray[Any], NDArray[Any]]:
    return np.polynomial.legendre.leggauss(16)


def _mills_difference(a: float, mu: float) -> tuple[float, float]:
    """Return R(a) - R(a + mu) and its relative error, for a >= -5 and small mu.

    Mills' ratio R is the Laplace transform of e^{-t^2/2}. So the difference is the integral over
    t > 0 of the positive e^{-a t - t^2/2} (1 - e^{-mu t}), by Gauss-Legendre on panels.
    """
    nodes, weights = _nodes()
    panels = 24
    width = 2 / a if a > 3 else 0.65
    edges = np.arange(panels) * width
    t = (edges[:, None] + (nodes + 1) * width / 2).ravel()
    w = np.tile(weights * width / 2, panels)
    value = float(np.sum(w * np.exp(-a * t - t * t / 2) * -np.expm1(-mu * t)))
    return value, 2e-14


class LaplaceProfile(Profile):
    """Compute the profile of two Laplace distributions with centers ``a`` scales apart.

    delta(epsilon) = 1 - e^{(epsilon - a)/2} for |epsilon| <= a. power(level) = e^a level below
    level e^-a / 2, 1 - e^-a (1 - level) above level 1/2, and 1 - e^-a / (4 level) between (Dong,
    Roth and Su 2022, proposition 2.7).
    """

    method = "closed form"

    def __init__(self, exact: Fraction) -> None:
        self._exact, self._a = exact, float(exact)

    def log_delta(self, epsilon: float) -> Interval:
        """Bound log (1 - e^{(epsilon - a)/2})."""
        a = self._a
        if Fraction(epsilon) >= self._exact:
            return -math.inf, -math.inf
        exponent = (epsilon - a) / 2 if epsilon > -a else epsilon
        # A lower limit on the difference: about its rounding error.
        value = max(-math.expm1(exponent), UNIT * (abs(epsilon) + a))  # slack: counted
        # slack: delta_of_a_laplace_pair/a
        error = SPECIAL_FUNCTION_ERROR + 2 * UNIT * (abs(epsilon) + a) / value
        return value_interval(value, error)

    def log_power(self, log_level: float) -> Interval:
        """Bound log power by the three formulas."""
        a = self._a
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        error = SPECIAL_FUNCTION_ERROR * (1 + a + abs(log_level))
        if log_level <= -a - math.log(2):
            low, high = _widen(log_level + a, error)
        elif log_level <= -math.log(2):
            low, high = _widen(math.log1p(-math.exp(-a - log_level) / 4), error)
        else:
            low, high = _widen(math.log1p(math.exp(-a) * math.expm1(log_level)), error)
        return low, min(high, 0.0)


def value_interval(value: float, relative: float) -> Interval:
    """Bound log value, given its relative error."""
    log_value = math.log(value)
    # slack: counted
    slack = 4 * UNIT * abs(log_value)  # of the logarithm
    high = min(log_value + math.log1p(relative) + slack, 0.0)
    return log_value + math.log1p(-relative) - slack if relative < 1 else -math.inf, high


FAR_DEVIATIONS = 60.0  # standard deviations beyond which a normal probability underflows


class GaussianMixtureProfile(Profile):
    """Compute the profile of a normal mixture against one normal distribution, or reversed."""

    method = "closed form"

    def __init__(self, loss: GaussianMixtureLoss) -> None:
        self._loss = loss
        # The mass at distance 0, which limits log R from below.
        self._left = loss.weights[0] if loss.distances[0] == 0 else 0.0
        self._parts = [
            (math.log(p), c, GaussianProfile(c))
            for c, p in zip(loss.distances, loss.weights, strict=True)
            if c > 0  # distance 0 reveals nothing
        ]

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bound log delta by two points y between which log R(y) certainly is the needed loss."""
        epsilons = np.asarray(epsilons, dtype=float)
        removed = self._loss.removed
        low, high = self._places(epsilons if removed else -epsilons)
        below, above = (high, low) if removed else (low, high)
        least, most = self._at(below)[0], self._at(above)[1]
        # delta >= 1 - e^epsilon, with equality below every loss.
        with np.errstate(divide="ignore"):
            line = np.log(-np.expm1(np.minimum(epsilons, 0.0)))
        # expm1 errs by 2 units, and the logarithm by 2 units of its size.
        # slack: counted
        slack = np.where(epsilons < 0, 8 * UNIT * (1 + np.minimum(np.abs(line), 800.0)), 0.0)
        least = np.maximum(least, line - slack)
        most = np.minimum(np.maximum(most, line + slack), 0.0)
        if not removed and self._left:
            most[epsilons > self._largest_loss()] = -math.inf
        return np.minimum(least, most), most

    def _largest_loss(self) -> float:
        """Return an upper bound on -log p_0, which no loss exceeds [SA-9].

        p_0 is the weight at distance 0.

        The logarithm errs by 2 units of its size, and p_0 by one for each weight.
        """
        # slack: counted
        return -math.log(self._left) * (1 + 8 * UNIT) + 16 * UNIT * len(self._parts)

    def _rounding(self, y: Array) -> Array:
        """Bound the error of log R(y)."""
        largest = self._loss.distances[-1]
        # slack: delta_of_a_mixture_of_normal_laws/a
        return 16 * UNIT * (len(self._parts) + largest * np.abs(y) + largest**2)

    def _places(self, value: Array) -> tuple[Array, Array]:
        """Return y with log R(y) certainly <= ``value`` (-inf if none), and y with it >= that."""
        loss = self._loss
        smallest, largest = loss.distances[0], loss.distances[-1]
        low, high = -FAR_DEVIATIONS, FAR_DEVIATIONS + largest
        if smallest > 0:  # log R(y) <= c_0 y for y < 0
            low = min(low, float(value.min()) / smallest - 1)
        top = float(value.max()) - math.log(loss.weights[-1]) + largest**2 / 2
        high = max(high, top / largest + 1)
        y = loss.inverse(value, low, high)
        # slack: delta_of_a_mixture_of_normal_laws/a
        away = 4 * self._rounding(y) / np.maximum(loss.slope(y), 1e-12) + 4 * UNIT * np.abs(y)
        left, right = y - away, y + away
        for _ in range(50):
            near = np.maximum(left, 3 * low)  # -inf stands for no place
            good = loss.log_ratio(near) + self._rounding(near) <= value
            enough = loss.log_ratio(right) - self._rounding(right) >= value
            if np.all(good & enough):
                break
            away = 2 * away
            left, right = np.where(good, left, y - away), np.where(enough, right, y + away)
            # If the value is below log p_0, no such place exists.
            left = np.where(~good & (left < 2 * low), -math.inf, left)
            if np.all((good | np.isinf(left)) & enough):
                break
        certain = loss.log_ratio(np.maximum(left, 3 * low)) + self._rounding(left) <= value
        return np.where(certain, left, -math.inf), right

    def _at(self, y: Array) -> tuple[Array, Array]:
        """Bound log delta at the loss of the outcome y, for each y."""
        removed = self._loss.removed
        terms = np.full((2, len(y), len(self._parts)), -math.inf)
        finite = np.nonzero(np.isfinite(y))[0]
        ratio = self._loss.log_ratio(y[finite])
        for i, (log_p, c, profile) in enumerate(self._parts):
            place = c * y[finite] - c * c / 2
            # slack: delta_of_a_mixture_of_normal_laws/a
            error = 4 * UNIT * (c * np.abs(y[finite]) + c * c + abs(log_p) + 4)
            asked = place if removed else -place
            low, high = profile.log_deltas(asked + error)[0], profile.log_deltas(asked - error)[1]
            shift = np.full(len(finite), log_p)
            if not removed:
                shift += place - ratio
                error = error + self._rounding(y[finite])
            terms[0, finite, i] = low + shift - error
            terms[1, finite, i] = high + shift + error
        total = np.asarray(logsumexp(terms, axis=-1))
        # At the far end, either all mass except that at distance 0 is distinguished, or none.
        end = math.log1p(-self._left) if removed and self._left < 1 else -math.inf
        # The sums of logarithms, and the logarithm, err by a unit or two of their size.
        # slack: delta_of_a_mixture_of_normal_laws/a
        slack = 16 * UNIT * (1 + np.abs(np.maximum(total, -1e300)))
        least = np.where(np.isfinite(y), total[0] - slack[0], -math.inf)
        # slack: counted
        return least, np.where(np.isfinite(y), total[1] + slack[1], end * (1 - 4 * UNIT))

    def log_power(self, log_level: float) -> Interval:
        if log_level == -math.inf:
            return -math.inf, -math.inf
        if log_level >= 0:
            return 0.0, 0.0
        return log_power_by_duality(self.log_delta, log_level)


class CircularGaussianProfile(Profile):
    """Compute the profile of two shifts of Riemannian Gaussian noise on a circle.

    delta(epsilon) is the integral of p (1 - e^{epsilon - L}) over the points of each arc with L >
    epsilon, by Gauss-Legendre quadrature with positive terms [CI-5].
    """

    method = "closed form"

    def __init__(self, loss: CircularGaussianLoss) -> None:
        self._loss = loss

    def log_delta(self, epsilon: float) -> Interval:
        """Bound the log of the sum over both arcs."""
        if epsilon < 0:
            return log_delta_below_zero(epsilon, self.log_delta(-epsilon))
        room = self._loss.supremum - Fraction(epsilon)
        if room <= 0:
            return -math.inf, -math.inf
        ends = np.array([_log_excess(m, float(room) / m, epsilon) for m, _ in self._loss.arcs])
        low, high = np.logaddexp.reduce(ends, axis=0) - self._loss.log_total
        # slack: counted
        slack = SPECIAL_FUNCTION_ERROR + 4 * UNIT * (abs(low) + abs(self._loss.log_total))
        return float(low - slack), min(float(high + slack), 0.0)

    def log_power(self, log_level: float) -> Interval:
        """Bound log power by duality."""
        if log_level in (0.0, -math.inf):
            return log_level, log_level
        return log_power_by_duality(self.log_delta, log_level)


def _log_excess(m: float, length: float, epsilon: float) -> Interval:
    """Bound log of the integral of e^{-(g + v)^2 / 2} (1 - e^{-m v}) over v in (0, length).

    g = epsilon / m - m / 2. The function is log-concave. Values below e^-44 are cut off [CI-5].
    """
    g = epsilon / m - m / 2
    peak = min(max(-g, 0.0), length)
    steep = abs(g + peak)
    reach = 90 / (steep + math.sqrt(steep**2 + 90))
    low, high = max(peak - reach, 0.0), min(peak + reach, length)
    nodes, weights = _nodes()
    panels = 32 + math.ceil(m * (high - low) / 3)
    width = (high - low) / panels
    v = low + width * (np.arange(panels)[:, None] + (nodes + 1) / 2)
    f = np.exp((peak - v) * (2 * g + v + peak) / 2) * -np.expm1(-m * v)
    value = -((g + peak) ** 2) / 2 + math.log(float((f @ weights).sum()) * width / 2)
    # Rounding of g, of the end, and of the square.
    place = 4 * UNIT * (epsilon / m + m + high)  # slack: counted
    # slack: counted
    return _widen(value, SPECIAL_FUNCTION_ERROR + place * (steep + 12) + 4 * UNIT * abs(value))


class MixtureProfile(Profile):
    """Compute the profile of a pair that is drawn publicly: delta is the mean over all pairs.

    Args:
        parts: pairs (weight, profile). The weights sum to 1.
    """

    def __init__(self, parts: tuple[tuple[float, Profile], ...]) -> None:
        self._parts = parts
        self.method = "; ".join(dict.fromkeys(p.method for _, p in parts))

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        brackets = np.array([p.log_deltas(epsilons) for _, p in self._parts])
        weights = np.array([w for w, _ in self._parts])[:, None, None]
        return self._mean(brackets, weights)

    def _mean(self, brackets: Array, weights: Array) -> tuple[Array, Array]:
        """Bound the log of a weighted mean, from bounds on logarithms, shape (parts, 2, n).

        The logarithm errs by 2 units of its size, and the differences from the largest by one.
        """
        total = np.asarray(logsumexp(brackets, b=weights, axis=0))
        # slack: the_mean_of_two_profiles
        slack = UNIT * (16 + len(self._parts) + 4 * np.abs(total))
        slack = np.where(np.isfinite(total), slack, 0.0)
        return total[0] - slack[0], np.minimum(total[1] + slack[1], 0.0)

    def log_power(self, log_level: float) -> Interval:
        """Bound log power by duality, since tests may divide the level among the pairs."""
        if log_level >= 0:
            return 0.0, 0.0
        if log_level == -math.inf:
            brackets = np.array([p.log_power(log_level) for _, p in self._parts])
            weights = np.array([w for w, _ in self._parts])[:, None, None]
            low, high = self._mean(brackets[:, :, None], weights)
            return float(low[0]), float(high[0])
        return log_power_by_duality(self.log_delta, log_level)


class NonPrivateProfile(Profile):
    """Represent the profile of P and Q without a common outcome: delta = power = 1."""

    method = "everything is revealed"

    def log_delta(self, epsilon: float) -> Interval:
        return 0.0, 0.0

    def log_power(self, log_level: float) -> Interval:
        """Return log 1 at every level."""
        return 0.0, 0.0

    def mu(self) -> Interval:
        return math.inf, math.inf


@profile_of_one.register
def _(loss: GaussianLoss) -> Profile:
    return GaussianProfile(loss.mu)


@profile_of_one.register
def _(loss: LaplaceLoss) -> Profile:
    return LaplaceProfile(loss.exact_epsilon)


@profile_of_one.register
def _(loss: GaussianMixtureLoss) -> Profile:
    return GaussianMixtureProfile(loss)


@profile_of_one.register
def _(loss: CircularGaussianLoss) -> Profile:
    return CircularGaussianProfile(loss)


@profile_of_one.register
def _(loss: MixtureLoss) -> Profile:
    parts = ((weight, Composition.of([(part, 1)])) for weight, part in loss.parts)
    return MixtureProfile(tuple((weight, select(part)) for weight, part in parts))


@register(10, "nothing is released: perfect privacy")
def _perfect(composition: Composition) -> Profile | None:
    return None if composition.parts else PerfectProfile()


@register(20, "a part is not private at all: delta and power are 1")
def _non_private(composition: Composition) -> Profile | None:
    return NonPrivateProfile() if NonPrivateLoss in composition.kinds else None
