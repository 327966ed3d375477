"""Define array types that all modules share, and the generator of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


real_part: Callable[[Array], Array] = attrgetter("real")
"""Return the real parts of an array, faster than `np.real`."""

imaginary_part: Callable[[Array], Array] = attrgetter("imag")
"""Return the imaginary parts of an array."""


def dot(left: Array, right: Array) -> float:
    """Return the sum of the products of real entries, in one thread: `@` may share long arrays."""
    return float(np.add.reduce(left * right))


def generator_of(generator: object, seed: int | None = None) -> np.random.Generator:
    """Return ``generator``, or a new one if it is None. Simulations use it, and releases do not.

    Args:
        generator: a NumPy generator, or None.
        seed: seed of a new generator; None draws a seed.

    Raises:
        TypeError: ``generator`` is of another type.
    """
    if generator is None:
        return np.random.default_rng(seed)
    if not isinstance(generator, np.random.Generator):
        raise TypeError(f"generator = {generator!r} must be a numpy.random.Generator")
    return generator
