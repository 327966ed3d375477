"""Draw integer noise exactly, by the fastest sampler for the scale and the number of draws."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import NDArray

from neyman.noise import rejection
from neyman.noise.bits import Bits
from neyman.noise.large_gaussian import LEAST_SIGMA_SQUARED, strips
from neyman.noise.lookup_table import rounded_table, weights_table
from neyman.noise.parameters import Out, Room, Tensor, is_tensor, positive_rational, room, source


@dataclass(frozen=True)
class Limits:
    """Hold the scales and numbers of draws at which one sampler replaces another."""

    small_scale: int = 1000  # up to this scale, a table takes about a millisecond


LIMITS = Limits()


@overload
def discrete_gaussian(
    sigma_squared: Fraction, size: int, bits: Bits, out: None = None
) -> NDArray[np.int64]: ...
@overload
def discrete_gaussian(
    sigma_squared: Fraction, size: int, bits: Bits | None = None, *, out: Out
) -> Out: ...
def discrete_gaussian(
    sigma_squared: Fraction, size: int, bits: Bits | None = None, out: Room | None = None
) -> Room:
    """Draw independent discrete Gaussian noise, exactly.

    P(X = x) is proportional to exp(-x^2 / (2 sigma^2)) over the integers x.

    Args:
        sigma_squared: sigma^2, an int or Fraction in (0, (2^53 - 1)^2].
        size: number of draws, at least 0.
        bits: the source of randomness; `SecureBits()` in a release. With a tensor, bits may be
            omitted. On a CUDA device, the bits come from the operating system.
        out: an int64 array of shape ``(size,)`` for the draws, instead of a new array. A contiguous
            torch tensor of this type and shape may be on any device. No GPU has run this yet.

    Returns:
        An int64 array of shape ``(size,)``, or ``out`` (an array or a tensor) if it is given.

    Raises:
        TypeError: sigma_squared is not exact (a float), bits is not a `Bits`, or ``out`` is not an
            array or tensor of int64.
        ValueError: sigma_squared is outside its range, size is not an integer of at least 0, or
            ``out`` has another shape.

    Source: Canonne, Kamath and Steinke (2020).
    """
    exact = positive_rational("sigma_squared", sigma_squared, rejection.LIMITS.sigma_squared)
    if is_tensor(out):
        return _into_tensor("discrete_gaussian", exact, size, bits, out)
    out, bits = room(size, out), source(bits)
    if exact <= LIMITS.small_scale**2:
        weights_table(Fraction(0), 1 / (2 * exact)).fill(out, bits)
    elif out.size < 10_000:  # few draws
        rejection.discrete_gaussian(exact, out, bits)
    else:
        strips(exact, rounded=False).fill(out, bits)
    return out


@overload
def discrete_laplace(
    scale: Fraction, size: int, bits: Bits, out: None = None
) -> NDArray[np.int64]: ...
@overload
def discrete_laplace(scale: Fraction, size: int, bits: Bits | None = None, *, out: Out) -> Out: ...
def discrete_laplace(
    scale: Fraction, size: int, bits: Bits | None = None, out: Room | None = None
) -> Room:
    """Draw independent discrete Laplace (two-sided geometric) noise, exactly.

    P(X = x) = tanh(1 / (2 scale)) exp(-|x| / scale) over the integers x.

    Args:
        scale: an int or Fraction in (0, 2^53].
        size, bits, out: as in `discrete_gaussian`, with the same result and errors.

    Source: Canonne, Kamath and Steinke (2020); Ghosh, Roughgarden and Sundararajan (2012).
    """
    exact = positive_rational("scale", scale, rejection.LIMITS.scale)
    if is_tensor(out):
        return _into_tensor("discrete_laplace", exact, size, bits, out)
    out, bits = room(size, out), source(bits)
    # Rejection is faster for fewer draws: per unit of a larger Laplace scale, and for a larger
    # Gaussian scale.
    widest = max(LIMITS.small_scale, out.size // 10)
    if exact <= min(widest, 10**5):  # largest table scale
        weights_table(1 / exact, Fraction(0)).fill(out, bits)
    else:
        rejection.discrete_laplace(exact, out, bits)
    return out


@overload
def rounded_gaussian(
    sigma_squared: Fraction, size: int, bits: Bits, out: None = None
) -> NDArray[np.int64]: ...
@overload
def rounded_gaussian(
    sigma_squared: Fraction, size: int, bits: Bits | None = None, *, out: Out
) -> Out: ...
def rounded_gaussian(
    sigma_squared: Fraction, size: int, bits: Bits | None = None, out: Room | None = None
) -> Room:
    """Draw independent normal noise, rounded to the nearest integer, exactly.

    P(X = x) = Phi((x + 1/2) / sigma) - Phi((x - 1/2) / sigma) over the integers x.

    Args:
        sigma_squared: the variance before rounding, an int or Fraction in (0, (2^53 - 1)^2].
        size, bits, out: as in `discrete_gaussian`, with the same result and errors.

    Source: inversion [NT-5] for small scales, and rejection [NT-6].
    """
    exact = positive_rational("sigma_squared", sigma_squared, rejection.LIMITS.sigma_squared)
    if is_tensor(out):
        return _into_tensor("rounded_gaussian", exact, size, bits, out)
    out, bits = room(size, out), source(bits)
    wide = exact > LEAST_SIGMA_SQUARED
    table = strips(exact, rounded=True) if wide else rounded_table(exact)
    table.fill(out, bits)
    return out


def _into_tensor(law: str, exact: Fraction, size: int, bits: Bits | None, out: Tensor) -> Tensor:
    from neyman.noise import tensor_noise  # imports torch

    tensor_noise.fill(law, exact, size, bits, out)
    return out
