"""What an accelerator does: exact noise, and later private training, in under five minutes.

`python benchmarks/gpu.py --json gpu.json` runs all sections and writes one file. `--only
noise_rates` runs one of them. It needs torch 2.11 or later. What is missing (a CUDA device, Triton,
Opacus) is skipped, and the file says "not measured" and why. Without a device the sections run
small, on the CPU.

A section is a function of `Setting` that returns numbers by name. `SECTIONS` lists them.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from scipy.stats import chi2, norm

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
    """Return the name of a law and its scale."""
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
        whole = seconds(setting, lambda s=sampler, p=parameter: s(p, setting.size, out=out))
        tensors, engine = tensor_noise.law_and_engine(law, parameter, setting.device)
        key = tensor_noise.new_key(setting.device)
        is_table = isinstance(tensors, tensor_laws.TableTensors)
        kernel = engine.draw_table if is_table else engine.draw_strips
        part = out[: engine.PART]
        alone = seconds(setting, lambda k=kernel, t=tensors, p=part, w=key: k(p, w, t))
        kernel(part, key, tensors)
        goal = GOALS["up to 100" if is_table else "any"]
        results[label(law, parameter)] = {
            "draws_per_second": setting.size / whole,
            "kernel_draws_per_second": part.numel() / alone,
            "open_share": tensor_laws.open_places(part).numel() / part.numel(),
            "engine": engine.__name__,
            "goal": goal,
            "met": setting.size / whole >= goal,
        }
    return results


def noise_operations(setting: Setting) -> Numbers:
    """Draws a second by operations of torch, which draw where Triton is missing."""
    size = min(setting.size, tensor_operations.PART)
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
        some = out[: tensor_operations.PART]
        for law, parameter in LAWS:
            name = f"{label(law, parameter)} on {device.type}"
            getattr(noise, law)(parameter, size, out=out)
            results[name] = chi_square(out, law, parameter)
            tensors = tensor_noise.tensors(law, parameter, device)
            tensor_noise.draw(some, tensors, tensor_operations)
            results[f"{name}, by operations of torch"] = chi_square(some, law, parameter)
    return results


def chi_square(out: torch.Tensor, law: str, parameter: Fraction) -> Numbers:
    """Return the probability of counts as far from their law as these are."""
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


SECTIONS: tuple[Callable[[Setting], Numbers], ...] = (
    noise_rates,
    noise_operations,
    noise_on_the_cpu,
    noise_counts,
    # Sections of training come here: a step of a transformer beside Opacus, memory, the fast mode,
    # and a convolutional network on two CPU cores.
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
