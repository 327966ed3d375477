"""Run Opacus with exact steps: batches, clipped sums, and noise in integers [OS-1].

Opacus still computes the gradients of single rows and updates the parameters.
"""

# Opacus and torch are optional, so their types are unknown if they are not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import torch
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

from neyman.accounting.integrations.opacus import (
    Loss,
    NeymanOpacusAccountant,
    OpacusDraws,
    accept,
    scheduled,
)
from neyman.analysis.training.clipping import LIMITS as CLIPPING_LIMITS
from neyman.analysis.training.row_sums import Written, add_rows, flat_rows
from neyman.noise.bits import SecureBits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.noise.row_draws import coins
from neyman.numerics import check

BATCH_DEVIATIONS = 3  # a batch fits samples up to this many deviations above the mean


def make_exact(
    module: Any,
    optimizer: Any,
    data_loader: Any,
    loss: Loss | None = None,
    *,
    physical_batch_size: int | None = None,
    grid: int = 1 << 20,
) -> NeymanOpacusAccountant:
    """Replace Opacus's batches and noise by exact draws, and its clipped sums by integer sums.

    Call it with the results of ``make_private``, and again after ``load_checkpoint``. A coin from
    the operating system decides for each row whether it is in a sample. The gradient of each row is
    clipped to ``max_grad_norm`` and rounded to the grid of ``max_grad_norm / grid``, and its
    squared norm is checked in integers. A gradient that is not finite counts as 0. The noise is a
    rounded Gaussian from the operating system.

    All batches of the loader have the same size, so the size of a sample cannot change the last
    bits of a gradient. The gradients of filler rows are computed but not added. A larger sample
    comes in several batches, and the optimizer steps after the last one. So ``physical_batch_size``
    replaces Opacus's ``BatchMemoryManager``.

    It accepts the settings that `check_batches` accepts, and gradients in 16 bits (autocast). It
    refuses all others by name, such as the ghost modes, which have no gradients of single rows.
    ``accountant.receipt()`` has the conditions that cannot be checked.

    Args:
        module, optimizer, data_loader: the results of ``make_private`` with
            ``accountant="neyman"``.
        loss: a function of the model and a batch of the loader that returns the loss, as in
            `check_batches`. Invented rows test whether it mixes rows.
        physical_batch_size: the number of rows in each batch of the loader. By default, nearly all
            samples fit in one batch.
        grid: number of units in the clipping norm.

    Returns:
        The accountant of the engine, with ``.tradeoff()`` and ``.receipt()``.

    Raises:
        TypeError, ValueError: a setting is not accepted. The message names it.
    """
    units = check.integer("grid", grid, 1)
    if physical_batch_size is not None:
        check.integer("physical_batch_size", physical_batch_size, 1)
    parameters = getattr(optimizer, "params", ())
    least = 4 * math.isqrt(sum(parameter.numel() for parameter in parameters)) + 8
    if not least <= units <= CLIPPING_LIMITS.clip_units:
        raise ValueError(
            f"grid = {units} must be from {least} to {CLIPPING_LIMITS.clip_units}: a coarser grid "
            "loses the gradient of this model to rounding"
        )
    if len({parameter.device for parameter in parameters}) > 1:
        raise ValueError(
            "the parameters are on several devices, and the norm of a gradient needs all of them. "
            "Put the model on one device"
        )
    rate = getattr(getattr(optimizer, "step_hook", None), "sample_rate", math.nan)
    draws = accept(data_loader, optimizer, rate, module, loss, ExactDraws)
    expected = draws.rate * (rows := data_loader.batch_sampler.num_samples)
    usual = min(rows, math.ceil(expected + BATCH_DEVIATIONS * math.sqrt(expected)))
    draws.take_over(units, usual if physical_batch_size is None else physical_batch_size)
    return optimizer.step_hook.accountant


