"""Register a certified accountant for Opacus under the name "neyman".

After importing this file, ``PrivacyEngine(accountant="neyman")`` and ``get_noise_multiplier(...,
accountant="neyman")`` use the accountant. After ``make_private``, `check_batches` accepts the
proven settings of Opacus, and refuses all others.
"""

# Opacus and torch are no dependencies, so their types are unknown if not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUntypedBaseClass=false, reportUnknownParameterType=false

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

from neyman.accounting.integrations.step_accountant import StepAccountant, StepHook, check_model
from neyman.extras import advice
from neyman.numerics import check

try:
    import torch
    from opacus.accountants import IAccountant, register_accountant
    from opacus.data_loader import CollateFnWithEmpty, DPDataLoader
    from opacus.grad_sample import GradSampleHooks, GradSampleModule
    from opacus.optimizers import DPOptimizer, DPPerLayerOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.utils._pytree import tree_leaves, tree_map
    from torch.utils.data import TensorDataset, default_collate

    from neyman.accounting.integrations.invented_rows import (
        PLAIN,
        changes,
        invented,
        largest_numbers,
        state_of,
        tried_reals,
    )
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(advice(missing), name=missing.name) from None

__all__ = ["NeymanOpacusAccountant", "check_batches", "check_model"]

# Attributes that may have any value. All others have the value that Opacus gives by default.
FREE = {
    "loader": "collate_fn batch_sampler sample_rate dataset num_workers prefetch_factor pin_memory "
    "pin_memory_device timeout worker_init_fn persistent_workers sampler _iterator "
    "_DataLoader__multiprocessing_context _IterableDataset_len_called",
    "loader.collate_fn": "sample_empty_shapes dtypes first_batch",
    "loader.batch_sampler": "num_samples sample_rate steps draws",
    "optimizer": "original_optimizer noise_multiplier max_grad_norm max_grad_norms params "
    "step_hook expected_batch_size loss_reduction _step_skip_queue _is_last_step_skipped pre_step "
    "clip_and_accumulate add_noise step _check_skip_next_step _opt_called",
}

REASONS = {
    "rand_on_empty": "it puts a random row in the place of an empty sample, so a record that joins "
    "moves the sum by up to twice the clipping norm",
    "generator": "a torch.Generator has a seed, and a seed that is known reveals the noise and the "
    "samples",
    "secure_mode": "its generator needs torchcsprng, with which it was not tested",
    "wrapped_collator_fn": "a collate function may mix rows. Prepare rows in the dataset",
    "in_order": "samples must be used in the order in which they are drawn",
    "AdaClipDPOptimizer": "it divides by the actual size of a sample",
    "DPOptimizerFastGradientClipping": "it counts one sample also where gradients of several are "
    "added up",
    "DistributedDPOptimizer": "a worker leaves out empty samples, so records are drawn at another "
    "rate",
    "function": 'it does not count samples. Use PrivacyEngine(accountant="neyman")',
    "NoneType": "it was not given. Give what make_private returned",
    "DataLoader": "Poisson samples are accounted, and shuffled batches have no such amplification. "
    "Use make_private(poisson_sampling=True), or mechanism.batches(rows)",
}
UNPROVEN = "Neyman has no proof for it"

BITS = {torch.float32: 24, torch.float64: 53}  # bits of a uniform number of torch


D = TypeVar("D", bound="OpacusDraws")
Loss = Callable[[Any, Any], Any]  # of the model and a batch of the loader
Piece = tuple[set[int], dict[str, Any]]  # numbers of rows per parameter, and the scheduled values


class MixedRows(ValueError):
    """Report that the gradient of one row depends on the other rows, or that a row is kept."""


class NeymanOpacusAccountant(StepAccountant, IAccountant):
    """Provide `StepAccountant` for Opacus's registry."""


class CountedSampler(UniformWithReplacementSampler):
    """Draw Opacus's Poisson samples, and report each sample's size to an `OpacusDraws`."""

    draws: OpacusDraws

    def __iter__(self) -> Iterator[list[int]]:
        """Return the row numbers of each batch in one pass."""
        return self.draws.batches(self, super().__iter__())


