"""Clipping of rows on a torch device: whole numbers in floats, and every sum exact.

The law is that of `neyman.analysis.training.clipping`: a row becomes whole numbers whose squared
norm is checked exactly, and it depends on no other row. A row comes in parts, such as one part for
each parameter of a model. The whole numbers here are floats. Sums of whole numbers below 2^53 are
exact in float64 in any order, so no kernel can change a row by its position [TR-6]. Each operation
on single elements is a product, a rounding to a whole number, or a comparison. It is rounded as
IEEE arithmetic says in any place, and a compiler has no product and sum to fuse.
"""

# torch is no dependency, so its types are unknown where it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ROUGH_BITS = 20  # of the largest entry, in the rough norm
SLICE = 1 << 13  # squares up to 2^40 that are added up below 2^53
SLICE_BITS = 10  # that a sum of a slice loses, so that 2^19 slices stay below 2^62
EXPONENTS = {torch.float32: 120, torch.float64: 1000}  # of the largest factor, as a power of two


def row_factors(parts: Sequence[Tensor], scale: float, most: int) -> Tensor:
    """Return one factor per row: the row times its factor, rounded, has a norm of at most ``most``.

    The factor is at most ``scale``. It is 0 for a row with an entry that is not finite.

    Args:
        parts: float32 or float64, each of shape (rows, entries).
        scale: the number of units in 1.
        most: the largest norm of a row in units.
    """
    peak = torch.stack([part.abs().amax(1).double() for part in parts]).amax(0)
    finite = peak < torch.inf  # false for NaN
    size = sum(part.shape[1] for part in parts)
    largest = min(EXPONENTS[part.dtype] for part in parts)
    # The rough norm: entries up to 2^20, by a power of two, which is exact. It comes from bits,
    # because a library's power may not be.
    exponent = (torch.where(finite, peak, 1.0).view(torch.int64) >> 52) - 1022
    power = (ROUGH_BITS - exponent).clamp(-largest, largest)
    shift = ((power + 1023) << 52).view(torch.float64)
    slices = torch.stack([_slice_sums(_whole(x, shift, 1 << ROUGH_BITS)) for x in parts]).sum(0)
    # An upper bound of the norm. Rounding moved it by half a unit per entry.
    rough = torch.sqrt(slices.double()) * 2.0 ** (SLICE_BITS // 2)
    norm = (rough + (0.5 * size**0.5 + 1)) / shift
    length = max(most * (1 - 2.0**-20) - 0.5 * size**0.5 - 1, 0.0)
    factor = (length / norm).clamp(max=min(scale, 2.0**largest))
    return torch.where(finite, factor, 0.0)


def rounded(parts: Sequence[Tensor], factors: Tensor, most: int) -> list[Tensor]:
    """Return the parts times the factors as whole numbers; a row that is too long becomes 0.

    The squared norm of each row is at most ``most`` squared, whatever floating point did: a float64
    sum of whole numbers is exact below 2^53, and above it does not come out below.
    """
    values = [_whole(part, factors, most) for part in parts]
    squares = torch.stack([(part.double() ** 2).sum(1) for part in values]).sum(0)
    short = (squares <= float(most * most))[:, None]
    return [torch.where(short, part, 0.0) for part in values]


def column_sums(values: Tensor) -> Tensor:
    """Return the exact int64 sums over rows of whole numbers up to 2^24, for up to 2^28 rows."""
    return values.sum(0, dtype=torch.float64).to(torch.int64)


def _whole(part: Tensor, factors: Tensor, most: int) -> Tensor:
    """Return whole numbers up to ``most``; what is not finite or is above becomes 0."""
    scaled = torch.round(part * factors.to(part.dtype)[:, None])
    return torch.where(scaled.abs() <= most, scaled, 0.0)


def _slice_sums(rough: Tensor) -> Tensor:
    """Return an upper bound of the squared norm of each row in units of 2^10, exact sums alone."""
    cut = rough.shape[1] // SLICE * SLICE
    total = torch.zeros(len(rough), dtype=torch.int64, device=rough.device)
    for part in (rough[:, :cut].reshape(len(rough), -1, SLICE), rough[:, None, cut:]):
        squares = (part.double() ** 2).sum(2).to(torch.int64)
        total += ((squares >> SLICE_BITS) + 1).sum(1)
    return total
