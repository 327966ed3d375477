"""Find the Gaussian trade-off curve nearest to a curve in sup distance, and the distance.

Let p be the power of the best test at each level, the largest over all pairs. Let g = Phi(mu + z),
z the normal quantile of the level, be the power of G_mu. As mu grows, sup(p - g) falls and sup(g -
p) rises. At the nearest mu they are equal [PL-3]. In a cell between two levels, cut at any level,
both differences are bounded by their bounds at the ends and at the cut [PL-4].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from neyman.curves.profiles.closed_forms.closed_form import GaussianProfile
from neyman.curves.profiles.profile import Profile
from neyman.numerics.arrays import Array
from neyman.numerics.bound import Bound
from neyman.numerics.roots import bisect


@dataclass(frozen=True)
class Limits:
    """Limits on the search for the largest distance from a Gaussian curve."""

    # Bound on the errors of levels, lines, and normal quantiles: a few units of a number near 1.
    rounding: float = 1e-12
    first_cells: int = 48  # number of first cells, even in the normal quantile of the level
    halvings: int = 12  # rounds of halving the cells that may have the largest distance
    cells: int = 1500
    least_width: float = 1e-7  # always accepted as width of the distance
    largest_mu: float = 30.0  # for a larger mu, levels underflow


LIMITS = Limits()


@dataclass(frozen=True)
class NearestGaussian:
    """Describe a trade-off curve f by the nearest Gaussian curve and the distance to it.

    This is a summary, not a guarantee: f is on both sides of G_mu. For a safe mu on a range of
    levels, ask ``f.gdp(levels=(1e-4, 0.5))``.

    Args:
        mu: the mu with the least sup |f - G_mu|; the upper bound is safe.
        distance: the least sup distance (the regret); upper is safe, and holds for ``float(mu)``:
            the power at any level is at most the power of G_mu plus ``distance``.

    Examples:
        >>> import neyman as ny
        >>> training = ny.Gaussian(0.8).subsample(rate=0.01) * 1000
        >>> nearest = training.tradeoff().nearest_gaussian()
        >>> f"{nearest.mu:.3f}", f"{nearest.distance:.4f}"
        ('0.598', '0.0058')
        >>> print(nearest)
        G_mu with mu = 0.598, within 0.0058 at every level (a summary, no guarantee)
    """

    mu: Bound
    distance: Bound

    def __str__(self) -> str:
        return (
            f"G_mu with mu = {self.mu:.3g}, within {self.distance:.2g} at every level "
            "(a summary, no guarantee)"
        )


@dataclass(frozen=True)
class _Curve:
    """Hold bounds on the power of one pair at increasing levels from 0 to 1."""

    low: Array
    high: Array


def nearest_gaussian(profiles: Sequence[Profile], method: str) -> NearestGaussian:
    """Return the Gaussian curve nearest to the minimum of several trade-off curves."""
    if all(profile.log_delta(0.0)[1] == -math.inf for profile in profiles):
        zero = Bound(0.0, 0.0, "upper", method)
        return NearestGaussian(zero, zero)
    known = [profile.mu() for profile in profiles]
    if all(isinstance(profile, GaussianProfile) for profile in profiles):
        ends = [mu for mu in known if mu is not None]
        mu = Bound(max(low for low, _ in ends), max(high for _, high in ends), "upper", method)
        return NearestGaussian(mu, Bound(0.0, mu.width, "upper", method))
    levels = _first_levels(profiles)
    curves = [_ask(profile, levels) for profile in profiles]
    largest = np.max([c.high for c in curves], axis=0)
    if largest[0] >= 1 and all(c.low[0] >= 1 - LIMITS.rounding for c in curves):
        nothing = Bound(0.0, 0.0, "upper", method)
        return NearestGaussian(Bound(math.inf, math.inf, "upper", method), nothing)
    mu = 0.0
    for _ in range(LIMITS.halvings):
        mu = _balance(levels, curves)
        cells = np.maximum(*_excesses(mu, levels, curves))
        least = max(_differences(mu, levels, curves))
        wide = cells > least * (1 + 1e-3) + LIMITS.least_width  # relative width of the distance
        if not wide.any() or len(levels) > LIMITS.cells:
            break
        new = _middles(levels)[wide]
        new = new[(new > levels[:-1][wide]) & (new < levels[1:][wide])]
        if not len(new):
            break
        at = np.searchsorted(levels, new)
        for k, profile in enumerate(profiles):
            more, c = _ask(profile, new), curves[k]
            curves[k] = _Curve(np.insert(c.low, at, more.low), np.insert(c.high, at, more.high))
        levels = np.insert(levels, at, new)
    return _certify(mu, levels, curves, method)


def _middles(levels: Array) -> Array:
    """Return the middle of each cell of levels, by normal quantiles if neither end is 0 or 1."""
    z = ndtri(levels)
    middle = ndtr((np.maximum(z[:-1], -38) + np.minimum(z[1:], 8)) / 2)
    return np.where((levels[:-1] > 0) & (levels[1:] < 1), middle, (levels[:-1] + levels[1:]) / 2)


def _certify(mu: float, levels: Array, curves: list[_Curve], method: str) -> NearestGaussian:
    """Return bounds on mu and on the distance.

    At each end of the interval for mu, it is certain which of sup(p - g) and sup(g - p) is larger.
    """

    def sure(at: float, over: int) -> bool:
        """Return True if one excess (0: p - g, 1: g - p) is certainly the larger one."""
        cells = _excesses(at, levels, curves)
        return _differences(at, levels, curves)[over] > float(np.max(cells[1 - over]))

    def end(sign: int) -> float:
        width = 1e-9
        while width < LIMITS.largest_mu:
            at = mu + sign * width
            if at <= 0:
                return 0.0
            if sure(at, 0 if sign < 0 else 1):
                return at
            width *= 2
        return 0.0 if sign < 0 else math.inf

    low, high = end(-1), end(1)
    if math.isinf(high):
        return NearestGaussian(Bound(low, high, "upper", method), Bound(0.0, 1.0, "upper", method))
    upper = min(float(np.max(_excesses(high, levels, curves))), 1.0)
    least = max(_differences(high, levels, curves)[0], _differences(low, levels, curves)[1])
    distance = Bound(max(min(least, upper), 0.0), upper, "upper", method)
    return NearestGaussian(Bound(low, high, "upper", method), distance)


def _first_levels(profiles: Sequence[Profile]) -> Array:
    """Return levels: 0, 1, and some between, where neither the level nor the power is extreme."""
    log_advantage = max(p.log_delta(0.0)[1] for p in profiles)
    reach = 2 * float(ndtri(min((1 + math.exp(log_advantage)) / 2, 1 - 1e-12)))
    z = np.linspace(-4.5 - min(reach, LIMITS.largest_mu), 4.5, LIMITS.first_cells)
    return np.concatenate([[0.0], ndtr(z), [1.0]])


def _ask(profile: Profile, levels: Array) -> _Curve:
    with np.errstate(divide="ignore"):
        low, high = profile.log_powers(np.log(levels))
    low = np.where(levels >= 1, 0.0, np.nan_to_num(low, nan=-np.inf, neginf=-np.inf))
    high = np.where(levels >= 1, 0.0, np.fmin(high, 0.0))
    bounds = np.exp(low), np.minimum(np.exp(high) * (1 + 1e-14), 1.0)
    return _Curve(np.maximum(bounds[0] * (1 - 1e-14), levels), np.maximum(bounds[1], levels))


def _gaussian(mu: float, levels: Array) -> tuple[Array, Array]:
    """Return the power of G_mu at each level, to a few rounding units, and its slope."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        z = ndtri(levels)
        slope = np.exp(np.minimum(-mu * z - mu * mu / 2, 700.0))
    power = np.where(levels <= 0, 0.0, np.where(levels >= 1, 1.0, ndtr(mu + z)))
    return power, np.where(levels >= 1, 0.0, slope)