class OpacusDraws:
    """Count the samples that a checked loader drew, and the samples that a step has used."""

    exact = False  # Opacus computes samples, sums, and noise

    def __init__(self, loader: Any, optimizer: Any, module: Any) -> None:
        hook, sampler = optimizer.step_hook, loader.batch_sampler
        self.rate = max(hook.sample_rate, self.chance(sampler.sample_rate))
        self.sizes: deque[int] = deque()  # sizes of samples that no step has used
        self.parts = (loader, optimizer, module)
        self.optimizer: Any = optimizer
        self._settings = _settings(*self.parts)
        self._hook = hook
        self.ahead = loader.num_workers * (loader.prefetch_factor or 0)  # drawn before their use
        self.pieces: list[Piece] = []  # of a sample
        self.lost = 0 if hook.draws is None else hook.draws.unaccounted
        self._passes = 2  # passes that may begin after an unused sample: a first look
        optimizer.pre_step, optimizer.clip_and_accumulate = self.prepare, self.clip
        buffers = module._module.named_buffers()
        self._buffers = {name: x.detach().clone() for name, x in buffers}
        self._sums: dict[int, tuple[Any, int]] = {}  # of this sample, with their versions
        for name in ("add_noise", "_check_skip_next_step"):  # set by earlier draws
            vars(optimizer).pop(name, None)
        sampler.__class__ = CountedSampler
        sampler.draws = hook.draws = self

    @property
    def unaccounted(self) -> int:
        """Return the number of samples that no step accounts for."""
        replaced = self.optimizer.step_hook is not self._hook
        return self.lost + self._excess(0 if replaced else 1)

    @staticmethod
    def chance(rate: float) -> float:
        """Return the probability that torch's uniform random number is below ``rate``."""
        kind = torch.get_default_dtype()
        steps = 2 ** BITS[kind]
        return math.ceil(Fraction(torch.tensor(rate, dtype=kind).item()) * steps) / steps

    def batches(self, sampler: Any, samples: Iterator[list[int]]) -> Iterator[list[int]]:
        """Yield ``samples``, the batches of one pass over the loader, and store their sizes."""
        self.start()
        for rows in samples:
            self.sizes.append(len(rows))
            yield rows

    def prepare(self, closure: Callable[[], float] | None = None) -> bool | None:
        """Drop the gradients of frozen parameters, which get no noise, before a step."""
        optimizer = self.optimizer
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    parameter.grad = None
        return type(optimizer).pre_step(optimizer, closure)

    def clip(self) -> None:
        """Clip and add up gradients as the optimizer's class does, and record their number.

        An infinite or NaN entry counts as 0, because clipping does not bound it.

        Raises:
            ValueError: rounding in the gradients' type moves a sum by more than the norm.
        """
        optimizer = self.optimizer
        for parameter in optimizer.params:
            parts = parameter.grad_sample
            for gradients in parts if isinstance(parts, list) else [parts]:
                if gradients is not None:  # else Opacus raises an error
                    _refuse_gradients(gradients.dtype)
                    gradients.nan_to_num_(0.0, 0.0, 0.0)
        rows = {len(gradients) for gradients in optimizer.grad_samples}
        self._refuse_sums()
        self.pieces.append((rows, scheduled(optimizer)))
        type(optimizer).clip_and_accumulate(optimizer)
        self._keep_sums()

    def _keep_sums(self) -> None:
        sums = {id(p): p.summed_grad for p in self.optimizer.params}
        self._sums = {key: (total, total._version) for key, total in sums.items()}

    def _refuse_sums(self) -> None:
        """Refuse a sum that this object did not write: what it adds is not clipped."""
        known = self._sums if self.pieces else {}
        for parameter in self.optimizer.params:
            total, version = known.get(id(parameter), (None, 0))
            now = parameter.summed_grad
            if now is not None and (now is not total or now._version != version):
                self.pieces = []
                raise ValueError(
                    "a parameter has a summed_grad that is not the clipped sum of this sample: it "
                    "was written elsewhere, or is that of the last step. Call "
                    "optimizer.zero_grad() before each backward pass, and leave summed_grad alone"
                )

    def start(self) -> None:
        """Begin a pass over the loader. If the last pass ended early, one sample may stay unused.

        Except for the first, a pass without a step may leave no sample unused. Else a user could
        redraw samples until one suits them, which changes the distribution.
        """
        self.lost += self._excess(min(self._passes, 1))
        self._passes = max(self._passes - 1, 0)
        self.sizes.clear()

    def forget(self) -> None:
        """Forget the samples that no step accounts for."""
        self.lost = 0
        self.sizes.clear()

    def use(self, optimizer: Any) -> float:
        """Use one sample for a step of the optimizer, or refuse the step.

        A refused step's sample counts as unaccounted. What a layer wrote to a buffer is undone,
        because it has no noise.

        Returns:
            The noise multiplier of the step.
        """
        for name, buffer in self.parts[2]._module.named_buffers():
            if name in self._buffers:
                buffer.data.copy_(self._buffers[name])
        self.lost += 1
        if self.pieces:
            self._refuse_sums()
        pieces, self.pieces = self.pieces, []
        self._refuse_step(optimizer, pieces)
        self.lost -= 1
        return pieces[0][1]["noise_multiplier"]

    def _refuse_step(self, optimizer: Any, pieces: list[Piece]) -> None:
        _refuse_changes(self._settings, _settings(*self.parts))
        if not self.sizes or not pieces:
            raise ValueError(
                "the sampler drew no sample for this step. Use each sample for one step, and "
                "begin a pass over the loader after check_batches"
            )
        size = self.sizes.popleft()
        if more := self._excess(0):
            raise ValueError(
                f"the sampler drew {1 + more} samples for this step, and one is accounted: "
                "signal_skip_step adds samples up, and a sample that is left out changes the "
                "distribution of the others. Step once for each sample"
            )
        counts = [max(rows) for rows, _ in pieces]
        alike = all(len(rows) == 1 for rows, _ in pieces)
        if not alike or sum(counts) != size or (len(counts) > 1 and 0 in counts):
            raise ValueError(
                "the step does not add up one gradient for each record of one sample. Several "
                "samples, or several rows for one record, move the sum by more than the clipping "
                "norm"
            )
        for name, value in scheduled(optimizer).items():
            if any(values[name] != value for _, values in pieces):
                raise ValueError(
                    f"optimizer.{name} changed within a step. The noise fits one clipping norm, "
                    "and how many batches a sample has depends on the data. Move a schedule once "
                    "a pass, or once a step: when len(accountant) has grown"
                )
        _refuse_norms(optimizer)
        self._passes = 1

    def _excess(self, unused: int) -> int:
        return max(0, len(self.sizes) - self.ahead - unused)


