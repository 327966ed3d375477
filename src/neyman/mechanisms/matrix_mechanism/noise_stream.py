"""Streams of noisy sums: integers with exact noise go out at each step, in bounded memory.

An `Encoder` holds the data and the noise: at each step it takes a vector of whole numbers and
gives the whole numbers that are released, each an integer combination of what came so far plus
fresh discrete Gaussian noise. A `Decoder` sees only what was released, and turns it into an
estimate of the sum of all steps so far. Its arithmetic is floating point, which costs digits and
never privacy: it reads what is public already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from neyman.noise import discrete_gaussian, rounded_gaussian
from neyman.noise.bits import Bits
from neyman.numerics.arrays import Array

# Numbers of a step from which NumPy's product of whole numbers is slower than a loop.
LOOP_NUMBERS = 64
Integers = NDArray[np.int64]
Real = NDArray[np.float64]


class Memory(ABC):
    """What is kept of the steps so far, and how much each kept number counts in the next row."""

    capacity: int  # how many vectors are held at most

    @abstractmethod
    def weighted(self) -> Array:
        """Return the earlier steps' part of the next row, without the step itself."""

    @abstractmethod
    def own(self) -> int:
        """Return the weight of the next step itself, above 0."""

    @abstractmethod
    def push(self, value: Array) -> None:
        """Take the next step in, which ends it."""


class Window(Memory):
    """The last steps one by one, as many as the longest row has weights.

    Args:
        row: the weights of step t, those of the steps t - length + 1 to t; the last is above 0.
        band: the length of the longest row.
    """

    def __init__(
        self, row: Callable[[int], Sequence[int] | Integers], band: int, width: int, kind: type
    ) -> None:
        self._row, self._t, self.capacity = row, 0, band - 1
        self._held: Array = np.zeros((max(band - 1, 1), width), kind)

    def weighted(self) -> Array:
        """See `Memory`."""
        weights = np.asarray(self._row(self._t), self._held.dtype)[:-1]
        places = (self._t - len(weights) + np.arange(len(weights))) % len(self._held)
        if self._held.shape[1] < LOOP_NUMBERS or self._held.dtype.kind == "f":
            return weights @ self._held[places]
        total = np.zeros_like(self._held[0])
        one = np.empty_like(total)
        for weight, place in zip(weights, places, strict=True):
            total += np.multiply(self._held[place], weight, out=one)
        return total

    def own(self) -> int:
        """See `Memory`."""
        return int(self._row(self._t)[-1])

    def push(self, value: Array) -> None:
        """See `Memory`."""
        self._held[self._t % len(self._held)] = value
        self._t += 1


class Blocks(Memory):
    """Sums over blocks of past steps that grow with their age: about log2 of the steps.

    A block of 2^s steps that starts at a multiple of 2^s is held as one sum from the step on when
    its end lies ``fine`` 2^s steps back; all of it counts as if it had come at its middle.

    Args:
        weights: what a step counts so many steps later.
        fine: how many blocks of each size are kept apart, at least 1.

    Source: the idea of Andersson and Pagh 2024, "Streaming private continual counting via binning".
    """

    def __init__(
        self, weights: Sequence[int] | Integers, fine: int, width: int, kind: type
    ) -> None:
        self._weights: Array = np.asarray(weights, kind)
        self._fine, self._t, self.capacity = fine, 0, 0
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._sums: list[Array] = []
        self._zero: Array = np.zeros(width, kind)

    def weighted(self) -> Array:
        """See `Memory`."""
        if not self._sums:
            return self._zero.copy()
        middles = np.array(self._starts) + np.array(self._sizes) // 2
        return self._weights[self._t - middles] @ np.array(self._sums)

    def own(self) -> int:
        """See `Memory`."""
        return int(self._weights[0])

    def push(self, value: Array) -> None:
        """See `Memory`."""
        self._starts.append(self._t)
        self._sizes.append(1)
        self._sums.append(np.array(value))
        self._t += 1
        i = 0
        while i + 1 < len(self._sums):  # oldest first: larger blocks come before smaller ones
            size = self._sizes[i]
            mergeable = self._starts[i] % (2 * size) == 0 and self._sizes[i + 1] == size
            if mergeable and merged(self._starts[i], 2 * size, self._t, self._fine):
                self._sums[i] = self._sums[i] + self._sums.pop(i + 1)
                self._sizes[i] = 2 * size
                del self._starts[i + 1], self._sizes[i + 1]
            else:
                i += 1
        self.capacity = max(self.capacity, len(self._sums))


