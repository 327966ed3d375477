"""Clipping of rows on a torch device: whole numbers in floats, and every sum exact.

The law is that of `neyman.analysis.training.clipping`: a row becomes whole numbers whose squared
norm is checked exactly, and it depends on no other row. A row comes in parts, such as one part for
each parameter of a model. The whole numbers here are floats. Sums of whole numbers below 2^53 are
exact in float64 in any order, so no kernel can change a row by its position [TR-6]. Each operation
on single elements is a product, or a rounding to a whole number. It is rounded as IEEE arithmetic
says in any place, and a compiler has no product and sum to fuse.
"""

# torch is no dependency, so its types are unknown where it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

ROUGH_BITS = 18  # of the largest entry, in the rough norm
FLOAT_SIZE = 1 << 17  # squares up to 2^36 that add up to at most 2^53
EXPONENTS = {torch.float32: 120, torch.float64: 1010}  # of factors, as powers of two
MOST_ROWS = 1 << 28  # whose entries up to 2^24 add up to less than 2^53
CACHE = 1 << 18  # entries that a CPU works on at a time
BLOCK = 1 << 26  # entries that another device works on at a time

Kernel = Callable[..., Tensor]


@dataclass(frozen=True)
class Part:
    """Some columns of all rows, and the total that they are added to.

    Args:
        rows: float32 or float64, of shape (rows, entries).
        total: float64, of shape (entries,): the sum of up to `MOST_ROWS` rows of whole numbers.
        tokens: whole numbers of shape (rows, tokens). The total then has the shape (vocabulary,
            width), and ``rows`` has the entries of one line of it for each token.
    """

    rows: Tensor
    total: Tensor
    tokens: Tensor | None = None

    def at(self, cut: slice) -> Part:
        """Return the part of some rows."""
        return Part(self.rows[cut], self.total, None if self.tokens is None else self.tokens[cut])

    def columns(self, count: int) -> list[Part]:
        """Return parts of up to ``count`` columns each; one for a table."""
        if self.tokens is not None:
            return [self]
        pairs = zip(self.rows.split(count, 1), self.total.split(count), strict=True)
        return [Part(rows, total) for rows, total in pairs]


