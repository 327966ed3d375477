"""Find the end of a monotone condition, the crossing of a level, and the minimum of a function.

`bisect`, `bisect_integers`, and `falls_to` return ends at which the condition was evaluated, so one
end is safe. `zero` and `least` return approximate places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

GOLDEN = 0.5 * (5**0.5 - 1)

Real = TypeVar("Real", float, Fraction)


def bisect(
    holds: Callable[[Real], bool],
    inside: Real,
    outside: Real,
    *,
    tolerance: float | Fraction = 0.0,
    width: float = 0.0,
    rounds: int | None = None,
    middle: Callable[[Real, Real], Real] = lambda a, b: (a + b) / 2,
) -> tuple[Real, Real]:
    """Narrow the interval in which a monotone condition stops holding, by bisection.

    The caller ensures that the condition holds at ``inside``. Neither given end is evaluated. The
    condition holds at each new ``inside`` and fails at each new ``outside``, so the first returned
    number is safe. The search ends if no number is between the ends, or at the first limit.

    Args:
        holds: the condition.
        inside: where the condition holds; above or below ``outside``.
        outside: where the condition need not hold.
        tolerance: largest final distance between the ends, relative to the larger end. It does not
            end a search toward 0.
        width: largest final distance between the ends.
        rounds: largest number of evaluations. Fractions need one of these three limits.
        middle: function that chooses the next number between two ends.

    Returns:
        The last evaluated number where the condition holds, and the first where it does not.
    """
    asked = 0
    while rounds is None or asked < rounds:
        if abs(outside - inside) <= max(width, tolerance * max(abs(inside), abs(outside))):
            break
        place = middle(inside, outside)
        if not min(inside, outside) < place < max(inside, outside):
            break
        inside, outside = (place, outside) if holds(place) else (inside, place)
        asked += 1
    return inside, outside


def grown(x: float, holds: Callable[[float], bool]) -> float:
    """Return ``x`` or the first larger number, by growing steps, at which a condition holds.

    It checks the result of an inverse function by the function itself. NaN becomes infinite.
    """
    step = 2.0**-50
    while x < math.inf and not holds(x):
        x, step = x + step * max(abs(x), step), 2 * step
    return x if x == x else math.inf


def bisect_integers(holds: Callable[[int], bool], inside: int, outside: int) -> int:
    """Return the last whole number, starting from ``inside``, at which a condition holds.

    As in `bisect`, the condition must hold at ``inside``, and neither given end is evaluated.
    """
    while abs(outside - inside) > 1:
        place = (inside + outside) // 2
        inside, outside = (place, outside) if holds(place) else (inside, place)
    return inside


def falls_to(
    f: Callable[[float], float],
    level: float,
    low: float,
    high: float,
    tolerance: float = 1e-12,
    floor: float = 1.0,
) -> tuple[float, float]:
    """Return a bracket ``(a, b)`` with ``f(a) > level >= f(b)`` for a non-increasing ``f``.

    The caller ensures that ``f(low) > level`` and ``f(high) <= level``. The method is regula falsi
    (Illinois) with bisection as a safeguard. Both ends have been evaluated, so each is certified if
    ``f`` is. The search ends when ``b - a <= tolerance * max(floor, |b|)``.
    """
    f_low, f_high = f(low) - level, f(high) - level
    side = 0
    for iteration in range(200):
        if high - low <= tolerance * max(floor, abs(high)):
            break
        middle = 0.5 * (low + high)
        finite = f_low < float("inf") and f_high > -float("inf")
        if iteration % 4 < 3 and finite and f_high < f_low:
            guess = high - f_high * (high - low) / (f_high - f_low)
            margin = 0.25 * tolerance * max(floor, abs(high))
            # Step slightly over the root, so that the bracket closes from both sides.
            guess += margin if side >= 0 else -margin
            # If a root is very near an end, the next evaluation closes the bracket there.
            guess = min(max(guess, low + margin), high - margin)
            if low < guess < high:
                middle = guess
        if middle <= low or middle >= high:
            break
        value = f(middle) - level
        if value > 0:
            low, f_low = middle, value
            if side == 1:
                f_high *= 0.5
            side = 1
        else:
            high, f_high = middle, value
            if side == -1:
                f_low *= 0.5
            side = -1
    return low, high


def zero(
    f: Callable[[float], float],
    low: float,
    high: float,
    tolerance: float,
    ends: tuple[float, float] | None = None,
) -> float:
    """Return the approximate zero of a smooth ``f`` that changes sign between ``low`` and ``high``.

    Use inverse quadratic interpolation if the last three points allow it, else bisection
    (Chandrupatla 1997). ``ends``: the values of f at both ends. If given, the search also ends when
    the secant's zero is closer than the tolerance.
    """
    a, b = low, high
    fa, fb = ends or (f(a), f(b))
    c, fc, t = a, fa, 0.5
    while True:
        x = a + t * (b - a)
        fx = f(x)
        if (fx > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, b, fc, fb = b, a, fb, fa
        slope = (fx - fa) / (x - a) if x != a else 0.0
        a, fa = x, fx
        if ends and abs(fx) < tolerance * abs(slope):
            return x
        best, at = (fa, a) if abs(fa) < abs(fb) else (fb, b)
        room = tolerance / abs(b - c)
        if room > 0.5 or best == 0:
            return at
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:
            t = fa / (fb - fa) * fc / (fb - fc)
            t += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        else:
            t = 0.5
        t = min(max(t, room), 1 - room)


def least(f: Callable[[float], float], low: float, high: float) -> float:
    """Return the approximate minimizer of a unimodal ``f`` in [low, high], by golden section.

    The minimizer need not be exact: callers certify the value there.
    """
    inner, outer = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    f_inner, f_outer = f(inner), f(outer)
    while high - low > 1e-9 * max(1.0, abs(low), abs(high)):
        if f_inner <= f_outer:
            high, outer, f_outer = outer, inner, f_inner
            inner = high - GOLDEN * (high - low)
            f_inner = f(inner)
        else:
            low, inner, f_inner = inner, outer, f_outer
            outer = low + GOLDEN * (high - low)
            f_outer = f(outer)
    return inner if f_inner <= f_outer else outer
