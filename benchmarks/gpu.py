"""What an accelerator does: exact noise and private training, in under five minutes.

`python benchmarks/gpu.py --json gpu.json` runs all sections and writes one file. `--only
noise_rates` runs one of them. It needs torch 2.11 or later. What is missing (a CUDA device, Triton,
Opacus) is skipped, and the file says "not measured" and why. Without a device the sections about
noise run small, on the CPU, and so does the step of a convolutional network.

A section is a function of `Setting` that returns numbers by name. `SECTIONS` lists them.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from scipy.stats import chi2, norm
from torch import Tensor, nn
from torch.nn import functional

import neyman as ny
from neyman import noise
from neyman.noise import SecureBits, tensor_laws, tensor_noise, tensor_operations

LIMIT_SECONDS = 280  # no section begins later
RUNS = 5  # of which the median counts
ALARM = 1e-6  # the chance that a right sampler fails a test of counts
NOT_MEASURED = "not measured"

LARGE = Fraction(10**12)  # sigma^2 of training: a grid of 2^20 in the clipping norm
LAWS: tuple[tuple[str, Fraction], ...] = (
    ("discrete_gaussian", Fraction(1)),
    ("discrete_gaussian", Fraction(10**2)),
    ("discrete_gaussian", Fraction(100**2)),
    ("discrete_gaussian", LARGE),
    ("rounded_gaussian", Fraction(10**2)),
    ("rounded_gaussian", Fraction(100**2)),
    ("rounded_gaussian", Fraction(1000**2)),
    ("rounded_gaussian", LARGE),
    ("rounded_gaussian", Fraction(2**90)),
    ("discrete_laplace", Fraction(10)),
)
GOALS = {"up to 100": 50e9, "any": 10e9}  # draws a second, by sigma
TIMES_OPACUS, TIMES_PLAIN, TIMES_MEMORY = 1.4, 2.0, 1.5  # most, of a step of the transformer
TIMES_OPACUS_ON_THE_CPU = 1.25  # most, of a step of the convolutional network


@dataclass(frozen=True)
class Setting:
    """Where a section runs.

    Args:
        device: a CUDA device, or the CPU where there is none.
        size: draws of one call.
    """

    device: torch.device
    size: int

    @property
    def is_cuda(self) -> bool:
        """Return True on a CUDA device."""
        return self.device.type == "cuda"


Numbers = dict[str, object]


def seconds(setting: Setting, work: Callable[[], object]) -> float:
    """Return the median wall time of a call, with all that it started on the device."""
    times: list[float] = []
    for _ in range(RUNS + 1):
        if setting.is_cuda:
            torch.cuda.synchronize(setting.device)
        start = time.perf_counter()
        work()
        if setting.is_cuda:
            torch.cuda.synchronize(setting.device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def label(law: str, parameter: Fraction) -> str:
    """Return the name of a distribution and its scale."""
    scale = parameter if law == "discrete_laplace" else Fraction(math.isqrt(int(parameter)))
    return f"{law} {scale}"


def noise_rates(setting: Setting) -> Numbers:
    """Draws a second of whole calls, and of the first kernel alone, beside float normals."""
    if not setting.is_cuda:
        return {"all": f"{NOT_MEASURED}: no CUDA device"}
    out = torch.empty(setting.size, dtype=torch.int64, device=setting.device)
    floats = torch.empty(setting.size, dtype=torch.float32, device=setting.device)
    results: Numbers = {"float normals": setting.size / seconds(setting, floats.normal_)}
    for law, parameter in LAWS:
        sampler = getattr(noise, law)
        duration = seconds(setting, lambda s=sampler, p=parameter: s(p, setting.size, out=out))
        tensors, engine = tensor_noise.law_and_engine(law, parameter, setting.device)
        key = tensor_laws.new_key(setting.device)
        is_table = isinstance(tensors, tensor_laws.TableTensors)
        kernel = engine.draw_table if is_table else engine.draw_strips
        part = out[: engine.KEY_DRAWS]
        alone = seconds(setting, lambda k=kernel, t=tensors, p=part, w=key: k(p, w, t))
        kernel(part, key, tensors)
        goal = GOALS["up to 100" if is_table else "any"]
        results[label(law, parameter)] = {
            "draws_per_second": setting.size / duration,
            "kernel_draws_per_second": part.numel() / alone,
            "open_share": tensor_laws.open_places(part).numel() / part.numel(),
            "engine": engine.__name__,
            "goal": goal,
            "met": setting.size / duration >= goal,
        }
    return results


def noise_operations(setting: Setting) -> Numbers:
    """Draws a second by operations of torch, which draw where Triton is missing."""
    size = min(setting.size, tensor_operations.KEY_DRAWS)
    out = torch.empty(size, dtype=torch.int64, device=setting.device)
    results: Numbers = {}
    for law, parameter in (("rounded_gaussian", Fraction(10**2)), ("rounded_gaussian", LARGE)):
        tensors = tensor_noise.tensors(law, parameter, setting.device)
        taken = seconds(setting, lambda t=tensors: tensor_noise.draw(out, t, tensor_operations))
        results[label(law, parameter)] = {"draws_per_second": size / taken}
    return results


def noise_on_the_cpu(setting: Setting) -> Numbers:
    """Draws a second into a tensor and into an array, in turn, on one CPU."""
    del setting
    host, size, bits = Setting(torch.device("cpu"), 0), 1 << 20, SecureBits()
    tensor, array = torch.empty(size, dtype=torch.int64), np.empty(size, np.int64)
    results: Numbers = {}
    for law, parameter in LAWS:
        sampler = getattr(noise, law)
        into_tensor = seconds(host, lambda s=sampler, p=parameter: s(p, size, out=tensor))
        into_array = seconds(host, lambda s=sampler, p=parameter: s(p, size, bits, out=array))
        results[label(law, parameter)] = {
            "tensor_draws_per_second": size / into_tensor,
            "array_draws_per_second": size / into_array,
        }
    return results


def noise_counts(setting: Setting) -> Numbers:
    """Chi-square of each sampler on each device. A right one fails once in a million."""
    results: Numbers = {"alarm": ALARM}
    for device in {torch.device("cpu"), setting.device}:
        size = setting.size if device == setting.device else 1 << 20
        out = torch.empty(size, dtype=torch.int64, device=device)
        some = out[: tensor_operations.KEY_DRAWS]
        for law, parameter in LAWS:
            name = f"{label(law, parameter)} on {device.type}"
            getattr(noise, law)(parameter, size, out=out)
            results[name] = chi_square(out, law, parameter)
            tensors = tensor_noise.tensors(law, parameter, device)
            tensor_noise.draw(some, tensors, tensor_operations)
            results[f"{name}, by operations of torch"] = chi_square(some, law, parameter)
    return results


def chi_square(out: torch.Tensor, law: str, parameter: Fraction) -> Numbers:
    """Return the probability of counts as far from their distribution as these are."""
    scale = float(parameter) if law == "discrete_laplace" else math.sqrt(parameter)
    shares = np.arange(1, 40) / 40
    inner = np.unique(np.floor(norm.ppf(shares) * scale)).astype(np.int64)
    below = np.concatenate([[0.0], distribution(law, scale, inner), [1.0]])
    cells = torch.bucketize(out, torch.from_numpy(inner).to(out.device))
    counts = torch.bincount(cells, minlength=inner.size + 1).cpu().numpy()
    expected = np.diff(below) * out.numel()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    value = float(chi2.sf(statistic, inner.size))
    return {"p": value, "cells": inner.size + 1, "draws": out.numel(), "passed": value > ALARM}


def distribution(law: str, scale: float, places: np.ndarray) -> np.ndarray:
    """Return P(X <= x) at whole numbers."""
    if law == "rounded_gaussian" or scale > 1000:
        # Sums of a discrete Gaussian this wide are those of the normal law at halves, to 1e-7.
        return norm.cdf((places + 0.5) / scale)
    every = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61)
    exponent = np.abs(every) / scale if law == "discrete_laplace" else every**2 / (2 * scale**2)
    weights = np.exp(-exponent)
    return np.interp(places, every, np.cumsum(weights) / weights.sum())


@dataclass(frozen=True)
class Sizes:
    """The sizes of a transformer and of a batch; those of the goals are the defaults."""

    layers: int = 6
    width: int = 512
    vocabulary: int = 8192
    places: int = 512  # of the table of positions
    rows: int = 64
    tokens: int = 64


class Block(nn.Module):
    """Attention and two linear layers, each beside what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(self.first(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixture = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixture.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """Predicts the next token, with random weights."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        self.places = nn.Embedding(sizes.places, sizes.width)
        self.blocks = nn.Sequential(*(Block(sizes.width) for _ in range(sizes.layers)))
        self.last, self.head = (nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        return self.head(self.last(self.blocks(self.words(tokens) + self.places(places))))


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean loss of all tokens."""
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


Loss = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[], None]


@contextmanager
def plain_step(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Iterator[Step]:
    """Yield a step without privacy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    yield step


@contextmanager
def opacus_step(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Iterator[Step]:
    """Yield a step of Opacus with hooks and float noise."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    module = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=0.01),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=len(x),
    )

    def step() -> None:
        optimizer.zero_grad()
        loss(module(x), y).backward()
        optimizer.step()

    yield step


def exact_step(**options: object) -> Callable[..., object]:
    """Return what yields a step of `ny.torch.NoisyGradient`."""

    @contextmanager
    def exact(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Iterator[Step]:
        mechanism = ny.DPSGD(n=1000 * len(x), batch=len(x), sigma=1, epochs=1)
        plan = ny.torch.TrainingPlan(mechanism, **options)
        gradient = ny.torch.NoisyGradient(model, loss, plan)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            gradient.add(x, y)
            gradient.set()
            optimizer.step()

        yield step
        gradient.close()

    return exact


TRANSFORMER_STEPS = {
    "without privacy": plain_step,
    "Opacus with hooks": opacus_step,
    "gradients of rows, compiled": exact_step(compiled=True),
    "gradients of rows, compiled, microbatches of 16": exact_step(compiled=True, microbatch=16),
    "ours": exact_step(),
}


def transformer_step(setting: Setting, sizes: Sizes | None = None) -> Numbers:
    """Measure time and memory of a step of a transformer of 27.6 million parameters."""
    if sizes is None and not setting.is_cuda:
        return {"all": f"{NOT_MEASURED}: no CUDA device"}
    sizes = sizes or Sizes()
    shape = (sizes.rows, sizes.tokens)
    x, y = (torch.randint(sizes.vocabulary, shape, device=setting.device) for _ in range(2))
    results: Numbers = {}
    for name, recipe in TRANSFORMER_STEPS.items():
        if recipe is opacus_step and not find_spec("opacus"):
            results[name] = f"{NOT_MEASURED}: Opacus is missing"
            continue
        model = Transformer(sizes).to(setting.device)
        results["parameters"] = sum(p.numel() for p in model.parameters())
        try:
            with quiet(), recipe(model, token_loss, x, y) as step:
                taken = seconds(setting, step)
                results[name] = {"seconds": taken, "bytes": memory(setting, step)}
        except Exception as error:  # a compiler may be missing
            results[name] = f"{NOT_MEASURED}: {type(error).__name__}: {str(error)[:200]}"
        del model
    compared(results, "gradients of rows, compiled", "Opacus with hooks", TIMES_OPACUS)
    compared(results, "ours", "Opacus with hooks", TIMES_MEMORY, "bytes")
    compared(results, "ours", "without privacy", TIMES_PLAIN)
    return results


def memory(setting: Setting, step: Step) -> int | str:
    """Return the largest memory of a step on the device, in bytes."""
    if not setting.is_cuda:
        return f"{NOT_MEASURED}: no CUDA device"
    torch.cuda.reset_peak_memory_stats(setting.device)
    step()
    torch.cuda.synchronize(setting.device)
    return torch.cuda.max_memory_allocated(setting.device)


def compared(
    results: Numbers, ours: str, other: str, most: float | None, unit: str = "seconds"
) -> None:
    """Add the ratio of two steps, and whether it is within its goal."""
    one, two = results.get(ours), results.get(other)
    if not (isinstance(one, dict) and isinstance(two, dict) and isinstance(one[unit], int | float)):
        return
    ratio = one[unit] / two[unit]
    met = {} if most is None else {"goal": most, "met": ratio <= most}
    results[f"{unit} of {ours} / {other}"] = {"ratio": ratio, **met}


@contextmanager
def quiet() -> Iterator[None]:
    """Hide warnings of Opacus about hooks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


CPU_STEPS = {
    "without privacy": plain_step,
    "Opacus with hooks": opacus_step,
    "ours": exact_step(),
    "ours, microbatches of 64": exact_step(microbatch=64),
}


def convolution_step(setting: Setting, rows: int = 256, runs: int = 15) -> Numbers:
    """Measure the CPU time of a step of a small convolutional network on images of digits."""
    del setting
    x, y = torch.rand(rows, 1, 8, 8), torch.randint(10, (rows,))
    results = cpu_times(convolutions, x, y, runs)
    for name in ("ours", "ours, microbatches of 64"):
        compared(results, name, "Opacus with hooks", TIMES_OPACUS_ON_THE_CPU)
    return results


def wide_step(setting: Setting, rows: int = 64, runs: int = 7) -> Numbers:
    """Measure the CPU time of a step of three linear layers with 669,706 parameters."""
    del setting
    x, y = torch.rand(rows, 784), torch.randint(10, (rows,))
    results = cpu_times(linear_layers, x, y, runs)
    compared(results, "ours", "Opacus with hooks", TIMES_OPACUS_ON_THE_CPU)
    return results


def convolutions() -> nn.Module:
    """Return two convolutions and a linear layer: 6,090 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def linear_layers() -> nn.Module:
    """Return three linear layers."""
    parts = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    return nn.Sequential(*parts)


def cpu_times(network: Callable[[], nn.Module], x: Tensor, y: Tensor, runs: int) -> Numbers:
    """Return the CPU time of each kind of step, measured in turn."""
    times: dict[str, list[float]] = {}
    steps: dict[str, Step] = {}
    results: Numbers = {"rows": len(x), "threads": torch.get_num_threads()}
    with quiet(), ExitStack() as stack:
        for name, recipe in CPU_STEPS.items():
            if recipe is opacus_step and not find_spec("opacus"):
                results[name] = f"{NOT_MEASURED}: Opacus is missing"
                continue
            steps[name] = stack.enter_context(recipe(network(), functional.cross_entropy, x, y))
            times[name] = []
        for run in range(runs + 2):
            for name, step in steps.items():
                start = time.process_time()
                step()
                if run >= 2:
                    times[name].append(time.process_time() - start)
    results |= {name: {"seconds": statistics.median(each)} for name, each in times.items()}
    return results


SECTIONS: tuple[Callable[[Setting], Numbers], ...] = (
    noise_rates,
    noise_operations,
    noise_on_the_cpu,
    noise_counts,
    transformer_step,
    convolution_step,
    wide_step,
)


def installed(name: str) -> str:
    """Return the version of a package, or that it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def main() -> None:
    """Run the sections and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), help="the file to write")
    names = [section.__name__ for section in SECTIONS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="sections to run")
    parser.add_argument("--size", type=int, help="draws of one call")
    options = parser.parse_args()
    has_device = torch.cuda.is_available()
    device = torch.device("cuda", 0) if has_device else torch.device("cpu")
    size = options.size or (1 << 27 if has_device else 1 << 18)
    setting = Setting(device, size)
    packages = ("neyman", "torch", "triton", "opacus", "numpy")
    report: Numbers = {
        "device": torch.cuda.get_device_name(device) if has_device else "no CUDA device",
        "processor": platform.processor() or platform.machine(),
        "versions": {name: installed(name) for name in packages},
        "size": size,
    }
    start = time.perf_counter()
    for section in SECTIONS:
        name, begun = section.__name__, time.perf_counter()
        if name not in options.only:
            report[name] = f"{NOT_MEASURED}: not asked for"
        elif begun - start > LIMIT_SECONDS:
            report[name] = f"{NOT_MEASURED}: no time was left"
        else:
            report[name] = {**section(setting), "seconds": time.perf_counter() - begun}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
