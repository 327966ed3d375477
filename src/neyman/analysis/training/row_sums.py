"""Clip and sum gradients of rows on a torch device, with integers in floats and exact sums.

The gradient of a row has some columns that are written out, and layers whose gradient is a product
of two small matrices, outputs^T inputs, that is never written out. A row becomes integers whose
norm is bounded in integers, as in `neyman.analysis.training.clipping`. Sums of integers below 2^53
are exact in float64 in any order, so no kernel can change a row by its position [TR-6] [TR-9]. Each
operation on single elements is a product, or a rounding to an integer. IEEE arithmetic rounds it
the same in any position, and a compiler cannot fuse a product and a sum.
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

from neyman.analysis.training.layer_factors import Factors

INPUT_BITS, OUTPUT_BITS = 14, 18  # bits of the largest entry of a row
EXPONENTS = {torch.float32: 120, torch.float64: 1010}  # exponents of the largest factors
Kernel = Callable[..., Tensor]


@dataclass(frozen=True)
class Limits:
    """Limit sizes so that sums are exact, and the numbers processed at a time."""

    length_slack: float = 2.0**-20  # relative slack of a length, for floating point
    summed_rows: int = 1 << 22  # rows, whose entries below 2^41 add up to less than 2^63
    cpu_numbers: int = 1 << 21  # entries that a CPU's cache holds
    device_numbers: int = 1 << 26  # entries that another device processes at a time


LIMITS = Limits()


@dataclass(frozen=True)
class Written:
    """Hold some columns of all rows, and the total to which they are added.

    Args:
        rows: a float32 or float64 tensor of shape (rows, entries).
        total: a float64 tensor of shape (entries,), the sum of up to 2^28 rows of integers,
            whose entries are up to 2^24.
    """

    rows: Tensor
    total: Tensor


@dataclass(frozen=True)
class Product:
    """Hold the factors of a layer's gradients, and the totals to which the gradients are added.

    Args:
        factors: the layer.
        calls: the layer's input and the gradient of its output, for each of its calls.
        weight, bias: float64 tensors of the shapes of the parameters, in units of 2^-bits of a grid
            unit. Without one of them, its gradient is elsewhere.
    """

    factors: Factors
    calls: Sequence[tuple[Tensor, Tensor]]
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True)
class _Measured:
    """Hold a product's rounded inputs. Every field but the first two has one entry per row."""

    columns: Tensor | None  # integers of shape (rows, places, inputs), or tokens
    outputs: Tensor
    ones: Tensor  # the integer that stands for the input 1 of the bias
    shift: Tensor  # factor that made the inputs integers
    norm: Tensor
    error: Tensor  # error of the norm in units of 2^-bits, from rounding the outputs
    most: Tensor  # the largest factor for which partial sums stay exact
    finite: Tensor


def fine_bits(grid: int, rows: int) -> int:
    """Return b so that sums of products are exact in units of 2^-b of a grid unit.

    rows: number of examples in a sum.
    """
    # A gradient shorter by more bits is clipped further.
    bits = 53 - 8 - grid.bit_length() - rows.bit_length()
    if bits < 8:
        raise ValueError(f"grid = {grid} with microbatch = {rows} is too fine; take fewer rows")
    return min(bits, 20, 41 - grid.bit_length())


