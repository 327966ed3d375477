"""Convolve finite measures on a lattice, with small relative errors.

Sums and products of nonnegative numbers never cancel. Therefore, in a direct convolution, the
relative error of each entry grows only with the number of terms. If that is too slow, a Fourier
transform is used, with a bound on its absolute rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import TypeVar

import numpy as np

from neyman.numerics.arrays import Array
from neyman.numerics.operations import CALL, cells, charge

UNIT = 2.0**-53  # largest relative error of one rounding to a float
LEAST_WEIGHT = 1e-300  # smaller weights are omitted, because such floats lose digits
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """Represent weights at ``offset + step * (start + i)``, i = 0 .. len(weight) - 1.

    Args:
        step: lattice step, above zero, exact.
        offset: exact shift of the lattice.
        start: index of the first weight.
        weight: non-negative weights, shape (n,). The measure is ``exp(log_scale) * weight``.
        log_scale: logarithm of the common factor.
        tail: bound on the total omitted weight (same scale as ``weight``).
        relative: bound on the relative error of each weight.
        absolute: bound on a further absolute error of each weight.
        place: bound on the error of each weight's position, beyond its rounding.
    """

    step: Fraction
    offset: Fraction
    start: int
    weight: Array
    log_scale: float = 0.0
    tail: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    place: float = 0.0

    def __len__(self) -> int:
        return len(self.weight)

    def points(self) -> Array:
        """Return the positions of the weights, shape (n,)."""
        first = float(self.offset + self.step * self.start)
        return first + float(self.step) * np.arange(len(self.weight))

    @property
    def drift(self) -> float:
        """Return a bound on the error of each position, beyond four `UNIT` of the farthest one.

        If the step is not exactly a float, its error counts once per lattice step.
        """
        off = abs(Fraction(float(self.step)) - self.step)
        return self.place + len(self.weight) * float(off)

    def strided(self, step: Fraction) -> Atoms:
        """Return the same measure on a finer lattice, whose ``step`` must divide ``self.step``."""
        ratio = self.step / step
        if ratio.denominator != 1:
            # Guards against our own choice of a finer step.
            raise ValueError(f"step = {step} does not divide {self.step}")
        stride = int(ratio)
        if stride == 1:
            return self
        length = (len(self.weight) - 1) * stride + 1
        cells(length)
        weight = np.zeros(length)
        weight[::stride] = self.weight
        return replace(self, step=step, start=self.start * stride, weight=weight)


def convolve(a: Atoms, b: Atoms, work: float = 3e7) -> Atoms:
    """Return the convolution of two measures on one lattice.

    Args:
        a, b: measures with equal steps.
        work: largest number of multiplications for a direct convolution, which keeps relative
            errors small.
    """
    short, long = sorted((len(a), len(b)))
    log_scale = a.log_scale + b.log_scale
    # Twice a float is exact. Another sum errs by a unit of itself.
    scale_units = 0.0 if b is a else abs(log_scale)
    # slack: weights_of_a_convolution/a
    relative = (1 + a.relative) * (1 + b.relative) * (1 + (4 + scale_units) * UNIT) - 1
    sum_a, sum_b = float(a.weight.sum()), float(b.weight.sum())
    absolute = a.absolute * sum_b + b.absolute * sum_a + short * a.absolute * b.absolute
    if short * long <= work:
        charge(CALL + 0.4 * short * long)
        weight, roundings = direct_sums(*sorted((a.weight, b.weight), key=len))
        # slack: weights_of_a_convolution/a
        relative += roundings * UNIT * (1 + relative)  # [ES-2]
    else:
        size = short + long - 1
        n = 1 << (size - 1).bit_length()
        cells(n)
        charge(CALL + 6 * n * math.log2(n))
        transform = np.fft.rfft(a.weight, n)
        product = transform * (transform if b is a else np.fft.rfft(b.weight, n))
        weight = np.maximum(np.fft.irfft(product, n)[:size], 0.0)
        # Each radix-2 pass errs by at most a few units in the root mean square (Higham, Accuracy
        # and Stability of Numerical Algorithms, theorem 24.2); three transforms and a product.
        # slack: weights_of_a_convolution
        growth = (24 * math.log2(n) + 16) * UNIT  # [ES-4]
        absolute += growth * float(np.linalg.norm(a.weight) * np.linalg.norm(b.weight))
    # Products that underflow are lost.
    tail = a.tail * (sum_b + b.tail) + b.tail * sum_a + 1e-310
    offset, start, place = a.offset + b.offset, a.start + b.start, a.place + b.place
    return Atoms(a.step, offset, start, weight, log_scale, tail, relative, absolute, place)


def direct_sums(short: Array, long: Array) -> tuple[Array, int]:
    """Return a convolution, and the most roundings of an entry: in a block, and of blocks [ES-2].

    A block of 4 sqrt(n) of n terms hardly takes longer than all terms together.
    """
    block = 4 * math.isqrt(len(short)) + 1
    sums = np.zeros(len(short) + len(long) - 1)
    for start in range(0, len(short), block):
        part = np.convolve(long, short[start : start + block])
        sums[start : start + len(part)] += part
    return sums, min(block, len(short)) + math.ceil(len(short) / block) - 1


def _trim(a: Atoms) -> Atoms:
    """Drop negligible weights at both ends and add them to the tail.

    Rescale a very large or small sum.
    """
    total = float(a.weight.sum())
    if not 0 < total < math.inf:
        return a
    if not 1e-100 < total < 1e100:
        moved = math.log(total)
        scale = a.log_scale + moved
        # The logarithm errs by 2 units of itself, the scale by one, and a quotient by one.
        sizes = 4 + 2 * abs(moved) + abs(scale)
        a = replace(
            a,
            weight=a.weight / total,
            tail=a.tail / total,
            absolute=a.absolute / total,
            log_scale=scale,
            relative=a.relative + UNIT * sizes,  # slack: weights_of_another_scale
        )
        total = 1.0
    # A transform's rounding leaves noise at empty places. Drop it.
    floor = 1e-290 * total if not a.absolute else max(total * 1e-24, 4 * a.absolute)
    keep = np.nonzero(a.weight > floor)[0]
    if len(keep) == 0 or (keep[0] == 0 and keep[-1] == len(a.weight) - 1):
        return a
    low, high = int(keep[0]), int(keep[-1]) + 1
    cut = float(a.weight[:low].sum() + a.weight[high:].sum()) * 1.001 + 1e-300
    cut += a.absolute * (len(a.weight) - high + low)
    return replace(a, start=a.start + low, weight=a.weight[low:high], tail=a.tail + cut)


def repeated(one: T, count: int, combine: Callable[[T, T], T]) -> T:
    """Combine ``count`` >= 1 copies of ``one`` by an associative function, by repeated squaring."""
    result: T | None = None
    while True:
        if count & 1:
            result = one if result is None else combine(result, one)
        count >>= 1
        if not count:
            assert result is not None
            return result
        one = combine(one, one)


def _convolve_and_trim(a: Atoms, b: Atoms) -> Atoms:
    return _trim(convolve(a, b))


def power(a: Atoms, count: int) -> Atoms:
    """Return the ``count``-fold convolution of ``a``, count >= 1."""
    return repeated(a, count, _convolve_and_trim)


def common_step(steps: Sequence[Fraction]) -> Fraction:
    """Return the largest rational number of which every step is a whole multiple."""
    denominator = math.lcm(*(s.denominator for s in steps))
    return Fraction(math.gcd(*(int(s * denominator) for s in steps)), denominator)


def compose(parts: Sequence[tuple[Atoms, int]]) -> Atoms:
    """Return the convolution, on one lattice, of ``count`` copies of each measure in ``parts``."""
    step = common_step([a.step for a, _ in parts])
    powers = sorted((power(a, n).strided(step) for a, n in parts), key=len)
    return reduce(_convolve_and_trim, powers)
