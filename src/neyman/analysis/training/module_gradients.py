"""Sum clipped gradients of a `torch.nn.Module`, one gradient per example.

The gradient of each example is a function of its row and of the parameters. Rows go through the
model in microbatches of one fixed shape. Dummy rows of zeros, with weight 0, fill the last
microbatch.
"""

# torch is optional, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import logging
import os
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain
from math import isqrt
from operator import eq, is_
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import CrossEntropyLoss, Embedding, LayerNorm, Module, NLLLoss
from torch.nn.attention import SDPBackend, sdpa_kernel

from neyman.accounting.integrations.invented_rows import (
    LOST,
    changes,
    invented,
    largest_numbers,
    state_of,
    tried_reals,
)
from neyman.accounting.integrations.step_accountant import check_model
from neyman.analysis.training.clipping import LIMITS as CLIPPING_LIMITS
from neyman.analysis.training.layer_factors import (
    ConvolutionFactors,
    EmbeddingFactors,
    Factors,
    factors_of,
)
from neyman.analysis.training.row_sums import (
    LIMITS,
    Product,
    Written,
    add_rows,
    fine_bits,
    flat_rows,
    join,
    wide,
)
from neyman.analysis.training.training_plan import Clip, Groups, TrainingPlan

_log = logging.getLogger(__name__)

WRAPPERS = {
    "OptimizedModule": "model._orig_mod",
    "DataParallel": "model.module",
    "DistributedDataParallel": "model.module",
    "FullyShardedDataParallel": "the one before it was wrapped, which has whole parameters",
}
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
# Phrases in torch's messages, and their meaning.
REASONS = {
    ".item()": "it reads a number of a tensor, as .item() and float() do",
    "data-dependent control flow": "it decides by the value of a tensor, as `if x.sum() > 0` does",
    "Batching rule not implemented": "torch.func.vmap does not know it",
}

HELD = [name for name, x in vars(Module()).items() if isinstance(x, dict)]  # tensors, layers, hooks
TWISTER_WORDS = 624


Loss = Callable[..., Tensor]
Result = TypeVar("Result")


def check_module(model: Module) -> None:
    """Refuse a model whose gradient for one example depends on other examples, or that stores data.

    Raises:
        TypeError: ``model`` is not a ``torch.nn.Module``.
        ValueError: a layer mixes examples or stores data without noise, no parameter trains, or the
            model is wrapped or on several devices.
    """
    if not isinstance(model, Module):
        raise TypeError(f"model = {model!r} must be a torch.nn.Module")
    if (kind := type(model).__name__) in WRAPPERS:
        raise ValueError(f"model is wrapped in {kind}; give the model itself: {WRAPPERS[kind]}")
    if any(type(p).__name__ == "DTensor" for p in model.parameters()):
        raise ValueError(
            "model has parameters that are split over processes, as fully_shard splits them, and "
            "the norm of a row's gradient needs all of them. Give the model before it is split. "
            "To save memory, freeze layers, or use a smaller microbatch"
        )
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
    if kinds := {p.dtype for p in trained if not p.is_floating_point()}:
        raise ValueError(f"model has parameters of {kinds.pop()}; split them into real numbers")
    places = sorted({str(p.device) for p in (*model.parameters(), *model.buffers())})
    if len(places) > 1:
        raise ValueError(f"model is on {', '.join(places)}; move it to one device: model.to(...)")
    if (kind := torch.device(places[0]).type) not in ("cpu", "cuda"):
        raise ValueError(
            f"model is on {kind}; secret seeds and fixed kernels are known for cpu and cuda: "
            "model.to('cpu')"
        )


