"""Bound how far the distribution F of a sum of losses is from an Edgeworth expansion E.

Let phi be the characteristic function of the sum and gamma the transform of E, both in standard
units. Beurling's function is at least the step function, and its Fourier transform is 0 outside
[-T, T]. So

    sup |F - E| <= (C / pi) integral from 0 to T of |phi - gamma| / t dt + (pi / T) sup |E'|,

C = 1.0253 (Prawitz 1972; Vaaler 1985; [EE-1]). This holds for every T. The code uses the best T.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from scipy.special import gamma

from neyman.accounting.literature.cumulants import fourth_moment
from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

Terms = tuple[tuple[int, float], ...]

KERNEL_BOUND = 1.0253  # above 2 pi u |Prawitz's kernel at u| for 0 < u <= 1 [EE-1]
NEAR_DEVIATIONS = 9.0  # standard units: phi is computed up to here, and bounded beyond
STEP_DEVIATIONS = 0.01  # standard units between two nodes
FAR = np.geomspace(NEAR_DEVIATIONS, NEAR_DEVIATIONS * 1e6, 241)


@lru_cache(maxsize=256)
def expansion_band(
    losses: Composition, mean: float, deviation: float, terms: Terms
) -> float | None:
    """Bound the largest distance of the finite part's distribution from an expansion [EE-6].

    Args:
        losses: independent losses of one ordered pair.
        mean, deviation: mean and standard deviation of the expansion; deviation above 0.
        terms: (k, a) for each correction a He_k(x) phi(x) of the normal density phi.

    Returns:
        The distance, at most 1. None if a loss is known only by lower and upper brackets.
    """
    if any(isinstance(loss, LossBracket) for loss, _ in losses.parts):
        return None
    t = STEP_DEVIATIONS * np.arange(round(NEAR_DEVIATIONS / STEP_DEVIATIONS) + 2)
    gap, error = _transform_difference(losses, mean, deviation, terms, t)
    # A cubic through four nodes errs by at most (9/16) h^4 / 24 of the fourth derivative between
    # the inner two, which is at most the two distributions' fourth moments [EE-2].
    fourth = fourth_moment(losses, mean) / deviation**4 + _moment(terms)
    left, right = _cubics(gap)
    slack = 1.5 * error + STEP_DEVIATIONS**4 * fourth * (9 / 384)
    # The first piece and its error are divided by t: (1 - s^2) (2 - s) has the mean 13/12.
    first = max(3 * abs(left[0]), 1.5 * abs(right[0]), abs(gap[1]))
    first += 4.5 * error + STEP_DEVIATIONS**4 * fourth * (13 / 288)
    biggest = np.max(np.abs([gap[:-2], left, right, gap[1:-1]]), axis=0)[1:] + slack
    near = first + np.concatenate([[0.0], np.cumsum(biggest * np.diff(np.log(t[1:-1])))])
    with np.errstate(under="ignore"):
        modulus = np.exp(np.minimum(losses.log_decay(0.0, FAR / deviation, 100.0), 0.0))
    tail = np.cumsum(modulus[:-1] * np.diff(np.log(FAR))) + _tail(terms)
    places = np.concatenate([t[1:-1], FAR[1:]])
    integral = np.concatenate([near, near[-1] + tail])
    bounds = (KERNEL_BOUND / math.pi) * integral + (math.pi * _steepest(terms)) / places
    return min(float(bounds.min()) * (1 + 1e-9), 1.0)


def _transform_difference(
    losses: Composition, mean: float, deviation: float, terms: Terms, t: Array
) -> tuple[Array, float]:
    """Return phi - gamma at the nodes ``t``, and its largest rounding error."""
    u = t / deviation
    k, error = losses.mgf(1j * u)
    phi = np.exp(k - k[0] - 1j * u * mean)
    normal = np.exp(-t * t / 2)
    expansion = normal * (1 + sum((a * (1j * t) ** n for n, a in terms), np.zeros(len(t))))
    # phi: t is rounded, which moves it by |phi'| u t <= u t; three terms of the exponent err by 3
    # units of themselves, its power by 4. The normal distribution alike. Where terms of the
    # expansion are far above 1 they are most of the distance, to which 1e-9 of itself is added.
    # slack: counted
    rounding = 2 * error + 2 * error[0] + 8 * UNIT * (8 + t * t + np.abs(k) + u * abs(mean))
    gap = phi - expansion
    gap[0] = 0.0
    return gap, float(rounding.max())


def _cubics(values: Array) -> tuple[Array, Array]:
    """Return the inner Bernstein coefficients of each cubic through four consecutive values.

    They are for the interval between the middle two values. There, the cubic's absolute value is at
    most its largest coefficient's. The value left of t = 0 is the complex conjugate of the value
    right of it.
    """
    before = np.concatenate([[np.conj(values[1])], values[:-3]])
    start, end, after = values[:-2], values[1:-1], values[2:]
    return (
        start + (-before / 3 - start / 2 + end - after / 6) / 3,
        end - (before / 6 - start + end / 2 + after / 3) / 3,
    )


def _sizes(terms: Terms) -> Iterable[tuple[int, float]]:
    """Return (n, |a|) for each term of the expansion. The normal term is (0, 1)."""
    return ((0, 1.0), *((n, abs(a)) for n, a in terms))


def _steepest(terms: Terms) -> float:
    """Bound sup |E'| from the expansion's terms.

    |He_n phi| <= (1 / pi) integral of t^n e^{-t^2 / 2}, by Fourier [EE-5].
    """
    return sum(
        a * 2 ** ((n - 1) / 2) * float(gamma((n + 1) / 2)) / math.pi for n, a in _sizes(terms)
    )


def _moment(terms: Terms) -> float:
    """Bound the integral of x^4 |E'| from the terms (n, a) of the expansion.

    E |x^4 He_n| <= sqrt(105 n!), by Cauchy and Schwarz [EE-3].
    """
    return 3 + sum(a * math.sqrt(105 * math.factorial(n)) for n, a in terms)


def _tail(terms: Terms) -> float:
    """Bound the integral of |gamma| / t over t > `NEAR_DEVIATIONS`.

    Integrate each t^{n-1} e^{-t^2/2} by parts [EE-4].
    """
    end = math.exp(-(NEAR_DEVIATIONS**2) / 2)
    return sum(
        a * end * NEAR_DEVIATIONS ** (n - 2) / (1 - max(n - 2, 0) / NEAR_DEVIATIONS**2)
        for n, a in _sizes(terms)
    )
