"""Integer noise, drawn exactly: no floating point and no seed between the entropy and the result.

`SecureBits` supplies words of the operating system's randomness through a stream cipher;
`discrete_gaussian`, `discrete_laplace`, and `rounded_gaussian` turn words of any `Bits` into noise
with exactly the stated probabilities: by table look-up for common scales
(`neyman.noise.lookup_table`), by strips for larger ones (`neyman.noise.strips`), and by rejection
for few draws and large Laplace scales (`neyman.noise.rejection`). Real noise is drawn bit by bit
and rounded to a grid (`neyman.noise.real_noise`). A tensor of torch is filled on its own device
(`neyman.noise.tensor_noise`). For more cells than fit in memory, draw them in
parts: the table of a scale is kept, and a part needs little memory beyond its own array.

**Time is not hidden.** Look-ups depend on the noise: a table is read at places that follow from the
random bits, some draws ask for more bits than others, and rejection repeats some draws. The noise
does not depend on the data, so neither does any of this; but who learns something of the noise
learns as much of the exact value below it. That takes someone who watches while the noise is drawn
from the same machine: another process that shares the processor's caches can tell which parts of a
table were read. Whoever sees a release only when it is complete sees one duration for all cells
together, in which reading the data and writing the files weigh many times more. So: draw noise
where no one else's programs run; put no sampler behind a service that answers one cell at a time
and whose answers can be timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import NDArray

from neyman.noise import lookup_table, rejection
from neyman.noise.bits import Bits, SecureBits
from neyman.noise.parameters import Out, Room, Tensor, is_tensor, positive_rational, room, source
from neyman.noise.strips import LEAST_SIGMA_SQUARED, strips

__all__ = ["Bits", "SecureBits", "discrete_gaussian", "discrete_laplace", "rounded_gaussian"]


@dataclass(frozen=True)
class Limits:
    """Which sampler a scale and a number of draws get."""

    small_scale: int = 1000  # up to which a table is made in about a millisecond
    # Rejection makes fewer draws sooner: of a larger Laplace scale, per unit of the scale, and of
    # a larger Gaussian one.
    table_draws_per_scale: int = 10
    few_draws: int = 10_000


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
    """Independent draws of the discrete Gaussian distribution, exact.

    P(X = x) is proportional to exp(-x^2 / (2 sigma^2)) over the integers x.

    Args:
        sigma_squared: sigma^2, an int or Fraction in (0, (2^53 - 1)^2].
        size: how many draws, at least 0.
        bits: the source of randomness; `SecureBits()` in a release. With a tensor it may be left
            out, and on a CUDA device it is the operating system's.
        out: an int64 array of shape ``(size,)`` to be written to, instead of a new one. A
            contiguous torch tensor of that type and shape may be on any device; no GPU has
            run this yet.

    Returns:
        An int64 array of shape ``(size,)``: ``out`` where it was given, an array or a tensor.

    Raises:
        TypeError: for a sigma_squared that is not exact (a float), bits that are no `Bits`, or an
            ``out`` that is no array or tensor of int64.
        ValueError: for a sigma_squared outside its range, a size that is not a whole number of at
            least 0, or an ``out`` of another shape.

    Source: Canonne, Kamath and Steinke (2020).
    """
    exact = positive_rational(
        "sigma_squared", sigma_squared, rejection.LIMITS.sigma_squared, rejection.BEYOND
    )
    if is_tensor(out):
        return _into_tensor("discrete_gaussian", exact, size, bits, out)
    out = room(size, out)
    if exact > LIMITS.small_scale**2 and out.size >= LIMITS.few_draws:
        strips(exact, rounded=False).fill(out, source(bits))
        return out
    engine = lookup_table if exact <= LIMITS.small_scale**2 else rejection
    return engine.discrete_gaussian(exact, out.size, source(bits), out)


@overload
def discrete_laplace(
    scale: Fraction, size: int, bits: Bits, out: None = None
) -> NDArray[np.int64]: ...
@overload
def discrete_laplace(scale: Fraction, size: int, bits: Bits | None = None, *, out: Out) -> Out: ...
def discrete_laplace(
    scale: Fraction, size: int, bits: Bits | None = None, out: Room | None = None
) -> Room:
    """Independent draws of the discrete Laplace (two-sided geometric) distribution, exact.

    P(X = x) = tanh(1 / (2 scale)) exp(-|x| / scale) over the integers x.

    Args:
        scale: an int or Fraction in (0, 2^53].
        size, bits, out: as in `discrete_gaussian`, with the same result and errors.

    Source: Canonne, Kamath and Steinke (2020); Ghosh, Roughgarden and Sundararajan (2012).
    """
    exact = positive_rational("scale", scale, rejection.LIMITS.scale, rejection.BEYOND)
    if is_tensor(out):
        return _into_tensor("discrete_laplace", exact, size, bits, out)
    out = room(size, out)
    widest = max(LIMITS.small_scale, out.size // LIMITS.table_draws_per_scale)
    engine = lookup_table if exact <= min(widest, lookup_table.LIMITS.scale) else rejection
    return engine.discrete_laplace(exact, out.size, source(bits), out)


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
    """Independent draws of normal noise, rounded to the nearest whole number, exact.

    P(X = x) = Phi((x + 1/2) / sigma) - Phi((x - 1/2) / sigma) over the integers x.

    Args:
        sigma_squared: the variance before rounding, an int or Fraction in (0, (2^53 - 1)^2].
        size, bits, out: as in `discrete_gaussian`, with the same result and errors.

    Source: inversion [NT-5] for small scales, and rejection [NT-6].
    """
    exact = positive_rational(
        "sigma_squared", sigma_squared, rejection.LIMITS.sigma_squared, rejection.BEYOND
    )
    if is_tensor(out):
        return _into_tensor("rounded_gaussian", exact, size, bits, out)
    out = room(size, out)
    if exact > LEAST_SIGMA_SQUARED:
        strips(exact, rounded=True).fill(out, source(bits))
        return out
    return lookup_table.rounded_gaussian(exact, out.size, source(bits), out)


def _into_tensor(law: str, exact: Fraction, size: int, bits: Bits | None, out: Tensor) -> Tensor:
    from neyman.noise import tensor_noise  # which imports torch

    tensor_noise.fill(law, exact, size, bits, out)
    return out
