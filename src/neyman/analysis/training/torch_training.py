"""Train a network with privacy: check, update, save, and load the model of `ny.torch.train`."""

# torch is optional, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.optim import LBFGS, Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from neyman.analysis.training.checkpoint import CheckpointError, State, read, write
from neyman.analysis.training.module_gradients import fixed_kernels, fresh_randomness
from neyman.analysis.training.noisy_gradient import NoisyGradient
from neyman.analysis.training.processes import Processes
from neyman.analysis.training.result import NETWORK, Setting, Trained, joined
from neyman.analysis.training.steps import Request, run, without_content
from neyman.analysis.training.terms import RunTerms
from neyman.ledger.records import ChargedError

SCHEMA = "neyman-network-checkpoint/1"
TOGETHER = (
    "The gradient of an example in a microbatch of {rows} examples of one fixed shape does not "
    "depend on the values or the order of the other examples."
)
RESTORED = (
    "After each sum of gradients, the parameters that train had their values of before. At each "
    "checkpoint, all other parameters and the buffers had their values of before the run. The "
    "result has the names of before the run. So what the model wrote or added is not in it."
)
RANDOMNESS = (
    "If the model or the dataset draws random numbers, as dropout and random crops do, they come "
    "from torch's generator, which has a new secret seed in each step. That its numbers are as "
    "good as random ones is assumed."
)
SHARED = (
    "Up to {processes} processes shared each batch. Its row numbers and sums of clipped gradients "
    "without noise crossed their connections, which nobody else can read."
)
PUBLIC_ROWS = (
    "The number of rows, {n}, is public, and the rate of the batches follows from it. Neighboring "
    "datasets have the same number of rows, and differ in one row. In one of them, the gradient of "
    "this row is 0."
)


@dataclass(frozen=True)
class NetworkTerms(RunTerms):
    """Describe a run of `ny.torch.train` in public terms.

    The terms exclude the first values of the parameters. A script that runs again draws other first
    values, and the run continues with the values in its checkpoint.

    Args:
        shapes: the shape of each parameter that is trained, by name.
        words: the description of the model, the loss, and the optimizer, as JSON types.
    """

    shapes: Mapping[str, tuple[int, ...]]
    words: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of all trained parameters in one array."""
        return (sum(int(np.prod(shape)) for shape in self.shapes.values()),)

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as JSON types."""
        return {
            **super().to_dict(),
            "schema": "neyman-network-training/1",
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            **self.words,
        }


