"""What samplers accept: exact rationals, never floats; secure bits; room for what they draw."""

from __future__ import annotations

import sys
from fractions import Fraction
from numbers import Rational
from typing import Protocol, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.numerics import check


class Tensor(Protocol):
    """A tensor of torch, which is not a dependency."""

    def data_ptr(self) -> int:
        """Return where its memory is."""
        ...


Room = NDArray[np.int64] | Tensor
Out = TypeVar("Out", NDArray[np.int64], Tensor)


def is_tensor(out: object) -> TypeGuard[Tensor]:
    """Return whether this is a tensor of torch. Import nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(out, torch.Tensor)


def positive_rational(name: str, value: object, most: int, beyond: str) -> Fraction:
    """``value`` as a fraction in ``(0, most]``.

    Args:
        most: the largest that is accepted.
        beyond: what goes wrong above that, for the message.

    Raises:
        TypeError: for floats and whatever else is not exact.
        ValueError: for a value outside ``(0, most]``.
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
        raise ValueError(f"{name} = {value!r} must be at most {most}: beyond it, {beyond}")
    return number


def source(bits: object) -> Bits:
    """Return the source of randomness.

    Raises:
        TypeError: for what is none, such as NumPy's generators, which can be guessed.
    """
    if not isinstance(bits, Bits):
        raise TypeError(
            f"bits is a {type(bits).__name__}, and must be a neyman.noise.Bits: in a release "
            "SecureBits()"
        )
    return bits


def room(size: int, out: Room | None) -> NDArray[np.int64]:
    """Return the array that ``size`` draws are to be written to: ``out``, or a new one.

    Raises:
        TypeError: for an ``out`` that is no array of int64.
        ValueError: for a size that is not a whole number of at least 0, or an ``out`` of another
            shape or that cannot be written to.
    """
    size = check.integer("size", size)
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
