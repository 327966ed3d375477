"""Describe a search that releases only the best of a random number K of private runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.tradeoff.enclosure import enclosed
from neyman.curves.tradeoff.guarantees import renyi
from neyman.curves.tradeoff.piecewise_linear import (
    GUESSING,
    Polygon,
    composition_between,
    hull,
    mirrored,
    shortened,
)
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.tuning.runs import Runs
from neyman.mechanisms.tuning.winner_curve import weights, winner
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.bound import Bound
from neyman.numerics.relation import Relation
from neyman.numerics.rounding import above

ORDERS = (1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)


@dataclass(frozen=True)
class Limits:
    """Limit the order of a divergence from below, and the relative error of a sum."""

    relative_rounding: float = 1e-11  # relative error of sums of a few bounds


LIMITS = Limits()


def select_best(mechanism: Mechanism, runs: Runs) -> SelectBest:
    """Run a mechanism K times, and release the output with the best score.

    K is random and secret: ``runs.draw()`` draws it. The score is a part or a function of the
    output of a run. If the score reads private records, ``mechanism`` must include its noise. Let
    pi(x) be the largest power at level x of a test between neighbors on one run, in the worse of
    the two orders of the neighbors. Let (P, Q) be a pair of discrete distributions with this power,
    with masses p and q at an outcome, and let psi(x) = E[x^K]. Then

        delta(log t) <= sum over outcomes of max over x of (psi'(pi(x)) p - t psi'(x) q)_+

    in both orders, for t >= 1, with x in [0, 1]. This holds for every score, and for every
    rule for ties that does not use the data. If K is 0, the release is visibly empty.

    Args:
        mechanism: one run, with its score.
        runs: the distribution of K, a `Runs`.

    Returns:
        A mechanism whose curve is a proven bound on the winner's curve.

    Raises:
        TypeError: the distribution of K has no proven bound, such as a fixed number.
        ValueError: a run may reveal a record outright, so it has no finite Renyi divergence.

    Examples:
        >>> import neyman as ny
        >>> one = ny.Gaussian(sigma=4)  # a training with its noisy score
        >>> best = ny.select_best(one, runs=ny.Runs.geometric(mean=10))
        >>> round(float(best.tradeoff().epsilon(delta=1e-6)), 2)
        1.56
        >>> round(float((one * 10).tradeoff().epsilon(delta=1e-6)), 2)  # ten runs, all released
        3.75

    Source: [BS-2]; Papernot and Steinke 2022 (the setting, and Renyi bounds).
    """
    return SelectBest(mechanism, runs)


@dataclass(frozen=True, repr=False)
class SelectBest(Mechanism):
    """Release the best of a random number of runs. Build it with `select_best`."""

    mechanism: Mechanism
    runs: Runs

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"mechanism = {self.mechanism!r} must be a mechanism: one run")
        if not isinstance(self.runs, Runs):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"runs = {self.runs!r} must be a distribution of the secret number of runs with a "
                "proven bound, such as ny.Runs.geometric(mean=10) or ny.Runs.poisson(mean=10); for "
                "a fixed number of runs charge all of them: mechanism * runs"
            )
        for leaf, _ in self.mechanism.leaves:
            # A divergence is finite here if it is finite at any order above 1.
            if not math.isfinite(divergence(leaf, 1.01)):
                raise ValueError(
                    f"mechanism = {self.mechanism!r}: the Renyi divergence of {leaf!r} is infinite "
                    "at every order above 1, because it may reveal a record outright; no bound is "
                    "claimed for the best of several such runs"
                )

    @property
    def neighboring(self) -> Relation:
        """Return the relation of one run."""
        return self.mechanism.neighboring

    @cached_property
    def _base(self) -> Polygon:
        """Return a polygon above the power of one run, in both orders and for all changes."""
        directions = self.mechanism.tradeoff().directions
        each = [enclosed(losses)[1] for losses in directions]
        return hull(corner for one in each for way in (one, mirrored(one)) for corner in way)

    @cached_property
    def _losses(self) -> tuple[Composition, ...]:
        if self._base == GUESSING:
            return (Composition(),)
        polygon = winner(self._base, self.runs)
        polygon = shortened((polygon, polygon))[1]
        return (composition_between((polygon, polygon)),)

    def losses(self) -> tuple[Composition, ...]:
        """Return the loss of a pair of finite distributions whose power is the bound."""
        return self._losses

    def renyi(self, order: float | Fraction) -> Bound:
        """Bound the Renyi divergence of this order by ``upper``. ``lower`` is 0.

        The bound is the smallest value, over this order and larger listed orders a, of D_a + max
        over x of (a log psi'(pi(x)) - (a - 1) log psi'(x)) / (a - 1) [BS-4], and of theorem 2 of
        Papernot and Steinke [BS-5]. For Poisson, the chance of an empty release is added to the
        moment.

        Args:
            order: at least 1. For 1, larger orders give the bound.

        Raises:
            ValueError: the order is below 1.
        """
        least = check.exact("order", order)
        if least < 1:
            raise ValueError(f"order = {order!r} must be at least 1")
        orders = {least, *(Fraction(a) for a in ORDERS if a > least)} - {Fraction(1)}
        bound = min(self._at(a) for a in orders)
        pure = self.tradeoff().exact_pure()
        return Bound(0.0, min(bound, above(pure)), "upper", "divergence of one run, and of K")

    def renyi_bounds(self) -> Tradeoff:
        """Return the guarantee of the Renyi bounds alone, which composes in Renyi divergence.

        The curve of this mechanism itself is tighter.
        """
        return renyi({a: check.exact("bound", self.renyi(a).upper) for a in ORDERS})

    def _at(self, order: Fraction) -> float:
        one = divergence(self.mechanism, order)
        if one == math.inf:
            return math.inf
        a, b = self._weights
        z = float(order) - 1
        ours = one + float(np.max(a + z * (a - b))) / z
        if not self.runs.poisson_law:
            return _up(min(ours, one + self._theorem_bound(z)))
        # The empty release has the same mass under both distributions, and adds to the moment.
        return _up(float(np.logaddexp(-float(self.runs.mean), z * ours)) / z)

    def _theorem_bound(self, z: float) -> float:
        """Return how much more than one run the winner's divergence of order 1 + z may be [BS-5].

        Source: Papernot and Steinke 2022, theorem 2.
        """
        stop = math.log(self.runs.halting * (1 - LIMITS.relative_rounding))
        # same: stop / a -> stop * a: Safe: the published bound is larger, and the lesser of two
        # counts.
        each = [(1 - 1 / a) * divergence(self.mechanism, a) - stop / a for a in ORDERS]
        return (1 + float(self.runs.shape)) * min(each) + math.log(self.runs.mean) / z

    @cached_property
    def _weights(self) -> tuple[Array, Array]:
        return weights(self._base, self.runs)

    def rho(self) -> Fraction:
        """Return the smaller of a closed bound and the rho of the curve, rounded up.

        The closed bound is rho + c + 2 sqrt(rho log(E[K] + P(K = 0))), with the rho of one run and
        c = max of log(psi'(pi(x)) / psi'(x)) [BS-6].
        """
        if self._base == GUESSING:
            return Fraction(0)
        one, (a, b) = above(self.mechanism.rho()), self._weights
        more = math.log(float(self.runs.mean) + self.runs.none)
        proven = one + max(float(np.max(a - b)), 0.0) + 2 * math.sqrt(one * more)
        known = self.tradeoff().zcdp().upper
        return Fraction(min(_up(proven), known))

    def __repr__(self) -> str:
        return f"select_best({self.mechanism!r}, runs={self.runs!r})"


def _up(x: float) -> float:
    return max(x, 0.0) * (1 + LIMITS.relative_rounding) + LIMITS.relative_rounding


def divergence(mechanism: Mechanism, order: float | Fraction) -> float:
    """Bound the Renyi divergence of a mechanism by the sum over its parts."""
    return math.fsum(n * leaf.renyi(order).upper for leaf, n in mechanism.leaves)
