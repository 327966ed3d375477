"""Where a monotone function crosses a level, and where a unimodal one is least."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["falls_to", "least"]

GOLDEN = 0.5 * (5**0.5 - 1)


def falls_to(
    f: Callable[[float], float], level: float, low: float, high: float, tolerance: float = 1e-12
) -> tuple[float, float]:
    """Bracket ``(a, b)`` with ``f(a) > level >= f(b)`` for a non-increasing ``f``.

    ``f(low) > level`` and ``f(high) <= level`` must hold. Regula falsi (Illinois) with bisection
    as its safeguard; both ends have been evaluated, so each is certified if ``f`` is. Ends when
    ``b - a <= tolerance * max(1, |b|)``.
    """
    f_low, f_high = f(low) - level, f(high) - level
    side = 0
    for iteration in range(200):
        if high - low <= tolerance * max(1.0, abs(high)):
            break
        middle = 0.5 * (low + high)
        if iteration % 4 < 3 and f_low < float("inf") and f_high > -float("inf"):
            guess = high - f_high * (high - low) / (f_high - f_low)
            margin = 0.25 * tolerance * max(1.0, abs(high))
            # Step over the root by a hair, so that the bracket closes from both sides.
            guess += margin if side >= 0 else -margin
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


def least(f: Callable[[float], float], low: float, high: float, tolerance: float = 1e-9) -> float:
    """About the place where a unimodal ``f`` is least in [low, high]: golden section.

    Nothing rests on the place being exact: callers certify the value that they find there.
    """
    inner, outer = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    f_inner, f_outer = f(inner), f(outer)
    while high - low > tolerance * max(1.0, abs(low), abs(high)):
        if f_inner <= f_outer:
            high, outer, f_outer = outer, inner, f_inner
            inner = high - GOLDEN * (high - low)
            f_inner = f(inner)
        else:
            low, inner, f_inner = inner, outer, f_outer
            outer = low + GOLDEN * (high - low)
            f_outer = f(outer)
    return inner if f_inner <= f_outer else outer
