"""Define privacy losses with finitely many values, on a lattice or off it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy.special  # pyright: ignore[reportMissingTypeStubs]

from neyman.curves.losses.loss import MOST_POWERS, Loss, TiltedValues, lattice_sum
from neyman.curves.losses.zcdp_parameters import (
    bounded_range_rho,
    discrete_laplace_rho,
    pure_rho,
    response_rho,
)
from neyman.numerics import check
from neyman.numerics.arrays import Array, dot
from neyman.numerics.atoms import UNIT, Atoms
from neyman.numerics.characteristic_function import log1p, rounding, wave_sum
from neyman.numerics.decay import by_moments, integer_distance
from neyman.numerics.discretization import Discretization
from neyman.numerics.power_sums import added, multinomial, ways
from neyman.numerics.rounding import above, normal_quantile, up

LEAST_EPSILON = Fraction(1, 10**150)
MOST_EPSILON = 10**6  # largest epsilon of one release; it has no privacy

# slack: counted
PLACE_ERROR = 4 * UNIT  # relative error of a value: the log of an exact quotient errs by 2 units
LEAST_LOG_MASS = -600.0  # log of the smallest mass that may be raised to powers


class _ValuesLoss(Loss):
    """Represent a loss with finitely many values, with common methods for both kinds."""

    failure: float
    missing: float

    @property
    def infinite(self) -> float:
        """Return `failure`: the mass that only P can produce."""
        return self.failure

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        """Return the values, and the logarithms of their masses."""
        raise NotImplementedError

    @cached_property
    def _largest(self) -> float:
        """Return an upper bound on the largest |value|, close to it."""
        return float(np.abs(self._arrays[0][[0, -1]]).max()) * (1 + 2 * PLACE_ERROR)

    @property
    def value_count(self) -> float:
        """Return the number of finite values."""
        return len(self._arrays[0])

    @property
    def mu(self) -> float:
        """Return the mu of randomized response at the pure epsilon of the finite part.

        Return inf if ``missing`` exceeds ``failure``: the rest of Q then has less mass than the
        rest of P.
        """
        return response_mu(self._largest) if self.missing <= self.failure else math.inf

    def log_mgf(self, z: Array) -> Array:
        """Return K(z) = log sum p e^{zv} over the finite values v."""
        value, log_p = self._arrays
        rows = max(1, (1 << 19) // len(value))  # limits the memory
        if len(z) > rows:
            blocks = range(0, len(z), rows)
            return np.concatenate([self.log_mgf(z[k : k + rows]) for k in blocks])
        exponent = np.multiply.outer(z, value) + log_p
        top = np.real(exponent).max(axis=-1)
        return top + np.log(np.exp(exponent - top[..., None]).sum(axis=-1))

    def places(self, tilt: float, height: float) -> float:
        """Return the number of values, each a term of K."""
        return max(10.0, self.value_count)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        value, log_p = self._arrays
        k = self.log_mgf(tilts)
        p = np.exp(log_p + np.multiply.outer(tilts, value) - k[:, None])
        mean = p @ value
        return k, mean, (p * (value - mean[:, None]) ** 2).sum(axis=1)

    def tilted_values(self, tilt: float) -> TiltedValues:
        value, log_p = self._arrays
        k = float(self.log_mgf(np.array([tilt]))[0])
        # slack: counted
        units = 4 * UNIT * (8 + len(value) + np.abs(log_p) + np.abs(tilt * value) + abs(k))
        share = log_p + tilt * value - k
        error = float(self.mgf_rounding(np.array([tilt]))[0])
        return TiltedValues(value, share, units, np.full(len(value), PLACE_ERROR), k, error)

    def _apart(self, k: int) -> tuple[Array, float]:
        """Return each value less the k-th, and a bound on the error beyond rounding."""
        value = self._arrays[0]
        return value - value[k], 2 * (PLACE_ERROR + UNIT) * self._largest  # slack: counted

    def variance(self) -> tuple[float, float]:
        """Bound the variance of the loss, if it is finite: its moments about the likeliest value.

        The square of the first is at most the number of values times the variance.
        """
        log_p = self._arrays[1]
        away, off = self._apart(int(np.argmax(log_p)))
        # slack: counted
        share = (2 * float(np.abs(log_p).max()) + 16 + 2 * len(log_p)) * UNIT  # of each term
        p, far = np.exp(log_p), np.abs(away) + off
        mean, error = float(p @ away), share * float(p @ far) + off
        low, high = float(p @ np.maximum(np.abs(away) - off, 0.0) ** 2), float(p @ far**2)
        low, high = low * (1 - share), high * (1 + share)
        most = (abs(mean) + error) ** 2 * (1 + 8 * UNIT)  # slack: counted
        least = max(abs(mean) - error, 0.0) ** 2 * (1 - 8 * UNIT)  # slack: counted
        # slack: counted
        return max((low - most) * (1 - 2 * UNIT), 0.0), (high - least) * (1 + 2 * UNIT)

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # By moments: E(L - L')^4 <= range^2 2 Var(L). Atoms never decay.
        variance = float(self.moments(np.array([tilt]))[2][0])
        reach = float(self._arrays[0][-1] - self._arrays[0][0])
        return by_moments(variance * (1 - 1e-6), 2 * reach**2 * variance * (1 + 1e-6), edges)


@dataclass(frozen=True)
class FiniteLoss(_ValuesLoss):
    """Represent a loss with finitely many values on a lattice.

    Args:
        lattice: the step, exact, above 0.
        index: increasing integers; the values are ``index * lattice``.
        log_p: logarithms of P(L = value), same length. The Q-masses are p e^-value.
        failure: P(L = inf).
        missing: Q-mass of outcomes that P cannot produce (the infinite mass of the reverse).
        known_rho: a proven zCDP parameter of the normalized finite part, for both orders, if it is
            known to be smaller than the bound from the values. It does not affect equality.
    """

    lattice: Fraction
    index: tuple[int, ...]
    log_p: tuple[float, ...]
    failure: float = 0.0
    missing: float = 0.0
    known_rho: Fraction | None = field(default=None, compare=False, repr=False)

    @property
    def step(self) -> Fraction:
        return self.lattice

    @property
    def lattice_places(self) -> tuple[Fraction, Fraction] | None:
        """Return a place and the distance of two, if values are few and fill their lattice."""
        if len(self.index) > 256:  # K is costly
            return None
        gap = math.gcd(*(i - self.index[0] for i in self.index)) or 1
        if self.index[-1] - self.index[0] > 2 * gap * len(self.index):  # K hardly decays
            return None
        return self.lattice * self.index[0], self.lattice * gap

    @property
    def approximate(self) -> bool:
        """Return True for the loss of (`supremum`, `failure`)-DP."""
        return self.index in ((-1, 1), (0,)) and self.failure == self.missing

    @property
    def supremum(self) -> Fraction:
        return self.lattice * self.index[-1]

    @property
    def log_top(self) -> float:
        return self.log_p[-1]

    @cached_property
    def _largest(self) -> float:
        return float(self.lattice * max(abs(self.index[0]), abs(self.index[-1])))

    @property
    def rho(self) -> float:
        """Return rho of the normalized finite part: known, or implied by its values."""
        return above(self.exact_rho)

    @cached_property
    def exact_rho(self) -> Fraction:
        """Return `rho` as an exact rational."""
        if self.known_rho is not None:
            return self.known_rho
        low, high = (self.lattice * self.index[i] for i in (0, -1))
        return _rho_of_values(low, high, self.failure, self.missing)

    def reverse(self) -> FiniteLoss:
        """Return the reverse: values change sign, and the masses are those of Q."""
        values = [float(self.lattice * i) for i in self.index]
        log_q = tuple(p - v for p, v in zip(self.log_p, values, strict=True))[::-1]
        index, rho = tuple(-i for i in reversed(self.index)), self.known_rho
        backward = FiniteLoss(self.lattice, index, log_q, self.missing, self.failure, rho)
        return self if _close(self, backward) else backward

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        return np.array(self.index, float) * float(self.lattice), np.array(self.log_p)

    def _apart(self, k: int) -> tuple[Array, float]:
        return (np.array(self.index, float) - self.index[k]) * float(self.lattice), 0.0

    def decay(self, tilt: float, edges: Array, enough: float = -math.inf) -> Array:
        # Next places of the lattice: |phi|^2 <= 1 - 4 sin^2(u span / 2) sum p_k p_{k+1} [C-15].
        result = super().decay(tilt, edges, enough)
        places = self.lattice_places
        if places is None:
            return result
        p = self.atoms(tilt).weight[:: int(places[1] / self.lattice)]
        sines = np.sin(math.pi * integer_distance(float(places[1]) / math.tau * edges))
        squared = 1 - 4 * (1 - 1e-9) * dot(p[1:], p[:-1]) * sines**2
        np.minimum(result[:-1], 0.5 * np.log(np.maximum(squared, 1e-300)), out=result[:-1])
        return result

    def mgf_rounding(self, z: Array) -> Array:
        value, log_p = self._arrays
        # slack: k_of_a_loss_with_few_values, k_between_two_losses, k_of_a_sum
        return 4 * UNIT * (8 + np.abs(log_p).max() + np.abs(z) * np.abs(value).max())

    def _tilted(self, tilt: float) -> tuple[Array, float, float]:
        """Return the weights p e^{tilt v} / e^{K(tilt)}, K(tilt), and the weights' error bound."""
        value, log_p = self._arrays
        scale = float(self.log_mgf(np.array([tilt]))[0])
        weight = np.exp(log_p - scale + tilt * value)  # in this order each part is rounded twice
        size = float(np.max(np.abs(log_p) + np.abs(tilt * value))) + abs(scale)
        # slack: atoms_of_a_loss_with_few_values, atoms_of_a_choice_between_losses/a
        return weight, scale, (2 * size + 8) * UNIT + self._weight_error(tilt)

    def atoms(self, tilt: float) -> Atoms:
        weights, scale, relative = self._tilted(tilt)
        first = self.index[0]
        weight = np.zeros(self.index[-1] - first + 1)
        weight[np.array(self.index) - first] = weights
        return Atoms(self.lattice, Fraction(0), first, weight, scale, relative=relative)

    def dots(self, tilt: float, step: float) -> Discretization:
        weight, scale, relative = self._tilted(tilt)
        return Discretization(self._arrays[0], weight, tilt, scale, 0.0, relative)

    def _weight_error(self, tilt: float) -> float:
        """Return the relative error of weights e^{tilt v} that comes from the rounding of v."""
        digits = self.lattice.numerator * max(abs(self.index[0]), abs(self.index[-1]))
        if digits.bit_length() <= 53 and self.lattice.denominator.bit_count() == 1:
            return 0.0
        return 2 * UNIT * abs(tilt) * self._largest  # slack: atoms_of_values_that_are_no_floats

    def sum_size(self, count: int, *, truncated: bool = False) -> float:
        # The number of atoms: binomial for two values, else lattice points.
        if min(self.log_p) < LEAST_LOG_MASS:
            return math.inf
        if len(self.index) == 2:
            return ways(count, 2)
        if count == 1:
            return len(self.index)
        size = count * (self.index[-1] - self.index[0]) + 1
        return size if size <= MOST_POWERS else math.inf

    def sum_atoms(self, count: int, tilt: float, least: float) -> Discretization:
        # Multinomial weights for two values, else a power of the weights on the lattice.
        if count == 1 or len(self.index) > 2:
            return lattice_sum(self, count, tilt, least)
        index, log_p = np.array(self.index), np.array(self.log_p)
        finite = math.log1p(-self.failure)
        return multinomial(index, float(self.lattice), log_p, count, tilt, 0.0, finite)


