"""Composition theorems and the textbook Gaussian rule, by name: what each of them proves.

They stand beside what the curves give exactly, to compare with: `optimal` and `heterogeneous` are
the curves, the others are older and looser, or a rule of thumb.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from neyman import Bound, Gaussian, Tradeoff, approximate, calibrate, perfect
from neyman.numerics import UNIT, above, check, down, up

__all__ = [
    "Pair",
    "advanced",
    "basic",
    "gaussian",
    "heterogeneous",
    "optimal",
    "textbook_sigma",
    "textbook_waste",
]

Number = float | Fraction | str
MOST_DIGITS = 300  # of a sensitivity over an epsilon
NEAR = 2e-9  # relative: where the calibrated sigma is no longer enough


@dataclass(frozen=True)
class Pair:
    """An (epsilon, delta) that a theorem proves; the upper ends keep the promise.

    Args:
        epsilon: the theorem's epsilon, enclosed.
        delta: the theorem's delta, enclosed.
        method: the theorem.
    """

    epsilon: Bound
    delta: Bound
    method: str

    def tradeoff(self) -> Tradeoff:
        """Return the curve of the upper ends.

        Raises:
            ValueError: where the theorem says nothing: delta is 1 or epsilon is inf.
        """
        return approximate(self.epsilon.upper, self.delta.upper)


def basic(epsilons: Iterable[Number], deltas: Iterable[Number] | None = None) -> Pair:
    """Return the sums: (sum of epsilons, sum of deltas), whatever is chosen adaptively.

    Args:
        epsilons: each at least 0.
        deltas: as many, each in [0, 1]; 0 if left out.

    Source: Dwork, Kenthapadi, McSherry, Mironov and Naor 2006.
    """
    pairs = _pairs(epsilons, deltas)
    delta = min(sum((d for _, d in pairs), Fraction(0)), Fraction(1))
    epsilon = sum((e for e, _ in pairs), Fraction(0))
    method = "basic composition"
    return Pair(_enclosed(epsilon, method), _enclosed(delta, method), method)


def advanced(epsilon: Number, delta: Number, count: int, slack: Number) -> Pair:
    """Advanced composition of ``count`` mechanisms that are each (epsilon, delta).

    epsilon' = epsilon sqrt(2 count ln(1/slack)) + count epsilon (e^epsilon - 1),
    delta' = count delta + slack. For few releases, or a large epsilon, `basic` is better.

    Args:
        epsilon: of each, at least 0.
        delta: of each, in [0, 1].
        count: how many, at least 0.
        slack: the delta that is spent on the theorem itself, in (0, 1].

    Source: Dwork, Rothblum and Vadhan 2010.
    """
    (each, small), number = _pairs([epsilon], [delta])[0], check.integer("count", count)
    exact = _delta("slack", slack)
    if not exact:
        raise ValueError(f"slack = {slack!r} must be above 0: at 0 the theorem says nothing")
    method = "advanced composition"
    total = min(number * small + exact, Fraction(1))
    e = float(each)
    try:
        spread = math.sqrt(2 * number * -math.log(exact))
        value = e * spread + number * e * math.expm1(e)
    except OverflowError:
        value = math.inf
    return Pair(_around(value, (32 + 2 * e) * UNIT, method), _enclosed(total, method), method)


def optimal(epsilon: Number, delta: float, count: int, target_delta: float) -> Bound:
    """Return the least epsilon at ``target_delta`` that holds for every ``count`` such mechanisms.

    It is that of randomized response with a failure, whose composition is computed exactly.

    Args:
        epsilon: of each, at least 0.
        delta: of each, in [0, 1).
        count: how many, at least 0.
        target_delta: in [0, 1).

    Returns:
        epsilon, upper is safe; inf where ``target_delta`` is below 1 - (1 - delta)^count.

    Source: Kairouz, Oh and Viswanath 2015.
    """
    number = check.integer("count", count)
    return (approximate(epsilon, delta) ** number).epsilon(target_delta)


def heterogeneous(
    epsilons: Iterable[Number], deltas: Iterable[Number] | None, target_delta: float
) -> Bound:
    """Return the least epsilon at ``target_delta`` that holds for all mechanisms of these
    guarantees.

    To know it exactly is #P-complete; here it lies between certified ends.

    Args:
        epsilons: each at least 0.
        deltas: as many, each in [0, 1); None for 0.
        target_delta: in [0, 1).

    Returns:
        epsilon, upper is safe; inf where the deltas alone exceed ``target_delta``.

    Source: Murtagh and Vadhan 2016.
    """
    total = perfect()
    for (epsilon, delta), count in sorted(Counter(_pairs(epsilons, deltas)).items()):
        total = total @ approximate(epsilon, above(delta)) ** count
    return total.epsilon(target_delta)


def gaussian(mus: Iterable[Number]) -> Bound:
    """Return the mu of all together: sqrt(sum of mu^2).

    Args:
        mus: each 0, or between 1e-150 and 1e150.

    Returns:
        mu, upper is safe; G_mu is the curve of the composition, nothing is lost.

    Source: Dong, Roth and Su 2022.
    """
    exact = [check.exact(f"mus[{i}]", mu) for i, mu in enumerate(mus)]
    for i, mu in enumerate(exact):
        if mu and not 1e-150 < mu < 1e150:
            raise ValueError(f"mus[{i}] = {float(mu)!r} must be 0, or between 1e-150 and 1e150")
    return _root(sum((mu * mu for mu in exact), Fraction(0)))


def textbook_sigma(epsilon: Number, delta: Number, sensitivity: Number = 1) -> Bound:
    """Return the textbook's scale of Gaussian noise: Delta sqrt(2 ln(1.25 / delta)) / epsilon.

    Args:
        epsilon: in (0, 1): the rule is proven there only. `textbook_waste` asks beyond.
        delta: in (0, 1).
        sensitivity: Delta in the l2 norm, above 0.

    Returns:
        sigma, upper is safe. It always wastes noise: `ny.calibrate` finds the least.

    Raises:
        ValueError: for an epsilon of 1 or more, where the rule can break the promise.

    Source: Dwork and Roth 2014, appendix A.
    """
    e = check.exact("epsilon", epsilon)
    if not 0 < e < 1:
        raise ValueError(
            f"epsilon = {epsilon!r} must be above 0 and below 1: the textbook's rule is proven "
            "there only; ny.calibrate(ny.Gaussian, ny.approximate(epsilon, delta)) is exact "
            "everywhere"
        )
    return _textbook(e, _inner_delta(delta), check.exact("sensitivity", sensitivity))


def textbook_waste(epsilon: Number, delta: Number) -> Bound:
    """Return the textbook's sigma over the least that keeps (epsilon, delta).

    Above 1 it wastes noise (the square of it is the waste in variance). Below 1 it breaks the
    promise: from epsilon 8.4197 on at delta 1e-5, from 9.6236 on at 1e-9.

    Args:
        epsilon: above 0.
        delta: in (0, 1).

    Returns:
        the ratio; lower is safe.
    """
    check.positive("epsilon", float(check.exact("epsilon", epsilon)))
    d = _inner_delta(delta)
    rule = _textbook(check.exact("epsilon", epsilon), d, Fraction(1))
    enough = calibrate(Gaussian, approximate(epsilon, down(float(d), 1)))
    short = _refused(lambda s: Gaussian(s).tradeoff(), float(epsilon), float(d), enough)
    low, high = rule.lower / enough, rule.upper / short
    return Bound(down(low, 1), up(high, 1), "lower", "textbook over exact calibration")


def _refused(
    curve: Callable[[float], Tradeoff], epsilon: float, delta: float, enough: float
) -> float:
    """Return a sigma just below ``enough`` that certainly breaks (epsilon, delta)."""
    gap = NEAR
    while True:
        sigma = enough * (1 - gap)
        if curve(sigma).delta(up(epsilon, 1)).lower > up(delta, 1):
            return sigma
        gap *= 2


def _textbook(epsilon: Fraction, delta: Fraction, sensitivity: Fraction) -> Bound:
    if sensitivity <= 0:
        raise ValueError(f"sensitivity = {float(sensitivity)!r} must be above 0")
    ratio = sensitivity / epsilon
    if not 0.1**MOST_DIGITS < ratio < 10**MOST_DIGITS:
        raise ValueError(
            f"sensitivity / epsilon = {float(sensitivity)!r} / {float(epsilon)!r} must be between "
            f"1e-{MOST_DIGITS} and 1e{MOST_DIGITS}"
        )
    value = math.sqrt(2 * math.log(Fraction(5, 4) / delta)) * float(ratio)
    return _around(value, 32 * UNIT, "textbook rule")


def _inner_delta(delta: Number) -> Fraction:
    exact = _delta("delta", delta)
    if not 0 < exact < 1:
        raise ValueError(f"delta = {delta!r} must be above 0 and below 1")
    return exact


def _delta(name: str, delta: Number) -> Fraction:
    exact = check.exact(name, delta)
    if not 0 <= exact <= 1:
        raise ValueError(f"{name} = {delta!r} must be between 0 and 1")
    return exact


def _pairs(
    epsilons: Iterable[Number], deltas: Iterable[Number] | None
) -> list[tuple[Fraction, Fraction]]:
    """Return the guarantees as exact numbers."""
    first = [check.exact(f"epsilons[{i}]", e) for i, e in enumerate(epsilons)]
    for i, e in enumerate(first):
        check.non_negative(f"epsilons[{i}]", float(e))
    if deltas is None:
        return [(e, Fraction(0)) for e in first]
    second = [_delta(f"deltas[{i}]", d) for i, d in enumerate(deltas)]
    if len(first) != len(second):
        raise ValueError(
            f"epsilons and deltas have {len(first)} and {len(second)} entries; they must be the "
            "same"
        )
    return list(zip(first, second, strict=True))


def _enclosed(value: Fraction, method: str) -> Bound:
    near = float(value)
    if value == near:
        return Bound(near, near, "upper", method)
    return Bound(down(near, 1), up(near, 1), "upper", method)


def _around(value: float, relative: float, method: str) -> Bound:
    if math.isinf(value):
        return Bound(value, value, "upper", method)
    return Bound(value * (1 - relative), value * (1 + relative), "upper", method)


def _root(square: Fraction) -> Bound:
    """Return the square root of an exact number, enclosed."""
    near = math.sqrt(square)
    low = high = near
    while Fraction(low) ** 2 > square:
        low = down(low, 1)
    while Fraction(high) ** 2 < square:
        high = up(high, 1)
    return Bound(low, high, "upper", "sum of squares")
