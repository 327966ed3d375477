"""Represent a loss between two others: one that dominates it, and one that it dominates.

If several different releases see one sample, their losses are added before the sampling. This sum
is rounded to a grid, up or down (`numerics.discretization`). Domination survives each operation
that treats both measures alike: mixing, sampling, composition [SA-6].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import singledispatch

import numpy as np

from neyman.curves.losses.loss import Loss, Part
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT, Atoms, common_step, compose
from neyman.numerics.canonical_order import order_key
from neyman.numerics.discretization import Discretization, contract, spread

EXACT_POINTS = 4096  # most points for convolution without a Fourier transform

Parts = tuple[tuple[Part, int], ...]


@dataclass(frozen=True)
class ComposedLattice(Loss):
    """Represent the sum of independent losses as one loss on a lattice.

    Args:
        parts: losses with their counts, in canonical order.
        side: 1 for a lattice that dominates the sum, -1 for one that the sum dominates, 0 for the
            sum itself (`ComposedLattice.exact`).
    """

    parts: Parts
    side: int

    @staticmethod
    def exact(parts: Parts) -> ComposedLattice | None:
        """Return the exact sum if it has few points on one lattice of all parts, else None."""
        if any(not isinstance(loss, Loss) or loss.step is None for loss, _ in parts):
            return None
        joint = ComposedLattice(parts, 0)
        step = joint.step
        points = sum(
            n * len(loss.atoms(0.0)) * (loss.step or step) / step
            for loss, n in laws(parts)
            if n <= EXACT_POINTS
        )
        few = points <= EXACT_POINTS and all(n <= EXACT_POINTS for _, n in parts)
        return joint if few else None

    @property
    def infinite(self) -> float:
        masses = [(loss.infinite, n) for loss, n in self.parts if loss.infinite]
        return -math.expm1(math.fsum(n * math.log1p(-m) for m, n in masses))

    @property
    def supremum(self) -> Fraction | float:
        """Return the largest finite loss of the sum."""
        return sum((n * loss.supremum for loss, n in self.parts), Fraction(0))

    @property
    def step(self) -> Fraction:
        """Return the parts' common step, or the step of a grid to which they are rounded."""
        return _step(self)

    @property
    def rho(self) -> float:
        return math.fsum(n * loss.rho for loss, n in self.parts)

    @property
    def mu(self) -> float:
        """Return the root of the sum of the parts' squared mu."""
        return math.sqrt(math.fsum(n * loss.mu**2 for loss, n in self.parts))

    def reverse(self) -> ComposedLattice:
        return _reverse_lattice(self)

    def log_mgf(self, z: Array) -> Array:
        return sum((n * loss.log_mgf(z) for loss, n in self.parts), np.zeros(np.shape(z)))

    def mgf_rounding(self, z: Array) -> Array:
        """Return the sum of the parts' rounding errors. It is used only if ``side`` is 0."""
        return sum((n * loss.mgf_rounding(z) for loss, n in self.parts), np.zeros(np.shape(z)))

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        total = np.zeros((3, len(tilts)))
        for loss, n in self.parts:
            total += n * np.array(loss.moments(tilts))
        return total[0], total[1], total[2]

    def atoms(self, tilt: float) -> Atoms:
        """Return the weights of the tilted sum.

        Rounding errors of the convolution go to the safe side.
        """
        return _atoms(self, tilt)

    def dots(self, tilt: float, step: float) -> Discretization:
        return Discretization.of(self.atoms(tilt), tilt)


@array_cache
def _reverse_lattice(joint: ComposedLattice) -> ComposedLattice:
    parts = tuple(sorted(((loss.reverse(), n) for loss, n in joint.parts), key=order_key))
    reverse = ComposedLattice(parts, joint.side)
    return joint if reverse == joint else reverse


@array_cache
def _step(joint: ComposedLattice) -> Fraction:
    steps = [loss.step for loss, _ in laws(joint.parts)]
    deviation = math.sqrt(float(joint.moments(np.zeros(1))[2][0]))
    reach = min(float(joint.supremum + joint.reverse().supremum), 80 * deviation)
    grid = _align_step(joint, reach / (1 << 14))  # about 16,000 places
    if any(s is None for s in steps):
        return grid
    common = common_step([s for s in steps if s is not None])
    return common if joint.side == 0 or 4 * common >= grid else grid


def _align_step(joint: ComposedLattice, grid: float) -> Fraction:
    """Return a step near ``grid`` that puts the largest bounded loss just above a grid point.

    Laplace pairs have half of their mass there. The lower side rounds it down by a distance of
    second order in the step. On other grids, the distance is of first order.
    """
    tops = [float(loss.supremum) for loss, _ in joint.parts]
    top = max((t for t in tops if 2 * grid <= t < math.inf), default=0.0)
    if not top:
        return Fraction(grid)
    return Fraction(top / (2 * round(top / (2 * grid)) + grid / 4))