def add_clipped(
    parts: Sequence[Part], weights: Tensor, scale: float, most: int, *, compiled: bool = False
) -> None:
    """Add the clipped, rounded rows to the totals of their parts.

    Args:
        parts: the columns of the rows.
        weights: 1 for a row, and 0 for a dummy row.
        scale: the number of units in 1.
        most: the largest norm of a row in units.
        compiled: use `torch.compile`.
    """
    size = sum(part.rows.shape[1] for part in parts)
    if parts[0].rows.is_cpu and size <= CACHE and not compiled:
        _add_small(parts, weights, scale, most, CACHE // size)
        return
    count = max(1, (CACHE if parts[0].rows.is_cpu and not compiled else BLOCK) // len(weights))
    _add([piece for part in parts for piece in part.columns(count)], weights, scale, most, compiled)


def _add_small(parts: Sequence[Part], weights: Tensor, scale: float, most: int, count: int) -> None:
    """Add a few rows at a time, with all columns beside each other, in the cache of a CPU."""
    plain = [part for part in parts if part.tokens is None]
    tables = [part for part in parts if part.tokens is not None]
    sums = torch.zeros(sum(len(part.total) for part in plain), dtype=torch.float64)
    for start in range(0, len(weights), count):
        cut = slice(start, start + count)
        some = [part.at(cut) for part in tables]
        if plain:
            some.append(Part(torch.cat([part.rows[cut] for part in plain], 1), sums))
        _add(some, weights[cut], scale, most, False)
    for part, values in zip(plain, sums.split([len(x.total) for x in plain]), strict=True):
        part.total.add_(values)


def _add(parts: Sequence[Part], weights: Tensor, scale: float, most: int, compiled: bool) -> None:
    """Add rows whose squared norm is at most ``most`` squared, and no others.

    This holds whatever floating point did before: a float64 sum of squared whole numbers is exact
    below 2^53, and does not come out below 2^53 where it is above. NaN is not at most anything.
    """
    run = _compiled if compiled else _eager
    factors = row_factors([part.rows for part in parts], scale, most, compiled=compiled) * weights
    alone = len(parts) == 1 and not compiled  # its whole numbers are few enough to keep
    values = _whole(parts[0].rows, factors) if alone else None
    squares = torch.stack(
        [run(_squares)(part.rows, factors) for part in parts]
        if values is None
        else [(values * values).sum(1)]
    ).sum(0)
    short = squares <= float(most * most)
    for part in parts:
        if part.tokens is not None:
            lines = run(_kept)(part.rows, factors, short).reshape(-1, part.total.shape[1])
            part.total.index_add_(0, part.tokens.reshape(-1), lines)
        elif values is not None and values.is_cpu and bool(short.all()):
            part.total.add_(values.sum(0))
        else:
            part.total.add_(run(_kept_sum)(part.rows, factors, short))


def row_factors(
    rows: Sequence[Tensor], scale: float, most: int, *, compiled: bool = False
) -> Tensor:
    """Return one float64 factor per row, so that the product, rounded, is no longer than ``most``.

    The factor is at most ``scale``. It is 0 for a row with an entry that is not finite.

    Args:
        rows: the parts of the rows.
        scale: the number of units in 1.
        most: the largest norm of a row in units.
        compiled: use `torch.compile`.
    """
    run = _compiled if compiled else _eager
    peak = torch.stack([run(_peak)(part) for part in rows]).amax(0)
    finite = peak < torch.inf  # false for NaN
    size = sum(part.shape[1] for part in rows)
    largest = min(EXPONENTS[part.dtype] for part in rows)
    # The rough norm: entries up to 2^18, by a power of two, which is exact. It comes from bits,
    # because a library's power may not be. The sum of squares is exact in any order.
    exact = torch.float64 if size <= FLOAT_SIZE else torch.int64
    bits = min(ROUGH_BITS, (62 - (size - 1).bit_length()) // 2)
    exponent = torch.frexp(torch.where(finite, peak, 1.0))[1].to(torch.int64)
    power = (bits - exponent).clamp(-largest, largest)
    shift = ((power + 1023) << 52).view(torch.float64)
    squares = torch.stack([run(_rough_squares)(part, shift, exact) for part in rows]).sum(0)
    # An upper bound of the norm. Rounding moved it by half a unit per entry.
    norm = (torch.sqrt(squares.double()) + (0.5 * size**0.5 + 1)) / shift
    length = max(most * (1 - 2.0**-20) - 0.5 * size**0.5 - 1, 0.0)
    factor = (length / norm).clamp(max=min(scale, 2.0**largest))
    return torch.where(finite, factor, 0.0)


def _peak(part: Tensor) -> Tensor:
    return part.abs().amax(1).double()


def _whole(part: Tensor, factors: Tensor) -> Tensor:
    return (part * factors.to(part.dtype)[:, None]).round_().double()


def _squares(part: Tensor, factors: Tensor) -> Tensor:
    return _whole(part, factors).square_().sum(1)


def _kept(part: Tensor, factors: Tensor, short: Tensor) -> Tensor:
    return torch.where(short[:, None], _whole(part, factors), 0.0)


def _kept_sum(part: Tensor, factors: Tensor, short: Tensor) -> Tensor:
    return _kept(part, factors, short).sum(0)


def _rough_squares(part: Tensor, shift: Tensor, exact: torch.dtype) -> Tensor:
    return _whole(part, shift).square_().sum(1, dtype=exact)


def _eager(kernel: Kernel) -> Kernel:
    return kernel


@cache
def _compiled(kernel: Kernel) -> Kernel:
    return torch.compile(kernel, dynamic=True)
