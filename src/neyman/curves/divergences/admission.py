"""Check order by order that a mechanism meets a guarantee that only bounds Renyi divergences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.curves.divergences.divergence import renyi_divergence
from neyman.curves.divergences.envelope import LIMITS as ENVELOPE_LIMITS
from neyman.curves.divergences.envelope import Ceiling, below_ceiling, loss_moment, trusted_rho
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import log_of, up

STEERING_ORDER = 1e4  # largest order that steers a search, if the budget has no top order


def as_renyi_bound(alternatives: Sequence[Composition]) -> tuple[RenyiBound, float] | None:
    """Return a budget as bounds on divergences and a mass of infinite loss.

    Return None if the budget does not have this form.
    """
    if len(alternatives) != 1 or (bare := alternatives[0].bare) is None:
        return None
    rest = alternatives[0].known
    if any(not isinstance(loss, FiniteLoss) or loss.index != (0,) for loss, _ in rest.parts):
        return None
    return bare, min(rest.infinite, rest.reverse().infinite)


def admits_renyi(directions: Sequence[Composition], budget: tuple[RenyiBound, float]) -> bool:
    """Return True if each direction is certified to meet a budget from `as_renyi_bound`."""
    bare, mass = budget
    ceiling = Ceiling.below(bare)
    return all(_satisfies(c, bare, mass, ceiling) for c in directions)


def _satisfies(c: Composition, bare: RenyiBound, mass: float, ceiling: Ceiling) -> bool:
    if max(c.infinite, c.reverse().infinite) > mass:
        return False
    own, known = c.bare or RenyiBound(Fraction(0)), c.known
    if not known.parts and own.within(bare):
        return True
    rho = own.rho + trusted_rho(known)
    if rho < math.inf and RenyiBound(Fraction(rho) * (1 + Fraction(1, 2**50))).within(bare):
        return True
    if not known.parts:
        return False
    top = own.top if bare.top == math.inf else bare.top
    if own.top < bare.top or known.places(min(float(top), 1e6), 0.0) > ENVELOPE_LIMITS.terms:
        return False
    largest = np.array([_largest(c)])

    def moment(row: NDArray[np.intp], a: Array) -> Array:
        return own.log_mgf(a - 1) * (1 + 1e-15) + _spent(known, a)

    return bool(below_ceiling(moment, np.array([_kl(c)]), largest, ceiling)[0])


def _spent(known: Composition, a: Array) -> Array:
    """Return upper bounds on (a - 1) D_a, from K or from rho: K is inaccurate near a = 1."""
    with np.errstate(invalid="ignore"):
        # Three products and a difference: 4 units.
        by_rho = trusted_rho(known) * (a * (a - 1)) * (1 + 8 * UNIT)  # slack: counted
    return np.fmin(loss_moment(known, a), by_rho)


def _kl(c: Composition) -> float:
    """Return an upper bound on D_1 of the losses' normalized finite part."""
    if c.infinite or c.reverse().infinite:
        near = 1e-6
        own = float(c.bare.divergence(Fraction(1))) if c.bare else 0.0
        return up(own) + float(loss_moment(c.known, np.array([1 + near]))[0]) / near * (1 + 1e-9)
    return renyi_divergence(c, 1.0)[1]


def _largest(c: Composition) -> float:
    """Return an upper bound on D_inf of the losses' normalized finite part."""
    shift = math.log1p(-c.reverse().infinite) - math.log1p(-c.infinite)
    return up(float(c.supremum) + shift * (1 + 1e-15) + 1e-15 * abs(shift), 4)


def renyi_excess(directions: Sequence[Composition], budget: tuple[RenyiBound, float]) -> float:
    """Estimate the largest log(D_a / allowed D_a) over orders and directions, to steer a search."""
    bare, mass = budget
    return max(_excess(c, bare, mass) for c in directions)


def _excess(c: Composition, bare: RenyiBound, mass: float) -> float:
    excesses = [-math.inf]
    lost = max(c.infinite, c.reverse().infinite)
    if lost:
        excesses.append(math.log(lost) - log_of(mass) if mass else math.inf)
    largest = _largest(c)
    if bare.top == math.inf and largest == math.inf:
        # No finite order suffices, so use the proven rho.
        own = c.bare.rho if c.bare else 0.0
        return max(*excesses, log_of(own + trusted_rho(c.known)) - log_of(float(bare.exact_rho)))
    if bare.supremum < math.inf:
        excesses.append(log_of(largest) - log_of(float(bare.supremum)))
    if bare.kl:
        excesses.append(log_of(_kl(c)) - log_of(float(bare.divergence(Fraction(1)))))
    orders = np.array([float(a) for a, _ in bare.corners])
    if bare.exact_rho:
        far = min(float(bare.top), STEERING_ORDER) - 1
        orders = np.append(orders, 1 + np.geomspace(min(1e-4, far / 2), far, 60))
    if len(orders):
        spent = _spent(c.known, orders)
        if c.bare:
            spent = spent + c.bare.log_mgf(orders - 1)
        allowed = np.maximum(Ceiling.above(bare).allowed(np.minimum(orders, float(bare.top))), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            excesses.append(float(np.max(np.log(spent) - np.log(allowed))))
    return max(excesses)