def add_rows(
    written: Sequence[Written],
    products: Sequence[Product],
    weights: Tensor,
    scale: float,
    most: int,
    bits: int = 0,
    compiled: bool = False,
) -> None:
    """Add the clipped, rounded rows to the totals of their parts.

    The totals of products are rounded to units once, after the last row. This may change the norm
    of a difference of two sums by the root of their number of entries, so rows are clipped to a
    norm shorter by it.

    Args:
        written, products: the parts of the rows.
        weights: one number per row, 1, or 0 for a dummy row.
        scale: the largest factor from gradients to integer units.
        most: the largest norm of a row in units.
        bits: the totals of products are in units of 2^-bits.
        compiled: if True, use `torch.compile` for the written parts.
    """
    count = len(weights)
    size = sum(part.rows[0].numel() for part in written)
    for part in products:
        size += sum(x[0].numel() + g[0].numel() for x, g in part.calls)
        # Inner products of places, in some copies.
        size += 8 * sum(part.factors.lines(g[:1]).shape[1] for _, g in part.calls) ** 2
    numbers = LIMITS.cpu_numbers if weights.is_cpu else LIMITS.device_numbers
    together = max(1, numbers // max(size, 1))
    for start in range(0, count, together):
        cut = slice(start, start + together)
        _add(written, products, cut, weights, scale, most, bits, compiled)


def _add(
    written: Sequence[Written],
    products: Sequence[Product],
    cut: slice,
    weights: Tensor,
    scale: float,
    most: int,
    bits: int,
    compiled: bool,
) -> None:
    parts = [part.rows[cut] for part in written]
    if len(parts) > 1 and not compiled:
        double = torch.float64 in {part.dtype for part in parts}
        parts = [join([part.double() if double else part for part in parts])]
    measured = [_measure(product, cut, len(weights), bits) for product in products]
    sizes = [x.numel() for part in products for x in (part.weight, part.bias) if x is not None]
    length = most * (1 - LIMITS.length_slack) - 1 - sum(sizes) ** 0.5
    factor = row_factors(parts, measured, scale, length, bits, compiled) * weights[cut]
    for product, x in zip(products, measured, strict=True):
        _add_product(product, x, factor, bits)
    if parts:
        values = _rounded_sums(parts, factor, most, compiled)
        sizes = [len(part.total) for part in written]
        for part, value in zip(written, torch.cat(values).split(sizes), strict=True):
            part.total.add_(value)


def _rounded_sums(
    parts: Sequence[Tensor], factors: Tensor, most: int, compiled: bool
) -> list[Tensor]:
    """Return the sum of each row times its factor, rounded to integers, in parts.

    A row becomes 0 if its rounded norm is above ``most``, or NaN. The comparison is reliable: a
    float64 sum of squared integers is exact if it is below 2^53, and otherwise not below 2^53.
    """
    run = _compile if compiled else _eager
    if len(parts) == 1 and not compiled:
        values = _integers(parts[0], factors)
        return [selection(values, _norms(values) <= most).sum(0)]
    norms = torch.stack([run(_integer_norms)(part, factors) for part in parts])
    short = torch.linalg.vector_norm(norms, dim=0) <= most
    return [run(_selection_sum)(part, factors, short) for part in parts]


def row_factors(
    parts: Sequence[Tensor],
    measured: Sequence[_Measured],
    scale: float,
    length: float,
    bits: int,
    compiled: bool,
) -> Tensor:
    """Return one float64 factor per row that bounds the norm of the rounded row by ``length``.

    The factor is at most ``scale``. It is 0 for a row with an entry that is not finite.
    """
    norms, finite = [x.norm for x in measured], [x.finite for x in measured]
    errors = [(x.error * 0.5**bits).square() for x in measured]
    if parts:
        norm, known = norm_bounds(parts, compiled)
        norms.append(norm)
        finite.append(known)
        errors.append(torch.full_like(norm, sum(part.shape[1] for part in parts) / 4))
    room = (length - torch.stack(errors).sum(0).sqrt()).clamp(min=0.0)
    factor = (room / torch.linalg.vector_norm(torch.stack(norms), dim=0)).clamp(max=scale)
    factor = factor.clamp(max=2.0 ** min([EXPONENTS[part.dtype] for part in parts], default=1000))
    for x in measured:
        factor = torch.minimum(factor, x.most)
    return torch.where(torch.stack(finite).all(0) & (factor > 0), factor, 0.0)


def norm_bounds(rows: Sequence[Tensor], compiled: bool) -> tuple[Tensor, Tensor]:
    """Return an upper bound above 0 on the norm of each row, and True for each finite row.

    Entries are scaled exactly by a power of two, to at most 2^18, and rounded. The sum of their
    squares is exact in any order. The bound adds the largest effect of rounding, half a unit per
    entry.
    """
    run = _compile if compiled else _eager
    peak = torch.stack([run(_peak)(part) for part in rows]).amax(0)
    size = sum(part.shape[1] for part in rows)
    # Squares of this many bits add up to at most 2^53.
    bits = min(18, (53 - (size - 1).bit_length()) // 2)
    shift, finite = power_of_two(peak, bits, min(EXPONENTS[part.dtype] for part in rows))
    norms = torch.stack([run(_integer_norms)(part, shift) for part in rows])
    norm = norms[0] if len(rows) == 1 else torch.sqrt(norms.square().round().sum(0))
    return (norm + (0.5 * size**0.5 + 1)) / shift, finite


def power_of_two(peak: Tensor, bits: int, largest: int = 1010) -> tuple[Tensor, Tensor]:
    """Return powers of two that scale each peak to at most 2^bits, and True for finite peaks.

    Exponents are clipped to +-``largest``.

    The power is assembled from bits, because a library's power function may not be exact.
    """
    finite = peak < torch.inf  # false for NaN
    exponent = torch.frexp(torch.where(finite, peak, 1.0))[1].to(torch.int64)
    power = (bits - exponent).clamp(-largest, largest)
    return ((power + 1023) << 52).view(torch.float64), finite


def selection(rows: Tensor, keep: Tensor) -> Tensor:
    """Return the rows to keep, and zeros instead of the other rows."""
    if keep.is_cpu and bool(keep.all()):
        return rows
    return torch.where(keep.reshape(-1, *[1] * (rows.ndim - 1)), rows, 0.0)


def wide(values: Tensor) -> Tensor:
    """Return values in float32 or float64."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def join(parts: Sequence[Tensor]) -> Tensor:
    """Return parts in one tensor, by their dimension 1. One part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts], 1)


def flat_rows(gradients: Tensor) -> Tensor:
    """Return gradients as one row per example, in float32 or float64."""
    return wide(gradients.flatten(1) if gradients.ndim > 1 else gradients[:, None])