def merged(start: int, size: int, step: int, fine: int) -> bool:
    """Whether the block counts as one in the row of ``step``: its last step is far enough back."""
    return step - (start + size - 1) >= fine * size


class Encoder(ABC):
    """What goes out at each step: whole numbers with noise.

    Args:
        sigma_squared: of the discrete Gaussian noise on each released number.
        largest: entries of a step beyond it are moved there, which never enlarges a difference.
    """

    def __init__(self, sigma_squared: Fraction, largest: int, width: int, bits: Bits) -> None:
        self._noise = (sigma_squared, width, bits)
        self._largest = largest

    def add(self, value: Integers) -> list[Integers]:
        """Return what is released when the next step is ``value``, in order."""
        sigma_squared, width, bits = self._noise
        clipped = np.clip(value, -self._largest, self._largest)
        return [row + discrete_gaussian(sigma_squared, width, bits) for row in self._rows(clipped)]

    @abstractmethod
    def _rows(self, value: Integers) -> list[Integers]:
        """Return the same without noise."""


class Decoder(ABC):
    """Reads what an encoder released, and nothing else."""

    @abstractmethod
    def read(self, released: Sequence[Integers]) -> Real:
        """Return the estimate of the sum of all steps so far, given
        what was released at this one.
        """


class RowEncoder(Encoder):
    """One number out for each in: a row of a lower triangular matrix."""

    def __init__(
        self, memory: Memory, sigma_squared: Fraction, largest: int, width: int, bits: Bits
    ) -> None:
        super().__init__(sigma_squared, largest, width, bits)
        self.memory = memory

    def _rows(self, value: Integers) -> list[Integers]:
        row = self.memory.weighted() + self.memory.own() * value
        self.memory.push(value)
        return [row]


