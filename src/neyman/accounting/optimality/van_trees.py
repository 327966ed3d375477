"""Van Trees' inequality: a Bayes risk is at least 1 / (mean information + that of the prior).

The information that a private output has about a parameter is at most n I, and at most
n^2 (E|s|)^2 chi-square, s the score of one record [OP-9]. The prior on [-B, B] has the density
cos^2(pi t / 2 B) / B and the information pi^2 / B^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from neyman.accounting.optimality.guarantee import SLACK
from neyman.numerics.arrays import Array

__all__ = ["cosine_risk", "mean_information"]

PLACES = np.linspace(0.0, 1.0, 1025)


def _masses() -> Array:
    """Weights of the places such that the weighted sum is at least the mean of a convex function.

    On each cell the function lies below its chord, and the prior's mass and first moment there
    have closed forms [OP-10].
    """
    u = PLACES
    mass = np.diff(u + np.sin(np.pi * u) / np.pi)
    moment = np.diff(u * u / 2 + u * np.sin(np.pi * u) / np.pi + np.cos(np.pi * u) / np.pi**2)
    share = (moment - u[:-1] * mass) / np.diff(u)
    return np.append(mass - share, 0.0) + np.append(0.0, share)


_MASSES = _masses()


def mean_information(information: Callable[[Array], Array], width: float) -> float:
    """Return an upper bound on the prior mean of an even, convex information on [-width, width]."""
    return float(np.sum(_MASSES * information(width * PLACES))) * (1 + SLACK)


def cosine_risk(information: float, width: float) -> float:
    """Return the bound 1 / (information + pi^2 / width^2)."""
    prior = (math.pi / width) ** 2 if math.isfinite(width) else 0.0
    return (1 - SLACK) / (information + prior) if information + prior > 0 else math.inf
