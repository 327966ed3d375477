"""Sums of losses with atoms: on their common lattice, or sum by sum, or between two grids.

`exact_profile` answers where the losses share a lattice that is not too fine, or have few enough
sums; `dots_profile` for a few releases whose K is costly, and as an engine apart by which the
others are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.contour_line import saddle
from neyman.curves.profiles.lattice.lattice import LatticeProfile
from neyman.curves.profiles.profile import Engine, Profile
from neyman.curves.profiles.selection import register
from neyman.numerics.array_cache import array_cache
from neyman.numerics.atoms import Atoms, common_step, compose
from neyman.numerics.discretization import Discretization, contract, spread
from neyman.numerics.operations import CALL, charge
from neyman.numerics.power_sums import added
from neyman.numerics.rounding import above

GRID_POINTS = 1 << 17
MOST_MOVE = 5.0  # of the exponent within a cell of a coarse grid
EXACT_POINTS = 1 << 19  # of a common lattice
FEW_POINTS = 1 << 12  # of a common lattice with which no tilt is needed
FEW_SUMS = 1 << 14  # up to which sums are taken one by one even where there is a lattice
MOST_SUMS = 1 << 18
MOST_COUNTS = 1 << 23  # of values in all ways of a sum
LEAST_REACH = 1e-9  # of a sum whose deviation drowned
LEAST_WEIGHT = 1e-26  # of the largest weight: what a window keeps where there are many sums
LARGEST_TILT = 1e6  # over the reach: a larger one would cost accuracy in the exponents


def exact_profile(losses: Composition) -> LatticeProfile | None:
    """The profile without any approximation but rounding; None where that takes too much."""
    parts = losses.laws
    sizes = [loss.sum_size(count) for loss, count in parts]
    windows = [loss.sum_size(count, truncated=True) for loss, count in parts]
    points = _points(losses)
    by_sums = math.prod(windows) <= (MOST_SUMS if points > EXACT_POINTS else FEW_SUMS)
    # Several values come in many ways, each with its counts.
    counts = [
        size * loss.value_count for (loss, n), size in zip(parts, windows, strict=True) if n > 1
    ]
    by_sums = by_sums and max(counts, default=0.0) <= MOST_COUNTS
    if by_sums or (len(parts) == 1 and parts[0][0].value_count == 2 and sizes[0] <= MOST_SUMS):
        least = 0.0 if math.prod(sizes) <= MOST_SUMS // 4 else LEAST_WEIGHT
        sums = partial(_sums, losses, least)
        return _profile(losses, sums, "exact sums", Engine.EXACT, few=True)
    if points > EXACT_POINTS:
        return None
    lattice, few = partial(_lattice, losses), points <= FEW_POINTS
    return _profile(losses, lattice, "exact lattice", Engine.EXACT, few=few)


@array_cache
def _sums(losses: Composition, least: float, tilt: float) -> tuple[Discretization, Discretization]:
    total = added([loss.sum_atoms(n, tilt, least) for loss, n in losses.laws], tilt)
    return total, total


@array_cache
def _lattice(losses: Composition, tilt: float) -> tuple[Atoms, Atoms]:
    total = compose([(loss.atoms(tilt), n) for loss, n in losses.laws])
    return total, total


def dots_profile(losses: Composition, points: int = GRID_POINTS) -> LatticeProfile:
    """The profile between a dominating and a dominated law on a grid of about so many points."""
    between = partial(_between, losses, points)
    return _profile(losses, between, "lattice, connecting the dots", Engine.GRID)


@array_cache
def _between(losses: Composition, points: int, tilt: float) -> tuple[Atoms, Atoms]:
    reach = _reach(losses)
    # Rare large losses may lie far beyond what the deviation says.
    ends = [loss.dots(tilt, max(reach, 1.0)).loss[[0, -1]] for loss, _ in losses.laws]
    widest = max(float(high - low) for low, high in ends)
    span = max(reach, widest / 2)
    # A tilt that moves weights by more than e^5 within a cell asks for finer cells.
    step = max(span / GRID_POINTS, min(span / points, MOST_MOVE / max(tilt, 1e-300)))
    # `contract` merges cells that end in the middle between two places [DI-2].
    dots = [(loss.dots(tilt, step / 2), n) for loss, n in losses.laws]
    above = compose([(spread(d, step), n) for d, n in dots])
    return above, compose([(contract(d, step), n) for d, n in dots])


def _profile(
    losses: Composition,
    weights: Callable[[float], tuple[Atoms, Atoms] | tuple[Discretization, Discretization]],
    method: str,
    engine: Engine,
    few: bool = False,
) -> LatticeProfile:
    largest = LARGEST_TILT / (1 + min(abs(float(losses.supremum)), _reach(losses)))
    return LatticeProfile(
        weights,
        lambda epsilon: saddle(losses, epsilon, largest),
        losses.infinite,
        above(losses.supremum),
        method,
        engine,
        few=few,
        losses=losses,
        log_top=losses.log_top,
        largest=largest,
    )


def _reach(losses: Composition) -> float:
    """About how far the sum's finite values reach under any tilt that is asked."""
    span = float(losses.supremum + losses.reverse().supremum)
    charge(4 * CALL * len(losses.parts))
    variance = math.fsum(
        n * float(np.asarray(loss.moments(np.zeros(1))[2]).ravel()[0]) for loss, n in losses.laws
    )
    return max(min(span, 80 * math.sqrt(variance)), LEAST_REACH)


def _points(losses: Composition) -> float:
    """Points of the exact common lattice; inf where there is none."""
    steps = [loss.step for loss, _ in losses.laws]
    known = [s for s in steps if s is not None]
    if len(known) < len(steps):
        return math.inf
    step = float(common_step(known))  # 0 where the exact step is below every float
    return _reach(losses) / step if step else math.inf


@register(90, "the losses lie on a lattice that is small enough, or have few enough sums")
def _exact(composition: Composition) -> Profile | None:
    return exact_profile(composition)
