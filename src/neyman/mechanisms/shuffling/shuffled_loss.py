"""The loss of one report among many that come in random order (`crowd` has the pairs)."""

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
from neyman.mechanisms.shuffling.dominating_pairs import (
    BinaryShuffleProfile,
    BlanketProfile,
    ShufflePair,
    ShuffleProfile,
)
from neyman.numerics.arrays import Array
from neyman.numerics.rounding import above

View = Literal["clones", "third", "blanket", "alike", "forward", "backward", "hidden"]

LOG_2 = math.log(2)


def shuffled(epsilon: Fraction, users: int, categories: int | None, *, worst: bool = True) -> Part:
    """One epsilon-local report among those of n people, in random order, held between two losses.

    Args:
        epsilon: of the report, above 0.
        users: n, at least 2.
        categories: k, for randomized response of k categories; None for any other report.
        worst: whether the worst report of that epsilon is meant; if not, nothing is known from
            below of a report that is no randomized response.
    """
    if categories is None:
        upper = ShuffledLoss(epsilon, users, "clones")
        if not worst:
            return LossBracket(ShuffledLoss(epsilon, users, "hidden"), upper, "at most")
        lower = ShuffledLoss(epsilon, users, "third", 3)
        return LossBracket(lower, upper, "from below with three categories")
    if categories == 2:
        lower = ShuffledLoss(epsilon, users, "alike")
        upper = ShuffledLoss(epsilon, users, "clones")
        return LossBracket(lower, upper, "from below with all others alike")
    lower = ShuffledLoss(epsilon, users, "third", categories)
    upper = ShuffledLoss(epsilon, users, "blanket", categories)
    return LossBracket(lower, upper, "from below with all others in a third category")


@dataclass(frozen=True)
class ShuffledLoss(Part):
    """One pair by which a shuffled report is bounded.

    Alone it has sums for its profile. Where more is asked of it (K, a sum with others) it is held
    between two finite pairs.

    Args:
        exact_epsilon: of the local report, above 0.
        users: n, at least 2.
        view: "clones", which covers any report; "third", where all others hold a third category,
            "blanket", where it is told who answered truly; "alike", where all others hold the same
            bit (from below, the worse of two orders); "forward" and "backward",
            the same in each order; "hidden", where nothing is claimed from below.
        categories: k, for the second and the third.
    """

    exact_epsilon: Fraction
    users: int
    view: View
    categories: int = 2

    @cached_property
    def epsilon(self) -> float:
        """Epsilon as a float."""
        return float(self.exact_epsilon)

    @cached_property
    def profile(self) -> Profile:
        """That of one run."""
        others = self.users - 1
        if self.view == "blanket":
            return BlanketProfile(others, self.epsilon, self.categories)
        if self.view == "alike":
            return BinaryShuffleProfile(self.users, self.epsilon)
        if self.view == "forward":
            return BinaryShuffleProfile(self.users, self.epsilon, ("P, Q",))
        if self.view == "backward":
            return BinaryShuffleProfile(self.users, self.epsilon, ("Q, P",))
        if self.view == "hidden":
            return PerfectProfile()
        return ShuffleProfile(ShufflePair(others, self.epsilon, self.categories))

    @cached_property
    def between(self) -> Part:
        """The loss held between two finite pairs, for K and for sums with other losses [SH-8]."""
        if self.view == "alike":
            return replace(self, view="backward").between
        alone = Composition.of([(self, 1)])
        return composition_between(enclosed(alone)).parts[0][0]

    @property
    def supremum(self) -> Fraction:
        """That of the report: all others may have sent the other kind."""
        return self.exact_epsilon

    @property
    def rho(self) -> float:
        """That of the report: no gain is claimed."""
        return above(pure_rho(self.exact_epsilon))

    @property
    def mu(self) -> float:
        """That of the report."""
        return response_mu(self.epsilon)

    def reverse(self) -> ShuffledLoss:
        """Return the same, as both kinds of reports are alike; the
        other order where one is meant.
        """
        other: dict[View, View] = {"forward": "backward", "backward": "forward"}
        return replace(self, view=other[self.view]) if self.view in other else self

    def log_mgf(self, z: Array) -> Array:
        """Of the two finite pairs."""
        return self.between.log_mgf(z)

    def mgf_rounding(self, z: Array) -> Array:
        """Of the two finite pairs."""
        return self.between.mgf_rounding(z)

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        """Those of the normal loss with the same total variation: to steer by."""
        advantage = min(math.exp(self.profile.log_delta(0.0)[1]), 1 - 1e-16)
        mu = -2 * float(ndtri_exp(math.log1p(-advantage) - LOG_2))
        v = min(mu * mu, self.epsilon**2)
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