PERFECT = FiniteLoss(Fraction(1), (0,), (0.0,))  # the loss of perfect privacy: always 0


def response_mu(epsilon: float) -> float:
    """Return mu of the Gaussian trade-off curve through the corner of randomized response's curve.

    The corner is (1, 1) / (1 + e^epsilon). The result is rounded up. Near level 1/2, the logarithm
    of the level has no digits of mu. There, mu is 2^{3/2} erfinv(tanh(epsilon / 2)).
    """
    if epsilon < 1:
        special: Any = scipy.special
        return math.sqrt(8) * float(special.erfinv(math.tanh(epsilon / 2))) * (1 + 1e-14)
    level = np.array([-epsilon - math.log1p(math.exp(-epsilon))])
    return -2 * float(normal_quantile(level)[0]) * (1 + 1e-14)


def _rho_of_values(low: Fraction, high: Fraction, failure: float, missing: float) -> Fraction:
    """Return a zCDP parameter of pairs whose finite losses are in [low, high] [ZC-8].

    It is for the normalized finite part. Arguments are as in `FiniteLoss`.
    """
    moved = math.log1p(-missing) - math.log1p(-failure)
    # Each logarithm errs by 2 units, and their difference by one relative unit: 3 units.
    # slack: counted
    slack = Fraction(16 * UNIT * (abs(math.log1p(-missing)) + abs(math.log1p(-failure))))
    most = max(abs(low + Fraction(moved)), abs(high + Fraction(moved))) + slack
    return min(pure_rho(most), bounded_range_rho(high - low))


