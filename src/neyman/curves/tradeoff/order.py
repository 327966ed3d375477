"""Decide which of two curves is more private in Blackwell's order, with certified verdicts."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from neyman.curves.divergences.admission import admits_renyi, as_renyi_bound, renyi_excess
from neyman.curves.losses.bracket import sides
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.tradeoff.enclosure import corners
from neyman.curves.tradeoff.piecewise_linear import hull, lines_of
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import below, exp_up, log_of

if TYPE_CHECKING:
    from neyman.curves.tradeoff.curve import Curve, Described

LEVEL_POINTS = 400


Verdict = Literal["at-least", "at-most", "equal", "incomparable", "undecided"]


def compare(f: Curve, g: Curve) -> Verdict:
    """Compare ``f`` with ``g`` in Blackwell's order, with a certified verdict.

    Two laws whose stored parameters are the same doubles count as one law.

    Returns:
        "at-least" if f >= g everywhere (f is at least as private), "at-most" if f <= g, "equal",
        "incomparable" if each is more private somewhere, or "undecided".

    Examples:
        >>> import neyman as ny
        >>> ny.compare(ny.gdp(1), ny.gdp(2)), ny.compare(ny.gdp(1), ny.pure(1))
        ('at-least', 'incomparable')
    """
    more, less = at_least(f, g), at_least(g, f)
    if more or less:
        return "equal" if more and less else "at-least" if more else "at-most"
    if f.sources or g.sources:
        return "undecided"  # uncertified sources decide nothing
    lines = _grid(f, g)
    if f.ordered or g.ordered:
        lines = np.concatenate([-lines[:0:-1], lines])
    (low_f, high_f), (low_g, high_g) = _log_deltas(f, lines), _log_deltas(g, lines)
    worse, better = np.any(low_f > high_g), np.any(low_g > high_f)
    return "incomparable" if worse and better else "undecided"


def at_least(f: Curve, g: Curve) -> bool:
    """Return True if ``f`` is certainly at least as private as ``g``, at every level.

    One curve is above another if its delta is smaller at every real epsilon, or at every epsilon >=
    0 in both orders. A `Tradeoff` that is not joined is the minimum of several curves, so each
    curve of f must be above some curve of g.
    """
    for name, value in (("f", f), ("g", g)):
        if not hasattr(value, "alternatives"):
            raise TypeError(f"{name} = {value!r} must be a Tradeoff, such as mechanism.tradeoff()")
    if f.sources or g.sources:
        return False  # uncertified sources decide nothing
    if len(f.directions) > 1 and not f.joined and not f.ordered and not g.ordered:
        known = _by_definition(f, g)  # for all pairs at once: the worst may be enough
        if known is not None:
            return known
    lies_below = cache(_has_smaller_delta)
    return all(
        any(
            set(a.directions) <= set(b.directions)
            or (lies_below(a, b) and lies_below(_inverse_curve(a), _inverse_curve(b)))
            for b in _curves(g)
        )
        for a in _curves(f)
    )


def _curves(f: Curve) -> list[Curve]:
    """Return the convex curves whose minimum is ``f``."""
    if f.joined or len(f.directions) == 1:
        return [f]
    return [f.part(c) for c in f.directions]


def _inverse_curve(f: Curve) -> Curve:
    """Return the other order of an ordered curve. Other curves are their own inverse."""
    return f.inverse() if f.ordered else f


def _has_smaller_delta(f: Curve, g: Curve) -> bool:
    """Return True if delta of ``f`` is certainly at most delta of ``g`` at every epsilon >= 0."""
    known = _by_definition(f, g)
    return known if known is not None else _by_corners(f, g) or _by_grid(f, g)


def _by_definition(f: Curve, g: Curve) -> bool | None:
    """Return the verdict f >= g by a parameter, if ``g`` is a named guarantee, else None.

    Return None also if it does not decide.
    """
    bare = as_renyi_bound(g.alternatives)
    if bare is not None:
        return admits_renyi(f.directions, bare) or None
    if len(g.alternatives) != 1 or len(g.alternatives[0].parts) != 1:
        return None
    loss, count = g.alternatives[0].parts[0]
    if isinstance(loss, NonPrivateLoss):
        return True
    if isinstance(loss, FiniteLoss) and count == 1 and loss.approximate:
        epsilon = loss.supremum
        if loss.index == (-1, 1) and not loss.infinite:
            return f.exact_pure() <= epsilon
        if all(c.supremum <= epsilon and c.infinite <= loss.infinite for c in f.directions):
            return True
        return f.delta(max(below(epsilon), 0.0)).upper <= loss.infinite
    if isinstance(loss, GaussianLoss):
        normal = max((_normal_above(c) for c in f.directions), default=0.0)
        at_most = normal <= loss.mu_squared or f.gdp_above() <= loss.mu
        return True if at_most else None
    return None


def _normal_above(losses: Composition) -> float:
    """Return mu squared of a normal pair that dominates the losses, or inf if none is known."""
    upper = Composition.of(sides(losses.parts)[1]).parts
    if len(upper) == 1 and isinstance(upper[0][0], GaussianLoss):
        return upper[0][0].mu_squared
    return 0.0 if not upper else math.inf


def _by_corners(f: Curve, g: Curve) -> bool:
    """Return True if ``f`` meets each line of the polygon ``g``: power <= start + slope level.

    For a line of slope at least 1, this means that delta of ``f`` at log slope is at most start.
    """
    enclosures = [corners(c) for c in g.directions]
    below = hull(corner for pair in enclosures if pair is not None for corner in pair[0])
    if None in enclosures or len(below) > LEVEL_POINTS:
        return False
    lines = [(slope, start) for slope, start in lines_of(below) if slope >= 1]
    if not lines:
        return True
    log_slope = np.array([math.log(t.numerator) - math.log(t.denominator) for t, _ in lines])
    size = np.array([math.log(max(t.numerator, 2)) for t, _ in lines])
    # Each logarithm errs by 2 units of at most the first logarithm. Their difference adds one.
    epsilons = np.maximum(log_slope - 8 * UNIT * size, 0.0)  # slack: counted
    high = np.max([p.log_deltas(epsilons)[1] for p in f.profiles], axis=0)
    return all(Fraction(exp_up(v)) <= d for v, (_, d) in zip(high.tolist(), lines, strict=True))


def _log_deltas(f: Curve, epsilons: Array, side: int = 0) -> tuple[Array, Array]:
    """Bound the worst log delta of ``f`` at each epsilon: below (side -1), above (1), or both."""
    profiles = [p.one_sided(side) if side else p for p in f.profiles]
    brackets = [p.log_deltas(epsilons) for p in profiles]
    return np.max([x[0] for x in brackets], axis=0), np.max([x[1] for x in brackets], axis=0)


def _grid(f: Curve, g: Curve) -> Array:
    """Return epsilons that cover the region in which the two curves differ."""
    ends = [h.epsilon(1e-12).upper for h in (f, g)] + [float(f.exact_pure()), 50.0]
    return np.linspace(0, max(min(e for e in ends if math.isfinite(e)), 1e-6), LEVEL_POINTS)


def _by_grid(f: Curve, g: Curve) -> bool:
    """Return True if chords of delta prove that f is above g [TC-9].

    delta is convex in t = e^epsilon. Chords bound the delta of f from above. Extended chords bound
    the delta of g from below. The grid ends at the largest loss of f, where its delta is the mass
    of infinite loss.
    """
    top = max(float(c.supremum) for c in f.directions)
    left = max(c.infinite for c in f.directions)
    if top > 700 or left > max(c.least.infinite for c in g.directions):
        return False
    if top == 0:
        zero = np.zeros(1)
        return bool(_log_deltas(f, zero)[1][0] <= _log_deltas(g, zero)[0][0])
    epsilons = np.linspace(0, top, LEVEL_POINTS)
    high = _log_deltas(f, epsilons, 1)[1]
    low_g, high_g = _log_deltas(g, epsilons)
    if np.any(high > low_g):
        return False
    return all(_chord_is_below(epsilons, high, low_g, high_g, i) for i in range(LEVEL_POINTS - 1))


def _chord_is_below(epsilons: Array, high: Array, low_g: Array, high_g: Array, i: int) -> bool:
    """Return True if f's chord on [t_i, t_{i+1}], t = e^epsilon, is below g.

    There, g is above the extended line through t_{i-1} and t_i, and above the one from the right.
    On either side of their crossing, the larger line and f's chord are linear. Deltas are in units
    of f's delta at t_i, because they underflow, and places are (t - t_i) / t_i.
    """
    unit = float(high[i])
    if unit == -math.inf:  # f's delta falls
        return True
    near = slice(max(i - 1, 0), i + 3)
    with np.errstate(over="ignore"):
        f, low, top = (np.exp(v[near] - unit) for v in (high, low_g, high_g))
    at, i = np.expm1(epsilons[near] - epsilons[i]), i - near.start
    if not np.isfinite(top).all():
        return False
    lines: list[tuple[float, float, float]] = []  # place, value, slope
    if i > 0:
        lines.append((at[i], low[i], (low[i] - top[i - 1]) / (at[i] - at[i - 1])))
    if i + 2 < len(at):
        slope = (top[i + 2] - low[i + 1]) / (at[i + 2] - at[i + 1])
        lines.append((at[i + 1], low[i + 1], slope))
    places = [at[i], at[i + 1]]  # needed for one line alone; else g's values decide there
    if len(lines) == 2:
        places = []
        (a, first, steep), (b, last, flat) = lines
        if steep != flat:
            cross = (last - first - flat * b + steep * a) / (steep - flat)
            places = [min(max(cross, at[i]), at[i + 1])]
    for x in places:
        chord = f[i] + (f[i + 1] - f[i]) * (x - at[i]) / (at[i + 1] - at[i])
        if chord * (1 + 1e-12) > max(value + slope * (x - place) for place, value, slope in lines):
            return False
    return True


def admits(budget: Curve, mechanism: Described) -> bool:
    """Return True if the mechanism certainly meets the budget: see `Tradeoff.admits`."""
    check.described("mechanism", mechanism)
    bare = as_renyi_bound(budget.alternatives)
    if bare is None:
        return at_least(mechanism.tradeoff(), budget)
    own = getattr(mechanism, "rho", None)
    with suppress(*[ValueError] if bare[1] else []):  # a mechanism that can fail has no rho
        exact = own() if callable(own) else None
        if isinstance(exact, Fraction) and RenyiBound(exact).within(bare[0]):
            return True  # the mechanism's exact rho decides
    spent = mechanism.tradeoff()
    return not spent.sources and admits_renyi(_both(spent), bare)


def excess(budget: Curve, mechanism: Described) -> float | None:
    """Estimate log(spent / budget) of a mechanism: see `Tradeoff.excess`."""
    check.described("mechanism", mechanism)
    bare = as_renyi_bound(budget.alternatives)
    spent = mechanism.tradeoff()
    if bare is not None:
        return renyi_excess(_both(spent), bare)
    if len(budget.alternatives) != 1 or len(budget.alternatives[0].parts) != 1:
        return None
    loss, count = budget.alternatives[0].parts[0]
    if isinstance(loss, GaussianLoss):
        return log_of(spent.gdp_above()) - log_of(loss.mu)
    if not isinstance(loss, FiniteLoss) or count > 1 or not loss.approximate:
        return None
    epsilon = float(loss.supremum)
    if loss.index == (-1, 1) and not loss.infinite:
        return log_of(spent.pure().upper) - log_of(epsilon)
    high, most = spent.log_delta(epsilon).upper, log_of(loss.infinite)
    if not -math.inf < high < 0 > most:
        return high - most
    return math.log(most / high)  # -log delta is about a power of the noise: easy to interpolate


def _both(spent: Curve) -> list[Composition]:
    """Return every pair in both orders, because a budget must hold for each."""
    return list(dict.fromkeys(x for c in spent.directions for x in (c, c.reverse())))
