"""The last iterate of noisy gradient descent: three ways to account for one training.

Bok, Su and Altschuler (2024) train a regularised logistic regression on MNIST by noisy cyclic
gradient descent and print epsilon by composition of all iterates, by Renyi divergences and by
f-DP.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

from neyman import Bound, NoisyCyclicGradientDescent
from neyman.accounting.literature.conversions import canonne_kamath_steinke_zcdp
from neyman.numerics import check
from reproductions.census_2020.printed_figures import Cell
from reproductions.facts import PUBLISHED

__all__ = ["DELTA", "TABLE", "Accounted", "accounted", "cells", "descent", "renyi_rho"]

TABLE = "noisy_cyclic_gradient_descent"
DELTA = 1e-5
DIGITS = 60


@dataclass(frozen=True)
class Accounted:
    """Epsilon of one descent in three ways; upper is safe in each.

    Args:
        composition: every iterate is seen.
        renyi: the last is, by `renyi_rho`.
        f_dp: the last is, by its Gaussian curve.
    """

    composition: Bound
    renyi: Bound
    f_dp: Bound


def descent(epochs: int) -> NoisyCyclicGradientDescent:
    """Return the descent of the published table."""
    given = PUBLISHED[TABLE]["parameters"]
    return NoisyCyclicGradientDescent(
        given["n"],
        given["batch"],
        epochs,
        given["noise_sigma"],
        given["sensitivity_substitution"],
        contraction=given["contraction"],
    )


def accounted(descent: NoisyCyclicGradientDescent, delta: float = DELTA) -> Accounted:
    """Return epsilon by composition, by the Renyi bound, and by the trade-off curve."""
    return Accounted(
        descent.all_iterates().tradeoff().epsilon(delta),
        canonne_kamath_steinke_zcdp(renyi_rho(descent), delta),
        descent.tradeoff().epsilon(delta),
    )


def renyi_rho(descent: NoisyCyclicGradientDescent) -> Fraction:
    """Return a rho with D_a <= a rho for the last iterate, without a constraint set and with c
    below 1.

    rho = (s^2 / 2) (1 + c^(l-1) (1 - c^2) / (1 - c^l)^2 (1 - c^(l(E-1)))), s, l and E as in
    `NoisyCyclicGradientDescent`. It holds because it is above mu^2 / 2 of the Gaussian curve there:
    c^(l-1) >= c^(2l-2), and no 1 + c^(l(E-1)) divides it. The paper's own formula for its Renyi
    column was not at hand; this one gives that column's digits, and no more is said of it.

    Raises:
        ValueError: for a constraint set, and for c of 0 or 1.
    """
    if descent.contraction is None or not 0 < descent.contraction < 1:
        raise ValueError(
            f"contraction = {descent.contraction!r} must be above 0 and below 1: the baseline is "
            "for strongly convex losses"
        )
    with localcontext() as context:
        context.prec, context.rounding = DIGITS, ROUND_CEILING
        c = _decimal(descent.contraction)
        batches = descent.n // descent.batch
        s = _decimal(descent.sensitivity) / (_decimal(descent.sigma) * descent.batch)
        round_ = c**batches
        selection = 1 - round_ ** (descent.epochs - 1)
        total = 1 + c ** (batches - 1) * (1 - c * c) / (1 - round_) ** 2 * selection
        return Fraction(s * s * total / 2 * (1 + Decimal(10) ** (20 - DIGITS)))


def cells() -> Iterator[Cell]:
    """Yield the nine printed figures, beside ours."""
    facts = PUBLISHED[TABLE]
    for i, epochs in enumerate(facts["epochs"]):
        ours = accounted(descent(epochs))
        for column in ("composition", "renyi", "f_dp"):
            bound: Bound = getattr(ours, column)
            place = f"{epochs} epochs", column
            yield Cell(TABLE, place, facts[column][i], 2, bound.lower, bound.upper)


def _decimal(value: float | Fraction) -> Decimal:
    exact = check.exact("value", value)
    return Decimal(exact.numerator) / Decimal(exact.denominator)