def _close(a: FiniteLoss, b: FiniteLoss) -> bool:
    """Return True if two losses are equal up to the last bits of their logarithms."""
    return (
        a.index == b.index
        and a.failure == b.failure
        and np.allclose(a.log_p, b.log_p, rtol=0, atol=1e-15 * (1 + abs(float(a.supremum))))
    )


def response_loss(epsilon: Fraction, categories: int = 2, failure: float = 0.0) -> FiniteLoss:
    """Return the loss of randomized response, whose odds of truth to another answer are e^epsilon.

    Args:
        epsilon: exact, above 0.
        categories: number of answers, at least 2. The two hypotheses are two of them.
        failure: probability that everything is revealed instead, in [0, 1). With two categories,
            this pair dominates all (epsilon, failure)-DP mechanisms (Kairouz, Oh and Viswanath
            2015).
    """
    e = float(epsilon)
    log_total = e + math.log1p((categories - 1) * math.exp(-e)) - math.log1p(-failure)
    others = [] if categories == 2 else [math.log(categories - 2) - log_total]
    index = (-1, 1) if categories == 2 else (-1, 0, 1)
    log_p = (-log_total, *others, e - log_total)
    return FiniteLoss(epsilon, index, log_p, failure, failure, response_rho(epsilon, categories))


