"""Share out the sum of a batch's gradients: process 0 leads the run, and the others serve it.

The leader draws batches and noise, and holds the ledger and the checkpoints. In each step it sends
the batch and the parameters. Each process takes whole microbatches and adds up their integers. The
leader gets the sum of these sums, which is that of one process to the last bit [TR-6].
"""

# torch is optional, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch.nn import Module

from neyman.analysis.training.module_gradients import ModuleGradients
from neyman.analysis.training.training_plan import TrainingPlan
from neyman.ledger.records import ChargedError

Batch = NDArray[np.int64]


class Processes:
    """Connect the processes of a run, by torch.distributed's default group.

    Args:
        plan: its ``processes`` is the size of the group.
        leads: True for process 0.

    Raises:
        ValueError: torch.distributed has no group of this size, or this process has another role.
    """

    def __init__(
        self, model: Module, gradients: ModuleGradients, plan: TrainingPlan, leads: bool
    ) -> None:
        self.number, self._gradients = plan.processes, gradients
        self._tensors = [*model.parameters(), *model.buffers()]
        self._begun = False
        if self.number == 1:
            return
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                f"plan.processes = {self.number}, and torch.distributed has no group: call "
                "torch.distributed.init_process_group('gloo') in each process, as torchrun starts "
                "them"
            )
        size, rank = dist.get_world_size(), dist.get_rank()
        if size != self.number:
            raise ValueError(
                f"plan.processes = {self.number}, and torch.distributed has {size} processes: make "
                "them equal"
            )
        if leads != (rank == 0):
            raise ValueError(
                f"this is process {rank}: process 0 calls ny.torch.train, and each other one calls "
                "ny.torch.serve with the same model, loss, data, and plan"
            )

    def agree(self, terms: str) -> None:
        """Refuse processes with other terms, before anything is charged, and share a microbatch.

        Args:
            terms: what must be equal in all processes.

        Raises:
            ValueError: the terms of a process differ from those of process 0.
        """
        if self.number == 1:
            return
        known: list[Any] = [None] * self.number
        dist.all_gather_object(known, (terms, self._gradients.microbatch))
        others = [place for place, (theirs, _) in enumerate(known) if theirs != known[0][0]]
        if others:
            raise ValueError(
                f"process {others[0]} has another model, loss, plan, or number of rows than "
                f"process 0: {known[others[0]][0]} is not {known[0][0]}"
            )
        self._gradients.microbatch = known[0][1]

    def share(self, batch: Batch) -> Batch:
        """Send the leader's batch and the parameters, and return its rows of the batch.

        Raises:
            ValueError: the batch has more rows than an exact sum.
        """
        if self.number == 1:
            return batch
        self._gradients.check_count(len(batch))
        self._exchange(batch)
        return self._rows(batch)

    def end(self) -> None:
        """Send the result, and end the run of the others."""
        if self.number > 1:
            self._exchange(None)

    def refuse(self) -> None:
        """Tell the others if the run did not begin. Later, a closed connection tells them."""
        if self.number > 1 and not self._begun:
            dist.broadcast_object_list([None, 0])

    def receive(self) -> Batch | None:
        """Take the leader's parameters, and return this process's rows, or None at the end.

        Raises:
            RuntimeError: process 0 did not begin the run.
            ChargedError: a process ended.
        """
        batch = self._exchange(None)
        return None if batch is None else self._rows(batch)

    def _exchange(self, batch: Batch | None) -> Batch | None:
        """Send or receive a batch, the size of microbatches, and the parameters."""
        sent: list[Any] = [batch, self._gradients.microbatch]
        _connected(dist.broadcast_object_list, sent)
        batch, self._gradients.microbatch = sent
        if not self._gradients.microbatch:
            raise RuntimeError("process 0 did not begin the run, and says why")
        # Those that train were listed before the first batch: a row may not change the list.
        tensors = self._gradients.parameters.values() if self._begun else self._tensors
        self._begun = True
        for x in tensors:
            values = x.detach().contiguous()
            _connected(dist.broadcast, values, 0)
            if dist.get_rank():
                x.data.copy_(values)
        return batch

    def _rows(self, batch: Batch) -> Batch:
        """Return the rows of every k-th microbatch."""
        pieces = np.arange(len(batch)) // self._gradients.microbatch
        return batch[pieces % self.number == dist.get_rank()]

    def collect(self) -> None:
        """Add the sums of all processes to the leader's."""
        if self.number > 1:
            for total in self._gradients.totals.values():
                _connected(dist.reduce, total, 0)


def _connected(call: Callable[..., object], *values: object) -> None:
    """Call torch.distributed. A connection that fails ends the run."""
    try:
        call(*values)
    except RuntimeError as error:
        raise ChargedError(
            f"a process of the run ended ({error}). The charge stands. Start all processes again: "
            "the same call goes on, with any number of processes"
        ) from None