def check_batches(
    loader: Any,
    optimizer: Any,
    sample_rate: float | Fraction,
    module: Any = None,
    loss: Loss | None = None,
) -> None:
    """Refuse a loader, an optimizer, or a module with an unproven setting, or one that mixes rows.

    Call this function after ``make_private``, and again after ``load_checkpoint``. Then the
    accountant counts the samples that the loader draws, and every step must use one of them. The
    accountant uses torch's actual sampling rate, a multiple of 2^-24. ``get_epsilon`` refuses to
    answer for steps without this check.

    The following conditions are not checked. Opacus computes the sampling rate and the divisor from
    the number of rows, so this number is public: neighbors have equally many rows, and one row's
    gradient is 0 in one of them. The dataset treats each row separately. So do the module and the
    loss on rows that are unlike the invented ones. Opacus computes in floating point with torch's
    generator. ``neyman.opacus.make_exact`` uses whole numbers and the operating system's generator.

    Args:
        loader: the loader from ``make_private``.
        optimizer: the optimizer from ``make_private``, with ``accountant="neyman"``.
        sample_rate: the accounted rate: ``1 / len(loader)``.
        module: the module from ``make_private``.
        loss: a function of the model and a batch of the loader that returns the loss, as the loop
            does: ``lambda model, batch: cross_entropy(model(batch[0]), batch[1])``. It is called
            with invented rows, of the shapes and types of the first row, and never with that row.

    Raises:
        ValueError: a type, an attribute, or a value is not proven. The message names it. Or the
            gradient of an invented row depends on the other rows of its batch.
    """
    accept(loader, optimizer, sample_rate, module, loss, OpacusDraws)


