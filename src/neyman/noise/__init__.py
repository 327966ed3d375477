"""Integer noise, drawn exactly: no floating point and no seed between the entropy and the result.

`SecureBits` supplies words of the operating system's randomness through a stream cipher;
`discrete_gaussian` and `discrete_laplace` turn words of any `Bits` into noise with exactly the
stated probabilities: by table look-up for common scales (`neyman.noise.table`), by rejection for
larger ones (`neyman.noise.rejection`).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman.noise import rejection, table
from neyman.noise.bits import Bits, SecureBits
from neyman.noise.parameters import positive_rational

__all__ = ["Bits", "SecureBits", "discrete_gaussian", "discrete_laplace"]


def discrete_gaussian(sigma_squared: Fraction, size: int, bits: Bits) -> NDArray[np.int64]:
    """Independent draws of the discrete Gaussian distribution, exact.

    P(X = x) is proportional to exp(-x^2 / (2 sigma^2)) over the integers x.

    Args:
        sigma_squared: sigma^2, an int or Fraction in (0, (2^53 - 1)^2].
        size: how many draws, at least 0.
        bits: the source of randomness; `SecureBits()` in a release.

    Returns:
        An int64 array of shape ``(size,)``.

    Raises:
        TypeError: for a sigma_squared that is not exact (a float), or a size that is not an int.
        ValueError: for a sigma_squared outside its range, or a size below 0.

    Source: Canonne, Kamath and Steinke (2020).
    """
    exact = positive_rational(
        "sigma_squared", sigma_squared, rejection.LARGEST_SIGMA_SQUARED, rejection.BEYOND
    )
    engine = table if exact <= table.LARGEST_SIGMA_SQUARED else rejection
    return engine.discrete_gaussian(exact, size, bits)


def discrete_laplace(scale: Fraction, size: int, bits: Bits) -> NDArray[np.int64]:
    """Independent draws of the discrete Laplace (two-sided geometric) distribution, exact.

    P(X = x) = tanh(1 / (2 scale)) exp(-|x| / scale) over the integers x.

    Args:
        scale: an int or Fraction in (0, 2^53].
        size: how many draws, at least 0.
        bits: the source of randomness; `SecureBits()` in a release.

    Returns:
        An int64 array of shape ``(size,)``.

    Raises:
        TypeError: for a scale that is not exact (a float), or a size that is not an int.
        ValueError: for a scale outside its range, or a size below 0.

    Source: Canonne, Kamath and Steinke (2020); Ghosh, Roughgarden and Sundararajan (2012).
    """
    exact = positive_rational("scale", scale, rejection.LARGEST_SCALE, rejection.BEYOND)
    engine = table if exact <= table.LARGEST_SCALE else rejection
    return engine.discrete_laplace(exact, size, bits)
