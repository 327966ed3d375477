"""Array types shared by all modules."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def real_part(z: Array) -> Array:
    """The real parts: `np.real` takes three calls."""
    return z.real  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def imaginary_part(z: Array) -> Array:
    """The imaginary parts."""
    return z.imag  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
