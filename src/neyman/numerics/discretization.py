"""Move the atoms of a loss distribution onto a grid, for safe upper or lower bounds.

A loss distribution is a pair of measures: weight p at loss l under P is weight p e^-l under Q.

- `spread` splits each atom between its two nearest grid points so that both measures keep their
  mass. The likelihood ratio varies more, so the result dominates (Doroshenko et al. 2022, "connect
  the dots"). Every delta computed from it is an upper bound, even after composition.
- `contract` mixes adjacent atoms until they are on the grid. Mixing outcomes is post-processing, so
  every delta computed from it is a lower bound. If two atoms cannot be mixed onto the grid, they
  are rounded down, which also lowers delta.

The error of both is of second order in the step. Rounding every loss up or down has an error of
first order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import LEAST_WEIGHT, UNIT, Atoms
from neyman.numerics.operations import CALL, cells, charge

ATOM_OPERATIONS = 100.0  # operations for each moved atom
# slack: counted
ATOM_ERROR = 64 * UNIT  # error of the few operations on each atom [DI-3]


@dataclass(frozen=True, slots=True, eq=False)
class Discretization:
    """Represent atoms at any losses: weight ``exp(log_scale) * weight`` at ``loss``, under a tilt.

    Args:
        loss: positions of the atoms, increasing, shape (n,).
        weight: non-negative weights, each with the factor e^{tilt loss}, shape (n,).
        tilt: any real number.
        log_scale: logarithm of the common factor.
        tail: bound on the total omitted weight.
        relative: bound on the relative error of each weight; one number, or shape (n,).
        place: bound on the error of each loss, beyond four rounding units (2^-53) of the largest.
    """

    loss: Array
    weight: Array
    tilt: float
    log_scale: float
    tail: float
    relative: float | Array
    place: float = 0.0

    @staticmethod
    def of(a: Atoms, tilt: float) -> Discretization:
        """Return the atoms of a lattice, without the lattice structure."""
        return Discretization(a.points(), a.weight, tilt, a.log_scale, a.tail, a.relative, a.drift)


def _gather_weights(
    index: NDArray[np.int64], weight: Array, step: float, dots: Discretization, terms: int = 0
) -> Atoms:
    """Add up the weights at each grid point ``index * step``. Take the other fields from ``dots``.

    ``terms``: number of terms, beyond 8, in each weight.
    """
    start = int(index.min())
    cells(int(index.max()) - start)
    total = np.bincount(index - start, weights=weight)
    # slack: many_masses_at_one_place
    relative = float(np.max(dots.relative)) + ATOM_ERROR + (len(index) + terms) * UNIT
    return Atoms(Fraction(step), Fraction(0), start, total, dots.log_scale, dots.tail, relative)


def spread(dots: Discretization, step: float) -> Atoms:
    """Return a dominating measure on the multiples of ``step``, under the same tilt [DI-1]."""
    charge(CALL + 3 * ATOM_OPERATIONS * len(dots.loss))
    low = np.floor(dots.loss / step)
    inside = np.clip(dots.loss - low * step, 0.0, step)
    up = -np.expm1(-inside) / -np.expm1(-step)
    # Moving more weight up than its share only increases delta. The distance from the place
    # below errs by the rounding of both.
    # slack: the_share_of_a_mass_that_moves_up
    up = np.minimum(up * (1 + ATOM_ERROR) + UNIT * (2 * np.abs(dots.loss) / step + 1), 1.0)
    index = low.astype(np.int64)
    weight = np.concatenate(
        [
            dots.weight * (1 - up) * np.exp(-dots.tilt * inside),
            dots.weight * up * np.exp(dots.tilt * (step - inside)),
        ]
    )
    # Weights that underflow are omitted, because such floats lose digits.
    share = np.concatenate([1 - up, up]) * (np.concatenate([dots.weight, dots.weight]) > 0)
    lost = LEAST_WEIGHT * float(np.count_nonzero((share > 0) & (weight < LEAST_WEIGHT)))
    atoms = _gather_weights(np.concatenate([index, index + 1]), weight, step, dots)
    return replace(atoms, tail=atoms.tail + lost)


def contract(dots: Discretization, step: float) -> Atoms:
    """Return a dominated measure on the multiples of ``step``, under the same tilt [DI-2]."""
    charge(CALL + ATOM_OPERATIONS * len(dots.loss))
    loss, weight, terms = _merge_cells(dots, 2 * step)
    if not len(loss):  # all weight is lost: nothing is claimed
        loss, weight = np.zeros(1), np.zeros(1)
    down = np.floor(loss / step).astype(np.int64)
    up = np.ceil(loss / step).astype(np.int64)
    floor_weight = weight * np.exp(dots.tilt * (down * step - loss))
    if len(loss) == 1:
        return _gather_weights(down, floor_weight, step, dots, terms)
    share = np.full(len(loss), 0.5)
    share[0] = share[-1] = 1.0
    lower, upper = slice(None, -1), slice(1, None)
    a, b = down[upper] * step, up[lower] * step  # the two grid places; mixing needs b < a
    gap = np.where(a > b, a - b, 1.0)
    # Masses without the tilt, relative to the place b. Mass at a is (P - Q e^b) / (1 - e^{b - a}),
    # with its two differences computed atom by atom.
    with np.errstate(over="ignore", invalid="ignore"):  # such pairs stay at the lower place
        p_low = share[lower] * weight[lower] * np.exp(-dots.tilt * (loss[lower] - b))
        p_up = share[upper] * weight[upper] * np.exp(-dots.tilt * (loss[upper] - b))
        high = p_low * -np.expm1(b - loss[lower]) + p_up * -np.expm1(b - loss[upper])
        high /= -np.expm1(-gap)
    # Moving less weight up than its share (rounding) only lowers delta.
    # slack: two_masses_that_are_mixed
    error = ATOM_ERROR + UNIT * (np.abs(a) + np.abs(b) + 1) / np.minimum(gap, 1.0)
    with np.errstate(over="ignore"):
        # slack: counted
        error += 8 * terms * UNIT * np.exp(8 * step)  # error of their place [DI-3]
    with np.errstate(invalid="ignore"):
        high -= (p_low + p_up) * error
        rest = p_low + p_up - high
    good = (a > b) & (high >= 0) & (rest >= 0) & np.isfinite(high)
    bad = ~good
    index = np.concatenate([up[lower][good], down[upper][good], down[lower][bad], down[upper][bad]])
    moved = np.concatenate(
        [
            rest[good],
            high[good] * np.exp(dots.tilt * gap[good]),
            (share * floor_weight)[lower][bad],
            (share * floor_weight)[upper][bad],
        ]
    )
    return _gather_weights(index, moved, step, dots)


def _merge_cells(dots: Discretization, width: float) -> tuple[Array, Array, int]:
    """Merge all atoms within each interval of this width into one atom. This is post-processing.

    Its weights under P and Q are sums.

    Returns:
        The losses, their weights, and the number of terms beyond 8 in the longest sum.
    """
    keep = dots.weight > 0
    loss, weight = dots.loss[keep], dots.weight[keep]
    cell = np.floor(loss / width + 0.25).astype(np.int64)  # cells with centers between places
    _, cell = np.unique(cell, return_inverse=True)
    p = np.bincount(cell, weights=weight)
    terms = max(int(np.bincount(cell).max(initial=0)) - 8, 0)
    center = np.bincount(cell, weights=weight * loss) / p
    away = loss - center[cell]
    with np.errstate(over="ignore", invalid="ignore"):
        untilted = weight * np.exp(-dots.tilt * away)
        mass = np.bincount(cell, weights=untilted)
        # log(P / Q) - center, where Q / P = 1 + E[e^-away - 1]: no cancellation of near equals.
        other = np.bincount(cell, weights=untilted * np.expm1(-away))
    # A cell whose mass underflows or overflows is left out: less weight only lowers
    # delta.
    good = (mass > 1e-290) & (p > 1e-290) & np.isfinite(mass) & np.isfinite(other)
    center, mass, other = center[good], mass[good], other[good]
    offset = -np.log1p(other / mass)
    return center + offset, mass * np.exp(dots.tilt * offset), terms
