"""Integer noise for tensors of torch: drawn where the tensor is, with the law of `neyman.noise`.

The memory of a tensor on a CPU is an array, and is filled like one. Elsewhere than on a CPU or a
CUDA device, noise is drawn on the CPU and copied.
"""

# torch is no dependency, so its types are unknown where it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from fractions import Fraction
from typing import cast

import numpy as np
import torch

from neyman import noise
from neyman.noise.bits import Bits, SecureBits
from neyman.noise.parameters import Tensor
from neyman.numerics import check

SAMPLERS = {
    "discrete_gaussian": noise.discrete_gaussian,
    "discrete_laplace": noise.discrete_laplace,
    "rounded_gaussian": noise.rounded_gaussian,
}


def fill(law: str, exact: Fraction, size: int, bits: Bits | None, out: Tensor) -> None:
    """Write independent draws to a tensor.

    Args:
        law: the name of a sampler of `neyman.noise`.
        exact: its parameter, which has been checked.
        size: how many draws.
        bits: as in `neyman.noise.discrete_gaussian`.
        out: a contiguous int64 tensor of shape ``(size,)``.

    Raises:
        TypeError: for a tensor of another type.
        ValueError: for a tensor of another shape or layout.
    """
    tensor = cast(torch.Tensor, out)
    _check(tensor, check.integer("size", size))
    if tensor.device.type == "cpu":
        SAMPLERS[law](exact, size, SecureBits() if bits is None else bits, out=tensor.numpy())
        return
    drawn = np.empty(size, np.int64)
    SAMPLERS[law](exact, size, SecureBits() if bits is None else bits, out=drawn)
    tensor.copy_(torch.from_numpy(drawn))


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