def accept(
    loader: Any,
    optimizer: Any,
    sample_rate: float | Fraction,
    module: Any,
    loss: Loss | None,
    draws: type[D],
) -> D:
    """Check as `check_batches` does, and return a counter of samples.

    Args:
        loader, optimizer, sample_rate, module, loss: as for `check_batches`, with its errors.
        draws: the counter's class, which may also draw the samples.
    """
    _refuse_type("loader", loader, DPDataLoader)
    _refuse_type("optimizer", optimizer, DPOptimizer, DPPerLayerOptimizer)
    _refuse_type(
        "loader.batch_sampler", loader.batch_sampler, UniformWithReplacementSampler, CountedSampler
    )
    _refuse_type("loader.collate_fn", loader.collate_fn, CollateFnWithEmpty)
    _refuse_type("optimizer.step_hook", optimizer.step_hook, StepHook)
    _refuse_type("module", module, GradSampleModule, GradSampleHooks)
    _refuse_values(_settings(loader, optimizer, module))
    _refuse_rates(loader, optimizer.step_hook.sample_rate, sample_rate)
    _refuse_optimizer(optimizer)
    if not {id(p) for p in optimizer.params} <= {id(p) for p in module._module.parameters()}:
        raise ValueError("optimizer has parameters that module lacks: give the module it trains")
    check_model(module._module)
    if not callable(loss):
        raise ValueError(
            f"loss is a {type(loss).__name__}: a loss that mixes rows is not private. Give the "
            "loss of the loop, loss=lambda model, batch: ..., which invented rows test"
        )
    _refuse_mixing(loader, optimizer, module._module, loss)
    return draws(loader, optimizer, module)


def _refuse_type(name: str, value: Any, *kinds: type) -> None:
    if type(value) not in kinds:
        kind = type(value).__name__
        reason = REASONS.get(kind, UNPROVEN)
        raise ValueError(f"{name} is a {kind}: {reason}. Accepted: {kinds[0].__name__}")


def _settings(loader: Any, optimizer: Any, module: Any) -> dict[str, Any]:
    """Return the settings by name: all are checked, and none may change between steps."""
    sampler = loader.batch_sampler
    values: dict[str, Any] = {
        "loader.batch_sampler.sample_rate": sampler.sample_rate,
        "loader.batch_sampler.num_samples": sampler.num_samples,
        "optimizer.expected_batch_size": optimizer.expected_batch_size,
        "optimizer.original_optimizer": type(optimizer.original_optimizer),
        "optimizer.params": {(p.dtype, p.device.type) for p in optimizer.params},
        # Modes of layers that use statistics of a batch, but for eval mode.
        "module.training": {
            name: layer.training
            for name, layer in module._module.named_modules()
            if hasattr(layer, "running_mean")
        },
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.initial_seed()": torch.initial_seed(),
    }
    if any(parameter.is_cuda for parameter in optimizer.params):
        values["torch.cuda.initial_seed()"] = torch.cuda.initial_seed()
    plain = ((k, x) for k, x in vars(module).items() if isinstance(x, PLAIN))
    values |= {f"module.{name}": value for name, value in plain if name != "training"}
    values |= _attributes(loader, optimizer)
    # Replacements of the optimizer's methods: our methods, and a learning rate scheduler.
    own = vars(optimizer)
    for name in ("pre_step", "clip_and_accumulate", "add_noise", "_check_skip_next_step"):
        if name in own and not isinstance(getattr(own[name], "__self__", None), OpacusDraws):
            values[f"optimizer.{name}()"] = own[name]
    if "step" in own and not hasattr(own["step"], "_wrapped_by_lr_sched"):
        values["optimizer.step()"] = own["step"]
    return values


def _attributes(loader: Any, optimizer: Any) -> dict[str, Any]:
    """Return the attributes that may not have any value, by name."""
    parts = (loader, loader.collate_fn, loader.batch_sampler, optimizer)
    return {
        f"{owner}.{name}": value
        for (owner, free), part in zip(FREE.items(), parts, strict=True)
        for name, value in vars(part).items()
        if name not in free.split()
    }


