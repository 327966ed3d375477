"""Derive a query's clipping interval from a noisy histogram whose bins end at powers of two.

Each unit puts one of its rows into one bin. So one unit changes one bin under add-remove, and at
most two under replace-one. The interval is [0, B] or [-B, B]. B is the least power of two such that
the noisy counts outside are at most a declared fraction of all counts. The noise of the query's
tables is proportional to B, so their trade-off curve is the same for each candidate [UN-9].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

ROWS_TABLE = "unit-rows"
"""The name of the histogram of rows per unit, and of the bound derived from it."""


@dataclass(frozen=True)
class Limits:
    """Limit the largest bound of a clip, and the count outside the clip that may be noise alone."""

    exponent: int = 40  # the largest candidate is at most two to this power


LIMITS = Limits()


@dataclass(frozen=True)
class ClipSearch:
    """Describe how to search for the clip of a query.

    Args:
        histogram: the name of the query that measures the histogram.
        share: the fraction of the query's budget share that the histogram takes, in (0, 1).
        above: the fraction of the units that may be outside the clip, in (0, 1).
        signed: True if the clip is [-B, B], False if it is [0, B].
        most: the largest exponent: B is at most 2^most.
    """

    histogram: str
    share: Fraction
    above: Fraction
    signed: bool
    most: int


def top_clip(search: ClipSearch) -> tuple[int, int]:
    """Return the largest clip that the search can choose, as (low, high)."""
    return _clip(search, search.most)


def edges_of(search: ClipSearch) -> tuple[int, ...]:
    """Return the edges of the bins.

    For a clip [0, B], bin 0 holds 0 and 1, and bin j holds the values in (2^(j-1), 2^j]. For [-B,
    B], bin 0 is [-1, 1], and each other bin also has a mirror image.
    """
    right = (2, *(2**j + 1 for j in range(1, search.most + 1)))
    left = tuple(-(2**j) for j in range(search.most, -1, -1)) if search.signed else (0,)
    return (*left, *right)


def chosen_clip(
    search: ClipSearch, counts: Sequence[int], sigma_squared: Fraction
) -> tuple[int, int]:
    """Choose the clip (low, high) from the published, noisy count of each bin.

    B is the least candidate for which the counts outside sum to at most ``search.above`` times all
    counts, or exceed this by at most two standard errors; else the largest. ``sigma_squared`` is
    each count's noise variance. Noise alone leads to a small B, never to an error.
    """
    right = list(range(search.most + 1))  # the least exponent that contains the values of each bin
    needed = [*reversed(right[1:]), *right] if search.signed else right
    allowed = search.above * max(sum(counts), 0)
    for exponent in range(search.most):
        outside = [n for n, least in zip(counts, needed, strict=True) if least > exponent]
        excess = sum(outside) - allowed
        # The square of 2: noise alone explains a tail within two standard errors.
        if excess <= 0 or excess**2 <= 4 * len(outside) * sigma_squared:
            return _clip(search, exponent)
    return top_clip(search)


def _clip(search: ClipSearch, exponent: int) -> tuple[int, int]:
    return (-(2**exponent) if search.signed else 0), 2**exponent
