"""Compute sums of waves: characteristic functions, accurate even very close to 1."""

from __future__ import annotations

import math

import numpy as np

from neyman.numerics.arrays import Array, dot, imaginary_part, real_part
from neyman.numerics.atoms import UNIT
from neyman.numerics.operations import CALL, charge

BLOCK_NUMBERS = 1 << 19  # complex numbers in memory at a time
WAVE_OPERATIONS = 25.0  # operations of a complex exponential or product


def evenly(u: Array) -> bool:
    """Return True if ``u`` has more than 8 entries, evenly spaced from 0."""
    return bool(len(u) > 8 and u[0] == 0 and np.abs(np.diff(u) - u[1]).max() <= 1e-9 * abs(u[1]))


def wave_sum(place: Array, weight: Array, u: Array) -> Array:
    """Return the sum over k of weight[k] (e^{i u place[k]} - 1) for each u, shape (m,).

    Args:
        place, weight: position and weight of each atom, shape (n,).
        u: shape (m,). If evenly spaced from 0, a few waves are computed and multiplied to get the
            others: e^{a + b} - 1 = (e^a - 1) e^b + (e^b - 1).
    """
    if not evenly(u):
        charge(CALL + WAVE_OPERATIONS * len(u) * len(place))
        rows = max(1, BLOCK_NUMBERS // len(place))
        blocks = [
            _apply_matrix(np.expm1(1j * np.multiply.outer(u[k : k + rows], place)), weight)
            for k in range(0, len(u), rows)
        ]
        return np.concatenate(blocks)
    count = len(u)
    short = math.ceil(math.sqrt(count))
    if len(place) * short > 1 << 22:  # in halves, to save memory
        half = len(place) // 2
        return wave_sum(place[:half], weight[:half], u) + wave_sum(place[half:], weight[half:], u)
    first = np.expm1(1j * u[1] * place)
    charge(CALL + len(place) * (count + WAVE_OPERATIONS * short))
    fine = _powers(first, short)
    following = fine[-1] * (first + 1) + first  # the wave of u[short]
    far = _powers(following, math.ceil(count / short))
    parts = (far + 1) * weight
    return (_product(parts, fine.T) + _apply_matrix(far, weight)[:, None]).ravel()[:count]


def wave_sums(place: Array, weight: Array, u: Array) -> Array:
    """Return `wave_sum` for several distributions at once, shape (distributions, m).

    Args:
        place, weight: shape (distributions, n).
        u: shape (m,); `evenly` must hold.
    """
    short = math.ceil(math.sqrt(len(u)))
    long = math.ceil(len(u) / short)
    charge(CALL + place.size * (len(u) + WAVE_OPERATIONS * short))
    rows = max(1, BLOCK_NUMBERS // (2 * (short + long) * place.shape[1]))
    sums = np.empty((len(place), short * long), complex)
    for k in range(0, len(place), rows):
        first = np.expm1(1j * u[1] * place[k : k + rows])
        fine = _powers(first, short)
        far = _powers(fine[-1] * (first + 1) + first, long)
        far_sum = np.einsum("apn,pn->pa", far, weight[k : k + rows])
        far += 1
        far *= weight[k : k + rows]
        block = np.matmul(far.transpose(1, 0, 2), fine.transpose(1, 2, 0)) + far_sum[:, :, None]
        sums[k : k + rows] = block.reshape(len(block), -1)
    return sums[:, : len(u)]


def rounding(place: Array, weight: Array, u: Array) -> Array:
    """Return a bound on the error of `wave_sum`, shape (m,), if each place errs by a few roundings.

    For several distributions, as in `wave_sums`, the shape is (distributions, m). In units of
    2^-53: a wave errs by at most the phase's error, each doubling of the exponent adds three units
    of the phase, and a sum of n terms adds n units.
    """
    units = (place.shape[-1] + 32 + 4 * math.log2(len(u) + 1)) * UNIT  # slack: a_sum_of_waves
    return units * np.multiply.outer((weight * np.abs(place)).sum(axis=-1), np.abs(u))


def series(weight: Array, angle: Array) -> Array:
    """Return the sum over k of weight[k] e^{-i k angle} for each angle, shape (m,).

    For many terms, a few waves are computed and multiplied to get the others. Besides the rounding
    of the angle, a term errs by at most 12 sqrt(n) + 16 units of 2^-53, for n terms: five for each
    product.
    """
    if len(weight) < 8 or (len(angle) < 8 and len(angle) * len(weight) < 1 << 10):
        charge(CALL + WAVE_OPERATIONS * len(weight) * len(angle))
        k = np.arange(len(weight))
        return _apply_matrix(np.exp(np.multiply.outer(angle, -1j * k)), weight)
    short = math.ceil(math.sqrt(len(weight)))
    long = math.ceil(len(weight) / short)
    charge(CALL + len(angle) * (4 * len(weight) + 2 * WAVE_OPERATIONS * short))
    blocks = np.zeros(short * long, complex)
    blocks[: len(weight)] = weight
    first = np.exp(-1j * angle)
    fine = _products(first, short)
    coarse = _products(np.exp(-1j * short * angle), long)
    return (_product(fine, blocks.reshape(long, short).T) * coarse).sum(axis=1)


def even_series(weight: Array, start: float, step: float, count: int) -> tuple[Array, Array]:
    """Return sum over k of weight[k] e^{-i k (start + j step)} for j < count, with error [C-11].

    Because k j = (k^2 + j^2 - (j - k)^2) / 2, the sums are convolutions with a chirp, computed by
    Fourier transforms (Bluestein 1970).

    Args:
        weight: complex, shape (n,).
        start, step: first angle, and distance between consecutive angles.
        count: number of angles.

    Returns:
        The sums, and a bound on the error of each, besides the rounding of the angles; shape (m,).
    """
    n, block = len(weight), min(count, 1 << 13)
    charge(CALL + 500 * (n + count))  # three Fourier transforms
    size = 1 << (n + block - 2).bit_length()
    k = np.arange(max(n, block), dtype=float)
    chirp = np.exp(0.5j * step * (k * k))
    around = np.zeros(size, complex)
    around[:block] = chirp[:block]
    around[size - n + 1 :] = chirp[1:n][::-1]
    transform = np.fft.fft(around)
    tilted = weight * np.conj(chirp[:n])
    sums = np.empty(count, complex)
    for first in range(0, count, block):
        turned = tilted * np.exp(-1j * (start + first * step) * k[:n])
        product = np.fft.ifft(np.fft.fft(turned, size) * transform)
        end = min(first + block, count)
        sums[first:end] = np.conj(chirp[: end - first]) * product[: end - first]
    norm = float(np.linalg.norm(weight)) * math.sqrt(n + block)
    # Three transforms and a product, as in `convolve` [ES-4].
    transforms = (24 * math.log2(size) + 16) * UNIT * norm  # slack: counted
    # slack: a_series_at_even_angles/a
    phases = (8 + 2 * abs(step) * (n * n + block * block + len(k) ** 2)) * UNIT
    error = transforms + phases * float(np.abs(weight).sum())
    # slack: a_series_at_even_angles/a
    turning = 3 * UNIT * dot(np.abs(weight), k[:n])  # error of k times the angle
    far = max(abs(start), abs(start + count * step))
    return sums, np.full(count, error + turning * far)


def _product(left: Array, right: Array) -> Array:
    """Return the product of two matrices. Compute small ones in one thread, which is faster.

    A library may share a product among threads, which then wait for the next one at full load. So
    compute a product in blocks that are too small to share. The bound of `rounding` holds for every
    order of the terms in a sum.
    """
    rows, terms, columns = left.shape[0], left.shape[1], right.shape[1]
    if rows * terms * columns > 1 << 22:
        return left @ right
    if min(rows, columns) == 1:  # even small products of a vector are shared
        return np.einsum("ij,jk->ik", left, right)
    few = min(rows, 8)
    size = max(((1 << 16) - 1) // (few * columns), 1)
    even = terms - terms % size
    tall = right[:even].reshape(-1, size, columns)
    products: list[Array] = []
    for start in range(0, rows, few):
        part = left[start : start + few]
        blocks = part[:, :even].reshape(len(part), -1, size).transpose(1, 0, 2)
        rest = np.matmul(part[:, even:], right[even:])
        products.append(np.add.reduce(np.matmul(blocks, tall)) + rest)
    return np.concatenate(products) if len(products) > 1 else products[0]


def _apply_matrix(matrix: Array, vector: Array) -> Array:
    """Return the product of a matrix and a vector, as `_product` does."""
    return np.add.reduce(matrix * vector, axis=1)


def _products(first: Array, count: int) -> Array:
    """Return the powers first^k for k = 0 .. count - 1, shape (m, count)."""
    products = np.ones((len(first), count), complex)
    done, following = 1, first[:, None]
    while done < count:
        more = min(done, count - done)
        products[:, done : done + more] = products[:, :more] * following
        done += more
        following = following * following
    return products


def _powers(first: Array, count: int) -> Array:
    """Return e^{i k x} - 1 for k = 0 .. count - 1, shape (count, *first.shape).

    ``first`` has e^{i x} - 1.
    """
    sums = np.zeros((count, *first.shape), complex)
    done = 1
    following = first.copy()
    while done < count:
        # A wave below e^-138 counts as 0, because subnormal floats are slow.
        # `rounding` charges such a wave more than a unit of its weight.
        following[np.abs(following + 1) < 1e-60] = -1
        more = min(done, count - done)
        sums[done : done + more] = sums[:more] * (following + 1) + following
        done += more
        following = following * (following + 2)
    return sums


def log1p(m: Array) -> Array:
    """Return log(1 + m), with relative accuracy near 0. m may be complex."""
    if m.dtype.kind != "c":
        return np.log1p(m)
    a, b = real_part(m), imaginary_part(m)
    size = np.hypot(1 + a, b)
    near = size > 0.5
    near &= size < 1e100
    x, y = np.where(near, a, 0.0), np.where(near, b, 0.0)
    from_one = 2 * x + x * x + y * y
    size = np.where(near, 0.5 * np.log1p(from_one), np.log(np.maximum(size, 1e-300)))
    return size + 1j * np.arctan2(b, 1 + a)
