"""Compute profiles of sums of losses with atoms, exactly or between two sums on a grid.

`sums_profile` is for losses whose sums have few values, `masses_profile` for a common lattice that
is not too fine. `dots_profile` is for a few releases whose K is costly, and independent checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.contour_line import saddle
from neyman.curves.profiles.lattice.lattice import LIMITS, LatticeProfile, Limits
from neyman.curves.profiles.profile import Engine
from neyman.numerics.array_cache import array_cache
from neyman.numerics.atoms import Atoms, common_step, compose
from neyman.numerics.discretization import Discretization, contract, spread
from neyman.numerics.operations import CALL, charge
from neyman.numerics.power_sums import added
from neyman.numerics.rounding import above


def sums_profile(losses: Composition, limits: Limits = LIMITS) -> LatticeProfile | None:
    """Return the profile by all sums, exact up to rounding, or None if they are too many."""
    parts = losses.laws
    windows = [loss.sum_size(count, truncated=True) for loss, count in parts]
    if math.inf in windows:
        return None
    sizes = [loss.sum_size(count) for loss, count in parts]
    by_sums = math.prod(windows) <= (
        limits.sums
        if _points(losses, limits) > limits.lattice_places
        else limits.sums_beside_lattice
    )
    # Sums of several values are listed by the counts of the values.
    counts = [
        size * loss.value_count for (loss, n), size in zip(parts, windows, strict=True) if n > 1
    ]
    by_sums = by_sums and max(counts, default=0.0) <= limits.counts
    two = len(parts) == 1 and parts[0][0].value_count == 2 and sizes[0] <= limits.sums
    if not (by_sums or two):
        return None
    least = 0.0 if math.prod(sizes) <= limits.sums // 4 else limits.least_weight
    sums = partial(_sums, losses, least)
    return _profile(losses, sums, "exact sums", Engine.EXACT, limits, few=True)


def masses_profile(losses: Composition, limits: Limits = LIMITS) -> LatticeProfile | None:
    """Return the profile by all masses on a common lattice, or None if it is too fine."""
    points = _points(losses, limits)
    if points > limits.lattice_places:
        return None
    lattice, few = partial(_lattice, losses), points <= limits.untilted_places
    return _profile(losses, lattice, "exact lattice", Engine.EXACT, limits, few=few)


@array_cache
def _sums(losses: Composition, least: float, tilt: float) -> tuple[Discretization, Discretization]:
    total = added([loss.sum_atoms(n, tilt, least) for loss, n in losses.laws], tilt)
    return total, total


@array_cache
def _lattice(losses: Composition, tilt: float) -> tuple[Atoms, Atoms]:
    total = compose([(loss.atoms(tilt), n) for loss, n in losses.laws])
    return total, total


def dots_profile(
    losses: Composition, points: int | None = None, limits: Limits = LIMITS
) -> LatticeProfile:
    """Return the profile between a dominating and a dominated sum, on grids of about ``points``."""
    between = partial(_bracket_atoms, losses, points or limits.grid_places, limits)
    return _profile(losses, between, "lattice, connecting the dots", Engine.GRID, limits)


@array_cache
def _bracket_atoms(
    losses: Composition, points: int, limits: Limits, tilt: float
) -> tuple[Atoms, Atoms]:
    reach = _reach(losses, limits)
    # Rare large losses may be many deviations away.
    ends = [loss.dots(tilt, max(reach, 1.0)).loss[[0, -1]] for loss, _ in losses.laws]
    widest = max(float(high - low) for low, high in ends)
    span = max(reach, widest / 2)
    # A tilt that moves weights by more than e^5 within a cell needs finer cells.
    step = max(
        span / limits.grid_places, min(span / points, limits.cell_efolds / max(tilt, 1e-300))
    )
    # `contract` merges cells that end in the middle between two places [DI-2].
    dots = [(loss.dots(tilt, step / 2), n) for loss, n in losses.laws]
    above = compose([(spread(d, step), n) for d, n in dots])
    return above, compose([(contract(d, step), n) for d, n in dots])


def _profile(
    losses: Composition,
    weights: Callable[[float], tuple[Atoms, Atoms] | tuple[Discretization, Discretization]],
    method: str,
    engine: Engine,
    limits: Limits,
    few: bool = False,
) -> LatticeProfile:
    largest = limits.tilt_reach / (1 + min(abs(float(losses.supremum)), _reach(losses, limits)))
    return LatticeProfile(
        weights,
        lambda epsilon: saddle(losses, epsilon, largest),
        losses.infinite,
        above(losses.supremum),
        method,
        engine,
        few=few,
        limits=limits,
        losses=losses,
        log_top=losses.log_top,
        largest=largest,
    )


def _reach(losses: Composition, limits: Limits) -> float:
    """Estimate the range of the sum's finite values under any used tilt."""
    span = float(losses.supremum + losses.reverse().supremum)
    charge(4 * CALL * len(losses.parts))
    variance = math.fsum(
        n * float(np.asarray(loss.moments(np.zeros(1))[2]).ravel()[0]) for loss, n in losses.laws
    )
    return max(min(span, 80 * math.sqrt(variance)), limits.least_reach)


def _points(losses: Composition, limits: Limits) -> float:
    """Return the number of points of the exact common lattice, or inf if there is none."""
    known: list[Fraction] = []
    for loss, _ in losses.laws:
        step = loss.step
        if step is None:
            return math.inf
        known.append(step)
    step = float(common_step(known))  # 0 if the exact step underflows
    return _reach(losses, limits) / step if step else math.inf
