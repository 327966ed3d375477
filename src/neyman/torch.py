"""Train a ``torch.nn.Module`` with differential privacy: `ny.torch`.

`train` runs the whole loop, with a ledger, checkpoints, and a receipt. `NoisyGradient` is for your
own loop.

Examples:
    >>> import torch
    >>> import neyman as ny
    >>> x = torch.randn(200, 3)
    >>> y = (x.sum(dim=1) > 0).long()
    >>> model = torch.nn.Linear(3, 2)
    >>> ledger = ny.throwaway(5, currency="renyi:8")
    >>> account = ledger.register(
    ...     "toy@1", protects="person", neighboring="add-remove", rows=1
    ... )
    >>> trained = ny.torch.train(
    ...     model, torch.nn.CrossEntropyLoss(), (x, y),
    ...     mechanism=ny.DPSGD(n=200, batch=50, sigma=2, epochs=5), clip=1,
    ...     optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.05),
    ...     ledger=ledger, dataset="toy@1", out="model",
    ... )
    >>> round(float(trained.tradeoff().epsilon(delta=1e-5)), 2), trained.problems()
    (2.8, [])
    >>> bool((model.weight.detach().numpy() == trained.state["weight"]).all())
    True
"""

# torch is no dependency, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from neyman.analysis.training.noisy_gradient import Clip, Groups, NoisyGradient
from neyman.analysis.training.result import Trained
from neyman.analysis.training.steps import Request
from neyman.extras import require
from neyman.ledger.ledger import Ledger
from neyman.mechanisms.dp_sgd import DPSGD

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

__all__ = ["NoisyGradient", "train"]


def train(
    model: Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Tensor, ...] | Dataset[tuple[Tensor, ...]],
    *,
    mechanism: DPSGD,
    clip: Clip | Mapping[str, Clip],
    optimizer: Callable[[Iterable[Tensor]], Optimizer] | Optimizer,
    ledger: Ledger | str | Path,
    dataset: str,
    out: str | Path,
    scheduler: Callable[[Optimizer], LRScheduler] | LRScheduler | None = None,
    example: tuple[object, ...] | None = None,
    microbatch: int = 64,
    groups: Groups | str | None = None,
    autocast: torch.dtype | None = None,
    compiled: bool = False,
    fast: bool | None = None,
    name: str = "training",
    delta: float | Fraction | str = 0,
    grid: int = 1 << 20,
    save_every: int = 100,
    account: str | None = None,
    charge_again: bool = False,
    sign: str | Path | None = None,
) -> Trained:
    """Train a network with differential privacy. Write its parameters, a receipt, and a report.

    The loop has the same steps and guarantee as `ny.train`: charge, draw a batch, clip each row's
    gradient in whole numbers, add exact noise, and divide by the declared batch size. Then any
    optimizer and schedule moves the parameters. In the end, the model and the folder have the
    result.

    A killed run stays charged. The same call with the same ``out`` resumes from the parameters,
    buffers, optimizer, and schedule of the last checkpoint. Steps that began after the checkpoint
    are lost, and never drawn again. The first parameters of the resuming call may differ: the
    checkpoint replaces them. After the end, the same call loads the result into the model at no
    charge.

    During the run, TF32 and the search for fast kernels are off, and deterministic algorithms are
    on. Afterwards torch has its former settings. These settings and torch's generators affect the
    whole process, so train in one thread at a time.

    Args:
        model: a network on one device, in the mode (train or eval) in which it trains. Choose its
            first parameters without the data. No GPU has run this yet.
        loss: function of the model's output and the target of one row, each with a batch dimension
            of 1. It returns one number. Reductions "mean" and "sum" are both correct.
        data: a tuple of tensors on the model's device, or a ``TensorDataset``, or a dataset of
            tuples with ``__getitem__`` and ``__len__``. The target is last. Items of a dataset are
            moved to the model's device.
        mechanism: the mechanism that is accounted and that draws the batches.
        clip: the largest l2 norm of a row's gradient, above 0. With ``groups``, one shared norm, or
            one norm per group.
        optimizer: a function from a list of parameters to an optimizer, or an optimizer over
            ``model.parameters()``.
        ledger, dataset, out, name, delta, grid, account, charge_again, sign: as in `ny.train`.
        scheduler: a function from an optimizer to a schedule, or a schedule. It advances after each
            step.
        example: an invented row with the shapes and types of the data, for a dataset without
            tensors. Before the charge, the model runs on rows of this form, and the form of the
            first row is compared with it, so mistakes cost nothing.
        microbatch: number of rows per pass through the model. More than 1 adds an assumption to the
            receipt. With 1, rows are independent of each other, but the run is slower.
        groups: names of parameters or modules by group. Each group is clipped separately. With
            "layers", each module is a group.
        autocast: ``torch.bfloat16`` or ``torch.float16`` for the forward pass in mixed precision.
        compiled: True to clip by kernels of ``torch.compile``, which needs a compiler. Not with
            ``fast``.
        fast: True to avoid a gradient per row for linear layers and convolutions. This needs less
            memory, and less time for wide layers. Sums stay exact if a product of matrices adds up
            products [TR-9]. By default, True if ``microbatch`` is above 1 and ``compiled`` is
            False.
        save_every: number of steps between durable checkpoints; see `ny.train`.

    Returns:
        `Trained`; its ``.state`` has each array of the model by name.

    Raises:
        TypeError, ValueError: an argument is wrong, a layer mixes rows or is not supported, the
            model or the loss keeps something about an invented row, or the dataset and the
            mechanism have different relations.
        LedgerError, BudgetRefused: as in `ny.train`. After any of these errors, nothing is charged.
        ChargedError: the run failed after its charge. The charge stands.

    Source: [TR-1] to [TR-9].
    """
    require("private training runs of networks", "torch")
    from neyman.analysis.training.torch_training import train_network

    request = Request(ledger, dataset, out, delta, save_every, account, charge_again, sign)
    gradient = NoisyGradient(
        model,
        loss,
        mechanism=mechanism,
        clip=clip,
        grid=grid,
        microbatch=microbatch,
        groups=groups,
        autocast=autocast,
        compiled=compiled,
        fast=fast,
    )
    try:
        return train_network(
            model,
            loss,
            data,
            request,
            gradient=gradient,
            name=name,
            clip=clip,
            microbatch=microbatch,
            groups=groups,
            optimizer=optimizer,
            scheduler=scheduler,
            example=example,
        )
    finally:
        gradient.close()
