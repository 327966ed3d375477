"""Store the tables for exact noise on a tensor's device, and finish the draws left open there.

A kernel compares words of a keystream with integers from tables. If its words do not decide a draw,
the draw is *open*. The code of `neyman.noise` finishes open draws on the host, from the same words
and further words [NT-8].
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import os
from fractions import Fraction
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray

from neyman.noise.bits import SecureBits
from neyman.noise.large_gaussian import (
    CELLS,
    FIRST_WORD_BITS,
    SECOND_STAGE_BITS,
    Lanes,
    Strips,
    Words,
)
from neyman.noise.lookup_table import Table

OPEN_DRAW = -(1 << 62)  # an open draw is stored as this plus its first word; no other is this small
OPEN_LIMIT = -(1 << 61)
GROUP_BLOCKS = 128  # blocks with adjacent draws, word after word
BLOCK_PROPOSALS = 4  # proposals per open draw, in one block
PROPOSAL_WORDS = 4  # words per proposal
TAIL_SIGMAS = Fraction(6)  # start of the tail in sigma: it has mass 2e-9, and the host finishes it


Engine = ModuleType
"""`neyman.noise.triton_kernel` or `neyman.noise.tensor_operations`."""


def new_key(device: torch.device) -> torch.Tensor:
    """Return a 256-bit key of eight words from the operating system, for one kernel launch."""
    return torch.frombuffer(bytearray(os.urandom(32)), dtype=torch.int32).to(device)


class TableTensors:
    """Draw noise of small scales on a device, by thresholds of 31 bits [NT-9].

    Args:
        table: the same distribution, with thresholds of 64 bits.
        device: the device of the draws.
    """

    def __init__(self, table: Table, device: torch.device) -> None:
        self.table, self.device = table, device
        thresholds = (table.thresholds >> np.uint64(33)).astype(np.int32)
        number = int(np.count_nonzero(thresholds < 2**31 - 1))
        if number == thresholds.size or table.slack > 1 << 33:
            raise ArithmeticError("the thresholds do not decide 31 bits")
        # The first entry is below all words, and only one word reaches the last entries. The
        # number of entries is a power of two, for a bisection without branches.
        entries = np.full(1 << (number + 1).bit_length(), 2**31 - 1, np.int32)
        entries[0] = -2
        entries[1 : number + 1] = thresholds[:number]
        self.entries = torch.from_numpy(entries).to(device)

    def fill(self, out: torch.Tensor, engine: Engine) -> None:
        """Write draws to all of ``out`` by kernels of ``engine``, with a new key."""
        key = new_key(self.device)
        engine.draw_table(out, key, self)
        key.zero_()
        places = open_places(out)
        if places.numel():
            bits = SecureBits()
            words = (out[places] - OPEN_DRAW).cpu().numpy().astype(np.uint64)
            value = (words << np.uint64(33)) | (bits.words(words.size) >> np.uint64(31))
            k = self.table.magnitudes(value, bits)
            _write(out, places, np.where(words >> np.uint64(31) == 1, -k, k))


class StripTensors:
    """Draw noise of a large scale on a device, as `Strips` does [NT-10].

    Args:
        strips: the distribution, with a tail from ``TAIL_SIGMAS`` on.
        device: the device of the draws.
    """

    def __init__(self, strips: Strips, device: torch.device) -> None:
        self.strips, self.device = strips, device
        self.is_discrete = not strips.rounded  # the discrete Gaussian refuses minus zero
        self.fine, self.half = strips.fine, 1 << strips.fine >> 1
        self.length = strips.width + strips.fine  # number of bits of a place within its strip
        self.words = 2 if self.length <= FIRST_WORD_BITS else 4  # words per draw
        # Shifts of a place to units of 2^-20, and the number of open units.
        self.right = max(0, self.length - SECOND_STAGE_BITS)
        self.left = max(0, SECOND_STAGE_BITS - self.length)
        self.step = int(self.length > SECOND_STAGE_BITS)
        self.number, self.factor, self.most = strips.number, strips.factor, strips.tail_most
        settings = [self.length, self.half, self.fine, self.right, self.left, self.step]
        settings += [self.number, self.factor, self.most]
        self.settings = torch.tensor(settings, dtype=torch.int64, device=device)
        self.guide = torch.from_numpy(strips.guide[:CELLS].astype(np.int32)).to(device)
        self.starts = torch.from_numpy(np.append(strips.starts, 0)).to(device)

    def fill(self, out: torch.Tensor, engine: Engine) -> None:
        """Write draws to all of ``out`` by kernels of ``engine``, with new keys."""
        key = new_key(self.device)
        engine.draw_strips(out, key, self)
        key.zero_()
        places = open_places(out)
        if not places.numel():
            return
        key = new_key(self.device)
        state = engine.decide_strips(out, places, key, self)
        key.zero_()
        left = open_places(out[places])
        if left.numel():
            refused = (out[places[left]] != OPEN_DRAW).cpu().numpy()
            words = state[:, left].cpu().numpy().view(np.uint32).astype(np.uint64)
            _write(out, places[left], self._finish(words, refused))

    def _finish(self, words: Words, refused: NDArray[np.bool_]) -> Lanes:
        """Return the finished draws that begin with these words, and new draws where ``refused``.

        ``words`` has shape (``PROPOSAL_WORDS``, draws).
        """
        bits = SecureBits()
        result = np.empty(refused.size, np.int64)
        new = np.empty(np.count_nonzero(refused), np.int64)
        self.strips.fill(new, bits)
        result[refused] = new
        first, more, high, rest = words[:, ~refused]
        low = (high << np.uint64(32) | rest) >> np.uint64(64 - self.length)
        more = more << np.uint64(16) | bits.words(more.size) >> np.uint64(48)
        places = self.strips.settle(first, low.view(np.int64), more.view(np.int64), bits)
        result[~refused] = places
        return result


def open_places(out: torch.Tensor) -> torch.Tensor:
    """Return the indices of the open draws in ``out``."""
    return (out < OPEN_LIMIT).nonzero().flatten()


def _write(out: torch.Tensor, places: torch.Tensor, values: Lanes) -> None:
    out[places] = torch.from_numpy(values).to(out.device)
