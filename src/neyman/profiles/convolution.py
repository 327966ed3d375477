"""Sums of losses with atoms: on their common lattice, or sum by sum, or between two grids.

`exact_profile` answers where the losses share a lattice that is not too fine, or have few enough
sums; `dots_profile` for a few releases whose K is costly, and as an engine apart by which the
others are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch

import numpy as np

from neyman.losses.composition import Composition
from neyman.losses.discrete_gaussian import DiscreteGaussianLoss
from neyman.losses.finite import FiniteLoss, OffLatticeLoss
from neyman.losses.loss import Loss
from neyman.numerics.atoms import UNIT, Atoms, common_step, compose, power
from neyman.numerics.discretization import Discretization, contract, spread
from neyman.numerics.power_sums import added, power_sums, ways
from neyman.numerics.rounding import above
from neyman.profiles.contour_line import saddle
from neyman.profiles.lattice import LatticeProfile
from neyman.profiles.profile import Engine, Profile
from neyman.profiles.selection import register

__all__ = ["dots_profile", "exact_profile"]

GRID_POINTS = 1 << 17
WIDEST_POINTS = 1 << 18  # of one loss
EXACT_POINTS = 1 << 19  # of a common lattice
FEW_POINTS = 1 << 12  # of a common lattice with which no tilt is needed
FEW_SUMS = 1 << 14  # up to which sums are taken one by one even where there is a lattice
MOST_SUMS = 1 << 18
MOST_POWERS = 10_000  # atoms of one loss's powers: they are convolved directly
LEAST_REACH = 1e-9  # of a sum whose deviation drowned
SMALLEST = -600.0  # log of a mass that can be taken to powers
LEAST_WEIGHT = 1e-26  # of the largest weight: what a window keeps where there are many sums
LARGEST_TILT = 1e6  # over the reach: a larger one would cost accuracy in the exponents


def exact_profile(losses: Composition) -> LatticeProfile | None:
    """The profile without any approximation but rounding; None where that takes too much."""
    parts = losses.laws
    sizes = [_size(loss, count) for loss, count in parts]
    windows = [_size(loss, count, truncated=True) for loss, count in parts]
    points = _points(losses)
    by_sums = math.prod(windows) <= (MOST_SUMS if points > EXACT_POINTS else FEW_SUMS)
    if by_sums or (len(parts) == 1 and _values(parts[0][0]) == 2 and sizes[0] <= MOST_SUMS):
        least = 0.0 if math.prod(sizes) <= MOST_SUMS // 4 else LEAST_WEIGHT

        def sums(tilt: float) -> tuple[Discretization, Discretization]:
            total = added([_dots(loss, n, tilt, least) for loss, n in parts], tilt)
            return total, total

        return _profile(losses, sums, "exact sums", Engine.EXACT, few=True)
    if points > EXACT_POINTS:
        return None

    def lattice(tilt: float) -> tuple[Atoms, Atoms]:
        total = compose([(loss.atoms(tilt), n) for loss, n in parts])
        return total, total

    few = points <= FEW_POINTS
    return _profile(losses, lattice, "exact lattice", Engine.EXACT, few=few)


def dots_profile(losses: Composition) -> LatticeProfile:
    """The profile between a dominating and a dominated law on a grid."""
    reach = _reach(losses)

    def between(tilt: float) -> tuple[Atoms, Atoms]:
        # Rare large losses may lie far beyond what the deviation says.
        ends = [loss.dots(tilt, reach).loss[[0, -1]] for loss, _ in losses.laws]
        widest = max(float(high - low) for low, high in ends)
        step = max(reach / GRID_POINTS, widest / WIDEST_POINTS)
        # `contract` merges cells that end in the middle between two places [DI-2].
        dots = [(loss.dots(tilt, step / 2), n) for loss, n in losses.laws]
        above = compose([(spread(d, step), n) for d, n in dots])
        return above, compose([(contract(d, step), n) for d, n in dots])

    return _profile(losses, between, "lattice, connecting the dots", Engine.GRID)


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


@singledispatch
def _values(loss: Loss) -> float:
    """How many values a finite loss has."""
    return math.inf


@_values.register
def _(loss: FiniteLoss) -> float:
    return len(loss.index)


@_values.register
def _(loss: OffLatticeLoss) -> float:
    return len(loss.values)


def _size(loss: Loss, count: int, *, truncated: bool = False) -> float:
    """How many atoms the ``count``-fold sum has, or of them a window that matters."""
    if isinstance(loss, (OffLatticeLoss, FiniteLoss)) and min(loss.log_p) < SMALLEST:
        return math.inf
    if isinstance(loss, OffLatticeLoss) or (isinstance(loss, FiniteLoss) and len(loss.index) == 2):
        return ways(count, int(_values(loss)))
    if isinstance(loss, FiniteLoss):
        size = count * (loss.index[-1] - loss.index[0]) + 1
        return size if size <= MOST_POWERS else math.inf
    if isinstance(loss, DiscreteGaussianLoss) and loss.step is not None:
        sigma = math.sqrt(loss.sigma_squared)
        if 54 * sigma * count + 4 > MOST_POWERS:
            return math.inf
        return (22 * math.sqrt(count) if truncated else 54 * count) * sigma + 4
    return math.inf


def _dots(loss: Loss, count: int, tilt: float, least: float) -> Discretization:
    """The atoms of the ``count``-fold sum, but for weights below ``least`` of the largest."""
    if count > 1 and (_values(loss) == 2 or isinstance(loss, OffLatticeLoss)):
        return _powers(loss, count, tilt)
    if isinstance(loss, OffLatticeLoss):
        return loss.dots(tilt, 1.0)
    dots = Discretization.of(power(loss.atoms(tilt), count), tilt)
    keep = dots.weight > least * dots.weight.max()
    lost = float(dots.weight[~keep].sum()) * (1 + 1e-9)
    return replace(dots, loss=dots.loss[keep], weight=dots.weight[keep], tail=dots.tail + lost)


def _powers(loss: Loss, count: int, tilt: float) -> Discretization:
    # The probabilities given that the loss is finite; what they miss of 1 is put back at the end.
    log_finite = math.log1p(-loss.infinite)
    if isinstance(loss, FiniteLoss):
        index, unit, log_p = np.array(loss.index), float(loss.lattice), np.array(loss.log_p)
        place = 0.0
    else:
        assert isinstance(loss, OffLatticeLoss)
        index, unit, log_p = np.array(loss.values), 1.0, np.array(loss.log_p)
        place = loss.dots(0.0, 1.0).place
    p = np.exp(log_p - log_finite)
    relative = (2 * float(np.max(np.abs(log_p))) + 4) * UNIT
    dots = power_sums(index, unit, p, count, tilt, relative=relative, place=place)
    shift = count * log_finite
    return replace(
        dots, log_scale=dots.log_scale + shift, relative=dots.relative + 4 * UNIT * abs(shift)
    )


def _reach(losses: Composition) -> float:
    """About how far the sum's finite values reach under any tilt that is asked."""
    span = float(losses.supremum + losses.reverse().supremum)
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