class ExactDraws(OpacusDraws):
    """Draw samples by exact coins in batches of one size, and add exact noise to clipped sums."""

    exact = True

    def take_over(self, grid: int, size: int) -> None:
        """Replace the optimizer's noise by exact noise, for batches of ``size`` rows."""
        self.requests = 0  # requests for batches of this pass
        self._used = 0  # batches of this pass
        self._batch_rows: deque[tuple[int, bool]] = deque()  # rows to add up, and whether more come
        self._more = False
        self._refusal = ""
        self._grid, self._size = grid, size
        self.optimizer.add_noise = self.add_noise
        self.optimizer._check_skip_next_step = self.skip

    @staticmethod
    def chance(rate: float) -> float:
        """Return the probability that a record is drawn: exactly ``rate``."""
        return rate

    def start(self) -> None:
        """Begin a pass over the loader, as `OpacusDraws` does. Drop the sum of a partial sample."""
        super().start()
        self._batch_rows.clear()
        self._used, self.requests = 0, 1  # the request that began this pass
        if self._more:  # the last pass ended within a sample: drop its sum
            self._more = self.optimizer._is_last_step_skipped = False
            self.pieces.clear()
            self.optimizer.zero_grad()

    def batches(self, sampler: Any, samples: Iterator[list[int]]) -> Iterator[list[int]]:
        """Return the batches of a pass, of one size, from a coin per row. Ignore ``samples``."""
        return _Requests(self, self._batches(sampler))

    def _batches(self, sampler: Any) -> Iterator[list[int]]:
        self.start()
        rows, size, bits = sampler.num_samples, self._size, SecureBits()
        rate = check.exact("sample_rate", sampler.sample_rate)
        for _ in range(len(sampler)):
            sample: list[int] = coins(rate, rows, bits).tolist()
            self.sizes.append(len(sample))
            for start in range(0, max(len(sample), 1), size):
                part = sample[start : start + size]
                self._batch_rows.append((len(part), start + size < len(sample)))
                yield part + [i % rows for i in range(size - len(part))]

    def clip(self) -> None:
        """Add the clipped gradients of a batch to ``summed_grad``, in units of the grid."""
        optimizer = self.optimizer
        parameters, gradients = optimizer.params, optimizer.grad_samples
        for parameter in parameters:
            _check_processed_flag(parameter.grad_sample)
        rows = {len(gradient) for gradient in gradients}
        self._used += 1
        count, self._more = self._batch_rows.popleft() if self._batch_rows else (0, False)
        if rows != {self._size}:
            self._refusal = (
                f"gradients of {sorted(rows)} rows do not fit the {self._size} records of a batch. "
                "Leave BatchMemoryManager out, and give its number to make_exact as "
                "physical_batch_size"
            )
        elif self._used != self.requests - self.ahead:
            self._refusal = (
                "a batch of the loader was not used for a step. Step after each batch, and leave "
                "BatchMemoryManager out: make_exact splits samples itself"
            )
        self._refuse_sums()
        values = scheduled(optimizer)
        if not self.pieces:
            self._sigma, self._norms = values["noise_multiplier"], values["max_grad_norm"]
        self.pieces.append(({count}, values))
        parts = [_part(gradient) for gradient in gradients]
        weights = torch.zeros(self._size, dtype=torch.float64, device=parameters[0].device)
        weights[:count] = 1.0  # the rest fills the batch up
        for group, units in () if self._refusal else self._groups():
            scale = self._grid / self._norms[0]
            add_rows([parts[i] for i in group], (), weights, scale, units)
        for parameter, part in zip(parameters, parts, strict=True):
            total, before = part.total.to(torch.int64).view_as(parameter), parameter.summed_grad
            parameter.summed_grad = total if before is None else before + total
            _mark_as_processed(parameter.grad_sample)
        self._keep_sums()

    def skip(self) -> bool:
        """Return True if the sample has more batches, so that the optimizer must not step yet."""
        self.optimizer._step_skip_queue.clear()  # signals from BatchMemoryManager
        return self._more

    def add_noise(self) -> None:
        """Add integer noise to the integer sums, and write the noisy sums to ``grad``.

        Sigma and the norm are those that were read for the first batch of the sample.
        """
        optimizer = self.optimizer
        self._refuse_sums()
        unit = self._norms[0] / self._grid
        sigma = check.exact("noise_multiplier", self._sigma)
        for parameter in optimizer.params:
            total = parameter.summed_grad
            _check_processed_flag(total)
            _mark_as_processed(total)
            if sigma:
                noise = torch.empty_like(total).view(-1)
                rounded_gaussian((sigma * self._grid) ** 2, len(noise), out=noise)
                total = total + noise.view_as(total)
            parameter.grad = (total.double() * unit).to(parameter.dtype)

    def use(self, optimizer: Any) -> float:
        """Use one sample for a step as `OpacusDraws` does, or refuse the step."""
        refusal, self._refusal = self._refusal, ""
        if refusal:
            self.pieces = []
            self.lost += 1
            raise ValueError(refusal)
        return super().use(optimizer)

    def _groups(self) -> list[tuple[list[int], int]]:
        """Return pairs: indices of parameters clipped together, and their clipping norm in units.

        The squares of these norms add up to at most the squared grid.
        """
        filled = [i for i, parameter in enumerate(self.optimizer.params) if parameter.numel()]
        square, *each = (Fraction(norm) ** 2 for norm in self._norms)
        if not each:
            return [(filled, self._grid)]
        most = max(square, sum(each))
        return [([i], math.isqrt(math.floor(self._grid**2 * each[i] / most))) for i in filled]


class _Requests(Iterator[list[int]]):
    """Iterate over the batches of a pass, and count the loader's requests, even after the end.

    A loader first requests the batches that its workers draw ahead, then one for each batch that it
    returns. So the number of requests shows which batch the user has [OS-2].
    """

    def __init__(self, draws: ExactDraws, batches: Iterator[list[int]]) -> None:
        self._draws, self._batches = draws, batches

    def __next__(self) -> list[int]:
        self._draws.requests += 1
        return next(self._batches)


def _part(gradients: torch.Tensor) -> Written:
    """Return gradients as flat rows in float32 or float64, with a total of zeros."""
    rows = flat_rows(gradients.detach())
    return Written(rows, rows.new_zeros(rows.shape[1], dtype=torch.float64))
