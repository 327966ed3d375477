"""Bound the distance of two whole posteriors, with and without one person's record.

Kasiviswanathan and Smith 2014 compare the attacker's posterior over datasets with a second
posterior, by statistical distance. The second posterior assumes that a default record replaced the
person's, for the same output. Their theorem for (epsilon, delta) needs a small epsilon and a delta
far below 1 / n. The bounds here [PO-12, PO-13, PO-14] are our own, for any curve and one person.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from neyman.accounting.semantics.bayes import tails
from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import below, up

HEIGHTS: list[float] = np.geomspace(1e-3, 30, 12).tolist()
"""Losses that count as small. Each one gives an upper bound."""

REFINED_POINTS = 8  # additional losses around the best

ROUNDING_FLOATS = 16  # rounding error of one line of arithmetic, in floats


def posterior_distance(guarantee: Described, chance: float | Fraction) -> Bound:
    """Bound the distance of two posteriors, with and without one person's record.

    The attacker has a prior over whole datasets and sees the output. The second posterior follows
    from the same output if a default record, or no record, had replaced the person's. The distance
    is the statistical distance: the largest difference of the two probabilities of any statement
    about the data, this person, or anyone.

    Args:
        guarantee: a mechanism, its curve, or a named guarantee. Under "replace-one", a default
            record replaces the person's; under "add-remove", none does.
        chance: the allowed probability of a larger distance, in (0, 1]. It is over the noise and
            the data, drawn from the attacker's prior. Under a wrong prior, larger distances may
            occur more often. For n people at once, divide it by n.

    Returns:
        A distance in [0, 1]; upper is safe, lower is 0. It is the smallest of

        - tanh(epsilon / 2) with the pure epsilon, if there is one: at every output, for any prior,
          right or wrong [PO-13];
        - 2 advantage / chance: the mean distance is at most 2 advantage [PO-12];
        - tanh(h / 2) + (1 + e^-h) (1 + e^{h/2})^2 tail(h) / (chance - tail(h)), over many h, with
          tail(h) the probability that a ratio of neighbors exceeds e^h [PO-14].

    Raises:
        ValueError: ``chance`` is out of range.
        TypeError: ``guarantee`` has no curve.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.semantics.statistical_distance import posterior_distance
        >>> round(posterior_distance(ny.pure("0.2"), chance=0.05).upper, 4)
        0.0997
        >>> round(posterior_distance(ny.approximate("0.2", 1e-9), chance=0.05).upper, 4)
        0.1201
        >>> round(posterior_distance(ny.gdp(0.1), chance=0.05).upper, 4)
        0.2218

    Source: Kasiviswanathan and Smith 2014 (the comparison); [PO-12, PO-13, PO-14] (the bounds).
    """
    f: Tradeoff = check.described("guarantee", guarantee).tradeoff()
    share = check.exact("chance", chance)
    if not 0 < share <= 1:
        raise ValueError(f"chance = {chance!r} must be above 0 and at most 1")
    allowed = below(share)
    if not allowed:
        return Bound(0.0, 1.0, "upper", "the largest distance")
    results = {"largest distance": 1.0}
    epsilon = f.pure().upper
    if epsilon < math.inf:
        results["pure epsilon"] = up(math.tanh(epsilon / 2), ROUNDING_FLOATS) if epsilon else 0.0
    results["mean distance"] = up(2 * f.advantage().upper / allowed, ROUNDING_FLOATS)
    bounds = _at(f, HEIGHTS, allowed)
    best = bounds.index(min(bounds))
    low, high = HEIGHTS[max(best - 1, 0)], HEIGHTS[min(best + 1, len(HEIGHTS) - 1)]
    closer: list[float] = np.linspace(low, high, REFINED_POINTS + 2)[1:-1].tolist()
    results["most losses are small"] = min(*bounds, *_at(f, closer, allowed))
    method = min(results, key=lambda name: results[name])
    return Bound(0.0, min(results[method], 1.0), "upper", f"{method}; {f.method}")


def _at(f: Tradeoff, heights: list[float], allowed: float) -> list[float]:
    """Return the bound for each h in ``heights``, rounded up [PO-14]; 1 if no bound holds.

    ``allowed``: the chance of a larger distance.
    """
    bounds: list[float] = []
    for h, chance in zip(heights, tails(f, [Fraction(h) for h in heights]), strict=True):
        tail = chance.upper
        left = allowed - tail
        if left > 2**-40 * allowed:
            rare = (1 + math.exp(-h)) * (1 + math.exp(h / 2)) ** 2 * tail / (left * (1 - 2**-40))
            bounds.append(up(math.tanh(h / 2) + rare * (1 + 2**-40), ROUNDING_FLOATS))
        else:
            bounds.append(1.0)
    return bounds
