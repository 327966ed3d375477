"""The stream cipher ChaCha20 in operations on tensors of 32-bit integers, and its keys.

torch has no unsigned arithmetic on all devices. Sums of int32 wrap around, and a shift to the right
copies the sign, which a mask takes away.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import os

import torch

from neyman.noise.lane_arithmetic import quarter

CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
DOUBLE_ROUNDS = 10


def new_key(device: torch.device) -> torch.Tensor:
    """Return a 256-bit key from the operating system: eight words, for one launch alone."""
    return torch.frombuffer(bytearray(os.urandom(32)), dtype=torch.int32).to(device)


def keystream(key: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Return the words of these blocks, with nonce 0: an int32 tensor of shape (16, blocks).

    Args:
        key: eight int32 words.
        counters: int64, from 0 to 2^32 - 1.

    Source: RFC 8439, section 2.3.
    """
    n = counters.numel()
    first = torch.tensor(CONSTANTS, dtype=torch.int32, device=key.device)
    last = torch.zeros((4, n), dtype=torch.int32, device=key.device)
    last[0] = counters.to(torch.int32)
    start = [x.reshape(4, 1).expand(4, n) for x in (first, key[:4], key[4:])] + [last]
    a, b, c, d = start
    for _ in range(DOUBLE_ROUNDS):
        a, b, c, d = quarter(a, b, c, d)
        b, c, d = (torch.roll(x, -k, 0) for k, x in ((1, b), (2, c), (3, d)))
        a, b, c, d = quarter(a, b, c, d)
        b, c, d = (torch.roll(x, k, 0) for k, x in ((1, b), (2, c), (3, d)))
    return torch.cat([x + y for x, y in zip((a, b, c, d), start, strict=True)])
