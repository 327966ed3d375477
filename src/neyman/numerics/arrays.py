"""Array types that all modules share, and the generator of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


real_part: Callable[[Array], Array] = attrgetter("real")
"""The real parts: `np.real` takes three calls."""

imaginary_part: Callable[[Array], Array] = attrgetter("imag")
"""The imaginary parts."""


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