def _refuse_values(settings: dict[str, Any]) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    plain = torch.optim.SGD([weight], 1.0)
    terms: Any = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 1}
    loader = DPDataLoader(TensorDataset(weight.detach()), sample_rate=1.0)
    usual = _attributes(loader, DPOptimizer(plain, **terms))
    for full, value in settings.items():
        owner, _, name = full.rpartition(".")
        if owner.startswith("torch"):
            _refuse_torch(full, value)
        elif owner == "module" or name in FREE[owner].split():
            continue  # invented rows show what a module's do, if no step changes them
        elif full not in usual:
            raise ValueError(f"{full} is not an attribute of Opacus that Neyman knows: {UNPROVEN}")
        elif type(value) is not type(usual[full]) or value != usual[full]:
            known = getattr(usual[full], "__name__", repr(usual[full]))
            raise ValueError(
                f"{full} = {value!r}: {REASONS.get(name, UNPROVEN)}. Accepted: {known}"
            )


def _refuse_torch(name: str, value: Any) -> None:
    # A seed from the system has more bits, except with a chance below one in two million.
    # The seed of a new torch.Generator is a constant of torch.
    if name.endswith("seed()") and (value < 2**32 or value == torch.Generator().initial_seed()):
        raise ValueError(
            f"{name} = {value}: noise, samples, and dropout follow from this seed, and others may "
            "know it. Call torch.seed() after the model has its first weights"
        )
    if name.endswith("dtype()") and value not in BITS:
        raise ValueError(f"{name} = {value}: samples are drawn in float32 or float64. Set one")


def _refuse_changes(settings: dict[str, Any], now: dict[str, Any]) -> None:
    for name in sorted(settings.keys() | now.keys()):
        if name not in settings or name not in now or settings[name] != now[name]:
            raise ValueError(
                f"{name} has changed since check_batches. Set it before, and check again"
            )


def _refuse_rates(loader: Any, accounted: float, sample_rate: float | Fraction) -> None:
    sampler = loader.batch_sampler
    relative_error = 1e-12
    if not math.isclose(accounted, float(sample_rate), rel_tol=relative_error):
        raise ValueError(
            f"sample_rate = {sample_rate}, and the optimizer's hook accounts {accounted}. Give the "
            "rate that is accounted, which is 1 / len(loader)"
        )
    if not 0 < sampler.sample_rate <= accounted * (1 + relative_error):
        raise ValueError(
            f"loader.batch_sampler.sample_rate = {sampler.sample_rate}, and sample_rate = "
            f"{sample_rate} is accounted; account for the rate that is drawn"
        )
    if sampler.num_samples != len(loader.dataset):
        raise ValueError(
            "loader.batch_sampler.num_samples is not the number of rows of the dataset"
        )


def _refuse_optimizer(optimizer: Any) -> None:
    kind = type(optimizer.original_optimizer)
    if getattr(torch.optim, kind.__name__, None) is not kind:
        raise ValueError(
            f"optimizer.original_optimizer is a {kind.__name__}: an optimizer outside torch.optim "
            "may read gradients without noise. Use one of torch.optim"
        )
    if optimizer.loss_reduction == "mean":
        if not optimizer.expected_batch_size:
            raise ValueError(
                "optimizer.expected_batch_size is not declared: a division by the actual size of a "
                "batch reveals the size. Declare it"
            )
        check.positive("optimizer.expected_batch_size", optimizer.expected_batch_size)
    check.non_negative("optimizer.noise_multiplier", optimizer.noise_multiplier)
    _refuse_norms(optimizer)
    sums = any(
        parameter.summed_grad is not None and not hasattr(parameter.summed_grad, "_processed")
        for parameter in optimizer.params
    )
    if optimizer._step_skip_queue or optimizer._is_last_step_skipped or sums:
        raise ValueError(
            "the optimizer holds gradients or skipped steps of samples before check_batches. Call "
            "check_batches before the first step"
        )
    for kind, device in {(p.dtype, p.device.type) for p in optimizer.params}:
        if kind not in BITS or device not in ("cpu", "cuda"):
            raise ValueError(
                f"a parameter is {kind} on {device}: sums are accepted in float32 and float64, on "
                "cpu and cuda. In fewer bits, rounding moves a sum by more than the clipping norm"
            )


