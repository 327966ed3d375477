"""Gradients of linear layers that are clipped and added up without writing out any of them.

The gradient of one example is a product of two small matrices, outputs^T inputs. Both are rounded
to whole numbers, row by row, so that float64 matrix products of them are exact in any order: every
partial sum is a whole number below 2^53. The norm of a gradient follows from two matrices of inner
products. So a row's part of a sum is a function of the row alone, and no float is added up [TR-9].
"""

# torch is no dependency, so its types are unknown where it is not installed.
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
    Part,
    norm_bounds,
    power_of_two,
    rounded,
    selection,
)

INPUT_BITS, OUTPUT_BITS = 14, 18  # of the largest entry of a row


@dataclass(frozen=True)
class Limits:
    """The factors whose products float64 holds exactly."""

    cancellation_bits: int = 8  # a gradient shorter than its factors by more is clipped to less
    example_places: int = 1 << 15  # of one example
    layer_width: int = 1 << 17
    example_entries: int = 1 << 26  # of the factors of one example
    summed_rows: int = 1 << 22  # rows, whose entries below 2^41 add up to less than 2^63


LIMITS = Limits()


@dataclass(frozen=True)
class Product:
    """The factors of a layer's gradients, and the total that the gradients are added to.

    Args:
        inputs: of shape (rows, places, columns).
        outputs: of shape (rows, places, lines): the gradient of what the layer returns.
        total: int64, of shape (lines, columns), in units of 2^-bits.
    """

    inputs: Tensor
    outputs: Tensor
    total: Tensor


@dataclass(frozen=True)
class _Measured:
    """A product with whole inputs, and what bounds its norm, one number per row."""

    inputs: Tensor
    outputs: Tensor
    total: Tensor
    shift: Tensor  # that made the inputs whole
    norm: Tensor
    error: Tensor  # of the norm in units of 2^-bits, from rounding the outputs
    most: Tensor  # the largest factor by which partial sums stay exact
    finite: Tensor


def fits(places: int, lines: int, columns: int) -> bool:
    """Return True if a product is smaller than the gradient, and its sums can be exact."""
    return (
        places**2 < lines * columns
        and places <= LIMITS.example_places
        and max(lines, columns) <= LIMITS.layer_width
        and places * max(lines, columns) <= LIMITS.example_entries
    )


def fine_bits(grid: int, rows: int) -> int:
    """Return the bits below a unit of the grid in which products of so many rows are added up."""
    bits = 53 - LIMITS.cancellation_bits - grid.bit_length() - rows.bit_length()
    if bits < 8:
        raise ValueError(f"grid = {grid} with microbatch = {rows} is too fine for fast=True")
    return min(bits, 20, 41 - grid.bit_length())


def add_products(
    parts: Sequence[Part],
    products: Sequence[Product],
    weights: Tensor,
    scale: float,
    most: int,
    bits: int,
) -> None:
    """Add the clipped, rounded rows to the totals of their parts and products.

    The totals of products are rounded to units once, after the last row. This may move a
    difference of two sums by the root of their number of entries, so rows end shorter by it.

    Args:
        parts: the columns that are written out.
        products: the layers that are not.
        weights: 1 for a row, and 0 for a dummy row.
        scale: the number of units in 1.
        most: the largest norm of a row in units.
        bits: of the totals of products, below a unit.
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
    factor = (
        torch.where(finite & (factor > 0), factor * (1 - DEVICE_CLIPPING_LIMITS.length_slack), 0.0)
        * weights
    )
    if parts:
        rows = rounded([part.rows for part in parts], factor, most)
        for part, values in zip(parts, rows, strict=True):
            part.add(values)
    for x in measured:
        outputs = x.outputs.double() * (factor * 2.0**bits / x.shift)[:, None, None]
        sums = outputs.round_().flatten(0, 1).T @ x.inputs.double().flatten(0, 1)
        x.total.add_(sums.to(torch.int64))


def _measure_norm(product: Product, bits: int) -> _Measured:
    """Return whole inputs, and an upper bound of the norm of the gradient with them."""
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
    small = inputs.float()  # whole numbers up to 2^14 stay exact
    return _Measured(
        small, outputs, product.total, shift, bound, edge * length, exact, finite & known
    )


def _integers(values: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return whole numbers up to 2^bits per row, the power of two, and whether a row is finite."""
    shift, finite = power_of_two(values.abs().amax((1, 2)).double(), bits)
    integers = selection(values, finite).double().mul(shift[:, None, None]).round_()
    return integers, shift, finite


def _root_trace(inner: Tensor) -> Tensor:
    return torch.sqrt(inner.diagonal(dim1=1, dim2=2).to(torch.int64).sum(1).double())
