"""Compute the noisy gradient of a network: clip rows, add them up in integers, add exact noise."""

# torch is optional, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from neyman.analysis.training.training_plan import TrainingPlan
from neyman.extras import require
from neyman.noise.integer_noise import rounded_gaussian

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class NoisyGradient:
    """Compute the private gradient of a model, for your own training loop.

    `add` computes one gradient per row, clips and rounds each gradient, and adds them up in
    integers. `set` adds exact noise to the sum, divides it by the declared batch size, and stores
    the result in the ``grad`` of each parameter. Optimizers and schedules only post-process this
    result.

    The guarantee is ``mechanism.tradeoff()`` under two assumptions: each step uses the rows of one
    batch of ``mechanism.batches``, including empty batches, and the conditions in the receipt of
    `ny.torch.train` hold. No ledger is charged, and nothing is saved. `ny.torch.train` does both.

    Args:
        model, loss: as in `ny.torch.train`.
        plan: the accounted mechanism, the clip, and the groups; see `TrainingPlan`.

    Raises:
        TypeError, ValueError: an argument is wrong, or a layer of the model mixes rows.

    Examples:
        >>> import torch
        >>> import neyman as ny
        >>> x, y = torch.randn(100, 3), torch.randn(100, 1)
        >>> model = torch.nn.Linear(3, 1)
        >>> mechanism = ny.DPSGD(n=100, batch=20, sigma=2, epochs=1)
        >>> plan = ny.torch.TrainingPlan(mechanism)
        >>> gradient = ny.torch.NoisyGradient(model, torch.nn.MSELoss(), plan)
        >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        >>> for rows in mechanism.batches(len(x)):
        ...     gradient.add(x[rows], y[rows])
        ...     gradient.set()
        ...     optimizer.step()
        >>> gradient.steps
        5

    Source: [TR-1], [TR-2], [TR-6] to [TR-9].
    """

    def __init__(
        self, model: Module, loss: Callable[[Tensor, Tensor], Tensor], plan: TrainingPlan
    ) -> None:
        require("gradients of networks", "torch")
        from neyman.analysis.training.module_gradients import ModuleGradients

        if not isinstance(plan, TrainingPlan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"plan = {plan!r} must be a ny.torch.TrainingPlan, such as "
                "TrainingPlan(ny.DPSGD(n=1000, batch=100, sigma=1, epochs=10), clip=1)"
            )
        self.plan, self.mechanism = plan, plan.mechanism
        self.gradients = ModuleGradients(model, loss, plan)
        if self.mechanism.batch > (most := self.gradients.most_rows // 2):
            raise ValueError(
                f"mechanism.batch = {self.mechanism.batch} must be at most {most}: a Poisson batch "
                "may be larger than its mean"
            )
        self.steps = 0
        self._correlated = plan.correlated_noise(self.gradients.size)
        self._scale = self.gradients.clip / plan.grid / self.mechanism.batch
        self._begun = False
        hooks = [
            parameter.register_post_accumulate_grad_hook(_refuse)
            for parameter in self.gradients.parameters.values()
        ]
        self._hooks = weakref.finalize(self, lambda: [hook.remove() for hook in hooks])

    def close(self) -> None:
        """End private training: allow ``backward()`` on the model again."""
        self._hooks()

    def add(self, *rows: Tensor, **named: Tensor) -> None:
        """Add the clipped gradients of rows to the sum.

        A row counts as 0 if its gradient is not finite, or if the model or the loss raises an error
        on it. The first call tests both on invented rows. A step may have several calls. After an
        error, begin the step again.

        Args:
            rows: the inputs of the model, with the target last. Dimension 0 is the row, and may be
                empty.
            named: instead of them, what the model takes by name. The loss gets the output and the
                dict.

        Raises:
            ValueError: the model or the loss fails on invented rows, or keeps something about them.
        """
        self._begun = False
        self.gradients.names = tuple(named)
        self.gradients.add((*rows, *named.values()))
        self._begun = True

    def set(self) -> None:
        """Add noise to the sum, set the ``grad`` of each parameter, and begin the next step.

        Raises:
            RuntimeError: nothing was added, or all steps of the mechanism are over.
        """
        if not self._begun:
            raise RuntimeError("add the rows of a batch first; an empty batch has zero rows")
        if self.steps == self.mechanism.steps:
            raise RuntimeError(
                f"mechanism has {self.steps} steps, and all of them are over: describe more epochs"
            )
        total, self._begun = self.gradients.take(), False
        if self._correlated is not None:
            self._correlated.add(self.steps, total)
        else:  # Exact: for an integer x, round(x + Z) = x + round(Z) [TR-2].
            total += rounded_gaussian(
                self.plan.variance, len(total), out=total.new_empty(len(total))
            )
        self.steps += 1
        start = 0
        for parameter in self.gradients.parameters.values():
            part = total[start : start + parameter.numel()]
            start += parameter.numel()
            mean = (part.double() * self._scale).to(parameter.dtype)
            parameter.grad = mean.view_as(parameter)


def _refuse(parameter: Tensor) -> NoReturn:
    parameter.grad = None
    raise RuntimeError(
        "backward() was called on a model with a NoisyGradient: the gradient of a mean over a "
        "batch is neither clipped row by row nor noisy. Give the rows to add(), and then call "
        "set(); close() ends private training"
    )
