"""Represent the loss of integers with rounded normal noise, between two certified distributions.

For an integer x, x + round(Z) = round(x + Z): the output is a rounded Gaussian output. Rounding is
post-processing, so the trade-off curve is at least the Gaussian curve. This holds for every integer
shift of the same l2 norm, in any dimension, under composition, and with sampling [RG-1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from scipy.special import erfcx

from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.finite import OffLatticeLoss, finite_loss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import above

MAX_THRESHOLDS = 300  # most thresholds on one side: all of them up to a sigma of about 8
Point = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class RoundedGaussianLoss(LossBracket):
    """Represent the loss of round(N(0, sigma^2)) against itself moved by an integer.

    Build it with `rounded_gaussian_loss`. A Gaussian loss bounds the loss from above. A loss from
    tests that compare the output with a threshold bounds it from below. The pair is its own
    reverse, by reflection.

    Args:
        exact: a finite loss that dominates the pair's loss, and differs from it only by rounding;
            None if sigma is too large to list all thresholds, or if ``shift`` is only one of the
            possible vectors.
    """

    exact: OffLatticeLoss | None = None

    def reverse(self) -> RoundedGaussianLoss:
        return self


def rounded_gaussian_loss(
    sigma_squared: Fraction, shift: int, *, alone: bool
) -> RoundedGaussianLoss:
    """Return the loss of integers that move by ``shift``, with rounded normal noise.

    Args:
        sigma_squared: sigma^2 of the normal distribution before rounding, exact, above 0.
        shift: at least 1.
        alone: True if one coordinate moves, by at most ``shift``; False if ``shift`` is only one of
            the possible vectors.
    """
    return _loss(sigma_squared, shift, alone)


@array_cache
def _loss(sigma_squared: Fraction, shift: int, alone: bool) -> RoundedGaussianLoss:
    sigma = math.sqrt(sigma_squared)
    last = math.ceil(shift + 35 * sigma) + 1  # the mass beyond is less than 1e-267
    # same: // 2 -> // 3: Safe: more true tests are in the hull, whose corners stay. Both sides are
    # bounded as before.
    first = (shift + 2) // 2  # from here on the level is at most the type II error
    every = last - first < MAX_THRESHOLDS
    tests = (
        np.arange(first, last + 1)
        if every
        else np.unique(np.linspace(first, last, MAX_THRESHOLDS).round().astype(np.int64))
    )
    upper = GaussianLoss(above(shift**2 / sigma_squared))
    lower = _law(tests, shift, sigma, -1)
    # Beyond a shift of 30 sigma the mass of finite loss underflows.
    listed = every and alone and shift < 30 * sigma
    exact = _law(tests, shift, sigma, 1) if listed else None
    return RoundedGaussianLoss(lower, upper, "rounded to whole numbers", exact)


def _law(tests: Array, shift: int, sigma: float, side: int) -> OffLatticeLoss:
    """Return a finite pair whose best tests are those at the thresholds, up to rounding [RG-2].

    Args:
        tests: increasing integer thresholds. A test rejects if the output is at least its
            threshold, so its power increases from the last threshold to the first.
        side: 1 for a pair that dominates the true one, -1 for a pair that it dominates.
    """
    half: list[Point] = []
    for k in tests[::-1].tolist():
        level = _tail((k - 0.5) / sigma, -side)
        miss = (shift + 0.5 - k) / sigma  # the power is P(N >= -miss)
        power = 1 - _tail(miss, -side) if miss > 0 else _tail(-miss, side)
        half.append((level, power))
    mirrored = [(1 - y, 1 - x) for x, y in reversed(half)]
    zero, one = Fraction(0), Fraction(1)
    start = [(zero, zero), (zero, half[0][1])] if side > 0 else [(zero, zero)]
    end = [(1 - half[0][1], one), (one, one)] if side > 0 else [(one, one)]
    corners = _hull(sorted({*start, *half, *mirrored, *end}))
    moves = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(corners)]
    loss = finite_loss([p for _, p in moves], [q for q, _ in moves])
    assert loss is not None  # the first test has a level and a power
    return loss


def _tail(x: float, side: int) -> Fraction:
    """Return P(N >= x) for a standard normal N and x >= 0, rounded up (side 1) or down (side -1).

    `erfcx` errs by at most 64 rounding units, and x^2 / 2 by 4 relative units.
    """
    if x > 37:  # the tail is below 1e-298, near underflow
        return Fraction(1, 10**290) if side > 0 else Fraction(0)
    value = 0.5 * float(erfcx(x / math.sqrt(2))) * math.exp(-x * x / 2)
    # slack: a_tail_of_the_normal_law
    return Fraction(value) * (1 + side * Fraction(UNIT) * (128 + math.ceil(16 * x * x)))


def _hull(points: list[Point]) -> list[Point]:
    """Return the corners of the smallest concave function above these sorted points."""
    corners: list[Point] = []
    for point in points:
        while len(corners) > 1:
            (a, b), (c, d) = corners[-2], corners[-1]
            if (d - b) * (point[0] - c) > (point[1] - d) * (c - a):
                break
            corners.pop()
        corners.append(point)
    return corners
