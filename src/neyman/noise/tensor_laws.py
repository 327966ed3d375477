"""The tables and strips of `neyman.noise` on the device of a tensor, and draws that it leaves open.

A kernel compares words of a keystream with integers from tables. A draw that its words do not
decide is open, and is finished on the host by the code of `neyman.noise`, from the same words and
further ones [NT-8].
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
import torch

from neyman.noise.bits import SecureBits
from neyman.noise.lookup_table import Table
from neyman.noise.strips import CELLS, TERM, Proposals, Strips
from neyman.noise.tensor_cipher import new_key

OPEN = -(1 << 62)  # an open draw is this and its first word; no other draw is as far out
BEYOND = -(1 << 61)
GROUP = 128  # blocks whose draws lie next to each other, word after word
ROUNDS = 4  # proposals in one block for an open draw
WORDS = 4  # of each
REACH = Fraction(6)  # sigma from which on the tail is: 2e-9, and it is finished on the host
LARGEST_WORD_BITS = 32


class Engine(Protocol):
    """Kernels, or operations on tensors, that make the same draws from the same key."""

    PART: int

    def draw_table(self, out: torch.Tensor, key: torch.Tensor, law: TableTensors) -> None:
        """Write draws to ``out``, or the word of a draw that is open, added to ``OPEN``."""

    def draw_strips(self, out: torch.Tensor, key: torch.Tensor, law: StripTensors) -> None:
        """Write draws to ``out``, or the first word of a draw that is open, added to ``OPEN``."""

    def decide_strips(
        self, out: torch.Tensor, places: torch.Tensor, key: torch.Tensor, law: StripTensors
    ) -> torch.Tensor:
        """Decide open draws, and return the words of those that are still open."""
        ...


@dataclass(frozen=True, eq=False)
class TableTensors:
    """Thresholds of 31 bits, for noise of small scales.

    Args:
        table: the thresholds of 64 bits, and the law.
        device: where draws are made.
    """

    table: Table
    device: torch.device
    steps: int = field(init=False)  # of a bisection
    entries: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        leading = (self.table.thresholds >> np.uint64(33)).astype(np.int32)
        kept = leading[leading < 2**31 - 1]
        if kept.size == leading.size:
            raise ArithmeticError("the thresholds end before 31 bits do")
        # In front stands an entry below all words, and behind are some that no draw passes.
        steps = (kept.size + 1).bit_length()
        entries = np.full(1 << steps, 2**31 - 1, np.int32)
        entries[0] = -2
        entries[1 : kept.size + 1] = kept
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "entries", torch.from_numpy(entries).to(self.device))

    def fill(self, out: torch.Tensor, engine: Engine) -> None:
        """Write draws to all of ``out``, under a key of their own."""
        key = new_key(self.device)
        engine.draw_table(out, key, self)
        key.zero_()
        places = _open(out)
        if places.numel():
            bits = SecureBits()
            words = (out[places] - OPEN).cpu().numpy().astype(np.uint64)
            value = (words << np.uint64(33)) | (bits.words(words.size) >> np.uint64(31))
            k = self.table.magnitudes(value, bits)
            _write(out, places, np.where(words >> np.uint64(31) == 1, -k, k))


@dataclass(frozen=True, eq=False)
class StripTensors:
    """The strips of a large scale.

    Args:
        strips: the law, whose tail begins at ``REACH``.
        device: where draws are made.
    """

    strips: Strips
    device: torch.device
    whole: bool = field(init=False)  # the discrete Gaussian, which refuses minus zero
    words: int = field(init=False)  # of a draw
    length: int = field(init=False)  # bits of a place within its strip
    fine: int = field(init=False)
    half: int = field(init=False)
    right: int = field(init=False)  # shifts of a place to units of 2^-20
    left: int = field(init=False)
    step: int = field(init=False)  # of those units that are open
    number: int = field(init=False)
    factor: int = field(init=False)
    tail_most: int = field(init=False)
    guide: torch.Tensor = field(init=False, repr=False)
    starts: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        law = self.strips
        length = law.width + law.fine
        guide = torch.from_numpy(law.guide[:CELLS].astype(np.int32))
        starts = torch.from_numpy(np.append(law.starts, 0))
        settings: dict[str, object] = {
            "whole": not law.rounded,
            "words": 2 if length <= LARGEST_WORD_BITS else 4,
            "length": length,
            "fine": law.fine,
            "half": 1 << law.fine >> 1,
            "right": max(0, length - TERM),
            "left": max(0, TERM - length),
            "step": int(length > TERM),
            "number": law.number,
            "factor": law.factor,
            "tail_most": law.tail_most,
            "guide": guide.to(self.device),
            "starts": starts.to(self.device),
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def fill(self, out: torch.Tensor, engine: Engine) -> None:
        """Write draws to all of ``out``, under keys of their own."""
        key = new_key(self.device)
        engine.draw_strips(out, key, self)
        key.zero_()
        places = _open(out)
        if not places.numel():
            return
        key = new_key(self.device)
        seen = engine.decide_strips(out, places, key, self)
        key.zero_()
        left = _open(out[places])
        if left.numel():
            refused = (out[places[left]] != OPEN).cpu().numpy()
            words = seen[:, left].cpu().numpy().view(np.uint32).astype(np.uint64)
            _write(out, places[left], self._finish(words, refused))

    def _finish(self, words: np.ndarray, refused: np.ndarray) -> np.ndarray:
        """Return draws that begin with these words, or new ones where they were refused."""
        bits = SecureBits()
        result = np.empty(refused.size, np.int64)
        new = np.empty(np.count_nonzero(refused), np.int64)
        self.strips.fill(new, bits)
        result[refused] = new
        first, more, high, rest = words[:, ~refused]
        low = (high << np.uint64(32) | rest) >> np.uint64(64 - self.length)
        more = more << np.uint64(16) | bits.words(more.size) >> np.uint64(48)
        drawn = Proposals(first, low.view(np.int64), more.view(np.int64))
        result[~refused] = self.strips.settle(drawn, bits)
        return result


def _open(out: torch.Tensor) -> torch.Tensor:
    """Return where the open draws are."""
    return (out < BEYOND).nonzero().flatten()


def _write(out: torch.Tensor, places: torch.Tensor, drawn: np.ndarray) -> None:
    out[places] = torch.from_numpy(drawn).to(out.device)
