"""Clip rows on a torch device, with integers in floats and exact sums.

A row becomes integers whose squared norm is checked exactly, as in
`neyman.analysis.training.clipping`. The columns of a row are split into parts, such as one for each
parameter of a model. The integers are stored as floats. Sums of integers below 2^53 are exact in
float64 in any order, so no kernel can change a row by its position [TR-6]. Each operation on single
elements is a product, or a rounding to an integer. IEEE arithmetic rounds it the same in any
position, and a compiler cannot fuse a product and a sum.
"""

# torch is optional, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Limits:
    """Limit sizes so that float64 is exact, and the numbers processed at a time."""

    length_slack: float = 2.0**-20  # relative slack of a length, for floating point
    rows: int = 1 << 28  # rows whose entries up to 2^24 add up to less than 2^53
    cpu_numbers: int = 1 << 17  # entries that a CPU processes at a time


LIMITS = Limits()

EXPONENTS = {torch.float32: 120, torch.float64: 1010}  # exponents of the largest factors

Kernel = Callable[..., Tensor]


@dataclass(frozen=True)
class ClippedPart:
    """Hold some columns of all rows, and the total to which they are added.

    Args:
        rows: a float32 or float64 tensor of shape (rows, entries).
        total: a float64 tensor of shape (entries,), the sum of up to `LIMITS.rows` rows of
            integers.
        tokens: integers of shape (rows, tokens), for an embedding. The total then has the shape
            (vocabulary, width), and ``rows`` has ``width`` entries for each token, which are added
            to the token's row of it.
    """

    rows: Tensor
    total: Tensor
    tokens: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Add integers, one for each entry of ``rows``, to the total."""
        if self.tokens is None:
            self.total.add_(values.sum(0))
        else:
            lines = values.reshape(-1, self.total.shape[1])
            self.total.index_add_(0, self.tokens.reshape(-1), lines)

    def at(self, cut: slice) -> ClippedPart:
        """Return the same columns of the rows in a slice, with the same total."""
        return ClippedPart(
            self.rows[cut], self.total, None if self.tokens is None else self.tokens[cut]
        )

    def columns(self, count: int) -> list[ClippedPart]:
        """Return parts of up to ``count`` columns each. A part with tokens stays in one piece."""
        if self.tokens is not None:
            return [self]
        pairs = zip(self.rows.split(count, 1), self.total.split(count), strict=True)
        return [ClippedPart(rows, total) for rows, total in pairs]


def add_clipped(
    parts: Sequence[ClippedPart],
    weights: Tensor,
    scale: float,
    most: int,
    *,
    compiled: bool = False,
) -> None:
    """Add the clipped, rounded rows to the totals of their parts.

    Args:
        parts: the columns of the rows.
        weights: one number per row, 1, or 0 for a dummy row.
        scale: the largest factor from gradients to integer units.
        most: the largest norm of a row in units.
        compiled: if True, use `torch.compile`.
    """
    size = sum(part.rows.shape[1] for part in parts)
    on_cpu = parts[0].rows.is_cpu and not compiled
    if on_cpu and size <= LIMITS.cpu_numbers:
        _add_small(parts, weights, scale, most, LIMITS.cpu_numbers // size)
        return
    # Entries that another device processes at a time.
    count = max(1, (LIMITS.cpu_numbers if on_cpu else 1 << 26) // len(weights))
    _add([piece for part in parts for piece in part.columns(count)], weights, scale, most, compiled)


def _add_small(
    parts: Sequence[ClippedPart], weights: Tensor, scale: float, most: int, count: int
) -> None:
    """Do `add_clipped` for ``count`` rows at a time, which fit in a CPU's cache."""
    plain = [part for part in parts if part.tokens is None]
    tables = [part for part in parts if part.tokens is not None]
    sums = torch.zeros(sum(len(part.total) for part in plain), dtype=torch.float64)
    for start in range(0, len(weights), count):
        cut = slice(start, start + count)
        some = [part.at(cut) for part in tables]
        if plain:
            some.append(ClippedPart(torch.cat([part.rows[cut] for part in plain], 1), sums))
        _add(some, weights[cut], scale, most, False)
    for part, values in zip(plain, sums.split([len(x.total) for x in plain]), strict=True):
        part.total.add_(values)


def _add(
    parts: Sequence[ClippedPart], weights: Tensor, scale: float, most: int, compiled: bool
) -> None:
    rows = [part.rows for part in parts]
    factors = row_factors(rows, scale, most, compiled=compiled) * weights
    if len(parts) == 1 and not compiled:
        parts[0].add(rounded(rows, factors, most)[0])
        return
    run = _compile if compiled else _eager
    squares = torch.stack([run(_squares)(part, factors) for part in rows]).sum(0)
    short = squares <= float(most * most)
    for part in parts:
        if part.tokens is None:
            part.total.add_(run(_selection_sum)(part.rows, factors, short))
        else:
            part.add(run(_selection)(part.rows, factors, short))


def rounded(rows: Sequence[Tensor], factors: Tensor, most: int) -> list[Tensor]:
    """Return each row times its factor, rounded to integers and stored in float64, in parts.

    A row becomes 0 if its rounded squared norm is above ``most`` squared, or NaN. The comparison is
    reliable: a float64 sum of squared integers is exact if it is below 2^53, and otherwise not
    below 2^53.
    """
    values = [_integers(part, factors) for part in rows]
    squares = torch.stack([(part * part).sum(1) for part in values]).sum(0)
    short = squares <= float(most * most)
    return [selection(part, short) for part in values]


