"""Represent the privacy loss of one person's report among many reports in random order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import ndtri_exp

from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import response_mu
from neyman.curves.losses.loss import Part
from neyman.curves.losses.zcdp_parameters import pure_rho
from neyman.curves.profiles.closed_forms.closed_form import PerfectProfile
from neyman.curves.profiles.profile import Profile
from neyman.curves.profiles.selection import profile_of_one, register, select
from neyman.curves.tradeoff.enclosure import enclosed
from neyman.curves.tradeoff.piecewise_linear import composition_between
from neyman.mechanisms.shuffling.shuffled_profiles import (
    BinaryShuffleProfile,
    BlanketProfile,
    Order,
    ShufflePair,
    ShuffleProfile,
)
from neyman.numerics.arrays import Array
from neyman.numerics.rounding import above

View = Literal["clones", "third", "blanket", "alike", "forward", "backward", "hidden"]

ORDERS: dict[View, tuple[Order, ...]] = {
    "alike": ("P, Q", "Q, P"),
    "forward": ("P, Q",),
    "backward": ("Q, P",),
}
LOG_2 = math.log(2)


def shuffled(epsilon: Fraction, users: int, categories: int | None, *, worst: bool = True) -> Part:
    """Bracket the loss of one epsilon-local report among n shuffled reports between two losses.

    Args:
        epsilon: epsilon of the report, above 0.
        users: n, at least 2.
        categories: k, for randomized response of k categories, or None for any other report.
        worst: True for the worst report of this epsilon. If False, a report other than randomized
            response has only the trivial lower bound.
    """
    upper = ShuffledLoss(epsilon, users, "clones")
    if categories is None:
        if not worst:
            return LossBracket(ShuffledLoss(epsilon, users, "hidden"), upper, "at most")
        lower = ShuffledLoss(epsilon, users, "third", 3)
        return LossBracket(lower, upper, "from below with three categories")
    if categories == 2:
        lower = ShuffledLoss(epsilon, users, "alike")
        return LossBracket(lower, upper, "from below with all others alike")
    lower, upper = (ShuffledLoss(epsilon, users, x, categories) for x in ("third", "blanket"))
    return LossBracket(lower, upper, "from below with all others in a third category")


@dataclass(frozen=True)
class ShuffledLoss(Part):
    """Represent the loss of a pair of distributions that bounds a shuffled report.

    `shuffled_profiles` computes the profile of this loss alone. For the moment generating function,
    and for sums with other losses, two finite pairs bracket it.

    Args:
        exact_epsilon: epsilon of the local report, above 0.
        users: n, at least 2.
        view: "clones": covers any report. "third": all others hold a third category. "blanket": the
            attacker learns who answered truly. "alike": all others hold the same bit
            (a lower bound, the worse of two orders). "forward" and "backward": "alike" in one
            order. "hidden": the trivial lower bound.
        categories: k, for "third" and "blanket".
    """

    exact_epsilon: Fraction
    users: int
    view: View
    categories: int = 2

    @cached_property
    def epsilon(self) -> float:
        """Return epsilon as a float."""
        return float(self.exact_epsilon)

    @cached_property
    def profile(self) -> Profile:
        """Return the privacy profile (delta at each epsilon) of this loss."""
        others = self.users - 1
        if self.view == "blanket":
            return BlanketProfile(others, self.epsilon, self.categories)
        if self.view in ORDERS:
            return BinaryShuffleProfile(self.users, self.epsilon, ORDERS[self.view])
        if self.view == "hidden":
            return PerfectProfile()
        return ShuffleProfile(ShufflePair(others, self.epsilon, self.categories))

    @cached_property
    def between(self) -> Part:
        """Return a bracket of this loss by two finite pairs, for sums with other losses [SH-8]."""
        if self.view == "alike":
            return replace(self, view="backward").between
        alone = Composition.of([(self, 1)])
        return composition_between(enclosed(alone)).parts[0][0]

    @property
    def supremum(self) -> Fraction:
        """Return the largest loss: epsilon, because all other reports may be of the other kind."""
        return self.exact_epsilon

    @property
    def rho(self) -> float:
        """Return the rho of the report, without amplification."""
        return above(pure_rho(self.exact_epsilon))

    @property
    def mu(self) -> float:
        """Return the mu of a Gaussian curve below the curve of the report."""
        return response_mu(self.epsilon)

    def reverse(self) -> ShuffledLoss:
        """Return this loss, or the other order for "forward" and "backward"."""
        other: dict[View, View] = {"forward": "backward", "backward": "forward"}
        return replace(self, view=other[self.view]) if self.view in other else self

    def log_mgf(self, z: Array) -> Array:
        """Return log E[e^{zL}] for the bracket `between`."""
        return self.between.log_mgf(z)

    def mgf_rounding(self, z: Array) -> Array:
        """Bound the rounding error of `log_mgf`."""
        return self.between.mgf_rounding(z)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Estimate K, K' and K'' at ``tilts``, for K(z) = log E[e^{zL}]. No bound uses them.

        They are exact for a normal loss with the same total variation.
        """
        advantage = min(math.exp(self.profile.log_delta(0.0)[1]), 1 - 1e-16)
        mu = -2 * float(ndtri_exp(math.log1p(-advantage) - LOG_2))
        v = min(mu * mu, self.epsilon**2)
        # same: / 2 -> * 2: It steers: moments of a normal loss choose the tilts, and exact sums
        # certify the answer.
        # same: 0.5 -> 0.5005: It steers: moments of a normal loss choose the tilts, and exact sums
        # certify the answer.
        return tilts * (tilts + 1) * v / 2, (tilts + 0.5) * v, np.full(len(tilts), v)


@profile_of_one.register
def _(loss: ShuffledLoss) -> Profile:
    return loss.profile


@register(60, "a part is a shuffled report: it is held between two finite pairs")
def _shuffled_profile(composition: Composition) -> Profile | None:
    if ShuffledLoss not in composition.kinds:
        return None
    return select(
        Composition.of(
            (loss.between if isinstance(loss, ShuffledLoss) else loss, count)
            for loss, count in composition.parts
        )
    )