@array_cache
def _atoms(joint: ComposedLattice, tilt: float) -> Atoms:
    total = _round_sum(joint, tilt)
    weight = np.maximum(total.weight + joint.side * total.absolute, 0.0)
    if joint.side < 0:
        weight = weight * _shrunk(joint)
    # A mass that rounding moves up is slightly too small under Q, and a mass moved down slightly
    # too large. A place errs by 2 relative units. The excess of `spread` is less than the unit per
    # atom that ``relative`` includes.
    # slack: counted
    place = 4 * UNIT * (64 * float(joint.step) + float(np.abs(total.points()[[0, -1]]).max()))
    relative = total.relative + (place if joint.side else 0.0)
    return replace(total, weight=weight, absolute=0.0, relative=relative)


def _round_sum(joint: ComposedLattice, tilt: float) -> Atoms:
    """Return the tilted sum on its lattice, exact or rounded up or down, as ``joint.side`` says."""
    step = joint.step
    parts = laws(joint.parts)
    if all(loss.step is not None and loss.step / step % 1 == 0 for loss, _ in parts):
        return compose([(loss.atoms(tilt), n) for loss, n in parts])
    h = float(step)
    # `contract` merges cells that end in the middle between two places [DI-2].
    dots = [(loss.dots(tilt, h if joint.side > 0 else h / 2), n) for loss, n in parts]
    if joint.side > 0:
        return compose([(spread(d, h), n) for d, n in dots])
    return compose([(contract(d, h), n) for d, n in dots])


@array_cache
def _shrunk(joint: ComposedLattice) -> float:
    """Return a factor that limits Q to mass 1, because rounding losses down increases Q.

    With it, the lower side stays dominated at every epsilon, even in a mixture that includes Q.
    """
    atoms = _round_sum(joint, -1.0)
    total = float((atoms.weight + atoms.absolute).sum()) + atoms.tail
    # NumPy's pairwise sum errs by 40 units, a power by 2, and the other operations by one each.
    # slack: counted
    return min(math.exp(-atoms.log_scale) / total, 1.0) * (1 - atoms.relative) * (1 - 64 * UNIT)


@dataclass(frozen=True)
class LossBracket(Part):
    """Represent a loss between two others, in Blackwell's order.

    Compositions with a bracket are computed twice (`BracketProfile`). The bracket's own attributes
    are those of the upper loss. Only K at real z, and its rounding, use both.

    Args:
        lower: a loss that this one dominates.
        upper: a loss that dominates this one.
        how: describes the two losses in words.
    """

    lower: Part
    upper: Part
    how: str = "between two grids"

    @property
    def infinite(self) -> float:
        return self.upper.infinite

    @property
    def supremum(self) -> Fraction | float:
        return self.upper.supremum

    @property
    def rho(self) -> float:
        return self.upper.rho

    @property
    def mu(self) -> float:
        return self.upper.mu

    @property
    def total_variation(self) -> float:
        """Return the total variation of the upper loss."""
        return self.upper.total_variation

    def reverse(self) -> LossBracket:
        """Return the bracket of (Q, P), from the reverses of the lower and upper losses.

        It is valid because a pair that dominates (P, Q) also dominates (Q, P) in reversed order.
        """
        lower, upper = self.lower.reverse(), self.upper.reverse()
        same = lower == self.lower and upper == self.upper
        return self if same else LossBracket(lower, upper, self.how)

    def log_mgf(self, z: Array) -> Array:
        """Return the middle of the bounds on K for real z, else K of the upper loss."""
        if np.iscomplexobj(z):
            return self.upper.log_mgf(z)
        low, high = self._ends(np.atleast_1d(z).astype(float))
        return 0.5 * (low + high)

    def mgf_rounding(self, z: Array) -> Array:
        # Half the distance of the ends at Re z, plus a unit for each end and the mean.
        low, high = self._ends(np.real(np.atleast_1d(z)).astype(float))
        return 0.5 * (high - low) + 2 * UNIT * (np.abs(low) + np.abs(high))  # slack: counted

    def _ends(self, z: Array) -> tuple[Array, Array]:
        """Return a lower and an upper bound on K(z) for real z, shape (n,) each.

        e^{K(z)} is a convex divergence for z > 0 and z < -1, and concave between, so it is between
        its values for both losses.
        """
        both = [(loss.log_mgf(z), loss.mgf_rounding(z)) for loss in (self.lower, self.upper)]
        low = np.minimum.reduce([k - error for k, error in both])
        return low, np.maximum.reduce([k + error for k, error in both])

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return self.upper.moments(tilts)


def laws(parts: Parts) -> tuple[tuple[Loss, int], ...]:
    """Return the parts, after checking that each is one distribution.

    Raises:
        TypeError: a part is a bracket, or a bound on Renyi divergences.
    """
    every: list[tuple[Loss, int]] = []
    for part, count in parts:
        if not isinstance(part, Loss):
            raise TypeError(
                f"a {type(part).__name__} is not one distribution: select an engine for it"
            )
        every.append((part, count))
    return tuple(every)


def sides(parts: Parts) -> tuple[Parts, Parts]:
    """Return the parts twice: with the lower loss of each bracket, and with the upper loss."""
    both = [(*ends(x), n) for x, n in parts]
    return tuple((low, n) for low, _, n in both), tuple((high, n) for _, high, n in both)


@singledispatch
def ends(part: Part) -> tuple[Part, Part]:
    """Return the lower and the upper loss of a bracket. Return any other part twice."""
    return part, part


@ends.register
def _(part: LossBracket) -> tuple[Part, Part]:
    return part.lower, part.upper
