"""Sums of clipped gradients of a `torch.nn.Module`, one gradient per example.

The gradient of each example is a function of its row and of the parameters. Rows go through the
model in microbatches of one fixed shape. Dummy rows of zeros fill the last one, and have weight 0.
"""

# torch is no dependency, so its types are unknown where it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from math import isqrt, sqrt

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import Module
from torch.nn.attention import SDPBackend, sdpa_kernel

from neyman.accounting.integrations.step_accountant import check_model
from neyman.analysis.training.clipping import MOST_GRID, MOST_SIZE
from neyman.analysis.training.device_clipping import MOST_ROWS, Part, add_clipped
from neyman.numerics import check

# What torch says, and what it means.
REASONS = {
    ".item()": "it reads a number of a tensor, as .item() and float() do",
    "data-dependent control flow": "it decides by the value of a tensor, as `if x.sum() > 0` does",
    "Batching rule not implemented": "torch.func.vmap does not know it",
}

Loss = Callable[..., Tensor]
Groups = Mapping[str, Sequence[str]]


def check_module(model: Module) -> None:
    """Refuse a model in which one example's gradient depends on others, or that keeps data.

    Raises:
        TypeError: ``model`` is no ``torch.nn.Module``.
        ValueError: it has a layer that mixes examples or keeps data without noise, or it has no
            parameter to train.
    """
    if not isinstance(model, Module):
        raise TypeError(f"model = {model!r} must be a torch.nn.Module")
    check_model(model)
    for name, layer in model.named_modules():
        if getattr(layer, "scale_grad_by_freq", False):
            raise ValueError(
                f"model layer {name or 'itself'!r} is a {type(layer).__name__} with "
                "scale_grad_by_freq: it divides by how often an entry occurs in a batch. Use "
                "scale_grad_by_freq=False"
            )
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("model has no parameter with requires_grad: there is nothing to train")
    places = sorted({str(p.device) for p in (*model.parameters(), *model.buffers())})
    if len(places) > 1:
        raise ValueError(f"model is on {', '.join(places)}; move it to one device: model.to(...)")