class ModuleGradients:
    """Compute clipped, rounded gradients of single examples, and add them up in integers.

    Args:
        model: the model, in the mode (train or eval) in which it trains.
        loss: a function of the model's output and the target of one example, each with a batch
            dimension of 1. It returns one number.
        plan: the clip, groups, precision, and microbatch; see `TrainingPlan`.

    ``totals`` holds the sum of the added rows by parameter, in whole numbers.
    """

    def __init__(self, model: Module, loss: Loss, plan: TrainingPlan) -> None:
        check_module(model)
        self._model, self._loss = model, loss
        reduction = getattr(loss, "reduction", "mean")
        if reduction not in ("mean", "sum"):
            raise ValueError(
                f"loss has reduction={reduction!r}; it must return one number for one example: use "
                "reduction='mean' or 'sum'"
            )
        divides = isinstance(loss, (CrossEntropyLoss, NLLLoss)) and reduction == "mean"
        if divides and getattr(loss, "weight", None) is not None:
            raise ValueError(
                "loss has weight= and reduction='mean', which divides by the weights of one "
                "example, so they have no effect: use reduction='sum'"
            )
        self.dtype = None if plan.autocast is None else getattr(torch, plan.autocast)
        self._compiled, self._mechanism = plan.compiled, plan.mechanism
        self._processes = plan.processes
        self.parameters = {
            k: p for k, p in model.named_parameters() if p.requires_grad and p.numel()
        }
        self.device = next(iter(self.parameters.values())).device
        self.size = sum(p.numel() for p in self.parameters.values())
        if not 0 < self.size <= CLIPPING_LIMITS.parameters:
            raise ValueError(
                f"model has {self.size} parameters to train; 1 to {CLIPPING_LIMITS.parameters} can"
            )
        # After a charge, the model is never asked for these: a row may have changed its answer.
        parts: list[Any] = [x for x in (model, loss) if isinstance(x, Module)]
        self._all_layers: list[Module] = [layer for part in parts for layer in part.modules()]
        self._frozen = {k: p for k, p in model.named_parameters() if not p.requires_grad}
        self._buffers = dict(model.named_buffers())
        self._groups = _group_names(model, self.parameters, plan.groups)
        self.grid, self.clip = plan.grid, float(plan.norm)
        exact = _clips(plan.clip, list(self._groups))
        self._most = self._group_grids(exact)
        self._batched = vmap(
            grad(self._one_loss, argnums=(0, 1), has_aux=True),
            in_dims=(None, None, None, 0, None),
            randomness="different",
        )
        self._layers = _tap_layers(model, self.parameters)
        self.microbatch = plan.microbatch or 0  # 0: `check` chooses it
        self._taps: dict[tuple[torch.Size, ...], list[tuple[str, Tensor]]] = {}
        self.totals, self._count = self._zeros(), 0
        self.names: tuple[str, ...] = ()  # of the tensors of a row that is a dict
        self._written = ""  # a parameter or buffer that a forward pass wrote to
        self._checked = False

    def check(self, rows: tuple[Tensor, ...]) -> None:
        """Refuse a model that cannot train, by dry runs on zeros and on invented rows.

        Args:
            rows: rows as in `sum`. Only their shapes, types, and devices are used.

        Raises:
            ValueError: a tensor is on another device than the model, the lengths differ, the model
                or the loss fails on rows of zeros, or one of them keeps something about a row.
        """
        _row_count(rows, 1 if self.names else 2)
        for x in rows:
            if x.device != self.device:
                raise ValueError(
                    f"data is on {x.device} and model on {self.device}; move one: "
                    f"x.to({str(self.device)!r})"
                )
        with self._deterministic_context():
            if not self.microbatch:
                # A model that fails on one row is reported below.
                self.microbatch = _unless_failed(partial(self._fitting_rows, rows)) or 2
            if failure := self._failure(rows):
                raise ValueError(failure)
        self._checked = True

    def _fitting_rows(self, rows: tuple[Tensor, ...]) -> int:
        """Return the number of rows of a microbatch: a batch, or equal pieces of one that fit.

        It follows from the size of all memory, and not from the memory that is free, because the
        data may take a secret part of it. A Poisson batch of usual size is one microbatch.
        """
        batch = self._mechanism.batch
        if self._mechanism.neighboring == "add-remove":
            batch += 2 * isqrt(batch)
        calls = self._dry_taps(rows)
        taken = {k for name, _ in calls for k in self._layers[name].names}
        numbers = sum(p.numel() for k, p in self.parameters.items() if k not in taken)
        for name, tap in calls:
            factors = self._layers[name].factors
            numbers += tap.numel() // factors.shape[0] * sum(factors.shape)
        if self.device.type == "cuda":
            memory = torch.cuda.mem_get_info(self.device)[1]
        else:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        # A number has some copies, of up to 8 bytes each, and half of the memory is for others.
        pieces = max(-(-batch * numbers * 64 // (memory // 2)), self._processes)
        # Kernels of CPUs treat the last rows of other sizes in other ways.
        return -(-batch // pieces // 32) * 32

    @property
    def _bits(self) -> int:
        """Return the number of bits of a total below a grid unit."""
        return fine_bits(self.grid, self.microbatch)

    def _failure(self, rows: tuple[Tensor, ...]) -> str:
        """Return why the model cannot train on rows of these shapes, or ""."""
        inside: list[str] = []
        hooks = []
        for name, layer in self._model.named_modules():
            words = f"at layer {name or 'itself'!r}, a {type(layer).__name__}"
            hooks.append(layer.register_forward_pre_hook(lambda *_, w=words: inside.append(w)))
            hooks.append(layer.register_forward_hook(lambda *_: inside.pop() and None))
        zeros = tuple(x.new_zeros(self.microbatch, *x.shape[1:]) for x in rows)
        try:
            self._add(self._zeros(), zeros, self._padded_gradients(zeros))
            direct = self._direct_use(zeros)
        except Exception as error:
            text, place, direct = str(error), inside[-1] if inside else "in the loss", ""
        else:
            text = place = ""
        finally:
            for hook in hooks:
                hook.remove()
        if not place:
            return direct or self._leak(zeros)
        if self.microbatch == 1 or "deterministic" in text:
            return f"model fails {place}, on a row of zeros, so replace it: {text}"
        if leak := self._leak(zeros):
            return leak
        if alone := self._alone()._failure(rows):
            return alone
        reason = next((words for sign, words in REASONS.items() if sign in text), text)
        return (
            f"model fails {place}, in a microbatch of {self.microbatch} examples on rows of zeros: "
            f"{reason}. Try microbatch=1, which computes one example per call without "
            "torch.func.vmap, or replace it"
        )

    def _alone(self) -> ModuleGradients:
        """Return gradients of the same model with one example per call."""
        alone = copy(self)
        alone.microbatch, alone._taps = 1, {}
        return alone

    def _leak(self, zeros: tuple[Tensor, ...]) -> str:
        """Return a text if the model or the loss keeps something about invented rows, else "".

        A first run on zeros may fill caches that depend on shapes alone.
        """
        before = state_of(self._model, self._loss)
        # Try each kind of invented rows several times, to see if the model keeps something of them.
        for reals in tried_reals(self.device) * 4:
            for largest in largest_numbers(self._model, self.device):
                rows = tuple(invented(x, self.microbatch, largest, reals=reals) for x in zeros)
                with suppress(Exception):  # an invented number may be no class
                    self._padded_gradients(rows)
                    break
            after = state_of(self._model, self._loss)  # the next draw may write the same again
            lost = [name for name, digest in after.items() if digest.startswith(LOST)]
            if written := [*filter(None, [self._written]), *changes(before, after), *lost]:
                return (
                    f"model or loss writes to {written[0]!r} in its forward pass, which would keep "
                    "data without noise: remove that, or train in eval mode if it only writes in "
                    "train mode"
                )
        return ""

    def _direct_use(self, rows: tuple[Tensor, ...]) -> str:
        """Return a text if the loss uses a parameter directly, so its gradient would be lost.

        Else return "".
        """
        state = {k: p.detach() for k, p in self.parameters.items()}
        row = tuple(x[0] for x in rows)
        with self._precision():
            value, _ = self._one_loss(state, [], self._others(), row, _Taps({}))
            used = _gradient(value, list(self.parameters.values()))
        for name, gradient in zip(self.parameters, used, strict=True):
            if gradient is not None:
                return (
                    f"loss, or a list in the model, uses the parameter {name!r} itself, whose "
                    "gradient would be lost: use what the model returns. For a penalty on "
                    "parameters give the optimizer weight_decay"
                )
        return ""

    def add(self, rows: tuple[Tensor, ...]) -> None:
        """Add the clipped gradients of rows to the sum. An error begins a new sum.

        A row with a gradient that is not finite counts as 0.

        Args:
            rows: the inputs of the model, with the target last. Dimension 0 is the example.
        """
        count = _row_count(rows, 1 if self.names else 2)
        self._count += count
        self.check_count(self._count)
        if not self._checked:
            self.check(rows)
        try:
            with self._deterministic_context() as restore:
                for start in range(0, count, self.microbatch):
                    part = tuple(x[start : start + self.microbatch] for x in rows)
                    self._add_rows(self.totals, part, restore)
        except BaseException:
            self.totals, self._count = self._zeros(), 0  # no row is added twice
            raise

    @property
    def most_rows(self) -> int:
        """Return the largest number of rows in one exact sum."""
        return LIMITS.summed_rows

    def check_count(self, rows: int) -> None:
        """Refuse a sum of more rows than is exact."""
        if rows > self.most_rows:
            raise ValueError(f"a sum has {rows} rows; it has {self.most_rows} at most")

    def take(self) -> Tensor:
        """Return the int64 sum in units of clip / grid, rounded once, and begin the next one.

        If a row is added or removed, the sum changes by a vector of l2 norm at most ``grid``.
        """
        totals, self.totals, self._count = self.totals, self._zeros(), 0
        bits = self._bits
        return torch.cat([(x.reshape(-1) + (1 << bits >> 1)) >> bits for x in totals.values()])

    def sum(self, rows: tuple[Tensor, ...]) -> Tensor:
        """Return the sum of the clipped gradients of these rows alone; see `take`."""
        self.add(rows)
        return self.take()

    @contextmanager
    def _deterministic_context(self) -> Generator[Callable[[], None]]:
        """Within this context, fix kernels, seed dropout, and allow derivatives.

        The function that it gives restores the parameters that train, which an optimizer moves, and
        the attributes of all layers.
        """
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            fixed_kernels(self.device),
            fresh_randomness(self.device),
        ):
            copies = [
                (p, p.data, p.untyped_storage().nbytes(), p.detach().clone())
                for p in self.parameters.values()
            ]
            attributes = _Attributes(self._all_layers)

            def restore() -> None:
                attributes.restore()
                for parameter, place, size, values in copies:
                    if place.untyped_storage().nbytes() != size:
                        place.untyped_storage().resize_(size)
                    parameter.data = place
                    place.copy_(values)
                for parameter in self._frozen.values():
                    parameter.grad = None  # set by the model: an optimizer would use it

            try:
                yield restore
            finally:
                restore()

    def _zeros(self) -> dict[str, Tensor]:
        """Return a total for each parameter, in units of 2^-bits of a grid unit."""
        with torch.inference_mode(False):  # otherwise no later sum could be added
            return {k: torch.zeros_like(p, dtype=torch.int64) for k, p in self.parameters.items()}

    def _add_rows(
        self, totals: Mapping[str, Tensor], rows: tuple[Tensor, ...], restore: Callable[[], None]
    ) -> None:
        """Add rows. A row on which the model or the loss raises an error counts as 0.

        Raises:
            Exception: the sum of several rows failed, which no single row decides.
        """
        gradients = _unless_failed(partial(self._padded_gradients, rows))
        restore()
        if gradients is not None and len(rows[0]) == 1:
            _unless_failed(partial(self._add, totals, rows, gradients))
        elif gradients is not None:
            self._add(totals, rows, gradients)  # counted as 0, the other rows would be lost, too
        elif len(rows[0]) > 1:
            for row in zip(*(x.split(1) for x in rows), strict=True):
                self._add_rows(totals, row, restore)

    def _padded_gradients(self, rows: tuple[Tensor, ...]) -> dict[str, list[Tensor]]:
        with torch.enable_grad(), self._precision():  # an earlier row may have ended the outer one
            return self._gradients(_pad_rows(rows, self.microbatch))

    def _add(
        self,
        totals: Mapping[str, Tensor],
        rows: tuple[Tensor, ...],
        gradients: Mapping[str, list[Tensor]],
    ) -> None:
        weights = (torch.arange(self.microbatch, device=self.device) < len(rows[0])).double()
        scale = self.grid / self.clip
        calls, rest = self._split(gradients)
        for names, most in zip(self._groups.values(), self._most, strict=True):
            sums = {k: torch.zeros_like(totals[k], dtype=torch.float64) for k in names}
            written = [Written(rest[k], sums[k].view(-1)) for k in names if k in rest]
            products = [
                Product(layer.factors, calls[k], sums.get(k), sums.get(layer.bias))
                for k, layer in self._layers.items()
                if k in calls and not sums.keys().isdisjoint((k, layer.bias))
            ]
            if written or products:  # a layer may have no call
                add_rows(written, products, weights, scale, most, self._bits, self._compiled)
            for part in written:
                part.total.mul_(1 << self._bits)
            for k in names:
                totals[k].add_(sums[k].to(torch.int64))

    def _split(
        self, gradients: Mapping[str, list[Tensor]]
    ) -> tuple[dict[str, list[tuple[Tensor, Tensor]]], dict[str, Tensor]]:
        """Return the calls of layers with products, and all other gradients, written out."""
        calls: dict[str, list[tuple[Tensor, Tensor]]] = {}
        written: dict[str, Tensor] = {}
        for name, values in gradients.items():
            layer = self._layers.get(name)
            if layer is None or len(values) == 1:
                written[name] = flat_rows(values[0])
                continue
            pairs = [(x, g) for g, x in zip(values[::2], values[1::2], strict=True)]
            lines = [layer.factors.lines(wide(g)) for _, g in pairs]
            if self._is_product(layer.factors, sum(x.shape[1] for x in lines)):
                calls[name] = pairs
                continue
            columns = [layer.factors.columns(x) for x, _ in pairs]
            line, column = join(lines), join(columns).to(lines[0].dtype)
            written[name] = layer.factors.gradient(line.mT @ column).flatten(1)
            if layer.bias:
                written[layer.bias] = line.sum(1)
        return calls, written

    def _is_product(self, factors: Factors, places: int) -> bool:
        """Return True if the gradients of a layer are never written out."""
        return factors.fits(places) and (
            not self._compiled or isinstance(factors, EmbeddingFactors)
        )

    def _gradients(self, rows: tuple[Tensor, ...]) -> dict[str, list[Tensor]]:
        """Return the gradients of each example by parameter.

        For a layer with taps (see `_Taps`), return two tensors per call: the gradient of the
        layer's output, and its input.
        """
        calls = self._dry_taps(rows)
        names = {name for name, _ in calls}
        tapped = {k for name in names for k in self._layers[name].names}
        state = {k: p.detach() for k, p in self.parameters.items() if k not in tapped}
        others = self._others() | {k: self.parameters[k].detach() for k in tapped}
        tensors = state | others
        versions = [x._version for x in tensors.values()]
        if self.microbatch > 1:
            taps = self._new_taps(names, [tap for _, tap in calls])
            # A copy of a bias would be added in 32 bits.
            small = self.dtype is None and all(p.ndim < 2 for p in state.values())
            run = self._by_copies if small else self._batched
            (gradients, outputs), inputs = run(state, taps.zeros, others, rows, taps)
        else:
            taps = self._new_taps(names)
            gradients, outputs = self._example_gradient(
                state, others, tuple(x[0] for x in rows), taps
            )
            inputs = [x.detach()[None] for x in taps.inputs]
        for (name, x), version in zip(tensors.items(), versions, strict=True):
            if x._version != version:
                self._written = name
        result = {name: [rows] for name, rows in gradients.items()}
        for name, *pair in zip(taps.names, outputs, inputs, strict=True):
            result.setdefault(name, []).extend(pair)
        return result

    def _by_copies(
        self,
        state: dict[str, Tensor],
        zeros: list[Tensor],
        others: dict[str, Tensor],
        rows: tuple[Tensor, ...],
        taps: _Taps,
    ) -> tuple[tuple[dict[str, Tensor], list[Tensor]], list[Tensor]]:
        """Return what ``_batched`` returns, with one copy of the parameters per example.

        Only the forward pass uses vmap. This is faster if the parameters are small.
        """
        copies = {k: p.expand(self.microbatch, *p.shape).requires_grad_() for k, p in state.items()}
        own = [x.expand(self.microbatch, *x.shape).requires_grad_() for x in zeros]
        values, inputs = vmap(
            lambda copy, tap, row: self._one_loss(copy, tap, others, row, taps),
            randomness="different",
        )(copies, own, rows)
        wanted = [*copies.values(), *own]
        gradients = [
            torch.zeros_like(x) if y is None else y
            for x, y in zip(wanted, _gradient(values.sum(), wanted), strict=True)
        ]
        by_name = dict(zip(copies, gradients, strict=False))
        return (by_name, gradients[len(copies) :]), [x.detach() for x in inputs]

    def _example_gradient(
        self,
        state: dict[str, Tensor],
        others: dict[str, Tensor],
        row: tuple[Tensor, ...],
        taps: _Taps,
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the gradients of one example, without vmap."""
        given = {k: p.requires_grad_() for k, p in state.items()}
        value, _ = self._one_loss(given, [], others, row, taps)
        inputs = [*given.values(), *taps.zeros]
        gradients = _gradient(value, inputs)
        full = [
            (torch.zeros_like(x) if y is None else y.to_dense())[None]
            for x, y in zip(inputs, gradients, strict=True)
        ]
        return dict(zip(given, full, strict=False)), full[len(given) :]

    def _dry_taps(self, rows: tuple[Tensor, ...]) -> list[tuple[str, Tensor]]:
        """Return the weight's name, and zeros like the output, for each call of a layer with a tap.

        A dry run on a row of zeros lists the calls. A layer has no tap if its weight is also used
        elsewhere, as in a tied output layer, or for some large convolutions.
        """
        key = tuple(x.shape[1:] for x in rows)
        if not self._layers or key in self._taps:
            return self._taps.get(key, [])
        own = {k: self.parameters[k] for x in self._layers.values() for k in x.names}
        own = {k: p.detach().requires_grad_() for k, p in own.items()}
        state = {k: p.detach() for k, p in self.parameters.items()} | own
        taps = self._new_taps(self._layers, detached=True)
        row = tuple(x.new_zeros(x.shape[1:]) for x in rows)
        with self._precision():
            value, _ = self._one_loss(state, [], self._others(), row, taps)
            used = _gradient(value, list(own.values()))
        also = {k for k, g in zip(own, used, strict=True) if g is not None}
        pairs = [(k, x.detach()) for k, x in zip(taps.names, taps.zeros, strict=True)]
        also |= self._large_patches(pairs)
        dense = {k for k, layer in self._layers.items() if not also.isdisjoint(layer.names)}
        self._taps[key] = [(name, tap) for name, tap in pairs if name not in dense]
        return self._taps[key]

    def _large_patches(self, calls: Sequence[tuple[str, Tensor]]) -> set[str]:
        """Return the convolutions whose gradients torch writes out with less memory."""
        places: Counter[str] = Counter()
        for name, tap in calls:
            places[name] += self._layers[name].factors.lines(tap[None]).shape[1]
        return {
            name
            for name, count in places.items()
            if isinstance(factors := self._layers[name].factors, ConvolutionFactors)
            and count * factors.shape[1] > (1 << 14)  # largest size of all patches of a row
            and not self._is_product(factors, count)
        }

    def _new_taps(
        self, names: Iterable[str], *zeros: list[Tensor], detached: bool = False
    ) -> _Taps:
        return _Taps({self._layers[k].layer: k for k in names}, *zeros, detached=detached)

    @contextmanager
    def _precision(self) -> Generator[None]:
        """Within this context, use mixed precision if ``dtype`` is set.

        Under vmap on a CPU, a layer norm has no gradient in 16 bits, so it runs in 32 bits.
        """
        if self.dtype is None:
            yield
            return
        handles = [
            layer.register_forward_pre_hook(lambda _, given: tuple(x.float() for x in given))
            for layer in self._all_layers
            if isinstance(layer, LayerNorm)
        ]
        try:
            with torch.autocast(self.device.type, self.dtype):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _others(self) -> dict[str, Tensor]:
        """Return the model's frozen parameters, and copies of its buffers, by name."""
        frozen = {k: p.detach() for k, p in self._frozen.items()}
        return frozen | {k: b.detach().clone() for k, b in self._buffers.items()}

    def _one_loss(
        self,
        state: dict[str, Tensor],
        zeros: list[Tensor],
        others: dict[str, Tensor],
        row: tuple[Tensor, ...],
        taps: _Taps,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of one example, and the inputs of layers with taps."""
        given = tuple(x[None] for x in row)
        named = dict(zip(self.names, given, strict=True)) if self.names else {}
        inputs, target = ((), named) if named else (given[:-1], given[-1])
        with taps.placed(zeros):
            output = functional_call(self._model, (state, others), inputs, named)
            try:
                value = self._loss(output, target)
            except Exception as error:
                if isinstance(output, Tensor):
                    raise
                raise TypeError(
                    f"model returns a {type(output).__name__}, and the loss cannot use it "
                    f"({error}). Give a loss that takes the tensor out of it, such as "
                    "lambda output, target: cross_entropy(output.logits, target)"
                ) from error
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(
                f"loss returned {getattr(value, 'shape', type(value).__name__)} for one example; "
                "it must return one number: use reduction='mean' or 'sum'"
            )
        return value.reshape(()), taps.inputs

    def _group_grids(self, clips: Sequence[Fraction]) -> list[int]:
        """Return each group's clipping norm in grid units. The squares sum to <= grid^2 [TR-7]."""
        total = sum(x * x for x in clips)
        grids: list[int] = []
        for (group, names), clip in zip(self._groups.items(), clips, strict=True):
            units = isqrt(self.grid**2 * clip**2 // total)
            size = sum(self.parameters[name].numel() for name in names)
            if not 4 * size**0.5 + 4 <= units <= CLIPPING_LIMITS.clip_units:
                raise ValueError(
                    f"grid = {self.grid} leaves {units} units for the {size} parameters of "
                    f"group {group!r}; it must leave {4 * isqrt(size) + 8} to "
                    f"{CLIPPING_LIMITS.clip_units}: a coarser grid loses the gradient to rounding"
                )
            grids.append(units)
        return grids


@contextmanager
def fixed_kernels(device: torch.device) -> Generator[None]:
    """Within this context, use repeatable kernels: no TF32, no autotuning, plain attention."""
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
        (torch.utils.deterministic, "fill_uninitialized_memory", False),
    ]
    former = [getattr(owner, name) for owner, name, _ in settings]
    strict = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    # cuBLAS is deterministic only with a workspace of fixed size.
    absent = device.type == "cuda" and WORKSPACE not in os.environ
    try:
        if absent:
            os.environ[WORKSPACE] = ":4096:8"
        for owner, name, value in settings:
            setattr(owner, name, value)
        torch.use_deterministic_algorithms(True)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        if absent:
            os.environ.pop(WORKSPACE, None)
        torch.use_deterministic_algorithms(strict, warn_only=warn)
        for (owner, name, _), value in zip(settings, former, strict=True):
            setattr(owner, name, value)


@contextmanager
def fresh_randomness(device: torch.device) -> Generator[None]:
    """Within this context, seed dropout from the operating system. Then restore torch's generators.

    If a row is added or removed, other rows get other dropout masks, so the masks must be secret
    [TR-8]. A CPU generator's seed has only 32 bits, which an attacker can try one by one, so its
    entire state is replaced.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index])
    former = [(generator, generator.get_state()) for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(secrets.randbits(63))
        _fill_state(torch.default_generator)
        yield
    finally:
        for generator, state in former:
            generator.set_state(state)


def _fill_state(generator: torch.Generator) -> None:
    """Replace the 624 words of a CPU generator's state, a Mersenne twister, by random words."""
    state = generator.get_state()
    words = state[24 : 24 + 8 * TWISTER_WORDS].view(torch.int64)
    if int(words[0]) != generator.initial_seed() & 0xFFFFFFFF:
        raise RuntimeError("torch has another generator on CPUs: report this with its version")
    fresh = torch.frombuffer(bytearray(os.urandom(4 * TWISTER_WORDS)), dtype=torch.int32)
    words.copy_(fresh.to(torch.int64) & 0xFFFFFFFF)
    generator.set_state(state)


class _Attributes:
    """Keep the classes and attributes of layers, with their parameters, buffers, and hooks."""

    def __init__(self, layers: list[Module]) -> None:
        self._layers = layers
        self._owners = [*map(type, layers), *map(vars, layers)]
        names = [vars(layer) for layer in layers]
        self._held: list[dict[str, Any]] = [x for each in names for x in (each, *_own(each))]
        self._contents = [each.copy() for each in self._held]
        self._all = [*chain.from_iterable(map(dict.values, self._held))]

    def restore(self) -> None:
        """Restore what has changed. Mostly nothing has, so this is compared first."""
        owners = [*map(type, self._layers), *map(vars, self._layers)]
        now = [*chain.from_iterable(map(dict.values, self._held))]
        if (
            all(map(is_, owners, self._owners))
            and len(now) == len(self._all)
            and all(map(is_, now, self._all))
            and all(map(eq, map(dict.keys, self._held), map(dict.keys, self._contents)))
        ):
            return
        count = len(self._layers)
        for layer, kind, names in zip(
            self._layers, self._owners[:count], self._owners[count:], strict=True
        ):
            object.__setattr__(layer, "__class__", kind)
            object.__setattr__(layer, "__dict__", names)
        for each, content in zip(self._held, self._contents, strict=True):
            each.clear()
            each.update(content)


def _own(names: dict[str, Any]) -> list[dict[str, Any]]:
    return [names[name] for name in HELD]


def _unless_failed(function: Callable[[], Result]) -> Result | None:
    """Return the result of a function, or None if it raises anything but KeyboardInterrupt.

    No row may end a charged run, not even by SystemExit or MemoryError.
    """
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        _log.debug("the model or the loss failed", exc_info=True)
        return None


def _row_count(rows: tuple[Tensor, ...], least: int) -> int:
    """Return the number of rows. Refuse tensors that are not rows of inputs and targets."""
    if len(rows) < least or len({len(x) for x in rows}) != 1:
        raise ValueError(
            f"data has {len(rows)} tensors of lengths {[len(x) for x in rows]}; it must have "
            "the inputs of the model and the target last, of one length"
        )
    return len(rows[0])


def _pad_rows(rows: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    missing = count - len(rows[0])
    if not missing:
        return rows
    return tuple(torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) for x in rows)


def _gradient(value: Tensor, inputs: list[Tensor]) -> Sequence[Tensor | None]:
    if not value.requires_grad:
        return [None] * len(inputs)
    return torch.autograd.grad(value, inputs, allow_unused=True)


class _Taps:
    """Add taps, tensors of zeros, to layers' outputs. A tap's gradient is the output's gradient.

    Args:
        names: the name of each layer's weight, by layer.
        zeros: one tap per call of a layer, in order. With None, each call makes one.
        detached: if True, no gradient flows from an output to the layer's weight.
    """

    def __init__(
        self,
        names: Mapping[Module, str],
        zeros: list[Tensor] | None = None,
        *,
        detached: bool = False,
    ) -> None:
        self._layers, self._detached, self._fixed = names, detached, zeros is not None
        self.zeros = zeros or []
        self.inputs: list[Tensor] = []
        self.names: list[str] = []

    @contextmanager
    def placed(self, zeros: list[Tensor]) -> Generator[None]:
        """Within this context, add taps: ``zeros``, or new ones if the object has none."""
        self.inputs, self.names = [], []

        def tapped(
            layer: Module, given: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
        ) -> Tensor:
            if not self._fixed:
                self.zeros.append(torch.zeros_like(output).requires_grad_())
            tap = (zeros if self._fixed else self.zeros)[len(self.inputs)]
            self.inputs.append(given[0] if given else named["input"])
            self.names.append(self._layers[layer])
            if isinstance(layer, Embedding) and layer.padding_idx is not None:
                tap = tap * (self.inputs[-1] != layer.padding_idx)[..., None]
            return (output.detach() if self._detached else output) + tap

        handles = [
            layer.register_forward_hook(tapped, prepend=True, with_kwargs=True)
            for layer in self._layers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


@dataclass(frozen=True)
class _Tapped:
    """Hold a layer that can have taps, its factors, and the names of its parameters.

    ``bias`` is "" if the layer has no bias that trains.
    """

    layer: Module
    factors: Factors
    weight: str
    bias: str

    @property
    def names(self) -> list[str]:
        """Return the names of its parameters."""
        return [name for name in (self.weight, self.bias) if name]


def _tap_layers(model: Module, parameters: Mapping[str, Tensor]) -> dict[str, _Tapped]:
    """Return the layers that can have taps, by the name of their weight. No layer shares it."""
    uses = Counter(id(p) for x in model.modules() for p in x.parameters(recurse=False))
    result: dict[str, _Tapped] = {}
    for prefix, layer in model.named_modules():
        weight, bias = (f"{prefix}.{name}".lstrip(".") for name in ("weight", "bias"))
        factors = factors_of(layer)
        own = [parameters[name] for name in (weight, bias) if name in parameters]
        if factors and weight in parameters and all(uses[id(p)] == 1 for p in own):
            result[weight] = _Tapped(layer, factors, weight, bias if bias in parameters else "")
    return result


def _clips(clip: Clip | Mapping[str, Clip], groups: Sequence[str]) -> list[Fraction]:
    """Return one exact clipping norm per group, in the order of ``groups``.

    One number is for every group.
    """
    if not isinstance(clip, Mapping):
        return [Fraction(clip)] * len(groups)
    if set(clip) != set(groups):
        raise ValueError(f"clip has {sorted(clip)}; the groups are {sorted(groups)}")
    return [Fraction(clip[group]) for group in groups]


def _group_names(
    model: Module, parameters: Mapping[str, Tensor], groups: Groups | str | None
) -> dict[str, list[str]]:
    """Return the parameter names of each group. Each parameter is in one group."""
    if groups is None:
        return {"all": list(parameters)}
    if groups == "layers":
        layers: dict[str, list[str]] = {}
        for name in parameters:
            layers.setdefault(name.rpartition(".")[0] or "model", []).append(name)
        return layers
    if not isinstance(groups, Mapping):
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