def discrete_laplace_loss(scale: Fraction, shift: int) -> FiniteLoss:
    """Return the loss of discrete Laplace noise ~ e^{-|x| / scale}, moved by ``shift`` >= 1.

    It is shift / scale at x <= 0, -shift / scale at x >= shift, and (shift - 2x) / scale between.
    """
    b = float(scale)
    log_total = math.log1p(math.exp(-1 / b))  # log of (1 + r), r = e^{-1/scale}
    log_gap = math.log(-math.expm1(-1 / b))  # log of (1 - r)
    between = [log_gap - log_total - x / b for x in range(shift - 1, 0, -1)]
    index = tuple(range(-shift, shift + 1, 2))
    log_p = (-shift / b - log_total, *between, -log_total)
    return FiniteLoss(1 / scale, index, log_p, known_rho=discrete_laplace_rho(scale, shift))


@dataclass(frozen=True)
class OffLatticeLoss(_ValuesLoss):
    """Represent a loss with finitely many values that need not be on a lattice.

    Args:
        values: the finite values of the loss, increasing, at least one. Each counts as rounded: it
            errs by at most 4 rounding units of |value|.
        log_p: logarithms of P(L = value), same length, rounded from a distribution whose finite
            part has the sum 1 - failure. The Q-masses are p e^-value.
        failure: P(L = inf), in [0, 1).
        missing: Q-mass of outcomes that P cannot produce (the infinite mass of the reverse).
        masses: the exact masses of the values under P and under Q, if known. They do not affect
            equality.
        known_rho: as for `FiniteLoss`.
    """

    values: tuple[float, ...]
    log_p: tuple[float, ...]
    failure: float = 0.0
    missing: float = 0.0
    masses: tuple[tuple[Fraction, Fraction], ...] = field(default=(), compare=False, repr=False)
    known_rho: Fraction | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.log_p):
            raise ValueError(
                f"values and log_p have {len(self.values)} and {len(self.log_p)} entries; "
                "they must have the same number, at least 1"
            )
        if any(b <= a for a, b in zip(self.values, self.values[1:], strict=False)):
            raise ValueError(f"values = {self.values!r} must increase; merge equal ones first")
        for name, mass, log_mass in (
            ("failure", self.failure, self.log_p),
            ("missing", self.missing, [p - v for p, v in self._pairs]),
        ):
            total = check.between(name, mass, 0.0, 1.0) + math.fsum(map(math.exp, log_mass))
            if abs(total - 1) > 1e-9:
                raise ValueError(f"the masses together with {name} = {mass!r} are {total!r}, not 1")

    @property
    def costly(self) -> bool:
        """Return True if there are many values, because each is a term of K."""
        return len(self.values) > 400

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.log_p, self.values, strict=True))

    @property
    def supremum(self) -> Fraction:
        """Return the largest finite value, rounded up."""
        top = self.values[-1]
        return Fraction(top if top == 0 else up(top + PLACE_ERROR * abs(top), 1))

    @property
    def rounded(self) -> bool:
        """Return True: the values are rounded logarithms."""
        return True

    @property
    def rho(self) -> float:
        """Return rho of the normalized finite part: known, or implied by its values."""
        if self.known_rho is not None:
            return above(self.known_rho)
        slack = Fraction(2 * PLACE_ERROR * self._largest)
        low, high = Fraction(self.values[0]) - slack, Fraction(self.values[-1]) + slack
        return above(_rho_of_values(low, high, self.failure, self.missing))

    def reverse(self) -> OffLatticeLoss:
        """Return the reverse: values change sign, and the masses are those of Q."""
        values = tuple(-v for v in reversed(self.values))
        log_q = tuple(p - v for p, v in reversed(self._pairs))
        # A difference of two logarithms errs by 2 relative units of each and by one of the result.
        # Losses that differ by no more count as equal: every engine allows 8 units of both.
        slack = 8 * UNIT * (1 + self._largest + float(np.max(np.abs(self.log_p))))  # slack: counted
        if (
            self.failure == self.missing
            and np.allclose(values, self.values, rtol=0, atol=PLACE_ERROR * self._largest)
            and np.allclose(log_q, self.log_p, rtol=0, atol=slack)
        ):
            return self
        masses = tuple((q, p) for p, q in reversed(self.masses))
        return OffLatticeLoss(values, log_q, self.missing, self.failure, masses, self.known_rho)

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        return np.array(self.values), np.array(self.log_p)

    def _tilt_weights(self, tilt: float) -> tuple[float, Array]:
        """Return K(tilt) and the tilted weights, with the sum 1."""
        value, log_p = self._arrays
        exponent = log_p + tilt * value
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        return top + math.log(total), weight / total

    def log_mgf(self, z: Array) -> Array:
        # K(z) as the base class does. On a line, share the factors of the exponentials.
        z = np.atleast_1d(z)
        if not np.iscomplexobj(z):
            return super().log_mgf(z)
        k, weight = self._tilt_weights(float(z[0].real))
        return k + log1p(wave_sum(self._arrays[0], weight, np.imag(z)))

    def mgf_rounding(self, z: Array) -> Array:
        # A few units per exponent, plus the errors of the values and of the waves.
        z = np.atleast_1d(z)
        value, log_p = self._arrays
        each = 2 * (PLACE_ERROR * self._largest * np.abs(z))
        # slack: k_of_a_loss_with_any_values
        each = each + 4 * UNIT * (8 + len(value) + float(np.abs(log_p).max()))
        each = each + 4 * UNIT * np.abs(np.real(z)) * self._largest  # slack: counted
        if np.iscomplexobj(z):
            _, weight = self._tilt_weights(float(z[0].real))
            each = each + rounding(value, weight, np.imag(z))
        return each

    def dots(self, tilt: float, step: float) -> Discretization:
        """Return the values with the weights p e^{tilt v} / e^{K(tilt)}."""
        value, log_p = self._arrays
        k, weight = self._tilt_weights(tilt)
        size = float(np.max(np.abs(log_p) + np.abs(tilt * value))) + abs(k)
        return Discretization(
            value,
            weight,
            tilt,
            k,
            0.0,
            # slack: atoms_of_a_loss_with_any_values
            (2 * size + 16) * UNIT,
            PLACE_ERROR * self._largest,
        )

    def sum_size(self, count: int, *, truncated: bool = False) -> float:
        # The number of unordered draws of values. Without powers, count ordered draws.
        if not self._has_powers(count):
            return float(len(self.values)) ** count if count <= 8 else math.inf  # pair by pair
        return ways(count, len(self.values))

    def sum_atoms(self, count: int, tilt: float, least: float) -> Discretization:
        # Multinomial weights, or pairwise sums if a mass is too small for powers.
        if not self._has_powers(count):
            return added([self.dots(tilt, 1.0)] * count, tilt)
        value, log_p = self._arrays
        place = PLACE_ERROR * self._largest
        return multinomial(value, 1.0, log_p, count, tilt, place, math.log1p(-self.failure))

    def _has_powers(self, count: int) -> bool:
        return count > 1 and min(self.log_p) >= LEAST_LOG_MASS


