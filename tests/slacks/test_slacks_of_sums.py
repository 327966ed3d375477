"""Engines for sums hold exact numbers, and would not without their slacks.

Each part of an engine is asked with pieces that are exact in floats, so that only the rounding of
the part under test is left. The exact number is what the certificate names, in 60 digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from neyman.numerics.atoms import Atoms
from neyman.numerics.discretization import Discretization
from neyman.profiles.largest_step import LargestStepProfile
from neyman.profiles.lattice import Side
from slacks import needed, numbers


def bare(kind: type, **parts: Any) -> Any:
    """An engine that has nothing but these parts."""
    engine = object.__new__(kind)
    for name, part in parts.items():
        object.__setattr__(engine, name, part)
    return engine


def log_kernel(c: float) -> mpf:
    return c * mpmath.log(c) - (mpf(c) + 1) * mpmath.log1p(c)


@needed("profiles/largest_step.py:LargestStepProfile._most")
def test_chernoff_by_a_few_tilts_of_steps() -> Iterator[bool]:
    for tilt, above, epsilon in numbers(1, 60, (1e3, 1e6), (0.0, 90.0), (0.0, 1e-3)):
        bracket = SimpleNamespace(tilts=np.array([tilt]), log_f_above=lambda _, a=above: a)
        profile = bare(
            LargestStepProfile,
            _table=lambda _: SimpleNamespace(saddle=lambda _: (tilt, 0.0)),
            _one_bracket=lambda _, b=bracket: [b],
            _removed=False,
            _cheap=False,
        )
        exact = above + log_kernel(tilt) - mpf(tilt) * epsilon
        yield profile._most(np.array([epsilon]))[0] >= min(exact, 0)


@needed("profiles/lattice.py:Side.of")
def test_places_of_a_lattice_whose_step_is_no_float() -> Iterator[bool]:
    # Found by a search: here the places err by more than four units of the farthest one.
    for a, b, start, n in ((344, 630, -14, 32), (800, 136, -20, 45), (166, 324, -9, 20)):
        atoms = Atoms(Fraction(a, b), Fraction(0), start, np.ones(n))
        for side in (Side.of(atoms, 0.0), Side.of(Discretization.of(atoms, 0.0), 0.0)):
            exact = [Fraction(a, b) * (start + k) for k in range(n)]
            off = max(abs(Fraction(x) - y) for x, y in zip(side.loss.tolist(), exact, strict=True))
            yield off <= side.place