class RowDecoder(Decoder):
    """Solves for the steps one after the other, and adds them up.

    Args:
        memory: the encoder's rows, holding estimates instead of data.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.sum: Real = np.zeros(())

    def read(self, released: Sequence[Integers]) -> Real:
        """See `Decoder`."""
        (row,) = released
        with np.errstate(over="ignore", invalid="ignore"):  # where C^-1 outgrows the floats
            step = (row - self.memory.weighted()) / self.memory.own()
            self.memory.push(step)
            self.sum = self.sum + step
        return self.sum


class IntegerTensor(Protocol):
    """What is used of a torch tensor of int64."""

    def cpu(self) -> Self:
        """Return it on the processor: itself where it is there."""
        ...

    def numpy(self) -> Integers:
        """Return its numbers, in its memory."""
        ...

    def copy_(self, src: Self) -> Self:
        """Take over numbers."""
        ...


class CorrelatedNoise:
    """Noise on the sums of a training loop, each correlated with that of earlier steps.

    It is a row encoder and its reader in one, and it remembers one vector for each step of the
    band: the sum of that step less its estimate. The row W x + Z of a step, less what the estimates
    of earlier steps account for, is the weight of the step times its sum, plus the weighted vectors
    that are remembered, plus Z. Divided by the weight and rounded, it is the estimate of the sum.
    So all estimates follow from the rows, and the vectors are as secret as the sums [MM-8].
    Everything is computed modulo 2^64, and wraps around where noise should ever be so large.

    Args:
        memory: the strategy's rows, in whole numbers.
        sigma_squared: of the normal noise on each number of W x, before it is rounded.
        width: how many numbers a sum has.
    """

    def __init__(self, memory: Memory, sigma_squared: Fraction, width: int, bits: Bits) -> None:
        self.memory, self._noise, self._step = memory, (sigma_squared, width, bits), 0

    def add(self, step: int, total: Integers | IntegerTensor) -> None:
        """Put the estimate of a step's sum in the place of the sum.

        Args:
            step: its number. Steps before it that were not taken here were taken by an earlier
                process. What was remembered of them is not there any more, so that the noise from
                here on cancels none of theirs [MM-9].
            total: whole numbers of 64 bits: an array, or a torch tensor. That of a GPU is copied:
                the memory and the noise are the processor's.
        """
        if isinstance(total, np.ndarray):
            self._add(step, total)
            return
        host = total.cpu()  # the tensor itself on a CPU
        self._add(step, host.numpy())
        if host is not total:
            total.copy_(host)

    def _add(self, step: int, total: Integers) -> None:
        for _ in range(self._step, step):
            self.memory.push(np.zeros_like(total))
        weight = self.memory.own()
        row = total * weight
        row += self.memory.weighted()
        row += rounded_gaussian(*self._noise)
        row += weight // 2
        row //= weight
        self.memory.push(total - row)
        self._step = step + 1
        total[:] = row


class TreeEncoder(Encoder):
    """The sums of the blocks of 2^l steps that end at this step, for l = 0, 1, ...

    Args:
        scale: what each sum is multiplied by.
    """

    def __init__(
        self, steps: int, scale: int, sigma_squared: Fraction, largest: int, width: int, bits: Bits
    ) -> None:
        super().__init__(sigma_squared, largest, width, bits)
        self._t, self._scale = 0, scale
        self._open = np.zeros((steps.bit_length(), width), np.int64)

    def _rows(self, value: Integers) -> list[Integers]:
        self._t += 1
        self._open += value
        ended = (self._t & -self._t).bit_length()
        rows = [self._scale * total for total in self._open[:ended]]
        self._open[:ended] = 0
        return rows


class TreeDecoder(Decoder):
    """Adds up the blocks that make the steps so far.

    Args:
        scale: what each sum was multiplied by.
        optimal: whether a block is read together with all blocks inside it, weighted by their
            precision: the best unbiased estimate from what is out. Otherwise alone.

    Source: Honaker 2015, "Efficient use of differentially private binary trees".
    """

    def __init__(self, steps: int, scale: int, *, optimal: bool) -> None:
        self._t, self._scale, self._optimal = 0, scale, optimal
        self._ended: list[Real] = [np.zeros(())] * steps.bit_length()
        self._trust = tree_trust(steps.bit_length()) if optimal else None

    def read(self, released: Sequence[Integers]) -> Real:
        """See `Decoder`."""
        self._t += 1
        estimate = np.asarray(released[0], float)
        for level, own in enumerate(released[1:], 1):
            halves = self._ended[level - 1] + estimate
            trust = 1.0 if self._trust is None else self._trust[level]
            estimate = trust * own + (1 - trust) * halves
        self._ended[len(released) - 1] = estimate
        total = np.zeros(np.shape(estimate))
        for level, ended in enumerate(self._ended):
            if self._t >> level & 1:
                total = total + ended
        return total / self._scale


def tree_trust(levels: int) -> list[float]:
    """Return the weight of a block's own number, which is also its variance, by level.

    Its own number has variance 1 and the halves together 2 v: their best mean has the variance
    2 v / (1 + 2 v), which is also the weight of its own.
    """
    trust = [1.0]
    for _ in range(1, levels):
        trust.append(2 * trust[-1] / (1 + 2 * trust[-1]))
    return trust


class Stream:
    """A stream from data to estimates: an encoder and the decoder that reads it.

    Args:
        encoder: holds the data.
        decoder: sees what is released.
        width: how many numbers a step has.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, steps: int, width: int) -> None:
        self.encoder, self.decoder = encoder, decoder
        self.left, self.width = steps, width

    def step(self, value: int | Sequence[int] | Integers) -> Real:
        """Return the estimated sum of all steps so far, the next being ``value``.

        Args:
            value: a whole number, or ``width`` of them.

        Returns:
            An array of shape ``(width,)``.

        Raises:
            TypeError: unless these are whole numbers.
            ValueError: for another shape, or after the last step.
        """
        given = np.atleast_1d(np.asarray(value))
        if given.dtype.kind not in "iu":
            raise TypeError("value must be whole numbers: scale and round them before")
        if given.shape != (self.width,):
            raise ValueError(f"value has the shape {given.shape}, and a step has {self.width}")
        if not self.left:
            raise ValueError("value: the last step was taken; a longer stream is a new mechanism")
        self.left -= 1
        if given.dtype == np.uint64:  # would wrap around
            given = np.minimum(given, np.uint64(2**63 - 1))
        return self.decoder.read(self.encoder.add(given.astype(np.int64)))
