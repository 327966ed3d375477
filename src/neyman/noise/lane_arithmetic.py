"""Share integer arithmetic between NumPy arrays, torch tensors, and Triton kernels [NT-8].

Triton compiles these functions. So they use operators, literal constants, and quoted annotations,
and no function calls another.
"""

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.int64]

CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # of ChaCha20
DOUBLE_ROUNDS = 10


def quarter(a: "Lanes", b: "Lanes", c: "Lanes", d: "Lanes") -> "tuple[Lanes, Lanes, Lanes, Lanes]":
    """Compute a quarter round of ChaCha20, on signed 32-bit integers that wrap around.

    A shift to the right copies the sign, so a mask removes the copies.

    Source: RFC 8439, section 2.1.
    """
    a = a + b
    d = d ^ a
    d = (d << 16) | ((d >> 16) & 0xFFFF)
    c = c + d
    b = b ^ c
    b = (b << 12) | ((b >> 20) & 0xFFF)
    a = a + b
    d = d ^ a
    d = (d << 8) | ((d >> 24) & 0xFF)
    c = c + d
    b = b ^ c
    b = (b << 7) | ((b >> 25) & 0x7F)
    return a, b, c, d


def exponents(strip: "Lanes", near: "Lanes", far: "Lanes", factor: "int") -> "tuple[Lanes, Lanes]":
    """Bound 2^30 d from below and above, for d = c s (2 h + s) [NT-7].

    e^-d is the weight of a place in a strip (see `large_gaussian`), divided by the weight of the
    strip's start.

    Args:
        strip: h, the number of the strip.
        near, far: bounds on 2^20 s, for the position s of the place within the strip, in [0, 1].
        factor: 2^34 c, rounded down, for c = 4^b / (2 sigma^2).
    """
    twice = strip << 21
    # s (2 h + s) < 2^11, in units of 2^-30.
    d_low = ((near * (twice + near)) >> 10) * factor >> 34
    d_high = ((((far * (twice + far)) >> 10) + 1) * (factor + 1) >> 34) + 1
    return d_low, d_high


def series(d: "Lanes") -> "Lanes":
    """Return 2^30 e^-x for x = d / 2^30, with an error of at most 64. x must be below 1/8."""
    total = (1 << 30) - d // 5
    total = (1 << 30) - (total * d >> 30) // 4
    total = (1 << 30) - (total * d >> 30) // 3
    total = (1 << 30) - (total * d >> 30) // 2
    return (1 << 30) - (total * d >> 30)


def chances(start: "Lanes", large: "Lanes", small: "Lanes") -> "tuple[Lanes, Lanes]":
    """Bound 2^30 times the acceptance probability of a place in a strip.

    Args:
        start: 2^30 times this probability at the start of the strip, rounded down.
        large, small: the `series` at the lower and at the upper bound from `exponents`.
    """
    least = (start * (small - 64)) >> 30
    most = ((start + 2) * (large + 64) >> 30) + 1
    return least, most