def finite_loss(p: Sequence[Fraction], q: Sequence[Fraction]) -> OffLatticeLoss | None:
    """Return the loss of two finite distributions over the same outcomes; None if none is shared.

    Outcomes whose losses are the same float are merged.

    Args:
        p, q: exact probabilities of the outcomes under P and under Q.
    """
    both = [(a, b) for a, b in zip(p, q, strict=True) if a and b]
    shared = sorted(both, key=lambda outcome: outcome[0] / outcome[1])
    if not shared:
        return None
    while True:
        merged: list[tuple[Fraction, Fraction]] = []
        values: list[float] = []
        for a, b in shared:
            here = exact_log(a / b)
            if merged and here <= values[-1]:
                x, y = merged[-1]
                merged[-1] = (x + a, y + b)
                values[-1] = exact_log(merged[-1][0] / merged[-1][1])
            else:
                merged.append((a, b))
                values.append(here)
        if len(merged) == len(shared):
            break
        shared = merged
    failure, missing = 1 - sum(a for a, _ in merged), 1 - sum(b for _, b in merged)
    log_p = tuple(exact_log(a) for a, _ in merged)
    # Masses of infinite loss err by a unit, but no loss with finite values has all mass there.
    alone = [min(float(mass), math.nextafter(1, 0)) for mass in (failure, missing)]
    return OffLatticeLoss(tuple(values), log_p, alone[0], alone[1], tuple(merged))


def exact_log(x: Fraction) -> float:
    """Return log x to relative accuracy, also near 1 and for x beyond the range of floats."""
    if Fraction(1, 2) < x < 2:
        return math.log1p(float(x - 1))
    if Fraction(1, 10**300) < x < 10**300:
        return math.log(float(x))
    # Logarithms of a long numerator and denominator would cancel.
    power = x.numerator.bit_length() - x.denominator.bit_length()
    return power * math.log(2) + math.log(float(x / Fraction(2) ** power))
