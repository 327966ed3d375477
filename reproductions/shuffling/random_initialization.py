"""One step of noisy gradient descent from a random start: a mixture over where it starts.

One step releases theta_1 = theta_0 - eta (g(theta_0) + N(0, sigma^2)). Where the loss is quadratic,
(theta - x)^2 / 2 averaged over records, replacing a record at x by one at x' moves the step by a
constant; with a slope x (loss (y - x theta)^2 / 2) it moves by |s theta_0 + r|, in units of the
noise, and with theta_0 ~ N(0, 1) the distance of the two normal laws is random. If the start is
seen, delta(epsilon) = E[delta of G_{|s theta_0 + r|}], exactly; if it is not, that is an upper
bound, by joint concavity.

The integral over theta_0 is certified by cells: a Gaussian's curve is monotone in mu, so each cell
lies between the curves of its least and its largest mu.

Source: Wang, Su, Ye, Shokri and Su 2023 (their second example).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from scipy.special import ndtr

from neyman import Bound, Tradeoff, between, gdp, mixture, perfect
from neyman.numerics import check

__all__ = ["from_a_random_start", "random_start"]

FARTHEST = 9.0  # deviations of the start; what is beyond is as if it revealed all, or nothing
SLACK = Fraction(1, 10**15)  # of a normal probability, which scipy gives to a few units


def random_start(slope: float, offset: float, cells: int = 600) -> tuple[Tradeoff, Tradeoff]:
    """Two curves around that of a step whose start is seen.

    Args:
        slope: s, by how much the distance of both steps grows with the start, in units of noise.
        offset: r, the distance at a start of 0.
        cells: into which the starts are cut, at least 1.

    Returns:
        A curve that is certainly not more private than the step, and one that is not less private.
    """
    s, r = check.finite("slope", slope), check.finite("offset", offset)
    count = check.integer("cells", cells, 1)
    edges = [FARTHEST * (2 * i / count - 1) for i in range(count + 1)]
    masses: list[Fraction] = []
    least: list[float] = []
    most: list[float] = []
    for a, b in pairwise(edges):
        inner = ndtr(b) - ndtr(a) if b <= 0 else ndtr(-a) - ndtr(-b)
        masses.append(max(Fraction(float(inner)) - SLACK, Fraction(0)))
        ends = [abs(s * x + r) for x in (a, b)]
        low = 0.0 if (s * a + r) * (s * b + r) <= 0 else min(ends)
        least.append(low * (1 - 1e-12))
        most.append(max(ends) * (1 + 1e-12))
    rest = 1 - sum(masses, Fraction(0))
    return _mixed(masses, most, rest, between([1, 0], [0, 1])), _mixed(
        masses, least, rest, perfect()
    )


def from_a_random_start(
    slope: float, offset: float, epsilons: Sequence[float], cells: int = 600
) -> list[Bound]:
    """delta at each epsilon for a step whose start is seen; upper also where it is not."""
    above, below = random_start(slope, offset, cells)
    return [
        Bound(
            below.delta(epsilon=e).lower,
            above.delta(epsilon=e).upper,
            "upper",
            "cells of the start",
        )
        for e in epsilons
    ]


def _mixed(masses: list[Fraction], mus: list[float], rest: Fraction, other: Tradeoff) -> Tradeoff:
    selection = [(w, mu) for w, mu in zip(masses, mus, strict=True) if w]
    curves = [gdp(mu) if mu else perfect() for _, mu in selection]
    return mixture([*(w for w, _ in selection), rest], [*curves, other], observed=True)
