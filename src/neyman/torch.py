"""Train a ``torch.nn.Module`` with differential privacy: `ny.torch`.

`train` runs the whole loop, with a ledger, checkpoints, and a receipt. `serve` adds a process to
it. `NoisyGradient` is for your own loop.

Examples:
    >>> import torch
    >>> import neyman as ny
    >>> x = torch.randn(200, 3)
    >>> y = (x.sum(dim=1) > 0).long()
    >>> model = torch.nn.Linear(3, 2)
    >>> trained = ny.torch.train(
    ...     model, torch.nn.CrossEntropyLoss(), (x, y),
    ...     epsilon=3, delta=1e-5, epochs=5, batch=50, out="model",
    ... )
    n = 200, the length of the data, is public. sigma = 1.90125 reaches epsilon 3 at delta 1e-05.
    >>> print(trained)
    <Trained 'model': charged 3 in pure, delta 1 × 10⁻⁵>
    This counts one run. Other runs on these rows add to it and are not counted here: give all of
    them one ledger=.
    >>> trained.tradeoff().power(level=0.05).upper < 0.2
    True
    >>> bool((model.weight.detach().numpy() == trained.state["weight"]).all())
    True
"""

# torch is no dependency, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neyman.analysis.training.noisy_gradient import NoisyGradient
from neyman.analysis.training.result import Trained
from neyman.analysis.training.steps import Request
from neyman.analysis.training.training_plan import TrainingPlan
from neyman.extras import require
from neyman.ledger.ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import DataLoader, Dataset

__all__ = ["NoisyGradient", "TrainingPlan", "serve", "train"]


def train(
    model: Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Tensor, ...] | Mapping[str, Tensor] | Dataset[Any] | DataLoader[Any],
    plan: TrainingPlan | None = None,
    *,
    out: str | Path,
    epsilon: float | Fraction | str | None = None,
    delta: float | Fraction | str = 0,
    epochs: float | Fraction | None = None,
    batch: int | None = None,
    optimizer: Callable[[Iterable[Tensor]], Optimizer] | Optimizer | None = None,
    scheduler: Callable[[Optimizer], LRScheduler] | LRScheduler | None = None,
    example: tuple[object, ...] | Mapping[str, object] | None = None,
    callback: Callable[[int, Module], object] | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    name: str = "training",
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
        data: a tuple of tensors on the model's device, with the target last, or a
            ``TensorDataset``, or a dataset of tuples with ``__getitem__`` and ``__len__``, or a
            ``DataLoader`` of one, of which only the dataset and ``collate_fn`` count. Items of a
            dataset are moved to the model's device. Where rows are dicts, the model gets their
            values by name, and the loss gets the output and the dict.
        plan: the mechanism, the clip, and how gradients are computed. By default, the plan with
            clip 1 that reaches ``epsilon``.
        out: the folder for the result, as in `ny.train`.
        epsilon, delta: the guarantee, instead of a plan; see `TrainingPlan.reaching`. The number of
            rows is then public, and is printed. With a plan, ``delta`` is that of a charge in
            "pure".
        epochs, batch: passes over the data, and the expected size of a batch, with ``epsilon``.
        optimizer: a function from a list of parameters to an optimizer, or an optimizer over
            ``model.parameters()``. By default ``torch.optim.Adam``.
        scheduler: a function from an optimizer to a schedule, or a schedule. It advances after each
            step.
        example: an invented row with the shapes and types of the data, for a dataset without
            tensors. Before the charge, the model runs on rows of this form, and the form of the
            first row is compared with it, so mistakes cost nothing.
        callback: function of the step's number and the model, called after each step. All that it
            sees is private already. The loss on a batch is not, so measure on public data.
        ledger: a `Ledger`, or its path, with the dataset, as in `ny.train`. By default, a new file
            beside ``out`` that holds this run alone, and all that the run writes says so.
        dataset: the dataset's "name@version" in the ledger. By default, the name of ``out``.
        name, account, charge_again, sign: as in `ny.train`.

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
    from neyman.analysis.training.torch_training import length_of, train_network

    if plan is not None and (epsilon, epochs, batch) != (None, None, None):
        raise ValueError(
            f"epsilon = {epsilon!r}, epochs = {epochs!r}, and batch = {batch!r} find the mechanism "
            "of a plan, and plan has one: give plan= alone, or make it by "
            "TrainingPlan.reaching(epsilon, delta, n=, epochs=, batch=)"
        )
    if plan is None:
        if epsilon is None or epochs is None or batch is None:
            raise ValueError(
                f"plan is missing, and so epsilon = {epsilon!r}, epochs = {epochs!r}, and batch = "
                f"{batch!r} must be numbers: epsilon=2, delta=1e-5, epochs=20, batch=256"
            )
        n = length_of(data)
        plan = TrainingPlan.reaching(epsilon, delta, n=n, batch=batch, epochs=epochs)
        print(  # noqa: T201
            f"n = {n}, the length of the data, is public. sigma = {float(plan.mechanism.sigma):g} "
            f"reaches epsilon {epsilon} at delta {delta}."
        )
    request = Request(out, ledger, delta, account, charge_again, sign, epsilon is not None)
    gradient = NoisyGradient(model, loss, plan)
    try:
        return train_network(
            model,
            loss,
            data,
            request,
            gradient=gradient,
            name=name,
            dataset=dataset or f"{re.sub('[^A-Za-z0-9._-]', '-', Path(out).name)}@1",
            optimizer=optimizer,
            scheduler=scheduler,
            example=example,
            callback=callback,
        )
    finally:
        gradient.close()


def serve(
    model: Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Tensor, ...] | Mapping[str, Tensor] | Dataset[Any] | DataLoader[Any],
    plan: TrainingPlan,
    *,
    example: tuple[object, ...] | Mapping[str, object] | None = None,
) -> None:
    """Add up a share of each batch for the run of `train` in process 0, until it ends.

    Process 0 draws the batches and the noise, and holds the ledger and the result. Each process
    takes whole microbatches, and their sums are whole numbers. So the sum is that of one process to
    the last bit, with the same microbatch. In the end, the model has the result.

    The connections carry the batches and sums without noise: only processes that may read the data
    may read them. If a process dies, the run ends. The same calls resume it with one charge, in any
    number of processes.

    Args:
        model, loss, data, plan, example: as in `train`, and the same as in process 0. Each process
            has all rows. plan.processes is the number of processes of torch.distributed's group.

    Raises:
        TypeError, ValueError: as in `train`, or an argument differs from that of process 0. Nothing
            is charged.
        ChargedError: another process ended before the run did.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> import neyman as ny
        >>> def work(rank):
        ...     dist.init_process_group("gloo", "file:///tmp/meet", rank=rank, world_size=2)
        ...     x, y = torch.zeros(200, 3), torch.zeros(200, 1)
        ...     model, loss = torch.nn.Linear(3, 1), torch.nn.MSELoss()
        ...     plan = ny.torch.TrainingPlan(
        ...         ny.DPSGD(n=200, batch=64, sigma=2, epochs=3), processes=2)
        ...     if rank:
        ...         ny.torch.serve(model, loss, (x, y), plan)
        ...     else:
        ...         ny.torch.train(model, loss, (x, y), plan, out="model")
        >>> torch.multiprocessing.spawn(work, nprocs=2)  # doctest: +SKIP
    """
    require("private training runs of networks", "torch")
    from neyman.analysis.training.torch_training import serve as add_shares

    gradient = NoisyGradient(model, loss, plan)
    try:
        add_shares(model, loss, data, gradient, example)
    finally:
        gradient.close()
