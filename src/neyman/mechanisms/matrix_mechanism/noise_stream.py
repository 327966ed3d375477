"""Stream noisy sums: release integers with exact noise at each step, in bounded memory.

An `Encoder` holds the data and the noise. At each step it takes an integer vector and returns the
integers to release. Each is an integer combination of the steps so far plus fresh discrete Gaussian
noise. A `Decoder` sees only the released numbers, and estimates the sum of all steps so far. Its
floating-point arithmetic may lose digits but never privacy, because its input is already public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.noise.integer_noise import discrete_gaussian, rounded_gaussian
from neyman.numerics.arrays import Array

# From this width of a step on, NumPy's integer product is slower than a loop.
LOOP_NUMBERS = 64
Integers = NDArray[np.int64]
Real = NDArray[np.float64]


class Memory(ABC):
    """Store sums of the steps so far, each with its weight in the next row of the matrix."""

    capacity: int  # largest number of stored vectors

    @abstractmethod
    def weighted(self) -> Array:
        """Return the sum of the earlier steps, with their weights in the next row."""

    @abstractmethod
    def own(self) -> int:
        """Return the weight of the next step in its own row, above 0."""

    @abstractmethod
    def push(self, value: Array) -> None:
        """Store the next step, and move on by one step."""


class Window(Memory):
    """Store the last steps one by one.

    Args:
        row: returns the weights of the last steps up to t, in row t. The weight of t is above 0.
        band: the largest number of weights in a row.
        width: number of numbers per step.
        kind: type of the numbers.
    """

    def __init__(
        self, row: Callable[[int], Sequence[int] | Integers], band: int, width: int, kind: type
    ) -> None:
        self._row, self._t, self.capacity = row, 0, band - 1
        self._held: Array = np.zeros((max(band - 1, 1), width), kind)

    def weighted(self) -> Array:
        """Return the weighted sum of the stored steps."""
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
        """Return the last weight of the next row."""
        return int(self._row(self._t)[-1])

    def push(self, value: Array) -> None:
        """Store the next step in place of the oldest step."""
        self._held[self._t % len(self._held)] = value
        self._t += 1


class Blocks(Memory):
    """Store sums over blocks of past steps, as `Binned` describes: about log2(steps) sums.

    Args:
        weights: the weights of a step, by its age in steps.
        fine: number of separate blocks of each size, at least 1.

    Source: the idea of Andersson and Pagh 2024, "Streaming private continual counting via binning".
    """

    def __init__(
        self, weights: Sequence[int] | Integers, fine: int, width: int, kind: type
    ) -> None:
        self._weights: Array = np.asarray(weights, kind)
        self._fine, self._t, self.capacity = fine, 0, 0
        self._blocks: list[tuple[int, int, Array]] = []  # first step, number of steps, sum
        self._zero: Array = np.zeros(width, kind)

    def weighted(self) -> Array:
        """Return the sum of the blocks, each with the weight of its middle."""
        if not self._blocks:
            return self._zero.copy()
        ages = [self._t - start - size // 2 for start, size, _ in self._blocks]
        return self._weights[ages] @ np.array([total for *_, total in self._blocks])

    def own(self) -> int:
        """Return the weight of a step of age 0."""
        return int(self._weights[0])

    def push(self, value: Array) -> None:
        """Store the next step as a block, and merge pairs of blocks that are old enough."""
        self._blocks.append((self._t, 1, np.array(value)))
        self._t += 1
        i = 0
        while i + 1 < len(self._blocks):  # oldest first: larger blocks come before smaller ones
            (start, size, total), (_, following, later) = self._blocks[i : i + 2]
            mergeable = start % (2 * size) == 0 and following == size
            if mergeable and merged(start, 2 * size, self._t, self._fine):
                self._blocks[i : i + 2] = [(start, 2 * size, total + later)]
            else:
                i += 1
        self.capacity = max(self.capacity, len(self._blocks))


def merged(start: int, size: int, step: int, fine: int) -> bool:
    """Return True if ``size`` steps from ``start`` are old enough at ``step`` to be one sum."""
    return step - (start + size - 1) >= fine * size


class Encoder(ABC):
    """Release integers with noise at each step.

    Args:
        sigma_squared: sigma^2 of the discrete Gaussian noise on each released number.
        largest: entries are clipped to this size, which never enlarges a difference.
    """

    def __init__(self, sigma_squared: Fraction, largest: int, width: int, bits: Bits) -> None:
        self._noise = (sigma_squared, width, bits)
        self._largest = largest

    def add(self, value: Integers) -> list[Integers]:
        """Return the numbers to release, in order, if the next step is ``value``."""
        sigma_squared, width, bits = self._noise
        clipped = np.clip(value, -self._largest, self._largest)
        return [row + discrete_gaussian(sigma_squared, width, bits) for row in self._rows(clipped)]

    @abstractmethod
    def _rows(self, value: Integers) -> list[Integers]:
        """Return the numbers of `add` without noise."""


class Decoder(ABC):
    """Compute estimates from the released numbers alone."""

    @abstractmethod
    def read(self, released: Sequence[Integers]) -> Real:
        """Return the estimate of the sum of all steps so far, from this step's released numbers."""


