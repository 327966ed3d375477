"""Array types that all modules share, and the generator of a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def real_part(z: Array) -> Array:
    """Return the real parts: `np.real` takes three calls."""
    return z.real  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def imaginary_part(z: Array) -> Array:
    """Return the imaginary parts."""
    return z.imag  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def generator_of(generator: object, seed: int | None = None) -> np.random.Generator:
    """Return the generator of a simulation, or a new one; no release draws from it.

    Args:
        generator: a NumPy generator, or None.
        seed: of the new one; None draws a seed.

    Raises:
        TypeError: it is something else.
    """
    if generator is None:
        return np.random.default_rng(seed)
    if not isinstance(generator, np.random.Generator):
        raise TypeError(f"generator = {generator!r} must be a numpy.random.Generator")
    return generator