class ModuleGradients:
    """Clipped, rounded gradients of single examples, added up in whole numbers.

    Args:
        model: in the mode (train or eval) in which it trains.
        loss: called with the model's output and the target of one example, each with a batch
            dimension of 1; returns one number.
        clips: the largest l2 norm of an example's gradient, above 0; or one for each group.
        grid: number of units in the total clip, the root of the sum of the squared clips.
        microbatch: number of examples that go through the model together. 1 makes them independent
            of each other, and works with layers that `torch.func.vmap` does not know.
        groups: names of parameters, or of modules that have them, by group. Each group is clipped
            by itself. "layers" makes each module with parameters of its own a group.
        dtype: ``torch.bfloat16`` or ``torch.float16`` runs the forward pass in mixed precision.
        compiled: clip by kernels of `torch.compile`, which needs a compiler.
    """

    def __init__(
        self,
        model: Module,
        loss: Loss,
        *,
        clips: float | Fraction | str | Mapping[str, float | Fraction | str],
        grid: int,
        microbatch: int,
        groups: Groups | str | None = None,
        dtype: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        check_module(model)
        self._model, self._loss = model, loss
        reduction = getattr(loss, "reduction", "mean")
        if reduction not in ("mean", "sum"):
            raise ValueError(
                f"loss has reduction={reduction!r}; it must return one number for one example: use "
                "reduction='mean' or 'sum', which are the same for one example"
            )
        if dtype not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"dtype = {dtype} must be torch.bfloat16, torch.float16, or None")
        self.dtype, self._compiled = dtype, compiled
        self._rows = check.integer("microbatch", microbatch, 1)
        self.parameters = {
            k: p for k, p in model.named_parameters() if p.requires_grad and p.numel()
        }
        self.device = next(iter(self.parameters.values())).device
        self.size = sum(p.numel() for p in self.parameters.values())
        if not 0 < self.size <= MOST_SIZE:
            raise ValueError(f"model has {self.size} parameters to train; 1 to {MOST_SIZE} can")
        self._groups = _group_names(model, self.parameters, groups)
        self.grid = check.integer("grid", grid, 1)
        exact = _clips(clips, list(self._groups))
        self.clip = sqrt(sum(x * x for x in exact))
        self._most = self._group_grids(exact)
        self._batched = vmap(grad(self._one_loss), in_dims=(None, None, 0), randomness="different")

    @property
    def assumption(self) -> str | None:
        """Return the sentence that a receipt must state, or None if there is none."""
        if self._rows == 1:
            return None
        return (
            f"The gradient of an example in a microbatch of {self._rows} examples of one fixed "
            "shape does not depend on the values or the order of the other examples."
        )

    def check(self, rows: tuple[Tensor, ...]) -> None:
        """Refuse what cannot train, by a dry run on rows of zeros; nothing reads the data.

        Args:
            rows: as in `sum`; only their shapes, types, and devices are used.

        Raises:
            ValueError: a tensor is on another device than the model, the lengths differ, the model
                or the loss fails on rows of zeros, or a buffer of the model changes.
        """
        if len(rows) < 2 or len({len(x) for x in rows}) != 1:
            raise ValueError(
                f"data has {len(rows)} tensors of lengths {[len(x) for x in rows]}; it must have "
                "the inputs of the model and the target last, of one length"
            )
        for x in rows:
            if x.device != self.device:
                raise ValueError(
                    f"data is on {x.device} and model on {self.device}; move one: "
                    f"x.to({str(self.device)!r})"
                )
        dummy = tuple(x.new_zeros(self._rows, *x.shape[1:]) for x in rows)
        with fixed_kernels(self.device), torch.random.fork_rng(_cuda(self.device)):
            if failure := self._failure(dummy):
                raise ValueError(failure)

    def _failure(self, rows: tuple[Tensor, ...]) -> str:
        """Return why the model cannot train on such rows, or an empty text."""
        inside: list[str] = []
        hooks = []
        for name, layer in self._model.named_modules():
            words = f"at layer {name or 'itself'!r}, a {type(layer).__name__}"
            hooks.append(layer.register_forward_pre_hook(lambda *_, w=words: inside.append(w)))
            hooks.append(layer.register_forward_hook(lambda *_: inside.pop() and None))
        try:
            self._gradients(rows)
        except Exception as error:
            text, place = str(error), inside[-1] if inside else "in the loss"
        else:
            return ""
        finally:
            for hook in hooks:
                hook.remove()
        if self._rows == 1:
            return f"model fails {place}, on a row of zeros: {text}"
        reason = next((words for sign, words in REASONS.items() if sign in text), text)
        return (
            f"model fails {place}, in a microbatch of {self._rows} examples on rows of zeros: "
            f"{reason}. Try microbatch=1, which computes one example per call without "
            "torch.func.vmap, or replace it"
        )

    def sum(self, rows: tuple[Tensor, ...]) -> Tensor:
        """Return the int64 sum of the clipped gradients of all rows, in units of clip / grid.

        If a row comes or goes, the sum changes by a vector of l2 norm at most ``grid``. A row with
        a gradient that is not finite counts as 0.

        Args:
            rows: the inputs of the model, and the target last; examples are dimension 0.
        """
        count = len(rows[0])
        if count > MOST_ROWS:
            raise ValueError(f"rows has {count} rows; a sum has at most {MOST_ROWS}")
        totals = {
            name: torch.zeros(p.numel(), dtype=torch.float64, device=self.device)
            for name, p in self.parameters.items()
        }
        with fixed_kernels(self.device), fresh_randomness(self.device):
            for start in range(0, count, self._rows):
                self._add(totals, tuple(x[start : start + self._rows] for x in rows))
        return torch.cat(list(totals.values())).to(torch.int64)

    def _add(self, totals: Mapping[str, Tensor], rows: tuple[Tensor, ...]) -> None:
        gradients = self._gradients(_filled(rows, self._rows))
        weights = (torch.arange(self._rows, device=self.device) < len(rows[0])).double()
        for names, most in zip(self._groups.values(), self._most, strict=True):
            parts = [Part(_flat(gradients[name]), totals[name]) for name in names]
            add_clipped(parts, weights, self.grid / self.clip, most, compiled=self._compiled)

    def _gradients(self, rows: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """Return one gradient per example for each parameter."""
        state = {k: p.detach() for k, p in self.parameters.items()}
        if self._rows > 1:
            return self._batched(state, self._others(), rows)
        state = {k: p.requires_grad_() for k, p in state.items()}
        value = self._one_loss(state, self._others(), tuple(x[0] for x in rows))
        found = torch.autograd.grad(value, list(state.values()), allow_unused=True)
        return {
            k: (torch.zeros_like(p) if g is None else g)[None]
            for (k, p), g in zip(state.items(), found, strict=True)
        }

    def _others(self) -> dict[str, Tensor]:
        """Return frozen parameters, and copies of buffers."""
        frozen = {k: p for k, p in self._model.named_parameters() if not p.requires_grad}
        return frozen | {k: b.clone() for k, b in self._model.named_buffers()}

    def _one_loss(
        self, state: dict[str, Tensor], others: dict[str, Tensor], row: tuple[Tensor, ...]
    ) -> Tensor:
        given = tuple(x[None] for x in row)
        mixed = torch.autocast(self.device.type, self.dtype) if self.dtype else nullcontext()
        with mixed:
            output = functional_call(self._model, (state, others), given[:-1])
            value = self._loss(output, given[-1])
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(
                f"loss returned {getattr(value, 'shape', type(value).__name__)} for one example; "
                "it must return one number: use reduction='mean' or 'sum', which are the same "
                "for one example"
            )
        return value.reshape(())

    def _group_grids(self, clips: Sequence[Fraction]) -> list[int]:
        """Return whole units per group whose squares add up to at most the squared grid [TR-7]."""
        total = sum(x * x for x in clips)
        found: list[int] = []
        for (group, names), clip in zip(self._groups.items(), clips, strict=True):
            units = isqrt(self.grid**2 * clip**2 // total)
            size = sum(self.parameters[name].numel() for name in names)
            if not 4 * size**0.5 + 4 <= units <= MOST_GRID:
                raise ValueError(
                    f"grid = {self.grid} leaves {units} units for the {size} parameters of "
                    f"group {group!r}; it must leave {4 * isqrt(size) + 8} to {MOST_GRID}: a "
                    "coarser grid loses the gradient to rounding"
                )
            found.append(units)
        return found


@contextmanager
def fixed_kernels(device: torch.device) -> Generator[None]:
    """Use kernels that repeat their results: no TF32, no search for kernels, plain attention."""
    backends = torch.backends
    settings = [
        (backends.cuda.matmul, "fp32_precision", "ieee"),
        (backends.cudnn.conv, "fp32_precision", "ieee"),
        (backends.cudnn.rnn, "fp32_precision", "ieee"),
        (backends.mkldnn.matmul, "fp32_precision", "ieee"),
        (backends.mkldnn.conv, "fp32_precision", "ieee"),
        (backends.mkldnn.rnn, "fp32_precision", "ieee"),
        (backends.cudnn, "benchmark", False),
        (backends.cudnn, "deterministic", True),
        (backends.mkldnn, "deterministic", True),
        (backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
        (backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    ]
    former = [getattr(owner, name) for owner, name, _ in settings]
    strict, warn = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    if device.type == "cuda":  # cuBLAS is deterministic with a workspace of fixed size only
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        for owner, name, value in settings:
            setattr(owner, name, value)
        torch.use_deterministic_algorithms(True)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warn)
        for (owner, name, _), value in zip(settings, former, strict=True):
            setattr(owner, name, value)


@contextmanager
def fresh_randomness(device: torch.device) -> Generator[None]:
    """Draw dropout from a seed of the operating system, and restore torch's generators.

    The masks of other rows shift if a row comes or goes. Nobody may know them [TR-8].
    """
    with torch.random.fork_rng(_cuda(device)):
        torch.manual_seed(secrets.randbits(63))
        yield


def _cuda(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []


def _filled(rows: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    missing = count - len(rows[0])
    if not missing:
        return rows
    return tuple(torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) for x in rows)


def _flat(gradient: Tensor) -> Tensor:
    """Return one row per example, in float32, or in float64 if the gradient is."""
    rows = gradient.reshape(len(gradient), -1)
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def _clips(
    clips: float | Fraction | str | Mapping[str, float | Fraction | str], groups: Sequence[str]
) -> list[Fraction]:
    """Return one exact clip per group; one number is shared out equally."""
    if isinstance(clips, Mapping):
        if set(clips) != set(groups):
            raise ValueError(f"clips has {sorted(clips)}; the groups are {sorted(groups)}")
        given = [clips[group] for group in groups]
    else:
        given = [clips] * len(groups)
    exact = [check.exact("clips", x) for x in given]
    if min(exact) <= 0:
        raise ValueError(f"clips = {clips!r} must be above 0")
    return exact


def _group_names(
    model: Module, parameters: Mapping[str, Tensor], groups: Groups | str | None
) -> dict[str, list[str]]:
    """Return the names of the parameters of each group; each is in one group."""
    if groups is None:
        return {"all": list(parameters)}
    if groups == "layers":
        found: dict[str, list[str]] = {}
        for name in parameters:
            found.setdefault(name.rpartition(".")[0] or "model", []).append(name)
        return found
    if isinstance(groups, str):
        raise ValueError(f"groups = {groups!r} must be 'layers', or names by group")
    result = {
        group: [p for p in parameters if any(p == n or p.startswith(n + ".") for n in names)]
        for group, names in groups.items()
    }
    placed = [name for names in result.values() for name in names]
    for name in parameters:
        if placed.count(name) != 1:
            raise ValueError(
                f"groups has parameter {name!r} {placed.count(name)} times; each parameter that "
                "trains must be in one group"
            )
    if empty := [group for group, names in result.items() if not names]:
        raise ValueError(f"groups has no parameter in {empty}")
    return result
