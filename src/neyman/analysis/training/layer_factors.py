"""Write the gradient of a layer as a product of two matrices, one pair per row: a table of layers.

The gradient of a row is the sum over places (tokens, pixels) of the gradient of the output, a line,
times the input, a column.
"""

# torch is optional, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Conv2d, Embedding, Linear, Module
from torch.nn.functional import pad


class Factors:
    """Give the factors of a linear layer. ``layer``: the layer."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.shape: tuple[int, int] = tuple(layer.weight.flatten(1).shape)

    @staticmethod
    def serves(layer: Module) -> bool:
        """Return True for a layer of this kind whose gradient is such a product."""
        return True

    def lines(self, outputs: Tensor) -> Tensor:
        """Return the gradient of the output, of shape (rows, places, lines)."""
        return outputs.reshape(len(outputs), -1, self.shape[0])

    def columns(self, inputs: Tensor) -> Tensor:
        """Return the input, of shape (rows, places, columns)."""
        return inputs.reshape(len(inputs), -1, self.shape[1])

    def cost(self, places: int) -> int:
        """Return how much more time the product takes than the gradients, written out.

        A row has the inner products of its places, and two passes over both factors, for the passes
        over its gradient. The numbers are of one core of a CPU.
        """
        lines, columns = self.shape
        return places * (places + 10) * (lines + columns) - 20 * lines * columns

    def fits(self, places: int) -> bool:
        """Return True if the product takes less time, and is exact."""
        return (
            self.cost(places) < 0
            and places <= (1 << 15)  # positions of one example, such as tokens or pixels
            and max(self.shape) <= (1 << 17)  # layer width
            and places * max(self.shape) <= (1 << 25)  # entries of the factors of one example
        )

    def gradient(self, product: Tensor) -> Tensor:
        """Return products of lines and columns in the order of the weight's entries."""
        return product

    def add(self, total: Tensor, lines: Tensor, columns: Tensor) -> None:
        """Add the sum of products of integers to the weight's total."""
        total.add_(_sums(lines, columns))


class ConvolutionFactors(Factors):
    """Give the factors of a convolution: a column is the patch of an output's pixel."""

    @staticmethod
    def serves(layer: Any) -> bool:
        """Return True if the layer has one group and pads by zeros."""
        return layer.groups == 1 and layer.padding_mode == "zeros" and layer.padding != "same"

    def lines(self, outputs: Tensor) -> Tensor:
        """Return the gradient of the output, with one place per pixel."""
        return outputs.movedim(-3, -1).reshape(len(outputs), -1, self.shape[0])

    def columns(self, inputs: Tensor) -> Tensor:
        """Return the patches, with channels last: they are copied in one pass."""
        layer = self.layer
        rows, cols = (0, 0) if layer.padding == "valid" else layer.padding
        images = pad(inputs.flatten(0, -4).permute(0, 2, 3, 1), (0, 0, cols, cols, rows, rows))
        for place in (0, 1):
            reach, step = layer.dilation[place], layer.stride[place]
            windows = images.unfold(place + 1, reach * (layer.kernel_size[place] - 1) + 1, step)
            images = windows[..., ::reach]
        patches = images.permute(0, 1, 2, 4, 5, 3)
        return patches.reshape(len(inputs), -1, self.shape[1])

    def gradient(self, product: Tensor) -> Tensor:
        """Return products in the order of the weight's entries, whose channels are not last."""
        _, channels, *kernel = self.layer.weight.shape
        return product.unflatten(-1, (*kernel, channels)).movedim(-1, -3)

    def add(self, total: Tensor, lines: Tensor, columns: Tensor) -> None:
        """Add the sum of products of integers to the weight's total."""
        total.add_(self.gradient(_sums(lines, columns)))


class EmbeddingFactors(Factors):
    """Give the factors of an embedding: a column is 1 at the token and 0 elsewhere."""

    def lines(self, outputs: Tensor) -> Tensor:
        """Return the gradient of the output, with one place per token."""
        return outputs.reshape(len(outputs), -1, self.shape[1])

    def fits(self, places: int) -> bool:
        """Return True: a gradient that is written out has all tokens."""
        return True

    def add(self, total: Tensor, lines: Tensor, columns: Tensor) -> None:
        """Add lines to the total where their tokens are."""
        total.index_add_(0, columns, lines)


def _sums(lines: Tensor, columns: Tensor) -> Tensor:
    """Return lines^T columns. CPUs multiply faster if the first of two matrices is the smaller."""
    if lines.shape[1] > columns.shape[1]:
        return (columns.T @ lines).T
    return lines.T @ columns


KINDS: dict[type[Module], type[Factors]] = {
    Linear: Factors,
    Conv2d: ConvolutionFactors,
    Embedding: EmbeddingFactors,
}


def factors_of(layer: Module) -> Factors | None:
    """Return the factors of a layer, or None if its gradient is no such product."""
    kind = KINDS.get(type(layer))
    if kind is None or not kind.serves(layer) or "forward" in vars(layer):
        return None
    return kind(layer)
