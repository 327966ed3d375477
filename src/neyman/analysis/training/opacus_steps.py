"""Opacus with exact steps: samples, sums, and noise of whole numbers [TR-6].

`make_exact` takes over what Opacus does with random numbers and with sums: which rows are in a
batch, the clipping, the sum, and the noise. Opacus still computes the gradients of single rows, and
its optimizer still steps.
"""

# Opacus and torch are no dependencies, so their types are unknown where they are not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import torch
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

from neyman.accounting.integrations.opacus import NeymanOpacusAccountant, OpacusDraws, accept
from neyman.analysis.training.clipping import MOST_GRID, clipped_sum
from neyman.noise import SecureBits, rounded_gaussian
from neyman.noise.row_draws import coins
from neyman.numerics import check


def make_exact(
    module: Any, optimizer: Any, data_loader: Any, *, grid: int = 1 << 20
) -> NeymanOpacusAccountant:
    """Draw the batches and the noise of Opacus exactly, and clip and add up in whole numbers.

    Call it after ``make_private`` with what that returned, and again after ``load_checkpoint``.
    Each row joins a batch by a coin from the operating system. The gradient of each row is clipped
    to ``max_grad_norm`` and rounded to the grid of ``max_grad_norm / grid``, and its squared norm
    is checked in integers. A gradient that is not finite counts as 0. The noise is a rounded
    Gaussian from the operating system. So ``torch.manual_seed`` reveals nothing, and 16-bit
    gradients (autocast) are accepted.

    It refuses all other settings that `check_batches` refuses, such as the ghost modes, which
    have no gradients of single rows. The conditions that no check sees are in
    ``accountant.receipt()``.

    Args:
        module, optimizer, data_loader: what ``make_private`` returned, with
            ``accountant="neyman"``.
        grid: number of units in the clipping norm.

    Returns:
        The accountant of the engine, with ``.get_epsilon(delta)``, ``.tradeoff()``, ``.receipt()``.

    Raises:
        TypeError, ValueError: a setting is not accepted. The message names it.

    Source: [TR-6].
    """
    units = check.integer("grid", grid, 1)
    if units > MOST_GRID:
        raise ValueError(f"grid = {units} must be at most {MOST_GRID}")
    devices = {parameter.device for parameter in getattr(optimizer, "params", ())}
    if len(devices) > 1:
        raise ValueError(
            "the parameters are on several devices, and the norm of a gradient needs all of them. "
            "Put the model on one device"
        )
    hook = getattr(optimizer, "step_hook", None)
    rate = getattr(hook, "sample_rate", math.nan)
    accept(data_loader, optimizer, rate, module, ExactDraws).take_over(units)
    return optimizer.step_hook.accountant


class ExactDraws(OpacusDraws):
    """Samples by exact coins, clipped sums of whole numbers, and exact noise."""

    exact = True

    def take_over(self, grid: int) -> None:
        """Replace the noise of the optimizer.

        Args:
            grid: number of units in the clipping norm.
        """
        self._grid = grid
        self._bits = SecureBits()
        self._optimizer: Any = self._parts[1]
        self._optimizer.add_noise = self.add_noise

    @classmethod
    def settings(cls, loader: Any, optimizer: Any, module: Any) -> dict[str, Any]:
        """Return the settings but for those of torch's generators, which draw nothing here."""
        values = super().settings(loader, optimizer, module)
        return {name: value for name, value in values.items() if not name.startswith("torch.")}

    @staticmethod
    def chance(rate: float) -> float:
        """Return the chance that a record is drawn: the rate itself."""
        return rate

    def samples(self, sampler: Any, drawn: Iterator[list[int]]) -> Iterator[list[int]]:
        """Return the samples of a pass: a coin for each row, and nothing that Opacus draws."""
        for _ in range(len(sampler)):
            yield coins(Fraction(sampler.sample_rate), sampler.num_samples, self._bits).tolist()

    def clip(self) -> None:
        """Add the clipped gradients of a piece to ``summed_grad``, in units of the grid."""
        optimizer = self._optimizer
        parameters = optimizer.params
        for parameter in parameters:
            _check_processed_flag(parameter.grad_sample)
        gradients = optimizer.grad_samples
        alike = len(self.note(optimizer)) == 1
        for chosen, units in self._groups():
            # Where rows do not fit each other, the step is refused, and has no sum.
            rows = [gradients[i] if alike else gradients[i][:0] for i in chosen]
            clip = units * self._unit
            for i, total in zip(chosen, _clipped_sums(rows, clip, units), strict=True):
                parameter = parameters[i]
                before = parameter.summed_grad
                parameter.summed_grad = total if before is None else before + total
                _mark_as_processed(parameter.grad_sample)

    def add_noise(self) -> None:
        """Write the sums with their noise to ``grad``.

        A function of the noisy whole numbers: for a whole x, round(x + Z) = x + round(Z) [TR-2].
        """
        optimizer = self._optimizer
        sigma = Fraction(check.non_negative("noise_multiplier", optimizer.noise_multiplier))
        for parameter in optimizer.params:
            total = parameter.summed_grad
            _check_processed_flag(total)
            _mark_as_processed(total)
            if sigma:
                total = total + self._noise((sigma * self._grid) ** 2, total)
            parameter.grad = (total.to(torch.float64) * self._unit).to(parameter.dtype)

    @property
    def _unit(self) -> float:
        """The length of one whole number: the clipping norm is that of the whole gradient."""
        return float(self._optimizer.max_grad_norm) / self._grid

    def _groups(self) -> list[tuple[list[int], int]]:
        """Return parameters that are clipped together, and their clipping norm in units.

        The sum of the squares of these norms is at most that of the grid.
        """
        optimizer = self._optimizer
        if not hasattr(optimizer, "max_grad_norms"):
            return [(list(range(len(optimizer.params))), self._grid)]
        squares = [Fraction(float(norm)) ** 2 for norm in optimizer.max_grad_norms]
        whole = max(sum(squares), Fraction(float(optimizer.max_grad_norm)) ** 2)
        return [
            ([i], math.isqrt(math.floor(self._grid**2 * square / whole)))
            for i, square in enumerate(squares)
        ]

    def _noise(self, variance: Fraction, like: torch.Tensor) -> torch.Tensor:
        drawn = rounded_gaussian(variance, like.numel(), self._bits)
        return torch.from_numpy(drawn).view(like.shape).to(like.device)


def _clipped_sums(blocks: list[torch.Tensor], clip: float, grid: int) -> list[torch.Tensor]:
    """Return the sums of rows whose columns are in several blocks, in units of clip / grid."""
    shapes = [block.shape[1:] for block in blocks]
    flat = [
        block.reshape(len(block), shape.numel())
        for block, shape in zip(blocks, shapes, strict=True)
    ]
    rows = torch.cat([part.detach().cpu().double() for part in flat], dim=1)
    total = torch.from_numpy(clipped_sum(rows.numpy(), clip, grid)).to(blocks[0].device)
    parts = total.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
