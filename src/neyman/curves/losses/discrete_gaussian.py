"""Define the loss of integers with discrete Gaussian noise, and bound it by Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from neyman.curves.losses.gaussian import REACH_DEVIATIONS, GaussianLoss
from neyman.curves.losses.loss import MOST_POWERS, Loss, lattice_sum
from neyman.numerics import theta
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import LEAST_WEIGHT, UNIT, Atoms
from neyman.numerics.decay import integer_distance
from neyman.numerics.discretization import Discretization
from neyman.numerics.rounding import normal_quantile, product, total, up

ROUNDING_VARIANCE = 6  # variance of the rounding of a Gaussian to integers [MM-1]


@dataclass(frozen=True)
class Limits:
    """Limits on the count of numbers, and on sigma^2 for each formula."""

    numbers: int = 1 << 60  # largest total count of noisy numbers
    narrow_sigma_squared: float = 4.0  # below it, moments differ from the Gaussian's
    wide_sigma_squared: int = 10**8  # beyond it, atoms are not listed one by one


LIMITS = Limits()


def integer_mu(shift_squared: Fraction, sigma_squared: Fraction) -> float:
    """Return a mu for which integers plus discrete Gaussian noise are mu-GDP.

    It also holds for adaptive shifts. mu = Delta / sqrt(sigma^2 - 6) + 2 sqrt(2 pi) m kappa, for m
    = 2^60 numbers. Up to a factor e^(m kappa) in any probability, m numbers with discrete Gaussian
    noise equal randomly rounded numbers with Gaussian noise of variance sigma^2 - 6. Here kappa =
    log((1 + e) / (1 - e)), e = 2 q / (1 - q), q = e^(-12 pi^2). Derived in [MM-1].

    Args:
        shift_squared: Delta^2, the squared l2 norm of the integer shift.
        sigma_squared: above 6.

    Returns:
        mu, rounded up; 0 for no shift.
    """
    if not shift_squared:
        return 0.0
    kappa = 4.1 * math.exp(-2 * math.pi**2 * ROUNDING_VARIANCE)
    slope = root_above(shift_squared / (sigma_squared - ROUNDING_VARIANCE))
    return (slope + 5.02 * LIMITS.numbers * kappa) * (1 + 1e-15)


def root_above(squared: Fraction) -> float:
    """Return a float at or just above the root of ``squared``: 0, or at least 1e-150."""
    if not squared:
        return 0.0
    root = math.sqrt(max(squared, Fraction(1, 10**300)))
    while Fraction(root) ** 2 < squared:
        root = up(root, 1)
    return root


@dataclass(frozen=True)
class DiscreteGaussianLoss(Loss):
    """Represent the loss of N_Z(0, sigma^2) against N_Z(shift, sigma^2).

    N_Z has the mass function proportional to e^{-x^2 / (2 sigma^2)} on the integers. The loss at x
    is shift (shift - 2x) / (2 sigma^2), on a lattice of step shift / sigma^2. The pair is its own
    reverse, by x -> shift - x.

    Args:
        sigma_squared: exact, above 0. The variance of the noise is slightly smaller.
        shift: at least 1.

    Source: Canonne, Kamath and Steinke 2020.
    """

    sigma_squared: Fraction
    shift: int = 1

    @property
    def step(self) -> Fraction | None:
        """Return shift / sigma^2, or None if sigma is too large to list atoms."""
        listed = self.sigma_squared <= LIMITS.wide_sigma_squared
        return self.shift / self.sigma_squared if listed else None

    @property
    def lattice_places(self) -> tuple[Fraction, Fraction] | None:
        if self.step is None:
            return None
        return self.shift**2 / (2 * self.sigma_squared), self.step

    @property
    def rho(self) -> float:
        """Return shift^2 / (2 sigma^2) (Canonne, Kamath and Steinke 2020, theorem 4)."""
        return float(Fraction(self.shift**2) / (2 * self.sigma_squared))

    @property
    def mu(self) -> float:
        """Return an upper bound on the smallest mu whose G_mu is below this trade-off curve [DG-1].

        It is above shift / sigma. With X the noise and q(t) = Phi^-1(P(X <= t)), it is sup_t [q(t)
        - q(t - shift)]: G_mu is convex and the curve is linear between integer thresholds t, so
          only these matter. They are computed up to some t, and `_tail_mu` bounds the rest. If
          sigma exceeds 1000, the result is `integer_mu`, which needs no sum.
        """
        if self.sigma_squared > 10**6:  # 3e-6 too large, as much as summing would be
            return integer_mu(Fraction(self.shift**2), self.sigma_squared)
        return _largest_gap(float(self.sigma_squared), self.shift)

    @property
    def rough_mu(self) -> float:
        """Return `integer_mu` if its relative excess 3 / sigma^2 is small, else `mu`."""
        if self.sigma_squared > 100:  # at most 3% too large
            return integer_mu(Fraction(self.shift**2), self.sigma_squared)
        return self.mu

    def reverse(self) -> DiscreteGaussianLoss:
        return self

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) = z (z + 1) shift^2 / (2 sigma^2) + log theta(z shift) / theta(0).

        `theta` defines theta(t).
        """
        z, s2 = np.atleast_1d(z), float(self.sigma_squared)
        if s2 >= LIMITS.narrow_sigma_squared:
            turn = np.abs(np.imag(z)).max(initial=0.0) * self.shift / (math.tau * s2)
            # Only one term matters [DG-2].
            if 2 * math.pi**2 * s2 * (1 - 2 * turn) > theta.LIMITS.drop_efolds:
                return z * (z + 1) * (self.shift**2 / s2 / 2)
        return theta.log_mgf(s2, self.shift, z)

    def mgf_rounding(self, z: Array) -> Array:
        return theta.rounding(float(self.sigma_squared), self.shift, np.atleast_1d(z))

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        # The Gaussian moments, which are close, or sums if sigma is small.
        s2 = float(self.sigma_squared)
        ratio = self.shift**2 / s2
        if s2 < LIMITS.narrow_sigma_squared:
            center = np.round(-tilts * self.shift)
            x = center[:, None] + np.arange(-20.0, 21.0)
            exponent = -((x + (tilts * self.shift)[:, None]) ** 2) / (2 * s2)
            p = np.exp(exponent - exponent.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            loss = self.shift * (self.shift - 2 * x) / (2 * s2)
            mean = (p * loss).sum(axis=1)
            spread = (p * (loss - mean[:, None]) ** 2).sum(axis=1)
            return np.real(self.log_mgf(tilts)), mean, spread
        # The theta functions of K differ by a relative e^-77 at most.
        return tilts * (tilts + 1) * (ratio / 2), (tilts + 0.5) * ratio, np.full(len(tilts), ratio)

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # Bound the decay from the distance d of v = u shift / sigma^2 to multiples of 2 pi [C-5].
        # |phi| <= (sum over k of e^{-sigma^2 (v - 2 pi k)^2 / 2}) / (1 - 2 sum e^{-2 pi^2 sigma^2
        # k^2}). The nearest k contributes e^{-sigma^2 d^2 / 2}, and all others together less than 3
        # e^{-sigma^2 pi^2 / 2}.
        s2 = float(self.sigma_squared)
        if s2 < 0.25:
            return np.zeros(len(edges))
        turn = edges * (self.shift / (s2 * math.tau))
        away = integer_distance(turn) * math.tau
        most = np.logaddexp(-s2 / 2 * away**2, math.log(3) - s2 * math.pi**2 / 2)
        most = most - math.log1p(-3 * math.exp(-2 * math.pi**2 * s2))
        log_decay = np.zeros(len(edges))
        np.minimum(most, 0.0, out=log_decay[:-1])
        return log_decay

    def atoms(self, tilt: float) -> Atoms:
        """Return the atoms within 26 sigma of the tilted center -tilt * shift, normalized."""
        center, reach = tilt * self.shift, REACH_DEVIATIONS * math.sqrt(self.sigma_squared)
        low, high = math.floor(-center - reach) - 1, math.ceil(-center + reach) + 1
        x = np.arange(high, low - 1, -1, dtype=float)
        exponent, rest = self._exponents(x, Fraction(tilt) * self.shift)
        # Two powers of e and their product err by 5 units, the total by as much, and the fsum and
        # the quotient by one each [DG-3].
        weight = np.exp(-exponent) * np.exp(-rest)
        weight[weight < LEAST_WEIGHT] = 0.0  # together far below the tail
        weight /= math.fsum(weight)
        step, first = self.shift / self.sigma_squared, self.shift**2 / (2 * self.sigma_squared)
        scale = float(self.log_mgf(np.array([tilt]))[0])
        # slack: weights_of_a_discrete_gaussian_loss
        return Atoms(step, first, -high, weight, scale, tail=1e-147, relative=16 * UNIT)

    def _exponents(self, x: Array, center: Fraction) -> tuple[Array, Array]:
        """Return (x + center)^2 / (2 sigma^2) less its least value, as sums of two floats.

        The rest errs by a few units of itself, so the error of the sum is below 2^-100 of it.
        """
        doubled = 2 * self.sigma_squared
        near = float(doubled)
        below = float(doubled - Fraction(near))
        place, off = total(x, float(center))
        off += float(center - Fraction(float(center)))
        squared, rest = product(place, place)
        exponent = squared / near
        known, error = product(exponent, near)
        rest += off * (2 * place + off)
        rest = ((squared - known) - error + rest - exponent * below) / near
        least = int(exponent.argmin())
        exponent, error = total(exponent, -exponent[least])
        return exponent, rest - rest[least] + error

    def dots(self, tilt: float, step: float) -> Discretization:
        # If sigma is large, use quadrature nodes of the density g. A sum over integers differs from
        # the integral by at most sup |g''| / 24 per term: within 26 sigma, at most a relative
        # (26^2 + 1) / (24 sigma^2).
        if self.sigma_squared <= LIMITS.wide_sigma_squared:
            return Discretization.of(self.atoms(tilt), tilt)
        smooth = GaussianLoss(float(self.shift**2 / self.sigma_squared)).dots(tilt, step)
        return replace(smooth, relative=smooth.relative + 60 / float(self.sigma_squared))

    def sum_size(self, count: int, *, truncated: bool = False) -> float:
        # 54 sigma per term, or 22 sigma of the sum: weights beyond are below e^-60.
        sigma = math.sqrt(self.sigma_squared)
        if self.step is None or 54 * sigma * count + 4 > MOST_POWERS:
            return math.inf
        return (22 * math.sqrt(count) if truncated else 54 * count) * sigma + 4

    def sum_atoms(self, count: int, tilt: float, least: float) -> Discretization:
        return lattice_sum(self, count, tilt, least)


@lru_cache(maxsize=1024)
def _largest_gap(sigma_squared: float, shift: int) -> float:
    sigma = math.sqrt(sigma_squared)
    if shift > 1 << 22:
        return math.inf  # the sum is too long, so nothing is claimed
    reach = max(60.0, min(1000.0, 1e6 / sigma))
    top = math.ceil(reach * sigma) + 2 * shift + 2
    # log P(X > t) for t = -shift .. top, by sums from the far end: no cancellation.
    x = np.arange(top + math.ceil(40 * sigma) + 41, -shift - 1, -1, dtype=float)
    log_weight = -(x**2) / (2 * sigma_squared)
    log_sums = np.logaddexp.accumulate(log_weight)
    half = log_sums[x == 1][0] if np.any(x == 1) else -math.inf
    log_total = np.logaddexp(math.log(2) + half, 0.0)  # symmetric about 0
    log_tail = (log_sums - log_total)[::-1]  # entry i is log P(X > t) for t = i - shift - 1
    t = np.arange(len(log_tail)) - shift - 1
    upper = -normal_quantile(np.minimum(log_tail[t >= 0], 0.0))
    q = np.concatenate([-upper[shift::-1], upper])  # q(-1 - t) = -q(t)
    gap = (q[shift:] - q[:-shift])[(t[shift:] <= top) & (t[shift:] >= 0)]
    # Each sum errs by a unit per term. Log-probabilities move q by less than twice this error.
    largest = float(gap.max()) + 8 * UNIT * (len(x) + reach)  # slack: open
    return max(largest, _tail_mu(sigma_squared, shift, top))


def _tail_mu(sigma_squared: float, shift: int, top: int) -> float:
    """Return an upper bound on q(t) - q(t - s) for every t > top, with s = ``shift`` [DG-1].

    Here q(t) = Phi^-1(P(X <= t)). The normal hazard exceeds its argument, so (q(t)^2 - q(t-s)^2) /
    2 <= log P(X > t-s)/P(X > t). This is at most s (t+1) / sigma^2 - s^2 / (2 sigma^2) + eta. Here
    eta bounds log E[e^{(X-t-1) s / sigma^2} | X > t] by the value for a geometric variable. A lower
    bound is q(t) >= Y - d with Y = (t+1) / sigma and d as in the code, from Mills' ratio. The bound
    falls in t.
    """
    sigma = math.sqrt(sigma_squared)
    y = (top + 1) / sigma
    # Beyond top, neighboring masses fall by at least this ratio. So the excess over top is
    # stochastically smaller than a geometric variable.
    ratio = math.exp(-(2 * top + 3) / (2 * sigma_squared))
    grown = math.exp(min((2 * shift - 2 * top - 3) / (2 * sigma_squared), 0.0))
    if grown >= 1 or ratio >= 1:
        return math.inf
    eta = math.log1p(-ratio) - math.log1p(-grown)
    total = max(1.0, math.sqrt(math.tau) * sigma - 1)  # theta(0) is above both
    excess = -math.log(total) - math.log1p(-ratio) + 0.5 * math.log(math.tau)

    def below(v: float) -> float:
        """Return d(v) with q >= v - d: v d - d^2/2 >= log(v + 1/v) + excess."""
        need = max(math.log(v + 1 / v) + excess, 0.0)
        return need / v / (1 - need / v**2) if need < v**2 / 2 else v

    early = y - shift / sigma
    low = (y - below(y)) + (early - below(early))
    if low <= 0:
        return math.inf
    return 2 * (shift * y / sigma - shift**2 / (2 * sigma_squared) + eta) / low