def _measure(product: Product, cut: slice, count: int, bits: int) -> _Measured:
    """Return integer inputs, and an upper bound on the norm of the gradient with these inputs.

    Args:
        count: number of rows in the sum.
    """
    factors = product.factors
    outputs = join([factors.lines(wide(g[cut])) for _, g in product.calls])
    rough, other, known = _row_integers([outputs], OUTPUT_BITS)
    outputs = selection(outputs, known)
    size, places, lines = outputs.shape
    inputs = [x[cut] for x, _ in product.calls]
    tokens = not inputs[0].is_floating_point()
    if product.weight is None or tokens:
        shift, finite = torch.ones_like(other), torch.ones_like(known)
        columns = join([x.flatten(1) for x in inputs]) if tokens else None
    else:
        raw, shift, finite = _row_integers([wide(x) for x in inputs], INPUT_BITS, least=1.0)
        columns = join([factors.columns(x) for x in raw])
    ones = shift.floor() if product.bias is not None else torch.zeros_like(shift)
    if columns is None:
        first = ones.new_zeros(size, places, places)
    elif tokens:
        first = (columns[:, :, None] == columns[:, None]).double()
    elif places > 1:
        first = columns @ columns.mT
    else:
        first = _norms(columns.flatten(1)).square().round()[:, None, None]
    first = first + ones.square()[:, None, None]
    second = rough[0] @ rough[0].mT if places > 1 else None
    edge = 0.5 * (places * lines) ** 0.5  # rounding the outputs
    length = _root_trace(first)
    if second is None:
        side = _norms(rough[0].flatten(1))
        norm = length * side
    else:
        side = _root_trace(second)
        inner, one = _scaled(first, gram := 31 - (places - 1).bit_length())
        outer, two = _scaled(second, gram)
        total = (inner.to(torch.int64) * outer.to(torch.int64)).sum((1, 2))
        total += places**2 * ((1 << gram) + 1)  # rounding the inner products
        norm = torch.sqrt(total.double() / one / two)
    limit = (side + edge) / other
    exact = (2.0**53 / count / length - edge) * shift / (2.0**bits * limit)
    exact = exact * (1 - LIMITS.length_slack)  # for floating point
    # The factor of the outputs is finite.
    exact = torch.minimum(exact, 2.0 ** (EXPONENTS[outputs.dtype] - bits) * shift)
    bound = (norm + edge * length) / other / shift
    return _Measured(columns, outputs, ones, shift, bound, edge * length, exact, finite & known)


def _add_product(product: Product, x: _Measured, factor: Tensor, bits: int) -> None:
    """Add the rounded outputs times the integer inputs to the totals."""
    scaled = factor * 2.0**bits / x.shift
    lines = _scale(x.outputs, torch.where(scaled < 2.0**-120, 0.0, scaled)).double()
    lines = lines.flatten(0, 1)
    if product.bias is not None:
        ones = x.ones[:, None].expand(x.outputs.shape[:2]).reshape(-1)
        product.bias.add_(lines.T @ ones)
    if product.weight is not None and x.columns is not None:
        product.factors.add(product.weight, lines, x.columns.flatten(0, 1))


def _row_integers(
    values: Sequence[Tensor], bits: int, least: float = 0.0
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Scale each row by a power of two and round it to integers of at most 2^bits, in float64.

    Return the integers, the powers of two, and True for each finite row.

    Args:
        values: some numbers of each row.
        least: a number that is scaled like the row's, and becomes at most 2^bits.
    """
    peak = torch.stack([_peak(x.flatten(1)) for x in values]).amax(0)
    largest = min(EXPONENTS[x.dtype] for x in values)
    shift, finite = power_of_two(peak.clamp(min=least), bits, largest)
    return [_scale(selection(x, finite), shift).double() for x in values], shift, finite


def _scaled(values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Return integers of at most 2^bits for each row, and the power of two that scaled it."""
    shift, _ = power_of_two(values.abs().amax((1, 2)), bits)
    return _scale(values, shift), shift


def _scale(values: Tensor, factors: Tensor) -> Tensor:
    """Return each row times its factor, rounded to integers in the type of the rows."""
    return (values * factors.to(values.dtype).view(-1, *[1] * (values.ndim - 1))).round_()


def _root_trace(inner: Tensor) -> Tensor:
    return torch.sqrt(inner.diagonal(dim1=1, dim2=2).to(torch.int64).sum(1).double())


def _peak(part: Tensor) -> Tensor:
    return part.abs().amax(1).double()


def _integers(part: Tensor, factors: Tensor) -> Tensor:
    return _scale(part, factors).double()


def _norms(values: Tensor) -> Tensor:
    """Return the norm of each row of integers, correctly rounded if its square is below 2^53."""
    return torch.linalg.vector_norm(values, dim=1)


def _integer_norms(part: Tensor, factors: Tensor) -> Tensor:
    return _norms(_integers(part, factors))


def _selection_sum(part: Tensor, factors: Tensor, short: Tensor) -> Tensor:
    return torch.where(short[:, None], _integers(part, factors), 0.0).sum(0)


def _eager(kernel: Kernel) -> Kernel:
    return kernel


@cache
def _compile(kernel: Kernel) -> Kernel:
    return torch.compile(kernel, dynamic=True)
