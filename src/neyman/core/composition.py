"""Independent losses of one ordered pair, added up: which engine answers for their sum."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neyman.core.bare import ZcdpLoss, ZcdpProfile
from neyman.core.closed import GaussianProfile, LaplaceProfile, PerfectProfile
from neyman.core.loss import GaussianLoss, LaplaceLoss, Loss
from neyman.numerics.atoms import UNIT, Atoms, common_step, compose
from neyman.numerics.contour import ContourProfile, node_count, saddle
from neyman.numerics.dots import contract, spread
from neyman.numerics.lattice import LatticeProfile
from neyman.numerics.profile import Profile

__all__ = ["Composition"]

GRID_POINTS = 1 << 17
EXACT_POINTS = 1 << 19


@dataclass(frozen=True)
class Composition:
    """The sum of independent losses, each with its count; equal losses are grouped.

    Build it with `Composition.of`, which puts the parts in their canonical order.
    """

    parts: tuple[tuple[Loss, int], ...] = ()

    @staticmethod
    def of(parts: Iterable[tuple[Loss, int]]) -> Composition:
        """Equal losses grouped, Gaussian losses added to one, in canonical order."""
        counts: Counter[Loss] = Counter()
        mu_squared, rho = [], Fraction(0)
        for loss, count in parts:
            if isinstance(loss, GaussianLoss):
                mu_squared.append(loss.mu_squared * count)
            elif isinstance(loss, ZcdpLoss):
                rho += loss.exact_rho * count
            else:
                counts[loss] += count
        if any(mu_squared):
            counts[GaussianLoss(math.fsum(mu_squared))] = 1
        if rho:
            counts[ZcdpLoss(rho)] = 1
        return Composition(tuple(sorted(((k, n) for k, n in counts.items() if n), key=repr)))

    def __add__(self, other: Composition) -> Composition:
        return Composition.of(self.parts + other.parts)

    def __mul__(self, count: int) -> Composition:
        return Composition.of((loss, n * count) for loss, n in self.parts)

    def reverse(self) -> Composition:
        """The sum of the reversed losses."""
        return Composition.of((loss.reverse(), n) for loss, n in self.parts)

    @property
    def infinite(self) -> float:
        """Mass of infinite loss."""
        masses = [(loss.infinite, n) for loss, n in self.parts if loss.infinite]
        if len(masses) == 1 and masses[0][1] == 1:
            return masses[0][0]
        kept = math.fsum(n * math.log1p(-mass) for mass, n in masses)
        return -math.expm1(kept)

    @property
    def supremum(self) -> Fraction | float:
        """Largest finite loss: exact, or inf."""
        return sum((n * loss.supremum for loss, n in self.parts), Fraction(0))

    @property
    def rho(self) -> float:
        """A proven zCDP parameter of the finite part: the sum of the parts'."""
        return math.fsum(n * loss.rho for loss, n in self.parts)

    @property
    def mu(self) -> float:
        """A proven GDP parameter of the finite part: the root of the sum of squares."""
        return math.sqrt(math.fsum(n * loss.mu**2 for loss, n in self.parts))

    def log_mgf(self, z: NDArray) -> NDArray:
        """K(z) of the sum."""
        total = np.zeros(z.shape, dtype=z.dtype)
        for loss, count in self.parts:
            total = total + count * loss.log_mgf(z)
        return total

    def mgf(self, z: NDArray) -> tuple[NDArray, NDArray]:
        """K(z) on one vertical line, and a bound on its absolute error.

        A part errs by e beside its |phi|, so the product of all is at most the product of
        (|phi| + e): the sum of log(1 + e / |phi|).
        """
        total, error = np.zeros(z.shape, dtype=z.dtype), np.zeros(z.shape)
        for loss, count in self.parts:
            k = loss.log_mgf(z)
            at_zero = float(np.real(loss.log_mgf(np.real(z[:1])))[0])
            decayed = np.exp(np.minimum(at_zero - np.real(k), 700.0))
            total = total + count * k
            error = error + count * np.log1p(loss.mgf_rounding(z) * decayed)
        return total, error + 4 * UNIT * np.abs(total)

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """K, mean and variance of the tilted sum: to steer by."""
        found = [(n, loss.moments(tilt)) for loss, n in self.parts]
        k, mean, variance = (math.fsum(n * m[i] for n, m in found) for i in range(3))
        return k, mean, variance

    def log_decay(self, tilt: float, u: float) -> float:
        """log of a bound on the tilted characteristic function from u on."""
        return math.fsum(n * loss.decay(tilt).log_bound(u) for loss, n in self.parts)

    @cached_property
    def profile(self) -> Profile:
        """The engine that suits these losses, ready to be asked."""
        losses = [loss for loss, _ in self.parts]
        if not losses:
            return PerfectProfile()
        if any(isinstance(loss, ZcdpLoss) for loss in losses):
            return self._bare()
        if len(self.parts) == 1:
            loss, count = self.parts[0]
            if isinstance(loss, GaussianLoss):
                return GaussianProfile(loss.mu)
            if isinstance(loss, LaplaceLoss) and count == 1:
                return LaplaceProfile(loss.exact_epsilon)
        if self._exact_points() <= EXACT_POINTS:
            return self._on_lattice(compose_exactly=True)
        if self._smooth():
            backward = self.reverse()
            return ContourProfile(
                self, self if backward == self else backward, (self.infinite, backward.infinite),
                (_above(self.supremum), _above(backward.supremum)),
                lambda: self._on_lattice(compose_exactly=False),
            )  # fmt: skip
        return self._on_lattice(compose_exactly=False)

    def _bare(self) -> Profile:
        known = [(loss, n) for loss, n in self.parts if not isinstance(loss, ZcdpLoss)]
        bare = next(loss for loss, _ in self.parts if isinstance(loss, ZcdpLoss))
        rest = Composition.of(known)
        return ZcdpProfile(bare.rho, rest.rho, rest.infinite)

    def _smooth(self) -> bool:
        """Whether the contour engine can certify its end where it is most often asked."""
        middle = min(1.0, 0.5 * float(self.supremum), 0.5 * float(self.reverse().supremum))
        return middle > 0 and node_count(self, middle) < math.inf

    def _reach(self) -> float:
        """About how far the sum's finite values reach under any tilt that is asked."""
        span = float(self.supremum + self.reverse().supremum)
        return min(span, 80 * math.sqrt(self.moments(0.0)[2]))

    def _exact_points(self) -> float:
        """Points of the exact common lattice; inf where there is none."""
        steps = [loss.step for loss, _ in self.parts]
        if any(s is None for s in steps):
            return math.inf
        step = common_step([s for s in steps if s is not None])
        return self._reach() / float(step)

    def _on_lattice(self, *, compose_exactly: bool) -> LatticeProfile:
        step = self._reach() / GRID_POINTS

        def exact(tilt: float) -> tuple[Atoms, Atoms]:
            whole = compose([(loss.atoms(tilt), n) for loss, n in self.parts])
            return whole, whole

        def between(tilt: float) -> tuple[Atoms, Atoms]:
            dots = [(loss.dots(tilt, step), n) for loss, n in self.parts]
            above = compose([(spread(d, step), n) for d, n in dots])
            return above, compose([(contract(d, step), n) for d, n in dots])

        # A larger tilt would cost accuracy in the exponents.
        largest = 1e6 / (1 + min(float(self.supremum), self._reach()))
        return LatticeProfile(
            exact if compose_exactly else between,
            lambda epsilon: saddle(self, epsilon, largest),
            self.infinite,
            _above(self.supremum),
            "exact lattice" if compose_exactly else "lattice, connecting the dots",
        )


def _above(value: Fraction | float) -> float:
    """The float at or just above an exact number."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)
