"""The loss of one report among many that come in random order (`crowd` has the pairs)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from neyman.core.bracket import BracketProfile
from neyman.core.crowd import BinaryCrowdProfile, Crowd, CrowdProfile
from neyman.core.loss import Loss, response_mu
from neyman.numerics.atoms import Atoms
from neyman.numerics.dots import Dots
from neyman.numerics.profile import Profile

if TYPE_CHECKING:
    from neyman.core.composition import Composition

__all__ = ["ShuffledLoss", "unshuffled"]

LOG_2 = math.log(2)


@dataclass(frozen=True)
class ShuffledLoss(Loss):
    """One epsilon-local report among those of n people, in random order.

    Alone it has sums for its profile. Where more is asked of it (K, a sum with others) it is held
    between two finite pairs, which takes some seconds to find.

    Args:
        exact_epsilon: of the local report, above 0.
        users: n, at least 2.
        categories: k, for randomized response of k categories: exact for k > 2. None stands for
            any report: the upper bound is that of the clones, the lower one that of randomized
            response of three categories, than which the worst report is no better.
    """

    exact_epsilon: Fraction
    users: int
    categories: int | None

    @cached_property
    def epsilon(self) -> float:
        """Epsilon as a float."""
        return float(self.exact_epsilon)

    @cached_property
    def profile(self) -> Profile:
        """That of one run."""
        if self.categories is not None and self.categories > 2:
            return CrowdProfile(self._crowd(self.categories))
        clones = CrowdProfile(self._crowd(2))
        if self.categories is None:
            three = CrowdProfile(self._crowd(3))
            return BracketProfile(three, clones, "from below with three categories")
        same = BinaryCrowdProfile(self.users, self.epsilon)
        return BracketProfile(same, clones, "from below with all others alike")

    def _crowd(self, categories: int) -> Crowd:
        other = 1 / (math.exp(self.epsilon) + categories - 1)
        own = math.exp(self.epsilon) * other
        return Crowd(self.users - 1, 2 * other, own, other)

    @cached_property
    def _between(self) -> Loss:
        from neyman.core.composition import Composition
        from neyman.core.enclosed import enclosed
        from neyman.core.polygon import composition_between

        alone = Composition.of([(self, 1)])
        return composition_between(enclosed(alone)).parts[0][0]

    @property
    def infinite(self) -> float:
        """None."""
        return 0.0

    @property
    def supremum(self) -> Fraction:
        """That of the report: all others may have sent the other kind."""
        return self.exact_epsilon

    @property
    def step(self) -> None:
        """No lattice."""
        return None

    @property
    def rho(self) -> float:
        """That of the report: no gain is claimed."""
        return self.epsilon**2 / 2

    @property
    def mu(self) -> float:
        """That of the report."""
        return response_mu(self.epsilon)

    def reverse(self) -> ShuffledLoss:
        """The same: both kinds of reports are alike."""
        return self

    def log_mgf(self, z: NDArray) -> NDArray:
        """Of the two finite pairs."""
        return self._between.log_mgf(z)

    def mgf_rounding(self, z: NDArray) -> NDArray:
        """Of the two finite pairs."""
        return self._between.mgf_rounding(z)

    def moments(self, tilts: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Those of the normal loss with the same total variation: to steer by."""
        mu = -2 * float(ndtri_exp(math.log1p(-math.exp(self.profile.log_delta(0.0)[1])) - LOG_2))
        v = min(mu * mu, self.epsilon**2)
        return tilts * (tilts + 1) * v / 2, (tilts + 0.5) * v, np.full(len(tilts), v)

    def decay(self, tilt: float, edges: NDArray) -> NDArray:
        """Of the two finite pairs."""
        return self._between.decay(tilt, edges)

    def atoms(self, tilt: float) -> Atoms:
        """No lattice."""
        raise TypeError("a shuffled report has no lattice; use its two finite pairs")

    def dots(self, tilt: float, step: float) -> Dots:
        """It is not one law."""
        raise TypeError("a shuffled report is held between two laws: ask either")


def unshuffled(losses: Composition) -> Composition:
    """The sum with each shuffled report held between its two finite pairs."""
    return type(losses).of(
        (x._between if isinstance(x, ShuffledLoss) else x, n) for x, n in losses.parts
    )
