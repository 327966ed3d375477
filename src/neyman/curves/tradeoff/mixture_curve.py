"""Compute the curve of a random choice among mechanisms, with the choice observed or hidden."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import product

from neyman.curves.losses.bracket import ComposedLattice, LossBracket, Parts, sides
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import PERFECT, FiniteLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.mixture import MixtureLoss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.user_pair import resting_on
from neyman.curves.tradeoff.from_data import law
from neyman.curves.tradeoff.piecewise_linear import BETWEEN
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.canonical_order import order_key
from neyman.numerics.relation import unified

HIDDEN = "bound: as if it showed which one was drawn"


def mixture(
    weights: Iterable[object], curves: Iterable[Tradeoff], *, observed: bool = True
) -> Tradeoff:
    """Return the curve of a random choice among mechanisms, with data-independent probabilities.

    If the choice i is observed, P = sum w_i P_i and Q = sum w_i Q_i on outcomes that include i, and
    delta(epsilon) = sum w_i delta_i(epsilon). If it is hidden, the outcome is the same without i,
    so the same curve is a lower bound.

    Args:
        weights: w_i, at least 0, with the sum 1; read like the probabilities of `between`.
        curves: trade-off functions, one per weight. Their pairs have the same order: if one curve
            is for the removal of a record, all are.
        observed: True if the choice is observed. If False, only the safe ends of the answers are
            bounds. The other ends claim nothing.

    Returns:
        A curve that composes.

    Raises:
        ValueError: if the weights are not probabilities or not as many as the curves, the
            neighboring relations differ, or a curve rests on statements or on bounds on its Renyi
            divergences.

    Examples:
        >>> import neyman as ny
        >>> f = ny.mixture([0.9, 0.1], [ny.gdp(0.1), ny.gdp(1)])
        >>> round(float(f.power(level=0.05)), 4)
        0.0941

    Source: Wang, Su, Ye, Shokri and Su 2023 (hidden: joint concavity of the trade-off function).
    """
    shares, _ = law("weights", weights)
    alternatives = check.several("curves", curves, "[ny.gdp(1), ny.pure(1)]")
    if len(shares) != len(alternatives):
        raise ValueError(
            f"weights and curves have {len(shares)} and {len(alternatives)} entries; they must "
            "have the same number"
        )
    for i, f in enumerate(alternatives):
        if not isinstance(f, Tradeoff):
            raise TypeError(f"curves[{i}] = {f!r} must be a Tradeoff, such as ny.gdp(1)")
        if f.sources or any(c.bare for c in f.alternatives):
            raise ValueError(
                f"curves[{i}] = {f!r} is not known as a pair of distributions: a mixture needs one "
                "(give its curve by from_profile, or mix the mechanisms)"
            )
    check.truth("observed", observed)
    positive = [(w, f) for w, f in zip(shares, alternatives, strict=True) if w]
    if len(positive) == 1:
        return positive[0][1]
    ordered = all(f.ordered for _, f in positive)
    relation = "any"
    choices: list[tuple[Composition, ...]] = []
    for _, f in positive:
        relation = unified(relation, f.neighboring)
        both = f.ordered and not ordered  # then both orders must hold
        choices.append((*f.composable, *(c.reverse() for c in f.composable if both)))
    composition = (
        _mix_curves(list(zip((w for w, _ in positive), chosen, strict=True)), observed)
        for chosen in product(*choices)
    )
    return Tradeoff.of(composition, relation, ordered=ordered)


def _mix_curves(curves: list[tuple[Fraction, Composition]], observed: bool) -> Composition:
    """Return the loss of a choice between sums, from (weight, sum) pairs [TC-12].

    Sums that reveal everything become a mass of infinite loss.
    """
    shares: dict[Composition, Fraction] = {}
    for w, curve in curves:
        shares[curve] = shares.get(curve, Fraction(0)) + w
    parts: list[Part] = []
    revealed = shares.pop(Composition(((NonPrivateLoss(), 1),)), Fraction(0))
    if revealed and not shares:
        return Composition(((NonPrivateLoss(), 1),))
    if revealed:
        leak = float(revealed)
        parts.append(FiniteLoss(Fraction(1), (0,), (math.log1p(-leak),), leak, leak))
    if len(shares) == 1 and observed:
        return Composition.of([*((x, 1) for x in parts), *next(iter(shares)).parts])
    pairs = [  # a loss below each sum, and one above it
        (float(w / (1 - revealed)), *map(_single_part, sides(curve.parts), (-1, 1)))
        for curve, w in shares.items()
    ]
    lower = _choice([(w, low) for w, low, _ in pairs])
    upper = _choice([(w, high) for w, _, high in pairs])
    parts.append(upper if lower == upper else LossBracket(lower, upper, BETWEEN))
    if not observed:
        parts = [
            LossBracket(PERFECT, x.upper if isinstance(x, LossBracket) else x, HIDDEN)
            for x in parts
        ]
    return resting_on((c for _, c in curves), Composition.of((x, 1) for x in parts))


def _choice(parts: list[tuple[float, Part]]) -> Part:
    if len(parts) == 1:
        return parts[0][1]
    return MixtureLoss(tuple(sorted(parts, key=order_key)))


def _single_part(parts: Parts, side: int) -> Part:
    """Return a sum as one loss: exact, or dominated by the sum (side -1), or dominating it (1)."""
    if not parts:
        return PERFECT
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    return ComposedLattice.exact(parts) or ComposedLattice(parts, side)