class RowEncoder(Encoder):
    """Release one number per input number: a row of a lower triangular matrix."""

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
    """Solve the rows for the steps one after the other, and add up the estimated steps.

    Args:
        memory: a memory with the encoder's rows, for estimates instead of data.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.sum: Real = np.zeros(())

    def read(self, released: Sequence[Integers]) -> Real:
        """Return the sum of the estimated steps."""
        (row,) = released
        with np.errstate(over="ignore", invalid="ignore"):  # if C^-1 overflows
            step = (row - self.memory.weighted()) / self.memory.own()
            self.memory.push(step)
            self.sum = self.sum + step
        return self.sum


class IntegerTensor(Protocol):
    """Describe the methods of an int64 torch tensor that this module uses."""

    def cpu(self) -> Self:
        """Return the tensor on the CPU, or itself if it is already there."""
        ...

    def numpy(self) -> Integers:
        """Return an array that shares the memory."""
        ...

    def copy_(self, src: Self) -> Self:
        """Copy the numbers of another tensor."""
        ...


class CorrelatedNoise:
    """Add noise to the sums of a training loop, correlated with the noise of earlier steps.

    The class combines a row encoder and its decoder. It stores one vector per step of the band: the
    sum of this step minus its estimate. Subtract the part of earlier estimates from the row W x + Z
    of a step. The rest is the weight of the step times its sum, plus the weighted stored vectors,
    plus Z. The estimate is this rest, divided by the weight and rounded. So all estimates follow
    from the rows, and the vectors are as secret as the sums [MM-8].

    All arithmetic is modulo 2^64, and wraps around if noise is ever this large.

    Args:
        memory: the strategy's rows, as integers.
        sigma_squared: variance of the normal noise on each number of W x, before rounding.
        width: number of numbers per sum.
    """

    def __init__(self, memory: Memory, sigma_squared: Fraction, width: int, bits: Bits) -> None:
        self.memory, self._noise, self._step = memory, (sigma_squared, width, bits), 0

    def add(self, step: int, total: Integers | IntegerTensor) -> None:
        """Replace the sum of a step by its estimate, in place.

        Args:
            step: the number of the step. If earlier steps are missing, an earlier process took
                them. Their stored vectors are lost, so later noise cancels none of their noise
                [MM-9].
            total: 64-bit integers, as an array or a torch tensor. A GPU tensor is copied, because
                the memory and the noise are on the CPU.
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
    """Release the sums of the blocks of 2^l steps that end at this step, for l = 0, 1, ...

    Args:
        scale: the factor of each sum.
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
    """Add up the blocks that contain the steps so far.

    Args:
        scale: the factor of each released sum.
        optimal: True combines a block with all blocks inside it, weighted by precision: the best
            unbiased estimate from released numbers. False uses the block alone.

    Source: Honaker 2015, "Efficient use of differentially private binary trees".
    """

    def __init__(self, steps: int, scale: int, *, optimal: bool) -> None:
        self._t, self._scale = 0, scale
        self._ended: list[Real] = [np.zeros(())] * steps.bit_length()
        self._trust = tree_trust(steps.bit_length()) if optimal else None

    def read(self, released: Sequence[Integers]) -> Real:
        """Return the sum of the estimated blocks, one per binary digit of the steps so far."""
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
    """Return, by level, the weight of a block's own number in the estimate of its sum.

    The own number has variance 1, and the estimated sum of each half has variance v, the result of
    the level below. The best mean of the number and the two halves has variance 2 v / (1 + 2 v),
    which is also the weight of the own number.
    """
    trust = [1.0]
    for _ in range(1, levels):
        trust.append(2 * trust[-1] / (1 + 2 * trust[-1]))
    return trust


class Stream:
    """Take data step by step, and return estimates of their sums.

    Args:
        encoder: holds the data.
        decoder: sees the released numbers.
        steps: number of steps.
        width: number of numbers per step.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, steps: int, width: int) -> None:
        self.encoder, self.decoder = encoder, decoder
        self.left, self.width = steps, width

    def step(self, value: int | Sequence[int] | Integers) -> Real:
        """Take the next step, and return the estimated sum of all steps so far.

        Args:
            value: an integer, or ``width`` integers. A list may have integers of any size.

        Returns:
            An array of shape ``(width,)``.

        Raises:
            TypeError: value has other numbers than integers.
            ValueError: value has another shape, or the last step was taken.
        """
        given = _integers(value)
        if given.shape != (self.width,):
            raise ValueError(f"value has the shape {given.shape}, and a step has {self.width}")
        if not self.left:
            raise ValueError("value: the last step was taken; a longer stream is a new mechanism")
        self.left -= 1
        return self.decoder.read(self.encoder.add(given))


def _integers(value: object) -> Integers:
    """Return integers in 64 bits. A larger one becomes the largest, so it never wraps around.

    Raises:
        TypeError: a number is not an integer.
    """
    # NumPy reads a list with a large integer as floats or objects, so the content would decide.
    given = np.atleast_1d(np.asarray(value, None if hasattr(value, "dtype") else object))
    if given.dtype.kind == "O" and all(
        type(x) is int or isinstance(x, np.integer) for x in given.flat
    ):
        held = [min(max(int(x), -(2**63)), 2**63 - 1) for x in given.flat]
        return np.array(held, np.int64).reshape(given.shape)
    if given.dtype.kind not in "iu":
        raise TypeError("value must be whole numbers: scale and round them before")
    if given.dtype == np.uint64:
        given = np.minimum(given, np.uint64(2**63 - 1))
    return given.astype(np.int64)