def selection(rows: Tensor, keep: Tensor) -> Tensor:
    """Return the rows to keep, and zeros instead of the other rows."""
    if keep.is_cpu and bool(keep.all()):
        return rows
    return torch.where(keep.reshape(-1, *[1] * (rows.ndim - 1)), rows, 0.0)


def row_factors(
    rows: Sequence[Tensor], scale: float, most: int, *, compiled: bool = False
) -> Tensor:
    """Return one float64 factor per row that bounds the norm of the rounded product by ``most``.

    The factor is at most ``scale``. It is 0 for a row with an entry that is not finite.

    Args:
        rows: arrays of shape (rows, columns), each with some columns of all rows.
        scale, most, compiled: as for `add_clipped`.
    """
    norm, finite = norm_bounds(rows, compiled=compiled)
    size = sum(part.shape[1] for part in rows)
    length = max(most * (1 - LIMITS.length_slack) - 0.5 * size**0.5 - 1, 0.0)
    largest = min(EXPONENTS[part.dtype] for part in rows)
    factor = (length / norm).clamp(max=min(scale, 2.0**largest))
    return torch.where(finite, factor, 0.0)


def norm_bounds(rows: Sequence[Tensor], *, compiled: bool = False) -> tuple[Tensor, Tensor]:
    """Return an upper bound above 0 on the norm of each row, and True for each finite row.

    Entries are scaled exactly by a power of two, to at most 2^18, and rounded. The sum of their
    squares is exact in any order. The bound adds the largest effect of rounding, half a unit per
    entry.
    """
    run = _compile if compiled else _eager
    peak = torch.stack([run(_peak)(part) for part in rows]).amax(0)
    size = sum(part.shape[1] for part in rows)
    # Squares up to 2^36 that add up to at most 2^53.
    exact = torch.float64 if size <= (1 << 17) else torch.int64
    # Bits of the largest entry, in the rough norm.
    bits = min(18, (62 - (size - 1).bit_length()) // 2)
    shift, finite = power_of_two(peak, bits, min(EXPONENTS[part.dtype] for part in rows))
    squares = torch.stack([run(_rough_squares)(part, shift, exact) for part in rows]).sum(0)
    return (torch.sqrt(squares.double()) + (0.5 * size**0.5 + 1)) / shift, finite


def power_of_two(peak: Tensor, bits: int, largest: int = 1010) -> tuple[Tensor, Tensor]:
    """Return powers of two that scale each peak to at most 2^bits, and True for finite peaks.

    Exponents are clipped to +-``largest``.

    The power is assembled from bits, because a library's power function may not be exact.
    """
    finite = peak < torch.inf  # false for NaN
    exponent = torch.frexp(torch.where(finite, peak, 1.0))[1].to(torch.int64)
    power = (bits - exponent).clamp(-largest, largest)
    return ((power + 1023) << 52).view(torch.float64), finite


def flat_rows(gradients: Tensor) -> Tensor:
    """Return gradients as one row per example, in float32 or float64."""
    rows = gradients.flatten(1) if gradients.ndim > 1 else gradients[:, None]
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def merged(lines: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Add up the gradients of equal tokens in each row. Return the flattened sums, and the tokens.

    The sums are exact in any order, because entries are rounded to 2^-24 of the largest in their
    row.

    Args:
        lines: gradients by position, a float64 tensor of shape (rows, tokens, width).
        tokens: integers of shape (rows, tokens).
    """
    count, many, width = lines.shape
    peak = lines.abs().amax((1, 2))
    shift, finite = power_of_two(peak, 24)
    integers = torch.round(lines * shift[:, None, None])
    ordered, order = tokens.sort(1)
    first = torch.ones_like(ordered)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = first.cumsum(1) - 1
    places = torch.zeros_like(tokens).scatter_(1, place, ordered)
    place = torch.zeros_like(tokens).scatter_(1, order, place)
    place += many * torch.arange(count, device=tokens.device)[:, None]
    sums = torch.zeros(count * many, width, dtype=torch.float64, device=lines.device)
    sums.index_add_(0, place.reshape(-1), integers.reshape(-1, width))
    # A row that is not finite stays not finite.
    scale = torch.where(finite, 1 / shift, torch.nan)
    return sums.reshape(count, -1) * scale[:, None], places


def _peak(part: Tensor) -> Tensor:
    return part.abs().amax(1).double()


def _integers(part: Tensor, factors: Tensor) -> Tensor:
    return (part * factors.to(part.dtype)[:, None]).round_().double()


def _squares(part: Tensor, factors: Tensor) -> Tensor:
    return _integers(part, factors).square_().sum(1)


def _selection(part: Tensor, factors: Tensor, short: Tensor) -> Tensor:
    return torch.where(short[:, None], _integers(part, factors), 0.0)


def _selection_sum(part: Tensor, factors: Tensor, short: Tensor) -> Tensor:
    return _selection(part, factors, short).sum(0)


def _rough_squares(part: Tensor, shift: Tensor, exact: torch.dtype) -> Tensor:
    return _integers(part, shift).square_().sum(1, dtype=exact)


def _eager(kernel: Kernel) -> Kernel:
    return kernel


@cache
def _compile(kernel: Kernel) -> Kernel:
    return torch.compile(kernel, dynamic=True)
