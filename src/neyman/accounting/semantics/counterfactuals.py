"""Compare posteriors with those in worlds that lack the person's record.

A predicted record does not change the output's marginal distribution P_0. A default record, or no
record, changes it to P_i. Then the ratio of posteriors has a second factor P_i / P_0, also a
likelihood ratio of mixtures of neighbors. tail(h) bounds the chance that one such ratio exceeds
e^h. The whole ratio exceeds e^eps with probability at most tail(h) + e^{h - eps} tail(eps - h), for
every h [PO-11].
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Literal, get_args

from neyman.numerics.bound import Bound
from neyman.numerics.rounding import below, exp_up, up

Counterfactual = Literal["predicted-record", "default-record", "no-record"]
COUNTERFACTUALS = get_args(Counterfactual)
"""The replacements of the record: see `posterior_ratio`."""

EPSILON_SPLITS = 24  # ways to split epsilon between the two factors; every one gives an upper bound

Tails = Callable[[list[Fraction]], list[Bound]]


def two_factors(tails: Tails, epsilons: list[Fraction], most: float | Fraction) -> list[Bound]:
    """Bound the chance that a ratio of posteriors with two factors exceeds e^epsilon.

    Args:
        tails: function from a list of h >= 0 to bounds on tail(h), the chance that one likelihood
            ratio of mixtures of neighbors exceeds e^h.
        epsilons: at least 0.
        most: the largest privacy loss, or inf.

    Returns:
        A probability for each epsilon; 0 from twice the pure epsilon on. The lower end is 0.
    """
    splits = [_splits(epsilon, most) for epsilon in epsilons]
    asked = sorted({h for pairs in splits for pair in pairs for h in pair})
    tail = dict(zip(asked, tails(asked), strict=True))
    results: list[Bound] = []
    for pairs in splits:
        least = min(
            up(tail[one].upper + up(exp_up(-below(other)) * tail[other].upper))
            if tail[one].upper or tail[other].upper
            else 0.0
            for one, other in pairs
        )
        method = f"two factors, each by {tail[pairs[0][0]].method}"
        results.append(Bound(0.0, min(least, 1.0), "upper", method))
    return results


def _splits(epsilon: Fraction, most: float | Fraction) -> list[tuple[Fraction, Fraction]]:
    """Return pairs (h, epsilon - h) for h on an even grid, and h = ``most`` if it is smaller."""
    first = [epsilon * k / EPSILON_SPLITS for k in range(EPSILON_SPLITS + 1)]
    # same: < epsilon -> <= epsilon: The split (epsilon, 0) is in the list already.
    first += [Fraction(most)] if most < epsilon else []
    return [(h, epsilon - h) for h in first]
