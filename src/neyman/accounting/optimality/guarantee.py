"""Bound a guarantee's trade-off function for k changed records by closed forms below it.

Let f be the guarantee's trade-off function, and f_k the one for datasets that differ in k records.
A lower bound on an error needs the affinity of f_k, the chi-square divergence of neighbors, and the
smallest level at which a test under f_k has a given power. Each is monotone in f. So the code uses
curves below f whose f_k have closed forms [OP-3].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.rounding import up


@dataclass(frozen=True)
class Limits:
    """Hold the rounding allowance and the ranges of the closed forms."""

    rounding_share: float = 1e-9  # relative, more than the rounding of each bound in this package
    largest_mu: float = 8.0  # beyond it an affinity is below 4e-4 and counts as 0
    largest_loss: float = 700.0


LIMITS = Limits()
DOWN, UP = 1 - LIMITS.rounding_share, 1 + LIMITS.rounding_share
"""Factors that keep a lower and an upper bound safe against rounding."""
TRAPEZOID_STEP = 0.1  # of the rule for the affinity of two normal distributions [OP-2]
NODES = np.arange(-8.5, 8.5 + TRAPEZOID_STEP / 2, TRAPEZOID_STEP)
WEIGHTS = TRAPEZOID_STEP * np.exp(-NODES * NODES / 2) / math.sqrt(2 * math.pi)
DELTAS = (1e-3, 1e-6, 1e-9)  # deltas used for a curve without other closed forms


@dataclass(frozen=True)
class Guarantee:
    """Hold guarantees with closed forms that a trade-off function implies, for one replaced record.

    Args:
        chi_square: an upper bound on the chi-square divergence of neighbors; may be inf.
        pure: a pure epsilon; may be inf.
        mu: a GDP parameter; may be inf.
        rho: a zCDP parameter; may be inf.
        approximate: pairs (epsilon, delta).
        curve: the trade-off function itself, if it holds for one replaced record.
    """

    chi_square: float
    pure: float
    mu: float
    rho: float
    approximate: tuple[tuple[float, float], ...]
    curve: Tradeoff | None = None

    @staticmethod
    def of(budget: Described, steps: int = 1) -> Guarantee:
        """Return the closed forms of a budget.

        Args:
            steps: 2 under add-remove, where replacing a record is a removal and an addition, else
                1.

        Raises:
            ValueError: the curve rests on a claim of another library.
        """
        f = check.described("budget", budget).tradeoff()
        if f.sources:
            raise ValueError(
                f"budget: the curve rests on a claim ({f.sources[0]}), so no bound is proven; "
                "describe the mechanism, or give its curve"
            )
        f = f.symmetric() if f.ordered else f
        pure, mu = up(float(f.exact_pure())), up(f.gdp_above())
        single = len(f.directions) == 1
        rho = min(up(f.zcdp().upper) if single else math.inf, mu * mu / 2)
        if pure < math.inf:
            rho = min(rho, pure * math.tanh(pure / 2))
        chi = _moment(f, 2)
        if steps == 2:
            # By Hoelder the second moment of two steps is at most sqrt(moment 4 x moment 3).
            chi = math.sqrt((1 + _moment(f, 4)) * (1 + _moment(f, 3))) - 1
            pure, mu, rho = 2 * pure, 2 * mu, 4 * rho
        chi = min(chi, _expm1(mu * mu), _expm1(2 * rho))
        if pure < LIMITS.largest_loss:
            chi = min(chi, 4 * math.sinh(pure / 2) ** 2)
        # For a larger mu, other forms are also used.
        weak = math.isinf(pure) and min(mu, math.sqrt(2 * rho)) > 2.0
        pairs = _pairs(f) if weak else []
        if steps == 2:
            twice = np.array([2.0])
            pairs = [(2 * e, float(_group_delta(twice, e, d)[0])) for e, d in pairs]
        return Guarantee(chi * UP, pure, mu, rho, tuple(pairs), f if steps == 1 else None)

    @property
    def bit(self) -> float:
        """Return an upper bound on 1 - B, where B is the affinity of the trade-off function.

        1 - B bounds the information about a fair bit in one report.
        """
        bit = up(1 - float(self.affinity(np.ones(1))[0]))
        if len(self.approximate) > 1 and self.curve is not None:  # no closed form is exact
            bit = min(bit, up(1 - self.curve.affinity().lower))
        return bit

    def affinity(self, sizes: Array) -> Array:
        """Return lower bounds on the affinities B(f_k) for each number k in ``sizes`` [OP-1, OP-3].

        Datasets that differ in k records have the trade-off function f_k.
        """
        k = np.asarray(sizes, dtype=float)
        best = np.where(k == 0, 1.0, np.where(k == 1, 1 - min(self.chi_square, 4.0) / 4, 0.0))
        if self.pure < math.inf:
            best = np.maximum(best, _sech_squared(k * self.pure / 2))
        if self.mu < math.inf:
            best = np.maximum(best, normal_affinity(k * self.mu))
        if self.rho < math.inf:
            power = np.minimum(k * k * self.rho, 100.0)
            best = np.maximum(best, np.maximum(np.exp(-power), 1 - np.expm1(2 * power) / 4))
        for epsilon, delta in self.approximate:
            share = _group_delta(k, epsilon, delta)
            best = np.maximum(best, (1 - share) * _sech_squared(k * epsilon / 2))
        return best * DOWN

    def log_level(self, power: float, size: int) -> float:
        """Return a lower bound on the log of the smallest level at which a test has this power.

        The test distinguishes datasets that differ in ``size`` records.
        """
        best = -math.inf
        if self.mu < math.inf and 0 < power < 1:
            log_level = float(log_ndtr(ndtri(power) - size * self.mu))
            best = log_level * UP - LIMITS.rounding_share
        pairs = self.approximate
        if self.pure < math.inf:
            pairs = (*pairs, (self.pure, 0.0))
        for epsilon, delta in pairs:
            share = float(_group_delta(np.array([float(size)]), epsilon, delta)[0])
            if power > share:
                best = max(best, math.log((power - share) * DOWN) - size * epsilon)
        return best


def normal_affinity(mu: Array) -> Array:
    """Return the affinity of the mu-GDP curve by trapezoids, or 0 for large mu [OP-2].

    It is E[e^{-mu^2/8} / cosh(mu Z / 2)] for a standard normal Z.
    """
    asked = np.minimum(mu, LIMITS.largest_mu)
    values = (WEIGHTS / np.cosh(np.multiply.outer(asked, NODES / 2))).sum(axis=-1)
    return np.where(
        mu <= LIMITS.largest_mu, np.minimum(np.exp(-asked * asked / 8) * values, 1.0), 0.0
    )


def _sech_squared(x: Array) -> Array:
    return np.cosh(np.minimum(x, 300.0)) ** -2.0


def _expm1(x: float) -> float:
    return math.expm1(x) if x < LIMITS.largest_loss else math.inf


def _group_delta(k: Array, epsilon: float, delta: float) -> Array:
    """Return delta (e^{k epsilon} - 1) / (e^epsilon - 1), at most 1.

    It is the delta at k epsilon for datasets that differ in k records.
    """
    if delta == 0:
        return np.zeros_like(k)
    if epsilon == 0:
        return np.minimum(k * delta, 1.0)
    one = math.expm1(min(epsilon, LIMITS.largest_loss))
    grown = np.expm1(np.minimum(k * epsilon, LIMITS.largest_loss)) / one
    return np.minimum(delta * grown * UP, 1.0)


def _moment(f: Tradeoff, order: int) -> float:
    """Bound E_Q[(dP/dQ)^order] - 1 from above, for every pair (P, Q) with a curve above f [OP-3].

    If f is the convex hull of several curves, the pair's curve may be above none of these, so their
    values are added.
    """
    ends = (f.part(c).renyi(order).upper for c in f.directions)
    return math.fsum(_expm1((order - 1) * end) for end in ends)


def _pairs(f: Tradeoff) -> list[tuple[float, float]]:
    """Return pairs (epsilon, delta) for which the curve f implies (epsilon, delta)-DP."""
    largest = max(c.supremum for c in f.directions)
    if math.isfinite(largest):
        pairs = [(up(float(largest)), up(max(float(c.infinite) for c in f.directions)))]
    else:
        pairs = [(f.epsilon(delta=d).upper, d) for d in DELTAS]
    return [(epsilon, delta) for epsilon, delta in pairs if math.isfinite(epsilon) and delta < 1]
