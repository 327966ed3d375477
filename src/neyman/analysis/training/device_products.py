"""Clip and sum gradients of linear layers without writing out any single gradient.

The gradient of one example is a product of two small matrices, outputs^T inputs. Both are rounded
to integers, row by row. Their float64 matrix products are exact in any order, because every partial
sum is an integer below 2^53. Two matrices of inner products give the norm of a gradient. So what a
row adds to a sum is a function of this row alone, and no inexact floats are summed [TR-9].
"""

# torch is optional, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neyman.analysis.training.device_clipping import LIMITS as DEVICE_CLIPPING_LIMITS
from neyman.analysis.training.device_clipping import (
    ClippedPart,
    norm_bounds,
    power_of_two,
    rounded,
    selection,
)

INPUT_BITS, OUTPUT_BITS = 14, 18  # bits of the largest entry of a row


@dataclass(frozen=True)
class Limits:
    """Limit sizes so that products of factors are exact in float64."""

    summed_rows: int = 1 << 22  # rows, whose entries below 2^41 add up to less than 2^63


LIMITS = Limits()


@dataclass(frozen=True)
class Product:
    """Hold the factors of a layer's gradients, and the total to which the gradients are added.

    Args:
        inputs: the layer's inputs, of shape (rows, positions, inputs of the layer).
        outputs: the gradient of its output, of shape (rows, positions, outputs of the layer).
        total: an int64 tensor of shape (outputs, inputs), in units of 2^-bits of a grid unit.
    """

    inputs: Tensor
    outputs: Tensor
    total: Tensor


@dataclass(frozen=True)
class _MeasuredProduct:
    """Hold a `Product` with rounded inputs. ``shift`` and later have one entry per row."""

    inputs: Tensor
    outputs: Tensor
    total: Tensor
    shift: Tensor  # factor that made the inputs integers
    norm: Tensor
    error: Tensor  # error of the norm in units of 2^-bits, from rounding the outputs
    most: Tensor  # the largest factor for which partial sums stay exact
    finite: Tensor


def fits(places: int, lines: int, columns: int) -> bool:
    """Return True if a layer's factors are smaller than its gradient, with exact products.

    places: positions per example. lines, columns: the layer's outputs and inputs.
    """
    return (
        places**2 < lines * columns
        and places <= (1 << 15)  # positions of one example, such as tokens or pixels
        and max(lines, columns) <= (1 << 17)  # layer width
        and places * max(lines, columns) <= (1 << 26)  # entries of the factors of one example
    )


def fine_bits(grid: int, rows: int) -> int:
    """Return b so that sums of products are exact in units of 2^-b of a grid unit.

    rows: number of examples in a sum.
    """
    # A gradient shorter by more bits is clipped further.
    bits = 53 - 8 - grid.bit_length() - rows.bit_length()
    if bits < 8:
        raise ValueError(f"grid = {grid} with microbatch = {rows} is too fine for fast=True")
    return min(bits, 20, 41 - grid.bit_length())


def add_products(
    parts: Sequence[ClippedPart],
    products: Sequence[Product],
    weights: Tensor,
    scale: float,
    most: int,
    bits: int,
) -> None:
    """Add the clipped, rounded rows to the totals of their parts and products.

    The totals of products are rounded to units once, after the last row. This may change the norm
    of a difference of two sums by the root of their number of entries, so rows are clipped to a
    norm shorter by it.

    Args:
        parts: the gradients that are written out.
        products: the factors of the gradients that are not.
        weights, scale, most: as for `add_clipped`.
        bits: the totals of products are in units of 2^-bits.
    """
    measured = [_measure_norm(product, bits) for product in products]
    squares = torch.stack([x.norm**2 for x in measured]).sum(0)
    errors = torch.stack([(x.error * 0.5**bits) ** 2 for x in measured]).sum(0)
    finite = torch.stack([x.finite for x in measured]).all(0)
    if parts:
        norm, known = norm_bounds([part.rows for part in parts])
        squares, finite = squares + norm**2, finite & known
        errors = errors + sum(part.rows.shape[1] for part in parts) / 4
    size = sum(product.total.numel() for product in products)
    length = most * (1 - DEVICE_CLIPPING_LIMITS.length_slack) - size**0.5 - torch.sqrt(errors) - 1
    factor = (length.clamp(min=0.0) / torch.sqrt(squares)).clamp(max=scale)
    for x in measured:
        factor = torch.minimum(factor, x.most)
    factor = factor * (1 - DEVICE_CLIPPING_LIMITS.length_slack)
    factor = torch.where(finite & (factor > 0), factor, 0.0) * weights
    if parts:
        rows = rounded([part.rows for part in parts], factor, most)
        for part, values in zip(parts, rows, strict=True):
            part.add(values)
    for x in measured:
        outputs = x.outputs.double() * (factor * 2.0**bits / x.shift)[:, None, None]
        sums = outputs.round_().flatten(0, 1).T @ x.inputs.double().flatten(0, 1)
        x.total.add_(sums.to(torch.int64))


def _measure_norm(product: Product, bits: int) -> _MeasuredProduct:
    """Return integer inputs, and an upper bound on the norm of the gradient with these inputs."""
    inputs, shift, finite = _integers(product.inputs, INPUT_BITS)
    rough, other, known = _integers(product.outputs, OUTPUT_BITS)
    outputs = selection(product.outputs, known)
    count, places, lines = outputs.shape
    first, second = inputs @ inputs.mT, rough @ rough.mT
    inner, one, _ = _integers(first, gram := 31 - (places - 1).bit_length())
    outer, two, _ = _integers(second, gram)
    total = (inner.to(torch.int64) * outer.to(torch.int64)).sum((1, 2))
    total += places**2 * ((1 << gram) + 1)  # rounding the inner products
    norm = torch.sqrt(total.double() / one / two)
    edge = 0.5 * (places * lines) ** 0.5  # rounding the outputs
    length = _root_trace(first)
    size = (_root_trace(second) + edge) / other
    exact = (2.0**53 / count / length - edge) * shift / (2.0**bits * size)
    exact = torch.minimum(exact, 2.0**900 * shift)  # the outputs' factor is finite
    bound = (norm + edge * length) / other / shift
    small = inputs.float()  # integers up to 2^14 stay exact
    return _MeasuredProduct(
        small, outputs, product.total, shift, bound, edge * length, exact, finite & known
    )


def _integers(values: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scale each row by a power of two and round it to integers of at most 2^bits.

    Return the integers, the powers of two, and True for each finite row.
    """
    shift, finite = power_of_two(values.abs().amax((1, 2)).double(), bits)
    integers = selection(values, finite).double().mul(shift[:, None, None]).round_()
    return integers, shift, finite


def _root_trace(inner: Tensor) -> Tensor:
    return torch.sqrt(inner.diagonal(dim1=1, dim2=2).to(torch.int64).sum(1).double())
