"""The worst of several ordered pairs, with no more of them asked than it takes.

Where a unit may move a release in many ways each way has a curve, and each curve costs. Each lies
above a Gaussian one that costs nothing: a proven mu. They are asked from the largest mu on; where
what a pair's Gaussian admits is already certain of another, the pair changes neither bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from neyman.core.closed import GaussianProfile
from neyman.core.composition import Composition
from neyman.core.questions import up
from neyman.numerics.profile import Profile

__all__ = ["Pair", "mu_above", "ranked", "worst"]

LEAST, MOST = 1e-9, 1e3  # of a mu that tells something, and in floats

Pair = tuple[Composition, Profile, Profile | None]
"""The losses of an ordered pair, its profile, and a Gaussian one that it lies within, if any."""


def mu_above(losses: Composition, profile: Profile) -> float:
    """A proven GDP parameter of an ordered pair, found without a search; inf if there is none."""
    found = profile.mu()
    if found is not None:
        return found[1]
    return math.inf if losses.infinite else up(losses.mu, 4)


def ranked(pairs: Iterable[tuple[Composition, Profile]]) -> tuple[Pair, ...]:
    """Pairs with their Gaussian ones, from the largest mu on; two are not worth the ordering."""
    found = list(pairs)
    if len(found) <= 2:
        return tuple((losses, profile, None) for losses, profile in found)
    known = [math.inf if losses.infinite else up(losses.rough_mu, 4) for losses, _ in found]
    order = sorted(range(len(found)), key=lambda i: -known[i])
    return tuple(
        (*found[i], GaussianProfile(known[i]) if LEAST < known[i] < MOST else None) for i in order
    )


def worst(
    pairs: Iterable[Pair], ask: Callable[[Composition, Profile], tuple[Any, Any]]
) -> tuple[Any, Any]:
    """Bounds on the largest answer of all pairs, to one question or, as arrays, to many.

    Args:
        pairs: from `ranked`.
        ask: bounds on an answer, which is the larger the less private a pair is.
    """
    low: Any = None
    high: Any = None
    for losses, profile, cover in pairs:
        if low is not None and cover is not None and np.all(ask(losses, cover)[1] <= low):
            continue
        found = ask(losses, profile)
        low = found[0] if low is None else _larger(low, found[0])
        high = found[1] if high is None else _larger(high, found[1])
    return low, high


def _larger(a: Any, b: Any) -> Any:
    return np.maximum(a, b) if isinstance(a, np.ndarray) else max(a, b)