class RowSource:
    """Read the rows of a dataset as tensors on the model's device.

    Args:
        data: a tuple or a dict of tensors, a ``TensorDataset``, a map-style dataset of tuples or
            dicts, or a ``DataLoader`` of one, of which only the dataset and ``collate_fn`` count.
        example: a made-up row of a map-style dataset, with the shapes and types of its rows.

    Raises:
        TypeError, ValueError: the data have another type, or ``example`` is missing.
    """

    def __init__(self, data: object, example: object, device: torch.device) -> None:
        self._collate: Callable[[list[Any]], Any] | None = None
        if isinstance(data, DataLoader):
            _check_loader(data)
            loader: Any = data
            data = loader.dataset
            if loader.collate_fn is not default_collate:
                self._collate = loader.collate_fn
        if isinstance(data, (IterableDataset, Tensor)) or not (
            hasattr(data, "__getitem__") and hasattr(data, "__len__")
        ):
            raise TypeError(
                f"data is a {type(data).__name__}; give a tuple of tensors (x, y), a dict of "
                "tensors, a TensorDataset, or a dataset with __getitem__ and __len__. The "
                "mechanism draws the batches that are accounted, by the numbers of their rows"
            )
        self._data: Any = data
        self.device = device
        self._tensors: tuple[Tensor, ...] | None = None
        given = self._data.tensors if type(data) is TensorDataset else data
        self.names: tuple[str, ...] = ()
        if isinstance(given, (tuple, list, dict)):
            values: list[Any] = [*given.values()] if isinstance(given, dict) else [*given]
            if not values or not all(isinstance(x, Tensor) and x.dim() for x in values):
                raise TypeError(
                    "data must be a tuple or a dict of tensors whose dimension 0 is the row, such "
                    "as (x, y); torch.from_numpy makes a tensor of an array"
                )
            self.names = tuple(given) if isinstance(given, dict) else ()
            self.first = self._tensors = tuple(x.detach() for x in values)
        elif not isinstance(example, (tuple, list, dict)):
            raise TypeError(
                f"example is a {type(example).__name__}. The rows of a dataset cannot be read "
                "before the charge: give a made-up row of the same shapes and types, such as "
                "example=(torch.zeros(1, 28, 28), 0), or a dict of the names that the model takes"
            )
        else:
            self.names = tuple(example) if isinstance(example, dict) else ()
            values = [*example.values()] if isinstance(example, dict) else [*example]
            self.first = tuple(torch.as_tensor(x, device=device)[None] for x in values)
            self._check_first()
        self.count = len(self)

    def _read(self, row: int) -> Any:
        """Return a row, as the collate function makes it of this row alone."""
        item = self._data[row]
        if self._collate is None:
            return item
        batch = self._collate([item])
        if hasattr(batch, "items"):
            return {name: value[0] for name, value in batch.items()}
        return [value[0] for value in batch]

    def _values(self, item: Any) -> list[Any]:
        """Return the values of a row in the order of the example."""
        return [item[name] for name in self.names] if self.names else [*item]

    def _check_first(self) -> None:
        """Refuse a dataset whose rows have another form than the example, by its first row.

        No value decides: a row that cannot be read is no reason.
        """
        try:
            with fresh_randomness(self.device):
                item = self._read(0)
        except Exception:
            return
        kind, missing = type(item).__name__, [name for name in self.names if name not in item]
        if missing or not (self.names or isinstance(item, (tuple, list))):
            raise TypeError(
                f"data gives a row as a {kind}{f' without {missing[0]!r}' if missing else ''}, and "
                f"example has {[*self.names] or 'no names'}. Rows that are tuples need an example "
                "that is a tuple, and rows that are dicts one that is a dict of what the model "
                "takes; collate_fn= of a DataLoader makes one of the other"
            )
        values = self._values(item)
        forms, known = [*map(_form, values)], [tuple(x.shape[1:]) for x in self.first]
        if forms != known:
            raise ValueError(
                f"data gives a row of shapes {forms}, and example has {known}; bring all rows to "
                "tensors or numbers of one shape in the dataset, and give example= this shape"
            )

    def __len__(self) -> int:
        """Return the current number of rows."""
        return len(self._data if self._tensors is None else self._tensors[0])

    def take(self, batch: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Return the rows of a batch, which may be empty."""
        if self._tensors is not None:
            places = torch.from_numpy(batch).to(self.device)
            return tuple(x[places] for x in self._tensors)
        items = [self._item(int(row)) for row in batch]
        return tuple(
            torch.stack([item[place] for item in items]) if items else x.new_zeros(0, *x.shape[1:])
            for place, x in enumerate(self.first)
        )

    def _item(self, row: int) -> list[Tensor]:
        values = self._values(self._read(row))
        item = [
            torch.as_tensor(value, dtype=x.dtype, device=self.device)
            for value, x in zip(values, self.first, strict=True)
        ]
        if [value.shape for value in item] != [x.shape[1:] for x in self.first]:
            raise ValueError("a row has another shape than the example")
        return item


def length_of(data: object) -> int:
    """Return the number of rows, without reading one."""
    given: Any = data
    if isinstance(data, DataLoader):
        given = given.dataset
    first = given[0] if isinstance(data, (tuple, list)) else given
    return len(next(iter(given.values())) if isinstance(data, dict) else first)


def _check_loader(loader: Any) -> None:
    """Refuse a loader whose sampler or workers would not be used."""
    if type(loader.sampler) not in (SequentialSampler, RandomSampler) or loader.num_workers:
        raise ValueError(
            f"data is a DataLoader with {type(loader.sampler).__name__} and "
            f"{loader.num_workers} workers; the mechanism draws the batches that are accounted, "
            "and rows are read in this process: give a loader without them, or its dataset"
        )


def _form(value: object) -> object:
    """Return the shape that a value has as a tensor, or its type if it is no tensor."""
    try:
        return tuple(torch.as_tensor(value).shape)
    except Exception:
        return type(value).__name__


class NetworkRun:
    """Update a model, its optimizer, and its learning-rate schedule by noisy gradients."""

    def __init__(
        self,
        terms: NetworkTerms,
        model: Module,
        gradient: NoisyGradient,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        rows: RowSource,
        processes: Processes,
        setting: Setting,
        callback: Callable[[int, Module], object] | None,
    ) -> None:
        self.terms = terms
        self.model, self._gradient = model, gradient
        self._optimizer, self._scheduler = optimizer, scheduler
        self._rows, self._callback = rows, callback
        self._processes = processes
        self._setting = setting
        # A row may not decide what is published: the tensors and their names are those of now.
        self._tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        names = {id(x): name for name, x in self._tensors.items()}
        state = Module.state_dict(model, keep_vars=True)
        self._published = {k: names[id(x)] for k, x in state.items() if id(x) in names}
        self._fixed = self._copy_fixed()

    def check(self) -> None:
        """Take a step on a gradient of zeros, save and load it, and undo it.

        The schedule takes all its steps, because some schedules end early.
        """
        try:
            before = self._pack_state()
            self._unpack(before)
            try:
                for parameter in self._gradient.gradients.parameters.values():
                    parameter.grad = torch.zeros_like(parameter)
                self._move()
                self._unpack(self._pack_state())
                if schedule := self._scheduler:
                    steps = self.terms.plan.mechanism.steps
                    for _ in range(getattr(schedule, "last_epoch", steps), steps):
                        schedule.step()
                joined(np.load(io.BytesIO(self.content()), allow_pickle=False), self.terms.shapes)
            finally:
                self._unpack(before)
        except Exception as error:
            raise ValueError(
                "optimizer, scheduler, or model cannot take, save, and load a step on a gradient "
                f"of zeros: {type(error).__name__}: {error}"
            ) from error

    def load(self, folder: Path) -> State | None:
        """Load a checkpoint that has the same terms. Return its state."""
        saved = read(folder, SCHEMA, _with_environments)
        if saved is None:
            return None
        state, (content, earlier) = saved
        if state.key == self.terms.key:
            try:
                self._unpack(content)
            except Exception as error:  # torch raises many kinds for a file of another content
                raise CheckpointError(
                    f"out = {str(folder)!r} holds a run with other buffers or frozen parameters "
                    f"or another optimizer ({error}); give the model that began it"
                ) from error
            self._fixed = self._copy_fixed()
            here = self._setting.environments[-1]
            if self.terms.plan.microbatch is None:
                here = here | {"microbatch": earlier[-1]["microbatch"]}
                self._gradient.gradients.microbatch = here["microbatch"]
            others = [place for place in earlier if place != here]
            self._setting = replace(self._setting, environments=(*others, here))
        return state

    def save(self, folder: Path, state: State) -> None:
        """Write a checkpoint, durably."""
        self._restore_fixed()
        environments = self._setting.environments
        write(folder, state, SCHEMA, self._pack_state(), environments=environments)

    def _restore_fixed(self) -> None:
        """Restore what no step moves, if the model wrote to it."""
        for name, x in self._fixed.items():  # the model may have given it another shape
            self._tensors[name].data = x.to(self._rows.device, copy=True)

    def step(self, step: int, batch: NDArray[np.int64]) -> None:
        """Sum the clipped gradients, add noise, and move the parameters."""
        if len(self._rows) != self._rows.count:
            raise ChargedError(
                "data changed its length during the run: give a dataset of one length, such as a "
                "TensorDataset. The charge stands"
            )
        add_rows(self._gradient, self._rows, self._processes.share(batch))
        self._processes.collect()
        self._gradient.steps = step  # an earlier process may have taken the steps before it
        self._gradient.set()
        self._move()
        if self._callback is not None:
            self._restore_fixed()
            self._callback(step, self.model)

    def _move(self) -> None:
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
        self._optimizer.zero_grad(set_to_none=True)

    def setting(self) -> Setting:
        """Return the parts of the receipt that are not in the terms."""
        setting = self._setting
        sizes = sorted({place["microbatch"] for place in setting.environments} - {1})
        together = [TOGETHER.format(rows=" or ".join(map(str, sizes)))] if sizes else []
        most = max(place["processes"] for place in setting.environments)
        shared = [SHARED.format(processes=most)] if most > 1 else []
        return replace(setting, conditions=(*together, *setting.conditions, *shared))

    def content(self) -> bytes:
        """Return an .npz file: the names of the state dict before the run, with our values."""
        buffer = io.BytesIO()
        tensors = {**self._fixed, **self._gradient.gradients.parameters}
        with ZipFile(buffer, "w") as file:
            for name, own in self._published.items():
                x = tensors[own]
                with file.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, _array(x), allow_pickle=False)
        return buffer.getvalue()

    def set(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Give the model the values of a result, without its hooks, which a row may have set."""
        with torch.no_grad():
            for name in state.keys() & self._published.keys():
                self._tensors[self._published[name]].copy_(torch.from_numpy(state[name]))

    def _copy_fixed(self) -> dict[str, Tensor]:
        """Return copies of the buffers and the parameters that do not train, on the CPU."""
        trained = self._gradient.gradients.parameters
        tensors = self._tensors.items()
        return {k: x.detach().cpu().clone() for k, x in tensors if k not in trained}

    def _pack_state(self) -> memoryview:
        """Return the bytes of the parameters, buffers, optimizer, and schedule; no random state."""
        buffer = io.BytesIO()
        parts = {
            "model": {name: x.detach() for name, x in self._tensors.items()},
            "optimizer": self._optimizer.state_dict(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
        }
        torch.save(parts, buffer)
        return buffer.getbuffer()

    def _unpack(self, content: bytes | memoryview) -> None:
        parts = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        with torch.no_grad():
            for name, x in self._tensors.items():
                x.copy_(parts["model"][name])
        self._optimizer.load_state_dict(parts["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(parts["scheduler"])


def add_rows(gradient: NoisyGradient, source: RowSource, batch: NDArray[np.int64]) -> None:
    """Read the rows of a batch, and add their clipped gradients to the sum."""

    def taken() -> tuple[Tensor, ...]:
        with fresh_randomness(source.device):
            return source.take(batch)

    rows, names = without_content(taken, "the dataset"), source.names
    add = partial(gradient.add, *([] if names else rows), **dict(zip(names, rows, strict=False)))
    without_content(add, "the model or the loss")


def _with_environments(
    content: bytes, head: dict[str, Any]
) -> tuple[bytes, tuple[dict[str, Any], ...]]:
    environments = head.pop("environments")
    if not isinstance(environments, list) or {*map(type, environments)} != {dict}:
        raise ValueError("its environments are not a list of descriptions")
    return content, tuple(environments)


def _array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as an array. A bfloat16 becomes float32, which represents all its numbers."""
    plain = tensor.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def train_network(
    model: Module,
    loss: object,
    data: object,
    request: Request,
    *,
    gradient: NoisyGradient,
    name: str,
    dataset: str,
    optimizer: Callable[[Iterable[Tensor]], Optimizer] | Optimizer | None,
    scheduler: Callable[[Optimizer], LRScheduler] | LRScheduler | None,
    example: object,
    callback: Callable[[int, Module], object] | None,
) -> Trained:
    """Check a run of `ny.torch.train`, take its steps, and load the result into the model."""
    gradients = gradient.gradients
    rows, processes = _connect(model, loss, data, gradient, example, leads=True)
    mover = _optimizer(model, gradients.parameters, optimizer or Adam)
    words: dict[str, Any] = {
        "model": _text(model),
        "loss": _text(loss),
        "mode": "train" if model.training else "eval",
        "optimizer": _text(mover),
    }
    schedule = _scheduler(mover, scheduler)
    if schedule is not None:
        words["scheduler"] = _text(schedule)
    shapes = {name: tuple(x.shape) for name, x in gradients.parameters.items()}
    terms = NetworkTerms(name, dataset, gradient.plan, shapes, words)
    for parameter in model.parameters():
        parameter.grad = None  # an earlier gradient has no noise
    public = [PUBLIC_ROWS.format(n=gradient.mechanism.n)] if request.calibrated else []
    with fixed_kernels(gradients.device):
        setting = Setting((*public, RANDOMNESS, RESTORED), (_environment(gradient),), NETWORK)
        job = NetworkRun(
            terms, model, gradient, mover, schedule, rows, processes, setting, callback
        )
        try:
            trained = run(job, rows.count, request)
        except BaseException:
            processes.refuse()
            raise
    job.set(trained.state)  # for a run that was already finished
    processes.end()
    return trained


def serve(
    model: Module, loss: object, data: object, gradient: NoisyGradient, example: object
) -> None:
    """Add up this process's rows of each batch, until the run of process 0 ends."""
    rows, processes = _connect(model, loss, data, gradient, example, leads=False)
    with fixed_kernels(gradient.gradients.device):
        while (batch := processes.receive()) is not None:
            add_rows(gradient, rows, batch)
            processes.collect()
            gradient.gradients.take()


def _connect(
    model: Module,
    loss: object,
    data: object,
    gradient: NoisyGradient,
    example: object,
    *,
    leads: bool,
) -> tuple[RowSource, Processes]:
    """Check the data and the model on invented rows, and agree with the other processes."""
    gradients = gradient.gradients
    rows = RowSource(data, example, gradients.device)
    gradients.names = rows.names
    gradients.check(rows.first)
    processes = Processes(model, gradients, gradient.plan, leads)
    processes.agree(f"{gradient.plan}, {rows.count} rows, {_text(model)}, {_text(loss)}")
    return rows, processes


def _text(thing: object) -> str:
    """Return a text that identifies a model, a loss, an optimizer, or a schedule."""
    kind = thing if callable(thing) and hasattr(thing, "__qualname__") else type(thing)
    text = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(thing, Module):
        text = repr(thing)
    elif isinstance(thing, Optimizer):
        text = f"{text} {vars(thing)['defaults']!r}"
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _optimizer(
    model: Module,
    parameters: Mapping[str, Tensor],
    given: Callable[[Iterable[Tensor]], Optimizer] | Optimizer,
) -> Optimizer:
    """Return the optimizer. Refuse one whose parameters are not exactly the trained ones."""
    result: Any = given
    if not isinstance(given, (Optimizer, Module)) and callable(given):
        result = given(list(parameters.values()))
    if not isinstance(result, Optimizer) or isinstance(result, LBFGS):
        raise TypeError(
            f"optimizer is a {type(result).__name__}; give a torch.optim.Optimizer over "
            "model.parameters() that moves once by a gradient, or a function that makes one: "
            "lambda parameters: torch.optim.Adam(parameters, lr=0.001)"
        )
    moved = {id(x) for group in result.param_groups for x in group["params"] if x.requires_grad}
    trained = {id(x) for x in parameters.values()}
    if moved - {id(x) for x in model.parameters() if not x.numel()} != trained:
        raise ValueError(
            "optimizer does not have the parameters of the model that require a gradient: make it "
            "of model.parameters(), and call requires_grad_(False) on those that stay as they are"
        )
    return result


def _scheduler(
    optimizer: Optimizer, given: Callable[[Optimizer], LRScheduler] | LRScheduler | None
) -> LRScheduler | None:
    """Return the schedule of the optimizer, which takes one step per training step."""
    if given is None:
        return None
    schedule: Any = given
    if callable(given) and not isinstance(given, LRScheduler):
        schedule = given(optimizer)
    if not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau):
        raise TypeError(
            f"scheduler is a {type(schedule).__name__}; give a schedule of steps, such as lambda "
            "optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100). A schedule "
            "by a loss needs a loss that is private"
        )
    if schedule.optimizer is not optimizer:
        raise ValueError("scheduler has another optimizer; make it of the one that is given")
    return schedule


def _environment(gradient: NoisyGradient) -> dict[str, Any]:
    device, plan = gradient.gradients.device, gradient.plan
    card = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    products = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    kinds = {str(x.dtype).removeprefix("torch.") for x in gradient.gradients.parameters.values()}
    return {
        "framework": f"torch {torch.__version__}",
        "device": f"{device}{card}",
        "dtype": ", ".join(sorted(kinds)),
        "microbatch": gradient.gradients.microbatch,
        "compiled": plan.compiled,
        "processes": plan.processes,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "tf32": "tf32" in products,
        "benchmark": torch.backends.cudnn.benchmark,
    }