def _refuse_norms(optimizer: Any) -> None:
    norms = clipping_norms(optimizer)
    # Opacus computes the norm of clipping norms in float32.
    if len(norms) > 1 and math.hypot(*norms[1:]) > norms[0] * (1 + 1e-6):
        raise ValueError(
            "optimizer.max_grad_norm is less than the root of the sum of squares of "
            "optimizer.max_grad_norms, so the noise is too small. Change them together"
        )


def _refuse_gradients(kind: Any) -> None:
    if kind not in BITS:
        raise ValueError(
            f"the gradients of single rows are {kind}: norms are accepted in float32 and float64. "
            "In fewer bits, a clipped row is longer than the clipping norm. Leave autocast out"
        )


def clipping_norms(optimizer: Any) -> tuple[float, ...]:
    """Return the clipping norm that scales the noise, then any norms of single parameters."""
    norms = (optimizer.max_grad_norm, *getattr(optimizer, "max_grad_norms", ()))
    return tuple(check.positive("optimizer.max_grad_norm", norm) for norm in norms)


def scheduled(optimizer: Any) -> dict[str, Any]:
    """Return the settings that a schedule may change between samples, but not within one."""
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return {
        "max_grad_norm": clipping_norms(optimizer),
        "noise_multiplier": check.non_negative(
            "optimizer.noise_multiplier", optimizer.noise_multiplier
        ),
        "param_groups": repr(groups),
    }


def _refuse_mixing(loader: Any, optimizer: Any, model: Any, loss: Loss) -> None:
    """Refuse a model or a loss in which a gradient of an invented row depends on other rows."""
    like = default_collate([loader.dataset[0]])  # its shapes and types alone are used
    for leaf in tree_leaves(like):
        if not isinstance(leaf, torch.Tensor):
            raise ValueError(
                f"a row of the dataset has a {type(leaf).__name__}, and only tensors and numbers "
                "can be invented to test the loss. Make tensors in the dataset"
            )
    few, device = 4, optimizer.params[0].device  # in a small batch of invented rows
    attempt = partial(_failure, optimizer, model, loss, like)
    failure, accepted = None, -1
    for largest in largest_numbers(model, device):
        failure = attempt(largest, few)
        if failure is None:
            accepted = largest
            break
    # Some modules mix rows only in batches of the loader's size.
    expected = math.ceil(loader.batch_sampler.sample_rate * loader.batch_sampler.num_samples)
    # Numbers in the gradients of such a batch.
    most = (1 << 27) // sum(parameter.numel() for parameter in optimizer.params)
    # A batch of the expected size shows what depends on it.
    if failure is None and (many := min(expected, most, 256)) > few:
        failure = attempt(accepted, many)
        if isinstance(failure, (MemoryError, torch.OutOfMemoryError)):
            failure = None  # the loop uses smaller batches
    if failure is not None:
        raise ValueError(
            f"module or loss fails on invented rows: {type(failure).__name__}: {failure}. Give "
            "loss=lambda model, batch: ..., which computes the loss of a batch of the loader"
        ) from failure
    has_integers = any(
        not x.is_floating_point() and x.dtype != torch.bool for x in tree_leaves(like)
    )
    # Larger classes may have other weights. The first number that is no class ends the search.
    while has_integers and device.type == "cpu" and 0 < accepted < 1 << 16:
        accepted *= 2
        if attempt(accepted, few) is not None:
            break


def _failure(
    optimizer: Any, model: Any, loss: Loss, like: Any, largest: int, rows: int
) -> Exception | None:
    """Compare the gradients of invented rows with whole numbers up to ``largest``.

    A quarter of the rows at each end stay the same. The first and the last have unlike numbers, so
    a loss ignores at most one of them. The others are rows of another kind in each batch: with
    classes of other weights, other sizes and signs, and values that a mask may leave out.

    Returns:
        An error of the model or the loss, as for a number that is no class; None if they agree.

    Raises:
        MixedRows: the gradients differ.
    """
    side, upper = rows // 4, largest // 2 + largest % 2
    kinds = [(0, 0, "unit"), (upper, largest, "unit"), (0, largest, "zero")]
    tried = tried_reals(optimizer.params[0].device)
    if "wide" in tried:  # a GPU ends the process at a number that is no class
        # A mean of cross-entropies ignores -100 even if no row has it, so it is not tried.
        kinds += [(0, largest, "wide"), (0, largest, "nan"), (-1, -1, "unit")]
    for reals in tried:

        def part(count: int, least: int, most: int, reals: str = reals) -> Any:
            rule = partial(invented, rows=count, largest=most, least=least, reals=reals)
            return tree_map(rule, like)

        first, last = part(1, 0, 0), part(1, largest, largest)
        ends = [part(side - 1, 0, largest) for _ in range(2)]
        others = (part(rows - 2 * side, *kind) for kind in kinds)
        batches = [tree_map(_join, first, ends[0], other, ends[1], last) for other in others]
        try:
            _compare(optimizer, model, loss, first, batches, side)
        except MixedRows:
            raise
        except Exception as error:
            if reals == "unit":
                return error
    return None


