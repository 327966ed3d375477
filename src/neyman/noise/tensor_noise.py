"""Draw integer noise into torch tensors, with the distributions of `neyman.noise`.

A CPU tensor is filled like an array, in its own memory. On a CUDA device, a kernel draws [NT-8]. On
other devices, and for large scales of the Laplace distribution, noise is drawn on the CPU and
copied.
"""

# torch is not a dependency, so its types are unknown if it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import cast

import numpy as np
import torch

from neyman import noise
from neyman.noise import tensor_operations
from neyman.noise.bits import Bits, SecureBits
from neyman.noise.large_gaussian import LEAST_SIGMA_SQUARED, Strips
from neyman.noise.large_gaussian import LIMITS as STRIPS_LIMITS
from neyman.noise.lookup_table import rounded_table, weights_table
from neyman.noise.parameters import Tensor
from neyman.noise.tensor_laws import (
    TAIL_SIGMAS,
    Engine,
    StripTensors,
    TableTensors,
    new_key,
    open_places,
)
from neyman.numerics import check

try:
    from neyman.noise import triton_kernel
except ImportError:  # Triton is missing
    triton_kernel = None


@dataclass(frozen=True)
class Limits:
    """Hold the largest Laplace scale with a table, and the number of draws to compare engines."""

    trial_draws: int = 3000  # number of draws to compare two engines


LIMITS = Limits()


def fill(name: str, exact: Fraction, size: int, bits: Bits | None, out: Tensor) -> None:
    """Write independent draws to a tensor.

    Args:
        name: the name of a sampler of `neyman.noise`.
        exact: the sampler's first argument, already checked.
        size: number of draws.
        bits: as in `neyman.noise.discrete_gaussian`.
        out: a contiguous int64 tensor of shape ``(size,)``.

    Raises:
        TypeError: the tensor has another type, or a kernel cannot use the bits.
        ValueError: the tensor has another shape or layout.
    """
    tensor = cast(torch.Tensor, out)
    _check(tensor, check.integer("size", size))
    if tensor.device.type == "cuda" and (
        name != "discrete_laplace" or exact <= 128  # scale of the largest table on a device
    ):
        if not (bits is None or isinstance(bits, SecureBits)):
            raise TypeError(
                f"bits is a {type(bits).__name__}, and noise on a CUDA device is keyed by the "
                "operating system: leave bits out"
            )
        with torch.cuda.device(tensor.device):
            draw(tensor, *law_and_engine(name, exact, tensor.device))
        return
    shared = tensor.device.type == "cpu"
    array = tensor.numpy() if shared else np.empty(size, np.int64)
    getattr(noise, name)(exact, size, SecureBits() if bits is None else bits, out=array)
    if not shared:
        tensor.copy_(torch.from_numpy(array))


def draw(out: torch.Tensor, law: TableTensors | StripTensors, engine: Engine) -> None:
    """Write draws from ``law`` to a tensor on its device, with new keys per ``KEY_DRAWS`` draws."""
    for start in range(0, out.numel(), engine.KEY_DRAWS):
        law.fill(out[start : start + engine.KEY_DRAWS], engine)


@lru_cache(maxsize=STRIPS_LIMITS.tables)
def law_and_engine(
    name: str, exact: Fraction, device: torch.device
) -> tuple[TableTensors | StripTensors, Engine]:
    """Return the distribution of a sampler on a device, and the engine: Triton if it works.

    Raises:
        RuntimeError: Triton kernels and torch operations give different draws.
    """
    law = tensors(name, exact, device)
    if triton_kernel is None:
        return law, tensor_operations
    try:
        same = agree(triton_kernel, tensor_operations, law)
    except Exception as error:  # for example, the compiler is missing or too old
        warnings.warn(
            f"kernels of Triton fail on {device}, so operations of torch draw noise there, which "
            f"are slower: {error!r}",
            RuntimeWarning,
            stacklevel=5,
        )
        return law, tensor_operations
    if not same:
        raise RuntimeError(
            "the kernels of neyman.noise.triton_kernel make other draws than operations of torch "
            f"on {device}: draw noise on a CPU, and report this with your version of Triton"
        )
    return law, triton_kernel


def tensors(name: str, exact: Fraction, device: torch.device) -> TableTensors | StripTensors:
    """Return the distribution of a sampler, stored on a device. Arguments are as for `fill`."""
    if name == "discrete_laplace":
        return TableTensors(weights_table(1 / exact, Fraction(0)), device)
    rounded = name == "rounded_gaussian"
    if exact > LEAST_SIGMA_SQUARED:
        return StripTensors(Strips(exact, rounded, TAIL_SIGMAS), device)
    table = rounded_table(exact) if rounded else weights_table(Fraction(0), 1 / (2 * exact))
    return TableTensors(table, device)


def agree(one: Engine, other: Engine, law: TableTensors | StripTensors) -> bool:
    """Return True if two engines make the same draws of ``law`` from a key used only here."""
    key = new_key(law.device)
    first, second = (
        torch.empty(LIMITS.trial_draws, dtype=torch.int64, device=law.device) for _ in range(2)
    )
    for engine, out in ((one, first), (other, second)):
        if isinstance(law, TableTensors):
            engine.draw_table(out, key, law)
        else:
            engine.draw_strips(out, key, law)
            engine.decide_strips(out, open_places(out), key, law)
    return torch.equal(first, second)


def _check(out: torch.Tensor, size: int) -> None:
    if out.dtype != torch.int64:
        raise TypeError(
            f"out is a tensor of {out.dtype}, and must be one of torch.int64: noise is whole "
            "numbers. Draw them into torch.empty(size, dtype=torch.int64) and convert the result"
        )
    if out.layout != torch.strided or out.shape != (size,) or not out.is_contiguous():
        raise ValueError(
            f"out is a tensor of shape {tuple(out.shape)}, and must be contiguous with the shape "
            f"({size},): pass a new tensor, or view(-1) of one that is contiguous"
        )