def _balance(levels: Array, curves: list[_Curve]) -> float:
    """Estimate the mu for which max(p - g) and max(g - p) at the levels are equal."""
    power = np.max([(c.low + c.high) / 2 for c in curves], axis=0)

    def more_above(mu: float) -> bool:
        above = power - _gaussian(mu, levels)[0]
        return bool(above.max() > -above.min())

    return sum(bisect(more_above, 0.0, LIMITS.largest_mu, rounds=60)) / 2


def _differences(mu: float, levels: Array, curves: list[_Curve]) -> tuple[float, float]:
    """Return lower bounds on sup(p - g) and sup(g - p): their largest values at ``levels``."""
    power = _gaussian(mu, levels)[0]
    low = np.max([c.low for c in curves], axis=0)
    high = np.max([c.high for c in curves], axis=0)
    above, below = float(np.max(low - power)), float(np.max(power - high))
    return above - LIMITS.rounding, below - LIMITS.rounding


def _excesses(mu: float, levels: Array, curves: list[_Curve]) -> tuple[Array, Array]:
    """Return upper bounds on p - g and on g - p in each cell."""

    def gaussian(at: Array) -> Array:
        return _gaussian(mu, at)[0]

    power, slope = _gaussian(mu, levels)
    left, right = levels[:-1], levels[1:]
    tangents = (
        (power[:-1], slope[:-1] * (1 + LIMITS.rounding)),
        (power[1:], slope[1:] * (1 - LIMITS.rounding)),
    )
    more = np.max([_over(levels, _chords(levels, c), gaussian) for c in curves], axis=0)
    less: list[Array] = []
    for c in curves:

        def chord(at: Array, c: _Curve = c) -> Array:
            return c.low[:-1] + np.diff(c.low) * ((at - left) / (right - left))

        less.append(_over(levels, tangents, chord))
    return more, np.min(less, axis=0)


Lines = tuple[tuple[Array, Array], tuple[Array, Array]]
"""For each cell, (value, slope) of a line at the left end, and of another line at the right end."""


def _chords(levels: Array, c: _Curve) -> Lines:
    """Return upper bounds on a concave power in each cell: extended chords of adjacent cells."""
    width = np.diff(levels)
    steepest, flattest = (c.high[1:] - c.low[:-1]) / width, (c.low[1:] - c.high[:-1]) / width
    before = np.append(np.inf, steepest[:-1])
    after = np.append(np.maximum(flattest[1:], 0.0), 0.0)
    return (c.high[:-1], before), (c.high[1:], after)


def _over(levels: Array, lines: Lines, below: Callable[[Array], Array]) -> Array:
    """Bound, for each cell, how far a power below two lines exceeds a concave power ``below``.

    The cell is cut at one level. Left of the cut, the left line is used, and right of it the right
    line.
    """
    left, right = levels[:-1], levels[1:]
    (start, steep), (end, flat) = lines
    width = right - left
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        cut = left + (end - start - flat * width) / (steep - flat)
        cut = np.clip(np.nan_to_num(cut, nan=0.0, posinf=np.inf), left, right)
        one = np.where(cut > left, start + steep * (cut - left), start)
        other = end - flat * (right - cut)
    at_cut = below(cut)
    first = np.where(cut > left, np.maximum(start - below(left), one - at_cut), -np.inf)
    second = np.maximum(other - at_cut, end - below(right))
    return np.maximum(first, second) + LIMITS.rounding