def _forget_forward_pass(model: Any) -> None:
    """Remove what the hooks of a forward pass keep for a backward pass that an error prevented."""
    for layer in model.modules():
        if vars(layer).get("activations"):
            layer.activations = []
    for parameter in model.parameters():
        if hasattr(parameter, "_forward_counter"):
            parameter._forward_counter = 0


def _join(*parts: Any) -> Any:
    return torch.cat(parts)


def _compare(
    optimizer: Any, model: Any, loss: Loss, row: Any, batches: list[Any], side: int
) -> None:
    """Refuse unlike gradients of the rows at the ends, which all batches share.

    The same random numbers are drawn for all batches. After the first, a batch on which the model
    or the loss fails is left out.

    Args:
        row: the first row alone.
        side: the number of shared rows at each end.
    """
    device = optimizer.params[0].device
    size = len(tree_leaves(batches[0])[0])
    places = [*range(side), *range(-side, 0)]

    def gradient(batch: Any, rows: int = size) -> torch.Tensor:
        optimizer.zero_grad()
        try:
            with torch.enable_grad():
                loss(model, batch).backward()
            parts = optimizer.grad_samples
            if {len(part) for part in parts} != {rows}:
                raise MixedRows(
                    f"a batch of {rows} has gradients of {sorted({len(x) for x in parts})} rows: "
                    "several rows for one record, or one for several, move the sum by more than "
                    "the clipping norm"
                )
            indices = places if rows > 1 else [0]
            return torch.cat([part[indices].double().flatten(1).to(device) for part in parts], 1)
        finally:
            optimizer.zero_grad(set_to_none=True)
            _forget_forward_pass(model)

    def differ(one: torch.Tensor, other: torch.Tensor) -> bool:
        size = max(one.norm(dim=1).max(), other.norm(dim=1).max())  # some may cancel
        # Rounding may change this part of a row's gradient.
        return not bool(((one - other).norm(dim=1) <= 1e-3 * size).all())

    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index])
    states = [generator.get_state() for generator in generators]
    together = gradient(batches[0])
    if not together.isfinite().all():
        raise ValueError("the gradient of a row is not finite")
    before, random = state_of(model, loss), False
    for generator, state in zip(generators, states, strict=True):
        random = random or not torch.equal(generator.get_state(), state)

    def mixed(batch: Any) -> bool:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        try:
            return differ(together, gradient(batch))
        except MixedRows:
            raise
        except Exception:  # these rows are no rows of this model
            return False

    if any(map(mixed, batches[1:])):
        raise MixedRows(
            "module or loss mixes rows: the gradient of an invented row is another beside other "
            "rows, as with batch statistics, a mean with class weights or a mask, or a loss over "
            "pairs. One record then moves the gradients of all, and clipping bounds nothing. Use "
            "layers and a loss that treat each row by itself"
        )
    # Other numbers are drawn for a row alone.
    if not random and differ(together, torch.cat([gradient(row, 1), together[1:]])):
        raise MixedRows(
            "loss depends on the number of rows: the gradient of an invented row is another alone "
            f"than in a batch of {size}. Use the mean or the sum of the losses of "
            "the rows, the one that loss_reduction of make_private names"
        )
    if leaks := changes(before, state_of(model, loss)):
        raise MixedRows(
            f"module or loss writes to {leaks[0]!r} in its forward pass, which keeps data without "
            "noise. Remove that"
        )


register_accountant("neyman", NeymanOpacusAccountant, force=True)
