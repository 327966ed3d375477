"""Check the arguments of samplers: exact rationals, secure bits, and arrays for the draws."""

from __future__ import annotations

import sys
from fractions import Fraction
from numbers import Rational
from typing import Protocol, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits, SecureBits
from neyman.numerics import check


class Tensor(Protocol):
    """Represent a torch tensor. Torch is not a dependency."""

    def data_ptr(self) -> int:
        """Return the address of the tensor's memory."""
        ...


Room = NDArray[np.int64] | Tensor
Out = TypeVar("Out", NDArray[np.int64], Tensor)


def is_tensor(out: object) -> TypeGuard[Tensor]:
    """Return True if ``out`` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(out, torch.Tensor)


def positive_rational(name: str, value: object, most: int) -> Fraction:
    """Return ``value`` as a fraction in ``(0, most]``.

    Raises:
        TypeError: value is not exact, such as a float.
        ValueError: value is outside ``(0, most]``.
    """
    if isinstance(value, bool) or not isinstance(value, Rational):
        raise TypeError(
            f"{name} = {value!r} must be exact, an int or a fractions.Fraction: "
            "write Fraction('0.1') rather than 0.1"
        )
    number = Fraction(int(value.numerator), int(value.denominator))
    if number <= 0:
        raise ValueError(f"{name} = {value!r} must be above 0")
    if number > most:
        raise ValueError(
            f"{name} = {value!r} must be at most {most}: beyond it, noise might not fit in 64-bit "
            "integers; scale the values down"
        )
    return number


def source(bits: object) -> Bits:
    """Return ``bits`` as a source of randomness.

    Raises:
        TypeError: bits is not a `Bits`, such as NumPy's generators, which can be guessed.
    """
    if not isinstance(bits, Bits):
        raise TypeError(
            f"bits is a {type(bits).__name__}, and must be a neyman.noise.Bits: in a release "
            "SecureBits()"
        )
    return bits


def secure_unless(bits: object) -> Bits:
    """Return `SecureBits`, or the given source."""
    return SecureBits() if bits is None else source(bits)


def room(size: int, out: Room | None) -> NDArray[np.int64]:
    """Return the array for ``size`` draws: ``out``, or a new array.

    Raises:
        TypeError: ``out`` is not an array of int64.
        ValueError: size is not an integer of at least 0, or ``out`` has another shape or is
            read-only.
    """
    size = check.integer("size", size, 0, 1 << 40)
    if out is None:
        return np.empty(size, np.int64)
    if not isinstance(out, np.ndarray) or out.dtype != np.int64:
        kind = getattr(out, "dtype", type(out).__name__)
        raise TypeError(f"out is {kind}, and must be a NumPy array or a torch tensor of int64")
    if out.shape != (size,) or not out.flags.writeable:
        raise ValueError(
            f"out of shape {out.shape} must be writeable and have the shape ({size},): "
            "pass an array of that size, or leave out away"
        )
    return out
